//! Measurements: one driver over every fabric, and the published figures.
//!
//! On the path: on top. A *program* says what a client does (take a lock, update a key); a *stage*
//! puts clients on a fabric and runs them for a while; a *report* is what came out, as a table or as
//! one line of JSON. A *figure* is a file of runs and claims (`figures/*.toml`).
//!
//! Baselines and favourites run the same lines: whatever differs between two runs is in their
//! settings.

#![forbid(unsafe_code)]

pub mod applications;
pub mod bank;
pub mod calibrate;
pub mod cli;
mod crowd;
pub mod driver;
pub mod embedded;
pub mod error;
pub mod figure;
pub mod hot_keys;
pub mod latency;
pub mod lock;
pub mod lock_peers;
pub mod lock_services;
pub mod objects;
pub mod program;
pub mod progress;
pub mod quantity;
pub mod recorder;
mod redis;
pub mod report;
pub mod side_by_side;
pub mod stage;
pub mod store;
pub mod tree;
pub mod verbs;
mod worker_process;
pub mod workload;

use core::sync::atomic::Ordering;

use farside_lock::LockKind;

pub use error::BenchError;
pub use report::Report;

use lock::{LockProgram, Noted};
use objects::{ObjectProgram, Requests};
use progress::Progress;
use report::{Combine, PhaseTimes, ResetTimes, Subject, TransactionTimes};
use stage::{FabricKind, Fault, Prepared, Setting};
use store::StoreProgram;
use tree::TreeProgram;

/// What can be named in a measurement, by section: names, each with a line about it.
#[must_use]
pub fn catalogue() -> [(&'static str, Vec<(&'static str, String)>); 3] {
    let locks = LockKind::ALL.iter().chain(&LockKind::VARIANTS);
    let locks = locks.map(|&(_, name, about)| (name, about.to_owned()));
    let workloads = workload::WORKLOADS
        .iter()
        .map(|workload| (workload.name, workload.about()));
    let transactions = workload::TRANSACTIONS.map(|workload| (workload.name, workload.about.to_owned()));
    let objects = workload::OBJECT_WORKLOADS.map(|workload| (workload.name, workload.about.to_owned()));
    [
        ("locks", locks.collect()),
        ("workloads", workloads.chain(transactions).chain(objects).collect()),
        ("figures", figure::list()),
    ]
}

/// Measures a lock. `memory` is kept from one simulated run to the next; see [`stage::run`].
///
/// # Errors
/// See [`BenchError`].
pub fn measure_lock(
    program: &LockProgram,
    setting: &Setting,
    memory: &mut Option<Prepared>,
    progress: &Progress,
) -> Result<Report, BenchError> {
    program.check()?;
    let outcome = stage::run(program, setting, memory, progress)?;
    let subject = Subject::Lock {
        lock: program.kind.name(),
        locks: program.locks,
        read_ratio: program.transactions.is_none().then_some(program.read_ratio),
        workload: program.transactions.map(|workload| workload.name),
    };
    let theta = program.transactions.is_none().then_some(program.theta);
    let mut report = Report::new(subject, theta, setting, &outcome);
    let recorder = &outcome.recorder;
    let grants = match program.transactions {
        Some(_) => recorder.transactions.shared + recorder.transactions.exclusive,
        None => recorder.operations,
    };
    report.transactions = program
        .transactions
        .map(|_| TransactionTimes::of(&recorder.transactions, recorder.operations));
    if matches!(program.kind, LockKind::Cas | LockKind::CasBackoff) {
        // Of all that were posted one per grant succeeded.
        let swaps = outcome.effort.posted.verbs.atomics().max(1) as f64;
        report.retry_rate = Some((1.0 - grants as f64 / swaps).max(0.0));
    }
    let noted = program.noted.lock().expect("nobody panics with it");
    report.phases_us = program.is_timed.then(|| PhaseTimes::of(&noted.phases));
    report.resets = resets(program.kind, &noted, setting.fabric, recorder.operations);
    Ok(report)
}

/// Resets among so many operations, if there are any of this lock.
fn resets(kind: LockKind, noted: &Noted, fabric: FabricKind, operations: u64) -> Option<ResetTimes> {
    let has_resets = matches!(kind, LockKind::DecLock(_)) && fabric == FabricKind::Sim;
    let count = noted.resets.count as f64;
    has_resets.then(|| ResetTimes {
        count: noted.resets.count,
        per_op: count / operations.max(1) as f64,
        mean_us: noted.resets.spent_ns as f64 / count.max(1.0) / 1e3,
    })
}

