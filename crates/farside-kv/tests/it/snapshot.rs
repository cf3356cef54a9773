//! Exports in the simulator, beside clients that write, delete, carry out transactions and crash: is what an export shows one
//! of the states that the store went through while it began?
//!
//! Every client has keys of its own, so what it did to them is a sequence, and a snapshot has the effects of the first so many
//! of its operations. What it verifies:
//! - there is such a number for every client: no operation is there half (a transaction of several keys), twice, or without
//!   one before it;
//! - the numbers fit together: what had ended before the export began is in it, what began after the instant is not, and
//!   whatever had ended before something began that is in it is in it as well, across clients;
//! - transfers between accounts that all clients share leave the sum as it is;
//! - memory: afterwards every block is free or reachable, exactly once.
//!
//! What it does not verify: the order of writes to shared keys that are no transfers.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use farside_fabric::Endpoint;
use farside_fabric::sim::{Sim, SimOptions};
use farside_kv::{IndexKind, Item, KvError, LeafOptions, RaceOptions, Session, Store, StoreConfig};
use farside_pool::{FormatOptions, PoolOptions};
use farside_sync::Scheme;

const LEASE_NS: u64 = 400_000;
const ACCOUNTS: u8 = 4;
const START: u64 = 100;
/// The number of the first client that comes to write one key.
const GUESTS: u8 = 200;
/// How many keys a client has.
const KEYS: u64 = 8;
/// How many bytes a value has that is large.
const LARGE_BYTES: u64 = 1500;

type Key = Vec<u8>;

/// What an operation of a client did to its own keys.
#[derive(Debug)]
struct Operation {
    begin_ns: u64,
    /// `u64::MAX` until it has ended.
    end_ns: u64,
    /// The number of the value, if the key has one then.
    writes: Vec<(Key, Option<u64>)>,
}

/// What an export has shown: the numbers of the values of keys that belong to clients.
#[derive(Debug)]
struct Seen {
    begin_ns: u64,
    instant_ns: u64,
    values: BTreeMap<Key, u64>,
    sum: u64,
    /// A key that was shown twice.
    twice: Option<Key>,
}

#[derive(Default)]
struct World {
    histories: RefCell<BTreeMap<u8, Vec<Operation>>>,
    seen: RefCell<Vec<Seen>>,
    given_up: Cell<u32>,
    running: Cell<u32>,
    stopped: Cell<bool>,
    /// Whether the keys of a client share more bytes than a tree compares at once.
    has_long_keys: bool,
    wrong: RefCell<Option<String>>,
}

pub(crate) fn config(index: IndexKind, scheme: Scheme) -> StoreConfig {
    StoreConfig {
        index: Some(index),
        scheme,
        // Keys that share slots.
        slots: Some(16),
        race: RaceOptions {
            items: 0,
            subtable_bytes: 768,
            bucket_slots: 2,
        },
        leaf: LeafOptions {
            span: 8,
            neighbourhood: 4,
        },
        format: FormatOptions {
            clients_max: 32,
            chunk_bytes: Some(16 << 10),
            patience_ns: 5 * LEASE_NS,
        },
        pool: PoolOptions {
            tick_ns: 20_000,
            lease_ns: LEASE_NS,
        },
        timeout_ns: None,
        local_wc: false,
    }
}

fn account(number: u8) -> Key {
    vec![u8::MAX, number]
}

fn number(value: Option<&[u8]>) -> u64 {
    let word = value.and_then(|value| value.first_chunk());
    word.map_or(0, |&word| u64::from_le_bytes(word))
}

/// A value that tells its number, and is long at times.
fn value(endpoint: &Endpoint, number: u64) -> Vec<u8> {
    let bytes = match endpoint.random_below(8) {
        0 => endpoint.random_below(LARGE_BYTES),
        _ => endpoint.random_below(40),
    };
    let mut value = number.to_le_bytes().to_vec();
    value.resize(8 + bytes as usize, number as u8);
    value
}

