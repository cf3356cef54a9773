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

use farside::blocking::{Session, Store};
use farside::{Error, Options};

const USAGE: &str = "usage: shared_cache [--workers N] [--requests N] [--pages N]";
const MEMORY_BYTES: u64 = 64 << 20;
const KEPT_FOR: Duration = Duration::from_millis(200);

/// What every process is told.
struct Plan {
    workers: u64,
    requests: u64,
    pages: u64,
    /// Where the cache is, and which worker this is; only workers know.
    worker: Option<(String, u64)>,
}

fn main() -> ExitCode {
    let result = plan(std::env::args().skip(1)).and_then(|plan| match &plan.worker {
        Some((segment, number)) => work(&plan, segment, *number).map_err(|error| error.to_string()),
        None => lead(&plan),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            eprintln!("shared_cache: {line}");
            ExitCode::FAILURE
        }
    }
}

fn plan(mut words: impl Iterator<Item = String>) -> Result<Plan, String> {
    let mut plan = Plan {
        workers: 4,
        requests: 20_000,
        pages: 500,
        worker: None,
    };
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value; {USAGE}"))?;
        let number = || {
            value
                .parse()
                .map_err(|_| format!("{word} takes a number, not `{value}`"))
        };
        match word.as_str() {
            "--workers" => plan.workers = number()?,
            "--requests" => plan.requests = number()?,
            "--pages" => plan.pages = number()?,
            "--worker" => {
                let (number, segment) = value.split_once('@').ok_or(USAGE)?;
                plan.worker = Some((segment.to_owned(), number.parse().map_err(|_| USAGE)?));
            }
            _ => return Err(format!("there is no {word}; {USAGE}")),
        }
    }
    if plan.workers == 0 || plan.pages == 0 {
        return Err(format!("at least one worker and one page; {USAGE}"));
    }
    Ok(plan)
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
