//! Named locks as programs use them: threads, tasks, processes that are killed, memory nodes.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::io::Write;

use farside::blocking::{LockGuard, Locks, Store};
use farside::{Error, LocksError, Mode, Options};

use super::process::{Worker, pool_of_job, say};
use super::remote::Node;

const MEMORY: u64 = 32 << 20;
#[expect(
    clippy::disallowed_methods,
    reason = "a program that embeds the library has no endpoint"
)]
fn spawn_local<T: 'static>(task: impl Future<Output = T> + 'static) -> tokio::task::JoinHandle<T> {
    tokio::task::spawn_local(task)
}

/// Long enough on any machine, if it is to end at all.
const PATIENCE: Duration = Duration::from_secs(60);

/// Threads that take turns: a count that is read, and written later, loses nothing.
fn take_turns(locks: &Locks) {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 100;
    let (count, tokens) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let guard = locks.exclusive("count").expect("the memory is there");
                    let before = count.load(Ordering::Relaxed);
                    std::thread::yield_now();
                    count.store(before + 1, Ordering::Relaxed);
                    let token = tokens.swap(guard.token(), Ordering::Relaxed);
                    assert!(guard.token() > token, "{} after {token}", guard.token());
                    assert!(guard.is_held());
                }
            });
        }
    });
    assert_eq!(count.into_inner(), THREADS * ROUNDS);
}

#[test]
fn threads_take_turns() {
    take_turns(&Locks::open(Options::anonymous(MEMORY)).expect("memory"));
}

#[test]
fn readers_share_and_writers_do_not() {
    let options = Options::anonymous(MEMORY).owner("the test");
    let locks = Locks::open(options.clone()).expect("memory");
    let others = Locks::open(options).expect("the same memory");
    assert_eq!(locks.holder("lock").expect("it is there"), None);
    let readers = [
        locks.shared("lock").expect("free"),
        others.shared("lock").expect("shared"),
    ];
    assert!(others.try_exclusive("lock").expect("it is there").is_none());
    drop(readers);
    let writer = others
        .exclusive_within("lock", PATIENCE)
        .expect("it is there")
        .expect("they left");
    assert_eq!((writer.name(), writer.mode()), (&b"lock"[..], Mode::Exclusive));
    assert!(locks.try_shared("lock").expect("it is there").is_none());
    assert!(
        locks
            .shared_within("lock", Duration::from_millis(5))
            .expect("it is there")
            .is_none()
    );
    let holder = locks.holder("lock").expect("it is there").expect("it is held");
    assert_eq!((holder.owner.as_str(), holder.mode), ("the test", Mode::Exclusive));
    assert!(holder.since() > std::time::SystemTime::UNIX_EPOCH);
    // The reader that gave up is in the queue; so is its successor, which takes its place.
    writer.release().expect("it was held");
    let reader = locks.shared("lock").expect("free");
    assert!(reader.is_held());
}

#[test]
fn names_have_a_length() {
    let locks = Locks::open(Options::anonymous(MEMORY)).expect("memory");
    for bytes in [0, 129] {
        let error = locks.exclusive(vec![b'x'; bytes]).map(drop).expect_err("no name");
        assert!(matches!(error, Error::Lock(LocksError::Name { bytes: found }) if found == bytes));
        assert_eq!(
            error.to_string(),
            format!("the name of a lock has 1 to 128 bytes, not {bytes}")
        );
    }
}

#[test]
fn memory_that_is_too_small_says_so() {
    let error = Locks::open(Options::anonymous(4 << 20)).map(drop).expect_err("no room");
    assert!(matches!(error, Error::Lock(LocksError::NoTable)), "{error}");
}

#[test]
fn locks_stand_beside_a_store() {
    let options = Options::anonymous(MEMORY);
    let store = Store::open(options.clone()).expect("memory");
    let mut session = store.session().expect("room");
    let locks = Locks::open(options).expect("the same memory");
    for number in 0..50_u32 {
        let guard = locks.exclusive(number.to_le_bytes()).expect("free");
        session
            .put(&number.to_le_bytes(), &guard.token().to_le_bytes())
            .expect("room");
    }
    assert_eq!(session.count().expect("it is there"), 50, "locks are no keys");
    session.clear().expect("it is there");
    assert!(
        locks.exclusive(7_u32.to_le_bytes()).expect("free").token() > 1,
        "the lock is still known"
    );
}

