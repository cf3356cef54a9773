//! What can go wrong when the store is embedded.

use farside_fabric::FabricError;
use farside_fabric::shm::SegmentError;
use farside_fabric::tcp::SecretError;
use farside_index::IndexError;
use farside_kv::{KvError, LocksError, StackError, TransactionError};
use farside_lock::LockError;
use farside_pool::PoolError;

/// Opening or using an embedded store failed. The text is one line that says how to correct it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The memory is not where the options say, or cannot be reached.
    #[error(transparent)]
    Nodes(#[from] StackError),
    /// The file with the secret cannot be used.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// An operation failed.
    #[error(transparent)]
    Operation(#[from] KvError),
    /// A named lock could not be acquired, released or inspected.
    #[error(transparent)]
    Lock(#[from] LocksError),
    /// The async interface was used where it has no event loop.
    #[error(
        "the async interface needs a tokio runtime and a LocalSet on this thread: wrap the program in `farside::run`, or use \
         `farside::blocking`"
    )]
    NoLocalSet,
    /// This process is a fork of the one that opened the memory, and only the parent can use this handle.
    #[error(
        "this was opened before the process was forked, and belongs to the parent: open it in the child as well; anonymous memory \
         is not shared with children, a segment file is"
    )]
    Forked,
    /// This handle was closed.
    #[error("the store was closed: open it again")]
    Closed,
    /// The system refused an event loop or a thread.
    #[error("failed to start what the store needs: {0}")]
    Start(std::io::Error),
}

impl From<SegmentError> for Error {
    fn from(error: SegmentError) -> Self {
        Self::Nodes(error.into())
    }
}

impl Error {
    /// Whether memory is full. Nothing was changed; reads still work, and deleting or overwriting keys helps.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Operation(error) if error.is_out_of_memory())
    }

    /// Whether a range was requested from an index that does not keep keys in order.
    #[must_use]
    pub fn is_unordered(&self) -> bool {
        matches!(self, Self::Operation(error) if error.is_unordered())
    }

    /// Whether this client was cut off from the memory. It is not known whether the operation took effect. The blocking
    /// interface opens the memory again with its next operation; an async program drops its handles and opens it anew.
    #[must_use]
    pub fn is_cut_off(&self) -> bool {
        match self {
            Self::Operation(error) => error.is_cut_off(),
            Self::Lock(error) => error.is_cut_off(),
            _ => false,
        }
    }

    /// Whether the request is invalid, in general or for this memory. Nothing was changed, and repeating the request
    /// will not change anything.
    #[must_use]
    pub fn is_invalid(&self) -> bool {
        match self {
            Self::Nodes(error) => matches!(error, StackError::Spec { .. }),
            Self::Secret(_) | Self::NoLocalSet | Self::Forked | Self::Closed => true,
            Self::Operation(KvError::Index(error)) => matches!(
                error,
                IndexError::KeyTooLong { .. }
                    | IndexError::ValueTooLong { .. }
                    | IndexError::Unordered { .. }
                    | IndexError::OtherIndex { .. }
                    | IndexError::Missing { .. }
            ),
            Self::Operation(KvError::Transaction(error)) => !matches!(error, TransactionError::Contended { .. }),
            Self::Operation(_) | Self::Start(_) => false,
            Self::Lock(error) => matches!(error, LocksError::Name { .. } | LocksError::NoTable),
        }
    }

    /// Whether time ran out: a node did not answer, or there were conflicts with other clients for too long. The
    /// operation may have taken effect, except for a transaction that failed because of conflicts.
    #[must_use]
    pub fn is_timed_out(&self) -> bool {
        let is_late = |error: &FabricError| matches!(error, FabricError::DeadlineExceeded { .. });
        match self {
            Self::Operation(KvError::Transaction(error)) => matches!(error, TransactionError::Contended { .. }),
            Self::Operation(KvError::Index(
                IndexError::Pool(PoolError::Fabric(error)) | IndexError::Lock(LockError::Fabric(error)),
            ))
            | Self::Lock(
                LocksError::Table(PoolError::Fabric(error))
                | LocksError::Lock {
                    source: LockError::Fabric(error),
                    ..
                },
            ) => is_late(error),
            Self::Operation(KvError::Index(IndexError::Lock(error)))
            | Self::Lock(LocksError::Lock { source: error, .. }) => matches!(error, LockError::Timeout { .. }),
            _ => false,
        }
    }

    /// Whether the memory could not be opened at the given place.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Nodes(_)) && !self.is_invalid()
    }

    /// Whether a lock may have been taken from its holder, who did not respond for longer than the lease.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lock(LocksError::Lost { .. }))
    }
}
