//! What a store is made of, and how it behaves.

use farside_pool::{FormatOptions, PoolOptions};
use farside_sync::Scheme;

/// Bytes of memory per slot of a new pointer array: a sixteenth of the memory goes to slots, and
/// keys share a slot only when items are smaller than this.
const BYTES_PER_SLOT: u64 = 128;

/// The settings of a store.
#[derive(Clone, Copy, Debug)]
pub struct StoreConfig {
    /// How data pointers are replaced.
    pub scheme: Scheme,
    /// How many slots a new pointer array gets; chosen by the size of the memory if `None`.
    pub slots: Option<u64>,
    /// How a blank pool is formatted.
    pub format: FormatOptions,
    /// Housekeeping times of the pool.
    pub pool: PoolOptions,
    /// How long one operation may take, in nanoseconds; for ever if `None`, which is right where
    /// memory is mapped and verbs complete at once.
    pub timeout_ns: Option<u64>,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            scheme: Scheme::Optimistic,
            slots: None,
            format: FormatOptions::default(),
            pool: PoolOptions::default(),
            timeout_ns: None,
        }
    }
}

impl StoreConfig {
    /// How many slots a new array gets over nodes with `bytes` bytes in all.
    #[must_use]
    pub fn slots_for(&self, bytes: u64) -> u64 {
        self.slots.unwrap_or(bytes / BYTES_PER_SLOT).max(1)
    }
}
