//! `farside-lab bench bank`.

use clap::Args;

use crate::bank::{self, BankOptions, Contender};
use crate::error::BenchError;
use crate::progress::Progress;
use crate::quantity::parse_duration;
use crate::stage::FabricKind;

/// What `bench bank` takes.
#[derive(Args, Clone, Debug)]
pub(super) struct BankArgs {
    /// How Farside's clients reach the memory: tcp or shm
    #[arg(long, default_value = "tcp")]
    fabric: FabricKind,
    /// Number of clients
    #[arg(long, default_value_t = 64)]
    clients: u64,
    /// Number of accounts
    #[arg(long, default_value_t = 1_000_000)]
    accounts: u64,
    /// How much more popular some accounts are than others; 0 is uniform
    #[arg(long, default_value_t = 0.0)]
    theta: f64,
    /// Duration of one run
    #[arg(long, value_parser = parse_duration, default_value = "5s")]
    duration: u64,
    /// Number of rounds, of which the medians are taken
    #[arg(long, default_value_t = 3)]
    rounds: u64,
    /// The contenders [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Contender>,
    /// Number of Redis servers that vote on a Redlock
    #[arg(long, default_value_t = 1)]
    redlock_servers: u64,
    /// How many named locks the accounts share [default: a quarter of those that there is room for, at most one each]
    #[arg(long)]
    lock_names: Option<u64>,
    /// Give each Farside client a thread and connections of its own
    #[arg(long)]
    alone: bool,
    /// The seed of who pays whom
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

impl BankArgs {
    pub(super) fn run(self) -> Result<(), BenchError> {
        let takes_part = |contender: &Contender| self.only.is_empty() || self.only.contains(contender);
        let options = BankOptions {
            fabric: self.fabric,
            clients: self.clients,
            accounts: self.accounts,
            theta: self.theta,
            duration_ns: self.duration,
            rounds: self.rounds,
            contenders: Contender::ALL.into_iter().filter(takes_part).collect(),
            redlock_servers: self.redlock_servers,
            lock_names: self.lock_names,
            is_alone: self.alone,
            seed: self.seed,
            is_json: self.json,
        };
        let progress = Progress::new(100, "bank");
        let text = bank::run(&options, &progress)?;
        drop(progress);
        println!("{text}");
        Ok(())
    }
}
