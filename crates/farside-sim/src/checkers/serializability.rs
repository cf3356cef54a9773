//! Is there an order of transactions that explains what they have read?
//!
//! On the path: tests only; the actors of a run write down what each transaction saw and wrote, this module judges it afterwards.
//!
//! # What it verifies
//!
//! Strict serializability, as far as it can be told by what is certainly known (Adya, "Weak consistency", 1999): transactions, and
//! operations on one key, are the nodes of a graph, and an edge says that one comes before the other in every order that
//! explains the history:
//!
//! - whoever has read a value comes after whoever wrote it;
//! - whoever has read a value that another one has replaced, who says that it was this one, comes before that one;
//! - whoever was answered before another one began comes before it.
//!
//! A cycle is a violation: no order explains the history. Half of a transaction that is seen is one, and so is a value that was read
//! and had changed when the rest was written.
//!
//! # What it does not verify
//!
//! - Not every violation is a cycle of these edges: who writes without having read does not say what it has replaced.
//! - Values that several nodes have written, and keys that have none, say nothing here; whether each key for itself is
//!   linearizable is another check.
//! - A node without an answer counts as far as its values were read; then all of it has happened.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// What a node did with one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Which key.
    pub key: u64,
    /// The value that it read there, or replaced, if it knows.
    pub seen: Option<u64>,
    /// The value that it wrote there.
    pub written: Option<u64>,
    /// Whether it has changed the key: to the value that it wrote, or to none.
    pub is_change: bool,
}

/// A transaction, or an operation on one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Who it is of.
    pub client: u32,
    /// Of which keys.
    pub accesses: Vec<Access>,
    /// When it began, in nanoseconds.
    pub start_ns: u64,
    /// When it was answered; `None` if it was not.
    pub end_ns: Option<u64>,
}

/// A cycle: each node comes before the next one, and the last one before the first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation(pub Vec<Node>);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "no order of {} transactions explains what they have read:",
            self.0.len()
        )?;
        for node in &self.0 {
            let end = node.end_ns.map_or("never".to_owned(), |end_ns| end_ns.to_string());
            writeln!(f, "client {} from {} ns to {end}:", node.client, node.start_ns)?;
            for access in &node.accesses {
                let of = |value: Option<u64>| value.map_or("?".to_owned(), |value| format!("{value:#x}"));
                let now = match access.is_change {
                    true => format!(", changed to {}", of(access.written)),
                    false => String::new(),
                };
                writeln!(f, "    key {}: saw {}{now}", access.key, of(access.seen))?;
            }
        }
        Ok(())
    }
}

/// Checks a history; returns how many edges it has that say something about values.
///
/// # Errors
/// A [`Violation`].
pub fn check(nodes: &[Node]) -> Result<u64, Violation> {
    // Who wrote a value of a key; nobody, if several did.
    let mut writers: BTreeMap<(u64, u64), Option<usize>> = BTreeMap::new();
    for (number, node) in nodes.iter().enumerate() {
        for access in &node.accesses {
            if let Some(value) = access.written {
                let writer = writers.entry((access.key, value)).or_insert(Some(number));
                *writer = writer.filter(|&before| before == number);
            }
        }
    }
    let writer = |key, value| writers.get(&(key, value)).copied().flatten();
    let seen: BTreeSet<usize> = nodes
        .iter()
        .flat_map(|node| &node.accesses)
        .filter_map(|access| writer(access.key, access.seen?))
        .collect();
    let has_happened = |number: &usize| nodes[*number].end_ns.is_some() || seen.contains(number);
    let mut graph = Graph::new(nodes);
    let mut edges = 0;
    let mut successors: BTreeMap<(u64, u64), usize> = BTreeMap::new();
    for number in (0..nodes.len()).filter(has_happened) {
        for access in nodes[number].accesses.iter().filter(|access| access.is_change) {
            if let Some(value) = access.seen.filter(|&value| writer(access.key, value).is_some()) {
                successors.insert((access.key, value), number);
            }
        }
    }
    for number in (0..nodes.len()).filter(has_happened) {
        for access in &nodes[number].accesses {
            let Some(value) = access.seen else { continue };
            let Some(from) = writer(access.key, value).filter(|&from| from != number) else {
                continue;
            };
            graph.add(from, number);
            edges += 1;
            if let Some(&next) = successors.get(&(access.key, value))
                && next != number
            {
                graph.add(number, next);
                edges += 1;
            }
        }
    }
    match graph.cycle() {
        None => Ok(edges),
        Some(cycle) => Err(Violation(
            cycle.into_iter().map(|number| nodes[number].clone()).collect(),
        )),
    }
}

/// Nodes, and behind them the instants at which nodes begin, each of which comes before the next: so that what was answered
/// before something else began takes two edges and no more.
struct Graph {
    count: usize,
    next: Vec<Vec<usize>>,
}

