//! The local lock, driven by hand.

use super::*;

const NOW: Timestamp = Timestamp(1_000);
const BEFORE: Option<Timestamp> = Some(Timestamp(900));
const LATER: Option<Timestamp> = Some(Timestamp(1_100));

/// A queue that one writer holds, with waiters of these modes who asked at `NOW`.
fn held_by_a_writer(policy: Policy, remote: Option<Timestamp>, waiting: &[Mode]) -> (LocalQueue, Vec<Rc<Turn>>) {
    let mut queue = LocalQueue::default();
    assert!(matches!(queue.ask(Mode::Exclusive, NOW, true), Asked::Local));
    queue.taken(Mode::Exclusive, remote, policy);
    let turns = waiting.iter().map(|&mode| match queue.ask(mode, NOW, true) {
        Asked::Wait(turn, unknown) => {
            assert_eq!(unknown.is_some(), remote.is_none());
            turn
        }
        other => panic!("{other:?} beside a writer"),
    });
    let turns = turns.collect();
    (queue, turns)
}

fn handed(turns: &[Rc<Turn>]) -> Vec<Option<Handed>> {
    turns.iter().map(|turn| turn.handed.get()).collect()
}

const WRITER: Mode = Mode::Exclusive;
const READER: Mode = Mode::Shared;

#[test]
fn a_writer_is_followed_by_who_asked_first() {
    for (policy, remote, stays) in [
        (Policy::TimestampTaskFair, None, true),
        (Policy::TimestampTaskFair, LATER, true),
        (Policy::TimestampTaskFair, BEFORE, false),
        (Policy::TimestampPhaseFair, BEFORE, false),
        (Policy::RemotePrefer, None, true),
        (Policy::RemotePrefer, LATER, false),
        (Policy::LocalPrefer, BEFORE, true),
        (Policy::LocalBound, BEFORE, true),
    ] {
        let (mut queue, turns) = held_by_a_writer(policy, remote, &[WRITER]);
        let let_go = queue.leave(policy, false);
        assert_eq!(let_go.is_none(), stays, "{policy:?} with {remote:?}");
        if let Some(mode) = let_go {
            queue.moved(policy, mode);
        }
        let expected = if stays { Handed::Inside } else { Handed::Local };
        assert_eq!(handed(&turns), [Some(expected)]);
    }
}

#[test]
fn local_bound_lets_go_after_its_run() {
    let policy = Policy::LocalBound;
    let (mut queue, turns) = held_by_a_writer(policy, BEFORE, &[WRITER; LOCAL_RUN_MAX as usize + 1]);
    for _ in 0..LOCAL_RUN_MAX {
        assert_eq!(queue.leave(policy, false), None);
    }
    assert_eq!(queue.leave(policy, false), Some(WRITER));
    assert_eq!(handed(&turns).iter().flatten().count(), LOCAL_RUN_MAX as usize);
}

#[test]
fn task_fair_keeps_the_order_and_phase_fair_lets_readers_in() {
    let waiting = [WRITER, READER, WRITER, READER];
    let (mut queue, turns) = held_by_a_writer(Policy::TimestampTaskFair, None, &waiting);
    assert_eq!(queue.leave(Policy::TimestampTaskFair, false), None);
    assert_eq!(handed(&turns), [Some(Handed::Inside), None, None, None]);

    let policy = Policy::TimestampPhaseFair;
    let (mut queue, turns) = held_by_a_writer(policy, None, &waiting);
    assert_eq!(queue.leave(policy, false), None, "nobody waits elsewhere");
    assert_eq!(handed(&turns), [Some(Handed::Inside), None, None, None]);

    let (mut queue, turns) = held_by_a_writer(policy, BEFORE, &waiting);
    // The CQL lock goes elsewhere, and it is a reader that queues up for it again.
    assert_eq!(queue.leave(policy, false), Some(WRITER));
    queue.moved(policy, WRITER);
    assert_eq!(handed(&turns), [None, Some(Handed::Local), None, None]);
    queue.taken(READER, None, policy);
    assert_eq!(handed(&turns), [None, Some(Handed::Local), None, Some(Handed::Inside)]);
    assert_eq!(queue.leave(policy, false), None, "one of two readers");
    assert_eq!(queue.leave(policy, false), Some(READER));
}

