//! The operations of an endpoint that are on their way.
//!
//! On the path: a post takes a slot here and waits; connections bring the answers, frame by frame,
//! and put the results where the operation wants them. One post may go to several nodes and
//! take several frames to each, so a slot knows how many answers are still to come.
//!
//! A slot is in one of three states:
//! - *waiting*: somebody polls a [`Pending`]. Answers are copied into the operation's memory;
//! - *over*: all answers have come, or one was an error. The waiter takes the memory back;
//! - *orphaned*: the waiter is gone (deadline, or its future was dropped). What still comes in is
//!   thrown away, and the slot is free with the last answer.
//!
//! Invariants:
//! - a slot is reused only when `answers_left == 0` and its waiter is gone, so a late answer never
//!   lands in another operation;
//! - the memory of a *pinned* slot, on which a network card works, stays in it until `answers_left == 0`.

use core::cell::RefCell;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

use arrayvec::ArrayVec;

use super::frame::Status;
use crate::addr::NodeId;
use crate::batch::BATCH_VERBS_MAX;
use crate::buffer::{Buffer, Memory};
use crate::error::FabricError;
use crate::rdma::PinnedMemory;
use crate::verb::Verb;

/// Which slot an operation has.
pub(crate) type SlotIndex = u32;

/// What a verb of the operation returns, and what of it is still to come.
pub(super) struct Part {
    node: NodeId,
    /// Bytes of the result that have not arrived.
    left: u32,
    /// Where the next byte of a READ goes; `None` if the result is a word.
    target: Option<u32>,
    result: u128,
}

impl Part {
    fn new(verb: &Verb) -> Self {
        Self {
            node: verb.target().0.node(),
            left: verb.result_bytes() as u32,
            target: match verb {
                Verb::Read { target, .. } => Some(target.at),
                _ => None,
            },
            result: 0,
        }
    }

    /// The word that the verb returned, or 0.
    pub(super) fn result(&self) -> u128 {
        self.result
    }
}

#[derive(Default)]
struct Slot {
    /// Kept when the slot is reused: the next operation mostly belongs to the same task.
    waker: Option<Waker>,
    is_orphaned: bool,
    /// Whether a network card works on the memory, until all answers have come.
    is_pinned: bool,
    answers_left: u32,
    failure: Option<FabricError>,
    status: Option<Status>,
    memory: Memory,
    parts: ArrayVec<Part, BATCH_VERBS_MAX>,
}

impl Slot {
    fn is_over(&self) -> bool {
        self.answers_left == 0 || self.failure.is_some()
    }
}

/// All slots of an endpoint.
#[derive(Default)]
pub(crate) struct Operations {
    slots: Vec<Slot>,
    free: Vec<SlotIndex>,
}

impl Operations {
    /// A slot for verbs that work on `memory` and are answered by `answers` frames.
    pub(super) fn begin<'v>(&mut self, verbs: impl Iterator<Item = &'v Verb>, memory: Memory) -> SlotIndex {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as SlotIndex
        });
        let slot = &mut self.slots[index as usize];
        assert!(slot.parts.is_empty(), "a free slot holds nothing");
        slot.memory = memory;
        slot.parts.extend(verbs.map(Part::new));
        index
    }

    /// The bytes that the operation's WRITEs send.
    pub(super) fn memory(&self, index: SlotIndex) -> &[u8] {
        self.slots[index as usize].memory.bytes()
    }

    /// Expects so many answers more.
    pub(super) fn expect_answers(&mut self, index: SlotIndex, answers: u32) {
        self.slots[index as usize].answers_left += answers;
    }

    /// Expects one answer more, of a network card that works on the operation's memory until then.
    pub(crate) fn expect_pinned_answer(&mut self, index: SlotIndex) {
        self.expect_answers(index, 1);
        self.slots[index as usize].is_pinned = true;
    }

    /// Where a network card finds the memory of an operation.
    #[inline]
    pub(crate) fn pinned_memory(&mut self, index: SlotIndex) -> PinnedMemory {
        let memory = &mut self.slots[index as usize].memory;
        let key = memory.local_key().unwrap_or(0);
        PinnedMemory {
            start: memory.bytes_mut().as_mut_ptr() as u64,
            key,
        }
    }

    /// A verb of the operation is done, with the word that it returns.
    #[inline]
    pub(crate) fn complete_part(&mut self, index: SlotIndex, part: usize, word: u128) {
        // Over, and its parts with it, if the operation has failed at another node.
        if let Some(part) = self.slots[index as usize].parts.get_mut(part) {
            part.left = 0;
            if part.target.is_none() {
                part.result = word;
            }
        }
    }

    /// A network card has done one post of the operation. Returns the waker of the operation if it is over now.
    #[inline]
    pub(crate) fn complete(&mut self, index: SlotIndex) -> Option<&Waker> {
        self.slots[index as usize].answers_left -= 1;
        self.wake_or_release(index)
    }

    /// Takes one answer in. Returns the waker of the operation if it is over now.
    #[inline]
    pub(super) fn answer(
        &mut self,
        index: SlotIndex,
        node: NodeId,
        status: Status,
        body: &[u8],
    ) -> Result<Option<&Waker>, &'static str> {
        let slot = &mut self.slots[index as usize];
        slot.answers_left -= 1;
        slot.status = Some(status);
        let rest = slot.take_in(node, body)?;
        if !rest.is_empty() {
            return Err("an answer is longer than its request asked for");
        }
        if slot.answers_left == 0 && slot.parts.iter().any(|part| part.left > 0) && slot.failure.is_none() {
            return Err("an answer is shorter than its request asked for");
        }
        Ok(self.wake_or_release(index))
    }

    /// One answer will not come. Returns the waker of the operation, which is over.
    pub(crate) fn fail(&mut self, index: SlotIndex, failure: FabricError) -> Option<&Waker> {
        let slot = &mut self.slots[index as usize];
        slot.answers_left -= 1;
        slot.failure.get_or_insert(failure);
        self.wake_or_release(index)
    }

    fn wake_or_release(&mut self, index: SlotIndex) -> Option<&Waker> {
        let slot = &mut self.slots[index as usize];
        if slot.is_orphaned {
            if slot.answers_left == 0 {
                self.release(index);
            }
            return None;
        }
        let slot = &self.slots[index as usize];
        if slot.is_over() { slot.waker.as_ref() } else { None }
    }

    fn release(&mut self, index: SlotIndex) {
        let slot = &mut self.slots[index as usize];
        slot.is_orphaned = false;
        slot.is_pinned = false;
        slot.memory = Memory::default();
        slot.failure = None;
        slot.status = None;
        slot.parts.clear();
        self.free.push(index);
    }

    /// The waiter leaves; its memory goes with it, or a copy of it while a network card works on it.
    fn leave(&mut self, index: SlotIndex) -> Memory {
        let slot = &mut self.slots[index as usize];
        let memory = if slot.is_pinned && slot.answers_left > 0 {
            slot.memory.copy_in_flight()
        } else {
            core::mem::take(&mut slot.memory)
        };
        if slot.answers_left == 0 {
            self.release(index);
        } else {
            slot.is_orphaned = true;
        }
        memory
    }
}

