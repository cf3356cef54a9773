//! A cache shared by worker processes: each looks a page up in the cache before it makes it.
//!
//! ```text
//! cargo run --release --example shared_cache -- [--workers 4] [--requests 20000] [--pages 500]
//! ```
//!
//! The first process starts the others, which all open one segment file. What one of them has cached
//! the others find at once. Pages expire, so some are made again. At the end each worker says how many of
//! its requests the cache has answered.

#![forbid(unsafe_code)]

use std::process::{Child, Command, ExitCode};
use std::time::Duration;

use clap::Parser;
use farside::blocking::{Session, Store};
use farside::{Error, Options};

const MEMORY_BYTES: u64 = 64 << 20;
const KEPT_FOR: Duration = Duration::from_millis(200);

/// What every process is told.
#[derive(Parser)]
struct Plan {
    /// How many processes share the cache
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..))]
    workers: u64,
    /// How many pages each looks up
    #[arg(long, default_value_t = 20_000)]
    requests: u64,
    /// How many pages there are
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
    pages: u64,
    /// Which worker this is, and where the cache is; only workers know
    #[arg(long, hide = true, value_parser = worker)]
    worker: Option<(String, u64)>,
}

fn worker(text: &str) -> Result<(String, u64), String> {
    let (number, segment) = text.split_once('@').ok_or("write NUMBER@PATH")?;
    let number = number.parse().map_err(|_| "write NUMBER@PATH")?;
    Ok((segment.to_owned(), number))
}

fn main() -> ExitCode {
    let plan = Plan::parse();
    let result = match &plan.worker {
        Some((segment, number)) => work(&plan, segment, *number).map_err(|error| error.to_string()),
        None => lead(&plan),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            eprintln!("shared_cache: {line}");
            ExitCode::FAILURE
        }
    }
}

/// Makes the segment, starts the workers and waits for them.
fn lead(plan: &Plan) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|error| format!("no folder for the cache: {error}"))?;
    let segment = folder.path().join("cache.segment");
    let store = Store::open(Options::segment(&segment, MEMORY_BYTES)).map_err(|error| error.to_string())?;
    let own = std::env::current_exe().map_err(|error| format!("where am I? {error}"))?;
    let start = |number| {
        let mut command = Command::new(&own);
        command.args(["--worker", &format!("{number}@{}", segment.display())]);
        command.args([
            "--requests",
            &plan.requests.to_string(),
            "--pages",
            &plan.pages.to_string(),
        ]);
        command
            .spawn()
            .map_err(|error| format!("cannot start a worker: {error}"))
    };
    let workers: Result<Vec<Child>, String> = (0..plan.workers).map(start).collect();
    for mut worker in workers? {
        let status = worker.wait().map_err(|error| error.to_string())?;
        if !status.success() {
            return Err(format!("a worker failed: {status}"));
        }
    }
    let pages = store
        .session()
        .and_then(|mut session| session.count())
        .map_err(|error| error.to_string())?;
    println!("{pages} pages in the cache at the end");
    Ok(())
}

/// One worker: asks for pages and counts what the cache knew.
fn work(plan: &Plan, segment: &str, number: u64) -> Result<(), Error> {
    let store = Store::open(Options::pool(&format!("shm:{segment}"))?)?;
    let mut session = store.session()?;
    let mut hits = 0;
    let mut state = number + 1;
    for _ in 0..plan.requests {
        // A little generator, so that the example needs no crate for it.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let page = (state >> 33) % plan.pages;
        hits += u64::from(read(&mut session, page)?);
    }
    let share = 100.0 * hits as f64 / plan.requests.max(1) as f64;
    println!(
        "worker {number}: {hits} of {} requests answered by the cache ({share:.1} %)",
        plan.requests
    );
    Ok(())
}

/// Reads a page through the cache; returns whether it was there.
fn read(session: &mut Session, page: u64) -> Result<bool, Error> {
    let key = format!("page:{page}");
    if let Some(text) = session.get(key.as_bytes())? {
        assert!(text.ends_with(b"</html>"), "a page is cached as a whole");
        return Ok(true);
    }
    let text = make(page);
    session.put_for(key.as_bytes(), text.as_bytes(), KEPT_FOR)?;
    Ok(false)
}

/// What takes long: in a real program a query.
fn make(page: u64) -> String {
    let sum: u64 = (0..2_000).map(|number: u64| number.wrapping_mul(page) >> 3).sum();
    format!("<html><h1>Page {page}</h1>{sum}</html>")
}
