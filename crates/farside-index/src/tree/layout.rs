//! Where things are in the memory of a tree. What its words mean is in `words`.
//!
//! ```text
//! root area (a root of node 0)
//!   word 0     root: address of the root node, and its level
//!   word 1     format: kind of leaf, span, neighbourhood; 0 until the tree is made
//!   word 2     version: how often a node was taken out of the tree; watched by every client
//!   word 3     format that the tree is being made with
//!   word 4     how many layers were made, in a tree of pointers
//!
//! leaf (a block)
//!   word 0     lock; while it is free, which entries are vacant
//!   word 1     intent: what a node write is about to do, 0 between node writes
//!   then       the intent's split key
//!   then       fences: the smallest and the largest key that may be here
//!   then       check of fences, sibling and version
//!   then       groups of entries, each behind a replica of the sibling word
//!   then       lock entries, if the tree has them: one for each entry
//!
//! sibling word: address of the next leaf, node version, whether the leaf was taken out of the tree
//! entry        | meta | key | value |
//!
//! internal node (a block)
//!   word 0     lock
//!   word 1     intent: 1 while the second image is good and the first may not be; what a merge is about to do
//!   16..       image
//!   then       the second image
//!
//! image        | check | level, count, whether it was taken out | low | high | sibling | next child | (key, child)* |
//! ```
//!
//! A key takes one word, or two, the higher one first, in a tree of data pointers ([`Shape::of_pointers`]). A value takes one
//! word, but for measurements ([`Shape::repeating`]). An entry is aligned words. The published leaf (CHIME, figure 10) packs
//! it into 19 bytes and puts versions into each cache line; memory that tears between words needs either a version in each
//! word or a check over them, and words that are changed one by one have to be words.

use farside_fabric::Slice;
use farside_sync::LOCK_BYTES;
use xxhash_rust::xxh3::xxh3_64;

use crate::chime::hopscotch;

/// The root area of a tree, on node 0.
pub(crate) const ROOT: u8 = 4;

/// Offsets within the root area.
pub(super) const ROOT_AT: u64 = 0;
pub(super) const FORMAT_AT: u64 = 8;
pub(super) const VERSION_AT: u64 = 16;
pub(super) const SHAPE_AT: u64 = 24;
pub(super) const LAYERS_AT: u64 = 32;
/// Bytes of the root area that are used.
pub(super) const ROOT_BYTES: u64 = 64;

/// Offsets within every node.
pub(super) const LOCK_AT: u64 = 0;
pub(super) const INTENT_AT: u64 = 8;

/// Where a leaf keeps the split key of an intent.
pub(super) const SPLIT_KEY_AT: u64 = 16;

/// Bytes of what is known of an entry, of a replica, of the check of the fences.
const META_BYTES: u64 = 8;
const SIBLING_BYTES: u64 = 8;
const FENCE_CHECK_BYTES: u64 = 8;

/// Bytes of both fences and their check, for keys of so many bytes.
const fn fence_bytes(key_bytes: u64) -> u64 {
    2 * key_bytes + FENCE_CHECK_BYTES
}

/// Bytes of a leaf before its groups, likewise.
const fn header_bytes(key_bytes: u64) -> u64 {
    SPLIT_KEY_AT + key_bytes + fence_bytes(key_bytes)
}

/// A key of a tree. Trees of values have keys of 64 bits only.
pub type Key = u128;

/// How many keys an internal node holds (CHIME, section 5.1).
pub const INNER_SPAN: usize = 64;
/// The most entries that a leaf may have.
pub const LEAF_SPAN_MAX: usize = 512;
/// The most words that a value may have.
pub const VALUE_WORDS_MAX: usize = 512;

/// How many bits say which entries are vacant.
const VACANCY_BITS: usize = 63;

/// How a reader can tell that a leaf is the one that its parent means (CHIME, section 4.2.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Validation {
    /// By the sibling in each replica; fences are in the header, once. That is what this tree does.
    Sibling,
    /// By fences in each replica, with their check; the header needs none.
    Fences,
}

