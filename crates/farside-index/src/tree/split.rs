//! Splitting a leaf in two; the steps stand in [`super`].
//!
//! On the path: nowhere, until a key finds no room. Then a task of the client that noticed does it, and the INSERT starts again.

use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, OpContext, RemoteAddr, Slice};
use farside_pool::{Pin, Purpose};

use super::close::Left;
use super::layout::{INTENT_AT, Key, SPLIT_KEY_AT, Shape};
use super::leaf::{self, Fences, Torn, next_version, set_word, word};
use super::lock::{Held, Kind};
use super::task::Name;
use super::words::{Intent, Sibling};
use super::{Tree, take_block};
use crate::error::IndexError;

impl Tree {
    /// Splits the leaf of a key that found no room in it, and waits for that. The caller is not pinned.
    pub(super) async fn make_room(&self, cx: &OpContext, leaf: RemoteAddr, key: Key) -> Result<(), IndexError> {
        let task = self.start(Name::Split(leaf), |tree| async move {
            let mut cx = OpContext::new(tree.pool().endpoint().clone());
            tree.split(&mut cx, key).await
        });
        self.wait_for(cx, &task).await
    }

    /// Splits the leaf of a key, unless there is room for the key by then.
    async fn split(&self, cx: &mut OpContext, key: Key) -> Result<(), IndexError> {
        let bytes = self.shape().leaf_block_bytes();
        // So that there is a block for a parent that has to be split.
        self.pool()
            .restock(self.shape().inner_bytes(), 2, Purpose::Insert)
            .await?;
        let (block, pin) = take_block(self.pool(), bytes).await?;
        // Whatever was remembered before that pin.
        drop(self.pin());
        match self.split_into(cx, key, block, &pin).await {
            Ok(Some(split_key)) => {
                let splits = &self.shared.statistics.splits;
                splits.set(splits.get() + 1);
                self.link(cx, 1, split_key, block, pin).await
            }
            Ok(None) => {
                self.pool().give_back(block, bytes);
                Ok(())
            }
            Err(error) => {
                // Nobody knows whether it is linked.
                self.pool().doubt();
                Err(error)
            }
        }
    }

    /// Locks the leaf that holds a key and READs it; its fences and sibling are in the buffer.
    pub(super) async fn lock_leaf_of(
        &self,
        cx: &mut OpContext,
        key: Key,
        pin: &Pin,
    ) -> Result<Option<(Held, Fences, Sibling)>, IndexError> {
        let mut at = self.locate(cx, key, pin).await?.leaf;
        // Ends: each step goes to the right.
        loop {
            let held = self.lock(cx, at, Kind::Leaf, pin).await?;
            let (fences, sibling) = self.judge_locked_leaf(cx, at).await?;
            if !sibling.is_gone() && fences.contains(key) {
                return Ok(Some((held, fences, sibling)));
            }
            self.unlock(cx, held).await?;
            self.forget_parent(cx, key).await?;
            if sibling.is_gone() || key < fences.low {
                return Ok(None);
            }
            at = sibling.next();
        }
    }

    /// READs a leaf whose lock is held.
    async fn judge_locked_leaf(&self, cx: &mut OpContext, at: RemoteAddr) -> Result<(Fences, Sibling), IndexError> {
        /// How often a leaf of claimed entries may be found torn: somebody stores a key in it each time.
        const LOOKS: u32 = 1000;
        let mut torn = 0;
        loop {
            self.read_locked_leaf(cx, at).await?;
            match self.shape().examine_all(cx.buffer()) {
                Ok(judged) => return Ok(judged),
                Err(Torn) if self.shape().has_claims() && torn < LOOKS => torn += 1,
                Err(Torn) => return Err(IndexError::NodeDamaged { at }),
            }
        }
    }

