//! One client of CQL locks: joins queues, waits, leaves (DecLock, sections 4.2 and 4.3, figure 7).
//!
//! Everything here runs to its end: no verb has a deadline, since one of unknown outcome would leave a
//! queue of unknown shape. It is the caller who stops waiting, and then the work goes on as a task.

use core::cell::Cell;
use std::rc::Rc;

use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, Buffer, Deadline, Endpoint, EndpointId, FabricError, OpContext, RemoteAddr, Slice, Verb};

use super::QUEUE_AT;
use super::desk;
use super::header::{Header, Index};
use super::node::{Asked, Local, Membership, Node, Wait};
use super::queue::{Entry, Left, Next, VERSION_NEVER, Waiter};
use super::roster::{Member, Roster};
use super::timestamp::Timestamp;
use crate::atomics::execute;
use crate::inbox::{Inbox, Seat};
use crate::letter::{ANY_STAMP, Letter, LetterKind, NO_SEAT, Place};
use crate::{LockError, Mode};

/// How often somebody who waits for a member to join looks again.
const JOIN_PAUSE_NS: u64 = 1_000;
/// How long to wait before the header of a lock that is being reset is read again, at first.
const RESET_PAUSE_NS: u64 = 5_000;

/// A client, as its tasks carry it around.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) endpoint: Endpoint,
    pub(super) node: Node,
    pub(super) inbox: Inbox,
    pub(super) retries: Rc<Cell<u64>>,
}

/// A CQL lock that is held.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    /// When the next of those who waited behind asked, if whoever released the lock knew of one.
    pub(super) remote: Option<Timestamp>,
}

/// How an attempt to enter a queue ended.
enum Entered {
    Taken(Taken),
    /// The lock is being reset, or has to be: try again afterwards.
    Reset,
}

impl Client {
    pub(super) fn roster(&self) -> &Roster {
        self.node.roster().expect("checked when the locker was made")
    }

    /// Makes sure that the endpoint is in the roster, and that it answers who resets a lock.
    pub(super) async fn enlist(&self) -> Result<Member, LockError> {
        let id = self.endpoint.id();
        // Ends when whoever joins has done so.
        loop {
            match self.node.membership(id) {
                Membership::Member(member) => return Ok(member),
                Membership::Joining => self.endpoint.sleep(JOIN_PAUSE_NS).await,
                Membership::None => break,
            }
        }
        let joined = self.join().await;
        self.node.set_membership(id, joined.as_ref().ok().copied());
        joined
    }

    async fn join(&self) -> Result<Member, LockError> {
        // All who reset a lock may write to it at the same time.
        let seat = self.inbox.take_busy_seat(RemoteAddr::NULL)?;
        let mut cx = OpContext::new(self.endpoint.clone());
        let member = match self.roster().join(&mut cx, seat.place()).await {
            Err(LockError::RosterFull { .. }) => {
                self.weed().await?;
                self.roster().join(&mut cx, seat.place()).await?
            }
            joined => joined?,
        };
        self.endpoint.spawn(desk::serve(self.clone(), seat));
        Ok(member)
    }

    /// Waits until the lock is held in this mode. `time` is when it was asked for.
    pub(super) async fn take(&self, local: &Rc<Local>, mode: Mode, time: Timestamp) -> Result<Taken, LockError> {
        // Ends with a grant. Every other end of a round is a reset, of which there is one for each
        // time that somebody saw no progress for a lease, or found the queue full.
        loop {
            // No other task runs before `begin`: an endpoint that is busy does not leave the roster.
            let member = self.enlist().await?;
            local.begin();
            let joining = Verb::FetchAdd {
                target: local.entry,
                add: Header::joining(mode),
            };
            let before = match execute(&self.endpoint, joining).await {
                Ok(before) => Header(before as u64),
                Err(error) => {
                    self.end(local);
                    return Err(error.into());
                }
            };
            let who = |seat| Waiter {
                mode,
                time,
                member,
                seat,
            };
            if let Entered::Taken(taken) = self.enter(local, before, mode, &who).await? {
                return Ok(taken);
            }
            self.count_retry();
            Box::pin(self.await_reset(local)).await?;
        }
    }

