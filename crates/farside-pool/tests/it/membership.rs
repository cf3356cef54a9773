//! What joining and leaving a pool cost, what a client that dies on the way leaves behind, and for what one that leaves waits,
//! over the simulated fabric.

use core::cell::RefCell;
use std::rc::Rc;

use farside_fabric::sim::CrashPoint;
use farside_fabric::{FabricError, OpContext, VerbKind};
use farside_pool::client::{self, Liveness};
use farside_pool::layout::{CLIENTS_HIGH_AT, ChunkState, DEATHS_AT, EPOCH_AT, Owner};
use farside_pool::pool::read_clients;
use farside_pool::{Pool, PoolError, Purpose};

use crate::empty::{CLIENTS_MAX, Empty, OPTIONS, STILL};

/// READs, WRITEs, and compare-and-swaps that the client has posted.
fn verbs(pool: &Pool) -> [u64; 3] {
    let verbs = pool.endpoint().counters().snapshot().verbs;
    [VerbKind::Read, VerbKind::Write, VerbKind::CompareSwap].map(|kind| verbs.of(kind))
}

#[test]
fn joining_takes_an_entry_and_raises_the_mark_if_it_is_the_last() {
    let empty = Empty::new(1);
    let first = empty.join(STILL);
    assert_eq!(first.owner(), Owner { client: 0, life: 1 });
    assert_eq!(empty.word(CLIENTS_HIGH_AT), 1);
    // Its entry, the mark; the first in the table advances the epoch at once.
    assert_eq!(verbs(&first)[2], 3);
    let second = empty.join(STILL);
    assert_eq!(second.owner(), Owner { client: 1, life: 1 });
    assert_eq!(empty.word(CLIENTS_HIGH_AT), 2);
    assert_eq!(verbs(&second)[2], 2);
    empty.sim.block_on(first.leave()).expect("nothing runs");
    assert_eq!(empty.word(CLIENTS_HIGH_AT), 2);
    // An entry that was used before: the mark is high enough.
    let third = empty.join(STILL);
    assert_eq!(third.owner(), Owner { client: 0, life: 2 });
    assert_eq!(empty.word(CLIENTS_HIGH_AT), 2);
    assert_eq!(verbs(&third)[2], 2);
}

/// Between its batch and its first tick a client that joins is alive, and what stood in its entry before would count as its own.
#[test]
fn an_entry_that_is_live_says_what_its_client_knows_whenever_that_dies() {
    let mut alive = 0;
    for verb in 1.. {
        let empty = Empty::new(1);
        let dead = Owner { client: 1, life: 1 };
        // Somebody else has died, and the search is not finished; an earlier user of the entry had come further than that.
        let (entry, state) = client::owner_state(dead, Liveness::Dead);
        empty.set(entry.offset(), state);
        empty.set(entry.offset() + 8, 1000);
        empty.set(CLIENTS_HIGH_AT, 2);
        empty.set(EPOCH_AT, 7);
        empty.set(DEATHS_AT, 3);
        for word in 2..7 {
            empty.set(client::entry_addr(0).offset() + word * 8, 99);
        }
        let mut cx = empty.context();
        let id = cx.endpoint().id();
        empty.sim.crash_client_at(id, CrashPoint { verb, lines: None });
        let geometry = empty.geometry.clone();
        let joined = Rc::new(RefCell::new(None));
        let is_joined = Rc::clone(&joined);
        cx.endpoint().clone().spawn(async move {
            let pool = Pool::join(&mut cx, geometry, STILL).await;
            *is_joined.borrow_mut() = Some(pool);
        });
        empty.pass(1_000_000);
        let found = empty.entry(0);
        if found.is_live() {
            let progress = (found.published, found.drained, found.parked, found.audited);
            assert_eq!(progress, (7, 7, 3, 2), "after verb {verb}");
            assert_eq!((found.life, found.endpoint), (1, Some(id)));
            alive += 1;
        }
        if joined.borrow().is_some() {
            break;
        }
        assert!(empty.sim.is_crashed(id), "verb {verb}");
    }
    assert!(alive > 3, "{alive} crashes after it was live");
}

