//! Facts about a pool: each node by itself, then what node 0 knows of all.
//!
//! Each node is joined through a connection of its own, so that one that is away hides nothing about the others.

use std::path::PathBuf;

use farside_cli::chain;
use farside_fabric::host::HostClock;
use farside_fabric::tcp::{ConnectError, NodeLocation, Secret};
use farside_fabric::{Deadline, Endpoint, LocalFuture, NodeId, OpContext, join_all};
use farside_gateway::{MirrorReport, mirrors};
use farside_kv::{PoolSpec, StackError, stack};
use farside_pool::{NodeState, PoolError, Standing, Usage, identity, node_usage, standing};

use super::PATIENCE_NS;
use crate::gateway::PoolArgs;

/// A client renews its lease many times within this; see `farside_pool::PoolOptions`.
const LEASE_NS: u64 = 1_200_000_000;
/// How often members of a group are asked, each time for half a second.
const ATTEMPTS: usize = 6;
/// A node says itself that it did not answer in time; this is for whatever says nothing.
const GRACE_NS: u64 = 1_000_000_000;

/// What is known about a pool.
#[derive(Clone, Debug)]
pub(super) struct PoolFacts {
    /// The pool as it was named.
    pub(super) name: String,
    pub(super) secret: Option<SecretFile>,
    /// By their numbers.
    pub(super) nodes: Vec<NodeFacts>,
    /// What node 0 knows; `None` if it could not be read.
    pub(super) standing: Option<Standing>,
    /// Clients that hold a lease and have not renewed it for longer than it lasts.
    pub(super) still: Vec<u16>,
}

/// The file of the secret.
#[derive(Clone, Debug)]
pub(super) struct SecretFile {
    pub(super) path: PathBuf,
    /// Its permissions; `None` if they are not known.
    pub(super) mode: Option<u32>,
}

/// What is known about a memory node.
#[derive(Clone, Debug)]
pub(super) struct NodeFacts {
    pub(super) number: usize,
    /// Where it is; of a node that came later, as the pool knows it.
    pub(super) place: String,
    /// Its part in the pool; `None` if node 0 does not say.
    pub(super) state: Option<NodeState>,
    pub(super) reached: Result<Reached, Trouble>,
    /// Its group, if it is mirrored.
    pub(super) mirror: Option<MirrorReport>,
}

/// What a node's memory says.
#[derive(Clone, Debug)]
pub(super) struct Reached {
    /// Of which pool it is which node; `None` if it holds none yet.
    pub(super) identity: Option<(u64, u16)>,
    pub(super) usage: Usage,
    /// Bytes of memory.
    pub(super) bytes: u64,
}

/// Why a node could not be looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Trouble {
    /// It wants a secret, or another one.
    Secret(String),
    /// It is mirrored, and no member is primary.
    NoPrimary(String),
    /// Nobody answers.
    Away(String),
    /// It answers, and its memory holds something else.
    Contents(String),
}

impl PoolFacts {
    /// The files of nodes that are mapped.
    pub(super) fn segments(&self) -> Vec<PathBuf> {
        let places = self.nodes.iter().flat_map(|node| node.place.split(','));
        let paths = places.filter_map(|place| place.strip_prefix("shm:"));
        paths.map(PathBuf::from).collect()
    }
}

/// Looks at a pool.
pub(super) async fn look(pool: &PoolArgs, places: &PoolSpec, secret: Option<&Secret>) -> PoolFacts {
    let spec = places.to_string();
    let named: Vec<&str> = spec.split(',').collect();
    let looks = named.iter().enumerate().map(|(number, place)| {
        let look: LocalFuture<'_, _> = Box::pin(look_at(pool, secret, number, place));
        look
    });
    let mut nodes = join_all(looks.collect()).await;
    let (mut known, mut still) = (None, Vec::new());
    if nodes.first().is_some_and(|first| first.reached.is_ok()) {
        let looked = within_patience(look_at_clients(pool, secret, named[0])).await;
        if let Some(Some(looked)) = looked {
            (known, still) = (Some(looked.0), looked.1);
        }
    }
    if let Some(known) = &known {
        let added = known.members.iter().filter(|member| member.node.index() >= nodes.len());
        let added = added.map(|member| {
            let place = member.place.clone().unwrap_or_default();
            let look: LocalFuture<'_, _> = Box::pin(async move {
                let (number, is_there) = (member.node.index(), member.state.is_there());
                match is_there {
                    true => look_at(pool, secret, number, &place).await,
                    false => NodeFacts {
                        number,
                        reached: Err(Trouble::Away("it was removed".to_owned())),
                        place,
                        state: None,
                        mirror: None,
                    },
                }
            });
            look
        });
        nodes.extend(join_all(added.collect()).await);
        for member in &known.members {
            if let Some(node) = nodes.get_mut(member.node.index()) {
                node.state = Some(member.state);
            }
        }
    }
    let secret = pool.secret_file().map(|path| SecretFile {
        path: path.to_owned(),
        mode: std::fs::metadata(path)
            .ok()
            .map(|file| std::os::unix::fs::MetadataExt::mode(&file)),
    });
    PoolFacts {
        name: pool.name().to_string(),
        secret,
        nodes,
        standing: known,
        still,
    }
}

