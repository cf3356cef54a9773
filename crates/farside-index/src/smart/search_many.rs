//! SEARCH of several keys at once: a batch of READs for each step, all keys in one doorbell.
//!
//! On the path: MGET, bursts of GETs, `get_many`. 1. The entries of all, and with each the item that it led to last; 2. the items of
//! those that lead to another one by now. A key whose entry this client does not remember takes a SEARCH of its own.

use arrayvec::ArrayVec;
use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, OpContext, Slice};
use farside_sync::Pointer;

use super::Smart;
use super::descend::{Next, Slot};
use super::layout::{is_frozen, is_item, is_node, node_of};
use crate::error::IndexError;
use crate::operation::{KEYS_AT_ONCE, Searched, SearchedKeys};

/// How much of the buffer the item of each key has; longer items are left to a SEARCH of their own.
const ITEM_BYTES: u32 = 1024;

/// What a key waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Its entry; whether the item that it led to was asked for with it.
    Entry { slot: Slot, has_item: bool },
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
        batch.clear();
        steps.clear();
        let area_of = |index: usize, pointer: Pointer| {
            Slice::new(index as u32 * ITEM_BYTES, self.blocks.readable(pointer).min(ITEM_BYTES))
        };
        cx.reserve(KEYS_AT_ONCE * ITEM_BYTES as usize);
        let _pin = self.pin();
        let speculates = !cx.endpoint().is_mapped();
        let mut entries = ArrayVec::<_, KEYS_AT_ONCE>::new();
        for (index, key) in keys.iter().enumerate() {
            let slot = self.known_slot(key);
            entries.push(slot.map(|slot| batch.read_word(slot.at())));
            steps.push(match slot {
                None => Step::End(Searched::Apart),
                Some(slot) => {
                    // As for a single key: verbs keep their order on one node only.
                    let is_near = slot.word.block().node() == slot.node.node();
                    let has_item = speculates && is_item(slot.word) && is_near;
                    if has_item {
                        batch.speculate(slot.word.block(), area_of(index, slot.word));
                    }
                    Step::Entry { slot, has_item }
                }
            });
        }
        if batch.verbs().is_empty() {
            results.extend(keys.iter().map(|_| Searched::Apart));
            return Ok(());
        }
        cx.post(batch).await?;
        for (index, step) in steps.iter_mut().enumerate() {
            let (Step::Entry { slot, has_item }, Some(entry)) = (*step, entries[index]) else {
                continue;
            };
            let word = Pointer::from_word(batch.result(entry));
            let now = Slot { word, ..slot };
            *step = if is_frozen(word) || is_node(word) {
                Step::End(Searched::Apart)
            } else if word.is_null() {
                Step::End(self.absent(&now, keys[index]))
            } else if has_item && word == slot.word {
                Step::Item(now)
            } else {
                Step::Entry {
                    slot: now,
                    has_item: false,
                }
            };
            if has_item && !matches!(step, Step::Item(_)) {
                cx.rely_on_within(area_of(index, slot.word), Slice::new(0, 0));
            }
            if !is_frozen(word) {
                self.remember(slot.version, |cache| cache.note(slot.node, slot.place, word));
            }
        }
        batch.clear();
        for (index, step) in steps.iter_mut().enumerate() {
            if let Step::Entry { slot, .. } = *step {
                batch.read(slot.word.block(), area_of(index, slot.word));
                *step = Step::Item(slot);
            }
        }
        if !batch.verbs().is_empty() {
            cx.post(batch).await?;
        }
        for (index, step) in steps.iter_mut().enumerate() {
            if let Step::Item(slot) = *step {
                let area = area_of(index, slot.word);
                let entry = (slot.at(), slot.word);
                let (searched, used) = self.blocks.judge_item(cx.buffer(), entry, area, keys[index]);
                cx.rely_on_within(area, used);
                *step = Step::End(match searched {
                    Searched::Absent => self.absent(&slot, keys[index]),
                    searched => searched,
                });
            }
        }
        results.extend(steps.iter().map(|step| match step {
            Step::End(searched) => *searched,
            Step::Entry { .. } | Step::Item(_) => unreachable!("nothing is left to read"),
        }));
        Ok(())
    }

    /// Over mapped memory: asks for the entries of keys that will be used next, and for what they led to. It is a hint.
    pub(crate) fn approach(&self, cx: &OpContext, keys: &[&[u8]]) {
        for slot in keys.iter().filter_map(|key| self.known_slot(key)) {
            if cx.approach(slot.at(), 8) && is_item(slot.word) {
                let _ = cx.approach(slot.word.block(), self.blocks.readable(slot.word));
            }
        }
    }

    /// The entry of a key as this client remembers it, if it does.
    fn known_slot(&self, key: &[u8]) -> Option<Slot> {
        let (mut entry, mut known, mut has_gap) = (self.shared.root.get()?, 0, false);
        // Ends: each round goes to a node that is deeper.
        loop {
            match self.known_step(key, node_of(entry), (known, has_gap))? {
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
