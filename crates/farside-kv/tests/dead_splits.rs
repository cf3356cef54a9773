//! A client dies in the middle of a split: what others do then.
//!
//! What it verifies, for a death after each verb of a client that fills a small table:
//!
//! - once the lease of the dead has run out and all memory is in use, every key whose PUT was acknowledged can be deleted:
//!   nobody has to wait for memory to end the split;
//! - where there is memory, others fill the table further, splits upon the one that nobody has ended, and lose no key.
//!
//! Afterwards every block is free or linked, exactly once. What it does not verify: several deaths, and those of whoever
//! undoes the split, which plans draw.

mod audit;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use farside_fabric::sim::{CrashPoint, Endpoint, Sim, SimOptions};
use farside_fabric::{Clock, Messages, Spawn};
use farside_kv::{IndexKind, LeafOptions, RaceOptions, Store, StoreConfig};
use farside_pool::{FormatOptions, PoolOptions, Purpose};

const LEASE_NS: u64 = 150_000;
const SUBTABLE_BYTES: u64 = 768;
const MANY_KEYS: u64 = 40;

const CONFIG: StoreConfig = StoreConfig {
    index: Some(IndexKind::Race),
    scheme: farside_sync::Scheme::Farside,
    slots: None,
    race: RaceOptions {
        items: 0,
        subtable_bytes: SUBTABLE_BYTES,
        bucket_slots: 1,
    },
    leaf: LeafOptions::PUBLISHED,
    format: FormatOptions {
        clients_max: 8,
        chunk_bytes: Some(4 << 10),
        patience_ns: 5 * LEASE_NS,
    },
    pool: PoolOptions {
        tick_ns: 10_000,
        lease_ns: LEASE_NS,
    },
    timeout_ns: None,
    local_wc: false,
};

/// One client stores so many keys, and dies after so many verbs; `then` is what another one does with the store and the
/// keys whose PUT was acknowledged. Returns whether the first one has died by then.
fn die_after(verbs: u64, (memory, count): (u64, u64), then: impl AsyncFn(Store<Endpoint>, Vec<u64>) + 'static) -> bool {
    let sim = Sim::new(SimOptions {
        seed: verbs,
        ..SimOptions::default()
    });
    let _ = sim.add_memory_node(memory);
    let [writer, survivor] = [(); 2].map(|()| sim.endpoint(sim.add_compute_node()));
    let acknowledged = Rc::new(RefCell::new(Vec::new()));
    let (is_open, has_ended) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));

    let (endpoint, keys, opened) = (writer.clone(), Rc::clone(&acknowledged), Rc::clone(&is_open));
    writer.spawn(async move {
        let store = Store::open(endpoint.clone(), CONFIG).await.expect("a store");
        opened.set(true);
        // The other one opens it, too.
        endpoint.sleep(2 * LEASE_NS).await;
        let mut session = store.session();
        for key in 0..count {
            session.put(&key.to_le_bytes(), b"value").await.expect("room");
            keys.borrow_mut().push(key);
        }
        // It stays, so that it is the death that ends it.
        endpoint.sleep(u64::MAX / 4).await;
    });
    while !is_open.get() {
        sim.run_until(sim.now_ns() + 10_000);
    }
    let point = sim.verbs_posted(writer.id()) + verbs;
    sim.crash_client_at(
        writer.id(),
        CrashPoint {
            verb: point,
            lines: None,
        },
    );

    let (endpoint, keys, ended) = (survivor.clone(), Rc::clone(&acknowledged), Rc::clone(&has_ended));
    survivor.spawn(async move {
        let store = Store::open(endpoint.clone(), CONFIG).await.expect("a store");
        endpoint.sleep(40 * LEASE_NS).await;
        let keys = keys.borrow().clone();
        then(store, keys).await;
        ended.set(true);
    });
    let deadline_ns = sim.now_ns() + 1000 * LEASE_NS;
    while !has_ended.get() {
        sim.run_until(sim.now_ns() + LEASE_NS);
        assert!(
            sim.now_ns() < deadline_ns,
            "death after {verbs} verbs: nobody can go on"
        );
    }
    let has_died = sim.is_crashed(writer.id());
    if has_died {
        audit::every_block(&sim);
    }
    has_died
}

/// Uses all memory, and deletes every key.
async fn delete_without_memory(store: Store<Endpoint>, keys: Vec<u64>) {
    store.settle().await.expect("what the dead held is taken over");
    let pool = store.pool().clone();
    let mut hoard = Vec::new();
    loop {
        while let Some(block) = pool.allocate(SUBTABLE_BYTES) {
            hoard.push(block);
        }
        if pool.restock(SUBTABLE_BYTES, 1, Purpose::Overwrite).await.is_err() {
            break;
        }
    }
    let mut session = store.session();
    for key in keys {
        let deleted = session.delete(&key.to_le_bytes()).await;
        assert!(deleted.expect("it needs no memory"), "key {key} is lost");
    }
    for block in hoard {
        pool.give_back(block, SUBTABLE_BYTES);
    }
    drop(session);
    store.close().await.expect("close");
}

/// Stores others until the table has three times as many, and looks for every key.
async fn fill_further(store: Store<Endpoint>, keys: Vec<u64>) {
    let others = 1000..1000 + 2 * MANY_KEYS;
    let mut session = store.session();
    for key in others.clone() {
        session.put(&key.to_le_bytes(), b"value").await.expect("room");
    }
    for key in keys.into_iter().chain(others) {
        let found = session.get(&key.to_le_bytes()).await.expect("an answer");
        assert!(found.is_some(), "key {key} is lost");
    }
    drop(session);
    store.close().await.expect("close");
}

#[test]
fn keys_can_be_deleted_although_a_split_cannot_be_ended() {
    let mut deaths = 0;
    // The housekeeping posts verbs as well, so it dies at last, all work done.
    for verbs in 1..900 {
        deaths += u32::from(die_after(verbs, (512 << 10, 24), delete_without_memory));
    }
    assert!(deaths > 800, "only {deaths} deaths");
}

#[test]
fn splits_upon_a_split_that_nobody_has_ended_lose_nothing() {
    let mut deaths = 0;
    for verbs in 1..2000 {
        deaths += u32::from(die_after(verbs, (8 << 20, MANY_KEYS), fill_further));
    }
    assert!(deaths > 1800, "only {deaths} deaths");
}
