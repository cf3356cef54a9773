//! Deadlines: an acquire ends at its own, and leaves nothing that a later one would trip over.

use farside_fabric::shm::{self, Segment};
use farside_fabric::sim::{Sim, SimOptions};
use farside_fabric::{Clock, Deadline, Endpoint, OpContext};
use farside_lock::{LockError, LockKind, Locker, Mode};

use crate::exclusion::{LOCK, MEMORY_BYTES, on_this_thread};
use crate::service::{self, AgentThread, Subject};

const PATIENCE_NS: u64 = 100_000;

/// One client holds the lock, the other gives up, and gets it when it is free.
async fn gives_up<E: Endpoint>(subject: Subject, first: E, second: E) {
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
    waiting.set_deadline(Deadline(start_ns + PATIENCE_NS));
    let refused = waiter.acquire(&mut waiting, LOCK, Mode::Exclusive).await;
    assert_eq!(refused, Err(LockError::Timeout { entry: LOCK }));
    assert!(waiting.endpoint().now_ns() >= start_ns + PATIENCE_NS);
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
    assert!(is_free(&mut cx, &holder).await, "nobody holds it");
}

/// Whether a client that has nothing to do with it is granted the lock, before its patience ends.
async fn is_free<E: Endpoint>(cx: &mut OpContext<E>, locker: &Locker) -> bool {
    cx.set_deadline(Deadline(cx.endpoint().now_ns() + PATIENCE_NS));
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
    sim.block_on(gives_up(
        subject,
        sim.endpoint(compute_node),
        sim.endpoint(compute_node),
    ));
}

pub(crate) fn shared_memory(subject: Subject) {
    let segment = Segment::anonymous(1 << 20).expect("memory");
    let _agent = AgentThread::start(&segment);
    let fabric = shm::Fabric::new(vec![segment]);
    on_this_thread(async {
        let endpoints = (
            fabric.endpoint().expect("an endpoint"),
            fabric.endpoint().expect("an endpoint"),
        );
        gives_up(subject, endpoints.0, endpoints.1).await;
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
        assert!(!is_free(&mut observing, &observer).await, "it is held");
        locker.release(&mut cx, grant).await.expect("the node is there");
        cx.set_deadline(Deadline(endpoint.now_ns() + 500));
        let refused = locker.acquire(&mut cx, LOCK, Mode::Exclusive).await;
        assert_eq!(refused, Err(LockError::Timeout { entry: LOCK }));
        endpoint.sleep(100_000).await;
        assert!(
            is_free(&mut observing, &observer).await,
            "nobody holds a lock that was not granted"
        );
    });
}
