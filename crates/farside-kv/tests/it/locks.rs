//! Named locks in the simulator: many clients, few places, and clients that die, sleep too long or change their mind.
//!
//! What it verifies, for each seed:
//! - whoever holds a name exclusively is alone, and readers are without writers, whoever dies meanwhile;
//! - each grant of a name has a larger token than all exclusive ones before, whatever place the name has;
//! - waits that are given up, by a deadline or by dropping the future, block nobody and are taken over;
//! - a bucket that is full of names that nobody uses makes room;
//! - who stood still for longer than its lease does not believe that it holds, and nothing of it arrives later;
//! - the same seed gives the same trace.
//!
//! What it does not verify: the lock underneath, which has a suite of its own.

use core::cell::{Cell, RefCell};
use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::Poll;
use std::collections::BTreeMap;
use std::rc::Rc;

use farside_fabric::Endpoint;
use farside_fabric::sim::{Sim, SimOptions};
use farside_fabric::{Deadline, EndpointId, VerbKind};
use farside_kv::locks::Mode;
use farside_kv::{Locks, LocksError, LocksOptions, Store, StoreConfig};
use farside_pool::{FormatOptions, PoolOptions};

const LEASE_NS: u64 = 300_000;
/// A table of eight buckets with eight places each.
const MEMORY_BYTES: u64 = 8 << 20;

fn config() -> StoreConfig {
    StoreConfig {
        format: FormatOptions {
            clients_max: 24,
            chunk_bytes: Some(16 << 10),
            ..FormatOptions::default()
        },
        pool: PoolOptions {
            // Nobody uses the store itself.
            tick_ns: 1 << 40,
            lease_ns: 1 << 50,
        },
        ..StoreConfig::default()
    }
}

/// A simulation with a pool in it.
fn world(seed: u64) -> Sim {
    let sim = Sim::new(SimOptions {
        seed,
        jitter_ns: 150 * (seed % 5),
        ..SimOptions::default()
    });
    let _ = sim.add_memory_node(MEMORY_BYTES);
    let endpoint = sim.endpoint(sim.add_compute_node());
    sim.block_on(async move {
        let store = Store::open(endpoint, config()).await.expect("a store");
        store.close().await.expect("the node is there");
    });
    sim
}

async fn open(endpoint: Endpoint) -> Locks {
    let options = LocksOptions {
        owner: format!("client {}", endpoint.id().0),
        lease_ns: LEASE_NS,
    };
    Locks::open(endpoint, options).await.expect("there is a table")
}

/// A client on a compute node of its own.
fn client(sim: &Sim) -> (Endpoint, Locks) {
    let endpoint = sim.endpoint(sim.add_compute_node());
    let locks = sim.block_on(open(endpoint.clone()));
    (endpoint, locks)
}

/// Who is inside, and the largest token so far.
#[derive(Default)]
struct Name {
    inside: Vec<(EndpointId, Mode)>,
    token: u64,
}

#[derive(Default)]
struct Log {
    names: RefCell<BTreeMap<Vec<u8>, Name>>,
    grants: Cell<u64>,
    given_up: Cell<u64>,
    ended: Cell<u64>,
}

impl Log {
    fn leave(&self, name: &[u8], client: EndpointId) {
        let mut all = self.names.borrow_mut();
        let inside = &mut all.get_mut(name).expect("it is entered").inside;
        inside.retain(|(other, _)| *other != client);
    }
}

fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

