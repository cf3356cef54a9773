//! Joining a pool of memory nodes.
//!
//! On the path: once per client, before its first verb. Node 0 gives the client its identity, the
//! others are told. A node is joined through a connection, or directly if its segment is mapped here.
//!
//! Whoever cuts a client off does so at node 0 first. So a client that has joined all nodes asks node
//! 0 once more whether it still belongs to the pool: if it was cut off while it joined, it learns so
//! before its first verb.

use core::time::Duration;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromZeros, IntoBytes};

use super::endpoint::Endpoint;
use super::hello::{Hello, MAGIC, VERSION, Verdict, Welcome};
use super::secret::Secret;
use crate::addr::NODE_COUNT_MAX;
use crate::clock::Deadline;
use crate::host::HostClock;
use crate::message::EndpointId;
use crate::rdma::{Device, Poller, RdmaError};
use crate::shm::{Segment, SegmentError};

/// How long a silent connection is left alone before the system asks whether its other end is
/// there.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(30);

/// Where a memory node is.
#[derive(Clone, Debug)]
pub enum NodeLocation {
    /// At the end of a connection: `host:port`.
    Remote(String),
    /// Reached by this machine's network card; the connection to `host:port` is for all but verbs
    /// and messages.
    Rdma(String, Arc<Device>),
    /// In this process's address space.
    Mapped(Segment),
}

/// How to connect.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectOptions {
    /// What the nodes want to hear.
    pub secret: Option<Secret>,
    /// How long each node may take to let the client in.
    pub timeout: Duration,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            secret: None,
            timeout: Duration::from_secs(5),
        }
    }
}

impl ConnectOptions {
    /// With a secret.
    #[must_use]
    pub fn with_secret(mut self, secret: Secret) -> Self {
        self.secret = Some(secret);
        self
    }

