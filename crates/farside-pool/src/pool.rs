//! One client's membership of a pool: what sessions and indexes allocate from.
//!
//! On the path: beside the locks; a writer allocates a block for the new item before it publishes it
//! and retires the one that it replaced. [`Pool`] joins the client table, hands out and takes back
//! blocks, and runs a small task that renews the lease and moves the epoch
//! ([`maintenance`]).
//!
//! A client is a thread of a compute node: everything here is local to it, and an operation in the
//! usual case costs no verb.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, Endpoint, FabricError, Grown, LocalFuture, NodeId, OpContext, RemoteAddr, Slice};

use crate::client::{self, ClientEntry, Liveness};
use crate::epoch::{Epochs, Pin};
use crate::error::PoolError;
use crate::heap::Heap;
use crate::layout::{CLIENTS_HIGH_AT, DEATHS_AT, EPOCH_AT, Geometry, Owner};
use crate::size_class::SizeClass;
use crate::{maintenance, recovery, refill, snapshot};

/// Times of a pool's housekeeping, in nanoseconds of the endpoint's clock. All clients of a pool
/// should use the same.
#[derive(Clone, Copy, Debug)]
pub struct PoolOptions {
    /// How often a client renews its lease and publishes its epoch.
    pub tick_ns: u64,
    /// How long a lease lasts without renewal.
    pub lease_ns: u64,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self {
            tick_ns: 1_000_000,
            lease_ns: 1_000_000_000,
        }
    }
}

/// For how many leases a client that leaves waits for what it must finish first.
const PATIENCE_LEASES: u64 = 5;

/// What a block is for: it decides how deep [`Pool::restock`] may dig.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// A new item. Refused when only the reserve is left.
    Insert,
    /// Replaces a block that will be retired; may use the reserve, and waits for memory that is
    /// about to be reclaimed.
    Overwrite,
}

/// A client's membership of a pool. Clones are the same membership.
#[derive(Debug)]
pub struct Pool {
    pub(crate) shared: Rc<Shared>,
}

