//! What is printed: one line of JSON, whose keys scripts rely on, or a table.

use std::collections::BTreeMap;

use farside_fabric::CounterSnapshot;
use farside_fabric::VerbKind;
use farside_index::Shared;
use farside_lock::Mode;
use farside_lock::phases::{Phase, Phases};
use farside_sync::Scheme;
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::quantity::with_prefix;
use crate::recorder::Transactions;
use crate::stage::{FabricKind, Outcome, Setting};
use crate::store::{Growth, Seen};
use crate::tree::Structure;
use crate::workload::Operation;

/// One measurement of a lock, a store or an object store. Keys without a meaning for it are absent.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// `lock`, `store` or `objects`.
    pub kind: &'static str,
    /// Name of the fabric.
    pub fabric: &'static str,
    /// Name of the NIC profile, on the simulated fabric.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// What was measured.
    #[serde(flatten)]
    pub subject: Subject,
    /// How many clients.
    pub clients: u64,
    /// On how many compute nodes; threads on a real fabric.
    pub cns: u64,
    /// Skew of the popularity of keys or locks, unless transactions choose them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub theta: Option<f64>,
    /// The seed.
    pub seed: u64,
    /// Operations that ended while it counted.
    pub operations: u64,
    /// Operations per second of the fabric's time.
    pub throughput_ops_s: f64,
    /// Time of an operation.
    pub latency_us: Latency,
    /// Time until the lock was granted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acquire_us: Option<Latency>,
    /// The same for the most popular lock alone, on the simulated fabric.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acquire_hottest_us: Option<Latency>,
    /// Time that it took to give the lock back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release_us: Option<Latency>,
    /// Verbs, bytes and retries for each operation.
    pub per_op: PerOperation,
    /// Verbs of the acquire alone, where no two clients share an endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_acquire: Option<PerAcquire>,
    /// The share of compare-and-swaps that were retries, for locks that retry them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_rate: Option<f64>,
    /// What clients spent their time on, if they noted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phases_us: Option<PhaseTimes>,
    /// Resets of DecLocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resets: Option<ResetTimes>,
    /// What the transactions were whose locks were taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transactions: Option<TransactionTimes>,
    /// Operations per second in each part of the time that counts, if it was cut into parts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slots_ops_s: Vec<f64>,
    /// How many operations of each kind ended while it counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mix: Option<Mix>,
    /// Operations that went with another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub combine: Option<Combine>,
    /// How the index grew, from the first key on, if it is one that does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub growth: Option<Growth>,
    /// What was seen of the index, if it is a tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structure: Option<Structure>,
    /// What each memory node executed.
    pub nodes: Vec<Node>,
    /// Bytes of a compute node's cache: what it remembers of the index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_bytes: Option<u64>,
    /// Bytes of what a compute node remembers of contention: the most of any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credit_bytes: Option<u64>,
    /// Bytes of far memory for each data pointer: itself, and its lock entry if the scheme has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pointer_bytes: Option<u64>,
    /// Bytes in use at the memory nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// What only a simulation has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sim: Option<Simulation>,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Subject {
    /// A lock.
    Lock {
        /// Its name.
        lock: &'static str,
        /// How many there were.
        locks: u64,
        /// The share of acquires in shared mode, unless transactions choose it.
        #[serde(skip_serializing_if = "Option::is_none")]
        read_ratio: Option<f64>,
        /// The transactions whose locks were taken.
        #[serde(skip_serializing_if = "Option::is_none")]
        workload: Option<&'static str>,
    },
    /// A store.
    Store {
        /// Name of the index.
        index: &'static str,
        /// Name of the scheme; a tree has none but its own.
        #[serde(skip_serializing_if = "Option::is_none")]
        sync: Option<&'static str>,
        /// Whether the clients of a compute node combine their writes.
        local_wc: bool,
        /// Keys at the start.
        items: u64,
        /// Name of the workload.
        workload: &'static str,
    },
    /// An object store.
    Objects {
        /// Name of the lock that each object has.
        lock: &'static str,
        /// How many objects there were.
        objects: u64,
        /// The most bytes that an object can have, on average.
        object_bytes: f64,
        /// Name of the workload, or the file of the trace.
        workload: String,
    },
}

