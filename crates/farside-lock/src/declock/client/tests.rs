//! One client of a CQL lock, in situations that are laid out in far memory.

use super::*;
use crate::LockOptions;
use crate::declock::testing::client;
use crate::testing::{LEASE_NS, LOCK, Machine, Stage};

/// A machine whose queues have this capacity.
fn machine(stage: &Stage, capacity: u64) -> Machine {
    stage.machine_with(LockOptions {
        declock_capacity: capacity,
        ..Stage::options()
    })
}

/// A machine that is in the roster.
fn listed(stage: &Stage) -> (Machine, Client, Member) {
    let machine = stage.machine();
    let client = client(&machine);
    let member = stage.sim.block_on(client.enlist()).expect("there is room");
    (machine, client, member)
}

fn waiter(mode: Mode, time: u16) -> Waiter {
    Waiter {
        mode,
        time: Timestamp(time),
        member: Member(1 << 10 | 1),
        seat: 1,
    }
}

/// Lays a lock out: its header, and its entries by place.
fn lay_out(stage: &Stage, header: Header, capacity: u64, entries: &[(u64, Waiter)]) {
    stage.set_word(LOCK, header.0);
    for &(place, waiter) in entries {
        let entry = Entry::of(waiter, Index(place), capacity);
        stage.set_word(slot_of(LOCK, Index(place), capacity), entry.0);
    }
}

const WRITER: Mode = Mode::Exclusive;
const READER: Mode = Mode::Shared;

/// Nobody may write an entry at a place that is not free, nor one that looks unwritten; whoever may, does not reset.
#[test]
fn a_lock_is_reset_at_once_when_an_entry_has_no_place_and_only_then() {
    for (head, size, is_full) in [
        (0, 1, false),
        (0, 2, true),
        (0, 3, true),
        // The place behind is the last of its version, or the first of the next.
        (0x1_fffa, 1, false),
        (0x1_fffc, 1, false),
        (0x1_fffd, 1, true),
        (0x1_fffe, 1, true),
        (0x1_ffff, 1, false),
    ] {
        let stage = Stage::new();
        let machine = machine(&stage, 2);
        let client = client(&machine);
        let local = client.node.local(LOCK);
        let header = Header::FREE.with_head(head).with_size(size).with_writers(size);
        lay_out(&stage, header, 2, &[]);
        let task = client.clone();
        let taken = machine.spawn(async move { task.take(&local, WRITER, Timestamp(7)).await.is_ok() });
        stage.run_for(LEASE_NS / 2);
        let case = format!("{size} from {head} on");
        assert_eq!(taken.take(), is_full.then_some(true), "{case}");
        assert_eq!(machine.site.resets().count, u64::from(is_full), "{case}");
        assert_eq!(client.retries.get(), u64::from(is_full), "{case}");
        let place = header.back();
        let entry = Entry(stage.word(slot_of(LOCK, place, 2)));
        assert_eq!(entry.0 != 0, !is_full, "{case}");
        if !is_full {
            assert_eq!((entry.time(), entry.writer()), (7, 1), "{case}");
            // Who holds it is dead: found a lease after we have joined.
            stage.run_for(LEASE_NS / 4);
            assert_eq!(machine.site.resets().count, 0, "{case}");
            stage.run_for(LEASE_NS);
            assert_eq!((machine.site.resets().count, client.retries.get()), (1, 1), "{case}");
            assert_eq!(taken.take(), Some(true), "{case}");
        }
    }
}

/// A reset that begins between the two steps of joining waits for us and is gone before we wait: nobody tells us later.
#[test]
fn who_is_asked_before_its_entry_is_written_starts_over() {
    let stage = Stage::new();
    let (machine, client, member) = listed(&stage);
    let local = client.node.local(LOCK);
    let before = Header::FREE.with_size(1).with_writers(1);
    let seat = client.inbox.take_seat(LOCK).expect("a seat");
    local.begin();
    let asked = Asked {
        place: seat.place(),
        stamp: seat.stamp(),
        desk: machine.endpoint.id(),
    };
    assert!(!local.ask(asked), "it has joined");
    let task = client.clone();
    let queued = machine.spawn(async move {
        let who = |seat| Waiter {
            member,
            seat,
            ..waiter(WRITER, 0)
        };
        let entered = task.queue_up(&local, before, &who).await.expect("the node is there");
        matches!(entered, Entered::Reset)
    });
    stage.run_for(LEASE_NS / 2);
    assert_eq!(queued.take(), Some(true));
    let told = seat
        .take(&machine.endpoint)
        .expect("the fabric is there")
        .expect("a letter");
    assert_eq!(
        (told.letter.kind, told.letter.words[0]),
        (LetterKind::Done, machine.endpoint.id().0)
    );
    assert!(client.node.is_idle(), "nobody of this node waits");
}

