//! Putting an item into the tree: into a free entry, or with a new node.
//!
//! On the path: INSERT. One swap shows it, or fails, and nothing was changed. Blocks that were not shown are given back.

use core::cell::Cell;

use farside_fabric::mutant::is_planted;
use farside_fabric::{Batch, OpContext, RemoteAddr, Slice};
use farside_pool::Purpose;
use farside_sync::Pointer;

use super::Smart;
use super::change::Step;
use super::descend::{End, Entry, Image, Slot, read_node};
use super::layout::{
    END, Header, Kind, block_bytes, in_place_of, is_frozen, is_node, is_worn, kind_of, node_of, place_at, thawed,
    to_node, with_kind,
};
use crate::blocks::Draft;
use crate::error::IndexError;
use crate::item::Item;
use crate::operation::Change;

/// Writes a node to the start of `target`: its entries with the byte of each, or none for the key that ends there.
pub(super) fn encode_node(target: &mut [u8], header: Header, entries: impl IntoIterator<Item = (Option<u8>, Pointer)>) {
    target.fill(0);
    target[..8].copy_from_slice(&header.0.to_le_bytes());
    let mut next = 1;
    for (byte, entry) in entries {
        let place = match byte {
            None => END,
            Some(_) => {
                next += 1;
                next - 1
            }
        };
        let entry = entry.with_fingerprint(byte.unwrap_or(0));
        let at = place_at(place) as usize;
        target[at..at + 8].copy_from_slice(&entry.to_word().to_le_bytes());
    }
}

/// Adds one to a number.
pub(super) fn count(number: &Cell<u64>) {
    number.set(number.get() + 1);
}

/// A new node, and what it takes the place of.
struct NewNode {
    /// Where the entry is that will lead to it, and what that is now.
    at: RemoteAddr,
    before: Pointer,
    /// The version that the entry has then.
    version: u8,
    header: Header,
    /// What was there before, by its byte, and the byte of the new item.
    other: (Option<u8>, Pointer),
    byte: Option<u8>,
}

impl Smart {
    /// Bytes of a node's block.
    pub(super) fn node_bytes(&self) -> u64 {
        block_bytes(self.shared.has_locks)
    }

    /// Puts an item where its key's way ends.
    pub(super) async fn insert(&self, cx: &mut OpContext, item: Item<'_>, mut end: End) -> Result<Step, IndexError> {
        let is_unknown = end.has_gap() && !self.is_on_way(end.node(), item.key);
        if is_unknown && !is_planted("smart: skipped bytes taken for the key's") {
            match Box::pin(self.parting(cx, item.key)).await? {
                Parting::At(above) => end = above,
                // It has the bytes that lead to this node; if that is where its way has ended, it is there that it belongs.
                Parting::Behind(node) if end.node() == Some(node) => {}
                Parting::Behind(_) => return Ok(Step::Lost),
                Parting::Unknown => return Ok(Step::Untidy),
                Parting::Frozen => return Ok(Step::Frozen),
            }
        }
        match end {
            End::Entry { slot, .. } => self.insert_again(cx, item, slot).await,
            End::Node { slot, header, parent } => self.insert_next(cx, item, (slot, header, parent)).await,
            End::Above {
                parent,
                known,
                byte,
                at,
                ..
            } => {
                let below = to_node(node_of(parent.word), kind_of(parent.word), byte, 0);
                let new = NewNode {
                    at: parent.at,
                    before: parent.word,
                    version: parent.word.version(),
                    header: Header::new(item.key, known, at, Kind::SMALLEST),
                    other: (Some(byte), below),
                    byte: item.key.get(at).copied(),
                };
                let step = self.insert_with_node(cx, item, new).await?;
                match parent.node.is_null() {
                    true => self.forget_entry(parent),
                    false => self.shared.cache.borrow_mut().forget_entries(parent.node),
                }
                Ok(step)
            }
            End::Ends { .. } | End::Frozen => Ok(Step::Lost),
        }
    }

    /// Puts an item beside another one that has its entry: both go into a node of their own.
    pub(super) async fn insert_beside(
        &self,
        cx: &mut OpContext,
        item: Item<'_>,
        (slot, other): (Slot, &[u8]),
    ) -> Result<Step, IndexError> {
        if is_worn(slot.word) {
            return Ok(Step::Worn);
        }
        let differs = |at: &usize| item.key.get(*at) != other.get(*at);
        let at = (0..=item.key.len()).find(differs).expect("the keys are different");
        if at < slot.known() {
            // They part where the nodes do not tell.
            return match Box::pin(self.parting(cx, item.key)).await? {
                Parting::At(above) => self.insert(cx, item, above).await,
                Parting::Frozen => Ok(Step::Frozen),
                Parting::Unknown | Parting::Behind(_) => Ok(Step::Lost),
            };
        }
        let new = NewNode {
            at: slot.at(),
            before: slot.word,
            version: slot.word.version() + 1,
            header: Header::new(item.key, slot.known(), at, Kind::SMALLEST),
            other: (other.get(at).copied(), thawed(slot.word)),
            byte: item.key.get(at).copied(),
        };
        let step = self.insert_with_node(cx, item, new).await?;
        self.shared.cache.borrow_mut().forget_entries(slot.node);
        Ok(step)
    }

