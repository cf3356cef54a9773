//! The entry of a ShiftLock, and every change of it as the operands of one 16-byte atomic.
//!
//! On the path: the writer's and the reader's side post what this module says, at the entry's address.
//!
//! ```text
//! bit 0                48          60   64                112       127 128
//!     | tail: endpoint | tail: seat |    | release count   | readers | epoch |
//! ```
//!
//! Differs from the paper's Figure 3: a tail of 60 bits instead of 40, since an endpoint is never named
//! again and several clients share one; 15 bits of readers instead of 23; 48 bits of releases instead of 64.
//! At a million releases per second 47 bits last four years, and what counts is only how far two
//! counts that a client saw within a few leases are apart.
//!
//! Invariants:
//! - the release count grows by one with each release, and with a reset by [`LEAP`]: its lower 47 bits never
//!   go back, its top bit says whether the number of resets is odd;
//! - while a writer is at the head of the queue and no reader is left the release count stands still, once the counts of those
//!   that handed over before it have arrived. So what a writer changes when it leaves is fenced: its atomic compares the
//!   count that it was granted the lock at, and has no effect once the lock was reset. A hand-over early in a lease needs no
//!   fence, as nobody can have reset the lock by then.

use farside_fabric::{MaskedAdd, MaskedCas};

use crate::letter::Place;
use crate::word::{TailWord, low_bits};

crate::bit_fields! {
    /// The second word of an entry.
    pub struct Counts {
        /// How often the lock was released (`RelCnt`).
        releases, with_releases: 0..48;
        /// Readers that hold the lock or wait for it (`RdrCnt`).
        readers, with_readers: 48..63;
        /// Flipped when the lock passes from writers to readers (`Epoch`).
        epoch, with_epoch: 63..64;
    }
}

/// What a reset adds to the release count: what no number of releases adds within a few leases (ShiftLock,
/// section 3.6), and some more, so that the count after two resets is another one than before, or than one that counts on
/// their way would make it.
pub const LEAP: u64 = (1 << 47) + 2 * LAG_MAX;
/// By how much an entry may be behind the count that a writer was granted the lock at: one for each writer whose add is
/// still on its way.
pub const LAG_MAX: u64 = 1 << 16;
/// How many readers may hold the lock or wait for it. The field holds as many again, of readers that are
/// about to be told so.
pub const READERS_MAX: u64 = 1 << 14;

impl Counts {
    /// The word as it is in far memory.
    #[must_use]
    pub const fn of_bits(bits: u64) -> Self {
        Self(bits)
    }
}

const RELEASES_MASK: u64 = low_bits(48);
const READERS_MASK: u64 = low_bits(15) << 48;
const EPOCH_MASK: u64 = 1 << 63;
/// The most significant bits of the fields, where carries stop.
const BOUNDARY: u128 = 1 << 59 | 1 << 63 | (1 << 47 | 1 << 62 | 1 << 63) << 64;

/// A release count, which wraps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Releases(u64);

impl Releases {
    /// The count of this word.
    ///
    /// # Panics
    /// If it has more than 48 bits.
    #[must_use]
    pub const fn new(count: u64) -> Self {
        assert!(count <= RELEASES_MASK, "a release count has 48 bits");
        Self(count)
    }

    /// The count as it travels; more than 48 bits are cut off.
    #[must_use]
    pub const fn of_bits(bits: u64) -> Self {
        Self(bits & RELEASES_MASK)
    }

    /// The count as a number.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The count after so many more releases.
    #[must_use]
    pub const fn plus(self, releases: u64) -> Self {
        Self::of_bits(self.0.wrapping_add(releases))
    }

    /// Whether one reset, or any odd number of them, lies between the two.
    #[must_use]
    pub const fn is_across_reset(self, other: Self) -> bool {
        (self.0 ^ other.0) >> 47 == 1
    }

    /// Whether counts on their way may still make this one that of `granted`, a writer's: it is not beyond it, and there was no
    /// reset.
    #[must_use]
    pub const fn may_become(self, granted: Self) -> bool {
        granted.0.wrapping_sub(self.0) & RELEASES_MASK <= LAG_MAX
    }

