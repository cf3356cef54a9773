//! What fetching and giving back blocks costs and does, on a pool with one client, or two.

use core::cell::RefCell;
use core::sync::atomic::Ordering;
use std::rc::Rc;

use farside_fabric::sim::{Sim, SimOptions};
use farside_fabric::{NodeId, VerbKind};

use super::*;
use crate::layout::Owner;
use crate::pool::PoolOptions;
use crate::superblock::{FormatOptions, open_or_format};

const CHUNK_BYTES: u64 = 4096;

/// Nothing happens by itself: no client ticks unless it is told to.
const OPTIONS: PoolOptions = PoolOptions {
    tick_ns: 1_000_000_000,
    lease_ns: 100_000_000_000,
};

/// A pool with a client in it; what the tests look at is on node 0.
struct Alone {
    sim: Sim,
    geometry: Geometry,
    cx: OpContext,
    pool: Pool,
}

impl Alone {
    fn new(bytes: u64, chunk_bytes: u64) -> Self {
        Self::with_nodes(1, bytes, chunk_bytes)
    }

    fn with_nodes(nodes: usize, bytes: u64, chunk_bytes: u64) -> Self {
        let sim = Sim::new(SimOptions::default());
        for _ in 0..nodes {
            let _: NodeId = sim.add_memory_node(bytes);
        }
        let mut cx = OpContext::new(sim.endpoint(sim.add_compute_node()));
        let format = FormatOptions {
            clients_max: 8,
            chunk_bytes: Some(chunk_bytes),
            ..FormatOptions::default()
        };
        let geometry = sim.block_on(open_or_format(&mut cx, format)).expect("memory");
        let join = Pool::join(&mut cx, geometry.clone(), OPTIONS);
        let pool = sim.block_on(join).expect("there is room");
        assert!(!pool.shared.heap.borrow().is_homing(), "it has looked at all clients");
        Self {
            sim,
            geometry: geometry[0],
            cx,
            pool,
        }
    }

    fn word(&self, at: RemoteAddr) -> u64 {
        self.sim.region(at.node()).word(at.offset()).load(Ordering::SeqCst)
    }

    fn set(&self, at: RemoteAddr, value: u64) {
        self.sim
            .region(at.node())
            .word(at.offset())
            .store(value, Ordering::SeqCst);
    }

    fn chunk(&self, index: u64) -> ChunkState {
        let word = self.word(self.geometry.chunk_word(index));
        ChunkState::from_word(word).expect("clients wrote it")
    }

    fn set_chunk(&self, index: u64, state: ChunkState) {
        self.set(self.geometry.chunk_word(index), state.to_word());
    }

    /// The words of a free map.
    fn free_map(&self, index: u64) -> Vec<u64> {
        let words = (0..self.geometry.free_map_bytes()).step_by(8);
        let map = self.geometry.free_map(index);
        words.map(|at| self.word(map.plus(at))).collect()
    }

    fn free_chunks(&self) -> usize {
        let chunks = 0..self.geometry.chunk_count;
        chunks.filter(|&index| self.chunk(index) == ChunkState::Free).count()
    }

    /// Lets the client own a chunk, of whose blocks those in `home` are free.
    fn own(&self, index: u32, class: SizeClass, home: BlockMap) {
        let owner = self.pool.owner();
        let state = ChunkState::Blocks {
            owner: Some(owner),
            class,
        };
        self.set_chunk(index.into(), state);
        let mut heap = self.pool.shared.heap.borrow_mut();
        heap.adopt(id(index), owner, class, 1, home);
    }

    /// A node without free chunks.
    fn fill(&self) {
        for index in 0..self.geometry.chunk_count {
            self.set_chunk(index, ChunkState::Root { number: 0 });
        }
    }

    fn unused(&self, class: SizeClass) -> BlockMap {
        BlockMap::full(self.geometry.blocks_per_chunk(class))
    }

    fn home(&self, index: u32) -> Vec<u64> {
        let heap = self.pool.shared.heap.borrow();
        heap.chunks()[&id(index)].home.iter().collect()
    }

