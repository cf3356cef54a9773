//! Truncated exponential back-off, as SMART does it, and giving way.
//!
//! On the path: a lock that has lost a race waits before it tries again, so that the retries of many
//! clients do not fill the queue that the holder's release has to pass.
//!
//! The wait before retry `i` (from 0) is `min(t0 * 2^i, t_max)` plus a uniform jitter below `t0`.
//! `t_max` adapts to the share of attempts that fail, taken over [`WINDOW_ATTEMPTS`] attempts: above a
//! half it doubles, below a tenth it halves, between `t0` and `1024 t0`.
//!
//! Where it differs from SMART (ASPLOS 2024, section 4.3): a window is a number of attempts rather
//! than a time, and the first knob, how many coroutines of a thread run at once, is left to the
//! caller, which may have only one.

use core::cell::Cell;

use farside_fabric::{Clock, Random};

/// `t0` in nanoseconds: 4096 cycles of the processor that SMART was measured on.
pub const WAIT_MIN_NS: u64 = 1_700;
/// How often `t_max` can double, counted from `t0`.
pub const DOUBLINGS_MAX: u32 = 10;
/// How many attempts decide whether `t_max` changes.
pub const WINDOW_ATTEMPTS: u32 = 32;

/// What one client has learned about contention.
#[derive(Clone, Default, Debug)]
pub struct Backoff {
    /// `t_max = t0 << doublings`.
    doublings: Cell<u32>,
    attempts: Cell<u32>,
    failures: Cell<u32>,
}

/// The next value of the exponent of `t_max`, given how many of a window's attempts failed.
#[must_use]
pub fn adapted(doublings: u32, failures: u32, attempts: u32) -> u32 {
    if failures * 2 > attempts {
        (doublings + 1).min(DOUBLINGS_MAX)
    } else if failures * 10 < attempts {
        doublings.saturating_sub(1)
    } else {
        doublings
    }
}

/// The wait before retry `retry`, without jitter.
#[must_use]
pub fn wait_ns(retry: u32, doublings: u32) -> u64 {
    WAIT_MIN_NS << retry.min(doublings)
}

impl Backoff {
    /// Notes how an attempt went.
    pub fn note(&self, is_failure: bool) {
        self.attempts.set(self.attempts.get() + 1);
        self.failures.set(self.failures.get() + u32::from(is_failure));
        if self.attempts.get() == WINDOW_ATTEMPTS {
            let next = adapted(self.doublings.get(), self.failures.get(), WINDOW_ATTEMPTS);
            self.doublings.set(next);
            self.attempts.set(0);
            self.failures.set(0);
        }
    }

    /// Waits before retry `retry`, counted from 0 within one acquire.
    pub async fn wait<E: Clock + Random>(&self, endpoint: &E, retry: u32) {
        let jitter_ns = endpoint.random_below(WAIT_MIN_NS);
        endpoint.sleep(wait_ns(retry, self.doublings.get()) + jitter_ns).await;
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

    proptest! {
        #[test]
        fn waits_double_up_to_their_limit(retry in 0_u32..100, doublings in 0..=DOUBLINGS_MAX) {
            let wait = wait_ns(retry, doublings);
            prop_assert!((WAIT_MIN_NS..=WAIT_MIN_NS << DOUBLINGS_MAX).contains(&wait));
            let next = if retry < doublings { 2 * wait } else { wait };
            prop_assert_eq!(wait_ns(retry + 1, doublings), next);
        }

        #[test]
        fn limits_move_one_step_at_a_time(doublings in 0..=DOUBLINGS_MAX, failures in 0..=WINDOW_ATTEMPTS) {
            let next = adapted(doublings, failures, WINDOW_ATTEMPTS);
            prop_assert!(next.abs_diff(doublings) <= 1 && next <= DOUBLINGS_MAX);
            if failures * 2 > WINDOW_ATTEMPTS {
                prop_assert!(next >= doublings);
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
