//! Where scans begin, and what they have to see.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand_xoshiro::Xoshiro256PlusPlus;

use crate::tree::key_of;
use crate::workload::zipf::below;

/// How many keys a scan reads.
const SCAN_KEYS: u64 = 100;

/// Scans of an index that holds the first so many keys.
#[derive(Debug)]
pub(super) struct Scans {
    items: u64,
    /// The last key from which on there are enough.
    last_from: u64,
}

/// What a scan has come past: little, so that keeping it costs nothing, and enough that nothing can be left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Seen {
    count: u64,
    first: u64,
    last: u64,
    /// Of all keys and values.
    sum: u64,
    is_ascending: bool,
}

impl Default for Seen {
    fn default() -> Self {
        Self {
            count: 0,
            first: 0,
            last: 0,
            sum: 0,
            is_ascending: true,
        }
    }
}

impl Seen {
    /// Comes past a key.
    #[inline]
    pub(super) fn note(&mut self, key: u64, value: u64) {
        if self.count == 0 {
            self.first = key;
        } else {
            self.is_ascending &= key > self.last;
        }
        self.count += 1;
        self.last = key;
        self.sum = self.sum.wrapping_add(key ^ value.rotate_left(32));
    }
}

impl FromIterator<(u64, u64)> for Seen {
    #[inline]
    fn from_iter<T: IntoIterator<Item = (u64, u64)>>(items: T) -> Self {
        let mut seen = Self::default();
        for (key, value) in items {
            seen.note(key, value);
        }
        seen
    }
}

impl Scans {
    /// Scans of the keys of the first `items` numbers.
    pub(super) fn new(items: u64) -> Self {
        let mut largest = BinaryHeap::new();
        for key in (0..items).map(key_of) {
            if (largest.len() as u64) < SCAN_KEYS {
                largest.push(Reverse(key));
            } else if largest.peek().is_some_and(|&Reverse(smallest)| smallest < key) {
                largest.pop();
                largest.push(Reverse(key));
            }
        }
        let last_from = largest.pop().map_or(0, |Reverse(key)| key);
        Self { items, last_from }
    }

    /// How many keys each of them reads.
    pub(super) fn keys(&self) -> u64 {
        SCAN_KEYS.min(self.items)
    }

    /// A key that is there, with enough others behind it.
    #[inline]
    pub(super) fn draw(&self, random: &mut Xoshiro256PlusPlus) -> u64 {
        // Ends: all keys but a hundred will do.
        loop {
            let key = key_of(below(random, self.items));
            if key <= self.last_from {
                return key;
            }
        }
    }

    /// Refuses a scan that has not come past as many keys as it should, in order, from where it began.
    ///
    /// # Panics
    /// Then.
    #[inline]
    pub(super) fn check(&self, from: u64, seen: Seen) {
        let expected = (self.keys(), from, true);
        assert_eq!(
            (seen.count, seen.first, seen.is_ascending),
            expected,
            "a scan sees every key, in order"
        );
        core::hint::black_box(seen.sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::client_random;

    #[test]
    fn scans_begin_where_there_are_enough_keys() {
        for items in [1, 50, 100, 101, 300] {
            let scans = Scans::new(items);
            let mut keys: Vec<u64> = (0..items).map(key_of).collect();
            keys.sort_unstable();
            let mut random = client_random(1, 0);
            let starts: std::collections::BTreeSet<u64> = (0..10_000).map(|_| scans.draw(&mut random)).collect();
            let enough = keys.len() - scans.keys() as usize + 1;
            assert!(starts.into_iter().eq(keys[..enough].iter().copied()), "{items} items");
        }
    }

    #[test]
    #[should_panic(expected = "in order")]
    fn keys_in_no_order_are_noticed() {
        let scans = Scans::new(3);
        scans.check(1, [(1, 0), (3, 0), (2, 0)].into_iter().collect());
    }
}
