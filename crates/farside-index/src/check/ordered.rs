//! The check of an index in the order of keys: the tree, and whether each item stands where its key is looked for.

use std::collections::BTreeMap;

use farside_fabric::{OpContext, RemoteAddr};
use farside_pool::{Geometry, PoolError};
use farside_sync::Pointer;

use super::{Census, damaged, examine_item, in_force, read_block};
use crate::descriptor::Marking;
use crate::error::IndexError;
use crate::item::Header;
use crate::ordered::{Part, layer_of};
use crate::tree::slot::is_layer;
use crate::tree::{self};

pub(super) async fn check(cx: &mut OpContext, geometry: &[Geometry], census: &mut Census) -> Result<(), PoolError> {
    let found = match tree::census_of_pool(cx).await {
        Ok(Some(found)) => found,
        // Whoever makes it has not come so far.
        Ok(None) => return Ok(()),
        Err(IndexError::Pool(error)) => return Err(error),
        Err(fault) => {
            census.fault(fault.to_string());
            return Ok(());
        }
    };
    census.slots += found.leaves * found.span as u64;
    census.blocks.extend(&found.blocks);
    found.faults.into_iter().for_each(|fault| census.fault(fault));
    // The bytes that the keys of each layer share. Layers come before those that they lead to: their numbers are smaller.
    let mut layers: BTreeMap<u64, Vec<u8>> = BTreeMap::from([(0, Vec::new())]);
    for (part, word) in found.items {
        let (part, pointer) = (Part(part), Pointer::from_word(word));
        // Whoever made the layer has died before anything led to it, or has not come so far.
        let prefix = layers.get(&part.layer()).cloned();
        if is_layer(pointer) {
            let Some(mut prefix) = prefix else { continue };
            prefix.extend(part.bytes());
            if layers.insert(layer_of(pointer), prefix).is_some() {
                census.fault(format!("two entries lead to layer {}", layer_of(pointer)));
            }
            continue;
        }
        let slot = RemoteAddr::NULL;
        let pointer = in_force(cx, geometry, census, (slot, pointer, Marking::Parity)).await?;
        census.blocks.push(pointer.block());
        let Some(header @ Header::Item { .. }) = read_block(cx, geometry, pointer).await? else {
            census.fault(damaged(slot, pointer));
            continue;
        };
        let Some(prefix) = prefix else { continue };
        let key = examine_item(cx.buffer(), census, slot, pointer, header);
        if !key.starts_with(&prefix) || Part::of(part.layer(), &key, prefix.len()) != part {
            census.fault(format!("the key of {} is looked for elsewhere", pointer.block()));
        }
    }
    Ok(())
}
