//! A store that grows from one key to many over mapped memory, while threads and processes with clients of
//! their own read what was acknowledged.
//!
//! What it verifies: no reader misses a key whose PUT was acknowledged before its GET, or its scan, began;
//! no scan sees a key twice; at the end the count is right, the structure is sound, and every block is free
//! or linked, exactly once. The same for a store that was full to the last byte and emptied again. What it
//! does not verify: clients that die meanwhile, which `simulation.rs` and the soak test do.
//!
//! Twenty million keys take some minutes and three GiB:
//! `FARSIDE_GROWTH_ITEMS=20000000 cargo test --release -p farside-kv --test it table_grows`.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::io::{BufRead, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use farside_fabric::OpContext;
use farside_fabric::shm::{self, Segment, SegmentOptions};
use farside_index::check;
use farside_kv::{IndexKind, RaceOptions, Session, Store, StoreConfig};
use farside_pool::{PoolOptions, account};

use crate::model::run;

/// How many threads write; each has the keys that leave its number as the remainder.
const WRITERS: u64 = 2;
/// Where a reading process finds the segment.
const SEGMENT_VARIABLE: &str = "FARSIDE_GROWTH_SEGMENT";
/// How many keys a table grows to in the first test below, unless this says otherwise.
const ITEMS_VARIABLE: &str = "FARSIDE_GROWTH_ITEMS";
const ITEMS: u64 = 300_000;
/// After how many operations housekeeping gets a turn; verbs over mapped memory complete at once.
const OPERATIONS_PER_TURN: u64 = 64;

/// How far the writers have come.
#[derive(Default)]
struct Progress {
    /// How many keys of each writer are acknowledged.
    acknowledged: [AtomicU64; WRITERS as usize],
    has_ended: AtomicBool,
}

impl Progress {
    fn acknowledged(&self) -> [u64; WRITERS as usize] {
        [0, 1].map(|writer: usize| self.acknowledged[writer].load(Ordering::Acquire))
    }
}

/// A fixed permutation of the 64-bit numbers, as a source of choices.
fn mixed(number: u64) -> u64 {
    let mixed = (number ^ number >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93) ^ number >> 7
}

fn config(race: RaceOptions) -> StoreConfig {
    StoreConfig {
        index: Some(IndexKind::Race),
        race,
        pool: PoolOptions {
            // A machine that is busy with other tests is no dead client.
            lease_ns: 600_000_000_000,
            ..PoolOptions::default()
        },
        ..StoreConfig::default()
    }
}

/// A client with an endpoint of its own, on this thread.
fn with_client<T>(segment: &Segment, race: RaceOptions, body: impl AsyncFnOnce(&Store) -> T) -> T {
    run(async {
        let endpoint = shm::Fabric::new(vec![segment.clone()]).endpoint().expect("an endpoint");
        let store = Store::open(endpoint, config(race)).await.expect("a store");
        let result = body(&store).await;
        store.close().await.expect("close");
        result
    })
}

/// PUTs the keys of a writer in order, and tells everybody how far it has come.
async fn write(session: &mut Session, writer: u64, items: u64, mut tell: impl FnMut(u64)) {
    for (done, number) in (1..).zip((writer..items).step_by(WRITERS as usize)) {
        session
            .put(&number.to_le_bytes(), &mixed(number).to_le_bytes())
            .await
            .expect("room");
        tell(done);
        if done.is_multiple_of(OPERATIONS_PER_TURN) {
            tokio::task::yield_now().await;
        }
    }
}

/// GETs random keys that are acknowledged, one by one and many together.
async fn read(session: &mut Session, progress: &Progress, seed: u64) -> u64 {
    let mut reads = 0;
    for turn in seed << 32.. {
        let has_ended = progress.has_ended.load(Ordering::Acquire);
        let acknowledged = progress.acknowledged();
        let choose = |choice: u64| {
            let writer = choice % WRITERS;
            let count = acknowledged[writer as usize];
            (count > 0).then(|| (mixed(choice) % count.max(1)) * WRITERS + writer)
        };
        let numbers: Vec<u64> = (0..20).filter_map(|index| choose(mixed(turn * 20 + index))).collect();
        if let Some(&number) = numbers.first() {
            let value = session.get(&number.to_le_bytes()).await.expect("get");
            assert_eq!(
                value,
                Some(&mixed(number).to_le_bytes()[..]),
                "key {number} of {acknowledged:?}"
            );
        }
        let keys: Vec<[u8; 8]> = numbers.iter().map(|number| number.to_le_bytes()).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let mut values = session.get_many(&keys);
        for &number in &numbers {
            let value = values.next().await.expect("get");
            assert_eq!(
                value,
                Some(&mixed(number).to_le_bytes()[..]),
                "key {number} of {acknowledged:?}"
            );
        }
        reads += numbers.len() as u64;
        tokio::task::yield_now().await;
        if has_ended {
            break;
        }
    }
    reads
}

