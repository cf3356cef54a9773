//! A writer of a ShiftLock, in situations that are laid out in far memory.

use std::rc::Rc;

use farside_fabric::EndpointId;

use super::*;
use crate::LockOptions;
use crate::shiftlock::testing::{attempt, counts};
use crate::shiftlock::word::{Counts, LEAP};
use crate::testing::{LEASE_NS, LOCK, Machine, NODE, Stage};
use crate::word::TailWord;

/// A machine that knows no agent.
fn machine(stage: &Stage) -> Machine {
    stage.machine_with(LockOptions {
        service: None,
        ..Stage::options()
    })
}

fn lay_out(stage: &Stage, tail: TailWord, counts: Counts) {
    stage.set_word(LOCK, tail.bits());
    stage.set_word(LOCK.plus(8), counts.0);
}

fn tail(stage: &Stage) -> Option<Place> {
    TailWord::of_bits(stage.word(LOCK)).place()
}

fn enter(stage: &Stage, machine: &Machine) -> WriterHold {
    let attempt = attempt(machine);
    let seat = attempt.inbox.take_seat(LOCK).expect("a seat");
    match stage.sim.block_on(attempt.queue_up(seat)) {
        Ok(Outcome::Held(hold)) => hold,
        Ok(Outcome::Again) => panic!("nobody resets it"),
        Err(error) => panic!("{error}"),
    }
}

/// Whoever sits somewhere else.
fn somebody(stage: &Stage) -> (Machine, Place) {
    let other = machine(stage);
    let place = Place {
        endpoint: other.endpoint.id(),
        seat: 1,
    };
    (other, place)
}

#[test]
fn a_seat_is_dealt_again_unless_something_went_wrong() {
    let stage = Stage::new();
    let machine = machine(&stage);
    let hold = enter(&stage, &machine);
    assert_eq!(tail(&stage), Some(hold.seat.place()));
    let left = stage.sim.block_on(attempt(&machine).leave_writer(hold));
    assert_eq!(left, Ok(()));
    assert_eq!(
        (tail(&stage), counts(&stage).releases(), counts(&stage).epoch()),
        (None, 1, 1)
    );
    assert_eq!(machine.next_seat(), 1);

    let hold = enter(&stage, &machine);
    lay_out(&stage, TailWord::NOBODY, Counts(0).with_releases(LEAP + 1));
    let left = stage.sim.block_on(attempt(&machine).leave_writer(hold));
    assert_eq!(left, Err(LockError::LeaseLost { entry: LOCK }));
    assert_eq!(machine.next_seat(), 2, "the queue of before may still name it");
}

/// Somebody has queued up behind us and does not say who it is: waited for, for a lease.
#[test]
fn a_lock_is_dropped_when_the_next_one_does_not_say_who_it_is() {
    let stage = Stage::new();
    let machine = machine(&stage);
    let hold = enter(&stage, &machine);
    let (_other, place) = somebody(&stage);
    lay_out(&stage, TailWord::of(place), counts(&stage));
    let attempt = attempt(&machine);
    let left = machine.spawn(async move { attempt.leave_writer(hold).await });
    stage.run_for(LEASE_NS - 10_000);
    assert!(left.take().is_none());
    stage.run_for(20_000);
    assert_eq!(left.take(), Some(Ok(())));
    assert_eq!((tail(&stage), counts(&stage).releases()), (Some(place), 0), "untouched");
    assert_eq!(machine.next_seat(), 2);
}

#[test]
fn a_seat_is_burnt_when_the_wait_fails() {
    let stage = Stage::new();
    let machine = machine(&stage);
    let (_other, place) = somebody(&stage);
    lay_out(&stage, TailWord::of(place), Counts(0));
    let attempt = attempt(&machine);
    let seat = attempt.inbox.take_seat(LOCK).expect("a seat");
    let queued = machine.spawn(async move { attempt.queue_up(seat).await.is_err() });
    stage.run_for(LEASE_NS / 4);
    assert!(queued.take().is_none());
    stage.sim.crash_node(NODE);
    stage.run_for(10 * LEASE_NS);
    assert_eq!(queued.take(), Some(true));
    assert_eq!(machine.next_seat(), 2);
}

/// Whoever stood still for so long that the lock may have been reset twice queues up anew, at another seat.
#[test]
fn who_has_lost_track_burns_its_seat() {
    let stage = Stage::new();
    let machine = machine(&stage);
    let (_other, place) = somebody(&stage);
    lay_out(&stage, TailWord::of(place), Counts(0));
    let attempt = attempt(&machine);
    let retries = Rc::clone(&attempt.retries);
    let _acquired = machine.spawn(async move { attempt.acquire(Mode::Exclusive).await.is_ok() });
    stage.run_for(LEASE_NS / 4);
    stage.sim.pause_client(machine.endpoint.id());
    stage.run_for(3 * LEASE_NS);
    stage.sim.resume_client(machine.endpoint.id());
    stage.run_for(LEASE_NS / 4);
    assert_eq!(retries.get(), 1);
    assert_eq!(tail(&stage).map(|place| place.seat), Some(2));
}

