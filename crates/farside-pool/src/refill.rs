//! Fetching blocks from far memory when a client has none of a class left.
//!
//! On the path: the slow side of an allocation, once per chunk of blocks. In order:
//!  1. blocks that others gave back to chunks that this client owns;
//!  2. one of the last chunks of this class that nobody owns, if much of it is free: clients that come and go would
//!     else leave a new chunk each;
//!  3. a free chunk of any node, taken by one compare-and-swap; the next node each time, so that a
//!     pool's nodes fill evenly. For an INSERT only while more than the reserve is free;
//!  4. any chunk of this class that nobody owns and that has free blocks;
//!  5. chunks of other classes that nobody owns and nobody uses: they become free;
//!  6. whatever becomes free meanwhile: retired blocks, or those of a dead client.
//!
//! When all of that gives nothing, memory is full.

use farside_fabric::batch::BATCH_VERBS_MAX;
use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, LocalFuture, OpContext, RemoteAddr, Slice};

use crate::error::PoolError;
use crate::heap::{BlockMap, ChunkId, block_to_unit};
use crate::layout::{ChunkState, Geometry};
use crate::pool::{Pool, Purpose};
use crate::size_class::SizeClass;
use crate::snapshot::{Phase, RELIEF_TICKS};

#[cfg(test)]
mod tests;

/// Where the search for chunks goes on.
#[derive(Default, Debug)]
pub(crate) struct Hints {
    node: usize,
    owned: Option<ChunkId>,
    /// Until when the chunk tables need not be searched: they were full just before.
    full_until_ns: u64,
}

/// What is being looked for.
#[derive(Clone, Copy)]
struct Request {
    class: SizeClass,
    bytes: u64,
    count: usize,
    purpose: Purpose,
}

/// One in this many chunks of a node is kept for overwrites.
const RESERVE_SHARE: usize = 64;
/// The same for sizes of which nothing can be freed, where others can be: there are some forty sizes.
const RESERVE_SHARE_EVICTING: usize = 32;
/// How many owned chunks are asked for returned blocks before a new chunk is taken.
const COLLECT_FIRST: usize = 8;
/// How many chunks that nobody owns are looked at before a free chunk is taken, and one in how many of their blocks has to be
/// free: what is taken over must last for a while.
const LEFT_LOOKS: usize = 2;
const LEFT_FREE_SHARE: u64 = 4;
/// How long full chunk tables are not searched again.
const FULL_NS: u64 = 5_000_000;
/// For how many leases an allocation waits for memory that is about to become free: a client that has
/// died keeps the others from reclaiming until its lease has run out.
const PATIENCE_LEASES: u64 = 3;
/// For how many ticks an overwrite waits where nothing is about to become free.
const HOPELESS_WAITS_MAX: u32 = 50;