    /// Whether this count was read at or after `earlier`, with no reset in between.
    #[must_use]
    pub const fn follows(self, earlier: Self) -> bool {
        self.0.wrapping_sub(earlier.0) & RELEASES_MASK < 1 << 46
    }
}

/// An entry.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Entry {
    /// Who is last in the queue of writers.
    pub tail: TailWord,
    /// Readers, releases, epoch.
    pub counts: Counts,
}

impl Entry {
    /// The entry as it is in far memory.
    #[must_use]
    pub const fn of_bits(bits: u128) -> Self {
        Self {
            tail: TailWord::of_bits(bits as u64),
            counts: Counts((bits >> 64) as u64),
        }
    }

    /// The bits of the entry.
    #[must_use]
    pub const fn bits(self) -> u128 {
        (self.counts.0 as u128) << 64 | self.tail.bits() as u128
    }

    /// How often the lock was released.
    #[must_use]
    pub const fn releases(self) -> Releases {
        Releases(self.counts.releases())
    }

    /// One reader more (Algorithm 2, line 2).
    #[must_use]
    pub const fn enter_reader() -> MaskedAdd<u128> {
        MaskedAdd {
            add: 1 << (64 + 48),
            boundary: BOUNDARY,
        }
    }

    /// One reader less, and one release more (Algorithm 3, line 2).
    #[must_use]
    pub const fn leave_reader() -> MaskedAdd<u128> {
        MaskedAdd {
            add: ((READERS_MASK | 1) as u128) << 64,
            boundary: BOUNDARY,
        }
    }

    /// The same for a reader that may have been cut off: nothing happens if anything has changed since
    /// the counts were `self`'s.
    #[must_use]
    pub const fn leave_late_reader(self) -> MaskedCas<u128> {
        let after = Self {
            counts: self
                .counts
                .with_readers(self.counts.readers().wrapping_sub(1) & low_bits(15))
                .with_releases(self.releases().plus(1).0),
            ..self
        };
        MaskedCas {
            compare: self.bits(),
            compare_mask: (u64::MAX as u128) << 64,
            swap: after.bits(),
            swap_mask: (u64::MAX as u128) << 64,
        }
    }

    /// A writer queues up, whatever is there (Algorithm 2, line 7).
    #[must_use]
    pub const fn queue_up(mine: Place) -> MaskedCas<u128> {
        MaskedCas {
            compare: 0,
            compare_mask: 0,
            swap: TailWord::of(mine).bits() as u128,
            swap_mask: low_bits(60) as u128,
        }
    }

    /// The same, if there is neither a writer nor a reader.
    #[must_use]
    pub const fn take_free(mine: Place) -> MaskedCas<u128> {
        MaskedCas {
            compare_mask: (READERS_MASK as u128) << 64 | low_bits(60) as u128,
            ..Self::queue_up(mine)
        }
    }

    /// A writer leaves that has nobody behind it (Algorithm 3, line 6): compares tail and releases.
    #[must_use]
    pub const fn leave_writer(mine: Place, releases: Releases, epoch: u64) -> MaskedCas<u128> {
        let counts = Counts(0).with_releases(releases.plus(1).0).with_epoch(1 - epoch);
        MaskedCas {
            compare: (releases.0 as u128) << 64 | TailWord::of(mine).bits() as u128,
            compare_mask: (RELEASES_MASK as u128) << 64 | low_bits(60) as u128,
            swap: (counts.0 as u128) << 64,
            swap_mask: ((RELEASES_MASK | EPOCH_MASK) as u128) << 64 | low_bits(60) as u128,
        }
    }

    /// One release more, for the next writer (Algorithm 3, line 20).
    #[must_use]
    pub const fn count_hand_over() -> MaskedAdd<u128> {
        MaskedAdd {
            add: 1 << 64,
            boundary: BOUNDARY,
        }
    }

