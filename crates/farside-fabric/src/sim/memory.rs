//! The memory of a node, and how verbs touch it: line by line, at distinct instants.
//!
//! On the path: a unit that executes a READ or WRITE touches its lines here. One line is touched when
//! the unit is done. Several are touched one after the other while the unit works on it, the last at
//! the end, in an order that chance decides; so a READ may see half of a WRITE, whichever half.
//!
//! An event per line would make a tree's 1 KiB nodes sixteen times as expensive to simulate as a
//! word. So lines are touched late: as long as nobody else touches the same bytes it makes no
//! difference when, and the end of the operation touches all of them. The first other verb
//! that meets the bytes makes the transfer *contended*: what is due is touched first, and from then
//! on each line has its event. (Whoever reads a [`Region`] directly in the
//! middle of a WRITE may see lines missing that are due; they belong to a verb that is in flight.)
//!
//! Invariant: `transfers` holds exactly the operations of several lines that this node is executing.

use core::ops::Range;
use std::collections::BTreeSet;

use super::forgotten::Forgotten;
use super::journal::Journal;
use super::operation::{Transfer, Work};
use super::queue::Event;
use super::tear::LongWrite;
use super::trace::Step;
use super::world::World;
use crate::addr::NodeId;
use crate::region::Region;
use crate::verb::Verb;

/// A memory node.
#[derive(Debug)]
pub(super) struct MemoryNode {
    pub(super) region: Region,
    pub(super) nic: u16,
    pub(super) is_alive: bool,
    /// Grows with every crash: connections do not outlive it.
    pub(super) incarnation: u32,
    /// Clients that were cut off.
    pub(super) fenced: BTreeSet<u32>,
    /// Long operations that are being executed.
    pub(super) transfers: Vec<u32>,
    /// Lines that hold nothing.
    pub(super) forgotten: Forgotten,
    /// WRITEs longer than a word that are being executed.
    pub(super) long_writes: Vec<LongWrite>,
    /// What was changed, if anybody wants to know.
    pub(super) journal: Journal,
}

impl MemoryNode {
    pub(super) fn new(region: Region, nic: u16) -> Self {
        Self {
            region,
            nic,
            is_alive: true,
            incarnation: 0,
            fenced: BTreeSet::new(),
            transfers: Vec::new(),
            forgotten: Forgotten::default(),
            long_writes: Vec::new(),
            journal: Journal::default(),
        }
    }
}

impl World {
    /// Whether a verb touches memory at one instant.
    #[inline]
    pub(super) fn is_one_piece(&self, verb: &Verb) -> bool {
        let (addr, bytes) = verb.target();
        // Pieces are powers of two: no division for the verbs that are most frequent.
        let inside = self.options.tear_bytes - 1;
        bytes == 0 || (addr.offset() ^ (addr.offset() + bytes - 1)) & !inside == 0
    }

    /// Begins a READ or WRITE of several pieces; returns how long it occupies its unit.
    pub(super) fn begin_transfer(&mut self, index: u32) -> u64 {
        let Work::Verb(verb) = self.operations[index].work else {
            unreachable!("only verbs transfer lines")
        };
        let (addr, bytes) = verb.target();
        if let Verb::Read { .. } = verb {
            self.check_known(index, addr);
        }
        let tear = self.options.tear_bytes;
        let offset = addr.offset();
        let unit_ns = self.options.profile.unit_ns;
        let lines = (offset + bytes - 1) / 64 - offset / 64 + 1;
        let pieces = ((offset + bytes - 1) / tear - offset / tear + 1) as u32;
        // At most one line per nanosecond.
        let mut span = unit_ns.max(lines);
        if self.options.lulls.one_in != 0 {
            span += self.lull_within();
        }
        let first = self.random_below(u64::from(pieces)) as u32;
        let stride = self.random_stride(pieces);
        let phase = self.random_below(span);
        let limit = self.operations[index].line_limit.min(pieces);
        let is_contended = self.meet(addr.node(), offset, bytes, is_write(&verb));
        let transfer = Transfer {
            start: self.now,
            span,
            pieces,
            touched: 0,
            limit,
            first,
            stride,
            phase,
            is_contended,
        };
        self.operations[index].transfer = transfer;
        self.nodes[addr.node().index()].transfers.push(index);
        if is_contended {
            self.queue.push(transfer.instant(0), Event::Lines(index));
        }
        span
    }

    /// A number below `pieces` that has no divisor in common with it.
    fn random_stride(&mut self, pieces: u32) -> u32 {
        for _ in 0..4 {
            let stride = 1 + self.random_below(u64::from(pieces) - 1) as u32;
            if greatest_common_divisor(stride, pieces) == 1 {
                return stride;
            }
        }
        1
    }

    /// A verb takes effect: the whole of it, or what is left to touch.
    #[inline]
    pub(super) fn end_verb(&mut self, index: u32) {
        let operation = &mut self.operations[index];
        if operation.transfer.pieces != 0 {
            let Work::Verb(verb) = operation.work else {
                unreachable!("only verbs transfer lines")
            };
            self.touch_due(index, &verb);
            self.end_transfer(index);
        } else if operation.line_limit == 0 {
            // Its client crashed before the first line.
            operation.is_executed = true;
        } else {
            self.apply_piece(index);
        }
    }

