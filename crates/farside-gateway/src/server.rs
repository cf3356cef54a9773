//! The gateway as a whole: an acceptor and its workers.
//!
//! On the path: before the first byte. One acceptor hands sockets to the workers in turn, so that a
//! second gateway on the same port fails instead of taking half of the connections.

use core::net::SocketAddr;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;

use farside_fabric::host::{HostClock, HostRandom};
use farside_fabric::tcp::{NodeLocation, Secret};
use farside_kv::{IndexKind, StoreConfig};
use tokio::io::AsyncWriteExt;
use tokio::sync::{mpsc, watch};

use crate::context::Shared;
use crate::password::Password;
use crate::statistics::Statistics;
use crate::worker::{Worker, WorkerError};

/// How long to wait when no connection can be accepted (no file descriptors left).
const ACCEPT_PAUSE_NS: u64 = 100_000_000;

/// How a gateway serves.
#[derive(Clone, Debug)]
pub struct GatewayOptions {
    /// How many workers; each is a thread and a client of the pool.
    pub threads: usize,
    /// How many connections at once.
    pub clients_max: u64,
    /// What clients have to give.
    pub password: Option<Password>,
    /// What the memory nodes want to hear.
    pub secret: Option<Secret>,
    /// What the store is like.
    pub store: StoreConfig,
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

/// Refuses to listen on anything but this machine's own addresses without a password.
///
/// # Errors
/// [`GatewayError::PasswordRequired`].
pub fn require_password_unless_loopback(address: SocketAddr, password: Option<&Password>) -> Result<(), GatewayError> {
    if address.ip().to_canonical().is_loopback() || password.is_some() {
        Ok(())
    } else {
        Err(GatewayError::PasswordRequired { address })
    }
}

/// A gateway whose workers have opened the store.
#[derive(Debug)]
pub struct Gateway {
    listener: TcpListener,
    shared: Arc<Shared>,
    workers: Vec<(mpsc::UnboundedSender<std::net::TcpStream>, JoinHandle<()>)>,
    stop: watch::Sender<bool>,
    index: Option<IndexKind>,
}

impl Gateway {
    /// Starts the workers and waits until all have opened the store.
    ///
    /// # Errors
    /// If strangers could reach it without a password, or the store cannot be opened.
    pub fn start(
        listener: TcpListener,
        nodes: &[NodeLocation],
        options: &GatewayOptions,
    ) -> Result<Self, GatewayError> {
        let address = listener.local_addr()?;
        require_password_unless_loopback(address, options.password.as_ref())?;
        let threads = options.threads.max(1);
        let shared = Arc::new(Shared {
            password: options.password.clone(),
            address,
            started_ms: HostClock.unix_ms(),
            run: HostRandom::new().random(),
            clients_max: options.clients_max,
            client_next: 1.into(),
            statistics: (0..threads).map(|_| Statistics::default()).collect(),
            census: std::sync::Mutex::default(),
        });
        let (stop, stopped) = watch::channel(false);
        let mut gateway = Self {
            listener,
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
        let (sender, sockets) = mpsc::unbounded_channel();
        let (ready, opened) = std::sync::mpsc::channel();
        let worker = Worker {
            number,
            nodes: nodes.to_vec(),
            secret: options.secret.clone(),
            config: options.store,
            shared: self.shared.clone(),
            sockets,
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

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// Which index the store has.
    #[must_use]
    pub fn index(&self) -> IndexKind {
        self.index.expect("every worker has opened the store")
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
        self.listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(self.listener.try_clone()?)?;
        let mut stop = core::pin::pin!(stop);
        for (sender, _) in self.workers.iter().cycle() {
            loop {
                let accepted = tokio::select! {
                    biased;
                    () = &mut stop => return Ok(()),
                    accepted = listener.accept() => accepted,
                };
                match accepted {
                    Ok((stream, _)) => {
                        if let Some(stream) = self.admit(stream).await {
                            // A worker ends only after us.
                            let _ = sender.send(stream);
                            break;
                        }
                    }
                    Err(error) => {
                        tracing::warn!("cannot accept a connection: {error}");
                        HostClock.sleep(ACCEPT_PAUSE_NS).await;
                    }
                }
            }
        }
        Ok(())
    }

    /// Prepares a socket for a worker, unless there are too many.
    async fn admit(&self, mut stream: tokio::net::TcpStream) -> Option<std::net::TcpStream> {
        let _ = stream.set_nodelay(true);
        if self.shared.total(|worker| worker.clients.get()) >= self.shared.clients_max {
            let _ = stream.write_all(b"-ERR max number of clients reached\r\n").await;
            return None;
        }
        stream.into_std().ok()
    }

    fn finish(self) {
        self.stop.send_replace(true);
        for (sender, thread) in self.workers {
            drop(sender);
            if thread.join().is_err() {
                tracing::error!("a worker panicked");
            }
        }
    }
}
