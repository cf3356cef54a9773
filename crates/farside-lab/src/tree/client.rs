//! A client of a tree: draws an operation and a key, and does it.

use farside_fabric::OpContext;
use farside_index::Tree;

use super::{Spacing, TreeProgram};
use crate::error::BenchError;
use crate::program::{Client, Step};
use crate::workload::{Keys, Operation, Popularity, Workload};

/// One of the clients.
#[derive(Debug)]
pub struct TreeClient {
    tree: Tree,
    keys: Keys,
    workload: Workload,
    items: u64,
    spacing: Spacing,
    is_finite: bool,
    value: u64,
}

impl TreeClient {
    /// Client `number` of a program.
    pub(super) fn new(program: &TreeProgram, tree: Tree, number: u64) -> Self {
        Self {
            tree,
            keys: Keys::new(&program.population, number),
            workload: program.population.workload,
            items: program.population.items,
            spacing: program.spacing,
            is_finite: program.population.is_finite(),
            value: number,
        }
    }

    fn known(&mut self) -> u64 {
        let number = self.keys.known();
        self.key_of(number)
    }

    fn key_of(&self, number: u64) -> u64 {
        self.spacing.key_of(number, self.items)
    }
}

impl Client for TreeClient {
    async fn step(&mut self, cx: &mut OpContext) -> Result<Option<Step>, BenchError> {
        let operation = self.keys.operation();
        let is_there = match operation {
            Operation::Insert => {
                let number = self.keys.unused();
                if self.is_finite && number >= self.items {
                    return Ok(None);
                }
                self.tree.insert(cx, self.key_of(number), self.value).await?
            }
            Operation::Search => {
                let key = self.known();
                let is_there = self.tree.search(cx, key).await?.is_some();
                is_there || self.workload.popularity == Popularity::Latest
            }
            Operation::Update => {
                let key = self.known();
                self.tree.update(cx, key, self.value).await?
            }
            Operation::Scan => {
                let (from, wanted) = (self.known(), self.keys.scan_items());
                self.tree.scan(cx, from, wanted as usize, &mut |_, _| {}).await?;
                true
            }
            Operation::ReadModifyWrite => {
                let key = self.known();
                let before = self.tree.search(cx, key).await?;
                let value = before.map_or(self.value, |before| before.wrapping_add(1));
                self.tree.update(cx, key, value).await?
            }
        };
        // Nothing is ever deleted, and no key is stored twice.
        assert!(is_there, "{operation:?} has not found what it should");
        Ok(Some(Step {
            operation: Some(operation),
            ..Step::default()
        }))
    }
}