    /// Executes an atomic, or a verb within one line.
    #[inline]
    fn apply_piece(&mut self, index: u32) {
        let operation = &self.operations[index];
        let Work::Verb(verb) = &operation.work else {
            unreachable!("the caller has looked")
        };
        let (addr, bytes) = verb.target();
        let offset = addr.offset();
        if !self.nodes[addr.node().index()].transfers.is_empty() {
            let writes = is_write(verb);
            self.meet(addr.node(), offset, bytes, writes);
        }
        if !self.nodes[addr.node().index()].forgotten.is_empty() {
            self.look_up_forgotten(index);
        }
        let node = &mut self.nodes[addr.node().index()];
        let operation = &mut self.operations[index];
        operation.is_executed = true;
        match operation.work {
            Work::Verb(verb @ (Verb::Read { .. } | Verb::Write { .. })) => {
                let lead = operation.lead;
                let memory = self.operations[lead].memory.bytes_mut();
                touch(node, &verb, memory, offset..offset + bytes);
            }
            Work::Verb(ref verb) => {
                if is_write(verb) {
                    node.journal.note(&node.region, offset..offset + bytes);
                }
                operation.result = node.region.execute(verb, &mut []);
            }
            _ => unreachable!("the caller has looked"),
        }
    }

    /// Somebody is about to touch these bytes: transfers over them become contended. Returns whether
    /// there is one.
    pub(super) fn meet(&mut self, node: NodeId, offset: u64, bytes: u64, writes: bool) -> bool {
        let mut met = false;
        for at in 0..self.nodes[node.index()].transfers.len() {
            let index = self.nodes[node.index()].transfers[at];
            let Work::Verb(verb) = self.operations[index].work else {
                unreachable!("only verbs transfer lines")
            };
            let (addr, length) = verb.target();
            let overlaps = addr.offset() < offset + bytes && offset < addr.offset() + length;
            if !overlaps || !(writes || is_write(&verb)) {
                continue;
            }
            met = true;
            self.touch_due(index, &verb);
            let transfer = &mut self.operations[index].transfer;
            if !transfer.is_contended {
                transfer.is_contended = true;
                // The last piece is touched when the operation ends.
                if transfer.touched + 1 < transfer.pieces {
                    let due = transfer.instant(transfer.touched);
                    self.queue.push(due, Event::Lines(index));
                }
            }
        }
        met
    }

    /// Touches the pieces of a transfer whose instant has come.
    fn touch_due(&mut self, index: u32, verb: &Verb) {
        let now = self.now;
        let tear = self.options.tear_bytes;
        let lead = self.operations[index].lead;
        let mut transfer = self.operations[index].transfer;
        let (addr, bytes) = verb.target();
        let (low, high) = (addr.offset(), addr.offset() + bytes);
        let node = &mut self.nodes[addr.node().index()];
        let memory = self.operations[lead].memory.bytes_mut();
        let is_whole = transfer.touched == 0 && transfer.limit == transfer.pieces;
        if is_whole && transfer.instant(transfer.pieces - 1) <= now {
            // Nobody was near: the order of the pieces makes no difference, and this one is quick.
            transfer.touched = transfer.pieces;
            touch(node, verb, memory, low..high);
        }
        while transfer.touched < transfer.pieces && transfer.instant(transfer.touched) <= now {
            let piece = low / tear + transfer.piece(transfer.touched);
            if transfer.touched < transfer.limit {
                touch(node, verb, memory, low.max(piece * tear)..high.min((piece + 1) * tear));
            }
            transfer.touched += 1;
        }
        self.operations[index].transfer = transfer;
        self.record(Step::Touched, index, u64::from(transfer.touched));
    }

    /// Lines of a transfer are due.
    pub(super) fn lines_due(&mut self, index: u32) {
        let transfer = &self.operations[index].transfer;
        if transfer.pieces == 0 {
            return; // It was cut short in this very nanosecond.
        }
        let Work::Verb(verb) = self.operations[index].work else {
            unreachable!("only verbs transfer lines")
        };
        let was_touched = transfer.touched;
        self.touch_due(index, &verb);
        let transfer = &self.operations[index].transfer;
        if transfer.touched + 1 < transfer.pieces && transfer.touched > was_touched {
            self.queue.push(transfer.instant(transfer.touched), Event::Lines(index));
        }
    }

    /// Removes a transfer that is complete or cut short.
    fn end_transfer(&mut self, index: u32) {
        let operation = &mut self.operations[index];
        operation.transfer.pieces = 0;
        operation.is_executed = true;
        let Work::Verb(verb) = operation.work else {
            unreachable!("only verbs transfer lines")
        };
        let transfers = &mut self.nodes[verb.target().0.node().index()].transfers;
        transfers.retain(|&other| other != index);
    }

    /// Touches what is due of a transfer, and ends it there.
    pub(super) fn cut_transfer(&mut self, index: u32) {
        let Work::Verb(verb) = self.operations[index].work else {
            unreachable!("only verbs transfer lines")
        };
        self.touch_due(index, &verb);
        self.end_transfer(index);
    }
}

/// Copies the bytes at `part`, a range of offsets within the verb's target.
#[inline]
pub(super) fn touch(node: &mut MemoryNode, verb: &Verb, memory: &mut [u8], part: Range<u64>) {
    let low = verb.target().0.offset();
    let local = (part.start - low) as usize..(part.end - low) as usize;
    match *verb {
        Verb::Read { target, .. } => {
            // An expired batch has given its memory back.
            if let Some(slice) = memory.get_mut(target.range()) {
                node.region.read(part.start, &mut slice[local]);
            }
        }
        Verb::Write { source, .. } => {
            node.journal.note(&node.region, part.clone());
            node.region.write(part.start, &memory[source.range()][local]);
            node.forgotten.learn(&part);
        }
        _ => unreachable!("words and atomics are one piece"),
    }
}

#[inline]
fn is_write(verb: &Verb) -> bool {
    !matches!(verb, Verb::Read { .. } | Verb::ReadWord { .. })
}

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}
