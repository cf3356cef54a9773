//! Who was granted a lock ahead of whom.
//!
//! On the path: tests only; `check` calls it for each lock.
//!
//! Requests are taken in the order in which their waiting ended. When one comes up, the later requests that were
//! granted before it are its overtakers; two counters that are indexed by the time of asking, one per mode, tell how
//! many, in logarithmic time.

use super::violation::{Reason, Violation};
use super::{Promise, conflict, is_waiting};
use crate::history::Hold;

/// How many overtakers a violation shows.
const SHOWN_MAX: usize = 8;

/// How often the request that was overtaken most was overtaken.
pub(super) fn check(lock: u64, holds: &[Hold], promise: Promise) -> Result<u64, Violation> {
    // Who gave up was not overtaken, and overtook nobody.
    let mut by_end_of_waiting: Vec<Hold> = holds
        .iter()
        .filter(|hold| hold.granted_ns.is_some() || is_waiting(hold))
        .copied()
        .collect();
    by_end_of_waiting.sort_by_key(|hold| (waited_until(hold), hold.asked_ns, hold.client));
    let mut times: Vec<u64> = holds.iter().map(|hold| hold.asked_ns).collect();
    times.sort_unstable();
    times.dedup();

    let mut granted = [Counter::new(times.len()), Counter::new(times.len())];
    let mut overtaken_max = 0;
    for together in by_end_of_waiting.chunk_by(|one, other| waited_until(one) == waited_until(other)) {
        for hold in together {
            let later = |slack_ns: u64| times.partition_point(|&time| time <= hold.asked_ns.saturating_add(slack_ns));
            let count_from = |rank: usize| {
                let exclusive = granted[0].count_from(rank);
                exclusive + if hold.is_shared { 0 } else { granted[1].count_from(rank) }
            };
            let overtaken = count_from(later(0));
            overtaken_max = overtaken_max.max(overtaken);
            let (slack_ns, allowed) = match promise {
                Promise::None => continue,
                Promise::Fifo { slack_ns } => (slack_ns, 0),
                Promise::BoundedOvertaking { overtakers } => (0, overtakers),
            };
            let count = count_from(later(slack_ns));
            if count > allowed {
                let mut shown = vec![*hold];
                shown.extend(overtakers(holds, hold, slack_ns).take(SHOWN_MAX));
                let reason = Reason::Overtaken { count, allowed };
                return Err(Violation {
                    lock,
                    reason,
                    holds: shown,
                });
            }
        }
        for hold in together.iter().filter(|hold| hold.granted_ns.is_some()) {
            let rank = times.partition_point(|&time| time < hold.asked_ns);
            granted[usize::from(hold.is_shared)].add(rank);
        }
    }
    Ok(overtaken_max)
}

fn waited_until(hold: &Hold) -> u64 {
    hold.granted_ns.unwrap_or(u64::MAX)
}

/// Who overtook `waiting` having asked more than `slack_ns` later.
fn overtakers(holds: &[Hold], waiting: &Hold, slack_ns: u64) -> impl Iterator<Item = Hold> {
    let asked_ns = waiting.asked_ns.saturating_add(slack_ns);
    holds.iter().copied().filter(move |hold| {
        let is_ahead = hold
            .granted_ns
            .is_some_and(|granted_ns| granted_ns < waited_until(waiting));
        hold.asked_ns > asked_ns && is_ahead && conflict(hold, waiting)
    })
}

/// Counts items by rank; a binary indexed tree (Fenwick 1994).
struct Counter {
    sums: Vec<u64>,
    total: u64,
}

impl Counter {
    fn new(ranks: usize) -> Self {
        Self {
            sums: vec![0; ranks + 1],
            total: 0,
        }
    }

    fn add(&mut self, rank: usize) {
        self.total += 1;
        let mut at = rank + 1;
        while at < self.sums.len() {
            self.sums[at] += 1;
            at += at & at.wrapping_neg();
        }
    }

    /// How many items have this rank or a higher one.
    fn count_from(&self, rank: usize) -> u64 {
        let mut below = 0;
        let mut at = rank;
        while at > 0 {
            below += self.sums[at];
            at &= at - 1;
        }
        self.total - below
    }
}
