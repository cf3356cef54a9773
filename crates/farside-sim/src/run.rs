//! Executes a plan: sets the simulation up, starts the actors, lets faults happen at their times, and
//! checks what came of it.
//!
//! Two phases. *Safety*: everybody works, faults happen. *Liveness*: at the horizon all faults are
//! mended; then every actor has to come to an end, within a bound.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;

use farside_fabric::sim::{Blow, ComputeNodeId, CrashPoint, Lulls, Profile, Sim, SimOptions};
use farside_fabric::{Endpoint, NodeId, VerbKind, mutant};
use farside_index::tree::NodeLock;
use farside_lock::LockKind;

use crate::alarm::Alarm;
use crate::coverage::Coverage;
use crate::nics;
use crate::panics::caught;
use crate::plan::{Disturbance, Plan};
use crate::scenario::{lock, named, store, tree};
use crate::shared::{Condition, Shared};
use crate::target::Target;

/// How often the driver looks after the actors.
const SLICE_NS: u64 = 10_000;
/// After how long the next client of an actor starts.
const REPLACEMENT_NS: u64 = 20_000;
/// How many leases everybody has to come to an end after the faults, beside deadlines.
const PATIENCE_LEASES: u64 = 300;

/// A check that did not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Which check, in a word: `linearizability`, `memory`, `panic`...
    pub kind: String,
    /// What was seen.
    pub text: String,
}

impl Failure {
    /// A failure.
    #[must_use]
    pub fn new(kind: &str, text: impl Into<String>) -> Self {
        Self {
            kind: kind.to_owned(),
            text: text.into(),
        }
    }

    /// Makes a failure of an error.
    pub(crate) fn of<E: core::fmt::Display>(what: &'static str) -> impl Fn(E) -> Self {
        move |error| Self::new("error", format!("{what}: {error}"))
    }
}

impl core::fmt::Display for Failure {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}: {}", self.kind, self.text)
    }
}

/// What came of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// What it covered.
    pub coverage: Coverage,
    /// What it cost; nothing if the run ended in a panic.
    pub cost: Cost,
    /// The first check that did not hold.
    pub failure: Option<Failure>,
}

/// What runs cost, exactly.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Cost {
    /// Verbs that memory nodes executed, by [`VerbKind`].
    pub verbs: [u64; VerbKind::ALL.len()],
    /// Bytes that came to memory nodes and left them, headers included.
    pub bytes: [u64; 2],
    /// What was answered or granted.
    pub answers: u64,
    /// How long that took, in sum.
    pub latency_ns: u64,
    /// Everything that happened, as one number.
    pub digest: u64,
}

impl Cost {
    /// Adds what another run has cost.
    pub fn add(&mut self, other: &Self) {
        for (sum, count) in self.verbs.iter_mut().zip(other.verbs) {
            *sum += count;
        }
        for (sum, count) in self.bytes.iter_mut().zip(other.bytes) {
            *sum += count;
        }
        self.answers += other.answers;
        self.latency_ns += other.latency_ns;
        self.digest = self.digest.rotate_left(7) ^ other.digest;
    }
}

/// Executes a plan.
///
/// # Panics
/// If the plan names a target or NIC that there is not, or has no memory node.
#[must_use]
pub fn execute(plan: &Plan) -> Outcome {
    let target = Target::by_name(&plan.target).unwrap_or_else(|| panic!("there is no target {}", plan.target));
    let profile = nics::named(&plan.setup.profile).unwrap_or_else(|| panic!("no NIC {}", plan.setup.profile));
    let profile = Profile {
        has_masked_atomics: profile.has_masked_atomics && !matches!(target, Target::Tree { is_plain: true, .. }),
        ..profile
    };
    let profile = match target {
        Target::Tree {
            node_lock: NodeLock::OnChip,
            ..
        } => profile.with_chip(),
        _ => profile,
    };
    let covered = Rc::new(RefCell::new(Coverage::default()));
    mutant::begin_noting();
    let run = caught(|| {
        let _alarm = tracing::subscriber::set_default(Alarm);
        let mut driver = Driver::new(plan, target, profile);
        let result = driver.run();
        *covered.borrow_mut() = driver.shared.coverage.take();
        (driver.cost(), driver.sim.verbs_executed(), result)
    });
    let mut coverage = covered.take();
    coverage.count("runs", target.name());
    coverage.pass(&target.name(), mutant::passed());
    let (cost, failure) = match run {
        Ok((cost, verbs, result)) => {
            coverage.add("simulated", "verbs", verbs);
            (cost, result.err())
        }
        Err(text) => (Cost::default(), Some(Failure::new("panic", text))),
    };
    Outcome {
        coverage,
        cost,
        failure,
    }
}

