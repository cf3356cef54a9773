//! The word of DrTM's lock: free, held by a writer, or leased to readers.

use farside_fabric::mutant::is_planted;

use crate::word::Holder;

/// How far two clocks may be apart, in nanoseconds (ShiftLock, section 4.1).
pub const CLOCK_ERROR_NS: u64 = 50_000;
/// How long a reader's lease lasts at most, in nanoseconds.
pub const LEASE_NS_MAX: u64 = 1_000_000;

crate::bit_fields! {
    /// The lock word; all zeros are a free lock.
    pub struct DrtmWord {
        /// Without a writer: when the lease of the readers ends, in nanoseconds. With one: who it is.
        body, with_body: 0..63;
        /// Whether a writer holds the lock.
        writer, with_writer: 63..64;
    }
}

crate::bit_fields! {
    /// The body of a word that names a writer.
    pub struct Writer {
        /// The endpoint that holds the lock.
        endpoint, with_endpoint: 0..47;
        /// Which of its clients.
        client, with_client: 47..63;
    }
}

/// What a word means to a client at a certain time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Nobody holds it, by anybody's clock: a compare-and-swap of this word may take it.
    Free,
    /// It was ours already: an earlier swap whose completion we never saw has taken effect.
    Ours,
    /// Readers hold it; one more may join them until then, by its own clock.
    Leased {
        /// When the lease is over for a clock that is as fast as may be.
        until_ns: u64,
    },
    /// Others hold it, at least until then by our clock. A writer's end is not known.
    Held {
        /// When to look again, if that is known.
        until_ns: Option<u64>,
    },
}

impl DrtmWord {
    /// Nobody holds the lock.
    pub const FREE: Self = Self(0);

    /// The word of a lock that `holder` writes under.
    ///
    /// # Panics
    /// If the endpoint's identity is 0 or has more than 47 bits.
    #[must_use]
    pub const fn written_by(holder: Holder) -> Self {
        assert!(holder.endpoint != 0, "an endpoint's identity is not 0");
        let writer = Writer(0)
            .with_endpoint(holder.endpoint)
            .with_client(holder.client as u64);
        Self::FREE.with_writer(1).with_body(writer.0)
    }

    /// The word of a lock that readers hold until `end_ns`.
    #[must_use]
    pub const fn leased_until(end_ns: u64) -> Self {
        Self::FREE.with_body(end_ns)
    }

    /// What the word means to the client whose word as a writer is `mine`, and which joins a lease if
    /// `join_ns_min` is left of it.
    #[inline]
    #[must_use]
    pub fn state(self, mine: Self, now_ns: u64, join_ns_min: u64) -> State {
        if self == mine {
            return State::Ours;
        }
        if self.writer() == 1 {
            return State::Held { until_ns: None };
        }
        if is_planted("drtm: a lease that a writer does not wait for") && now_ns + 3 * CLOCK_ERROR_NS > self.body() {
            return State::Free;
        }
        // Whoever reads under the lease stops when its own clock shows `end - error`; the slowest clock
        // does when ours shows `end`, the fastest that may be `2 error` before.
        let end_ns = self.body();
        if self == Self::FREE || now_ns >= end_ns + CLOCK_ERROR_NS {
            State::Free
        } else if now_ns + CLOCK_ERROR_NS + join_ns_min <= end_ns {
            State::Leased {
                until_ns: end_ns - CLOCK_ERROR_NS,
            }
        } else {
            State::Held {
                until_ns: Some(end_ns + CLOCK_ERROR_NS),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const JOIN_NS_MIN: u64 = LEASE_NS_MAX / 10;
    const MINE: DrtmWord = DrtmWord::written_by(Holder { endpoint: 3, client: 4 });

    proptest! {
        /// A reader whose clock is right within the error stops before any other client's clock, right
        /// within the same error, takes the lock for free.
        #[test]
        fn readers_stop_before_a_writer_starts(
            end_ns in 10 * LEASE_NS_MAX..1 << 60,
            reader_off in 0..=CLOCK_ERROR_NS,
            writer_off in 0..=CLOCK_ERROR_NS,
            at in 0_u64..4 * LEASE_NS_MAX,
        ) {
            // The clocks are at most the error apart: one right, the other ahead by its offset.
            let true_ns = end_ns - 2 * LEASE_NS_MAX + at;
            let word = DrtmWord::leased_until(end_ns);
            for (reader_ns, writer_ns) in [(true_ns, true_ns + writer_off), (true_ns + reader_off, true_ns)] {
                let may_read = reader_ns < end_ns - CLOCK_ERROR_NS;
                let may_write = word.state(MINE, writer_ns, JOIN_NS_MIN) == State::Free;
                prop_assert!(!(may_read && may_write));
            }
        }

        #[test]
        fn the_word_names_its_writer(endpoint in 1_u64..1 << 47, client: u16, now_ns in 0_u64..1 << 62) {
            let word = DrtmWord::written_by(Holder { endpoint, client });
            prop_assert_eq!(word.state(word, now_ns, JOIN_NS_MIN), State::Ours);
            let writer = Writer(word.body());
            prop_assert_eq!((writer.endpoint(), writer.client()), (endpoint, u64::from(client)));
            prop_assume!(word != MINE);
            prop_assert_eq!(word.state(MINE, now_ns, JOIN_NS_MIN), State::Held { until_ns: None });
        }

        #[test]
        fn time_passes_from_leased_over_held_to_free(end_ns in 10 * LEASE_NS_MAX..1 << 60, step in 0_u64..2 * LEASE_NS_MAX) {
            let word = DrtmWord::leased_until(end_ns);
            let rank = |now_ns| match word.state(MINE, now_ns, JOIN_NS_MIN) {
                State::Leased { until_ns } => { assert!(until_ns >= now_ns + JOIN_NS_MIN); 0 }
                State::Held { until_ns } => { assert!(until_ns > Some(now_ns)); 1 }
                State::Free => 2,
                State::Ours => unreachable!("it is a lease"),
            };
            let start_ns = end_ns - LEASE_NS_MAX;
            prop_assert!(rank(start_ns) <= rank(start_ns + step));
            prop_assert_eq!(rank(start_ns + 2 * LEASE_NS_MAX), 2);
        }
    }

    #[test]
    fn a_lease_ends_by_the_slowest_clock() {
        const END_NS: u64 = 10 * LEASE_NS_MAX;
        let word = DrtmWord::leased_until(END_NS);
        let leased = State::Leased {
            until_ns: END_NS - CLOCK_ERROR_NS,
        };
        let held = State::Held {
            until_ns: Some(END_NS + CLOCK_ERROR_NS),
        };
        let last_ns = END_NS - CLOCK_ERROR_NS - JOIN_NS_MIN;
        for (now_ns, state) in [
            (0, leased),
            (last_ns, leased),
            (last_ns + 1, held),
            (END_NS + CLOCK_ERROR_NS - 1, held),
            (END_NS + CLOCK_ERROR_NS, State::Free),
        ] {
            assert_eq!(word.state(MINE, now_ns, JOIN_NS_MIN), state, "at {now_ns}");
        }
    }

    #[test]
    fn zeros_are_free() {
        assert_eq!(DrtmWord(0).state(MINE, 0, JOIN_NS_MIN), State::Free);
    }
}
