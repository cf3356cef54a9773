//! What a backend does: the contract below [`Endpoint`](crate::Endpoint), which is all that anybody sees above.
//!
//! # Contract
//! Each line is a test of the conformance suite (`tests/it/conformance.rs`).
//!
//! - An aligned 8-byte word never tears. Longer READs and WRITEs may tear between any two words, in
//!   any order.
//! - Verbs of one endpoint to one node take effect in posting order, those of one batch included.
//!   Nothing is ordered across nodes.
//! - Atomics are atomic against atomics and word verbs of the same backend.
//! - A verb with a bad address or alignment fails before it is posted; so does the whole batch that
//!   holds one.
//! - A verb completes, or fails at its deadline. One that failed after posting may have taken
//!   effect, or still may.
//! - A verb to a node that is gone fails with [`FabricError::NodeGone`], at the latest at its
//!   deadline.
//! - After [`Backend::fence`] reports [`Fence::CutOff`], no verb of that peer takes effect.
//! - A verb that completes at once allocates nothing.
//! - A view of mapped memory shows what a READ of it would bring.

use crate::addr::{NodeId, RemoteAddr};
use crate::batch::Batch;
use crate::buffer::Buffer;
use crate::capabilities::Capabilities;
use crate::clock::Deadline;
use crate::counters::Counters;
use crate::error::{AttachError, FabricError};
use crate::host::{self, HostClock};
use crate::message::{EndpointId, Message, Received};
use crate::posted::{Posted, Soon};
use crate::spawn::Task;
use crate::verb::Verb;
use crate::view::View;

/// What became of an attempt to cut a client off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fence {
    /// No verb of the peer takes effect from now on.
    CutOff,
    /// The peer cannot be cut off: it maps the memory and its process is still there.
    StillRunning,
}

/// One client of one backend. What the methods do is said at those of [`Endpoint`](crate::Endpoint).
pub trait Backend {
    /// See [`Endpoint::node_count`](crate::Endpoint::node_count); likewise for all methods below.
    fn node_count(&self) -> usize;

    /// How many bytes of memory the node has.
    ///
    /// # Errors
    /// [`FabricError::NodeUnknown`].
    fn node_bytes(&self, node: NodeId) -> Result<u64, FabricError>;

    /// Reaches one more node.
    fn attach<'c>(&'c self, node: NodeId, place: &'c str) -> Soon<'c, Result<(), AttachError>> {
        Soon::done(Err(AttachError::new(
            node,
            place,
            "this fabric has the nodes that it began with",
        )))
    }

    /// Reaches a node no more.
    fn detach(&self, node: NodeId) {
        let _ = node;
    }

    /// Whether the node is reached.
    fn is_attached(&self, node: NodeId) -> bool {
        node.index() < self.node_count()
    }

    /// Which verbs there are beyond the plain ones.
    fn capabilities(&self) -> Capabilities;

    /// Bytes of memory that each node's NIC has of its own.
    fn chip_bytes(&self) -> u64 {
        0
    }

    /// A registered buffer.
    fn buffer(&self, bytes: usize) -> Buffer {
        Buffer::unregistered(bytes)
    }

    /// Executes one verb.
    fn execute<'c>(&'c self, verb: &Verb, buffer: &'c mut Buffer, deadline: Deadline) -> Posted<'c>;

    /// Posts a batch with one doorbell.
    fn post<'c>(&'c self, batch: &'c mut Batch, buffer: &'c mut Buffer, deadline: Deadline) -> Posted<'c>;

    /// Asks for memory to be brought nearer.
    fn prefetch(&self, addr: RemoteAddr, bytes: u32) -> bool {
        let _ = (addr, bytes);
        false
    }

    /// Aligned words of mapped memory, to be read in place.
    fn view(&self, addr: RemoteAddr, bytes: u32) -> Option<View<'_>> {
        let _ = (addr, bytes);
        None
    }

    /// These bytes hold nothing any more.
    fn forget(&self, addr: RemoteAddr, bytes: u64) {
        let _ = (addr, bytes);
    }

    /// What was posted so far.
    fn counters(&self) -> &Counters;

    /// Who this endpoint is.
    fn id(&self) -> EndpointId;

    /// Sends a message.
    fn send<'c>(
        &'c self,
        peer: EndpointId,
        message: &'c Message,
        deadline: Deadline,
    ) -> Soon<'c, Result<(), FabricError>>;

    /// Takes the oldest message that has arrived, or waits for one.
    fn receive(&self, deadline: Deadline) -> Soon<'_, Result<Received, FabricError>>;

    /// Takes the oldest message that has arrived, if there is one.
    ///
    /// # Errors
    /// If none can arrive any more.
    fn try_receive(&self) -> Result<Option<Received>, FabricError>;

    /// Cuts a client off.
    fn fence(&self, peer: EndpointId, deadline: Deadline) -> Soon<'_, Result<Fence, FabricError>>;

    /// Nanoseconds since some fixed point.
    fn now_ns(&self) -> u64 {
        HostClock.now_ns()
    }

    /// Milliseconds since the Unix epoch.
    fn unix_ms(&self) -> u64 {
        HostClock.unix_ms()
    }

    /// Waits for so many nanoseconds of this clock.
    fn sleep(&self, duration_ns: u64) -> Soon<'_, ()> {
        Soon::later(HostClock.sleep(duration_ns))
    }

    /// Charges computation to the client's core.
    fn compute(&self, duration_ns: u64) -> Soon<'_, ()> {
        let _ = duration_ns;
        Soon::done(())
    }

    /// A uniformly distributed word.
    fn random(&self) -> u64;

    /// Runs a task beside the caller.
    fn spawn(&self, task: Task) {
        host::spawn_local(task);
    }
}

/// Checks what can be checked before posting: the node, the bounds, the alignment, the capability.
///
/// # Errors
/// The first rule that `verb` breaks.
#[inline]
pub fn check_verb(verb: &Verb, node_bytes: u64, has: Capabilities) -> Result<(), FabricError> {
    let (addr, bytes) = verb.target();
    if addr.offset() + bytes > node_bytes {
        return Err(FabricError::OutOfBounds {
            addr,
            bytes,
            node_bytes,
        });
    }
    let alignment = verb.alignment();
    if addr.offset() & (alignment - 1) != 0 {
        return Err(FabricError::Misaligned { addr, alignment });
    }
    match verb {
        Verb::MaskedCompareSwap { .. } | Verb::MaskedFetchAdd { .. } if !has.masked_atomics => {
            Err(FabricError::Unsupported { verb: "masked atomic" })
        }
        Verb::WideCompareSwap { .. } | Verb::WideFetchAdd { .. } if !has.wide_atomics => {
            Err(FabricError::Unsupported { verb: "16-byte atomic" })
        }
        _ => Ok(()),
    }
}
