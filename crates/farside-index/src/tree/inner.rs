//! An internal node: which child holds which keys.
//!
//! On the path: between the root and a leaf, unless the client remembers it. Read and written as a whole; a check over all of
//! it tells whether what was read belongs together.
//!
//! A node is written under its lock in one doorbell: 1. the second image, 2. the intent, 3. the image, 4. no intent, 5. the
//! lock word. Whoever takes the lock over from a client that died in between finds the intent and copies the second image,
//! or finds none, and the image is whole.
//!
//! # Invariants
//! - The first key is the low fence. Child `n` holds the keys from key `n` on, up to key `n + 1` or the high fence.
//! - `next_child` is the first child of the sibling: what the last child has as its own sibling. A first child stays what it is
//!   (a leaf is only ever absorbed by its left neighbour under the same parent), so this changes with a split alone.

use core::cell::Cell;

use farside_fabric::{RemoteAddr, Slice};
use xxhash_rust::xxh3::xxh3_64;

use super::layout::{IMAGE_BYTES, INNER_SPAN, address};
use super::leaf::{Fences, set_word, word};

/// An internal node as a client knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Inner {
    /// How far it is from the leaves, which are at 0.
    pub(super) level: u8,
    pub(super) fences: Fences,
    pub(super) sibling: RemoteAddr,
    pub(super) next_child: RemoteAddr,
    /// Key and child, ascending; never empty.
    pub(super) children: Vec<(u64, RemoteAddr)>,
    /// For whoever remembers the node: whether it was used of late. Here it takes no room.
    pub(super) is_used: Cell<bool>,
}

/// Words before the children.
const HEADER_BYTES: u64 = 48;
const _: () = assert!(HEADER_BYTES + INNER_SPAN as u64 * 16 == IMAGE_BYTES);

/// The buffer that an image is read to.
pub(super) const IMAGE: Slice = Slice::first(IMAGE_BYTES as u32);

/// A child, and what its sibling has to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Child {
    pub(super) addr: RemoteAddr,
    pub(super) next: RemoteAddr,
}

impl Inner {
    /// Decodes an image; `None` if it is torn, or none.
    pub(super) fn decode(image: &[u8]) -> Option<Self> {
        let shape = word(image, 8);
        let (level, count) = (shape as u8, (shape >> 8) as usize);
        if !(1..=INNER_SPAN).contains(&count) {
            return None;
        }
        let end = HEADER_BYTES as usize + count * 16;
        if word(image, 0) != xxh3_64(&image[8..end]) {
            return None;
        }
        let at = |index: usize| HEADER_BYTES + index as u64 * 16;
        let children = (0..count).map(|index| (word(image, at(index)), address(word(image, at(index) + 8))));
        Some(Self {
            level,
            fences: Fences {
                low: word(image, 16),
                high: word(image, 24),
            },
            sibling: address(word(image, 32)),
            next_child: address(word(image, 40)),
            children: children.collect(),
            is_used: Cell::default(),
        })
    }

    /// Encodes it to the start of `image`.
    pub(super) fn encode(&self, image: &mut [u8]) {
        assert!(
            (1..=INNER_SPAN).contains(&self.children.len()),
            "a node is split in time"
        );
        let end = HEADER_BYTES as usize + self.children.len() * 16;
        image[end..IMAGE_BYTES as usize].fill(0);
        set_word(image, 8, u64::from(self.level) | (self.children.len() as u64) << 8);
        set_word(image, 16, self.fences.low);
        set_word(image, 24, self.fences.high);
        set_word(image, 32, self.sibling.to_bits());
        set_word(image, 40, self.next_child.to_bits());
        for (index, (key, child)) in (0..).zip(&self.children) {
            set_word(image, HEADER_BYTES + index * 16, *key);
            set_word(image, HEADER_BYTES + index * 16 + 8, child.to_bits());
        }
        let check = xxh3_64(&image[8..end]);
        set_word(image, 0, check);
    }

    /// Which child holds a key that is between the fences.
    pub(super) fn index_of(&self, key: u64) -> usize {
        self.children.partition_point(|&(first, _)| first <= key) - 1
    }

    pub(super) fn child(&self, index: usize) -> Child {
        let next = self.children.get(index + 1).map_or(self.next_child, |&(_, next)| next);
        Child {
            addr: self.children[index].1,
            next,
        }
    }

    /// Splits off the right half of a full node, which will be at `right`.
    pub(super) fn split_off(&mut self, right: RemoteAddr) -> Self {
        let children = self.children.split_off(self.children.len() / 2);
        let (key, first) = children[0];
        let other = Self {
            level: self.level,
            fences: Fences {
                low: key,
                high: self.fences.high,
            },
            sibling: self.sibling,
            next_child: self.next_child,
            children,
            is_used: Cell::default(),
        };
        self.fences.high = key - 1;
        self.sibling = right;
        self.next_child = first;
        other
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_fabric::NodeId;
    use proptest::collection::btree_set;
    use proptest::prelude::*;

    fn addr(number: u64) -> RemoteAddr {
        RemoteAddr::new(NodeId::new(0), number * 32)
    }

    fn node(keys: impl IntoIterator<Item = u64>) -> Inner {
        let keys: Vec<u64> = core::iter::once(0).chain(keys).collect();
        Inner {
            level: 1,
            fences: Fences::ALL,
            sibling: addr(1000),
            next_child: addr(2000),
            children: (1..).zip(keys).map(|(number, key)| (key, addr(number))).collect(),
            is_used: Cell::default(),
        }
    }

    proptest! {
        #[test]
        fn nodes_survive_encoding_and_tearing_is_noticed(keys in btree_set(1_u64.., 0..INNER_SPAN), torn in 0_usize..134) {
            let node = node(keys);
            let mut image = vec![0xee; IMAGE_BYTES as usize];
            node.encode(&mut image);
            prop_assert_eq!(Inner::decode(&image), Some(node.clone()));
            let used = 6 + node.children.len() * 2;
            image[torn % used * 8] ^= 1;
            prop_assert_eq!(Inner::decode(&image), None);
        }

        #[test]
        fn halves_hold_what_the_whole_did(keys in btree_set(1_u64.., 1..INNER_SPAN), looked_for: u64) {
            let whole = node(keys);
            let mut left = whole.clone();
            let right = left.split_off(addr(3000));
            let half = if left.fences.contains(looked_for) { &left } else { &right };
            prop_assert!(half.fences.contains(looked_for));
            let found = half.child(half.index_of(looked_for));
            prop_assert_eq!(found, whole.child(whole.index_of(looked_for)));
        }
    }
}
