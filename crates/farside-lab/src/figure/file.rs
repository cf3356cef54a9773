//! The file of a figure.
//!
//! ```toml
//! id = "cider-1"                  # its name on the command line
//! title = "..."                   # what it shows
//! source = "CIDER, Figure 1"      # where it was published
//! also = ["cider-2"]              # other names, if it stands for several figures
//! setup = "..."                   # what ours has in common with the original, and what not
//!
//! [x]                             # what is swept, if it is not the number of clients
//! key = "locks"                   # see `AxisKey`
//! label = "locks"
//! values = [1000, 10000000]
//! quick = [1000]                  # the values of --quick
//! log = true                      # whether equal factors are equally far apart in the plot
//!
//! [[sweep]]                       # instead of [x], where every series is swept in several ways; for each, there
//! name = "section"                # is a series `<name of the series>@<name of the sweep>`
//! key = "section_verbs"
//! label = "READs under the lock"
//! values = [1, 64]
//! workload = "write-only"         # what is so in this sweep: see `Sweep`
//!
//! [[panel]]                       # what is plotted over it
//! key = "throughput_ops_s"        # a key of the report; parts are joined with dots
//! label = "throughput, ops/s"
//! series = ["optimistic"]         # which series are in it; all, if it does not say
//! sweep = "section"               # and swept how
//!
//! [[series]]
//! name = "optimistic"             # how claims call it
//! label = "O-SYNC"
//! clients = [1, 8, 16]            # the sweep; one number if something else is swept
//! clients_per_cn = 4
//! profile = "cx6"
//! duration = "20ms"
//! warm_up = "40ms"                # what runs before that; half as long, if it does not say
//! store = { sync = "optimistic", items = 60000000, workload = "write-intensive", theta = 0.99 }
//!
//! # instead of `store`: `lock`, `probe`, `objects = { lock = "declock", objects = 100000, workload = "twitter-small" }`,
//! # or `bank = { contender = "redlock", accounts = 1000000, rounds = 3 }`, on this machine and so without `clients_per_cn` and `profile`
//!
//! [quick]                         # what --quick changes, in every series
//! items = 2000000
//!
//! [[claim]]
//! text = "clients at the peak"
//! paper = 48.0                    # the published value, if there is one
//! measure = { peak_at = { series = "optimistic", key = "throughput_ops_s" } }
//! accept = { range = [48.0, 64.0] }
//! known = "..."                   # why it is missed, if it is and the reason is known
//! ```

use farside_index::tree::Without;

use serde::Deserialize;

use super::claim::Claim;
use super::load_factor::Hashing;
use super::variation::Variation;
use crate::bank::Contender;
use crate::quantity::parse_duration;
use crate::stage::Fault;
use crate::store::index_by_name;
use crate::tree::tree_by_name;
use crate::verbs::Load;
use crate::workload::{ObjectWorkload, TransactionWorkload, Workload};

/// A published figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Its name on the command line.
    pub id: String,
    /// Other names, if it stands for several published figures.
    #[serde(default)]
    pub also: Vec<String>,
    /// What it shows.
    pub title: String,
    /// Where it was published.
    pub source: String,
    /// What ours has in common with the original, and what not.
    pub setup: String,
    /// What is swept, if it is not the number of clients.
    pub x: Option<Axis>,
    /// What is swept, where it is several things one after the other.
    #[serde(default, rename = "sweep")]
    pub sweeps: Vec<Sweep>,
    /// What is plotted.
    #[serde(rename = "panel")]
    pub panels: Vec<Panel>,
    /// What is run.
    pub series: Vec<Series>,
    /// What `--quick` changes.
    #[serde(default)]
    pub quick: Quick,
    /// What is claimed.
    #[serde(rename = "claim")]
    pub claims: Vec<Claim>,
    /// What a run has otherwise.
    #[serde(skip)]
    pub variation: Variation,
}

/// One plot.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Panel {
    /// A key of the report.
    pub key: String,
    /// What stands at the axis.
    pub label: String,
    /// Names of the series that are in it; none stands for all.
    #[serde(default)]
    pub series: Vec<String>,
    /// Name of the sweep, if there are several.
    pub sweep: Option<String>,
}

