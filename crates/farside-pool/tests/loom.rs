//! The pool's protocols between clients, under every order that the memory model allows: run by
//! `cargo xtask loom`, empty otherwise.
//!
//! The clients are threads, each with a real [`Pool`] over an endpoint whose verbs are executed at
//! once by a real [`Region`] of modelled words, as shared memory does it. Nothing waits: sleeping
//! moves the client's own clock.

#![cfg(loom)]

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use farside_fabric::region::Region;
use farside_fabric::{
    Backend, Batch, Buffer, Capabilities, Counters, Deadline, Endpoint, EndpointId, FabricError, Fence, Message,
    NodeId, OpContext, Posted, Received, RemoteAddr, Soon, Task, Verb,
};
use farside_pool::client::Liveness;
use farside_pool::layout::{
    CLIENT_BYTES, CLIENTS_AT, CLIENTS_HIGH_AT, CREATOR_AT, DEATHS_AT, EPOCH_AT, Owner, ROOTS_AT,
};
use farside_pool::pool::read_clients;
use farside_pool::{FormatOptions, Geometry, Pool, PoolOptions, Purpose, open, open_or_format};
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use loom::thread;

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 100_000;
    builder.check(model);
}

const CLIENTS_MAX: u16 = 3;
const CHUNK_BYTES: u64 = 4096;
const CHUNK_COUNT: u64 = 8;
const OPTIONS: PoolOptions = PoolOptions {
    tick_ns: 1_000_000,
    lease_ns: 1_000_000_000,
};
const NODE: NodeId = NodeId::new(0);
/// Cache lines of the superblock that hold something; the model has no others.
const LINES: [u64; 7] = [0, 64, EPOCH_AT, DEATHS_AT, CLIENTS_HIGH_AT, CREATOR_AT, ROOTS_AT];
/// Client table, chunk table and free maps follow. Nobody touches what is in the chunks.
const MODEL_BYTES: u64 = LINES.len() as u64 * 64 + CLIENTS_MAX as u64 * CLIENT_BYTES + CHUNK_COUNT * 16;

/// Where the model keeps the byte at this offset of the node.
fn modelled(offset: u64) -> u64 {
    if offset >= CLIENTS_AT {
        return LINES.len() as u64 * 64 + offset - CLIENTS_AT;
    }
    let line = LINES.iter().position(|&line| line == offset / 64 * 64);
    line.expect("a line of the superblock that is used") as u64 * 64 + offset % 64
}

/// A client of the model.
struct Model {
    region: Region,
    id: EndpointId,
    now_ns: Cell<u64>,
    counters: Counters,
    /// Whose process is gone.
    gone: Option<EndpointId>,
}

impl Model {
    fn client(region: &Region, id: u64, gone: Option<EndpointId>) -> Endpoint {
        let model: Rc<dyn Backend> = Rc::new(Self {
            region: region.clone(),
            id: EndpointId(id),
            now_ns: Cell::new(0),
            counters: Counters::default(),
            gone,
        });
        Endpoint::from(model)
    }

    fn run(&self, verb: &Verb, buffer: &mut [u8]) -> u128 {
        let to = |addr: RemoteAddr| RemoteAddr::new(NODE, modelled(addr.offset()));
        let verb = match *verb {
            Verb::Read { source, target } => Verb::Read {
                source: to(source),
                target,
            },
            Verb::Write { source, target } => Verb::Write {
                source,
                target: to(target),
            },
            Verb::ReadWord { source } => Verb::ReadWord { source: to(source) },
            Verb::WriteWord { target, value } => Verb::WriteWord {
                target: to(target),
                value,
            },
            Verb::CompareSwap { target, compare, swap } => Verb::CompareSwap {
                target: to(target),
                compare,
                swap,
            },
            Verb::FetchAdd { target, add } => Verb::FetchAdd {
                target: to(target),
                add,
            },
            other => panic!("the pool has no use for {other:?}"),
        };
        self.region.execute(&verb, buffer)
    }
}

impl Backend for Model {
    fn node_count(&self) -> usize {
        1
    }

    fn node_bytes(&self, _: NodeId) -> Result<u64, FabricError> {
        Ok(2 * CHUNK_BYTES + CHUNK_COUNT * CHUNK_BYTES)
    }

    fn capabilities(&self) -> Capabilities {
        Region::capabilities()
    }

