//! What the network may bring: garbage, silence, strangers, broken connections; and clients that
//! map the memory beside those that are connected.
//!
//! The contract itself is tested by the conformance suite.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::Duration;

use farside_fabric::Endpoint;
use farside_fabric::batch::BATCH_VERBS_MAX;
use farside_fabric::shm::{Fabric, Segment};
use farside_fabric::tcp::{
    ConnectError, ConnectOptions, NodeLocation, Secret, Server, ServerHandle, ServerOptions, connect,
    require_secret_unless_loopback,
};
use farside_fabric::{Deadline, FabricError, Fence, Message, NodeId, OpContext, RemoteAddr, Slice};

mod client;

const NODE: NodeId = NodeId::new(0);
const NODE_BYTES: u64 = 1 << 20;
const VERSION: u32 = 2;
const HELLO_BYTES: usize = 48;
const WELCOME_BYTES: usize = 48;

fn at(offset: u64) -> RemoteAddr {
    RemoteAddr::new(NODE, offset)
}

/// A server on a thread of its own, which ends with it.
struct Node {
    address: String,
    segment: Segment,
    handle: ServerHandle,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

impl Node {
    fn start() -> Self {
        Self::start_with(ServerOptions::default())
    }

    fn start_with(options: ServerOptions) -> Self {
        let segment = Segment::anonymous(NODE_BYTES).expect("a little memory");
        Self::serve(segment, TcpListener::bind("127.0.0.1:0").expect("a free port"), options)
    }

    fn serve(segment: Segment, listener: TcpListener, options: ServerOptions) -> Self {
        let address = listener.local_addr().expect("it is bound").to_string();
        let server = Server::new(segment.clone(), options);
        Self {
            address,
            segment,
            handle: server.handle(),
            thread: Some(std::thread::spawn(move || server.run(listener))),
        }
    }

    async fn connect(&self) -> Endpoint {
        connect_to(&self.address, ConnectOptions::default())
            .await
            .expect("the node is there")
    }

    /// A connection that speaks for itself, after a good hello.
    fn raw(&self) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).expect("the node is there");
        stream.write_all(&hello(VERSION, b"")).expect("the node reads");
        let mut welcome = [0; WELCOME_BYTES];
        stream.read_exact(&mut welcome).expect("the node answers");
        assert_eq!(welcome[12], 0, "accepted");
        stream
    }

    /// Whether the node still serves, and nothing was written to its memory.
    fn check_unharmed(&self) {
        block_on(async {
            let mut op = OpContext::new(self.connect().await);
            op.reserve(NODE_BYTES as usize);
            let memory = op
                .read(at(0), Slice::first(NODE_BYTES as u32))
                .await
                .expect("the node serves");
            assert!(memory.iter().all(|&byte| byte == 0));
        });
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            thread
                .join()
                .expect("the server does not panic")
                .expect("it could listen");
        }
    }
}

async fn connect_to(address: &str, options: ConnectOptions) -> Result<Endpoint, ConnectError> {
    connect(vec![NodeLocation::Remote(address.to_owned())], options).await
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    farside_fabric::host::on_this_thread(future).expect("an event loop")
}

fn hello(version: u32, secret: &[u8]) -> Vec<u8> {
    let mut bytes = b"FARSIDE\n".to_vec();
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes.extend_from_slice(&(secret.len() as u16).to_le_bytes());
    bytes.extend_from_slice(&[0; HELLO_BYTES - 14]);
    bytes.extend_from_slice(secret);
    bytes
}

/// A batch as it goes over the wire.
fn batch(verbs: &[Vec<u8>]) -> Vec<u8> {
    frame(1, verbs.len() as u8, &verbs.concat())
}

fn frame(kind: u8, verb_count: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = (12 + body.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&[kind, verb_count, 0, 0]);
    bytes.extend_from_slice(body);
    bytes
}

/// What endpoint 0 says of a queue pair.
fn introduction(kind: u8) -> Vec<u8> {
    [&[0; 8][..], &[kind], &[0; 59]].concat()
}

