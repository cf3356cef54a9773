//! From the root to the entry of a key.
//!
//! On the path: first step of every operation. Goes through the nodes that this client remembers without a verb, and reads the
//! entry of the deepest one anew; what it does not remember it READs, as much as the entry that leads there says.

use std::collections::BTreeMap;

use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, OpContext, RemoteAddr, Slice};
use farside_sync::{LOCK_BYTES, Pointer};

use super::Smart;
use super::cache::{Node, NodeCache, place_of};
use super::layout::{
    Course, END, Header, Kind, PLACES, ROOT_AT, frozen, is_frozen, is_item, is_node, kind_of, lock_at, node_of,
    place_at,
};
use crate::error::IndexError;

/// An entry that leads to a node: where it is, and what it was when it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    /// The node that it is in; [`RemoteAddr::NULL`] for the one that leads to the first.
    pub(super) node: RemoteAddr,
    pub(super) place: usize,
    pub(super) at: RemoteAddr,
    pub(super) word: Pointer,
    /// How often a node had gone before it was read.
    pub(super) version: u64,
}

/// The entry of a key in a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot {
    pub(super) node: RemoteAddr,
    pub(super) place: usize,
    pub(super) word: Pointer,
    /// How many bytes of a key stand before the one that chose it.
    pub(super) depth: usize,
    /// Whether some bytes on the way here are known to nobody but the items.
    pub(super) has_gap: bool,
    /// How often a node had gone before it was read.
    pub(super) version: u64,
}

impl Slot {
    pub(super) fn at(&self) -> RemoteAddr {
        self.node.plus(place_at(self.place))
    }

    /// How many bytes of a key are told by this entry.
    pub(super) fn known(&self) -> usize {
        self.depth + usize::from(self.place != END)
    }

    /// Its lock entry, if the index has them.
    pub(super) fn lock(&self, has_locks: bool) -> RemoteAddr {
        const { assert!(LOCK_BYTES > 0) };
        if has_locks {
            self.node.plus(lock_at(self.place))
        } else {
            RemoteAddr::NULL
        }
    }
}

/// How the way of a key is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum How {
    /// As far as is remembered without a verb.
    Known,
    /// Likewise; and an item is worth a READ before it is known to be the right one.
    Speculating,
    /// Every node is READ.
    Fresh,
}

/// Where the way of a key ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// In an entry that leads to no node. It is not frozen.
    Entry {
        slot: Slot,
        /// The item that the entry led to when it was last looked at was read to the start of the buffer, and it does still.
        has_item: bool,
    },
    /// In a node without an entry for the next byte: the first place that is free was read to be.
    Node {
        /// The place for it.
        slot: Slot,
        header: Header,
        /// What leads to the node.
        parent: Entry,
    },
    /// Above a node with another prefix.
    Above {
        /// What leads there.
        parent: Entry,
        /// How many bytes of a key are told by it.
        known: usize,
        /// The first byte of the prefix that the key has not, and where it stands.
        byte: u8,
        at: usize,
        has_gap: bool,
    },
    /// Above a node whose prefix is longer than the key, and not known.
    Ends { known: usize },
    /// Something frozen is in the way.
    Frozen,
}

impl End {
    /// The node in which the way ends, if it does in one.
    pub(super) fn node(&self) -> Option<RemoteAddr> {
        match self {
            Self::Entry { slot, .. } | Self::Node { slot, .. } => Some(slot.node),
            Self::Above { .. } | Self::Ends { .. } | Self::Frozen => None,
        }
    }

    /// Whether some bytes on the way here are known to nobody but the items.
    pub(super) fn has_gap(&self) -> bool {
        match self {
            Self::Entry { slot, .. } | Self::Node { slot, .. } => slot.has_gap,
            Self::Above { has_gap, .. } => *has_gap,
            Self::Ends { .. } => true,
            Self::Frozen => false,
        }
    }
}

/// What a READ of a node has brought.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    pub(super) header: Header,
    /// All entries that may be in use.
    pub(super) entries: Vec<Pointer>,
}

impl Image {
    /// A node whose READ, of `bytes` bytes, stands at `at` in the buffer.
    pub(super) fn decode(buffer: &[u8], at: usize, bytes: usize) -> Self {
        let (words, _) = buffer[at..at + bytes].as_chunks::<8>();
        let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
        Self {
            header: Header(word(&words[0])),
            entries: words[1..].iter().map(|bytes| Pointer::from_word(word(bytes))).collect(),
        }
    }

