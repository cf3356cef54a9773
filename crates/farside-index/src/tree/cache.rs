//! The internal nodes that a compute node remembers.
//!
//! On the path: first thing of every operation; a node of level 1 that covers the key leads to its leaf without a verb.
//!
//! Nodes are kept by level and key rather than by address: on each level at most one covers a key, the one that was read
//! last. What a node says may be out of date; the leaf tells (sibling-based validation, CHIME section 4.2.3), and then it is
//! forgotten. What it must not do is lead to memory that is something else by now: see [`super::descend`].

use std::collections::BTreeMap;
use std::rc::Rc;

use super::inner::Inner;

/// Nodes up to a budget of bytes.
#[derive(Debug)]
pub(super) struct NodeCache {
    nodes: BTreeMap<(u8, u64), Rc<Inner>>,
    bytes: usize,
    bytes_max: usize,
    /// Where the search for a node to forget goes on.
    hand: (u8, u64),
    /// Every node that was taken out of the tree up to this version was forgotten.
    version: u64,
}

/// What a node takes: itself, its children, and its place in the map, whose nodes are between half full and full.
fn bytes_of(node: &Inner) -> usize {
    let place = size_of::<(u8, u64)>() + size_of::<Rc<Inner>>();
    let counts = 2 * size_of::<usize>();
    place * 3 / 2 + counts + size_of::<Inner>() + node.children.capacity() * size_of_val(&node.children[0])
}

impl NodeCache {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            nodes: BTreeMap::new(),
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

    /// The node of the lowest level from `level` on that covers a key.
    pub(super) fn lowest(&self, level: u8, level_max: u8, key: u64) -> Option<Rc<Inner>> {
        (level..=level_max).find_map(|level| {
            let (_, found) = self.nodes.range((level, 0)..=(level, key)).next_back()?;
            found.is_used.set(true);
            (found.fences.high >= key).then(|| Rc::clone(found))
        })
    }

    /// Remembers a node in place of those that cover a part of its keys.
    pub(super) fn remember(&mut self, node: Rc<Inner>) {
        let (level, fences) = (node.level, node.fences);
        // Ends: each round forgets one.
        while let Some((&at, _)) = self
            .nodes
            .range((level, 0)..=(level, fences.high))
            .next_back()
            .filter(|(_, other)| other.fences.high >= fences.low)
        {
            self.remove(at);
        }
        let bytes = bytes_of(&node);
        while self.bytes + bytes > self.bytes_max && !self.nodes.is_empty() {
            self.forget_one();
        }
        if bytes <= self.bytes_max {
            self.bytes += bytes;
            node.is_used.set(true);
            self.nodes.insert((level, fences.low), node);
        }
    }

    /// Forgets the node of a level that covers a key.
    pub(super) fn forget(&mut self, level: u8, key: u64) {
        let found = self.nodes.range((level, 0)..=(level, key)).next_back();
        if let Some((&at, _)) = found.filter(|(_, found)| found.fences.high >= key) {
            self.remove(at);
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
        self.nodes.clear();
        self.bytes = 0;
    }

    fn remove(&mut self, at: (u8, u64)) {
        if let Some(removed) = self.nodes.remove(&at) {
            self.bytes -= bytes_of(&removed);
        }
    }

    /// Second chance: forgets the next node that was not used since the hand came by.
    fn forget_one(&mut self) {
        // Ends: the second time round everything is unused.
        loop {
            let next = self
                .nodes
                .range(self.hand..)
                .next()
                .or_else(|| self.nodes.iter().next());
            let Some((&at, found)) = next else { return };
            self.hand = (at.0, at.1.saturating_add(1));
            if at.1 == u64::MAX {
                self.hand = (at.0 + 1, 0);
            }
            if !found.is_used.replace(false) {
                self.remove(at);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::leaf::Fences;
    use super::*;
    use farside_fabric::RemoteAddr;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn node(level: u8, low: u64, high: u64) -> Rc<Inner> {
        Rc::new(Inner {
            level,
            fences: Fences { low, high },
            sibling: RemoteAddr::NULL,
            next_child: RemoteAddr::NULL,
            children: vec![(low, RemoteAddr::NULL)],
            is_used: core::cell::Cell::default(),
        })
    }

    proptest! {
        #[test]
        fn last_node_that_was_read_is_found_within_the_budget(
            nodes in vec((1_u8..3, 0_u64..100, 0_u64..20), 1..60), key in 0_u64..120, room in 0_usize..40
        ) {
            let bytes_max = room * bytes_of(&node(1, 0, 0));
            let mut cache = NodeCache::new(bytes_max);
            let mut roomy = NodeCache::new(usize::MAX);
            for &(level, low, width) in &nodes {
                cache.remember(node(level, low, low + width));
                roomy.remember(node(level, low, low + width));
                prop_assert!(cache.bytes() <= bytes_max);
            }
            let covers = |&&(level, low, width): &&(u8, u64, u64)| level == 1 && (low..=low + width).contains(&key);
            // Of two that overlap the earlier one is forgotten as a whole.
            if let Some(&(_, low, width)) = nodes.iter().rfind(covers) {
                let later = nodes.iter().rev().take_while(|&&node| node != (1, low, width));
                let is_overlaid = later.into_iter().any(|&(level, other, other_width)| {
                    level == 1 && other <= low + width && low <= other + other_width
                });
                if !is_overlaid {
                    let found = roomy.lowest(1, 1, key).expect("it covers the key");
                    prop_assert_eq!(found.fences, Fences { low, high: low + width });
                }
            }
            if let Some(found) = cache.lowest(1, 2, key) {
                prop_assert!(found.fences.contains(key));
                cache.forget(found.level, key);
                prop_assert!(cache.lowest(found.level, found.level, key).is_none());
            }
            cache.catch_up(1);
            prop_assert_eq!(cache.bytes(), 0);
        }
    }
}
