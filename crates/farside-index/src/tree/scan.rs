//! Reading keys in order.
//!
//! On the path: READs the leaves that the parent names, several in one round trip, and goes along: each leaf that is whole says
//! up to which key it reaches, and which leaf comes next.
//!
//! # Never missed, never twice
//! A scan has come to a key, and takes from a leaf only what is not smaller; then it has come to the key behind the leaf's
//! upper fence. A leaf whose range does not hold that key is not used, nor one that is gone. So each key is taken from a
//! leaf that it belonged to when the leaf was read, and which was whole then: whatever splits and merges meanwhile, a key
//! that is there throughout is seen once. One that goes and comes back while its leaf is read may stand in two entries of what was
//! read, unless leaves are hashed; either is what it was at some instant, and the first is taken.
//!
//! # What need not be read
//! Where as many keys are possible in a leaf as it has entries, keys probably follow each other without a gap. Then a scan of `n`
//! keys comes to the `n`th possible one, so the leaves that it reads are known; and of a hashed leaf of which few possible keys
//! are wanted, their neighbourhoods are read and no other entry (CHIME, section 4.4). In those each of them is looked for as by
//! a SEARCH, which says of the leaf what its fences would. If keys are missing after all, the scan goes on behind.

use std::ops::RangeInclusive;

use arrayvec::ArrayVec;
use farside_fabric::batch::BATCH_VERBS_MAX;
use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, OpContext, RemoteAddr, Slice};
use farside_pool::Pin;

use super::Tree;
use super::descend::Place;
use super::inner::Inner;
use super::layout::{Key, LEAF_SPAN_MAX, with_known_shape};
use super::leaf::Fences;
use super::search::{Seen, seen_in};
use crate::error::IndexError;

/// How many leaves are read together.
const LEAVES_MAX: usize = 8;
/// The same where a model names them: they are small, and some may have none of the keys.
const LEAVES_BY_MODEL_MAX: usize = 16;
/// From this share of their entries on leaves are as good as full.
const NEARLY_FULL: f32 = 0.95;
/// How many leaves are asked for ahead of the one that is looked at, where memory is mapped.
const LEAVES_AHEAD: usize = 2;
/// How many bytes one hint asks for.
const APPROACHED_BYTES: u32 = 256;

/// How many bits the number of an entry has.
const ENTRY_BITS: u32 = LEAF_SPAN_MAX.ilog2();

/// How many bytes more a READ has on the wire, about: what is shorter and not wanted is read as well.
const READ_BYTES: u32 = 96;
/// In how many parts a leaf is read at most.
const PARTS_MAX: usize = BATCH_VERBS_MAX / LEAVES_MAX;

/// A leaf that a scan reads.
#[derive(Debug)]
struct Ahead {
    leaf: RemoteAddr,
    /// What is read, if it is not all of it.
    few: Option<Few>,
    /// Whether a model leaves it open that all its keys are smaller than those that are wanted.
    may_precede: bool,
}

impl Ahead {
    fn whole(leaf: RemoteAddr) -> Self {
        Self {
            leaf,
            few: None,
            may_precede: false,
        }
    }
}

/// The neighbourhoods of some possible keys of a leaf.
#[derive(Debug)]
struct Few {
    keys: RangeInclusive<Key>,
    place: Place,
    parts: ArrayVec<Slice, PARTS_MAX>,
}

