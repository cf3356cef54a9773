//! A pool that grows and shrinks while clients work on it, and while whoever does that dies.
//!
//! A store on two memory nodes; writers, a third node that is added, the second that is drained, a client that comes in the
//! middle. Whoever adds and drains dies after one of its verbs, or a writer does; then another one repeats the command.
//!
//! What it verifies: the history of every key is linearizable, so nothing acknowledged is lost; no client that is alive gets an
//! error; the commands end; the third node is used and the second is empty and left by everybody; afterwards every block is
//! free or linked, exactly once. What it does not verify: nodes that fail meanwhile.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use farside_fabric::sim::{CrashPoint, Sim, SimOptions};
use farside_fabric::{Endpoint, NodeId, OpContext};
use farside_kv::{Expiry, IndexKind, LeafOptions, RaceOptions, SetOptions, Store, StoreConfig};
use farside_pool::layout::MEMBERS_VERSION_AT;
use farside_pool::{FormatOptions, NodeState, PoolOptions, account, open, usage_of_node};
use farside_sim::checkers::linearizability;
use farside_sim::history::{Answer, Call, Operation};

const LEASE_NS: u64 = 300_000;
const NODE_BYTES: u64 = 4 << 20;
/// Keys that writers change, and after those as many that nobody changes.
const KEYS: u64 = 24;
const WRITERS: u32 = 3;
const PATIENCE_NS: u64 = 40 * LEASE_NS;
/// When the keys expire that nobody changes: long after the end.
const EXPIRY_MS: u64 = 4_000_000_000_000;
/// The node that is added, and the one that is drained.
const ADDED: NodeId = NodeId::new(2);
const DRAINED: NodeId = NodeId::new(1);

const CONFIG: StoreConfig = StoreConfig {
    index: Some(IndexKind::Race),
    scheme: farside_sync::Scheme::Farside,
    slots: None,
    race: RaceOptions {
        items: 0,
        subtable_bytes: 768,
        bucket_slots: 2,
    },
    leaf: LeafOptions::PUBLISHED,
    format: FormatOptions {
        clients_max: 16,
        chunk_bytes: Some(4 << 10),
        patience_ns: 5 * LEASE_NS,
    },
    pool: PoolOptions {
        tick_ns: 10_000,
        lease_ns: LEASE_NS,
    },
    timeout_ns: None,
    local_wc: false,
};

/// Who dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Death {
    Nobody,
    /// Whoever adds the node and drains the other, after so many of its verbs.
    Administrator(u64),
    /// A writer, after so many.
    Writer(u64),
}

/// What all clients of a run share.
#[derive(Clone)]
struct World {
    sim: Sim,
    history: Rc<RefCell<Vec<Operation>>>,
    /// What went wrong, of clients that are alive.
    faults: Rc<RefCell<Vec<String>>>,
    must_stop: Rc<Cell<bool>>,
    writing: Rc<Cell<u32>>,
}

fn name(key: u64) -> [u8; 8] {
    key.to_le_bytes()
}

fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..8].try_into().expect("eight bytes"))
}

/// Values of several sizes, so that chunks of several classes are taken.
fn value(number: u64) -> Vec<u8> {
    let mut value = number.to_le_bytes().to_vec();
    value.resize(8 + (number % 5 * 60) as usize, number as u8);
    value
}

impl World {
    fn new(seed: u64) -> Self {
        let sim = Sim::new(SimOptions {
            seed,
            jitter_ns: [0, 500, 3_000, 12_000][seed as usize % 4],
            ..SimOptions::default()
        });
        for _ in 0..3 {
            let _ = sim.add_memory_node(NODE_BYTES);
        }
        Self {
            sim,
            history: Rc::default(),
            faults: Rc::default(),
            must_stop: Rc::default(),
            writing: Rc::default(),
        }
    }

    /// A client that is told of the two nodes that the pool was made with.
    fn client(&self) -> Endpoint {
        self.sim.endpoint_to(self.sim.add_compute_node(), 2)
    }

    fn fault(&self, fault: String) {
        self.faults.borrow_mut().push(fault);
    }

