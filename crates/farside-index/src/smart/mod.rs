//! SMART: an adaptive radix tree in far memory (Luo et al., OSDI 2023), the third index of CIDER (section 5).
//!
//! On the path: what `serve --index smart` has beneath.
//! - SEARCH: READ the entry of the deepest node that this client remembers, and with it the item that it led to last; READ the
//!   item, if it is another one by now.
//! - UPDATE: the same, and let the synchronisation scheme replace the data pointer in the entry.
//! - INSERT: WRITE the item; swap its pointer into the next entry that is free. A key that shares more than this node's byte with
//!   another one: WRITE a node with both, and swap that in where the other was.
//! - DELETE: let the scheme swap in that the key is gone. A node that has one entry left gives way to it.
//!
//! Nothing is locked (but for measurements: `in_place`). Keys are any bytes; one that ends where others go on has an entry of its
//! own in the node.
//!
//! # Which entry
//! Entries are used in order and keep their byte for good, even when its key is gone: so whoever looks for a byte among those in
//! use, finds none, and swaps a free one, finds out if somebody was quicker with the same byte, and no byte is there twice.
//! A node's kind, which says how much has to be read, is raised *before* an entry behind it is used (in one batch, of which a
//! node's verbs keep their order): whoever reads a node as small as its header says misses nothing. The entry that leads to the
//! node is raised beside it; one that says too little costs a second READ. (SMART raises both after the entry is there, and
//! until then a reader may miss it.)
//!
//! # Prefixes
//! A header says at which byte of a key its node decides, counted from the key's beginning, and repeats the last bytes before that. So
//! it stays right when another node comes between it and the one above, and is never written but for its kind. (SMART's
//! is relative, and is written then.) Bytes beyond those it repeats are skipped, as items have the whole key (Leis et al., ICDE
//! 2013, section III.E): SEARCH compares that anyway; an INSERT below such a gap asks an item there.
//!
//! # What a client remembers
//! Nodes with their entries, or over mapped memory with the place of each byte (`places`). A node that is linked is right for every
//! key that goes its way, however the client has come there; that it is linked is told by each entry that is not frozen. Only a
//! node whose prefix is another one does not tell whether a new node has come above it: then the entry that leads there is read
//! again. (SMART has a reverse pointer in each node for that, and has to write it when a node moves.)
//!
//! # Nodes that go
//! A node is replaced (`renew`) when at most one of its entries leads somewhere, few of many do, or the versions of an entry are used up:
//!  1. each of its entries is *frozen*, and the next free one: from here on nobody changes any of them;
//!  2. what is left is written to a node of its own, if it is more than one entry;
//!  3. what led to the node is swapped: to that one, to the one entry, or to nothing.
//!
//! Whoever comes by and finds a frozen entry does the same, from the top of the key's way downwards: so nobody waits for anybody,
//! and it does not matter who dies where. Who has swapped in 3. says that a node has gone, and retires it. An entry that is read and
//! is not frozen proves that its node was linked.
//!
//! # Versions
//! Schemes that replace a pointer by its identity rely on another identity for each key that an entry gets: versions go up with
//! each change of that kind. When they are used up the node is renewed, and in the new one they begin anew.

mod bulk;
mod cache;
mod change;
mod descend;
mod in_place;
mod layout;
mod link;
mod places;
mod renew;
mod scan;
pub(crate) mod search_many;
#[cfg(test)]
mod tests;
mod walk;

use core::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use farside_fabric::mutant::is_planted;
use farside_fabric::{NodeId, OpContext, RemoteAddr, Slice};
use farside_lock::backoff::Backoff;
use farside_pool::{Pin, Pool, make_root, root};
use farside_sync::{Pointer, SyncOptions, Target};
use xxhash_rust::xxh3::xxh3_64_with_seed;

pub use self::bulk::Known;
use self::cache::NodeCache;
use self::descend::{End, How, Slot};
pub(crate) use self::descend::{Image, place_in};
use self::layout::{
    FORMAT, FORMAT_AT, FORMAT_WITH_LOCKS, Header, Kind, ROOT, ROOT_AT, ROOT_BYTES, VERSION_AT, block_bytes, is_item,
    to_node,
};
use self::renew::Which;
pub(crate) use self::scan::Visitor;
pub(crate) use self::walk::{walk, walk_blocks};
use crate::blocks::{Blocks, Draft, link_first, take_block};
use crate::descriptor::Marking;
use crate::error::IndexError;
use crate::item::Header as ItemHeader;
use crate::operation::{Found, Likely};
use crate::ordered::Cursors;
use crate::transaction::{Located, Spot};
use crate::tree::Budget;

