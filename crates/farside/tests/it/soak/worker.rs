//! A worker: a process that opens the store and runs operations until it is told to end, or killed.
//!
//! On the path: the driver starts this test binary again, with an [`Order`] in its environment. Two sessions of one
//! store run side by side. Everything they ask and hear goes to the log.
//!
//! Keys come in *generations*: every second all workers turn to new ones, and seldom look back. So the history of
//! a key stays short enough to be checked, and what was left behind must stay as it is.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use farside_etcd::{ClusterName, FindError};
use farside_fabric::host::{HostClock, on_this_thread};
use farside_fabric::tcp::ConnectError;
use farside_fabric::{Endpoint, FabricError};
use farside_index::{IndexError, IndexKind, LeafOptions};
use farside_kv::stack;
use farside_kv::{Condition, KvError, PoolSpec, Session, SetOptions, StackError, Store, StoreConfig};
use farside_pool::{PoolError, PoolOptions};
use farside_sim::history::{Answer, Call};
use farside_sync::Scheme;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use super::dice::Dice;
use super::log::Writer;
use super::value::{Torn, key_bytes, number_of, value_of};

/// Keys of one generation: few, so that workers meet.
pub(crate) const KEYS: u64 = 8;
/// How long keys are in use.
const GENERATION_NS: u64 = 1_000_000_000;
/// Short leases, so that stops which are longer do not take all the time there is.
pub(crate) const POOL: PoolOptions = PoolOptions {
    tick_ns: 1_000_000,
    lease_ns: 500_000_000,
};
/// How long an operation over TCP may take: shorter than some stops of a node.
const OPERATION_NS: u64 = 1_000_000_000;
/// Between two attempts to reach a node.
const ATTEMPT_NS: u64 = 20_000_000;

/// What a worker is to do.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(crate) struct Order {
    /// Where the memory is, as a user writes it; etcd:HOST:PORT/NAME is looked up.
    pub(crate) pool: String,
    /// Use the pool through the gateway at this address instead.
    pub(crate) gateway: Option<SocketAddr>,
    /// Whether all of it is mapped: then nobody may cut the worker off while it lives.
    pub(crate) is_mapped: bool,
    pub(crate) log: PathBuf,
    pub(crate) seed: u64,
    /// No two workers of a run have the same, so no two write the same value.
    pub(crate) incarnation: u64,
    /// When the run started.
    pub(crate) start_ns: u64,
    /// The names of index and scheme.
    pub(crate) made_of: (String, String),
    /// Whether to acknowledge some writes that are not made.
    pub(crate) lies: bool,
}

/// How a store is opened that has this index and scheme.
pub(crate) fn config((index, scheme): (IndexKind, Scheme)) -> StoreConfig {
    StoreConfig {
        pool: POOL,
        index: Some(index),
        scheme,
        // So few entries that leaves split and merge.
        leaf: LeafOptions {
            span: 8,
            neighbourhood: 4,
        },
        ..StoreConfig::default()
    }
}

/// How a worker begins what it remarks when it has lost the store.
pub(crate) const OPENS_AGAIN: &str = "opens the store again";
/// What a worker remarks when one of its writes was combined with others'.
pub(crate) const COMBINED: &str = "writes were combined";

impl Order {
    /// Where a worker finds its order.
    pub(crate) const VARIABLE: &'static str = "FARSIDE_SOAK_ORDER";

    pub(crate) fn to_text(&self) -> String {
        serde_json::to_string(self).expect("an order can be written")
    }
}

/// The last generation that is in use at a time.
pub(crate) fn generation(start_ns: u64, now_ns: u64) -> u64 {
    now_ns.saturating_sub(start_ns) / GENERATION_NS
}

