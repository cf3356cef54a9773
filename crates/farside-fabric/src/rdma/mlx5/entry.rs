//! Work queue entries of masked atomics, as cards of this family read them.
//!
//! An entry is made of units of 16 bytes, all numbers big-endian: control, remote address, operands, and where the word
//! that was there goes. Operands are {swap, compare, swap mask, compare mask} or {addend, field boundaries}. No verb of
//! libibverbs makes one of these, so they are written out here; the driver fills in the place in the queue.

use super::super::ffi::ScatterGather;
use crate::verb::{MaskedAdd, MaskedCas};

/// Bytes of the longest entry.
const BYTES_MAX: usize = 112;
/// Bytes of a unit.
const UNIT_BYTES: usize = 16;

pub(crate) const OPCODE_MASKED_SWAP: u32 = 0x14;
pub(crate) const OPCODE_MASKED_ADD: u32 = 0x15;
/// Set in the modifier of the opcode for operands of other sizes than what plain atomics have; the other bits are the
/// logarithm of the size in units of 4 bytes.
const MODIFIER_EXTENDED: u32 = 8;
pub(crate) const CONTROL_ANNOUNCE: u8 = 2 << 2;
pub(crate) const CONTROL_FENCE: u8 = 4 << 5;

/// A word that operands are made of.
pub(crate) trait Operand: Copy {
    /// The modifier of the opcode for words of this size.
    const MODIFIER: u32;
    /// Appends the word.
    fn put(self, entry: &mut Writer);
    /// The word with its bytes in the other order.
    fn swapped(self) -> Self;
}

impl Operand for u64 {
    const MODIFIER: u32 = MODIFIER_EXTENDED | (size_of::<Self>() / 4).trailing_zeros();
    fn put(self, entry: &mut Writer) {
        entry.put(&self.to_be_bytes());
    }
    fn swapped(self) -> Self {
        self.swap_bytes()
    }
}

impl Operand for u128 {
    const MODIFIER: u32 = MODIFIER_EXTENDED | (size_of::<Self>() / 4).trailing_zeros();
    fn put(self, entry: &mut Writer) {
        entry.put(&self.to_be_bytes());
    }
    fn swapped(self) -> Self {
        self.swap_bytes()
    }
}

/// What all entries say beside their operands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    /// The number of the queue pair.
    pub(crate) queue_pair: u32,
    /// The word's address at its node, and the key of the node's memory.
    pub(crate) remote: (u64, u32),
    /// Where the word that was there goes.
    pub(crate) answer: ScatterGather,
    /// Whether its end is announced.
    pub(crate) is_announced: bool,
    /// Whether it waits for all READs and atomics before.
    pub(crate) is_fenced: bool,
    /// Whether the card takes the bytes of operands in the other order.
    pub(crate) is_swapped: bool,
}

/// An entry, ready to be put into a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, align(16))]
pub(crate) struct Entry([u8; BYTES_MAX]);

/// Fills an entry.
pub(crate) struct Writer {
    entry: Entry,
    length: usize,
}

impl Writer {
    fn put(&mut self, bytes: &[u8]) {
        self.entry.0[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }
}

impl Entry {
    /// A masked compare-and-swap.
    pub(crate) fn swap<W: Operand>(frame: &Frame, operands: &MaskedCas<W>) -> Self {
        let MaskedCas {
            compare,
            compare_mask,
            swap,
            swap_mask,
        } = *operands;
        Self::new(frame, OPCODE_MASKED_SWAP, &[swap, compare, swap_mask, compare_mask])
    }

    /// A masked fetch-and-add.
    pub(crate) fn add<W: Operand>(frame: &Frame, operands: &MaskedAdd<W>) -> Self {
        Self::new(frame, OPCODE_MASKED_ADD, &[operands.add, operands.boundary])
    }

    fn new<W: Operand>(frame: &Frame, opcode: u32, operands: &[W]) -> Self {
        let mut writer = Writer {
            entry: Self([0; BYTES_MAX]),
            length: 0,
        };
        let bytes = 3 * UNIT_BYTES + size_of_val(operands);
        let units = (bytes / UNIT_BYTES) as u32;
        let announced = if frame.is_announced { CONTROL_ANNOUNCE } else { 0 };
        let fenced = if frame.is_fenced { CONTROL_FENCE } else { 0 };
        // The place in the queue, between modifier and opcode, is the driver's to fill in.
        writer.put(&(W::MODIFIER << 24 | opcode).to_be_bytes());
        writer.put(&(frame.queue_pair << 8 | units).to_be_bytes());
        // Signature and stream, both unused, then the flags, then data that only other opcodes carry.
        writer.put(&[0, 0, 0, announced | fenced, 0, 0, 0, 0]);
        let (address, key) = frame.remote;
        writer.put(&address.to_be_bytes());
        writer.put(&key.to_be_bytes());
        writer.put(&[0; 4]);
        for operand in operands {
            let operand = if frame.is_swapped { operand.swapped() } else { *operand };
            operand.put(&mut writer);
        }
        writer.put(&frame.answer.length.to_be_bytes());
        writer.put(&frame.answer.lkey.to_be_bytes());
        writer.put(&frame.answer.addr.to_be_bytes());
        debug_assert_eq!(writer.length, bytes, "as long as it says");
        writer.entry
    }

