//! A client dies in the middle of work on the structure of an index: what others do then.
//!
//! What it verifies, for a death after each verb of a client that fills a small hash table:
//!
//! - once the lease of the dead has run out and all memory is in use, every key whose PUT was acknowledged can be deleted:
//!   nobody has to wait for memory to end the split;
//! - where there is memory, others fill the table further, splits upon the one that nobody has ended, and lose no key;
//! - where what came of it is split in one half of its keys, and nobody comes to the other half, every block is found.
//!
//! And for deaths within any verb of a client that empties a small tree, whose leaves merge: every other key is there.
//!
//! Afterwards every block is free or linked, exactly once. What it does not verify: several deaths, and those of whoever
//! undoes the split, which plans draw.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use farside_fabric::VerbKind;
use farside_fabric::sim::{CrashPoint, Sim, SimOptions, Step};
use farside_kv::{IndexKind, LeafOptions, RaceOptions, Store, StoreConfig};
use farside_pool::{FormatOptions, PoolOptions, Purpose};

const LEASE_NS: u64 = 150_000;
const SUBTABLE_BYTES: u64 = 768;
const MANY_KEYS: u64 = 40;
/// What happens within a lease.
const TRACE_ENTRIES: usize = 4096;

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

/// Leaves that merge early.
const TREE: StoreConfig = StoreConfig {
    index: Some(IndexKind::Chime),
    leaf: LeafOptions {
        span: 8,
        neighbourhood: 4,
    },
    ..CONFIG
};

/// A death.
#[derive(Clone, Copy)]
struct Death {
    /// The last verb that takes effect, counted from when the store is open.
    verbs: u64,
    /// How many words of it do; all if `None`.
    words: Option<u32>,
}

impl Death {
    fn after(verbs: u64) -> Self {
        Self { verbs, words: None }
    }
}

/// Keys that are there whatever happens: their PUT was acknowledged, and nobody has begun to delete them.
type Keys = Rc<RefCell<Vec<u64>>>;

/// One client works on a store, and dies; `then` is what another one does with the store and the keys. Returns whether the
/// first one has died by then, and if so, whether that was in a verb of which a part may take effect.
fn die(
    death: Death,
    (config, memory): (StoreConfig, u64),
    work: impl AsyncFn(Store, Keys) + 'static,
    then: impl AsyncFn(Store, Vec<u64>) + 'static,
) -> Option<bool> {
    let sim = Sim::new(SimOptions {
        seed: death.verbs,
        tear_bytes: if death.words.is_some() { 8 } else { 64 },
        trace_entries: TRACE_ENTRIES,
        ..SimOptions::default()
    });
    let _ = sim.add_memory_node(memory);
    let [worker, survivor] = [(); 2].map(|()| sim.endpoint(sim.add_compute_node()));
    let there = Keys::default();
    let (is_open, has_ended) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));

    let (endpoint, keys, opened) = (worker.clone(), Rc::clone(&there), Rc::clone(&is_open));
    worker.spawn(async move {
        let store = Store::open(endpoint.clone(), config).await.expect("a store");
        opened.set(true);
        // The other one opens it, too.
        endpoint.sleep(2 * LEASE_NS).await;
        work(store.clone(), keys).await;
        // It stays, so that it is the death that ends it.
        endpoint.sleep(u64::MAX / 4).await;
    });
    while !is_open.get() {
        sim.run_until(sim.now_ns() + 10_000);
    }
    sim.crash_client_at(
        worker.id(),
        CrashPoint {
            verb: sim.verbs_posted(worker.id()) + death.verbs,
            lines: death.words,
        },
    );

    let (endpoint, keys, ended) = (survivor.clone(), Rc::clone(&there), Rc::clone(&has_ended));
    survivor.spawn(async move {
        let store = Store::open(endpoint.clone(), config).await.expect("a store");
        endpoint.sleep(40 * LEASE_NS).await;
        let keys = keys.borrow().clone();
        then(store, keys).await;
        ended.set(true);
    });
    let deadline_ns = sim.now_ns() + 1000 * LEASE_NS;
    let mut last = None;
    while !has_ended.get() {
        sim.run_until(sim.now_ns() + LEASE_NS);
        if last.is_none() && sim.is_crashed(worker.id()) {
            let posted = sim.trace_tail().into_iter().rev();
            // The worker was the first endpoint.
            let mut posted = posted.filter(|entry| entry.step == Step::Posted && entry.endpoint == 0);
            last = Some(posted.next().expect("it has died lately").kind == VerbKind::Write as u8);
        }
        assert!(
            sim.now_ns() < deadline_ns,
            "death after {} verbs: nobody can go on",
            death.verbs
        );
    }
    if last.is_some() {
        crate::audit::every_block(&sim);
    }
    last
}

