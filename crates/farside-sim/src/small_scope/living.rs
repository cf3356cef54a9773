//! A store whose clients live in time, in small scopes: epochs pass and blocks are used again while others read, one client
//! dies, the others find out, search for what it held, and go on.
//!
//! As with trees the orders are those with few switches, or with few requests that are held back. Each step takes some time, so
//! housekeeping takes its turns among them.

use std::collections::BTreeMap;
use std::rc::Rc;

use farside_fabric::region::Region;
use farside_fabric::sim::{Choices, CrashPoint, Explored, Sim, SimOptions, explore};
use farside_fabric::{Endpoint, NodeId};
use farside_kv::{IndexKind, Store, StoreConfig};
use farside_pool::PoolOptions;
use farside_sync::Scheme;

use super::{IN_A_ROW, INITIAL, Log, Orders, config, memory};
use crate::alarm::Alarm;
use crate::checkers::linearizability;
use crate::history::Call;
use crate::scenario::store;

/// So long takes a verb.
const STEP_NS: u64 = 300;
/// Everybody has come to an end after so many leases.
const PATIENCE_LEASES: u64 = 60;
/// The crash point of the first client is one of so many, the first being none.
const CRASH_POINTS: usize = 16;

/// A store, and who does what with its key.
#[derive(Clone, Debug)]
pub struct StoreScope {
    /// What it is made of.
    pub kind: (IndexKind, Scheme),
    /// How many memory nodes: what goes to one of them may be held back while the client goes on with the others.
    pub nodes: u16,
    /// What each client does.
    pub clients: Vec<Vec<Call>>,
    /// In which orders.
    pub orders: Orders,
    /// How often everybody looks around, and after how long the dead are found out. A verb takes 300 ns.
    pub times: PoolOptions,
    /// Whether the first client dies, at each of its first verbs.
    pub with_crash: bool,
}

/// What happened in all orders together.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Events {
    /// In how many of them the first client died.
    pub deaths: u64,
    /// How many clients were held back for longer than their leases, and cut off.
    pub cut_off: u64,
    /// Writes that queued up, or took a lock.
    pub pessimistic: u64,
    /// Writes that somebody else acted for.
    pub combined: u64,
}

/// Every order of the clients' operations of a kind, if there are no more than `limit`.
///
/// # Panics
/// If a history is not linearizable, a block was used again too early or is neither linked nor free in the end, or somebody who
/// has not died does not come to an end; the choices that led to it are printed.
#[must_use]
pub fn living_store(scope: &StoreScope, limit: u64) -> (Explored, Events) {
    let memories: Vec<Region> = (0..scope.nodes).map(|_| memory()).collect();
    let config = StoreConfig {
        pool: scope.times,
        ..config(scope.kind)
    };
    let mut events = Events::default();
    let explored = explore(limit, |choices| {
        let sim = Sim::new(SimOptions {
            step_ns: STEP_NS,
            ..SimOptions::default()
        });
        let _alarm = tracing::subscriber::set_default(Alarm);
        let nodes: Vec<NodeId> = memories
            .iter()
            .map(|memory| sim.add_memory_node_with(memory.clone()))
            .collect();
        nodes.iter().for_each(|&node| sim.keep_changes(node));
        one_store(&sim, &choices, scope, config, &mut events);
        nodes.iter().for_each(|&node| sim.undo_changes(node));
    });
    (explored, events)
}

fn one_store(sim: &Sim, choices: &Choices, scope: &StoreScope, config: StoreConfig, events: &mut Events) {
    let open = async |endpoint: &Endpoint| Store::open(endpoint.clone(), config).await.expect("a store");
    let lease_ns = config.pool.lease_ns;
    let log = Rc::new(Log::default());
    let first = sim.endpoint(sim.add_compute_node());
    sim.block_on(async {
        let store = open(&first).await;
        log.perform(&mut store.session(), u32::MAX, Call::Put(INITIAL)).await;
        store.close().await.expect("nothing is broken");
    });
    let clients: Vec<(Endpoint, Store)> = scope
        .clients
        .iter()
        .map(|_| {
            let endpoint = sim.endpoint(sim.add_compute_node());
            let store = sim.block_on(open(&endpoint));
            (endpoint, store)
        })
        .collect();
    let victim = clients[0].0.id();
    if scope.with_crash {
        let crash = choices.pick(CRASH_POINTS) as u64;
        if crash > 0 {
            let verb = sim.verbs_posted(victim) + crash;
            sim.crash_client_at(victim, CrashPoint { verb, lines: None });
        }
    }
    sim.set_chooser(Some(scope.orders.chooser(choices, IN_A_ROW)));
    let stores: Vec<Store> = clients.iter().map(|(_, store)| store.clone()).collect();
    for ((client, (endpoint, store)), calls) in (0..).zip(clients).zip(scope.clients.clone()) {
        let log = Rc::clone(&log);
        endpoint.spawn(async move {
            let mut session = store.session();
            for call in calls {
                if let Err(error) = log.attempt(&mut session, client, call).await {
                    assert!(error.is_cut_off(), "{error}");
                    break;
                }
            }
            log.end();
        });
    }
    let mut survivors = stores.len();
    for _ in 0..PATIENCE_LEASES {
        sim.run_until(sim.now_ns() + lease_ns);
        survivors = stores.len() - usize::from(sim.is_crashed(victim));
        if log.ended() >= survivors {
            break;
        }
    }
    sim.set_chooser(None);
    assert!(
        log.ended() >= survivors,
        "{} of {survivors} came to an end",
        log.ended()
    );
    events.deaths += u64::from(sim.is_crashed(victim));
    let mut has_lost = sim.is_crashed(victim);
    for store in stores {
        let counted = store.index().combined();
        events.pessimistic += counted.pessimistic;
        events.combined += counted.combined;
        let client = store.endpoint().id();
        if sim.is_fenced(client) {
            events.cut_off += 1;
            has_lost = true;
            store.abandon();
        } else if !sim.is_crashed(client) {
            let closed = sim.block_on(store.close());
            assert!(closed.is_ok() || sim.is_fenced(client), "{closed:?}");
            has_lost |= closed.is_err();
        }
    }
    let reader = sim.endpoint(sim.add_compute_node());
    sim.block_on(async {
        let store = open(&reader).await;
        // What the lost ones held has to be found; the others have left nothing behind.
        let leases = if has_lost { 20 } else { 2 };
        reader.sleep(leases * lease_ns).await;
        store.settle().await.expect("nothing is broken");
        log.perform(&mut store.session(), u32::MAX, Call::Get).await;
        store.close().await.expect("nothing is broken");
    });
    if let Err(failure) = store::examine(sim) {
        panic!("{failure}");
    }
    if let Err(violation) = linearizability::check(&log.operations(), &BTreeMap::new()) {
        panic!("{violation}");
    }
}
