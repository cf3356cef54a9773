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
//!   (a node is only ever absorbed by its left neighbour under the same parent), so this changes when the sibling does.
//! - A node that is gone is written once more, to say so: see `shrink`.

use core::cell::Cell;
use core::ops::Range;
use std::rc::Rc;

use farside_fabric::{RemoteAddr, Slice, prefetch};
use xxhash_rust::xxh3::xxh3_64;

use super::layout::{IMAGE_AT, INNER_SPAN, Key, Shape};
use super::leaf::{Fences, set_word, word};
use super::model::Model;
use super::words::address;

/// The children of a node, ascending, each with its smallest key. As narrow as the keys of the tree are, since most of what a
/// client remembers is these. Clones share them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Children {
    Narrow(Rc<[(u64, RemoteAddr)]>),
    /// Keys as two words, the higher one first.
    Wide(Rc<[([u64; 2], RemoteAddr)]>),
    /// Of a node that is remembered, in a learned tree: without their smallest keys, but for the first.
    Learned(Model),
}

fn wide(key: Key) -> [u64; 2] {
    [(key >> 64) as u64, key as u64]
}

fn key_of(words: [u64; 2]) -> Key {
    Key::from(words[0]) << 64 | Key::from(words[1])
}

fn edit<T: Copy, R>(slice: &mut Rc<[T]>, edit: impl FnOnce(&mut Vec<T>) -> R) -> R {
    let mut items = slice.to_vec();
    let edited = edit(&mut items);
    *slice = items.into();
    edited
}

/// How many of some that ascend are still up to something. A node is some lines that are in no near cache: these loads do not
/// wait for each other but for once, where a binary search would wait for each.
#[inline]
pub(super) fn count_up_to<T>(ascending: &[T], is_up_to: impl Fn(&T) -> bool) -> usize {
    const STEP: usize = 8;
    let steps = ascending.iter().step_by(STEP).filter(|one| is_up_to(one)).count();
    let from = steps.saturating_sub(1) * STEP;
    from + ascending[from..].iter().take(STEP).filter(|one| is_up_to(one)).count()
}

impl Children {
    /// Children for a tree of this shape.
    pub(super) fn new(shape: Shape, children: impl IntoIterator<Item = (Key, RemoteAddr)>) -> Self {
        let children = children.into_iter();
        if shape.has_pointers() {
            Self::Wide(children.map(|(key, child)| (wide(key), child)).collect())
        } else {
            Self::Narrow(children.map(|(key, child)| (key as u64, child)).collect())
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Narrow(children) => children.len(),
            Self::Wide(children) => children.len(),
            Self::Learned(model) => model.len(),
        }
    }

