//! What must hold of anything that keeps keys: what its clients were told has an order, and every block of memory is free or
//! linked, once.

use std::collections::BTreeMap;

use farside_fabric::{OpContext, RemoteAddr};
use farside_pool::{Geometry, account};

use crate::checkers::linearizability;
use crate::history::Operation;
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
