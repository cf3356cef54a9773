//! DSLR: a reader-writer ticket lock in one word, Lamport's bakery by fetch-and-add (Yoon, Chowdhury
//! and Mozafari, SIGMOD 2018, as ShiftLock, section 4.1, and DecLock, section 2.3, describe it).
//!
//! The word counts how many tickets of each mode were taken and how many were given back
//! ([`Tickets`]). Clients are granted the lock in the order of their tickets; readers between two
//! writers share it.
//!
//! Acquire:
//!  1. fetch-and-add takes a ticket. The word before says whether everybody ahead has been through:
//!     if so, the lock is ours.
//!  2. Otherwise READ the word until it is our turn, and wait in between: `dslr` as long as those
//!     ahead will take ([`LockOptions::dslr_turn_ns`] each), `dslr-plus` by truncated exponential back-off,
//!     `dslr-polling` not at all.
//!
//! Release: fetch-and-add gives the ticket back.
//!
//! # Counters that run full
//! A counter has 16 bits, and a carry would spoil its neighbour. So tickets end at
//! [`TICKETS_MAX`](word::TICKETS_MAX): whoever draws a later one gives it back, waits until everybody
//! else is through, and starts the word anew with a zero. The order among those who drew too late is lost.
//!
//! # When somebody dies
//! A grant is a lease: its holder knows until when ([`Grant::until_ns`]), and does not release
//! afterwards. Whoever waits and sees the counters of returned tickets stand still for two leases
//! voids all tickets at once: a compare-and-swap makes the word that of a free lock whose tickets are
//! all newer. Who finds its ticket passed over draws another; the order among those who waited is
//! lost, exclusion is not. A lease begins when the verb was posted that last saw the lock with
//! somebody else (or that took it at once), so it is over one lease before anybody may void it. That
//! leaves one lease for what the holder posted last to arrive. **What arrives later than that, from
//! behind a link that was cut, is not kept out**: DSLR has nothing to tell it by.
//!
//! # Invariants
//! - `served <= taken` in both modes, but for a release that arrives after its ticket was voided; the
//!   next voiding mends that.
//! - A ticket taken before the word was voided is never taken for one after it.
//!
//! # Where it differs from its paper
//! - Voiding takes back all tickets rather than those ahead of the one who waits: a returned shared
//!   ticket is only counted, so a word that passes over some readers of a group and not others would
//!   admit a writer while the others read.
//! - Whoever finds the counters full starts anew, rather than the holder of the last ticket, who may
//!   have died.
//! - An acquire that gives up cannot leave the queue: a task of its own waits for the turn and gives
//!   the ticket back.
//!
//! Cost without contention: one atomic each.

pub mod word;

use farside_fabric::mutant::is_planted;
use farside_fabric::{Endpoint, FabricError, OpContext, RemoteAddr, Verb};

use crate::backoff::{Backoff, Pace};
use crate::grant::Held;
use crate::phases::{Phase, Stopwatch};
use crate::{Grant, Lock, LockError, LockOptions, Mode, atomics, patience};

use word::{Ticket, Tickets, Turn};

/// How long one client ahead is taken to need: a turn of a lock without retries on ConnectX-5 NICs
/// (ShiftLock, section 2.3: 278.3 thousand turns per second).
pub const TURN_NS: u64 = 3_600;
/// The longest wait between two looks at the word, in turns.
const TURNS_MAX: u64 = 64;

/// How a client waits between two looks at the word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waits {
    /// `dslr`: as long as those ahead will take.
    Turns,
    /// `dslr-plus`: by truncated exponential back-off.
    Backoff,
    /// `dslr-polling`: not at all.
    Nothing,
}

/// A client's side of DSLR.
#[derive(Clone, Debug)]
pub struct Dslr {
    lease_ns: u64,
    waits: Waits,
    /// For `dslr`: beside `waits`, as a client is cloned for each acquire.
    turn_ns: u32,
    /// For `dslr-plus`.
    backoff: Backoff,
    stopwatch: Stopwatch,
}

/// How a wait for a ticket's turn ended.
enum Waited {
    /// It is our turn, until then.
    Granted { until_ns: u64 },
    /// The ticket was voided, or came to its turn after its lease: draw another.
    Passed,
}

impl Dslr {
    /// A client. All clients of a lock have the same lease.
    #[must_use]
    pub fn new(waits: Waits, lease_ns: u64) -> Self {
        Self {
            lease_ns,
            waits,
            turn_ns: TURN_NS as u32,
            backoff: Backoff::new(Pace::DSLR_PLUS),
            stopwatch: Stopwatch::default(),
        }
    }

