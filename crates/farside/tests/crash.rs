//! Real processes, killed in the middle of everything.
//!
//! Four workers, each a process that maps the segment, run a random mixture of operations. Every
//! second one of them is killed with SIGKILL and replaced. At the end nothing that was acknowledged
//! may be lost, nothing may be there that nobody wrote, and every block must be accounted for.
//!
//! Each worker has a lane of keys that it alone writes, and counters that all share. It tells the
//! parent through a pipe, one line before an operation and one after it was acknowledged or refused, so the
//! parent knows what must be there, and what was in flight when it died. Who replaces a worker takes
//! over its lane, and reads first what it finds there.
//!
//! `FARSIDE_CRASH_SECONDS` says how long (8 unless set), `FARSIDE_CRASH_SEED` which operations.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farside_fabric::Endpoint;
use farside_fabric::shm::{Segment, SegmentOptions};
use farside_fabric::tcp::NodeLocation;
use farside_kv::stack::{self, EndpointTask};
use farside_kv::{KvError, Session, Store, StoreConfig};

const WORKERS: usize = 4;
const KEYS_PER_LANE: u64 = 400;
const COUNTERS: u64 = 5;
const MEMORY_BYTES: u64 = 256 << 20;
/// Tells a child what to do.
const WORKER_ENV: &str = "FARSIDE_CRASH_WORKER";

/// SplitMix64: small, and good enough to mix operations.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % sides
    }
}

/// A value is made from its stamp, so that a line in the pipe says all of it.
fn value_of(stamp: u64) -> Vec<u8> {
    let mut dice = Dice(stamp);
    let length = match dice.roll(100) {
        0 => 200 << 10,
        1..=10 => dice.roll(4096),
        _ => dice.roll(200),
    };
    let mut value = stamp.to_le_bytes().to_vec();
    value.extend((0..length).map(|at| (stamp.wrapping_mul(31).wrapping_add(at)) as u8));
    value
}

fn lane_key(lane: usize, key: u64) -> Vec<u8> {
    format!("lane{lane}:{key}").into_bytes()
}

fn counter_key(counter: u64) -> Vec<u8> {
    format!("counter{counter}").into_bytes()
}

/// What a worker says about one operation, as a line: `kind key stamp`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operation {
    Set {
        key: u64,
        stamp: u64,
    },
    Delete {
        key: u64,
    },
    /// Appends the stamp's eight bytes to what is there.
    Append {
        key: u64,
        stamp: u64,
    },
    Add {
        counter: u64,
        more: u64,
    },
}

impl Operation {
    fn line(self) -> String {
        match self {
            Self::Set { key, stamp } => format!("set {key} {stamp}"),
            Self::Delete { key } => format!("del {key} 0"),
            Self::Append { key, stamp } => format!("app {key} {stamp}"),
            Self::Add { counter, more } => format!("add {counter} {more}"),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let kind = words.next()?;
        let (key, stamp) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(match kind {
            "set" => Self::Set { key, stamp },
            "del" => Self::Delete { key },
            "app" => Self::Append { key, stamp },
            "add" => Self::Add {
                counter: key,
                more: stamp,
            },
            _ => return None,
        })
    }

    /// What the key holds afterwards, given what it held before.
    fn apply(self, before: Option<Vec<u8>>) -> Option<Vec<u8>> {
        match self {
            Self::Set { stamp, .. } => Some(value_of(stamp)),
            Self::Delete { .. } => None,
            Self::Append { stamp, .. } => Some([before.unwrap_or_default(), stamp.to_le_bytes().to_vec()].concat()),
            Self::Add { .. } => before,
        }
    }

    fn lane_key(self) -> Option<u64> {
        match self {
            Self::Set { key, .. } | Self::Delete { key } | Self::Append { key, .. } => Some(key),
            Self::Add { .. } => None,
        }
    }
}

/// The worker's side: runs until it is killed, or its parent closes the pipe.
struct Work {
    lane: usize,
    seed: u64,
}

impl EndpointTask for Work {
    type Output = Result<(), KvError>;

