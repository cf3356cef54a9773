//! Where the hot entries are: a client that knows reads one entry instead of a neighbourhood (CHIME, section 4.3).
//!
//! On the path: between the parent, which says which leaf, and the READ. What is remembered may be wrong; the entry that is
//! read tells, as it has the key. If the key is there, it is what a SEARCH finds: nobody can have changed it elsewhere as long
//! as it is taken here.
//!
//! A hotspot is an entry of a leaf, with a fingerprint of the key that was found there and how often that was: 16 bytes, as in the
//! paper. They stand in sets of eight, of which leaf and entry choose one. The paper lets the least frequently used of all go;
//! here it is that of the set, so that no order has to be kept.

use farside_fabric::RemoteAddr;
use xxhash_rust::xxh3::xxh3_64;

use crate::tree::Key;

/// How many hotspots a set has: two lines of memory.
const SET: usize = 8;

#[derive(Clone, Copy, Debug)]
struct Hotspot {
    leaf: RemoteAddr,
    entry: u16,
    fingerprint: u16,
    /// How often the key was found; 0 where nothing is remembered.
    count: u32,
}

/// What a hotspot takes.
pub const HOTSPOT_BYTES: usize = size_of::<Hotspot>();

const NONE: Hotspot = Hotspot {
    leaf: RemoteAddr::NULL,
    entry: 0,
    fingerprint: 0,
    count: 0,
};

/// How many sets are made at a time: many clients note few hotspots or none, and would write to a whole budget of memory.
const PAGE: usize = 32;

type Page = Box<[[Hotspot; SET]]>;

/// The hotspots that a client remembers, within a budget of bytes.
#[derive(Clone, Debug)]
pub(crate) struct HotspotBuffer {
    /// None until the first hotspot is noted; each is empty until one is noted in it.
    pages: Box<[Page]>,
    sets_max: usize,
}

fn fingerprint(key: Key) -> u16 {
    (xxh3_64(&key.to_le_bytes()) >> 48) as u16
}

