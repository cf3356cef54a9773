//! Hot keys: which keys a worker sees most often, in bounded memory.
//!
//! On the path: one use of a key in [`SAMPLE_EVERY`], at random, is looked at. The sketch is
//! *space-saving* (Metwally, Agrawal, El Abbadi, ICDT 2005): a fixed number of counters; a key without
//! one takes over the smallest, whose count is kept as the error of the new key.
//!
//! Invariants: a key that was sampled more often than `samples / COUNTERS` times has a counter;
//! `count - error <= samples of the key <= count`. Decay halves everything, so that a key that is no
//! longer used is forgotten.

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// One use of a key in so many is looked at, on average.
pub(crate) const SAMPLE_EVERY: u64 = 64;
/// How often everything is halved.
pub(crate) const DECAY_NS: u64 = 10_000_000_000;
/// How many keys are watched at once.
const COUNTERS: usize = 128;
/// So much of a key is kept; longer keys are told apart by their hash.
const KEY_BYTES_MAX: usize = 256;
/// A key that was certainly sampled less often than this is no hot key: chance alone brings it up.
const SAMPLES_MIN: u32 = 4;
/// A key with a smaller part of all uses is no hot key.
const SHARE_MIN: f64 = 0.001;

/// What one worker has sampled.
#[derive(Default, Debug)]
pub(crate) struct HotKeys {
    samples: u64,
    /// Apart from the rest, so that looking for one touches few cache lines.
    hashes: Vec<u64>,
    counters: Vec<Counter>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Counter {
    key: Vec<u8>,
    count: u32,
    error: u32,
}

/// A key that is used often.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HotKey {
    /// The key, as text: what is no UTF-8 is replaced. At most its first 256 bytes.
    pub key: String,
    /// Which part of all uses of keys it had lately, 0 to 1, as far as that is certain.
    pub share: f64,
}

impl HotKeys {
    /// Counts a use of a key.
    pub(crate) fn add(&mut self, key: &[u8]) {
        self.samples += 1;
        let hash = xxh3_64(key);
        if let Some(index) = self.hashes.iter().position(|&known| known == hash) {
            self.counters[index].count = self.counters[index].count.saturating_add(1);
            return;
        }
        let kept = &key[..key.len().min(KEY_BYTES_MAX)];
        if self.counters.len() < COUNTERS {
            self.hashes.push(hash);
            self.counters.push(Counter {
                key: kept.to_vec(),
                count: 1,
                error: 0,
            });
            return;
        }
        let smallest = self
            .counters
            .iter_mut()
            .enumerate()
            .min_by_key(|(_, counter)| counter.count);
        let (index, counter) = smallest.expect("there are counters");
        self.hashes[index] = hash;
        counter.key.clear();
        counter.key.extend_from_slice(kept);
        counter.error = counter.count;
        counter.count = counter.count.saturating_add(1);
    }

    /// Halves everything.
    pub(crate) fn decay(&mut self) {
        self.samples /= 2;
        for counter in &mut self.counters {
            // Rounded so that what is certain (count - error) does not grow.
            counter.count /= 2;
            counter.error = counter.error.div_ceil(2).min(counter.count);
        }
        let mut counters = self.counters.iter();
        self.hashes
            .retain(|_| counters.next().is_some_and(|counter| counter.count > 0));
        self.counters.retain(|counter| counter.count > 0);
    }
}

