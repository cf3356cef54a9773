//! The writer's side of ShiftLock: Algorithms 2 and 3, with failure detection.
//!
//! On the path: `ShiftLock` calls these when a lock is wanted exclusively.
//!
//! Letters, and what their words say:
//!
//! | letter | word 0 | word 1 | word 2 |
//! |---|---|---|---|
//! | `Successor` | the sender's stamp | the count that its swap returned | |
//! | `Handover` | the release count | consecutive writers so far | epoch, and what is left of the lease |
//! | `ModeChanged` | the release count to wait for | | epoch |
//!
//! The paper's letters do not carry the epoch: each writer uses the one that its swap returned. That is
//! stale for a writer that had queued up before an earlier writer changed the mode, and readers would then
//! wait for an epoch that never comes.
//!
//! # The count beside the letter
//! Nobody uses what the count of a hand-over returns (Algorithm 3, line 20), so it travels beside the letter: a turn is one
//! message long. Such a count is an add, which nothing fences; it is posted within the lease and must arrive within one
//! lease more, as a reader's release. Two things follow:
//!
//! - **The entry may be behind.** Adds commute, so whoever counts by another add does not mind. Whoever compares the
//!   count (an empty queue, a change of mode, a hand-over late in the lease) waits until all have arrived, until the end of
//!   its lease at most. After a reset the count has leapt, and is behind by no number of adds.
//! - **The count may never arrive**: its sender died over it. So the letter proves no change of the count from which a lease
//!   could begin anew. It says instead what is left of the sender's lease; whoever receives it holds the lock for so long
//!   from when it had introduced itself, which was before the letter was written. If that is too little it waits
//!   until it sees the count.
//!
//! Over mapped memory both are done in one step each, and the count, by a compare-and-swap, is always first.

use farside_fabric::mutant::is_planted;
use farside_fabric::{Deadline, FabricError, MaskedCas, OpContext, RemoteAddr, Verb};

use super::watch::{PAUSE_NS, Seen, Watch};
use super::word::{Entry, Releases};
use super::{Attempt, Outcome};
use crate::Mode;
use crate::atomics::{both, execute, wide_swap_now};
use crate::error::LockError;
use crate::inbox::{Arrived, Seat, Successor};
use crate::letter::{ANY_STAMP, Letter, LetterKind, Place};
use crate::phases::Phase;

/// A writer at the head of the queue.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct WriterHold {
    seat: Seat,
    /// The count when it queued up.
    begun: Releases,
    /// The count now.
    releases: Releases,
    epoch: u64,
    /// How many writers handed over in a row before it (`consWrt`).
    streak: u64,
    /// When it began to tell the one in front who it is.
    introduced_ns: u64,
    successor: Option<Successor>,
    /// Whether somebody was in front.
    pub(super) is_behind: bool,
    /// When it has to stop.
    pub(super) end_ns: u64,
}

/// What waiting at the queue has brought.
struct Turn {
    releases: Releases,
    epoch: u64,
    streak: u64,
    /// Until when it may be held.
    safe: Safe,
}

/// Why a lock that was granted is safe.
#[derive(Clone, Copy)]
enum Safe {
    /// Its count has changed: for three leases from here on.
    From(u64),
    /// The one in front says so: until then, and one lease more.
    Until(u64),
}

/// Why a wait ended.
enum Waited {
    Turn(Turn),
    Again,
}

impl Attempt {
    /// WRITER-ACQUIRE, once: queues up and waits.
    pub(super) async fn queue_up(&self, seat: Seat) -> Result<Outcome<WriterHold>, LockError> {
        let posted_ns = self.endpoint.now_ns();
        // Algorithm 2, line 7.
        let start_ns = self.stopwatch.start(&self.endpoint);
        let before = self.swap(Entry::queue_up(seat.place())).await;
        let before = before.inspect_err(|_| seat.burn())?;
        self.spent(Mode::Exclusive, Phase::Enter, start_ns);
        let now_ns = self.endpoint.now_ns();
        let mut watch = Watch::new(&self.options, before.releases(), posted_ns, now_ns);
        let mut hold = WriterHold::of(seat, before, 0);
        match self.wait_for_turn(before, &mut hold, &mut watch).await {
            Ok(Waited::Turn(turn)) => self.begin(hold, turn, &mut watch).await,
            Ok(Waited::Again) => Ok(Outcome::Again),
            Err(error) => {
                hold.seat.burn();
                Err(error)
            }
        }
    }

