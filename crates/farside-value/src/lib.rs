//! Values of Redis's types as bytes: hashes, sets, sorted sets and lists, and what a command does to one of them.
//!
//! On the path: what a command of the gateway, or a handle of a program, does to the bytes that it has found. Nothing here
//! knows of memory, an index or RESP. `docs/types.md` has the design; its section 3 is the format.
//!
//! A *packed value* has all its elements in one piece ([`packed`]). A function of it takes the old bytes, or `None` for a
//! key that is absent, and returns what becomes of them, an [`Edit`], beside its answer. It is pure: whoever publishes the
//! edit may lose against another client and call it again, with other bytes.
//!
//! - Bytes come from far memory, so any bytes may come: what no writer has written is [`ValueError::Damaged`], never a
//!   panic. What is read is checked as far as it is read; `check` of a type checks everything.
//! - Chance is an argument, a function that draws below a bound; so is the time, in milliseconds since 1970.
//! - Elements that are read are borrowed from the old bytes.

#![forbid(unsafe_code)]

pub mod decimal;
pub mod encoding;
mod error;
pub mod format;
pub mod integer;
mod needles;
pub mod packed;
mod ranks;
mod score;
mod string;
mod varint;

pub use error::ValueError;
pub use ranks::Draw;
pub use score::{parse_score, write_score};
pub use string::{Digits, Text};

/// What becomes of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Edit {
    /// It stays as it is, or the key stays absent.
    Keep,
    /// These bytes take its place.
    Put(Vec<u8>),
    /// Its last element is gone, and so is the key. (If somebody waits for the key, an item without a value remains: see
    /// [`format::is_awaited`].)
    Delete,
}

/// An edit and the answer of the operation.
pub type Edited<T> = Result<(Edit, T), ValueError>;