    /// Bytes that they take.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Narrow(children) => size_of_val(&**children),
            Self::Wide(children) => size_of_val(&**children),
            Self::Learned(model) => model.bytes(),
        }
    }

    /// Asks the processor for all of them.
    #[inline]
    pub(super) fn approach(&self) {
        match self {
            Self::Narrow(children) => prefetch(children),
            Self::Wide(children) => prefetch(children),
            Self::Learned(model) => model.approach(),
        }
    }

    /// A child; `None` if it is not there, or its smallest key is not known.
    pub(super) fn get(&self, index: usize) -> Option<(Key, RemoteAddr)> {
        match self {
            Self::Narrow(children) => children.get(index).map(|&(key, child)| (key.into(), child)),
            Self::Wide(children) => children.get(index).map(|&(key, child)| (key_of(key), child)),
            Self::Learned(_) => None,
        }
    }

    /// Where a child is that is there.
    ///
    /// # Panics
    /// If it is not.
    #[inline]
    fn addr(&self, index: usize) -> RemoteAddr {
        match self {
            Self::Narrow(children) => children[index].1,
            Self::Wide(children) => children[index].1,
            Self::Learned(model) => model.leaf(index),
        }
    }

    /// The smallest key of the first.
    fn low(&self) -> Key {
        match self {
            Self::Learned(model) => model.low(),
            known => known.at(0).0,
        }
    }

    /// A child that is there, and whose smallest key is known.
    ///
    /// # Panics
    /// If it is not.
    pub(super) fn at(&self, index: usize) -> (Key, RemoteAddr) {
        self.get(index).expect("a child that is there")
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, RemoteAddr)> + '_ {
        (0..self.len()).map(|index| self.at(index))
    }

    /// How many have a smallest key that is not larger than this one.
    #[inline]
    pub(super) fn up_to(&self, key: Key) -> usize {
        match self {
            Self::Narrow(children) => match u64::try_from(key) {
                Ok(key) => count_up_to(children, |&(first, _)| first <= key),
                Err(_) => children.len(),
            },
            Self::Wide(children) => {
                let key = wide(key);
                count_up_to(children, |&(first, _)| first <= key)
            }
            Self::Learned(_) => unreachable!("a model says of several leaves that they may be it"),
        }
    }

    /// Where a smallest key is, or else would be.
    pub(super) fn find(&self, key: Key) -> Result<usize, usize> {
        let behind = self.up_to(key);
        match behind.checked_sub(1) {
            Some(index) if self.at(index).0 == key => Ok(index),
            _ => Err(behind),
        }
    }

    pub(super) fn insert(&mut self, index: usize, (key, child): (Key, RemoteAddr)) {
        match self {
            Self::Narrow(children) => edit(children, |children| children.insert(index, (key as u64, child))),
            Self::Wide(children) => edit(children, |children| children.insert(index, (wide(key), child))),
            Self::Learned(_) => unreachable!("a node that is changed was read"),
        }
    }

    pub(super) fn remove(&mut self, index: usize) -> (Key, RemoteAddr) {
        let removed = self.at(index);
        match self {
            Self::Narrow(children) => drop(edit(children, |children| children.remove(index))),
            Self::Wide(children) => drop(edit(children, |children| children.remove(index))),
            Self::Learned(_) => unreachable!("a node that is changed was read"),
        }
        removed
    }

    fn append(&mut self, others: &Self) {
        match (self, others) {
            (Self::Narrow(own), Self::Narrow(others)) => edit(own, |own| own.extend_from_slice(others)),
            (Self::Wide(own), Self::Wide(others)) => edit(own, |own| own.extend_from_slice(others)),
            _ => unreachable!("keys of a tree are of one width"),
        }
    }

    fn split_off(&mut self, index: usize) -> Self {
        match self {
            Self::Narrow(children) => Self::Narrow(edit(children, |children| children.split_off(index)).into()),
            Self::Wide(children) => Self::Wide(edit(children, |children| children.split_off(index)).into()),
            Self::Learned(_) => unreachable!("a node that is changed was read"),
        }
    }
}

/// An internal node as a client knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Inner {
    /// The largest key that may be below it; the smallest is that of its first child.
    pub(super) high: Key,
    pub(super) sibling: RemoteAddr,
    pub(super) next_child: RemoteAddr,
    /// Never empty.
    pub(super) children: Children,
    /// How far it is from the leaves, which are at 0.
    pub(super) level: u8,
    /// Whether it was taken out of the tree. Then no key is between its fences, and `sibling` is the node that has absorbed it,
    /// none if it was a root that has given way.
    pub(super) is_gone: bool,
    /// For whoever remembers the node: whether it was used of late. Here it takes no room.
    pub(super) is_used: Cell<bool>,
}

/// The word of a node that says whether it was taken out of the tree.
pub(super) const HEAD_AT: u64 = IMAGE_AT + 8;

/// The bit of that word which does.
const GONE: u64 = 1 << 16;

/// Whether that word is the one of a node that was taken out.
pub(super) fn is_gone(head: u64) -> bool {
    head & GONE != 0
}

/// A child, and what its sibling has to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Child {
    pub(super) addr: RemoteAddr,
    pub(super) next: RemoteAddr,
}

impl Shape {
    /// As much of an image that stands at `at` in a buffer as a node has that is gone.
    pub(super) const fn gone_image(self, at: u32) -> Slice {
        Slice::new(at, (self.children_at() + self.child_bytes()) as u32)
    }
}

