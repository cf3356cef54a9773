//! What INFO tells: counts that each worker keeps for itself and anybody may read.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counts of one worker, on cache lines of their own.
#[derive(Default, Debug)]
#[repr(align(128))]
pub(crate) struct Statistics {
    /// Connections that are open.
    pub(crate) clients: Count,
    /// Connections that were ever opened.
    pub(crate) connections: Count,
    /// Commands that were executed, failed ones included.
    pub(crate) commands: Count,
    /// Commands that were answered with an error.
    pub(crate) errors: Count,
    /// Lookups that found a key.
    pub(crate) hits: Count,
    /// Lookups that did not.
    pub(crate) misses: Count,
    /// Bytes from clients.
    pub(crate) bytes_in: Count,
    /// Bytes to clients.
    pub(crate) bytes_out: Count,
}

/// A count that one thread changes and others read.
#[derive(Default, Debug)]
pub(crate) struct Count(AtomicU64);

impl Count {
    #[inline]
    pub(crate) fn add(&self, more: u64) {
        // One writer: a plain addition will do, and costs no locked instruction. Relaxed: nothing
        // is concluded from a count.
        self.0
            .store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn subtract(&self, less: u64) {
        self.add(less.wrapping_neg());
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
