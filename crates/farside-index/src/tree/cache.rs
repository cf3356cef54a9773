//! The internal nodes that a compute node remembers.
//!
//! On the path: first thing of every operation; a node of level 1 that covers the key leads to its leaf without a verb.
//!
//! Nodes are kept by level and key rather than by address: on each level at most one covers a key, the one that was read
//! last. What a node says may be out of date; the leaf tells (sibling-based validation, CHIME section 4.2.3), and then it is
//! forgotten. What it must not do is lead to memory that is something else by now: see [`super::descend`].

use super::LEVEL_MAX;
use super::inner::{Inner, count_up_to};
use super::layout::Key;

/// The most nodes of a part of a level.
const PART_MAX: usize = 64;
/// For how many nodes a part takes and gives back memory at once.
const STEP: usize = 8;

/// Nodes of one level by their smallest key, in parts of a few: flat, since every operation begins with a look at it, and half of
/// the time that a map with nodes of its own takes is to wait for one after the other.
#[derive(Clone, Default, Debug)]
struct Level {
    /// The smallest key of each part.
    firsts: Vec<Key>,
    /// Never empty.
    parts: Vec<Part>,
}

#[derive(Clone, Debug)]
struct Part {
    keys: Vec<Key>,
    /// In one piece, too: only their children are somewhere else.
    nodes: Vec<Inner>,
}

impl Part {
    fn insert(&mut self, index: usize, key: Key, node: Inner) {
        if self.keys.len() == self.keys.capacity() {
            self.keys.reserve_exact(STEP);
            self.nodes.reserve_exact(STEP);
        }
        self.keys.insert(index, key);
        self.nodes.insert(index, node);
    }

    fn remove(&mut self, index: usize) -> Inner {
        self.keys.remove(index);
        let removed = self.nodes.remove(index);
        self.shrink();
        removed
    }

    /// The nodes from one on.
    fn split_off(&mut self, from: usize) -> Self {
        let (keys, nodes) = (self.keys.split_off(from), self.nodes.split_off(from));
        self.shrink();
        Self { keys, nodes }
    }

    fn shrink(&mut self) {
        if self.keys.capacity() > self.keys.len() + STEP {
            self.keys.shrink_to(self.keys.len());
            self.nodes.shrink_to(self.nodes.len());
        }
    }
}

/// Where in its level a node was found. What is there now may be another one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    part: usize,
    index: usize,
}

impl Level {
    /// Where the last node is whose smallest key is not larger than this one.
    #[inline]
    fn spot(&self, key: Key) -> Option<Spot> {
        let part = self.firsts.partition_point(|&first| first <= key).checked_sub(1)?;
        let index = count_up_to(&self.parts[part].keys, |&first| first <= key) - 1;
        Some(Spot { part, index })
    }

    /// The last node whose smallest key is not larger than this one.
    #[inline]
    fn last_up_to(&self, key: Key) -> Option<(Key, &Inner)> {
        let Spot { part, index } = self.spot(key)?;
        Some((self.parts[part].keys[index], &self.parts[part].nodes[index]))
    }

    /// The first node whose smallest key is not smaller than this one.
    fn first_from(&self, key: Key) -> Option<(Key, &Inner)> {
        let at = self.firsts.partition_point(|&first| first <= key).saturating_sub(1);
        let mut parts = self.parts[at.min(self.parts.len())..].iter();
        parts.find_map(|part| {
            let index = part.keys.partition_point(|&first| first < key);
            Some((*part.keys.get(index)?, &part.nodes[index]))
        })
    }

    /// Adds a node whose smallest key no other one has.
    fn insert(&mut self, key: Key, node: Inner) {
        if self.parts.is_empty() {
            self.firsts.push(key);
            self.parts.push(Part {
                keys: vec![key],
                nodes: vec![node],
            });
            return;
        }
        let mut at = self.firsts.partition_point(|&first| first <= key).saturating_sub(1);
        if self.parts[at].keys.len() == PART_MAX {
            // A full last part is left as it is: nodes are read from left to right, or in any order.
            let is_behind = at + 1 == self.parts.len() && self.parts[at].keys.last().is_some_and(|&last| last < key);
            let from = if is_behind { PART_MAX - 1 } else { PART_MAX / 2 };
            let behind = self.parts[at].split_off(from);
            self.firsts.insert(at + 1, behind.keys[0]);
            self.parts.insert(at + 1, behind);
            at += usize::from(self.firsts[at + 1] <= key);
        }
        let part = &mut self.parts[at];
        let index = part.keys.partition_point(|&first| first <= key);
        part.insert(index, key, node);
        self.firsts[at] = part.keys[0];
    }

