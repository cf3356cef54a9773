//! Keys in order, samples, and everything that goes through all keys.
//!
//! On the path: range reads, SCAN, housekeeping. A scan goes down from the root for each call, in the order of the bytes, and READs
//! nodes that stand side by side in one batch. What it reads of a node was so while the node was linked: an entry that is not
//! frozen says so, and one that is frozen was what it is until the node was replaced, which was after the scan has come to it.
//! A key that is there throughout is in what is left of the node then, or in what has been put above it.

use farside_fabric::{Batch, Endpoint, OpContext, RemoteAddr, Slice};
use farside_sync::Pointer;

use super::Smart;
use super::descend::{Image, read_node, read_root};
use super::layout::{END, is_node, kind_of, node_of, place_at};
use crate::error::IndexError;
use crate::item::{Header, Item};
use crate::operation::{Decision, Sampled, Wanted};
use crate::ordered::cursors::{CURSORS_MAX, Position};

/// How many keys one call of a scan visits.
const KEYS_PER_CALL: usize = 64;
/// How many entries are gathered at once.
pub(crate) const ENTRIES_AT_ONCE: usize = 256;
/// How many nodes are READ at once.
pub(super) const NODES_AT_ONCE: usize = 8;
/// How many entries a sample chooses from.
const SAMPLED: usize = 32;

/// What a walk in the order of keys has still to come to.
enum Ahead {
    Item(RemoteAddr, Pointer),
    Node {
        entry: Pointer,
        /// How many bytes of a key tell of it.
        known: usize,
        /// Whether those are the ones that the walk begins with: some keys below may come before.
        is_edge: bool,
    },
}

/// What a walk comes to.
pub(crate) trait Visitor {
    fn node(&mut self, _addr: RemoteAddr, _image: &Image, _known: usize) {}
    /// How many more items it wants.
    fn wanted(&self) -> usize {
        usize::MAX
    }
    /// Returns whether to go on.
    fn item(&mut self, slot: RemoteAddr, pointer: Pointer) -> bool;
}

/// Goes through all entries in the order of keys, from where `from` is or would be: the first may be of a smaller one. Returns whether
/// it has come to the end. `smart` is asked where a prefix is not told whole; without it `from` has to be empty.
pub(super) async fn walk_from(
    cx: &mut OpContext,
    (area, smart): (RemoteAddr, Option<&Smart>),
    (from, nodes_at_once): (&[u8], usize),
    visitor: &mut dyn Visitor,
) -> Result<bool, IndexError> {
    let version = smart.map_or(0, |smart| smart.shared.version.get());
    let root = read_root(cx, area, version).await?;
    let mut ahead = vec![Ahead::Node {
        entry: root.word,
        known: 0,
        is_edge: true,
    }];
    // Ends: each round takes something away, and a node puts what is deeper there.
    while let Some(next) = ahead.pop() {
        let first = match next {
            Ahead::Item(slot, pointer) => {
                if !visitor.item(slot, pointer) {
                    return Ok(false);
                }
                continue;
            }
            Ahead::Node { entry, known, is_edge } => (entry, known, is_edge),
        };
        let mut nodes = vec![first];
        // Those behind are read with it as far as they will probably be needed: a large node has two KiB.
        let mut expected = kind_of(first.0).least();
        while nodes.len() < nodes_at_once
            && expected < visitor.wanted()
            && let Some(Ahead::Node { entry, known, is_edge }) = ahead.pop_if(|next| matches!(next, Ahead::Node { .. }))
        {
            nodes.push((entry, known, is_edge));
            expected += kind_of(entry).least();
        }
        let images = Box::pin(read_nodes(cx, &nodes)).await?;
        for ((entry, known, is_edge), image) in nodes.into_iter().zip(images).rev() {
            let addr = node_of(entry);
            visitor.node(addr, &image, known);
            let mut edge = Edge::Inside;
            if is_edge && !from.is_empty() {
                let path = match (smart, image.header.has_gap(known)) {
                    (Some(smart), true) => smart.path_of(cx, (addr, version), &image).await?,
                    _ => None,
                };
                edge = Edge::of(&image, known, from, path.as_deref());
            }
            expand(&image, addr, &edge, &mut ahead);
        }
    }
    Ok(true)
}