    /// The indexes of the chunks that the client owns.
    fn owned(&self) -> Vec<u32> {
        let heap = self.pool.shared.heap.borrow();
        heap.chunks().keys().map(|id| id.index).collect()
    }

    /// Fetch-and-adds and WRITEs that the client has posted, and in how many posts.
    fn spent(&self) -> [u64; 3] {
        let spent = self.cx.endpoint().counters().snapshot();
        [
            spent.verbs.of(VerbKind::FetchAdd),
            spent.verbs.of(VerbKind::Write),
            spent.doorbells,
        ]
    }

    /// How much more that is than it was.
    fn spent_since(&self, before: [u64; 3]) -> [u64; 3] {
        let now = self.spent();
        [0, 1, 2].map(|kind| now[kind] - before[kind])
    }

    /// Allocates runs of `chunks` chunks until there are no more; returns how many chunks are free then.
    fn use_up(&self, chunks: u64, purpose: Purpose) -> usize {
        let bytes = chunks * CHUNK_BYTES;
        loop {
            match self.sim.block_on(self.pool.restock(bytes, 1, purpose)) {
                Ok(()) => assert!(self.pool.allocate(bytes).is_some()),
                Err(error) => {
                    assert_eq!(error, PoolError::OutOfMemory { bytes });
                    return self.free_chunks();
                }
            }
        }
    }

    /// Long enough for full tables to be searched again.
    fn forget_full(&self) {
        self.sim.run_until(self.sim.now_ns() + FULL_NS);
    }
}

fn id(index: u32) -> ChunkId {
    ChunkId { node: 0, index }
}

fn class(bytes: u64) -> SizeClass {
    SizeClass::for_bytes(bytes, CHUNK_BYTES)
}

#[test]
fn many_words_are_read_in_order_by_few_reads() {
    let mut alone = Alone::new(1 << 20, CHUNK_BYTES);
    let first = alone.geometry.chunk(0);
    for index in 0..3000 {
        alone.set(first.plus(index * 8), index + 1);
    }
    for (count, reads) in [(0, 0), (1, 1), (1024, 1), (1025, 2), (2048, 2), (2049, 3)] {
        let before = alone.cx.endpoint().counters().snapshot().verbs.of(VerbKind::Read);
        let words = alone.sim.block_on(read_words(&mut alone.cx, first, count));
        assert_eq!(words, Ok((1..=count).collect()));
        let after = alone.cx.endpoint().counters().snapshot().verbs.of(VerbKind::Read);
        assert_eq!(after - before, reads, "{count} words");
    }
}

#[test]
fn digging_lasts_for_eight_ticks() {
    let alone = Alone::new(1 << 20, CHUNK_BYTES);
    let pool = &alone.pool;
    assert!(!pool.digs());
    pool.shared.ticks.set(5);
    pool.dig();
    for (ticks, digs) in [(5, true), (12, true), (13, false), (14, false)] {
        pool.shared.ticks.set(ticks);
        assert_eq!(pool.digs(), digs, "{ticks} ticks");
    }
}

#[test]
fn chunks_are_asked_in_turn_for_what_came_back() {
    let mut alone = Alone::new(1 << 20, CHUNK_BYTES);
    let (asked, other) = (class(1024), class(2048));
    for index in [3, 5, 8] {
        alone.own(index, asked, BlockMap::new(4));
    }
    alone.own(4, other, BlockMap::new(2));
    let mut hints = Hints::default();
    for (turn, index) in [3_u32, 5, 8, 3, 5].into_iter().enumerate() {
        // A block of each came back: that of one chunk is fetched.
        let homes = |alone: &Alone| [3, 4, 5, 8].map(|index| alone.home(index).len());
        let mut expected = homes(&alone);
        expected[[3, 4, 5, 8].iter().position(|&of| of == index).expect("one of them")] += 1;
        for chunk in [3, 4, 5, 8] {
            let block = turn as u64 / 3;
            alone.set(alone.geometry.free_map(chunk), 1 << (32 * block));
        }
        let collect = alone.pool.collect(&mut alone.cx, &mut hints, asked, 1);
        alone.sim.block_on(collect).expect("the node is there");
        assert_eq!(homes(&alone), expected, "turn {turn}");
        assert_eq!(alone.free_map(index.into())[0], 0);
    }
}