    /// How many entries are in use, the one at the end of a key counted always: the next place is free, if there is one.
    pub(super) fn used(&self) -> usize {
        let in_use = |entry: &&Pointer| entry.to_word() != 0 && !is_free_and_frozen(**entry);
        1 + self.entries[1..].iter().take_while(in_use).count()
    }

    /// Whether one of its entries is frozen.
    pub(super) fn is_frozen(&self) -> bool {
        self.entries.iter().any(|&entry| is_frozen(entry))
    }

    /// The entries that lead somewhere, with their places.
    pub(super) fn live(&self) -> impl Iterator<Item = (usize, Pointer)> + '_ {
        let entries = self.entries.iter().copied().enumerate();
        entries.filter(|&(_, entry)| is_node(entry) || is_item(entry))
    }

    /// The entries of bytes that were ever used, with their places.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = (usize, Pointer)> + '_ {
        (1..self.used()).map(|place| (place, self.entries[place]))
    }

    /// Whether no entry was used before the one ahead of it.
    pub(crate) fn has_order(&self) -> bool {
        let behind = self.entries.iter().skip(self.used());
        behind
            .filter(|entry| !is_free_and_frozen(**entry))
            .all(|entry| entry.to_word() == 0)
    }

    /// Whether a node may stand where an entry leads that tells `known` bytes of a key.
    pub(crate) fn header_fits(&self, known: usize) -> bool {
        self.header.is_sound(known) && self.header.kind().capacity() + 1 >= self.used()
    }

    /// How many entries may be in use.
    pub(crate) fn room(&self) -> usize {
        1 + self.header.kind().capacity()
    }

    /// Where the entry of a byte is, or of the key that ends here.
    pub(super) fn place(&self, byte: Option<u8>) -> Option<usize> {
        place_of(&self.entries[..self.used()], byte)
    }

    /// What is remembered of it.
    pub(super) fn node(&self) -> Node {
        Node::new(self.header, self.entries[..self.used()].into())
    }
}

/// Whether an entry was never used and will not be.
fn is_free_and_frozen(entry: Pointer) -> bool {
    entry == frozen(Pointer::NULL)
}

/// Where the entry of a key is among these nodes, if it has one that leads to no node.
pub(crate) fn place_in(
    nodes: &BTreeMap<RemoteAddr, Image>,
    first: Option<RemoteAddr>,
    key: &[u8],
) -> Option<RemoteAddr> {
    let (mut addr, mut known) = (first?, 0);
    // Ends: each round goes to a node that is deeper.
    loop {
        let image = nodes.get(&addr)?;
        let depth = image.header.depth();
        if !image.header.is_sound(known) || image.header.course(key, known) != Course::Same {
            return None;
        }
        let place = image.place(key.get(depth).copied())?;
        let entry = image.entries[place];
        if !is_node(entry) {
            return Some(addr.plus(place_at(place)));
        }
        (addr, known) = (node_of(entry), depth + 1);
    }
}

/// READs a node to `at` in the buffer, all that is in use. `known` bytes of a key are told by the entry that leads there.
pub(super) async fn read_node(
    cx: &mut OpContext,
    addr: RemoteAddr,
    kind: Kind,
    (at, known): (u32, usize),
) -> Result<Image, IndexError> {
    let mut area = Slice::new(at, kind.bytes());
    // Ends: a kind only grows.
    loop {
        cx.reserve((area.at + area.bytes) as usize);
        cx.read(addr, area).await?;
        cx.rely_on_words();
        let image = Image::decode(cx.buffer(), at as usize, area.bytes as usize);
        if !image.header.is_sound(known) {
            return Err(IndexError::NodeDamaged { at: addr });
        }
        let bytes = image.header.kind().bytes();
        if bytes <= area.bytes || is_planted("smart: a node believed to be as small as the entry says") {
            return Ok(image);
        }
        area.bytes = bytes;
    }
}

fn root_entry(area: RemoteAddr, word: Pointer, version: u64) -> Entry {
    Entry {
        node: RemoteAddr::NULL,
        place: 0,
        at: area.plus(ROOT_AT),
        word,
        version,
    }
}

/// READs the entry of the first node.
pub(super) async fn read_root(cx: &mut OpContext, area: RemoteAddr, version: u64) -> Result<Entry, IndexError> {
    let at = area.plus(ROOT_AT);
    let word = Pointer::from_word(cx.read_word(at).await?);
    match is_node(word) {
        true => Ok(root_entry(area, word, version)),
        false => Err(IndexError::NodeDamaged { at }),
    }
}

