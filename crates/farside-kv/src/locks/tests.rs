//! What a client of named locks keeps, and what it leaves behind.

use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll, Waker};

use farside_fabric::sim::{Sim, SimOptions};
use farside_pool::FormatOptions;

use super::*;
use crate::{Store, StoreConfig};

/// A simulation with a table of eight buckets in it, and a client.
pub(super) fn world() -> (Sim, Locks) {
    let sim = Sim::new(SimOptions::default());
    let _ = sim.add_memory_node(8 << 20);
    let endpoint = sim.endpoint(sim.add_compute_node());
    let config = StoreConfig {
        format: FormatOptions {
            chunk_bytes: Some(16 << 10),
            ..FormatOptions::default()
        },
        ..StoreConfig::default()
    };
    let locks = sim.block_on(async move {
        let store = Store::open(endpoint.clone(), config).await.expect("a store");
        store.close().await.expect("the node is there");
        Locks::open(endpoint, LocksOptions::default()).await
    });
    (sim, locks.expect("there is a table"))
}

#[test]
fn so_many_names_are_remembered() {
    let (_sim, locks) = world();
    let shared = &locks.shared;
    let place = shared.table.bucket(b"name").place(0);
    let remember = |number: usize| {
        shared.remember(&Rc::from(number.to_le_bytes()), place);
        shared.known.borrow().len()
    };
    for number in 0..KNOWN_MAX {
        assert_eq!(remember(number), number + 1);
    }
    assert_eq!(remember(KNOWN_MAX), 1);
    assert_eq!(remember(KNOWN_MAX + 1), 2);
}

#[test]
fn nothing_goes_on_for_a_client_that_is_dropped() {
    let (sim, locks) = world();
    let returns = Rc::downgrade(&locks.shared.returns);
    let guard = sim
        .block_on(locks.acquire(b"name", Mode::Exclusive))
        .expect("it is free");
    drop(guard);
    drop(locks);
    sim.run_until(sim.now_ns() + 10_000_000_000);
    assert!(returns.upgrade().is_none());
}

#[test]
fn who_waits_for_guards_hears_of_the_end() {
    let returns = Returns::default();
    let mut next = pin!(returns.next());
    let mut poll = || next.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll().is_pending());
    assert!(returns.is_settled());
    returns.close();
    assert!(matches!(poll(), Poll::Ready(None)));
}
