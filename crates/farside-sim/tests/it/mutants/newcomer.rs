//! Checks of clients that join and stand still in the middle of it, while others change what they are looking at.

use std::cell::RefCell;
use std::rc::Rc;

use farside_fabric::sim::{Sim, SimOptions};
use farside_fabric::{Endpoint, OpContext, RemoteAddr};
use farside_index::RaceOptions;
use farside_kv::{IndexKind, Store, StoreConfig};
use farside_pool::{FormatOptions, Geometry, Pool, PoolOptions, Purpose, open_or_format};

const OPTIONS: PoolOptions = PoolOptions {
    tick_ns: 20_000,
    lease_ns: 2_000_000,
};
const BLOCK_BYTES: u64 = 64;
/// How many chunks the dead leave: more than a search keeps, so that some are nobody's afterwards.
const CHUNKS: usize = 4;
/// How many blocks of each are linked: one more than will be unlinked, so that the chunk stays in use.
const LINKED: usize = 2;

/// Clients of a pool, and the blocks that something leads to.
struct World {
    sim: Sim,
    geometry: Vec<Geometry>,
    linked: Rc<RefCell<Vec<RemoteAddr>>>,
}

impl World {
    fn new(seed: u64) -> Self {
        let sim = Sim::new(SimOptions {
            seed,
            jitter_ns: 500,
            ..SimOptions::default()
        });
        let _ = sim.add_memory_node(1 << 20);
        let mut cx = OpContext::new(sim.endpoint(sim.add_compute_node()));
        let format = FormatOptions {
            chunk_bytes: Some(4096),
            ..FormatOptions::default()
        };
        let geometry = sim.block_on(open_or_format(&mut cx, format)).expect("memory");
        Self {
            sim,
            geometry,
            linked: Rc::default(),
        }
    }

    fn pass(&self, duration_ns: u64) {
        self.sim.run_until(self.sim.now_ns() + duration_ns);
    }

    fn join(&self) -> Pool {
        let mut cx = OpContext::new(self.sim.endpoint(self.sim.add_compute_node()));
        let joined = Pool::join(&mut cx, self.geometry.clone(), OPTIONS);
        self.sim.block_on(joined).expect("there is room")
    }

    /// Lets a client take some chunks, of each of which a few blocks are linked, and die.
    fn bereave(&self) {
        let dying = self.join();
        for _ in 0..CHUNKS {
            let restocked = dying.restock(BLOCK_BYTES, 1, Purpose::Insert);
            self.sim.block_on(restocked).expect("there is memory");
            let blocks: Vec<RemoteAddr> = core::iter::from_fn(|| dying.allocate(BLOCK_BYTES)).collect();
            self.linked.borrow_mut().extend(&blocks[..LINKED]);
        }
        self.sim.crash_client(dying.endpoint().id());
        self.pass(3 * OPTIONS.lease_ns);
    }

    /// Has a client begin to search if it must.
    fn search(&self, pool: &Pool) {
        if !pool.needs_recovery() {
            return;
        }
        let (pool, linked) = (pool.clone(), Rc::clone(&self.linked));
        pool.endpoint().clone().spawn(async move {
            let mut cx = OpContext::new(pool.endpoint().clone());
            let walk = async |_: &mut OpContext, found: &mut dyn FnMut(RemoteAddr)| {
                linked.borrow().iter().for_each(|&block| found(block));
                Ok(())
            };
            let found = pool.recover(&mut cx, walk).await;
            found.expect("the node is there");
        });
    }
}

/// A client joins, and stands still while the only other one finds what a dead one has lost and is done with that. No block is free
/// for both of them afterwards.
pub(super) fn who_joins_while_others_search(seed: u64) -> Result<(), String> {
    // From when it has taken its entry until it has joined.
    let still_at_ns = 12_000 + seed % 20 * 1_000;
    let world = World::new(seed);
    let first = world.join();
    world.bereave();
    let joined = Rc::new(RefCell::new(None));
    let endpoint = world.sim.endpoint(world.sim.add_compute_node());
    let (mut cx, geometry, slot) = (
        OpContext::new(endpoint.clone()),
        world.geometry.clone(),
        Rc::clone(&joined),
    );
    endpoint.spawn(async move {
        let pool = Pool::join(&mut cx, geometry, OPTIONS).await;
        *slot.borrow_mut() = Some(pool.expect("there is room"));
    });
    world.pass(still_at_ns);
    world.sim.pause_client(endpoint.id());
    world.search(&first);
    world.pass(OPTIONS.lease_ns / 2);
    world.sim.resume_client(endpoint.id());
    world.pass(20 * OPTIONS.tick_ns);
    let newcomer = joined.take().expect("nobody is waited for");
    // What it unlinks the first reuses, unless somebody searches.
    let unlinked = world.linked.borrow_mut().pop().expect("each chunk has some");
    first.retire(unlinked, Some(BLOCK_BYTES));
    world.pass(20 * OPTIONS.tick_ns);
    world.search(&newcomer);
    world.search(&first);
    world.pass(2 * OPTIONS.lease_ns);
    let free = [first, newcomer].map(|pool| core::iter::from_fn(|| pool.allocate(BLOCK_BYTES)).collect::<Vec<_>>());
    match free[0].iter().find(|block| free[1].contains(block)) {
        Some(block) => Err(format!("two clients have {block}, still at {still_at_ns} ns")),
        None => Ok(()),
    }
}

/// A store that grows with every few keys.
async fn open(endpoint: Endpoint) -> Store {
    let config = StoreConfig {
        index: Some(IndexKind::Race),
        race: RaceOptions {
            subtable_bytes: 768,
            bucket_slots: 1,
            ..RaceOptions::default()
        },
        ..StoreConfig::default()
    };
    Store::open(endpoint, config).await.expect("the node is there")
}

/// A client opens a store, and stands still while another one stores so many keys that the table grows. What it stores then the
/// other one finds.
pub(super) fn who_opens_while_the_table_grows(seed: u64) -> Result<(), String> {
    let still_at_ns = seed * 700 % 100_000;
    let sim = Sim::new(SimOptions {
        seed,
        jitter_ns: 500,
        ..SimOptions::default()
    });
    let _ = sim.add_memory_node(4 << 20);
    let [first, second] = [(); 2].map(|()| sim.endpoint(sim.add_compute_node()));
    let first = sim.block_on(open(first));
    let opened = Rc::new(RefCell::new(None));
    let (endpoint, slot) = (second.clone(), Rc::clone(&opened));
    second.spawn(async move {
        let store = open(endpoint).await;
        *slot.borrow_mut() = Some(store);
    });
    sim.run_until(sim.now_ns() + still_at_ns);
    sim.pause_client(second.id());
    let mut session = first.session();
    for key in 0..40_u64 {
        let key = key.to_be_bytes();
        let put = session.put(&key, b"first");
        sim.block_on(put).map_err(|error| error.to_string())?;
    }
    sim.resume_client(second.id());
    // Less than a tick, at which it would learn of changes.
    sim.run_until(sim.now_ns() + 200_000);
    let second = opened.take().expect("nobody is waited for");
    let mut other = second.session();
    for key in 40..80_u64 {
        let key = key.to_be_bytes();
        sim.block_on(other.put(&key, b"second"))
            .map_err(|error| error.to_string())?;
        let found = sim.block_on(session.get(&key)).map_err(|error| error.to_string())?;
        if found.is_none() {
            return Err(format!(
                "{key:?} is not where the other client looks for it, still at {still_at_ns} ns"
            ));
        }
    }
    Ok(())
}
