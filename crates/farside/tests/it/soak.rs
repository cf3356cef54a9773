//! Real processes, killed, stopped and cut off at random, and a history of all they did that must make sense.
//!
//! Worker processes run a mixture of operations on few keys, so that they are in each other's way all the time. The
//! driver kills some and starts others, stops some for longer than their lease, does the same to the memory nodes, and
//! at last leaves them in peace. Then:
//!
//!  1. every worker must make progress, and end well;
//!  2. the history of all operations, those of the dead included, must be linearizable, key by key, and what is stored
//!     at the end must be its outcome;
//!  3. `farside fsck` must find nothing wrong: no client, no block that nobody knows of.
//!
//! What it does not verify: expiry, and transactions; the example `bank` has those, with deaths.
//!
//! `cargo xtask soak` runs it for longer; `plan.rs` has what can be chosen. The same seed gives the same operations and
//! faults, but real processes do not meet in the same way twice: a failure may take several runs to come back. So a
//! failed run keeps its logs and segments.

mod cluster;
pub(crate) mod dice;
mod driver;
mod etcd;
mod folder;
mod gateway;
mod group;
mod log;
mod plan;
mod process;
mod relay;
mod value;
mod verdict;
mod worker;

use std::collections::BTreeMap;

use farside_index::IndexKind;
use farside_sim::checkers::linearizability;
use farside_sim::history::{Answer, Call, Operation};

use self::log::History;
use self::plan::{Fabric, Plan};

/// Does nothing unless the driver started it: then it is one of the workers.
#[test]
fn work_as_a_child() {
    worker::work_if_ordered();
}

#[test]
fn mapped_memory_survives_what_happens_to_its_processes() {
    driver::run(&Plan::from_env(Fabric::Shm));
}

#[test]
fn memory_nodes_survive_what_happens_to_them_and_their_clients() {
    driver::run(&Plan::from_env(Fabric::Tcp));
}

#[test]
fn mirrored_nodes_survive_what_happens_to_them_etcd_a_gateway_and_clients() {
    driver::run(&Plan::from_env(Fabric::Mirrored));
}

#[test]
fn trees_in_mapped_memory_survive_what_happens_to_their_processes() {
    driver::run(&Plan::from_env(Fabric::Shm).of_index(IndexKind::Chime));
}

#[test]
fn trees_on_memory_nodes_survive_what_happens_to_them_and_their_clients() {
    driver::run(&Plan::from_env(Fabric::Tcp).of_index(IndexKind::Sherman));
}

#[test]
fn radix_trees_in_mapped_memory_survive_what_happens_to_their_processes() {
    driver::run(&Plan::from_env(Fabric::Shm).of_index(IndexKind::Smart));
}

#[test]
fn radix_trees_on_memory_nodes_survive_what_happens_to_them_and_their_clients() {
    driver::run(&Plan::from_env(Fabric::Tcp).of_index(IndexKind::Smart));
}

#[test]
fn trees_of_claims_in_mapped_memory_survive_what_happens_to_their_processes() {
    driver::run(&Plan::from_env(Fabric::Shm).of_index(IndexKind::Marlin));
}

#[test]
fn trees_of_claims_on_memory_nodes_survive_what_happens_to_them_and_their_clients() {
    driver::run(&Plan::from_env(Fabric::Tcp).of_index(IndexKind::Marlin));
}

#[test]
fn learned_trees_in_mapped_memory_survive_what_happens_to_their_processes() {
    driver::run(&Plan::from_env(Fabric::Shm).of_index(IndexKind::Rolex));
}

#[test]
fn learned_trees_on_memory_nodes_survive_what_happens_to_them_and_their_clients() {
    driver::run(&Plan::from_env(Fabric::Tcp).of_index(IndexKind::ChimeLearned));
}

/// Whether the checker finds the history in order.
fn is_linearizable(operations: &[Operation]) -> bool {
    linearizability::check(operations, &BTreeMap::new()).is_ok()
}

fn value_read(operation: &Operation) -> Option<u64> {
    match (operation.call, operation.end) {
        (Call::Get, Some((_, Answer::Value(value)))) => value,
        _ => None,
    }
}

/// The checks can fail: a true history passes, and none of these does.
#[test]
fn planted_bugs_are_noticed() {
    let History { mut operations, .. } = driver::run(&Plan::quiet(Fabric::Shm));
    operations.sort_by_key(|operation| operation.start_ns);
    let is_read = |number| operations.iter().any(|read| value_read(read) == Some(number));
    let puts = operations
        .iter()
        .filter_map(|operation| match (operation.call, operation.end) {
            (Call::Put(number), Some((end_ns, _))) => Some((operation, number, end_ns)),
            _ => None,
        });

    // An acknowledged put is missing, though somebody read what it wrote.
    let (_, number, _) = (puts.clone().find(|put| is_read(put.1))).expect("somebody reads what was put");
    let mut unwritten = operations.clone();
    unwritten.retain(|operation| operation.call != Call::Put(number));
    assert!(!is_linearizable(&unwritten), "nobody wrote {number}");

    // The readers of two keys were given each other's value. What was added up from nothing may be the same in both.
    let is_of_one_key = |number| puts.clone().any(|put| put.1 == number);
    let reads: Vec<usize> = (0..operations.len())
        .filter(|&at| value_read(&operations[at]).is_some_and(is_of_one_key))
        .collect();
    let one = reads[reads.len() / 2];
    let other = reads.iter().find(|&&at| operations[at].key != operations[one].key);
    let other = *other.expect("several keys are read");
    let mut swapped = operations.clone();
    swapped[one].end = operations[other]
        .end
        .map(|(_, answer)| (swapped[one].start_ns + 1, answer));
    swapped[other].end = operations[one]
        .end
        .map(|(_, answer)| (swapped[other].start_ns + 1, answer));
    assert!(!is_linearizable(&swapped), "each value belongs to one key");

    // Somebody read what had been overwritten before he asked.
    let overwritten = puts.clone().find_map(|(first, number, first_end)| {
        let is_later = |other: &Operation, end_ns| other.key == first.key && other.start_ns > end_ns;
        let (_, _, second_end) = puts.clone().find(|(second, ..)| is_later(second, first_end))?;
        let read = reads.iter().find(|&&at| is_later(&operations[at], second_end))?;
        Some((*read, number))
    });
    let (read, number) = overwritten.expect("keys are put twice, and read afterwards");
    let mut stale = operations.clone();
    stale[read].end = operations[read]
        .end
        .map(|(end_ns, _)| (end_ns, Answer::Value(Some(number))));
    assert!(!is_linearizable(&stale), "{number} was overwritten before it was read");
}

/// A store that acknowledges what it does not store: here it is a worker that leaves writes out.
#[test]
#[should_panic(expected = "not linearizable")]
fn workers_that_lie_are_noticed() {
    let plan = Plan {
        lies: true,
        ..Plan::quiet(Fabric::Shm)
    };
    driver::run(&plan);
}
