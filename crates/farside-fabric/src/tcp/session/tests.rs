//! What a node sends, when and how much of it.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::addr::NodeId;
use crate::message::Message;
use crate::shm::Segment;
use crate::tcp::service::Control;
use crate::tcp::testing::{Count, block_on, pair};

impl SessionHandle {
    pub(in crate::tcp) fn is_fenced(&self) -> bool {
        self.is_fenced.get()
    }

    pub(in crate::tcp) fn is_replaced(&self) -> bool {
        self.is_replaced.get()
    }

    pub(in crate::tcp) fn wake_with(&self, waker: Waker) {
        self.waker.replace(Some(waker));
    }
}

/// Takes out what the client is to be told.
pub(in crate::tcp) fn introductions(handle: &SessionHandle) -> Vec<(EndpointId, Introduction)> {
    let introductions = &mut *handle.introductions.borrow_mut();
    let Introductions { asks, others, .. } = introductions;
    others.drain(..).chain(asks.drain(..)).collect()
}

/// A session, and another client who is a member beside it.
struct Place {
    segment: Segment,
    control: Arc<Control>,
    session: Session,
    friend: Rc<Connected>,
}

impl Place {
    fn new() -> Self {
        let segment = Segment::anonymous(1 << 20).expect("a little memory");
        let control: Arc<Control> = Arc::default();
        let service = Rc::new(Service::new(segment.clone(), None, 7, control.clone()));
        let admit = || service.admit(None, 0).expect("there is room");
        let ((connected, handle), (friend, _)) = (admit(), admit());
        let session = Session::new(service, connected, handle);
        Self {
            segment,
            control,
            session,
            friend,
        }
    }

    fn friend_sends(&self, byte: u8) {
        let message = Message::try_from(&[byte][..]).expect("short");
        let sent = self.friend.send(self.session.connected.id(), &message);
        sent.expect("the mailbox has room");
    }

    fn push(&mut self) {
        self.session.push_messages(&mut Context::from_waker(Waker::noop()));
    }

    /// Takes out what would be written: the kinds, and the first byte of what is delivered.
    fn take_output(&mut self) -> Vec<(ResponseKind, u8)> {
        let mut seen = Vec::new();
        let output = core::mem::take(&mut self.session.output);
        let mut rest = &output[..];
        while let Ok(Framed::Whole(header, end)) = frame::split_frame::<frame::ResponseHeader>(rest) {
            let kind = ResponseKind::from_code(header.kind).expect("a kind");
            let delivered = rest[..end].get(HEADER_BYTES + 8).copied();
            seen.push((kind, delivered.unwrap_or(0)));
            rest = &rest[end..];
        }
        assert_eq!(rest, [0; 0], "whole frames");
        seen
    }

    /// Lets the session read these bytes, and execute what it can of them.
    async fn receive(&mut self, bytes: &[u8]) -> Result<(), SessionEnd> {
        let (mut near, mut far) = pair().await;
        far.write_all(bytes).await.expect("it fits into the socket");
        while self.session.input.bytes().len() < bytes.len() {
            let filled = poll_fn(|context| self.session.input.poll_fill(context, &mut near)).await;
            filled.expect("the other end is there");
        }
        self.session.execute_input()
    }

    /// The statuses of the answers.
    fn statuses(&mut self) -> Vec<u8> {
        let output = core::mem::take(&mut self.session.output);
        output.chunks(HEADER_BYTES).map(|answer| answer[9]).collect()
    }
}

fn introduction(kind: IntroductionKind) -> Introduction {
    Introduction::new(kind, 0, None)
}

fn granted(count: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::put_granted(&mut bytes, count);
    bytes
}

#[test]
fn as_many_messages_are_pushed_as_were_granted() {
    block_on(async {
        let mut place = Place::new();
        let mut sent = 0..200;
        // A mailbox holds half of what may be pushed at first.
        let mut push = |place: &mut Place| {
            for byte in sent.by_ref().take(32) {
                place.friend_sends(byte);
            }
            place.push();
            place.take_output().len()
        };
        assert_eq!([push(&mut place), push(&mut place)], [32, 32]);
        assert_eq!(push(&mut place), 0);
        for (count, expected) in [(1, 1), (2, 2), (0, 0), (29, 29)] {
            place.receive(&granted(count)).await.expect("a good frame");
            place.push();
            assert_eq!(place.take_output().len(), expected, "{count} granted");
        }
        // Never more than at first.
        for _ in 0..2 {
            place.receive(&granted(u64::MAX)).await.expect("a good frame");
        }
        assert_eq!([push(&mut place), push(&mut place)], [32, 32]);
        assert_eq!(push(&mut place), 0);
    });
}

