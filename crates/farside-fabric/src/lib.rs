//! The fabric: one-sided verbs on far memory, over whatever moves the bytes.
//!
//! This is the lowest layer of Farside. Everything above it is written against [`Endpoint`], and
//! runs unchanged on four backends:
//!
//! | backend | where the bytes are |
//! |---|---|
//! | [`sim`] | in one process, behind a deterministic model of NICs and links |
//! | [`shm`] | in a file that several processes map |
//! | [`tcp`] | in a memory node's segment, at the end of a connection |
//! | [`rdma`] | in a memory node's segment, reached by network cards alone |
//!
//! An operation carries an [`OpContext`]; several verbs in one round trip are a [`Batch`]; verbs address memory by
//! [`RemoteAddr`]. The contract of all backends is documented at [`backend`] and tested by one conformance suite.

#![deny(unsafe_op_in_unsafe_fn)]

pub mod addr;
pub mod backend;
pub mod batch;
pub mod buffer;
pub mod capabilities;
pub mod clock;
mod copy;
pub mod counters;
pub mod endpoint;
pub mod error;
pub mod fork;
pub mod grace;
pub mod grown;
pub mod hash;
pub mod host;
pub mod message;
pub mod mirror;
pub mod mutant;
pub mod op;
pub mod posted;
mod prefetch;
#[cfg(not(loom))]
mod primitive;
#[cfg(loom)]
pub mod primitive;
#[cfg(not(loom))]
pub mod rdma;
pub mod region;
pub mod seat;
pub mod shm;
#[cfg(feature = "sim")]
pub mod sim;
pub mod spawn;
// Sockets are not modelled, and tokio leaves them out too.
#[cfg(not(loom))]
pub mod tcp;
pub mod verb;
pub mod view;

pub use addr::{NodeId, RemoteAddr};
pub use backend::{Backend, Fence};
pub use batch::Batch;
pub use buffer::Buffer;
pub use capabilities::Capabilities;
pub use clock::Deadline;
pub use counters::{CounterSnapshot, Counters, VerbCounts};
pub use endpoint::Endpoint;
pub use error::{AttachError, FabricError};
pub use grown::Grown;
pub use message::{EndpointId, MESSAGE_BYTES_MAX, Message, Received};
pub use op::OpContext;
pub use posted::{LocalFuture, Posted, Soon, at_once, join_all};
pub use prefetch::prefetch;
pub use seat::Seat;
pub use spawn::{Pipeline, Task, Turn, interleave};
pub use verb::{MaskedAdd, MaskedCas, Slice, Verb, VerbKind};
pub use view::{Line, Lines, View};
