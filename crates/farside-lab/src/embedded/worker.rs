//! A process of a contender: it does what it is told on standard input, a line each, and answers with one.
//!
//! | line | answer |
//! |---|---|
//! | `load` | bytes that the items take |
//! | `get IN_FLIGHT` | nanoseconds per GET |
//! | `scan IN_FLIGHT` | nanoseconds per scan of 100 keys |
//! | `ycsb-a IN_FLIGHT`, `ycsb-c IN_FLIGHT` | operations per second of this process |
//!
//! An answer is `ok NUMBER`. A worker that fails says why on standard error and ends.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};

use farside_fabric::host::HostClock;
use farside_index::TreeKind;

use super::WorkerOptions;
use super::draws::Draws;
use super::farside::Farside;
use super::lmdb::Lmdb;
use super::maps::{Dash, Papaya, Process, Scc};
use super::range::Range;
use super::smart::Smart;
use super::trees::{Art, OrderedProcess, SccTree, SkipList};
use crate::error::BenchError;
use crate::stage::machine::on_this_thread;
use crate::workload::Workload;

/// How many GETs are measured at a time.
pub(super) const GETS: u64 = 1 << 20;
/// How many scans are.
pub(super) const SCANS: u64 = 1 << 16;
/// After how many operations the clock is read, a guard is taken anew, and others may run.
pub(super) const OPERATIONS_PER_TURN: u64 = 64;
/// How many threads of one process share a map.
const THREADS: u64 = 2;

/// What a contender can do.
pub(super) trait Engine {
    /// Stores all items; returns the bytes that they take.
    async fn load(&mut self) -> Result<u64, BenchError>;
    /// Nanoseconds per GET.
    async fn get(&mut self, in_flight: u64) -> Result<f64, BenchError>;
    /// Nanoseconds per scan.
    async fn scan(&mut self) -> Result<f64, BenchError> {
        Err(BenchError::argument("this contender has no order to scan in"))
    }
    /// Operations per second.
    async fn ycsb(&mut self, _draws: &mut [Draws], _in_flight: u64, _duration_ns: u64) -> Result<f64, BenchError> {
        Err(BenchError::argument("this contender runs no workload"))
    }
    /// Ends in order.
    async fn leave(self) -> Result<(), BenchError>
    where
        Self: Sized,
    {
        Ok(())
    }
}

/// Operations per second since `start_ns`.
pub(super) fn per_second(operations: u64, start_ns: u64) -> f64 {
    operations as f64 * 1e9 / (HostClock.now_ns() - start_ns).max(1) as f64
}

/// Runs a worker until its standard input ends.
///
/// # Errors
/// See [`BenchError`].
pub fn serve(options: &WorkerOptions) -> Result<(), BenchError> {
    on_this_thread(async {
        match options.engine.as_str() {
            "farside" => Box::pin(obey(Farside::open(options).await?, options, 1)).await,
            "chime" => Box::pin(obey(Range::open(TreeKind::Chime, options).await?, options, 1)).await,
            "sherman" => Box::pin(obey(Range::open(TreeKind::Sherman, options).await?, options, 1)).await,
            "rolex" => Box::pin(obey(Range::open(TreeKind::Rolex, options).await?, options, 1)).await,
            "smart" => Box::pin(obey(Smart::open(options).await?, options, 1)).await,
            "scc-tree" => obey(OrderedProcess::<SccTree>::new(options), options, 1).await,
            "skiplist" => obey(OrderedProcess::<SkipList>::new(options), options, 1).await,
            "congee" => obey(OrderedProcess::<Art>::new(options), options, 1).await,
            "lmdb" => obey(Lmdb::open(options)?, options, 1).await,
            "scc" => obey(Process::<Scc>::new(options), options, THREADS).await,
            "papaya" => obey(Process::<Papaya>::new(options), options, THREADS).await,
            "dashmap" => obey(Process::<Dash>::new(options), options, THREADS).await,
            other => Err(BenchError::Argument(format!("there is no contender `{other}`"))),
        }
    })?
}

/// Reads lines and does what they say. Blocks this thread while there is none: nobody else's work waits for
/// that of an idle client.
async fn obey<T: Engine>(mut engine: T, options: &WorkerOptions, threads: u64) -> Result<(), BenchError> {
    let mut draws = BTreeMap::<String, Vec<Draws>>::new();
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(BenchError::system("read what to do"))?;
        let (command, in_flight) = line.split_once(' ').unwrap_or((&line, "1"));
        let unknown = || BenchError::Argument(format!("`{line}` is nothing that a worker does"));
        let in_flight = in_flight.parse().map_err(|_| unknown())?;
        let answer = match command {
            "load" => engine.load().await? as f64,
            "get" => engine.get(in_flight).await?,
            "scan" => engine.scan().await?,
            name => {
                let workload = Workload::by_name(name).map_err(BenchError::Argument)?;
                let draws = draws.entry(name.to_owned()).or_insert_with(|| {
                    let client = |thread| options.member * THREADS + thread;
                    let draw = |thread| Draws::new(workload, options.items, options.seed, client(thread));
                    (0..threads).map(draw).collect()
                });
                engine.ycsb(draws, in_flight, options.duration_ns).await?
            }
        };
        let mut output = std::io::stdout().lock();
        let told = writeln!(output, "ok {answer}").and_then(|()| output.flush());
        told.map_err(BenchError::system("answer"))?;
    }
    engine.leave().await
}