impl Pool {
    /// Fetches blocks from far memory, so that [`Pool::allocate`] finds `count` of `bytes` bytes, unless
    /// another operation of this client takes them first. The caller must not be pinned: memory that is
    /// about to be reclaimed waits for running operations.
    ///
    /// # Errors
    /// [`PoolError::OutOfMemory`], [`PoolError::LeaseLost`], or what the fabric reports.
    pub fn restock<'f>(&'f self, bytes: u64, count: usize, purpose: Purpose) -> LocalFuture<'f, Result<(), PoolError>> {
        Box::pin(async move {
            let mut hints = self.shared.refill.lock().await;
            let mut cx = OpContext::new(self.shared.endpoint.clone());
            let request = Request {
                class: self.class_for(bytes),
                bytes,
                count,
                purpose,
            };
            let patience = self
                .shared
                .endpoint
                .deadline_in(PATIENCE_LEASES * self.shared.options.lease_ns);
            let mut hopeless_waits = match purpose {
                Purpose::Insert => 0,
                Purpose::Overwrite => HOPELESS_WAITS_MAX,
            };
            loop {
                self.check_alive()?;
                if self.find_blocks(&mut cx, &mut hints, request).await? {
                    return Ok(());
                }
                let is_impatient = self.shared.is_impatient.get();
                let is_hopeful = {
                    let heap = self.shared.heap.borrow();
                    let waits = if is_impatient {
                        heap.limbo_has(request.class)
                    } else {
                        heap.limbo_count() > 0
                    };
                    waits || heap.is_homing()
                };
                if is_impatient {
                    hopeless_waits = 0;
                }
                // What it keeps from being reused is worth more: then wait until that is.
                if self.holds_blocks() {
                    self.end_snapshot(&mut cx, Phase::Short).await?;
                    hopeless_waits = RELIEF_TICKS;
                }
                if self.shared.endpoint.now_ns() >= patience.0 || (!is_hopeful && hopeless_waits == 0) {
                    return Err(PoolError::OutOfMemory { bytes });
                }
                hopeless_waits -= u32::from(!is_hopeful);
                self.tick().await?;
                self.shared.endpoint.sleep(self.shared.options.tick_ns).await;
            }
        })
    }

    async fn find_blocks(&self, cx: &mut OpContext, hints: &mut Hints, request: Request) -> Result<bool, PoolError> {
        // Another operation may have fetched blocks while this one waited for its turn.
        if self.has(request) {
            return Ok(true);
        }
        self.collect(cx, hints, request.class, COLLECT_FIRST).await?;
        if self.has(request) {
            return Ok(true);
        }
        if self.shared.endpoint.now_ns() < hints.full_until_ns && !self.digs() {
            return Ok(false);
        }
        if self.take_chunks(cx, hints, request).await? {
            return Ok(true);
        }
        // During a recovery chunks that nobody owns are left to those who search them.
        let may_adopt = !self.shared.heap.borrow().is_homing();
        if may_adopt {
            self.adopt_unowned_of(cx, request.class).await?;
        }
        self.collect(cx, hints, request.class, usize::MAX).await?;
        if self.has(request) {
            return Ok(true);
        }
        self.collect(cx, hints, SizeClass::RUN, usize::MAX).await?;
        self.free_unused(cx, 0, usize::MAX).await?;
        if may_adopt {
            self.free_unowned(cx).await?;
        }
        let found = self.take_chunks(cx, hints, request).await?;
        if !found {
            hints.full_until_ns = self.shared.endpoint.now_ns() + FULL_NS;
        }
        Ok(found)
    }

    fn digs(&self) -> bool {
        self.ticks() < self.shared.dig_until.get()
    }

    fn has(&self, request: Request) -> bool {
        self.shared
            .heap
            .borrow()
            .has(request.class, request.bytes, request.count)
    }

    /// Takes free chunks until there are as many blocks as are wanted; false if there are too few.
    async fn take_chunks(&self, cx: &mut OpContext, hints: &mut Hints, request: Request) -> Result<bool, PoolError> {
        while self.take_chunk(cx, hints, request).await? {
            if self.has(request) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes a free chunk, or a run of them, of the first node that has it.
    async fn take_chunk(&self, cx: &mut OpContext, hints: &mut Hints, request: Request) -> Result<bool, PoolError> {
        let nodes = self.shared.geometry.len();
        hints.node += 1;
        for turn in 0..nodes {
            let node = (hints.node + turn) % nodes;
            if !self.shared.heap.borrow().is_open(node) {
                continue;
            }
            let geometry = self.shared.geometry[node];
            let is_run = request.class == SizeClass::RUN;
            let run = if is_run {
                request.bytes.div_ceil(geometry.chunk_bytes)
            } else {
                1
            };
            let table = read_chunk_table(cx, &geometry).await?;
            // A run is taken as a whole, and has no blocks left over.
            if !is_run && self.adopt_left(cx, &geometry, &table, request.class).await? {
                return Ok(true);
            }
            let free = table.iter().filter(|&&state| state == ChunkState::Free).count();
            let reserve = match request.purpose {
                _ if self.digs() => 0,
                _ if self.shared.is_impatient.get() => (table.len() / RESERVE_SHARE_EVICTING).max(2),
                Purpose::Insert => (table.len() / RESERVE_SHARE).max(2),
                Purpose::Overwrite => 0,
            };
            if free < reserve + run as usize {
                continue;
            }
            let mut first = 0;
            for (index, &state) in table.iter().enumerate() {
                if state != ChunkState::Free {
                    first = index + 1;
                } else if index + 1 - first == run as usize {
                    let id = ChunkId {
                        node: node as u16,
                        index: first as u32,
                    };
                    if self.claim(cx, id, request.class, run as u16).await? {
                        return Ok(true);
                    }
                    // Lost to another client; go on behind it.
                    first = index + 1;
                }
            }
        }
        Ok(false)
    }

    /// Makes free chunks this client's own; false if another client was quicker.
    async fn claim(&self, cx: &mut OpContext, id: ChunkId, class: SizeClass, run: u16) -> Result<bool, PoolError> {
        let geometry = self.shared.geometry[usize::from(id.node)];
        let owner = Some(self.shared.owner);
        for back in 0..run {
            let state = match (class == SizeClass::RUN, back) {
                (false, _) => ChunkState::Blocks { owner, class },
                (true, 0) => ChunkState::Run { owner, count: run },
                (true, back) => ChunkState::RunTail { owner, back },
            };
            let word = geometry.chunk_word(u64::from(id.index) + u64::from(back));
            let is_ours = if is_planted("pool: a chunk claimed without a look") {
                cx.write_word(word, state.to_word()).await?;
                true
            } else {
                cx.compare_swap(word, 0, state.to_word()).await? == 0
            };
            if !is_ours {
                for undo in (0..back).rev() {
                    let word = geometry.chunk_word(u64::from(id.index) + u64::from(undo));
                    cx.write_word(word, 0).await?;
                }
                return Ok(false);
            }
        }
        let blocks = geometry.blocks_per_chunk(class);
        let home = BlockMap::full(blocks);
        self.shared
            .heap
            .borrow_mut()
            .adopt(id, self.shared.owner, class, run, home);
        Ok(true)
    }

    /// Collects what others gave back to up to `limit` owned chunks of a class.
    pub(crate) async fn collect(
        &self,
        cx: &mut OpContext,
        hints: &mut Hints,
        class: SizeClass,
        limit: usize,
    ) -> Result<(), PoolError> {
        let ids: Vec<ChunkId> = {
            let heap = self.shared.heap.borrow();
            let of_class = heap
                .chunks()
                .iter()
                .filter(|(_, chunk)| chunk.class == class)
                .map(|(&id, _)| id);
            let (after, before): (Vec<_>, Vec<_>) = of_class.partition(|&id| Some(id) > hints.owned);
            after.into_iter().chain(before).take(limit).collect()
        };
        for id in ids {
            hints.owned = Some(id);
            self.collect_chunk(cx, id).await?;
        }
        Ok(())
    }

    /// Takes the blocks out of an owned chunk's free map.
    pub(crate) async fn collect_chunk(&self, cx: &mut OpContext, id: ChunkId) -> Result<(), PoolError> {
        // One at a time: two tasks that saw the same bits would take them away twice.
        let _collecting = self.shared.collecting.lock().await;
        if !self.shared.heap.borrow().chunks().contains_key(&id) {
            // Given up meanwhile: what is in its free map is for the next owner.
            return Ok(());
        }
        let geometry = self.shared.geometry[usize::from(id.node)];
        let map = geometry.free_map(u64::from(id.index));
        for (at, word) in read_free_map(cx, &geometry, id.index).await? {
            // Others only add bits, the owner only takes away those it has seen: no carry, no borrow.
            let taken = cx.fetch_add(map.plus(at * 8), word.wrapping_neg()).await;
            // If nobody knows whether they were taken, they may be in no list.
            taken.inspect_err(|_| self.doubt())?;
            let units = bits(word).map(|bit| at * 64 + bit);
            self.shared.heap.borrow_mut().collect(id, units);
        }
        Ok(())
    }

    /// Takes over one of the last chunks of the class that nobody owns, if much of it is free. Who left last
    /// has left the last one.
    async fn adopt_left(
        &self,
        cx: &mut OpContext,
        geometry: &Geometry,
        table: &[ChunkState],
        class: SizeClass,
    ) -> Result<bool, PoolError> {
        // During a recovery such chunks are left to those who search them.
        if self.shared.heap.borrow().is_homing() {
            return Ok(false);
        }
        let wanted = ChunkState::Blocks { owner: None, class };
        let left = table.iter().enumerate().rev().filter(|&(_, &state)| state == wanted);
        for (index, _) in left.take(LEFT_LOOKS) {
            let index = index as u32;
            let free = count_free(cx, geometry, index).await?;
            if free * LEFT_FREE_SHARE >= geometry.blocks_per_chunk(class)
                && self.adopt_unowned(cx, geometry, index, wanted).await?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes over a chunk of the class that nobody owns and that has free blocks.
    async fn adopt_unowned_of(&self, cx: &mut OpContext, class: SizeClass) -> Result<(), PoolError> {
        for geometry in self.shared.geometry.iter().copied() {
            if !self.shared.heap.borrow().is_open(geometry.node.index()) {
                continue;
            }
            let table = read_chunk_table(cx, &geometry).await?;
            for (index, state) in (0..).zip(table) {
                if state == (ChunkState::Blocks { owner: None, class })
                    && !read_free_map(cx, &geometry, index).await?.is_empty()
                    && self.adopt_unowned(cx, &geometry, index, state).await?
                {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Takes over a chunk that nobody owns; false if another client was quicker.
    async fn adopt_unowned(
        &self,
        cx: &mut OpContext,
        geometry: &Geometry,
        index: u32,
        state: ChunkState,
    ) -> Result<bool, PoolError> {
        let word = geometry.chunk_word(u64::from(index));
        let mine = state.with_owner(Some(self.shared.owner)).to_word();
        if cx.compare_swap(word, state.to_word(), mine).await? != state.to_word() {
            return Ok(false);
        }
        let id = ChunkId {
            node: geometry.node.index() as u16,
            index,
        };
        let (class, run) = match state {
            ChunkState::Blocks { class, .. } => (class, 1),
            ChunkState::Run { count, .. } => (SizeClass::RUN, count),
            _ => unreachable!("only chunks that hold blocks are adopted"),
        };
        let home = BlockMap::new(geometry.blocks_per_chunk(class));
        self.shared
            .heap
            .borrow_mut()
            .adopt(id, self.shared.owner, class, run, home);
        self.collect_chunk(cx, id).await?;
        Ok(true)
    }

    /// Frees the chunks that nobody owns and nobody uses.
    async fn free_unowned(&self, cx: &mut OpContext) -> Result<(), PoolError> {
        for geometry in self.shared.geometry.iter() {
            self.free_unowned_of(cx, geometry).await?;
        }
        Ok(())
    }

    /// The same of one node. During a recovery it may not be called: then they are left to those who search them.
    pub(crate) async fn free_unowned_of(&self, cx: &mut OpContext, geometry: &Geometry) -> Result<(), PoolError> {
        let table = read_chunk_table(cx, geometry).await?;
        for (index, state) in (0..).zip(table) {
            let class = match state {
                ChunkState::Blocks { owner: None, class } => class,
                ChunkState::Run { owner: None, .. } => SizeClass::RUN,
                _ => continue,
            };
            let free = count_free(cx, geometry, index).await?;
            if free == geometry.blocks_per_chunk(class) && self.adopt_unowned(cx, geometry, index, state).await? {
                self.free_unused(cx, 0, usize::MAX).await?;
            }
        }
        Ok(())
    }

    /// Gives up to `limit` unused chunks back to their nodes, but keeps `keep` of each class.
    pub(crate) async fn free_unused(&self, cx: &mut OpContext, keep: usize, limit: usize) -> Result<(), PoolError> {
        let unused: Vec<ChunkId> = {
            let heap = self.shared.heap.borrow();
            let mut kept = std::collections::BTreeMap::<SizeClass, usize>::new();
            let unused = heap.chunks().iter().filter(|(_, chunk)| chunk.is_unused());
            let surplus = unused.filter(|(_, chunk)| {
                let kept = kept.entry(chunk.class).or_default();
                *kept += 1;
                *kept > keep || chunk.class == SizeClass::RUN
            });
            surplus.map(|(&id, _)| id).collect()
        };
        for id in unused.into_iter().take(limit) {
            // Meanwhile an operation may have taken a block of it.
            let Some(chunk) = self.shared.heap.borrow_mut().disown_unused(id) else {
                continue;
            };
            let geometry = self.shared.geometry[usize::from(id.node)];
            // Tails first: whoever sees the first chunk free sees all of them free. Together, since what is
            // half done is in doubt.
            let words: Vec<u64> = (0..u64::from(chunk.run)).rev().collect();
            for words in words.chunks(BATCH_VERBS_MAX) {
                let mut batch = Batch::new();
                for back in words {
                    let word = geometry.chunk_word(u64::from(id.index) + back);
                    batch.write_word(word, ChunkState::Free.to_word());
                }
                cx.post(&mut batch).await.inspect_err(|_| self.doubt())?;
            }
        }
        Ok(())
    }

    /// Gives an owned chunk up: its free blocks become bits of its free map, and whoever needs the
    /// class may take it over.
    pub(crate) async fn disown(&self, cx: &mut OpContext, id: ChunkId) -> Result<(), PoolError> {
        let is_unused = self
            .shared
            .heap
            .borrow()
            .chunks()
            .get(&id)
            .is_some_and(|chunk| chunk.is_unused());
        if is_unused {
            return self.free_unused(cx, 0, usize::MAX).await;
        }
        // A task that has just taken blocks out of the free map puts them into the chunk first.
        let collecting = self.shared.collecting.lock().await;
        let Some(chunk) = self.shared.heap.borrow_mut().disown(id) else {
            return Ok(());
        };
        drop(collecting);
        let geometry = self.shared.geometry[usize::from(id.node)];
        let map = geometry.free_map(u64::from(id.index));
        let units: Vec<u64> = chunk
            .home
            .iter()
            .map(|block| block_to_unit(chunk.class, block))
            .collect();
        self.add_bits(cx, map, &units).await?;
        // The first chunk last: whoever takes the run over finds the tails as they will stay.
        for back in (0..chunk.run).rev() {
            let state = match (chunk.class == SizeClass::RUN, back) {
                (false, _) => ChunkState::Blocks {
                    owner: None,
                    class: chunk.class,
                },
                (true, 0) => ChunkState::Run {
                    owner: None,
                    count: chunk.run,
                },
                (true, back) => ChunkState::RunTail { owner: None, back },
            };
            let word = geometry.chunk_word(u64::from(id.index) + u64::from(back));
            cx.write_word(word, state.to_word()).await?;
        }
        Ok(())
    }

    /// Sends the blocks of the outbox to the free maps of their chunks. What could not be sent stays in the
    /// outbox; what was sent and not acknowledged counts as *unsettled*.
    ///
    /// # Errors
    /// What the fabric reports.
    pub(crate) async fn flush_outbox(&self, cx: &mut OpContext) -> Result<(), PoolError> {
        let blocks = self.shared.heap.borrow_mut().take_outbox();
        let word_of = |&block: &RemoteAddr| {
            let located = self.shared.heap.borrow().locate(block);
            let (id, unit) = located.expect("only blocks within chunks enter the outbox");
            let map = self.shared.geometry[usize::from(id.node)].free_map(u64::from(id.index));
            (map.plus(unit / 64 * 8), 1_u64 << (unit % 64))
        };
        let mut rest = blocks.as_slice();
        while !rest.is_empty() {
            let mut batch = Batch::new();
            let mut sent = 0;
            for blocks in rest.chunk_by(|a, b| word_of(a).0 == word_of(b).0).take(BATCH_VERBS_MAX) {
                let bits = blocks.iter().fold(0, |bits, block| bits | word_of(block).1);
                batch.fetch_add(word_of(&blocks[0]).0, bits);
                sent += blocks.len();
            }
            rest = &rest[sent..];
            if let Err(error) = cx.post(&mut batch).await {
                self.shared.is_unsettled.set(true);
                self.shared.heap.borrow_mut().return_to_outbox(rest);
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Sends the outbox, and waits for what was sent before, if that does not take too long. Returns
    /// whether every block that was sent home is known to be there.
    pub(crate) async fn bring_home(&self) -> bool {
        let mut cx = OpContext::new(self.shared.endpoint.clone());
        // Much less than a lease: a node that is slow must not cost this client its membership.
        cx.set_deadline(self.shared.endpoint.deadline_in(self.shared.options.lease_ns / 4));
        if self.shared.is_unsettled.get() {
            // Whatever a node answers now, it has done what was sent before.
            for geometry in self.there() {
                if cx.read_word(RemoteAddr::new(geometry.node, 0)).await.is_err() {
                    return false;
                }
            }
            self.shared.is_unsettled.set(false);
        }
        self.flush_outbox(&mut cx).await.is_ok()
    }

    async fn add_bits(&self, cx: &mut OpContext, map: RemoteAddr, units: &[u64]) -> Result<(), PoolError> {
        let words: Vec<&[u64]> = units.chunk_by(|a, b| a / 64 == b / 64).collect();
        for words in words.chunks(BATCH_VERBS_MAX) {
            let mut batch = Batch::new();
            for units in words {
                let word = units.iter().fold(0, |word, unit| word | 1_u64 << (unit % 64));
                batch.fetch_add(map.plus(units[0] / 64 * 8), word);
            }
            cx.post(&mut batch).await?;
        }
        Ok(())
    }
}

/// The set bits of a word, lowest first.
pub(crate) fn bits(word: u64) -> impl Iterator<Item = u64> {
    (0..64).filter(move |bit| word >> bit & 1 == 1)
}

/// The words of a chunk's free map that are not zero, with their index.
///
/// # Errors
/// What the fabric reports.
pub(crate) async fn read_free_map(
    cx: &mut OpContext,
    geometry: &Geometry,
    index: u32,
) -> Result<Vec<(u64, u64)>, PoolError> {
    let words = read_words(cx, geometry.free_map(u64::from(index)), geometry.free_map_bytes() / 8).await?;
    Ok((0..).zip(words).filter(|&(_, word)| word != 0).collect())
}

/// How many of a chunk's blocks have come back to its free map.
async fn count_free(cx: &mut OpContext, geometry: &Geometry, index: u32) -> Result<u64, PoolError> {
    let map = read_free_map(cx, geometry, index).await?;
    Ok(map.iter().map(|(_, word)| u64::from(word.count_ones())).sum())
}

/// The state of every chunk of a node.
///
/// # Errors
/// [`PoolError::Damaged`] if a word is none of the states, or what the fabric reports.
pub(crate) async fn read_chunk_table(cx: &mut OpContext, geometry: &Geometry) -> Result<Vec<ChunkState>, PoolError> {
    let words = read_words(cx, geometry.chunk_word(0), geometry.chunk_count).await?;
    let mut states = Vec::with_capacity(words.len());
    for (index, word) in words.into_iter().enumerate() {
        let state = ChunkState::from_word(word).ok_or_else(|| PoolError::Damaged {
            node: geometry.node,
            reason: format!("the word of chunk {index} is {word:#x}"),
        })?;
        states.push(state);
    }
    Ok(states)
}

async fn read_words(cx: &mut OpContext, first: RemoteAddr, count: u64) -> Result<Vec<u64>, PoolError> {
    const WORDS_AT_ONCE: u64 = 1024;
    let mut words = Vec::with_capacity(count as usize);
    for at in (0..count).step_by(WORDS_AT_ONCE as usize) {
        let target = Slice::first((count - at).min(WORDS_AT_ONCE) as u32 * 8);
        let bytes = cx.read(first.plus(at * 8), target).await?;
        let (whole, _) = bytes.as_chunks::<8>();
        words.extend(whole.iter().map(|&word| u64::from_le_bytes(word)));
    }
    // Each word is changed by itself, and whoever acts on one does so by an atomic on it.
    cx.rely_on_words();
    Ok(words)
}