async fn read_nodes(cx: &mut OpContext, nodes: &[(Pointer, usize, bool)]) -> Result<Vec<Image>, IndexError> {
    if let [(entry, known, _)] = nodes[..] {
        return Ok(vec![read_node(cx, node_of(entry), kind_of(entry), (0, known)).await?]);
    }
    let mut batch = Batch::new();
    let (mut at, mut areas) = (0, Vec::new());
    for &(entry, ..) in nodes {
        let area = Slice::new(at, kind_of(entry).bytes());
        batch.read(node_of(entry), area);
        areas.push(area);
        at += area.bytes;
    }
    cx.reserve(at as usize);
    cx.post(&mut batch).await?;
    cx.rely_on_words();
    let decode = |area: &Slice| Image::decode(cx.buffer(), area.at as usize, area.bytes as usize);
    let mut images: Vec<Image> = areas.iter().map(decode).collect();
    for (image, &(entry, known, _)) in images.iter_mut().zip(nodes) {
        if !image.header.is_sound(known) {
            return Err(IndexError::NodeDamaged { at: node_of(entry) });
        }
        if image.header.kind() > kind_of(entry) {
            *image = read_node(cx, node_of(entry), image.header.kind(), (0, known)).await?;
        }
    }
    Ok(images)
}

/// What of a node's entries a walk comes to.
enum Edge {
    /// All.
    Inside,
    /// None: all of its keys come before.
    Before,
    /// Those from this byte on, which is where the walk begins.
    At(u8),
}

impl Edge {
    fn of(image: &Image, known: usize, from: &[u8], path: Option<&[u8]>) -> Self {
        let (depth, repeats_from) = (image.header.depth(), image.header.repeats_from());
        for at in known..depth {
            let byte = match path.and_then(|path| path.get(at)) {
                Some(&byte) => byte,
                None if at >= repeats_from => image.header.byte(at),
                // Nobody knows: there is no item below.
                None => return Self::Inside,
            };
            match from.get(at) {
                Some(&wanted) if byte == wanted => {}
                Some(&wanted) if byte < wanted => return Self::Before,
                _ => return Self::Inside,
            }
        }
        from.get(depth).map_or(Self::Inside, |&byte| Self::At(byte))
    }
}

/// Puts what a node leads to in front of what is ahead.
fn expand(image: &Image, addr: RemoteAddr, edge: &Edge, ahead: &mut Vec<Ahead>) {
    if let Edge::Before = edge {
        return;
    }
    // The last ones first, as they are taken from the end.
    let mut live: Vec<(Option<u8>, usize, Pointer)> = image
        .live()
        .map(|(place, entry)| ((place != END).then(|| entry.fingerprint()), place, entry))
        .collect();
    live.sort_unstable_by_key(|&(byte, ..)| core::cmp::Reverse(byte));
    for (byte, place, entry) in live {
        let is_edge = match edge {
            Edge::At(first) if byte < Some(*first) => continue,
            Edge::At(first) => byte == Some(*first),
            _ => false,
        };
        ahead.push(if is_node(entry) {
            let known = image.header.depth() + 1;
            Ahead::Node { entry, known, is_edge }
        } else {
            Ahead::Item(addr.plus(place_at(place)), entry)
        });
    }
}

/// Gathers the entries of items.
struct Gather {
    entries: Vec<(RemoteAddr, Pointer)>,
    most: usize,
}

impl Visitor for Gather {
    fn wanted(&self) -> usize {
        self.most - self.entries.len()
    }

    fn item(&mut self, slot: RemoteAddr, pointer: Pointer) -> bool {
        if self.entries.len() == self.most {
            return false;
        }
        self.entries.push((slot, pointer));
        true
    }
}

