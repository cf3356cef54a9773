//! The sweeper in the simulator: what has expired goes, what has not stays, and when there is nothing
//! to do it does nothing.
//!
//! What it verifies, for each seed:
//! - a key that does not expire, or not yet, is never removed, however writers and sweepers meet;
//! - what has expired is gone from the count of the stored items, not only from sight;
//! - every removed key is counted once, whatever the number of sweepers;
//! - memory: every block is free or reachable, exactly once;
//! - the same seed gives the same trace.
//!
//! What it does not verify: how soon an expired key goes.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use farside_fabric::Endpoint;
use farside_fabric::sim::{Sim, SimOptions};
use farside_kv::{Expiry, IndexKind, LeafOptions, RaceOptions, SetOptions, Store, StoreConfig, SweepPace};
use farside_pool::{FormatOptions, PoolOptions};

const INDEXES: [IndexKind; 3] = [IndexKind::PointerArray, IndexKind::Race, IndexKind::Chime];

const fn config(index: IndexKind) -> StoreConfig {
    StoreConfig {
        index: Some(index),
        scheme: farside_sync::Scheme::Optimistic,
        local_wc: false,
        slots: Some(160),
        race: RaceOptions {
            items: 0,
            subtable_bytes: 768,
            bucket_slots: 2,
        },
        leaf: LeafOptions::PUBLISHED,
        format: FormatOptions {
            clients_max: 24,
            chunk_bytes: Some(16 << 10),
            patience_ns: 2_000_000,
        },
        pool: PoolOptions {
            tick_ns: 20_000,
            lease_ns: 300_000,
        },
        timeout_ns: Some(5_000_000),
    }
}

const PACE: SweepPace = SweepPace {
    step_pages: 2,
    step_ns: 50_000,
    pause_ns: 30_000,
    busy_pause_ns: 3_000,
    rest_ns: 400_000,
};

fn expiring_at(at_ms: u64) -> SetOptions {
    SetOptions {
        expiry: Expiry::AtMs(at_ms),
        ..SetOptions::default()
    }
}

/// Writes keys of its own, of which some expire soon, some late and some never, and checks that the
/// living ones are there. Returns those that live at the end.
async fn work(endpoint: Endpoint, store: &Store, writer: u8, rounds: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut session = store.session();
    let mut living = BTreeMap::new();
    for round in 0..rounds {
        let key = vec![writer, endpoint.random_below(40) as u8];
        let value = vec![round as u8; endpoint.random_below(300) as usize];
        let now_ms = endpoint.unix_ms();
        match endpoint.random_below(8) {
            0..4 => {
                let soon = expiring_at(now_ms + endpoint.random_below(2));
                session.set(&key, &value, soon).await.expect("set");
                living.remove(&key);
            }
            4 => {
                let late = expiring_at(now_ms + 1_000_000);
                session.set(&key, &value, late).await.expect("set");
                living.insert(key, value);
            }
            5 => {
                session.delete(&key).await.expect("delete");
                living.remove(&key);
            }
            _ => {
                session.put(&key, &value).await.expect("put");
                living.insert(key, value);
            }
        }
        let index = endpoint.random_below(living.len().max(1) as u64) as usize;
        if let Some((key, value)) = living.iter().nth(index) {
            let found = session.get(key).await.expect("get");
            assert_eq!(found, Some(value.as_slice()), "a living key {key:?} is gone");
        }
        endpoint.sleep(endpoint.random_below(20_000)).await;
    }
    living
}

/// Runs one seed; returns the trace hash and how many keys the sweepers removed.
fn run(index: IndexKind, seed: u64) -> (u64, u64) {
    let sim = Sim::new(SimOptions {
        seed,
        ..SimOptions::default()
    });
    let _ = sim.add_memory_node(8 << 20);
    let removed = Rc::new(Cell::new(0));
    let ended = Rc::new(Cell::new(0));
    let living = Rc::new(std::cell::RefCell::new(BTreeMap::new()));
    let clients = 2 + seed % 3;
    for writer in 0..clients {
        let endpoint = sim.endpoint(sim.add_compute_node());
        let (removed, living, ended) = (Rc::clone(&removed), Rc::clone(&living), Rc::clone(&ended));
        endpoint.clone().spawn(async move {
            let store = Store::open(endpoint.clone(), config(index)).await.expect("a store");
            if writer < 2 {
                let sweeper = store.clone();
                endpoint.spawn(sweeper.sweep(PACE, move |count| removed.set(removed.get() + count)));
            }
            let mut own = Box::pin(work(endpoint.clone(), &store, writer as u8, 400)).await;
            living.borrow_mut().append(&mut own);
            ended.set(ended.get() + 1);
            // Time for the sweepers: the last that expired, and the pass after.
            endpoint.sleep(20_000_000).await;
            store.close().await.expect("close");
            ended.set(ended.get() + 1);
        });
    }
    let deadline = sim.now_ns() + 1_000_000_000;
    while ended.get() < 2 * clients {
        sim.run_until(sim.now_ns() + 1_000_000);
        assert!(sim.now_ns() < deadline, "the clients do not come to an end");
    }

    let endpoint = sim.endpoint(sim.add_compute_node());
    let living = living.take();
    sim.block_on(async move {
        let store = Store::open(endpoint.clone(), config(index)).await.expect("a store");
        store.settle().await.expect("settled");
        let mut session = store.session();
        for (key, value) in &living {
            let found = session.get(key).await.expect("get");
            assert_eq!(found, Some(value.as_slice()), "a living key {key:?} was swept");
        }
        assert_eq!(session.count().await, Ok(living.len() as u64), "stored items");
        store.close().await.expect("close");
    });
    crate::audit::every_block(&sim);
    (sim.trace_hash(), removed.get())
}

