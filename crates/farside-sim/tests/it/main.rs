//! The harness at work: many seeds, every order, and bugs that are planted; one program, so that it is linked once.

#![forbid(unsafe_code)]

mod exhaustive;
mod growing;
mod ledger;
mod mirror;
mod mutants;
mod simulation;