/// A writer that finds readers inside looks until the last of them has left: each look but the last is a retry.
#[test]
fn a_writer_waits_until_the_last_reader_has_left() {
    let stage = Stage::new();
    let machine = machine(&stage);
    lay_out(&stage, TailWord::NOBODY, Counts(0).with_releases(10).with_readers(2));
    let attempt = attempt(&machine);
    let retries = Rc::clone(&attempt.retries);
    let seat = attempt.inbox.take_seat(LOCK).expect("a seat");
    let start = machine.costs();
    let acquired = machine.spawn(async move {
        match attempt.queue_up(seat).await {
            Ok(Outcome::Held(hold)) => Some((hold.releases.bits(), hold.epoch, hold.streak, hold.is_behind)),
            _ => None,
        }
    });
    for left in [1, 2] {
        stage.run_for(LEASE_NS / 8);
        assert!(acquired.take().is_none(), "readers are inside");
        lay_out(
            &stage,
            TailWord::of_bits(stage.word(LOCK)),
            Counts(0).with_releases(10 + left).with_readers(2 - left),
        );
    }
    stage.run_for(LEASE_NS / 8);
    assert_eq!(acquired.take(), Some(Some((12, 0, 0, false))));
    assert!(retries.get() > 10, "{} looks", retries.get());
    assert_eq!(machine.cost_since(&start), [retries.get() + 1, 0, 1, 0]);
}

/// The first verb took longer than a lease: the count is moved on, and the lease begins with that.
#[test]
fn a_late_grant_is_renewed() {
    let stage = Stage::new();
    let machine = machine(&stage);
    let delay_ns = LEASE_NS * 6 / 10;
    stage.sim.delay(machine.compute_node, NODE, delay_ns);
    let attempt = attempt(&machine);
    let retries = Rc::clone(&attempt.retries);
    let endpoint = machine.endpoint.clone();
    let acquired = machine.spawn(async move {
        let hold = attempt.acquire(Mode::Exclusive).await.expect("the node is there");
        (hold.end_ns(), endpoint.now_ns())
    });
    stage.run_for(2 * delay_ns - 10_000);
    stage.sim.delay(machine.compute_node, NODE, 0);
    stage.run_for(50_000);
    let (end_ns, now_ns) = acquired.take().expect("it is ours");
    assert_eq!(end_ns, now_ns + LEASE_NS);
    assert_eq!((retries.get(), counts(&stage).releases()), (0, 1));
}

/// So slow that the renewal is late as well: the lock is given back, and asked for again.
#[test]
fn a_grant_that_is_late_twice_is_given_back() {
    let stage = Stage::new();
    let machine = machine(&stage);
    let delay_ns = LEASE_NS * 6 / 10;
    stage.sim.delay(machine.compute_node, NODE, delay_ns);
    let attempt = attempt(&machine);
    let retries = Rc::clone(&attempt.retries);
    let acquired = machine.spawn(async move { attempt.acquire(Mode::Exclusive).await.is_ok() });
    stage.run_for(5 * delay_ns);
    stage.sim.delay(machine.compute_node, NODE, 0);
    stage.run_for(2 * LEASE_NS);
    assert_eq!(acquired.take(), Some(true));
    // Moved on once, and given back once.
    assert_eq!((retries.get(), counts(&stage).releases()), (1, 2));
}

/// Only a letter of this kind, and of this queue, says who is behind.
#[test]
fn a_successor_is_noted_if_it_is_of_this_queue() {
    let stage = Stage::new();
    let machine = machine(&stage);
    lay_out(&stage, TailWord::NOBODY, Counts(0).with_releases(10));
    let mut hold = enter(&stage, &machine);
    let arrived = |kind, releases: Releases| Arrived {
        from: EndpointId(77),
        letter: Letter {
            kind,
            seat: hold.seat.number(),
            reply: 3,
            stamp: ANY_STAMP,
            entry: LOCK,
            words: [5, releases.bits(), 0],
        },
    };
    let begun = hold.begun;
    let others = [
        arrived(LetterKind::Handover, begun),
        arrived(LetterKind::Successor, Releases::new(9)),
        arrived(LetterKind::Successor, begun.plus(LEAP)),
        arrived(LetterKind::ModeChanged, Releases::new(9)),
    ];
    let ours = [begun, begun.plus(1)].map(|releases| arrived(LetterKind::Successor, releases));
    for other in others {
        hold.note_successor(&other);
        assert_eq!(hold.successor, None, "{other:?}");
    }
    for ours in ours {
        hold.successor = None;
        hold.note_successor(&ours);
        assert_eq!(hold.successor, Some(Successor::of(&ours)));
    }
}
