//! `farside-lab bench lock-peers`, and the processes that it starts.

use std::path::PathBuf;

use clap::Args;
use farside_lock::LockKind;

use super::embedded::folder_in_memory;
use super::parse_lock;
use crate::error::BenchError;
use crate::lock_peers::{self, LockPeersOptions, LockWorkerOptions};
use crate::progress::Progress;
use crate::quantity::parse_duration;

/// What `bench lock-peers` takes.
#[derive(Args, Clone, Debug)]
pub(super) struct LockPeersArgs {
    /// Locks to measure, by name [default: all of `farside list`, without variants]
    #[arg(long, value_delimiter = ',', value_parser = parse_lock)]
    lock: Vec<LockKind>,
    /// Number of rounds, of which the medians are taken
    #[arg(long, default_value_t = 5)]
    rounds: u64,
    /// How long the processes share a lock in a round
    #[arg(long, value_parser = parse_duration, default_value = "300ms")]
    duration: u64,
    /// A folder for the memory; best in memory [default: /dev/shm if there is one]
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Print one JSON object per lock and nothing else
    #[arg(long)]
    json: bool,
}

/// What a worker is told; see [`LockWorkerOptions`].
#[derive(Args, Clone, Debug)]
pub(super) struct LockWorkerArgs {
    contender: String,
    folder: PathBuf,
    member: u64,
}

impl LockPeersArgs {
    pub(super) fn run(self) -> Result<(), BenchError> {
        let all = || LockKind::ALL.iter().map(|&(kind, ..)| kind).collect();
        let options = LockPeersOptions {
            locks: if self.lock.is_empty() { all() } else { self.lock },
            rounds: self.rounds,
            duration_ns: self.duration,
            folder: self.folder.unwrap_or_else(folder_in_memory),
            is_json: self.json,
        };
        let progress = Progress::new(100, "lock-peers");
        let text = lock_peers::run(&options, &progress)?;
        drop(progress);
        println!("{text}");
        Ok(())
    }
}

impl LockWorkerArgs {
    pub(super) fn run(self) -> Result<(), BenchError> {
        lock_peers::serve(&LockWorkerOptions {
            contender: self.contender,
            folder: self.folder,
            member: self.member,
        })
    }
}
