//! Errors of locks.

use farside_fabric::{FabricError, RemoteAddr};

/// An acquire or a release failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The fabric failed.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The fabric lacks an atomic that the lock needs.
    #[error("the lock {lock} needs {needs}, which this fabric does not have")]
    Unsupported {
        /// The lock's name.
        lock: &'static str,
        /// What it needs.
        needs: &'static str,
    },
    /// The endpoint has no free seat: lock words number at most 4095 of them.
    #[error("an endpoint queues up in at most 4095 places at a time; no place is left for the lock at {entry}")]
    NoSeat {
        /// The lock.
        entry: RemoteAddr,
    },
    /// The lock has as many readers as its word can count.
    #[error("the lock at {entry} has 16384 readers already")]
    TooManyReaders {
        /// The lock.
        entry: RemoteAddr,
    },
    /// The settings do not name a lock service.
    #[error("this needs a lock service; name the address of its block in `LockOptions::service`")]
    NoService,
    /// There is a lock service, but no agent answers.
    #[error("no agent serves the lock service at {block}")]
    NoAgent {
        /// The service's block.
        block: RemoteAddr,
    },
    /// The lock was not free before the deadline.
    #[error("the lock at {entry} was not free before the deadline")]
    Timeout {
        /// The lock.
        entry: RemoteAddr,
    },
    /// The settings do not name a roster, and the resets of this lock ask all clients on it.
    #[error(
        "declock needs a roster: the address of {} zeroed bytes of far memory in the options of the site",
        crate::declock::roster::ROSTER_BYTES
    )]
    NoRoster,
    /// The capacity of the queue does not fit into the lock's header.
    #[error(
        "`LockOptions::declock_capacity` is a power of two from 2 to {}, not {capacity}",
        crate::declock::header::CAPACITY_MAX
    )]
    Capacity {
        /// The setting.
        capacity: u64,
    },
    /// The roster has no place left for this endpoint.
    #[error("the roster at {roster} lists 1023 endpoints; no place is left for another")]
    RosterFull {
        /// The roster.
        roster: RemoteAddr,
    },
    /// The lease of a grant had expired when it was released. Another client may hold the lock by now; nothing was
    /// changed.
    #[error("the lease of the lock at {entry} ran out before it was released")]
    LeaseLost {
        /// The lock.
        entry: RemoteAddr,
    },
}
