//! What the crate promises: the suite for every lock, and processes that die; one program, so that it is linked once.

#![forbid(unsafe_code)]

mod conformance;
mod declock;
mod phases;
mod soak;
