//! Every block that the index links: for the search for lost blocks, and for checks.
//!
//! On the path: nowhere. The walk goes through the keys in order, some at a time. A node or an item that is linked throughout stands
//! where its keys are looked for, and is come to when their turn is there.

use farside_fabric::{OpContext, RemoteAddr};
use farside_sync::Pointer;

use super::descend::Image;
use super::layout::VERSION_AT;
use super::scan::{NODES_AT_ONCE, Visitor, walk_from};
use super::{Smart, open_area};
use crate::descriptor::{Marking, visit_linked};
use crate::error::IndexError;

/// How many items the walk comes to under one pin.
const ITEMS_AT_ONCE: usize = 64;

/// Hands on blocks, of so many items.
struct Blocks<'v> {
    visit: &'v mut dyn FnMut(RemoteAddr),
    left: usize,
    last: Option<(RemoteAddr, Pointer)>,
    /// What leads to descriptors.
    marked: Vec<(RemoteAddr, Pointer)>,
}

impl Visitor for Blocks<'_> {
    fn node(&mut self, addr: RemoteAddr, _: &Image, _: usize) {
        (self.visit)(addr);
    }

    fn item(&mut self, slot: RemoteAddr, pointer: Pointer) -> bool {
        (self.visit)(pointer.block());
        if Marking::Version.is_marked(pointer) {
            self.marked.push((slot, pointer));
        }
        self.last = Some((slot, pointer));
        self.left -= 1;
        self.left > 0
    }
}

impl Smart {
    /// Calls `visit` with every block that is linked, with some twice. Pins for a few items at a time, so that the epoch can move; what
    /// is linked or unlinked meanwhile may be missed. In the end everybody is told to forget what he remembers.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub async fn walk(&self, cx: &mut OpContext, visit: &mut dyn FnMut(RemoteAddr)) -> Result<(), IndexError> {
        let mut next = Some(Vec::new());
        while let Some(from) = next {
            let _pin = self.pin();
            let mut blocks = Blocks {
                visit,
                // The first may be one of before.
                left: ITEMS_AT_ONCE + 1,
                last: None,
                marked: Vec::new(),
            };
            let walked = walk_from(cx, (self.shared.area, Some(self)), (&from, NODES_AT_ONCE), &mut blocks);
            let is_end = walked.await?;
            visit_linked(
                cx,
                Some((&self.blocks.pool, Marking::Version)),
                &blocks.marked,
                blocks.visit,
            )
            .await?;
            next = match blocks.last {
                Some(last) if !is_end => Some(self.key_behind(cx, last).await?),
                _ => None,
            };
        }
        // Whoever has died may have taken a node out and told nobody: the search for lost blocks, which this walk is for, frees it
        // when everybody has seen this.
        cx.fetch_add(self.shared.area.plus(VERSION_AT), 1).await?;
        Ok(())
    }
}

/// Goes through the index of a pool that nobody uses, in the order of keys; nothing is visited if there is none.
///
/// # Errors
/// See [`IndexError`].
pub(crate) async fn walk(cx: &mut OpContext, visitor: &mut dyn Visitor) -> Result<(), IndexError> {
    if let Some((area, _)) = open_area(cx).await? {
        walk_from(cx, (area, None), (b"", NODES_AT_ONCE), visitor).await?;
    }
    Ok(())
}

/// Calls `visit` with every block of the index of a pool that nobody uses.
///
/// # Errors
/// See [`IndexError`].
pub(crate) async fn walk_blocks(cx: &mut OpContext, visit: &mut dyn FnMut(RemoteAddr)) -> Result<(), IndexError> {
    let mut blocks = Blocks {
        visit,
        left: usize::MAX,
        last: None,
        marked: Vec::new(),
    };
    walk(cx, &mut blocks).await?;
    visit_linked(cx, None, &blocks.marked, blocks.visit).await
}
