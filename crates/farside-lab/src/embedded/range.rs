//! The range index as a contender: a tree of values on one segment.

use core::cell::{Cell, RefCell};

use farside_fabric::host::HostClock;
use farside_fabric::shm::{self, Segment};
use farside_fabric::{OpContext, Pipeline, interleave};
use farside_index::{Budget, IndexError, Tree, TreeKind, TreeOptions};
use farside_lock::backoff::give_way;
use farside_pool::{FormatOptions, Pool, PoolOptions, open_or_format};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::WorkerOptions;
use super::farside::LEASE_NS;
use super::memory::private_bytes;
use super::scans::{Scans, Seen};
use super::worker::{Engine, GETS, OPERATIONS_PER_TURN, SCANS};
use crate::error::BenchError;
use crate::store::memory_used;
use crate::tree::key_of;
use crate::workload::{client_random, zipf::below};

/// What the process may remember: every internal node.
const BUDGET: Budget = Budget {
    cache_bytes: 1 << 30,
    hotspot_bytes: 0,
};

/// The process.
pub(super) struct Range {
    segment: Segment,
    tree: Tree,
    random: Xoshiro256PlusPlus,
    items: u64,
    scans: Scans,
    private_bytes: u64,
}

impl Range {
    /// Makes the tree of a segment.
    pub(super) async fn open(kind: TreeKind, options: &WorkerOptions) -> Result<Self, BenchError> {
        let private_bytes = private_bytes()?;
        let segment = Segment::open(&options.path)?;
        let mut cx = OpContext::new(shm::Fabric::new(vec![segment.clone()]).endpoint()?);
        let geometry = open_or_format(&mut cx, FormatOptions::default()).await?;
        let pool_options = PoolOptions {
            lease_ns: LEASE_NS,
            ..PoolOptions::default()
        };
        let pool = Pool::join(&mut cx, geometry, pool_options).await?;
        let tree_options = TreeOptions {
            shape: kind.published_leaf(),
            budget: BUDGET,
        };
        Ok(Self {
            segment,
            tree: Tree::create(&mut cx, pool, tree_options).await?,
            random: client_random(options.seed, options.member),
            items: options.items,
            scans: Scans::new(options.items),
            private_bytes,
        })
    }

    fn context(&self) -> OpContext {
        OpContext::new(self.tree.pool().endpoint().clone())
    }
}

/// Searches for so many keys, in turn with the others that draw from `random`.
async fn search(
    tree: &Tree,
    cx: &mut OpContext,
    (items, searches): (u64, u64),
    random: &RefCell<&mut Xoshiro256PlusPlus>,
) -> Result<(), IndexError> {
    for _ in 0..searches {
        let number = below(*random.borrow_mut(), items);
        let value = tree.search(cx, key_of(number)).await?;
        assert_eq!(value, Some(number), "what was stored is there");
    }
    Ok(())
}

impl Engine for Range {
    async fn load(&mut self) -> Result<u64, BenchError> {
        let mut cx = self.context();
        for number in 0..self.items {
            let is_new = self.tree.insert(&mut cx, key_of(number), number).await?;
            assert!(is_new, "no key is stored twice");
            if number.is_multiple_of(OPERATIONS_PER_TURN) {
                give_way().await;
            }
        }
        self.tree.remember_all(&mut cx).await?;
        let shared = memory_used(self.segment.region()).unwrap_or(self.segment.memory_bytes());
        Ok(shared + private_bytes()?.saturating_sub(self.private_bytes))
    }

    async fn get(&mut self, in_flight: u64) -> Result<f64, BenchError> {
        let searches = GETS / in_flight;
        let task = (self.items, searches);
        let endpoint = self.tree.pool().endpoint().clone();
        let (tree, random) = (&self.tree, RefCell::new(&mut self.random));
        let start_ns = HostClock.now_ns();
        if in_flight == 1 {
            search(tree, &mut OpContext::new(endpoint), task, &random).await?;
        } else {
            let (pipeline, failure) = (Pipeline::default(), Cell::new(None));
            let runs = (0..in_flight).map(|_| {
                let mut cx = OpContext::pipelined(endpoint.clone(), pipeline.clone());
                let (random, failure) = (&random, &failure);
                async move {
                    if let Err(error) = search(tree, &mut cx, task, random).await {
                        failure.set(Some(error));
                    }
                }
            });
            interleave(&pipeline, runs.collect()).await;
            if let Some(error) = failure.take() {
                return Err(error.into());
            }
        }
        Ok((HostClock.now_ns() - start_ns) as f64 / (searches * in_flight) as f64)
    }

    async fn scan(&mut self) -> Result<f64, BenchError> {
        let mut cx = self.context();
        let start_ns = HostClock.now_ns();
        for _ in 0..SCANS {
            let from = self.scans.draw(&mut self.random);
            let mut seen = Seen::default();
            let mut note = |key: u128, value| seen.note(key as u64, value);
            self.tree
                .scan(&mut cx, from, self.scans.keys() as usize, &mut note)
                .await?;
            self.scans.check(from, seen);
        }
        Ok((HostClock.now_ns() - start_ns) as f64 / SCANS as f64)
    }

    async fn leave(self) -> Result<(), BenchError> {
        let pool = self.tree.pool().clone();
        drop(self.tree);
        Ok(pool.leave().await?)
    }
}
