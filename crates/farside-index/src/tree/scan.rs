//! Reading keys in order.
//!
//! On the path: READs the leaves that the parent names, several in one round trip, and goes along: each leaf that is whole says
//! up to which key it reaches, and which leaf comes next.
//!
//! # Never missed, never twice
//! A scan has come to a key, and takes from a leaf only what is not smaller; then it has come to the key behind the leaf's
//! upper fence. A leaf whose range does not hold that key is not used, nor one that is gone. So each key is taken from a
//! leaf that it belonged to when the leaf was read, and which was whole then: whatever splits and merges meanwhile, a key
//! that is there throughout is seen once.
//!
//! CHIME leaves entries out of a READ where it can tell that they hold no wanted key, which takes keys that are dense.

use arrayvec::ArrayVec;
use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, Endpoint, OpContext, RemoteAddr, Slice};
use farside_pool::Pin;

use super::Tree;
use super::layout::{Key, LEAF_SPAN_MAX, with_known_shape};
use super::leaf::Fences;
use crate::error::IndexError;

/// How many leaves are read together.
const LEAVES_MAX: usize = 8;
/// How many leaves are asked for ahead of the one that is looked at, where memory is mapped.
const LEAVES_AHEAD: usize = 2;
/// How many bytes one hint asks for.
const APPROACHED_BYTES: u32 = 256;

/// How many bits the number of an entry has.
const ENTRY_BITS: u32 = LEAF_SPAN_MAX.ilog2();

/// Sorts numbers of at most so many bits. Keys of a leaf are spread over what is between its fences, as a rule: each goes where
/// it would stand if they were spread evenly, and then a few steps at most.
fn sort_spread(numbers: &mut ArrayVec<u64, LEAF_SPAN_MAX>, bits: u32) {
    /// So many parts.
    const PARTS: usize = 64;
    /// With more in one part they are not spread.
    const TOGETHER_MAX: u16 = 8;
    let shift = bits.saturating_sub(PARTS.ilog2());
    let part = |number: u64| (number >> shift) as usize % PARTS;
    let mut ends = [0_u16; PARTS];
    for &number in &*numbers {
        ends[part(number)] += 1;
    }
    if ends.iter().any(|&count| count > TOGETHER_MAX) {
        return numbers.sort_unstable();
    }
    let mut end = 0;
    for count in &mut ends {
        end += *count;
        *count = end;
    }
    let unsorted = numbers.clone();
    for &number in &unsorted {
        let end = &mut ends[part(number)];
        *end -= 1;
        numbers[usize::from(*end)] = number;
    }
    for index in 1..numbers.len() {
        let number = numbers[index];
        let mut at = index;
        while at > 0 && numbers[at - 1] > number {
            numbers[at] = numbers[at - 1];
            at -= 1;
        }
        numbers[at] = number;
    }
}