/// Runs a future as a task of `endpoint`, for no longer than `limit_ns`.
pub(crate) fn finish_within<T: 'static>(
    sim: &Sim,
    endpoint: &Endpoint,
    limit_ns: u64,
    what: &str,
    future: impl Future<Output = T> + 'static,
) -> Result<T, Failure> {
    let result = Rc::new(RefCell::new(None));
    let slot = Rc::clone(&result);
    endpoint.spawn(async move {
        let value = future.await;
        *slot.borrow_mut() = Some(value);
    });
    let limit_ns = sim.now_ns() + limit_ns;
    while sim.now_ns() < limit_ns {
        sim.run_until(sim.now_ns() + SLICE_NS);
        if let Some(value) = result.borrow_mut().take() {
            return Ok(value);
        }
    }
    Err(Failure::new("liveness", format!("{what}: no end after {limit_ns} ns")))
}

/// What is to be done at a certain time.
#[derive(Clone, Debug)]
enum Action {
    Disturb(Disturbance),
    Mend(Disturbance),
    Start(usize),
}

struct Driver {
    sim: Sim,
    target: Target,
    shared: Rc<Shared>,
    compute_nodes: Vec<ComputeNodeId>,
    memory_nodes: Vec<NodeId>,
    /// By time, and in the order of the plan.
    agenda: BTreeMap<(u64, usize), Action>,
    planned: usize,
    /// Crash points that are armed: the disturbance, by actor.
    armed: BTreeMap<usize, Disturbance>,
    /// Blows that wait at places: the disturbance, by the number of the blow.
    aimed: BTreeMap<usize, Disturbance>,
    paused: BTreeMap<usize, Endpoint>,
    down: BTreeMap<u16, u64>,
    helper: Option<Helper>,
}

/// Somebody beside the actors, on a machine of its own: the agent of the lock service, or the sweeper of a store.
struct Helper {
    compute_node: ComputeNodeId,
    endpoint: Endpoint,
    has_ended: Rc<Cell<bool>>,
}

impl Driver {
    fn new(plan: &Plan, target: Target, profile: Profile) -> Self {
        let setup = &plan.setup;
        let sim = Sim::new(SimOptions {
            seed: plan.seed,
            profile,
            tear_bytes: setup.tear_bytes,
            jitter_ns: setup.jitter_ns,
            is_mapped: setup.is_mapped,
            ..SimOptions::default()
        });
        let memory_nodes = (0..setup.memory_nodes)
            .map(|_| sim.add_memory_node(setup.node_bytes))
            .collect();
        let compute_nodes = (0..setup.compute_nodes.max(1))
            .map(|_| sim.add_compute_node())
            .collect();
        let observer = sim.endpoint(sim.add_compute_node());
        let mut driver = Self {
            shared: Rc::new(Shared::new(plan.clone(), observer)),
            sim,
            target,
            compute_nodes,
            memory_nodes,
            agenda: BTreeMap::new(),
            planned: 0,
            armed: BTreeMap::new(),
            aimed: BTreeMap::new(),
            paused: BTreeMap::new(),
            down: BTreeMap::new(),
            helper: None,
        };
        if setup.is_worn {
            match target {
                Target::Store { index, scheme } => store::wear(&driver.sim, plan, (index, scheme)),
                Target::Tree { .. } => tree::wear(&driver.sim, setup),
                Target::Lock(kind) => lock::wear(&driver.sim, &driver.shared, kind),
                Target::Named => {}
            }
        }
        if target.lock().is_some_and(LockKind::asks_service) || plan.setup.is_swept {
            driver.start_helper();
        }
        if target == Target::Named {
            named::prepare(&driver.sim, plan);
        }
        // What was prepared was not disturbed.
        driver.sim.set_lulls(Lulls {
            one_in: setup.lull_one_in,
            ns_max: setup.lull_ns,
            aim: setup.lull_aim.into(),
        });
        for fault in &plan.faults {
            driver.plan(fault.at_ns, Action::Disturb(fault.what.clone()));
        }
        driver
    }

