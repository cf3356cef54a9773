//! Operations that the clients of a compute node share: see [`farside_sync::local`].
//!
//! On the path: between a session and the index, where it is asked for. What is shared is an UPDATE or PUT whose caller
//! has said that it does not depend on what is stored ([`Likely::regardless`]), and a SEARCH of one key. Changes that look at
//! what they replace, DELETEs, searches of many keys and scans go their own way.

use std::rc::Rc;

use farside_fabric::{FabricError, NodeId, OpContext, Slice};
use farside_sync::local::{Asked, Combiner, Counts};
use farside_value::format::Tag;

use crate::error::IndexError;
#[cfg(doc)]
use crate::operation::Likely;
use crate::operation::{Change, Found};

/// What a SEARCH has found, for those who share it.
#[derive(Debug)]
pub(crate) struct Copied {
    value: Box<[u8]>,
    expiry_ms: u64,
    tag: Tag,
}

/// The operations that the clients of a compute node have under way.
#[derive(Default, Debug)]
pub(crate) struct Local {
    writes: Combiner<Change>,
    reads: Combiner<Option<Rc<Copied>>>,
}

/// Which operations of a compute node have gone with another one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Shared {
    /// Writes.
    pub writes: Counts,
    /// Searches.
    pub reads: Counts,
}

impl Shared {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            writes: self.writes.plus(other.writes),
            reads: self.reads.plus(other.reads),
        }
    }

    /// What was added since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            writes: self.writes.since(earlier.writes),
            reads: self.reads.since(earlier.reads),
        }
    }
}

impl Local {
    pub(crate) fn shared(&self) -> Shared {
        Shared {
            writes: self.writes.counts(),
            reads: self.reads.counts(),
        }
    }

    /// Does a write that stores its value whatever is there, unless another one goes for it.
    pub(crate) async fn write(
        &self,
        cx: &mut OpContext,
        key: &[u8],
        write: impl AsyncFnOnce(&mut OpContext) -> Result<Change, IndexError>,
    ) -> Result<Change, IndexError> {
        let turn = match self.writes.ask(cx, key).await {
            Asked::Go(turn) => turn,
            Asked::Done(change) => return Ok(change),
            Asked::Late => return Err(late()),
        };
        let change = write(cx).await?;
        // The key was there: so it was for those who come directly before. Otherwise they look for themselves.
        if change == Change::Updated {
            turn.end(change);
        }
        Ok(change)
    }

    /// Does a SEARCH, unless another one goes for it. The value is left in the context's buffer.
    pub(crate) async fn read(
        &self,
        cx: &mut OpContext,
        key: &[u8],
        read: impl AsyncFnOnce(&mut OpContext) -> Result<Option<Found>, IndexError>,
    ) -> Result<Option<Found>, IndexError> {
        match self.reads.ask(cx, key).await {
            Asked::Go(turn) => {
                let found = read(cx).await?;
                let copied = turn.is_shared().then(|| {
                    found.map(|found| {
                        Rc::new(Copied {
                            value: cx.buffer()[found.value.range()].into(),
                            expiry_ms: found.expiry_ms,
                            tag: found.tag,
                        })
                    })
                });
                turn.end(copied.flatten());
                Ok(found)
            }
            Asked::Done(copied) => Ok(copied.map(|copied| {
                let value = Slice::first(copied.value.len() as u32);
                cx.reserve(copied.value.len());
                cx.buffer_mut()[value.range()].copy_from_slice(&copied.value);
                Found {
                    value,
                    expiry_ms: copied.expiry_ms,
                    tag: copied.tag,
                }
            })),
            Asked::Late => Err(late()),
        }
    }
}

/// The deadline has passed before anything was posted.
pub(crate) fn late() -> IndexError {
    FabricError::DeadlineExceeded { node: NodeId::new(0) }.into()
}
