//! The tree on its own: what it holds, what it gives back, and what it costs.

use std::borrow::Cow;
use std::collections::BTreeMap;

use farside_fabric::{OpContext, VerbKind};
use farside_sync::Scheme;
use farside_value::format::Tag;
use proptest::collection::vec;
use proptest::prelude::*;

use super::{Smart, SmartStructure, walk_blocks};
use crate::check;
use crate::item::Item;
use crate::operation::{Change, Decision, Wanted};
use crate::testing::Alone;
use crate::tree::Budget;

async fn put(index: &Smart, cx: &mut OpContext, key: &[u8], value: &[u8]) -> Change {
    let mut decide = |_: Option<Item<'_>>| Decision::Put {
        value: Cow::Borrowed(value),
        expiry_ms: 0,
        tag: Tag::String,
        regardless: true,
    };
    let change = index.change(cx, key, None, &mut decide).await;
    change.expect("room")
}

async fn delete(index: &Smart, cx: &mut OpContext, key: &[u8]) -> Change {
    let mut decide = |stored: Option<Item<'_>>| match stored {
        Some(_) => Decision::Delete { regardless: true },
        None => Decision::Keep,
    };
    let change = index.change(cx, key, None, &mut decide).await;
    change.expect("no fault")
}

async fn get(index: &Smart, cx: &mut OpContext, key: &[u8]) -> Option<Vec<u8>> {
    let found = index.search(cx, key).await.expect("no fault")?;
    Some(cx.buffer()[found.value.range()].to_vec())
}

async fn all(index: &Smart, cx: &mut OpContext, from: &[u8], at_once: usize) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let (mut seen, mut last, mut next) = (BTreeMap::new(), None, Some(from.to_vec()));
    while let Some(from) = next {
        let visit = &mut |item: Item<'_>| {
            assert!(
                last.as_deref().is_none_or(|last: &[u8]| last < item.key),
                "in order, and once"
            );
            last = Some(item.key.to_vec());
            seen.insert(item.key.to_vec(), item.value.to_vec());
        };
        let range = index.range(cx, &from, at_once, (Wanted::Items, visit)).await;
        next = range.expect("no fault");
    }
    seen
}

/// A tree that only this client uses; afterwards it is sound, and its blocks are all that are in use.
fn alone(test: impl AsyncFnOnce(&Smart, &mut OpContext)) -> SmartStructure {
    alone_in(Alone::new(64 << 20), test)
}

fn alone_in(mut alone: Alone, test: impl AsyncFnOnce(&Smart, &mut OpContext)) -> SmartStructure {
    let (cx, sim) = (&mut alone.cx, &alone.sim);
    let (structure, blocks) = sim.block_on(async {
        let made = Smart::create(cx, alone.pool.clone(), Scheme::Farside.into(), Budget::default()).await;
        let index = made.expect("an index");
        test(&index, cx).await;
        let census = check::take(cx, &alone.geometry).await.expect("no fault");
        assert_eq!(census.faults, [""; 0]);
        let mut blocks = Vec::new();
        walk_blocks(cx, &mut |block| blocks.push(block)).await.expect("a walk");
        assert_eq!(blocks.len(), census.blocks.len());
        (index.structure(), blocks)
    });
    alone.end(&blocks);
    structure
}

#[test]
fn keys_that_share_much_and_little() {
    let long = [b"the same beginning, ".as_slice(), &[7; 300]].concat();
    let keys = [
        b"".to_vec(),
        b"a".to_vec(),
        b"ab".to_vec(),
        b"abcdefghijkl".to_vec(),
        b"abcdefghijklm".to_vec(),
        b"abcdefgxijklm".to_vec(),
        b"axcdefghijklm".to_vec(),
        b"abcd".to_vec(),
        b"ab\0".to_vec(),
        b"\0".to_vec(),
        b"\0\0".to_vec(),
        vec![255; 9],
        long.clone(),
        [&long[..], b"1"].concat(),
        [&long[..], b"2"].concat(),
        long[..250].to_vec(),
        [&long[..200], b"x"].concat(),
    ];
    let structure = alone(async |index, cx| {
        let mut model = BTreeMap::new();
        for key in &keys {
            assert_eq!(get(index, cx, key).await, None, "{key:?}");
            assert_eq!(put(index, cx, key, key).await, Change::Inserted);
            model.insert(key.clone(), key.clone());
            index.forget_all();
            for (key, value) in &model {
                assert_eq!(get(index, cx, key).await.as_ref(), Some(value), "{key:?}");
            }
        }
        for from in keys
            .iter()
            .chain([&b"abcde".to_vec(), &b"the same".to_vec(), &vec![255; 20]])
        {
            let expected: BTreeMap<_, _> = model
                .range(from.clone()..)
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect();
            for at_once in [1, 3, 100] {
                assert_eq!(all(index, cx, from, at_once).await, expected, "{from:?}");
            }
        }
        for key in &keys {
            assert_eq!(delete(index, cx, key).await, Change::Deleted);
            assert_eq!(get(index, cx, key).await, None);
            model.remove(key);
            assert_eq!(all(index, cx, b"", 4).await, model);
        }
    });
    assert_eq!(
        structure.made, structure.gone,
        "every node but the first has gone: {structure:?}"
    );
}

