//! The small task of every client: renew the lease, move the epoch, bring blocks home, notice the
//! dead.
//!
//! One tick:
//!  1. read the global epoch, the count of deaths and this client's own state word;
//!  2. end the limbo of blocks whose grace period is over, send foreign blocks home;
//!  3. write this client's progress: lease, published epoch, drained, parked, audited;
//!  4. if the epoch has not moved for a while, look at all clients: advance it if all have published
//!     it; cut off and declare dead who has not renewed its lease.
//!
//! The client with the smallest index looks first, so usually one of them does it for all.
//!
//! A lease is judged by the judge's own clock: from when it saw the renewal count last change. While
//! the table is out of reach nobody can renew a lease: when an answer has taken half a lease, as it
//! does when the node's primary has died, all leases begin anew. A client is declared dead only after
//! the fabric has cut it off, so a slow client cannot touch what is handed on; it learns of its death from its state word, or from the fabric.

use std::collections::BTreeMap;

use farside_fabric::mutant::is_planted;
use farside_fabric::{
    Batch, Deadline, EndpointId, FabricError, Fence, LocalFuture, NodeId, OpContext, RemoteAddr, Slice,
};

use crate::client::{self, ClientEntry, Liveness, PROGRESS_AT, PROGRESS_BYTES};
use crate::error::PoolError;
use crate::layout::{CLIENT_BYTES, DEATHS_AT, EPOCH_AT, Owner};
use crate::pool::Pool;
use crate::snapshot;

/// How long a node may take to cut a client off, at most; and not longer than a quarter of a lease.
const FENCE_NS_MAX: u64 = 1_000_000_000;
/// How often a client looks whether it may reuse blocks of others' chunks again.
const HOMING_TICKS: u64 = 4;
/// How many chunks' free maps are collected per visit, one visit every so many ticks.
const HOUSEKEEPING_TICKS: u64 = 64;
/// How many chunks are given back per visit: few, so that the lease is renewed in time.
const CHUNKS_FREED: usize = 4;
/// How many unused chunks of a class a client keeps.
const UNUSED_KEEP: usize = 1;

/// What the task remembers from tick to tick.
#[derive(Default, Debug)]
pub(crate) struct Watch {
    ticks: u64,
    lease: u64,
    /// When this client renewed its lease last.
    renewed: u64,
    epoch: u64,
    /// See [`ClientEntry::drained`].
    drained: u64,
    /// The tick at which the epoch was last seen to move, or this client last tried to move it.
    epoch_tick: u64,
    /// For each client the lease count, and when that was first seen. An endpoint's identity is never
    /// used again, an entry of the table is.
    leases: BTreeMap<EndpointId, (u64, u64)>,
}

/// Bytes of the words that every tick reads after the epoch.
pub(crate) const COUNTS_BYTES: u32 = 24;

/// They, at the start of the buffer: deaths, the version of the table of nodes, and the word of the snapshot.
pub(crate) fn counts(cx: &OpContext) -> [u64; 3] {
    let word = |at: usize| {
        let bytes = cx.buffer()[at..].first_chunk();
        u64::from_le_bytes(*bytes.expect("three words were read"))
    };
    [word(0), word(8), word(16)]
}

impl Pool {
    /// Runs until the client leaves or is declared dead.
    pub(crate) async fn keep_alive(self) {
        loop {
            self.shared.endpoint.sleep(self.shared.options.tick_ns).await;
            if self.check_alive().is_err() {
                return;
            }
            let ticked = self.tick().await;
            match ticked {
                Ok(()) => {}
                // It has left while this tick waited for its turn.
                Err(_) if self.check_alive().is_err() => return,
                Err(error @ (PoolError::LeaseLost | PoolError::Fabric(FabricError::Fenced { .. }))) => {
                    tracing::warn!("client {}: {error}", self.shared.owner.client);
                    self.shared.ended.borrow_mut().get_or_insert(PoolError::LeaseLost);
                    return;
                }
                // The node may come back; until then operations report the error themselves.
                Err(error) => tracing::debug!("client {}: {error}", self.shared.owner.client),
            }
        }
    }

