//! A B-link tree in far memory, the foundation of the range indexes.
//!
//! On the path: an operation goes from the root, or from an internal node that this client remembers, down to a leaf; reads
//! take no lock, changes lock the leaf. What a leaf looks like is a [`Shape`]: a hopscotch hash table ([`crate::chime`]), or
//! entries in no order ([`crate::sherman`]), which may be claimed one by one ([`crate::marlin`]); and whether clients
//! remember the nodes above as they are, or models of them ([`crate::rolex`]). Everything else is the same for all. Keys and
//! values are integers of eight bytes; each of them may be a key, and each a value. Or values are data pointers, which are
//! replaced without a lock: see `slot`, and [`crate::ordered`] for keys of any bytes.
//!
//! SEARCH: 1. READ where the key may be; its leaf is known. (If the client remembers in which entry it was, that entry
//! alone.) INSERT, UPDATE, DELETE: 1. lock the leaf, which says what is vacant; 2. READ where the key may be, and as far as
//! the next vacant entry; 3. WRITE what changes, and unlock. (Where entries are claimed one by one: see `claim`.)
//!
//! # Which leaf
//! A parent says which leaf has a key, and what that leaf's sibling is. If the leaf says the same, nothing has changed since:
//! fences never move unless the sibling changes, as a split puts a new leaf between the two and a merge takes the second one
//! out (CHIME, section 4.2.3). Otherwise a parent that was remembered is forgotten and read again; if that one does not know
//! either (a *half split*, its entry is still to come), the leaf's fences say which way to go: they are in its header, once.
//!
//! # A split
//!  1. Under the lock of the leaf, WRITE the new one, which holds the keys from the split key on.
//!  2. Write the split key, then the intent. From here on the split will be done, whoever dies.
//!  3. WRITE the leaf: the keys that are left, the next version everywhere, the new sibling.
//!  4. No intent; unlock.
//!  5. Put the new leaf into the parent (`link`), which may be split in turn, or grow a root above it.
//!
//! While the leaf is written some readers see it as it was, and others go on to the new one. Both find the same: who changes
//! a key of the new leaf has come there by its parent or by the old leaf's lock, both of which come after step 4, or has
//! read all of the old leaf as it is afterwards. A reader who sees some of both notices by the versions.
//!
//! # A merge
//! Under the locks of parent, leaf and right neighbour, in this order, which nobody takes in another:
//!  1. Copy the neighbour's keys into vacant entries. Nobody looks for them here yet.
//!  2. Write the neighbour's intent, then the leaf's. From here on the merge will be done.
//!  3. WRITE the leaf: later fence, next version, the neighbour's sibling. WRITE the neighbour: gone, and where its keys are.
//!     Nobody changes any of them meanwhile, as both leaves are locked; who claims entries looks at the lock.
//!  4. Take the neighbour out of the parent, announce that a node has gone, retire it.
//!
//! # Who dies where
//! Locks name their holders (`lock`). Whoever waits for one that is gone takes its place and settles the node (`settle`):
//! it does what the intent says, or repairs what an INSERT, UPDATE or DELETE has left. A new leaf that no intent names is
//! found by the search for lost blocks; a leaf that no parent names yet is reached by its left neighbour, and put into the
//! parent by whoever comes that way and finds it still missing.
//!
//! # Nodes that go
//! A remembered parent may lead to a leaf that was taken out. Before such a leaf is retired the tree's version goes up; the pool
//! reads it every tick before it says that this client has come further ([`Pool::watch`]), and an operation that finds it
//! changed forgets all nodes. Whoever started earlier has pinned, and finds the leaf gone.
//!
//! # Internal nodes that go
//! Two leaves become one only under the same parent. An internal node that has few children left is merged into its left
//! neighbour in turn, and a root gives way to an only child (`shrink`).