    fn execute<'c>(&'c self, verb: &Verb, buffer: &'c mut Buffer, _: Deadline) -> Posted<'c> {
        Posted::done(Ok(self.run(verb, buffer)))
    }

    fn post<'c>(&'c self, batch: &'c mut Batch, buffer: &'c mut Buffer, _: Deadline) -> Posted<'c> {
        for index in 0..batch.verbs().len() {
            let result = self.run(&batch.verbs()[index], buffer);
            batch.set_result(index, result);
        }
        Posted::done(Ok(0))
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn id(&self) -> EndpointId {
        self.id
    }

    fn send<'c>(&'c self, peer: EndpointId, _: &'c Message, _: Deadline) -> Soon<'c, Result<(), FabricError>> {
        Soon::done(Err(FabricError::PeerUnknown { peer }))
    }

    fn receive(&self, _: Deadline) -> Soon<'_, Result<Received, FabricError>> {
        Soon::done(Err(FabricError::NoMessage))
    }

    fn try_receive(&self) -> Result<Option<Received>, FabricError> {
        Ok(None)
    }

    fn fence(&self, peer: EndpointId, _: Deadline) -> Soon<'_, Result<Fence, FabricError>> {
        let is_gone = Some(peer) == self.gone;
        Soon::done(Ok(if is_gone { Fence::CutOff } else { Fence::StillRunning }))
    }

    fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    fn unix_ms(&self) -> u64 {
        self.now_ns() / 1_000_000
    }

    fn sleep(&self, duration_ns: u64) -> Soon<'_, ()> {
        self.now_ns.set(self.now_ns() + duration_ns);
        Soon::done(())
    }

    fn random(&self) -> u64 {
        self.id.0
    }

    /// The models tick where they want.
    fn spawn(&self, task: Task) {
        drop(task);
    }
}

/// The result of what never waits.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("no verb of the model waits"),
    }
}

/// The memory of a formatted pool.
fn formatted() -> Region {
    let region = Region::anonymous(MODEL_BYTES).expect("modelled memory");
    let options = FormatOptions {
        clients_max: CLIENTS_MAX,
        chunk_bytes: Some(CHUNK_BYTES),
        patience_ns: 0,
    };
    let mut cx = OpContext::new(Model::client(&region, 99, None));
    let geometry = now(open_or_format(&mut cx, options)).expect("a pool");
    assert_eq!(geometry[0].chunk_count, CHUNK_COUNT);
    region
}

/// A client of that pool, and its endpoint.
fn join(region: &Region, id: u64, gone: Option<EndpointId>) -> (Pool, Endpoint) {
    let endpoint = Model::client(region, id, gone);
    let mut cx = OpContext::new(endpoint.clone());
    let geometry: Vec<Geometry> = now(open(&mut cx)).expect("a pool");
    let pool = now(Pool::join(&mut cx, geometry, OPTIONS)).expect("a free entry");
    (pool, endpoint)
}

fn word(region: &Region, offset: u64) -> u64 {
    let cx = &mut OpContext::new(Model::client(region, 98, None));
    now(cx.read_word(RemoteAddr::new(NODE, offset))).expect("a word")
}

#[test]
fn each_client_gets_an_entry_of_its_own() {
    check(2, || {
        let region = formatted();
        let joiners = [1, 2].map(|id| {
            let region = region.clone();
            thread::spawn(move || join(&region, id, None).0.owner())
        });
        let [one, other] = joiners.map(|joiner| joiner.join().expect("no panic"));
        assert_ne!(one.client, other.client);
        assert_eq!(word(&region, CLIENTS_HIGH_AT), 2, "everybody who looks sees both");
        let mut cx = OpContext::new(Model::client(&region, 98, None));
        let clients = now(read_clients(&mut cx, CLIENTS_MAX.into())).expect("the table");
        let found: Vec<Owner> = clients
            .iter()
            .filter(|(_, entry)| entry.is_live())
            .map(|&(client, entry)| Owner {
                client,
                life: entry.life,
            })
            .collect();
        let mut joined = [one, other];
        joined.sort();
        assert_eq!(found, joined);
    });
}

