//! A tree of a few keys, in small scopes.
//!
//! A split or a merge takes some thirty verbs, too many for every order. So the orders are those with few *switches* (context
//! bounding, Musuvathi and Qadeer 2007): a client goes on until it has to wait, but for so many times, at any verb, at which
//! another one goes on. Two bugs of order out of three take two.

use std::collections::BTreeMap;
use std::rc::Rc;

use farside_fabric::Endpoint;
use farside_fabric::OpContext;
use farside_fabric::sim::{Choices, CrashPoint, Explored, Profile, Sim, SimOptions, explore};
use farside_index::tree::Structure;
use farside_index::{Budget, Tree, TreeKind, TreeOptions};
use farside_pool::{FormatOptions, Pool, PoolOptions, Purpose, open_or_format};

use super::{Log, bounded, memory, run_until, with_memory};
use crate::checkers::linearizability;
use crate::history::{Answer, Call};
use crate::plan::TreeSetup;
use crate::scenario::tree::execute;

/// The crash point of the first client is one of so many.
const CRASH_POINTS: usize = 72;
/// No housekeeping while orders are tried.
pub(super) const TICK_NS: u64 = 20_000_000;
/// Whoever waits for a dead client goes on after a few of these.
pub(super) const LEASE_NS: u64 = 5 * TICK_NS;

/// A tree, and who does what with it.
#[derive(Clone, Debug)]
pub struct Scope {
    /// What the leaves are; the smallest ones.
    pub kind: TreeKind,
    /// Whether the fabric has plain atomics only.
    pub is_plain: bool,
    /// What is done before, one after the other.
    pub before: Vec<(u64, Call)>,
    /// What each client does.
    pub clients: Vec<Vec<(u64, Call)>>,
    /// How often a client is interrupted.
    pub switches: u32,
    /// Whether the first client dies, at each of its verbs.
    pub with_crash: bool,
}

/// Every order of the clients' operations with so few switches; returns how many there were, and what the clients have done
/// to the structure in all of them.
///
/// # Panics
/// If a history is not linearizable, or the tree is not sound in the end; the choices that led to it are printed.
#[must_use]
pub fn tree(scope: &Scope, limit: u64) -> (Explored, Structure) {
    let mut all = Structure::default();
    let memory = memory();
    let explored = explore(limit, |choices| {
        let sim = Sim::new(SimOptions {
            profile: Profile {
                has_masked_atomics: !scope.is_plain,
                ..Profile::default()
            },
            ..SimOptions::default()
        });
        with_memory(&sim, &memory, || one_tree(&sim, &choices, scope, &mut all));
    });
    (explored, all)
}

/// Joins the pool; makes it if there is none.
pub(super) async fn join(cx: &mut OpContext) -> Pool {
    let format = FormatOptions {
        clients_max: 8,
        chunk_bytes: Some(4096),
        ..FormatOptions::default()
    };
    let geometry = open_or_format(cx, format).await.expect("a pool");
    let times = PoolOptions {
        tick_ns: TICK_NS,
        lease_ns: LEASE_NS,
    };
    Pool::join(cx, geometry, times).await.expect("a client")
}

async fn open(endpoint: &Endpoint, kind: TreeKind) -> Tree {
    let mut cx = OpContext::new(endpoint.clone());
    let pool = join(&mut cx).await;
    let shape = kind.leaf(if kind.is_hashed() { 4 } else { 2 }, 2);
    let budget = Budget {
        cache_bytes: 1 << 16,
        hotspot_bytes: 1 << 10,
    };
    let options = TreeOptions { shape, budget };
    let tree = Tree::create(&mut cx, pool.clone(), options).await.expect("a tree");
    for bytes in [shape.leaf_block_bytes(), shape.inner_bytes()] {
        pool.restock(bytes, 1, Purpose::Insert).await.expect("room");
    }
    tree
}

