//! What can go wrong in an index.

use farside_fabric::{FabricError, RemoteAddr};
use farside_pool::PoolError;

use crate::item::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// An index operation failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// The pool or the fabric failed underneath.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The key is too long. Nothing was changed.
    #[error("the key has {bytes} bytes, at most {KEY_BYTES_MAX} are allowed")]
    KeyTooLong {
        /// Its length.
        bytes: usize,
    },
    /// The value is too long. Nothing was changed.
    #[error("the value has {bytes} bytes, at most {VALUE_BYTES_MAX} are allowed")]
    ValueTooLong {
        /// Its length.
        bytes: usize,
    },
    /// The pool was made without this index.
    #[error("the pool holds no {index}")]
    Missing {
        /// The name of the index.
        index: &'static str,
    },
    /// A slot points to bytes that are neither an item nor a bucket.
    #[error("the slot at {slot} points to {block}, which holds no item: run `farside fsck`")]
    Damaged {
        /// The slot.
        slot: RemoteAddr,
        /// What it points to.
        block: RemoteAddr,
    },
}

impl From<FabricError> for IndexError {
    fn from(error: FabricError) -> Self {
        Self::Pool(error.into())
    }
}
