//! What a backend provides so that the suite can run on it, and what the tests share.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;

use farside_fabric::{Deadline, Endpoint, LocalFuture, NodeId, RemoteAddr};

/// How many memory nodes the suite asks for.
pub(crate) const NODE_COUNT: u16 = 2;
/// How many bytes each has: no power of two, so that a rounded bound is noticed.
pub(crate) const NODE_BYTES: u64 = (1 << 20) - 64;

/// A test of the suite. It is compiled once, whatever it runs on.
pub(crate) type Body = fn(Cluster) -> LocalFuture<'static, ()>;

/// A backend under test.
pub(crate) trait Fixture {
    /// Makes `nodes` memory nodes of `node_bytes` zeroed bytes each, runs `body` to its end on this
    /// thread, and takes the nodes down. `Spawn` works within.
    fn run(nodes: u16, node_bytes: u64, body: Body);
}

/// The memory nodes of one test, as a backend has them.
pub(crate) trait Nodes {
    /// A new client.
    fn endpoint(&self) -> LocalFuture<'_, Endpoint>;

    /// Takes a node away for good, as a crash does.
    fn stop_node(&self, node: NodeId);

    /// Whether nodes of this backend can stop answering without being gone.
    fn can_stall(&self) -> bool {
        false
    }

    /// Lets a node answer nothing until it is resumed.
    fn stall_node(&self, node: NodeId) {
        panic!("{node} cannot stall; can_stall said so");
    }

    /// Lets a stalled node go on.
    fn resume_node(&self, node: NodeId) {
        panic!("{node} never stalled; can_stall said so");
    }
}

/// The memory nodes of one test. Clones are the same nodes.
pub(crate) type Cluster = Rc<dyn Nodes>;

/// Node 0.
pub(crate) const HERE: NodeId = NodeId::new(0);
/// Node 1.
pub(crate) const THERE: NodeId = NodeId::new(1);

/// A byte of node 0.
pub(crate) fn at(offset: u64) -> RemoteAddr {
    RemoteAddr::new(HERE, offset)
}

/// Longer than anything here takes that does not hang.
pub(crate) fn soon(endpoint: &Endpoint) -> Deadline {
    endpoint.deadline_in(10_000_000_000)
}

/// Runs the tasks beside each other and waits for all.
pub(crate) async fn join_all<F: Future<Output = ()> + 'static>(endpoint: &Endpoint, tasks: Vec<F>) {
    let pending = Rc::new(Cell::new(tasks.len()));
    for task in tasks {
        let pending = pending.clone();
        endpoint.spawn(async move {
            task.await;
            pending.set(pending.get() - 1);
        });
    }
    let deadline = endpoint.deadline_in(60_000_000_000);
    while pending.get() > 0 {
        assert!(
            endpoint.now_ns() < deadline.0,
            "{} tasks hang or panicked",
            pending.get()
        );
        endpoint.sleep(100_000).await;
    }
}

/// A sequence of numbers that a test picks its data from, the same in each run.
pub(crate) fn numbers(seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    })
}
