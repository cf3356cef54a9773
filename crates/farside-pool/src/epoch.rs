//! When a block that nobody links any more may be used again.
//!
//! On the path: each operation pins the current epoch for as long as it may hold an address that it
//! read from far memory. A block that a writer unlinked waits until every operation that was
//! running then, on any client, has ended.
//!
//! # The problem
//! A reader that has read a slot, and not yet the block, is invisible to the writer that replaces
//! the slot. Announcing each read would cost a far write. Instead operations pin an *epoch*, a
//! number that the clients advance together, in local memory; one word per client in far memory
//! says how far all its operations have come.
//!
//! # The protocol
//! `global` is one word of the superblock. A client keeps `local`, the value it last read.
//!  1. An operation pins `local`.
//!  2. Every tick the client reads `global` into `local`, then publishes the smallest pinned epoch,
//!     or `local` if nothing is pinned.
//!  3. Anybody may advance `global` from g to g + 1 when every live client has published g or more.
//!  4. A block unlinked while `local` was L is tagged L, and reclaimed once `local` is L + 3.
//!
//! # Why L + 3 is enough
//! While a client has published p, `global` is at most p + 1, so when the block was unlinked `global`
//! was L or L + 1. To reach L + 3, `global` passed L + 2, which every live client must have published
//! first: all operations running then had started after `global` reached L + 2, that is after the
//! block was unlinked, so none of them can have found its address.
//!
//! Invariant: `oldest pinned <= local <= oldest pinned + 1`.

use std::cell::Cell;
use std::rc::Rc;

use farside_fabric::grace::{Hold, Holder};
use farside_fabric::mutant::is_planted;

/// How many epochs after its tag a block may be used again.
pub const GRACE_EPOCHS: u64 = 3;

/// Pinned epochs never span more values than this (see the invariant above).
const RING: usize = 4;

/// The epochs pinned by the operations of one client.
#[derive(Default, Debug)]
pub struct Epochs {
    local: Cell<u64>,
    pinned: [Cell<u32>; RING],
    holder: Holder,
}

/// An operation is running: blocks that it may have found stay untouched until this is dropped.
#[derive(Debug)]
pub struct Pin {
    epochs: Rc<Epochs>,
    slot: usize,
    hold: Hold,
}

impl Epochs {
    /// The epochs of a client, whose pins tests may know.
    #[must_use]
    pub fn of(holder: Holder) -> Self {
        Self {
            holder,
            ..Self::default()
        }
    }

    /// Pins the current epoch.
    #[inline]
    #[must_use]
    pub fn pin(self: &Rc<Self>) -> Pin {
        let slot = self.local.get() as usize % RING;
        self.pinned[slot].set(self.pinned[slot].get() + 1);
        Pin {
            epochs: Rc::clone(self),
            slot,
            hold: self.holder.hold(),
        }
    }

    /// The value of the global epoch that this client read last: the tag of blocks unlinked now.
    #[inline]
    #[must_use]
    pub fn local(&self) -> u64 {
        self.local.get()
    }

    /// Takes over the value of the global epoch.
    ///
    /// # Panics
    /// If that would break the invariant: the others advanced without this client.
    pub fn observe(&self, global: u64) {
        assert!(global >= self.local.get(), "the global epoch never goes back");
        assert!(global <= self.oldest() + 1, "the global epoch waits for this client");
        self.local.set(global);
    }

    /// Starts at the value of the global epoch, before the first pin.
    pub fn start(&self, global: u64) {
        self.local.set(global);
    }

    /// Whether no operation is running.
    #[must_use]
    pub fn is_unpinned(&self) -> bool {
        self.pinned.iter().all(|pinned| pinned.get() == 0)
    }

    /// How many operations are running.
    #[must_use]
    pub(crate) fn running(&self) -> usize {
        self.pinned.iter().map(|pinned| pinned.get() as usize).sum()
    }

    /// The smallest pinned epoch, or the local one if nothing is pinned: what is published.
    #[must_use]
    pub fn oldest(&self) -> u64 {
        let local = self.local.get();
        if is_planted("pool: pins not published") {
            return local;
        }
        if local > 0 && self.pinned[(local - 1) as usize % RING].get() > 0 {
            local - 1
        } else {
            local
        }
    }
}

impl Clone for Pin {
    /// Another operation that may hold the same addresses: pins the same epoch, which may be the one before the current.
    fn clone(&self) -> Self {
        let pinned = &self.epochs.pinned[self.slot];
        pinned.set(pinned.get() + 1);
        Self {
            epochs: Rc::clone(&self.epochs),
            slot: self.slot,
            hold: self.hold.clone(),
        }
    }
}

impl Drop for Pin {
    #[inline]
    fn drop(&mut self) {
        let pinned = &self.epochs.pinned[self.slot];
        pinned.set(pinned.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_pin_holds_the_published_epoch_back() {
        let epochs = Rc::new(Epochs::default());
        epochs.start(5);
        let first = epochs.pin();
        epochs.observe(6);
        let second = epochs.pin();
        assert_eq!(epochs.oldest(), 5);
        drop(first);
        assert_eq!(epochs.oldest(), 6);
        epochs.observe(7);
        assert_eq!(epochs.oldest(), 6);
        drop(second);
        assert_eq!(epochs.oldest(), 7);
    }

    #[test]
    #[should_panic(expected = "waits for this client")]
    fn epoch_cannot_run_away_from_a_pin() {
        let epochs = Rc::new(Epochs::default());
        epochs.start(5);
        let _pin = epochs.pin();
        epochs.observe(6);
        epochs.observe(7);
    }
}