/// The index, as one client sees it. Clones share what the client remembers.
#[derive(Clone, Debug)]
pub struct Smart {
    shared: Rc<Shared>,
    blocks: Blocks,
    cursors: Arc<Cursors>,
}

#[derive(Debug)]
struct Shared {
    /// The root area.
    area: RemoteAddr,
    has_locks: bool,
    /// What contention is remembered by depends on it.
    seed: u64,
    /// The entry of the first node.
    root: Cell<Option<Pointer>>,
    /// How often a node had gone when everything was last forgotten.
    version: Cell<u64>,
    cache: RefCell<NodeCache>,
    statistics: Statistics,
    /// Whether values are written where they are.
    is_in_place: Cell<bool>,
    /// How often a lock was taken for that.
    tickets: Cell<u64>,
    backoff: Backoff,
}

/// How often this client has changed the structure.
#[derive(Default, Debug)]
struct Statistics {
    made: Cell<u64>,
    grown: Cell<u64>,
    renewed: Cell<u64>,
    gone: Cell<u64>,
}

/// How often a client has changed the structure.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SmartStructure {
    /// Nodes that it has put above an item or another node.
    pub made: u64,
    /// Nodes whose kind it has raised.
    pub grown: u64,
    /// Nodes that it has replaced by another one.
    pub renewed: u64,
    /// Nodes that it has let give way to their only entry, or to nothing.
    pub gone: u64,
}

/// What is where a key would be.
enum Place {
    /// Nothing; where it would be.
    Absent(End),
    /// An item, which stands at the start of the buffer: the key's, or another's that shares the way.
    Item {
        slot: Slot,
        header: ItemHeader,
        is_own: bool,
        /// What will probably take its place.
        draft: Option<Draft>,
    },
    /// Something frozen, which has to be replaced first.
    Frozen,
}

impl Smart {
    /// Makes the index of a pool, or opens the one that is there.
    ///
    /// # Errors
    /// If there is not enough memory, or the fabric fails.
    pub async fn create(cx: &mut OpContext, pool: Pool, sync: SyncOptions, budget: Budget) -> Result<Self, IndexError> {
        let area = make_root(cx, &pool.geometry()[0], ROOT, ROOT_BYTES).await?.addr;
        if cx.read_word(area.plus(FORMAT_AT)).await? == 0 {
            let wanted = match sync.scheme.needs_locks() {
                true => FORMAT_WITH_LOCKS,
                false => FORMAT,
            };
            cx.compare_swap(area.plus(FORMAT_AT), 0, wanted).await?;
        }
        // Whoever dies here leaves an area without a node, and the next one goes on.
        if cx.read_word(area.plus(ROOT_AT)).await? == 0 {
            let format = cx.read_word(area.plus(FORMAT_AT)).await?;
            make_first(cx, &pool, area, format == FORMAT_WITH_LOCKS).await?;
        }
        Self::open(cx, pool, sync, budget).await
    }

    /// Opens the index of a pool.
    ///
    /// # Errors
    /// [`IndexError::Missing`] if the pool has none; [`IndexError::NoLocks`]; what the fabric reports.
    pub async fn open(cx: &mut OpContext, pool: Pool, sync: SyncOptions, budget: Budget) -> Result<Self, IndexError> {
        let blocks = Blocks::new(pool.clone(), sync, Marking::Version)?;
        let opened = open_area(cx).await?;
        let (area, has_locks) = opened.ok_or(IndexError::Missing { index: "radix tree" })?;
        let scheme = blocks.sync.scheme();
        if scheme.needs_locks() && !has_locks {
            return Err(IndexError::NoLocks { scheme: scheme.name() });
        }
        let version = cx.read_word(area.plus(VERSION_AT)).await?;
        pool.watch(area.plus(VERSION_AT), version);
        Ok(Self {
            shared: Rc::new(Shared {
                area,
                has_locks,
                seed: pool.geometry()[0].pool_id,
                root: Cell::default(),
                version: Cell::new(version),
                cache: RefCell::new(NodeCache::new(budget.cache_bytes, pool.endpoint().is_mapped())),
                statistics: Statistics::default(),
                is_in_place: Cell::default(),
                tickets: Cell::default(),
                backoff: Backoff::default(),
            }),
            blocks,
            cursors: Arc::default(),
        })
    }

