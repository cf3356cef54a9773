//! The blocks that slots point to: an item, or a bucket of items whose keys share a slot. (While a transaction changes several keys
//! at once, a descriptor: see `descriptor.rs`.)
//!
//! ```text
//! item     byte 0    kind ITEM
//!          1..4      key length, 20 bits, and the type of the value, 4 bits
//!          4..8      value length
//!          8..16     expiry: milliseconds since the Unix epoch, 0 = never
//!          16..      key, then value: a long one, of LONG_VALUE_BYTES and more, from the next whole word on
//!
//! bucket   byte 0    kind BUCKET
//!          4..8      number of entries
//!          16..      entries of 16 bytes: hash of the key, data pointer of the item
//! ```
//!
//! Both are written before they are linked and never changed afterwards, so a reader cannot see
//! half of one. (Where a radix tree writes values in place, a word of an item changes, and the expiry is a lock.)

use farside_sync::Pointer;
use farside_value::format::Tag;

/// The longest key in bytes.
pub const KEY_BYTES_MAX: usize = 64 << 10;
/// The longest value in bytes.
pub const VALUE_BYTES_MAX: usize = 16 << 20;

/// The expiry of an item that nobody has seen or sees: a transaction holds a place for a key that is to come, or has removed it.
/// Whoever stores a value for so short a time stores it for a millisecond more.
pub const GONE_MS: u64 = 1;

const KIND_ITEM: u8 = 0x49;
const KIND_BUCKET: u8 = 0x42;
/// See [`crate::descriptor`].
pub(crate) const KIND_DESCRIPTOR: u8 = 0x44;
/// Likewise.
pub(crate) const KIND_RECORD: u8 = 0x54;
/// Bytes of the header of both kinds.
pub const HEADER_BYTES: usize = 16;
const ENTRY_BYTES: usize = 16;
/// Where in the first half word the length of a key ends, and the type of the value begins.
const TAG_SHIFT: u32 = 28;
/// From this length on a value begins at a whole word, whatever its key is: it is copied from and to memory of a program in
/// whole words then, and not through a buffer when it is written.
pub const LONG_VALUE_BYTES: usize = 1024;
/// How many entries a bucket may have; far beyond what a hash gives, it bounds damaged ones.
pub const BUCKET_ENTRIES_MAX: usize = 1 << 16;

/// An item as it stands in a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Item<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// When the item expires, in milliseconds since the Unix epoch; 0 means never.
    pub expiry_ms: u64,
    /// What the value is.
    pub tag: Tag,
}

impl<'a> Item<'a> {
    /// An item whose value is a string.
    #[inline]
    #[must_use]
    pub fn of(key: &'a [u8], value: &'a [u8], expiry_ms: u64) -> Self {
        Self {
            key,
            value,
            expiry_ms,
            tag: Tag::String,
        }
    }

    /// The same item with a value of this type.
    #[inline]
    #[must_use]
    pub fn tagged(self, tag: Tag) -> Self {
        Self { tag, ..self }
    }

