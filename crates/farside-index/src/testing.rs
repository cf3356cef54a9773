//! What tests of several indexes begin and end with.

use farside_fabric::sim::{Sim, SimOptions};
use farside_fabric::{NodeId, OpContext, RemoteAddr};
use farside_pool::{FormatOptions, Geometry, Pool, PoolOptions, account, open_or_format};

/// A client of a new pool on a memory node of so many bytes, and the world it is in.
pub(crate) struct Alone {
    pub(crate) sim: Sim,
    pub(crate) node: NodeId,
    pub(crate) cx: OpContext,
    pub(crate) pool: Pool,
    pub(crate) geometry: Vec<Geometry>,
}

impl Alone {
    pub(crate) fn new(node_bytes: u64) -> Self {
        Self::with(node_bytes, PoolOptions::default())
    }

    /// The same with a client whose housekeeping sleeps.
    pub(crate) fn undisturbed(node_bytes: u64) -> Self {
        let times = PoolOptions {
            tick_ns: 1 << 40,
            lease_ns: 1 << 50,
        };
        Self::with(node_bytes, times)
    }

    fn with(node_bytes: u64, options: PoolOptions) -> Self {
        let sim = Sim::new(SimOptions::default());
        let node = sim.add_memory_node(node_bytes);
        let mut cx = OpContext::new(sim.endpoint(sim.add_compute_node()));
        let (pool, geometry) = sim.block_on(async {
            let geometry = open_or_format(&mut cx, FormatOptions::default()).await.expect("a pool");
            let pool = Pool::join(&mut cx, geometry.clone(), options).await;
            (pool.expect("a client"), geometry)
        });
        Self {
            sim,
            node,
            cx,
            pool,
            geometry,
        }
    }

    /// The client leaves. These blocks are all that are in use.
    pub(crate) fn end(mut self, blocks: &[RemoteAddr]) {
        self.sim.block_on(async {
            self.pool.leave().await.expect("leave");
            let account = account(&mut self.cx, &self.geometry, blocks).await;
            let account = account.expect("an account");
            assert_eq!(account.faults, [""; 0]);
            assert_eq!(account.blocks_reachable, blocks.len() as u64);
        });
    }
}
