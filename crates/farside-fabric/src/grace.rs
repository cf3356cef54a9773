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

/// A moment. Nothing is known of it without the feature.
#[derive(Debug)]
pub struct Mark {
    #[cfg(feature = "mutants")]
    of: Option<(sim::Endpoint, u64)>,
}

impl Mark {
    /// Whether every operation has ended, of any client that was not cut off, that went on then; `true` if nobody knows.
    #[must_use]
    pub fn is_past(&self) -> bool {
        #[cfg(feature = "mutants")]
        if let Some((endpoint, mark)) = &self.of {
            return endpoint.is_past(*mark);
        }
        true
    }
}

impl Holder {
    /// Blocks that this client has unlinked and not freed are anybody's from now on.
    #[inline]
    pub fn give_up(&self) {
        #[cfg(feature = "mutants")]
        if let Some(endpoint) = &self.of {
            endpoint.give_up();
        }
    }

    /// This moment.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark {
            #[cfg(feature = "mutants")]
            of: self.of.clone().map(|endpoint| {
                let mark = endpoint.mark();
                (endpoint, mark)
            }),
        }
    }

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
