//! SEND and RECEIVE.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use farside_fabric::{Endpoint, EndpointId, FabricError, MESSAGE_BYTES_MAX, Message};

use super::fixture::{Cluster, join_all, soon};

fn message(bytes: &[u8]) -> Message {
    bytes.try_into().expect("short enough")
}

/// Sends, and waits while the mailbox is full.
async fn send(endpoint: &Endpoint, peer: EndpointId, bytes: &[u8]) {
    let give_up = soon(endpoint);
    loop {
        match endpoint.send(peer, &message(bytes), soon(endpoint)).await {
            Ok(()) => return,
            Err(FabricError::MailboxFull { .. }) if endpoint.now_ns() < give_up.0 => endpoint.sleep(50_000).await,
            Err(error) => panic!("to {peer}: {error}"),
        }
    }
}

pub(crate) async fn identities_differ(cluster: Cluster) {
    let first = cluster.endpoint().await;
    let second = cluster.endpoint().await;
    assert_eq!(first.id(), first.clone().id());
    assert_ne!(first.id(), second.id());
    let used = second.id();
    drop(second);
    let third = cluster.endpoint().await;
    assert!(
        ![first.id(), used].contains(&third.id()),
        "an identity is never used again"
    );
}

pub(crate) async fn messages_of_one_sender_arrive_in_order(cluster: Cluster) {
    let (sender, receiver) = (cluster.endpoint().await, cluster.endpoint().await);
    let (from, to) = (sender.id(), receiver.id());
    let starter = receiver.clone();
    let send_all = async move {
        for number in 0..500_u32 {
            send(&sender, to, &number.to_le_bytes()).await;
        }
    };
    let receive_all = async move {
        for number in 0..500_u32 {
            let received = receiver.receive(soon(&receiver)).await.expect("it was sent");
            assert_eq!(
                (received.from, &received.message[..]),
                (from, &number.to_le_bytes()[..])
            );
        }
    };
    let tasks: Vec<std::pin::Pin<Box<dyn Future<Output = ()>>>> = vec![Box::pin(send_all), Box::pin(receive_all)];
    join_all(&starter, tasks).await;
}

pub(crate) async fn messages_of_many_senders_arrive_once(cluster: Cluster) {
    const SENDERS: usize = 5;
    const EACH: u32 = 60;
    let receiver = cluster.endpoint().await;
    let starter = receiver.clone();
    let to = receiver.id();
    let mut tasks: Vec<std::pin::Pin<Box<dyn Future<Output = ()>>>> = Vec::new();
    let mut next = HashMap::new();
    for _ in 0..SENDERS {
        let sender = cluster.endpoint().await;
        next.insert(sender.id(), 0_u32);
        tasks.push(Box::pin(async move {
            for number in 0..EACH {
                send(&sender, to, &number.to_le_bytes()).await;
            }
        }));
    }
    tasks.push(Box::pin(async move {
        for _ in 0..SENDERS as u32 * EACH {
            let received = receiver.receive(soon(&receiver)).await.expect("it was sent");
            let expected = next.get_mut(&received.from).expect("one of the senders");
            assert_eq!(received.message[..], expected.to_le_bytes());
            *expected += 1;
        }
        let more = receiver.receive(receiver.deadline_in(2_000_000)).await;
        assert_eq!(more, Err(FabricError::NoMessage));
    }));
    join_all(&starter, tasks).await;
}

pub(crate) async fn messages_of_every_size_arrive_whole(cluster: Cluster) {
    let endpoint = cluster.endpoint().await;
    let other = cluster.endpoint().await;
    for bytes in 0..=MESSAGE_BYTES_MAX {
        let sent: Vec<u8> = (0..bytes).map(|index| (index * 7 + bytes) as u8).collect();
        // To itself as well as to another.
        for peer in [&endpoint, &other] {
            send(&endpoint, peer.id(), &sent).await;
            let received = peer.receive(soon(peer)).await.expect("it was sent");
            assert_eq!((received.from, &received.message[..]), (endpoint.id(), &sent[..]));
        }
    }
}