impl Panel {
    /// Whether a series is in it.
    #[must_use]
    pub fn shows(&self, series: &Series) -> bool {
        self.series.is_empty() || self.series.contains(&series.name)
    }
}

/// What is swept.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// Which part of a series it stands for.
    pub key: AxisKey,
    /// What stands at the axis.
    pub label: String,
    /// Its values.
    pub values: Vec<f64>,
    /// Those of `--quick`, if they are others.
    pub quick: Option<Vec<f64>>,
    /// Whether equal factors are equally far apart in the plot.
    #[serde(default)]
    pub log: bool,
}

/// One of several sweeps. What it says of a run holds instead of what the series say.
#[derive(Clone, Debug, Deserialize)]
pub struct Sweep {
    /// What comes behind the `@` in the names of its series.
    pub name: String,
    /// Names of the series that are swept; none stands for all.
    #[serde(default)]
    pub series: Vec<String>,
    /// How long its points are measured.
    pub duration: Option<String>,
    /// How long they run before that, in a quick run too: what it takes to settle does not depend on the number of keys.
    pub warm_up: Option<String>,
    /// What its clients do with keys or objects.
    pub workload: Option<String>,
    /// How much more popular some keys or objects are than others.
    pub theta: Option<f64>,
    /// How many keys or objects there are.
    pub items: Option<u64>,
    /// Whether keys of a tree of values stand beside each other.
    #[serde(default)]
    pub close_keys: bool,
    /// What happens meanwhile, in order.
    #[serde(default)]
    pub faults: Vec<Planned>,
    /// What is swept.
    #[serde(flatten)]
    pub axis: Axis,
}

impl Sweep {
    /// Whether a series is swept.
    fn sweeps(&self, series: &Series) -> bool {
        self.series.is_empty() || self.series.contains(&series.name)
    }

    /// A series of it that works on an index.
    fn of_store(&self, store: StoreSeries) -> StoreSeries {
        StoreSeries {
            workload: self.workload.as_ref().unwrap_or(&store.workload).clone(),
            theta: self.theta.unwrap_or(store.theta),
            items: self.items.unwrap_or(store.items),
            close_keys: self.close_keys || store.close_keys,
            faults: if self.faults.is_empty() {
                store.faults
            } else {
                self.faults.clone()
            },
            ..store
        }
    }

    /// A series of it that gets and sets objects.
    fn of_objects(&self, objects: ObjectSeries) -> ObjectSeries {
        ObjectSeries {
            workload: self.workload.as_ref().unwrap_or(&objects.workload).clone(),
            theta: self.theta.or(objects.theta),
            objects: self.items.unwrap_or(objects.objects),
            ..objects
        }
    }
}

/// A part of a series that can be swept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AxisKey {
    /// How many clients there are.
    Clients,
    /// How many compute nodes there are, with as many clients each as the series say.
    Cns,
    /// How many keys there are.
    Items,
    /// Bytes of a value.
    ValueBytes,
    /// The share of operations that are UPDATEs, in percent; the others are SEARCHes.
    UpdatePercent,
    /// The credit of a key that has become hot (CIDER's `INITIAL_CREDIT`).
    InitialCredit,
    /// How many retries twice in a row make a key hot (CIDER's `HOTNESS_THRESHOLD`).
    Hotness,
    /// Entries of a tree's leaf.
    Span,
    /// Entries of a neighbourhood.
    Neighbourhood,
    /// What a compute node may remember of a tree, hotspots included, in bytes.
    CacheBytes,
    /// How much of that are hotspots.
    HotspotBytes,
    /// Levels of internal nodes.
    Height,
    /// Bytes of a key of a leaf.
    KeyBytes,
    /// How many times as long masked and 16-byte atomics keep an address as plain ones.
    ExtendedAtomics,
    /// How many locks there are.
    Locks,
    /// Skew.
    Theta,
    /// The share of acquires in shared mode.
    ReadRatio,
    /// How many words are read while a lock is held.
    SectionVerbs,
    /// How often in a row writers hand a ShiftLock over.
    HandoversMax,
    /// How many entries the queue of a DecLock has.
    DeclockCapacity,
    /// How many times as long messages between compute nodes take as verbs to the memory node.
    PeerLatency,
    /// The share of locks that are never given back.
    FailureRate,
    /// How many verbs are posted together.
    Batch,
    /// Among how many places verbs draw one.
    Places,
    /// Nothing is swept: one run, cut into equal parts which end at these times, in milliseconds.
    Time,
}

