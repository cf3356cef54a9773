//! DrTM's lock: a compare-and-swap lock whose readers hold a lease (Wei et al., SOSP 2015, as ShiftLock,
//! section 4.1, describes it).
//!
//! The word names a writer, or says when the lease of the readers ends ([`DrtmWord`]). Readers join a
//! lease without a word to anybody and just stop when it is over; so a writer waits for its end even if
//! they have long gone.
//!
//! Acquire, exclusive: compare-and-swap a free word for our own. A lease that is over counts as free.
//! Acquire, shared: compare-and-swap a free word for a lease of a millisecond ([`LEASE_NS_MAX`]) from now; a lease
//! that still runs for a while is joined as it is, whoever made it. Whoever finds the lock held backs
//! off and swaps again.
//!
//! Release, exclusive: WRITE 0. Release, shared: nothing. Whether the lease was over the reader knows
//! from its grant ([`Grant::until_ns`](crate::Grant::until_ns)), and is told once more by its release.
//!
//! # Clocks
//! A reader stops [`CLOCK_ERROR_NS`] before the end of its lease, a writer starts as long after it, so
//! clocks may be that far apart. Those of the processes of one machine are the same. **Those of several
//! machines are not, unless something keeps them together**: the fabric's clock counts from the start of
//! a machine. There the lock is for experiments only.
//!
//! # What it does not have
//! An order; anything against a writer that dies; a way to give a lease back early.
//!
//! # Where it differs from its paper
//! A reader does not join a lease of which less than a tenth is left: it could do nothing with it. And
//! there are no machines that log what they lock, so that a dead writer's locks could be found.
//!
//! Cost without contention: one atomic; one WRITE for a writer's release, nothing for a reader's.

pub mod word;

use farside_fabric::{Deadline, FabricError, OpContext, RemoteAddr};

use crate::atomics::withdraw;
use crate::backoff::Backoff;
use crate::grant::Held;
use crate::inbox::Seat;
use crate::word::Holder;
use crate::{Grant, Lock, LockError, LockOptions, Mode};

use word::{CLOCK_ERROR_NS, DrtmWord, LEASE_NS_MAX, State};

/// A reader joins a lease of which at least one part in so many is left.
const JOIN_SHARE: u64 = 10;

/// A client's side of DrTM's lock.
#[derive(Debug)]
pub struct Drtm {
    /// Nobody writes to it; its number is the client's.
    _seat: Seat,
    mine: DrtmWord,
    backoff: Backoff,
    lease_ns: u64,
}

impl Drtm {
    /// The side of this client, whose leases are of this length, or [`LEASE_NS_MAX`] if that is less.
    #[must_use]
    pub fn new(seat: Seat, lease_ns: u64) -> Self {
        let holder = Holder {
            endpoint: seat.place().endpoint.0,
            client: seat.number(),
        };
        Self {
            _seat: seat,
            mine: DrtmWord::written_by(holder),
            backoff: Backoff::default(),
            lease_ns: lease_ns.min(LEASE_NS_MAX),
        }
    }
}

impl Lock for Drtm {
    fn entry_bytes(_: &LockOptions) -> u64 {
        8
    }

    async fn acquire(&self, cx: &mut OpContext, entry: RemoteAddr, mode: Mode) -> Result<Grant, LockError> {
        let mut found = DrtmWord::FREE;
        let mut retry = 0_u32;
        let join_ns_min = self.lease_ns / JOIN_SHARE;
        // Ends when the lock is free at our turn, at the latest at the deadline.
        loop {
            let now_ns = cx.endpoint().now_ns();
            let end_ns = now_ns + self.lease_ns;
            let expected = match found.state(self.mine, now_ns, join_ns_min) {
                State::Free => found,
                // We want to read, and a swap of ours to write has taken effect late.
                State::Ours => self.mine,
                State::Leased { .. } | State::Held { .. } => DrtmWord::FREE,
            };
            let wanted = match mode {
                Mode::Exclusive => self.mine,
                Mode::Shared => DrtmWord::leased_until(end_ns),
            };
            found = match cx.compare_swap(entry, expected.0, wanted.0).await {
                Err(FabricError::DeadlineExceeded { .. }) => {
                    if mode == Mode::Exclusive {
                        withdraw(cx.endpoint(), entry, self.mine.0);
                    }
                    return Err(LockError::Timeout { entry });
                }
                found => DrtmWord(found?),
            };
            let now_ns = cx.endpoint().now_ns();
            let until_ns = match (mode, found.state(self.mine, now_ns, join_ns_min)) {
                _ if found == expected => Some((mode == Mode::Shared).then(|| end_ns - CLOCK_ERROR_NS)),
                (Mode::Exclusive, State::Ours) => Some(None),
                (Mode::Shared, State::Leased { until_ns }) => Some(Some(until_ns)),
                _ => None,
            };
            // A lease may be over before its word comes back: then it is like anybody else's.
            let until_ns = until_ns.map(|until_ns| until_ns.unwrap_or(u64::MAX));
            if let Some(until_ns) = until_ns.filter(|&until_ns| now_ns < until_ns) {
                self.backoff.note(false);
                return Ok(Grant::new(entry, mode, Held::Plain).leased_until(until_ns));
            }
            self.backoff.note(true);
            cx.count_retry();
            let left_ns = cx.deadline().0.saturating_sub(now_ns);
            if cx.deadline() != Deadline::NEVER && left_ns == 0 {
                return Err(LockError::Timeout { entry });
            }
            let held_ns = match found.state(self.mine, now_ns, join_ns_min) {
                State::Free | State::Ours => 0,
                State::Leased { until_ns } => until_ns + 2 * CLOCK_ERROR_NS - now_ns,
                State::Held { until_ns } => until_ns.map_or(u64::MAX, |until_ns| until_ns - now_ns),
            };
            let wait_ns = self.backoff.wait_ns(cx.endpoint(), retry).min(held_ns).min(left_ns);
            cx.endpoint().sleep(wait_ns).await;
            retry = retry.saturating_add(1);
        }
    }

    async fn release(&self, cx: &mut OpContext, grant: Grant) -> Result<(), LockError> {
        match grant.mode() {
            Mode::Exclusive => Ok(cx.write_word(grant.entry(), DrtmWord::FREE.0).await?),
            Mode::Shared if grant.is_over(cx.endpoint().now_ns()) => Err(LockError::LeaseLost { entry: grant.entry() }),
            Mode::Shared => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