/// Sorts numbers of at most so many bits. Keys of a leaf are spread over what is between its fences, as a rule: each goes where
/// it would stand if they were spread evenly, and then a few steps at most.
fn sort_spread(numbers: &mut ArrayVec<u64, LEAF_SPAN_MAX>, bits: u32) {
    /// So many parts.
    const PARTS: usize = 64;
    /// With more in one part they are not spread.
    const TOGETHER_MAX: u16 = 8;
    /// So few are sorted before the parts are counted.
    const FEW: usize = 16;
    if numbers.len() <= FEW {
        return numbers.sort_unstable();
    }
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
    // A clone would copy the room for the longest as well.
    let mut unsorted = ArrayVec::<u64, LEAF_SPAN_MAX>::new();
    unsorted.extend(numbers.iter().copied());
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

/// Sorts keys of a leaf that are wider than a word, each with its entry, by as many bits as are left beside the entry of a
/// number that tells most of them apart.
fn sort_wide(keys: &mut Vec<(Key, usize)>) {
    let low = keys.iter().map(|&(key, _)| key).min().unwrap_or(0);
    let high = keys.iter().map(|&(key, _)| key).max().unwrap_or(0);
    let bits = Key::BITS - (high - low).leading_zeros() + ENTRY_BITS;
    let dropped = bits.saturating_sub(u64::BITS);
    let number = |&(key, _): &(Key, usize)| ((key - low) >> dropped) as u64;
    let mut numbers = ArrayVec::<u64, LEAF_SPAN_MAX>::new();
    numbers.extend((0..).zip(&*keys).map(|(index, key)| number(key) << ENTRY_BITS | index));
    sort_spread(&mut numbers, bits.min(u64::BITS));
    let sorted = numbers.iter().map(|&number| keys[number as usize % LEAF_SPAN_MAX]);
    *keys = sorted.collect();
    // What the number does not tell apart.
    if dropped > 0 {
        keys.sort();
    }
}

impl Tree {
    /// Visits up to `count` keys from `from` on, in ascending order, with their values. Returns the key to go on with, `None`
    /// at the end.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub async fn scan(
        &self,
        cx: &mut OpContext,
        from: impl Into<Key>,
        count: usize,
        visit: &mut dyn FnMut(Key, u64),
    ) -> Result<Option<Key>, IndexError> {
        let pin = self.pin();
        let (mut next, mut left) = (from.into(), count);
        // The leaf that its left neighbour has named, if the parent cannot be asked.
        let mut known: Option<RemoteAddr> = None;
        let mut torn = 0;
        let mut reads_whole = false;
        // Ends: each round comes to a later key, goes to the right, or reads again what was being written.
        while left > 0 {
            let leaves = match known.take() {
                Some(leaf) => vec![Ahead::whole(leaf)],
                None => self.leaves_from(cx, next, left, (reads_whole, &pin)).await?,
            };
            reads_whole = false;
            let is_mapped = leaves
                .iter()
                .take(LEAVES_AHEAD)
                .all(|ahead| self.approach_leaf(cx, ahead.leaf));
            if !is_mapped {
                self.read_leaves(cx, &leaves).await?;
            }
            for (index, ahead) in leaves.iter().enumerate() {
                let Ahead { leaf, few, may_precede } = ahead;
                let (leaf, may_precede) = (*leaf, *may_precede);
                let (shape, bytes) = (self.shape(), self.shape().leaf_bytes() as usize);
                let mut area = index * bytes..(index + 1) * bytes;
                if is_mapped {
                    if let Some(later) = leaves.get(index + LEAVES_AHEAD) {
                        self.approach_leaf(cx, later.leaf);
                    }
                    self.load_leaf(cx, leaf).await?;
                    area = 0..bytes;
                } else if let Some(few) = few {
                    let are_seen = self.take_few(&cx.buffer()[area], few, (&mut next, &mut left), visit);
                    // As above; what was not seen is read again.
                    cx.validated();
                    if !are_seen {
                        reads_whole = true;
                        break;
                    }
                    if next > self.shape().key_max() {
                        return Ok(None);
                    }
                    continue;
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
                    // One that is gone has its fences still, and need not be the one that the next key belongs to.
                    let task = self.clean_later(if is_gone { fences.low } else { next });
                    self.wait_for(cx, &task).await?;
                    break;
                }
                let is_followed = leaves.get(index + 1).is_some_and(|ahead| ahead.leaf == sibling.next());
                if next > fences.high {
                    if may_precede && is_followed {
                        continue;
                    }
                    self.forget_parent(cx, next).await?;
                    known = Some(sibling.next());
                    break;
                }
                let image = &cx.buffer()[area];
                if shape.is_learned() {
                    self.note_load(shape.entries(image).count());
                }
                if let Some(stopped) = self.take(image, (next, &mut left), fences, visit) {
                    return Ok(stopped);
                }
                next = fences.high + 1;
                if !is_followed {
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
            let room = if is_narrow { 0 } else { shape.span() };
            let (mut narrow, mut wide) = (ArrayVec::<u64, LEAF_SPAN_MAX>::new(), Vec::with_capacity(room));
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
            sort_wide(&mut wide);
            let narrow = narrow.iter().map(|&both| {
                let key = fences.low + Key::from(both >> ENTRY_BITS);
                (key, both as usize % LEAF_SPAN_MAX)
            });
            let mut last = None;
            for (key, entry) in narrow.chain(wide) {
                // A key may go from one entry and come to another while the leaf is read; in one that is hashed its home says so.
                if !shape.is_hashed() && last == Some(key) {
                    continue;
                }
                visit(key, shape.value(image, entry));
                *left -= 1;
                last = Some(key);
                if *left == 0 {
                    break;
                }
            }
            last.filter(|_| *left == 0)
        });
        match stopped {
            Some(key) => Some(shape.key_after(key)),
            None => (fences.high == shape.key_max()).then_some(None),
        }
    }

    /// Takes those of a few possible keys that are there; returns false at the first of which what was read does not say whether
    /// it is.
    fn take_few(
        &self,
        image: &[u8],
        few: &Few,
        (next, left): (&mut Key, &mut usize),
        visit: &mut dyn FnMut(Key, u64),
    ) -> bool {
        let shape = self.shape();
        for key in few.keys.clone() {
            if *left == 0 {
                break;
            }
            match with_known_shape!(shape => seen_in(shape, image, few.place, key)) {
                Some(Seen::Found(.., value)) => {
                    visit(key, value);
                    *left -= 1;
                }
                Some(Seen::Absent) => {}
                _ if is_planted("tree: a scan that takes what it cannot tell for absent") => {}
                Some(Seen::Elsewhere) | None => return false,
            }
            *next = key + 1;
        }
        true
    }

    /// The leaf of a key, and those behind it that a scan of so many keys will probably come to.
    async fn leaves_from(
        &self,
        cx: &mut OpContext,
        key: Key,
        count: usize,
        (reads_whole, pin): (bool, &Pin),
    ) -> Result<Vec<Ahead>, IndexError> {
        let shape = self.shape();
        if let Some(leaves) = self.leaves_by_model(key, count, None) {
            return Ok(leaves);
        }
        let place = self.locate(cx, key, pin).await?;
        if let Some(leaves) = self.leaves_by_model(key, count, Some(place.leaf)) {
            return Ok(leaves);
        }
        let parent = self.shared.cache.borrow().lowest(1, 1, key);
        let names_leaf =
            |parent: &Inner| !parent.is_learned() && parent.children.at(parent.index_of(key)).1 == place.leaf;
        let Some(parent) = parent.filter(names_leaf) else {
            return Ok(vec![Ahead::whole(place.leaf)]);
        };
        let first = parent.index_of(key);
        let range_of = |index: usize| {
            let next = parent.children.get(index + 1);
            parent.children.at(index).0..=next.map_or(parent.high, |(next, _)| next - 1)
        };
        let possible = range_of(first);
        // The last key, if there is no gap.
        let last = key.saturating_add(count as Key - 1).min(shape.key_max());
        let is_dense = !reads_whole && possible.end() - possible.start() < shape.span() as Key;
        // Otherwise leaves are half full at least, but for deleted keys.
        let wanted = count.div_ceil(shape.span() / 2).clamp(1, LEAVES_MAX);
        let mut leaves = Vec::with_capacity(wanted);
        for index in first..parent.children.len().min(first + LEAVES_MAX) {
            let possible = range_of(index);
            let is_wanted = if is_dense {
                *possible.start() <= last
            } else {
                leaves.len() < wanted
            };
            if !is_wanted {
                break;
            }
            let place = Place::of_child(&parent, index, true);
            let keys = key.max(*possible.start())..=last.min(*possible.end());
            let few = is_dense.then(|| self.few_of(place, keys)).flatten();
            leaves.push(Ahead {
                few,
                ..Ahead::whole(place.leaf)
            });
        }
        Ok(leaves)
    }

    /// Notes how many keys a leaf had, for what the next scan reads.
    fn note_load(&self, keys: usize) {
        const WEIGHT: f32 = 1.0 / 16.0;
        let load = &self.shared.load;
        load.set(load.get() + (keys as f32 - load.get()) * WEIGHT);
    }

    /// The same if this client remembers a model: from the first leaf that may have the key to the last one that may have the
    /// last key, if leaves have as many keys as those that it has scanned before. Of a parent that was read just now the leaf of
    /// the key is known.
    fn leaves_by_model(&self, key: Key, count: usize, known: Option<RemoteAddr>) -> Option<Vec<Ahead>> {
        let shape = self.shape();
        let cache = self.shared.cache.borrow();
        let parent = cache.covering(1, key).filter(|parent| parent.is_learned())?;
        let mut window = parent.window(shape, key);
        if let Some(known) = known {
            let first = window.clone().find(|&index| parent.child(index).addr == known)?;
            window = first..first + 1;
        }
        let load = self.shared.load.get().max(1.0);
        // One more where some have fewer: that is less than another round trip.
        let spare = usize::from(load < NEARLY_FULL * shape.span() as f32);
        let needed = (count as f32 / load).ceil() as usize;
        let wanted = (window.len() + spare).saturating_add(needed).min(LEAVES_BY_MODEL_MAX);
        let leaves = (window.start..parent.children.len().min(window.start + wanted)).map(|index| Ahead {
            may_precede: index + 1 < window.end,
            ..Ahead::whole(parent.child(index).addr)
        });
        Some(leaves.collect())
    }

    /// The neighbourhoods of some possible keys of a leaf, if they are much less than all of it.
    fn few_of(&self, place: Place, keys: RangeInclusive<Key>) -> Option<Few> {
        let (shape, without) = (self.shape(), self.shared.without.get());
        let is_few = shape.is_hashed() && keys.end() - keys.start() < shape.span() as Key;
        if !is_few || shape.has_pointers() || without.replicas {
            return None;
        }
        let neighbourhood = |key| shape.segments(shape.home(key), shape.circle().neighbourhood());
        let mut wanted: Vec<Slice> = keys.clone().flat_map(neighbourhood).collect();
        wanted.sort_unstable_by_key(|part| part.at);
        let mut parts = ArrayVec::<Slice, PARTS_MAX>::new();
        for part in wanted {
            match parts.last_mut() {
                Some(before) if part.at <= before.at + before.bytes + READ_BYTES => {
                    before.bytes = before.bytes.max(part.at + part.bytes - before.at);
                }
                _ => parts.try_push(part).ok()?,
            }
        }
        let bytes: u32 = parts.iter().map(|part| part.bytes + READ_BYTES).sum();
        (u64::from(bytes) < shape.leaf_bytes()).then_some(Few { keys, place, parts })
    }

    /// READs leaves, one behind the other in the buffer, or what is wanted of them.
    async fn read_leaves(&self, cx: &mut OpContext, leaves: &[Ahead]) -> Result<(), IndexError> {
        let bytes = self.shape().leaf_bytes() as u32;
        cx.reserve(bytes as usize * leaves.len());
        let mut batch = Batch::new();
        for (index, ahead) in (0..).zip(leaves) {
            let whole = [Slice::first(bytes)];
            for part in ahead.few.as_ref().map_or(&whole[..], |few| &few.parts) {
                batch.read(
                    ahead.leaf.plus(part.at.into()),
                    Slice::new(index * bytes + part.at, part.bytes),
                );
            }
        }
        Ok(cx.post(&mut batch).await?)
    }

    /// Where memory is mapped: asks for all lines of a leaf. Returns whether it is.
    fn approach_leaf(&self, cx: &OpContext, leaf: RemoteAddr) -> bool {
        let bytes = self.shape().leaf_bytes() as u32;
        let mut parts = (0..bytes).step_by(APPROACHED_BYTES as usize);
        parts.all(|at| cx.approach(leaf.plus(at.into()), APPROACHED_BYTES.min(bytes - at)))
    }

    /// The same as READing it alone, where memory is mapped.
    async fn load_leaf(&self, cx: &mut OpContext, leaf: RemoteAddr) -> Result<(), IndexError> {
        let whole = Slice::first(self.shape().leaf_bytes() as u32);
        cx.reserve(whole.bytes as usize);
        if !cx.load(leaf, whole) {
            // It is not any more: a verb says why.
            self.read_leaves(cx, &[Ahead::whole(leaf)]).await?;
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

        /// Keys that are equal stay in the order of their entries.
        #[test]
        fn wide_keys_are_sorted(bits in 0_u32..128, drawn in vec(any::<(Key, Key)>(), 0..LEAF_SPAN_MAX)) {
            let key = |&(high, low): &(Key, Key)| (high << bits) | (low % 256);
            let mut keys: Vec<(Key, usize)> = drawn.iter().map(key).zip(0..).collect();
            let mut expected = keys.clone();
            expected.sort();
            sort_wide(&mut keys);
            prop_assert_eq!(keys, expected);
        }
    }
}