#[test]
fn blocks_that_may_not_have_been_taken_out_of_a_free_map_are_in_doubt() {
    let mut doubts = 0;
    for step_ns in (0..8_000).step_by(100) {
        let alone = Alone::new(1 << 20, CHUNK_BYTES);
        alone.own(3, class(1024), BlockMap::new(4));
        let map = alone.geometry.free_map(3);
        alone.set(map, 1 << 32 | 1);
        let answer = Rc::new(RefCell::new(None));
        let (answered, pool) = (Rc::clone(&answer), alone.pool.clone());
        let mut cx = OpContext::new(alone.cx.endpoint().clone());
        alone.sim.spawn(async move {
            let collected = pool.collect_chunk(&mut cx, id(3)).await;
            *answered.borrow_mut() = Some(collected);
        });
        let before = alone.spent();
        alone.sim.run_until(alone.sim.now_ns() + step_ns);
        alone.sim.crash_node(NodeId::new(0));
        alone.sim.run_until(alone.sim.now_ns() + 500_000_000);
        let adds = alone.spent_since(before)[0];
        let is_in_doubt = alone.pool.shared.is_in_doubt.get();
        match answer.take().expect("a node that is gone is noticed") {
            Ok(()) => {
                assert_eq!((alone.home(3), alone.word(map)), (vec![0, 1], 0));
                assert!(!is_in_doubt, "after {step_ns} ns");
            }
            Err(_) => {
                assert_eq!(alone.home(3), []);
                assert_eq!(is_in_doubt, adds == 1, "after {step_ns} ns");
            }
        }
        doubts += u32::from(is_in_doubt);
    }
    assert!(doubts > 3, "{doubts} times");
}

#[test]
fn a_chunk_that_is_given_up_says_which_blocks_are_free() {
    let mut alone = Alone::new(1 << 20, CHUNK_BYTES);
    let class = class(1024);
    alone.own(3, class, alone.unused(class));
    alone.own(4, class, alone.unused(class));
    let blocks = [(); 4].map(|()| alone.pool.allocate(1024).expect("there are blocks"));
    assert_eq!(blocks[3], alone.geometry.chunk(3).plus(3 * 1024));
    blocks[..3].iter().for_each(|&block| alone.pool.give_back(block, 1024));
    let before = alone.spent();
    let disown = alone.pool.disown(&mut alone.cx, id(3));
    alone.sim.block_on(disown).expect("the node is there");
    // A fetch-and-add for each word of the map, together, and the chunk's word.
    assert_eq!(alone.spent_since(before), [2, 1, 2]);
    assert_eq!(alone.free_map(3), [1 << 32 | 1, 1]);
    assert_eq!(alone.chunk(3), ChunkState::Blocks { owner: None, class });
    assert_eq!(alone.owned(), [4]);
    // What it does not own it does not give up, nor anything else.
    for index in [3, 100] {
        let disown = alone.pool.disown(&mut alone.cx, id(index));
        alone.sim.block_on(disown).expect("the node is there");
        assert_eq!(alone.owned(), [4]);
    }
    let disown = alone.pool.disown(&mut alone.cx, id(4));
    alone.sim.block_on(disown).expect("the node is there");
    assert_eq!(
        (alone.owned(), alone.chunk(4)),
        (vec![], ChunkState::Free),
        "it is unused"
    );
}

