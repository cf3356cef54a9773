//! The longest common subsequence of two strings, and where it stands in both: what LCS does, without the protocol.
//!
//! On the path: between the command and the two values. As in Redis, of several such sequences the same one is found, and in
//! the same pieces: by the table of the lengths for each pair of prefixes, gone through from its end. Of the table, one row of
//! lengths and one bit for each pair are kept.

use core::ops::Range;

/// A piece of the subsequence: the same bytes in both strings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    pub(crate) first: Range<usize>,
    pub(crate) second: Range<usize>,
}

/// What two strings have in common.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Common {
    pub(crate) bytes: Vec<u8>,
    /// From the last to the first.
    pub(crate) pieces: Vec<Piece>,
}

/// The table of lengths, gone through row by row.
struct Table {
    width: usize,
    /// For each pair of bytes, the end of a prefix each, whether the common subsequence is longer without the first one than
    /// without the second one.
    is_above: Vec<u64>,
}

impl Table {
    fn new(first: &[u8], second: &[u8]) -> Self {
        let width = second.len();
        let mut is_above = vec![0_u64; (first.len() * width).div_ceil(64)];
        let mut row = vec![0_u32; width];
        let mut cell = 0;
        for byte in first {
            let (mut diagonal, mut left) = (0, 0);
            for (length, other) in row.iter_mut().zip(second) {
                let above = *length;
                if byte == other {
                    *length = diagonal + 1;
                } else if above > left {
                    is_above[cell / 64] |= 1 << (cell % 64);
                } else {
                    *length = left;
                }
                (diagonal, left) = (above, *length);
                cell += 1;
            }
        }
        Self { width, is_above }
    }

    /// See [`Self::is_above`], of the prefixes of so many bytes.
    fn is_above(&self, first: usize, second: usize) -> bool {
        let cell = (first - 1) * self.width + second - 1;
        self.is_above[cell / 64] >> (cell % 64) & 1 == 1
    }
}

/// What two strings have in common, in time and memory that go with the product of their lengths.
pub(crate) fn common(first: &[u8], second: &[u8]) -> Common {
    let table = Table::new(first, second);
    let (mut bytes, mut pieces) = (Vec::new(), Vec::new());
    // The piece that may still grow towards the front.
    let mut piece: Option<Piece> = None;
    let (mut one, mut other) = (first.len(), second.len());
    while one > 0 && other > 0 {
        if first[one - 1] == second[other - 1] {
            (one, other) = (one - 1, other - 1);
            bytes.push(first[one]);
            let grown = piece.get_or_insert(Piece {
                first: one + 1..one + 1,
                second: other + 1..other + 1,
            });
            (grown.first.start, grown.second.start) = (one, other);
        } else {
            if table.is_above(one, other) {
                one -= 1;
            } else {
                other -= 1;
            }
            pieces.extend(piece.take());
        }
    }
    pieces.extend(piece);
    bytes.reverse();
    Common { bytes, pieces }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The length by the definition, with the whole table.
    fn length(first: &[u8], second: &[u8]) -> usize {
        let mut lengths = vec![vec![0; second.len() + 1]; first.len() + 1];
        for (row, byte) in first.iter().enumerate() {
            for (column, other) in second.iter().enumerate() {
                lengths[row + 1][column + 1] = match byte == other {
                    true => lengths[row][column] + 1,
                    false => lengths[row][column + 1].max(lengths[row + 1][column]),
                };
            }
        }
        lengths[first.len()][second.len()]
    }

    #[test]
    fn the_example_of_redis() {
        let found = common(b"ohmytext", b"mynewtext");
        let piece = |first, second| Piece { first, second };
        assert_eq!(found.bytes, b"mytext");
        assert_eq!(found.pieces, [piece(4..8, 5..9), piece(2..4, 0..2)]);
    }

    proptest! {
        #[test]
        fn it_is_the_longest_and_stands_in_both(first in "[a-d]{0,40}", second in "[a-d]{0,40}") {
            let (first, second) = (first.as_bytes(), second.as_bytes());
            let found = common(first, second);
            prop_assert_eq!(found.bytes.len(), length(first, second));
            let mut ends = (first.len(), second.len());
            let mut bytes = Vec::new();
            for piece in &found.pieces {
                prop_assert!(piece.first.end <= ends.0 && piece.second.end <= ends.1 && !piece.first.is_empty());
                prop_assert_eq!(&first[piece.first.clone()], &second[piece.second.clone()]);
                ends = (piece.first.start, piece.second.start);
                bytes = [&first[piece.first.clone()], &bytes].concat();
            }
            prop_assert_eq!(found.bytes, bytes);
        }
    }
}
