//! The one-sided verbs, as plain data, and the arithmetic of the masked atomics.
//!
//! On the path: an [`OpContext`](crate::OpContext) builds a [`Verb`], a backend executes it. A verb holds no reference:
//! what it reads or writes locally is a [`Slice`] of the one registered [`Buffer`](crate::Buffer) that is posted with
//! it, so that nothing else can touch the bytes while a NIC works on them.
//!
//! Masked atomics are the "extended atomics" of ConnectX NICs (ShiftLock, section 3.3): a
//! compare-and-swap that compares some bits and swaps others, and an add whose carries stop at
//! field boundaries. Both are pure functions `word -> word` here, so each backend applies the same.

use core::ops::{BitAnd, BitOr, BitXor, Not, Range};

use crate::addr::RemoteAddr;
use crate::mutant::is_planted;

/// A part of the buffer that is posted with a verb: where the bytes of a READ land, where those of
/// a WRITE come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slice {
    /// Index of the first byte.
    pub at: u32,
    /// Length in bytes.
    pub bytes: u32,
}

impl Slice {
    /// `bytes` bytes from index `at` on.
    #[must_use]
    pub const fn new(at: u32, bytes: u32) -> Self {
        Self { at, bytes }
    }

    /// The first `bytes` bytes of the buffer.
    #[must_use]
    pub const fn first(bytes: u32) -> Self {
        Self { at: 0, bytes }
    }

    /// The slice as a range of indices.
    #[must_use]
    pub const fn range(self) -> Range<usize> {
        self.at as usize..self.at as usize + self.bytes as usize
    }
}

/// The word of an atomic: 8 or 16 bytes.
pub trait AtomicWord:
    Copy + Eq + BitAnd<Output = Self> + BitOr<Output = Self> + BitXor<Output = Self> + Not<Output = Self>
{
    /// The word with no bit set.
    const ZERO: Self;
    /// The wrapping sum.
    fn sum(self, other: Self) -> Self;
}

impl AtomicWord for u64 {
    const ZERO: Self = 0;
    fn sum(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
}

impl AtomicWord for u128 {
    const ZERO: Self = 0;
    fn sum(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
}

/// Operands of a masked compare-and-swap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MaskedCas<W> {
    /// The expected value of the compared bits.
    pub compare: W,
    /// Which bits are compared; none set means the swap always happens.
    pub compare_mask: W,
    /// The new value of the swapped bits.
    pub swap: W,
    /// Which bits are swapped; the others keep their value.
    pub swap_mask: W,
}

impl<W: AtomicWord> MaskedCas<W> {
    /// A compare-and-swap of the whole word.
    #[must_use]
    pub fn whole(compare: W, swap: W) -> Self {
        Self {
            compare,
            compare_mask: !W::ZERO,
            swap,
            swap_mask: !W::ZERO,
        }
    }

    /// Whether `word` passes the comparison.
    #[inline]
    #[must_use]
    pub fn matches(&self, word: W) -> bool {
        if is_planted("verb: a mask of a compare-and-swap ignored") {
            return word == self.compare;
        }
        (word ^ self.compare) & self.compare_mask == W::ZERO
    }

    /// The word that replaces `word`, or `None` if the compared bits differ.
    #[inline]
    #[must_use]
    pub fn apply(&self, word: W) -> Option<W> {
        self.matches(word).then(|| {
            if is_planted("verb: a mask of a swap ignored") {
                return self.swap;
            }
            (word & !self.swap_mask) | (self.swap & self.swap_mask)
        })
    }
}

/// Operands of a masked fetch-and-add.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MaskedAdd<W> {
    /// What is added.
    pub add: W,
    /// The most significant bit of each field: a carry out of it is dropped. No bit set means one
    /// field as wide as the word.
    pub boundary: W,
}

impl<W: AtomicWord> MaskedAdd<W> {
    /// An add over the whole word.
    #[must_use]
    pub fn whole(add: W) -> Self {
        Self { add, boundary: W::ZERO }
    }