    /// With another timeout.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

/// Why a node could not be joined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No node, or more than addresses can name.
    #[error("a pool has 1 to {NODE_COUNT_MAX} nodes, not {count}")]
    NodeCount {
        /// How many were given.
        count: usize,
    },
    /// Nobody listens there, or the address is none.
    #[error("cannot connect to {address}: {source}; is the node running, and is this its host:port?")]
    Unreachable {
        /// The address.
        address: String,
        /// What the system says.
        source: io::Error,
    },
    /// The node did not answer in time.
    #[error("{address} did not answer within {} ms", timeout.as_millis())]
    Timeout {
        /// The address.
        address: String,
        /// How long it had.
        timeout: Duration,
    },
    /// The connection broke in the middle of the hello.
    #[error("{address} hung up: {source}; is it a Farside node?")]
    HungUp {
        /// The address.
        address: String,
        /// What the system says.
        source: io::Error,
    },
    /// Something else than a memory node answered.
    #[error("{address} does not answer like a Farside node; is this its host:port?")]
    Magic {
        /// The address.
        address: String,
    },
    /// The node speaks another version.
    #[error(
        "{address} speaks version {theirs} of the protocol, this client version {VERSION}: run the same release on both"
    )]
    Version {
        /// The address.
        address: String,
        /// The node's version.
        theirs: u32,
    },
    /// The node wants a secret.
    #[error("{address} requires a secret: give the secret file that the node was started with")]
    SecretMissing {
        /// The address.
        address: String,
    },
    /// The node has another secret.
    #[error("{address} has a different secret: give the secret file that the node was started with")]
    SecretWrong {
        /// The address.
        address: String,
    },
    /// This client was cut off.
    #[error("this client was cut off from {address}: join the pool anew, under a new identity")]
    Fenced {
        /// The address.
        address: String,
    },
    /// The node has no room for another client.
    #[error("{address} has no room for another client: close some, or make its segment with room for more")]
    Full {
        /// The address.
        address: String,
    },
    /// The node no longer knows this client.
    #[error(
        "{address} no longer knows this client, because it was restarted or its place was given to others: join the pool anew"
    )]
    Restarted {
        /// The address.
        address: String,
    },
    /// The node is not what it was when this client joined.
    #[error("{address} has {bytes} bytes of memory now, not {expected}: it serves another segment")]
    Resized {
        /// The address.
        address: String,
        /// How much memory it has now.
        bytes: u64,
        /// How much it had.
        expected: u64,
    },
    /// The node's memory is reached otherwise.
    #[error("{address} serves its memory over RDMA: name it rdma:{address}, on a machine with an RDMA device")]
    RdmaOnly {
        /// The address.
        address: String,
    },
    /// The node was started without RDMA.
    #[error("{address} does not serve its memory over RDMA: start the node with --rdma, or name it tcp:{address}")]
    NoRdma {
        /// The address.
        address: String,
    },
    /// The node has made no queue pair.
    #[error("{address} could not make a queue pair for this client; its log says why")]
    NoQueuePair {
        /// The address.
        address: String,
    },
    /// The node's card, or this machine's, does not do what a plain atomic must.
    #[error("atomics over RDMA at {address} give wrong results: use other cards, or name it tcp:{address}")]
    Atomics {
        /// The address.
        address: String,
    },
    /// One client, several network cards.
    #[error("the nodes of one pool are reached through one RDMA device, not several")]
    Devices,
    /// This machine's end failed.
    #[error(transparent)]
    Rdma(#[from] RdmaError),
    /// A segment that is mapped here could not be joined.
    #[error(transparent)]
    Segment(#[from] SegmentError),
}

/// Joins the nodes; node i is the i-th location.
///
/// # Errors
/// The first node that could not be joined, and what would be right.
///
/// # Panics
/// Outside a tokio `LocalSet`.
pub async fn connect(locations: Vec<NodeLocation>, options: ConnectOptions) -> Result<crate::Endpoint, ConnectError> {
    let count = locations.len();
    if count == 0 || count > NODE_COUNT_MAX.into() {
        return Err(ConnectError::NodeCount { count });
    }
    let poller = poller_for(&locations)?;
    let mut joined = Vec::with_capacity(count);
    let mut id = None;
    for location in locations {
        let node = match location {
            NodeLocation::Mapped(segment) => {
                segment.require_mappable()?;
                let connected = segment.claim_connected(id)?;
                id = Some(connected.id());
                Joined::Mapped(segment, connected)
            }
            NodeLocation::Remote(address) => {
                let remote = greet(&address, &options, id, 0).await?;
                if remote.welcome.is_rdma() {
                    return Err(ConnectError::RdmaOnly { address });
                }
                id = Some(remote.id);
                Joined::Remote(address, remote)
            }
            NodeLocation::Rdma(address, _) => {
                let remote = greet(&address, &options, id, 0).await?;
                if !remote.welcome.is_rdma() {
                    return Err(ConnectError::NoRdma { address });
                }
                id = Some(remote.id);
                Joined::Rdma(address, remote)
            }
        };
        joined.push(node);
    }
    let id = id.expect("there is a node, and each gives the identity or takes it");
    let endpoint = Endpoint::new(id, joined, poller, options);
    endpoint.pair_up_all().await?;
    endpoint.confirm().await?;
    Ok(endpoint.into())
}

/// What collects completions, if some nodes are reached by RDMA.
fn poller_for(locations: &[NodeLocation]) -> Result<Option<Rc<Poller>>, ConnectError> {
    let devices = locations.iter().filter_map(|location| match location {
        NodeLocation::Rdma(_, device) => Some(device),
        _ => None,
    });
    let Some(first) = devices.clone().next() else {
        return Ok(None);
    };
    if !devices.clone().all(|device| Arc::ptr_eq(device, first)) {
        return Err(ConnectError::Devices);
    }
    Ok(Some(Rc::new(Poller::new(first, devices.count())?)))
}

/// A node that has let the client in.
pub(super) enum Joined {
    Mapped(Segment, crate::shm::Connected),
    Remote(String, Remote),
    Rdma(String, Remote),
}

/// A connection after the hello.
pub(super) struct Remote {
    pub(super) stream: TcpStream,
    pub(super) id: EndpointId,
    pub(super) welcome: Welcome,
}

/// Says hello. `run` is the node's run in which it let this client in before, or 0.
pub(super) async fn greet(
    address: &str,
    options: &ConnectOptions,
    id: Option<EndpointId>,
    run: u64,
) -> Result<Remote, ConnectError> {
    let timeout_ns = u64::try_from(options.timeout.as_nanos()).unwrap_or(u64::MAX);
    let deadline = Deadline(HostClock.now_ns().saturating_add(timeout_ns));
    let outcome = HostClock.until(deadline, greet_slowly(address, options, id, run)).await;
    outcome.unwrap_or_else(|| {
        Err(ConnectError::Timeout {
            address: address.to_owned(),
            timeout: options.timeout,
        })
    })
}

async fn greet_slowly(
    address: &str,
    options: &ConnectOptions,
    id: Option<EndpointId>,
    run: u64,
) -> Result<Remote, ConnectError> {
    let unreachable = |source| ConnectError::Unreachable {
        address: address.to_owned(),
        source,
    };
    let hung_up = |source| ConnectError::HungUp {
        address: address.to_owned(),
        source,
    };
    let mut stream = TcpStream::connect(address).await.map_err(unreachable)?;
    stream.set_nodelay(true).map_err(unreachable)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_AFTER);
    SockRef::from(&stream)
        .set_tcp_keepalive(&keepalive)
        .map_err(unreachable)?;
    let secret = options.secret.as_ref().map_or(&[][..], Secret::bytes);
    let hello = Hello {
        magic: MAGIC,
        version: U32::new(VERSION),
        // A secret is shorter than SECRET_BYTES_MAX.
        secret_bytes: U16::new(secret.len() as u16),
        reserved: U16::ZERO,
        endpoint: U64::new(id.map_or(0, |id| id.0)),
        run: U64::new(run),
    };
    let opening = [hello.as_bytes(), secret].concat();
    stream.write_all(&opening).await.map_err(hung_up)?;
    let mut welcome = Welcome::new_zeroed();
    let (magic, rest) = welcome.as_mut_bytes().split_at_mut(MAGIC.len());
    stream.read_exact(magic).await.map_err(hung_up)?;
    if *magic != MAGIC {
        return Err(ConnectError::Magic {
            address: address.to_owned(),
        });
    }
    stream.read_exact(rest).await.map_err(hung_up)?;
    check_welcome(address.to_owned(), &welcome)?;
    Ok(Remote {
        stream,
        id: EndpointId(welcome.endpoint.get()),
        welcome,
    })
}

fn check_welcome(address: String, welcome: &Welcome) -> Result<(), ConnectError> {
    let theirs = welcome.version.get();
    if theirs != VERSION {
        return Err(ConnectError::Version { address, theirs });
    }
    match Verdict::from_code(welcome.verdict) {
        Ok(Verdict::Accepted) if welcome.endpoint.get() != 0 => Ok(()),
        Ok(Verdict::VersionUnknown) => Err(ConnectError::Version { address, theirs }),
        Ok(Verdict::SecretMissing) => Err(ConnectError::SecretMissing { address }),
        Ok(Verdict::SecretWrong) => Err(ConnectError::SecretWrong { address }),
        Ok(Verdict::Fenced) => Err(ConnectError::Fenced { address }),
        Ok(Verdict::Full) => Err(ConnectError::Full { address }),
        Ok(Verdict::Restarted) => Err(ConnectError::Restarted { address }),
        Ok(Verdict::Accepted) | Err(_) => Err(ConnectError::Magic { address }),
    }
}

#[cfg(test)]
mod tests;
