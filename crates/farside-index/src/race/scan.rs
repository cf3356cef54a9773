//! Reading all items, some groups of slots at a time; counting and removing them.
//!
//! On the path: whoever wants to see everything and can live with an order that says nothing. A split
//! copies each entry into the same place of a new subtable with as many groups. So a scan that goes
//! through the first group of all subtables, then the second of all, and so on, visits a key that is
//! there throughout exactly once, however often subtables are split meanwhile; one that comes, goes or is
//! stored anew meanwhile perhaps not, or more than once if it was removed in between.
//!
//! Subtables are visited in the order of their suffixes with the bits reversed: the two that take the
//! place of one are neighbours in it.

use farside_fabric::{Batch, Endpoint, OpContext, RemoteAddr, Slice};
use farside_sync::Pointer;

use super::layout::{
    DEPTH_MAX, DEPTH_MIN, GROUP_BYTES, GROUP_WORDS, GROUPS_AT, HEADER_WORDS, IDENTITY_AT, Identity, KeyHash, LockWord,
};
use super::subtable::Image;
use super::{ITEMS_AT, Place, Race};
use crate::error::IndexError;
use crate::item::Item;
use crate::operation::Wanted;

/// How many groups one call reads.
const GROUPS_PER_CALL: usize = 4;
/// How many slots a subtable of the usual size has at most: those are cleared together.
const CLEARED_MAX: usize = 2048;
/// How many groups a snapshot reads together.
const GROUPS_PER_SURVEY: usize = 32;
/// How many bits of a suffix come after those that decide the size of a subtable.
const POSITION_BITS: u32 = DEPTH_MAX - DEPTH_MIN;

/// How far a scan has come: the size of subtable, the group, and the suffix in reverse.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cursor {
    pub(super) part: u64,
    pub(super) group: u64,
    position: u64,
}

impl Cursor {
    pub(super) fn from_word(word: u64) -> Self {
        Self {
            part: word >> 48,
            group: word >> 32 & 0xffff,
            position: word & ((1 << POSITION_BITS) - 1),
        }
    }

    pub(super) fn to_word(self) -> u64 {
        self.part << 48 | self.group << 32 | self.position
    }

    /// A group of the subtable that a hash belongs to.
    fn of_hash(hash: u64, group: u64) -> Self {
        let upper = (hash >> DEPTH_MIN) as u32;
        Self {
            part: hash & ((1 << DEPTH_MIN) - 1),
            group,
            position: u64::from(upper.reverse_bits() >> (32 - POSITION_BITS)),
        }
    }

    /// A hash whose subtable is next.
    fn hash(self) -> u64 {
        let upper = (self.position as u32).reverse_bits() >> (32 - POSITION_BITS);
        u64::from(upper) << DEPTH_MIN | self.part
    }

    /// The next one, behind a subtable of this depth; groups and parts come after the last position.
    pub(super) fn next(mut self, depth: u32, groups: u64) -> Option<Self> {
        let step = 1 << (DEPTH_MAX - depth);
        self.position = (self.position & !(step - 1)) + step;
        if self.position >> POSITION_BITS > 0 {
            (self.position, self.group) = (0, self.group + 1);
        }
        if self.group >= groups {
            (self.group, self.part) = (0, self.part + 1);
        }
        (self.part < 1 << DEPTH_MIN).then_some(self)
    }
}

impl Race {
    /// Visits the items of the next slots from `cursor` on, which is 0 at first, with what is wanted of them. Returns the cursor
    /// to go on with, 0 at the end.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub async fn scan(
        &self,
        cx: &mut OpContext,
        cursor: u64,
        (wanted, visit): (Wanted, &mut dyn FnMut(Item<'_>)),
    ) -> Result<u64, IndexError> {
        let mut cursor = Cursor::from_word(cursor);
        let _pin = self.blocks.pool.pin();
        for _ in 0..GROUPS_PER_CALL {
            let groups = self.directory.format.groups(cursor.part);
            if cursor.part >> DEPTH_MIN > 0 || cursor.group >= groups {
                return Ok(0);
            }
            let (entries, depth) = self.read_group(cx, cursor).await?;
            let mut look = |item: Item<'_>| {
                visit(item);
                true
            };
            self.blocks
                .visit_items(cx, ITEMS_AT, &entries, (wanted, &mut look))
                .await?;
            match cursor.next(depth, groups) {
                Some(next) => cursor = next,
                None => return Ok(0),
            }
        }
        Ok(cursor.to_word())
    }

