//! Scenarios: what actors do with a target, and what must hold at the end.

pub(crate) mod lock;
pub(crate) mod named;
pub(crate) mod store;
