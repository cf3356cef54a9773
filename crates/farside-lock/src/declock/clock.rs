//! A clock that all compute nodes share, by a counter in far memory (DecLock, section 5.3, *synchronized
//! time*).
//!
//! On the path: beside it, once in a while. Clients of one machine, and of the simulator, have clocks that
//! agree anyway.
//!
//! Each node adds one to the counter. The one that completes the number puts it back to 0. All read it
//! until it is 0, and set their clocks to 0 then: so they are apart by the time that a READ takes.

use farside_fabric::{Endpoint, OpContext, RemoteAddr};

use crate::{LockError, Site};

/// Sets the clocks of `nodes` compute nodes, each of which calls this. The counter is a word of far memory
/// that is 0 before, and afterwards. The deadline of `cx` ends the wait for nodes that do not come; the
/// counter is then of no use any more.
///
/// # Errors
/// What the fabric reports.
pub async fn synchronise(cx: &mut OpContext, site: &Site, counter: RemoteAddr, nodes: u64) -> Result<(), LockError> {
    if cx.fetch_add(counter, 1).await? + 1 == nodes {
        cx.write_word(counter, 0).await?;
    } else {
        // Ends when the last node has come, or at the deadline.
        while cx.read_word(counter).await? != 0 {
            cx.endpoint().sleep(0).await;
        }
    }
    site.declock().set_clock(cx.endpoint().now_ns());
    Ok(())
}

/// Sets the clock of a compute node by the date, for nodes that come and go and cannot wait for each other.
/// Their clocks are apart by as much as the dates of their machines; who is late by that much is passed by
/// others that long, and nothing else depends on it.
pub fn follow_date(endpoint: &Endpoint, site: &Site) {
    let date_ns = endpoint.unix_ms().wrapping_mul(1_000_000);
    site.declock().set_clock(endpoint.now_ns().wrapping_sub(date_ns));
}

/// What the shared clock shows, in nanoseconds.
#[must_use]
pub fn now_ns(endpoint: &Endpoint, site: &Site) -> u64 {
    site.declock().shared_clock_ns(endpoint.now_ns())
}

#[cfg(test)]
mod tests;