#[test]
fn a_large_free_map_is_filled_by_full_batches() {
    let mut alone = Alone::new(16 << 20, 1 << 20);
    let class = class(32);
    alone.own(3, class, alone.unused(class));
    assert_eq!(alone.pool.allocate(32), Some(alone.geometry.chunk(3)));
    let before = alone.spent();
    let disown = alone.pool.disown(&mut alone.cx, id(3));
    alone.sim.block_on(disown).expect("the node is there");
    assert_eq!(alone.spent_since(before), [512, 1, 512 / 32 + 1]);
    let map = alone.free_map(3);
    assert_eq!((map.len(), map[0]), (512, u64::MAX - 1));
    assert!(map[1..].iter().all(|&word| word == u64::MAX));
}

#[test]
fn a_run_is_freed_in_full_batches() {
    for (chunks, posts) in [(1, 1), (32, 1), (33, 2)] {
        let mut alone = Alone::new(1 << 20, CHUNK_BYTES);
        let bytes = chunks * CHUNK_BYTES;
        let restock = alone.pool.restock(bytes, 1, Purpose::Insert);
        alone.sim.block_on(restock).expect("there is memory");
        let owner = Some(alone.pool.owner());
        let count = chunks as u16;
        assert_eq!(alone.chunk(0), ChunkState::Run { owner, count });
        for back in 1..count {
            assert_eq!(alone.chunk(back.into()), ChunkState::RunTail { owner, back });
        }
        let before = alone.spent();
        let free = alone.pool.free_unused(&mut alone.cx, 1, usize::MAX);
        alone.sim.block_on(free).expect("the node is there");
        assert_eq!(alone.spent_since(before), [0, chunks, posts]);
        assert_eq!(alone.free_chunks() as u64, alone.geometry.chunk_count);
    }
}

#[test]
fn a_run_in_use_keeps_its_chunks_when_its_client_gives_it_up() {
    let mut alone = Alone::new(1 << 20, CHUNK_BYTES);
    let restock = alone.pool.restock(3 * CHUNK_BYTES, 1, Purpose::Insert);
    alone.sim.block_on(restock).expect("there is memory");
    assert_eq!(alone.pool.allocate(3 * CHUNK_BYTES), Some(alone.geometry.chunk(0)));
    let disown = alone.pool.disown(&mut alone.cx, id(0));
    alone.sim.block_on(disown).expect("the node is there");
    let states = [0, 1, 2, 3].map(|index| alone.chunk(index));
    let owner = None;
    let expected = [
        ChunkState::Run { owner, count: 3 },
        ChunkState::RunTail { owner, back: 1 },
        ChunkState::RunTail { owner, back: 2 },
        ChunkState::Free,
    ];
    assert_eq!(states, expected);
    assert_eq!(alone.free_map(0), [0, 0]);
}

#[test]
fn unused_chunks_are_freed_but_for_some_of_each_class() {
    for (keep, limit, left) in [
        (0, usize::MAX, &[6][..]),
        (1, usize::MAX, &[2, 5, 6]),
        (2, usize::MAX, &[2, 3, 5, 6]),
        (1, 1, &[2, 4, 5, 6]),
        (3, usize::MAX, &[2, 3, 4, 5, 6]),
        (0, 0, &[2, 3, 4, 5, 6]),
    ] {
        let mut alone = Alone::new(1 << 20, CHUNK_BYTES);
        let [small, large] = [1024, 2048].map(class);
        for (index, class) in [(2, small), (3, small), (4, small), (5, large)] {
            alone.own(index, class, alone.unused(class));
        }
        // One block of it is in use.
        alone.own(6, large, BlockMap::new(2));
        let free = alone.pool.free_unused(&mut alone.cx, keep, limit);
        alone.sim.block_on(free).expect("the node is there");
        assert_eq!(alone.owned(), left, "keep {keep}, at most {limit}");
        for index in 2..7 {
            let is_free = alone.chunk(index) == ChunkState::Free;
            assert_eq!(is_free, !left.contains(&(index as u32)));
        }
    }
}

