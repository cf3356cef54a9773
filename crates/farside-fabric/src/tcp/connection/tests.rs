//! How much may be on its way, who is woken when, and which bytes move.

use core::future::Future;
use core::pin::pin;
use std::sync::Arc;

use super::*;
use crate::addr::RemoteAddr;
use crate::buffer::Buffer;
use crate::tcp::operations::Pending;
use crate::tcp::testing::{Count, block_on, pair};
use crate::verb::Verb;

const NODE: NodeId = NodeId::new(0);

fn connection() -> Connection {
    Connection::new(NODE, Rc::default(), Rc::default())
}

/// Posts a READ of a word.
fn post_word(connection: &Connection) -> SlotIndex {
    let verb = Verb::ReadWord {
        source: RemoteAddr::new(NODE, 0),
    };
    let verbs = core::iter::once(&verb);
    let memory = Buffer::default().take();
    let index = connection.operations.borrow_mut().begin(verbs.clone(), memory);
    connection.post(index, verbs);
    index
}

/// What the node sends: these answers, each with one word.
fn answers(requests: impl IntoIterator<Item = u32>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for request in requests {
        let kind = ResponseKind::Answer;
        frame::put_response(&mut bytes, HEADER_BYTES + 8, request, kind, Status::Done);
        bytes.extend_from_slice(&u64::from(request).to_le_bytes());
    }
    bytes
}

fn input(bytes: &[u8]) -> Input {
    let mut input = Input::new();
    input.memory[..bytes.len()].copy_from_slice(bytes);
    input.end = bytes.len();
    input
}

fn poll_once<T>(future: &mut (impl Future<Output = T> + Unpin), count: &Arc<Count>) -> Poll<T> {
    let waker = Waker::from(count.clone());
    Pin::new(future).poll(&mut Context::from_waker(&waker))
}

#[test]
fn there_is_room_below_either_limit() {
    let mut link = Link {
        output: vec![0; OUTPUT_BYTES_MAX - 1],
        in_flight: vec![0; IN_FLIGHT_MAX - 1].into(),
        ..Link::default()
    };
    assert!(link.has_room());
    link.output.push(0);
    assert!(!link.has_room(), "as many bytes as there may be");
    link.output.pop();
    link.in_flight.push_back(0);
    assert!(!link.has_room(), "as many requests as there may be");
}

#[test]
fn the_driver_is_woken_once_until_it_looks() {
    let count: Arc<Count> = Arc::default();
    let connection = connection();
    connection.link.borrow_mut().driver = Some(Waker::from(count.clone()));
    post_word(&connection);
    assert_eq!(count.take(), 1);
    post_word(&connection);
    connection.grant(1);
    assert_eq!(count.take(), 0);
    connection.link.borrow_mut().is_driver_woken = false;
    connection.grant(1);
    assert_eq!(count.take(), 1);
}

#[test]
fn what_is_said_without_an_answer_goes_out_as_long_as_there_is_a_connection() {
    let count: Arc<Count> = Arc::default();
    let connection = connection();
    let (peer, ask) = (EndpointId(7), Introduction::new(rdma::IntroductionKind::Ask, 3, None));
    let say: [fn(&Connection, EndpointId, &Introduction); 2] = [
        |connection, _, _| connection.grant(5),
        |connection, peer, introduction| connection.introduce(peer, introduction),
    ];
    let mut expected = Vec::new();
    frame::put_granted(&mut expected, 5);
    frame::put_introduce(&mut expected, peer, &ask);
    for say in say {
        connection.link.borrow_mut().driver = Some(Waker::from(count.clone()));
        connection.link.borrow_mut().is_driver_woken = false;
        say(&connection, peer, &ask);
        assert_eq!(count.take(), 1);
    }
    assert_eq!(connection.link.borrow().output, expected);
    connection.close(FabricError::NodeGone { node: NODE });
    for say in say {
        say(&connection, peer, &ask);
    }
    assert_eq!(connection.link.borrow().output, [0; 0]);
}

#[test]
fn who_waits_for_many_answers_is_woken_once() {
    let connection = connection();
    let count: Arc<Count> = Arc::default();
    let operations = connection.operations.clone();
    let mut pending: Vec<_> = (0..3)
        .map(|_| Pending::new(&operations, post_word(&connection)))
        .collect();
    for pending in &mut pending {
        assert!(poll_once(pending, &count).is_pending());
    }
    let mut input = input(&answers(0..3));
    assert_eq!(connection.take_answers(&mut input), Ok(()));
    assert_eq!(count.take(), 1);
    assert_eq!(input.bytes(), [0; 0]);
    for pending in &mut pending {
        assert!(poll_once(pending, &count).is_ready());
    }
}

