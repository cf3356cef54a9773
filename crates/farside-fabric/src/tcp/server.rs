//! A memory node: serves a segment to whoever connects.
//!
//! On the path: accepts connections, checks their hello and runs a [`Session`] for each, all on one
//! thread. Clients that map the segment themselves work on the same memory at the same time; both
//! use the processor's atomics.

use core::net::SocketAddr;
use core::time::Duration;
use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::LocalSet;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::hello::{Hello, MAGIC, VERSION, Verdict, Welcome};
use super::mirror::{MirrorOptions, accept};
use super::secret::{SECRET_BYTES_MAX, Secret};
use super::service::{Control, Service};
use super::session::{Session, SessionHandle};
use crate::host::{HostClock, HostRandom, spawn_local};
use crate::message::EndpointId;
use crate::posted::LocalFuture;
use crate::rdma::Export;
use crate::shm::{Connected, Segment};

/// How long a client may take to say who it is.
pub(super) const HELLO_NS_MAX: u64 = 10_000_000_000;
/// How long to wait when no connection can be accepted (no file descriptors left).
pub(super) const ACCEPT_PAUSE_NS: u64 = 100_000_000;
/// How long a silent connection is left alone before the system asks whether its other end is
/// there.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(30);

/// How a server treats its clients.
#[derive(Clone, Default, Debug)]
#[non_exhaustive]
pub struct ServerOptions {
    /// What clients have to know. Without it everybody may connect.
    pub secret: Option<Secret>,
}

impl ServerOptions {
    /// Only clients that know `secret` are let in.
    #[must_use]
    pub fn with_secret(secret: Secret) -> Self {
        Self { secret: Some(secret) }
    }
}

/// A node that is not yet serving.
#[derive(Debug)]
pub struct Server {
    segment: Segment,
    options: ServerOptions,
    export: Option<Export>,
    mirror: Option<MirrorOptions>,
    control: Arc<Control>,
}

/// Controls a server from any thread.
#[derive(Clone, Debug)]
pub struct ServerHandle {
    control: Arc<Control>,
}

impl ServerHandle {
    /// Ends the server: its connections are closed, and [`Server::serve`] returns.
    pub fn stop(&self) {
        self.control.stop();
    }

    /// Holds all execution up: whatever a client sends from now on waits. For tests.
    pub fn pause(&self) {
        self.control.pause();
    }

    /// Goes on after a [`ServerHandle::pause`].
    pub fn resume(&self) {
        self.control.resume();
    }
}

/// A listener that strangers can reach, and no secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{address} can be reached from other machines: give a secret, or listen on 127.0.0.1")]
pub struct SecretRequired {
    /// Where the server would listen.
    pub address: SocketAddr,
}

/// Refuses to listen on anything but this machine's own addresses without a secret.
///
/// # Errors
/// [`SecretRequired`].
pub fn require_secret_unless_loopback(address: SocketAddr, options: &ServerOptions) -> Result<(), SecretRequired> {
    if address.ip().to_canonical().is_loopback() || options.secret.is_some() {
        Ok(())
    } else {
        Err(SecretRequired { address })
    }
}

impl Server {
    /// A server for this segment. It does not [hold](Segment::hold) the segment: that is up to
    /// whoever starts it.
    #[must_use]
    pub fn new(segment: Segment, options: ServerOptions) -> Self {
        Self {
            segment,
            options,
            export: None,
            mirror: None,
            control: Arc::default(),
        }
    }

    /// A server whose clients reach the memory of that segment over RDMA: it executes no verbs itself.
    #[must_use]
    pub fn with_rdma(mut self, export: Export) -> Self {
        self.export = Some(export);
        self
    }

    /// A server that is a member of a mirrored group.
    #[must_use]
    pub fn with_mirror(mut self, options: MirrorOptions) -> Self {
        self.mirror = Some(options);
        self
    }

