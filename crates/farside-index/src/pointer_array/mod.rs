//! The pointer array: slot i holds the data pointer of the key that belongs to slot i.
//!
//! On the path: the smallest index, and the field's micro-benchmark (CIDER, section 2.2 and 5.2),
//! where the key *is* the number of its slot. For arbitrary keys the slot is chosen by a hash; keys
//! that share a slot are listed in a *bucket*, a small block that is replaced like an item.
//!
//! SEARCH: 1. READ the slot. 2. READ the block that it points to. (3. If that is a bucket, READ the
//! item; if the item is longer than its hint, READ the rest.)
//!
//! A change: 1., 2. as above. 3. WRITE the new item to a block of its own; if keys share the slot,
//! WRITE the new bucket too. 4. Publish the new pointer. If another client was quicker, start again.
//!
//! Invariants: a block is changed by nobody once it is linked; an item stays in the slot of its key
//! until it is unlinked; two items of one slot have different keys.

mod sample;
mod scan;
pub(crate) mod search_many;
pub(crate) mod walk;

use farside_fabric::mutant::is_planted;
use farside_fabric::{NodeId, OpContext, RemoteAddr, Slice, at_once};
use farside_pool::{Geometry, Pin, Pool, Purpose, Root, make_root, root};
use farside_sync::{Entered, Intent, LOCK_BYTES, Pointer, Publish, SizeHint, SyncOptions, Target};
use xxhash_rust::xxh3::xxh3_64_with_seed;

pub use self::walk::walk;
use self::walk::{SLOTS_AT_ONCE, let_others_run, open_roots, read_slots};
use crate::blocks::{Blocks, class_bytes};
use crate::descriptor::Marking;
use crate::error::IndexError;
use crate::item::{Entry, Header, Item, KEY_BYTES_MAX, VALUE_BYTES_MAX, bucket_bytes, decode_bucket, encode_bucket};
use crate::operation::{Change, Decide, Decision, Found};
use crate::transaction::{Located, Spot};

/// The root of the array on each node.
pub(crate) const ROOT: u8 = 0;
/// And of the lock entries of its slots, if there are any.
const LOCKS_ROOT: u8 = 3;

/// Which slot belongs to a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Addressing {
    /// The key is the slot's number: 8 bytes, little-endian. No two keys share a slot, so an update
    /// needs not look at the item that it replaces.
    Direct,
    /// The hash of the key chooses the slot.
    Hashed,
}

/// The array, as one client sees it.
#[derive(Debug)]
pub struct PointerArray {
    blocks: Blocks,
    addressing: Addressing,
    roots: Vec<Root>,
    /// The lock entries on each node; none if the scheme needs none.
    locks: Vec<Root>,
    /// Slots in all, spread over the nodes one by one.
    slots: u64,
    seed: u64,
}

impl Clone for PointerArray {
    fn clone(&self) -> Self {
        Self {
            blocks: self.blocks.clone(),
            roots: self.roots.clone(),
            locks: self.locks.clone(),
            ..*self
        }
    }
}

/// How far an attempt to change a slot has come.
enum Step {
    /// The slot is as it should be.
    Done(Change),
    /// Another client changed it first.
    Lost,
    /// This client has no block of this size left.
    Short(Shortage),
    /// The fabric failed before anything was published.
    Failed(IndexError),
}

/// What an attempt needs and this client has not.
struct Shortage {
    bytes: u64,
    /// With the blocks that the attempt had already and gave back: they may be of the same class.
    count: usize,
    purpose: Purpose,
}

/// What a slot holds: nothing, one item, or a bucket of several.
struct Slot {
    addr: RemoteAddr,
    pointer: Pointer,
    /// The items of the slot. Hashes are known only if the slot holds a bucket.
    entries: Vec<Entry>,
    /// Bytes of the bucket, if there is one.
    bucket_bytes: Option<u64>,
    /// Which entry has the key that is looked for.
    index: Option<usize>,
    /// The header of that item, which starts at byte 0 of the buffer; or of the only item.
    header: Option<Header>,
}