impl AxisKey {
    /// Whether only a series that works on an index has it.
    fn is_of_stores(self) -> bool {
        use AxisKey::{
            CacheBytes, Hotness, HotspotBytes, InitialCredit, Items, Neighbourhood, Span, UpdatePercent, ValueBytes,
        };
        matches!(
            self,
            Items
                | ValueBytes
                | UpdatePercent
                | InitialCredit
                | Hotness
                | Span
                | Neighbourhood
                | CacheBytes
                | HotspotBytes
        )
    }

    /// Whether only a series that takes locks has it.
    fn is_of_locks(self) -> bool {
        use AxisKey::{DeclockCapacity, FailureRate, HandoversMax, Locks, PeerLatency, ReadRatio, SectionVerbs};
        matches!(
            self,
            Locks | ReadRatio | SectionVerbs | HandoversMax | DeclockCapacity | PeerLatency | FailureRate
        )
    }
}

/// One line of the plot.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// How claims call it.
    pub name: String,
    /// What stands beside the line.
    pub label: String,
    /// The sweep.
    pub clients: Vec<u64>,
    /// How many clients share a compute node. A bank says nothing of it, nor of a profile: it is open on this machine.
    #[serde(default)]
    pub clients_per_cn: u64,
    /// How many of them share a core of it, as coroutines; each has a core of its own, if nothing is said.
    #[serde(default)]
    pub clients_per_core: u64,
    /// How long a core computes for an operation, beside what the profile says of verbs; not at all, if nothing is said.
    pub compute: Option<String>,
    /// How many compute nodes there are, if that does not follow from the number of clients.
    pub cns: Option<u64>,
    /// Name of the NIC profile.
    #[serde(default)]
    pub profile: String,
    /// How long is measured.
    pub duration: String,
    /// How long runs before that, if it is not half as long.
    pub warm_up: Option<String>,
    /// The same as its sweep has it, which nothing changes.
    #[serde(skip)]
    pub settles_in: Option<String>,
    /// How many times as long masked and 16-byte atomics keep an address as plain ones, if not as the profile says.
    pub extended_atomics: Option<f64>,
    /// How many memory nodes there are: one is simulated, whose NIC has so many times the bandwidth and the units, as have those of
    /// compute nodes.
    #[serde(default = "one_node")]
    pub memory_nodes: u32,
    /// Whether there are masked atomics.
    #[serde(default = "yes")]
    pub masked_atomics: bool,
    /// What the clients do: one of the five.
    pub lock: Option<LockSeries>,
    /// See `lock`.
    pub store: Option<StoreSeries>,
    /// See `lock`.
    pub objects: Option<ObjectSeries>,
    /// See `lock`.
    pub bank: Option<BankSeries>,
    /// What is found out without an index that clients work on.
    pub probe: Option<Probe>,
    /// What is swept in it, if it belongs to one of several sweeps.
    #[serde(skip)]
    pub axis: Option<Axis>,
}

