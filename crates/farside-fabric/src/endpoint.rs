//! The endpoint: a client's access to a fabric, whatever moves the bytes.
//!
//! On the path: the lowest call of every operation. Locks, pools and indexes are written against this one type and
//! compiled once. This is the only file that asks which backend it is: mapped memory is checked first and inline, since
//! its verbs complete at once; the others are called out of line. The contract of all backends is at
//! [`backend`](crate::backend).

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
use crate::error::{AttachError, FabricError};
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

/// A client of a fabric, with everything that the layers above need. Clones share one client, which leaves the fabric
/// when the last of them is dropped.
///
/// Not `Send`: each thread has a client of its own.
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

    /// The same endpoint, whose tasks run when the thread of `seat` runs them.
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

    /// The operations that only an endpoint with connections has.
    #[cfg(not(loom))]
    #[must_use]
    pub fn remote(&self) -> Option<&tcp::Endpoint> {
        match &self.way {
            Way::Remote(remote) => Some(remote),
            _ => None,
        }
    }

    /// The operations that only a simulated endpoint has.
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

    /// How many numbers of memory nodes this endpoint knows, from 0 on; some may not be attached.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.backend().node_count()
    }

    /// The size of the node's memory in bytes.
    ///
    /// # Errors
    /// [`FabricError::NodeUnknown`].
    pub fn node_bytes(&self, node: NodeId) -> Result<u64, FabricError> {
        self.backend().node_bytes(node)
    }

    /// Reaches one more node, while operations are under way. `place` says where it is: `shm:PATH` or `tcp:HOST:PORT`, or
    /// several of these with commas between them, of which the first that works is taken; `sim:N` in a simulation. Does
    /// nothing if the node is reached already.
    ///
    /// # Errors
    /// Why none of the places works for this endpoint; it is as before then.
    pub fn attach<'c>(&'c self, node: NodeId, place: &'c str) -> Soon<'c, Result<(), AttachError>> {
        self.backend().attach(node, place)
    }

    /// Gives a node up: verbs to it fail from now on, and its connection closes. Its number is not used again. Memory that is
    /// mapped stays so until the endpoint goes.
    ///
    /// # Panics
    /// If it is node 0, where this client's mail arrives.
    pub fn detach(&self, node: NodeId) {
        assert!(node.index() > 0, "node 0 is every client's home");
        self.backend().detach(node);
    }

    /// Whether this endpoint reaches a node: it had it from the start or has attached it, and has not given it up.
    #[must_use]
    pub fn is_attached(&self, node: NodeId) -> bool {
        self.backend().is_attached(node)
    }

    /// Which verbs this fabric has beyond the plain ones.
    #[inline]
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        match &self.way {
            Way::Mapped(mapped) => mapped.capabilities(),
            _ => self.backend().capabilities(),
        }
    }

    /// Bytes of memory on each node's NIC, where atomics are faster. Their addresses follow the node's memory, from
    /// [`Endpoint::node_bytes`] on. They are zeros at first.
    #[must_use]
    pub fn chip_bytes(&self) -> u64 {
        self.backend().chip_bytes()
    }

    /// A registered buffer of at least `bytes` bytes.
    #[must_use]
    pub fn buffer(&self, bytes: usize) -> Buffer {
        self.backend().buffer(bytes)
    }

    /// Executes one verb. The result is the word that the verb returns, or 0.
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

    /// Executes a verb within the call, over mapped memory; elsewhere `None`, and nothing is posted. Always inlined, as
    /// above.
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

    /// WRITE of two parts, one after the other, within the call; likewise. The bytes are copied once.
    #[inline]
    pub fn write_both_now(&self, parts: [&[u8]; 2], target: RemoteAddr) -> Option<Result<(), FabricError>> {
        match &self.way {
            Way::Mapped(mapped) => Some(mapped.write_both_now(parts, target)),
            _ => None,
        }
    }

    /// READ into memory of the caller, which need not be a registered buffer, within the call; likewise. May tear
    /// between words.
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
    /// The first error of a verb; the effects of the other verbs are then unknown, unless the error says that nothing
    /// was posted.
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

    /// Prefetches memory. Returns whether it is worthwhile to do something else meanwhile, which is true only for
    /// mapped memory.
    #[inline]
    pub fn prefetch(&self, addr: RemoteAddr, bytes: u32) -> bool {
        match &self.way {
            Way::Mapped(mapped) => mapped.prefetch(addr, bytes),
            _ => self.backend().prefetch(addr, bytes),
        }
    }

    /// Aligned words of mapped memory, to be read in place; counts as a READ of them. `None` if the memory is not
    /// mapped, or a READ would fail, which then reports why.
    #[inline]
    #[must_use]
    pub fn view(&self, addr: RemoteAddr, bytes: u32) -> Option<View<'_>> {
        match &self.way {
            Way::Mapped(mapped) => mapped.view(addr, bytes),
            _ => None,
        }
    }

    /// Aligned words of mapped memory, of which some lines will be read; each of these counts as a READ. `None` as
    /// above.
    #[inline]
    #[must_use]
    pub fn lines(&self, addr: RemoteAddr, bytes: u64) -> Option<Lines<'_>> {
        match &self.way {
            Way::Mapped(mapped) => mapped.lines(addr, bytes),
            _ => None,
        }
    }

    /// Declares that these bytes have no content until they are written again: their address cannot be found in far
    /// memory any more, and operations that found it before have ended. This is no verb and costs nothing, but a
    /// simulated fabric reports a client that reads the bytes nevertheless.
    #[inline]
    pub fn forget(&self, addr: RemoteAddr, bytes: u64) {
        if !self.is_mapped() {
            self.backend().forget(addr, bytes);
        }
    }

    /// Under which name operations are recorded for tests of grace periods; see [`grace`](crate::grace).
    #[must_use]
    pub fn holder(&self) -> Holder {
        Holder {
            #[cfg(feature = "mutants")]
            of: self.simulated().cloned(),
        }
    }

    /// Records, for tests of grace periods, that operations which begin from now on cannot find a block. If that was
    /// recorded before, the first time counts, unless the block was linked meanwhile (`is_new`).
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

    /// The identity of this endpoint.
    #[must_use]
    pub fn id(&self) -> EndpointId {
        self.backend().id()
    }

    /// Sends a message; returns when the fabric has accepted it, not when the peer has received it.
    ///
    /// # Errors
    /// [`FabricError::PeerUnknown`], [`FabricError::MailboxFull`], or another error of the fabric.
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
    /// If no message can arrive any more.
    pub fn try_receive(&self) -> Result<Option<Received>, FabricError> {
        self.backend().try_receive()
    }

    /// Makes sure that no further verb of `peer` takes effect on any node. This cuts off a client that is believed
    /// dead, before others take over what it held.
    ///
    /// # Errors
    /// If a node does not answer; the peer may then still be connected.
    pub fn fence(&self, peer: EndpointId, deadline: Deadline) -> Soon<'_, Result<Fence, FabricError>> {
        self.backend().fence(peer, deadline)
    }

    /// Nanoseconds since some fixed point; monotonic. Clocks of different endpoints may differ by the fabric's skew.
    #[inline]
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.backend().now_ns()
    }

    /// Milliseconds since the Unix epoch, for times that outlive a process (expiry). Simulated clocks start at a fixed
    /// date.
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

    /// Charges `duration_ns` nanoseconds of computation to the client's core. This matters only in simulated time;
    /// elsewhere it does nothing.
    pub fn compute(&self, duration_ns: u64) -> Soon<'_, ()> {
        self.backend().compute(duration_ns)
    }

    /// A uniformly distributed word; in the simulator it depends on the seed, so that a run can be replayed.
    #[must_use]
    pub fn random(&self) -> u64 {
        self.backend().random()
    }

    /// A uniformly distributed number below `bound`, or 0 if `bound` is 0.
    #[must_use]
    pub fn random_below(&self, bound: u64) -> u64 {
        ((u128::from(self.random()) * u128::from(bound)) >> 64) as u64
    }

    /// Runs `task` concurrently with the caller, on the same thread. It ends with the endpoint's runtime, or when the
    /// simulator crashes the client.
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
