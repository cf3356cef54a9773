//! `farside-lab bench`, `figure`, `report`, `calibrate` and `trace`: the arguments, and what happens with them.
//!
//! Whoever owns the command line embeds [`BenchArgs`], [`FigureArgs`], [`ReportArgs`], [`CalibrateArgs`] and [`TraceArgs`] as
//! subcommands and calls their `run`. Exit status 2 and one line on standard error mean that an argument makes no sense.

mod bank;
mod embedded;
mod hot_keys;
mod lock_peers;
mod lock_services;
mod objects;
mod trace;
mod transactions;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use farside_cli::DeviceArgs;
use farside_fabric::sim::Profile;
use farside_index::tree::NodeLock;
use farside_index::{IndexKind, TreeKind};
use farside_lock::{LockKind, LockOptions};
use farside_sync::{CreditOptions, Scheme};

use self::bank::BankArgs;
use self::embedded::{EmbeddedArgs, WorkerArgs};
use self::hot_keys::{HotKeysArgs, HotKeysWorkerArgs};
use self::lock_peers::{LockPeersArgs, LockWorkerArgs};
use self::lock_services::LockServicesArgs;
use self::objects::ObjectsArgs;
pub use self::trace::TraceArgs;
use self::transactions::TransactionsArgs;
use crate::calibrate;
use crate::error::BenchError;
use crate::figure::variation::{Constant, Variation};
use crate::figure::{self, report};
use crate::latency::{self, CountAllocations, LatencyOptions};
use crate::lock::LockProgram;
use crate::progress::{Progress, say};
use crate::quantity::{parse_bytes, parse_duration};
use crate::report::{Report, heading};
use crate::stage::{Conditions, FabricKind, Setting};
use crate::store::{StoreProgram, TICK_NS, budget_of, index_by_name, index_names};
use crate::tree::{self, TreeProgram, tree_by_name};
use crate::verbs;
use crate::workload::{Population, TransactionWorkload, Workload};
use crate::{measure_lock, measure_store, measure_tree};

/// What messages begin with.
pub const PROGRAM: &str = "farside-lab";

/// How many clients share a compute node unless something else is said: a core each.
const LOCK_CLIENTS_PER_COMPUTE_NODE: u64 = 48;
const STORE_CLIENTS_PER_COMPUTE_NODE: u64 = 4;
const TREE_CLIENTS_PER_COMPUTE_NODE: u64 = 64;
const VERBS_CLIENTS_PER_COMPUTE_NODE: u64 = 64;
/// How long is measured: simulated, and in real time.
const SIMULATED_NS: u64 = 20_000_000;
const REAL_NS: u64 = 1_000_000_000;

/// One measurement.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    #[command(subcommand)]
    what: Bench,
}

#[derive(Subcommand, Clone, Debug)]
enum Bench {
    /// Clients that acquire and release locks
    Lock(LockArgs),
    /// Clients that search and change keys of an index
    Store(StoreArgs),
    /// Clients that get and set objects, under a lock for each
    Objects(ObjectsArgs),
    /// The raw verb rate of a fabric
    Verbs(VerbsArgs),
    /// GET over mapped memory against the latency of the memory itself
    Latency(LatencyArgs),
    /// The store embedded in a program, against single-process maps, LMDB and Redis (needs the feature `peers`)
    Embedded(EmbeddedArgs),
    /// A process of `bench embedded`
    #[command(hide = true)]
    EmbeddedWorker(WorkerArgs),
    /// Every lock over mapped memory, against the locks of the machine (needs the feature `peers`)
    LockPeers(LockPeersArgs),
    /// A process of `bench lock-peers`
    #[command(hide = true)]
    LockWorker(LockWorkerArgs),
    /// Processes that change a few keys, with one scheme after the other
    HotKeys(HotKeysArgs),
    /// A process of `bench hot-keys`
    #[command(hide = true)]
    HotKeysWorker(HotKeysWorkerArgs),
    /// Locks as a service: ours against Redis, Redlock and etcd (needs the feature `peers`, and their servers)
    LockServices(LockServicesArgs),
    /// Transfers between the accounts of a bank: our transactions and locks against Redis (needs redis-server)
    Bank(BankArgs),
    /// The transactions of TATP, TPC-C or SmallBank, and whether their rows are consistent afterwards
    Transactions(TransactionsArgs),
}