/// A series that takes locks.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockSeries {
    /// Name of the lock.
    pub name: String,
    /// How many there are, unless transactions say it.
    #[serde(default)]
    pub locks: u64,
    /// Name of the [transactions](TransactionWorkload) whose locks are taken; one lock at a time, if nothing is said.
    pub workload: Option<String>,
    /// Skew.
    #[serde(default)]
    pub theta: f64,
    /// The share of acquires in shared mode.
    #[serde(default)]
    pub read_ratio: f64,
    /// How many words are read while a lock is held.
    #[serde(default)]
    pub section_verbs: u64,
    /// See [`LockOptions`](farside_lock::LockOptions), whose default is taken where nothing is said; likewise below.
    pub handovers_max: Option<u64>,
    /// How long one client ahead is taken to need.
    pub dslr_turn: Option<String>,
    /// Whether a CAS lock is released by an atomic.
    #[serde(default)]
    pub cas_swaps_back: bool,
    /// Entries of a queue.
    pub declock_capacity: Option<u64>,
    /// How many times as long messages between compute nodes take as verbs to the memory node.
    #[serde(default = "one")]
    pub peer_latency: f64,
    /// How long a lock may be held.
    pub lease: Option<String>,
    /// The share of locks that are never given back.
    #[serde(default)]
    pub failure_rate: f64,
    /// Whether clients note what they spend their time on.
    #[serde(default)]
    pub is_timed: bool,
    /// What happens meanwhile, in order.
    #[serde(default)]
    pub faults: Vec<Planned>,
}

/// Something that happens in the time that counts.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Planned {
    /// When, from its start.
    pub at: String,
    /// What.
    pub what: What,
}

/// What can happen; see [`Fault`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// The clients of the first compute node die.
    ComputeNodeDies,
    /// Nobody reaches the memory node any more.
    MemoryNodeLeaves,
    /// It is back.
    MemoryNodeReturns,
    /// Other keys than before are popular from now on.
    HotSetMoves,
}

impl What {
    /// The fault that is meant.
    #[must_use]
    pub fn fault(self) -> Fault {
        match self {
            Self::ComputeNodeDies => Fault::ComputeNodeDies(0),
            Self::MemoryNodeLeaves => Fault::MemoryNodeLeaves,
            Self::MemoryNodeReturns => Fault::MemoryNodeReturns,
            Self::HotSetMoves => Fault::HotSetMoves,
        }
    }
}

fn yes() -> bool {
    true
}

fn one() -> f64 {
    1.0
}

fn one_node() -> u32 {
    1
}

/// A series that works on an index.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreSeries {
    /// Name of the index; the pointer array, if nothing is said.
    #[serde(default = "pointer_array")]
    pub index: String,
    /// Name of the scheme; the optimistic one, if nothing is said. Trees have their own.
    pub sync: Option<String>,
    /// How many keys there are.
    pub items: u64,
    /// Name of the workload.
    pub workload: String,
    /// Skew.
    pub theta: f64,
    /// Whether the clients of a compute node share their operations on a key.
    #[serde(default)]
    pub local_wc: bool,
    /// Whether clients write values where they are; see [`StoreProgram`](crate::StoreProgram).
    #[serde(default)]
    pub in_place: bool,
    /// Bytes of a value.
    #[serde(default = "eight")]
    pub value_bytes: u64,
    /// The share of operations that are UPDATEs, in percent, if not that of the workload.
    pub update_percent: Option<u8>,
    /// Entries of a tree's leaf; those of the published one, if nothing is said.
    pub span: Option<usize>,
    /// Entries of a neighbourhood, likewise.
    pub neighbourhood: Option<usize>,
    /// Parts of hashed leaves that clients do without.
    #[serde(default)]
    pub without: Vec<LeftOut>,
    /// How clients take turns to lock the leaves of a tree; `cas`, if nothing is said.
    pub node_lock: Option<String>,
    /// Whether a LOAD goes on with a tree of so many keys, rather than with an empty one.
    #[serde(default)]
    pub is_filled: bool,
    /// Whether keys of a tree of values stand beside each other; see [`Spacing`](crate::tree::Spacing).
    #[serde(default)]
    pub close_keys: bool,
    /// What a compute node may remember of a tree of values, hotspots included, or of the nodes of another index in the order of keys, in
    /// bytes; 100 MB, or enough for most, if nothing is said. A quick run with a part of the keys has the same part of what is
    /// said, and of the hotspots.
    pub cache: Option<u64>,
    /// How much of that are hotspots; for `chime` three tenths, at most 30 MB, if nothing is said.
    pub hotspots: Option<u64>,
    /// See [`CreditOptions`](farside_sync::CreditOptions), whose default is taken where nothing is said.
    pub initial_credit: Option<u32>,
    /// Likewise.
    pub hotness: Option<u32>,
    /// What happens meanwhile, in order.
    #[serde(default)]
    pub faults: Vec<Planned>,
}