/// Returns at once, unless this process was started as a worker.
pub(crate) fn work_if_ordered() {
    let Ok(text) = std::env::var(Order::VARIABLE) else {
        return;
    };
    let order: Order = serde_json::from_str(&text).expect("the driver wrote it");
    // Stopped, it would not see that the driver is gone.
    set_parent_process_death_signal(Some(Signal::KILL)).expect("Linux does that");
    let is_told_to_end = Arc::new(AtomicBool::new(false));
    let flag = is_told_to_end.clone();
    // The end of the pipe says so; waiting for it takes a thread.
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        flag.store(true, Ordering::Relaxed);
    });
    let worker = Worker {
        log: RefCell::new(Writer::create(&order.log)),
        dice: RefCell::new(Dice::new(order.seed)),
        numbers: Cell::new(0),
        has_lost_store: Cell::new(false),
        is_told_to_end,
        order,
    };
    while !worker.is_told_to_end() {
        match worker.order.gateway {
            Some(gateway) => worker.work_through(gateway),
            None => worker.work(),
        }
    }
}

/// Between two stores.
fn wait() {
    #[expect(clippy::disallowed_methods, reason = "no runtime is running between two stores")]
    std::thread::sleep(core::time::Duration::from_nanos(ATTEMPT_NS));
}

/// What a failed operation means to the worker.
enum Trouble {
    /// Go on with the store.
    Passing,
    /// Open the store again.
    CutOff,
}

/// Judges an error that is not about memory.
///
/// # Panics
/// If no fault that the driver causes can be the reason.
fn judge(error: &KvError) -> Trouble {
    let KvError::Index(IndexError::Pool(pool)) = error else {
        panic!("no fault of a process explains this: {error}");
    };
    match pool {
        _ if error.is_cut_off() => Trouble::CutOff,
        PoolError::Fabric(FabricError::DeadlineExceeded { .. }) => Trouble::Passing,
        _ => panic!("no fault of a process explains this: {error}"),
    }
}

pub(super) struct Worker {
    order: Order,
    pub(super) log: RefCell<Writer>,
    dice: RefCell<Dice>,
    /// How many were made.
    numbers: Cell<u64>,
    has_lost_store: Cell<bool>,
    is_told_to_end: Arc<AtomicBool>,
}

impl Worker {
    /// Opens the store, works until it is lost or the worker is told to end.
    fn work(&self) {
        let Some(pool) = self.find_pool() else {
            self.log.borrow_mut().remark("etcd did not say where the pool is");
            wait();
            return;
        };
        let spec: PoolSpec = pool.parse().expect("the driver wrote it");
        let nodes = spec.locate().expect("the driver made the segments");
        self.has_lost_store.set(false);
        let reason = match stack::run(nodes, None, async |endpoint| Box::pin(self.run(endpoint)).await) {
            Ok(Ok(())) => return,
            Ok(Err(error)) => {
                let is_cut_off = matches!(judge(&error), Trouble::CutOff);
                assert!(
                    !(is_cut_off && self.order.is_mapped),
                    "a process that maps all memory was cut off while it lived: {error}"
                );
                format!("{OPENS_AGAIN}: {error}")
            }
            Err(StackError::Connect(error)) => match error {
                ConnectError::Unreachable { .. } => "a node was unreachable".to_owned(),
                ConnectError::Timeout { .. } => "a node did not greet in time".to_owned(),
                ConnectError::HungUp { .. } => "a node hung up during the greeting".to_owned(),
                ConnectError::Fenced { .. } => "cut off during the greeting".to_owned(),
                ConnectError::NotPrimary { .. } => "no primary answered during the greeting".to_owned(),
                ConnectError::Restarted { .. } => "a node was restarted during the greeting".to_owned(),
                error => panic!("no fault of a process explains this: {error}"),
            },
            Err(error) => panic!("no fault of a process explains this: {error}"),
        };
        self.log.borrow_mut().remark(&reason);
        wait();
    }

    /// The nodes of the pool, unless etcd is to say and cannot.
    fn find_pool(&self) -> Option<String> {
        if !ClusterName::is_meant(&self.order.pool) {
            return Some(self.order.pool.clone());
        }
        let name: ClusterName = self.order.pool.parse().expect("the driver wrote it");
        match on_this_thread(farside_etcd::find(&name)).expect("the system has room for a loop") {
            Ok(cluster) => Some(cluster.pool()),
            Err(FindError::Etcd(_)) => None,
            Err(error) => panic!("no fault of a process explains this: {error}"),
        }
    }

