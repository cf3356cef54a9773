//! What is where in the segment of a run.
//!
//! ```text
//! | locks: entry, data | the service's block | the roster | tallies of the workers | orders |
//! ```

use farside_fabric::{NodeId, RemoteAddr};
use farside_lock::declock::roster::ROSTER_BYTES;
use farside_lock::service::BLOCK_BYTES;
use farside_lock::{LockOptions, Site};

/// How many locks there are. Half of all acquires take the first.
pub(crate) const LOCKS: u64 = 3;
/// How many processes there may be at a time.
pub(crate) const WORKERS_MAX: u64 = 64;
/// How many clients a process has; they share an endpoint, and a site.
pub(crate) const CLIENTS: u64 = 2;
/// Bytes of the memory.
pub(crate) const BYTES: u64 = 1 << 20;
/// The longest that a client holds a lock: longer than a process waits for a core.
const LEASE_NS: u64 = 200_000_000;

const LOCK_BYTES: u64 = 512;
const DATA_AT: u64 = 256;
const SERVICE_AT: u64 = LOCKS * LOCK_BYTES;
const ROSTER_AT: u64 = SERVICE_AT + BLOCK_BYTES.next_multiple_of(64);
const TALLIES_AT: u64 = ROSTER_AT + ROSTER_BYTES;
const TALLY_BYTES: u64 = 64;
const STOP_AT: u64 = TALLIES_AT + WORKERS_MAX * CLIENTS * TALLY_BYTES;

const _: () = assert!(STOP_AT < BYTES && LOCKS < TALLY_BYTES / 8);

const fn at(offset: u64) -> RemoteAddr {
    RemoteAddr::new(NodeId::new(0), offset)
}

pub(crate) fn entry(lock: u64) -> RemoteAddr {
    at(LOCK_BYTES * lock)
}

/// Who writes under a lock.
pub(crate) fn owner(lock: u64) -> RemoteAddr {
    entry(lock).plus(DATA_AT)
}

/// How often somebody has.
pub(crate) fn count(lock: u64) -> RemoteAddr {
    owner(lock).plus(64)
}

/// Who a client is that writes, as a number that is not 0: its own words.
pub(crate) fn tally(client: u64) -> RemoteAddr {
    at(TALLIES_AT + client * TALLY_BYTES)
}

/// How often a client has counted under a lock.
pub(crate) fn counted(client: u64, lock: u64) -> RemoteAddr {
    tally(client).plus(8 * lock)
}

/// How many locks a client has acquired in all.
pub(crate) fn acquired(client: u64) -> RemoteAddr {
    tally(client).plus(TALLY_BYTES - 8)
}

/// Not 0: workers end.
pub(crate) fn stop() -> RemoteAddr {
    at(STOP_AT)
}

/// A process that knows where everything is.
pub(crate) fn site() -> Site {
    Site::new(LockOptions {
        lease_ns: LEASE_NS,
        service: Some(at(SERVICE_AT)),
        roster: Some(at(ROSTER_AT)),
        ..LockOptions::default()
    })
}
