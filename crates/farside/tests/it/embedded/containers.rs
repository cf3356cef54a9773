//! Containers on one segment, of which one is killed: the other one gets its lock, and the memory that only the dead one could
//! have used. Each is a process in a process number namespace of its own, where it is process 1.
//!
//! How long that takes is printed, for `docs/failures.md`; what is tested is that it happens:
//!
//!     cargo test -p farside --test it embedded::containers -- --nocapture

use std::io::Write;

use farside::Options;
use farside::blocking::{Locks, Session, Store};
use farside_fabric::host::HostClock;

use super::process::{Worker, pool_of_job, say};

const MEMORY: u64 = 32 << 20;
/// Chunks have many of them.
const VALUE_BYTES: usize = 1000;

/// Stores values under names of its own until there is no room; returns how many.
fn fill(session: &mut Session, whose: &str, first: u64) -> u64 {
    let value = [0; VALUE_BYTES];
    for number in first.. {
        match session.put(format!("{whose} {number}").as_bytes(), &value) {
            Ok(()) => {}
            Err(error) if error.is_out_of_memory() => return number - first,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("memory has an end")
}

/// A job: fills the memory and deletes every other value, so that half of it is free, in chunks that are its own. It keeps these, and
/// a lock, for ever.
#[test]
fn job_hold_lock_and_blocks() {
    let Some(pool) = pool_of_job() else { return };
    let options = Options::pool(&pool).expect("a pool");
    let locks = Locks::open(options.clone()).expect("it is there");
    let _guard = locks.exclusive("lock").expect("free");
    let store = Store::open(options).expect("it is there");
    let mut session = store.session().expect("room");
    let count = fill(&mut session, "dead", 0);
    for number in (0..count).step_by(2) {
        assert!(
            session
                .delete(format!("dead {number}").as_bytes())
                .expect("it is there")
        );
    }
    say(&count.to_string());
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// A job: says how much room it finds. When it is told how much it shall find, it waits for the lock, and for the first and the last
/// value, and says how long.
#[test]
fn job_take_over() {
    let Some(pool) = pool_of_job() else { return };
    let options = Options::pool(&pool).expect("a pool");
    let locks = Locks::open(options.clone()).expect("it is there");
    let store = Store::open(options).expect("it is there");
    let mut session = store.session().expect("room");
    let mut filled = fill(&mut session, "living", 0);
    say(&filled.to_string());
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a pipe");
    let wanted: u64 = line.trim().parse().expect("a number");
    let began_ns = HostClock.now_ns();
    let say_when = |what: &str| {
        let waited_ms = (HostClock.now_ns() - began_ns) / 1_000_000;
        say(&format!("{what} after {waited_ms} ms"));
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            drop(locks.exclusive("lock").expect("it is there"));
            say_when("the lock");
        });
        let before = filled;
        while filled < wanted {
            let is_first = filled == before;
            filled += fill(&mut session, "living", filled);
            if is_first && filled > before {
                say_when("a block");
            }
        }
        say_when("all blocks");
    });
}

#[test]
fn lock_and_blocks_of_a_killed_container_go_to_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("segment");
    let pool = format!("shm:{}", path.display());
    // Made, and left to the two.
    drop(Store::open(Options::segment(&path, MEMORY)).expect("memory"));
    let start = |job: &str| Worker::start_apart(&format!("embedded::containers::{job}"), &pool);
    let Some(mut victim) = start("job_hold_lock_and_blocks") else {
        return;
    };
    let stored: u64 = victim.hear().parse().expect("a number");
    let mut survivor = start("job_take_over").expect("as before");
    let found: u64 = survivor.hear().parse().expect("a number");
    assert!(
        found < stored / 8,
        "{found} of {stored}: what a living client has is its own"
    );
    victim.kill();
    // Nearly all that was deleted.
    writeln!(survivor.input, "{}", stored * 7 / 16).expect("it listens");
    for _ in 0..3 {
        println!("{}", survivor.hear());
    }
    assert!(survivor.ends_well());
}