/// What every measurement with clients takes.
#[derive(Args, Clone, Debug)]
struct StageArgs {
    /// Where the memory is
    #[arg(long, value_enum, default_value = "sim")]
    fabric: FabricKind,
    /// NIC of the simulated fabric: cx4, cx5 or cx6
    #[arg(long, value_parser = parse_profile, default_value = "cx5")]
    profile: Profile,
    /// How long to measure: simulated time on `sim`, else real time [default: 20ms simulated, 1s real]
    #[arg(long, value_parser = parse_duration)]
    duration: Option<u64>,
    /// How long to run before that [default: half as long]
    #[arg(long, value_parser = parse_duration)]
    warm_up: Option<u64>,
    /// The seed of everything random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    device: DeviceArgs,
    /// Print one JSON object per line and nothing else
    #[arg(long)]
    json: bool,
}

#[derive(Args, Clone, Debug)]
struct LockArgs {
    #[command(flatten)]
    stage: StageArgs,
    /// Locks to measure, by name
    #[arg(long, value_delimiter = ',', value_parser = parse_lock, required = true)]
    lock: Vec<LockKind>,
    /// Number of clients
    #[arg(long, default_value_t = 1)]
    clients: u64,
    /// Number of compute nodes that they run on; threads on a real fabric [default: 48 clients each; one per core]
    #[arg(long)]
    cns: Option<u64>,
    /// Number of locks
    #[arg(long, default_value_t = 1)]
    locks: u64,
    /// How much more popular some locks are than others; 0 is uniform
    #[arg(long, default_value_t = 0.99)]
    theta: f64,
    /// Fraction of acquires in shared mode
    #[arg(long, default_value_t = 0.0)]
    read_ratio: f64,
    /// Number of words to read while a lock is held
    #[arg(long, default_value_t = 0)]
    section_verbs: u64,
    /// Take the locks of transactions, under two-phase locking: tatp or tpc-c. An operation is then a transaction; the workload
    /// determines how many locks there are, which it takes in which mode, and how long it works
    #[arg(long, value_parser = TransactionWorkload::by_name, conflicts_with_all = ["locks", "theta", "read_ratio", "section_verbs"])]
    workload: Option<TransactionWorkload>,
}

#[derive(Args, Clone, Debug)]
struct StoreArgs {
    #[command(flatten)]
    stage: StageArgs,
    /// Which index: pointer-array, race, smart, marlin, or a tree: chime, sherman, rolex, chime-learned; trees of data pointers end in -indirect
    #[arg(long, value_parser = AnyIndex::by_name, default_value = "pointer-array")]
    index: AnyIndex,
    /// Synchronisation schemes to measure, by name; trees of values have their own [default: optimistic]
    #[arg(long, value_delimiter = ',', value_parser = parse_scheme)]
    sync: Vec<Scheme>,
    /// Let a compute node's clients combine their writes of a key, and share their reads of it
    #[arg(long)]
    local_wc: bool,
    /// Write values in place, under a lock in the item, as SMART's leaves do; only with smart
    #[arg(long)]
    in_place: bool,
    /// Number of clients
    #[arg(long, default_value_t = 1)]
    clients: u64,
    /// Number of compute nodes that they run on; threads on a real fabric [default: 4 clients each; one per core]
    #[arg(long)]
    cns: Option<u64>,
    /// Number of keys at the start
    #[arg(long, default_value_t = 1_000_000)]
    items: u64,
    /// The workload: write-intensive, read-intensive, write-only, load, ycsb-a to ycsb-f
    #[arg(long, value_parser = Workload::by_name, default_value = "write-intensive")]
    workload: Workload,
    /// Bytes of a key
    #[arg(long, value_parser = parse_bytes, default_value = "8")]
    key_size: u64,
    /// Bytes of a value
    #[arg(long, value_parser = parse_bytes, default_value = "8")]
    value_size: u64,
    /// How much more popular some keys are than others; 0 is uniform
    #[arg(long, default_value_t = 0.99)]
    theta: f64,
    /// Cache of a compute node, for a tree with its hotspots [default: 100MB], or for smart, marlin or a tree of data pointers [default: 256MiB]
    #[arg(long, value_parser = parse_bytes_or_none)]
    cache: Option<u64>,
    /// How much of that is for hotspots of hashed leaves; with 0 neighbourhoods are always read [default: three tenths, at most 30MB]
    #[arg(long, value_parser = parse_bytes_or_none)]
    hotspots: Option<u64>,
    /// Let `load` start with a tree of all keys and run for the duration, rather than fill an empty tree
    #[arg(long)]
    filled: bool,
    /// Entries in a leaf of a tree [default: 64; 16 of rolex]
    #[arg(long)]
    span: Option<usize>,
    /// Entries in a neighbourhood of a hashed leaf [default: 8]
    #[arg(long)]
    neighbourhood: Option<usize>,
    /// How clients of a tree of values take turns to lock leaves: cas, spin, hierarchical, on-chip (simulated only), or the name of a
    /// lock [default: cas]
    #[arg(long, value_parser = parse_node_lock)]
    node_lock: Option<NodeLock>,
}

