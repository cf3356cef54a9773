//! Did a lock keep what it promises?
//!
//! On the path: tests only; the actors of a run write down what they held, this module judges it afterwards.
//!
//! # Words
//!
//! - A client *holds* a lock in `[granted_ns, ended_ns)`, to the end of the run if `ended_ns` is `None`. Holds that
//!   touch do not overlap; one that ends when it is granted overlaps nothing.
//! - Two holds of one lock *conflict* unless both are shared.
//! - A client *waits* from `asked_ns` until it is granted; if it never is and did not give up, until the end.
//! - B *overtakes* A if they conflict, B asked later, and B was granted while A waited. So a reader may pass readers,
//!   and nobody passes a writer or is passed by one. Who gave up (or crashed) while waiting was not overtaken: its
//!   request may never have reached the lock.
//!
//! # What it verifies
//!
//! - [`check`]: conflicting holds of one lock do not overlap; nobody was granted a lock before it asked, or after it
//!   had given up; nobody was overtaken in a way that the [`Promise`] rules out.
//! - [`check_progress`]: nobody still waits at the end for a lock that could have been granted to it.
//!
//! # What it does not verify
//!
//! - Only what clients believed: a lock word may be wrong as long as nobody acts on it.
//! - Not what was done under the lock; a client that writes after `ended_ns` is found by who reads it.
//! - That sharing is possible is counted, not demanded: see [`Statistics::shared_holders_max`].
//! - No order among those that asked at the same instant or, with [`Promise::Fifo`], within `slack_ns`.
//! - Who gave up is no witness for order or progress. A lock that nobody ever gets passes if all give up.
//! - No deadlock across locks: [`check_progress`] excuses who waits for a lock that was held all the time.

mod order;
#[cfg(test)]
mod tests;
mod violation;

use std::collections::BTreeMap;

use crate::history::Hold;

pub use violation::{Reason, Violation};

/// What order a lock promises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Promise {
    /// None.
    None,
    /// Nobody is overtaken by one who asked more than `slack_ns` later.
    Fifo {
        /// How much later a request may be made and yet reach the lock first, in nanoseconds.
        slack_ns: u64,
    },
    /// Each client is overtaken at most so often while it waits.
    BoundedOvertaking {
        /// Grants of conflicting requests that were made later.
        overtakers: u64,
    },
}

/// What was checked, so that a test can see that it checked something.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Locks with at least one request.
    pub locks: u64,
    /// Requests that were granted.
    pub granted: u64,
    /// Requests that ended without a grant.
    pub given_up: u64,
    /// Requests that neither were granted nor ended.
    pub waiting: u64,
    /// The largest number of clients that held one lock at the same time in shared mode.
    pub shared_holders_max: u64,
    /// How often the client that was overtaken most was overtaken while it waited.
    pub overtaken_max: u64,
}

/// Checks exclusion, grants and order of any number of locks. The holds may stand in any order.
///
/// # Errors
///
/// A [`Violation`] of the smallest lock that has one.
pub fn check(holds: &[Hold], promise: Promise) -> Result<Statistics, Violation> {
    let mut statistics = Statistics::default();
    for (lock, holds) in by_lock(holds) {
        check_grants(lock, &holds)?;
        check_overlap(lock, &holds)?;
        let overtaken_max = order::check(lock, &holds, promise)?;
        let granted = holds.iter().filter(|hold| hold.granted_ns.is_some()).count();
        let waiting = holds.iter().filter(|hold| is_waiting(hold)).count();
        statistics.locks += 1;
        statistics.granted += granted as u64;
        statistics.waiting += waiting as u64;
        statistics.given_up += (holds.len() - granted - waiting) as u64;
        statistics.shared_holders_max = statistics.shared_holders_max.max(shared_holders_max(&holds));
        statistics.overtaken_max = statistics.overtaken_max.max(overtaken_max);
    }
    Ok(statistics)
}

/// Checks that nobody waits in vain at the end of the run, `end_ns`.
///
/// A client that still waits is a violation if it asked more than `patience_ns` before the end, and at some instant
/// after it asked, at least `patience_ns` before the end, the lock was free or passed from its holders to others: an
/// instant at which everyone who had been granted it before had ended. Both modes are treated alike, since a reader
/// may have to wait behind a writer that waits. A writer that starves because holds of readers overlap without end is
/// excused here and caught by [`Promise::BoundedOvertaking`].
///
/// `patience_ns` must cover what is allowed between such an instant and a grant: the queue ahead, and recovery.
///
/// # Errors
///
/// A [`Violation`] with [`Reason::Stuck`] of the smallest lock that has one.
pub fn check_progress(holds: &[Hold], end_ns: u64, patience_ns: u64) -> Result<(), Violation> {
    let Some(until_ns) = end_ns.checked_sub(patience_ns) else {
        return Ok(());
    };
    for (lock, holds) in by_lock(holds) {
        let busy = busy_times(&holds);
        for waiting in holds.iter().filter(|hold| is_waiting(hold) && hold.asked_ns < until_ns) {
            // The only busy time that can excuse: the one in whose inside the client asked.
            let at = busy.partition_point(|&(from_ns, _)| from_ns < waiting.asked_ns);
            let free_ns = match at.checked_sub(1).map(|at| busy[at]) {
                Some((_, to_ns)) => to_ns.max(waiting.asked_ns),
                None => waiting.asked_ns,
            };
            if free_ns <= until_ns {
                let reason = Reason::Stuck { free_ns };
                return Err(Violation {
                    lock,
                    reason,
                    holds: vec![*waiting],
                });
            }
        }
    }
    Ok(())
}

