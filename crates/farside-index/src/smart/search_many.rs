//! SEARCH of several keys at once: a batch of READs for each step, all keys in one doorbell.
//!
//! On the path: MGET, bursts of GETs, `get_many`. First the entries of all, and with each the item that it led to last; then what they
//! lead to: nodes that this client does not remember, and items. Over mapped memory the cache misses of a step overlap. A key of
//! which something unusual is found takes a SEARCH of its own.

use arrayvec::ArrayVec;
use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, OpContext, Slice};
use farside_sync::Pointer;

use super::Smart;
use super::descend::{Image, Next, Slot};
use super::layout::{Course, is_frozen, is_item, is_node, kind_of, node_of};
use crate::error::IndexError;
use crate::operation::{KEYS_AT_ONCE, Searched, SearchedKeys};

/// How much of the buffer each key has; longer items and larger nodes are left to a SEARCH of its own.
const AREA_BYTES: u32 = 1024;

/// What a key waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Its entry; whether the item that it led to was asked for with it.
    Entry { slot: Slot, has_item: bool },
    /// The node that this entry leads to.
    Node(Slot),
    /// The item of its entry.
    Item(Slot),
    /// Nothing any more.
    End(Searched),
}

/// What each key of a SEARCH waits for; kept by the caller, so that it costs no allocation.
pub(crate) type Steps = ArrayVec<Step, KEYS_AT_ONCE>;

impl Smart {
    /// SEARCH of up to [`KEYS_AT_ONCE`] keys. The values are left in the context's buffer.
    ///
    /// # Errors
    /// What the fabric reports; nothing is known about any of the keys then.
    ///
    /// # Panics
    /// If there are more keys.
    pub(crate) async fn search_many(
        &self,
        cx: &mut OpContext,
        keys: &[&[u8]],
        (batch, steps): (&mut Batch, &mut Steps),
        results: &mut SearchedKeys,
    ) -> Result<(), IndexError> {
        results.clear();
        steps.clear();
        cx.reserve(KEYS_AT_ONCE * AREA_BYTES as usize);
        let _pin = self.pin();
        let speculates = !cx.endpoint().is_mapped();
        steps.extend(keys.iter().map(|key| match self.known_slot(key) {
            None => Step::End(Searched::Apart),
            Some(slot) => {
                // As for a single key: verbs keep their order on one node only.
                let is_near = slot.word.block().node() == slot.node.node();
                let has_item = speculates && is_item(slot.word) && is_near;
                Step::Entry { slot, has_item }
            }
        }));
        // Ends: each round but the first brings each key an item, or a node that is deeper.
        loop {
            batch.clear();
            let mut entries = ArrayVec::<_, KEYS_AT_ONCE>::new();
            for (index, step) in steps.iter().enumerate() {
                entries.push(match *step {
                    Step::Entry { slot, has_item } => {
                        let _ = cx.approach(slot.at(), 8);
                        let entry = batch.read_word(slot.at());
                        if has_item {
                            batch.speculate(slot.word.block(), self.item_area(index, slot.word));
                        }
                        Some(entry)
                    }
                    Step::Node(slot) => {
                        let area = node_area(index, slot.word);
                        let _ = cx.approach(node_of(slot.word), area.bytes);
                        batch.read(node_of(slot.word), area);
                        None
                    }
                    Step::Item(slot) => {
                        let area = self.item_area(index, slot.word);
                        let _ = cx.approach(slot.word.block(), area.bytes);
                        batch.read(slot.word.block(), area);
                        None
                    }
                    Step::End(_) => None,
                });
            }
            if batch.verbs().is_empty() {
                break;
            }
            cx.post(batch).await?;
            for (index, step) in steps.iter_mut().enumerate() {
                *step = match *step {
                    Step::Entry { slot, has_item } => {
                        let entry = entries[index].expect("it was asked for");
                        let word = Pointer::from_word(batch.result(entry));
                        let area = self.item_area(index, slot.word);
                        if !is_frozen(word) {
                            self.remember(slot.version, |cache| cache.note(slot.node, slot.place, word));
                        }
                        if has_item && word == slot.word {
                            self.judge(cx, (index, keys[index]), &slot)
                        } else {
                            if has_item {
                                cx.rely_on_within(area, Slice::new(0, 0));
                            }
                            self.next_step(keys[index], Slot { word, ..slot })
                        }
                    }
                    Step::Node(slot) => self.look_into(cx, (index, keys[index]), &slot),
                    Step::Item(slot) => self.judge(cx, (index, keys[index]), &slot),
                    Step::End(searched) => Step::End(searched),
                };
            }
        }
        results.extend(steps.iter().map(|step| match step {
            Step::End(searched) => *searched,
            Step::Entry { .. } | Step::Node(_) | Step::Item(_) => unreachable!("nothing is left to read"),
        }));
        Ok(())
    }

