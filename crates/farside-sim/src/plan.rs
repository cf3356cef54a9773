//! A plan: everything about a run that is chosen beforehand, as plain data.
//!
//! On the path: drawn from a seed (see `draw`), executed by `run`, made small by `shrink`. The seed
//! of a plan also decides what chance decides inside the simulator, so a plan is a run. What is
//! written as JSON can be replayed after the drawing has changed.

use farside_fabric::mutant::Places;
use farside_fabric::sim::LullAim;
use farside_index::RaceOptions;
use serde::{Deserialize, Serialize};

use crate::history::Call;
use crate::scenario::tree::KEYS_MAX;

/// A run, as data.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Decides the chances of the simulator.
    pub seed: u64,
    /// The name of a [`Target`](crate::target::Target).
    pub target: String,
    /// Nodes, NICs, times.
    pub setup: Setup,
    /// Who does what.
    pub actors: Vec<Actor>,
    /// What goes wrong, and when.
    pub faults: Vec<Fault>,
}

/// What the actors and faults meet.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Setup {
    /// Name of the NIC: see [`nics`](crate::nics).
    pub profile: String,
    /// Where memory tears, in bytes: 8 or 64.
    pub tear_bytes: u64,
    /// Requests are delayed by up to so much on the wire.
    pub jitter_ns: u64,
    /// One request in so many is delayed by up to `lull_ns`; none if 0.
    #[serde(default)]
    pub lull_one_in: u64,
    /// See `lull_one_in`.
    #[serde(default)]
    pub lull_ns: u64,
    /// Which requests are delayed so.
    #[serde(default)]
    pub lull_aim: Aim,
    /// Whether a client that stands still cannot be cut off, as one that maps the memory.
    #[serde(default)]
    pub is_mapped: bool,
    /// How many memory nodes.
    pub memory_nodes: u16,
    /// Bytes of each.
    pub node_bytes: u64,
    /// How many compute nodes.
    pub compute_nodes: u32,
    /// Slots of the index; few make keys share one.
    pub slots: u64,
    /// Slots of a bucket of a RACE table that are used; few make it split.
    #[serde(default = "all_slots")]
    pub bucket_slots: usize,
    /// How many sessions of its store an actor works with at the same time, and shares operations among if there are
    /// several.
    #[serde(default = "one_session")]
    pub sessions: u32,
    /// Bytes of a chunk of the pool.
    pub chunk_bytes: u64,
    /// Lease of a client, and how often it looks around.
    pub lease_ns: u64,
    /// See `lease_ns`.
    pub tick_ns: u64,
    /// How long one operation may take; no limit if `None`.
    pub timeout_ns: Option<u64>,
    /// What happens when a store holds too much; nothing if `None`.
    #[serde(default)]
    pub eviction: Option<Eviction>,
    /// Whether most values of a store expire, and somebody whose clock is far ahead sweeps them away all the time.
    #[serde(default)]
    pub is_swept: bool,
    /// Whether what is counted in the memory is about to overflow, as after years of use.
    #[serde(default)]
    pub is_worn: bool,
    /// How a tree is made and used.
    #[serde(default)]
    pub tree: TreeSetup,
    /// Faults end here at the latest; then everybody has to come to an end.
    pub horizon_ns: u64,
    /// How many pieces of its work an actor does after that; all if `None`.
    #[serde(default)]
    pub last_pieces: Option<u32>,
}

/// Which requests are held back; see [`LullAim`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub enum Aim {
    /// Any.
    #[default]
    Anybody,
    /// Of whoever has written what another one has just read.
    Writers,
    /// Those of slow clients; who is slow changes.
    Paces,
    /// None, but those of several lines take long to touch them.
    Lines,
}

impl From<Aim> for LullAim {
    fn from(aim: Aim) -> Self {
        match aim {
            Aim::Anybody => Self::Anybody,
            Aim::Writers => Self::Writers,
            Aim::Paces => Self::Paces,
            Aim::Lines => Self::Lines,
        }
    }
}

/// Keys of a store go when it holds too much.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Eviction {
    /// The name of a policy.
    pub policy: String,
    /// How many bytes may be in use; 0 if only the memory limits it.
    pub bytes_max: u64,
    /// Whether each client has a task that evicts beside its commands.
    pub is_in_background: bool,
}