    /// Moves the upper keys of a leaf to a block; returns the first of them, or `None` if there is room by now.
    async fn split_into(
        &self,
        cx: &mut OpContext,
        key: Key,
        block: RemoteAddr,
        pin: &Pin,
    ) -> Result<Option<Key>, IndexError> {
        let shape = self.shape();
        let Some((held, fences, sibling)) = self.lock_leaf_of(cx, key, pin).await? else {
            return Ok(None);
        };
        if shape.has_room(cx.buffer(), key) {
            self.unlock(cx, held).await?;
            return Ok(None);
        }
        if shape.has_claims() {
            let before = self.close(cx, held.node, 0, Left::Nothing).await?;
            // Of entries that were claimed some have no key now, or one has this key.
            let (image, span) = (cx.buffer(), shape.span());
            if shape.find(image, key).is_some() || shape.entries(image).count() < span {
                self.reopen(cx, held, &before).await?;
                return Ok(None);
            }
        }
        let image = cx.buffer();
        let split_key = split_key(shape, image, key);
        // What is copied, and what is written again, stays what it was read as.
        self.freeze_all(cx, held.node, 0).await?;
        let version = next_version(sibling.version());
        let bytes = shape.leaf_bytes() as u32;
        // Nobody holds a lock of the new leaf.
        let right = Slice::new(bytes, shape.leaf_block_bytes() as u32);
        cx.reserve(right.range().end);
        cx.buffer_mut().copy_within(..bytes as usize, right.at as usize);
        cx.buffer_mut()[2 * bytes as usize..right.range().end].fill(0);
        let (lower, upper) = cx.buffer_mut().split_at_mut(bytes as usize);
        let (low, high) = (fences.low, fences.high);
        shape.keep(lower, |key| key < split_key);
        shape.seal(
            lower,
            Fences {
                low,
                high: split_key - 1,
            },
            leaf::sibling(block, version),
        );
        shape.keep(upper, |key| key >= split_key);
        shape.seal(
            upper,
            Fences { low: split_key, high },
            leaf::sibling(sibling.next(), version),
        );
        set_word(upper, INTENT_AT, 0);
        shape.set_key_at(lower, SPLIT_KEY_AT, split_key);
        let free = shape.vacancy(lower);

        let mut batch = Batch::new();
        batch.write(right, block);
        // Nothing is ordered across nodes.
        if block.node() != held.node.node() {
            cx.post(&mut batch).await?;
            batch.clear();
        }
        let intent = Intent::Split { right: block, version };
        for at in shape.key_words().map(|word| SPLIT_KEY_AT + word * 8) {
            batch.write_word(held.node.plus(at), word(cx.buffer(), at));
        }
        if !is_planted("tree: a split without an intent") {
            batch.write_word(held.node.plus(INTENT_AT), intent.to_word());
        }
        self.write_node(&mut batch, held.node);
        batch.write_word(held.at(), free.0);
        cx.post(&mut batch).await?;
        held.end();
        Ok(Some(split_key))
    }
}

impl Shape {
    /// Whether a key is in a leaf, or has room there.
    fn has_room(self, image: &[u8], key: Key) -> bool {
        if self.has_claims() {
            return self.find(image, key).is_some() || (0..self.span()).any(|entry| self.is_open(image, entry));
        }
        let home_at = |entry| self.home_at(image, entry);
        self.find(image, key).is_some() || self.circle().make_room(self.home(key), home_at).is_ok()
    }

    /// Vacates the entries of all other keys.
    pub(super) fn keep(self, image: &mut [u8], stays: impl Fn(Key) -> bool) {
        for entry in 0..self.span() {
            if self.taken(image, entry).is_some_and(|key| !stays(key)) {
                self.vacate(image, entry);
            }
        }
    }
}

/// The first key of the right half: as near to the middle as leaves room for the new key on its side. If nothing does, the
/// new key will find no room once more, in a leaf with fewer keys. (CHIME takes the median of the keys that could not hop.)
fn split_key(shape: Shape, image: &[u8], new: Key) -> Key {
    let mut keys: Vec<Key> = shape.entries(image).map(|(_, key)| key).collect();
    keys.push(new);
    keys.sort_unstable();
    let middle = keys.len() / 2;
    let mut candidates: Vec<Key> = keys[1..].to_vec();
    candidates.sort_by_key(|&key| keys.partition_point(|&other| other < key).abs_diff(middle));
    let has_room = |&first: &Key| {
        let home_at = |entry| {
            let key = shape.taken(image, entry)?;
            ((key >= first) == (new >= first)).then(|| shape.home(key))
        };
        shape.circle().make_room(shape.home(new), home_at).is_ok()
    };
    candidates.iter().copied().find(has_room).unwrap_or(keys[middle])
}
