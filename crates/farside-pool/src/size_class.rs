//! Sizes in which blocks are cut: multiples of 32 bytes up to 512, then eight steps per doubling.
//!
//! On the path: an allocation is rounded up to its class; a chunk holds blocks of one class. At
//! most a ninth of a block larger than 512 bytes is lost to rounding. What does not fit into half a
//! chunk takes whole chunks instead (a *run*).

/// The unit of allocation: every block starts at a multiple of this, so an address needs five bits
/// less. An item of a short key and a short value takes one unit; no block touches more cache lines
/// than its length needs.
pub const UNIT_BYTES: u64 = 32;

/// Classes below this one are multiples of the unit.
const LINEAR_COUNT: u8 = 16;
/// How many classes each doubling after them has.
const STEPS: u64 = 8;
/// Where the linear classes end.
const LINEAR_BYTES: u64 = UNIT_BYTES * LINEAR_COUNT as u64;

/// The size class of a block, counted from 0 (32 bytes).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SizeClass(pub u8);

impl SizeClass {
    /// A run of whole chunks, taken for one block.
    pub const RUN: Self = Self(u8::MAX);

    /// The smallest class that holds `bytes` bytes, or [`SizeClass::RUN`] if that is more than half
    /// a chunk.
    #[must_use]
    pub fn for_bytes(bytes: u64, chunk_bytes: u64) -> Self {
        if bytes > chunk_bytes / 2 {
            return Self::RUN;
        }
        if bytes <= LINEAR_BYTES {
            return Self((bytes.max(1).div_ceil(UNIT_BYTES) - 1) as u8);
        }
        // 512 << doubling <= bytes < 512 << (doubling + 1); at the lower end the step is 0: the last class of the doubling before.
        let doubling = bytes.ilog2() - LINEAR_BYTES.ilog2();
        let base = LINEAR_BYTES << doubling;
        let step = (bytes - base).div_ceil(base / STEPS);
        Self(LINEAR_COUNT + (STEPS * u64::from(doubling) + step) as u8 - 1)
    }

    /// Bytes of a block of this class.
    ///
    /// # Panics
    /// For [`SizeClass::RUN`], whose length is a chunk's own.
    #[must_use]
    pub fn bytes(self) -> u64 {
        assert!(self != Self::RUN, "a run has no fixed size");
        if self.0 < LINEAR_COUNT {
            return UNIT_BYTES * (u64::from(self.0) + 1);
        }
        let number = u64::from(self.0 - LINEAR_COUNT);
        let base = LINEAR_BYTES << (number / STEPS);
        base + (number % STEPS + 1) * (base / STEPS)
    }

    /// How many classes there are for chunks of this size.
    #[must_use]
    pub fn count(chunk_bytes: u64) -> usize {
        usize::from(Self::for_bytes(chunk_bytes / 2, chunk_bytes).0) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CHUNK_BYTES: u64 = 1 << 20;

    proptest! {
        #[test]
        fn smallest_class_that_fits(bytes in 0..=CHUNK_BYTES / 2) {
            let class = SizeClass::for_bytes(bytes, CHUNK_BYTES);
            prop_assert!(class.bytes() >= bytes);
            prop_assert!(class.bytes().is_multiple_of(UNIT_BYTES));
            if class.0 > 0 {
                prop_assert!(SizeClass(class.0 - 1).bytes() < bytes);
            }
            prop_assert!(bytes <= 512 || 9 * (class.bytes() - bytes) < class.bytes());
        }
    }

    #[test]
    fn sizes_grow_with_the_class() {
        let count = SizeClass::count(CHUNK_BYTES);
        let sizes: Vec<u64> = (0..count as u8).map(|class| SizeClass(class).bytes()).collect();
        assert!(sizes.is_sorted_by(|a, b| a < b));
        assert_eq!(sizes[..4], [32, 64, 96, 128]);
        assert_eq!(sizes[14..19], [480, 512, 576, 640, 704]);
        assert_eq!(sizes.last(), Some(&(CHUNK_BYTES / 2)));
        assert_eq!(SizeClass::for_bytes(CHUNK_BYTES / 2 + 1, CHUNK_BYTES), SizeClass::RUN);
    }

    #[test]
    fn a_block_is_of_its_own_class_and_one_byte_more_of_the_next() {
        for class in 0..SizeClass::count(CHUNK_BYTES) as u8 - 1 {
            let bytes = SizeClass(class).bytes();
            assert_eq!(SizeClass::for_bytes(bytes, CHUNK_BYTES), SizeClass(class));
            assert_eq!(SizeClass::for_bytes(bytes + 1, CHUNK_BYTES), SizeClass(class + 1));
        }
        assert_eq!(SizeClass::for_bytes(0, CHUNK_BYTES), SizeClass(0));
    }
}
