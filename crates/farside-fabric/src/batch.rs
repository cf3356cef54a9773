//! Several verbs posted with one doorbell.
//!
//! On the path: an operation that needs several far accesses in one round trip collects them here
//! and posts them together. Verbs to one node take effect in the order of the batch; verbs to
//! different nodes are not ordered. All verbs of a batch work on one buffer, each on its own slice.

use arrayvec::ArrayVec;

use crate::addr::RemoteAddr;
use crate::verb::{Slice, Verb};

/// How many verbs one batch holds.
pub const BATCH_VERBS_MAX: usize = 32;

/// Which verb of a batch: what a `push` returns and [`Batch::result`] takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position(usize);

/// An ordered list of verbs, and after [`Endpoint::post`](crate::Endpoint::post) their results.
#[derive(Clone, Default, Debug)]
pub struct Batch {
    verbs: ArrayVec<Verb, BATCH_VERBS_MAX>,
    results: [u128; BATCH_VERBS_MAX],
    /// A bit for each READ whose bytes may be something else by now.
    speculative: u32,
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a verb at the end.
    ///
    /// # Panics
    /// If the batch already holds [`BATCH_VERBS_MAX`] verbs.
    pub fn push(&mut self, verb: Verb) -> Position {
        self.verbs.push(verb);
        Position(self.verbs.len() - 1)
    }

    /// Adds a READ of `target.bytes` bytes.
    pub fn read(&mut self, source: RemoteAddr, target: Slice) -> Position {
        self.push(Verb::Read { source, target })
    }

    /// Adds a READ of bytes that may have been reclaimed, and be something else by now. The caller finds that out from what
    /// the batch reads before, and then uses nothing of it ([`OpContext::rely_on`](crate::OpContext::rely_on) others): the
    /// simulator sees to that.
    pub fn speculate(&mut self, source: RemoteAddr, target: Slice) -> Position {
        let position = self.read(source, target);
        self.speculative |= 1 << position.0;
        position
    }

    /// Whether the verb at `index` is a READ of bytes that may be something else by now; for the simulator.
    #[must_use]
    pub fn is_speculative(&self, index: usize) -> bool {
        self.speculative >> index & 1 == 1
    }

    /// Adds a WRITE of a slice of the buffer.
    pub fn write(&mut self, source: Slice, target: RemoteAddr) -> Position {
        self.push(Verb::Write { source, target })
    }

    /// Adds a READ of one aligned word.
    pub fn read_word(&mut self, source: RemoteAddr) -> Position {
        self.push(Verb::ReadWord { source })
    }

    /// Adds a WRITE of one aligned word.
    pub fn write_word(&mut self, target: RemoteAddr, value: u64) -> Position {
        self.push(Verb::WriteWord { target, value })
    }

    /// Adds a compare-and-swap of 8 bytes.
    pub fn compare_swap(&mut self, target: RemoteAddr, compare: u64, swap: u64) -> Position {
        self.push(Verb::CompareSwap { target, compare, swap })
    }

    /// Adds a fetch-and-add of 8 bytes.
    pub fn fetch_add(&mut self, target: RemoteAddr, add: u64) -> Position {
        self.push(Verb::FetchAdd { target, add })
    }

    /// The verbs, in order.
    #[must_use]
    pub fn verbs(&self) -> &[Verb] {
        &self.verbs
    }

    /// The result of a posted verb as an 8-byte word; 0 for verbs without a result.
    #[must_use]
    pub fn result(&self, position: Position) -> u64 {
        self.results[position.0] as u64
    }

    /// The result of a posted 16-byte atomic.
    #[must_use]
    pub fn wide_result(&self, position: Position) -> u128 {
        self.results[position.0]
    }

    /// Stores the result of the verb at `index`; for backends.
    pub fn set_result(&mut self, index: usize, result: u128) {
        self.results[index] = result;
    }

    /// Removes all verbs, so that the batch can be filled again.
    pub fn clear(&mut self) {
        self.verbs.clear();
        self.speculative = 0;
    }
}
