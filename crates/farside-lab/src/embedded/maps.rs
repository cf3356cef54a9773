//! Concurrent maps of one process as contenders, each used as its documentation says is fastest.
//!
//! Keys and values are `[u8; 8]`, inline in the map's entries. All hash with `ahash`, the fastest of the
//! hashers that their own benchmarks use; with the one of the standard library they would lose 10 to 20 ns
//! per operation. A pin or guard is taken for 64 operations, as Farside gives way after so many.

use ahash::RandomState;
use farside_fabric::host::HostClock;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::WorkerOptions;
use super::draws::Draws;
use super::memory::private_bytes;
use super::worker::{Engine, GETS, OPERATIONS_PER_TURN, per_second};
use crate::error::BenchError;
use crate::workload::{client_random, zipf::below};

/// A key or a value.
type Word = [u8; 8];

/// A map that threads share.
pub(super) trait Map: Default + Sync {
    /// What a thread uses for a few operations.
    fn handle(&self) -> impl Handle;
}

/// A few operations of one thread.
pub(super) trait Handle {
    /// Reads a value.
    fn get(&self, key: &Word) -> Option<Word>;
    /// Stores a value.
    fn put(&self, key: Word, value: Word);
}

/// `scc::HashMap`.
pub(super) type Scc = scc::HashMap<Word, Word, RandomState>;
/// `papaya::HashMap`.
pub(super) type Papaya = papaya::HashMap<Word, Word, RandomState>;
/// `dashmap::DashMap`.
pub(super) type Dash = dashmap::DashMap<Word, Word, RandomState>;

impl Map for Scc {
    fn handle(&self) -> impl Handle {
        self
    }
}

impl Handle for &Scc {
    #[inline]
    fn get(&self, key: &Word) -> Option<Word> {
        self.read_sync(key, |_, value| *value)
    }

    #[inline]
    fn put(&self, key: Word, value: Word) {
        self.upsert_sync(key, value);
    }
}

impl Map for Papaya {
    fn handle(&self) -> impl Handle {
        self.pin()
    }
}

impl Handle for papaya::HashMapRef<'_, Word, Word, RandomState, papaya::LocalGuard<'_>> {
    #[inline]
    fn get(&self, key: &Word) -> Option<Word> {
        papaya::HashMapRef::get(self, key).copied()
    }

    #[inline]
    fn put(&self, key: Word, value: Word) {
        self.insert(key, value);
    }
}

impl Map for Dash {
    fn handle(&self) -> impl Handle {
        self
    }
}

impl Handle for &Dash {
    #[inline]
    fn get(&self, key: &Word) -> Option<Word> {
        dashmap::DashMap::get(self, key).map(|value| *value)
    }

    #[inline]
    fn put(&self, key: Word, value: Word) {
        self.insert(key, value);
    }
}

/// The process that holds a map.
pub(super) struct Process<M> {
    map: M,
    random: Xoshiro256PlusPlus,
    items: u64,
}

impl<M: Map> Process<M> {
    /// An empty map.
    pub(super) fn new(options: &WorkerOptions) -> Self {
        Self {
            map: M::default(),
            random: client_random(options.seed, options.member),
            items: options.items,
        }
    }
}

impl<M: Map> Engine for Process<M> {
    async fn load(&mut self) -> Result<u64, BenchError> {
        let before = private_bytes()?;
        let numbers: Vec<u64> = (0..self.items).collect();
        for numbers in numbers.chunks(OPERATIONS_PER_TURN as usize) {
            let handle = self.map.handle();
            for number in numbers {
                handle.put(number.to_le_bytes(), number.to_le_bytes());
            }
        }
        drop(numbers);
        Ok(private_bytes()?.saturating_sub(before))
    }

    async fn get(&mut self, _: u64) -> Result<f64, BenchError> {
        let start_ns = HostClock.now_ns();
        for _ in 0..GETS / OPERATIONS_PER_TURN {
            let handle = self.map.handle();
            for _ in 0..OPERATIONS_PER_TURN {
                let key = below(&mut self.random, self.items).to_le_bytes();
                assert_eq!(handle.get(&key), Some(key), "what was stored is there");
            }
        }
        let done = GETS / OPERATIONS_PER_TURN * OPERATIONS_PER_TURN;
        Ok((HostClock.now_ns() - start_ns) as f64 / done as f64)
    }

    async fn ycsb(&mut self, draws: &mut [Draws], _: u64, duration_ns: u64) -> Result<f64, BenchError> {
        let map = &self.map;
        let rates: Vec<f64> = std::thread::scope(|scope| {
            let threads: Vec<_> = draws
                .iter_mut()
                .map(|draws| scope.spawn(move || work(map, draws, duration_ns)))
                .collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, f64>| thread.join().expect("a thread panicked");
            threads.into_iter().map(join).collect()
        });
        Ok(rates.iter().sum())
    }
}

/// Operations per second of one thread.
fn work<M: Map>(map: &M, draws: &mut Draws, duration_ns: u64) -> f64 {
    let start_ns = HostClock.now_ns();
    let mut done = 0;
    while HostClock.now_ns() - start_ns < duration_ns {
        let handle = map.handle();
        for _ in 0..OPERATIONS_PER_TURN {
            let draw = draws.next();
            let key = draw.number.to_le_bytes();
            if draw.is_update {
                handle.put(key, key);
            } else {
                assert!(handle.get(&key).is_some(), "what was stored is there");
            }
        }
        done += OPERATIONS_PER_TURN;
    }
    per_second(done, start_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_a_map<M: Map>() {
        let map = M::default();
        let handle = map.handle();
        assert_eq!(handle.get(&[1; 8]), None);
        handle.put([1; 8], [2; 8]);
        handle.put([1; 8], [3; 8]);
        assert_eq!(handle.get(&[1; 8]), Some([3; 8]));
    }

    #[test]
    fn all_are_maps() {
        is_a_map::<Scc>();
        is_a_map::<Papaya>();
        is_a_map::<Dash>();
    }
}
