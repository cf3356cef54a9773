//! `farside-lab bench embedded`, and the processes that it starts.

use std::path::PathBuf;

use clap::Args;

use crate::embedded::{self, EmbeddedOptions, WorkerOptions};
use crate::error::BenchError;
use crate::progress::Progress;
use crate::quantity::parse_duration;

/// What `bench embedded` takes.
#[derive(Args, Clone, Debug)]
pub(super) struct EmbeddedArgs {
    /// Compare the range index with ordered indexes of one process, rather than the store with maps
    #[arg(long)]
    ordered: bool,
    /// Number of keys that each contender holds
    #[arg(long, default_value_t = 10_000_000)]
    items: u64,
    /// Number of rounds, of which the medians are taken
    #[arg(long, default_value_t = 5)]
    rounds: u64,
    /// Duration of one run of a workload
    #[arg(long, value_parser = parse_duration, default_value = "1s")]
    duration: u64,
    /// A folder for the segment and the files of the others; best in memory [default: /dev/shm if there is one]
    #[arg(long)]
    folder: Option<PathBuf>,
    /// The seed of the keys
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

/// What a worker is told; see [`WorkerOptions`].
#[derive(Args, Clone, Debug)]
pub(super) struct WorkerArgs {
    engine: String,
    path: PathBuf,
    items: u64,
    duration_ns: u64,
    seed: u64,
    member: u64,
    #[arg(long)]
    ordered: bool,
}

impl EmbeddedArgs {
    pub(super) fn run(self) -> Result<(), BenchError> {
        let options = EmbeddedOptions {
            is_ordered: self.ordered,
            items: self.items,
            rounds: self.rounds,
            duration_ns: self.duration,
            folder: self.folder.unwrap_or_else(folder_in_memory),
            seed: self.seed,
            is_json: self.json,
        };
        let progress = Progress::new(100, "embedded");
        let text = embedded::run(&options, &progress)?;
        drop(progress);
        println!("{text}");
        Ok(())
    }
}

/// Where files are memory, if the system has such a place.
pub(super) fn folder_in_memory() -> PathBuf {
    let shared = PathBuf::from("/dev/shm");
    if shared.is_dir() { shared } else { std::env::temp_dir() }
}

impl WorkerArgs {
    pub(super) fn run(self) -> Result<(), BenchError> {
        embedded::serve(&WorkerOptions {
            is_ordered: self.ordered,
            engine: self.engine,
            path: self.path,
            items: self.items,
            duration_ns: self.duration_ns,
            seed: self.seed,
            member: self.member,
        })
    }
}