/// Does some things one after the other.
async fn perform(log: &Log, endpoint: &Endpoint, tree: &Tree, client: u32, calls: &[(u64, Call)]) {
    let mut cx = OpContext::new(endpoint.clone());
    for &(key, call) in calls {
        let place = log.ask(client, key, call);
        let answer: Answer = execute(&mut cx, tree, TreeSetup::default().key_of(key), call)
            .await
            .expect("nothing is broken");
        cx.assert_settled();
        log.answer(place, answer);
    }
}

fn one_tree(sim: &Sim, choices: &Choices, scope: &Scope, all: &mut Structure) {
    let log = Rc::new(Log::default());
    let reader = sim.endpoint(sim.add_compute_node());
    let last = sim.block_on(open(&reader, scope.kind));
    sim.block_on(perform(&log, &reader, &last, u32::MAX, &scope.before));
    let mut keys: Vec<u64> = scope.clients.iter().flatten().map(|&(key, _)| key).collect();
    keys.extend(scope.before.iter().map(|&(key, _)| key));
    keys.sort_unstable();
    keys.dedup();
    let reads: Vec<(u64, Call)> = keys.into_iter().map(|key| (key, Call::Get)).collect();
    let mut clients = Vec::new();
    for (client, calls) in (0..).zip(&scope.clients) {
        let endpoint = sim.endpoint(sim.add_compute_node());
        let tree = sim.block_on(open(&endpoint, scope.kind));
        // So that it remembers the way, and where the keys are.
        sim.block_on(perform(&log, &endpoint, &tree, client, &reads));
        clients.push((endpoint, tree, calls.clone()));
    }
    // What the first ones have begun comes to an end.
    while last.is_restructuring() {
        sim.run_until(sim.now_ns() + TICK_NS / 100);
    }
    let victim = clients[0].0.id();
    if scope.with_crash {
        let verb = sim.verbs_posted(victim) + 1 + choices.pick(CRASH_POINTS) as u64;
        sim.crash_client_at(victim, CrashPoint { verb, lines: None });
    }
    let trees: Vec<Tree> = clients.iter().map(|(_, tree, _)| tree.clone()).collect();
    sim.set_chooser(Some(bounded(choices, scope.switches, u32::MAX)));
    for (client, (endpoint, tree, calls)) in (0..).zip(clients) {
        let log = Rc::clone(&log);
        endpoint.clone().spawn(async move {
            perform(&log, &endpoint, &tree, client, &calls).await;
            log.end();
        });
    }
    sim.run_until(sim.now_ns());
    sim.set_chooser(None);
    // Whoever sleeps while somebody else works, and whoever waits for the dead.
    let survivors = || scope.clients.len() - usize::from(sim.is_crashed(victim));
    run_until(sim, 10 * LEASE_NS, || {
        let living = &trees[usize::from(sim.is_crashed(victim))..];
        log.ended() >= survivors() && !living.iter().any(Tree::is_restructuring)
    });
    let survivors = survivors();
    assert!(
        log.ended() >= survivors,
        "{} of {survivors} came to an end",
        log.ended()
    );
    sim.block_on(async {
        let mut cx = OpContext::new(reader.clone());
        // Settles what nobody has come by.
        last.walk(&mut cx, &mut |_| {}).await.expect("a walk");
        perform(&log, &reader, &last, u32::MAX, &reads).await;
        // What that has begun comes to an end.
        while last.is_restructuring() {
            reader.sleep(TICK_NS / 100).await;
        }
        let census = last.check(&mut cx).await.expect("a census");
        assert_eq!(census.faults, [""; 0]);
        assert_eq!(census.unsettled, 0, "{census:?}");
    });
    for structure in trees.iter().chain([&last]).map(Tree::structure) {
        all.splits += structure.splits;
        all.merges += structure.merges;
        all.settled += structure.settled;
    }
    if let Err(violation) = linearizability::check(&log.operations(), &BTreeMap::new()) {
        panic!("{violation}");
    }
}
