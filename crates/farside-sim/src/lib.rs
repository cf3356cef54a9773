//! The test harness: it breaks things in the simulator, and notices what goes wrong.
//!
//! On the path: tests only; nothing of the product depends on it.
//!
//! From a seed `draw` makes a [`Plan`]: nodes, actors, their work, faults. `run` executes it over the
//! simulated fabric with the real code, then the checkers look at what the clients were told and at
//! what is in memory. A failing plan is made small by `shrink`. Every index, scheme and lock that a
//! registry lists is a [`Target`].

#![forbid(unsafe_code)]

mod alarm;
pub mod checkers;
pub mod coverage;
pub mod draw;
pub mod history;
pub mod mirror;
pub mod nics;
pub mod panics;
pub mod plan;
pub mod run;
mod scenario;
mod shared;
pub mod shrink;
pub mod small_scope;
pub mod swarm;
pub mod target;

pub use coverage::Coverage;
pub use plan::Plan;
pub use run::{Failure, Outcome, execute};
pub use target::Target;
