//! A lock that is held.
//!
//! On the path: what `acquire` returns and `release` takes. It carries what the lock will need to give
//! itself back, so that neither the client nor the site has to keep a table of what is held.

use farside_fabric::RemoteAddr;

use crate::Mode;
use crate::mcs::Head;

/// A lock that is held; give it to `release` of the same client.
///
/// Not a guard that releases when dropped: a release is a verb, which may fail, and has to be awaited.
#[derive(PartialEq, Eq, Debug)]
#[must_use = "a lock that is not released stays locked"]
pub struct Grant {
    entry: RemoteAddr,
    mode: Mode,
    held: Held,
}

/// What each lock needs to give itself back: one line per lock that needs anything.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Held {
    /// Entry and mode are enough.
    Plain,
    /// The head of the queue.
    Mcs(Head),
}

impl Grant {
    pub(crate) fn new(entry: RemoteAddr, mode: Mode, held: Held) -> Self {
        Self { entry, mode, held }
    }

    /// The lock.
    #[must_use]
    pub fn entry(&self) -> RemoteAddr {
        self.entry
    }

    /// How it is held.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    pub(crate) fn into_held(self) -> Held {
        self.held
    }
}
