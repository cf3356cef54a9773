//! What the crate promises, over the simulated fabric.

#![forbid(unsafe_code)]

mod publish;
