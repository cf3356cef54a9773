//! Real time, for the backends that have it.
//!
//! Nanoseconds of the monotonic clock, which all processes of a machine share: a point in time that
//! one client stores is understood by the others. It starts anew when the machine does.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Sleeps shorter than this are spent yielding: the timers of the runtime count milliseconds, and a
/// back-off between two attempts at a lock lasts microseconds.
const YIELD_NS_MAX: u64 = 1_000_000;

fn in_ns(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds since the machine started.
#[inline]
#[must_use]
pub fn now_ns() -> u64 {
    in_ns(clock_gettime(ClockId::Monotonic))
}

/// Milliseconds since the Unix epoch.
#[must_use]
pub fn unix_ms() -> u64 {
    in_ns(clock_gettime(ClockId::Realtime)) / 1_000_000
}

/// Waits, while the other tasks of the thread run: in steps of a millisecond, rounded up, from one
/// millisecond on, and by yielding below.
///
/// # Panics
/// From one millisecond on, if there is no tokio runtime with its timer enabled.
pub async fn sleep(duration_ns: u64) {
    if duration_ns >= YIELD_NS_MAX {
        let duration = core::time::Duration::from_nanos(duration_ns);
        #[expect(clippy::disallowed_methods, reason = "this is the sleep of real endpoints")]
        tokio::time::sleep(duration).await;
        return;
    }
    let end_ns = now_ns() + duration_ns;
    while now_ns() < end_ns {
        // Whoever we wait for may need this core.
        std::thread::yield_now();
        tokio::task::yield_now().await;
    }
}
