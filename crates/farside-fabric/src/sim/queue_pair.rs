//! Queue pairs: making them, breaking them, connecting them anew.
//!
//! On the path: each client has one to every memory node, and one to every peer that it sends to. It
//! is connected to one run (incarnation) of its node; each operation carries that of its queue pair,
//! and a node refuses what was meant for another run. So a restart breaks every queue pair to the
//! node, and a queue pair in the error state is one that is connected to no run at all.
//!
//! When a queue pair breaks:
//!  1. of the operations on their way a seeded prefix takes effect (a queue pair delivers in order),
//!     the next may be a WRITE that takes effect in part, the rest does not;
//!  2. every batch that has an operation on it and is not done fails at once, also if its
//!     operations take effect later, and also if others of them go elsewhere;
//!  3. what is posted to it later is flushed by the client's own NIC, link or no link.
//!
//! To connect anew, the client sends a request on the same way, behind what still is on it: when the
//! node has answered, nothing that was posted before takes effect any more.

use core::pin::Pin;

use super::client::{BROKEN, QueuePair};
use super::endpoint::{Endpoint, land};
use super::operation::{State, Work};
use super::world::World;
use super::{Sim, client_of, fault};
use crate::addr::NodeId;
use crate::backend::Backend as _;
use crate::buffer::Memory;
use crate::clock::Deadline;
use crate::error::FabricError;
use crate::message::EndpointId;

impl World {
    /// The client's queue pair to a memory node, connected at first use.
    #[inline]
    pub(super) fn queue_pair(&mut self, client: u32, node: usize) -> u32 {
        match self.clients[client as usize].queue_pairs.get(node) {
            Some(&pair) => pair,
            None => {
                self.connect(client);
                self.clients[client as usize].queue_pairs[node]
            }
        }
    }

    /// Connects a client to every memory node that it has no queue pair to.
    pub(super) fn connect(&mut self, client: u32) {
        for index in self.clients[client as usize].queue_pairs.len()..self.nodes.len() {
            let node = &self.nodes[index];
            let incarnation = if node.is_alive { node.incarnation } else { BROKEN };
            let pair = self.new_queue_pair(node.nic, incarnation);
            self.clients[client as usize].queue_pairs.push(pair);
        }
    }

    fn new_queue_pair(&mut self, nic_index: u16, incarnation: u32) -> u32 {
        self.pairs.push(QueuePair {
            unit: self.nics[nic_index as usize].next_unit(),
            nic: nic_index,
            incarnation,
            last_arrival: 0,
            last_completion: 0,
        });
        self.pairs.len() as u32 - 1
    }

    /// The queue pair from one client to another, made at first use.
    pub(super) fn peer_pair(&mut self, client: u32, peer: u32) -> u32 {
        if let Some(&pair) = self.peer_pairs.get(&(client, peer)) {
            return pair;
        }
        let peer_node = self.clients[peer as usize].compute_node;
        let pair = self.new_queue_pair(self.compute_nodes[peer_node as usize].nic, 0);
        self.peer_pairs.insert((client, peer), pair);
        pair
    }

    fn break_pair(&mut self, client: u32, node: NodeId) {
        let pair = self.queue_pair(client, node.index());
        if self.clients[client as usize].is_crashed || self.pairs[pair as usize].incarnation == BROKEN {
            return;
        }
        self.pairs[pair as usize].incarnation = BROKEN;
        self.record_fault(client, node.index() as u64, fault::BREAK);
        self.cut_short(client, Some(pair));
        let mut is_fatal = false;
        for index in self.operations.of_client(client) {
            let operation = &self.operations[index];
            if operation.pair != pair || !matches!(operation.work, Work::Verb(_) | Work::Fence { .. } | Work::Connect) {
                continue;
            }
            is_fatal |= operation.is_fatal && operation.is_dropped;
            let lead = operation.lead;
            if self.operations[lead].state == State::InFlight && !self.operations[lead].is_abandoned {
                if self.operations[lead].deadline != Deadline::NEVER {
                    self.unwatch_deadline(lead);
                }
                self.operations[lead].error = Some(FabricError::NodeGone { node });
                self.settle(lead, State::Failed);
            }
        }
        if is_fatal {
            // The verb at which it was to crash will have no effect to crash after.
            self.crash_client_now(client);
        }
    }

    /// An operation on a queue pair that is in the error state while its link is cut: it is not sent.
    #[cold]
    pub(super) fn flush(&mut self, index: u32) {
        let node = self.nics[self.operations[index].nic as usize].node;
        let node = NodeId::new(node.expect("queue pairs between clients do not break"));
        self.fail_gone(index, node);
    }
}

impl Endpoint {
    /// Connects to a node anew after the queue pair to it has broken or the node has restarted. Does
    /// nothing while it is connected. What was in flight when it broke has failed and is not sent
    /// again.
    ///
    /// # Errors
    /// [`FabricError::NodeGone`] while the node is down, or if its link stays cut for as long as a NIC
    /// tries ([`SimOptions::retry_timeout_ns`](super::SimOptions::retry_timeout_ns));
    /// [`FabricError::Fenced`], now and ever after, if this client was cut off;
    /// [`FabricError::NodeUnknown`].
    pub async fn reconnect(&self, node: NodeId) -> Result<(), FabricError> {
        let (shared, client) = self.parts();
        let retry_timeout_ns = shared.world().options.retry_timeout_ns;
        let deadline = Deadline(self.now_ns().saturating_add(retry_timeout_ns));
        let (pair, incarnation, mut flight) = {
            let mut world = shared.world();
            if node.index() >= world.nodes.len() {
                return Err(FabricError::NodeUnknown { node });
            }
            let pair = world.queue_pair(client, node.index());
            let incarnation = world.nodes[node.index()].incarnation;
            if world.pairs[pair as usize].incarnation == incarnation {
                return Ok(());
            }
            let lead = world.prepare_connect(client, node.index());
            let flight = self.flight(lead);
            world.post(lead, Memory::default(), deadline);
            (pair, incarnation, flight)
        };
        Pin::new(&mut flight).await;
        match land(&mut flight, None, None) {
            Ok(_) => {
                shared.world().pairs[pair as usize].incarnation = incarnation;
                Ok(())
            }
            Err(FabricError::DeadlineExceeded { node }) => Err(FabricError::NodeGone { node }),
            Err(error) => Err(error),
        }
    }
}

impl Sim {
    /// Breaks the queue pair of a client to a memory node: of its verbs in flight a seeded prefix takes
    /// effect (the next may be a WRITE that does in part), and all that have not completed fail with
    /// [`FabricError::NodeGone`], as do later ones until [`Endpoint::reconnect`]. Nothing happens to
    /// the node, to other clients or to messages. Does nothing to a queue pair that is broken.
    ///
    /// # Panics
    /// If there is no such client or node.
    pub fn break_queue_pair(&self, endpoint: EndpointId, node: NodeId) {
        let doomed = {
            let mut world = self.shared.world();
            assert!(node.index() < world.nodes.len(), "{node} is part of the simulation");
            world.break_pair(client_of(endpoint), node);
            core::mem::take(&mut world.tasks.doomed)
        };
        drop(doomed);
    }
}
