//! Keys in order, samples, and everything that goes through all keys.
//!
//! On the path: range reads, SCAN, housekeeping. A range is read layer by layer: the entries of a layer stand together in the
//! tree, and one that leads to a layer is where the keys of that come. A key that is there throughout is seen once, as the
//! tree sees to it, and as a key that gets a layer is either in its old entry or in the new one.
//!
//! Whatever goes through all keys in any order (a count, a sample, a sweep that starts at random) goes through the entries of the
//! tree as they stand.

use std::collections::BTreeSet;

use farside_fabric::mutant::is_planted;
use farside_fabric::{Endpoint, OpContext, RemoteAddr};
use farside_pool::Pin;
use farside_sync::Pointer;

use super::cursors::{CURSORS_MAX, Position};
use super::part::{Layer, PART_BYTES, Part, layer_of};
use super::{Ordered, Place};
use crate::error::IndexError;
use crate::item::{Header, Item};
use crate::operation::{Change, Sampled, Wanted};
use crate::survey::{self, Surveyed};
use crate::tree::Key;
use crate::tree::change::Step;
use crate::tree::slot::{Slot, is_layer};

/// How many keys one call of a scan visits.
const KEYS_PER_CALL: usize = 64;
/// How many entries are read together.
const ENTRIES_AT_ONCE: usize = 256;

/// How far a scan has come in a layer.
struct Level {
    layer: u64,
    /// The part to go on with; `None` at the end.
    next: Option<Key>,
}

impl Ordered {
    /// Visits up to `count` items from the key `from` on, in the order of their keys, with what is wanted of them. Returns the
    /// key to go on with, `None` at the end.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub async fn range(
        &self,
        cx: &mut OpContext,
        from: &[u8],
        count: usize,
        (wanted, visit): (Wanted, &mut dyn FnMut(Item<'_>)),
    ) -> Result<Option<Vec<u8>>, IndexError> {
        if count == 0 {
            return Ok(Some(from.to_vec()));
        }
        let _pin = self.tree.pin();
        let mut levels = self.way_to(cx, from).await?;
        let mut left = count;
        let mut last = Vec::new();
        // Ends: each round goes on in a layer, into one, or out of one.
        while left > 0
            && let Some(Level { layer, next }) = levels.last_mut()
        {
            let Some(first) = *next else {
                levels.pop();
                continue;
            };
            let end = Part::first_of(*layer + 1).0;
            let (mut entries, mut below) = (Vec::new(), None);
            // One more, as the first may be smaller than `from`.
            let entries_wanted = left.saturating_add(1).min(ENTRIES_AT_ONCE);
            let visit_entry = &mut |part, word| {
                let pointer = Pointer::from_word(word);
                match below {
                    None if part < end && is_layer(pointer) => below = Some((part, layer_of(pointer))),
                    None if part < end => entries.push((RemoteAddr::NULL, pointer)),
                    _ => {}
                }
            };
            let behind = self.tree.scan(cx, first, entries_wanted, visit_entry).await?;
            *next = match below {
                Some((part, _)) => Some(part + 1),
                None => behind.filter(|&behind| behind < end),
            };
            let mut seen = 0;
            let mut look = |item: Item<'_>| {
                if item.key >= from && seen < left {
                    visit(item);
                    seen += 1;
                    last.clear();
                    last.extend_from_slice(item.key);
                }
                seen < left
            };
            self.blocks.visit_items(cx, 0, &entries, (wanted, &mut look)).await?;
            left -= seen;
            if let Some((_, layer)) = below {
                let next = Some(Part::first_of(layer).0);
                levels.push(Level { layer, next });
            }
        }
        // The key behind the last one: it, and a zero.
        last.push(0);
        Ok((left == 0).then_some(last))
    }

    /// The layers that a key leads through, each from where a scan that starts with the key has to go on.
    async fn way_to(&self, cx: &mut OpContext, key: &[u8]) -> Result<Vec<Level>, IndexError> {
        let pin = self.tree.pin();
        let (mut layer, mut depth) = (0, 0);
        let mut levels = Vec::new();
        // Ends: each round goes to a later part of the key.
        loop {
            let part = Part::of(layer, key, depth);
            let below = match part.is_longer() {
                true => self.tree.find_slot(cx, part.0, &pin).await?,
                false => None,
            };
            let below = below.filter(|slot| is_layer(slot.pointer));
            let next = Some(part.0 + Key::from(below.is_some()));
            levels.push(Level { layer, next });
            let Some(slot) = below else { return Ok(levels) };
            (layer, depth) = (layer_of(slot.pointer), depth + PART_BYTES);
        }
    }