pub(crate) async fn a_full_mailbox_refuses_and_recovers(cluster: Cluster) {
    let (sender, receiver) = (cluster.endpoint().await, cluster.endpoint().await);
    let peer = receiver.id();
    for _ in 0..3 {
        let mut accepted = 0_u32;
        let refused = loop {
            match sender
                .send(peer, &message(&accepted.to_le_bytes()), soon(&sender))
                .await
            {
                Ok(()) => accepted += 1,
                Err(error) => break error,
            }
            assert!(accepted < 1 << 16, "a mailbox has a bound");
        };
        assert_eq!(refused, FabricError::MailboxFull { peer });
        assert!(accepted > 0);
        for number in 0..accepted {
            let received = receiver.receive(soon(&receiver)).await.expect("it was accepted");
            assert_eq!(received.message[..], number.to_le_bytes());
        }
        let more = receiver.receive(receiver.deadline_in(2_000_000)).await;
        assert_eq!(more, Err(FabricError::NoMessage), "what was refused was not sent");
    }
}

pub(crate) async fn an_unknown_peer_is_named(cluster: Cluster) {
    let endpoint = cluster.endpoint().await;
    for peer in [
        EndpointId(0),
        EndpointId(u64::MAX),
        EndpointId(endpoint.id().0 + (1 << 40)),
    ] {
        let result = endpoint.send(peer, &message(b"?"), soon(&endpoint)).await;
        assert_eq!(result, Err(FabricError::PeerUnknown { peer }));
    }
}

pub(crate) async fn a_receive_ends_at_its_deadline(cluster: Cluster) {
    let endpoint = cluster.endpoint().await;
    for wait_ns in [0, 1_000, 3_000_000] {
        let deadline = endpoint.deadline_in(wait_ns);
        assert_eq!(endpoint.receive(deadline).await, Err(FabricError::NoMessage));
        assert!(endpoint.now_ns() >= deadline.0, "not before the deadline");
    }
}

pub(crate) async fn a_receive_waits_for_a_late_message(cluster: Cluster) {
    let (sender, receiver) = (cluster.endpoint().await, cluster.endpoint().await);
    for wait_ns in [10_000, 1_000_000, 20_000_000] {
        let (late, to) = (sender.clone(), receiver.id());
        sender.spawn(async move {
            late.sleep(wait_ns).await;
            send(&late, to, b"late").await;
        });
        let received = receiver.receive(soon(&receiver)).await.expect("it comes");
        assert_eq!(&received.message[..], b"late");
    }
}

pub(crate) async fn what_has_arrived_is_taken_without_waiting(cluster: Cluster) {
    let (sender, receiver) = (cluster.endpoint().await, cluster.endpoint().await);
    for round in 0..20_u8 {
        assert_eq!(receiver.try_receive(), Ok(None));
        send(&sender, receiver.id(), &[round]).await;
        let give_up = soon(&receiver);
        let received = loop {
            if let Some(received) = receiver.try_receive().expect("the node is there") {
                break received;
            }
            assert!(receiver.now_ns() < give_up.0, "it was sent");
            receiver.sleep(10_000).await;
        };
        assert_eq!((received.from, &received.message[..]), (sender.id(), &[round][..]));
    }
}

pub(crate) async fn a_dropped_receive_loses_no_message(cluster: Cluster) {
    let (sender, receiver) = (cluster.endpoint().await, cluster.endpoint().await);
    for round in 0..20_u8 {
        {
            let waiting = pin!(receiver.receive(soon(&receiver)));
            let polled = waiting.poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(polled, Poll::Pending), "nothing was sent");
        }
        send(&sender, receiver.id(), &[round]).await;
        let received = receiver.receive(soon(&receiver)).await.expect("it was sent");
        assert_eq!(received.message[..], [round]);
    }
}
