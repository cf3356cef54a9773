//! Numbers that look like chance and follow from a seed.
//!
//! On the path: the driver draws its faults from one, each worker its operations from another.

/// SplitMix64: small, and good enough to mix operations.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `sides`.
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.word() % sides
    }

    /// A number of `low..high`.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.roll(high - low)
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.roll(last as u64 + 1) as usize);
        }
    }
}

/// Spreads the bits of a word; no two words give the same.
pub(crate) fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
