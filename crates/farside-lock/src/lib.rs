//! Locks in far memory: who may change what.
//!
//! On the path: a synchronisation scheme or a tree takes a lock before it changes shared words, and
//! gives it back afterwards. A lock is a few bytes of far memory (its *entry*) and what each client
//! keeps for itself; it never allocates far memory.
//!
//! # What a lock is made of
//! - **The entry**, 8 or 16 bytes of far memory, or with a queue in it some more: [`Lock::entry_bytes`]. Its fields are declared once, and
//!   each change of it is a function `word -> word` or the operands of one atomic, tested without a fabric.
//! - **The client's side**, a [`Locker`]: what one client adapts and remembers.
//! - **The site**, a [`Site`]: what the clients of a compute node share. It has the settings, and an
//!   [`Inbox`](inbox::Inbox) for each endpoint.
//! - **Letters** ([`letter`]): a client that queues up takes a *seat* at its endpoint's inbox and puts the
//!   seat's number into the entry, so that others can write to it. Late and foreign letters are dropped. On
//!   every fabric a client that waits for a letter sleeps; over mapped memory it looks into its mailbox for
//!   about fifteen microseconds first, and lets others run in between.
//! - **The service** ([`service`]): an agent beside the memory node, where a paper needs one. It is a task of any
//!   endpoint; clients find it through a block of far memory.
//! - **The grant**, a [`Grant`]: what the lock needs to give itself back, the seat included.
//!
//! Over mapped memory a lock that is free is taken, and one for which nobody waits is given back, in a plain call
//! ([`Locker::acquire_now`]): by compare-and-swaps that leave nothing behind when they fail, where the protocol's own atomics join a queue
//! whatever they find. Whoever meets anybody goes the ordinary way; that costs one atomic more, there and nowhere else.
//!
//! A lock that needs an atomic which the fabric lacks either has a fallback, which its module documents
//! with its cost, or [`Locker::new`] refuses it with [`LockError::Unsupported`].
//!
//! # Contract
//! Each line is a test of the conformance suite (`tests/it/conformance.rs`), run for every lock of
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
//! - An acquire is polled to its end: who may change its mind gives it a deadline. (Dropped in the middle it may leave
//!   its place in a queue to nobody. The named locks of `farside-kv` see to that for applications.)
//! - **Sharing**: readers of a lock with shared mode are inside together.
//! - **Leases**: a grant of a lock with leases says until when it holds. A release after that fails with
//!   [`LockError::LeaseLost`].
//! - An acquire whose deadline passes fails with [`LockError::Timeout`] and leaves nothing that a
//!   later acquire of the same client would trip over. Who has queued up keeps its place without its client:
//!   a task of the endpoint waits on, and gives the lock back as soon as it is granted.
//!
//! # What a lock does when its holder dies
//! What its paper defines.
//!
//! - `cas`, `cas-backoff`: nothing. The word names the holder, and whoever knows that it is dead may
//!   write a zero.
//! - `dslr` and its variants: its lease runs out, and whoever waits takes all tickets back.
//! - `mcs`: nothing; everybody behind it waits for ever.
//! - `rpc`: nothing; what it held stays locked until another agent takes over, which knows of no locks.
//! - `shiftlock`: whoever waits sees that the lock stands still, and has the agent reset it; all who wait queue up anew.
//! - `drtm`: a reader's lease runs out. A dead writer is treated as that of `cas`.
//! - `rma-rw`, `cas-rw`: nothing.
//! - `declock`: whoever waits asks everybody who may hold the lock, and cuts off who does not answer. Nobody
//!   loses a lock that can still do anything under it.

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

/// What a client wants to do under the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Read: any number of holders at once, if the lock has shared mode.
    Shared,
    /// Write: alone.
    Exclusive,
}

/// One client's side of a lock algorithm: what it adapts and remembers, for all entries that it
/// uses. The contract stands at the top of this crate.
pub trait Lock {
    /// Bytes of an entry; its address must be a multiple of 8, or of 16 if it has 16 bytes.
    fn entry_bytes(options: &LockOptions) -> u64;

    /// Waits until the lock is held. Each repeated verb counts as a retry of `cx`.
    ///
    /// # Errors
    /// [`LockError::Timeout`] after the deadline of `cx`, or what the fabric reports.
    async fn acquire(&self, cx: &mut OpContext, entry: RemoteAddr, mode: Mode) -> Result<Grant, LockError>;

    /// Gives the lock back.
    ///
    /// # Errors
    /// What the fabric reports; the lock may then still be held.
    async fn release(&self, cx: &mut OpContext, grant: Grant) -> Result<(), LockError>;
}
