//! Every block that the index links: for the search for lost blocks, and for checks.
//!
//! On the path: nowhere.

use farside_fabric::{OpContext, RemoteAddr};
use farside_sync::Pointer;

use super::Ordered;
use crate::descriptor::{Marking, visit_linked};
use crate::error::IndexError;
use crate::tree::census_of_pool;
use crate::tree::slot::is_layer;

impl Ordered {
    /// Calls `visit` with every block that is linked, as [`crate::Tree::walk`].
    ///
    /// # Errors
    /// See [`IndexError`].
    pub async fn walk(&self, cx: &mut OpContext, visit: &mut dyn FnMut(RemoteAddr)) -> Result<(), IndexError> {
        self.tree.walk(cx, visit).await
    }
}

/// The same for a pool that nobody uses.
///
/// # Errors
/// See [`IndexError`].
pub(crate) async fn walk(cx: &mut OpContext, visit: &mut dyn FnMut(RemoteAddr)) -> Result<(), IndexError> {
    let Some(census) = census_of_pool(cx).await? else {
        return Ok(());
    };
    census.blocks.into_iter().for_each(&mut *visit);
    for word in census.items.into_values() {
        let pointer = Pointer::from_word(word);
        if Marking::Parity.is_marked(pointer) {
            visit_linked(cx, None, &[(RemoteAddr::NULL, pointer)], visit).await?;
        }
        if !is_layer(pointer) {
            visit(pointer.block());
        }
    }
    Ok(())
}
