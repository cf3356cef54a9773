//! Merging a leaf into its left neighbour; the steps stand in [`super`].
//!
//! On the path: nowhere. A task does it when DELETEs have left a leaf almost empty. Internal nodes: see `shrink`.
//!
//! The leaf that stays has an intent from the beginning to the end, the one that goes from before the first is written; both
//! are locked. What commits the merge is the first replica of the sibling word of the leaf that goes. Whoever takes over from
//! a client that died takes the leaf that stays first: if the other one has not begun to go, its keys are dropped here, and
//! both are as they were; otherwise it is made to go altogether. A lock of a leaf that may go is not taken over without
//! the one that stays being settled: the second intent says which that is.

use farside_fabric::batch::BATCH_VERBS_MAX;
use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, OpContext, RemoteAddr, Slice};
use farside_pool::Pin;
use std::rc::Rc;

use super::Tree;
use super::close::{Left, Words};
use super::inner::Inner;
use super::layout::{INTENT_AT, Key, LOCK_AT, Shape, VERSION_AT};
use super::leaf::{self, Fences, next_version, set_word, word};
use super::lock::{Held, Kind};
use super::slot::thawed;
use super::task::{Name, Task};
use super::words::{Intent, LockWord, Sibling};
use crate::error::IndexError;

impl Tree {
    /// Starts a merge if a DELETE has left so few keys: once on the way down, and when the leaf is empty.
    pub(super) fn consider_merge(&self, leaf: RemoteAddr, key: Key, taken: usize) {
        let span = self.shape().span();
        let bits = self.shape().vacancy_bit(span - 1) + 1;
        if taken == 0 || taken == bits / 8 || taken == bits / 4 {
            self.start(Name::Merge(leaf), |tree| async move {
                let mut cx = OpContext::new(tree.pool().endpoint().clone());
                tree.merge(&mut cx, 0, key).await.map(drop)
            });
        }
    }

    /// Sees to it that the parent forgets the leaf of a key that is gone: whoever merged it has died before it could.
    pub(super) fn clean_later(&self, key: Key) -> Rc<Task> {
        self.start(Name::Clean(key), |tree| async move {
            let mut cx = OpContext::new(tree.pool().endpoint().clone());
            tree.clean(&mut cx, key).await
        })
    }

    /// Locks the parent of the node of a level that covers a key; `None` if that is the root, or the tree is not that high.
    async fn lock_parent(
        &self,
        cx: &mut OpContext,
        (level, key): (u8, Key),
        pin: &Pin,
    ) -> Result<Option<(Held, Inner)>, IndexError> {
        // Ends: each failure means that another client has split the parent, or taken it out.
        loop {
            if self.read_root(cx).await?.level <= level {
                return Ok(None);
            }
            let Some((addr, _)) = self.descend(cx, key, level + 1, pin).await? else {
                continue;
            };
            let held = self.lock(cx, addr, Kind::Inner, pin).await?;
            let node = self.read_locked_inner(cx, addr).await?;
            if node.fences().contains(key) {
                return Ok(Some((held, node)));
            }
            self.unlock(cx, held).await?;
        }
    }

    async fn clean(&self, cx: &mut OpContext, key: Key) -> Result<(), IndexError> {
        let pin = self.pin();
        let Some((parent, node)) = self.lock_parent(cx, (0, key), &pin).await? else {
            return Ok(());
        };
        let index = node.index_of(key);
        let sibling = self.sibling_of(cx, node.children.at(index).1).await?;
        if index == 0 || !sibling.is_gone() {
            return self.unlock(cx, parent).await;
        }
        // Whoever stays is settled before: its intent may still name the one that goes.
        let left = self.lock(cx, sibling.next(), Kind::Leaf, &pin).await?;
        self.unlock(cx, left).await?;
        self.take_out(cx, parent, node, index).await
    }

