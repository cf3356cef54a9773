//! Who may come back, who is forgotten, who is cut off, and who hears of it.

use super::*;
use crate::shm::SegmentOptions;
use crate::tcp::session::tests::introductions;
use crate::tcp::testing::Count;

const RUN: u64 = 7;

type Admitted = (Rc<Connected>, Rc<SessionHandle>);

fn service() -> Service {
    let segment = Segment::anonymous(4096).expect("a little memory");
    Service::new(segment, None, RUN, Arc::default())
}

/// A service whose segment has room for so many clients.
fn small_service(endpoints_max: u64) -> Service {
    let folder = tempfile::tempdir().expect("a folder");
    let memory_bytes = 4096;
    let options = SegmentOptions {
        memory_bytes,
        endpoints_max,
    };
    let segment = Segment::create(folder.path().join("segment"), options).expect("a little memory");
    Service::new(segment, None, RUN, Arc::default())
}

fn admit(service: &Service) -> Admitted {
    service.admit(None, 0).expect("there is room")
}

fn refused(service: &Service, id: EndpointId, run: u64) -> Option<Verdict> {
    service.admit(Some(id), run).err()
}

fn departed(service: &Service) -> Vec<EndpointId> {
    service
        .departed
        .borrow()
        .iter()
        .map(|connected| connected.id())
        .collect()
}

#[test]
fn a_client_comes_back_to_its_entry() {
    let service = service();
    let (connected, handle) = admit(&service);
    let id = connected.id();
    service.depart(&connected, &handle);
    assert_eq!(departed(&service), [id]);
    let (again, _) = service.admit(Some(id), RUN).expect("it was here");
    assert!(Rc::ptr_eq(&again, &connected));
    assert!(departed(&service).is_empty());
    // The connection before it ends a second time.
    service.depart(&connected, &handle);
    assert!(departed(&service).is_empty());
    assert!(service.sessions.borrow().contains_key(&id));
}

#[test]
fn a_connection_that_is_still_there_gives_way() {
    let service = service();
    let (connected, handle) = admit(&service);
    let (again, _) = service.admit(Some(connected.id()), RUN).expect("it is here");
    assert!(Rc::ptr_eq(&again, &connected));
    assert!(handle.is_replaced());
    service.depart(&connected, &handle);
    assert!(service.sessions.borrow().contains_key(&connected.id()));
}

#[test]
fn who_was_never_here_has_no_place_to_come_back_to() {
    let service = service();
    let (connected, handle) = admit(&service);
    let other = EndpointId(connected.id().0 + (1 << 32));
    assert_eq!(refused(&service, other, RUN), Some(Verdict::Restarted));
    assert_eq!(refused(&service, other, RUN + 1), Some(Verdict::Restarted));
    service.depart(&connected, &handle);
    assert_eq!(refused(&service, connected.id(), RUN + 1), Some(Verdict::Restarted));
    assert_eq!(departed(&service), [connected.id()], "nobody came");
    assert_eq!(refused(&service, other, 0), None, "another node has let it in");
}

#[test]
fn the_last_of_those_who_left_are_remembered() {
    let service = service();
    let clients: Vec<_> = (0..=DEPARTED_MAX).map(|_| admit(&service)).collect();
    for (connected, handle) in &clients[..DEPARTED_MAX] {
        service.depart(connected, handle);
    }
    assert_eq!(departed(&service).len(), DEPARTED_MAX);
    let (connected, handle) = &clients[DEPARTED_MAX];
    service.depart(connected, handle);
    let expected: Vec<_> = clients[1..].iter().map(|(connected, _)| connected.id()).collect();
    assert_eq!(departed(&service), expected);
}

#[test]
fn a_full_table_forgets_who_has_left_and_nobody_else() {
    let service = small_service(3);
    let mut clients = [(); 3].map(|()| Some(admit(&service)));
    assert_eq!(service.admit(None, 0).err(), Some(Verdict::Full));
    let mut leave = |index: usize| {
        let (connected, handle) = clients[index].take().expect("here");
        service.depart(&connected, &handle);
        connected.id()
    };
    let (first, second) = (leave(2), leave(0));
    admit(&service);
    assert_eq!(departed(&service), [second]);
    assert_eq!(refused(&service, first, RUN), Some(Verdict::Restarted));
    admit(&service);
    assert_eq!(departed(&service), []);
    assert_eq!(service.admit(None, 0).err(), Some(Verdict::Full));
}