    /// The same, which takes those ahead to need so long each: [`LockOptions::dslr_turn_ns`].
    pub(crate) fn with_turns_of(self, turn_ns: u64) -> Self {
        let turn_ns = u32::try_from(turn_ns).unwrap_or(u32::MAX);
        Self { turn_ns, ..self }
    }

    pub(crate) fn timed_by(self, stopwatch: Stopwatch) -> Self {
        Self { stopwatch, ..self }
    }
}

impl Lock for Dslr {
    fn entry_bytes(_: &LockOptions) -> u64 {
        8
    }

    async fn acquire(&self, cx: &mut OpContext, entry: RemoteAddr, mode: Mode) -> Result<Grant, LockError> {
        self.stopwatch.begin(mode);
        // Ends with a grant or at the deadline; each round but the last lost its ticket to somebody
        // who saw no progress for two leases, or to full counters.
        loop {
            let posted_ns = cx.endpoint().now_ns();
            let (dslr, endpoint) = (self.clone(), cx.endpoint().clone());
            let draw = {
                let endpoint = endpoint.clone();
                let add = Tickets::taking(mode);
                async move { atomics::execute(&endpoint, Verb::FetchAdd { target: entry, add }).await }
            };
            let later = {
                let endpoint = endpoint.clone();
                // If it fails the connection is gone or the node; who waits behind the ticket voids it.
                move |drawn: Result<u128, FabricError>| async move {
                    if let Ok(before) = drawn {
                        let ticket = (Tickets(before as u64), mode, posted_ns);
                        dslr.serve_out(endpoint, entry, ticket).await;
                    }
                }
            };
            let start_ns = self.stopwatch.start(&endpoint);
            let drawn = patience::until(&endpoint, cx.deadline(), draw, later).await;
            let start_ns = self.stopwatch.stop(&endpoint, mode, Phase::Enter, start_ns);
            let before = Tickets(drawn.ok_or(LockError::Timeout { entry })?? as u64);
            match before.ticket(mode) {
                None => self.start_anew(cx, entry, mode).await?,
                Some(ticket) => match self.wait(cx, entry, ticket, (before, posted_ns)).await {
                    Ok(Waited::Granted { until_ns }) => {
                        self.stopwatch.stop(&endpoint, mode, Phase::Retry, start_ns);
                        self.backoff.note(false);
                        return Ok(Grant::new(entry, mode, Held::Plain).leased_until(until_ns));
                    }
                    Ok(Waited::Passed) => drop(self.stopwatch.stop(&endpoint, mode, Phase::Retry, start_ns)),
                    Err(error) => return Err(self.abandon(cx, entry, (before, mode, posted_ns), error)),
                },
            }
            cx.count_retry();
        }
    }

    async fn release(&self, cx: &mut OpContext, grant: Grant) -> Result<(), LockError> {
        let is_over = grant.is_over(cx.endpoint().now_ns());
        if is_over && !is_planted("dslr: a release after the lease") {
            return Err(LockError::LeaseLost { entry: grant.entry() });
        }
        let start_ns = self.stopwatch.start(cx.endpoint());
        cx.fetch_add(grant.entry(), Tickets::serving(grant.mode())).await?;
        self.stopwatch.stop(cx.endpoint(), grant.mode(), Phase::Leave, start_ns);
        Ok(())
    }
}

impl Dslr {
    /// Waits until it is the ticket's turn. `before` is the word that a fetch-and-add brought which was
    /// posted at `posted_ns`.
    async fn wait(
        &self,
        cx: &mut OpContext,
        entry: RemoteAddr,
        ticket: Ticket,
        (before, mut posted_ns): (Tickets, u64),
    ) -> Result<Waited, LockError> {
        let mut word = before.after_taking(ticket.mode);
        // The turn, and with it the lease, begins after the last verb was posted that did not see it.
        let mut since_ns = posted_ns;
        let mut progress = (word.served(), cx.endpoint().now_ns());
        let mut retry = 0_u32;
        // Bounded by the deadline, or by two leases without progress.
        loop {
            let now_ns = cx.endpoint().now_ns();
            let replacement = match ticket.turn(word) {
                Turn::Passed => return Ok(Waited::Passed),
                Turn::Now if now_ns < since_ns + self.lease_ns => {
                    let until_ns = since_ns + self.lease_ns;
                    return Ok(Waited::Granted { until_ns });
                }
                // We stood still, and others may be about to void the ticket: give it back in a way
                // that has no effect once they have.
                Turn::Now => Some(word.after_serving(ticket.mode)),
                Turn::Later { ahead } => {
                    since_ns = posted_ns;
                    if word.served() != progress.0 {
                        progress = (word.served(), now_ns);
                    }
                    let stands_still = now_ns - progress.1 > 2 * self.lease_ns;
                    if !stands_still {
                        self.pause(cx, entry, ahead, retry).await?;
                    }
                    stands_still.then(|| word.voided())
                }
            };
            if let Some(replacement) = replacement
                && cx.compare_swap(entry, word.0, replacement.0).await? == word.0
            {
                return Ok(Waited::Passed);
            }
            retry = retry.saturating_add(1);
            cx.count_retry();
            posted_ns = cx.endpoint().now_ns();
            word = Tickets(cx.read_word(entry).await?);
        }
    }