/// The kind of leaf, and its size: where in a leaf its parts are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    circle: hopscotch::Leaf,
    is_hashed: bool,
    has_pointers: bool,
    has_locks: bool,
    is_learned: bool,
    has_claims: bool,
    /// Words of a value.
    value_words: u16,
}

impl Shape {
    /// CHIME's: a hopscotch hash table with neighbourhoods of so many entries, which divide the leaf; a replica of the
    /// metadata for each.
    ///
    /// # Panics
    /// If that is no leaf: see [`hopscotch::Leaf::new`] and [`LEAF_SPAN_MAX`].
    #[must_use]
    pub const fn hopscotch(span: usize, neighbourhood: usize) -> Self {
        assert!(
            span <= LEAF_SPAN_MAX && span.is_multiple_of(neighbourhood),
            "neighbourhoods divide a leaf"
        );
        Self {
            circle: hopscotch::Leaf::new(span, neighbourhood),
            is_hashed: true,
            has_pointers: false,
            has_locks: false,
            is_learned: false,
            has_claims: false,
            value_words: 1,
        }
    }

    /// Sherman's: a key may be anywhere.
    ///
    /// # Panics
    /// If there are no entries, or more than [`LEAF_SPAN_MAX`].
    #[must_use]
    pub const fn unsorted(span: usize) -> Self {
        assert!(span <= LEAF_SPAN_MAX, "a leaf has some hundred entries");
        Self {
            circle: hopscotch::Leaf::anywhere(span),
            is_hashed: false,
            has_pointers: false,
            has_locks: false,
            is_learned: false,
            has_claims: false,
            value_words: 1,
        }
    }

    /// The same for keys of 128 bits whose values are data pointers, which are replaced without the leaf's lock.
    #[must_use]
    pub const fn of_pointers(self) -> Self {
        Self {
            has_pointers: true,
            value_words: 1,
            ..self
        }
    }

    /// The same, of which entries are claimed one by one: INSERTs and DELETEs of one leaf go on at the same time, and only who
    /// writes the leaf as a whole locks it ([`crate::marlin`]). Its values are data pointers.
    ///
    /// # Panics
    /// If leaves are hashed, where a key that comes may move others.
    #[must_use]
    pub const fn with_claims(self) -> Self {
        assert!(!self.is_hashed, "keys of a hashed leaf hop");
        Self {
            has_claims: true,
            ..self.of_pointers()
        }
    }

    /// Whether entries are claimed one by one.
    #[inline(always)]
    #[must_use]
    pub const fn has_claims(self) -> bool {
        self.has_claims
    }

    /// The same with values of so many bytes: each is its word, repeated. For measurements of what longer values cost, as a tree
    /// stores words.
    ///
    /// # Panics
    /// If values are pointers, or are not of 1 to [`VALUE_WORDS_MAX`] words.
    #[must_use]
    pub const fn repeating(self, value_bytes: usize) -> Self {
        let words = value_bytes / 8;
        assert!(!self.has_pointers, "a pointer is a word");
        assert!(
            value_bytes.is_multiple_of(8) && words > 0 && words <= VALUE_WORDS_MAX,
            "a value is some words"
        );
        Self {
            value_words: words as u16,
            ..self
        }
    }

    /// Bytes of a value.
    #[inline(always)]
    #[must_use]
    pub const fn value_bytes(self) -> u64 {
        8 * self.value_words as u64
    }

    /// Whether values are data pointers, and keys have 128 bits.
    #[inline(always)]
    #[must_use]
    pub const fn has_pointers(self) -> bool {
        self.has_pointers
    }

    /// The same with a lock entry for each data pointer, for synchronisation schemes that need them.
    #[must_use]
    pub const fn with_locks(self) -> Self {
        Self {
            has_locks: self.has_pointers,
            ..self
        }
    }

    /// The same below models of what clients know of the nodes above: see [`crate::rolex`].
    #[must_use]
    pub const fn learned(self) -> Self {
        Self {
            is_learned: true,
            ..self
        }
    }

    /// Whether clients remember models.
    #[inline(always)]
    #[must_use]
    pub const fn is_learned(self) -> bool {
        self.is_learned
    }