    /// Merges the node of a level that covers a key with one of its neighbours, if both fit into one; returns whether they did.
    /// One that is the root gives way to an only child.
    pub(super) async fn merge(&self, cx: &mut OpContext, level: u8, key: Key) -> Result<bool, IndexError> {
        let pin = self.pin();
        let Some((parent, node)) = self.lock_parent(cx, (level, key), &pin).await? else {
            self.lower_root(cx, level, &pin).await?;
            return Ok(false);
        };
        let index = node.index_of(key);
        for right in [index + 1, index] {
            if right == 0 || right >= node.children.len() {
                continue;
            }
            let [(_, left), (_, gone)] = [node.children.at(right - 1), node.children.at(right)];
            // A leaf that is gone names the one that stayed, which therefore has to stay until the parent forgets the first.
            if level == 0
                && let Some((key, next)) = node.children.get(right + 1)
                && self.sibling_of(cx, next).await?.is_gone()
            {
                self.clean_later(key);
                continue;
            }
            let statistics = &self.shared.statistics;
            let (is_merged, merges) = match level {
                0 => (self.absorb(cx, left, gone, &pin).await?, &statistics.merges),
                _ => {
                    let absorbed = self.absorb_inner(cx, &parent, [left, gone], &pin).await;
                    // Whoever settles the nodes does not retire the one that has gone.
                    let absorbed = absorbed.inspect_err(|_| self.pool().doubt())?;
                    (absorbed, &statistics.inner_merges)
                }
            };
            if is_merged {
                merges.set(merges.get() + 1);
                self.take_out(cx, parent, node, right).await?;
                return Ok(true);
            }
        }
        self.unlock(cx, parent).await?;
        Ok(false)
    }

    /// Takes a node that is gone out of its parent, tells everybody, and retires it.
    async fn take_out(
        &self,
        cx: &mut OpContext,
        parent: Held,
        mut node: Inner,
        index: usize,
    ) -> Result<(), IndexError> {
        let (_, gone) = node.children.remove(index);
        let (addr, level, low, left) = (parent.node, node.level, node.low(), node.children.len());
        let version = self.pool().watched();
        if let Err(error) = self.write_inner(cx, parent, &node, None).await {
            self.pool().doubt();
            return Err(error);
        }
        self.remember_own(node, version);
        let bytes = match level {
            1 => self.shape().leaf_block_bytes(),
            _ => self.shape().inner_bytes(),
        };
        self.let_go(cx, gone, bytes).await?;
        self.consider_shrinking(addr, (level, low), left);
        Ok(())
    }

    /// Retires a node that is in the tree no more, and tells everybody before: whoever remembers it forgets it in time.
    pub(super) async fn let_go(&self, cx: &mut OpContext, node: RemoteAddr, bytes: u64) -> Result<(), IndexError> {
        if !is_planted("tree: a leaf that goes unannounced")
            && let Err(error) = cx.fetch_add(self.shared.area.plus(VERSION_AT), 1).await
        {
            self.pool().doubt();
            return Err(error.into());
        }
        if bytes == self.shape().inner_bytes() && is_planted("tree: an internal node freed at once") {
            self.pool().endpoint().forget(node, bytes);
            self.pool().give_back(node, bytes);
            return Ok(());
        }
        self.pool().retire(node, Some(bytes));
        Ok(())
    }

