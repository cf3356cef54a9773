//! The suite on the simulator.

use std::cell::Cell;
use std::rc::Rc;

use farside_fabric::Endpoint;
use farside_fabric::NodeId;
use farside_fabric::sim::{ComputeNodeId, Sim, SimOptions};

use super::fixture::{Cluster, Fixture};

/// The simulator as NICs behave: torn at lines, requests delayed at random.
pub(crate) struct SimLines;

/// The simulator as strict as the contract allows: torn at words.
pub(crate) struct SimWords;

/// Clients are spread over this many compute nodes.
const COMPUTE_NODES: usize = 2;

#[derive(Clone)]
pub(crate) struct SimCluster {
    sim: Sim,
    compute_nodes: [ComputeNodeId; COMPUTE_NODES],
    endpoints: Rc<Cell<usize>>,
}

fn run<F>(tear_bytes: u64, nodes: u16, node_bytes: u64, body: F)
where
    F: AsyncFnOnce(SimCluster) + 'static,
{
    let options = SimOptions {
        tear_bytes,
        jitter_ns: 300,
        mailbox_messages: 64,
        ..SimOptions::default()
    };
    let sim = Sim::new(options);
    for _ in 0..nodes {
        let _ = sim.add_memory_node(node_bytes);
    }
    let compute_nodes = std::array::from_fn(|_| sim.add_compute_node());
    let cluster = SimCluster {
        sim: sim.clone(),
        compute_nodes,
        endpoints: Rc::new(Cell::new(0)),
    };
    sim.block_on(body(cluster));
}

impl Fixture for SimLines {
    type Cluster = SimCluster;

    fn run<F>(nodes: u16, node_bytes: u64, body: F)
    where
        F: AsyncFnOnce(SimCluster) + 'static,
    {
        run(64, nodes, node_bytes, body);
    }
}

impl Fixture for SimWords {
    type Cluster = SimCluster;

    fn run<F>(nodes: u16, node_bytes: u64, body: F)
    where
        F: AsyncFnOnce(SimCluster) + 'static,
    {
        run(8, nodes, node_bytes, body);
    }
}

impl Cluster for SimCluster {
    async fn endpoint(&self) -> Endpoint {
        let number = self.endpoints.get();
        self.endpoints.set(number + 1);
        self.sim.endpoint(self.compute_nodes[number % COMPUTE_NODES])
    }

    async fn stop_node(&self, node: NodeId) {
        self.sim.crash_node(node);
    }

    fn can_stall(&self) -> bool {
        true
    }

    async fn stall_node(&self, node: NodeId) {
        for &compute_node in &self.compute_nodes {
            self.sim.partition(compute_node, node);
        }
    }

    async fn resume_node(&self, node: NodeId) {
        for &compute_node in &self.compute_nodes {
            self.sim.heal(compute_node, node);
        }
    }
}
