//! Lock words: 64 bits in far memory, taken apart into named fields.
//!
//! On the path: a lock reads a word with an atomic and decides what it means. `bit_fields!`
//! declares a word once: its fields, their place, and the accessors. Fields that overlap or leave
//! the word do not compile.

use farside_fabric::EndpointId;

use crate::letter::{Place, SeatNumber};

/// Declares a word of named bit fields: `name: start..end` counts bits from the least significant.
///
/// ```
/// farside_lock::bit_fields! {
///     /// A ticket lock.
///     pub struct Tickets {
///         /// Whose turn it is.
///         serving, with_serving: 0..16;
///         /// What the next one to come gets.
///         next, with_next: 16..32;
///     }
/// }
/// let word = Tickets(0).with_next(7);
/// assert_eq!((word.serving(), word.next()), (0, 7));
/// ```
#[macro_export]
macro_rules! bit_fields {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident {
            $($(#[$field_attribute:meta])* $get:ident, $set:ident: $start:literal..$end:literal;)+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        $visibility struct $name($visibility u64);

        impl $name {
            /// Name, first bit and bit behind the last of each field.
            $visibility const FIELDS: &'static [(&'static str, u32, u32)] = &[$((stringify!($get), $start, $end)),+];

            $(
                $(#[$field_attribute])*
                #[inline]
                #[must_use]
                $visibility const fn $get(self) -> u64 {
                    self.0 >> $start & $crate::word::low_bits($end - $start)
                }

                /// The word with this field changed.
                ///
                /// # Panics
                /// If the value does not fit into the field.
                #[inline]
                #[must_use]
                $visibility const fn $set(self, value: u64) -> Self {
                    let mask = $crate::word::low_bits($end - $start);
                    assert!(value <= mask, concat!("a value of ", stringify!($get), " fits into its bits"));
                    Self(self.0 & !(mask << $start) | value << $start)
                }
            )+
        }

        const _: () = $crate::word::assert_disjoint($name::FIELDS);
    };
}

/// A word whose lowest `count` bits are set.
#[must_use]
pub const fn low_bits(count: u32) -> u64 {
    if count == 64 { u64::MAX } else { (1 << count) - 1 }
}

/// Checks a declaration at compile time.
///
/// # Panics
/// If a field is empty, leaves the word, or overlaps another.
pub const fn assert_disjoint(fields: &[(&str, u32, u32)]) {
    let mut taken = 0_u64;
    let mut index = 0;
    while index < fields.len() {
        let (_, start, end) = fields[index];
        assert!(start < end && end <= 64, "a field is a part of the word");
        let mask = low_bits(end - start) << start;
        assert!(taken & mask == 0, "fields do not overlap");
        taken |= mask;
        index += 1;
    }
}

bit_fields! {
    /// The word of the CAS lock: 0 is free, anything else is its holder.
    pub struct CasWord {
        /// The endpoint that holds the lock.
        endpoint, with_endpoint: 0..48;
        /// Which of that endpoint's clients it is; see [`Holder`].
        client, with_client: 48..64;
    }
}

/// Who may hold a lock: a client of an endpoint. Several clients that share an endpoint have
/// different numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The endpoint's identity, not 0.
    pub endpoint: u64,
    /// The client's number on that endpoint.
    pub client: u16,
}

/// What a compare-and-swap of a free word for the own one found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attempt {
    /// The lock is ours now.
    Granted,
    /// It was ours already: an earlier swap whose completion we never saw has taken effect.
    Recovered,
    /// Somebody else has it.
    Held,
}

impl CasWord {
    /// Nobody holds the lock.
    pub const FREE: Self = Self(0);

    /// The word of a lock that `holder` holds.
    ///
    /// # Panics
    /// If the endpoint's identity is 0 or has more than 48 bits.
    #[must_use]
    pub const fn held_by(holder: Holder) -> Self {
        assert!(holder.endpoint != 0, "an endpoint's identity is not 0");
        Self::FREE
            .with_endpoint(holder.endpoint)
            .with_client(holder.client as u64)
    }

    /// What it means that a compare-and-swap of [`CasWord::FREE`] for `mine` returned this word.
    #[inline]
    #[must_use]
    pub fn attempt(self, mine: Self) -> Attempt {
        match self {
            Self::FREE => Attempt::Granted,
            word if word == mine => Attempt::Recovered,
            _ => Attempt::Held,
        }
    }
}

bit_fields! {
    /// The tail of a queue: the seat of the client that is last, 0 if nobody is in the queue.
    pub struct TailWord {
        /// The endpoint of the last client.
        endpoint, with_endpoint: 0..48;
        /// Its seat there.
        seat, with_seat: 48..60;
    }
}

impl TailWord {
    /// Nobody is in the queue.
    pub const NOBODY: Self = Self(0);

    /// The word as it is in far memory. Bits that belong to no field are another's.
    #[must_use]
    pub const fn of_bits(bits: u64) -> Self {
        Self(bits & low_bits(60))
    }

    /// The bits of the word.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The tail of a queue whose last client sits there.
    ///
    /// # Panics
    /// If the endpoint's identity is 0 or has more than 48 bits.
    #[must_use]
    pub const fn of(place: Place) -> Self {
        assert!(place.endpoint.0 != 0, "an endpoint's identity is not 0");
        Self::NOBODY
            .with_endpoint(place.endpoint.0)
            .with_seat(place.seat as u64)
    }

    /// Where the last client sits.
    #[must_use]
    pub const fn place(self) -> Option<Place> {
        if self.endpoint() == 0 {
            return None;
        }
        Some(Place {
            endpoint: EndpointId(self.endpoint()),
            seat: self.seat() as SeatNumber,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    bit_fields! {
        /// Three fields and a gap.
        struct Sample {
            /// Low.
            low, with_low: 0..5;
            /// Middle.
            middle, with_middle: 5..40;
            /// High.
            high, with_high: 41..64;
        }
    }

    fn holders() -> impl Strategy<Value = Holder> {
        (1_u64..1 << 48, any::<u16>()).prop_map(|(endpoint, client)| Holder { endpoint, client })
    }

    proptest! {
        #[test]
        fn a_field_changes_no_other(word: u64, value in 0_u64..1 << 35) {
            let before = Sample(word);
            let after = before.with_middle(value);
            prop_assert_eq!(after.middle(), value);
            prop_assert_eq!((after.low(), after.high(), after.0 >> 40 & 1), (before.low(), before.high(), word >> 40 & 1));
            prop_assert_eq!(after.with_low(before.low()).with_high(before.high()), after);
        }

        #[test]
        fn one_of_two_attempts_is_granted(one in holders(), other in holders()) {
            prop_assume!(one != other);
            let (one, other) = (CasWord::held_by(one), CasWord::held_by(other));
            prop_assert_ne!(one, CasWord::FREE);
            // The first finds a free lock and leaves its word, which the second finds.
            prop_assert_eq!(CasWord::FREE.attempt(one), Attempt::Granted);
            prop_assert_eq!(one.attempt(other), Attempt::Held);
            prop_assert_eq!(one.attempt(one), Attempt::Recovered);
        }

        #[test]
        fn the_word_names_its_holder(holder in holders()) {
            let word = CasWord::held_by(holder);
            prop_assert_eq!((word.endpoint(), word.client()), (holder.endpoint, u64::from(holder.client)));
        }
    }

    #[test]
    #[should_panic(expected = "do not overlap")]
    fn overlapping_fields_are_refused() {
        assert_disjoint(&[("a", 0, 8), ("b", 7, 9)]);
    }
}
