//! Laying out a tree of many keys at once, straight in the memory of its node; and beginning with what another client remembers.
//!
//! On the path: nowhere. Whoever has the memory in its own process (a benchmark) makes a tree that clients cannot tell from
//! one that has grown, without a verb for each key: full levels from the leaves up, each node behind its left neighbour.
//!
//! Nodes are as full as INSERTs of random keys leave them. A node grows from half full to full, the faster the more keys it has,
//! and those that are young are more: one that is filled to a share `x` is as frequent as `1 / x^2`. So `x = 1 / (2 - u)` with
//! `u` drawn from 0 to 1, ln 2 on average. A hashed leaf in which a key finds no room before that is split then.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use farside_fabric::RemoteAddr;
use farside_fabric::region::Region;
use farside_pool::BulkLoader;

use super::cache::NodeCache;
use super::inner::{Children, Inner};
use super::layout::{IMAGE_AT, INNER_SPAN, Key, ROOT_AT, Shape};
use super::leaf::{self, Fences};
use super::{LEVEL_MAX, Root, Tree};
use crate::chime::hotspot::HotspotBuffer;
use crate::error::IndexError;

/// How many entries of so many a node has that has grown.
fn fill(span: usize, u: f64) -> usize {
    ((span as f64 / (2.0 - u)) as usize).clamp(1, span)
}

/// What a client remembers of a tree.
#[derive(Clone, Debug)]
pub struct Known {
    cache: NodeCache,
    hotspots: HotspotBuffer,
}

impl Tree {
    /// What this client remembers, for others to begin with.
    #[must_use]
    pub fn known(&self) -> Known {
        Known {
            cache: self.shared.cache.borrow().clone(),
            hotspots: self.shared.hotspots.borrow().clone(),
        }
    }

    /// Remembers what another client did, instead of what this one does. The other one has the same budget, and no node has changed
    /// since.
    pub fn remember_known(&self, known: &Known) {
        self.shared.cache.replace(known.cache.clone());
        self.shared.hotspots.replace(known.hotspots.clone());
    }

    /// Puts keys, ascending, with their values into an empty tree that nobody else uses, on the one node of its pool, whose
    /// memory `region` is. `unit` draws numbers from 0 to 1. Returns how many leaves there are.
    ///
    /// # Errors
    /// If there is not enough memory.
    ///
    /// # Panics
    /// If the tree is not empty, or keys are not ascending.
    pub fn lay_out(
        &self,
        region: &Region,
        items: &mut dyn Iterator<Item = (Key, u64)>,
        unit: &mut dyn FnMut() -> f64,
    ) -> Result<u64, IndexError> {
        let root = self.shared.root.get();
        assert!(root.level == 0, "the tree is empty");
        let mut children = self.lay_out_leaves(region, root.addr, items, unit)?;
        let leaves = children.len() as u64;
        let mut level = 0;
        while children.len() > 1 {
            level += 1;
            assert!(level <= LEVEL_MAX, "a tree is not that high");
            children = self.lay_out_level(region, level, &children, unit)?;
        }
        let root = Root {
            addr: children[0].1,
            level,
        };
        let word = region.word(self.shared.area.plus(ROOT_AT).offset());
        word.store(root.to_word(), Ordering::SeqCst);
        self.shared.root.set(root);
        Ok(leaves)
    }

    /// Fills leaves; the first one is there. Returns the first key and the place of each.
    fn lay_out_leaves(
        &self,
        region: &Region,
        first: RemoteAddr,
        items: &mut dyn Iterator<Item = (Key, u64)>,
        unit: &mut dyn FnMut() -> f64,
    ) -> Result<Vec<(Key, RemoteAddr)>, IndexError> {
        let shape = self.shared.shape;
        let bytes = shape.leaf_block_bytes();
        let mut loader = BulkLoader::new(self.shared.pool.geometry()[0], region, bytes);
        let mut pending: VecDeque<(Key, u64)> = VecDeque::new();
        let mut image = vec![0; bytes as usize];
        let (mut at, mut low) = (first, 0);
        let mut leaves = Vec::new();
        loop {
            let wanted = if shape.is_learned() && !shape.is_hashed() {
                // As they are trained.
                shape.span()
            } else {
                fill(shape.span(), unit())
            };
            while pending.len() <= wanted {
                let Some(next) = items.next() else { break };
                assert!(pending.back().is_none_or(|last| last.0 < next.0), "keys are ascending");
                pending.push_back(next);
            }
            let mut taken = wanted.min(pending.len());
            image.fill(0);
            // Ends: a leaf with half of the keys, and half of those, has room in the end.
            while !shape.take_all(&mut image, pending.range(..taken).copied()) {
                taken = taken.div_ceil(2);
                image.fill(0);
            }
            pending.drain(..taken);
            leaves.push((low, at));
            let next = match pending.front() {
                None => None,
                // Its place, to be written when that of its own sibling is known.
                Some(&(key, _)) => Some((key, loader.block(&[])?)),
            };
            let high = next.map_or(shape.key_max(), |(key, _)| key - 1);
            let sibling = next.map_or(RemoteAddr::NULL, |(_, addr)| addr);
            shape.seal(&mut image, Fences { low, high }, leaf::sibling(sibling, 0));
            region.write(at.offset(), &image);
            match next {
                Some(next) => (low, at) = next,
                None => break,
            }
        }
        if leaves.len() > 1 {
            loader.finish();
        }
        Ok(leaves)
    }