/// Nodes of every kind, and back.
#[test]
fn nodes_grow_and_shrink() {
    let structure = alone(async |index, cx| {
        for number in 0..2000_u32 {
            assert_eq!(put(index, cx, &number.to_be_bytes(), b"value").await, Change::Inserted);
        }
        assert_eq!(index.count(cx).await, Ok(2000));
        for number in (0..2000_u32).filter(|number| number % 256 != 3) {
            assert_eq!(delete(index, cx, &number.to_be_bytes()).await, Change::Deleted);
        }
        let left: Vec<Vec<u8>> = all(index, cx, b"", 10).await.into_keys().collect();
        let expected = (0..2000_u32).filter(|number| number % 256 == 3);
        assert_eq!(
            left,
            expected.map(|number| number.to_be_bytes().to_vec()).collect::<Vec<_>>()
        );
        assert_eq!(index.clear(cx).await, Ok(8));
    });
    assert!(structure.grown >= 3 * 7 && structure.renewed > 0, "{structure:?}");
    assert_eq!(structure.made, structure.gone, "{structure:?}");
}

/// A key that comes and goes uses up the versions of its entry.
#[test]
fn versions_are_used_up_and_begin_anew() {
    let structure = alone(async |index, cx| {
        put(index, cx, b"other", b"value").await;
        put(index, cx, b"another", b"value").await;
        for round in 0..1000_u32 {
            assert_eq!(put(index, cx, b"key", &round.to_le_bytes()).await, Change::Inserted);
            assert_eq!(delete(index, cx, b"key").await, Change::Deleted);
        }
        assert_eq!(all(index, cx, b"", 10).await.len(), 2);
    });
    assert!((7..=9).contains(&structure.renewed), "{structure:?}");
}

/// A tree that was laid out is sound, is remembered whole, and goes on.
#[test]
fn what_was_laid_out_is_a_tree() {
    for (count, step) in [(0, 1), (1, 1), (2, 1 << 40), (3000, 1), (700, 0x0123_4567_89ab_cdef)] {
        let mut alone = Alone::new(64 << 20);
        let (cx, sim, node) = (&mut alone.cx, &alone.sim, alone.node);
        let blocks = sim.block_on(async {
            let made = Smart::create(cx, alone.pool.clone(), Scheme::Farside.into(), Budget::default()).await;
            let index = made.expect("an index");
            let mut keys: Vec<[u8; 8]> = (0..count)
                .map(|number: u64| number.wrapping_mul(step).to_be_bytes())
                .collect();
            keys.sort_unstable();
            index.lay_out(&sim.region(node), &keys, b"first").expect("room");
            index.remember_all(cx).await.expect("nodes");
            for key in &keys {
                assert_eq!(get(&index, cx, key).await.as_deref(), Some(&b"first"[..]));
            }
            put(&index, cx, b"another", b"second").await;
            let mut expected = keys.len();
            for key in keys.iter().step_by(2) {
                assert_eq!(delete(&index, cx, key).await, Change::Deleted);
                expected -= 1;
            }
            assert_eq!(all(&index, cx, b"", 50).await.len(), expected + 1);
            let census = check::take(cx, &alone.geometry).await.expect("no fault");
            assert_eq!(census.faults, [""; 0]);
            census.blocks
        });
        alone.end(&blocks);
    }
}

