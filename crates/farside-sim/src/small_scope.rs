//! Small scopes, exhaustively: two or three clients with a few verbs each, in every order that queue
//! pairs allow, with a crash at every place if wanted.
//!
//! What random schedules reach only by luck is reached here for certain, as far as it needs few
//! clients and few steps. The simulator's chooser decides which request is executed next
//! (`farside_fabric::sim::explore`); a client whose request is refused again and again is held back after
//! a few turns, since a run in which only the waiting one is served does not end.
//!
//! Time stands still meanwhile, so histories count steps instead of nanoseconds.

mod in_place;
mod living;
mod lock;
mod tree;

use std::cell::{Cell, Ref, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use farside_fabric::Endpoint;
use farside_fabric::EndpointId;
use farside_fabric::NodeId;
use farside_fabric::region::Region;
use farside_fabric::sim::{
    Candidate, Choices, Chooser, CrashPoint, Explored, Profile, Request, Sim, SimOptions, explore,
};
use farside_kv::{IndexKind, KvError, LeafOptions, RaceOptions, Session, Store, StoreConfig};
use farside_pool::{FormatOptions, PoolOptions};
use farside_sync::Scheme;

use crate::checkers::linearizability;
use crate::history::{Answer, Call, Operation};
use crate::scenario::store;

pub use in_place::in_place;
pub use living::{Events, StoreScope, living_store};
pub use lock::{LockScope, lock};
pub use tree::{Scope, tree};

/// The one key that everybody works on.
const KEY: u64 = 1;
/// What it holds at the beginning.
const INITIAL: u64 = 1000;
/// A chunk table that is read in no time: clients take their chunks anew in each run.
const MEMORY_BYTES: u64 = 256 << 10;
/// How often the same client may be served in a row while others wait, where all orders are tried,
const TURNS_IN_A_ROW: u32 = 6;
/// and where those with few switches are.
const IN_A_ROW: u32 = 100;
/// So long a request is held back.
const HOLD_STEPS: u64 = 120;
/// The crash point of the first client is one of so many.
const CRASH_POINTS: usize = 8;
/// How long whoever waits for a lock may take in the end.
const PATIENCE_NS: u64 = 10_000_000;
/// How often is looked whether whoever is waited for has come to an end.
const PATIENCE_STEPS: u64 = 100;
/// Far beyond any run: no housekeeping in between.
const NEVER_NS: u64 = 1 << 50;

/// How orders are tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Orders {
    /// All.
    All,
    /// Clients go on until they wait, but for so many times, at which another one goes on.
    Switches(u32),
    /// All clients go on in turn, but for so many requests, which are held back for long.
    Holds(u32),
}

impl Orders {
    /// With switches, who has been served so often in a row waits for somebody.
    fn chooser(self, choices: &Choices, in_a_row: u32) -> Chooser {
        match self {
            Self::All => fair(choices),
            Self::Switches(switches) => bounded(choices, switches, in_a_row),
            Self::Holds(holds) => holding(choices, holds, HOLD_STEPS),
        }
    }
}

/// Orders of the clients' operations on one key; returns how many there were.
///
/// # Panics
/// If a history is not linearizable; the choices that led to it are printed.
#[must_use]
pub fn store(kind: (IndexKind, Scheme), calls: &[Vec<Call>], orders: Orders, with_crash: bool, limit: u64) -> Explored {
    let (memory, config) = (memory(), config(kind));
    // Every run begins with what the key holds then.
    let sim = Sim::new(SimOptions::default());
    let _ = sim.add_memory_node_with(memory.clone());
    let first = sim.endpoint(sim.add_compute_node());
    sim.block_on(async move {
        let store = Store::open(first, config).await.expect("a store");
        let mut session = store.session();
        let put = store::execute(&mut session, KEY, Call::Put(INITIAL), false);
        put.await.expect("room");
    });
    explore(limit, |choices| {
        let sim = Sim::new(SimOptions::default());
        with_memory(&sim, &memory, || {
            one_store(&sim, &choices, config, calls, orders, with_crash);
        });
    })
}

/// The memory of a run.
fn memory() -> Region {
    Region::anonymous(MEMORY_BYTES + Profile::default().chip_bytes).expect("some memory")
}

/// Does something with a memory node in this memory, which holds what it held before again afterwards: to map new memory for each of many
/// runs takes longer than the runs.
fn with_memory(sim: &Sim, memory: &Region, run: impl FnOnce()) {
    let node = sim.add_memory_node_with(memory.clone());
    sim.keep_changes(node);
    run();
    sim.undo_changes(node);
}

