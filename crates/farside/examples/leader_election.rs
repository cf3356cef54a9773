//! One process leads, the others stand by; when it ends, in whatever way, another one leads.
//!
//! ```text
//! cargo run --release --example leader_election -- --segment /dev/shm/election [--name alice] [--terms 1]
//! ```
//!
//! Start it in several terminals, and kill the leader. What a leader does outside of the memory, here to a file beside
//! the segment, carries its fencing token: a leader of before that does not know yet is refused.

#![forbid(unsafe_code)]

use core::time::Duration;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use farside::blocking::{LockGuard, Locks};
use farside::{Error, Options};

const MEMORY_BYTES: u64 = 32 << 20;
const OFFICE: &str = "leader";

/// What every process is told.
#[derive(Parser)]
struct Plan {
    /// The file that the processes share; made if it is not there
    #[arg(long)]
    segment: PathBuf,
    /// What the others call this process
    #[arg(long, default_value_t = format!("process {}", std::process::id()))]
    name: String,
    /// How many milliseconds it leads before it resigns
    #[arg(long, default_value_t = 5_000)]
    term_ms: u64,
    /// How often it leads before it ends
    #[arg(long, default_value_t = 1)]
    terms: u64,
}

fn main() -> ExitCode {
    let plan = Plan::parse();
    match run(&plan) {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            eprintln!("leader_election: {line}");
            ExitCode::FAILURE
        }
    }
}

fn run(plan: &Plan) -> Result<(), String> {
    let options = Options::segment(&plan.segment, MEMORY_BYTES).owner(&plan.name);
    let locks = Locks::open(options).map_err(|error| error.to_string())?;
    for _ in 0..plan.terms {
        let leader = await_turn(plan, &locks).map_err(|error| error.to_string())?;
        println!("{} leads, with token {}", plan.name, leader.token());
        lead(plan, &leader)?;
        leader.release().map_err(|error| error.to_string())?;
        println!("{} has resigned", plan.name);
    }
    Ok(())
}

/// Waits for the office, and says now and then who has it.
fn await_turn(plan: &Plan, locks: &Locks) -> Result<LockGuard, Error> {
    loop {
        if let Some(leader) = locks.exclusive_within(OFFICE, Duration::from_secs(1))? {
            return Ok(leader);
        }
        if let Some(holder) = locks.holder(OFFICE)? {
            #[expect(clippy::disallowed_methods, reason = "people read it, and nothing depends on it")]
            let seconds = holder.since().elapsed().unwrap_or_default().as_secs();
            println!("{} stands by: {} has led for {seconds} s", plan.name, holder.owner);
        }
    }
}

/// Works until the term is over.
fn lead(plan: &Plan, leader: &LockGuard) -> Result<(), String> {
    const STEP_MS: u64 = 50;
    let ledger = plan.segment.with_extension("ledger");
    for _ in 0..plan.term_ms.div_ceil(STEP_MS) {
        if !leader.is_held() {
            return Err(format!("{} was away for too long, and leads no more", plan.name));
        }
        write(&ledger, leader.token(), &plan.name)?;
        #[expect(clippy::disallowed_methods, reason = "a leader's work takes time")]
        std::thread::sleep(Duration::from_millis(STEP_MS));
    }
    Ok(())
}

/// What is led: a file that takes no orders from leaders of before.
fn write(ledger: &Path, token: u64, name: &str) -> Result<(), String> {
    let before = std::fs::read_to_string(ledger).unwrap_or_default();
    let newest = before.split(' ').next().and_then(|token| token.parse::<u64>().ok());
    if newest.is_some_and(|newest| newest > token) {
        return Err(format!("a leader with a larger token than {token} has written already"));
    }
    std::fs::write(ledger, format!("{token} {name}\n")).map_err(|error| format!("{}: {error}", ledger.display()))
}
