//! Resetting a CQL lock (DecLock, section 4.4 and appendix B).
//!
//! On the path: when somebody has waited for a lease and nobody got ahead, or found the queue full or its
//! versions used up.
//!
//!  1. Compare-and-swap our name into the header as its reset ID. From here on nobody joins or leaves.
//!  2. Tell every endpoint in the roster, and wait until each has said that it is done with the lock. Who
//!     does not answer for two leases, or is known to be gone, is *cut off*: none of its verbs has an effect any more, so what it
//!     held is nobody's. Where a client cannot be cut off while it lives (mapped memory), it is waited for.
//!     If the site says so it is warned before ([`LockOptions::declock_notice_ns`](crate::LockOptions)).
//!  3. WRITE a blank queue and a free header, in this order.
//!
//! Whoever finds a lock being reset for two leases asks the one whose name is in the header. If that one
//! has died it is cut off, and the asker puts its own name in place of the other and begins at step 2.
//!
//! # Reset counters
//! The paper counts resets at each compute node, and notifications carry the count. Here a reset moves the
//! head of the queue past every place that was handed out before, and a notification carries its place:
//! one of before the reset names a place that nobody waits at. So a node that comes later needs not be told
//! how many resets there were.

use std::collections::BTreeMap;
use std::rc::Rc;

use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, Deadline, EndpointId, FabricError, Fence, OpContext, RemoteAddr, Slice, Verb};

use super::QUEUE_AT;
use super::client::Client;
use super::header::Header;
use super::node::Local;
use super::roster::Member;
use crate::LockError;
use crate::atomics::{compare_swap, execute};
use crate::inbox::Seat;
use crate::letter::{ANY_STAMP, Letter, LetterKind, Place};

/// Somebody whose answer is waited for.
struct Pending {
    desk: Place,
    /// When it was last heard of; `None` if nobody is there any more.
    heard_ns: Option<u64>,
}

impl Client {
    /// Resets a lock whose reset ID is `id`: 0, or that of a member that has been cut off. A task of its own:
    /// a reset that has begun comes to its end.
    pub(super) fn start_reset(&self, local: &Rc<Local>, id: u64) {
        if local.is_resetting.replace(true) {
            return;
        }
        let (client, local) = (self.clone(), Rc::clone(local));
        self.endpoint.spawn(async move {
            // If it fails we are cut off, or a node is gone for us: others take over, and whoever waits here
            // is told, since it may have to start again with another endpoint.
            let begun_ns = client.endpoint.now_ns();
            match client.reset(&local, id).await {
                Ok(true) => client.node.note_reset(client.endpoint.now_ns() - begun_ns),
                Ok(false) => {}
                Err(failure) => local.reset_failure.set(Some(failure)),
            }
            local.is_resetting.set(false);
        });
    }

    /// Returns whether it was us who did it.
    async fn reset(&self, local: &Rc<Local>, id: u64) -> Result<bool, LockError> {
        let me = self.enlist().await?;
        let entry = local.entry;
        // Step 1. Ends when nobody joins or leaves between the READ and the swap, or somebody else resets it.
        let header = loop {
            let found = Header(execute(&self.endpoint, Verb::ReadWord { source: entry }).await? as u64);
            if found.reset_id() != id {
                return Ok(false);
            }
            let mine = found.with_reset_id(me.0.into());
            if compare_swap(&self.endpoint, entry, found.0, mine.0).await? == found.0 {
                break mine;
            }
        };
        self.tell_everybody(local).await?; // Step 2.
        // Step 3.
        let bytes = self.node.queue_bytes();
        let mut buffer = self.endpoint.buffer(bytes as usize);
        let mut batch = Batch::new();
        batch.write(Slice::first(bytes as u32), entry.plus(QUEUE_AT));
        batch.write_word(entry, header.after_reset().0);
        self.endpoint.post(&mut batch, &mut buffer, Deadline::NEVER).await?;
        Ok(true)
    }

