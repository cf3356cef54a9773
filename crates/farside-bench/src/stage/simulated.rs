//! A program on simulated machines: one memory node, and clients each on a core of its own.
//!
//! Queue pairs are numbered in the order of the clients, so that each unit of the memory node's NIC
//! has the same number of clients, give or take one. What a compute node does beside its clients
//! (leases, epochs) goes through an endpoint of its own, so the clients' counters are theirs alone.

use core::cell::{Cell, RefCell};
use std::rc::Rc;

use farside_fabric::host::HostClock;
use farside_fabric::region::Region;
use farside_fabric::sim::{Endpoint, NodeStatistics, Sim, SimOptions};
use farside_fabric::{Messages, NodeId, OpContext, Spawn};

use super::{Fault, NodeLoad, Outcome, Setting, Simulation};
use crate::driver::{Effort, Meter, drive};
use crate::error::BenchError;
use crate::program::Program;
use crate::progress::Progress;
use crate::recorder::{Recorder, Window};

/// In how many pieces the measured time is run, for the bar and to notice errors early.
const SLICES: u64 = 50;
/// The piece of a program that ends by itself.
const SLICE_NS: u64 = 1_000_000;

/// See [`super::run`].
///
/// # Errors
/// Likewise.
pub(super) fn run<P: Program>(
    program: &P,
    setting: &Setting,
    memory: &mut Option<Region>,
    progress: &Progress,
) -> Result<Outcome, BenchError> {
    let region = blank_memory(memory, program.memory_bytes())?;
    let sim = Sim::new(SimOptions {
        seed: setting.seed,
        profile: setting.profile.clone(),
        ..SimOptions::default()
    });
    let node = sim.add_memory_node_with(region.clone());
    let compute_nodes: Vec<_> = (0..setting.compute_nodes).map(|_| sim.add_compute_node()).collect();
    let conditions = &setting.conditions;
    if conditions.peer_delay_ns > 0 {
        for (index, &a) in compute_nodes.iter().enumerate() {
            for &b in &compute_nodes[index + 1..] {
                sim.delay_peers(a, b, conditions.peer_delay_ns);
            }
        }
    }
    let compute_node_of = |client| compute_nodes[setting.compute_node_of(client) as usize];
    let endpoints: Vec<Endpoint> = (0..setting.clients)
        .map(|client| sim.endpoint(compute_node_of(client)))
        .collect();

    let founder = sim.endpoint(sim.add_compute_node());
    sim.block_on(program.prepare(founder, &region))?;
    if program.has_agent() {
        let (agent, task) = (sim.endpoint(sim.add_compute_node()), program.clone());
        agent.clone().spawn(async move {
            // A simulated fabric does not fail by itself.
            let _ = task.serve(agent).await;
        });
    }
    let mut joined = Vec::new();
    for &compute_node in &compute_nodes {
        joined.push(sim.block_on(program.join(sim.endpoint(compute_node)))?);
    }

    let start_ns = sim.now_ns() + setting.warm_up_ns(program.is_finite());
    let end_ns = if program.is_finite() {
        u64::MAX
    } else {
        start_ns + setting.duration_ns
    };
    let crew = Rc::new(Crew {
        recorder: RefCell::new(Recorder::new(Window { start_ns, end_ns }).with_slots(conditions.slots)),
        failure: RefCell::new(None),
        working: Cell::new(setting.clients),
    });
    let mut meters = Vec::new();
    for (number, endpoint) in (0..).zip(&endpoints) {
        let meter = Rc::new(Meter::new(endpoint.clone(), Window { start_ns, end_ns }));
        meters.push(Rc::clone(&meter));
        let mut client = program.client(&joined[setting.compute_node_of(number) as usize], endpoint, number);
        let (crew, mut cx) = (Rc::clone(&crew), OpContext::new(endpoint.clone()));
        endpoint.spawn(async move {
            let result = drive(&mut client, &mut cx, &crew.recorder, &meter).await;
            crew.working.set(crew.working.get() - 1);
            if let Err(error) = result {
                crew.failure.borrow_mut().get_or_insert(error);
            }
        });
    }

    // Including `start_ns` itself would count what happens in that nanosecond twice.
    sim.run_until(start_ns - 1);
    let before = Reading::take(&sim, node, &meters);
    for node in &joined {
        program.begin(node);
    }
    let apply = |fault| match fault {
        Fault::ComputeNodeDies(dead) => {
            let is_dead = |(number, _): &(u64, &Endpoint)| setting.compute_node_of(*number) == dead;
            for (_, endpoint) in (0..).zip(&endpoints).filter(is_dead) {
                sim.crash_client(endpoint.id());
            }
        }
        Fault::MemoryNodeLeaves => compute_nodes.iter().for_each(|&from| sim.partition(from, node)),
        Fault::MemoryNodeReturns => compute_nodes.iter().for_each(|&from| sim.heal(from, node)),
    };
    let mut faults = conditions.faults.iter().peekable();
    for slice in 1.. {
        let is_over = if program.is_finite() {
            sim.run_until(start_ns + slice * SLICE_NS);
            crew.working.get() == 0
        } else {
            let end_ns = setting.duration_ns * slice / SLICES;
            while let Some(&(at_ns, fault)) = faults.next_if(|(at_ns, _)| *at_ns < end_ns) {
                sim.run_until(start_ns + at_ns);
                apply(fault);
            }
            sim.run_until(start_ns + end_ns - 1);
            progress.set(slice * 100 / SLICES);
            slice == SLICES
        };
        if let Some(error) = crew.failure.take() {
            return Err(error);
        }
        if is_over {
            break;
        }
    }
    let after = Reading::take(&sim, node, &meters);
    for node in &joined {
        program.note(node);
    }
    let recorder = crew.recorder.borrow().clone();
    let wall_s = (after.wall_ns - before.wall_ns).max(1) as f64 / 1e9;
    Ok(Outcome {
        effort: after.effort.since(&before.effort),
        nodes: vec![NodeLoad {
            verbs: after.node.verbs.total() - before.node.verbs.total(),
            atomics: after.node.verbs.atomics() - before.node.verbs.atomics(),
        }],
        memory_bytes: program.memory_used(&region),
        simulation: Some(Simulation {
            verbs_per_wall_s: (after.verbs - before.verbs) as f64 / wall_s,
            trace_hash: sim.trace_hash(),
        }),
        recorder,
    })
}

