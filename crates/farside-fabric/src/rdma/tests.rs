//! What happens when something breaks, on a real device: `cargo xtask vm-tests` runs these where there is one.

use std::net::TcpListener;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;

use super::{Device, DeviceOptions, Export};
use crate::shm::{Fabric, Segment, SegmentError};
use crate::tcp::{ConnectError, ConnectOptions, NodeLocation, Server, ServerHandle, ServerOptions, connect};
use crate::{Batch, Deadline, Endpoint, FabricError, NodeId, OpContext, RemoteAddr, Slice};

mod messages;

const HERE: NodeId = NodeId::new(0);
const BYTES: u64 = 1 << 20;

fn at(offset: u64) -> RemoteAddr {
    RemoteAddr::new(HERE, offset)
}

/// A node in a thread, whose memory the device serves.
struct Node {
    segment: Segment,
    device: Arc<Device>,
    address: String,
    handle: ServerHandle,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

impl Node {
    fn start() -> Self {
        let device = Device::open(&DeviceOptions::default()).expect("an RDMA device");
        let segment = Segment::anonymous(BYTES).expect("a little memory");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let export = Export::new(&segment, &device).expect("the memory can be locked");
        let server = Server::new(segment.clone(), ServerOptions::default()).with_rdma(export);
        Self {
            segment,
            device,
            address,
            handle: server.handle(),
            thread: Some(std::thread::spawn(move || server.run(listener))),
        }
    }

