//! A program on simulated machines: one memory node, and clients each on a core of its own.
//!
//! Queue pairs are numbered in the order of the clients, so that each unit of the memory node's NIC
//! has the same number of clients, give or take one. What a compute node does beside its clients
//! (leases, epochs) goes through an endpoint of its own, so the clients' counters are theirs alone.

use core::cell::{Cell, RefCell};
use std::rc::Rc;

use farside_fabric::Endpoint;
use farside_fabric::host::HostClock;
use farside_fabric::region::Region;
use farside_fabric::sim::{ComputeNodeId, NodeStatistics, Profile, Sim, SimOptions};
use farside_fabric::{NodeId, OpContext};

use super::{Fault, NodeLoad, Outcome, Prepared, Setting, Simulation};
use crate::driver::{Effort, Meter, drive};
use crate::error::BenchError;
use crate::program::Program;
use crate::progress::Progress;
use crate::recorder::{Recorder, Window};

/// In how many pieces the measured time is run, for the bar and to notice errors early.
const SLICES: u64 = 50;
/// The piece of a program that ends by itself.
const SLICE_NS: u64 = 1_000_000;

/// The compute nodes of a setting, with as many cores as its clients share.
pub(crate) fn add_compute_nodes(sim: &Sim, setting: &Setting) -> Vec<ComputeNodeId> {
    let add = |node| match setting.conditions.clients_per_core {
        0 => sim.add_compute_node(),
        each => sim.add_compute_node_with_cores(setting.clients_on(node).div_ceil(each) as u32),
    };
    (0..setting.compute_nodes).map(add).collect()
}

/// See [`super::run`].
///
/// # Errors
/// Likewise.
pub(super) fn run<P: Program>(
    program: &P,
    setting: &Setting,
    memory: &mut Option<Prepared>,
    progress: &Progress,
) -> Result<Outcome, BenchError> {
    let profile = match program.uses_chip() {
        true => setting.profile.clone().with_chip(),
        false => setting.profile.clone(),
    };
    let mut prepared = prepare(program, (setting.seed, profile.chip_bytes), memory.take())?;
    let known = learn(program, (setting.seed, profile.chip_bytes), &mut prepared)?;
    let (region, laid) = (prepared.region.clone(), prepared.laid);
    let sim = Sim::new(SimOptions {
        seed: setting.seed,
        profile,
        ..SimOptions::default()
    });
    let node = sim.add_memory_node_with(region.clone());
    sim.keep_changes(node);
    let conditions = &setting.conditions;
    let compute_nodes = add_compute_nodes(&sim, setting);
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

    if program.has_agent() {
        let (agent, task) = (sim.endpoint(sim.add_compute_node()), program.clone());
        agent.clone().spawn(async move {
            // A simulated fabric does not fail by itself.
            let _ = task.serve(agent).await;
        });
    }
    let mut joined = Vec::new();
    for &compute_node in &compute_nodes {
        joined.push(sim.block_on(program.join(sim.endpoint(compute_node), known.as_deref()))?);
    }

    let start_ns = sim.now_ns() + setting.before_ns(program.is_finite());
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
        let compute_ns = conditions.compute_ns;
        endpoint.spawn(async move {
            let result = drive(&mut client, &mut cx, compute_ns, &crew.recorder, &meter).await;
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
        Fault::HotSetMoves => program.move_hot_set(),
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
    let mut recorder = crew.recorder.borrow().clone();
    if !program.is_finite() {
        let lives = |client: u64| !conditions.kills(setting.compute_node_of(client));
        let unended = (0..).zip(&meters).filter(|&(client, _)| lives(client));
        unended
            .filter_map(|(_, meter)| meter.begun_ns())
            .for_each(|begun_ns| recorder.record_unended(begun_ns));
    }
    let memory_bytes = program.memory_used(&region);
    sim.undo_changes(node);
    *memory = Some(prepared);
    let wall_s = (after.wall_ns - before.wall_ns).max(1) as f64 / 1e9;
    Ok(Outcome {
        effort: after.effort.since(&before.effort),
        nodes: vec![NodeLoad {
            verbs: after.node.verbs.total() - before.node.verbs.total(),
            atomics: after.node.verbs.atomics() - before.node.verbs.atomics(),
        }],
        laid,
        memory_bytes,
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
    fn take(sim: &Sim, node: NodeId, meters: &[Rc<Meter>]) -> Self {
        let efforts = meters.iter().map(|meter| meter.now());
        Self {
            effort: efforts.fold(Effort::default(), |sum, one| sum.plus(&one)),
            node: sim.statistics(node),
            verbs: sim.verbs_executed(),
            wall_ns: HostClock.now_ns(),
        }
    }
}

/// What a run of this program begins with: `kept`, if that is it. It is made ready in a simulation of its own, so that
/// it is the same however often it is used.
fn prepare<P: Program>(
    program: &P,
    (seed, chip_bytes): (u64, u64),
    kept: Option<Prepared>,
) -> Result<Prepared, BenchError> {
    let bytes = program.memory_bytes() + chip_bytes;
    let layout = format!("{} in {bytes} bytes, seed {seed}", program.layout());
    // What is of no use is given back first.
    if let Some(kept) = kept.filter(|kept| kept.layout == layout) {
        return Ok(kept);
    }
    let region = Region::anonymous(bytes).map_err(BenchError::system("get memory"))?;
    let (sim, _, founder) = alone_with(&region, seed, chip_bytes);
    let laid = sim.block_on(program.prepare(founder, &region))?;
    Ok(Prepared {
        layout,
        region,
        laid,
        known: None,
    })
}

/// What a compute node learns of this memory as it joins, if that is anything; so not each one has to, before each run. One does,
/// in a simulation of its own, and leaves the memory as it was.
fn learn<P: Program>(
    program: &P,
    (seed, chip_bytes): (u64, u64),
    prepared: &mut Prepared,
) -> Result<Option<Rc<P::Known>>, BenchError> {
    let Some(lesson) = program.lesson() else {
        return Ok(None);
    };
    let kept = prepared.known.as_ref().filter(|(name, _)| *name == lesson);
    if let Some(known) = kept.and_then(|(_, known)| Rc::clone(known).downcast().ok()) {
        return Ok(Some(known));
    }
    let (sim, node, pupil) = alone_with(&prepared.region, seed, chip_bytes);
    sim.keep_changes(node);
    let joined = sim.block_on(program.join(pupil, None))?;
    let known = Rc::new(program.known(&joined));
    sim.undo_changes(node);
    prepared.known = Some((lesson, Rc::<P::Known>::clone(&known)));
    Ok(Some(known))
}

/// A simulation of a memory node and one compute node.
fn alone_with(region: &Region, seed: u64, chip_bytes: u64) -> (Sim, NodeId, Endpoint) {
    let sim = Sim::new(SimOptions {
        seed,
        profile: Profile {
            chip_bytes,
            ..Profile::default()
        },
        ..SimOptions::default()
    });
    let node = sim.add_memory_node_with(region.clone());
    let endpoint = sim.endpoint(sim.add_compute_node());
    (sim, node, endpoint)
}