async fn within_patience<T>(work: impl Future<Output = T>) -> Option<T> {
    let deadline = Deadline(HostClock.now_ns().saturating_add(PATIENCE_NS + GRACE_NS));
    HostClock.until(deadline, work).await
}

/// Looks at a node that is at one of these places.
async fn look_at(pool: &PoolArgs, secret: Option<&Secret>, number: usize, place: &str) -> NodeFacts {
    let mut reached = Err(Trouble::Away("the pool does not say where it is".to_owned()));
    let mut mirror = None;
    for place in place.split(',').filter(|place| !place.is_empty()) {
        let looked = within_patience(reach(pool, secret, place)).await;
        reached = looked.unwrap_or_else(|| {
            let seconds = (PATIENCE_NS + GRACE_NS) / 1_000_000_000;
            Err(Trouble::Away(format!("{place} does not answer within {seconds} s")))
        });
        if let Some(names) = place.strip_prefix("tcp:") {
            mirror = mirrors::ask(names.split('+').map(str::to_owned), secret, ATTEMPTS).await;
        }
        if reached.is_ok() {
            break;
        }
    }
    NodeFacts {
        number,
        place: place.to_owned(),
        state: None,
        reached,
        mirror,
    }
}

async fn join(pool: &PoolArgs, secret: Option<&Secret>, place: &str) -> Result<Endpoint, StackError> {
    let located: Vec<NodeLocation> = place.parse::<PoolSpec>().and_then(|place| pool.locate_in(place))?;
    stack::connect(located, secret.cloned()).await
}

async fn reach(pool: &PoolArgs, secret: Option<&Secret>, place: &str) -> Result<Reached, Trouble> {
    let endpoint = join(pool, secret, place).await.map_err(|error| trouble(&error))?;
    let bytes = endpoint.node_bytes(NodeId::new(0)).unwrap_or(0);
    let mut cx = OpContext::new(endpoint.clone());
    cx.set_deadline(endpoint.deadline_in(PATIENCE_NS));
    let contents = |error: PoolError| match error {
        PoolError::Foreign { reason, .. } | PoolError::Damaged { reason, .. } => Trouble::Contents(reason),
        error => Trouble::Away(chain(&error)),
    };
    let usage = node_usage(&mut cx).await.map_err(contents)?;
    let identity = identity(&mut cx).await.map_err(contents)?;
    Ok(Reached {
        identity,
        usage: usage.unwrap_or_default(),
        bytes,
    })
}

fn trouble(error: &StackError) -> Trouble {
    let text = chain(error);
    match error {
        StackError::Connect(ConnectError::SecretMissing { .. } | ConnectError::SecretWrong { .. }) => {
            Trouble::Secret(text)
        }
        StackError::Connect(ConnectError::NotPrimary { .. }) => Trouble::NoPrimary(text),
        _ => Trouble::Away(text),
    }
}

/// What node 0 knows, and which clients stand still; `None` if it cannot be read.
async fn look_at_clients(pool: &PoolArgs, secret: Option<&Secret>, place: &str) -> Option<(Standing, Vec<u16>)> {
    let endpoint = join(pool, secret, place).await.ok()?;
    let mut cx = OpContext::new(endpoint.clone());
    cx.set_deadline(endpoint.deadline_in(PATIENCE_NS));
    let before = standing(&mut cx).await.ok()??;
    if !before.clients.iter().any(|(_, entry)| entry.is_live()) {
        return Some((before, Vec::new()));
    }
    HostClock.sleep(LEASE_NS).await;
    let after = standing(&mut cx).await.ok()??;
    let stands_still = |(client, now): &&(u16, _)| {
        let same = before.clients.iter().find(|(before, _)| before == client);
        same.is_some_and(|(_, before)| is_still(before, now))
    };
    let still = after.clients.iter().filter(stands_still);
    let still = still.map(|&(client, _)| client).collect();
    Some((after, still))
}

fn is_still(before: &farside_pool::client::ClientEntry, now: &farside_pool::client::ClientEntry) -> bool {
    now.is_live() && before.is_live() && (before.life, before.lease) == (now.life, now.lease)
}
