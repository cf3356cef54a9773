//! An index in the order of its keys, which are any bytes: a [`Tree`] of data pointers.
//!
//! On the path: what `serve --index chime` has beneath.
//! - SEARCH: READ where in its leaf a key may be; READ the item.
//! - UPDATE: the same, and the new item is written while the old one is read; let the synchronisation scheme replace the
//!   pointer. No leaf is locked.
//! - INSERT: a SEARCH that finds nothing; lock the leaf; READ it, and WRITE the item; WRITE the entry, and unlock.
//! - DELETE: a SEARCH; lock the leaf; READ it; swap the pointer to nothing; WRITE the entry, and unlock.
//!
//! CHIME's entries have the first eight bytes of a long key, and keys that share them are fetched together (section 4.5).
//! That suits keys that differ early. Here a long key has one entry while it alone has those eight bytes; keys that share
//! them go on in a layer of their own (`part`), so that `user:0001` and a million others are told apart by the tree.
//!
//! # A new layer
//! A key is to be inserted, and another one has its entry. Whoever inserts
//!  1. takes a number for the layer that nobody ever had;
//!  2. puts a copy of the other key's item into that layer, where nobody looks yet;
//!  3. swaps the entry from the item to the layer: from here on both are looked for there.
//!
//! Whoever changes the other key meanwhile changes the entry, so that 3. fails and is tried again. A task does it, so that neither
//! a deadline nor a cancelled operation ends it in between. Who dies between 2. and 3. leaves a copy in a layer that nothing
//! leads to: its entry and its item stay, and are counted with the others.
//!
//! A layer that is there stays, even if its keys are deleted: others may remember the way to it.

mod bulk;
mod change;
pub(crate) mod cursors;
mod part;
mod scan;
pub(crate) mod search_many;
mod walk;

use core::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use farside_fabric::OpContext;
use farside_pool::{Pin, Pool};
use farside_sync::SyncOptions;

pub use self::cursors::Cursors;
use self::part::PART_BYTES;
pub(crate) use self::part::{Layer, Part, layer_of};
pub(crate) use self::walk::walk;
use crate::blocks::{Blocks, Draft};
use crate::descriptor::Marking;
use crate::error::IndexError;
use crate::item::Header;
use crate::operation::{Found, Likely};
use crate::transaction::{Located, Spot};
use crate::tree::slot::{Slot, is_layer};
use crate::tree::{Budget, Shape, Tree, TreeKind, TreeOptions};

/// How many layers a client remembers the way to.
const LAYERS_MAX: usize = 1 << 16;

/// What the leaves of a new tree look like; a tree that is there keeps its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeafOptions {
    /// How many entries a leaf has.
    pub span: usize,
    /// In how many of them a key may be, if leaves are hashed; a divisor of the span.
    pub neighbourhood: usize,
}

impl LeafOptions {
    /// The published leaf of whichever tree it is (CHIME, section 5.1): 64 entries, but 16 of ROLEX.
    pub const PUBLISHED: Self = Self {
        span: 64,
        neighbourhood: 8,
    };

    /// The leaf of a tree of this kind.
    fn of(self, kind: TreeKind) -> Shape {
        if self == Self::PUBLISHED {
            kind.published_leaf()
        } else {
            kind.leaf(self.span, self.neighbourhood)
        }
    }
}

impl Default for LeafOptions {
    fn default() -> Self {
        Self::PUBLISHED
    }
}

/// The index, as one client sees it. Clones share what the client remembers.
#[derive(Debug)]
pub struct Ordered {
    tree: Tree,
    blocks: Blocks,
    layers: Rc<RefCell<BTreeMap<Part, Layer>>>,
    cursors: Arc<Cursors>,
}

impl Clone for Ordered {
    fn clone(&self) -> Self {
        Self {
            tree: self.tree.clone(),
            blocks: self.blocks.clone(),
            layers: Rc::clone(&self.layers),
            cursors: Arc::clone(&self.cursors),
        }
    }
}

/// What is where a key would be.
enum Place {
    /// Nothing.
    Absent,
    /// An item, which stands at the start of the buffer: the key's, or another's whose parts are the same up to here.
    Item {
        slot: Slot,
        header: Header,
        is_own: bool,
        /// What will probably take its place.
        draft: Option<Draft>,
    },
}