fn verb(code: u8, offset: u64, operands: &[u8]) -> Vec<u8> {
    let mut bytes = offset.to_le_bytes()[..6].to_vec();
    bytes.extend_from_slice(&[code, 0]);
    bytes.extend_from_slice(operands);
    bytes
}

fn read(offset: u64, bytes: u32) -> Vec<u8> {
    verb(1, offset, &bytes.to_le_bytes())
}

fn write(offset: u64, claimed: u32, payload: &[u8]) -> Vec<u8> {
    verb(2, offset, &[&claimed.to_le_bytes(), payload].concat())
}

fn write_word(offset: u64, value: u64) -> Vec<u8> {
    verb(4, offset, &value.to_le_bytes())
}

/// The node closes the connection without an answer.
fn assert_closed(mut stream: TcpStream, what: &str) {
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("a socket");
    let mut rest = Vec::new();
    // A reset is as good as an end.
    if let Err(error) = stream.read_to_end(&mut rest) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{what}");
    }
    assert_eq!(rest, [0; 0], "{what}");
}

/// Random bytes, the same in each run.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

#[test]
fn random_bytes_cost_their_connection_only() {
    let node = Node::start();
    let mut bystander = node.raw();
    for seed in 0..200 {
        let mut stream = if seed % 2 == 0 {
            TcpStream::connect(&node.address).expect("the node is there")
        } else {
            node.raw()
        };
        let mut bytes = noise(seed, 1 + seed as usize * 7);
        if seed % 4 == 3 {
            // A good length, so that the rest is looked at.
            bytes.splice(..4.min(bytes.len()), (bytes.len().max(12) as u32).to_le_bytes());
        }
        // Fails if the node has already closed the connection.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert_eq!(rest, [0; 0], "noise {seed} has no answer");
    }
    bystander
        .write_all(&batch(&[read(0, 8)]))
        .expect("its connection is untouched");
    bystander.read_exact(&mut [0; 12 + 8]).expect("it is answered");
    node.check_unharmed();
}

#[test]
fn impossible_frames_close_their_connection() {
    let node = Node::start();
    let word = |length: u32| [&length.to_le_bytes()[..], &[0; 60]].concat();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("length 0", word(0)),
        ("length 11", word(11)),
        ("length above the largest frame", word(64 * 1024 + 1)),
        ("length of 4 GiB", word(u32::MAX)),
        ("no such request", frame(99, 0, &[])),
        ("no verbs", batch(&[])),
        (
            "more verbs than a batch holds",
            batch(&vec![read(0, 8); BATCH_VERBS_MAX + 1]),
        ),
        ("fewer verbs than announced", frame(1, 2, &read(0, 8))),
        (
            "bytes after the last verb",
            frame(1, 1, &[read(0, 8), vec![0]].concat()),
        ),
        ("no such verb", batch(&[verb(77, 0, &[])])),
        ("READ behind the end", batch(&[read(NODE_BYTES - 4, 8)])),
        ("READ far behind the end", batch(&[read((1 << 48) - 1, 64)])),
        ("READ longer than a frame", batch(&[read(0, 65_536)])),
        ("READ of 4 GiB", batch(&[read(0, u32::MAX)])),
        (
            "READs that together are longer than a frame",
            batch(&vec![read(0, 8192); 16]),
        ),
        ("WRITE behind the end", batch(&[write(NODE_BYTES - 1, 2, &[1, 1])])),
        (
            "WRITE with less payload than it says",
            batch(&[write(0, 100, &[1; 99])]),
        ),
        ("WRITE of 4 GiB", batch(&[write(0, u32::MAX, &[1; 99])])),
        ("word behind the end", batch(&[write_word(NODE_BYTES, 1)])),
        ("misaligned word", batch(&[write_word(12, 1)])),
        ("misaligned wide word", batch(&[verb(10, 8, &[1; 32])])),
        (
            "good verb, then a bad one",
            batch(&[write_word(0, 1), write(8, 8, &[1; 8]), write_word(4, 1)]),
        ),
        ("message without a receiver", frame(2, 0, &[0; 7])),
        ("message that is too long", frame(2, 0, &[0; 8 + 65])),
        ("fence of half a number", frame(3, 0, &[0; 4])),
        ("fence of more than a number", frame(3, 0, &[0; 9])),
        ("introduction of no kind", frame(7, 0, &introduction(0))),
        ("introduction that is too long", frame(7, 0, &[0; 8 + 61])),
        ("introduction at a node without RDMA", frame(7, 0, &introduction(1))),
    ];
    for (what, bytes) in cases {
        let mut stream = node.raw();
        stream.write_all(&bytes).expect("the node reads");
        assert_closed(stream, what);
    }
    node.check_unharmed();
}

