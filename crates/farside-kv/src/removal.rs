//! Being told when keys go that nobody has deleted: evicted, or swept away.
//!
//! On the path: nowhere, unless somebody asks.

/// Is told of evictions and sweeps, as a checker of histories has to be.
pub trait RemovalWitness: core::fmt::Debug {
    /// A key is about to be removed that expired, or will, at `expiry_ms` (0: never) when it was chosen. Returns what the
    /// end of that is to be told with.
    fn begins(&self, key: &[u8], expiry_ms: u64) -> usize;
    /// What became of it. It is not told if the client dies.
    fn ended(&self, begun: usize, removal: Removal);
}

/// What became of a removal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Removal {
    /// The key is gone, with a value that expired at this time, or would have (0: never).
    Done {
        /// In milliseconds since the Unix epoch.
        expiry_ms: u64,
    },
    /// The key was used or changed since it was chosen, and stays.
    NotDone,
    /// The fabric failed, and nobody knows.
    Unknown,
}
