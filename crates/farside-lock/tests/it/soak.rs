//! Locks over mapped memory, taken by real processes that are killed at random, for each lock that says in
//! `LockKind::survives_crashes` that it goes on.
//!
//! Worker processes take a few locks over and over, in both modes; so each of them is nearly always held, and
//! waited for. The driver kills them with SIGKILL, wherever they are, and starts others in their place; so it does
//! with the agent of the lock service. Checked are:
//!
//!  1. **exclusion**: whoever writes under a lock finds what it wrote unchanged at the end of its section,
//!     and whoever reads finds the same twice, unless its lease is over;
//!  2. **no count is lost**: under a lock a counter goes up by a compare-and-swap, which fails if somebody else is
//!     inside. At the end it is what all workers have counted, and at most one more for each death;
//!  3. **progress**: so many acquisitions are done, although whoever holds a lock may die;
//!  4. at the end **every lock is free**.
//!
//! Clocks are asked only whether a lease is over. `cargo xtask soak --locks 1000000` runs it for longer. The same
//! seed gives the same kills, counted in acquisitions; how processes meet is not decided by it.

mod driver;
mod memory;
mod worker;

use farside_lock::LockKind;
use farside_lock::dslr::Waits;

use self::driver::Plan;

/// Does nothing unless the driver started it: then it is a worker, or the agent.
#[test]
fn work_as_a_child() {
    worker::work_if_ordered();
}

fn soak(kind: LockKind) {
    driver::run(&Plan::from_env(kind));
}

#[test]
fn dslr_survives_its_holders() {
    soak(LockKind::Dslr(Waits::Turns));
}

#[test]
fn dslr_plus_survives_its_holders() {
    soak(LockKind::Dslr(Waits::Backoff));
}

#[test]
fn shiftlock_survives_its_holders() {
    soak(LockKind::ShiftLock);
}

#[test]
fn shiftlock_mutex_survives_its_holders() {
    soak(LockKind::ShiftLockMutex);
}

#[test]
fn declock_survives_its_holders() {
    soak(LockKind::by_name("declock").expect("it is registered"));
}

#[test]
fn declock_cql_survives_its_holders() {
    soak(LockKind::by_name("declock-cql").expect("it is registered"));
}

/// A lock that lets two in is noticed: here it is workers who do not ask.
#[test]
#[should_panic(expected = "somebody else was inside")]
fn workers_that_do_not_ask_are_noticed() {
    driver::run(&Plan {
        is_asking: false,
        kills: 0,
        ..Plan::from_env(LockKind::Cas)
    });
}
