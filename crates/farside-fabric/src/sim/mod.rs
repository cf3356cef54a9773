//! The simulated fabric: memory nodes, NICs, links and clients in one process, on one thread.
//!
//! On the path: tests, the fault harness and the figures run the real protocols over this backend.
//! It reproduces why one-sided protocols collapse (see `nic`), and whatever hardware may reorder or
//! tear is reordered and torn here. One seed decides everything: the same configuration and seed
//! give the same trace, byte for byte ([`Sim::trace_hash`]).
//!
//! Time is in nanoseconds and passes only between events: computation is free unless a client says
//! what it costs ([`Endpoint::compute`](crate::Endpoint::compute)).
//!
//! ```
//! use farside_fabric::sim::{Sim, SimOptions};
//! use farside_fabric::{OpContext, RemoteAddr};
//!
//! let sim = Sim::new(SimOptions::default());
//! let node = sim.add_memory_node(4096);
//! let endpoint = sim.endpoint(sim.add_compute_node());
//! let mut op = OpContext::new(endpoint);
//! let old = sim.block_on(async { op.fetch_add(RemoteAddr::new(node, 8), 5).await });
//! assert_eq!(old, Ok(0));
//! ```
//!
//! # Parts
//! `scheduler` runs tasks and events from `queue`; `world` carries an `operation` from its `client`
//! over the `link`s to a `nic`, and on to `memory` or a `mailbox`, until its `deadline`; `fault`,
//! `pause` and `queue_pair` break things; `tear` and `forgotten` notice who reads what it must not rely
//! on; `stepping` and `explore` let a test choose every order of requests; `trace` and `statistics`
//! say what happened; `profile` says what it costs.

mod address_lock;
mod client;
mod deadline;
mod endpoint;
mod explore;
mod fault;
mod forgotten;
#[cfg(feature = "mutants")]
mod grace;
mod journal;
mod link;
mod mailbox;
mod memory;
mod nic;
mod operation;
mod operation_queue;
mod pause;
mod profile;
mod queue;
mod queue_pair;
mod rivals;
mod scheduler;
mod statistics;
mod stepping;
mod strike;
mod tear;
mod trace;
mod world;

use core::future::Future;
use std::rc::Rc;

use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use client::{Client, ComputeNode, Core, NodeClock};
use memory::MemoryNode;
use operation::NONE;
use scheduler::Shared;
use world::World;

pub use endpoint::Endpoint;
pub(crate) use endpoint::InFlight;
pub use explore::{Choices, Explored, explore, replay};
pub use fault::{CrashPoint, MemoryAfterCrash};
pub use link::{PACKET_HEADER_BYTES, PACKET_PAYLOAD_BYTES};
pub use profile::Profile;
pub use statistics::NodeStatistics;
pub use stepping::{Candidate, Chooser, Request};
pub use strike::Blow;
pub use trace::{Step, TraceEntry};

use crate::addr::NodeId;
use crate::capabilities::Capabilities;
use crate::message::EndpointId;
use crate::region::Region;

/// The date of simulated time 0: 1 January 2025, 00:00 UTC.
pub const UNIX_MS_AT_START: u64 = 1_735_689_600_000;

/// Requests that are held back on their wire, by chance: who waits for the answer stands still between two steps of a protocol
/// while others go through all of theirs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Lulls {
    /// One request in so many; none if 0.
    pub one_in: u64,
    /// For up to so long, in nanoseconds.
    pub ns_max: u64,
    /// Which requests.
    pub aim: LullAim,
}

/// Which requests are held back.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum LullAim {
    /// Any.
    #[default]
    Anybody,
    /// The next one of whoever has written what somebody else reads soon afterwards: the other acts on half a change.
    Writers,
    /// All of a client for a while: clients have paces, from quick to an eighth of the longest time for each request, and
    /// one request in so many lets its client take another pace (priorities that change at few points, after Burckhardt et al.,
    /// ASPLOS 2010).
    Paces,
    /// None is; but a READ or WRITE of several lines touches them one after the other for up to a quarter of the longest time.
    Lines,
}

