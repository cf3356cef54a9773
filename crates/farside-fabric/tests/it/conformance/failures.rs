//! Nodes that stop or stall, clients that are cut off, futures that are dropped.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use farside_fabric::{Batch, EndpointId, FabricError, Fence, OpContext, RemoteAddr, Slice, Verb};

use super::fixture::{Cluster, HERE, THERE, at, soon};

const AWAY: RemoteAddr = RemoteAddr::new(THERE, 64);

pub(crate) async fn a_stopped_node_is_gone_and_the_others_work(cluster: Cluster) {
    let mut op = OpContext::new(cluster.endpoint().await);
    op.write_word(AWAY, 1).await.expect("the node is there");
    cluster.stop_node(THERE);
    let gone = FabricError::NodeGone { node: THERE };
    for _ in 0..3 {
        op.set_deadline(soon(op.endpoint()));
        assert_eq!(op.read_word(AWAY).await, Err(gone));
        assert_eq!(op.write(Slice::first(8), AWAY).await, Err(gone));
        assert_eq!(op.fetch_add(AWAY, 1).await, Err(gone));
        assert_eq!(op.read(AWAY, Slice::first(100)).await.map(drop), Err(gone));
        assert!(op.endpoint().view(AWAY, 8).is_none());
        assert!(op.endpoint().now_ns() < op.deadline().0, "known before the deadline");
        let mut batch = Batch::new();
        batch.read_word(at(0));
        batch.read_word(AWAY);
        assert_eq!(op.post(&mut batch).await, Err(gone));
        // What is wrong with the verb itself is still said first.
        let outside = RemoteAddr::new(THERE, 1 << 40);
        assert!(matches!(
            op.read_word(outside).await,
            Err(FabricError::OutOfBounds { .. })
        ));
        op.fetch_add(at(8), 1).await.expect("the other node is there");
    }
    assert_eq!(op.read_word(at(8)).await, Ok(3));
}

pub(crate) async fn a_stalled_node_meets_the_deadline(cluster: Cluster) {
    if !cluster.can_stall() {
        return;
    }
    let mut op = OpContext::new(cluster.endpoint().await);
    op.write_word(AWAY, 5).await.expect("the node answers");
    cluster.stall_node(THERE);
    let deadline = op.endpoint().deadline_in(5_000_000);
    op.set_deadline(deadline);
    assert_eq!(
        op.read_word(AWAY).await,
        Err(FabricError::DeadlineExceeded { node: THERE })
    );
    assert!(op.endpoint().now_ns() >= deadline.0, "not before the deadline");
    // The deadline has passed, but this node answers at once or says so.
    op.set_deadline(soon(op.endpoint()));
    op.write_word(at(0), 6).await.expect("the other node answers");
    cluster.resume_node(THERE);
    op.set_deadline(soon(op.endpoint()));
    assert_eq!(op.read_word(AWAY).await, Ok(5));
    assert_eq!(op.read_word(at(0)).await, Ok(6));
}

pub(crate) async fn a_dropped_verb_leaves_an_empty_or_whole_buffer(cluster: Cluster) {
    let endpoint = cluster.endpoint().await;
    let mut op = OpContext::new(endpoint.clone());
    op.buffer_mut()[..4096].fill(0xaa);
    op.write(Slice::first(4096), at(0)).await.expect("inside the node");
    for _ in 0..10 {
        let mut buffer = endpoint.buffer(4096);
        buffer.fill(0x55);
        let verb = Verb::Read {
            source: at(0),
            target: Slice::first(4096),
        };
        let is_ready = {
            let posted = pin!(endpoint.execute(verb, &mut buffer, soon(&endpoint)));
            let polled = posted.poll(&mut Context::from_waker(Waker::noop()));
            matches!(polled, Poll::Ready(Ok(_)))
        };
        let (left, expected) = (buffer.to_vec(), if is_ready { 4096 } else { 0 });
        assert_eq!(
            left.len(),
            expected,
            "the memory belongs to the verb until it completes"
        );
        assert!(left.iter().all(|&byte| byte == 0xaa), "a completed verb is whole");
        // The endpoint goes on, and the completion that nobody awaits disturbs nothing.
        assert_eq!(op.read(at(0), Slice::first(16)).await, Ok(&[0xaa; 16][..]));
    }
}

pub(crate) async fn a_fenced_endpoint_has_no_effect(cluster: Cluster) {
    let endpoint = cluster.endpoint().await;
    let mut op = OpContext::new(endpoint.clone());
    let mut peer = OpContext::new(cluster.endpoint().await);
    for node in [HERE, THERE] {
        peer.write_word(RemoteAddr::new(node, 128), 1)
            .await
            .expect("not yet cut off");
    }
    let id = peer.endpoint().id();
    let fence = endpoint.fence(id, soon(&endpoint)).await.expect("the nodes answer");
    for node in [HERE, THERE] {
        let target = RemoteAddr::new(node, 128);
        peer.set_deadline(soon(&endpoint));
        let written = peer.write_word(target, 2).await;
        let added = peer.fetch_add(target, 10).await;
        let word = op.read_word(target).await;
        match fence {
            Fence::CutOff => {
                assert!(written.is_err() && added.is_err(), "{written:?} {added:?}");
                assert_eq!(word, Ok(1), "a verb after the fence took effect");
            }
            Fence::StillRunning => {
                assert_eq!((written, added, word), (Ok(()), Ok(2), Ok(12)), "nothing was cut off");
            }
        }
    }
    // The one who fenced goes on, and may ask again.
    assert_eq!(endpoint.fence(id, soon(&endpoint)).await, Ok(fence));
    op.write_word(at(128), 3).await.expect("nobody fenced this one");
}

pub(crate) async fn an_unknown_endpoint_is_cut_off(cluster: Cluster) {
    let endpoint = cluster.endpoint().await;
    for peer in [EndpointId(u64::MAX), EndpointId(endpoint.id().0 + (1 << 40))] {
        assert_eq!(endpoint.fence(peer, soon(&endpoint)).await, Ok(Fence::CutOff));
    }
    OpContext::new(endpoint)
        .write_word(at(0), 1)
        .await
        .expect("nobody fenced this one");
}

pub(crate) async fn fencing_oneself_is_answered_truly(cluster: Cluster) {
    let endpoint = cluster.endpoint().await;
    let answer = endpoint.fence(endpoint.id(), soon(&endpoint)).await;
    let mut op = OpContext::new(endpoint.clone());
    op.set_deadline(soon(&endpoint));
    let written = op.write_word(at(0), 1).await;
    // A node may cut the client off before it has the answer.
    let is_cut_off = answer != Ok(Fence::StillRunning);
    assert_eq!(written.is_err(), is_cut_off, "{answer:?}, then {written:?}");
    let mut other = OpContext::new(cluster.endpoint().await);
    assert_eq!(other.read_word(at(0)).await, Ok(if is_cut_off { 0 } else { 1 }));
}

pub(crate) async fn an_endpoint_that_left_is_cut_off(cluster: Cluster) {
    let endpoint = cluster.endpoint().await;
    let left = cluster.endpoint().await.id();
    assert_eq!(endpoint.fence(left, soon(&endpoint)).await, Ok(Fence::CutOff));
    // Its place may have been given to a newcomer, which is not meant.
    let newcomer = cluster.endpoint().await;
    assert_eq!(endpoint.fence(left, soon(&endpoint)).await, Ok(Fence::CutOff));
    OpContext::new(newcomer)
        .write_word(at(0), 1)
        .await
        .expect("the newcomer is not fenced");
}
