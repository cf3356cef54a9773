//! RACE: one-sided extendible hashing (Zuo et al., USENIX ATC 2021).
//!
//! On the path: the default index of the store. The last bits of a key's hash choose an entry of the
//! directory, which every client remembers; the entry leads to a subtable. Two more parts of the hash
//! choose two *combined buckets* there, each a main bucket and an overflow bucket that it shares with
//! its neighbour. A slot of one of them holds the data pointer, with eight bits of the hash that tell
//! most other keys apart.
//!
//! SEARCH: 1. READ both combined buckets, in one doorbell. 2. READ the items whose fingerprint fits. (Mapped
//! memory is looked at in place, line by line: `in_place`.)
//!
//! UPDATE: 1. as above, and WRITE the new item in the same doorbell, if its value is known by then.
//! 2. as above. 3. Publish the new pointer. DELETE: 1., 2., and publish an empty slot.
//!
//! INSERT: 1. as UPDATE; nothing fits. 2. Lock the key's first bucket and READ both buckets again, in one
//! doorbell. 3. Swap the pointer into a free slot and give the lock back, in one doorbell.
//!
//! # No key twice
//! The published INSERT takes no lock: it swaps first, reads again, and if the key is there twice by
//! then everybody keeps the lowest slot (section 3.3). That can lose an update that was acknowledged: A
//! inserts into slot 5 and is done; B, which had read before, inserts the same key into slot 2, sees
//! both, and keeps slot 2; C has updated slot 5 meanwhile. Here two clients that insert one key exclude
//! each other by the header of the key's first bucket, and the second one finds what the first one did.
//! That takes as many round trips: the second READ, which everybody needs, goes with the lock.
//!
//! # Growing
//! A key that finds no free slot has its subtable split in two (`split`). The old one is closed, every
//! entry is frozen and copied into the same place of one of the new ones; clients with an old address
//! find the header closed, and go on. The old one is retired like any block. One that has to leave its memory node moves in the
//! same way, to one other place (`relocate`).
//!
//! # Invariants
//! - A key is in at most one slot of the subtables that are open, and that is in one of its buckets.
//! - A slot is filled only under the lock of the key's first bucket; the entry of a key is replaced or
//!   removed by a compare-and-swap of the slot, which fails once it is frozen.
//! - Nothing in a closed subtable changes after the split was committed.

mod bulk;
mod change;
mod directory;
mod in_place;
mod layout;
mod lock;
pub(crate) mod relocate;
mod sample;
mod scan;
pub(crate) mod search_many;
mod split;
mod subtable;
pub(crate) mod walk;

use core::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use arrayvec::ArrayVec;
use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, NodeId, OpContext, RemoteAddr, Slice};
use farside_pool::{Pool, Root, make_root, root};
use farside_sync::{Pointer, SyncOptions, Target};

use self::directory::Directory;
use self::in_place::InPlace;
pub use self::in_place::{Approach, Approaches};
pub use self::layout::RaceOptions;
use self::layout::{
    CHILDREN_AT, COMBINED_BYTES, COMBINED_SLOTS, Combined, FORMAT_AT, Format, IDENTITY_AT, Identity, LockWord,
};
pub(crate) use self::layout::{GROUP_SLOTS, KeyHash, ROOT};
use crate::blocks::Blocks;
use crate::descriptor::Marking;
use crate::error::IndexError;
use crate::item::{HEADER_BYTES, Header, is_same_key};
use crate::operation::{Found, Wanted};

/// Where the items start in the buffer; the two buckets are before them.
const ITEMS_AT: u32 = 2 * COMBINED_BYTES;

/// The table, as one client sees it. Clones share what the client remembers.
#[derive(Debug)]
pub struct Race {
    blocks: Blocks,
    directory: Rc<Directory>,
    seed: u64,
    /// Subtables that tasks of this client are splitting.
    splits: Rc<RefCell<BTreeMap<RemoteAddr, Rc<split::Task>>>>,
    tickets: Rc<Cell<u64>>,
    statistics: Rc<Statistics>,
}

impl Clone for Race {
    fn clone(&self) -> Self {
        Self {
            blocks: self.blocks.clone(),
            directory: Rc::clone(&self.directory),
            seed: self.seed,
            splits: Rc::clone(&self.splits),
            tickets: Rc::clone(&self.tickets),
            statistics: Rc::clone(&self.statistics),
        }
    }
}

