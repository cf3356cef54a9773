//! Ranges against `BTreeMap`: what a page holds, whatever was stored and removed since the page before.

use std::collections::BTreeMap;
use std::sync::Arc;

use farside_fabric::shm::{self, Segment};
use farside_fabric::sim::{Sim, SimOptions};
use farside_kv::{Cursors, Expiry, IndexKind, LeafOptions, SetOptions, Store, StoreConfig, prefix_end};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample;

use crate::model::run;

/// A store whose leaves split and merge with few keys.
async fn open(segment: &Segment, index: IndexKind) -> Store {
    let endpoint = shm::Fabric::new(vec![segment.clone()]).endpoint().expect("an endpoint");
    let config = StoreConfig {
        index: Some(index),
        leaf: LeafOptions {
            span: 8,
            neighbourhood: 8,
        },
        ..StoreConfig::default()
    };
    Store::open(endpoint, config).await.expect("a store")
}

fn memory() -> Segment {
    Segment::anonymous(32 << 20).expect("memory")
}

/// Keys that differ early, late, or in length alone.
fn keys() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => vec(0..4_u8, 0..4),
        4 => (0..30_usize, 0..3_u8).prop_map(|(bytes, last)| [vec![0; bytes], vec![last]].concat()),
        8 => (0..3_u8, 0..60_u16).prop_map(|(kind, number)| format!("tenant/7/kind/{kind}/user:{number:05}").into_bytes()),
        4 => (0..12_usize).prop_map(|bytes| b"tenant/7/kind/1/user:"[..bytes + 9].to_vec()),
        2 => (0..3_usize, 0..3_u8).prop_map(|(bytes, last)| [vec![255; bytes], vec![253 + last]].concat()),
        // Each takes as long as a hundred others.
        1 => (4090..4100_usize, 0..3_u8).prop_map(|(bytes, last)| [vec![b'z'; bytes], vec![last]].concat()),
    ]
}

/// What happens between two pages.
#[derive(Clone, Debug)]
enum Step {
    Put(Vec<u8>),
    /// With an expiry that has passed.
    PutExpired(Vec<u8>),
    Delete(Vec<u8>),
    /// Begins anew.
    Start(Vec<u8>, Option<Vec<u8>>),
    Page(usize),
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => keys().prop_map(Step::Put),
        5 => keys().prop_map(Step::PutExpired),
        15 => keys().prop_map(Step::Delete),
        3 => (keys(), proptest::option::of(keys())).prop_map(|(from, to)| Step::Start(from, to)),
        1 => Just(Step::Start(Vec::new(), None)),
        10 => prop_oneof![0..4_usize, 0..100_usize, Just(usize::MAX)].prop_map(Step::Page),
    ]
}

type Model = BTreeMap<Vec<u8>, bool>;
type KeyPage = (Vec<Vec<u8>>, Option<Vec<u8>>);

/// What a page has to hold; of each key the model knows whether it is there still.
fn expected(model: &Model, from: &[u8], to: Option<&[u8]>, limit: usize) -> KeyPage {
    let is_inside = |key: &[u8]| to.is_none_or(|to| key < to);
    let looked_at: Vec<_> = model.range(from.to_vec()..).take(limit).collect();
    let next = match looked_at.last() {
        _ if limit == 0 => Some(from.to_vec()),
        Some((key, _)) if looked_at.len() == limit => Some([key, &[0][..]].concat()),
        _ => None,
    };
    let inside = looked_at
        .into_iter()
        .filter(|(key, is_there)| is_inside(key) && **is_there);
    (
        inside.map(|(key, _)| key.clone()).collect(),
        next.filter(|next| is_inside(next)),
    )
}

fn value_of(key: &[u8]) -> Vec<u8> {
    [b"value of ", key].concat()
}

