//! Resets of DecLocks among many endpoints: more of them than a seat keeps letters of one queue.

use std::cell::Cell;
use std::rc::Rc;

use farside_fabric::sim::{Sim, SimOptions};
use farside_fabric::{NodeId, OpContext, RemoteAddr};
use farside_lock::{LockKind, LockOptions, Locker, Mode, Site};

const LOCK: RemoteAddr = RemoteAddr::new(NodeId::new(0), 64);
const ROSTER: RemoteAddr = RemoteAddr::new(NodeId::new(0), 4096);
const MEMORY_BYTES: u64 = 16 << 10;
/// Of a queue of two.
const ENTRY_BYTES: u64 = 24;
const SITES: usize = 5;
const CLIENTS: usize = 100;
const LEASE_NS: u64 = 1_000_000;

/// A full queue resets the lock, and everybody is asked. All answer at once, and nobody's answer may be lost: whoever
/// is not heard for two leases is cut off.
#[test]
fn a_reset_hears_everybody() {
    for seed in 0..5 {
        let sim = Sim::new(SimOptions {
            seed,
            jitter_ns: 100 * seed,
            ..SimOptions::default()
        });
        let _ = sim.add_memory_node(MEMORY_BYTES);
        let options = LockOptions {
            lease_ns: LEASE_NS,
            roster: Some(ROSTER),
            declock_capacity: 2,
            ..LockOptions::default()
        };
        let sites = [(); SITES].map(|()| (Site::new(options), sim.add_compute_node()));
        let done = Rc::new(Cell::new(0));
        let kind = LockKind::by_name("declock").expect("a registered lock");
        for client in 0..CLIENTS {
            let (site, compute_node) = &sites[client % SITES];
            let endpoint = sim.endpoint(*compute_node);
            let locker = Locker::new(kind, &endpoint, site).expect("there is a roster");
            let done = Rc::clone(&done);
            endpoint.clone().spawn(async move {
                let mut cx = OpContext::new(endpoint.clone());
                // A lock of its own first: so everybody is in the roster when the first queue is full.
                let own = LOCK.plus(ENTRY_BYTES * (1 + client as u64));
                for entry in [own, LOCK, LOCK, LOCK] {
                    let acquired = locker.acquire(&mut cx, entry, Mode::Exclusive).await;
                    let grant = acquired.expect("nobody is cut off");
                    locker.release(&mut cx, grant).await.expect("nobody is cut off");
                    endpoint.sleep(100_000 - endpoint.now_ns().min(100_000)).await;
                }
                done.set(done.get() + 1);
            });
        }
        sim.run_until_idle();
        assert_eq!(done.get(), CLIENTS, "seed {seed}");
        let resets: u64 = sites.iter().map(|(site, _)| site.resets().count).sum();
        let spent_ns: u64 = sites.iter().map(|(site, _)| site.resets().spent_ns).sum();
        assert!(resets > 0, "five compute nodes want a queue of two, seed {seed}");
        assert!(
            spent_ns / resets < LEASE_NS / 2,
            "a reset waits for answers, not for a part of a lease: {} us, seed {seed}",
            spent_ns / resets / 1_000
        );
    }
}
