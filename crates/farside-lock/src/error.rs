//! What can go wrong with a lock.

use farside_fabric::{FabricError, RemoteAddr};

/// An acquire or a release failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The fabric failed underneath.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The lock was not free before the deadline.
    #[error("the lock at {entry} was not free before the deadline")]
    Timeout {
        /// The lock.
        entry: RemoteAddr,
    },
}
