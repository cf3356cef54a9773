//! Finding the blocks that a dead client held.
//!
//! A client that dies takes with it what only it knew: blocks that it had allocated and not yet
//! linked, blocks that it had unlinked and not yet reclaimed, its lists of free blocks. Nothing in
//! far memory says which those are; recording it would cost a verb per update. Instead the blocks
//! are found the way a garbage collector finds them: what is not reachable from the index, and that
//! nobody living knows of, is free.
//!
//! Every living client searches the chunks that it owns, after taking over those of the dead:
//!  1. It stops reusing foreign blocks (*homing*), and waits until its operations that may have done
//!     so have ended; then it says that it has *parked*, and waits until everybody has.
//!  2. It takes over chunks whose owner is dead. Of those it knows nothing: each block is suspect. It
//!     takes over chunks that nobody owns, too, since the dead may have held blocks of those. Until
//!     everybody is done nobody else takes such a chunk over.
//!  3. It notes which blocks of its chunks are not at home: the suspects. Then it waits until all
//!     operations that were running anywhere have ended, so that each suspect that one of them had
//!     allocated has been linked or come home.
//!  4. It walks the index and acquits every block that it finds.
//!  5. A suspect left over may have been unlinked and lie in the limbo of a living client, or an operation may still read it
//!     that found it before the dead unlinked it. So it waits until everybody has drained what was unlinked before the walk
//!     ended: nothing that old is in a limbo then, and no operation that old goes on ([`client::ClientEntry::drained`]).
//!     Then it collects the free maps. Whatever came home is no suspect any more. (Unlinked while the epoch was at most e
//!     means: by an operation that pinned e or less, and retired it, with a tag of at most e + 1, before it ended.)
//!  6. The suspects that are left belonged to the dead. They come home.
//!
//! Whoever joins parks as it joins: it holds nothing, and is homing. It searches, too, if it finds somebody dead when it is
//! there itself, since those who should have may all have left. Before it was there the others may have been done with those
//! deaths and have begun to reuse foreign blocks again; then it makes everybody search once more.
//!
//! Invariants that this rests on: a block stays in the slot where it was linked until it is
//! unlinked, so the walk cannot miss a linked one; a dead client is cut off before it is declared
//! dead, so it cannot link anything any more.

use farside_fabric::mutant::is_planted;
use farside_fabric::{NodeId, OpContext, RemoteAddr};

use crate::client::{self, ClientEntry, Liveness};
use crate::epoch::GRACE_EPOCHS;
use crate::error::PoolError;
use crate::heap::{BlockMap, ChunkId};
use crate::layout::{ChunkState, DEATHS_AT, EPOCH_AT, Owner};
use crate::pool::Pool;
use crate::refill::read_chunk_table;
use crate::size_class::SizeClass;

/// What a recovery found.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Recovered {
    /// Chunks taken over from dead clients.
    pub chunks: u64,
    /// Blocks that the dead held, free again.
    pub blocks: u64,
}

/// How many chunks with free blocks a client keeps of each class after a recovery; it gives the
/// others up, so that everybody can use them.
const STOCKED_KEEP: usize = 2;

/// For how many of the deaths that were counted a client that has joined need not search. `deaths` was read, and then `clients`,
/// when it was live already and its entry said that it had searched for fewer.
///
/// Whoever reuses foreign blocks again at `deaths` deaths or more has seen that everybody live has searched for so many, this client
/// not among them. So it has searched for them itself, and `clients` says so.
pub(crate) async fn searched_by_others(
    cx: &mut OpContext,
    deaths: u64,
    clients: &[(u16, ClientEntry)],
) -> Result<u64, PoolError> {
    // Whoever is dying has its death to come.
    if !clients.iter().any(|(_, entry)| entry.liveness == Liveness::Dead) {
        return Ok(deaths);
    }
    let is_done = |entry: &ClientEntry| entry.is_live() && entry.audited >= deaths;
    if !clients.iter().any(|(_, entry)| is_done(entry)) {
        return Ok(deaths.saturating_sub(1));
    }
    // Losing means that somebody else has: everybody searches, and cannot be done without this client.
    cx.compare_swap(RemoteAddr::new(NodeId::new(0), DEATHS_AT), deaths, deaths + 1)
        .await?;
    Ok(deaths)
}