impl HotspotBuffer {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            pages: Box::default(),
            sets_max: bytes_max / (SET * HOTSPOT_BYTES),
        }
    }

    /// Bytes of its hotspots. (The list of pages is a 256th of the budget.)
    pub(crate) fn bytes(&self) -> usize {
        self.pages.iter().map(|page| size_of_val(&**page)).sum()
    }

    /// The number of the set for an entry. Those of some entries in a row are in one.
    fn set_of(&self, leaf: RemoteAddr, entry: u16) -> usize {
        let mixed = ((leaf.to_bits() >> 5) ^ (u64::from(entry) / SET as u64)) + 1;
        let hash = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        ((hash * self.sets_max as u64) >> 32) as usize
    }

    fn find(&self, leaf: RemoteAddr, entry: u16) -> Option<&Hotspot> {
        let number = self.set_of(leaf, entry);
        let mut set = self.pages.get(number / PAGE)?.get(number % PAGE)?.iter();
        set.find(|spot| spot.leaf == leaf && spot.entry == entry && spot.count > 0)
    }

    /// The hottest of some entries of a leaf whose fingerprint is that of a key.
    pub(crate) fn hottest(&self, leaf: RemoteAddr, entries: impl Iterator<Item = usize>, key: Key) -> Option<usize> {
        if self.pages.is_empty() {
            return None;
        }
        let wanted = fingerprint(key);
        let spots = entries.filter_map(|entry| self.find(leaf, entry as u16));
        let fitting = spots.filter(|spot| spot.fingerprint == wanted);
        fitting.max_by_key(|spot| spot.count).map(|spot| spot.entry.into())
    }

    /// Notes that a key was found in an entry.
    pub(crate) fn note(&mut self, leaf: RemoteAddr, entry: usize, key: Key) {
        if self.pages.is_empty() {
            self.pages = vec![Page::default(); self.sets_max.div_ceil(PAGE)].into();
        }
        let (entry, fingerprint) = (entry as u16, fingerprint(key));
        let number = self.set_of(leaf, entry);
        let Some(page) = self.pages.get_mut(number / PAGE) else {
            return;
        };
        if page.is_empty() {
            let first = number - number % PAGE;
            *page = vec![[NONE; SET]; PAGE.min(self.sets_max - first)].into();
        }
        let set = &mut page[number % PAGE];
        let known = set.iter_mut().find(|spot| spot.leaf == leaf && spot.entry == entry);
        let new = Hotspot {
            leaf,
            entry,
            fingerprint,
            count: 1,
        };
        match known {
            Some(spot) if spot.fingerprint == fingerprint => spot.count = spot.count.saturating_add(1),
            Some(spot) => *spot = new,
            None => {
                let free = set.iter().position(|spot| spot.count == 0);
                // Of those that were found as rarely the last one: keys that are found once do not drive out all others.
                let coldest = || (0..SET).rev().min_by_key(|&index| set[index].count);
                set[free.or_else(coldest).expect("a set is not empty")] = new;
            }
        }
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
        fn the_last_key_is_known(
            notes in vec((0_u64..6, 0_usize..512, any::<u128>()), 1..300), bytes_max in 128_usize..4000
        ) {
            let mut buffer = HotspotBuffer::new(bytes_max);
            prop_assert_eq!(buffer.bytes(), 0);
            for (number, entry, key) in notes {
                buffer.note(leaf(number), entry, key);
                prop_assert_eq!(buffer.hottest(leaf(number), core::iter::once(entry), key), Some(entry));
            }
            // It is one page.
            prop_assert!((bytes_max - 127..=bytes_max).contains(&buffer.bytes()));
        }
    }

    #[test]
    fn what_is_not_noted_takes_no_memory() {
        let sets_max = 3 * PAGE + 1;
        let mut buffer = HotspotBuffer::new(sets_max * SET * HOTSPOT_BYTES);
        let page_bytes = PAGE * SET * HOTSPOT_BYTES;
        let mut noted = std::collections::BTreeSet::new();
        for number in 0..2000 {
            buffer.note(leaf(number), 0, number.into());
            assert_eq!(buffer.hottest(leaf(number), 0..1, number.into()), Some(0));
            noted.insert(buffer.set_of(leaf(number), 0) / PAGE);
            let of_last = if noted.contains(&3) { SET * HOTSPOT_BYTES } else { 0 };
            let whole = noted.iter().filter(|&&page| page < 3).count();
            assert_eq!(buffer.bytes(), whole * page_bytes + of_last);
        }
        assert_eq!(noted.len(), 4);
    }

    #[test]
    fn hot_entries_stay_and_cold_ones_go() {
        let mut buffer = HotspotBuffer::new(SET * HOTSPOT_BYTES);
        for _ in 0..3 {
            buffer.note(leaf(1), 5, 77);
        }
        for key in 0..100 {
            buffer.note(leaf(2), key as usize % 64, key);
        }
        assert_eq!(buffer.hottest(leaf(1), 0..64, 77), Some(5));
        assert_eq!(buffer.hottest(leaf(1), 0..64, 78), None);
        assert_eq!(HOTSPOT_BYTES, 16);
    }

    #[test]
    fn cold_entries_do_not_drive_out_a_set() {
        let mut buffer = HotspotBuffer::new(SET * HOTSPOT_BYTES);
        for key in 0..100 {
            buffer.note(leaf(1), key as usize, key);
        }
        let known = (0..100).filter(|&key| buffer.hottest(leaf(1), 0..100, key).is_some());
        assert_eq!(known.collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6, 99]);
    }

    #[test]
    fn without_a_budget_nothing_is_known() {
        let mut buffer = HotspotBuffer::new(0);
        buffer.note(leaf(1), 5, 77);
        assert_eq!((buffer.hottest(leaf(1), 0..64, 77), buffer.bytes()), (None, 0));
    }

    #[test]
    fn sets_are_chosen_evenly() {
        let buffer = HotspotBuffer::new(64 * SET * HOTSPOT_BYTES);
        let mut chosen = [0; 64];
        for number in 0..1000 {
            for entry in (0..64).step_by(SET) {
                chosen[buffer.set_of(leaf(number), entry)] += 1;
            }
        }
        assert!(chosen.iter().all(|count| (75..175).contains(count)), "{chosen:?}");
    }
}
