//! What is tested: every store and every lock that a registry lists, and named locks.
//!
//! An index, a scheme or a lock that joins its registry is tested from that moment on; nothing has to
//! be added here.

use farside_index::IndexKind;
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
    /// A lock.
    Lock(LockKind),
    /// Named locks, as applications use them.
    Named,
}

impl Target {
    /// All there are: each index with each scheme, each lock with its variants, and named locks.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let stores = IndexKind::ALL
            .iter()
            .flat_map(|&(index, ..)| Scheme::named().map(move |(scheme, _)| Self::Store { index, scheme }));
        stores
            .chain(LockKind::named().map(|(kind, _)| Self::Lock(kind)))
            .chain([Self::Named])
            .collect()
    }

    /// The lock that it is, or is made of.
    #[must_use]
    pub fn lock(&self) -> Option<LockKind> {
        match self {
            Self::Store { .. } => None,
            Self::Lock(kind) => Some(*kind),
            Self::Named => LockKind::by_name("declock"),
        }
    }

    /// Its name: `store:INDEX/SCHEME`, `lock:KIND` or `named-locks`.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Store { index, scheme } => format!("store:{}/{}", index.name(), scheme.name()),
            Self::Lock(kind) => format!("lock:{}", kind.name()),
            Self::Named => "named-locks".to_owned(),
        }
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
