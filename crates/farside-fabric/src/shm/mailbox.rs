//! A mailbox: a bounded ring of messages in shared memory, many senders, one receiver.
//!
//! On the path: SEND and RECEIVE between clients that share a segment.
//!
//! Any sender and the receiver may be killed at any instruction, and the ring must go on. So there
//! is no moment at which a slot is taken by nobody in particular: a sender takes the slot at the
//! tail with one compare-and-swap on the slot's own word, which names the sender.
//!
//! Slot word: `turn << 32 | sender tag << 2 | state`; `turn` counts the rounds of the ring.
//!
//! Send: 1. read the tail; 2. `FREE -> CLAIMED by me` on its slot; 3. move the tail on (whoever
//! finds the tail at a slot already taken does this for a sender that died); 4. write the message;
//! 5. `CLAIMED -> FULL`.
//!
//! Take: at the head, `FULL` is read and freed for the next turn; `CLAIMED` is waited for, or
//! skipped if the sender is gone; a slot that is a turn ahead was freed by a receiver that died
//! before it moved the head.
//!
//! Each message names its receiver: what was on the way to a former owner of the mailbox is thrown
//! away by the next one.

use crate::message::{EndpointId, MESSAGE_BYTES_MAX, Message, Received};
use crate::primitive::{AtomicU64, Ordering};
use crate::region::Region;

/// How many messages wait in one mailbox at most.
#[cfg(not(loom))]
pub(super) const SLOT_COUNT: u64 = 32;
/// So few that the model checker fills them.
#[cfg(loom)]
pub(super) const SLOT_COUNT: u64 = 2;
const SLOT_BYTES: u64 = 128;

const HEAD_AT: u64 = 0;
const TAIL_AT: u64 = 64;
const SLOTS_AT: u64 = 128;
/// Bytes of one mailbox.
pub(super) const MAILBOX_BYTES: u64 = SLOTS_AT + SLOT_COUNT * SLOT_BYTES;

const FROM_AT: u64 = 8;
const TO_AT: u64 = 16;
const LENGTH_AT: u64 = 24;
const MESSAGE_AT: u64 = 32;
const _: () = assert!(MESSAGE_AT + MESSAGE_BYTES_MAX as u64 <= SLOT_BYTES);

/// Bits of a sender's identity that a slot word has room for: the entry and the low bits of the
/// sequence.
const TAG_BITS: u32 = 30;

const FREE: u64 = 0;
const CLAIMED: u64 = 1;
const FULL: u64 = 2;

/// How often a sender looks for the tail before it says that the mailbox is full: more often than all
/// endpoints together move it while one of them looks.
const CLAIM_ATTEMPTS_MAX: u32 = 4096;

/// What the receiver finds at the head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Taken {
    Message(Received),
    Empty,
    /// A sender that is still there has taken the slot but not yet filled it.
    Unfinished,
}

/// All slots are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Full;

/// The part of an identity by which a slot names its sender.
pub(super) fn tag(id: EndpointId) -> u64 {
    id.0 & ((1 << TAG_BITS) - 1)
}

fn slot_word(turn: u32, tag: u64, state: u64) -> u64 {
    u64::from(turn) << 32 | tag << 2 | state
}

fn turn_of(word: u64) -> u32 {
    (word >> 32) as u32
}

/// A view of one mailbox.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mailbox<'a> {
    control: &'a Region,
    base: u64,
}

impl<'a> Mailbox<'a> {
    pub(super) fn new(control: &'a Region, base: u64) -> Self {
        Self { control, base }
    }