    /// Takes out the node with this smallest key.
    fn remove(&mut self, key: Key) -> Option<Inner> {
        let at = self.firsts.partition_point(|&first| first <= key).checked_sub(1)?;
        let part = &mut self.parts[at];
        let index = part.keys.binary_search(&key).ok()?;
        let removed = part.remove(index);
        match part.keys.first() {
            Some(&first) => self.firsts[at] = first,
            None => {
                self.firsts.remove(at);
                self.parts.remove(at);
            }
        }
        Some(removed)
    }
}

/// Nodes up to a budget of bytes.
#[derive(Clone, Debug)]
pub(super) struct NodeCache {
    /// Nodes of each level by their smallest key.
    levels: [Level; LEVEL_MAX as usize + 1],
    bytes: usize,
    bytes_max: usize,
    /// Where the search for a node to forget goes on: on which level, from which key on.
    hand: (u8, Key),
    /// Every node that was taken out of the tree up to this version was forgotten.
    version: u64,
}

/// What a node takes: its children, and its place in the level, with its share of what its part has to spare: parts are between
/// half full and full, and have half a step to spare on average.
fn bytes_of(node: &Inner) -> usize {
    let place = size_of::<Key>() + size_of::<Inner>();
    let spare = place * (STEP / 2) / (PART_MAX * 3 / 4);
    let counts = 2 * size_of::<usize>();
    place + spare + counts + node.children.bytes()
}

