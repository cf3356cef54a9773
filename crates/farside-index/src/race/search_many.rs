//! SEARCH of several keys at once: a batch of READs for each step, all keys in one doorbell.
//!
//! On the path: MGET, bursts of GETs, `get_many`. Sixteen keys cost as many round trips as one: 1. both
//! buckets of each, 2. the items whose fingerprints fit. Over mapped memory no verbs are needed
//! (`in_place`).

use arrayvec::ArrayVec;
use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, OpContext, RemoteAddr, Slice};
use farside_sync::Pointer;

use super::in_place::Looked;
use super::{COMBINED_BYTES, Place, Race, candidates, is_closed};
use crate::error::IndexError;
use crate::operation::{KEYS_AT_ONCE, Searched, SearchedKeys};

/// Bytes of the buckets of a key in the buffer.
const BUCKETS_BYTES: u32 = 2 * COMBINED_BYTES;
/// Where the items start.
const ITEMS_AT: u32 = KEYS_AT_ONCE as u32 * BUCKETS_BYTES;
/// Where they end at the latest: within the buffer that every context has. What finds no room there is
/// left to a SEARCH of its own.
pub(super) const ITEMS_END: u32 = 16 << 10;
/// How many items of one key are read; with more that look alike it is left to a SEARCH of its own.
const ALIKE_MAX: usize = 2;

/// An item that is being read.
#[derive(Clone, Copy, Debug)]
struct Read {
    key: usize,
    slot: RemoteAddr,
    pointer: Pointer,
    /// Where in the buffer, and how many bytes.
    area: Slice,
}

/// The state of a SEARCH of several keys; kept by the caller, so that it costs no allocation.
#[derive(Default, Debug)]
pub(crate) struct Steps {
    batch: Batch,
    pub(super) places: ArrayVec<Place, KEYS_AT_ONCE>,
    /// Items that are being read, each in an area of its own.
    reads: ArrayVec<Read, { ALIKE_MAX * KEYS_AT_ONCE }>,
    /// In place: what the lines of each key came to, and where in the buffer the next item has room.
    pub(super) looked: ArrayVec<Looked, KEYS_AT_ONCE>,
    pub(super) end: u32,
}

impl Steps {
    fn clear(&mut self) {
        self.batch.clear();
        self.places.clear();
        self.reads.clear();
        self.looked.clear();
        self.end = 0;
    }

    /// Notes that `bytes` bytes of an item will be read; false if there is no room, or too many items of the
    /// key look alike.
    #[inline]
    fn expect(&mut self, key: usize, slot: RemoteAddr, pointer: Pointer, bytes: u32, nth: usize) -> bool {
        let at = self
            .reads
            .last()
            .map_or(ITEMS_AT, |read| read.area.at + read.area.bytes);
        if nth >= ALIKE_MAX || at + bytes > ITEMS_END {
            return false;
        }
        let area = Slice::new(at, bytes);
        self.reads
            .try_push(Read {
                key,
                slot,
                pointer,
                area,
            })
            .is_ok()
    }
}

impl Race {
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
    ) -> Result<(), IndexError> {
        cx.reserve(ITEMS_END as usize);
        state.clear();
        results.clear();
        let _pin = (!is_planted("index: a search of many without a pin")).then(|| self.blocks.pool.pin());
        for key in keys {
            let hash = self.hash(key);
            state.places.push(match self.known_place(hash) {
                Some(place) => place,
                None => self.place(cx, hash).await?,
            });
        }
        if self.find_many_in_place(cx, keys, state, results) {
            return Ok(());
        }
        for (index, place) in state.places.iter().enumerate() {
            let at = index as u32 * BUCKETS_BYTES;
            for (at, bucket) in [at, at + COMBINED_BYTES].into_iter().zip(place.buckets) {
                state.batch.read(bucket.addr, Slice::new(at, COMBINED_BYTES));
            }
        }
        cx.post(&mut state.batch).await?;
        cx.rely_on_words();
        state.batch.clear();
        for index in 0..keys.len() {
            let is_expected = self.expect_items(cx.buffer(), state, index);
            results.push(if is_expected { Searched::Absent } else { Searched::Apart });
        }
        self.read_items_of_many(cx, keys, state, results).await
    }

    /// Asks for the items of a key whose fingerprint fits; false if it has to be looked for by itself.
    fn expect_items(&self, buffer: &[u8], state: &mut Steps, index: usize) -> bool {
        let place = state.places[index];
        let buckets = &buffer[index * BUCKETS_BYTES as usize..];
        if is_closed(buckets, &place) && !is_planted("race: a group that believes a closed bucket") {
            return false;
        }
        let candidates = candidates(buckets, &place);
        candidates.into_iter().enumerate().all(|(nth, (slot, pointer))| {
            let bytes = self.blocks.readable(pointer);
            let is_expected = state.expect(index, slot, pointer, bytes, nth);
            if is_expected {
                let read = state.reads.last().expect("it was noted");
                state.batch.read(pointer.block(), read.area);
            }
            is_expected
        })
    }

    /// Reads what was asked for, and looks which items have the keys.
    async fn read_items_of_many(
        &self,
        cx: &mut OpContext,
        keys: &[&[u8]],
        state: &mut Steps,
        results: &mut SearchedKeys,
    ) -> Result<(), IndexError> {
        if state.batch.verbs().is_empty() {
            return Ok(());
        }
        cx.post(&mut state.batch).await?;
        for read in &state.reads {
            let (slot, key) = ((read.slot, read.pointer), keys[read.key]);
            let (searched, used) = self.blocks.judge_item(cx.buffer(), slot, read.area, key);
            cx.rely_on_within(read.area, used);
            if searched == Searched::Apart || results[read.key] == Searched::Absent {
                results[read.key] = searched;
            }
        }
        Ok(())
    }
}