#[test]
fn blocks_of_others_are_sent_home_by_one_verb_for_each_word() {
    let mut alone = Alone::new(1 << 20, CHUNK_BYTES);
    let units = [(7, 64), (3, 0), (3, 2), (3, 63), (3, 66)];
    {
        let mut heap = alone.pool.shared.heap.borrow_mut();
        heap.set_homing(true);
        for (chunk, unit) in units {
            heap.release(alone.geometry.chunk(chunk).plus(unit * 32), class(32));
        }
    }
    let before = alone.spent();
    let flush = alone.pool.flush_outbox(&mut alone.cx);
    alone.sim.block_on(flush).expect("the node is there");
    assert_eq!(alone.spent_since(before), [3, 0, 1]);
    assert_eq!(alone.free_map(3), [1 << 63 | 0b101, 0b100]);
    assert_eq!(alone.free_map(7), [0, 1]);
}

#[test]
fn the_last_chunks_are_for_overwrites() {
    let alone = Alone::new(1 << 20, CHUNK_BYTES);
    assert_eq!(alone.geometry.chunk_count, 253);
    alone.pool.set_impatient(true);
    let start_ns = alone.sim.now_ns();
    assert_eq!(alone.use_up(1, Purpose::Insert), 253 / 32);
    assert_eq!(
        alone.use_up(1, Purpose::Overwrite),
        253 / 32,
        "something else can be evicted"
    );
    assert!(alone.sim.now_ns() - start_ns < OPTIONS.tick_ns, "nobody waits");
    alone.pool.set_impatient(false);
    alone.forget_full();
    assert_eq!(alone.use_up(3, Purpose::Insert), 4, "one run of three");
    alone.forget_full();
    assert_eq!(alone.use_up(1, Purpose::Insert), 253 / 64);
    alone.forget_full();
    assert_eq!(alone.use_up(1, Purpose::Overwrite), 0);
}

#[test]
fn two_chunks_of_a_small_node_are_for_overwrites() {
    let alone = Alone::new(40 * CHUNK_BYTES, CHUNK_BYTES);
    assert_eq!(alone.geometry.chunk_count, 38);
    alone.pool.set_impatient(true);
    assert_eq!(alone.use_up(1, Purpose::Insert), 2);
    alone.pool.set_impatient(false);
    alone.forget_full();
    assert_eq!(alone.use_up(1, Purpose::Insert), 2);
    // At once, although the tables were full just before.
    alone.pool.dig();
    assert_eq!(alone.use_up(1, Purpose::Insert), 0);
}

#[test]
fn full_tables_are_not_searched_again_at_once() {
    let alone = Alone::new(40 * CHUNK_BYTES, CHUNK_BYTES);
    assert_eq!(alone.use_up(1, Purpose::Insert), 2);
    let before = alone.spent();
    assert_eq!(alone.use_up(1, Purpose::Insert), 2);
    // Some of its own chunks are asked.
    assert_eq!(alone.spent_since(before), [0, 0, COLLECT_FIRST as u64]);
    alone.forget_full();
    assert_eq!(alone.use_up(1, Purpose::Insert), 2);
    assert!(
        alone.spent_since(before)[2] > 2 * COLLECT_FIRST as u64,
        "all of them, and the tables"
    );
}

#[test]
fn an_overwrite_waits_for_fifty_ticks_where_nothing_is_about_to_become_free() {
    let alone = Alone::new(40 * CHUNK_BYTES, CHUNK_BYTES);
    let start_ns = alone.sim.now_ns();
    assert_eq!(alone.use_up(1, Purpose::Insert), 2);
    assert!(
        alone.sim.now_ns() - start_ns < OPTIONS.tick_ns,
        "an insert does not wait"
    );
    alone.forget_full();
    let start_ns = alone.sim.now_ns();
    assert_eq!(alone.use_up(1, Purpose::Overwrite), 0);
    assert_eq!((alone.sim.now_ns() - start_ns) / OPTIONS.tick_ns, 50);
}

