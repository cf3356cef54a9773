//! Where an application has its rows: a store over mapped memory, or over TCP with a memory node in a thread of its own.

use core::cell::{Cell, RefCell};

use farside_fabric::shm::Segment;
use farside_fabric::{Pipeline, interleave};
use farside_kv::{IndexKind, Store, StoreConfig, stack};
use farside_pool::PoolOptions;

use super::client::{Application, Audit, Ledger, Loaded, Tally, serve_all};
use super::{Limit, SiteOptions};
use crate::crowd::{Crowd, client_threads};
use crate::error::BenchError;
use crate::progress::Progress;
use crate::stage::machine::{Memory, mapped, on_this_thread};

/// The memory of the node. What is not used takes none.
const MEMORY_BYTES: u64 = 8 << 30;
/// How long a thread may be busy before the others take it for dead.
const LEASE_NS: u64 = 60_000_000_000;
/// How many rows are stored at the same time while they are loaded.
const ROWS_AT_ONCE: usize = 16;
/// Slots of a pointer array for each row that is loaded: some are inserted later.
const SLOTS_PER_ROW: u64 = 4;
/// After so many rows the progress is told.
const ROWS_PER_STEP: u64 = 1 << 14;

/// An application in a store.
pub(super) struct Site<A> {
    application: A,
    memory: Memory,
    config: StoreConfig,
    loaded: Loaded,
    ledger: Ledger,
    /// How many clients there have been.
    client_count: u64,
}

impl<A: Application> Site<A> {
    /// Makes a store and loads the application's rows, over mapped memory.
    ///
    /// # Errors
    /// See [`BenchError`].
    pub(super) fn start(application: A, options: SiteOptions, progress: &Progress) -> Result<Self, BenchError> {
        progress.label("loading");
        let segment = Segment::anonymous(MEMORY_BYTES)?;
        let config = StoreConfig {
            index: Some(options.index),
            slots: (options.index == IndexKind::PointerArray).then(|| application.row_count() * SLOTS_PER_ROW),
            pool: PoolOptions {
                lease_ns: LEASE_NS,
                ..PoolOptions::default()
            },
            ..StoreConfig::default()
        };
        let loaded = on_this_thread(async {
            let store = Store::open(mapped(&segment)?, config).await?;
            let loaded = load(&store, &application, progress).await?;
            store.close().await?;
            Ok::<_, BenchError>(loaded)
        })??;
        Ok(Self {
            application,
            memory: Memory::open(options.fabric, segment)?,
            config,
            loaded,
            ledger: Ledger::default(),
            client_count: 0,
        })
    }

    /// Lets clients work, on as many threads as there are cores.
    ///
    /// # Errors
    /// The first one of anybody.
    pub(super) fn measure(&mut self, clients: u64, limit: Limit) -> Result<Tally, BenchError> {
        let crowd = Crowd {
            clients,
            threads: client_threads(clients),
            duration_ns: match limit {
                Limit::Duration(duration_ns) => duration_ns,
                Limit::Transactions(_) => 0,
            },
        };
        let before = self.client_count;
        let tallies = crowd.run(
            async |numbers: Vec<u64>| {
                let clients = numbers.iter().map(|number| self.application.client(before + number));
                Ok((self.open().await?, clients.collect()))
            },
            async |(store, clients): (Store, Vec<A::Client>), window| {
                let tally = serve_all(&store, clients, limit, window).await?;
                store.close().await?;
                Ok(tally)
            },
        )?;
        let mut sum = Tally::default();
        tallies.iter().for_each(|tally| sum.absorb(tally));
        self.client_count += clients;
        self.ledger.absorb(&sum.ledger);
        Ok(sum)
    }

    /// Reads every row, and looks whether they belong together; what was verified of how many rows.
    ///
    /// # Errors
    /// [`BenchError::Unsound`] if they do not.
    pub(super) fn check(&self) -> Result<(Vec<&'static str>, u64), BenchError> {
        let (audit, rows) = on_this_thread(async {
            let store = Store::open(self.memory.map()?, self.config).await?;
            let mut session = store.session();
            let (mut audit, mut rows, mut cursor) = (self.application.audit(), 0, 0);
            loop {
                let (some, next) = session.scan(cursor).await?;
                rows += some.len() as u64;
                for item in some {
                    audit.see(&item.0, &item.1)?;
                }
                if next == 0 {
                    break;
                }
                cursor = next;
            }
            drop(session);
            store.close().await?;
            Ok::<_, BenchError>((audit, rows))
        })??;
        Ok((audit.verify(&self.loaded, &self.ledger)?, rows))
    }

    /// A thread's opening of the store.
    pub(super) async fn open(&self) -> Result<Store, BenchError> {
        let endpoint = self.memory.connect().await?;
        let config = StoreConfig {
            timeout_ns: stack::timeout_ns(&endpoint),
            ..self.config
        };
        Ok(Store::open(endpoint, config).await?)
    }

    /// Ends the memory node, if there is one.
    pub(super) fn stop(self) {
        self.memory.stop();
    }
}

/// Stores an application's rows, several at a time; how many each table has.
async fn load(store: &Store, application: &impl Application, progress: &Progress) -> Result<Loaded, BenchError> {
    let rows = RefCell::new(application.rows());
    let (loaded, count, failure) = (RefCell::new(Loaded::new()), Cell::new(0), Cell::new(None));
    let expected = application.row_count().max(1);
    let pipeline = Pipeline::default();
    let puts = (0..ROWS_AT_ONCE).map(|_| {
        let mut session = store.pipelined_session(&pipeline);
        let (rows, loaded, count, failure) = (&rows, &loaded, &count, &failure);
        let next = || rows.borrow_mut().next();
        async move {
            while let Some((key, value)) = next() {
                if let Err(error) = session.put(&key, &value).await {
                    return failure.set(Some(error));
                }
                *loaded.borrow_mut().entry(key[0]).or_default() += 1;
                count.set(count.get() + 1);
                if count.get() % ROWS_PER_STEP == 0 {
                    progress.set((count.get() * 100 / expected).min(100));
                }
            }
        }
    });
    interleave(&pipeline, puts.collect()).await;
    match failure.take() {
        Some(error) => Err(error.into()),
        None => Ok(loaded.into_inner()),
    }
}
