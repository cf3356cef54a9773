//! Every block that the tree links: for the search for lost blocks, and for checks.
//!
//! On the path: nowhere. The walk goes through each level from left to right. A node that is linked stays in its place in the
//! chain of its level until it is unlinked: a split puts its new node behind the old one. What an intent names is linked, too.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};

use farside_fabric::{OpContext, RemoteAddr, Slice};
use farside_sync::Pointer;

use super::inner::{HEAD_AT, Inner, is_gone};
use super::layout::{IMAGE_AT, INTENT_AT, Key, LOCK_AT, ROOT_AT, SPLIT_KEY_AT, Shape, VERSION_AT};
use super::leaf::{self, Fences, word};
use super::lock::Kind;
use super::slot::is_layer;
use super::words::{Intent, LockWord, Sibling};
use super::{LEVEL_MAX, Root, Tree, open_area};
use crate::descriptor::{Marking, visit_linked};
use crate::error::IndexError;

/// What a walk has found.
#[derive(Debug, Default)]
pub struct Census {
    /// Every key with its value.
    pub items: BTreeMap<Key, u64>,
    /// How many entries a leaf has.
    pub span: usize,
    /// Every block that is linked, once.
    pub blocks: BTreeSet<RemoteAddr>,
    /// How many leaves there are.
    pub leaves: u64,
    /// How many internal nodes.
    pub inner: u64,
    /// Leaves that no parent names yet.
    pub half_split: u64,
    /// Nodes that are gone and that a parent still names.
    pub half_merged: u64,
    /// Nodes that are locked, or have an intent: for a tree that nobody changes these are faults.
    pub unsettled: u64,
    /// What is wrong, one sentence each.
    pub faults: Vec<String>,
}

impl Census {
    /// Every key with its value, of a tree whose keys have 64 bits.
    #[must_use]
    pub fn narrow_items(&self) -> BTreeMap<u64, u64> {
        self.items.iter().map(|(&key, &value)| (key as u64, value)).collect()
    }

    fn fault(&mut self, fault: impl fmt::Display) {
        self.faults.push(fault.to_string());
    }
}

impl Tree {
    /// Calls `visit` with every block that is linked, with some twice. Pins for a node at a time, so that the epoch can move; what
    /// is linked or unlinked meanwhile may be missed. In the end everybody is told to forget what he remembers.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub async fn walk(&self, cx: &mut OpContext, visit: &mut dyn FnMut(RemoteAddr)) -> Result<(), IndexError> {
        let height = self.read_root(cx).await?.level;
        for level in 1..=height {
            let mut next = Some(0);
            while let Some(key) = next {
                let pin = self.pin();
                // A root that was that high has given way.
                let Some((addr, _)) = self.descend(cx, key, level, &pin).await? else {
                    break;
                };
                // Locked, so that it is settled: what only an intent says would be missed.
                let held = self.lock(cx, addr, Kind::Inner, &pin).await?;
                let node = self.read_locked_inner(cx, addr).await?;
                self.unlock(cx, held).await?;
                if !node.fences().contains(key) {
                    continue;
                }
                visit(addr);
                // A leaf that is gone is linked as long as its parent names it.
                if level == 1 {
                    node.children.iter().for_each(|(_, leaf)| visit(leaf));
                }
                next = self.shape().key_after(node.high);
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
            if self.shape().has_claims() {
                self.tidy(cx, held.node).await?;
            }
            // A key that moves to the left comes to a leaf that has the next key to look for, and is seen then.
            let marked = self.marked_entries(held.node, cx.buffer());
            self.linked_items(cx.buffer()).for_each(&mut *visit);
            self.unlock(cx, held).await?;
            visit_linked(cx, Some((self.pool(), Marking::Parity)), &marked, visit).await?;
            next = self.shape().key_after(fences.high);
        }
        visit(self.shared.root.get().addr);
        // Whoever has died may have taken a leaf out and told nobody: the search for lost blocks, which this walk is for, frees it
        // when everybody has seen this.
        cx.fetch_add(self.shared.area.plus(VERSION_AT), 1).await?;
        Ok(())
    }

