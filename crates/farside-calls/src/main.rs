//! Makes so many calls of one kind over mapped memory, for whoever counts what one costs: `cargo xtask weight` runs it under
//! a simulated processor, twice, and divides the difference. Nothing else happens: housekeeping stands still.
//!
//!     cargo run --release -p farside-calls -- set 10000

#![forbid(unsafe_code)]

mod burst;

use std::hint::black_box;
use std::process::ExitCode;

use farside_fabric::shm::{Fabric, Segment};
use farside_fabric::{Endpoint, NodeId, OpContext, Pipeline, RemoteAddr, Seat, interleave};
use farside_kv::{IndexKind, KEYS_AT_ONCE, KvError, Locks, LocksOptions, Session, Store, StoreConfig};
use farside_lock::{LockKind, LockOptions, Locker, Mode, Site};
use farside_pool::layout::POOL_ID_AT;

const MEMORY_BYTES: u64 = 64 << 20;
/// The keys that there are at first, except
const KEYS: u64 = 1000;
/// for calls that use each up.
const KEYS_TO_DELETE: u64 = 8192;
const VALUE: [u8; 64] = [7; 64];
/// Longer than any run takes.
const NEVER_NS: u64 = 10_000_000_000_000;

const KINDS: &str = "get, get-in-turn (of a pipeline), get-many (a key of sixteen), set, set-in-turn, set-many, insert, delete, \
                     replace (a DELETE and a SET), increment, ordered-get and ordered-scan (of a hundred keys), burst-get and \
                     burst-set (sixteen commands through a gateway), named-lock (and unlock), and lock:NAME (without a name)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, count] = &arguments[..] else {
        eprintln!("farside-calls: name {KINDS}, and how many");
        return ExitCode::from(2);
    };
    let Ok(count) = count.parse() else {
        eprintln!("farside-calls: `{count}` is not a number of calls");
        return ExitCode::from(2);
    };
    match make(kind, count) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("farside-calls: `{kind}` is none of {KINDS}");
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("farside-calls: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A client of new memory.
fn endpoint(seat: &Seat, segment: Segment) -> Endpoint {
    let endpoint = Fabric::new(vec![segment]).endpoint();
    endpoint.expect("a new segment").seated(seat)
}

/// New memory, in which every pool has the same number: it is the seed of its tables, so that which key is where is the same
/// in every run.
fn memory() -> Result<Segment, Box<dyn core::error::Error>> {
    let segment = Segment::anonymous(MEMORY_BYTES)?;
    let seat = Seat::new();
    let mut cx = OpContext::new(endpoint(&seat, segment.clone()));
    // Who formats a pool takes a number over that somebody has chosen before.
    let number = RemoteAddr::new(NodeId::new(0), POOL_ID_AT);
    seat.block_on(cx.compare_swap(number, 0, 1))?;
    Ok(segment)
}

/// Makes the calls; returns whether there is such a kind.
fn make(kind: &str, count: u64) -> Result<bool, Box<dyn core::error::Error>> {
    if let Some(name) = kind.strip_prefix("lock:") {
        return Ok(LockKind::by_name(name).map(|kind| lock(kind, count)).is_some());
    }
    if let Some(command) = kind.strip_prefix("burst-") {
        return burst::make(command, count);
    }
    let (kind, index) = match kind.strip_prefix("ordered-") {
        Some(kind) => (kind, IndexKind::Chime),
        None => (kind, IndexKind::Race),
    };
    let seat = Seat::new();
    let mut config = StoreConfig {
        index: Some(index),
        ..StoreConfig::default()
    };
    if kind == "named-lock" {
        // Its tasks run beside it, and so would the housekeeping.
        (config.pool.tick_ns, config.pool.lease_ns) = (NEVER_NS, 8 * NEVER_NS);
    }
    let segment = memory()?;
    let store = seat.block_on(Store::open(endpoint(&seat, segment.clone()), config))?;
    let mut session = store.session();
    let keys = if kind == "delete" { KEYS_TO_DELETE } else { KEYS };
    for key in 0..keys {
        let value: &[u8] = if kind == "increment" { b"0" } else { &VALUE };
        seat.block_on(seat.drive(session.put(&key.to_le_bytes(), value)))?;
    }
    if kind == "named-lock" {
        let result = named_lock(&seat, &segment, count);
        seat.clear();
        return result.map(|()| true);
    }
    if let Some(kind @ ("get" | "set")) = kind.strip_suffix("-in-turn") {
        in_turn(&seat, &store, kind == "set", count);
        seat.clear();
        return Ok(true);
    }
    let call: fn(&Seat, &mut Session, u64) -> Result<(), KvError> = match kind {
        "get" => |seat, session, number| {
            black_box(seat.block_on(session.get(&key(number)))?);
            Ok(())
        },
        "get-many" => |seat, session, number| match number % KEYS_AT_ONCE as u64 {
            0 => seat.block_on(get_many(session, number)),
            _ => Ok(()),
        },
        "set-many" => |seat, session, number| match number % KEYS_AT_ONCE as u64 {
            0 => seat.block_on(set_many(session, number)),
            _ => Ok(()),
        },
        "set" => |seat, session, number| seat.block_on(session.put(&key(number), &VALUE)),
        // What grows is split beside it.
        "insert" => |seat, session, number| {
            let key = (KEYS + number).to_le_bytes();
            seat.block_on(seat.drive(session.put(&key, &VALUE)))
        },
        "delete" => |seat, session, number| seat.block_on(session.delete(&number.to_le_bytes())).map(drop),
        "replace" => |seat, session, number| {
            seat.block_on(session.delete(&key(number)))?;
            seat.block_on(session.put(&key(number), &VALUE))
        },
        "increment" => |seat, session, number| seat.block_on(increment(session, &key(number))),
        "scan" => |seat, session, number| {
            black_box(seat.block_on(session.range(&key(number % (KEYS / 2)), None, 100))?);
            Ok(())
        },
        _ => return Ok(false),
    };
    for number in 0..count {
        call(&seat, &mut session, number)?;
    }
    seat.clear();
    Ok(true)
}

/// One of the keys that are there.
fn key(number: u64) -> [u8; 8] {
    (number % KEYS).to_le_bytes()
}

async fn get_many(session: &mut Session, first: u64) -> Result<(), KvError> {
    let keys: [[u8; 8]; KEYS_AT_ONCE] = core::array::from_fn(|index| key(first + index as u64));
    let keys: [&[u8]; KEYS_AT_ONCE] = core::array::from_fn(|index| keys[index].as_slice());
    let mut values = session.get_many(&keys);
    for _ in keys {
        black_box(values.next().await?.expect("a key that was stored"));
    }
    Ok(())
}

async fn set_many(session: &mut Session, first: u64) -> Result<(), KvError> {
    let keys: [[u8; 8]; KEYS_AT_ONCE] = core::array::from_fn(|index| key(first + index as u64));
    let items: [(&[u8], &[u8]); KEYS_AT_ONCE] =
        core::array::from_fn(|index| (keys[index].as_slice(), VALUE.as_slice()));
    let mut result = Ok(());
    session
        .put_many(&items, |stored| {
            result = core::mem::replace(&mut result, Ok(())).and(stored);
        })
        .await;
    result
}

/// As INCR does: the number stands there as text.
async fn increment(session: &mut Session, key: &[u8]) -> Result<(), KvError> {
    let incremented = session.update(key, |stored| {
        let text = stored.and_then(|stored| str::from_utf8(stored).ok());
        let number: i64 = text.and_then(|text| text.parse().ok()).ok_or("no number")?;
        Ok::<_, &str>((number + 1).to_string().into_bytes())
    });
    incremented.await?.expect("a number");
    Ok(())
}

/// So many GETs, or SETs, of sessions that take turns while memory is fetched.
fn in_turn(seat: &Seat, store: &Store, sets: bool, count: u64) {
    const IN_FLIGHT: u64 = 16;
    let pipeline = Pipeline::default();
    let runs = (0..IN_FLIGHT).map(|run| {
        let mut session = store.pipelined_session(&pipeline);
        async move {
            for number in (run..count).step_by(IN_FLIGHT as usize) {
                let key = key(number);
                match sets {
                    true => session.put(&key, &VALUE).await.expect("mapped memory"),
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

/// Takes the lock with a name that nobody else wants, as a program that embeds the store does, and gives it back.
fn named_lock(seat: &Seat, segment: &Segment, count: u64) -> Result<(), Box<dyn core::error::Error>> {
    let endpoint = endpoint(seat, segment.clone());
    let options = LocksOptions {
        lease_ns: NEVER_NS,
        ..LocksOptions::default()
    };
    let locks = seat.block_on(Locks::open(endpoint, options))?;
    for _ in 0..count {
        let guard = seat.block_on(seat.drive(locks.acquire(b"name", Mode::Exclusive)))?;
        seat.block_on(seat.drive(guard.release()))?;
    }
    Ok(())
}

/// Takes a lock that nobody else wants, and gives it back.
fn lock(kind: LockKind, count: u64) {
    const ROSTER_AT: u64 = 4096;
    let seat = Seat::new();
    let endpoint = endpoint(&seat, Segment::anonymous(MEMORY_BYTES).expect("some memory"));
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
