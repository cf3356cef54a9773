//! UPDATE of a value where it stands, under a lock in its item: SMART's own leaves, for measurements.
//!
//! On the path: UPDATEs of a client that was told so ([`Smart::update_in_place`]), of values of one word.
//!  1. Swap the lock in.
//!  2. WRITE the value, and behind it the lock.
//!
//! A value of one word is written whole or not at all, so whoever dies in between leaves one that somebody has stored, and
//! readers need no checksum; any other value is replaced with its item. The lock stands where an item says when it expires, so
//! items of such a tree do not. Changes that depend on what they replace are not for such a tree either: they compare the pointer
//! to the item, which stays the same.
//!
//! # Why that is linearizable
//! The item may have been replaced, or removed, after it was found: then the UPDATE comes directly before that. It was called
//! before, as it has seen the item linked; and whoever has read its value from the item was, too.

use farside_fabric::{Batch, OpContext, RemoteAddr};
use farside_pool::Pin;

use super::Smart;
use super::descend::Slot;
use crate::error::IndexError;
use crate::item::{HEADER_BYTES, Item};
use crate::tree::{LOOK_ATTEMPTS, LockWord, swap_if_free};

/// Where the lock is in an item.
const LOCK_AT: u64 = 8;
const WORD_BYTES: usize = 8;

/// A lock that this client holds, or may hold: a swap for it was posted. Given back by a task when dropped.
struct Held<'s> {
    smart: &'s Smart,
    at: RemoteAddr,
    mine: LockWord,
    /// The item stays what it is as long as the guard is there; `None` when the lock was given back.
    pin: Option<Pin>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let Some(pin) = self.pin.take() else { return };
        let (pool, at, mine) = (self.smart.blocks.pool.clone(), self.at, self.mine);
        pool.endpoint().clone().spawn(async move {
            // Whatever was posted before has taken effect by now.
            let mut cx = OpContext::new(pool.endpoint().clone());
            if let Err(error) = cx.compare_swap(at, mine.0, 0).await {
                tracing::debug!("cannot give back the lock of the item at {at}: {error}");
                pool.abandon();
            }
            drop(pin);
        });
    }
}

impl Smart {
    /// From here on this client writes values of one word where they stand. All clients of the tree have to, no item may have a
    /// time at which it expires, and no change may depend on what it replaces.
    pub fn update_in_place(&self) {
        self.shared.is_in_place.set(true);
    }

    /// Whether the value of an item can be written over that of `old_bytes` which its key has.
    pub(super) fn fits_in_place(&self, item: &Item<'_>, old_bytes: u64) -> bool {
        let is_word = item.value.len() == WORD_BYTES && item.key.len().is_multiple_of(WORD_BYTES);
        self.shared.is_in_place.get() && is_word && item.bytes() == old_bytes
    }

    /// Writes a value over that of the item in a slot.
    pub(super) async fn write_in_place(
        &self,
        cx: &mut OpContext,
        slot: &Slot,
        item: Item<'_>,
        pin: &Pin,
    ) -> Result<(), IndexError> {
        let block = slot.word.block();
        let held = self.lock_item(cx, block.plus(LOCK_AT), pin).await?;
        let value = item.value.first_chunk().expect("a value of one word");
        let mut batch = Batch::new();
        let value_at = block.plus((HEADER_BYTES + item.key.len()) as u64);
        batch.write_word(value_at, u64::from_le_bytes(*value));
        batch.write_word(held.at, 0);
        cx.post(&mut batch).await?;
        held.end();
        Ok(())
    }

    /// Swaps the lock of an item in until it was free, or its holder has gone.
    async fn lock_item(&self, cx: &mut OpContext, at: RemoteAddr, pin: &Pin) -> Result<Held<'_>, IndexError> {
        let pool = &self.blocks.pool;
        let ticket = self.shared.tickets.get() + 1;
        self.shared.tickets.set(ticket);
        let held = Held {
            smart: self,
            at,
            mine: LockWord::held_by(pool.owner(), ticket),
            pin: Some(pin.clone()),
        };
        let mut attempt = 0;
        // Ends: the holder gives the lock back, or goes; the deadline is met by a verb.
        loop {
            let seen = LockWord(swap_if_free(cx, at, held.mine).await?);
            self.shared.backoff.note(seen.owner().is_some());
            let Some(owner) = seen.owner() else {
                return Ok(held);
            };
            // There is nothing to settle: the value is the old one or the new one.
            if attempt % LOOK_ATTEMPTS == LOOK_ATTEMPTS - 1
                && pool.is_gone(cx, owner).await?
                && cx.compare_swap(at, seen.0, held.mine.0).await? == seen.0
            {
                return Ok(held);
            }
            pool.check_reachable()?;
            cx.count_retry();
            self.shared.backoff.wait(cx.endpoint(), attempt).await;
            attempt += 1;
        }
    }
}

impl Held<'_> {
    /// Notes that the lock was given back.
    fn end(mut self) {
        self.pin = None;
    }
}
