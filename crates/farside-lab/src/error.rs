//! What can go wrong in a measurement.

use std::path::PathBuf;

use farside_fabric::FabricError;
use farside_fabric::rdma::{ExportError, RdmaError};
use farside_fabric::shm::SegmentError;
use farside_fabric::tcp::{CommandError, ConnectError};
use farside_index::IndexError;
use farside_kv::{KvError, LocksError};
use farside_lock::LockError;
use farside_objects::ObjectError;
use farside_pool::PoolError;

/// A measurement failed, or was asked for something that there is not.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// An argument makes no sense; the text says what would.
    #[error("{0}")]
    Argument(String),
    /// The fabric failed.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// A lock failed.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// An object could not be got or set.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// A named lock failed.
    #[error(transparent)]
    Locks(#[from] LocksError),
    /// The pool failed.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The index failed.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The store failed.
    #[error(transparent)]
    Kv(#[from] KvError),
    /// A segment cannot be used.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// There is no RDMA device to measure.
    #[error(transparent)]
    Rdma(#[from] RdmaError),
    /// The memory cannot be left to the RDMA device.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// The memory node cannot be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A mirrored node does not say how it is.
    #[error(transparent)]
    Member(#[from] CommandError),
    /// The system refused something.
    #[error("failed to {action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// Why not.
        source: std::io::Error,
    },
    /// A result cannot be written.
    #[error("failed to write {}: {reason}", path.display())]
    Output {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// What was measured did something that it must not.
    #[error("{0}")]
    Unsound(String),
    /// A figure's file contradicts itself.
    #[error("figure {id}: {reason}")]
    Figure {
        /// Which figure.
        id: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl BenchError {
    /// A refusal of an argument.
    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self::Argument(text.into())
    }

    /// An error of the operating system, with what was tried.
    pub(crate) fn system(action: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::System { action, source }
    }
}