    /// Whether data pointers have lock entries.
    #[must_use]
    pub const fn has_locks(self) -> bool {
        self.has_locks
    }

    /// Bytes of a key.
    #[inline(always)]
    #[must_use]
    pub const fn key_bytes(self) -> u64 {
        if self.has_pointers { 16 } else { 8 }
    }

    /// The words of a key.
    pub(super) fn key_words(self) -> impl Iterator<Item = u64> {
        0..self.key_bytes() / 8
    }

    /// The largest key.
    #[must_use]
    pub const fn key_max(self) -> Key {
        if self.has_pointers { Key::MAX } else { u64::MAX as Key }
    }

    /// The key after another one; `None` after the last.
    #[must_use]
    pub fn key_after(self, key: Key) -> Option<Key> {
        (key < self.key_max()).then(|| key + 1)
    }

    /// Offsets within a leaf.
    pub(super) const fn low_at(self) -> u64 {
        SPLIT_KEY_AT + self.key_bytes()
    }

    pub(super) const fn high_at(self) -> u64 {
        self.low_at() + self.key_bytes()
    }

    pub(super) const fn fence_check_at(self) -> u64 {
        self.high_at() + self.key_bytes()
    }

    #[inline(always)]
    const fn groups_at(self) -> u64 {
        header_bytes(self.key_bytes())
    }

    /// The header of a leaf, from the fences on.
    pub(super) const fn fence_slice(self) -> Slice {
        Slice::new(self.low_at() as u32, fence_bytes(self.key_bytes()) as u32)
    }

    /// The header with the first replica of the sibling word: what says which keys may be in a leaf.
    pub(super) const fn claim_slice(self) -> Slice {
        let fences = self.fence_slice();
        Slice::new(fences.at, fences.bytes + SIBLING_BYTES as u32)
    }

    /// All of a leaf that its lock protects but for the intent: from the fences on, where it stands at `at` in a buffer.
    pub(super) const fn body(self, at: u32) -> Slice {
        Slice::new(at + self.low_at() as u32, (self.leaf_bytes() - self.low_at()) as u32)
    }

    /// Bytes of an entry.
    #[inline(always)]
    pub(super) const fn entry_bytes(self) -> u64 {
        META_BYTES + self.key_bytes() + self.value_bytes()
    }

    /// Where the value of an entry is.
    #[inline(always)]
    pub(super) const fn value_at(self, entry: usize) -> u64 {
        self.entry_at(entry) + META_BYTES + self.key_bytes()
    }

    /// How the shape is written into the format word.
    pub(super) fn to_word(self) -> u64 {
        let kind = if self.is_hashed { 2 } else { 1 };
        kind | u64::from(self.has_pointers) << 2
            | u64::from(self.has_locks) << 3
            | u64::from(self.is_learned) << 4
            | u64::from(self.has_claims) << 5
            | (self.span() as u64) << 8
            | (self.circle.neighbourhood() as u64) << 32
            | (u64::from(self.value_words) - 1) << 48
    }

    pub(super) fn from_word(word: u64) -> Option<Self> {
        let (span, neighbourhood) = ((word >> 8) as usize & 0xff_ffff, (word >> 32) as usize & 0xffff);
        let value_words = (word >> 48) as usize + 1;
        let fits = (1..=LEAF_SPAN_MAX).contains(&span) && (1..=span).contains(&neighbourhood);
        let fits = fits && value_words <= if word & 4 == 0 { VALUE_WORDS_MAX } else { 1 };
        let of_values = match word & 0xc3 {
            1 if fits => Self::unsorted(span),
            2 if fits && neighbourhood <= hopscotch::NEIGHBOURHOOD_MAX && span.is_multiple_of(neighbourhood) => {
                Self::hopscotch(span, neighbourhood)
            }
            _ => return None,
        };
        let shape = match word >> 2 & 3 {
            0 => of_values.repeating(8 * value_words),
            1 => of_values.of_pointers(),
            3 => of_values.of_pointers().with_locks(),
            _ => return None,
        };
        let shape = if word & 1 << 4 == 0 { shape } else { shape.learned() };
        match word & 1 << 5 {
            0 => Some(shape),
            _ if shape.has_pointers && !shape.is_hashed => Some(shape.with_claims()),
            _ => None,
        }
    }

