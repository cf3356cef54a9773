//! One endpoint's place in the table of one segment: mail, liveness, fencing.
//!
//! On the path: SEND, RECEIVE and FENCE of mapped and of connected endpoints end here.

use core::future::poll_fn;
use core::sync::atomic::{AtomicU64, Ordering};
use core::task::Poll;
use core::time::Duration;

use super::error::SegmentError;
use super::mailbox::{Taken, tag};
use super::process::ProcessIdentity;
use super::segment::Segment;
use super::table::{Claim, Entry, Kind};
use super::waiter::{self, Waiter};
use crate::addr::NodeId;
use crate::backend::Fence;
use crate::clock::Deadline;
use crate::error::FabricError;
use crate::host::HostClock;
use crate::message::{EndpointId, Message, Received};

/// How often an empty mailbox is looked into without letting anybody else run: about two microseconds.
const SPIN_COUNT: u32 = 64;
/// How long a task goes on looking before it sleeps, and lets others run in between: the tasks of its thread, and
/// whoever else wants the core. Less than what sleeping and being woken takes, so waiting costs at most twice
/// what it has to.
const LINGER_NS: u64 = 15_000;
/// How long to step aside for a sender that is in the middle of its message.
const UNFINISHED_PAUSE_NS: u64 = 20_000;
/// How often mail is looked for where no thread can be had to wait for it.
const POLL_INTERVAL_NS: u64 = 1_000_000;

static TICKET: AtomicU64 = AtomicU64::new(0);

/// An entry that this process has claimed; left when dropped.
#[derive(Debug)]
pub(super) struct Registration {
    segment: Segment,
    claim: Claim,
}

impl Registration {
    /// Joins a segment, its first under a fresh identity and the others under the same.
    pub(super) fn claim(segment: &Segment, kind: Kind, identity: Option<EndpointId>) -> Result<Self, SegmentError> {
        let own = ProcessIdentity::own().map_err(|source| SegmentError::Io {
            path: "/proc/self".into(),
            action: "learn when this process started",
            source,
        })?;
        let claim = segment.shared.table.claim(&own, kind, identity);
        let claim = claim.ok_or_else(|| SegmentError::TableFull {
            path: segment.path().to_path_buf(),
            endpoints_max: segment.endpoints_max(),
        })?;
        let registration = Self {
            segment: segment.clone(),
            claim,
        };
        // Once more: whoever has left last may have said meanwhile that the file was left in order.
        segment.mark_in_use()?;
        Ok(registration)
    }

    pub(super) fn id(&self) -> EndpointId {
        self.claim.id
    }

    pub(super) fn segment(&self) -> &Segment {
        &self.segment
    }