/// Measures an object store. `memory` is kept from one simulated run to the next; see [`stage::run`].
///
/// # Errors
/// See [`BenchError`]; [`BenchError::Unsound`] if an object was torn under its lock.
///
/// # Panics
/// Never: nobody panics with what is noted.
pub fn measure_objects(
    program: &ObjectProgram,
    setting: &Setting,
    memory: &mut Option<Prepared>,
    progress: &Progress,
) -> Result<Report, BenchError> {
    let outcome = stage::run(program, setting, memory, progress)?;
    let torn = program.torn.load(Ordering::Relaxed);
    if let Some(kind) = program.kind.filter(|_| torn > 0) {
        let text = format!("{torn} objects were read half-written under the lock {}", kind.name());
        return Err(BenchError::Unsound(text));
    }
    let theta = match program.requests {
        Requests::Drawn { theta, .. } => Some(theta),
        Requests::Traced(_) => None,
    };
    let subject = Subject::Objects {
        lock: program.kind.map_or("none", LockKind::name),
        objects: program.places.count(),
        object_bytes: program.places.capacity_mean(),
        workload: program.requests.name().to_owned(),
    };
    let mut report = Report::new(subject, theta, setting, &outcome);
    let noted = program.noted.lock().expect("nobody panics with it");
    let operations = outcome.recorder.operations;
    report.resets = program
        .kind
        .and_then(|kind| resets(kind, &noted, setting.fabric, operations));
    Ok(report)
}

/// Measures an index. `memory` is kept from one simulated run to the next; see [`stage::run`].
///
/// # Errors
/// See [`BenchError`].
pub fn measure_store(
    program: &StoreProgram,
    setting: &Setting,
    memory: &mut Option<Prepared>,
    progress: &Progress,
) -> Result<Report, BenchError> {
    program.check()?;
    let outcome = stage::run(program, setting, memory, progress)?;
    let subject = Subject::Store {
        index: program.index.name(),
        sync: Some(program.scheme.name()),
        local_wc: program.local_wc,
        items: program.population.items,
        workload: program.population.workload.name,
    };
    let mut report = Report::new(subject, Some(program.population.theta), setting, &outcome);
    report.cache_bytes = Some(program.seen.cache_bytes());
    report.growth = program.seen.growth(outcome.laid);
    report.pointer_bytes = Some(program.pointer_bytes());
    report.credit_bytes = program.scheme.switches().then(|| program.seen.credit_bytes());
    if program.combines() {
        // On real fabrics the compute nodes have counted since they joined.
        let mix = report.mix.filter(|_| setting.fabric == FabricKind::Sim);
        report.combine = Some(Combine::of(&program.seen, program.scheme, mix.as_ref()));
    }
    Ok(report)
}

/// Measures a tree. `memory` is kept from one simulated run to the next; see [`stage::run`].
///
/// # Errors
/// See [`BenchError`].
pub fn measure_tree(
    program: &TreeProgram,
    setting: &Setting,
    memory: &mut Option<Prepared>,
    progress: &Progress,
) -> Result<Report, BenchError> {
    program.check()?;
    if setting
        .conditions
        .faults
        .iter()
        .any(|&(_, fault)| fault != Fault::HotSetMoves)
    {
        return Err(BenchError::argument(
            "clients of a tree are not measured while others die",
        ));
    }
    let outcome = stage::run(program, setting, memory, progress)?;
    let population = &program.population;
    let subject = Subject::Store {
        index: program.kind.name(),
        sync: None,
        local_wc: program.local_wc,
        items: population.items,
        workload: population.workload.name,
    };
    let mut report = Report::new(subject, Some(population.theta), setting, &outcome);
    report.cache_bytes = Some(program.seen.cache_bytes());
    let lookups = report
        .mix
        .map_or(0, |mix| mix.search + mix.update + 2 * mix.read_modify_write);
    report.structure = Some(program.seen.structure(population.items, lookups));
    report.combine = program.local_wc.then(|| Combine::local(program.seen.shared()));
    Ok(report)
}
