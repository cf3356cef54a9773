//! ShiftLock (FAST 2025): readers and writers; writers queue up and hand over, readers are counted.
//!
//! The entry is 16 bytes ([`word`]): the tail of the writers' queue, how many readers there are, how often the
//! lock was released, and an epoch that flips when the lock passes to the readers.
//!
//! Acquire, as a writer (Algorithm 2): swap the own seat into the tail: one atomic.
//!  1. The tail was empty, and no reader there: the lock is ours.
//!  2. The tail was empty: wait until as many releases were counted as there were readers.
//!  3. Otherwise tell the writer in front, and wait for its letter: `Handover`: the lock is ours;
//!     `ModeChanged`: the readers have it; wait for their releases as in 2.
//!
//! Acquire, as a reader: add one reader: one atomic. If there is no tail the lock is ours (among others);
//! otherwise wait until the epoch flips.
//!
//! Release, as a writer (Algorithm 3): empty the tail, count, and flip the epoch, all with one atomic. If there
//! is a successor: count with one atomic and write `Handover` beside it; after `N` writers in a row flip the epoch with
//! that atomic and write `ModeChanged` when it has. Release, as a reader: one reader less, one release more: one atomic.
//!
//! Order: writers among themselves first come, first served. Nobody starves: a writer waits for the readers that were
//! there before it, and readers for `N + 1` writers at most (section 3.5).
//!
//! # When somebody dies
//! Each hold has a lease ([`Grant::until_ns`]); in the paper it is 10 ms. A client that sees the release count stand
//! still for three leases asks the [lock service](crate::service) to reset the lock; everybody who waits sees the
//! count leap and queues up anew. See `watch` for the times. Who was only slow finds out at its release
//! ([`LockError::LeaseLost`]) and changes nothing: a writer's atomics compare the release count, which never comes
//! again, but for an add early in its lease (`writer`); a reader looks at its lease first (`reader`). Without a lock
//! service locks stay locked.
//!
//! # Differs from the paper
//! - Late in a lease, and where it decides something, a writer counts by compare-and-swap of the release count instead of
//!   fetch-and-add: the same number of verbs, fenced.
//! - Letters carry the epoch, what is left of the lease (`writer`) and stamps; widths of fields ([`word`]); a reset counts as
//!   a release.
//! - The request for recovery names the release count, which the agent compares, besides the era. It is not
//!   answered: the client looks at the lock again.
//! - Algorithms 2 and 3 are the specification: every hand-over counts a release, and a free lock is taken like any other.
//!
//! Cost without contention: one atomic, and one atomic, in either mode. It needs masked atomics of 16
//! bytes; there is no fallback, since two words that change together are what the protocol rests on.
//!
//! # As a mutex
//! `shiftlock-mutex` is how CIDER (section 4.1) uses it: readers are writers, and the mode never changes.
//!
//! # With a steady poll
//! Who waits for a count looks at it again after a pause, which doubles now and then while the count does not change.
//! `shiftlock-polling` keeps to the first pause, as the artifact does: papers have measured that.

mod reader;
#[cfg(test)]
mod testing;
pub(crate) mod watch;
pub mod word;
mod writer;

use core::cell::Cell;
use std::rc::Rc;

use farside_fabric::{Endpoint, OpContext, RemoteAddr};

use crate::grant::Held;
use crate::inbox::Inbox;
use crate::patience::{self, until};
use crate::phases::{Phase, Stopwatch};
use crate::site::{LockOptions, Site};
use crate::{Grant, Lock, LockError, Mode};

pub(crate) use reader::ReaderHold;
use watch::{Lease, Watch};
pub(crate) use writer::WriterHold;

/// A client's side of a ShiftLock.
#[derive(Debug)]
pub struct ShiftLock {
    inbox: Inbox,
    options: LockOptions,
    is_mutex: bool,
    is_steady: bool,
    stopwatch: Stopwatch,
}

/// How a ShiftLock is held.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Hold {
    Writer(WriterHold),
    Reader(ReaderHold),
}

impl Hold {
    /// Whether somebody was in front of it.
    pub(crate) fn has_waited(&self) -> bool {
        matches!(self, Self::Writer(hold) if hold.is_behind)
    }

    /// When its holder has to stop.
    pub(crate) fn end_ns(&self) -> u64 {
        match self {
            Self::Writer(hold) => hold.end_ns,
            Self::Reader(hold) => hold.end_ns,
        }
    }
}

/// What came of one attempt.
enum Outcome<H> {
    Held(H),
    /// The lock was reset, or may have been.
    Again,
}

/// An acquire or a release under way; it may outlive its caller.
struct Attempt {
    endpoint: Endpoint,
    entry: RemoteAddr,
    inbox: Inbox,
    options: LockOptions,
    is_mutex: bool,
    is_steady: bool,
    retries: Rc<Cell<u64>>,
    stopwatch: Stopwatch,
}

impl ShiftLock {
    /// A client of an endpoint.
    #[must_use]
    pub fn new(inbox: Inbox, site: &Site) -> Self {
        Self {
            inbox,
            options: *site.options(),
            is_mutex: false,
            is_steady: false,
            stopwatch: site.stopwatch(),
        }
    }

