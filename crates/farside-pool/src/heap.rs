//! What one client knows about blocks: which it may hand out, which wait, whose chunks they are in.
//!
//! On the path: an allocation takes a block from here; only when there is none does it go to far
//! memory (see [`refill`](crate::refill)). Pure bookkeeping in local memory, no fabric.
//!
//! # Nouns
//! - An **owned chunk** is one that this client cuts blocks from. A block of it that is free and in
//!   nobody's list is *at home*: a bit in the chunk's `home` map.
//! - The **ready list** of a class holds blocks that can be handed out now, from any chunk: a block
//!   that this client retired is reused by it, whoever owns the chunk, so that an update costs no
//!   verb for reclamation.
//! - **Limbo** holds retired blocks until their grace period is over ([`epoch`](crate::epoch)).
//! - The **outbox** holds blocks of other clients' chunks on their way home: they become a bit in the
//!   chunk's free map in far memory, which the owner collects.
//!
//! While a dead client's blocks are being searched for ([`recovery`](crate::recovery)) the client is
//! *homing*: it reuses no foreign block and sends every one home, so that each block that is not
//! reachable is either at home, in a free map, or lost by the dead.
//!
//! Invariant: a block is in at most one of: ready list, limbo, outbox, `home` of an owned chunk.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use farside_fabric::RemoteAddr;
use farside_fabric::mutant::is_planted;

use crate::epoch::GRACE_EPOCHS;
use crate::layout::{Geometry, Owner};
use crate::size_class::{SizeClass, UNIT_BYTES};

/// A chunk: its node and its index there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ChunkId {
    /// Index of the node.
    pub node: u16,
    /// Index of the chunk within the node.
    pub index: u32,
}

/// One bit per block of a chunk.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct BlockMap {
    words: Box<[u64]>,
    count: u32,
}

impl BlockMap {
    /// A map of `blocks` blocks, none of them in it.
    #[must_use]
    pub fn new(blocks: u64) -> Self {
        Self {
            words: vec![0; blocks.div_ceil(64) as usize].into(),
            count: 0,
        }
    }

    /// A map of `blocks` blocks, all of them in it.
    #[must_use]
    pub fn full(blocks: u64) -> Self {
        let mut map = Self::new(blocks);
        (0..blocks).for_each(|block| assert!(map.insert(block), "each block once"));
        map
    }

    /// How many blocks are in the map.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether block `index` is in the map.
    #[must_use]
    pub fn contains(&self, index: u64) -> bool {
        self.words[index as usize / 64] >> (index % 64) & 1 == 1
    }

    /// Adds a block; returns whether it was new.
    pub fn insert(&mut self, index: u64) -> bool {
        let (word, bit) = (&mut self.words[index as usize / 64], 1 << (index % 64));
        // A branch, not `count += u32::from(is_new)`: rustc 1.95 with LLVM 22 optimises that into a
        // count of zero where a loop asserts that every block is new.
        if *word & bit != 0 {
            return false;
        }
        *word |= bit;
        self.count += 1;
        true
    }

    /// Takes a block out; returns whether it was there.
    pub fn remove(&mut self, index: u64) -> bool {
        let (word, bit) = (&mut self.words[index as usize / 64], 1 << (index % 64));
        if *word & bit == 0 {
            return false;
        }
        *word &= !bit;
        self.count -= 1;
        true
    }

    /// The blocks in the map, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.words.iter().enumerate().flat_map(|(at, &word)| {
            let mut left = word;
            core::iter::from_fn(move || {
                let bit = left.trailing_zeros();
                left &= left.checked_sub(1)?;
                Some(at as u64 * 64 + u64::from(bit))
            })
        })
    }
}

/// A chunk that this client owns.
#[derive(Debug)]
pub struct OwnedChunk {
    /// Class of its blocks; [`SizeClass::RUN`] for a run.
    pub class: SizeClass,
    /// As whom this client owns it (the exact owner in the chunk word).
    pub owner: Owner,
    /// How many chunks a run has; 1 otherwise.
    pub run: u16,
    /// How many blocks it has.
    pub blocks: u64,
    /// Blocks that are free and in no list.
    pub home: BlockMap,
    /// During recovery: blocks that may be lost. Whatever comes home leaves this map.
    pub suspects: Option<BlockMap>,
}

impl OwnedChunk {
    /// Whether no block of it is in use or in any list.
    #[must_use]
    pub fn is_unused(&self) -> bool {
        u64::from(self.home.count()) == self.blocks
    }

    fn come_home(&mut self, block: u64) -> bool {
        if let Some(suspects) = &mut self.suspects {
            suspects.remove(block);
        }
        self.home.insert(block)
    }
}

