//! A hasher for tables of numbers: fast, and the same in every run.
//!
//! On the path: queue pairs between simulated clients, and nodes that a client of an index remembers, are found through it.

use core::hash::{BuildHasherDefault, Hasher};

/// Hashes integers by one multiplication: fast, and the same in every run.
#[derive(Default, Debug)]
pub struct MixHasher(u64);

/// Builds [`MixHasher`]s.
pub type MixState = BuildHasherDefault<MixHasher>;

impl Hasher for MixHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }
    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }
    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(26) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
