//! Why a key's history is not linearizable, in as few operations as possible.
//!
//! On the path: tests only; made by `check` when a search found nothing, printed by a failing test.
//!
//! To leave an operation out of a history can make it wrong: without the `put 1` nobody could `get 1`. So an operation
//! is not left out but *set free*: it may take effect at any time after its start, or never, with any answer, as if it
//! had been given none. Whatever was linearizable is so still; what has no linearization then was wrong before.
//!
//!  1. Find the first answer after which the history has no linearization; set free what was answered later, leave out
//!     what began later.
//!  2. Set operations free, many at once, then fewer, as long as there is no linearization.
//!  3. Set one more free, the last to be answered if possible: the others now have an order, which is shown.

use std::fmt;

use super::problem::Problem;
use super::search::{Outcome, search};
use crate::history::{Answer, Call, Operation};

/// How many steps one search may take while operations are set free. If they do not suffice, the operation stays.
const STEPS_MAX: u64 = 10_000;

/// How many steps all searches may take while operations are set free.
const STEPS_OF_ALL_MAX: u64 = 300_000;

/// How many steps one search for the first wrong answer may take.
const STEPS_OF_PREFIX_MAX: u64 = 100_000;

/// How many operations are printed, should there be so many that none can be set free.
const LINES_MAX: usize = 12;

/// How many operations are shown that might have written what was read.
const WRITERS_MAX: usize = 5;

/// A key whose operations have no linearization, and a small part of them that has none either.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Which key.
    pub key: u64,
    /// Its value at the beginning of the history; `None` if it was absent.
    pub initial: Option<u64>,
    /// The operations that have no order together, sorted by start. Whatever the others did does not help.
    pub operations: Vec<Operation>,
    /// The longest linearizable part of `operations` that was found, as indices, in its order.
    pub order: Vec<usize>,
    /// Other operations that write a value which `operations` speak of; setting them free did not help. At most five.
    pub writers: Vec<Operation>,
    /// How many operations the key has in all.
    pub operation_count: usize,
}

/// Whether there is no linearization, and how many steps it took to know.
fn is_violation(operations: &[Operation], initial: Option<u64>, steps_max: u64) -> (bool, u64) {
    let report = search(&Problem::new(operations, initial), steps_max);
    (matches!(report.outcome, Outcome::Violation), report.steps)
}

/// The history as it was known at `until_ns`.
fn prefix(operations: &[Operation], until_ns: u64) -> Vec<Operation> {
    let begun = operations.iter().filter(|operation| operation.start_ns <= until_ns);
    begun
        .map(|operation| Operation {
            end: operation.end.filter(|&(end_ns, _)| end_ns <= until_ns),
            ..*operation
        })
        .collect()
}

/// Sets all operations free but those that `is_kept`.
fn set_free(operations: &[Operation], is_kept: &[bool]) -> Vec<Operation> {
    let pairs = operations.iter().zip(is_kept);
    pairs
        .map(|(operation, &is_kept)| Operation {
            end: operation.end.filter(|_| is_kept),
            ..*operation
        })
        .collect()
}

impl Violation {
    /// Explains why the operations of one key, which have no linearization, have none.
    pub(super) fn explain(key: u64, operations: &[Operation], initial: Option<u64>) -> Self {
        let shortest = shortest_prefix(operations, initial);
        let is_kept = reduce(&shortest, initial);

        let mut core: Vec<usize> = (0..shortest.len()).filter(|&index| is_kept[index]).collect();
        core.sort_by_key(|&index| (shortest[index].start_ns, end_ns(&shortest[index]), index));
        let order = order_of_most(&shortest, &is_kept, &core, initial);
        let order = order
            .iter()
            .filter_map(|source| core.iter().position(|index| index == source))
            .collect();
        let core_operations: Vec<Operation> = core.iter().map(|&index| shortest[index]).collect();
        let spoken: Vec<u64> = core_operations.iter().flat_map(values_needed).collect();
        // Shown as they were recorded: with their ends, if they had any.
        let writers = operations.iter().filter(|operation| {
            operation.call.value().is_some_and(|value| spoken.contains(&value)) && !core_operations.contains(operation)
        });
        Self {
            key,
            initial,
            writers: writers.take(WRITERS_MAX).copied().collect(),
            operations: core_operations,
            order,
            operation_count: operations.len(),
        }
    }
}

/// The shortest prefix in time that has no linearization. Prefixes of linearizable histories are linearizable.
fn shortest_prefix(operations: &[Operation], initial: Option<u64>) -> Vec<Operation> {
    let mut ends: Vec<u64> = operations
        .iter()
        .filter_map(|operation| operation.end.map(|(end_ns, _)| end_ns))
        .collect();
    ends.sort_unstable();
    ends.dedup();
    let mut shortest = operations.to_vec();
    let (mut low, mut high) = (0, ends.len());
    while low < high {
        let middle = (low + high) / 2;
        let candidate = prefix(operations, ends[middle]);
        if is_violation(&candidate, initial, STEPS_OF_PREFIX_MAX).0 {
            high = middle;
            shortest = candidate;
        } else {
            low = middle + 1;
        }
    }
    shortest
}

