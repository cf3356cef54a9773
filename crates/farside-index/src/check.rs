//! The structure checker: a walk over everything that a pool links, without joining it.
//!
//! On the path: nowhere; `fsck` and the test harness use it. What it verifies: each slot holds nothing, an item, or a
//! bucket of items; each item decodes, fits its node, belongs into the slot that links it and into
//! no other; no slot holds a key twice; a bucket's hashes are those of its keys. What it does not
//! verify: whether the values are what somebody wrote.
//!
//! Where a key belongs is worked out here a second time, on purpose: if the rule changed, every
//! pool that is stored would be unreadable, and this says so.

use std::collections::BTreeSet;

use farside_fabric::{Endpoint, OpContext, RemoteAddr, Slice};
use farside_pool::{Geometry, PoolError, root};
use farside_sync::{Pointer, SizeHint};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::error::IndexError;
use crate::item::{Entry, HEADER_BYTES, Header, decode_bucket};
use crate::pointer_array::walk::read_slots;

/// The root of the pointer array.
const ROOT: u8 = 0;
/// How many slots are read at once.
const SLOTS_AT_ONCE: u64 = 512;
/// Reports at most so many faults.
const FAULTS_MAX: usize = 100;

/// What the walk found.
#[derive(Debug, Default)]
pub struct Census {
    /// Every block that is linked, as often as it is.
    pub blocks: Vec<RemoteAddr>,
    /// Items, expired ones included.
    pub items: u64,
    /// Items that expire.
    pub expiring: u64,
    /// Slots that several keys share.
    pub buckets: u64,
    /// Slots in all.
    pub slots: u64,
    /// Bytes of all keys.
    pub key_bytes: u64,
    /// Bytes of all values.
    pub value_bytes: u64,
    /// What is wrong, one sentence each, naming slot and block.
    pub faults: Vec<String>,
}

/// One slot under examination.
struct Slot {
    addr: RemoteAddr,
    /// Its number over all nodes.
    number: u64,
}

/// Walks the pointer array of a pool.
///
/// # Errors
/// What the fabric reports; everything else is a fault.
pub async fn take<E: Endpoint>(cx: &mut OpContext<E>, geometry: &[Geometry]) -> Result<Census, PoolError> {
    let mut census = Census::default();
    let mut roots = Vec::new();
    for node in geometry {
        match root(cx, node.node, ROOT).await? {
            Some(root) if root.addr.offset() + root.bytes <= node.node_bytes => roots.push(root),
            Some(_) => {
                census.fault(format!("{}: the index lies outside the node", node.node));
                return Ok(census);
            }
            // Formatted, and nobody has opened a store yet.
            None => return Ok(census),
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
                    walk.examine_slot(cx, &mut census, &slot, pointer).await?;
                }
            }
        }
    }
    Ok(census)
}

struct Walk<'g> {
    geometry: &'g [Geometry],
    slots: u64,
}

impl Walk<'_> {
    fn seed(&self) -> u64 {
        self.geometry[0].pool_id
    }

    async fn examine_slot<E: Endpoint>(
        &self,
        cx: &mut OpContext<E>,
        census: &mut Census,
        slot: &Slot,
        pointer: Pointer,
    ) -> Result<(), PoolError> {
        census.blocks.push(pointer.block());
        match self.read_block(cx, pointer).await? {
            None => census.fault(damaged(slot, pointer)),
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

    async fn examine_bucket<E: Endpoint>(
        &self,
        cx: &mut OpContext<E>,
        census: &mut Census,
        slot: &Slot,
        entries: Vec<Entry>,
    ) -> Result<(), PoolError> {
        if entries.len() < 2 {
            census.fault(format!("{}: its bucket has {} entries", slot.addr, entries.len()));
        }
        let mut keys = BTreeSet::new();
        for entry in entries {
            census.blocks.push(entry.pointer.block());
            let header = self.read_block(cx, entry.pointer).await?;
            let Some(header @ Header::Item { .. }) = header else {
                census.fault(damaged(slot, entry.pointer));
                continue;
            };
            let key = self.examine_item(cx, census, slot, entry.pointer, header);
            if xxh3_64_with_seed(&key, self.seed()) != entry.hash {
                census.fault(format!(
                    "{}: its bucket has another hash than the item {}",
                    slot.addr,
                    entry.pointer.block()
                ));
            }
            if !keys.insert(key) {
                census.fault(format!(
                    "{}: the key of {} is there twice",
                    slot.addr,
                    entry.pointer.block()
                ));
            }
        }
        Ok(())
    }

    /// Counts an item whose bytes are in the buffer; returns its key.
    fn examine_item<E: Endpoint>(
        &self,
        cx: &OpContext<E>,
        census: &mut Census,
        slot: &Slot,
        pointer: Pointer,
        header: Header,
    ) -> Vec<u8> {
        let item = header.item(cx.buffer());
        census.items += 1;
        census.expiring += u64::from(item.expiry_ms != 0);
        census.key_bytes += item.key.len() as u64;
        census.value_bytes += item.value.len() as u64;
        let hash = xxh3_64_with_seed(item.key, self.seed());
        let home = ((u128::from(hash) * u128::from(self.slots)) >> 64) as u64;
        if home != slot.number {
            census.fault(format!(
                "{}: the key of {} belongs into slot {home}",
                slot.addr,
                pointer.block()
            ));
        }
        if pointer.hint() != SizeHint::for_item(item.bytes()) {
            census.fault(format!(
                "{}: {} has {} bytes, its hint says otherwise",
                slot.addr,
                pointer.block(),
                item.bytes()
            ));
        }
        item.key.to_vec()
    }

    /// Reads a whole block to the start of the buffer; `None` if it holds nothing known, or reaches
    /// beyond its node.
    async fn read_block<E: Endpoint>(
        &self,
        cx: &mut OpContext<E>,
        pointer: Pointer,
    ) -> Result<Option<Header>, PoolError> {
        let block = pointer.block();
        let end = self
            .geometry
            .get(block.node().index())
            .map_or(0, |node| node.node_bytes);
        if block.offset() + HEADER_BYTES as u64 > end {
            return Ok(None);
        }
        let bytes = cx.read(block, Slice::first(HEADER_BYTES as u32)).await?;
        let Some(header) = Header::decode(bytes).filter(|header| block.offset() + header.block_bytes() <= end) else {
            return Ok(None);
        };
        let whole = header.block_bytes();
        cx.reserve(whole as usize);
        cx.read(block, Slice::first(whole as u32)).await?;
        Ok(Some(header))
    }
}

impl Census {
    fn fault(&mut self, fault: String) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(fault);
        }
    }
}

fn damaged(slot: &Slot, pointer: Pointer) -> String {
    IndexError::Damaged {
        slot: slot.addr,
        block: pointer.block(),
    }
    .to_string()
}
