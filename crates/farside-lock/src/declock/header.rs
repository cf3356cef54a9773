//! The header of a CQL lock: the atomic half of its queue (DecLock, section 4.1, figure 5).
//!
//! Everybody changes it by fetch-and-add alone, so no field can be kept from overflowing, and fields
//! stand in such an order that none matters: the head may wrap, the others stay below their limit, and
//! a carry out of them would leave the reset ID below as it is.
//!
//! A release subtracts from two fields and adds to a third with one addition: the borrows that the
//! subtractions take out of the field above are part of what is added, so each field comes out right
//! as long as there was something to subtract.

use farside_fabric::{OpContext, RemoteAddr, Verb};

use crate::Mode;

/// The most entries that a queue may have.
pub const CAPACITY_MAX: u64 = 1 << 10;
/// By how much a reset moves the head: past every index that was handed out before, and by whole rounds
/// of any queue.
const RESET_STRIDE: u64 = 1 << 11;

crate::bit_fields! {
    /// The header; all zeros are a free lock.
    pub struct Header {
        /// Who resets the lock, or 0; see [`Member`](super::roster::Member).
        reset_id, with_reset_id: 0..16;
        /// How many in the queue want to write, holders included (`wcnt` in the paper).
        writers, with_writers: 16..27;
        /// How many are in the queue, holders included (`qsize`).
        size, with_size: 27..38;
        /// The index of the first in the queue (`qhead`).
        head, with_head: 38..64;
    }
}

/// A place in the queue, counted from when the lock was first used; wraps with the head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Index(pub u64);

impl Index {
    const BITS: u32 = 26;

    /// So many places further back.
    #[must_use]
    pub const fn plus(self, places: u64) -> Self {
        Self((self.0 + places) & crate::word::low_bits(Self::BITS))
    }

    /// Its entry in a queue of this capacity, a power of two.
    #[must_use]
    pub const fn slot(self, capacity: u64) -> u64 {
        self.0 & (capacity - 1)
    }

    /// How often the queue had been gone through before, as far as an entry can tell: the version of
    /// the entry (section 4.3).
    #[must_use]
    pub const fn version(self, capacity: u64) -> u16 {
        (self.0 >> capacity.trailing_zeros()) as u16
    }
}

impl Header {
    /// A free lock that was never used.
    pub const FREE: Self = Self(0);

    /// A free lock before the last round but one that the head can count: entries of the last have the version that none
    /// may have, so it is reset before the head wraps.
    pub(crate) const fn worn(capacity: u64) -> Self {
        Self::FREE.with_head((1 << Index::BITS) - capacity - 3)
    }

    const fn member(mode: Mode) -> Self {
        let writers = match mode {
            Mode::Exclusive => 1,
            Mode::Shared => 0,
        };
        Self::FREE.with_size(1).with_writers(writers)
    }

    /// What a fetch-and-add adds to join the queue (figure 7, line 1).
    #[inline]
    #[must_use]
    pub const fn joining(mode: Mode) -> u64 {
        Self::member(mode).0
    }

    /// What a fetch-and-add adds to leave it (figure 7, line 6).
    #[inline]
    #[must_use]
    pub const fn leaving(mode: Mode) -> u64 {
        Self::FREE.with_head(1).0.wrapping_sub(Self::member(mode).0)
    }

    /// The word after somebody has joined.
    #[must_use]
    pub const fn after_joining(self, mode: Mode) -> Self {
        Self(self.0.wrapping_add(Self::joining(mode)))
    }

    /// The word after somebody has left.
    #[must_use]
    pub const fn after_leaving(self, mode: Mode) -> Self {
        Self(self.0.wrapping_add(Self::leaving(mode)))
    }

    /// The header of a lock over mapped memory, read in a plain call.
    pub(super) fn now(cx: &mut OpContext, entry: RemoteAddr) -> Option<Self> {
        let word = cx.execute_now(&Verb::ReadWord { source: entry })?;
        word.ok().map(|word| Self(word as u64))
    }

    /// Whether the lock is being reset: nobody joins or leaves then.
    #[inline]
    #[must_use]
    pub const fn is_resetting(self) -> bool {
        self.reset_id() != 0
    }

    /// Whether who found this header when it joined has the lock at once (figure 7, line 2).
    #[inline]
    #[must_use]
    pub const fn admits(self, mode: Mode) -> bool {
        match mode {
            Mode::Exclusive => self.size() == 0,
            Mode::Shared => self.writers() == 0,
        }
    }

