//! A lock that is held.
//!
//! On the path: what `acquire` returns and `release` takes. It carries what the lock will need to give
//! itself back, so that neither the client nor the site has to keep a table of what is held.

use farside_fabric::RemoteAddr;

use crate::Mode;
use crate::inbox::Seat;
use crate::mcs::Head;
use crate::rma_rw::Writer;
use crate::shiftlock::Hold;

/// A held lock; pass it to `release` of the same client.
///
/// Not a guard that releases when dropped: a release is a verb, which may fail, and has to be awaited.
#[derive(PartialEq, Eq, Debug)]
#[must_use = "a lock that is not released stays locked"]
pub struct Grant {
    entry: RemoteAddr,
    mode: Mode,
    held: Held,
    until_ns: u64,
}

/// What each lock needs to give itself back: one line per lock that needs anything.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Held {
    /// Entry and mode are enough.
    Plain,
    /// The head of the queue.
    Mcs(Head),
    /// A writer at the head of its queue.
    RmaWriter(Writer),
    /// The seat that was granted it.
    Rpc(Seat),
    /// A writer, or a reader, and its lease.
    Shift(Hold),
}

impl Grant {
    pub(crate) fn new(entry: RemoteAddr, mode: Mode, held: Held) -> Self {
        Self {
            entry,
            mode,
            held,
            until_ns: u64::MAX,
        }
    }

    /// The same, held no longer than until `until_ns`.
    pub(crate) fn leased_until(self, until_ns: u64) -> Self {
        Self { until_ns, ..self }
    }

    /// Until when it is held, in nanoseconds on the clock of the endpoint that acquired it. Afterwards another client
    /// may hold the lock, whether it was released or not. `u64::MAX` if the lock has no leases.
    #[must_use]
    pub fn until_ns(&self) -> u64 {
        self.until_ns
    }

    /// Whether the lease has expired.
    #[must_use]
    pub fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.until_ns
    }

    /// The lock.
    #[must_use]
    pub fn entry(&self) -> RemoteAddr {
        self.entry
    }

    /// Whether the lock was handed over by another client of its queue; only ShiftLocks know this.
    #[must_use]
    pub fn has_waited(&self) -> bool {
        matches!(&self.held, Held::Shift(hold) if hold.has_waited())
    }

    /// How it is held.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    pub(crate) fn held(&self) -> &Held {
        &self.held
    }

    pub(crate) fn into_held(self) -> Held {
        self.held
    }
}
