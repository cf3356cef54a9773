//! A client that rests: its thread does something else, and another one renews its lease.
//!
//! On the path: nowhere. A thread that embeds the store is not there for the housekeeping while it
//! runs its own code, yet a client that published no epoch would keep every other one from reclaiming
//! memory. So a client of the same process stands in for it:
//!
//! 1. The client comes to rest: no operation and no tick of it is under way ([`Pool::is_at_rest`]).
//!    From now on it executes nothing.
//! 2. The other one renews its lease and publishes the epoch in its place ([`Pool::stand_in_for`]),
//!    which is true: nothing is pinned.
//! 3. If somebody has died, the resting client can not search for what the dead one held, and would
//!    hold up everybody who does. Then it is given up ([`Pool::give_up`]), and joins anew when its
//!    thread comes back. It had no verb under way, so that is as good as cutting it off.
//! 4. When the thread comes back, nobody stands in any more, and before its first operation the client
//!    takes over the epoch ([`Pool::resume`]).
//!
//! Who stands in when, and that no two of these overlap, is the embedding's to decide.
//!
//! Invariant: a client pins nothing between coming to rest and the end of `resume`, which reads the
//! global epoch and the watched word like any tick, in this order. So the grace period holds.

use farside_fabric::{Batch, Deadline, LocalFuture, NodeId, OpContext, RemoteAddr, Slice};

use crate::client::{self, Liveness, PROGRESS_AT};
use crate::error::PoolError;
use crate::layout::{DEATHS_AT, EPOCH_AT, Owner};
use crate::maintenance::{COUNTS_BYTES, counts};
use crate::pool::Pool;

/// What became of a resting client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rest {
    /// Its lease is renewed.
    Renewed,
    /// Others wait for it, since somebody has died, or since nodes come or go: it should come back, or be given up.
    IsWanted,
    /// It was declared dead, or has left.
    IsOver,
}

impl Pool {
    /// Whether no operation and no tick of this client is under way.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.shared.epochs.is_unpinned() && self.shared.ticking.try_lock().is_ok()
    }

    /// Does for a client that rests what a tick of its own would do for the others.
    ///
    /// # Errors
    /// What the fabric reports.
    pub fn stand_in_for<'f>(&'f self, owner: Owner) -> LocalFuture<'f, Result<Rest, PoolError>> {
        Box::pin(async move {
            let mut cx = OpContext::new(self.shared.endpoint.clone());
            cx.set_deadline(self.rest_deadline());
            let (entry, live) = client::owner_state(owner, Liveness::Live);
            let lease_at = entry.plus(PROGRESS_AT);
            let mut batch = Batch::new();
            let state = batch.read_word(entry);
            let lease = batch.read_word(lease_at);
            let audited = batch.read_word(entry.plus(6 * 8));
            let epoch = batch.read_word(RemoteAddr::new(NodeId::new(0), EPOCH_AT));
            // And the version of the table of nodes behind it.
            batch.read(RemoteAddr::new(NodeId::new(0), DEATHS_AT), Slice::first(COUNTS_BYTES));
            cx.post(&mut batch).await?;
            if batch.result(state) != live {
                return Ok(Rest::IsOver);
            }
            let [deaths, members, _] = counts(&cx);
            cx.rely_on_words();
            let (audited, known) = client::read_audited(batch.result(audited));
            // A node has come or goes: only the client itself can connect to it.
            if deaths > audited || members as u16 != known {
                return Ok(Rest::IsWanted);
            }
            // The resting client may have been declared dead since that was read. But its entry is not used again before
            // every living client, this one included, has noticed the death and parked, some ticks from now.
            let mut progress = Batch::new();
            progress.write_word(lease_at, batch.result(lease) + 1);
            progress.write_word(lease_at.plus(8), batch.result(epoch));
            cx.post(&mut progress).await?;
            Ok(Rest::Renewed)
        })
    }

    /// Declares a client dead that rests and will never execute anything again.
    ///
    /// # Errors
    /// What the fabric reports; the others find out when its lease has run out.
    pub fn give_up<'f>(&'f self, owner: Owner) -> LocalFuture<'f, Result<(), PoolError>> {
        Box::pin(async move { self.declare_dead(owner).await })
    }

    /// Takes up again what others did while this client was at rest. To be called before anything
    /// else of this client runs.
    ///
    /// # Errors
    /// [`PoolError::LeaseLost`] if it was declared dead meanwhile; what the fabric reports.
    pub fn resume<'f>(&'f self) -> LocalFuture<'f, Result<(), PoolError>> {
        Box::pin(async move {
            let mut cx = OpContext::new(self.shared.endpoint.clone());
            cx.set_deadline(self.rest_deadline());
            let entry = client::entry_addr(self.shared.owner.client);
            let lease = cx.read_word(entry.plus(PROGRESS_AT)).await?;
            self.shared.rested.set(Some(lease));
            self.tick().await
        })
    }

    fn rest_deadline(&self) -> Deadline {
        self.shared.endpoint.deadline_in(self.shared.options.lease_ns)
    }
}
