//! Runs the series of a figure.

use core::sync::atomic::AtomicU64;
use std::sync::Arc;

use farside_fabric::region::Region;
use farside_fabric::sim::Profile;
use farside_index::IndexKind;
use farside_lock::{LockKind, LockOptions};
use farside_sync::Scheme;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::file::{AxisKey, Figure, LockSeries, Series, StoreSeries};
use crate::error::BenchError;
use crate::lock::LockProgram;
use crate::progress::Progress;
use crate::quantity::parse_duration;
use crate::report::Report;
use crate::stage::{Conditions, FabricKind, Setting};
use crate::store::{StoreProgram, TICK_NS};
use crate::workload::Workload;
use crate::{measure_lock, measure_store};

/// The seed of every figure.
const SEED: u64 = 1;

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
    /// A number of the report; parts of the key are joined with dots.
    #[must_use]
    pub fn number(&self, key: &str) -> Option<f64> {
        let value = key.split('.').try_fold(&self.report, |value, part| value.get(part));
        value.and_then(Value::as_f64)
    }
}

/// Runs every point of a figure. `memory` is kept from one run to the next.
///
/// # Errors
/// See [`BenchError`].
pub fn run(figure: &Figure, is_quick: bool, memory: &mut Option<Region>) -> Result<Vec<Point>, BenchError> {
    let count: usize = figure
        .series
        .iter()
        .map(|series| figure.xs_of(series, is_quick).len())
        .sum();
    let progress = Progress::new(count as u64, figure.id.as_str());
    let mut points = Vec::new();
    for series in &figure.series {
        if figure.axis_of(series).is_some_and(|axis| axis.key == AxisKey::Time) {
            points.extend(over_time(figure, series, is_quick, memory)?);
            progress.set(points.len() as u64);
            continue;
        }
        for x in figure.xs_of(series, is_quick) {
            let label = figure.x_label_of(series);
            progress.label(format!("{}: {}, {label} {x}", figure.id, series.label));
            let (clients, lock) = at(figure, series, x);
            let mut setting = setting(figure, series, clients, is_quick)?;
            if let Some(lock) = &lock {
                setting.conditions = conditions(figure, lock, &setting)?;
            }
            let report = match (&lock, &series.store) {
                (Some(lock), _) => run_lock(figure, lock, &setting, memory)?,
                (None, Some(store)) => run_store(figure, store, &setting, is_quick, memory)?,
                (None, None) => unreachable!("refused when the file was read"),
            };
            points.push(Point {
                series: series.name.clone(),
                x,
                report: serde_json::to_value(report).expect("a report is plain data"),
            });
            progress.set(points.len() as u64);
        }
    }
    Ok(points)
}

/// One run, of which each part of the time is a point.
fn over_time(
    figure: &Figure,
    series: &Series,
    is_quick: bool,
    memory: &mut Option<Region>,
) -> Result<Vec<Point>, BenchError> {
    let lock = series.lock.as_ref().expect("only series with locks have an axis");
    let ends_ms = figure.xs_of(series, is_quick);
    let mut setting = setting(figure, series, series.clients[0], is_quick)?;
    setting.duration_ns = (ends_ms.last().copied().unwrap_or(0.0) * 1e6) as u64;
    setting.conditions = Conditions {
        slots: ends_ms.len() as u64,
        ..conditions(figure, lock, &setting)?
    };
    let report = run_lock(figure, lock, &setting, memory)?;
    let rates = ends_ms.iter().zip(&report.slots_ops_s);
    Ok(rates
        .map(|(&end_ms, rate)| Point {
            series: series.name.clone(),
            x: end_ms,
            report: json!({"clients": report.clients, "throughput_ops_s": rate, "resets": report.resets}),
        })
        .collect())
}

