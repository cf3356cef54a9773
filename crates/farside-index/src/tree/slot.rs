//! Entries whose values are data pointers: who may change which word, and when.
//!
//! On the path: in a tree of pointers ([`Shape::of_pointers`]) an UPDATE takes no lock. It reads the pointer as a SEARCH does, and
//! lets a synchronisation scheme replace it; so updates of a key go as fast as the scheme lets them, whatever is under way
//! in the leaf. INSERT and DELETE lock the leaf as ever, or claim its entries one by one: see `claim`.
//!
//! # Who writes the pointer of an entry
//! - A taken entry: whoever compares its identity, or all of it. Whoever holds the lock compares as well.
//! - One that is *frozen*: the holder of the lock alone. So what a split, a merge or a hop copies is what it was. Frozen entries
//!   are read as ever: as long as a reader finds one nobody has changed its key elsewhere, since the new place is shown
//!   to nobody before the old one is taken back, but as a frozen copy (a merge).
//! - A vacant entry: the holder of the lock alone, or of the claim. A pointer that is left there says nothing.
//!
//! A taken entry without a pointer has a key that is being deleted, which is no more.
//!
//! The identity counts who the entry has belonged to. It is even, and grows by two with each key that comes and each node write;
//! it is odd, one more, while the entry is frozen, its key is being deleted, or it leads to a layer or a descriptor. Whoever has seen an entry
//! before that fails. The check of an entry covers its key and all but the last bit of the identity: an UPDATE leaves it
//! right, and a pointer that was read beside the key of another time does not fit. All sixteen bits of it count, as
//! the home says what fingerprints say elsewhere. An entry that has used them up rests for some epochs, so that no operation
//! sees one identity twice; node writes alone would have to come thirty thousand times within one operation.
//!
//! # Lock entries
//! Schemes with locks have one for each entry, behind the leaf ([`Shape::with_locks`]). It stays where it is when the key of its entry
//! hops, or goes: a lock decides who tries, and who writes for whom only among those who have seen one identity. Whoever
//! queues up for a key that is no more there finds that out by the swap, and looks for it again. A leaf that goes takes its
//! lock entries along, and who is in a queue has pinned.
//!
//! # A death
//! A node write renews the identities, and the checks with them. Who dies within one may leave the check of after beside the
//! pointer of before, which is frozen and was that of the same key: it still belongs to it (`is_renewed`).
//!
//! Whoever settles a leaf freezes it before it writes anything, as a split does. A hint is lost when its pointer was frozen by
//! somebody else: the next READ of that item asks for more than it needs.
//!
//! # Transactions
//! While one changes a key, the entry leads to a descriptor, by a pointer with an odd identity that is not frozen
//! ([`crate::descriptor`]). Whoever freezes entries, or deletes a key, settles it first.

use core::mem;

use arrayvec::ArrayVec;
use farside_fabric::batch::BATCH_VERBS_MAX;
use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, OpContext, RemoteAddr};
use farside_pool::Pin;
use farside_sync::{Pointer, SizeHint};

use super::Tree;
use super::layout::{Key, LAYERS_AT, Shape};
use super::leaf::{set_word, word};
use super::lock::Kind;
use crate::descriptor::{Marking, settle};
use crate::error::IndexError;

/// From this identity on an entry that goes leaves a slot that rests.
const IDENTITY_REST: u16 = u16::MAX - 1024;

/// An entry that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot {
    /// Where its pointer is.
    pub(crate) at: RemoteAddr,
    /// What it is.
    pub(crate) pointer: Pointer,
    /// The lock entry of that pointer; [`RemoteAddr::NULL`] if there are none.
    pub(crate) lock: RemoteAddr,
    leaf: RemoteAddr,
}

impl Slot {
    /// The leaf that it is in.
    pub(super) fn leaf(self) -> RemoteAddr {
        self.leaf
    }
}

/// A pointer for a slot that has held another word.
pub(super) fn succeeding(pointer: Pointer, before: Pointer) -> Pointer {
    let identity = if before.is_resting() {
        2
    } else {
        before.identity().wrapping_add(2) & !1
    };
    pointer.with_identity(identity)
}

/// A pointer that takes the place of another one under the same key, so that whoever has seen that one fails.
pub(crate) fn in_place_of(pointer: Pointer, before: Pointer) -> Pointer {
    pointer.with_identity(before.identity() | 1)
}

pub(super) fn frozen(pointer: Pointer) -> Pointer {
    in_place_of(pointer, pointer).with_hint(SizeHint::Frozen)
}