    /// Moves all keys of a leaf into its left neighbour, if they fit; the parent is locked.
    async fn absorb(
        &self,
        cx: &mut OpContext,
        left: RemoteAddr,
        right: RemoteAddr,
        pin: &Pin,
    ) -> Result<bool, IndexError> {
        let shape = self.shape();
        let bytes = shape.leaf_bytes() as u32;
        let stays = self.lock(cx, left, Kind::Leaf, pin).await?;
        let goes = if is_planted("tree: a neighbour merged without its lock") {
            Held::again(self, right, Kind::Leaf, self.ticket())
        } else {
            self.lock(cx, right, Kind::Leaf, pin).await?
        };
        cx.reserve(2 * bytes as usize);
        let mut batch = Batch::new();
        batch.read(left, Slice::first(bytes));
        batch.read(right, Slice::new(bytes, bytes));
        cx.post(&mut batch).await?;
        // Only the holders of the locks write them; entries that are claimed one by one are looked at again.
        cx.validated();
        let (lower, upper) = cx.buffer().split_at(bytes as usize);
        let before = match shape.has_claims() {
            false => [Words::new(), Words::new()],
            true if shape.are_few(lower, upper) => [
                self.close(cx, left, 0, Left::Nothing).await?,
                self.close(cx, right, bytes, Left::Nothing).await?,
            ],
            // What was read may not even belong together.
            true => return self.leave_apart(cx, [stays, goes], Default::default()).await,
        };
        let (lower, upper) = cx.buffer_mut().split_at_mut(bytes as usize);
        let damaged = |at| move |_| IndexError::NodeDamaged { at };
        let (fences, sibling) = shape.examine_all(lower).map_err(damaged(left))?;
        let (right_fences, right_sibling) = shape.examine_all(&upper[..bytes as usize]).map_err(damaged(right))?;
        let are_neighbours = !sibling.is_gone() && !right_sibling.is_gone() && sibling.next() == right;
        let epoch = self.pool().epoch();
        if !are_neighbours || shape.take_in(&mut lower.to_vec(), upper, epoch).is_none() {
            return self.leave_apart(cx, [stays, goes], before).await;
        }
        self.freeze_all(cx, left, 0).await?;
        self.freeze_all(cx, right, bytes).await?;
        let (lower, upper) = cx.buffer_mut().split_at_mut(bytes as usize);
        // What was read is there still: the locks are held.
        let taken_in = shape.take_in(lower, upper, epoch).unwrap_or_default();
        let (low, high) = (fences.low, right_fences.high);
        let version = next_version(sibling.version());
        shape.seal(
            lower,
            Fences { low, high },
            leaf::sibling(right_sibling.next(), version),
        );
        let free = shape.vacancy(lower);
        mark_gone(shape, upper, left, right_sibling);
        let thawed = shape.hide_all(lower, &taken_in);

        let is_one_node = left.node() == right.node();
        let mut batch = Batch::new();
        batch.write_word(left.plus(INTENT_AT), Intent::Absorb { right }.to_word());
        self.post_unless(cx, is_one_node, &mut batch).await?;
        batch.write_word(right.plus(INTENT_AT), Intent::AbsorbedBy { left }.to_word());
        self.post_unless(cx, is_one_node, &mut batch).await?;
        batch.write(shape.body(0), left.plus(shape.low_at()));
        self.post_unless(cx, is_one_node, &mut batch).await?;
        self.write_gone(&mut batch, cx.buffer(), bytes, right);
        self.post_unless(cx, is_one_node, &mut batch).await?;
        // Only now may anybody replace them here: nobody finds them over there any more.
        self.write_words(cx, &mut batch, left, &thawed).await?;
        batch.write_word(left.plus(INTENT_AT), 0);
        batch.write_word(left.plus(LOCK_AT), free.0);
        cx.post(&mut batch).await?;
        goes.end();
        stays.end();
        Ok(true)
    }

    /// Gives the locks of two leaves back that are not merged, with the words that they had before.
    async fn leave_apart(
        &self,
        cx: &mut OpContext,
        [stays, goes]: [Held; 2],
        [left, right]: [Words; 2],
    ) -> Result<bool, IndexError> {
        // The other way round, so that nobody waits for the second with the first in hand.
        self.reopen(cx, goes, &right).await?;
        self.reopen(cx, stays, &left).await?;
        Ok(false)
    }

