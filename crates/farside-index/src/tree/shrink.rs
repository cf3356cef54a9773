//! Merging an internal node into its left neighbour, and lowering the root.
//!
//! On the path: nowhere. A task does it when merges below have left a node with few children.
//!
//! # A merge
//! Under the locks of parent, node and right neighbour, in this order, as merges of leaves take them. The parent's stays until
//! the end, so nobody else links, splits or merges any of the three meanwhile:
//!  1. The parent's intent: of its children this one absorbs the next ([`Intent::Below`]).
//!  2. The node's second image, with the children of both; its intent ([`Intent::Absorb`]).
//!  3. The neighbour's intent ([`Intent::AbsorbedBy`]). From here on the merge will be done.
//!  4. The node's image: it covers both.
//!  5. The neighbour: gone, and which node has absorbed it; no intent, unlocked.
//!  6. The node: no intent, unlocked.
//!  7. The parent's second image without the neighbour, its intent ([`Intent::Copy`]), its image, no intent, unlocked.
//!  8. Announce that a node has gone, retire it.
//!
//! # Who reads meanwhile
//! Before 4 both nodes are what they were. Between 4 and 5 both lead to the same children: whoever changes which those are
//! locks the node of its level, and both are locked. From 5 on whoever comes to the neighbour goes on to the node that has
//! absorbed it, which was whole before. That one is there as long as the neighbour may be read: it is retired later, if at all,
//! and a reader's pin keeps both. A reader who sees a part of an image notices by its check.
//!
//! No leaf is touched, so what remembered nodes say of leaves is as true as before: fences of leaves move with their siblings
//! alone, and [`Inner::next_child`] is handed on with the sibling. A scan goes from leaf to leaf by fences, whatever is above.
//! A remembered node that has gone leads to its children, or to what has become of them; a remembered parent leads to the
//! neighbour, and that on to the node. Neither leads to other memory: the version goes up before the neighbour is retired.
//! Who waits for the neighbour's lock finds that no key is between the fences of a node that is gone, and starts again.
//!
//! # Who dies where
//! Whoever takes the parent's lock over locks the node, so that it is settled, and then lets the parent forget the neighbour if
//! that one is gone: nobody ever splits, links into or reads under its lock a parent that names a node that is gone. Whoever takes
//! the node's lock over does steps 4 to 6 if the neighbour's intent is there, or if the neighbour is gone; otherwise
//! nothing has changed but intents, and its own goes. Whoever wants the neighbour's lock and sees its intent settles the node
//! first. The node's intent is the first to come and the last to go, so it is there as long as the neighbour's is; the
//! parent's is there as long as the node's is, and the parent names the neighbour meanwhile. The block of the neighbour is found
//! by the search for lost blocks.
//!
//! # Lowering the root
//! A root with a single child gives way to it. The root word is changed by whoever holds the lock of the root that it names,
//! unless that is a leaf, which never gives way: so nobody puts a root above one that goes.
//!  1. Its intent ([`Intent::GiveWay`]).
//!  2. A compare-and-swap of the root word. From here on the child is the root.
//!  3. The old root: gone, and nobody has absorbed it; no intent, unlocked.
//!  4. Announce, retire.
//!
//! Until 3 an old root that is remembered leads to its only child; from 3 on whoever comes there reads the root word. It is
//! read again, too, when the version has changed since. Whoever takes the old root's lock over looks at the root word: if it
//! still names the node nothing has happened, otherwise he does step 3.

use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, OpContext, RemoteAddr, Slice};
use farside_pool::Pin;

use super::inner::{HEAD_AT, Inner, is_gone};
use super::layout::{IMAGE_AT, INNER_SPAN, INTENT_AT, Key, LOCK_AT, ROOT_AT};
use super::lock::{Held, Kind};
use super::task::Name;
use super::words::{Intent, LockWord};
use super::{Root, Tree};
use crate::error::IndexError;

