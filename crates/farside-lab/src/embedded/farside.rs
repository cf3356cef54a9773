//! Farside as a contender: two processes with a client each, on one segment.

use core::cell::{Cell, RefCell};

use farside_fabric::host::HostClock;
use farside_fabric::shm::{self, Segment};
use farside_fabric::{Pipeline, interleave};
use farside_index::IndexKind;
use farside_kv::{KvError, Session, Store, StoreConfig};
use farside_lock::backoff::give_way;
use farside_pool::PoolOptions;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::WorkerOptions;
use super::draws::Draws;
use super::memory::private_bytes;
use super::worker::{Engine, GETS, OPERATIONS_PER_TURN, per_second};
use crate::error::BenchError;
use crate::latency::{get_one_by_one, get_together, load};
use crate::progress::Progress;
use crate::store::memory_used;
use crate::workload::client_random;

/// How many operations are in flight where many are.
pub(super) const IN_FLIGHT: u64 = 16;
/// A worker waits for its turn longer than a lease usually lasts.
pub(super) const LEASE_NS: u64 = 3_600_000_000_000;
/// Bytes of a segment for each item, and beside them; what is not used takes no memory.
const BYTES_PER_ITEM: u64 = 112;
const SPARE_BYTES: u64 = 512 << 20;

/// The size of a segment for so many items, if nodes of the index take so many bytes for each.
pub(super) fn segment_bytes(items: u64, node_bytes: u64) -> u64 {
    (items * (BYTES_PER_ITEM + node_bytes) + SPARE_BYTES).next_multiple_of(2 << 20)
}

/// Opens the store of a worker's segment, or makes it, with this index or the usual one.
pub(super) async fn open_store(
    options: &WorkerOptions,
    index: Option<IndexKind>,
) -> Result<(Segment, Store), BenchError> {
    let segment = Segment::open(&options.path)?;
    let endpoint = shm::Fabric::new(vec![segment.clone()]).endpoint()?;
    let config = StoreConfig {
        index,
        pool: PoolOptions {
            lease_ns: LEASE_NS,
            ..PoolOptions::default()
        },
        ..StoreConfig::default()
    };
    Ok((segment, Store::open(endpoint, config).await?))
}

/// One of the processes.
pub(super) struct Farside {
    segment: Segment,
    store: Store,
    random: Xoshiro256PlusPlus,
    items: u64,
    private_bytes: u64,
}

impl Farside {
    /// Opens the store of a segment, or makes it.
    pub(super) async fn open(options: &WorkerOptions) -> Result<Self, BenchError> {
        let private_bytes = private_bytes()?;
        let (segment, store) = open_store(options, None).await?;
        Ok(Self {
            segment,
            store,
            random: client_random(options.seed, options.member),
            items: options.items,
            private_bytes,
        })
    }
}

impl Engine for Farside {
    async fn load(&mut self) -> Result<u64, BenchError> {
        load(&self.store, self.items, &Progress::hidden()).await?;
        let shared = memory_used(self.segment.region()).unwrap_or(self.segment.memory_bytes());
        Ok(shared + private_bytes()?.saturating_sub(self.private_bytes))
    }

    async fn get(&mut self, in_flight: u64) -> Result<f64, BenchError> {
        let mut session = self.store.session();
        if in_flight == 1 {
            return get_one_by_one(&mut session, self.items, GETS, &mut self.random).await;
        }
        get_together(&mut session, self.items, in_flight, GETS, &mut self.random).await
    }

    async fn ycsb(&mut self, draws: &mut [Draws], in_flight: u64, duration_ns: u64) -> Result<f64, BenchError> {
        let work = Work {
            draws: RefCell::new(&mut draws[0]),
            done: Cell::new(0),
            end_ns: HostClock.now_ns() + duration_ns,
        };
        let start_ns = HostClock.now_ns();
        if in_flight == 1 {
            work.run(&mut self.store.session()).await?;
        } else {
            let (pipeline, failure) = (Pipeline::default(), Cell::new(None));
            let runs = (0..in_flight).map(|_| {
                let mut session = self.store.pipelined_session(&pipeline);
                let (work, failure) = (&work, &failure);
                async move {
                    if let Err(error) = work.run(&mut session).await {
                        failure.set(Some(error));
                    }
                }
            });
            interleave(&pipeline, runs.collect()).await;
            if let Some(error) = failure.take() {
                return Err(error.into());
            }
        }
        Ok(per_second(work.done.get(), start_ns))
    }

    async fn leave(self) -> Result<(), BenchError> {
        Ok(self.store.close().await?)
    }
}

/// What the sessions of a process do together.
struct Work<'a> {
    draws: RefCell<&'a mut Draws>,
    done: Cell<u64>,
    end_ns: u64,
}

impl Work<'_> {
    async fn run(&self, session: &mut Session) -> Result<(), KvError> {
        while HostClock.now_ns() < self.end_ns {
            for _ in 0..OPERATIONS_PER_TURN {
                let draw = self.draws.borrow_mut().next();
                let key = draw.number.to_le_bytes();
                if draw.is_update {
                    session.put(&key, &key).await?;
                } else {
                    assert!(session.get(&key).await?.is_some(), "what was stored is there");
                }
            }
            self.done.set(self.done.get() + OPERATIONS_PER_TURN);
            give_way().await;
        }
        Ok(())
    }
}
