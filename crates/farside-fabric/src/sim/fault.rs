//! Faults: crashes of clients and memory nodes, bad links, wrong clocks.
//!
//! On the path: a harness calls these between events, or arms a crash point beforehand. Nothing here
//! happens by itself: which fault, when and to whom is the caller's choice (and, if it draws it from
//! a seed, part of the replay). What chance decides inside a fault, such as how far the verbs of a
//! crashed client got, comes from the simulation's own seed.
//!
//! - **A client crashes**: its tasks are dropped, its mailbox is gone, its completions reach nobody.
//!   Of the operations that are on their way to a node a seeded prefix takes effect (a queue pair
//!   delivers in order), the next may be a WRITE that takes effect in part, the rest does not.
//! - **A node crashes**: what waits there fails with `NodeGone`; so does what arrives. A restarted
//!   node has a new incarnation: the queue pairs of before stay broken (see `queue_pair`).
//! - **A link is cut**: requests and replies wait, as a NIC retransmits, until it is healed. What was
//!   already on the wire arrives. Clients that must not wait have deadlines.
//!
//! Pauses are in `pause`, broken queue pairs in `queue_pair`.
//!
//! Cut off (fenced) clients are part of normal operation; the steps are here because they treat
//! operations in flight as a crash does.

use std::collections::BTreeMap;

use super::forgotten::Forgotten;
use super::operation::{Operation, State, Work};
use super::trace::{Step, TraceEntry};
use super::world::{World, endpoint_id};
use super::{ComputeNodeId, client_of};
use super::{Lulls, Sim};
use crate::addr::NodeId;
use crate::error::FabricError;
use crate::message::EndpointId;
use crate::region::Region;

/// Faults in the trace: what `result` says of an entry that is no link's or clock's.
const CRASH_CLIENT: u64 = 1;
const CRASH_NODE: u64 = 2;
const RESTART_NODE: u64 = 3;
pub(super) const PAUSE: u64 = 4;
pub(super) const RESUME: u64 = 5;
pub(super) const BREAK: u64 = 6;

/// Where a client crashes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CrashPoint {
    /// The last verb that takes effect, counted from 1 over all verbs and messages that the client
    /// has ever posted. Later ones have no effect.
    pub verb: u64,
    /// How many lines of that verb take effect (words, if memory tears at words); all if `None`.
    pub lines: Option<u32>,
}

/// What a crashed memory node keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryAfterCrash {
    /// Everything: battery-backed, or only the process died.
    Kept,
    /// Nothing: it comes back zeroed.
    Lost,
}

/// The far end of a link that starts at a compute node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Target {
    /// A memory node.
    Memory(u16),
    /// Another compute node, the one with the larger number (or the same).
    Compute(u32),
}

/// State of a link.
#[derive(Clone, Default, Debug)]
struct Path {
    is_cut: bool,
    delay_ns: u64,
    /// Operations that wait for the link to heal: whether each is a request, in order.
    held: Vec<(u32, bool)>,
}

/// Links that are not as they should be.
#[derive(Default, Debug)]
pub(super) struct Paths {
    disturbed: BTreeMap<(u32, Target), Path>,
}

impl Paths {
    #[inline]
    pub(super) fn is_disturbed(&self) -> bool {
        !self.disturbed.is_empty()
    }

    /// What the link adds to its delay, or `None` if it is cut.
    pub(super) fn delay(&self, path: (u32, Target)) -> Option<u64> {
        match self.disturbed.get(&path) {
            None => Some(0),
            Some(path) => (!path.is_cut).then_some(path.delay_ns),
        }
    }

    /// Keeps an operation until the link is healed.
    pub(super) fn hold(&mut self, path: (u32, Target), index: u32, is_request: bool) {
        self.disturbed.entry(path).or_default().held.push((index, is_request));
    }
}

/// What operations are on the way to a node: to be executed, or being executed.
fn is_under_way(operation: &Operation) -> bool {
    !operation.is_executed && operation.work.travels()
}

impl World {
    pub(super) fn record_fault(&mut self, endpoint: u32, target: u64, result: u64) {
        self.trace.record(TraceEntry {
            time_ns: self.now,
            step: Step::Fault,
            endpoint,
            kind: 0,
            target,
            result,
        });
    }

    /// The client is gone from this moment on.
    pub(super) fn crash_client_now(&mut self, index: u32) {
        let client = &mut self.clients[index as usize];
        if client.is_crashed {
            return;
        }
        client.is_crashed = true;
        client.is_paused = false;
        client.deadlines.clear();
        client.mailbox.messages.clear();
        client.mailbox.unseen.clear();
        client.mailbox.receivers.clear();
        let stalled = core::mem::take(&mut client.mailbox.stalled);
        self.record_fault(index, 0, CRASH_CLIENT);
        for operation in stalled {
            let peer = endpoint_id(index);
            self.operations[operation].error = Some(FabricError::PeerUnknown { peer });
            self.acknowledge(operation);
        }
        self.cut_short(index, None);
        for operation in self.operations.of_client(index) {
            let operation = &mut self.operations[operation];
            if operation.state == State::InFlight {
                operation.state = State::Lost;
            }
        }
        self.tasks.doom(index);
    }