/// Scans again and again: every key that is acknowledged when a scan begins, and none twice.
async fn scan(session: &mut Session, progress: &Progress, items: u64) -> u64 {
    let mut scans = 0;
    loop {
        let has_ended = progress.has_ended.load(Ordering::Acquire);
        let acknowledged = progress.acknowledged();
        let mut is_seen = vec![false; items as usize];
        let mut cursor = 0;
        loop {
            let (keys, next) = session.scan_keys(cursor).await.expect("scan");
            for key in keys {
                let number = u64::from_le_bytes(key.try_into().expect("a key of 8 bytes"));
                let seen = &mut is_seen[number as usize];
                assert!(!*seen, "key {number} was seen twice");
                *seen = true;
            }
            tokio::task::yield_now().await;
            if next == 0 {
                break;
            }
            cursor = next;
        }
        for (writer, &count) in (0..).zip(&acknowledged) {
            let missing = (0..count)
                .map(|index| index * WRITERS + writer)
                .find(|&number| !is_seen[number as usize]);
            assert_eq!(missing, None, "a scan missed a key of {acknowledged:?}");
        }
        scans += 1;
        if has_ended {
            return scans;
        }
    }
}

/// Memory for so many items, tables included.
fn memory_bytes(items: u64) -> u64 {
    (items * 128 + (96 << 20)).next_multiple_of(2 << 20)
}

/// Grows a store while two threads and some processes read and one thread scans.
fn grow(segment: &Segment, items: u64, race: RaceOptions, mut processes: Vec<Child>) {
    with_client(segment, race, async |store| {
        store
            .session()
            .put(&0_u64.to_le_bytes(), &mixed(0).to_le_bytes())
            .await
            .expect("room");
    });
    let progress = Progress::default();
    progress.acknowledged[0].store(1, Ordering::Release);
    let pipes: Vec<_> = processes
        .iter_mut()
        .map(|process| process.stdin.take().expect("a pipe"))
        .collect();
    let pipes = std::sync::Mutex::new(pipes);
    std::thread::scope(|scope| {
        let (progress, pipes) = (&progress, &pipes);
        let readers: Vec<_> = (0..2)
            .map(|seed| {
                scope.spawn(move || {
                    with_client(segment, race, async |store| {
                        read(&mut store.session(), progress, seed).await
                    })
                })
            })
            .collect();
        let scanner = scope.spawn(move || {
            with_client(segment, race, async |store| {
                scan(&mut store.session(), progress, items).await
            })
        });
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn(move || {
                    let tell = |done: u64| {
                        progress.acknowledged[writer as usize].store(done, Ordering::Release);
                        if done.is_multiple_of(1024) {
                            for pipe in pipes.lock().expect("nobody panics").iter_mut() {
                                writeln!(pipe, "{writer} {done}").expect("the process reads");
                            }
                        }
                    };
                    with_client(segment, race, async |store| {
                        Box::pin(write(&mut store.session(), writer, items, tell)).await;
                    });
                })
            })
            .collect();
        let written: Vec<_> = writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        // Whatever happened: the readers have to end.
        progress.has_ended.store(true, Ordering::Release);
        pipes.lock().expect("nobody panics").clear();
        assert!(written.iter().all(Result::is_ok), "a writer failed");
        let reads: u64 = readers
            .into_iter()
            .map(|reader| reader.join().expect("a reader failed"))
            .sum();
        let scans = scanner.join().expect("the scanner failed");
        assert!(reads > 0 && scans > 0);
    });
    for process in processes {
        let output = process.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    assert_sound(segment, race, items);
}

/// Everything is there, and nothing else.
fn assert_sound(segment: &Segment, race: RaceOptions, items: u64) {
    let geometry = with_client(segment, race, async |store| {
        let mut session = store.session();
        assert_eq!(session.count().await.expect("count"), items);
        for number in (0..items).step_by(7) {
            let value = session.get(&number.to_le_bytes()).await.expect("get");
            assert!(value.is_some(), "key {number}");
        }
        store.pool().geometry().to_vec()
    });
    run(async {
        let endpoint = shm::Fabric::new(vec![segment.clone()]).endpoint().expect("an endpoint");
        let mut cx = OpContext::new(endpoint);
        let census = check::take(&mut cx, &geometry).await.expect("a walk");
        assert_eq!(census.faults, Vec::<String>::new());
        assert_eq!(census.items, items);
        let account = account(&mut cx, &geometry, &census.blocks).await.expect("an account");
        assert_eq!(account.faults, Vec::<String>::new());
    });
}

fn anonymous(items: u64) -> Segment {
    Segment::anonymous(memory_bytes(items)).expect("memory")
}

