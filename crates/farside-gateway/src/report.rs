//! A report: everything there is to say about a gateway at one moment.
//!
//! On the path: `FARSIDE STATS` sends it as one JSON object, `farside top` reads that, and the metrics
//! are made of it. Names of fields are a contract: more may be added.

use std::collections::BTreeMap;

use farside_fabric::VerbKind;
use farside_fabric::tcp::NodeLocation;
use farside_kv::{Index, Usage};
use serde::{Deserialize, Serialize};

use crate::command::group::Group;
use crate::command::table::TABLE;
use crate::context::Shared;
use crate::hotkeys::{HotKey, hottest};
use crate::latency::Latencies;
use crate::mirrors::MirrorReport;
use crate::statistics::Counts;

/// How many hot keys a report names.
const HOT_KEYS: usize = 32;

/// Everything about a gateway at one moment.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// The version of the gateway.
    pub version: String,
    /// Its process.
    pub process_id: u32,
    /// Where it listens.
    pub address: String,
    /// When this was, in nanoseconds of the gateway's own clock: only differences mean something.
    pub clock_ns: u64,
    /// How long the gateway has been running.
    pub uptime_ms: u64,
    /// A random name of this run of the gateway: counts start anew with another one.
    pub run: String,
    /// Threads that serve clients.
    pub threads: u64,
    /// How many connections there can be at once.
    pub connections_max: u64,
    /// Counts over all workers.
    pub counts: Counts,
    /// Executed commands by name; those that never were are left out.
    pub commands: BTreeMap<String, u64>,
    /// Latencies by group of commands: `read`, `write`, `whole`, `other`.
    pub latencies: BTreeMap<String, Latencies>,
    /// Verbs by kind.
    pub verbs: BTreeMap<String, u64>,
    /// How many bytes may be in use; absent if only the memory limits it.
    pub memory_limit: Option<u64>,
    /// What happens when they are.
    pub eviction_policy: String,
    /// Keys that are used often, hottest first.
    pub hot_keys: Vec<HotKey>,
    /// The pool; absent if it could not be reached lately.
    pub pool: Option<PoolReport>,
    /// The memory nodes, in their order, as last seen.
    pub nodes: Vec<NodeReport>,
    /// The index; absent until somebody has looked.
    pub index: Option<IndexReport>,
}

/// Where a memory node is.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Place {
    /// How it is reached: `shm`, `tcp` or `rdma`.
    pub transport: String,
    /// The path of its segment, or its host and port.
    pub name: String,
}

/// A memory node, as a gateway sees it.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeReport {
    /// Where it is.
    pub place: Place,
    /// What its memory is used for; absent if it could not be reached when somebody last looked.
    pub usage: Option<PoolReport>,
    /// Its group, if it is mirrored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror: Option<MirrorReport>,
}

/// The index, as one of the threads knows it.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct IndexReport {
    /// Its name.
    pub name: String,
    /// Whether it has the keys in order.
    pub is_ordered: bool,
    /// What its structure is like: levels of a tree, entries of a directory.
    pub outline: BTreeMap<String, u64>,
}

impl Place {
    /// Of a node that was added to the pool since the gateway was started: the pool knows where it is.
    fn added(node: usize) -> Self {
        Self {
            transport: "pool".to_owned(),
            name: format!("node {node}"),
        }
    }

    pub(crate) fn of(location: &NodeLocation) -> Self {
        let (transport, name) = match location {
            NodeLocation::Mapped(segment) => ("shm", segment.path().display().to_string()),
            NodeLocation::Remote(name) => ("tcp", name.clone()),
            NodeLocation::Rdma(name, _) => ("rdma", name.clone()),
            NodeLocation::Absent | NodeLocation::Unusable(_) => ("none", String::new()),
        };
        Self {
            transport: transport.to_owned(),
            name,
        }
    }
}

impl IndexReport {
    pub(crate) fn of(index: &Index) -> Self {
        let outline = index.outline().into_iter();
        Self {
            name: index.kind().name().to_owned(),
            is_ordered: index.kind().is_ordered(),
            outline: outline.map(|(name, number)| (name.to_owned(), number)).collect(),
        }
    }
}