#[test]
fn who_joins_searches_for_those_whose_death_is_not_done_with() {
    // Deaths that were counted, what the entries of others say and how many deaths they have searched for, and how many deaths
    // the client need not search for. In the last case everybody has to search anew: the other one is done with all deaths so far,
    // and would not send home what it retires.
    use Liveness::{Dead, Dying, Live};
    for (deaths, others, audited, deaths_after) in [
        (0, &[][..], 0, 0),
        (3, &[], 3, 3),
        (3, &[(Live, 0)], 3, 3),
        (3, &[(Dead, 3)], 2, 3),
        (0, &[(Dying, 0)], 0, 0),
        (3, &[(Dying, 3)], 3, 3),
        (3, &[(Live, 2), (Dead, 1)], 2, 3),
        (3, &[(Dead, 1), (Live, 2), (Live, 3)], 3, 4),
    ] {
        let empty = Empty::new(1);
        empty.set(DEATHS_AT, deaths);
        for (client, &(liveness, audited)) in (1..).zip(others) {
            let entry = client::entry_addr(client).offset();
            empty.set(entry, client::state_word(liveness, 1));
            empty.set(entry + 8, 1000 + u64::from(client));
            empty.set(entry + 6 * 8, audited);
            empty.set(CLIENTS_HIGH_AT, u64::from(client) + 1);
        }
        let pool = empty.join(STILL);
        assert_eq!(empty.word(DEATHS_AT), deaths_after, "{deaths} deaths, {others:?}");
        assert_eq!(empty.entry(0).audited, audited, "{deaths} deaths, {others:?}");
        assert_eq!(empty.entry(0).parked, deaths);
        assert_eq!(pool.needs_recovery(), audited < deaths_after);
    }
}

#[test]
fn only_entries_that_are_taken_are_read_and_only_up_to_the_mark() {
    let empty = Empty::new(1);
    let states = [(0, Liveness::Live, 9), (2, Liveness::Dead, 0), (3, Liveness::Free, 11)];
    for (index, liveness, endpoint) in states {
        let at = client::entry_addr(index).offset();
        empty.set(at, client::state_word(liveness, 4));
        empty.set(at + 8, endpoint);
    }
    let last = CLIENTS_MAX - 1;
    empty.set(client::entry_addr(last).offset() + 8, 12);
    // The mark, and how many READs the table takes up to there.
    for (high, reads, found) in [
        (0, 0, &[][..]),
        (3, 1, &[0, 2]),
        (4, 1, &[0, 2, 3]),
        (128, 1, &[0, 2, 3]),
        (129, 2, &[0, 2, 3]),
        (u64::from(CLIENTS_MAX), 2, &[0, 2, 3, last]),
        (1 << 40, 2, &[0, 2, 3, last]),
    ] {
        empty.set(CLIENTS_HIGH_AT, high);
        let mut cx = empty.context();
        let clients = empty.sim.block_on(read_clients(&mut cx, CLIENTS_MAX.into()));
        let clients = clients.expect("the node is there");
        let indexes: Vec<u16> = clients.iter().map(|&(index, _)| index).collect();
        assert_eq!(indexes, found, "the mark is {high}");
        assert!(clients.iter().all(|&(index, entry)| entry == empty.entry(index)));
        let posted = cx.endpoint().counters().snapshot().verbs;
        assert_eq!(posted.of(VerbKind::Read), 1 + reads, "the mark is {high}");
    }
}

#[test]
fn a_client_that_has_ended_does_nothing_more() {
    let empty = Empty::new(1);
    let pool = empty.join(OPTIONS);
    assert_eq!(pool.check_reachable(), Ok(()));
    pool.abandon();
    let before = verbs(&pool);
    assert!(pool.has_ended());
    assert_eq!(pool.check_reachable(), Err(PoolError::LeaseLost));
    assert_eq!(empty.sim.block_on(pool.tick()), Err(PoolError::LeaseLost));
    let restocked = empty.sim.block_on(pool.restock(64, 1, Purpose::Overwrite));
    assert_eq!(restocked, Err(PoolError::LeaseLost));
    empty.pass(10 * OPTIONS.tick_ns);
    assert_eq!(verbs(&pool), before);
}

#[test]
fn leaving_asks_each_node_once_and_frees_the_entry() {
    let empty = Empty::new(2);
    let pool = empty.join(STILL);
    let before = verbs(&pool);
    empty.sim.block_on(pool.clone().leave()).expect("nothing runs");
    let [reads, writes, swaps] = verbs(&pool);
    // A word of each node; what is held, and the endpoint; the state.
    let spent = [reads - before[0], writes - before[1], swaps - before[2]];
    assert_eq!(spent, [2, 2, 1]);
    let left = empty.entry(0);
    assert_eq!((left.liveness, left.endpoint, left.life), (Liveness::Free, None, 1));
    assert_eq!(empty.word(DEATHS_AT), 0);
    assert_eq!(pool.check_reachable(), Err(PoolError::LeaseLost));
}

