//! A small simulated world, for tests of what is seen from inside the crate only.

use core::cell::Cell;
use core::future::Future;
use std::rc::Rc;

use farside_fabric::sim::{ComputeNodeId, Sim, SimOptions};
use farside_fabric::{CounterSnapshot, Endpoint, NodeId, OpContext, RemoteAddr, VerbKind};

use crate::{LockOptions, Site};

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
