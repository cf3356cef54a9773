//! RDMA: memory nodes whose memory a network card reaches without their processor.
//!
//! On the path: beside TCP. A client joins a node over a TCP connection as any remote client does
//! ([`tcp`](crate::tcp)); over it both exchange where their queue pairs are, and from then on verbs go from card to card
//! while fences and signs of life stay on the connection, and the first messages between two clients. What is mapped, remote
//! or reached by RDMA is one [`Endpoint`](crate::tcp::Endpoint).
//!
//! - [`Device`] is an opened card: `device`, and what the system's library is to us in `ffi`;
//! - a node makes its memory known with an [`Export`], and has a queue pair for each client;
//! - a client has a `link` for each node, which posts verbs and collects what they return, and one `poller` for all;
//! - a client's `messenger` sends to other clients from card to card, and receives. How it gets to know them is in
//!   `introduction`;
//! - verbs that cards do not have are made of compare-and-swaps (`emulation`). Which a card has is tried when a client
//!   connects (`native`); those beyond libibverbs are posted as entries of its driver (`mlx5`).
//!
//! What holds between them:
//! - memory that a work request names belongs to its operation until the card says that it is done, or the queue pair is
//!   destroyed: a deadline gives the caller a copy, never memory that a card may still write;
//! - a client is cut off by destroying the node's end of its queue pair;
//! - a card's atomics are not atomic with those of a processor: a segment that is exported cannot be mapped by others
//!   meanwhile, and its node executes no verb itself.

mod completion_queue;
mod device;
mod emulation;
mod error;
mod exchange;
mod export;
pub(crate) mod ffi;
mod introduction;
mod link;
mod messenger;
mod mlx5;
mod native;
mod poller;
mod queue_pair;
mod receive_queue;

pub use device::{Device, DeviceFacts, DeviceOptions, device_names};
pub use error::RdmaError;
pub use export::{Export, ExportError};
pub use native::NativeAtomics;

pub(crate) use device::MemoryRegion;
pub(crate) use exchange::{ADDRESS_BYTES, Address};
pub(crate) use export::{Exported, NodeEnd};
pub(crate) use introduction::{Introduction, IntroductionKind};
pub(crate) use link::{Link, PinnedMemory};
pub(crate) use messenger::{Messenger, Sent};
pub(crate) use native::{Native, Scratch, Trial, Verdict};
pub(crate) use poller::Poller;

#[cfg(test)]
mod tests;
