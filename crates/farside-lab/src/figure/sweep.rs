//! Runs the series of a figure.

use std::sync::Arc;

use farside_fabric::rdma::DeviceOptions;
use farside_fabric::sim::Profile;
use farside_index::TreeKind;
use farside_index::tree::{NodeLock, Validation};
use farside_lock::{LockKind, LockOptions};
use farside_sync::{CreditOptions, Scheme};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::file::{AxisKey, BankSeries, Figure, LockSeries, ObjectSeries, Probe, Series, StoreSeries};
use super::round_trips;
use crate::bank::{self, BankOptions};
use crate::error::BenchError;
use crate::lock::LockProgram;
use crate::objects::{ObjectProgram, Requests};
use crate::progress::Progress;
use crate::quantity::parse_duration;
use crate::report::Report;
use crate::stage::{Conditions, FabricKind, Prepared, Setting};
use crate::store::{StoreProgram, TICK_NS, budget_of, index_by_name};
use crate::tree::{CACHE_BYTES, Spacing, TreeProgram, tree_by_name, turn_capacity, usual_hotspot_bytes};
use crate::verbs;
use crate::workload::{ObjectWorkload, Population, TransactionWorkload, Workload};
use crate::{measure_lock, measure_objects, measure_store, measure_tree};

/// One run of a sweep.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    /// Name of the series.
    pub series: String,
    /// How many clients there were, or what else was swept.
    pub x: f64,
    /// The report, as JSON.
    pub report: Value,
}

impl Point {
    /// A number of the report; parts of the key are joined with dots, and are numbers in a list.
    #[must_use]
    pub fn number(&self, key: &str) -> Option<f64> {
        let value = key.split('.').try_fold(&self.report, |value, part| match value {
            Value::Array(list) => list.get(part.parse::<usize>().ok()?),
            _ => value.get(part),
        });
        value.and_then(Value::as_f64)
    }
}

/// Runs every point of a figure. `memory` is kept from one run to the next.
///
/// # Errors
/// See [`BenchError`].
pub fn run(figure: &Figure, is_quick: bool, memory: &mut Option<Prepared>) -> Result<Vec<Point>, BenchError> {
    let count: usize = figure
        .series
        .iter()
        .map(|series| figure.xs_of(series, is_quick).len())
        .sum();
    let progress = Progress::new(count as u64, figure.id.as_str());
    let (mut points, mut done) = (vec![Vec::new(); figure.series.len()], 0);
    for (place, series) in by_memory(figure) {
        let points = &mut points[place];
        if figure.axis_of(series).is_some_and(|axis| axis.key == AxisKey::Time) {
            *points = over_time(figure, series, is_quick, memory)?;
            done += points.len() as u64;
            progress.set(done);
            continue;
        }
        for x in figure.xs_of(series, is_quick) {
            let label = figure.x_label_of(series);
            progress.label(format!("{}: {}, {label} {x}", figure.id, series.label));
            let series = at(figure, series, x, is_quick);
            let simulated = || setting(figure, &series, is_quick);
            let report = match (&series.bank, &series.probe) {
                (Some(bank), _) => open_bank(figure, &series, bank, is_quick)?,
                (None, Some(probe)) => examine(figure, probe, &simulated()?)?,
                (None, None) => {
                    let report = run_one(figure, &series, &simulated()?, memory)?;
                    serde_json::to_value(report).expect("a report is plain data")
                }
            };
            points.push(Point {
                series: series.name,
                x,
                report,
            });
            done += 1;
            progress.set(done);
        }
    }
    Ok(points.concat())
}

/// The series of a figure, each with its place. One after the other run those that are the same but for their sweep: they begin
/// with the same memory, for the most part.
fn by_memory(figure: &Figure) -> Vec<(usize, &Series)> {
    let mut order: Vec<_> = figure.series.iter().enumerate().collect();
    order.sort_by_key(|(_, series)| figure.series.iter().position(|other| base_of(other) == base_of(series)));
    order
}

/// The name of a series without that of its sweep.
fn base_of(series: &Series) -> &str {
    series.name.split('@').next().unwrap_or_default()
}

