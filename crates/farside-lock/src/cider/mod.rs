//! The queue of CIDER (section 4.2): the MCS queue of ShiftLock, whose clients let the last one act for all of them.
//!
//! On the path: an UPDATE or DELETE that goes the pessimistic way enters the queue of its data pointer, and either gets its
//! turn, or is told what another one has done for it. What a turn is good for (writing an item, changing a pointer) is the
//! caller's business: the queue knows no pointers, but the *identity* of a data pointer, which says whose it is.
//!
//! A lock node is a seat at an [inbox](crate::inbox). The fields that others write into it (figure 8) are letters:
//!
//! | letter | field | word 0 | word 1 | word 2 |
//! |---|---|---|---|---|
//! | `Successor` | next | the sender's stamp | | |
//! | `Handover` | locked | | | |
//! | `Execute` | coordinator, locked | identity | the coordinator's stamp | |
//! | `Executed` | result, locked | outcome | | |
//! | `Combined` | result, locked = 0x3 | outcome | members so far | identity |
//!
//! # The way through the queue
//!  1. *Enter*: one atomic compares the version and swaps the tail; a DELETE adds one to the version with it, so it is the last
//!     of its version. If the version is another one, the client is **rejected**.
//!  2. If there was a tail, write `Successor` to it, and wait for a letter.
//!  3. `Handover`, or no tail: **the lock is ours**. Nobody behind us: our turn, alone.
//!  4. Somebody behind us: we are the *coordinator*. READ the tail, write `Execute` to whoever is there, wait for `Executed`,
//!     write `Combined` to the next, and return with the outcome.
//!  5. `Execute`: we are the *executor*. It is our turn; afterwards write `Executed`, wait for `Combined`, and go on as in 7.
//!  6. `Combined`: we are a *participant*. Write `Combined` to the next, and return with the outcome.
//!  7. *Leave*: empty the tail if it is ours (one atomic), or write `Handover` to the next.
//!
//! Whoever writes `Handover` or `Combined` adds one to the epoch (section 4.6), at the same time.
//!
//! # Why what is combined is linearizable
//! Claim: *when a client is told `Replaced`, some client has changed the data pointer of the same identity, with a value of its
//! own, after this one was called.* So it can be put directly before that change. It rests on four things, and on no lock:
//! - An executor has entered behind everybody who is told its outcome: `Combined` travels from a coordinator down the queue and
//!   **stops at the executor**. The tail that a coordinator reads is behind it in the queue, or in a queue that was begun
//!   after a reset, when nobody entered the old one any more. And the executor acts after it has entered.
//! - An executor says what it has done, once it has done it, and acts once: asked again, it gives the same answer.
//! - `Combined` names the receiver's stamp, which is dealt once; so it reaches the operation it was meant for, or nobody.
//! - It also names the identity; who has another one is not combined.
//!
//! Two holders of one lock (after a reset, one of them slow) are therefore no danger: they spoil each other's batches. That
//! two of them do not lose each other's changes is the business of the compare-and-swap of the pointer.
//!
//! # What the paper leaves open
//! - *The version comes round* after 16 DELETEs, while an UPDATE sleeps that saw the first one: it enters a queue that
//!   may be of another key. It has another identity: it refuses to be its executor, and is not told its outcome.
//! - *The version is wrong*, since a DELETE died between the entry and the pointer: see [`Client::repair`].
//! - *An executor that gives up* (its deadline, its node, its client) refuses; the coordinator then acts alone.
//! - *Somebody dies*: the epoch stands still, and the lock is reset as a ShiftLock ([`shiftlock`](crate::shiftlock)). Whoever
//!   waited starts again, unless it has acted; none of its value was written by anybody else.
//!
//! # Cost
//! Alone: two atomics. A batch of n: n atomics to enter, n - 1 for the epoch, one READ, one atomic to leave; and between
//! clients of different endpoints n - 1 `Successor`, n - 1 `Combined`, `Execute` and `Executed`. It needs masked atomics of 16
//! bytes; there is no fallback.

pub mod word;

use core::cell::Cell;
use std::rc::Rc;