/// Lets the clients go on until it is so, for at most so long: housekeeping that nobody waits for would take longer than all else.
fn run_until(sim: &Sim, patience_ns: u64, is_so: impl Fn() -> bool) {
    let (start_ns, step_ns) = (sim.now_ns(), patience_ns / PATIENCE_STEPS);
    for step in 1..=PATIENCE_STEPS {
        if is_so() {
            return;
        }
        sim.run_until(start_ns + step * step_ns);
    }
}

/// A chooser that serves everybody in the end.
fn fair(choices: &Choices) -> Chooser {
    let mut choose = choices.chooser();
    let mut last: Option<EndpointId> = None;
    let mut turns = 0;
    Box::new(move |candidates| {
        let is_patient = |candidate: &Candidate| turns >= TURNS_IN_A_ROW && Some(candidate.client) == last;
        let mut allowed: Vec<usize> = (0..candidates.len())
            .filter(|&at| !is_patient(&candidates[at]))
            .collect();
        if allowed.is_empty() {
            allowed = (0..candidates.len()).collect();
        }
        let some: Vec<Candidate> = allowed.iter().map(|&at| candidates[at]).collect();
        let picked = allowed[choose(&some)];
        let client = Some(candidates[picked].client);
        turns = if client == last { turns + 1 } else { 1 };
        last = client;
        picked
    })
}

/// A chooser that stays with a client but for a few times, and for those when it has been served so often in a row: who spins
/// waits for another one.
fn bounded(choices: &Choices, switches: u32, in_a_row: u32) -> Chooser {
    let (choices, mut left) = (choices.clone(), switches);
    let (mut last, mut turns) = (None, 0);
    Box::new(move |candidates: &[Candidate]| {
        let own = candidates.iter().position(|candidate| Some(candidate.client) == last);
        let picked = match own {
            Some(own) if turns >= in_a_row => {
                // All in turn.
                let id = candidates[own].client;
                let by_id = (0..candidates.len()).filter(|&at| at != own);
                let next = by_id.min_by_key(|&at| (candidates[at].client < id, candidates[at].client));
                next.unwrap_or(own)
            }
            Some(own) if left == 0 => own,
            Some(own) => match choices.pick(candidates.len()) {
                0 => own,
                // Who stays comes first.
                other => {
                    left -= 1;
                    if other <= own { other - 1 } else { other }
                }
            },
            None => choices.pick(candidates.len()),
        };
        let client = Some(candidates[picked].client);
        turns = if client == last { turns + 1 } else { 1 };
        last = client;
        picked
    })
}

/// What is served in the order in which it was posted: the requests of a client to a node.
type Lane = (EndpointId, NodeId);

fn lane(candidate: &Candidate) -> Lane {
    let node = match candidate.request {
        Request::Verb { addr, .. } => addr.node(),
        Request::Fence { node, .. } | Request::Connect { node } => node,
        Request::Send { .. } => NodeId::new(0),
    };
    (candidate.client, node)
}

/// A chooser that serves clients and nodes in turn, but for a few requests, each of which it holds back for so many steps,
/// with what its client posts to the same node (delay bounding; Emmi, Qadeer and Rakamaric 2011).
fn holding(choices: &Choices, holds: u32, steps: u64) -> Chooser {
    let (choices, mut left) = (choices.clone(), holds);
    let (mut step, mut last) = (0, None);
    let mut held: BTreeMap<Lane, u64> = BTreeMap::new();
    Box::new(move |candidates: &[Candidate]| {
        step += 1;
        held.retain(|_, until| *until > step);
        loop {
            let lanes = (0..candidates.len()).map(|at| (at, lane(&candidates[at])));
            // Who is held back is served if nobody else is there.
            let next = lanes.min_by_key(|(_, lane)| (held.contains_key(lane), Some(*lane) <= last, *lane));
            let (at, lane) = next.expect("there is a candidate");
            if left > 0 && !held.contains_key(&lane) && choices.flip() {
                left -= 1;
                held.insert(lane, step + steps);
                continue;
            }
            last = Some(lane);
            return at;
        }
    })
}

/// The history of a run, with steps for times.
#[derive(Default)]
struct Log {
    steps: Cell<u64>,
    operations: RefCell<Vec<Operation>>,
    ended: Cell<usize>,
}

impl Log {
    fn step(&self) -> u64 {
        self.steps.set(self.steps.get() + 1);
        self.steps.get()
    }

