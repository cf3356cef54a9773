//! What can go wrong with an object.

use farside_fabric::FabricError;
use farside_lock::LockError;

/// A get or a set failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The object's lock failed, or was lost.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The fabric failed.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// More bytes than there is room for.
    #[error("object {object} has room for {capacity} bytes, not for {bytes}")]
    TooLarge {
        /// Which object.
        object: u64,
        /// Bytes of the value.
        bytes: u32,
        /// The most that fit.
        capacity: u32,
    },
    /// Only some pages are of the last set, whose client has died.
    #[error("object {object} was being set when its client died; set it again")]
    Torn {
        /// Which object.
        object: u64,
    },
    /// Each time that the object was read the lease of its lock had run out before the end.
    #[error("object {object} takes longer to read than its lock's lease; make the lease longer")]
    LeaseTooShort {
        /// Which object.
        object: u64,
    },
}