/// A holder leaves, and the next has not written its entry: the queue is read until it has, for a lease at most.
#[test]
fn a_release_waits_for_the_entry_behind_it() {
    for is_written in [true, false] {
        let stage = Stage::new();
        let (machine, client, member) = listed(&stage);
        let local = client.node.local(LOCK);
        local.begin();
        lay_out(&stage, Header::FREE.with_size(2).with_writers(2), 16, &[]);
        let seat = client.inbox.take_seat(LOCK).expect("a seat");
        let (task, queue) = (client.clone(), Rc::clone(&local));
        let start = machine.costs();
        let given = machine.spawn(async move { task.give(&queue, WRITER).await });
        stage.run_for(LEASE_NS / 2);
        assert!(given.take().is_none());
        assert_eq!(machine.site.resets().count, 0);
        if is_written {
            let waiting = Waiter {
                member,
                seat: seat.number(),
                ..waiter(WRITER, 9)
            };
            lay_out(&stage, Header(stage.word(LOCK)), 16, &[(1, waiting)]);
            stage.run_for(LEASE_NS / 4);
            assert_eq!(given.take(), Some(Ok(())));
            let letter = seat
                .take(&machine.endpoint)
                .expect("the fabric is there")
                .expect("a letter")
                .letter;
            assert_eq!((letter.kind, letter.words), (LetterKind::Granted, [1, 0, 0]));
            // The first READ is no retry.
            assert_eq!(machine.cost_since(&start), [client.retries.get() + 1, 0, 1, 0]);
        } else {
            stage.run_for(LEASE_NS / 2 + 10_000);
            assert_eq!(given.take(), Some(Ok(())));
            stage.run_for(LEASE_NS / 4);
            assert_eq!(machine.site.resets().count, 1);
        }
        assert!(client.retries.get() > 100, "{} looks", client.retries.get());
    }
}

#[test]
fn the_first_of_those_elsewhere_is_found_in_the_queue() {
    let four = [
        (1, waiter(READER, 300)),
        (2, waiter(WRITER, 400)),
        (3, waiter(READER, 200)),
        // Behind the last: of somebody who has not joined yet, as far as the header says.
        (4, waiter(WRITER, 100)),
    ];
    for (held, size, writers, expected) in [
        (WRITER, 1, 1, None),
        (WRITER, 2, 1, Some(300)),
        (WRITER, 3, 2, Some(300)),
        (WRITER, 4, 2, Some(200)),
        (WRITER, 5, 3, Some(100)),
        // Readers in front of the first writer share the lock.
        (READER, 2, 0, None),
        (READER, 3, 1, Some(400)),
        (READER, 4, 1, Some(200)),
    ] {
        let stage = Stage::new();
        let machine = machine(&stage, 8);
        let header = Header::FREE.with_size(size).with_writers(writers);
        lay_out(&stage, header, 8, &four);
        let found = stage.sim.block_on(client(&machine).earliest_remote(LOCK, held));
        assert_eq!(found, Ok(expected.map(Timestamp)), "{held:?}, {size} in the queue");
        let start = machine.costs();
        let _ = stage.sim.block_on(client(&machine).earliest_remote(LOCK, held));
        assert_eq!(machine.cost_since(&start), [1, 0, 0, 0]);
    }
}

