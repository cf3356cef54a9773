//! Clients that search and change keys of a range index.
//!
//! Keys are integers, and so are values, or such repeated to be longer. Keys are spread over all there are by a permutation: which keys are neighbours has nothing to do with which are
//! popular, or came one after the other. A tree is laid out without verbs, as full as INSERTs of such keys leave it; LOAD
//! begins with an empty one, unless it is to go on with one that is filled. Each compute node remembers internal nodes and hotspots for all of its clients, as in CHIME,
//! section 5.1. It knows them before anything counts: it reads every internal node, and searches for the most popular keys,
//! each once, as many as it may have hotspots.
//!
//! # Whose verbs
//! Operations go by the endpoints of the clients, work on the structure (splits) by that of the compute node, as all of it is one
//! member of the pool. So verbs of splits count at the memory node and not for an operation. What an operation leaves
//! behind that fails is settled by the compute node's endpoint too, perhaps before the verbs of the client have taken effect:
//! an operation that fails ends the run, and there are no runs in which clients die.

mod client;
mod seen;

use core::sync::atomic::Ordering;

use farside_fabric::region::Region;
use farside_fabric::{Endpoint, OpContext};
use farside_index::chime::HOTSPOT_BYTES;
use farside_index::tree::{INNER_SPAN, Known, LEAF_SPAN_MAX, NodeLock, TurnOptions, VALUE_WORDS_MAX, Without};
use farside_index::{Budget, Shape, Tree, TreeKind, TreeOptions};
use farside_pool::size_class::SizeClass;
use farside_pool::{FormatOptions, Pool, PoolOptions, Purpose, open, open_or_format};
use std::sync::Arc;

pub use self::client::TreeClient;
pub use self::seen::{Seen, Structure};
use crate::error::BenchError;
use crate::lock::check_theta;
use crate::program::{Laid, Program};
use crate::stage::Setting;
use crate::store::{LEASE_NS, RESTRUCTURING_POLL_NS, SPARE_BYTES, SPARE_BYTES_PER_NODE, SPARE_ITEMS, memory_used};
use crate::workload::{Keys, Population, client_random, zipf::unit};

/// What a compute node may remember unless something else is said, in bytes (CHIME, section 5.1).
pub const CACHE_BYTES: u64 = 100_000_000;
/// The most of it that are hotspots, likewise.
const HOTSPOT_BYTES_MAX: u64 = 30_000_000;
/// Bytes of a key, and of a value unless something else is said.
pub const ITEM_HALF_BYTES: u64 = 8;
/// The largest leaf that is measured: blocks are laid out in chunks, not in runs.
const LEAF_BYTES_MAX: u64 = 64 << 10;
/// The least load of a leaf that space is made for: with neighbourhoods of 8 or more, of 4, of fewer.
const LOADS_MIN: [f64; 3] = [0.5, 0.3, 0.15];

