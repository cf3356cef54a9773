//! Several processes on one segment: what one writes the others see, and any of them may die.

use std::io::Write;

use farside::Options;
use farside::blocking::{Session, Store};

use super::process::{Worker, pool_of_job, say};

const MEMORY: u64 = 64 << 20;

fn increment(session: &mut Session, key: &[u8]) -> u64 {
    let mut number = 0;
    let add = |stored: Option<&[u8]>| {
        number = stored.map_or(Ok(0), |bytes| bytes.try_into().map(u64::from_le_bytes))? + 1;
        Ok::<_, core::array::TryFromSliceError>(number.to_le_bytes().to_vec())
    };
    session.update(key, add).expect("room").expect("a number");
    number
}

/// A job: answers each line with the value of the key that it names.
#[test]
fn job_answer() {
    let Some(pool) = pool_of_job() else { return };
    let store = Store::open(Options::pool(&pool).expect("a pool")).expect("it is there");
    let mut session = store.session().expect("room");
    say("ready");
    for key in std::io::stdin().lines() {
        let value = session.get(key.expect("text").as_bytes()).expect("it is there");
        say(&format!("{:?}", value.map(String::from_utf8_lossy)));
    }
}

/// A job: increments for ever, or a given number of times, on a key of its own and on a common one.
#[test]
fn job_increment() {
    let Some(pool) = pool_of_job() else { return };
    let store = Store::open(Options::pool(&pool).expect("a pool")).expect("it is there");
    let mut session = store.session().expect("room");
    // Its thread is away all the time: the keeper has to look after it, also when others die.
    let mut idle = store.session().expect("room");
    idle.put(b"idle", b"here").expect("room");
    let own = std::process::id().to_be_bytes();
    let mut is_first = true;
    loop {
        increment(&mut session, b"common");
        let count = increment(&mut session, &own);
        if std::mem::take(&mut is_first) {
            say("ready");
        }
        if count == 20_000 {
            break;
        }
    }
    let here = idle.get(b"idle").expect("it comes back");
    assert_eq!(here, Some(&b"here"[..]));
}

#[test]
fn writes_are_seen_by_other_processes_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("segment");
    let store = Store::open(Options::segment(&path, MEMORY)).expect("memory");
    let mut session = store.session().expect("room");
    let mut worker = Worker::start("embedded::processes::job_answer", &format!("shm:{}", path.display()));
    assert_eq!(worker.hear(), "ready");
    let ask = |worker: &mut Worker, key: &str| {
        writeln!(worker.input, "{key}").expect("it listens");
        worker.hear()
    };
    assert_eq!(ask(&mut worker, "key"), "None");
    for round in 0..200 {
        session.put(b"key", format!("{round}").as_bytes()).expect("room");
        assert_eq!(ask(&mut worker, "key"), format!("Some(\"{round}\")"));
    }
    assert!(session.delete(b"key").expect("it is there"));
    assert_eq!(ask(&mut worker, "key"), "None");
}

#[test]
fn others_go_on_when_a_process_is_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("segment");
    let store = Store::open(Options::segment(&path, MEMORY)).expect("memory");
    let pool = format!("shm:{}", path.display());
    let mut session = store.session().expect("room");
    let start = || Worker::start("embedded::processes::job_increment", &pool);
    let (mut victim, mut survivor) = (start(), start());
    assert_eq!(
        (victim.hear(), survivor.hear()),
        ("ready".to_owned(), "ready".to_owned())
    );
    victim.kill();
    for _ in 0..1000 {
        increment(&mut session, b"mine");
    }
    assert!(survivor.ends_well());
    // What every process was told is there, and the common counter has missed none.
    let mut sum = 0;
    for item in session.items() {
        let (key, value) = item.expect("it is there");
        if key.len() == 4 && key != b"idle" && key != b"mine" {
            sum += u64::from_le_bytes(value.try_into().expect("a number"));
        }
    }
    let common = session.get(b"common").expect("it is there").expect("somebody counted");
    let common = u64::from_le_bytes(common.try_into().expect("a number"));
    // The victim may have died between its two increments.
    assert!(sum == common || sum + 1 == common, "{sum} of {common}");
    assert_eq!(increment(&mut session, b"mine"), 1001);
}
