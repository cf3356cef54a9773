//! A program on threads of this machine: each thread is a compute node, over mapped memory or over
//! loopback to a memory node in a thread of its own.
//!
//! Several clients of a thread are interleaved, so that one works while another waits for memory or
//! for the network.

use core::cell::RefCell;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::net::TcpListener;
use std::sync::Barrier;

use farside_fabric::host::{self, HostClock};
use farside_fabric::mirror::{Contents, RoleName, Settings};
use farside_fabric::rdma::{Device, DeviceOptions, Export};
use farside_fabric::shm::{self, Segment};
use farside_fabric::tcp::{
    self, Command, ConnectOptions, MirrorOptions, NodeLocation, Server, ServerHandle, ServerOptions,
};
use farside_fabric::{Endpoint, OpContext, Pipeline, interleave};

use tokio::sync::oneshot;

use super::{FabricKind, NodeLoad, Outcome, Setting};
use crate::driver::{Effort, Meter, drive};
use crate::error::BenchError;
use crate::program::Program;
use crate::progress::Progress;
use crate::recorder::{Recorder, Window};

/// See [`super::run`].
///
/// # Errors
/// Likewise.
pub(super) fn run<P: Program>(program: &P, setting: &Setting, progress: &Progress) -> Result<Outcome, BenchError> {
    let segment = Segment::anonymous(program.memory_bytes())?;
    let laid = on_this_thread(async {
        let endpoint = shm::Fabric::new(vec![segment.clone()]).endpoint()?;
        program.prepare(endpoint, segment.region()).await
    })??;
    let place = match setting.fabric {
        FabricKind::Tcp => Place::Served(Service::start(&segment)?),
        FabricKind::Mirrored => Place::Served(Service::start_mirrored(&segment)?),
        FabricKind::Rdma => Place::Served(Service::start_rdma(&segment, &setting.device)?),
        FabricKind::Shm | FabricKind::Sim => Place::Mapped(segment.clone()),
    };
    let agent = program.has_agent().then(|| {
        let location = match &place {
            // Beside the node, whose processor works on the memory too.
            Place::Served(service) if setting.fabric == FabricKind::Rdma => service.location.clone(),
            _ => NodeLocation::Mapped(segment.clone()),
        };
        AgentThread::start(program.clone(), location)
    });
    let start = Start {
        everybody: Barrier::new(setting.compute_nodes as usize + 1),
        start_ns: AtomicU64::new(0),
        has_failed: AtomicBool::new(false),
    };
    let warm_up_ns = setting.before_ns(program.is_finite());
    let results = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..setting.compute_nodes)
            .map(|index| {
                let (place, start) = (&place, &start);
                scope.spawn(move || on_this_thread(compute_node(program, setting, index, place, start))?)
            })
            .collect();
        // Everybody has joined; then everybody knows the time.
        start.everybody.wait();
        let start_ns = HostClock.now_ns() + warm_up_ns;
        start.start_ns.store(start_ns, Ordering::SeqCst);
        start.everybody.wait();
        if !program.is_finite() {
            show_time(progress, start_ns, setting.duration_ns, &start.has_failed);
        }
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| thread.join().expect("a client thread panicked");
        threads
            .into_iter()
            .map(join)
            .collect::<Vec<Result<(Recorder, Effort), BenchError>>>()
    });
    let agent_ended = agent.map_or(Ok(()), AgentThread::finish);
    if let Place::Served(service) = place {
        service.stop();
    }
    let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    agent_ended?;
    let (mut recorder, mut effort) = results[0].clone();
    for (other, other_effort) in &results[1..] {
        recorder.absorb(other);
        effort = effort.plus(other_effort);
    }
    Ok(Outcome {
        recorder,
        effort,
        nodes: vec![NodeLoad {
            verbs: effort.posted.verbs.total(),
            atomics: effort.posted.verbs.atomics(),
        }],
        laid,
        memory_bytes: program.memory_used(segment.region()),
        simulation: None,
    })
}

/// How the threads begin at the same time.
struct Start {
    everybody: Barrier,
    start_ns: AtomicU64,
    has_failed: AtomicBool,
}

/// Where the memory is.
enum Place {
    Mapped(Segment),
    Served(Service),
}

/// Somebody beside the memory node, in a thread.
struct AgentThread {
    stop: oneshot::Sender<()>,
    thread: std::thread::JoinHandle<Result<(), BenchError>>,
}

impl AgentThread {
    fn start<P: Program>(program: P, location: NodeLocation) -> Self {
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            on_this_thread(async move {
                let served = async {
                    match location {
                        NodeLocation::Mapped(segment) => {
                            program.serve(shm::Fabric::new(vec![segment]).endpoint()?).await
                        }
                        other => {
                            let endpoint = tcp::connect(vec![other], ConnectOptions::default()).await?;
                            program.serve(endpoint).await
                        }
                    }
                };
                tokio::select! {
                    ended = served => ended,
                    _ = stopped => Ok(()),
                }
            })?
        });
        Self { stop, thread }
    }

    /// Ends it; says why it has ended before, if it has.
    fn finish(self) -> Result<(), BenchError> {
        drop(self.stop);
        self.thread.join().expect("the agent's thread panicked")
    }
}

