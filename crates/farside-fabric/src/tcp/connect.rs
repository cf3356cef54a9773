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
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::endpoint::Endpoint;
use super::hello::{Hello, MAGIC, VERSION, Verdict, Welcome};
use super::secret::Secret;
use crate::addr::NODE_COUNT_MAX;
use crate::clock::Deadline;
use crate::host::HostClock;
use crate::message::EndpointId;
use crate::mirror::{View, decode_view};
use crate::rdma::{Device, Poller, RdmaError};
use crate::shm::{Segment, SegmentError};

/// How long a silent connection is left alone before the system asks whether its other end is
/// there.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(30);

/// How long to wait before members of a group are asked again who is primary.
const ASK_AGAIN_NS: u64 = 20_000_000;

/// Where a memory node is.
#[derive(Clone, Debug)]
pub enum NodeLocation {
    /// At the end of a connection: `host:port`. Of a mirrored node several members may be named, with `+` between them.
    Remote(String),
    /// Reached by this machine's network card; the connection to `host:port` is for all but verbs
    /// and messages.
    Rdma(String, Arc<Device>),
    /// In this process's address space.
    Mapped(Segment),
    /// It cannot be used, for this reason, unless it turns out that it need not be.
    Unusable(String),
    /// Nowhere: the number is not used, because the node is not part of the pool any more.
    Absent,
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
    /// The node is mirrored, and no member of its group is primary now.
    #[error("{address} is a backup, and no primary answers; `farside pool status` says how its group is")]
    NotPrimary {
        /// The address.
        address: String,
        /// Who is in the group, as far as this member knows.
        view: Option<View>,
    },
    /// One client, several network cards.
    #[error("the nodes of one pool are reached through one RDMA device, not several")]
    Devices,
    /// This machine's end failed.
    #[error(transparent)]
    Rdma(#[from] RdmaError),
    /// A node that was named cannot be used.
    #[error("{reason}")]
    Unusable {
        /// Why, and what would be right.
        reason: String,
    },
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
    let has_home = locations
        .first()
        .is_some_and(|first| !matches!(first, NodeLocation::Absent));
    if !has_home || count > NODE_COUNT_MAX.into() {
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
            NodeLocation::Absent => Joined::Absent,
            NodeLocation::Unusable(reason) => return Err(ConnectError::Unusable { reason }),
            NodeLocation::Remote(address) => {
                let returning = Returning {
                    id,
                    ..Returning::default()
                };
                let remote = greet_any(&address, &options, returning).await?;
                if remote.welcome.is_rdma() {
                    return Err(ConnectError::RdmaOnly { address });
                }
                id = Some(remote.id);
                Joined::Remote(address, remote)
            }
            NodeLocation::Rdma(address, _) => {
                let returning = Returning {
                    id,
                    ..Returning::default()
                };
                let remote = greet_any(&address, &options, returning).await?;
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
    Absent,
    Mapped(Segment, crate::shm::Connected),
    Remote(String, Remote),
    Rdma(String, Remote),
}

/// A connection after the hello.
pub(super) struct Remote {
    pub(super) stream: TcpStream,
    /// Who answered, of several.
    pub(super) address: String,
    /// Who is in the node's group, if it is mirrored.
    pub(super) view: Option<View>,
    pub(super) id: EndpointId,
    pub(super) welcome: Welcome,
}

/// What a client says of itself.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Returning {
    /// Who it is, if it knows.
    pub(super) id: Option<EndpointId>,
    /// The node's run in which it let this client in before, or 0.
    pub(super) run: u64,
    /// For a mirrored node: the first request without an answer, how many messages came, and how many of them were not taken.
    pub(super) answered: u32,
    pub(super) messages: u64,
    pub(super) ungranted: u16,
}

/// Says hello to one of several members of a group, or to the only node of this name (`host:port`, several with `+` between them).
pub(super) async fn greet_any(
    names: &str,
    options: &ConnectOptions,
    returning: Returning,
) -> Result<Remote, ConnectError> {
    let timeout_ns = u64::try_from(options.timeout.as_nanos()).unwrap_or(u64::MAX);
    let until_ns = HostClock.now_ns().saturating_add(timeout_ns);
    let mut addresses: Vec<String> = names.split('+').map(str::to_owned).collect();
    loop {
        let mut refused = None;
        let mut at = 0;
        while at < addresses.len() {
            match greet(&addresses[at], options, returning).await {
                Ok(remote) => return Ok(remote),
                Err(ConnectError::NotPrimary { address, view }) => {
                    for peer in view.iter().flat_map(|view| view.peers()) {
                        if !addresses.contains(&peer.address) {
                            addresses.push(peer.address.clone());
                        }
                    }
                    refused = Some(ConnectError::NotPrimary { address, view });
                }
                Err(
                    error @ (ConnectError::Unreachable { .. }
                    | ConnectError::Timeout { .. }
                    | ConnectError::HungUp { .. }),
                ) if addresses.len() > 1 => {
                    refused = refused.or(Some(error));
                }
                Err(error) => return Err(error),
            }
            at += 1;
        }
        if HostClock.now_ns() >= until_ns {
            return Err(refused.expect("each address was refused"));
        }
        HostClock.sleep(ASK_AGAIN_NS).await;
    }
}

/// Says hello.
pub(super) async fn greet(
    address: &str,
    options: &ConnectOptions,
    returning: Returning,
) -> Result<Remote, ConnectError> {
    let timeout_ns = u64::try_from(options.timeout.as_nanos()).unwrap_or(u64::MAX);
    let deadline = Deadline(HostClock.now_ns().saturating_add(timeout_ns));
    let outcome = HostClock
        .until(deadline, greet_slowly(address, options, returning))
        .await;
    outcome.unwrap_or_else(|| {
        Err(ConnectError::Timeout {
            address: address.to_owned(),
            timeout: options.timeout,
        })
    })
}

async fn greet_slowly(address: &str, options: &ConnectOptions, returning: Returning) -> Result<Remote, ConnectError> {
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
        ungranted: U16::new(returning.ungranted),
        endpoint: U64::new(returning.id.map_or(0, |id| id.0)),
        run: U64::new(returning.run),
        messages: U64::new(returning.messages),
        answered: U32::new(returning.answered),
        reserved: U32::ZERO,
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
    let (version, rest) = rest.split_at_mut(size_of::<U32>());
    stream.read_exact(version).await.map_err(hung_up)?;
    let theirs = U32::read_from_bytes(version).map_or(0, U32::get);
    if theirs != VERSION {
        // The rest may be shorter or longer.
        let address = address.to_owned();
        return Err(ConnectError::Version { address, theirs });
    }
    stream.read_exact(rest).await.map_err(hung_up)?;
    let mut view = vec![0; usize::from(welcome.view_bytes.get())];
    stream.read_exact(&mut view).await.map_err(hung_up)?;
    let view = match &view[..] {
        [] => None,
        bytes => Some(decode_view(bytes).map_err(|_| ConnectError::Magic {
            address: address.to_owned(),
        })?),
    };
    if Verdict::from_code(welcome.verdict) == Ok(Verdict::NotPrimary) {
        return Err(ConnectError::NotPrimary {
            address: address.to_owned(),
            view,
        });
    }
    check_welcome(address.to_owned(), &welcome)?;
    Ok(Remote {
        stream,
        address: address.to_owned(),
        view,
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
        Ok(Verdict::Accepted | Verdict::NotPrimary) | Err(_) => Err(ConnectError::Magic { address }),
    }
}

#[cfg(test)]
mod tests;
