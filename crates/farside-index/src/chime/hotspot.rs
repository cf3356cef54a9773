//! Where the hot entries are: a client that knows reads one entry instead of a neighbourhood (CHIME, section 4.3).
//!
//! On the path: between the parent, which says which leaf, and the READ. What is remembered may be wrong; the entry that is
//! read tells, as it has the key. If the key is there, it is what a SEARCH finds: nobody can have changed it elsewhere as long
//! as it is taken here.
//!
//! A hotspot is an entry of a leaf, with a fingerprint of the key that was found there and how often that was. The published
//! one has 16 bytes, and the least frequently used one goes. Here the one goes that is least used among some that are looked
//! at in turn, so that no second order has to be kept.

use std::collections::BTreeMap;

use arrayvec::ArrayVec;
use farside_fabric::RemoteAddr;
use xxhash_rust::xxh3::xxh3_64;

use crate::tree::Key;

/// How many hotspots are looked at for one that goes.
const LOOKED_AT: usize = 8;

#[derive(Clone, Copy, Debug)]
struct Hotspot {
    fingerprint: u16,
    count: u32,
}

/// The hotspots that a client remembers, up to a budget of bytes.
#[derive(Debug)]
pub(crate) struct HotspotBuffer {
    spots: BTreeMap<(RemoteAddr, u16), Hotspot>,
    count_max: usize,
    /// Where the search for one that goes continues.
    hand: (RemoteAddr, u16),
}

/// What a hotspot takes: itself and its place in the map, whose nodes are between half full and full.
pub(crate) const HOTSPOT_BYTES: usize = (size_of::<(RemoteAddr, u16)>() + size_of::<Hotspot>()) * 3 / 2;

fn fingerprint(key: Key) -> u16 {
    (xxh3_64(&key.to_le_bytes()) >> 48) as u16
}

impl HotspotBuffer {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            spots: BTreeMap::new(),
            count_max: bytes_max / HOTSPOT_BYTES,
            hand: (RemoteAddr::NULL, 0),
        }
    }

    /// Bytes in use.
    pub(crate) fn bytes(&self) -> usize {
        self.spots.len() * HOTSPOT_BYTES
    }

    /// The hottest of some entries of a leaf whose fingerprint is that of a key.
    pub(crate) fn hottest(&self, leaf: RemoteAddr, entries: impl Iterator<Item = usize>, key: Key) -> Option<usize> {
        let wanted = fingerprint(key);
        let spots = entries.filter_map(|entry| Some((entry, self.spots.get(&(leaf, entry as u16))?)));
        let fitting = spots.filter(|(_, spot)| spot.fingerprint == wanted);
        fitting.max_by_key(|(_, spot)| spot.count).map(|(entry, _)| entry)
    }

    /// Notes that a key was found in an entry.
    pub(crate) fn note(&mut self, leaf: RemoteAddr, entry: usize, key: Key) {
        if self.count_max == 0 {
            return;
        }
        let (at, fingerprint) = ((leaf, entry as u16), fingerprint(key));
        match self.spots.get_mut(&at) {
            Some(spot) if spot.fingerprint == fingerprint => spot.count = spot.count.saturating_add(1),
            Some(spot) => *spot = Hotspot { fingerprint, count: 1 },
            None => {
                if self.spots.len() >= self.count_max {
                    self.forget_one();
                }
                self.spots.insert(at, Hotspot { fingerprint, count: 1 });
            }
        }
    }

    fn forget_one(&mut self) {
        let (after, before) = (self.spots.range(self.hand..), self.spots.range(..self.hand));
        let looked_at = after.chain(before).map(|(&at, spot)| (spot.count, at));
        let looked_at: ArrayVec<_, LOOKED_AT> = looked_at.take(LOOKED_AT).collect();
        let (Some(&(_, (leaf, entry))), Some(&(_, coldest))) = (looked_at.last(), looked_at.iter().min()) else {
            return;
        };
        self.hand = (leaf, entry.saturating_add(1));
        self.spots.remove(&coldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_fabric::NodeId;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn leaf(number: u64) -> RemoteAddr {
        RemoteAddr::new(NodeId::new(0), number * 2048)
    }

    proptest! {
        #[test]
        fn budget_is_kept_and_the_last_key_is_known(
            notes in vec((0_u64..6, 0_usize..64, any::<u128>()), 1..300), room in 1_usize..40
        ) {
            let mut buffer = HotspotBuffer::new(room * HOTSPOT_BYTES);
            for (number, entry, key) in notes {
                buffer.note(leaf(number), entry, key);
                prop_assert!(buffer.bytes() <= room * HOTSPOT_BYTES);
                prop_assert_eq!(buffer.hottest(leaf(number), core::iter::once(entry), key), Some(entry));
            }
        }
    }

    #[test]
    fn hot_entries_stay_and_cold_ones_go() {
        let mut buffer = HotspotBuffer::new(4 * HOTSPOT_BYTES);
        for _ in 0..3 {
            buffer.note(leaf(1), 5, 77);
        }
        for key in 0..100 {
            buffer.note(leaf(2), key as usize % 64, key);
        }
        assert_eq!(buffer.hottest(leaf(1), 0..64, 77), Some(5));
        assert_eq!(buffer.hottest(leaf(1), 0..64, 78), None);
        assert_eq!(HotspotBuffer::new(0).bytes(), 0);
    }
}