    /// Visits the next items from `cursor` on, which is 0 at first: in the order of their keys. Returns the cursor to go on with,
    /// 0 at the end.
    ///
    /// # Errors
    /// [`IndexError::CursorUnknown`]; see there.
    pub async fn scan(
        &self,
        cx: &mut OpContext,
        cursor: u64,
        (wanted, visit): (Wanted, &mut dyn FnMut(Item<'_>)),
    ) -> Result<u64, IndexError> {
        let next = match self.position(cursor)? {
            Position::Key(key) => {
                let next = self.range(cx, &key, KEYS_PER_CALL, (wanted, visit)).await?;
                next.map(|key| Position::Key(key.into()))
            }
            Position::Part(part) => {
                let _pin = self.tree.pin();
                let (entries, next) = self.entries_from(cx, part, KEYS_PER_CALL).await?;
                let entries: Vec<_> = entries.into_iter().map(|(_, entry)| entry).collect();
                let mut look = |item: Item<'_>| {
                    visit(item);
                    true
                };
                self.blocks.visit_items(cx, 0, &entries, (wanted, &mut look)).await?;
                next.map(Position::Part)
            }
        };
        Ok(next.map_or(0, |position| self.cursors.note(position)))
    }

    fn position(&self, cursor: u64) -> Result<Position, IndexError> {
        if cursor == 0 {
            return Ok(Position::Key(Box::default()));
        }
        let known = self.cursors.position(cursor);
        known.ok_or(IndexError::CursorUnknown {
            cursor,
            kept: CURSORS_MAX,
        })
    }

    /// The key that a cursor stands for: a scan goes on with it. `None` for one of a random place.
    ///
    /// # Errors
    /// [`IndexError::CursorUnknown`].
    pub fn key_at(&self, cursor: u64) -> Result<Option<Box<[u8]>>, IndexError> {
        Ok(match self.position(cursor)? {
            Position::Key(key) => Some(key),
            Position::Part(_) => None,
        })
    }

    /// Begins an operation on the tree.
    pub(crate) fn pin(&self) -> Pin {
        self.tree.pin()
    }

    /// The entries of items from a part on, as they stand in the tree, and the part to go on with. Whoever reads the items has
    /// pinned before.
    pub(crate) async fn entries_from(
        &self,
        cx: &mut OpContext,
        part: Key,
        count: usize,
    ) -> Result<(Vec<(Part, (RemoteAddr, Pointer))>, Option<Key>), IndexError> {
        let mut entries = Vec::new();
        let visit = &mut |part, word| {
            let pointer = Pointer::from_word(word);
            if !is_layer(pointer) {
                entries.push((Part(part), (RemoteAddr::NULL, pointer)));
            }
        };
        let next = self.tree.scan(cx, part, count, visit).await?;
        Ok((entries, next))
    }

    /// Adds the pointers of items from a part on to `entries`, and notes the `layers` that entries lead to; returns the part to go
    /// on with. A layer comes after the entry that leads to it, as its number is larger. If nothing was seen that leads to one,
    /// its maker has died, and the copy in it is nobody's item; or the entry led to the item itself when it was seen. The
    /// caller has pinned.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub(crate) async fn survey(
        &self,
        cx: &mut OpContext,
        part: Key,
        layers: &mut BTreeSet<Layer>,
        entries: &mut Vec<Surveyed>,
    ) -> Result<Option<Key>, IndexError> {
        let visit = &mut |part, word| {
            let (layer, pointer) = (Part(part).layer(), Pointer::from_word(word));
            if layer != 0 && !layers.contains(&layer) && !is_planted("snapshot: items of a layer that nothing leads to")
            {
                return;
            }
            if is_layer(pointer) {
                layers.insert(layer_of(pointer));
            } else {
                entries.push((RemoteAddr::NULL, pointer));
            }
        };
        self.tree.scan(cx, part, survey::ENTRIES_AT_ONCE, visit).await
    }

    /// The cursor of a scan that starts with a key.
    #[must_use]
    pub fn cursor_at(&self, key: &[u8]) -> u64 {
        self.cursors.note(Position::Key(key.into()))
    }

    /// A random cursor: a scan from there to its end sees some of the items.
    #[must_use]
    pub fn random_cursor(&self, endpoint: &Endpoint) -> u64 {
        let part = self.tree.random_leaf(|below| endpoint.random_below(below));
        self.cursors.note(Position::Part(part))
    }