#[test]
fn who_asks_is_announced_behind_the_messages_before() {
    let mut place = Place::new();
    let handle = place.session.handle.clone();
    let from = place.friend.id();
    place.session.granted = 2;
    for byte in [1, 2, 3] {
        place.friend_sends(byte);
    }
    handle.introduce(from, &introduction(IntroductionKind::Ask));
    handle.introduce(from, &introduction(IntroductionKind::Answer));
    handle.introduce(from, &introduction(IntroductionKind::Leave));
    place.push();
    let (said, message) = (ResponseKind::Introduction, ResponseKind::Message);
    assert_eq!(place.take_output(), [(said, 2), (said, 3), (message, 1), (message, 2)]);
    handle.introduce(from, &introduction(IntroductionKind::Gone));
    place.push();
    assert_eq!(place.take_output(), [(said, 4)], "no message is granted");
    place.session.granted = 2;
    place.push();
    assert_eq!(place.take_output(), [(message, 3), (said, 1)]);
}

#[test]
fn nothing_is_pushed_while_the_node_is_paused_or_there_is_no_room() {
    let mut place = Place::new();
    let handle = place.session.handle.clone();
    let fill = |place: &mut Place| {
        place.friend_sends(1);
        handle.introduce(place.friend.id(), &introduction(IntroductionKind::Ask));
        handle.introduce(place.friend.id(), &introduction(IntroductionKind::Leave));
    };
    fill(&mut place);
    place.control.pause();
    place.push();
    assert_eq!(place.take_output(), []);
    place.control.resume();
    let full = vec![0; OUTPUT_BYTES_MAX + 1];
    place.session.output = full.clone();
    place.push();
    assert!(place.session.output == full);
    // What is written takes no room; one frame more may come.
    place.session.written = 1;
    place.push();
    assert_eq!(place.session.output.len(), full.len() + HEADER_BYTES + 8 + 60);
    place.session.output.clear();
    place.session.written = 0;
    place.push();
    assert_eq!(place.take_output().len(), 2);
}

#[test]
fn introductions_of_a_kind_have_a_bound() {
    let place = Place::new();
    let handle = &place.session.handle;
    let kinds = [IntroductionKind::Ask, IntroductionKind::Leave];
    for kind in kinds {
        for number in 0..=INTRODUCTIONS_MAX as u64 {
            handle.introduce(EndpointId(number), &introduction(kind));
        }
    }
    let seen = introductions(handle);
    assert_eq!(seen.len(), 2 * INTRODUCTIONS_MAX);
    assert_eq!(seen[INTRODUCTIONS_MAX - 1].0, EndpointId(INTRODUCTIONS_MAX as u64 - 1));
    assert_eq!(handle.take_peers().len(), INTRODUCTIONS_MAX + 1, "all hear of the end");
    assert!(handle.take_peers().is_empty());
}

#[test]
fn what_others_say_wakes_the_session() {
    let tell: [fn(&SessionHandle); 4] = [
        |handle| handle.introduce(EndpointId(1), &introduction(IntroductionKind::Ask)),
        SessionHandle::wake,
        SessionHandle::fence,
        SessionHandle::replace,
    ];
    for tell in tell {
        let handle = SessionHandle::default();
        let count: Arc<Count> = Arc::default();
        handle.wake_with(Waker::from(count.clone()));
        tell(&handle);
        assert_eq!(count.take(), 1);
    }
}

#[test]
fn a_session_that_has_ended_executes_nothing() {
    let mut ping = Vec::new();
    frame::put_ping(&mut ping, 0);
    block_on(async {
        let mut place = Place::new();
        place.session.handle.replace();
        assert!(matches!(place.receive(&ping).await, Err(SessionEnd::Replaced)));
        assert_eq!(place.session.output, [0; 0]);
        let mut place = Place::new();
        place.session.handle.fence();
        assert!(matches!(place.receive(&ping).await, Err(SessionEnd::Fenced)));
        assert_eq!(place.session.output, [0; 0]);
        // By a client that maps the memory.
        let mut place = Place::new();
        let id = place.session.connected.id();
        let fence = place.segment.fence(NodeId::new(0), id, Deadline::NEVER).await;
        assert_eq!(fence, Ok(Fence::CutOff));
        assert!(matches!(place.receive(&ping).await, Err(SessionEnd::Fenced)));
        assert_eq!(place.session.output, [0; 0]);
    });
}

#[test]
fn frames_wait_for_room_and_for_the_end_of_a_pause() {
    let mut pings = Vec::new();
    for request in 0..3 {
        frame::put_ping(&mut pings, request);
    }
    block_on(async {
        let mut place = Place::new();
        // Room for two answers: the second one begins at the bound.
        let waiting = OUTPUT_BYTES_MAX - HEADER_BYTES;
        place.session.output = vec![0; waiting];
        place.receive(&pings).await.expect("good frames");
        assert_eq!(place.session.output.len(), waiting + 2 * HEADER_BYTES);
        assert_eq!(place.session.input.bytes(), &pings[2 * HEADER_BYTES..]);
        assert!(place.session.holds_whole_frame);
        place.session.output.clear();
        place.control.pause();
        place.session.execute_input().expect("good frames");
        assert!(place.session.holds_whole_frame);
        assert_eq!(place.session.output, [0; 0]);
        place.control.resume();
        place.session.execute_input().expect("good frames");
        assert!(!place.session.holds_whole_frame);
        assert_eq!(place.session.output.len(), HEADER_BYTES);
    });
}

