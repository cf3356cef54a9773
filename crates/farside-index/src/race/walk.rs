//! Every block that the table links, subtables included: for the search for lost blocks, and for `fsck`.
//!
//! On the path: nowhere. The walk goes through the suffixes in the order that a scan does, and asks the
//! directory anew for each. An entry moves only from a subtable to those that take its place, and stays
//! readable in the old one; so it is found in what the directory names when its turn comes, or in what
//! that one says has taken its place for this suffix. (Not for another one: that may have been split since and freed, if a
//! client has died while it swapped entries of the directory.)
//!
//! Such a client leaves some entries of the directory with the old subtable. At the end the walk goes through all of them for
//! those: nobody may take for lost what an entry names.

use std::collections::BTreeSet;

use farside_fabric::{Batch, OpContext, RemoteAddr, Slice};
use farside_pool::{Geometry, Pool};

use super::layout::{CHILDREN_AT, DEPTH_AT, DEPTH_MAX, DEPTH_MIN, ENTRIES_AT, Format, Identity};
use super::subtable::Image;
use super::{Race, open_root};
use crate::descriptor::{Marking, visit_linked};
use crate::error::IndexError;

/// How many subtables lead to each other at most: splits not ended yet, and moves of nodes that are drained.
const STEPS_MAX: u32 = 4 * DEPTH_MAX;

/// A subtable that the walk has come to.
pub(crate) struct Visited {
    pub(crate) addr: RemoteAddr,
    pub(crate) identity: Identity,
    pub(crate) image: Image,
    /// Whether others have taken its place; its entries are theirs then.
    pub(crate) is_replaced: bool,
    /// What its descriptors lead to, if they are its own.
    pub(crate) linked: Vec<RemoteAddr>,
}

impl Visited {
    /// Every block that it links, itself left out.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = RemoteAddr> + '_ {
        // What has been replaced still says what it once linked; what is still linked has moved on.
        let own = (!self.is_replaced).then(|| self.image.entries(self.addr));
        let entries = own.into_iter().flatten().map(|(_, pointer)| pointer.block());
        entries.chain(self.linked.iter().copied())
    }
}

/// Walks the table on the nodes of `cx`. Pins `pool` for each part; where nobody else is, none is needed. Nothing is visited if there is no table.
///
/// # Errors
/// See [`IndexError`].
pub(crate) async fn walk(
    cx: &mut OpContext,
    geometry: &[Geometry],
    pool: Option<&Pool>,
    visit: &mut dyn FnMut(Visited),
) -> Result<(), IndexError> {
    let Some((root, format)) = open_root(cx).await? else {
        return Ok(());
    };
    let mut seen = BTreeSet::new();
    let mut position = 0_u64;
    while position >> DEPTH_MAX == 0 {
        let _pin = pool.map(Pool::pin);
        let hash = u64::from((position as u32).reverse_bits());
        let subtable = named(cx, format, root.addr, hash).await?;
        let depth = visit_with_child(cx, geometry, (format, pool), (subtable, hash), &mut seen, visit).await?;
        let step = 1 << (DEPTH_MAX - depth);
        position = (position & !(step - 1)) + step;
    }
    let mut first = 0;
    // Ends: the directory does not grow for ever.
    loop {
        let depth = cx.read_word(root.addr.plus(DEPTH_AT)).await?;
        let count = 1_u64 << depth.min(format.depth_max.into());
        if first >= count {
            break;
        }
        let _pin = pool.map(Pool::pin);
        let some = entries(cx, root.addr, first, count - first).await?;
        for (hash, &subtable) in (first..).zip(&some) {
            if !seen.contains(&subtable) {
                visit_with_child(cx, geometry, (format, pool), (subtable, hash), &mut seen, visit).await?;
            }
        }
        first += some.len() as u64;
    }
    Ok(())
}

/// Some entries of the directory.
async fn entries(cx: &mut OpContext, directory: RemoteAddr, first: u64, count: u64) -> Result<Vec<u64>, IndexError> {
    const ENTRIES_AT_ONCE: u64 = 512;
    let bytes = Slice::first(count.min(ENTRIES_AT_ONCE) as u32 * 8);
    let read = cx.read(directory.plus(ENTRIES_AT + first * 8), bytes).await?;
    let (words, _) = read.as_chunks::<8>();
    let entries = words.iter().map(|&word| u64::from_le_bytes(word)).collect();
    cx.rely_on_words();
    Ok(entries)
}

