//! Who may still hold the address of a block: noted, so that tests notice a block that is used again too early, whether
//! anybody reads it then or not.
//!
//! On the path: nowhere. These types are empty unless the feature `mutants` is on, and note nothing unless the fabric is
//! simulated. With it each operation's pin is known to the simulation, and so is when a block was unlinked; a block that is
//! handed out again although an operation that began before goes on ends the simulation (`sim/grace.rs`).

#[cfg(feature = "mutants")]
use crate::sim;

/// Whose operations are noted: nobody's by default.
#[derive(Clone, Default, Debug)]
pub struct Holder {
    #[cfg(feature = "mutants")]
    pub(crate) of: Option<sim::Endpoint>,
}

/// An operation that may hold addresses, until this is dropped. Of a clone the same is true from the same time on.
#[derive(Debug)]
pub struct Hold {
    #[cfg(feature = "mutants")]
    of: Option<(sim::Endpoint, u64)>,
}

impl Holder {
    /// Notes an operation that begins now.
    #[inline]
    #[must_use]
    pub fn hold(&self) -> Hold {
        Hold {
            #[cfg(feature = "mutants")]
            of: self.of.clone().map(|endpoint| {
                let since = endpoint.hold();
                (endpoint, since)
            }),
        }
    }
}

impl Clone for Hold {
    #[inline]
    fn clone(&self) -> Self {
        Self {
            #[cfg(feature = "mutants")]
            of: self.of.clone().inspect(|(endpoint, since)| endpoint.hold_since(*since)),
        }
    }
}

#[cfg(feature = "mutants")]
impl Drop for Hold {
    fn drop(&mut self) {
        if let Some((endpoint, since)) = self.of.take() {
            endpoint.let_go(since);
        }
    }
}
