//! Who answers at the address of `--metrics`, and what there is to tell.
//!
//! The same address has the [console](crate::console). A thread of its own answers, so that a scrape never waits for a command, nor a command
//! for a scrape.

mod http;
mod node;

use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;

use farside_fabric::LocalFuture;
use farside_gateway::{Observer, Report, metrics};

pub use self::node::{NodeSource, Pulse};

/// What is to be told at each scrape. Not a type parameter of those who answer: HTTP is compiled once.
pub trait Source: Send + 'static {
    /// The families of metrics as they are now.
    fn families(&self) -> LocalFuture<'_, Vec<metrics::Family>>;

    /// Whether clients are served; if not, why, in one line.
    fn readiness(&self) -> LocalFuture<'_, Result<(), String>>;

    /// Everything there is to say now; of a memory node, what its memory is used for.
    fn report(&self) -> LocalFuture<'_, Report>;

    /// A connection, as a client's; `None` where there are no clients.
    fn connect(&self) -> Option<io::Result<UnixStream>>;

    /// Whether there are clients.
    fn serves_clients(&self) -> bool;
}

impl Source for Observer {
    fn families(&self) -> LocalFuture<'_, Vec<metrics::Family>> {
        Box::pin(async { metrics::gateway(&self.report().await) })
    }

    fn readiness(&self) -> LocalFuture<'_, Result<(), String>> {
        Box::pin(async { Observer::readiness(self).await.map_err(|why| why.to_string()) })
    }

    fn report(&self) -> LocalFuture<'_, Report> {
        Box::pin(Observer::report(self))
    }

    fn connect(&self) -> Option<io::Result<UnixStream>> {
        Some(Observer::connect(self))
    }

    fn serves_clients(&self) -> bool {
        true
    }
}

/// Answers from now on as long as the process lives.
///
/// # Errors
/// If there is no thread for it.
pub fn serve(listener: TcpListener, source: impl Source) -> io::Result<()> {
    http::start(listener, Box::new(source))
}
