//! The nodes that a client remembers.
//!
//! On the path: first thing of every operation; the deepest node that is remembered says in which entry a key is.
//!
//! What is remembered of a node stays true as long as the node is linked: its depth, its prefix, and which entry each byte has. What an
//! entry *says* may have changed since, so it is read again; and a node that has been replaced is known by its frozen entries.
//! Over mapped memory only where each byte has its entry is remembered ([`super::places`]), and of the smallest nodes not even that:
//! see [`NodeCache::wants`].
//! Nodes that are linked no more are forgotten before their memory is used again: see [`super`].

use std::collections::{HashMap, VecDeque};

use farside_fabric::RemoteAddr;
use farside_fabric::hash::MixState;
use farside_sync::Pointer;

use super::descend::Image;
use super::layout::{END, Header, is_node};
use super::places::Places;

/// So many entries make a small node.
pub(super) const SMALL: usize = 17;

/// What is remembered of a node.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) header: Header,
    /// The entry of the key that ends here, then those in use.
    pub(super) entries: Box<[Pointer]>,
    /// The bytes of every key before the one that chooses an entry, if somebody has asked for them.
    pub(super) path: Option<Box<[u8]>>,
}

impl Node {
    pub(super) fn new(header: Header, entries: Box<[Pointer]>) -> Self {
        Self {
            header,
            entries,
            path: None,
        }
    }

    fn bytes(&self) -> usize {
        size_of::<Known>() + size_of_val(&*self.entries) + self.path.as_ref().map_or(0, |path| path.len())
    }
}

/// Where the entry of a byte is, or of the key that ends here, among those in use.
pub(super) fn place_of(entries: &[Pointer], byte: Option<u8>) -> Option<usize> {
    match byte {
        None => Some(END),
        Some(byte) => {
            let found = entries[1..].iter().position(|entry| entry.fingerprint() == byte);
            found.map(|index| index + 1)
        }
    }
}

#[derive(Clone, Debug)]
struct Known {
    node: Node,
    /// Whether it was used since the search for a node to forget last came by.
    is_used: bool,
}

/// Nodes up to a budget of bytes.
#[derive(Clone, Debug)]
pub(super) struct NodeCache {
    nodes: HashMap<RemoteAddr, Known, MixState>,
    /// The nodes in the order in which the search for one to forget comes by; some are forgotten already.
    ring: VecDeque<RemoteAddr>,
    bytes: usize,
    bytes_max: usize,
    /// Of the same nodes, if memory is mapped, where no entries are remembered.
    places: Option<Places>,
}

impl NodeCache {
    pub(super) fn new(bytes_max: usize, is_mapped: bool) -> Self {
        Self {
            nodes: HashMap::default(),
            ring: VecDeque::new(),
            bytes: 0,
            bytes_max,
            places: is_mapped.then(Places::default),
        }
    }

    /// Whether a node is worth remembering. Over mapped memory a small one is read as quickly as an entry of it, and most are
    /// small: of those only the ones that lead to further nodes are, and where bytes of the way are known to nobody but the
    /// items, since their path is remembered with them.
    pub(super) fn wants(&self, image: &Image, has_gap: bool) -> bool {
        self.places.is_none() || has_gap || image.used() > SMALL || image.live().any(|(_, entry)| is_node(entry))
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.ring.len() * size_of::<RemoteAddr>()
    }

    /// What is remembered of a node.
    pub(super) fn get(&mut self, node: RemoteAddr) -> Option<&Node> {
        let known = self.nodes.get_mut(&node)?;
        known.is_used = true;
        Some(&known.node)
    }

    /// Whether a node is remembered.
    pub(super) fn has(&self, node: RemoteAddr) -> bool {
        self.nodes.contains_key(&node)
    }