    /// Visits up to `count` items of the leaf at `cursor`, chosen at random; there may be fewer, or none. Returns the cursor of
    /// the next leaf, 0 after the last.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub async fn sample(
        &self,
        cx: &mut OpContext,
        cursor: u64,
        count: usize,
        visit: &mut dyn FnMut(Sampled<'_>),
    ) -> Result<u64, IndexError> {
        let _pin = self.tree.pin();
        let part = match self.position(cursor)? {
            Position::Key(key) => Part::of(0, &key, 0).0,
            Position::Part(part) => part,
        };
        let (entries, next) = self.entries_from(cx, part, self.tree.shape().span() / 2).await?;
        let entries = entries.into_iter().map(|(_, entry)| entry).collect();
        self.blocks.sample(cx, 0, entries, count, visit).await?;
        Ok(next.map_or(0, |part| self.cursors.note(Position::Part(part))))
    }

    /// Removes a key if its entry still holds what a sample has found there; returns whether it did.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub async fn remove_sampled(&self, cx: &mut OpContext, wanted: Sampled<'_>) -> Result<bool, IndexError> {
        self.blocks.pool.wait_at_gate(1).await?;
        let pin = self.tree.pin();
        let ((part, _), place) = self.find(cx, wanted.key, None, &pin).await?;
        let Place::Item {
            slot,
            header: header @ Header::Item { expiry_ms, .. },
            is_own: true,
            ..
        } = place
        else {
            return Ok(false);
        };
        let is_same = slot.pointer.to_word() == wanted.mark && expiry_ms == wanted.expiry_ms;
        if !is_same || slot.pointer.is_frozen() || self.blocks.is_marked(slot.pointer) {
            return Ok(false);
        }
        self.unlink(cx, part, slot, header.block_bytes(), &pin).await
    }

    /// Removes the entry of a part if it is still what was found, and retires the item; returns whether it did. Whoever finds
    /// something in the way gives up.
    async fn unlink(
        &self,
        cx: &mut OpContext,
        part: Part,
        slot: Slot,
        bytes: u64,
        pin: &Pin,
    ) -> Result<bool, IndexError> {
        let pointer = slot.pointer;
        if self.blocks.pool.notes_changes() && self.blocks.note_replaced(cx, slot.at).await? != pointer {
            return Ok(false);
        }
        let expected = Some(pointer.to_word());
        let unlinked = Box::pin(self.tree.unlink_key(cx, part.0, (Some(slot), expected), pin)).await;
        let step = unlinked.inspect_err(|_| self.blocks.pool.doubt())?;
        let is_done = matches!(step, Step::Done(Change::Deleted, _));
        if is_done {
            self.blocks.pool.retire(pointer.block(), Some(bytes));
        }
        Ok(is_done)
    }

    /// How many keys are stored, expired ones included. Keys that come or go meanwhile may be missed.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub async fn count(&self, cx: &mut OpContext) -> Result<u64, IndexError> {
        let (mut count, mut next) = (0, Some(0));
        while let Some(part) = next {
            let (entries, behind) = self.entries_from(cx, part, ENTRIES_AT_ONCE).await?;
            count += entries.len() as u64;
            next = behind;
            // Over mapped memory nothing waits, so this would keep the thread's other tasks from running.
            cx.endpoint().sleep(0).await;
        }
        Ok(count)
    }

    /// Removes every key that is there when its entry is visited; returns how many.
    ///
    /// # Errors
    /// See [`IndexError`]; some keys may be gone then.
    pub async fn clear(&self, cx: &mut OpContext) -> Result<u64, IndexError> {
        let (mut count, mut next) = (0, Some(0));
        while let Some(part) = next {
            let pin = self.tree.pin();
            let (entries, behind) = self.entries_from(cx, part, KEYS_PER_CALL).await?;
            drop(pin);
            for (part, _) in entries {
                count += u64::from(self.clear_part(cx, part).await?);
            }
            next = behind;
            cx.endpoint().sleep(0).await;
        }
        Ok(count)
    }

    /// Removes whatever item a part has; returns whether it had one.
    async fn clear_part(&self, cx: &mut OpContext, part: Part) -> Result<bool, IndexError> {
        let mut round = 0;
        // Ends: each round has removed it, or another client has changed it, or is waited for.
        loop {
            self.blocks.pool.wait_at_gate(1).await?;
            let pin = self.tree.pin();
            let Some(slot) = self.tree.find_slot(cx, part.0, &pin).await? else {
                return Ok(false);
            };
            if is_layer(slot.pointer) {
                return Ok(false);
            }
            if self.blocks.is_marked(slot.pointer) {
                self.blocks.settle(cx, slot.at, slot.pointer).await?;
            } else if slot.pointer.is_frozen() {
                self.tree.await_thaw(cx, slot, round, &pin).await?;
            } else {
                let header = self.blocks.read_item(cx, slot.at, slot.pointer, 0).await?;
                if self.unlink(cx, part, slot, header.block_bytes(), &pin).await? {
                    return Ok(true);
                }
            }
            drop(pin);
            round += 1;
        }
    }
}