/// What is not as it should be.
fn conditions(figure: &Figure, lock: &LockSeries, setting: &Setting) -> Result<Conditions, BenchError> {
    let mut faults = Vec::new();
    for planned in &lock.faults {
        let at_ns = parse_duration(&planned.at).map_err(|reason| wrong(figure, reason))?;
        faults.push((at_ns, planned.what.fault()));
    }
    Ok(Conditions {
        peer_delay_ns: peer_delay_ns(&setting.profile, lock.peer_latency),
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

/// How many clients there are at one point of a sweep, and what they do with locks.
fn at(figure: &Figure, series: &Series, x: f64) -> (u64, Option<LockSeries>) {
    let mut lock = series.lock.clone();
    let (Some(axis), Some(changed)) = (figure.axis_of(series), &mut lock) else {
        return (x as u64, lock);
    };
    match axis.key {
        AxisKey::Clients => return (x as u64, lock),
        AxisKey::Locks => changed.locks = x as u64,
        AxisKey::Theta => changed.theta = x,
        AxisKey::ReadRatio => changed.read_ratio = x,
        AxisKey::SectionVerbs => changed.section_verbs = x as u64,
        AxisKey::HandoversMax => changed.handovers_max = Some(x as u64),
        AxisKey::DeclockCapacity => changed.declock_capacity = Some(x as u64),
        AxisKey::PeerLatency => changed.peer_latency = x,
        AxisKey::FailureRate => changed.failure_rate = x,
        AxisKey::Time => {}
    }
    (series.clients[0], lock)
}

fn wrong(figure: &Figure, reason: String) -> BenchError {
    BenchError::Figure {
        id: figure.id.clone(),
        reason,
    }
}

fn setting(figure: &Figure, series: &Series, clients: u64, is_quick: bool) -> Result<Setting, BenchError> {
    let unknown = || wrong(figure, format!("there is no profile `{}`", series.profile));
    let duration = parse_duration(figure.duration_of(series, is_quick));
    Ok(Setting {
        fabric: FabricKind::Sim,
        profile: Profile::named(&series.profile).ok_or_else(unknown)?,
        clients,
        compute_nodes: series.cns.unwrap_or(clients.div_ceil(series.clients_per_cn)),
        duration_ns: duration.map_err(|reason| wrong(figure, reason))?,
        conditions: Conditions::default(),
        seed: SEED,
    })
}

fn options(lock: &LockSeries) -> Result<LockOptions, String> {
    let usual = LockOptions::default();
    let lease = lock.lease.as_deref().map(parse_duration).transpose()?;
    Ok(LockOptions {
        lease_ns: lease.unwrap_or(usual.lease_ns),
        handovers_max: lock.handovers_max.unwrap_or(usual.handovers_max),
        declock_capacity: lock.declock_capacity.unwrap_or(usual.declock_capacity),
        ..usual
    })
}

fn run_lock(
    figure: &Figure,
    lock: &LockSeries,
    setting: &Setting,
    memory: &mut Option<Region>,
) -> Result<Report, BenchError> {
    let unknown = || wrong(figure, format!("there is no lock `{}`", lock.name));
    let program = LockProgram {
        kind: LockKind::by_name(&lock.name).ok_or_else(unknown)?,
        options: options(lock).map_err(|reason| wrong(figure, reason))?,
        locks: lock.locks,
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

fn run_store(
    figure: &Figure,
    store: &StoreSeries,
    setting: &Setting,
    is_quick: bool,
    memory: &mut Option<Region>,
) -> Result<Report, BenchError> {
    let unknown = || wrong(figure, format!("there is no scheme `{}`", store.sync));
    let items = figure.quick.items.filter(|_| is_quick).unwrap_or(store.items);
    let program = StoreProgram {
        index: IndexKind::PointerArray,
        scheme: Scheme::by_name(&store.sync).ok_or_else(unknown)?,
        local_wc: store.local_wc,
        items,
        workload: Workload::by_name(&store.workload).map_err(|reason| wrong(figure, reason))?,
        key_bytes: 8,
        value_bytes: 8,
        theta: store.theta,
        // The same memory for every point of the sweep, so that it can be used again.
        compute_nodes: COMPUTE_NODES_MAX,
        tick_ns: TICK_NS,
        seed: setting.seed,
        given_out: Arc::new(AtomicU64::new(items)),
        seen: Arc::default(),
    };
    measure_store(&program, setting, memory, &Progress::hidden())
}

/// What the memory of a figure's store is laid out for.
const COMPUTE_NODES_MAX: u64 = 256;
