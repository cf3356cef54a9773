//! Reading several items together: scans, samples, and fingerprints that fit more than once.
//!
//! On the path: an index has the entries of a leaf or a group, and wants what they point to. Each item has its own part of the
//! buffer.

use farside_fabric::{Batch, OpContext, RemoteAddr, Slice};
use farside_sync::Pointer;

use super::{Blocks, damaged};
use crate::error::IndexError;
use crate::item::{HEADER_BYTES, Header, Item};
use crate::operation::{Sampled, Wanted};

/// How much of the buffer each item has.
const ITEM_AREA_BYTES: u32 = 1024;
/// How many items are read together.
const ITEMS_AT_ONCE: usize = 8;

/// Is shown an item: its slot, pointer and header, and where it stands in the buffer. Returns whether it wants another.
type VisitItem<'v> = &'v mut dyn FnMut(RemoteAddr, Pointer, Header, u32, &[u8]) -> bool;
/// Is shown the head of an item: pointer, header, where that stands in the buffer, and the key.
type VisitHead<'v> = &'v mut dyn FnMut(Pointer, Header, u32, &[u8]) -> bool;

/// Where an item stands in the buffer.
fn area(start: u32, index: usize) -> u32 {
    start + index as u32 * ITEM_AREA_BYTES
}

impl Blocks {
    /// READs some items, each to its part of the buffer behind `start`. Over mapped memory it asks for the lines of all, and then
    /// loads one after the other.
    async fn fetch(&self, cx: &mut OpContext, start: u32, entries: &[(RemoteAddr, Pointer)]) -> Result<(), IndexError> {
        let part = |index, pointer| Slice::new(area(start, index), self.readable(pointer));
        let mut numbered = entries.iter().enumerate();
        let is_mapped = entries
            .iter()
            .all(|&(_, pointer)| cx.approach(pointer.block(), self.readable(pointer)));
        if is_mapped && numbered.all(|(index, &(_, pointer))| cx.load(pointer.block(), part(index, pointer))) {
            return Ok(());
        }
        let mut batch = Batch::new();
        for (index, &(_, pointer)) in entries.iter().enumerate() {
            batch.read(pointer.block(), part(index, pointer));
        }
        Ok(cx.post(&mut batch).await?)
    }