    /// Waits for what was collected, where nothing is ordered otherwise.
    pub(super) async fn post_unless(
        &self,
        cx: &mut OpContext,
        is_ordered: bool,
        batch: &mut Batch,
    ) -> Result<(), IndexError> {
        if !is_ordered {
            cx.post(batch).await?;
            batch.clear();
        }
        Ok(())
    }

    /// WRITEs of words of a leaf, some of which are posted if they are many.
    pub(super) async fn write_words(
        &self,
        cx: &mut OpContext,
        batch: &mut Batch,
        leaf: RemoteAddr,
        words: &[(u64, u64)],
    ) -> Result<(), IndexError> {
        for &(at, word) in words {
            // Two places are kept for the end.
            if batch.verbs().len() + 2 >= BATCH_VERBS_MAX {
                cx.post(batch).await?;
                batch.clear();
            }
            batch.write_word(leaf.plus(at), word);
        }
        Ok(())
    }

    /// WRITEs of a leaf that goes, whose image stands at `at` in the buffer: first the word that commits the merge. Its lock
    /// is given back for ever.
    fn write_gone(&self, batch: &mut Batch, buffer: &[u8], at: u32, leaf: RemoteAddr) {
        let shape = self.shape();
        let first = shape.replica_at(0);
        batch.write_word(leaf.plus(first), word(buffer, u64::from(at) + first));
        batch.write(shape.body(at), leaf.plus(shape.low_at()));
        batch.write_word(leaf.plus(INTENT_AT), 0);
        batch.write_word(leaf.plus(LOCK_AT), 0);
    }

    /// Ends a merge that somebody has begun, or undoes it. The leaf that stays is in the buffer, and locked.
    pub(super) async fn settle_merge(
        &self,
        cx: &mut OpContext,
        held: &mut Held,
        right: RemoteAddr,
    ) -> Result<(), IndexError> {
        let (shape, left) = (self.shape(), held.node);
        let bytes = shape.leaf_bytes() as u32;
        cx.reserve(2 * bytes as usize);
        cx.read(right, Slice::new(bytes, bytes)).await?;
        // What is used of it is written by nobody, or by those who hold both locks, which are one client's: this one's.
        cx.validated();
        let (lower, upper) = cx.buffer_mut().split_at_mut(bytes as usize);
        let lock = LockWord(word(upper, LOCK_AT));
        let is_ours = leaf::intent(upper) == Some(Intent::AbsorbedBy { left }) && lock.owner().is_some();
        let right_sibling = Sibling(word(upper, shape.replica_at(0)));
        let now = Sibling(word(lower, shape.replica_at(0)));
        let mut batch = Batch::new();
        let is_one_node = left.node() == right.node();
        let mut thawed = Vec::new();
        if right_sibling.is_gone() {
            // The leaf that stays was written before.
            self.freeze_left(cx, left).await?;
            let (lower, upper) = cx.buffer_mut().split_at_mut(bytes as usize);
            let fences = shape.fences_at(lower);
            shape.mend(lower, fences, now);
            if is_ours {
                set_gone(shape, upper, right_sibling);
                self.write_gone(&mut batch, cx.buffer(), bytes, right);
                self.post_unless(cx, is_one_node, &mut batch).await?;
            }
        } else {
            let high = shape.fences_at(upper).low.checked_sub(1);
            let fences = Fences {
                low: shape.fences_at(lower).low,
                high: high.ok_or(IndexError::NodeDamaged { at: right })?,
            };
            // Neither half of a copy, nor all of it.
            shape.drop_torn(lower, fences);
            shape.keep(lower, |key| fences.contains(key));
            self.freeze_left(cx, left).await?;
            let (lower, upper) = cx.buffer_mut().split_at_mut(bytes as usize);
            // Neither the version of before nor the one that was being written: a reader may have seen some of both.
            let version = next_version(next_version(now.version()));
            shape.mend(lower, fences, leaf::sibling(right, version));
            if is_ours {
                // Nothing of it was changed, but that it may be frozen. It thaws when its copies are gone.
                thawed = match shape.has_claims() {
                    false => shape.thawed(upper),
                    // Whoever has begun with this before has opened entries.
                    true => self.close(cx, right, bytes, Left::Nothing).await?,
                };
            }
        }
        held.free = shape.vacancy(&cx.buffer()[..bytes as usize]);
        let free = shape.vacancy(&cx.buffer()[bytes as usize..]);
        batch.write(shape.body(0), left.plus(shape.low_at()));
        self.post_unless(cx, is_one_node, &mut batch).await?;
        if is_ours && !right_sibling.is_gone() {
            self.write_words(cx, &mut batch, right, &thawed).await?;
            batch.write_word(right.plus(INTENT_AT), 0);
            batch.write_word(right.plus(LOCK_AT), free.0);
            self.post_unless(cx, is_one_node, &mut batch).await?;
        }
        batch.write_word(left.plus(INTENT_AT), 0);
        Ok(cx.post(&mut batch).await?)
    }
}

