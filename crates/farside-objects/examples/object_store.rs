//! Processes share objects: thumbnails, serialised models, pages; each is whole whenever somebody gets it.
//!
//! ```text
//! cargo run --release -p farside-objects --example object_store -- --segment /dev/shm/objects [--requests 100000]
//! ```
//!
//! Start it in several terminals. Each process sets a third of the time and gets otherwise, and looks at every byte of what it
//! gets. An object has a ShiftLock: a process that is killed in the middle of a set leaves its object torn, and the others are told
//! so until one of them sets it anew.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use farside_fabric::shm::{Fabric, Segment, SegmentOptions};
use farside_fabric::{OpContext, host};
use farside_lock::{LockKind, LockOptions, Locker, Site};
use farside_objects::{ObjectError, Objects, Places};

const KIND: LockKind = LockKind::ShiftLock;
/// All processes have the same.
const OBJECTS: u64 = 1_000;
const CAPACITY: u32 = 16_384;

/// What every process is told.
#[derive(Parser)]
struct Plan {
    /// The file that the processes share; made if it is not there
    #[arg(long)]
    segment: PathBuf,
    /// How many objects this process sets or gets
    #[arg(long, default_value_t = 100_000)]
    requests: u64,
}

/// What one process has seen.
#[derive(Default)]
struct Seen {
    sets: u64,
    gets: u64,
    absent: u64,
    torn: u64,
}

fn main() -> ExitCode {
    let plan = Plan::parse();
    let ended = host::on_this_thread(run(&plan)).map_err(|error| error.to_string());
    match ended.and_then(|ended| ended) {
        Ok(seen) => {
            let Seen {
                sets,
                gets,
                absent,
                torn,
            } = seen;
            println!(
                "{sets} sets; {gets} gets, of which {absent} of objects that nobody had set and {torn} of torn ones"
            );
            ExitCode::SUCCESS
        }
        Err(line) => {
            eprintln!("object_store: {line}");
            ExitCode::FAILURE
        }
    }
}

async fn run(plan: &Plan) -> Result<Seen, String> {
    let options = LockOptions {
        // There is no agent of a lock service, and processes are killed.
        recovers_alone: true,
        ..LockOptions::default()
    };
    let capacities = (0..OBJECTS as usize).map(|_| CAPACITY);
    let places = Arc::new(Places::new(KIND.entry_bytes(&options), capacities));
    let memory = SegmentOptions::with_memory(places.memory_bytes());
    let segment = Segment::open_or_create(&plan.segment, memory).map_err(|error| error.to_string())?;
    if segment.memory_bytes() < places.memory_bytes() {
        let (path, bytes) = (plan.segment.display(), places.memory_bytes());
        return Err(format!("{path} is of something else: the objects need {bytes} bytes"));
    }
    let endpoint = Fabric::new(vec![segment])
        .endpoint()
        .map_err(|error| error.to_string())?;
    let locker = Locker::new(KIND, &endpoint, &Site::new(options)).map_err(|error| error.to_string())?;
    let mut cx = OpContext::new(endpoint.clone());
    let mut objects = Objects::new(places, Some(locker));

    let mut seen = Seen::default();
    let mut value = Vec::new();
    for _ in 0..plan.requests {
        let object = endpoint.random_below(OBJECTS);
        if endpoint.random_below(3) == 0 {
            value.clear();
            value.resize(
                endpoint.random_below(u64::from(CAPACITY) + 1) as usize,
                endpoint.random() as u8,
            );
            objects
                .set(&mut cx, object, &value)
                .await
                .map_err(|error| error.to_string())?;
            seen.sets += 1;
            continue;
        }
        seen.gets += 1;
        match objects.get(&mut cx, object, &mut value).await {
            Ok(true) if value.iter().any(|byte| *byte != value[0]) => {
                return Err(format!("object {object} is of several sets"));
            }
            Ok(true) => {}
            Ok(false) => seen.absent += 1,
            Err(ObjectError::Torn { .. }) => seen.torn += 1,
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(seen)
}
