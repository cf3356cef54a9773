//! Is a history of operations on keys linearizable?
//!
//! On the path: tests only; the actors of a run write the history, this module judges it afterwards.
//!
//! # What it verifies
//!
//! For each key there is one order of its operations in which each answer is what a single map would have given, and
//! in which an operation that was answered before another one began comes first (Herlihy and Wing 1990).
//! Linearizability is local: a history is linearizable if and only if each key's part is. So keys are checked one by
//! one, each with the search of Wing and Gong (1993) and the memory of visited configurations that Lowe added
//! ("Testing for linearizability", 2017).
//!
//! - An operation without an answer may take effect at any time after its start, or never, and whatever it would have
//!   answered is right.
//! - Operations whose times touch (`end_ns` of one is `start_ns` of the other) count as simultaneous, unless they are
//!   of one client: a client asks after it was answered.
//! - An answer that does not belong to the call (`Done` to a `Get`) is a violation.
//! - Sums wrap around at 2^64.
//!
//! # What it does not verify
//!
//! - Nothing across keys: no scans, no transactions, no order that a client sees between two keys.
//! - Nothing about an operation without an answer, except what others read of it.
//! - Durability only as far as a later read of the same key sees it: what nobody reads again may be lost unnoticed.
//! - No progress: a history in which nothing is answered is linearizable.
//! - Not that the times are true. If they are not of one clock, neither a verdict nor its absence means anything.
//! - A key in [`Statistics::undecided`] was given up: it is neither right nor wrong. That happens to a key with dozens
//!   of `Add`s without an answer: any of their sums may be what somebody read.
//!
//! # Why the search ends soon
//!
//! The problem is NP-complete, but operations on one key leave much to be said before one starts to search. Each of
//! these steps keeps at least one linearization if there is one:
//!
//!  1. A read (or a failed insert, update, delete) that may come next and fits comes next; nothing else is tried.
//!  2. An operation without an answer is placed only right before an answered one that does not fit otherwise. It has
//!     no deadline, so it can wait until then; a `Get` without an answer is left out.
//!  3. Values that no answer speaks of are one value. (Not with an `Add` without an answer: its sum is unknown.)
//!  4. Of several operations that need and do the same, the one that must come first comes first.
//!     Of operations without an answer, the one that is of least use later is taken.
//!  5. A value that is overwritten while an answer still needs it, and that nothing is left to write, is a dead end.
//!  6. A configuration (answered operations placed, value) is a dead end if it was one with fewer or the same
//!     operations without an answer used up.

mod problem;
mod search;
#[cfg(test)]
mod tests;
mod violation;

use std::collections::BTreeMap;

use crate::history::Operation;

use problem::Problem;
use search::{Outcome, search};
pub use violation::Violation;

/// How many steps the search for one key may take: some seconds, some hundred MiB.
pub const STEPS_MAX: u64 = 2_000_000;

/// What was checked, so that a test can see that it checked something.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Keys with at least one operation.
    pub keys: u64,
    /// Operations with an answer.
    pub answered: u64,
    /// Operations without an answer.
    pub open: u64,
    /// The largest number of answered operations on one key that ran at the same time.
    pub concurrent_max: u64,
    /// Steps of the search: configurations that were visited and combinations that were tried.
    pub steps: u64,
    /// The largest number of steps that one key took.
    pub steps_max: u64,
    /// Keys that were given up because their search took too many steps: neither right nor wrong.
    pub undecided: Vec<u64>,
}

/// Checks a history of any number of keys; `initial` has the values at its beginning, other keys are absent.
///
/// The operations may stand in any order, except that two of one client that start at the same instant stand in the
/// order in which it asked.
///
/// # Errors
///
/// A [`Violation`] for the smallest key whose operations have no linearization.
///
/// # Panics
///
/// If an operation ends before it starts.
pub fn check(history: &[Operation], initial: &BTreeMap<u64, u64>) -> Result<Statistics, Violation> {
    check_within(history, initial, STEPS_MAX)
}

/// As [`check`], with at most `steps_max` steps per key before it is given up as undecided.
///
/// # Errors
///
/// As [`check`].
///
/// # Panics
///
/// As [`check`].
pub fn check_within(
    history: &[Operation],
    initial: &BTreeMap<u64, u64>,
    steps_max: u64,
) -> Result<Statistics, Violation> {
    let mut operations_of: BTreeMap<u64, Vec<Operation>> = BTreeMap::new();
    for operation in history {
        operations_of.entry(operation.key).or_default().push(*operation);
    }
    let mut statistics = Statistics::default();
    for (&key, operations) in &operations_of {
        let value = initial.get(&key).copied();
        let report = search(&Problem::new(operations, value), steps_max);
        let answered = operations.iter().filter(|operation| operation.end.is_some()).count() as u64;
        statistics.keys += 1;
        statistics.answered += answered;
        statistics.open += operations.len() as u64 - answered;
        statistics.concurrent_max = statistics.concurrent_max.max(concurrent_max(operations));
        statistics.steps += report.steps;
        statistics.steps_max = statistics.steps_max.max(report.steps);
        match report.outcome {
            Outcome::Linearizable(_) => {}
            Outcome::Undecided => statistics.undecided.push(key),
            Outcome::Violation => return Err(Violation::explain(key, operations, value)),
        }
    }
    Ok(statistics)
}

/// The largest number of answered operations that were under way at one instant; touching ones are not.
fn concurrent_max(operations: &[Operation]) -> u64 {
    let mut steps: Vec<(u64, i64)> = Vec::with_capacity(2 * operations.len());
    for operation in operations {
        if let Some((end_ns, _)) = operation.end {
            steps.push((operation.start_ns, 1));
            steps.push((end_ns.max(operation.start_ns + 1), -1));
        }
    }
    steps.sort_unstable();
    let mut running = 0;
    let mut running_max = 0;
    for (_, step) in steps {
        running += step;
        running_max = running_max.max(running);
    }
    running_max.unsigned_abs()
}