    /// The word that replaces `word`.
    #[inline]
    #[must_use]
    pub fn apply(&self, word: W) -> W {
        // Without its top bit a field cannot carry out; the top bit is then added without a carry.
        if is_planted("verb: a carry across a boundary") {
            return word.sum(self.add);
        }
        let low = !self.boundary;
        (word & low).sum(self.add & low) ^ ((word ^ self.add) & self.boundary)
    }
}

/// A one-sided operation on far memory.
#[expect(missing_docs, reason = "the operands are named in the description of their verb")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// Copies far memory into the buffer. May tear between 8-byte words.
    Read { source: RemoteAddr, target: Slice },
    /// Copies bytes of the buffer to far memory. May tear between 8-byte words.
    Write { source: Slice, target: RemoteAddr },
    /// Reads an aligned 8-byte word, which is the verb's result.
    ReadWord { source: RemoteAddr },
    /// Writes an aligned 8-byte word, carried by the verb itself (an inline WRITE).
    WriteWord { target: RemoteAddr, value: u64 },
    /// Replaces `compare` by `swap`. The result is the previous word, which equals `compare` on success.
    CompareSwap {
        target: RemoteAddr,
        compare: u64,
        swap: u64,
    },
    /// Adds to a word, wrapping. The result is the previous word.
    FetchAdd { target: RemoteAddr, add: u64 },
    /// [`MaskedCas`] of 8 bytes. The result is the previous word.
    MaskedCompareSwap {
        target: RemoteAddr,
        operands: MaskedCas<u64>,
    },
    /// [`MaskedAdd`] of 8 bytes. The result is the previous word.
    MaskedFetchAdd {
        target: RemoteAddr,
        operands: MaskedAdd<u64>,
    },
    /// [`MaskedCas`] of 16 bytes. The result is the previous word.
    WideCompareSwap {
        target: RemoteAddr,
        operands: MaskedCas<u128>,
    },
    /// [`MaskedAdd`] of 16 bytes. The result is the previous word.
    WideFetchAdd {
        target: RemoteAddr,
        operands: MaskedAdd<u128>,
    },
}

impl Verb {
    /// How many bytes the verb returns.
    #[inline]
    #[must_use]
    pub const fn result_bytes(&self) -> usize {
        match self {
            Self::Read { target, .. } => target.bytes as usize,
            Self::Write { .. } | Self::WriteWord { .. } => 0,
            Self::WideCompareSwap { .. } | Self::WideFetchAdd { .. } => 16,
            _ => 8,
        }
    }

    /// The far memory that the verb touches: its first byte, and its length in bytes.
    #[inline]
    #[must_use]
    pub const fn target(&self) -> (RemoteAddr, u64) {
        match *self {
            Self::Read { source, target } => (source, target.bytes as u64),
            Self::Write { source, target } => (target, source.bytes as u64),
            Self::ReadWord { source } => (source, 8),
            Self::WriteWord { target, .. }
            | Self::CompareSwap { target, .. }
            | Self::FetchAdd { target, .. }
            | Self::MaskedCompareSwap { target, .. }
            | Self::MaskedFetchAdd { target, .. } => (target, 8),
            Self::WideCompareSwap { target, .. } | Self::WideFetchAdd { target, .. } => (target, 16),
        }
    }

    /// The part of the buffer that the verb touches, if any.
    #[inline]
    #[must_use]
    pub const fn local(&self) -> Option<Slice> {
        match *self {
            Self::Read { target, .. } => Some(target),
            Self::Write { source, .. } => Some(source),
            _ => None,
        }
    }

    /// What the verb's address must be a multiple of: 1, 8 or 16.
    #[inline]
    #[must_use]
    pub const fn alignment(&self) -> u64 {
        match self {
            Self::Read { .. } | Self::Write { .. } => 1,
            Self::WideCompareSwap { .. } | Self::WideFetchAdd { .. } => 16,
            _ => 8,
        }
    }