    /// The same index with cursors that other clients of this process have too.
    #[must_use]
    pub fn with_cursors(mut self, cursors: Arc<Cursors>) -> Self {
        self.cursors = cursors;
        self
    }

    /// The pool from which it allocates.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.blocks.pool
    }

    pub(crate) fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// Bytes that this client uses to remember where things are.
    #[must_use]
    pub fn cache_bytes(&self) -> usize {
        self.shared.cache.borrow().bytes()
    }

    /// What this client has done to the structure.
    #[must_use]
    pub fn structure(&self) -> SmartStructure {
        let statistics = &self.shared.statistics;
        SmartStructure {
            made: statistics.made.get(),
            grown: statistics.grown.get(),
            renewed: statistics.renewed.get(),
            gone: statistics.gone.get(),
        }
    }

    /// Forgets every node that this client remembers: for measurements of a cold cache.
    pub fn forget_all(&self) {
        self.shared.cache.borrow_mut().clear();
        self.shared.root.set(None);
    }

    /// Begins an operation: what it finds from here on stays what it is, and what this client remembers leads nowhere else.
    pub(crate) fn pin(&self) -> Pin {
        let pin = self.blocks.pool.pin();
        let version = self.blocks.pool.watched();
        if self.shared.version.replace(version) != version {
            self.forget_all();
        }
        pin
    }

    /// An entry, as the scheme sees it.
    fn target(&self, key: &[u8], slot: &Slot) -> Target {
        Target {
            slot: slot.at(),
            lock: slot.lock(self.shared.has_locks),
            name: self.name(key),
        }
    }

    /// What contention for a key is remembered by.
    fn name(&self, key: &[u8]) -> u64 {
        xxh3_64_with_seed(key, self.shared.seed)
    }

    /// SEARCH. The value is left in the context's buffer.
    ///
    /// # Errors
    /// See [`IndexError`]; likewise for all operations.
    pub async fn search(&self, cx: &mut OpContext, key: &[u8]) -> Result<Option<Found>, IndexError> {
        // Ends: each round but the last has helped with a node that is being replaced.
        loop {
            let pin = self.pin();
            match self.find(cx, key, None).await? {
                Place::Item {
                    header, is_own: true, ..
                } => return Ok(Some(Found::in_block(header, 0))),
                Place::Item { .. } | Place::Absent(_) => return Ok(None),
                Place::Frozen => {}
            }
            drop(pin);
            Box::pin(self.replace_node(cx, key, Which::Frozen)).await?;
        }
    }

    /// Looks for a key. If something will probably be stored, it is written while the item is read that is there. The caller has
    /// pinned.
    async fn find(&self, cx: &mut OpContext, key: &[u8], likely: Option<Likely<'_>>) -> Result<Place, IndexError> {
        let how = match likely {
            None => How::Speculating,
            Some(_) => How::Known,
        };
        let place = self.find_once(cx, key, (likely, how)).await?;
        let (has_gap, node) = match &place {
            Place::Item { slot, is_own, .. } => (slot.has_gap && !is_own, Some(slot.node)),
            Place::Absent(end) => (end.has_gap(), end.node()),
            Place::Frozen => (false, None),
        };
        if !has_gap || self.is_on_way(node, key) || is_planted("smart: a way with a gap believed") {
            return Ok(place);
        }
        // A node may have come between two that are remembered, where their bytes are skipped.
        if let Place::Item { draft: Some(draft), .. } = place {
            self.blocks.pool.give_back(draft.block, draft.bytes);
        }
        Box::pin(self.find_once(cx, key, (None, How::Fresh))).await
    }

    /// The same for whoever wants to change the key: of an entry that no transaction has marked.
    async fn find_settled(
        &self,
        cx: &mut OpContext,
        key: &[u8],
        mut likely: Option<Likely<'_>>,
    ) -> Result<Place, IndexError> {
        // Ends: each time another transaction has come.
        loop {
            let place = self.find(cx, key, likely.take()).await?;
            let Place::Item { slot, draft, .. } = &place else {
                return Ok(place);
            };
            if !self.blocks.is_marked(slot.word) {
                return Ok(place);
            }
            let drafts = draft.iter();
            drafts.for_each(|draft| self.blocks.pool.give_back(draft.block, draft.bytes));
            let now = self.blocks.settle(cx, slot.at(), slot.word).await?;
            self.remember(slot.version, |cache| cache.note(slot.node, slot.place, now));
        }
    }

    /// See [`crate::Index::locate`].
    pub(crate) async fn locate(&self, cx: &mut OpContext, key: &[u8]) -> Result<Located, IndexError> {
        let _pin = self.pin();
        Ok(match self.find(cx, key, None).await? {
            Place::Frozen => Located::Busy,
            Place::Item { slot, is_own: true, .. } if self.blocks.is_marked(slot.word) => Located::Busy,
            Place::Item {
                slot,
                header,
                is_own: true,
                ..
            } => Located::Here(
                Spot::of_slot(slot.at(), slot.word, header.block_bytes()),
                Found::in_block(header, 0),
            ),
            Place::Item { .. } | Place::Absent(_) => Located::Absent,
        })
    }

    /// Whether a key is known to have all bytes that lead to the node in which its way ends: then it is nowhere else.
    fn is_on_way(&self, node: Option<RemoteAddr>, key: &[u8]) -> bool {
        let mut cache = self.shared.cache.borrow_mut();
        let path = node.and_then(|node| cache.get(node)?.path.as_ref());
        path.is_some_and(|path| key.starts_with(path))
    }

    async fn find_once(
        &self,
        cx: &mut OpContext,
        key: &[u8],
        (likely, how): (Option<Likely<'_>>, How),
    ) -> Result<Place, IndexError> {
        let (slot, has_item) = match self.descend(cx, key, how).await? {
            End::Entry { slot, has_item } if is_item(slot.word) => (slot, has_item),
            End::Frozen => return Ok(Place::Frozen),
            end => return Ok(Place::Absent(end)),
        };
        let (at, pointer) = (slot.at(), slot.word);
        let likely = likely.filter(|_| self.blocks.sync.writes_early(self.name(key)));
        let (header, draft) = match likely {
            Some(likely) => {
                let both = self.blocks.read_item_and_draft(cx, at, pointer, (key, likely));
                Box::pin(both).await?
            }
            None if has_item => {
                let begun = Slice::first(self.blocks.readable(pointer));
                (self.blocks.read_rest_of_item(cx, at, pointer, begun).await?, None)
            }
            None => (self.blocks.read_item(cx, at, pointer, 0).await?, None),
        };
        if slot.has_gap
            && let Some(path) = header.item(cx.buffer()).key.get(..slot.depth)
        {
            self.remember(slot.version, |cache| cache.note_path(slot.node, path));
        }
        let is_own = Found::in_item(header, cx.buffer(), 0, key).is_some();
        Ok(Place::Item {
            slot,
            header,
            is_own,
            draft,
        })
    }
}

