//! Truncated exponential back-off, as SMART does it, and giving way.
//!
//! On the path: a lock that has lost a race waits before it tries again, so that the retries of many
//! clients do not fill the queue that the holder's release has to pass.
//!
//! The wait before retry `i` (from 0) is `min(t0 * 2^i, t_max)` plus a uniform jitter. `t_max` adapts to
//! the share of attempts that fail, taken over [`WINDOW_ATTEMPTS`] attempts: above one limit it doubles,
//! below another it halves. The numbers are those of a [`Pace`].
//!
//! Where it differs from SMART (ASPLOS 2024, section 4.3): a window is a number of attempts rather
//! than a time, and the first knob, how many coroutines of a thread run at once, is left to the
//! caller, which may have only one.

use core::cell::Cell;

use farside_fabric::Endpoint;

/// How many attempts decide whether `t_max` changes.
pub const WINDOW_ATTEMPTS: u32 = 32;

/// The numbers of a back-off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// `t0` in nanoseconds.
    pub wait_min_ns: u64,
    /// What chance adds at most, in nanoseconds.
    pub jitter_ns: u64,
    /// How often `t_max` can double, counted from `t0`.
    pub doublings_max: u32,
    /// `t_max` doubles when more than so many percent of the attempts fail.
    pub raise_percent: u32,
    /// `t_max` halves when less than so many percent of the attempts fail.
    pub lower_percent: u32,
}

impl Pace {
    /// SMART's: `t0` is 4096 cycles of the processor that it was measured on.
    pub const SMART: Self = Self {
        wait_min_ns: 1_700,
        jitter_ns: 1_700,
        doublings_max: 10,
        raise_percent: 50,
        lower_percent: 10,
    };

    /// Of DSLR+, DecLock's ticket lock with back-off (DecLock, section 2.3): from 100 ns to 3.2 us.
    pub const DSLR_PLUS: Self = Self {
        wait_min_ns: 100,
        jitter_ns: 2_000,
        doublings_max: 5,
        raise_percent: 70,
        lower_percent: 50,
    };

    /// The next value of the exponent of `t_max`, given how many of a window's attempts failed.
    #[must_use]
    pub fn adapted(self, doublings: u32, failures: u32, attempts: u32) -> u32 {
        if failures * 100 > attempts * self.raise_percent {
            (doublings + 1).min(self.doublings_max)
        } else if failures * 100 < attempts * self.lower_percent {
            doublings.saturating_sub(1)
        } else {
            doublings
        }
    }

    /// The wait before retry `retry`, without jitter.
    #[must_use]
    pub fn wait_ns(self, retry: u32, doublings: u32) -> u64 {
        self.wait_min_ns << retry.min(doublings)
    }
}

/// What one client has learned about contention.
#[derive(Clone, Debug)]
pub struct Backoff {
    pace: Pace,
    /// `t_max = t0 << doublings`.
    doublings: Cell<u32>,
    attempts: Cell<u32>,
    failures: Cell<u32>,
}

impl Default for Backoff {
    /// SMART's.
    fn default() -> Self {
        Self::new(Pace::SMART)
    }
}

impl Backoff {
    /// A client that knows nothing yet.
    #[must_use]
    pub fn new(pace: Pace) -> Self {
        Self {
            pace,
            doublings: Cell::new(0),
            attempts: Cell::new(0),
            failures: Cell::new(0),
        }
    }

    /// Notes how an attempt went.
    pub fn note(&self, is_failure: bool) {
        self.attempts.set(self.attempts.get() + 1);
        self.failures.set(self.failures.get() + u32::from(is_failure));
        if self.attempts.get() == WINDOW_ATTEMPTS {
            let next = self
                .pace
                .adapted(self.doublings.get(), self.failures.get(), WINDOW_ATTEMPTS);
            self.doublings.set(next);
            self.attempts.set(0);
            self.failures.set(0);
        }
    }

    /// How long to wait before retry `retry`, counted from 0 within one acquire.
    pub fn wait_ns(&self, endpoint: &Endpoint, retry: u32) -> u64 {
        self.pace.wait_ns(retry, self.doublings.get()) + endpoint.random_below(self.pace.jitter_ns)
    }

    /// Waits before retry `retry`.
    pub async fn wait(&self, endpoint: &Endpoint, retry: u32) {
        endpoint.sleep(self.wait_ns(endpoint, retry)).await;
    }
}

