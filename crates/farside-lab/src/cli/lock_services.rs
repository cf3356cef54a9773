//! `farside-lab bench lock-services`.

use clap::Args;

use crate::error::BenchError;
use crate::lock_services::{self, LockServicesOptions};
use crate::progress::Progress;
use crate::quantity::parse_duration;

/// What `bench lock-services` takes.
#[derive(Args, Clone, Debug)]
pub(super) struct LockServicesArgs {
    /// A Redis server, HOST:PORT
    #[arg(long)]
    redis: Option<String>,
    /// The Redis servers of a Redlock, HOST:PORT each
    #[arg(long, value_delimiter = ',')]
    redlock: Vec<String>,
    /// An etcd server, HOST:PORT of its client address
    #[arg(long)]
    etcd: Option<String>,
    /// Number of clients
    #[arg(long, value_delimiter = ',', default_value = "1,16,64")]
    clients: Vec<u64>,
    /// Number of locks
    #[arg(long, value_delimiter = ',', default_value = "1,10000")]
    locks: Vec<u64>,
    /// Number of rounds, of which the medians are taken
    #[arg(long, default_value_t = 5)]
    rounds: u64,
    /// Duration of one run
    #[arg(long, value_parser = parse_duration, default_value = "500ms")]
    duration: u64,
    /// The seed of who takes which lock
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

impl LockServicesArgs {
    pub(super) fn run(self) -> Result<(), BenchError> {
        let options = LockServicesOptions {
            redis: self.redis,
            redlock: self.redlock,
            etcd: self.etcd,
            clients: self.clients,
            locks: self.locks,
            rounds: self.rounds,
            duration_ns: self.duration,
            seed: self.seed,
            is_json: self.json,
        };
        let progress = Progress::new(100, "lock-services");
        let text = lock_services::run(&options, &progress)?;
        drop(progress);
        println!("{text}");
        Ok(())
    }
}
