//! Keys and operations, drawn beforehand: drawing from a Zipf distribution takes as long as a GET.

use crate::workload::{Operation, Scatter, Workload, Zipf, client_random};

/// How many are drawn; they are used again when all were.
const DRAWS: usize = 1 << 23;
/// Skew of the popularity of keys.
const THETA: f64 = 0.99;
/// Set in a draw that is an UPDATE.
const UPDATE: u32 = 1 << 31;
/// The largest number of keys that fits beside that.
pub(super) const ITEMS_MAX: u64 = UPDATE as u64;

/// A sequence of operations on keys.
#[derive(Debug)]
pub(super) struct Draws {
    draws: Vec<u32>,
    next: usize,
}

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Draw {
    /// The number of the key.
    pub(super) number: u64,
    /// Whether its value is replaced rather than read.
    pub(super) is_update: bool,
}

impl Draws {
    /// Draws for one client.
    pub(super) fn new(workload: Workload, items: u64, seed: u64, client: u64) -> Self {
        let mut random = client_random(seed, client);
        let (zipf, scatter) = (Zipf::new(items, THETA), Scatter::new(items));
        let draws = (0..DRAWS).map(|_| {
            let kind = match workload.operation(&mut random) {
                Operation::Search | Operation::Scan => 0,
                Operation::Update | Operation::Insert | Operation::ReadModifyWrite => UPDATE,
            };
            scatter.key(zipf.rank(&mut random)) as u32 | kind
        });
        Self {
            draws: draws.collect(),
            next: 0,
        }
    }

    /// The next one.
    #[inline]
    pub(super) fn next(&mut self) -> Draw {
        let draw = self.draws[self.next];
        self.next = (self.next + 1) % DRAWS;
        Draw {
            number: u64::from(draw & !UPDATE),
            is_update: draw & UPDATE != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_those_of_the_workload() {
        let draws = |name, client| Draws::new(Workload::by_name(name).expect("a workload"), 1000, 1, client);
        let (mut a, mut same, mut c) = (draws("ycsb-a", 0), draws("ycsb-a", 0), draws("ycsb-c", 1));
        let mut updates = 0_u32;
        for _ in 0..100_000 {
            let draw = a.next();
            assert_eq!(draw, same.next());
            assert!(draw.number < 1000);
            assert!(!c.next().is_update);
            updates += u32::from(draw.is_update);
        }
        assert!(updates.abs_diff(50_000) < 2000, "{updates}");
    }
}
