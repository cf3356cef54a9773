//! Processes that change a few keys of one store, by one scheme after the other, on this machine's memory and network.
//!
//! Every scheme has a store of its own, mapped by all processes or served by a memory node (a thread of this process).
//! In each round the schemes take turns, and the processes, which stay, join the store whose turn it is. A scheme is
//! compared with the first one within a round, since the machine is not as fast in every round; what is reported are the
//! medians.

mod worker;

use std::path::{Path, PathBuf};

use farside_fabric::host::HostClock;
use farside_fabric::shm::{self, Segment, SegmentOptions};
use farside_sync::Scheme;
use serde::{Deserialize, Serialize};

pub use self::worker::serve;
use crate::error::BenchError;
use crate::latency::median;
use crate::program::Program as _;
use crate::progress::Progress;
use crate::quantity::with_prefix;
use crate::stage::FabricKind;
use crate::stage::machine::{Service, on_this_thread};
use crate::worker_process::{Folder, WorkerProcess};

/// How long after the last process has joined the clients begin: the news has to reach all.
const LEAD_NS: u64 = 20_000_000;

/// What to measure.
#[derive(Clone, Debug)]
pub struct HotKeysOptions {
    /// How the processes reach the memory: `Shm` or `Tcp`.
    pub fabric: FabricKind,
    /// What the clients do.
    pub clients: Clients,
    /// By which schemes; the others are compared with the first.
    pub schemes: Vec<Scheme>,
    /// Of how many rounds the medians are taken.
    pub rounds: u64,
    /// A folder for the memory.
    pub folder: PathBuf,
    /// Print JSON and nothing else.
    pub is_json: bool,
}

/// What the clients do.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub struct Clients {
    /// In how many processes they are.
    pub processes: u64,
    /// How many are in each.
    pub per_process: u64,
    /// How many keys there are.
    pub keys: u64,
    /// How much more popular some keys are than others; 0 is uniform.
    pub theta: f64,
    /// A workload's name.
    pub workload: String,
    /// How long is measured in a round, in nanoseconds.
    pub duration_ns: u64,
}

/// What a process is told when it starts.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub struct HotKeysWorkerOptions {
    fabric: FabricKind,
    clients: Clients,
    /// Each scheme's name, and where its memory is: a file, or an address.
    stores: Vec<(String, String)>,
    /// Which of the processes it is, from 0.
    member: u64,
}

/// What came out for one scheme.
#[derive(Clone, Debug, Serialize)]
struct Row {
    scheme: &'static str,
    throughput_ops_s: f64,
    p50_us: f64,
    p99_us: f64,
    /// Times the first scheme, in the same round.
    ratio: f64,
    /// Of 100 writes so many were combined with another client's.
    combined_percent: f64,
}

/// What one process, or all of them, did in one turn.
#[derive(Clone, Copy, Debug)]
struct Turn {
    operations: f64,
    p50_ns: f64,
    p99_ns: f64,
    combined: f64,
    writes: f64,
}

/// Measures, and says what came out.
///
/// # Errors
/// See [`BenchError`].
pub fn run(options: &HotKeysOptions, progress: &Progress) -> Result<String, BenchError> {
    if !matches!(options.fabric, FabricKind::Shm | FabricKind::Tcp) {
        return Err(BenchError::argument("--fabric: processes meet over shm or tcp"));
    }
    let Clients {
        processes,
        per_process,
        keys,
        duration_ns,
        ..
    } = options.clients;
    if [options.rounds, processes, per_process, keys, duration_ns].contains(&0) {
        return Err(BenchError::argument(
            "--rounds, --processes, --clients, --keys and --duration are more than 0",
        ));
    }
    let folder = Folder::make(&options.folder, "hot-keys")?;
    let stores: Vec<Place> = (options.schemes.iter())
        .map(|&scheme| Place::make(scheme, options, folder.path()))
        .collect::<Result<_, _>>()?;
    let mut workers: Vec<WorkerProcess> = (0..options.clients.processes)
        .map(|member| start_worker(options, &stores, member))
        .collect::<Result<_, _>>()?;
    let mut turns: Vec<Vec<Turn>> = vec![Vec::new(); stores.len()];
    for round in 0..options.rounds {
        progress.set(round * 100 / options.rounds);
        for (index, turns) in turns.iter_mut().enumerate() {
            turns.push(take_turn(&mut workers, index)?);
        }
    }
    drop(workers);
    stores.into_iter().for_each(Place::close);
    let rows: Vec<Row> = (options.schemes.iter().zip(&turns))
        .map(|(scheme, own)| row(scheme.name(), own, &turns[0], &options.clients))
        .collect();
    Ok(if options.is_json {
        let lines: Vec<String> = rows.iter().map(|row| to_json(row, options)).collect();
        lines.join("\n")
    } else {
        to_table(&rows, options)
    })
}

/// The memory of one scheme's store.
struct Place {
    scheme: Scheme,
    name: String,
    service: Option<Service>,
}

