//! Clients that search and change keys of an index.
//!
//! The pointer array is measured as in CIDER, section 2.2: the key is the number of its slot, an
//! UPDATE reads the slot, writes the item and swaps the pointer until that succeeds, a SEARCH reads
//! the slot and the item. Its memory is filled before the clients come, without verbs. So is that of RACE, with the table
//! that INSERTs one after the other would have made. An ordered index is laid out as full as INSERTs leave it, if keys have
//! eight bytes, and compute nodes know its internal nodes before anything counts. What the clients change afterwards is
//! allocated and reclaimed as always.

mod client;
mod fill;
mod growth;

use core::sync::atomic::Ordering;
use std::sync::Arc;

use farside_fabric::region::Region;
use farside_fabric::{Endpoint, NodeId, OpContext};
use farside_index::item::Item;
use farside_index::{
    Addressing, Budget, Index, IndexKind, IndexOptions, LeafOptions, PointerArray, Race, RaceOptions, TreeKind,
};
use farside_pool::layout::{ChunkState, GEOMETRY_WORDS};
use farside_pool::size_class::SizeClass;
use farside_pool::{FormatOptions, Geometry, Pool, PoolOptions, Purpose, open, open_or_format};
use farside_sync::{CreditOptions, LOCK_BYTES, Scheme, SyncOptions};

pub use self::client::StoreClient;
pub use self::growth::{Growth, Seen};
use crate::error::BenchError;
use crate::lock::check_theta;
use crate::program::{Laid, Program};
use crate::tree::{Spacing, key_of};
use crate::workload::Population;

/// The smallest key: the number of its slot.
const KEY_BYTES_MIN: usize = 8;
/// The longest key and value that are measured: blocks are laid out in chunks, not in runs.
const KEY_BYTES_MAX: usize = 1 << 10;
const VALUE_BYTES_MAX: usize = 32 << 10;
/// What is kept free for blocks on their way from one client to another.
pub(crate) const SPARE_BYTES: u64 = 256 << 20;
/// And for each compute node, which cuts blocks from chunks of its own.
pub(crate) const SPARE_BYTES_PER_NODE: u64 = 4 << 20;
/// How many keys beyond the first ones a workload that inserts finds slots for.
pub(crate) const SPARE_ITEMS: u64 = 4 << 20;
/// Bytes of a RACE table for each key at most: subtables that have just been split are half full, and what
/// they replace is reclaimed a little later.
const TABLE_BYTES_PER_ITEM: u64 = 40;
/// Bytes of a tree's nodes for each key at most: leaves may be half full.
const TREE_BYTES_PER_ITEM: u64 = 96;
/// Bytes of a radix tree's nodes for each key at most: every other key is there.
const RADIX_BYTES_PER_ITEM: u64 = 18;
/// What the name of an index ends with here if it is a tree of data pointers: without that it is one of values.
const OF_POINTERS: &str = "-indirect";
/// How often a client that leaves looks whether its index is in order.
pub(crate) const RESTRUCTURING_POLL_NS: u64 = 100_000;
/// How long a thread may be busy before the others take it for dead.
pub(crate) const LEASE_NS: u64 = 60_000_000_000;

/// The index of a store by its name in benchmarks: the name of a B+ tree alone is that of a tree of values, as published, if there
/// is one.
#[must_use]
pub fn index_by_name(name: &str) -> Option<IndexKind> {
    let is_tree = name.ends_with(OF_POINTERS);
    let kind = IndexKind::by_name(name.trim_end_matches(OF_POINTERS))?;
    (kind.tree().is_some_and(TreeKind::has_values) == is_tree).then_some(kind)
}

/// The first bytes of the key with this number: the number, which is its slot in a pointer array; or where keys are in order,
/// one that has nothing to do with it, as in a tree of values. In a radix tree keys stand beside each other, as published: it is one
/// byte of many that chooses among the entries of its nodes. Where more are stored there are gaps for them, see [`Spacing::Close`]; a
/// LOAD that goes on with such a tree finds the even keys there, and stores odd ones among them in no order, as the second half of a
/// whole LOAD would.
fn key_start(index: IndexKind, population: &Population, number: u64) -> [u8; KEY_BYTES_MIN] {
    match index {
        _ if index.tree().is_some() => key_of(number).to_be_bytes(),
        IndexKind::Smart if population.workload.is_load() && population.items_at_start() > 0 => {
            between(population.items_at_start(), number).to_be_bytes()
        }
        IndexKind::Smart if population.workload.inserts() && !population.workload.is_load() => {
            Spacing::Close.key_of(number, population.items).to_be_bytes()
        }
        IndexKind::Smart => number.to_be_bytes(),
        _ => number.to_le_bytes(),
    }
}