/// The `most` hottest keys over all workers, hottest first.
pub(crate) fn hottest<'h>(workers: impl Iterator<Item = &'h std::sync::Mutex<HotKeys>>, most: usize) -> Vec<HotKey> {
    let mut samples = 0;
    // A few hundred counters: sorting brings those of one key together.
    let mut all: Vec<(u64, Vec<u8>, u32)> = Vec::new();
    for worker in workers {
        let worker = worker.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        samples += worker.samples;
        let certain = worker.counters.iter().map(|counter| counter.count - counter.error);
        let named = worker.hashes.iter().zip(&worker.counters).zip(certain);
        all.extend(named.map(|((&hash, counter), certain)| (hash, counter.key.clone(), certain)));
    }
    all.sort_unstable_by_key(|&(hash, ..)| hash);
    let mut keys: Vec<(u32, Vec<u8>)> = all
        .chunk_by_mut(|one, next| one.0 == next.0)
        .map(|same| {
            let certain = same.iter().map(|&(.., certain)| certain).sum();
            (certain, core::mem::take(&mut same[0].1))
        })
        .filter(|&(certain, _)| certain >= SAMPLES_MIN)
        .collect();
    keys.sort_unstable_by(|one, next| next.0.cmp(&one.0).then_with(|| one.1.cmp(&next.1)));
    let hot = keys.into_iter().map(|(certain, key)| HotKey {
        key: String::from_utf8_lossy(&key).into_owned(),
        share: f64::from(certain) / samples.max(1) as f64,
    });
    let hot = hot.take_while(|hot| hot.share >= SHARE_MIN).take(most);
    hot.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    proptest! {
        #[test]
        fn counts_are_bounded_from_both_sides(keys in prop::collection::vec(0_u16..400, 0..3000)) {
            let mut sketch = HotKeys::default();
            let mut exact = BTreeMap::<Vec<u8>, u32>::new();
            for key in &keys {
                // Skewed, so that some keys are hot.
                let key = (u32::from(*key) * u32::from(*key) / 400).to_le_bytes();
                sketch.add(&key);
                *exact.entry(key.to_vec()).or_default() += 1;
            }
            prop_assert!(sketch.counters.len() <= COUNTERS);
            for counter in &sketch.counters {
                let exact = exact[&counter.key];
                prop_assert!(counter.count - counter.error <= exact && exact <= counter.count);
            }
            for (key, &count) in &exact {
                if u64::from(count) > keys.len() as u64 / COUNTERS as u64 {
                    prop_assert!(sketch.counters.iter().any(|counter| counter.key == *key));
                }
            }
        }
    }

    #[test]
    fn hot_keys_of_all_workers_are_added_up() {
        let workers = [Mutex::new(HotKeys::default()), Mutex::new(HotKeys::default())];
        for (worker, key, uses) in [(0, "a", 10), (1, "a", 30), (1, "b", 50), (0, "c", 10)] {
            let mut worker = workers[worker].lock().expect("nobody panicked");
            (0..uses).for_each(|_| worker.add(key.as_bytes()));
        }
        let hot = |most| hottest(workers.iter(), most);
        let named = |key: &str, share| HotKey {
            key: key.to_owned(),
            share,
        };
        assert_eq!(hot(2), [named("b", 0.5), named("a", 0.4)]);
        assert_eq!(hot(9).len(), 3);
    }

    #[test]
    fn what_is_no_longer_used_is_forgotten() {
        let sketch = Mutex::new(HotKeys::default());
        (0..100).for_each(|_| sketch.lock().expect("nobody panicked").add(b"old"));
        for _ in 0..8 {
            assert!(
                !sketch.lock().expect("nobody panicked").counters.is_empty()
                    || hottest([&sketch].into_iter(), 1).is_empty()
            );
            sketch.lock().expect("nobody panicked").decay();
        }
        let sketch = sketch.into_inner().expect("nobody panicked");
        assert!(sketch.counters.is_empty() && sketch.hashes.is_empty());
    }

    #[test]
    fn keys_that_chance_brought_up_are_no_hot_keys() {
        let sketch = Mutex::new(HotKeys::default());
        for number in 0..10_000_u32 {
            sketch.lock().expect("nobody panicked").add(&number.to_le_bytes());
        }
        assert_eq!(hottest([&sketch].into_iter(), 10), []);
    }

    #[test]
    fn long_keys_are_cut_and_told_apart() {
        let sketch = Mutex::new(HotKeys::default());
        for end in [b'x', b'y'] {
            let key = [vec![b'k'; KEY_BYTES_MAX], vec![end]].concat();
            (0..5).for_each(|_| sketch.lock().expect("nobody panicked").add(&key));
        }
        let hot = hottest([&sketch].into_iter(), 10);
        assert_eq!(hot.len(), 2);
        assert!(hot.iter().all(|hot| hot.key.len() == KEY_BYTES_MAX && hot.share == 0.5));
    }
}