mod bulk;
mod cache;
pub(crate) mod change;
mod claim;
mod close;
pub(crate) mod descend;
mod inner;
mod kind;
mod layout;
mod leaf;
mod link;
mod local;
mod lock;
mod merge;
mod model;
mod scan;
mod search;
mod settle;
mod shrink;
pub(crate) mod slot;
mod split;
pub(crate) mod task;
mod turns;
mod walk;
pub(crate) mod window;
mod words;

use core::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use farside_fabric::{NodeId, OpContext, RemoteAddr};
use farside_lock::backoff::Backoff;
use farside_pool::{Pin, Pool, make_root, root};

pub use self::bulk::Known;
use self::cache::NodeCache;
pub use self::kind::TreeKind;
use self::layout::{FORMAT_AT, ROOT, ROOT_AT, ROOT_BYTES, SHAPE_AT, VERSION_AT};
pub use self::layout::{INNER_SPAN, Key, LEAF_SPAN_MAX, Shape, VALUE_WORDS_MAX, Validation};
pub(crate) use self::lock::{LOOK_ATTEMPTS, swap_if_free};
pub use self::turns::{NodeLock, TurnOptions};
pub use self::walk::Census;
pub(crate) use self::walk::census_of_pool;
pub(crate) use self::words::LockWord;
use crate::blocks::{link_first, take_block};
use crate::chime::hotspot::HotspotBuffer;
use crate::error::IndexError;

/// How a tree is made and used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeOptions {
    /// What leaves look like; a tree that is there keeps its own.
    pub shape: Shape,
    /// What a client may remember.
    pub budget: Budget,
}

/// How much a client may remember, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Internal nodes, or those of a radix tree.
    pub cache_bytes: usize,
    /// Where in their leaves hot entries are, if leaves are hashed; 0 to read neighbourhoods always.
    pub hotspot_bytes: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            cache_bytes: 256 << 20,
            // A hotspot saves most of a neighbourhood's bytes; an item behind it is one READ more either way.
            hotspot_bytes: 1 << 20,
        }
    }
}

/// Parts of a hashed leaf that a client does without: for measurements of what each brings (CHIME, section 5.3).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Without {
    /// What the lock word says of vacant entries: an INSERT READs the whole leaf.
    pub vacancy: bool,
    /// Replicas of the metadata: whoever READs entries READs the header too, for itself.
    pub replicas: bool,
}

/// A tree as one client sees it. Clones share what the client remembers.
#[derive(Debug)]
pub struct Tree {
    shared: Rc<Shared>,
}

impl Clone for Tree {
    fn clone(&self) -> Self {
        Self {
            shared: Rc::clone(&self.shared),
        }
    }
}

#[derive(Debug)]
struct Shared {
    pool: Pool,
    /// The root area.
    area: RemoteAddr,
    shape: Shape,
    root: Cell<Root>,
    /// The version of the tree when the root was read.
    root_version: Cell<u64>,
    /// Whether the root was read since it was last used for an operation.
    is_root_fresh: Cell<bool>,
    cache: RefCell<NodeCache>,
    hotspots: RefCell<HotspotBuffer>,
    /// How many keys a leaf of a learned tree has, of those that were scanned last.
    load: Cell<f32>,
    /// The last leaf of a learned tree of which it was found that it has a key.
    narrowed: Cell<Option<window::Narrowed>>,
    /// An entry that the last search which found nothing has found vacant, where entries are claimed.
    vacant: Cell<Option<claim::Vacant>>,
    tickets: Cell<u64>,
    backoff: Backoff,
    /// Operations that go together, if they may.
    local: OnceCell<local::Local>,
    without: Cell<Without>,
    /// How operations take turns to lock leaves, if they do.
    turns: OnceCell<turns::Turns>,
    tasks: RefCell<BTreeMap<task::Name, Rc<task::Task>>>,
    statistics: Statistics,
}

/// How often this client has changed the structure.
#[derive(Default, Debug)]
struct Statistics {
    splits: Cell<u64>,
    merges: Cell<u64>,
    inner_merges: Cell<u64>,
    lowered: Cell<u64>,
    settled: Cell<u64>,
    speculations: Cell<Speculations>,
}