impl Tree {
    /// Starts a merge if a node has lost a child and has so few left: twice on the way down, and when there is one.
    pub(super) fn consider_shrinking(&self, addr: RemoteAddr, (level, low): (u8, Key), children: usize) {
        if [1, INNER_SPAN / 8, INNER_SPAN / 4].contains(&children) {
            self.start(Name::Merge(addr), move |tree| async move {
                let mut cx = OpContext::new(tree.pool().endpoint().clone());
                tree.merge(&mut cx, level, low).await.map(drop)
            });
        }
    }

    /// Where two nodes have been joined, their children on either side have become neighbours: merges as many as fit.
    fn close_seam(&self, child: RemoteAddr, (level, key): (u8, Key)) {
        self.start(Name::Merge(child), move |tree| async move {
            let mut cx = OpContext::new(tree.pool().endpoint().clone());
            // Ends: each round leaves one less.
            while tree.merge(&mut cx, level, key).await? {}
            Ok(())
        });
    }

    /// Moves all children of a node into its left neighbour, if they fit with half of the places left, so that it is not split
    /// again soon. The parent is locked.
    pub(super) async fn absorb_inner(
        &self,
        cx: &mut OpContext,
        parent: &Held,
        [left, right]: [RemoteAddr; 2],
        pin: &Pin,
    ) -> Result<bool, IndexError> {
        let stays = self.lock(cx, left, Kind::Inner, pin).await?;
        let goes = self.lock(cx, right, Kind::Inner, pin).await?;
        let mut node = self.read_locked_inner(cx, left).await?;
        let other = self.read_locked_inner(cx, right).await?;
        let fit = node.children.len() + other.children.len() <= INNER_SPAN / 2;
        if !fit || node.sibling != right || node.is_gone || other.is_gone {
            // The other way round, so that nobody waits for the second with the first in hand.
            self.unlock(cx, goes).await?;
            self.unlock(cx, stays).await?;
            return Ok(false);
        }
        node.take_in(&other);
        let version = self.pool().watched();
        let shape = self.shape();
        let image = shape.image();
        if is_planted("tree: a parent that forgets before its children have merged") {
            let mut parent_node = self.read_locked_inner(cx, parent.node).await?;
            parent_node
                .children
                .remove(parent_node.behind(left).unwrap_or_default());
            parent_node.encode(shape, cx.buffer_mut());
            let mut batch = Batch::new();
            self.write_image(&mut batch, parent.node);
            cx.post(&mut batch).await?;
        }
        cx.reserve(2 * image.bytes as usize);
        node.encode(shape, cx.buffer_mut());
        let gone = self.put_gone(cx, node.level, left);

        let is_one_node = left.node() == right.node() && left.node() == parent.node.node();
        let mut batch = Batch::new();
        let has_intent = !is_planted("tree: internal nodes merged without an intent of the parent")
            && !is_planted("tree: a parent that forgets before its children have merged");
        if has_intent {
            batch.write_word(parent.node.plus(INTENT_AT), Intent::Below { left }.to_word());
        }
        self.post_unless(cx, is_one_node, &mut batch).await?;
        batch.write(image, left.plus(shape.second_image_at()));
        if !is_planted("tree: internal nodes merged without an intent") {
            batch.write_word(left.plus(INTENT_AT), Intent::Absorb { right }.to_word());
            self.post_unless(cx, is_one_node, &mut batch).await?;
            batch.write_word(right.plus(INTENT_AT), Intent::AbsorbedBy { left }.to_word());
        }
        self.post_unless(cx, is_one_node, &mut batch).await?;
        batch.write(image, left.plus(IMAGE_AT));
        self.post_unless(cx, is_one_node, &mut batch).await?;
        write_gone(&mut batch, right, gone);
        batch.write_word(right.plus(LOCK_AT), 0);
        self.post_unless(cx, is_one_node, &mut batch).await?;
        batch.write_word(left.plus(INTENT_AT), 0);
        batch.write_word(left.plus(LOCK_AT), 0);
        cx.post(&mut batch).await?;
        goes.end();
        stays.end();
        self.remember_own(node, version);
        let (seam, child) = other.children.at(0);
        self.close_seam(child, (other.level - 1, seam));
        Ok(true)
    }