/// How many bytes of free blocks of one class a client keeps in its ready list before it sends some home, however many it
/// uses.
const READY_BYTES_MAX: u64 = 1 << 20;
/// How many blocks of one class a client keeps in its ready list, however few it uses.
const READY_MIN: usize = 16;

/// The block lists of one client.
#[derive(Debug)]
pub struct Heap {
    geometry: Vec<Geometry>,
    ready: Vec<Vec<RemoteAddr>>,
    /// For each class, about how many blocks have lately ended their limbo together, and how many do so now.
    burst: Vec<(usize, usize)>,
    limbo: VecDeque<(u64, RemoteAddr, Option<SizeClass>)>,
    outbox: Vec<RemoteAddr>,
    chunks: BTreeMap<ChunkId, OwnedChunk>,
    /// Owned chunks with blocks at home, by class.
    stocked: BTreeSet<(SizeClass, ChunkId)>,
    homing: bool,
}

impl Heap {
    /// An empty heap over the nodes with these geometries.
    #[must_use]
    pub fn new(geometry: Vec<Geometry>) -> Self {
        let classes = SizeClass::count(geometry[0].chunk_bytes);
        Self {
            geometry,
            ready: vec![Vec::new(); classes],
            burst: vec![(0, 0); classes],
            limbo: VecDeque::new(),
            outbox: Vec::new(),
            chunks: BTreeMap::new(),
            stocked: BTreeSet::new(),
            homing: false,
        }
    }

    /// The class for blocks of `bytes` bytes.
    #[inline]
    #[must_use]
    pub fn class_for(&self, bytes: u64) -> SizeClass {
        SizeClass::for_bytes(bytes, self.geometry[0].chunk_bytes)
    }

    /// Takes a ready block of the class, if there is one; not for runs.
    #[inline]
    pub fn take(&mut self, class: SizeClass) -> Option<RemoteAddr> {
        let list = self.ready.get_mut(usize::from(class.0))?;
        let block = list.pop();
        if block.is_some() || !self.stock(class) {
            return block;
        }
        self.ready[usize::from(class.0)].pop()
    }

    /// The block that [`Heap::take`] will return next, if it is ready.
    #[inline]
    #[must_use]
    pub fn next(&self, class: SizeClass) -> Option<RemoteAddr> {
        self.ready.get(usize::from(class.0))?.last().copied()
    }

    /// Whether [`Heap::take`], or [`Heap::take_run`] for `bytes` bytes, would find `count` blocks.
    #[must_use]
    pub fn has(&self, class: SizeClass, bytes: u64, count: usize) -> bool {
        let ready = self.ready.get(usize::from(class.0)).map_or(0, Vec::len);
        let first = ChunkId { node: 0, index: 0 };
        let stocked = self
            .stocked
            .range((class, first)..)
            .take_while(|(found, _)| *found == class);
        let run_bytes = |id: &ChunkId| u64::from(self.chunks[id].run) * self.geometry[0].chunk_bytes;
        let mut blocks = ready;
        for (_, id) in stocked.filter(|(_, id)| class != SizeClass::RUN || run_bytes(id) >= bytes) {
            if blocks >= count {
                break;
            }
            blocks += self.chunks[id].home.count() as usize;
        }
        blocks >= count
    }

    /// Moves blocks of owned chunks from home to the ready list; returns whether there were any.
    fn stock(&mut self, class: SizeClass) -> bool {
        const BLOCKS_AT_ONCE: usize = 64;
        let first = ChunkId { node: 0, index: 0 };
        let next = self.stocked.range((class, first)..).next();
        let Some(&(_, id)) = next.filter(|&&(found, _)| found == class) else {
            return false;
        };
        let chunk = self.chunks.get_mut(&id).expect("stocked chunks are owned");
        let base = self.geometry[usize::from(id.node)].chunk(u64::from(id.index));
        let blocks: Vec<u64> = chunk.home.iter().take(BLOCKS_AT_ONCE).collect();
        for &block in blocks.iter().rev() {
            chunk.home.remove(block);
            self.ready[usize::from(class.0)].push(base.plus(block * class.bytes()));
        }
        if chunk.home.count() == 0 {
            self.stocked.remove(&(class, id));
        }
        true
    }