/// What this client has seen of the table growing.
#[derive(Default, Debug)]
pub(crate) struct Statistics {
    pub(crate) splits: Cell<u64>,
    /// Items and slots of the first subtable that this client split.
    pub(crate) first_split: Cell<Option<(u64, u64)>>,
}

/// Where a key is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    subtable: RemoteAddr,
    hash: KeyHash,
    buckets: [Combined; 2],
}

/// A key that was found: its slot, and its item in the buffer.
struct Match {
    slot: RemoteAddr,
    pointer: Pointer,
    header: Header,
    at: u32,
}

impl Match {
    /// Where its value is in the buffer.
    #[inline]
    fn value(&self) -> Found {
        Found::in_block(self.header, self.at)
    }
}

type Candidates = ArrayVec<(RemoteAddr, Pointer), { 2 * COMBINED_SLOTS }>;

impl Race {
    /// Makes the table, or opens the one that is there.
    ///
    /// # Errors
    /// If node 0 has not enough memory, or the fabric fails.
    pub async fn create(
        cx: &mut OpContext,
        pool: Pool,
        sync: SyncOptions,
        options: RaceOptions,
    ) -> Result<Self, IndexError> {
        let geometry = pool.geometry()[0];
        let bytes = pool.geometry().iter().map(|geometry| geometry.node_bytes).sum();
        let format = Format::new(bytes, geometry.chunk_bytes, options, sync.scheme.needs_locks());
        let root = make_root(cx, &geometry, ROOT, format.directory_bytes()).await?;
        subtable::make_first(cx, &pool, &root, format, options.items).await?;
        Self::open(cx, pool, sync).await
    }

    /// Opens the table of a pool.
    ///
    /// # Errors
    /// [`IndexError::Missing`] if the pool has none; what the fabric reports.
    pub async fn open(cx: &mut OpContext, pool: Pool, sync: SyncOptions) -> Result<Self, IndexError> {
        let (root, format) = open_root(cx)
            .await?
            .ok_or(IndexError::Missing { index: "RACE table" })?;
        if sync.scheme.needs_locks() && !format.has_locks {
            let scheme = sync.scheme.name();
            return Err(IndexError::NoLocks { scheme });
        }
        let seed = pool.geometry()[0].pool_id;
        Ok(Self {
            blocks: Blocks::new(pool.clone(), sync, Marking::Version)?,
            directory: Rc::new(Directory::open(cx, pool, root, format).await?),
            seed,
            splits: Rc::default(),
            tickets: Rc::default(),
            statistics: Rc::default(),
        })
    }