    fn ask(&self, client: u32, key: u64, call: Call) -> usize {
        let start_ns = self.step();
        let mut operations = self.operations.borrow_mut();
        operations.push(Operation {
            client,
            key,
            call,
            start_ns,
            end: None,
        });
        operations.len() - 1
    }

    fn answer(&self, place: usize, answer: Answer) {
        let end = Some((self.step(), answer));
        self.operations.borrow_mut()[place].end = end;
    }

    /// A client has come to its end.
    fn end(&self) {
        self.ended.set(self.ended.get() + 1);
    }

    fn ended(&self) -> usize {
        self.ended.get()
    }

    fn operations(&self) -> Ref<'_, Vec<Operation>> {
        self.operations.borrow()
    }

    async fn perform(&self, session: &mut Session, client: u32, call: Call) {
        self.attempt(session, client, call).await.expect("nothing is broken");
    }

    /// A call whose client may be cut off, since it was held back for so long.
    async fn attempt(&self, session: &mut Session, client: u32, call: Call) -> Result<(), KvError> {
        let place = self.ask(client, KEY, call);
        let answer = store::execute(session, KEY, call, false).await?;
        session.context().assert_settled();
        self.answer(place, answer);
        Ok(())
    }
}

fn config((index, scheme): (IndexKind, Scheme)) -> StoreConfig {
    StoreConfig {
        index: Some(index),
        scheme,
        local_wc: false,
        slots: Some(64),
        race: RaceOptions {
            items: 0,
            subtable_bytes: 768,
            bucket_slots: 15,
        },
        leaf: LeafOptions {
            span: 8,
            neighbourhood: 4,
        },
        format: FormatOptions {
            clients_max: 8,
            chunk_bytes: Some(if scheme.needs_locks() { 8192 } else { 4096 }),
            ..FormatOptions::default()
        },
        pool: PoolOptions {
            tick_ns: NEVER_NS,
            lease_ns: NEVER_NS,
        },
        timeout_ns: None,
    }
}

fn one_store(sim: &Sim, choices: &Choices, config: StoreConfig, calls: &[Vec<Call>], orders: Orders, with_crash: bool) {
    let open = async |endpoint: &Endpoint| {
        let store = Store::open(endpoint.clone(), config).await.expect("a store");
        let mut session = store.session();
        // So that blocks of every length that is needed are at hand.
        for units in 1..6 {
            let value = vec![1; 32 * units - 24];
            session.put(&endpoint.id().0.to_le_bytes(), &value).await.expect("room");
        }
        session
    };
    let log = Rc::new(Log::default());
    let place = log.ask(u32::MAX, KEY, Call::Put(INITIAL));
    log.answer(place, Answer::Done);
    let mut sessions: Vec<(Endpoint, Session)> = Vec::new();
    for _ in calls {
        let endpoint = sim.endpoint(sim.add_compute_node());
        let session = sim.block_on(open(&endpoint));
        sessions.push((endpoint, session));
    }
    let crashing = if with_crash {
        choices.pick(CRASH_POINTS + 1) as u64
    } else {
        0
    };
    let victim = sessions[0].0.id();
    if crashing > 0 {
        let verb = sim.verbs_posted(victim) + crashing;
        sim.crash_client_at(victim, CrashPoint { verb, lines: None });
    }
    sim.set_chooser(Some(orders.chooser(choices, IN_A_ROW)));
    for ((client, (endpoint, mut session)), calls) in (0..).zip(sessions).zip(calls) {
        let (log, calls) = (Rc::clone(&log), calls.clone());
        endpoint.spawn(async move {
            for call in calls {
                log.perform(&mut session, client, call).await;
            }
            log.end();
        });
    }
    sim.run_until(sim.now_ns());
    sim.set_chooser(None);
    // Whoever sleeps while it waits for somebody else's lock.
    sim.run_until(sim.now_ns() + PATIENCE_NS);
    let survivors = calls.len() - usize::from(sim.is_crashed(victim));
    // Nobody is declared dead here, so a lock of the dead stays; what waits for it has no answer.
    let may_wait = config.index != Some(IndexKind::PointerArray) && sim.is_crashed(victim);
    assert!(
        may_wait || log.ended() >= survivors,
        "{} of {survivors} came to an end",
        log.ended()
    );
    let reader = sim.endpoint(sim.add_compute_node());
    sim.block_on(async {
        let store = Store::open(reader, config).await.expect("a store");
        log.perform(&mut store.session(), u32::MAX, Call::Get).await;
    });
    if let Err(violation) = linearizability::check(&log.operations(), &BTreeMap::new()) {
        panic!("{violation}");
    }
}