    /// Takes the shortest unused run that holds `bytes` bytes, if this client owns one.
    pub fn take_run(&mut self, bytes: u64) -> Option<RemoteAddr> {
        let chunk_bytes = self.geometry[0].chunk_bytes;
        let first = ChunkId { node: 0, index: 0 };
        let unused = self.stocked.range((SizeClass::RUN, first)..);
        let fits = unused.filter(|(_, id)| u64::from(self.chunks[id].run) * chunk_bytes >= bytes);
        let &(class, id) = fits.min_by_key(|(_, id)| self.chunks[id].run)?;
        self.stocked.remove(&(class, id));
        let chunk = self.chunks.get_mut(&id).expect("stocked chunks are owned");
        assert!(chunk.home.remove(0), "a stocked run is at home");
        Some(self.geometry[usize::from(id.node)].chunk(u64::from(id.index)))
    }

    /// Which chunk holds a block, and the 32-byte unit at which it starts.
    #[must_use]
    pub fn locate(&self, block: RemoteAddr) -> Option<(ChunkId, u64)> {
        let geometry = self.geometry.get(block.node().index())?;
        let (index, unit) = geometry.locate(block)?;
        Some((
            ChunkId {
                node: block.node().index() as u16,
                index: index as u32,
            },
            unit,
        ))
    }

    /// A block that nobody links any more, unlinked while the local epoch was `epoch`. Its class may
    /// be unknown: then it is not reused but sent home.
    #[inline]
    pub fn retire(&mut self, epoch: u64, block: RemoteAddr, class: Option<SizeClass>) {
        if is_planted("pool: a retired block reused at once") {
            return self.limbo.push_front((0, block, class));
        }
        self.limbo.push_back((epoch, block, class));
        if is_planted("pool: a block retired twice") {
            self.limbo.push_back((epoch, block, class));
        }
    }

    /// Ends the limbo of blocks whose grace period is over at `epoch`. Returns the smallest tag that
    /// still waits, or `epoch`: no block with a smaller tag is in limbo. Each block that ends it is
    /// named to `forget`, with its bytes, or with none if those are not known.
    pub fn reclaim(&mut self, epoch: u64, forget: impl Fn(RemoteAddr, u64)) -> u64 {
        while let Some(&(tag, block, class)) = self.limbo.front() {
            let grace = GRACE_EPOCHS
                - 2 * u64::from(is_planted("pool: a block reused two epochs too early"))
                - u64::from(is_planted("pool: a block reused an epoch too early"));
            if tag + grace > epoch {
                break;
            }
            self.limbo.pop_front();
            let sized = class.filter(|&class| class != SizeClass::RUN);
            forget(block, sized.map_or(0, SizeClass::bytes));
            match class {
                Some(class) => {
                    if let Some((_, now)) = self.burst.get_mut(usize::from(class.0)) {
                        *now += 1;
                    }
                    self.release(block, class);
                }
                None => self.send_home(block),
            }
        }
        for (lately, now) in self.burst.iter_mut().filter(|(_, now)| *now > 0) {
            *lately = (*lately - *lately / 8).max(*now);
            *now = 0;
        }
        self.limbo.front().map_or(epoch, |&(tag, ..)| tag)
    }

    /// A block that may be handed out again at once.
    pub fn release(&mut self, block: RemoteAddr, class: SizeClass) {
        if self.homing || class == SizeClass::RUN {
            return self.send_home(block);
        }
        let list = &mut self.ready[usize::from(class.0)];
        list.push(block);
        // Room for what ends its limbo together while as much is used; what is beyond that others may lack, as clients
        // that overwrite each other's items get now more and now less than they use.
        let bytes_max = ((READY_BYTES_MAX / class.bytes()) as usize).max(8);
        let list_max = (2 * self.burst[usize::from(class.0)].0).max(READY_MIN).min(bytes_max);
        if list.len() > list_max {
            // The older half: the younger is still in the processor's cache.
            let surplus: Vec<RemoteAddr> = list.drain(..list_max / 2).collect();
            surplus.into_iter().for_each(|block| self.send_home(block));
        }
    }

    /// Brings a block back to its chunk: at once if the chunk is owned, else by the outbox.
    fn send_home(&mut self, block: RemoteAddr) {
        let Some((id, unit)) = self.locate(block) else {
            tracing::error!("{block} was freed but lies in no chunk; it is dropped");
            return;
        };
        match self.chunks.get_mut(&id) {
            Some(chunk) => {
                let index = unit_to_block(chunk.class, unit);
                self.stocked.insert((chunk.class, id));
                if !chunk.come_home(index) {
                    tracing::error!("{block} was freed twice; the second time is ignored");
                }
            }
            None => self.outbox.push(block),
        }
    }