    /// Runs until something is so; says if it is not so in time.
    fn until(&self, what: &str, is_so: impl Fn() -> bool) -> Result<(), String> {
        let end_ns = self.sim.now_ns() + 400 * LEASE_NS;
        while !is_so() {
            if self.sim.now_ns() > end_ns {
                return Err(format!(
                    "{what}: it does not come to an end; {:?}",
                    self.faults.borrow()
                ));
            }
            self.sim.run_until(self.sim.now_ns() + 20_000);
        }
        Ok(())
    }

    /// Lets a writer work until all are to stop.
    fn write(&self, writer: u32, endpoint: &Endpoint) {
        let (world, endpoint) = (self.clone(), endpoint.clone());
        self.writing.set(self.writing.get() + 1);
        endpoint.clone().spawn(async move {
            if let Err(error) = Box::pin(world.work(writer, endpoint)).await {
                world.fault(format!("client {writer}: {error}"));
            }
            world.writing.set(world.writing.get() - 1);
        });
    }

    async fn work(&self, client: u32, endpoint: Endpoint) -> Result<(), String> {
        let store = Store::open(endpoint.clone(), CONFIG)
            .await
            .map_err(|error| error.to_string())?;
        let mut session = store.session();
        let mut count = 0;
        while !self.must_stop.get() {
            count += 1;
            // New keys, too, so that chunks are taken all the time.
            let key = match endpoint.random_below(4) {
                0 => 2 * KEYS + (u64::from(client) << 32 | count),
                _ => endpoint.random_below(KEYS),
            };
            let fresh = u64::from(client) << 32 | count;
            let call = match endpoint.random_below(8) {
                0..4 => Call::Put(fresh),
                4 => Call::Delete,
                _ => Call::Get,
            };
            let at = self.begin(client, key, call);
            let answer = match call {
                Call::Put(number) => session.put(&name(key), &value(number)).await.map(|()| Answer::Done),
                Call::Delete => session.delete(&name(key)).await.map(Answer::Happened),
                _ => session
                    .get(&name(key))
                    .await
                    .map(|found| Answer::Value(found.map(number))),
            };
            let answer = answer.map_err(|error| format!("{call:?} of key {key}: {error}"))?;
            self.history.borrow_mut()[at].end = Some((self.sim.now_ns(), answer));
        }
        drop(session);
        store.close().await.map_err(|error| error.to_string())
    }

    fn begin(&self, client: u32, key: u64, call: Call) -> usize {
        let mut history = self.history.borrow_mut();
        history.push(Operation {
            client,
            key,
            call,
            start_ns: self.sim.now_ns(),
            end: None,
        });
        history.len() - 1
    }

    /// Adds the third node and drains the second; says when that is done.
    fn administer(&self, endpoint: &Endpoint) -> Rc<Cell<bool>> {
        let is_done = Rc::new(Cell::new(false));
        let (world, endpoint, done) = (self.clone(), endpoint.clone(), Rc::clone(&is_done));
        endpoint.clone().spawn(async move {
            match Box::pin(change_nodes(endpoint)).await {
                Ok(()) => done.set(true),
                Err(error) => world.fault(format!("administrator: {error}")),
            }
        });
        is_done
    }
}

async fn change_nodes(endpoint: Endpoint) -> Result<(), String> {
    let mut cx = OpContext::new(endpoint.clone());
    // As a store: it takes part in the search for what the dead held, for which everybody waits.
    let opened = Store::open(endpoint.clone(), CONFIG).await;
    let store = opened.map_err(|error| error.to_string())?;
    let members = store.pool().members(&mut cx).await.map_err(|error| error.to_string())?;
    if members.get(2).is_none_or(|member| member.state != NodeState::Active) {
        let added = store
            .pool()
            .add_node(&mut cx, "sim:2", None, PATIENCE_NS, &mut |_| ())
            .await;
        assert_eq!(added.map_err(|error| error.to_string())?, ADDED);
        // For the others to take memory of it.
        endpoint.sleep(20 * CONFIG.pool.tick_ns).await;
    }
    let drained = store.drain(DRAINED, PATIENCE_NS, &mut |_| ()).await;
    drained.map_err(|error| error.to_string())?;
    store.close().await.map_err(|error| error.to_string())
}