#[test]
fn tasks_take_turns() {
    farside::run(async {
        let locks = farside::Locks::open(Options::anonymous(MEMORY)).await?;
        let count = std::rc::Rc::new(core::cell::Cell::new(0));
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let (locks, count) = (locks.clone(), std::rc::Rc::clone(&count));
                spawn_local(async move {
                    for _ in 0..20 {
                        let guard = locks.exclusive("count").await?;
                        let before = count.get();
                        tokio::task::yield_now().await;
                        count.set(before + 1);
                        guard.release().await?;
                    }
                    Ok::<_, Error>(())
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no panic")?;
        }
        assert_eq!(count.get(), 400);
        let guard = locks.exclusive("count").await?;
        assert!(locks.try_exclusive("count").await?.is_none());
        // A future that is dropped waits for nothing any more.
        let waiting = spawn_local({
            let locks = locks.clone();
            async move { locks.exclusive("count").await.map(drop) }
        });
        tokio::task::yield_now().await;
        waiting.abort();
        drop(guard);
        assert!(locks.exclusive_within("count", PATIENCE).await?.is_some());
        locks.close().await
    })
    .expect("a runtime")
    .expect("no error");
}

#[test]
fn guards_outlive_what_they_came_from() {
    let guard = farside::run(async {
        let locks = farside::Locks::open(Options::anonymous(MEMORY)).await?;
        locks.exclusive("lock").await
    });
    // There is no event loop any more.
    drop(guard.expect("a runtime").expect("no error"));
    let guard = Locks::open(Options::anonymous(MEMORY))
        .expect("memory")
        .exclusive("lock")
        .expect("free");
    assert!(guard.is_held());
}

/// A job: takes the lock, says so, and keeps it until it is told to go on.
#[test]
fn job_hold() {
    let Some(pool) = pool_of_job() else { return };
    let options = Options::pool(&pool).expect("a pool").owner("the job");
    let locks = Locks::open(options).expect("it is there");
    let guard = locks.exclusive("lock").expect("the memory is there");
    say(&format!("token {}", guard.token()));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a pipe");
    say(&format!("held {}", guard.is_held()));
    guard.release().expect("it was held");
}

/// A job: takes turns with others for ever, and writes down under the lock who holds it.
#[test]
fn job_turns() {
    let Some(pool) = pool_of_job() else { return };
    let options = Options::pool(&pool).expect("a pool");
    let locks = Locks::open(options.clone()).expect("it is there");
    let store = Store::open(options).expect("it is there");
    let mut session = store.session().expect("room");
    let me = std::process::id().to_le_bytes();
    for round in 0.. {
        let guard = locks.exclusive("turn").expect("the memory is there");
        session.put(b"holder", &me).expect("room");
        let before = number(session.get(b"count").expect("it is there"));
        std::thread::yield_now();
        session.put(b"count", &(before + 1).to_le_bytes()).expect("room");
        let token = number(session.get(b"token").expect("it is there"));
        assert!(guard.token() > token, "{} after {token}", guard.token());
        session.put(b"token", &guard.token().to_le_bytes()).expect("room");
        assert_eq!(
            session.get(b"holder").expect("it is there"),
            Some(&me[..]),
            "somebody else was inside"
        );
        guard.release().expect("it was held");
        if round == 0 {
            say("ready");
        }
    }
}

fn number(stored: Option<&[u8]>) -> u64 {
    stored.map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("a number")))
}

fn token_said(worker: &mut Worker) -> u64 {
    let said = worker.hear();
    said.strip_prefix("token ").expect(&said).parse().expect("a number")
}

fn hand_over_between_processes(pool: &str, locks: &Locks) {
    let mut worker = Worker::start("embedded::locks::job_hold", pool);
    let token = token_said(&mut worker);
    let holder = locks.holder("lock").expect("it is there").expect("it is held");
    assert_eq!(holder.owner, "the job");
    assert!(locks.try_exclusive("lock").expect("it is there").is_none());
    writeln!(worker.input).expect("it listens");
    let guard = locks.exclusive("lock").expect("it is released");
    assert!(guard.token() > token);
    drop(guard);
    assert_eq!(worker.hear(), "held true");
    assert!(worker.ends_well());
}

