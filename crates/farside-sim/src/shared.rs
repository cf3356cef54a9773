//! What the tasks of a run share: who has how much left to do, what was asked and answered.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use farside_fabric::Endpoint;
use farside_fabric::{EndpointId, NodeId, OpContext, RemoteAddr};
use farside_lock::{LockOptions, Site};

use crate::coverage::Coverage;
use crate::history::{Answer, Call, Hold, Operation};
use crate::plan::{Actor, Disturbance, Plan, Work};

/// Where the lock service has its block: behind all locks.
const SERVICE: RemoteAddr = RemoteAddr::new(NodeId::new(0), 64 << 10);
/// And where locks that ask everybody list who that is.
const ROSTER: RemoteAddr = RemoteAddr::new(NodeId::new(0), 96 << 10);

/// How an actor is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Condition {
    /// A client of it is running.
    Working,
    /// It needs another client to go on: it was cut off, or lost its way to a node.
    NeedsClient,
    /// Its client crashed; somebody may go on with its work.
    Crashed,
    /// It has done all its work.
    Done,
}

/// An actor during a run.
#[derive(Debug)]
pub(crate) struct ActorState {
    pub(crate) condition: Condition,
    pub(crate) endpoint: Option<Endpoint>,
    /// The next piece of its work.
    next: usize,
    /// How many pieces it may still do when the faults have ended.
    last_pieces: u32,
    /// How many clients it has had.
    pub(crate) clients: u32,
}

/// Shared by the driver and all tasks of a run.
pub(crate) struct Shared {
    pub(crate) plan: Plan,
    /// Its clock is right, and shows the time of the histories.
    observer: Endpoint,
    pub(crate) actors: RefCell<Vec<ActorState>>,
    pub(crate) history: RefCell<Vec<Operation>>,
    pub(crate) holds: RefCell<Vec<Hold>>,
    /// By compute node.
    sites: RefCell<BTreeMap<u32, Site>>,
    pub(crate) coverage: RefCell<Coverage>,
    /// By lock: how many counted under it, and how many may have.
    counts: RefCell<BTreeMap<u64, (u64, u64)>>,
    /// By place in the history: until when a hold lasts at most.
    leases: RefCell<BTreeMap<usize, u64>>,
    /// By lock: the largest fencing token of an exclusive grant.
    tokens: RefCell<BTreeMap<u64, u64>>,
    /// Who is who, by the number in histories.
    endpoints: RefCell<BTreeMap<u32, EndpointId>>,
    /// When the only memory node went down and came back blank.
    pub(crate) losses: RefCell<Vec<(u64, u64)>>,
    /// What was asked together.
    pub(crate) together: RefCell<Vec<Group>>,
    pub(crate) pieces_done: Cell<u64>,
    /// The faults have ended.
    pub(crate) is_mended: Cell<bool>,
    /// Whoever helps need not go on.
    pub(crate) is_work_done: Cell<bool>,
}

/// What was asked together, by its place in the history, and what was seen of it.
pub(crate) type Group = Vec<(usize, Option<u64>)>;

impl Shared {
    pub(crate) fn new(plan: Plan, observer: Endpoint) -> Self {
        let actors = plan.actors.iter().map(|_| ActorState {
            condition: Condition::NeedsClient,
            endpoint: None,
            next: 0,
            last_pieces: plan.setup.last_pieces.unwrap_or(u32::MAX),
            clients: 0,
        });
        Self {
            actors: RefCell::new(actors.collect()),
            plan,
            observer,
            history: RefCell::default(),
            holds: RefCell::default(),
            sites: RefCell::default(),
            counts: RefCell::default(),
            leases: RefCell::default(),
            tokens: RefCell::default(),
            endpoints: RefCell::default(),
            coverage: RefCell::default(),
            losses: RefCell::default(),
            together: RefCell::default(),
            pieces_done: Cell::new(0),
            is_mended: Cell::new(false),
            is_work_done: Cell::new(false),
        }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.observer.now_ns()
    }

    pub(crate) fn count(&self, group: &'static str, what: impl Into<String>) {
        self.coverage.borrow_mut().count(group, what);
    }

    /// Counts how often another client was quicker: interleavings that matter.
    pub(crate) fn count_lost_races(&self, races: u64) {
        self.coverage
            .borrow_mut()
            .add("simulated", "races lost to another client", races);
    }

    pub(crate) fn actor(&self, actor: usize) -> &Actor {
        &self.plan.actors[actor]
    }

    /// The next piece of an actor's work. It is not given out again, even if the client crashes.
    pub(crate) fn next_work(&self, actor: usize) -> Option<Work> {
        let state = &mut self.actors.borrow_mut()[actor];
        let work = self.actor(actor).work.get(state.next)?.clone();
        if self.is_mended.get() {
            state.last_pieces = state.last_pieces.checked_sub(1)?;
        }
        state.next += 1;
        self.pieces_done.set(self.pieces_done.get() + 1);
        Some(work)
    }

    pub(crate) fn set_condition(&self, actor: usize, condition: Condition) {
        self.actors.borrow_mut()[actor].condition = condition;
    }

    /// The number of an actor's present client in histories.
    pub(crate) fn client(&self, actor: usize) -> u32 {
        let clients = self.actors.borrow()[actor].clients;
        actor as u32 + 1000 * clients
    }

    /// How locks behave.
    pub(crate) fn lock_options(&self) -> LockOptions {
        LockOptions {
            lease_ns: self.plan.setup.lease_ns,
            service: Some(SERVICE),
            roster: Some(ROSTER),
            ..LockOptions::default()
        }
    }