#[test]
fn no_block_is_handed_out_twice() {
    check(2, || {
        let region = formatted();
        let clients = [1, 2].map(|id| {
            let region = region.clone();
            thread::spawn(move || {
                let (pool, _) = join(&region, id, None);
                now(pool.restock(CHUNK_BYTES / 2, 2, Purpose::Overwrite)).expect("there are eight chunks");
                [(); 2].map(|()| pool.allocate(CHUNK_BYTES / 2).expect("as ordered"))
            })
        });
        let mut blocks = clients.map(|client| client.join().expect("no panic")).concat();
        blocks.sort();
        blocks.dedup();
        assert_eq!(blocks.len(), 4);
    });
}

/// A slot, and what is written in the two blocks that it may point to.
struct Shared {
    slot: AtomicU64,
    contents: [AtomicU64; 2],
}

const FIRST: u64 = 1;
const SECOND: u64 = 2;
const REUSED: u64 = 3;

#[test]
fn a_block_is_not_reused_while_it_may_be_read() {
    check(2, || {
        const BYTES: u64 = CHUNK_BYTES / 2;
        let region = formatted();
        let shared = Arc::new(Shared {
            slot: AtomicU64::new(0),
            contents: [0, 1].map(|_| AtomicU64::new(0)),
        });
        let (writer, _) = join(&region, 1, None);
        // Both blocks of one chunk: the third one can only be the first, come back.
        now(writer.restock(BYTES, 2, Purpose::Overwrite)).expect("there are eight chunks");
        let first = writer.allocate(BYTES).expect("as ordered");
        shared.contents[0].store(FIRST, Relaxed);
        shared.slot.store(1, Release);

        let reader = {
            let (region, shared) = (region.clone(), shared.clone());
            thread::spawn(move || read(join(&region, 2, None).0, &shared))
        };
        let pin = writer.pin();
        writer.allocate(BYTES).expect("as ordered");
        shared.contents[1].store(SECOND, Relaxed);
        shared.slot.store(2, Release);
        writer.retire(first, Some(BYTES));
        drop(pin);
        let reuse = || {
            tick(&writer);
            let again = writer.allocate(BYTES);
            again.inspect(|&block| {
                assert_eq!(block, first, "there is no other");
                shared.contents[0].store(REUSED, Relaxed);
            })
        };
        let is_early = (0..2).any(|_| reuse().is_some());
        reader.join().expect("no panic");
        // The reader has left: nothing holds the epoch back any more.
        assert!(
            is_early || (0..8).any(|_| reuse().is_some()),
            "the model never comes to the point"
        );
    });
}

fn tick(pool: &Pool) {
    now(pool.tick()).expect("alive");
}

/// A READ of the slot, a tick of the same client's task, a READ of the block.
fn read(pool: Pool, shared: &Shared) {
    let pin = pool.pin();
    let slot = shared.slot.load(Acquire);
    tick(&pool);
    let (index, expected) = if slot == 1 { (0, FIRST) } else { (1, SECOND) };
    assert_eq!(shared.contents[index].load(Relaxed), expected, "reused too early");
    drop(pin);
    now(pool.leave()).expect("nobody is in the way");
}

#[test]
fn a_dead_client_is_declared_dead_and_announced() {
    check(1, || {
        let region = formatted();
        let (dead, endpoint) = join(&region, 1, None);
        let owner = dead.owner();
        drop((dead, endpoint));
        let judges = [2, 3].map(|id| {
            let region = region.clone();
            thread::spawn(move || {
                let (pool, endpoint) = join(&region, id, Some(EndpointId(1)));
                // The later a client is in the table, the more ticks it waits before it looks, and it waits anew
                // when the epoch moves. It looks twice: the second time the lease has run out.
                let ticks = 2 * pool.owner().client + 2;
                (0..ticks).for_each(|_| tick(&pool));
                now(endpoint.sleep(2 * OPTIONS.lease_ns));
                (0..ticks).for_each(|_| tick(&pool));
            })
        });
        for judge in judges {
            judge.join().expect("no panic");
        }
        // A death that nobody searches for is announced anew.
        assert!(word(&region, DEATHS_AT) >= 1);
        let mut cx = OpContext::new(Model::client(&region, 98, None));
        let clients = now(read_clients(&mut cx, CLIENTS_MAX.into())).expect("the table");
        let dead: Vec<_> = clients
            .iter()
            .filter(|(_, entry)| entry.liveness == Liveness::Dead)
            .collect();
        assert_eq!(dead.len(), 1);
        assert_eq!((dead[0].0, dead[0].1.life), (owner.client, owner.life));
    });
}