    /// Decides how far the operations of a client get: per queue pair a prefix. All of a client that
    /// has crashed, or those on one queue pair that has broken.
    pub(super) fn cut_short(&mut self, client: u32, only: Option<u32>) {
        if self.stepping.is_some() {
            return; // The chooser decides.
        }
        let mut pairs: BTreeMap<u32, Vec<(u64, u32)>> = BTreeMap::new();
        for index in self.operations.of_client(client) {
            let operation = &self.operations[index];
            if is_under_way(operation) && only.is_none_or(|pair| pair == operation.pair) {
                pairs.entry(operation.unit).or_default().push((operation.number, index));
            }
        }
        for mut pair in pairs.into_values() {
            pair.sort_unstable();
            let whole = self.random_below(pair.len() as u64 + 1) as usize;
            for &(_, index) in pair.iter().skip(whole + 1) {
                self.drop_operation(index);
            }
            if let Some(&(_, index)) = pair.get(whole) {
                self.cut_operation(index);
            }
        }
    }

    /// Makes an operation take effect up to a random line.
    fn cut_operation(&mut self, index: u32) {
        let Work::Verb(verb) = self.operations[index].work else {
            return self.drop_operation(index);
        };
        let pieces = match self.operations[index].transfer.pieces {
            0 => verb.target().1.div_ceil(self.options.tear_bytes),
            pieces => u64::from(pieces),
        };
        if pieces <= 1 {
            return self.drop_operation(index);
        }
        let lines = self.random_below(pieces) as u32;
        let operation = &mut self.operations[index];
        operation.line_limit = operation.line_limit.min(lines);
        operation.transfer.limit = operation.transfer.limit.min(lines);
    }

    /// Makes an operation take no (further) effect.
    fn drop_operation(&mut self, index: u32) {
        if self.operations[index].transfer.pieces != 0 {
            self.cut_transfer(index);
        } else {
            self.operations[index].is_dropped = true;
        }
    }

    /// A dropped operation has reached the place where it would have taken effect.
    pub(super) fn lose(&mut self, index: u32) {
        let lead = self.operations[index].lead;
        if self.operations[lead].state == State::InFlight {
            let client = self.operations[lead].client;
            self.clients[client as usize].deadlines.retain(|&other| other != lead);
            self.operations[lead].state = State::Lost;
        }
        self.operations[index].is_executed = true;
        self.finish_one(index);
    }

    /// The node executes nothing more of a client, not even what it has begun.
    pub(super) fn cut_off(&mut self, peer: u32, node: u16) {
        self.nodes[node as usize].fenced.insert(peer);
        let error = FabricError::Fenced {
            node: NodeId::new(node),
        };
        self.interrupt(self.nodes[node as usize].nic, Some(peer), error);
    }

    fn crash_node_now(&mut self, id: NodeId) {
        let node = &mut self.nodes[id.index()];
        if !node.is_alive {
            return;
        }
        node.is_alive = false;
        node.incarnation += 1;
        let nic = node.nic;
        self.drain_units(nic, id);
        self.drain_steps(nic, id);
        self.interrupt(nic, None, FabricError::NodeGone { node: id });
        self.record_fault(0, id.index() as u64, CRASH_NODE);
    }

    fn disturb(&mut self, path: (u32, Target), change: impl FnOnce(&mut Path)) {
        let mut state = self.paths.disturbed.remove(&path).unwrap_or_default();
        change(&mut state);
        self.record_fault(path.0, u64::from(state.is_cut), state.delay_ns);
        let held = if state.is_cut {
            Vec::new()
        } else {
            core::mem::take(&mut state.held)
        };
        if state.is_cut || state.delay_ns != 0 {
            self.paths.disturbed.insert(path, state);
        }
        for (index, is_request) in held {
            let now = self.now;
            if self.stepping.is_some() {
                if is_request {
                    self.arrive_to_wait(index);
                } else {
                    self.answer(index);
                }
            } else if is_request {
                self.send_request(index, self.operations[index].pair, now);
            } else {
                self.send_reply(index, now);
            }
        }
    }
}

fn peers(a: ComputeNodeId, b: ComputeNodeId) -> (u32, Target) {
    (a.0.min(b.0), Target::Compute(a.0.max(b.0)))
}

fn link(compute_node: ComputeNodeId, node: NodeId) -> (u32, Target) {
    (compute_node.0, Target::Memory(node.index() as u16))
}

/// Injecting faults. All of them take effect at the present simulated time.
impl Sim {
    /// Crashes a client: its tasks are dropped; how many of its verbs in flight take effect is the
    /// seed's choice.
    pub fn crash_client(&self, endpoint: EndpointId) {
        let doomed = {
            let mut world = self.shared.world();
            world.crash_client_now(client_of(endpoint));
            core::mem::take(&mut world.tasks.doomed)
        };
        drop(doomed);
    }