    async fn client(&self) -> Endpoint {
        let location = NodeLocation::Rdma(self.address.clone(), self.device.clone());
        let connected = connect(vec![location], ConnectOptions::default()).await;
        connected.expect("the node is there")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.handle.stop();
        let ended = self.thread.take().map(JoinHandle::join);
        let is_well = matches!(ended, Some(Ok(Ok(()))));
        assert!(is_well || std::thread::panicking(), "the server could listen");
    }
}

fn on_this_thread<T>(body: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    tokio::task::LocalSet::new().block_on(&runtime.expect("a runtime"), body)
}

/// What only a client with connections can do.
fn remote(endpoint: &Endpoint) -> &crate::tcp::Endpoint {
    endpoint.remote().expect("it is connected")
}

fn soon(endpoint: &Endpoint) -> Deadline {
    endpoint.deadline_in(20_000_000_000)
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm-tests"]
fn rdma_access_with_a_wrong_key_is_refused_and_a_new_connection_works() {
    let node = Node::start();
    on_this_thread(async {
        let mut other = OpContext::new(node.client().await);
        let endpoint = node.client().await;
        let mut op = OpContext::new(endpoint.clone());
        op.write_word(at(64), 7).await.expect("the node is there");
        remote(&endpoint).nic(HERE).spoil_key();
        // One that would wait for ever if nobody noticed.
        let refused = op.read_word(at(64)).await.expect_err("the key is wrong");
        assert!(matches!(refused, FabricError::Protocol { node: HERE, .. }), "{refused}");
        assert_eq!(
            op.read_word(at(64)).await,
            Err(refused),
            "until the client connects anew"
        );
        assert_eq!(other.fetch_add(at(64), 1).await, Ok(7), "others notice nothing");
        remote(&endpoint).reconnect(HERE).await.expect("the node lets it in");
        assert_eq!(op.read_word(at(64)).await, Ok(8));
        assert_eq!(op.read(at(64), Slice::first(8)).await, Ok(&8_u64.to_le_bytes()[..]));
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm-tests"]
fn rdma_operations_of_a_broken_link_all_fail_and_keep_their_buffers() {
    let node = Node::start();
    on_this_thread(async {
        let endpoint = node.client().await;
        let mut buffer = endpoint.buffer(4096);
        buffer.fill(3);
        remote(&endpoint).nic(HERE).spoil_key();
        let mut batch = Batch::new();
        for index in 0..8 {
            batch.write(Slice::new(index * 512, 512), at(u64::from(index) * 512));
            batch.fetch_add(at(8192), 1);
        }
        let mut second = endpoint.buffer(64);
        let verb = crate::Verb::FetchAdd {
            target: at(8192),
            add: 1,
        };
        let (first, second) = tokio::join!(
            endpoint.post(&mut batch, &mut buffer, Deadline::NEVER),
            endpoint.execute(verb, &mut second, Deadline::NEVER),
        );
        assert!(first.is_err() && second.is_err(), "{first:?} {second:?}");
        assert_eq!(
            (buffer.len(), buffer[4095]),
            (4096, 3),
            "the memory is the caller's again"
        );
        remote(&endpoint).reconnect(HERE).await.expect("the node lets it in");
        let mut op = OpContext::new(endpoint);
        assert_eq!(op.read_word(at(8192)).await, Ok(0), "nothing had an effect");
    });
}

/// The device's link is down, until this is dropped.
struct LinkDown;

impl LinkDown {
    fn new() -> Self {
        Self::set("down");
        Self
    }

    fn set(state: &str) {
        let done = Command::new("ip").args(["link", "set", "rx0", state]).status();
        assert!(done.expect("ip is there").success());
    }
}

impl Drop for LinkDown {
    fn drop(&mut self) {
        Self::set("up");
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm-tests"]
fn rdma_operations_that_are_given_up_disturb_nobody() {
    let node = Node::start();
    on_this_thread(async {
        let endpoint = node.client().await;
        let mut op = OpContext::new(endpoint.clone());
        op.write(Slice::first(4096), at(0)).await.expect("the node is there");
        for round in 0..200_u64 {
            let bytes = round.to_le_bytes();
            op.buffer_mut()[4096..4104].copy_from_slice(&bytes);
            op.set_deadline(Deadline(0));
            let given_up = op.read(at(0), Slice::first(4096)).await.map(drop);
            let late = FabricError::DeadlineExceeded { node: HERE };
            assert!(given_up.is_ok() || given_up == Err(late), "{given_up:?}");
            assert_eq!(op.buffer()[4096..4104], bytes, "the caller keeps what it had");
            // Where the card may still be writing to, nobody works any more.
            op.set_deadline(soon(&endpoint));
            op.buffer_mut()[..8].copy_from_slice(&bytes);
            op.write(Slice::first(8), at(8192)).await.expect("the node is there");
            assert_eq!(op.buffer()[..8], bytes);
            assert_eq!(op.read_word(at(8192)).await, Ok(round));
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm-tests"]
fn rdma_verbs_over_a_link_that_is_down_end_at_their_deadline() {
    let node = Node::start();
    on_this_thread(async {
        let endpoint = node.client().await;
        let mut op = OpContext::new(endpoint.clone());
        op.write_word(at(64), 7).await.expect("the link is there");
        let down = LinkDown::new();
        let deadline = endpoint.deadline_in(100_000_000);
        op.set_deadline(deadline);
        op.buffer_mut()[..8].copy_from_slice(b"contents");
        let late = op.read_word(at(64)).await.expect_err("no packet goes through");
        let is_named = matches!(
            late,
            FabricError::DeadlineExceeded { node: HERE } | FabricError::NodeGone { node: HERE }
        );
        assert!(is_named, "{late}");
        assert_eq!(op.buffer()[..8], *b"contents", "the caller has its bytes");
        // Without a deadline the node is given up.
        op.set_deadline(Deadline::NEVER);
        assert_eq!(
            op.write(Slice::first(100), at(64)).await,
            Err(FabricError::NodeGone { node: HERE })
        );
        drop(down);
        let give_up = soon(&endpoint);
        // The address comes back a little later than the link.
        while let Err(error) = remote(&endpoint).reconnect(HERE).await {
            assert!(endpoint.now_ns() < give_up.0, "{error}");
            endpoint.sleep(50_000_000).await;
        }
        op.set_deadline(soon(&endpoint));
        op.fetch_add(at(128), 1).await.expect("the link is back");
        let after = op.read_word(at(64)).await.expect("the link is back");
        let written = u64::from_le_bytes(*b"contents");
        assert!(after == 7 || after == written, "{after:#x}");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm-tests"]
fn rdma_memory_is_reached_in_no_other_way() {
    let node = Node::start();
    let fabric = Fabric::new(vec![node.segment.clone()]);
    let refused = fabric.endpoint().expect_err("the device works on it");
    assert!(matches!(refused, SegmentError::UsedByNic { .. }), "{refused}");
    let error = Export::new(&node.segment, &node.device).expect_err("once at a time");
    assert!(error.to_string().contains("RDMA"), "{error}");
    on_this_thread(async {
        let remote = vec![NodeLocation::Remote(node.address.clone())];
        let refused = connect(remote, ConnectOptions::default())
            .await
            .expect_err("not by TCP");
        assert!(matches!(refused, ConnectError::RdmaOnly { .. }), "{refused}");
        let mapped = vec![NodeLocation::Mapped(node.segment.clone())];
        let refused = connect(mapped, ConnectOptions::default())
            .await
            .expect_err("not mapped");
        assert!(
            matches!(refused, ConnectError::Segment(SegmentError::UsedByNic { .. })),
            "{refused}"
        );
        OpContext::new(node.client().await)
            .write_word(at(0), 5)
            .await
            .expect("by RDMA");
    });
    let (segment, device) = (node.segment.clone(), node.device.clone());
    drop(node);
    let fabric = Fabric::new(vec![segment]);
    on_this_thread(async {
        let mut op = OpContext::new(fabric.endpoint().expect("the device has let go"));
        assert_eq!(op.read_word(at(0)).await, Ok(5));
    });
    assert_eq!(
        Arc::strong_count(&device),
        1,
        "nothing is left of what was made of the device"
    );
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm-tests"]
fn rdma_posts_beyond_the_queue_wait_for_room() {
    let node = Node::start();
    on_this_thread(async {
        let endpoint = node.client().await;
        let sum = Rc::new(core::cell::Cell::new(0));
        let tasks: Vec<_> = (0..64_u64)
            .map(|number| {
                let (mut op, sum) = (OpContext::new(endpoint.clone()), sum.clone());
                #[expect(clippy::disallowed_methods, reason = "a test on a real device waits for its tasks")]
                tokio::task::spawn_local(async move {
                    let mut batch = Batch::new();
                    for _ in 0..31 {
                        batch.fetch_add(at(0), 1);
                    }
                    batch.write_word(at(8 + number * 8), number);
                    op.post(&mut batch).await.expect("good addresses");
                    sum.set(sum.get() + 1);
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no task panics");
        }
        let mut op = OpContext::new(endpoint);
        assert_eq!((op.read_word(at(0)).await, sum.get()), (Ok(64 * 31), 64));
        for number in 0..64 {
            assert_eq!(op.read_word(at(8 + number * 8)).await, Ok(number));
        }
    });
}