impl Inner {
    /// Decodes an image; `None` if it is torn, or none.
    pub(super) fn decode(shape: Shape, image: &[u8]) -> Option<Self> {
        let head = word(image, 8);
        let (level, count) = (head as u8, (head >> 8) as u8 as usize);
        if !(1..=INNER_SPAN).contains(&count) {
            return None;
        }
        let end = shape.children_at() + count as u64 * shape.child_bytes();
        if word(image, 0) != xxh3_64(&image[8..end as usize]) {
            return None;
        }
        let children = (0..count as u64).map(|index| {
            let at = shape.children_at() + index * shape.child_bytes();
            (shape.key_at(image, at), address(word(image, at + shape.key_bytes())))
        });
        let children = Children::new(shape, children);
        // The low fence is there for whoever reads the memory; it is the first key.
        if shape.key_at(image, 16) != children.at(0).0 {
            return None;
        }
        let high_at = 16 + shape.key_bytes();
        let sibling_at = high_at + shape.key_bytes();
        Some(Self {
            high: shape.key_at(image, high_at),
            sibling: address(word(image, sibling_at)),
            next_child: address(word(image, sibling_at + 8)),
            children,
            level,
            is_gone: is_gone(head),
            is_used: Cell::default(),
        })
    }

    /// Encodes it to the start of `image`.
    pub(super) fn encode(&self, shape: Shape, image: &mut [u8]) {
        let count = self.children.len();
        assert!((1..=INNER_SPAN).contains(&count), "a node is split in time");
        let end = (shape.children_at() + count as u64 * shape.child_bytes()) as usize;
        let image_end = image.len().min(shape.image_bytes() as usize);
        image[end..image_end].fill(0);
        let high_at = 16 + shape.key_bytes();
        let sibling_at = high_at + shape.key_bytes();
        let gone = if self.is_gone { GONE } else { 0 };
        set_word(image, 8, u64::from(self.level) | (count as u64) << 8 | gone);
        shape.set_key_at(image, 16, self.low());
        shape.set_key_at(image, high_at, self.high);
        set_word(image, sibling_at, self.sibling.to_bits());
        set_word(image, sibling_at + 8, self.next_child.to_bits());
        for (index, (key, child)) in (0..).zip(self.children.iter()) {
            let at = shape.children_at() + index * shape.child_bytes();
            shape.set_key_at(image, at, key);
            set_word(image, at + shape.key_bytes(), child.to_bits());
        }
        let check = xxh3_64(&image[8..end]);
        set_word(image, 0, check);
    }

    /// The smallest key that may be below it.
    pub(super) fn low(&self) -> Key {
        self.children.low()
    }

    /// The keys that may be below it.
    pub(super) fn fences(&self) -> Fences {
        Fences {
            low: self.low(),
            high: self.high,
        }
    }

    /// Which child holds a key that is between the fences.
    pub(super) fn index_of(&self, key: Key) -> usize {
        self.children.up_to(key) - 1
    }

    /// Which children may hold a key that is between the fences: one, unless the node is a model.
    pub(super) fn window(&self, shape: Shape, key: Key) -> Range<usize> {
        match &self.children {
            Children::Learned(model) => model.window(shape, key),
            known => known.up_to(key) - 1..known.up_to(key),
        }
    }

    pub(super) fn is_learned(&self) -> bool {
        matches!(self.children, Children::Learned(_))
    }

    /// As a client of a learned tree remembers a node that it has read: by a model, if its children have one.
    pub(super) fn learned(mut self, shape: Shape) -> Self {
        let leaves: Vec<(Key, RemoteAddr)> = self.children.iter().collect();
        if let Some(model) = Model::train(shape, &leaves) {
            self.children = Children::Learned(model);
        }
        self
    }

    pub(super) fn child(&self, index: usize) -> Child {
        let next = if index + 1 < self.children.len() {
            self.children.addr(index + 1)
        } else {
            self.next_child
        };
        Child {
            addr: self.children.addr(index),
            next,
        }
    }

    /// Which child stands behind another one.
    pub(super) fn behind(&self, child: RemoteAddr) -> Option<usize> {
        let index = 1 + self.children.iter().position(|(_, other)| other == child)?;
        (index < self.children.len()).then_some(index)
    }

    /// What is left of a node that was taken out of the tree.
    pub(super) fn gone(shape: Shape, level: u8, heir: RemoteAddr) -> Self {
        Self {
            high: 0,
            sibling: heir,
            next_child: RemoteAddr::NULL,
            children: Children::new(shape, [(shape.key_max(), heir)]),
            level,
            is_gone: true,
            is_used: Cell::default(),
        }
    }

    /// Takes in the right sibling.
    pub(super) fn take_in(&mut self, right: &Self) {
        self.children.append(&right.children);
        (self.high, self.sibling, self.next_child) = (right.high, right.sibling, right.next_child);
    }

