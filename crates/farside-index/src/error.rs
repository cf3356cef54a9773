//! Errors of indexes.

use farside_fabric::{FabricError, NodeId, RemoteAddr};
use farside_lock::LockError;
use farside_pool::PoolError;

use farside_sync::{NODE_BYTES_MAX, NODES_MAX};

use crate::index::IndexKind;
use crate::item::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// An index operation failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// The pool or the fabric failed.
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
    /// The pool was made with another index.
    #[error("the pool has the index {there}, not {wanted}: leave --index out, or use other memory")]
    OtherIndex {
        /// What it has.
        there: &'static str,
        /// What was asked for.
        wanted: &'static str,
    },
    /// The fabric lacks what the synchronisation scheme needs.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The index was made for a scheme without locks.
    #[error(
        "the index was made without lock entries, which {scheme} needs: choose another --sync, or use other memory"
    )]
    NoLocks {
        /// The scheme.
        scheme: &'static str,
    },
    /// There is no memory for a table of locks where it should be.
    #[error(
        "the nodes have no memory on their NICs, which the node lock on-chip needs: choose another one, or simulate"
    )]
    NoChip,
    /// The directory of a RACE table cannot grow any more.
    #[error("the index is full: its directory has the largest depth, {depth}")]
    Full {
        /// The depth.
        depth: u32,
    },
    /// The directory of a RACE table holds an invalid word.
    #[error("the directory of the index holds {word:#x} at {at}: run `farside fsck`")]
    DirectoryDamaged {
        /// Where.
        at: RemoteAddr,
        /// What is there.
        word: u64,
    },
    /// A subtable of a RACE table is not the one that the directory says.
    #[error("the subtable at {at} is not the one that its key belongs to: run `farside fsck`")]
    SubtableDamaged {
        /// Where.
        at: RemoteAddr,
    },
    /// A node of a tree is not what its parent says, or torn although no client is writing it.
    #[error("the tree node at {at} is damaged, or is not the one that its key belongs to: run `farside fsck`")]
    NodeDamaged {
        /// Where.
        at: RemoteAddr,
    },
    /// A scan of an ordered index continues with a cursor that this process does not know.
    #[error(
        "invalid cursor {cursor}: an index that keeps keys in order knows the last {kept} cursors, in the process that gave them \
         out; start again with 0"
    )]
    CursorUnknown {
        /// The cursor.
        cursor: u64,
        /// How many are kept.
        kept: usize,
    },
    /// The index does not keep keys in order.
    #[error(
        "the index {index} does not keep keys in order: ranges need memory that was made with --index {}",
        names_of_ordered()
    )]
    Unordered {
        /// The name of the index.
        index: &'static str,
    },
    /// Data pointers do not reach all of a node's memory.
    #[error(
        "{node} has {bytes} bytes, but data pointers reach only {NODE_BYTES_MAX} of a node: divide it into several nodes"
    )]
    NodeTooLarge {
        /// The node.
        node: NodeId,
        /// Its bytes that the pool uses.
        bytes: u64,
    },
    /// Data pointers do not reach all nodes.
    #[error("the pool has {count} nodes, but data pointers reach only {NODES_MAX}")]
    TooManyNodes {
        /// How many there are.
        count: usize,
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

impl IndexError {
    /// The same for a search for lost blocks, which knows errors of the pool only.
    #[must_use]
    pub fn into_pool(self) -> PoolError {
        self.into()
    }
}

/// What a recovery needs of a walk: pool errors only.
impl From<IndexError> for PoolError {
    fn from(error: IndexError) -> Self {
        match error {
            IndexError::Pool(error) => error,
            IndexError::Damaged { slot: at, .. }
            | IndexError::DirectoryDamaged { at, .. }
            | IndexError::SubtableDamaged { at }
            | IndexError::NodeDamaged { at } => Self::Damaged {
                node: at.node(),
                reason: error.to_string(),
            },
            other => Self::Damaged {
                node: NodeId::new(0),
                reason: other.to_string(),
            },
        }
    }
}

/// The names of the indexes in the order of keys: `one, another or a third`.
fn names_of_ordered() -> String {
    let ordered = IndexKind::ALL.iter().filter(|(kind, ..)| kind.is_ordered());
    let names: Vec<&str> = ordered.map(|(_, name, _)| *name).collect();
    let (last, others) = names.split_last().expect("some are");
    format!("{} or {last}", others.join(", "))
}