#[test]
fn a_frame_takes_effect_whole_or_not_at_all() {
    let node = Node::start();
    let whole = batch(&[write_word(0, 7), write(64, 100, &[9; 100]), write_word(8, 7)]);
    for length in 0..whole.len() {
        let mut stream = node.raw();
        stream.write_all(&whole[..length]).expect("the node reads");
        drop(stream);
    }
    node.check_unharmed();
    // The test can fail: the whole frame does something.
    let mut stream = node.raw();
    stream.write_all(&whole).expect("the node reads");
    stream.read_exact(&mut [0; 12]).expect("it is answered");
    assert_eq!(
        node.segment.region().word(8).load(std::sync::atomic::Ordering::SeqCst),
        7
    );
}

#[test]
fn half_a_frame_and_silence_disturb_nobody() {
    let node = Node::start();
    let frame = batch(&[write(0, 60_000, &vec![1; 60_000])]);
    let silent: Vec<_> = (0..50)
        .map(|index| {
            let mut stream = node.raw();
            stream
                .write_all(&frame[..frame.len() * index / 50])
                .expect("the node reads");
            stream
        })
        .collect();
    // Some do not even finish their hello.
    let mute = TcpStream::connect(&node.address).expect("the node is there");
    node.check_unharmed();
    drop((silent, mute));
    node.check_unharmed();
}

#[test]
fn who_does_not_read_is_not_read_from() {
    let node = Node::start();
    let mut greedy = node.raw();
    greedy
        .set_write_timeout(Some(Duration::from_millis(200)))
        .expect("a socket");
    let request = batch(&[read(0, 60_000)]).repeat(100);
    let mut sent = 0;
    // Without back-pressure the node would take all of it, and hold 60 KB of answer for 24 bytes.
    let refused = loop {
        match greedy.write(&request) {
            Ok(bytes) => sent += bytes,
            Err(error) => break error,
        }
        assert!(sent < 64 << 20, "the node takes requests without end");
    };
    assert_eq!(refused.kind(), std::io::ErrorKind::WouldBlock);
    node.check_unharmed();
}

#[test]
fn thousands_of_connections_come_and_go() {
    let node = Node::start();
    // More than the segment's table has entries.
    for index in 0..3000 {
        if index % 3 == 0 {
            drop(TcpStream::connect(&node.address).expect("the node is there"));
        } else {
            drop(node.raw());
        }
    }
    block_on(async {
        let mut endpoints = Vec::new();
        for _ in 0..100 {
            endpoints.push(node.connect().await);
        }
        for endpoint in endpoints {
            let mut op = OpContext::new(endpoint);
            op.fetch_add(at(0), 1).await.expect("the node serves");
        }
    });
    assert_eq!(
        node.segment.region().word(0).load(std::sync::atomic::Ordering::SeqCst),
        100
    );
}

#[test]
fn the_secret_opens_the_door() {
    let secret = |text: &str| Secret::new(text.as_bytes()).expect("long enough");
    let node = Node::start_with(ServerOptions::with_secret(secret("correct horse battery staple")));
    block_on(async {
        let with = |text| ConnectOptions::default().with_secret(secret(text));
        let missing = connect_to(&node.address, ConnectOptions::default())
            .await
            .expect_err("no secret");
        assert!(matches!(missing, ConnectError::SecretMissing { .. }), "{missing}");
        for wrong in [
            "correct horse battery stapler",
            "correct horse battery stapl?",
            "something else entirely",
        ] {
            let refused = connect_to(&node.address, with(wrong))
                .await
                .expect_err("a wrong secret");
            assert!(matches!(refused, ConnectError::SecretWrong { .. }), "{refused}");
            assert!(refused.to_string().contains(&node.address));
            assert!(!refused.to_string().contains(wrong));
        }
        let endpoint = connect_to(&node.address, with("correct horse battery staple"))
            .await
            .expect("the secret");
        OpContext::new(endpoint).write_word(at(0), 1).await.expect("let in");
    });
}