impl Shape {
    /// Whether so few entries of two leaves are taken that the leaf that gets them all is not split again soon.
    fn are_few(self, lower: &[u8], upper: &[u8]) -> bool {
        self.entries(lower).count() + self.entries(upper).count() <= self.span() / 2
    }

    /// Puts the keys of another leaf into vacant entries of this one, and returns which; `None` if there is no room, with half of
    /// the entries left, so that the leaf is not split again soon. Nobody hops: who dies in the middle has moved nothing.
    fn take_in(self, lower: &mut [u8], upper: &[u8], epoch: u64) -> Option<Vec<usize>> {
        if !self.are_few(lower, upper) {
            return None;
        }
        let mut places = Vec::new();
        for (entry, key) in self.entries(upper) {
            let mut neighbours = self.circle().neighbours(self.home(key));
            let is_free = |&entry: &usize| self.taken(lower, entry).is_none() && self.has_rested(lower, entry, epoch);
            let vacant = neighbours.find(is_free)?;
            let value = self.value(upper, entry);
            self.put(lower, vacant, key, value);
            places.push(vacant);
        }
        Some(places)
    }

    /// Shows pointers of an image as frozen; returns where they stand, and what they will be when they thaw.
    fn hide_all(self, image: &mut [u8], entries: &[usize]) -> Vec<(u64, u64)> {
        if !self.has_pointers() {
            return Vec::new();
        }
        let hide = |&entry: &usize| {
            let thawed = (self.value_at(entry), self.value(image, entry));
            self.hide(image, entry);
            thawed
        };
        entries.iter().map(hide).collect()
    }

    /// Where frozen pointers of an image stand, and what they are when they thaw.
    fn thawed(self, image: &[u8]) -> Vec<(u64, u64)> {
        if !self.has_pointers() {
            return Vec::new();
        }
        let frozen = self
            .entries(image)
            .filter(|&(entry, _)| self.pointer(image, entry).is_frozen());
        let thaw = |(entry, _)| {
            let thawed = thawed(self.pointer(image, entry));
            (self.value_at(entry), thawed.to_word())
        };
        frozen.map(thaw).collect()
    }

    /// Vacates entries whose key and value were not written together, unless their keys were there before: between fences that
    /// no copy has come from.
    pub(super) fn drop_torn(self, image: &mut [u8], own: Fences) {
        for entry in 0..self.span() {
            let is_own = own.contains(self.key(image, entry)) && self.is_renewed(image, entry);
            if !self.is_whole(image, entry) && !is_own {
                self.vacate(image, entry);
            }
        }
    }
}

/// Makes the image of a leaf that of one that is gone, and says who has its keys.
fn mark_gone(shape: Shape, image: &mut [u8], left: RemoteAddr, before: Sibling) {
    set_gone(shape, image, Sibling::new(left, next_version(before.version()), true));
}

