//! Torn reads: noting which bytes of a READ a WRITE was changing meanwhile.
//!
//! On the path: a unit that takes up a READ or a WRITE longer than a word asks here who else is being
//! executed on the same bytes. What they have in common is *torn* for the reader, whatever the bytes
//! turned out to be: the contract lets each word of them be old or new. The reader's
//! [`OpContext`](crate::OpContext) panics if it relies on torn bytes without having validated them.
//!
//! A READ within one aligned word never tears, nor does a word of a WRITE that long; atomics neither.
//!
//! Invariant: `MemoryNode::long_writes` holds exactly the WRITEs longer than a word that units of
//! the node are executing, also those cut short in the middle; `Operation::is_listed` says so.
//! READs are not listed: they are most of the verbs, and the units know what they execute.

use super::operation::{NONE, State, Work};
use super::world::World;
use crate::verb::Verb;

/// A long WRITE that is being executed.
#[derive(Clone, Copy, Debug)]
pub(super) struct LongWrite {
    index: u32,
    low: u64,
    high: u64,
}

/// Whether these bytes are part of one aligned word.
#[inline]
fn is_in_word(low: u64, bytes: u64) -> bool {
    bytes <= 8 && (bytes == 0 || low / 8 == (low + bytes - 1) / 8)
}

impl World {
    /// Whether a verb that is about to be executed may tear, or make another tear.
    #[inline]
    pub(super) fn may_tear(&self, verb: &Verb) -> bool {
        match *verb {
            Verb::Read { source, .. } => !self.nodes[source.node().index()].long_writes.is_empty(),
            Verb::Write { source, target } => !is_in_word(target.offset(), u64::from(source.bytes)),
            _ => false,
        }
    }

    /// A unit begins a READ while there are long WRITEs, or a long WRITE.
    pub(super) fn watch_tears(&mut self, index: u32) {
        let Work::Verb(verb) = self.operations[index].work else {
            unreachable!("only verbs tear")
        };
        let (addr, bytes) = verb.target();
        let (low, high) = (addr.offset(), addr.offset() + bytes);
        let node = addr.node().index();
        if let Verb::Read { .. } = verb {
            for at in 0..self.nodes[node].long_writes.len() {
                let write = self.nodes[node].long_writes[at];
                self.mark_torn(index, write.low, write.high);
            }
            return;
        }
        self.operations[index].is_listed = true;
        self.nodes[node].long_writes.push(LongWrite { index, low, high });
        let nic = &self.nics[self.nodes[node].nic as usize];
        for unit in nic.first_unit..nic.first_unit + nic.unit_count {
            let unit = self.units[unit as usize];
            for other in [unit.current, unit.bypass] {
                if other != NONE {
                    self.mark_torn(other, low, high);
                }
            }
        }
    }

    /// A unit is done with a long WRITE.
    pub(super) fn end_long_write(&mut self, index: u32) {
        let operation = &mut self.operations[index];
        operation.is_listed = false;
        let Work::Verb(verb) = &operation.work else {
            unreachable!("only WRITEs are listed")
        };
        let writes = &mut self.nodes[verb.target().0.node().index()].long_writes;
        let at = writes.iter().position(|write| write.index == index);
        writes.swap_remove(at.expect("listed since it began"));
    }

    /// If `reader` is a READ longer than a word that somebody waits for: what it has in common with a
    /// WRITE of these bytes is torn.
    pub(super) fn mark_torn(&mut self, reader: u32, low: u64, high: u64) {
        let operation = &self.operations[reader];
        let Work::Verb(Verb::Read { source, target }) = operation.work else {
            return;
        };
        let start = source.offset();
        let (low, high) = (low.max(start), high.min(start + u64::from(target.bytes)));
        if low >= high || operation.is_executed || is_in_word(start, u64::from(target.bytes)) {
            return;
        }
        let lead = operation.lead;
        let lead = &mut self.operations[lead];
        if lead.state == State::InFlight {
            let shift = |offset: u64| target.at as usize + (offset - start) as usize;
            lead.memory.mark_torn(shift(low)..shift(high));
        }
    }

    /// A batch is posted with torn bytes in its buffer: those that it reads anew are torn no more.
    #[cold]
    pub(super) fn read_anew(&mut self, lead: u32) {
        let mut index = lead;
        while index != NONE {
            let operation = &self.operations[index];
            let next = operation.batch_next;
            if let Work::Verb(Verb::Read { target, .. }) = operation.work {
                self.operations[lead].memory.clear_torn(target.range());
            }
            index = next;
        }
    }
}