/// A memory node in a thread of its own, and perhaps its backup in another one.
pub(crate) struct Service {
    location: NodeLocation,
    members: Vec<(ServerHandle, std::thread::JoinHandle<std::io::Result<()>>)>,
}

/// A lease of mirrored nodes: so long that nobody takes over because the machine is busy.
const LEASE_NS: u64 = 10_000_000_000;

impl Service {
    /// Serves a segment on a free port of the loopback.
    ///
    /// # Errors
    /// If there is no port.
    pub(crate) fn start(segment: &Segment) -> Result<Self, BenchError> {
        let server = Server::new(segment.clone(), ServerOptions::default());
        Self::listen(server, NodeLocation::Remote)
    }

    /// The same, with the memory left to an RDMA device of this machine.
    ///
    /// # Errors
    /// If there is no port or no device.
    pub(crate) fn start_rdma(segment: &Segment, device: &DeviceOptions) -> Result<Self, BenchError> {
        let device = Device::open(device)?;
        let export = Export::new(segment, &device)?;
        let server = Server::new(segment.clone(), ServerOptions::default()).with_rdma(export);
        Self::listen(server, |address| NodeLocation::Rdma(address, device))
    }

    /// The same as [`Self::start`], with a backup, which has everything when this returns.
    ///
    /// # Errors
    /// If there is no port, or no memory for the backup.
    pub(crate) fn start_mirrored(segment: &Segment) -> Result<Self, BenchError> {
        let copy = Segment::anonymous(segment.region().bytes())?;
        let (listener, address) = free_port()?;
        let mut service = Self::listen_at(
            listener,
            mirrored(segment, &address, None, Contents::Inherited),
            NodeLocation::Remote(address.clone()),
        );
        let (listener, backup) = free_port()?;
        let server = mirrored(&copy, &backup, Some(address), Contents::Blank);
        let location = NodeLocation::Remote(backup.clone());
        service
            .members
            .extend(Self::listen_at(listener, server, location).members);
        on_this_thread(async {
            loop {
                let standing = tcp::command(&backup, None, &Command::Status).await?;
                if standing.role == RoleName::Backup {
                    return Ok(service);
                }
                HostClock.sleep(1_000_000).await;
            }
        })?
    }

    fn listen(server: Server, location: impl FnOnce(String) -> NodeLocation) -> Result<Self, BenchError> {
        let (listener, address) = free_port()?;
        Ok(Self::listen_at(listener, server, location(address)))
    }

    fn listen_at(listener: TcpListener, server: Server, location: NodeLocation) -> Self {
        let handle = server.handle();
        let thread = std::thread::spawn(move || server.run(listener));
        Self {
            location,
            members: vec![(handle, thread)],
        }
    }

    /// Where it listens, HOST:PORT.
    ///
    /// # Panics
    /// If its memory is left to an RDMA device.
    pub(crate) fn address(&self) -> &str {
        match &self.location {
            NodeLocation::Remote(address) => address,
            _ => panic!("clients come by RDMA"),
        }
    }

    /// A client of it.
    ///
    /// # Errors
    /// If it does not let one in.
    pub(crate) async fn connect(&self) -> Result<Endpoint, BenchError> {
        Ok(tcp::connect(vec![self.location.clone()], ConnectOptions::default()).await?)
    }

    /// Ends it.
    pub(crate) fn stop(self) {
        for (handle, thread) in self.members {
            handle.stop();
            // Whatever it has to say comes too late to matter.
            drop(thread.join());
        }
    }
}

fn free_port() -> Result<(TcpListener, String), BenchError> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(BenchError::system("listen on the loopback"))?;
    let address = listener
        .local_addr()
        .map_err(BenchError::system("listen on the loopback"))?;
    Ok((listener, address.to_string()))
}

/// A member of a group without anybody who would decide on it: nobody takes over.
fn mirrored(segment: &Segment, address: &str, backup_of: Option<String>, contents: Contents) -> Server {
    Server::new(segment.clone(), ServerOptions::default()).with_mirror(MirrorOptions {
        settings: Settings::by_hand(LEASE_NS),
        address: address.to_owned(),
        backup_of,
        is_standby: false,
        contents,
        membership: None,
        record: None,
    })
}

/// Memory of this machine, which clients map or reach over TCP.
pub(crate) struct Memory {
    segment: Segment,
    /// None if clients map it.
    service: Option<Service>,
}

impl Memory {
    /// Serves a segment if clients come over TCP; otherwise they map it.
    ///
    /// # Errors
    /// If there is no port.
    pub(crate) fn open(fabric: FabricKind, segment: Segment) -> Result<Self, BenchError> {
        let service = match fabric {
            FabricKind::Tcp => Some(Service::start(&segment)?),
            _ => None,
        };
        Ok(Self { segment, service })
    }

