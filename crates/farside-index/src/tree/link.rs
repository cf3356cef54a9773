//! Up-propagation: putting a new node into its parent, splitting parents, growing a root (CHIME, section 4.4, as Sherman does).
//!
//! On the path: behind a split, which is complete without it: until the parent knows the new node, its left neighbour leads to
//! it. To be done twice does no harm, and several clients may do it at once: a key that the parent has already is left alone.

use core::cell::Cell;

use farside_fabric::{Batch, OpContext, RemoteAddr, Slice};
use farside_pool::{Pin, Purpose};

use super::inner::{Children, Inner};
use super::layout::{IMAGE_AT, INNER_SPAN, INTENT_AT, Key, LOCK_AT, ROOT_AT};
use super::lock::{Held, Kind};
use super::words::{Intent, Sibling};
use super::{LEVEL_MAX, Root, Tree};
use crate::error::IndexError;

impl Tree {
    /// Puts a node whose smallest key is `key` into the node of `level` that covers the key. The caller has pinned since it
    /// has found or linked the node.
    pub(super) async fn link(
        &self,
        cx: &mut OpContext,
        mut level: u8,
        mut key: Key,
        mut child: RemoteAddr,
        pin: Pin,
    ) -> Result<(), IndexError> {
        // Ends: a level up, or another client has been quicker, each time.
        loop {
            if self.root(cx).await?.level < level && self.read_root(cx).await?.level < level {
                self.grow(cx, level, &pin).await?;
                continue;
            }
            let Some((addr, parent)) = self.descend(cx, key, level, &pin).await? else {
                continue;
            };
            if parent.children.find(key).is_ok() {
                return Ok(());
            }
            let spare = match parent.children.len() {
                INNER_SPAN => Some(self.take_inner().await?),
                _ => None,
            };
            match self.link_in(cx, addr, (key, child), spare, &pin).await? {
                Linked::Done => return Ok(()),
                Linked::Again => {}
                Linked::Split(first) => {
                    (level, key) = (level + 1, first);
                    child = spare.expect("a node is split into a spare one");
                }
            }
        }
    }

    /// A block for an internal node. The caller is pinned, so this does not wait for memory for long.
    async fn take_inner(&self) -> Result<RemoteAddr, IndexError> {
        let (pool, bytes) = (self.pool(), self.shape().inner_bytes());
        // Ends: there is memory, or the pool says that there is none.
        loop {
            if let Some(block) = pool.allocate(bytes) {
                return Ok(block);
            }
            pool.restock(bytes, 1, Purpose::Insert).await?;
        }
    }

    async fn link_in(
        &self,
        cx: &mut OpContext,
        addr: RemoteAddr,
        (key, child): (Key, RemoteAddr),
        spare: Option<RemoteAddr>,
        pin: &Pin,
    ) -> Result<Linked, IndexError> {
        let give_back = || {
            if let Some(spare) = spare {
                self.pool().give_back(spare, self.shape().inner_bytes());
            }
        };
        let held = match self.lock(cx, addr, Kind::Inner, pin).await {
            Ok(held) => held,
            Err(error) => {
                give_back();
                return Err(error);
            }
        };
        let version = self.pool().watched();
        let prepared = self.prepare_link(cx, &held, (key, child), spare).await;
        let (node, other) = match prepared {
            Ok(Prepared::Write(node, other)) => (node, other),
            Ok(Prepared::Nothing(linked)) => {
                give_back();
                self.unlock(cx, held).await?;
                return Ok(linked);
            }
            Err(error) => {
                give_back();
                return Err(error);
            }
        };
        if other.is_none() {
            give_back();
        }
        let written = self.write_inner(cx, held, &node, other.as_ref().zip(spare)).await;
        if let Err(error) = written {
            self.pool().doubt();
            return Err(error);
        }
        let first = other.as_ref().map(|other| other.low());
        for node in core::iter::once(node).chain(other) {
            self.remember_own(node, version);
        }
        Ok(first.map_or(Linked::Done, Linked::Split))
    }

    /// What a parent that is locked becomes.
    async fn prepare_link(
        &self,
        cx: &mut OpContext,
        held: &Held,
        (key, child): (Key, RemoteAddr),
        spare: Option<RemoteAddr>,
    ) -> Result<Prepared, IndexError> {
        let mut node = self.read_locked_inner(cx, held.node).await?;
        if !node.fences().contains(key) {
            return Ok(Prepared::Nothing(Linked::Again));
        }
        let Err(index) = node.children.find(key) else {
            return Ok(Prepared::Nothing(Linked::Done));
        };
        // It may have been linked by another one, and be gone since. Whoever takes it out holds this lock.
        let is_gone = match node.level {
            1 => self.sibling_of(cx, child).await?.is_gone(),
            _ => self.is_inner_gone(cx, child).await?,
        };
        if is_gone {
            return Ok(Prepared::Nothing(Linked::Done));
        }
        if node.children.len() < INNER_SPAN {
            node.children.insert(index, (key, child));
            return Ok(Prepared::Write(node, None));
        }
        let Some(spare) = spare else {
            return Ok(Prepared::Nothing(Linked::Again));
        };
        // The first child of a node is never gone.
        let middle = node.children.at(node.children.len() / 2);
        if node.level == 1 && self.sibling_of(cx, middle.1).await?.is_gone() {
            self.clean_later(middle.0);
            return Ok(Prepared::Nothing(Linked::Again));
        }
        let mut other = node.split_off(spare);
        let half = if other.fences().contains(key) {
            &mut other
        } else {
            &mut node
        };
        let index = half.children.up_to(key);
        half.children.insert(index, (key, child));
        Ok(Prepared::Write(node, Some(other)))
    }

