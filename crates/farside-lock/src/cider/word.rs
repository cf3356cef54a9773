//! The lock entry of CIDER (section 4.2.1, figure 8), and every change of it as the operands of one 16-byte atomic.
//!
//! On the path: the queue posts what this module says, at the entry's address.
//!
//! ```text
//! bit 0                48          60        64              112        128
//!     | tail: endpoint | tail: seat | version | epoch         | (nothing) |
//! ```
//!
//! It is a ShiftLock's entry ([`shiftlock::word`](crate::shiftlock::word)) without readers, whose spare bits are the
//! version; the epoch is the release count. So whoever watches it, and the reset, are those of ShiftLock. A reset leaves the
//! version as it is.

use farside_fabric::{MaskedAdd, MaskedCas};

use crate::letter::Place;
use crate::shiftlock::word::{Entry as ShiftEntry, Releases};
use crate::word::{TailWord, low_bits};

/// How many bits a version has.
const VERSION_BITS: u32 = 4;
const VERSION_AT: u32 = 60;
const VERSION_MASK: u128 = (low_bits(VERSION_BITS) as u128) << VERSION_AT;
const TAIL_MASK: u128 = low_bits(VERSION_AT) as u128;

/// How often the data pointer's key was deleted, modulo 16 (section 4.2.2).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Version(u8);

impl Version {
    /// The last four bits of a count.
    #[must_use]
    pub const fn of(deletes: u64) -> Self {
        Self((deletes & low_bits(VERSION_BITS)) as u8)
    }

    /// The version after a DELETE.
    #[must_use]
    pub const fn next(self) -> Self {
        Self::of(self.0 as u64 + 1)
    }

    const fn bits(self) -> u128 {
        (self.0 as u128) << VERSION_AT
    }
}

/// An entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry(u128);

impl Entry {
    /// The entry as it is in far memory.
    #[must_use]
    pub const fn of_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// Who is last in the queue.
    #[must_use]
    pub const fn tail(self) -> TailWord {
        TailWord::of_bits(self.0 as u64)
    }

    /// Of which version of the data pointer the queue is.
    #[must_use]
    pub const fn version(self) -> Version {
        Version::of(self.0 as u64 >> VERSION_AT)
    }

    /// How often the lock was handed on.
    #[must_use]
    pub const fn epoch(self) -> Releases {
        ShiftEntry::of_bits(self.0).releases()
    }

    /// A client queues up if the version is `version`, which becomes `next`.
    #[must_use]
    pub const fn enter(mine: Place, version: Version, next: Version) -> MaskedCas<u128> {
        MaskedCas {
            compare: version.bits(),
            compare_mask: VERSION_MASK,
            swap: TailWord::of(mine).bits() as u128 | next.bits(),
            swap_mask: TAIL_MASK | VERSION_MASK,
        }
    }

    /// The last one leaves.
    #[must_use]
    pub const fn leave(mine: Place) -> MaskedCas<u128> {
        MaskedCas {
            compare: TailWord::of(mine).bits() as u128,
            compare_mask: TAIL_MASK,
            swap: 0,
            swap_mask: TAIL_MASK,
        }
    }

    /// The lock is handed on (section 4.6).
    #[must_use]
    pub const fn hand_on() -> MaskedAdd<u128> {
        MaskedAdd {
            add: 1 << 64,
            boundary: 1 << 63 | 1 << 111,
        }
    }

    /// The version is set right, if nothing has changed since the entry was seen.
    #[must_use]
    pub fn repair(self, version: Version) -> MaskedCas<u128> {
        MaskedCas::whole(self.0, self.0 & !VERSION_MASK | version.bits())
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

    proptest! {
        #[test]
        fn whoever_enters_is_last_and_of_the_version(bits: u128, mine in places(), version in 0_u64..32, is_delete: bool) {
            let (before, version) = (Entry(bits), Version::of(version));
            let next = if is_delete { version.next() } else { version };
            match Entry::enter(mine, version, next).apply(bits).map(Entry) {
                None => prop_assert_ne!(before.version(), version),
                Some(after) => {
                    prop_assert_eq!((before.version(), after.version()), (version, next));
                    prop_assert_eq!(after.tail().place(), Some(mine));
                    prop_assert_eq!(after.0 >> 64, bits >> 64);
                    let left = Entry::leave(mine).apply(after.0).map(Entry).expect("it is last");
                    prop_assert_eq!((left.tail(), left.version()), (TailWord::NOBODY, next));
                    prop_assert_eq!(left.0 >> 64, bits >> 64);
                }
            }
        }

        #[test]
        fn only_the_last_one_empties_the_queue(bits: u128, mine in places()) {
            let is_last = Entry(bits).tail().place() == Some(mine);
            prop_assert_eq!(Entry::leave(mine).apply(bits).is_some(), is_last);
        }

        #[test]
        fn handing_on_counts_and_a_reset_keeps_the_version(bits: u128) {
            let before = Entry(bits);
            let after = Entry(Entry::hand_on().apply(bits));
            prop_assert_eq!(after.epoch(), before.epoch().plus(1));
            prop_assert_eq!(after.0 as u64, bits as u64);
            let reset = ShiftEntry::reset(before.epoch()).apply(bits).map(Entry).expect("nothing moved");
            prop_assert_eq!((reset.tail(), reset.version()), (TailWord::NOBODY, before.version()));
            prop_assert!(reset.epoch().is_across_reset(before.epoch()));
        }

        #[test]
        fn a_repair_changes_the_version_of_what_was_seen(bits: u128, other: u128, version in 0_u64..16) {
            let repair = Entry(bits).repair(Version::of(version));
            let repaired = repair.apply(bits).map(Entry).expect("it was seen");
            prop_assert_eq!((repaired.version(), repaired.tail()), (Version::of(version), Entry(bits).tail()));
            prop_assert_eq!(repair.apply(other).is_some(), other == bits);
        }
    }

    #[test]
    fn versions_come_round() {
        let last = (0..16).fold(Version::default(), |version, _| version.next());
        assert_eq!(last, Version::default());
    }
}
