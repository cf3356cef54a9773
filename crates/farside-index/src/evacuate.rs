//! Moving what an index has off a memory node that is drained.
//!
//! On the path: nowhere; a mover of the store calls it.

use std::borrow::Cow;

use farside_fabric::{LocalFuture, NodeId, OpContext};

use crate::error::IndexError;
use crate::index::Index;
use crate::item::Item;
use crate::operation::{Change, Decision};

/// What a step has moved.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Evacuated {
    /// Items that were stored anew elsewhere.
    pub items: u64,
    /// Parts of the index itself.
    pub parts: u64,
    /// Where to go on; `None` at the end.
    pub next: Option<u64>,
}

impl Index {
    /// Whether everything that this index has can leave a node; otherwise its inner nodes stay where they are.
    #[must_use]
    pub fn can_evacuate(&self) -> bool {
        matches!(self, Self::Race(_))
    }

    /// Moves some of what is on `node` elsewhere: from `cursor` on, which is 0 at first. Items move by the index's own update,
    /// with the value and the time to live that they have then, against whoever changes them at the same time. What is linked
    /// there meanwhile may be missed.
    ///
    /// Does nothing for an index that [cannot](Index::can_evacuate).
    ///
    /// # Errors
    /// See [`IndexError`].
    pub fn evacuate<'f>(
        &'f self,
        cx: &'f mut OpContext,
        cursor: u64,
        node: NodeId,
    ) -> LocalFuture<'f, Result<Evacuated, IndexError>> {
        Box::pin(async move {
            let Self::Race(race) = self else {
                return Ok(Evacuated::default());
            };
            let stretch = race.evacuate(cx, cursor, node).await?;
            let mut evacuated = Evacuated {
                items: 0,
                parts: stretch.has_moved.into(),
                next: stretch.next,
            };
            for key in stretch.keys {
                let mut decide = |stored: Option<Item<'_>>| match stored {
                    // Removed meanwhile.
                    None => Decision::Keep,
                    Some(item) => Decision::Put {
                        value: Cow::Owned(item.value.to_vec()),
                        expiry_ms: item.expiry_ms,
                        tag: item.tag,
                        // It is what is stored, so only that may be replaced.
                        regardless: false,
                    },
                };
                let change = self.change(cx, &key, None, &mut decide).await?;
                evacuated.items += u64::from(change == Change::Updated);
            }
            Ok(evacuated)
        })
    }
}
