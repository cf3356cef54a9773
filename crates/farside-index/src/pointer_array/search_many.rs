//! SEARCH of several keys at once: a batch of READs for each step, all keys in one doorbell.
//!
//! On the path: MGET, bursts of GETs, `get_many`. Sixteen keys cost as many round trips as one: 1. all
//! slots, 2. all blocks, 3. what a bucket points to, or the rest of a block that is longer than its
//! hint. Over mapped memory a batch asks the cache for all its lines before it touches the first, so
//! that the misses overlap; that takes no coroutine per key, whose switches would cost more than is
//! gained.

use arrayvec::ArrayVec;
use farside_fabric::batch::Position;
use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, FabricError, OpContext, RemoteAddr, Slice, at_once};
use farside_sync::Pointer;

use super::PointerArray;
use crate::item::{Header, decode_bucket};
use crate::operation::{Found, KEYS_AT_ONCE, Searched, SearchedKeys};

/// How much of the buffer each key has; longer items are left to a SEARCH of their own.
const AREA_BYTES: u32 = 1024;

/// What a key waits for.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The word of its slot.
    Slot(Position),
    /// The bytes of a block.
    Block(Block),
    /// Nothing any more.
    End(Searched),
}

/// A block that is being read.
#[derive(Clone, Copy, Debug)]
struct Block {
    pointer: Pointer,
    /// Where in the buffer.
    at: u32,
    /// How many bytes are there after the batch.
    have: u32,
    /// Whether a bucket named it.
    in_bucket: bool,
}

/// The state of a SEARCH of several keys; kept by the caller, so that it costs no allocation.
#[derive(Default, Debug)]
pub(crate) struct Steps {
    batch: Batch,
    slots: ArrayVec<RemoteAddr, KEYS_AT_ONCE>,
    steps: ArrayVec<Step, KEYS_AT_ONCE>,
}

impl PointerArray {
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
        state: &mut Steps,
        results: &mut SearchedKeys,
    ) -> Result<(), FabricError> {
        let Steps { batch, slots, steps } = state;
        cx.reserve(KEYS_AT_ONCE * AREA_BYTES as usize);
        slots.clear();
        steps.clear();
        batch.clear();
        for key in keys {
            let slot = self.slot_of(key);
            slots.push(slot);
            steps.push(Step::Slot(batch.read_word(slot)));
        }
        let _pin = (!is_planted("index: a search of many without a pin")).then(|| self.blocks.pool.pin());
        // Ends: a slot leads to a block, a bucket to an item, and each of these is read in one or two
        // turns.
        while !batch.verbs().is_empty() {
            cx.post(batch).await?;
            // Its results stay until it is posted again.
            batch.clear();
            for (index, step) in steps.iter_mut().enumerate() {
                let at = index as u32 * AREA_BYTES;
                *step = match *step {
                    Step::End(_) => continue,
                    Step::Slot(position) => {
                        let pointer = Pointer::from_word(batch.result(position));
                        self.follow(batch, pointer, at, false)
                    }
                    Step::Block(block) => {
                        let (next, used) = self.examine(batch, block, cx.buffer(), slots[index], keys[index]);
                        if let Some(bytes) = used {
                            // As for a single key, `read_block`: a linked block does not change.
                            cx.rely_on_within(Slice::new(at, AREA_BYTES), Slice::new(at, bytes));
                        }
                        next
                    }
                };
            }
        }
        results.clear();
        for step in steps {
            match step {
                Step::End(searched) => results.push(*searched),
                Step::Slot(_) | Step::Block(_) => unreachable!("nothing is left to read"),
            }
        }
        Ok(())
    }

    /// Asks for the memory of up to [`KEYS_AT_ONCE`] keys that will be used next, slots first, then what
    /// they lead to: the cache misses of all of them overlap. Does nothing where memory is not mapped.
    /// It is a hint; what it reads is forgotten.
    ///
    /// # Panics
    /// If there are more keys.
    pub(crate) fn approach(&self, cx: &mut OpContext, keys: &[&[u8]], state: &mut Steps) {
        let Steps { batch, slots, .. } = state;
        slots.clear();
        slots.extend(keys.iter().map(|key| self.slot_of(key)));
        if !slots.iter().all(|&slot| cx.endpoint().prefetch(slot, 8)) {
            return;
        }
        batch.clear();
        let words: ArrayVec<Position, KEYS_AT_ONCE> = slots.iter().map(|&slot| batch.read_word(slot)).collect();
        // It is mapped. Whoever uses the keys will meet an error too.
        if !matches!(at_once(cx.post(batch)), Some(Ok(()))) {
            return;
        }
        // Unpinned: a block may be reused meanwhile, but nothing is read from it.
        for pointer in words.iter().map(|&word| Pointer::from_word(batch.result(word))) {
            if !pointer.is_null() {
                cx.endpoint().prefetch(pointer.block(), self.blocks.readable(pointer));
            }
        }
    }

    /// Asks for the block that a pointer leads to.
    #[inline]
    fn follow(&self, batch: &mut Batch, pointer: Pointer, at: u32, in_bucket: bool) -> Step {
        if pointer.is_null() {
            return Step::End(Searched::Absent);
        }
        let have = self.blocks.readable(pointer);
        batch.read(pointer.block(), Slice::new(at, have));
        Step::Block(Block {
            pointer,
            at,
            have,
            in_bucket,
        })
    }

    /// Looks at what was read of a block, and asks for what is missing. Also returns how many bytes of
    /// the block were used; `None` while some are missing.
    #[inline]
    fn examine(
        &self,
        batch: &mut Batch,
        block: Block,
        buffer: &[u8],
        slot: RemoteAddr,
        key: &[u8],
    ) -> (Step, Option<u32>) {
        // It reads everything once more, and relies on nothing that was read here.
        const APART: (Step, Option<u32>) = (Step::End(Searched::Apart), Some(0));
        let Block { pointer, at, have, .. } = block;
        let bytes = &buffer[at as usize..(at + have) as usize];
        let Ok((header, rest)) = self.blocks.header_and_rest(slot, pointer, bytes, have) else {
            return APART;
        };
        if rest > 0 {
            if have + rest > AREA_BYTES {
                return APART;
            }
            batch.read(pointer.block().plus(u64::from(have)), Slice::new(at + have, rest));
            let have = have + rest;
            return (Step::Block(Block { have, ..block }), None);
        }
        let step = match header {
            Header::Item { .. } => {
                let found = Found::in_item(header, buffer, at as usize, key);
                Step::End(found.map_or(Searched::Absent, Searched::Found))
            }
            Header::Bucket { .. } if block.in_bucket => return APART,
            Header::Descriptor if is_planted("index: what a group cannot read taken for absent") => {
                Step::End(Searched::Absent)
            }
            Header::Descriptor => return APART,
            Header::Bucket { .. } => {
                let hash = self.hash(key);
                let mut candidates = decode_bucket(bytes).filter(|entry| entry.hash == hash);
                match (candidates.next(), candidates.next()) {
                    (None, _) => Step::End(Searched::Absent),
                    (Some(entry), None) => self.follow(batch, entry.pointer, at, true),
                    (Some(_), Some(_)) => return APART,
                }
            }
        };
        (step, Some(header.block_bytes() as u32))
    }
}