    /// Puts the image of a node that is gone into the buffer, behind another one.
    fn put_gone(&self, cx: &mut OpContext, level: u8, heir: RemoteAddr) -> Slice {
        let shape = self.shape();
        let gone = shape.gone_image(shape.image().bytes);
        Inner::gone(shape, level, heir).encode(shape, &mut cx.buffer_mut()[gone.range()]);
        gone
    }

    /// Whether an internal node was taken out of the tree.
    pub(super) async fn is_inner_gone(&self, cx: &mut OpContext, node: RemoteAddr) -> Result<bool, IndexError> {
        Ok(is_gone(cx.read_word(node.plus(HEAD_AT)).await?))
    }

    /// Lets the root give way to its only child, if it has this level and no other.
    pub(super) async fn lower_root(&self, cx: &mut OpContext, level: u8, pin: &Pin) -> Result<(), IndexError> {
        let old = self.read_root(cx).await?;
        if old.level != level || level == 0 {
            return Ok(());
        }
        let held = self.lock(cx, old.addr, Kind::Inner, pin).await?;
        let node = self.read_locked_inner(cx, old.addr).await?;
        // One that was split has a sibling, and is about to get a parent.
        let is_alone = node.children.len() == 1 && node.sibling.is_null();
        if self.read_root(cx).await? != old || node.is_gone || !is_alone {
            return self.unlock(cx, held).await;
        }
        let new = Root {
            addr: node.children.at(0).1,
            level: level - 1,
        };
        let lowered = self.give_way(cx, held, (old, new)).await;
        if lowered.is_err() {
            self.pool().doubt();
        }
        lowered?;
        self.shared.root.set(new);
        self.let_go(cx, old.addr, self.shape().inner_bytes()).await?;
        let lowered = &self.shared.statistics.lowered;
        lowered.set(lowered.get() + 1);
        if new.level > 0 {
            // It may have a single child, too.
            self.consider_shrinking(new.addr, (new.level, 0), 1);
        }
        Ok(())
    }

    async fn give_way(&self, cx: &mut OpContext, held: Held, (old, new): (Root, Root)) -> Result<(), IndexError> {
        let intent = Intent::GiveWay.to_word();
        cx.write_word(old.addr.plus(INTENT_AT), intent).await?;
        let root = self.shared.area.plus(ROOT_AT);
        let before = cx.compare_swap(root, old.to_word(), new.to_word()).await?;
        if before != old.to_word() {
            return Err(IndexError::NodeDamaged { at: old.addr });
        }
        cx.reserve(2 * self.shape().image_bytes() as usize);
        let gone = self.put_gone(cx, old.level, RemoteAddr::NULL);
        let mut batch = Batch::new();
        write_gone(&mut batch, old.addr, gone);
        batch.write_word(old.addr.plus(LOCK_AT), 0);
        cx.post(&mut batch).await?;
        held.end();
        Ok(())
    }