/// Takes locks of `names` names, keeps them for a moment, changes its mind now and then.
async fn work(sim: Sim, endpoint: Endpoint, log: Rc<Log>, names: u64, rounds: u64) {
    let (me, locks) = (endpoint.id(), open(endpoint.clone()).await);
    for _ in 0..rounds {
        let name = format!("name {}", endpoint.random_below(names)).into_bytes();
        let mode = if endpoint.random_below(3) == 0 {
            Mode::Shared
        } else {
            Mode::Exclusive
        };
        let soon = Deadline(endpoint.now_ns() + endpoint.random_below(40_000));
        let taken = match endpoint.random_below(6) {
            0 => locks.try_acquire(&name, mode).await,
            1 => locks.acquire_until(&name, mode, soon).await,
            2 => drop_in_the_middle(&endpoint, locks.acquire(&name, mode)).await,
            _ => locks.acquire(&name, mode).await.map(Some),
        };
        let Some(guard) = taken.expect("the node is there, and a place") else {
            count(&log.given_up);
            continue;
        };
        enter(&sim, &log, me, &name, mode, guard.token());
        endpoint.sleep(endpoint.random_below(10_000)).await;
        assert!(guard.is_held() && guard.name() == name && guard.mode() == mode);
        log.leave(&name, me);
        if endpoint.random_below(2) == 0 {
            guard.release().await.expect("it was held");
        } else {
            drop(guard);
        }
        endpoint.sleep(endpoint.random_below(10_000)).await;
    }
    count(&log.ended);
}

fn enter(sim: &Sim, log: &Log, me: EndpointId, name: &[u8], mode: Mode, token: u64) {
    let mut all = log.names.borrow_mut();
    let known = all.entry(name.to_vec()).or_default();
    known.inside.retain(|(client, _)| !sim.is_crashed(*client));
    let is_alone = known.inside.is_empty();
    let is_among_readers = mode == Mode::Shared && known.inside.iter().all(|(_, other)| *other == Mode::Shared);
    let name = String::from_utf8_lossy(name);
    assert!(is_alone || is_among_readers, "{name}: {me} beside {:?}", known.inside);
    assert!(token > known.token, "{name}: token {token} after {}", known.token);
    if mode == Mode::Exclusive {
        known.token = token;
    }
    known.inside.push((me, mode));
    count(&log.grants);
}

/// Drops a future after some time, wherever it has got.
async fn drop_in_the_middle<T, Error>(
    endpoint: &Endpoint,
    future: impl Future<Output = Result<T, Error>>,
) -> Result<Option<T>, Error> {
    let (mut future, mut alarm) = (pin!(future), pin!(endpoint.sleep(endpoint.random_below(30_000))));
    poll_fn(|context| {
        if let Poll::Ready(result) = future.as_mut().poll(context) {
            return Poll::Ready(result.map(Some));
        }
        alarm.as_mut().poll(context).map(|()| Ok(None))
    })
    .await
}

/// Clients of which some die; returns the trace hash and what happened.
fn run(seed: u64, names: u64, deaths: u64) -> (u64, Rc<Log>) {
    const CLIENTS: u64 = 6;
    let sim = world(seed);
    let log = Rc::new(Log::default());
    let endpoints: Vec<Endpoint> = (0..CLIENTS)
        .map(|_| {
            let endpoint = sim.endpoint(sim.add_compute_node());
            endpoint.spawn(work(sim.clone(), endpoint.clone(), Rc::clone(&log), names, 25));
            endpoint
        })
        .collect();
    for dead in endpoints.iter().take(deaths as usize) {
        sim.run_until(sim.now_ns() + 20_000 + 7_919 * (seed % 13));
        sim.crash_client(dead.id());
    }
    sim.run_until(sim.now_ns() + 400 * LEASE_NS);
    assert!(
        log.ended.get() >= CLIENTS - deaths,
        "seed {seed}: {} of {CLIENTS} clients came to an end",
        log.ended.get()
    );
    (sim.trace_hash(), log)
}

#[test]
fn names_exclude_and_tokens_grow() {
    let mut given_up = 0;
    for seed in 0..60 {
        let (_, log) = run(seed, 3, 0);
        given_up += log.given_up.get();
    }
    assert!(given_up > 100, "few changed their mind: {given_up}");
}

#[test]
fn names_come_and_go_when_places_are_scarce() {
    for seed in 0..40 {
        let (_, log) = run(seed, 300, 0);
        assert!(log.names.borrow().len() > 64, "all names had room");
    }
}