    /// Adds the entries of the next groups from `cursor` on, which is 0 at first. Returns the cursor to go on with, 0 at the end.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub(crate) async fn survey(
        &self,
        cx: &mut OpContext,
        cursor: u64,
        found: &mut Vec<(RemoteAddr, Pointer)>,
    ) -> Result<u64, IndexError> {
        let mut cursor = Cursor::from_word(cursor);
        let _pin = self.blocks.pool.pin();
        for _ in 0..GROUPS_PER_SURVEY {
            let groups = self.directory.format.groups(cursor.part);
            let (entries, depth) = self.read_group(cx, cursor).await?;
            found.extend(entries);
            match cursor.next(depth, groups) {
                Some(next) => cursor = next,
                None => return Ok(0),
            }
        }
        Ok(cursor.to_word())
    }

    /// The cursor of a scan that starts with the group of a key's first bucket.
    #[must_use]
    pub fn cursor_at(&self, key: &[u8]) -> u64 {
        let hash = self.hash(key);
        let groups = self.directory.format.groups(hash.hash);
        Cursor::of_hash(hash.hash, hash.first_group(groups)).to_word()
    }

    /// A random cursor: a scan from there to its end sees some of the items.
    #[must_use]
    pub fn random_cursor(&self, endpoint: &Endpoint) -> u64 {
        let part = endpoint.random_below(1 << DEPTH_MIN);
        let cursor = Cursor {
            part,
            group: endpoint.random_below(self.directory.format.groups(part)),
            position: endpoint.random_below(1 << POSITION_BITS),
        };
        cursor.to_word()
    }

    /// The entries of a group, and the depth of its subtable.
    pub(super) async fn read_group(
        &self,
        cx: &mut OpContext,
        cursor: Cursor,
    ) -> Result<(Vec<(RemoteAddr, Pointer)>, u32), IndexError> {
        let mut place = self.place(cx, KeyHash::from_hash(cursor.hash())).await?;
        // As SEARCH.
        loop {
            let group = place.subtable.plus(GROUPS_AT + cursor.group * GROUP_BYTES);
            let mut batch = Batch::new();
            batch.read(group, Slice::first(GROUP_BYTES as u32));
            let identity = batch.read_word(place.subtable.plus(IDENTITY_AT));
            cx.post(&mut batch).await?;
            let identity = Identity(batch.result(identity));
            if !identity.covers(cursor.hash()) {
                return Err(IndexError::SubtableDamaged { at: place.subtable });
            }
            let (words, _) = cx.buffer()[..GROUP_BYTES as usize].as_chunks::<8>();
            let words: Vec<u64> = words.iter().map(|&word| u64::from_le_bytes(word)).collect();
            cx.rely_on_words();
            let is_closed = HEADER_WORDS
                .iter()
                .any(|&header| words[header as usize] == LockWord::CLOSED.0);
            if is_closed && let Some(next) = self.follow(cx, &place).await? {
                place = next;
                continue;
            }
            let entries = (0..GROUP_WORDS)
                .filter(|word| !HEADER_WORDS.contains(word))
                .map(|word| (group.plus(word * 8), Pointer::from_word(words[word as usize])));
            let entries = entries.filter(|(_, pointer)| !pointer.is_null()).collect();
            return Ok((entries, identity.depth() as u32));
        }
    }

    /// How many keys are stored, expired ones included. Keys that come or go meanwhile may be missed.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub async fn count(&self, cx: &mut OpContext) -> Result<u64, IndexError> {
        let mut count = 0;
        let mut position = Some(0);
        while let Some(at) = position {
            let _pin = self.blocks.pool.pin();
            let (_, entries, next) = self.read_subtable(cx, at).await?;
            count += entries.len() as u64;
            position = next;
        }
        Ok(count)
    }

    /// Removes every key that is there when its slot is visited; returns how many.
    ///
    /// # Errors
    /// See [`IndexError`]; some keys may be gone then.
    pub async fn clear(&self, cx: &mut OpContext) -> Result<u64, IndexError> {
        let mut count = 0;
        let (mut position, mut round) = (Some(0), 0);
        // Ends with the last subtable; one is read again when others have changed it meanwhile.
        while let Some(at) = position {
            let pin = self.blocks.pool.pin_to_change(CLEARED_MAX).await?;
            let (place, mut entries, next) = self.read_subtable(cx, at).await?;
            for (slot, pointer) in &mut entries {
                *pointer = self.blocks.settle(cx, *slot, *pointer).await?;
            }
            entries.retain(|(_, pointer)| !pointer.is_null());
            let mut old = Vec::new();
            self.blocks
                .read_items(cx, ITEMS_AT, &entries, &mut |slot, pointer, header, _, _| {
                    old.push((slot, pointer, header.block_bytes()));
                    true
                })
                .await?;
            let mut is_clear = true;
            for (slot, pointer, bytes) in old {
                let empty = pointer.emptied(self.blocks.pool.epoch());
                if pointer.is_frozen() || !self.blocks.publish(cx, slot, pointer, empty).await?.is_replaced() {
                    is_clear = false;
                    continue;
                }
                self.blocks.pool.retire(pointer.block(), Some(bytes));
                count += 1;
            }
            drop(pin);
            if is_clear {
                (position, round) = (next, 0);
            } else {
                self.await_split(cx, &place, round).await?;
                round += 1;
            }
            // Over mapped memory nothing waits, so this would keep the thread's other tasks from running.
            cx.endpoint().sleep(0).await;
        }
        Ok(count)
    }

    /// The entries of the subtable at a position, and the position of the next one. The caller has pinned.
    pub(super) async fn read_subtable(
        &self,
        cx: &mut OpContext,
        position: u64,
    ) -> Result<(Place, Vec<(RemoteAddr, Pointer)>, Option<u64>), IndexError> {
        let hash = u64::from((position as u32).reverse_bits());
        let mut place = self.place(cx, KeyHash::from_hash(hash)).await?;
        loop {
            let bytes = self.directory.format.image_bytes(hash);
            let image = Image::read(cx, place.subtable, bytes).await?;
            let identity = image.identity();
            if !identity.covers(hash) {
                return Err(IndexError::SubtableDamaged { at: place.subtable });
            }
            if image.is_closed()
                && let Some(next) = self.follow(cx, &place).await?
            {
                place = next;
                continue;
            }
            let next = position + (1 << (DEPTH_MAX - identity.depth() as u32));
            let next = Some(next).filter(|next| next >> DEPTH_MAX == 0);
            return Ok((place, image.entries(place.subtable), next));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn cursors_of_a_hash_lead_back_to_it(hash: u64, group in 0_u64..1000) {
            let cursor = Cursor::of_hash(hash, group);
            prop_assert_eq!(Cursor::from_word(cursor.to_word()), cursor);
            prop_assert_eq!((cursor.hash(), cursor.group), (hash & ((1 << DEPTH_MAX) - 1), group));
        }

        #[test]
        fn cursors_pass_every_subtable_once(splits in proptest::collection::vec(any::<u64>(), 0..40), groups in 2_u64..5) {
            let mut tables: Vec<Identity> = (0..4).map(|suffix| Identity::new(2, suffix)).collect();
            for split in splits {
                let old = tables.swap_remove(split as usize % tables.len());
                tables.extend(old.children());
            }
            let mut seen = Vec::new();
            let mut cursor = Some(Cursor::from_word(0));
            while let Some(at) = cursor {
                prop_assert_eq!(Cursor::from_word(at.to_word()), at);
                let table = tables.iter().find(|table| table.covers(at.hash())).expect("they cover everything");
                seen.push((at.part, at.group, table.0));
                cursor = at.next(table.depth() as u32, groups);
            }
            prop_assert_eq!(seen.len() as u64, tables.len() as u64 * groups);
            seen.sort_unstable();
            seen.dedup();
            prop_assert_eq!(seen.len() as u64, tables.len() as u64 * groups);
        }
    }
}