impl Slot {
    /// Hands the bytes of an answer out to the parts of its node, in verb order. Returns what is
    /// left over.
    #[inline]
    fn take_in<'b>(&mut self, node: NodeId, mut body: &'b [u8]) -> Result<&'b [u8], &'static str> {
        let memory = self.memory.bytes_mut();
        for part in self.parts.iter_mut().filter(|part| part.node == node && part.left > 0) {
            if body.is_empty() {
                break;
            }
            if let Some(at) = part.target {
                let bytes = body.len().min(part.left as usize);
                let (now, later) = body.split_at(bytes);
                if !self.is_orphaned {
                    memory[at as usize..at as usize + bytes].copy_from_slice(now);
                }
                part.target = Some(at + bytes as u32);
                part.left -= bytes as u32;
                body = later;
            } else {
                // Words are not cut.
                let Some((now, later)) = body.split_at_checked(part.left as usize) else {
                    return Err("an answer ends in the middle of a word");
                };
                let mut word = [0; 16];
                word[..now.len()].copy_from_slice(now);
                part.result = u128::from_le_bytes(word);
                part.left = 0;
                body = later;
            }
        }
        Ok(body)
    }
}

/// Waits for an operation. Dropping it orphans the slot.
pub(super) struct Pending<'a> {
    operations: &'a RefCell<Operations>,
    index: SlotIndex,
    is_finished: bool,
}

impl<'a> Pending<'a> {
    pub(super) fn new(operations: &'a RefCell<Operations>, index: SlotIndex) -> Self {
        Self {
            operations,
            index,
            is_finished: false,
        }
    }

    /// A node that has not answered all of it.
    pub(super) fn laggard(&self) -> Option<NodeId> {
        let operations = self.operations.borrow();
        let parts = &operations.slots[self.index as usize].parts;
        parts.iter().find(|part| part.left > 0).map(|part| part.node)
    }

    /// Puts the memory back into `buffer` and hands out the results, if the operation is over; an
    /// operation that is not over is left to itself, which `on_deadline` says.
    #[inline]
    pub(super) fn finish<T>(
        mut self,
        buffer: &mut Buffer,
        on_deadline: FabricError,
        results: impl FnOnce(&[Part], Status) -> T,
    ) -> Result<T, FabricError> {
        self.is_finished = true;
        let mut operations = self.operations.borrow_mut();
        let slot = &operations.slots[self.index as usize];
        let outcome = match slot.failure {
            Some(failure) => Err(failure),
            None if slot.answers_left > 0 => Err(on_deadline),
            None => Ok(results(&slot.parts, slot.status.unwrap_or(Status::Done))),
        };
        buffer.restore(operations.leave(self.index));
        outcome
    }
}

impl Future for Pending<'_> {
    type Output = ();

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut operations = self.operations.borrow_mut();
        let slot = &mut operations.slots[self.index as usize];
        if slot.is_over() {
            return Poll::Ready(());
        }
        match &mut slot.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            drop(self.operations.borrow_mut().leave(self.index));
        }
    }
}

#[cfg(test)]
mod tests;
