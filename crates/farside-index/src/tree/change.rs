//! INSERT, UPDATE and DELETE.
//!
//! On the path: under the lock of the leaf. Three round trips if the parent is remembered: lock, READ, WRITE with unlock.

use arrayvec::ArrayVec;
use farside_fabric::batch::BATCH_VERBS_MAX;
use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, OpContext, RemoteAddr, Slice, Verb};
use farside_pool::Pin;
use farside_sync::Pointer;

use super::Tree;
use super::layout::{Key, Shape};
use super::lock::{GIVE_BACK_VERBS, Held};
use super::slot::{Slot, emptied};
use super::words::LockWord;
use crate::chime::hopscotch::Room;
use crate::error::IndexError;
use crate::item::Item;
use crate::operation::Change;

/// What is done with a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    /// It gets a value, whether it is there or not.
    Put(u64),
    /// It gets a value if it is there.
    Update(u64),
    /// It gets a value if it is not there.
    Insert(u64),
    /// It goes.
    Delete,
    /// It goes, if this is its value and not `None`: a data pointer, which others may replace meanwhile. See
    /// [`Tree::unlink_key`].
    Unlink(Option<u64>),
}

impl Wish {
    fn may_insert(self) -> Option<u64> {
        match self {
            Self::Put(value) | Self::Insert(value) => Some(value),
            Self::Update(_) | Self::Delete | Self::Unlink(_) => None,
        }
    }
}

/// What came of an attempt.
pub(crate) enum Step {
    /// With the value that was there before.
    Done(Change, u64),
    /// The leaf is another one by now.
    Again,
    /// No room.
    Full(RemoteAddr),
    /// The entries that there are rest.
    Resting,
}

/// How long to wait for an entry that rests.
const REST_NS: u64 = 50_000;

impl Tree {
    /// Stores a value under a key, whether the key is there or not.
    pub async fn put(&self, cx: &mut OpContext, key: impl Into<Key>, value: u64) -> Result<Change, IndexError> {
        self.change(cx, key.into(), Wish::Put(value)).await
    }

    /// INSERT: stores a value under a key that is not there; returns whether it was stored.
    pub async fn insert(&self, cx: &mut OpContext, key: impl Into<Key>, value: u64) -> Result<bool, IndexError> {
        Ok(self.change(cx, key.into(), Wish::Insert(value)).await? == Change::Inserted)
    }

    /// UPDATE: replaces the value of a key that is there; returns whether it was.
    pub async fn update(&self, cx: &mut OpContext, key: impl Into<Key>, value: u64) -> Result<bool, IndexError> {
        Ok(self.change(cx, key.into(), Wish::Update(value)).await? == Change::Updated)
    }

    /// DELETE: removes a key; returns whether it was there.
    pub async fn delete(&self, cx: &mut OpContext, key: impl Into<Key>) -> Result<bool, IndexError> {
        Ok(self.change(cx, key.into(), Wish::Delete).await? == Change::Deleted)
    }

    async fn change(&self, cx: &mut OpContext, key: Key, wish: Wish) -> Result<Change, IndexError> {
        assert!(!self.shape().has_pointers(), "values of this tree are data pointers");
        match (self.shared.local.get(), wish) {
            (Some(local), Wish::Put(_) | Wish::Update(_)) => Box::pin(self.change_shared(cx, key, wish, local)).await,
            _ => Ok(self.change_alone(cx, key, wish).await?.0),
        }
    }

    /// Also returns what the value was before.
    pub(super) async fn change_alone(
        &self,
        cx: &mut OpContext,
        key: Key,
        wish: Wish,
    ) -> Result<(Change, u64), IndexError> {
        // Ends: each failure means that another client has made progress, or that the leaf was split.
        loop {
            let pin = self.pin();
            let step = self.attempt(cx, key, wish, None, &pin).await?;
            drop(pin);
            match step {
                Step::Done(change, old) => return Ok((change, old)),
                step => self.prepare(cx, key, step).await?,
            }
        }
    }

