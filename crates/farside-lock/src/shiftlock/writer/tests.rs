//! A writer of a ShiftLock, in situations that are laid out in far memory.

use std::rc::Rc;

use farside_fabric::EndpointId;

use super::*;
use crate::grant::Held;
use crate::phases::{Phases, Stopwatch};
use crate::shiftlock::ShiftLock;
use crate::shiftlock::testing::{attempt, counts};
use crate::shiftlock::word::{Counts, LEAP};
use crate::testing::{LEASE_NS, LOCK, Machine, NODE, Stage, Watched};
use crate::word::TailWord;
use crate::{Grant, Lock, LockOptions};

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

type Holder = (ShiftLock, OpContext, Grant);

/// Two writers, of which the second has queued up behind the first.
fn two_in_a_row(stage: &Stage) -> ([Machine; 2], Vec<Watched<Holder>>) {
    let machines = [(); 2].map(|()| machine(stage));
    let lock = |machine: &Machine| ShiftLock::new(machine.site.inbox(machine.endpoint.id()), &machine.site);
    let held = stage.queue_up(&machines, lock);
    (machines, held)
}

fn end_ns(grant: &Grant) -> u64 {
    match grant.held() {
        Held::Shift(hold) => hold.end_ns(),
        _ => unreachable!("it is a ShiftLock's"),
    }
}

/// The count travels beside the letter: an add, whose answer nobody waits for. The next one has what was left of the lease when
/// the letter was written, from when it had introduced itself.
#[test]
fn a_hand_over_is_one_message_long() {
    let stage = Stage::new();
    let (machines, held) = two_in_a_row(&stage);
    let (lock, mut cx, grant) = held[0].take().expect("it came first");
    let (start, first_end_ns) = (machines[0].costs(), end_ns(&grant));
    // An answer from the memory node takes longer than the letter by this.
    stage.sim.delay(machines[0].compute_node, NODE, 50_000);
    let left_ns = first_end_ns - stage.sim.now_ns();
    let _left = machines[0].spawn(async move { lock.release(&mut cx, grant).await });
    stage.run_for(10_000);
    let (.., grant) = held[1].take().expect("the letter is there");
    assert_eq!(counts(&stage).releases(), 0, "the count is not");
    assert_eq!(machines[0].cost_since(&start), [0, 0, 1, 1]);
    let introduced_ns = end_ns(&grant) - left_ns;
    assert!((20_000..40_000).contains(&introduced_ns), "at {introduced_ns} ns");
    assert!(end_ns(&grant) < first_end_ns);
    stage.run_for(100_000);
    assert_eq!(counts(&stage).releases(), 1);
}

/// Late in the lease the count is compared, and the letter is written when it has been.
#[test]
fn a_hand_over_late_in_the_lease_is_counted_first() {
    for (held_ns, is_beside) in [(LEASE_NS / 4, true), (LEASE_NS / 2, false)] {
        let stage = Stage::new();
        let (machines, held) = two_in_a_row(&stage);
        let (lock, mut cx, grant) = held[0].take().expect("it came first");
        stage.run_for(held_ns);
        stage.sim.delay(machines[0].compute_node, NODE, 50_000);
        let _left = machines[0].spawn(async move { lock.release(&mut cx, grant).await });
        stage.run_for(60_000);
        assert_eq!(held[1].take().is_some(), is_beside, "after {held_ns} ns");
        assert_eq!(counts(&stage).releases(), 1);
        stage.run_for(60_000);
        assert_eq!(held[1].take().is_some(), !is_beside);
    }
}

/// Whoever leaves an empty queue behind compares the count, and waits for those that are on their way.
#[test]
fn a_writer_waits_for_the_counts_of_those_before_it() {
    let stage = Stage::new();
    let (machines, held) = two_in_a_row(&stage);
    stage.sim.delay(machines[0].compute_node, NODE, 50_000);
    let (lock, mut cx, grant) = held[0].take().expect("it came first");
    let _left = machines[0].spawn(async move { lock.release(&mut cx, grant).await });
    stage.run_for(10_000);
    let (lock, mut cx, grant) = held[1].take().expect("the letter is there");
    let left = machines[1].spawn(async move {
        let left = lock.release(&mut cx, grant).await;
        (left, cx.retries())
    });
    stage.run_for(30_000);
    assert!(left.take().is_none(), "it has not arrived");
    stage.run_for(30_000);
    let (left, retries) = left.take().expect("it has");
    assert_eq!(left, Ok(()));
    assert!((5..16).contains(&retries), "{retries} looks");
    assert_eq!((tail(&stage), counts(&stage).releases()), (None, 2));
}

