//! The data pointer: the word of a slot.
//!
//! ```text
//! 63         56 55       48 47    39 38  36 35                    0
//! | fingerprint |  version  |  node  | hint |  offset in 32 B units |
//! |------- identity --------|
//! ```
//!
//! Blocks start at multiples of 32 bytes, so a pool reaches 2 TiB on each of 512 nodes. The hint says
//! how much a reader should fetch, so that an item costs one READ. The version is bumped whenever a
//! slot changes its owner key, and when an entry is frozen because it is about to move; schemes that
//! compare only the identity rely on it. The fingerprint is a part of the key's hash (RACE, section
//! 3.2); indexes that do not need it leave it 0.

use farside_fabric::mutant::is_planted;
use farside_fabric::{NodeId, RemoteAddr};

const UNIT_LOG: u32 = 5;
const OFFSET_BITS: u32 = 36;
const HINT_AT: u32 = OFFSET_BITS;
const NODE_AT: u32 = HINT_AT + 3;
const NODE_BITS: u32 = 9;
const VERSION_AT: u32 = NODE_AT + NODE_BITS;
const FINGERPRINT_AT: u32 = VERSION_AT + 8;

const _: () = assert!(FINGERPRINT_AT + 8 == 64);

/// The first version with which a removed entry leaves a slot that rests.
const VERSION_REST: u8 = VERSION_MARK - 3;
/// The bit of a version that says that the slot leads to something else than an item for now.
const VERSION_MARK: u8 = 1 << 7;
/// The hint of an empty slot that rests; its fingerprint is then the epoch in which it began to.
const RESTING: SizeHint = SizeHint::Line;
/// After so many epochs no operation is running any more that began before, as for blocks.
const REST_EPOCHS: u8 = farside_pool::epoch::GRACE_EPOCHS as u8;

/// How many nodes a pool may have so that pointers reach all of them.
pub const NODES_MAX: usize = 1 << NODE_BITS;
/// How many bytes of a node pointers reach.
pub const NODE_BYTES_MAX: u64 = 1 << (OFFSET_BITS + UNIT_LOG);

/// How many bytes of a block to read first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum SizeHint {
    /// An item of at most 32 bytes.
    Half = 0,
    /// An item of at most 64 bytes.
    Line = 1,
    /// An item of at most 128 bytes.
    Pair = 2,
    /// An item of at most 256 bytes.
    Small = 3,
    /// An item of at most 1 KiB.
    Medium = 4,
    /// A larger item: its first bytes tell how large.
    Large = 5,
    /// Not an item but a bucket of them: its first bytes tell of how many.
    Bucket = 6,
    /// An item of any size whose entry is frozen: it is being moved, and nobody may replace it here.
    Frozen = 7,
}

impl SizeHint {
    /// The hint for an item of `bytes` bytes.
    #[must_use]
    pub fn for_item(bytes: u64) -> Self {
        match bytes {
            0..=32 => Self::Half,
            33..=64 => Self::Line,
            65..=72 if is_planted("pointer: a hint that is one word short") => Self::Line,
            65..=128 => Self::Pair,
            129..=256 => Self::Small,
            257..=1024 => Self::Medium,
            _ => Self::Large,
        }
    }

    /// How many bytes to read.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::Half => 32,
            Self::Line | Self::Bucket => 64,
            Self::Pair => 128,
            Self::Small => 256,
            Self::Medium | Self::Large | Self::Frozen => 1024,
        }
    }

    /// Whether a block may be longer than what is read first.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Large | Self::Bucket | Self::Frozen)
    }

    #[inline]
    const fn from_bits(bits: u64) -> Self {
        match bits & 7 {
            0 => Self::Half,
            1 => Self::Line,
            2 => Self::Pair,
            3 => Self::Small,
            4 => Self::Medium,
            5 => Self::Large,
            6 => Self::Bucket,
            _ => Self::Frozen,
        }
    }
}

/// A slot's word. It stays one word until a field is asked for: it travels through every operation,
/// and a struct of its fields would be stored in parts and loaded as a whole, which stalls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pointer(u64);

impl Pointer {
    /// An empty slot that was never used.
    pub const NULL: Self = Self(0);
    /// The bits that say whose slot it is: fingerprint and version.
    pub const IDENTITY: u64 = u64::MAX << VERSION_AT;

