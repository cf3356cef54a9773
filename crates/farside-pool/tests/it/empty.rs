//! A pool with nobody in it, for tests that let clients join, die and leave, and look at what they have left behind.

use core::cell::RefCell;
use core::sync::atomic::Ordering;
use std::rc::Rc;

use farside_fabric::sim::{Sim, SimOptions};
use farside_fabric::{NodeId, OpContext};
use farside_pool::client::{self, ClientEntry};
use farside_pool::layout::{CLIENT_BYTES, ChunkState};
use farside_pool::{FormatOptions, Geometry, Pool, PoolError, PoolOptions, Purpose, open_or_format};

/// Short times, so that tests are short.
pub(crate) const OPTIONS: PoolOptions = PoolOptions {
    tick_ns: 20_000,
    lease_ns: 2_000_000,
};
/// Nothing happens by itself: no client ticks.
pub(crate) const STILL: PoolOptions = PoolOptions {
    tick_ns: 1_000_000_000,
    lease_ns: 100_000_000_000,
};
/// How many clients the pool has room for: more than are read at once.
pub(crate) const CLIENTS_MAX: u16 = 200;

/// A formatted pool with nobody in it.
pub(crate) struct Empty {
    pub(crate) sim: Sim,
    pub(crate) geometry: Vec<Geometry>,
}

impl Empty {
    pub(crate) fn new(nodes: usize) -> Self {
        let sim = Sim::new(SimOptions::default());
        for _ in 0..nodes {
            let _: NodeId = sim.add_memory_node(1 << 20);
        }
        let mut cx = OpContext::new(sim.endpoint(sim.add_compute_node()));
        let format = FormatOptions {
            clients_max: CLIENTS_MAX,
            chunk_bytes: Some(4096),
            ..FormatOptions::default()
        };
        let geometry = sim.block_on(open_or_format(&mut cx, format)).expect("memory");
        Self { sim, geometry }
    }

    pub(crate) fn context(&self) -> OpContext {
        OpContext::new(self.sim.endpoint(self.sim.add_compute_node()))
    }

    pub(crate) fn join(&self, options: PoolOptions) -> Pool {
        let mut cx = self.context();
        let join = Pool::join(&mut cx, self.geometry.clone(), options);
        self.sim.block_on(join).expect("there is room")
    }

    /// Gets a client blocks of 64 bytes.
    pub(crate) fn stock(&self, pool: &Pool) {
        let restocked = self.sim.block_on(pool.restock(64, 1, Purpose::Insert));
        restocked.expect("memory");
    }

    /// A word of node 0.
    pub(crate) fn word(&self, at: u64) -> u64 {
        self.sim.region(NodeId::new(0)).word(at).load(Ordering::SeqCst)
    }

    pub(crate) fn set(&self, at: u64, value: u64) {
        self.sim.region(NodeId::new(0)).word(at).store(value, Ordering::SeqCst);
    }

    pub(crate) fn entry(&self, index: u16) -> ClientEntry {
        let at = client::entry_addr(index).offset();
        let words = (0..CLIENT_BYTES).step_by(8).map(|word| self.word(at + word));
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        ClientEntry::from_bytes(&bytes)
    }

    /// Lets some time pass.
    pub(crate) fn pass(&self, duration_ns: u64) {
        self.sim.run_until(self.sim.now_ns() + duration_ns);
    }

    /// What a chunk of node 0 is used for.
    pub(crate) fn chunk(&self, index: u64) -> ChunkState {
        let word = self.word(self.geometry[0].chunk_word(index).offset());
        ChunkState::from_word(word).expect("clients wrote it")
    }

    /// Lets the client leave, beside whatever else happens; the answer is there once it has.
    pub(crate) fn leave(&self, pool: &Pool) -> Rc<RefCell<Option<Result<(), PoolError>>>> {
        let answer = Rc::new(RefCell::default());
        let (pool, answered) = (pool.clone(), Rc::clone(&answer));
        self.sim.spawn(async move {
            let left = pool.leave().await;
            *answered.borrow_mut() = Some(left);
        });
        answer
    }
}
