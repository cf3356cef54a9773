//! A simulation with a tree in it.

pub(crate) mod history;
pub(crate) mod run;
pub(crate) mod shrink;

use farside_fabric::sim::{Endpoint, Sim, SimOptions};
use farside_fabric::{Clock, OpContext};
use farside_index::{Budget, Shape, Tree, TreeOptions};
use farside_pool::{FormatOptions, Pool, PoolOptions, open_or_format};

/// Small leaves of each kind, so that a few keys make a tree, and the published ones.
pub(crate) const SHAPES: [Shape; 4] = [
    Shape::hopscotch(8, 4),
    Shape::unsorted(6),
    farside_index::chime::LEAF,
    farside_index::sherman::LEAF,
];

pub(crate) const LEASE_NS: u64 = 400_000;

pub(crate) const POOL: PoolOptions = PoolOptions {
    tick_ns: 20_000,
    lease_ns: LEASE_NS,
};

/// Memory nodes, and trees of one shape on them.
pub(crate) struct Forest {
    pub(crate) sim: Sim,
    shape: Shape,
}

impl Forest {
    pub(crate) fn new(options: SimOptions, shape: Shape, nodes: usize) -> Self {
        let sim = Sim::new(options);
        for _ in 0..nodes {
            let _ = sim.add_memory_node(8 << 20);
        }
        Self { sim, shape }
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        self.sim.endpoint(self.sim.add_compute_node())
    }

    /// The tree as a new client sees it, which remembers so many bytes of nodes.
    pub(crate) async fn tree(&self, endpoint: &Endpoint, cache_bytes: usize) -> Tree<Endpoint> {
        open_tree(endpoint, self.shape, cache_bytes).await
    }

    /// Waits until the client works on the structure no more.
    pub(crate) async fn settle(&self, endpoint: &Endpoint, tree: &Tree<Endpoint>) {
        while tree.is_restructuring() {
            endpoint.sleep(10_000).await;
        }
    }
}

pub(crate) async fn open_tree(endpoint: &Endpoint, shape: Shape, cache_bytes: usize) -> Tree<Endpoint> {
    // A few hotspots, so that some are right, some wrong, and some have to go.
    let budget = Budget {
        cache_bytes,
        hotspot_bytes: 500,
    };
    open_tree_with(endpoint, TreeOptions { shape, budget }, POOL).await
}

pub(crate) async fn open_tree_with(endpoint: &Endpoint, options: TreeOptions, pool: PoolOptions) -> Tree<Endpoint> {
    let mut cx = OpContext::new(endpoint.clone());
    let format = FormatOptions {
        clients_max: 64,
        chunk_bytes: Some(32 << 10),
        patience_ns: 5 * LEASE_NS,
    };
    let geometry = open_or_format(&mut cx, format).await.expect("a pool");
    let pool = Pool::join(&mut cx, geometry, pool).await.expect("a client");
    Tree::create(&mut cx, pool, options).await.expect("a tree")
}