/// Which answered operations must stay as they are. Greedy: none of them can be set free alone, as far as the steps
/// suffice to know.
fn reduce(operations: &[Operation], initial: Option<u64>) -> Vec<bool> {
    let mut is_kept: Vec<bool> = operations.iter().map(|operation| operation.end.is_some()).collect();
    let mut size = operations.len().next_power_of_two();
    let mut steps_left = STEPS_OF_ALL_MAX;
    loop {
        let mut is_smaller = false;
        let kept: Vec<usize> = (0..operations.len()).filter(|&index| is_kept[index]).collect();
        for chunk in kept.chunks(size) {
            chunk.iter().for_each(|&index| is_kept[index] = false);
            let (is_wrong, steps) = is_violation(&set_free(operations, &is_kept), initial, STEPS_MAX.min(steps_left));
            steps_left = steps_left.saturating_sub(steps);
            if is_wrong {
                is_smaller = true;
            } else {
                chunk.iter().for_each(|&index| is_kept[index] = true);
            }
        }
        if size > 1 {
            size /= 2;
        } else if !is_smaller {
            return is_kept;
        }
    }
}

/// An order of all kept operations but one, and of others in between; empty if none is found.
fn order_of_most(operations: &[Operation], is_kept: &[bool], core: &[usize], initial: Option<u64>) -> Vec<usize> {
    let mut by_end = core.to_vec();
    by_end.sort_by_key(|&index| std::cmp::Reverse((end_ns(&operations[index]), index)));
    for left_out in by_end {
        let mut is_kept = is_kept.to_vec();
        is_kept[left_out] = false;
        let problem = Problem::new(&set_free(operations, &is_kept), initial);
        if let Outcome::Linearizable(order) = search(&problem, STEPS_MAX).outcome {
            return order.into_iter().filter(|&index| index != left_out).collect();
        }
    }
    Vec::new()
}

fn end_ns(operation: &Operation) -> u64 {
    operation.end.map_or(u64::MAX, |(end_ns, _)| end_ns)
}

/// The values that the answer is about and that somebody else must have written.
fn values_needed(operation: &Operation) -> Option<u64> {
    match (operation.call, operation.end) {
        (_, Some((_, Answer::Value(value)))) => value,
        (Call::Add(delta), Some((_, Answer::Sum(sum)))) => Some(sum.wrapping_sub(delta)),
        _ => None,
    }
}

fn call_text(call: Call) -> String {
    match call {
        Call::Get => "get".to_owned(),
        Call::Put(value) => format!("put {value}"),
        Call::Insert(value) => format!("insert {value}"),
        Call::Update(value) => format!("update {value}"),
        Call::Delete => "delete".to_owned(),
        Call::Take => "take".to_owned(),
        Call::Add(delta) => format!("add {delta}"),
    }
}

fn answer_text(answer: Option<Answer>) -> String {
    match answer {
        Some(Answer::Value(Some(value)) | Answer::Sum(value)) => value.to_string(),
        Some(Answer::Value(None)) => "absent".to_owned(),
        Some(Answer::Done) => "done".to_owned(),
        Some(Answer::Happened(true)) => "yes".to_owned(),
        Some(Answer::Happened(false)) => "no".to_owned(),
        None => "none".to_owned(),
    }
}

fn write_line(out: &mut fmt::Formatter<'_>, operation: &Operation, place: &str) -> fmt::Result {
    let (end_ns, answer) = operation.end.unzip();
    let end = end_ns.map(|end_ns| end_ns.to_string()).unwrap_or_default();
    let times = format!("{}..{end}", operation.start_ns);
    let (call, answer) = (call_text(operation.call), answer_text(answer));
    write!(
        out,
        "\n  {:>6}  {call:<24} {answer:<20} {times:<28} {place}",
        operation.client
    )
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.operations.len();
        let others = self.operation_count - count;
        write!(out, "key {}, at first ", self.key)?;
        match self.initial {
            Some(value) => write!(out, "{value}")?,
            None => write!(out, "absent")?,
        }
        write!(out, ", is not linearizable: ")?;
        match count {
            1 => write!(out, "this answer is impossible")?,
            _ => write!(out, "these {count} operations have no order")?,
        }
        if others > 0 {
            write!(out, ", whenever its other {others} took effect")?;
        }
        write!(
            out,
            "\n  {:>6}  {:<24} {:<20} {:<28} place",
            "client", "call", "answer", "times in ns"
        )?;
        let skipped = count.saturating_sub(LINES_MAX);
        if skipped > 0 {
            write!(out, "\n  {:>6}  {skipped} earlier operations", "..")?;
        }
        for (index, operation) in self.operations.iter().enumerate().skip(skipped) {
            let place = match self.order.iter().position(|&placed| placed == index) {
                Some(place) => format!("{}", place + 1),
                None => "none found".to_owned(),
            };
            write_line(out, operation, &place)?;
        }
        for operation in &self.writers {
            write_line(out, operation, "any or none")?;
        }
        Ok(())
    }
}

impl std::error::Error for Violation {}