    /// A client for which every mode is exclusive.
    #[must_use]
    pub fn mutex(inbox: Inbox, site: &Site) -> Self {
        Self {
            is_mutex: true,
            ..Self::new(inbox, site)
        }
    }

    /// A client that looks at a lock as often after a long wait as at its beginning.
    #[must_use]
    pub fn polling(inbox: Inbox, site: &Site) -> Self {
        Self {
            is_steady: true,
            ..Self::new(inbox, site)
        }
    }

    fn attempt(&self, cx: &OpContext, entry: RemoteAddr) -> Attempt {
        Attempt {
            endpoint: cx.endpoint().clone(),
            entry,
            inbox: self.inbox.clone(),
            options: self.options,
            is_mutex: self.is_mutex,
            is_steady: self.is_steady,
            retries: cx.retry_meter(),
            stopwatch: self.stopwatch.clone(),
        }
    }
}

/// In plain calls, over mapped memory: see [`Locker::acquire_now`](crate::Locker::acquire_now).
impl ShiftLock {
    /// A writer that finds neither a writer nor a reader. It holds the lock for a lease from before its swap.
    pub(crate) fn acquire_now(&self, cx: &mut OpContext, entry: RemoteAddr, mode: Mode) -> Option<Grant> {
        if self.stopwatch.is_running() || (mode == Mode::Shared && !self.is_mutex) {
            return None;
        }
        let hold = WriterHold::now(cx, entry, self.inbox.take_seat(entry).ok()?, self.options.lease_ns)?;
        let end_ns = hold.end_ns;
        Some(Grant::new(entry, mode, Held::Shift(Hold::Writer(hold))).leased_until(end_ns))
    }

    pub(crate) fn release_now(&self, cx: &mut OpContext, grant: &Grant) -> bool {
        match grant.held() {
            Held::Shift(Hold::Writer(hold)) => !self.stopwatch.is_running() && hold.leave_now(cx, grant.entry()),
            _ => false,
        }
    }
}

impl Lock for ShiftLock {
    fn entry_bytes(_: &LockOptions) -> u64 {
        16
    }

    async fn acquire(&self, cx: &mut OpContext, entry: RemoteAddr, mode: Mode) -> Result<Grant, LockError> {
        let attempt = self.attempt(cx, entry);
        let give_back = self.attempt(cx, entry);
        let work = attempt.acquire(mode);
        let later = async move |held: Result<Hold, LockError>| {
            if let Ok(hold) = held {
                // If that fails the lock was reset, or the connection is gone.
                let _ = give_back.release(hold).await;
            }
        };
        match until(cx.endpoint(), cx.deadline(), work, later).await {
            Some(hold) => {
                let hold = hold?;
                let end_ns = hold.end_ns();
                Ok(Grant::new(entry, mode, Held::Shift(hold)).leased_until(end_ns))
            }
            None => Err(LockError::Timeout { entry }),
        }
    }

    async fn release(&self, cx: &mut OpContext, grant: Grant) -> Result<(), LockError> {
        let entry = grant.entry();
        let Held::Shift(hold) = grant.into_held() else {
            unreachable!("a grant goes back to the lock that gave it");
        };
        let work = self.attempt(cx, entry).release(hold);
        patience::release(cx, entry, work).await
    }
}

impl Attempt {
    /// How long to wait before the next look at a count.
    fn pause_ns(&self, watch: &Watch) -> u64 {
        if self.is_steady {
            watch::PAUSE_NS
        } else {
            watch.pause_ns()
        }
    }

    async fn acquire(self, mode: Mode) -> Result<Hold, LockError> {
        self.stopwatch.begin(mode);
        // Ends when the lock is ours. Each turn means that it was reset.
        loop {
            let outcome = if mode == Mode::Shared && !self.is_mutex {
                match self.enter().await? {
                    Outcome::Held(hold) => Outcome::Held(Hold::Reader(hold)),
                    Outcome::Again => Outcome::Again,
                }
            } else {
                match self.queue_up(self.inbox.take_seat(self.entry)?).await? {
                    Outcome::Held(hold) => Outcome::Held(Hold::Writer(hold)),
                    Outcome::Again => Outcome::Again,
                }
            };
            if let Outcome::Held(hold) = outcome {
                return Ok(hold);
            }
            self.retries.set(self.retries.get() + 1);
        }
    }

    fn lease(&self) -> Lease {
        Lease {
            ns: self.options.lease_ns,
        }
    }

    /// A phase is over; returns what time it is.
    fn spent(&self, mode: Mode, phase: Phase, start_ns: u64) -> u64 {
        self.stopwatch.stop(&self.endpoint, mode, phase, start_ns)
    }

    async fn release(self, hold: Hold) -> Result<(), LockError> {
        match hold {
            Hold::Writer(hold) => self.leave_writer(hold).await,
            Hold::Reader(hold) => self.leave_reader(hold).await,
        }
    }
}
