//! The reader's side of ShiftLock: Algorithms 2 and 3, with failure detection.
//!
//! On the path: `ShiftLock` calls these when a lock is wanted in shared mode.
//!
//! Readers are counted, not named. So a reader that is late cannot be told from another one, and its release
//! cannot compare anything without losing to other readers. Therefore:
//!
//! - within its lease a reader leaves by one add. Whoever resets the lock has waited for three leases; the
//!   add was posted within two. **It must arrive within the third**, or the counts are wrong by one until
//!   the next reset: that is what ShiftLock's timing assumes of the network;
//! - after its lease it reads the counts and leaves by a compare-and-swap of all of them, which has no effect
//!   once the lock was reset; after five leases it does not leave at all, and the lock is reset when
//!   a writer comes.

use farside_fabric::mutant::is_planted;
use farside_fabric::{FabricError, MaskedAdd, Verb};

use super::watch::{Seen, Watch};
use super::word::{Entry, READERS_MAX, Releases};
use super::{Attempt, Outcome};
use crate::Mode;
use crate::atomics::execute;
use crate::error::LockError;
use crate::phases::Phase;

/// A reader inside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReaderHold {
    /// A count of the same era.
    begun: Releases,
    /// The lock is safe for three leases from here on.
    base_ns: u64,
    /// When it has to stop.
    pub(super) end_ns: u64,
}

impl Attempt {
    /// READER-ACQUIRE, once.
    pub(super) async fn enter(&self) -> Result<Outcome<ReaderHold>, LockError> {
        let posted_ns = self.endpoint.now_ns();
        // Algorithm 2, line 2.
        let start_ns = self.stopwatch.start(&self.endpoint);
        let before = self.add(Entry::enter_reader()).await?;
        let start_ns = self.spent(Mode::Shared, Phase::Enter, start_ns);
        let mut watch = Watch::new(&self.options, before.releases(), posted_ns, self.endpoint.now_ns());
        if before.counts.readers() >= READERS_MAX {
            self.add(Entry::leave_reader()).await?;
            return Err(LockError::TooManyReaders { entry: self.entry });
        }
        let mut base_ns = posted_ns;
        if before.tail.place().is_some() && !is_planted("shiftlock: a reader that does not wait for writers") {
            // Line 5. Ends when a writer has let the readers in, or when the lock was reset. The epoch
            // cannot flip twice unseen: the next writer waits for us.
            loop {
                base_ns = watch.looked_ns();
                let look = watch.look(&self.endpoint, &self.options, self.entry, &self.inbox);
                match Box::pin(look).await? {
                    Seen::Counts(counts) if counts.epoch() != before.counts.epoch() => {
                        self.spent(Mode::Shared, Phase::AwaitTurn, start_ns);
                        break;
                    }
                    Seen::Counts(_) => {}
                    Seen::Reset | Seen::LostTrack => return Ok(Outcome::Again),
                }
                self.retries.set(self.retries.get() + 1);
                self.endpoint.sleep(self.pause_ns(&watch)).await;
            }
        }
        let (lease, now_ns) = (watch.lease(), self.endpoint.now_ns());
        let hold = ReaderHold {
            begun: before.releases(),
            base_ns,
            end_ns: lease.end_ns(base_ns, now_ns),
        };
        if lease.is_stale(base_ns, now_ns) {
            // A slow network; what is left of the lease is too short.
            return match Box::pin(self.leave_reader(hold)).await {
                Ok(()) | Err(LockError::LeaseLost { .. }) => Ok(Outcome::Again),
                Err(error) => Err(error),
            };
        }
        Ok(Outcome::Held(hold))
    }

    /// READER-RELEASE.
    ///
    /// # Errors
    /// [`LockError::LeaseLost`] if the lock was reset, or may have been.
    pub(super) async fn leave_reader(&self, hold: ReaderHold) -> Result<(), LockError> {
        if self.endpoint.now_ns() <= hold.end_ns || is_planted("shiftlock: a reader that was cut off goes on") {
            // Algorithm 3, line 2.
            let start_ns = self.stopwatch.start(&self.endpoint);
            self.add(Entry::leave_reader()).await?;
            self.spent(Mode::Shared, Phase::Leave, start_ns);
            return Ok(());
        }
        Box::pin(self.leave_late(hold)).await
    }

    /// After the lease, in a way that has no effect if the lock was reset.
    async fn leave_late(&self, hold: ReaderHold) -> Result<(), LockError> {
        let lost = Err(LockError::LeaseLost { entry: self.entry });
        let lease = self.lease();
        // Ends when no other client changed the counts at the same time, or when it is too late.
        loop {
            let source = self.entry.plus(8);
            let word = execute(&self.endpoint, Verb::ReadWord { source }).await? as u64;
            // Two resets are three leases apart, and the first may come three after the grant.
            let is_known = self.endpoint.now_ns() < hold.base_ns + 5 * lease.ns;
            let seen = Entry::of_bits(u128::from(word) << 64);
            if !is_known || seen.releases().is_across_reset(hold.begun) {
                return lost;
            }
            let operands = seen.leave_late_reader();
            let target = self.entry;
            let found = execute(&self.endpoint, Verb::WideCompareSwap { target, operands }).await?;
            if operands.matches(found) {
                return Ok(());
            }
            self.retries.set(self.retries.get() + 1);
        }
    }

    /// An add to the entry; returns the entry before.
    async fn add(&self, operands: MaskedAdd<u128>) -> Result<Entry, FabricError> {
        let target = self.entry;
        let verb = Verb::WideFetchAdd { target, operands };
        Ok(Entry::of_bits(execute(&self.endpoint, verb).await?))
    }
}

#[cfg(test)]
mod tests;