    /// A client of it, as clients come.
    ///
    /// # Errors
    /// If it does not let one in.
    pub(crate) async fn connect(&self) -> Result<Endpoint, BenchError> {
        match &self.service {
            Some(service) => service.connect().await,
            None => self.map(),
        }
    }

    /// A client that maps it.
    ///
    /// # Errors
    /// Likewise.
    pub(crate) fn map(&self) -> Result<Endpoint, BenchError> {
        mapped(&self.segment)
    }

    /// Ends its node, if it has one.
    pub(crate) fn stop(self) {
        if let Some(service) = self.service {
            service.stop();
        }
    }
}

/// A client that maps a segment.
///
/// # Errors
/// If it has too many.
pub(crate) fn mapped(segment: &Segment) -> Result<Endpoint, BenchError> {
    Ok(shm::Fabric::new(vec![segment.clone()]).endpoint()?)
}

/// Runs a body with tasks and timers on this thread.
///
/// # Errors
/// If the system gives no event loop.
pub(crate) fn on_this_thread<T>(body: impl Future<Output = T>) -> Result<T, BenchError> {
    host::on_this_thread(body).map_err(BenchError::system("get an event loop"))
}

async fn compute_node<P: Program>(
    program: &P,
    setting: &Setting,
    index: u64,
    place: &Place,
    start: &Start,
) -> Result<(Recorder, Effort), BenchError> {
    match place {
        Place::Mapped(segment) => {
            let endpoint = shm::Fabric::new(vec![segment.clone()])
                .endpoint()
                .map_err(BenchError::from);
            clients_of(program, setting, index, endpoint, start).await
        }
        Place::Served(service) => clients_of(program, setting, index, service.connect().await, start).await,
    }
}

/// Joins, waits for the start, and runs the clients of compute node `index`.
async fn clients_of<P: Program>(
    program: &P,
    setting: &Setting,
    index: u64,
    endpoint: Result<Endpoint, BenchError>,
    start: &Start,
) -> Result<(Recorder, Effort), BenchError> {
    let joined = match endpoint {
        Ok(endpoint) => program.join(endpoint.clone(), None).await.map(|node| (endpoint, node)),
        Err(error) => Err(error),
    };
    if joined.is_err() {
        start.has_failed.store(true, Ordering::SeqCst);
    }
    // Blocks this thread; nothing else has begun on it but the pool's housekeeping, which can wait.
    start.everybody.wait();
    start.everybody.wait();
    let (endpoint, node) = joined?;
    let start_ns = start.start_ns.load(Ordering::SeqCst);
    run_clients(program, setting, index, endpoint, node, start_ns).await
}

/// Runs the clients of compute node `index`, which has joined. From `start_ns` on what they do counts.
///
/// # Errors
/// The first of a client, or of leaving.
pub(crate) async fn run_clients<P: Program>(
    program: &P,
    setting: &Setting,
    index: u64,
    endpoint: Endpoint,
    node: P::Node,
    start_ns: u64,
) -> Result<(Recorder, Effort), BenchError> {
    let end_ns = if program.is_finite() {
        u64::MAX
    } else {
        start_ns + setting.duration_ns
    };
    let window = Window { start_ns, end_ns };
    let recorder = RefCell::new(Recorder::new(window));
    let meter = Meter::new(endpoint.clone(), window);
    let failure = RefCell::new(None);
    let pipeline = Pipeline::default();
    let numbers: Vec<u64> = (0..setting.clients)
        .filter(|&client| setting.compute_node_of(client) == index)
        .collect();
    let is_alone = numbers.len() == 1;
    let clients = numbers.into_iter().map(|number| {
        let mut client = program.client(&node, &endpoint, number);
        let mut cx = if is_alone {
            OpContext::new(endpoint.clone())
        } else {
            OpContext::pipelined(endpoint.clone(), pipeline.clone())
        };
        let (recorder, meter, failure) = (&recorder, &meter, &failure);
        async move {
            if let Err(error) = drive(&mut client, &mut cx, 0, recorder, meter).await {
                failure.borrow_mut().get_or_insert(error);
            }
        }
    });
    interleave(&pipeline, clients.collect()).await;
    let effort = meter.within_window();
    if let Some(error) = failure.take() {
        return Err(error);
    }
    program.note(&node);
    program.leave(node).await?;
    Ok((recorder.into_inner(), effort))
}

/// Moves the bar while the threads work.
fn show_time(progress: &Progress, start_ns: u64, duration_ns: u64, has_failed: &AtomicBool) {
    loop {
        let now_ns = HostClock.now_ns();
        let passed_ns = now_ns.saturating_sub(start_ns);
        if passed_ns >= duration_ns || has_failed.load(Ordering::SeqCst) {
            return;
        }
        progress.set(passed_ns * 100 / duration_ns);
        let left = core::time::Duration::from_nanos((start_ns + duration_ns - now_ns).min(50_000_000));
        #[expect(clippy::disallowed_methods, reason = "the threads that are measured run elsewhere")]
        std::thread::sleep(left);
    }
}