/// How often a client has read the one entry that it expected a key in.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Speculations {
    /// The key was there.
    pub right: u64,
    /// It was not.
    pub wrong: u64,
}

/// How often a client has changed the structure of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Structure {
    /// Leaves that it has split.
    pub splits: u64,
    /// Leaves that it has merged into their neighbours.
    pub merges: u64,
    /// Internal nodes that it has merged into their neighbours.
    pub inner_merges: u64,
    /// Roots that it has let give way to their only child.
    pub lowered: u64,
    /// Nodes that it has settled after their holders had died or given up.
    pub settled: u64,
}

/// The root node: where it is, and how far above the leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Root {
    addr: RemoteAddr,
    level: u8,
}

/// The most levels that a tree can have.
const LEVEL_MAX: u8 = 15;

impl Root {
    fn to_word(self) -> u64 {
        self.addr.to_bits() | u64::from(self.level) << 60
    }

    fn from_word(word: u64) -> Self {
        Self {
            addr: words::address(word),
            level: (word >> 60) as u8,
        }
    }
}

impl Tree {
    /// Makes the tree of a pool, or opens the one that is there.
    ///
    /// # Errors
    /// If there is not enough memory, or the fabric fails.
    pub async fn create(cx: &mut OpContext, pool: Pool, options: TreeOptions) -> Result<Self, IndexError> {
        let area = make_root(cx, &pool.geometry()[0], ROOT, ROOT_BYTES).await?.addr;
        if cx.read_word(area.plus(FORMAT_AT)).await? == 0 {
            cx.compare_swap(area.plus(SHAPE_AT), 0, options.shape.to_word()).await?;
            let shape = cx.read_word(area.plus(SHAPE_AT)).await?;
            let known = Shape::from_word(shape).ok_or(IndexError::NodeDamaged { at: area })?;
            // Whoever dies here leaves a leaf that nobody links, or a root without a format, and the next one goes on.
            if cx.read_word(area.plus(ROOT_AT)).await? == 0 {
                make_first(cx, &pool, area, known).await?;
            }
            cx.write_word(area.plus(FORMAT_AT), shape).await?;
        }
        Self::open(cx, pool, options.budget).await
    }

    /// Opens the tree of a pool.
    ///
    /// # Errors
    /// [`IndexError::Missing`] if the pool has none; what the fabric reports.
    pub async fn open(cx: &mut OpContext, pool: Pool, budget: Budget) -> Result<Self, IndexError> {
        let (area, shape) = open_area(cx).await?.ok_or(IndexError::Missing { index: "tree" })?;
        let version = cx.read_word(area.plus(VERSION_AT)).await?;
        pool.watch(area.plus(VERSION_AT), version);
        let root = Root::from_word(cx.read_word(area.plus(ROOT_AT)).await?);
        Ok(Self {
            shared: Rc::new(Shared {
                pool,
                area,
                shape,
                root: Cell::new(root),
                root_version: Cell::new(version),
                is_root_fresh: Cell::default(),
                cache: RefCell::new(NodeCache::new(budget.cache_bytes)),
                hotspots: RefCell::new(HotspotBuffer::new(budget.hotspot_bytes)),
                // As they are trained.
                load: Cell::new(shape.span() as f32),
                narrowed: Cell::default(),
                vacant: Cell::default(),
                tickets: Cell::default(),
                backoff: Backoff::default(),
                local: OnceCell::new(),
                without: Cell::default(),
                turns: OnceCell::new(),
                tasks: RefCell::default(),
                statistics: Statistics::default(),
            }),
        })
    }

