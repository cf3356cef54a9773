//! Readers and writers of RMA-RW, counted exactly.

use super::*;
use crate::LockError;
use crate::testing::{LOCK, Machine, Stage};

fn lock(machine: &Machine) -> RmaRw {
    RmaRw::new(machine.site.inbox(machine.endpoint.id()), Marks::Compared)
}

/// Lets a client of a machine try to read, for a while.
fn read_for(stage: &Stage, machine: &Machine, patience_ns: u64) -> (Result<(), LockError>, u64) {
    let mut cx = machine.cx();
    cx.set_deadline(machine.endpoint.deadline_in(patience_ns));
    let acquired = stage.sim.block_on(lock(machine).acquire(&mut cx, LOCK, Mode::Shared));
    (acquired.map(drop), cx.retries())
}

/// A reader that is turned back counts itself out, and looks in pauses: each is a retry, and a READ.
#[test]
fn a_reader_that_is_turned_back_looks_again_and_again() {
    let stage = Stage::new();
    let machine = stage.machine();
    let writing = Readers::NOBODY.with_writing(1);
    stage.set_word(LOCK, 77);
    stage.set_word(LOCK.plus(8), writing.0);
    let start = machine.costs();
    let (refused, retries) = read_for(&stage, &machine, 100_000);
    assert_eq!(refused, Err(LockError::Timeout { entry: LOCK }));
    assert!((15..50).contains(&retries), "{retries}");
    let [reads, writes, atomics, sends] = machine.cost_since(&start);
    assert!(
        reads == retries || reads + 1 == retries,
        "{reads} READs, {retries} retries"
    );
    assert_eq!((writes, atomics, sends), (0, 2, 0));
    assert_eq!(stage.word(LOCK.plus(8)), writing.0);
}

/// When so many readers have come that writers are next, readers count anew only if no writer is there.
#[test]
fn readers_count_anew_if_no_writer_is_there() {
    let full = Readers::NOBODY.with_arrived(READERS_MAX);
    for (tail, word, is_counted) in [
        (0, full, true),
        (0, full.with_inside(3), true),
        // A writer has queued up.
        (77, full, false),
        // It has the lock; or has just left the queue, and is about to end its turn.
        (77, full.with_writing(1), false),
        (0, full.with_writing(1), false),
    ] {
        let stage = Stage::new();
        let machine = stage.machine();
        stage.set_word(LOCK, tail);
        stage.set_word(LOCK.plus(8), word.0);
        let (acquired, _) = read_for(&stage, &machine, 50_000);
        assert_eq!(acquired.is_ok(), is_counted, "{word:?} with tail {tail}");
        let after = Readers(stage.word(LOCK.plus(8)));
        if is_counted {
            assert_eq!(
                (after.inside(), after.arrived()),
                (word.inside() + 1, word.inside() + 1)
            );
        } else {
            assert_eq!(after, word, "with tail {tail}");
        }
    }
}

/// So many writers hand the lock over; then it is the readers', and the next writer counts from the beginning.
#[test]
fn writers_hand_over_so_often_and_no_more() {
    let stage = Stage::new();
    let count = WRITERS_MAX as usize + 3;
    let machines: Vec<Machine> = (0..count).map(|_| stage.machine()).collect();
    let grants = stage.queue_up(&machines, lock);
    for (index, machine) in machines.iter().enumerate() {
        let (lock, mut cx, grant) = grants[index].take().expect("its turn");
        let start = machine.costs();
        stage.give_back(&lock, &mut cx, grant);
        let [_, _, atomics, sends] = machine.cost_since(&start);
        let is_last = index == count - 1;
        let ends_run = index + 1 == WRITERS_MAX as usize;
        // To hand over takes no atomic; to give the lock to the readers takes one, to free the queue one more.
        let expected = if is_last { (2, 0) } else { (u64::from(ends_run), 1) };
        assert_eq!((atomics, sends), expected, "writer {index}");
        let word = Readers(stage.word(LOCK.plus(8)));
        assert_eq!(word.writing() == 0, is_last || ends_run, "writer {index}");
        stage.run_for(50_000);
    }
    assert_eq!((stage.word(LOCK), stage.word(LOCK.plus(8))), (0, 0));
}

/// A writer whose turn comes after the readers' lets them go first for a moment.
#[test]
fn a_writer_waits_for_readers_whose_turn_it_is() {
    let stage = Stage::new();
    let machine = stage.machine();
    let client = lock(&machine).client(&machine.cx(), LOCK);
    let seat = machine
        .site
        .inbox(machine.endpoint.id())
        .take_seat(LOCK)
        .expect("a seat");
    let place = seat.place();
    let (front, stamp) = (stage.machine(), seat.stamp());
    // The tail names a seat in front of us, from which the lock comes.
    let in_front = front.site.inbox(front.endpoint.id()).take_seat(LOCK).expect("a seat");
    stage.set_word(LOCK, crate::word::TailWord::of(in_front.place()).bits());
    let task = client.clone();
    let entered = machine.spawn(async move { task.enter_to_write(seat).await.map(|writer| writer.run) });
    stage.run_for(20_000);
    let handover = crate::letter::Letter {
        kind: crate::letter::LetterKind::Handover,
        seat: place.seat,
        reply: in_front.number(),
        stamp,
        entry: LOCK,
        words: [READERS_TURN, 0, 0],
    };
    let sent = in_front.inbox().send(&front.endpoint, place.endpoint, handover);
    stage.sim.block_on(sent).expect("it is there");
    stage.run_for(READERS_TURN_NS - 5_000);
    assert!(entered.take().is_none(), "readers may still come");
    assert!(client.retries.get() > 0);
    stage.run_for(15_000);
    assert_eq!(entered.take(), Some(Ok(0)));
    assert_eq!(stage.word(LOCK.plus(8)), Readers::NOBODY.with_writing(1).0);
}

/// A writer that has left the queue has not given the lock to the readers yet: the next one marks it when it has.
#[test]
fn a_mark_is_not_added_to_another_one() {
    let stage = Stage::new();
    let machine = stage.machine();
    let writing = Readers::NOBODY.with_writing(1);
    stage.set_word(LOCK.plus(8), writing.0);
    let (polling, mut cx) = (
        RmaRw::new(machine.site.inbox(machine.endpoint.id()), Marks::Added),
        machine.cx(),
    );
    let acquired = machine.spawn(async move { polling.acquire(&mut cx, LOCK, Mode::Exclusive).await.map(drop) });
    stage.run_for(30_000);
    assert!(acquired.take().is_none());
    assert_eq!(stage.word(LOCK.plus(8)), writing.0);
    stage.set_word(LOCK.plus(8), Readers::NOBODY.0);
    stage.run_for(30_000);
    assert_eq!(acquired.take(), Some(Ok(())));
    assert_eq!(stage.word(LOCK.plus(8)), writing.0);
}
