//! The gateway as a whole: an acceptor and its workers.
//!
//! On the path: before the first byte. One acceptor hands the sockets of all listeners to the workers
//! in turn, so that a second gateway on the same port fails instead of taking half of the connections.

use core::net::{Ipv4Addr, SocketAddr};
use core::task::Poll;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use farside_fabric::host::{HostClock, HostRandom};
use farside_fabric::tcp::{NodeLocation, Secret};
use farside_kv::{IndexKind, Quota, StoreConfig};
use tokio::sync::{mpsc, watch};

use crate::acl::Users;
use crate::context::Shared;
use crate::listener::{Arrival, Listener, OpenListener};
use crate::live::{Live, LiveSettings, lock};
use crate::observer::{Observer, Survey};
use crate::report::Place;
use crate::statistics::Statistics;
use crate::tls::Tls;
use crate::worker::{Worker, WorkerError};

/// How long to wait when no connection can be accepted (no file descriptors left).
const ACCEPT_PAUSE_NS: u64 = 100_000_000;

/// How a gateway serves.
#[derive(Clone, Debug)]
pub struct GatewayOptions {
    /// How many workers; each is a thread and a client of the pool.
    pub threads: usize,
    /// Who may do what.
    pub users: Arc<Users>,
    /// What the memory nodes want to hear.
    pub secret: Option<Secret>,
    /// What the store is like.
    pub store: StoreConfig,
    /// How much memory may be used, and what happens then. CONFIG SET changes it.
    pub quota: Arc<Quota>,
    /// What else CONFIG SET changes.
    pub settings: LiveSettings,
    /// Where CONFIG REWRITE writes what was changed, if there is a file of settings.
    pub settings_file: Option<Arc<dyn SettingsFile>>,
}

