//! The radix tree as a contender: a store on one segment, with keys and values of any bytes.

use farside_fabric::host::HostClock;
use farside_fabric::shm::Segment;
use farside_index::IndexKind;
use farside_kv::Store;
use farside_lock::backoff::give_way;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::WorkerOptions;
use super::farside::open_store;
use super::memory::private_bytes;
use super::scans::{Scans, Seen};
use super::worker::{Engine, GETS, OPERATIONS_PER_TURN, SCANS};
use crate::error::BenchError;
use crate::store::memory_used;
use crate::tree::key_of;
use crate::workload::{client_random, zipf::below};

/// Where keys are scattered, a node is made wherever two keys begin with the same three bytes, and has room for 256.
pub(super) const NODE_BYTES_PER_ITEM: u64 = 1024;

/// The process.
pub(super) struct Smart {
    segment: Segment,
    store: Store,
    random: Xoshiro256PlusPlus,
    items: u64,
    scans: Scans,
    private_bytes: u64,
}

/// The key of an item, in whose order its bytes are.
fn key_bytes(number: u64) -> [u8; 8] {
    key_of(number).to_be_bytes()
}

impl Smart {
    /// Makes the store of a segment.
    pub(super) async fn open(options: &WorkerOptions) -> Result<Self, BenchError> {
        let private_bytes = private_bytes()?;
        let (segment, store) = open_store(options, Some(IndexKind::Smart)).await?;
        Ok(Self {
            segment,
            store,
            random: client_random(options.seed, options.member),
            items: options.items,
            scans: Scans::new(options.items),
            private_bytes,
        })
    }
}

impl Engine for Smart {
    async fn load(&mut self) -> Result<u64, BenchError> {
        let mut session = self.store.session();
        for number in 0..self.items {
            session.put(&key_bytes(number), &number.to_le_bytes()).await?;
            if number.is_multiple_of(OPERATIONS_PER_TURN) {
                give_way().await;
            }
        }
        let shared = memory_used(self.segment.region()).unwrap_or(self.segment.memory_bytes());
        Ok(shared + private_bytes()?.saturating_sub(self.private_bytes))
    }

    async fn get(&mut self, in_flight: u64) -> Result<f64, BenchError> {
        let mut session = self.store.session();
        let rounds = GETS / in_flight;
        let mut numbers = vec![0; in_flight as usize];
        let mut keys = vec![[0; 8]; in_flight as usize];
        let start_ns = HostClock.now_ns();
        for _ in 0..rounds {
            numbers.fill_with(|| below(&mut self.random, self.items));
            for (key, &number) in keys.iter_mut().zip(&numbers) {
                *key = key_bytes(number);
            }
            if in_flight == 1 {
                let value = session.get(&keys[0]).await?;
                assert_eq!(value, Some(&numbers[0].to_le_bytes()[..]), "what was stored is there");
                continue;
            }
            let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            let mut values = session.get_many(&keys);
            for number in &numbers {
                let value = values.next().await?;
                assert_eq!(value, Some(&number.to_le_bytes()[..]), "what was stored is there");
            }
        }
        Ok((HostClock.now_ns() - start_ns) as f64 / (rounds * in_flight) as f64)
    }

    async fn scan(&mut self) -> Result<f64, BenchError> {
        let mut session = self.store.session();
        let start_ns = HostClock.now_ns();
        for _ in 0..SCANS {
            let from = self.scans.draw(&mut self.random);
            let (items, _) = session
                .range(&from.to_be_bytes(), None, self.scans.keys() as usize)
                .await?;
            let number = |bytes: &[u8]| <[u8; 8]>::try_from(bytes).expect("it has eight bytes");
            let items = items.iter();
            let seen: Seen = items
                .map(|(key, value)| (u64::from_be_bytes(number(key)), u64::from_le_bytes(number(value))))
                .collect();
            self.scans.check(from, seen);
        }
        Ok((HostClock.now_ns() - start_ns) as f64 / SCANS as f64)
    }

    async fn leave(self) -> Result<(), BenchError> {
        Ok(self.store.close().await?)
    }
}
