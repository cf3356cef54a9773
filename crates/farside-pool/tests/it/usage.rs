//! What a look at a pool finds, over the simulated fabric.

use std::collections::BTreeMap;

use farside_fabric::OpContext;
use farside_fabric::sim::{Sim, SimOptions};
use farside_pool::client::{self, Liveness};
use farside_pool::layout::{CLIENTS_HIGH_AT, DEATHS_AT, EPOCH_AT};
use farside_pool::{FormatOptions, Members, Pool, PoolOptions, Purpose, node_usage, open_or_format, usage};

const CHUNK_BYTES: u64 = 4096;

/// Nothing happens by itself: no client ticks.
const OPTIONS: PoolOptions = PoolOptions {
    tick_ns: 1_000_000_000,
    lease_ns: 100_000_000_000,
};

#[test]
fn chunks_of_all_nodes_and_all_clients_are_counted() {
    let sim = Sim::new(SimOptions::default());
    let nodes = [1 << 20, 1 << 19].map(|bytes| sim.add_memory_node(bytes));
    let compute_node = sim.add_compute_node();
    let mut cx = OpContext::new(sim.endpoint(compute_node));
    let format = FormatOptions {
        clients_max: 8,
        chunk_bytes: Some(CHUNK_BYTES),
        ..FormatOptions::default()
    };
    let geometry = sim.block_on(open_or_format(&mut cx, format)).expect("memory");
    let region = sim.region(nodes[0]);
    let set = |at, value| region.word(at).store(value, core::sync::atomic::Ordering::SeqCst);
    set(EPOCH_AT, 40);
    let mut client = OpContext::new(sim.endpoint(compute_node));
    let pool = sim
        .block_on(Pool::join(&mut client, geometry.clone(), OPTIONS))
        .expect("there is room");
    // One chunk of each node, and a run.
    for blocks in [64, 65] {
        sim.block_on(pool.restock(64, blocks, Purpose::Insert)).expect("memory");
    }
    sim.block_on(pool.restock(3 * CHUNK_BYTES, 1, Purpose::Insert))
        .expect("memory");
    for _ in 0..3 {
        assert!(pool.allocate(64).is_some());
    }
    sim.block_on(pool.tick()).expect("it is alive");
    // Two more that were cut off, and 3 deaths in all.
    for (index, liveness) in [(1, Liveness::Dying), (2, Liveness::Dead)] {
        let entry = client::entry_addr(index).offset();
        set(entry, client::state_word(liveness, 1));
        set(entry + 8, 1000 + u64::from(index));
    }
    set(CLIENTS_HIGH_AT, 3);
    set(DEATHS_AT, 3);

    let found = sim.block_on(usage(&mut cx, &geometry)).expect("the tables can be read");
    let chunks: u64 = geometry.iter().map(|geometry| geometry.chunk_count).sum();
    assert_eq!(found.bytes, (1 << 20) + (1 << 19));
    assert_eq!(found.bytes_tables, found.bytes - chunks * CHUNK_BYTES);
    assert_eq!(found.bytes_free, (chunks - 5) * CHUNK_BYTES);
    assert_eq!((found.bytes_root, found.bytes_run), (0, 3 * CHUNK_BYTES));
    assert_eq!(found.bytes_by_block, BTreeMap::from([(64, 2 * CHUNK_BYTES)]));
    let members = Members {
        epoch: pool.epoch() + 1,
        deaths: 3,
        clients_live: 1,
        clients_dead: 2,
        clients_max: 8,
        bytes_held: 3 * 64,
    };
    assert_eq!(found.members, Some(members));
    assert!(pool.epoch() > 40);
}

#[test]
fn a_look_at_one_node_needs_no_other() {
    let sim = Sim::new(SimOptions::default());
    let node = sim.add_memory_node(1 << 20);
    let mut cx = OpContext::new(sim.endpoint(sim.add_compute_node()));
    assert_eq!(sim.block_on(node_usage(&mut cx)), Ok(None), "it is blank");
    let format = FormatOptions {
        clients_max: 8,
        chunk_bytes: Some(CHUNK_BYTES),
        ..FormatOptions::default()
    };
    let geometry = sim.block_on(open_or_format(&mut cx, format)).expect("memory");
    let epoch = sim.region(node);
    epoch.word(EPOCH_AT).store(5, core::sync::atomic::Ordering::SeqCst);
    let all = sim.block_on(usage(&mut cx, &geometry)).expect("the tables can be read");
    let one = sim.block_on(node_usage(&mut cx));
    assert_eq!(one, Ok(Some(all.clone())));
    let members = Members {
        epoch: 5,
        clients_max: 8,
        ..Members::default()
    };
    assert_eq!(all.members, Some(members));
    assert_eq!(all.bytes_free, geometry[0].chunk_count * CHUNK_BYTES);
}
