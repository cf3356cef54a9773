//! Clients that search and change keys of an index.
//!
//! The pointer array is measured as in CIDER, section 2.2: the key is the number of its slot, an
//! UPDATE reads the slot, writes the item and swaps the pointer until that succeeds, a SEARCH reads
//! the slot and the item. The memory is filled before the clients come, without verbs
//! ([`BulkLoader`]); what the clients change afterwards is allocated and reclaimed as always.

use core::sync::atomic::{AtomicU64, Ordering};
use std::borrow::Cow;
use std::sync::Arc;

use farside_fabric::region::Region;
use farside_fabric::{Endpoint, NodeId, OpContext};
use farside_index::item::Item;
use farside_index::{Addressing, Decision, PointerArray};
use farside_pool::layout::{ChunkState, GEOMETRY_WORDS};
use farside_pool::size_class::SizeClass;
use farside_pool::{BulkLoader, FormatOptions, Geometry, Pool, PoolOptions, Purpose, open, open_or_format};
use farside_sync::{Pointer, Scheme, SizeHint};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::error::BenchError;
use crate::lock::check_theta;
use crate::program::{Client, Program, Step};
use crate::workload::{Operation, Popularity, Scatter, Workload, Zipf, client_random};

/// The smallest key: the number of its slot.
const KEY_BYTES_MIN: usize = 8;
/// The longest key and value that are measured: blocks are laid out in chunks, not in runs.
const KEY_BYTES_MAX: usize = 1 << 10;
const VALUE_BYTES_MAX: usize = 32 << 10;
/// What is kept free for blocks on their way from one client to another.
const SPARE_BYTES: u64 = 256 << 20;
/// And for each compute node, which cuts blocks from chunks of its own.
const SPARE_BYTES_PER_NODE: u64 = 4 << 20;
/// How many keys beyond the first ones a workload that inserts finds slots for.
const SPARE_ITEMS: u64 = 4 << 20;
/// How long a thread may be busy before the others take it for dead.
const LEASE_NS: u64 = 60_000_000_000;

/// What clients do with keys.
#[derive(Clone, Debug)]
pub struct StoreProgram {
    /// How pointers are replaced.
    pub scheme: Scheme,
    /// How many keys there are at the start.
    pub items: u64,
    /// What is done with them.
    pub workload: Workload,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// How much more popular some keys are than others.
    pub theta: f64,
    /// How many compute nodes there will be.
    pub compute_nodes: u64,
    /// How often each renews its lease and publishes its epoch, in nanoseconds.
    pub tick_ns: u64,
    /// Decides who does what with which key.
    pub seed: u64,
    /// How many keys have been given out so far, those at the start included.
    pub given_out: Arc<AtomicU64>,
}

/// How often a compute node does housekeeping unless something else is said.
pub const TICK_NS: u64 = 1_000_000;

impl StoreProgram {
    /// Refuses settings that make no sense.
    ///
    /// # Errors
    /// [`BenchError::Argument`].
    pub fn check(&self) -> Result<(), BenchError> {
        if self.items == 0 {
            return Err(BenchError::argument("--items is at least 1"));
        }
        if !(KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&self.key_bytes) {
            let text =
                format!("--key-size is from {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes: a key is its slot's number");
            return Err(BenchError::Argument(text));
        }
        if self.value_bytes > VALUE_BYTES_MAX {
            return Err(BenchError::Argument(format!(
                "--value-size is at most {VALUE_BYTES_MAX} bytes"
            )));
        }
        check_theta(self.theta)
    }

    fn slots(&self) -> u64 {
        let more = if self.workload.inserts() && !self.workload.is_load() {
            self.items + SPARE_ITEMS
        } else {
            0
        };
        self.items + more
    }

    fn item_bytes(&self) -> u64 {
        self.item(&vec![0; self.key_bytes], &vec![0; self.value_bytes]).bytes()
    }

