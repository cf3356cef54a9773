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
    pub const fn for_item(bytes: u64) -> Self {
        match bytes {
            0..=64 => Self::Line,
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

/// A slot's word, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pointer {
    /// Where the block is; [`RemoteAddr::NULL`] if the slot is empty.
    pub block: RemoteAddr,
    /// How much of it to read.
    pub hint: SizeHint,
    /// See the module.
    pub version: u8,
}

impl Pointer {
    /// An empty slot that was never used.
    pub const NULL: Self = Self {
        block: RemoteAddr::NULL,
        hint: SizeHint::Line,
        version: 0,
    };

    /// A pointer to a block.
    ///
    /// # Panics
    /// If the block does not start at a multiple of 64 bytes.
    #[must_use]
    pub fn new(block: RemoteAddr, hint: SizeHint, version: u8) -> Self {
        assert!(block.offset().is_multiple_of(1 << UNIT_LOG), "blocks start at lines");
        Self { block, hint, version }
    }

    /// The word.
    #[inline]
    #[must_use]
    pub fn to_word(self) -> u64 {
        u64::from(self.version) << VERSION_AT
            | (self.block.node().index() as u64) << NODE_AT
            | (self.hint as u64) << HINT_AT
            | self.block.offset() >> UNIT_LOG
    }

    /// Reads a word; every word is a pointer.
    #[inline]
    #[must_use]
    pub fn from_word(word: u64) -> Self {
        let node = NodeId::new((word >> NODE_AT) as u16 & 0xfff);
        let offset = (word & ((1 << OFFSET_BITS) - 1)) << UNIT_LOG;
        Self {
            block: RemoteAddr::new(node, offset),
            hint: SizeHint::from_bits(word >> HINT_AT),
            version: (word >> VERSION_AT) as u8,
        }
    }

    /// Whether the slot is empty.
    #[inline]
    #[must_use]
    pub fn is_null(self) -> bool {
        self.block.is_null()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_word_is_a_pointer(word: u64) {
            prop_assert_eq!(Pointer::from_word(word).to_word(), word);
        }

        #[test]
        fn hints_cover_small_items(bytes in 0_u64..=1024) {
            prop_assert!(u64::from(SizeHint::for_item(bytes).bytes()) >= bytes);
        }
    }
}