impl Smart {
    /// Up to `most` entries of items from a key on, of which the first may have a smaller one, and whether those are all. Whoever
    /// reads the items has pinned before.
    pub(crate) async fn entries_from(
        &self,
        cx: &mut OpContext,
        from: &[u8],
        most: usize,
    ) -> Result<(Vec<(RemoteAddr, Pointer)>, bool), IndexError> {
        let entries = Vec::new();
        let mut gather = Gather { entries, most };
        let nodes_at_once = NODES_AT_ONCE.min(most);
        let is_end = walk_from(cx, (self.shared.area, Some(self)), (from, nodes_at_once), &mut gather).await?;
        Ok((gather.entries, is_end))
    }

    /// Visits up to `count` items from the key `from` on, in the order of their keys, with what is wanted of them. Returns the
    /// key to go on with, `None` at the end.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub async fn range(
        &self,
        cx: &mut OpContext,
        from: &[u8],
        count: usize,
        (wanted, visit): (Wanted, &mut dyn FnMut(Item<'_>)),
    ) -> Result<Option<Vec<u8>>, IndexError> {
        let mut next = from.to_vec();
        let mut left = count;
        // Ends: each round goes on behind the last key.
        while left > 0 {
            let _pin = self.pin();
            // One more, as the first may be smaller than `from`.
            let most = left.saturating_add(1).min(ENTRIES_AT_ONCE);
            let (entries, is_end) = self.entries_from(cx, &next, most).await?;
            let (mut seen, mut last, from) = (0, next.clone(), &next);
            let mut look = |item: Item<'_>| {
                last.clear();
                last.extend_from_slice(item.key);
                if item.key >= &from[..] {
                    visit(item);
                    seen += 1;
                }
                seen < left
            };
            self.blocks.visit_items(cx, 0, &entries, (wanted, &mut look)).await?;
            left -= seen;
            if left > 0 && is_end {
                return Ok(None);
            }
            // The key behind the last one: it, and a zero.
            last.push(0);
            next = last;
        }
        Ok(Some(next))
    }