/// What a pool's memory is used for, and who is in it.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolReport {
    /// Bytes of memory.
    pub bytes: u64,
    /// Bytes of tables.
    pub bytes_tables: u64,
    /// Bytes of chunks that nobody uses.
    pub bytes_free: u64,
    /// Bytes of fixed memory of the index.
    pub bytes_index: u64,
    /// Bytes of blocks that take whole chunks.
    pub bytes_large: u64,
    /// Bytes of chunks that are cut into blocks, by the size of a block.
    pub bytes_by_block: BTreeMap<u64, u64>,
    /// The global epoch; absent, like the rest, where node 0 is not known.
    pub epoch: Option<u64>,
    /// Clients that have been declared dead.
    pub deaths: Option<u64>,
    /// Clients that hold a lease.
    pub clients_live: Option<u64>,
    /// Clients that were cut off, and whose blocks have not all been found.
    pub clients_dead: Option<u64>,
    /// How many clients there can be.
    pub clients_max: Option<u64>,
    /// Bytes of blocks in use: what the limit of memory is compared with.
    pub bytes_held: Option<u64>,
}

impl From<&Usage> for PoolReport {
    fn from(usage: &Usage) -> Self {
        let members = usage.members;
        Self {
            bytes: usage.bytes,
            bytes_tables: usage.bytes_tables,
            bytes_free: usage.bytes_free,
            bytes_index: usage.bytes_root,
            bytes_large: usage.bytes_run,
            bytes_by_block: usage.bytes_by_block.clone(),
            epoch: members.map(|members| members.epoch),
            deaths: members.map(|members| members.deaths),
            clients_live: members.map(|members| members.clients_live),
            clients_dead: members.map(|members| members.clients_dead),
            clients_max: members.map(|members| members.clients_max),
            bytes_held: members.map(|members| members.bytes_held),
        }
    }
}

impl PoolReport {
    /// Bytes that are not free.
    #[must_use]
    pub fn bytes_used(&self) -> u64 {
        self.bytes.saturating_sub(self.bytes_free)
    }
}

impl Report {
    /// What is to be said of a gateway now, at `now_ns` of the machine's clock.
    pub(crate) fn take(shared: &Shared, now_ns: u64) -> Self {
        let workers = &shared.statistics;
        let mut counts = Counts::default();
        workers.iter().for_each(|worker| counts.add(worker));
        let quota = &shared.live.quota;
        // All workers together.
        counts.evicted = quota.evicted();
        let commands = TABLE.iter().map(|command| command.name).zip(shared.calls());
        let latencies = Group::ALL.iter().map(|&group| {
            let histograms = workers.iter().map(|worker| &worker.latencies[group as usize]);
            (group.name().to_owned(), Latencies::of(histograms))
        });
        let verbs = VerbKind::ALL.iter().map(|&kind| {
            let posted = workers.iter().map(|worker| worker.verbs[kind as usize].get());
            (kind.name().to_owned(), posted.sum())
        });
        let parts = shared.survey.parts(now_ns);
        let mirrors = shared.survey.mirrors(now_ns);
        let nodes = (0..parts.nodes.len().max(shared.places.len())).filter_map(|node| {
            let usage = parts.nodes.get(node).cloned().flatten();
            // A node that was removed, or has a number and no memory yet.
            let is_absent = usage.as_ref().is_some_and(|usage| usage.bytes == 0);
            (!is_absent).then(|| NodeReport {
                place: shared.places.get(node).cloned().unwrap_or_else(|| Place::added(node)),
                usage: usage.as_ref().map(PoolReport::from),
                mirror: mirrors.get(node).cloned().flatten(),
            })
        });
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            process_id: std::process::id(),
            address: shared.address.to_string(),
            clock_ns: now_ns,
            uptime_ms: now_ns.saturating_sub(shared.started_ns) / 1_000_000,
            run: format!("{:016x}", shared.run),
            threads: workers.len() as u64,
            connections_max: shared.live.settings.clients_max(),
            counts,
            commands: commands
                .filter(|&(_, count)| count > 0)
                .map(|(name, count)| (name.to_owned(), count))
                .collect(),
            latencies: latencies.collect(),
            verbs: verbs.collect(),
            memory_limit: quota.bytes_max(),
            eviction_policy: quota.policy().name().to_owned(),
            hot_keys: hottest(workers.iter().map(|worker| &worker.hot_keys), HOT_KEYS),
            pool: shared.survey.known(now_ns).as_ref().map(PoolReport::from),
            nodes: nodes.collect(),
            index: parts.index,
        }
    }
}