    /// The blocks that the entries of a leaf point to.
    fn linked_items(&self, image: &[u8]) -> impl Iterator<Item = RemoteAddr> {
        let shape = self.shape();
        let entries = shape.entries(image).filter(|_| shape.has_pointers());
        let pointers = entries.map(|(entry, _)| shape.pointer(image, entry));
        let linked = pointers.filter(|&pointer| !pointer.is_null() && !is_layer(pointer));
        linked.map(|pointer| pointer.block()).collect::<Vec<_>>().into_iter()
    }

    /// The entries of a leaf that lead to descriptors.
    fn marked_entries(&self, leaf: RemoteAddr, image: &[u8]) -> Vec<(RemoteAddr, Pointer)> {
        let shape = self.shape();
        let entries = shape.entries(image).filter(|_| shape.has_pointers());
        let words = entries.map(|(entry, _)| (leaf.plus(shape.value_at(entry)), shape.pointer(image, entry)));
        words.filter(|&(_, word)| Marking::Parity.is_marked(word)).collect()
    }

    /// Walks a tree that nobody changes and judges it: fences, siblings, parents; each key in its leaf, once, where a SEARCH
    /// looks for it.
    ///
    /// # Errors
    /// What the fabric reports; everything else is a fault.
    pub async fn check(&self, cx: &mut OpContext) -> Result<Census, IndexError> {
        let _pin = self.pin();
        Walker::new(cx, self.shared.area, self.shape()).walk().await
    }
}

/// Walks the tree of a pool that nobody uses, as [`Tree::check`]; `None` if there is none.
///
/// # Errors
/// What the fabric reports, or that it is no tree; everything else is a fault.
pub(crate) async fn census_of_pool(cx: &mut OpContext) -> Result<Option<Census>, IndexError> {
    let Some((area, shape)) = open_area(cx).await? else {
        return Ok(None);
    };
    Walker::new(cx, area, shape).walk().await.map(Some)
}

/// A walk through a tree as it stands in memory. What a client has left that died is read as whoever settles it will make it.
struct Walker<'a> {
    cx: &'a mut OpContext,
    area: RemoteAddr,
    shape: Shape,
    census: Census,
}

impl<'a> Walker<'a> {
    fn new(cx: &'a mut OpContext, area: RemoteAddr, shape: Shape) -> Self {
        let census = Census {
            span: shape.span(),
            ..Census::default()
        };
        Self {
            cx,
            area,
            shape,
            census,
        }
    }

    async fn walk(mut self) -> Result<Census, IndexError> {
        let root = Root::from_word(self.cx.read_word(self.area.plus(ROOT_AT)).await?);
        let mut level = root.level;
        let mut leftmost = root.addr;
        let mut named = BTreeSet::new();
        while level > 0 && level <= LEVEL_MAX {
            let (mut at, mut low) = (leftmost, 0);
            let mut next_child: Option<RemoteAddr> = None;
            let mut expected: Option<BTreeSet<u64>> = (level < root.level).then(|| core::mem::take(&mut named));
            loop {
                let Some(node) = self.read_inner(at).await? else {
                    self.census.fault(format_args!("the node at {at} is torn"));
                    return Ok(self.census);
                };
                self.census.inner += 1;
                self.census.blocks.insert(at);
                if node.level != level || node.low() != low {
                    let fences = node.fences();
                    let fault = format_args!("the node at {at} has fences {fences:?} on level {level}");
                    self.census.fault(fault);
                }
                if !node.children.iter().is_sorted_by(|a, b| a.0 < b.0) {
                    self.census
                        .fault(format_args!("the keys of the node at {at} are in no order"));
                }
                if let Some(expected) = &mut expected {
                    expected.remove(&at.to_bits());
                }
                if low == 0 {
                    leftmost = node.children.at(0).1;
                }
                if next_child.is_some_and(|expected| expected != node.children.at(0).1) {
                    self.census.fault(format_args!(
                        "the node at {at} has another first child than its neighbour knows"
                    ));
                }
                next_child = Some(node.next_child);
                named.extend(node.children.iter().map(|(_, child)| child.to_bits()));
                let Some(next) = self.shape.key_after(node.high) else {
                    break;
                };
                (at, low) = (node.sibling, next);
            }
            for left in expected.unwrap_or_default() {
                let fault = format_args!("a parent names {left:#x}, which is not on level {level}");
                self.census.fault(fault);
            }
            level -= 1;
        }
        self.walk_leaves(leftmost, named, root.level > 0).await?;
        Ok(self.census)
    }