    /// Visits the next items from `cursor` on, which is 0 at first: in the order of their keys. Returns the cursor to go on with,
    /// 0 at the end.
    ///
    /// # Errors
    /// [`IndexError::CursorUnknown`]; see there.
    pub async fn scan(
        &self,
        cx: &mut OpContext,
        cursor: u64,
        (wanted, visit): (Wanted, &mut dyn FnMut(Item<'_>)),
    ) -> Result<u64, IndexError> {
        let key = self.position(cursor)?;
        let next = self.range(cx, &key, KEYS_PER_CALL, (wanted, visit)).await?;
        Ok(next.map_or(0, |key| self.cursor_at(&key)))
    }

    fn position(&self, cursor: u64) -> Result<Box<[u8]>, IndexError> {
        let unknown = IndexError::CursorUnknown {
            cursor,
            kept: CURSORS_MAX,
        };
        match cursor {
            0 => Ok(Box::default()),
            _ => match self.cursors.position(cursor) {
                Some(Position::Key(key)) => Ok(key),
                _ => Err(unknown),
            },
        }
    }

    /// The key that a cursor stands for: a scan goes on with it.
    ///
    /// # Errors
    /// [`IndexError::CursorUnknown`].
    pub fn key_at(&self, cursor: u64) -> Result<Option<Box<[u8]>>, IndexError> {
        self.position(cursor).map(Some)
    }

    /// The cursor of a scan that starts with a key.
    #[must_use]
    pub fn cursor_at(&self, key: &[u8]) -> u64 {
        self.cursors.note(Position::Key(key.into()))
    }

    /// A random cursor: a scan from there to its end sees some of the items.
    #[must_use]
    pub fn random_cursor(&self, endpoint: &Endpoint) -> u64 {
        let mut key = Vec::new();
        let mut cache = self.shared.cache.borrow_mut();
        let mut next = self.shared.root.get();
        // Ends: each round goes to a node that is deeper.
        while let Some(addr) = next.map(node_of)
            && let Some(node) = cache.get(addr)
        {
            let header = node.header;
            if header.has_gap(key.len()) && node.path.is_none() {
                break;
            }
            for at in key.len()..header.depth() {
                key.push(match &node.path {
                    Some(path) => path[at],
                    None => header.byte(at),
                });
            }
            let used = node.entries.len();
            let used = cache.places().map_or(Some(used), |places| places.used(addr));
            let Some(others) = used.and_then(|used| used.checked_sub(2)) else {
                break;
            };
            let place = 1 + endpoint.random_below(others as u64 + 1) as usize;
            let chosen = match cache.places() {
                None => cache.get(addr).map(|node| node.entries[place]),
                Some(_) => look_at(endpoint, addr.plus(place_at(place))),
            };
            let Some(chosen) = chosen else {
                break;
            };
            key.push(chosen.fingerprint());
            next = is_node(chosen).then_some(chosen);
        }
        drop(cache);
        self.cursor_at(&key)
    }

    /// Visits up to `count` items behind `cursor`, chosen at random among some; there may be fewer, or none. Returns the cursor
    /// to go on with, 0 at the end.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub async fn sample(
        &self,
        cx: &mut OpContext,
        cursor: u64,
        count: usize,
        visit: &mut dyn FnMut(Sampled<'_>),
    ) -> Result<u64, IndexError> {
        let _pin = self.pin();
        let key = self.position(cursor)?;
        let (entries, is_end) = self.entries_from(cx, &key, SAMPLED).await?;
        let next = match entries.last() {
            Some(&last) if !is_end => Some(self.key_behind(cx, last).await?),
            _ => None,
        };
        self.blocks.sample(cx, 0, entries, count, visit).await?;
        Ok(next.map_or(0, |key| self.cursor_at(&key)))
    }

    /// The key behind that of an entry.
    pub(crate) async fn key_behind(
        &self,
        cx: &mut OpContext,
        entry: (RemoteAddr, Pointer),
    ) -> Result<Vec<u8>, IndexError> {
        let (entries, mut behind) = ([entry], None);
        let visit = &mut |_: Pointer, _: Header, _: u32, key: &[u8]| {
            behind = Some([key, &[0]].concat());
            true
        };
        self.blocks.read_heads(cx, 0, &entries, visit).await?;
        Ok(behind.expect("the item was visited, or it is an error"))
    }

    /// How many keys are stored, expired ones included. Keys that come or go meanwhile may be missed.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub async fn count(&self, cx: &mut OpContext) -> Result<u64, IndexError> {
        let (mut count, mut from) = (0, Vec::new());
        // Ends: each round goes on behind the last key.
        loop {
            let pin = self.pin();
            let (entries, is_end) = self.entries_from(cx, &from, ENTRIES_AT_ONCE).await?;
            count += entries.len() as u64;
            if let Some(&first) = entries.first().filter(|_| !from.is_empty())
                && self.key_behind(cx, first).await? <= from
            {
                // It comes before, and was counted.
                count -= 1;
            }
            from = match entries.last() {
                Some(&last) if !is_end => self.key_behind(cx, last).await?,
                _ => return Ok(count),
            };
            drop(pin);
            // Over mapped memory nothing waits, so this would keep the thread's other tasks from running.
            cx.endpoint().sleep(0).await;
        }
    }

    /// Removes every key that is there when its entry is visited; returns how many.
    ///
    /// # Errors
    /// See [`IndexError`]; some keys may be gone then.
    pub async fn clear(&self, cx: &mut OpContext) -> Result<u64, IndexError> {
        let (mut count, mut next) = (0, Some(Vec::new()));
        while let Some(key) = next {
            let mut keys = Vec::new();
            let visit = &mut |item: Item<'_>| keys.push(item.key.to_vec());
            next = self.range(cx, &key, KEYS_PER_CALL, (Wanted::Keys, visit)).await?;
            for key in keys {
                let delete = &mut |stored: Option<Item<'_>>| match stored {
                    Some(_) => Decision::Delete { regardless: true },
                    None => Decision::Keep,
                };
                let change = self.change(cx, &key, None, delete).await?;
                count += u64::from(change == crate::operation::Change::Deleted);
            }
            cx.endpoint().sleep(0).await;
        }
        Ok(count)
    }
}

/// What an entry says, over mapped memory.
fn look_at(endpoint: &Endpoint, at: RemoteAddr) -> Option<Pointer> {
    let mut word = [0; 8];
    endpoint.view(at, 8)?.copy_to(&mut word);
    Some(Pointer::from_word(u64::from_le_bytes(word)))
}