async fn transfer(session: &mut Session, endpoint: &Endpoint) -> Result<(), KvError> {
    let from = endpoint.random_below(ACCOUNTS.into()) as u8;
    let to = (from + 1 + endpoint.random_below(u64::from(ACCOUNTS) - 1) as u8) % ACCOUNTS;
    let (from, to, amount) = (account(from), account(to), endpoint.random_below(20));
    session
        .transaction_on(&[&from, &to], |transaction| {
            let (a, b) = (number(transaction.get(&from)?), number(transaction.get(&to)?));
            let amount = amount.min(a);
            transaction.put(&from, &(a - amount).to_le_bytes())?;
            transaction.put(&to, &(b + amount).to_le_bytes())
        })
        .await
        .map(drop)
}

/// One of a client's keys.
fn key(world: &World, writer: u8, number: u64) -> Key {
    let mut key = vec![writer];
    if world.has_long_keys {
        key.extend_from_slice(b"-shares");
    }
    key.push(number as u8);
    key
}

/// A client that writes a key which nobody had, and leaves.
async fn come_and_go(endpoint: Endpoint, writer: u8, config: StoreConfig, world: Rc<World>) {
    let store = Store::open(endpoint.clone(), config).await.expect("a store");
    let mut session = store.session();
    let key = key(&world, writer, 0);
    let operation = Operation {
        begin_ns: endpoint.now_ns(),
        end_ns: u64::MAX,
        writes: vec![(key.clone(), Some(1))],
    };
    world.histories.borrow_mut().insert(writer, vec![operation]);
    session.put(&key, &value(&endpoint, 1)).await.expect("put");
    world.histories.borrow_mut().get_mut(&writer).expect("it is there")[0].end_ns = endpoint.now_ns();
    drop(session);
    store.close().await.expect("close");
    world.running.set(world.running.get() - 1);
}

async fn work(endpoint: Endpoint, writer: u8, config: StoreConfig, world: Rc<World>) {
    let store = Store::open(endpoint.clone(), config).await.expect("a store");
    let mut session = store.session();
    let mut last = 0;
    while !world.stopped.get() {
        last += 1;
        let kind = endpoint.random_below(10);
        if kind == 0 {
            transfer(&mut session, &endpoint).await.expect("a transfer");
            continue;
        }
        let count = if kind < 3 { 2 + endpoint.random_below(2) } else { 1 };
        let mut keys: Vec<Key> = (0..count)
            .map(|_| key(&world, writer, endpoint.random_below(KEYS)))
            .collect();
        keys.sort();
        keys.dedup();
        let writes: Vec<(Key, Option<Vec<u8>>)> = keys
            .into_iter()
            .map(|key| {
                let new = (endpoint.random_below(4) > 0).then(|| value(&endpoint, last));
                (key, new)
            })
            .collect();
        let numbers = writes
            .iter()
            .map(|(key, new)| (key.clone(), new.as_ref().map(|_| last)));
        let operation = Operation {
            begin_ns: endpoint.now_ns(),
            end_ns: u64::MAX,
            writes: numbers.collect(),
        };
        world.histories.borrow_mut().entry(writer).or_default().push(operation);
        if count > 1 {
            let keys: Vec<&[u8]> = writes.iter().map(|(key, _)| key.as_slice()).collect();
            let made = session.transaction_on(&keys, |transaction| {
                for (key, new) in &writes {
                    match new {
                        Some(new) => transaction.put(key, new)?,
                        None => drop(transaction.delete(key)?),
                    }
                }
                Ok(())
            });
            made.await.expect("a transaction");
        } else {
            match &writes[0] {
                (key, Some(new)) => session.put(key, new).await.expect("put"),
                (key, None) => drop(session.delete(key).await.expect("delete")),
            }
        }
        let mut histories = world.histories.borrow_mut();
        let own = histories.get_mut(&writer).and_then(|history| history.last_mut());
        own.expect("it was pushed").end_ns = endpoint.now_ns();
    }
    drop(session);
    store.close().await.expect("close");
    world.running.set(world.running.get() - 1);
}

