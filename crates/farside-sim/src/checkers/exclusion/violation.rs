//! What a lock did wrong, and the holds that show it.
//!
//! On the path: tests only; made by `check` and `check_progress`, printed by a failing test.

use std::fmt;

use crate::history::Hold;

/// What is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Two conflicting holds overlap.
    Overlap,
    /// A client holds what it has not asked for yet.
    GrantedBeforeAsked,
    /// A client holds what it had given up, or crashed waiting for.
    GrantedAfterEnd,
    /// The first hold was overtaken by the others, too often.
    Overtaken {
        /// How often.
        count: u64,
        /// How often the lock promises at most.
        allowed: u64,
    },
    /// A client waits at the end although the lock could have been granted to it.
    Stuck {
        /// When the lock was free or changed hands, in nanoseconds.
        free_ns: u64,
    },
}

/// A lock that broke its promise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Which lock.
    pub lock: u64,
    /// What is wrong.
    pub reason: Reason,
    /// The holds that show it.
    pub holds: Vec<Hold>,
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "lock {}: ", self.lock)?;
        match self.reason {
            Reason::Overlap => write!(out, "two clients held it at the same time, not both shared")?,
            Reason::GrantedBeforeAsked => write!(out, "granted to a client before it asked")?,
            Reason::GrantedAfterEnd => write!(out, "granted to a client that had given up or crashed")?,
            Reason::Overtaken { count, allowed } => {
                write!(
                    out,
                    "the first was overtaken {count} times, at most {allowed} are promised"
                )?;
            }
            Reason::Stuck { free_ns } => {
                write!(
                    out,
                    "a client still waits, though the lock was free or changed hands at {free_ns}"
                )?;
            }
        }
        write!(
            out,
            "\n  {:>6}  {:<9}  {:>16}  {:>16}  {:>16}",
            "client", "mode", "asked", "granted", "ended"
        )?;
        let time = |time_ns: Option<u64>| time_ns.map_or_else(|| "never".to_owned(), |time_ns| time_ns.to_string());
        for hold in &self.holds {
            let mode = if hold.is_shared { "shared" } else { "exclusive" };
            let (granted, ended) = (time(hold.granted_ns), time(hold.ended_ns));
            write!(
                out,
                "\n  {:>6}  {mode:<9}  {:>16}  {granted:>16}  {ended:>16}",
                hold.client, hold.asked_ns
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for Violation {}