    /// The pool from which the table allocates.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.blocks.pool
    }

    #[inline]
    pub(crate) fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// Bytes of the directory as this client remembers it.
    #[must_use]
    pub fn cache_bytes(&self) -> usize {
        self.directory.cache_bytes()
    }

    /// How many entries the directory has, as far as this client knows.
    #[must_use]
    pub fn directory_entries(&self) -> u64 {
        self.directory.cache_bytes() as u64 / 8
    }

    /// How many subtables this client has split, and items and slots of the first of them.
    #[must_use]
    pub fn splits(&self) -> (u64, Option<(u64, u64)>) {
        (self.statistics.splits.get(), self.statistics.first_split.get())
    }

    #[inline]
    fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash::new(key, self.seed)
    }

    /// A word for a lock that nobody else uses.
    fn ticket(&self) -> LockWord {
        let ticket = self.tickets.get() + 1;
        self.tickets.set(ticket);
        LockWord::held_by(self.blocks.pool.owner(), ticket)
    }

    /// A slot of a place, as the scheme sees it. Contention is remembered by the hash of the key, which stays when the key
    /// moves.
    #[inline]
    fn target(&self, place: &Place, slot: RemoteAddr) -> Target {
        let hash = place.hash.hash;
        let lock = self.directory.format.lock_addr(place.subtable, hash, slot);
        Target {
            slot,
            lock: lock.unwrap_or(RemoteAddr::NULL),
            name: hash,
        }
    }

    #[inline]
    fn place_in(&self, subtable: RemoteAddr, hash: KeyHash) -> Place {
        Place {
            subtable,
            hash,
            buckets: hash.buckets(subtable, self.directory.format.groups(hash.hash)),
        }
    }

    /// Where a key is looked for, if this client knows. The caller has pinned.
    #[inline(always)]
    fn known_place(&self, hash: KeyHash) -> Option<Place> {
        let subtable = self.directory.known(hash.hash)?;
        Some(self.place_in(subtable, hash))
    }

    /// Where a key is looked for. The caller has pinned.
    #[inline]
    async fn place(&self, cx: &mut OpContext, hash: KeyHash) -> Result<Place, IndexError> {
        if let Some(place) = self.known_place(hash) {
            return Ok(place);
        }
        // Rare: a future of its own keeps that of every operation small.
        let subtable = Box::pin(self.directory.find(cx, hash.hash)).await?;
        Ok(self.place_in(subtable, hash))
    }

    /// SEARCH. The value is left in the context's buffer.
    ///
    /// # Errors
    /// See [`IndexError`].
    #[inline]
    pub async fn search(&self, cx: &mut OpContext, key: &[u8]) -> Result<Option<Found>, IndexError> {
        if let Some(found) = self.search_now(cx, key) {
            return Ok(found);
        }
        let _pin = (!is_planted("index: a search without a pin")).then(|| self.blocks.pool.pin());
        let place = self.place(cx, self.hash(key)).await?;
        self.search_with_verbs(cx, place, key).await
    }

    /// SEARCH over mapped memory, in a plain call; `None` if verbs have to find out.
    #[inline]
    pub(crate) fn search_now(&self, cx: &mut OpContext, key: &[u8]) -> Option<Option<Found>> {
        let _pin = (!is_planted("index: a search without a pin")).then(|| self.blocks.pool.pin());
        let place = self.known_place(self.hash(key))?;
        match self.look(cx, &place, key, Wanted::Items) {
            InPlace::Found(found) => Some(Some(found.value())),
            InPlace::Absent => Some(None),
            InPlace::Unknown => None,
        }
    }

    /// See [`Index::read_now`](crate::Index::read_now).
    pub(crate) fn read_now(&self, cx: &mut OpContext, key: &[u8], target: &mut [u8]) -> Option<Found> {
        let _pin = self.blocks.pool.pin();
        let place = self.known_place(self.hash(key))?;
        let InPlace::Found(item) = self.look_apart(cx, &place, key, Wanted::Keys) else {
            return None;
        };
        // The block is whole, and stays what it is as long as the pin.
        let found = Found::in_block(item.header, 0);
        if let Some(target) = target.get_mut(..found.value.bytes as usize) {
            let value = item.pointer.block().plus(found.value.at.into());
            cx.endpoint().read_now(value, target)?.ok()?;
        }
        Some(found)
    }

    async fn search_with_verbs(
        &self,
        cx: &mut OpContext,
        mut place: Place,
        key: &[u8],
    ) -> Result<Option<Found>, IndexError> {
        // Ends when it has come to a subtable that is open, or was when its buckets were read.
        loop {
            let mut batch = Batch::new();
            read_buckets(&mut batch, &place);
            cx.post(&mut batch).await?;
            cx.rely_on_words();
            if is_closed(cx.buffer(), &place)
                && let Some(next) = Box::pin(self.follow(cx, &place)).await?
            {
                place = next;
                continue;
            }
            let found = self.find(cx, &place, key).await?;
            return Ok(found.map(|found| found.value()));
        }
    }

    /// Where a key is whose buckets were closed when they were read; `None` if it is still there, since
    /// the split is not committed. Leaves the buffer alone.
    #[cold]
    async fn follow(&self, cx: &mut OpContext, place: &Place) -> Result<Option<Place>, IndexError> {
        let mut batch = Batch::new();
        // The second child first: once it is set, the first one stays.
        let children = [1, 0].map(|child| batch.read_word(place.subtable.plus(CHILDREN_AT + child * 8)));
        let identity = batch.read_word(place.subtable.plus(IDENTITY_AT));
        cx.post(&mut batch).await?;
        let identity = Identity(batch.result(identity));
        let hash = place.hash.hash;
        if !identity.covers(hash) {
            return Err(IndexError::SubtableDamaged { at: place.subtable });
        }
        if batch.result(children[0]) == 0 {
            return Ok(None);
        }
        // The directory knows, or will soon.
        let now = self.directory.look_up(cx, hash).await?;
        if now != place.subtable {
            return Ok(Some(self.place_in(now, place.hash)));
        }
        // Unless whoever splits has died.
        self.help_split(place);
        let child = batch.result(children[usize::from(hash >> identity.depth() & 1 == 0)]);
        let child = RemoteAddr::from_bits(child).ok_or(IndexError::SubtableDamaged { at: place.subtable })?;
        Ok(Some(self.place_in(child, place.hash)))
    }

    /// Looks for a key in the buckets at the start of the buffer, and reads its item behind them.
    #[inline]
    async fn find(&self, cx: &mut OpContext, place: &Place, key: &[u8]) -> Result<Option<Match>, IndexError> {
        let candidates = candidates(cx.buffer(), place);
        if let [(slot, pointer)] = candidates[..] {
            let header = self.blocks.read_item(cx, slot, pointer, ITEMS_AT).await?;
            return Ok(self.is_match(cx, header, ITEMS_AT, key).then_some(Match {
                slot,
                pointer,
                header,
                at: ITEMS_AT,
            }));
        }
        if candidates.is_empty() {
            return Ok(None);
        }
        Box::pin(self.find_among(cx, &candidates, key)).await
    }

    /// Reads all items whose fingerprint fits, some at a time, and looks which has the key.
    async fn find_among(
        &self,
        cx: &mut OpContext,
        candidates: &[(RemoteAddr, Pointer)],
        key: &[u8],
    ) -> Result<Option<Match>, IndexError> {
        let mut found = None;
        self.blocks
            .read_items(cx, ITEMS_AT, candidates, &mut |slot, pointer, header, at, buffer| {
                if Found::in_item(header, buffer, at as usize, key).is_some() {
                    found = Some(Match {
                        slot,
                        pointer,
                        header,
                        at,
                    });
                }
                found.is_none()
            })
            .await?;
        Ok(found)
    }

    #[inline]
    fn is_match(&self, cx: &OpContext, header: Header, at: u32, key: &[u8]) -> bool {
        let Header::Item { key_bytes, .. } = header else {
            return false;
        };
        let start = at as usize + HEADER_BYTES;
        let is_same = key_bytes == key.len() && is_same_key(&cx.buffer()[start..][..key.len()], key);
        is_same || is_planted("index: a key not compared")
    }
}