#[test]
fn who_is_cut_off_never_comes_back() {
    let service = service();
    let [here, left] = [(); 2].map(|()| admit(&service));
    service.depart(&left.0, &left.1);
    for (connected, handle) in [here, left] {
        let id = connected.id();
        assert_eq!(service.fence(id), Fence::CutOff);
        assert!(!service.sessions.borrow().contains_key(&id));
        service.depart(&connected, &handle);
        drop(connected);
        for run in [0, RUN] {
            assert_eq!(refused(&service, id, run), Some(Verdict::Fenced));
        }
        assert!(!departed(&service).contains(&id));
    }
}

#[test]
fn only_who_is_meant_is_cut_off() {
    let service = service();
    let clients = [(); 4].map(|()| admit(&service));
    for (connected, handle) in &clients[2..] {
        service.depart(connected, handle);
    }
    let ids = clients.each_ref().map(|(connected, _)| connected.id());
    assert_eq!(service.fence(ids[0]), Fence::CutOff);
    assert_eq!(service.fence(ids[2]), Fence::CutOff);
    assert_eq!(
        clients.each_ref().map(|(_, handle)| handle.is_fenced()),
        [true, false, false, false]
    );
    assert_eq!(departed(&service), [ids[3]]);
    assert_eq!(refused(&service, ids[3], RUN), None);
}

#[test]
fn who_maps_the_memory_is_not_cut_off() {
    let service = service();
    let mapped = crate::shm::Fabric::new(vec![service.segment.clone()]).endpoint();
    let mapped = mapped.expect("room in the table");
    assert_eq!(service.fence(mapped.id()), Fence::StillRunning);
    assert!(service.fenced.borrow().is_empty());
}

/// By a client that maps the memory.
#[test]
fn who_was_cut_off_by_others_is_remembered_when_it_leaves() {
    let service = service();
    let (connected, handle) = admit(&service);
    let id = connected.id();
    let fence = poll_once(service.segment.fence(NodeId::new(0), id, Deadline::NEVER));
    assert!(matches!(fence, Poll::Ready(Ok(Fence::CutOff))));
    service.depart(&connected, &handle);
    drop(connected);
    assert!(departed(&service).is_empty());
    assert_eq!(refused(&service, id, 0), Some(Verdict::Fenced));
}

#[test]
fn who_was_cut_off_by_others_is_not_let_in_again() {
    let service = service();
    let (connected, handle) = admit(&service);
    service.depart(&connected, &handle);
    let fence = poll_once(service.segment.fence(NodeId::new(0), connected.id(), Deadline::NEVER));
    assert!(matches!(fence, Poll::Ready(Ok(Fence::CutOff))));
    assert_eq!(refused(&service, connected.id(), RUN), Some(Verdict::Fenced));
}

#[test]
fn a_message_wakes_its_receiver_and_nobody_has_left() {
    let service = service();
    let (sender, _) = admit(&service);
    let (receiver, handle) = admit(&service);
    let count: Arc<Count> = Arc::default();
    handle.wake_with(Waker::from(count.clone()));
    let message = Message::try_from(&b"hello"[..]).expect("short");
    assert_eq!(service.send(&sender, receiver.id(), &message), Ok(()));
    assert_eq!(count.take(), 1);
    assert_eq!(receiver.take().map(|received| received.message), Some(message.clone()));
    service.depart(&receiver, &handle);
    let peer = receiver.id();
    let unknown = Err(FabricError::PeerUnknown { peer });
    assert_eq!(service.send(&sender, peer, &message), unknown);
    assert!(receiver.take().is_none());
    assert_eq!(
        service.send(&sender, sender.id(), &message),
        Ok(()),
        "it is another one"
    );
}