#[derive(Args, Clone, Debug)]
struct VerbsArgs {
    #[command(flatten)]
    stage: StageArgs,
    /// Number of READs in flight
    #[arg(long, default_value_t = 256)]
    in_flight: u64,
    /// Bytes that each returns
    #[arg(long, value_parser = parse_bytes, default_value = "64")]
    bytes: u64,
}

/// What `bench latency` takes.
#[derive(Args, Clone, Debug)]
pub struct LatencyArgs {
    /// Number of keys in the store
    #[arg(long, default_value_t = 10_000_000)]
    items: u64,
    /// Which index
    #[arg(long, value_parser = parse_index, default_value = "race")]
    index: IndexKind,
    /// How many slots a pointer array has; keys that share one cost a READ more [default: as many as items]
    #[arg(long)]
    slots: Option<u64>,
    /// Number of GETs in flight in the pipelined part
    #[arg(long, default_value_t = 16)]
    in_flight: u64,
    /// Number of rounds, of which the medians are taken
    #[arg(long, default_value_t = 7)]
    rounds: u64,
    /// A new file for the segment, say on a tmpfs mounted with huge=always [default: anonymous memory]
    #[arg(long)]
    segment: Option<PathBuf>,
    /// The seed of the keys
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

/// The sweep of a published figure.
#[derive(Args, Clone, Debug)]
pub struct FigureArgs {
    /// Figures, by name
    #[arg(required = true)]
    ids: Vec<String>,
    /// Run a smaller sweep that takes less than a minute
    #[arg(long)]
    quick: bool,
    /// The seed of workload and simulation
    #[arg(long)]
    seed: Option<u64>,
    /// Override a constant of the NIC model, to see which claims it affects; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    with: Vec<Constant>,
    /// Folder for data and plots
    #[arg(long, default_value = "out")]
    out: PathBuf,
}

/// What a profile of the NIC model follows from, and which claims depend on it.
#[derive(Args, Clone, Debug)]
pub struct CalibrateArgs {
    /// cx4, cx5 or cx6
    profile: String,
    /// Evaluate headline claims in a smaller set-up
    #[arg(long)]
    quick: bool,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

/// All figures on one page.
#[derive(Args, Clone, Debug)]
pub struct ReportArgs {
    /// Figures, by name [default: all]
    ids: Vec<String>,
    /// Run smaller sweeps that take less than a minute each
    #[arg(long)]
    quick: bool,
    /// Folder for data, plots and the page, report.html; existing results are not measured again
    #[arg(long, default_value = "out")]
    out: PathBuf,
    /// Rewrite the tables of these figures in this document; not with --quick
    #[arg(long, value_name = "FILE", conflicts_with = "quick")]
    tables: Option<PathBuf>,
    /// Run the simulated figures again, with another seed, nine tenths of the clients and four fifths of the keys, and report
    /// which claims are judged differently
    #[arg(long)]
    held_out: bool,
}

fn parse_profile(name: &str) -> Result<Profile, String> {
    Profile::named(name).ok_or_else(|| format!("`{name}` is not a profile: choose cx4, cx5 or cx6"))
}

fn choose_from<'a>(name: &str, what: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    format!(
        "`{name}` is no {what}: choose from {}",
        names.into_iter().collect::<Vec<_>>().join(", ")
    )
}