impl Subject {
    /// What is measured.
    fn kind(&self) -> &'static str {
        match self {
            Self::Lock { .. } => "lock",
            Self::Store { .. } => "store",
            Self::Objects { .. } => "objects",
        }
    }
}

/// A distribution of times, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Longest.
    pub max: f64,
}

/// What a client spends its time on, on average, in microseconds; the names are those of ShiftLock's table 2.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PhaseTimes {
    /// For each acquire of a writer.
    pub writer: WriterPhases,
    /// For each acquire of a reader.
    pub reader: ReaderPhases,
    /// For each release.
    pub release: ReleasePhases,
}

/// See [`PhaseTimes`].
#[derive(Clone, Copy, Debug, Serialize)]
pub struct WriterPhases {
    /// The first atomic.
    pub ia: f64,
    /// Telling the one in front.
    pub np: f64,
    /// Waiting for the one in front.
    pub wp: f64,
    /// Waiting for readers.
    pub wr: f64,
    /// The last three together.
    pub queue: f64,
    /// Retries.
    pub rt: f64,
}

/// See [`PhaseTimes`].
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ReaderPhases {
    /// The first atomic.
    pub ia: f64,
    /// Waiting for writers.
    pub ww: f64,
    /// Retries.
    pub rt: f64,
}

/// See [`PhaseTimes`].
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ReleasePhases {
    /// The atomic or the WRITE.
    pub ia: f64,
    /// Waiting for the one behind, and telling it.
    pub ns: f64,
}

impl PhaseTimes {
    /// Sums the notes of several sites up.
    #[must_use]
    pub fn of(sites: &[Phases]) -> Self {
        let acquires = |mode| sites.iter().map(|site| site.acquires(mode)).sum::<u64>();
        let spent = |mode, phase| sites.iter().map(|site| site.spent_ns(mode, phase)).sum::<u64>();
        let each = |ns: u64, count: u64| ns as f64 / count.max(1) as f64 / 1e3;
        let (writers, readers) = (acquires(Mode::Exclusive), acquires(Mode::Shared));
        let writer = |phase| each(spent(Mode::Exclusive, phase), writers);
        let reader = |phase| each(spent(Mode::Shared, phase), readers);
        let both = |phase| spent(Mode::Exclusive, phase) + spent(Mode::Shared, phase);
        let [np, wp, wr] = [Phase::Introduce, Phase::AwaitWriter, Phase::AwaitReaders].map(writer);
        Self {
            writer: WriterPhases {
                ia: writer(Phase::Enter),
                np,
                wp,
                wr,
                queue: np + wp + wr,
                rt: writer(Phase::Retry),
            },
            reader: ReaderPhases {
                ia: reader(Phase::Enter),
                ww: reader(Phase::AwaitTurn),
                rt: reader(Phase::Retry),
            },
            release: ReleasePhases {
                ia: each(both(Phase::Leave), writers + readers),
                ns: each(both(Phase::Pass), writers + readers),
            },
        }
    }
}

/// Resets of DecLocks.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ResetTimes {
    /// How many.
    pub count: u64,
    /// How many for each operation.
    pub per_op: f64,
    /// How long one took on average, in microseconds.
    pub mean_us: f64,
}

/// Transactions that committed, and what became of others.
#[derive(Clone, Debug, Serialize)]
pub struct TransactionTimes {
    /// Locks of a transaction.
    pub locks_mean: f64,
    /// The share of them that it asked for in shared mode.
    pub shared_rate: f64,
    /// How often a transaction was done again since a lease had run out.
    pub aborts: f64,
    /// By type.
    pub types: BTreeMap<&'static str, TypeTimes>,
}

/// Transactions of one type.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct TypeTimes {
    /// How many.
    pub count: u64,
    /// From the first acquire to the last release.
    pub latency_us: Latency,
}

impl TransactionTimes {
    /// Sums up what was recorded of so many.
    #[must_use]
    pub fn of(recorded: &Transactions, operations: u64) -> Self {
        let count = operations.max(1) as f64;
        let locks = recorded.shared + recorded.exclusive;
        let types = recorded.latency.iter().map(|(kind, latency)| {
            let times = TypeTimes {
                count: latency.len(),
                latency_us: Latency::of(latency),
            };
            (kind.name(), times)
        });
        Self {
            locks_mean: locks as f64 / count,
            shared_rate: recorded.shared as f64 / locks.max(1) as f64,
            aborts: recorded.aborts as f64 / count,
            types: types.collect(),
        }
    }
}