    /// Where keys may be.
    #[inline(always)]
    #[must_use]
    pub const fn circle(self) -> hopscotch::Leaf {
        self.circle
    }

    /// How many entries a leaf has.
    #[inline(always)]
    #[must_use]
    pub const fn span(self) -> usize {
        self.circle.span()
    }

    /// Whether a key has a home, whose bitmap says where the keys of that home are.
    #[inline(always)]
    pub(super) const fn is_hashed(self) -> bool {
        self.is_hashed
    }

    /// The hash of a key, from which its home, its check and what it adds to a digest are made.
    #[inline(always)]
    pub(super) fn key_hash(self, key: Key) -> u64 {
        if self.has_pointers {
            xxh3_64(&key.to_le_bytes())
        } else {
            xxh3_64(&(key as u64).to_le_bytes())
        }
    }

    /// The home of a key: all keys of a leaf that does not hash have the same.
    #[inline(always)]
    pub(super) fn home(self, key: Key) -> usize {
        if self.is_hashed {
            self.home_of(self.key_hash(key))
        } else {
            0
        }
    }

    /// The home of a key with this hash, where leaves are hashed.
    #[inline(always)]
    pub(super) const fn home_of(self, hash: u64) -> usize {
        let span = self.span() as u64;
        // The same, without the division, which takes longer than the hash.
        let home = if span.is_power_of_two() {
            hash & (span - 1)
        } else {
            hash % span
        };
        home as usize
    }

    #[inline(always)]
    const fn group_bytes(self) -> u64 {
        SIBLING_BYTES + self.circle.neighbourhood() as u64 * self.entry_bytes()
    }

    /// How many replicas of the sibling word there are.
    #[inline(always)]
    pub(super) const fn replicas(self) -> usize {
        self.span() / self.circle.neighbourhood()
    }

    /// Where a replica of the sibling word is.
    #[inline(always)]
    pub(super) const fn replica_at(self, group: usize) -> u64 {
        self.groups_at() + group as u64 * self.group_bytes()
    }

    /// Where an entry is.
    #[inline(always)]
    pub(super) const fn entry_at(self, entry: usize) -> u64 {
        let size = self.circle().neighbourhood();
        // Without a division where a shift does: this is asked for each entry that is looked at.
        let group = if size.is_power_of_two() {
            entry >> size.trailing_zeros()
        } else {
            entry / size
        };
        self.groups_at() + SIBLING_BYTES * (group as u64 + 1) + entry as u64 * self.entry_bytes()
    }

    /// Bytes of a leaf, without lock entries.
    #[must_use]
    pub const fn leaf_bytes(self) -> u64 {
        self.replica_at(self.replicas())
    }

    const fn locks_at(self) -> u64 {
        self.leaf_bytes().next_multiple_of(LOCK_BYTES)
    }

    /// Where the lock entry of a data pointer is, which is at `value_at` in its leaf; `None` if there are none.
    pub(super) const fn lock_of(self, value_at: u64) -> Option<u64> {
        if !self.has_locks {
            return None;
        }
        Some(self.locks_at() + self.entry_of(value_at) as u64 * LOCK_BYTES)
    }

    /// The entry whose value is at `value_at` in its leaf.
    pub(super) const fn entry_of(self, value_at: u64) -> usize {
        // Behind the key of an entry, which is behind one replica more than there are groups in front.
        let at = value_at - self.value_at(0);
        let (group, within) = (at / self.group_bytes(), at % self.group_bytes());
        group as usize * self.circle().neighbourhood() + (within / self.entry_bytes()) as usize
    }

    /// Bytes of the block of a leaf.
    #[must_use]
    pub const fn leaf_block_bytes(self) -> u64 {
        if self.has_locks {
            self.locks_at() + self.span() as u64 * LOCK_BYTES
        } else {
            self.leaf_bytes()
        }
    }

