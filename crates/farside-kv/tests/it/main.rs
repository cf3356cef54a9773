//! What the crate promises, in the simulator and over mapped memory; one program, so that it is linked once.

#![forbid(unsafe_code)]

mod answers;
mod audit;
mod cost;
mod deaths;
mod evict;
mod growth;
mod holders;
mod in_turn;
mod ledger;
mod locks;
mod mapped;
mod model;
mod range;
mod simulation;
mod snapshots;
mod sweep;
mod transactions;
mod types;