    /// Bytes that the item takes in its block.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        item_bytes(self.key.len(), self.value.len()) as u64
    }

    /// Writes the item to the start of `target`.
    ///
    /// # Panics
    /// If it does not fit, or key or value are longer than allowed.
    pub fn encode(&self, target: &mut [u8]) {
        let key_end = self.encode_head(target);
        let value_at = self.fill_up(key_end, target);
        target[value_at..value_at + self.value.len()].copy_from_slice(self.value);
    }

    /// Writes header and key to the start of `target`; returns where they end.
    fn encode_head(&self, target: &mut [u8]) -> usize {
        assert!(
            self.key.len() <= KEY_BYTES_MAX && self.value.len() <= VALUE_BYTES_MAX,
            "checked by the index"
        );
        let lengths = u32::from(KIND_ITEM) | (self.key.len() as u32) << 8 | u32::from(self.tag.bits()) << TAG_SHIFT;
        target[..4].copy_from_slice(&lengths.to_le_bytes());
        target[4..8].copy_from_slice(&(self.value.len() as u32).to_le_bytes());
        target[8..16].copy_from_slice(&self.expiry_ms.to_le_bytes());
        let key_end = HEADER_BYTES + self.key.len();
        target[HEADER_BYTES..key_end].copy_from_slice(self.key);
        key_end
    }

    /// Fills up what is between the key and the value: far memory gets nothing that happened to be there. Returns where the value
    /// comes.
    #[inline]
    fn fill_up(&self, key_end: usize, target: &mut [u8]) -> usize {
        if self.value.len() < LONG_VALUE_BYTES {
            return key_end;
        }
        let value_at = value_at(self.key.len(), self.value.len());
        target[key_end..value_at].fill(0);
        value_at
    }

    /// An item with a long value in two parts, as they stand one behind the other: the first, of whole words, was written to the
    /// start of `target`; the second is the value, which is not copied.
    ///
    /// # Panics
    /// If the first does not fit, or the value is not long.
    pub(crate) fn encode_apart<'t>(&self, target: &'t mut [u8]) -> [&'t [u8]; 2]
    where
        'a: 't,
    {
        assert!(self.value.len() >= LONG_VALUE_BYTES, "a short value begins anywhere");
        let key_end = self.encode_head(target);
        let value_at = self.fill_up(key_end, target);
        [&target[..value_at], self.value]
    }
}

/// One item of a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Hash of the item's key.
    pub hash: u64,
    /// Where the item is.
    pub pointer: Pointer,
}

/// The header of a block: what it is, and how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Header {
    /// An item.
    Item {
        /// Length of the key.
        key_bytes: usize,
        /// Length of the value.
        value_bytes: usize,
        /// See [`Item::expiry_ms`].
        expiry_ms: u64,
        /// See [`Item::tag`].
        tag: Tag,
    },
    /// A bucket.
    Bucket {
        /// How many entries it has.
        entries: usize,
    },
    /// A descriptor.
    Descriptor,
}

impl Header {
    /// Reads the first [`HEADER_BYTES`] of a block; `None` if they are neither an item's, with a type that there is, nor a
    /// bucket's nor a descriptor's.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (words, _) = bytes.first_chunk::<HEADER_BYTES>()?.as_chunks::<8>();
        Self::from_words([words[0], words[1]].map(u64::from_ne_bytes))
    }

    /// The same of the words of a block.
    #[inline]
    #[must_use]
    pub fn from_words(words: [u64; HEADER_BYTES / 8]) -> Option<Self> {
        let [lengths, expiry_ms] = words.map(u64::from_le);
        let (first, count) = (lengths as u32, (lengths >> 32) as usize);
        match first as u8 {
            KIND_ITEM => {
                let key_bytes = (first >> 8) as usize;
                // Only a string has no bits above those of a key's length: nothing need be masked.
                let fits = key_bytes <= KEY_BYTES_MAX && count <= VALUE_BYTES_MAX;
                if !fits {
                    return Self::typed(first, count, expiry_ms);
                }
                Some(Self::Item {
                    key_bytes,
                    value_bytes: count,
                    expiry_ms,
                    tag: Tag::String,
                })
            }
            KIND_BUCKET => (count <= BUCKET_ENTRIES_MAX).then_some(Self::Bucket { entries: count }),
            KIND_DESCRIPTOR => Some(Self::Descriptor),
            _ => None,
        }
    }

    /// The same for an item that may be no string, or longer than any.
    #[cold]
    fn typed(first: u32, count: usize, expiry_ms: u64) -> Option<Self> {
        let key_bytes = (first << (32 - TAG_SHIFT) >> (8 + 32 - TAG_SHIFT)) as usize;
        let tag = Tag::from_bits((first >> TAG_SHIFT) as u8)?;
        let fits = key_bytes <= KEY_BYTES_MAX && count <= VALUE_BYTES_MAX;
        fits.then_some(Self::Item {
            key_bytes,
            value_bytes: count,
            expiry_ms,
            tag,
        })
    }

    /// Bytes that the block has in use.
    #[inline(always)]
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        match *self {
            Self::Item {
                key_bytes, value_bytes, ..
            } => item_bytes(key_bytes, value_bytes) as u64,
            Self::Bucket { entries } => bucket_bytes(entries),
            Self::Descriptor => crate::descriptor::BLOCK_BYTES,
        }
    }

    /// The item whose header this is, given all bytes of its block.
    ///
    /// # Panics
    /// If this is another block's header, or `bytes` is too short.
    #[must_use]
    pub fn item<'a>(&self, bytes: &'a [u8]) -> Item<'a> {
        let Self::Item {
            key_bytes,
            value_bytes,
            expiry_ms,
            tag,
        } = *self
        else {
            panic!("asked for an item where something else was found");
        };
        let value_at = value_at(key_bytes, value_bytes);
        Item {
            key: &bytes[HEADER_BYTES..HEADER_BYTES + key_bytes],
            value: &bytes[value_at..value_at + value_bytes],
            expiry_ms,
            tag,
        }
    }
}