#[test]
fn strangers_are_kept_out_unless_there_is_a_secret() {
    let open = ServerOptions::default();
    let closed = ServerOptions::with_secret(Secret::new(b"sixteen bytes !!").expect("long enough"));
    for address in ["127.0.0.1:1", "127.8.8.8:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
        let address = address.parse().expect("an address");
        assert_eq!(require_secret_unless_loopback(address, &open), Ok(()));
    }
    for address in ["0.0.0.0:1", "10.0.0.1:1", "[::]:1"] {
        let address = address.parse().expect("an address");
        let refused = require_secret_unless_loopback(address, &open).expect_err("no secret");
        assert!(refused.to_string().contains(&address.to_string()));
        assert_eq!(require_secret_unless_loopback(address, &closed), Ok(()));
    }
}

/// Something that is no node: answers every connection with `answer`, then waits for its end.
fn impostor(answer: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || {
                let mut stream = stream;
                let _ = stream.write_all(&answer);
                let _ = stream.read_to_end(&mut Vec::new());
            });
        }
    });
    address
}

fn welcome(version: u32) -> Vec<u8> {
    welcome_with(version, 3)
}

fn welcome_with(version: u32, capabilities: u8) -> Vec<u8> {
    let mut bytes = b"FARSIDE\n".to_vec();
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes.extend_from_slice(&[0, capabilities, 0, 0]);
    for number in [NODE_BYTES, 5, 9, 0] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes
}

#[test]
fn what_is_no_node_is_named() {
    block_on(async {
        let options = ConnectOptions::default().with_timeout(Duration::from_millis(200));
        let failure = async |address: &str| {
            let error = connect_to(address, options.clone())
                .await
                .expect_err("there is no node");
            assert!(error.to_string().contains(address), "{error}");
            error
        };
        let http = impostor(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".to_vec());
        assert!(matches!(failure(&http).await, ConnectError::Magic { .. }));
        let silent = impostor(Vec::new());
        assert!(matches!(failure(&silent).await, ConnectError::Timeout { .. }));
        let newer = impostor(welcome(VERSION + 1)[..20].to_vec());
        assert!(matches!(failure(&newer).await, ConnectError::Version { theirs: 3, .. }));
        let unused = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let closed = unused.local_addr().expect("it is bound").to_string();
        drop(unused);
        assert!(matches!(failure(&closed).await, ConnectError::Unreachable { .. }));
        assert!(matches!(failure("no-port").await, ConnectError::Unreachable { .. }));
        assert!(matches!(
            connect(Vec::new(), options.clone()).await,
            Err(ConnectError::NodeCount { count: 0 })
        ));
    });
}

#[test]
fn another_version_is_told_ours() {
    let node = Node::start();
    let mut stream = TcpStream::connect(&node.address).expect("the node is there");
    stream.write_all(&hello(99, b"")).expect("the node reads");
    let mut answer = Vec::new();
    // Unread bytes of the hello may turn the end into a reset.
    let _ = stream.read_to_end(&mut answer);
    assert_eq!(&answer[..12], &[&b"FARSIDE\n"[..], &VERSION.to_le_bytes()].concat()[..]);
    assert_eq!(answer[12], 1, "the verdict");
}

/// A node that answers the first request (a ping has 12 bytes) well and the next one with `bytes`.
fn faulty_node(bytes: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the client comes");
        stream.read_exact(&mut [0; HELLO_BYTES]).expect("its hello");
        stream.write_all(&welcome(VERSION)).expect("the client reads");
        stream.read_exact(&mut [0; 12]).expect("its ping");
        stream.write_all(&frame(1, 0, &[])).expect("the client reads");
        stream.read_exact(&mut [0; 20]).expect("its request for a word");
        stream.write_all(&bytes).expect("the client reads");
        let _ = stream.read_to_end(&mut Vec::new());
    });
    address
}