    /// The first helper, or the next one.
    fn start_helper(&mut self) {
        let compute_node = match self.helper.take() {
            Some(previous) => {
                self.sim.crash_client(previous.endpoint.id());
                previous.compute_node
            }
            None => self.sim.add_compute_node(),
        };
        let helper = Helper {
            compute_node,
            endpoint: self.sim.endpoint(compute_node),
            has_ended: Rc::default(),
        };
        match self.target {
            Target::Store { index, scheme } => {
                self.sim.set_clock(compute_node, store::SWEEPER_SKEW_NS, 0);
                store::start_sweeper(&helper.endpoint, (index, scheme), &self.shared, &helper.has_ended);
            }
            _ => lock::start_agent(&helper.endpoint, &self.shared, &helper.has_ended),
        }
        self.helper = Some(helper);
    }

    fn plan(&mut self, at_ns: u64, action: Action) {
        self.planned += 1;
        self.agenda.insert((at_ns, self.planned), action);
    }

    fn run(&mut self) -> Result<(), Failure> {
        let horizon_ns = self.shared.plan.setup.horizon_ns;
        while self.sim.now_ns() < horizon_ns && !self.is_over() {
            self.step(horizon_ns);
        }
        self.mend_all();
        let limit_ns = self.sim.now_ns() + self.patience_ns();
        while !self.is_over() {
            if self.sim.now_ns() > limit_ns {
                return Err(Failure::new("liveness", self.who_is_left()));
            }
            self.step(u64::MAX);
        }
        self.attend();
        self.dismiss_sweeper()?;
        match self.target {
            Target::Store { index, scheme } => store::audit(&self.sim, &self.shared, (index, scheme))?,
            Target::Tree { kind, .. } => tree::audit(&self.sim, &self.shared, kind)?,
            Target::Lock(kind) => lock::audit(&self.sim, &self.shared, kind)?,
            Target::Named => named::audit(&self.sim, &self.shared)?,
        }
        // Nobody is there any more: housekeeping has ended, and nothing is left on its way.
        let leases = match self.target.lock() {
            None => 10,
            // Clients that gave up may still stand in a queue, and be waited for one after the other.
            Some(_) => 60,
        };
        let end_ns = self.sim.now_ns() + leases * self.shared.plan.setup.lease_ns;
        while self.sim.now_ns() < end_ns {
            // An agent that lost its way to the node may be found out only now.
            self.attend();
            self.sim
                .run_until(end_ns.min(self.sim.now_ns() + self.shared.plan.setup.lease_ns));
        }
        if let Some(helper) = &self.helper {
            self.sim.crash_client(helper.endpoint.id());
        }
        // But for the desks of locks, which wait for letters as long as their clients live.
        let waits = match self.target.lock() {
            None => 0,
            Some(_) => self.sim.receives_in_flight(),
        };
        match self.sim.operations_in_flight() - waits {
            0 => Ok(()),
            count => Err(Failure::new(
                "queues",
                format!("{count} operations are still under way"),
            )),
        }
    }

    /// What all has cost so far.
    fn cost(&self) -> Cost {
        let mut cost = Cost {
            digest: self.sim.trace_hash(),
            ..Cost::default()
        };
        for &node in &self.memory_nodes {
            let statistics = self.sim.statistics(node);
            for kind in VerbKind::ALL {
                cost.verbs[kind as usize] += statistics.verbs.of(kind);
            }
            cost.bytes[0] += statistics.bytes_in;
            cost.bytes[1] += statistics.bytes_out;
        }
        let history = self.shared.history.borrow();
        let answered = history
            .iter()
            .filter_map(|operation| Some(operation.end?.0 - operation.start_ns));
        let holds = self.shared.holds.borrow();
        let granted = holds.iter().filter_map(|hold| Some(hold.granted_ns? - hold.asked_ns));
        for took_ns in answered.chain(granted) {
            cost.answers += 1;
            cost.latency_ns += took_ns;
        }
        cost
    }

    /// Lets the sweeper leave, if there is one.
    fn dismiss_sweeper(&mut self) -> Result<(), Failure> {
        if !self.shared.plan.setup.is_swept {
            return Ok(());
        }
        self.shared.is_work_done.set(true);
        let limit_ns = self.sim.now_ns() + self.patience_ns();
        while !self.helper.as_ref().is_some_and(|helper| self.has_ended(helper)) {
            if self.sim.now_ns() > limit_ns {
                return Err(Failure::new("liveness", "the sweeper does not leave"));
            }
            self.sim.run_until(self.sim.now_ns() + SLICE_NS);
        }
        if let Some(helper) = self.helper.take() {
            self.sim.crash_client(helper.endpoint.id());
        }
        Ok(())
    }

