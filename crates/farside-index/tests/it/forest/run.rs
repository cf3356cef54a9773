//! Many clients on one tree, faults among them, and what has to hold at the end.

use core::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use farside_fabric::Endpoint;
use farside_fabric::OpContext;
use farside_fabric::sim::{CrashPoint, SimOptions};
use farside_index::{IndexError, Shape, Tree};
use farside_pool::account;

use super::client::recover;
use super::history::{Answer, Call, Event, History};
use super::{Forest, LEASE_NS, open_tree};

/// What a run does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) shape: Shape,
    pub(crate) nodes: usize,
    pub(crate) clients: usize,
    pub(crate) operations: usize,
    pub(crate) keys: u64,
    /// Whether every key is there before the clients begin.
    pub(crate) is_filled: bool,
    /// How often of eight times a change deletes.
    pub(crate) deletes: u64,
    /// How long clients think at most.
    pub(crate) pause_ns: u64,
    pub(crate) tear_bytes: u64,
    pub(crate) cache_bytes: usize,
    /// The first client dies at this verb after it has joined, or in the middle of it.
    pub(crate) crash: Option<(u64, Option<u32>)>,
}

/// What a run has seen.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Outcome {
    pub(crate) splits: u64,
    pub(crate) merges: u64,
    pub(crate) inner_merges: u64,
    pub(crate) lowered: u64,
    pub(crate) settled: u64,
    /// Internal nodes at the end.
    pub(crate) inner: u64,
    /// Verbs of the first client after it had joined.
    pub(crate) verbs: u64,
}

struct State {
    history: RefCell<History>,
    is_done: Vec<Cell<bool>>,
    values: Cell<u64>,
    trees: RefCell<Vec<Option<Tree>>>,
}

/// Spreads the keys, so that leaves have gaps.
fn key_of(number: u64) -> u64 {
    number * 0x0100_0000_0000_0003
}

async fn ask(cx: &mut OpContext, tree: &Tree, key: u64, call: Call) -> Result<Answer, IndexError> {
    Ok(match call {
        Call::Put(value) => Answer::Changed(tree.put(cx, key, value).await?),
        Call::Insert(value) => Answer::Is(tree.insert(cx, key, value).await?),
        Call::Update(value) => Answer::Is(tree.update(cx, key, value).await?),
        Call::Delete => Answer::Is(tree.delete(cx, key).await?),
        Call::Search => Answer::Read(tree.search(cx, key).await?),
    })
}

async fn work(endpoint: Endpoint, tree: Tree, plan: Plan, state: Rc<State>) {
    let mut cx = OpContext::new(endpoint.clone());
    for round in 0..plan.operations {
        endpoint.sleep(endpoint.random_below(plan.pause_ns)).await;
        let draw = endpoint.random_below(16);
        if draw == 0 {
            scan(&mut cx, &tree, plan, &state).await;
            continue;
        }
        let key = key_of(endpoint.random_below(plan.keys));
        // Where much is deleted, the tree grows first.
        let is_growing = plan.deletes > 5 && !plan.is_filled && round < plan.operations / 2;
        let deletes = if is_growing { 0 } else { plan.deletes };
        let value = state.values.replace(state.values.get() + 1);
        let call = match draw {
            1..5 => Call::Search,
            5..7 => Call::Update(value),
            7..9 => Call::Insert(value),
            _ if endpoint.random_below(8) < deletes => Call::Delete,
            _ => Call::Put(value),
        };
        let start = endpoint.now_ns();
        // Noted beforehand: a client that dies gives no answer.
        let index = {
            let mut history = state.history.borrow_mut();
            let event = Event {
                call,
                start,
                end: u64::MAX,
                answer: None,
            };
            history.push(key, event);
            history.events[&key].len() - 1
        };
        let answer = ask(&mut cx, &tree, key, call)
            .await
            .unwrap_or_else(|error| panic!("{call:?} of {key}: {error}"));
        cx.assert_settled();
        let mut history = state.history.borrow_mut();
        let event = &mut history.events.get_mut(&key).expect("noted")[index];
        (event.end, event.answer) = (endpoint.now_ns(), Some(answer));
    }
}

/// Stores every key.
async fn fill(endpoint: Endpoint, tree: Tree, plan: Plan, state: Rc<State>) {
    let mut cx = OpContext::new(endpoint.clone());
    for number in 0..plan.keys {
        let (key, value) = (
            key_of(number * 7 % plan.keys),
            state.values.replace(state.values.get() + 1),
        );
        let (start, call) = (endpoint.now_ns(), Call::Put(value));
        let answer = Some(ask(&mut cx, &tree, key, call).await.expect("a put"));
        let end = endpoint.now_ns();
        state.history.borrow_mut().push(
            key,
            Event {
                call,
                start,
                end,
                answer,
            },
        );
    }
}

/// A scan is a SEARCH of every key in its range.
async fn scan(cx: &mut OpContext, tree: &Tree, plan: Plan, state: &State) {
    let (first, count) = (
        cx.endpoint().random_below(plan.keys),
        1 + cx.endpoint().random_below(12) as usize,
    );
    let start = cx.endpoint().now_ns();
    let mut seen = Vec::new();
    let next = tree
        .scan(cx, key_of(first), count, &mut |key, value| {
            seen.push((key as u64, value));
        })
        .await
        .expect("a scan");
    cx.assert_settled();
    assert!(seen.is_sorted_by(|a, b| a.0 < b.0), "no key twice, in order: {seen:?}");
    let end = cx.endpoint().now_ns();
    let seen: BTreeMap<u64, u64> = seen.into_iter().collect();
    for number in first..plan.keys {
        let key = key_of(number);
        if next.is_some_and(|next| u128::from(key) >= next) {
            break;
        }
        let answer = Some(Answer::Read(seen.get(&key).copied()));
        state.history.borrow_mut().push(
            key,
            Event {
                call: Call::Search,
                start,
                end,
                answer,
            },
        );
    }
}