#[test]
fn what_is_about_to_be_reclaimed_is_waited_for_but_not_for_ever() {
    let alone = Alone::new(40 * CHUNK_BYTES, CHUNK_BYTES);
    let mut cx = OpContext::new(alone.sim.endpoint(alone.sim.add_compute_node()));
    let join = Pool::join(&mut cx, vec![alone.geometry], OPTIONS);
    let other = alone.sim.block_on(join).expect("there is room");
    let restock = alone.pool.restock(CHUNK_BYTES, 1, Purpose::Insert);
    alone.sim.block_on(restock).expect("there is memory");
    let block = alone.pool.allocate(CHUNK_BYTES).expect("there is one");
    assert_eq!(alone.use_up(1, Purpose::Insert), 2);
    alone.forget_full();
    assert_eq!(alone.use_up(1, Purpose::Overwrite), 0);
    let pin = other.pin();
    alone.pool.retire(block, Some(CHUNK_BYTES));
    for purpose in [Purpose::Insert, Purpose::Overwrite] {
        let start_ns = alone.sim.now_ns();
        assert_eq!(alone.use_up(1, purpose), 0);
        let waited_ns = alone.sim.now_ns() - start_ns;
        assert_eq!(waited_ns / OPTIONS.lease_ns, 3, "{purpose:?}");
        assert!(waited_ns - 3 * OPTIONS.lease_ns < 2 * OPTIONS.tick_ns, "{purpose:?}");
    }
    drop(pin);
    let restock = alone.pool.restock(CHUNK_BYTES, 1, Purpose::Insert);
    alone.sim.block_on(restock).expect("it is reclaimed now");
    assert_eq!(alone.pool.allocate(CHUNK_BYTES), Some(block));
}

#[test]
fn clients_that_come_and_go_use_the_same_chunk() {
    let alone = Alone::new(40 * CHUNK_BYTES, CHUNK_BYTES);
    let geometry = alone.geometry;
    let stay = || {
        let mut cx = OpContext::new(alone.sim.endpoint(alone.sim.add_compute_node()));
        let pool = alone.sim.block_on(Pool::join(&mut cx, vec![geometry], OPTIONS));
        let pool = pool.expect("there is room");
        let restock = pool.restock(256, 1, Purpose::Insert);
        alone.sim.block_on(restock).expect("there is memory");
        let block = pool.allocate(256).expect("there is one");
        alone.sim.block_on(pool.leave()).expect("nothing is in its way");
        block
    };
    // Sixteen blocks in a chunk, of which a quarter has to be free for somebody else to take it over.
    let blocks: Vec<RemoteAddr> = (0..26).map(|_| stay()).collect();
    let chunk_of = |block: &RemoteAddr| (block.offset() - geometry.chunk(0).offset()) / CHUNK_BYTES;
    let used: Vec<u64> = blocks.iter().map(chunk_of).collect();
    let mut expected = [0; 26];
    expected[13..].fill(1);
    assert_eq!(used, expected);
    let distinct: std::collections::BTreeSet<_> = blocks.iter().map(|block| block.offset()).collect();
    assert_eq!(distinct.len(), blocks.len(), "none is given to two");
}

#[test]
fn the_last_two_chunks_that_nobody_owns_are_looked_at_before_one_is_taken() {
    let wanted = class(512);
    // Which chunks of the class have free blocks, how many of eight, and which is taken then.
    for (free, taken) in [
        ([0, 0, 8, 0, 2], 5),
        ([0, 0, 8, 2, 1], 4),
        ([0, 0, 8, 1, 1], 0),
        ([8, 8, 8, 0, 0], 0),
    ] {
        let alone = Alone::new(40 * CHUNK_BYTES, CHUNK_BYTES);
        for (index, free) in (1..).zip(free) {
            alone.set_chunk(
                index,
                ChunkState::Blocks {
                    owner: None,
                    class: wanted,
                },
            );
            let units: [u64; 2] = core::array::from_fn(|word| {
                let blocks = (word * 4..word * 4 + 4).filter(|&block| block < free);
                blocks.fold(0, |map, block| map | 1 << (block % 4 * 16))
            });
            for (at, word) in (0..).zip(units) {
                alone.set(alone.geometry.free_map(index).plus(at * 8), word);
            }
        }
        // Of another class, and somebody's.
        let owner = Some(Owner { client: 1, life: 1 });
        for (index, owner, class) in [(6, None, class(2048)), (7, owner, wanted)] {
            alone.set_chunk(index, ChunkState::Blocks { owner, class });
            alone.set(alone.geometry.free_map(index), 1);
        }
        let restock = alone.pool.restock(512, 1, Purpose::Insert);
        alone.sim.block_on(restock).expect("there are blocks");
        assert_eq!(alone.owned(), [taken], "{free:?}");
    }
}

