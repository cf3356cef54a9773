//! What operations of an index are given and what they answer; the same for every index.

use std::borrow::Cow;

use arrayvec::ArrayVec;
use farside_fabric::Slice;
use farside_fabric::mutant::is_planted;
use farside_value::format::Tag;

use crate::item::{Header, Item, value_at};

/// How many keys are looked for together.
pub const KEYS_AT_ONCE: usize = 16;

/// An item that was found; its bytes are in the context's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// The value within the buffer.
    pub value: Slice,
    /// See [`Item::expiry_ms`].
    pub expiry_ms: u64,
    /// See [`Item::tag`].
    pub tag: Tag,
}

impl Found {
    /// The value of the item that stands at `at` in the buffer.
    ///
    /// # Panics
    /// If it is the header of a bucket.
    #[inline]
    pub(crate) fn in_block(header: Header, at: u32) -> Self {
        let Header::Item {
            key_bytes,
            value_bytes,
            expiry_ms,
            tag,
        } = header
        else {
            panic!("asked for a value where a bucket was found");
        };
        Self {
            value: Slice::new(at + value_at(key_bytes, value_bytes) as u32, value_bytes as u32),
            expiry_ms,
            tag,
        }
    }

    /// The item that stands at `at` in the buffer, if its key is the one that is looked for.
    #[inline]
    pub(crate) fn in_item(header: Header, buffer: &[u8], at: usize, key: &[u8]) -> Option<Self> {
        let item = header.item(&buffer[at..]);
        let value_at = at + value_at(item.key.len(), item.value.len());
        let is_same = item.key == key || is_planted("index: a key not compared");
        is_same.then_some(Self {
            value: Slice::new(value_at as u32, item.value.len() as u32),
            expiry_ms: item.expiry_ms,
            tag: item.tag,
        })
    }
}

/// What a scan reads of the items that it visits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// Their keys and when they expire. A long value is not read, and what is shown as a value says nothing.
    Keys,
    /// All of them.
    Items,
}

/// What came of one key among many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Searched {
    /// It is there; its value is in the context's buffer.
    Found(Found),
    /// It is not there.
    Absent,
    /// It takes a SEARCH of its own: a long item, keys that are hard to tell apart, or damage, which
    /// that SEARCH will report.
    Apart,
}

impl Searched {
    /// What is said of a key that cannot be told for absent, unless a planted bug says that it is.
    pub(crate) fn apart_unless(is_absent: bool) -> Self {
        if is_absent { Self::Absent } else { Self::Apart }
    }
}

/// What came of each key of a SEARCH of many.
pub type SearchedKeys = ArrayVec<Searched, KEYS_AT_ONCE>;

/// An item as a sample sees it: enough to judge it, and to know it again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sampled<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// Bytes that it takes in its block.
    pub bytes: u64,
    /// See [`Item::expiry_ms`].
    pub expiry_ms: u64,
    /// Tells it apart from what is stored under the key later.
    pub mark: u64,
}

/// Says what to do with a key, given what is stored under it. It is asked again where another client was quicker.
pub type Decide<'d, 'v> = &'d mut dyn FnMut(Option<Item<'_>>) -> Decision<'v>;

/// What to do with a key, given what is stored under it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision<'v> {
    /// Leave it as it is.
    Keep,
    /// Store this value.
    Put {
        /// The value.
        value: Cow<'v, [u8]>,
        /// See [`Item::expiry_ms`].
        expiry_ms: u64,
        /// See [`Item::tag`].
        tag: Tag,
        /// Whether it is to be stored whatever other value the key has by then.
        regardless: bool,
    },
    /// Remove it.
    Delete {
        /// Whether it is to be removed whatever other value it has by then.
        regardless: bool,
    },
}

/// What a change will probably store. An index may write it while it still looks for the key, which
/// saves a round trip if the decision turns out to be that. It is a string.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Likely<'v> {
    /// The value.
    pub value: &'v [u8],
    /// See [`Item::expiry_ms`].
    pub expiry_ms: u64,
    /// Whether it will be stored whatever value the key has by then, if it has one. Such changes of the clients of a compute
    /// node may be combined: then nobody asks what the change decides.
    pub regardless: bool,
}

impl<'v> Likely<'v> {
    /// To be stored for good, whatever is there.
    #[inline]
    #[must_use]
    pub fn for_good(value: &'v [u8]) -> Self {
        Self {
            value,
            expiry_ms: 0,
            regardless: true,
        }
    }

    /// The decision to store it.
    #[inline]
    #[must_use]
    pub fn decision(&self) -> Decision<'v> {
        Decision::Put {
            value: Cow::Borrowed(self.value),
            expiry_ms: self.expiry_ms,
            tag: Tag::String,
            regardless: self.regardless,
        }
    }

    /// Whether a decision is to store it.
    pub(crate) fn is_meant_by(&self, decision: &Decision<'_>) -> bool {
        match decision {
            Decision::Put {
                value, expiry_ms, tag, ..
            } => *expiry_ms == self.expiry_ms && **value == *self.value && *tag == Tag::String,
            Decision::Keep | Decision::Delete { .. } => false,
        }
    }
}

/// What a change did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Nothing, as decided; or there was nothing to delete.
    Kept,
    /// A new key was stored.
    Inserted,
    /// The key had a value, and has another one now.
    Updated,
    /// The key is gone.
    Deleted,
}
