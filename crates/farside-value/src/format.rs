//! What the bytes of an item say about its type, and the head of a packed value.
//!
//! ```text
//! value     0       flags: 1 reported as large, 2 fields expire, 4 somebody waits, 8 all are integers
//!           1..     how many elements, a varint
//!           then    8 bytes: the earliest expiry of a field, if fields expire
//!           then    elements
//! ```
//!
//! Invariants: a packed value has an element. Fields expire if and only if one of them does, and only in hashes; *all are
//! integers* is a flag of sets.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::string::{self, Text};
use crate::{Edit, ValueError, varint};

/// The type of an item's value: four bits of the item's header.
///
/// A *paged* value has the tag of its packed form plus 8.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Tag {
    /// Bytes.
    String = 0,
    /// A list, packed.
    List = 1,
    /// A set, packed.
    Set = 2,
    /// A sorted set, packed.
    SortedSet = 3,
    /// A hash, packed.
    Hash = 4,
    /// A stream, packed.
    Stream = 5,
    /// No value: somebody waits for the key.
    Awaited = 6,
    /// The root of a list.
    PagedList = 9,
    /// The root of a set.
    PagedSet = 10,
    /// The root of a sorted set.
    PagedSortedSet = 11,
    /// The root of a hash.
    PagedHash = 12,
    /// The root of a stream.
    PagedStream = 13,
}

impl Tag {
    /// The tag with these four bits; `None` if they are reserved, or more than four.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Option<Self> {
        Some(match bits {
            0 => Self::String,
            1 => Self::List,
            2 => Self::Set,
            3 => Self::SortedSet,
            4 => Self::Hash,
            5 => Self::Stream,
            6 => Self::Awaited,
            9 => Self::PagedList,
            10 => Self::PagedSet,
            11 => Self::PagedSortedSet,
            12 => Self::PagedHash,
            13 => Self::PagedStream,
            _ => return None,
        })
    }

    /// Its four bits.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self as u8
    }

    /// Whether the value is a root, with pages below it.
    #[must_use]
    pub const fn is_paged(self) -> bool {
        self.bits() & 8 != 0
    }

    /// The tag of the packed form of this type.
    #[must_use]
    pub const fn packed(self) -> Self {
        match self {
            Self::PagedList => Self::List,
            Self::PagedSet => Self::Set,
            Self::PagedSortedSet => Self::SortedSet,
            Self::PagedHash => Self::Hash,
            Self::PagedStream => Self::Stream,
            _ => self,
        }
    }

    /// What TYPE answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.packed() {
            Self::String => "string",
            Self::List => "list",
            Self::Set => "set",
            Self::SortedSet => "zset",
            Self::Hash => "hash",
            Self::Stream => "stream",
            _ => "none",
        }
    }
}

/// Reported as large, once it has been large by Redis's limits.
pub(crate) const LARGE: u8 = 1;
/// Fields expire.
pub(crate) const EXPIRES: u8 = 2;
/// Somebody waits for the key.
const AWAITED: u8 = 4;
/// All elements of the set are integers, in ascending order.
pub(crate) const INTEGERS: u8 = 8;

/// Flags that are the key's or stay for ever, whatever happens to the elements.
pub(crate) const LASTING: u8 = LARGE | AWAITED;

/// Whether somebody waits for the key of this value.
#[must_use]
pub fn is_awaited(value: &[u8]) -> bool {
    value.first().is_some_and(|flags| flags & AWAITED != 0)
}

/// Notes whether somebody waits for the key of this value.
///
/// # Panics
///
/// There are no bytes.
pub fn set_awaited(value: &mut [u8], is_awaited: bool) {
    value[0] = value[0] & !AWAITED | if is_awaited { AWAITED } else { 0 };
}

/// How many elements a packed value has; an absent one has none. Fields that have expired count until they are removed.
///
/// # Errors
///
/// [`ValueError::Damaged`].
pub fn count(value: Option<&[u8]>) -> Result<u32, ValueError> {
    Ok(Packed::of(value)?.count)
}

/// The place of an element among those of its value that SSCAN, HSCAN and ZSCAN go by. The seed is the pool's.
#[must_use]
pub fn element_hash(seed: u64, element: &[u8]) -> u64 {
    xxh3_64_with_seed(element, seed)
}

/// The most that the head of a packed value takes.
const HEAD_BYTES_MAX: usize = 1 + varint::BYTES_MAX + 8;

/// A packed value whose head has been read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed<'a> {
    pub(crate) flags: u8,
    pub(crate) count: u32,
    /// The earliest expiry of a field, in milliseconds since 1970; 0: none.
    pub(crate) earliest: u64,
    /// The elements.
    pub(crate) body: &'a [u8],
}

impl<'a> Packed<'a> {
    /// Reads a head; an absent value has no elements.
    pub(crate) fn of(value: Option<&'a [u8]>) -> Result<Self, ValueError> {
        let Some(value) = value else {
            return Ok(Self {
                flags: INTEGERS,
                count: 0,
                earliest: 0,
                body: &[],
            });
        };
        let flags = *value.first().ok_or(ValueError::Damaged("a value without flags"))?;
        if flags >= 2 * INTEGERS {
            return Err(ValueError::Damaged("unknown flags"));
        }
        let mut at = 1;
        let count = varint::read(value, &mut at)?;
        let mut earliest = 0;
        if flags & EXPIRES != 0 {
            earliest = read_word(value, &mut at)?;
            if earliest == 0 {
                return Err(ValueError::Damaged("fields expire, but never"));
            }
        }
        let body = &value[at..];
        // An element takes a byte at least. So nobody reserves memory for more of them than there can be.
        if count == 0 || count as usize > body.len() {
            return Err(ValueError::Damaged("the count is not that of the elements"));
        }
        Ok(Self {
            flags,
            count,
            earliest,
            body,
        })
    }

