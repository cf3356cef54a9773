//! Up-propagation: putting a new node into its parent, splitting parents, growing a root (CHIME, section 4.4, as Sherman does).
//!
//! On the path: behind a split, which is complete without it: until the parent knows the new node, its left neighbour leads to
//! it. To be done twice does no harm, and several clients may do it at once: a key that the parent has already is left alone.

use core::cell::Cell;
use std::rc::Rc;

use farside_fabric::{Batch, Endpoint, OpContext, RemoteAddr, Slice};
use farside_pool::{Pin, Purpose};

use super::inner::{IMAGE, Inner};
use super::layout::{
    IMAGE_AT, IMAGE_BYTES, INNER_BYTES, INNER_SPAN, INTENT_AT, LOCK_AT, ROOT_AT, SECOND_IMAGE_AT, Sibling,
};
use super::leaf::Fences;
use super::lock::{Held, Kind};
use super::{LEVEL_MAX, Root, Tree};
use crate::error::IndexError;

/// Where a second node stands in the buffer.
const OTHER: Slice = Slice::new(IMAGE_BYTES as u32, IMAGE_BYTES as u32);

impl<E: Endpoint> Tree<E> {
    /// Puts a node whose smallest key is `key` into the node of `level` that covers the key. The caller has pinned since it
    /// has found or linked the node.
    pub(super) async fn link(
        &self,
        cx: &mut OpContext<E>,
        mut level: u8,
        mut key: u64,
        mut child: RemoteAddr,
        pin: Pin,
    ) -> Result<(), IndexError> {
        // Ends: a level up, or another client has been quicker, each time.
        loop {
            if self.shared.root.get().level < level && self.read_root(cx).await?.level < level {
                self.grow(cx, level).await?;
                continue;
            }
            let (addr, parent) = self.descend(cx, key, level, &pin).await?;
            if parent.children.binary_search_by_key(&key, |&(first, _)| first).is_ok() {
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
        let pool = self.pool();
        // Ends: there is memory, or the pool says that there is none.
        loop {
            if let Some(block) = pool.allocate(INNER_BYTES) {
                return Ok(block);
            }
            pool.restock(INNER_BYTES, 1, Purpose::Insert).await?;
        }
    }

    async fn link_in(
        &self,
        cx: &mut OpContext<E>,
        addr: RemoteAddr,
        (key, child): (u64, RemoteAddr),
        spare: Option<RemoteAddr>,
        pin: &Pin,
    ) -> Result<Linked, IndexError> {
        let give_back = || {
            if let Some(spare) = spare {
                self.pool().give_back(spare, INNER_BYTES);
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
        let first = other.as_ref().map(|other| other.fences.low);
        for node in core::iter::once(node).chain(other) {
            self.remember_own(node, version);
        }
        Ok(first.map_or(Linked::Done, Linked::Split))
    }

    /// What a parent that is locked becomes.
    async fn prepare_link(
        &self,
        cx: &mut OpContext<E>,
        held: &Held<E>,
        (key, child): (u64, RemoteAddr),
        spare: Option<RemoteAddr>,
    ) -> Result<Prepared, IndexError> {
        let mut node = self.read_locked_inner(cx, held.node).await?;
        if !node.fences.contains(key) {
            return Ok(Prepared::Nothing(Linked::Again));
        }
        let Err(index) = node.children.binary_search_by_key(&key, |&(first, _)| first) else {
            return Ok(Prepared::Nothing(Linked::Done));
        };
        // It may have been linked by another one, and be gone since. Whoever takes it out holds this lock.
        if node.level == 1 && self.sibling_of(cx, child).await?.is_gone() {
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
        let middle = node.children[node.children.len() / 2];
        if node.level == 1 && self.sibling_of(cx, middle.1).await?.is_gone() {
            self.clean_later(middle.0);
            return Ok(Prepared::Nothing(Linked::Again));
        }
        let mut other = node.split_off(spare);
        let half = if other.fences.contains(key) {
            &mut other
        } else {
            &mut node
        };
        let index = half.children.partition_point(|&(first, _)| first < key);
        half.children.insert(index, (key, child));
        Ok(Prepared::Write(node, Some(other)))
    }

    /// The sibling word of a leaf.
    pub(super) async fn sibling_of(&self, cx: &mut OpContext<E>, leaf: RemoteAddr) -> Result<Sibling, IndexError> {
        Ok(Sibling(cx.read_word(leaf.plus(self.shape().replica_at(0))).await?))
    }

    /// Remembers a node that this client has written.
    pub(super) fn remember_own(&self, mut node: Inner, version: u64) {
        node.children.shrink_to_fit();
        self.remember(Rc::new(node), version);
    }

    /// READs an internal node whose lock is held.
    pub(super) async fn read_locked_inner(&self, cx: &mut OpContext<E>, node: RemoteAddr) -> Result<Inner, IndexError> {
        let image = cx.read(node.plus(IMAGE_AT), IMAGE).await?;
        let decoded = Inner::decode(image);
        cx.rely_on(IMAGE);
        decoded.ok_or(IndexError::NodeDamaged { at: node })
    }

    /// WRITEs a node whose lock is held, behind the one that was split off, and gives the lock back.
    pub(super) async fn write_inner(
        &self,
        cx: &mut OpContext<E>,
        held: Held<E>,
        node: &Inner,
        other: Option<(&Inner, RemoteAddr)>,
    ) -> Result<(), IndexError> {
        cx.reserve(2 * IMAGE_BYTES as usize);
        node.encode(cx.buffer_mut());
        let mut batch = Batch::new();
        if let Some((other, at)) = other {
            other.encode(&mut cx.buffer_mut()[OTHER.range()]);
            write_new(&mut batch, at, OTHER);
            // Nothing is ordered across nodes.
            if at.node() != held.node.node() {
                cx.post(&mut batch).await?;
                batch.clear();
            }
        }
        batch.write(IMAGE, held.node.plus(SECOND_IMAGE_AT));
        batch.write_word(held.node.plus(INTENT_AT), 1);
        batch.write(IMAGE, held.node.plus(IMAGE_AT));
        batch.write_word(held.node.plus(INTENT_AT), 0);
        batch.write_word(held.at(), 0);
        cx.post(&mut batch).await?;
        held.end();
        Ok(())
    }

    /// Makes a root of `level` above the one that there is, unless another client has.
    async fn grow(&self, cx: &mut OpContext<E>, level: u8) -> Result<(), IndexError> {
        let old = self.shared.root.get();
        if level > LEVEL_MAX {
            return Err(IndexError::NodeDamaged { at: old.addr });
        }
        let block = self.take_inner().await?;
        let node = Inner {
            level: old.level + 1,
            fences: Fences::ALL,
            sibling: RemoteAddr::NULL,
            next_child: RemoteAddr::NULL,
            children: vec![(0, old.addr)],
            is_used: Cell::default(),
        };
        node.encode(cx.buffer_mut());
        let mut batch = Batch::new();
        write_new(&mut batch, block, IMAGE);
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
                self.pool().give_back(block, INNER_BYTES);
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
    Split(u64),
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
