//! Indexes in far memory: they find the slot of a key, and the block that it points to.
//!
//! On the path: a session names a key; the index reads its slot, follows the pointer, and lets the
//! synchronisation scheme publish a new one. An index is one file or folder and one line of
//! [`INDEXES`].

#![forbid(unsafe_code)]

pub mod check;
pub mod error;
pub mod item;
pub mod pointer_array;

pub use error::IndexError;
pub use item::{Item, KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use pointer_array::{Addressing, Change, Decision, Found, PointerArray};

/// Every index with its name on the command line and one line about it.
pub const INDEXES: [(&str, &str); 1] = [(
    "pointer-array",
    "a fixed array of data pointers, addressed by the hash of the key or by the key itself",
)];