/// One run, of which each part of the time is a point.
fn over_time(
    figure: &Figure,
    series: &Series,
    is_quick: bool,
    memory: &mut Option<Prepared>,
) -> Result<Vec<Point>, BenchError> {
    let ends_ms = figure.xs_of(series, is_quick);
    let series = at(figure, series, 0.0, is_quick);
    let mut setting = setting(figure, &series, is_quick)?;
    setting.duration_ns = (ends_ms.last().copied().unwrap_or(0.0) * 1e6) as u64;
    setting.conditions.slots = ends_ms.len() as u64;
    let report = run_one(figure, &series, &setting, memory)?;
    let rates = ends_ms.iter().zip(&report.slots_ops_s);
    Ok(rates
        .map(|(&end_ms, rate)| Point {
            series: series.name.clone(),
            x: end_ms,
            report: json!({"clients": report.clients, "throughput_ops_s": rate, "resets": report.resets}),
        })
        .collect())
}

/// Runs a bank on this machine.
fn open_bank(figure: &Figure, series: &Series, bank: &BankSeries, is_quick: bool) -> Result<Value, BenchError> {
    let time = |text| parse_duration(text).map_err(|reason| wrong(figure, reason));
    bank::run_one(&BankOptions {
        fabric: FabricKind::Tcp,
        clients: series.clients[0],
        accounts: figure.accounts_of(bank, is_quick),
        theta: 0.0,
        duration_ns: time(figure.duration_of(series, is_quick))?,
        rounds: if is_quick { 1 } else { bank.rounds },
        contenders: vec![bank.contender],
        redlock_servers: 1,
        lock_names: None,
        is_alone: false,
        seed: figure.variation.seed,
        is_json: true,
    })
}

fn run_one(
    figure: &Figure,
    series: &Series,
    setting: &Setting,
    memory: &mut Option<Prepared>,
) -> Result<Report, BenchError> {
    match (&series.lock, &series.store, &series.objects) {
        (Some(lock), ..) => run_lock(figure, lock, setting, memory),
        (None, Some(store), _) => run_store(figure, store, setting, memory),
        (None, None, Some(objects)) => run_objects(figure, objects, setting, memory),
        (None, None, None) => unreachable!("banks and probes are none, and nothing else was in the file"),
    }
}

/// Finds out what takes no index that clients work on.
fn examine(figure: &Figure, probe: &Probe, setting: &Setting) -> Result<Value, BenchError> {
    match probe {
        Probe::LoadFactor {
            hashing,
            entries,
            neighbourhood,
        } => {
            let found = hashing.load_factor(*entries, *neighbourhood, figure.variation.seed);
            let load_factor = found.map_err(|reason| wrong(figure, reason))?;
            Ok(json!({"load_factor": load_factor, "entries": entries, "neighbourhood": neighbourhood}))
        }
        Probe::RoundTrips { index, height } => {
            let counted = round_trips::count(tree_named(figure, index)?, *height)?;
            Ok(serde_json::to_value(counted).expect("counts are plain data"))
        }
        Probe::LeafMetadata {
            index,
            key_bytes,
            replicates_fences,
        } => {
            let leaf = tree_named(figure, index)?.published_leaf();
            let validation = if *replicates_fences {
                Validation::Fences
            } else {
                Validation::Sibling
            };
            let bytes = leaf.metadata_bytes(*key_bytes, validation);
            let per_entry = bytes as f64 / leaf.span() as f64;
            Ok(json!({"metadata_bytes": bytes, "metadata_bytes_per_entry": per_entry, "key_bytes": key_bytes}))
        }
        Probe::Verbs { load, .. } => {
            let rate = verbs::rate(setting, load)?;
            // Each client has one batch under way.
            let mean_us = setting.clients as f64 * f64::from(load.batch) * 1e6 / rate;
            let latency = json!({"mean": mean_us});
            Ok(
                json!({"throughput_ops_s": rate, "latency_us": latency, "clients": setting.clients, "bytes": load.bytes}),
            )
        }
    }
}

fn tree_named(figure: &Figure, name: &str) -> Result<TreeKind, BenchError> {
    tree_by_name(name).ok_or_else(|| wrong(figure, format!("there is no tree `{name}`")))
}

