//! What an acquire and a release cost when nobody is in the way, as equalities.

use farside_fabric::sim::{Sim, SimOptions};
use farside_fabric::{CounterSnapshot, OpContext, VerbKind};
use farside_lock::{Locker, Mode};

use super::exclusion::{LOCK, MEMORY_BYTES};
use super::service::{self, Subject};

/// READs, WRITEs, atomics, SENDs.
type Cost = [u64; 4];

fn cost(counters: CounterSnapshot) -> Cost {
    [
        counters.verbs.of(VerbKind::Read),
        counters.verbs.of(VerbKind::Write),
        counters.verbs.atomics(),
        counters.verbs.of(VerbKind::Send),
    ]
}

pub(crate) fn uncontended(subject: Subject, mode: Mode, [acquire, release]: [Cost; 2]) {
    let sim = Sim::new(SimOptions::default());
    let _ = sim.add_memory_node(MEMORY_BYTES);
    let _agent = service::start(&sim);
    let endpoint = sim.endpoint(sim.add_compute_node());
    let locker = Locker::new(subject.kind, &endpoint, &subject.site()).expect("it has all atomics");
    let mut cx = OpContext::new(endpoint.clone());
    // The first acquire may learn who there is.
    let warm_up = sim.block_on(locker.acquire(&mut cx, LOCK, mode)).expect("it is free");
    sim.block_on(locker.release(&mut cx, warm_up))
        .expect("the node is there");
    for _ in 0..3 {
        let start = endpoint.counters().snapshot();
        let grant = sim.block_on(locker.acquire(&mut cx, LOCK, mode)).expect("it is free");
        let held = endpoint.counters().snapshot();
        sim.block_on(locker.release(&mut cx, grant)).expect("the node is there");
        let end = endpoint.counters().snapshot();
        assert_eq!(cost(held.since(&start)), acquire);
        assert_eq!(cost(end.since(&held)), release);
    }
    assert_eq!(cx.retries(), 0);
}
