//! Errors of pools.

use farside_fabric::{FabricError, NodeId};

/// A pool operation failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The fabric failed.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// No node has a block of this size left. Nothing was changed; deleting or overwriting frees
    /// memory.
    #[error("out of memory: no node has {bytes} bytes left")]
    OutOfMemory {
        /// The size that was asked for.
        bytes: u64,
    },
    /// The node's memory holds no pool, or one that this version cannot read.
    #[error("{node} holds no pool of this version: {reason}")]
    Foreign {
        /// The node.
        node: NodeId,
        /// What is wrong with its superblock.
        reason: String,
    },
    /// The node is too small to hold a pool.
    #[error("{node} has {bytes} bytes, a pool needs at least {bytes_min}")]
    TooSmall {
        /// The node.
        node: NodeId,
        /// What it has.
        bytes: u64,
        /// What is needed.
        bytes_min: u64,
    },
    /// Every entry of the client table is taken.
    #[error("the pool's {clients_max} client entries are all taken")]
    TooManyClients {
        /// How many there are.
        clients_max: u64,
    },
    /// The bytes in far memory contradict each other.
    #[error("{node} is damaged: {reason}")]
    Damaged {
        /// The node.
        node: NodeId,
        /// What does not fit.
        reason: String,
    },
    /// This client was declared dead by the others; it must join again.
    #[error("this client's lease expired and another client declared it dead")]
    LeaseLost,
    /// The client should leave while its operations were still running, and gave up waiting for them. It is declared
    /// dead when its lease expires, which ends them.
    #[error("operations of this client are still running; it is cut off when its lease expires")]
    StillRunning,
}