    /// One round of housekeeping.
    ///
    /// # Errors
    /// [`PoolError::LeaseLost`] if this client was declared dead; what the fabric reports.
    pub fn tick<'f>(&'f self) -> LocalFuture<'f, Result<(), PoolError>> {
        Box::pin(async move {
            let mut watch = self.shared.ticking.lock().await;
            self.check_alive()?;
            let start_ns = self.shared.endpoint.now_ns();
            let looked = self.keep_house(&mut watch).await;
            if looked.is_err() {
                self.renew_all_if_late(&mut watch, start_ns);
            }
            match &looked {
                // It can still tell who is dead.
                Ok(true) => *self.shared.ailment.borrow_mut() = None,
                // Not before it has looked at all of them may those who wait for somebody take it for well.
                Ok(false) => {}
                Err(error) => *self.shared.ailment.borrow_mut() = Some(error.clone()),
            }
            looked.map(drop)
        })
    }

    /// What was asked at an instant is answered now, or given up. If that has taken so long that the table may have been out of
    /// reach for all, nobody is judged by the time before; returns whether that is so.
    ///
    /// Half a lease, and the quarter that may have passed since a lease was renewed, leave one for those who come back later.
    fn renew_all_if_late(&self, watch: &mut Watch, asked_ns: u64) -> bool {
        let is_late = self.shared.endpoint.now_ns() - asked_ns > self.shared.options.lease_ns / 2;
        if is_late {
            watch.leases.clear();
        }
        is_late
    }

    /// A round; returns whether this client has looked at all others.
    async fn keep_house(&self, watch: &mut Watch) -> Result<bool, PoolError> {
        let mut cx = OpContext::new(self.shared.endpoint.clone());
        cx.set_deadline(self.shared.endpoint.deadline_in(self.shared.options.lease_ns));
        watch.ticks += 1;
        self.shared.ticks.set(watch.ticks);

        let asked_ns = self.shared.endpoint.now_ns();
        let node = NodeId::new(0);
        let (entry, alive) = client::owner_state(self.shared.owner, Liveness::Live);
        let mut batch = Batch::new();
        let state = batch.read_word(entry);
        let epoch = batch.read_word(RemoteAddr::new(node, EPOCH_AT));
        // The count of deaths, and behind it the version of the table of nodes and the word of the snapshot, which has to be read
        // after the epoch: see `snapshot`.
        batch.read(RemoteAddr::new(node, DEATHS_AT), Slice::first(COUNTS_BYTES));
        // After the epoch: what was unlinked before the epoch became what it is has changed the word.
        let watched = self.shared.watch.get().map(|(word, _)| (word, batch.read_word(word)));
        cx.post(&mut batch).await?;
        self.renew_all_if_late(watch, asked_ns);
        let [deaths, members, phase] = counts(&cx);
        cx.rely_on_words();
        if batch.result(state) != alive {
            return Err(PoolError::LeaseLost);
        }
        if let Some((word, position)) = watched
            && !is_planted("pool: a watched word not looked at")
        {
            self.shared.watch.set(Some((word, batch.result(position))));
        }
        let epoch = batch.result(epoch);
        if let Some(lease) = self.shared.rested.take() {
            // The epoch has moved meanwhile: nothing was pinned, and others said so in our name.
            watch.lease = watch.lease.max(lease);
            self.shared.epochs.start(epoch);
        }
        self.shared.epochs.observe(epoch);
        self.shared.deaths.set(deaths);
        self.observe_snapshot(snapshot::SnapshotWord(phase));
        if self.shared.deaths.get() > self.shared.audited.get() {
            self.shared.heap.borrow_mut().set_homing(true);
        }

        // What a running operation has unlinked it has perhaps not retired yet.
        let oldest = match self.holds_blocks() {
            true => self.shared.heap.borrow().limbo_since(epoch),
            false => self
                .shared
                .heap
                .borrow_mut()
                .reclaim(epoch, |block, bytes| self.shared.endpoint.forget(block, bytes)),
        };
        let drained = self.journal_since(oldest).min(self.shared.epochs.oldest());
        // What is on its way home counts as limbo: whoever searches must not find it first.
        if self.bring_home().await || is_planted("pool: blocks on their way home taken for there") {
            watch.drained = drained;
        }
        let drained = watch.drained;
        self.publish(&mut cx, watch, drained).await?;

        if epoch != watch.epoch {
            (watch.epoch, watch.epoch_tick) = (epoch, watch.ticks);
        }
        // Each client waits a little longer than the one before it in the table.
        let patience = u64::from(self.shared.owner.client).min(64) * 2;
        // Whoever has joined sends home what it retires, and takes nothing over, until it has seen that nobody searches. It
        // looks as it joins, since many stay for a moment only; and later, though its turn to look does not come as
        // long as others advance the epoch.
        let is_homing = self.shared.heap.borrow().is_homing() && !self.shared.recovering.get();
        let is_ailing = self.shared.ailment.borrow().is_some();
        let must_look = is_ailing || is_homing && watch.ticks % HOMING_TICKS == 1;
        let looks = must_look || watch.ticks - watch.epoch_tick >= patience;
        if looks {
            watch.epoch_tick = watch.ticks;
            self.look_around(&mut cx, watch, epoch).await?;
        }
        self.note_members(members);
        if watch.ticks.is_multiple_of(HOUSEKEEPING_TICKS) {
            cx.set_deadline(self.shared.endpoint.deadline_in(self.shared.options.lease_ns / 4));
            self.free_unused(&mut cx, UNUSED_KEEP, CHUNKS_FREED).await?;
        }
        Ok(looks)
    }

    /// Writes this client's progress into its entry.
    async fn publish(&self, cx: &mut OpContext, watch: &mut Watch, drained: u64) -> Result<(), PoolError> {
        watch.lease += 1;
        watch.renewed = self.shared.endpoint.now_ns();
        let progress = ClientEntry {
            liveness: Liveness::Live,
            life: self.shared.owner.life,
            endpoint: None,
            lease: watch.lease,
            published: self.shared.epochs.oldest(),
            drained,
            parked: self.shared.parked.get(),
            audited: self.shared.audited.get(),
            members: self.shared.members.get() as u16,
            held: self.held_here(),
        }
        .progress();
        cx.buffer_mut()[..progress.len()].copy_from_slice(&progress);
        let target = client::entry_addr(self.shared.owner.client).plus(PROGRESS_AT);
        cx.write(Slice::first(PROGRESS_BYTES), target).await?;
        self.renew_all_if_late(watch, watch.renewed);
        Ok(())
    }

    /// Renews the lease of a client that has much to give back before it leaves, where nothing else does, once in a while.
    pub(crate) async fn renew(&self, cx: &mut OpContext, watch: &mut Watch) -> Result<(), PoolError> {
        let now = self.shared.endpoint.now_ns();
        if now - watch.renewed > self.shared.options.lease_ns / 4 {
            self.publish(cx, watch, watch.drained).await?;
        }
        Ok(())
    }

    /// Looks at every client: advances the epoch if all have come far enough, buries the dead.
    async fn look_around(&self, cx: &mut OpContext, watch: &mut Watch, epoch: u64) -> Result<(), PoolError> {
        // What is read was so at some instant after this one, however long this client is stopped in between: who has
        // not renewed its lease by then had not renewed it by now. (If the answer was long in coming, it counts from there.)
        let now = self.shared.endpoint.now_ns();
        let clients = self.clients(cx).await?;
        let is_late = self.renew_all_if_late(watch, now);
        let now = if is_late { self.shared.endpoint.now_ns() } else { now };
        let live = || clients.iter().filter(|(_, entry)| entry.is_live());
        let is_behind = |entry: &ClientEntry| entry.published < epoch;
        let is_hasty = is_planted("pool: the epoch advanced without asking everybody");
        if is_hasty || !live().any(|(_, entry)| is_behind(entry)) {
            // Losing means that another client advanced it.
            cx.compare_swap(RemoteAddr::new(NodeId::new(0), EPOCH_AT), epoch, epoch + 1)
                .await?;
        }
        // Nobody searches for lost blocks any more: retired blocks may be reused again.
        let deaths = self.shared.deaths.get();
        let is_homing = self.shared.heap.borrow().is_homing();
        if is_homing && !self.shared.recovering.get() && live().all(|(_, entry)| entry.audited >= deaths) {
            self.shared.heap.borrow_mut().set_homing(false);
        }

        let mut leases = BTreeMap::new();
        for &(client, entry) in &clients {
            let Some(endpoint) = entry.endpoint else { continue };
            let known = watch.leases.get(&endpoint).filter(|(lease, _)| *lease == entry.lease);
            let mut since = known.map_or(now, |&(_, since)| since);
            let is_late = now - since > self.shared.options.lease_ns && client != self.shared.owner.client;
            if is_late {
                since = now;
                match entry.liveness {
                    Liveness::Free | Liveness::Live => self.bury(cx, client, entry).await?,
                    // Whoever declared it dead died before it could count it.
                    Liveness::Dying => self.count_death(entry.owner(client)).await?,
                    Liveness::Dead => {}
                }
            }
            leases.insert(endpoint, (entry.lease, since));
        }
        watch.leases = leases;
        Ok(())
    }

    /// Cuts a client off whose lease has run out, and declares it dead.
    async fn bury(&self, cx: &mut OpContext, index: u16, entry: ClientEntry) -> Result<(), PoolError> {
        let Some(endpoint) = entry.endpoint else { return Ok(()) };
        // Whoever waits here does not renew its own lease: if a node does not answer, the next round tries again.
        let patience_ns = FENCE_NS_MAX.min(self.shared.options.lease_ns / 4);
        let deadline = Deadline(self.shared.endpoint.now_ns() + patience_ns);
        let fence = if is_planted("pool: a client declared dead that was not cut off") {
            Fence::CutOff
        } else {
            self.shared.endpoint.fence(endpoint, deadline).await?
        };
        match fence {
            Fence::StillRunning => {
                tracing::warn!("client {index} has not renewed its lease, but its process is still there");
                return Ok(());
            }
            Fence::CutOff => {}
        }
        // Only now does it stay what it is: until it was cut off a client that was joining may have come to the end of
        // that, and may own something.
        let at = client::entry_addr(index);
        let entry = ClientEntry::from_bytes(cx.read(at, Slice::first(CLIENT_BYTES as u32)).await?);
        cx.rely_on_words();
        match entry.liveness {
            // It has left, and the entry is free or somebody else's.
            _ if entry.endpoint != Some(endpoint) => Ok(()),
            Liveness::Free => {
                // It died while joining, and holds nothing but the entry.
                cx.compare_swap(at.plus(8), endpoint.0, 0).await?;
                Ok(())
            }
            _ => {
                tracing::info!("client {index} is gone; what it held is taken over");
                self.declare_dead(entry.owner(index)).await
            }
        }
    }

    /// Marks a client, which must have been cut off or have ended, as dead.
    pub(crate) async fn declare_dead(&self, dead: Owner) -> Result<(), PoolError> {
        // Its own context: a deadline in between would leave a dead client that nobody counts.
        let mut cx = OpContext::new(self.shared.endpoint.clone());
        let (state, live) = client::owner_state(dead, Liveness::Live);
        let (_, dying) = client::owner_state(dead, Liveness::Dying);
        if cx.compare_swap(state, live, dying).await? == live {
            self.count_death(dead).await?;
        }
        Ok(())
    }

    /// Makes everybody search for what a client held that has been cut off. To be done twice does no harm.
    async fn count_death(&self, dead: Owner) -> Result<(), PoolError> {
        if is_planted("pool: a death announced by nobody") {
            return Ok(());
        }
        let mut cx = OpContext::new(self.shared.endpoint.clone());
        cx.fetch_add(RemoteAddr::new(NodeId::new(0), DEATHS_AT), 1).await?;
        self.end_snapshot_of(&mut cx, dead).await?;
        let (state, dying) = client::owner_state(dead, Liveness::Dying);
        let (_, dead) = client::owner_state(dead, Liveness::Dead);
        cx.compare_swap(state, dying, dead).await?;
        Ok(())
    }
}
