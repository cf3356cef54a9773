//! What the crate promises, over the simulated fabric; one program, so that it is linked once. The models of `tests/loom.rs`
//! are another one, since they are built in another way.

#![forbid(unsafe_code)]

mod account;
mod empty;
mod homing;
mod housekeeping;
mod membership;
mod recovery;
mod rest;
mod superblock;
mod usage;
