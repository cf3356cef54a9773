//! Over mapped memory: which place of a node each byte has.
//!
//! On the path: SEARCH, UPDATE and INSERT over mapped memory. What an entry says is as near as anything that could be remembered of
//! it; what costs is to find it among up to 256, and each cache line on the way there. So a node is a row of a table, with a place
//! for each byte, of which a step reads one line; where the row is, and at which byte of a key the node decides, is beside its
//! address.

use std::collections::HashMap;

use farside_fabric::RemoteAddr;
use farside_fabric::hash::MixState;

use super::layout::{Course, END, Header, PLACES};

/// A node.
#[derive(Clone, Copy, Debug)]
struct Row {
    header: Header,
    /// How many entries are in use, the one of the key that ends here counted.
    used: u32,
    /// The place of the entry of each byte; 0 if it has none, or the last place there is.
    places: [u8; 256],
}

/// Where a node is.
#[derive(Clone, Copy, Debug)]
struct Spot {
    row: u32,
    /// See [`Header::depth`].
    depth: u32,
}

/// Nodes by their addresses.
#[derive(Clone, Default, Debug)]
pub(super) struct Places {
    spots: HashMap<RemoteAddr, Spot, MixState>,
    rows: Vec<Row>,
    free: Vec<u32>,
}

/// How a key goes on in a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Way {
    /// The place of its entry.
    pub(super) place: usize,
    /// See [`Header::depth`].
    pub(super) depth: usize,
    /// See [`Header::has_gap`].
    pub(super) has_gap: bool,
}

impl Places {
    /// Bytes of a node.
    pub(super) const BYTES: usize = size_of::<Row>() + size_of::<(RemoteAddr, Spot)>();

    /// Remembers a node, which is not remembered, with entries of these bytes, in order.
    pub(super) fn insert(&mut self, addr: RemoteAddr, header: Header, bytes: impl Iterator<Item = u8>) {
        let mut row = Row {
            header,
            used: 1,
            places: [0; 256],
        };
        for byte in bytes {
            // The last place there is comes to 0.
            row.places[usize::from(byte)] = row.used as u8;
            row.used += 1;
        }
        let depth = header.depth() as u32;
        let number = self.free.pop().unwrap_or(self.rows.len() as u32);
        match self.rows.get_mut(number as usize) {
            Some(free) => *free = row,
            None => self.rows.push(row),
        }
        self.spots.insert(addr, Spot { row: number, depth });
    }

    /// Notes that a node has got an entry, the next one, and a header that says so; returns whether it is the next to those that are
    /// known, without which it says nothing.
    #[must_use]
    pub(super) fn add(&mut self, addr: RemoteAddr, (place, byte): (usize, u8), header: Header) -> bool {
        let Some(spot) = self.spots.get(&addr) else {
            return false;
        };
        let row = &mut self.rows[spot.row as usize];
        if row.used as usize != place {
            return false;
        }
        row.places[usize::from(byte)] = place as u8;
        (row.header, row.used) = (header, place as u32 + 1);
        true
    }

    pub(super) fn remove(&mut self, addr: RemoteAddr) {
        self.free.extend(self.spots.remove(&addr).map(|spot| spot.row));
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// How many entries of a node are in use, the one of the key that ends there counted.
    pub(super) fn used(&self, addr: RemoteAddr) -> Option<usize> {
        let spot = self.spots.get(&addr)?;
        Some(self.rows[spot.row as usize].used as usize)
    }

    /// How a key goes on in a node, of which `known` bytes are told by the entry that leads there; `None` if it does not, or the
    /// node is not remembered.
    #[inline]
    pub(super) fn way(&self, addr: RemoteAddr, key: &[u8], known: usize) -> Option<Way> {
        let spot = self.spots.get(&addr)?;
        let row = &self.rows[spot.row as usize];
        let depth = spot.depth as usize;
        // The header is another line, and says nothing if nothing lies between.
        let has_prefix = depth != known;
        if has_prefix && row.header.course(key, known) != Course::Same {
            return None;
        }
        let place = match key.get(depth) {
            None => END,
            Some(&byte) => match row.places[usize::from(byte)] {
                0 if row.used as usize == PLACES => PLACES - 1,
                0 => return None,
                place => place.into(),
            },
        };
        let has_gap = has_prefix && row.header.has_gap(known);
        Some(Way { place, depth, has_gap })
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

    #[test]
    fn each_byte_has_its_place() {
        let mut places = Places::default();
        let header = Header::new(b"k", 0, 1, Kind::SMALLEST);
        let place = |places: &Places, key: &[u8]| places.way(addr(1), key, 1).map(|way| way.place);
        places.insert(addr(1), header, (0..255).rev());
        assert_eq!(place(&places, b"k"), Some(END));
        for byte in 0..255 {
            assert_eq!(place(&places, &[b'k', byte]), Some(255 - usize::from(byte)));
        }
        assert_eq!(place(&places, &[b'k', 255]), None);
        // Somebody has added others before.
        assert!(!places.add(addr(1), (257, 255), header));
        assert_eq!(place(&places, &[b'k', 255]), None);
        // The last one of all.
        assert!(places.add(addr(1), (256, 255), header));
        assert_eq!(place(&places, &[b'k', 255]), Some(256));
        assert_eq!(place(&places, &[b'k', 254]), Some(1));
        // A row is used again.
        places.remove(addr(1));
        assert_eq!(places.way(addr(1), b"k", 1), None);
        places.insert(addr(2), header, [7].into_iter());
        assert_eq!(places.way(addr(2), &[b'k', 8], 1), None);
        assert_eq!(places.rows.len(), 1);
        let way = Way {
            place: 1,
            depth: 1,
            has_gap: false,
        };
        assert_eq!(places.way(addr(2), &[b'k', 7], 1), Some(way));
        // The header repeats the byte before.
        assert_eq!(places.way(addr(2), &[b'k', 7], 0), Some(way));
        assert_eq!(places.way(addr(2), &[b'x', 7], 0), None);
        places.clear();
        assert_eq!(places.way(addr(2), b"k", 1), None);
    }
}