    async fn wait_for_turn(
        &self,
        before: Entry,
        hold: &mut WriterHold,
        watch: &mut Watch,
    ) -> Result<Waited, LockError> {
        // Whoever has to wait does so on the heap: a lock that is free takes a small future.
        let readers = before.counts.readers();
        if let Some(predecessor) = before.tail.place() {
            hold.is_behind = true;
            Box::pin(async move {
                let start_ns = self.stopwatch.start(&self.endpoint);
                self.introduce(predecessor, hold).await?;
                self.spent(Mode::Exclusive, Phase::Introduce, start_ns);
                self.await_letter(hold, watch).await
            })
            .await
        } else if readers != 0 && !is_planted("shiftlock: a writer that does not wait for readers") {
            // Lines 23 to 25.
            Box::pin(self.await_releases(before.releases().plus(readers), hold, watch)).await
        } else {
            Ok(Waited::Turn(Turn {
                releases: before.releases(),
                epoch: before.counts.epoch(),
                streak: 0,
                safe: Safe::From(watch.base_ns(before.releases())),
            }))
        }
    }

    /// Tells the one in front who comes next (lines 14 and 15).
    async fn introduce(&self, predecessor: Place, hold: &mut WriterHold) -> Result<(), LockError> {
        hold.introduced_ns = self.endpoint.now_ns();
        let letter = Letter {
            kind: LetterKind::Successor,
            seat: predecessor.seat,
            reply: hold.seat.number(),
            stamp: ANY_STAMP,
            entry: self.entry,
            words: [u64::from(hold.seat.stamp()), hold.begun.bits(), 0],
        };
        self.write(&hold.seat, predecessor, letter).await
    }

    /// Sends a letter. Whoever is gone gets none; the lock then stands still until it is reset.
    async fn write(&self, seat: &Seat, to: Place, letter: Letter) -> Result<(), LockError> {
        match seat.inbox().send(&self.endpoint, to.endpoint, letter).await {
            Err(FabricError::PeerUnknown { .. }) => Ok(()),
            sent => Ok(sent?),
        }
    }

    /// Lines 16 to 22.
    async fn await_letter(&self, hold: &mut WriterHold, watch: &mut Watch) -> Result<Waited, LockError> {
        let start_ns = self.stopwatch.start(&self.endpoint);
        // Ends with a letter, or when the lock was reset.
        loop {
            let next_look = Deadline(watch.next_look_ns());
            let Some(arrived) = hold.seat.receive(&self.endpoint, next_look).await? else {
                match watch
                    .look(&self.endpoint, &self.options, self.entry, &self.inbox)
                    .await?
                {
                    Seen::Counts(_) => continue,
                    seen => return Ok(start_again(seen, &hold.seat)),
                }
            };
            let words = arrived.letter.words;
            match arrived.letter.kind {
                LetterKind::Successor => hold.note_successor(&arrived),
                LetterKind::Handover => {
                    self.spent(Mode::Exclusive, Phase::AwaitWriter, start_ns);
                    let releases = Releases::of_bits(words[0]);
                    let left_ns = words[2] >> 1;
                    let is_counted = left_ns == 0 || is_planted("shiftlock: a lease from a count that may not arrive");
                    return Ok(Waited::Turn(Turn {
                        releases,
                        streak: words[1],
                        epoch: words[2] & 1,
                        safe: if is_counted {
                            Safe::From(watch.base_ns(releases))
                        } else {
                            Safe::Until(hold.introduced_ns.saturating_add(left_ns))
                        },
                    }));
                }
                LetterKind::ModeChanged => {
                    self.spent(Mode::Exclusive, Phase::AwaitWriter, start_ns);
                    hold.epoch = words[2] & 1;
                    return self.await_releases(Releases::of_bits(words[0]), hold, watch).await;
                }
                _ => {}
            }
        }
    }