    /// The kind under which the verb is counted.
    #[inline]
    #[must_use]
    pub const fn kind(&self) -> VerbKind {
        match self {
            Self::Read { .. } | Self::ReadWord { .. } => VerbKind::Read,
            Self::Write { .. } | Self::WriteWord { .. } => VerbKind::Write,
            Self::CompareSwap { .. } => VerbKind::CompareSwap,
            Self::FetchAdd { .. } => VerbKind::FetchAdd,
            Self::MaskedCompareSwap { .. } | Self::WideCompareSwap { .. } => VerbKind::MaskedCompareSwap,
            Self::MaskedFetchAdd { .. } | Self::WideFetchAdd { .. } => VerbKind::MaskedFetchAdd,
        }
    }
}

/// The kind as which a verb is counted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum VerbKind {
    /// READ, of any size.
    Read,
    /// WRITE, of any size.
    Write,
    /// Compare-and-swap of 8 bytes.
    CompareSwap,
    /// Fetch-and-add of 8 bytes.
    FetchAdd,
    /// Masked compare-and-swap, 8 or 16 bytes.
    MaskedCompareSwap,
    /// Masked fetch-and-add, 8 or 16 bytes.
    MaskedFetchAdd,
    /// A message to another endpoint.
    Send,
}

impl VerbKind {
    /// Every kind, in the order of its number.
    pub const ALL: [Self; 7] = [
        Self::Read,
        Self::Write,
        Self::CompareSwap,
        Self::FetchAdd,
        Self::MaskedCompareSwap,
        Self::MaskedFetchAdd,
        Self::Send,
    ];

    /// Whether the NIC serialises verbs of this kind on one address.
    #[inline]
    #[must_use]
    pub const fn is_atomic(self) -> bool {
        matches!(
            self,
            Self::CompareSwap | Self::FetchAdd | Self::MaskedCompareSwap | Self::MaskedFetchAdd
        )
    }

    /// The name used in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::CompareSwap => "compare-swap",
            Self::FetchAdd => "fetch-add",
            Self::MaskedCompareSwap => "masked-compare-swap",
            Self::MaskedFetchAdd => "masked-fetch-add",
            Self::Send => "send",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition in words: cut the words at the boundaries, add field by field.
    fn add_by_fields(word: u64, add: u64, boundary: u64) -> u64 {
        let (mut sum, mut carry) = (0, 0);
        for bit in 0..64 {
            let total = (word >> bit & 1) + (add >> bit & 1) + carry;
            sum |= (total & 1) << bit;
            carry = if boundary >> bit & 1 == 1 { 0 } else { total >> 1 };
        }
        sum
    }

    proptest! {
        #[test]
        fn carries_stop_at_boundaries(word: u64, add: u64, boundary: u64) {
            let masked = MaskedAdd { add, boundary }.apply(word);
            prop_assert_eq!(masked, add_by_fields(word, add, boundary));
        }

        #[test]
        fn wide_add_is_two_narrow_adds_when_cut_in_the_middle(word: u128, add: u128) {
            let cut = MaskedAdd { add, boundary: 1_u128 << 63 }.apply(word);
            let low = (word as u64).wrapping_add(add as u64);
            let high = ((word >> 64) as u64).wrapping_add((add >> 64) as u64);
            prop_assert_eq!(cut, u128::from(high) << 64 | u128::from(low));
        }

        #[test]
        fn masked_swap_changes_swapped_bits_only(word: u64, operands: [u64; 4]) {
            let [compare, compare_mask, swap, swap_mask] = operands;
            let cas = MaskedCas { compare, compare_mask, swap, swap_mask };
            match cas.apply(word) {
                Some(new) => {
                    prop_assert_eq!(word & compare_mask, compare & compare_mask);
                    prop_assert_eq!(new & !swap_mask, word & !swap_mask);
                    prop_assert_eq!(new & swap_mask, swap & swap_mask);
                }
                None => prop_assert_ne!(word & compare_mask, compare & compare_mask),
            }
        }

        #[test]
        fn matching_bits_are_swapped(word: u64, compare_mask: u64, swap: u64) {
            let cas = MaskedCas { compare: word, compare_mask, swap, swap_mask: !0 };
            prop_assert_eq!(cas.apply(word), Some(swap));
        }
    }
}
