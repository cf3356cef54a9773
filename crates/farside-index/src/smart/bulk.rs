//! Laying out many items with short keys at once, straight in the memory of the node, and learning where they are.
//!
//! On the path: nowhere. Whoever has the memory in its own process (a benchmark) makes a tree that clients cannot tell from one
//! that has grown, without a verb for each key.

use core::sync::atomic::Ordering;

use farside_fabric::region::Region;
use farside_fabric::{OpContext, RemoteAddr};
use farside_pool::{BulkLoader, PoolError};
use farside_sync::{Pointer, SizeHint};

use super::Smart;
use super::cache::NodeCache;
use super::descend::Image;
use super::layout::{END, Header, Kind, ROOT_AT, node_of, place_at, to_node};
use super::link::encode_node;
use super::scan::{NODES_AT_ONCE, Visitor, walk_from};
use crate::error::IndexError;
use crate::item::Item;

/// Bytes of a key that is laid out.
const KEY_BYTES: usize = 8;

/// What a client remembers of an index.
#[derive(Clone, Debug)]
pub struct Known {
    cache: NodeCache,
    root: Option<Pointer>,
}

/// Puts blocks into memory.
struct Builder<'a> {
    items: BulkLoader<'a>,
    nodes: BulkLoader<'a>,
    value: &'a [u8],
    node_bytes: u64,
}

impl Builder<'_> {
    /// The entry that leads to these keys, ascending, of which `known` bytes are told by it.
    fn entry(&mut self, keys: &[[u8; KEY_BYTES]], known: usize) -> Result<Pointer, PoolError> {
        let (first, last) = (keys[0], keys[keys.len() - 1]);
        let byte = known.checked_sub(1).map_or(0, |at| first[at]);
        if first == last {
            let item = Item::of(&first, self.value, 0);
            let bytes = item.bytes();
            let mut block = vec![0; bytes as usize];
            item.encode(&mut block);
            let stored = self.items.block(&block)?;
            return Ok(Pointer::new(stored, SizeHint::for_item(bytes), 0).with_fingerprint(byte));
        }
        let depth = (known..KEY_BYTES).find(|&at| first[at] != last[at]);
        let depth = depth.expect("the keys are different");
        let entries = self.entries(keys, depth)?;
        let kind = Kind::for_count(entries.len());
        let header = Header::new(&first, known, depth, kind);
        let mut block = vec![0; self.node_bytes as usize];
        let entries = entries.into_iter().map(|entry| (Some(entry.fingerprint()), entry));
        encode_node(&mut block, header, entries);
        Ok(to_node(self.nodes.block(&block)?, kind, byte, 0))
    }

    /// The entries of a node that decides on the byte at `depth`.
    fn entries(&mut self, keys: &[[u8; KEY_BYTES]], depth: usize) -> Result<Vec<Pointer>, PoolError> {
        let alike = keys.chunk_by(|one, other| one[depth] == other[depth]);
        alike.map(|keys| self.entry(keys, depth + 1)).collect()
    }
}

/// Remembers every node that it comes to.
struct Learn<'s> {
    smart: &'s Smart,
    version: u64,
}

impl Visitor for Learn<'_> {
    fn node(&mut self, addr: RemoteAddr, image: &Image, known: usize) {
        let has_gap = image.header.has_gap(known);
        self.smart.remember_node(self.version, addr, image, has_gap);
    }

    fn item(&mut self, _: RemoteAddr, _: Pointer) -> bool {
        true
    }
}

impl Smart {
    /// Puts keys of eight bytes, ascending, into an empty index that nobody else uses, on the one node of its pool, whose memory
    /// `region` is; all of them with the same value.
    ///
    /// # Errors
    /// If there is not enough memory.
    ///
    /// # Panics
    /// If the index was not opened just now, keys are not ascending, or the value takes more than half a chunk.
    pub fn lay_out(&self, region: &Region, keys: &[[u8; KEY_BYTES]], value: &[u8]) -> Result<(), IndexError> {
        assert!(keys.is_sorted_by(|one, other| one < other), "keys are ascending");
        if keys.is_empty() {
            return Ok(());
        }
        let geometry = self.pool().geometry()[0];
        let root = region.word(self.shared.area.plus(ROOT_AT).offset());
        let first = node_of(Pointer::from_word(root.load(Ordering::SeqCst)));
        let item = Item::of(&keys[0], value, 0);
        let mut builder = Builder {
            items: BulkLoader::new(geometry, region, item.bytes()),
            nodes: BulkLoader::new(geometry, region, self.node_bytes()),
            value,
            node_bytes: self.node_bytes(),
        };
        // The first node is there, and decides on the first byte.
        let entries = builder.entries(keys, 0)?;
        let Builder { items, nodes, .. } = builder;
        items.finish();
        nodes.finish();
        let kind = Kind::for_count(entries.len());
        for (place, entry) in (END + 1..).zip(entries) {
            let word = region.word(first.plus(place_at(place)).offset());
            word.store(entry.to_word(), Ordering::SeqCst);
        }
        let header = Header::new(b"", 0, 0, kind);
        region.word(first.offset()).store(header.0, Ordering::SeqCst);
        root.store(to_node(first, kind, 0, 0).to_word(), Ordering::SeqCst);
        Ok(())
    }

    /// What this client remembers, for others to begin with.
    #[must_use]
    pub fn known(&self) -> Known {
        Known {
            cache: self.shared.cache.borrow().clone(),
            root: self.shared.root.get(),
        }
    }

    /// Remembers what another client did, instead of what this one does. The other one has the same budget, and no node has changed
    /// since.
    pub fn remember_known(&self, known: &Known) {
        self.shared.cache.replace(known.cache.clone());
        self.shared.root.set(known.root);
    }

    /// Reads every node, so that this client remembers it.
    ///
    /// # Errors
    /// See [`IndexError`].
    pub async fn remember_all(&self, cx: &mut OpContext) -> Result<(), IndexError> {
        let _pin = self.pin();
        self.shared.root.set(None);
        let version = self.root(cx).await?.version;
        let mut learn = Learn { smart: self, version };
        walk_from(cx, (self.shared.area, None), (b"", NODES_AT_ONCE), &mut learn).await?;
        Ok(())
    }
}
