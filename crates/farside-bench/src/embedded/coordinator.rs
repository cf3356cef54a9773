//! Starts the processes of all contenders, tells them in turn what to do, and compares.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use farside_fabric::shm::{Segment, SegmentOptions};

use super::EmbeddedOptions;
use super::draws::ITEMS_MAX;
use super::farside::{IN_FLIGHT, segment_bytes};
use super::redis;
use super::report::{Measurement, Report, Test, Unit};
use crate::error::BenchError;
use crate::latency::median;
use crate::progress::Progress;

/// A test, and how many operations are in flight in it.
type Task = (Test, u64);

/// Contenders, how many processes each has, and what they are asked to do.
const CONTENDERS: [(&str, u64, &[Task]); 5] = [
    (
        "farside",
        2,
        &[
            (Test::Get, 1),
            (Test::Get, IN_FLIGHT),
            (Test::YcsbA, 1),
            (Test::YcsbA, IN_FLIGHT),
            (Test::YcsbC, 1),
            (Test::YcsbC, IN_FLIGHT),
        ],
    ),
    ("scc", 1, MAP_TESTS),
    ("papaya", 1, MAP_TESTS),
    ("dashmap", 1, MAP_TESTS),
    ("lmdb", 2, &[(Test::Get, 1), (Test::YcsbA, 1), (Test::YcsbC, 1)]),
];
const MAP_TESTS: &[Task] = &[(Test::Get, 1), (Test::YcsbA, 1), (Test::YcsbC, 1)];

/// A folder that goes when this does.
struct Folder(PathBuf);

impl Folder {
    fn make(parent: &Path) -> Result<Self, BenchError> {
        let path = parent.join(format!("farside-embedded-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| BenchError::Output {
            path: path.clone(),
            reason: error.to_string(),
        })?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // If somebody was quicker, that is as well.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// One process of a contender. It ends when its standard input does.
struct Worker {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Worker {
    fn start(engine: &str, path: &Path, member: u64, options: &EmbeddedOptions) -> Result<Self, BenchError> {
        let program = std::env::current_exe().map_err(BenchError::system("find this program"))?;
        let mut process = Command::new(program)
            .args(["bench", "embedded-worker", engine])
            .arg(path)
            .args([options.items, options.duration_ns, options.seed, member].map(|number| number.to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(BenchError::system("start a worker"))?;
        let output = BufReader::new(process.stdout.take().expect("it was asked for"));
        Ok(Self {
            input: process.stdin.take(),
            process,
            output,
        })
    }

    fn tell(&mut self, line: &str) -> Result<(), BenchError> {
        let input = self.input.as_mut().expect("it is closed last");
        writeln!(input, "{line}").map_err(BenchError::system("tell a worker what to do"))
    }

    fn answer(&mut self) -> Result<f64, BenchError> {
        let mut line = String::new();
        let read = self.output.read_line(&mut line);
        read.map_err(BenchError::system("hear from a worker"))?;
        let number = line
            .trim_end()
            .strip_prefix("ok ")
            .and_then(|number| number.parse().ok());
        number.ok_or_else(|| {
            let reason = if line.is_empty() {
                "it ended"
            } else {
                "it said something else"
            };
            BenchError::system("hear from a worker")(std::io::Error::other(reason))
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.input = None;
        // It has said on standard error what went wrong, if anything did.
        let _ = self.process.wait();
    }
}

/// The processes of a contender.
struct Contender {
    name: &'static str,
    workers: Vec<Worker>,
    tests: &'static [Task],
}

impl Contender {
    /// Starts the first process, and has it store all items; then the others.
    fn start(
        (name, count, tests): (&'static str, u64, &'static [Task]),
        path: &Path,
        options: &EmbeddedOptions,
    ) -> Result<(Self, f64), BenchError> {
        let mut workers = vec![Worker::start(name, path, 0, options)?];
        workers[0].tell("load")?;
        let bytes = workers[0].answer()?;
        for member in 1..count {
            workers.push(Worker::start(name, path, member, options)?);
        }
        Ok((Self { name, workers, tests }, bytes))
    }

    /// Does a test once.
    fn run(&mut self, test: Test, in_flight: u64) -> Result<f64, BenchError> {
        let count = if test == Test::Get { 1 } else { self.workers.len() };
        for worker in &mut self.workers[..count] {
            worker.tell(&format!("{} {in_flight}", test.name()))?;
        }
        // For one process of GETs that is its time, else the sum of what all did per second.
        self.workers[..count].iter_mut().map(Worker::answer).sum()
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
    let folder = Folder::make(&options.folder)?;
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
    for (step, &(name, count, tests)) in (0..).zip(&CONTENDERS) {
        progress.label(format!("loading {name}"));
        progress.set(step * 5);
        let path = folder.0.join(name);
        match name {
            "farside" => {
                let segment_options = SegmentOptions::with_memory(segment_bytes(options.items));
                drop(Segment::create(&path, segment_options)?);
            }
            _ => std::fs::create_dir(&path).map_err(BenchError::system("make a folder"))?,
        }
        let (contender, bytes) = Contender::start((name, count, tests), &path, options)?;
        memory(name, bytes);
        contenders.push(contender);
    }
    progress.label("loading redis");
    if let Some(bytes) = redis::used_bytes(&folder.0, options.items)? {
        memory("redis", bytes as f64);
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