/// What is not as it should be.
fn conditions(figure: &Figure, series: &Series, profile: &Profile) -> Result<Conditions, BenchError> {
    let of_locks = series.lock.iter().flat_map(|lock| &lock.faults);
    let of_stores = series.store.iter().flat_map(|store| &store.faults);
    let mut faults = Vec::new();
    for planned in of_locks.chain(of_stores) {
        let at_ns = parse_duration(&planned.at).map_err(|reason| wrong(figure, reason))?;
        faults.push((at_ns, planned.what.fault()));
    }
    let peer_latency = series.lock.as_ref().map_or(1.0, |lock| lock.peer_latency);
    let compute = series.compute.as_deref().map(parse_duration).transpose();
    Ok(Conditions {
        clients_per_core: series.clients_per_core,
        compute_ns: compute.map_err(|reason| wrong(figure, reason))?.unwrap_or(0),
        peer_delay_ns: peer_delay_ns(profile, peer_latency),
        faults,
        slots: 0,
    })
}

/// How much later each way messages between compute nodes are, so that a message and its acknowledgement
/// take `factor` times as long as a READ from the memory node.
fn peer_delay_ns(profile: &Profile, factor: f64) -> u64 {
    let read_ns = profile.post_ns + 2 * profile.wire_ns + profile.unit_ns;
    (read_ns as f64 * (factor - 1.0).max(0.0) / 2.0) as u64
}

/// A series at one point of a sweep: with one number of clients.
fn at(figure: &Figure, series: &Series, x: f64, is_quick: bool) -> Series {
    let key = figure.axis_of(series).map_or(AxisKey::Clients, |axis| axis.key);
    let mut series = series.clone();
    if let Some(store) = &mut series.store {
        let quick = figure.quick.items.filter(|_| is_quick);
        let items = quick.map_or(store.items, |items| items.min(store.items));
        let share = items as f64 / store.items as f64;
        store.items = items;
        match key {
            AxisKey::Items => store.items = x as u64,
            AxisKey::Theta => store.theta = x,
            AxisKey::ValueBytes => store.value_bytes = x as u64,
            AxisKey::UpdatePercent => store.update_percent = Some(x as u8),
            AxisKey::InitialCredit => store.initial_credit = Some(x as u32),
            AxisKey::Hotness => store.hotness = Some(x as u32),
            AxisKey::Span => store.span = Some(x as usize),
            AxisKey::Neighbourhood => store.neighbourhood = Some(x as usize),
            AxisKey::CacheBytes => store.cache = Some(x as u64),
            AxisKey::HotspotBytes => store.hotspots = Some(x as u64),
            _ => {}
        }
        // Fewer keys in a quick run, and as much less to remember.
        let part = |bytes: u64| (bytes as f64 * share) as u64;
        if let Some(kind) = tree_by_name(&store.index) {
            let cache = store.cache.unwrap_or(CACHE_BYTES);
            let hotspots = store.hotspots.unwrap_or(usual_hotspot_bytes(kind, cache));
            (store.cache, store.hotspots) = (Some(part(cache)), Some(part(hotspots)));
        } else {
            store.cache = store.cache.map(part);
        }
    }
    match &mut series.probe {
        Some(Probe::LoadFactor {
            entries, neighbourhood, ..
        }) => match key {
            AxisKey::Span => *entries = x as usize,
            AxisKey::Neighbourhood => *neighbourhood = x as usize,
            _ => {}
        },
        Some(Probe::RoundTrips { height, .. }) if key == AxisKey::Height => *height = x as u8,
        Some(Probe::LeafMetadata { key_bytes, .. }) if key == AxisKey::KeyBytes => *key_bytes = x as u64,
        Some(Probe::Verbs { load, entry_bytes }) => match key {
            AxisKey::Neighbourhood => load.bytes[0] = x as u32 * *entry_bytes,
            AxisKey::Batch => load.batch = x as u32,
            AxisKey::Places => load.places = Some(x as u64),
            _ => {}
        },
        _ => {}
    }
    if let Some(lock) = &mut series.lock {
        match key {
            AxisKey::Locks => lock.locks = x as u64,
            AxisKey::Theta => lock.theta = x,
            AxisKey::ReadRatio => lock.read_ratio = x,
            AxisKey::SectionVerbs => lock.section_verbs = x as u64,
            AxisKey::HandoversMax => lock.handovers_max = Some(x as u64),
            AxisKey::DeclockCapacity => lock.declock_capacity = Some(x as u64),
            AxisKey::PeerLatency => lock.peer_latency = x,
            AxisKey::FailureRate => lock.failure_rate = x,
            _ => {}
        }
    }
    if let Some(objects) = &mut series.objects
        && key == AxisKey::Theta
    {
        objects.theta = Some(x);
    }
    match key {
        AxisKey::Clients => series.clients = vec![x as u64],
        AxisKey::Cns => series.clients = vec![x as u64 * series.clients_per_cn],
        AxisKey::ExtendedAtomics => series.extended_atomics = Some(x),
        _ => {}
    }
    figure.variation.of_series(&mut series);
    series
}

