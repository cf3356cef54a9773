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
use super::layout::{Key, LEAF_SPAN_MAX};
use super::leaf::Fences;
use crate::error::IndexError;

/// How many leaves are read together.
const LEAVES_MAX: usize = 8;
/// How many bytes one hint asks for.
const APPROACHED_BYTES: u32 = 256;

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
            self.read_leaves(cx, &leaves).await?;
            for (index, &leaf) in leaves.iter().enumerate() {
                let bytes = self.shape().leaf_bytes() as usize;
                let area = index * bytes..(index + 1) * bytes;
                let judged = self.shape().examine_all(&cx.buffer()[area.clone()]);
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
        // The key of an entry whose pointer is null is being deleted.
        let is_there = |entry| !shape.has_pointers() || !shape.pointer(image, entry).is_null();
        let entries = shape
            .entries(image)
            .filter(|&(entry, key)| key >= next && is_there(entry));
        // A key of 64 bits and its entry are one number, which sorts faster than two.
        let (mut narrow, mut wide) = (ArrayVec::<u128, LEAF_SPAN_MAX>::new(), Vec::new());
        if shape.has_pointers() {
            wide.extend(entries.map(|(entry, key)| (key, entry)));
            wide.sort_unstable();
        } else {
            narrow.extend(entries.map(|(entry, key)| key << 64 | entry as u128));
            narrow.sort_unstable();
        }
        let narrow = narrow.iter().map(|&both| (both >> 64, both as u16 as usize));
        for (key, entry) in narrow.chain(wide) {
            visit(key, shape.value(image, entry));
            *left -= 1;
            if *left == 0 {
                return Some(shape.key_after(key));
            }
        }
        (fences.high == shape.key_max()).then_some(None)
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
            // A hint, where memory is mapped: all lines of all leaves are on their way before the first is read.
            for at in (0..bytes).step_by(APPROACHED_BYTES as usize) {
                if !cx.approach(leaf.plus(at.into()), APPROACHED_BYTES.min(bytes - at)) {
                    break;
                }
            }
            batch.read(leaf, Slice::new(index * bytes, bytes));
        }
        Ok(cx.post(&mut batch).await?)
    }
}