    /// Takes ownership of a chunk, of whose blocks those in `home` are free.
    pub fn adopt(&mut self, id: ChunkId, owner: Owner, class: SizeClass, run: u16, home: BlockMap) {
        let blocks = self.geometry[usize::from(id.node)].blocks_per_chunk(class);
        if home.count() > 0 {
            self.stocked.insert((class, id));
        }
        let chunk = OwnedChunk {
            class,
            owner,
            run,
            blocks,
            home,
            suspects: None,
        };
        let before = self.chunks.insert(id, chunk);
        assert!(before.is_none(), "a chunk is taken over once");
    }

    /// Gives up ownership of a chunk of which no block is in use or in a list; `None` if one is.
    pub fn disown_unused(&mut self, id: ChunkId) -> Option<OwnedChunk> {
        let is_unused = self.chunks.get(&id).is_some_and(OwnedChunk::is_unused);
        if is_unused { self.disown(id) } else { None }
    }

    /// Gives up ownership. Ready blocks of the chunk come home first: whoever takes the chunk over must
    /// be able to tell them.
    pub fn disown(&mut self, id: ChunkId) -> Option<OwnedChunk> {
        let class = self.chunks.get(&id)?.class;
        if let Some(list) = self.ready.get_mut(usize::from(class.0)) {
            let (back, kept) = core::mem::take(list).into_iter().partition::<Vec<_>, _>(|&block| {
                let geometry = &self.geometry[block.node().index()];
                block.node().index() == usize::from(id.node)
                    && geometry
                        .locate(block)
                        .is_some_and(|(index, _)| index == u64::from(id.index))
            });
            *list = kept;
            back.into_iter().for_each(|block| self.send_home(block));
        }
        let chunk = self.chunks.remove(&id)?;
        self.stocked.remove(&(chunk.class, id));
        Some(chunk)
    }

    /// The chunks that this client owns.
    pub fn chunks(&self) -> &BTreeMap<ChunkId, OwnedChunk> {
        &self.chunks
    }

    /// Starts the search for lost blocks: every block of an owned chunk that is not at home now is a
    /// suspect, and stays one until it comes home or is acquitted.
    pub fn suspect_all(&mut self) {
        // What is ready is known to be free, too.
        self.set_homing(true);
        for chunk in self.chunks.values_mut() {
            let mut suspects = BlockMap::new(chunk.blocks);
            for block in (0..chunk.blocks).filter(|&block| !chunk.home.contains(block)) {
                suspects.insert(block);
            }
            chunk.suspects = Some(suspects);
        }
    }

    /// A suspect that turned out to be reachable.
    pub fn acquit(&mut self, block: RemoteAddr) {
        let Some((id, unit)) = self.locate(block) else { return };
        if let Some(chunk) = self.chunks.get_mut(&id)
            && let Some(suspects) = &mut chunk.suspects
        {
            let wrong = u64::from(is_planted("pool: the block next to a linked one acquitted"));
            suspects.remove(unit_to_block(chunk.class, unit) + wrong);
        }
    }

