//! A small simulated world, for tests of what is seen from inside the crate only.

use core::cell::Cell;
use core::future::Future;
use std::rc::Rc;

use farside_fabric::sim::{ComputeNodeId, Sim, SimOptions};
use farside_fabric::{CounterSnapshot, Endpoint, NodeId, OpContext, RemoteAddr, VerbKind};

use crate::{Grant, Lock, LockOptions, Mode, Site};

pub(crate) const NODE: NodeId = NodeId::new(0);
pub(crate) const LOCK: RemoteAddr = RemoteAddr::new(NODE, 64);
const BLOCK: RemoteAddr = RemoteAddr::new(NODE, 1024);
pub(crate) const ROSTER: RemoteAddr = RemoteAddr::new(NODE, 4096);
pub(crate) const LEASE_NS: u64 = 1_000_000;

/// READs, WRITEs, atomics, SENDs.
pub(crate) type Cost = [u64; 4];

/// One memory node, and machines that come when they are wanted.
pub(crate) struct Stage {
    pub(crate) sim: Sim,
}

/// A machine with one client.
pub(crate) struct Machine {
    pub(crate) compute_node: ComputeNodeId,
    pub(crate) endpoint: Endpoint,
    pub(crate) site: Site,
}

/// A task, of which only matters whether it has come to its end, and what with.
pub(crate) struct Watched<T>(Rc<Cell<Option<T>>>);

impl<T> Watched<T> {
    /// What came of it; `None` as long as it goes on.
    pub(crate) fn take(&self) -> Option<T> {
        self.0.take()
    }
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::with(SimOptions::default())
    }

    pub(crate) fn with(options: SimOptions) -> Self {
        let sim = Sim::new(options);
        assert_eq!(sim.add_memory_node(16 << 10), NODE);
        Self { sim }
    }

    pub(crate) fn options() -> LockOptions {
        LockOptions {
            lease_ns: LEASE_NS,
            service: Some(BLOCK),
            roster: Some(ROSTER),
            ..LockOptions::default()
        }
    }

    pub(crate) fn machine(&self) -> Machine {
        self.machine_with(Self::options())
    }

    pub(crate) fn machine_with(&self, options: LockOptions) -> Machine {
        let compute_node = self.sim.add_compute_node();
        Machine {
            compute_node,
            endpoint: self.sim.endpoint(compute_node),
            site: Site::new(options),
        }
    }

    pub(crate) fn word(&self, at: RemoteAddr) -> u64 {
        let mut bytes = [0; 8];
        self.sim.region(NODE).read(at.offset(), &mut bytes);
        u64::from_le_bytes(bytes)
    }

    pub(crate) fn set_word(&self, at: RemoteAddr, word: u64) {
        self.sim.region(NODE).write(at.offset(), &word.to_le_bytes());
    }

    /// Takes the lock, which a client can get.
    pub(crate) fn take(&self, lock: &impl Lock, cx: &mut OpContext, mode: Mode) -> Grant {
        let acquired = self.sim.block_on(lock.acquire(cx, LOCK, mode));
        acquired.expect("it is free in the end")
    }

    /// Gives it back.
    pub(crate) fn give_back(&self, lock: &impl Lock, cx: &mut OpContext, grant: Grant) {
        let released = self.sim.block_on(lock.release(cx, grant));
        released.expect("the node is there");
    }

    /// Lets writers queue up one after the other, each with what it needs to give the lock back.
    pub(crate) fn queue_up<L: Lock + 'static>(
        &self,
        machines: &[Machine],
        lock: impl Fn(&Machine) -> L,
    ) -> Vec<Watched<(L, OpContext, Grant)>> {
        let queue_up = |machine: &Machine| {
            let (lock, mut cx) = (lock(machine), machine.cx());
            let held = machine.spawn(async move {
                let grant = lock.acquire(&mut cx, LOCK, Mode::Exclusive).await;
                (lock, cx, grant.expect("the node is there"))
            });
            self.run_for(20_000);
            held
        };
        machines.iter().map(queue_up).collect()
    }

    /// Goes on for so long.
    pub(crate) fn run_for(&self, duration_ns: u64) {
        self.sim.run_until(self.sim.now_ns() + duration_ns);
    }
}

impl Machine {
    pub(crate) fn cx(&self) -> OpContext {
        OpContext::new(self.endpoint.clone())
    }

    pub(crate) fn spawn<T: 'static>(&self, work: impl Future<Output = T> + 'static) -> Watched<T> {
        let result = Rc::new(Cell::new(None));
        let watched = Watched(Rc::clone(&result));
        self.endpoint.spawn(async move { result.set(Some(work.await)) });
        watched
    }

    /// The number that the next seat has: one that was given back, if there is any.
    pub(crate) fn next_seat(&self) -> u16 {
        let inbox = self.site.inbox(self.endpoint.id());
        inbox.take_seat(LOCK).expect("a seat").number()
    }

    /// What it has posted since then.
    pub(crate) fn cost_since(&self, start: &CounterSnapshot) -> Cost {
        let verbs = self.endpoint.counters().snapshot().since(start).verbs;
        [
            verbs.of(VerbKind::Read),
            verbs.of(VerbKind::Write),
            verbs.atomics(),
            verbs.of(VerbKind::Send),
        ]
    }

    pub(crate) fn costs(&self) -> CounterSnapshot {
        self.endpoint.counters().snapshot()
    }
}
