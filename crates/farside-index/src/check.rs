//! The structure checker: a walk over everything that a pool links, without joining it.
//!
//! On the path: nowhere; `fsck` and the test harness use it. What it verifies: each slot holds nothing
//! or something known; each item decodes, fits its node, belongs into the slot that links it and into no
//! other; no key is there twice; what the index knows of a key beside its item is true. What it does not
//! verify: whether the values are what somebody wrote.

mod ordered;
mod pointer_array;
mod race;
mod smart;

use std::collections::BTreeSet;

use farside_fabric::{OpContext, RemoteAddr, Slice};
use farside_pool::{Geometry, PoolError};
use farside_sync::{Pointer, SizeHint};

use crate::descriptor::{self, BLOCK_BYTES, Descriptor, Marking};
use crate::error::IndexError;
use crate::index::IndexKind;
use crate::item::{HEADER_BYTES, Header};

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
    /// Keys that a transaction has left undecided, or decided and not settled.
    pub unsettled: u64,
    /// What is wrong, one sentence each, naming slot and block.
    pub faults: Vec<String>,
    /// The records of transactions; several keys may have one.
    records: BTreeSet<RemoteAddr>,
}

/// Walks the index of a pool.
///
/// # Errors
/// What the fabric reports; everything else is a fault.
pub async fn take(cx: &mut OpContext, geometry: &[Geometry]) -> Result<Census, PoolError> {
    let mut census = Census::default();
    match IndexKind::of_pool(cx).await? {
        // Formatted, and nobody has opened a store yet.
        None => {}
        Some(IndexKind::PointerArray) => pointer_array::check(cx, geometry, &mut census).await?,
        Some(IndexKind::Race) => race::check(cx, geometry, &mut census).await?,
        Some(IndexKind::Smart) => smart::check(cx, geometry, &mut census).await?,
        Some(
            IndexKind::Chime | IndexKind::Sherman | IndexKind::Marlin | IndexKind::Rolex | IndexKind::ChimeLearned,
        ) => {
            ordered::check(cx, geometry, &mut census).await?;
        }
    }
    census.blocks.extend(&census.records);
    Ok(census)
}

/// Counts an item that was read to the start of the buffer, and looks whether its pointer says how long it
/// is; returns its key.
fn examine_item(buffer: &[u8], census: &mut Census, slot: RemoteAddr, pointer: Pointer, header: Header) -> Vec<u8> {
    let item = header.item(buffer);
    census.items += 1;
    census.expiring += u64::from(item.expiry_ms != 0);
    census.key_bytes += item.key.len() as u64;
    census.value_bytes += item.value.len() as u64;
    // One of a large item makes readers look how large it is.
    let is_told = [SizeHint::for_item(item.bytes()), SizeHint::Large].contains(&pointer.hint());
    if !is_told && !pointer.is_frozen() {
        let (block, bytes) = (pointer.block(), item.bytes());
        census.fault(format!("{slot}: {block} has {bytes} bytes, its hint says otherwise"));
    }
    item.key.to_vec()
}

/// What a slot leads to, where it is marked, and counts what else its descriptor does.
async fn in_force(
    cx: &mut OpContext,
    geometry: &[Geometry],
    census: &mut Census,
    (slot, word, marking): (RemoteAddr, Pointer, Marking),
) -> Result<Pointer, PoolError> {
    if !marking.is_marked(word) {
        return Ok(word);
    }
    let reached = |block: RemoteAddr| {
        let end = geometry.get(block.node().index()).map_or(0, |node| node.node_bytes);
        block.offset() + BLOCK_BYTES <= end
    };
    census.blocks.push(word.block());
    let mut read = async || {
        let damaged = || crate::blocks::damaged(slot, word);
        if !reached(word.block()) {
            return Err(damaged());
        }
        let descriptor = Descriptor::read(cx, slot, word).await?;
        if !reached(descriptor.record) {
            return Err(damaged());
        }
        let status = descriptor.status(cx, slot).await?;
        let now = descriptor.in_force(status);
        let others = descriptor::exclusive(cx, descriptor.out_of_force(status), now).await?;
        Ok((descriptor.record, now, others))
    };
    match read().await {
        Ok((record, now, others)) => {
            census.unsettled += 1;
            census.records.insert(record);
            census.blocks.extend(others);
            Ok(now)
        }
        Err(IndexError::Pool(error)) => Err(error),
        Err(fault) => {
            census.fault(fault.to_string());
            Ok(word)
        }
    }
}

/// Reads a whole block to the start of the buffer; `None` if it holds nothing known, or reaches beyond its
/// node.
async fn read_block(cx: &mut OpContext, geometry: &[Geometry], pointer: Pointer) -> Result<Option<Header>, PoolError> {
    let block = pointer.block();
    let end = geometry.get(block.node().index()).map_or(0, |node| node.node_bytes);
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

impl Census {
    fn fault(&mut self, fault: String) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(fault);
        }
    }
}

fn damaged(slot: RemoteAddr, pointer: Pointer) -> String {
    crate::blocks::damaged(slot, pointer).to_string()
}