fn wrong(figure: &Figure, reason: String) -> BenchError {
    BenchError::Figure {
        id: figure.id.clone(),
        reason,
    }
}

fn setting(figure: &Figure, series: &Series, is_quick: bool) -> Result<Setting, BenchError> {
    let time = |text| parse_duration(text).map_err(|reason| wrong(figure, reason));
    let clients = series.clients[0];
    let profile = profile(figure, series)?;
    Ok(Setting {
        fabric: FabricKind::Sim,
        clients,
        compute_nodes: series.cns.unwrap_or(clients.div_ceil(series.clients_per_cn)),
        duration_ns: time(figure.duration_of(series, is_quick))?,
        warm_up_ns: figure.warm_up_of(series, is_quick).map(time).transpose()?,
        conditions: conditions(figure, series, &profile)?,
        device: DeviceOptions::default(),
        seed: figure.variation.seed,
        profile,
    })
}

fn profile(figure: &Figure, series: &Series) -> Result<Profile, BenchError> {
    let unknown = || wrong(figure, format!("there is no profile `{}`", series.profile));
    let named = Profile::named(&series.profile).ok_or_else(unknown)?;
    let mut profile = figure.variation.of_profile(named);
    if let Some(factor) = series.extended_atomics {
        profile.extended_extra_ns = (profile.address_ns as f64 * (factor - 1.0).max(0.0)) as u64;
    }
    profile.has_masked_atomics &= series.masked_atomics;
    profile.bytes_per_us *= u64::from(series.memory_nodes);
    profile.units *= series.memory_nodes;
    Ok(profile)
}

fn options(lock: &LockSeries) -> Result<LockOptions, String> {
    let usual = LockOptions::default();
    let duration = |text: &Option<String>| text.as_deref().map(parse_duration).transpose();
    Ok(LockOptions {
        lease_ns: duration(&lock.lease)?.unwrap_or(usual.lease_ns),
        dslr_turn_ns: duration(&lock.dslr_turn)?.unwrap_or(usual.dslr_turn_ns),
        cas_swaps_back: lock.cas_swaps_back,
        handovers_max: lock.handovers_max.unwrap_or(usual.handovers_max),
        declock_capacity: lock.declock_capacity.unwrap_or(usual.declock_capacity),
        ..usual
    })
}

fn run_lock(
    figure: &Figure,
    lock: &LockSeries,
    setting: &Setting,
    memory: &mut Option<Prepared>,
) -> Result<Report, BenchError> {
    let unknown = || wrong(figure, format!("there is no lock `{}`", lock.name));
    let transactions = lock.workload.as_deref().map(TransactionWorkload::by_name).transpose();
    let transactions = transactions.map_err(|reason| wrong(figure, reason))?;
    let program = LockProgram {
        kind: LockKind::by_name(&lock.name).ok_or_else(unknown)?,
        options: options(lock).map_err(|reason| wrong(figure, reason))?,
        locks: transactions.map_or(lock.locks, |workload| workload.locks),
        transactions,
        theta: lock.theta,
        read_ratio: lock.read_ratio,
        section_verbs: lock.section_verbs,
        failure_rate: lock.failure_rate,
        is_timed: lock.is_timed,
        noted: Arc::default(),
        seed: setting.seed,
    };
    measure_lock(&program, setting, memory, &Progress::hidden())
}