    /// Waits until everybody who was inside has left.
    async fn await_releases(
        &self,
        expected: Releases,
        hold: &mut WriterHold,
        watch: &mut Watch,
    ) -> Result<Waited, LockError> {
        let start_ns = self.stopwatch.start(&self.endpoint);
        // Ends with the last release, or when the lock was reset.
        loop {
            let counts = match watch
                .look(&self.endpoint, &self.options, self.entry, &self.inbox)
                .await?
            {
                Seen::Counts(counts) => counts,
                seen => return Ok(start_again(seen, &hold.seat)),
            };
            if Releases::new(counts.releases()) == expected {
                self.spent(Mode::Exclusive, Phase::AwaitReaders, start_ns);
                return Ok(Waited::Turn(Turn {
                    releases: expected,
                    epoch: hold.epoch,
                    streak: 0,
                    safe: Safe::From(watch.base_ns(expected)),
                }));
            }
            self.retries.set(self.retries.get() + 1);
            self.endpoint.sleep(self.pause_ns(watch)).await;
        }
    }

    /// The lock is ours, if it still is.
    async fn begin(
        &self,
        mut hold: WriterHold,
        turn: Turn,
        watch: &mut Watch,
    ) -> Result<Outcome<WriterHold>, LockError> {
        (hold.releases, hold.epoch, hold.streak) = (turn.releases, turn.epoch, turn.streak);
        let lease = watch.lease();
        let mut base_ns = match turn.safe {
            Safe::From(base_ns) => base_ns,
            Safe::Until(end_ns) => {
                let now_ns = self.endpoint.now_ns();
                if end_ns >= now_ns + lease.rest_min_ns() {
                    hold.end_ns = end_ns.min(now_ns + lease.ns);
                    return Ok(Outcome::Held(hold));
                }
                let counted = Box::pin(self.await_releases(turn.releases, &mut hold, watch)).await;
                match counted.inspect_err(|_| hold.seat.burn())? {
                    Waited::Turn(_) => watch.base_ns(turn.releases),
                    Waited::Again => return Ok(Outcome::Again),
                }
            }
        };
        if lease.is_stale(base_ns, self.endpoint.now_ns()) {
            // Others may have seen the count stand still for nearly as long. A count that moves starts their
            // time anew, and moves only if the lock is still ours.
            base_ns = self.endpoint.now_ns();
            let renew = Entry::hand_over(hold.releases);
            let found = self.swap(renew).await;
            if !renew.matches(found.inspect_err(|_| hold.seat.burn())?.bits()) {
                return Ok(Outcome::Again);
            }
            hold.releases = hold.releases.plus(1);
            if lease.is_stale(base_ns, self.endpoint.now_ns()) {
                // So slow that the same could happen again; whoever is behind us gets the lock instead.
                Box::pin(self.leave_writer(hold)).await?;
                return Ok(Outcome::Again);
            }
        }
        hold.end_ns = lease.end_ns(base_ns, self.endpoint.now_ns());
        Ok(Outcome::Held(hold))
    }

    /// WRITER-RELEASE.
    ///
    /// # Errors
    /// [`LockError::LeaseLost`] if the lock was reset.
    pub(super) async fn leave_writer(&self, mut hold: WriterHold) -> Result<(), LockError> {
        let left = self.try_leave_writer(&mut hold).await;
        if left.is_err() {
            hold.seat.burn();
        }
        left
    }