    /// An iterator over elements that are strings.
    pub(crate) fn texts(&self) -> Texts<'a> {
        Texts {
            body: self.body,
            at: 0,
            left: self.count,
        }
    }

    /// Where elements are written that take the place of these.
    pub(crate) fn writer(&self, flags: u8, more_bytes: usize) -> Writer {
        Writer::new(self.flags & LASTING | flags, self.body.len() + more_bytes)
    }
}

/// Reads 8 bytes at `*at`.
pub(crate) fn read_word(bytes: &[u8], at: &mut usize) -> Result<u64, ValueError> {
    let word = string::take(bytes, at, 8)?;
    Ok(u64::from_le_bytes(word.try_into().expect("eight bytes")))
}

/// What is behind the last element.
pub(crate) fn check_end(body: &[u8], at: usize) -> Result<(), ValueError> {
    if at == body.len() {
        Ok(())
    } else {
        Err(ValueError::Damaged("bytes behind the last element"))
    }
}

/// Elements that are strings, of a set or list, from the first on.
#[derive(Clone, Debug)]
pub(crate) struct Texts<'a> {
    body: &'a [u8],
    /// Where the next one begins.
    pub(crate) at: usize,
    left: u32,
}

impl<'a> Texts<'a> {
    /// The next one; `None` behind the last.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<Text<'a>>, ValueError> {
        if self.left == 0 {
            check_end(self.body, self.at)?;
            return Ok(None);
        }
        self.left -= 1;
        string::read(self.body, &mut self.at).map(Some)
    }

    /// Passes over the next `count`, of which there are so many.
    pub(crate) fn skip(&mut self, count: u32) -> Result<(), ValueError> {
        for _ in 0..count {
            self.next()?;
        }
        Ok(())
    }
}

/// A packed value that is being written: elements first, the head at the end.
#[derive(Debug)]
pub(crate) struct Writer {
    /// Room for a head, then elements.
    out: Vec<u8>,
    flags: u8,
    count: usize,
}

impl Writer {
    pub(crate) fn new(flags: u8, body_bytes: usize) -> Self {
        let mut out = Vec::with_capacity(HEAD_BYTES_MAX + body_bytes);
        out.resize(HEAD_BYTES_MAX, 0);
        Self { out, flags, count: 0 }
    }

    /// Where the bytes of `count` elements are appended.
    pub(crate) fn elements(&mut self, count: usize) -> &mut Vec<u8> {
        self.count += count;
        &mut self.out
    }

    pub(crate) fn text(&mut self, text: Text<'_>) {
        string::put(text, self.elements(1));
    }

    /// Appends elements as they stand in another value.
    pub(crate) fn copy(&mut self, elements: &[u8], count: usize) {
        self.elements(count).extend_from_slice(elements);
    }

    /// The value; the key is deleted if it has no elements. `earliest` is the earliest expiry of a field, or 0.
    pub(crate) fn finish(mut self, earliest: u64) -> Edit {
        if self.count == 0 {
            return Edit::Delete;
        }
        let count = u32::try_from(self.count).expect("a value of at most 16 MiB has fewer elements");
        let mut head = Vec::with_capacity(HEAD_BYTES_MAX);
        head.push(self.flags);
        varint::put(count, &mut head);
        if self.flags & EXPIRES != 0 {
            head.extend_from_slice(&earliest.to_le_bytes());
        }
        let start = HEAD_BYTES_MAX - head.len();
        self.out[start..HEAD_BYTES_MAX].copy_from_slice(&head);
        self.out.drain(..start);
        Edit::Put(self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_their_bits() {
        for bits in 0..=u8::MAX {
            let tag = Tag::from_bits(bits);
            assert_eq!(tag.is_none(), matches!(bits, 7 | 8 | 14..));
            if let Some(tag) = tag {
                assert_eq!(tag.bits(), bits);
                assert_eq!(tag.packed().bits(), if tag.is_paged() { bits - 8 } else { bits });
            }
        }
        assert_eq!(Tag::PagedSortedSet.name(), "zset");
        assert_eq!(Tag::Awaited.name(), "none");
    }

    #[test]
    fn a_head_that_nobody_writes_is_damage() {
        for value in [
            &[][..],
            &[0],
            &[0, 0],
            &[0, 0, 0],
            &[0, 2, 0],
            &[16, 1, 0],
            &[2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[2, 1, 1, 0],
            &[0, 0xff, 0xff, 0xff, 0xff, 0xf, 0],
        ] {
            assert!(
                matches!(Packed::of(Some(value)), Err(ValueError::Damaged(_))),
                "{value:?}"
            );
        }
        assert_eq!(count(Some(&[0, 1, 0])), Ok(1));
        assert_eq!(count(None), Ok(0));
    }

    #[test]
    fn somebody_waits_or_not() {
        let mut value = vec![LARGE, 1, 0];
        assert!(!is_awaited(&value));
        set_awaited(&mut value, true);
        assert!(is_awaited(&value) && value[0] == LARGE | AWAITED);
        set_awaited(&mut value, false);
        assert_eq!(value, [LARGE, 1, 0]);
    }

    #[test]
    fn an_element_has_the_hash_of_its_bytes() {
        // Stored cursors rely on it: the value must never change.
        assert_eq!(element_hash(0, b""), 0x2d06_8005_38d3_94c2);
        assert_ne!(element_hash(1, b"a"), element_hash(2, b"a"));
    }
}
