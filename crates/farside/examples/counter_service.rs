//! A counter that processes share: each increments it, and none is lost.
//!
//! ```text
//! cargo run --release --example counter_service -- [--processes 4] [--increments 50000] [--counters 8]
//! ```
//!
//! The first process starts the others, waits for them and adds the counters up. An increment is an
//! `update`: if another process was quicker, it is done again with the new number.

#![forbid(unsafe_code)]

use std::process::{Child, Command, ExitCode};

use clap::Parser;
use farside::Options;
use farside::blocking::{Session, Store};

const MEMORY_BYTES: u64 = 64 << 20;

/// What every process is told.
#[derive(Parser)]
struct Plan {
    /// How many processes count
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..))]
    processes: u64,
    /// How often each increments
    #[arg(long, default_value_t = 50_000)]
    increments: u64,
    /// How many counters there are
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..))]
    counters: u64,
    /// Where the counters are; only the started processes know
    #[arg(long, hide = true)]
    segment: Option<String>,
}

/// Why an increment was refused.
#[derive(Debug)]
struct NotANumber;

fn main() -> ExitCode {
    let plan = Plan::parse();
    let result = match &plan.segment {
        Some(segment) => count(&plan, segment),
        None => lead(&plan),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            eprintln!("counter_service: {line}");
            ExitCode::FAILURE
        }
    }
}

/// Starts the processes, waits, and checks the sum.
fn lead(plan: &Plan) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|error| format!("no folder for the counters: {error}"))?;
    let segment = folder.path().join("counters.segment");
    let store = Store::open(Options::segment(&segment, MEMORY_BYTES)).map_err(|error| error.to_string())?;
    let own = std::env::current_exe().map_err(|error| format!("where am I? {error}"))?;
    let start = |_| {
        let mut command = Command::new(&own);
        command.args(["--increments", &plan.increments.to_string()]);
        command.args(["--counters", &plan.counters.to_string()]);
        command.arg("--segment").arg(&segment);
        command
            .spawn()
            .map_err(|error| format!("cannot start a process: {error}"))
    };
    let processes: Result<Vec<Child>, String> = (0..plan.processes).map(start).collect();
    for mut process in processes? {
        let status = process.wait().map_err(|error| error.to_string())?;
        if !status.success() {
            return Err(format!("a process failed: {status}"));
        }
    }
    let mut session = store.session().map_err(|error| error.to_string())?;
    let mut sum = 0;
    for counter in 0..plan.counters {
        let stored = session.get(&key(counter)).map_err(|error| error.to_string())?;
        let number = number(stored).map_err(|NotANumber| format!("counter {counter} holds no number"))?;
        println!("counter {counter}: {number}");
        sum += number;
    }
    let expected = plan.processes * plan.increments;
    if sum != expected {
        return Err(format!("the counters make {sum}, but there were {expected} increments"));
    }
    println!("{sum} increments by {} processes, none lost", plan.processes);
    Ok(())
}

/// One of the processes.
fn count(plan: &Plan, segment: &str) -> Result<(), String> {
    let options = Options::pool(&format!("shm:{segment}")).map_err(|error| error.to_string())?;
    let store = Store::open(options).map_err(|error| error.to_string())?;
    let mut session = store.session().map_err(|error| error.to_string())?;
    for round in 0..plan.increments {
        increment(&mut session, round % plan.counters)?;
    }
    Ok(())
}

fn increment(session: &mut Session, counter: u64) -> Result<(), String> {
    let add = |stored: Option<&[u8]>| Ok((number(stored)? + 1).to_le_bytes().to_vec());
    match session.update(&key(counter), add) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(NotANumber)) => Err(format!("counter {counter} holds no number")),
        Err(error) => Err(error.to_string()),
    }
}

fn key(counter: u64) -> Vec<u8> {
    format!("counter:{counter}").into_bytes()
}

/// A counter that nobody has touched is 0.
fn number(stored: Option<&[u8]>) -> Result<u64, NotANumber> {
    let Some(bytes) = stored else { return Ok(0) };
    bytes.try_into().map(u64::from_le_bytes).map_err(|_| NotANumber)
}