impl<E: Endpoint> Tree<E> {
    /// Visits up to `count` keys from `from` on, in ascending order, with their values. Returns the key to go on with, `None`
    /// at the end.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub async fn scan(
        &self,
        cx: &mut OpContext<E>,
        from: impl Into<Key>,
        count: usize,
        visit: &mut dyn FnMut(Key, u64),
    ) -> Result<Option<Key>, IndexError> {
        let pin = self.pin();
        let (mut next, mut left) = (from.into(), count);
        // The leaf that its left neighbour has named, if the parent cannot be asked.
        let mut known: Option<RemoteAddr> = None;
        let mut torn = 0;
        // Ends: each round comes to a later key, goes to the right, or reads again what was being written.
        while left > 0 {
            let leaves = match known.take() {
                Some(leaf) => vec![leaf],
                None => self.leaves_from(cx, next, left, &pin).await?,
            };
            let is_mapped = leaves
                .iter()
                .take(LEAVES_AHEAD)
                .all(|&leaf| self.approach_leaf(cx, leaf));
            if !is_mapped {
                self.read_leaves(cx, &leaves).await?;
            }
            for (index, &leaf) in leaves.iter().enumerate() {
                let (shape, bytes) = (self.shape(), self.shape().leaf_bytes() as usize);
                let mut area = index * bytes..(index + 1) * bytes;
                if is_mapped {
                    if let Some(&later) = leaves.get(index + LEAVES_AHEAD) {
                        self.approach_leaf(cx, later);
                    }
                    self.load_leaf(cx, leaf).await?;
                    area = 0..bytes;
                }
                let judged = with_known_shape!(shape => shape.examine_all(&cx.buffer()[area.clone()]));
                // By checks and versions; or it is not used.
                cx.validated();
                let Ok((fences, sibling)) = judged else {
                    torn += 1;
                    known = Some(leaf);
                    self.read_torn(cx, leaf, torn, &pin).await?;
                    break;
                };
                let is_gone = sibling.is_gone() && !is_planted("tree: a scan of a leaf that is gone");
                if is_gone || next < fences.low {
                    self.forget_parent(cx, next).await?;
                    let task = self.clean_later(next);
                    self.wait_for(cx, &task).await?;
                    break;
                }
                if next > fences.high {
                    self.forget_parent(cx, next).await?;
                    known = Some(sibling.next());
                    break;
                }
                let image = &cx.buffer()[area];
                if let Some(stopped) = self.take(image, (next, &mut left), fences, visit) {
                    return Ok(stopped);
                }
                next = fences.high + 1;
                if leaves.get(index + 1).is_none_or(|&leaf| leaf != sibling.next()) {
                    known = (index + 1 < leaves.len()).then_some(sibling.next());
                    break;
                }
            }
        }
        Ok(Some(next))
    }

    /// Takes the keys of a leaf; returns how the scan ends if it does.
    fn take(
        &self,
        image: &[u8],
        (next, left): (Key, &mut usize),
        fences: Fences,
        visit: &mut dyn FnMut(Key, u64),
    ) -> Option<Option<Key>> {
        let shape = self.shape();
        let bits = u64::BITS - ((fences.high - fences.low) as u64).leading_zeros() + ENTRY_BITS;
        // As a rule a key above the lower fence and its entry are one number, which sorts faster than two.
        let is_narrow = !shape.has_pointers() && bits <= u64::BITS;
        let stopped = with_known_shape!(shape => {
            let (mut narrow, mut wide) = (ArrayVec::<u64, LEAF_SPAN_MAX>::new(), Vec::new());
            for entry in 0..shape.span() {
                let Some(key) = shape.taken(image, entry).filter(|&key| key >= next) else {
                    continue;
                };
                if is_narrow {
                    narrow.push(((key - fences.low) as u64) << ENTRY_BITS | entry as u64);
                } else if !shape.has_pointers() || !shape.pointer(image, entry).is_null() {
                    // Otherwise it is being deleted.
                    wide.push((key, entry));
                }
            }
            sort_spread(&mut narrow, bits);
            wide.sort_unstable();
            let narrow = narrow.iter().map(|&both| {
                let key = fences.low + Key::from(both >> ENTRY_BITS);
                (key, both as usize % LEAF_SPAN_MAX)
            });
            let mut last = None;
            for (key, entry) in narrow.chain(wide).take(*left) {
                visit(key, shape.value(image, entry));
                *left -= 1;
                last = Some(key);
            }
            last.filter(|_| *left == 0)
        });
        match stopped {
            Some(key) => Some(shape.key_after(key)),
            None => (fences.high == shape.key_max()).then_some(None),
        }
    }

    /// The leaf of a key, and those behind it that a scan of so many keys will probably come to.
    async fn leaves_from(
        &self,
        cx: &mut OpContext<E>,
        key: Key,
        count: usize,
        pin: &Pin,
    ) -> Result<Vec<RemoteAddr>, IndexError> {
        let place = self.locate(cx, key, pin).await?;
        let mut leaves = vec![place.leaf];
        let parent = self.shared.cache.borrow().lowest(1, 1, key);
        if let Some(parent) = parent {
            // Leaves are half full at least, but for deleted keys.
            let wanted = (count.div_ceil(self.shape().span() / 2)).clamp(1, LEAVES_MAX);
            let others = parent.children.iter().skip(parent.index_of(key) + 1);
            leaves.extend(others.take(wanted - 1).map(|(_, leaf)| leaf));
        }
        Ok(leaves)
    }

    /// READs whole leaves, one behind the other in the buffer.
    async fn read_leaves(&self, cx: &mut OpContext<E>, leaves: &[RemoteAddr]) -> Result<(), IndexError> {
        let bytes = self.shape().leaf_bytes() as u32;
        cx.reserve(bytes as usize * leaves.len());
        let mut batch = Batch::new();
        for (index, &leaf) in (0..).zip(leaves) {
            batch.read(leaf, Slice::new(index * bytes, bytes));
        }
        Ok(cx.post(&mut batch).await?)
    }

    /// Where memory is mapped: asks for all lines of a leaf. Returns whether it is.
    fn approach_leaf(&self, cx: &OpContext<E>, leaf: RemoteAddr) -> bool {
        let bytes = self.shape().leaf_bytes() as u32;
        let mut parts = (0..bytes).step_by(APPROACHED_BYTES as usize);
        parts.all(|at| cx.approach(leaf.plus(at.into()), APPROACHED_BYTES.min(bytes - at)))
    }

    /// The same as READing it alone, where memory is mapped.
    async fn load_leaf(&self, cx: &mut OpContext<E>, leaf: RemoteAddr) -> Result<(), IndexError> {
        let whole = Slice::first(self.shape().leaf_bytes() as u32);
        cx.reserve(whole.bytes as usize);
        if !cx.load(leaf, whole) {
            // It is not any more: a verb says why.
            self.read_leaves(cx, &[leaf]).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_are_sorted(bits in 0_u32..=64, drawn in vec(any::<u64>(), 0..LEAF_SPAN_MAX)) {
            let numbers = drawn.iter().map(|&number| number.checked_shr(64 - bits).unwrap_or(0));
            let mut numbers: ArrayVec<u64, LEAF_SPAN_MAX> = numbers.collect();
            let mut expected = numbers.to_vec();
            expected.sort_unstable();
            sort_spread(&mut numbers, bits);
            prop_assert_eq!(&numbers[..], &expected[..]);
        }
    }
}