    /// Brings an internal node that this client has locked into order.
    pub(super) async fn settle_inner(&self, cx: &mut OpContext, node: RemoteAddr) -> Result<(), IndexError> {
        let damaged = IndexError::NodeDamaged { at: node };
        match Intent::from_word(cx.read_word(node.plus(INTENT_AT)).await?) {
            Some(Intent::None) => Ok(()),
            Some(Intent::Copy) => {
                let mut batch = Batch::new();
                self.copy_second(cx, &mut batch, node).await?;
                batch.write_word(node.plus(INTENT_AT), 0);
                Ok(cx.post(&mut batch).await?)
            }
            Some(Intent::Absorb { right }) => self.settle_absorb(cx, node, right).await,
            Some(Intent::Below { left }) => self.settle_below(cx, node, left).await,
            Some(Intent::GiveWay) => {
                let mut batch = Batch::new();
                if self.read_root(cx).await?.addr == node {
                    batch.write_word(node.plus(INTENT_AT), 0);
                } else {
                    let level = cx.read_word(node.plus(HEAD_AT)).await? as u8;
                    cx.reserve(2 * self.shape().image_bytes() as usize);
                    let gone = self.put_gone(cx, level, RemoteAddr::NULL);
                    write_gone(&mut batch, node, gone);
                }
                Ok(cx.post(&mut batch).await?)
            }
            // Whoever wants its lock settles the other one first, and then the intent is no more.
            Some(Intent::AbsorbedBy { .. } | Intent::Split { .. }) | None => Err(damaged),
        }
    }

    /// Adds to a batch that a node becomes what its second image is, which is in the buffer then; returns its level.
    async fn copy_second(&self, cx: &mut OpContext, batch: &mut Batch, node: RemoteAddr) -> Result<u8, IndexError> {
        let image = self.shape().image();
        cx.reserve(2 * image.bytes as usize);
        let second = cx.read(node.plus(self.shape().second_image_at()), image).await?;
        let level = Inner::decode(self.shape(), second).map(|second| second.level);
        cx.validated();
        batch.write(image, node.plus(IMAGE_AT));
        level.ok_or(IndexError::NodeDamaged { at: node })
    }

    /// Ends a merge into a node that somebody has begun, or forgets it.
    async fn settle_absorb(&self, cx: &mut OpContext, left: RemoteAddr, right: RemoteAddr) -> Result<(), IndexError> {
        let mut batch = Batch::new();
        let [lock, intent, head] = [LOCK_AT, INTENT_AT, HEAD_AT].map(|at| batch.read_word(right.plus(at)));
        cx.post(&mut batch).await?;
        let is_ours = Intent::from_word(batch.result(intent)) == Some(Intent::AbsorbedBy { left })
            && LockWord(batch.result(lock)).owner().is_some();
        let is_begun = is_ours || is_gone(batch.result(head));
        let is_one_node = left.node() == right.node();
        batch.clear();
        if is_begun {
            let level = self.copy_second(cx, &mut batch, left).await?;
            self.post_unless(cx, is_one_node, &mut batch).await?;
            if is_ours {
                let gone = self.put_gone(cx, level, left);
                write_gone(&mut batch, right, gone);
                batch.write_word(right.plus(LOCK_AT), 0);
                self.post_unless(cx, is_one_node, &mut batch).await?;
            }
        }
        batch.write_word(left.plus(INTENT_AT), 0);
        Ok(cx.post(&mut batch).await?)
    }

    /// Lets a node forget a child that its neighbour `left` has absorbed, if it has.
    async fn settle_below(&self, cx: &mut OpContext, parent: RemoteAddr, left: RemoteAddr) -> Result<(), IndexError> {
        let pin = self.pin();
        let held = Box::pin(self.lock(cx, left, Kind::Inner, &pin)).await?;
        self.unlock(cx, held).await?;
        let mut node = self.read_locked_inner(cx, parent).await?;
        let right = node.behind(left).ok_or(IndexError::NodeDamaged { at: parent })?;
        let mut batch = Batch::new();
        if self.is_inner_gone(cx, node.children.at(right).1).await? {
            node.children.remove(right);
            node.encode(self.shape(), cx.buffer_mut());
            self.write_image(&mut batch, parent);
        } else {
            batch.write_word(parent.plus(INTENT_AT), 0);
        }
        Ok(cx.post(&mut batch).await?)
    }
}

/// WRITEs of a node that goes, whose image is in the buffer.
fn write_gone(batch: &mut Batch, node: RemoteAddr, gone: Slice) {
    batch.write(gone, node.plus(IMAGE_AT));
    batch.write_word(node.plus(INTENT_AT), 0);
}