/// Verbs by kind, per operation.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Verbs {
    /// READs.
    pub reads: f64,
    /// WRITEs.
    pub writes: f64,
    /// Compare-and-swaps and fetch-and-adds of every form.
    pub atomics: f64,
    /// SENDs.
    pub sends: f64,
}

/// What an acquire costs on average.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PerAcquire {
    /// Verbs.
    #[serde(flatten)]
    pub verbs: Verbs,
    /// All but SENDs: what memory nodes execute.
    pub one_sided: f64,
}

/// What an operation costs on average.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PerOperation {
    /// Verbs.
    #[serde(flatten)]
    pub verbs: Verbs,
    /// Bytes that READs and atomics returned.
    pub bytes_read: f64,
    /// Bytes that WRITEs, atomics and SENDs carried.
    pub bytes_written: f64,
    /// How often part of it was done again.
    pub retries: f64,
}

/// Operations by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Mix {
    /// SEARCHes.
    pub search: u64,
    /// UPDATEs.
    pub update: u64,
    /// INSERTs.
    pub insert: u64,
    /// Scans.
    pub scan: u64,
    /// Reads of a value followed by its replacement.
    pub read_modify_write: u64,
}

impl Mix {
    fn of([search, update, insert, scan, read_modify_write]: [u64; Operation::ALL.len()]) -> Self {
        Self {
            search,
            update,
            insert,
            scan,
            read_modify_write,
        }
    }
}

/// How often operations go with another one.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Combine {
    /// The share of writes that returned with another of their compute node.
    pub local_rate: f64,
    /// How many went together then, on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_batch_mean: Option<f64>,
    /// The share of searches that did.
    pub read_rate: f64,
    /// The share of writes that met others elsewhere: in a queue, or by being retried as often as makes a key hot; in
    /// a simulation, like what follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contended_rate: Option<f64>,
    /// The share of writes that others made redundant: both of the above (CIDER, section 3.1: the ideal WC rate).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redundant_rate: Option<f64>,
    /// The share of the contended writes that went the pessimistic way (CIDER, section 5.2.1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found_rate: Option<f64>,
    /// The share of the pessimistic writes that went together with others, there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub together_rate: Option<f64>,
    /// The share of writes for which somebody acted in a queue (CIDER, section 3.1: the WC rate).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub global_rate: Option<f64>,
    /// How many went together then, on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_mean: Option<f64>,
    /// The share of writes that took a lock, or queued up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pessimistic_rate: Option<f64>,
}

impl Combine {
    /// What went together on compute nodes, of an index that knows nothing of others.
    #[must_use]
    pub fn local(shared: Shared) -> Self {
        let rate = |part: u64, all: u64| part as f64 / all.max(1) as f64;
        let local = shared.writes;
        Self {
            local_rate: rate(local.combined, local.asked),
            local_batch_mean: (local.batches > 0).then(|| 1.0 + rate(local.combined, local.batches)),
            read_rate: rate(shared.reads.combined, shared.reads.asked),
            contended_rate: None,
            redundant_rate: None,
            found_rate: None,
            together_rate: None,
            global_rate: None,
            batch_mean: None,
            pessimistic_rate: None,
        }
    }

    /// From what was counted, for writes and searches as in `mix`; without it nothing is known but what went together
    /// locally.
    #[must_use]
    pub fn of(seen: &Seen, scheme: Scheme, mix: Option<&Mix>) -> Self {
        let (shared, combined) = (seen.shared(), seen.combined());
        let rate = |part: u64, all: u64| part as f64 / all.max(1) as f64;
        let local = Self::local(shared);
        let local_rate = local.local_rate;
        let writes = mix.map(|mix| mix.update + mix.insert + mix.read_modify_write);
        let queued = writes.filter(|_| scheme.needs_locks());
        let contended = combined.contended + combined.missed;
        let switches = scheme.switches();
        Self {
            contended_rate: queued.map(|writes| rate(contended, writes)),
            redundant_rate: queued.map(|writes| local_rate + rate(contended, writes)),
            found_rate: queued.filter(|_| switches).map(|_| rate(combined.contended, contended)),
            together_rate: queued
                .filter(|_| scheme.combines())
                .map(|_| rate(combined.members, combined.pessimistic)),
            global_rate: queued
                .filter(|_| scheme.combines())
                .map(|writes| rate(combined.combined, writes)),
            batch_mean: (combined.batches > 0).then(|| rate(combined.members, combined.batches)),
            pessimistic_rate: queued.map(|writes| rate(combined.pessimistic, writes)),
            ..local
        }
    }
}

