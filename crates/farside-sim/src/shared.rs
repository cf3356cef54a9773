//! What the tasks of a run share: who has how much left to do, what was asked and answered.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use farside_fabric::sim::Endpoint;
use farside_fabric::{Clock, OpContext};
use farside_lock::Site;

use crate::coverage::Coverage;
use crate::history::{Answer, Call, Hold, Operation};
use crate::plan::{Actor, Plan, Work};

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
    /// When the only memory node went down and came back blank.
    pub(crate) losses: RefCell<Vec<(u64, u64)>>,
    pub(crate) pieces_done: Cell<u64>,
}

impl Shared {
    pub(crate) fn new(plan: Plan, observer: Endpoint) -> Self {
        let actors = plan.actors.iter().map(|_| ActorState {
            condition: Condition::NeedsClient,
            endpoint: None,
            next: 0,
            clients: 0,
        });
        Self {
            actors: RefCell::new(actors.collect()),
            plan,
            observer,
            history: RefCell::default(),
            holds: RefCell::default(),
            sites: RefCell::default(),
            coverage: RefCell::default(),
            losses: RefCell::default(),
            pieces_done: Cell::new(0),
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

    /// What the clients of an actor's compute node share.
    pub(crate) fn site(&self, actor: usize) -> Site {
        let on = self.actor(actor).compute_node;
        self.sites.borrow_mut().entry(on).or_default().clone()
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
    pub(crate) fn assert_settled(&self, cx: &OpContext<Endpoint>) {
        cx.assert_settled();
    }
}