impl PointerArray {
    /// Makes the array, or opens the one that is there. Each node gets an equal share of the slots.
    ///
    /// # Errors
    /// If a node has not enough contiguous memory, or the fabric fails.
    pub async fn create(
        cx: &mut OpContext,
        pool: Pool,
        sync: SyncOptions,
        addressing: Addressing,
        slots: u64,
    ) -> Result<Self, IndexError> {
        let rows = slots.div_ceil(Geometry::founders(pool.geometry()).len() as u64).max(1);
        // First the locks, while the memory is new: an array that is there has them, or was made without.
        let is_new = root(cx, NodeId::new(0), ROOT).await?.is_none();
        if is_new && sync.scheme.needs_locks() {
            for geometry in Geometry::founders(pool.geometry()).to_vec() {
                make_root(cx, &geometry, LOCKS_ROOT, rows * LOCK_BYTES).await?;
            }
        }
        for geometry in Geometry::founders(pool.geometry()).to_vec() {
            make_root(cx, &geometry, ROOT, rows * 8).await?;
        }
        let mut array = Self::open(cx, pool, sync, addressing).await?;
        if addressing == Addressing::Direct {
            array.slots = array.slots.min(slots);
        }
        Ok(array)
    }

    /// Opens the array of a pool.
    ///
    /// # Errors
    /// [`IndexError::Missing`] if the pool has none; what the fabric reports.
    pub async fn open(
        cx: &mut OpContext,
        pool: Pool,
        sync: SyncOptions,
        addressing: Addressing,
    ) -> Result<Self, IndexError> {
        let roots = open_roots(cx, pool.geometry(), ROOT)
            .await?
            .ok_or(IndexError::Missing { index: "pointer array" })?;
        let locks = if sync.scheme.needs_locks() {
            let locks = open_roots(cx, pool.geometry(), LOCKS_ROOT).await?;
            let scheme = sync.scheme.name();
            locks.ok_or(IndexError::NoLocks { scheme })?
        } else {
            Vec::new()
        };
        let per_node = roots.iter().map(|root| root.bytes / 8).min().unwrap_or(0);
        let seed = pool.geometry()[0].pool_id;
        let slots = per_node * roots.len() as u64;
        Ok(Self {
            blocks: Blocks::new(pool, sync, Marking::Version)?,
            addressing,
            roots,
            locks,
            slots,
            seed,
        })
    }

    #[inline]
    pub(crate) fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// Which slot belongs to a key.
    #[must_use]
    pub fn addressing(&self) -> Addressing {
        self.addressing
    }

    /// How many slots there are.
    #[must_use]
    pub fn slots(&self) -> u64 {
        self.slots
    }