#[test]
fn a_node_that_breaks_the_protocol_is_left() {
    let mut other_request = frame(1, 0, &[0; 8]);
    other_request[4] = 9;
    let mut good = frame(1, 0, &[7, 0, 0, 0, 0, 0, 0, 0]);
    good[4] = 1;
    let with_body = |body: &[u8]| {
        let mut answer = frame(1, 0, body);
        answer[4] = 1;
        answer
    };
    let bad = [
        other_request,
        with_body(&[0; 7]),
        with_body(&[0; 9]),
        with_body(&[]),
        frame(77, 0, &[]),
        frame(1, 88, &[]),
        frame(2, 0, &[0; 100]),
        frame(4, 0, &introduction(0)),
        // This client has no network card.
        frame(4, 0, &introduction(1)),
        vec![0xff; 64],
    ];
    block_on(async {
        for bytes in bad {
            let endpoint = connect_to(&faulty_node(bytes.clone()), ConnectOptions::default())
                .await
                .expect("a node");
            let mut op = OpContext::new(endpoint);
            let error = op.read_word(at(0)).await.expect_err("no good answer");
            assert!(matches!(error, FabricError::Protocol { .. }), "{bytes:?}: {error}");
            assert_eq!(op.read_word(at(0)).await, Err(error), "the connection stays closed");
        }
        let endpoint = connect_to(&faulty_node(good), ConnectOptions::default())
            .await
            .expect("a node");
        assert_eq!(
            OpContext::new(endpoint).read_word(at(0)).await,
            Ok(7),
            "the test can fail"
        );
    });
}

#[test]
fn what_is_in_flight_fails_when_the_node_stops() {
    let node = Node::start();
    block_on(async {
        let endpoint = node.connect().await;
        node.handle.pause();
        let failures = Rc::new(RefCell::new(Vec::new()));
        for _ in 0..10 {
            let (mut op, failures) = (OpContext::new(endpoint.clone()), failures.clone());
            endpoint.spawn(async move {
                let error = op.fetch_add(at(0), 1).await.expect_err("the node stops");
                assert!(!op.buffer().is_empty(), "the memory is back");
                failures.borrow_mut().push(error);
            });
        }
        endpoint.sleep(5_000_000).await;
        assert_eq!(failures.borrow().len(), 0, "they wait");
        node.handle.stop();
        while failures.borrow().len() < 10 {
            endpoint.sleep(1_000_000).await;
        }
        assert!(
            failures
                .borrow()
                .iter()
                .all(|&error| error == FabricError::NodeGone { node: NODE })
        );
        assert_eq!(
            endpoint.receive(Deadline::NEVER).await,
            Err(FabricError::NodeGone { node: NODE })
        );
    });
}

#[test]
fn late_answers_disturb_nothing() {
    let node = Node::start();
    block_on(async {
        let mut op = OpContext::new(node.connect().await);
        op.buffer_mut()[..4096].fill(0xaa);
        op.write(Slice::first(4096), at(0)).await.expect("the node answers");
        for _ in 0..20 {
            node.handle.pause();
            op.set_deadline(op.endpoint().deadline_in(1_000_000));
            let late = op.read(at(0), Slice::first(4096)).await.map(drop);
            assert_eq!(late, Err(FabricError::DeadlineExceeded { node: NODE }));
            op.set_deadline(Deadline::NEVER);
            op.buffer_mut()[..4096].fill(0x55);
            node.handle.resume();
            // Answered after the late READ, whose bytes must not have come in.
            op.fetch_add(at(8192), 1).await.expect("the node answers");
            assert!(op.buffer()[..4096].iter().all(|&byte| byte == 0x55));
        }
    });
}