/// How a simulation is set up.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// Decides everything that chance decides.
    pub seed: u64,
    /// What NICs, wires and cores cost.
    pub profile: Profile,
    /// Where memory tears: 64, as NICs touch it line by line, or 8, as mapped memory may.
    pub tear_bytes: u64,
    /// Each request is delayed on its wire by a random time up to this. 0 makes latencies exact;
    /// anything else makes every seed another interleaving.
    pub jitter_ns: u64,
    /// And some for longer.
    pub lulls: Lulls,
    /// Whether a client that was not crashed cannot be cut off, as one that maps the memory.
    pub is_mapped: bool,
    /// How many messages wait in a mailbox before senders have to.
    pub mailbox_messages: usize,
    /// After how long a client's NIC gives up on a node that is gone.
    pub retry_timeout_ns: u64,
    /// How many entries of the trace are kept in full.
    pub trace_entries: usize,
    /// Whether each line of a long READ or WRITE is a step of its own while a chooser is set
    /// ([`Sim::set_chooser`]); first to last. Otherwise a verb is one step.
    pub steps_by_line: bool,
    /// How long a step takes that a chooser decides; if 0, time stands still as long as anybody has something to do.
    pub step_ns: u64,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            seed: 1,
            profile: Profile::plain(),
            tear_bytes: 64,
            jitter_ns: 0,
            lulls: Lulls::default(),
            is_mapped: false,
            mailbox_messages: 1024,
            retry_timeout_ns: 1_000_000,
            trace_entries: 0,
            steps_by_line: false,
            step_ns: 0,
        }
    }
}

impl SimOptions {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            masked_atomics: self.profile.has_masked_atomics,
            // The memory behind the simulation must be able to do it, too.
            wide_atomics: self.profile.has_wide_atomics && Region::capabilities().wide_atomics,
        }
    }
}

/// A compute node of a simulation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ComputeNodeId(u32);

/// A simulation. Clones are the same one; when the last is dropped, its tasks are. (So a task that
/// keeps a clone forever keeps the simulation: let such a task end.)
#[derive(Clone)]
pub struct Sim {
    shared: Rc<Shared>,
    _owner: Rc<Owner>,
}

/// Breaks the circle of tasks that hold endpoints that hold the tasks.
struct Owner {
    shared: Rc<Shared>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        // What a task held may be given back by another one. Ends: that one has not begun, and holds nothing.
        loop {
            let bodies = self.shared.world().tasks.take_all();
            if bodies.is_empty() {
                break;
            }
            drop(bodies);
        }
    }
}

impl core::fmt::Debug for Sim {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let world = self.shared.world();
        write!(f, "simulation of seed {} at {} ns", world.options.seed, world.now)
    }
}

/// The number of a client; one that does not exist for [`EndpointId`]s of elsewhere.
fn client_of(endpoint: EndpointId) -> u32 {
    u32::try_from(endpoint.0.wrapping_sub(1)).unwrap_or(NONE)
}

impl Sim {
    /// An empty simulation at time 0.
    ///
    /// # Panics
    /// If an option makes no sense: see [`SimOptions`].
    #[must_use]
    pub fn new(options: SimOptions) -> Self {
        let shared = Rc::new(Shared::new(World::new(options)));
        let owner = Owner {
            shared: Rc::clone(&shared),
        };
        Self {
            shared,
            _owner: Rc::new(owner),
        }
    }

    /// Adds a memory node of zeroed memory. Memory that is never touched costs nothing.
    ///
    /// # Panics
    /// If the system has not that much address space to give.
    #[must_use]
    pub fn add_memory_node(&self, bytes: u64) -> NodeId {
        let chip_bytes = self.shared.world().options.profile.chip_bytes;
        self.add_memory_node_with(Region::anonymous(bytes + chip_bytes).expect("address space for a simulated node"))
    }

    /// Adds a memory node with this memory, of which the NIC's own is the last part.
    #[must_use]
    pub fn add_memory_node_with(&self, region: Region) -> NodeId {
        let mut world = self.shared.world();
        let index = world.nodes.len() as u16;
        let id = NodeId::new(index);
        let nic = world.add_nic(Some(index));
        world.nodes.push(MemoryNode::new(region, nic));
        id
    }

    /// The memory of a node, to be filled or checked directly: no simulated time passes.
    #[must_use]
    pub fn region(&self, node: NodeId) -> Region {
        self.shared.world().nodes[node.index()].region.clone()
    }

    /// Notes what verbs change from now on, for [`Sim::undo_changes`]. Bytes that are changed through [`Sim::region`] are not
    /// noted.
    pub fn keep_changes(&self, node: NodeId) {
        self.shared.world().nodes[node.index()].journal.begin();
    }

    /// Makes a node's memory what it was at [`Sim::keep_changes`]: another simulation may begin with it. This one has ended.
    pub fn undo_changes(&self, node: NodeId) {
        let node = &mut self.shared.world().nodes[node.index()];
        node.journal.undo(&node.region);
    }

    /// Adds a compute node with its own clock and port, and a core for each of its clients.
    #[must_use]
    pub fn add_compute_node(&self) -> ComputeNodeId {
        self.new_compute_node(None)
    }

    /// Adds a compute node of `cores` cores; its clients share them, round robin.
    ///
    /// # Panics
    /// If `cores` is 0.
    #[must_use]
    pub fn add_compute_node_with_cores(&self, cores: u32) -> ComputeNodeId {
        assert!(cores > 0, "a compute node has at least one core");
        self.new_compute_node(Some(cores))
    }