fn parse_bytes_or_none(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { parse_bytes(text) }
}

fn parse_lock(name: &str) -> Result<LockKind, String> {
    LockKind::by_name(name).ok_or_else(|| choose_from(name, "lock", LockKind::named().map(|(_, known)| known)))
}

fn parse_scheme(name: &str) -> Result<Scheme, String> {
    Scheme::by_name(name)
        .ok_or_else(|| choose_from(name, "synchronisation scheme", Scheme::named().map(|(_, known)| known)))
}

fn parse_node_lock(name: &str) -> Result<NodeLock, String> {
    NodeLock::by_name(name).ok_or_else(|| choose_from(name, "node lock", NodeLock::names()))
}

fn parse_index(name: &str) -> Result<IndexKind, String> {
    IndexKind::by_name(name).ok_or_else(|| choose_from(name, "index", IndexKind::ALL.map(|(_, known, _)| known)))
}

impl StageArgs {
    fn setting(&self, clients: u64, compute_nodes: Option<u64>, clients_per_compute_node: u64) -> Setting {
        let usual = match self.fabric {
            FabricKind::Sim => clients.div_ceil(clients_per_compute_node),
            _ => std::thread::available_parallelism()
                .map_or(1, |cores| cores.get() as u64)
                .min(clients),
        };
        let usual_ns = match self.fabric {
            FabricKind::Sim => SIMULATED_NS,
            _ => REAL_NS,
        };
        Setting {
            fabric: self.fabric,
            profile: self.profile.clone(),
            clients,
            compute_nodes: compute_nodes.unwrap_or(usual.max(1)),
            duration_ns: self.duration.unwrap_or(usual_ns),
            warm_up_ns: self.warm_up,
            conditions: Conditions::default(),
            device: self.device.options(),
            seed: self.seed,
        }
    }
}

/// An index that can be measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AnyIndex {
    /// One of a store.
    Table(IndexKind),
    /// A range index.
    Tree(TreeKind),
}

impl AnyIndex {
    fn by_name(name: &str) -> Result<Self, String> {
        let table = index_by_name(name).map(Self::Table);
        let found = table.or_else(|| tree_by_name(name).map(Self::Tree));
        let names = index_names().chain(TreeKind::of_values().map(TreeKind::name));
        found.ok_or_else(|| choose_from(name, "index", names))
    }
}

/// Turns a result into an exit status; says what went wrong.
fn exit(result: Result<(), BenchError>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{PROGRAM}: {error}");
            ExitCode::from(if matches!(error, BenchError::Argument(_)) { 2 } else { 1 })
        }
    }
}

impl BenchArgs {
    /// Measures and prints.
    #[must_use]
    pub fn run(self) -> ExitCode {
        exit(match self.what {
            Bench::Lock(args) => args.run(),
            Bench::Store(args) => args.run(),
            Bench::Objects(args) => args.run(),
            Bench::Verbs(args) => args.run(),
            Bench::Latency(args) => args.run(None),
            Bench::Embedded(args) => args.run(),
            Bench::EmbeddedWorker(args) => args.run(),
            Bench::LockPeers(args) => args.run(),
            Bench::LockWorker(args) => args.run(),
            Bench::HotKeys(args) => args.run(),
            Bench::HotKeysWorker(args) => args.run(),
            Bench::LockServices(args) => args.run(),
            Bench::Bank(args) => args.run(),
            Bench::Transactions(args) => args.run(),
        })
    }
}

/// Prints reports as they come.
struct Printer {
    is_json: bool,
    has_heading: bool,
}

impl Printer {
    fn new(is_json: bool) -> Self {
        Self {
            is_json,
            has_heading: false,
        }
    }

    fn print(&mut self, report: &Report) {
        if self.is_json {
            say(format_args!("{}", report.to_json()));
            return;
        }
        if !self.has_heading {
            say(format_args!("{}", heading()));
            self.has_heading = true;
        }
        say(format_args!("{}", report.to_row()));
    }
}

