//! What a client does at the edges: of a pool, of a connection that is full or goes, of grants and of the hello.

use farside_fabric::Batch;
use farside_fabric::addr::NODE_COUNT_MAX;
use farside_fabric::region::Region;
use farside_fabric::shm::SegmentError;

use super::*;

/// A node that says what it can do, and answers one ping.
fn node_that_can(capabilities: u8) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the client comes");
        stream.read_exact(&mut [0; HELLO_BYTES]).expect("its hello");
        let welcome = welcome_with(VERSION, capabilities);
        stream.write_all(&welcome).expect("the client reads");
        stream.read_exact(&mut [0; 12]).expect("its ping");
        stream.write_all(&frame(1, 0, &[])).expect("the client reads");
        let _ = stream.read_to_end(&mut Vec::new());
    });
    address
}

#[test]
fn a_client_can_what_all_nodes_can() {
    let node = Node::start();
    block_on(async {
        for (bits, masked_atomics, wide_atomics) in
            [(0, false, false), (1, true, false), (2, false, true), (3, true, true)]
        {
            let locations = [node_that_can(bits), node.address.clone()].map(NodeLocation::Remote);
            let endpoint = connect(locations.into(), ConnectOptions::default()).await;
            let capabilities = endpoint.expect("the nodes are there").capabilities();
            let own = Region::capabilities();
            assert_eq!(capabilities.masked_atomics, masked_atomics && own.masked_atomics);
            assert_eq!(capabilities.wide_atomics, wide_atomics && own.wide_atomics);
        }
    });
}

#[test]
fn a_pool_has_as_many_nodes_as_addresses_can_name() {
    let max = usize::from(NODE_COUNT_MAX);
    block_on(async {
        let connect_to = async |count: usize| {
            let locations = vec![NodeLocation::Remote("no-port".to_owned()); count];
            let refused = connect(locations, ConnectOptions::default()).await;
            refused.expect_err("there is no node")
        };
        assert!(matches!(connect_to(max).await, ConnectError::Unreachable { .. }));
        let refused = connect_to(max + 1).await;
        assert!(matches!(refused, ConnectError::NodeCount { count } if count == max + 1));
    });
}

#[test]
fn memory_that_a_card_works_on_is_not_mapped() {
    let segment = Segment::anonymous(NODE_BYTES).expect("a little memory");
    let by_card = segment.use_by_nic().expect("it is open");
    block_on(async {
        let connect = || connect(vec![NodeLocation::Mapped(segment.clone())], ConnectOptions::default());
        let refused = connect().await.expect_err("a card works on it");
        assert!(matches!(refused, ConnectError::Segment(SegmentError::UsedByNic { .. })));
        drop(by_card);
        connect().await.expect("it is open again");
    });
}

/// Node 0 is mapped, node 1 is not.
async fn connect_mapped_first(mapped: &Segment, node: &Node) -> Endpoint {
    let locations = vec![
        NodeLocation::Mapped(mapped.clone()),
        NodeLocation::Remote(node.address.clone()),
    ];
    let endpoint = connect(locations, ConnectOptions::default()).await;
    endpoint.expect("the nodes are there")
}

#[test]
fn a_client_has_one_identity_at_all_nodes() {
    let mapped = Segment::anonymous(NODE_BYTES).expect("a little memory");
    let node = Node::start();
    let there = RemoteAddr::new(NodeId::new(1), 0);
    block_on(async {
        let endpoint = connect_mapped_first(&mapped, &node).await;
        let friend = connect_mapped_first(&mapped, &node).await;
        let mut op = OpContext::new(endpoint.clone());
        assert_eq!(op.fetch_add(there, 1).await, Ok(0));
        assert_eq!(friend.fence(endpoint.id(), Deadline::NEVER).await, Ok(Fence::CutOff));
        assert_eq!(
            op.fetch_add(there, 1).await,
            Err(FabricError::Fenced { node: NodeId::new(1) })
        );
        assert_eq!(op.fetch_add(at(0), 1).await, Err(FabricError::Fenced { node: NODE }));
        assert_eq!(OpContext::new(friend).read_word(there).await, Ok(1));
    });
}