impl Pool {
    /// Whether a client has died whose blocks this client has not yet searched for.
    #[must_use]
    pub fn needs_recovery(&self) -> bool {
        self.shared.deaths.get() > self.shared.audited.get()
    }

    /// Searches for the blocks that dead clients held (see the module). `walk` calls its argument
    /// with the address of every block that is reachable from the index; it pins as it goes, for
    /// short times. Other operations go on meanwhile.
    ///
    /// # Errors
    /// What `walk` or the fabric reports; the recovery can be tried again.
    pub async fn recover(
        &self,
        cx: &mut OpContext,
        walk: impl AsyncFn(&mut OpContext, &mut dyn FnMut(RemoteAddr)) -> Result<(), PoolError>,
    ) -> Result<Recovered, PoolError> {
        if self.shared.leaving.get() || self.has_ended() {
            return Ok(Recovered::default());
        }
        self.shared.recovering.set(true);
        let result = self.search_lost_blocks(cx, walk).await;
        self.shared.recovering.set(false);
        result
    }

    async fn search_lost_blocks(
        &self,
        cx: &mut OpContext,
        walk: impl AsyncFn(&mut OpContext, &mut dyn FnMut(RemoteAddr)) -> Result<(), PoolError>,
    ) -> Result<Recovered, PoolError> {
        // Whoever gives up a chunk in between would leave it to be searched by nobody.
        let _clearing = self.shared.clearing.lock().await;
        let deaths = self.shared.deaths.get();
        self.shared.heap.borrow_mut().set_homing(true);
        self.await_running_operations().await?;
        self.shared.parked.set(deaths);
        self.await_clients(cx, |entry| entry.parked >= deaths).await?;

        let chunks = self.adopt_from_dead(cx).await?;
        self.shared.heap.borrow_mut().suspect_all();
        let suspicion = self.shared.endpoint.holder().mark();
        // To get two further, everybody must have published one more than what was pinned till now.
        let suspected = self.global_epoch(cx).await?;
        if !is_planted("pool: a walk beside operations that have allocated") {
            self.await_epoch(suspected + 2).await?;
        }
        debug_assert!(
            suspicion.is_past(),
            "an operation goes on that may have allocated a suspect"
        );
        walk(cx, &mut |block| self.shared.heap.borrow_mut().acquit(block)).await?;
        for page in self.journal_pages(cx).await? {
            self.shared.heap.borrow_mut().acquit(page);
        }
        // What the dead have unlinked was unlinked by now.
        let unlinked = &mut |block| self.shared.endpoint.unlinked(block, false);
        self.shared.heap.borrow().visit_suspects(unlinked);

        let walked = self.global_epoch(cx).await?;
        if !is_planted("pool: a search that forgets the limbo of others") {
            self.await_clients(cx, |entry| entry.drained > walked + 1).await?;
        }
        let owned: Vec<ChunkId> = self.shared.heap.borrow().chunks().keys().copied().collect();
        for id in owned {
            self.collect_chunk(cx, id).await?;
        }
        // What the dead have replaced since a snapshot began belongs to that.
        while self.holds_blocks() {
            self.pause().await?;
            if !self.holds_blocks() {
                // Its exporter may be in the middle of an operation that has found some of it.
                self.await_epoch(self.global_epoch(cx).await? + GRACE_EPOCHS).await?;
            }
        }
        let blocks = if is_planted("pool: blocks of the dead not found") {
            0
        } else {
            let forget = |block, bytes| self.shared.endpoint.forget(block, bytes);
            self.shared.heap.borrow_mut().recover_suspects(forget)
        };
        self.release_surplus(cx).await?;
        self.forget_dead(cx).await?;
        self.shared.audited.set(deaths);
        tracing::info!("took over {chunks} chunks of dead clients and found {blocks} lost blocks");
        Ok(Recovered { chunks, blocks })
    }

