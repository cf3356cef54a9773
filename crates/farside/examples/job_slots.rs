//! Of any number of processes, at most so many do a heavy job at once.
//!
//! ```text
//! cargo run --release --example job_slots -- --segment /dev/shm/slots [--slots 2] [--jobs 5]
//! ```
//!
//! Start it in several terminals. Each slot is a lock; a process takes one that is free, or waits in the queue of one of
//! them. A process that is killed in the middle of a job leaves its slot to the others after a second or two.

#![forbid(unsafe_code)]

use core::time::Duration;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use farside::{Error, LockGuard, Locks, Options};

const MEMORY_BYTES: u64 = 32 << 20;

/// What every process is told.
#[derive(Parser)]
struct Plan {
    /// The file that the processes share; made if it is not there
    #[arg(long)]
    segment: PathBuf,
    /// How many processes may work at once
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..))]
    slots: u64,
    /// How many jobs this process has
    #[arg(long, default_value_t = 5)]
    jobs: u64,
    /// How many milliseconds a job takes
    #[arg(long, default_value_t = 500)]
    job_ms: u64,
}

fn main() -> ExitCode {
    let plan = Plan::parse();
    let ended = farside::run(run(&plan)).map_err(|error| error.to_string());
    match ended.and_then(|ended| ended) {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            eprintln!("job_slots: {line}");
            ExitCode::FAILURE
        }
    }
}

async fn run(plan: &Plan) -> Result<(), String> {
    let text = |error: Error| error.to_string();
    let locks = Locks::open(Options::segment(&plan.segment, MEMORY_BYTES))
        .await
        .map_err(text)?;
    for job in 1..=plan.jobs {
        let (slot, guard) = take_slot(plan, &locks).await.map_err(text)?;
        println!("job {job} of process {} in slot {slot}", std::process::id());
        let note = plan.segment.with_extension(format!("slot-{slot}"));
        work(plan, &note, guard.token()).await?;
        guard.release().await.map_err(text)?;
    }
    locks.close().await.map_err(text)
}

/// A slot that is free, or becomes free first among those whose queues this process stands in.
async fn take_slot(plan: &Plan, locks: &Locks) -> Result<(u64, LockGuard), Error> {
    let name = |slot: u64| format!("slot {slot}");
    let mut last = u64::from(std::process::id());
    loop {
        for slot in 0..plan.slots {
            if let Some(guard) = locks.try_exclusive(name(slot)).await? {
                return Ok((slot, guard));
            }
        }
        last = (last + 1) % plan.slots;
        if let Some(guard) = locks.exclusive_within(name(last), Duration::from_millis(200)).await? {
            return Ok((last, guard));
        }
    }
}

/// The job, which finds out if somebody else works in its slot.
async fn work(plan: &Plan, note: &Path, token: u64) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", note.display());
    std::fs::write(note, token.to_string()).map_err(failed)?;
    #[expect(clippy::disallowed_methods, reason = "a job takes time")]
    tokio::time::sleep(Duration::from_millis(plan.job_ms)).await;
    let found = std::fs::read_to_string(note).map_err(failed)?;
    if found != token.to_string() {
        return Err(format!("somebody with token {found} was in the slot beside {token}"));
    }
    Ok(())
}