impl Place {
    fn make(scheme: Scheme, options: &HotKeysOptions, folder: &Path) -> Result<Self, BenchError> {
        let program = worker::program(&options.clients, scheme)?;
        let path = folder.join(scheme.name());
        let segment = Segment::create(&path, SegmentOptions::with_memory(program.memory_bytes()))?;
        on_this_thread(async {
            let endpoint = shm::Fabric::new(vec![segment.clone()]).endpoint()?;
            program.prepare(endpoint, segment.region()).await
        })??;
        let service = match options.fabric {
            FabricKind::Tcp => Some(Service::start(&segment)?),
            _ => None,
        };
        let name = match &service {
            Some(service) => service.address().to_owned(),
            None => path.to_string_lossy().into_owned(),
        };
        Ok(Self { scheme, name, service })
    }

    fn close(self) {
        if let Some(service) = self.service {
            service.stop();
        }
    }
}

fn start_worker(options: &HotKeysOptions, stores: &[Place], member: u64) -> Result<WorkerProcess, BenchError> {
    let order = HotKeysWorkerOptions {
        fabric: options.fabric,
        clients: options.clients.clone(),
        stores: (stores.iter())
            .map(|store| (store.scheme.name().to_owned(), store.name.clone()))
            .collect(),
        member,
    };
    let order = serde_json::to_string(&order).expect("an order is plain data");
    WorkerProcess::start(["hot-keys-worker".into(), order.into()])
}

/// All processes use one store for a while.
fn take_turn(workers: &mut [WorkerProcess], store: usize) -> Result<Turn, BenchError> {
    for worker in workers.iter_mut() {
        worker.tell(&store.to_string())?;
    }
    for worker in workers.iter_mut() {
        worker.answer()?;
    }
    let start_ns = HostClock.now_ns() + LEAD_NS;
    for worker in workers.iter_mut() {
        worker.tell(&start_ns.to_string())?;
    }
    let mut sum = Turn {
        operations: 0.0,
        p50_ns: 0.0,
        p99_ns: 0.0,
        combined: 0.0,
        writes: 0.0,
    };
    for worker in workers.iter_mut() {
        let Turn {
            operations,
            p50_ns,
            p99_ns,
            combined,
            writes,
        } = worker::turn_of(&worker.answer()?)?;
        sum = Turn {
            operations: sum.operations + operations,
            // Of the process that had to wait longest.
            p50_ns: sum.p50_ns.max(p50_ns),
            p99_ns: sum.p99_ns.max(p99_ns),
            combined: sum.combined + combined,
            writes: sum.writes + writes,
        };
    }
    Ok(sum)
}

fn row(scheme: &'static str, own: &[Turn], first: &[Turn], clients: &Clients) -> Row {
    let middle = |of: &dyn Fn(&Turn) -> f64| median(own.iter().map(of).collect());
    let ratios = own
        .iter()
        .zip(first)
        .map(|(own, first)| own.operations / first.operations);
    let combined: f64 = own.iter().map(|turn| turn.combined).sum();
    let writes: f64 = own.iter().map(|turn| turn.writes).sum();
    Row {
        scheme,
        throughput_ops_s: middle(&|turn| turn.operations) * 1e9 / clients.duration_ns as f64,
        p50_us: middle(&|turn| turn.p50_ns) / 1e3,
        p99_us: middle(&|turn| turn.p99_ns) / 1e3,
        ratio: median(ratios.collect()),
        combined_percent: combined * 100.0 / writes.max(1.0),
    }
}

fn to_json(row: &Row, options: &HotKeysOptions) -> String {
    #[derive(Serialize)]
    struct Line<'a> {
        kind: &'static str,
        fabric: FabricKind,
        #[serde(flatten)]
        clients: &'a Clients,
        rounds: u64,
        #[serde(flatten)]
        row: &'a Row,
    }
    let line = Line {
        kind: "hot-keys",
        fabric: options.fabric,
        clients: &options.clients,
        rounds: options.rounds,
        row,
    };
    serde_json::to_string(&line).expect("a report is plain data")
}

fn to_table(rows: &[Row], options: &HotKeysOptions) -> String {
    let Clients {
        processes,
        per_process,
        keys,
        theta,
        workload,
        ..
    } = &options.clients;
    let mut text = format!(
        "{workload} on {keys} keys (Zipf {theta}), {processes} processes of {per_process} clients over {}, medians of {} \
         rounds\n{:16} {:>12} {:>9} {:>9} {:>8} {:>10}",
        options.fabric.name(),
        options.rounds,
        "scheme",
        "operations/s",
        "P50, us",
        "P99, us",
        "times",
        "combined"
    );
    for row in rows {
        text += &format!(
            "\n{:16} {:>12} {:>9.1} {:>9.1} {:>8.2} {:>8.1} %",
            row.scheme,
            with_prefix(row.throughput_ops_s),
            row.p50_us,
            row.p99_us,
            row.ratio,
            row.combined_percent
        );
    }
    text
}