/// What a memory node executed per second.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Node {
    /// Verbs of every kind.
    pub verbs_s: f64,
    /// Atomics among them.
    pub atomics_s: f64,
}

/// What only a simulation has.
#[derive(Clone, Debug, Serialize)]
pub struct Simulation {
    /// Simulated verbs per second of real time.
    pub verbs_per_wall_s: f64,
    /// Everything that happened, as one number.
    pub trace_hash: String,
}

impl Latency {
    /// Sums a histogram of nanoseconds up.
    #[must_use]
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        Self {
            mean: histogram.mean() / 1e3,
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: histogram.max() as f64 / 1e3,
        }
    }
}

impl Verbs {
    fn of(posted: &CounterSnapshot, operations: f64) -> Self {
        Self {
            reads: posted.verbs.of(VerbKind::Read) as f64 / operations,
            writes: posted.verbs.of(VerbKind::Write) as f64 / operations,
            atomics: posted.verbs.atomics() as f64 / operations,
            sends: posted.verbs.of(VerbKind::Send) as f64 / operations,
        }
    }
}

impl PerAcquire {
    fn of(posted: &CounterSnapshot, operations: f64) -> Self {
        let verbs = Verbs::of(posted, operations);
        Self {
            verbs,
            one_sided: verbs.reads + verbs.writes + verbs.atomics,
        }
    }
}

impl Report {
    /// Puts a run's outcome into a report.
    #[must_use]
    pub fn new(subject: Subject, theta: Option<f64>, setting: &Setting, outcome: &Outcome) -> Self {
        let recorder = &outcome.recorder;
        let operations = recorder.operations.max(1) as f64;
        let seconds = recorder.elapsed_ns() as f64 / 1e9;
        let takes_locks = matches!(subject, Subject::Lock { .. } | Subject::Objects { .. });
        let has_hottest = matches!(subject, Subject::Lock { workload: None, .. } | Subject::Objects { .. });
        let has_mix = matches!(subject, Subject::Store { .. } | Subject::Objects { .. });
        let is_store = matches!(subject, Subject::Store { .. });
        let verbs = Verbs::of(&outcome.effort.posted, operations);
        let has_own_endpoints = setting.fabric == FabricKind::Sim || setting.clients == setting.compute_nodes;
        Self {
            kind: subject.kind(),
            fabric: setting.fabric.name(),
            profile: (setting.fabric == FabricKind::Sim).then(|| setting.profile.name.clone()),
            subject,
            clients: setting.clients,
            cns: setting.compute_nodes,
            theta,
            seed: setting.seed,
            operations: recorder.operations,
            throughput_ops_s: recorder.operations as f64 / seconds,
            latency_us: Latency::of(&recorder.latency),
            acquire_us: takes_locks.then(|| Latency::of(&recorder.acquire)),
            acquire_hottest_us: (has_hottest && setting.fabric == FabricKind::Sim)
                .then(|| Latency::of(&recorder.acquire_hottest)),
            release_us: takes_locks.then(|| Latency::of(&recorder.release)),
            per_op: PerOperation {
                verbs,
                bytes_read: outcome.effort.posted.bytes_read as f64 / operations,
                bytes_written: outcome.effort.posted.bytes_written as f64 / operations,
                retries: outcome.effort.retries as f64 / operations,
            },
            per_acquire: (takes_locks && has_own_endpoints)
                .then(|| PerAcquire::of(&recorder.acquire_posted, operations)),
            retry_rate: None,
            phases_us: None,
            resets: None,
            transactions: None,
            slots_ops_s: recorder
                .slots
                .iter()
                .map(|&operations| operations as f64 * recorder.slots.len() as f64 / seconds)
                .collect(),
            mix: has_mix.then(|| Mix::of(recorder.mix)),
            combine: None,
            growth: None,
            structure: None,
            nodes: outcome
                .nodes
                .iter()
                .map(|node| Node {
                    verbs_s: node.verbs as f64 / seconds,
                    atomics_s: node.atomics as f64 / seconds,
                })
                .collect(),
            cache_bytes: is_store.then_some(0),
            credit_bytes: None,
            pointer_bytes: None,
            memory_bytes: outcome.memory_bytes,
            sim: outcome.simulation.map(|simulation| Simulation {
                verbs_per_wall_s: simulation.verbs_per_wall_s,
                trace_hash: format!("{:016x}", simulation.trace_hash),
            }),
        }
    }