#[test]
fn a_mapped_node_beside_others_counts_and_answers_like_them() {
    let mapped = Segment::anonymous(NODE_BYTES).expect("a little memory");
    let node = Node::start();
    let there = RemoteAddr::new(NodeId::new(1), 0);
    block_on(async {
        let endpoint = connect_mapped_first(&mapped, &node).await;
        let mut op = OpContext::new(endpoint.clone());
        let counted = || {
            let counted = endpoint.counters().snapshot();
            (counted.doorbells, counted.verbs.total())
        };
        op.write_word(at(0), 5).await.expect("it is mapped");
        assert_eq!(counted(), (1, 1));
        op.write_word(there, 7).await.expect("it is there");
        assert_eq!(counted(), (2, 2));
        let mut batch = Batch::new();
        let places = [at(0), there, at(0)].map(|addr| batch.fetch_add(addr, 1));
        op.post(&mut batch).await.expect("both are there");
        assert_eq!(places.map(|place| batch.result(place)), [5, 7, 6]);
        assert_eq!(counted(), (3, 5));
        // What is fetched ahead lies in memory that is mapped.
        assert!(endpoint.prefetch(at(0), 64));
        assert!(!endpoint.prefetch(there, 64));
        let remote = endpoint.remote().expect("it is connected");
        assert_eq!(remote.ping(NODE, Deadline::NEVER).await, Ok(()));
        mapped.close();
        assert_eq!(
            remote.ping(NODE, Deadline::NEVER).await,
            Err(FabricError::NodeGone { node: NODE })
        );
    });
}

#[test]
fn a_client_that_is_cut_off_hears_of_it_when_it_asks() {
    let mapped = Segment::anonymous(NODE_BYTES).expect("a little memory");
    let node = Node::start();
    block_on(async {
        let endpoint = connect_mapped_first(&mapped, &node).await;
        let friend = connect_mapped_first(&mapped, &node).await;
        assert_eq!(friend.fence(endpoint.id(), Deadline::NEVER).await, Ok(Fence::CutOff));
        let remote = endpoint.remote().expect("it is connected");
        for node in [NODE, NodeId::new(1)] {
            let refused = remote.ping(node, Deadline::NEVER).await;
            assert_eq!(refused, Err(FabricError::Fenced { node }));
        }
    });
}

/// Waits until this is so.
async fn until(endpoint: &Endpoint, mut is_so: impl AsyncFnMut() -> bool) {
    let give_up = endpoint.deadline_in(20_000_000_000);
    while !is_so().await {
        assert!(endpoint.now_ns() < give_up.0, "it is never so");
        endpoint.sleep(1_000_000).await;
    }
}

#[test]
fn the_last_clone_of_an_endpoint_ends_its_connections() {
    let node = Node::start();
    block_on(async {
        let (endpoint, friend) = (node.connect().await, node.connect().await);
        let peer = endpoint.id();
        let message = Message::try_from(&b"hello"[..]).expect("short");
        let clone = endpoint.clone();
        drop(endpoint);
        friend
            .send(peer, &message, Deadline::NEVER)
            .await
            .expect("a clone is left");
        assert_eq!(OpContext::new(clone.clone()).fetch_add(at(0), 1).await, Ok(0));
        drop(clone);
        let unknown = Err(FabricError::PeerUnknown { peer });
        until(&friend, async || {
            friend.send(peer, &message, Deadline::NEVER).await == unknown
        })
        .await;
    });
}

#[test]
fn a_connection_that_is_up_is_not_replaced() {
    let node = Node::start();
    let wire = Wire::to(node.address.clone());
    block_on(async {
        let endpoint = connect_to(&wire.address, ConnectOptions::default())
            .await
            .expect("the node is there");
        let remote = endpoint.remote().expect("it is connected");
        remote.reconnect(NODE).await.expect("nothing to do");
        remote.reconnect(NodeId::new(1)).await.expect("nothing to do");
        assert_eq!(wire.streams.lock().expect("nobody panics").len(), 2, "both ends of one");
    });
}

/// Puts so much on the way to a node that stands still that nothing more may be posted there.
async fn fill_connection(endpoint: &Endpoint, node: NodeId) {
    const BYTES: u32 = 512 * 1024;
    for _ in 0..100 {
        let mut op = OpContext::new(endpoint.clone());
        op.reserve(BYTES as usize);
        endpoint.spawn(async move {
            // Fails when the node stops.
            let _ = op.write(Slice::first(BYTES), RemoteAddr::new(node, 64)).await;
        });
    }
    let posted = || endpoint.counters().snapshot().verbs.total();
    let (mut seen, mut still) = (posted(), 0);
    while still < 10 {
        endpoint.sleep(1_000_000).await;
        still = if posted() == seen { still + 1 } else { 0 };
        seen = posted();
    }
}

#[test]
fn a_batch_is_not_posted_where_there_is_no_room() {
    let node = Node::start();
    block_on(async {
        let endpoint = node.connect().await;
        node.handle.pause();
        fill_connection(&endpoint, NODE).await;
        let before = endpoint.counters().snapshot().verbs.total();
        let mut late = OpContext::new(endpoint.clone());
        late.set_deadline(endpoint.deadline_in(1_000_000));
        let mut batch = Batch::new();
        batch.fetch_add(at(0), 1);
        let exceeded = FabricError::DeadlineExceeded { node: NODE };
        assert_eq!(late.post(&mut batch).await, Err(exceeded));
        assert_eq!(endpoint.counters().snapshot().verbs.total(), before);
        node.handle.resume();
        late.set_deadline(Deadline::NEVER);
        assert_eq!(late.read_word(at(0)).await, Ok(0), "it was never posted");
    });
}