    /// The pool from which the array allocates.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.blocks.pool
    }

    /// On which node a slot is, and which one it is there.
    #[inline]
    fn row_of(&self, index: u64) -> (usize, u64) {
        let nodes = self.roots.len() as u64;
        if nodes == 1 {
            (0, index)
        } else {
            ((index % nodes) as usize, index / nodes)
        }
    }

    /// Where slot `index` is.
    #[inline]
    #[must_use]
    pub fn slot_addr(&self, index: u64) -> RemoteAddr {
        let (node, row) = self.row_of(index);
        self.roots[node].addr.plus(row * 8)
    }

    /// Where its lock entry is, if it has one.
    #[inline]
    #[must_use]
    pub fn lock_addr(&self, index: u64) -> Option<RemoteAddr> {
        let (node, row) = self.row_of(index);
        self.locks.get(node).map(|locks| locks.addr.plus(row * LOCK_BYTES))
    }

    /// Slot `index`, as the scheme sees it.
    #[inline]
    fn target(&self, index: u64) -> Target {
        Target {
            slot: self.slot_addr(index),
            lock: self.lock_addr(index).unwrap_or(RemoteAddr::NULL),
            name: index,
        }
    }

    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        xxh3_64_with_seed(key, self.seed)
    }

    #[inline]
    fn slot_of(&self, key: &[u8]) -> RemoteAddr {
        self.slot_addr(self.index_of(key))
    }

    #[inline]
    fn index_of(&self, key: &[u8]) -> u64 {
        match (self.addressing, key.first_chunk()) {
            (Addressing::Direct, Some(number)) => u64::from_le_bytes(*number) % self.slots,
            // The upper bits of the product: a hash below 2^64 scaled to the number of slots.
            _ => ((u128::from(self.hash(key)) * u128::from(self.slots)) >> 64) as u64,
        }
    }

    /// SEARCH. The value is left in the context's buffer.
    ///
    /// # Errors
    /// See [`IndexError`].
    #[inline]
    pub async fn search(&self, cx: &mut OpContext, key: &[u8]) -> Result<Option<Found>, IndexError> {
        let addr = self.slot_of(key);
        let _pin = (!is_planted("index: a search without a pin")).then(|| self.blocks.pool.pin());
        let pointer = Pointer::from_word(cx.read_word(addr).await?);
        if pointer.is_null() {
            return Ok(None);
        }
        let header = self.blocks.read(cx, addr, pointer, 0).await?;
        if let Header::Item { .. } = header {
            return Ok(Found::in_item(header, cx.buffer(), 0, key));
        }
        // Or of what a descriptor leads to: `read` goes on from there.
        self.search_bucket(cx, addr, key, header).await
    }

    /// The rest of a SEARCH whose slot several keys share.
    async fn search_bucket(
        &self,
        cx: &mut OpContext,
        addr: RemoteAddr,
        key: &[u8],
        bucket: Header,
    ) -> Result<Option<Found>, IndexError> {
        let hash = self.hash(key);
        let entries = decode_bucket(&cx.buffer()[..bucket.block_bytes() as usize]);
        // Different keys of one hash are rarer than failing memory, but nothing forbids them.
        let mut candidates = entries.filter(|entry| entry.hash == hash);
        let Some(first) = candidates.next() else {
            return Ok(None);
        };
        let others: Vec<Entry> = candidates.collect();
        for entry in core::iter::once(first).chain(others) {
            let header = self.blocks.read_item(cx, addr, entry.pointer, 0).await?;
            let found = Found::in_item(header, cx.buffer(), 0, key);
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Reads the slot of a key, and the item under the key if there is one.
    async fn read_slot(&self, cx: &mut OpContext, addr: RemoteAddr, key: &[u8]) -> Result<Slot, IndexError> {
        let pointer = Pointer::from_word(cx.read_word(addr).await?);
        let mut slot = Slot {
            addr,
            pointer,
            entries: Vec::new(),
            bucket_bytes: None,
            index: None,
            header: None,
        };
        if pointer.is_null() {
            return Ok(slot);
        }
        let header = self.blocks.read(cx, addr, pointer, 0).await?;
        match header {
            Header::Item { .. } => {
                let found = header.item(cx.buffer()).key;
                slot.entries.push(Entry {
                    hash: self.hash(found),
                    pointer,
                });
                slot.index = (found == key).then_some(0);
                slot.header = Some(header);
            }
            Header::Bucket { .. } => {
                let bytes = header.block_bytes();
                slot.bucket_bytes = Some(bytes);
                slot.entries = decode_bucket(&cx.buffer()[..bytes as usize]).collect();
                let hash = self.hash(key);
                for index in 0..slot.entries.len() {
                    if slot.entries[index].hash == hash {
                        let header = self.blocks.read_item(cx, addr, slot.entries[index].pointer, 0).await?;
                        if header.item(cx.buffer()).key == key {
                            (slot.index, slot.header) = (Some(index), Some(header));
                            break;
                        }
                    }
                }
            }
            Header::Descriptor => unreachable!("what is in force was read"),
        }
        Ok(slot)
    }

    /// Reads what is stored under a key and changes it as `decide` says, atomically: if another
    /// client changes the slot meanwhile, `decide` is asked again with the new state. It must not
    /// depend on how often it is asked.
    ///
    /// # Errors
    /// See [`IndexError`]; nothing was changed unless the fabric failed while publishing.
    pub async fn change<'v>(
        &self,
        cx: &mut OpContext,
        key: &[u8],
        decide: Decide<'_, 'v>,
    ) -> Result<Change, IndexError> {
        if key.len() > KEY_BYTES_MAX {
            return Err(IndexError::KeyTooLong { bytes: key.len() });
        }
        // Ends when no other client changes the slot between our READ and our compare-and-swap;
        // each failure means that one of them has made progress.
        loop {
            let pin = self.blocks.pool.pin_to_change(1).await?;
            let step = self.attempt(cx, key, decide, &pin).await?;
            drop(pin);
            match step {
                Step::Done(change) => return Ok(change),
                Step::Lost if is_planted("index: a lost update acknowledged") => return Ok(Change::Updated),
                Step::Lost => {}
                Step::Failed(error) => return Err(error),
                Step::Short(short) => {
                    self.blocks
                        .pool
                        .restock(short.bytes, short.count, short.purpose)
                        .await?;
                }
            }
        }
    }

    /// One attempt over mapped memory, in a plain call; `None` if something is in the way, and nothing was changed.
    pub(crate) fn change_now<'v>(
        &self,
        cx: &mut OpContext,
        key: &[u8],
        decide: Decide<'_, 'v>,
    ) -> Option<Result<Change, IndexError>> {
        if key.len() > KEY_BYTES_MAX {
            return None;
        }
        let pin = self.blocks.pool.pin();
        let attempt = self.attempt(cx, key, decide, &pin);
        // Nothing in an attempt waits where memory is mapped but for a transaction to be decided, before anything is taken.
        match at_once(attempt)? {
            Ok(Step::Done(change)) => Some(Ok(change)),
            Ok(Step::Failed(error)) | Err(error) => Some(Err(error)),
            Ok(Step::Lost | Step::Short(_)) => None,
        }
    }

    async fn attempt<'v>(
        &self,
        cx: &mut OpContext,
        key: &[u8],
        decide: Decide<'_, 'v>,
        pin: &Pin,
    ) -> Result<Step, IndexError> {
        let target = self.target(self.index_of(key));
        let slot = self.read_slot(cx, target.slot, key).await?;
        if self.blocks.is_marked(slot.pointer) {
            self.blocks.settle(cx, target.slot, slot.pointer).await?;
            return Ok(Step::Lost);
        }
        let stored = match (slot.index, &slot.header) {
            (Some(_), Some(header)) => Some(header.item(cx.buffer())),
            _ => None,
        };
        let old_bytes = stored.map(|item| item.bytes());
        Ok(match decide(stored) {
            Decision::Keep => Step::Done(Change::Kept),
            Decision::Put {
                value,
                expiry_ms,
                tag,
                regardless,
            } => {
                let item = Item {
                    key,
                    value: &value,
                    expiry_ms,
                    tag,
                };
                // Where keys share slots, another one could get the version of before by the time.
                let is_its_own = self.addressing == Addressing::Direct && slot.bucket_bytes.is_none();
                match old_bytes.filter(|_| regardless && is_its_own) {
                    Some(old_bytes) => self.overwrite(cx, target, &slot, item, old_bytes, pin).await?,
                    None => self.put(cx, &slot, item, old_bytes).await?,
                }
            }
            Decision::Delete { regardless } => match (slot.index, old_bytes) {
                (Some(_), Some(_)) if is_planted("index: a delete that leaves the key") => Step::Done(Change::Deleted),
                (Some(_), Some(bytes))
                    if regardless && self.addressing == Addressing::Direct && slot.bucket_bytes.is_none() =>
                {
                    self.remove(cx, target, &slot, bytes, pin).await?
                }
                (Some(index), Some(bytes)) => self.unlink(cx, &slot, index, bytes).await?,
                _ => Step::Done(Change::Kept),
            },
        })
    }

    /// See [`crate::Index::locate`].
    pub(crate) async fn locate(&self, cx: &mut OpContext, key: &[u8]) -> Result<Located, IndexError> {
        let slot = self.read_slot(cx, self.slot_of(key), key).await?;
        if self.blocks.is_marked(slot.pointer) {
            return Ok(Located::Busy);
        }
        let (Some(index), Some(header)) = (slot.index, slot.header) else {
            return Ok(Located::Absent);
        };
        let bytes = header.block_bytes();
        let spot = match slot.bucket_bytes {
            None => Spot::of_slot(slot.addr, slot.pointer, bytes),
            Some(_) => Spot::in_bucket(slot.addr, slot.pointer, bytes, (slot.entries, index)),
        };
        Ok(Located::Here(spot, Found::in_block(header, 0)))
    }

    /// UPDATE of an existing key without looking at its old item, as the field's micro-benchmark
    /// does it: READ the slot, WRITE the item, compare-and-swap until it succeeds. Returns whether
    /// the key was there. Only with [`Addressing::Direct`], where no other key can be in the slot.
    ///
    /// # Errors
    /// See [`IndexError`].
    ///
    /// # Panics
    /// With [`Addressing::Hashed`].
    pub async fn update(&self, cx: &mut OpContext, key: &[u8], value: &[u8]) -> Result<bool, IndexError> {
        assert!(
            self.addressing == Addressing::Direct,
            "an update without a look needs a slot per key"
        );
        let target = self.target(self.index_of(key));
        let item = Item::of(key, value, 0);
        let bytes = item.bytes();
        let (pin, mut old, block) = loop {
            let pin = self.blocks.pool.pin_to_change(1).await?;
            let old = Pointer::from_word(cx.read_word(target.slot).await?);
            if old.is_null() {
                return Ok(false);
            }
            if let Some(block) = self.blocks.pool.allocate(bytes) {
                break (pin, old, block);
            }
            drop(pin);
            self.blocks.pool.restock(bytes, 1, Purpose::Overwrite).await?;
        };
        let mut written = None;
        // Ends like `change`: whoever is in our way has made progress.
        let replaced = loop {
            let entered = self.blocks.enter(cx, target, old, Intent::Update, &pin).await;
            let lost = match entered.inspect_err(|_| self.blocks.pool.give_back(block, bytes))? {
                Entered::Turn(mut turn) => {
                    let new = match written {
                        Some(new) => new,
                        None => {
                            let turn = (target.slot, &mut turn);
                            let new = self.blocks.write_in_turn(cx, item, block, old.version(), turn);
                            *written.insert(new.await?)
                        }
                    };
                    let new = new.with_version(old.version());
                    match self.blocks.overwrite(cx, turn, target, old, new).await? {
                        Publish::Replaced { old } => break old,
                        Publish::Lost { current } => current,
                    }
                }
                Entered::Combined => {
                    self.blocks.pool.give_back(block, bytes);
                    return Ok(true);
                }
                Entered::Lost { current } => current,
            };
            if lost.is_null() {
                self.blocks.pool.give_back(block, bytes);
                return Ok(false);
            }
            old = lost;
        };
        // The replaced item has the size that its hint bounds; only for the smallest is that a class.
        self.blocks.pool.retire(replaced.block(), class_bytes(replaced));
        Ok(true)
    }

    /// Publishes an item in a slot that is its key's alone, whatever item of the key is there by then: with a second
    /// key the slot would get another version.
    async fn overwrite(
        &self,
        cx: &mut OpContext,
        target: Target,
        slot: &Slot,
        item: Item<'_>,
        old_bytes: u64,
        pin: &Pin,
    ) -> Result<Step, IndexError> {
        check_value(item)?;
        let bytes = item.bytes();
        let Some(block) = self.blocks.pool.allocate(bytes) else {
            return Ok(Step::Short(Shortage {
                bytes,
                count: 1,
                purpose: Purpose::Overwrite,
            }));
        };
        let entered = self.blocks.enter(cx, target, slot.pointer, Intent::Update, pin).await;
        let step = match entered.inspect_err(|_| self.blocks.pool.give_back(block, bytes))? {
            Entered::Turn(mut turn) => {
                let version = slot.pointer.version();
                let in_turn = (target.slot, &mut turn);
                let new = self.blocks.write_in_turn(cx, item, block, version, in_turn).await?;
                let replaces = (old_bytes, Some(turn));
                if self.blocks.replace(cx, target, slot.pointer, new, replaces).await? {
                    return Ok(Step::Done(Change::Updated));
                }
                Step::Lost
            }
            Entered::Combined => Step::Done(Change::Updated),
            Entered::Lost { .. } => Step::Lost,
        };
        self.blocks.pool.give_back(block, bytes);
        Ok(step)
    }

    /// Empties a slot that is its key's alone, whatever item of the key is there by then.
    async fn remove(
        &self,
        cx: &mut OpContext,
        target: Target,
        slot: &Slot,
        bytes: u64,
        pin: &Pin,
    ) -> Result<Step, IndexError> {
        let empty = Pointer::NULL.with_version(next_version(slot.pointer));
        let old = (slot.pointer, bytes);
        match self.blocks.remove(cx, target, old, (empty, true), pin).await? {
            Some(change) => Ok(Step::Done(change)),
            None => Ok(Step::Lost),
        }
    }

    /// Publishes an item in a slot.
    async fn put(
        &self,
        cx: &mut OpContext,
        slot: &Slot,
        item: Item<'_>,
        old_bytes: Option<u64>,
    ) -> Result<Step, IndexError> {
        check_value(item)?;
        let purpose = if slot.index.is_some() {
            Purpose::Overwrite
        } else {
            Purpose::Insert
        };
        // A new key in the slot is a new identity; an update keeps it.
        let version = match slot.index {
            Some(_) => slot.pointer.version(),
            None => next_version(slot.pointer),
        };
        let Some(new) = self.blocks.write_item(cx, item, version).await? else {
            let bytes = item.bytes();
            return Ok(Step::Short(Shortage {
                bytes,
                count: 1,
                purpose,
            }));
        };
        let mut entries = slot.entries.clone();
        match slot.index {
            Some(index) => entries[index].pointer = new,
            None => entries.push(Entry {
                hash: self.hash(item.key),
                pointer: new,
            }),
        }
        if slot.index.is_none() && entries.len() > 2 && is_planted("index: an insert that drops a neighbour") {
            entries.remove(0);
        }
        match self.replace(cx, slot, &entries, version, purpose).await {
            Ok(Step::Done(_)) => {}
            // The item is not linked, unless the fabric failed while publishing: then nobody knows,
            // and the block stays with whoever finds it.
            Ok(step) => {
                self.blocks.pool.give_back(new.block(), item.bytes());
                return Ok(step);
            }
            Err(error) => return Err(error),
        }
        match (slot.index, old_bytes) {
            (Some(index), Some(bytes)) => {
                if !is_planted("index: a replaced item not retired") {
                    self.blocks
                        .pool
                        .retire(slot.entries[index].pointer.block(), Some(bytes));
                }
                Ok(Step::Done(Change::Updated))
            }
            _ => Ok(Step::Done(Change::Inserted)),
        }
    }

    /// Removes an item from a slot.
    async fn unlink(&self, cx: &mut OpContext, slot: &Slot, index: usize, bytes: u64) -> Result<Step, IndexError> {
        let mut entries = slot.entries.clone();
        let removed = entries.remove(index);
        let version = next_version(slot.pointer);
        let step = self.replace(cx, slot, &entries, version, Purpose::Overwrite).await?;
        if let Step::Done(_) = step {
            self.blocks.pool.retire(removed.pointer.block(), Some(bytes));
        }
        Ok(step)
    }

    /// Publishes what a slot shall hold: nothing, the only item, or a bucket. Retires the bucket that
    /// was there.
    async fn replace(
        &self,
        cx: &mut OpContext,
        slot: &Slot,
        entries: &[Entry],
        version: u8,
        purpose: Purpose,
    ) -> Result<Step, IndexError> {
        let new = match entries {
            [] => Pointer::NULL.with_version(version),
            [only] => only.pointer.with_version(version),
            _ => {
                let bytes = bucket_bytes(entries.len());
                let Some(block) = self.blocks.pool.allocate(bytes) else {
                    return Ok(Step::Short(Shortage {
                        bytes,
                        count: 2,
                        purpose,
                    }));
                };
                cx.reserve(bytes as usize);
                encode_bucket(entries, cx.buffer_mut());
                if let Err(error) = cx.write(Slice::first(bytes as u32), block).await {
                    // As in `write_item`.
                    self.blocks.pool.retire(block, Some(bytes));
                    return Ok(Step::Failed(error.into()));
                }
                Pointer::new(block, SizeHint::Bucket, version)
            }
        };
        if let Publish::Lost { .. } = self.blocks.publish(cx, slot.addr, slot.pointer, new).await? {
            if entries.len() > 1 {
                self.blocks.pool.give_back(new.block(), bucket_bytes(entries.len()));
            }
            return Ok(Step::Lost);
        }
        if let Some(bytes) = slot.bucket_bytes
            && !is_planted("index: a replaced bucket not retired")
        {
            self.blocks.pool.retire(slot.pointer.block(), Some(bytes));
        }
        Ok(Step::Done(Change::Deleted))
    }

    /// Calls `visit` with every block that is linked. Pins for a few slots at a time, so that the
    /// epoch can move; items that are linked or unlinked meanwhile may be missed.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub async fn walk(&self, cx: &mut OpContext, visit: &mut dyn FnMut(RemoteAddr)) -> Result<(), IndexError> {
        walk(cx, self.blocks.pool.geometry(), Some(&self.blocks.pool), visit)
            .await
            .map(drop)
    }

    /// How many keys are stored, expired ones included. Keys that come or go meanwhile may be missed.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub async fn count(&self, cx: &mut OpContext) -> Result<u64, IndexError> {
        walk(cx, self.blocks.pool.geometry(), Some(&self.blocks.pool), &mut |_| {}).await
    }

    /// Removes every key that is there when its slot is visited; returns how many.
    ///
    /// # Errors
    /// See [`IndexError`]; some keys may be gone then.
    pub async fn clear(&self, cx: &mut OpContext) -> Result<u64, IndexError> {
        let mut count = 0;
        for (node, root) in self.roots.iter().enumerate() {
            for first in (0..root.bytes / 8).step_by(SLOTS_AT_ONCE as usize) {
                let_others_run(cx, first).await;
                let slots = read_slots(cx, node, root, first, SLOTS_AT_ONCE).await?;
                for (addr, _) in slots.into_iter().filter(|(_, pointer)| !pointer.is_null()) {
                    count += self.clear_slot(cx, addr).await?;
                }
            }
        }
        Ok(count)
    }

    async fn clear_slot(&self, cx: &mut OpContext, addr: RemoteAddr) -> Result<u64, IndexError> {
        loop {
            let _pin = self.blocks.pool.pin_to_change(1).await?;
            // No key is found, since none is looked for; the entries are what matters.
            let pointer = Pointer::from_word(cx.read_word(addr).await?);
            if pointer.is_null() {
                return Ok(0);
            }
            if self.blocks.is_marked(pointer) {
                self.blocks.settle(cx, addr, pointer).await?;
                continue;
            }
            let header = self.blocks.read(cx, addr, pointer, 0).await?;
            let mut blocks = vec![(pointer.block(), header.block_bytes())];
            if let Header::Bucket { .. } = header {
                let entries: Vec<Entry> = decode_bucket(&cx.buffer()[..header.block_bytes() as usize]).collect();
                for entry in entries {
                    let item = self.blocks.read_item(cx, addr, entry.pointer, 0).await?;
                    blocks.push((entry.pointer.block(), item.block_bytes()));
                }
            }
            let empty = Pointer::NULL.with_version(next_version(pointer));
            if self.blocks.publish(cx, addr, pointer, empty).await?.is_replaced() {
                let count = blocks.len() as u64 - u64::from(blocks.len() > 1);
                for (block, bytes) in blocks {
                    self.blocks.pool.retire(block, Some(bytes));
                }
                return Ok(count);
            }
        }
    }
}
/// The version of a slot with other keys: it has seven bits, as the eighth marks descriptors.
fn next_version(before: Pointer) -> u8 {
    before.version().wrapping_add(1) & 0x7f
}

fn check_value(item: Item<'_>) -> Result<(), IndexError> {
    let bytes = item.value.len();
    if bytes > VALUE_BYTES_MAX {
        return Err(IndexError::ValueTooLong { bytes });
    }
    Ok(())
}
