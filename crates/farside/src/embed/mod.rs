//! The library that people embed: above `farside-kv`, without its type parameters.
//!
//! On the path: a program's call comes in here and goes on to a session of `farside-kv`. Which fabric
//! it is of is asked once per operation, by a `match`.

pub mod blocking;
pub(crate) mod error;
pub(crate) mod locks;
mod operations;
pub(crate) mod options;
pub(crate) mod runtime;
pub(crate) mod session;
pub(crate) mod store;
pub(crate) mod time;
pub(crate) mod walk;