#[test]
fn posts_wait_while_too_much_is_on_its_way() {
    const BYTES: u32 = 512 * 1024;
    let node = Node::start();
    block_on(async {
        let endpoint = node.connect().await;
        node.handle.pause();
        let done = Rc::new(RefCell::new(0));
        for _ in 0..100 {
            let (mut op, done) = (OpContext::new(endpoint.clone()), done.clone());
            op.reserve(BYTES as usize);
            endpoint.spawn(async move {
                op.write(Slice::first(BYTES), at(64)).await.expect("the node goes on");
                op.fetch_add(at(0), 1).await.expect("the node goes on");
                *done.borrow_mut() += 1;
            });
        }
        // Until nobody posts any more: the tasks are on this thread, so each sleep lets them run.
        let posted = || endpoint.counters().snapshot().verbs.total();
        let (mut seen, mut still) = (0, 0);
        while still < 10 {
            endpoint.sleep(1_000_000).await;
            still = if posted() == seen { still + 1 } else { 0 };
            seen = posted();
        }
        assert!((1..100).contains(&seen), "{seen} of 100 posted: there is a bound");
        let mut late = OpContext::new(endpoint.clone());
        late.set_deadline(endpoint.deadline_in(1_000_000));
        assert_eq!(
            late.fetch_add(at(0), 1).await,
            Err(FabricError::DeadlineExceeded { node: NODE })
        );
        assert!(!late.buffer().is_empty(), "the memory is back");
        node.handle.resume();
        while *done.borrow() < 100 {
            endpoint.sleep(1_000_000).await;
        }
        late.set_deadline(Deadline::NEVER);
        assert_eq!(late.read_word(at(0)).await, Ok(100), "the late one was never posted");
    });
}

/// Forwards one connection after the other to a node, and can cut the one that is there.
struct Wire {
    address: String,
    streams: std::sync::Arc<std::sync::Mutex<Vec<TcpStream>>>,
}