#[test]
fn each_request_is_told_what_became_of_it() {
    block_on(async {
        let mut place = Place::new();
        let (own, friend) = (place.session.connected.id(), place.friend.id());
        let unknown = EndpointId(own.0 + (1 << 40));
        let mapped = crate::shm::Fabric::new(vec![place.segment.clone()]).endpoint();
        let mapped = mapped.expect("room in the table");
        let mut bytes = Vec::new();
        let sends = [unknown].into_iter().chain([friend; 33]);
        for peer in sends {
            frame::put_send(&mut bytes, 0, peer, b"hello");
        }
        frame::put_fence(&mut bytes, 0, own);
        frame::put_fence(&mut bytes, 0, mapped.id());
        frame::put_fence(&mut bytes, 0, unknown);
        frame::put_fence(&mut bytes, 0, friend);
        place.receive(&bytes).await.expect("good frames");
        let statuses = place.statuses();
        let (unknown, full) = (Status::PeerUnknown as u8, Status::MailboxFull as u8);
        let sent = [&[unknown][..], &[0; 32], &[full]].concat();
        assert_eq!(statuses[..34], sent);
        let running = Status::StillRunning as u8;
        assert_eq!(statuses[34..], [running, running, 0, 0]);
        assert!(place.friend.is_fenced() && !place.session.connected.is_fenced());
    });
}

#[test]
fn a_node_without_rdma_has_no_queue_pairs() {
    block_on(async {
        let mut place = Place::new();
        let mut bytes = Vec::new();
        let peer = place.friend.id();
        frame::put_introduce(&mut bytes, peer, &introduction(IntroductionKind::Ask));
        assert!(matches!(place.receive(&bytes).await, Err(SessionEnd::NoRdma)));
        // Only a node says that somebody is gone.
        let mut place = Place::new();
        bytes.clear();
        frame::put_introduce(&mut bytes, peer, &introduction(IntroductionKind::Gone));
        let refused = place.receive(&bytes).await;
        assert!(matches!(refused, Err(SessionEnd::Frame(FrameError::Introduction))));
    });
}

#[test]
fn only_what_a_client_does_wrong_is_a_fault() {
    let broken = SessionEnd::Broken(io::ErrorKind::ConnectionReset.into());
    for end in [SessionEnd::Closed, broken, SessionEnd::Fenced, SessionEnd::Replaced] {
        assert!(!end.is_fault(), "{end}");
    }
    let verb = SessionEnd::Verb(FabricError::NodeUnknown { node: NodeId::new(1) });
    let frame = SessionEnd::Frame(FrameError::Trailing);
    for end in [frame, verb, SessionEnd::VerbsOverRdma, SessionEnd::NoRdma] {
        assert!(end.is_fault(), "{end}");
    }
}

#[test]
fn what_the_socket_has_taken_takes_no_room() {
    block_on(async {
        let (mut near, mut far) = pair().await;
        let mut place = Place::new();
        let session = &mut place.session;
        // More than sockets take.
        let sent: Vec<u8> = (0..24 << 20).map(|index: u32| (index / 249) as u8).collect();
        session.output = sent.clone();
        let mut seen = vec![0; sent.len()];
        let mut polls = 0;
        let write = poll_fn(|context| {
            let polled = session.poll_flush(context, &mut near);
            polls += 1;
            assert_eq!(session.written, 0);
            assert!(sent.ends_with(&session.output));
            polled
        });
        let (written, read) = tokio::join!(write, far.read_exact(&mut seen));
        written.expect("the other end reads");
        read.expect("all of it comes");
        assert!(seen == sent);
        assert!(polls > 1, "the test can fail");
        assert_eq!(session.output.len(), 0);
        assert_eq!(session.output.capacity(), OUTPUT_BYTES_KEPT);
    });
}

#[test]
fn who_is_cut_off_is_told_so() {
    block_on(async {
        let (mut near, mut far) = pair().await;
        let place = Place::new();
        place.session.handle.fence();
        assert!(matches!(place.session.run(&mut near).await, SessionEnd::Fenced));
        drop(near);
        let mut seen = Vec::new();
        far.read_to_end(&mut seen).await.expect("the node has closed it");
        let mut expected = Vec::new();
        frame::put_response(&mut expected, HEADER_BYTES, 0, ResponseKind::Fenced, Status::Done);
        assert_eq!(seen, expected);
    });
}
