//! SEARCH of several keys at once: a batch of READs for each step, all keys in one doorbell.
//!
//! On the path: MGET, bursts of GETs, `get_many`. Sixteen keys cost as many round trips as the one that takes most: 1. the
//! neighbourhoods of all, once for each layer that a key goes through and this client does not remember, 2. the items. In a
//! learned tree a key takes several leaves: those for which a batch has no room are looked for one by one. Over mapped
//! memory a batch asks the cache for all its lines before it touches the first.

use arrayvec::ArrayVec;
use farside_fabric::batch::BATCH_VERBS_MAX;
use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, OpContext, RemoteAddr, Slice};

use super::part::{PART_BYTES, Part, layer_of};
use super::{Layer, Ordered};
use crate::error::IndexError;
use crate::operation::{KEYS_AT_ONCE, Searched, SearchedKeys};
use crate::tree::slot::{Slot, is_layer};
use crate::tree::window::Window;

/// How much of the buffer the item of each key has; longer items are left to a SEARCH of their own.
const ITEM_BYTES: u32 = 1024;
/// The largest leaf of which the buffer has one for each key.
const LEAF_BYTES_MAX: u64 = 4 << 10;

/// What a key waits for.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Where its part in a layer may be, and where that part starts.
    Leaf { window: Window, part: Part, depth: usize },
    /// An item.
    Item(Slot),
    /// Nothing any more.
    End(Searched),
}

/// What each key of a SEARCH waits for; kept by the caller, so that it costs no allocation.
pub(crate) type Steps = ArrayVec<Step, KEYS_AT_ONCE>;

impl Ordered {
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
        let leaf_bytes = self.tree.shape().leaf_bytes();
        if leaf_bytes > LEAF_BYTES_MAX {
            results.extend(keys.iter().map(|_| Searched::Apart));
            return Ok(());
        }
        batch.clear();
        steps.clear();
        // Where the leaves of a key are in the buffer, and where its item.
        let bytes = self.tree.window_bytes() as u32;
        let leaf_of = |index: usize| Slice::new(index as u32 * bytes, bytes);
        let item_of = |index: usize| leaf_of(KEYS_AT_ONCE).at + index as u32 * ITEM_BYTES;
        cx.reserve(item_of(KEYS_AT_ONCE) as usize);
        let _pin = self.tree.pin();
        for (index, key) in keys.iter().enumerate() {
            steps.push(self.ask(batch, key, self.deepest(key), leaf_of(index).at));
        }
        // Ends: a part of a key leads to a later one, or to an item.
        while !batch.verbs().is_empty() {
            cx.post(batch).await?;
            batch.clear();
            for (index, step) in steps.iter_mut().enumerate() {
                if let Step::Item(slot) = *step {
                    let area = Slice::new(item_of(index), self.blocks.readable(slot.pointer));
                    let (searched, used) =
                        self.blocks
                            .judge_item(cx.buffer(), (slot.at, slot.pointer), area, keys[index]);
                    // As for a single key: a linked block does not change.
                    cx.rely_on_within(area, used);
                    *step = Step::End(searched);
                }
            }
            for (index, step) in steps.iter_mut().enumerate() {
                let Step::Leaf { window, part, depth } = &*step else {
                    continue;
                };
                let (part, depth) = (*part, *depth);
                let images = &cx.buffer()[leaf_of(index).range()];
                *step = match self.tree.answer(images, window, part.0) {
                    None if is_planted("ordered: a group that takes a torn leaf for empty") => {
                        Step::End(Searched::Absent)
                    }
                    None => Step::End(Searched::Apart),
                    Some(None) => Step::End(Searched::Absent),
                    Some(Some(slot)) if is_layer(slot.pointer) => {
                        let layer = layer_of(slot.pointer);
                        self.remember(part, layer);
                        let next = (layer, depth + PART_BYTES);
                        self.ask(batch, keys[index], next, leaf_of(index).at)
                    }
                    // Others go on to leaves that a model names, of which there are more than one for each key.
                    Some(Some(_)) if batch.verbs().len() == BATCH_VERBS_MAX => Step::End(Searched::Apart),
                    Some(Some(slot)) => {
                        let bytes = self.blocks.readable(slot.pointer);
                        batch.read(slot.pointer.block(), Slice::new(item_of(index), bytes));
                        Step::Item(slot)
                    }
                };
            }
            // By checks and versions; or it is not used.
            cx.validated();
        }
        results.extend(steps.iter().map(|step| match step {
            Step::End(searched) => *searched,
            Step::Leaf { .. } | Step::Item(_) => unreachable!("nothing is left to read"),
        }));
        Ok(())
    }

    /// Asks for the neighbourhood of a key's part in a layer.
    fn ask(&self, batch: &mut Batch, key: &[u8], (layer, depth): (Layer, usize), at: u32) -> Step {
        let part = Part::of(layer, key, depth);
        match self.tree.ask(batch, part.0, at) {
            Some(window) => Step::Leaf { window, part, depth },
            None => Step::End(Searched::Apart),
        }
    }

    /// Over mapped memory: asks for the neighbourhoods of keys that will be used next. It is a hint.
    pub(crate) fn approach(&self, cx: &OpContext, keys: &[&[u8]]) {
        for key in keys {
            let (layer, depth) = self.deepest(key);
            self.tree.approach(cx, Part::of(layer, key, depth).0);
        }
    }
    /// The leaf that a key stands in, or would, as far as this client remembers: who comes or goes there locks it. `None` if
    /// nobody does that.
    pub(crate) fn locked_leaf(&self, key: &[u8]) -> Option<RemoteAddr> {
        let (layer, depth) = self.deepest(key);
        self.tree.locked_leaf(Part::of(layer, key, depth).0)
    }
}
