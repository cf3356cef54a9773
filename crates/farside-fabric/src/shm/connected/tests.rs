//! Connected endpoints: identities, mail to and from mapping clients, and being cut off.

use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll, Waker};

use super::*;
use crate::addr::NodeId;
use crate::backend::Fence;
use crate::shm::{Fabric, SegmentOptions};

const HERE: NodeId = NodeId::new(0);

fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("this completes at once"),
    }
}

fn segment() -> Segment {
    Segment::anonymous(4096).expect("a page of memory")
}

fn fence(segment: &Segment, peer: EndpointId) -> Result<Fence, FabricError> {
    now(segment.fence(HERE, peer, Deadline(0)))
}

#[test]
fn mail_goes_both_ways() {
    let segment = segment();
    let connected = segment.claim_connected(None).expect("there is room");
    let mapped = Fabric::new(vec![segment]).endpoint().expect("there is room");
    let hello = Message::try_from(&b"hello"[..]).expect("short");
    now(mapped.send(connected.id(), &hello, Deadline::NEVER)).expect("it is there");
    let received = connected.take().expect("it was sent");
    assert_eq!((received.from, received.message), (mapped.id(), hello.clone()));
    assert_eq!(connected.take(), None);
    connected.send(mapped.id(), &hello).expect("it is there");
    assert_eq!(
        now(mapped.receive(Deadline(0))).expect("it was sent").from,
        connected.id()
    );
    let gone = connected.id();
    drop(connected);
    let unknown = FabricError::PeerUnknown { peer: gone };
    assert_eq!(now(mapped.send(gone, &hello, Deadline::NEVER)), Err(unknown));
}

#[test]
fn a_fenced_client_executes_nothing_more() {
    let segment = segment();
    let connected = segment.claim_connected(None).expect("there is room");
    let bystander = segment.claim_connected(None).expect("there is room");
    drop(connected.begin().expect("not cut off"));
    let execution = connected.begin().expect("not cut off");
    // The verb under way may still take effect: not cut off before it ended.
    assert_eq!(
        fence(&segment, connected.id()),
        Err(FabricError::DeadlineExceeded { node: HERE })
    );
    assert!(connected.is_fenced());
    drop(execution);
    assert_eq!(fence(&segment, connected.id()), Ok(Fence::CutOff));
    for _ in 0..2 {
        assert!(connected.begin().is_none());
    }
    assert_eq!(
        fence(&segment, connected.id()),
        Ok(Fence::CutOff),
        "a refused execution is not under way"
    );
    assert!(bystander.begin().is_some());
    let hello = Message::try_from(&b"hello"[..]).expect("short");
    let unknown = FabricError::PeerUnknown { peer: connected.id() };
    assert_eq!(bystander.send(connected.id(), &hello), Err(unknown));
}

#[test]
fn a_late_fence_does_not_hit_the_next_owner() {
    let segment = segment();
    let first = segment.claim_connected(None).expect("there is room");
    let old = first.id();
    assert_eq!(fence(&segment, old), Ok(Fence::CutOff));
    drop(first);
    let second = segment.claim_connected(None).expect("there is room");
    assert_ne!(second.id(), old);
    assert!(second.begin().is_some(), "the place was given on, the fence was not");
    assert_eq!(fence(&segment, old), Ok(Fence::CutOff));
    assert!(second.begin().is_some());
}

#[test]
fn a_client_keeps_its_identity_at_other_nodes() {
    let (home, away) = (segment(), segment());
    let _others = [away.claim_connected(None), away.claim_connected(None)];
    let at_home = home.claim_connected(None).expect("there is room");
    let id = EndpointId(at_home.id().0 + (5 << 16));
    let there = away.claim_connected(Some(id)).expect("there is room");
    assert_eq!(there.id(), id);
    assert_eq!(fence(&away, id), Ok(Fence::CutOff));
    assert!(there.begin().is_none());
    assert!(at_home.begin().is_some());
}

#[test]
fn mapping_clients_are_not_cut_off_while_they_run() {
    let fabric = Fabric::new(vec![segment(), segment()]);
    let (one, two) = (fabric.endpoint().expect("room"), fabric.endpoint().expect("room"));
    assert_eq!(now(one.fence(two.id(), Deadline::NEVER)), Ok(Fence::StillRunning));
    let left = two.id();
    drop(two);
    assert_eq!(now(one.fence(left, Deadline::NEVER)), Ok(Fence::CutOff));
}

#[test]
fn a_full_table_says_so_and_places_are_used_again() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let options = SegmentOptions {
        memory_bytes: 4096,
        endpoints_max: 3,
    };
    let segment = Segment::create(folder.path().join("a"), options).expect("a new file");
    let mut seen = Vec::new();
    for _ in 0..10 {
        let all: Result<Vec<_>, _> = (0..3).map(|_| segment.claim_connected(None)).collect();
        let all = all.expect("there is room for three");
        seen.extend(all.iter().map(Connected::id));
        let error = segment.claim_connected(None).expect_err("no room for a fourth");
        assert!(
            matches!(error, SegmentError::TableFull { endpoints_max: 3, .. }),
            "{error}"
        );
        let error = Fabric::new(vec![segment.clone()])
            .endpoint()
            .expect_err("no room for a fourth");
        assert!(matches!(error, SegmentError::TableFull { .. }), "{error}");
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 30, "places are used again, identities are not");
    assert!(matches!(
        Fabric::new(Vec::new()).endpoint(),
        Err(SegmentError::NodeCount { count: 0 })
    ));
}