    /// An internal node as whoever settles it will make it (`shrink`); `None` if it is torn.
    async fn read_inner(&mut self, at: RemoteAddr) -> Result<Option<Inner>, IndexError> {
        let bytes = self.shape.inner_bytes() as u32;
        self.cx.reserve(bytes as usize);
        let node = self.cx.read(at, Slice::first(bytes)).await?;
        let intent = Intent::from_word(word(node, INTENT_AT));
        let is_locked = LockWord(word(node, LOCK_AT)).owner().is_some();
        let [first, second] = [IMAGE_AT, self.shape.second_image_at()]
            .map(|image_at| Inner::decode(self.shape, &node[image_at as usize..]));
        self.cx.validated();
        self.census.unsettled += u64::from(is_locked || intent != Some(Intent::None));
        let becomes_second = match intent {
            Some(Intent::Copy) => true,
            Some(Intent::Absorb { right }) => self.is_absorbed(right, at).await?,
            Some(Intent::None | Intent::AbsorbedBy { .. } | Intent::Below { .. } | Intent::GiveWay) => false,
            Some(Intent::Split { .. }) | None => {
                self.census
                    .fault(format_args!("the node at {at} has an intent that says nothing"));
                false
            }
        };
        let mut inner = if becomes_second { second } else { first };
        if let (Some(Intent::Below { left }), Some(node)) = (intent, &mut inner) {
            match node.behind(left) {
                Some(index) if self.is_absorbed(node.children.at(index).1, left).await? => {
                    let (_, gone) = node.children.remove(index);
                    self.census.blocks.insert(gone);
                    self.census.half_merged += 1;
                }
                Some(_) => {}
                None => self.census.fault(format_args!(
                    "the node at {at} merges {left}, which has no right neighbour"
                )),
            }
        }
        Ok(inner)
    }

    /// Whether an internal node is gone, or will be when its left neighbour is settled.
    async fn is_absorbed(&mut self, right: RemoteAddr, left: RemoteAddr) -> Result<bool, IndexError> {
        let head = self.cx.read_word(right.plus(HEAD_AT)).await?;
        let intent = self.cx.read_word(right.plus(INTENT_AT)).await?;
        Ok(is_gone(head) || Intent::from_word(intent) == Some(Intent::AbsorbedBy { left }))
    }

    async fn read_leaf(&mut self, at: RemoteAddr) -> Result<Vec<u8>, IndexError> {
        let bytes = self.shape.leaf_bytes() as u32;
        self.cx.reserve(bytes as usize);
        let image = self.cx.read(at, Slice::first(bytes)).await?.to_vec();
        self.cx.validated();
        Ok(image)
    }

    async fn walk_leaves(
        &mut self,
        leftmost: RemoteAddr,
        mut named: BTreeSet<u64>,
        has_parents: bool,
    ) -> Result<(), IndexError> {
        let shape = self.shape;
        let (mut at, mut low) = (leftmost, 0);
        loop {
            let mut image = self.read_leaf(at).await?;
            let is_settled = self.settle(at, &mut image).await?;
            let Ok((fences, sibling)) = shape.examine_all(&image) else {
                self.census.fault(format_args!("the leaf at {at} is torn"));
                return Ok(());
            };
            self.census.leaves += 1;
            self.census.blocks.insert(at);
            self.census.half_split += u64::from(!named.remove(&at.to_bits()) && has_parents);
            if fences.low != low || sibling.is_gone() {
                let fault = format_args!("the leaf at {at} has fences {fences:?} behind {low}");
                self.census.fault(fault);
            }
            check_leaf(shape, &image, (at, fences, is_settled), &mut self.census);
            let Some(next) = shape.key_after(fences.high) else {
                if !sibling.next().is_null() {
                    self.census.fault(format_args!("the last leaf at {at} has a sibling"));
                }
                break;
            };
            (at, low) = (sibling.next(), next);
        }
        for left in named.into_iter().map(super::words::address) {
            // Whoever has merged it has died before the parent could forget it.
            self.census.blocks.insert(left);
            self.census.half_merged += 1;
            if !self.sibling_of(left).await?.is_gone() {
                let fault = format_args!("a parent names the leaf at {left}, which is not in its place");
                self.census.fault(fault);
            }
        }
        Ok(())
    }

