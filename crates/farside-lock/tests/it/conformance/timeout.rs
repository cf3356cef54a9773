//! Deadlines: an acquire ends at its own, and leaves nothing that a later one would trip over.

use farside_fabric::sim::{Sim, SimOptions};
use farside_fabric::{Deadline, Endpoint, OpContext};
use farside_lock::{LockError, LockKind, Locker, Mode};

use super::exclusion::{LOCK, MEMORY_BYTES};
use super::place::Place;
use super::service::{self, Subject};
use crate::on_this_thread;

/// How long clients wait.
#[derive(Clone, Copy)]
struct Patience {
    /// For what they will not get.
    vain_ns: u64,
    /// For what they will.
    sure_ns: u64,
}

const SIMULATED: Patience = Patience {
    vain_ns: 100_000,
    sure_ns: 100_000,
};
/// Whoever does not run for a while has not failed.
const REAL: Patience = Patience {
    // Long enough for a second attempt on an emulated machine that has little time.
    vain_ns: 100_000_000,
    sure_ns: 30_000_000_000,
};

/// One client holds the lock, the other gives up, and gets it when it is free.
async fn gives_up(subject: Subject, first: Endpoint, second: Endpoint, patience: Patience) {
    let site = subject.site();
    let new = |endpoint| Locker::new(subject.kind, endpoint, &site).expect("it has all atomics");
    let (holder, waiter) = (new(&first), new(&second));
    let (mut cx, mut waiting) = (OpContext::new(first), OpContext::new(second));
    let grant = holder
        .acquire(&mut cx, LOCK, Mode::Exclusive)
        .await
        .expect("it is free");
    assert_eq!((grant.entry(), grant.mode()), (LOCK, Mode::Exclusive));
    let start_ns = waiting.endpoint().now_ns();
    waiting.set_deadline(Deadline(start_ns + patience.vain_ns));
    let refused = waiter.acquire(&mut waiting, LOCK, Mode::Exclusive).await;
    assert_eq!(refused, Err(LockError::Timeout { entry: LOCK }));
    assert!(waiting.endpoint().now_ns() >= start_ns + patience.vain_ns);
    assert!(
        waiting.retries() > 0 || matches!(subject.kind, LockKind::DecLock(_)) || subject.kind.is_ordered(),
        "whoever does not queue up tries again"
    );

    holder.release(&mut cx, grant).await.expect("the node is there");
    waiting.set_deadline(Deadline::NEVER);
    let grant = waiter
        .acquire(&mut waiting, LOCK, Mode::Exclusive)
        .await
        .expect("it is free");
    waiter.release(&mut waiting, grant).await.expect("the node is there");
    assert!(is_free(&mut cx, &holder, patience.sure_ns).await, "nobody holds it");
}

/// Whether a client that has nothing to do with it is granted the lock, before its patience ends.
async fn is_free(cx: &mut OpContext, locker: &Locker, patience_ns: u64) -> bool {
    cx.set_deadline(Deadline(cx.endpoint().now_ns() + patience_ns));
    let acquired = locker.acquire(cx, LOCK, Mode::Exclusive).await;
    cx.set_deadline(Deadline::NEVER);
    match acquired {
        Ok(grant) => {
            locker.release(cx, grant).await.expect("the node is there");
            true
        }
        Err(error) => {
            assert_eq!(error, LockError::Timeout { entry: LOCK });
            false
        }
    }
}

pub(crate) fn simulated(subject: Subject) {
    let sim = Sim::new(SimOptions::default());
    let _ = sim.add_memory_node(MEMORY_BYTES);
    let _agent = service::start(&sim);
    let compute_node = sim.add_compute_node();
    let (first, second) = (sim.endpoint(compute_node), sim.endpoint(compute_node));
    sim.block_on(gives_up(subject, first, second, SIMULATED));
}

pub(crate) fn real<P: Place>(subject: Subject) {
    let place = P::start();
    on_this_thread(async {
        let endpoints = (place.endpoint().await, place.endpoint().await);
        gives_up(subject, endpoints.0, endpoints.1, REAL).await;
    });
}

/// The atomic takes effect after its client has stopped waiting for it: nobody may hold the lock then.
pub(crate) fn late_grant(subject: Subject) {
    let sim = Sim::new(SimOptions::default());
    let _ = sim.add_memory_node(MEMORY_BYTES);
    let _agent = service::start(&sim);
    let compute_node = sim.add_compute_node();
    let (endpoint, other) = (sim.endpoint(compute_node), sim.endpoint(compute_node));
    let site = subject.site();
    let locker = Locker::new(subject.kind, &endpoint, &site).expect("it has all atomics");
    // Not of the same site: there, a lock may change hands without a verb.
    let observer = Locker::new(subject.kind, &other, &subject.site()).expect("it has all atomics");
    let (mut cx, mut observing) = (OpContext::new(endpoint.clone()), OpContext::new(other));
    sim.block_on(async {
        cx.set_deadline(Deadline(endpoint.now_ns() + 500));
        let refused = locker.acquire(&mut cx, LOCK, Mode::Exclusive).await;
        assert_eq!(refused, Err(LockError::Timeout { entry: LOCK }));
        cx.set_deadline(Deadline::NEVER);
        // At once: what the first acquire left on its way must not take the lock from the second.
        let grant = locker
            .acquire(&mut cx, LOCK, Mode::Exclusive)
            .await
            .expect("nobody else wants it");
        endpoint.sleep(100_000).await;
        assert!(
            !is_free(&mut observing, &observer, SIMULATED.sure_ns).await,
            "it is held"
        );
        locker.release(&mut cx, grant).await.expect("the node is there");
        cx.set_deadline(Deadline(endpoint.now_ns() + 500));
        let refused = locker.acquire(&mut cx, LOCK, Mode::Exclusive).await;
        assert_eq!(refused, Err(LockError::Timeout { entry: LOCK }));
        endpoint.sleep(100_000).await;
        assert!(
            is_free(&mut observing, &observer, SIMULATED.sure_ns).await,
            "nobody holds a lock that was not granted"
        );
    });
}
