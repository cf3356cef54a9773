//! One client of DSLR, and words that others have left there.

use super::word::TICKETS_MAX;
use super::*;
use crate::backoff::WINDOW_ATTEMPTS;
use crate::testing::{LEASE_NS, LOCK, Stage};

/// Exclusive tickets only.
fn tickets(taken: u64, served: u64) -> Tickets {
    Tickets::FREE.with_exclusive_taken(taken).with_exclusive_served(served)
}

/// Whoever draws a ticket behind the last gives it back, and the word starts anew at once if nobody holds the lock.
#[test]
fn a_full_word_starts_anew() {
    for mode in [Mode::Exclusive, Mode::Shared] {
        let stage = Stage::new();
        let machine = stage.machine();
        // Later than two leases.
        stage.run_for(10 * LEASE_NS);
        stage.set_word(LOCK, tickets(TICKETS_MAX, TICKETS_MAX).0);
        let lock = Dslr::new(Waits::Turns, LEASE_NS);
        let mut cx = machine.cx();
        let start = machine.costs();
        let grant = stage
            .sim
            .block_on(lock.acquire(&mut cx, LOCK, mode))
            .expect("the node is there");
        assert_eq!(stage.word(LOCK), Tickets::taking(mode));
        assert!(stage.sim.now_ns() < 10 * LEASE_NS + LEASE_NS / 4);
        assert_eq!(cx.retries(), 1, "one ticket was none");
        // Two tickets, and two swaps: one takes the first back, one starts the word anew.
        assert_eq!(machine.cost_since(&start)[2], 4);
        stage.give_back(&lock, &mut cx, grant);
        assert!(Tickets(stage.word(LOCK)).is_idle());
    }
}

/// Somebody holds a lock whose word is full: it is waited for, for two leases.
#[test]
fn a_full_word_does_not_start_anew_under_its_holder() {
    for is_released in [true, false] {
        let stage = Stage::new();
        let machine = stage.machine();
        stage.run_for(10 * LEASE_NS);
        stage.set_word(LOCK, tickets(TICKETS_MAX, TICKETS_MAX - 1).0);
        let mut cx = machine.cx();
        let acquired = machine.spawn(async move {
            let acquired = Dslr::new(Waits::Turns, LEASE_NS)
                .acquire(&mut cx, LOCK, Mode::Exclusive)
                .await;
            (acquired.is_ok(), cx.retries())
        });
        stage.run_for(2 * LEASE_NS - 50_000);
        assert!(acquired.take().is_none());
        assert_eq!(
            stage.word(LOCK),
            tickets(TICKETS_MAX, TICKETS_MAX - 1).0,
            "our ticket is given back"
        );
        if is_released {
            stage.set_word(LOCK, tickets(TICKETS_MAX, TICKETS_MAX).0);
        } else {
            stage.run_for(50_000);
        }
        stage.run_for(50_000);
        assert_eq!(acquired.take(), Some((true, 1)));
        assert_eq!(stage.word(LOCK), tickets(1, 0).0);
    }
}

/// As long as holders release, nobody of them is taken for dead.
#[test]
fn a_full_word_waits_as_long_as_tickets_come_back() {
    let stage = Stage::new();
    let machine = stage.machine();
    stage.run_for(10 * LEASE_NS);
    stage.set_word(LOCK, tickets(TICKETS_MAX, TICKETS_MAX - 4).0);
    let mut cx = machine.cx();
    let acquired = machine.spawn(async move {
        Dslr::new(Waits::Turns, LEASE_NS)
            .acquire(&mut cx, LOCK, Mode::Exclusive)
            .await
            .is_ok()
    });
    for behind in (1..4).rev() {
        stage.run_for(LEASE_NS + LEASE_NS / 2);
        assert!(acquired.take().is_none());
        stage.set_word(LOCK, tickets(TICKETS_MAX, TICKETS_MAX - behind).0);
    }
    stage.run_for(LEASE_NS);
    assert!(acquired.take().is_none());
}

#[test]
fn a_deadline_ends_the_wait_at_a_full_word() {
    let stage = Stage::new();
    let machine = stage.machine();
    let word = tickets(TICKETS_MAX, TICKETS_MAX - 1);
    stage.set_word(LOCK, word.0);
    let mut cx = machine.cx();
    cx.set_deadline(machine.endpoint.deadline_in(LEASE_NS));
    let refused = stage
        .sim
        .block_on(Dslr::new(Waits::Turns, LEASE_NS).acquire(&mut cx, LOCK, Mode::Shared));
    assert_eq!(refused, Err(LockError::Timeout { entry: LOCK }));
    assert!((LEASE_NS..LEASE_NS + 5_000).contains(&stage.sim.now_ns()));
    assert_eq!((stage.word(LOCK), cx.retries()), (word.0, 0));
}

/// Looks until `patience_ns` are over, with so many ahead.
fn looks(lock: &Dslr, ahead: u64, patience_ns: u64) -> u64 {
    let stage = Stage::new();
    let machine = stage.machine();
    stage.set_word(LOCK, tickets(ahead, 0).0);
    let mut cx = machine.cx();
    cx.set_deadline(machine.endpoint.deadline_in(patience_ns));
    let refused = stage.sim.block_on(lock.acquire(&mut cx, LOCK, Mode::Exclusive));
    assert_eq!(refused, Err(LockError::Timeout { entry: LOCK }));
    cx.retries()
}

/// A turn for each who is ahead, 64 turns at most, and never so long that half a lease passes.
#[test]
fn a_look_waits_for_those_ahead() {
    let patient = Dslr::new(Waits::Turns, 1_000_000_000);
    for (ahead, turns) in [(63, 63), (64, 64), (65, 64), (1_000, 64)] {
        let count = looks(&patient, ahead, 10 * turns * TURN_NS);
        // In ten such waits the round trips do not add up to one turn more or less.
        assert_eq!(count, 10, "looks at {ahead} ahead");
    }
    // Shorter turns, shorter waits.
    let count = looks(&patient.clone().with_turns_of(TURN_NS / 2), 64, 10 * 64 * TURN_NS);
    assert!((19..=20).contains(&count), "{count}");
    // An eighth of a lease, and a round trip.
    let count = looks(&Dslr::new(Waits::Turns, LEASE_NS / 10), 1_000, LEASE_NS / 10);
    assert!((6..=8).contains(&count), "{count}");
}

/// With back-off a look waits longer each time, up to what was learned.
#[test]
fn a_back_off_grows_with_the_retries_of_one_acquire() {
    let lock = Dslr::new(Waits::Backoff, 1_000_000_000);
    let backoff = &lock.backoff;
    (0..5 * WINDOW_ATTEMPTS).for_each(|_| backoff.note(true));
    let count = looks(&lock, 5, LEASE_NS);
    // 3.2 us, a jitter of 1 us, and a round trip.
    assert!((130..180).contains(&count), "{count} looks");
    let limit = backoff.wait_ns(&Stage::new().machine().endpoint, 100);
    assert!((3_200..5_200).contains(&limit));
}

/// Without any wait a look is a round trip.
#[test]
fn who_polls_looks_again_at_once() {
    let count = looks(&Dslr::new(Waits::Nothing, 1_000_000_000), 5, LEASE_NS);
    let round_trip_ns = LEASE_NS / count;
    assert!((1_600..2_000).contains(&round_trip_ns), "{count} looks");
}
