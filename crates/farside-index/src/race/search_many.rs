//! SEARCH of several keys at once: a batch of READs for each step, all keys in one doorbell.
//!
//! On the path: MGET, bursts of GETs, `get_many`. Sixteen keys cost as many round trips as one: 1. both
//! buckets of each, 2. the items whose fingerprints fit.
//!
//! Over mapped memory a batch asks the cache for all its lines before it touches the first, so that the
//! misses overlap; and since there the lines count, not the round trips, it takes three steps: 1. the
//! main buckets, 2. the items that fit, and the overflow buckets of keys for which nothing does, 3. the
//! items found there.

use arrayvec::ArrayVec;
use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, Endpoint, OpContext, RemoteAddr, Slice};
use farside_sync::Pointer;

use super::layout::{LINE_BYTES, Line};
use super::{COMBINED_BYTES, Place, Race, for_candidates_in, is_closed};
use crate::error::IndexError;
use crate::item::Header;
use crate::operation::{Found, KEYS_AT_ONCE, Searched, SearchedKeys};

/// Bytes of the buckets of a key in the buffer.
const BUCKETS_BYTES: u32 = 2 * COMBINED_BYTES;
/// Where the items start.
const ITEMS_AT: u32 = KEYS_AT_ONCE as u32 * BUCKETS_BYTES;
/// Where they end at the latest: within the buffer that every context has. What finds no room there is
/// left to a SEARCH of its own.
const ITEMS_END: u32 = 16 << 10;
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
    places: ArrayVec<Place, KEYS_AT_ONCE>,
    /// Keys for which nothing fits in the main buckets.
    waiting: ArrayVec<usize, KEYS_AT_ONCE>,
    /// Whether only the main buckets were looked at.
    is_partial: bool,
    /// Items that are being read, each in an area of its own, and how many of them were read before.
    reads: ArrayVec<Read, { ALIKE_MAX * KEYS_AT_ONCE }>,
    done: usize,
}

impl Steps {
    /// Another batch; what was read so far stays where it is.
    fn start(&mut self) {
        self.batch.clear();
        self.done = self.reads.len();
    }

    /// Asks for lines of the buckets of a key.
    #[inline]
    fn read_buckets(&mut self, index: usize, lines: &[Line]) {
        let at = index as u32 * BUCKETS_BYTES;
        for (at, bucket) in [at, at + COMBINED_BYTES].into_iter().zip(self.places[index].buckets) {
            match *lines {
                [line] => {
                    let line_at = bucket.line_at(line);
                    let target = Slice::new(at + line_at, LINE_BYTES);
                    self.batch.read(bucket.addr.plus(line_at.into()), target);
                }
                _ => {
                    self.batch.read(bucket.addr, Slice::new(at, COMBINED_BYTES));
                }
            }
        }
    }
}

impl<E: Endpoint> Race<E> {
    /// SEARCH of up to [`KEYS_AT_ONCE`] keys. The values are left in the context's buffer.
    ///
    /// # Errors
    /// What the fabric reports; nothing is known about any of the keys then.
    ///
    /// # Panics
    /// If there are more keys.
    pub(crate) async fn search_many(
        &self,
        cx: &mut OpContext<E>,
        keys: &[&[u8]],
        state: &mut Steps,
        results: &mut SearchedKeys,
    ) -> Result<(), IndexError> {
        cx.reserve(ITEMS_END as usize);
        state.places.clear();
        state.waiting.clear();
        state.reads.clear();
        results.clear();
        let _pin = (!is_planted("index: a search of many without a pin")).then(|| self.blocks.pool.pin());
        for key in keys {
            state.places.push(self.place(cx, self.hash(key)).await?);
        }
        // All nodes are mapped, or none.
        let is_mapped = state
            .places
            .first()
            .is_some_and(|place| cx.endpoint().prefetch(place.buckets[0].addr, 8));
        let lines: &[Line] = if is_mapped {
            &[Line::Main]
        } else {
            &[Line::Main, Line::Overflow]
        };
        state.start();
        for index in 0..keys.len() {
            state.read_buckets(index, lines);
        }
        cx.post(&mut state.batch).await?;
        cx.rely_on_words();
        state.start();
        for (index, place) in state.places.iter().enumerate() {
            let buckets = &cx.buffer()[index * BUCKETS_BYTES as usize..];
            let outcome = if is_closed(buckets, place) {
                Searched::Apart
            } else {
                Searched::Absent
            };
            results.push(outcome);
        }
        for index in 0..keys.len() {
            if results[index] == Searched::Apart {
                continue;
            }
            let is_found = self.read_candidates(cx, state, results, index, lines);
            if is_mapped && !is_found {
                state.read_buckets(index, &[Line::Overflow]);
                state.waiting.push(index);
            }
        }
        state.is_partial = is_mapped;
        self.read_items_of_many(cx, keys, state, results).await?;
        if state.waiting.is_empty() {
            return Ok(());
        }
        let waiting = core::mem::take(&mut state.waiting);
        state.is_partial = false;
        state.start();
        for index in waiting {
            self.read_candidates(cx, state, results, index, &[Line::Overflow]);
        }
        self.read_items_of_many(cx, keys, state, results).await
    }