    /// Bytes of a leaf that are neither of a key nor of a value, for keys of any size: what a leaf of this tree would take if it
    /// had them, and if it were validated as said.
    #[must_use]
    pub const fn metadata_bytes(self, key_bytes: u64, validation: Validation) -> u64 {
        let fences = fence_bytes(key_bytes);
        let (header, replica) = match validation {
            Validation::Sibling => (header_bytes(key_bytes), SIBLING_BYTES),
            Validation::Fences => (header_bytes(key_bytes) - fences, SIBLING_BYTES + fences),
        };
        header + self.replicas() as u64 * replica + self.span() as u64 * META_BYTES
    }

    /// The bit of the lock word that says whether an entry is vacant.
    pub(super) fn vacancy_bit(self, entry: usize) -> usize {
        // As evenly as possible (CHIME, section 4.2.1).
        entry * VACANCY_BITS.min(self.span()) / self.span()
    }
}

/// Evaluates an expression of a shape with one that the compiler knows, if it is a published one: then offsets and loops over
/// a leaf are constants, which is half the time of looking at one.
macro_rules! with_known_shape {
    ($shape:ident => $evaluated:expr) => {
        match $shape {
            _ if $shape == crate::chime::LEAF => {
                let $shape = crate::chime::LEAF;
                $evaluated
            }
            _ if $shape == crate::chime::LEAF.of_pointers() => {
                let $shape = crate::chime::LEAF.of_pointers();
                $evaluated
            }
            _ if $shape == crate::sherman::LEAF => {
                let $shape = crate::sherman::LEAF;
                $evaluated
            }
            _ => $evaluated,
        }
    };
}
pub(super) use with_known_shape;

/// Where the first image of an internal node is.
pub(super) const IMAGE_AT: u64 = 16;

impl Shape {
    /// Where the children stand in the image of an internal node: behind check, shape, fences, sibling, next child.
    pub(super) const fn children_at(self) -> u64 {
        32 + 2 * self.key_bytes()
    }

    /// Bytes of a child with its key.
    pub(super) const fn child_bytes(self) -> u64 {
        8 + self.key_bytes()
    }

    /// Bytes of an internal node's image.
    pub(super) const fn image_bytes(self) -> u64 {
        self.children_at() + INNER_SPAN as u64 * self.child_bytes()
    }

    /// Where an image stands in a buffer.
    pub(super) const fn image(self) -> Slice {
        Slice::first(self.image_bytes() as u32)
    }

    /// Where the second image of an internal node is.
    pub(super) const fn second_image_at(self) -> u64 {
        IMAGE_AT + self.image_bytes()
    }

