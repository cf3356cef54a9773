//! The trees against a map, alone and among many clients, and what each operation costs.

use core::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use farside_fabric::OpContext;
use farside_fabric::sim::{LullAim, Lulls, SimOptions};
use farside_index::Shape;
use farside_index::operation::Change;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::forest::run::{Outcome, Plan, run};
use crate::forest::{Forest, SHAPES, claimed, merged, shrink};

#[derive(Clone, Debug)]
enum Operation {
    Put(u64, u64),
    Insert(u64, u64),
    Update(u64, u64),
    Delete(u64),
    Search(u64),
    Scan(u64, usize),
}

fn key() -> impl Strategy<Value = u64> {
    // Near together, far apart, and both ends.
    prop_oneof![4 => 0_u64..40, 2 => (0_u64..40).prop_map(|key| key << 58 | 5), 1 => Just(u64::MAX), 1 => any::<u64>()]
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => (key(), any::<u64>()).prop_map(|(key, value)| Operation::Put(key, value)),
        2 => (key(), any::<u64>()).prop_map(|(key, value)| Operation::Insert(key, value)),
        1 => (key(), any::<u64>()).prop_map(|(key, value)| Operation::Update(key, value)),
        3 => key().prop_map(Operation::Delete),
        1 => key().prop_map(Operation::Search),
        1 => (key(), 0_usize..30).prop_map(|(key, count)| Operation::Scan(key, count)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_tree_does_what_a_map_does(shape in 0..SHAPES.len(), operations in vec(operation(), 1..250), cache in 0_usize..3000) {
        let forest = Forest::new(SimOptions::default(), SHAPES[shape], 2);
        let endpoint = forest.endpoint();
        let sim = forest.sim.clone();
        sim.block_on(async {
            let tree = forest.tree(&endpoint, cache).await;
            let mut cx = OpContext::new(endpoint.clone());
            let mut map = BTreeMap::new();
            for operation in operations {
                match operation {
                    Operation::Put(key, value) => {
                        let expected = if map.insert(key, value).is_some() { Change::Updated } else { Change::Inserted };
                        assert_eq!(tree.put(&mut cx, key, value).await, Ok(expected));
                    }
                    Operation::Insert(key, value) => {
                        let is_new = !map.contains_key(&key);
                        map.entry(key).or_insert(value);
                        assert_eq!(tree.insert(&mut cx, key, value).await, Ok(is_new));
                    }
                    Operation::Update(key, value) => {
                        let is_there = map.get_mut(&key).map(|old| *old = value).is_some();
                        assert_eq!(tree.update(&mut cx, key, value).await, Ok(is_there));
                    }
                    Operation::Delete(key) => {
                        assert_eq!(tree.delete(&mut cx, key).await, Ok(map.remove(&key).is_some()));
                    }
                    Operation::Search(key) => {
                        assert_eq!(tree.search(&mut cx, key).await, Ok(map.get(&key).copied()));
                    }
                    Operation::Scan(from, count) => {
                        let mut seen = Vec::new();
                        tree.scan(&mut cx, from, count, &mut |key, value| seen.push((key as u64, value))).await.expect("a scan");
                        let expected: Vec<_> = map.range(from..).take(count).map(|(&key, &value)| (key, value)).collect();
                        assert_eq!(seen, expected);
                    }
                }
                cx.assert_settled();
                assert!(tree.cache_bytes() <= cache);
            }
            forest.settle(&endpoint, &tree).await;
            let census = tree.check(&mut cx).await.expect("a census");
            assert_eq!(census.faults, [""; 0]);
            assert_eq!(census.narrow_items(), map);
            assert_eq!((census.half_split, census.unsettled), (0, 0));
        });
    }
}

/// The numbers of seeds to run.
fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let number = |name: &str, default| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(default)
    };
    let first = number("FARSIDE_SEED", 1);
    first..first + number("FARSIDE_SEEDS", count)
}

fn plan(seed: u64) -> Plan {
    Plan {
        seed,
        shape: SHAPES[seed as usize / 2 % 2],
        nodes: 1 + seed as usize / 4 % 2,
        clients: 2 + seed as usize / 4 % 4,
        operations: 70,
        keys: if seed.is_multiple_of(3) { 12 } else { 60 },
        is_filled: false,
        pause_ns: 3_000,
        deletes: if seed.is_multiple_of(2) { 6 } else { seed / 3 % 8 },
        tear_bytes: if seed.is_multiple_of(5) { 64 } else { 8 },
        cache_bytes: if seed.is_multiple_of(7) { 0 } else { 1 << 20 },
        crash: None,
    }
}

#[test]
fn many_clients_see_one_tree() {
    let mut all = Outcome::default();
    for seed in seeds(200) {
        println!("FARSIDE_SEED={seed}");
        let outcome = run(plan(seed));
        all.splits += outcome.splits;
        all.merges += outcome.merges;
    }
    println!("{all:?}");
    assert!(all.splits > 500 && all.merges > 50, "{all:?}");
}