    /// Where the item of a key goes in the buffer.
    fn item_area(&self, index: usize, pointer: Pointer) -> Slice {
        Slice::new(index as u32 * AREA_BYTES, self.blocks.readable(pointer).min(AREA_BYTES))
    }

    /// Whether an item is the key's.
    fn judge(&self, cx: &mut OpContext, (index, key): (usize, &[u8]), slot: &Slot) -> Step {
        let area = self.item_area(index, slot.word);
        let entry = (slot.at(), slot.word);
        let (searched, used) = self.blocks.judge_item(cx.buffer(), entry, area, key);
        cx.rely_on_within(area, used);
        Step::End(match searched {
            Searched::Absent => self.absent(slot, key),
            searched => searched,
        })
    }

    /// What a key waits for whose entry has been read just now.
    fn next_step(&self, key: &[u8], mut slot: Slot) -> Step {
        // Ends: each round goes to a node that is deeper.
        loop {
            if is_frozen(slot.word) {
                let is_absent = is_planted("smart: a group that takes a frozen entry for empty");
                return Step::End(Searched::apart_unless(is_absent));
            }
            if slot.word.is_null() {
                // It was never there, or is gone.
                return Step::End(self.absent(&slot, key));
            }
            if !is_node(slot.word) {
                return Step::Item(slot);
            }
            match self.known_step(key, slot.word, (slot.known(), slot.has_gap)) {
                Some(Next::Enter(next)) => slot = next,
                Some(Next::Look(slot)) => return Step::Entry { slot, has_item: false },
                None if kind_of(slot.word).bytes() > AREA_BYTES => return Step::End(Searched::Apart),
                None => return Step::Node(slot),
            }
        }
    }

    /// What a key waits for, now that the node has been read to which `parent` leads.
    fn look_into(&self, cx: &mut OpContext, (index, key): (usize, &[u8]), parent: &Slot) -> Step {
        let (addr, area) = (node_of(parent.word), node_area(index, parent.word));
        let image = Image::decode(cx.buffer(), area.at as usize, area.bytes as usize);
        // Of what was read each word stands for itself.
        cx.rely_on_within(area, Slice::new(0, 0));
        let (header, known) = (image.header, parent.known());
        let is_whole = header.is_sound(known) && header.kind().bytes() <= area.bytes;
        if !is_whole || image.is_frozen() || header.course(key, known) != Course::Same {
            return Step::End(Searched::Apart);
        }
        let has_gap = parent.has_gap || header.has_gap(known);
        self.remember_node(parent.version, addr, &image, has_gap);
        let depth = header.depth();
        let Some(place) = image.place(key.get(depth).copied()) else {
            return Step::End(Searched::Apart);
        };
        let slot = Slot {
            node: addr,
            place,
            word: image.entries[place],
            depth,
            has_gap,
            version: parent.version,
        };
        self.next_step(key, slot)
    }

    /// Over mapped memory: asks for the entries of keys in the first node, with which their ways begin. It is a hint.
    pub(crate) fn approach(&self, cx: &OpContext, keys: &[&[u8]]) {
        for slot in keys.iter().filter_map(|key| self.known_slot(key)) {
            let _ = cx.approach(slot.at(), 8);
        }
    }

    /// The entry of a key as this client remembers it, if it does.
    fn known_slot(&self, key: &[u8]) -> Option<Slot> {
        let (mut entry, mut known, mut has_gap) = (self.shared.root.get()?, 0, false);
        // Ends: each round goes to a node that is deeper.
        loop {
            match self.known_step(key, entry, (known, has_gap))? {
                Next::Enter(slot) => (entry, known, has_gap) = (slot.word, slot.known(), slot.has_gap),
                Next::Look(slot) => return Some(slot),
            }
        }
    }

    /// What an entry says of a key that is not there: where bytes are skipped on the way to it, the key may be somewhere else by
    /// now.
    fn absent(&self, slot: &Slot, key: &[u8]) -> Searched {
        let is_sure = !slot.has_gap || self.is_on_way(Some(slot.node), key);
        match is_sure || is_planted("smart: a way with a gap believed") {
            true => Searched::Absent,
            false => Searched::Apart,
        }
    }
}

/// Where the node goes in the buffer to which an entry leads.
fn node_area(index: usize, entry: Pointer) -> Slice {
    Slice::new(index as u32 * AREA_BYTES, kind_of(entry).bytes())
}