/// READs, WRITEs, atomics, round trips of what is done.
async fn cost_of(cx: &mut OpContext, operation: impl AsyncFnOnce(&mut OpContext)) -> [u64; 4] {
    let endpoint = cx.endpoint().clone();
    let before = endpoint.counters().snapshot();
    operation(cx).await;
    let counted = endpoint.counters().snapshot().since(&before);
    let verbs = &counted.verbs;
    let (reads, writes) = (verbs.of(VerbKind::Read), verbs.of(VerbKind::Write));
    [reads, writes, verbs.atomics(), counted.doorbells]
}

/// Warm: the nodes are remembered. Cold: so many have to be read.
#[test]
fn each_operation_costs_what_it_has_to() {
    alone_in(Alone::undisturbed(64 << 20), async |index, cx| {
        // Three nodes on the way of each: of the first byte, the third, the fourth.
        for number in 0..512_u32 {
            put(index, cx, &(number << 16).to_be_bytes(), b"value").await;
            put(index, cx, &(number << 16 | 1 << 8).to_be_bytes(), b"value").await;
        }
        let (key, other) = (77_u32 << 16, (77_u32 << 16 | 2 << 8).to_be_bytes());
        let key = key.to_be_bytes();
        let cold = async |cx: &mut OpContext| {
            index.forget_all();
            assert_eq!(
                cost_of(cx, async |cx| drop(get(index, cx, &key).await)).await,
                [5, 0, 0, 5]
            );
        };
        cold(cx).await;
        // The entry, and beside it the item that it led to.
        assert_eq!(
            cost_of(cx, async |cx| drop(get(index, cx, &key).await)).await,
            [2, 0, 0, 1]
        );
        // The same, and a WRITE and a swap.
        assert_eq!(
            cost_of(cx, async |cx| assert_eq!(
                put(index, cx, &key, b"again").await,
                Change::Updated
            ))
            .await,
            [2, 1, 1, 3]
        );
        assert_eq!(
            cost_of(cx, async |cx| drop(get(index, cx, &key).await)).await,
            [2, 0, 0, 1]
        );
        // The node that has no entry for the byte; then one for its kind, one for what leads to it.
        assert_eq!(get(index, cx, &other).await, None);
        assert_eq!(
            cost_of(cx, async |cx| assert_eq!(
                put(index, cx, &other, b"new").await,
                Change::Inserted
            ))
            .await,
            [1, 1, 1, 3]
        );
        // Then the node is looked at.
        assert_eq!(
            cost_of(cx, async |cx| assert_eq!(
                delete(index, cx, &other).await,
                Change::Deleted
            ))
            .await,
            [3, 0, 1, 3]
        );
        // Keys in order: what leads to the first node, that, one of the two below it, which has more than enough, five below that, and
        // five items: one more than wanted, as the first might come before.
        let range = async |cx: &mut OpContext| {
            let visited = index.range(cx, &key, 4, (Wanted::Items, &mut |_| {})).await;
            visited.expect("a range");
        };
        assert_eq!(cost_of(cx, range).await, [13, 0, 0, 5]);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn behaves_like_a_map(
        steps in vec((0_u8..4, vec(prop::sample::select(vec![0_u8, 1, 255]), 0..12), any::<bool>()), 1..200)
    ) {
        alone(async |index, cx| {
            let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
            for (number, (step, key, forgets)) in (0_u32..).zip(&steps) {
                if *forgets {
                    index.forget_all();
                }
                let value = number.to_le_bytes();
                match step {
                    0 | 1 => {
                        let expected = match model.insert(key.clone(), value.to_vec()) {
                            Some(_) => Change::Updated,
                            None => Change::Inserted,
                        };
                        assert_eq!(put(index, cx, key, &value).await, expected);
                    }
                    2 => {
                        let expected = match model.remove(key) {
                            Some(_) => Change::Deleted,
                            None => Change::Kept,
                        };
                        assert_eq!(delete(index, cx, key).await, expected);
                    }
                    _ => assert_eq!(get(index, cx, key).await.as_ref(), model.get(key)),
                }
            }
            assert_eq!(all(index, cx, b"", 3).await, model);
        });
    }
}

/// What waits goes to the heap, and a batch has three KiB.
#[test]
fn futures_of_operations_are_small() {
    alone(async |index, cx| {
        let decide = &mut |_: Option<Item<'_>>| Decision::Keep;
        assert!(size_of_val(&index.search(cx, b"key")) <= 1024);
        let change = size_of_val(&index.change(cx, b"key", None, decide));
        assert!(change <= 3072, "{change}");
    });
}