    /// Waits until every operation of this client that runs now has ended.
    async fn await_running_operations(&self) -> Result<(), PoolError> {
        // An operation pins an epoch that is not larger than the local one.
        let epoch = self.shared.epochs.local();
        while self.shared.epochs.oldest() <= epoch {
            self.pause().await?;
        }
        Ok(())
    }

    async fn global_epoch(&self, cx: &mut OpContext) -> Result<u64, PoolError> {
        Ok(cx.read_word(RemoteAddr::new(NodeId::new(0), EPOCH_AT)).await?)
    }

    async fn await_epoch(&self, epoch: u64) -> Result<(), PoolError> {
        while self.shared.epochs.local() < epoch {
            self.pause().await?;
        }
        Ok(())
    }

    /// Waits until the progress of every living client is as wanted, of this one, too; those that die do not count.
    async fn await_clients(
        &self,
        cx: &mut OpContext,
        is_there: impl Fn(&ClientEntry) -> bool,
    ) -> Result<(), PoolError> {
        let owner = self.shared.owner;
        loop {
            let mut clients = self.clients(cx).await?;
            clients.retain(|(_, entry)| entry.is_live());
            // Nobody waits for the operations of whoever was declared dead, and it may not know yet.
            if !clients.iter().any(|&(client, ref entry)| entry.owner(client) == owner) {
                return Err(PoolError::LeaseLost);
            }
            if clients.iter().all(|(_, entry)| is_there(entry)) {
                return Ok(());
            }
            self.pause().await?;
        }
    }

    async fn pause(&self) -> Result<(), PoolError> {
        self.tick().await?;
        self.shared.endpoint.sleep(self.shared.options.tick_ns).await;
        self.check_alive()
    }

    /// Takes over the chunks of every dead client, and those of nobody; returns how many.
    async fn adopt_from_dead(&self, cx: &mut OpContext) -> Result<u64, PoolError> {
        let dead = self.dead(cx).await?;
        if dead.contains(&self.shared.owner) {
            return Err(PoolError::LeaseLost);
        }
        let mut count = 0;
        for geometry in self.shared.geometry.iter().copied() {
            let table = read_chunk_table(cx, &geometry).await?;
            for (index, state) in (0..).zip(table) {
                let is_dead = |owner| dead.contains(&owner) && !is_planted("pool: chunks of the dead left behind");
                if state.owner().is_some_and(|owner| !is_dead(owner)) {
                    continue;
                }
                let (class, run) = match state {
                    ChunkState::Blocks { class, .. } => (class, 1),
                    ChunkState::Run { count, .. } => (SizeClass::RUN, count),
                    ChunkState::RunTail { back, .. } => {
                        self.adopt_tail(cx, &geometry, index, back, state).await?;
                        continue;
                    }
                    ChunkState::Free | ChunkState::Root { .. } => continue,
                };
                let mine = state.with_owner(Some(self.shared.owner));
                let word = geometry.chunk_word(u64::from(index));
                // Losing means that another client took it over.
                if cx.compare_swap(word, state.to_word(), mine.to_word()).await? == state.to_word() {
                    let id = ChunkId {
                        node: geometry.node.index() as u16,
                        index,
                    };
                    let home = BlockMap::new(geometry.blocks_per_chunk(class));
                    let run = self.whole_run(cx, id, run).await?;
                    if matches!(state, ChunkState::Run { count, .. } if count != run) {
                        let owner = Some(self.shared.owner);
                        let shorter = ChunkState::Run { owner, count: run };
                        cx.write_word(word, shorter.to_word()).await?;
                    }
                    self.shared
                        .heap
                        .borrow_mut()
                        .adopt(id, self.shared.owner, class, run, home);
                    count += 1;
                }
            }
        }
        Ok(count)
    }

