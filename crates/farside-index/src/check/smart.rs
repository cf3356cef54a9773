//! The check of a radix tree: its nodes, and whether each item stands where its key is looked for.

use std::collections::{BTreeMap, BTreeSet};

use farside_fabric::{OpContext, RemoteAddr};
use farside_pool::{Geometry, PoolError};
use farside_sync::Pointer;

use super::{Census, damaged, examine_item, in_force, read_block};
use crate::descriptor::Marking;
use crate::error::IndexError;
use crate::item::Header;
use crate::smart::{self, Image, Visitor};

/// What the walk has come to.
#[derive(Default)]
struct Seen {
    nodes: BTreeMap<RemoteAddr, Image>,
    first: Option<RemoteAddr>,
    items: Vec<(RemoteAddr, Pointer)>,
    faults: Vec<String>,
}

impl Visitor for Seen {
    fn node(&mut self, addr: RemoteAddr, image: &Image, known: usize) {
        self.first.get_or_insert(addr);
        let mut bytes = BTreeSet::new();
        for (place, entry) in image.in_use() {
            if !bytes.insert(entry.fingerprint()) {
                self.faults.push(format!(
                    "the node at {addr} has the byte {} twice, again in place {place}",
                    entry.fingerprint()
                ));
            }
        }
        if !image.has_order() {
            self.faults
                .push(format!("the node at {addr} has entries behind one that was never used"));
        }
        if !image.header_fits(known) {
            self.faults
                .push(format!("the node at {addr} is not as deep as what leads to it says"));
        }
        if self.nodes.insert(addr, image.clone()).is_some() {
            self.faults.push(format!("the node at {addr} is linked twice"));
        }
    }

    fn item(&mut self, slot: RemoteAddr, pointer: Pointer) -> bool {
        self.items.push((slot, pointer));
        true
    }
}

pub(super) async fn check(cx: &mut OpContext, geometry: &[Geometry], census: &mut Census) -> Result<(), PoolError> {
    let mut seen = Seen::default();
    match smart::walk(cx, &mut seen).await {
        Ok(()) => {}
        Err(IndexError::Pool(error)) => return Err(error),
        Err(fault) => census.fault(fault.to_string()),
    }
    seen.faults.drain(..).for_each(|fault| census.fault(fault));
    census.blocks.extend(seen.nodes.keys());
    census.slots += seen.nodes.values().map(|node| node.room() as u64).sum::<u64>();
    let mut last: Option<Vec<u8>> = None;
    for (slot, pointer) in seen.items {
        let pointer = in_force(cx, geometry, census, (slot, pointer, Marking::Version)).await?;
        census.blocks.push(pointer.block());
        let Some(header @ Header::Item { .. }) = read_block(cx, geometry, pointer).await? else {
            census.fault(damaged(slot, pointer));
            continue;
        };
        let key = examine_item(cx.buffer(), census, slot, pointer, header);
        if smart::place_in(&seen.nodes, seen.first, &key) != Some(slot) {
            census.fault(format!(
                "{slot}: the key of {} is looked for elsewhere",
                pointer.block()
            ));
        }
        if last.is_some_and(|last| last >= key) {
            census.fault(format!("{slot}: the key of {} is out of order", pointer.block()));
        }
        last = Some(key);
    }
    Ok(())
}
