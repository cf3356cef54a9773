//! TCP: memory nodes at the end of connections.
//!
//! On the path: the backend for machines without RDMA, and for clients that do not map a segment
//! themselves. A [`Server`] executes batches of verbs on a segment; [`connect()`] makes an
//! [`Endpoint`] of one or several nodes, each of them remote, mapped, or reached by RDMA: then verbs go from
//! network card to network card ([`rdma`](crate::rdma)), messages as well if it is node 0, and everything else over the
//! connection.
//!
//! The wire protocol is in `frame` (requests and answers) and `hello` (how a connection begins).
//! Everything that comes from the network is checked before it is used; a connection on which
//! something is wrong is closed with one line in the log, and costs nobody else anything.
//!
//! What the other side may count on:
//! - requests of one connection take effect and are answered in their order;
//! - nothing is sent twice: what was in flight when a connection broke may or may not have taken
//!   effect, and fails;
//! - a client that was cut off is not let in again under its identity.

mod connect;
mod connection;
mod endpoint;
mod frame;
mod hello;
mod inbox;
mod mirror;
mod mirrored;
mod operations;
mod secret;
mod server;
mod service;
mod session;
#[cfg(test)]
mod testing;

pub(crate) use connection::Connection;
pub(crate) use inbox::Inbox;
pub(crate) use operations::{Operations, SlotIndex};

pub use connect::{ConnectError, ConnectOptions, NodeLocation, connect};
pub use endpoint::Endpoint;
pub use hello::VERSION as PROTOCOL_VERSION;
pub use mirror::control::{Command, CommandError, Said, ask_members, command, newest_view, status};
pub use mirror::record::read as read_view_record;
pub use mirror::{Membership, MirrorOptions};
pub use secret::{SECRET_BYTES_MAX, SECRET_BYTES_MIN, Secret, SecretError};
pub use server::{SecretRequired, Server, ServerHandle, ServerOptions, require_secret_unless_loopback};
