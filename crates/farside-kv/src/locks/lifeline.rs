//! What a client knows of its own life: whether others may have given it up.
//!
//! On the path: beside every grant, and whenever a holder asks whether it still holds. Whoever resets a lock cuts a
//! client off that has not answered for two leases (DecLock, section 4.4). A client cannot see that happen; but it
//! knows when it was last awake and could reach the memory.
//!
//! Invariant: while [`Lifeline::vouches`] says yes, nobody has found the client silent. *Proof*: at `proof_ns` a verb was
//! posted that took effect, and the client's tasks ran, so what had been asked of it until then was answered. Who
//! asks later waits for two leases, and the yes ends after one. The other lease is for the letter's way.
//!
//! What that does not cover: somebody finds the client silent, rightly, stands still itself before it cuts it off, and
//! does so when the client is awake again and holds something else. Then the yes is wrong until no proof has come
//! for a lease. In far memory nothing can go wrong by that, since nothing of the client takes effect
//! any more; outside of it the fencing token is what to rely on.
//!
//! A gap is remembered: a hold that could not be vouched for in between is lost for good, even if the client turns
//! out to be alive.

use core::cell::Cell;

use farside_fabric::mutant::is_planted;

/// See the module.
#[derive(Debug)]
pub(super) struct Lifeline {
    lease_ns: u64,
    /// Over mapped memory a process is not cut off while it lives.
    is_mapped: bool,
    proof_ns: Cell<u64>,
    gaps: Cell<u64>,
    has_ended: Cell<bool>,
}

/// What a hold began with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Vow {
    gaps: u64,
}

impl Lifeline {
    /// A client that is awake now.
    pub(super) fn new(lease_ns: u64, is_mapped: bool, now_ns: u64) -> Self {
        Self {
            lease_ns,
            is_mapped,
            proof_ns: Cell::new(now_ns),
            gaps: Cell::new(0),
            has_ended: Cell::new(false),
        }
    }

    /// A verb that was posted at `posted_ns` took effect.
    pub(super) fn note(&self, posted_ns: u64) {
        if posted_ns.saturating_sub(self.proof_ns.get()) > self.lease_ns {
            self.gaps.set(self.gaps.get() + 1);
        }
        self.proof_ns.set(self.proof_ns.get().max(posted_ns));
    }

    /// The client was cut off, or its node is gone.
    pub(super) fn end(&self) {
        self.has_ended.set(true);
    }

    /// Whether the client was cut off.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.get()
    }

    /// What a hold has to remember that begins now.
    pub(super) fn vow(&self) -> Vow {
        Vow { gaps: self.gaps.get() }
    }

    /// Whether a hold that began with this vow has lasted until now.
    pub(super) fn vouches(&self, vow: Vow, now_ns: u64) -> bool {
        let is_fresh = now_ns.saturating_sub(self.proof_ns.get()) <= self.lease_ns && vow.gaps == self.gaps.get();
        if is_planted("locks: a hold that is vouched for without proof") {
            return true;
        }
        !self.has_ended.get() && (self.is_mapped || is_fresh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_for_good() {
        let lifeline = Lifeline::new(100, false, 1_000);
        let vow = lifeline.vow();
        assert!(lifeline.vouches(vow, 1_100) && !lifeline.vouches(vow, 1_101));
        lifeline.note(1_100);
        assert!(lifeline.vouches(vow, 1_200));
        lifeline.note(1_201);
        assert!(!lifeline.vouches(vow, 1_201), "it was away");
        assert!(
            lifeline.vouches(lifeline.vow(), 1_201),
            "whoever begins now is not concerned"
        );
    }

    #[test]
    fn late_news_are_no_proof() {
        let lifeline = Lifeline::new(100, false, 1_000);
        lifeline.note(900);
        assert!(lifeline.vouches(lifeline.vow(), 1_100));
        assert!(!lifeline.vouches(lifeline.vow(), 1_101));
    }

    #[test]
    fn over_mapped_memory_only_the_end_ends_a_hold() {
        let lifeline = Lifeline::new(100, true, 1_000);
        let vow = lifeline.vow();
        assert!(lifeline.vouches(vow, 1 << 40));
        lifeline.end();
        assert!(lifeline.has_ended() && !lifeline.vouches(vow, 1_001));
    }
}
