//! What a client knows of its own life: whether others may have given it up.
//!
//! On the path: beside every grant, and whenever a holder asks whether it still holds. Whoever resets a lock cuts a
//! client off that has not answered for two leases (DecLock, section 4.4), and warns it before, by a mark in the roster.
//! A client cannot see that it is cut off; but it knows when it last found itself without the mark.
//!
//! Invariant: while [`Lifeline::vouches`] says yes, the client is not cut off. *Proof*: at `proof_ns` it posted a READ
//! that found no mark. So whoever cuts it off has marked it later, waited for [`notice_ns`], and begins more than a
//! lease after `proof_ns`, even by a clock that is somewhat quicker than ours. The yes ends after a lease.
//!
//! A gap is remembered: a hold that could not be vouched for in between is lost for good, even if the client turns
//! out to be alive.

use core::cell::Cell;

use farside_fabric::mutant::is_planted;

/// How long before it is cut off a client is warned: a lease, by a clock that may be quicker than its own by an eighth.
pub(super) fn notice_ns(lease_ns: u64) -> u64 {
    lease_ns + lease_ns / 8
}

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

    /// A look that began at `asked_ns` found no mark.
    pub(super) fn note(&self, asked_ns: u64) {
        if asked_ns.saturating_sub(self.proof_ns.get()) > self.lease_ns {
            self.gaps.set(self.gaps.get() + 1);
        }
        self.proof_ns.set(self.proof_ns.get().max(asked_ns));
    }

    /// The client was warned or cut off, or its node is gone.
    pub(super) fn end(&self) {
        self.has_ended.set(true);
    }

    /// Whether the client has to be opened anew.
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