    /// Reads the items of some slots, several in one doorbell, and visits each until `visit` says that it
    /// has seen enough: with its slot, pointer and header, and where it stands in the buffer, of which what is behind
    /// `start` is used. The caller has pinned.
    pub(crate) async fn read_items(
        &self,
        cx: &mut OpContext,
        start: u32,
        entries: &[(RemoteAddr, Pointer)],
        visit: VisitItem<'_>,
    ) -> Result<(), IndexError> {
        let area = |index| area(start, index);
        for entries in entries.chunks(ITEMS_AT_ONCE) {
            self.fetch(cx, start, entries).await?;
            for (index, &(slot, pointer)) in entries.iter().enumerate() {
                let (mut at, first) = (area(index), self.readable(pointer));
                let bytes = &cx.buffer()[Slice::new(at, first).range()];
                let (mut header, rest) = self.header_and_rest(slot, pointer, bytes, first)?;
                let known = Slice::new(at, header.block_bytes().min(first.into()) as u32);
                cx.rely_on_within(Slice::new(at, first), known);
                if rest > 0 || header == Header::Descriptor {
                    // Behind the others, where there is room.
                    at = area(ITEMS_AT_ONCE);
                    cx.reserve((at + first) as usize);
                    header = self.read_item(cx, slot, pointer, at).await?;
                }
                if let Header::Bucket { .. } = header {
                    return Err(damaged(slot, pointer));
                }
                if !visit(slot, pointer, header, at, cx.buffer()) {
                    // Of what was read behind it nothing is used.
                    cx.rely_on(known);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Visits the items of some slots until `visit` says that it has seen enough. Otherwise as [`Blocks::read_items`].
    pub(crate) async fn visit_items(
        &self,
        cx: &mut OpContext,
        start: u32,
        entries: &[(RemoteAddr, Pointer)],
        (wanted, visit): (Wanted, &mut dyn FnMut(Item<'_>) -> bool),
    ) -> Result<(), IndexError> {
        match wanted {
            Wanted::Items => {
                let visit = &mut |_: RemoteAddr, _: Pointer, header: Header, at: u32, buffer: &[u8]| {
                    visit(header.item(&buffer[at as usize..]))
                };
                self.read_items(cx, start, entries, visit).await
            }
            Wanted::Keys => {
                let visit = &mut |_: Pointer, header: Header, _: u32, key: &[u8]| {
                    let Header::Item { expiry_ms, tag, .. } = header else {
                        return true;
                    };
                    visit(Item::of(key, &[], expiry_ms).tagged(tag))
                };
                self.read_heads(cx, start, entries, visit).await
            }
        }
    }

    /// Reads header and key of the items of some slots, several in one doorbell, and visits each until `visit` says that it has
    /// seen enough: with its pointer, its header, where that stands in the buffer, and its key. Otherwise as
    /// [`Blocks::read_items`].
    pub(crate) async fn read_heads(
        &self,
        cx: &mut OpContext,
        start: u32,
        entries: &[(RemoteAddr, Pointer)],
        visit: VisitHead<'_>,
    ) -> Result<(), IndexError> {
        let area = |index| area(start, index);
        for entries in entries.chunks(ITEMS_AT_ONCE) {
            self.fetch(cx, start, entries).await?;
            for (index, &(slot, pointer)) in entries.iter().enumerate() {
                let (mut at, first) = (area(index), self.readable(pointer));
                let bytes = &cx.buffer()[Slice::new(at, first).range()];
                let (mut header, _) = self.header_and_rest(slot, pointer, bytes, first)?;
                let known = Slice::new(at, header.block_bytes().min(first.into()) as u32);
                cx.rely_on_within(Slice::new(at, first), known);
                let is_whole =
                    matches!(header, Header::Item { key_bytes, .. } if HEADER_BYTES + key_bytes <= first as usize);
                if !is_whole {
                    // A long key: behind the others, where there is room.
                    at = area(ITEMS_AT_ONCE);
                    cx.reserve((at + first) as usize);
                    header = self.read_item(cx, slot, pointer, at).await?;
                }
                let Header::Item { key_bytes, .. } = header else {
                    return Err(damaged(slot, pointer));
                };
                let key = &cx.buffer()[at as usize + HEADER_BYTES..][..key_bytes];
                if !visit(pointer, header, at, key) {
                    // As above.
                    cx.rely_on(known);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Visits up to `count` items of these slots, chosen at random. Otherwise as [`Blocks::read_items`].
    pub(crate) async fn sample(
        &self,
        cx: &mut OpContext,
        start: u32,
        mut entries: Vec<(RemoteAddr, Pointer)>,
        count: usize,
        visit: &mut dyn FnMut(Sampled<'_>),
    ) -> Result<(), IndexError> {
        for index in 0..count.min(entries.len()) {
            let left = (entries.len() - index) as u64;
            entries.swap(index, index + cx.endpoint().random_below(left) as usize);
        }
        entries.truncate(count);
        // Nobody evicts what a transaction is about to change.
        entries.retain(|&(_, pointer)| !self.is_marked(pointer));
        let visit_head = &mut |pointer: Pointer, header: Header, _: u32, key: &[u8]| {
            let Header::Item { expiry_ms, .. } = header else {
                return true;
            };
            visit(Sampled {
                key,
                bytes: header.block_bytes(),
                expiry_ms,
                mark: pointer.to_word(),
            });
            true
        };
        self.read_heads(cx, start, &entries, visit_head).await
    }
}
