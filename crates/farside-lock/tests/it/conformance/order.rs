//! Order: what a lock that says so in `LockKind::is_ordered` promises to clients that want it exclusively.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use farside_fabric::OpContext;
use farside_fabric::sim::{Sim, SimOptions};
use farside_lock::{Locker, Mode};

use super::exclusion::{LOCK, MEMORY_BYTES};
use super::place::Place;
use super::service::{self, Subject};
use crate::on_this_thread;

const CLIENTS: u64 = 10;
/// Between two requests: so much that the first verb of one has arrived before that of the next.
const APART_NS: u64 = 5_000;

/// While one client holds the lock the others ask, one after the other; they are granted it in that order.
/// A lock that promises no order has to let everybody in nonetheless.
pub(crate) fn first_come_first_served(subject: Subject) {
    for seed in 0..30 {
        let sim = Sim::new(SimOptions {
            seed,
            jitter_ns: 100 * (seed % 20),
            ..SimOptions::default()
        });
        let _ = sim.add_memory_node(MEMORY_BYTES);
        let _agent = service::start(&sim);
        let site = subject.site();
        let compute_nodes: Vec<_> = (0..3).map(|_| sim.add_compute_node()).collect();
        let granted = Rc::new(RefCell::new(Vec::new()));
        for client in 0..CLIENTS {
            let endpoint = sim.endpoint(compute_nodes[client as usize % 3]);
            let locker = Locker::new(subject.kind, &endpoint, &site).expect("it has all atomics");
            let (task, granted) = (endpoint.clone(), Rc::clone(&granted));
            endpoint.spawn(async move {
                task.sleep(client * APART_NS).await;
                let mut cx = OpContext::new(task.clone());
                let grant = locker
                    .acquire(&mut cx, LOCK, Mode::Exclusive)
                    .await
                    .expect("no deadline");
                granted.borrow_mut().push(client);
                let inside_ns = if client == 0 {
                    CLIENTS * APART_NS
                } else {
                    task.random_below(3_000)
                };
                task.sleep(inside_ns).await;
                locker.release(&mut cx, grant).await.expect("the node is there");
            });
        }
        sim.run_until_idle();
        let mut granted = granted.take();
        if !subject.kind.is_ordered() {
            granted.sort_unstable();
        }
        assert_eq!(granted, (0..CLIENTS).collect::<Vec<_>>(), "seed {seed}");
    }
}

/// The same over a real fabric: each of the others asks as soon as the one before it is to be seen in the entry.
pub(crate) fn real_first_come_first_served<P: Place>(subject: Subject) {
    const CLIENTS: u64 = 6;
    if !subject.kind.is_ordered() {
        return;
    }
    let place = P::start();
    let granted = Rc::new(RefCell::new(Vec::new()));
    let entry_words = || -> Vec<u64> {
        let words = (0..subject.kind.entry_bytes(&subject.options())).step_by(8);
        words.map(|at| place.word(LOCK.plus(at))).collect()
    };
    on_this_thread(async {
        let endpoint = place.endpoint().await;
        let locker = Locker::new(subject.kind, &endpoint, &subject.site()).expect("it has all atomics");
        let mut cx = OpContext::new(endpoint.clone());
        let first = locker.acquire(&mut cx, LOCK, Mode::Exclusive).await;
        let first = first.expect("it is free");
        for client in 0..CLIENTS {
            let (task, granted) = (place.endpoint().await, Rc::clone(&granted));
            let locker = Locker::new(subject.kind, &task, &subject.site()).expect("it has all atomics");
            let before = entry_words();
            endpoint.spawn(async move {
                let mut cx = OpContext::new(task);
                let grant = locker.acquire(&mut cx, LOCK, Mode::Exclusive).await;
                granted.borrow_mut().push(client);
                locker
                    .release(&mut cx, grant.expect("no deadline"))
                    .await
                    .expect("the node is there");
            });
            while entry_words() == before {
                endpoint.sleep(100_000).await;
            }
        }
        locker.release(&mut cx, first).await.expect("the node is there");
        while granted.borrow().len() < CLIENTS as usize {
            endpoint.sleep(100_000).await;
        }
    });
    assert_eq!(granted.take(), (0..CLIENTS).collect::<Vec<_>>());
}

/// Where readers do not queue up: writers come and go without a break; a reader gets in nonetheless, and after no more of
/// them than the lock says.
pub(crate) fn readers_do_not_starve(subject: Subject) {
    const WRITERS: u64 = 30;
    /// ShiftLock, section 3.5: `N` hand-overs, and the writer that was inside; and those to whom the lock was handed over while
    /// the first verb of the reader was on its way, for which a message takes as long.
    const WRITERS_AHEAD_MAX: u64 = 17 + 2;
    if !subject.kind.is_shared() || !subject.kind.is_ordered() || subject.kind.orders_readers() {
        return;
    }
    for seed in 0..20 {
        let sim = Sim::new(SimOptions {
            seed,
            jitter_ns: 20 * seed,
            ..SimOptions::default()
        });
        let _ = sim.add_memory_node(MEMORY_BYTES);
        let _agent = service::start(&sim);
        let site = subject.site();
        let (writes, is_over) = (Rc::new(Cell::new(0_u64)), Rc::new(Cell::new(false)));
        for _ in 0..WRITERS {
            let endpoint = sim.endpoint(sim.add_compute_node());
            let locker = Locker::new(subject.kind, &endpoint, &site).expect("it has all atomics");
            let (writes, is_over) = (Rc::clone(&writes), Rc::clone(&is_over));
            endpoint.clone().spawn(async move {
                let mut cx = OpContext::new(endpoint);
                while !is_over.get() {
                    let grant = locker
                        .acquire(&mut cx, LOCK, Mode::Exclusive)
                        .await
                        .expect("no deadline");
                    writes.set(writes.get() + 1);
                    locker.release(&mut cx, grant).await.expect("the node is there");
                }
            });
        }
        let endpoint = sim.endpoint(sim.add_compute_node());
        let locker = Locker::new(subject.kind, &endpoint, &site).expect("it has all atomics");
        let mut cx = OpContext::new(endpoint.clone());
        sim.block_on(async {
            for _ in 0..20 {
                endpoint.sleep(100_000).await;
                let before = writes.get();
                let grant = locker.acquire(&mut cx, LOCK, Mode::Shared).await.expect("no deadline");
                let ahead = writes.get() - before;
                assert!(
                    ahead <= WRITERS_AHEAD_MAX,
                    "{ahead} writers went ahead with seed {seed}"
                );
                locker.release(&mut cx, grant).await.expect("the node is there");
            }
            is_over.set(true);
        });
        sim.run_until_idle();
    }
}