#[test]
fn a_chunk_that_nobody_owns_is_taken_over_when_no_chunk_is_free() {
    let alone = Alone::new(40 * CHUNK_BYTES, CHUNK_BYTES);
    alone.fill();
    let (wanted, other) = (class(512), class(2048));
    let owner = Some(Owner { client: 1, life: 1 });
    let states = [
        (1, None, other),
        (2, owner, wanted),
        (3, None, wanted),
        (4, None, wanted),
        (5, None, wanted),
    ];
    for (index, owner, class) in states {
        alone.set_chunk(index, ChunkState::Blocks { owner, class });
    }
    // Too little for a chunk to be taken over before a free one.
    for (index, map) in [(1, 1), (2, 1), (4, 1 << 32), (5, 1)] {
        alone.set(alone.geometry.free_map(index), map);
    }
    let restock = alone.pool.restock(512, 1, Purpose::Insert);
    alone.sim.block_on(restock).expect("there are blocks");
    assert_eq!(alone.owned(), [4]);
    let owner = Some(alone.pool.owner());
    assert_eq!(alone.chunk(4), ChunkState::Blocks { owner, class: wanted });
    assert_eq!(alone.free_map(4), [0, 0]);
    assert_eq!(alone.pool.allocate(512), Some(alone.geometry.chunk(4).plus(1024)));
    assert_eq!(alone.pool.allocate(512), None);
    // While somebody may search such chunks they are left alone.
    alone.forget_full();
    alone.pool.shared.heap.borrow_mut().set_homing(true);
    let request = Request {
        class: wanted,
        bytes: 512,
        count: 1,
        purpose: Purpose::Insert,
    };
    let mut cx = OpContext::new(alone.cx.endpoint().clone());
    let mut hints = Hints::default();
    let find = alone.pool.find_blocks(&mut cx, &mut hints, request);
    assert_eq!(alone.sim.block_on(find), Ok(false));
    assert_eq!(alone.owned(), [4]);
}

#[test]
fn chunks_of_other_classes_that_nobody_owns_and_uses_become_free() {
    let alone = Alone::new(40 * CHUNK_BYTES, CHUNK_BYTES);
    alone.fill();
    let owner = None;
    alone.set_chunk(
        2,
        ChunkState::Blocks {
            owner,
            class: class(2048),
        },
    );
    alone.set(alone.geometry.free_map(2), 1);
    alone.set(alone.geometry.free_map(2).plus(8), 1);
    alone.set_chunk(
        3,
        ChunkState::Blocks {
            owner,
            class: class(2048),
        },
    );
    alone.set(alone.geometry.free_map(3), 1);
    alone.set_chunk(5, ChunkState::Run { owner, count: 2 });
    alone.set_chunk(6, ChunkState::RunTail { owner, back: 1 });
    alone.set(alone.geometry.free_map(5), 1);
    let restock = alone.pool.restock(1024, 1, Purpose::Insert);
    alone
        .sim
        .block_on(restock)
        .expect("three chunks are free, of which two are kept");
    assert_eq!(alone.owned(), [2]);
    assert_eq!(
        alone.chunk(3),
        ChunkState::Blocks {
            owner,
            class: class(2048)
        }
    );
    assert_eq!([5, 6].map(|index| alone.chunk(index)), [ChunkState::Free; 2]);
    assert_eq!([2, 3, 5].map(|index| alone.free_map(index)[0]), [0, 1, 0]);
}

