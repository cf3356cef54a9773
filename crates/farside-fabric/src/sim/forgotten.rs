//! Memory that holds nothing: noting who reads a block after it was reclaimed.
//!
//! On the path: the pool says which blocks nobody can find any more
//! ([`Endpoint::forget`](crate::Endpoint::forget)), before it hands them out again. Here their lines are
//! overwritten and marked. A WRITE, a word or an atomic makes the lines that it touches known again.
//! A READ that *starts* in a forgotten line is a bug, use after free, and ends the simulation. Only
//! its first line counts: readers may fetch more than there is, and ignore what is behind the end.
//! One that is said to be speculative brings torn bytes instead: it is a bug to use them.
//!
//! A READ that nobody waits for any more (its deadline has passed, its client has crashed) may be
//! late, and finds what it finds.
//!
//! A client that was cut off from a node has no say any more: its blocks there are somebody else's, and it
//! may go on with its own lists for a while before it learns that.
//!
//! Invariant: `count` is the number of bits set; without any nothing is looked up.

use core::ops::Range;

use super::operation::{State, Work};
use super::world::{World, endpoint_id};
use crate::addr::RemoteAddr;
use crate::verb::{Verb, VerbKind};

/// What is marked, in bytes.
const LINE_BYTES: u64 = 64;
/// What forgotten memory is filled with.
const FILLING: [u8; 4096] = [0xdd; 4096];

/// The forgotten lines of a node: one bit each, allocated when the first is forgotten.
#[derive(Default, Debug)]
pub(super) struct Forgotten {
    lines: Vec<u64>,
    count: u64,
}

impl Forgotten {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn insert(&mut self, line: u64) {
        let word = (line / 64) as usize;
        if word >= self.lines.len() {
            self.lines.resize(word + 1, 0);
        }
        let bit = 1 << (line % 64);
        self.count += u64::from(self.lines[word] & bit == 0);
        self.lines[word] |= bit;
    }

    /// Whether the byte at this offset is forgotten.
    fn contains(&self, offset: u64) -> bool {
        let line = offset / LINE_BYTES;
        let word = self.lines.get((line / 64) as usize);
        word.is_some_and(|word| word >> (line % 64) & 1 == 1)
    }

    /// Bytes were written.
    #[inline]
    pub(super) fn learn(&mut self, written: &Range<u64>) {
        if self.count != 0 {
            self.remove(written);
        }
    }

    fn remove(&mut self, written: &Range<u64>) {
        for line in written.start / LINE_BYTES..written.end.div_ceil(LINE_BYTES) {
            if let Some(word) = self.lines.get_mut((line / 64) as usize) {
                let bit = 1 << (line % 64);
                self.count -= u64::from(*word & bit != 0);
                *word &= !bit;
            }
        }
    }
}

impl World {
    /// Marks the whole lines among these bytes, of which a client says that nobody can find them any more.
    pub(super) fn forget(&mut self, client: u32, addr: RemoteAddr, bytes: u64) {
        let index = addr.node().index();
        let Some(node) = self.nodes.get(index) else { return };
        if node.fenced.contains(&client) {
            return;
        }
        #[cfg(feature = "mutants")]
        self.end_grace(client, addr);
        let node = &self.nodes[index];
        let end = (addr.offset() + bytes).min(node.region.bytes());
        let lines = addr.offset().div_ceil(LINE_BYTES)..end / LINE_BYTES;
        let (low, high) = (lines.start * LINE_BYTES, lines.end * LINE_BYTES);
        if low >= high {
            return;
        }
        // Transfers over these bytes have touched by now what is due.
        self.meet(addr.node(), low, high - low, true);
        let node = &mut self.nodes[index];
        node.journal.note(&node.region, low..high);
        for at in (low..high).step_by(FILLING.len()) {
            let count = (high - at).min(FILLING.len() as u64) as usize;
            node.region.write(at, &FILLING[..count]);
        }
        lines.for_each(|line| node.forgotten.insert(line));
    }

    /// A verb within one line is executed while there are forgotten lines.
    #[cold]
    pub(super) fn look_up_forgotten(&mut self, index: u32) {
        let Work::Verb(verb) = &self.operations[index].work else {
            return;
        };
        let (addr, bytes) = verb.target();
        if verb.kind() == VerbKind::Read {
            return self.check_known(index, addr);
        }
        let written = addr.offset()..addr.offset() + bytes;
        self.nodes[addr.node().index()].forgotten.learn(&written);
    }

    /// A READ starts.
    ///
    /// # Panics
    /// If it starts in a forgotten line, somebody waits for it, and has not said that it may be so.
    #[inline]
    pub(super) fn check_known(&mut self, index: u32, addr: RemoteAddr) {
        if !self.nodes[addr.node().index()].forgotten.is_empty() {
            self.refuse_forgotten(index, addr);
        }
    }

    #[cold]
    fn refuse_forgotten(&mut self, index: u32, addr: RemoteAddr) {
        if !self.nodes[addr.node().index()].forgotten.contains(addr.offset()) {
            return;
        }
        let operation = &self.operations[index];
        let (speculated, lead) = (operation.is_speculative, operation.lead);
        let target = match &operation.work {
            Work::Verb(Verb::Read { target, .. }) if speculated => Some(*target),
            _ => None,
        };
        let lead = &mut self.operations[lead];
        let is_awaited = lead.state == State::InFlight && !lead.is_abandoned;
        if let Some(target) = target {
            if is_awaited {
                lead.memory.mark_torn(target.range());
            }
            return;
        }
        let client = lead.client;
        let (endpoint, now, seed) = (endpoint_id(client), self.now, self.options.seed);
        assert!(
            !is_awaited,
            "at {now} ns {endpoint} reads {addr}, which was reclaimed and not written since (seed {seed})"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn forgotten_lines_behave_like_a_set(steps in proptest::collection::vec((any::<bool>(), 0_u64..300, 0_u64..200), 1..100)) {
            let mut forgotten = Forgotten::default();
            let mut model = BTreeSet::new();
            for (forget, line, bytes) in steps {
                if forget {
                    forgotten.insert(line);
                    model.insert(line);
                } else {
                    let low = line * LINE_BYTES;
                    forgotten.learn(&(low..low + bytes));
                    model.retain(|&known| known * LINE_BYTES >= low + bytes || known < line);
                }
                prop_assert_eq!(forgotten.count, model.len() as u64);
                prop_assert_eq!(forgotten.contains(line * LINE_BYTES + 63), model.contains(&line));
            }
        }
    }
}