impl LockArgs {
    fn run(self) -> Result<(), BenchError> {
        let setting = self
            .stage
            .setting(self.clients, self.cns, LOCK_CLIENTS_PER_COMPUTE_NODE);
        let mut printer = Printer::new(self.stage.json);
        for kind in self.lock {
            let program = LockProgram {
                kind,
                options: LockOptions::default(),
                locks: self.workload.map_or(self.locks, |workload| workload.locks),
                transactions: self.workload,
                theta: if self.workload.is_some() { 0.0 } else { self.theta },
                read_ratio: self.read_ratio,
                section_verbs: self.section_verbs,
                failure_rate: 0.0,
                is_timed: false,
                noted: Arc::default(),
                seed: self.stage.seed,
            };
            let progress = Progress::new(100, kind.name());
            let report = measure_lock(&program, &setting, &mut None, &progress)?;
            drop(progress);
            printer.print(&report);
        }
        Ok(())
    }
}

impl StoreArgs {
    fn run(self) -> Result<(), BenchError> {
        match self.index {
            AnyIndex::Table(kind) => self.run_table(kind),
            AnyIndex::Tree(kind) => self.run_tree(kind),
        }
    }

    fn population(&self) -> Population {
        Population::new(self.items, self.workload, self.theta, self.stage.seed)
    }

    fn run_table(self, kind: IndexKind) -> Result<(), BenchError> {
        let of_trees = [
            ("--hotspots", self.hotspots.is_some()),
            ("--filled", self.filled),
            ("--span", self.span.is_some()),
            ("--neighbourhood", self.neighbourhood.is_some()),
            ("--node-lock", self.node_lock.is_some()),
        ];
        if let Some((option, _)) = of_trees.iter().find(|(_, is_given)| *is_given) {
            return Err(BenchError::Argument(format!(
                "{option} is for trees of values, which a {} is not; leave it out",
                kind.name()
            )));
        }
        if self.cache.is_some() && !kind.is_ordered() {
            let text = format!("--cache: clients remember nothing of a {}; leave it out", kind.name());
            return Err(BenchError::Argument(text));
        }
        let schemes = if self.sync.is_empty() {
            vec![Scheme::Optimistic]
        } else {
            self.sync.clone()
        };
        let setting = self
            .stage
            .setting(self.clients, self.cns, STORE_CLIENTS_PER_COMPUTE_NODE);
        let mut printer = Printer::new(self.stage.json);
        let mut memory = None;
        for scheme in schemes {
            let program = StoreProgram {
                index: kind,
                scheme,
                local_wc: self.local_wc,
                in_place: self.in_place,
                credits: CreditOptions::default(),
                population: self.population(),
                key_bytes: self.key_size as usize,
                value_bytes: self.value_size as usize,
                budget: budget_of(self.cache),
                compute_nodes: setting.compute_nodes,
                tick_ns: TICK_NS,
                seen: Arc::default(),
            };
            let progress = Progress::new(100, scheme.name());
            let report = measure_store(&program, &setting, &mut memory, &progress)?;
            drop(progress);
            printer.print(&report);
        }
        Ok(())
    }

    fn run_tree(self, kind: TreeKind) -> Result<(), BenchError> {
        if !self.sync.is_empty() {
            return Err(BenchError::Argument(format!(
                "--sync: {} locks its leaves, whatever the scheme; leave it out",
                kind.name()
            )));
        }
        if self.key_size != tree::ITEM_HALF_BYTES {
            return Err(BenchError::Argument(format!("--key-size is 8 in {}", kind.name())));
        }
        if !kind.is_hashed() && (self.hotspots.is_some() || self.neighbourhood.is_some()) {
            return Err(BenchError::Argument(format!(
                "--hotspots and --neighbourhood are for hashed leaves; {} reads whole leaves",
                kind.name()
            )));
        }
        if self.in_place {
            return Err(BenchError::Argument(format!(
                "--in-place: {} has its values in its leaves anyway; leave it out",
                kind.name()
            )));
        }
        let setting = self
            .stage
            .setting(self.clients, self.cns, TREE_CLIENTS_PER_COMPUTE_NODE);
        let population = if self.filled {
            self.population().filled()
        } else {
            self.population()
        };
        let usual = TreeProgram::published(kind, population, setting.compute_nodes);
        let cache_bytes = self.cache.unwrap_or(usual.cache_bytes);
        let program = TreeProgram {
            span: self.span.unwrap_or(usual.span),
            neighbourhood: self.neighbourhood.unwrap_or(usual.neighbourhood),
            value_bytes: self.value_size,
            cache_bytes,
            hotspot_bytes: self.hotspots.unwrap_or(tree::usual_hotspot_bytes(kind, cache_bytes)),
            local_wc: self.local_wc,
            node_lock: self.node_lock.unwrap_or_default(),
            turn_capacity: tree::turn_capacity(&setting),
            ..usual
        };
        let progress = Progress::new(100, kind.name());
        let report = measure_tree(&program, &setting, &mut None, &progress)?;
        drop(progress);
        Printer::new(self.stage.json).print(&report);
        Ok(())
    }
}