    fn has_ended(&self, helper: &Helper) -> bool {
        helper.has_ended.get() || self.sim.is_crashed(helper.endpoint.id())
    }

    /// How long everybody has to come to an end after the faults. Whoever does not hear from a node that it has lost its way
    /// to meets its deadline with each piece of its work.
    fn patience_ns(&self) -> u64 {
        let setup = &self.shared.plan.setup;
        let pieces = self.shared.plan.actors.iter().map(|actor| actor.work.len()).max();
        PATIENCE_LEASES * setup.lease_ns + pieces.unwrap_or(0) as u64 * setup.timeout_ns.unwrap_or(0)
    }

    /// Runs up to the next thing on the agenda, and does it.
    fn step(&mut self, limit_ns: u64) {
        self.attend();
        let now_ns = self.sim.now_ns();
        let due_ns = self.agenda.first_key_value().map_or(u64::MAX, |(&(at_ns, _), _)| at_ns);
        self.sim
            .run_until(due_ns.max(now_ns).min(now_ns + SLICE_NS).min(limit_ns));
        while let Some(entry) = self.agenda.first_entry() {
            if entry.key().0 > self.sim.now_ns() {
                break;
            }
            match entry.remove() {
                Action::Disturb(what) => self.disturb(what),
                Action::Mend(what) => self.mend(&what),
                Action::Start(actor) => self.shared.set_condition(actor, Condition::NeedsClient),
            }
        }
    }

    /// Nobody works any more, and nobody will.
    fn is_over(&self) -> bool {
        let starts = self.agenda.values().any(|action| matches!(action, Action::Start(_)));
        let is_done = |condition| matches!(condition, Condition::Done | Condition::Crashed);
        !starts && self.shared.actors.borrow().iter().all(|actor| is_done(actor.condition))
    }

    fn who_is_left(&self) -> String {
        let actors = self.shared.actors.borrow();
        let left = actors
            .iter()
            .enumerate()
            .filter(|(_, actor)| actor.condition != Condition::Done);
        let lines = left.map(|(index, actor)| format!("actor {index}: {actor:?}"));
        let history = self.shared.history.borrow();
        let open = history.iter().filter(|operation| operation.end.is_none()).rev().take(8);
        let open = open.map(|operation| format!("without an answer: {operation:?}"));
        lines.chain(open).collect::<Vec<_>>().join("\n")
    }

    /// Takes note of whom blows have struck.
    fn attend_struck(&mut self) {
        for (number, struck) in self.sim.struck() {
            let what = self.aimed.remove(&number).expect("each blow is struck once");
            let own = |index: &usize| self.working(*index).is_some_and(|endpoint| endpoint.id() == struck);
            let actor = (0..=self.compute_nodes_of_actors()).find(own);
            match (what, actor) {
                (what @ Disturbance::PauseAtPlace { for_ns, .. }, Some(actor)) => {
                    self.shared.count("faults that happened", what.name());
                    let what = Disturbance::Pause { actor, for_ns };
                    self.paused.insert(actor, self.working(actor).expect("it works"));
                    self.plan(self.sim.now_ns() + for_ns, Action::Mend(what));
                }
                (Disturbance::PauseAtPlace { .. }, None) => self.sim.resume_client(struck),
                (what, Some(actor)) => drop(self.armed.insert(actor, what)),
                (_, None) => {}
            }
        }
    }

    /// Notices crashes, and starts clients where they are needed.
    fn attend(&mut self) {
        self.attend_struck();
        if self.helper.as_ref().is_some_and(|helper| self.has_ended(helper)) {
            self.start_helper();
        }
        for index in 0..self.compute_nodes_of_actors() {
            let (condition, endpoint) = {
                let actors = self.shared.actors.borrow();
                (actors[index].condition, actors[index].endpoint.clone())
            };
            if let (Some(endpoint), true) = (&endpoint, self.shared.plan.setup.is_mapped)
                && matches!(condition, Condition::Done | Condition::NeedsClient)
            {
                // Its process ends; until then nobody could take over what it may have left.
                self.sim.crash_client(endpoint.id());
            }
            match condition {
                Condition::Working if endpoint.is_some_and(|endpoint| self.sim.is_crashed(endpoint.id())) => {
                    self.bury(index);
                }
                Condition::NeedsClient => self.start(index),
                _ => {}
            }
        }
    }

