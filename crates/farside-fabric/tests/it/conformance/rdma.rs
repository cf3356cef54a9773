//! The suite over RDMA, with clients and nodes on the same device. `cargo xtask vm-tests` runs it where there is one.
//!
//! Each node is a process of its own, started from this binary; beside a node over TCP, a thread.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;

use farside_fabric::host::on_this_thread;
use farside_fabric::rdma::{Device, DeviceOptions, Export};
use farside_fabric::shm::Segment;
use farside_fabric::tcp::{ConnectOptions, NodeLocation, Server, ServerOptions, connect};
use farside_fabric::{Endpoint, LocalFuture, NodeId};

use super::fixture::{Body, Fixture, Nodes};
use super::tcp::{Reach, run};

/// All nodes are reached by RDMA.
pub(crate) struct Rdma;

/// Node 1 is, node 0 is not.
pub(crate) struct RdmaAndTcp;

/// Tells a child of this binary how much memory to serve.
const NODE_BYTES: &str = "FARSIDE_CONFORMANCE_NODE_BYTES";
/// What a child says before its address.
const LISTENING: &str = "listening at ";

fn device() -> Arc<Device> {
    Device::open(&DeviceOptions::default()).expect("an RDMA device")
}

/// A memory node that is another process.
struct Process {
    child: RefCell<Child>,
    address: String,
}

impl Process {
    fn start(node_bytes: u64) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("a test binary has a path"));
        command.args(["--exact", "conformance::rdma::node_process", "--nocapture"]);
        command.env(NODE_BYTES, node_bytes.to_string());
        // It ends when its input does, so also with this process.
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("this binary runs");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let address = loop {
            let line = lines.next().expect("it says where it listens").expect("text");
            // The harness has begun the line.
            if let Some((_, address)) = line.split_once(LISTENING) {
                break address.to_owned();
            }
        };
        Self {
            child: RefCell::new(child),
            address,
        }
    }

    fn kill(&self) {
        let mut child = self.child.borrow_mut();
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
    }
}

/// Not a test: a memory node, until its input ends.
#[test]
fn node_process() {
    let Ok(bytes) = std::env::var(NODE_BYTES) else { return };
    let segment = Segment::anonymous(bytes.parse().expect("the test wrote it")).expect("a little memory");
    let export = Export::new(&segment, &device()).expect("the memory can be locked");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    println!("{LISTENING}{}", listener.local_addr().expect("it is bound"));
    let server = Server::new(segment, ServerOptions::default()).with_rdma(export);
    let handle = server.handle();
    let thread = std::thread::spawn(move || server.run(listener));
    std::io::stdin().read_to_end(&mut Vec::new()).expect("a pipe");
    handle.stop();
    thread
        .join()
        .expect("the server does not panic")
        .expect("it could listen");
}

/// Nodes that are other processes.
struct Processes {
    nodes: Vec<Process>,
    device: Arc<Device>,
}

impl Nodes for Processes {
    fn endpoint(&self) -> LocalFuture<'_, Endpoint> {
        let locations = self.nodes.iter();
        let locations = locations.map(|node| NodeLocation::Rdma(node.address.clone(), self.device.clone()));
        let locations = locations.collect();
        Box::pin(async {
            let endpoint = connect(locations, ConnectOptions::default()).await;
            endpoint.expect("the nodes are there")
        })
    }

    fn stop_node(&self, node: NodeId) {
        self.nodes[node.index()].kill();
    }
}

impl Fixture for Rdma {
    fn run(nodes: u16, node_bytes: u64, body: Body) {
        let nodes: Vec<_> = (0..nodes).map(|_| Process::start(node_bytes)).collect();
        let device = device();
        let cluster = Rc::new(Processes { nodes, device });
        on_this_thread(body(cluster.clone())).expect("an event loop");
        cluster.nodes.iter().for_each(Process::kill);
    }
}

impl Fixture for RdmaAndTcp {
    fn run(nodes: u16, node_bytes: u64, body: Body) {
        let device = device();
        let reach = |index| match index {
            1 => Reach::Rdma(device.clone()),
            _ => Reach::Connection,
        };
        run(nodes, node_bytes, reach, body);
    }
}
