//! Indexes in far memory: they find the slot of a key, and the block that it points to.
//!
//! On the path: a session gives a key; the index reads its slot, follows the pointer, and has the synchronisation
//! scheme publish a new one. An index is one file or folder and one line of [`IndexKind::ALL`].

#![forbid(unsafe_code)]

mod blocks;
pub mod check;
pub mod chime;
mod descriptor;
pub mod error;
pub mod evacuate;
mod index;
pub mod item;
mod local;
pub mod marlin;
pub mod operation;
pub mod ordered;
pub mod pointer_array;
pub mod race;
pub mod rolex;
pub mod sherman;
pub mod smart;
pub mod survey;
#[cfg(test)]
mod testing;
pub mod transaction;
pub mod tree;

pub use error::IndexError;
pub use evacuate::Evacuated;
pub use farside_value::format::Tag;
pub use index::{Index, IndexKind, IndexOptions, SearchMany, walk};
pub use item::{GONE_MS, Item, KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use local::Shared;
pub use operation::{Change, Decide, Decision, Found, KEYS_AT_ONCE, Likely, Sampled, Searched, Wanted};
pub use ordered::{Cursors, LeafOptions, Ordered};
pub use pointer_array::{Addressing, PointerArray};
pub use race::{Approach, Approaches, Race, RaceOptions};
pub use smart::Smart;
pub use survey::{Survey, Surveyed, noted_pointer};
pub use transaction::{Commit, CommitSpace, Located, Replacement, Spot};
pub use tree::{Budget, Shape, Tree, TreeKind, TreeOptions};
