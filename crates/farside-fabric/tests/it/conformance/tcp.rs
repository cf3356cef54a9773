//! The suite over TCP: each node is a server on a thread of its own.

use std::cell::RefCell;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;

use farside_fabric::host::on_this_thread;
use farside_fabric::rdma::{Device, Export};
use farside_fabric::shm::Segment;
use farside_fabric::tcp::{ConnectOptions, NodeLocation, Server, ServerHandle, ServerOptions, connect};
use farside_fabric::{Endpoint, LocalFuture, NodeId};

use super::fixture::{Body, Fixture, Nodes};

/// How clients reach a node.
#[derive(Clone)]
pub(crate) enum Reach {
    Connection,
    Mapping,
    Rdma(Arc<Device>),
}

/// All nodes are remote.
pub(crate) struct Tcp;

/// Node 1 is mapped by the clients, beside the server that serves it.
pub(crate) struct TcpAndMapped;

struct TcpCluster {
    nodes: Vec<Node>,
}

struct Node {
    location: NodeLocation,
    segment: Segment,
    handle: ServerHandle,
    thread: RefCell<Option<JoinHandle<std::io::Result<()>>>>,
}

impl Node {
    fn start(node_bytes: u64, reach: Reach) -> Self {
        let segment = Segment::anonymous(node_bytes).expect("a little memory");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let mut server = Server::new(segment.clone(), ServerOptions::default());
        if let Reach::Rdma(device) = &reach {
            let export = Export::new(&segment, device);
            server = server.with_rdma(export.expect("the memory can be locked"));
        }
        Self {
            location: match reach {
                Reach::Connection => NodeLocation::Remote(address),
                Reach::Mapping => NodeLocation::Mapped(segment.clone()),
                Reach::Rdma(device) => NodeLocation::Rdma(address, device),
            },
            segment,
            handle: server.handle(),
            thread: RefCell::new(Some(std::thread::spawn(move || server.run(listener)))),
        }
    }

    fn stop(&self) {
        self.handle.stop();
        self.segment.close();
        if let Some(thread) = self.thread.borrow_mut().take() {
            thread
                .join()
                .expect("the server does not panic")
                .expect("it could listen");
        }
    }
}

pub(crate) fn run(nodes: u16, node_bytes: u64, reach: impl Fn(u16) -> Reach, body: Body) {
    let nodes: Vec<_> = (0..nodes).map(|index| Node::start(node_bytes, reach(index))).collect();
    let cluster = Rc::new(TcpCluster { nodes });
    on_this_thread(body(cluster.clone())).expect("an event loop");
    cluster.nodes.iter().for_each(Node::stop);
}

impl Fixture for Tcp {
    fn run(nodes: u16, node_bytes: u64, body: Body) {
        run(nodes, node_bytes, |_| Reach::Connection, body);
    }
}

impl Fixture for TcpAndMapped {
    fn run(nodes: u16, node_bytes: u64, body: Body) {
        let reach = |index| [Reach::Connection, Reach::Mapping][usize::from(index == 1)].clone();
        run(nodes, node_bytes, reach, body);
    }
}

impl Nodes for TcpCluster {
    fn endpoint(&self) -> LocalFuture<'_, Endpoint> {
        let locations = self.nodes.iter().map(|node| node.location.clone()).collect();
        Box::pin(async {
            let endpoint = connect(locations, ConnectOptions::default()).await;
            endpoint.expect("the nodes are there")
        })
    }

    fn stop_node(&self, node: NodeId) {
        self.nodes[node.index()].stop();
    }

    fn can_stall(&self) -> bool {
        // A mapped node is this process, and a network card is no process: both answer as long as they are there.
        self.nodes
            .iter()
            .all(|node| matches!(node.location, NodeLocation::Remote(_)))
    }

    fn stall_node(&self, node: NodeId) {
        self.nodes[node.index()].handle.pause();
    }

    fn resume_node(&self, node: NodeId) {
        self.nodes[node.index()].handle.resume();
    }
}
