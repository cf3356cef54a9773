//! Locks in far memory.
//!
//! On the path: a synchronisation scheme or a tree acquires a lock before it changes shared words, and releases it
//! afterwards. A lock is a few bytes of far memory (its *entry*) and the local state of each client; it never allocates
//! far memory.
//!
//! # What a lock is made of
//! - **The entry**: 8 or 16 bytes of far memory, or more if it contains a queue: [`Lock::entry_bytes`]. Its fields are
//!   declared once, and each change of it is a function `word -> word` or the operands of one atomic, tested without a
//!   fabric.
//! - **The client's side**, a [`Locker`]: the local state of one client.
//! - **The site**, a [`Site`]: what the clients of a compute node share: the settings, and an [`Inbox`](inbox::Inbox)
//!   for each endpoint.
//! - **Letters** ([`letter`]): a client that queues up takes a *seat* at its endpoint's inbox and puts the seat's
//!   number into the entry, so that others can write to it. Late letters, and those for others, are dropped. On every
//!   fabric a client that waits for a letter sleeps; over mapped memory it first polls its mailbox for about fifteen
//!   microseconds, and lets others run in between.
//! - **The service** ([`service`]): an agent at the memory node, where a paper needs one. It can be a task of any
//!   endpoint; clients find it through a block of far memory.
//! - **The grant**, a [`Grant`]: what a release needs, including the seat.
//!
//! Over mapped memory a free lock is acquired, and a lock for which nobody waits is released, in a plain call
//! ([`Locker::acquire_now`]): by compare-and-swaps that leave nothing behind when they fail, whereas the protocol's own
//! atomics join a queue in any case. Under contention the ordinary protocol follows, which then costs one more atomic,
//! over mapped memory only.
//!
//! A lock that needs an atomic which the fabric lacks either has a fallback, which its module documents
//! with its cost, or [`Locker::new`] refuses it with [`LockError::Unsupported`].
//!
//! # Contract
//! Each item is a test of the conformance suite (`tests/it/conformance.rs`), run for every lock of [`LockKind::ALL`].
//!
//! - **Exclusion**: between a grant in [`Mode::Exclusive`] and its release nobody else holds the lock.
//!   A lock without shared mode grants [`Mode::Shared`] as if it were exclusive.
//! - **Visibility**: what a holder wrote to the lock's node before its release is visible to the next holder.
//! - **Progress**: as long as holders release the lock, some waiting client is granted it. Locks that promise an order
//!   say so in [`LockKind::is_ordered`].
//! - **Zero**: an entry of zeros is a free lock.
//! - A client acquires one lock at a time, and never one that it holds.
//! - An acquire is polled to completion; to be able to give up, set a deadline. (If the future is dropped in the
//!   middle, its place in a queue may stay without an owner. The named locks of `farside-kv` take care of this for
//!   applications.)
//! - **Sharing**: readers of a lock with shared mode hold it at the same time.
//! - **Leases**: a grant of a lock with leases says until when it is valid. A release after that fails with
//!   [`LockError::LeaseLost`].
//! - An acquire whose deadline passes fails with [`LockError::Timeout`] and leaves nothing that would disturb a later
//!   acquire of the same client. If it has queued up, it keeps its place: a task of the endpoint continues to wait, and
//!   releases the lock as soon as it is granted.
//!
//! # What a lock does when its holder dies
//! This is as its paper defines it.
//!
//! - `cas`, `cas-backoff`: nothing. The word names the holder, and a client that knows that the holder is dead may
//!   write a zero.
//! - `dslr` and its variants: the lease expires, and a waiting client resets the tickets.
//! - `mcs`: nothing; all clients behind the holder wait for ever.
//! - `rpc`: nothing; its locks stay held until another agent takes over, which starts without any locks held.
//! - `shiftlock`: a waiting client notices that the lock makes no progress, and has the agent reset it; all waiting
//!   clients queue up anew.
//! - `drtm`: a reader's lease expires. A dead writer is treated like that of `cas`.
//! - `rma-rw`, `cas-rw`: nothing.
//! - `declock`: a waiting client asks all clients that may hold the lock, and cuts off those that do not answer. No
//!   client loses a lock while it can still act under it.

#![forbid(unsafe_code)]

mod atomics;
pub mod backoff;
pub mod cas;
pub mod cas_rw;
pub mod cider;
pub mod declock;
pub mod drtm;
pub mod dslr;
pub mod error;
pub mod grant;
pub mod inbox;
pub mod letter;
pub mod mcs;
pub mod patience;
pub mod phases;
pub mod registry;
pub mod rma_rw;
pub mod rpc;
pub mod service;
pub mod shiftlock;
pub mod site;
#[cfg(test)]
mod testing;
pub mod word;

use farside_fabric::{OpContext, RemoteAddr};

pub use error::LockError;
pub use grant::Grant;
pub use registry::{Leases, LockKind, Locker};
pub use site::{LockOptions, Site};

/// How a lock is acquired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// For reading: any number of holders at once, if the lock has shared mode.
    Shared,
    /// For writing: one holder.
    Exclusive,
}

/// One client's side of a lock algorithm: its local state, for all entries that it uses. The contract is in the
/// documentation of this crate.
pub trait Lock {
    /// Bytes of an entry; its address must be a multiple of 8, or of 16 if it has 16 bytes.
    fn entry_bytes(options: &LockOptions) -> u64;

    /// Acquires the lock. Each repeated verb counts as a retry of `cx`.
    ///
    /// # Errors
    /// [`LockError::Timeout`] after the deadline of `cx`, or an error of the fabric.
    async fn acquire(&self, cx: &mut OpContext, entry: RemoteAddr, mode: Mode) -> Result<Grant, LockError>;

    /// Releases the lock.
    ///
    /// # Errors
    /// Errors of the fabric; the lock may then still be held.
    async fn release(&self, cx: &mut OpContext, grant: Grant) -> Result<(), LockError>;
}