    /// A pointer to a block, with the fingerprint 0.
    ///
    /// # Panics
    /// If the block does not start at a multiple of 32 bytes, or lies beyond what a pointer reaches.
    #[inline]
    #[must_use]
    pub fn new(block: RemoteAddr, hint: SizeHint, version: u8) -> Self {
        assert!(block.offset().is_multiple_of(1 << UNIT_LOG), "blocks start at units");
        assert!(
            block.node().index() < NODES_MAX && block.offset() < NODE_BYTES_MAX,
            "checked when the pool was opened"
        );
        let node = (block.node().index() as u64) << NODE_AT;
        let hint = (hint as u64) << HINT_AT;
        Self(u64::from(version) << VERSION_AT | node | hint | block.offset() >> UNIT_LOG)
    }

    /// The same with another version.
    #[inline]
    #[must_use]
    pub fn with_version(self, version: u8) -> Self {
        Self(self.0 & !(0xff << VERSION_AT) | u64::from(version) << VERSION_AT)
    }

    /// The same with another fingerprint.
    #[inline]
    #[must_use]
    pub const fn with_fingerprint(self, fingerprint: u8) -> Self {
        Self(self.0 & !(0xff << FINGERPRINT_AT) | (fingerprint as u64) << FINGERPRINT_AT)
    }

    /// The same with another fingerprint and version.
    #[inline]
    #[must_use]
    pub const fn with_identity(self, identity: u16) -> Self {
        Self(self.0 & !Self::IDENTITY | (identity as u64) << VERSION_AT)
    }

    /// The same with another hint.
    #[inline]
    #[must_use]
    pub const fn with_hint(self, hint: SizeHint) -> Self {
        Self(self.0 & !(7 << HINT_AT) | (hint as u64) << HINT_AT)
    }

    /// The same entry, frozen: with the next version, so that whoever compares the identity fails.
    #[must_use]
    pub fn frozen(self) -> Self {
        self.with_hint(SizeHint::Frozen)
            .with_version(self.version().wrapping_add(1))
    }

    /// What the slot holds when its entry is removed in this epoch of the pool: nothing. Once its version has come
    /// round it *rests*: operations that began before might take a new entry for one that they have seen.
    #[must_use]
    pub fn emptied(self, epoch: u64) -> Self {
        match self.version() {
            // An INSERT adds one, and freezing the entry another: neither goes round.
            version @ 0..VERSION_REST => Self::NULL.with_version(version + 1),
            _ => Self::resting(epoch),
        }
    }

    /// An empty slot that rests since this epoch of the pool.
    #[must_use]
    pub const fn resting(epoch: u64) -> Self {
        Self::NULL.with_hint(RESTING).with_fingerprint(epoch as u8)
    }

    /// Whether the slot is empty and rests, or has rested.
    #[inline]
    #[must_use]
    pub const fn is_resting(self) -> bool {
        self.is_null() && matches!(self.hint(), RESTING)
    }

    /// Whether the slot is empty and may get an entry, for a client that has seen this epoch of the pool.
    #[inline]
    #[must_use]
    pub fn is_vacant(self, epoch: u64) -> bool {
        if !self.is_resting() {
            return self.is_null();
        }
        // Epochs of two clients are one apart at most, and the slot knows the last eight bits of one.
        let rested = (epoch as u8).wrapping_sub(self.fingerprint());
        (REST_EPOCHS..=u8::MAX - REST_EPOCHS).contains(&rested)
    }

    /// The bits that say whose slot it is.
    #[inline]
    #[must_use]
    pub const fn identity(self) -> u16 {
        (self.0 >> VERSION_AT) as u16
    }

    /// Whether the slot belonged to the same keys, in the same place, when it held `other`.
    #[inline]
    #[must_use]
    pub const fn has_identity_of(self, other: Self) -> bool {
        (self.0 ^ other.0) & Self::IDENTITY == 0
    }

    /// Whether the entry is about to move.
    #[inline]
    #[must_use]
    pub const fn is_frozen(self) -> bool {
        matches!(self.hint(), SizeHint::Frozen)
    }

    /// The word.
    #[inline]
    #[must_use]
    pub const fn to_word(self) -> u64 {
        self.0
    }

