//! Farside as a contender: two processes with a client each, on one segment.

use farside_fabric::host::HostClock;
use farside_fabric::shm::{self, Segment};
use farside_index::IndexKind;
use farside_kv::{KvError, Session, Store, StoreConfig};
use farside_lock::backoff::give_way;
use farside_pool::PoolOptions;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::WorkerOptions;
use super::draws::{Draw, Draws};
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
        let mut session = self.store.session();
        let (start_ns, mut done) = (HostClock.now_ns(), 0);
        while HostClock.now_ns() < start_ns + duration_ns {
            for _ in 0..OPERATIONS_PER_TURN / in_flight {
                match in_flight {
                    1 => run_one(&mut session, draws[0].next()).await?,
                    _ => run_together(&mut session, (0..in_flight).map(|_| draws[0].next())).await?,
                }
            }
            done += OPERATIONS_PER_TURN;
            give_way().await;
        }
        Ok(per_second(done, start_ns))
    }

    async fn leave(self) -> Result<(), BenchError> {
        Ok(self.store.close().await?)
    }
}

/// An operation of YCSB.
async fn run_one(session: &mut Session, draw: Draw) -> Result<(), KvError> {
    let key = draw.number.to_le_bytes();
    if draw.is_update {
        session.put(&key, &key).await
    } else {
        assert!(session.get(&key).await?.is_some(), "what was stored is there");
        Ok(())
    }
}

/// Several that are in flight together: what they read is one group, and what they write another.
async fn run_together(session: &mut Session, draws: impl Iterator<Item = Draw>) -> Result<(), KvError> {
    let keys = draws.map(|draw| (draw.number.to_le_bytes(), draw.is_update));
    let keys: Vec<([u8; 8], bool)> = keys.collect();
    let chosen = |is_update| {
        let chosen = keys.iter().filter(move |key| key.1 == is_update);
        chosen.map(|(key, _)| key.as_slice())
    };
    let read: Vec<&[u8]> = chosen(false).collect();
    let mut values = session.get_many(&read);
    for _ in &read {
        assert!(values.next().await?.is_some(), "what was stored is there");
    }
    let written: Vec<(&[u8], &[u8])> = chosen(true).map(|key| (key, key)).collect();
    let mut result = Ok(());
    let note = |stored| result = core::mem::replace(&mut result, Ok(())).and(stored);
    session.put_many(&written, note).await;
    result
}