    async fn run<E: Endpoint>(self, endpoint: E, _: Option<u64>) -> Self::Output {
        let store = Store::open(endpoint, StoreConfig::default()).await?;
        let mut session = store.session();
        let mut dice = Dice(self.seed);
        let mut output = std::io::stdout().lock();
        let mut say = |line: String| writeln!(output, "{line}").and_then(|()| output.flush()).is_ok();
        let mut stop = String::new();
        // The parent says stop by writing a line; a look at the pipe would block, so it is asked for
        // by a thread.
        let stopping = Arc::new(Mutex::new(false));
        let flag = stopping.clone();
        std::thread::spawn(move || {
            let _ = std::io::stdin().read_line(&mut stop);
            *flag.lock().expect("no panic") = true;
        });
        while !*stopping.lock().expect("no panic") {
            let key = dice.roll(KEYS_PER_LANE);
            let stamp = dice.roll(u64::MAX);
            let operation = match dice.roll(10) {
                0..=2 => Operation::Set { key, stamp: stamp | 1 },
                3 => Operation::Delete { key },
                4 => Operation::Append { key, stamp: stamp & !1 },
                5..=6 => Operation::Add {
                    counter: dice.roll(COUNTERS),
                    more: 1 + dice.roll(9),
                },
                _ => {
                    // Somebody else's key: it may change at any time, but never to half a value.
                    let other = lane_key(dice.roll(WORKERS as u64) as usize, key);
                    check_shape(session.get(&other).await?);
                    continue;
                }
            };
            if !say(format!("? {}", operation.line())) {
                break;
            }
            // While a dead client holds the epoch back, nothing is reclaimed, and memory may run out.
            let mark = match perform(&mut session, self.lane, operation).await {
                Ok(()) => '!',
                Err(error) if error.is_out_of_memory() => 'x',
                Err(error) => return Err(error),
            };
            if !say(format!("{mark} {}", operation.line())) {
                break;
            }
            if dice.roll(64) == 0 {
                // Housekeeping of the store runs beside us.
                store.endpoint().sleep(1_000_000).await;
            } else {
                store.endpoint().sleep(0).await;
            }
        }
        drop(session);
        store.close().await
    }
}

/// A value that was set begins with an odd stamp and all that is made from it; appended are even ones.
fn check_shape(value: Option<&[u8]>) {
    let Some(value) = value else {
        return;
    };
    let stamp = u64::from_le_bytes(*value.first_chunk().expect("a stamp"));
    let made = if stamp % 2 == 1 { value_of(stamp) } else { Vec::new() };
    assert!(
        value.starts_with(&made),
        "a reader saw a torn value of {} bytes",
        value.len()
    );
    let (appended, rest) = value[made.len()..].as_chunks::<8>();
    assert!(rest.is_empty(), "a reader saw {} bytes too many", rest.len());
    assert!(
        appended.iter().all(|stamp| stamp[0] % 2 == 0),
        "a reader saw what nobody appended"
    );
}

async fn perform<E: Endpoint>(session: &mut Session<E>, lane: usize, operation: Operation) -> Result<(), KvError> {
    match operation {
        Operation::Set { key, stamp } => session.put(&lane_key(lane, key), &value_of(stamp)).await,
        Operation::Delete { key } => session.delete(&lane_key(lane, key)).await.map(drop),
        Operation::Append { key, .. } => {
            let key = lane_key(lane, key);
            let appended = session.update(&key, |before| -> Result<_, std::convert::Infallible> {
                Ok(operation
                    .apply(before.map(<[u8]>::to_vec))
                    .expect("an append leaves a value"))
            });
            let Ok(()) = appended.await?;
            Ok(())
        }
        Operation::Add { counter, more } => {
            let key = counter_key(counter);
            let added = session.update(&key, |before| {
                let sum = number(before) + more;
                Ok::<_, std::convert::Infallible>(sum.to_string().into_bytes())
            });
            let Ok(()) = added.await?;
            Ok(())
        }
    }
}

fn number(text: Option<&[u8]>) -> u64 {
    let text = text.map_or("0", |text| str::from_utf8(text).expect("counters are text"));
    text.parse().expect("counters are numbers")
}

/// What the parent knows about one lane.
#[derive(Default, Debug)]
struct Ledger {
    acknowledged: BTreeMap<u64, Vec<u8>>,
    /// Said to have begun, and not acknowledged; one at most.
    in_flight: Option<Operation>,
    /// Operations on keys that were in flight at a death: the key may hold either.
    open: BTreeMap<u64, Vec<Operation>>,
    added: [u64; COUNTERS as usize],
    perhaps_added: [u64; COUNTERS as usize],
    operations: u64,
    /// Refused for want of memory: certain not to have happened.
    refusals: u64,
}

impl Ledger {
    fn note(&mut self, line: &str) {
        let (mark, rest) = line.split_at(2);
        // The last line of a dead process may be cut short; then the operation had not been said to
        // begin, or not to be done.
        let Some(operation) = Operation::parse(rest) else {
            return;
        };
        if mark == "? " {
            self.in_flight = Some(operation);
            return;
        }
        assert_eq!(self.in_flight.take(), Some(operation), "acknowledged in order");
        if mark == "x " {
            self.refusals += 1;
            return;
        }
        self.operations += 1;
        match operation.lane_key() {
            None => {
                if let Operation::Add { counter, more } = operation {
                    self.added[counter as usize] += more;
                }
            }
            Some(key) => {
                // An append to a key that may hold either of two values keeps both possible.
                if matches!(operation, Operation::Append { .. }) && self.open.contains_key(&key) {
                    self.open.entry(key).or_default().push(operation);
                    return;
                }
                self.open.remove(&key);
                let before = self.acknowledged.remove(&key);
                if let Some(after) = operation.apply(before) {
                    self.acknowledged.insert(key, after);
                }
            }
        }
    }