impl Clone for Pool {
    fn clone(&self) -> Self {
        Self {
            shared: Rc::clone(&self.shared),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) endpoint: Endpoint,
    /// By the number of the node. Who is not there is [absent](Geometry::is_absent).
    pub(crate) geometry: Grown<Geometry>,
    pub(crate) options: PoolOptions,
    pub(crate) owner: Owner,
    pub(crate) epochs: Rc<Epochs>,
    pub(crate) heap: RefCell<Heap>,
    /// See [`held`](mod@crate::held).
    pub(crate) held: Cell<i64>,
    /// How many ticks there were.
    pub(crate) ticks: Cell<u64>,
    /// See [`Pool::set_impatient`].
    pub(crate) is_impatient: Cell<bool>,
    /// See [`Pool::dig`].
    pub(crate) dig_until: Cell<u64>,
    /// Held while blocks are fetched from far memory, so that many operations that find their class
    /// empty fetch once.
    pub(crate) refill: tokio::sync::Mutex<refill::Hints>,
    /// Held while bits are moved from a free map to the heap.
    pub(crate) collecting: tokio::sync::Mutex<()>,
    /// One tick at a time.
    pub(crate) ticking: tokio::sync::Mutex<maintenance::Watch>,
    /// Deaths that this client knows of, has parked for, and has searched its chunks for.
    pub(crate) deaths: Cell<u64>,
    pub(crate) parked: Cell<u64>,
    pub(crate) audited: Cell<u64>,
    pub(crate) recovering: Cell<bool>,
    pub(crate) leaving: Cell<bool>,
    /// Set once: the task ends, and every call fails with this from then on.
    pub(crate) ended: RefCell<Option<PoolError>>,
    /// Whether a block of this client may be linked or not, and nobody knows.
    pub(crate) is_in_doubt: Cell<bool>,
    /// Whether blocks were sent home, and nobody knows whether they have arrived.
    pub(crate) is_unsettled: Cell<bool>,
    /// What a tick has failed with since this client has last looked at all others.
    pub(crate) ailment: RefCell<Option<PoolError>>,
    /// See [`Pool::watch`]: the word, and its value at the last tick.
    pub(crate) watch: Cell<Option<(RemoteAddr, u64)>>,
    /// Bytes of all chunks of the nodes that blocks are taken from.
    pub(crate) chunk_bytes: Cell<u64>,
    /// The version of the table of nodes that this client has taken into account; see [`grow`](crate::grow).
    pub(crate) members: Cell<u64>,
    /// Whether a task takes another version into account.
    pub(crate) is_catching_up: Cell<bool>,
    /// Held while chunks of a node that is drained are given up, and while blocks of the dead are searched for.
    pub(crate) clearing: tokio::sync::Mutex<()>,
    /// What this client knows of a snapshot, and has noted for it.
    pub(crate) journal: snapshot::Journal,
    /// This client comes back from a rest: the lease that others have renewed for it.
    pub(crate) rested: Cell<Option<u64>>,
}

impl Pool {
    /// Joins the pool on the nodes that `cx` reaches, which must be formatted.
    ///
    /// # Errors
    /// [`PoolError::TooManyClients`], or what opening the superblocks or the fabric reports.
    pub fn join<'f>(
        cx: &'f mut OpContext,
        geometry: Vec<Geometry>,
        options: PoolOptions,
    ) -> LocalFuture<'f, Result<Self, PoolError>> {
        Box::pin(async move {
            let node = NodeId::new(0);
            let clients_max = geometry[0].clients_max;
            let id = cx.endpoint().id();
            for index in 0..clients_max as u16 {
                let entry = client::entry_addr(index);
                if cx.read_word(entry.plus(8)).await? != 0 || cx.compare_swap(entry.plus(8), 0, id.0).await? != 0 {
                    continue;
                }
                // The entry is ours. Raise the mark up to which the others look, then fill it in.
                let high = RemoteAddr::new(node, CLIENTS_HIGH_AT);
                let mut seen = cx.read_word(high).await?;
                while seen <= u64::from(index) {
                    let before = cx.compare_swap(high, seen, u64::from(index) + 1).await?;
                    // Lost to another client that joins: it raised the mark, so this ends.
                    seen = if before == seen { u64::from(index) + 1 } else { before };
                }
                let life = ((cx.read_word(entry).await? >> 8) as u16).wrapping_add(1);
                let deaths = cx.read_word(RemoteAddr::new(node, DEATHS_AT)).await?;
                let epoch = cx.read_word(RemoteAddr::new(node, EPOCH_AT)).await?;
                let seen_early = match is_planted("pool: who joins looks for the dead before it is there") {
                    true => Some(read_clients(cx, clients_max).await?),
                    false => None,
                };
                // Until it has looked for the dead nobody may take it for done.
                let audited = deaths.saturating_sub(1);
                let mut batch = Batch::new();
                for (word, value) in [
                    (2, 1),
                    (3, epoch),
                    (4, epoch),
                    (5, deaths),
                    (6, client::audited_word(audited, 0)),
                ] {
                    batch.write_word(entry.plus(word * 8), value);
                }
                batch.write_word(entry, client::state_word(Liveness::Live, life));
                // Once the entry is live nobody who looks advances past it; whoever looked before that
                // may still do so once. The value read now is therefore at most one behind.
                let epoch = batch.read_word(RemoteAddr::new(node, EPOCH_AT));
                batch.read(
                    RemoteAddr::new(node, DEATHS_AT),
                    Slice::first(maintenance::COUNTS_BYTES),
                );
                // Whoever had the entry before has been cut off or has left: nobody else writes it.
                let held = batch.read_word(entry.plus(7 * 8));
                cx.post(&mut batch).await?;
                let [deaths, members, phase] = maintenance::counts(cx);
                cx.rely_on_words();
                let clients = match seen_early {
                    Some(clients) => clients,
                    None => read_clients(cx, clients_max).await?,
                };
                let audited = recovery::searched_by_others(cx, deaths, &clients).await?;

                let epochs = Rc::new(Epochs::of(cx.endpoint().holder()));
                epochs.start(batch.result(epoch));
                let mut heap = Heap::new(geometry.clone());
                // Others may be searching for lost blocks: reuse nothing until they are known to be done. So this client has
                // parked for all deaths so far.
                heap.set_homing(true);
                let pool = Self {
                    shared: Rc::new(Shared {
                        endpoint: cx.endpoint().clone(),
                        chunk_bytes: Cell::new(geometry.iter().map(Geometry::chunks_bytes).sum()),
                        geometry: Grown::new(geometry),
                        options,
                        owner: Owner { client: index, life },
                        epochs,
                        heap: RefCell::new(heap),
                        held: Cell::new(batch.result(held).cast_signed()),
                        ticks: Cell::new(0),
                        is_impatient: Cell::new(false),
                        dig_until: Cell::new(0),
                        refill: tokio::sync::Mutex::default(),
                        collecting: tokio::sync::Mutex::default(),
                        ticking: tokio::sync::Mutex::default(),
                        deaths: Cell::new(deaths),
                        parked: Cell::new(deaths),
                        audited: Cell::new(audited),
                        recovering: Cell::new(false),
                        leaving: Cell::new(false),
                        ended: RefCell::new(None),
                        is_in_doubt: Cell::new(false),
                        is_unsettled: Cell::new(false),
                        ailment: RefCell::new(None),
                        watch: Cell::new(None),
                        journal: snapshot::Journal::of(phase),
                        rested: Cell::new(None),
                        members: Cell::new(0),
                        is_catching_up: Cell::new(false),
                        clearing: tokio::sync::Mutex::default(),
                    }),
                };
                // After it is live: whoever changes the table from now on waits for this client.
                pool.catch_up_at_start(cx, members)
                    .await
                    .inspect_err(|_| pool.abandon())?;
                pool.tick().await?;
                let task = pool.clone();
                cx.endpoint().spawn(async move { task.keep_alive().await });
                return Ok(pool);
            }
            Err(PoolError::TooManyClients { clients_max })
        })
    }

    /// Announces an operation that may hold addresses read from far memory.
    #[inline]
    #[must_use]
    pub fn pin(&self) -> Pin {
        self.shared.epochs.pin()
    }

    /// A block of at least `bytes` bytes with arbitrary contents, or `None` if this client has none
    /// left: then the operation unpins, calls [`Pool::restock`] and starts again. The block must be
    /// linked or given back before the operation unpins.
    #[inline]
    #[must_use]
    pub fn allocate(&self, bytes: u64) -> Option<RemoteAddr> {
        let class = self.class_for(bytes);
        let mut heap = self.shared.heap.borrow_mut();
        let block = if class == SizeClass::RUN {
            heap.take_run(bytes)
        } else {
            let block = heap.take(class);
            // The next one will be written soon; its line is on the way by then.
            if let Some(next) = heap.next(class) {
                self.shared.endpoint.prefetch(next, 8);
            }
            block
        };
        if block.is_some() {
            self.hold(bytes);
        }
        block
    }

    #[inline]
    pub(crate) fn class_for(&self, bytes: u64) -> SizeClass {
        SizeClass::for_bytes(bytes, self.shared.geometry[0].chunk_bytes)
    }

    /// Whether a block for `other` bytes is one of those that a block for `bytes` bytes is taken from.
    #[must_use]
    pub fn takes_from_same(&self, bytes: u64, other: u64) -> bool {
        let class = self.class_for(bytes);
        self.class_for(other) == class && (class != SizeClass::RUN || other >= bytes)
    }

    /// Takes back a block that was allocated for `bytes` bytes and never linked.
    pub fn give_back(&self, block: RemoteAddr, bytes: u64) {
        let class = self.class_for(bytes);
        self.shared.heap.borrow_mut().release(block, class);
        self.let_go(bytes);
    }

    /// Takes a block that the caller has just unlinked; exactly one client must do so. It is reused
    /// when no operation that may have found it is running any more. `bytes` is what it was
    /// allocated for; without it the block goes home instead of being reused here.
    #[inline]
    pub fn retire(&self, block: RemoteAddr, bytes: Option<u64>) {
        let class = bytes.map(|bytes| self.class_for(bytes));
        if let Some(bytes) = bytes {
            self.let_go(bytes);
        }
        self.shared.endpoint.unlinked(block, true);
        self.shared
            .heap
            .borrow_mut()
            .retire(self.shared.epochs.local(), block, class);
    }

    /// The epoch that this client has seen last; see [`epoch`](crate::epoch).
    #[inline]
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.shared.epochs.local()
    }

    /// The endpoint that the client reaches the pool by.
    #[inline]
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.shared.endpoint
    }

    /// The nodes that are there.
    pub(crate) fn there(&self) -> impl Iterator<Item = &Geometry> {
        self.shared.geometry.iter().filter(|geometry| !geometry.is_absent())
    }

    /// What the nodes are divided into, by their numbers. A node that was removed, or is not part of the pool yet, has no
    /// chunks. Grows while the pool does: who holds on to it sees what there was when it asked.
    #[must_use]
    pub fn geometry(&self) -> &[Geometry] {
        &self.shared.geometry
    }

    /// Bytes of memory for blocks: of all nodes but those that come, or are drained.
    #[inline]
    #[must_use]
    pub fn chunk_bytes(&self) -> u64 {
        self.shared.chunk_bytes.get()
    }

    /// Who this client is in the client table.
    #[must_use]
    pub fn owner(&self) -> Owner {
        self.shared.owner
    }

    /// Blocks retired by this client that still wait for their grace period.
    #[must_use]
    pub fn limbo_count(&self) -> usize {
        self.shared.heap.borrow().limbo_count()
    }

    /// How many ticks this client has had: a clock that costs nothing to read.
    #[inline]
    #[must_use]
    pub fn ticks(&self) -> u64 {
        self.shared.ticks.get()
    }

    /// Whether [`Pool::restock`] waits only for blocks of the size that is wanted, and fails at once if none is about
    /// to be reclaimed: for whoever can free such blocks then. The last free chunks are kept for sizes of which
    /// there is nothing to free.
    #[inline]
    pub fn set_impatient(&self, is_impatient: bool) {
        self.shared.is_impatient.set(is_impatient);
    }

    /// Lets [`Pool::restock`] take the last free chunks for some ticks: nothing of the size that is wanted can be freed.
    pub fn dig(&self) {
        const TICKS: u64 = 8;
        self.shared.dig_until.set(self.ticks() + TICKS);
    }

    /// Watches a word of node 0 for an index that remembers addresses between operations: every tick
    /// reads it, *before* it publishes that this client has come further. Whoever retires a block that
    /// others may remember changes the word first; whoever remembers such blocks forgets them when
    /// [`Pool::watched`] has changed. Then no operation that starts later finds the block, and the
    /// grace period holds for those that run.
    ///
    /// # Panics
    /// If the word is not on node 0, whose epoch it is read after.
    pub fn watch(&self, word: RemoteAddr, value: u64) {
        assert!(word.node().index() == 0, "verbs keep their order on one node");
        self.shared.watch.set(Some((word, value)));
    }

    /// The value of the watched word at the last tick; 0 if none is watched.
    #[inline]
    #[must_use]
    pub fn watched(&self) -> u64 {
        self.shared.watch.get().map_or(0, |(_, value)| value)
    }

    /// Fails if this client has ended, or has lost its way to a node: then it cannot declare anybody dead,
    /// and must not wait for somebody to be.
    ///
    /// # Errors
    /// [`PoolError::LeaseLost`], or that the node is gone.
    pub fn check_reachable(&self) -> Result<(), PoolError> {
        self.check_alive()?;
        match &*self.shared.ailment.borrow() {
            Some(error @ PoolError::Fabric(FabricError::NodeGone { .. })) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Whether a client has left or was cut off and declared dead: nothing of it can arrive any more,
    /// and what it held may be taken over.
    ///
    /// # Errors
    /// What the fabric reports.
    pub fn is_gone<'f>(&'f self, cx: &'f mut OpContext, owner: Owner) -> LocalFuture<'f, Result<bool, PoolError>> {
        Box::pin(async move {
            let (entry, live) = client::owner_state(owner, Liveness::Live);
            Ok(cx.read_word(entry).await? != live)
        })
    }

    /// Notes that a word may have been changed or not: the fabric failed meanwhile. If it was a data
    /// pointer, the new block is linked, or the old one still is; the other is lost to this client, which
    /// cannot know which. It is found by the search that follows when this client leaves: as a dead one.
    pub fn doubt(&self) {
        if is_planted("pool: doubts forgotten") {
            return;
        }
        self.shared.is_in_doubt.set(true);
    }

    /// Leaves the pool: sends every block home, gives up every chunk, frees the entry. It waits for operations that are
    /// still running, for some leases. If it is not possible to leave, the others take over what this client held when its
    /// lease has run out.
    ///
    /// # Errors
    /// What the fabric reports, or [`PoolError::StillRunning`]; the others clean up then.
    pub fn leave(self) -> LocalFuture<'static, Result<(), PoolError>> {
        Box::pin(async move {
            // Who says that it leaves and goes on renewing its lease would be in the way for ever.
            let left = self.try_leave().await;
            if left.is_err() && !is_planted("pool: a client that cannot leave stays for ever") {
                self.abandon();
            }
            left
        })
    }

    async fn try_leave(&self) -> Result<(), PoolError> {
        let mut cx = OpContext::new(self.shared.endpoint.clone());
        let patience = self
            .shared
            .endpoint
            .deadline_in(PATIENCE_LEASES * self.shared.options.lease_ns);
        let goes_on =
            || !self.shared.epochs.is_unpinned() && !is_planted("pool: a client that leaves its operations behind");
        // Chunks in which blocks of a dead client may be are searched before they are given up. A
        // later death finds this client not parked, and waits until it has left.
        let must_wait = || {
            let is_searching = self.shared.recovering.get() || self.needs_recovery();
            self.shared.leaving.set(!is_searching && !self.shared.is_in_doubt.get());
            // While a snapshot is taken no limbo ends: it is left to the others.
            let is_in_limbo = self.limbo_count() > 0 && !self.holds_blocks();
            is_searching || goes_on() || is_in_limbo || self.shared.is_unsettled.get()
        };
        while must_wait() && self.shared.endpoint.now_ns() < patience.0 {
            self.shared.heap.borrow_mut().set_homing(true);
            self.tick().await?;
            if must_wait() {
                self.shared.endpoint.sleep(self.shared.options.tick_ns).await;
            }
        }
        // A search that has not come to an end in time stops at its next step: whoever is declared
        // dead must not take anything over any more.
        *self.shared.ended.borrow_mut() = Some(PoolError::LeaseLost);
        while self.shared.recovering.get() {
            self.shared.endpoint.sleep(self.shared.options.tick_ns).await;
        }
        // Nobody waits for operations of a client that is gone, unless it was cut off.
        if goes_on() {
            return Err(PoolError::StillRunning);
        }
        self.shared.heap.borrow_mut().set_homing(true);
        let mut watch = self.shared.ticking.lock().await;
        // A verb that met its deadline may still be on its way: whatever is read from the same node later
        // comes after it.
        for geometry in self.there() {
            cx.read_word(RemoteAddr::new(geometry.node, 0)).await?;
        }
        self.flush_outbox(&mut cx).await?;
        self.leave_snapshots(&mut cx).await?;
        let ids: Vec<_> = self.shared.heap.borrow().chunks().keys().copied().collect();
        for id in ids.into_iter().filter(|_| self.shared.leaving.get()) {
            self.disown(&mut cx, id).await?;
            self.renew(&mut cx, &mut watch).await?;
        }
        let (entry, live) = client::owner_state(self.shared.owner, Liveness::Live);
        // Whoever takes the entry over goes on from here.
        cx.write_word(entry.plus(7 * 8), self.held_here().cast_unsigned())
            .await?;
        if self.limbo_count() == 0 && self.shared.leaving.get() {
            let (_, free) = client::owner_state(self.shared.owner, Liveness::Free);
            if cx.compare_swap(entry, live, free).await? == live {
                cx.write_word(entry.plus(8), 0).await?;
            }
        } else {
            // Somebody's operation holds the epoch back, the search does not end, or the fate of a block
            // is in doubt. Such blocks, and those in limbo, count as lost by a dead client, and are found
            // by the search that follows.
            self.shared.endpoint.holder().give_up();
            self.declare_dead(self.shared.owner).await?;
        }
        Ok(())
    }

    /// Ends this membership without a word to the others, who take over what this client held when
    /// its lease has run out. For a client that was cut off, or lost its way to a node.
    pub fn abandon(&self) {
        self.shared.ended.borrow_mut().get_or_insert(PoolError::LeaseLost);
    }

    /// Whether the client has left or was declared dead.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.shared.ended.borrow().is_some()
    }

    /// Fails once the client has been declared dead or has left.
    pub(crate) fn check_alive(&self) -> Result<(), PoolError> {
        self.shared.ended.borrow().clone().map_or(Ok(()), Err)
    }

    /// Every taken entry of the client table with its index.
    ///
    /// # Errors
    /// What the fabric reports.
    pub(crate) async fn clients(&self, cx: &mut OpContext) -> Result<Vec<(u16, ClientEntry)>, PoolError> {
        read_clients(cx, self.shared.geometry[0].clients_max).await
    }
}