    /// How many verbs and messages a client has posted: the number of the last.
    #[must_use]
    pub fn verbs_posted(&self, endpoint: EndpointId) -> u64 {
        self.shared.world().clients[client_of(endpoint) as usize].verbs_posted
    }

    /// Lets a client crash when the verb that `point` names has taken effect.
    ///
    /// # Panics
    /// If the client has already posted that verb.
    pub fn crash_client_at(&self, endpoint: EndpointId, point: CrashPoint) {
        let mut world = self.shared.world();
        let client = &mut world.clients[client_of(endpoint) as usize];
        assert!(
            point.verb > client.verbs_posted,
            "the crash point lies ahead of the client"
        );
        client.crash_point = Some(point);
    }

    /// Whether a client has crashed.
    #[must_use]
    pub fn is_crashed(&self, endpoint: EndpointId) -> bool {
        self.shared.world().clients[client_of(endpoint) as usize].is_crashed
    }

    /// Whether the client was cut off from a memory node.
    #[must_use]
    pub fn is_fenced(&self, endpoint: EndpointId) -> bool {
        let client = client_of(endpoint);
        self.shared
            .world()
            .nodes
            .iter()
            .any(|node| node.fenced.contains(&client))
    }

    /// Crashes a memory node. Operations there fail with `NodeGone`, as do later ones.
    pub fn crash_node(&self, node: NodeId) {
        self.shared.world().crash_node_now(node);
    }

    /// Brings a crashed memory node back. The queue pairs of before stay broken: a client reaches it
    /// again after [`Endpoint::reconnect`](super::Endpoint::reconnect). Those that it cut off remain
    /// cut off. If its memory is lost, [`Sim::region`] has to be asked
    /// again: earlier handles show the old memory.
    ///
    /// # Panics
    /// If the node has not crashed, or there is no memory for it.
    pub fn restart_node(&self, id: NodeId, memory: MemoryAfterCrash) {
        let mut world = self.shared.world();
        let node = &mut world.nodes[id.index()];
        assert!(!node.is_alive, "only a crashed node is restarted");
        node.is_alive = true;
        if memory == MemoryAfterCrash::Lost {
            node.region = Region::anonymous(node.region.bytes()).expect("memory for a node that had as much before");
            node.forgotten = Forgotten::default();
            #[cfg(feature = "mutants")]
            world.grace.begin_anew();
        }
        world.record_fault(0, id.index() as u64, RESTART_NODE);
    }

    /// Cuts the link between a compute node and a memory node.
    pub fn partition(&self, compute_node: ComputeNodeId, node: NodeId) {
        self.shared
            .world()
            .disturb(link(compute_node, node), |path| path.is_cut = true);
    }

    /// Heals that link: what waited is sent now, in order.
    pub fn heal(&self, compute_node: ComputeNodeId, node: NodeId) {
        self.shared
            .world()
            .disturb(link(compute_node, node), |path| path.is_cut = false);
    }

    /// Adds a delay, in nanoseconds, to each direction of that link; 0 ends it.
    pub fn delay(&self, compute_node: ComputeNodeId, node: NodeId, delay_ns: u64) {
        self.shared
            .world()
            .disturb(link(compute_node, node), |path| path.delay_ns = delay_ns);
    }

    /// Cuts the link between two compute nodes.
    pub fn partition_peers(&self, a: ComputeNodeId, b: ComputeNodeId) {
        self.shared.world().disturb(peers(a, b), |path| path.is_cut = true);
    }

    /// Heals that link.
    pub fn heal_peers(&self, a: ComputeNodeId, b: ComputeNodeId) {
        self.shared.world().disturb(peers(a, b), |path| path.is_cut = false);
    }

    /// Adds a delay, in nanoseconds, to messages between two compute nodes; 0 ends it.
    pub fn delay_peers(&self, a: ComputeNodeId, b: ComputeNodeId, delay_ns: u64) {
        self.shared
            .world()
            .disturb(peers(a, b), |path| path.delay_ns = delay_ns);
    }

    /// From now on requests are held back by chance like this.
    pub fn set_lulls(&self, lulls: Lulls) {
        self.shared.world().options.lulls = lulls;
    }

    /// From now on the clock of a compute node is `skew_ns` off simulated time, and gains
    /// `drift_ppb` nanoseconds per second. A step back is not made.
    ///
    /// # Panics
    /// If the clock would stand still or go back.
    pub fn set_clock(&self, compute_node: ComputeNodeId, skew_ns: i64, drift_ppb: i64) {
        let mut world = self.shared.world();
        let now = world.now;
        let clock = &mut world.compute_nodes[compute_node.0 as usize].clock;
        clock.set(now, skew_ns, drift_ppb);
        world.record_fault(compute_node.0, skew_ns as u64, drift_ppb as u64);
        world.reset_deadlines(compute_node.0);
    }
}
