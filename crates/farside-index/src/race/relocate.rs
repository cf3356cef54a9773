//! Moving subtables off a memory node that is drained, and finding the items that are still there.
//!
//! On the path: nowhere. A subtable moves as in a split (`split`), but to one other place: closed, frozen, copied, both words for
//! what takes its place the same address; the directory then names that one, and the old block is retired. Whoever finds the
//! move half done ends it, or splits the subtable: neither leaves anything behind.
//!
//! An item moves by an update of its key to what it is, which the caller does.

use farside_fabric::{NodeId, OpContext};

use super::split::Successor;
use super::{ITEMS_AT, Race};
use crate::error::IndexError;
use crate::item::Item;
use crate::operation::Wanted;

/// What was found at a position.
pub(crate) struct Stretch {
    /// The keys of items whose block is on the node.
    pub(crate) keys: Vec<Vec<u8>>,
    /// Whether the subtable has moved.
    pub(crate) has_moved: bool,
    /// The position to go on with.
    pub(crate) next: Option<u64>,
}

impl Race {
    /// Moves the subtable at a position off a node, if it is there, and names the keys of its items that are.
    pub(crate) async fn evacuate(
        &self,
        cx: &mut OpContext,
        position: u64,
        node: NodeId,
    ) -> Result<Stretch, IndexError> {
        let mut has_moved = false;
        for round in 0.. {
            let pin = self.blocks.pool.pin();
            let (place, mut entries, next) = self.read_subtable(cx, position).await?;
            if place.subtable.node() == node {
                drop(pin);
                if round > 0 {
                    // Another client is at it.
                    self.pause(cx, round).await;
                }
                let task = self.start(place.subtable, place.hash.hash, Successor::Whole);
                self.wait_for(cx, &task).await?;
                has_moved = true;
                continue;
            }
            for (slot, pointer) in &mut entries {
                *pointer = self.blocks.settle(cx, *slot, *pointer).await?;
            }
            // What is frozen is in a subtable that is being split: it is found where it goes.
            entries.retain(|(_, pointer)| !pointer.is_null() && !pointer.is_frozen() && pointer.block().node() == node);
            let mut keys = Vec::new();
            let mut look = |item: Item<'_>| {
                keys.push(item.key.to_vec());
                true
            };
            self.blocks
                .visit_items(cx, ITEMS_AT, &entries, (Wanted::Keys, &mut look))
                .await?;
            drop(pin);
            return Ok(Stretch { keys, has_moved, next });
        }
        unreachable!("rounds are endless, and end with the caller's deadline")
    }
}