#[test]
fn all_chunks_of_the_class_are_asked_when_no_chunk_is_free() {
    const CHUNKS: u32 = 3 * COLLECT_FIRST as u32;
    let alone = Alone::new(40 * CHUNK_BYTES, CHUNK_BYTES);
    alone.fill();
    for index in 0..CHUNKS {
        alone.own(index, class(1024), BlockMap::new(4));
    }
    alone.set(alone.geometry.free_map(u64::from(CHUNKS) - 1), 1 << 32);
    let restock = alone.pool.restock(1024, 1, Purpose::Insert);
    alone.sim.block_on(restock).expect("a block came back");
    let block = alone.geometry.chunk(u64::from(CHUNKS) - 1).plus(1024);
    assert_eq!(alone.pool.allocate(1024), Some(block));
}

#[test]
fn a_run_that_came_back_is_cut_into_blocks_when_no_chunk_is_free() {
    let mut alone = Alone::new(40 * CHUNK_BYTES, CHUNK_BYTES);
    let restock = alone.pool.restock(3 * CHUNK_BYTES, 1, Purpose::Insert);
    alone.sim.block_on(restock).expect("there is memory");
    assert!(alone.pool.allocate(3 * CHUNK_BYTES).is_some());
    (3..alone.geometry.chunk_count).for_each(|index| alone.set_chunk(index, ChunkState::Root { number: 0 }));
    alone.set(alone.geometry.free_map(0), 1);
    let restock = alone.pool.restock(1024, 1, Purpose::Insert);
    alone.sim.block_on(restock).expect("the run is free");
    let owner = Some(alone.pool.owner());
    let class = class(1024);
    let states = [0, 1, 2].map(|index| alone.chunk(index));
    let blocks = ChunkState::Blocks { owner, class };
    assert_eq!(states, [blocks, ChunkState::Free, ChunkState::Free]);
    let disown = alone.pool.disown(&mut alone.cx, id(0));
    alone.sim.block_on(disown).expect("the node is there");
    assert_eq!(alone.chunk(0), ChunkState::Free);
}

#[test]
fn chunks_are_taken_from_the_nodes_in_turn() {
    let alone = Alone::with_nodes(3, 40 * CHUNK_BYTES, CHUNK_BYTES);
    let take = || {
        let restock = alone.pool.restock(CHUNK_BYTES, 1, Purpose::Insert);
        alone.sim.block_on(restock).expect("there is memory");
        let block = alone.pool.allocate(CHUNK_BYTES).expect("there is one");
        block.node().index()
    };
    assert_eq!([(); 5].map(|()| take()), [1, 2, 0, 1, 2]);
    alone.fill();
    assert_eq!(
        [(); 5].map(|()| take()),
        [1, 1, 2, 1, 1],
        "the one after a full node stands in for it"
    );
}

#[test]
fn a_run_of_which_another_client_has_a_chunk_is_not_taken() {
    let mut alone = Alone::new(1 << 20, CHUNK_BYTES);
    let taken = ChunkState::Root { number: 3 };
    alone.set_chunk(2, taken);
    for (index, class, run) in [(0, SizeClass::RUN, 3), (2, SizeClass::RUN, 1), (2, class(64), 1)] {
        let claim = alone.pool.claim(&mut alone.cx, id(index), class, run);
        assert_eq!(alone.sim.block_on(claim), Ok(false));
        let states = [0, 1, 2, 3].map(|index| alone.chunk(index));
        assert_eq!(states, [ChunkState::Free, ChunkState::Free, taken, ChunkState::Free]);
        assert_eq!(alone.owned(), []);
    }
    // Behind it there is room.
    let restock = alone.pool.restock(3 * CHUNK_BYTES, 1, Purpose::Insert);
    alone.sim.block_on(restock).expect("there is memory");
    assert_eq!(alone.owned(), [3]);
}
