//! The queue of CIDER, when something goes wrong in it.

use farside_fabric::EndpointId;

use super::*;
use crate::testing::{LEASE_NS, LOCK, Machine, NODE, Stage};

const REQUEST: Request = Request {
    entry: LOCK,
    version: Version::of(0),
    identity: 9,
    is_delete: false,
    combines: true,
};

/// A client that knows no agent.
fn client(stage: &Stage) -> (Machine, Client) {
    let machine = stage.machine_with(LockOptions {
        service: None,
        ..Stage::options()
    });
    let client = Client::new(machine.endpoint.clone(), &machine.site, Rc::default());
    (machine, client)
}

fn next_seat(client: &Client) -> u16 {
    client.inbox.take_seat(LOCK).expect("a seat").number()
}

fn enter(stage: &Stage, client: &Client) -> Place {
    match stage.sim.block_on(client.clone().enter(REQUEST)) {
        Ok(Entered::Turn(place)) => place,
        other => panic!("{other:?} of a queue that is empty"),
    }
}

/// Lets somebody else be the last of the queue.
fn queue_up(stage: &Stage, endpoint: EndpointId) {
    let place = letter::Place { endpoint, seat: 5 };
    stage.set_word(LOCK, TailWord::of(place).bits());
}

#[test]
fn who_was_alone_leaves_by_one_atomic_and_its_seat_is_dealt_again() {
    let stage = Stage::new();
    let (machine, client) = client(&stage);
    let place = enter(&stage, &client);
    assert!(!place.has_company() && !place.has_waited());
    let start = machine.costs();
    assert_eq!(
        stage.sim.block_on(client.clone().leave(place, Outcome::Replaced)),
        Ok(1)
    );
    assert_eq!(machine.cost_since(&start), [0, 0, 1, 0]);
    assert_eq!((stage.word(LOCK), stage.word(LOCK.plus(8))), (0, 0));
    assert_eq!(next_seat(&client), 1);
}

/// Somebody has entered behind us and does not say who it is: waited for, for a lease.
#[test]
fn a_lock_is_dropped_when_the_next_one_does_not_say_who_it_is() {
    let stage = Stage::new();
    let (machine, client) = client(&stage);
    let place = enter(&stage, &client);
    queue_up(&stage, EndpointId(77));
    let task = client.clone();
    let left = machine.spawn(async move { task.leave(place, Outcome::Replaced).await });
    stage.run_for(LEASE_NS - 10_000);
    assert!(left.take().is_none());
    stage.run_for(20_000);
    assert_eq!(left.take(), Some(Ok(1)));
    assert_eq!(stage.word(LOCK.plus(8)), 0, "nobody got it");
    assert_eq!(next_seat(&client), 2);
}

/// Whoever stood still for so long that the lock may have been reset twice enters anew, at another seat.
#[test]
fn who_has_lost_track_burns_its_seat() {
    let stage = Stage::new();
    let (machine, client) = client(&stage);
    let other = stage.machine();
    queue_up(&stage, other.endpoint.id());
    let task = client.clone();
    let entered = machine.spawn(async move { task.enter(REQUEST).await.is_ok() });
    stage.run_for(LEASE_NS / 4);
    stage.sim.pause_client(machine.endpoint.id());
    stage.run_for(3 * LEASE_NS);
    stage.sim.resume_client(machine.endpoint.id());
    stage.run_for(LEASE_NS / 4);
    assert!(entered.take().is_none());
    assert_eq!(client.retries.get(), 1);
    let tail = TailWord::of_bits(stage.word(LOCK)).place();
    assert_eq!(tail.map(|place| place.seat), Some(2));
}

/// The letter arrives, the count does not: the lock may stand still for others, and the caller has to know.
#[test]
fn a_hand_over_fails_if_it_is_not_counted() {
    let stage = Stage::new();
    let (machine, client) = client(&stage);
    let (other, behind) = self::client(&stage);
    let seat = behind.inbox.take_seat(LOCK).expect("a seat");
    for is_counted in [true, false] {
        let mut place = enter(&stage, &client);
        place.successor = Some(Successor {
            place: seat.place(),
            stamp: seat.stamp(),
        });
        assert!(place.has_company());
        if !is_counted {
            stage.sim.crash_node(NODE);
        }
        let task = client.clone();
        let left = machine.spawn(async move { task.leave(place, Outcome::Replaced).await });
        stage.run_for(3 * LEASE_NS);
        let left = left.take().expect("it has ended");
        assert_eq!(left.is_ok(), is_counted, "{left:?}");
        let letter = seat
            .take(&other.endpoint)
            .expect("the fabric is there")
            .expect("a letter")
            .letter;
        assert_eq!(letter.kind, LetterKind::Handover);
        if is_counted {
            assert_eq!(stage.word(LOCK.plus(8)), 1);
            assert_eq!(next_seat(&client), 1);
            stage.set_word(LOCK, 0);
        } else {
            assert_eq!(next_seat(&client), 2);
        }
    }
}