/// One export; what it has shown, unless it was given up.
async fn export(store: &Store, endpoint: &Endpoint) -> Result<Seen, KvError> {
    let begin_ns = endpoint.now_ns();
    let mut export = store.export().await?;
    let mut seen = Seen {
        begin_ns,
        instant_ns: endpoint.now_ns(),
        values: BTreeMap::new(),
        sum: 0,
        twice: None,
    };
    let mut twice = None;
    let (mut is_more, mut calls) = (true, 0);
    while is_more {
        calls += 1;
        // One goes through a store so small, and one shows what was replaced meanwhile; whatever goes on beside it.
        assert!(calls <= 2, "an export does not come to its end");
        let show = &mut |item: Item<'_>| {
            if item.key[0] == u8::MAX {
                seen.sum += number(Some(item.value));
            } else if seen
                .values
                .insert(item.key.to_vec(), number(Some(item.value)))
                .is_some()
            {
                twice = Some(item.key.to_vec());
            }
        };
        is_more = export.next(show).await?;
        // Others get on meanwhile.
        endpoint.sleep(endpoint.random_below(30_000)).await;
    }
    export.end().await?;
    seen.twice = twice;
    Ok(seen)
}

async fn export_again_and_again(endpoint: Endpoint, config: StoreConfig, world: Rc<World>) {
    let store = Store::open(endpoint.clone(), config).await.expect("a store");
    while !world.stopped.get() {
        endpoint.sleep(endpoint.random_below(200_000)).await;
        match export(&store, &endpoint).await {
            Ok(seen) => world.seen.borrow_mut().push(seen),
            Err(error) if error.is_snapshot_ended() => world.given_up.set(world.given_up.get() + 1),
            Err(error) => *world.wrong.borrow_mut() = Some(format!("an export failed: {error}")),
        }
    }
    store.close().await.expect("close");
    world.running.set(world.running.get() - 1);
}

/// After how many of its operations the keys of a client may have been what they are in a snapshot.
fn candidates(writer: u8, history: &[Operation], seen: &Seen) -> Vec<usize> {
    let shown = || {
        let own = seen.values.range(vec![writer]..vec![writer + 1]);
        own.map(|(key, &number)| (key.clone(), number))
            .collect::<BTreeMap<_, _>>()
    };
    let (shown, mut state) = (shown(), BTreeMap::new());
    let mut found = Vec::new();
    for count in 0..=history.len() {
        if count > 0 {
            for (key, number) in &history[count - 1].writes {
                match number {
                    Some(number) => drop(state.insert(key.clone(), *number)),
                    None => drop(state.remove(key)),
                }
            }
        }
        if state == shown {
            found.push(count);
        }
    }
    found
}

/// Whether a snapshot is one of the states between its beginning and its instant.
fn check(histories: &BTreeMap<u8, Vec<Operation>>, seen: &Seen) -> Result<(), String> {
    if let Some(key) = &seen.twice {
        return Err(format!("the key {key:?} is shown twice"));
    }
    if seen.sum != u64::from(ACCOUNTS) * START {
        return Err(format!("the accounts of a snapshot have {}", seen.sum));
    }
    let mut least: BTreeMap<u8, usize> = BTreeMap::new();
    let mut possible = BTreeMap::new();
    for (&writer, history) in histories {
        let candidates = candidates(writer, history, seen);
        if candidates.is_empty() {
            return Err(format!("client {writer} never had the keys that a snapshot shows"));
        }
        possible.insert(writer, candidates);
        least.insert(
            writer,
            history
                .iter()
                .filter(|operation| operation.end_ns < seen.begin_ns)
                .count(),
        );
    }
    // The least numbers that are possible and fit together. Ends: they only grow.
    loop {
        let before = least.clone();
        for (writer, history) in histories {
            let wanted = least[writer];
            let Some(&count) = possible[writer].iter().find(|&&count| count >= wanted) else {
                return Err(format!(
                    "a snapshot lacks operation {wanted} of client {writer}, which had ended"
                ));
            };
            least.insert(*writer, count);
            let Some(last) = count.checked_sub(1).map(|last| &history[last]) else {
                continue;
            };
            if last.begin_ns > seen.instant_ns {
                return Err(format!(
                    "a snapshot has operation {count} of client {writer}, which began later"
                ));
            }
            for (other, history) in histories {
                let ended = history
                    .iter()
                    .filter(|operation| operation.end_ns < last.begin_ns)
                    .count();
                let least = least.get_mut(other).expect("all are there");
                *least = ended.max(*least);
            }
        }
        if least == before {
            return Ok(());
        }
    }
}