#[test]
fn a_batch_goes_to_all_nodes_or_to_none() {
    let nodes = [Node::start(), Node::start()];
    block_on(async {
        let locations = nodes.each_ref().map(|node| NodeLocation::Remote(node.address.clone()));
        let endpoint = connect(locations.into(), ConnectOptions::default()).await;
        let endpoint = endpoint.expect("the nodes are there");
        let there = NodeId::new(1);
        nodes[1].handle.pause();
        fill_connection(&endpoint, there).await;
        // Waits for room at node 1, while node 0 goes.
        let outcome = Rc::new(RefCell::new(None));
        let (mut op, said) = (OpContext::new(endpoint.clone()), outcome.clone());
        endpoint.spawn(async move {
            let mut batch = Batch::new();
            batch.fetch_add(at(0), 1);
            batch.fetch_add(RemoteAddr::new(there, 0), 1);
            *said.borrow_mut() = Some(op.post(&mut batch).await);
        });
        endpoint.sleep(1_000_000).await;
        assert_eq!(*outcome.borrow(), None, "it waits");
        nodes[0].handle.stop();
        let mut op = OpContext::new(endpoint.clone());
        let gone = FabricError::NodeGone { node: NODE };
        until(&endpoint, async || op.read_word(at(8)).await == Err(gone)).await;
        nodes[1].handle.resume();
        until(&endpoint, async || outcome.borrow().is_some()).await;
        assert_eq!(*outcome.borrow(), Some(Err(gone)));
        assert_eq!(op.read_word(RemoteAddr::new(there, 0)).await, Ok(0));
        let remote = endpoint.remote().expect("it is connected");
        assert_eq!(remote.ping(NODE, Deadline::NEVER).await, Err(gone));
        let message = Message::try_from(&b"hello"[..]).expect("short");
        assert_eq!(endpoint.send(endpoint.id(), &message, Deadline::NEVER).await, Err(gone));
    });
}

/// A client grants as many messages more as it has taken out, in turns of 32.
#[test]
fn messages_are_granted_in_turns() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    let node = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the client comes");
        stream.read_exact(&mut [0; HELLO_BYTES]).expect("its hello");
        stream.write_all(&welcome(VERSION)).expect("the client reads");
        stream.read_exact(&mut [0; 12]).expect("its ping");
        stream.write_all(&frame(1, 0, &[])).expect("the client reads");
        let message = frame(2, 0, &[9; 9]);
        stream.write_all(&message.repeat(70)).expect("the client reads");
        let mut said = Vec::new();
        stream.read_to_end(&mut said).expect("the client leaves");
        said
    });
    block_on(async {
        let endpoint = connect_to(&address, ConnectOptions::default()).await.expect("a node");
        for _ in 0..70 {
            endpoint.receive(Deadline::NEVER).await.expect("it was sent");
            // The driver sends what there is to say.
            endpoint.sleep(0).await;
        }
        endpoint.sleep(1_000_000).await;
        drop(endpoint);
        tokio::task::yield_now().await;
    });
    let granted = frame(5, 0, &32_u64.to_le_bytes());
    assert_eq!(node.join().expect("it does not panic"), granted.repeat(2));
}

#[test]
fn a_secret_may_be_as_long_as_there_are() {
    const SECRET_BYTES_MAX: usize = 1024;
    let node = Node::start();
    let mut stream = TcpStream::connect(&node.address).expect("the node is there");
    let longest = [b'x'; SECRET_BYTES_MAX];
    stream.write_all(&hello(VERSION, &longest)).expect("the node reads");
    let mut welcome = [0; WELCOME_BYTES];
    stream.read_exact(&mut welcome).expect("the node answers");
    assert_eq!(welcome[12], 0, "accepted");
    let mut stream = TcpStream::connect(&node.address).expect("the node is there");
    let longer = [b'x'; SECRET_BYTES_MAX + 1];
    stream.write_all(&hello(VERSION, &longer)).expect("the node reads");
    assert_closed(stream, "a secret that is too long");
}

#[test]
fn each_run_of_a_node_has_a_name_of_its_own() {
    let run = |node: &Node| {
        let mut stream = TcpStream::connect(&node.address).expect("the node is there");
        stream.write_all(&hello(VERSION, b"")).expect("the node reads");
        let mut welcome = [0; WELCOME_BYTES];
        stream.read_exact(&mut welcome).expect("the node answers");
        u64::from_le_bytes(welcome[32..40].try_into().expect("eight bytes"))
    };
    let nodes = [Node::start(), Node::start()];
    let runs = nodes.each_ref().map(run);
    assert_ne!(runs[0], runs[1]);
    assert!(!runs.contains(&0), "0 is not known");
    assert_eq!(run(&nodes[0]), runs[0]);
}