impl Smart {
    /// The entry of the first node.
    pub(super) async fn root(&self, cx: &mut OpContext) -> Result<Entry, IndexError> {
        let version = self.shared.version.get();
        if let Some(word) = self.shared.root.get() {
            return Ok(root_entry(self.shared.area, word, version));
        }
        let root = read_root(cx, self.shared.area, version).await?;
        self.note_entry(root);
        Ok(root)
    }

    /// Goes the way of a key. The caller has pinned.
    pub(super) async fn descend(&self, cx: &mut OpContext, key: &[u8], how: How) -> Result<End, IndexError> {
        let version = self.shared.version.get();
        let mut parent = match how {
            How::Fresh => read_root(cx, self.shared.area, version).await?,
            _ => self.root(cx).await?,
        };
        let (mut known, mut has_gap) = (0, false);
        // Whether the entry that leads on was read by this operation.
        let mut is_fresh = how == How::Fresh;
        // Ends: each round goes to a node that is deeper.
        loop {
            let addr = node_of(parent.word);
            let step = match how {
                How::Fresh => None,
                _ => self.known_step(key, parent.word, (known, has_gap)),
            };
            let slot = match step {
                Some(Next::Enter(slot)) => {
                    (parent, known, has_gap) = (entry_of(slot), slot.known(), slot.has_gap);
                    is_fresh = false;
                    continue;
                }
                Some(Next::Look(slot)) => slot,
                None => match self.read_step(cx, key, parent, (known, has_gap)).await? {
                    Read::Slot(slot) => {
                        let has_item = false;
                        if !is_node(slot.word) {
                            return Ok(End::Entry { slot, has_item });
                        }
                        (parent, known, has_gap) = (entry_of(slot), slot.known(), slot.has_gap);
                        is_fresh = true;
                        continue;
                    }
                    Read::End(End::Above { .. } | End::Ends { .. })
                        if !is_fresh && !is_planted("smart: a way that is remembered believed") =>
                    {
                        // Another node may have come between the two.
                        parent.word = Pointer::from_word(cx.read_word(parent.at).await?);
                        if is_frozen(parent.word) || !is_node(parent.word) {
                            self.forget_entry(parent);
                            return Ok(End::Frozen);
                        }
                        self.note_entry(parent);
                        is_fresh = true;
                        continue;
                    }
                    Read::End(end) => return Ok(end),
                },
            };
            let (word, has_item) = self.look(cx, &slot, how == How::Speculating).await?;
            let slot = Slot { word, version, ..slot };
            if is_frozen(word) && !is_planted("smart: a frozen entry taken for a live one") {
                self.shared.cache.borrow_mut().forget(addr);
                return Ok(End::Frozen);
            }
            self.remember(version, |cache| cache.note(addr, slot.place, word));
            if !is_node(word) {
                return Ok(End::Entry { slot, has_item });
            }
            (parent, known, has_gap) = (entry_of(slot), slot.known(), slot.has_gap);
            is_fresh = true;
        }
    }

    /// Remembers what an entry was read to be.
    pub(super) fn note_entry(&self, entry: Entry) {
        self.remember(entry.version, |cache| match entry.node.is_null() {
            true => self.shared.root.set(Some(entry.word)),
            false => cache.note(entry.node, entry.place, entry.word),
        });
    }

    /// Remembers something that was found when a node had gone so often: if more have since, others may use its memory, and
    /// whoever found it has forgotten it already.
    pub(super) fn remember(&self, version: u64, note: impl FnOnce(&mut NodeCache)) {
        if self.shared.version.get() == version {
            note(&mut self.shared.cache.borrow_mut());
        }
    }

    /// Remembers a node as it was read, if that is worth it; `has_gap` says whether some bytes on the way to its entries are known
    /// to nobody but the items.
    pub(super) fn remember_node(&self, version: u64, addr: RemoteAddr, image: &Image, has_gap: bool) {
        self.remember(version, |cache| {
            if cache.wants(image, has_gap) {
                cache.insert(addr, image.node());
            }
        });
    }

    /// Forgets the node in which an entry is.
    pub(super) fn forget_entry(&self, entry: Entry) {
        if entry.node.is_null() {
            self.shared.root.set(None);
        } else {
            self.shared.cache.borrow_mut().forget(entry.node);
        }
    }