    fn compute_nodes_of_actors(&self) -> usize {
        self.shared.plan.actors.len()
    }

    /// A client has crashed at the point that was armed.
    fn bury(&mut self, actor: usize) {
        self.shared.set_condition(actor, Condition::Crashed);
        self.shared.end_holds(actor);
        self.paused.remove(&actor);
        if let Some(what) = self.armed.remove(&actor) {
            self.shared.count("faults that happened", what.name());
            self.replace_if_wanted(actor, &what);
        }
    }

    fn replace_if_wanted(&mut self, actor: usize, what: &Disturbance) {
        if let Disturbance::Crash { is_replaced: true, .. } | Disturbance::CrashAtPlace { is_replaced: true, .. } = what
        {
            self.plan(self.sim.now_ns() + REPLACEMENT_NS, Action::Start(actor));
        }
    }

    fn start(&mut self, actor: usize) {
        let on = self.shared.actor(actor).compute_node as usize % self.compute_nodes.len();
        let endpoint = self.sim.endpoint(self.compute_nodes[on]);
        {
            let state = &mut self.shared.actors.borrow_mut()[actor];
            state.condition = Condition::Working;
            state.endpoint = Some(endpoint.clone());
            state.clients += 1;
        }
        self.armed.remove(&actor);
        self.paused.remove(&actor);
        match self.target {
            Target::Store { index, scheme } => store::start(&endpoint, actor, (index, scheme), &self.shared),
            Target::Tree { kind, node_lock, .. } => tree::start(&endpoint, actor, (kind, node_lock), &self.shared),
            Target::Lock(kind) => lock::start(&endpoint, actor, kind, &self.shared),
            Target::Named => named::start(&self.sim, &endpoint, actor, &self.shared),
        }
    }

    /// The client that works for an actor now; behind the last actor is the helper.
    fn working(&self, actor: usize) -> Option<Endpoint> {
        if actor == self.shared.plan.actors.len() {
            let helper = self.helper.as_ref().map(|helper| helper.endpoint.clone());
            return helper.filter(|endpoint| !self.sim.is_crashed(endpoint.id()));
        }
        let actors = self.shared.actors.borrow();
        let state = actors.get(actor)?;
        let endpoint = state
            .endpoint
            .clone()
            .filter(|_| state.condition == Condition::Working)?;
        (!self.sim.is_crashed(endpoint.id())).then_some(endpoint)
    }

    fn compute_node(&self, index: u32) -> Option<ComputeNodeId> {
        self.compute_nodes.get(index as usize).copied()
    }

    fn memory_node(&self, index: u16) -> Option<NodeId> {
        self.memory_nodes.get(usize::from(index)).copied()
    }

    /// Lets a fault happen.
    fn disturb(&mut self, what: Disturbance) {
        let now_ns = self.sim.now_ns();
        let Some(ends_ns) = self.apply(&what) else { return };
        let happens_later = matches!(
            what,
            Disturbance::Crash { verbs: Some(_), .. }
                | Disturbance::CrashAtPlace { .. }
                | Disturbance::PauseAtPlace { .. }
        );
        if !happens_later {
            self.shared.count("faults that happened", what.name());
        }
        if let Disturbance::Crash { actor, verbs: None, .. } = what {
            self.paused.remove(&actor);
            if actor < self.shared.plan.actors.len() {
                self.shared.set_condition(actor, Condition::Crashed);
                self.shared.end_holds(actor);
                self.replace_if_wanted(actor, &what);
            }
        }
        if ends_ns > 0 {
            self.plan(now_ns + ends_ns, Action::Mend(what));
        }
    }