    /// Between two looks at the word.
    async fn pause(&self, cx: &OpContext, entry: RemoteAddr, ahead: u64, retry: u32) -> Result<(), LockError> {
        let endpoint = cx.endpoint();
        let wait_ns = match self.waits {
            Waits::Turns => ahead.min(TURNS_MAX) * u64::from(self.turn_ns),
            Waits::Backoff => {
                self.backoff.note(true);
                self.backoff.wait_ns(endpoint, retry)
            }
            Waits::Nothing => 0,
        };
        let left_ns = cx.deadline().0.saturating_sub(endpoint.now_ns());
        if left_ns == 0 {
            return Err(LockError::Timeout { entry });
        }
        endpoint.sleep(wait_ns.min(left_ns).min(self.lease_ns / 8)).await;
        Ok(())
    }

    /// The acquire has failed with a ticket in hand, which a task of its own gives back in its turn.
    fn abandon(&self, cx: &OpContext, entry: RemoteAddr, ticket: (Tickets, Mode, u64), error: LockError) -> LockError {
        match error {
            LockError::Timeout { .. } | LockError::Fabric(FabricError::DeadlineExceeded { .. }) => {
                let endpoint = cx.endpoint().clone();
                cx.endpoint().spawn(self.clone().serve_out(endpoint, entry, ticket));
                LockError::Timeout { entry }
            }
            // The way to the node is gone; whoever waits behind the ticket voids it.
            other => other,
        }
    }

    /// Waits for the turn of a ticket that nobody wants any more, and gives it back. What fails is left
    /// to whoever waits behind it.
    async fn serve_out(self, endpoint: Endpoint, entry: RemoteAddr, ticket: (Tickets, Mode, u64)) {
        let (before, mode, posted_ns) = ticket;
        let mut cx = OpContext::new(endpoint);
        match before.ticket(mode) {
            None => drop(give_back(&mut cx, entry, mode).await),
            Some(ticket) => {
                if let Ok(Waited::Granted { until_ns }) = self.wait(&mut cx, entry, ticket, (before, posted_ns)).await {
                    let _ = self
                        .release(&mut cx, Grant::new(entry, mode, Held::Plain).leased_until(until_ns))
                        .await;
                }
            }
        }
    }

    /// The counters are full, and the ticket that was drawn is none: gives it back, and waits until the
    /// word has been started anew, by us or by somebody else.
    async fn start_anew(&self, cx: &mut OpContext, entry: RemoteAddr, mode: Mode) -> Result<(), LockError> {
        // As a task: it must come to its end even if we stop waiting.
        let endpoint = cx.endpoint().clone();
        cx.endpoint().spawn(async move {
            let _ = give_back(&mut OpContext::new(endpoint), entry, mode).await;
        });
        let mut progress = (0, cx.endpoint().now_ns());
        // Bounded by the deadline, or by two leases without progress.
        loop {
            let word = match cx.read_word(entry).await {
                Err(FabricError::DeadlineExceeded { .. }) => return Err(LockError::Timeout { entry }),
                word => Tickets(word?),
            };
            if !word.is_full() {
                return Ok(());
            }
            let now_ns = cx.endpoint().now_ns();
            if word.served() != progress.0 {
                progress = (word.served(), now_ns);
            }
            if word.is_idle() || now_ns - progress.1 > 2 * self.lease_ns {
                match cx.compare_swap(entry, word.0, Tickets::FREE.0).await {
                    // If the swap comes late, it finds what it expects or does nothing.
                    Err(FabricError::DeadlineExceeded { .. }) => return Err(LockError::Timeout { entry }),
                    swapped => swapped?,
                };
            }
            self.pause(cx, entry, 1, 0).await?;
        }
    }
}

/// Gives back a ticket that was drawn behind the last. With a compare-and-swap: if the word is started
/// anew at the same time, the ticket has gone with it.
async fn give_back(cx: &mut OpContext, entry: RemoteAddr, mode: Mode) -> Result<(), LockError> {
    // Ends when nobody else changes the word between our READ and our swap. All who draw tickets now
    // do this once, and then only read.
    loop {
        let word = Tickets(cx.read_word(entry).await?);
        if !word.is_full() || cx.compare_swap(entry, word.0, word.before_taking(mode).0).await? == word.0 {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests;
