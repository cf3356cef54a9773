//! A reader of a ShiftLock, in situations that are laid out in far memory.

use std::rc::Rc;

use super::*;
use crate::letter::Place;
use crate::shiftlock::testing::{attempt, counts};
use crate::shiftlock::word::{Counts, LEAP};
use crate::testing::{LEASE_NS, LOCK, Machine, Stage};
use crate::word::TailWord;

fn enter(stage: &Stage, machine: &Machine) -> Result<ReaderHold, LockError> {
    match stage.sim.block_on(attempt(machine).enter())? {
        Outcome::Held(hold) => Ok(hold),
        Outcome::Again => panic!("nobody resets it"),
    }
}

#[test]
fn so_many_readers_share_the_lock_and_no_more() {
    let stage = Stage::new();
    let machine = stage.machine();
    stage.set_word(LOCK.plus(8), Counts(0).with_readers(READERS_MAX - 1).0);
    assert!(enter(&stage, &machine).is_ok());
    assert_eq!((counts(&stage).readers(), counts(&stage).releases()), (READERS_MAX, 0));
    let refused = enter(&stage, &machine);
    assert_eq!(refused, Err(LockError::TooManyReaders { entry: LOCK }));
    assert_eq!((counts(&stage).readers(), counts(&stage).releases()), (READERS_MAX, 1));
}

/// A reader that finds a writer looks until the epoch has flipped: each look but the last is a retry.
#[test]
fn a_reader_waits_for_its_turn() {
    let stage = Stage::new();
    let machine = stage.machine();
    let writer = Place {
        endpoint: stage.machine().endpoint.id(),
        seat: 1,
    };
    stage.set_word(LOCK, TailWord::of(writer).bits());
    stage.set_word(LOCK.plus(8), Counts(0).with_releases(10).with_epoch(1).0);
    let attempt = attempt(&machine);
    let retries = Rc::clone(&attempt.retries);
    let start = machine.costs();
    let entered = machine.spawn(async move { matches!(attempt.enter().await, Ok(Outcome::Held(_))) });
    stage.run_for(LEASE_NS / 8);
    assert!(entered.take().is_none());
    stage.set_word(LOCK.plus(8), Counts(0).with_releases(11).with_readers(1).0);
    stage.run_for(LEASE_NS / 8);
    assert_eq!(entered.take(), Some(true));
    assert!(retries.get() > 10, "{} looks", retries.get());
    assert_eq!(machine.cost_since(&start), [retries.get() + 1, 0, 1, 0]);
}

/// Whoever stayed for longer than its lease leaves all the same, if nobody has reset the lock.
#[test]
fn a_late_reader_leaves_if_the_lock_was_not_reset() {
    for is_reset in [false, true] {
        let stage = Stage::new();
        let machine = stage.machine();
        let before = Counts(0).with_releases(10).with_readers(3).with_epoch(1);
        stage.set_word(LOCK.plus(8), before.0);
        let hold = enter(&stage, &machine).expect("there is room");
        stage.run_for(2 * LEASE_NS);
        if is_reset {
            stage.set_word(LOCK.plus(8), Counts(0).with_releases(10 + LEAP).0);
        }
        let attempt = attempt(&machine);
        let start = machine.costs();
        let left = stage.sim.block_on(attempt.leave_reader(hold));
        if is_reset {
            assert_eq!(left, Err(LockError::LeaseLost { entry: LOCK }));
            assert_eq!(counts(&stage), Counts(0).with_releases(10 + LEAP));
            assert_eq!(machine.cost_since(&start), [1, 0, 0, 0]);
        } else {
            assert_eq!(left, Ok(()));
            assert_eq!(counts(&stage), before.with_releases(11));
            assert_eq!(machine.cost_since(&start), [1, 0, 1, 0]);
        }
        assert_eq!(attempt.retries.get(), 0);
    }
}

/// Two resets look like none; they take longer than five leases.
#[test]
fn a_reader_that_is_late_by_far_leaves_nothing() {
    let stage = Stage::new();
    let machine = stage.machine();
    let hold = enter(&stage, &machine).expect("there is room");
    stage.run_for(5 * LEASE_NS);
    let left = stage.sim.block_on(attempt(&machine).leave_reader(hold));
    assert_eq!(left, Err(LockError::LeaseLost { entry: LOCK }));
    assert_eq!(counts(&stage).readers(), 1);
}

/// Within its lease a reader leaves by one atomic.
#[test]
fn a_reader_in_time_leaves_by_one_atomic() {
    let stage = Stage::new();
    let machine = stage.machine();
    let hold = enter(&stage, &machine).expect("there is room");
    let start = machine.costs();
    assert_eq!(stage.sim.block_on(attempt(&machine).leave_reader(hold)), Ok(()));
    assert_eq!(machine.cost_since(&start), [0, 0, 1, 0]);
    assert_eq!((counts(&stage).readers(), counts(&stage).releases()), (0, 1));
}
