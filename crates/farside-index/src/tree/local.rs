//! Operations that the clients of a compute node share: see [`farside_sync::local`] (SMART; CHIME, section 5.1: RDWC).
//!
//! On the path: before a SEARCH, an UPDATE or a put goes to its leaf, where it is asked for. INSERTs and DELETEs, which say
//! what they have found, and scans go their own way.

use farside_fabric::OpContext;
use farside_sync::local::{Asked, Combiner};

use super::Tree;
use super::change::Wish;
use super::layout::Key;
use crate::error::IndexError;
use crate::local::{Shared, late};
use crate::operation::Change;

/// The operations on a tree that the clients of a compute node have under way.
#[derive(Default, Debug)]
pub(super) struct Local {
    writes: Combiner<Change>,
    reads: Combiner<Option<u64>>,
}

impl Tree {
    /// Lets SEARCHes, UPDATEs and puts of the same key go together from now on, if they are this client's.
    pub fn share_operations(&self) {
        self.shared.local.get_or_init(Local::default);
    }

    /// How many operations of this client have gone with another one.
    #[must_use]
    pub fn shared(&self) -> Shared {
        let local = self.shared.local.get();
        local.map_or_else(Shared::default, |local| Shared {
            writes: local.writes.counts(),
            reads: local.reads.counts(),
        })
    }

    /// A SEARCH, unless another one goes for it.
    pub(super) async fn search_shared(
        &self,
        cx: &mut OpContext,
        key: Key,
        local: &Local,
    ) -> Result<Option<u64>, IndexError> {
        match local.reads.ask(cx, &key.to_le_bytes()).await {
            Asked::Go(turn) => {
                let found = self.search_alone(cx, key).await?;
                turn.end(found);
                Ok(found)
            }
            Asked::Done(found) => Ok(found),
            Asked::Late => Err(late()),
        }
    }

    /// A write that stores its value whatever is there, unless another one goes for it.
    pub(super) async fn change_shared(
        &self,
        cx: &mut OpContext,
        key: Key,
        wish: Wish,
        local: &Local,
    ) -> Result<Change, IndexError> {
        let turn = match local.writes.ask(cx, &key.to_le_bytes()).await {
            Asked::Go(turn) => turn,
            Asked::Done(change) => return Ok(change),
            Asked::Late => return Err(late()),
        };
        let (change, _) = self.change_alone(cx, key, wish).await?;
        // The key was there: so it was for those who come directly before. Otherwise they look for themselves.
        if change == Change::Updated {
            turn.end(change);
        }
        Ok(change)
    }
}
