//! Who posts: compute nodes with their clock and cores, and the clients (endpoints) on them.
//!
//! Each client has a queue pair to every memory node and to every peer it sends to, a mailbox, and a
//! core, which it may share. A core posts one doorbell after the other; what it has to post is
//! served in the order of the calls, so its times follow by arithmetic, without events.

use super::fault::CrashPoint;
use super::mailbox::Mailbox;

/// The incarnation of a queue pair in the error state. No node crashes that often.
pub(super) const BROKEN: u32 = u32::MAX;

/// A queue pair: where its operations are executed, and the times that keep its order when delays
/// change.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueuePair {
    /// The unit that executes its operations, counted over all NICs.
    pub(super) unit: u32,
    /// The NIC of that unit.
    pub(super) nic: u16,
    /// Which run of the memory node it is connected to, or [`BROKEN`]; 0 between clients.
    pub(super) incarnation: u32,
    pub(super) last_arrival: u64,
    pub(super) last_completion: u64,
}

/// One endpoint, as the simulator sees it.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) compute_node: u32,
    /// The core it runs on, counted over all compute nodes.
    pub(super) core: u32,
    /// Its queue pairs, by memory node: indices.
    pub(super) queue_pairs: Vec<u32>,
    pub(super) mailbox: Mailbox,
    /// Verbs posted so far, messages included.
    pub(super) verbs_posted: u64,
    pub(super) crash_point: Option<CrashPoint>,
    pub(super) is_crashed: bool,
    /// Whether its tasks stand still.
    pub(super) is_paused: bool,
    /// Whether the last handle is gone: it receives nothing any more.
    pub(super) is_closed: bool,
    /// Batches that wait with a deadline.
    pub(super) deadlines: Vec<u32>,
    /// Simulated time of the one deadline event that counts.
    pub(super) deadline_event: u64,
}

impl Client {
    pub(super) fn new(compute_node: u32, core: u32) -> Self {
        Self {
            compute_node,
            core,
            queue_pairs: Vec::new(),
            mailbox: Mailbox::default(),
            verbs_posted: 0,
            crash_point: None,
            is_crashed: false,
            is_paused: false,
            is_closed: false,
            deadlines: Vec::new(),
            deadline_event: u64::MAX,
        }
    }
}

/// A compute node.
#[derive(Debug)]
pub(super) struct ComputeNode {
    pub(super) nic: u16,
    pub(super) clock: NodeClock,
    /// Its first core and their number; `None` if each client has its own.
    pub(super) cores: Option<(u32, u32)>,
    pub(super) clients: u32,
}

/// Times of a clock from here on (146 years) never come.
const FAR_FUTURE: u64 = 1 << 62;

/// A clock that differs from simulated time by an offset and a rate.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct NodeClock {
    simulated_base: u64,
    local_base: u64,
    drift_ppb: i64,
}

impl NodeClock {
    /// What the clock shows at a simulated time.
    #[inline]
    pub(super) fn local(&self, simulated: u64) -> u64 {
        let passed = simulated.saturating_sub(self.simulated_base);
        if self.drift_ppb == 0 {
            return self.local_base + passed;
        }
        let shown = u128::from(passed) * self.rate() / 1_000_000_000;
        self.local_base.saturating_add(u64::try_from(shown).unwrap_or(u64::MAX))
    }

    /// Nanoseconds that the clock gains in a second.
    fn rate(&self) -> u128 {
        u128::from(1_000_000_000_u64.saturating_add_signed(self.drift_ppb))
    }

    /// The first simulated time at which the clock shows `local` or more.
    #[inline]
    pub(super) fn simulated(&self, local: u64) -> u64 {
        if local >= FAR_FUTURE {
            return u64::MAX;
        }
        let passed = local.saturating_sub(self.local_base);
        if self.drift_ppb == 0 {
            return self.simulated_base.saturating_add(passed);
        }
        let needed = (u128::from(passed) * 1_000_000_000).div_ceil(self.rate());
        self.simulated_base
            .saturating_add(u64::try_from(needed).unwrap_or(u64::MAX))
    }

    /// From simulated time `now` on the clock is `skew_ns` off and gains `drift_ppb` nanoseconds per
    /// second. A step back is not made: the clock goes on from where it is.
    pub(super) fn set(&mut self, now: u64, skew_ns: i64, drift_ppb: i64) {
        assert!(
            drift_ppb.abs() < 1_000_000_000,
            "a clock that drifts still goes forward"
        );
        let local = self.local(now);
        *self = Self {
            simulated_base: now,
            local_base: now.saturating_add_signed(skew_ns).max(local),
            drift_ppb,
        };
    }
}

/// A core: when it has posted all that it was asked to.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Core {
    pub(super) busy_until: u64,
}

impl Core {
    /// Charges work to the core; returns when it begins.
    #[inline]
    pub(super) fn charge(&mut self, now: u64, duration: u64) -> u64 {
        let start = self.busy_until.max(now);
        self.busy_until = start + duration;
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_deadline_is_met_at_its_first_nanosecond(
            set_at in 0_u64..1_000_000_000,
            skew in -1_000_000_i64..1_000_000,
            drift in -100_000_i64..100_000,
            ahead in 0_u64..10_000_000_000,
        ) {
            let mut clock = NodeClock::default();
            clock.set(set_at, skew, drift);
            let local = clock.local(set_at) + ahead;
            let at = clock.simulated(local);
            prop_assert!(clock.local(at) >= local);
            prop_assert!(at == set_at || clock.local(at - 1) < local);
        }
    }

    #[test]
    fn a_clock_never_goes_back() {
        let mut clock = NodeClock::default();
        clock.set(1000, 500, 0);
        assert_eq!(clock.local(1000), 1500);
        clock.set(2000, -1000, 0);
        assert_eq!(clock.local(2000), 2500, "a step back is not made");
    }
}
