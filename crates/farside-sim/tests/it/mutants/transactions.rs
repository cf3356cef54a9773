//! Checks of transactions that take an order which plans hardly ever draw.

use std::cell::Cell;
use std::rc::Rc;

use farside_fabric::Endpoint;
use farside_fabric::sim::{Sim, SimOptions};
use farside_kv::{IndexKind, KEYS_AT_ONCE, KvError, Session, Store, StoreConfig};

const ROUNDS: u64 = 20;

/// So many that their pointers are swapped in several batches.
const MANY: usize = 160;

async fn open(endpoint: Endpoint) -> Store {
    let config = StoreConfig {
        index: Some(IndexKind::Race),
        ..StoreConfig::default()
    };
    Store::open(endpoint, config).await.expect("the node is there")
}

fn keys(count: usize) -> Vec<Vec<u8>> {
    let numbers = 0..count as u32;
    numbers.map(|number| number.to_be_bytes().to_vec()).collect()
}

async fn write(session: &mut Session, keys: &[&[u8]], value: u64) -> Result<(), KvError> {
    let written = session.transaction_on(keys, |transaction| {
        keys.iter()
            .try_for_each(|key| transaction.put(key, &value.to_be_bytes()))
    });
    written.await
}

/// One client writes the first and the last of some keys at once, another one reads all of them: at one instant, both are the same.
pub(super) fn the_first_and_the_last(seed: u64) -> Result<(), String> {
    let sim = Sim::new(SimOptions {
        seed,
        jitter_ns: 2_000,
        ..SimOptions::default()
    });
    let _ = sim.add_memory_node(4 << 20);
    let [writer, reader] = [(); 2].map(|()| sim.endpoint(sim.add_compute_node()));
    let (first, second) = (sim.block_on(open(writer.clone())), sim.block_on(open(reader)));
    let (keys, is_done) = (keys(KEYS_AT_ONCE + 4), Rc::new(Cell::new(false)));
    let all: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let (mut session, mut other) = (first.session(), second.session());
    sim.block_on(write(&mut session, &all, 0))
        .map_err(|error| error.to_string())?;
    let (done, ends) = (Rc::clone(&is_done), [keys[0].clone(), keys[keys.len() - 1].clone()]);
    writer.spawn(async move {
        for value in 1..=ROUNDS {
            let written = write(&mut session, &[&ends[0], &ends[1]], value).await;
            written.expect("nobody else writes");
        }
        done.set(true);
    });
    while !is_done.get() {
        let (first, last) = (all[0], all[all.len() - 1]);
        let read = other.transaction_on(&all, |transaction| {
            let first = transaction.get(first)?.map(<[u8]>::to_vec);
            Ok((first, transaction.get(last)?.map(<[u8]>::to_vec)))
        });
        let (first, last) = sim.block_on(read).map_err(|error| error.to_string())?;
        if first != last {
            return Err(format!("{first:?} and {last:?} were never there together"));
        }
    }
    Ok(())
}

/// Reads keys one after the other until `is_done`. They are always written together, and only grow: none is older than one that
/// was read before it.
async fn never_older(store: Store, keys: &[&[u8]], is_done: &Cell<bool>) -> Result<(), String> {
    let (mut session, mut newest) = (store.session(), Vec::new());
    for key in keys.iter().cycle().take_while(|_| !is_done.get()) {
        let value = session.get(key).await.map_err(|error| error.to_string())?;
        let value = value.ok_or("a key is gone")?;
        if value < newest.as_slice() {
            return Err(format!("{newest:?}, and then {value:?}, which is older"));
        }
        newest.clear();
        newest.extend_from_slice(value);
    }
    Ok(())
}

/// One client writes many keys at once, again and again. Its pointers come in several batches, so others meet some of them beside
/// descriptors of the same transaction, which has committed.
pub(super) fn one_and_then_another(seed: u64) -> Result<(), String> {
    let sim = Sim::new(SimOptions {
        seed,
        jitter_ns: 2_000,
        ..SimOptions::default()
    });
    let _ = sim.add_memory_node(4 << 20);
    let [writer, reader] = [(); 2].map(|()| sim.endpoint(sim.add_compute_node()));
    let (first, second) = (sim.block_on(open(writer.clone())), sim.block_on(open(reader)));
    let (keys, is_done) = (keys(MANY), Rc::new(Cell::new(false)));
    let all: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let mut session = first.session();
    sim.block_on(write(&mut session, &all, 0))
        .map_err(|error| error.to_string())?;
    let (done, written) = (Rc::clone(&is_done), keys.clone());
    writer.spawn(async move {
        let keys: Vec<&[u8]> = written.iter().map(Vec::as_slice).collect();
        for value in 1..=ROUNDS {
            write(&mut session, &keys, value).await.expect("nobody else writes");
        }
        done.set(true);
    });
    sim.block_on(never_older(second, &all, &is_done))
}
