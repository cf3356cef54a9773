//! Errors of pools.

use farside_fabric::{AttachError, FabricError, NodeId};

/// A pool operation failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The fabric failed.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// A node of the pool cannot be reached by this client.
    #[error(transparent)]
    Unreachable(Box<AttachError>),
    /// A node cannot be added or drained.
    #[error("{node}: {reason}")]
    Membership {
        /// The node.
        node: NodeId,
        /// Why not, and what would be right.
        reason: String,
    },
    /// Running clients have not taken a change of the pool's nodes into account.
    #[error("{}", lagging_text(clients))]
    Lagging {
        /// Their entries in the client table.
        clients: Vec<u16>,
    },
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
    /// Another client takes a snapshot.
    #[error("another export of this pool is under way: wait until it has ended")]
    SnapshotBusy,
    /// A snapshot was given up. Nothing that it was to show counts.
    #[error("the export was given up: {reason}")]
    SnapshotEnded {
        /// Why.
        reason: &'static str,
    },
}

impl From<AttachError> for PoolError {
    fn from(error: AttachError) -> Self {
        Self::Unreachable(Box::new(error))
    }
}

fn lagging_text(clients: &[u16]) -> String {
    let (who, have) = match clients {
        [client] => (format!("client {client}"), "has"),
        clients => {
            let numbers: Vec<String> = clients.iter().map(u16::to_string).collect();
            (format!("clients {}", numbers.join(", ")), "have")
        }
    };
    format!("{who} {have} not connected to all nodes yet (their logs say why); repeat the command when they can")
}