    /// Splits off the right half of a full node, which will be at `right`.
    pub(super) fn split_off(&mut self, right: RemoteAddr) -> Self {
        let children = self.children.split_off(self.children.len() / 2);
        let (key, first) = children.at(0);
        let other = Self {
            high: self.high,
            sibling: self.sibling,
            next_child: self.next_child,
            children,
            level: self.level,
            is_gone: false,
            is_used: Cell::default(),
        };
        self.high = key - 1;
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

    fn node(shape: Shape, keys: impl IntoIterator<Item = u64>) -> Inner {
        // Keys that differ in either half.
        let spread = |key: u64| match shape.has_pointers() {
            true => Key::from(key) << 40,
            false => key.into(),
        };
        let keys: Vec<Key> = core::iter::once(0).chain(keys).map(spread).collect();
        Inner {
            high: shape.key_max(),
            sibling: addr(1000),
            next_child: addr(2000),
            children: Children::new(shape, keys.into_iter().zip((1..).map(addr))),
            level: 1,
            is_gone: false,
            is_used: Cell::default(),
        }
    }

    fn shapes() -> impl Strategy<Value = Shape> {
        let shape = Shape::unsorted(8);
        prop_oneof![Just(shape), Just(shape.of_pointers())]
    }

    #[test]
    fn behind_the_last_child_there_is_none() {
        let node = node(Shape::unsorted(8), [5, 9]);
        assert_eq!(
            [1, 2, 3, 4].map(|number| node.behind(addr(number))),
            [Some(1), Some(2), None, None]
        );
    }

    #[test]
    fn a_node_that_is_gone_says_so_and_has_no_key() {
        for shape in [Shape::unsorted(8), Shape::unsorted(8).of_pointers()] {
            let gone = Inner::gone(shape, 3, addr(7));
            let mut image = vec![0xee; shape.image_bytes() as usize];
            gone.encode(shape, &mut image[..shape.gone_image(0).bytes as usize]);
            assert_eq!(Inner::decode(shape, &image), Some(gone.clone()));
            assert!(is_gone(word(&image, HEAD_AT - IMAGE_AT)));
            assert!([0, 1, shape.key_max()].iter().all(|&key| !gone.fences().contains(key)));
        }
    }

    #[test]
    fn remembered_nodes_are_small() {
        // Most of what a client remembers (CHIME, figure 14).
        assert_eq!(size_of::<Inner>(), 64);
    }

    proptest! {
        #[test]
        fn nodes_survive_encoding_and_tearing_is_noticed(
            shape in shapes(), keys in btree_set(1_u64.., 0..INNER_SPAN), torn in 0_usize..202
        ) {
            let node = node(shape, keys);
            let mut image = vec![0xee; shape.image_bytes() as usize];
            node.encode(shape, &mut image);
            prop_assert_eq!(Inner::decode(shape, &image), Some(node.clone()));
            let used = (shape.children_at() + node.children.len() as u64 * shape.child_bytes()) / 8;
            image[torn % used as usize * 8] ^= 1;
            prop_assert_eq!(Inner::decode(shape, &image), None);
        }

        #[test]
        fn counting_in_steps_is_searching(keys in btree_set(any::<u8>(), 0..INNER_SPAN + 9), key: u8) {
            let keys: Vec<u8> = keys.into_iter().collect();
            prop_assert_eq!(count_up_to(&keys, |&one| one <= key), keys.partition_point(|&one| one <= key));
        }

        #[test]
        fn halves_hold_what_the_whole_did(
            shape in shapes(), keys in btree_set(1_u64.., 1..INNER_SPAN), looked_for: u64, gone in 0_usize..INNER_SPAN
        ) {
            let mut whole = node(shape, keys);
            let at = 1 + gone % (whole.children.len() - 1);
            let removed = whole.children.remove(at);
            prop_assert_eq!(whole.children.find(removed.0), Err(at));
            whole.children.insert(at, removed);
            prop_assert_eq!(whole.children.find(removed.0), Ok(at));
            let mut left = whole.clone();
            let right = left.split_off(addr(3000));
            let looked_for = Key::from(looked_for);
            let half = if left.fences().contains(looked_for) { &left } else { &right };
            prop_assert!(half.fences().contains(looked_for));
            let found = half.child(half.index_of(looked_for));
            prop_assert_eq!(found, whole.child(whole.index_of(looked_for)));
            left.take_in(&right);
            prop_assert_eq!(left, whole);
        }
    }
}
