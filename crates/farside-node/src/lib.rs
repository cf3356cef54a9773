//! The memory node: one process that has the role of serving a segment.
//!
//! On the path: nowhere. Clients execute verbs on the segment themselves, or have the node's TCP
//! server execute them; the node knows nothing of keys. What it does is to make the memory, to keep
//! a second node away from it, and to be the end of connections.

#![forbid(unsafe_code)]

mod error;
mod node;

pub use error::NodeError;
pub use node::{Memory, Node, NodeOptions};
