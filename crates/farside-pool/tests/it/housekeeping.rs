//! What the task of a client does from tick to tick, over the simulated fabric.

use farside_fabric::{FabricError, OpContext, VerbKind};
use farside_pool::client::{self, Liveness};
use farside_pool::layout::{CLIENTS_HIGH_AT, ChunkState, DEATHS_AT};
use farside_pool::{Pool, PoolError, Purpose};

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
    let mut cx = OpContext::new(empty.sim.endpoint(compute_node));
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

#[test]
fn a_client_is_given_a_lease_before_it_is_cut_off() {
    let empty = Empty::new(1);
    let [pool, dying] = [(); 2].map(|()| empty.join(OPTIONS));
    empty.pass(20 * OPTIONS.tick_ns);
    let id = dying.endpoint().id();
    empty.sim.crash_client(id);
    // It had renewed its lease a tick before at most.
    empty.pass(OPTIONS.lease_ns - OPTIONS.tick_ns);
    assert!(empty.entry(1).is_live() && !empty.sim.is_fenced(id));
    empty.pass(4 * OPTIONS.tick_ns);
    assert!(empty.sim.is_fenced(id));
    assert_eq!((empty.entry(1).liveness, empty.word(DEATHS_AT)), (Liveness::Dead, 1));
    // Nothing more happens to it, or to those that live.
    empty.pass(4 * OPTIONS.lease_ns);
    assert!(pool.needs_recovery());
    assert_eq!((empty.entry(1).liveness, empty.word(DEATHS_AT)), (Liveness::Dead, 1));
    assert!(empty.entry(0).is_live() && !pool.has_ended());
}

/// When the primary of a mirrored node died, its clients came back one after the other, and the first found that the others had
/// not renewed their leases: for longer than a lease nobody could. It had them cut off.
#[test]
fn leases_do_not_run_out_while_nobody_can_renew_them() {
    let empty = Empty::new(1);
    let node = empty.geometry[0].node;
    let compute_nodes = [(); 2].map(|()| empty.sim.add_compute_node());
    let [first, second] = compute_nodes.map(|compute_node| {
        let mut cx = OpContext::new(empty.sim.endpoint(compute_node));
        let join = Pool::join(&mut cx, empty.geometry.clone(), OPTIONS);
        empty.sim.block_on(join).expect("there is room")
    });
    // Shorter and longer than a verb of housekeeping may take, and at various instants of a round.
    for (round, away_ns) in [OPTIONS.lease_ns * 3 / 4, OPTIONS.lease_ns * 3 / 2, 3 * OPTIONS.lease_ns]
        .into_iter()
        .cycle()
        .take(60)
        .enumerate()
    {
        empty.pass(20 * OPTIONS.tick_ns + round as u64 * OPTIONS.tick_ns / 7);
        for compute_node in compute_nodes {
            empty.sim.partition(compute_node, node);
        }
        empty.pass(away_ns);
        empty.sim.heal(compute_nodes[round % 2], node);
        empty.pass(OPTIONS.lease_ns / 2);
        empty.sim.heal(compute_nodes[1 - round % 2], node);
        empty.pass(4 * OPTIONS.tick_ns);
        assert!(!first.has_ended() && !second.has_ended(), "round {round}");
        assert_eq!(empty.word(DEATHS_AT), 0, "round {round}");
    }
    // Who is dead is noticed all the same.
    empty.sim.crash_client(second.endpoint().id());
    empty.pass(OPTIONS.lease_ns + 4 * OPTIONS.tick_ns);
    assert_eq!(empty.word(DEATHS_AT), 1);
}

