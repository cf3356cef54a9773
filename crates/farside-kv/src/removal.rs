//! Notification of keys that are removed without being deleted: evicted or, after their expiry, swept.
//!
//! On the path: nowhere, unless somebody asks.

/// Is notified of evictions and sweeps, for a checker of histories.
pub trait RemovalWitness: core::fmt::Debug {
    /// A key is about to be removed, whose expiry was `expiry_ms` (0: never) when it was chosen. The result is passed
    /// to [`ended`](Self::ended).
    fn begins(&self, key: &[u8], expiry_ms: u64) -> usize;
    /// The outcome; there is no call if the client dies.
    fn ended(&self, begun: usize, removal: Removal);
}

/// What became of a removal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Removal {
    /// The key was removed; its value had this expiry (0: never).
    Done {
        /// In milliseconds since the Unix epoch.
        expiry_ms: u64,
    },
    /// The key was used or changed since it was chosen, and stays.
    NotDone,
    /// The fabric failed, so the outcome is unknown.
    Unknown,
}
