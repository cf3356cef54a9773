//! Locks in far memory: who may change what.
//!
//! On the path: a synchronisation scheme or a tree takes a lock before it changes shared words, and
//! gives it back afterwards. A lock is a few bytes of far memory (its *entry*) and what each client
//! keeps for itself; it never allocates far memory.
//!
//! # Contract
//! Each line is a test of the conformance suite (`tests/conformance.rs`), run for every lock of
//! [`LockKind::ALL`].
//!
//! - **Exclusion**: between a grant in [`Mode::Exclusive`] and its release nobody else holds the lock.
//!   A lock without shared mode grants [`Mode::Shared`] as if it were exclusive.
//! - **Visibility**: what a holder wrote to the lock's node before its release is there for the next
//!   holder.
//! - **Progress**: while holders release, some waiting client is granted the lock. Locks that promise
//!   an order say so in [`LockKind::is_ordered`].
//! - **Zero**: an entry of zeros is a free lock.
//! - A client asks for one lock at a time, and never for one that it holds.
//! - An acquire whose deadline passes fails with [`LockError::Timeout`] and leaves nothing that a
//!   later acquire of the same client would trip over.
//!
//! # What a lock does when its holder dies
//! What its paper defines. `cas` and `cas-backoff` define nothing: the word names the holder, and
//! whoever knows that it is dead may write a zero.

#![forbid(unsafe_code)]

pub mod backoff;
pub mod cas;
pub mod error;
pub mod registry;
pub mod word;

use farside_fabric::{Endpoint, OpContext, RemoteAddr};

pub use error::LockError;
pub use registry::{LockKind, Locker};

/// What a client wants to do under the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Read: any number of holders at once, if the lock has shared mode.
    Shared,
    /// Write: alone.
    Exclusive,
}

/// A lock that is held; give it to `release`.
///
/// Not a guard that releases when dropped: a release is a verb, which may fail, and has to be awaited.
#[derive(PartialEq, Eq, Debug)]
#[must_use = "a lock that is not released stays locked"]
pub struct Grant {
    entry: RemoteAddr,
    mode: Mode,
}

impl Grant {
    /// The lock.
    #[must_use]
    pub fn entry(&self) -> RemoteAddr {
        self.entry
    }

    /// How it is held.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }
}

/// One client's side of a lock algorithm: what it adapts and remembers, for all entries that it
/// uses. The contract stands at the top of this crate.
pub trait Lock {
    /// Bytes of an entry; its address must be a multiple of 8, or of 16 from 16 bytes on.
    const ENTRY_BYTES: u64;

    /// Waits until the lock is held. Each repeated verb counts as a retry of `cx`.
    ///
    /// # Errors
    /// [`LockError::Timeout`] after the deadline of `cx`, or what the fabric reports.
    async fn acquire<E: Endpoint>(
        &self,
        cx: &mut OpContext<E>,
        entry: RemoteAddr,
        mode: Mode,
    ) -> Result<Grant, LockError>;

    /// Gives the lock back.
    ///
    /// # Errors
    /// What the fabric reports; the lock may then still be held.
    async fn release<E: Endpoint>(&self, cx: &mut OpContext<E>, grant: Grant) -> Result<(), LockError>;
}
