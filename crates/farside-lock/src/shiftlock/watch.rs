//! Waiting for a lock that may have died: what a client looks at from time to time, and what it concludes.
//!
//! On the path: a ShiftLock client that has to wait, for a letter or for a count (ShiftLock,
//! section 3.6, failure detection).
//!
//! Each release, hand-over and reset changes the release count. A client looks at the count, at least twice
//! per lease, and concludes:
//!
//! - it **leapt**: the lock was reset; whoever waited queues up anew;
//! - it **stood still** for three leases: somebody has died; the agent has to reset the lock;
//! - it has changed: whoever changed it did so after our last look but one was posted. From that moment on the
//!   lock is safe for three leases: nobody else can have seen the new count before.
//!
//! A client that did not look for two leases (its process was stopped, its network was cut) has *lost
//! track*: there may have been two resets, after which the top bit of the count is what it was. It queues
//! up anew; if it was in the queue after all, the queue breaks where it was and is reset.

use farside_fabric::{Endpoint, RemoteAddr, Verb};

use super::word::{Counts, Entry, Releases};
use crate::atomics::execute;
use crate::error::LockError;
use crate::inbox::Inbox;
use crate::service::{Standstill, ask_recovery, read_era};
use crate::site::LockOptions;

/// How long a client waits between two looks at first: ShiftLock's artifact polls with this pause.
pub(super) const PAUSE_NS: u64 = 1_860;
/// After so many looks in vain the pause doubles.
const LOOKS_PER_DOUBLING: u32 = 32;
/// Over mapped memory a pause of a millisecond sleeps, a shorter one spins.
const PAUSE_MAX_NS: u64 = 1 << 20;

/// Times of a lease, on the clock of one endpoint (ShiftLock, section 3.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lease {
    /// The longest that a client may hold a lock.
    pub(crate) ns: u64,
}

impl Lease {
    /// How long a count stands still before somebody is presumed dead: three leases, by a clock that may be fast by
    /// a thousandth (the paper reckons with a tenth of that).
    pub(crate) fn standstill_ns(self) -> u64 {
        3 * self.ns + self.ns / 300
    }

    /// When a holder has to stop, if the lock was safe for three leases from `base_ns` on and it was granted it at
    /// `granted_ns`. What it posts until then has a lease to arrive.
    pub(crate) fn end_ns(self, base_ns: u64, granted_ns: u64) -> u64 {
        (granted_ns + self.ns).min(base_ns + 2 * self.ns)
    }

    /// What must be left of a lease that the one in front has vouched for.
    pub(super) fn rest_min_ns(self) -> u64 {
        self.ns / 2
    }

    /// What must be left of the lease of a writer that vouches for the next one: enough for that one to have waited for a
    /// while.
    pub(super) fn early_min_ns(self) -> u64 {
        self.rest_min_ns() + self.ns / 8
    }

    /// Whether a grant comes so late that too little of the lease is left.
    pub(crate) fn is_stale(self, base_ns: u64, now_ns: u64) -> bool {
        now_ns > base_ns + self.ns
    }
}

/// What a look has shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    /// Readers, releases and epoch, now.
    Counts(Counts),
    /// The lock was reset.
    Reset,
    /// There may have been several resets.
    LostTrack,
}

/// What one client knows of the lock that it waits for.
#[derive(Debug)]
pub(crate) struct Watch {
    lease: Lease,
    /// The count when this client began to wait.
    begun: Releases,
    releases: Releases,
    /// When the last look that still saw an older count was posted.
    base_ns: u64,
    /// When the first look came back that saw `releases`.
    since_ns: u64,
    /// When the last look was posted.
    looked_ns: u64,
    /// The era in which `releases` stood still.
    era: Option<u64>,
    /// Before that we do not ask for recovery again.
    patient_until_ns: u64,
    looks: u32,
}

impl Watch {
    /// A watch that begins with an atomic that was posted at `posted_ns`, and has come back now with the
    /// count `releases`.
    pub(crate) fn new(options: &LockOptions, releases: Releases, posted_ns: u64, now_ns: u64) -> Self {
        Self {
            lease: Lease { ns: options.lease_ns },
            begun: releases,
            releases,
            base_ns: posted_ns,
            since_ns: now_ns,
            looked_ns: posted_ns,
            era: None,
            patient_until_ns: 0,
            looks: 0,
        }
    }

    /// The lease.
    pub(crate) fn lease(&self) -> Lease {
        self.lease
    }

    /// When the lock was certainly not yet in the state that has `releases`.
    pub(crate) fn base_ns(&self, releases: Releases) -> u64 {
        if releases == self.releases {
            self.base_ns
        } else {
            self.looked_ns
        }
    }

    /// When the last look was posted.
    pub(crate) fn looked_ns(&self) -> u64 {
        self.looked_ns
    }

    /// When to look again at the latest.
    pub(crate) fn next_look_ns(&self) -> u64 {
        self.looked_ns + self.lease.ns / 2
    }