    /// The worker is dead: what was in flight may or may not have happened.
    fn note_death(&mut self) {
        match self.in_flight.take() {
            Some(Operation::Add { counter, more }) => self.perhaps_added[counter as usize] += more,
            Some(operation) => {
                let key = operation.lane_key().expect("an addition is handled above");
                self.open
                    .entry(key)
                    .or_default()
                    .push(Operation::Set { key, stamp: UNCERTAIN });
                self.open.entry(key).or_default().push(operation);
            }
            None => {}
        }
    }

    /// Every value that a key may have.
    fn possible(&self, key: u64) -> Vec<Option<Vec<u8>>> {
        let mut values = vec![self.acknowledged.get(&key).cloned()];
        let mut is_uncertain = false;
        for &operation in self.open.get(&key).into_iter().flatten() {
            if operation == (Operation::Set { key, stamp: UNCERTAIN }) {
                is_uncertain = true;
                continue;
            }
            let after: Vec<_> = values.iter().map(|value| operation.apply(value.clone())).collect();
            if is_uncertain {
                values.extend(after);
            } else {
                values = after;
            }
            is_uncertain = false;
        }
        values
    }
}

/// In the list of open operations: the next one may or may not have happened. No value has this stamp,
/// which is even.
const UNCERTAIN: u64 = 0;

struct Worker {
    child: Child,
    reader: std::thread::JoinHandle<()>,
}

fn start(path: &Path, lane: usize, seed: u64, ledger: &Arc<Mutex<Ledger>>) -> Worker {
    let mut child = Command::new(std::env::current_exe().expect("it is running"))
        .args(["work_as_a_child", "--exact", "--nocapture", "--test-threads", "1"])
        .env(WORKER_ENV, format!("{lane} {seed} {}", path.display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it can run again");
    let lines = BufReader::new(child.stdout.take().expect("it is a pipe")).lines();
    let ledger = ledger.clone();
    let reader = std::thread::spawn(move || {
        for line in lines {
            let line = line.expect("text");
            // The test harness of the child prints lines of its own.
            if ["? ", "! ", "x "].iter().any(|mark| line.starts_with(mark)) {
                ledger.lock().expect("no panic").note(&line);
            }
        }
        ledger.lock().expect("no panic").note_death();
    });
    Worker { child, reader }
}

/// Does nothing unless a parent started it: then it is one of the workers.
#[test]
fn work_as_a_child() {
    let Ok(order) = std::env::var(WORKER_ENV) else {
        return;
    };
    let mut words = order.splitn(3, ' ');
    let mut next = || words.next().expect("three words");
    let lane = next().parse().expect("a number");
    let seed = next().parse().expect("a number");
    let segment = Segment::open(next()).expect("the parent has made it");
    println!();
    let done = stack::run(vec![NodeLocation::Mapped(segment)], None, Work { lane, seed });
    done.expect("the segment is there")
        .expect("the store works while others die");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "processes are killed as real time passes")]
fn nothing_acknowledged_is_lost_when_processes_are_killed() {
    let variable = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seconds: u64 = variable("FARSIDE_CRASH_SECONDS").unwrap_or(8);
    let seed = variable("FARSIDE_CRASH_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("FARSIDE_CRASH_SEED={seed}");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("segment");
    Segment::create(&path, SegmentOptions::with_memory(MEMORY_BYTES)).expect("there is room");

    let mut dice = Dice(seed);
    let ledgers: Vec<_> = (0..WORKERS).map(|_| Arc::new(Mutex::new(Ledger::default()))).collect();
    let mut workers: Vec<_> = (ledgers.iter().enumerate())
        .map(|(lane, ledger)| start(&path, lane, dice.roll(u64::MAX), ledger))
        .collect();
    for _ in 0..seconds {
        std::thread::sleep(Duration::from_millis(500 + dice.roll(1000)));
        let lane = dice.roll(WORKERS as u64) as usize;
        workers[lane].child.kill().expect("it is ours");
        let Worker { mut child, reader } = workers.remove(lane);
        let status = child.wait().expect("it is ours");
        reader.join().expect("no panic");
        assert!(status.code().is_none(), "a worker ended by itself: {status}");
        workers.insert(lane, start(&path, lane, dice.roll(u64::MAX), &ledgers[lane]));
    }
    for Worker { mut child, reader } in workers {
        drop(child.stdin.take());
        assert!(child.wait().expect("it is ours").success(), "a worker failed");
        reader.join().expect("no panic");
    }

    let segment = Segment::open(&path).expect("it is still there");
    let found = stack::run(vec![NodeLocation::Mapped(segment)], None, ReadAll);
    let (lanes, counters) = found.expect("the segment is there").expect("the store works");
    let ledgers: Vec<_> = ledgers.iter().map(|ledger| ledger.lock().expect("no panic")).collect();
    let operations: u64 = ledgers.iter().map(|ledger| ledger.operations).sum();
    let refusals: u64 = ledgers.iter().map(|ledger| ledger.refusals).sum();
    println!("{operations} changes acknowledged, {refusals} refused for want of memory");
    for (lane, ledger) in ledgers.iter().enumerate() {
        assert!(ledger.operations > 100, "lane {lane} did nothing");
        for key in 0..KEYS_PER_LANE {
            let value = &lanes[lane][key as usize];
            assert!(
                ledger.possible(key).contains(value),
                "lane {lane} key {key} holds {:?} bytes, none of {:?}; open: {:?}",
                value.as_ref().map(Vec::len),
                ledger
                    .possible(key)
                    .iter()
                    .map(|value| value.as_ref().map(Vec::len))
                    .collect::<Vec<_>>(),
                ledger.open.get(&key)
            );
        }
    }
    for (counter, &sum) in counters.iter().enumerate() {
        let least: u64 = ledgers.iter().map(|ledger| ledger.added[counter]).sum();
        let perhaps: u64 = ledgers.iter().map(|ledger| ledger.perhaps_added[counter]).sum();
        assert!(
            (least..=least + perhaps).contains(&sum),
            "counter {counter}: {sum} not in {least}+{perhaps}"
        );
    }

    let checked = Command::new(env!("CARGO_BIN_EXE_farside"))
        .args(["fsck", "--json", "--pool", &format!("shm:{}", path.display())])
        .output()
        .expect("it is built");
    let report: serde_json::Value = serde_json::from_slice(&checked.stdout).expect("JSON");
    assert_eq!(report["is_clean"], true, "{report:#}");
    for name in ["clients_live", "clients_dead", "blocks_held", "blocks_unrecovered"] {
        assert_eq!(report[name], 0, "{name}: {report:#}");
    }
}

type Everything = (Vec<Vec<Option<Vec<u8>>>>, Vec<u64>);

/// The clean process at the end: takes over from the dead, reads everything, leaves.
struct ReadAll;

impl EndpointTask for ReadAll {
    type Output = Result<Everything, KvError>;

    async fn run<E: Endpoint>(self, endpoint: E, _: Option<u64>) -> Self::Output {
        let config = StoreConfig::default();
        let store = Store::open(endpoint, config).await?;
        // A dead client is noticed when its lease has run out.
        store.endpoint().sleep(2 * config.pool.lease_ns).await;
        store.settle().await?;
        let mut session = store.session();
        let mut lanes = Vec::new();
        for lane in 0..WORKERS {
            let mut values = Vec::new();
            for key in 0..KEYS_PER_LANE {
                values.push(session.get(&lane_key(lane, key)).await?.map(<[u8]>::to_vec));
            }
            lanes.push(values);
        }
        let mut counters = Vec::new();
        for counter in 0..COUNTERS {
            counters.push(number(session.get(&counter_key(counter)).await?));
        }
        drop(session);
        store.close().await?;
        Ok((lanes, counters))
    }
}

/// The check itself: what a ledger holds possible, and what not.
#[test]
fn ledger_knows_what_may_be_there() {
    let mut ledger = Ledger::default();
    for line in [
        "? set 1 7",
        "! set 1 7",
        "? app 1 8",
        "! app 1 8",
        "? set 2 9",
        "! set 2 9",
        "? del 2 0",
    ] {
        ledger.note(line);
    }
    ledger.note_death();
    let appended = [value_of(7), 8_u64.to_le_bytes().to_vec()].concat();
    assert_eq!(ledger.possible(1), [Some(appended)], "a lost append would be seen");
    assert_eq!(
        ledger.possible(2),
        [Some(value_of(9)), None],
        "the deletion was in flight"
    );
    assert_eq!(ledger.possible(3), [None], "a value out of nowhere would be seen");
    ledger.note("? app 2 4");
    ledger.note("! app 2 4");
    let four = 4_u64.to_le_bytes().to_vec();
    assert_eq!(
        ledger.possible(2),
        [Some([value_of(9), four.clone()].concat()), Some(four)]
    );
    ledger.note("? set 2 11");
    ledger.note("! set 2 11");
    assert_eq!(
        ledger.possible(2),
        [Some(value_of(11))],
        "an acknowledged write settles it"
    );
    for line in ["? add 0 5", "! add 0 5", "? add 0 6", "! add"] {
        ledger.note(line);
    }
    ledger.note_death();
    assert_eq!((ledger.added[0], ledger.perhaps_added[0]), (5, 6));
}

#[test]
#[should_panic(expected = "torn value")]
fn torn_values_are_seen() {
    let stamp = (1..)
        .step_by(2)
        .find(|&stamp| value_of(stamp).len() > 3000)
        .expect("one in ten is long");
    let mut value = value_of(stamp);
    value[2000] ^= 1;
    check_shape(Some(&value));
}
