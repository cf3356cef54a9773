//! Locks as a service: ours, over TCP and over mapped memory, against what people lock with: Redis, Redlock and etcd.
//!
//! Servers of the others run already; `scripts/compare-locks` starts them. All take turns in every round, and the
//! medians of the rounds are reported. Clients acquire a lock that chance picks and release it at once, over and over.
//!
//! Who connects how:
//!  - the others' clients have a connection each, and all run on as many threads as ours do. One request of a
//!    client is under way at a time, as in every library for these locks;
//!  - ours share a connection among the clients of a thread, which is how the library works; and as `-alone` they have a
//!    thread and a connection each.
//!
//! The others are a development feature (`peers`) and no part of the product.

#[cfg(feature = "peers")]
mod etcd;
#[cfg(feature = "peers")]
mod report;
#[cfg(feature = "peers")]
mod run;

#[cfg(feature = "peers")]
pub use self::run::run;
#[cfg(not(feature = "peers"))]
use crate::error::BenchError;
#[cfg(not(feature = "peers"))]
use crate::progress::Progress;

/// What to measure.
#[derive(Clone, Debug)]
pub struct LockServicesOptions {
    /// Address of a Redis server.
    pub redis: Option<String>,
    /// Addresses of the Redis servers of a Redlock, of which more than half have to grant it.
    pub redlock: Vec<String>,
    /// Address of an etcd server, for clients.
    pub etcd: Option<String>,
    /// How many clients there are.
    pub clients: Vec<u64>,
    /// How many locks there are.
    pub locks: Vec<u64>,
    /// Of how many rounds the medians are taken.
    pub rounds: u64,
    /// How long one run takes, in nanoseconds.
    pub duration_ns: u64,
    /// Decides who takes which lock.
    pub seed: u64,
    /// Print JSON and nothing else.
    pub is_json: bool,
}

/// Refuses: there is nobody to compare with.
///
/// # Errors
/// [`BenchError::Argument`] always.
#[cfg(not(feature = "peers"))]
pub fn run(_: &LockServicesOptions, _: &Progress) -> Result<String, BenchError> {
    Err(BenchError::argument(crate::embedded::WITHOUT_PEERS))
}