    /// Something to stop the server with.
    #[must_use]
    pub fn handle(&self) -> ServerHandle {
        ServerHandle {
            control: self.control.clone(),
        }
    }

    /// Serves on this thread, in a runtime of its own, until the server is stopped.
    ///
    /// # Errors
    /// If the listener or the runtime cannot be set up.
    pub fn run(self, listener: TcpListener) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.serve(listener))
    }

    /// Serves until the server is stopped. Needs a tokio runtime of one thread.
    ///
    /// # Errors
    /// If the listener cannot be set up.
    pub fn serve(self, listener: TcpListener) -> LocalFuture<'static, io::Result<()>> {
        // In a box, so that the body is compiled here, once, however those that wait for it are compiled.
        Box::pin(self.attend_all(listener))
    }

    async fn attend_all(self, listener: TcpListener) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        if let Some(mirror) = self.mirror {
            return accept::serve(listener, &self.segment, self.options.secret, mirror, &self.control).await;
        }
        // Never 0, which means "not known".
        let run = HostRandom::new().random() | 1;
        let exported = self.export.map(Export::serve).transpose()?;
        let service = Rc::new(Service::new(self.segment, exported, run, self.control.clone()));
        let options = Rc::new(self.options);
        let tasks = LocalSet::new();
        // Sessions end when the set is dropped, and their connections with them.
        tasks
            .run_until(async {
                while !self.control.is_stopped() {
                    tokio::select! {
                        accepted = listener.accept() => match accepted {
                            Ok((stream, peer)) => spawn_local(Box::pin(attend(service.clone(), options.clone(), stream, peer))),
                            Err(error) => {
                                let listen = listener.local_addr().ok();
                                tracing::warn!(?listen, "cannot accept a connection: {error}");
                                HostClock.sleep(ACCEPT_PAUSE_NS).await;
                            }
                        },
                        () = self.control.changed() => service.wake_all(),
                    }
                }
            })
            .await;
        Ok(())
    }
}

/// One connection, from hello to end.
async fn attend(service: Rc<Service>, options: Rc<ServerOptions>, mut stream: TcpStream, peer: SocketAddr) {
    let deadline = crate::clock::Deadline(HostClock.now_ns().saturating_add(HELLO_NS_MAX));
    let greeting = HostClock.until(deadline, greet(&service, &options, &mut stream)).await;
    let guest = match greeting {
        Some(Ok(guest)) => guest,
        Some(Err(refusal)) => {
            tracing::info!("refused the connection from {peer}: {refusal}");
            return;
        }
        None => {
            tracing::info!("refused the connection from {peer}: it did not say hello in time");
            return;
        }
    };
    let session = Session::new(service.clone(), guest.connected.clone(), guest.handle.clone());
    let end = session.run(&mut stream).await;
    if end.is_fault() {
        tracing::warn!("closed the connection from {peer}: {end}");
    } else {
        tracing::debug!("closed the connection from {peer}: {end}");
    }
}

/// A client that was let in. Departs when dropped.
struct Guest {
    service: Rc<Service>,
    connected: Rc<Connected>,
    handle: Rc<SessionHandle>,
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.service.depart(&self.connected, &self.handle);
    }
}

/// Why a connection was not let in.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("{0}")]
    Broken(#[from] io::Error),
    #[error("it is not a Farside client")]
    Magic,
    #[error("it speaks version {version} of the protocol, not {VERSION}")]
    Version { version: u32 },
    #[error("it offers a secret of {bytes} bytes; they have at most {SECRET_BYTES_MAX}")]
    SecretLength { bytes: u16 },
    #[error("{}", describe(*verdict))]
    Verdict { verdict: Verdict },
}

fn describe(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Accepted => "it was accepted",
        Verdict::VersionUnknown => "it speaks another version of the protocol",
        Verdict::SecretMissing => "it gives no secret, and this node has one",
        Verdict::SecretWrong => "its secret is wrong",
        Verdict::Fenced => "the client was cut off",
        Verdict::Full => "no more clients can be registered",
        Verdict::Restarted => "this node no longer knows the client",
        Verdict::NotPrimary => "this node is a backup",
    }
}

