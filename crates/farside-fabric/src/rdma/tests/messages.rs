//! Messages from card to card: order, full inboxes, peers that come and go.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::{Barrier, mpsc};

use super::{HERE, LinkDown, Node, on_this_thread, remote, soon};
use crate::tcp::{ConnectOptions, NodeLocation, connect};
use crate::{Deadline, Endpoint, EndpointId, FabricError, Message};

fn message(number: u64) -> Message {
    Message::try_from(&number.to_le_bytes()[..]).expect("short enough")
}

fn number(message: &Message) -> u64 {
    u64::from_le_bytes(message[..].try_into().expect("one of ours"))
}

/// Sends, and waits while the mailbox is full.
async fn send(endpoint: &Endpoint, peer: EndpointId, number: u64) -> Result<(), FabricError> {
    loop {
        match endpoint.send(peer, &message(number), soon(endpoint)).await {
            Err(FabricError::MailboxFull { .. }) => endpoint.sleep(50_000).await,
            sent => return sent,
        }
    }
}

/// Receives messages until there are `count`, each sender's in order, beginning with 0.
async fn receive_in_order(endpoint: &Endpoint, count: u64) -> BTreeMap<EndpointId, u64> {
    let mut next = BTreeMap::new();
    for _ in 0..count {
        let received = endpoint.receive(soon(endpoint)).await;
        let received = received.unwrap_or_else(|error| panic!("{error}, after {next:?} of {count}"));
        let next = next.entry(received.from).or_default();
        assert_eq!(number(&received.message), *next, "from {}", received.from);
        *next += 1;
    }
    next
}

async fn require_silence(endpoint: &Endpoint) {
    let more = endpoint.receive(endpoint.deadline_in(20_000_000)).await;
    assert_eq!(more, Err(FabricError::NoMessage));
}

