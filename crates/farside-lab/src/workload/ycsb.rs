//! The mixes of operations: YCSB's core workloads, and the three of the field's papers.
//!
//! | name | search | update | insert | scan | read-modify-write | keys |
//! |---|---|---|---|---|---|---|
//! | `write-intensive` (CIDER, table 1), `ycsb-a` | 50 % | 50 % | | | | Zipf |
//! | `read-intensive`, `ycsb-b` | 95 % | 5 % | | | | Zipf |
//! | `write-only` | | 100 % | | | | Zipf |
//! | `ycsb-c` | 100 % | | | | | Zipf |
//! | `ycsb-d` | 95 % | | 5 % | | | the latest |
//! | `ycsb-e` | | | 5 % | 95 % | | Zipf |
//! | `ycsb-f` | 50 % | | | | 50 % | Zipf |
//! | `load` | | | 100 % | | | each once, into an empty store |
//!
//! A scan reads 1 to 100 items from where a key is, in the index's own order: that of the keys in a pointer
//! array whose slots are numbered by them and in a tree, that of the hashes in RACE.

use rand_core::Rng;

use super::zipf::below;

/// What a client does with a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Read its value.
    Search,
    /// Replace its value without looking at it.
    Update,
    /// Store a new key.
    Insert,
    /// Read items from it on.
    Scan,
    /// Read its value and replace it.
    ReadModifyWrite,
}

/// How many items a scan reads at most; how many exactly is drawn each time.
pub const SCAN_ITEMS_MAX: u64 = 100;

impl Operation {
    /// Every kind, in order.
    pub const ALL: [Self; 5] = [
        Self::Search,
        Self::Update,
        Self::Insert,
        Self::Scan,
        Self::ReadModifyWrite,
    ];
}

/// Which keys are popular.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Popularity {
    /// The same ones always.
    Fixed,
    /// Those stored last.
    Latest,
}

/// A mix of operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Workload {
    /// Its name on the command line.
    pub name: &'static str,
    /// Percentages, 100 in sum.
    search: u8,
    update: u8,
    insert: u8,
    scan: u8,
    read_modify_write: u8,
    /// Which keys it works on.
    pub popularity: Popularity,
}

const fn fixed(name: &'static str, search: u8, update: u8, read_modify_write: u8) -> Workload {
    Workload {
        name,
        search,
        update,
        insert: 0,
        scan: 0,
        read_modify_write,
        popularity: Popularity::Fixed,
    }
}

/// Every workload.
pub const WORKLOADS: [Workload; 10] = [
    fixed("write-intensive", 50, 50, 0),
    fixed("read-intensive", 95, 5, 0),
    fixed("write-only", 0, 100, 0),
    Workload {
        name: "load",
        search: 0,
        update: 0,
        insert: 100,
        scan: 0,
        read_modify_write: 0,
        popularity: Popularity::Latest,
    },
    fixed("ycsb-a", 50, 50, 0),
    fixed("ycsb-b", 95, 5, 0),
    fixed("ycsb-c", 100, 0, 0),
    Workload {
        name: "ycsb-d",
        search: 95,
        update: 0,
        insert: 5,
        scan: 0,
        read_modify_write: 0,
        popularity: Popularity::Latest,
    },
    Workload {
        name: "ycsb-e",
        search: 0,
        update: 0,
        insert: 5,
        scan: 95,
        read_modify_write: 0,
        popularity: Popularity::Fixed,
    },
    fixed("ycsb-f", 50, 0, 50),
];

impl Workload {
    /// The workload with this name.
    ///
    /// # Errors
    /// Says which names there are.
    pub fn by_name(name: &str) -> Result<Self, String> {
        let found = WORKLOADS.iter().find(|workload| workload.name == name);
        found.copied().ok_or_else(|| {
            let names: Vec<&str> = WORKLOADS.iter().map(|workload| workload.name).collect();
            format!("`{name}` is not a workload: choose one of {}", names.join(", "))
        })
    }

    /// So many UPDATEs of a hundred operations; the others are SEARCHes.
    ///
    /// # Panics
    /// With more than 100.
    #[must_use]
    pub const fn updates(percent: u8) -> Self {
        assert!(percent <= 100, "a share is no more than all");
        fixed("updates", 100 - percent, percent, 0)
    }

    /// The shares of its operations, in words.
    #[must_use]
    pub fn about(&self) -> String {
        let shares = [
            (self.search, "search"),
            (self.update, "update"),
            (self.insert, "insert"),
            (self.scan, "scan"),
            (self.read_modify_write, "read-modify-write"),
        ];
        let named: Vec<String> = shares
            .iter()
            .filter(|(share, _)| *share > 0)
            .map(|(share, name)| format!("{share} % {name}"))
            .collect();
        let keys = match self.popularity {
            Popularity::Fixed => "",
            Popularity::Latest if self.is_load() => ", each key once into an empty store",
            Popularity::Latest => ", the latest keys most",
        };
        named.join(", ") + keys
    }

    /// Whether it stores each key once and then ends.
    #[must_use]
    pub fn is_load(&self) -> bool {
        self.insert == 100
    }

    /// Whether it stores keys beyond those that are there at the start.
    #[must_use]
    pub fn inserts(&self) -> bool {
        self.insert > 0
    }

    /// Whether it stores values that depend on those before.
    #[must_use]
    pub fn read_modify_writes(&self) -> bool {
        self.read_modify_write > 0
    }

    /// Draws an operation.
    #[inline]
    pub fn operation(&self, random: &mut impl Rng) -> Operation {
        let mut draw = below(random, 100) as u8;
        let shares = [
            (self.search, Operation::Search),
            (self.update, Operation::Update),
            (self.insert, Operation::Insert),
            (self.scan, Operation::Scan),
        ];
        for (share, operation) in shares {
            if draw < share {
                return operation;
            }
            draw -= share;
        }
        Operation::ReadModifyWrite
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::SeedableRng;

    #[test]
    fn shares_are_those_of_the_table() {
        for workload in WORKLOADS {
            let shares = [
                workload.search,
                workload.update,
                workload.insert,
                workload.scan,
                workload.read_modify_write,
            ];
            assert_eq!(
                shares.iter().map(|&share| u32::from(share)).sum::<u32>(),
                100,
                "{}",
                workload.name
            );
            let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
            let draws = 100_000;
            let searches = (0..draws)
                .filter(|_| workload.operation(&mut random) == Operation::Search)
                .count();
            let expected = draws * usize::from(workload.search) / 100;
            assert!(
                searches.abs_diff(expected) < 1000,
                "{}: {searches} searches",
                workload.name
            );
        }
    }

    #[test]
    fn a_workload_says_what_it_does() {
        let about = |name| Workload::by_name(name).expect("a workload").about();
        assert_eq!(about("ycsb-f"), "50 % search, 50 % read-modify-write");
        assert_eq!(about("ycsb-d"), "95 % search, 5 % insert, the latest keys most");
        assert_eq!(about("ycsb-e"), "5 % insert, 95 % scan");
        assert_eq!(about("load"), "100 % insert, each key once into an empty store");
    }

    #[test]
    fn names_are_found_or_explained() {
        for workload in WORKLOADS {
            assert_eq!(Workload::by_name(workload.name), Ok(workload));
        }
        assert!(Workload::by_name("ycsb").expect_err("no such name").contains("ycsb-a"));
    }
}
