//! What a run has seen of its index: how it grew, what a client remembers of it, and which operations went together.

use std::sync::{Mutex, PoisonError};

use farside_index::{Index, Shared};
use farside_sync::Combined;
use serde::Serialize;

use crate::program::Laid;

/// What the compute nodes have seen, gathered as they leave.
#[derive(Default, Debug)]
pub struct Seen {
    sum: Mutex<Sum>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Sum {
    cache_bytes: u64,
    credit_bytes: u64,
    splits: u64,
    first_split: Option<(u64, u64)>,
    grows: bool,
    /// When the time that counts began, and at the end.
    shared: [Shared; 2],
    combined: [Combined; 2],
}

/// How a table grew.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Growth {
    /// How often a subtable was split.
    pub splits: u64,
    /// Entries divided by slots of the first subtable that was split, at that moment; absent if none was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_split_load: Option<f64>,
}

impl Seen {
    /// The time that counts begins for a compute node.
    pub fn begin(&self, index: &Index) {
        let mut sum = self.sum.lock().unwrap_or_else(PoisonError::into_inner);
        sum.shared[0] = sum.shared[0].plus(index.shared());
        sum.combined[0] = sum.combined[0].plus(index.combined());
    }

    /// How many operations have gone with another one while it counted.
    #[must_use]
    pub fn shared(&self) -> Shared {
        let sum = *self.sum.lock().unwrap_or_else(PoisonError::into_inner);
        sum.shared[1].since(sum.shared[0])
    }

    /// How often writes went which way while it counted.
    #[must_use]
    pub fn combined(&self) -> Combined {
        let sum = *self.sum.lock().unwrap_or_else(PoisonError::into_inner);
        sum.combined[1].since(sum.combined[0])
    }

    /// Adds what a compute node has seen.
    pub fn note(&self, index: &Index) {
        let mut sum = self.sum.lock().unwrap_or_else(PoisonError::into_inner);
        sum.shared[1] = sum.shared[1].plus(index.shared());
        sum.combined[1] = sum.combined[1].plus(index.combined());
        sum.cache_bytes = sum.cache_bytes.max(index.cache_bytes() as u64);
        sum.credit_bytes = sum.credit_bytes.max(index.credit_bytes() as u64);
        if let Index::Race(race) = index {
            let (splits, first) = race.splits();
            sum.grows = true;
            sum.splits += splits;
            sum.first_split = sum.first_split.or(first);
        }
    }

    /// The most that a compute node remembers of the index, in bytes.
    #[must_use]
    pub fn cache_bytes(&self) -> u64 {
        self.sum.lock().unwrap_or_else(PoisonError::into_inner).cache_bytes
    }

    /// The most that a compute node remembers of contention, in bytes.
    #[must_use]
    pub fn credit_bytes(&self) -> u64 {
        self.sum.lock().unwrap_or_else(PoisonError::into_inner).credit_bytes
    }

    /// How the table grew, from what had been seen before the clients came; `None` if the index cannot.
    #[must_use]
    pub fn growth(&self, laid: Laid) -> Option<Growth> {
        let sum = *self.sum.lock().unwrap_or_else(PoisonError::into_inner);
        let first = laid.first_split.or(sum.first_split);
        sum.grows.then_some(Growth {
            splits: laid.splits + sum.splits,
            first_split_load: first.map(|(entries, slots)| entries as f64 / slots as f64),
        })
    }
}

impl Growth {
    /// In words.
    #[must_use]
    pub fn text(&self) -> String {
        match self.first_split_load {
            Some(load) => format!("split {} times, first at a load of {:.1} %", self.splits, load * 100.0),
            None => "never split".to_owned(),
        }
    }
}