fn run_objects(
    figure: &Figure,
    objects: &ObjectSeries,
    setting: &Setting,
    memory: &mut Option<Prepared>,
) -> Result<Report, BenchError> {
    let unknown = || wrong(figure, format!("there is no lock `{}`", objects.lock));
    let workload = ObjectWorkload::by_name(&objects.workload).map_err(|reason| wrong(figure, reason))?;
    let requests = Requests::Drawn {
        workload,
        objects: objects.objects,
        theta: objects.theta.unwrap_or(workload.theta),
    };
    let kind = LockKind::by_name(&objects.lock).ok_or_else(unknown)?;
    let program = ObjectProgram::new(Some(kind), requests, setting)?;
    measure_objects(&program, setting, memory, &Progress::hidden())
}

fn run_store(
    figure: &Figure,
    store: &StoreSeries,
    setting: &Setting,
    memory: &mut Option<Prepared>,
) -> Result<Report, BenchError> {
    let sync = store.sync.as_deref().unwrap_or("optimistic");
    let unknown = || wrong(figure, format!("there is no scheme `{sync}`"));
    let no_index = || wrong(figure, format!("there is no index `{}`", store.index));
    let usual = CreditOptions::default();
    let workload = match store.update_percent {
        Some(percent) => Ok(Workload::updates(percent)),
        None => Workload::by_name(&store.workload).map_err(|reason| wrong(figure, reason)),
    };
    let mut population = Population::new(store.items, workload?, store.theta, setting.seed);
    if store.is_filled {
        population = population.filled();
    }
    if let Some(kind) = tree_by_name(&store.index) {
        return run_tree(figure, kind, store, population, setting, memory);
    }
    let program = StoreProgram {
        index: index_by_name(&store.index).ok_or_else(no_index)?,
        scheme: Scheme::by_name(sync).ok_or_else(unknown)?,
        local_wc: store.local_wc,
        in_place: store.in_place,
        credits: CreditOptions {
            initial: store.initial_credit.unwrap_or(usual.initial),
            hotness: store.hotness.unwrap_or(usual.hotness),
        },
        population,
        key_bytes: 8,
        value_bytes: store.value_bytes as usize,
        budget: budget_of(store.cache),
        // The same memory for every point of the sweep, so that it can be used again.
        compute_nodes: COMPUTE_NODES_MAX,
        tick_ns: TICK_NS,
        seen: Arc::default(),
    };
    measure_store(&program, setting, memory, &Progress::hidden())
}

fn run_tree(
    figure: &Figure,
    kind: TreeKind,
    store: &StoreSeries,
    population: Population,
    setting: &Setting,
    memory: &mut Option<Prepared>,
) -> Result<Report, BenchError> {
    if store.sync.is_some() {
        return Err(wrong(figure, "a tree has no scheme".to_owned()));
    }
    if store.in_place {
        return Err(wrong(
            figure,
            "a tree of values has them in its leaves anyway".to_owned(),
        ));
    }
    let node_lock = match store.node_lock.as_deref() {
        None => NodeLock::Cas,
        Some(name) => NodeLock::by_name(name).ok_or_else(|| wrong(figure, format!("`{name}` is not a node lock")))?,
    };
    let usual = TreeProgram::published(kind, population, COMPUTE_NODES_MAX);
    let program = TreeProgram {
        span: store.span.unwrap_or(usual.span),
        neighbourhood: store.neighbourhood.unwrap_or(usual.neighbourhood),
        value_bytes: store.value_bytes,
        cache_bytes: store.cache.unwrap_or(usual.cache_bytes),
        hotspot_bytes: store.hotspots.unwrap_or(usual.hotspot_bytes),
        without: store.without(),
        local_wc: store.local_wc,
        node_lock,
        turn_capacity: turn_capacity(setting),
        spacing: if store.close_keys {
            Spacing::Close
        } else {
            Spacing::Spread
        },
        ..usual
    };
    measure_tree(&program, setting, memory, &Progress::hidden())
}

/// What the memory of a figure's store is laid out for.
const COMPUTE_NODES_MAX: u64 = 256;