/// A series that gets and sets objects.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectSeries {
    /// Name of the lock that each object has.
    pub lock: String,
    /// How many objects there are.
    pub objects: u64,
    /// Name of the [workload](ObjectWorkload).
    pub workload: String,
    /// Skew, if not that of the workload.
    pub theta: Option<f64>,
}

/// A series of a bank on this machine, over its own clock: see [`bank`](crate::bank).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BankSeries {
    /// Whose clients they are.
    pub contender: Contender,
    /// How many accounts there are.
    pub accounts: u64,
    /// Of how many runs the medians are taken.
    pub rounds: u64,
}

/// A part of a hashed leaf; see [`Without`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeftOut {
    /// What the lock word says of vacant entries.
    Vacancy,
    /// Replicas of the metadata.
    Replicas,
}

impl StoreSeries {
    /// What clients of a tree do without.
    #[must_use]
    pub fn without(&self) -> Without {
        Without {
            vacancy: self.without.contains(&LeftOut::Vacancy),
            replicas: self.without.contains(&LeftOut::Replicas),
        }
    }
}

/// What is found out without an index that clients work on: see [`load_factor`](super::load_factor),
/// [`round_trips`](super::round_trips), [`Shape::metadata_bytes`](farside_index::Shape::metadata_bytes) and
/// [`verbs::rate`](crate::verbs::rate).
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "what", deny_unknown_fields)]
pub enum Probe {
    /// How full a table is when the first key finds no room.
    LoadFactor {
        /// How it deals with collisions.
        hashing: Hashing,
        /// How many entries it has.
        entries: usize,
        /// How many of them a reader of a key reads.
        neighbourhood: usize,
    },
    /// What operations cost in a tree of so many levels of internal nodes.
    RoundTrips {
        /// Name of the tree.
        index: String,
        /// How many levels.
        height: u8,
    },
    /// How many bytes of a published leaf are neither of a key nor of a value.
    LeafMetadata {
        /// Name of the tree.
        index: String,
        /// Bytes of a key.
        key_bytes: u64,
        /// Whether each replica has the fences.
        #[serde(default)]
        replicates_fences: bool,
    },
    /// How often clients have verbs executed.
    Verbs {
        /// Bytes of an entry, where the first verb is of a neighbourhood of so many.
        #[serde(default)]
        entry_bytes: u32,
        /// Which verbs.
        load: Load,
    },
}

impl Probe {
    /// In words.
    #[must_use]
    pub fn about(&self) -> String {
        match self {
            Self::LoadFactor { hashing, .. } => format!("keys stored until one finds no room: {hashing:?}"),
            Self::RoundTrips { index, .. } => format!("{index}, operations counted one by one"),
            Self::LeafMetadata { index, .. } => format!("{index}, bytes of a leaf as it is laid out"),
            Self::Verbs { load, .. } => format!(
                "{:?}s of {:?} bytes, in batches of {}",
                load.verb, load.bytes, load.batch
            ),
        }
    }
}

fn pointer_array() -> String {
    "pointer-array".to_owned()
}

fn eight() -> u64 {
    8
}

/// What `--quick` changes.
#[derive(Clone, Default, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    /// Another sweep of clients.
    pub clients: Option<Vec<u64>>,
    /// Other values of what is swept instead.
    pub values: Option<Vec<f64>>,
    /// Fewer keys.
    pub items: Option<u64>,
    /// A shorter time.
    pub duration: Option<String>,
    /// And before that.
    pub warm_up: Option<String>,
}

