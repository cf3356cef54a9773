//! Shared memory: segments that several processes of one machine map.
//!
//! On the path: the fastest backend, and the memory under the tcp node, whose remote clients and the
//! local ones here use the same words at the same time.
//!
//! - a [`Segment`] is a file; it holds the memory of one node, the table of its endpoints and their
//!   mailboxes;
//! - a [`Fabric`] is the list of segments, in the order of their nodes;
//! - an [`Endpoint`] is a client that maps them; a [`Connected`] one acts for a remote client.
//!
//! Any process may be killed at any instruction. What it left in a segment is recognised by the process's number and start time,
//! or, from another container, by a lock that the kernel takes back; whoever meets it next undoes or skips it.

mod connected;
mod endpoint;
mod error;
mod futex;
mod header;
mod liveness;
mod mailbox;
#[cfg(loom)]
pub mod model;
mod process;
mod registration;
#[cfg(feature = "peers")]
pub mod robust;
mod segment;
mod table;
mod waiter;

pub use connected::{Connected, Execution};
pub use endpoint::{Endpoint, Fabric};
pub use error::SegmentError;
pub use segment::{ENDPOINTS_DEFAULT, Hold, MirrorUse, NicUse, Segment, SegmentOptions};