fn the_killed_hold_nothing(pool: &str, locks: &Locks) {
    let mut worker = Worker::start("embedded::locks::job_hold", pool);
    let token = token_said(&mut worker);
    worker.kill();
    comes_after(token, locks);
}

fn comes_after(token: u64, locks: &Locks) {
    let guard = locks
        .exclusive_within("lock", PATIENCE)
        .expect("it is there")
        .expect("it goes on");
    assert!(guard.token() > token && guard.is_held());
}

fn segment() -> (tempfile::TempDir, String, Options) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("segment");
    let options = Options::segment(&path, MEMORY).lock_lease(Duration::from_millis(200));
    let pool = format!("shm:{}", path.display());
    (folder, pool, options)
}

#[test]
fn processes_take_turns_on_a_segment() {
    let (_folder, pool, options) = segment();
    let locks = Locks::open(options).expect("memory");
    hand_over_between_processes(&pool, &locks);
    the_killed_hold_nothing(&pool, &locks);
}

/// Two containers on one segment: the number of a process says nothing in the other one.
#[test]
fn the_killed_of_another_container_hold_nothing() {
    let (_folder, pool, options) = segment();
    let locks = Locks::open(options).expect("memory");
    let start = || Worker::start_apart("embedded::locks::job_hold", &pool);
    let Some(mut worker) = start() else { return };
    let token = token_said(&mut worker);
    let give_up_after = Duration::from_secs(1);
    let taken = locks.exclusive_within("lock", give_up_after).expect("it is there");
    assert!(taken.is_none(), "its holder lives, however long it takes");
    worker.kill();
    comes_after(token, &locks);
    // And one container after another, in which processes have the same numbers.
    for _ in 0..2 {
        let mut worker = start().expect("as before");
        let token = token_said(&mut worker);
        worker.kill();
        comes_after(token, &locks);
    }
}

#[test]
fn processes_that_die_in_the_middle_leave_turns_to_others() {
    let (_folder, pool, options) = segment();
    let locks = Locks::open(options.clone()).expect("memory");
    let mut workers: Vec<Worker> = (0..3)
        .map(|_| Worker::start("embedded::locks::job_turns", &pool))
        .collect();
    for worker in &mut workers {
        assert_eq!(worker.hear(), "ready");
    }
    let store = Store::open(options).expect("memory");
    let mut session = store.session().expect("room");
    for mut worker in workers {
        let guard = locks.exclusive("turn").expect("it goes on");
        let count = number(session.get(b"count").expect("it is there"));
        guard.release().expect("it was held");
        // Whatever it does at this moment.
        worker.input.flush().expect("it lives");
        worker.kill();
        let guard = locks.exclusive_within("turn", PATIENCE).expect("it is there");
        guard.expect("it goes on").release().expect("it was held");
        assert!(number(session.get(b"count").expect("it is there")) >= count);
    }
    let holder = locks.holder("turn").expect("it is there");
    assert_eq!(holder, None, "nobody is left");
}

#[test]
fn machines_take_turns_over_a_connection() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("segment").to_str().expect("plain").to_owned();
    let node = Node::start(&path, "127.0.0.1:0");
    let pool = format!("tcp:{}", node.address);
    let options = Options::pool(&pool).expect("an address");
    let locks = Locks::open(options).expect("it listens");
    take_turns(&locks);
    hand_over_between_processes(&pool, &locks);
    the_killed_hold_nothing(&pool, &locks);
}

#[test]
fn a_node_that_goes_away_takes_its_locks_along() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("segment").to_str().expect("plain").to_owned();
    let node = Node::start(&path, "127.0.0.1:0");
    let address = node.address.clone();
    let locks = Locks::open(Options::pool(&format!("tcp:{address}")).expect("an address")).expect("it listens");
    let guard: LockGuard = locks.exclusive("lock").expect("free");
    let token = guard.token();
    drop(node);
    let lost = guard.release().expect_err("there is no node");
    assert!(lost.is_cut_off(), "{lost}");
    let error = locks.exclusive("lock").map(drop).expect_err("there is no node");
    assert!(error.to_string().contains(&address), "{error}");

    let _node = Node::start(&path, &address);
    let again = locks
        .exclusive_within("lock", PATIENCE)
        .expect("it is back")
        .expect("its holder was cut off");
    assert!(again.token() > token, "what is in a file stays");
}