    /// Bytes of an internal node.
    #[must_use]
    pub const fn inner_bytes(self) -> u64 {
        self.second_image_at() + self.image_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CHIME: Shape = Shape::hopscotch(64, 8);

    #[test]
    fn every_neighbourhood_has_a_replica_beside_it() {
        for home in 0..=CHIME.span() - 8 {
            let from = if home.is_multiple_of(8) {
                CHIME.replica_at(home / 8)
            } else {
                CHIME.entry_at(home)
            };
            let end = CHIME.entry_at(home + 7) + CHIME.entry_bytes();
            assert_eq!(end - from, 8 * CHIME.entry_bytes() + 8, "of home {home}");
        }
        assert_eq!(CHIME.leaf_bytes(), 48 + 8 * 200);
        assert_eq!(Shape::unsorted(64).leaf_bytes(), 48 + 8 + 64 * 24);
        assert_eq!(CHIME.of_pointers().leaf_bytes(), 72 + 8 * (8 + 8 * 32));
    }

    #[test]
    fn metadata_is_what_a_leaf_has_beside_keys_and_values() {
        for shape in [CHIME, Shape::hopscotch(128, 16), Shape::unsorted(64)] {
            for shape in [shape, shape.of_pointers(), shape.repeating(512)] {
                let items = shape.span() as u64 * (shape.key_bytes() + shape.value_bytes());
                let metadata = shape.metadata_bytes(shape.key_bytes(), Validation::Sibling);
                assert_eq!(metadata + items, shape.leaf_bytes(), "{shape:?}");
            }
        }
        // Eight replicas have fences of 64 and a check of 8 bytes, and the header has not.
        let both = [Validation::Sibling, Validation::Fences].map(|by| CHIME.metadata_bytes(32, by));
        assert_eq!(both[1] - both[0], 7 * (2 * 32 + 8));
    }

    #[test]
    fn a_word_that_is_no_shape_is_none() {
        let word = |kind: u64, span: usize, neighbourhood: usize, value_words: usize| {
            kind | (span as u64) << 8 | (neighbourhood as u64) << 32 | (value_words as u64 - 1) << 48
        };
        let is_shape = |word| Shape::from_word(word).is_some();
        let pointers = 1 << 2;
        assert!(is_shape(word(1, LEAF_SPAN_MAX, 1, VALUE_WORDS_MAX)));
        assert!(!is_shape(word(1, LEAF_SPAN_MAX + 1, 1, 1)));
        assert!(!is_shape(word(1, 8, 1, VALUE_WORDS_MAX + 1)));
        assert!(!is_shape(word(1, 0, 1, 1)));
        assert!(!is_shape(word(1, 8, 9, 1)));
        assert!(!is_shape(word(1, 8, 0, 1)));
        assert!(is_shape(word(1 | pointers, 8, 1, 1)));
        assert!(!is_shape(word(1 | pointers, 8, 1, 2)), "a pointer is one word");
        let widest = hopscotch::NEIGHBOURHOOD_MAX;
        assert!(is_shape(word(2, 2 * widest, widest, 1)));
        assert!(!is_shape(word(2, 2 * widest + 2, widest + 1, 1)));
        assert!(!is_shape(word(2, 9, 2, 1)), "neighbourhoods divide the span");
        assert!(!is_shape(word(3, 8, 1, 1)));
        assert!(!is_shape(word(1 | 1 << 3, 8, 1, 1)), "locks go with pointers");
        assert!(is_shape(word(1 | 3 << 2, 8, 1, 1)));
        assert!(is_shape(word(1 | 1 << 4, 8, 1, 1)));
        assert!(!is_shape(word(1 | 1 << 5, 8, 1, 1)), "claims are of data pointers");
        assert!(!is_shape(word(2 | pointers | 1 << 5, 8, 1, 1)), "keys hop");
        assert!(is_shape(word(1 | pointers | 1 << 5, 8, 1, 1)));
        assert!(!is_shape(word(1 | 1 << 6, 8, 1, 1)));
    }

    #[test]
    fn vacancy_bits_are_shared_evenly() {
        let small: Vec<usize> = (0..8).map(|entry| Shape::unsorted(8).vacancy_bit(entry)).collect();
        assert_eq!(small, [0, 1, 2, 3, 4, 5, 6, 7]);
        let large = Shape::unsorted(4 * VACANCY_BITS);
        let mut counts = [0; VACANCY_BITS];
        for entry in 0..4 * VACANCY_BITS {
            counts[large.vacancy_bit(entry)] += 1;
        }
        assert_eq!(counts, [4; VACANCY_BITS]);
    }

    proptest! {
        #[test]
        fn shapes_survive_encoding(
            groups in 1_usize..32, neighbourhood in 1_usize..=16, value_words in 1..=VALUE_WORDS_MAX,
        ) {
            let shape = Shape::hopscotch(groups * neighbourhood, neighbourhood);
            prop_assert_eq!(Shape::from_word(shape.to_word()), Some(shape));
            let repeating = shape.repeating(8 * value_words);
            prop_assert_eq!(Shape::from_word(repeating.to_word()), Some(repeating));
            prop_assert_eq!(Shape::from_word(shape.of_pointers().to_word()), Some(shape.of_pointers()));
            prop_assert_eq!(Shape::from_word(repeating.learned().to_word()), Some(repeating.learned()));
            let shape = Shape::unsorted(groups * neighbourhood);
            prop_assert_eq!(Shape::from_word(shape.to_word()), Some(shape));
            let claimed = shape.with_claims();
            prop_assert_eq!(Shape::from_word(claimed.to_word()), Some(claimed));
            prop_assert_eq!(Shape::from_word(claimed.with_locks().to_word()), Some(claimed.with_locks()));
        }
    }
}