/// A frozen pointer as it was before, but for its hint, which nobody knows any more.
pub(super) fn thawed(pointer: Pointer) -> Pointer {
    pointer
        .with_identity(pointer.identity() & !1)
        .with_hint(SizeHint::Large)
}

/// What the check of an entry covers of its pointer.
pub(super) fn checked(pointer: Pointer) -> u64 {
    u64::from(pointer.identity() >> 1)
}

/// Whether a vacant slot has to rest, or does.
fn is_tired(pointer: Pointer) -> bool {
    pointer.is_resting() || pointer.identity() >= IDENTITY_REST
}

/// What a slot holds when its entry goes.
pub(super) fn emptied(pointer: Pointer, epoch: u64) -> Pointer {
    match pointer.identity() {
        _ if is_planted("tree: an entry that forgets whose it was") => Pointer::NULL,
        0..IDENTITY_REST => in_place_of(Pointer::NULL, pointer),
        _ => Pointer::resting(epoch),
    }
}

/// The pointer to a layer; see [`crate::ordered`]. It is never replaced, so it need not be frozen.
pub(crate) fn is_layer(pointer: Pointer) -> bool {
    pointer.hint() == SizeHint::Bucket
}

impl Shape {
    pub(super) fn pointer(self, image: &[u8], entry: usize) -> Pointer {
        Pointer::from_word(self.value(image, entry))
    }

    /// Takes the key out of an entry of an image. Its pointer stays, frozen: who reads it beside what was known of the entry
    /// before must neither take the key for deleted nor replace it here.
    pub(super) fn vacate(self, image: &mut [u8], entry: usize) {
        let vacated = self.vacated(image, entry);
        self.set_meta(image, entry, vacated);
        if self.has_pointers() {
            self.hide(image, entry);
        }
    }

    /// Shows the pointer of an entry of an image as frozen.
    pub(super) fn hide(self, image: &mut [u8], entry: usize) {
        let pointer = self.pointer(image, entry);
        if !pointer.is_null() && !is_layer(pointer) {
            let frozen = pointer.with_hint(SizeHint::Frozen);
            set_word(image, self.value_at(entry), frozen.to_word());
        }
    }

    /// Whether an entry has the check of before a node write beside the pointer of after, or the other way round: who wrote it
    /// has died in between.
    pub(super) fn is_renewed(self, image: &[u8], entry: usize) -> bool {
        let pointer = self.pointer(image, entry);
        let renewed = |step: u16| pointer.with_identity(pointer.identity().wrapping_add(step));
        let fits = |pointer: Pointer| self.fits(image, entry, pointer.to_word());
        self.has_pointers() && [2, 2_u16.wrapping_neg()].map(renewed).into_iter().any(fits)
    }

    /// Whether a vacant entry may get a pointer, for a client that has seen this epoch of the pool.
    pub(super) fn has_rested(self, image: &[u8], entry: usize, epoch: u64) -> bool {
        let pointer = self.pointer(image, entry);
        !self.has_pointers() || (pointer.is_resting() && pointer.is_vacant(epoch)) || !is_tired(pointer)
    }

    /// Vacates what a client has left that died: the place that a hop has come from, and entries whose keys were deleted.
    /// Returns the entries.
    pub(super) fn drop_left(self, image: &mut [u8]) -> Vec<usize> {
        let mut dropped = Vec::new();
        for entry in 0..self.span() {
            let Some(key) = self.taken(image, entry) else { continue };
            let pointer = self.pointer(image, entry);
            let is_elsewhere = |other: usize| {
                other != entry && self.taken(image, other) == Some(key) && !self.pointer(image, other).is_frozen()
            };
            let is_left = pointer.is_frozen() && self.circle().neighbours(self.home(key)).any(is_elsewhere);
            if pointer.is_null() || is_left {
                self.vacate(image, entry);
                dropped.push(entry);
            }
        }
        dropped
    }
}

impl Tree {
    /// The slot of a key.
    pub(crate) async fn find_slot(&self, cx: &mut OpContext, key: Key, pin: &Pin) -> Result<Option<Slot>, IndexError> {
        let found = self.seek(cx, key, pin).await?;
        Ok(found.map(|(leaf, at, value)| self.slot(leaf, at, value)))
    }

    /// The slot in a leaf where a value was found.
    pub(super) fn slot(&self, leaf: RemoteAddr, at: RemoteAddr, value: u64) -> Slot {
        Slot {
            at,
            pointer: Pointer::from_word(value),
            lock: match self.shape().lock_of(at.offset() - leaf.offset()) {
                Some(within) => leaf.plus(within),
                None => RemoteAddr::NULL,
            },
            leaf,
        }
    }

