//! The suite on the simulator.

use std::cell::Cell;
use std::future::ready;
use std::rc::Rc;

use farside_fabric::sim::{ComputeNodeId, Sim, SimOptions};
use farside_fabric::{Endpoint, LocalFuture, NodeId};

use super::fixture::{Body, Fixture, Nodes};

/// The simulator as NICs behave: torn at lines, requests delayed at random.
pub(crate) struct SimLines;

/// The simulator as strict as the contract allows: torn at words.
pub(crate) struct SimWords;

/// Clients are spread over this many compute nodes.
const COMPUTE_NODES: usize = 2;

struct SimCluster {
    sim: Sim,
    compute_nodes: [ComputeNodeId; COMPUTE_NODES],
    endpoints: Cell<usize>,
}

fn run(tear_bytes: u64, nodes: u16, node_bytes: u64, body: Body) {
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
        endpoints: Cell::new(0),
    };
    sim.block_on(body(Rc::new(cluster)));
}

impl Fixture for SimLines {
    fn run(nodes: u16, node_bytes: u64, body: Body) {
        run(64, nodes, node_bytes, body);
    }
}

impl Fixture for SimWords {
    fn run(nodes: u16, node_bytes: u64, body: Body) {
        run(8, nodes, node_bytes, body);
    }
}

impl Nodes for SimCluster {
    fn endpoint(&self) -> LocalFuture<'_, Endpoint> {
        let number = self.endpoints.get();
        self.endpoints.set(number + 1);
        let endpoint = self.sim.endpoint(self.compute_nodes[number % COMPUTE_NODES]);
        Box::pin(ready(endpoint))
    }

    fn stop_node(&self, node: NodeId) {
        self.sim.crash_node(node);
    }

    fn can_stall(&self) -> bool {
        true
    }

    fn stall_node(&self, node: NodeId) {
        for &compute_node in &self.compute_nodes {
            self.sim.partition(compute_node, node);
        }
    }

    fn resume_node(&self, node: NodeId) {
        for &compute_node in &self.compute_nodes {
            self.sim.heal(compute_node, node);
        }
    }
}
