//! The check of a RACE table: directory, subtables, buckets, fingerprints; no key twice.

use std::collections::BTreeSet;

use farside_fabric::{OpContext, RemoteAddr};
use farside_pool::{Geometry, PoolError};
use farside_sync::Pointer;

use super::{Census, damaged, examine_item, in_force, read_block};
use crate::descriptor::Marking;
use crate::error::IndexError;
use crate::item::Header;
use crate::race::walk::{Visited, walk};
use crate::race::{GROUP_SLOTS, KeyHash, open_root};

pub(super) async fn check(cx: &mut OpContext, geometry: &[Geometry], census: &mut Census) -> Result<(), PoolError> {
    let format = match open_root(cx).await {
        Ok(Some((_, format))) => format,
        // Whoever makes it has not come so far.
        Ok(None) => return Ok(()),
        Err(IndexError::Pool(error)) => return Err(error),
        Err(fault) => {
            census.fault(fault.to_string());
            return Ok(());
        }
    };
    let mut subtables = Vec::new();
    match walk(cx, geometry, None, &mut |visited| subtables.push(visited)).await {
        Ok(()) => {}
        Err(IndexError::Pool(error)) => return Err(error),
        Err(fault) => census.fault(fault.to_string()),
    }
    for subtable in subtables {
        census.blocks.push(subtable.addr);
        // The entries of one that was split are those of the two that took its place.
        if !subtable.is_replaced {
            let groups = format.groups(subtable.identity.suffix());
            census.slots += groups * GROUP_SLOTS;
            examine_subtable(cx, geometry, census, &subtable, groups).await?;
        }
    }
    Ok(())
}

async fn examine_subtable(
    cx: &mut OpContext,
    geometry: &[Geometry],
    census: &mut Census,
    subtable: &Visited,
    groups: u64,
) -> Result<(), PoolError> {
    let mut keys = BTreeSet::new();
    let is_closed = subtable.image.is_closed();
    for (slot, pointer) in subtable.image.entries(subtable.addr) {
        let pointer = in_force(cx, geometry, census, (slot, pointer, Marking::Version)).await?;
        let block = pointer.block();
        census.blocks.push(block);
        let Some(header @ Header::Item { .. }) = read_block(cx, geometry, pointer).await? else {
            census.fault(damaged(slot, pointer));
            continue;
        };
        let key = examine_item(cx.buffer(), census, slot, pointer, header);
        let hash = KeyHash::new(&key, geometry[0].pool_id);
        if !subtable.identity.covers(hash.hash) {
            census.fault(format!("{slot}: the key of {block} belongs into another subtable"));
        } else if !is_home(slot, hash, subtable.addr, groups) {
            census.fault(format!("{slot}: the key of {block} belongs into another bucket"));
        }
        if pointer.fingerprint() != hash.fingerprint() {
            census.fault(format!("{slot}: its fingerprint is not that of the key of {block}"));
        }
        if is_frozen_for_nothing(pointer, is_closed) {
            census.fault(format!("{slot}: it is frozen, and its subtable is open"));
        }
        if !keys.insert(key) {
            census.fault(format!("{slot}: the key of {block} is there twice"));
        }
    }
    Ok(())
}

fn is_frozen_for_nothing(pointer: Pointer, is_closed: bool) -> bool {
    pointer.is_frozen() && !is_closed
}

fn is_home(slot: RemoteAddr, hash: KeyHash, subtable: RemoteAddr, groups: u64) -> bool {
    hash.buckets(subtable, groups).into_iter().any(|bucket| {
        bucket
            .slot_words()
            .any(|word| bucket.addr.plus(word as u64 * 8) == slot)
    })
}
