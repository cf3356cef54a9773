//! Some items of one place, and the removal of one of them: for whoever has to make room.
//!
//! On the path: eviction. A sample is one group of slots at a cursor of a scan, a random one most of the time (a READ), and the heads of
//! some items in it: header and key, which is all that is needed to judge an item (a READ of each, in doorbells of
//! eight). Keys are spread by their hash, so each has about the same chance, whatever the size of its value.
//!
//! Removal: 1. READ the key's buckets. 2. READ the item's head. 3. Swap the slot from the pointer that was sampled to
//! empty. A key that was stored anew since then has another pointer, and stays; so does one that another client
//! changes between 2 and 3. There is no second attempt: whoever makes room takes another one.
//!
//! (A pointer can come back: a key that is stored twice may get the first block again when its grace period is over.
//! Then a value is removed that is newer than the sample. Its key and its expiry, which are compared, are those that
//! were judged, so it is as good as one that is sampled now.)

use farside_fabric::{Batch, Endpoint, OpContext, RemoteAddr, Slice};
use farside_sync::Pointer;

use super::layout::DEPTH_MIN;
use super::scan::Cursor;
use super::{ITEM_AREA_BYTES, ITEMS_AT, ITEMS_AT_ONCE, Match, Race, candidates, damaged, is_closed, read_buckets};
use crate::error::IndexError;
use crate::item::{HEADER_BYTES, Header};
use crate::operation::Sampled;

impl<E: Endpoint> Race<E> {
    /// Visits up to `count` items of the group of slots at `cursor`, chosen at random; there may be fewer, or none.
    /// Returns the cursor of the next group, 0 after the last.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub async fn sample(
        &self,
        cx: &mut OpContext<E>,
        cursor: u64,
        count: usize,
        visit: &mut dyn FnMut(Sampled<'_>),
    ) -> Result<u64, IndexError> {
        let _pin = self.blocks.pool.pin();
        let cursor = Cursor::from_word(cursor);
        let groups = self.directory.format.groups(cursor.part);
        if cursor.part >> DEPTH_MIN > 0 || cursor.group >= groups {
            return Ok(0);
        }
        let (mut entries, depth) = self.read_group(cx, cursor).await?;
        for index in 0..count.min(entries.len()) {
            let left = (entries.len() - index) as u64;
            entries.swap(index, index + cx.endpoint().random_below(left) as usize);
        }
        entries.truncate(count);
        self.read_heads(cx, &entries, |pointer, header, _, key| {
            let Header::Item { expiry_ms, .. } = header else { return };
            visit(Sampled {
                key,
                bytes: header.block_bytes(),
                expiry_ms,
                mark: pointer.to_word(),
            });
        })
        .await?;
        Ok(cursor.next(depth, groups).map_or(0, Cursor::to_word))
    }

    /// Removes a key if its slot still holds what a sample has found there; returns whether it did.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub async fn remove_sampled(&self, cx: &mut OpContext<E>, wanted: Sampled<'_>) -> Result<bool, IndexError> {
        let pin = self.blocks.pool.pin();
        let place = self.place(cx, self.hash(wanted.key)).await?;
        let mut batch = Batch::new();
        read_buckets(&mut batch, &place);
        cx.post(&mut batch).await?;
        cx.rely_on_words();
        let sampled = candidates(cx.buffer(), &place)
            .into_iter()
            .find(|(_, pointer)| pointer.to_word() == wanted.mark);
        let Some(entry) = sampled.filter(|_| !is_closed(cx.buffer(), &place)) else {
            return Ok(false);
        };
        let mut found = None;
        self.read_heads(cx, &[entry], |pointer, header, at, stored| {
            let slot = entry.0;
            let is_same = |expiry_ms| stored == wanted.key && expiry_ms == wanted.expiry_ms;
            let is_same = matches!(header, Header::Item { expiry_ms, .. } if is_same(expiry_ms));
            found = is_same.then_some(Match {
                slot,
                pointer,
                header,
                at,
            });
        })
        .await?;
        let Some(found) = found else { return Ok(false) };
        let bytes = found.header.block_bytes();
        let step = self.unlink(cx, &place, &found, (bytes, false), &pin).await?;
        Ok(step.is_done())
    }

    /// Reads header and key of the items of some slots, several in one doorbell, and visits each with its pointer, its
    /// header, where that stands in the buffer, and its key. The caller has pinned.
    async fn read_heads(
        &self,
        cx: &mut OpContext<E>,
        entries: &[(RemoteAddr, Pointer)],
        mut visit: impl FnMut(Pointer, Header, u32, &[u8]),
    ) -> Result<(), IndexError> {
        let area = |index: usize| ITEMS_AT + index as u32 * ITEM_AREA_BYTES;
        for entries in entries.chunks(ITEMS_AT_ONCE) {
            let mut batch = Batch::new();
            for (index, &(_, pointer)) in entries.iter().enumerate() {
                batch.read(pointer.block(), Slice::new(area(index), self.blocks.readable(pointer)));
            }
            cx.post(&mut batch).await?;
            for (index, &(slot, pointer)) in entries.iter().enumerate() {
                let (mut at, first) = (area(index), self.blocks.readable(pointer));
                let bytes = &cx.buffer()[Slice::new(at, first).range()];
                let (mut header, _) = self.blocks.header_and_rest(slot, pointer, bytes, first)?;
                let known = Slice::new(at, header.block_bytes().min(first.into()) as u32);
                cx.rely_on_within(Slice::new(at, first), known);
                let Header::Item { key_bytes, .. } = header else {
                    return Err(damaged(slot, pointer));
                };
                if HEADER_BYTES + key_bytes > first as usize {
                    // A long key: behind the others, where there is room.
                    at = area(ITEMS_AT_ONCE);
                    cx.reserve((at + first) as usize);
                    header = self.blocks.read_item(cx, slot, pointer, at).await?;
                }
                let key = &cx.buffer()[at as usize + HEADER_BYTES..][..key_bytes];
                visit(pointer, header, at, key);
            }
        }
        Ok(())
    }
}
