//! A word on which a process sleeps until another one rings.

#[cfg(not(loom))]
use core::sync::atomic::AtomicU32;
use core::time::Duration;

#[cfg(not(loom))]
use rustix::thread::futex;

#[cfg(loom)]
use crate::primitive::Futex;
use crate::primitive::{AtomicU64, Ordering};

/// A counter in shared memory; each ring adds one, so that none is missed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doorbell<'a> {
    #[cfg(not(loom))]
    rings: &'a AtomicU32,
    #[cfg(loom)]
    rings: &'a AtomicU64,
}

impl<'a> Doorbell<'a> {
    /// The lower half of a word that is used for nothing else.
    pub(super) fn new(word: &'a AtomicU64) -> Self {
        #[cfg(loom)]
        let rings = word;
        // SAFETY: valid and aligned for the lifetime of `word`, and every access to these four bytes
        // goes through a `Doorbell`, so it is atomic and of this size.
        #[cfg(not(loom))]
        let rings = unsafe { AtomicU32::from_ptr(word.as_ptr().cast()) };
        Self { rings }
    }

    /// How often it has rung, wrapping.
    pub(super) fn rings(&self) -> u32 {
        let rings = self.rings.load(Ordering::SeqCst);
        // A whole word of the model.
        #[cfg(loom)]
        let rings = rings as u32;
        rings
    }

    /// Wakes whoever sleeps on it.
    pub(super) fn ring(&self) {
        self.rings.fetch_add(1, Ordering::SeqCst);
        #[cfg(loom)]
        Futex::wake_all();
        // Cannot fail on a valid address; and nobody sleeping is not a failure.
        #[cfg(not(loom))]
        let _ = futex::wake(self.rings, futex::Flags::empty(), u32::MAX >> 1);
    }

    /// Sleeps until the count is no longer `seen`, or `limit` has passed, or for no reason.
    #[cfg(not(loom))]
    pub(super) fn wait(&self, seen: u32, limit: Duration) {
        let limit = futex::Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: limit.subsec_nanos().into(),
        };
        // Every way out leads the caller to look again.
        let _ = futex::wait(self.rings, futex::Flags::empty(), seen, Some(&limit));
    }

    /// The same without a limit, so that the model shows whether anybody needs it.
    #[cfg(loom)]
    pub(super) fn wait(&self, seen: u32, _: Duration) {
        Futex::wait(self.rings, seen);
    }
}