    /// How many chunks of a dead client's run are really its own: it may have died while it took them, or
    /// while it gave them back.
    async fn whole_run(&self, cx: &mut OpContext, id: ChunkId, run: u16) -> Result<u16, PoolError> {
        let geometry = self.shared.geometry[usize::from(id.node)];
        for back in 1..run {
            let index = u64::from(id.index) + u64::from(back);
            let word = cx.read_word(geometry.chunk_word(index)).await?;
            match ChunkState::from_word(word) {
                Some(ChunkState::RunTail { back: found, .. }) if found == back => {}
                _ => return Ok(back),
            }
        }
        Ok(run)
    }

    /// A tail belongs to the run before it. If there is no such run, its owner died while it gave the
    /// run back, or while it took it: then the chunk is free.
    async fn adopt_tail(
        &self,
        cx: &mut OpContext,
        geometry: &crate::layout::Geometry,
        index: u32,
        back: u16,
        state: ChunkState,
    ) -> Result<(), PoolError> {
        let first = u64::from(index).checked_sub(u64::from(back));
        let head = match first {
            Some(first) => ChunkState::from_word(cx.read_word(geometry.chunk_word(first)).await?),
            None => None,
        };
        let belongs = matches!(head, Some(ChunkState::Run { count, .. }) if count > back);
        let new = if belongs {
            state.with_owner(Some(self.shared.owner))
        } else {
            ChunkState::Free
        };
        let word = geometry.chunk_word(u64::from(index));
        cx.compare_swap(word, state.to_word(), new.to_word()).await?;
        Ok(())
    }

    async fn dead(&self, cx: &mut OpContext) -> Result<Vec<Owner>, PoolError> {
        let clients = self.clients(cx).await?;
        let dead = clients.into_iter().filter(|(_, entry)| entry.liveness.is_cut_off());
        Ok(dead
            .map(|(client, entry)| Owner {
                client,
                life: entry.life,
            })
            .collect())
    }

    /// Frees the entries of dead clients that own nothing any more. Whoever is still dying keeps its entry:
    /// its death is counted later, and then everybody searches once more.
    async fn forget_dead(&self, cx: &mut OpContext) -> Result<(), PoolError> {
        let mut dead = self.clients(cx).await?;
        dead.retain(|(_, entry)| entry.liveness.is_cut_off());
        for geometry in self.shared.geometry.iter() {
            for state in read_chunk_table(cx, geometry).await? {
                dead.retain(|&(client, entry)| state.owner() != Some(entry.owner(client)));
            }
        }
        for (client, entry) in dead {
            let Some(endpoint) = entry.endpoint else { continue };
            let (state, dead) = client::owner_state(entry.owner(client), Liveness::Dead);
            let (_, free) = client::owner_state(entry.owner(client), Liveness::Free);
            if cx.compare_swap(state, dead, free).await? == dead {
                // If this client is stopped here, another one frees the entry, which somebody new may take.
                cx.compare_swap(state.plus(8), endpoint.0, 0).await?;
            }
        }
        Ok(())
    }

    /// Gives up chunks beyond what this client needs, and frees the unused.
    async fn release_surplus(&self, cx: &mut OpContext) -> Result<(), PoolError> {
        self.free_unused(cx, 0, usize::MAX).await?;
        let surplus: Vec<ChunkId> = {
            let heap = self.shared.heap.borrow();
            let mut kept = std::collections::BTreeMap::<SizeClass, usize>::new();
            let surplus = heap.chunks().iter().filter(|(_, chunk)| {
                let kept = kept.entry(chunk.class).or_default();
                *kept += 1;
                *kept > STOCKED_KEEP
            });
            surplus.map(|(&id, _)| id).collect()
        };
        for id in surplus {
            self.disown(cx, id).await?;
        }
        Ok(())
    }
}
