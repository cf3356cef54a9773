//! Clients that take locks: acquire, work, release.
//!
//! On the path: the program of `bench lock`. A client takes one lock at a time, or those of a transaction (`transaction.rs`).

mod transaction;

use core::cell::Cell;
use std::sync::{Arc, Mutex};

use farside_fabric::region::Region;
use farside_fabric::{Endpoint, NodeId, OpContext, RemoteAddr};
use farside_lock::declock::Resets;
use farside_lock::declock::roster::ROSTER_BYTES;
use farside_lock::phases::Phases;
use farside_lock::service::{Agent, BLOCK_BYTES};
use farside_lock::{LockError, LockKind, LockOptions, Locker, Mode, Site};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::error::BenchError;
use crate::program::{Client, Laid, LockStep, Program, Step};
use crate::workload::{Scatter, TransactionWorkload, Zipf, client_random, zipf::unit};
use transaction::Begun;

/// Where the locks start; what clients read under a lock stands behind the last of them.
const LOCKS_AT: u64 = 64;

/// What clients do with locks.
#[derive(Clone, Debug)]
pub struct LockProgram {
    /// Which lock.
    pub kind: LockKind,
    /// How it behaves; where its service and roster are is left out.
    pub options: LockOptions,
    /// How many there are.
    pub locks: u64,
    /// The transactions whose locks are taken; one lock at a time, if there are none. They say themselves which locks
    /// in which mode, and for how long.
    pub transactions: Option<TransactionWorkload>,
    /// How much more popular some are than others.
    pub theta: f64,
    /// The share of acquires in shared mode.
    pub read_ratio: f64,
    /// How many words are read while a lock is held.
    pub section_verbs: u64,
    /// How often a client dies under a lock, and another comes in its place: the share of locks that are
    /// never given back.
    pub failure_rate: f64,
    /// Whether clients note what they spend their time on.
    pub is_timed: bool,
    /// What the compute nodes have noted when a run has ended.
    pub noted: Arc<Mutex<Noted>>,
    /// Decides who takes which lock.
    pub seed: u64,
}

/// What compute nodes have noted of their locks, in the time that counts.
#[derive(Clone, Default, Debug)]
pub struct Noted {
    /// What clients spent their time on, by site.
    pub phases: Vec<Phases>,
    /// Resets of DecLocks, all told.
    pub resets: Resets,
}

/// What the clients of a compute node share.
#[derive(Debug)]
pub struct LockNode {
    site: Site,
    resets_before: Cell<Resets>,
}

impl LockNode {
    /// A compute node without clients.
    #[must_use]
    pub fn new(site: Site) -> Self {
        Self {
            site,
            resets_before: Cell::default(),
        }
    }

    /// What its locks have in common.
    #[must_use]
    pub fn site(&self) -> &Site {
        &self.site
    }

    /// The time that counts begins.
    pub fn begin(&self) {
        if let Some(phases) = self.site.phases() {
            phases.clear();
        }
        self.resets_before.set(self.site.resets());
    }

    /// Adds what has been noted since then.
    ///
    /// # Panics
    /// Never: nobody panics with the sum.
    pub fn note(&self, noted: &Mutex<Noted>) {
        let mut noted = noted.lock().expect("nobody panics with it");
        noted.phases.extend(self.site.phases().cloned());
        let (before, after) = (self.resets_before.get(), self.site.resets());
        noted.resets.count += after.count - before.count;
        noted.resets.spent_ns += after.spent_ns - before.spent_ns;
    }
}

impl LockProgram {
    fn entry(&self, lock: u64) -> RemoteAddr {
        RemoteAddr::new(NodeId::new(0), LOCKS_AT + lock * self.kind.entry_bytes(&self.options))
    }

    fn data(&self, lock: u64) -> RemoteAddr {
        let behind = LOCKS_AT + self.locks * self.kind.entry_bytes(&self.options);
        RemoteAddr::new(NodeId::new(0), behind.next_multiple_of(8) + lock * 8)
    }

    /// Where the lock service has its block: behind the data.
    fn service(&self) -> RemoteAddr {
        let end = self.data(self.locks);
        RemoteAddr::new(end.node(), end.offset().next_multiple_of(64))
    }

    /// Where the clients of a lock that asks everybody list themselves: behind the block of the service.
    fn roster(&self) -> RemoteAddr {
        let block = self.service();
        RemoteAddr::new(block.node(), (block.offset() + BLOCK_BYTES).next_multiple_of(64))
    }

    fn site(&self) -> Site {
        let options = LockOptions {
            service: Some(self.service()),
            roster: Some(self.roster()),
            ..self.options
        };
        if self.is_timed {
            Site::timed(options)
        } else {
            Site::new(options)
        }
    }