/// What a run came past.
#[derive(Default)]
struct Seen {
    has_died: bool,
}

fn run(seed: u64, death: Death) -> Result<Seen, String> {
    let world = World::new(seed);
    let sim = &world.sim;
    let founder = world.client();
    let is_filled = Rc::new(Cell::new(false));
    let (endpoint, filled, fault) = (founder.clone(), Rc::clone(&is_filled), world.clone());
    founder.spawn(async move {
        if let Err(error) = Box::pin(fill(endpoint)).await {
            fault.fault(format!("founder: {error}"));
        }
        filled.set(true);
    });
    world.until("filling", || is_filled.get())?;

    let writers: Vec<Endpoint> = (0..WRITERS).map(|_| world.client()).collect();
    (0..)
        .zip(&writers)
        .for_each(|(number, writer)| world.write(number, writer));
    sim.run_until(sim.now_ns() + 2 * LEASE_NS);
    let administrator = world.client();
    let victim = match death {
        Death::Nobody => None,
        Death::Administrator(verb) => Some((&administrator, verb)),
        Death::Writer(verb) => Some((&writers[0], verb)),
    };
    if let Some((victim, verbs)) = victim {
        let verb = sim.verbs_posted(victim.id()) + verbs;
        sim.crash_client_at(victim.id(), CrashPoint { verb, lines: None });
    }
    let has_died = || victim.is_some_and(|(victim, _)| sim.is_crashed(victim.id()));
    let is_done = world.administer(&administrator);
    let comes = world.client();
    sim.run_until(sim.now_ns() + seed % 40 * 5_000);
    world.write(WRITERS, &comes);
    if seed % 2 == 1 {
        // One stands still when the node comes, for less than a lease: who does not wait for it goes on without it.
        let version = sim.region(NodeId::new(0));
        let has_come = || version.word(MEMBERS_VERSION_AT).load(Ordering::SeqCst) > 0;
        let end_ns = sim.now_ns() + 10 * LEASE_NS;
        while !has_come() && sim.now_ns() < end_ns {
            sim.run_until(sim.now_ns() + 2_000);
        }
        sim.pause_client(writers[1].id());
        sim.run_until(sim.now_ns() + LEASE_NS * 2 / 3);
        sim.resume_client(writers[1].id());
    }
    let is_over = || is_done.get() || sim.is_crashed(administrator.id()) || !world.faults.borrow().is_empty();
    world.until("the first command", is_over)?;
    if sim.is_crashed(administrator.id()) {
        let again = world.administer(&world.client());
        world.until("the second command", || {
            again.get() || !world.faults.borrow().is_empty()
        })?;
    }
    sim.run_until(sim.now_ns() + 4 * LEASE_NS);
    world.must_stop.set(true);
    let left = || u32::from(has_died() && matches!(death, Death::Writer(_)));
    world.until("the writers", || world.writing.get() == left())?;
    let has_died = has_died();
    if let Some(fault) = world.faults.borrow().first() {
        return Err(fault.clone());
    }
    drop((writers, comes));
    let reads = sim.block_on(Box::pin(look(world.clone())))?;
    world.history.borrow_mut().extend(reads);
    linearizability::check(&world.history.borrow(), &BTreeMap::new()).map_err(|violation| violation.to_string())?;
    Ok(Seen { has_died })
}

/// Keys that nobody changes, some on each node.
async fn fill(endpoint: Endpoint) -> Result<(), String> {
    let store = Store::open(endpoint, CONFIG).await.map_err(|error| error.to_string())?;
    let mut session = store.session();
    let options = SetOptions {
        expiry: Expiry::AtMs(EXPIRY_MS),
        ..SetOptions::default()
    };
    for key in KEYS..2 * KEYS {
        let stored = session.set(&name(key), &value(key), options).await;
        stored.map_err(|error| error.to_string())?;
    }
    drop(session);
    store.close().await.map_err(|error| error.to_string())
}