/// So does whoever changes the mode, and whoever hands over late.
#[test]
fn what_is_compared_waits_for_the_counts_that_are_on_their_way() {
    for streak in [0, Stage::options().handovers_max] {
        let stage = Stage::new();
        let machine = machine(&stage);
        lay_out(&stage, TailWord::NOBODY, Counts(0).with_releases(10));
        let mut hold = enter(&stage, &machine);
        let (other, place) = somebody(&stage);
        lay_out(&stage, TailWord::of(place), Counts(0).with_releases(8));
        hold.streak = streak;
        hold.successor = Some(Successor { place, stamp: 7 });
        stage.run_for(LEASE_NS / 2);
        let phases = Rc::new(Phases::default());
        let mut attempt = attempt(&machine);
        attempt.stopwatch = Stopwatch::new(Some(Rc::clone(&phases)));
        let left = machine.spawn(async move { attempt.leave_writer(hold).await });
        for releases in [8, 9] {
            lay_out(&stage, TailWord::of(place), Counts(0).with_releases(releases));
            stage.run_for(50_000);
            assert!(left.take().is_none(), "at {releases}");
        }
        lay_out(&stage, TailWord::of(place), Counts(0).with_releases(10));
        stage.run_for(50_000);
        assert_eq!(left.take(), Some(Ok(())));
        assert_eq!(
            (counts(&stage).releases(), counts(&stage).epoch()),
            (11, u64::from(streak != 0))
        );
        assert_eq!(machine.next_seat(), 1);
        let spent_ns = phases.spent_ns(Mode::Exclusive, Phase::Leave);
        assert!((100_000..110_000).contains(&spent_ns), "{spent_ns} ns");
        drop(other);
    }
}

/// A count that cannot be posted is an error, whatever becomes of the letter beside it.
#[test]
fn a_hand_over_whose_node_is_gone_says_so() {
    let stage = Stage::new();
    let machine = machine(&stage);
    let mut hold = enter(&stage, &machine);
    let (_other, place) = somebody(&stage);
    hold.successor = Some(Successor { place, stamp: 7 });
    stage.sim.crash_node(NODE);
    let left = stage.sim.block_on(attempt(&machine).leave_writer(hold));
    assert_eq!(left, Err(LockError::Fabric(FabricError::NodeGone { node: NODE })));
}

/// A count that never arrives costs the lease: nobody is told that the lock is free, and it is reset when somebody comes.
#[test]
fn a_count_that_is_lost_ends_with_the_lease() {
    let stage = Stage::new();
    let machine = machine(&stage);
    lay_out(&stage, TailWord::NOBODY, Counts(0).with_releases(10));
    for (found, is_lost_at_once) in [(9, false), (11, true), (10 + LEAP, true), (9 + LEAP, true)] {
        lay_out(&stage, TailWord::NOBODY, Counts(0).with_releases(10));
        let hold = enter(&stage, &machine);
        lay_out(
            &stage,
            TailWord::of(hold.seat.place()),
            Counts(0).with_releases(found & ((1 << 48) - 1)),
        );
        let attempt = attempt(&machine);
        let left = machine.spawn(async move { attempt.leave_writer(hold).await });
        stage.run_for(LEASE_NS / 2);
        let lost = Some(Err(LockError::LeaseLost { entry: LOCK }));
        if is_lost_at_once {
            assert_eq!(left.take(), lost, "at {found}");
            continue;
        }
        assert_eq!(left.take(), None);
        stage.run_for(LEASE_NS);
        assert_eq!(left.take(), lost);
        assert_eq!(counts(&stage).releases(), found, "untouched");
    }
}

/// What the one in front has vouched for is not enough any more: whoever is next waits until it sees the count, from which its
/// lease begins.
#[test]
fn who_was_vouched_for_too_long_ago_waits_for_the_count() {
    for (vouched_ns, is_enough) in [(LEASE_NS * 5 / 8, true), (LEASE_NS / 2, false)] {
        let stage = Stage::new();
        let [machine, front] = [(); 2].map(|()| machine(&stage));
        let place = Place {
            endpoint: front.endpoint.id(),
            seat: 1,
        };
        lay_out(&stage, TailWord::of(place), Counts(0).with_releases(5));
        let attempt = attempt(&machine);
        let seat = attempt.inbox.take_seat(LOCK).expect("a seat");
        let to = (machine.endpoint.id(), seat.number(), seat.stamp());
        let endpoint = machine.endpoint.clone();
        let acquired = machine.spawn(async move {
            match attempt.queue_up(seat).await {
                Ok(Outcome::Held(hold)) => Some((hold.releases.bits(), hold.end_ns, endpoint.now_ns())),
                _ => None,
            }
        });
        stage.run_for(20_000);
        let letter = Letter {
            kind: LetterKind::Handover,
            seat: to.1,
            reply: 1,
            stamp: to.2,
            entry: LOCK,
            words: [6, 1, vouched_ns << 1],
        };
        let inbox = front.site.inbox(front.endpoint.id());
        stage
            .sim
            .block_on(inbox.send(&front.endpoint, to.0, letter))
            .expect("it is there");
        stage.run_for(20_000);
        let held = acquired.take();
        assert_eq!(held.is_some(), is_enough);
        if let Some(held) = held {
            let (releases, end_ns, now_ns) = held.expect("it is ours");
            assert_eq!(releases, 6);
            assert!(end_ns < now_ns + vouched_ns && end_ns > now_ns + vouched_ns - 40_000);
            continue;
        }
        lay_out(&stage, TailWord::of_bits(stage.word(LOCK)), Counts(0).with_releases(6));
        stage.run_for(20_000);
        let (releases, end_ns, now_ns) = acquired.take().flatten().expect("it is ours");
        assert_eq!((releases, end_ns), (6, now_ns + LEASE_NS));
    }
}
