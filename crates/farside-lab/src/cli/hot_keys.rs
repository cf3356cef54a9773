//! `farside-lab bench hot-keys`, and the processes that it starts.

use std::path::PathBuf;

use clap::Args;
use farside_sync::Scheme;

use super::embedded::folder_in_memory;
use super::parse_scheme;
use crate::error::BenchError;
use crate::hot_keys::{self, Clients, HotKeysOptions, HotKeysWorkerOptions};
use crate::progress::Progress;
use crate::quantity::parse_duration;
use crate::stage::FabricKind;
use crate::workload::Workload;

/// What `bench hot-keys` takes.
#[derive(Args, Clone, Debug)]
pub(super) struct HotKeysArgs {
    /// How the processes reach the memory: shm or tcp
    #[arg(long, value_enum, default_value = "shm")]
    fabric: FabricKind,
    /// Number of processes [default: 2 over shm, 4 over tcp]
    #[arg(long)]
    processes: Option<u64>,
    /// Clients in each process
    #[arg(long, default_value_t = 4)]
    clients: u64,
    /// Synchronisation schemes, by name; the others are compared with the first
    #[arg(long, value_delimiter = ',', value_parser = parse_scheme, default_value = "optimistic,farside,cider")]
    sync: Vec<Scheme>,
    /// Number of keys
    #[arg(long, default_value_t = 16)]
    keys: u64,
    /// How much more popular some keys are than others; 0 is uniform
    #[arg(long, default_value_t = 0.99)]
    theta: f64,
    /// The workload: write-intensive, read-intensive, write-only
    #[arg(long, value_parser = Workload::by_name, default_value = "write-only")]
    workload: Workload,
    /// Number of rounds, of which the medians are taken
    #[arg(long, default_value_t = 15)]
    rounds: u64,
    /// Duration of a round
    #[arg(long, value_parser = parse_duration, default_value = "300ms")]
    duration: u64,
    /// A folder for the memory; best in memory [default: /dev/shm if there is one]
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Print one JSON object per scheme and nothing else
    #[arg(long)]
    json: bool,
}

/// What a process is told; see [`HotKeysWorkerOptions`].
#[derive(Args, Clone, Debug)]
pub(super) struct HotKeysWorkerArgs {
    order: String,
}

impl HotKeysArgs {
    pub(super) fn run(self) -> Result<(), BenchError> {
        let options = HotKeysOptions {
            fabric: self.fabric,
            clients: Clients {
                processes: self.processes.unwrap_or(match self.fabric {
                    FabricKind::Tcp => 4,
                    _ => 2,
                }),
                per_process: self.clients,
                keys: self.keys,
                theta: self.theta,
                workload: self.workload.name.to_owned(),
                duration_ns: self.duration,
            },
            schemes: self.sync,
            rounds: self.rounds,
            folder: self.folder.unwrap_or_else(folder_in_memory),
            is_json: self.json,
        };
        let progress = Progress::new(100, "hot-keys");
        let text = hot_keys::run(&options, &progress)?;
        drop(progress);
        println!("{text}");
        Ok(())
    }
}

impl HotKeysWorkerArgs {
    pub(super) fn run(self) -> Result<(), BenchError> {
        let order: HotKeysWorkerOptions = serde_json::from_str(&self.order)
            .map_err(|error| BenchError::Argument(format!("that is not an order of hot-keys: {error}")))?;
        hot_keys::serve(&order)
    }
}