    /// The same by a writer whose lease is nearly over: if the lock was reset it must not do that to the lock of others.
    #[must_use]
    pub const fn hand_over(releases: Releases) -> MaskedCas<u128> {
        MaskedCas {
            compare: (releases.0 as u128) << 64,
            compare_mask: (RELEASES_MASK as u128) << 64,
            swap: (releases.plus(1).0 as u128) << 64,
            swap_mask: (RELEASES_MASK as u128) << 64,
        }
    }

    /// The same, and the lock is the readers' (Algorithm 3, line 16).
    #[must_use]
    pub const fn change_mode(releases: Releases, epoch: u64) -> MaskedCas<u128> {
        let counts = Counts(0).with_releases(releases.plus(1).0).with_epoch(1 - epoch);
        MaskedCas {
            compare: (releases.0 as u128) << 64,
            compare_mask: (RELEASES_MASK as u128) << 64,
            swap: (counts.0 as u128) << 64,
            swap_mask: ((RELEASES_MASK | EPOCH_MASK) as u128) << 64,
        }
    }

    /// The lock is taken from whoever has it or waits for it (section 3.6), if it has stood still since the
    /// count was `releases`.
    #[must_use]
    pub const fn reset(releases: Releases) -> MaskedCas<u128> {
        MaskedCas {
            compare: (releases.0 as u128) << 64,
            compare_mask: (RELEASES_MASK as u128) << 64,
            swap: (releases.plus(LEAP).0 as u128) << 64,
            // Bits beside the tail are another's.
            swap_mask: (u64::MAX as u128) << 64 | low_bits(60) as u128,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_fabric::EndpointId;
    use proptest::prelude::*;

    fn places() -> impl Strategy<Value = Place> {
        (1_u64..1 << 48, 0_u16..1 << 12).prop_map(|(endpoint, seat)| Place {
            endpoint: EndpointId(endpoint),
            seat,
        })
    }

    fn entries() -> impl Strategy<Value = Entry> {
        (proptest::option::of(places()), any::<u64>()).prop_map(|(tail, counts)| Entry {
            tail: tail.map_or(TailWord::NOBODY, TailWord::of),
            counts: Counts(counts),
        })
    }

    fn added(entry: Entry, add: MaskedAdd<u128>) -> Entry {
        Entry::of_bits(add.apply(entry.bits()))
    }

    fn swapped(entry: Entry, swap: MaskedCas<u128>) -> Option<Entry> {
        swap.apply(entry.bits()).map(Entry::of_bits)
    }

    proptest! {
        #[test]
        fn an_entry_survives_packing(entry in entries()) {
            prop_assert_eq!(Entry::of_bits(entry.bits()), entry);
        }

        #[test]
        fn a_reader_changes_its_fields_only(entry in entries()) {
            let inside = added(entry, Entry::enter_reader());
            let readers = (entry.counts.readers() + 1) & low_bits(15);
            prop_assert_eq!(inside, Entry { counts: entry.counts.with_readers(readers), ..entry });
            let outside = added(inside, Entry::leave_reader());
            let counts = entry.counts.with_releases(entry.releases().plus(1).bits());
            prop_assert_eq!(outside, Entry { counts, ..entry });
            prop_assert_eq!(swapped(inside, inside.leave_late_reader()), Some(outside));
        }

        #[test]
        fn a_late_reader_changes_nothing_after_a_reset(entry in entries(), others in 0_u64..1000) {
            let reset = swapped(entry, Entry::reset(entry.releases())).expect("nothing moved");
            let moved = Entry { counts: reset.counts.with_releases(reset.releases().plus(others).bits()), ..reset };
            prop_assert_eq!(swapped(moved, entry.leave_late_reader()), None);
        }

        #[test]
        fn queueing_changes_the_tail_only(entry in entries(), mine in places()) {
            let after = swapped(entry, Entry::queue_up(mine)).expect("it compares nothing");
            prop_assert_eq!(after, Entry { tail: TailWord::of(mine), ..entry });
            prop_assert_eq!(after.tail.place(), Some(mine));
        }

        #[test]
        fn the_last_writer_frees_the_lock_and_lets_readers_in(mut entry in entries(), mine in places()) {
            entry.tail = TailWord::of(mine);
            let (releases, epoch) = (entry.releases(), entry.counts.epoch());
            let after = swapped(entry, Entry::leave_writer(mine, releases, epoch)).expect("it is the tail");
            prop_assert_eq!(after.tail, TailWord::NOBODY);
            prop_assert_eq!(after.releases(), releases.plus(1));
            prop_assert_eq!(after.counts.epoch(), 1 - epoch);
            prop_assert_eq!(after.counts.readers(), entry.counts.readers());
        }

        #[test]
        fn somebody_else_is_the_tail_then_nothing_is_freed(mut entry in entries(), mine in places(), other in places()) {
            prop_assume!(mine != other);
            entry.tail = TailWord::of(other);
            let leave = Entry::leave_writer(mine, entry.releases(), entry.counts.epoch());
            prop_assert_eq!(swapped(entry, leave), None);
        }

        #[test]
        fn handing_over_counts_and_changing_mode_flips(entry in entries()) {
            let (releases, epoch) = (entry.releases(), entry.counts.epoch());
            let counted = entry.counts.with_releases(releases.plus(1).bits());
            prop_assert_eq!(swapped(entry, Entry::hand_over(releases)), Some(Entry { counts: counted, ..entry }));
            prop_assert_eq!(added(entry, Entry::count_hand_over()), Entry { counts: counted, ..entry });
            let flipped = Entry { counts: counted.with_epoch(1 - epoch), ..entry };
            prop_assert_eq!(swapped(entry, Entry::change_mode(releases, epoch)), Some(flipped));
        }

        /// Whatever a writer that was cut off does when it leaves has no effect, however many resets and
        /// releases there were.
        #[test]
        fn a_reset_fences_the_writer(
            entry in entries(), mine in places(), resets in 1_u64..6, releases in 0_u64..1000, lag in 0..LAG_MAX,
        ) {
            let granted = entry.releases();
            // The entry was behind, and what was on its way has been lost.
            let behind = Releases::new(granted.bits().wrapping_sub(lag) & RELEASES_MASK);
            prop_assert!(behind.may_become(granted));
            let now = behind.plus(resets.wrapping_mul(LEAP)).plus(releases);
            prop_assert!(!now.may_become(granted));
            let after = Entry { tail: TailWord::of(mine), counts: entry.counts.with_releases(now.bits()) };
            for epoch in [0, 1] {
                prop_assert_eq!(swapped(after, Entry::leave_writer(mine, granted, epoch)), None);
                prop_assert_eq!(swapped(after, Entry::change_mode(granted, epoch)), None);
            }
            prop_assert_eq!(swapped(after, Entry::hand_over(granted)), None);
            prop_assert_eq!(swapped(after, Entry::reset(granted)), None);
            prop_assert!(!granted.follows(now));
            if granted.bits() & low_bits(47) < 1 << 46 && granted.bits() >= lag {
                // Far from the wrap that comes once in four years.
                prop_assert_eq!(granted.is_across_reset(now), resets % 2 == 1);
            }
        }

        #[test]
        fn a_reset_leaves_a_free_lock(entry in entries()) {
            let after = swapped(entry, Entry::reset(entry.releases())).expect("nothing moved");
            prop_assert_eq!(after.tail, TailWord::NOBODY);
            prop_assert_eq!((after.counts.readers(), after.counts.epoch()), (0, 0));
            prop_assert_eq!(after.releases(), entry.releases().plus(LEAP));
            prop_assert!(!after.releases().follows(entry.releases()));
        }

        #[test]
        fn later_counts_follow(count in 0_u64..1 << 48, releases in 0_u64..1 << 40) {
            let count = Releases::new(count);
            prop_assert!(count.plus(releases).follows(count));
            prop_assert!(releases == 0 || !count.follows(count.plus(releases)));
        }
    }
}
