//! What a store is made of, and how it behaves.

use farside_index::{Budget, IndexKind, IndexOptions, LeafOptions, RaceOptions};
use farside_pool::{FormatOptions, PoolOptions};
use farside_sync::{Scheme, SyncOptions};

/// Bytes of memory per slot of a new pointer array: a sixteenth of the memory goes to slots, and
/// keys share a slot only when items are smaller than this.
const BYTES_PER_SLOT: u64 = 128;

/// The settings of a store.
#[derive(Clone, Copy, Debug)]
pub struct StoreConfig {
    /// The index of a blank pool, RACE if `None`; an existing pool with another index is refused.
    pub index: Option<IndexKind>,
    /// How data pointers are replaced.
    pub scheme: Scheme,
    /// Whether the sessions of a store combine their writes of a key, and their reads.
    pub local_wc: bool,
    /// How many slots a new pointer array has; depends on the size of the memory if `None`.
    pub slots: Option<u64>,
    /// Options of a new RACE table.
    pub race: RaceOptions,
    /// Layout of the leaves of a new tree.
    pub leaf: LeafOptions,
    /// How a blank pool is formatted.
    pub format: FormatOptions,
    /// Housekeeping times of the pool.
    pub pool: PoolOptions,
    /// How long one operation may take, in nanoseconds; `None` means no limit, which is right for mapped memory, where
    /// verbs complete at once.
    pub timeout_ns: Option<u64>,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            index: None,
            scheme: Scheme::Farside,
            local_wc: false,
            slots: None,
            race: RaceOptions::default(),
            leaf: LeafOptions::default(),
            format: FormatOptions::default(),
            pool: PoolOptions::default(),
            timeout_ns: None,
        }
    }
}

impl StoreConfig {
    /// How the clients of the index are synchronised.
    #[must_use]
    pub fn sync_options(&self) -> SyncOptions {
        SyncOptions {
            scheme: self.scheme,
            local_wc: self.local_wc,
            // A client that holds a lock for longer has lost its place in the pool, too.
            lease_ns: self.pool.lease_ns,
            ..self.scheme.into()
        }
    }

    /// Options of an index over nodes with `bytes` bytes in total.
    #[must_use]
    pub fn index_options(&self, bytes: u64) -> IndexOptions {
        IndexOptions {
            slots: self.slots.unwrap_or(bytes / BYTES_PER_SLOT).max(1),
            race: self.race,
            leaf: self.leaf,
            budget: Budget::default(),
        }
    }
}