/// What the directory names for a hash.
async fn named(cx: &mut OpContext, format: Format, directory: RemoteAddr, hash: u64) -> Result<u64, IndexError> {
    let at = directory.plus(DEPTH_AT);
    let mut depth = cx.read_word(at).await?;
    loop {
        if !(u64::from(DEPTH_MIN)..=u64::from(format.depth_max)).contains(&depth) {
            return Err(IndexError::DirectoryDamaged { at, word: depth });
        }
        let number = hash & ((1 << depth) - 1);
        let mut batch = Batch::new();
        let entry = batch.read_word(directory.plus(ENTRIES_AT + number * 8));
        // After the entry, as whoever looks a key up.
        let now = batch.read_word(at);
        cx.post(&mut batch).await?;
        if batch.result(now) == depth {
            return Ok(batch.result(entry));
        }
        depth = batch.result(now);
    }
}

/// Visits a subtable, and what has taken its place for a hash, those left out that were seen; returns the depth of the last.
async fn visit_with_child(
    cx: &mut OpContext,
    geometry: &[Geometry],
    (format, pool): (Format, Option<&Pool>),
    (mut word, hash): (u64, u64),
    seen: &mut BTreeSet<u64>,
    visit: &mut dyn FnMut(Visited),
) -> Result<u32, IndexError> {
    let mut expected = None;
    // Ends: each subtable is one deeper than the one before, or one that has moved; none is deeper than the format says.
    for _ in 0..STEPS_MAX {
        let bytes = format.bytes(hash);
        let addr = RemoteAddr::from_bits(word).filter(|addr| {
            let end = geometry.get(addr.node().index()).map_or(0, |node| node.node_bytes);
            word != 0 && addr.offset() + bytes <= end && addr.offset().is_multiple_of(64)
        });
        let addr = addr.ok_or(IndexError::SubtableDamaged {
            at: RemoteAddr::from_bits(word).unwrap_or(RemoteAddr::NULL),
        })?;
        let image = Image::read(cx, addr, format.image_bytes(hash)).await?;
        let identity = image.identity();
        let is_right = expected.map_or_else(|| identity.covers(hash), |expected| identity == expected);
        if !is_right || identity.depth() > u64::from(format.depth_max) {
            return Err(IndexError::SubtableDamaged { at: addr });
        }
        let mut batch = Batch::new();
        let children = [1, 0].map(|child| batch.read_word(addr.plus(CHILDREN_AT + child * 8)));
        cx.post(&mut batch).await?;
        let [second, first] = children.map(|child| batch.result(child));
        let is_replaced = second != 0;
        if seen.insert(word) {
            let mut linked = Vec::new();
            if !is_replaced {
                let mut marked = image.entries(addr);
                marked.retain(|&(_, pointer)| Marking::Version.is_marked(pointer));
                visit_linked(cx, pool.map(|pool| (pool, Marking::Version)), &marked, &mut |block| {
                    linked.push(block);
                })
                .await?;
            }
            visit(Visited {
                addr,
                identity,
                image,
                is_replaced,
                linked,
            });
        }
        if !is_replaced {
            return Ok(identity.depth() as u32);
        }
        if first == second {
            (word, expected) = (first, Some(identity));
            continue;
        }
        let mine = usize::from(!identity.children()[0].covers(hash));
        (word, expected) = ([first, second][mine], Some(identity.children()[mine]));
    }
    Err(IndexError::SubtableDamaged {
        at: RemoteAddr::from_bits(word).unwrap_or(RemoteAddr::NULL),
    })
}

impl Race {
    /// Calls `visit` with every block that is linked. Pins for a subtable at a time, so that the epoch can
    /// move; what is linked or unlinked meanwhile may be missed.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub async fn walk(&self, cx: &mut OpContext, visit: &mut dyn FnMut(RemoteAddr)) -> Result<(), IndexError> {
        self.settle_directory(cx).await?;
        walk(
            cx,
            self.blocks.pool.geometry(),
            Some(&self.blocks.pool),
            &mut |visited| {
                visit(visited.addr);
                visited.blocks().for_each(&mut *visit);
            },
        )
        .await
    }
}