    /// The pool from which the tree allocates.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.shared.pool
    }

    /// What its leaves look like.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shared.shape
    }

    /// Bytes of internal nodes that this client remembers.
    #[must_use]
    pub fn cache_bytes(&self) -> usize {
        self.shared.cache.borrow().bytes()
    }

    /// Bytes of hotspots that this client remembers.
    #[must_use]
    pub fn hotspot_bytes(&self) -> usize {
        self.shared.hotspots.borrow().bytes()
    }

    /// What has come of speculative reads.
    #[must_use]
    pub fn speculations(&self) -> Speculations {
        self.shared.statistics.speculations.get()
    }

    /// How many levels of internal nodes there were when this client last looked.
    #[must_use]
    pub fn height(&self) -> u8 {
        self.shared.root.get().level
    }

    /// What this client has done to the structure.
    #[must_use]
    pub fn structure(&self) -> Structure {
        let statistics = &self.shared.statistics;
        Structure {
            splits: statistics.splits.get(),
            merges: statistics.merges.get(),
            inner_merges: statistics.inner_merges.get(),
            lowered: statistics.lowered.get(),
            settled: statistics.settled.get(),
        }
    }

    /// Lets this client do without parts of hashed leaves from here on. Others may use them in the same tree.
    pub fn do_without(&self, without: Without) {
        self.shared.without.set(without);
    }

    /// Forgets every node that this client remembers: for measurements of a cold cache.
    pub fn forget_all(&self) {
        self.shared.cache.borrow_mut().clear();
    }

    /// Begins an operation: what it finds from here on stays what it is, and what this client remembers leads nowhere else.
    pub(crate) fn pin(&self) -> Pin {
        let pin = self.shared.pool.pin();
        self.shared.narrowed.set(None);
        self.shared.cache.borrow_mut().catch_up(self.shared.pool.watched());
        pin
    }

    /// A word for a lock that nobody else uses.
    fn ticket(&self) -> LockWord {
        let ticket = self.shared.tickets.get() + 1;
        self.shared.tickets.set(ticket);
        LockWord::held_by(self.shared.pool.owner(), ticket)
    }
}

/// Which tree of data pointers a pool has, or is getting; `None` if it has none.
///
/// # Errors
/// What the fabric reports.
pub(crate) async fn kind_of_pool(cx: &mut OpContext) -> Result<Option<TreeKind>, IndexError> {
    let Some(area) = root(cx, NodeId::new(0), ROOT).await? else {
        return Ok(None);
    };
    let at = area.addr.plus(SHAPE_AT);
    let word = cx.read_word(at).await?;
    let shape = match word {
        // Whoever makes it has not come so far.
        0 => return Ok(None),
        word => Shape::from_word(word).ok_or(IndexError::NodeDamaged { at })?,
    };
    Ok(shape.has_pointers().then(|| TreeKind::of_shape(shape)))
}

/// The root area and the shape of the leaves of the tree on the nodes of `cx`; `None` if there is none, or it is not complete.
async fn open_area(cx: &mut OpContext) -> Result<Option<(RemoteAddr, Shape)>, IndexError> {
    let Some(area) = root(cx, NodeId::new(0), ROOT).await? else {
        return Ok(None);
    };
    let at = area.addr.plus(FORMAT_AT);
    let word = cx.read_word(at).await?;
    if word == 0 {
        return Ok(None);
    }
    let shape = Shape::from_word(word).ok_or(IndexError::NodeDamaged { at })?;
    Ok(Some((area.addr, shape)))
}

/// Makes the first leaf, unless another client has.
async fn make_first(cx: &mut OpContext, pool: &Pool, area: RemoteAddr, shape: Shape) -> Result<(), IndexError> {
    let bytes = shape.leaf_block_bytes();
    let (block, _pin) = take_block(pool, bytes).await?;
    cx.reserve(bytes as usize);
    shape.clear(cx.buffer_mut(), shape.all(), leaf::sibling(RemoteAddr::NULL, 0));
    let root = Root { addr: block, level: 0 };
    link_first(cx, pool, (block, bytes), (area.plus(ROOT_AT), root.to_word())).await
}