/// Twice a number below `first`; for those from there on odd ones, of which two that follow each other are far apart: they go round
/// all of the range with a step that has no divisor in common with it.
fn between(first: u64, number: u64) -> u64 {
    const GOLDEN: f64 = 0.618_033_988_75;
    let Some(behind) = number.checked_sub(first) else {
        return 2 * number;
    };
    let step = (1..=(first as f64 * GOLDEN) as u64).rev();
    let step = step.into_iter().find(|&step| gcd(step, first) == 1).unwrap_or(1);
    let place = u128::from(behind % first) * u128::from(step) % u128::from(first);
    2 * (behind - behind % first + place as u64) + 1
}

/// The greatest common divisor.
fn gcd(one: u64, other: u64) -> u64 {
    match other {
        0 => one,
        other => gcd(other, one % other),
    }
}

/// What a compute node may remember of an index in the order of keys: so many bytes, or as many as a client of a store.
#[must_use]
pub fn budget_of(cache_bytes: Option<u64>) -> Budget {
    let usual = Budget::default();
    Budget {
        cache_bytes: cache_bytes.map_or(usual.cache_bytes, |bytes| bytes as usize),
        ..usual
    }
}

/// Those names.
pub fn index_names() -> impl Iterator<Item = &'static str> {
    [
        "race",
        "pointer-array",
        "smart",
        "marlin",
        "chime-indirect",
        "sherman-indirect",
        "rolex-indirect",
        "chime-learned-indirect",
    ]
    .into_iter()
}

/// What clients do with keys.
#[derive(Clone, Debug)]
pub struct StoreProgram {
    /// Which index.
    pub index: IndexKind,
    /// How pointers are replaced.
    pub scheme: Scheme,
    /// Whether the clients of a compute node share their operations on a key.
    pub local_wc: bool,
    /// Whether clients write values where they are (SMART's leaves), rather than replace items.
    pub in_place: bool,
    /// What makes a key hot, for schemes that tell hot keys from others.
    pub credits: CreditOptions,
    /// The keys, and what is done with them.
    pub population: Population,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// What a compute node may remember of an index in the order of keys.
    pub budget: Budget,
    /// How many compute nodes there will be.
    pub compute_nodes: u64,
    /// How often each renews its lease and publishes its epoch, in nanoseconds.
    pub tick_ns: u64,
    /// What the compute nodes have seen when a run has ended.
    pub seen: Arc<Seen>,
}

/// What a compute node remembers of an index.
#[derive(Debug)]
pub enum Known {
    /// Of a tree of pointers.
    Tree(Box<farside_index::tree::Known>),
    /// Of a radix tree.
    Radix(farside_index::smart::Known),
    /// Of another one, which each compute node reads as it opens it.
    Nothing,
}

/// How often a compute node does housekeeping unless something else is said.
pub const TICK_NS: u64 = 1_000_000;

