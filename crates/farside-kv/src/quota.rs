//! How much memory may be in use, and what happens when it is: shared by the stores of one process.
//!
//! On the path: a lookup reads one word of it, a change two or three. Nobody writes these but whoever changes a
//! setting, so every core keeps the line.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::policy::{EvictionPolicy, Tracking};
use crate::uses::Uses;

/// How many keys an eviction looks at by default.
pub const SAMPLES_DEFAULT: u32 = 5;
/// How many keys an eviction looks at, at most.
pub const SAMPLES_MAX: u32 = 64;

/// The limit of memory and the eviction policy. Both can be changed at any time, from any thread.
#[derive(Debug)]
#[repr(align(64))]
pub struct Quota {
    bytes_max: AtomicU64,
    samples: AtomicU32,
    policy: AtomicU8,
    /// Whether uses of keys are noted: the only word that a lookup reads.
    tracking: AtomicU8,
    uses: OnceLock<Uses>,
    evicted: Evicted,
}

/// On a line of its own, since it changes.
#[derive(Default, Debug)]
#[repr(align(64))]
struct Evicted(AtomicU64);

const NO_TRACKING: u8 = 0;
const RECENCY: u8 = 1;
const FREQUENCY: u8 = 2;

impl Default for Quota {
    /// No limit but the memory itself, and nothing is evicted.
    fn default() -> Self {
        Self {
            bytes_max: AtomicU64::new(0),
            samples: AtomicU32::new(SAMPLES_DEFAULT),
            policy: AtomicU8::new(EvictionPolicy::NoEviction as u8),
            tracking: AtomicU8::new(NO_TRACKING),
            uses: OnceLock::new(),
            evicted: Evicted::default(),
        }
    }
}

// Relaxed throughout: whoever reads a setting a moment later may see the one before, and no other word says more.
impl Quota {
    /// How many bytes may be in use, see [`Pool::held`](farside_pool::Pool::held); `None` if only the memory limits it.
    #[must_use]
    pub fn bytes_max(&self) -> Option<u64> {
        Some(self.bytes_max.load(Ordering::Relaxed)).filter(|&bytes| bytes > 0)
    }

    /// Changes the limit; 0 means none.
    pub fn set_bytes_max(&self, bytes: u64) {
        self.bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// What happens when the limit is reached.
    #[must_use]
    pub fn policy(&self) -> EvictionPolicy {
        EvictionPolicy::from_number(self.policy.load(Ordering::Relaxed))
    }

    /// Changes the policy. The recorded uses of keys are discarded if the new policy needs others.
    pub fn set_policy(&self, policy: EvictionPolicy) {
        let tracking = match policy.tracking() {
            None => NO_TRACKING,
            Some(Tracking::Recency) => RECENCY,
            Some(Tracking::Frequency) => FREQUENCY,
        };
        self.policy.store(policy as u8, Ordering::Relaxed);
        if self.tracking.swap(tracking, Ordering::Relaxed) != tracking
            && let Some(uses) = self.uses.get()
        {
            uses.clear();
        }
    }

    /// How many keys an eviction looks at.
    #[must_use]
    pub fn samples(&self) -> u32 {
        self.samples.load(Ordering::Relaxed)
    }

    /// Changes that: at least 1, at most [`SAMPLES_MAX`].
    pub fn set_samples(&self, count: u32) {
        self.samples.store(count.clamp(1, SAMPLES_MAX), Ordering::Relaxed);
    }

    /// How many keys were evicted by this process.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.evicted.0.load(Ordering::Relaxed)
    }

    pub(crate) fn count_evicted(&self) {
        self.evicted.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether changes have to look at it.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.bytes_max.load(Ordering::Relaxed) > 0
            || self.policy.load(Ordering::Relaxed) != EvictionPolicy::NoEviction as u8
    }

    /// Whether uses of keys are noted.
    #[inline]
    pub(crate) fn is_tracking(&self) -> bool {
        self.tracking.load(Ordering::Relaxed) != NO_TRACKING
    }

    pub(crate) fn tracking(&self) -> Option<Tracking> {
        match self.tracking.load(Ordering::Relaxed) {
            RECENCY => Some(Tracking::Recency),
            FREQUENCY => Some(Tracking::Frequency),
            _ => None,
        }
    }

    /// What is known of the uses of keys. `make` says how large the memory is.
    pub(crate) fn uses(&self, make: impl FnOnce() -> Uses) -> &Uses {
        self.uses.get_or_init(make)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_what_was_set() {
        let quota = Quota::default();
        assert!(!quota.is_on() && !quota.is_tracking());
        assert_eq!((quota.bytes_max(), quota.samples()), (None, SAMPLES_DEFAULT));
        quota.set_bytes_max(7);
        assert_eq!((quota.bytes_max(), quota.is_on()), (Some(7), true));
        quota.set_bytes_max(0);
        for (policy, _) in EvictionPolicy::ALL {
            quota.set_policy(policy);
            assert_eq!(quota.policy(), policy);
            assert_eq!(quota.is_on(), policy.evicts());
            assert_eq!(quota.tracking(), policy.tracking());
        }
        quota.set_samples(0);
        assert_eq!(quota.samples(), 1);
        quota.set_samples(1000);
        assert_eq!(quota.samples(), SAMPLES_MAX);
    }
}
