//! All items of a store as they were at one instant, while clients go on writing.
//!
//! On the path: `farside export`. The pool sees to the instant and notes what is changed after it
//! (`farside_pool::snapshot`, where it is argued why nothing is missing or too new), the index reads slots and items, and this
//! decides which items belong to the snapshot:
//!  1. read the pointers of some slots;
//!  2. read what was noted until then;
//!  3. show the items of those pointers, and of those that were noted as replaced *before the last reading of the notes*, unless
//!     their block is noted as written since, or was shown. (Who notes what it replaces has seen it linked, so that it was
//!     written was noted before; the reading that finds the one may have missed the other.)
//!
//! Items that had expired at the instant are left out.

use std::collections::HashMap;

use farside_fabric::mutant::is_planted;
use farside_fabric::{OpContext, RemoteAddr};
use farside_index::{Index, Item, Survey, Surveyed};
use farside_pool::{Note, Snapshot};

use crate::error::{KvError, Pending};
use crate::expiry;
use crate::store::Store;

/// About how many pointers are read before the notes are.
const POINTERS_AT_ONCE: usize = 2048;

/// A pointer that was noted as replaced; nobody knows from which slot.
fn noted_pointer(word: u64) -> Surveyed {
    (RemoteAddr::NULL, farside_index::noted_pointer(word))
}

/// A set of blocks: a bit for each place where one may start.
#[derive(Default, Debug)]
struct BlockSet {
    parts: HashMap<u64, Box<[u64; PART_WORDS]>>,
}

/// A part of a set is about one MiB of memory.
const PART_WORDS: usize = 512;
/// Blocks start at multiples of so many bytes.
const UNIT_BYTES: u64 = 32;

impl BlockSet {
    fn place(block: RemoteAddr) -> (u64, usize, u64) {
        let unit = block.to_bits() / UNIT_BYTES;
        let word = unit / 64;
        let (part, word) = (word / PART_WORDS as u64, word as usize % PART_WORDS);
        (part, word, 1 << (unit % 64))
    }

    /// Adds a block; returns whether it is new.
    fn insert(&mut self, block: RemoteAddr) -> bool {
        let (part, word, bit) = Self::place(block);
        let words = self.parts.entry(part).or_insert_with(|| Box::new([0; PART_WORDS]));
        let is_new = words[word] & bit == 0;
        words[word] |= bit;
        is_new
    }

    fn contains(&self, block: RemoteAddr) -> bool {
        let (part, word, bit) = Self::place(block);
        self.parts.get(&part).is_some_and(|words| words[word] & bit != 0)
    }
}

/// An export that is under way; see the module.
#[derive(Debug)]
pub struct Export {
    index: Index,
    cx: OpContext,
    snapshot: Snapshot,
    /// When the instant was, in milliseconds since 1970.
    unix_ms: u64,
    survey: Survey,
    entries: Vec<Surveyed>,
    /// Blocks that were written since.
    written: BlockSet,
    shown: BlockSet,
    /// Pointers that were noted as replaced: before the last reading, and in it.
    replaced: Vec<Surveyed>,
    replaced_lately: Vec<Surveyed>,
}

impl Store {
    /// Begins an export: when it has begun, the instant whose items it shows has just been. Changes wait for a few ticks until
    /// then. It has to be [ended](Export::end).
    ///
    /// # Errors
    /// If another export is under way, or a client does not answer; errors of the fabric.
    pub fn export(&self) -> Pending<'_, Export> {
        Box::pin(async move {
            let snapshot = self.pool().begin_snapshot().await?;
            Ok(Export {
                index: self.upkeep.clone(),
                cx: OpContext::new(self.endpoint.clone()),
                snapshot,
                unix_ms: self.endpoint.unix_ms(),
                survey: Survey::Begin,
                entries: Vec::new(),
                written: BlockSet::default(),
                shown: BlockSet::default(),
                replaced: Vec::new(),
                replaced_lately: Vec::new(),
            })
        })
    }
}

impl Export {
    /// When the instant was, in milliseconds since 1970.
    #[must_use]
    pub fn unix_ms(&self) -> u64 {
        self.unix_ms
    }

    /// Shows the next items, in no order, each once; returns whether there are more. What was shown counts once
    /// [`Export::end`] has succeeded.
    ///
    /// # Errors
    /// [`KvError::is_snapshot_ended`]; errors of the fabric.
    pub fn next<'f>(&'f mut self, visit: &'f mut dyn FnMut(Item<'_>)) -> Pending<'f, bool> {
        Box::pin(async move {
            let was_surveyed = self.survey == Survey::End;
            // What is found stays until this is dropped.
            let _pin = self.snapshot.pin(&mut self.cx).await?;
            while self.survey != Survey::End && self.entries.len() < POINTERS_AT_ONCE {
                self.index
                    .survey(&mut self.cx, &mut self.survey, &mut self.entries)
                    .await?;
            }
            self.read_notes().await?;
            let mut entries = core::mem::take(&mut self.entries);
            entries.append(&mut self.replaced);
            self.replaced = core::mem::take(&mut self.replaced_lately);
            self.show(&entries, visit).await?;
            entries.clear();
            self.entries = entries;
            // What belongs to the instant and was not found in its slot was noted before the survey had ended, and so read before
            // this call. What is replaced later has been shown, or is newer.
            Ok(!was_surveyed)
        })
    }

    async fn read_notes(&mut self) -> Result<(), KvError> {
        let (written, replaced) = (&mut self.written, &mut self.replaced_lately);
        let note = &mut |note| match note {
            Note::Written(block) => {
                written.insert(block);
            }
            Note::Replaced(word) => replaced.push(noted_pointer(word)),
        };
        Ok(self.snapshot.read_notes(&mut self.cx, note).await?)
    }

    async fn show(&mut self, entries: &[Surveyed], visit: &mut dyn FnMut(Item<'_>)) -> Result<(), KvError> {
        let (written, shown) = (&self.written, &mut self.shown);
        let wanted = &mut |block: RemoteAddr| {
            let is_new = written.contains(block) && !is_planted("snapshot: items shown that were written since");
            !is_new && shown.insert(block)
        };
        let unix_ms = self.unix_ms;
        let visit = &mut |item: Item<'_>| {
            if expiry::is_there(item.expiry_ms, || unix_ms) {
                visit(item);
            }
        };
        Ok(self
            .index
            .visit_surveyed(&mut self.cx, entries, (wanted, visit))
            .await?)
    }

    /// Ends it: what was replaced meanwhile may be reused. To be called when [`Export::next`] has shown everything, or when it is
    /// given up.
    ///
    /// # Errors
    /// [`KvError::is_snapshot_ended`]: then what was shown is of no use; errors of the fabric.
    pub fn end(mut self) -> Pending<'static, ()> {
        Box::pin(async move { Ok(self.snapshot.end(&mut self.cx).await?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_fabric::NodeId;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_block_set_is_a_set(blocks in proptest::collection::vec((0_u16..3, 0_u64..1 << 20), 0..200)) {
            let (mut set, mut model) = (BlockSet::default(), BTreeSet::new());
            for (node, unit) in blocks {
                let block = RemoteAddr::new(NodeId::new(node), unit * UNIT_BYTES);
                prop_assert_eq!(set.contains(block), model.contains(&block));
                prop_assert_eq!(set.insert(block), model.insert(block));
                prop_assert!(set.contains(block));
            }
        }
    }
}