    /// A number for a layer that nobody ever had, from 1 on.
    pub(crate) async fn take_layer(&self, cx: &mut OpContext) -> Result<u64, IndexError> {
        Ok(cx.fetch_add(self.shared.area.plus(LAYERS_AT), 1).await? + 1)
    }

    /// Makes those of some vacant entries rest that have to; returns whether any did not rest before, or has not rested yet.
    /// The lock of the leaf is held, whose image is in the buffer.
    pub(super) async fn must_rest(
        &self,
        cx: &mut OpContext,
        leaf: RemoteAddr,
        entries: &[usize],
    ) -> Result<bool, IndexError> {
        let (shape, epoch) = (self.shape(), self.pool().epoch());
        if entries.iter().all(|&entry| shape.has_rested(cx.buffer(), entry, epoch)) {
            return Ok(false);
        }
        for &entry in entries {
            let pointer = shape.pointer(cx.buffer(), entry);
            if is_tired(pointer) && !pointer.is_resting() {
                let resting = Pointer::resting(epoch);
                cx.write_word(leaf.plus(shape.value_at(entry)), resting.to_word())
                    .await?;
            }
        }
        Ok(true)
    }

    /// Waits until an entry that was found frozen may be something else by now.
    pub(crate) async fn await_thaw(
        &self,
        cx: &mut OpContext,
        slot: Slot,
        round: u32,
        pin: &Pin,
    ) -> Result<(), IndexError> {
        const LOOK_ROUNDS: u32 = 8;
        if round % LOOK_ROUNDS == LOOK_ROUNDS - 1 {
            self.help(cx, slot.leaf, Kind::Leaf, pin).await?;
        }
        cx.count_retry();
        self.shared.backoff.wait(cx.endpoint(), round).await;
        Ok(())
    }

    /// Freezes entries of a leaf whose lock is held and whose image stands at `at` in the buffer. There they are as they will
    /// be when they thaw.
    pub(super) async fn freeze(
        &self,
        cx: &mut OpContext,
        leaf: RemoteAddr,
        at: u32,
        entries: impl IntoIterator<Item = usize>,
    ) -> Result<(), IndexError> {
        let shape = self.shape();
        if !shape.has_pointers() || is_planted("tree: entries moved without being frozen") {
            return Ok(());
        }
        let own = |entry| u64::from(at) + shape.value_at(entry);
        let mut left: Vec<(usize, Pointer)> = entries
            .into_iter()
            .map(|entry| (entry, Pointer::from_word(word(cx.buffer(), own(entry)))))
            .collect();
        // Ends: each round freezes an entry, or another client has replaced its pointer.
        loop {
            let mut settled = Vec::new();
            left.retain(|&(entry, pointer)| {
                // Frozen by somebody who has died, or it needs not be.
                let thawed = match pointer.is_frozen() {
                    true => succeeding(thawed(pointer), pointer),
                    false => pointer,
                };
                let is_settled = pointer.is_frozen() || pointer.is_null() || is_layer(pointer);
                if is_settled {
                    settled.push((entry, thawed));
                }
                !is_settled
            });
            for (entry, thawed) in settled {
                set_word(cx.buffer_mut(), own(entry), thawed.to_word());
            }
            if left.is_empty() {
                return Ok(());
            }
            for (entry, pointer) in &mut left {
                *pointer = self.settle_entry(cx, leaf, (*entry, *pointer)).await?;
            }
            for some in mem::take(&mut left).chunks(BATCH_VERBS_MAX) {
                let mut batch = Batch::new();
                let swaps: ArrayVec<_, BATCH_VERBS_MAX> = some
                    .iter()
                    .map(|&(entry, pointer)| {
                        let target = leaf.plus(shape.value_at(entry));
                        batch.compare_swap(target, pointer.to_word(), frozen(pointer).to_word())
                    })
                    .collect();
                cx.post(&mut batch).await?;
                for (&(entry, pointer), swap) in some.iter().zip(swaps) {
                    let seen = Pointer::from_word(batch.result(swap));
                    if seen == pointer {
                        let thawed = succeeding(pointer, pointer);
                        set_word(cx.buffer_mut(), own(entry), thawed.to_word());
                    } else {
                        left.push((entry, seen));
                    }
                }
            }
        }
    }

