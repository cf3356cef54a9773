//! The end of a server: Ctrl-C or SIGTERM.
//!
//! The handlers are in place before anything else is done, so that a server that is asked to end
//! while it starts ends as tidily as any other.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use farside_cli::Failure;

/// Listens to the signals from now on.
#[derive(Clone)]
pub(crate) struct Stop {
    asked: watch::Receiver<bool>,
}

impl Stop {
    /// Puts the handlers in place; a thread waits for them.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(Failure::runtime)?;
        let (interrupt, terminate) = {
            let _inside = runtime.enter();
            (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
        };
        let mut interrupt = interrupt.map_err(Failure::runtime)?;
        let mut terminate = terminate.map_err(Failure::runtime)?;
        let (sender, asked) = watch::channel(false);
        let wait = move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
            });
            sender.send_replace(true);
        };
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(wait)
            .map_err(Failure::runtime)?;
        Ok(Self { asked })
    }

    /// Returns when the user or the system has asked the process to end.
    pub(crate) async fn asked(mut self) {
        // If the thread is gone, so is the process soon.
        let _ = self.asked.wait_for(|asked| *asked).await;
    }
}
