//! Starts the processes of all contenders, tells them in turn what to do, and compares.

use std::path::Path;

use farside_fabric::shm::{Segment, SegmentOptions};

use super::EmbeddedOptions;
use super::draws::ITEMS_MAX;
use super::farside::{IN_FLIGHT, segment_bytes};
use super::redis;
use super::report::{Measurement, Report, Test, Unit};
use super::smart;
use crate::error::BenchError;
use crate::latency::median;
use crate::progress::Progress;
use crate::worker_process::{Folder, WorkerProcess};

/// A test, and how many operations are in flight in it.
type Task = (Test, u64);

/// A contender: its name, how many processes it has, and what they are asked to do.
type Entry = (&'static str, u64, &'static [Task]);

/// Contenders, how many processes each has, and what they are asked to do.
const CONTENDERS: [Entry; 5] = [
    (
        "farside",
        2,
        &[
            (Test::Get, 1),
            (Test::Get, IN_FLIGHT),
            (Test::YcsbA, 1),
            (Test::YcsbA, IN_FLIGHT),
            (Test::YcsbAAlone, 1),
            (Test::YcsbAAlone, IN_FLIGHT),
            (Test::YcsbC, 1),
            (Test::YcsbC, IN_FLIGHT),
        ],
    ),
    ("scc", 1, MAP_TESTS),
    ("papaya", 1, MAP_TESTS),
    ("dashmap", 1, MAP_TESTS),
    ("lmdb", 2, &[(Test::Get, 1), (Test::YcsbA, 1), (Test::YcsbC, 1)]),
];
/// Of ordered indexes.
const ORDERED_CONTENDERS: [Entry; 8] = [
    ("chime", 1, RANGE_TESTS),
    ("sherman", 1, RANGE_TESTS),
    ("rolex", 1, RANGE_TESTS),
    ("smart", 1, RANGE_TESTS),
    ("scc-tree", 1, ORDERED_TESTS),
    ("skiplist", 1, ORDERED_TESTS),
    ("congee", 1, ORDERED_TESTS),
    ("lmdb", 1, ORDERED_TESTS),
];
const RANGE_TESTS: &[Task] = &[(Test::Get, 1), (Test::Get, IN_FLIGHT), (Test::Scan, 1)];
const ORDERED_TESTS: &[Task] = &[(Test::Get, 1), (Test::Scan, 1)];
const MAP_TESTS: &[Task] = &[(Test::Get, 1), (Test::YcsbA, 1), (Test::YcsbC, 1)];

fn start_worker(
    engine: &str,
    path: &Path,
    member: u64,
    options: &EmbeddedOptions,
) -> Result<WorkerProcess, BenchError> {
    let numbers = [options.items, options.duration_ns, options.seed, member];
    let mut arguments: Vec<std::ffi::OsString> = vec!["embedded-worker".into(), engine.into(), path.into()];
    arguments.extend(numbers.map(|number| number.to_string().into()));
    if options.is_ordered {
        arguments.push("--ordered".into());
    }
    WorkerProcess::start(arguments)
}

/// The one number of an answer.
fn answer(worker: &mut WorkerProcess) -> Result<f64, BenchError> {
    let numbers = worker.answer()?;
    Ok(numbers[0])
}

/// The processes of a contender.
struct Contender {
    name: &'static str,
    workers: Vec<WorkerProcess>,
    tests: &'static [Task],
}

impl Contender {
    /// Starts the first process, and has it store all items; then the others.
    fn start((name, count, tests): Entry, path: &Path, options: &EmbeddedOptions) -> Result<(Self, f64), BenchError> {
        let mut workers = vec![start_worker(name, path, 0, options)?];
        workers[0].tell("load")?;
        let bytes = answer(&mut workers[0])?;
        for member in 1..count {
            workers.push(start_worker(name, path, member, options)?);
        }
        Ok((Self { name, workers, tests }, bytes))
    }

    /// Does a test once.
    fn run(&mut self, test: Test, in_flight: u64) -> Result<f64, BenchError> {
        let count = if test.is_alone() { 1 } else { self.workers.len() };
        for worker in &mut self.workers[..count] {
            worker.tell(&format!("{} {in_flight}", test.command()))?;
        }
        // For one process of GETs that is its time, else the sum of what all did per second.
        self.workers[..count].iter_mut().map(answer).sum()
    }
}

/// Measures, and returns what to print.
///
/// # Errors
/// See [`BenchError`].
pub fn run(options: &EmbeddedOptions, progress: &Progress) -> Result<String, BenchError> {
    if options.rounds == 0 {
        return Err(BenchError::argument("--rounds is at least 1"));
    }
    if options.items == 0 || options.items > ITEMS_MAX {
        return Err(BenchError::argument(format!(
            "--items is a number from 1 to {ITEMS_MAX}"
        )));
    }
    let folder = Folder::make(&options.folder, "embedded")?;
    let mut measurements = Vec::new();
    let mut memory = |contender: &'static str, bytes: f64| {
        measurements.push(Measurement {
            test: Test::Memory,
            contender,
            in_flight: None,
            value: bytes / options.items as f64,
            unit: Unit::BytesPerItem,
        });
    };
    let mut contenders = Vec::new();
    let entries: &[Entry] = if options.is_ordered {
        &ORDERED_CONTENDERS
    } else {
        &CONTENDERS
    };
    for (step, &(name, count, tests)) in (0..).zip(entries) {
        progress.label(format!("loading {name}"));
        progress.set(step * 4);
        let path = folder.path().join(name);
        match name {
            "farside" | "chime" | "sherman" | "rolex" | "smart" => {
                let node_bytes = if name == "smart" { smart::NODE_BYTES_PER_ITEM } else { 0 };
                let memory_bytes = segment_bytes(options.items, node_bytes);
                let segment_options = SegmentOptions::with_memory(memory_bytes);
                drop(Segment::create(&path, segment_options)?);
            }
            _ => std::fs::create_dir(&path).map_err(BenchError::system("make a folder"))?,
        }
        let (contender, bytes) = Contender::start((name, count, tests), &path, options)?;
        memory(name, bytes);
        contenders.push(contender);
    }
    if !options.is_ordered {
        progress.label("loading redis");
        if let Some(bytes) = redis::used_bytes(folder.path(), options.items)? {
            memory("redis", bytes as f64);
        }
    }
    let mut values: Vec<Vec<Vec<f64>>> = contenders.iter().map(|one| vec![Vec::new(); one.tests.len()]).collect();
    // One more round than counts: in the first one the workers draw their keys.
    for round in 0..=options.rounds {
        progress.label(format!("round {round} of {}", options.rounds));
        progress.set(25 + round * 75 / (options.rounds + 1));
        for (contender, values) in contenders.iter_mut().zip(&mut values) {
            for (&(test, in_flight), values) in contender.tests.iter().zip(values) {
                let value = contender.run(test, in_flight)?;
                if round > 0 {
                    values.push(value);
                }
            }
        }
    }
    for (contender, values) in contenders.iter().zip(values) {
        for (&(test, in_flight), values) in contender.tests.iter().zip(values) {
            measurements.push(Measurement {
                test,
                contender: contender.name,
                in_flight: Some(in_flight),
                value: median(values),
                unit: test.unit(),
            });
        }
    }
    let report = Report::new(options, measurements);
    Ok(if options.is_json {
        report.to_json()
    } else {
        report.to_table()
    })
}