    /// Does it; returns after how long it ends (0: it does not, or ends by itself), or `None` if there
    /// was nobody to do it to.
    fn apply(&mut self, what: &Disturbance) -> Option<u64> {
        let sim = &self.sim;
        match *what {
            Disturbance::Crash { actor, verbs: None, .. } => {
                sim.crash_client(self.working(actor)?.id());
                Some(0)
            }
            Disturbance::Crash {
                actor,
                verbs: Some(verbs),
                lines,
                ..
            } => {
                let id = self.working(actor)?.id();
                let verb = sim.verbs_posted(id) + verbs;
                sim.crash_client_at(id, CrashPoint { verb, lines });
                self.armed.insert(actor, what.clone());
                Some(0)
            }
            Disturbance::CrashAtPlace {
                ref at, verbs, lines, ..
            } => {
                let number = sim.strike_at(at.into(), Blow::Crash { verbs, lines });
                self.aimed.insert(number, what.clone());
                Some(0)
            }
            Disturbance::PauseAtPlace { ref at, .. } => {
                let number = sim.strike_at(at.into(), Blow::Pause);
                self.aimed.insert(number, what.clone());
                Some(0)
            }
            Disturbance::Pause { actor, for_ns } => {
                let endpoint = self.working(actor)?;
                if self.paused.contains_key(&actor) {
                    return None;
                }
                sim.pause_client(endpoint.id());
                self.paused.insert(actor, endpoint);
                Some(for_ns)
            }
            Disturbance::BreakQueuePair { actor, node } => {
                sim.break_queue_pair(self.working(actor)?.id(), self.memory_node(node)?);
                Some(0)
            }
            Disturbance::Partition {
                compute_node,
                node,
                for_ns,
            } => {
                sim.partition(self.compute_node(compute_node)?, self.memory_node(node)?);
                Some(for_ns)
            }
            Disturbance::PartitionPeers { a, b, for_ns } => {
                sim.partition_peers(self.compute_node(a)?, self.compute_node(b)?);
                Some(for_ns)
            }
            Disturbance::Delay {
                compute_node,
                node,
                delay_ns,
                for_ns,
            } => {
                sim.delay(self.compute_node(compute_node)?, self.memory_node(node)?, delay_ns);
                Some(for_ns)
            }
            Disturbance::DelayPeers { a, b, delay_ns, for_ns } => {
                sim.delay_peers(self.compute_node(a)?, self.compute_node(b)?, delay_ns);
                Some(for_ns)
            }
            Disturbance::Restart { node, down_ns, .. } => {
                let id = self.memory_node(node)?;
                if self.down.contains_key(&node) {
                    return None;
                }
                sim.crash_node(id);
                self.down.insert(node, sim.now_ns());
                Some(down_ns)
            }
            Disturbance::Clock {
                compute_node,
                skew_ns,
                drift_ppb,
            } => {
                sim.set_clock(self.compute_node(compute_node)?, skew_ns, drift_ppb);
                Some(0)
            }
        }
    }

    /// Ends a fault.
    fn mend(&mut self, what: &Disturbance) {
        let sim = &self.sim;
        match *what {
            Disturbance::Pause { actor, .. } => {
                if let Some(endpoint) = self.paused.remove(&actor) {
                    sim.resume_client(endpoint.id());
                }
            }
            Disturbance::Partition { compute_node, node, .. } => {
                if let (Some(a), Some(b)) = (self.compute_node(compute_node), self.memory_node(node)) {
                    sim.heal(a, b);
                }
            }
            Disturbance::PartitionPeers { a, b, .. } => {
                if let (Some(a), Some(b)) = (self.compute_node(a), self.compute_node(b)) {
                    sim.heal_peers(a, b);
                }
            }
            Disturbance::Delay { compute_node, node, .. } => {
                if let (Some(a), Some(b)) = (self.compute_node(compute_node), self.memory_node(node)) {
                    sim.delay(a, b, 0);
                }
            }
            Disturbance::DelayPeers { a, b, .. } => {
                if let (Some(a), Some(b)) = (self.compute_node(a), self.compute_node(b)) {
                    sim.delay_peers(a, b, 0);
                }
            }
            Disturbance::Restart { node, is_blank, .. } => {
                if let (Some(id), Some(down_ns)) = (self.memory_node(node), self.down.remove(&node)) {
                    sim.restart_node(id, store::memory_after(is_blank));
                    if is_blank {
                        self.shared.losses.borrow_mut().push((down_ns, sim.now_ns()));
                    }
                }
            }
            Disturbance::Crash { .. }
            | Disturbance::CrashAtPlace { .. }
            | Disturbance::PauseAtPlace { .. }
            | Disturbance::BreakQueuePair { .. }
            | Disturbance::Clock { .. } => {}
        }
    }

    /// Ends all faults, and forgets those to come.
    fn mend_all(&mut self) {
        self.shared.is_mended.set(true);
        self.sim.set_lulls(Lulls::default());
        self.sim.end_strikes();
        self.attend_struck();
        let agenda = core::mem::take(&mut self.agenda);
        for (key, action) in agenda {
            match action {
                Action::Mend(what) => self.mend(&what),
                Action::Start(_) => drop(self.agenda.insert(key, action)),
                Action::Disturb(_) => {}
            }
        }
    }
}
