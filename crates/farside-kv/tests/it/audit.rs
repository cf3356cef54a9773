//! What tests of a store ask of its memory when all clients have ended.

use farside_fabric::OpContext;
use farside_fabric::sim::Sim;
use farside_pool::{Account, Geometry, account, open};

/// Accounts for every block: each is free or linked, exactly once. Returns the shape of the pool, and the account.
pub(crate) fn every_block(sim: &Sim) -> (Vec<Geometry>, Account) {
    let endpoint = sim.endpoint(sim.add_compute_node());
    sim.block_on(async move {
        let mut cx = OpContext::new(endpoint);
        let geometry = open(&mut cx).await.expect("a pool");
        let mut blocks = Vec::new();
        farside_index::walk(&mut cx, &geometry, None, &mut |block| blocks.push(block))
            .await
            .expect("a walk");
        let account = account(&mut cx, &geometry, &blocks).await.expect("an account");
        assert_eq!(account.faults, [""; 0], "{account:?}");
        (geometry, account)
    })
}
