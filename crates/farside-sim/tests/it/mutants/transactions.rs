//! Checks of transactions that take an order which plans hardly ever draw.

use std::cell::Cell;
use std::rc::Rc;

use farside_fabric::Endpoint;
use farside_fabric::sim::{Sim, SimOptions};
use farside_kv::{IndexKind, KEYS_AT_ONCE, KvError, Session, Store, StoreConfig};

const ROUNDS: u64 = 20;

async fn open(endpoint: Endpoint) -> Store {
    let config = StoreConfig {
        index: Some(IndexKind::Race),
        ..StoreConfig::default()
    };
    Store::open(endpoint, config).await.expect("the node is there")
}

/// More keys than are looked for at the same time.
fn keys() -> Vec<Vec<u8>> {
    let numbers = 0..KEYS_AT_ONCE as u32 + 4;
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
    let (keys, is_done) = (keys(), Rc::new(Cell::new(false)));
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