    /// The report as one line of JSON.
    ///
    /// # Panics
    /// Never: every part of a report can be written as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a report is plain data")
    }

    /// A line of the table, without the heading.
    #[must_use]
    pub fn to_row(&self) -> String {
        let name = match &self.subject {
            Subject::Lock { lock, workload, .. } => {
                let workload = workload.map_or(String::new(), |workload| format!(" {workload}"));
                format!("{lock}{workload}")
            }
            Subject::Store {
                index, sync, workload, ..
            } => {
                let sync = sync.map_or(String::new(), |sync| format!("/{sync}"));
                format!("{index}{sync} {workload}")
            }
            Subject::Objects { lock, workload, .. } => format!("{lock} {workload}"),
        };
        let PerOperation { verbs, retries, .. } = self.per_op;
        let mut row = format!(
            "{name:40} {:>7} {:>11}ops/s {:>9.1} {:>9.1} {:>9.1} {:>7.2} {:>7.2} {:>7.2} {:>8.2}",
            self.clients,
            with_prefix(self.throughput_ops_s),
            self.latency_us.p50,
            self.latency_us.p99,
            self.latency_us.max,
            verbs.reads,
            verbs.writes,
            verbs.atomics,
            retries,
        );
        if let Some(rate) = self.retry_rate {
            row += &format!("   {:.1} % of CAS are retries", rate * 100.0);
        }
        if let Some(transactions) = &self.transactions {
            let shared = 100.0 * transactions.shared_rate;
            row += &format!("   {:.1} locks, {shared:.1} % shared", transactions.locks_mean);
            if transactions.aborts > 0.0 {
                row += &format!(", {:.2} aborts", transactions.aborts);
            }
        }
        if let Some(combine) = self
            .combine
            .filter(|combine| combine.local_rate + combine.read_rate > 0.0)
        {
            let [writes, reads] = [combine.local_rate, combine.read_rate].map(|rate| rate * 100.0);
            row += &format!("   combined locally: {writes:.1} % of writes, {reads:.1} % of searches");
        }
        if let Some(global) = self.combine.and_then(|combine| combine.global_rate) {
            let batch = self.combine.and_then(|combine| combine.batch_mean).unwrap_or(1.0);
            row += &format!("   globally: {:.1} % of writes, {batch:.1} at a time", global * 100.0);
        }
        if let Some(bytes) = self.credit_bytes {
            row += &format!("   {}B of credits", with_prefix(bytes as f64));
        }
        if let Some(bytes) = self.memory_bytes {
            row += &format!("   {:.2} GiB in use", bytes as f64 / f64::from(1 << 30));
        }
        if let Some(growth) = self.growth {
            let cache = with_prefix(self.cache_bytes.unwrap_or(0) as f64);
            row += &format!("   {}, {cache}B cached", growth.text());
        }
        if let Some(structure) = self.structure {
            let [cache, hotspots] = [self.cache_bytes.unwrap_or(0), structure.hotspot_bytes].map(|bytes| bytes as f64);
            let [cache, hotspots] = [cache, hotspots].map(with_prefix);
            row += &format!("   {}, {cache}B cached, {hotspots}B of hotspots", structure.text());
        }
        row
    }
}

/// The heading of the table.
#[must_use]
pub fn heading() -> String {
    format!(
        "{:40} {:>7} {:>16} {:>9} {:>9} {:>9} {:>7} {:>7} {:>7} {:>8}",
        "", "clients", "throughput", "p50 us", "p99 us", "max us", "READs", "WRITEs", "atomics", "retries"
    )
}