impl NodeCache {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            levels: Default::default(),
            bytes: 0,
            bytes_max,
            hand: (0, 0),
            version: 0,
        }
    }

    /// Bytes in use.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The node of a level that covers a key.
    #[inline]
    pub(super) fn covering(&self, level: u8, key: Key) -> Option<&Inner> {
        let (_, found) = self.levels[usize::from(level)].last_up_to(key)?;
        found.is_used.set(true);
        (found.high >= key).then_some(found)
    }

    /// Asks the processor for the children of the node of a level that covers a key; returns where it is.
    #[inline]
    pub(super) fn approach(&self, level: u8, key: Key) -> Option<Spot> {
        let level = &self.levels[usize::from(level)];
        let spot = level.spot(key)?;
        level.parts[spot.part].nodes[spot.index].children.approach();
        Some(spot)
    }

    /// The node of a level that covers a key, if it is still there.
    #[inline]
    pub(super) fn covering_at(&self, level: u8, spot: Spot, key: Key) -> Option<&Inner> {
        let part = self.levels[usize::from(level)].parts.get(spot.part)?;
        let found = part.nodes.get(spot.index)?;
        found.is_used.set(true);
        (part.keys[spot.index] <= key && key <= found.high).then_some(found)
    }

    /// The node of the lowest level from `level` on that covers a key.
    pub(super) fn lowest(&self, level: u8, level_max: u8, key: Key) -> Option<Inner> {
        (level..=level_max).find_map(|level| self.covering(level, key).cloned())
    }

    /// Remembers a node in place of those that cover a part of its keys.
    pub(super) fn remember(&mut self, node: Inner) {
        let (level, fences) = (node.level, node.fences());
        // Ends: each round forgets one.
        while let Some((at, _)) = self.levels[usize::from(level)]
            .last_up_to(fences.high)
            .filter(|(_, other)| other.high >= fences.low)
        {
            self.remove(level, at);
        }
        let bytes = bytes_of(&node);
        while self.bytes + bytes > self.bytes_max && self.forget_one() {}
        if bytes <= self.bytes_max {
            self.bytes += bytes;
            node.is_used.set(true);
            self.levels[usize::from(level)].insert(fences.low, node);
        }
    }

    /// Forgets the node of a level that covers a key.
    pub(super) fn forget(&mut self, level: u8, key: Key) {
        let found = self.levels.get(usize::from(level));
        let found = found.and_then(|nodes| nodes.last_up_to(key));
        if let Some((at, _)) = found.filter(|(_, found)| found.high >= key) {
            self.remove(level, at);
        }
    }

    /// Forgets everything, if a node was taken out of the tree since.
    pub(super) fn catch_up(&mut self, version: u64) -> bool {
        let is_behind = self.version != version;
        if is_behind {
            self.clear();
            self.version = version;
        }
        is_behind
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.levels = Default::default();
        self.bytes = 0;
    }

    fn remove(&mut self, level: u8, at: Key) {
        if let Some(removed) = self.levels[usize::from(level)].remove(at) {
            self.bytes -= bytes_of(&removed);
        }
    }

    /// Second chance: forgets the next node that was not used since the hand came by; returns whether there is any.
    fn forget_one(&mut self) -> bool {
        if self.bytes == 0 {
            return false;
        }
        // Ends: the second time round everything is unused.
        loop {
            let (level, from) = self.hand;
            let Some((at, found)) = self.levels[usize::from(level)].first_from(from) else {
                self.hand = ((level + 1) % (LEVEL_MAX + 1), 0);
                continue;
            };
            self.hand = match at.checked_add(1) {
                Some(next) => (level, next),
                None => ((level + 1) % (LEVEL_MAX + 1), 0),
            };
            if !found.is_used.replace(false) {
                self.remove(level, at);
                return true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::inner::Children;
    use super::super::layout::Shape;
    use super::super::leaf::Fences;
    use super::*;
    use farside_fabric::RemoteAddr;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn node(level: u8, low: Key, high: Key) -> Inner {
        Inner {
            level,
            high,
            sibling: RemoteAddr::NULL,
            next_child: RemoteAddr::NULL,
            children: Children::new(Shape::unsorted(8), [(low, RemoteAddr::NULL)]),
            is_gone: false,
            is_used: core::cell::Cell::default(),
        }
    }

    proptest! {
        #[test]
        fn level_is_an_ordered_map(changes in vec((0_u128..300, 0_u32..4), 1..800), is_ascending: bool) {
            let (mut level, mut model) = (Level::default(), BTreeMap::new());
            for (at, (drawn, what)) in (0..).zip(changes) {
                let key = if is_ascending && what > 0 { at } else { drawn };
                if what == 0 {
                    prop_assert_eq!(level.remove(key).is_some(), model.remove(&key).is_some());
                } else if model.insert(key, ()).is_none() {
                    level.insert(key, node(1, key, key));
                }
                let is_tight = |part: &Part| {
                    let (len, room) = (part.keys.len(), part.keys.capacity().max(part.nodes.capacity()));
                    (1..=PART_MAX).contains(&len) && room <= len + STEP
                };
                prop_assert!(level.parts.iter().all(is_tight));
                for asked in [drawn, key, key + 1] {
                    let found = level.last_up_to(asked).map(|(found, node)| (found, node.low()));
                    prop_assert_eq!(found, model.range(..=asked).next_back().map(|(&key, ())| (key, key)));
                    let found = level.first_from(asked).map(|(found, node)| (found, node.low()));
                    prop_assert_eq!(found, model.range(asked..).next().map(|(&key, ())| (key, key)));
                }
            }
        }

        #[test]
        fn last_node_that_was_read_is_found_within_the_budget(
            nodes in vec((1_u8..3, 0_u128..100, 0_u128..20), 1..60), key in 0_u128..120, room in 0_usize..40
        ) {
            let bytes_max = room * bytes_of(&node(1, 0, 0));
            let mut cache = NodeCache::new(bytes_max);
            let mut roomy = NodeCache::new(usize::MAX);
            for &(level, low, width) in &nodes {
                cache.remember(node(level, low, low + width));
                roomy.remember(node(level, low, low + width));
                prop_assert!(cache.bytes() <= bytes_max);
            }
            let covers = |&&(level, low, width): &&(u8, Key, Key)| level == 1 && (low..=low + width).contains(&key);
            // Of two that overlap the earlier one is forgotten as a whole.
            if let Some(&(_, low, width)) = nodes.iter().rfind(covers) {
                let later = nodes.iter().rev().take_while(|&&node| node != (1, low, width));
                let is_overlaid = later.into_iter().any(|&(level, other, other_width)| {
                    level == 1 && other <= low + width && low <= other + other_width
                });
                if !is_overlaid {
                    let found = roomy.lowest(1, 1, key).expect("it covers the key");
                    prop_assert_eq!(found.fences(), Fences { low, high: low + width });
                }
            }
            if let Some(found) = cache.lowest(1, 2, key) {
                prop_assert!(found.fences().contains(key));
                cache.forget(found.level, key);
                prop_assert!(cache.lowest(found.level, found.level, key).is_none());
            }
            cache.catch_up(1);
            prop_assert_eq!(cache.bytes(), 0);
        }
    }
}