    async fn try_leave_writer(&self, hold: &mut WriterHold) -> Result<(), LockError> {
        // Algorithm 3, line 4.
        while let Some(arrived) = hold.seat.take(&self.endpoint)? {
            hold.note_successor(&arrived);
        }
        if hold.successor.is_none() {
            // Line 6.
            let leave = Entry::leave_writer(hold.seat.place(), hold.releases, hold.epoch);
            let start_ns = self.stopwatch.start(&self.endpoint);
            let mut found = self.swap(leave).await?;
            // Ends when all counts have arrived, when somebody has queued up, or with the lease.
            while !leave.matches(found.bits()) && found.tail.place() == Some(hold.seat.place()) {
                self.await_counts(hold, found).await?;
                found = self.swap(leave).await?;
            }
            let start_ns = self.spent(Mode::Exclusive, Phase::Leave, start_ns);
            if leave.matches(found.bits()) {
                return Ok(());
            }
            if !found.releases().may_become(hold.releases) {
                return Err(LockError::LeaseLost { entry: self.entry });
            }
            Box::pin(self.await_successor(hold)).await?;
            self.spent(Mode::Exclusive, Phase::Pass, start_ns);
        }
        Box::pin(self.leave_to_successor(hold)).await
    }

    /// From line 12 on.
    async fn leave_to_successor(&self, hold: &mut WriterHold) -> Result<(), LockError> {
        let Some(successor) = hold.successor else {
            // Section 3.6: it has died before it could say who it is. The lock is dropped, and will be reset.
            hold.seat.burn();
            return Ok(());
        };
        if hold.streak >= self.options.handovers_max && !self.is_mutex {
            self.change_mode(hold, successor).await
        } else {
            self.hand_over(hold, successor).await
        }
    }

    /// Lines 12 and 13, for a lease at most.
    async fn await_successor(&self, hold: &mut WriterHold) -> Result<(), LockError> {
        let deadline = self.endpoint.deadline_in(self.options.lease_ns);
        while hold.successor.is_none() {
            match hold.seat.receive(&self.endpoint, deadline).await? {
                Some(arrived) => hold.note_successor(&arrived),
                None => break,
            }
        }
        Ok(())
    }

    /// Lines 15 to 18.
    async fn change_mode(&self, hold: &WriterHold, successor: Successor) -> Result<(), LockError> {
        let found = self.count(hold, Entry::change_mode(hold.releases, hold.epoch)).await?;
        let readers = found.counts.readers();
        let is_short = readers != 0 && is_planted("shiftlock: a writer that waits for one reader too few");
        let expected = hold.releases.plus(readers + u64::from(!is_short));
        self.pass(
            hold,
            successor,
            LetterKind::ModeChanged,
            [expected.bits(), 0, 1 - hold.epoch],
        )
        .await
    }

    /// Lines 19 to 23.
    async fn hand_over(&self, hold: &WriterHold, successor: Successor) -> Result<(), LockError> {
        let left_ns = hold.end_ns.saturating_sub(self.endpoint.now_ns());
        let is_early =
            left_ns >= self.lease().early_min_ns() || is_planted("shiftlock: a count by an add, which nothing fences");
        let words = |left_ns: u64| [hold.releases.plus(1).bits(), hold.streak + 1, hold.epoch | left_ns << 1];
        if is_early && !self.endpoint.is_mapped() {
            return Box::pin(self.count_and_pass(hold, successor, words(left_ns))).await;
        }
        if !is_planted("shiftlock: a hand-over without a count") {
            self.count(hold, Entry::hand_over(hold.releases)).await?;
        }
        self.pass(hold, successor, LetterKind::Handover, words(0)).await
    }

    /// Counts by an add, and writes the letter at the same time: all of it is the passing on.
    async fn count_and_pass(&self, hold: &WriterHold, successor: Successor, words: [u64; 3]) -> Result<(), LockError> {
        let start_ns = self.stopwatch.start(&self.endpoint);
        let add = async {
            if is_planted("shiftlock: a hand-over without a count") {
                return Ok(0);
            }
            let (target, operands) = (self.entry, Entry::count_hand_over());
            execute(&self.endpoint, Verb::WideFetchAdd { target, operands }).await
        };
        let letter = self.letter(hold, successor, LetterKind::Handover, words);
        let (counted, sent) = both(add, self.write(&hold.seat, successor.place, letter)).await;
        self.spent(Mode::Exclusive, Phase::Pass, start_ns);
        counted?;
        sent
    }