#[test]
fn introductions_reach_whom_they_are_for() {
    let service = service();
    let [asker, peer, other] = [(); 3].map(|()| admit(&service));
    let ask = Introduction::new(IntroductionKind::Ask, 1, None);
    let gone = Introduction::new(IntroductionKind::Gone, 0, None);
    let ids = [&asker, &peer, &other].map(|(connected, _)| connected.id());
    service.introduce(ids[0], &asker.1, ids[1], &ask);
    assert_eq!(introductions(&peer.1), [(ids[0], ask)]);
    assert_eq!(introductions(&asker.1), []);
    // Who is not there is gone.
    service.depart(&other.0, &other.1);
    service.introduce(ids[0], &asker.1, ids[2], &ask);
    assert_eq!(introductions(&asker.1), [(ids[2], gone)]);
    // Who has left brings nothing any more,
    service.introduce(ids[2], &other.1, ids[1], &ask);
    assert_eq!(introductions(&peer.1), []);
    assert_eq!(introductions(&other.1), [(ids[1], gone)]);
    // nor does a connection that was replaced.
    let again = service.admit(Some(ids[0]), RUN).expect("it is here");
    assert_eq!(introductions(&peer.1), [], "it had not been introduced to the asker");
    service.introduce(ids[0], &asker.1, ids[1], &ask);
    assert_eq!(introductions(&peer.1), []);
    assert_eq!(introductions(&asker.1), [(ids[1], gone)]);
    service.introduce(ids[0], &again.1, ids[1], &ask);
    assert_eq!(introductions(&peer.1), [(ids[0], ask)]);
}

#[test]
fn those_who_were_introduced_hear_of_the_end() {
    let gone = Introduction::new(IntroductionKind::Gone, 0, None);
    let ask = Introduction::new(IntroductionKind::Ask, 1, None);
    type End = fn(&Service, &Admitted);
    let ends: [End; 3] = [
        |service, (connected, handle)| service.depart(connected, handle),
        |service, (connected, _)| assert_eq!(service.fence(connected.id()), Fence::CutOff),
        |service, (connected, _)| assert!(service.admit(Some(connected.id()), RUN).is_ok()),
    ];
    for end in ends {
        let service = service();
        let [asker, peer, stranger] = [(); 3].map(|()| admit(&service));
        service.introduce(asker.0.id(), &asker.1, peer.0.id(), &ask);
        introductions(&peer.1);
        end(&service, &peer);
        assert_eq!(introductions(&asker.1), [(peer.0.id(), gone)]);
        assert_eq!(introductions(&stranger.1), []);
    }
}

#[test]
fn a_server_that_was_stopped_stays_so() {
    let control = Arc::<Control>::default();
    let segment = Segment::anonymous(4096).expect("a little memory");
    let service = Service::new(segment, None, RUN, control.clone());
    let state = || (service.is_paused(), control.is_stopped());
    assert_eq!(state(), (false, false));
    control.pause();
    assert_eq!(state(), (true, false));
    control.pause();
    assert_eq!(state(), (true, false));
    control.resume();
    assert_eq!(state(), (false, false));
    control.resume();
    assert_eq!(state(), (false, false));
    control.stop();
    assert_eq!(state(), (true, true));
    control.resume();
    assert_eq!(state(), (true, true));
    control.pause();
    assert_eq!(state(), (true, true));
}

#[test]
fn whoever_tells_a_server_something_is_heard() {
    let tell: [fn(&Control); 3] = [Control::pause, Control::resume, Control::stop];
    for tell in tell {
        let control = Control::default();
        assert!(poll_once(control.changed()).is_pending());
        tell(&control);
        assert!(poll_once(control.changed()).is_ready());
        assert!(poll_once(control.changed()).is_pending());
    }
}

#[test]
fn all_sessions_look_at_the_control() {
    let service = service();
    let count: Arc<Count> = Arc::default();
    for _ in 0..3 {
        admit(&service).1.wake_with(Waker::from(count.clone()));
    }
    service.wake_all();
    assert_eq!(count.take(), 3);
}