/// The last look: every key, every block, every node.
async fn look(world: World) -> Result<Vec<Operation>, String> {
    let endpoint = world.client();
    let store = Store::open(endpoint.clone(), CONFIG)
        .await
        .map_err(|error| error.to_string())?;
    store.settle().await.map_err(|error| error.to_string())?;
    let mut session = store.session();
    let mut reads = Vec::new();
    for key in 0..KEYS {
        let start_ns = world.sim.now_ns();
        let found = session.get(&name(key)).await.map_err(|error| error.to_string())?;
        reads.push(Operation {
            client: u32::MAX,
            key,
            call: Call::Get,
            start_ns,
            end: Some((world.sim.now_ns(), Answer::Value(found.map(number)))),
        });
    }
    for key in KEYS..2 * KEYS {
        let found = session
            .get_with_expiry(&name(key))
            .await
            .map_err(|error| error.to_string())?;
        if found != Some((&value(key)[..], EXPIRY_MS)) {
            return Err(format!("key {key}, which nobody has changed, is {found:?}"));
        }
    }
    drop(session);
    store.close().await.map_err(|error| error.to_string())?;

    let mut cx = OpContext::new(world.client());
    let geometry = open(&mut cx).await.map_err(|error| error.to_string())?;
    let mut blocks = Vec::new();
    let walked = farside_index::walk(&mut cx, &geometry, None, &mut |block| blocks.push(block)).await;
    walked.map_err(|error| error.to_string())?;
    let account = account(&mut cx, &geometry, &blocks)
        .await
        .map_err(|error| error.to_string())?;
    if !account.faults.is_empty() || account.blocks_unrecovered > 0 {
        return Err(format!("{account:?}"));
    }
    if cx.endpoint().is_attached(DRAINED) || !geometry[DRAINED.index()].is_absent() {
        return Err("the drained node is still part of the pool".to_owned());
    }
    let usage = usage_of_node(&mut cx, &geometry[ADDED.index()]).await;
    let usage = usage.map_err(|error| error.to_string())?;
    if usage.bytes_by_block.is_empty() {
        return Err("nobody has taken memory of the new node".to_owned());
    }
    // Neither a chunk in use nor a block that is marked free, and no superblock.
    let memory = world.sim.region(DRAINED);
    let word = |offset: u64| memory.word(offset).load(Ordering::SeqCst);
    let shape = farside_pool::Geometry {
        node_bytes: NODE_BYTES,
        ..geometry[0]
    };
    let tables = (shape.chunk_table_at()..shape.chunks_at).step_by(8);
    if word(0) != 0 || tables.clone().any(|offset| word(offset) != 0) {
        return Err("the drained node's tables are not empty".to_owned());
    }
    Ok(reads)
}

/// The check for bugs that are planted: deaths of all kinds, drawn from the seed.
pub(crate) fn grows_and_shrinks(seed: u64) -> Result<(), String> {
    let verbs = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let death = match seed % 3 {
        0 => Death::Nobody,
        1 => Death::Administrator(1 + verbs % 1_500),
        _ => Death::Writer(1 + verbs % 3_000),
    };
    run(seed, death).map(drop)
}

fn deaths(deaths: impl Iterator<Item = (u64, Death)>) -> u32 {
    let mut died = 0;
    for (seed, death) in deaths {
        match run(seed, death) {
            Ok(seen) => died += u32::from(seen.has_died),
            Err(error) => panic!("seed {seed}, {death:?}: {error}"),
        }
    }
    died
}

#[test]
fn a_pool_grows_and_shrinks_while_clients_work() {
    let _ = deaths((1..=40).map(|seed| (seed, Death::Nobody)));
}

#[test]
fn whoever_adds_and_drains_may_die_after_any_verb() {
    let verbs = (1..1_500).step_by(7);
    let died = deaths(verbs.map(|verb| (verb, Death::Administrator(verb))));
    assert!(died > 100, "only {died} deaths");
}

#[test]
fn a_writer_may_die_while_the_pool_grows_and_shrinks() {
    let verbs = (1..3_000).step_by(29);
    let died = deaths(verbs.map(|verb| (verb, Death::Writer(verb))));
    assert!(died > 50, "only {died} deaths");
}