/// Lets the other tasks of the thread run once. Where a verb completes at once, a client that spins
/// would otherwise never let the holder, which may be a task of the same thread, release.
pub async fn give_way() {
    let mut has_yielded = false;
    core::future::poll_fn(|context| {
        if has_yielded {
            return core::task::Poll::Ready(());
        }
        has_yielded = true;
        context.waker().wake_by_ref();
        core::task::Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn paces() -> impl Strategy<Value = Pace> {
        prop_oneof![Just(Pace::SMART), Just(Pace::DSLR_PLUS)]
    }

    proptest! {
        #[test]
        fn waits_double_up_to_their_limit(pace in paces(), retry in 0_u32..100, doublings in 0_u32..=10) {
            let doublings = doublings.min(pace.doublings_max);
            let wait = pace.wait_ns(retry, doublings);
            prop_assert!((pace.wait_min_ns..=pace.wait_min_ns << pace.doublings_max).contains(&wait));
            let next = if retry < doublings { 2 * wait } else { wait };
            prop_assert_eq!(pace.wait_ns(retry + 1, doublings), next);
        }

        #[test]
        fn limits_move_one_step_at_a_time(pace in paces(), doublings in 0_u32..=5, failures in 0..=WINDOW_ATTEMPTS) {
            let next = pace.adapted(doublings, failures, WINDOW_ATTEMPTS);
            prop_assert!(next.abs_diff(doublings) <= 1 && next <= pace.doublings_max);
            if failures * 100 > WINDOW_ATTEMPTS * pace.raise_percent {
                prop_assert!(next >= doublings);
            }
        }
    }

    /// Above one limit it goes up, below the other it goes down; at both it stays.
    #[test]
    fn limits_are_percentages_of_a_window() {
        for (pace, doublings, failures, next) in [
            (Pace::SMART, 3, 17, 4),
            (Pace::SMART, 3, 16, 3),
            (Pace::SMART, 3, 4, 3),
            (Pace::SMART, 3, 3, 2),
            (Pace::SMART, 10, 32, 10),
            (Pace::SMART, 0, 0, 0),
            (Pace::DSLR_PLUS, 3, 23, 4),
            (Pace::DSLR_PLUS, 3, 22, 3),
            (Pace::DSLR_PLUS, 3, 16, 3),
            (Pace::DSLR_PLUS, 3, 15, 2),
            (Pace::DSLR_PLUS, 5, 32, 5),
        ] {
            assert_eq!(
                pace.adapted(doublings, failures, 32),
                next,
                "{failures} failures of {pace:?}"
            );
        }
        // Exactly at the upper limit.
        assert_eq!(Pace::DSLR_PLUS.adapted(3, 7, 10), 3);
    }

    #[test]
    fn a_window_is_32_attempts() {
        let backoff = Backoff::default();
        let note = |failures: u32, successes: u32| {
            (0..failures).for_each(|_| backoff.note(true));
            (0..successes).for_each(|_| backoff.note(false));
            backoff.doublings.get()
        };
        assert_eq!(note(31, 0), 0);
        assert_eq!(note(1, 0), 1);
        assert_eq!(note(16, 15), 1);
        // Half of a window fails, and the next begins anew.
        assert_eq!(note(0, 1), 1);
        assert_eq!(note(16, 16), 1);
        assert_eq!(note(17, 15), 2);
        assert_eq!(note(3, 29), 1);
        assert_eq!(note(4, 28), 1);
    }

    /// The wait that was learned, and something on top that is not always the same.
    #[test]
    fn a_wait_has_its_length_and_a_jitter() {
        use crate::testing::Stage;
        let endpoint = Stage::new().machine().endpoint;
        let backoff = Backoff::default();
        for doublings in [0, 3] {
            backoff.doublings.set(doublings);
            for retry in [0, 1, 3, 100] {
                let least_ns = Pace::SMART.wait_min_ns << retry.min(doublings);
                let waits: Vec<u64> = (0..20).map(|_| backoff.wait_ns(&endpoint, retry)).collect();
                let range = least_ns..least_ns + Pace::SMART.jitter_ns;
                assert!(waits.iter().all(|wait| range.contains(wait)), "{waits:?}");
                assert!(waits.iter().any(|wait| *wait != waits[0]), "{waits:?}");
            }
        }
    }

    #[test]
    fn contention_raises_the_limit_and_quiet_lowers_it() {
        let backoff = Backoff::default();
        (0..3 * WINDOW_ATTEMPTS).for_each(|_| backoff.note(true));
        assert_eq!(backoff.doublings.get(), 3);
        (0..5 * WINDOW_ATTEMPTS).for_each(|_| backoff.note(false));
        assert_eq!(backoff.doublings.get(), 0);
    }
}
