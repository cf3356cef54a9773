//! A simulation with a tree in it.

pub(crate) mod claimed;
mod client;
pub(crate) mod history;
pub(crate) mod merged;
pub(crate) mod run;
pub(crate) mod shrink;

use farside_fabric::Endpoint;
use farside_fabric::sim::{Sim, SimOptions};
use farside_index::{Budget, Shape, Tree, TreeOptions};

pub(crate) use self::client::{LEASE_NS, POOL, open_tree_with};

/// Small leaves of each kind, so that a few keys make a tree, and the published ones.
pub(crate) const SHAPES: [Shape; 4] = [
    Shape::hopscotch(8, 4),
    Shape::unsorted(6),
    farside_index::chime::LEAF,
    farside_index::sherman::LEAF,
];

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
    pub(crate) async fn tree(&self, endpoint: &Endpoint, cache_bytes: usize) -> Tree {
        open_tree(endpoint, self.shape, cache_bytes).await
    }

    /// Waits until the client works on the structure no more.
    pub(crate) async fn settle(&self, endpoint: &Endpoint, tree: &Tree) {
        while tree.is_restructuring() {
            endpoint.sleep(10_000).await;
        }
    }
}

pub(crate) async fn open_tree(endpoint: &Endpoint, shape: Shape, cache_bytes: usize) -> Tree {
    // A few hotspots, so that some are right, some wrong, and some have to go.
    let budget = Budget {
        cache_bytes,
        hotspot_bytes: 500,
    };
    open_tree_with(endpoint, TreeOptions { shape, budget }, POOL).await
}