/// What all clients of a run share.
struct Crew {
    recorder: RefCell<Recorder>,
    failure: RefCell<Option<BenchError>>,
    working: Cell<u64>,
}

/// All counters at one moment.
struct Reading {
    effort: Effort,
    node: NodeStatistics,
    verbs: u64,
    wall_ns: u64,
}

impl Reading {
    fn take(sim: &Sim, node: NodeId, meters: &[Rc<Meter<Endpoint>>]) -> Self {
        let efforts = meters.iter().map(|meter| meter.now());
        Self {
            effort: efforts.fold(Effort::default(), |sum, one| sum.plus(&one)),
            node: sim.statistics(node),
            verbs: sim.verbs_executed(),
            wall_ns: HostClock.now_ns(),
        }
    }
}

/// How much of an earlier run's memory is made blank: the tables at its start. What a program keeps
/// behind them it writes itself before it reads it.
const TABLES_BYTES: u64 = 64 << 20;

fn blank_memory(memory: &mut Option<Region>, bytes: u64) -> Result<Region, BenchError> {
    match memory.take().filter(|region| region.bytes() == bytes) {
        Some(region) => {
            let zeros = [0; 4096];
            for offset in (0..bytes.min(TABLES_BYTES)).step_by(zeros.len()) {
                region.write(offset, &zeros[..zeros.len().min((bytes - offset) as usize)]);
            }
            *memory = Some(region.clone());
            Ok(region)
        }
        None => {
            let region = Region::anonymous(bytes).map_err(BenchError::system("get memory"))?;
            *memory = Some(region.clone());
            Ok(region)
        }
    }
}
