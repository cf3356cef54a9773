//! DecLock: a queue in far memory, hand-over between compute nodes, and local locks that keep the order of
//! asking across nodes (Zhang et al., *DecLock: A Case of Decoupled Locking for Disaggregated Memory*).
//!
//! # The CQL lock
//! An entry is a header and a circular queue ([`header`], [`queue`]):
//!
//! ```text
//! | header | entry 0 | entry 1 | ... | entry 15 |
//! 0        8         16              128        136
//! ```
//!
//! with 16 entries, which [`LockOptions::declock_capacity`] sets.
//!
//! Acquire (section 4.2):
//!  1. fetch-and-add joins the queue. The header before says whether the lock is ours: nobody is in the
//!     queue, or we want to read and nobody wants to write.
//!  2. Otherwise WRITE our entry, and wait for a letter.
//!
//! Release: fetch-and-add leaves the queue, and a READ in the same doorbell brings it. Whoever is next gets
//! a letter. An entry that is missing is read again.
//!
//! Only 8-byte fetch-and-adds and compare-and-swaps, and messages: every fabric has them.
//!
//! # When somebody dies
//! Whoever sees nobody get ahead for a lease resets the lock (`reset.rs`): it asks everybody in the
//! [`roster`], and goes on when all are done with the lock or cut off. So a client that is merely slow
//! holds what it holds until it has said otherwise, or can do nothing any more: there are no leases that it
//! would have to look at. The verbs of a client that was cut off fail; it has to start again with another
//! endpoint.
//!
//! # The local lock
//! The clients of a compute node ([`Site`](crate::Site)) have a local lock beside each CQL lock that
//! they use ([`local`]); the node is in the queue once at most, if it does not just leave it. The
//! [`Policy`] says whether the CQL lock stays when one of them releases it: with timestamps, it does if
//! nobody elsewhere asked before. Clients are told when the first of those elsewhere asked by the letter
//! that granted the CQL lock, or find out while they wait (sections 5.2 and 5.3).
//!
//! # Where it differs from its paper
//! - The version of an entry is stored plus one, so that zeros are what was never written.
//! - Whoever finds the queue full resets the lock instead of writing. Readers who share a lock need no
//!   entry, and may be more than the queue holds.
//! - An entry that was overwritten is a reason for a reset behind a writer only: see [`queue`].
//! - Resets are told apart by places instead of counters: see `reset.rs`.
//! - Who fails is found by silence, and cut off; there is no coordinator.
//! - A wait for a lease in which somebody got ahead is no reason for a reset.
//! - Timestamps of entries are those of asking for the local lock.
//!
//! Cost without contention: one atomic; one atomic and one READ. Once per endpoint, joining the roster:
//! one READ and one atomic.

mod client;
pub mod clock;
mod desk;
pub mod header;
mod leave;
pub mod local;
mod node;
pub mod queue;
mod reset;
pub mod roster;
#[cfg(test)]
mod testing;
pub mod timestamp;

use farside_fabric::{OpContext, RemoteAddr};

use client::Client;
use header::Header;
use local::{Asked, Handed, Policy};
use timestamp::Timestamp;

pub use leave::{leave, vouch};
pub(crate) use node::Node;
pub use node::Resets;

use crate::atomics::swap_now;
use crate::grant::Held;
use crate::inbox::Inbox;
use crate::patience::{self, until};
use crate::{Grant, Lock, LockError, LockOptions, Mode};

/// Where the queue starts; each of its entries has 8 bytes.
const QUEUE_AT: u64 = 8;

/// Bytes of an entry whose queue has this capacity.
#[must_use]
pub const fn entry_bytes(capacity: u64) -> u64 {
    QUEUE_AT + 8 * capacity
}

/// A client's side of DecLock.
#[derive(Debug)]
pub struct DecLock {
    node: Node,
    inbox: Inbox,
    policy: Policy,
}

impl DecLock {
    pub(crate) fn new(node: Node, inbox: Inbox, policy: Policy) -> Result<Self, LockError> {
        if node.roster().is_none() {
            return Err(LockError::NoRoster);
        }
        let capacity = node.capacity();
        if !(2..=header::CAPACITY_MAX).contains(&capacity) || !capacity.is_power_of_two() {
            return Err(LockError::Capacity { capacity });
        }
        Ok(Self { node, inbox, policy })
    }

    /// Whether its compute node remembers a lock.
    #[cfg(test)]
    pub(crate) fn knows(&self, entry: RemoteAddr) -> bool {
        self.node.known(entry).is_some()
    }

    fn client(&self, cx: &OpContext) -> Client {
        Client {
            endpoint: cx.endpoint().clone(),
            node: self.node.clone(),
            inbox: self.inbox.clone(),
            retries: cx.retry_meter(),
        }
    }
}