#[test]
fn what_expired_goes_and_nothing_else() {
    for index in INDEXES {
        let removed: u64 = (1..=8).map(|seed| run(index, seed).1).sum();
        assert!(removed > 0, "the sweepers of {index:?} never had anything to do");
    }
}

#[test]
fn same_seed_gives_the_same_trace() {
    for index in INDEXES {
        assert_eq!(run(index, 3), run(index, 3));
        assert_ne!(run(index, 3).0, run(index, 4).0);
    }
}

/// One client and one sweeper, whose housekeeping sleeps, on each index; `test` gets the number of removed keys.
fn with_sweeper(test: impl AsyncFn(Endpoint, Store, Rc<Cell<u64>>) + Copy + 'static) {
    INDEXES.into_iter().for_each(|index| with_sweeper_on(index, test));
}

fn with_sweeper_on(index: IndexKind, test: impl AsyncFnOnce(Endpoint, Store, Rc<Cell<u64>>) + 'static) {
    let sim = Sim::new(SimOptions::default());
    let _ = sim.add_memory_node(8 << 20);
    let endpoint = sim.endpoint(sim.add_compute_node());
    sim.block_on(async move {
        let mut config = config(index);
        (config.pool.tick_ns, config.pool.lease_ns) = (1 << 40, 1 << 50);
        let store = Store::open(endpoint.clone(), config).await.expect("a store");
        let removed = Rc::new(Cell::new(0));
        let pace = SweepPace {
            rest_ns: 1 << 45,
            ..PACE
        };
        let counted = Rc::clone(&removed);
        let sweeper = store.clone();
        endpoint.spawn(sweeper.sweep(pace, move |count| counted.set(counted.get() + count)));
        test(endpoint, store, removed).await;
    });
}

#[test]
fn it_is_off_while_nothing_expires() {
    with_sweeper(async |endpoint, store, removed| {
        let mut session = store.session();
        for key in 0..100_u8 {
            session.put(&[key], b"for ever").await.expect("put");
        }
        // Its first pass, which cannot know that there is nothing.
        endpoint.sleep(10_000_000).await;
        let before = endpoint.counters().snapshot();
        endpoint.sleep(100_000_000_000).await;
        assert_eq!(endpoint.counters().snapshot().since(&before).doorbells, 0);
        // The first item that expires wakes it.
        let at_ms = endpoint.unix_ms() + 10;
        session.set(b"k", b"v", expiring_at(at_ms)).await.expect("set");
        endpoint.sleep(2_000_000_000).await;
        assert_eq!((removed.get(), session.count().await), (1, Ok(100)));
        // And one that a transaction stores in place of another: a new one wakes it in any case.
        endpoint.sleep(100_000_000_000).await;
        let before = endpoint.counters().snapshot();
        let for_ever = session.transaction_on(&[&[1]], |all| all.put(&[1], b"for ever"));
        for_ever.await.expect("put");
        let put = endpoint.counters().snapshot().since(&before).doorbells;
        endpoint.sleep(100_000_000_000).await;
        assert_eq!(endpoint.counters().snapshot().since(&before).doorbells, put);
        let at_ms = endpoint.unix_ms() + 10;
        let expiring = session.transaction_on(&[&[1]], |all| all.set(&[1], b"v", expiring_at(at_ms)));
        expiring.await.expect("set");
        endpoint.sleep(2_000_000_000).await;
        assert_eq!((removed.get(), session.count().await), (2, Ok(99)));
    });
}

#[test]
fn an_expired_key_that_was_stored_anew_stays() {
    with_sweeper(async |endpoint, store, removed| {
        let mut session = store.session();
        // Its first pass has to meet them: all expire while it pauses, and half come back.
        let at_ms = endpoint.unix_ms() + 5;
        for key in 0..50_u8 {
            session.set(&[key], b"old", expiring_at(at_ms)).await.expect("set");
        }
        while endpoint.unix_ms() < at_ms {
            endpoint.sleep(100_000).await;
        }
        for key in 0..25_u8 {
            session.put(&[key], b"new").await.expect("put");
        }
        endpoint.sleep(2_000_000_000).await;
        for key in 0..50_u8 {
            let expected = (key < 25).then_some(&b"new"[..]);
            assert_eq!(session.get(&[key]).await.expect("get"), expected, "key {key}");
        }
        assert_eq!(session.count().await, Ok(25));
        assert!(removed.get() >= 25 && removed.get() <= 50, "{}", removed.get());
    });
}
