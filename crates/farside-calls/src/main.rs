//! Makes so many calls of one kind over mapped memory, for whoever counts what one costs: `cargo xtask weight` runs it under
//! a simulated processor, twice, and divides the difference. Nothing else happens: housekeeping stands still.
//!
//!     cargo run --release -p farside-calls -- set 10000

#![forbid(unsafe_code)]

use std::hint::black_box;
use std::process::ExitCode;

use farside_fabric::shm::{Fabric, Segment};
use farside_fabric::{Endpoint, NodeId, OpContext, Pipeline, RemoteAddr, Seat, interleave};
use farside_kv::{KvError, Session, Store, StoreConfig};
use farside_lock::{LockKind, LockOptions, Locker, Mode, Site};

const MEMORY_BYTES: u64 = 64 << 20;
const KEYS: u64 = 1000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, count] = &arguments[..] else {
        eprintln!(
            "farside-calls: name get, set, get-in-turn or set-in-turn (of a pipeline), replace (a DELETE and a SET) or \
             lock:NAME (and unlock), and how many"
        );
        return ExitCode::from(2);
    };
    let Ok(count) = count.parse() else {
        eprintln!("farside-calls: `{count}` is no number of calls");
        return ExitCode::from(2);
    };
    match make(kind, count) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("farside-calls: `{kind}` is none of get, set, get-in-turn, set-in-turn, replace and lock:NAME");
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("farside-calls: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A client of new memory.
fn endpoint(seat: &Seat) -> Endpoint {
    let segment = Segment::anonymous(MEMORY_BYTES).expect("some memory");
    let endpoint = Fabric::new(vec![segment]).endpoint();
    endpoint.expect("a new segment").seated(seat)
}

/// Makes the calls; returns whether there is such a kind.
fn make(kind: &str, count: u64) -> Result<bool, KvError> {
    if let Some(name) = kind.strip_prefix("lock:") {
        return Ok(LockKind::by_name(name).map(|kind| lock(kind, count)).is_some());
    }
    let seat = Seat::new();
    let store = seat.block_on(Store::open(endpoint(&seat), StoreConfig::default()))?;
    let mut session = store.session();
    for key in 0..KEYS {
        seat.block_on(session.put(&key.to_le_bytes(), &[7; 64]))?;
    }
    if let Some(kind @ ("get" | "set")) = kind.strip_suffix("-in-turn") {
        in_turn(&seat, &store, kind == "set", count);
        seat.clear();
        return Ok(true);
    }
    let call: fn(&Seat, &mut Session, &[u8]) -> Result<(), KvError> = match kind {
        "get" => |seat, session, key| {
            black_box(seat.block_on(session.get(key))?);
            Ok(())
        },
        "set" => |seat, session, key| seat.block_on(session.put(key, &[8; 64])),
        "replace" => |seat, session, key| {
            seat.block_on(session.delete(key))?;
            seat.block_on(session.put(key, &[9; 64]))
        },
        _ => return Ok(false),
    };
    for number in 0..count {
        call(&seat, &mut session, &(number % KEYS).to_le_bytes())?;
    }
    seat.clear();
    Ok(true)
}

/// So many GETs, or SETs, of sessions that take turns while memory is fetched.
fn in_turn(seat: &Seat, store: &Store, sets: bool, count: u64) {
    const IN_FLIGHT: u64 = 16;
    let pipeline = Pipeline::default();
    let runs = (0..IN_FLIGHT).map(|run| {
        let mut session = store.pipelined_session(&pipeline);
        async move {
            for number in (run..count).step_by(IN_FLIGHT as usize) {
                let key = (number % KEYS).to_le_bytes();
                match sets {
                    true => session.put(&key, &[8; 64]).await.expect("mapped memory"),
                    false => {
                        let value = session.get(&key).await.expect("mapped memory");
                        black_box(value.expect("a key that was stored"));
                    }
                }
            }
        }
    });
    seat.block_on(interleave(&pipeline, runs.collect()));
}

/// Takes a lock that nobody else wants, and gives it back.
fn lock(kind: LockKind, count: u64) {
    const ROSTER_AT: u64 = 4096;
    let seat = Seat::new();
    let endpoint = endpoint(&seat);
    let options = LockOptions {
        roster: Some(RemoteAddr::new(NodeId::new(0), ROSTER_AT)),
        ..LockOptions::default()
    };
    let locker = Locker::new(kind, &endpoint, &Site::new(options)).expect("mapped memory has every atomic");
    let entry = RemoteAddr::new(NodeId::new(0), 0);
    let mut cx = OpContext::new(endpoint);
    for _ in 0..count {
        seat.block_on(async {
            let grant = locker
                .acquire(&mut cx, entry, Mode::Exclusive)
                .await
                .expect("a free lock");
            locker.release(&mut cx, grant).await.expect("it is held");
        });
    }
}
