//! Applications: the transactions of TATP, TPC-C and SmallBank, as transactions of the store.
//!
//! On the path: what somebody would build who has an application and no other database. Each has its rows under keys of their own
//! (`row`), the published mix of transactions, and an audit. A round lets clients work, with one transaction under way
//! each; after it nobody works, every row is read, and the audit looks whether they belong together and to what the clients
//! say they have done. A run whose rows do not fails, whatever it has measured.
//!
//! How transactions use the store:
//!  - keys that are known before go to `Session::transaction_on`, which reads them as of one instant;
//!  - keys that depend on what other rows say are read one after the other in `Session::transaction`;
//!  - what no transaction ever changes (which subscriber has a number, what an item costs, who has a last name) is read before
//!    the transaction, as it needs no lock in [`crate::workload::transactions`].
//!
//! The memory is mapped (`--fabric shm`), or belongs to a memory node in a thread, over TCP on the loopback (`tcp`). Clients are
//! tasks on as many threads as there are cores; those of a thread share one opening of the store.
//!
//! What differs from the benchmarks as they are published: there is no time to think or to type between two transactions and
//! no terminal, so what comes out is not to be called a tpmC or an MQTh; and the store keeps nothing on disk.

mod client;
mod report;
mod row;
mod site;
mod smallbank;
mod tatp;
mod tpc_c;

use self::client::Application;
use self::report::Report;
use self::site::Site;
use self::smallbank::Smallbank;
use self::tatp::Tatp;
use self::tpc_c::{Cardinality, TpcC};
use crate::error::BenchError;
use crate::progress::Progress;
use crate::stage::FabricKind;
use farside_kv::IndexKind;

/// How many clients there may be.
const CLIENTS_MAX: u64 = 1_000;

/// Which application; see the module of each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApplicationKind {
    /// A home location register of a telephone network.
    Tatp,
    /// A wholesaler with warehouses.
    TpcC,
    /// A bank with two accounts for each customer.
    Smallbank,
}

impl ApplicationKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Tatp, Self::TpcC, Self::Smallbank];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tatp => "tatp",
            Self::TpcC => "tpc-c",
            Self::Smallbank => "smallbank",
        }
    }

    /// What there is more of with a larger scale.
    fn scaled(self) -> &'static str {
        match self {
            Self::Tatp => "subscribers",
            Self::TpcC => "warehouses",
            Self::Smallbank => "customers",
        }
    }

    /// The scale unless something else is said, and the smallest and the largest one.
    fn scales(self) -> (u64, [u64; 2]) {
        match self {
            Self::Tatp => (tatp::SUBSCRIBERS, tatp::SUBSCRIBERS_RANGE),
            Self::TpcC => (tpc_c::WAREHOUSES, tpc_c::WAREHOUSES_RANGE),
            Self::Smallbank => (smallbank::CUSTOMERS, smallbank::CUSTOMERS_RANGE),
        }
    }
}

/// When a client has done enough.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// After so many nanoseconds, before which it runs for half as long.
    Duration(u64),
    /// After so many transactions, all of which count.
    Transactions(u64),
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct ApplicationOptions {
    /// Which application.
    pub application: ApplicationKind,
    /// How many subscribers, warehouses or customers there are; `None` is what loads within seconds.
    pub scale: Option<u64>,
    /// Items of TPC-C, 100 000 in the specification; `None` is that.
    pub items: Option<u64>,
    /// Customers in a district of TPC-C, 3000 in the specification; `None` is that.
    pub customers: Option<u64>,
    /// How many clients there are.
    pub clients: u64,
    /// How long, or how much, each works in a round.
    pub limit: Limit,
    /// Of how many rounds the medians are taken; each goes on with what the last one has left.
    pub rounds: u64,
    /// Where the rows are.
    pub site: SiteOptions,
    /// Decides the rows and what the clients draw.
    pub seed: u64,
    /// Print JSON and nothing else.
    pub is_json: bool,
}

/// What store the rows are in.
#[derive(Clone, Copy, Debug)]
pub struct SiteOptions {
    /// Mapped memory, or TCP.
    pub fabric: FabricKind,
    /// The index of the store.
    pub index: IndexKind,
}

impl ApplicationOptions {
    /// The scale, if everything makes sense.
    fn check(&self) -> Result<u64, BenchError> {
        let refuse = |text: String| Err(BenchError::Argument(text));
        let (usual, [least, most]) = self.application.scales();
        let scale = self.scale.unwrap_or(usual);
        if !(least..=most).contains(&scale) {
            return refuse(format!(
                "--scale is the number of {}, from {least} to {most}",
                self.application.scaled()
            ));
        }
        if self.application != ApplicationKind::TpcC && (self.items.is_some() || self.customers.is_some()) {
            return refuse("--items and --customers are for tpc-c".to_owned());
        }
        if !(1..=CLIENTS_MAX).contains(&self.clients) {
            return refuse(format!("--clients is a number from 1 to {CLIENTS_MAX}"));
        }
        if self.rounds == 0 || self.limit == Limit::Transactions(0) {
            return refuse("--rounds and --transactions are at least 1".to_owned());
        }
        if !matches!(self.site.fabric, FabricKind::Shm | FabricKind::Tcp) {
            return refuse("--fabric is shm or tcp".to_owned());
        }
        Ok(scale)
    }

    fn cardinality(&self, warehouses: u64) -> Result<Cardinality, BenchError> {
        let usual = Cardinality::of(warehouses);
        let cardinality = Cardinality {
            items: self.items.unwrap_or(usual.items),
            customers: self.customers.unwrap_or(usual.customers),
            ..usual
        };
        cardinality.check()?;
        Ok(cardinality)
    }
}

/// Measures, and returns what to print.
///
/// # Errors
/// See [`BenchError`]; [`BenchError::Unsound`] if the rows do not belong together after a round.
pub fn run(options: &ApplicationOptions, progress: &Progress) -> Result<String, BenchError> {
    let scale = options.check()?;
    let report = match options.application {
        ApplicationKind::Tatp => run_rounds(Tatp::new(scale, options.seed), options, scale, progress),
        ApplicationKind::TpcC => {
            let application = TpcC::new(options.cardinality(scale)?, options.seed);
            run_rounds(application, options, scale, progress)
        }
        ApplicationKind::Smallbank => run_rounds(Smallbank::new(scale, options.seed), options, scale, progress),
    }?;
    Ok(if options.is_json {
        report.to_json()
    } else {
        report.to_table()
    })
}

fn run_rounds<A: Application>(
    application: A,
    options: &ApplicationOptions,
    scale: u64,
    progress: &Progress,
) -> Result<Report, BenchError> {
    let mut site = Site::start(application, options.site, progress)?;
    let (mut tallies, mut verified) = (Vec::new(), (Vec::new(), 0));
    for round in 0..options.rounds {
        progress.set(round * 100 / options.rounds);
        progress.label(options.application.name());
        tallies.push(site.measure(options.clients, options.limit)?);
        progress.label("audit");
        verified = site.check()?;
    }
    site.stop();
    Ok(Report::new(options, scale, &tallies, verified))
}

#[cfg(test)]
mod tests;