/// Whether a pool has a radix tree, or is getting one.
pub(crate) async fn is_in_pool(cx: &mut OpContext) -> Result<bool, IndexError> {
    let Some(area) = root(cx, NodeId::new(0), ROOT).await? else {
        return Ok(false);
    };
    Ok(cx.read_word(area.addr.plus(FORMAT_AT)).await? != 0)
}

/// The root area of the index on the nodes of `cx`, and whether it has lock entries; `None` if there is none, or it is not complete.
async fn open_area(cx: &mut OpContext) -> Result<Option<(RemoteAddr, bool)>, IndexError> {
    let Some(area) = root(cx, NodeId::new(0), ROOT).await? else {
        return Ok(None);
    };
    let at = area.addr.plus(FORMAT_AT);
    let has_locks = match cx.read_word(at).await? {
        0 => return Ok(None),
        FORMAT => false,
        FORMAT_WITH_LOCKS => true,
        _ => return Err(IndexError::NodeDamaged { at }),
    };
    let is_complete = cx.read_word(area.addr.plus(ROOT_AT)).await? != 0;
    Ok(is_complete.then_some((area.addr, has_locks)))
}

/// Makes the first node, unless another client has.
async fn make_first(cx: &mut OpContext, pool: &Pool, area: RemoteAddr, has_locks: bool) -> Result<(), IndexError> {
    let bytes = block_bytes(has_locks);
    let (block, _pin) = take_block(pool, bytes).await?;
    cx.reserve(bytes as usize);
    cx.buffer_mut()[..bytes as usize].fill(0);
    let header = Header::new(b"", 0, 0, Kind::SMALLEST);
    cx.buffer_mut()[..8].copy_from_slice(&header.0.to_le_bytes());
    let entry = to_node(block, Kind::SMALLEST, 0, 0);
    link_first(cx, pool, (block, bytes), (area.plus(ROOT_AT), entry.to_word())).await
}
