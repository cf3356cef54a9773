//! What is tested: every store, tree and lock that a registry lists, and named locks.
//!
//! An index, a scheme, a tree or a lock that joins its registry is tested from that moment on; nothing has to
//! be added here.

use farside_index::tree::NodeLock;
use farside_index::{IndexKind, TreeKind};
use farside_lock::LockKind;
use farside_sync::Scheme;

/// Something that runs can be made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// A store.
    Store {
        /// Its index.
        index: IndexKind,
        /// How it publishes.
        scheme: Scheme,
    },
    /// A tree.
    Tree {
        /// Its leaves.
        kind: TreeKind,
        /// Whether NICs have plain atomics only.
        is_plain: bool,
        /// How clients take turns to lock leaves.
        node_lock: NodeLock,
    },
    /// A lock.
    Lock(LockKind),
    /// Named locks, as applications use them.
    Named,
}

impl Target {
    /// All there are: each index with each scheme, each tree with and without masked atomics and with turns, each lock with its
    /// variants, and named locks.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let stores = IndexKind::ALL.iter().flat_map(|&(index, ..)| {
            let schemes = Scheme::named().map(|(scheme, _)| scheme);
            schemes.map(move |scheme| Self::Store { index, scheme })
        });
        let trees = TreeKind::of_values().flat_map(|kind| {
            let tree = |is_plain, node_lock| Self::Tree {
                kind,
                is_plain,
                node_lock,
            };
            let queue = NodeLock::by_name("declock").expect("it is a lock");
            let turns = [NodeLock::Hierarchical, NodeLock::OnChip, queue].map(|node_lock| tree(false, node_lock));
            [false, true]
                .map(|is_plain| tree(is_plain, NodeLock::Cas))
                .into_iter()
                .chain(turns)
        });
        stores
            .chain(trees)
            .chain(LockKind::named().map(|(kind, _)| Self::Lock(kind)))
            .chain([Self::Named])
            .collect()
    }

    /// The lock that it is, or is made of.
    #[must_use]
    pub fn lock(&self) -> Option<LockKind> {
        match self {
            Self::Tree {
                node_lock: NodeLock::Queue(kind),
                ..
            } => Some(*kind),
            Self::Store { .. } | Self::Tree { .. } => None,
            Self::Lock(kind) => Some(*kind),
            Self::Named => LockKind::by_name("declock"),
        }
    }

    /// Whether it is a tree, of values or of data pointers.
    #[must_use]
    pub fn is_tree(&self) -> bool {
        match self {
            Self::Tree { .. } => true,
            Self::Store { index, .. } => index.is_ordered(),
            Self::Lock(_) | Self::Named => false,
        }
    }

    /// Its name: `store:INDEX/SCHEME`, `ordered:INDEX/SCHEME` if the index is a tree, `tree:KIND`, `tree:KIND/plain`,
    /// `tree:KIND/TURNS`, `lock:KIND` or `named-locks`.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Store { index, scheme } => {
                let order = if index.is_ordered() { "ordered" } else { "store" };
                format!("{order}:{}/{}", index.name(), scheme.name())
            }
            Self::Tree {
                kind, is_plain: true, ..
            } => format!("tree:{}/plain", kind.name()),
            Self::Tree {
                kind,
                node_lock: NodeLock::Cas,
                ..
            } => format!("tree:{}", kind.name()),
            Self::Tree { kind, node_lock, .. } => format!("tree:{}/{}", kind.name(), node_lock.name()),
            Self::Lock(kind) => format!("lock:{}", kind.name()),
            Self::Named => "named-locks".to_owned(),
        }
    }

    /// Whether it keeps keys, which clients may lose no more than memory may lose blocks.
    #[must_use]
    pub fn keeps_keys(&self) -> bool {
        matches!(self, Self::Store { .. } | Self::Tree { .. })
    }

    /// The target of this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|target| target.name() == name)
    }

    /// Those whose name contains `part`.
    #[must_use]
    pub fn matching(part: &str) -> Vec<Self> {
        Self::all()
            .into_iter()
            .filter(|target| target.name().contains(part))
            .collect()
    }
}