    /// Changes the count, unless the lock was reset.
    async fn count(&self, hold: &WriterHold, operands: MaskedCas<u128>) -> Result<Entry, LockError> {
        let start_ns = self.stopwatch.start(&self.endpoint);
        let mut found = self.swap(operands).await?;
        // Ends when all counts have arrived, or with the lease.
        while !operands.matches(found.bits()) {
            Box::pin(self.await_counts(hold, found)).await?;
            found = self.swap(operands).await?;
        }
        self.spent(Mode::Exclusive, Phase::Leave, start_ns);
        Ok(found)
    }

    /// Counts of those in front have not arrived yet: waits a little.
    ///
    /// # Errors
    /// [`LockError::LeaseLost`] if they will not, since the lock was reset, or because the lease is over.
    async fn await_counts(&self, hold: &WriterHold, found: Entry) -> Result<(), LockError> {
        if !found.releases().may_become(hold.releases) || self.endpoint.now_ns() > hold.end_ns {
            return Err(LockError::LeaseLost { entry: self.entry });
        }
        self.retries.set(self.retries.get() + 1);
        self.endpoint.sleep(PAUSE_NS).await;
        Ok(())
    }

    async fn pass(
        &self,
        hold: &WriterHold,
        successor: Successor,
        kind: LetterKind,
        words: [u64; 3],
    ) -> Result<(), LockError> {
        let start_ns = self.stopwatch.start(&self.endpoint);
        let letter = self.letter(hold, successor, kind, words);
        self.write(&hold.seat, successor.place, letter).await?;
        self.spent(Mode::Exclusive, Phase::Pass, start_ns);
        Ok(())
    }

    fn letter(&self, hold: &WriterHold, successor: Successor, kind: LetterKind, words: [u64; 3]) -> Letter {
        Letter {
            kind,
            seat: successor.place.seat,
            reply: hold.seat.number(),
            stamp: successor.stamp,
            entry: self.entry,
            words,
        }
    }

    /// An atomic on the entry; returns the entry before.
    async fn swap(&self, operands: MaskedCas<u128>) -> Result<Entry, FabricError> {
        let target = self.entry;
        let verb = Verb::WideCompareSwap { target, operands };
        Ok(Entry::of_bits(execute(&self.endpoint, verb).await?))
    }
}

impl WriterHold {
    /// A writer that found this entry when it queued up, with nobody in front as far as is known.
    fn of(seat: Seat, before: Entry, end_ns: u64) -> Self {
        Self {
            begun: before.releases(),
            releases: before.releases(),
            epoch: before.counts.epoch(),
            streak: 0,
            introduced_ns: 0,
            successor: None,
            is_behind: false,
            end_ns,
            seat,
        }
    }

    /// Takes a lock that is free, over mapped memory. The lease ends no later than it would if both clock readings of
    /// [`Attempt::queue_up`] were made.
    pub(super) fn now(cx: &mut OpContext, entry: RemoteAddr, seat: Seat, lease_ns: u64) -> Option<Self> {
        let posted_ns = cx.endpoint().now_ns();
        let before = Entry::of_bits(wide_swap_now(cx, entry, Entry::take_free(seat.place()))?);
        Some(Self::of(seat, before, posted_ns + lease_ns))
    }

    /// Gives it back over mapped memory, if nobody has queued up: whoever did is in the tail.
    pub(super) fn leave_now(&self, cx: &mut OpContext, entry: RemoteAddr) -> bool {
        let leave = Entry::leave_writer(self.seat.place(), self.releases, self.epoch);
        wide_swap_now(cx, entry, leave).is_some()
    }

    /// Notes who is behind us, if the letter is of this queue: written after we queued up, and before any
    /// reset.
    fn note_successor(&mut self, arrived: &Arrived) {
        let is_successor = arrived.letter.kind == LetterKind::Successor;
        let is_ours = Releases::of_bits(arrived.letter.words[1]).follows(self.begun);
        if is_successor && is_ours {
            self.successor = Some(Successor::of(arrived));
        }
    }
}

/// The place in the queue is worth nothing any more.
fn start_again(seen: Seen, seat: &Seat) -> Waited {
    if seen == Seen::LostTrack {
        // It may be in the queue after all.
        seat.burn();
    }
    Waited::Again
}

#[cfg(test)]
mod tests;