    /// Refuses settings that make no sense.
    ///
    /// # Errors
    /// [`BenchError::Argument`].
    pub fn check(&self) -> Result<(), BenchError> {
        if self.locks == 0 {
            return Err(BenchError::argument("--locks is at least 1"));
        }
        if !(0.0..=1.0).contains(&self.read_ratio) {
            return Err(BenchError::argument("--read-ratio is a number from 0 to 1"));
        }
        if !(0.0..1.0).contains(&self.failure_rate) {
            return Err(BenchError::argument(
                "the failure rate is a number from 0 to less than 1",
            ));
        }
        if let Some(workload) = self.transactions {
            let is_chosen = self.theta != 0.0 || self.read_ratio != 0.0 || self.section_verbs != 0;
            if is_chosen || self.locks != workload.locks || self.failure_rate != 0.0 || self.is_timed {
                let text = format!(
                    "the transactions of {} say themselves which locks they take",
                    workload.name
                );
                return Err(BenchError::Argument(text));
            }
        }
        check_theta(self.theta)
    }
}

/// Refuses a skew that is none.
pub(crate) fn check_theta(theta: f64) -> Result<(), BenchError> {
    if (0.0..=10.0).contains(&theta) {
        Ok(())
    } else {
        Err(BenchError::argument("--theta is a number from 0 (uniform) to 10"))
    }
}

impl Program for LockProgram {
    type Node = LockNode;
    type Client = LockClient;
    type Known = ();

    fn memory_bytes(&self) -> u64 {
        (self.roster().offset() + ROSTER_BYTES).next_multiple_of(4096)
    }

    fn layout(&self) -> String {
        "free locks".to_owned()
    }

    async fn prepare(&self, _: Endpoint, _: &Region) -> Result<Laid, BenchError> {
        // An entry of zeros is a free lock.
        Ok(Laid::default())
    }

    fn has_agent(&self) -> bool {
        self.kind.asks_service()
    }

    async fn serve(&self, endpoint: Endpoint) -> Result<(), BenchError> {
        Err(Agent::start(endpoint, &self.site()).await?.serve().await.into())
    }

    fn known(&self, _: &LockNode) {}

    async fn join(&self, _: Endpoint, _: Option<&()>) -> Result<LockNode, BenchError> {
        Ok(LockNode::new(self.site()))
    }

    fn begin(&self, node: &LockNode) {
        node.begin();
    }

    fn note(&self, node: &LockNode) {
        node.note(&self.noted);
    }

    fn client(&self, node: &LockNode, _: &Endpoint, number: u64) -> LockClient {
        LockClient {
            program: self.clone(),
            site: node.site.clone(),
            locker: None,
            random: client_random(self.seed, number),
            zipf: Zipf::new(self.locks, self.theta),
            scatter: Scatter::new(self.locks),
            begun: None,
        }
    }

    async fn leave(&self, _: LockNode) -> Result<(), BenchError> {
        Ok(())
    }
}

/// One of the clients.
#[derive(Debug)]
pub struct LockClient {
    program: LockProgram,
    site: Site,
    /// Made with the first step, which can fail.
    locker: Option<Locker>,
    random: Xoshiro256PlusPlus,
    zipf: Zipf,
    scatter: Scatter,
    /// The transaction that did not commit.
    begun: Option<Begun>,
}

impl Client for LockClient {
    async fn step(&mut self, cx: &mut OpContext) -> Result<Option<Step>, BenchError> {
        if self.locker.is_none() {
            self.locker = Some(Locker::new(self.program.kind, cx.endpoint(), &self.site)?);
        }
        if let Some(workload) = self.program.transactions {
            return self.transaction(cx, workload).await.map(Some);
        }
        let locker = self.locker.as_ref().expect("it was just made");
        let rank = self.zipf.rank(&mut self.random);
        let lock = self.scatter.key(rank);
        let is_shared = self.program.read_ratio > 0.0 && unit(&mut self.random) < self.program.read_ratio;
        let mode = if is_shared { Mode::Shared } else { Mode::Exclusive };
        let before = cx.endpoint().counters().snapshot();
        let grant = locker.acquire(cx, self.program.entry(lock), mode).await?;
        let granted_ns = cx.endpoint().now_ns();
        let acquire = cx.endpoint().counters().snapshot().since(&before);
        for _ in 0..self.program.section_verbs {
            cx.read_word(self.program.data(lock)).await?;
        }
        let release_ns = cx.endpoint().now_ns();
        let fails = self.program.failure_rate > 0.0 && unit(&mut self.random) < self.program.failure_rate;
        if fails {
            drop(grant);
        } else {
            match locker.release(cx, grant).await {
                // Somebody behind waited too long for one that failed, or for us.
                Err(LockError::LeaseLost { .. }) if self.program.failure_rate > 0.0 => {}
                released => released?,
            }
        }
        Ok(Some(Step {
            lock: Some(LockStep {
                granted_ns,
                release_ns,
                acquire,
                is_hottest: rank == 0,
            }),
            ..Step::default()
        }))
    }
}
