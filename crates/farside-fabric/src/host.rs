//! What the real backends take from the machine they run on: its clock, its chance, its tasks.
//!
//! On the path: the endpoints of shared memory and TCP take the time from here, chance and tasks. They need a tokio runtime
//! of one thread, and a `LocalSet` around whatever spawns: [`on_this_thread`] has both.

use core::cell::RefCell;
use core::future::Future;
use core::pin::{Pin, pin};
use core::time::Duration;
use std::io;

use rand_core::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::clock::Deadline;
use crate::spawn::Task;

/// What tokio's timers round up to: below it, waiting means looking at the clock again and again.
const TIMER_TICK: Duration = Duration::from_millis(1);

/// Runs a future to its end on this thread, with the tasks and timers that endpoints over sockets and devices need.
///
/// # Errors
/// If the system gives no event loop.
pub fn on_this_thread<T>(body: impl Future<Output = T>) -> io::Result<T> {
    let mut output = None;
    run(pin!(async { output = Some(body.await) }))?;
    Ok(output.expect("it came to its end"))
}

/// The loop is compiled once, whatever it runs.
fn run(body: Pin<&mut dyn Future<Output = ()>>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, body);
    Ok(())
}

/// The machine's monotonic clock. All processes of one machine read the same.
#[derive(Clone, Copy, Default, Debug)]
pub struct HostClock;

impl HostClock {
    /// Nanoseconds since the machine started.
    #[inline]
    #[must_use]
    pub fn now_ns(self) -> u64 {
        in_ns(clock_gettime(ClockId::Monotonic))
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub fn unix_ms(self) -> u64 {
        in_ns(clock_gettime(ClockId::Realtime)) / 1_000_000
    }

    /// Waits. Other tasks of the thread run meanwhile, even if there is no time to wait.
    pub async fn sleep(self, duration_ns: u64) {
        let end = self.now_ns().saturating_add(duration_ns);
        let duration = Duration::from_nanos(duration_ns);
        if duration >= TIMER_TICK {
            #[expect(clippy::disallowed_methods, reason = "the real backends are where real time enters")]
            tokio::time::sleep(duration).await;
        }
        // A back-off of microseconds: a timer would make it a thousand times longer.
        loop {
            tokio::task::yield_now().await;
            if self.now_ns() >= end {
                return;
            }
            // Whoever we wait for may need this core.
            std::thread::yield_now();
        }
    }

    /// The result of `work`, or `None` if the deadline passes first. Costs no timer when there is
    /// no deadline.
    pub async fn until<T>(self, deadline: Deadline, work: impl Future<Output = T>) -> Option<T> {
        if deadline == Deadline::NEVER {
            return Some(work.await);
        }
        let left = Duration::from_nanos(deadline.0.saturating_sub(self.now_ns()));
        #[expect(clippy::disallowed_methods, reason = "the real backends are where real time enters")]
        tokio::time::timeout(left, work).await.ok()
    }
}

/// Random numbers, seeded from the system.
#[derive(Debug)]
pub struct HostRandom {
    generator: RefCell<Xoshiro256PlusPlus>,
}

impl HostRandom {
    /// A generator of its own, seeded from the system.
    #[must_use]
    pub fn new() -> Self {
        Self {
            generator: RefCell::new(Xoshiro256PlusPlus::from_seed(entropy())),
        }
    }

    /// A uniformly distributed word.
    pub fn random(&self) -> u64 {
        self.generator.borrow_mut().next_u64()
    }
}

impl Default for HostRandom {
    fn default() -> Self {
        Self::new()
    }
}

/// Bytes of true chance, from the operating system; at most 256.
#[must_use]
pub fn entropy<const BYTES: usize>() -> [u8; BYTES] {
    const { assert!(BYTES <= 256, "longer requests may be interrupted (getrandom(2))") };
    let mut bytes = [0; BYTES];
    let count = getrandom(&mut bytes[..], GetRandomFlags::empty());
    assert_eq!(count, Ok(BYTES), "the system gives a few random bytes");
    bytes
}

/// The clocks that are read are never negative.
fn in_ns(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Runs `task` beside the caller, on the same thread.
///
/// # Panics
/// Outside a `tokio::task::LocalSet`.
pub fn spawn_local(task: Task) {
    #[expect(
        clippy::disallowed_methods,
        reason = "the real backends are where tokio's tasks enter"
    )]
    drop(tokio::task::spawn_local(task));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generators_differ() {
        let (one, other) = (HostRandom::new(), HostRandom::new());
        assert_ne!(one.random(), other.random());
    }

    #[test]
    fn sleep_is_never_short() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            for duration_ns in [0, 20_000, 1_500_000] {
                let start_ns = HostClock.now_ns();
                HostClock.sleep(duration_ns).await;
                assert!(HostClock.now_ns() - start_ns >= duration_ns);
            }
        });
    }

    #[test]
    fn a_past_deadline_ends_at_once() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let never = core::future::pending::<()>();
            assert_eq!(HostClock.until(Deadline(0), never).await, None);
            assert_eq!(HostClock.until(Deadline::NEVER, async { 7 }).await, Some(7));
        });
    }
}