/// Runs a seed, and has `audit` look at the world when all have left; says how many exports were made and how many given up, or what
/// is wrong.
pub(crate) fn run(seed: u64, audit: &dyn Fn(&Sim)) -> Result<(u32, u32), String> {
    let kinds = [
        IndexKind::Race,
        IndexKind::Race,
        IndexKind::Chime,
        IndexKind::PointerArray,
        IndexKind::Smart,
        IndexKind::Marlin,
    ];
    let kind = kinds[seed as usize % kinds.len()];
    let scheme = match (kind, seed / 6 % 3) {
        (IndexKind::Race | IndexKind::PointerArray, 0) => Scheme::Optimistic,
        _ => Scheme::Farside,
    };
    let config = config(kind, scheme);
    let sim = Sim::new(SimOptions {
        seed,
        tear_bytes: if seed.is_multiple_of(2) { 64 } else { 8 },
        ..SimOptions::default()
    });
    for _ in 0..1 + seed % 3 / 2 {
        let _ = sim.add_memory_node(16 << 20);
    }
    let world = Rc::new(World {
        has_long_keys: seed % 4 < 2,
        ..World::default()
    });
    let founder = sim.endpoint(sim.add_compute_node());
    sim.block_on(async move {
        let store = Store::open(founder, config).await.expect("a store");
        let mut session = store.session();
        for number in 0..ACCOUNTS {
            let made = session.put(&account(number), &START.to_le_bytes()).await;
            made.expect("an account");
        }
        drop(session);
        store.close().await.expect("close");
    });
    let chance = sim.endpoint(sim.add_compute_node());
    let mut writers = 0;
    let mut start = |world: &Rc<World>| {
        let endpoint = sim.endpoint(sim.add_compute_node());
        world.running.set(world.running.get() + 1);
        endpoint.spawn(work(endpoint.clone(), writers, config, Rc::clone(world)));
        writers += 1;
        endpoint.id()
    };
    let start_export = |world: &Rc<World>| {
        let endpoint = sim.endpoint(sim.add_compute_node());
        world.running.set(world.running.get() + 1);
        endpoint.spawn(export_again_and_again(endpoint.clone(), config, Rc::clone(world)));
        endpoint.id()
    };
    let mut clients: Vec<_> = (0..2 + seed % 4).map(|_| start(&world)).collect();
    let mut exporter = start_export(&world);
    for guest in 0..6 {
        sim.run_until(sim.now_ns() + 400_000 + chance.random_below(1_200_000));
        match chance.random_below(5) {
            4 => {
                let endpoint = sim.endpoint(sim.add_compute_node());
                world.running.set(world.running.get() + 1);
                let guest = come_and_go(endpoint.clone(), GUESTS + guest, config, Rc::clone(&world));
                endpoint.spawn(guest);
                continue;
            }
            0 => {
                let victim = chance.random_below(clients.len() as u64) as usize;
                sim.crash_client(clients[victim]);
                clients[victim] = start(&world);
            }
            1 if chance.random_below(3) == 0 => {
                sim.crash_client(exporter);
                exporter = start_export(&world);
            }
            _ => continue,
        }
        world.running.set(world.running.get() - 1);
    }
    world.stopped.set(true);
    let deadline = sim.now_ns() + 400_000_000;
    while world.running.get() > 0 {
        sim.run_until(sim.now_ns() + 100_000);
        if sim.now_ns() >= deadline {
            return Err(format!("{} clients do not come to an end", world.running.get()));
        }
    }
    let histories = world.histories.borrow();
    for seen in &*world.seen.borrow() {
        check(&histories, seen).map_err(|wrong| format!("{}: {wrong}", kind.name()))?;
    }
    let endpoint = sim.endpoint(sim.add_compute_node());
    sim.block_on(async move {
        let store = Store::open(endpoint.clone(), config).await.expect("a store");
        endpoint.sleep(20 * LEASE_NS).await;
        store.settle().await.expect("settled");
        store.close().await.expect("close");
    });
    if let Some(wrong) = world.wrong.take() {
        return Err(wrong);
    }
    audit(&sim);
    Ok((world.seen.borrow().len() as u32, world.given_up.get()))
}
