//! When clients that have joined begin to reuse blocks of others' chunks, over the simulated fabric.
//!
//! A client that joins sends home what it retires until it has seen that nobody searches for lost blocks. It looked only when
//! its turn came to advance the epoch, which does not come while a client before it in the table is alive: all but the
//! first client paid an atomic for every update, for ever.

use farside_fabric::Endpoint;
use farside_fabric::sim::{Sim, SimOptions};
use farside_fabric::{OpContext, VerbKind};
use farside_pool::{FormatOptions, Pool, PoolOptions, Purpose, open, open_or_format};

const OPTIONS: PoolOptions = PoolOptions {
    tick_ns: 20_000,
    lease_ns: 2_000_000,
};
/// Time for every client to look, and for blocks to leave limbo.
const WHILE_NS: u64 = 40 * OPTIONS.tick_ns;

async fn join(endpoint: Endpoint) -> Pool {
    let mut cx = OpContext::new(endpoint);
    open_or_format(&mut cx, FormatOptions::default())
        .await
        .expect("there is memory");
    let geometry = open(&mut cx).await.expect("it is formatted");
    Pool::join(&mut cx, geometry, OPTIONS).await.expect("there is room")
}

#[test]
fn whoever_joins_reuses_blocks_of_others_although_others_advance_the_epoch() {
    let sim = Sim::new(SimOptions::default());
    let _ = sim.add_memory_node(8 << 20);
    let pools: Vec<_> = (0..4)
        .map(|_| {
            let endpoint = sim.endpoint(sim.add_compute_node());
            sim.block_on(join(endpoint))
        })
        .collect();
    sim.run_until(sim.now_ns() + WHILE_NS);
    sim.block_on(pools[0].restock(64, 8, Purpose::Insert)).expect("memory");
    for late in &pools[1..] {
        let block = pools[0].allocate(64).expect("there are blocks");
        let adds = || late.endpoint().counters().snapshot().verbs.of(VerbKind::FetchAdd);
        let before = adds();
        late.retire(block, Some(64));
        sim.run_until(sim.now_ns() + WHILE_NS);
        assert_eq!(adds(), before, "nothing is sent home");
        assert_eq!(late.allocate(64), Some(block));
    }
}