/// Stores so many keys.
async fn fill(store: Store, keys: Keys, count: u64) {
    let mut session = store.session();
    for key in 0..count {
        session.put(&key.to_le_bytes(), b"value").await.expect("room");
        keys.borrow_mut().push(key);
    }
}

/// Deletes most keys, which leaves leaves that merge.
async fn thin_out(store: Store, keys: Keys) {
    Box::pin(fill(store.clone(), Rc::clone(&keys), 32)).await;
    let mut session = store.session();
    for key in (0..32).filter(|key| key % 5 > 0) {
        keys.borrow_mut().retain(|&other| other != key);
        assert!(session.delete(&key.to_le_bytes()).await.expect("no fault"));
    }
}

/// Looks for every key.
async fn find(store: Store, keys: Vec<u64>) {
    let mut session = store.session();
    for key in keys {
        let found = session.get(&key.to_le_bytes()).await.expect("an answer");
        assert!(found.is_some(), "key {key} is lost");
    }
    drop(session);
    store.close().await.expect("close");
}

/// Uses all memory, and deletes every key.
async fn delete_without_memory(store: Store, keys: Vec<u64>) {
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
async fn fill_further(store: Store, mut keys: Vec<u64>) {
    let others = 1000..1000 + 2 * MANY_KEYS;
    let mut session = store.session();
    for key in others.clone() {
        session.put(&key.to_le_bytes(), b"value").await.expect("room");
    }
    drop(session);
    keys.extend(others);
    Box::pin(find(store, keys)).await;
}

/// Stores another key, which may split what came of a split, and waits until that is free again.
async fn add(store: Store, key: u64) {
    let mut session = store.session();
    session.put(&key.to_le_bytes(), b"value").await.expect("room");
    drop(session);
    store.pool().endpoint().sleep(20 * LEASE_NS).await;
    store.close().await.expect("close");
}

#[test]
fn keys_can_be_deleted_although_a_split_cannot_be_ended() {
    let mut deaths = 0;
    // The housekeeping posts verbs as well, so it dies at last, all work done.
    for verbs in 1..900 {
        let work = async |store, keys| Box::pin(fill(store, keys, 24)).await;
        let died = die(Death::after(verbs), (CONFIG, 512 << 10), work, delete_without_memory);
        deaths += u32::from(died.is_some());
    }
    assert!(deaths > 800, "only {deaths} deaths");
}

#[test]
fn splits_in_one_half_of_a_split_that_nobody_has_ended_lose_nothing() {
    let mut deaths = 0;
    for verbs in 300..350 {
        // With one of them the other half is left alone.
        for key in 1540..1556 {
            let work = async |store, keys| Box::pin(fill(store, keys, 16)).await;
            let then = async move |store, _| Box::pin(add(store, key)).await;
            let died = die(Death::after(verbs), (CONFIG, 8 << 20), work, then);
            deaths += u32::from(died.is_some());
        }
    }
    assert!(deaths > 700, "only {deaths} deaths");
}

#[test]
fn splits_upon_a_split_that_nobody_has_ended_lose_nothing() {
    let mut deaths = 0;
    for verbs in 1..2000 {
        let work = async |store, keys| Box::pin(fill(store, keys, MANY_KEYS)).await;
        let died = die(Death::after(verbs), (CONFIG, 8 << 20), work, fill_further);
        deaths += u32::from(died.is_some());
    }
    assert!(deaths > 1800, "only {deaths} deaths");
}

#[test]
fn merges_that_nobody_has_ended_lose_no_key() {
    let mut deaths = 0;
    // While it deletes.
    for verbs in 900..1600 {
        for words in (verbs as u32 % 4..48).step_by(4) {
            let death = Death {
                verbs,
                words: Some(words),
            };
            let died = die(death, (TREE, 1 << 20), thin_out, find);
            deaths += u32::from(died.is_some());
            // Of any other verb all takes effect.
            if died == Some(false) {
                break;
            }
        }
    }
    assert!(deaths > 2000, "only {deaths} deaths");
}