impl StoreProgram {
    /// Refuses settings that make no sense.
    ///
    /// # Errors
    /// [`BenchError::Argument`].
    pub fn check(&self) -> Result<(), BenchError> {
        if self.population.items == 0 {
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
        if self.in_place && (self.index != IndexKind::Smart || self.value_bytes != 8 || self.key_bytes != KEY_BYTES_MIN)
        {
            return Err(BenchError::argument(
                "--in-place is for smart, with keys and values of 8 bytes",
            ));
        }
        if self.in_place && self.scheme != Scheme::Optimistic {
            return Err(BenchError::argument(
                "--in-place: values are written under locks of their own, whatever the scheme; leave out --sync",
            ));
        }
        if self.in_place && self.population.workload.read_modify_writes() {
            return Err(BenchError::argument(
                "--in-place: values are written whatever was there; choose a workload without read-modify-writes",
            ));
        }
        check_theta(self.population.theta)
    }

    /// Whether operations can go together, or wait for each other.
    #[must_use]
    pub fn combines(&self) -> bool {
        self.local_wc || self.scheme.needs_locks()
    }

    /// Bytes of far memory for each data pointer.
    #[must_use]
    pub fn pointer_bytes(&self) -> u64 {
        8 + if self.scheme.needs_locks() { LOCK_BYTES } else { 0 }
    }

    fn sync(&self) -> SyncOptions {
        SyncOptions {
            local_wc: self.local_wc,
            credits: self.credits,
            ..self.scheme.into()
        }
    }

    fn slots(&self) -> u64 {
        let more = if self.population.workload.inserts() && !self.population.is_finite() {
            self.population.items + SPARE_ITEMS
        } else {
            0
        };
        self.population.items + more
    }

    /// What they are stored with.
    fn first_value(&self) -> Vec<u8> {
        vec![0x5a; self.value_bytes]
    }

    fn item_bytes(&self) -> u64 {
        self.item(&vec![0; self.key_bytes], &vec![0; self.value_bytes]).bytes()
    }

    fn item<'a>(&self, key: &'a [u8], value: &'a [u8]) -> Item<'a> {
        Item::of(key, value, 0)
    }

    fn pool_options(&self) -> PoolOptions {
        PoolOptions {
            tick_ns: self.tick_ns,
            lease_ns: LEASE_NS,
        }
    }
}

impl StoreProgram {
    /// The tree of a pool; makes it if there is none.
    async fn open_tree(&self, cx: &mut OpContext, pool: Pool) -> Result<Index, BenchError> {
        let options = IndexOptions {
            slots: 1,
            race: RaceOptions::default(),
            leaf: LeafOptions::default(),
            budget: self.budget,
        };
        let wanted = Some(self.index);
        Ok(Index::open_or_create(cx, pool, wanted, self.sync(), options).await?)
    }
}

impl Program for StoreProgram {
    type Node = Index;
    type Client = StoreClient;
    type Known = Known;

    fn memory_bytes(&self) -> u64 {
        // The largest chunk, so that the class is the one of any pool.
        let block_bytes = SizeClass::for_bytes(self.item_bytes(), 1 << 20).bytes();
        let slot_bytes = match self.index {
            IndexKind::PointerArray => 8,
            IndexKind::Race => TABLE_BYTES_PER_ITEM,
            IndexKind::Smart => RADIX_BYTES_PER_ITEM,
            _ => TREE_BYTES_PER_ITEM,
        };
        let lock_bytes = match self.index {
            _ if !self.scheme.needs_locks() => 0,
            // Leaves may be half full.
            index if index.tree().is_some() => 3 * LOCK_BYTES,
            // Beside each word a lock entry of twice its size.
            _ => slot_bytes * LOCK_BYTES / 8,
        };
        let slot_bytes = slot_bytes + lock_bytes;
        let used = self.slots() * (slot_bytes + block_bytes);
        // Tables, the reserve for overwrites, and what a chunk has left over.
        let whole = used + used / 16 + SPARE_BYTES + self.compute_nodes * SPARE_BYTES_PER_NODE;
        whole.next_multiple_of(2 << 20)
    }

    fn layout(&self) -> String {
        let sizes = (
            self.population.items_at_start(),
            self.slots(),
            self.key_bytes,
            self.value_bytes,
        );
        let workload = self.population.workload;
        let (locks, inserts, is_load) = (self.scheme.needs_locks(), workload.inserts(), workload.is_load());
        format!(
            "{:?} with locks {locks} of {sizes:?} for INSERTs {inserts} and LOAD {is_load} every {} ns",
            self.index, self.tick_ns
        )
    }

