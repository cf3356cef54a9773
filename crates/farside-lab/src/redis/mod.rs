//! Redis, as a yardstick of benchmarks: a server that ends with the measurement, a connection, and the lock that people
//! build on it.
//!
//! On the path: what `bench lock-services`, `bench bank` and `bench embedded` compare with. No part of the product.

mod connection;
mod lock;
mod server;

pub(crate) use self::connection::Connection;
pub(crate) use self::lock::RedisLock;
pub(crate) use self::server::LocalServer;
#[cfg(feature = "peers")]
pub(crate) use self::server::Server;