    /// Figure 7, lines 2 to 5, after line 1 found `before`.
    async fn enter(
        &self,
        local: &Rc<Local>,
        before: Header,
        mode: Mode,
        who: &dyn Fn(u16) -> Waiter,
    ) -> Result<Entered, LockError> {
        if before.is_resetting() && !is_planted("declock: a reset that newcomers do not see") {
            self.end(local);
            return Ok(Entered::Reset);
        }
        if before.admits(mode) {
            return Ok(Entered::Taken(Taken { remote: None }));
        }
        // Whoever has to wait does so on the heap: a lock that is free takes a small future.
        Box::pin(self.queue_up(local, before, who)).await
    }

    /// The rest of figure 7, lines 2 to 5: writes an entry of the queue, and waits.
    async fn queue_up(
        &self,
        local: &Rc<Local>,
        before: Header,
        who: &dyn Fn(u16) -> Waiter,
    ) -> Result<Entered, LockError> {
        let (place, capacity) = (before.back(), self.node.capacity());
        // Section 4.4: nobody may write an entry before its place is free, nor one that looks unwritten.
        let is_full = before.size() >= capacity || place.version(capacity) == VERSION_NEVER;
        let seat = match self.inbox.take_seat(local.entry) {
            Ok(seat) if !is_full => seat,
            other => {
                self.end(local);
                self.start_reset(local, 0);
                return other.map(|_| Entered::Reset);
            }
        };
        let entry = Verb::WriteWord {
            target: slot_of(local.entry, place, capacity),
            value: Entry::of(who(seat.number()), place, capacity).0,
        };
        let written = execute(&self.endpoint, entry).await;
        // Who resets the lock since we joined waits for us, and for nothing but us.
        let is_asked = local.is_asked();
        let wait = local.wait(place, &seat);
        self.end(local);
        if let Err(error) = written {
            local.stop_waiting(&wait);
            return Err(error.into());
        }
        if is_asked || wait.is_aborted.get() {
            local.stop_waiting(&wait);
            return Ok(Entered::Reset);
        }
        let entered = self.await_grant(local, &wait, &seat, before).await;
        local.stop_waiting(&wait);
        entered
    }

    /// Figure 7, line 5, after line 1 found `joined`. On a grant the client is busy again.
    async fn await_grant(
        &self,
        local: &Rc<Local>,
        wait: &Wait,
        seat: &Seat,
        joined: Header,
    ) -> Result<Entered, LockError> {
        let mut seen = joined;
        // Ends with a letter, or a lease after the last time that anybody else got ahead.
        loop {
            let patience = self.endpoint.deadline_in(self.node.lease_ns());
            let arrived = seat.receive(&self.endpoint, patience).await?;
            if let Some(failure) = local.reset_failure.take() {
                return Err(failure);
            }
            if wait.is_aborted.get() && !is_planted("declock: a grant after an abort") {
                return Ok(Entered::Reset);
            }
            match arrived.map(|arrived| arrived.letter) {
                // A grant of before a reset is for a place that nobody has any more.
                Some(letter)
                    if letter.kind == LetterKind::Granted
                        && (letter.words[0] == wait.place.0 || is_planted("declock: a grant for another place")) =>
                {
                    local.begin();
                    let remote = (letter.words[1] >> 16 == 1).then_some(Timestamp(letter.words[1] as u16));
                    return Ok(Entered::Taken(Taken { remote }));
                }
                Some(_) => {}
                None => {
                    let source = local.entry;
                    let now = Header(execute(&self.endpoint, Verb::ReadWord { source }).await? as u64);
                    let stands_still = seen.head() == now.head();
                    if wait.is_aborted.get() || !now.has(wait.place) {
                        return Ok(Entered::Reset);
                    }
                    if now.is_resetting() && stands_still {
                        // Nobody has told us: see whether who resets it is still there.
                        return Ok(Entered::Reset);
                    }
                    if stands_still {
                        self.start_reset(local, 0);
                    }
                    seen = now;
                }
            }
        }
    }

