//! Checkers: each says what it verifies, and what it does not.
//!
//! On the path: tests only; they read what the actors of a run wrote down, after the run.

pub mod exclusion;
pub mod linearizability;
pub mod serializability;
