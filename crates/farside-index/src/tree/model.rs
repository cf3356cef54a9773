//! A model of a node: straight lines from keys to leaves, and where the leaves are.
//!
//! On the path: what a client remembers of a node of level 1 in a learned tree ([`crate::rolex`]), in place of the smallest
//! key of each leaf. Pure: no verb is posted here.
//!
//! # Error
//! A line is drawn through the smallest keys of some leaves, so that for each of them the place that it says is wrong by `e` leaves at
//! most. It never falls, so a key that belongs to leaf `m` is put somewhere from `m - e` to `m + 1 + e`; and of a place `p`
//! these are the leaves from `p - 1 - e` to `p + e`. With `e = 1` that is three of them.

use core::ops::Range;
use std::rc::Rc;

use farside_fabric::mutant::is_planted;
use farside_fabric::{RemoteAddr, prefetch};

use super::layout::{Key, Shape};
use super::words::address;
use crate::rolex::ERROR;

/// How many leaves a model leaves at most.
pub(super) const WINDOW_MAX: usize = 4;

/// What a place is computed with: its rounding is far less.
const ROUNDING: f64 = 1e-6;
/// Blocks are aligned to so many bits.
const ALIGNED_BITS: u32 = 5;
/// Words in front of the lines.
const HEADER_WORDS: usize = 4;
/// Words of a line.
const LINE_WORDS: usize = 3;

/// A line: from a key on (as a distance from the node's smallest), so many leaves for each step.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Line {
    from: f64,
    slope: f64,
    /// The leaf that begins there.
    first: usize,
}

impl Line {
    fn place(self, distance: f64) -> f64 {
        self.first as f64 + (distance - self.from) * self.slope
    }
}

/// A node in one piece of memory, as most of what a client remembers is these:
///
/// ```text
/// | smallest key (2 words) | leaves, lines, bytes of an address | first address | lines | addresses |
/// ```
///
/// Clones share it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Model(Rc<[u64]>);

/// How far a line is wrong at most, in leaves: as many keys as published, and never more than a leaf.
fn error(shape: Shape) -> f64 {
    (ERROR as f64 / shape.span() as f64).min(1.0)
}

fn distance(key: Key, low: Key) -> f64 {
    (key - low) as f64
}

/// Lines through places that ascend, each as long as it can be from its first place on. `None` if two of them are the same.
fn lines(places: &[f64], error: f64) -> Option<Vec<Line>> {
    if places.windows(2).any(|two| two[0] >= two[1]) {
        return None;
    }
    let mut lines = Vec::new();
    let mut first = 0;
    while first < places.len() {
        let (mut least, mut most) = (0.0_f64, f64::INFINITY);
        let mut end = first + 1;
        while end < places.len() {
            let (run, rise) = (places[end] - places[first], (end - first) as f64);
            let (lower, upper) = (least.max((rise - error) / run), most.min((rise + error) / run));
            if lower > upper {
                break;
            }
            (least, most) = (lower, upper);
            end += 1;
        }
        lines.push(Line {
            from: places[first],
            slope: if most.is_finite() { (least + most) / 2.0 } else { 0.0 },
            first,
        });
        first = end;
    }
    Some(lines)
}

impl Model {
    /// Trains a model of leaves with these smallest keys, ascending. `None` if they are so near to each other, for what the node
    /// covers, that lines do not tell them apart.
    pub(super) fn train(shape: Shape, leaves: &[(Key, RemoteAddr)]) -> Option<Self> {
        let &(low, _) = leaves.first()?;
        let places: Vec<f64> = leaves.iter().map(|&(key, _)| distance(key, low)).collect();
        let lines = lines(&places, error(shape))?;
        let units = |addr: RemoteAddr| addr.to_bits() >> ALIGNED_BITS;
        let base = leaves.iter().map(|&(_, addr)| units(addr)).min()?;
        let span = leaves.iter().map(|&(_, addr)| units(addr) - base).max()?;
        let width = (u64::BITS - span.leading_zeros()).div_ceil(8).max(1) as usize;
        let mut packed: Vec<u8> = Vec::with_capacity((leaves.len() * width).next_multiple_of(8));
        for &(_, addr) in leaves {
            packed.extend_from_slice(&(units(addr) - base).to_le_bytes()[..width]);
        }
        packed.resize(packed.len().next_multiple_of(8), 0);
        let head = [
            (low >> 64) as u64,
            low as u64,
            (leaves.len() | lines.len() << 8 | width << 16) as u64,
            base,
        ];
        let lines = lines
            .into_iter()
            .flat_map(|line| [line.from.to_bits(), line.slope.to_bits(), line.first as u64]);
        let addresses = packed.as_chunks().0.iter().map(|&bytes| u64::from_le_bytes(bytes));
        Some(Self(head.into_iter().chain(lines).chain(addresses).collect()))
    }

    /// The smallest key that may be below it.
    #[inline]
    pub(super) fn low(&self) -> Key {
        Key::from(self.0[0]) << 64 | Key::from(self.0[1])
    }

