//! From the root to the leaf of a key.
//!
//! On the path: first step of every operation. Starts at the lowest node that this client remembers and that covers the key,
//! and READs the others on the way, which are remembered then.

use farside_fabric::mutant::is_planted;
use farside_fabric::{OpContext, RemoteAddr};
use farside_pool::Pin;

use super::inner::{Child, Inner};
use super::layout::{IMAGE_AT, Key, ROOT_AT};
use super::lock::Kind;
use super::task::Name;
use super::{LEVEL_MAX, Root, Tree};
use crate::error::IndexError;

/// After how many torn READs of a node one looks whether whoever writes it is still there.
pub(super) const TORN_READS: u32 = 16;

/// The leaf that a parent names for a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(super) leaf: RemoteAddr,
    /// What its sibling has to be.
    pub(super) next: RemoteAddr,
    /// Whether the parent was remembered, and not read just now.
    pub(super) is_remembered: bool,
}

impl Place {
    /// What a parent says.
    #[inline]
    fn below(parent: &Inner, key: Key, is_remembered: bool) -> Self {
        Self::of_child(parent, parent.index_of(key), is_remembered)
    }

    /// What a parent says of one of its children.
    #[inline]
    pub(super) fn of_child(parent: &Inner, index: usize, is_remembered: bool) -> Self {
        let Child { addr, next } = parent.child(index);
        Self {
            leaf: addr,
            next,
            is_remembered,
        }
    }
}

impl Tree {
    /// The leaf of a key, if this client remembers its parent; in a pipeline the others run while what that takes is on its way.
    #[inline]
    pub(super) async fn known_place(&self, cx: &OpContext, key: Key) -> Option<Place> {
        if self.shared.root.get().level == 0 {
            return None;
        }
        let spot = if cx.is_pipelined() {
            let spot = self.shared.cache.borrow().approach(1, key)?;
            cx.turn().await;
            Some(spot)
        } else {
            None
        };
        let cache = self.shared.cache.borrow();
        let parent = match spot {
            Some(spot) => cache.covering_at(1, spot, key),
            None => cache.covering(1, key),
        }?;
        Some(Place::below(parent, key, true))
    }

    /// The leaf that is locked when this key comes or goes, as far as this client remembers; of those that a model names the
    /// first. Claims lock none.
    pub(crate) fn locked_leaf(&self, key: Key) -> Option<RemoteAddr> {
        let (root, shape) = (self.shared.root.get(), self.shape());
        if shape.has_claims() {
            return None;
        }
        if root.level == 0 {
            return Some(root.addr);
        }
        let cache = self.shared.cache.borrow();
        let parent = cache.covering(1, key)?;
        Some(parent.child(parent.window(shape, key).start).addr)
    }

    /// The leaf of a key as this client remembers it, if it does. A leaf that was the root may be one no more.
    pub(super) fn remembered_place(&self, key: Key) -> Option<Place> {
        let root = self.shared.root.get();
        if root.level > 0 {
            return Some(Place::below(self.shared.cache.borrow().covering(1, key)?, key, true));
        }
        Some(Place {
            leaf: root.addr,
            next: RemoteAddr::NULL,
            is_remembered: true,
        })
    }

    /// The leaf of a key.
    pub(super) async fn locate(&self, cx: &mut OpContext, key: Key, pin: &Pin) -> Result<Place, IndexError> {
        if self.height() > 0 {
            let place = if self.shape().is_learned() {
                Box::pin(self.locate_around(cx, key)).await?
            } else {
                self.remembered_place(key)
            };
            if let Some(place) = place {
                return Ok(place);
            }
        }
        // Ends: the root has come down to a leaf, each time but the first.
        loop {
            let root = self.shared.root.get();
            if root.level == 0 {
                return Ok(Place {
                    leaf: root.addr,
                    next: RemoteAddr::NULL,
                    is_remembered: !self.shared.is_root_fresh.replace(false),
                });
            }
            // Rare: a future of its own keeps that of every operation small.
            if let Some((_, parent)) = Box::pin(self.descend(cx, key, 1, pin)).await? {
                return Ok(Place::below(&parent, key, false));
            }
        }
    }

    /// The smallest key of a leaf, or of a node above it, that is chosen at random among those that this client remembers.
    /// `below` draws a number.
    pub(crate) fn random_leaf(&self, below: impl Fn(u64) -> u64) -> Key {
        let cache = self.shared.cache.borrow();
        let mut key = 0;
        for level in (1..=self.shared.root.get().level).rev() {
            let Some(node) = cache.lowest(level, level, key) else {
                break;
            };
            let drawn = below(node.children.len() as u64) as usize;
            key = node.children.get(drawn).map_or(key, |(key, _)| key);
        }
        key
    }

    /// What to do when a remembered parent has misled: forgets it. A leaf that is the root has none: then the root is read, and
    /// what is found next is not what was remembered, even if it is the same.
    pub(super) async fn forget_parent(&self, cx: &mut OpContext, key: Key) -> Result<(), IndexError> {
        if self.shared.root.get().level == 0 {
            self.read_root(cx).await?;
            self.shared.is_root_fresh.set(true);
        }
        self.shared.cache.borrow_mut().forget(1, key);
        Ok(())
    }

    /// Reads the root word.
    pub(super) async fn read_root(&self, cx: &mut OpContext) -> Result<Root, IndexError> {
        let version = self.pool().watched();
        let root = Root::from_word(cx.read_word(self.shared.area.plus(ROOT_AT)).await?);
        self.shared.root.set(root);
        self.shared.root_version.set(version);
        Ok(root)
    }

