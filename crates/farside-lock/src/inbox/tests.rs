//! Letters reach the seat that they are for, whichever client of the endpoint takes them out, and no other.

use farside_fabric::Endpoint;
use farside_fabric::shm::{self, Segment};
use farside_fabric::sim::{Sim, SimOptions};
use farside_fabric::{Message, NodeId};

use super::*;
use crate::atomics::both;
use crate::letter::LetterKind;

const LOCK: RemoteAddr = RemoteAddr::new(NodeId::new(0), 64);
const OTHER: RemoteAddr = RemoteAddr::new(NodeId::new(0), 128);

fn letter(to: &Seat, word: u64) -> Letter {
    Letter {
        kind: LetterKind::Handover,
        seat: to.number(),
        reply: 0,
        stamp: to.stamp(),
        entry: LOCK,
        words: [word, 0, 0],
    }
}

fn two_endpoints() -> (Sim, Endpoint, Endpoint) {
    let sim = Sim::new(SimOptions::default());
    let _ = sim.add_memory_node(4096);
    let (one, other) = (
        sim.endpoint(sim.add_compute_node()),
        sim.endpoint(sim.add_compute_node()),
    );
    (sim, one, other)
}

fn words(arrived: Option<Arrived>) -> Option<u64> {
    arrived.map(|arrived| arrived.letter.words[0])
}

#[test]
fn whoever_takes_a_letter_out_hands_it_on() {
    let (sim, here, there) = two_endpoints();
    let (inbox, writer) = (Inbox::new(here.id()), Inbox::new(there.id()));
    let seats: Vec<Seat> = (0..3).map(|_| inbox.take_seat(LOCK).expect("a seat")).collect();
    let letters: Vec<Letter> = (0..).zip(&seats).map(|(word, seat)| letter(seat, word)).collect();
    let got = Rc::new(RefCell::new(Vec::new()));
    for seat in seats {
        let (endpoint, got) = (here.clone(), Rc::clone(&got));
        here.spawn(async move {
            let arrived = seat
                .receive(&endpoint, Deadline::NEVER)
                .await
                .expect("the fabric is there");
            got.borrow_mut().push((seat.number(), words(arrived)));
        });
    }
    // In the opposite order of waiting: the first who waits takes out what is for the last.
    sim.block_on(async {
        there.sleep(10_000).await;
        for letter in letters.into_iter().rev() {
            writer.send(&there, here.id(), letter).await.expect("it is there");
        }
    });
    sim.run_until_idle();
    let mut got = got.take();
    got.sort_unstable();
    assert_eq!(got, [(1, Some(0)), (2, Some(1)), (3, Some(2))]);
}

#[test]
fn late_and_foreign_letters_are_dropped() {
    let (sim, here, there) = two_endpoints();
    let (inbox, writer) = (Inbox::new(here.id()), Inbox::new(there.id()));
    let before = inbox.take_seat(LOCK).expect("a seat");
    let late = letter(&before, 1);
    drop(before);
    let seat = inbox.take_seat(LOCK).expect("a seat");
    assert_eq!(seat.number(), late.seat, "the seat is dealt again");
    let foreign = Letter {
        entry: OTHER,
        ..letter(&seat, 2)
    };
    let nowhere = Letter {
        seat: 77,
        ..letter(&seat, 3)
    };
    let unstamped = Letter {
        stamp: ANY_STAMP,
        ..letter(&seat, 4)
    };
    sim.block_on(async {
        let noise = Message::try_from(&b"noise"[..]).expect("short");
        there
            .send(here.id(), &noise, Deadline::NEVER)
            .await
            .expect("it is there");
        for letter in [late, foreign, nowhere, unstamped, letter(&seat, 5)] {
            writer.send(&there, here.id(), letter).await.expect("it is there");
        }
        for expected in [Some(4), Some(5), None] {
            let deadline = here.deadline_in(100_000);
            assert_eq!(words(seat.receive(&here, deadline).await.expect("no error")), expected);
        }
    });
}

#[test]
fn a_letter_to_oneself_takes_no_message() {
    let (sim, here, _) = two_endpoints();
    let inbox = Inbox::new(here.id());
    let seat = inbox.take_seat(LOCK).expect("a seat");
    sim.block_on(inbox.send(&here, here.id(), letter(&seat, 9)))
        .expect("nothing can fail");
    assert_eq!(words(seat.take(&here).expect("no error")), Some(9));
    assert_eq!(seat.take(&here), Ok(None));
    assert_eq!(sim.verbs_executed(), 0);
}

#[test]
fn a_burnt_seat_is_not_dealt_again() {
    let inbox = Inbox::new(EndpointId(7));
    let burnt = inbox.take_seat(LOCK).expect("a seat");
    let number = burnt.number();
    burnt.burn();
    drop(burnt);
    let seats: Vec<Seat> = (0..3).map(|_| inbox.take_seat(LOCK).expect("a seat")).collect();
    assert!(seats.iter().all(|seat| seat.number() != number));
    assert!(seats.iter().all(|seat| seat.stamp() != ANY_STAMP));
}

