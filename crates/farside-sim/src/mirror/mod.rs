//! Groups of mirrored nodes under faults: the member that the daemon runs, over simulated links, clocks and a simulated membership.
//!
//! On the path: tests only. A seed decides the faults: processes killed and started again, with their segment or
//! without; pairs that cannot reach each other; slow links; processes that are stopped for longer than a lease; a membership
//! that does not answer, or tells members late; clients that die. Clients keep several requests under way, come back to whoever is primary, and send
//! again what was not answered, as the backend over TCP does.
//!
//! # What is checked
//!
//! - The history of all words is linearizable ([`linearizability`](crate::checkers::linearizability)), with READs, WRITEs, and atomics.
//! - Two words that are always written in one batch are never read apart.
//! - Messages of a sender come in order, none twice, and none is missing that was acknowledged while both live.
//! - A client that was cut off gets no answer to what it asks later.
//! - When all faults are over, requests are answered, backups are there again, and their memory and log are the primary's.

mod client;
mod membership;
mod world;

pub use world::{Report, run};
