//! SEARCH of several keys at once: a batch of READs for each step, all keys in one doorbell.
//!
//! On the path: MGET, bursts of GETs, `get_many`. Sixteen keys cost as many round trips as one: 1. both
//! buckets of each, 2. the items whose fingerprints fit. Over mapped memory a batch asks the cache for
//! all its lines before it touches the first, so that the misses overlap.

use arrayvec::ArrayVec;
use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, Endpoint, OpContext, RemoteAddr, Slice};
use farside_sync::Pointer;

use super::{COMBINED_BYTES, ITEM_AREA_BYTES, Place, Race, candidates, is_closed};
use crate::error::IndexError;
use crate::item::Header;
use crate::operation::{Found, KEYS_AT_ONCE, Searched, SearchedKeys};

/// Bytes of the buckets of a key in the buffer.
const BUCKETS_BYTES: u32 = 2 * COMBINED_BYTES;
/// Where the items start.
const ITEMS_AT: u32 = KEYS_AT_ONCE as u32 * BUCKETS_BYTES;
/// How many items of one key are read; with more that look alike it is left to a SEARCH of its own.
const ALIKE_MAX: usize = 2;

/// An item that is being read.
#[derive(Clone, Copy, Debug)]
struct Read {
    key: usize,
    slot: RemoteAddr,
    pointer: Pointer,
}

/// The state of a SEARCH of several keys; kept by the caller, so that it costs no allocation.
#[derive(Default, Debug)]
pub(crate) struct Steps {
    batch: Batch,
    places: ArrayVec<Place, KEYS_AT_ONCE>,
    reads: ArrayVec<Read, { ALIKE_MAX * KEYS_AT_ONCE }>,
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
        let Steps { batch, places, reads } = state;
        cx.reserve((ITEMS_AT + (ALIKE_MAX * KEYS_AT_ONCE) as u32 * ITEM_AREA_BYTES) as usize);
        places.clear();
        reads.clear();
        batch.clear();
        results.clear();
        let _pin = (!is_planted("index: a search of many without a pin")).then(|| self.blocks.pool.pin());
        for key in keys {
            places.push(self.place(cx, self.hash(key)).await?);
        }
        for (index, place) in places.iter().enumerate() {
            let at = index as u32 * BUCKETS_BYTES;
            batch.read(place.buckets[0].addr, Slice::new(at, COMBINED_BYTES));
            batch.read(place.buckets[1].addr, Slice::new(at + COMBINED_BYTES, COMBINED_BYTES));
        }
        cx.post(batch).await?;
        cx.rely_on_words();
        batch.clear();
        for (index, place) in places.iter().enumerate() {
            let buckets = &cx.buffer()[index * BUCKETS_BYTES as usize..];
            if is_closed(buckets, place) {
                results.push(Searched::Apart);
                continue;
            }
            let candidates = candidates(buckets, place);
            if candidates.len() > ALIKE_MAX {
                results.push(Searched::Apart);
                continue;
            }
            results.push(Searched::Absent);
            for (slot, pointer) in candidates {
                let at = ITEMS_AT + reads.len() as u32 * ITEM_AREA_BYTES;
                batch.read(pointer.block(), Slice::new(at, self.blocks.readable(pointer)));
                reads.push(Read {
                    key: index,
                    slot,
                    pointer,
                });
            }
        }
        if reads.is_empty() {
            return Ok(());
        }
        cx.post(batch).await?;
        for (index, read) in reads.iter().enumerate() {
            let at = ITEMS_AT + index as u32 * ITEM_AREA_BYTES;
            let first = self.blocks.readable(read.pointer);
            let area = Slice::new(at, first);
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
            if results[read.key] == Searched::Absent
                && let Some(found) = Found::in_item(header, cx.buffer(), at as usize, keys[read.key])
            {
                results[read.key] = Searched::Found(found);
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
