//! Why a memory node cannot start or go on.

use std::io;
use std::path::PathBuf;

use farside_fabric::rdma::ExportError;
use farside_fabric::shm::SegmentError;
use farside_fabric::tcp::SecretRequired;
use farside_pool::PoolError;

/// The node cannot start or go on; one line that says what would be right.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The segment cannot be used.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The segment exists with another size than was asked for.
    #[error("{} has {found} bytes of memory, not {wanted}: leave the size out, or choose another file", path.display())]
    Size {
        /// The file.
        path: PathBuf,
        /// What the segment has.
        found: u64,
        /// What was asked for.
        wanted: u64,
    },
    /// The segment's memory cannot be made a pool, or holds another one.
    #[error("{}: {source}", path.display())]
    Pool {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: PoolError,
    },
    /// The memory cannot be left to the RDMA device.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// Strangers could reach the node.
    #[error(transparent)]
    SecretRequired(#[from] SecretRequired),
    /// The system gives no runtime, or takes the listener away.
    #[error("failed to serve: {0}")]
    Io(#[from] io::Error),
}
