//! A word on which a process sleeps until another one rings.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;

use rustix::thread::futex;

/// A counter in shared memory; each ring adds one, so that none is missed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doorbell<'a> {
    rings: &'a AtomicU32,
}

impl<'a> Doorbell<'a> {
    /// The lower half of a word that is used for nothing else.
    pub(super) fn new(word: &'a AtomicU64) -> Self {
        // SAFETY: valid and aligned for the lifetime of `word`, and every access to these four bytes
        // goes through a `Doorbell`, so it is atomic and of this size.
        let rings = unsafe { AtomicU32::from_ptr(word.as_ptr().cast()) };
        Self { rings }
    }

    /// How often it has rung, wrapping.
    pub(super) fn rings(&self) -> u32 {
        self.rings.load(Ordering::SeqCst)
    }

    /// Wakes whoever sleeps on it.
    pub(super) fn ring(&self) {
        self.rings.fetch_add(1, Ordering::SeqCst);
        // Cannot fail on a valid address; and nobody sleeping is not a failure.
        let _ = futex::wake(self.rings, futex::Flags::empty(), u32::MAX >> 1);
    }

    /// Sleeps until the count is no longer `seen`, or `limit` has passed, or for no reason.
    pub(super) fn wait(&self, seen: u32, limit: Duration) {
        let limit = futex::Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: limit.subsec_nanos().into(),
        };
        // Every way out leads the caller to look again.
        let _ = futex::wait(self.rings, futex::Flags::empty(), seen, Some(&limit));
    }
}
