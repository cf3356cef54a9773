//! Reading all items, a few slots at a time.
//!
//! On the path: whoever wants to see everything and can live with an order that says nothing. A key that
//! is there from the beginning of a scan to its end is visited once; one that comes, goes or changes
//! meanwhile is visited at most once, with a value that it had at some instant in between: it never
//! leaves its slot, and each slot is read once.

use farside_fabric::{OpContext, RemoteAddr};
use farside_sync::Pointer;

use super::PointerArray;
use super::walk::read_slots;
use crate::error::IndexError;
use crate::item::{Entry, Header, Item, decode_bucket};

/// How many slots are read per call, and pinned together.
const SLOTS_PER_CALL: u64 = 64;
/// How many slots a snapshot reads together.
const SLOTS_PER_SURVEY: u64 = 512;

impl PointerArray {
    /// The cursor of a scan that starts with a key's slot, and goes through the slots of one node after the other.
    #[must_use]
    pub fn cursor_at(&self, key: &[u8]) -> u64 {
        let slot = self.slot_of(key);
        let (before, from) = self.roots.split_at(slot.node().index());
        let before: u64 = before.iter().map(|root| root.bytes / 8).sum();
        before + (slot.offset() - from[0].addr.offset()) / 8
    }

    /// Visits the items of the next slots from `cursor` on, which is 0 at first. Returns the cursor to go
    /// on with, 0 at the end.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub async fn scan(
        &self,
        cx: &mut OpContext,
        cursor: u64,
        visit: &mut dyn FnMut(Item<'_>),
    ) -> Result<u64, IndexError> {
        let mut visit = |item: Item<'_>| {
            visit(item);
            true
        };
        self.scan_until(cx, cursor, &mut visit).await
    }

    /// The same until `visit` has seen enough: no more items are read then. The cursor is behind the page all the same.
    pub(super) async fn scan_until(
        &self,
        cx: &mut OpContext,
        cursor: u64,
        visit: &mut dyn FnMut(Item<'_>) -> bool,
    ) -> Result<u64, IndexError> {
        let _pin = self.blocks.pool.pin();
        let (slots, next) = self.page(cx, cursor, SLOTS_PER_CALL).await?;
        'page: for &(slot, pointer) in slots.iter().filter(|(_, pointer)| !pointer.is_null()) {
            let header = self.blocks.read(cx, slot, pointer, 0).await?;
            if let Header::Item { .. } = header {
                if !visit(header.item(cx.buffer())) {
                    break;
                }
                continue;
            }
            let entries: Vec<Entry> = decode_bucket(&cx.buffer()[..header.block_bytes() as usize]).collect();
            for entry in entries {
                let header = self.blocks.read_item(cx, slot, entry.pointer, 0).await?;
                if !visit(header.item(cx.buffer())) {
                    break 'page;
                }
            }
        }
        Ok(next)
    }

    /// Adds the pointers of the next slots from `cursor` on, which is 0 at first. Returns the cursor to go on with, 0 at the end.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub(crate) async fn survey(
        &self,
        cx: &mut OpContext,
        cursor: u64,
        found: &mut Vec<(RemoteAddr, Pointer)>,
    ) -> Result<u64, IndexError> {
        let _pin = self.blocks.pool.pin();
        let (slots, next) = self.page(cx, cursor, SLOTS_PER_SURVEY).await?;
        found.extend(slots.into_iter().filter(|(_, pointer)| !pointer.is_null()));
        Ok(next)
    }

    /// Up to `count` slots from `cursor` on, which counts the slots of one node after the other, and the cursor behind them, 0 at
    /// the end.
    async fn page(
        &self,
        cx: &mut OpContext,
        cursor: u64,
        count: u64,
    ) -> Result<(Vec<(RemoteAddr, Pointer)>, u64), IndexError> {
        let (mut node, mut first) = (0, cursor);
        while let Some(root) = self.roots.get(node)
            && first >= root.bytes / 8
        {
            (node, first) = (node + 1, first - root.bytes / 8);
        }
        let Some(root) = self.roots.get(node) else {
            return Ok((Vec::new(), 0));
        };
        let slots = read_slots(cx, node, root, first, count).await?;
        let is_last = node + 1 == self.roots.len() && first + slots.len() as u64 == root.bytes / 8;
        let next = if is_last { 0 } else { cursor + slots.len() as u64 };
        Ok((slots, next))
    }
}