#[test]
fn each_of_those_who_wait_is_woken() {
    let connection = connection();
    let counts: [Arc<Count>; 3] = Default::default();
    let operations = connection.operations.clone();
    let mut pending: Vec<_> = (0..3)
        .map(|_| Pending::new(&operations, post_word(&connection)))
        .collect();
    for (pending, count) in pending.iter_mut().zip(&counts) {
        assert!(poll_once(pending, count).is_pending());
    }
    assert_eq!(connection.take_answers(&mut input(&answers(0..3))), Ok(()));
    assert_eq!(counts.each_ref().map(|count| count.take()), [1; 3]);
}

#[test]
fn an_answer_out_of_order_fails_whatever_waits() {
    for requests in [&[1][..], &[0, 0], &[0, 2], &[0, 1, 2]] {
        let connection = connection();
        let operations = connection.operations.clone();
        let pending = [(); 2].map(|()| Pending::new(&operations, post_word(&connection)));
        let refused = connection.take_answers(&mut input(&answers(requests.iter().copied())));
        assert!(matches!(refused, Err(FabricError::Protocol { .. })), "{requests:?}");
        drop(pending);
    }
}

/// The request whose answer is bad is still the one that fails first.
#[test]
fn a_bad_answer_fails_its_request_and_those_behind_it() {
    let connection = connection();
    let operations = connection.operations.clone();
    let pending = [(); 3].map(|()| Pending::new(&operations, post_word(&connection)));
    let mut bytes = answers(0..1);
    frame::put_response(&mut bytes, HEADER_BYTES, 1, ResponseKind::Answer, Status::Done);
    let failure = connection.take_answers(&mut input(&bytes)).expect_err("no word");
    connection.close(failure);
    let outcomes = pending.map(|pending| {
        let late = FabricError::DeadlineExceeded { node: NODE };
        pending.finish(&mut Buffer::default(), late, |_, _| ())
    });
    assert_eq!(outcomes, [Ok(()), Err(failure), Err(failure)]);
    // All slots are free again: three new operations take the same ones.
    let begin = || {
        operations
            .borrow_mut()
            .begin(core::iter::empty(), Buffer::default().take())
    };
    let mut again = [(); 3].map(|()| begin());
    again.sort_unstable();
    assert_eq!(again, [0, 1, 2]);
}

#[test]
fn who_waits_for_room_goes_on_when_there_is_some() {
    let connection = connection();
    let count: Arc<Count> = Arc::default();
    let operations = connection.operations.clone();
    let pending: Vec<_> = (0..=IN_FLIGHT_MAX)
        .map(|_| Pending::new(&operations, post_word(&connection)))
        .collect();
    assert!(!connection.has_room());
    let mut room = pin!(connection.room());
    assert!(poll_once(&mut room, &count).is_pending());
    // One too many before, as many as there may be now.
    assert_eq!(connection.take_answers(&mut input(&answers(0..1))), Ok(()));
    assert_eq!(count.take(), 0);
    assert!(connection.link.borrow().has_waiters, "they still wait");
    connection.link.borrow_mut().output.clear();
    assert_eq!(connection.take_answers(&mut input(&answers(1..2))), Ok(()));
    assert_eq!(count.take(), 1);
    assert!(!connection.link.borrow().has_waiters);
    assert!(poll_once(&mut room, &count).is_ready());
    drop(pending);
}

#[test]
fn who_waits_for_room_hears_of_the_end() {
    let connection = connection();
    let count: Arc<Count> = Arc::default();
    connection.link.borrow_mut().output = vec![0; OUTPUT_BYTES_MAX];
    let mut room = pin!(connection.room());
    assert!(poll_once(&mut room, &count).is_pending());
    let gone = FabricError::NodeGone { node: NODE };
    connection.close(gone);
    assert_eq!(count.take(), 1);
    assert!(poll_once(&mut room, &count).is_ready());
    assert_eq!(connection.failure(), Some(gone));
    connection.close(FabricError::Fenced { node: NODE });
    assert_eq!(connection.failure(), Some(gone), "the first reason is the reason");
    // Nothing is said to a node that is gone.
    connection.grant(1);
    assert_eq!(connection.link.borrow().output, [0; 0]);
}

