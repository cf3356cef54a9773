//! Real fabrics for the suite: memory that is mapped, or served by a node, and clients on threads of this
//! machine. An agent of the lock service is there in both.

use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use farside_fabric::rdma::{Device, DeviceOptions, Export};
use farside_fabric::shm::{self, Segment};
use farside_fabric::tcp::{self, ConnectOptions, NodeLocation, Server, ServerHandle, ServerOptions};
use farside_fabric::{Endpoint, RemoteAddr};
use farside_lock::LockKind;

use super::service::AgentThread;

const BYTES: u64 = 1 << 20;

/// Memory on this machine, and a way to it.
pub(crate) trait Place: Sync {
    /// Whether a client can be cut off that still runs.
    const CUTS_OFF: bool;

    /// Longer than a living client of this suite is kept from running.
    const LEASE_NS: u64 = 250_000_000;

    /// Whether there are the atomics that a lock needs.
    fn has_atomics_for(_: LockKind) -> bool {
        true
    }

    /// Blank memory.
    fn start() -> Self;

    /// A new client, on a thread with tasks.
    async fn endpoint(&self) -> Endpoint;

    /// The memory itself.
    fn segment(&self) -> &Segment;

    /// A word of the memory, now.
    fn word(&self, at: RemoteAddr) -> u64 {
        self.segment().region().word(at.offset()).load(Ordering::SeqCst)
    }
}

/// Clients map the memory.
pub(crate) struct Mapped {
    segment: Segment,
    _agent: AgentThread,
}

impl Place for Mapped {
    const CUTS_OFF: bool = false;

    fn start() -> Self {
        let segment = Segment::anonymous(BYTES).expect("memory");
        let mapped = segment.clone();
        let agent = AgentThread::start(async move || shm::Fabric::new(vec![mapped]).endpoint().expect("an endpoint"));
        Self { segment, _agent: agent }
    }

    async fn endpoint(&self) -> Endpoint {
        let fabric = shm::Fabric::new(vec![self.segment.clone()]);
        fabric.endpoint().expect("an endpoint")
    }

    fn segment(&self) -> &Segment {
        &self.segment
    }
}

/// Clients talk to a node, beside which the agent is.
pub(crate) struct Served {
    mapped: Mapped,
    address: String,
    handle: ServerHandle,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

impl Place for Served {
    const CUTS_OFF: bool = true;

    fn start() -> Self {
        let mapped = Mapped::start();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let server = Server::new(mapped.segment.clone(), ServerOptions::default());
        Self {
            mapped,
            address,
            handle: server.handle(),
            thread: Some(std::thread::spawn(move || server.run(listener))),
        }
    }

    async fn endpoint(&self) -> Endpoint {
        connect(NodeLocation::Remote(self.address.clone())).await
    }

    fn segment(&self) -> &Segment {
        &self.mapped.segment
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.handle.stop();
        let ended = self.thread.take().map(JoinHandle::join);
        let is_well = matches!(ended, Some(Ok(Ok(()))));
        assert!(is_well || std::thread::panicking(), "the server could listen");
    }
}

/// Clients reach the memory by RDMA, and so does the agent.
pub(crate) struct Reached {
    segment: Segment,
    location: NodeLocation,
    handle: ServerHandle,
    thread: Option<JoinHandle<std::io::Result<()>>>,
    agent: Option<AgentThread>,
}

impl Place for Reached {
    const CUTS_OFF: bool = true;

    // Each queue pair takes an emulated machine up to a fifth of a second, in which its client answers nobody.
    const LEASE_NS: u64 = 2_000_000_000;

    fn has_atomics_for(kind: LockKind) -> bool {
        !matches!(
            kind,
            LockKind::ShiftLock | LockKind::ShiftLockMutex | LockKind::ShiftLockPolling
        )
    }

    fn start() -> Self {
        let segment = Segment::anonymous(BYTES).expect("memory");
        let device = Device::open(&DeviceOptions::default()).expect("an RDMA device");
        let export = Export::new(&segment, &device).expect("the memory can be locked");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let server = Server::new(segment.clone(), ServerOptions::default()).with_rdma(export);
        let handle = server.handle();
        let thread = std::thread::spawn(move || server.run(listener));
        let location = NodeLocation::Rdma(address, device);
        let of_agent = location.clone();
        Self {
            segment,
            location,
            handle,
            thread: Some(thread),
            agent: Some(AgentThread::start(async move || connect(of_agent).await)),
        }
    }

    async fn endpoint(&self) -> Endpoint {
        connect(self.location.clone()).await
    }

    fn segment(&self) -> &Segment {
        &self.segment
    }
}

async fn connect(location: NodeLocation) -> Endpoint {
    let connected = tcp::connect(vec![location], ConnectOptions::default()).await;
    connected.expect("the node is there")
}

impl Drop for Reached {
    fn drop(&mut self) {
        drop(self.agent.take());
        self.handle.stop();
        let ended = self.thread.take().map(JoinHandle::join);
        let is_well = matches!(ended, Some(Ok(Ok(()))));
        assert!(is_well || std::thread::panicking(), "the server could listen");
    }
}