fn set_gone(shape: Shape, image: &mut [u8], gone: Sibling) {
    let fences = shape.fences_at(image);
    // Who reads a single entry must not find a key that is changed elsewhere.
    shape.keep(image, |_| is_planted("tree: keys left in a leaf that is gone"));
    shape.seal(image, fences, gone);
    set_word(image, INTENT_AT, 0);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use farside_fabric::NodeId;
    use farside_sync::{Pointer, SizeHint};
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    use super::*;

    const SHAPES: [Shape; 4] = [
        Shape::hopscotch(8, 4).of_pointers(),
        Shape::hopscotch(16, 8).of_pointers(),
        Shape::unsorted(8).of_pointers(),
        Shape::hopscotch(8, 4),
    ];
    /// The first key of the leaf that goes.
    const BETWEEN: Key = 1 << 20;

    /// A leaf with these keys, as far as there is room, and which they are. Others have been there before.
    fn leaf_of(shape: Shape, fences: Fences, keys: &BTreeSet<u64>) -> (Vec<u8>, BTreeSet<Key>) {
        let mut image = vec![0; shape.leaf_bytes() as usize];
        shape.clear(&mut image, fences, leaf::sibling(RemoteAddr::NULL, 3));
        let mut there = BTreeSet::new();
        for (&key, number) in keys.iter().zip(1..) {
            let key = fences.low + Key::from(key);
            let mut places = shape.circle().neighbours(shape.home(key));
            let Some(place) = places.find(|&entry| shape.taken(&image, entry).is_none()) else {
                continue;
            };
            let block = RemoteAddr::new(NodeId::new(0), number * 64);
            shape.put(&mut image, place, key, Pointer::new(block, SizeHint::Line, 0).to_word());
            if number % 3 == 0 {
                shape.vacate(&mut image, place);
            } else {
                there.insert(key);
            }
        }
        shape.seal(&mut image, fences, leaf::sibling(RemoteAddr::NULL, 3));
        (image, there)
    }

    proptest! {
        /// Who merges dies when some words of the leaf that stays are written, whichever: what was there before is there.
        #[test]
        fn who_dies_within_the_write_of_a_merge_loses_no_key(
            shape in proptest::sample::select(&SHAPES[..]),
            lower_keys in btree_set(0_u64..1000, 0..6),
            upper_keys in btree_set(0_u64..1000, 0..6),
            written in vec(any::<bool>(), 200),
        ) {
            let own = Fences { low: 0, high: BETWEEN - 1 };
            let (mut before, keys) = leaf_of(shape, own, &lower_keys);
            let (upper, _) = leaf_of(shape, Fences { low: BETWEEN, high: shape.key_max() }, &upper_keys);
            let mut after = before.clone();
            for (entry, _) in shape.entries(&before.clone()) {
                if shape.has_pointers() {
                    // As `Tree::freeze` does in far memory, and in the image.
                    let pointer = shape.pointer(&before, entry);
                    let frozen = pointer.with_identity(pointer.identity() | 1).with_hint(SizeHint::Frozen);
                    set_word(&mut before, shape.value_at(entry), frozen.to_word());
                    let renewed = pointer.with_identity(pointer.identity() + 2);
                    set_word(&mut after, shape.value_at(entry), renewed.to_word());
                }
            }
            let taken_in = shape.take_in(&mut after, &upper, 0).unwrap_or_default();
            shape.seal(&mut after, Fences { low: 0, high: shape.key_max() }, leaf::sibling(RemoteAddr::NULL, 4));
            shape.hide_all(&mut after, &taken_in);
            for (at, _) in (shape.low_at()..shape.leaf_bytes()).step_by(8).zip(written).filter(|both| both.1) {
                set_word(&mut before, at, word(&after, at));
            }
            shape.drop_torn(&mut before, own);
            shape.keep(&mut before, |key| own.contains(key));
            let left: BTreeSet<Key> = shape.entries(&before).map(|(_, key)| key).collect();
            prop_assert_eq!(left, keys);
        }
    }
}
