//! Scenarios: what actors do with a target, and what must hold at the end.

mod audit;
pub(crate) mod lock;
pub(crate) mod named;
pub(crate) mod store;
pub(crate) mod tree;
mod worn;