    fn item<'a>(&self, key: &'a [u8], value: &'a [u8]) -> Item<'a> {
        Item {
            key,
            value,
            expiry_ms: 0,
        }
    }

    fn pool_options(&self) -> PoolOptions {
        PoolOptions {
            tick_ns: self.tick_ns,
            lease_ns: LEASE_NS,
        }
    }

    /// Lays out every item and its slot.
    fn populate<E: Endpoint>(&self, array: &PointerArray<E>, region: &Region) -> Result<(), BenchError> {
        let geometry = array.pool().geometry()[0];
        let count = if self.workload.is_load() { 0 } else { self.items };
        let bytes = self.item_bytes();
        let mut loader = BulkLoader::new(geometry, region, bytes);
        let (mut key, value) = (vec![0; self.key_bytes], vec![0x5a; self.value_bytes]);
        let mut block = vec![0; bytes as usize];
        for number in 0..count {
            key[..KEY_BYTES_MIN].copy_from_slice(&number.to_le_bytes());
            self.item(&key, &value).encode(&mut block);
            let pointer = Pointer::new(loader.block(&block)?, SizeHint::for_item(bytes), 1);
            let slot = region.word(array.slot_addr(number).offset());
            slot.store(pointer.to_word(), Ordering::Relaxed);
        }
        if count > 0 {
            loader.finish();
        }
        // The memory may have been used before.
        for number in count..array.slots() {
            region
                .word(array.slot_addr(number).offset())
                .store(0, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Program for StoreProgram {
    type Node<E: Endpoint> = PointerArray<E>;
    type Client<E: Endpoint> = StoreClient<E>;

    fn memory_bytes(&self) -> u64 {
        // The largest chunk, so that the class is the one of any pool.
        let block_bytes = SizeClass::for_bytes(self.item_bytes(), 1 << 20).bytes();
        let used = self.slots() * (8 + block_bytes);
        // Tables, the reserve for overwrites, and what a chunk has left over.
        let whole = used + used / 16 + SPARE_BYTES + self.compute_nodes * SPARE_BYTES_PER_NODE;
        whole.next_multiple_of(2 << 20)
    }

    async fn prepare<E: Endpoint>(&self, endpoint: E, region: &Region) -> Result<(), BenchError> {
        let mut cx = OpContext::new(endpoint);
        let format = FormatOptions {
            clients_max: self.compute_nodes as u16 + 8,
            ..FormatOptions::default()
        };
        let geometry = open_or_format(&mut cx, format).await?;
        let pool = Pool::join(&mut cx, geometry, self.pool_options()).await?;
        let array = PointerArray::create(&mut cx, pool.clone(), self.scheme, Addressing::Direct, self.slots()).await?;
        self.populate(&array, region)?;
        Ok(pool.leave().await?)
    }

    async fn join<E: Endpoint>(&self, endpoint: E) -> Result<PointerArray<E>, BenchError> {
        let mut cx = OpContext::new(endpoint);
        let geometry = open(&mut cx).await?;
        let pool = Pool::join(&mut cx, geometry, self.pool_options()).await?;
        pool.restock(self.item_bytes(), 1, Purpose::Overwrite).await?;
        Ok(PointerArray::open(&mut cx, pool, self.scheme, Addressing::Direct).await?)
    }

    fn client<E: Endpoint>(&self, node: &PointerArray<E>, _: &E, number: u64) -> StoreClient<E> {
        StoreClient {
            array: node.clone(),
            random: client_random(self.seed, number),
            zipf: Zipf::new(self.items, self.theta),
            scatter: Scatter::new(self.items),
            key: vec![0; self.key_bytes],
            value: vec![number as u8; self.value_bytes],
            workload: self.workload,
            given_out: Arc::clone(&self.given_out),
            keys_max: self.slots(),
        }
    }

    async fn leave<E: Endpoint>(&self, node: PointerArray<E>) -> Result<(), BenchError> {
        Ok(node.pool().clone().leave().await?)
    }

    fn is_finite(&self) -> bool {
        self.workload.is_load()
    }

    fn memory_used(&self, region: &Region) -> Option<u64> {
        memory_used(region)
    }
}

/// Bytes of a pool's node in use: tables, and every chunk that is not free.
pub(crate) fn memory_used(region: &Region) -> Option<u64> {
    let word = |offset| region.word(offset).load(Ordering::SeqCst);
    let words: [u64; GEOMETRY_WORDS] = core::array::from_fn(|index| word(index as u64 * 8));
    let geometry = Geometry::from_words(&words, NodeId::new(0), region.bytes()).ok()?;
    let is_used = |&index: &u64| word(geometry.chunk_word(index).offset()) != ChunkState::Free.to_word();
    let chunks = (0..geometry.chunk_count).filter(is_used).count() as u64;
    Some(geometry.chunks_at + chunks * geometry.chunk_bytes)
}

/// One of the clients.
#[derive(Debug)]
pub struct StoreClient<E> {
    array: PointerArray<E>,
    random: Xoshiro256PlusPlus,
    zipf: Zipf,
    scatter: Scatter,
    key: Vec<u8>,
    value: Vec<u8>,
    workload: Workload,
    given_out: Arc<AtomicU64>,
    keys_max: u64,
}

impl<E: Endpoint> StoreClient<E> {
    fn choose_key(&mut self) {
        let rank = self.zipf.rank(&mut self.random);
        let number = match self.workload.popularity {
            Popularity::Fixed => self.scatter.key(rank),
            // The newest key is the most popular. Its INSERT may still be under way.
            Popularity::Latest => self.given_out.load(Ordering::Relaxed).saturating_sub(rank + 1),
        };
        self.key[..KEY_BYTES_MIN].copy_from_slice(&number.to_le_bytes());
    }

    /// A key that nobody has used; `None` if there are no slots left.
    fn choose_new_key(&mut self) -> Option<()> {
        let number = self.given_out.fetch_add(1, Ordering::Relaxed);
        self.key[..KEY_BYTES_MIN].copy_from_slice(&number.to_le_bytes());
        (number < self.keys_max).then_some(())
    }

    async fn put(&mut self, cx: &mut OpContext<E>) -> Result<(), BenchError> {
        let decide = |_: Option<Item<'_>>| Decision::Put {
            value: Cow::Borrowed(&self.value),
            expiry_ms: 0,
        };
        self.array.change(cx, &self.key, decide).await?;
        Ok(())
    }
}

impl<E: Endpoint> Client<E> for StoreClient<E> {
    async fn step(&mut self, cx: &mut OpContext<E>) -> Result<Option<Step>, BenchError> {
        let operation = self.workload.operation(&mut self.random);
        let is_there = match operation {
            Operation::Insert => {
                let Some(()) = self.choose_new_key() else {
                    return self.no_slots_left();
                };
                self.put(cx).await?;
                true
            }
            Operation::Search => {
                self.choose_key();
                let is_there = self.array.search(cx, &self.key).await?.is_some();
                is_there || self.workload.popularity == Popularity::Latest
            }
            Operation::Update => {
                self.choose_key();
                self.array.update(cx, &self.key, &self.value).await?
            }
            Operation::ReadModifyWrite => {
                self.choose_key();
                self.put(cx).await?;
                true
            }
        };
        // Nothing is ever deleted.
        assert!(is_there, "key {:?} was lost", self.key);
        Ok(Some(Step::default()))
    }
}

impl<E> StoreClient<E> {
    fn no_slots_left(&self) -> Result<Option<Step>, BenchError> {
        if self.workload.is_load() {
            return Ok(None);
        }
        let text = format!(
            "all {} slots are used: a shorter --duration or more --items",
            self.keys_max
        );
        Err(BenchError::Argument(text))
    }
}