#[test]
fn nothing_is_missed_while_a_table_grows() {
    let items = std::env::var(ITEMS_VARIABLE).map_or(ITEMS, |items| items.parse().expect("a number of keys"));
    grow(&anonymous(items), items, RaceOptions::default(), Vec::new());
}

/// Subtables of a few keys: somebody is always in the middle of a split.
#[test]
fn nothing_is_missed_while_everything_splits() {
    let race = RaceOptions {
        items: 0,
        subtable_bytes: 768,
        bucket_slots: 3,
    };
    let items = 20_000;
    grow(&anonymous(items), items, race, Vec::new());
}

#[test]
fn nothing_is_missed_by_other_processes() {
    if let Some(path) = std::env::var_os(SEGMENT_VARIABLE) {
        return read_for_the_parent(Path::new(&path));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("segment");
    let items = 150_000;
    let segment = Segment::create(&path, SegmentOptions::with_memory(memory_bytes(items))).expect("a file");
    let processes = (0..2).map(|_| reading_process(&path)).collect();
    grow(&segment, items, RaceOptions::default(), processes);
}

/// This test once more, in a process that reads.
fn reading_process(path: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "growth::nothing_is_missed_by_other_processes", "--nocapture"])
        .env(SEGMENT_VARIABLE, path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process")
}

/// Reads what its parent says is acknowledged, until the parent says no more.
fn read_for_the_parent(path: &Path) {
    let progress = Progress::default();
    let lines = std::io::stdin().lock().lines().map(|line| line.expect("text"));
    // The store is there when its first keys are.
    let mut lines = lines.peekable();
    lines.peek().expect("something is acknowledged");
    let segment = Segment::open(path).expect("the segment");
    std::thread::scope(|scope| {
        let progress = &progress;
        let reader = scope.spawn(move || {
            with_client(&segment, RaceOptions::default(), async |store| {
                read(&mut store.session(), progress, u64::from(std::process::id())).await
            })
        });
        for line in lines {
            let (writer, done) = line.split_once(' ').expect("a writer and its count");
            let (writer, done): (usize, u64) = (writer.parse().expect("a writer"), done.parse().expect("a count"));
            progress.acknowledged[writer].store(done, Ordering::Release);
        }
        progress.has_ended.store(true, Ordering::Release);
        assert!(reader.join().expect("a reader failed") > 0);
    });
}

/// PUTs numbered keys from `first` on until memory is full; returns how many fitted.
async fn fill(session: &mut Session, first: u64) -> u64 {
    for number in first.. {
        match session.put(&number.to_le_bytes(), &mixed(number).to_le_bytes()).await {
            Ok(()) => {}
            Err(error) => {
                assert!(error.is_out_of_memory(), "{error}");
                return number - first;
            }
        }
        if number.is_multiple_of(OPERATIONS_PER_TURN) {
            tokio::task::yield_now().await;
        }
    }
    unreachable!("memory is finite")
}

#[test]
fn full_memory_recovers_when_keys_are_deleted() {
    let segment = Segment::anonymous(16 << 20).expect("memory");
    let race = RaceOptions::default();
    let (stored, refilled) = with_client(&segment, race, async |store| {
        let mut session = store.session();
        let stored = fill(&mut session, 0).await;
        assert!(stored > 100_000, "16 MiB hold more than {stored} items of 16 bytes");
        for number in 0..stored {
            let value = session.get(&number.to_le_bytes()).await.expect("get");
            assert_eq!(value, Some(&mixed(number).to_le_bytes()[..]), "key {number}");
        }
        // Memory is full, but what is there can be overwritten and deleted.
        for number in (0..stored).step_by(3) {
            session
                .put(&number.to_le_bytes(), b"replaced")
                .await
                .expect("overwriting");
        }
        for number in (0..stored).step_by(2) {
            assert!(session.delete(&number.to_le_bytes()).await.expect("deleting"));
            if number.is_multiple_of(OPERATIONS_PER_TURN) {
                tokio::task::yield_now().await;
            }
        }
        let refilled = fill(&mut session, stored).await;
        (stored, refilled)
    });
    assert!(
        refilled > stored / 4,
        "of {stored} keys half were deleted, and only {refilled} others found room"
    );
    with_client(&segment, race, async |store| {
        let mut session = store.session();
        let kept = stored / 2 + refilled;
        assert_eq!(session.count().await.expect("count"), kept);
        assert_eq!(session.clear().await.expect("clear"), kept);
        let again = fill(&mut session, 0).await;
        assert!(
            again > stored * 3 / 4,
            "an empty store took {again} keys, a new one {stored}"
        );
    });
    let count = with_client(&segment, race, async |store| {
        store.session().count().await.expect("count")
    });
    assert_sound(&segment, race, count);
}
