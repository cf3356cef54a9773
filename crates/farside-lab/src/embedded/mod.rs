//! The store embedded in a program, against maps in one process and against LMDB and Redis.
//!
//! Every contender lives in processes of its own, which wait on a pipe for what to do next
//! (`worker.rs`), so that all of them meet the same machine in every round, and so that the memory of one
//! is not counted for another. The medians of the rounds are reported. What is measured:
//!  - *get*: GETs of uniformly drawn keys on one thread, one after the other; for Farside also sixteen
//!    together, which no map offers;
//!  - *ycsb-a* and *ycsb-c*, Zipf 0.99: two processes of Farside and of LMDB, each on a file that both
//!    map; two threads for a map, which no second process can use; *ycsb-a-alone*: one process of Farside,
//!    while the other waits;
//!  - *memory*: what each takes for the items after loading, everything included.
//!
//! Or the range index is compared with ordered indexes of one process and with LMDB, one process each, whose keys are spread
//! over all integers and inserted in no order (LMDB's in order, so that its pages are full):
//!  - *get* and *memory* as above;
//!  - *scan*: reads of 100 keys in order from a drawn one on.
//!
//! The others are a development feature (`peers`) and no part of the product.

#[cfg(feature = "peers")]
mod coordinator;
#[cfg(feature = "peers")]
mod draws;
#[cfg(feature = "peers")]
mod farside;
#[cfg(feature = "peers")]
mod lmdb;
#[cfg(feature = "peers")]
mod maps;
#[cfg(feature = "peers")]
mod memory;
#[cfg(feature = "peers")]
mod range;
#[cfg(feature = "peers")]
mod redis;
#[cfg(feature = "peers")]
mod report;
#[cfg(feature = "peers")]
mod scans;
#[cfg(feature = "peers")]
mod smart;
#[cfg(feature = "peers")]
mod trees;
#[cfg(feature = "peers")]
mod worker;

use std::path::PathBuf;

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
pub struct EmbeddedOptions {
    /// Compare range indexes rather than stores.
    pub is_ordered: bool,
    /// How many keys each contender holds: 8 bytes, with values of 8 bytes.
    pub items: u64,
    /// Of how many rounds the medians are taken.
    pub rounds: u64,
    /// How long one run of a workload takes, in nanoseconds.
    pub duration_ns: u64,
    /// A folder for the segment and the files of the others.
    pub folder: PathBuf,
    /// Decides the keys.
    pub seed: u64,
    /// Print JSON and nothing else.
    pub is_json: bool,
}

/// What a worker process is told when it starts.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// See [`EmbeddedOptions::is_ordered`].
    pub is_ordered: bool,
    /// Which contender it is.
    pub engine: String,
    /// Its file or folder.
    pub path: PathBuf,
    /// See [`EmbeddedOptions::items`].
    pub items: u64,
    /// See [`EmbeddedOptions::duration_ns`].
    pub duration_ns: u64,
    /// See [`EmbeddedOptions::seed`].
    pub seed: u64,
    /// Which of the processes of this contender it is, from 0.
    pub member: u64,
}

/// Says how to build a program that can.
#[cfg(not(feature = "peers"))]
pub(crate) const WITHOUT_PEERS: &str = "this program was built without the stores and locks to compare with: cargo build --release -p farside-lab --features peers";

/// Refuses: there is nobody to compare with.
///
/// # Errors
/// [`BenchError::Argument`] always.
#[cfg(not(feature = "peers"))]
pub fn run(_: &EmbeddedOptions, _: &Progress) -> Result<String, BenchError> {
    Err(BenchError::argument(WITHOUT_PEERS))
}

/// Refuses likewise.
///
/// # Errors
/// [`BenchError::Argument`] always.
#[cfg(not(feature = "peers"))]
pub fn serve(_: &WorkerOptions) -> Result<(), BenchError> {
    Err(BenchError::argument(WITHOUT_PEERS))
}

#[cfg(all(test, not(feature = "peers")))]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_the_others_says_how_to_get_them() {
        let options = EmbeddedOptions {
            is_ordered: false,
            items: 1,
            rounds: 1,
            duration_ns: 1,
            folder: "/".into(),
            seed: 1,
            is_json: true,
        };
        let refusal = run(&options, &Progress::hidden()).expect_err("nobody to compare with");
        assert!(matches!(refusal, BenchError::Argument(_)), "{refusal}");
        assert!(refusal.to_string().contains("--features peers"), "{refusal}");
    }
}
