//! Checks of trees that take an order which plans hardly ever draw.

use farside_fabric::Endpoint;
use farside_fabric::OpContext;
use farside_fabric::sim::{CrashPoint, Sim, SimOptions};
use farside_index::{Budget, Shape, Tree, TreeKind, TreeOptions};
use farside_pool::{FormatOptions, Pool, PoolOptions, open_or_format};
use farside_sim::panics::caught;

/// Longer than a check: nobody is declared dead.
const LEASE_NS: u64 = 100_000_000;
/// A split takes about so many verbs, those for memory included.
const VERBS: u64 = 40;
/// At one of so many verbs of a merge a client dies, for each seed.
const DEATHS_APART: u64 = 20;
/// The lines of a leaf, and one more.
const LINES: u64 = 27;
/// How long anything may take that nobody is in the way of.
const PATIENCE_NS: u64 = 60_000;
/// What is stored at first is smaller.
const NEW: u64 = 1_000_000;

async fn open(endpoint: &Endpoint) -> Tree {
    let mut cx = OpContext::new(endpoint.clone());
    let geometry = open_or_format(&mut cx, FormatOptions::default()).await;
    let times = PoolOptions {
        tick_ns: 50_000,
        lease_ns: LEASE_NS,
    };
    let pool = Pool::join(&mut cx, geometry.expect("a pool"), times).await;
    let options = TreeOptions {
        shape: TreeKind::Chime.published_leaf(),
        budget: Budget {
            cache_bytes: 1 << 20,
            hotspot_bytes: 0,
        },
    };
    Tree::create(&mut cx, pool.expect("a client"), options)
        .await
        .expect("a tree")
}

fn key_of(number: usize) -> u64 {
    (number as u64 + 1) * 1000
}

/// The keys for which a leaf has room; the next one splits it.
fn keys_of_a_leaf() -> Vec<u64> {
    let sim = Sim::new(SimOptions::default());
    let _ = sim.add_memory_node(4 << 20);
    let endpoint = sim.endpoint(sim.add_compute_node());
    let tree = sim.block_on(open(&endpoint));
    let mut cx = OpContext::new(endpoint);
    let fits = |&key: &u64| {
        sim.block_on(tree.put(&mut cx, key, key)).expect("the node is there");
        tree.structure().splits == 0
    };
    (0..).map(key_of).take_while(fits).collect()
}

/// A client dies at verbs of each merge of internal nodes: at each of them, if as many seeds follow each other.
pub(crate) fn internal_nodes_that_merge(seed: u64) -> Result<(), String> {
    let shape = Shape::unsorted(2);
    // A search that comes to no end, a READ of what was freed.
    let deaths = caught(|| super::shrink::deaths(seed, shape, DEATHS_APART));
    deaths.unwrap_or_else(Err).map(drop)
}

/// A client dies at a verb of its first split, and within it. Another one looks for keys, comes by the new leaf, and after a
/// while updates what it can. A third one, which knows nothing of the split, must not find what was there before.
pub(crate) fn a_leaf_that_is_half_written(seed: u64) -> Result<(), String> {
    let keys = keys_of_a_leaf();
    (1..=VERBS).try_for_each(|verb| half_written(seed, verb, &keys))
}

fn half_written(seed: u64, verb: u64, keys: &[u64]) -> Result<(), String> {
    let sim = Sim::new(SimOptions {
        seed,
        ..SimOptions::default()
    });
    let _ = sim.add_memory_node(4 << 20);
    let [dying, busy, idle] = [(); 3].map(|()| sim.endpoint(sim.add_compute_node()));
    let [first, second, third] = [&dying, &busy, &idle].map(|endpoint| sim.block_on(open(endpoint)));
    let patient = |endpoint: &Endpoint| {
        let mut cx = OpContext::new(endpoint.clone());
        cx.set_deadline(endpoint.deadline_in(PATIENCE_NS));
        cx
    };
    for &key in keys {
        let stored = sim.block_on(first.put(&mut OpContext::new(dying.clone()), key, key));
        stored.map_err(|error| error.to_string())?;
    }
    let verb = sim.verbs_posted(dying.id()) + verb;
    let lines = Some((seed % LINES) as u32);
    sim.crash_client_at(dying.id(), CrashPoint { verb, lines });
    let (task, next) = (dying.clone(), key_of(keys.len()));
    dying.spawn(async move {
        let _ = first.put(&mut OpContext::new(task), next, next).await;
    });
    sim.run_until(sim.now_ns() + 200_000);
    for &key in keys {
        let _ = sim.block_on(second.search(&mut patient(&busy), key));
    }
    sim.run_until(sim.now_ns() + 1_000_000);
    for &key in keys {
        let updated = sim.block_on(second.update(&mut patient(&busy), key, NEW + key));
        let found = sim.block_on(third.search(&mut patient(&idle), key));
        if updated == Ok(true) && found.as_ref().is_ok_and(|&found| found != Some(NEW + key)) {
            return Err(format!(
                "verb {verb}, lines {lines:?}: key {key} was updated, and is {found:?}"
            ));
        }
    }
    Ok(())
}

/// A key that is inserted where a client has died within a merge.
pub(super) fn a_key_beside_a_merge(seed: u64) -> Result<(), String> {
    super::claimed::interrupt(1 + (seed % 2) as usize, seed % super::claimed::KEYS).map(drop)
}