#[test]
fn who_leaves_waits_for_its_operations() {
    let empty = Empty::new(1);
    let pool = empty.join(OPTIONS);
    let pin = pool.pin();
    let left = empty.leave(&pool);
    empty.pass(2 * OPTIONS.lease_ns);
    assert_eq!(*left.borrow(), None);
    drop(pin);
    empty.pass(10 * OPTIONS.tick_ns);
    assert_eq!(*left.borrow(), Some(Ok(())));
    assert_eq!(empty.entry(0).liveness, Liveness::Free);
}

#[test]
fn an_operation_that_does_not_end_keeps_its_client_for_five_leases() {
    let empty = Empty::new(1);
    let pool = empty.join(OPTIONS);
    let pin = pool.pin();
    let left = empty.leave(&pool);
    empty.pass(5 * OPTIONS.lease_ns - OPTIONS.tick_ns);
    assert_eq!(*left.borrow(), None);
    empty.pass(5 * OPTIONS.tick_ns);
    assert_eq!(*left.borrow(), Some(Err(PoolError::StillRunning)));
    assert!(empty.entry(0).is_live(), "the others find out by its lease");
    drop(pin);
}

#[test]
fn who_leaves_waits_for_what_it_has_retired() {
    let empty = Empty::new(1);
    let pool = empty.join(OPTIONS);
    empty.stock(&pool);
    assert!(matches!(empty.chunk(0), ChunkState::Blocks { owner: Some(_), .. }));
    let block = pool.allocate(64).expect("there are blocks");
    pool.retire(block, Some(64));
    empty.sim.block_on(pool.clone().leave()).expect("nothing runs");
    assert_eq!(pool.limbo_count(), 0);
    assert_eq!(empty.chunk(0), ChunkState::Free);
    assert_eq!(empty.entry(0).liveness, Liveness::Free);
}

/// A client that has a block of another one's chunk ready, and the word of the chunk's free map.
fn holder(empty: &Empty) -> (Pool, u64) {
    let [owner, holder] = [(); 2].map(|()| empty.join(OPTIONS));
    empty.pass(10 * OPTIONS.tick_ns);
    empty.stock(&owner);
    let block = owner.allocate(64).expect("there are blocks");
    holder.retire(block, Some(64));
    empty.pass(20 * OPTIONS.tick_ns);
    assert_eq!(holder.limbo_count(), 0);
    let map = empty.geometry[0].free_map(0).offset();
    assert_eq!(empty.word(map), 0, "its holder would use it again");
    (holder, map)
}

#[test]
fn blocks_of_others_go_home_before_their_holder_leaves() {
    let empty = Empty::new(1);
    let (holder, map) = holder(&empty);
    empty.sim.block_on(holder.leave()).expect("nothing runs");
    assert_eq!(empty.word(map), 1);
}

#[test]
fn blocks_of_others_go_home_while_their_holder_waits_to_leave() {
    let empty = Empty::new(1);
    let (holder, map) = holder(&empty);
    let pin = holder.pin();
    let left = empty.leave(&holder);
    empty.pass(10 * OPTIONS.tick_ns);
    assert_eq!((left.borrow().clone(), empty.word(map)), (None, 1));
    drop(pin);
    empty.pass(10 * OPTIONS.tick_ns);
    assert_eq!((left.borrow().clone(), empty.word(map)), (Some(Ok(())), 1));
}

#[test]
fn who_cannot_leave_ends_all_the_same() {
    let empty = Empty::new(1);
    let pool = empty.join(OPTIONS);
    let pin = pool.pin();
    let node = empty.geometry[0].node;
    empty.sim.crash_node(node);
    let left = empty.sim.block_on(pool.clone().leave());
    assert_eq!(left, Err(FabricError::NodeGone { node }.into()));
    assert!(pool.has_ended(), "it does not renew its lease when the node comes back");
    drop(pin);
}

#[test]
fn who_has_ended_with_blocks_in_limbo_cannot_leave() {
    let empty = Empty::new(1);
    let pool = empty.join(OPTIONS);
    empty.stock(&pool);
    let block = pool.allocate(64).expect("there are blocks");
    pool.retire(block, Some(64));
    pool.abandon();
    let left = empty.sim.block_on(pool.clone().leave());
    assert_eq!(left, Err(PoolError::LeaseLost));
    assert!(empty.entry(0).is_live(), "the others find out by its lease");
    assert!(matches!(empty.chunk(0), ChunkState::Blocks { owner: Some(_), .. }));
}