impl Graph {
    fn new(nodes: &[Node]) -> Self {
        let count = nodes.len();
        let mut instants: Vec<u64> = nodes.iter().map(|node| node.start_ns).collect();
        instants.sort_unstable();
        instants.dedup();
        let mut next = vec![Vec::new(); count + instants.len()];
        for instant in 1..instants.len() {
            next[count + instant - 1].push(count + instant);
        }
        for (number, node) in nodes.iter().enumerate() {
            let began = instants.partition_point(|&instant| instant < node.start_ns);
            next[count + began].push(number);
            let Some(end_ns) = node.end_ns else { continue };
            let behind = instants.partition_point(|&instant| instant <= end_ns);
            if behind < instants.len() {
                next[number].push(count + behind);
            }
        }
        Self { count, next }
    }

    fn add(&mut self, from: usize, to: usize) {
        self.next[from].push(to);
    }

    /// Nodes that come before each other, in a circle.
    fn cycle(&self) -> Option<Vec<usize>> {
        #[derive(Clone, Copy, PartialEq)]
        enum State {
            New,
            Open,
            Done,
        }
        let mut states = vec![State::New; self.next.len()];
        for root in 0..self.next.len() {
            // The way here, and how many edges of each were looked at.
            let mut way: Vec<(usize, usize)> = Vec::new();
            if states[root] == State::New {
                states[root] = State::Open;
                way.push((root, 0));
            }
            while let Some((at, looked)) = way.last_mut() {
                let Some(&to) = self.next[*at].get(*looked) else {
                    states[*at] = State::Done;
                    way.pop();
                    continue;
                };
                *looked += 1;
                match states[to] {
                    State::New => {
                        states[to] = State::Open;
                        way.push((to, 0));
                    }
                    State::Open => {
                        let from = way.iter().position(|&(at, _)| at == to).expect("it is on the way");
                        let circle = way[from..].iter().map(|&(at, _)| at);
                        return Some(circle.filter(|&at| at < self.count).collect());
                    }
                    State::Done => {}
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node((start_ns, end_ns): (u64, u64), accesses: &[(u64, Option<u64>, Option<u64>)]) -> Node {
        let access = |&(key, seen, written): &(u64, Option<u64>, Option<u64>)| Access {
            key,
            seen,
            written,
            is_change: written.is_some(),
        };
        Node {
            client: 0,
            accesses: accesses.iter().map(access).collect(),
            start_ns,
            end_ns: (end_ns > 0).then_some(end_ns),
        }
    }

    /// Two keys, written together twice.
    fn pairs() -> Vec<Node> {
        vec![
            node((0, 10), &[(1, None, Some(11)), (2, None, Some(12))]),
            node((20, 40), &[(1, Some(11), Some(21)), (2, Some(12), Some(22))]),
        ]
    }

    #[test]
    fn what_is_seen_as_of_one_instant_is_explained() {
        for both in [(11, 12), (21, 22)] {
            let mut nodes = pairs();
            nodes.push(node((15, 50), &[(1, Some(both.0), None), (2, Some(both.1), None)]));
            assert!(check(&nodes).is_ok_and(|edges| edges >= 4), "{both:?}");
        }
    }

    #[test]
    fn half_of_a_transaction_is_not() {
        let mut nodes = pairs();
        nodes.push(node((25, 35), &[(1, Some(21), None), (2, Some(12), None)]));
        let Err(Violation(cycle)) = check(&nodes) else {
            panic!("it is not noticed");
        };
        assert_eq!(cycle.len(), 2);
        // Nor one read after the other, the newer first.
        for is_answered in [true, false] {
            let mut nodes = pairs();
            nodes[1].end_ns = nodes[1].end_ns.filter(|_| is_answered);
            nodes.push(node((22, 24), &[(1, Some(21), None)]));
            nodes.push(node((25, 35), &[(2, Some(12), None)]));
            assert!(check(&nodes).is_err());
        }
        // The other way round it may have come in between.
        let mut nodes = pairs();
        nodes.push(node((22, 24), &[(1, Some(11), None)]));
        nodes.push(node((25, 35), &[(2, Some(22), None)]));
        assert!(check(&nodes).is_ok());
    }

    #[test]
    fn two_that_each_overlook_what_the_other_writes_are_not() {
        let mut nodes = pairs();
        nodes.push(node((50, 60), &[(1, Some(21), None), (2, Some(22), Some(32))]));
        nodes.push(node((50, 60), &[(2, Some(22), None), (1, Some(21), Some(41))]));
        assert!(check(&nodes).is_err());
    }

    #[test]
    fn what_was_answered_before_comes_before() {
        let mut nodes = pairs();
        nodes.push(node((50, 60), &[(1, Some(11), None)]));
        assert!(check(&nodes).is_err());
        nodes[2].start_ns = 30;
        assert!(check(&nodes).is_ok());
    }

    /// Nobody knows whether it has happened, unless somebody has seen it.
    #[test]
    fn what_was_not_answered_says_nothing_by_itself() {
        let mut nodes = pairs();
        nodes[1].end_ns = None;
        nodes.push(node((50, 60), &[(1, Some(11), None)]));
        assert!(check(&nodes).is_ok());
        nodes.push(node((70, 80), &[(2, Some(22), None)]));
        nodes.push(node((90, 95), &[(1, Some(11), None)]));
        assert!(check(&nodes).is_err());
    }
}
