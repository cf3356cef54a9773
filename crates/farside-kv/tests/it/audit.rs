//! What tests of a store ask of its memory when all clients have ended.

use farside_fabric::OpContext;
use farside_fabric::sim::Sim;
use farside_pool::{Account, Geometry, account, open};

/// The first byte of the record of a transaction.
const RECORD: u8 = b'T';

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
        // Several keys of a transaction that nobody has settled lead to its record.
        blocks.sort_unstable();
        let mut again: Vec<_> = blocks
            .windows(2)
            .filter(|two| two[0] == two[1])
            .map(|two| two[0])
            .collect();
        again.dedup();
        for block in again {
            let head = cx.read_word(block).await.expect("a word");
            if head as u8 == RECORD {
                let mut is_first = true;
                blocks.retain(|&other| other != block || core::mem::take(&mut is_first));
            }
        }
        let account = account(&mut cx, &geometry, &blocks).await.expect("an account");
        assert_eq!(account.faults, [""; 0], "{account:?}");
        (geometry, account)
    })
}
