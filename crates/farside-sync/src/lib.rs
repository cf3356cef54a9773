//! Synchronisation schemes: how the pointer to an item is replaced when several clients want to.
//!
//! On the path: an index has found the slot and written the new item to a block that nobody links
//! yet; the scheme publishes it. SEARCH never takes part: it reads the slot and follows the pointer.
//!
//! A scheme is one file and one line of [`Scheme`].

#![forbid(unsafe_code)]

pub mod farside;
pub mod optimistic;
pub mod pointer;

use farside_fabric::{Endpoint, FabricError, OpContext, RemoteAddr};

pub use pointer::{NODE_BYTES_MAX, NODES_MAX, Pointer, SizeHint};

/// What became of an attempt to replace a pointer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Publish {
    /// The new pointer is in place; the caller retires what the old one linked.
    Replaced {
        /// The old one.
        old: Pointer,
    },
    /// Another client was quicker: the slot holds `current`, and nothing was changed.
    Lost {
        /// What the slot holds instead of what was expected.
        current: Pointer,
    },
}

impl Publish {
    /// Whether the new pointer is in place.
    #[inline]
    #[must_use]
    pub fn is_replaced(self) -> bool {
        matches!(self, Self::Replaced { .. })
    }
}

/// The schemes, chosen by name at start-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// O-SYNC: compare-and-swap, and try again.
    Optimistic,
    /// Updates swap the pointer under the identity of the slot.
    Farside,
}

impl Scheme {
    /// Every scheme with its name on the command line and one line about it.
    pub const ALL: [(Self, &'static str, &'static str); 2] = [
        (
            Self::Farside,
            "farside",
            "updates swap the data pointer under the identity of its slot, and never lose to each other",
        ),
        (
            Self::Optimistic,
            "optimistic",
            "O-SYNC: compare-and-swap of the data pointer, retried by whoever loses",
        ),
    ];

    /// The scheme with this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .find(|(_, known, _)| *known == name)
            .map(|&(scheme, ..)| scheme)
    }

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Optimistic => "optimistic",
            Self::Farside => "farside",
        }
    }

    /// Replaces `old` by `new` in `slot`, and nothing but `old`.
    ///
    /// # Errors
    /// What the fabric reports; the pointer may then have been replaced.
    #[inline]
    pub async fn publish<E: Endpoint>(
        self,
        cx: &mut OpContext<E>,
        slot: RemoteAddr,
        old: Pointer,
        new: Pointer,
    ) -> Result<Publish, FabricError> {
        match self {
            Self::Optimistic | Self::Farside => optimistic::publish(cx, slot, old, new).await,
        }
    }

    /// Replaces `old` by `new` in `slot`, or whatever else the slot holds for the same key by then, if the scheme
    /// can.
    ///
    /// # Errors
    /// As [`Scheme::publish`].
    #[inline]
    pub async fn overwrite<E: Endpoint>(
        self,
        cx: &mut OpContext<E>,
        slot: RemoteAddr,
        old: Pointer,
        new: Pointer,
    ) -> Result<Publish, FabricError> {
        match self {
            Self::Optimistic => optimistic::publish(cx, slot, old, new).await,
            Self::Farside => farside::overwrite(cx, slot, old, new).await,
        }
    }
}