#[test]
fn nothing_of_a_connection_is_left_when_it_opens_anew() {
    let connection = connection();
    let driver: Arc<Count> = Arc::default();
    connection.link.borrow_mut().driver = Some(Waker::from(driver.clone()));
    let operations = connection.operations.clone();
    let pending = Pending::new(&operations, post_word(&connection));
    driver.take();
    connection.close(FabricError::NodeGone { node: NODE });
    assert_eq!(driver.take(), 1, "the driver ends");
    assert_eq!(connection.link.borrow().output, [0; 0]);
    drop(pending);
    connection.reopen();
    assert_eq!(connection.failure(), None);
    let _pending = Pending::new(&operations, post_word(&connection));
    let expected = {
        let mut bytes = Vec::new();
        let mut writer = RequestWriter::new(&mut bytes, 0, 0);
        let source = RemoteAddr::new(NODE, 0);
        writer.push(&Verb::ReadWord { source }, &[]);
        writer.finish();
        bytes
    };
    assert_eq!(connection.link.borrow().output, expected, "requests are counted anew");
    assert_eq!(connection.take_answers(&mut input(&answers(0..1))), Ok(()));
    assert_eq!(connection.link.borrow().generation, 1);
}

#[test]
fn what_is_written_leaves_room_and_little_memory() {
    block_on(async {
        let (mut near, mut far) = pair().await;
        let connection = connection();
        let count: Arc<Count> = Arc::default();
        let sent: Vec<u8> = (0..OUTPUT_BYTES_MAX).map(|index| (index / 7) as u8).collect();
        connection.link.borrow_mut().output = sent.clone();
        let mut room = pin!(connection.room());
        assert!(poll_once(&mut room, &count).is_pending());
        let write = poll_fn(|context| connection.poll_flush(context, &mut near));
        let mut seen = vec![0; OUTPUT_BYTES_MAX];
        let read = tokio::io::AsyncReadExt::read_exact(&mut far, &mut seen);
        let (written, read) = tokio::join!(write, read);
        written.expect("the other end reads");
        read.expect("all of it comes");
        assert!(seen == sent);
        assert_eq!(count.take(), 1);
        assert!(poll_once(&mut room, &count).is_ready());
        let link = connection.link.borrow();
        assert_eq!((link.output.len(), link.written), (0, 0));
        assert!(!link.has_waiters);
        assert_eq!(link.output.capacity(), OUTPUT_BYTES_KEPT);
    });
}

#[test]
fn requests_without_an_answer_keep_their_room() {
    block_on(async {
        let (mut near, _far) = pair().await;
        let connection = connection();
        let count: Arc<Count> = Arc::default();
        connection.link.borrow_mut().in_flight = vec![0; IN_FLIGHT_MAX].into();
        connection.link.borrow_mut().output = vec![0; 8];
        let mut room = pin!(connection.room());
        assert!(poll_once(&mut room, &count).is_pending());
        let written = poll_fn(|context| connection.poll_flush(context, &mut near)).await;
        written.expect("it fits into the socket");
        assert_eq!(count.take(), 0, "there is no room yet");
        assert!(connection.link.borrow().has_waiters);
    });
}

#[test]
fn an_input_holds_a_frame_and_the_beginning_of_the_next() {
    block_on(async {
        let (mut near, mut far) = pair().await;
        let sent: Vec<u8> = (0..4 * INPUT_BYTES).map(|index| (index / 251) as u8).collect();
        let expected = sent.clone();
        let write = async move {
            let written = tokio::io::AsyncWriteExt::write_all(&mut near, &sent).await;
            written.expect("the other end reads");
        };
        let read = async {
            let mut input = Input::new();
            let mut seen = Vec::new();
            while seen.len() < expected.len() {
                let filled = poll_fn(|context| input.poll_fill(context, &mut far)).await;
                assert_ne!(filled.expect("the other end writes"), 0);
                // All but a little, or a whole frame.
                let bytes = input.bytes().len();
                let taken = if seen.len() + bytes == expected.len() {
                    bytes
                } else {
                    (bytes - 1).min(FRAME_BYTES_MAX)
                };
                seen.extend_from_slice(&input.bytes()[..taken]);
                input.consume(taken);
            }
            assert!(seen == expected);
        };
        tokio::join!(write, read);
    });
}