    /// Asks for the items of a key whose fingerprint fits in these lines of its buckets; returns whether
    /// there are any.
    #[inline]
    fn read_candidates(
        &self,
        cx: &OpContext<E>,
        state: &mut Steps,
        results: &mut SearchedKeys,
        index: usize,
        lines: &[Line],
    ) -> bool {
        let place = state.places[index];
        let buckets = &cx.buffer()[index * BUCKETS_BYTES as usize..];
        let mut count = 0;
        for &line in lines {
            for_candidates_in(buckets, &place, line, |slot, pointer| {
                count += 1;
                let at = state
                    .reads
                    .last()
                    .map_or(ITEMS_AT, |read| read.area.at + read.area.bytes);
                let area = Slice::new(at, self.blocks.readable(pointer));
                if count > ALIKE_MAX || at + area.bytes > ITEMS_END {
                    results[index] = Searched::Apart;
                    return;
                }
                state.batch.read(pointer.block(), area);
                state.reads.push(Read {
                    key: index,
                    slot,
                    pointer,
                    area,
                });
            });
        }
        count > 0
    }

    /// Reads what was asked for, and looks which items have the keys.
    #[inline]
    async fn read_items_of_many(
        &self,
        cx: &mut OpContext<E>,
        keys: &[&[u8]],
        state: &mut Steps,
        results: &mut SearchedKeys,
    ) -> Result<(), IndexError> {
        if state.batch.verbs().is_empty() {
            return Ok(());
        }
        cx.post(&mut state.batch).await?;
        if !state.waiting.is_empty() {
            // Slots, each a word by itself; the items are relied on below.
            let areas = KEYS_AT_ONCE as u32 * BUCKETS_BYTES;
            cx.rely_on_within(Slice::new(0, areas), Slice::new(0, 0));
        }
        for read in &state.reads[state.done..] {
            let area = read.area;
            let (at, first) = (area.at, area.bytes);
            let seen = self
                .blocks
                .header_and_rest(read.slot, read.pointer, &cx.buffer()[area.range()], first);
            let Ok((header @ Header::Item { .. }, 0)) = seen else {
                // It reads everything once more, and relies on nothing that was read here.
                cx.rely_on_within(area, Slice::new(at, 0));
                results[read.key] = Searched::Apart;
                continue;
            };
            cx.rely_on_within(area, Slice::new(at, header.block_bytes() as u32));
            if results[read.key] == Searched::Absent {
                match Found::in_item(header, cx.buffer(), at as usize, keys[read.key]) {
                    Some(found) => results[read.key] = Searched::Found(found),
                    // The key may be in an overflow bucket.
                    None if state.is_partial => results[read.key] = Searched::Apart,
                    None => {}
                }
            }
        }
        Ok(())
    }

    /// Asks for the buckets of keys that will be used next, as far as their subtables are remembered: the
    /// cache misses of all of them overlap. Does nothing where memory is not mapped. It is a hint, and
    /// reads nothing.
    pub(crate) fn approach(&self, endpoint: &E, keys: &[&[u8]]) {
        for key in keys {
            let hash = self.hash(key);
            let Some(subtable) = self.directory.remembered(hash.hash) else {
                continue;
            };
            for bucket in self.place_in(subtable, hash).buckets {
                if !endpoint.prefetch(bucket.addr, COMBINED_BYTES) {
                    return;
                }
            }
        }
    }
}