impl Ordered {
    /// Makes the index of a pool, or opens the one that is there.
    ///
    /// # Errors
    /// If there is not enough memory, or the fabric fails.
    ///
    /// # Panics
    /// If `leaf` is none: see [`Shape::hopscotch`] and [`Shape::unsorted`].
    pub async fn create(
        cx: &mut OpContext,
        pool: Pool,
        sync: SyncOptions,
        (kind, leaf): (TreeKind, LeafOptions),
        budget: Budget,
    ) -> Result<Self, IndexError> {
        let blocks = Blocks::new(pool.clone(), sync, Marking::Parity)?;
        let scheme = blocks.sync.scheme();
        let shape = leaf.of(kind).of_pointers();
        let options = TreeOptions {
            shape: if scheme.needs_locks() {
                shape.with_locks()
            } else {
                shape
            },
            budget,
        };
        let tree = Tree::create(cx, pool, options).await?;
        let there = tree.shape();
        if TreeKind::of_shape(there) != kind || !there.has_pointers() {
            return Err(IndexError::OtherIndex {
                there: TreeKind::of_shape(there).name(),
                wanted: kind.name(),
            });
        }
        if scheme.needs_locks() && !there.has_locks() {
            return Err(IndexError::NoLocks { scheme: scheme.name() });
        }
        Ok(Self {
            tree,
            blocks,
            layers: Rc::default(),
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
        let place = (size_of::<Part>() + size_of::<Layer>()) * 3 / 2;
        self.tree.cache_bytes() + self.tree.hotspot_bytes() + self.layers.borrow().len() * place
    }

    /// Whether a task of this client works on the structure, and has to end before the client leaves.
    #[must_use]
    pub fn is_restructuring(&self) -> bool {
        self.tree.is_restructuring()
    }

    /// Which tree it is.
    #[must_use]
    pub fn kind(&self) -> TreeKind {
        TreeKind::of_shape(self.tree.shape())
    }

    /// How many levels of internal nodes the first layer had when this client last looked.
    #[must_use]
    pub fn height(&self) -> u8 {
        self.tree.height()
    }

    /// SEARCH. The value is left in the context's buffer.
    ///
    /// # Errors
    /// See [`IndexError`]; likewise for all operations.
    pub async fn search(&self, cx: &mut OpContext, key: &[u8]) -> Result<Option<Found>, IndexError> {
        let pin = self.tree.pin();
        let (_, place) = self.find(cx, key, None, &pin).await?;
        Ok(match place {
            Place::Item {
                header, is_own: true, ..
            } => Some(Found::in_block(header, 0)),
            _ => None,
        })
    }

    /// Looks for a key; also returns its part in the layer that the search ends in, and where that part starts. If something
    /// will probably be stored, it is written while the item is read that is there.
    async fn find(
        &self,
        cx: &mut OpContext,
        key: &[u8],
        likely: Option<Likely<'_>>,
        pin: &Pin,
    ) -> Result<((Part, usize), Place), IndexError> {
        let (mut layer, mut depth) = self.deepest(key);
        // Ends: each round goes to a later part of the key.
        loop {
            let part = Part::of(layer, key, depth);
            let Some(slot) = self.tree.find_slot(cx, part.0, pin).await? else {
                return Ok(((part, depth), Place::Absent));
            };
            if is_layer(slot.pointer) {
                layer = layer_of(slot.pointer);
                self.remember(part, layer);
                depth += PART_BYTES;
                continue;
            }
            let may_draft = |_: &Likely<'_>| !slot.pointer.is_frozen() && self.blocks.sync.writes_early(part.name());
            let (header, draft) = match likely.filter(may_draft) {
                Some(likely) => {
                    let draft = self
                        .blocks
                        .read_item_and_draft(cx, slot.at, slot.pointer, (key, likely));
                    draft.await?
                }
                None => (self.blocks.read_item(cx, slot.at, slot.pointer, 0).await?, None),
            };
            let is_own = Found::in_item(header, cx.buffer(), 0, key).is_some();
            let place = Place::Item {
                slot,
                header,
                is_own,
                draft,
            };
            return Ok(((part, depth), place));
        }
    }

    /// The same for whoever wants to change the key: of an entry that no transaction has marked.
    async fn find_settled(
        &self,
        cx: &mut OpContext,
        key: &[u8],
        mut likely: Option<Likely<'_>>,
        pin: &Pin,
    ) -> Result<((Part, usize), Place), IndexError> {
        // Ends: each time another transaction has come.
        loop {
            let found = self.find(cx, key, likely.take(), pin).await?;
            let Place::Item { slot, draft, .. } = &found.1 else {
                return Ok(found);
            };
            if !self.blocks.is_marked(slot.pointer) {
                return Ok(found);
            }
            let drafts = draft.iter();
            drafts.for_each(|draft| self.blocks.pool.give_back(draft.block, draft.bytes));
            self.blocks.settle(cx, slot.at, slot.pointer).await?;
        }
    }

    /// See [`crate::Index::locate`].
    pub(crate) async fn locate(&self, cx: &mut OpContext, key: &[u8]) -> Result<Located, IndexError> {
        let pin = self.tree.pin();
        let (_, place) = self.find(cx, key, None, &pin).await?;
        Ok(match place {
            Place::Item { slot, is_own: true, .. }
                if slot.pointer.is_frozen() || self.blocks.is_marked(slot.pointer) =>
            {
                Located::Busy
            }
            Place::Item {
                slot,
                header,
                is_own: true,
                ..
            } => Located::Here(
                Spot::of_slot(slot.at, slot.pointer, header.block_bytes()),
                Found::in_block(header, 0),
            ),
            Place::Item { .. } | Place::Absent => Located::Absent,
        })
    }

    /// The last layer of a key that this client remembers the way to, and where the key's part in it starts.
    fn deepest(&self, key: &[u8]) -> (Layer, usize) {
        let layers = self.layers.borrow();
        let (mut layer, mut depth) = (0, 0);
        while depth + PART_BYTES < key.len()
            && let Some(&next) = layers.get(&Part::of(layer, key, depth))
        {
            (layer, depth) = (next, depth + PART_BYTES);
        }
        (layer, depth)
    }

    fn remember(&self, part: Part, layer: Layer) {
        let mut layers = self.layers.borrow_mut();
        if layers.len() >= LAYERS_MAX {
            layers.clear();
        }
        layers.insert(part, layer);
    }
}