    /// How long to wait between two looks at a count that somebody is about to change.
    pub(crate) fn pause_ns(&self) -> u64 {
        let doublings = (self.looks / LOOKS_PER_DOUBLING).min(20);
        (PAUSE_NS << doublings).min(PAUSE_MAX_NS).min(self.lease.ns / 4)
    }

    /// A look that was posted at `posted_ns` has come back at `now_ns`.
    fn note(&mut self, counts: Counts, posted_ns: u64, now_ns: u64) -> Seen {
        let previous_ns = core::mem::replace(&mut self.looked_ns, posted_ns);
        let releases = Releases::new(counts.releases());
        if now_ns.saturating_sub(previous_ns) > 2 * self.lease.ns {
            return Seen::LostTrack;
        }
        if releases.is_across_reset(self.begun) {
            return Seen::Reset;
        }
        if releases != self.releases {
            self.releases = releases;
            self.base_ns = previous_ns;
            self.since_ns = now_ns;
            self.era = None;
        }
        self.looks = self.looks.saturating_add(1);
        Seen::Counts(counts)
    }

    /// Looks, and asks for recovery if the lock has stood still for too long.
    pub(crate) async fn look(
        &mut self,
        endpoint: &Endpoint,
        options: &LockOptions,
        entry: RemoteAddr,
        inbox: &Inbox,
    ) -> Result<Seen, LockError> {
        let posted_ns = endpoint.now_ns();
        let source = entry.plus(8);
        let word = execute(endpoint, Verb::ReadWord { source }).await? as u64;
        let now_ns = endpoint.now_ns();
        let seen = self.note(Counts::of_bits(word), posted_ns, now_ns);
        let still_ns = now_ns.saturating_sub(self.since_ns);
        let is_dead = still_ns > self.lease.standstill_ns() && now_ns > self.patient_until_ns;
        if options.recovers_alone && matches!(seen, Seen::Counts(_)) && is_dead {
            // It compares the count, so of several who do this one succeeds.
            let verb = Verb::WideCompareSwap {
                target: entry,
                operands: Entry::reset(self.releases),
            };
            execute(endpoint, verb).await?;
            // Looks again, to see the leap.
            self.patient_until_ns = now_ns + self.lease.ns;
        } else if let (Seen::Counts(_), Some(block)) = (seen, options.service) {
            if self.era.is_none() && still_ns > self.lease.ns / 4 {
                self.era = Some(read_era(endpoint, block, entry).await?);
            }
            if let Some(era) = self.era
                && is_dead
            {
                let still = Standstill {
                    entry,
                    era,
                    releases: self.releases,
                };
                ask_recovery(endpoint, block, inbox, still).await?;
                // Section 3.6: whoever was refused waits for a lease, and asks for the era anew.
                self.patient_until_ns = now_ns + self.lease.ns;
                self.era = None;
            }
        }
        Ok(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Attempt;
    use super::super::testing::attempt;
    use super::super::word::LEAP;
    use super::*;
    use crate::testing::Stage;
    use proptest::prelude::*;

    const LEASE_NS: u64 = 1_000;

    fn watch() -> Watch {
        let options = LockOptions {
            lease_ns: LEASE_NS,
            ..LockOptions::default()
        };
        Watch::new(&options, Releases::new(7), 100, 110)
    }

    fn counts(releases: Releases) -> Counts {
        Counts::of_bits(releases.bits())
    }

    #[test]
    fn a_reset_is_seen() {
        let reset = counts(Releases::new(7).plus(LEAP));
        assert_eq!(watch().note(reset, 600, 610), Seen::Reset);
    }

    #[test]
    fn two_resets_are_not_seen_but_take_longer_than_a_client_that_keeps_track() {
        let twice = counts(Releases::new(7).plus(LEAP).plus(LEAP));
        assert_eq!(watch().note(twice, 6_100, 6_110), Seen::LostTrack);
    }

    #[test]
    fn a_change_came_after_the_last_look_but_one() {
        let mut watch = watch();
        for posted_ns in [500, 900, 1_300] {
            assert!(matches!(
                watch.note(counts(Releases::new(7)), posted_ns, posted_ns + 10),
                Seen::Counts(_)
            ));
        }
        let changed = Releases::new(9);
        assert_eq!(watch.base_ns(changed), 1_300, "told of by a letter");
        assert!(matches!(watch.note(counts(changed), 1_700, 1_710), Seen::Counts(_)));
        assert_eq!(watch.base_ns(changed), 1_300, "seen by a look");
        assert_eq!((watch.since_ns, watch.era), (1_710, None));
    }

    /// `shiftlock-polling` keeps to the first pause; the others wait as long as the watch says.
    #[test]
    fn a_steady_client_pauses_as_briefly_after_many_looks() {
        let stage = Stage::new();
        let attempt = attempt(&stage.machine());
        let options = LockOptions::default();
        let watch = Watch::new(&options, Releases::new(7), 100, 110);
        let late = Watch { looks: 100, ..watch };
        assert_eq!(attempt.pause_ns(&late), late.pause_ns());
        let steady = Attempt {
            is_steady: true,
            ..attempt
        };
        assert_eq!(steady.pause_ns(&late), PAUSE_NS);
        assert!(late.pause_ns() > PAUSE_NS);
    }

    #[test]
    fn pauses_double_up_to_a_quarter_of_the_lease() {
        let pause = |lease_ns, looks| {
            let options = LockOptions {
                lease_ns,
                ..LockOptions::default()
            };
            let watch = Watch::new(&options, Releases::new(7), 100, 110);
            Watch { looks, ..watch }.pause_ns()
        };
        for (looks, expected) in [
            (0, 1_860),
            (31, 1_860),
            (32, 3_720),
            (63, 3_720),
            (64, 7_440),
            (32 * 9, 952_320),
            (32 * 10, 1 << 20),
            (u32::MAX, 1 << 20),
        ] {
            assert_eq!(pause(1_000_000_000, looks), expected, "after {looks} looks");
        }
        assert_eq!(
            [(4_000, 0), (20_000, 0), (20_000, 64)].map(|(lease, looks)| pause(lease, looks)),
            [1_000, 1_860, 5_000]
        );
    }

    /// An era is that of a count that stands still.
    #[test]
    fn another_count_wants_another_era() {
        let mut watch = watch();
        watch.era = Some(3);
        assert!(matches!(
            watch.note(counts(Releases::new(7)), 500, 510),
            Seen::Counts(_)
        ));
        assert_eq!((watch.era, watch.since_ns, watch.looks), (Some(3), 110, 1));
        assert!(matches!(
            watch.note(counts(Releases::new(8)), 900, 910),
            Seen::Counts(_)
        ));
        assert_eq!((watch.era, watch.since_ns, watch.looks), (None, 910, 2));
    }

    /// Who waits reads the era once, asks after three leases, and again a lease later, with the era as it is then.
    #[test]
    fn the_agent_is_asked_once_per_lease() {
        use crate::testing::{LEASE_NS, LOCK, Stage};
        let stage = Stage::new();
        let agent = stage.machine();
        let started = crate::service::Agent::start(agent.endpoint.clone(), &agent.site);
        // It is there, and does nothing.
        let _agent = stage.sim.block_on(started).expect("the node is there");
        let machine = stage.machine();
        let inbox = machine.site.inbox(machine.endpoint.id());
        let options = Stage::options();
        let now_ns = machine.endpoint.now_ns();
        let mut watch = Watch::new(&options, Releases::new(0), now_ns, now_ns);
        let start = machine.costs();
        let mut looks = 0;
        // Every half of a lease, from an eighth on: the READs beside the looks, and the letters.
        for expected in [
            // The era is read when a quarter has passed.
            [0, 0],
            [1, 0],
            [1, 0],
            [1, 0],
            [1, 0],
            [1, 0],
            // After three leases the agent is looked up, and asked.
            [2, 1],
            // The era is read anew at once.
            [3, 1],
            [4, 2],
            [5, 2],
            [6, 3],
        ] {
            stage.run_for(LEASE_NS / 8);
            let look = watch.look(&machine.endpoint, &options, LOCK, &inbox);
            let seen = stage.sim.block_on(look).expect("the node is there");
            assert!(matches!(seen, Seen::Counts(_)));
            looks += 1;
            let [reads, writes, atomics, sends] = machine.cost_since(&start);
            assert_eq!([reads - looks, sends], expected, "at look {looks}");
            assert_eq!((writes, atomics), (0, 0));
            stage.run_for(LEASE_NS * 3 / 8);
        }
    }

    /// Without an agent whoever sees that somebody is dead resets the lock, once, and sees the leap.
    #[test]
    fn who_recovers_alone_resets_the_lock_after_three_leases() {
        use crate::testing::{LEASE_NS, LOCK, Stage};
        let stage = Stage::new();
        let machine = stage.machine();
        let inbox = machine.site.inbox(machine.endpoint.id());
        let options = LockOptions {
            recovers_alone: true,
            service: None,
            ..Stage::options()
        };
        let mut watch = Watch::new(&options, Releases::new(0), 0, 0);
        let start = machine.costs();
        for halves in 0..=6 {
            stage.run_for(LEASE_NS / 2);
            let look = watch.look(&machine.endpoint, &options, LOCK, &inbox);
            let seen = stage.sim.block_on(look).expect("the node is there");
            assert_eq!(seen == Seen::Reset, halves == 6);
            assert_eq!(machine.cost_since(&start), [halves + 1, 0, u64::from(halves >= 5), 0]);
        }
        assert_eq!(Counts::of_bits(stage.word(LOCK.plus(8))).releases(), LEAP);
    }

    proptest! {
        /// A holder stops a lease before anybody can have seen the lock stand still for three.
        #[test]
        fn a_lease_ends_before_the_lock_is_taken_away(base_ns in 0_u64..1 << 40, late_ns in 0_u64..10_000) {
            let lease = Lease { ns: LEASE_NS };
            let end_ns = lease.end_ns(base_ns, base_ns + late_ns);
            prop_assert!(end_ns + LEASE_NS <= base_ns + lease.standstill_ns());
            if !lease.is_stale(base_ns, base_ns + late_ns) {
                prop_assert_eq!(end_ns, base_ns + late_ns + LEASE_NS);
            }
        }
    }
}
