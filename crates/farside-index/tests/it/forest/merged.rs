//! A client dies at each verb of a merge of two leaves, and what another one does next goes by what it remembers.

use std::collections::BTreeMap;

use farside_fabric::sim::{CrashPoint, Sim, SimOptions};
use farside_fabric::{Endpoint, OpContext};
use farside_index::operation::Change;
use farside_index::{Shape, Tree};

use super::client::{LEASE_NS, recover};
use super::{Forest, open_tree};

/// What is done first after the death.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    Search,
    Put,
    Update,
    Delete,
    Scan,
}

impl Next {
    pub(crate) const ALL: [Self; 5] = [Self::Search, Self::Put, Self::Update, Self::Delete, Self::Scan];
}

/// How many keys there are before any is deleted.
const KEYS: u64 = 12;

fn key_of(number: u64) -> u64 {
    number * 16
}

fn patient(endpoint: &Endpoint) -> OpContext {
    let mut cx = OpContext::new(endpoint.clone());
    cx.set_deadline(endpoint.deadline_in(30 * LEASE_NS));
    cx
}

/// A tree whose first client is about to delete the key that brings a merge about.
struct Scene {
    sim: Sim,
    dying: Endpoint,
    first: Tree,
    /// Remembers everything as it was.
    warm: (Endpoint, Tree),
    /// Remembers nothing.
    cold: (Endpoint, Tree),
    /// What there is.
    model: BTreeMap<u64, u64>,
}

impl Scene {
    /// Deletes keys from the middle on until the next one would let leaves merge, or all of so many.
    fn new(shape: Shape, nodes: usize, deleted: usize) -> Self {
        let forest = Forest::new(SimOptions::default(), shape, nodes);
        let sim = forest.sim.clone();
        let open = |cache_bytes| {
            let endpoint = forest.endpoint();
            let tree = sim.block_on(open_tree(&endpoint, shape, cache_bytes));
            endpoint.spawn(recover(endpoint.clone(), tree.clone()));
            (endpoint, tree)
        };
        let [(dying, first), warm, cold] = [1 << 20, 1 << 20, 0].map(open);
        let mut model = BTreeMap::new();
        for number in 0..KEYS {
            let key = number * 5 % KEYS;
            sim.block_on(first.put(&mut patient(&dying), key_of(key), key))
                .expect("room");
            model.insert(key_of(key), key);
        }
        sim.block_on(forest.settle(&dying, &first));
        sim.block_on(warm.1.remember_all(&mut patient(&warm.0))).expect("nodes");
        let mut scene = Self {
            sim,
            dying,
            first,
            warm,
            cold,
            model,
        };
        for step in 0..deleted {
            scene.delete_one(step);
            let merging = scene.first.structure().merges > 0;
            assert!(!merging, "the last one does");
        }
        scene
    }

    /// The key that is deleted in a step.
    fn victim(step: usize) -> u64 {
        key_of((KEYS / 2 + step as u64) % KEYS)
    }

    fn delete_one(&mut self, step: usize) {
        let (key, first, dying) = (Self::victim(step), self.first.clone(), self.dying.clone());
        self.model.remove(&key);
        self.sim.block_on(async {
            assert_eq!(first.delete(&mut patient(&dying), key).await, Ok(true));
            while first.is_restructuring() {
                dying.sleep(1_000).await;
            }
        });
    }
}

/// How many deletions bring the first merge about, and which verbs the last one and the merge post.
fn measure(shape: Shape, nodes: usize) -> (usize, core::ops::Range<u64>) {
    let mut scene = Scene::new(shape, nodes, 0);
    for step in 0..KEYS as usize {
        let before = scene.sim.verbs_posted(scene.dying.id());
        scene.delete_one(step);
        if scene.first.structure().merges > 0 {
            return (step, before + 1..scene.sim.verbs_posted(scene.dying.id()) + 1);
        }
    }
    panic!("{shape:?}: leaves merge when all keys are deleted");
}