/// Section 5.3: whoever waits elsewhere stops the sharing of the task-fair design only.
#[test]
fn phase_fair_readers_share_although_somebody_waits_elsewhere() {
    for (policy, third) in [
        (Policy::TimestampPhaseFair, Some(Handed::Inside)),
        (Policy::TimestampTaskFair, None),
        (Policy::RemotePrefer, None),
        (Policy::LocalPrefer, Some(Handed::Inside)),
        (Policy::LocalBound, Some(Handed::Inside)),
    ] {
        let (mut queue, turns) = held_by_a_writer(policy, BEFORE, &[READER, READER]);
        // The lock leaves the node, and comes back with the first of the readers.
        assert_eq!(queue.leave(policy, true), Some(WRITER));
        queue.moved(policy, WRITER);
        queue.taken(READER, BEFORE, policy);
        assert_eq!(handed(&turns), [Some(Handed::Local), third], "{policy:?}");
    }
}

#[test]
fn readers_share_until_a_writer_waits() {
    let policy = Policy::TimestampTaskFair;
    let mut queue = LocalQueue::default();
    assert!(matches!(queue.ask(READER, NOW, true), Asked::Local));
    queue.taken(READER, None, policy);
    assert!(matches!(queue.ask(READER, NOW, true), Asked::Inside));
    assert!(
        matches!(queue.ask(READER, NOW, false), Asked::Wait(..)),
        "others want us to let go"
    );
    let mut queue = LocalQueue::default();
    assert!(matches!(queue.ask(READER, NOW, true), Asked::Local));
    queue.taken(READER, None, policy);
    assert!(matches!(queue.ask(WRITER, NOW, true), Asked::Wait(..)));
    assert!(matches!(queue.ask(READER, NOW, true), Asked::Wait(..)));
}

#[test]
fn a_lock_that_others_reset_does_not_stay() {
    let policy = Policy::LocalPrefer;
    let (mut queue, turns) = held_by_a_writer(policy, None, &[WRITER]);
    assert_eq!(queue.leave(policy, true), Some(WRITER));
    queue.moved(policy, WRITER);
    assert_eq!(handed(&turns), [Some(Handed::Local)]);
}

#[test]
fn nobody_left_is_free() {
    let policy = Policy::TimestampTaskFair;
    let (mut queue, _) = held_by_a_writer(policy, None, &[]);
    assert_eq!(queue.leave(policy, false), Some(WRITER));
    assert!(!queue.is_free(), "the CQL lock is being released");
    queue.moved(policy, WRITER);
    assert!(queue.is_free());
}

/// Readers that had to wait beside readers come in together when one of them is handed the lock.
#[test]
fn a_reader_that_is_handed_the_lock_lets_in_the_others() {
    for (policy, others) in [
        (Policy::TimestampPhaseFair, [READER, WRITER, READER]),
        (Policy::TimestampTaskFair, [READER, READER, WRITER]),
    ] {
        let mut queue = LocalQueue::default();
        assert!(matches!(queue.ask(READER, NOW, true), Asked::Local));
        queue.taken(READER, None, policy);
        let turns = others.map(|mode| match queue.ask(mode, NOW, false) {
            Asked::Wait(turn, Some(READER)) => turn,
            other => panic!("{other:?} while others want us to let go"),
        });
        assert_eq!(queue.leave(policy, false), None);
        let inside = others.map(|mode| (mode == READER).then_some(Handed::Inside));
        assert_eq!(handed(&turns), inside);
        assert_eq!(queue.state, State::Held(READER, 2));
        // Who came in counts, the handing over as well.
        assert_eq!(queue.run, 2);
        assert_eq!(queue.leave(policy, false), None);
        assert_eq!(queue.leave(policy, false), Some(READER));
    }
}

/// When the first of those elsewhere asked is noted once, while the lock is held.
#[test]
fn who_waits_elsewhere_is_noted_while_the_lock_is_held() {
    let policy = Policy::TimestampTaskFair;
    let mut queue = LocalQueue::default();
    queue.note_remote(BEFORE);
    assert_eq!(queue.remote, None, "nobody holds it");
    assert!(matches!(queue.ask(WRITER, NOW, true), Asked::Local));
    queue.note_remote(BEFORE);
    assert_eq!(queue.remote, None, "it is not held yet");
    queue.taken(WRITER, None, policy);
    queue.note_remote(LATER);
    queue.note_remote(BEFORE);
    assert_eq!(queue.remote, LATER);
    assert_eq!(queue.leave(policy, false), Some(WRITER));
    assert_eq!(queue.remote, None, "it is for the next time");
}