use farside_fabric::mutant::is_planted;
use farside_fabric::{Deadline, Endpoint, FabricError, LocalFuture, MaskedCas, RemoteAddr, Verb};

pub use self::word::{Entry, Version};
use crate::atomics::{both, execute};
use crate::error::LockError;
use crate::inbox::{Arrived, Inbox, Seat, Successor};
use crate::letter::{self, ANY_STAMP, Letter, LetterKind};
use crate::shiftlock::watch::{Seen, Watch};
use crate::shiftlock::word::Releases;
use crate::site::{LockOptions, Site};
use crate::word::TailWord;

/// Bytes of an entry; its address is a multiple of 16.
pub const ENTRY_BYTES: u64 = 16;

/// Who enters a queue, and what for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The lock entry.
    pub entry: RemoteAddr,
    /// The version of the data pointer.
    pub version: Version,
    /// Whose the data pointer is. What one changes for another has the same.
    pub identity: u16,
    /// Whether the key is deleted.
    pub is_delete: bool,
    /// Whether it may act for others, and others for it.
    pub combines: bool,
}

/// What became of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Outcome {
    /// The data pointer was replaced.
    Replaced = 1,
    /// It belongs to somebody else by now.
    Lost = 2,
    /// Nothing was done, or nobody knows what: the others have to act for themselves.
    Refused = 3,
}

impl Outcome {
    fn of(word: u64) -> Self {
        match word {
            1 => Self::Replaced,
            2 => Self::Lost,
            _ => Self::Refused,
        }
    }
}

/// What came of entering a queue.
#[derive(Debug)]
pub enum Entered {
    /// It is this client's turn. Ends with [`Client::leave`].
    Turn(Place),
    /// Another client has acted.
    Combined(Outcome),
    /// The queue is of another version.
    Rejected(Entry),
}

/// A place in a queue, whose turn it is.
#[derive(Debug)]
pub struct Place {
    request: Request,
    seat: Seat,
    watch: Watch,
    begun: Releases,
    successor: Option<Successor>,
    /// The coordinator, if this is the executor.
    coordinator: Option<Successor>,
    /// Whether somebody was in front.
    is_behind: bool,
}

impl Place {
    /// Whether somebody was in front.
    #[must_use]
    pub fn has_waited(&self) -> bool {
        self.is_behind
    }

    /// Whether others wanted the lock at the same time, as far as this client knows.
    #[must_use]
    pub fn has_company(&self) -> bool {
        self.is_behind || self.successor.is_some()
    }

    fn note(&mut self, arrived: &Arrived) {
        if arrived.letter.kind == LetterKind::Successor {
            self.successor = Some(Successor::of(arrived));
        }
    }
}

/// Why a wait ended.
enum Waited {
    Turn,
    Told(Outcome),
    Again,
}

/// One client's side of the queues: everything that an operation needs which may outlive its caller.
#[derive(Clone, Debug)]
pub struct Client {
    endpoint: Endpoint,
    inbox: Inbox,
    options: LockOptions,
    retries: Rc<Cell<u64>>,
}

impl Client {
    /// Whether a fabric has what the queue needs.
    ///
    /// # Errors
    /// [`LockError::Unsupported`].
    pub fn check(endpoint: &Endpoint) -> Result<(), LockError> {
        let has = endpoint.capabilities();
        if has.wide_atomics && has.masked_atomics {
            return Ok(());
        }
        Err(LockError::Unsupported {
            lock: "cider",
            needs: "masked atomics of 16 bytes",
        })
    }

    /// A client of an endpoint, which counts its retries there.
    #[must_use]
    pub fn new(endpoint: Endpoint, site: &Site, retries: Rc<Cell<u64>>) -> Self {
        Self {
            inbox: site.inbox(endpoint.id()),
            options: *site.options(),
            endpoint,
            retries,
        }
    }