impl Figure {
    /// Reads a file, and checks what can be checked without running it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut figure: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        figure.spread()?;
        figure.check()?;
        Ok(figure)
    }

    /// Checks what can be checked without running it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), String> {
        for series in &self.series {
            let name = &series.name;
            let kinds = [
                series.lock.is_some(),
                series.store.is_some(),
                series.objects.is_some(),
                series.bank.is_some(),
                series.probe.is_some(),
            ];
            if kinds.into_iter().filter(|&is_there| is_there).count() != 1 {
                return Err(format!(
                    "series {name} must have one of `lock`, `store`, `objects`, `bank` and `probe`"
                ));
            }
            let is_simulated = series.bank.is_none();
            if [!series.profile.is_empty(), series.clients_per_cn > 0] != [is_simulated; 2] {
                return Err(format!(
                    "series {name}: a bank has no `profile` and no `clients_per_cn`, and everything else has both"
                ));
            }
            for is_quick in [false, true] {
                parse_duration(self.duration_of(series, is_quick))?;
                self.warm_up_of(series, is_quick).map(parse_duration).transpose()?;
                if self.xs_of(series, is_quick).is_empty() {
                    return Err(format!("series {name} sweeps nothing"));
                }
            }
            if let Some(axis) = self.axis_of(series) {
                if series.clients.len() != 1 {
                    return Err(format!(
                        "series {name} has one number of clients, since something else is swept"
                    ));
                }
                let suits = match (&series.lock, &series.objects) {
                    _ if series.bank.is_some() => axis.key == AxisKey::Clients,
                    (Some(_), _) => !axis.key.is_of_stores(),
                    (None, None) => !axis.key.is_of_locks(),
                    (None, Some(_)) => !axis.key.is_of_stores() && !axis.key.is_of_locks(),
                };
                let has_verbs = matches!(series.probe, Some(Probe::Verbs { .. }));
                if !suits || matches!(axis.key, AxisKey::Batch | AxisKey::Places) && !has_verbs {
                    return Err(format!("series {name} has nothing of what is swept, {:?}", axis.key));
                }
            }
            if let Some(workload) = series.lock.as_ref().and_then(|lock| lock.workload.as_ref()) {
                TransactionWorkload::by_name(workload)?;
            }
            if let Some(objects) = &series.objects {
                ObjectWorkload::by_name(&objects.workload)?;
            }
            if let Some(store) = &series.store {
                Workload::by_name(&store.workload)?;
                let no_index = || format!("there is no index `{}`", store.index);
                let is_known = index_by_name(&store.index).is_some() || tree_by_name(&store.index).is_some();
                is_known.then_some(()).ok_or_else(no_index)?;
            }
        }
        let unknown = |name: &&String| self.series.iter().all(|series| series.name != **name);
        if let Some(name) = self.panels.iter().flat_map(|panel| &panel.series).find(unknown) {
            return Err(format!("a panel names a series {name} that there is not"));
        }
        Ok(())
    }

    /// The same with nothing in it but one claim, and the points that it is found from.
    #[must_use]
    pub fn narrowed(&self, claim: Claim, is_quick: bool) -> Self {
        let mut figure = self.clone();
        let needed = claim.measure.points();
        figure.series.retain_mut(|series| {
            let named = needed.iter().filter(|(name, _)| *name == series.name);
            let places: Vec<Option<f64>> = named.map(|&(_, x)| x).collect();
            let mut xs = self.xs_of(series, is_quick);
            // One that is named without a place is needed everywhere, and one over time is a single run.
            let is_over_time = self.axis_of(series).is_some_and(|axis| axis.key == AxisKey::Time);
            let is_whole = places.contains(&None) || (is_over_time && !places.is_empty());
            if !is_whole {
                xs.retain(|x| places.contains(&Some(*x)));
            }
            match self.axis_of(series) {
                Some(axis) => {
                    series.axis = Some(Axis {
                        values: xs.clone(),
                        quick: Some(xs.clone()),
                        ..axis.clone()
                    });
                }
                None => series.clients = xs.iter().map(|&x| x as u64).collect(),
            }
            !xs.is_empty()
        });
        figure.quick.clients = None;
        figure.panels.clear();
        figure.claims = vec![claim];
        figure
    }

    /// Makes a series of each series in each sweep, if there are several.
    fn spread(&mut self) -> Result<(), String> {
        if self.sweeps.is_empty() {
            return Ok(());
        }
        if self.x.is_some() {
            return Err("there are [x] and [[sweep]]; one of them is too many".to_owned());
        }
        let name = |series: &str, sweep: &str| format!("{series}@{sweep}");
        let bases = core::mem::take(&mut self.series);
        for sweep in &self.sweeps {
            self.series
                .extend(bases.iter().filter(|base| sweep.sweeps(base)).map(|base| Series {
                    name: name(&base.name, &sweep.name),
                    duration: sweep.duration.as_ref().unwrap_or(&base.duration).clone(),
                    settles_in: sweep.warm_up.clone(),
                    store: base.store.clone().map(|store| sweep.of_store(store)),
                    objects: base.objects.clone().map(|objects| sweep.of_objects(objects)),
                    axis: Some(sweep.axis.clone()),
                    ..base.clone()
                }));
        }
        for panel in &mut self.panels {
            let unknown = || format!("the panel of {} names no sweep", panel.key);
            let sweep = panel.sweep.as_ref().ok_or_else(unknown)?;
            if panel.series.is_empty() {
                let sweep = self.sweeps.iter().find(|known| known.name == *sweep);
                let is_in = |base: &&Series| sweep.is_some_and(|sweep| sweep.sweeps(base));
                panel.series = bases.iter().filter(is_in).map(|base| base.name.clone()).collect();
            }
            for series in &mut panel.series {
                *series = name(series, sweep);
            }
        }
        Ok(())
    }

    /// What is swept in a series, if it is not the number of clients.
    #[must_use]
    pub fn axis_of<'a>(&'a self, series: &'a Series) -> Option<&'a Axis> {
        series.axis.as_ref().or(self.x.as_ref())
    }

    /// What stands at the axis of what is swept.
    #[must_use]
    pub fn x_label_of<'a>(&'a self, series: &'a Series) -> &'a str {
        self.axis_of(series).map_or("clients", |axis| &axis.label)
    }

    /// What stands at the axis of a panel, and whether its ticks are powers of ten.
    #[must_use]
    pub fn x_of(&self, panel: &Panel) -> (&str, bool) {
        let first = self.series.iter().find(|series| panel.shows(series));
        let axis = first.and_then(|series| self.axis_of(series));
        (
            first.map_or("", |series| self.x_label_of(series)),
            axis.is_some_and(|axis| axis.log),
        )
    }

    /// The values that are swept in a series.
    #[must_use]
    pub fn xs_of(&self, series: &Series, is_quick: bool) -> Vec<f64> {
        match self.axis_of(series) {
            Some(axis) => {
                let quick = axis.quick.as_ref().or(self.quick.values.as_ref());
                quick.filter(|_| is_quick).unwrap_or(&axis.values).clone()
            }
            None => self
                .clients_of(series, is_quick)
                .iter()
                .map(|&clients| clients as f64)
                .collect(),
        }
    }

    /// How many clients a series has, one after the other.
    #[must_use]
    pub fn clients_of<'a>(&'a self, series: &'a Series, is_quick: bool) -> &'a [u64] {
        self.quick
            .clients
            .as_ref()
            .filter(|_| is_quick)
            .unwrap_or(&series.clients)
    }

    /// How many accounts a bank has.
    #[must_use]
    pub fn accounts_of(&self, bank: &BankSeries, is_quick: bool) -> u64 {
        let quick = self.quick.items.filter(|_| is_quick);
        quick.map_or(bank.accounts, |accounts| accounts.min(bank.accounts))
    }

    /// How long a series runs before it is measured, if that is said.
    #[must_use]
    pub fn warm_up_of<'a>(&'a self, series: &'a Series, is_quick: bool) -> Option<&'a str> {
        let quick = self.quick.warm_up.as_deref().filter(|_| is_quick);
        series.settles_in.as_deref().or(quick).or(series.warm_up.as_deref())
    }

    /// How long a series is measured.
    #[must_use]
    pub fn duration_of<'a>(&'a self, series: &'a Series, is_quick: bool) -> &'a str {
        self.quick
            .duration
            .as_ref()
            .filter(|_| is_quick)
            .unwrap_or(&series.duration)
    }
}