/// A file of settings, which is read when the gateway starts.
pub trait SettingsFile: core::fmt::Debug + Send + Sync {
    /// Gives these settings other values in the file, all or none of them: `yes`, `no`, numbers and names by the names that
    /// CONFIG has for them.
    ///
    /// # Errors
    /// What is in the way, in one line; the file is as before.
    fn rewrite(&self, settings: &[(&'static str, String)]) -> Result<(), String>;
}

/// Why a gateway cannot start; one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// Strangers could reach the store.
    #[error("{address} can be reached from other machines: give a password file, or listen on 127.0.0.1")]
    PasswordRequired {
        /// Where the gateway would listen.
        address: SocketAddr,
    },
    /// The store cannot be opened.
    #[error("{0}")]
    Store(String),
    /// The system gives no thread, runtime or socket.
    #[error("failed to start the gateway: {0}")]
    Io(#[from] io::Error),
}

/// Refuses to listen on anything but this machine's own addresses without a password, or a certificate
/// of each client. TLS alone keeps others from listening, not from connecting.
///
/// # Errors
/// [`GatewayError::PasswordRequired`].
pub fn require_password_unless_loopback(
    address: SocketAddr,
    tls: Option<&Tls>,
    users: &Users,
) -> Result<(), GatewayError> {
    let knows_clients = !users.let_strangers_in() || tls.is_some_and(Tls::knows_clients);
    if address.ip().to_canonical().is_loopback() || knows_clients {
        Ok(())
    } else {
        Err(GatewayError::PasswordRequired { address })
    }
}

/// A gateway whose workers have opened the store.
#[derive(Debug)]
pub struct Gateway {
    listeners: Vec<Listener>,
    shared: Arc<Shared>,
    workers: Vec<(mpsc::UnboundedSender<Arrival>, JoinHandle<()>)>,
    stop: watch::Sender<bool>,
    index: Option<IndexKind>,
}

impl Gateway {
    /// Starts the workers and waits until all have opened the store.
    ///
    /// # Errors
    /// If strangers could reach it without a password, or the store cannot be opened.
    pub fn start(
        listeners: Vec<Listener>,
        nodes: &[NodeLocation],
        options: &GatewayOptions,
    ) -> Result<Self, GatewayError> {
        for listener in &listeners {
            if let Some(address) = listener.address() {
                require_password_unless_loopback(address, listener.tls(), &options.users)?;
            }
        }
        // One without TLS first: that is what INFO means by the port.
        let address = listeners.iter().filter(|listener| listener.tls().is_none());
        let address = address.chain(&listeners).find_map(Listener::address);
        let address = address.unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into());
        lock(&options.users.log).set_entries_max(options.settings.refusals_max);
        let threads = options.threads.max(1);
        let shared = Arc::new(Shared {
            users: Arc::clone(&options.users),
            address,
            started_ms: HostClock.unix_ms(),
            started_ns: HostClock.now_ns(),
            run: HostRandom::new().random(),
            client_next: 1.into(),
            statistics: (0..threads).map(|_| Statistics::default()).collect(),
            census: std::sync::Mutex::default(),
            survey: Survey::default(),
            places: nodes.iter().map(Place::of).collect(),
            secret: options.secret.clone(),
            live: Live::new(
                Arc::clone(&options.quota),
                &options.settings,
                HostRandom::new().random(),
            ),
            settings_file: options.settings_file.clone(),
            is_stopping: false.into(),
        });
        let (stop, stopped) = watch::channel(false);
        let mut gateway = Self {
            listeners,
            shared,
            workers: Vec::new(),
            stop,
            index: None,
        };
        for number in 0..threads {
            if let Err(error) = gateway.start_worker(number, nodes, options, stopped.clone()) {
                gateway.finish();
                return Err(error);
            }
        }
        Ok(gateway)
    }

    fn start_worker(
        &mut self,
        number: usize,
        nodes: &[NodeLocation],
        options: &GatewayOptions,
        stop: watch::Receiver<bool>,
    ) -> Result<(), GatewayError> {
        let (sender, arrivals) = mpsc::unbounded_channel();
        let (ready, opened) = std::sync::mpsc::channel();
        let worker = Worker {
            number,
            nodes: nodes.to_vec(),
            secret: options.secret.clone(),
            config: options.store,
            shared: self.shared.clone(),
            arrivals,
            stop,
        };
        let thread = std::thread::Builder::new()
            .name(format!("worker-{number}"))
            .spawn(move || worker.run(ready))?;
        self.workers.push((sender, thread));
        match opened.recv() {
            Ok(Ok(index)) => {
                self.index = Some(index);
                Ok(())
            }
            Ok(Err(WorkerError::Stack(error))) => Err(GatewayError::Store(error.to_string())),
            Ok(Err(WorkerError::Store(error))) => Err(GatewayError::Store(error.to_string())),
            Err(_) => Err(GatewayError::Store(
                "a worker ended while it opened the store".to_owned(),
            )),
        }
    }

    /// The first port where it listens; 0.0.0.0:0 if there is none.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// Which index the store has.
    #[must_use]
    pub fn index(&self) -> IndexKind {
        self.index.expect("every worker has opened the store")
    }

    /// Looks at the gateway while it serves, from any thread.
    #[must_use]
    pub fn observer(&self) -> Observer {
        Observer {
            shared: self.shared.clone(),
            doors: self.workers.iter().map(|(sender, _)| sender.downgrade()).collect(),
        }
    }

    /// Serves on this thread until `stop` is done; then lets every connection finish its command,
    /// leaves the pool and returns.
    ///
    /// # Errors
    /// If the listener cannot be used.
    pub fn serve(self, stop: impl Future<Output = ()>) -> Result<(), GatewayError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let served = runtime.block_on(self.accept(stop));
        self.finish();
        Ok(served?)
    }

    async fn accept(&self, stop: impl Future<Output = ()>) -> io::Result<()> {
        let listeners: Vec<OpenListener> = self.listeners.iter().map(Listener::open).collect::<Result<_, _>>()?;
        let mut stop = core::pin::pin!(stop);
        for (sender, _) in self.workers.iter().cycle() {
            loop {
                let accepted = tokio::select! {
                    biased;
                    () = &mut stop => return Ok(()),
                    accepted = accept_any(&listeners) => accepted,
                };
                match accepted {
                    Ok(arrival) => {
                        if let Some(arrival) = self.admit(arrival) {
                            // A worker ends only after us.
                            let _ = sender.send(arrival);
                            break;
                        }
                    }
                    Err(error) => {
                        tracing::warn!(listen = %self.shared.address, "cannot accept a connection: {error}");
                        HostClock.sleep(ACCEPT_PAUSE_NS).await;
                    }
                }
            }
        }
        Ok(())
    }

    /// Lets a connection in, unless there are too many.
    fn admit(&self, arrival: Arrival) -> Option<Arrival> {
        let clients_max = self.shared.live.settings.clients_max();
        if self.shared.total(|worker| worker.clients.get()) < clients_max {
            return Some(arrival);
        }
        arrival.refuse(b"-ERR max number of clients reached\r\n");
        None
    }

    fn finish(self) {
        self.shared.is_stopping.store(true, Ordering::Relaxed);
        self.stop.send_replace(true);
        for (sender, thread) in self.workers {
            drop(sender);
            if thread.join().is_err() {
                tracing::error!("a worker panicked");
            }
        }
    }
}

/// The next connection of any of them.
async fn accept_any(listeners: &[OpenListener]) -> io::Result<Arrival> {
    core::future::poll_fn(|cx| {
        for listener in listeners {
            if let Poll::Ready(accepted) = listener.poll_accept(cx) {
                return Poll::Ready(accepted);
            }
        }
        Poll::Pending
    })
    .await
}