#[test]
fn seats_run_out() {
    let inbox = Inbox::new(EndpointId(7));
    let seats: Vec<_> = (1..SEAT_COUNT_MAX).map(|_| inbox.take_seat(LOCK)).collect();
    assert!(seats.iter().all(Result::is_ok));
    assert_eq!(inbox.take_seat(LOCK), Err(LockError::NoSeat { entry: LOCK }));
}

/// A seat keeps so many letters, and drops the oldest.
#[test]
fn a_seat_drops_the_oldest_letters() {
    let (_sim, here, _) = two_endpoints();
    let inbox = Inbox::new(here.id());
    let quiet = inbox.take_seat(LOCK).expect("a seat");
    let busy = inbox.take_busy_seat(LOCK).expect("a seat");
    let agent = inbox.take_agent_seat();
    for (seat, kept) in [(quiet, 16), (busy, 4_096), (agent, 4_096)] {
        for word in 0..kept {
            inbox.leave(letter(&seat, word));
        }
        assert_eq!(words(seat.take(&here).expect("no error")), Some(0), "all are kept");
        for word in [kept, kept + 1, kept + 2] {
            inbox.leave(letter(&seat, word));
        }
        let next = || words(seat.take(&here).expect("no error"));
        let left: Vec<u64> = core::iter::from_fn(next).collect();
        assert_eq!(left, (3..kept + 3).collect::<Vec<_>>());
    }
    assert_eq!(inbox.take_agent_seat().number(), AGENT_SEAT, "the seat is free again");
}

/// A seat that is given back keeps as many letters as its next guest wants.
#[test]
fn how_many_letters_are_kept_is_up_to_the_guest() {
    let (_sim, here, _) = two_endpoints();
    let inbox = Inbox::new(here.id());
    drop(inbox.take_busy_seat(LOCK));
    let quiet = inbox.take_seat(LOCK).expect("a seat");
    (0..20).for_each(|word| inbox.leave(letter(&quiet, word)));
    let next = || quiet.take(&here).expect("no error");
    assert_eq!(core::iter::from_fn(next).count(), 16);
}

/// Whoever leaves with its letter has taken out what has arrived for others.
#[test]
fn no_letter_stays_in_the_endpoint_when_somebody_leaves() {
    let (sim, here, there) = two_endpoints();
    let (inbox, writer) = (Inbox::new(here.id()), Inbox::new(there.id()));
    let [one, other] = [(); 2].map(|()| inbox.take_seat(LOCK).expect("a seat"));
    sim.block_on(async {
        for letter in [letter(&one, 1), letter(&other, 2), letter(&one, 3)] {
            writer.send(&there, here.id(), letter).await.expect("it is there");
        }
        here.sleep(50_000).await;
        let arrived = one.receive(&here, Deadline::NEVER).await.expect("no error");
        assert_eq!(words(arrived), Some(1));
    });
    assert_eq!(here.try_receive(), Ok(None));
    assert_eq!(words(one.pop()), Some(3));
    assert_eq!(words(other.pop()), Some(2));
}

/// Two that write to each other with full mailboxes take out what they were sent while they wait. (In the simulator a
/// NIC tries again by itself until there is room.)
#[test]
fn full_mailboxes_are_waited_for() {
    const LETTERS: u64 = 1_000;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let tasks = tokio::task::LocalSet::new();
    let work = tasks.run_until(async {
        let segment = Segment::anonymous(4096).expect("memory");
        let ends = [(); 2].map(|()| {
            let fabric = shm::Fabric::new(vec![segment.clone()]);
            let endpoint = fabric.endpoint().expect("an endpoint");
            let inbox = Inbox::new(endpoint.id());
            let seat = inbox.take_busy_seat(LOCK).expect("a seat");
            (endpoint, inbox, seat)
        });
        let converse = async |from: usize, to: usize| {
            let (endpoint, inbox, ours) = &ends[from];
            let (receiver, _, seat) = &ends[to];
            for word in 0..LETTERS {
                let sent = inbox.send(endpoint, receiver.id(), letter(seat, word)).await;
                sent.expect("it is there");
            }
            for word in 0..LETTERS {
                let arrived = ours.receive(endpoint, Deadline::NEVER).await.expect("no error");
                assert_eq!(words(arrived), Some(word));
            }
        };
        both(converse(0, 1), converse(1, 0)).await;
    });
    runtime.expect("a runtime").block_on(work);
}

#[test]
fn seats_are_the_same_if_place_and_stamp_are() {
    let inbox = Inbox::new(EndpointId(7));
    let [one, other] = [(); 2].map(|()| inbox.take_seat(LOCK).expect("a seat"));
    assert_eq!(one, one);
    assert_ne!(one, other);
    let again = Seat {
        inbox: inbox.clone(),
        number: one.number(),
        stamp: one.stamp(),
        is_burnt: Cell::new(true),
    };
    assert_eq!(one, again);
    let later = Seat {
        inbox: inbox.clone(),
        number: one.number(),
        stamp: one.stamp() + 9,
        is_burnt: Cell::new(true),
    };
    assert_ne!(one, later);
    let (place, elsewhere) = (one.place(), Inbox::new(EndpointId(8)));
    let there = elsewhere.take_seat(LOCK).expect("a seat");
    assert_eq!((there.number(), there.stamp()), (one.number(), one.stamp()));
    assert_ne!(one, there, "{place:?}");
    drop((again, later));
}