    /// The root as it was read since a node was last taken out, which it may be. A leaf never is: the first one stays.
    pub(super) async fn root(&self, cx: &mut OpContext) -> Result<Root, IndexError> {
        let root = self.shared.root.get();
        let is_current = self.shared.root_version.get() == self.pool().watched();
        if root.level == 0 || is_current || is_planted("tree: a root that is remembered for ever") {
            return Ok(root);
        }
        self.read_root(cx).await
    }

    /// Reads the node of a level that covers a key; `None` if the root was read just now and is not that high.
    pub(super) async fn descend(
        &self,
        cx: &mut OpContext,
        key: Key,
        level: u8,
        pin: &Pin,
    ) -> Result<Option<(RemoteAddr, Inner)>, IndexError> {
        let mut root = self.root(cx).await?;
        if root.level < level {
            root = self.read_root(cx).await?;
        }
        let above = self.shared.cache.borrow().lowest(level + 1, LEVEL_MAX, key);
        let (mut addr, mut above) = match above {
            Some(node) => (node.child(node.index_of(key)).addr, node.level),
            None if root.level < level => return Ok(None),
            None => (root.addr, root.level + 1),
        };
        // Ends: each step goes down, or to the right, or away from a node that is gone.
        loop {
            let version = self.pool().watched();
            let node = self.read_inner(cx, addr, pin).await?;
            if node.is_gone {
                // Whoever led here does not know.
                self.shared.cache.borrow_mut().forget(node.level + 1, key);
                (addr, above) = (node.sibling, node.level + 1);
                if addr.is_null() {
                    root = self.read_root(cx).await?;
                    if root.level < level {
                        return Ok(None);
                    }
                    (addr, above) = (root.addr, root.level + 1);
                }
                continue;
            }
            if node.level >= above || node.level < level || key < node.low() {
                return Err(IndexError::NodeDamaged { at: addr });
            }
            if key > node.high {
                // Split since, or half split: whoever led here does not know.
                self.shared.cache.borrow_mut().forget(node.level + 1, key);
                self.complete_later(None, node.sibling, (node.level, node.high + 1), pin);
                (addr, above) = (node.sibling, node.level + 1);
                continue;
            }
            self.remember(node.clone(), version);
            if node.level == level {
                return Ok(Some((addr, node)));
            }
            (addr, above) = (node.child(node.index_of(key)).addr, node.level);
        }
    }

    /// READs the internal nodes from left to right, so that this client remembers them, as many as it may.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub async fn remember_all(&self, cx: &mut OpContext) -> Result<(), IndexError> {
        if self.read_root(cx).await?.level == 0 {
            return Ok(());
        }
        let mut next = Some(0);
        while let Some(key) = next {
            let pin = self.pin();
            let Some((_, node)) = self.descend(cx, key, 1, &pin).await? else {
                break;
            };
            next = self.shape().key_after(node.high);
        }
        Ok(())
    }

    /// Remembers a node that was read, or that this client has written under its lock, since the version of the tree was known to
    /// be this; not if it has changed. Then everything is forgotten that was remembered before, and this node may
    /// be older, and lead to the leaf that has gone.
    pub(super) fn remember(&self, node: Inner, version: u64) {
        if self.pool().watched() == version {
            let node = match node.level {
                1 if self.shape().is_learned() => node.learned(self.shape()),
                _ => node,
            };
            self.shared.cache.borrow_mut().remember(node);
        }
    }

    /// READs an internal node until it is whole.
    pub(super) async fn read_inner(
        &self,
        cx: &mut OpContext,
        node: RemoteAddr,
        pin: &Pin,
    ) -> Result<Inner, IndexError> {
        let shape = self.shape();
        let mut torn = 0;
        // Ends: whoever writes the node comes to an end, or is gone, and then it is settled. A node that stays torn while
        // nobody holds its lock is damaged.
        loop {
            let image = cx.read(node.plus(IMAGE_AT), shape.image()).await?;
            if let Some(decoded) = Inner::decode(shape, image) {
                cx.validated();
                return Ok(decoded);
            }
            cx.validated();
            cx.count_retry();
            torn += 1;
            if torn % TORN_READS == 0 {
                self.help(cx, node, Kind::Inner, pin).await?;
                if torn / TORN_READS >= TORN_READS {
                    let is_whole = |image: &[u8]| Inner::decode(shape, image).is_some();
                    if self
                        .stays_torn(cx, node, (IMAGE_AT, shape.image_bytes()), is_whole)
                        .await?
                    {
                        return Err(IndexError::NodeDamaged { at: node });
                    }
                }
                self.shared.backoff.wait(cx.endpoint(), torn / TORN_READS).await;
            }
        }
    }

    /// Puts a node, with its level and smallest key, into its parent if nobody has after a while.
    ///
    /// `left` is its left neighbour if only a part of that was read: whoever split it may have died while writing it, or may
    /// still be about to. As long as keys of the new node can be found there nobody may change them, so nobody must find the
    /// new node by its parent.
    pub(super) fn complete_later(
        &self,
        left: Option<RemoteAddr>,
        node: RemoteAddr,
        (level, key): (u8, Key),
        pin: &Pin,
    ) {
        /// As long as whoever has split may need for it.
        const PATIENCE_NS: u64 = 200_000;
        let pin = pin.clone();
        self.start(Name::Complete(node), |tree| async move {
            let mut cx = OpContext::new(tree.pool().endpoint().clone());
            cx.endpoint().sleep(PATIENCE_NS).await;
            if let Some(left) = left
                && !is_planted("tree: a leaf linked while its neighbour is written")
            {
                // Waits for whoever writes it, or settles it.
                let held = tree.lock(&mut cx, left, Kind::Leaf, &pin).await?;
                tree.unlock(&mut cx, held).await?;
            }
            tree.link(&mut cx, level + 1, key, node, pin).await
        });
    }
}