/// Sends numbers from `from` on, each received before the next, until one went by the card. Returns the next number.
async fn get_to_know(sender: &Endpoint, receiver: &Endpoint, from: u64) -> u64 {
    let (before, give_up) = (remote(sender).sent_by_card(), soon(sender));
    let mut next = from;
    while remote(sender).sent_by_card() == before {
        assert!(sender.now_ns() < give_up.0, "no pair after {next} messages");
        send(sender, receiver.id(), next).await.expect("it is there");
        let received = receiver.receive(soon(receiver)).await.expect("it was sent");
        assert_eq!((received.from, number(&received.message)), (sender.id(), next));
        next += 1;
    }
    next
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm-tests"]
fn rdma_messages_go_from_card_to_card_both_ways_at_once() {
    const EACH: u64 = 2000;
    let node = Node::start();
    on_this_thread(async {
        let (one, two) = (node.client().await, node.client().await);
        let send_all = async |sender: &Endpoint, to: &Endpoint| {
            for number in 0..EACH {
                send(sender, to.id(), number).await.expect("it is there");
            }
        };
        let (.., of_two, of_one) = tokio::join!(
            send_all(&one, &two),
            send_all(&two, &one),
            receive_in_order(&one, EACH),
            receive_in_order(&two, EACH)
        );
        assert_eq!((of_one, of_two), ([(one.id(), EACH)].into(), [(two.id(), EACH)].into()));
        for client in [&one, &two] {
            require_silence(client).await;
            let relayed = EACH - remote(client).sent_by_card();
            assert!((1..EACH / 2).contains(&relayed), "{relayed} were relayed");
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm-tests"]
fn rdma_messages_to_a_client_that_stands_still_wait_or_are_refused() {
    let node = Node::start();
    let (tell_id, id) = mpsc::channel();
    let (tell_asleep, is_asleep) = mpsc::channel();
    let (wake, awake) = mpsc::channel::<u64>();
    let (tell_done, is_done) = mpsc::channel();
    std::thread::scope(|scope| {
        let node = &node;
        scope.spawn(move || {
            on_this_thread(async {
                let receiver = node.client().await;
                tell_id.send(receiver.id()).expect("the sender waits");
                let mut next = 0;
                loop {
                    let received = receiver.receive(soon(&receiver)).await.expect("it was sent");
                    if received.message.is_empty() {
                        break;
                    }
                    assert_eq!(number(&received.message), next);
                    next += 1;
                }
                for _ in 0..2 {
                    tell_asleep.send(()).expect("the sender waits");
                    // Stops the thread, with everything that would answer for this client.
                    let end = awake.recv().expect("the sender has come to an end");
                    while next < end {
                        let received = receiver.receive(soon(&receiver)).await.expect("it was accepted");
                        assert_eq!(number(&received.message), next);
                        next += 1;
                    }
                    require_silence(&receiver).await;
                }
                tell_done.send(()).expect("the sender waits");
            });
        });
        on_this_thread(async {
            let sender = node.client().await;
            let peer = id.recv().expect("it joins");
            let mut next = 0;
            while remote(&sender).sent_by_card() == 0 {
                send(&sender, peer, next).await.expect("it is there");
                next += 1;
            }
            let sent = sender.send(peer, &Message::new(), Deadline::NEVER).await;
            sent.expect("it is there");
            for _ in 0..2 {
                is_asleep.recv().expect("it will be");
                let before = next;
                let refused = loop {
                    match sender.send(peer, &message(next), Deadline::NEVER).await {
                        Ok(()) => next += 1,
                        Err(error) => break error,
                    }
                };
                assert_eq!(refused, FabricError::MailboxFull { peer });
                let accepted = next - before;
                assert!(
                    accepted >= 512,
                    "its card takes {accepted} messages without its processor"
                );
                wake.send(next).expect("it waits");
            }
            is_done.recv().expect("it has all of them");
        });
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm-tests"]
fn rdma_first_messages_do_not_wait_for_a_client_that_stands_still() {
    let node = Node::start();
    let (tell_id, id) = mpsc::channel();
    let (wake, awake) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let node = &node;
        scope.spawn(move || {
            on_this_thread(async {
                let receiver = node.client().await;
                tell_id.send(receiver.id()).expect("the sender waits");
                awake.recv().expect("the sender has come to an end");
                let from = receive_in_order(&receiver, 40).await;
                assert_eq!(from.len(), 1);
                require_silence(&receiver).await;
            });
        });
        on_this_thread(async {
            let sender = node.client().await;
            let peer = id.recv().expect("it joins");
            for number in 0..20 {
                sender
                    .send(peer, &message(number), Deadline::NEVER)
                    .await
                    .expect("there is room");
            }
            assert_eq!(remote(&sender).sent_by_card(), 0, "nobody has answered");
            wake.send(()).expect("it waits");
            for number in 20..40 {
                send(&sender, peer, number).await.expect("it is there");
                sender.sleep(20_000_000).await;
            }
            assert!(remote(&sender).sent_by_card() > 0, "it has answered");
        });
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm-tests"]
fn rdma_a_flood_of_messages_from_several_clients_arrives() {
    const EACH: u64 = 2000;
    const SENDERS: usize = 3;
    let node = Node::start();
    let (tell_id, id) = mpsc::channel();
    std::thread::scope(|scope| {
        let node = &node;
        scope.spawn(move || {
            on_this_thread(async {
                let receiver = node.client().await;
                for _ in 0..SENDERS {
                    tell_id.send(receiver.id()).expect("they wait");
                }
                let mut next: BTreeMap<EndpointId, u64> = BTreeMap::new();
                for count in 0..SENDERS as u64 * EACH {
                    if count % 997 == 500 {
                        // More come meanwhile than it has places.
                        let pause = std::time::Duration::from_millis(300);
                        #[expect(clippy::disallowed_methods, reason = "the thread is to stand still")]
                        std::thread::sleep(pause);
                    }
                    let received = receiver.receive(soon(&receiver)).await;
                    let received = received.unwrap_or_else(|error| panic!("{error}, after {next:?}"));
                    let next = next.entry(received.from).or_default();
                    assert_eq!(number(&received.message), *next, "from {}", received.from);
                    *next += 1;
                }
                assert!(next.values().all(|count| *count == EACH), "{next:?}");
                require_silence(&receiver).await;
            });
        });
        let ids: Vec<EndpointId> = id.iter().take(SENDERS).collect();
        for peer in ids {
            scope.spawn(move || {
                on_this_thread(async {
                    let sender = node.client().await;
                    for number in 0..EACH {
                        send(&sender, peer, number).await.expect("it is there");
                    }
                    // Its end stays until everything has arrived.
                    while remote(&sender).in_flight_by_card() > 0 {
                        sender.sleep(1_000_000).await;
                    }
                    assert!(remote(&sender).sent_by_card() > EACH / 2);
                });
            });
        }
    });
}

/// Tells a child of this binary where the node is.
const PEER_OF: &str = "FARSIDE_MESSAGES_PEER_OF";
/// What a child says before its identity.
const IDENTITY: &str = "here is ";

/// Not a test: a client that receives, until its input ends.
#[test]
fn peer_process() {
    let Ok(address) = std::env::var(PEER_OF) else { return };
    let device = crate::rdma::Device::open(&crate::rdma::DeviceOptions::default()).expect("an RDMA device");
    on_this_thread(async {
        let location = NodeLocation::Rdma(address, device);
        let peer = connect(vec![location], ConnectOptions::default())
            .await
            .expect("the node is there");
        println!("{IDENTITY}{}", peer.id().0);
        let (ended, end) = mpsc::channel();
        std::thread::spawn(move || ended.send(std::io::stdin().read_to_end(&mut Vec::new())));
        while end.try_recv().is_err() {
            let _ = peer.receive(peer.deadline_in(10_000_000)).await;
        }
    });
}

fn start_peer(node: &Node) -> (Child, EndpointId) {
    let mut command = Command::new(std::env::current_exe().expect("a test binary has a path"));
    command.args(["--exact", "rdma::tests::messages::peer_process", "--nocapture"]);
    command
        .env(PEER_OF, &node.address)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().expect("this binary runs");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut said = lines.map_while(Result::ok);
    let id = said.find_map(|line| Some(line.split_once(IDENTITY)?.1.parse().expect("a number")));
    (child, EndpointId(id.expect("it says who it is")))
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm-tests"]
fn rdma_messages_to_a_killed_process_end_and_others_notice_nothing() {
    let node = Node::start();
    on_this_thread(async {
        let (sender, other) = (node.client().await, node.client().await);
        let known = get_to_know(&sender, &other, 0).await;
        let (mut child, peer) = start_peer(&node);
        let before = remote(&sender).sent_by_card();
        while remote(&sender).sent_by_card() < before + 10 {
            send(&sender, peer, 0).await.expect("it is there");
        }
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
        let give_up = soon(&sender);
        let end = loop {
            assert!(sender.now_ns() < give_up.0, "nobody is there");
            if let Err(error) = send(&sender, peer, 0).await {
                break error;
            }
        };
        assert_eq!(end, FabricError::PeerUnknown { peer });
        let before = remote(&sender).sent_by_card();
        for expected in known..known + 100 {
            send(&sender, other.id(), expected).await.expect("it is there");
            let received = other.receive(soon(&other)).await.expect("it was sent");
            assert_eq!(number(&received.message), expected);
        }
        assert_eq!(remote(&sender).sent_by_card() - before, 100, "by the same pair");
        assert_eq!(remote(&sender).in_flight_by_card(), 0);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm-tests"]
fn rdma_messages_go_on_when_a_client_comes_back_and_when_a_new_one_comes() {
    let node = Node::start();
    on_this_thread(async {
        let (sender, receiver) = (node.client().await, node.client().await);
        let mut next = get_to_know(&sender, &receiver, 0).await;
        for lost in [&receiver, &sender] {
            remote(lost).nic(HERE).spoil_key();
            let mut op = crate::OpContext::new(lost.clone());
            op.read_word(super::at(0)).await.expect_err("the key is wrong");
            assert!(lost.send(lost.id(), &message(0), soon(lost)).await.is_err());
            remote(lost).reconnect(HERE).await.expect("the node lets it in");
            next = get_to_know(&sender, &receiver, next).await;
        }
        require_silence(&receiver).await;
        let gone = receiver.id();
        drop(receiver);
        let refused = loop {
            // The node notices a little later.
            if let Err(error) = send(&sender, gone, 0).await {
                break error;
            }
        };
        assert_eq!(refused, FabricError::PeerUnknown { peer: gone });
        let newcomer = node.client().await;
        get_to_know(&sender, &newcomer, 0).await;
        let next = get_to_know(&newcomer, &sender, 0).await;
        for number in next..next + 16 {
            send(&newcomer, sender.id(), number).await.expect("it is there");
        }
        drop(newcomer);
        for expected in next..next + 16 {
            let received = sender
                .receive(soon(&sender))
                .await
                .expect("it was sent before its sender left");
            assert_eq!(number(&received.message), expected);
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm-tests"]
fn rdma_messages_go_on_after_the_link_was_down() {
    let node = Node::start();
    on_this_thread(async {
        let (sender, receiver) = (node.client().await, node.client().await);
        let mut next = get_to_know(&sender, &receiver, 0).await;
        let down = LinkDown::new();
        let (mut accepted, mut last) = (Vec::new(), next);
        let give_up = soon(&sender);
        // The pair breaks when its card gives the peer up; then they are relayed.
        loop {
            assert!(sender.now_ns() < give_up.0, "something has to get through");
            match sender.send(receiver.id(), &message(next), soon(&sender)).await {
                Ok(()) => accepted.push(next),
                Err(error) => assert!(matches!(error, FabricError::MailboxFull { .. }), "{error}"),
            }
            next += 1;
            if let Ok(received) = receiver.receive(receiver.deadline_in(1_000_000)).await {
                assert!(number(&received.message) >= last, "in order");
                last = number(&received.message);
                break;
            }
        }
        drop(down);
        while let Ok(received) = receiver.receive(receiver.deadline_in(50_000_000)).await {
            assert!(number(&received.message) > last, "in order, and once");
            last = number(&received.message);
            assert!(accepted.contains(&last));
        }
        assert_eq!(accepted.last(), Some(&last), "the last one was relayed");
        sender.sleep(1_000_000_000).await;
        get_to_know(&sender, &receiver, next).await;
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm-tests"]
fn rdma_messages_go_between_all_of_many_clients() {
    const CLIENTS: u64 = 8;
    const EACH: u64 = 40;
    let node = Node::start();
    on_this_thread(async {
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(node.client().await);
        }
        for round in 0..EACH {
            for sender in &clients {
                for receiver in &clients {
                    send(sender, receiver.id(), round).await.expect("it is there");
                }
            }
            for receiver in &clients {
                let mut from = Vec::new();
                for _ in 0..CLIENTS {
                    let received = receiver.receive(soon(receiver)).await.expect("it was sent");
                    assert_eq!(number(&received.message), round);
                    from.push(received.from);
                }
                from.sort_unstable();
                from.dedup();
                assert_eq!(from.len() as u64, CLIENTS, "one from each, itself included");
            }
        }
        for client in &clients {
            require_silence(client).await;
            assert!(remote(client).sent_by_card() > CLIENTS * EACH / 2);
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm-tests"]
fn rdma_messages_among_clients_that_all_send_at_once_are_neither_lost_nor_doubled() {
    const CLIENTS: usize = 4;
    const EACH: u64 = 850;
    let node = Node::start();
    let all_here = Barrier::new(CLIENTS);
    let ids = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                on_this_thread(async {
                    let client = node.client().await;
                    ids.lock().expect("nobody panicked").push(client.id());
                    all_here.wait();
                    let peers: Vec<EndpointId> = ids.lock().expect("nobody panicked").clone();
                    let peers = peers.into_iter().filter(|id| *id != client.id());
                    let send_all = async {
                        for number in 0..EACH {
                            for peer in peers.clone() {
                                send(&client, peer, number).await.expect("it is there");
                            }
                            if client.random().is_multiple_of(50) {
                                client.sleep(client.random() % 3_000_000).await;
                            }
                        }
                        while remote(&client).in_flight_by_card() > 0 {
                            client.sleep(1_000_000).await;
                        }
                    };
                    let count = (CLIENTS as u64 - 1) * EACH;
                    let ((), received) = tokio::join!(send_all, receive_in_order(&client, count));
                    assert!(received.values().all(|count| *count == EACH), "{received:?}");
                    require_silence(&client).await;
                    assert!(
                        remote(&client).sent_by_card() > count / 2,
                        "{}",
                        remote(&client).sent_by_card()
                    );
                });
            });
        }
    });
}