    /// The place of who found this header when it joined.
    #[inline]
    #[must_use]
    pub const fn back(self) -> Index {
        Index(self.head()).plus(self.size())
    }

    /// Whether somebody has this place.
    #[must_use]
    pub const fn has(self, place: Index) -> bool {
        place.0.wrapping_sub(self.head()) & crate::word::low_bits(Index::BITS) < self.size()
    }

    /// A free lock whose places come after all of this header's; its queue has to be blank.
    #[must_use]
    pub const fn after_reset(self) -> Self {
        let head = Index(self.head()).plus(2 * RESET_STRIDE);
        Self::FREE.with_head(head.0 & !(RESET_STRIDE - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn modes() -> impl Strategy<Value = Mode> {
        prop_oneof![Just(Mode::Shared), Just(Mode::Exclusive)]
    }

    fn headers() -> impl Strategy<Value = Header> {
        (0_u64..1 << 26, 0_u64..(1 << 11) - 1, 0_u64..1 << 16).prop_flat_map(|(head, size, reset_id)| {
            (0..=size).prop_map(move |writers| {
                Header::FREE
                    .with_head(head)
                    .with_size(size)
                    .with_writers(writers)
                    .with_reset_id(reset_id)
            })
        })
    }

    proptest! {
        /// The definition field by field, borrows and all.
        #[test]
        fn leaving_moves_three_fields_at_once(header in headers(), mode in modes()) {
            let is_writer = mode == Mode::Exclusive;
            prop_assume!(header.size() > 0 && (!is_writer || header.writers() > 0));
            let after = header.after_leaving(mode);
            prop_assert_eq!(after.head(), (header.head() + 1) % (1 << 26));
            prop_assert_eq!(after.size(), header.size() - 1);
            prop_assert_eq!(after.writers(), header.writers() - u64::from(is_writer));
            prop_assert_eq!(after.reset_id(), header.reset_id());
        }

        #[test]
        fn joining_changes_size_and_writers(header in headers(), mode in modes()) {
            let is_writer = mode == Mode::Exclusive;
            let after = header.after_joining(mode);
            prop_assert_eq!((after.head(), after.reset_id()), (header.head(), header.reset_id()));
            prop_assert_eq!(after.size(), header.size() + 1);
            prop_assert_eq!(after.writers(), header.writers() + u64::from(is_writer));
            prop_assert!(!header.has(header.back()) && after.has(header.back()));
            prop_assert_eq!(after.after_leaving(mode).head(), header.back().plus(1 + (1 << 26) - header.size()).0);
        }

        #[test]
        fn whatever_overflows_leaves_the_reset_id(word: u64, mode in modes()) {
            let header = Header(word);
            prop_assert_eq!(header.after_joining(mode).reset_id(), header.reset_id());
            prop_assert_eq!(header.after_leaving(mode).reset_id(), header.reset_id());
        }

        #[test]
        fn places_after_a_reset_come_after_all_before(header in headers(), joiners in 0_u64..(1 << 11), rounds in 0_u32..=10) {
            let after = header.after_reset();
            prop_assert_eq!((after.size(), after.writers(), after.reset_id()), (0, 0, 0));
            let capacity = 1 << rounds;
            prop_assert_eq!(after.back().slot(capacity), 0);
            // Nobody before the reset has a place that somebody has after it.
            let place = Index(header.head()).plus(joiners);
            let distance = (after.head() + (1 << 26) - place.0) % (1 << 26);
            prop_assert!((1..=2 * RESET_STRIDE).contains(&distance));
        }

        #[test]
        fn places_of_one_round_have_different_entries(head in 0_u64..1 << 26, at in 0_u64..16, apart in 1_u64..16) {
            let [at, other] = [at, (at + apart) % 16].map(|places| Index(head).plus(places));
            prop_assert_ne!(at.slot(16), other.slot(16));
            prop_assert_eq!(at.plus(16).slot(16), at.slot(16));
            prop_assert_eq!(at.plus(16).version(16), at.version(16).wrapping_add(1));
        }
    }

    #[test]
    fn zeros_are_free() {
        assert!(Header(0).admits(Mode::Exclusive) && Header(0).admits(Mode::Shared));
        assert!(!Header(0).is_resetting());
    }
}