    /// The blocks that are suspects.
    pub fn suspects(&self) -> impl Iterator<Item = RemoteAddr> + '_ {
        self.chunks.iter().flat_map(|(&id, chunk)| {
            let base = self.geometry[usize::from(id.node)].chunk(u64::from(id.index));
            let bytes = match chunk.class {
                SizeClass::RUN => 0,
                class => class.bytes(),
            };
            let suspects = chunk.suspects.iter().flat_map(BlockMap::iter);
            suspects.map(move |block| base.plus(block * bytes))
        })
    }

    /// Ends the search: the suspects that are left were lost by a dead client, and come home.
    /// Returns how many there were. Each is named to `forget`, with its bytes.
    pub fn recover_suspects(&mut self, forget: impl Fn(RemoteAddr, u64)) -> u64 {
        let mut count = 0;
        for (&id, chunk) in &mut self.chunks {
            let geometry = &self.geometry[usize::from(id.node)];
            let bytes = match chunk.class {
                SizeClass::RUN => u64::from(chunk.run) * geometry.chunk_bytes,
                class => class.bytes(),
            };
            let base = geometry.chunk(u64::from(id.index));
            for block in chunk.suspects.take().unwrap_or_default().iter() {
                forget(base.plus(block * bytes), bytes);
                assert!(chunk.home.insert(block), "a block at home is no suspect");
                count += 1;
            }
            if chunk.home.count() > 0 {
                self.stocked.insert((chunk.class, id));
            }
        }
        count
    }

    /// Blocks that other clients gave back through the free map of an owned chunk.
    pub fn collect(&mut self, id: ChunkId, units: impl Iterator<Item = u64>) {
        let Some(chunk) = self.chunks.get_mut(&id) else { return };
        for unit in units {
            self.stocked.insert((chunk.class, id));
            let block = unit_to_block(chunk.class, unit);
            if block >= chunk.blocks || !chunk.come_home(block) {
                tracing::error!(
                    "the free map of chunk {} of node {} names unit {unit} wrongly",
                    id.index,
                    id.node
                );
            }
        }
    }

    /// Whether free blocks are sent home rather than reused.
    #[must_use]
    pub fn is_homing(&self) -> bool {
        self.homing
    }

    /// Starts or ends homing; at the start every ready block goes home.
    pub fn set_homing(&mut self, homing: bool) {
        self.homing = homing;
        if homing {
            for class in 0..self.ready.len() {
                let blocks = core::mem::take(&mut self.ready[class]);
                blocks.into_iter().for_each(|block| self.send_home(block));
            }
        }
    }

    /// Takes the foreign blocks that are on their way home, sorted by address.
    pub fn take_outbox(&mut self) -> Vec<RemoteAddr> {
        let mut blocks = core::mem::take(&mut self.outbox);
        blocks.sort_unstable();
        blocks
    }

    /// Puts blocks back that could not be sent.
    pub fn return_to_outbox(&mut self, blocks: &[RemoteAddr]) {
        self.outbox.extend_from_slice(blocks);
    }

    /// How many blocks wait for their grace period.
    #[must_use]
    pub fn limbo_count(&self) -> usize {
        self.limbo.len()
    }

    /// Whether a block of a class is among them.
    #[must_use]
    pub fn limbo_has(&self, class: SizeClass) -> bool {
        self.limbo.iter().any(|&(_, _, waiting)| waiting == Some(class))
    }

    /// Every block in a list of this client, for accounting.
    pub fn listed(&self) -> impl Iterator<Item = RemoteAddr> + '_ {
        let limbo = self.limbo.iter().map(|&(_, block, _)| block);
        self.ready
            .iter()
            .flatten()
            .copied()
            .chain(limbo)
            .chain(self.outbox.iter().copied())
    }
}

/// The block that starts at a 32-byte unit of its chunk.
fn unit_to_block(class: SizeClass, unit: u64) -> u64 {
    if class == SizeClass::RUN {
        unit
    } else {
        unit / (class.bytes() / UNIT_BYTES)
    }
}