    async fn prepare(&self, endpoint: Endpoint, region: &Region) -> Result<Laid, BenchError> {
        let mut cx = OpContext::new(endpoint);
        let format = FormatOptions {
            clients_max: self.compute_nodes as u16 + 8,
            ..FormatOptions::default()
        };
        let geometry = open_or_format(&mut cx, format).await?;
        let pool = Pool::join(&mut cx, geometry, self.pool_options()).await?;
        match self.index {
            IndexKind::PointerArray => {
                let slots = self.slots();
                let array = PointerArray::create(&mut cx, pool, self.sync(), Addressing::Direct, slots).await?;
                fill::lay_out(self, &array, region)?;
                self.leave(Index::PointerArray(array)).await?;
                Ok(Laid::default())
            }
            IndexKind::Race => {
                let race = Race::create(&mut cx, pool, self.sync(), RaceOptions::default()).await?;
                fill::lay_out_table(self, &race, region)?;
                let (splits, first_split) = race.splits();
                self.leave(Index::Race(race)).await?;
                Ok(Laid { splits, first_split })
            }
            _ => {
                let index = self.open_tree(&mut cx, pool).await?;
                match &index {
                    Index::Ordered(ordered) if self.key_bytes == KEY_BYTES_MIN => {
                        fill::lay_out_ordered(self, ordered, region)?;
                    }
                    Index::Smart(smart) if self.key_bytes == KEY_BYTES_MIN => {
                        fill::lay_out_radix(self, smart, region)?;
                    }
                    _ => fill::insert(self, &index, &mut cx).await?,
                }
                self.leave(index).await?;
                Ok(Laid::default())
            }
        }
    }

    fn lesson(&self) -> Option<String> {
        let learns = !matches!(self.index, IndexKind::PointerArray | IndexKind::Race);
        learns.then(|| format!("{:?}", self.budget))
    }

    fn known(&self, index: &Index) -> Known {
        match index {
            Index::Ordered(ordered) => Known::Tree(Box::new(ordered.known())),
            Index::Smart(smart) => Known::Radix(smart.known()),
            _ => Known::Nothing,
        }
    }

    async fn join(&self, endpoint: Endpoint, known: Option<&Known>) -> Result<Index, BenchError> {
        let mut cx = OpContext::new(endpoint);
        let geometry = open(&mut cx).await?;
        let pool = Pool::join(&mut cx, geometry, self.pool_options()).await?;
        pool.restock(self.item_bytes(), 1, Purpose::Overwrite).await?;
        Ok(match self.index {
            IndexKind::PointerArray => {
                Index::PointerArray(PointerArray::open(&mut cx, pool, self.sync(), Addressing::Direct).await?)
            }
            IndexKind::Race => Index::Race(Race::open(&mut cx, pool, self.sync()).await?),
            _ => {
                let index = self.open_tree(&mut cx, pool).await?;
                match (&index, known) {
                    (Index::Ordered(ordered), Some(Known::Tree(known))) => ordered.remember_known(known),
                    (Index::Ordered(ordered), _) => ordered.remember_all(&mut cx).await?,
                    (Index::Smart(smart), Some(Known::Radix(known))) => smart.remember_known(known),
                    (Index::Smart(smart), _) => smart.remember_all(&mut cx).await?,
                    _ => {}
                }
                if let Index::Smart(smart) = &index
                    && self.in_place
                {
                    smart.update_in_place();
                }
                index
            }
        })
    }

    fn client(&self, node: &Index, _: &Endpoint, number: u64) -> StoreClient {
        StoreClient::new(self, node.clone(), number)
    }

    fn begin(&self, node: &Index) {
        self.seen.begin(node);
    }

    fn note(&self, node: &Index) {
        self.seen.note(node);
    }

    async fn leave(&self, node: Index) -> Result<(), BenchError> {
        // Ends: such a task goes on until it is done, or this client is cut off.
        while node.is_restructuring() {
            node.pool().endpoint().sleep(RESTRUCTURING_POLL_NS).await;
        }
        Ok(node.pool().clone().leave().await?)
    }

    fn move_hot_set(&self) {
        self.population.moves.fetch_add(1, Ordering::Relaxed);
    }

    fn is_finite(&self) -> bool {
        self.population.is_finite()
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_load_that_goes_on_stores_every_odd_key_once() {
        for first in [1, 2, 100, 128] {
            let keys: BTreeSet<u64> = (0..4 * first).map(|number| between(first, number)).collect();
            assert_eq!(keys.len() as u64, 4 * first, "{first}");
            assert!((0..first).all(|number| keys.contains(&(2 * number))));
        }
        // The first few are everywhere.
        let mut parts = [0; 10];
        (0..1000).for_each(|behind| parts[(between(60_000_000, 60_000_000 + behind) / 12_000_000) as usize] += 1);
        assert!(parts.iter().all(|&count| (90..110).contains(&count)), "{parts:?}");
    }
}
