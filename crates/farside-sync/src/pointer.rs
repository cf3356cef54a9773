//! The data pointer: the word of a slot.
//!
//! ```text
//! 63       56 55        44 43  42 41                    0
//! |  version |    node    | hint |  offset in 64 B units |
//! ```
//!
//! Blocks start at multiples of 64 bytes, so 42 bits of offset reach as far as the fabric's 48. The
//! hint says how much a reader should fetch, so that an item costs one READ. The version is bumped
//! whenever a slot changes its owner key; schemes that compare only part of the word rely on it.

use farside_fabric::mutant::is_planted;
use farside_fabric::{NodeId, RemoteAddr};

const UNIT_LOG: u32 = 6;
const OFFSET_BITS: u32 = 42;
const HINT_AT: u32 = OFFSET_BITS;
const NODE_AT: u32 = HINT_AT + 2;
const VERSION_AT: u32 = NODE_AT + 12;

const _: () = assert!(VERSION_AT + 8 == 64 && OFFSET_BITS + UNIT_LOG == farside_fabric::addr::OFFSET_BITS);

/// How many bytes of a block to read first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum SizeHint {
    /// An item of at most 64 bytes.
    Line = 0,
    /// An item of at most 256 bytes.
    Small = 1,
    /// A larger item: its first bytes tell how large.
    Large = 2,
    /// Not an item but a bucket of them: its first bytes tell of how many.
    Bucket = 3,
}

impl SizeHint {
    /// The hint for an item of `bytes` bytes.
    #[must_use]
    pub fn for_item(bytes: u64) -> Self {
        match bytes {
            0..=64 => Self::Line,
            65..=72 if is_planted("pointer: a hint that is one word short") => Self::Line,
            65..=256 => Self::Small,
            _ => Self::Large,
        }
    }

    /// How many bytes to read.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::Line | Self::Bucket => 64,
            Self::Small => 256,
            Self::Large => 1024,
        }
    }

    const fn from_bits(bits: u64) -> Self {
        match bits & 3 {
            0 => Self::Line,
            1 => Self::Small,
            2 => Self::Large,
            _ => Self::Bucket,
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

    /// A pointer to a block.
    ///
    /// # Panics
    /// If the block does not start at a multiple of 64 bytes.
    #[must_use]
    pub fn new(block: RemoteAddr, hint: SizeHint, version: u8) -> Self {
        assert!(block.offset().is_multiple_of(1 << UNIT_LOG), "blocks start at lines");
        let node = (block.node().index() as u64) << NODE_AT;
        let hint = (hint as u64) << HINT_AT;
        Self(u64::from(version) << VERSION_AT | node | hint | block.offset() >> UNIT_LOG)
    }

    /// The same with another version.
    #[must_use]
    pub fn with_version(self, version: u8) -> Self {
        Self(self.0 & !(0xff << VERSION_AT) | u64::from(version) << VERSION_AT)
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
        let node = NodeId::new((self.0 >> NODE_AT) as u16 & 0xfff);
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
            prop_assert_eq!(again.to_word(), word);
            prop_assert_eq!(pointer.with_version(7), Pointer::new(pointer.block(), pointer.hint(), 7));
        }

        #[test]
        fn hints_cover_small_items(bytes in 0_u64..=1024) {
            prop_assert!(u64::from(SizeHint::for_item(bytes).bytes()) >= bytes);
        }
    }
}
