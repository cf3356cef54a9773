//! Every block that the tree links: for the search for lost blocks, and for checks.
//!
//! On the path: nowhere. The walk goes through each level from left to right. A node that is linked stays in its place in the
//! chain of its level until it is unlinked: a split puts its new node behind the old one. What an intent names is linked, too.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};

use farside_fabric::{Endpoint, OpContext, RemoteAddr, Slice};

use super::layout::{Intent, LOCK_AT, LockWord, Shape, VERSION_AT};
use super::leaf::{self, Fences, word};
use super::lock::Kind;
use super::{LEVEL_MAX, Tree};
use crate::error::IndexError;

/// What a walk has found.
#[derive(Debug, Default)]
pub struct Census {
    /// Every key with its value.
    pub items: BTreeMap<u64, u64>,
    /// Every block that is linked, once.
    pub blocks: BTreeSet<RemoteAddr>,
    /// How many leaves there are.
    pub leaves: u64,
    /// How many internal nodes.
    pub inner: u64,
    /// Leaves that no parent names yet.
    pub half_split: u64,
    /// Leaves that are gone and that a parent still names.
    pub half_merged: u64,
    /// Nodes that are locked, or have an intent: for a tree that nobody changes these are faults.
    pub unsettled: u64,
    /// What is wrong, one sentence each.
    pub faults: Vec<String>,
}

impl Census {
    fn fault(&mut self, fault: impl fmt::Display) {
        self.faults.push(fault.to_string());
    }
}