    /// Into an entry whose key has gone.
    async fn insert_again(&self, cx: &mut OpContext, item: Item<'_>, slot: Slot) -> Result<Step, IndexError> {
        if is_worn(slot.word) {
            return Ok(Step::Worn);
        }
        let Some(draft) = self.write_new(cx, item).await? else {
            return Ok(short(item.bytes()));
        };
        let new = in_place_of(draft.pointer(0), slot.word);
        let seen = cx.compare_swap(slot.at(), slot.word.to_word(), new.to_word()).await;
        let seen = Pointer::from_word(seen.inspect_err(|_| self.blocks.pool.doubt())?);
        let is_done = seen == slot.word;
        let now = if is_done { new } else { seen };
        self.remember(slot.version, |cache| cache.note(slot.node, slot.place, now));
        Ok(self.linked(draft, is_done))
    }

    /// Into the next free entry of a node.
    async fn insert_next(
        &self,
        cx: &mut OpContext,
        item: Item<'_>,
        (slot, header, parent): (Slot, Header, Entry),
    ) -> Result<Step, IndexError> {
        let Some(draft) = self.write_new(cx, item).await? else {
            return Ok(short(item.bytes()));
        };
        let new = draft.pointer(0).with_fingerprint(item.key[slot.depth]);
        let mut batch = Batch::new();
        let kind = header.kind().max(Kind::for_count(slot.place));
        let raised = header.with_kind(kind);
        let grows = raised != header;
        let is_late = is_planted("smart: a node that is said to be larger after its entry is there");
        if grows && !is_late {
            // If it fails somebody else has done so.
            batch.compare_swap(slot.node, header.0, raised.0);
        }
        let swap = batch.compare_swap(slot.at(), 0, new.to_word());
        let told = with_kind(parent.word, kind);
        // It says how much to read: if it says too little that costs a round trip.
        let telling =
            (kind_of(parent.word) < kind).then(|| batch.compare_swap(parent.at, parent.word.to_word(), told.to_word()));
        let posted = cx.post(&mut batch).await;
        posted.inspect_err(|_| self.blocks.pool.doubt())?;
        if grows && is_late {
            cx.endpoint().sleep(2_000).await;
            cx.compare_swap(slot.node, header.0, raised.0).await?;
        }
        if let Some(telling) = telling {
            let seen = Pointer::from_word(batch.result(telling));
            let word = if seen == parent.word { told } else { seen };
            match is_node(word) && !is_frozen(word) {
                true => self.note_entry(Entry { word, ..parent }),
                false => self.forget_entry(parent),
            }
        }
        let is_done = batch.result(swap) == 0;
        if is_done {
            self.remember(slot.version, |cache| cache.add(slot.node, slot.place, new, raised));
            if grows {
                count(&self.shared.statistics.grown);
            }
        } else {
            self.shared.cache.borrow_mut().forget(slot.node);
        }
        Ok(self.linked(draft, is_done))
    }

    /// With a node of its own.
    async fn insert_with_node(&self, cx: &mut OpContext, item: Item<'_>, new: NewNode) -> Result<Step, IndexError> {
        let (pool, node_bytes) = (&self.blocks.pool, self.node_bytes());
        let Some(node) = pool.allocate(node_bytes) else {
            return Ok(short(node_bytes));
        };
        let bytes = item.bytes();
        // Who has memory for one of the two only makes the node, and finds the place for the item there.
        let draft = pool.allocate(bytes).map(|block| Draft { block, bytes });
        let own = draft.map(|draft| (new.byte, draft.pointer(0)));
        let node_at = if draft.is_some() {
            bytes.next_multiple_of(8) as u32
        } else {
            0
        };
        let node_area = Slice::new(node_at, node_bytes as u32);
        cx.reserve(node_area.range().end);
        let mut batch = Batch::new();
        if let Some(draft) = draft {
            if pool.notes_changes()
                && let Err(error) = self.blocks.note_written(cx, draft).await
            {
                pool.retire(node, Some(node_bytes));
                return Err(error);
            }
            item.encode(cx.buffer_mut());
            batch.write(Slice::first(bytes as u32), draft.block);
        }
        encode_node(
            &mut cx.buffer_mut()[node_area.range()],
            new.header,
            [new.other].into_iter().chain(own),
        );
        batch.write(node_area, node);
        if let Err(error) = cx.post(&mut batch).await {
            // They may take effect later.
            draft.into_iter().for_each(|draft| self.blocks.give_up(draft));
            pool.retire(node, Some(node_bytes));
            return Err(error.into());
        }
        let entry = to_node(node, Kind::SMALLEST, new.before.fingerprint(), new.version);
        let swapped = cx.compare_swap(new.at, new.before.to_word(), entry.to_word()).await;
        let is_done = swapped.inspect_err(|_| pool.doubt())? == new.before.to_word();
        if is_done {
            count(&self.shared.statistics.made);
        } else {
            pool.give_back(node, node_bytes);
        }
        Ok(match draft {
            Some(draft) => self.linked(draft, is_done),
            None => Step::Lost,
        })
    }

