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

use farside_fabric::{Batch, OpContext};

use super::layout::DEPTH_MIN;
use super::scan::Cursor;
use super::{ITEMS_AT, Match, Race, candidates, is_closed, read_buckets};
use crate::error::IndexError;
use crate::item::Header;
use crate::operation::Sampled;

impl Race {
    /// Visits up to `count` items of the group of slots at `cursor`, chosen at random; there may be fewer, or none.
    /// Returns the cursor of the next group, 0 after the last.
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
        let _pin = self.blocks.pool.pin();
        let cursor = Cursor::from_word(cursor);
        let groups = self.directory.format.groups(cursor.part);
        if cursor.part >> DEPTH_MIN > 0 || cursor.group >= groups {
            return Ok(0);
        }
        let (entries, depth) = self.read_group(cx, cursor).await?;
        self.blocks.sample(cx, ITEMS_AT, entries, count, visit).await?;
        Ok(cursor.next(depth, groups).map_or(0, Cursor::to_word))
    }

    /// Removes a key if its slot still holds what a sample has found there; returns whether it did.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub async fn remove_sampled(&self, cx: &mut OpContext, wanted: Sampled<'_>) -> Result<bool, IndexError> {
        let pin = self.blocks.pool.pin_to_change(1).await?;
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
        self.blocks
            .read_heads(cx, ITEMS_AT, &[entry], &mut |pointer, header, at, stored| {
                let slot = entry.0;
                let is_same = |expiry_ms| stored == wanted.key && expiry_ms == wanted.expiry_ms;
                let is_same = matches!(header, Header::Item { expiry_ms, .. } if is_same(expiry_ms));
                found = is_same.then_some(Match {
                    slot,
                    pointer,
                    header,
                    at,
                });
                true
            })
            .await?;
        let Some(found) = found else { return Ok(false) };
        let bytes = found.header.block_bytes();
        let step = self.unlink(cx, &place, &found, (bytes, false), &pin).await?;
        Ok(step.is_done())
    }
}
