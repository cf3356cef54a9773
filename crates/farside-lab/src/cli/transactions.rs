//! `farside-lab bench transactions`.

use clap::Args;
use farside_kv::IndexKind;

use super::parse_index;
use crate::applications::{self, ApplicationKind, ApplicationOptions, Limit, SiteOptions};
use crate::error::BenchError;
use crate::progress::Progress;
use crate::quantity::parse_duration;
use crate::stage::FabricKind;

/// What `bench transactions` takes.
#[derive(Args, Clone, Debug)]
pub(super) struct TransactionsArgs {
    /// The benchmark whose transactions to run
    #[arg(long, value_enum)]
    workload: ApplicationKind,
    /// How many subscribers, warehouses or customers there are [default: 100000 subscribers or customers, 2 warehouses]
    #[arg(long)]
    scale: Option<u64>,
    /// How many items TPC-C has [default: 100000]
    #[arg(long)]
    items: Option<u64>,
    /// How many customers a district of TPC-C has [default: 3000]
    #[arg(long)]
    customers: Option<u64>,
    /// Number of clients
    #[arg(long, default_value_t = 8)]
    clients: u64,
    /// Duration of one round
    #[arg(long, value_parser = parse_duration, default_value = "5s")]
    duration: u64,
    /// Number of transactions of each client in a round, instead of a duration
    #[arg(long, conflicts_with = "duration")]
    transactions: Option<u64>,
    /// Number of rounds, of which the medians are taken
    #[arg(long, default_value_t = 3)]
    rounds: u64,
    /// Where the memory is: shm or tcp
    #[arg(long, value_enum, default_value = "shm")]
    fabric: FabricKind,
    /// The index of the store
    #[arg(long, value_parser = parse_index, default_value = "race")]
    index: IndexKind,
    /// The seed of the rows and of the clients' choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

impl TransactionsArgs {
    pub(super) fn run(self) -> Result<(), BenchError> {
        let options = ApplicationOptions {
            application: self.workload,
            scale: self.scale,
            items: self.items,
            customers: self.customers,
            clients: self.clients,
            limit: self
                .transactions
                .map_or(Limit::Duration(self.duration), Limit::Transactions),
            rounds: self.rounds,
            site: SiteOptions {
                fabric: self.fabric,
                index: self.index,
            },
            seed: self.seed,
            is_json: self.json,
        };
        let progress = Progress::new(100, self.workload.name());
        let text = applications::run(&options, &progress)?;
        drop(progress);
        println!("{text}");
        Ok(())
    }
}