/// A key that is the number `number` of all: a permutation of all integers (SplitMix64's finaliser).
#[must_use]
pub fn key_of(number: u64) -> u64 {
    let mut key = number;
    key = (key ^ key >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    key = (key ^ key >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ key >> 31
}

/// Where the keys of a tree are among all integers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Spacing {
    /// Anywhere: see [`key_of`].
    #[default]
    Spread,
    /// Beside each other, as CHIME's artifact has them. One of [`GAP`] is left out at first; INSERTs store those, in no order, and
    /// then what comes behind all.
    Close,
}

/// Of so many integers one is no key of a [close](Spacing::Close) population at first.
pub const GAP: u64 = 64;

impl Spacing {
    /// The key that is the number `number`, where there are `items` at first.
    #[must_use]
    pub fn key_of(self, number: u64, items: u64) -> u64 {
        // A prime beyond every number of gaps: its multiples come to each of them once.
        const STRIDE: u64 = 2_654_435_761;
        let gaps = items / (GAP - 1);
        match (self, number.checked_sub(items)) {
            (Self::Spread, _) => key_of(number),
            (Self::Close, None) => number + number / (GAP - 1),
            (Self::Close, Some(new)) if new < gaps => new * STRIDE % gaps * GAP + GAP - 1,
            (Self::Close, Some(_)) => number + gaps + GAP,
        }
    }
}

/// What clients do with the keys of a tree.
#[derive(Clone, Debug)]
pub struct TreeProgram {
    /// Which tree.
    pub kind: TreeKind,
    /// Entries of a leaf.
    pub span: usize,
    /// Entries of a neighbourhood, where leaves are hashed.
    pub neighbourhood: usize,
    /// Bytes of a value, which is in its leaf.
    pub value_bytes: u64,
    /// What a compute node may remember, hotspots included, in bytes.
    pub cache_bytes: u64,
    /// How much of that are hotspots.
    pub hotspot_bytes: u64,
    /// Which parts of hashed leaves clients do without.
    pub without: Without,
    /// Whether the clients of a compute node share their operations on a key.
    pub local_wc: bool,
    /// How clients take turns to lock leaves.
    pub node_lock: NodeLock,
    /// How many compute nodes may wait for a lock together.
    pub turn_capacity: u64,
    /// The keys, and what is done with them.
    pub population: Population,
    /// Where they are.
    pub spacing: Spacing,
    /// How many compute nodes there will be.
    pub compute_nodes: u64,
    /// How often each renews its lease and publishes its epoch, in nanoseconds.
    pub tick_ns: u64,
    /// What the compute nodes have seen when a run has ended.
    pub seen: Arc<Seen>,
}

/// The tree of values with this name.
#[must_use]
pub fn tree_by_name(name: &str) -> Option<TreeKind> {
    TreeKind::by_name(name).filter(|kind| kind.has_values())
}

/// How much of what a compute node may remember are hotspots, unless something else is said: three tenths where leaves are
/// hashed.
#[must_use]
pub fn usual_hotspot_bytes(kind: TreeKind, cache_bytes: u64) -> u64 {
    if kind.is_hashed() {
        (cache_bytes / 10 * 3).min(HOTSPOT_BYTES_MAX)
    } else {
        0
    }
}

/// How many compute nodes may wait for a lock together: as many as there are.
#[must_use]
pub fn turn_capacity(setting: &Setting) -> u64 {
    setting.compute_nodes.next_power_of_two().max(2)
}

impl TreeProgram {
    /// The published tree, and what a compute node may remember of it.
    #[must_use]
    pub fn published(kind: TreeKind, population: Population, compute_nodes: u64) -> Self {
        let leaf = kind.published_leaf();
        Self {
            kind,
            span: leaf.span(),
            neighbourhood: leaf.circle().neighbourhood(),
            value_bytes: leaf.value_bytes(),
            cache_bytes: CACHE_BYTES,
            hotspot_bytes: usual_hotspot_bytes(kind, CACHE_BYTES),
            without: Without::default(),
            local_wc: false,
            node_lock: NodeLock::Cas,
            turn_capacity: TurnOptions::default().capacity,
            population,
            spacing: Spacing::default(),
            compute_nodes,
            tick_ns: crate::store::TICK_NS,
            seen: Arc::default(),
        }
    }

    /// The key that is the number `number`.
    fn key_of(&self, number: u64) -> u64 {
        self.spacing.key_of(number, self.population.items)
    }

    /// Refuses settings that make no sense.
    ///
    /// # Errors
    /// [`BenchError::Argument`].
    pub fn check(&self) -> Result<(), BenchError> {
        if self.population.items == 0 {
            return Err(BenchError::argument("--items is at least 1"));
        }
        if !(1..=LEAF_SPAN_MAX).contains(&self.span) {
            let text = format!("--span is a number from 1 to {LEAF_SPAN_MAX}");
            return Err(BenchError::Argument(text));
        }
        if self.kind.is_hashed()
            && !((1..=16).contains(&self.neighbourhood) && self.span.is_multiple_of(self.neighbourhood))
        {
            return Err(BenchError::argument(
                "--neighbourhood is a number from 1 to 16 that divides --span",
            ));
        }
        if !self.value_bytes.is_multiple_of(8) || !(1..=VALUE_WORDS_MAX as u64).contains(&(self.value_bytes / 8)) {
            let text = format!(
                "--value-size is a multiple of 8, from 8 to {}: values are in leaves",
                8 * VALUE_WORDS_MAX
            );
            return Err(BenchError::Argument(text));
        }
        let bytes = self.shape().leaf_bytes();
        if bytes > LEAF_BYTES_MAX {
            return Err(BenchError::Argument(format!(
                "a leaf has at most {LEAF_BYTES_MAX} bytes, not {bytes}: choose a smaller --value-size or --span"
            )));
        }
        if self.hotspot_bytes > self.cache_bytes {
            return Err(BenchError::argument(
                "--hotspots is a part of --cache, and no more than that",
            ));
        }
        check_theta(self.population.theta)
    }

    fn shape(&self) -> Shape {
        let leaf = self.kind.leaf(self.span, self.neighbourhood);
        leaf.repeating(self.value_bytes as usize)
    }

    fn budget(&self) -> Budget {
        Budget {
            cache_bytes: (self.cache_bytes - self.hotspot_bytes) as usize,
            hotspot_bytes: self.hotspot_bytes as usize,
        }
    }

    fn turns(&self) -> TurnOptions {
        TurnOptions {
            lease_ns: LEASE_NS,
            capacity: self.turn_capacity,
            ..TurnOptions::default()
        }
    }

    fn pool_options(&self) -> PoolOptions {
        PoolOptions {
            tick_ns: self.tick_ns,
            lease_ns: LEASE_NS,
        }
    }

    /// Fills a tree.
    fn lay_out(&self, tree: &Tree, region: &Region) -> Result<(), BenchError> {
        let mut keys: Vec<u64> = (0..self.population.items_at_start())
            .map(|number| self.key_of(number))
            .collect();
        keys.sort_unstable();
        let mut random = client_random(self.population.seed, u64::MAX - 1);
        let mut items = keys.into_iter().map(|key| (key.into(), key));
        tree.lay_out(region, &mut items, &mut || unit(&mut random))?;
        Ok(())
    }

    /// Lets a compute node know the most popular keys, as many as it may.
    async fn learn_hotspots(&self, tree: &Tree, cx: &mut OpContext) -> Result<(), BenchError> {
        if self.population.workload.is_load() {
            return Ok(());
        }
        let keys = Keys::new(&self.population, 0);
        let room = self.hotspot_bytes as usize / HOTSPOT_BYTES;
        for rank in 0..self.population.items_at_start().min(room as u64) {
            tree.search(cx, self.key_of(keys.of_rank(rank))).await?;
        }
        Ok(())
    }
}

impl Program for TreeProgram {
    type Node = Tree;
    type Client = TreeClient;
    type Known = Known;

    fn memory_bytes(&self) -> u64 {
        let block = |bytes| SizeClass::for_bytes(bytes, 1 << 20).bytes() as f64;
        let population = &self.population;
        // Whether this program INSERTs or another one that begins with the same memory.
        let more = if population.is_finite() { 0 } else { SPARE_ITEMS };
        let load_min = match (self.kind.is_hashed(), self.neighbourhood) {
            (false, _) | (true, 8..) => LOADS_MIN[0],
            (true, 4..) => LOADS_MIN[1],
            (true, _) => LOADS_MIN[2],
        };
        let leaves = (population.items + more) as f64 / (self.span as f64 * load_min);
        let inner = 1.1 * leaves / (INNER_SPAN as f64 / 2.0);
        let used = (leaves * block(self.shape().leaf_block_bytes()) + inner * block(self.shape().inner_bytes())) as u64;
        let turns = self.turns().memory_bytes(self.node_lock);
        let whole = used + used / 16 + SPARE_BYTES + turns + self.compute_nodes * SPARE_BYTES_PER_NODE;
        whole.next_multiple_of(2 << 20)
    }

    fn layout(&self) -> String {
        let items = self.population.items_at_start();
        let (shape, spacing) = (self.shape(), self.spacing);
        format!("{shape:?} of {items} items, {spacing:?}, every {} ns", self.tick_ns)
    }

    fn uses_chip(&self) -> bool {
        self.node_lock == NodeLock::OnChip
    }

    async fn prepare(&self, endpoint: Endpoint, region: &Region) -> Result<Laid, BenchError> {
        let mut cx = OpContext::new(endpoint);
        let format = FormatOptions {
            clients_max: self.compute_nodes as u16 + 8,
            ..FormatOptions::default()
        };
        let geometry = open_or_format(&mut cx, format).await?;
        let pool = Pool::join(&mut cx, geometry, self.pool_options()).await?;
        let options = TreeOptions {
            shape: self.shape(),
            budget: self.budget(),
        };
        let tree = Tree::create(&mut cx, pool, options).await?;
        self.lay_out(&tree, region)?;
        self.leave(tree).await?;
        Ok(Laid::default())
    }

    fn lesson(&self) -> Option<String> {
        let (budget, population) = (self.budget(), &self.population);
        let (seed, theta, workload) = (population.seed, population.theta, population.workload);
        Some(format!("{budget:?} by {workload:?}, Zipf {theta}, seed {seed}"))
    }

    fn known(&self, tree: &Tree) -> Known {
        tree.known()
    }

    async fn join(&self, endpoint: Endpoint, known: Option<&Known>) -> Result<Tree, BenchError> {
        let mut cx = OpContext::new(endpoint);
        let geometry = open(&mut cx).await?;
        let pool = Pool::join(&mut cx, geometry, self.pool_options()).await?;
        let tree = Tree::open(&mut cx, pool, self.budget()).await?;
        match known {
            Some(known) => tree.remember_known(known),
            None => {
                tree.remember_all(&mut cx).await?;
                self.learn_hotspots(&tree, &mut cx).await?;
            }
        }
        tree.do_without(self.without);
        if self.local_wc {
            tree.share_operations();
        }
        tree.take_turns(&mut cx, self.node_lock, self.turns()).await?;
        if self.population.workload.inserts() {
            let bytes = self.shape().leaf_block_bytes();
            tree.pool().restock(bytes, 1, Purpose::Insert).await?;
        }
        Ok(tree)
    }

    fn client(&self, node: &Tree, _: &Endpoint, number: u64) -> TreeClient {
        TreeClient::new(self, node.clone(), number)
    }

    fn begin(&self, node: &Tree) {
        self.seen.begin(node);
    }

    fn note(&self, node: &Tree) {
        self.seen.note(node);
    }

    async fn leave(&self, node: Tree) -> Result<(), BenchError> {
        let pool = node.pool().clone();
        // Ends: such a task is done, or this client is cut off.
        while node.is_restructuring() {
            pool.endpoint().sleep(RESTRUCTURING_POLL_NS).await;
        }
        node.end_turns().await?;
        drop(node);
        Ok(pool.leave().await?)
    }

    fn move_hot_set(&self) {
        self.population.moves.fetch_add(1, Ordering::Relaxed);
    }

    fn is_finite(&self) -> bool {
        self.population.is_finite()
    }

    fn memory_used(&self, region: &Region) -> Option<u64> {
        memory_used(region)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn close_keys_leave_gaps_that_inserts_fill_before_they_go_behind() {
        let items = 63 * 50 + 20;
        let keys = |numbers: core::ops::Range<u64>| -> BTreeSet<u64> {
            numbers.map(|number| Spacing::Close.key_of(number, items)).collect()
        };
        let first = keys(0..items);
        assert_eq!(first.len() as u64, items);
        assert_eq!(first.last(), Some(&(items - 1 + 50)));
        assert!(first.iter().all(|key| key % GAP != GAP - 1));

        let filled = keys(items..items + 50);
        assert_eq!(filled, (0..50).map(|gap| gap * GAP + GAP - 1).collect());
        let behind = keys(items + 50..items + 90);
        assert_eq!(behind.len(), 40);
        assert!(behind.first() > first.last());
    }
}
