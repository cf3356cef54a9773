//! What a compute node knows of its locks, without far memory.

use super::*;
use crate::Mode;
use crate::declock::local::{Asked as Step, Policy};
use crate::declock::timestamp::Timestamp;
use crate::letter::ANY_STAMP;
use crate::testing::{LOCK, Stage};

fn node() -> Node {
    Node::new(&Stage::options())
}

fn asked(endpoint: u64) -> Asked {
    Asked {
        place: Place {
            endpoint: EndpointId(endpoint),
            seat: 1,
        },
        stamp: 5,
        desk: EndpointId(3),
    }
}

/// Each who asks is told once, by the last that is done.
#[test]
fn who_asks_is_told_when_the_last_is_done() {
    let local = Local::new(LOCK);
    assert!(local.ask(asked(7)), "nobody is busy");
    assert!(!local.is_asked());
    local.begin();
    local.begin();
    for one in [asked(7), asked(8), asked(7)] {
        assert!(!local.ask(one));
    }
    assert!(local.is_asked());
    assert_eq!(local.end(), []);
    assert_eq!(local.end(), [asked(7), asked(8)]);
    assert!(!local.is_asked());
    assert!(local.is_idle());
    local.begin();
    assert_eq!(local.end(), [], "they were told");
}

#[test]
fn who_waits_is_told_to_start_over_once_and_only_while_it_waits() {
    let inbox = Inbox::new(EndpointId(3));
    let (gone, here) = (
        inbox.take_seat(LOCK).expect("a seat"),
        inbox.take_seat(LOCK).expect("a seat"),
    );
    let local = Local::new(LOCK);
    let waits = [local.wait(Index(1), &gone), local.wait(Index(2), &here)];
    assert!(!local.is_idle());
    local.stop_waiting(&waits[0]);
    assert_eq!(local.waiting.borrow().len(), 1);
    assert!(local.ask(asked(7)));
    assert!(local.ask(asked(8)));
    assert_eq!(waits.each_ref().map(|wait| wait.is_aborted.get()), [false, true]);
    assert!(local.is_idle());
    let stage = Stage::new();
    let endpoint = stage.machine().endpoint;
    assert_eq!(gone.take(&endpoint), Ok(None));
    let letter = here
        .take(&endpoint)
        .expect("the fabric is there")
        .expect("a letter")
        .letter;
    assert_eq!((letter.kind, letter.entry), (LetterKind::Aborted, LOCK));
    assert_ne!(letter.stamp, ANY_STAMP);
    assert_eq!(here.take(&endpoint), Ok(None), "once");
}

/// Where many are known, whatever makes a lock worth remembering alone keeps it.
#[test]
fn a_lock_that_nobody_uses_is_forgotten_among_many() {
    type Change = fn(&Local);
    let changes: [(&str, Change, Change); 4] = [
        ("busy", |local| local.begin(), |local| drop(local.end())),
        (
            "reset",
            |local| local.is_resetting.set(true),
            |local| local.is_resetting.set(false),
        ),
        (
            "asked",
            |local| local.asked.borrow_mut().push(asked(7)),
            |local| local.asked.borrow_mut().clear(),
        ),
        (
            "held",
            |local| {
                let asked = local.queue.borrow_mut().ask(Mode::Shared, Timestamp(0), true);
                assert!(matches!(asked, Step::Local));
            },
            |local| local.queue.borrow_mut().moved(Policy::TimestampTaskFair, Mode::Shared),
        ),
    ];
    let node = node();
    assert!(node.known(LOCK).is_none());
    for number in 1..=KNOWN_MAX as u64 {
        let local = node.local(LOCK.plus(64 * number));
        node.tidy(local);
        assert!(node.known(LOCK.plus(64 * number)).is_some(), "few are kept");
    }
    for (what, change, undo) in changes {
        change(&node.local(LOCK));
        assert!(!node.is_idle(), "{what}");
        node.tidy(node.local(LOCK));
        let local = node.known(LOCK).expect(what);
        undo(&local);
        assert!(node.is_idle(), "{what}");
        // Somebody else has it in hand.
        node.tidy(node.local(LOCK));
        assert!(node.known(LOCK).is_some(), "{what}");
        drop(local);
        node.tidy(node.local(LOCK));
        assert!(node.known(LOCK).is_none(), "{what}");
    }
}

#[test]
fn an_endpoint_joins_once() {
    let node = node();
    let id = EndpointId(3);
    assert!(matches!(node.membership(id), Membership::None));
    assert!(matches!(node.membership(id), Membership::Joining));
    assert_eq!(node.member(id), None);
    node.set_membership(id, None);
    assert!(matches!(node.membership(id), Membership::None), "it has failed");
    node.set_membership(id, Some(Member(9)));
    assert!(matches!(node.membership(id), Membership::Member(Member(9))));
    assert_eq!((node.member(id), node.member(EndpointId(4))), (Some(Member(9)), None));
    node.set_membership(id, None);
    assert_eq!(node.member(id), None);
}

#[test]
fn resets_are_summed_up() {
    let node = node();
    assert_eq!(node.resets(), Resets::default());
    node.note_reset(30);
    node.note_reset(12);
    assert_eq!(node.resets(), Resets { count: 2, spent_ns: 42 });
}

#[test]
fn the_shared_clock_starts_when_it_is_set() {
    let node = node();
    assert_eq!(node.shared_clock_ns(70), 70);
    node.set_clock(50);
    assert_eq!([50, 51, 80].map(|now_ns| node.shared_clock_ns(now_ns)), [0, 1, 30]);
    // Ahead of the shared clock, for nodes that were started before it.
    node.set_clock(50_u64.wrapping_sub(1_000));
    assert_eq!(node.shared_clock_ns(60), 1_010);
}

#[test]
fn settings_are_those_of_the_site() {
    let node = Node::new(&LockOptions {
        declock_capacity: 32,
        declock_notice_ns: 5,
        ..Stage::options()
    });
    assert_eq!((node.capacity(), node.queue_bytes(), node.notice_ns()), (32, 256, 5));
    assert_eq!(node.lease_ns(), Stage::options().lease_ns);
    assert!(node.roster().is_some());
    assert!(Node::new(&LockOptions::default()).roster().is_none());
}
