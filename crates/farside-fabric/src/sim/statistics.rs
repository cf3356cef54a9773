//! What the NIC of a node did: counts and times behind every claim about cost.

use crate::verb::VerbKind;

/// Counts and times of one node since the start of the simulation.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NodeStatistics {
    /// Operations executed, by kind, in the order of [`VerbKind::ALL`].
    pub verbs: [u64; VerbKind::ALL.len()],
    /// Bytes that arrived on the wire, headers included.
    pub bytes_in: u64,
    /// Bytes that left on the wire, headers included.
    pub bytes_out: u64,
    /// Nanoseconds that operations waited for their unit, in sum.
    pub queueing_ns: u64,
    /// Nanoseconds that units stood still because the address of their atomic was locked, in sum.
    pub blocked_ns: u64,
    /// Nanoseconds that units worked, in sum; blocked time is not part of it.
    pub busy_ns: u64,
}

impl NodeStatistics {
    /// Operations of one kind.
    #[must_use]
    pub fn of(&self, kind: VerbKind) -> u64 {
        self.verbs[kind as usize]
    }

    /// Compare-and-swaps and fetch-and-adds of every form.
    #[must_use]
    pub fn atomics(&self) -> u64 {
        VerbKind::ALL
            .iter()
            .filter(|kind| kind.is_atomic())
            .map(|&kind| self.of(kind))
            .sum()
    }

    /// All operations.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.verbs.iter().sum()
    }
}