    /// Its bytes, of which the card reads as many as the entry says.
    pub(super) fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::fmt::Write as _;

    fn frame(bytes: u32) -> Frame {
        Frame {
            queue_pair: 0x0001_0203,
            remote: (0x1122_3344_5566_7788, 0x99aa_bbcc),
            answer: ScatterGather {
                addr: 0x0102_0304_0506_0708,
                length: bytes,
                lkey: 0x0a0b_0c0d,
            },
            is_announced: true,
            is_fenced: false,
            is_swapped: false,
        }
    }

    fn hex(entry: &Entry, bytes: usize) -> String {
        assert!(
            entry.0[bytes..].iter().all(|byte| *byte == 0),
            "nothing beyond its length"
        );
        let mut text = String::new();
        for (at, byte) in entry.0[..bytes].iter().enumerate() {
            let gap = if at > 0 && at % UNIT_BYTES == 0 { " " } else { "" };
            write!(text, "{gap}{byte:02x}").expect("strings take everything");
        }
        text
    }

    #[test]
    fn a_swap_of_8_bytes_is_5_units() {
        let operands = MaskedCas {
            compare: 0xc0c1_c2c3_c4c5_c6c7_u64,
            compare_mask: 0xd0d1_d2d3_d4d5_d6d7,
            swap: 0xa0a1_a2a3_a4a5_a6a7,
            swap_mask: 0xb0b1_b2b3_b4b5_b6b7,
        };
        assert_eq!(
            hex(&Entry::swap(&frame(8), &operands), 80),
            "09000014010203050000000800000000 112233445566778899aabbcc00000000 a0a1a2a3a4a5a6a7c0c1c2c3c4c5c6c7 \
             b0b1b2b3b4b5b6b7d0d1d2d3d4d5d6d7 000000080a0b0c0d0102030405060708"
        );
        let swapped = Frame {
            is_swapped: true,
            is_announced: false,
            is_fenced: true,
            ..frame(8)
        };
        assert_eq!(
            hex(&Entry::swap(&swapped, &operands), 80),
            "09000014010203050000008000000000 112233445566778899aabbcc00000000 a7a6a5a4a3a2a1a0c7c6c5c4c3c2c1c0 \
             b7b6b5b4b3b2b1b0d7d6d5d4d3d2d1d0 000000080a0b0c0d0102030405060708"
        );
    }

    #[test]
    fn an_add_of_8_bytes_is_4_units() {
        let operands = MaskedAdd {
            add: 0xa0a1_a2a3_a4a5_a6a7_u64,
            boundary: 0xb0b1_b2b3_b4b5_b6b7,
        };
        assert_eq!(
            hex(&Entry::add(&frame(8), &operands), 64),
            "09000015010203040000000800000000 112233445566778899aabbcc00000000 a0a1a2a3a4a5a6a7b0b1b2b3b4b5b6b7 \
             000000080a0b0c0d0102030405060708"
        );
    }

    #[test]
    fn entries_of_16_bytes_have_operands_twice_as_long() {
        let word = |byte: u8| u128::from_be_bytes(core::array::from_fn(|index| byte + index as u8));
        let operands = MaskedCas {
            compare: word(0xc0),
            compare_mask: word(0xd0),
            swap: word(0xa0),
            swap_mask: word(0xb0),
        };
        assert_eq!(
            hex(&Entry::swap(&frame(16), &operands), 112),
            "0a000014010203070000000800000000 112233445566778899aabbcc00000000 a0a1a2a3a4a5a6a7a8a9aaabacadaeaf \
             c0c1c2c3c4c5c6c7c8c9cacbcccdcecf b0b1b2b3b4b5b6b7b8b9babbbcbdbebf d0d1d2d3d4d5d6d7d8d9dadbdcdddedf \
             000000100a0b0c0d0102030405060708"
        );
        let operands = MaskedAdd {
            add: word(0xa0),
            boundary: word(0xb0),
        };
        assert_eq!(
            hex(&Entry::add(&frame(16), &operands), 80),
            "0a000015010203050000000800000000 112233445566778899aabbcc00000000 a0a1a2a3a4a5a6a7a8a9aaabacadaeaf \
             b0b1b2b3b4b5b6b7b8b9babbbcbdbebf 000000100a0b0c0d0102030405060708"
        );
    }
}
