//! What a run has seen of its tree: what compute nodes remember, what came of their guesses, how the structure changed.

use std::sync::{Mutex, PoisonError};

use farside_index::{Shared, Tree};
use serde::Serialize;

/// What the compute nodes have seen, gathered as they leave.
#[derive(Default, Debug)]
pub struct Seen {
    sum: Mutex<Sum>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Sum {
    cache_bytes: u64,
    hotspot_bytes: u64,
    height: u8,
    /// When the time that counts began, and at the end.
    counts: [Counts; 2],
}

/// What all compute nodes have counted since they joined.
#[derive(Clone, Copy, Default, Debug)]
struct Counts {
    shared: Shared,
    right: u64,
    wrong: u64,
    splits: u64,
    merges: u64,
    settled: u64,
    handovers: u64,
}

impl Counts {
    fn plus(self, tree: &Tree) -> Self {
        let (guessed, changed) = (tree.speculations(), tree.structure());
        Self {
            shared: self.shared.plus(tree.shared()),
            right: self.right + guessed.right,
            wrong: self.wrong + guessed.wrong,
            splits: self.splits + changed.splits,
            merges: self.merges + changed.merges,
            settled: self.settled + changed.settled,
            handovers: self.handovers + tree.handovers(),
        }
    }
}

/// A tree as its compute nodes have seen it; counts are of the time that counts.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Structure {
    /// Levels of internal nodes.
    pub height: u8,
    /// Bytes of internal nodes that a compute node remembers, for each key at the start.
    pub cache_bytes_per_item: f64,
    /// Bytes of hotspots that a compute node remembers: the most of any.
    pub hotspot_bytes: u64,
    /// Speculative reads that have found their key.
    pub speculations_right: u64,
    /// Those that have not.
    pub speculations_wrong: u64,
    /// The share of SEARCHes and UPDATEs that went to a leaf and knew in which entry to look.
    pub hit_rate: f64,
    /// The share of speculative reads that have found their key.
    pub right_rate: f64,
    /// Leaves that were split.
    pub splits: u64,
    /// Leaves that were merged into their neighbours.
    pub merges: u64,
    /// Nodes that were settled for others.
    pub settled: u64,
    /// How often the lock of a leaf was handed over within a compute node.
    pub handovers: u64,
}

impl Seen {
    fn change(&self, change: impl FnOnce(&mut Sum)) {
        change(&mut self.sum.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn sum(&self) -> Sum {
        *self.sum.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time that counts begins for a compute node.
    pub fn begin(&self, tree: &Tree) {
        self.change(|sum| sum.counts[0] = sum.counts[0].plus(tree));
    }

    /// Adds what a compute node has seen.
    pub fn note(&self, tree: &Tree) {
        self.change(|sum| {
            sum.counts[1] = sum.counts[1].plus(tree);
            sum.cache_bytes = sum.cache_bytes.max(tree.cache_bytes() as u64);
            sum.hotspot_bytes = sum.hotspot_bytes.max(tree.hotspot_bytes() as u64);
            sum.height = sum.height.max(tree.height());
        });
    }

    /// The most that a compute node remembers of internal nodes, in bytes.
    #[must_use]
    pub fn cache_bytes(&self) -> u64 {
        self.sum().cache_bytes
    }

    /// How many operations have gone with another one while it counted.
    #[must_use]
    pub fn shared(&self) -> Shared {
        let [begin, end] = self.sum().counts;
        end.shared.since(begin.shared)
    }

    /// All of it, for so many keys at the start and so many SEARCHes and UPDATEs.
    #[must_use]
    pub fn structure(&self, items: u64, lookups: u64) -> Structure {
        let (sum, shared) = (self.sum(), self.shared());
        let [begin, end] = sum.counts;
        let (right, wrong) = (end.right - begin.right, end.wrong - begin.wrong);
        let rate = |part: u64, all: u64| part as f64 / all.max(1) as f64;
        let combined = shared.reads.combined + shared.writes.combined;
        Structure {
            height: sum.height,
            cache_bytes_per_item: rate(sum.cache_bytes, items),
            hotspot_bytes: sum.hotspot_bytes,
            speculations_right: right,
            speculations_wrong: wrong,
            // Some have guessed before the time that counts and end in it.
            hit_rate: rate(right + wrong, lookups.saturating_sub(combined)).min(1.0),
            right_rate: rate(right, right + wrong),
            splits: end.splits - begin.splits,
            merges: end.merges - begin.merges,
            settled: end.settled - begin.settled,
            handovers: end.handovers - begin.handovers,
        }
    }
}

impl Structure {
    /// In words.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{} levels, {} leaves split", self.height, self.splits);
        if self.speculations_right + self.speculations_wrong > 0 {
            let [hits, right] = [self.hit_rate, self.right_rate].map(|rate| rate * 100.0);
            text += &format!(", {hits:.1} % of lookups guess an entry, {right:.1} % of them right");
        }
        text
    }
}