    /// Remembers a node as it was read just now.
    pub(super) fn insert(&mut self, addr: RemoteAddr, mut node: Node) {
        let before = self.forget(addr);
        if let Some(before) = before {
            node.path = node.path.or(before.path);
        } else {
            self.ring.push_back(addr);
            if self.ring.len() > 2 * (self.nodes.len() + 8) {
                // Nodes that were forgotten and read again are there twice.
                self.ring = self.nodes.keys().copied().chain([addr]).collect();
            }
        }
        if let Some(places) = &mut self.places {
            places.insert(
                addr,
                node.header,
                node.entries[1..].iter().map(|entry| entry.fingerprint()),
            );
            node.entries = Box::default();
        }
        self.bytes += self.bytes_of(&node);
        let is_used = false;
        self.nodes.insert(addr, Known { node, is_used });
        // Ends: each round forgets a node, or marks one that will be forgotten when it comes by again.
        while self.bytes() > self.bytes_max
            && let Some(addr) = self.ring.pop_front()
        {
            match self.nodes.get_mut(&addr) {
                None => {}
                Some(known) if known.is_used => {
                    known.is_used = false;
                    self.ring.push_back(addr);
                }
                Some(_) => drop(self.forget(addr)),
            }
        }
    }

    /// Over mapped memory, where each byte has its entry.
    #[inline]
    pub(super) fn places(&self) -> Option<&Places> {
        self.places.as_ref()
    }

    fn bytes_of(&self, node: &Node) -> usize {
        node.bytes() + if self.places.is_some() { Places::BYTES } else { 0 }
    }

    /// Notes what an entry of a node was read to be.
    pub(super) fn note(&mut self, addr: RemoteAddr, place: usize, entry: Pointer) {
        if self.places.is_none()
            && let Some(known) = self.nodes.get_mut(&addr)
            && let Some(stored) = known.node.entries.get_mut(place)
        {
            *stored = entry;
        }
    }

    /// Notes that a node has got an entry, the next one, and a header that says so.
    pub(super) fn add(&mut self, addr: RemoteAddr, place: usize, entry: Pointer, header: Header) {
        if let Some(places) = &mut self.places {
            if !places.add(addr, (place, entry.fingerprint()), header) {
                self.forget(addr);
            }
            return;
        }
        let Some(known) = self.nodes.get_mut(&addr) else { return };
        if known.node.entries.len() != place {
            self.forget(addr);
            return;
        }
        let entries = known.node.entries.iter().copied().chain([entry]);
        (known.node.entries, known.node.header) = (entries.collect(), header);
        self.bytes += size_of::<Pointer>();
    }

    /// Remembers the bytes of every key below a node.
    pub(super) fn note_path(&mut self, addr: RemoteAddr, path: &[u8]) {
        if let Some(known) = self.nodes.get_mut(&addr)
            && known.node.path.is_none()
        {
            self.bytes -= known.node.bytes();
            known.node.path = Some(path.into());
            self.bytes += known.node.bytes();
        }
    }

    /// Notes that an entry of a node is another one by now: what is remembered of it is forgotten with the node.
    pub(super) fn forget_entries(&mut self, addr: RemoteAddr) {
        if self.places.is_none() {
            self.forget(addr);
        }
    }

    /// Forgets a node.
    pub(super) fn forget(&mut self, addr: RemoteAddr) -> Option<Node> {
        let known = self.nodes.remove(&addr)?;
        if let Some(places) = &mut self.places {
            places.remove(addr);
        }
        self.bytes -= self.bytes_of(&known.node);
        Some(known.node)
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.nodes.clear();
        self.ring.clear();
        self.places.iter_mut().for_each(Places::clear);
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::Kind;
    use super::*;
    use farside_fabric::NodeId;

    fn addr(number: u64) -> RemoteAddr {
        RemoteAddr::new(NodeId::new(0), number * 256)
    }

    fn node(entries: usize) -> Node {
        Node::new(
            Header::new(b"", 0, 0, Kind::SMALLEST),
            vec![Pointer::NULL; entries].into(),
        )
    }

    #[test]
    fn what_is_used_is_kept_within_the_budget() {
        let most = 10 * (node(4).bytes() + 8);
        let mut cache = NodeCache::new(most, false);
        for number in 1..=100 {
            cache.insert(addr(number), node(4));
            assert!(cache.get(addr(1)).is_some() && cache.bytes() <= most);
        }
        assert_eq!((1..=100).filter(|&number| cache.has(addr(number))).count(), 10);
        // What is read again takes the place of what was known.
        let before = cache.bytes();
        cache.insert(addr(1), node(4));
        cache.note_path(addr(1), b"path");
        assert_eq!(cache.bytes(), before + 4);
        cache.forget(addr(1));
        assert!(cache.get(addr(1)).is_none());
        cache.clear();
        assert_eq!(cache.bytes(), 0);
    }
}