    /// What the clients of an actor's compute node share. Where clients die one by one, each is a compute
    /// node: what is shared dies together.
    pub(crate) fn site(&self, actor: usize) -> Site {
        let options = self.lock_options();
        let ends_clients = |what: &Disturbance| {
            matches!(
                what,
                Disturbance::Crash { .. }
                    | Disturbance::CrashAtPlace { .. }
                    | Disturbance::Pause { .. }
                    | Disturbance::PauseAtPlace { .. }
                    | Disturbance::BreakQueuePair { .. }
                    | Disturbance::Restart { .. }
            )
        };
        if self.plan.faults.iter().any(|fault| ends_clients(&fault.what)) {
            return Site::new(options);
        }
        let on = self.actor(actor).compute_node;
        let mut sites = self.sites.borrow_mut();
        sites.entry(on).or_insert_with(|| Site::new(options)).clone()
    }

    /// Notes who the client of this number is.
    pub(crate) fn introduce(&self, client: u32, endpoint: &Endpoint) {
        self.endpoints.borrow_mut().insert(client, endpoint.id());
    }

    /// A lock was granted with this fencing token.
    ///
    /// # Panics
    /// If a larger one was given out before.
    pub(crate) fn note_token(&self, lock: u64, token: u64, is_shared: bool) {
        let mut tokens = self.tokens.borrow_mut();
        let largest = tokens.entry(lock).or_default();
        assert!(token > *largest, "lock {lock}: token {token} after {largest}");
        if !is_shared {
            *largest = token;
        }
    }

    /// Somebody is about to count under a lock.
    pub(crate) fn begin_count(&self, lock: u64) {
        self.counts.borrow_mut().entry(lock).or_default().1 += 1;
    }

    /// Whoever was about to count has done so, or certainly has not.
    pub(crate) fn end_count(&self, lock: u64, has_counted: bool) {
        let mut counts = self.counts.borrow_mut();
        let (certain, open) = counts.entry(lock).or_default();
        *open -= 1;
        *certain += u64::from(has_counted);
    }

    /// How many counted under a lock, and how many may have.
    pub(crate) fn counts_of(&self, lock: u64) -> (u64, u64) {
        self.counts.borrow().get(&lock).copied().unwrap_or_default()
    }

    /// Notes until when the lease of a hold lasts.
    pub(crate) fn note_lease(&self, place: usize, until_ns: u64) {
        self.leases.borrow_mut().insert(place, until_ns);
    }

    /// A client releases what it holds, or stops waiting; or its lease had run out before.
    pub(crate) fn end_hold(&self, place: usize) {
        let until_ns = self.leases.borrow().get(&place).copied().unwrap_or(u64::MAX);
        self.holds.borrow_mut()[place]
            .ended_ns
            .get_or_insert(self.now_ns().min(until_ns));
    }

    /// An actor's client has died: it holds nothing any more, and waits for nothing.
    pub(crate) fn end_holds(&self, actor: usize) {
        let client = self.client(actor);
        let all = 0..self.holds.borrow().len();
        for place in all.filter(|&place| self.holds.borrow()[place].client == client) {
            self.end_hold(place);
        }
    }

    /// Whoever was cut off could do nothing under its last lock from some time on that only the one
    /// who cut it off knows: that hold proves nothing.
    pub(crate) fn void_holds_of(&self, is_cut_off: impl Fn(EndpointId) -> bool) {
        for (&client, &endpoint) in self.endpoints.borrow().iter() {
            let mut holds = self.holds.borrow_mut();
            let last = holds.iter_mut().rev().find(|hold| hold.client == client);
            if let Some(hold) = last.filter(|hold| hold.granted_ns.is_some() && is_cut_off(endpoint)) {
                hold.ended_ns = hold.granted_ns;
            }
        }
    }

    /// Notes that something was asked; returns its place in the history.
    pub(crate) fn ask(&self, client: u32, key: u64, call: Call) -> usize {
        let mut history = self.history.borrow_mut();
        history.push(Operation {
            client,
            key,
            call,
            start_ns: self.now_ns(),
            end: None,
        });
        history.len() - 1
    }

    /// Notes the answer.
    pub(crate) fn answer(&self, place: usize, answer: Answer) {
        let operation = &mut self.history.borrow_mut()[place];
        operation.end = Some((self.now_ns(), answer));
        let what = match (operation.call, answer) {
            (Call::Get, Answer::Value(None)) => "get: nothing",
            (Call::Get, _) => "get",
            (Call::Put(_), _) => "put",
            (Call::Insert(_), Answer::Happened(true)) => "insert",
            (Call::Insert(_), _) => "insert: there already",
            (Call::Update(_), Answer::Happened(true)) => "update",
            (Call::Update(_), _) => "update: not there",
            (Call::Delete, Answer::Happened(true)) => "delete",
            (Call::Delete, _) => "delete: not there",
            (Call::Take, Answer::Value(None)) => "take: nothing",
            (Call::Take, _) => "take",
            (Call::Add(_), _) => "add",
        };
        self.count("operations answered", what);
    }

    /// Notes that an operation certainly had no effect.
    pub(crate) fn refuse(&self, place: usize) {
        // An open read says nothing, which is what is known.
        self.history.borrow_mut()[place].call = Call::Get;
    }

    /// Whatever an operation read from far memory, it has said why that was whole.
    #[expect(clippy::unused_self, reason = "it is what the tasks share that asks")]
    pub(crate) fn assert_settled(&self, cx: &OpContext) {
        cx.assert_settled();
    }
}
