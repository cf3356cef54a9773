//! What the task of a client does from tick to tick, over the simulated fabric.

use farside_fabric::VerbKind;
use farside_pool::layout::ChunkState;
use farside_pool::{Pool, Purpose};

use crate::empty::{Empty, OPTIONS, STILL};

const BLOCK_BYTES: u64 = 64;
/// How many of them a chunk has.
const BLOCKS: usize = 64;

fn tick(empty: &Empty, pool: &Pool) {
    empty.sim.block_on(pool.tick()).expect("it is alive");
}

/// Owns so many chunks, of which nothing is in use.
fn own_unused(empty: &Empty, pool: &Pool, chunks: usize) {
    for count in 0..chunks {
        let restock = pool.restock(BLOCK_BYTES, count * BLOCKS + 1, Purpose::Insert);
        empty.sim.block_on(restock).expect("there is memory");
    }
}

#[test]
fn unused_chunks_are_given_back_a_few_at_a_time() {
    let empty = Empty::new(1);
    let pool = empty.join(STILL);
    own_unused(&empty, &pool, 7);
    let used = || {
        let chunks = 0..empty.geometry[0].chunk_count;
        chunks.filter(|&chunk| empty.chunk(chunk) != ChunkState::Free).count()
    };
    while pool.ticks() < 63 {
        tick(&empty, &pool);
        assert_eq!(used(), 7, "{} ticks", pool.ticks());
    }
    for (ticks, left) in [(64, 3), (127, 3), (128, 1), (192, 1)] {
        while pool.ticks() < ticks {
            tick(&empty, &pool);
        }
        assert_eq!(used(), left, "{ticks} ticks");
    }
}

/// Giving chunks back must not cost a client its lease where a node does not answer.
#[test]
fn giving_chunks_back_takes_a_quarter_of_a_lease_at_most() {
    let empty = Empty::new(2);
    let compute_node = empty.sim.add_compute_node();
    let mut cx = farside_fabric::OpContext::new(empty.sim.endpoint(compute_node));
    let join = Pool::join(&mut cx, empty.geometry.clone(), STILL);
    let pool = empty.sim.block_on(join).expect("there is room");
    own_unused(&empty, &pool, 6);
    while pool.ticks() < 63 {
        tick(&empty, &pool);
    }
    empty.sim.partition(compute_node, empty.geometry[1].node);
    let start_ns = empty.sim.now_ns();
    assert!(empty.sim.block_on(pool.tick()).is_err());
    let quarter_ns = STILL.lease_ns / 4;
    let spent_ns = empty.sim.now_ns() - start_ns;
    assert!(
        (quarter_ns..quarter_ns + STILL.tick_ns).contains(&spent_ns),
        "{spent_ns} ns"
    );
    assert_eq!(pool.ticks(), 64);
}

#[test]
fn who_is_well_leaves_it_to_the_first_to_look_at_all() {
    let empty = Empty::new(1);
    let [first, second] = [(); 2].map(|()| empty.join(OPTIONS));
    empty.pass(20 * OPTIONS.tick_ns);
    let spent = |pool: &Pool| {
        let verbs = pool.endpoint().counters().snapshot().verbs;
        [VerbKind::Read, VerbKind::Write, VerbKind::CompareSwap].map(|kind| verbs.of(kind))
    };
    let before = [&first, &second].map(|pool| (pool.ticks(), spent(pool)));
    empty.pass(40 * OPTIONS.tick_ns);
    let per_tick = |pool: &Pool, (ticks, before): (u64, [u64; 3])| {
        let (ticks, now) = (pool.ticks() - ticks, spent(pool));
        assert!(ticks > 20, "{ticks} ticks");
        [0, 1, 2].map(|kind| (now[kind] - before[kind]) / ticks)
    };
    // Its state, the epoch and the deaths, and its progress; the table with its mark, and the epoch.
    assert_eq!(per_tick(&first, before[0]), [3 + 2, 1, 1]);
    assert_eq!(per_tick(&second, before[1]), [3, 1, 0]);
    assert_eq!(spent(&second)[2], before[1].1[2], "not even once");
}
