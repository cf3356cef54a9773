//! What can go wrong with a named lock.

use farside_fabric::FabricError;
use farside_lock::LockError;
use farside_pool::PoolError;

use super::table::LOCK_NAME_BYTES_MAX;

/// A name, as people read it.
pub(super) fn readable(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// A named lock could not be taken, given back or looked at.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LocksError {
    /// The name is empty or too long.
    #[error("the name of a lock has 1 to {LOCK_NAME_BYTES_MAX} bytes, not {bytes}")]
    Name {
        /// How long it is.
        bytes: usize,
    },
    /// The memory has no table of locks.
    #[error("this memory has no table of locks: only new memory of 16 MiB or more gets one")]
    NoTable,
    /// There is no place for another name.
    #[error("no place for the lock `{name}`: all 8 names that share its bucket are in use; larger memory has more")]
    TableFull {
        /// The lock.
        name: String,
    },
    /// The client could not prove in time that it is alive: the lock may have been taken from it.
    #[error("the lock `{name}` was lost: this client was away for longer than its lease")]
    Lost {
        /// The lock.
        name: String,
    },
    /// The client did not answer for so long that the others have given it up.
    #[error("the lock `{name}`: this client was silent for more than two leases and was given up; open the locks anew")]
    Ended {
        /// The lock.
        name: String,
    },
    /// The lock or the fabric failed.
    #[error("the lock `{name}`: {source}")]
    Lock {
        /// The lock.
        name: String,
        /// Why.
        source: LockError,
    },
    /// The table cannot be read.
    #[error(transparent)]
    Table(#[from] PoolError),
}

impl LocksError {
    /// The lock with this name was lost.
    #[must_use]
    pub fn lost(name: &[u8]) -> Self {
        Self::Lost { name: readable(name) }
    }

    /// Whether the client was cut off from the memory, or given up, and has to open it anew.
    #[must_use]
    pub fn is_cut_off(&self) -> bool {
        let is_cut = |error: &FabricError| matches!(error, FabricError::Fenced { .. } | FabricError::NodeGone { .. });
        match self {
            Self::Lock {
                source: LockError::Fabric(error),
                ..
            }
            | Self::Table(PoolError::Fabric(error)) => is_cut(error),
            Self::Ended { .. } => true,
            _ => false,
        }
    }
}
