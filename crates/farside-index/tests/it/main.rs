//! What the crate promises, on every fabric; one program, so that it is linked once.

#![forbid(unsafe_code)]

mod forest;
mod ledger;
mod pointer_array;
mod tree;
mod tree_cost;
mod tree_fabrics;
