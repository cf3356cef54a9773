//! Some items of one place, and the removal of one of them: for whoever has to make room.
//!
//! On the path: eviction. A sample is the beginning of a page of a scan. Keys share slots, so what is sampled is
//! known again by a hash of its value and expiry, not by the word of its slot; the removal compares it, and is one
//! change of the slot that fails if another client is quicker.

use farside_fabric::OpContext;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::PointerArray;
use crate::error::IndexError;
use crate::item::Item;
use crate::operation::{Change, Decision, Sampled};

impl PointerArray {
    /// Visits up to `count` items of the slots from `cursor` on; there may be fewer, or none. Returns the next
    /// cursor, 0 after the last.
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
        let mut left = count;
        let mut visit = |item: Item<'_>| {
            left -= 1;
            visit(Sampled {
                key: item.key,
                bytes: item.bytes(),
                expiry_ms: item.expiry_ms,
                mark: mark(item),
            });
            left > 0
        };
        self.scan_until(cx, cursor, &mut visit).await
    }

    /// Removes a key if its item is still the one that a sample has found; returns whether it was.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub async fn remove_sampled(&self, cx: &mut OpContext, wanted: Sampled<'_>) -> Result<bool, IndexError> {
        let mut is_first = true;
        let mut decide = |stored: Option<Item<'_>>| {
            // Asked again, it has lost against another client, who may have stored the key anew.
            let is_same = stored.is_some_and(|item| mark(item) == wanted.mark);
            match core::mem::take(&mut is_first) && is_same {
                true => Decision::Delete { regardless: false },
                false => Decision::Keep,
            }
        };
        Ok(self.change(cx, wanted.key, &mut decide).await? == Change::Deleted)
    }
}

fn mark(item: Item<'_>) -> u64 {
    xxh3_64_with_seed(item.value, item.expiry_ms)
}