fn ordered_indexes() -> Vec<IndexKind> {
    let all = IndexKind::ALL.map(|(index, ..)| index);
    all.into_iter().filter(|index| index.is_ordered()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn a_page_is_what_a_map_has_there(
        index in sample::select(ordered_indexes()),
        steps in vec(steps(), 1..400),
    ) {
        run(async {
            let store = open(&memory(), index).await;
            let mut session = store.session();
            let mut model = Model::new();
            let (mut next, mut to) = (Some(Vec::new()), None);
            for step in steps {
                match step {
                    Step::Put(key) => {
                        session.put(&key, &value_of(&key)).await.expect("put");
                        model.insert(key, true);
                    }
                    Step::PutExpired(key) => {
                        let options = SetOptions { expiry: Expiry::AtMs(1), ..SetOptions::default() };
                        session.set(&key, b"gone", options).await.expect("set");
                        model.insert(key, false);
                    }
                    Step::Delete(key) => {
                        let was_there = session.delete(&key).await.expect("delete");
                        assert_eq!(was_there, model.remove(&key).unwrap_or(false));
                    }
                    Step::Start(from, end) => (next, to) = (Some(from), end),
                    Step::Page(limit) => {
                        let Some(from) = next.take() else { continue };
                        let wanted = expected(&model, &from, to.as_deref(), limit);
                        let keys = session.range_keys(&from, to.as_deref(), limit).await.expect("range");
                        assert_eq!(&keys, &wanted);
                        let (items, behind) = session.range(&from, to.as_deref(), limit).await.expect("range");
                        assert_eq!(&behind, &wanted.1);
                        assert!(items.iter().all(|(key, value)| *value == value_of(key)));
                        assert_eq!(items.into_iter().map(|(key, _)| key).collect::<Vec<_>>(), wanted.0);
                        next = behind;
                    }
                }
            }
            drop(session);
            store.close().await.expect("closed");
        });
    }
}

#[test]
fn an_index_without_order_has_no_ranges() {
    run(async {
        for index in [IndexKind::Race, IndexKind::PointerArray] {
            let store = open(&memory(), index).await;
            let mut session = store.session();
            session.put(b"key", b"value").await.expect("put");
            for (to, limit) in [(None, 10), (None, 0), (Some(&b""[..]), 10)] {
                let error = session.range(b"", to, limit).await.expect_err("there is no order");
                assert!(error.is_unordered(), "{error}");
                assert!(error.to_string().contains("--index chime"), "{error}");
            }
            assert_eq!(session.key_at(7).expect("a number of a slot"), None);
        }
    });
}

/// The page after the last key would begin where the range ends.
#[test]
fn a_page_that_ends_where_its_range_does_is_the_last() {
    run(async {
        let store = open(&memory(), IndexKind::Chime).await;
        let mut session = store.session();
        for key in [b"a", b"b"] {
            session.put(key, b"value").await.expect("put");
        }
        for (to, next) in [
            (&b"a\0"[..], None),
            (b"a\0\0", Some(b"a\0".to_vec())),
            (b"b", Some(b"a\0".to_vec())),
        ] {
            let page = session.range_keys(b"", Some(to), 1).await;
            assert_eq!(page.expect("it is in order"), (vec![b"a".to_vec()], next), "{to:?}");
        }
    });
}

#[test]
fn a_range_of_a_prefix_ends_behind_it() {
    assert_eq!(prefix_end(b"user:"), Some(b"user;".to_vec()));
    assert_eq!(prefix_end(b"a\xff\xff"), Some(b"b".to_vec()));
    assert_eq!(prefix_end(b"\xff"), None);
    assert_eq!(prefix_end(b""), None);
}

/// Clients of one process go on with each other's scans; sweeps, evictions and random keys use up no cursors of theirs.
#[test]
fn a_scan_goes_on_in_another_store_with_the_same_cursors() {
    run(async {
        let (segment, cursors) = (memory(), Arc::new(Cursors::after(1000)));
        let one = open(&segment, IndexKind::Chime)
            .await
            .with_cursors(Arc::clone(&cursors));
        let other = open(&segment, IndexKind::Chime).await.with_cursors(cursors);
        let stranger = open(&segment, IndexKind::Chime).await;
        let mut session = one.session();
        for number in 0..200_u8 {
            session.put(&[number], b"").await.expect("put");
        }
        let (mut seen, cursor) = session.scan_keys(0).await.expect("scan");
        assert_eq!(cursor, 1001);
        assert_eq!(
            other.session().key_at(cursor).expect("it is known").as_deref(),
            Some(&[seen.last().expect("some")[0], 0][..])
        );
        let error = stranger.session().scan_keys(cursor).await.expect_err("not known here");
        assert!(error.to_string().contains("invalid cursor 1001"), "{error}");
        let (rest, _) = other.session().scan_keys(cursor).await.expect("scan");
        seen.extend(rest);
        assert!(seen.iter().map(|key| key[0]).eq(0..seen.len() as u8));
        let random = session.random_cursor();
        session.random_keys(random).await.expect("some keys");
        let cursor = session.cursor_at(&[150]);
        assert_eq!(cursor, 1003, "scans have given out two before");
        let (tail, end) = other.session().scan_keys(cursor).await.expect("scan");
        assert!(tail.iter().map(|key| key[0]).eq(150..200) && end == 0);
        for store in [one, other, stranger] {
            store.close().await.expect("closed");
        }
    });
}

/// Two keys that begin alike need a layer. Whoever inserts the second may give up at any instant: then it is there or not, and
/// nothing else is.
#[test]
fn an_insert_that_gives_up_leaves_nothing_behind() {
    let config = StoreConfig {
        index: Some(IndexKind::Chime),
        ..StoreConfig::default()
    };
    let mut given_up = 0;
    for patience_ns in (1_000..40_000).step_by(250) {
        let sim = Sim::new(SimOptions::default());
        let _ = sim.add_memory_node(8 << 20);
        let [one, other] = [(); 2].map(|()| sim.endpoint(sim.add_compute_node()));
        given_up += sim.block_on(async move {
            let first = Store::open(one.clone(), config).await.expect("a store");
            let second = Store::open(other, config).await.expect("a store");
            let mut session = first.session();
            session.put(b"prefix--1", b"value").await.expect("put");
            let mut hasty = second.session();
            // So that it has memory at hand.
            hasty.put(b"warm", b"value").await.expect("put");
            let has_given_up = tokio::select! {
                biased;
                put = hasty.put(b"prefix--2", b"value") => put.map(|()| false).expect("put"),
                () = one.sleep(patience_ns) => true,
            };
            one.sleep(1_000_000).await;
            let (keys, end) = session.scan_keys(0).await.expect("a scan");
            assert_eq!(
                (session.count().await, end),
                (Ok(keys.len() as u64), 0),
                "{patience_ns} ns"
            );
            u64::from(has_given_up)
        });
    }
    assert!(given_up > 20, "{given_up}");
}