/// A client died while one of the nodes had no primary. Another one waited for that node to cut the dead one off, renewed its own
/// lease no more, and was cut off as well.
#[test]
fn who_waits_for_a_node_to_cut_somebody_off_keeps_its_lease() {
    let empty = Empty::new(2);
    let compute_node = empty.sim.add_compute_node();
    let mut cx = OpContext::new(empty.sim.endpoint(compute_node));
    let join = Pool::join(&mut cx, empty.geometry.clone(), OPTIONS);
    let first = empty.sim.block_on(join).expect("there is room");
    let [second, dying] = [(); 2].map(|()| empty.join(OPTIONS));
    empty.pass(20 * OPTIONS.tick_ns);
    let id = dying.endpoint().id();
    empty.sim.partition(compute_node, empty.geometry[1].node);
    empty.sim.crash_client(id);
    empty.pass(6 * OPTIONS.lease_ns);
    empty.sim.heal(compute_node, empty.geometry[1].node);
    empty.pass(2 * OPTIONS.lease_ns);
    assert!(empty.sim.is_fenced(id), "the dead one");
    assert!(!first.has_ended() && !second.has_ended(), "and nobody else");
    assert_eq!(empty.word(DEATHS_AT), 1);
}

#[test]
fn whoever_dies_while_joining_is_not_searched_for() {
    let empty = Empty::new(1);
    let _pool = empty.join(OPTIONS);
    let joining = empty.sim.endpoint(empty.sim.add_compute_node()).id();
    let entry = client::entry_addr(1).offset();
    empty.set(entry + 8, joining.0);
    empty.set(CLIENTS_HIGH_AT, 2);
    empty.pass(OPTIONS.lease_ns - OPTIONS.tick_ns);
    assert_eq!(empty.entry(1).endpoint, Some(joining));
    empty.pass(4 * OPTIONS.tick_ns);
    assert!(empty.sim.is_fenced(joining));
    assert_eq!((empty.entry(1).endpoint, empty.word(DEATHS_AT)), (None, 0));
}

#[test]
fn a_death_that_nobody_has_counted_is_counted_after_a_lease() {
    let empty = Empty::new(1);
    let pool = empty.join(OPTIONS);
    let entry = client::entry_addr(1).offset();
    empty.set(entry, client::state_word(Liveness::Dying, 3));
    empty.set(entry + 8, 1000);
    empty.set(CLIENTS_HIGH_AT, 2);
    empty.pass(OPTIONS.lease_ns - OPTIONS.tick_ns);
    assert_eq!((empty.entry(1).liveness, empty.word(DEATHS_AT)), (Liveness::Dying, 0));
    empty.pass(4 * OPTIONS.tick_ns);
    assert_eq!((empty.entry(1).liveness, empty.word(DEATHS_AT)), (Liveness::Dead, 1));
    empty.pass(2 * OPTIONS.tick_ns);
    assert!(pool.needs_recovery());
}

#[test]
fn who_finds_itself_declared_dead_ends() {
    let empty = Empty::new(1);
    let [_first, pool] = [(); 2].map(|()| empty.join(OPTIONS));
    empty.set(client::entry_addr(1).offset(), client::state_word(Liveness::Dead, 1));
    assert!(!pool.has_ended());
    empty.pass(2 * OPTIONS.tick_ns);
    assert_eq!(pool.check_reachable(), Err(PoolError::LeaseLost));
    let ticks = pool.ticks();
    empty.pass(10 * OPTIONS.tick_ns);
    assert_eq!(pool.ticks(), ticks);
}

#[test]
fn who_has_lost_its_node_says_so_and_goes_on() {
    let empty = Empty::new(1);
    let pool = empty.join(OPTIONS);
    empty.pass(10 * OPTIONS.tick_ns);
    assert_eq!(pool.check_reachable(), Ok(()));
    let node = empty.geometry[0].node;
    empty.sim.crash_node(node);
    empty.pass(OPTIONS.lease_ns);
    assert_eq!(pool.check_reachable(), Err(FabricError::NodeGone { node }.into()));
    assert!(!pool.has_ended());
    let ticks = pool.ticks();
    empty.pass(10 * OPTIONS.lease_ns);
    assert!(pool.ticks() > ticks, "the node may come back");
}