/// How a tree is made and used.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TreeSetup {
    /// Entries of a leaf; few make it split.
    pub span: usize,
    /// In how many of them a key may be, if leaves are hashed. They divide the span.
    pub neighbourhood: usize,
    /// Bytes of internal nodes that a client remembers.
    pub cache_bytes: usize,
    /// Bytes of hotspots that a client remembers, if leaves are hashed.
    pub hotspot_bytes: usize,
    /// Whether the sessions of a client share their operations.
    pub shares: bool,
    /// Whether keys follow each other without a gap.
    #[serde(default)]
    pub is_dense: bool,
}

impl TreeSetup {
    /// The key of a number, in the order of the numbers: the number, or spread from the smallest key that there is to the
    /// largest.
    pub(crate) fn key_of(&self, number: u64) -> u64 {
        number * if self.is_dense { 1 } else { u64::MAX / (KEYS_MAX - 1) }
    }
}

impl Default for TreeSetup {
    fn default() -> Self {
        Self {
            span: 8,
            neighbourhood: 4,
            cache_bytes: 1 << 20,
            hotspot_bytes: 0,
            shares: false,
            is_dense: false,
        }
    }
}

/// What plans mean that were written before there was a choice.
fn all_slots() -> usize {
    RaceOptions::default().bucket_slots
}

/// As `all_slots`.
fn one_session() -> u32 {
    1
}

/// One client after the other, doing one piece of work after the other.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Actor {
    /// On which compute node.
    pub compute_node: u32,
    /// What it does.
    pub work: Vec<Work>,
}

/// One piece of work.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Work {
    /// Do nothing for so many nanoseconds.
    Think(u64),
    /// An operation of a store or a tree.
    Call {
        /// The key.
        key: u64,
        /// What to do with it.
        call: Call,
    },
    /// Read several keys at once.
    GetMany(Vec<u64>),
    /// Store values at once; of those of one key the last stays.
    PutMany(Vec<(u64, u64)>),
    /// Remove several keys at once.
    DeleteMany(Vec<u64>),
    /// Operations on different keys of a store as one transaction.
    Together(Vec<(u64, Call)>),
    /// Read everything. It is checked like a read of each key that began and ended with it.
    Scan,
    /// Read keys of a tree in their order.
    Range {
        /// The number of the first key that is wanted.
        from: u64,
        /// How many keys at most.
        count: u64,
    },
    /// Take a lock, do something under it, give it back.
    Critical {
        /// Which lock.
        lock: u64,
        /// Whether others may be inside.
        is_shared: bool,
        /// How long to stay.
        inside_ns: u64,
        /// After how long to give up waiting; never if `None`.
        patience_ns: Option<u64>,
    },
}

/// Something that goes wrong.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Fault {
    /// When.
    pub at_ns: u64,
    /// What.
    pub what: Disturbance,
}

/// Some places, by chance; see [`Places`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct At {
    /// How their names begin.
    pub part: String,
    /// Decides which of these.
    pub salt: u64,
    /// One of so many.
    pub one_in: u64,
    /// The how manieth time that somebody comes past one of them.
    pub passes: u64,
}

impl From<&At> for Places {
    fn from(at: &At) -> Self {
        Self {
            part: at.part.clone(),
            salt: at.salt,
            one_in: at.one_in,
            passes: at.passes,
        }
    }
}

