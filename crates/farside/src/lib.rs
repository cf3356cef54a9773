//! Farside as a library: a key-value store in memory that processes or machines share.
//!
//! Open the nodes of a pool with [`kv::stack::run`], a [`kv::Store`] on the endpoint that you are
//! given, and a [`kv::Session`] for each operation that should be in flight.

#![forbid(unsafe_code)]

pub use farside_fabric as fabric;
pub use farside_gateway as gateway;
pub use farside_index as index;
pub use farside_kv as kv;
pub use farside_node as node;
pub use farside_pool as pool;
pub use farside_sync as sync;