/// Many clients on the keys of one or two leaves: READs meet WRITEs.
#[test]
fn readers_among_writers_see_what_was_there() {
    for seed in seeds(150) {
        println!("FARSIDE_SEED={seed}");
        let shape = [
            Shape::hopscotch(8, 4),
            Shape::hopscotch(12, 6),
            Shape::unsorted(6),
            Shape::hopscotch(8, 4).repeating(24),
        ][seed as usize % 4];
        run(Plan {
            shape: if seed % 3 == 0 { shape.learned() } else { shape },
            clients: 8,
            operations: 50,
            keys: 8 + seed % 8,
            deletes: 4,
            pause_ns: 1 + seed % 5 * 100,
            tear_bytes: 8,
            ..plan(seed)
        });
    }
}

/// A key that goes and comes back to another entry, all within one READ of its leaf, stands in both for whoever reads it.
#[test]
fn a_key_that_changes_its_entry_while_a_leaf_is_read_is_scanned_once() {
    const KEY: u64 = 500;
    const OTHERS: u64 = 60;
    let mut scans = 0;
    for (seed, shape) in seeds(40).zip([Shape::unsorted(64), Shape::unsorted(64).learned()].into_iter().cycle()) {
        // Some READs touch their lines over many round trips.
        let lulls = Lulls {
            one_in: 6,
            ns_max: 400_000,
            aim: LullAim::Lines,
        };
        let options = SimOptions {
            seed,
            lulls,
            ..SimOptions::default()
        };
        let forest = Forest::new(options, shape, 1);
        let (writer, reader) = (forest.endpoint(), forest.endpoint());
        let sim = forest.sim.clone();
        sim.block_on(async {
            let tree = forest.tree(&writer, 1 << 20).await;
            let mut cx = OpContext::new(writer.clone());
            for key in 0..OTHERS {
                tree.put(&mut cx, key, key).await.expect("room");
            }
            // Two entries that are vacant, far from each other.
            for key in [0, OTHERS - 1] {
                tree.delete(&mut cx, key).await.expect("it is there");
            }
            let scanned = Rc::new(Cell::new(0));
            let is_done = Rc::new(Cell::new(false));
            let (count, ends, others) = (
                Rc::clone(&scanned),
                Rc::clone(&is_done),
                forest.tree(&reader, 1 << 20).await,
            );
            reader.clone().spawn(async move {
                let mut cx = OpContext::new(reader);
                while !ends.get() {
                    let mut seen = Vec::new();
                    let mut visit = |key, _| seen.push(key as u64);
                    others.scan(&mut cx, 0_u64, 1000, &mut visit).await.expect("a scan");
                    assert!(
                        seen.is_sorted_by(|a, b| a < b),
                        "seed {seed}: not in order, or twice: {seen:?}"
                    );
                    count.set(count.get() + 1);
                }
            });
            // Each takes the first entry that is vacant: the one that the other had.
            for round in 0..40 {
                let (first, second) = if round % 2 == 0 { (KEY, KEY + 1) } else { (KEY + 1, KEY) };
                tree.put(&mut cx, first, round).await.expect("room");
                tree.put(&mut cx, second, round).await.expect("room");
                tree.delete(&mut cx, first).await.expect("it is there");
                tree.delete(&mut cx, second).await.expect("it is there");
            }
            is_done.set(true);
            scans += scanned.get();
        });
    }
    println!("{scans} scans");
    assert!(scans > 100, "{scans}");
}

/// Leaves of two to four keys: a few hundred make a tree of three levels, whose internal nodes split.
fn tall_plan(seed: u64) -> Plan {
    // The next key that is stored may split the root.
    let (shape, keys) = [(Shape::unsorted(2), 80), (Shape::hopscotch(4, 2), 140)][seed as usize % 2];
    Plan {
        shape,
        keys: keys + seed / 2 % 24,
        is_filled: true,
        operations: 60,
        ..plan(seed)
    }
}

#[test]
fn internal_nodes_split_under_many_clients() {
    let mut inner = Vec::new();
    for seed in seeds(60) {
        println!("FARSIDE_SEED={seed}");
        inner.push(run(tall_plan(seed)).inner);
    }
    println!("{inner:?}");
    assert!(inner.contains(&1) && inner.iter().any(|&count| count > 2), "{inner:?}");
}

/// Trees of three levels whose keys go.
#[test]
fn internal_nodes_merge_under_many_clients() {
    let mut all = Outcome::default();
    for seed in seeds(60) {
        println!("FARSIDE_SEED={seed}");
        let outcome = run(Plan {
            // As a rule three internal nodes below the root.
            keys: [180, 240][seed as usize % 2] + seed / 2 % 8,
            operations: 800,
            deletes: 8,
            ..tall_plan(seed)
        });
        all.inner_merges += outcome.inner_merges;
        all.lowered += outcome.lowered;
    }
    println!("{all:?}");
    assert!(all.inner_merges > 30 && all.lowered > 30, "{all:?}");
}