async fn greet(service: &Rc<Service>, options: &ServerOptions, stream: &mut TcpStream) -> Result<Guest, Refusal> {
    let magic = hear_magic(stream).await?;
    let (hello, offered) = match hear_hello(stream, magic).await {
        Err(Refusal::Version { version }) => {
            let answer = welcome(service, Verdict::VersionUnknown, 0);
            stream.write_all(answer.as_bytes()).await?;
            return Err(Refusal::Version { version });
        }
        heard => heard?,
    };
    match admit(service, options, &hello, &offered) {
        Ok(guest) => {
            let answer = welcome(service, Verdict::Accepted, guest.connected.id().0);
            stream.write_all(answer.as_bytes()).await?;
            Ok(guest)
        }
        Err(verdict) => {
            stream.write_all(welcome(service, verdict, 0).as_bytes()).await?;
            Err(Refusal::Verdict { verdict })
        }
    }
}

/// The first eight bytes of a connection.
pub(super) async fn hear_magic(stream: &mut TcpStream) -> io::Result<[u8; MAGIC.len()]> {
    stream.set_nodelay(true)?;
    SockRef::from(&*stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE_AFTER))?;
    let mut magic = [0; MAGIC.len()];
    stream.read_exact(&mut magic).await?;
    Ok(magic)
}

/// The rest of a client's hello, and the secret that it offers.
pub(super) async fn hear_hello(stream: &mut TcpStream, magic: [u8; MAGIC.len()]) -> Result<(Hello, Vec<u8>), Refusal> {
    if magic != MAGIC {
        return Err(Refusal::Magic);
    }
    let mut hello = Hello::new_zeroed();
    let (_, rest) = hello.as_mut_bytes().split_at_mut(MAGIC.len());
    let (version, rest) = rest.split_at_mut(size_of::<U32>());
    stream.read_exact(version).await?;
    let version = U32::read_from_bytes(version).map_or(0, U32::get);
    if version != VERSION {
        // The rest of the hello may look different.
        return Err(Refusal::Version { version });
    }
    stream.read_exact(rest).await?;
    let bytes = hello.secret_bytes.get();
    if bytes as usize > SECRET_BYTES_MAX {
        return Err(Refusal::SecretLength { bytes });
    }
    let mut offered = vec![0; bytes as usize];
    stream.read_exact(&mut offered).await?;
    Ok((hello, offered))
}

/// Whether a client that offers this is let in by a node with this secret.
pub(super) fn check_secret(secret: Option<&Secret>, offered: &[u8]) -> Result<(), Verdict> {
    match secret {
        Some(_) if offered.is_empty() => Err(Verdict::SecretMissing),
        Some(secret) if !secret.matches(offered) => Err(Verdict::SecretWrong),
        _ => Ok(()),
    }
}

fn admit(service: &Rc<Service>, options: &ServerOptions, hello: &Hello, offered: &[u8]) -> Result<Guest, Verdict> {
    check_secret(options.secret.as_ref(), offered)?;
    let id = Some(EndpointId(hello.endpoint.get())).filter(|id| id.0 != 0);
    let (connected, handle) = service.admit(id, hello.run.get())?;
    Ok(Guest {
        service: service.clone(),
        connected,
        handle,
    })
}

fn welcome(service: &Service, verdict: Verdict, endpoint: u64) -> Welcome {
    Welcome {
        magic: MAGIC,
        version: U32::new(VERSION),
        verdict: verdict as u8,
        capabilities: Welcome::pack(service.capabilities(), service.exported().is_some()),
        view_bytes: U16::ZERO,
        node_bytes: U64::new(service.region().bytes()),
        endpoint: U64::new(endpoint),
        run: U64::new(service.run()),
        lease_ns: U64::ZERO,
    }
}

#[cfg(test)]
mod tests;