    /// Waits until every endpoint is done with the lock.
    async fn tell_everybody(&self, local: &Rc<Local>) -> Result<(), LockError> {
        // Everybody answers at once; an answer that is dropped looks like a client that has died.
        let seat = self.inbox.take_busy_seat(local.entry)?;
        let mut cx = OpContext::new(self.endpoint.clone());
        // Read after the header was marked: who joins the roster later finds the mark.
        let everybody = self.roster().everybody(&mut cx).await?;
        let heard_ns = Some(self.endpoint.now_ns());
        let mut pending: BTreeMap<Member, Pending> = everybody
            .into_iter()
            .map(|(member, desk)| (member, Pending { desk, heard_ns }))
            .collect();
        // Ends when all have answered or are cut off; a client of mapped memory that stands still for ever
        // is waited for as long.
        while !pending.is_empty() {
            for pending in pending.values_mut() {
                let told = self.call(LetterKind::Reset, local, &seat, pending.desk).await;
                match told {
                    Err(FabricError::PeerUnknown { .. }) => pending.heard_ns = None,
                    other => other?,
                }
            }
            let now_ns = self.endpoint.now_ns();
            let is_silent = |pending: &Pending| match pending.heard_ns {
                Some(heard_ns) => now_ns.saturating_sub(heard_ns) > 2 * self.node.lease_ns(),
                None => true,
            };
            let silent: Vec<(Member, EndpointId)> = pending
                .iter()
                .filter(|(_, pending)| is_silent(pending))
                .map(|(member, pending)| (*member, pending.desk.endpoint))
                .collect();
            for member in self.cut_off(&silent).await? {
                pending.remove(&member);
            }
            // Also where only those are left that are gone and cannot be cut off yet.
            self.hear(&seat, &mut pending).await?;
        }
        Ok(())
    }

    /// Takes answers for half a lease, or until there are none to come.
    async fn hear(&self, seat: &Seat, pending: &mut BTreeMap<Member, Pending>) -> Result<(), LockError> {
        let round = self.endpoint.deadline_in(self.node.lease_ns() / 2);
        while !pending.is_empty() {
            let Some(arrived) = seat.receive(&self.endpoint, round).await? else {
                return Ok(());
            };
            let of = EndpointId(arrived.letter.words[0]);
            match arrived.letter.kind {
                LetterKind::Done => pending.retain(|_, pending| pending.desk.endpoint != of),
                LetterKind::Busy => {
                    let from_it = pending.values_mut().filter(|pending| pending.desk.endpoint == of);
                    from_it.for_each(|pending| pending.heard_ns = Some(self.endpoint.now_ns()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes sure that nothing these endpoints do has an effect any more. Returns of which that is so.
    pub(super) async fn cut_off(&self, endpoints: &[(Member, EndpointId)]) -> Result<Vec<Member>, LockError> {
        if is_planted("declock: the dead not cut off") {
            return Ok(endpoints.iter().map(|&(member, _)| member).collect());
        }
        let notice_ns = self.node.notice_ns();
        let mut is_warned = false;
        for &(member, _) in endpoints.iter().filter(|_| notice_ns > 0) {
            is_warned |= self.roster().warn(&self.endpoint, member).await?;
        }
        if is_warned {
            self.endpoint.sleep(notice_ns).await;
        }
        let mut gone = Vec::new();
        for &(member, endpoint) in endpoints {
            let patience = self.endpoint.deadline_in(2 * self.node.lease_ns());
            // If a node does not answer us, it may answer others, or us with another endpoint.
            if self.endpoint.fence(endpoint, patience).await? == Fence::CutOff {
                self.roster().strike(&self.endpoint, member).await?;
                gone.push(member);
            }
        }
        Ok(gone)
    }

    async fn call(&self, kind: LetterKind, local: &Local, seat: &Seat, desk: Place) -> Result<(), FabricError> {
        let letter = Letter {
            kind,
            seat: desk.seat,
            reply: seat.number(),
            stamp: ANY_STAMP,
            entry: RemoteAddr::NULL,
            words: [local.entry.to_bits(), seat.stamp().into(), 0],
        };
        self.inbox.send(&self.endpoint, desk.endpoint, letter).await
    }

    /// Whether the member that has begun to reset a lock does not go on, now or ever.
    pub(super) async fn has_stopped(&self, local: &Rc<Local>, member: Member) -> Result<bool, LockError> {
        let Some(desk) = self.desk_of(member).await? else {
            return Ok(true);
        };
        let seat = self.inbox.take_seat(local.entry)?;
        match self.call(LetterKind::AskReset, local, &seat, desk).await {
            Ok(()) => {}
            Err(FabricError::PeerUnknown { .. }) => {
                let gone = self.cut_off(&[(member, desk.endpoint)]).await?;
                return Ok(!gone.is_empty());
            }
            Err(error) => return Err(error.into()),
        }
        let patience = self.endpoint.deadline_in(2 * self.node.lease_ns());
        if let Some(arrived) = seat.receive(&self.endpoint, patience).await? {
            return Ok(arrived.letter.kind == LetterKind::Done);
        }
        let gone = self.cut_off(&[(member, desk.endpoint)]).await?;
        Ok(!gone.is_empty())
    }
}

#[cfg(test)]
mod tests;