    pub(super) fn entry(&self) -> Entry<'_> {
        self.segment.shared.table.entry(self.claim.index)
    }

    pub(super) fn is_fenced(&self) -> bool {
        self.entry().is_fenced(self.id())
    }

    /// Puts a message into the mailbox of another endpoint whose home is this segment.
    pub(super) fn send(&self, peer: EndpointId, message: &Message) -> Result<(), FabricError> {
        let table = &self.segment.shared.table;
        let unknown = FabricError::PeerUnknown { peer };
        let entry = table.at_home(peer).ok_or(unknown)?;
        let own = ProcessIdentity::own().map_err(|_| unknown)?;
        if entry.is_plainly_gone(&own) {
            return Err(unknown);
        }
        entry.mailbox().send(self.id(), peer, message).map_err(|_| {
            // The slower question, now that there is reason to ask it.
            if entry.owner_is_gone() {
                unknown
            } else {
                FabricError::MailboxFull { peer }
            }
        })?;
        waiter::ring(table, entry);
        Ok(())
    }

    /// The oldest message, if one is there.
    pub(super) fn take(&self) -> Taken {
        self.entry().mailbox().take(self.id(), |sender| self.is_gone(sender))
    }

    /// The oldest message, if one is there and whole.
    pub(super) fn try_receive(&self) -> Option<Received> {
        match self.take() {
            Taken::Message(received) => Some(received),
            Taken::Empty | Taken::Unfinished => None,
        }
    }

    /// Whether the sender that claimed a slot will never fill it.
    fn is_gone(&self, sender: u64) -> bool {
        let entry = self.segment.shared.table.at_tag(sender);
        entry.is_none_or(|entry| entry.id().is_none_or(|id| tag(id) != sender) || entry.owner_is_gone())
    }

    /// Takes the oldest message or waits for one.
    pub(super) async fn receive(&self, deadline: Deadline) -> Result<Received, FabricError> {
        let mut linger_until_ns = None;
        loop {
            let taken = self.look();
            if let Taken::Message(received) = taken {
                return Ok(received);
            }
            let now_ns = HostClock.now_ns();
            if now_ns >= deadline.0 {
                return Err(FabricError::NoMessage);
            }
            if taken == Taken::Empty && now_ns < *linger_until_ns.get_or_insert(now_ns + LINGER_NS) {
                // Whoever is to write may need this core.
                std::thread::yield_now();
                tokio::task::yield_now().await;
                continue;
            }
            if taken == Taken::Unfinished {
                HostClock.sleep(UNFINISHED_PAUSE_NS).await;
                continue;
            }
            match self.segment.shared.waiter() {
                Some(waiter) => self.await_mail(waiter, deadline).await,
                None => HostClock.sleep(POLL_INTERVAL_NS).await,
            }
        }
    }

    /// Looks into the mailbox for a short while.
    fn look(&self) -> Taken {
        for _ in 1..SPIN_COUNT {
            match self.take() {
                Taken::Empty => core::hint::spin_loop(),
                found => return found,
            }
        }
        self.take()
    }

    /// Sleeps until there is something in the mailbox, or the deadline.
    async fn await_mail(&self, waiter: &Waiter, deadline: Deadline) {
        let bed = Bed {
            waiter,
            ticket: TICKET.fetch_add(1, Ordering::Relaxed),
        };
        let mail = poll_fn(|context| {
            bed.waiter.lie_down(bed.ticket, self.claim.index, context.waker());
            if self.entry().mailbox().has_mail() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        if deadline == Deadline::NEVER {
            return mail.await;
        }
        let remaining = Duration::from_nanos(deadline.0.saturating_sub(HostClock.now_ns()));
        #[expect(
            clippy::disallowed_methods,
            reason = "this is where the deadline of a receive is kept"
        )]
        let _ = tokio::time::timeout(remaining, mail).await;
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.segment.shared.table.release(self.claim);
    }
}

/// Gets the task up again, also when its future is dropped.
struct Bed<'a> {
    waiter: &'a Waiter,
    ticket: u64,
}

impl Drop for Bed<'_> {
    fn drop(&mut self) {
        self.waiter.get_up(self.ticket);
    }
}

impl Segment {
    /// Makes sure that no further verb of `peer` takes effect on this segment; `node` is the
    /// segment's number, for the error.
    ///
    /// A peer that maps the segment itself is cut off once its process is gone. A peer that is
    /// connected through the memory node's process is marked, and cut off as soon as a verb of its
    /// that is being executed has ended. A peer that nobody knows has no verbs. An endpoint joins
    /// its home (node 0) first and looks there again after it has joined the others, so fence a peer
    /// at its home first.
    ///
    /// # Errors
    /// [`FabricError::DeadlineExceeded`] if the verb did not end in time. The peer is marked then,
    /// and a later call may succeed.
    pub async fn fence(&self, node: NodeId, peer: EndpointId, deadline: Deadline) -> Result<Fence, FabricError> {
        let Some(entry) = self.shared.table.find(peer) else {
            return Ok(Fence::CutOff);
        };
        if entry.owner_is_gone() {
            return Ok(Fence::CutOff);
        }
        if !entry.is_connected() {
            // It may have left meanwhile, and the entry may be another's.
            let is_left = entry.id() != Some(peer);
            return Ok(if is_left { Fence::CutOff } else { Fence::StillRunning });
        }
        entry.fence(peer);
        // Who executes a verb first says so and then looks whether it was fenced; we did it the other
        // way round, so one of us sees the other.
        while entry.busy().load(Ordering::SeqCst) != 0 && entry.id() == Some(peer) && !entry.owner_is_gone() {
            if HostClock.now_ns() >= deadline.0 {
                return Err(FabricError::DeadlineExceeded { node });
            }
            HostClock.sleep(UNFINISHED_PAUSE_NS).await;
        }
        Ok(Fence::CutOff)
    }
}

#[cfg(test)]
mod tests;