impl Wire {
    fn to(target: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let streams: std::sync::Arc<std::sync::Mutex<Vec<TcpStream>>> = Default::default();
        let cuttable = streams.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(node) = TcpStream::connect(&target) else {
                    continue;
                };
                let clone = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
                cuttable
                    .lock()
                    .expect("nobody panics")
                    .extend([clone(&client), clone(&node)]);
                for (mut from, mut to) in [(clone(&client), clone(&node)), (node, client)] {
                    std::thread::spawn(move || std::io::copy(&mut from, &mut to));
                }
            }
        });
        Self { address, streams }
    }

    fn cut(&self) {
        for stream in self.streams.lock().expect("nobody panics").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

#[test]
fn a_client_comes_back_under_its_identity() {
    let node = Node::start();
    let wire = Wire::to(node.address.clone());
    block_on(async {
        let endpoint = connect_to(&wire.address, ConnectOptions::default())
            .await
            .expect("the node is there");
        let friend = node.connect().await;
        let id = endpoint.id();
        let mut op = OpContext::new(endpoint.clone());
        for round in 1..5 {
            assert_eq!(op.fetch_add(at(0), 1).await, Ok(round - 1));
            wire.cut();
            assert_eq!(op.fetch_add(at(8), 1).await, Err(FabricError::NodeGone { node: NODE }));
            assert_eq!(op.fetch_add(at(8), 1).await, Err(FabricError::NodeGone { node: NODE }));
            endpoint
                .remote()
                .expect("it is connected")
                .reconnect(NODE)
                .await
                .expect("the node knows the client");
            assert_eq!(op.read_word(at(0)).await, Ok(round));
            let message = Message::try_from(&round.to_le_bytes()[..]).expect("short");
            friend.send(id, &message, Deadline::NEVER).await.expect("it is there");
            assert_eq!(
                endpoint.receive(Deadline::NEVER).await.expect("it was sent").message,
                message
            );
        }
        endpoint
            .remote()
            .expect("it is connected")
            .reconnect(NODE)
            .await
            .expect("nothing to do");
        wire.cut();
        assert_eq!(op.fetch_add(at(8), 1).await, Err(FabricError::NodeGone { node: NODE }));
        assert_eq!(friend.fence(id, Deadline::NEVER).await, Ok(Fence::CutOff));
        let refused = endpoint
            .remote()
            .expect("it is connected")
            .reconnect(NODE)
            .await
            .expect_err("it was cut off");
        assert!(matches!(refused, ConnectError::Fenced { .. }), "{refused}");
    });
}

#[test]
fn a_node_that_was_restarted_does_not_know_its_clients() {
    let mut node = Node::start();
    block_on(async {
        let endpoint = node.connect().await;
        let (segment, address) = (node.segment.clone(), node.address.clone());
        node.handle.stop();
        node.thread
            .take()
            .expect("running")
            .join()
            .expect("no panic")
            .expect("it could listen");
        let listener = TcpListener::bind(&address).expect("the port is free again");
        let _again = Node::serve(segment, listener, ServerOptions::default());
        let mut op = OpContext::new(endpoint.clone());
        assert_eq!(op.read_word(at(0)).await, Err(FabricError::NodeGone { node: NODE }));
        let refused = endpoint
            .remote()
            .expect("it is connected")
            .reconnect(NODE)
            .await
            .expect_err("the node has forgotten");
        assert!(matches!(refused, ConnectError::Restarted { .. }), "{refused}");
        connect_to(&address, ConnectOptions::default())
            .await
            .expect("a new client is welcome");
    });
}

#[test]
fn mapped_and_connected_clients_share_the_memory() {
    let node = Node::start();
    block_on(async {
        let local = Fabric::new(vec![node.segment.clone()])
            .endpoint()
            .expect("room in the table");
        let remote = node.connect().await;
        let mut ops = [OpContext::new(remote.clone()), OpContext::new(node.connect().await)];
        let mut local_op = OpContext::new(local.clone());
        for round in 0..100 {
            for (index, op) in ops.iter_mut().enumerate() {
                assert_eq!(op.fetch_add(at(0), 1).await, Ok(round * 3 + index as u64));
            }
            assert_eq!(local_op.fetch_add(at(0), 1).await, Ok(round * 3 + 2));
        }
        for round in 0..50_u8 {
            let message = Message::try_from(&[round][..]).expect("short");
            local
                .send(remote.id(), &message, Deadline::NEVER)
                .await
                .expect("it is there");
            let received = remote.receive(Deadline::NEVER).await.expect("it was sent");
            assert_eq!((received.from, &received.message), (local.id(), &message));
            remote
                .send(local.id(), &message, Deadline::NEVER)
                .await
                .expect("it is there");
            let received = local.receive(Deadline::NEVER).await.expect("it was sent");
            assert_eq!((received.from, &received.message), (remote.id(), &message));
        }
        assert_eq!(remote.fence(local.id(), Deadline::NEVER).await, Ok(Fence::StillRunning));
        assert_eq!(local.fence(remote.id(), Deadline::NEVER).await, Ok(Fence::CutOff));
        assert_eq!(
            ops[0].write_word(at(64), 1).await,
            Err(FabricError::Fenced { node: NODE })
        );
        assert_eq!(local_op.read_word(at(64)).await, Ok(0));
        let refused = remote
            .remote()
            .expect("it is connected")
            .reconnect(NODE)
            .await
            .expect_err("it was cut off");
        assert!(matches!(refused, ConnectError::Fenced { .. }), "{refused}");
        assert_eq!(
            ops[1].write_word(at(64), 2).await,
            Ok(()),
            "the other one was not meant"
        );
    });
}

#[test]
fn a_large_value_travels_in_pieces() {
    let segment = Segment::anonymous(64 << 20).expect("a little memory");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let node = Node::serve(segment, listener, ServerOptions::default());
    block_on(async {
        let endpoint = node.connect().await;
        let bytes = (16 << 20) + 5;
        let value = noise(endpoint.random(), bytes);
        let mut op = OpContext::new(endpoint);
        op.reserve(bytes + 3);
        op.buffer_mut()[3..bytes + 3].copy_from_slice(&value);
        op.write(Slice::new(3, bytes as u32), at(13)).await.expect("it fits");
        op.buffer_mut().fill(0);
        op.read(at(13), Slice::first(bytes as u32)).await.expect("it is there");
        assert!(op.buffer()[..bytes] == value[..]);
        assert_eq!(
            op.endpoint().counters().snapshot().verbs.total(),
            2,
            "a verb is one verb, however it travels"
        );
    });
}