    /// Settles an entry if it is marked; see [`settle`]. Returns what it is then.
    pub(super) async fn settle_entry(
        &self,
        cx: &mut OpContext,
        leaf: RemoteAddr,
        (entry, pointer): (usize, Pointer),
    ) -> Result<Pointer, IndexError> {
        if !self.shape().has_pointers() || !Marking::Parity.is_marked(pointer) {
            return Ok(pointer);
        }
        let target = leaf.plus(self.shape().value_at(entry));
        Box::pin(settle(cx, (self.pool(), Marking::Parity), (target, pointer), 0)).await
    }

    /// Freezes every taken entry of a leaf, as [`Tree::freeze`]. A leaf that is closed has been frozen.
    pub(super) async fn freeze_all(&self, cx: &mut OpContext, leaf: RemoteAddr, at: u32) -> Result<(), IndexError> {
        if self.shape().has_claims() {
            return Ok(());
        }
        let image = &cx.buffer()[at as usize..];
        let entries: Vec<usize> = self.shape().entries(image).map(|(entry, _)| entry).collect();
        self.freeze(cx, leaf, at, entries).await
    }
}

#[cfg(test)]
mod tests {
    use super::super::leaf;
    use super::*;
    use farside_fabric::NodeId;
    use farside_sync::LOCK_BYTES;
    use proptest::prelude::*;

    const SHAPE: Shape = Shape::hopscotch(8, 4).of_pointers();

    /// Each data pointer has a lock entry of its own, behind the leaf that is read and written as a whole.
    #[test]
    fn lock_entries_are_told_by_where_the_pointer_is() {
        for shape in [
            SHAPE,
            Shape::unsorted(5).of_pointers(),
            crate::chime::LEAF.of_pointers(),
        ] {
            assert_eq!(shape.lock_of(shape.value_at(1)), None);
            let shape = shape.with_locks();
            let locks: Vec<u64> = (0..shape.span())
                .filter_map(|entry| shape.lock_of(shape.value_at(entry)))
                .collect();
            assert_eq!(locks.len(), shape.span());
            assert!(locks[0] >= shape.leaf_bytes() && locks[0].is_multiple_of(LOCK_BYTES));
            assert!(locks.windows(2).all(|two| two[0] + LOCK_BYTES == two[1]));
            assert_eq!(
                locks.last().map(|last| last + LOCK_BYTES),
                Some(shape.leaf_block_bytes())
            );
        }
    }

    fn pointer(number: u64) -> Pointer {
        Pointer::new(RemoteAddr::new(NodeId::new(0), number * 32), SizeHint::Line, 0)
    }

    /// A key that hops is frozen where it was, may have been replaced where it is, and its holder may have died in between.
    #[test]
    fn of_a_key_that_is_there_twice_the_one_that_is_not_frozen_stays() {
        let key = 77;
        let mut image = vec![0; SHAPE.leaf_bytes() as usize];
        SHAPE.clear(&mut image, SHAPE.all(), leaf::sibling(RemoteAddr::NULL, 3));
        let places: Vec<usize> = SHAPE.circle().neighbours(SHAPE.home(key)).collect();
        SHAPE.put(&mut image, places[0], key, pointer(5).to_word());
        SHAPE.hide(&mut image, places[0]);
        SHAPE.put(&mut image, places[2], key, pointer(6).to_word());
        assert_eq!(SHAPE.drop_left(&mut image), [places[0]]);
        SHAPE.mend(&mut image, SHAPE.all(), leaf::sibling(RemoteAddr::NULL, 3));
        assert_eq!(SHAPE.find(&image, key), Some(places[2]));
        assert_eq!(SHAPE.pointer(&image, places[2]).block(), pointer(6).block());
    }

    proptest! {
        /// Whoever has seen an entry does not see its identity again, and its check fits as long as it should.
        #[test]
        fn identities_grow(steps in proptest::collection::vec(0_u8..4, 1..400)) {
            let (mut seen, mut word) = (std::collections::BTreeSet::new(), Pointer::NULL);
            for step in steps {
                let before = word;
                word = match step {
                    _ if word.is_null() => succeeding(pointer(9), word),
                    0 => emptied(word, 7),
                    1 => frozen(word),
                    2 => in_place_of(pointer(10), word),
                    _ => succeeding(word, word),
                };
                let is_same = !before.is_null() && step < 3;
                prop_assert_eq!(checked(word) == checked(before), is_same);
                if is_same {
                    // What is odd is changed no more by whoever compares.
                    prop_assert!(word.identity() % 2 == 1);
                    word = succeeding(pointer(9), word);
                }
                prop_assert!(word.identity() % 2 == 0 && seen.insert(word.identity()));
            }
        }
    }
}