    pub(super) fn is_told_to_end(&self) -> bool {
        self.is_told_to_end.load(Ordering::Relaxed)
    }

    pub(super) fn roll(&self, sides: u64) -> u64 {
        self.dice.borrow_mut().roll(sides)
    }

    /// A number that nobody else writes, with room for additions before the next one.
    pub(super) fn number(&self) -> u64 {
        self.numbers.set(self.numbers.get() + 1);
        self.order.incarnation << 44 | self.numbers.get() << 16
    }

    /// One session's operations, one after the other.
    async fn converse(&self, store: &Store, name: u32) -> Result<(), KvError> {
        let mut session = store.session();
        let is_over = || self.is_told_to_end() || self.has_lost_store.get();
        let is_ordered = store.index().kind().is_ordered();
        let mut has_combined = false;
        while !is_over() {
            let end = match self.roll(8) {
                0 if is_ordered && self.roll(2) == 0 => self.read_range(&mut session, name).await,
                0 => self.read_many(&mut session, name).await,
                _ => self.operate(&mut session, name).await,
            };
            if let Err(error) = end {
                self.has_lost_store.set(true);
                return Err(error);
            }
            if !has_combined && store.index().combined().combined > 0 {
                has_combined = true;
                self.log.borrow_mut().remark(COMBINED);
            }
            // The other session, and housekeeping, run beside us; now and then for long enough to reclaim memory.
            let pause_ns = if self.roll(8) == 0 { 1_000_000 } else { 0 };
            store.endpoint().sleep(pause_ns).await;
        }
        Ok(())
    }

    /// The last key of a generation: the present one, or seldom one before.
    fn last_key(&self) -> u64 {
        let mut generation = generation(self.order.start_ns, HostClock.now_ns());
        if generation > 0 && self.roll(16) == 0 {
            generation = self.roll(generation);
        }
        (generation + 1) * KEYS - 1
    }

    /// A key of a generation; some are hotter.
    pub(super) fn some_key(&self) -> u64 {
        self.last_key() - self.roll(KEYS).min(self.roll(KEYS))
    }

    async fn operate(&self, session: &mut Session, name: u32) -> Result<(), KvError> {
        let key = self.some_key();
        let call = match self.roll(100) {
            0..=29 => Call::Get,
            30..=49 => Call::Put(self.number()),
            50..=59 => Call::Insert(self.number()),
            60..=69 => Call::Update(self.number()),
            70..=79 => Call::Delete,
            _ => Call::Add(1 + self.roll(9)),
        };
        let index = self.log.borrow_mut().asks(HostClock.now_ns(), name, &[(key, call)]);
        let answer = match call {
            Call::Put(_) if self.order.lies && self.roll(8) == 0 => Ok(Answer::Done),
            _ => perform(session, key, call).await,
        };
        self.note(index, answer)
    }

    async fn read_many(&self, session: &mut Session, name: u32) -> Result<(), KvError> {
        let last = self.last_key();
        let first = last.saturating_sub(1 + self.roll(20));
        let asked: Vec<(u64, Call)> = (first..=last).map(|key| (key, Call::Get)).collect();
        let names: Vec<Vec<u8>> = asked.iter().map(|&(key, _)| key_bytes(key)).collect();
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let index = self.log.borrow_mut().asks(HostClock.now_ns(), name, &asked);
        let mut values = session.get_many(&names);
        let mut end = Ok(());
        for (index, &(key, _)) in (index..).zip(&asked) {
            let answer = values.next().await.map(|value| read(key, value));
            // The keys that follow are asked for in any case: each has an answer of its own.
            end = end.and(self.note(index, answer));
        }
        end
    }