    async fn sibling_of(&mut self, leaf: RemoteAddr) -> Result<Sibling, IndexError> {
        let at = leaf.plus(self.shape.replica_at(0));
        Ok(Sibling(self.cx.read_word(at).await?))
    }

    /// Makes the image of a leaf what whoever settles it will make it (`settle`); returns whether it was that before.
    async fn settle(&mut self, at: RemoteAddr, image: &mut [u8]) -> Result<bool, IndexError> {
        let shape = self.shape;
        let lock = LockWord(word(image, LOCK_AT));
        let intent = leaf::intent(image);
        if lock.owner().is_none() && intent == Some(Intent::None) {
            if shape.has_claims() {
                // Their keys are no more, and whoever has deleted them has died before the entries were vacant.
                shape.drop_left(image);
            }
            return Ok(true);
        }
        self.census.unsettled += 1;
        let (fences, now) = (shape.fences_at(image), Sibling(word(image, shape.replica_at(0))));
        let (fences, sibling) = match intent {
            Some(Intent::Split { right, version }) => {
                self.census.blocks.insert(right);
                let high = shape.key_at(image, SPLIT_KEY_AT).saturating_sub(1);
                (Fences { high, ..fences }, leaf::sibling(right, version))
            }
            Some(Intent::Absorb { right }) if !self.sibling_of(right).await?.is_gone() => {
                let other = self.read_leaf(right).await?;
                let high = shape.fences_at(&other).low.saturating_sub(1);
                let fences = Fences { high, ..fences };
                shape.drop_torn(image, fences);
                shape.keep(image, |key| fences.contains(key));
                (fences, leaf::sibling(right, now.version()))
            }
            Some(Intent::None | Intent::Absorb { .. } | Intent::AbsorbedBy { .. }) => (fences, now),
            Some(Intent::Copy | Intent::Below { .. } | Intent::GiveWay) | None => {
                self.census
                    .fault(format_args!("the leaf at {at} has an intent that says nothing"));
                (fences, now)
            }
        };
        if shape.has_pointers() {
            shape.drop_left(image);
        }
        shape.mend(image, fences, sibling);
        Ok(false)
    }
}

/// Judges the entries of a leaf, and its lock.
fn check_leaf(shape: Shape, image: &[u8], (at, fences, is_settled): (RemoteAddr, Fences, bool), census: &mut Census) {
    let lock = LockWord(word(image, LOCK_AT));
    if is_settled && shape.vacancy(image).0 & !lock.0 != 0 {
        census.fault(format_args!(
            "the lock of the leaf at {at} does not know of a vacant entry"
        ));
    }
    let is_closed = |entry: usize| shape.has_claims() && shape.meta(image, entry).is_closed();
    if is_settled && (0..shape.span()).any(is_closed) {
        census.fault(format_args!(
            "an entry of the leaf at {at} is closed, and nobody holds its lock"
        ));
    }
    for (entry, key) in shape.entries(image) {
        if !fences.contains(key) || shape.find(image, key) != Some(entry) {
            census.fault(format_args!(
                "entry {entry} of the leaf at {at} has the key {key:#x}, which is elsewhere"
            ));
        }
        if shape.has_pointers() && is_settled {
            let pointer = shape.pointer(image, entry);
            if pointer.is_null() || pointer.is_frozen() {
                census.fault(format_args!(
                    "entry {entry} of the leaf at {at} is frozen or empty, and nobody works on it"
                ));
            }
        }
        if census.items.insert(key, shape.value(image, entry)).is_some() {
            census.fault(format_args!("the key {key:#x} is there twice"));
        }
    }
}