impl VerbsArgs {
    fn run(self) -> Result<(), BenchError> {
        let compute_nodes = match self.stage.fabric {
            FabricKind::Sim => self.in_flight.div_ceil(VERBS_CLIENTS_PER_COMPUTE_NODE).max(1),
            _ => 1,
        };
        let setting = self.stage.setting(self.in_flight, Some(compute_nodes), 1);
        let bytes = u32::try_from(self.bytes).map_err(|_| BenchError::argument("--bytes is at most 128MiB"))?;
        let report = verbs::run(&setting, bytes)?;
        if self.stage.json {
            say(format_args!(
                "{}",
                serde_json::to_string(&report).expect("a report is plain data")
            ));
        } else {
            say(format_args!("{}", report.to_row()));
        }
        Ok(())
    }
}

impl LatencyArgs {
    /// Measures and prints. `count_allocations` is for programs whose allocator counts.
    ///
    /// # Errors
    /// See [`BenchError`].
    pub fn run(self, count_allocations: Option<CountAllocations<'_>>) -> Result<(), BenchError> {
        let options = LatencyOptions {
            items: self.items,
            index: self.index,
            slots: self.slots.unwrap_or(self.items),
            in_flight: self.in_flight,
            rounds: self.rounds,
            segment: self.segment,
            seed: self.seed,
        };
        let progress = Progress::new(100, "latency");
        let report = latency::run(&options, count_allocations, &progress)?;
        drop(progress);
        if self.json {
            say(format_args!(
                "{}",
                serde_json::to_string(&report).expect("a report is plain data")
            ));
        } else {
            say(format_args!("{}", report.to_table()));
        }
        Ok(())
    }
}

impl FigureArgs {
    /// Runs the sweeps, writes data and plots, and prints the verdicts.
    #[must_use]
    pub fn run(self) -> ExitCode {
        let variation = Variation::new(self.seed, &self.with);
        exit(figure::run_all(&self.ids, self.quick, &variation, &self.out))
    }
}

impl CalibrateArgs {
    /// Fits the constants, varies them, and prints what came out.
    #[must_use]
    pub fn run(self) -> ExitCode {
        exit(self.calibrate())
    }

    fn calibrate(self) -> Result<(), BenchError> {
        let calibration = calibrate::run(&calibrate::testbed(&self.profile)?, self.quick)?;
        if self.json {
            say(format_args!("{}", calibration.to_json()));
        } else {
            say(format_args!("{}", calibration.to_text().trim_end()));
        }
        Ok(())
    }
}

impl ReportArgs {
    /// Runs what has not been run yet, prints a line for each figure, and writes the page.
    #[must_use]
    pub fn run(self) -> ExitCode {
        let written = match report::run(&self.ids, self.quick, &self.out, |line| say(format_args!("{line}"))) {
            Ok(written) => written,
            Err(error) => return exit(Err(error)),
        };
        say(format_args!("{}", written.path.display()));
        if let Some(document) = &self.tables {
            match report::write_tables(document, &self.out) {
                Ok(count) => say(format_args!("{}: {count} tables", document.display())),
                Err(error) => return exit(Err(error)),
            }
        }
        if self.held_out {
            let tell = |line: &str| say(format_args!("{line}"));
            match report::held_out(written.entries, self.quick, &self.out, tell) {
                Ok(found) => say(format_args!("{found}")),
                Err(error) => return exit(Err(error)),
            }
        }
        match written.failures {
            0 => ExitCode::SUCCESS,
            count => {
                eprintln!("{PROGRAM}: {count} of the figures failed; the page says which");
                ExitCode::from(1)
            }
        }
    }
}