/// Whoever waits for the end of a reset asks after two leases, and again after two more, as long as the answer is
/// *busy*; anew for each who resets it.
#[test]
fn who_resets_a_lock_is_asked_every_two_leases() {
    let stage = Stage::new();
    let (_one, one, first) = listed(&stage);
    let (_other, other, second) = listed(&stage);
    let (machine, client, _) = listed(&stage);
    for busy in [&one, &other] {
        busy.node.local(LOCK).is_resetting.set(true);
    }
    let begin_by = |member: Member| stage.set_word(LOCK, Header::FREE.with_reset_id(member.0.into()).0);
    let start = machine.costs();
    let sends = || machine.cost_since(&start)[3];
    begin_by(first);
    let (task, local) = (client.clone(), client.node.local(LOCK));
    let waited = machine.spawn(async move { task.await_reset(&local).await });
    stage.run_for(LEASE_NS + LEASE_NS / 2);
    begin_by(second);
    stage.run_for(LEASE_NS + LEASE_NS / 2);
    assert_eq!(sends(), 0, "the second is not known for two leases");
    stage.run_for(LEASE_NS);
    assert_eq!(sends(), 1);
    stage.run_for(LEASE_NS + LEASE_NS / 2);
    assert_eq!(sends(), 1, "it is busy");
    stage.run_for(LEASE_NS / 2);
    assert_eq!(sends(), 2);
    assert!(waited.take().is_none());
    stage.set_word(LOCK, Header::FREE.0);
    stage.run_for(LEASE_NS / 4);
    assert_eq!(waited.take(), Some(Ok(())));
    assert_eq!(machine.site.resets().count, 0);
}

/// The one whose name is in the header says that it is done, has died, is gone from the roster, or says nothing: then
/// another one takes the reset over.
#[test]
fn a_reset_that_nobody_goes_on_with_is_taken_over() {
    for fate in ["done", "dead", "struck", "silent"] {
        let stage = Stage::new();
        let (begun, beginner, member) = listed(&stage);
        let (machine, client, _) = listed(&stage);
        stage.set_word(LOCK, Header::FREE.with_size(1).with_reset_id(member.0.into()).0);
        match fate {
            "dead" => stage.sim.crash_client(begun.endpoint.id()),
            "silent" => stage.sim.pause_client(begun.endpoint.id()),
            "struck" => {
                let struck = client.roster().strike(&machine.endpoint, member);
                stage.sim.block_on(struck).expect("the node is there");
            }
            _ => {}
        }
        drop(beginner);
        let (task, local) = (client.clone(), client.node.local(LOCK));
        let waited = machine.spawn(async move { task.await_reset(&local).await });
        stage.run_for(2 * LEASE_NS);
        assert_eq!(machine.site.resets().count, 0, "{fate}");
        if fate == "silent" {
            stage.run_for(2 * LEASE_NS);
            assert_eq!(machine.site.resets().count, 0, "{fate}");
            assert!(
                !stage.sim.is_fenced(begun.endpoint.id()),
                "it is given two leases to answer"
            );
        }
        stage.run_for(LEASE_NS / 2);
        assert_eq!(waited.take(), Some(Ok(())), "{fate}");
        assert_eq!(machine.site.resets().count, 1, "{fate}");
        assert_eq!(Header(stage.word(LOCK)).size(), 0, "{fate}");
        let is_cut_off = matches!(fate, "dead" | "silent");
        assert_eq!(stage.sim.is_fenced(begun.endpoint.id()), is_cut_off, "{fate}");
    }
}

/// Only who is in the roster is told; the others are passed over.
#[test]
fn a_grant_goes_to_who_is_still_in_the_roster() {
    let stage = Stage::new();
    let (gone, _, gone_member) = listed(&stage);
    let (there, reader, there_member) = listed(&stage);
    let (machine, client, _) = listed(&stage);
    let strike = reader.roster().strike(&gone.endpoint, gone_member);
    stage.sim.block_on(strike).expect("the node is there");
    let seat = reader.inbox.take_seat(LOCK).expect("a seat");
    let granted = [(3, gone_member), (4, there_member)].map(|(place, member)| {
        let waiter = Waiter {
            member,
            seat: seat.number(),
            ..waiter(READER, 0)
        };
        (Index(place), waiter)
    });
    let start = machine.costs();
    let told = client.notify(LOCK, &granted, Some(Timestamp(77)));
    stage.sim.block_on(told).expect("the node is there");
    stage.run_for(10_000);
    // Both names are looked up.
    assert_eq!(machine.cost_since(&start), [2, 0, 0, 1]);
    let letter = seat
        .take(&there.endpoint)
        .expect("the fabric is there")
        .expect("a letter")
        .letter;
    assert_eq!((letter.kind, letter.words), (LetterKind::Granted, [4, 1 << 16 | 77, 0]));
}

#[test]
fn entries_stand_behind_the_header_by_their_slot() {
    let at = |place, capacity| slot_of(LOCK, Index(place), capacity).offset() - LOCK.offset();
    assert_eq!([at(0, 4), at(3, 4), at(4, 4), at(7, 4)], [8, 32, 8, 32]);
}