    fn word(&self, at: u64) -> &'a AtomicU64 {
        self.control.word(self.base + at)
    }

    /// Where the slot of a position is, and its turn.
    fn slot(position: u64) -> (u64, u32) {
        let at = SLOTS_AT + position % SLOT_COUNT * SLOT_BYTES;
        (at, (position / SLOT_COUNT) as u32)
    }

    /// Puts a message in.
    pub(super) fn send(&self, from: EndpointId, to: EndpointId, message: &Message) -> Result<(), Full> {
        let (slot, claimed) = self.claim(from)?;
        self.word(slot + FROM_AT).store(from.0, Ordering::Relaxed);
        self.word(slot + TO_AT).store(to.0, Ordering::Relaxed);
        self.word(slot + LENGTH_AT)
            .store(message.len() as u64, Ordering::Relaxed);
        self.control.write(self.base + slot + MESSAGE_AT, message);
        let full = slot_word(turn_of(claimed), 0, FULL);
        // Fails only if the receiver took this process for dead; the message was not sent then.
        let committed = self
            .word(slot)
            .compare_exchange(claimed, full, Ordering::SeqCst, Ordering::Relaxed);
        committed.map(drop).map_err(|_| Full)
    }

    /// Takes the slot at the tail: where it is, and its word now.
    pub(super) fn claim(&self, from: EndpointId) -> Result<(u64, u64), Full> {
        // Every turn means that another sender moved on, or that we moved the tail for it. The bound is
        // for words that no sender ever wrote.
        for _ in 0..CLAIM_ATTEMPTS_MAX {
            let tail = self.word(TAIL_AT).load(Ordering::Acquire);
            let (slot, turn) = Self::slot(tail);
            let word = self.word(slot).load(Ordering::Acquire);
            let lead = turn_of(word).wrapping_sub(turn) as i32;
            if lead < 0 {
                // The slot still has a message of the turn before, unless the tail has moved meanwhile.
                if self.word(TAIL_AT).load(Ordering::Acquire) == tail {
                    return Err(Full);
                }
                continue;
            }
            let claimed = slot_word(turn, tag(from), CLAIMED);
            let free = slot_word(turn, 0, FREE);
            let is_ours = word == free
                && self
                    .word(slot)
                    .compare_exchange(free, claimed, Ordering::SeqCst, Ordering::Relaxed)
                    .is_ok();
            // Ours or another's: the slot is taken and the tail has to move on. If somebody else did it, good.
            let _ =
                self.word(TAIL_AT)
                    .compare_exchange(tail, tail.wrapping_add(1), Ordering::SeqCst, Ordering::Relaxed);
            if is_ours {
                return Ok((slot, claimed));
            }
        }
        Err(Full)
    }

    /// Whether there is something for the receiver to look at.
    pub(super) fn has_mail(&self) -> bool {
        let (slot, turn) = Self::slot(self.word(HEAD_AT).load(Ordering::Acquire));
        self.word(slot).load(Ordering::SeqCst) != slot_word(turn, 0, FREE)
    }

    /// Takes the oldest message for `to`, the owner of the mailbox; nobody else may call this.
    /// `is_gone` says of a sender's tag whether it will never finish.
    pub(super) fn take(&self, to: EndpointId, is_gone: impl Fn(u64) -> bool) -> Taken {
        // Bounded, since the words are data from outside; a sound ring needs one round at most.
        for _ in 0..2 * SLOT_COUNT {
            let head = self.word(HEAD_AT).load(Ordering::Acquire);
            let (slot, turn) = Self::slot(head);
            let word = self.word(slot).load(Ordering::SeqCst);
            let next_turn = slot_word(turn.wrapping_add(1), 0, FREE);
            let mut received = None;
            match (turn_of(word).wrapping_sub(turn) as i32, word & 3) {
                (0, FULL) => {
                    received = self.read(slot, to);
                    self.word(slot).store(next_turn, Ordering::SeqCst);
                }
                (0, CLAIMED) => {
                    if !is_gone(u64::from(word as u32) >> 2) {
                        return Taken::Unfinished;
                    }
                    // Lost only to a sender that is not gone after all: its message stands there now.
                    let skip = self
                        .word(slot)
                        .compare_exchange(word, next_turn, Ordering::SeqCst, Ordering::Relaxed);
                    if skip.is_err() {
                        continue;
                    }
                }
                (0, _) => return Taken::Empty,
                (lead, _) if lead < 0 => return Taken::Empty,
                // A receiver before us died between freeing the slot and moving the head.
                _ => {}
            }
            self.word(HEAD_AT).store(head.wrapping_add(1), Ordering::Release);
            if let Some(received) = received {
                return Taken::Message(received);
            }
        }
        Taken::Empty
    }

    fn read(&self, slot: u64, to: EndpointId) -> Option<Received> {
        let length = self.word(slot + LENGTH_AT).load(Ordering::Relaxed) as usize;
        if self.word(slot + TO_AT).load(Ordering::Relaxed) != to.0 || length > MESSAGE_BYTES_MAX {
            return None;
        }
        let mut bytes = [0; MESSAGE_BYTES_MAX];
        self.control.read(self.base + slot + MESSAGE_AT, &mut bytes[..length]);
        Some(Received {
            from: EndpointId(self.word(slot + FROM_AT).load(Ordering::Relaxed)),
            message: Message::try_from(&bytes[..length]).expect("length was checked"),
        })
    }
}

#[cfg(test)]
mod tests;
