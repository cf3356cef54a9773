//! Grants, and a node that goes and comes again.

use core::future::Future;
use core::pin::pin;
use core::task::{Context, Waker};

use super::*;

const HOME: NodeId = NodeId::new(0);

fn message() -> Message {
    Message::try_from(&b"hello"[..]).expect("short")
}

/// How many more the node is granted, for each of so many messages.
fn grants(inbox: &Inbox, count: usize) -> Vec<u64> {
    let take = |_| match inbox.take() {
        Taken::Message(received, grant) => {
            assert_eq!((received.from, received.message), (EndpointId(7), message()));
            grant
        }
        _ => panic!("a message waits"),
    };
    (0..count).map(take).collect()
}

fn push(inbox: &Inbox, count: usize) {
    for _ in 0..count {
        inbox.put(EndpointId(7), message());
    }
}

#[test]
fn messages_are_granted_when_so_many_were_taken() {
    const TURN: usize = GRANT_COUNT as usize;
    let inbox = Inbox::default();
    push(&inbox, 2 * TURN);
    assert_eq!(inbox.len(), 2 * TURN);
    for _ in 0..2 {
        let mut expected = vec![0; TURN - 1];
        expected.push(GRANT_COUNT);
        assert_eq!(grants(&inbox, TURN), expected);
    }
    assert!(matches!(inbox.take(), Taken::Empty));
}

#[test]
fn only_what_the_node_has_pushed_is_granted() {
    const TURN: usize = GRANT_COUNT as usize;
    let inbox = Inbox::default();
    push(&inbox, TURN - 1);
    for _ in 0..TURN {
        inbox.put_from_card(EndpointId(7), message());
    }
    assert_eq!(inbox.len(), 2 * TURN - 1);
    assert_eq!(grants(&inbox, 2 * TURN - 1), vec![0; 2 * TURN - 1]);
    push(&inbox, 1);
    assert_eq!(grants(&inbox, 1), [GRANT_COUNT]);
}

#[test]
fn what_has_come_is_taken_before_the_node_is_lost() {
    let inbox = Inbox::default();
    push(&inbox, 1);
    inbox.node_lost(NodeId::new(1));
    grants(&inbox, 1);
    assert!(matches!(inbox.take(), Taken::Empty), "another node");
    push(&inbox, 1);
    inbox.node_lost(HOME);
    grants(&inbox, 1);
    assert!(matches!(inbox.take(), Taken::Lost));
    inbox.node_found();
    assert!(matches!(inbox.take(), Taken::Empty));
}

#[test]
fn a_node_that_comes_again_knows_no_grants() {
    const TURN: usize = GRANT_COUNT as usize;
    let inbox = Inbox::default();
    push(&inbox, TURN - 1);
    grants(&inbox, TURN - 1);
    inbox.node_lost(HOME);
    inbox.node_found();
    push(&inbox, TURN);
    let mut expected = vec![0; TURN - 1];
    expected.push(GRANT_COUNT);
    assert_eq!(grants(&inbox, TURN), expected);
}

#[test]
fn who_waits_hears_of_a_message_and_of_the_end() {
    type Happen = fn(&Inbox);
    let happen: [(Happen, bool); 4] = [
        (|inbox| inbox.put(EndpointId(7), message()), true),
        (|inbox| inbox.put_from_card(EndpointId(7), message()), true),
        (|inbox| inbox.node_lost(HOME), true),
        (|inbox| inbox.node_lost(NodeId::new(1)), false),
    ];
    for (happen, is_heard) in happen {
        let inbox = Inbox::default();
        let mut changed = pin!(inbox.changed());
        let mut poll = || {
            let waiting = changed.as_mut();
            waiting.poll(&mut Context::from_waker(Waker::noop())).is_ready()
        };
        assert!(!poll());
        happen(&inbox);
        assert_eq!(poll(), is_heard);
    }
}