    fn new_compute_node(&self, cores: Option<u32>) -> ComputeNodeId {
        let mut world = self.shared.world();
        let nic = world.add_nic(None);
        let first_core = world.cores.len() as u32;
        let cores = cores.map(|count| {
            world
                .cores
                .extend(core::iter::repeat_n(Core::default(), count as usize));
            (first_core, count)
        });
        world.compute_nodes.push(ComputeNode {
            nic,
            clock: NodeClock::default(),
            cores,
            clients: 0,
        });
        ComputeNodeId(world.compute_nodes.len() as u32 - 1)
    }

    /// A new client on a compute node, with a queue pair to every memory node.
    #[must_use]
    pub fn endpoint(&self, compute_node: ComputeNodeId) -> crate::Endpoint {
        let mut world = self.shared.world();
        let index = world.clients.len() as u32;
        let node = &mut world.compute_nodes[compute_node.0 as usize];
        let core = node.cores.map(|(first, count)| first + node.clients % count);
        node.clients += 1;
        let core = core.unwrap_or_else(|| {
            world.cores.push(Core::default());
            world.cores.len() as u32 - 1
        });
        world.clients.push(Client::new(compute_node.0, core));
        world.connect(index);
        // Its own stream: what one client draws does not move another's numbers.
        let seed = world.options.seed ^ (u64::from(index) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        drop(world);
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Endpoint::new(Rc::clone(&self.shared), index, random).into()
    }

    /// A new client that knows the first `count` memory nodes only, until it attaches others
    /// ([`Endpoint::attach`](crate::Endpoint::attach)). A simulation of such clients has at most 64 nodes.
    #[must_use]
    pub fn endpoint_to(&self, compute_node: ComputeNodeId, count: u32) -> crate::Endpoint {
        let endpoint = self.endpoint(compute_node);
        endpoint
            .simulated()
            .expect("endpoints of a simulation are simulated")
            .limit_reach(count);
        endpoint
    }

    /// Starts a task that belongs to no client, such as a fault schedule. It ends with the
    /// simulation.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let task = Box::pin(task);
        // Tasks of nobody are never refused.
        let _ = self.shared.world().spawn(task, NONE);
    }

    /// Runs until `time_ns`, that nanosecond included.
    ///
    /// # Panics
    /// If a task of the simulation calls it.
    pub fn run_until(&self, time_ns: u64) {
        self.shared.run_until(time_ns);
    }

    /// Runs until nothing is left to happen.
    ///
    /// # Panics
    /// If a task of the simulation calls it.
    pub fn run_until_idle(&self) {
        self.shared.run_until(u64::MAX);
    }

    /// Runs until `future` is ready.
    ///
    /// # Panics
    /// If nothing is left that could wake it, or a task of the simulation calls it.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.try_block_on(future).unwrap_or_else(|| {
            let (seed, now) = (self.seed(), self.now_ns());
            panic!("deadlock at {now} ns with seed {seed}: nothing is left that could wake the future")
        })
    }

    /// Runs until `future` is ready, or until nothing is left that could wake it: then `None`.
    ///
    /// # Panics
    /// If a task of the simulation calls it.
    pub fn try_block_on<F: Future>(&self, future: F) -> Option<F::Output> {
        self.shared.block_on(future)
    }

    /// Simulated nanoseconds since the start.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.shared.world().now
    }

    /// The seed.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.shared.world().options.seed
    }

    /// The profile.
    #[must_use]
    pub fn profile(&self) -> Profile {
        self.shared.world().options.profile.clone()
    }

    /// Everything that has happened, as one number.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.shared.world().trace.hash()
    }

    /// The last entries of the trace, oldest first; as many as the options keep.
    #[must_use]
    pub fn trace_tail(&self) -> Vec<TraceEntry> {
        self.shared.world().trace.last().copied().collect()
    }

    /// How many verbs and messages NICs have executed.
    #[must_use]
    pub fn verbs_executed(&self) -> u64 {
        self.shared.world().executed
    }

    /// How many operations and waits are under way.
    #[must_use]
    pub fn operations_in_flight(&self) -> usize {
        self.shared.world().operations.count()
    }

    /// How many of them wait for a message, without a verb under way.
    #[must_use]
    pub fn receives_in_flight(&self) -> usize {
        let world = self.shared.world();
        world.clients.iter().map(|client| client.mailbox.receivers.len()).sum()
    }

    /// What the NIC of a memory node did.
    #[must_use]
    pub fn statistics(&self, node: NodeId) -> NodeStatistics {
        let world = self.shared.world();
        world.nics[world.nodes[node.index()].nic as usize].statistics
    }
}