/// Whether two keys of one length are the same. A key that was found was copied word by word a moment ago: loads that are no wider
/// take it from the stores, where the wide ones of a library would wait for these to come to memory.
#[inline]
pub(crate) fn is_same_key(found: &[u8], key: &[u8]) -> bool {
    let (words, rest) = found.as_chunks::<8>();
    let (key_words, key_rest) = key.as_chunks::<8>();
    let mut both = words.iter().zip(key_words);
    both.all(|(&word, &key_word)| u64::from_ne_bytes(word) == u64::from_ne_bytes(key_word))
        && rest.iter().zip(key_rest).all(|(byte, key_byte)| byte == key_byte)
}

/// Where in its block the value of an item begins, given the lengths of both.
#[inline(always)]
#[must_use]
pub const fn value_at(key_bytes: usize, value_bytes: usize) -> usize {
    let within_word = if value_bytes < LONG_VALUE_BYTES { 0 } else { 7 };
    (HEADER_BYTES + key_bytes + within_word) & !within_word
}

/// Bytes that an item takes in its block, given the lengths of its key and its value.
#[inline(always)]
#[must_use]
pub const fn item_bytes(key_bytes: usize, value_bytes: usize) -> usize {
    value_at(key_bytes, value_bytes) + value_bytes
}

/// Bytes of a bucket with this many entries.
#[must_use]
pub fn bucket_bytes(entries: usize) -> u64 {
    (HEADER_BYTES + entries * ENTRY_BYTES) as u64
}

/// Writes a bucket to the start of `target`.
///
/// # Panics
/// If it does not fit.
pub fn encode_bucket(entries: &[Entry], target: &mut [u8]) {
    target[..HEADER_BYTES].fill(0);
    target[0] = KIND_BUCKET;
    target[4..8].copy_from_slice(&(entries.len() as u32).to_le_bytes());
    for (entry, target) in entries.iter().zip(target[HEADER_BYTES..].chunks_exact_mut(ENTRY_BYTES)) {
        target[..8].copy_from_slice(&entry.hash.to_le_bytes());
        target[8..].copy_from_slice(&entry.pointer.to_word().to_le_bytes());
    }
}