    /// Writes an item to a block of its own; `None` if this client has none left.
    async fn write_new(&self, cx: &mut OpContext, item: Item<'_>) -> Result<Option<Draft>, IndexError> {
        let bytes = item.bytes();
        let written = self.blocks.write_item(cx, item, 0).await?;
        Ok(written.map(|pointer| Draft {
            block: pointer.block(),
            bytes,
        }))
    }

    fn linked(&self, draft: Draft, is_done: bool) -> Step {
        if is_done {
            return Step::Done(Change::Inserted);
        }
        self.blocks.pool.give_back(draft.block, draft.bytes);
        Step::Lost
    }

    /// Where a key leaves the way of the nodes, if it does so in bytes that they do not repeat.
    async fn parting(&self, cx: &mut OpContext, key: &[u8]) -> Result<Parting, IndexError> {
        let stops = self.fresh_way(cx, key).await?;
        if stops.iter().any(|stop| stop.image.is_frozen()) {
            return Ok(Parting::Frozen);
        }
        let last = stops.last().expect("there is a first node");
        let addr = node_of(last.entry.word);
        let Some(path) = self.path_of(cx, (addr, last.entry.version), &last.image).await? else {
            return Ok(Parting::Unknown);
        };
        let Some(at) = (0..path.len()).find(|&at| key.get(at) != Some(&path[at])) else {
            return Ok(Parting::Behind(addr));
        };
        let stop = stops.iter().find(|stop| stop.image.header.depth() > at);
        let stop = stop.expect("the last one is as deep as the path");
        Ok(Parting::At(End::Above {
            parent: stop.entry,
            known: stop.known,
            byte: path[at],
            at,
            has_gap: false,
        }))
    }

    /// The bytes of every key below a node before the one that it decides on, as an item there has them; `None` if there is
    /// none.
    pub(super) async fn path_of(
        &self,
        cx: &mut OpContext,
        (addr, version): (RemoteAddr, u64),
        image: &Image,
    ) -> Result<Option<Box<[u8]>>, IndexError> {
        let depth = image.header.depth();
        if let Some(path) = self
            .shared
            .cache
            .borrow_mut()
            .get(addr)
            .and_then(|node| node.path.clone())
        {
            return Ok(Some(path));
        }
        let ahead_of = |node: RemoteAddr, image: &Image| {
            let entries = image.live().map(|(place, entry)| (node.plus(place_at(place)), entry));
            entries.collect::<Vec<_>>()
        };
        let mut ahead = ahead_of(addr, image);
        // Ends: each round goes to a node that is deeper, or takes one away.
        while let Some((slot, found)) = ahead.pop() {
            if is_node(found) {
                let node = node_of(found);
                let image = read_node(cx, node, kind_of(found), (0, 0)).await?;
                ahead.extend(ahead_of(node, &image));
                continue;
            }
            let header = self.blocks.read_item(cx, slot, found, 0).await?;
            let path = header.item(cx.buffer()).key.get(..depth);
            let path: Box<[u8]> = path.ok_or(IndexError::NodeDamaged { at: addr })?.into();
            self.remember(version, |cache| cache.note_path(addr, &path));
            return Ok(Some(path));
        }
        Ok(None)
    }
}

/// Where a key leaves the way of the nodes.
enum Parting {
    At(End),
    /// It goes their way as far as they go, to this one.
    Behind(RemoteAddr),
    /// There is no item to ask.
    Unknown,
    Frozen,
}

fn short(bytes: u64) -> Step {
    Step::Short {
        bytes,
        purpose: Purpose::Insert,
    }
}
