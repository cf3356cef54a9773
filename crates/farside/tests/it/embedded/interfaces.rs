//! What both interfaces promise beside their operations.

use core::time::Duration;
use std::sync::mpsc;

use farside::{Error, Lifetime, Options, blocking};

const MEMORY: u64 = 32 << 20;

#[expect(
    clippy::disallowed_methods,
    reason = "the keeper is to notice that this thread is away"
)]
fn be_away(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

#[test]
fn async_store_says_what_it_needs() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let opened = runtime.block_on(farside::Store::open(Options::anonymous(MEMORY)));
    let error = opened.expect_err("there is no LocalSet");
    assert!(matches!(error, Error::NoLocalSet));
    assert!(error.to_string().contains("farside::run"));
    let mut nowhere = Box::pin(farside::Store::open(Options::anonymous(MEMORY)));
    let mut context = core::task::Context::from_waker(core::task::Waker::noop());
    let polled = nowhere.as_mut().poll(&mut context);
    assert!(matches!(polled, core::task::Poll::Ready(Err(Error::NoLocalSet))));
}

#[test]
fn async_and_blocking_clients_share_memory() {
    let options = Options::anonymous(MEMORY);
    let store = blocking::Store::open(options.clone()).expect("memory");
    let mut session = store.session().expect("room");
    session.put(b"from", b"a thread").expect("room");
    farside::run(async {
        let store = farside::Store::open(options).await?;
        let mut session = store.session();
        assert_eq!(session.get(b"from").await?, Some(&b"a thread"[..]));
        session.put_for(b"from", b"a task", Duration::from_secs(100)).await?;
        assert!(matches!(session.lifetime(b"from").await?, Lifetime::Left(_)));
        let mut keys = session.keys();
        assert_eq!(keys.next().await?.as_deref(), Some(&b"from"[..]));
        assert_eq!(keys.next().await?, None);
        store.close().await
    })
    .expect("a runtime")
    .expect("no error");
    assert_eq!(session.get(b"from").expect("it is there"), Some(&b"a task"[..]));
}

#[test]
fn full_memory_is_an_error_and_deleting_helps() {
    let store = blocking::Store::open(Options::anonymous(16 << 20)).expect("memory");
    let mut session = store.session().expect("room");
    let value = vec![7; 100_000];
    let mut count = 0_u32;
    let error = loop {
        match session.put(&count.to_be_bytes(), &value) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    assert!(error.is_out_of_memory() && !error.is_cut_off(), "{error}");
    assert_eq!(session.count().expect("it is there"), u64::from(count));
    assert_eq!(session.get(&[0; 4]).expect("it is there"), Some(&value[..]));
    assert_eq!(session.clear().expect("it is there"), u64::from(count));
    session.put(b"again", &value).expect("room");
}

/// A client that published no epoch would keep all others from reusing what they delete.
#[test]
fn idle_sessions_hold_nobody_up() {
    let store = blocking::Store::open(Options::anonymous(16 << 20)).expect("memory");
    let (away, be_back) = mpsc::channel();
    let (done, ended) = mpsc::channel();
    let sleeper = {
        let store = store.clone();
        std::thread::spawn(move || {
            let mut session = store.session()?;
            session.put(b"sleeper", b"before")?;
            away.send(()).expect("the test waits");
            ended.recv().expect("the test goes on");
            session.get(b"sleeper").map(|value| value.map(<[u8]>::to_vec))
        })
    };
    be_back.recv().expect("no error");
    let mut session = store.session().expect("room");
    // Forty times the memory.
    let value = vec![1; 64 << 10];
    for round in 0..10_000_u32 {
        session
            .put(&(round % 8).to_be_bytes(), &value)
            .expect("what was replaced is reused");
    }
    session.put(b"sleeper", b"after").expect("room");
    done.send(()).expect("the thread waits");
    let seen = sleeper.join().expect("no panic").expect("no error");
    assert_eq!(seen.as_deref(), Some(&b"after"[..]));
}

/// Threads that are away between any two operations, on keys that all of them write: whoever came back with
/// a stale epoch, or remembered a table that is gone, would find bytes of another item.
#[test]
fn whoever_comes_back_reads_whole_values() {
    let store = blocking::Store::open(Options::anonymous(16 << 20)).expect("memory");
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let store = store.clone();
            scope.spawn(move || {
                let mut session = store.session().expect("room");
                let mut state = thread + 1;
                for round in 0..6_000_u64 {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let chance = state >> 33;
                    // A few keys that change all the time, and many that make the table grow.
                    let number = if chance.is_multiple_of(3) {
                        chance % 4096
                    } else {
                        chance % 8
                    };
                    let key = number.to_be_bytes();
                    if chance.is_multiple_of(2) {
                        let value = vec![number as u8; 64 + (chance % 5000) as usize];
                        session.put(&key, &value).expect("room");
                    } else if let Some(value) = session.get(&key).expect("it is there") {
                        assert!(value.len() >= 64 && value.iter().all(|byte| *byte == number as u8));
                    }
                    if round.is_multiple_of(50) {
                        be_away(chance % 4);
                    }
                }
            });
        }
    });
}

#[test]
fn sessions_come_and_go_with_their_threads() {
    let store = blocking::Store::open(Options::anonymous(MEMORY)).expect("memory");
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let store = store.clone();
            scope.spawn(move || {
                for round in 0..5_u32 {
                    let mut session = store.session().expect("room");
                    for number in 0..200_u32 {
                        let key = [thread, round, number].map(u32::to_be_bytes).concat();
                        session.put(&key, &key).expect("room");
                        assert_eq!(session.get(&key).expect("it is there"), Some(&key[..]));
                        if number % 64 == 0 {
                            be_away(3);
                        }
                    }
                }
            });
        }
    });
    assert_eq!(
        store.session().expect("room").count().expect("it is there"),
        4 * 5 * 200
    );
}

#[test]
fn a_panic_in_a_closure_leaves_the_session_usable() {
    let store = blocking::Store::open(Options::anonymous(MEMORY)).expect("memory");
    let mut session = store.session().expect("room");
    session.put(b"key", b"before").expect("room");
    let attempt =
        std::panic::AssertUnwindSafe(|| session.update(b"key", |_| -> Result<_, ()> { panic!("on purpose") }));
    assert!(std::panic::catch_unwind(attempt).is_err());
    assert_eq!(session.get(b"key").expect("it is there"), Some(&b"before"[..]));
    be_away(5);
    session.put(b"key", b"after").expect("room");
    assert_eq!(session.get(b"key").expect("it is there"), Some(&b"after"[..]));
}

#[test]
fn wrong_options_are_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = format!("shm:{}", folder.path().join("none").display());
    let foreign = folder.path().join("foreign");
    std::fs::write(&foreign, "no segment").expect("a file");
    let attempts = [
        (Options::pool(&missing), "does not exist"),
        (Ok(Options::segment(&foreign, MEMORY)), "segment"),
        (Ok(Options::anonymous(4096)), "at least"),
        (Options::pool("tcp:127.0.0.1:1"), "cannot connect"),
        (Options::pool("nowhere"), "tcp:HOST:PORT"),
        (
            Options::anonymous(MEMORY).secret_file("/does/not/exist"),
            "/does/not/exist",
        ),
    ];
    for (options, hint) in attempts {
        let error = options.and_then(blocking::Store::open).expect_err(hint).to_string();
        assert!(error.contains(hint) && !error.contains('\n'), "{error}");
    }
}
