//! The endpoint: what a client holds, whatever moves the bytes.
//!
//! On the path: the lowest call of every operation. Locks, pools and indexes are written against this one
//! type and compiled once. This is the only file that asks which backend it is: mapped memory is
//! looked at first and in line, since its verbs complete at once; the others are called out of line.
//! What every backend promises stands at [`backend`](crate::backend).

use core::fmt;
use core::future::Future;
#[cfg(loom)]
use std::rc::Rc;

use crate::addr::{NodeId, RemoteAddr};
use crate::backend::{Backend, Fence};
use crate::batch::Batch;
use crate::buffer::Buffer;
use crate::capabilities::Capabilities;
use crate::clock::Deadline;
use crate::counters::Counters;
use crate::error::FabricError;
use crate::grace::Holder;
use crate::message::{EndpointId, Message, Received};
use crate::posted::{Posted, Soon};
use crate::seat::Seat;
use crate::shm;
#[cfg(feature = "sim")]
use crate::sim;
use crate::spawn::Task;
#[cfg(not(loom))]
use crate::tcp;
use crate::verb::Verb;
use crate::view::{Lines, View};

/// A client of a fabric: everything that the layers above need of it. Clones are the same client; it
/// leaves the fabric with the last of them.
///
/// Not `Send`: one thread, as many clients as there are threads.
#[derive(Clone)]
pub struct Endpoint {
    way: Way,
    /// Who runs its tasks, if that is not the event loop of its thread.
    seat: Option<Seat>,
}

/// How the memory is reached.
#[derive(Clone)]
enum Way {
    /// It is mapped: shared memory, CXL.
    Mapped(shm::Endpoint),
    /// At the end of connections or queue pairs: TCP, RDMA.
    #[cfg(not(loom))]
    Remote(tcp::Endpoint),
    /// Behind modelled NICs and links.
    #[cfg(feature = "sim")]
    Simulated(sim::Endpoint),
    /// By a test's model of threads that share it.
    #[cfg(loom)]
    Modelled(Rc<dyn Backend>),
}

impl From<shm::Endpoint> for Endpoint {
    fn from(endpoint: shm::Endpoint) -> Self {
        Self::new(Way::Mapped(endpoint))
    }
}

#[cfg(not(loom))]
impl From<tcp::Endpoint> for Endpoint {
    fn from(endpoint: tcp::Endpoint) -> Self {
        Self::new(Way::Remote(endpoint))
    }
}

#[cfg(feature = "sim")]
impl From<sim::Endpoint> for Endpoint {
    fn from(endpoint: sim::Endpoint) -> Self {
        Self::new(Way::Simulated(endpoint))
    }
}

#[cfg(loom)]
impl From<Rc<dyn Backend>> for Endpoint {
    fn from(model: Rc<dyn Backend>) -> Self {
        Self::new(Way::Modelled(model))
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = match &self.way {
            Way::Mapped(_) => "mapped",
            #[cfg(not(loom))]
            Way::Remote(_) => "remote",
            #[cfg(feature = "sim")]
            Way::Simulated(_) => "simulated",
            #[cfg(loom)]
            Way::Modelled(_) => "modelled",
        };
        write!(f, "{way} {}", self.id())
    }
}

impl Endpoint {
    fn new(way: Way) -> Self {
        Self { way, seat: None }
    }

    /// The same endpoint; its tasks run when the thread of `seat` comes by.
    #[must_use]
    pub fn seated(self, seat: &Seat) -> Self {
        Self {
            seat: Some(seat.clone()),
            ..self
        }
    }