    /// Reads a word; every word is a pointer.
    #[inline]
    #[must_use]
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// Where the block is; [`RemoteAddr::NULL`] if the slot is empty.
    #[inline]
    #[must_use]
    pub const fn block(self) -> RemoteAddr {
        let node = NodeId::new((self.0 >> NODE_AT) as u16 & (NODES_MAX as u16 - 1));
        RemoteAddr::new(node, (self.0 & ((1 << OFFSET_BITS) - 1)) << UNIT_LOG)
    }

    /// How much of it to read.
    #[inline]
    #[must_use]
    pub const fn hint(self) -> SizeHint {
        SizeHint::from_bits(self.0 >> HINT_AT)
    }

    /// See the module.
    #[inline]
    #[must_use]
    pub const fn version(self) -> u8 {
        (self.0 >> VERSION_AT) as u8
    }

    /// See the module.
    #[inline]
    #[must_use]
    pub const fn fingerprint(self) -> u8 {
        (self.0 >> FINGERPRINT_AT) as u8
    }

    /// Whether the slot is empty.
    #[inline]
    #[must_use]
    pub const fn is_null(self) -> bool {
        self.block().is_null()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_word_is_a_pointer(word: u64) {
            let pointer = Pointer::from_word(word);
            let again = Pointer::new(pointer.block(), pointer.hint(), pointer.version());
            prop_assert_eq!(again.with_fingerprint(pointer.fingerprint()).to_word(), word);
            let other = Pointer::new(pointer.block(), SizeHint::Frozen, 7).with_fingerprint(9);
            prop_assert_eq!(pointer.with_version(7).with_fingerprint(9).with_hint(SizeHint::Frozen), other);
        }

        /// An operation sees the word of a slot, and no other entry gets its identity while it runs.
        #[test]
        fn identities_do_not_come_back(steps in proptest::collection::vec(0_u16..2_000, 1..1200), fingerprint: u8) {
            let epoch = 77;
            let mut seen = std::collections::HashSet::new();
            let mut word = Pointer::NULL;
            for step in steps {
                if word.is_null() {
                    if !word.is_vacant(epoch) {
                        prop_assert!(!word.is_vacant(epoch + 2) && !word.is_vacant(epoch - 1));
                        prop_assert!(word.is_vacant(epoch + 3) && word.is_vacant(epoch + 4));
                        break;
                    }
                    let block = RemoteAddr::new(NodeId::new(0), 4096);
                    word = Pointer::new(block, SizeHint::Line, word.version().wrapping_add(1)).with_fingerprint(fingerprint);
                    prop_assert!(seen.insert(word.to_word() >> VERSION_AT));
                } else if step == 0 {
                    // Whoever freezes it moves it: that is the end of the slot.
                    prop_assert!(seen.insert(word.frozen().to_word() >> VERSION_AT));
                    break;
                } else {
                    word = word.emptied(epoch);
                }
            }
        }

        /// A slot that rests gets an entry again once every operation has ended that began before.
        #[test]
        fn a_slot_rests_for_three_epochs(epoch: u64, later in 0_u64..256) {
            let slot = Pointer::NULL.with_version(VERSION_REST).emptied(epoch);
            prop_assert!(slot.is_resting() && slot.is_null());
            prop_assert_eq!(slot.is_vacant(epoch.wrapping_add(later)), (3..=252).contains(&later));
        }

        #[test]
        fn a_version_goes_on_by_one(version in 0_u8..VERSION_REST) {
            let entry = Pointer::new(RemoteAddr::new(NodeId::new(0), 64), SizeHint::Line, version);
            prop_assert_eq!(entry.frozen().version(), version + 1);
            prop_assert!(entry.frozen().is_frozen() && !entry.is_frozen());
            prop_assert_eq!(entry.emptied(0), Pointer::NULL.with_version(version + 1));
            prop_assert!(entry.emptied(0).is_vacant(0) && !entry.is_vacant(0));
        }

        #[test]
        fn hints_cover_their_items(bytes in 0_u64..=4096) {
            let hint = SizeHint::for_item(bytes);
            prop_assert!(hint.is_open() || u64::from(hint.bytes()) >= bytes);
        }
    }
}
