//! The check of a pointer array.
//!
//! Where a key belongs is worked out here a second time, on purpose: if the rule changed, every pool that
//! is stored would be unreadable, and this says so.

use std::collections::BTreeSet;

use farside_fabric::{OpContext, RemoteAddr};
use farside_pool::{Geometry, PoolError, root};
use farside_sync::{Pointer, SizeHint};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{Census, damaged, examine_item, in_force, read_block};
use crate::descriptor::Marking;
use crate::item::{Entry, Header, decode_bucket};
use crate::pointer_array::ROOT;
use crate::pointer_array::walk::{SLOTS_AT_ONCE, read_slots};

/// One slot under examination.
struct Slot {
    addr: RemoteAddr,
    /// Its number over all nodes.
    number: u64,
}

/// Whether a node has these bytes, whatever a damaged word says.
fn is_inside(node: &Geometry, at: RemoteAddr, bytes: u64) -> bool {
    at.node() == node.node && at.offset().checked_add(bytes).is_some_and(|end| end <= node.node_bytes)
}

pub(super) async fn check(cx: &mut OpContext, geometry: &[Geometry], census: &mut Census) -> Result<(), PoolError> {
    let mut roots = Vec::new();
    for node in Geometry::founders(geometry) {
        match root(cx, node.node, ROOT).await? {
            Some(root) if is_inside(node, root.addr, root.bytes) => roots.push(root),
            Some(_) => {
                census.fault(format!("{}: the index lies outside the node", node.node));
                return Ok(());
            }
            // Whoever makes it has not come so far.
            None => return Ok(()),
        }
    }
    let per_node = roots.iter().map(|root| root.bytes / 8).min().unwrap_or(0);
    let nodes = roots.len() as u64;
    census.slots = per_node * nodes;
    let walk = Walk {
        geometry,
        slots: census.slots,
    };
    for (node, root) in roots.iter().enumerate() {
        for first in (0..per_node).step_by(SLOTS_AT_ONCE as usize) {
            let count = SLOTS_AT_ONCE.min(per_node - first);
            for (row, (addr, pointer)) in (first..).zip(read_slots(cx, node, root, first, count).await?) {
                let slot = Slot {
                    addr,
                    number: row * nodes + node as u64,
                };
                if !pointer.is_null() {
                    walk.examine_slot(cx, census, &slot, pointer).await?;
                }
            }
        }
    }
    Ok(())
}

struct Walk<'g> {
    geometry: &'g [Geometry],
    slots: u64,
}

impl Walk<'_> {
    fn seed(&self) -> u64 {
        self.geometry[0].pool_id
    }

    async fn examine_slot(
        &self,
        cx: &mut OpContext,
        census: &mut Census,
        slot: &Slot,
        pointer: Pointer,
    ) -> Result<(), PoolError> {
        let pointer = in_force(cx, self.geometry, census, (slot.addr, pointer, Marking::Version)).await?;
        census.blocks.push(pointer.block());
        match read_block(cx, self.geometry, pointer).await? {
            None | Some(Header::Descriptor) => census.fault(damaged(slot.addr, pointer)),
            Some(header @ Header::Item { .. }) => {
                self.examine_item(cx, census, slot, pointer, header);
            }
            Some(header @ Header::Bucket { .. }) => {
                census.buckets += 1;
                if pointer.hint() != SizeHint::Bucket {
                    census.fault(format!("{}: its bucket has the hint of an item", slot.addr));
                }
                let bytes = &cx.buffer()[..header.block_bytes() as usize];
                let entries: Vec<Entry> = decode_bucket(bytes).collect();
                self.examine_bucket(cx, census, slot, entries).await?;
            }
        }
        Ok(())
    }

    async fn examine_bucket(
        &self,
        cx: &mut OpContext,
        census: &mut Census,
        slot: &Slot,
        entries: Vec<Entry>,
    ) -> Result<(), PoolError> {
        if entries.len() < 2 {
            census.fault(format!("{}: its bucket has {} entries", slot.addr, entries.len()));
        }
        let mut keys = BTreeSet::new();
        for entry in entries {
            let block = entry.pointer.block();
            census.blocks.push(block);
            let header = read_block(cx, self.geometry, entry.pointer).await?;
            let Some(header @ Header::Item { .. }) = header else {
                census.fault(damaged(slot.addr, entry.pointer));
                continue;
            };
            let key = self.examine_item(cx, census, slot, entry.pointer, header);
            if xxh3_64_with_seed(&key, self.seed()) != entry.hash {
                census.fault(format!(
                    "{}: its bucket has another hash than the item {block}",
                    slot.addr
                ));
            }
            if !keys.insert(key) {
                census.fault(format!("{}: the key of {block} is there twice", slot.addr));
            }
        }
        Ok(())
    }

    /// Counts an item whose bytes are in the buffer; returns its key.
    fn examine_item(
        &self,
        cx: &OpContext,
        census: &mut Census,
        slot: &Slot,
        pointer: Pointer,
        header: Header,
    ) -> Vec<u8> {
        let key = examine_item(cx.buffer(), census, slot.addr, pointer, header);
        let hash = xxh3_64_with_seed(&key, self.seed());
        let home = ((u128::from(hash) * u128::from(self.slots)) >> 64) as u64;
        if home != slot.number {
            let block = pointer.block();
            census.fault(format!("{}: the key of {block} belongs into slot {home}", slot.addr));
        }
        key
    }
}