    /// Clears away what an attempt has found in its way. The caller is not pinned.
    pub(crate) async fn prepare(&self, cx: &mut OpContext, key: Key, step: Step) -> Result<(), IndexError> {
        match step {
            Step::Done(..) => {}
            Step::Again => cx.count_retry(),
            Step::Resting => {
                cx.count_retry();
                cx.endpoint().sleep(REST_NS).await;
            }
            Step::Full(leaf) => Box::pin(self.make_room(cx, leaf, key)).await?,
        }
        Ok(())
    }

    /// One attempt, pinned from its first READ to the end. An item that the new value points to is written to its block while
    /// the leaf is read: whatever comes of the attempt, unless it fails, that WRITE has been done or was not begun.
    pub(crate) async fn attempt(
        &self,
        cx: &mut OpContext,
        key: Key,
        wish: Wish,
        mut item: Option<(Item<'_>, RemoteAddr)>,
        pin: &Pin,
    ) -> Result<Step, IndexError> {
        let shape = self.shape();
        if shape.has_claims()
            && let Some(value) = wish.may_insert()
        {
            return Box::pin(self.insert_beside(cx, (key, value), item, pin)).await;
        }
        let home = shape.home(key);
        let place = self.locate(cx, key, pin).await?;
        let mut leaf = place.leaf;
        cx.reserve(shape.leaf_bytes() as usize);
        // Ends: each round goes to the right, or is the last.
        loop {
            let whole = shape.segments(home, shape.circle().neighbourhood());
            let wanted = if shape.is_hashed() { &[] } else { &whole[..] };
            let mut held = self.lock_in_turn(cx, leaf, wanted, pin).await?;
            // A key that is where it was last time is in its leaf, whatever the parent knows.
            if let Wish::Update(value) = wish
                && let Some((entry, _)) = self.speculate(cx, leaf, key).await?
            {
                return self.overwrite(cx, held, entry, (key, value)).await;
            }
            let range = match wish.may_insert() {
                Some(_) if self.shared.without.get().vacancy => shape.span(),
                Some(_) => shape.hop_range(home, held.free),
                None => shape.circle().neighbourhood(),
            };
            let has_read = core::mem::take(&mut held.has_read);
            if !has_read || item.is_some() {
                self.read_locked_range(cx, leaf, (home, range), item.take()).await?;
            }
            let judged = shape.examine(cx.buffer(), home);
            let sibling = judged.map_err(|_| IndexError::NodeDamaged { at: leaf })?;
            if sibling.is_gone() {
                self.unlock(cx, held).await?;
                self.go_elsewhere(cx, place, key).await?;
                return Ok(Step::Again);
            }
            let found = shape.find(cx.buffer(), key);
            if sibling.next() != place.next && place.is_remembered {
                self.forget_parent(cx, key).await?;
            }
            // A split may have moved the key on (a half split, or a parent that was remembered).
            if found.is_none() && sibling.next() != place.next {
                let high = self.read_high(cx, leaf).await?;
                if key > high {
                    self.unlock(cx, held).await?;
                    if !place.is_remembered {
                        self.complete_later(None, sibling.next(), (0, high + 1), pin);
                    }
                    leaf = sibling.next();
                    continue;
                }
            }
            return match (found, wish) {
                (Some(entry), Wish::Put(value) | Wish::Update(value)) => {
                    self.overwrite(cx, held, entry, (key, value)).await
                }
                (Some(entry), Wish::Delete) => self.remove(cx, held, entry, key, place.next).await,
                (Some(entry), Wish::Unlink(expected)) => {
                    self.unlink(cx, held, (entry, key), expected, place.next).await
                }
                (None, Wish::Put(value) | Wish::Insert(value)) => self.add(cx, held, (home, range), (key, value)).await,
                (Some(_), Wish::Insert(_)) | (None, Wish::Update(_) | Wish::Delete | Wish::Unlink(_)) => {
                    self.unlock(cx, held).await?;
                    Ok(Step::Done(Change::Kept, 0))
                }
            };
        }
    }

    /// DELETE of a key in a tree of data pointers, one attempt, as [`Tree::attempt`]: if its pointer is the expected one, or whatever it
    /// is. `slot` says where it was found, if it was looked for under this pin.
    pub(crate) async fn unlink_key(
        &self,
        cx: &mut OpContext,
        key: Key,
        (slot, expected): (Option<Slot>, Option<u64>),
        pin: &Pin,
    ) -> Result<Step, IndexError> {
        match slot {
            _ if !self.shape().has_claims() => self.attempt(cx, key, Wish::Unlink(expected), None, pin).await,
            Some(slot) => self.unlink_beside(cx, key, slot, expected).await,
            None => self.unlink_found(cx, key, pin).await,
        }
    }

    /// READs the upper fence of a leaf whose lock is held.
    async fn read_high(&self, cx: &mut OpContext, leaf: RemoteAddr) -> Result<Key, IndexError> {
        let at = leaf.plus(self.shape().high_at());
        let mut batch = Batch::new();
        let words = self.shape().key_words().map(|word| batch.read_word(at.plus(word * 8)));
        let words: ArrayVec<_, 2> = words.collect();
        cx.post(&mut batch).await?;
        Ok(words
            .into_iter()
            .fold(0, |key, word| key << 64 | Key::from(batch.result(word))))
    }

    /// READs entries of a leaf whose lock is held, with the header if there are no replicas of it. In the same round trip an item
    /// is written to its block.
    async fn read_locked_range(
        &self,
        cx: &mut OpContext,
        leaf: RemoteAddr,
        (first, count): (usize, usize),
        item: Option<(Item<'_>, RemoteAddr)>,
    ) -> Result<(), IndexError> {
        let shape = self.shape();
        let header = (shape.is_hashed() && self.shared.without.get().replicas).then(|| shape.fence_slice());
        let segments: ArrayVec<_, 3> = header.into_iter().chain(shape.segments(first, count)).collect();
        let mut batch = Batch::new();
        for &segment in &segments {
            batch.read(leaf.plus(segment.at.into()), segment);
        }
        self.add_item(cx, &mut batch, item);
        cx.post(&mut batch).await?;
        for segment in segments {
            // Only the holder of the lock writes them.
            cx.rely_on_within(segment, segment);
        }
        Ok(())
    }

    /// Adds the WRITE of an item to its block, which stands behind the leaf in the buffer.
    pub(super) fn add_item(&self, cx: &mut OpContext, batch: &mut Batch, item: Option<(Item<'_>, RemoteAddr)>) {
        if let Some((item, block)) = item.filter(|_| !is_planted("ordered: an entry whose item is not written")) {
            let behind = Slice::new(self.shape().leaf_bytes() as u32, item.bytes() as u32);
            cx.reserve(behind.range().end);
            item.encode(&mut cx.buffer_mut()[behind.range()]);
            batch.write(behind, block);
        }
    }

    /// One WRITE of the entry, and the unlock.
    async fn overwrite(
        &self,
        cx: &mut OpContext,
        mut held: Held,
        entry: usize,
        (key, value): (Key, u64),
    ) -> Result<Step, IndexError> {
        let shape = self.shape();
        let old = shape.value(cx.buffer(), entry);
        shape.put(cx.buffer_mut(), entry, key, value);
        let at = shape.entry_at(entry);
        let mut batch = Batch::new();
        batch.write(Slice::new(at as u32, shape.entry_bytes() as u32), held.node.plus(at));
        let free = held.free;
        held.give_back(&mut batch, free);
        cx.post(&mut batch).await?;
        held.end();
        Ok(Step::Done(Change::Updated, old))
    }

    /// The pointer goes first, as others may replace it: who reads the entry from then on finds no key.
    async fn unlink(
        &self,
        cx: &mut OpContext,
        held: Held,
        (entry, key): (usize, Key),
        expected: Option<u64>,
        next: RemoteAddr,
    ) -> Result<Step, IndexError> {
        let shape = self.shape();
        let at = held.node.plus(shape.value_at(entry));
        let mut old = shape.value(cx.buffer(), entry);
        // Ends: another client has replaced the pointer each time.
        loop {
            if expected.is_some_and(|expected| expected != old) {
                self.unlock(cx, held).await?;
                return Ok(Step::Done(Change::Kept, old));
            }
            let pointer = self
                .settle_entry(cx, held.node, (entry, Pointer::from_word(old)))
                .await?;
            let empty = emptied(pointer, self.pool().epoch());
            old = pointer.to_word();
            let seen = cx.compare_swap(at, old, empty.to_word()).await?;
            if seen == old {
                break;
            }
            old = seen;
        }
        let step = self.remove(cx, held, entry, key, next).await?;
        Ok(match step {
            Step::Done(change, _) => Step::Done(change, old),
            other => other,
        })
    }

    /// The entry becomes vacant, then its home knows.
    async fn remove(
        &self,
        cx: &mut OpContext,
        mut held: Held,
        entry: usize,
        key: Key,
        next: RemoteAddr,
    ) -> Result<Step, IndexError> {
        let (shape, leaf) = (self.shape(), held.node);
        if !is_planted("tree: a deleted key that its home still names") {
            shape.flip(cx.buffer_mut(), entry, key);
        }
        let vacated = shape.vacated(cx.buffer(), entry);
        let old = shape.value(cx.buffer(), entry);
        shape.set_meta(cx.buffer_mut(), entry, vacated);
        let free = LockWord(held.free.0 | 1 << shape.vacancy_bit(entry));
        let mut batch = Batch::new();
        batch.write_word(leaf.plus(shape.entry_at(entry)), vacated.0);
        let home = shape.home(key);
        if shape.is_hashed() && home != entry {
            batch.write_word(leaf.plus(shape.entry_at(home)), shape.meta(cx.buffer(), home).0);
        }
        held.give_back(&mut batch, free);
        cx.post(&mut batch).await?;
        held.end();
        if !next.is_null() || self.height() > 0 {
            let bits = shape.vacancy_bit(shape.span() - 1) + 1;
            self.consider_merge(leaf, key, bits - free.0.count_ones() as usize);
        }
        Ok(Step::Done(Change::Deleted, old))
    }

    /// Puts a key where there is room, others hop out of the way.
    async fn add(
        &self,
        cx: &mut OpContext,
        mut held: Held,
        (home, mut range): (usize, usize),
        (key, value): (Key, u64),
    ) -> Result<Step, IndexError> {
        let (shape, leaf) = (self.shape(), held.node);
        let is_vacant = |image: &[u8], range: usize| {
            let mut entries = (0..range).map(|steps| shape.circle().after(home, steps));
            entries.any(|entry| shape.taken(image, entry).is_none())
        };
        // The lock word says of some entries together that one of them may be vacant.
        if !is_vacant(cx.buffer(), range) && held.free.0 != 0 && range < shape.span() {
            range = shape.span();
            self.read_locked_range(cx, leaf, (home, range), None).await?;
        }
        let image = cx.buffer();
        let room = if is_vacant(image, range) {
            shape.circle().make_room(home, |entry| shape.home_at(image, entry)).ok()
        } else {
            None
        };
        let Some(room) = room else {
            self.unlock(cx, held).await?;
            return Ok(Step::Full(leaf));
        };
        let targets = room.hops.iter().map(|hop| hop.to).chain([room.at]);
        let movers: Vec<usize> = room.hops.iter().map(|hop| hop.from).collect();
        // Those that were vacant before.
        let vacant: Vec<usize> = targets.filter(|entry| !movers.contains(entry)).collect();
        if self.must_rest(cx, leaf, &vacant).await? {
            self.unlock(cx, held).await?;
            return Ok(Step::Resting);
        }
        self.freeze(cx, leaf, 0, movers).await?;
        let verbs = plan(shape, cx.buffer_mut(), &room, (key, value), leaf);
        let free = shape.vacancy_after(cx.buffer(), held.free, (home, range), &room);
        let mut batch = Batch::new();
        for verb in verbs {
            if batch.verbs().len() == BATCH_VERBS_MAX {
                cx.post(&mut batch).await?;
                batch.clear();
            }
            batch.push(verb);
        }
        if batch.verbs().len() + GIVE_BACK_VERBS > BATCH_VERBS_MAX {
            cx.post(&mut batch).await?;
            batch.clear();
        }
        held.give_back(&mut batch, free);
        if !batch.verbs().is_empty() {
            cx.post(&mut batch).await?;
        }
        held.end();
        Ok(Step::Done(Change::Inserted, 0))
    }
}

impl Shape {
    /// How many entries from the home on an INSERT reads: the neighbourhood, and as far as the lock word says that there
    /// may be a vacant entry.
    fn hop_range(self, home: usize, free: LockWord) -> usize {
        let least = self.circle().neighbourhood();
        let may_be_vacant = |steps: &usize| free.0 >> self.vacancy_bit(self.circle().after(home, *steps)) & 1 == 1;
        let Some(first) = (0..self.span()).find(may_be_vacant) else {
            return least;
        };
        let bit = self.vacancy_bit(self.circle().after(home, first));
        let is_same = |steps: &usize| self.vacancy_bit(self.circle().after(home, *steps)) == bit;
        let end = (first..self.span())
            .take_while(is_same)
            .last()
            .expect("the first is the same")
            + 1;
        end.max(least)
    }

    /// What the lock word says once an entry was taken: the bit goes if every entry of it is known to be taken.
    fn vacancy_after(self, image: &[u8], free: LockWord, (home, range): (usize, usize), room: &Room) -> LockWord {
        let taken = room.hops.first().map_or(room.at, |hop| hop.to);
        let bit = self.vacancy_bit(taken);
        let is_taken = |entry: usize| self.circle().steps(home, entry) < range && self.taken(image, entry).is_some();
        let mut of_bit = (0..self.span()).filter(|&entry| self.vacancy_bit(entry) == bit);
        if of_bit.all(is_taken) {
            LockWord(free.0 & !(1 << bit))
        } else {
            free
        }
    }
}

/// Changes the image of a leaf so that it holds a new key; returns the WRITEs in their order: each key that hops is written
/// to its new place, then taken from the old one; the new key; the bitmaps.
fn plan(shape: Shape, image: &mut [u8], room: &Room, (key, value): (Key, u64), leaf: RemoteAddr) -> Vec<Verb> {
    let mut homes = Vec::new();
    for hop in &room.hops {
        let moved = (shape.key(image, hop.from), shape.value(image, hop.from));
        shape.flip(image, hop.from, moved.0);
        shape.put(image, hop.to, moved.0, moved.1);
        shape.flip(image, hop.to, moved.0);
        homes.push(shape.home(moved.0));
    }
    shape.put(image, room.at, key, value);
    shape.flip(image, room.at, key);
    homes.push(shape.home(key));

    let mut verbs = Vec::new();
    let mut write = |entry: usize, image: &[u8]| {
        let at = shape.entry_at(entry);
        verbs.push(Verb::Write {
            source: Slice::new(at as u32 + 8, shape.entry_bytes() as u32 - 8),
            target: leaf.plus(at + 8),
        });
        verbs.push(Verb::WriteWord {
            target: leaf.plus(at),
            value: shape.meta(image, entry).0,
        });
    };
    for hop in &room.hops {
        write(hop.to, image);
    }
    write(room.at, image);
    // Between the two WRITEs of a pair an entry that is left becomes vacant: before key and value of the next one come.
    let mut ordered = Vec::with_capacity(verbs.len() + room.hops.len() + homes.len());
    for (index, pair) in verbs.chunks(2).enumerate() {
        ordered.extend_from_slice(pair);
        if let Some(hop) = room.hops.get(index) {
            ordered.push(Verb::WriteWord {
                target: leaf.plus(shape.entry_at(hop.from)),
                value: shape.vacated(image, hop.from).0,
            });
        }
    }
    homes.sort_unstable();
    homes.dedup();
    homes.retain(|&home| home != room.at && room.hops.iter().all(|hop| hop.to != home));
    if shape.is_hashed() {
        ordered.extend(homes.into_iter().map(|home| Verb::WriteWord {
            target: leaf.plus(shape.entry_at(home)),
            value: shape.meta(image, home).0,
        }));
    }
    ordered
}

#[cfg(test)]
mod tests;