/// The 32-byte unit at which a block starts.
pub(crate) fn block_to_unit(class: SizeClass, block: u64) -> u64 {
    if class == SizeClass::RUN {
        block
    } else {
        block * (class.bytes() / UNIT_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_fabric::NodeId;
    use proptest::prelude::*;

    const ME: Owner = Owner { client: 0, life: 0 };

    fn heap() -> Heap {
        let geometry = Geometry::divide(1, NodeId::new(0), 1, 1 << 20, 4096, 8).expect("large enough");
        Heap::new(vec![geometry])
    }

    #[test]
    fn retired_blocks_wait_three_epochs() {
        let mut heap = heap();
        let class = heap.class_for(100);
        let id = ChunkId { node: 0, index: 2 };
        heap.adopt(id, ME, class, 1, BlockMap::full(32));
        let block = heap.take(class).expect("the chunk has blocks");
        let others: Vec<_> = core::iter::from_fn(|| heap.take(class)).collect();
        assert_eq!(others.len(), 31);
        heap.retire(7, block, Some(class));
        for epoch in 7..10 {
            assert_eq!(heap.reclaim(epoch, |_, _| ()), 7);
            assert_eq!(heap.take(class), None, "epoch {epoch}");
        }
        assert_eq!(heap.reclaim(10, |_, _| ()), 10);
        assert_eq!(heap.take(class), Some(block));
    }

    #[test]
    fn foreign_blocks_are_reused_unless_homing() {
        let mut heap = heap();
        let class = heap.class_for(64);
        let foreign = RemoteAddr::new(NodeId::new(0), heap.geometry[0].chunk(5).offset() + 128);
        heap.retire(0, foreign, Some(class));
        heap.reclaim(3, |_, _| ());
        assert_eq!(heap.take(class), Some(foreign));
        heap.retire(3, foreign, Some(class));
        heap.reclaim(6, |_, _| ());
        heap.set_homing(true);
        assert_eq!(heap.take(class), None);
        assert_eq!(heap.take_outbox(), [foreign]);
    }

    /// Retires a block, and lets its grace period pass.
    fn reuse(heap: &mut Heap, block: RemoteAddr, bytes: u64) {
        let class = heap.class_for(bytes);
        heap.retire(0, block, Some(class));
        heap.reclaim(3, |_, _| ());
    }

    #[test]
    fn the_next_block_is_the_one_that_is_taken_next() {
        let mut heap = heap();
        let class = heap.class_for(1024);
        assert_eq!(heap.next(class), None);
        heap.adopt(ChunkId { node: 0, index: 2 }, ME, class, 1, BlockMap::full(4));
        assert_eq!(heap.next(class), None, "what is at home is not ready");
        let first = heap.geometry[0].chunk(2);
        assert_eq!(heap.take(class), Some(first));
        for block in 1..4 {
            let next = heap.next(class);
            assert_eq!(next, Some(first.plus(block * 1024)));
            assert_eq!(heap.take(class), next);
        }
        assert_eq!(heap.next(class), None);
        assert_eq!(heap.next(SizeClass::RUN), None);
    }

    #[test]
    fn sixty_four_blocks_leave_home_at_once() {
        let mut heap = heap();
        let class = heap.class_for(32);
        let ids = [2, 3].map(|index| ChunkId { node: 0, index });
        for id in ids {
            heap.adopt(id, ME, class, 1, BlockMap::full(128));
        }
        for taken in 1..=256 {
            assert!(heap.take(class).is_some());
            let home = ids.map(|id| u64::from(heap.chunks()[&id].home.count()));
            assert_eq!(home.iter().sum::<u64>(), 256_u64 - u64::next_multiple_of(taken, 64));
        }
        assert_eq!(heap.take(class), None);
    }

    #[test]
    fn blocks_at_home_and_ready_ones_are_there() {
        let mut heap = heap();
        let [small, large] = [1024, 2048].map(|bytes| heap.class_for(bytes));
        assert!(heap.has(small, 1024, 0));
        assert!(!heap.has(small, 1024, 1));
        for (index, class, blocks) in [(2, small, 4), (3, small, 4), (4, large, 2)] {
            heap.adopt(ChunkId { node: 0, index }, ME, class, 1, BlockMap::full(blocks));
        }
        for taken in 0..3 {
            assert!(heap.has(small, 1024, 8 - taken), "{taken} were taken");
            assert!(!heap.has(small, 1024, 9 - taken), "{taken} were taken");
            assert!(heap.take(small).is_some());
        }
        assert!(heap.has(large, 2048, 2));
        assert!(!heap.has(large, 2048, 3));
    }

    #[test]
    fn the_shortest_run_that_is_long_enough_is_taken() {
        let mut heap = heap();
        let run = SizeClass::RUN;
        for (index, chunks) in [(2, 3), (5, 2), (7, 4)] {
            heap.adopt(ChunkId { node: 0, index }, ME, run, chunks, BlockMap::full(1));
        }
        assert!(heap.has(run, 2 * 4096, 3) && !heap.has(run, 2 * 4096, 4));
        assert!(heap.has(run, 2 * 4096 + 1, 2) && !heap.has(run, 2 * 4096 + 1, 3));
        assert!(heap.has(run, 4 * 4096, 1) && !heap.has(run, 4 * 4096 + 1, 1));
        assert_eq!(heap.take_run(4 * 4096 + 1), None);
        let first = heap.geometry[0].chunk(5);
        assert_eq!(heap.take_run(2 * 4096), Some(first));
        assert_eq!(heap.take_run(2 * 4096), Some(heap.geometry[0].chunk(2)));
        assert_eq!(heap.take_run(2 * 4096), Some(heap.geometry[0].chunk(7)));
        assert_eq!(heap.take_run(1), None);
        heap.release(first, run);
        assert_eq!(heap.take_run(1), Some(first));
    }

    /// Frees `count` foreign blocks one after the other; returns how many of them were sent home.
    fn sent_home(heap: &mut Heap, bytes: u64, count: u64) -> usize {
        let (class, first) = (heap.class_for(bytes), heap.geometry[0].chunk(2));
        (0..count).for_each(|block| heap.release(first.plus(block * bytes), class));
        heap.take_outbox().len()
    }

    #[test]
    fn the_older_half_of_too_many_ready_blocks_goes_home() {
        let (mut few, mut many) = (heap(), heap());
        assert_eq!(sent_home(&mut few, 32, 16), 0);
        assert_eq!(sent_home(&mut many, 32, 17), 8);
        let class = many.class_for(32);
        let left: Vec<_> = core::iter::from_fn(|| many.take(class)).collect();
        let first = many.geometry[0].chunk(2);
        let younger: Vec<_> = (8..17).rev().map(|block| first.plus(block * 32)).collect();
        assert_eq!(left, younger);
    }

    #[test]
    fn few_large_blocks_are_kept_ready() {
        let large = || {
            let geometry = Geometry::divide(1, NodeId::new(0), 1, 16 << 20, 1 << 20, 8).expect("large enough");
            Heap::new(vec![geometry])
        };
        assert_eq!(sent_home(&mut large(), 512 << 10, 8), 0);
        assert_eq!(sent_home(&mut large(), 512 << 10, 9), 4);
        assert_eq!(sent_home(&mut large(), 128 << 10, 8), 0);
        assert_eq!(sent_home(&mut large(), 128 << 10, 9), 4);
        assert_eq!(sent_home(&mut large(), 64 << 10, 16), 0);
        assert_eq!(sent_home(&mut large(), 64 << 10, 17), 8);
    }

    #[test]
    fn twice_as_many_blocks_are_kept_ready_as_end_their_limbo_together() {
        let mut heap = heap();
        let class = heap.class_for(32);
        let first = heap.geometry[0].chunk(2);
        for block in 0..24 {
            heap.retire(0, first.plus(block * 32), Some(class));
        }
        heap.reclaim(3, |_, _| ());
        // Before the first of them nobody knew how many there would be: 17 are too many, as are 17 again.
        assert_eq!(heap.take_outbox().len(), 8);
        assert_eq!(heap.ready[usize::from(class.0)].len(), 16);
        for block in 24..56 {
            heap.release(first.plus(block * 32), class);
        }
        assert_eq!(heap.take_outbox().len(), 0, "there is room for 48");
        // One alone: room for an eighth less.
        reuse(&mut heap, first.plus(56 * 32), 32);
        assert_eq!(heap.take_outbox().len(), 24);
        assert_eq!(heap.burst[usize::from(class.0)], (21, 0));
    }

    #[test]
    fn ready_blocks_of_a_chunk_that_is_given_up_come_home() {
        let nodes = [0, 1].map(|node| Geometry::divide(1, NodeId::new(node), 2, 1 << 20, 4096, 8));
        let mut heap = Heap::new(nodes.map(|node| node.expect("large enough")).into());
        let class = heap.class_for(1024);
        let ids = [(0, 2), (0, 3), (1, 2)].map(|(node, index)| ChunkId { node, index });
        let blocks = ids.map(|id| heap.geometry[usize::from(id.node)].chunk(u64::from(id.index)));
        for (id, block) in ids.into_iter().zip(blocks) {
            heap.adopt(id, ME, class, 1, BlockMap::new(4));
            heap.release(block, class);
            heap.release(block.plus(2 * 1024), class);
        }
        assert_eq!(heap.disown_unused(ids[0]).map(|chunk| chunk.blocks), None);
        let chunk = heap.disown(ids[0]).expect("it was owned");
        assert_eq!(chunk.home.iter().collect::<Vec<_>>(), [0, 2]);
        assert_eq!(heap.chunks().keys().copied().collect::<Vec<_>>(), ids[1..]);
        let left: BTreeSet<_> = core::iter::from_fn(|| heap.take(class)).collect();
        let others = blocks[1..].iter().flat_map(|&block| [block, block.plus(2 * 1024)]);
        assert_eq!(left, others.collect());
    }

    #[test]
    fn a_chunk_in_use_is_not_given_up_as_unused() {
        let mut heap = heap();
        let class = heap.class_for(1024);
        let id = ChunkId { node: 0, index: 2 };
        heap.adopt(id, ME, class, 1, BlockMap::full(4));
        let block = heap.take(class).expect("the chunk has blocks");
        assert!(heap.disown_unused(id).is_none());
        heap.set_homing(true);
        assert!(heap.disown_unused(id).is_none(), "one block is in use");
        heap.release(block, class);
        assert!(heap.disown_unused(id).is_some_and(|chunk| chunk.is_unused()));
        assert!(heap.disown_unused(id).is_none());
        assert_eq!(heap.take(class), None, "what was given up is not handed out");
    }

    #[test]
    fn suspects_that_stay_away_are_found() {
        use core::cell::RefCell;
        let mut heap = heap();
        let class = heap.class_for(1024);
        let mut home = BlockMap::new(4);
        home.insert(3);
        heap.adopt(ChunkId { node: 0, index: 2 }, ME, class, 1, home);
        heap.adopt(ChunkId { node: 0, index: 5 }, ME, SizeClass::RUN, 2, BlockMap::new(1));
        heap.suspect_all();
        assert!(heap.is_homing());
        let [blocks, run] = [2, 5].map(|chunk| heap.geometry[0].chunk(chunk));
        let suspects = [0, 1, 2].map(|block| blocks.plus(block * 1024));
        assert_eq!(heap.suspects().collect::<Vec<_>>(), [&suspects[..], &[run]].concat());
        heap.acquit(suspects[1]);
        heap.release(suspects[0], class);
        assert_eq!(heap.suspects().collect::<Vec<_>>(), [suspects[2], run]);
        let forgotten = RefCell::new(Vec::new());
        let forget = |block, bytes| forgotten.borrow_mut().push((block, bytes));
        assert_eq!(heap.recover_suspects(forget), 2);
        assert_eq!(forgotten.into_inner(), [(suspects[2], 1024), (run, 2 * 4096)]);
        assert_eq!(heap.suspects().count(), 0);
        heap.set_homing(false);
        assert_eq!(heap.take_run(2 * 4096), Some(run));
        let free = core::iter::from_fn(|| heap.take(class));
        assert_eq!(
            free.collect::<Vec<_>>(),
            [suspects[0], suspects[2], blocks.plus(3 * 1024)]
        );
    }

    #[test]
    fn a_free_map_that_names_what_is_no_block_brings_none_home() {
        let mut heap = heap();
        let class = heap.class_for(96);
        let id = ChunkId { node: 0, index: 2 };
        heap.adopt(id, ME, class, 1, BlockMap::new(42));
        // The last two of 128 units are too few for a block.
        heap.collect(id, [126].into_iter());
        assert_eq!(heap.chunks()[&id].home.count(), 0);
        heap.collect(id, [0, 123].into_iter());
        assert_eq!(heap.chunks()[&id].home.iter().collect::<Vec<_>>(), [0, 41]);
    }

    #[test]
    fn blocks_on_their_way_home_are_sorted() {
        let mut heap = heap();
        let class = heap.class_for(64);
        heap.set_homing(true);
        let first = heap.geometry[0].chunk(2);
        let blocks = [3, 1, 2, 0].map(|block| first.plus(block * 64));
        blocks.into_iter().for_each(|block| heap.release(block, class));
        let sorted = [0, 1, 2, 3].map(|block| first.plus(block * 64));
        assert_eq!(heap.take_outbox(), sorted);
        heap.return_to_outbox(&blocks);
        assert_eq!(heap.take_outbox(), sorted);
        assert_eq!(heap.take_outbox(), []);
    }

    #[test]
    fn limbo_knows_of_which_classes_its_blocks_are() {
        let mut heap = heap();
        let classes = [64, 128, 256].map(|bytes| heap.class_for(bytes));
        let first = heap.geometry[0].chunk(2);
        assert_eq!(classes.map(|class| heap.limbo_has(class)), [false; 3]);
        heap.retire(0, first, Some(classes[0]));
        heap.retire(0, first.plus(128), Some(classes[1]));
        heap.retire(0, first.plus(256), None);
        assert_eq!(heap.limbo_count(), 3);
        assert_eq!(classes.map(|class| heap.limbo_has(class)), [true, true, false]);
        assert_eq!(heap.listed().count(), 3);
        heap.reclaim(3, |_, _| ());
        assert_eq!(classes.map(|class| heap.limbo_has(class)), [false; 3]);
        assert_eq!(heap.take_outbox(), [first.plus(256)], "its class is not known");
    }

    #[test]
    fn maps_count_their_blocks() {
        let mut map = BlockMap::full(100);
        assert_eq!((map.count(), map.iter().count()), (100, 100));
        (0..50).for_each(|block| assert!(map.remove(block)));
        assert_eq!((map.count(), map.iter().next()), (50, Some(50)));
    }

    proptest! {
        #[test]
        fn blocks_are_handed_out_once(sizes in proptest::collection::vec(1_u64..2048, 1..200)) {
            let mut heap = heap();
            let mut seen = BTreeMap::new();
            let mut next = 0;
            for bytes in sizes {
                let class = heap.class_for(bytes);
                let block = heap.take(class).unwrap_or_else(|| {
                    let blocks = heap.geometry[0].blocks_per_chunk(class);
                    heap.adopt(ChunkId { node: 0, index: next }, ME, class, 1, BlockMap::full(blocks));
                    next += 1;
                    heap.take(class).expect("a fresh chunk has blocks")
                });
                seen.insert(block.offset(), class.bytes());
                prop_assert!(class.bytes() >= bytes);
                let ends: Vec<u64> = seen.iter().map(|(at, bytes)| at + bytes).collect();
                prop_assert!(seen.keys().skip(1).zip(ends).all(|(&next, end)| next >= end));
            }
        }
    }
}
