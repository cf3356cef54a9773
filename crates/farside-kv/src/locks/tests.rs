//! What a client of named locks keeps, and what it leaves behind.

use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll, Waker};

use farside_fabric::shm::{Fabric, Segment};
use farside_fabric::sim::{Sim, SimOptions};
use farside_fabric::{LocalFuture, Seat};
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

/// Two clients over mapped memory, each with whom it waits by.
fn mapped() -> [(Seat, Locks); 2] {
    let segment = Segment::anonymous(8 << 20).expect("some memory");
    let endpoint = |seat: &Seat| {
        let endpoint = Fabric::new(vec![segment.clone()]).endpoint();
        endpoint.expect("a new client").seated(seat)
    };
    let seat = Seat::new();
    let config = StoreConfig {
        format: FormatOptions {
            chunk_bytes: Some(16 << 10),
            ..FormatOptions::default()
        },
        ..StoreConfig::default()
    };
    let store = seat.block_on(Store::open(endpoint(&seat), config)).expect("a store");
    seat.block_on(seat.drive(store.close())).expect("mapped memory");
    seat.clear();
    [(); 2].map(|()| {
        let seat = Seat::new();
        let locks = seat.block_on(Locks::open(endpoint(&seat), LocksOptions::default()));
        (seat, locks.expect("there is a table"))
    })
}

/// What a call comes to in which nobody waits: no task of the client runs.
fn plainly<T>(future: LocalFuture<'_, Result<T, LocksError>>) -> Option<T> {
    at_once(future).map(|ready| ready.expect("mapped memory"))
}

#[test]
fn over_mapped_memory_a_free_lock_is_taken_and_given_back_in_plain_calls() {
    let clients = mapped();
    let [(seat, locks), (other_seat, other)] = &clients;
    let acquire = |name| plainly(locks.acquire_until(name, Mode::Exclusive, Deadline::NEVER));
    assert!(acquire(b"name").is_none(), "its place is not known");
    let first = seat.block_on(seat.drive(locks.acquire(b"name", Mode::Exclusive)));
    let first = first.expect("mapped memory");
    let token = first.token();
    assert!(locks.take_now(b"name", Mode::Shared).is_none(), "it is held");
    let contexts = || locks.shared.contexts.borrow().len();
    let kept = contexts();
    assert!(plainly(first.release()).is_some());
    let second = acquire(b"name").flatten().expect("it is free");
    assert_eq!(contexts(), kept, "they are used again");
    assert_eq!(
        (second.token(), second.name(), second.mode()),
        (token + 1, b"name".as_slice(), Mode::Exclusive)
    );
    let holder = seat.block_on(locks.holder(b"name")).expect("mapped memory");
    assert_eq!(
        holder.map(|holder| (holder.mode, holder.in_queue)),
        Some((Mode::Exclusive, 1))
    );

    // Who waits for it makes giving it back more than one swap.
    let theirs = async {
        let guard = other.acquire(b"name", Mode::Exclusive).await.expect("mapped memory");
        assert_eq!(guard.token(), token + 2);
        guard.release().await.expect("it is held");
    };
    let mut theirs = pin!(other_seat.drive(theirs));
    // Ends: the place is read, and the queue is joined.
    while seat
        .block_on(locks.holder(b"name"))
        .expect("mapped memory")
        .expect("it is held")
        .in_queue
        < 2
    {
        assert!(
            theirs
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
    }
    seat.block_on(seat.drive(second.release())).expect("it is held");
    other_seat.block_on(theirs);
    let last = acquire(b"name").flatten().expect("it is free");
    assert!(locks.release_now(&last.into_grant()), "nobody waits");
    assert_eq!(contexts(), kept);
    clients.iter().for_each(|(seat, _)| seat.clear());
}

#[test]
fn a_plain_call_gives_back_what_is_another_names() {
    let clients = mapped();
    let (seat, locks) = &clients[0];
    let acquire = |name| seat.block_on(seat.drive(locks.acquire(name, Mode::Exclusive)));
    let release = |guard: Guard| seat.block_on(seat.drive(guard.release()));
    for name in [b"one", b"two"] {
        release(acquire(name).expect("mapped memory")).expect("it is held");
    }
    let place = |name: &[u8]| locks.shared.known.borrow()[name];
    let (one, two) = (place(b"one"), place(b"two"));
    locks.shared.remember(&Rc::from(*b"one"), two);
    assert!(locks.take_now(b"one", Mode::Exclusive).is_none());
    assert!(!locks.shared.known.borrow().contains_key(b"one".as_slice()));
    assert!(!locks.shared.returns.is_settled(), "its lock is to be given back");
    let both = [b"one", b"two"].map(|name| acquire(name).expect("mapped memory"));
    assert_eq!(place(b"one").lock, one.lock);
    for guard in both {
        release(guard).expect("it is held");
    }
    clients.iter().for_each(|(seat, _)| seat.clear());
}

#[test]
fn a_client_that_has_ended_takes_nothing_in_a_plain_call() {
    let clients = mapped();
    let (seat, locks) = &clients[0];
    let guard = seat.block_on(seat.drive(locks.acquire(b"name", Mode::Exclusive)));
    seat.block_on(seat.drive(guard.expect("mapped memory").release()))
        .expect("it is held");
    locks.shared.lifeline.end();
    assert!(locks.take_now(b"name", Mode::Exclusive).is_none());
    assert!(!locks.shared.returns.is_settled(), "its lock is to be given back");
    let refused = seat.block_on(seat.drive(locks.acquire(b"name", Mode::Exclusive)));
    assert!(matches!(refused, Err(LocksError::Ended { .. })));
    clients.iter().for_each(|(seat, _)| seat.clear());
}
