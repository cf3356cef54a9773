//! What the crate promises, on every backend; one program, so that it is linked once. The models of `tests/loom.rs` are
//! another one, since they are built in another way.

#![forbid(unsafe_code)]

mod conformance;
mod mirrored;
mod shm_processes;
mod simulation;
mod tcp;
