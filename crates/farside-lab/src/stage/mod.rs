//! Where a program runs: on simulated machines or on threads of this one.

pub mod machine;
pub mod simulated;

use core::any::Any;
use std::rc::Rc;

use farside_fabric::rdma::DeviceOptions;
use farside_fabric::region::Region;
use farside_fabric::sim::Profile;

use crate::driver::Effort;
use crate::error::BenchError;
use crate::program::{Laid, Program};
use crate::progress::Progress;
use crate::recorder::Recorder;

/// Which fabric.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FabricKind {
    /// Simulated NICs, and simulated time.
    Sim,
    /// Mapped memory.
    Shm,
    /// A memory node in a thread of its own, over loopback.
    Tcp,
    /// The same with a backup in another thread: a change is done when both have it.
    Mirrored,
    /// A memory node whose memory the machine's RDMA device serves, to itself.
    Rdma,
}

impl FabricKind {
    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sim => "sim",
            Self::Shm => "shm",
            Self::Tcp => "tcp",
            Self::Mirrored => "mirrored",
            Self::Rdma => "rdma",
        }
    }
}

/// How many clients run where, and for how long.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Which fabric.
    pub fabric: FabricKind,
    /// The NICs of a simulation.
    pub profile: Profile,
    /// How many clients there are.
    pub clients: u64,
    /// Over how many compute nodes they are spread, or threads on a real fabric.
    pub compute_nodes: u64,
    /// How long is measured, in nanoseconds.
    pub duration_ns: u64,
    /// How long runs before that; half as long as is measured, if it is not said.
    pub warm_up_ns: Option<u64>,
    /// What else is so in a simulation.
    pub conditions: Conditions,
    /// The device of `rdma`.
    pub device: DeviceOptions,
    /// Decides workload and simulation.
    pub seed: u64,
}

/// What is not as it should be in a simulation, and what is looked at therefore.
#[derive(Clone, Default, Debug)]
pub struct Conditions {
    /// How many clients share a core of their compute node, as coroutines do; 0 if each has its own.
    pub clients_per_core: u64,
    /// How long a client's core computes for an operation, beside what posting takes: to hash keys, to go from one coroutine to the
    /// other. In nanoseconds.
    pub compute_ns: u64,
    /// How much longer messages between compute nodes take than the profile says, each way.
    pub peer_delay_ns: u64,
    /// What happens when, in nanoseconds since the time that counts began; in order.
    pub faults: Vec<(u64, Fault)>,
    /// Into how many parts the time that counts is cut, to tell what happened in each.
    pub slots: u64,
}

impl Conditions {
    /// Whether the clients of a compute node die.
    fn kills(&self, compute_node: u64) -> bool {
        let dies = Fault::ComputeNodeDies(compute_node);
        self.faults.iter().any(|&(_, fault)| fault == dies)
    }
}

/// What can happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The clients of a compute node die.
    ComputeNodeDies(u64),
    /// Nobody reaches the memory node any more; what is posted waits.
    MemoryNodeLeaves,
    /// The memory node is back, with its memory as it was.
    MemoryNodeReturns,
    /// Other keys than before are popular from now on.
    HotSetMoves,
}

impl Setting {
    /// What runs before anything counts, in nanoseconds: queues have to fill up.
    fn before_ns(&self, is_finite: bool) -> u64 {
        match self.warm_up_ns {
            _ if is_finite => 0,
            Some(warm_up_ns) => warm_up_ns,
            None => self.duration_ns / 2,
        }
    }

    /// Over which compute node client `client` runs: as evenly as can be, neighbours together.
    pub(crate) fn compute_node_of(&self, client: u64) -> u64 {
        client * self.compute_nodes / self.clients
    }

    /// How many clients a compute node has.
    fn clients_on(&self, compute_node: u64) -> u64 {
        let clients = 0..self.clients;
        clients
            .filter(|&client| self.compute_node_of(client) == compute_node)
            .count() as u64
    }

    /// Refuses settings that make no sense.
    ///
    /// # Errors
    /// [`BenchError::Argument`].
    pub fn check(&self) -> Result<(), BenchError> {
        const CLIENTS_MAX: u64 = 60_000;
        if self.clients == 0 || self.clients > CLIENTS_MAX {
            return Err(BenchError::argument(format!(
                "--clients is a number from 1 to {CLIENTS_MAX}"
            )));
        }
        if self.compute_nodes == 0 || self.compute_nodes > self.clients {
            return Err(BenchError::argument("--cns is a number from 1 to that of the clients"));
        }
        if self.fabric != FabricKind::Rdma && self.device != DeviceOptions::default() {
            return Err(BenchError::argument(
                "--rdma-device and its like choose the device of --fabric rdma: give that too",
            ));
        }
        Ok(())
    }
}

/// What came out.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What the clients did.
    pub recorder: Recorder,
    /// What they posted while it counted, and how often they tried again.
    pub effort: Effort,
    /// What each memory node executed while it counted: verbs and atomics.
    pub nodes: Vec<NodeLoad>,
    /// What was seen while the memory was made ready.
    pub laid: Laid,
    /// Bytes in use at the memory node, if the program knows.
    pub memory_bytes: Option<u64>,
    /// What only a simulation has.
    pub simulation: Option<Simulation>,
}

/// What a memory node executed.
#[derive(Clone, Copy, Debug)]
pub struct NodeLoad {
    /// Verbs of every kind.
    pub verbs: u64,
    /// Atomics among them.
    pub atomics: u64,
}

/// What only a simulation has.
#[derive(Clone, Copy, Debug)]
pub struct Simulation {
    /// Simulated verbs per second of real time, while it counted.
    pub verbs_per_wall_s: f64,
    /// See [`farside_fabric::sim::Sim::trace_hash`].
    pub trace_hash: u64,
}

/// Memory as a program has made it ready, for simulated runs to begin with.
#[derive(Debug)]
pub struct Prepared {
    layout: String,
    region: Region,
    laid: Laid,
    /// What a compute node has learned of it, by the name of that.
    known: Option<(String, Rc<dyn Any>)>,
}

/// Runs a program. `memory` may hold what an earlier simulated run has begun with, which need not be made ready again if
/// this one begins with the same; it is left there for the next, as it was.
///
/// # Errors
/// The first error of a client, or what keeps the run from starting.
pub fn run<P: Program>(
    program: &P,
    setting: &Setting,
    memory: &mut Option<Prepared>,
    progress: &Progress,
) -> Result<Outcome, BenchError> {
    setting.check()?;
    match setting.fabric {
        FabricKind::Sim => simulated::run(program, setting, memory, progress),
        _ => machine::run(program, setting, progress),
    }
}