#[test]
fn a_tree_that_is_emptied_is_one_leaf_again() {
    const KEYS: u64 = 5000;
    let orders: [fn(u64) -> u64; 3] = [
        |number| number,
        |number| KEYS - 1 - number,
        |number| number * 7919 % KEYS,
    ];
    for (shape, order) in [
        (Shape::unsorted(2), 0),
        (Shape::unsorted(2), 1),
        (Shape::unsorted(4), 2),
    ] {
        let forest = Forest::new(SimOptions::default(), shape, 2);
        let endpoint = forest.endpoint();
        let sim = forest.sim.clone();
        sim.block_on(async {
            let tree = forest.tree(&endpoint, 1 << 20).await;
            let mut cx = OpContext::new(endpoint.clone());
            // Twice, so that it grows again from what is left.
            for _ in 0..2 {
                for number in 0..KEYS {
                    let key = number * 7919 % KEYS;
                    assert_eq!(tree.put(&mut cx, key, key).await, Ok(Change::Inserted));
                }
                let height = tree.height();
                assert!(height >= 2, "{height}");
                let allocated = tree.check(&mut cx).await.expect("a census").blocks.len();
                for number in 0..KEYS {
                    assert_eq!(tree.delete(&mut cx, orders[order](number)).await, Ok(true));
                }
                forest.settle(&endpoint, &tree).await;
                let census = tree.check(&mut cx).await.expect("a census");
                assert_eq!(census.faults, [""; 0]);
                let left = (tree.height(), census.inner, census.leaves, census.blocks.len());
                println!("{shape:?}, order {order}: height {height}, {allocated} blocks, left {left:?}");
                assert_eq!(left, (0, 0, 1, 1));
            }
        });
    }
}

/// A client dies at each verb of each merge of internal nodes, and of the root that gives way.
#[test]
fn a_death_at_any_verb_of_a_merge_of_internal_nodes_loses_nothing() {
    let shapes = [Shape::unsorted(2), Shape::hopscotch(2, 2), Shape::unsorted(2).learned()];
    for (seed, shape) in (1..).zip(shapes) {
        let seen = shrink::deaths(seed, shape, 1).unwrap_or_else(|text| panic!("{shape:?}, seed {seed}: {text}"));
        println!("{shape:?}: {seen:?}");
        assert!(seen.inner_merges >= 2 && seen.lowered == 1, "{seen:?}");
        assert_eq!(seen.heights, [2, 2], "it has grown again");
    }
}

/// A client dies at each verb of a merge of leaves, on one memory node and on two; then one that remembers what was there before does
/// each thing with each key.
#[test]
fn whoever_remembers_is_not_misled_by_a_merge_that_was_left() {
    for shape in [Shape::unsorted(2).learned(), Shape::hopscotch(4, 2).learned()] {
        for nodes in [1, 2] {
            let lives = merged::mislead(shape, nodes).unwrap_or_else(|text| panic!("{shape:?}, {nodes} nodes: {text}"));
            println!("{shape:?}, {nodes} nodes: {lives} lives");
        }
    }
}

/// A client dies after each of its verbs, or in the middle of it, while another one works.
#[test]
fn a_death_at_any_verb_loses_nothing() {
    const STEP: u64 = 2;
    let mut all = Outcome::default();
    for seed in seeds(12) {
        let deletes = if seed.is_multiple_of(2) { 3 } else { 8 };
        let whole = match seed % 4 {
            0 => Plan {
                clients: 2,
                operations: 40,
                deletes: 1,
                ..tall_plan(seed / 4)
            },
            _ => Plan {
                clients: 2,
                operations: 50,
                keys: 24,
                deletes,
                ..plan(seed)
            },
        };
        let verbs = run(whole).verbs;
        let shape = if seed % 3 == 2 {
            whole.shape.learned()
        } else {
            whole.shape
        };
        let whole = Plan { shape, ..whole };
        // Other verbs with every seed; half of them are WRITEs cut in the middle.
        for verb in (1 + seed % STEP..=verbs).step_by(STEP as usize) {
            let lines = (verb / STEP).is_multiple_of(2).then_some(verb as u32 % 7);
            println!("FARSIDE_SEED={seed}, verb {verb} of {verbs}, lines {lines:?}");
            let crash = Some((verb, lines));
            let outcome = run(Plan { crash, ..whole });
            all.settled += outcome.settled;
            all.splits += outcome.splits;
            all.merges += outcome.merges;
        }
    }
    println!("{all:?}");
    assert!(all.settled > 500 && all.merges > 100, "{all:?}");
}

#[test]
fn a_key_stays_that_is_inserted_where_somebody_has_died_within_a_merge() {
    for nodes in [1, 2] {
        for gap in 0..claimed::KEYS {
            let lives = claimed::interrupt(nodes, gap).unwrap_or_else(|text| panic!("{text}"));
            assert!(lives > 20, "{lives}");
        }
    }
}