    /// Reads a range, page by page: as if each of some keys had been asked for at some instant of it.
    async fn read_range(&self, session: &mut Session, name: u32) -> Result<(), KvError> {
        let last = self.last_key();
        let first = last.saturating_sub(1 + self.roll(20));
        let asked: Vec<(u64, Call)> = (first..=last).map(|key| (key, Call::Get)).collect();
        let mut wanted: BTreeMap<Vec<u8>, (u64, Option<u64>)> =
            (first..=last).map(|key| (key_bytes(key), (key, None))).collect();
        let [from, to] = [wanted.keys().next(), wanted.keys().last()].map(|key| key.cloned().unwrap_or_default());
        let to = [to.as_slice(), &[0]].concat();
        let index = self.log.borrow_mut().asks(HostClock.now_ns(), name, &asked);
        let mut next = Some(from);
        let mut end = Ok(());
        while let Some(from) = next {
            match session.range(&from, Some(&to), 8).await {
                Ok((page, behind)) => {
                    for (key, value) in page {
                        let Some((number, found)) = wanted.get_mut(&key) else {
                            continue;
                        };
                        let value = number_of(*number, &value).expect("values are never torn");
                        assert!(found.replace(value).is_none(), "a range has key {number} twice");
                    }
                    next = behind;
                }
                Err(error) => {
                    end = Err(error);
                    break;
                }
            }
        }
        let found: BTreeMap<u64, Option<u64>> = wanted.into_values().collect();
        let mut noted = Ok(());
        for (index, (key, _)) in (index..).zip(asked) {
            let answer = end.clone().map(|()| Answer::Value(found[&key]));
            noted = noted.and(self.note(index, answer));
        }
        noted
    }

    /// Writes down what came of an operation; an error if the store is lost.
    fn note(&self, index: u64, answer: Result<Answer, KvError>) -> Result<(), KvError> {
        let now_ns = HostClock.now_ns();
        let mut log = self.log.borrow_mut();
        match answer {
            Ok(answer) => log.answered(index, now_ns, answer),
            // While a dead client holds the epoch back, nothing is reclaimed, and memory may run out.
            Err(error) if error.is_out_of_memory() => log.refused(index),
            Err(error) => {
                log.left_open(index, &error.to_string());
                if matches!(judge(&error), Trouble::CutOff) {
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

/// What a reader hears. A value that is not whole ends the worker, and the run with it.
fn read(key: u64, value: Option<&[u8]>) -> Answer {
    Answer::Value(value.map(|value| number_of(key, value).expect("values are never torn")))
}

async fn perform(session: &mut Session, key: u64, call: Call) -> Result<Answer, KvError> {
    let name = key_bytes(key);
    match call {
        Call::Get => Ok(read(key, session.get(&name).await?)),
        Call::Put(number) => {
            session.put(&name, &value_of(key, number)).await?;
            Ok(Answer::Done)
        }
        Call::Insert(number) | Call::Update(number) => {
            let condition = match call {
                Call::Insert(_) => Condition::IfAbsent,
                _ => Condition::IfPresent,
            };
            let options = SetOptions {
                condition,
                ..SetOptions::default()
            };
            let outcome = session.set(&name, &value_of(key, number), options).await?;
            Ok(Answer::Happened(outcome.is_stored))
        }
        Call::Delete => Ok(Answer::Happened(session.delete(&name).await?)),
        Call::Take => {
            let taken = session.take(&name).await?;
            Ok(read(key, taken.as_deref()))
        }
        Call::Add(more) => {
            let mut sum = 0;
            let added = session.update(&name, |stored| -> Result<_, Torn> {
                let stored = stored.map_or(Ok(0), |stored| number_of(key, stored))?;
                sum = stored + more;
                Ok(value_of(key, sum))
            });
            added.await?.expect("values are never torn");
            Ok(Answer::Sum(sum))
        }
    }
}

impl Worker {
    async fn run(&self, endpoint: Endpoint) -> Result<(), KvError> {
        let (index, scheme) = &self.order.made_of;
        let index = IndexKind::by_name(index).expect("the driver wrote it");
        let scheme = Scheme::by_name(scheme).expect("the driver wrote it");
        let config = StoreConfig {
            timeout_ns: stack::timeout_ns(&endpoint).map(|timeout_ns| timeout_ns.min(OPERATION_NS)),
            ..config((index, scheme))
        };
        let store = Store::open(endpoint, config).await?;
        self.log.borrow_mut().remark("joined");
        let (one, other) = tokio::join!(self.converse(&store, 0), self.converse(&store, 1));
        one.and(other)?;
        store.close().await
    }
}