    /// Whether verbs complete at once: the memory is mapped.
    #[inline]
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        matches!(self.way, Way::Mapped(_))
    }

    /// What only an endpoint with connections can do.
    #[cfg(not(loom))]
    #[must_use]
    pub fn remote(&self) -> Option<&tcp::Endpoint> {
        match &self.way {
            Way::Remote(remote) => Some(remote),
            _ => None,
        }
    }

    /// What only a simulated endpoint can do.
    #[cfg(feature = "sim")]
    #[must_use]
    pub fn simulated(&self) -> Option<&sim::Endpoint> {
        match &self.way {
            Way::Simulated(simulated) => Some(simulated),
            _ => None,
        }
    }

    /// The backend, for what is not worth a copy for mapped memory.
    #[inline]
    fn backend(&self) -> &dyn Backend {
        match &self.way {
            Way::Mapped(mapped) => mapped,
            #[cfg(not(loom))]
            Way::Remote(remote) => remote,
            #[cfg(feature = "sim")]
            Way::Simulated(simulated) => simulated,
            #[cfg(loom)]
            Way::Modelled(model) => &**model,
        }
    }

    /// How many memory nodes this endpoint reaches; they are numbered from 0.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.backend().node_count()
    }

    /// How many bytes of memory the node has.
    ///
    /// # Errors
    /// [`FabricError::NodeUnknown`].
    pub fn node_bytes(&self, node: NodeId) -> Result<u64, FabricError> {
        self.backend().node_bytes(node)
    }

    /// Which verbs there are beyond the plain ones.
    #[inline]
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        match &self.way {
            Way::Mapped(mapped) => mapped.capabilities(),
            _ => self.backend().capabilities(),
        }
    }

    /// Bytes of memory that each node's NIC has of its own, where atomics are faster. Verbs reach them behind the node's:
    /// from [`Endpoint::node_bytes`] on. They hold zeros at first.
    #[must_use]
    pub fn chip_bytes(&self) -> u64 {
        self.backend().chip_bytes()
    }

    /// A registered buffer of at least `bytes` bytes.
    #[must_use]
    pub fn buffer(&self, bytes: usize) -> Buffer {
        self.backend().buffer(bytes)
    }

    /// Executes one verb. The result is the word that it returns, or 0.
    ///
    /// Always inlined: the callers name the verb, so that for mapped memory, which executes it in place, the other
    /// arms vanish.
    ///
    /// # Errors
    /// See [`FabricError`].
    ///
    /// # Panics
    /// If the verb's slice lies outside `buffer`.
    #[inline(always)]
    pub fn execute<'c>(&'c self, verb: Verb, buffer: &'c mut Buffer, deadline: Deadline) -> Posted<'c> {
        match &self.way {
            Way::Mapped(mapped) => Posted::done(mapped.execute_now(&verb, buffer)),
            _ => self.execute_far(&verb, buffer, deadline),
        }
    }

    /// Executes a verb in the call, over mapped memory; `None` elsewhere, and nothing was posted. Always inlined, as above.
    ///
    /// # Panics
    /// If the verb's slice lies outside `buffer`.
    #[inline(always)]
    pub fn execute_now(&self, verb: &Verb, buffer: &mut Buffer) -> Option<Result<u128, FabricError>> {
        match &self.way {
            Way::Mapped(mapped) => Some(mapped.execute_now(verb, buffer)),
            _ => None,
        }
    }

    /// WRITE of bytes that stand in two places, one behind the other in the end, in the call; likewise. They are copied once.
    #[inline]
    pub fn write_both_now(&self, parts: [&[u8]; 2], target: RemoteAddr) -> Option<Result<(), FabricError>> {
        match &self.way {
            Way::Mapped(mapped) => Some(mapped.write_both_now(parts, target)),
            _ => None,
        }
    }

    /// READ to memory of the caller, which need not be a buffer, in the call; likewise. May tear between words.
    #[inline]
    pub fn read_now(&self, source: RemoteAddr, target: &mut [u8]) -> Option<Result<(), FabricError>> {
        match &self.way {
            Way::Mapped(mapped) => Some(mapped.read_now(source, target)),
            _ => None,
        }
    }

    #[inline(never)]
    fn execute_far<'c>(&'c self, verb: &Verb, buffer: &'c mut Buffer, deadline: Deadline) -> Posted<'c> {
        self.backend().execute(verb, buffer, deadline)
    }

    /// Posts a batch with one doorbell and waits for all of it; results are stored in the batch.
    ///
    /// # Errors
    /// The first error of a verb; the effects of the others are unknown then, unless the error says
    /// that nothing was posted.
    ///
    /// # Panics
    /// If a verb's slice lies outside `buffer`.
    #[inline]
    pub fn post<'c>(&'c self, batch: &'c mut Batch, buffer: &'c mut Buffer, deadline: Deadline) -> Posted<'c> {
        match &self.way {
            Way::Mapped(mapped) => Posted::done(mapped.post_now(batch, buffer)),
            _ => self.backend().post(batch, buffer, deadline),
        }
    }

    /// Asks for the memory to be brought nearer. Returns whether it is worth while to do something
    /// else until it is; only mapped memory says yes.
    #[inline]
    pub fn prefetch(&self, addr: RemoteAddr, bytes: u32) -> bool {
        match &self.way {
            Way::Mapped(mapped) => mapped.prefetch(addr, bytes),
            _ => self.backend().prefetch(addr, bytes),
        }
    }

    /// Aligned words of mapped memory, to be read in place; counts as a READ of them. `None` where memory is
    /// not mapped, and where a READ would fail, which then says why.
    #[inline]
    #[must_use]
    pub fn view(&self, addr: RemoteAddr, bytes: u32) -> Option<View<'_>> {
        match &self.way {
            Way::Mapped(mapped) => mapped.view(addr, bytes),
            _ => None,
        }
    }

    /// Aligned words of mapped memory, of which some lines will be looked at; each that is counts as a READ. `None` as above.
    #[inline]
    #[must_use]
    pub fn lines(&self, addr: RemoteAddr, bytes: u64) -> Option<Lines<'_>> {
        match &self.way {
            Way::Mapped(mapped) => mapped.lines(addr, bytes),
            _ => None,
        }
    }

    /// These bytes hold nothing any more until they are written again: nobody can find their address
    /// in far memory, and who found it before has ended. No verb and no cost; but a simulated fabric
    /// notices who reads them all the same.
    #[inline]
    pub fn forget(&self, addr: RemoteAddr, bytes: u64) {
        if !self.is_mapped() {
            self.backend().forget(addr, bytes);
        }
    }

    /// Whose operations are noted for tests of grace periods; see [`grace`](crate::grace).
    #[must_use]
    pub fn holder(&self) -> Holder {
        Holder {
            #[cfg(feature = "mutants")]
            of: self.simulated().cloned(),
        }
    }

    /// Notes for tests of grace periods that nobody finds a block any more who begins now. If that was noted before, the first
    /// time counts, unless the block was linked meanwhile (`is_new`).
    #[inline]
    pub fn unlinked(&self, block: RemoteAddr, is_new: bool) {
        let _ = (block, is_new);
        #[cfg(feature = "mutants")]
        if let Some(simulated) = self.simulated() {
            simulated.unlinked(block, is_new);
        }
    }

    /// What this endpoint has posted so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        self.backend().counters()
    }

    /// Who this endpoint is.
    #[must_use]
    pub fn id(&self) -> EndpointId {
        self.backend().id()
    }

    /// Sends a message; returns when the fabric has taken it, not when the peer has.
    ///
    /// # Errors
    /// [`FabricError::PeerUnknown`], [`FabricError::MailboxFull`], or the fabric's own.
    pub fn send<'c>(
        &'c self,
        peer: EndpointId,
        message: &'c Message,
        deadline: Deadline,
    ) -> Soon<'c, Result<(), FabricError>> {
        self.backend().send(peer, message, deadline)
    }

    /// Takes the oldest message that has arrived, or waits for one.
    ///
    /// # Errors
    /// [`FabricError::NoMessage`] when the deadline passes first.
    pub fn receive(&self, deadline: Deadline) -> Soon<'_, Result<Received, FabricError>> {
        self.backend().receive(deadline)
    }

    /// Takes the oldest message that has arrived, if there is one.
    ///
    /// # Errors
    /// If none can arrive any more.
    pub fn try_receive(&self) -> Result<Option<Received>, FabricError> {
        self.backend().try_receive()
    }

    /// Makes sure that no further verb of `peer` takes effect on any node: cuts off a client that is believed dead,
    /// before what it held is handed on.
    ///
    /// # Errors
    /// If a node does not answer; the peer may then still be connected.
    pub fn fence(&self, peer: EndpointId, deadline: Deadline) -> Soon<'_, Result<Fence, FabricError>> {
        self.backend().fence(peer, deadline)
    }

    /// Nanoseconds since some fixed point; never goes back. Clocks of different endpoints may differ by the fabric's
    /// skew.
    #[inline]
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.backend().now_ns()
    }

    /// Milliseconds since the Unix epoch, for what outlives a process (expiry times). Simulated
    /// clocks start at a fixed date.
    #[must_use]
    pub fn unix_ms(&self) -> u64 {
        self.backend().unix_ms()
    }

    /// The deadline that is `duration_ns` away.
    #[must_use]
    pub fn deadline_in(&self, duration_ns: u64) -> Deadline {
        Deadline(self.now_ns().saturating_add(duration_ns))
    }

    /// Waits for `duration_ns` nanoseconds of this clock; with 0, lets the other tasks run.
    pub fn sleep(&self, duration_ns: u64) -> Soon<'_, ()> {
        match &self.seat {
            Some(seat) if self.is_mapped() => Soon::later(seat.sleep(duration_ns)),
            _ => self.backend().sleep(duration_ns),
        }
    }

    /// Charges `duration_ns` of computation to the client's core. Only simulated time needs to be
    /// told; elsewhere computing takes the time it takes.
    pub fn compute(&self, duration_ns: u64) -> Soon<'_, ()> {
        self.backend().compute(duration_ns)
    }

    /// A uniformly distributed word: from the seed in the simulator, so that a run can be replayed.
    #[must_use]
    pub fn random(&self) -> u64 {
        self.backend().random()
    }

    /// A uniformly distributed number below `bound`, or 0 if `bound` is 0.
    #[must_use]
    pub fn random_below(&self, bound: u64) -> u64 {
        ((u128::from(self.random()) * u128::from(bound)) >> 64) as u64
    }

    /// Runs `task` beside the caller, on its thread. It ends with the endpoint's runtime, or when the simulator
    /// crashes the client.
    ///
    /// # Panics
    /// On real backends, outside a tokio `LocalSet` or `LocalRuntime`, unless the endpoint is seated.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.spawn_boxed(Box::pin(task));
    }

    /// All tasks are of one type, so that the machinery of whoever runs them is compiled once.
    fn spawn_boxed(&self, task: Task) {
        match &self.seat {
            Some(seat) => seat.spawn(task),
            None => self.backend().spawn(task),
        }
    }
}