    /// How many leaves there are.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.0[2] as usize & 0xff
    }

    #[inline]
    fn line_count(&self) -> usize {
        self.0[2] as usize >> 8 & 0xff
    }

    #[inline]
    fn line(&self, index: usize) -> Line {
        let words = &self.0[HEADER_WORDS + index * LINE_WORDS..][..LINE_WORDS];
        Line {
            from: f64::from_bits(words[0]),
            slope: f64::from_bits(words[1]),
            first: words[2] as usize,
        }
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }

    /// Asks the processor for all of it.
    #[inline]
    pub(super) fn approach(&self) {
        prefetch(&self.0);
    }

    /// Where a leaf is that is there.
    ///
    /// # Panics
    /// If it is not.
    #[inline]
    pub(super) fn leaf(&self, index: usize) -> RemoteAddr {
        assert!(index < self.len(), "a leaf that is there");
        let width = (self.0[2] >> 16) as usize;
        let at = (HEADER_WORDS + self.line_count() * LINE_WORDS) * 8 + index * width;
        let (word, bits) = (at / 8, (at % 8) * 8);
        let low = self.0[word] >> bits;
        // What is behind the word belongs to it as well, if there is anything.
        let high = match bits {
            0 => 0,
            _ => self.0.get(word + 1).map_or(0, |next| next << (64 - bits)),
        };
        let units = (low | high) & (u64::MAX >> (64 - 8 * width));
        address((self.0[3] + units) << ALIGNED_BITS)
    }

    /// The leaves that a key may be in which is not smaller than the smallest, nor larger than the largest key of the node.
    #[inline]
    pub(super) fn window(&self, shape: Shape, key: Key) -> Range<usize> {
        let distance = distance(key, self.low());
        let count = self.line_count();
        let behind = (1..count)
            .find(|&index| self.line(index).from > distance)
            .unwrap_or(count);
        // What is behind a line's last leaf but before the next line belongs to that leaf.
        let end = if behind < count {
            self.line(behind).first
        } else {
            self.len()
        };
        let place = self.line(behind - 1).place(distance).min(end as f64);
        let error = match is_planted("rolex: a model that is never wrong") {
            true => 0.0,
            false => error(shape) + ROUNDING,
        };
        let first = (place - 1.0 - error).ceil().max(0.0) as usize;
        let last = ((place + error) as usize).min(self.len() - 1);
        first..last + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_fabric::NodeId;
    use proptest::collection::btree_set;
    use proptest::prelude::*;

    fn addr(node: u16, number: u64) -> RemoteAddr {
        RemoteAddr::new(NodeId::new(node), number * 32)
    }

    fn shapes() -> impl Strategy<Value = Shape> {
        prop_oneof![
            Just(Shape::unsorted(16)),
            Just(Shape::unsorted(2)),
            Just(Shape::hopscotch(64, 8)),
        ]
    }

    /// Keys in one line need one, of which every leaf of 16 leaves three, and every leaf of 64 one or two.
    #[test]
    fn evenly_spread_keys_are_one_line() {
        let leaves: Vec<(Key, RemoteAddr)> = (0..64).map(|leaf| (leaf * 1000, addr(0, leaf as u64))).collect();
        for (shape, widths) in [(Shape::unsorted(16), 3..=3), (Shape::hopscotch(64, 8), 1..=2)] {
            let model = Model::train(shape, &leaves).expect("keys that differ");
            assert_eq!(model.line_count(), 1);
            for key in 3001..60_000 {
                let window = model.window(shape, key);
                assert!(key % 1000 == 0 || widths.contains(&window.len()), "{key}: {window:?}");
                assert!(window.len() <= WINDOW_MAX && window.contains(&(key as usize / 1000)));
            }
        }
    }

    /// Smallest keys that are one number to the processor have no line.
    #[test]
    fn keys_that_lines_do_not_tell_apart_have_no_model() {
        let far = 1 << 100;
        let leaves = [(0, addr(0, 1)), (far, addr(0, 2)), (far + 1, addr(0, 3))];
        assert!(Model::train(Shape::unsorted(16), &leaves).is_none());
        assert!(Model::train(Shape::unsorted(16), &leaves[..2]).is_some());
    }

    proptest! {
        #[test]
        fn the_leaf_of_a_key_is_in_its_window(
            shape in shapes(), keys in btree_set(any::<u64>(), 1..64), shift in 0_u32..64, asked: u64, last: u64,
        ) {
            let keys: Vec<Key> = keys.into_iter().map(|key| Key::from(key) << shift).collect();
            let leaves: Vec<(Key, RemoteAddr)> = keys.iter().copied().zip((1..).map(|n| addr(0, n))).collect();
            let model = Model::train(shape, &leaves).expect("keys that differ");
            prop_assert_eq!((model.low(), model.len()), (keys[0], keys.len()));
            let near = keys.iter().flat_map(|&key| [key, key + 1, key.saturating_sub(1)]);
            let others = [asked, last].map(|key| Key::from(key) << shift);
            for key in near.chain(others).filter(|&key| key >= keys[0]) {
                let leaf = keys.partition_point(|&first| first <= key) - 1;
                let window = model.window(shape, key);
                prop_assert!(window.contains(&leaf), "{} in {:?}", leaf, window);
                prop_assert!(window.len() <= WINDOW_MAX);
            }
        }

        #[test]
        fn leaves_are_where_they_were(
            offsets in proptest::collection::vec(0_u64..1 << 40, 1..64), nodes in 0_u16..300, shift in 0_u32..40,
        ) {
            let place = |index: usize, offset: u64| addr(index as u16 % (nodes + 1), offset >> shift);
            let leaves: Vec<(Key, RemoteAddr)> =
                offsets.iter().enumerate().map(|(index, &offset)| (index as Key, place(index, offset))).collect();
            let model = Model::train(Shape::unsorted(16), &leaves).expect("keys that differ");
            let found: Vec<RemoteAddr> = (0..model.len()).map(|index| model.leaf(index)).collect();
            prop_assert_eq!(found, leaves.iter().map(|&(_, addr)| addr).collect::<Vec<_>>());
        }
    }
}