/// What can go wrong. Numbers of actors and nodes beyond what there is do nothing, so that a plan
/// stays valid when a part of it is taken away.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Disturbance {
    /// A client dies: now, or after so many verbs more, in the middle of one if `lines` says so. A new
    /// client goes on with its work after a while, if it is to be replaced.
    Crash {
        /// Whose client; the agent of the lock service counts as one actor more.
        actor: usize,
        /// After how many verbs; at once if `None`.
        verbs: Option<u64>,
        /// How many lines of the last verb take effect; all if `None`.
        lines: Option<u32>,
        /// Whether somebody goes on with the work.
        is_replaced: bool,
    },
    /// Whoever comes past one of some places of the protocols, where bugs can be planted, dies there, as by `Crash`.
    CrashAtPlace {
        /// Which places, and when.
        at: At,
        /// How many verbs later, at least one.
        verbs: u64,
        /// How many lines of the last verb take effect; all if `None`.
        lines: Option<u32>,
        /// Whether somebody goes on with the work.
        is_replaced: bool,
    },
    /// Or stands still there, as by `Pause`.
    PauseAtPlace {
        /// Which places, and when.
        at: At,
        /// For how long.
        for_ns: u64,
    },
    /// A client stands still, as after `SIGSTOP`, then goes on.
    Pause {
        /// Whose client.
        actor: usize,
        /// For how long.
        for_ns: u64,
    },
    /// A queue pair breaks.
    BreakQueuePair {
        /// Whose.
        actor: usize,
        /// To which memory node.
        node: u16,
    },
    /// A link between a compute node and a memory node is cut.
    Partition {
        /// The compute node.
        compute_node: u32,
        /// The memory node.
        node: u16,
        /// For how long.
        for_ns: u64,
    },
    /// A link between two compute nodes is cut.
    PartitionPeers {
        /// One.
        a: u32,
        /// The other.
        b: u32,
        /// For how long.
        for_ns: u64,
    },
    /// A link between a compute node and a memory node becomes slow.
    Delay {
        /// The compute node.
        compute_node: u32,
        /// The memory node.
        node: u16,
        /// By how much, each way.
        delay_ns: u64,
        /// For how long.
        for_ns: u64,
    },
    /// A link between two compute nodes becomes slow.
    DelayPeers {
        /// One.
        a: u32,
        /// The other.
        b: u32,
        /// By how much, each way.
        delay_ns: u64,
        /// For how long.
        for_ns: u64,
    },
    /// A memory node goes down and comes back.
    Restart {
        /// Which.
        node: u16,
        /// How long it is away.
        down_ns: u64,
        /// Whether its memory is blank afterwards.
        is_blank: bool,
    },
    /// A clock is set, and runs at another speed from now on.
    Clock {
        /// Whose.
        compute_node: u32,
        /// How far it is off.
        skew_ns: i64,
        /// Nanoseconds that it gains per second.
        drift_ppb: i64,
    },
}

impl Disturbance {
    /// The names of all kinds.
    pub const NAMES: [&'static str; 14] = [
        "client crash",
        "client crash at a verb",
        "client crash within a verb",
        "client paused",
        "queue pair broken",
        "link to a memory node cut",
        "link between compute nodes cut",
        "link to a memory node slow",
        "link between compute nodes slow",
        "memory node restarted",
        "memory node restarted blank",
        "clock wrong",
        "client crash at a place",
        "client paused at a place",
    ];

    /// Its name in reports.
    #[must_use]
    pub fn name(&self) -> &'static str {
        let index = match self {
            Self::Crash { verbs: None, .. } => 0,
            Self::Crash { lines: None, .. } => 1,
            Self::Crash { .. } => 2,
            Self::Pause { .. } => 3,
            Self::BreakQueuePair { .. } => 4,
            Self::Partition { .. } => 5,
            Self::PartitionPeers { .. } => 6,
            Self::Delay { .. } => 7,
            Self::DelayPeers { .. } => 8,
            Self::Restart { is_blank: false, .. } => 9,
            Self::Restart { is_blank: true, .. } => 10,
            Self::Clock { .. } => 11,
            Self::CrashAtPlace { .. } => 12,
            Self::PauseAtPlace { .. } => 13,
        };
        Self::NAMES[index]
    }
}

impl Setup {
    /// Whether most values expire some day.
    pub(crate) fn expires(&self) -> bool {
        self.eviction.is_some() || self.is_swept
    }
}

impl Plan {
    /// Every key that somebody writes or reads.
    #[must_use]
    pub fn keys(&self) -> Vec<u64> {
        let mut keys = std::collections::BTreeSet::new();
        for work in self.actors.iter().flat_map(|actor| &actor.work) {
            match work {
                Work::Call { key, .. } => drop(keys.insert(*key)),
                Work::GetMany(many) | Work::DeleteMany(many) => keys.extend(many),
                Work::PutMany(many) => keys.extend(many.iter().map(|(key, _)| key)),
                Work::Together(calls) => keys.extend(calls.iter().map(|(key, _)| key)),
                Work::Think(_) | Work::Scan | Work::Range { .. } | Work::Critical { .. } => {}
            }
        }
        keys.into_iter().collect()
    }

    /// The first value that somebody writes and that is wanted.
    pub(crate) fn value(&self, is_wanted: impl Fn(u64) -> bool) -> Option<u64> {
        let work = self.actors.iter().flat_map(|actor| &actor.work);
        let mut values = work.flat_map(|work| match work {
            Work::Call { call, .. } => call.value().into_iter().collect(),
            Work::Together(calls) => calls.iter().filter_map(|(_, call)| call.value()).collect(),
            _ => Vec::new(),
        });
        values.find(|&value| is_wanted(value))
    }

    /// How much there is in it: what the shrinker makes small.
    #[must_use]
    pub fn size(&self) -> usize {
        let work: usize = self.actors.iter().map(|actor| actor.work.len()).sum();
        self.actors.len() + work + self.faults.len()
    }
}
