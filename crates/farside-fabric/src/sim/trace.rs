//! The trace of a run: every event, folded into one number, and the last few in full.
//!
//! On the path: each step of each operation is recorded once. Two runs with the same
//! configuration and seed give the same hash; the first difference between two runs changes it for
//! good.

use std::collections::VecDeque;

/// What happened to an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Step {
    /// It left its client.
    Posted,
    /// It took effect: its unit is done with it.
    Executed,
    /// Some lines of it were touched.
    Touched,
    /// A message reached its mailbox.
    Delivered,
    /// Its client saw its result.
    Completed,
    /// Its client saw its deadline pass.
    Expired,
    /// A fault was injected.
    Fault,
}

/// One event of the trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceEntry {
    /// Simulated nanoseconds.
    pub time_ns: u64,
    /// What happened.
    pub step: Step,
    /// Number of the endpoint, counted from 0.
    pub endpoint: u32,
    /// Kind of the operation, as a number.
    pub kind: u8,
    /// Node and offset, or the peer of a message.
    pub target: u64,
    /// Result of the verb, or what the step is about.
    pub result: u64,
}

/// The recorder.
#[derive(Debug)]
pub(super) struct Trace {
    hash: u64,
    last: VecDeque<TraceEntry>,
    last_max: usize,
}

impl Trace {
    /// A trace that keeps the last `last_max` entries in full.
    pub(super) fn new(seed: u64, last_max: usize) -> Self {
        Self {
            hash: seed ^ 0x9e37_79b9_7f4a_7c15,
            last: VecDeque::with_capacity(last_max),
            last_max,
        }
    }

    #[inline]
    pub(super) fn record(&mut self, entry: TraceEntry) {
        // Four independent products, then one step of the chain: wide instead of deep.
        let who = u64::from(entry.endpoint) << 16 | u64::from(entry.kind) << 8 | entry.step as u64;
        let mixed = entry.time_ns.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ who.wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(17)
            ^ entry.target.wrapping_mul(0x94d0_49bb_1331_11eb).rotate_left(31)
            ^ entry.result.wrapping_mul(0xd6e8_feb8_6659_fd93).rotate_left(47);
        self.hash = (self.hash.rotate_left(23) ^ mixed).wrapping_mul(0x2545_f491_4f6c_dd1d);
        if self.last_max != 0 {
            self.keep(entry);
        }
    }

    #[cold]
    fn keep(&mut self, entry: TraceEntry) {
        if self.last.len() == self.last_max {
            self.last.pop_front();
        }
        self.last.push_back(entry);
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash ^ self.hash >> 32
    }

    pub(super) fn last(&self) -> impl Iterator<Item = &TraceEntry> {
        self.last.iter()
    }
}