    /// What is known of the way of a key through the node to which an entry leads: where it goes on, or which entry has to be read.
    pub(super) fn known_step(&self, key: &[u8], entry: Pointer, (known, has_gap): (usize, bool)) -> Option<Next> {
        let addr = node_of(entry);
        let mut cache = self.shared.cache.borrow_mut();
        let version = self.shared.version.get();
        if let Some(places) = cache.places() {
            let way = places.way(addr, key, known).filter(|way| way.depth >= known)?;
            return Some(Next::Look(Slot {
                node: addr,
                place: way.place,
                word: Pointer::NULL,
                depth: way.depth,
                has_gap: has_gap || way.has_gap,
                version,
            }));
        }
        let node = cache.get(addr)?;
        // In damaged memory, ways that are remembered could go round in a circle.
        if !node.header.is_sound(known) || node.header.course(key, known) != Course::Same {
            return None;
        }
        let depth = node.header.depth();
        let place = place_of(&node.entries, key.get(depth).copied())?;
        let slot = Slot {
            node: addr,
            place,
            word: node.entries[place],
            depth,
            has_gap: has_gap || node.header.has_gap(known),
            version,
        };
        let enters = is_node(slot.word) && cache.has(node_of(slot.word));
        Some(if enters { Next::Enter(slot) } else { Next::Look(slot) })
    }

    /// READs an entry; in the same round trip the item that it led to.
    async fn look(&self, cx: &mut OpContext, slot: &Slot, speculates: bool) -> Result<(Pointer, bool), IndexError> {
        // Verbs keep their order on one node only: an item that is read before its entry may be another one by then.
        let is_near = slot.word.block().node() == slot.node.node();
        if speculates && is_item(slot.word) && is_near && !cx.endpoint().is_mapped() {
            // A batch is large: in a box.
            return Box::pin(self.look_behind(cx, slot)).await;
        }
        Ok((Pointer::from_word(cx.read_word(slot.at()).await?), false))
    }

    async fn look_behind(&self, cx: &mut OpContext, slot: &Slot) -> Result<(Pointer, bool), IndexError> {
        let mut batch = Batch::new();
        let area = Slice::first(self.blocks.readable(slot.word));
        let entry = batch.read_word(slot.at());
        batch.speculate(slot.word.block(), area);
        cx.post(&mut batch).await?;
        let word = Pointer::from_word(batch.result(entry));
        let has_item = word == slot.word;
        if !has_item {
            // Nothing of it is used.
            cx.rely_on(Slice::new(0, 0));
        }
        Ok((word, has_item))
    }

    /// READs a node, remembers it, and says where the way of a key goes on.
    async fn read_step(
        &self,
        cx: &mut OpContext,
        key: &[u8],
        parent: Entry,
        (known, has_gap): (usize, bool),
    ) -> Result<Read, IndexError> {
        let (addr, version) = (node_of(parent.word), self.shared.version.get());
        let image = read_node(cx, addr, kind_of(parent.word), (0, known)).await?;
        let header = image.header;
        let has_gap = has_gap || header.has_gap(known);
        // A node that has been replaced says nothing about keys that came later.
        if image.is_frozen() && !is_planted("smart: a frozen entry taken for a live one") {
            self.shared.cache.borrow_mut().forget(addr);
            return Ok(Read::End(End::Frozen));
        }
        match header.course(key, known) {
            Course::Same => {}
            Course::Differs { at, byte } => {
                return Ok(Read::End(End::Above {
                    parent,
                    known,
                    byte,
                    at,
                    has_gap,
                }));
            }
            Course::Ends => return Ok(Read::End(End::Ends { known })),
        }
        let depth = header.depth();
        let place = image.place(key.get(depth).copied());
        let slot = |place: usize| Slot {
            node: addr,
            place,
            word: image.entries.get(place).copied().unwrap_or(Pointer::NULL),
            depth,
            has_gap,
            version,
        };
        self.remember_node(version, addr, &image, has_gap);
        Ok(match place {
            Some(place) => Read::Slot(slot(place)),
            None => {
                let place = image.used();
                if place >= PLACES {
                    return Err(IndexError::NodeDamaged { at: addr });
                }
                Read::End(End::Node {
                    slot: slot(place),
                    header,
                    parent,
                })
            }
        })
    }
}

fn entry_of(slot: Slot) -> Entry {
    Entry {
        node: slot.node,
        place: slot.place,
        at: slot.at(),
        word: slot.word,
        version: slot.version,
    }
}

/// Where the way of a key goes on that is remembered.
pub(super) enum Next {
    /// On to the node that the entry leads to.
    Enter(Slot),
    /// The entry has to be read.
    Look(Slot),
}

enum Read {
    Slot(Slot),
    End(End),
}