    /// The sibling word of a leaf.
    pub(super) async fn sibling_of(&self, cx: &mut OpContext, leaf: RemoteAddr) -> Result<Sibling, IndexError> {
        Ok(Sibling(cx.read_word(leaf.plus(self.shape().replica_at(0))).await?))
    }

    /// Remembers a node that this client has written.
    pub(super) fn remember_own(&self, node: Inner, version: u64) {
        self.remember(node, version);
    }

    /// READs an internal node whose lock is held.
    pub(super) async fn read_locked_inner(&self, cx: &mut OpContext, node: RemoteAddr) -> Result<Inner, IndexError> {
        let image = cx.read(node.plus(IMAGE_AT), self.shape().image()).await?;
        let decoded = Inner::decode(self.shape(), image);
        cx.rely_on(self.shape().image());
        decoded.ok_or(IndexError::NodeDamaged { at: node })
    }

    /// WRITEs a node whose lock is held, behind the one that was split off, and gives the lock back.
    pub(super) async fn write_inner(
        &self,
        cx: &mut OpContext,
        held: Held,
        node: &Inner,
        other: Option<(&Inner, RemoteAddr)>,
    ) -> Result<(), IndexError> {
        let shape = self.shape();
        let image = shape.image();
        let behind = Slice::new(image.bytes, image.bytes);
        cx.reserve(2 * image.bytes as usize);
        node.encode(shape, cx.buffer_mut());
        let mut batch = Batch::new();
        if let Some((other, at)) = other {
            other.encode(shape, &mut cx.buffer_mut()[behind.range()]);
            write_new(&mut batch, at, behind);
            // Nothing is ordered across nodes.
            if at.node() != held.node.node() {
                cx.post(&mut batch).await?;
                batch.clear();
            }
        }
        self.write_image(&mut batch, held.node);
        batch.write_word(held.at(), 0);
        cx.post(&mut batch).await?;
        held.end();
        Ok(())
    }

    /// WRITEs of a node's image, which is in the buffer; the lock stays.
    pub(super) fn write_image(&self, batch: &mut Batch, node: RemoteAddr) {
        let image = self.shape().image();
        batch.write(image, node.plus(self.shape().second_image_at()));
        batch.write_word(node.plus(INTENT_AT), Intent::Copy.to_word());
        batch.write(image, node.plus(IMAGE_AT));
        batch.write_word(node.plus(INTENT_AT), 0);
    }

    /// Makes a root of `level` above the one that there is, unless another client has.
    async fn grow(&self, cx: &mut OpContext, level: u8, pin: &Pin) -> Result<(), IndexError> {
        let old = self.shared.root.get();
        if level > LEVEL_MAX {
            return Err(IndexError::NodeDamaged { at: old.addr });
        }
        if old.level == 0 {
            return self.grow_above(cx, old).await;
        }
        // So that it does not give way meanwhile.
        let held = self.lock(cx, old.addr, Kind::Inner, pin).await?;
        if self.read_root(cx).await? == old {
            self.grow_above(cx, old).await?;
        }
        self.unlock(cx, held).await
    }

    async fn grow_above(&self, cx: &mut OpContext, old: Root) -> Result<(), IndexError> {
        let (block, shape) = (self.take_inner().await?, self.shape());
        let node = Inner {
            high: shape.key_max(),
            sibling: RemoteAddr::NULL,
            next_child: RemoteAddr::NULL,
            children: Children::new(shape, [(0, old.addr)]),
            level: old.level + 1,
            is_gone: false,
            is_used: Cell::default(),
        };
        cx.reserve(shape.image_bytes() as usize);
        node.encode(shape, cx.buffer_mut());
        let mut batch = Batch::new();
        write_new(&mut batch, block, shape.image());
        let new = Root {
            addr: block,
            level: node.level,
        };
        let linked = match cx.post(&mut batch).await {
            Ok(()) => {
                let root = self.shared.area.plus(ROOT_AT);
                cx.compare_swap(root, old.to_word(), new.to_word()).await
            }
            Err(error) => Err(error),
        };
        match linked {
            Ok(before) if before == old.to_word() => self.shared.root.set(new),
            // Lost to another client that grows it.
            Ok(before) => {
                self.pool().give_back(block, shape.inner_bytes());
                self.shared.root.set(Root::from_word(before));
            }
            Err(error) => {
                self.pool().doubt();
                return Err(error.into());
            }
        }
        Ok(())
    }
}

/// What came of putting a node into a parent.
enum Linked {
    /// It is there, or need not be.
    Done,
    /// The parent is another one by now.
    Again,
    /// The parent was split; the right half starts with this key.
    Split(Key),
}

enum Prepared {
    Write(Inner, Option<Inner>),
    Nothing(Linked),
}

/// WRITEs a node that nobody links yet.
fn write_new(batch: &mut Batch, at: RemoteAddr, image: Slice) {
    batch.write_word(at.plus(LOCK_AT), 0);
    batch.write_word(at.plus(INTENT_AT), 0);
    batch.write(image, at.plus(IMAGE_AT));
}
