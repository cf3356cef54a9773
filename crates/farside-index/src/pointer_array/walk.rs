//! Every block that the array links, for counts, for recovery and for `fsck`.

use farside_fabric::{NodeId, OpContext, RemoteAddr, Slice};
use farside_pool::{Geometry, Pool, Root, root};
use farside_sync::{Pointer, SizeHint};

use super::ROOT;
use crate::descriptor::{Marking, visit_linked};
use crate::error::IndexError;
use crate::item::{HEADER_BYTES, Header, decode_bucket};

/// How many slots the walk reads at once.
pub(crate) const SLOTS_AT_ONCE: u64 = 512;

/// A root of each node that the pool was made with; `None` if one of them has none.
pub(super) async fn open_roots(
    cx: &mut OpContext,
    geometry: &[Geometry],
    number: u8,
) -> Result<Option<Vec<Root>>, IndexError> {
    let mut roots = Vec::new();
    for geometry in Geometry::founders(geometry) {
        match root(cx, geometry.node, number).await? {
            Some(root) => roots.push(root),
            None => return Ok(None),
        }
    }
    Ok(Some(roots))
}

/// Over mapped memory nothing waits, so a walk would keep the thread's other tasks from running.
pub(super) async fn let_others_run(cx: &OpContext, slot: u64) {
    const SLOTS_BETWEEN: u64 = 64 * SLOTS_AT_ONCE;
    if slot.is_multiple_of(SLOTS_BETWEEN) {
        cx.endpoint().sleep(0).await;
    }
}

pub(crate) async fn read_slots(
    cx: &mut OpContext,
    node: usize,
    root: &Root,
    first: u64,
    count: u64,
) -> Result<Vec<(RemoteAddr, Pointer)>, IndexError> {
    let count = count.min(root.bytes / 8 - first);
    let addr = RemoteAddr::new(NodeId::new(node as u16), root.addr.offset() + first * 8);
    let bytes = cx.read(addr, Slice::first(count as u32 * 8)).await?;
    let (words, _) = bytes.as_chunks::<8>();
    let slots = words
        .iter()
        .zip(0..)
        .map(|(&word, index)| (addr.plus(index * 8), Pointer::from_word(u64::from_le_bytes(word))));
    let slots = slots.collect();
    // Each slot is one word, and says nothing of the others.
    cx.rely_on_words();
    Ok(slots)
}

/// Visits every linked block of the pool's array and returns the number of items. Pins
/// `pool` for each group of slots; where nobody else is, none is needed.
///
/// # Errors
/// See [`IndexError`].
pub async fn walk(
    cx: &mut OpContext,
    geometry: &[Geometry],
    pool: Option<&Pool>,
    visit: &mut dyn FnMut(RemoteAddr),
) -> Result<u64, IndexError> {
    let roots = open_roots(cx, geometry, ROOT).await?;
    let roots = roots.ok_or(IndexError::Missing { index: "pointer array" })?;
    let mut items = 0;
    for (node, root) in roots.iter().enumerate() {
        for first in (0..root.bytes / 8).step_by(SLOTS_AT_ONCE as usize) {
            let _pin = pool.map(Pool::pin);
            for (slot, pointer) in read_slots(cx, node, root, first, SLOTS_AT_ONCE).await? {
                if pointer.is_null() {
                    continue;
                }
                visit(pointer.block());
                items += 1;
                if Marking::Version.is_marked(pointer) {
                    visit_linked(cx, pool.map(|pool| (pool, Marking::Version)), &[(slot, pointer)], visit).await?;
                }
                if pointer.hint() == SizeHint::Bucket {
                    items += walk_block(cx, geometry, slot, pointer, visit).await?;
                }
            }
        }
    }
    Ok(items)
}

/// Visits the items of a bucket; returns how many more than one there are.
async fn walk_block(
    cx: &mut OpContext,
    geometry: &[Geometry],
    slot: RemoteAddr,
    pointer: Pointer,
    visit: &mut dyn FnMut(RemoteAddr),
) -> Result<u64, IndexError> {
    let damaged = IndexError::Damaged {
        slot,
        block: pointer.block(),
    };
    let end = geometry
        .get(pointer.block().node().index())
        .map_or(0, |geometry| geometry.node_bytes);
    if pointer.block().offset() + HEADER_BYTES as u64 > end {
        return Err(damaged);
    }
    let bytes = cx.read(pointer.block(), Slice::first(HEADER_BYTES as u32)).await?;
    let header = Header::decode(bytes);
    // Pinned by the caller, as everybody who reads a block: nobody changes it.
    cx.rely_on(Slice::first(HEADER_BYTES as u32));
    match header {
        Some(header @ Header::Bucket { entries }) if pointer.block().offset() + header.block_bytes() <= end => {
            cx.reserve(header.block_bytes() as usize);
            let bytes = cx
                .read(pointer.block(), Slice::first(header.block_bytes() as u32))
                .await?;
            decode_bucket(bytes).for_each(|entry| visit(entry.pointer.block()));
            cx.rely_on(Slice::first(header.block_bytes() as u32));
            Ok(entries as u64 - 1)
        }
        _ => Err(damaged),
    }
}