/// The entries of a bucket, given all bytes of its block.
pub fn decode_bucket(bytes: &[u8]) -> impl Iterator<Item = Entry> + '_ {
    let (entries, _) = bytes.get(HEADER_BYTES..).unwrap_or_default().as_chunks::<ENTRY_BYTES>();
    entries.iter().map(|entry| {
        let (hash, pointer) = entry.split_at(8);
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("half of an entry is a word"));
        Entry {
            hash: word(hash),
            pointer: Pointer::from_word(word(pointer)),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// The first bytes of a block of this kind, with these lengths.
    fn header(kind: u8, key_bytes: usize, count: usize) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&(u32::from(kind) | (key_bytes as u32) << 8).to_le_bytes());
        bytes[4..8].copy_from_slice(&(count as u32).to_le_bytes());
        bytes
    }

    #[test]
    fn the_longest_is_known_and_what_is_longer_is_not() {
        let is_known = |kind, key_bytes, count| Header::decode(&header(kind, key_bytes, count)).is_some();
        assert!(is_known(KIND_ITEM, KEY_BYTES_MAX, VALUE_BYTES_MAX));
        assert!(!is_known(KIND_ITEM, KEY_BYTES_MAX + 1, 0));
        // As long as the length of a key may be, its type stays apart from it.
        assert!(!is_known(KIND_ITEM, (1 << (TAG_SHIFT - 8)) - 1, 0));
        for bits in 0..16 {
            let tag = Tag::from_bits(bits);
            let decoded = Header::decode(&header(KIND_ITEM, 7 | usize::from(bits) << (TAG_SHIFT - 8), 9));
            let expected = tag.map(|tag| Header::Item {
                key_bytes: 7,
                value_bytes: 9,
                expiry_ms: 0,
                tag,
            });
            assert_eq!(decoded, expected, "type {bits}");
        }
        assert!(!is_known(KIND_ITEM, 0, VALUE_BYTES_MAX + 1));
        assert!(is_known(KIND_BUCKET, 0, BUCKET_ENTRIES_MAX));
        assert!(!is_known(KIND_BUCKET, 0, BUCKET_ENTRIES_MAX + 1));
    }

    proptest! {
        #[test]
        fn items_survive_encoding(
            key in vec(any::<u8>(), 0..300),
            value in prop_oneof![vec(any::<u8>(), 0..300), vec(any::<u8>(), LONG_VALUE_BYTES - 2..LONG_VALUE_BYTES + 20)],
            expiry_ms: u64,
            tag in (0u8..16).prop_filter_map("reserved", Tag::from_bits),
        ) {
            let item = Item::of(&key, &value, expiry_ms).tagged(tag);
            let mut bytes = vec![0xff; item.bytes() as usize + 9];
            item.encode(&mut bytes);
            let header = Header::decode(&bytes).expect("an item");
            prop_assert_eq!(header.block_bytes(), item.bytes());
            prop_assert_eq!(header.item(&bytes), item);
            let is_long = value.len() >= LONG_VALUE_BYTES;
            let at = value_at(key.len(), value.len());
            prop_assert_eq!(&bytes[at..at + value.len()], &value[..]);
            prop_assert!(at.is_multiple_of(8) || !is_long);
            prop_assert_eq!(&bytes[HEADER_BYTES + key.len()..at], &[0; 7][..at - HEADER_BYTES - key.len()]);
            prop_assert!(is_long || at == HEADER_BYTES + key.len());
            if is_long {
                let mut target = vec![0xff; HEADER_BYTES + key.len() + 8];
                let parts = item.encode_apart(&mut target);
                prop_assert!(parts[0].len().is_multiple_of(8));
                prop_assert_eq!(&parts.concat()[..], &bytes[..item.bytes() as usize]);
            }
        }

        #[test]
        fn buckets_survive_encoding(words in vec(any::<(u64, u64)>(), 0..40)) {
            let entries: Vec<Entry> =
                words.iter().map(|&(hash, word)| Entry { hash, pointer: Pointer::from_word(word) }).collect();
            let mut bytes = vec![0xff; bucket_bytes(entries.len()) as usize];
            encode_bucket(&entries, &mut bytes);
            prop_assert_eq!(Header::decode(&bytes), Some(Header::Bucket { entries: entries.len() }));
            prop_assert_eq!(decode_bucket(&bytes).collect::<Vec<_>>(), entries);
        }

        #[test]
        fn damaged_headers_never_exceed_the_limits(bytes: [u8; HEADER_BYTES]) {
            if let Some(header) = Header::decode(&bytes) {
                let most = item_bytes(KEY_BYTES_MAX, VALUE_BYTES_MAX);
                prop_assert!(header.block_bytes() as usize <= most);
            }
        }
    }
}
