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
    /// No limbo ends before this epoch.
    limbo_until: u64,
    outbox: Vec<RemoteAddr>,
    chunks: BTreeMap<ChunkId, OwnedChunk>,
    /// Owned chunks with blocks at home, by class.
    stocked: BTreeSet<(SizeClass, ChunkId)>,
    homing: bool,
    /// By node, whether blocks are taken from it: not from one that is drained, or was not there for all clients yet.
    open: Vec<bool>,
    /// Whether some blocks are not to be reused: while homing, and while a node is not open.
    is_choosy: bool,
}

impl Heap {
    /// An empty heap over the nodes with these geometries.
    #[must_use]
    pub fn new(geometry: Vec<Geometry>) -> Self {
        let classes = SizeClass::count(geometry[0].chunk_bytes);
        Self {
            open: geometry.iter().map(|geometry| !geometry.is_absent()).collect(),
            is_choosy: false,
            geometry,
            ready: vec![Vec::new(); classes],
            burst: vec![(0, 0); classes],
            limbo: VecDeque::new(),
            limbo_until: 0,
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
            .take_while(|(found, _)| *found == class)
            .filter(|(_, id)| self.open[usize::from(id.node)]);
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
        let of_class = self.stocked.range((class, first)..);
        let mut of_class = of_class.take_while(|&&(found, _)| found == class);
        let Some(&(_, id)) = of_class.find(|(_, id)| self.open[usize::from(id.node)]) else {
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
        let unused = unused.filter(|(_, id)| self.open[usize::from(id.node)]);
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
        while epoch >= self.limbo_until
            && let Some(&(tag, block, class)) = self.limbo.front()
        {
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
        self.limbo_since(epoch)
    }

    /// Every block in limbo waits as if it had been unlinked in this epoch. Its tag stays: whoever searches goes by that.
    pub fn wait_anew(&mut self, epoch: u64) {
        self.limbo_until = epoch + GRACE_EPOCHS;
    }

    /// The smallest tag that waits in limbo, or `epoch`: no block with a smaller tag is in limbo.
    #[must_use]
    pub fn limbo_since(&self, epoch: u64) -> u64 {
        self.limbo.front().map_or(epoch, |&(tag, ..)| tag)
    }

    /// A block that may be handed out again at once.
    pub fn release(&mut self, block: RemoteAddr, class: SizeClass) {
        let stays_out = self.is_choosy && (self.homing || !self.is_open(block.node().index()));
        if stays_out || class == SizeClass::RUN {
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

    /// Names the blocks that are suspects.
    pub fn visit_suspects(&self, visit: &mut dyn FnMut(RemoteAddr)) {
        for (&id, chunk) in &self.chunks {
            let base = self.geometry[usize::from(id.node)].chunk(u64::from(id.index));
            let bytes = match chunk.class {
                SizeClass::RUN => 0,
                class => class.bytes(),
            };
            if let Some(suspects) = &chunk.suspects {
                suspects.iter().for_each(|block| visit(base.plus(block * bytes)));
            }
        }
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
        self.is_choosy = homing || self.open.contains(&false);
        if homing {
            for class in 0..self.ready.len() {
                let blocks = core::mem::take(&mut self.ready[class]);
                blocks.into_iter().for_each(|block| self.send_home(block));
            }
        }
    }

    /// Notes what a node is divided into that has come, or that it is gone.
    pub fn set_geometry(&mut self, geometry: Geometry) {
        let index = geometry.node.index();
        let absent = geometry.absent(geometry.node);
        while self.geometry.len() <= index {
            self.geometry.push(absent);
            self.open.push(false);
        }
        self.geometry[index] = geometry;
        self.set_open(index, self.open[index] && !geometry.is_absent());
    }

    /// Whether blocks are taken from a node.
    #[must_use]
    pub fn is_open(&self, node: usize) -> bool {
        self.open.get(node).is_some_and(|&is_open| is_open)
    }

    /// Has blocks taken from a node from now on, or not any more: then every one that is ready goes home, as does each that is
    /// freed later.
    pub fn set_open(&mut self, node: usize, is_open: bool) {
        self.open[node] = is_open;
        self.is_choosy = self.homing || self.open.contains(&false);
        if is_open {
            return;
        }
        for class in 0..self.ready.len() {
            let of_node = |block: &mut RemoteAddr| block.node().index() == node;
            let blocks: Vec<RemoteAddr> = self.ready[class].extract_if(.., of_node).collect();
            blocks.into_iter().for_each(|block| self.send_home(block));
        }
    }

    /// The chunks that this client owns on nodes from which no blocks are taken.
    pub fn chunks_of_closed(&self) -> impl Iterator<Item = ChunkId> + '_ {
        let closed = (0..self.open.len()).filter(|&node| !self.open[node]);
        closed.flat_map(|node| {
            let [first, last] = [0, u32::MAX].map(|index| ChunkId {
                node: node as u16,
                index,
            });
            self.chunks.range(first..=last).map(|(&id, _)| id)
        })
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
mod tests;