fn by_lock(holds: &[Hold]) -> BTreeMap<u64, Vec<Hold>> {
    let mut holds_of: BTreeMap<u64, Vec<Hold>> = BTreeMap::new();
    for hold in holds {
        holds_of.entry(hold.lock).or_default().push(*hold);
    }
    holds_of
}

fn is_waiting(hold: &Hold) -> bool {
    hold.granted_ns.is_none() && hold.ended_ns.is_none()
}

fn conflict(one: &Hold, other: &Hold) -> bool {
    !(one.is_shared && other.is_shared)
}

/// From when to when the lock was held, if for longer than nothing.
fn held(hold: &Hold) -> Option<(u64, u64)> {
    let span = (hold.granted_ns?, hold.ended_ns.unwrap_or(u64::MAX));
    Some(span).filter(|(from_ns, to_ns)| from_ns < to_ns)
}

/// Holds that take time, sorted by their beginning.
fn by_grant(holds: &[Hold]) -> Vec<(u64, u64, Hold)> {
    let mut spans: Vec<_> = holds
        .iter()
        .filter_map(|hold| held(hold).map(|(from_ns, to_ns)| (from_ns, to_ns, *hold)))
        .collect();
    spans.sort_by_key(|&(from_ns, to_ns, hold)| (from_ns, to_ns, hold.client));
    spans
}

fn check_grants(lock: u64, holds: &[Hold]) -> Result<(), Violation> {
    for hold in holds {
        let Some(granted_ns) = hold.granted_ns else { continue };
        if granted_ns < hold.asked_ns {
            return Err(Violation {
                lock,
                reason: Reason::GrantedBeforeAsked,
                holds: vec![*hold],
            });
        }
        if hold.ended_ns.is_some_and(|ended_ns| ended_ns < granted_ns) {
            return Err(Violation {
                lock,
                reason: Reason::GrantedAfterEnd,
                holds: vec![*hold],
            });
        }
    }
    Ok(())
}

fn check_overlap(lock: u64, holds: &[Hold]) -> Result<(), Violation> {
    // Of those granted so far: who holds it longest in each mode.
    let mut exclusive: Option<(u64, Hold)> = None;
    let mut shared: Option<(u64, Hold)> = None;
    for (from_ns, to_ns, hold) in by_grant(holds) {
        let rivals = [exclusive, shared.filter(|_| !hold.is_shared)];
        if let Some((_, other)) = rivals.into_iter().flatten().find(|&(until_ns, _)| until_ns > from_ns) {
            return Err(Violation {
                lock,
                reason: Reason::Overlap,
                holds: vec![other, hold],
            });
        }
        let longest = if hold.is_shared { &mut shared } else { &mut exclusive };
        if longest.is_none_or(|(until_ns, _)| until_ns < to_ns) {
            *longest = Some((to_ns, hold));
        }
    }
    Ok(())
}

fn shared_holders_max(holds: &[Hold]) -> u64 {
    let shared = holds.iter().filter(|hold| hold.is_shared).filter_map(held);
    // At one instant, ends come first.
    let mut steps: Vec<(u64, i64)> = shared
        .flat_map(|(from_ns, to_ns)| [(from_ns, 1), (to_ns, -1)])
        .collect();
    steps.sort_unstable();
    let mut holders = 0;
    let mut holders_max: i64 = 0;
    for (_, step) in steps {
        holders += step;
        holders_max = holders_max.max(holders);
    }
    holders_max.unsigned_abs()
}

/// Times during which the lock was held without a break; two that touch are two, since it changed hands in between.
fn busy_times(holds: &[Hold]) -> Vec<(u64, u64)> {
    let mut busy: Vec<(u64, u64)> = Vec::new();
    for (from_ns, to_ns, _) in by_grant(holds) {
        match busy.last_mut() {
            Some((_, until_ns)) if from_ns < *until_ns => *until_ns = to_ns.max(*until_ns),
            _ => busy.push((from_ns, to_ns)),
        }
    }
    busy
}
