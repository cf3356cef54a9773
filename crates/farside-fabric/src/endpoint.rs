//! The fabric's trait: what a client holds, whatever moves the bytes.
//!
//! On the path: this is the lowest call of every operation. Locks, pools and indexes are generic
//! over [`Endpoint`] and run unchanged on each backend.
//!
//! # Contract
//! Each line is a test of the conformance suite (`tests/conformance.rs`).
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
//! - After [`Fencing::fence`] reports [`Fence::CutOff`], no verb of that peer takes effect.
//! - A verb that completes at once allocates nothing.
//! - A view of mapped memory shows what a READ of it would bring.

use crate::addr::{NodeId, RemoteAddr};
use crate::batch::Batch;
use crate::buffer::Buffer;
use crate::capabilities::Capabilities;
use crate::clock::{Clock, Deadline};
use crate::counters::Counters;
use crate::error::FabricError;
use crate::message::{EndpointId, Messages};
use crate::rng::Random;
use crate::spawn::Spawn;
use crate::verb::Verb;
use crate::view::View;

/// One-sided access to the memory nodes.
pub trait Verbs {
    /// How many memory nodes this endpoint reaches; they are numbered from 0.
    fn node_count(&self) -> usize;

    /// How many bytes of memory the node has.
    ///
    /// # Errors
    /// [`FabricError::NodeUnknown`].
    fn node_bytes(&self, node: NodeId) -> Result<u64, FabricError>;

    /// Which verbs there are beyond the plain ones.
    fn capabilities(&self) -> Capabilities;

    /// Bytes of memory that each node's NIC has of its own, where atomics are faster. Verbs reach them behind the node's:
    /// from [`Verbs::node_bytes`] on. They hold zeros at first.
    fn chip_bytes(&self) -> u64 {
        0
    }

    /// A registered buffer of at least `bytes` bytes.
    fn buffer(&self, bytes: usize) -> Buffer;

    /// Executes one verb. The result is the word that it returns, or 0.
    ///
    /// # Errors
    /// See [`FabricError`].
    ///
    /// # Panics
    /// If the verb's slice lies outside `buffer`.
    async fn execute(&self, verb: Verb, buffer: &mut Buffer, deadline: Deadline) -> Result<u128, FabricError>;

    /// Posts a batch with one doorbell and waits for all of it; results are stored in the batch.
    ///
    /// # Errors
    /// The first error of a verb; the effects of the others are unknown then, unless the error says
    /// that nothing was posted.
    ///
    /// # Panics
    /// If a verb's slice lies outside `buffer`.
    async fn post(&self, batch: &mut Batch, buffer: &mut Buffer, deadline: Deadline) -> Result<(), FabricError>;

    /// Asks for the memory to be brought nearer. Returns whether it is worth while to do something
    /// else until it is; only mapped memory says yes.
    #[inline]
    fn prefetch(&self, addr: RemoteAddr, bytes: u32) -> bool {
        let _ = (addr, bytes);
        false
    }

    /// Aligned words of mapped memory, to be read in place; counts as a READ of them. `None` where memory is
    /// not mapped, and where a READ would fail, which then says why.
    #[inline]
    fn view(&self, addr: RemoteAddr, bytes: u32) -> Option<View<'_>> {
        let _ = (addr, bytes);
        None
    }

    /// These bytes hold nothing any more until they are written again: nobody can find their address
    /// in far memory, and who found it before has ended. No verb and no cost; but a simulated fabric
    /// notices who reads them all the same.
    #[inline]
    fn forget(&self, addr: RemoteAddr, bytes: u64) {
        let _ = (addr, bytes);
    }

    /// What this endpoint has posted so far.
    fn counters(&self) -> &Counters;
}

/// What became of an attempt to cut a client off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fence {
    /// No verb of the peer takes effect from now on.
    CutOff,
    /// The peer cannot be cut off: it maps the memory and its process is still there.
    StillRunning,
}

/// Cutting off a client that is believed dead, before what it held is handed on.
pub trait Fencing {
    /// Makes sure that no further verb of `peer` takes effect on any node.
    ///
    /// # Errors
    /// If a node does not answer; the peer may then still be connected.
    async fn fence(&self, peer: EndpointId, deadline: Deadline) -> Result<Fence, FabricError>;
}

/// Everything a client needs of a fabric. Cheap to clone; clones are the same endpoint.
pub trait Endpoint: Verbs + Messages + Fencing + Clock + Random + Spawn + Clone + 'static {}

impl<T> Endpoint for T where T: Verbs + Messages + Fencing + Clock + Random + Spawn + Clone + 'static {}

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
