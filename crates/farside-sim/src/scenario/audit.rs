//! What must hold of anything that keeps keys: what its clients were told has an order, and every block of memory is free or
//! linked, once.

use std::collections::{BTreeMap, BTreeSet};

use farside_fabric::{OpContext, RemoteAddr};
use farside_pool::{Geometry, account};

use crate::checkers::linearizability;
use crate::checkers::serializability::{self, Access, Node};
use crate::history::{Answer, Call, Operation};
use crate::run::Failure;
use crate::shared::Shared;

/// The history of each life of the memory is linearizable.
pub(super) fn history(shared: &Shared) -> Result<(), Failure> {
    for history in lives(&shared.history.borrow(), &shared.losses.borrow()) {
        let statistics = linearizability::check(&history, &BTreeMap::new());
        let statistics = statistics.map_err(|violation| Failure::new("linearizability", violation.to_string()))?;
        let mut coverage = shared.coverage.borrow_mut();
        let undecided = statistics.undecided.len() as u64;
        coverage.add("checked", "keys whose history was too hard to decide", undecided);
        coverage.add("checked", "operations for linearizability", history.len() as u64);
    }
    Ok(())
}

/// Transactions are serializable, where the memory was never lost.
pub(super) fn transactions(shared: &Shared) -> Result<(), Failure> {
    let groups = shared.together.borrow();
    if groups.iter().all(Vec::is_empty) || !shared.losses.borrow().is_empty() {
        return Ok(());
    }
    let history = shared.history.borrow();
    let mut nodes = Vec::new();
    let mut grouped = BTreeSet::new();
    for group in groups.iter().filter(|group| !group.is_empty()) {
        grouped.extend(group.iter().map(|(place, _)| *place));
        let first = &history[group[0].0];
        nodes.push(Node {
            client: first.client,
            accesses: group
                .iter()
                .map(|&(place, seen)| within(&history[place], seen))
                .collect(),
            start_ns: first.start_ns,
            end_ns: first.end.map(|(end_ns, _)| end_ns),
        });
    }
    for (_, operation) in history.iter().enumerate().filter(|(place, _)| !grouped.contains(place)) {
        nodes.push(Node {
            client: operation.client,
            accesses: vec![alone(operation)],
            start_ns: operation.start_ns,
            end_ns: operation.end.map(|(end_ns, _)| end_ns),
        });
    }
    // The same sum may be there twice; everything else that is stored is another value each time.
    let drawn: BTreeSet<u64> = history.iter().filter_map(|operation| operation.call.value()).collect();
    for access in nodes.iter_mut().flat_map(|node| &mut node.accesses) {
        access.seen = access.seen.filter(|value| drawn.contains(value));
        access.written = access.written.filter(|value| drawn.contains(value));
    }
    let edges = serializability::check(&nodes);
    let edges = edges.map_err(|violation| Failure::new("serializability", violation.to_string()))?;
    let mut coverage = shared.coverage.borrow_mut();
    coverage.add("checked", "dependencies for serializability", edges);
    Ok(())
}

/// What an operation of a transaction did that saw this.
fn within(operation: &Operation, seen: Option<u64>) -> Access {
    let (written, is_change) = match operation.call {
        Call::Get => (None, false),
        Call::Put(value) => (Some(value), true),
        Call::Insert(value) => (Some(value).filter(|_| seen.is_none()), seen.is_none()),
        Call::Update(value) => (Some(value).filter(|_| seen.is_some()), seen.is_some()),
        Call::Delete | Call::Take => (None, seen.is_some()),
        Call::Add(more) => (Some(seen.unwrap_or(0) + more), true),
    };
    Access {
        key: operation.key,
        seen,
        written,
        is_change,
    }
}

/// What an operation did, as far as its answer says.
fn alone(operation: &Operation) -> Access {
    let answer = operation.end.map(|(_, answer)| answer);
    let (seen, written, is_change) = match (operation.call, answer) {
        (Call::Get, Some(Answer::Value(value))) => (value, None, false),
        (Call::Take, Some(Answer::Value(value))) => (value, None, value.is_some()),
        (Call::Add(more), Some(Answer::Sum(sum))) => (sum.checked_sub(more), Some(sum), true),
        (Call::Put(value), _) => (None, Some(value), true),
        (Call::Insert(value) | Call::Update(value), None | Some(Answer::Happened(true))) => (None, Some(value), true),
        _ => (None, None, false),
    };
    Access {
        key: operation.key,
        seen,
        written,
        is_change,
    }
}

/// The history of each life of the memory: what was stored before the only node lost its memory is
/// gone, and nobody may see it again.
fn lives(history: &[Operation], losses: &[(u64, u64)]) -> Vec<Vec<Operation>> {
    let mut lives = vec![Vec::new(); losses.len() + 1];
    for operation in history {
        // A verb posted before the loss has no effect after it; so the operation belongs to the life
        // in which it began.
        let life = losses
            .iter()
            .filter(|(_, back_ns)| operation.start_ns >= *back_ns)
            .count();
        lives[life].push(*operation);
    }
    lives
}

/// What [`memory`] checks, in reports.
pub(super) const BLOCKS: &str = "blocks for being linked or free, once";

/// Nobody is a member of the pool any more, and each of its blocks is free, or linked by the index, once; returns how many
/// there are.
pub(super) async fn memory(cx: &mut OpContext, geometry: &[Geometry], linked: &[RemoteAddr]) -> Result<u64, Failure> {
    let account = account(cx, geometry, linked)
        .await
        .map_err(Failure::of("memory cannot be accounted for"))?;
    let is_clean = account.faults.is_empty()
        && (account.clients_live, account.clients_dead) == (0, 0)
        && (account.blocks_held, account.blocks_unrecovered) == (0, 0);
    if !is_clean {
        return Err(Failure::new("memory", format!("{account:#?}")));
    }
    Ok(account.blocks_reachable + account.blocks_free)
}