    /// Leaves the queue and wakes whoever is next (figure 7, lines 6 to 19).
    pub(super) async fn give(&self, local: &Rc<Local>, mode: Mode) -> Result<(), LockError> {
        let bytes = self.node.queue_bytes();
        let mut buffer = self.endpoint.buffer(bytes as usize);
        let mut batch = Batch::new();
        // One doorbell: the queue comes with the header as it was before we left, or newer.
        let leaving = batch.fetch_add(local.entry, Header::leaving(mode));
        let queue = Verb::Read {
            source: local.entry.plus(QUEUE_AT),
            target: Slice::first(bytes as u32),
        };
        batch.push(queue);
        let left = self.endpoint.post(&mut batch, &mut buffer, Deadline::NEVER).await;
        self.end(local);
        left?;
        let before = Header(batch.result(leaving));
        if before.is_resetting() || before.size() == 0 {
            return Ok(());
        }
        let is_writer = mode == Mode::Exclusive;
        let left = Left {
            mode,
            next: Index(before.head()).plus(1),
            behind: before.size() - 1,
            writers_behind: before.writers().saturating_sub(u64::from(is_writer)),
        };
        if left.behind == 0 {
            return Ok(());
        }
        Box::pin(self.wake_next(local, left, queue, buffer)).await
    }

    /// The rest of figure 7, lines 6 to 19. `queue` READs the entries to the start of the buffer again.
    async fn wake_next(&self, local: &Rc<Local>, left: Left, queue: Verb, mut buffer: Buffer) -> Result<(), LockError> {
        let capacity = self.node.capacity();
        let patience = self.endpoint.deadline_in(self.node.lease_ns());
        // Ends when all who wait have written, at the latest after a lease: then one of them has died, or
        // its entry was lost.
        loop {
            let entry = |slot: u64| {
                let at = 8 * slot as usize;
                let word = buffer[at..at + 8].try_into().expect("eight bytes");
                Entry(u64::from_le_bytes(word))
            };
            match left.next(capacity, entry) {
                Next::Nobody => return Ok(()),
                Next::Overwritten => {
                    self.start_reset(local, 0);
                    return Ok(());
                }
                Next::Grant(granted) => {
                    let remote = left.time_of_next(granted.len() as u64, capacity, entry);
                    return self.notify(local.entry, &granted, remote).await;
                }
                Next::Unwritten if self.endpoint.now_ns() >= patience.0 => {
                    self.start_reset(local, 0);
                    return Ok(());
                }
                Next::Unwritten => {
                    self.count_retry();
                    self.endpoint.execute(queue, &mut buffer, Deadline::NEVER).await?;
                }
            }
        }
    }

    async fn notify(
        &self,
        entry: RemoteAddr,
        granted: &[(Index, Waiter)],
        remote: Option<Timestamp>,
    ) -> Result<(), LockError> {
        for (place, waiter) in granted {
            // Who is not in the roster any more has died; those behind it find out.
            let Some(desk) = self.desk_of(waiter.member).await? else {
                continue;
            };
            let letter = Letter {
                kind: LetterKind::Granted,
                seat: waiter.seat,
                reply: NO_SEAT,
                stamp: ANY_STAMP,
                entry,
                words: [place.0, remote.map_or(0, |time| 1 << 16 | u64::from(time.0)), 0],
            };
            self.send(desk.endpoint, letter).await?;
        }
        Ok(())
    }

    pub(super) async fn desk_of(&self, member: Member) -> Result<Option<Place>, FabricError> {
        if let Some(known) = self.roster().known(member) {
            return Ok(Some(known));
        }
        self.roster().look_up(&self.endpoint, member).await
    }

    /// Sends a letter; that nobody is there to read it is no error.
    pub(super) async fn send(&self, to: EndpointId, letter: Letter) -> Result<(), FabricError> {
        match self.inbox.send(&self.endpoint, to, letter).await {
            Err(FabricError::PeerUnknown { .. }) => Ok(()),
            sent => sent,
        }
    }

