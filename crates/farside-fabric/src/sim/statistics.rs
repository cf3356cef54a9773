//! What the NIC of a node did: counts and times behind every claim about cost.

use crate::counters::VerbCounts;

/// Counts and times of one node since the start of the simulation.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NodeStatistics {
    /// Operations executed, by kind.
    pub verbs: VerbCounts,
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
