//! What can go wrong in a store.

use farside_fabric::{FabricError, LocalFuture};
use farside_index::IndexError;
use farside_pool::PoolError;
use farside_value::format::Tag;

use crate::transaction::TransactionError;

/// An operation on a store that is under way.
pub type Pending<'f, T> = LocalFuture<'f, Result<T, KvError>>;

/// A store operation failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KvError {
    /// The index, the pool or the fabric failed underneath.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// A transaction failed.
    #[error(transparent)]
    Transaction(#[from] TransactionError),
    /// The value of the key has another type than the operation is for.
    #[error("the value of the key is a {}, and this operation is for a {}", found.name(), wanted.name())]
    WrongType {
        /// What it is.
        found: Tag,
        /// What it would have to be.
        wanted: Tag,
    },
}

impl KvError {
    /// Whether memory is full. Nothing was changed; deleting or overwriting keys helps.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        matches!(
            self,
            Self::Index(IndexError::Pool(PoolError::OutOfMemory { .. }) | IndexError::Full { .. })
        )
    }

    /// Whether a scan cannot go on, because nobody knows its cursor any more.
    pub(crate) fn is_lost_cursor(&self) -> bool {
        matches!(self, Self::Index(IndexError::CursorUnknown { .. }))
    }

    /// Whether a snapshot came to nothing, and may be taken again.
    #[must_use]
    pub fn is_snapshot_ended(&self) -> bool {
        matches!(
            self,
            Self::Index(IndexError::Pool(
                PoolError::SnapshotEnded { .. } | PoolError::SnapshotBusy
            ))
        )
    }

    /// Whether the index does not keep keys in order, so that ranges cannot be read.
    #[must_use]
    pub fn is_unordered(&self) -> bool {
        matches!(self, Self::Index(IndexError::Unordered { .. }))
    }

    /// Whether this client was cut off from the pool and must open the store again.
    #[must_use]
    pub fn is_cut_off(&self) -> bool {
        matches!(
            self,
            Self::Index(IndexError::Pool(
                PoolError::LeaseLost | PoolError::Fabric(FabricError::Fenced { .. } | FabricError::NodeGone { .. })
            ))
        )
    }
}

impl From<PoolError> for KvError {
    fn from(error: PoolError) -> Self {
        Self::Index(error.into())
    }
}

impl From<FabricError> for KvError {
    fn from(error: FabricError) -> Self {
        Self::Index(error.into())
    }
}
