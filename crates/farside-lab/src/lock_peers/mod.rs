//! Every lock over mapped memory, against the locks that a machine has: `parking_lot::RwLock` between threads
//! and a robust mutex of the C library between processes.
//!
//! Each contender lives in processes of its own (`parking_lot` in threads of one, which is all it is for). All take
//! turns in every round, and the medians of the rounds are reported. What is measured (`measure.rs`):
//!  - *uncontended*: acquire and release of a lock that nobody else wants, in both modes;
//!  - *hand-over*: two processes have the lock in turn. From just before the release to the return of the other's
//!    acquire, which has waited for a short or a long time, so that it may still look or sleeps;
//!  - *share*: two and four processes take one lock as often as they can: how often in all, the share of the one that got it
//!    least, and the longest wait.
//!
//! The others are a development feature (`peers`) and no part of the product.

#[cfg(feature = "peers")]
mod board;
#[cfg(feature = "peers")]
mod contender;
#[cfg(feature = "peers")]
mod coordinator;
#[cfg(feature = "peers")]
mod measure;
#[cfg(feature = "peers")]
mod report;
#[cfg(feature = "peers")]
mod worker;

use std::path::PathBuf;

use farside_lock::LockKind;

#[cfg(feature = "peers")]
pub use self::coordinator::run;
#[cfg(feature = "peers")]
pub use self::worker::serve;
#[cfg(not(feature = "peers"))]
use crate::error::BenchError;
#[cfg(not(feature = "peers"))]
use crate::progress::Progress;

/// What to measure.
#[derive(Clone, Debug)]
pub struct LockPeersOptions {
    /// Which of our locks.
    pub locks: Vec<LockKind>,
    /// Of how many rounds the medians are taken.
    pub rounds: u64,
    /// How long processes share a lock in one round, in nanoseconds.
    pub duration_ns: u64,
    /// A folder for the memory.
    pub folder: PathBuf,
    /// Print JSON and nothing else.
    pub is_json: bool,
}

/// What a worker process is told when it starts.
#[derive(Clone, Debug)]
pub struct LockWorkerOptions {
    /// Which contender it is: a lock's name, `parking-lot` or `pthread-robust`.
    pub contender: String,
    /// The folder of the contender's files.
    pub folder: PathBuf,
    /// Which of the processes of this contender it is, from 0.
    pub member: u64,
}

/// Refuses: there is nobody to compare with.
///
/// # Errors
/// [`BenchError::Argument`] always.
#[cfg(not(feature = "peers"))]
pub fn run(_: &LockPeersOptions, _: &Progress) -> Result<String, BenchError> {
    Err(BenchError::argument(crate::embedded::WITHOUT_PEERS))
}

/// Refuses likewise.
///
/// # Errors
/// [`BenchError::Argument`] always.
#[cfg(not(feature = "peers"))]
pub fn serve(_: &LockWorkerOptions) -> Result<(), BenchError> {
    Err(BenchError::argument(crate::embedded::WITHOUT_PEERS))
}