/// Runs a plan, and checks everything that has to hold.
pub(crate) fn run(plan: Plan) -> Outcome {
    let options = SimOptions {
        seed: plan.seed,
        tear_bytes: plan.tear_bytes,
        jitter_ns: 2_000,
        ..SimOptions::default()
    };
    let forest = Forest::new(options, plan.shape, plan.nodes);
    let sim = forest.sim.clone();
    let state = Rc::new(State {
        history: RefCell::default(),
        is_done: vec![Cell::new(false); plan.clients],
        values: Cell::new(1),
        trees: RefCell::new(vec![None; plan.clients]),
    });
    let endpoints: Vec<Endpoint> = (0..plan.clients).map(|_| forest.endpoint()).collect();
    let mut outcome = Outcome::default();
    for (index, endpoint) in endpoints.iter().enumerate() {
        let tree = sim.block_on(open_tree(endpoint, plan.shape, plan.cache_bytes));
        state.trees.borrow_mut()[index] = Some(tree.clone());
        endpoint.spawn(recover(endpoint.clone(), tree));
    }
    if plan.is_filled {
        let tree = state.trees.borrow()[plan.clients - 1].clone().expect("it has one");
        sim.block_on(fill(endpoints[plan.clients - 1].clone(), tree, plan, Rc::clone(&state)));
    }
    let joined = sim.verbs_posted(endpoints[0].id());
    if let Some((verb, lines)) = plan.crash {
        let verb = sim.verbs_posted(endpoints[0].id()) + verb;
        sim.crash_client_at(endpoints[0].id(), CrashPoint { verb, lines });
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        let (endpoint, state) = (endpoint.clone(), Rc::clone(&state));
        let tree = state.trees.borrow()[index].clone().expect("it has one");
        endpoint.clone().spawn(async move {
            work(endpoint, tree, plan, Rc::clone(&state)).await;
            state.is_done[index].set(true);
        });
    }
    let has_crashed = || plan.crash.is_some() && sim.is_crashed(endpoints[0].id());
    // Every operation ends: one that waits for a dead client goes on when its lease has run out.
    let end = sim.now_ns() + 60 * LEASE_NS + plan.operations as u64 * 200_000;
    let is_at_work = |index: usize| !state.is_done[index].get() && !sim.is_crashed(endpoints[index].id());
    while (0..plan.clients).any(is_at_work) {
        sim.run_until(sim.now_ns() + LEASE_NS / 4);
        assert!(sim.now_ns() < end, "clients do not come to an end");
    }
    if plan.crash.is_some() && !has_crashed() {
        // The verb would come later: nobody waits for it.
        sim.crash_client(endpoints[0].id());
    }
    outcome.verbs = sim.verbs_posted(endpoints[0].id()) - joined;
    let has_died = has_crashed();
    if has_died {
        // Its lease has to run out, and what it held has to be found.
        sim.run_until(sim.now_ns() + 12 * LEASE_NS);
    }
    let survivors: Vec<usize> = (usize::from(has_died)..plan.clients).collect();
    let checker = survivors[0];
    let tree = state.trees.borrow()[checker].clone().expect("it has one");
    let census = sim.block_on(async {
        let mut cx = OpContext::new(endpoints[checker].clone());
        for &index in &survivors {
            let tree = state.trees.borrow()[index].clone().expect("it has one");
            forest.settle(&endpoints[index], &tree).await;
        }
        if has_died {
            // Settles what nobody has come by.
            tree.walk(&mut cx, &mut |_| {}).await.expect("a walk");
            forest.settle(&endpoints[checker], &tree).await;
        }
        let census = tree.check(&mut cx).await.expect("a census");
        cx.validated();
        census
    });
    outcome.inner = census.inner;
    assert_eq!(census.faults, [""; 0]);
    assert_eq!(census.unsettled, 0, "{census:?}");
    if !has_died {
        assert_eq!((census.half_split, census.half_merged), (0, 0));
    }
    if let Some((key, events)) = state.history.borrow().unexplained(&census.narrow_items()) {
        panic!(
            "no order explains key {key}, which is {:?}: {events:#?}",
            census.narrow_items().get(&key)
        );
    }
    for &index in &survivors {
        let tree = state.trees.borrow_mut()[index].take().expect("it has one");
        let structure = tree.structure();
        outcome.splits += structure.splits;
        outcome.merges += structure.merges;
        outcome.inner_merges += structure.inner_merges;
        outcome.lowered += structure.lowered;
        outcome.settled += structure.settled;
        let pool = tree.pool().clone();
        drop(tree);
        sim.block_on(pool.leave()).expect("leave");
    }
    let blocks: Vec<_> = census.blocks.iter().copied().collect();
    let observer = forest.endpoint();
    sim.block_on(async move {
        let mut cx = OpContext::new(observer);
        let geometry = farside_pool::open(&mut cx).await.expect("a pool");
        let account = account(&mut cx, &geometry, &blocks).await.expect("an account");
        assert_eq!(account.faults, [""; 0], "{account:?}");
        assert_eq!((account.clients_live, account.clients_dead), (0, 0));
    });
    outcome
}