/// Lets the first client die at each verb of a merge, and somebody who remembers do each thing with each key then; returns
/// how many lives that were.
///
/// # Errors
/// What is not as it has to be, and when.
pub(crate) fn mislead(shape: Shape, nodes: usize) -> Result<u64, String> {
    let (deleted, verbs) = measure(shape, nodes);
    let mut lives = 0;
    for verb in verbs {
        for next in Next::ALL {
            for number in 0..KEYS {
                let result = live(shape, nodes, (deleted, verb), next, key_of(number));
                result.map_err(|text| format!("verb {verb}, {next:?} of {}: {text}", key_of(number)))?;
                lives += 1;
            }
        }
    }
    Ok(lives)
}

fn live(shape: Shape, nodes: usize, (deleted, verb): (usize, u64), next: Next, key: u64) -> Result<(), String> {
    const NEW: u64 = 99;
    let mut scene = Scene::new(shape, nodes, deleted);
    let (sim, dying, first) = (scene.sim.clone(), scene.dying.clone(), scene.first.clone());
    sim.crash_client_at(dying.id(), CrashPoint { verb, lines: None });
    let victim = Scene::victim(deleted);
    let deleting = first.clone();
    let endpoint = dying.clone();
    dying.spawn(async move {
        let _ = deleting.delete(&mut patient(&endpoint), victim).await;
    });
    while !sim.is_crashed(dying.id()) {
        sim.run_until(sim.now_ns() + 1_000);
    }
    // It may be there or not.
    let model = &mut scene.model;
    let is_sure = key != victim;
    let was = model.get(&key).copied();
    let (endpoint, tree) = scene.warm.clone();
    let mut cx = patient(&endpoint);
    let error = |error| format!("{error}");
    match next {
        Next::Search => {
            let found = sim.block_on(tree.search(&mut cx, key)).map_err(error)?;
            if is_sure && found != was {
                return Err(format!("found {found:?}, not {was:?}"));
            }
        }
        Next::Put => {
            let change = sim.block_on(tree.put(&mut cx, key, NEW)).map_err(error)?;
            if is_sure && (change == Change::Updated) != was.is_some() {
                return Err(format!("it was {was:?}, and is {change:?}"));
            }
            model.insert(key, NEW);
        }
        Next::Update => {
            let is_updated = sim.block_on(tree.update(&mut cx, key, NEW)).map_err(error)?;
            if is_sure && is_updated != was.is_some() {
                return Err(format!("it was {was:?}, and updated: {is_updated}"));
            }
            if is_updated {
                model.insert(key, NEW);
            }
        }
        Next::Delete => {
            let is_deleted = sim.block_on(tree.delete(&mut cx, key)).map_err(error)?;
            if is_sure && is_deleted != was.is_some() {
                return Err(format!("it was {was:?}, and deleted: {is_deleted}"));
            }
            model.remove(&key);
        }
        Next::Scan => {
            let mut seen = BTreeMap::new();
            let visit = &mut |key, value| {
                seen.insert(key as u64, value);
            };
            let ended = sim.block_on(tree.scan(&mut cx, key, usize::MAX, visit));
            seen.remove(&victim);
            let mut expected: BTreeMap<u64, u64> = model.range(key..).map(|(&key, &value)| (key, value)).collect();
            expected.remove(&victim);
            if ended != Ok(None) || (seen != expected) {
                return Err(format!("{ended:?}: {seen:?}, not {expected:?}"));
            }
        }
    }
    let is_in_doubt = |key: u64| key == victim && model.get(&key) != Some(&NEW);
    for number in 0..KEYS {
        let key = key_of(number);
        for (endpoint, tree) in [&scene.warm, &scene.cold] {
            let found = sim.block_on(tree.search(&mut patient(endpoint), key)).map_err(error)?;
            if found != model.get(&key).copied() && !is_in_doubt(key) {
                return Err(format!("afterwards {key} is {found:?}, not {:?}", model.get(&key)));
            }
        }
    }
    let (endpoint, tree) = &scene.cold;
    let walked = sim.block_on(tree.walk(&mut patient(endpoint), &mut |_| {}));
    walked.map_err(error)?;
    let census = sim.block_on(tree.check(&mut patient(endpoint))).map_err(error)?;
    match census.faults.is_empty() {
        true => Ok(()),
        false => Err(format!("{:?}", census.faults)),
    }
}
