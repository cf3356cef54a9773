//! What each operation of a tree costs in round trips, counted one by one (CHIME, Table 1).
//!
//! On the path: nowhere; one client of its own on a simulated fabric, and nobody else.

use farside_fabric::Endpoint;
use farside_fabric::OpContext;
use farside_fabric::sim::{Sim, SimOptions};
use farside_index::{Budget, IndexError, Tree, TreeKind, TreeOptions};
use farside_pool::{FormatOptions, Pool, PoolOptions, open_or_format};
use serde::Serialize;

use crate::error::BenchError;
use crate::workload::client_random;
use crate::workload::zipf::unit;

/// Round trips of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Cost {
    /// If every internal node is remembered.
    pub best: u64,
    /// The same, if the client guesses a wrong entry first.
    pub best_wrong: u64,
    /// If none is.
    pub worst: u64,
    /// The same, if the client guesses a wrong entry first.
    pub worst_wrong: u64,
}

/// Round trips of every operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct RoundTrips {
    /// Levels of internal nodes.
    pub height: u8,
    /// SEARCH.
    pub search: Cost,
    /// INSERT.
    pub insert: Cost,
    /// UPDATE.
    pub update: Cost,
    /// DELETE.
    pub delete: Cost,
    /// A scan of a hundred keys.
    pub scan: Cost,
}

/// Keys of a tree of one, two and three levels of internal nodes.
const ITEMS: [u64; 3] = [800, 20_000, 400_000];
/// Two keys that are neighbours are so far apart.
const APART: u64 = 16;
/// So long that no housekeeping happens.
const NEVER_NS: u64 = 1 << 40;

/// Counts them, in a tree of so many levels of internal nodes.
///
/// # Errors
/// If there is no such tree.
pub fn count(kind: TreeKind, height: u8) -> Result<RoundTrips, BenchError> {
    let wrong = || BenchError::argument("a tree has 1 to 3 levels of internal nodes here");
    let index = usize::from(height).checked_sub(1).ok_or_else(wrong)?;
    let items = *ITEMS.get(index).ok_or_else(wrong)?;
    let sim = Sim::new(SimOptions::default());
    let node = sim.add_memory_node((64 << 20) + items * 128);
    let endpoint = sim.endpoint(sim.add_compute_node());
    let region = sim.region(node);
    sim.block_on(async {
        let mut cx = OpContext::new(endpoint.clone());
        let geometry = open_or_format(&mut cx, FormatOptions::default()).await?;
        let times = PoolOptions {
            tick_ns: NEVER_NS,
            lease_ns: NEVER_NS << 10,
        };
        let pool = Pool::join(&mut cx, geometry, times).await?;
        let budget = Budget {
            cache_bytes: usize::MAX,
            hotspot_bytes: 1 << 16,
        };
        let shape = kind.published_leaf();
        let tree = Tree::create(&mut cx, pool, TreeOptions { shape, budget }).await?;
        let mut random = client_random(1, 0);
        let mut keys = (0..items).map(|number| ((number * APART).into(), number));
        tree.lay_out(&region, &mut keys, &mut || unit(&mut random))?;
        tree.remember_all(&mut cx).await?;
        if tree.height() != height {
            return Err(wrong());
        }
        let mut counter = Counter { endpoint, tree, cx };
        let round_trips = RoundTrips {
            height,
            search: counter.both(Operation::Search).await?,
            insert: counter.both(Operation::Insert).await?,
            update: counter.both(Operation::Update).await?,
            delete: counter.both(Operation::Delete).await?,
            scan: counter.both(Operation::Scan).await?,
        };
        Ok(round_trips)
    })
}

#[derive(Clone, Copy)]
enum Operation {
    Search,
    Insert,
    Update,
    Delete,
    Scan,
}

struct Counter {
    endpoint: Endpoint,
    tree: Tree,
    cx: OpContext,
}

impl Counter {
    /// The cost of an operation, with and without what is remembered.
    async fn both(&mut self, operation: Operation) -> Result<Cost, IndexError> {
        Ok(Cost {
            best: self.one(operation, false, false).await?,
            best_wrong: self.one(operation, false, true).await?,
            worst: self.one(operation, true, false).await?,
            worst_wrong: self.one(operation, true, true).await?,
        })
    }

    /// Round trips of an operation on a key that is there and is not remembered, or that the client remembers where it is
    /// no more.
    async fn one(&mut self, operation: Operation, is_cold: bool, guesses: bool) -> Result<u64, IndexError> {
        let (tree, cx) = (&self.tree, &mut self.cx);
        // The first of a leaf's neighbours, and its leaf is remembered.
        let (neighbour, key) = (100 * APART, 100 * APART + 1);
        tree.search(cx, neighbour).await?;
        tree.delete(cx, key).await?;
        if guesses || !matches!(operation, Operation::Insert) {
            tree.insert(cx, key, 1).await?;
        }
        if guesses {
            tree.search(cx, key).await?;
            tree.delete(cx, key).await?;
        }
        if is_cold {
            tree.forget_all();
        }
        let before = self.endpoint.counters().snapshot().doorbells;
        match operation {
            Operation::Search => drop(tree.search(cx, key).await?),
            Operation::Insert => drop(tree.insert(cx, key, 2).await?),
            Operation::Update => drop(tree.update(cx, key, 2).await?),
            Operation::Delete => drop(tree.delete(cx, key).await?),
            Operation::Scan => drop(tree.scan(cx, key, 100, &mut |_, _| {}).await?),
        }
        Ok(self.endpoint.counters().snapshot().doorbells - before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_are_those_of_the_table() {
        for height in 1..=2 {
            let counted = count(TreeKind::Chime, height).expect("a tree");
            let h = u64::from(height);
            let cost = |best, wrong| Cost {
                best,
                best_wrong: wrong,
                worst: h + best,
                worst_wrong: h + wrong,
            };
            assert_eq!((counted.search, counted.update), (cost(1, 2), cost(3, 4)));
            assert_eq!((counted.insert, counted.delete), (cost(3, 3), cost(3, 3)));
            assert_eq!(counted.scan, cost(1, 1));
        }
        assert!(count(TreeKind::Chime, 0).is_err());
    }
}