#[test]
fn who_has_much_to_give_back_keeps_its_lease_meanwhile() {
    const CHUNKS: u64 = 30;
    let empty = Empty::new(1);
    let _other = empty.join(OPTIONS);
    let compute_node = empty.sim.add_compute_node();
    let mut cx = OpContext::new(empty.sim.endpoint(compute_node));
    let join = Pool::join(&mut cx, empty.geometry.clone(), OPTIONS);
    let pool = empty.sim.block_on(join).expect("there is room");
    for _ in 0..CHUNKS {
        empty
            .sim
            .block_on(pool.restock(2048, 2, Purpose::Insert))
            .expect("memory");
        assert!(pool.allocate(2048).is_some() && pool.allocate(2048).is_some());
    }
    let lease_at = client::entry_addr(1).offset() + 16;
    empty
        .sim
        .delay(compute_node, empty.geometry[0].node, OPTIONS.lease_ns / 16);
    let start_ns = empty.sim.now_ns();
    let lease = empty.word(lease_at);
    empty.sim.block_on(pool.leave()).expect("nothing runs");
    let leases = (empty.sim.now_ns() - start_ns) / OPTIONS.lease_ns;
    assert!(leases >= 3, "{leases} leases");
    assert_eq!((empty.word(DEATHS_AT), empty.entry(1).liveness), (0, Liveness::Free));
    let renewed = empty.word(lease_at) - lease;
    // Once in more than a quarter of a lease.
    assert!(
        (2 * leases..=4 * leases + 4).contains(&renewed),
        "{renewed} times in {leases} leases"
    );
    for chunk in 0..CHUNKS {
        assert!(matches!(empty.chunk(chunk), ChunkState::Blocks { owner: None, .. }));
    }
}

#[test]
fn who_is_in_doubt_leaves_as_a_dead_client() {
    let empty = Empty::new(1);
    let pool = empty.join(OPTIONS);
    empty.stock(&pool);
    pool.doubt();
    empty.sim.block_on(pool.clone().leave()).expect("nothing runs");
    assert_eq!(empty.entry(0).liveness, Liveness::Dead);
    assert_eq!(empty.word(DEATHS_AT), 1);
    let owner = Some(pool.owner());
    let class = pool_class(64);
    assert_eq!(empty.chunk(0), ChunkState::Blocks { owner, class });
}

fn pool_class(bytes: u64) -> farside_pool::size_class::SizeClass {
    farside_pool::size_class::SizeClass::for_bytes(bytes, 4096)
}

#[test]
fn who_leaves_while_a_death_is_not_searched_for_leaves_as_a_dead_client() {
    let empty = Empty::new(1);
    let [pool, dying] = [(); 2].map(|()| empty.join(OPTIONS));
    empty.sim.crash_client(dying.endpoint().id());
    empty.pass(2 * OPTIONS.lease_ns);
    assert_eq!(empty.word(DEATHS_AT), 1);
    assert!(pool.needs_recovery());
    let left = empty.leave(&pool);
    empty.pass(5 * OPTIONS.lease_ns - OPTIONS.tick_ns);
    assert_eq!(*left.borrow(), None, "it waits for the search");
    empty.pass(5 * OPTIONS.tick_ns);
    assert_eq!(*left.borrow(), Some(Ok(())));
    assert_eq!(empty.entry(0).liveness, Liveness::Dead);
    assert_eq!(empty.word(DEATHS_AT), 2);
}

#[test]
fn a_client_is_declared_dead_once() {
    let empty = Empty::new(1);
    let [pool, other] = [(); 2].map(|()| empty.join(STILL));
    for _ in 0..2 {
        empty
            .sim
            .block_on(pool.give_up(other.owner()))
            .expect("the node is there");
        assert_eq!(empty.word(DEATHS_AT), 1);
        assert_eq!(empty.entry(1).liveness, Liveness::Dead);
    }
    let earlier = Owner { client: 0, life: 0 };
    empty.sim.block_on(pool.give_up(earlier)).expect("the node is there");
    assert_eq!(empty.word(DEATHS_AT), 1);
    assert!(empty.entry(0).is_live());
}