    /// Whose endpoint it is.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Steps 1 to 6.
    ///
    /// # Errors
    /// What the fabric reports; [`LockError::NoSeat`].
    pub fn enter(self, request: Request) -> LocalFuture<'static, Result<Entered, LockError>> {
        Box::pin(async move {
            // Ends with a turn, or an answer. Each turn of the loop means that the lock was reset.
            loop {
                let seat = self.inbox.take_seat(request.entry)?;
                let next = if request.is_delete {
                    request.version.next()
                } else {
                    request.version
                };
                let mut enter = Entry::enter(seat.place(), request.version, next);
                if is_planted("cider: a DELETE that is overtaken") {
                    enter.compare_mask = 0;
                }
                let posted_ns = self.endpoint.now_ns();
                let before = self.swap(request.entry, enter).await;
                let before = before.inspect_err(|_| seat.burn())?;
                if !enter.matches(before) {
                    return Ok(Entered::Rejected(Entry::of_bits(before)));
                }
                let before = Entry::of_bits(before);
                let now_ns = self.endpoint.now_ns();
                let mut place = Place {
                    request,
                    watch: Watch::new(&self.options, before.epoch(), posted_ns, now_ns),
                    begun: before.epoch(),
                    seat,
                    successor: None,
                    coordinator: None,
                    is_behind: before.tail().place().is_some(),
                };
                match self.wait(&mut place, before).await {
                    Ok(Waited::Turn) => return Ok(Entered::Turn(place)),
                    Ok(Waited::Told(outcome)) => return Ok(Entered::Combined(outcome)),
                    Ok(Waited::Again) => self.retries.set(self.retries.get() + 1),
                    Err(error) => {
                        place.seat.burn();
                        return Err(error);
                    }
                }
            }
        })
    }

    async fn wait(&self, place: &mut Place, before: Entry) -> Result<Waited, LockError> {
        if let Some(predecessor) = before.tail().place() {
            let words = [u64::from(place.seat.stamp()), 0, 0];
            self.write(place, LetterKind::Successor, predecessor, ANY_STAMP, words)
                .await?;
            if let Some(waited) = self.await_turn(place).await? {
                return Ok(waited);
            }
        }
        // The lock is ours.
        while let Some(arrived) = place.seat.take(&self.endpoint)? {
            place.note(&arrived);
        }
        // Whoever is behind a DELETE is of another version.
        if place.successor.is_none() || !place.request.combines || place.request.is_delete {
            return Ok(Waited::Turn);
        }
        self.coordinate(place).await
    }

    /// Waits for a letter; `None` if the lock is ours.
    async fn await_turn(&self, place: &mut Place) -> Result<Option<Waited>, LockError> {
        // Ends with a letter, or when the lock was reset.
        loop {
            let Some(arrived) = self.receive(place).await? else {
                return Ok(Some(Waited::Again));
            };
            let words = arrived.letter.words;
            match arrived.letter.kind {
                LetterKind::Successor => place.note(&arrived),
                LetterKind::Handover => return Ok(None),
                LetterKind::Execute if self.is_ours(place, words[0]) => {
                    place.coordinator = Some(coordinator(&arrived));
                    return Ok(Some(Waited::Turn));
                }
                LetterKind::Execute => self.answer(place, coordinator(&arrived), Outcome::Refused).await?,
                LetterKind::Combined => {
                    let outcome = Outcome::of(words[0]);
                    self.pass_down(place, outcome, words[1] + 1, words[2]).await?;
                    // A DELETE is not done by who stores something.
                    let stores = !place.request.is_delete || is_planted("cider: a DELETE that is overtaken");
                    let is_ours = self.is_ours(place, words[2]) && stores;
                    return Ok(Some(if is_ours { Waited::Told(outcome) } else { Waited::Again }));
                }
                _ => {}
            }
        }
    }

    fn is_ours(&self, place: &Place, identity: u64) -> bool {
        identity == u64::from(place.request.identity) || is_planted("cider: an identity that nobody compares")
    }

    /// Step 4.
    async fn coordinate(&self, place: &mut Place) -> Result<Waited, LockError> {
        let source = place.request.entry;
        // Section 4.2.1, step 1.
        let word = execute(&self.endpoint, Verb::ReadWord { source }).await? as u64;
        let (tail, version) = (TailWord::of_bits(word), Entry::of_bits(word.into()).version());
        let mine = place.request.version;
        let executor = tail.place().filter(|&executor| executor != place.seat.place());
        // Otherwise the lock was reset, or is of a later version already.
        let Some(executor) = executor.filter(|_| version == mine || version == mine.next()) else {
            return Ok(Waited::Turn);
        };
        // Step 2.
        let words = [u64::from(place.request.identity), u64::from(place.seat.stamp()), 0];
        if !self
            .write(place, LetterKind::Execute, executor, ANY_STAMP, words)
            .await?
        {
            return Ok(Waited::Turn);
        }
        // Ends with step 4, or when the lock was reset.
        let outcome = loop {
            match self.receive(place).await? {
                None if is_planted("cider: a coordinator that takes a reset for an answer") => break Outcome::Replaced,
                None => return Ok(Waited::Again),
                Some(arrived) if arrived.letter.kind == LetterKind::Executed => {
                    break Outcome::of(arrived.letter.words[0]);
                }
                Some(_) => {}
            }
        };
        if outcome == Outcome::Refused {
            return Ok(Waited::Turn);
        }
        // Step 5.
        let identity = place.request.identity.into();
        self.pass_down(place, outcome, 1, identity).await?;
        Ok(Waited::Told(outcome))
    }

    /// Steps 5 and 7. The turn is over. Returns how many went together.
    ///
    /// # Errors
    /// What the fabric reports.
    pub fn leave(self, mut place: Place, outcome: Outcome) -> LocalFuture<'static, Result<u64, LockError>> {
        Box::pin(async move {
            let left = self.try_leave(&mut place, outcome).await;
            if left.is_err() {
                place.seat.burn();
            }
            left
        })
    }

    async fn try_leave(&self, place: &mut Place, outcome: Outcome) -> Result<u64, LockError> {
        let mut batch = 1;
        if let Some(coordinator) = place.coordinator {
            // Section 4.2.1, step 4.
            self.answer(place, coordinator, outcome).await?;
            match self.await_end(place, outcome).await? {
                Some(members) => batch = members,
                None => return Ok(batch),
            }
        }
        self.release(place).await?;
        Ok(batch)
    }

    /// The executor waits for the lock, which everybody in front passes down to it. Returns how many went together; `None`
    /// if the lock does not come, or has been passed on.
    async fn await_end(&self, place: &mut Place, outcome: Outcome) -> Result<Option<u64>, LockError> {
        // Ends with a letter, or when the lock was reset.
        loop {
            let Some(arrived) = self.receive(place).await? else {
                return Ok(None);
            };
            let words = arrived.letter.words;
            match arrived.letter.kind {
                LetterKind::Successor => place.note(&arrived),
                LetterKind::Handover => return Ok(Some(1)),
                LetterKind::Execute => {
                    let answer = if self.is_ours(place, words[0]) {
                        outcome
                    } else {
                        Outcome::Refused
                    };
                    self.answer(place, coordinator(&arrived), answer).await?;
                }
                // Who has refused is no executor.
                LetterKind::Combined if outcome == Outcome::Refused => {
                    self.pass_down(place, Outcome::of(words[0]), words[1] + 1, words[2])
                        .await?;
                    return Ok(None);
                }
                LetterKind::Combined if is_planted("cider: a result that goes beyond its executor") => {
                    self.pass_down(place, Outcome::of(words[0]), words[1] + 1, words[2])
                        .await?;
                    return Ok(None);
                }
                LetterKind::Combined => return Ok(Some(words[1] + 1)),
                _ => {}
            }
        }
    }

    /// Step 7.
    async fn release(&self, place: &mut Place) -> Result<(), LockError> {
        while let Some(arrived) = place.seat.take(&self.endpoint)? {
            place.note(&arrived);
        }
        if place.successor.is_none() {
            let leave = Entry::leave(place.seat.place());
            let found = self.swap(place.request.entry, leave).await?;
            let epoch = Entry::of_bits(found).epoch();
            if leave.matches(found) || epoch.is_across_reset(place.begun) {
                return Ok(());
            }
        }
        self.pass(place, LetterKind::Handover, [0; 3]).await
    }

    /// Tells the next one what was done for it.
    async fn pass_down(
        &self,
        place: &mut Place,
        outcome: Outcome,
        members: u64,
        identity: u64,
    ) -> Result<(), LockError> {
        self.pass(place, LetterKind::Combined, [outcome as u64, members, identity])
            .await
    }

    /// Passes the lock to the next one, who has entered and may not have said so yet.
    async fn pass(&self, place: &mut Place, kind: LetterKind, words: [u64; 3]) -> Result<(), LockError> {
        let deadline = self.endpoint.deadline_in(self.options.lease_ns);
        let is_hasty = is_planted("cider: a successor that is not waited for");
        while place.successor.is_none() && !is_hasty {
            match place.seat.receive(&self.endpoint, deadline).await? {
                Some(arrived) => place.note(&arrived),
                None => break,
            }
        }
        let Some(successor) = place.successor else {
            // It has died before it could say who it is, or the lock was reset.
            place.seat.burn();
            return Ok(());
        };
        // Nobody waits for the count: it says that the lock moves, and has to be there within three leases.
        let (target, operands) = (place.request.entry, Entry::hand_on());
        let counted = execute(&self.endpoint, Verb::WideFetchAdd { target, operands });
        let written = self.write(place, kind, successor.place, successor.stamp, words);
        let (counted, written) = both(counted, written).await;
        counted?;
        written?;
        Ok(())
    }

    async fn answer(&self, place: &Place, to: Successor, outcome: Outcome) -> Result<(), LockError> {
        let words = [outcome as u64, 0, 0];
        self.write(place, LetterKind::Executed, to.place, to.stamp, words)
            .await
            .map(drop)
    }

    /// The next letter; `None` when the lock was reset.
    async fn receive(&self, place: &mut Place) -> Result<Option<Arrived>, LockError> {
        loop {
            let next_look = Deadline(place.watch.next_look_ns());
            if let Some(arrived) = place.seat.receive(&self.endpoint, next_look).await? {
                return Ok(Some(arrived));
            }
            let look = place
                .watch
                .look(&self.endpoint, &self.options, place.request.entry, &self.inbox);
            match look.await? {
                Seen::Counts(_) => {}
                seen => {
                    if seen == Seen::LostTrack {
                        // It may be in the queue after all.
                        place.seat.burn();
                    }
                    return Ok(None);
                }
            }
        }
    }

    /// Writes a letter; returns whether there is somebody to read it.
    async fn write(
        &self,
        place: &Place,
        kind: LetterKind,
        to: letter::Place,
        stamp: u32,
        words: [u64; 3],
    ) -> Result<bool, LockError> {
        let letter = Letter {
            kind,
            seat: to.seat,
            reply: place.seat.number(),
            stamp,
            entry: place.request.entry,
            words,
        };
        match place.seat.inbox().send(&self.endpoint, to.endpoint, letter).await {
            // The queue breaks there, and is reset.
            Err(FabricError::PeerUnknown { .. }) => Ok(false),
            sent => Ok(sent.map(|()| true)?),
        }
    }

    /// Sets the version of a queue right that a client was rejected by although its data pointer has not changed: a DELETE
    /// has died, or went another way. Nothing happens if anybody has entered or left since.
    ///
    /// # Errors
    /// What the fabric reports.
    pub fn repair<'f>(&'f self, request: &'f Request, seen: Entry) -> LocalFuture<'f, Result<(), FabricError>> {
        Box::pin(async move {
            self.swap(request.entry, seen.repair(request.version)).await?;
            Ok(())
        })
    }

    /// An atomic on an entry; returns the entry before.
    async fn swap(&self, target: RemoteAddr, operands: MaskedCas<u128>) -> Result<u128, FabricError> {
        execute(&self.endpoint, Verb::WideCompareSwap { target, operands }).await
    }
}

/// Who wants to know what an executor has done.
fn coordinator(arrived: &Arrived) -> Successor {
    Successor {
        place: arrived.sender(),
        stamp: arrived.letter.words[1] as u32,
    }
}

#[cfg(test)]
mod tests;