/// Every taken entry of a pool's client table with its index.
///
/// # Errors
/// What the fabric reports.
pub fn read_clients<'f>(
    cx: &'f mut OpContext,
    clients_max: u64,
) -> LocalFuture<'f, Result<Vec<(u16, ClientEntry)>, PoolError>> {
    Box::pin(async move {
        use crate::layout::CLIENT_BYTES;
        const ENTRIES_AT_ONCE: u64 = 128;
        let high = cx
            .read_word(RemoteAddr::new(NodeId::new(0), CLIENTS_HIGH_AT))
            .await?
            .min(clients_max);
        let mut entries = Vec::new();
        for first in (0..high).step_by(ENTRIES_AT_ONCE as usize) {
            let count = ENTRIES_AT_ONCE.min(high - first);
            let target = Slice::first((count * CLIENT_BYTES) as u32);
            let bytes = cx.read(client::entry_addr(first as u16), target).await?;
            for (index, bytes) in bytes.chunks_exact(CLIENT_BYTES as usize).enumerate() {
                let entry = ClientEntry::from_bytes(bytes);
                if entry.endpoint.is_some() || entry.liveness != Liveness::Free {
                    entries.push((first as u16 + index as u16, entry));
                }
            }
        }
        // A client renews its words with one WRITE, and each of them only grows: an entry of old and new
        // words says less than is true, never more.
        cx.rely_on_words();
        Ok(entries)
    })
}
