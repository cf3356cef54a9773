//! What a worker counts for itself, and anybody may read.
//!
//! On the path: beside every command. One thread writes a count and others read it, so counting is a
//! plain addition; nothing is locked and nothing is concluded from a count.
//!
//! A new count is one line of `counts!`: it appears in `FARSIDE STATS` and in the metrics, and a test
//! asks for its row in `docs/metrics.md`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use farside_fabric::{CounterSnapshot, VerbKind};
use serde::{Deserialize, Serialize};

use crate::command::group::GROUP_COUNT;
use crate::command::table::TABLE;
use crate::hotkeys::HotKeys;
use crate::latency::Histogram;

/// Whether a count only grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Nature {
    /// It grows as long as the process lives.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// A count as the metrics show it.
pub(crate) struct Described {
    /// Without prefix, unit and suffix.
    pub(crate) metric: &'static str,
    /// What is counted, if not things.
    pub(crate) unit: Option<&'static str>,
    pub(crate) nature: Nature,
    pub(crate) help: &'static str,
    pub(crate) value: fn(&Counts) -> u64,
}

macro_rules! counts {
    ($($name:ident: $nature:ident $metric:literal $([$unit:literal])?, $help:literal;)*) => {
        /// The counts of one worker, on cache lines of their own.
        #[derive(Debug)]
        #[repr(align(128))]
        pub(crate) struct Statistics {
            $(#[doc = $help] pub(crate) $name: Count,)*
            /// Commands that were found and whose number of arguments was right, in the order of the table.
            pub(crate) calls: [Count; TABLE.len()],
            /// Verbs by kind, as last published.
            pub(crate) verbs: [Count; VerbKind::ALL.len()],
            /// Latencies by group of commands.
            pub(crate) latencies: [Histogram; GROUP_COUNT],
            /// 1 while the worker has the store open and its pool can be reached, as last published.
            pub(crate) joined: Count,
            /// Locked for one key in many, and by whoever asks for them.
            pub(crate) hot_keys: Mutex<HotKeys>,
        }

        impl Default for Statistics {
            fn default() -> Self {
                Self {
                    $($name: Count::default(),)*
                    calls: core::array::from_fn(|_| Count::default()),
                    verbs: core::array::from_fn(|_| Count::default()),
                    latencies: core::array::from_fn(|_| Histogram::default()),
                    joined: Count::default(),
                    hot_keys: Mutex::default(),
                }
            }
        }

        /// Counts at one moment, over all workers.
        #[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Counts {
            $(#[doc = $help] pub $name: u64,)*
        }

        impl Counts {
            /// Adds the counts of a worker.
            pub(crate) fn add(&mut self, worker: &Statistics) {
                $(self.$name = self.$name.wrapping_add(worker.$name.get());)*
            }
        }

        /// Every count, for the metrics.
        pub(crate) const DESCRIBED: &[Described] = &[$(Described {
            metric: $metric,
            unit: counts!(@unit $($unit)?),
            nature: Nature::$nature,
            help: $help,
            value: |counts| counts.$name,
        }),*];
    };
    (@unit) => { None };
    (@unit $unit:literal) => { Some($unit) };
}

counts! {
    clients: Gauge "connections", "Connections that are open.";
    connections: Counter "connections_received", "Connections that were ever opened.";
    commands: Counter "commands_executed", "Commands that were executed, failed and unknown ones included.";
    errors: Counter "error_replies", "Commands that were answered with an error.";
    hits: Counter "lookup_hits", "Lookups that found a key.";
    misses: Counter "lookup_misses", "Lookups that did not.";
    expired: Counter "expired_keys", "Keys that had expired and were removed by the sweeper.";
    evicted: Counter "evicted_keys", "Keys that were removed to make room, as the policy allows.";
    bytes_in: Counter "received" ["bytes"], "Bytes from clients.";
    bytes_out: Counter "sent" ["bytes"], "Bytes to clients.";
    retries: Counter "retries", "Attempts of commands that lost a race against another change, and were made again.";
    bytes_read: Counter "fabric_read" ["bytes"], "Bytes that verbs brought from memory nodes.";
    bytes_written: Counter "fabric_written" ["bytes"], "Bytes that verbs took to memory nodes.";
    doorbells: Counter "doorbells", "Posts of verbs; a batch of verbs counts once.";
    index_cache: Gauge "index_cache" ["bytes"], "Memory in which workers remember where keys are looked for.";
    limbo: Gauge "limbo_blocks", "Blocks that were replaced or deleted, and wait until no reader can hold them.";
    rejoins: Counter "rejoins", "Times that a worker was cut off from the pool and joined it again.";
}

impl Statistics {
    /// Adds what an endpoint has posted.
    pub(crate) fn add_verbs(&self, posted: &CounterSnapshot) {
        for (count, kind) in self.verbs.iter().zip(VerbKind::ALL) {
            count.add(posted.verbs.of(kind));
        }
        self.bytes_read.add(posted.bytes_read);
        self.bytes_written.add(posted.bytes_written);
        self.doorbells.add(posted.doorbells);
    }
}

/// A count that one thread changes and others read.
#[derive(Default, Debug)]
pub(crate) struct Count(AtomicU64);

impl Count {
    #[inline]
    pub(crate) fn add(&self, more: u64) {
        // One writer: a plain addition will do, and costs no locked instruction. Relaxed: nothing
        // is concluded from a count.
        self.0
            .store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn subtract(&self, less: u64) {
        self.add(less.wrapping_neg());
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