    /// Fills the internal nodes of a level.
    fn lay_out_level(
        &self,
        region: &Region,
        level: u8,
        children: &[(Key, RemoteAddr)],
        unit: &mut dyn FnMut() -> f64,
    ) -> Result<Vec<(Key, RemoteAddr)>, IndexError> {
        let shape = self.shared.shape;
        let mut loader = BulkLoader::new(self.shared.pool.geometry()[0], region, shape.inner_bytes());
        let mut image = vec![0; shape.inner_bytes() as usize];
        let (mut rest, mut at) = (children, loader.block(&[])?);
        let mut nodes = Vec::new();
        loop {
            let (own, others) = rest.split_at(fill(INNER_SPAN, unit()).min(rest.len()));
            nodes.push((own[0].0, at));
            let next = match others.first() {
                None => None,
                Some(&(key, child)) => Some((key, child, loader.block(&[])?)),
            };
            let node = Inner {
                high: next.map_or(shape.key_max(), |(key, ..)| key - 1),
                sibling: next.map_or(RemoteAddr::NULL, |(.., addr)| addr),
                next_child: next.map_or(RemoteAddr::NULL, |(_, child, _)| child),
                children: Children::new(shape, own.iter().copied()),
                level,
                is_gone: false,
                is_used: core::cell::Cell::default(),
            };
            node.encode(shape, &mut image[IMAGE_AT as usize..]);
            region.write(at.offset(), &image);
            match next {
                Some((.., addr)) => (rest, at) = (others, addr),
                None => break,
            }
        }
        loader.finish();
        Ok(nodes)
    }
}

impl Shape {
    /// Puts keys into an empty leaf, but for what its `seal` adds; returns whether all of them have found room.
    fn take_all(self, image: &mut [u8], items: impl Iterator<Item = (Key, u64)>) -> bool {
        for (key, value) in items {
            let own = &*image;
            let Ok(room) = self
                .circle()
                .make_room(self.home(key), |entry| self.home_at(own, entry))
            else {
                return false;
            };
            for hop in &room.hops {
                let (moved, its) = (self.key(image, hop.from), self.value(image, hop.from));
                self.put(image, hop.to, moved, its);
                let vacated = self.vacated(image, hop.from);
                self.set_meta(image, hop.from, vacated);
            }
            self.put(image, room.at, key, value);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Budget, TreeKind, TreeOptions};
    use super::*;
    use crate::testing::Alone;

    /// Numbers from 0 to 1, spread evenly.
    fn unit() -> impl FnMut() -> f64 {
        const GOLDEN_SECTION: f64 = 0.618_033_988_749_895;
        let mut state = 0.5_f64;
        move || {
            state = (state + GOLDEN_SECTION).fract();
            state
        }
    }

    /// A tree of so many keys is sound, holds them, and goes on.
    fn lay_out(kind: TreeKind, count: u64) {
        let mut alone = Alone::new(32 << 20);
        let (cx, sim, node) = (&mut alone.cx, &alone.sim, alone.node);
        let census = sim.block_on(async {
            let options = TreeOptions {
                shape: kind.published_leaf(),
                budget: Budget {
                    cache_bytes: 1 << 20,
                    hotspot_bytes: 0,
                },
            };
            let tree = Tree::create(cx, alone.pool.clone(), options).await.expect("a tree");
            let mut items = (0..count).map(|number| (Key::from(number) * 10, number));
            let leaves = tree.lay_out(&sim.region(node), &mut items, &mut unit()).expect("room");
            let load = count as f64 / (leaves as f64 * kind.published_leaf().span() as f64);
            let expected = match kind {
                TreeKind::Rolex => 0.99..1.01,
                _ => 0.55..0.75,
            };
            assert!(count < 1000 || expected.contains(&load), "{kind:?}: a load of {load}");
            for key in 0..count.min(200) {
                assert_eq!(tree.insert(cx, key * 10 + 5, key).await, Ok(true));
            }
            let census = tree.check(cx).await.expect("a census");
            assert_eq!(census.faults, [""; 0]);
            assert_eq!(census.items.len() as u64, count + count.min(200));
            census
        });
        let blocks: Vec<RemoteAddr> = census.blocks.into_iter().collect();
        alone.end(&blocks);
    }

    #[test]
    fn trees_that_were_laid_out_are_trees() {
        for kind in TreeKind::of_values() {
            for count in [0, 1, 40, 3000, 100_000] {
                lay_out(kind, count);
            }
        }
    }
}
