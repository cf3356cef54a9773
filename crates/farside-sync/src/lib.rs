//! Synchronisation schemes: how the pointer to an item is replaced when several clients compete for it.
//!
//! On the path: an index has found the slot and written the new item to a block that is not linked yet; the scheme
//! publishes it. A SEARCH takes no part in this: it reads the slot and follows the pointer.
//!
//! A scheme is one file and one line of [`Scheme`]. With any of them the clients of a compute node may combine their
//! operations ([`local`]).

#![forbid(unsafe_code)]

pub mod cider;
pub mod contention;
pub mod farside;
pub mod local;
pub mod optimistic;
pub mod pessimistic;
pub mod pointer;
pub mod synchroniser;
pub mod turn;

use farside_lock::{LockKind, LockOptions};

pub use contention::CreditOptions;
pub use pointer::{NODE_BYTES_MAX, NODES_MAX, Pointer, SizeHint};
pub use synchroniser::{Combined, Entered, Intent, Synchroniser, Target};
pub use turn::Turn;

/// The outcome of an attempt to replace a pointer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Publish {
    /// The new pointer is in place; the caller retires what the old one linked.
    Replaced {
        /// The old pointer.
        old: Pointer,
    },
    /// Another client was faster: the slot holds `current`, and nothing was changed.
    Lost {
        /// What the slot holds instead of what was expected.
        current: Pointer,
    },
}

impl Publish {
    /// Whether the new pointer is in place.
    #[inline]
    #[must_use]
    pub fn is_replaced(self) -> bool {
        matches!(self, Self::Replaced { .. })
    }
}

/// How an index synchronises its clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SyncOptions {
    /// How pointers are replaced.
    pub scheme: Scheme,
    /// Whether the clients of a compute node combine their writes of a key, and their reads: see [`local`].
    pub local_wc: bool,
    /// When a key counts as hot, for schemes that treat hot keys differently.
    pub credits: CreditOptions,
    /// After how long a lock is taken from a client that does not release it, in nanoseconds, for schemes with locks;
    /// with queues it takes three times as long.
    pub lease_ns: u64,
}

impl From<Scheme> for SyncOptions {
    fn from(scheme: Scheme) -> Self {
        Self {
            scheme,
            local_wc: false,
            credits: CreditOptions::default(),
            lease_ns: LockOptions::default().lease_ns,
        }
    }
}

/// The parts of `cider`, each of which can be left out (CIDER, section 5.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parts {
    /// Global write combining (section 4.2).
    pub combines: bool,
    /// Contention-aware synchronisation (section 4.3).
    pub switches: bool,
}

/// The schemes, chosen by name at start-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// O-SYNC: compare-and-swap, with retries.
    Optimistic,
    /// Updates swap the pointer under the identity of the slot.
    Farside,
    /// Updates take a lock.
    Lock(LockKind),
    /// Updates queue up and are combined where there is contention.
    Cider(Parts),
}

impl Scheme {
    /// Every scheme with its name on the command line and one line about it.
    pub const ALL: [(Self, &'static str, &'static str); 5] = [
        (
            Self::Farside,
            "farside",
            "updates swap the data pointer under the identity of its slot, and never lose to each other",
        ),
        (
            Self::Optimistic,
            "optimistic",
            "O-SYNC: compare-and-swap of the data pointer, retried by whoever loses",
        ),
        (
            Self::Lock(LockKind::CasBackoff),
            "cas-backoff",
            "pessimistic: the CAS lock with back-off for each data pointer (CIDER, section 5.1)",
        ),
        (
            Self::Lock(LockKind::ShiftLockMutex),
            "shiftlock-mutex",
            "pessimistic: a ShiftLock without readers for each data pointer (CIDER, section 2.3)",
        ),
        (
            Self::Cider(Parts {
                combines: true,
                switches: true,
            }),
            "cider",
            "updates of hot keys queue up, and the last one writes for all (CIDER)",
        ),
    ];

    /// Schemes of [`Scheme::ALL`] with another setting, with their names and one line about each.
    pub const VARIANTS: [(Self, &'static str, &'static str); 5] = [
        (Self::Lock(LockKind::Cas), "cas", "cas-backoff that tries again at once"),
        (
            Self::Lock(LockKind::ShiftLock),
            "shiftlock",
            "shiftlock-mutex that would let readers in",
        ),
        (
            Self::Cider(Parts {
                combines: false,
                switches: true,
            }),
            "cider-no-wc",
            "cider without global write combining (section 5.4)",
        ),
        (
            Self::Cider(Parts {
                combines: true,
                switches: false,
            }),
            "cider-no-ca",
            "cider that queues up for cold keys, too (section 5.4)",
        ),
        (
            Self::Cider(Parts {
                combines: false,
                switches: false,
            }),
            "cider-queue",
            "the queue of cider alone: a shiftlock-mutex whose holder hands it over without waiting for its count",
        ),
    ];

    /// Every scheme and every variant with its name.
    pub fn named() -> impl Iterator<Item = (Self, &'static str)> {
        let all = Self::ALL.iter().chain(&Self::VARIANTS);
        all.map(|&(scheme, name, _)| (scheme, name))
    }

    /// The scheme with this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::named()
            .find(|(_, known)| *known == name)
            .map(|(scheme, _)| scheme)
    }

    /// Its name on the command line.
    ///
    /// # Panics
    /// If it is a lock or a combination of parts without a name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::named()
            .find(|(scheme, _)| *scheme == self)
            .map(|(_, name)| name)
            .expect("all are listed")
    }

    /// Whether an index needs a lock entry of [`LOCK_BYTES`] for each data pointer.
    #[must_use]
    pub fn needs_locks(self) -> bool {
        matches!(self, Self::Lock(_) | Self::Cider(_))
    }

    /// Whether it treats hot keys differently.
    #[must_use]
    pub fn switches(self) -> bool {
        matches!(self, Self::Cider(Parts { switches: true, .. }))
    }

    /// Whether its updates can be combined.
    #[must_use]
    pub fn combines(self) -> bool {
        matches!(self, Self::Cider(Parts { combines: true, .. }))
    }
}

/// Bytes of the lock entry of a data pointer, zeros at first; its address is a multiple of this.
pub const LOCK_BYTES: u64 = farside_lock::cider::ENTRY_BYTES;