    /// When the first asked of those of other nodes who wait, for a client of this node that waits as
    /// well (section 5.3, *prefetched remote timestamp*). The lock is held in `mode`.
    pub(super) async fn earliest_remote(
        &self,
        entry: RemoteAddr,
        mode: Mode,
    ) -> Result<Option<Timestamp>, FabricError> {
        let capacity = self.node.capacity();
        let bytes = QUEUE_AT + self.node.queue_bytes();
        let mut buffer = self.endpoint.buffer(bytes as usize);
        let all = Verb::Read {
            source: entry,
            target: Slice::first(bytes as u32),
        };
        self.endpoint.execute(all, &mut buffer, Deadline::NEVER).await?;
        let word = |at: u64| {
            let at = at as usize;
            u64::from_le_bytes(buffer[at..at + 8].try_into().expect("eight bytes"))
        };
        let header = Header(word(0));
        let behind = Left {
            mode,
            next: Index(header.head()).plus(1),
            behind: header.size().saturating_sub(1).min(capacity),
            writers_behind: header.writers(),
        };
        Ok(behind.earliest_waiting(capacity, |slot| Entry(word(QUEUE_AT + 8 * slot))))
    }

    /// The client has nothing more to do with the lock: whoever resets it is told, if it was the last.
    fn end(&self, local: &Rc<Local>) {
        let asked = local.end();
        if asked.is_empty() {
            return;
        }
        let (client, entry) = (self.clone(), local.entry);
        self.endpoint.spawn(async move {
            for asked in asked {
                // If that fails, we are cut off, and the asker need not wait for us.
                let _ = client.answer(entry, asked, LetterKind::Done).await;
            }
        });
    }

    /// Answers who resets a lock. The letter names whom it is an answer of: the last client of a node that is done
    /// with the lock answers for all endpoints of the node.
    pub(super) async fn answer(&self, entry: RemoteAddr, asked: Asked, kind: LetterKind) -> Result<(), FabricError> {
        let letter = Letter {
            kind,
            seat: asked.place.seat,
            reply: NO_SEAT,
            stamp: asked.stamp,
            entry,
            words: [asked.desk.0, 0, 0],
        };
        self.send(asked.place.endpoint, letter).await
    }

    /// Waits until the lock is not being reset; sees to it if who began that has died.
    async fn await_reset(&self, local: &Rc<Local>) -> Result<(), LockError> {
        let mut seen = (0, self.endpoint.now_ns());
        let mut pause_ns = RESET_PAUSE_NS;
        // Ends with the reset, which is finished by who began it, or taken over.
        loop {
            let source = local.entry;
            let header = Header(execute(&self.endpoint, Verb::ReadWord { source }).await? as u64);
            let id = header.reset_id();
            if let Some(failure) = local.reset_failure.take() {
                return Err(failure);
            }
            if id == 0 && !local.is_resetting.get() {
                return Ok(());
            }
            let now_ns = self.endpoint.now_ns();
            if id != seen.0 {
                seen = (id, now_ns);
            }
            if id != 0 && now_ns - seen.1 > 2 * self.node.lease_ns() && !local.is_resetting.get() {
                if self.has_stopped(local, Member(id as u16)).await? {
                    self.start_reset(local, id);
                }
                seen.1 = self.endpoint.now_ns();
            }
            self.endpoint.sleep(pause_ns).await;
            pause_ns = (2 * pause_ns).min(self.node.lease_ns() / 8).max(RESET_PAUSE_NS);
        }
    }

    fn count_retry(&self) {
        self.retries.set(self.retries.get() + 1);
    }
}

/// Where the entry of a place is.
pub(super) fn slot_of(lock: RemoteAddr, place: Index, capacity: u64) -> RemoteAddr {
    lock.plus(QUEUE_AT + 8 * place.slot(capacity))
}

#[cfg(test)]
mod tests;
