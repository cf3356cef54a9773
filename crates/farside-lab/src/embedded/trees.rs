//! Ordered indexes of one process as contenders, each used as its documentation says is fastest.
//!
//! Keys and values are integers; keys are spread over all there are ([`key_of`]) and come in no order. A pin or guard is taken for
//! 64 operations, where there is one.

use congee::Congee;
use crossbeam_skiplist::SkipMap;
use farside_fabric::host::HostClock;
use rand_xoshiro::Xoshiro256PlusPlus;
use scc::{Guard, TreeIndex};

use super::WorkerOptions;
use super::memory::private_bytes;
use super::scans::{Scans, Seen};
use super::worker::{Engine, GETS, OPERATIONS_PER_TURN, SCANS};
use crate::error::BenchError;
use crate::tree::key_of;
use crate::workload::{client_random, zipf::below};

/// An ordered index of one process.
pub(super) trait OrderedMap: Default {
    /// What a thread holds for a few operations.
    type Guard;
    /// Begins a few operations.
    fn guard(&self) -> Self::Guard;
    /// Stores a value under a new key.
    fn insert(&self, key: u64, value: u64, guard: &Self::Guard);
    /// Reads a value.
    fn get(&self, key: u64, guard: &Self::Guard) -> Option<u64>;
    /// Reads so many keys from one on, in order, or as many as there are.
    fn scan(&self, from: u64, count: u64, guard: &Self::Guard) -> Seen;
}

/// `scc::TreeIndex`: a B+ tree.
pub(super) type SccTree = TreeIndex<u64, u64>;
/// `crossbeam_skiplist::SkipMap`.
pub(super) type SkipList = SkipMap<u64, u64>;
/// `congee::Congee`: an adaptive radix tree.
pub(super) type Art = Congee<usize, usize>;

impl OrderedMap for SccTree {
    type Guard = Guard;

    fn guard(&self) -> Guard {
        Guard::new()
    }

    fn insert(&self, key: u64, value: u64, _: &Guard) {
        self.insert_sync(key, value).expect("the key is new");
    }

    #[inline]
    fn get(&self, key: u64, guard: &Guard) -> Option<u64> {
        self.peek(&key, guard).copied()
    }

    fn scan(&self, from: u64, count: u64, guard: &Guard) -> Seen {
        let items = self.range(from.., guard).take(count as usize);
        items.map(|(&key, &value)| (key, value)).collect()
    }
}

impl OrderedMap for SkipList {
    type Guard = ();

    fn guard(&self) {}

    fn insert(&self, key: u64, value: u64, (): &()) {
        SkipMap::insert(self, key, value);
    }

    #[inline]
    fn get(&self, key: u64, (): &()) -> Option<u64> {
        SkipMap::get(self, &key).map(|entry| *entry.value())
    }

    fn scan(&self, from: u64, count: u64, (): &()) -> Seen {
        let entries = self.range(from..).take(count as usize);
        entries.map(|entry| (*entry.key(), *entry.value())).collect()
    }
}

impl OrderedMap for Art {
    type Guard = congee::epoch::Guard;

    fn guard(&self) -> congee::epoch::Guard {
        self.pin()
    }

    fn insert(&self, key: u64, value: u64, guard: &congee::epoch::Guard) {
        let before = Self::insert(self, key as usize, value as usize, guard).expect("memory");
        assert_eq!(before, None, "the key is new");
    }

    #[inline]
    fn get(&self, key: u64, guard: &congee::epoch::Guard) -> Option<u64> {
        Self::get(self, &(key as usize), guard).map(|value| value as u64)
    }

    fn scan(&self, from: u64, count: u64, guard: &congee::epoch::Guard) -> Seen {
        let mut found = vec![(0, 0); count as usize];
        let count = self.range(&(from as usize), &usize::MAX, &mut found, guard);
        let items = found[..count].iter();
        items.map(|&(key, value)| (key as u64, value as u64)).collect()
    }
}

/// The process that holds such an index.
pub(super) struct OrderedProcess<M> {
    map: M,
    random: Xoshiro256PlusPlus,
    items: u64,
    scans: Scans,
}

impl<M: OrderedMap> OrderedProcess<M> {
    /// An empty index.
    pub(super) fn new(options: &WorkerOptions) -> Self {
        Self {
            map: M::default(),
            random: client_random(options.seed, options.member),
            items: options.items,
            scans: Scans::new(options.items),
        }
    }
}

impl<M: OrderedMap> Engine for OrderedProcess<M> {
    async fn load(&mut self) -> Result<u64, BenchError> {
        let before = private_bytes()?;
        for first in (0..self.items).step_by(OPERATIONS_PER_TURN as usize) {
            let guard = self.map.guard();
            for number in first..(first + OPERATIONS_PER_TURN).min(self.items) {
                self.map.insert(key_of(number), number, &guard);
            }
        }
        Ok(private_bytes()?.saturating_sub(before))
    }

    async fn get(&mut self, _: u64) -> Result<f64, BenchError> {
        let start_ns = HostClock.now_ns();
        for _ in 0..GETS / OPERATIONS_PER_TURN {
            let guard = self.map.guard();
            for _ in 0..OPERATIONS_PER_TURN {
                let number = below(&mut self.random, self.items);
                let value = self.map.get(key_of(number), &guard);
                assert_eq!(value, Some(number), "what was stored is there");
            }
        }
        let done = GETS / OPERATIONS_PER_TURN * OPERATIONS_PER_TURN;
        Ok((HostClock.now_ns() - start_ns) as f64 / done as f64)
    }

    async fn scan(&mut self) -> Result<f64, BenchError> {
        let start_ns = HostClock.now_ns();
        for _ in 0..SCANS / OPERATIONS_PER_TURN {
            let guard = self.map.guard();
            for _ in 0..OPERATIONS_PER_TURN {
                let from = self.scans.draw(&mut self.random);
                self.scans.check(from, self.map.scan(from, self.scans.keys(), &guard));
            }
        }
        let done = SCANS / OPERATIONS_PER_TURN * OPERATIONS_PER_TURN;
        Ok((HostClock.now_ns() - start_ns) as f64 / done as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_an_ordered_map<M: OrderedMap>() {
        let map = M::default();
        let guard = map.guard();
        let mut keys: Vec<u64> = (0..1000).map(key_of).collect();
        for &key in &keys {
            map.insert(key, !key, &guard);
        }
        keys.sort_unstable();
        assert_eq!(map.get(keys[7], &guard), Some(!keys[7]));
        assert_eq!(map.get(keys[7] + 1, &guard), None);
        for (from, count) in [(0, 100), (500, 100), (999, 1), (990, 100)] {
            let expected = keys[from..].iter().take(count).map(|&key| (key, !key));
            let seen = map.scan(keys[from], count as u64, &guard);
            assert_eq!(seen, expected.collect(), "{count} from {from}");
        }
    }

    #[test]
    fn all_are_ordered_maps() {
        is_an_ordered_map::<SccTree>();
        is_an_ordered_map::<SkipList>();
        is_an_ordered_map::<Art>();
    }
}