#[test]
fn the_dead_hold_nothing() {
    for seed in 0..60 {
        let (_, log) = run(seed, if seed % 2 == 0 { 2 } else { 200 }, 3);
        assert!(log.grants.get() >= 25, "seed {seed}");
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    assert_eq!(run(7, 5, 2).0, run(7, 5, 2).0);
    assert_ne!(run(7, 5, 2).0, run(8, 5, 2).0);
}

#[test]
fn who_sleeps_too_long_knows_that_it_lost() {
    let sim = world(1);
    let (sleeper, locks) = client(&sim);
    let guard = sim
        .block_on(locks.acquire(b"lock", Mode::Exclusive))
        .expect("it is free");
    sim.run_until(sim.now_ns() + 10 * LEASE_NS);
    assert!(guard.is_held(), "who lives keeps it");

    sim.pause_client(sleeper.id());
    let (_, others) = client(&sim);
    let next = sim
        .block_on(others.acquire(b"lock", Mode::Exclusive))
        .expect("it goes on");
    assert!(next.token() > guard.token());
    assert!(!guard.is_held(), "it would not even have to look at the memory");
    sim.resume_client(sleeper.id());
    let lost = sim.block_on(guard.release());
    assert!(matches!(&lost, Err(error) if error.is_cut_off()), "{lost:?}");
    sim.run_until(sim.now_ns() + LEASE_NS);
    assert!(locks.has_ended() && next.is_held());
    sim.block_on(next.release()).expect("it was held");
}

#[test]
fn who_was_warned_ends_even_if_nobody_cuts_it_off() {
    let sim = world(4);
    let (sleeper, locks) = client(&sim);
    let guard = sim
        .block_on(locks.acquire(b"lock", Mode::Exclusive))
        .expect("it is free");
    sim.pause_client(sleeper.id());
    let (reset_by, others) = client(&sim);
    let granted = Rc::new(Cell::new(false));
    reset_by.spawn({
        let granted = Rc::clone(&granted);
        async move {
            let next = others.acquire(b"lock", Mode::Exclusive).await.expect("it goes on");
            granted.set(next.is_held());
        }
    });
    // It waits for a lease, asks for two more, and warns for another one before it would cut off.
    sim.run_until(sim.now_ns() + 7 * LEASE_NS / 2);
    sim.pause_client(reset_by.id());
    sim.resume_client(sleeper.id());
    sim.run_until(sim.now_ns() + LEASE_NS);
    assert!(!guard.is_held() && locks.has_ended() && !sim.is_fenced(sleeper.id()));
    let again = sim.block_on(locks.acquire(b"another", Mode::Exclusive));
    assert!(
        matches!(&again, Err(error @ LocksError::Ended { .. }) if error.is_cut_off()),
        "{again:?}"
    );
    assert!(!granted.get());
    sim.resume_client(reset_by.id());
    sim.run_until(sim.now_ns() + LEASE_NS);
    assert!(granted.get() && sim.is_fenced(sleeper.id()));
}

#[test]
fn a_short_absence_that_nobody_noticed_is_still_a_loss() {
    let sim = world(2);
    let (sleeper, locks) = client(&sim);
    let guard = sim
        .block_on(locks.acquire(b"lock", Mode::Exclusive))
        .expect("it is free");
    sim.pause_client(sleeper.id());
    sim.run_until(sim.now_ns() + 2 * LEASE_NS);
    sim.resume_client(sleeper.id());
    sim.run_until(sim.now_ns() + LEASE_NS);
    assert!(!guard.is_held() && !locks.has_ended());
    let released = sim.block_on(guard.release());
    assert_eq!(
        released,
        Err(LocksError::Lost {
            name: "lock".to_owned()
        })
    );
    let again = sim
        .block_on(locks.acquire(b"lock", Mode::Exclusive))
        .expect("it was given back");
    assert!(again.is_held());
}

#[test]
fn the_holder_is_named() {
    let sim = world(3);
    let (endpoint, locks) = client(&sim);
    assert_eq!(sim.block_on(locks.holder(b"lock")), Ok(None));
    let guard = sim
        .block_on(locks.acquire(b"lock", Mode::Exclusive))
        .expect("it is free");
    let (_, others) = client(&sim);
    let holder = sim
        .block_on(others.holder(b"lock"))
        .expect("the node is there")
        .expect("held");
    assert_eq!(holder.owner, format!("client {}", endpoint.id().0));
    assert_eq!((holder.mode, holder.in_queue), (Mode::Exclusive, 1));
    assert!(holder.since_ms <= endpoint.unix_ms() && holder.since_ms > 0);
    assert!(matches!(
        sim.block_on(others.try_acquire(b"lock", Mode::Shared)),
        Ok(None)
    ));
    sim.block_on(guard.release()).expect("it was held");
    assert_eq!(sim.block_on(others.holder(b"lock")), Ok(None));
    assert!(matches!(
        sim.block_on(others.try_acquire(b"lock", Mode::Shared)),
        Ok(Some(_))
    ));
}

#[test]
fn who_tries_again_and_again_is_in_the_queue_once() {
    let sim = world(4);
    let (_, locks) = client(&sim);
    let guard = sim
        .block_on(locks.acquire(b"lock", Mode::Exclusive))
        .expect("it is free");
    let (endpoint, others) = client(&sim);
    for _ in 0..50 {
        let soon = endpoint.deadline_in(2_000);
        let taken = sim.block_on(others.acquire_until(b"lock", Mode::Exclusive, soon));
        assert!(matches!(taken, Ok(None)), "{taken:?}");
    }
    let holder = sim
        .block_on(others.holder(b"lock"))
        .expect("the node is there")
        .expect("held");
    assert_eq!(holder.in_queue, 2);
    sim.block_on(guard.release()).expect("it was held");
    let soon = endpoint.deadline_in(50_000);
    let taken = sim.block_on(others.acquire_until(b"lock", Mode::Exclusive, soon));
    assert!(matches!(taken, Ok(Some(_))), "it has waited long enough: {taken:?}");
}

/// A queue of tasks in which everybody tried and nobody waited: the lock of a worker that was killed stayed its own.
#[test]
fn who_only_tries_finds_out_that_the_holder_is_dead() {
    for mode in [Mode::Exclusive, Mode::Shared] {
        let sim = world(11);
        let (dead, locks) = client(&sim);
        let guard = sim
            .block_on(locks.acquire(b"lock", Mode::Exclusive))
            .expect("it is free");
        let (endpoint, others) = client(&sim);
        sim.crash_client(dead.id());
        let tries = async {
            for number in 0..60 {
                if let Some(guard) = others.try_acquire(b"lock", mode).await.expect("the node is there") {
                    return Some((number, guard.token()));
                }
                endpoint.sleep(LEASE_NS / 4).await;
            }
            None
        };
        let (number, token) = sim.block_on(tries).expect("the holder is dead");
        assert!(number > 2, "not before its lease is over");
        assert!(token > guard.token());
    }
}

#[test]
fn who_tries_leaves_a_holder_that_lives_in_peace() {
    let sim = world(12);
    let (_, locks) = client(&sim);
    let guard = sim
        .block_on(locks.acquire(b"lock", Mode::Exclusive))
        .expect("it is free");
    let (endpoint, others) = client(&sim);
    let mut longest = 0;
    for number in 0..60 {
        let taken = sim.block_on(others.try_acquire(b"lock", Mode::Exclusive));
        assert!(matches!(taken, Ok(None)), "{taken:?}");
        let holder = sim
            .block_on(others.holder(b"lock"))
            .expect("the node is there")
            .expect("held");
        if number == 0 {
            assert_eq!(holder.in_queue, 1, "it has been held for less than a lease");
        }
        longest = longest.max(holder.in_queue);
        sim.block_on(endpoint.sleep(LEASE_NS / 4));
    }
    assert_eq!(longest, 2);
    assert!(guard.is_held());
    sim.block_on(guard.release()).expect("it was held");
    // What it queued up for it does not keep.
    sim.block_on(endpoint.sleep(LEASE_NS));
    assert_eq!(sim.block_on(others.holder(b"lock")), Ok(None));
}

#[test]
fn cost_is_exact() {
    let sim = world(5);
    let (endpoint, locks) = client(&sim);
    let counters = endpoint.clone();
    sim.block_on(async move {
        // The first use of a name looks for its place.
        locks
            .acquire(b"lock", Mode::Exclusive)
            .await
            .expect("free")
            .release()
            .await
            .expect("held");
        let before = counters.counters().snapshot();
        let guard = locks.acquire(b"lock", Mode::Exclusive).await.expect("it is free");
        let taken = counters.counters().snapshot().since(&before);
        guard.release().await.expect("it was held");
        let all = counters.counters().snapshot().since(&before);
        let of = |counted: &farside_fabric::CounterSnapshot| {
            let verbs = &counted.verbs;
            [
                verbs.of(VerbKind::Read),
                verbs.of(VerbKind::Write),
                verbs.atomics(),
                counted.doorbells,
            ]
        };
        assert_eq!(of(&taken), [1, 1, 2, 2], "an acquire");
        assert_eq!(of(&all), [2, 1, 3, 3], "and a release");
    });
}

#[test]
fn names_that_are_none_are_refused() {
    let sim = world(6);
    let (_, locks) = client(&sim);
    for bytes in [0, 129] {
        let name = vec![b'x'; bytes];
        let refused = sim.block_on(locks.acquire(&name, Mode::Shared)).map(drop);
        assert_eq!(refused, Err(LocksError::Name { bytes }));
        assert_eq!(sim.block_on(locks.holder(&name)), Err(LocksError::Name { bytes }));
    }
    let longest = vec![b'x'; 128];
    assert!(sim.block_on(locks.acquire(&longest, Mode::Shared)).is_ok());
}

#[test]
fn a_bucket_whose_names_are_all_held_is_full() {
    let sim = world(8);
    let (_, locks) = client(&sim);
    let mut guards = Vec::new();
    let full = (0..1000).find_map(|number| {
        let name = format!("name {number}");
        match sim.block_on(locks.acquire(name.as_bytes(), Mode::Exclusive)) {
            Ok(guard) => {
                guards.push(guard);
                None
            }
            Err(error) => Some((name, error)),
        }
    });
    let (name, error) = full.expect("64 places");
    assert_eq!(error, LocksError::TableFull { name: name.clone() });
    drop(guards);
    // Each is given back by a task.
    sim.run_until(sim.now_ns() + LEASE_NS);
    assert!(
        sim.block_on(locks.acquire(name.as_bytes(), Mode::Exclusive)).is_ok(),
        "there is room again"
    );
}

#[test]
fn who_leaves_is_not_asked_any_more() {
    let sim = world(9);
    // More clients than the roster has places, one after the other.
    for _ in 0..1100 {
        let (_, locks) = client(&sim);
        drop(
            sim.block_on(locks.acquire(b"lock", Mode::Exclusive))
                .expect("there is a place"),
        );
        sim.block_on(locks.close()).expect("the node is there");
    }
}

#[test]
fn the_dead_make_room_in_the_roster() {
    let sim = world(10);
    for _ in 0..1100 {
        let (endpoint, locks) = client(&sim);
        let guard = sim
            .block_on(locks.acquire(b"lock", Mode::Exclusive))
            .expect("there is a place");
        sim.block_on(guard.release()).expect("it was held");
        sim.crash_client(endpoint.id());
    }
}

#[test]
fn the_memory_has_room_for_so_many() {
    let sim = world(1);
    let (_, locks) = client(&sim);
    assert_eq!(locks.capacity(), 8 * 8);
}