impl<E: Endpoint> Tree<E> {
    /// Calls `visit` with every block that is linked. Pins for a node at a time, so that the epoch can move; what is linked or
    /// unlinked meanwhile may be missed. In the end everybody is told to forget what he remembers.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub async fn walk(&self, cx: &mut OpContext<E>, visit: &mut dyn FnMut(RemoteAddr)) -> Result<(), IndexError> {
        let height = self.read_root(cx).await?.level;
        for level in 1..=height {
            let mut next = Some(0);
            while let Some(key) = next {
                let pin = self.pin();
                let (addr, _) = self.descend(cx, key, level, &pin).await?;
                // Locked, so that it is settled: what only an intent says would be missed.
                let held = self.lock(cx, addr, Kind::Inner, &pin).await?;
                let node = self.read_locked_inner(cx, addr).await?;
                self.unlock(cx, held).await?;
                if !node.fences.contains(key) {
                    continue;
                }
                visit(addr);
                // A leaf that is gone is linked as long as its parent names it.
                if level == 1 {
                    node.children.iter().for_each(|&(_, leaf)| visit(leaf));
                }
                next = node.fences.high.checked_add(1);
                self.shared.cache.borrow_mut().forget(level, key);
            }
        }
        let mut next = Some(0);
        while let Some(key) = next {
            let pin = self.pin();
            // Locked, as above.
            let Some((held, fences, _)) = self.lock_leaf_of(cx, key, &pin).await? else {
                let task = self.clean_later(key);
                self.wait_for(cx, &task).await?;
                continue;
            };
            visit(held.node);
            self.unlock(cx, held).await?;
            next = fences.high.checked_add(1);
        }
        visit(self.shared.root.get().addr);
        // Whoever has died may have taken a leaf out and told nobody: the search for lost blocks, which this walk is for, frees it
        // when everybody has seen this.
        cx.fetch_add(self.shared.area.plus(VERSION_AT), 1).await?;
        Ok(())
    }

    /// Walks a tree that nobody changes and judges it: fences, siblings, parents; each key in its leaf, once, where a SEARCH
    /// looks for it.
    ///
    /// # Errors
    /// What the fabric reports; everything else is a fault.
    pub async fn check(&self, cx: &mut OpContext<E>) -> Result<Census, IndexError> {
        let mut census = Census::default();
        let pin = self.pin();
        let root = self.read_root(cx).await?;
        let mut level = root.level;
        let mut leftmost = root.addr;
        let mut named = BTreeSet::new();
        while level > 0 && level <= LEVEL_MAX {
            let (mut at, mut low) = (leftmost, 0);
            let mut expected: Option<BTreeSet<u64>> = (level < root.level).then(|| core::mem::take(&mut named));
            loop {
                let node = self.read_inner(cx, at, &pin).await?;
                census.inner += 1;
                census.blocks.insert(at);
                if self.is_locked(cx, at).await? {
                    census.unsettled += 1;
                }
                if node.level != level || node.fences.low != low || node.children[0].0 != low {
                    census.fault(format_args!(
                        "the node at {at} has fences {:?} on level {level}",
                        node.fences
                    ));
                }
                if !node.children.is_sorted_by(|a, b| a.0 < b.0) {
                    census.fault(format_args!("the keys of the node at {at} are in no order"));
                }
                if let Some(expected) = &mut expected {
                    expected.remove(&at.to_bits());
                }
                if low == 0 {
                    leftmost = node.children[0].1;
                }
                named.extend(node.children.iter().map(|&(_, child)| child.to_bits()));
                let Some(next) = node.fences.high.checked_add(1) else {
                    break;
                };
                (at, low) = (node.sibling, next);
            }
            for left in expected.unwrap_or_default() {
                census.fault(format_args!("a parent names {left:#x}, which is not on level {level}"));
            }
            level -= 1;
        }
        self.check_leaves(cx, leftmost, named, &mut census).await?;
        Ok(census)
    }

    async fn check_leaves(
        &self,
        cx: &mut OpContext<E>,
        leftmost: RemoteAddr,
        mut named: BTreeSet<u64>,
        census: &mut Census,
    ) -> Result<(), IndexError> {
        let shape = self.shape();
        let bytes = shape.leaf_bytes() as u32;
        let (mut at, mut low) = (leftmost, 0);
        cx.reserve(bytes as usize);
        loop {
            cx.read(at, Slice::first(bytes)).await?;
            cx.validated();
            let image = &cx.buffer()[..bytes as usize];
            let Ok((fences, sibling)) = shape.examine_all(image) else {
                census.fault(format_args!("the leaf at {at} is torn"));
                return Ok(());
            };
            census.leaves += 1;
            census.blocks.insert(at);
            census.half_split += u64::from(!named.remove(&at.to_bits()) && self.height() > 0);
            if fences.low != low || sibling.is_gone() {
                census.fault(format_args!("the leaf at {at} has fences {fences:?} behind {low}"));
            }
            check_leaf(shape, image, (at, fences), census);
            let Some(next) = fences.high.checked_add(1) else {
                if !sibling.next().is_null() {
                    census.fault(format_args!("the last leaf at {at} has a sibling"));
                }
                break;
            };
            (at, low) = (sibling.next(), next);
        }
        for left in named.into_iter().map(super::layout::address) {
            // Whoever has merged it has died before the parent could forget it.
            census.blocks.insert(left);
            census.half_merged += 1;
            if !self.sibling_of(cx, left).await?.is_gone() {
                census.fault(format_args!(
                    "a parent names the leaf at {left}, which is not in its place"
                ));
            }
        }
        Ok(())
    }
}

/// Judges the entries of a leaf, and its lock.
fn check_leaf(shape: Shape, image: &[u8], (at, fences): (RemoteAddr, Fences), census: &mut Census) {
    let lock = LockWord(word(image, LOCK_AT));
    if lock.owner().is_some() || leaf::intent(image) != Some(Intent::None) {
        census.unsettled += 1;
    } else if shape.vacancy(image).0 & !lock.0 != 0 {
        census.fault(format_args!(
            "the lock of the leaf at {at} does not know of a vacant entry"
        ));
    }
    for (entry, key) in shape.entries(image) {
        if !fences.contains(key) || shape.find(image, key) != Some(entry) {
            census.fault(format_args!(
                "entry {entry} of the leaf at {at} has the key {key}, which is elsewhere"
            ));
        }
        if census.items.insert(key, shape.value(image, entry)).is_some() {
            census.fault(format_args!("the key {key} is there twice"));
        }
    }
}