/// The root and the format of the table on the nodes of `cx`; `None` if there is none, or it is not
/// complete.
pub(crate) async fn open_root(cx: &mut OpContext) -> Result<Option<(Root, Format)>, IndexError> {
    let Some(root) = root(cx, NodeId::new(0), ROOT).await? else {
        return Ok(None);
    };
    let at = root.addr.plus(FORMAT_AT);
    let word = cx.read_word(at).await?;
    if word == 0 {
        return Ok(None);
    }
    let format = Format::from_word(word).filter(|format| format.directory_bytes() <= root.bytes);
    let format = format.ok_or(IndexError::DirectoryDamaged { at, word })?;
    Ok(Some((root, format)))
}

/// READs of both buckets to the start of the buffer.
#[inline]
fn read_buckets(batch: &mut Batch, place: &Place) {
    batch.read(place.buckets[0].addr, Slice::first(COMBINED_BYTES));
    batch.read(place.buckets[1].addr, Slice::new(COMBINED_BYTES, COMBINED_BYTES));
}

/// A word of one of the two buckets in the buffer.
#[inline]
fn word_of(buffer: &[u8], bucket: usize, word: usize) -> u64 {
    let at = bucket * COMBINED_BYTES as usize + word * 8;
    let bytes: &[u8; 8] = buffer[at..]
        .first_chunk()
        .expect("the buckets are at the start of the buffer");
    u64::from_le_bytes(*bytes)
}

/// Whether one of the buckets in the buffer belongs to a subtable that is being split, or was.
#[inline]
fn is_closed(buffer: &[u8], place: &Place) -> bool {
    (0..2).any(|bucket| word_of(buffer, bucket, place.buckets[bucket].header_word()) == LockWord::CLOSED.0)
        && !is_planted("race: a closed bucket taken for open")
}

/// The slots of the buckets in the buffer whose fingerprint fits.
fn candidates(buffer: &[u8], place: &Place) -> Candidates {
    let mut candidates = Candidates::new();
    for (index, bucket) in place.buckets.iter().enumerate() {
        for word in bucket.slot_words() {
            let pointer = Pointer::from_word(word_of(buffer, index, word));
            if fits(pointer, place) {
                candidates.push((bucket.addr.plus(word as u64 * 8), pointer));
            }
        }
    }
    candidates
}

/// Whether a slot may have the key that is looked for.
#[inline]
fn fits(pointer: Pointer, place: &Place) -> bool {
    pointer.fingerprint() == place.hash.fingerprint() && !pointer.is_null()
}