/// In plain calls, over mapped memory: see [`Locker::acquire_now`](crate::Locker::acquire_now).
impl DecLock {
    /// Joins a queue in which nobody is, from a node of which nobody uses the lock.
    pub(crate) fn acquire_now(&self, cx: &mut OpContext, entry: RemoteAddr, mode: Mode) -> Option<Grant> {
        self.node.member(cx.endpoint().id())?;
        let local = self.node.local(entry);
        let header = Header::now(cx, entry)?;
        if !local.is_idle() || header.size() != 0 || header.is_resetting() {
            return None;
        }
        // Whoever resets the lock waits for us from here on, if it is after the swap.
        local.begin();
        if !swap_now(cx, entry, header.0, header.after_joining(mode).0) {
            // Nobody has asked in this call.
            drop(local.end());
            return None;
        }
        if self.policy != Policy::Cql {
            let mut queue = local.queue.borrow_mut();
            let time = Timestamp::of_ns(0);
            let asked = queue.ask(mode, time, true);
            debug_assert!(matches!(asked, Asked::Local), "the node is idle");
            queue.taken(mode, None, self.policy);
        }
        Some(Grant::new(entry, mode, Held::Plain))
    }

    /// Leaves a queue in which nobody else is, neither from this node nor from another: there is no entry to look at.
    pub(crate) fn release_now(&self, cx: &mut OpContext, grant: &Grant) -> bool {
        let (entry, mode) = (grant.entry(), grant.mode());
        let local = self.node.local(entry);
        let has_queue = self.policy != Policy::Cql;
        let is_alone = !local.is_asked() && (!has_queue || local.queue.borrow().is_alone());
        let header = Header::now(cx, entry).filter(|header| is_alone && header.size() == 1 && !header.is_resetting());
        if !header.is_some_and(|header| swap_now(cx, entry, header.0, header.after_leaving(mode).0)) {
            return false;
        }
        drop(local.end());
        if has_queue {
            let mut queue = local.queue.borrow_mut();
            queue.leave(self.policy, false);
            queue.moved(self.policy, mode);
        }
        self.node.tidy(local);
        true
    }
}

impl Lock for DecLock {
    fn entry_bytes(options: &LockOptions) -> u64 {
        entry_bytes(options.declock_capacity)
    }

    async fn acquire(&self, cx: &mut OpContext, entry: RemoteAddr, mode: Mode) -> Result<Grant, LockError> {
        let (client, policy) = (self.client(cx), self.policy);
        let later = {
            let client = client.clone();
            async move |acquired: Result<(), LockError>| {
                if acquired.is_ok() {
                    // If that fails we are cut off, or the node is gone.
                    let _ = release(client, entry, mode, policy).await;
                }
            }
        };
        match until(
            cx.endpoint(),
            cx.deadline(),
            acquire(client, entry, mode, policy),
            later,
        )
        .await
        {
            Some(acquired) => acquired.map(|()| Grant::new(entry, mode, Held::Plain)),
            None => Err(LockError::Timeout { entry }),
        }
    }

    async fn release(&self, cx: &mut OpContext, grant: Grant) -> Result<(), LockError> {
        let entry = grant.entry();
        let work = release(self.client(cx), entry, grant.mode(), self.policy);
        patience::release(cx, entry, work).await
    }
}

/// Figure 10, lines 1 to 18.
async fn acquire(client: Client, entry: RemoteAddr, mode: Mode, policy: Policy) -> Result<(), LockError> {
    let local = client.node.local(entry);
    let time = Timestamp::of_ns(client.node.shared_clock_ns(client.endpoint.now_ns()));
    if policy == Policy::Cql {
        return client.take(&local, mode, time).await.map(drop);
    }
    let asked = local.queue.borrow_mut().ask(mode, time, !local.is_asked());
    match asked {
        Asked::Inside => return Ok(()),
        Asked::Local => {}
        Asked::Wait(turn, unknown) => {
            if let Some(held) = unknown.filter(|_| policy.asks_for_remote()) {
                // A hint: if it cannot be had, the lock is given on without.
                let remote = Box::pin(client.earliest_remote(entry, held)).await;
                local.queue.borrow_mut().note_remote(remote.unwrap_or(None));
            }
            if turn.come().await == Handed::Inside {
                return Ok(());
            }
        }
    }
    let taken = client.take(&local, mode, time).await;
    let mut queue = local.queue.borrow_mut();
    match taken {
        Ok(taken) => {
            queue.taken(mode, taken.remote, policy);
            Ok(())
        }
        Err(error) => {
            // Whoever is next may have another endpoint.
            queue.moved(policy, mode);
            Err(error)
        }
    }
}

/// Figure 10, lines 19 to 33.
async fn release(client: Client, entry: RemoteAddr, mode: Mode, policy: Policy) -> Result<(), LockError> {
    let local = client.node.local(entry);
    let released = if policy == Policy::Cql {
        client.give(&local, mode).await
    } else {
        let let_go = local.queue.borrow_mut().leave(policy, local.is_asked());
        match let_go {
            None => Ok(()),
            Some(mode) => {
                let given = client.give(&local, mode).await;
                local.queue.borrow_mut().moved(policy, mode);
                given
            }
        }
    };
    client.node.tidy(local);
    released
}

#[cfg(test)]
mod tests;
