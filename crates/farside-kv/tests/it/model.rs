//! The store against `BTreeMap`: sequences of operations on one session over mapped memory.
//!
//! The array has few slots, so that most keys share one and buckets grow and shrink all the time.

use std::collections::BTreeMap;

use farside_fabric::shm::{self, Segment};
use farside_fabric::{OpContext, VerbKind};
use farside_index::SearchMany;
use farside_kv::{Condition, Expiry, IndexKind, KvError, LeafOptions, RaceOptions, SetOptions, Store, StoreConfig};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample;

#[derive(Clone, Debug)]
enum Operation {
    Get(Vec<u8>),
    GetMany(Vec<Vec<u8>>),
    Set(Vec<u8>, Vec<u8>, Condition),
    PutMany(Vec<(Vec<u8>, Vec<u8>)>),
    Delete(Vec<u8>),
    DeleteMany(Vec<Vec<u8>>),
    Append(Vec<u8>, Vec<u8>),
    Count,
    Scan,
    Clear,
}

fn keys() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => (0..40_u8).prop_map(|number| vec![b'k', number]),
        1 => Just(Vec::new()),
        1 => vec(any::<u8>(), 0..300),
        // Keys that have their first bytes in common.
        2 => (0..20_usize, 0..3_u8).prop_map(|(bytes, last)| [vec![0; bytes], vec![last]].concat()),
        1 => (0..2_u8, 0..9_u8).prop_map(|(one, other)| format!("a/long/prefix/{one}/and/a/longer/one/{other}").into_bytes()),
    ]
}

fn values() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => vec(any::<u8>(), 0..40),
        2 => vec(any::<u8>(), 40..3000),
        1 => (0..200_000_usize, any::<u8>()).prop_map(|(bytes, byte)| vec![byte; bytes]),
    ]
}

fn conditions() -> impl Strategy<Value = Condition> {
    prop_oneof![3 => Just(Condition::Always), 1 => Just(Condition::IfAbsent), 1 => Just(Condition::IfPresent)]
}

fn operations() -> impl Strategy<Value = Operation> {
    prop_oneof![
        20 => keys().prop_map(Operation::Get),
        5 => vec(keys(), 0..40).prop_map(Operation::GetMany),
        20 => (keys(), values(), conditions()).prop_map(|(key, value, when)| Operation::Set(key, value, when)),
        5 => vec((keys(), values()), 0..40).prop_map(Operation::PutMany),
        10 => keys().prop_map(Operation::Delete),
        3 => vec(keys(), 0..40).prop_map(Operation::DeleteMany),
        5 => (keys(), vec(any::<u8>(), 0..20)).prop_map(|(key, tail)| Operation::Append(key, tail)),
        2 => Just(Operation::Count),
        2 => Just(Operation::Scan),
        1 => Just(Operation::Clear),
    ]
}

pub(crate) fn run<T>(body: impl Future<Output = T>) -> T {
    farside_fabric::host::on_this_thread(body).expect("an event loop")
}

/// Every index there is.
fn indexes() -> Vec<IndexKind> {
    IndexKind::ALL.map(|(index, ..)| index).to_vec()
}

async fn open(index: IndexKind, memory_bytes: u64, slots: u64) -> Store {
    let segment = Segment::anonymous(memory_bytes).expect("memory");
    let endpoint = shm::Fabric::new(vec![segment]).endpoint().expect("an endpoint");
    let config = StoreConfig {
        index: Some(index),
        slots: Some(slots),
        // As few slots make keys share one, so few make a table split.
        race: RaceOptions {
            items: 0,
            subtable_bytes: 768,
            bucket_slots: slots.min(15) as usize,
        },
        leaf: LeafOptions {
            span: 8 * slots.min(8) as usize,
            neighbourhood: 8,
        },
        ..StoreConfig::default()
    };
    Store::open(endpoint, config).await.expect("a store")
}

/// Runs a test on each index.
fn on_each(test: impl AsyncFn(IndexKind)) {
    for index in indexes() {
        run(test(index));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn store_is_a_map(index in sample::select(indexes()), slots in 1_u64..6, operations in vec(operations(), 1..150)) {
        run(async {
            let store = open(index, 64 << 20, slots).await;
            let mut session = store.session();
            let mut model = BTreeMap::<Vec<u8>, Vec<u8>>::new();
            for operation in operations {
                match operation {
                    Operation::Get(key) => {
                        let found = session.get(&key).await.expect("get").map(<[u8]>::to_vec);
                        assert_eq!(found.as_ref(), model.get(&key));
                    }
                    Operation::GetMany(keys) => {
                        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                        let mut values = session.get_many(&keys);
                        for key in &keys {
                            let found = values.next().await.expect("get").map(<[u8]>::to_vec);
                            assert_eq!(found.as_ref(), model.get(*key));
                        }
                    }
                    Operation::Set(key, value, condition) => {
                        let options = SetOptions { condition, returns_old: true, ..SetOptions::default() };
                        let outcome = session.set(&key, &value, options).await.expect("set");
                        assert_eq!(outcome.old.as_ref(), model.get(&key));
                        let holds = match condition {
                            Condition::Always => true,
                            Condition::IfAbsent => !model.contains_key(&key),
                            Condition::IfPresent => model.contains_key(&key),
                        };
                        assert_eq!(outcome.is_stored, holds);
                        if holds {
                            model.insert(key, value);
                        }
                    }
                    Operation::PutMany(items) => {
                        let pairs: Vec<(&[u8], &[u8])> = items.iter().map(|(key, value)| (&**key, &**value)).collect();
                        let mut stored = 0;
                        let count = |put: Result<(), KvError>| {
                            put.expect("put");
                            stored += 1;
                        };
                        session.put_many(&pairs, count).await;
                        assert_eq!(stored, items.len());
                        // One key may be there twice: the last counts.
                        model.extend(items);
                    }
                    Operation::DeleteMany(keys) => {
                        let slices: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                        let mut were_there = Vec::new();
                        session.delete_many(&slices, |deleted| were_there.push(deleted.expect("delete"))).await;
                        // One key may be there twice: the first removes it.
                        let expected: Vec<bool> = keys.iter().map(|key| model.remove(key).is_some()).collect();
                        assert_eq!(were_there, expected);
                    }
                    Operation::Delete(key) => {
                        let was_there = session.delete(&key).await.expect("delete");
                        assert_eq!(was_there, model.remove(&key).is_some());
                    }
                    Operation::Append(key, tail) => {
                        let appended = session.update(&key, |value| {
                            Ok::<_, ()>([value.unwrap_or_default(), &tail].concat())
                        });
                        appended.await.expect("append").expect("never refused");
                        model.entry(key).or_default().extend(tail);
                    }
                    Operation::Count => {
                        assert_eq!(session.count().await.expect("count"), model.len() as u64);
                    }
                    Operation::Scan => {
                        let (mut seen, mut cursor) = (BTreeMap::new(), 0);
                        loop {
                            let (found, next) = session.scan(cursor).await.expect("scan");
                            for (key, value) in found {
                                assert_eq!(seen.insert(key, value), None, "no key twice");
                            }
                            if next == 0 {
                                break;
                            }
                            cursor = next;
                        }
                        assert_eq!(seen, model);
                        let (mut seen, mut cursor) = (Vec::new(), 0);
                        loop {
                            let (found, next) = session.scan_keys(cursor).await.expect("scan");
                            seen.extend(found);
                            if next == 0 {
                                break;
                            }
                            cursor = next;
                        }
                        seen.sort();
                        assert!(seen.iter().eq(model.keys()));
                    }
                    Operation::Clear => {
                        assert_eq!(session.clear().await.expect("clear"), model.len() as u64);
                        model.clear();
                    }
                }
            }
            store.close().await.expect("close");
        });
    }
}

/// Of a pointer array only the words of the slots are read, with one doorbell; of a RACE table the main lines of
/// both buckets of each key, in place, or the first of them if a slot there may have it. Of the items the cache is told.
#[test]
fn approaching_keys_reads_their_slots_once() {
    on_each(async |index| {
        let mut session = open(index, 64 << 20, 1 << 10).await.session();
        let keys: [&[u8]; 3] = [b"one", b"two", b"absent"];
        for key in &keys[..2] {
            session.put(key, b"value").await.expect("put");
        }
        let before = session.store().endpoint().counters().snapshot();
        let mut cx = OpContext::new(session.store().endpoint().clone());
        drop(
            session
                .store()
                .index()
                .approach_each(&mut cx, &keys, &mut SearchMany::default()),
        );
        let counted = session.store().endpoint().counters().snapshot().since(&before);
        let reads = counted.verbs.of(VerbKind::Read);
        let expected = match index {
            IndexKind::PointerArray => (3, 1),
            // Which line has a key depends on the seed of the table.
            IndexKind::Race if (3..=6).contains(&reads) => (reads, reads),
            IndexKind::Race => (6, 6),
            // Nothing: it is a hint.
            _ => (0, 0),
        };
        assert_eq!((reads, counted.doorbells), expected);
        assert_eq!((counted.verbs.of(VerbKind::Write), counted.verbs.atomics()), (0, 0));
        assert_eq!(session.get(b"two").await, Ok(Some(&b"value"[..])));
    });
}

/// Enough keys for internal nodes, and leaves as published.
#[test]
fn thousands_of_keys_come_and_go() {
    const KEYS: u32 = 12_000;
    run(async {
        let indexes = IndexKind::ALL.into_iter().filter(|(index, ..)| index.is_ordered());
        for (index, ..) in indexes {
            let store = open(index, 64 << 20, 8).await;
            let mut session = store.session();
            let key = |number: u32| format!("key:{:05}", number * 7919 % KEYS).into_bytes();
            for number in 0..KEYS {
                session.put(&key(number), &number.to_le_bytes()).await.expect("put");
            }
            for number in 0..KEYS {
                let found = session.get(&key(number)).await.expect("get").map(<[u8]>::to_vec);
                assert_eq!(found, Some(number.to_le_bytes().to_vec()), "{number}");
            }
            for number in (0..KEYS).filter(|number| number % 3 > 0) {
                assert_eq!(session.delete(&key(number)).await, Ok(true), "{number}");
            }
            for number in 0..KEYS {
                let is_there = session.get(&key(number)).await.expect("get").is_some();
                assert_eq!(is_there, number % 3 == 0, "{number}");
            }
            assert_eq!(session.count().await, Ok(u64::from(KEYS / 3)));
            assert_eq!(session.clear().await, Ok(u64::from(KEYS / 3)));
            assert_eq!(session.count().await, Ok(0));
            drop(session);
            store.close().await.expect("close");
        }
    });
}

#[test]
fn expired_keys_are_absent() {
    on_each(async |index| {
        let store = open(index, 16 << 20, 1).await;
        let mut session = store.session();
        let past = SetOptions {
            expiry: Expiry::AtMs(1),
            ..SetOptions::default()
        };
        session.set(b"gone", b"x", past).await.expect("set");
        assert_eq!(session.get(b"gone").await.expect("get"), None);
        assert!(!session.delete(b"gone").await.expect("delete"));
        let future = SetOptions {
            expiry: Expiry::AtMs(u64::MAX),
            ..SetOptions::default()
        };
        session.set(b"there", b"x", future).await.expect("set");
        assert_eq!(session.expiry_ms(b"there").await.expect("expiry"), Some(u64::MAX));
        let keep = SetOptions {
            expiry: Expiry::Keep,
            ..SetOptions::default()
        };
        session.set(b"there", b"y", keep).await.expect("set");
        assert_eq!(session.expiry_ms(b"there").await.expect("expiry"), Some(u64::MAX));
        session.put(b"there", b"z").await.expect("put");
        assert_eq!(session.expiry_ms(b"there").await.expect("expiry"), Some(0));
    });
}

#[test]
fn expiry_changes_without_the_value() {
    on_each(async |index| {
        let store = open(index, 16 << 20, 1).await;
        let mut session = store.session();
        let to = |expiry: Expiry| move |value: &[u8], before_ms: u64| (expiry, (value.to_vec(), before_ms));
        assert_eq!(session.expire(b"a", to(Expiry::AtMs(1))).await.expect("expire"), None);
        session.put(b"a", b"x").await.expect("put");
        for (expiry, before_ms, after_ms) in [
            (Expiry::Keep, 0, Some(0)),
            (Expiry::AtMs(u64::MAX), 0, Some(u64::MAX)),
            (Expiry::Keep, u64::MAX, Some(u64::MAX)),
            (Expiry::Never, u64::MAX, Some(0)),
            // The past: the key goes, the first millisecond of 1970 included, which is no "never".
            (Expiry::AtMs(0), 0, None),
        ] {
            let answer = session.expire(b"a", to(expiry)).await.expect("expire");
            assert_eq!(answer, Some((b"x".to_vec(), before_ms)), "{expiry:?}");
            assert_eq!(session.expiry_ms(b"a").await.expect("expiry"), after_ms, "{expiry:?}");
        }
        assert_eq!(session.count().await.expect("count"), 0);
    });
}

#[test]
fn a_taken_key_is_gone() {
    on_each(async |index| {
        let store = open(index, 16 << 20, 1).await;
        let mut session = store.session();
        session.put(b"a", b"x").await.expect("put");
        assert_eq!(session.take(b"a").await.expect("take"), Some(b"x".to_vec()));
        assert_eq!(session.take(b"a").await.expect("take"), None);
        assert_eq!(session.count().await.expect("count"), 0);
    });
}

#[test]
fn full_memory_is_an_error_and_overwrites_go_on() {
    on_each(async |index| {
        let store = open(index, 16 << 20, 4096).await;
        let mut session = store.session();
        let value = [7; 1000];
        let mut stored = 0_u32;
        let error = loop {
            match session.put(&stored.to_le_bytes(), &value).await {
                Ok(()) => stored += 1,
                Err(error) => break error,
            }
        };
        assert!(error.is_out_of_memory(), "{error}");
        assert!(
            stored > 5000,
            "most of the memory can be used, but only {stored} items fit"
        );
        for key in 0..stored {
            let value = [8; 1000];
            session
                .put(&key.to_le_bytes(), &value)
                .await
                .expect("overwriting in full memory");
        }
        for key in (0..stored).step_by(2) {
            assert!(
                session
                    .delete(&key.to_le_bytes())
                    .await
                    .expect("deleting in full memory")
            );
        }
        for key in (0..stored).step_by(2) {
            session
                .put(&key.to_le_bytes(), &value)
                .await
                .expect("the deleted memory is there again");
        }
        assert_eq!(session.count().await.expect("count"), u64::from(stored));
        assert_eq!(
            session.get(&1_u32.to_le_bytes()).await.expect("get"),
            Some(&[8; 1000][..])
        );
    });
}

/// An item and the bucket of its slot may be of one class: an operation that found one block left took
/// it for the item, missed one for the bucket, gave the first back, was told that there was one, and so
/// on for ever.
#[test]
fn item_and_bucket_of_one_class_get_their_blocks() {
    run(async {
        let segment = Segment::anonymous(16 << 20).expect("memory");
        let endpoint = shm::Fabric::new(vec![segment]).endpoint().expect("an endpoint");
        let mut config = StoreConfig {
            index: Some(IndexKind::PointerArray),
            slots: Some(1),
            ..StoreConfig::default()
        };
        config.format.chunk_bytes = Some(4096);
        let store = Store::open(endpoint, config).await.expect("a store");
        let mut session = store.session();
        // The first key takes one block, each further operation two: the chunk of 64 ends at an odd one.
        for turn in 0..2000_u32 {
            session.put(&[turn as u8 % 2], &turn.to_le_bytes()).await.expect("put");
        }
        assert_eq!(session.count().await.expect("count"), 2);
    });
}

#[test]
fn largest_key_and_value_fit() {
    on_each(async |index| {
        let store = open(index, 128 << 20, 16).await;
        let mut session = store.session();
        let (key, value) = (vec![1; farside_kv::KEY_BYTES_MAX], vec![2; farside_kv::VALUE_BYTES_MAX]);
        for _ in 0..8 {
            session.put(&key, &value).await.expect("put");
        }
        assert_eq!(session.get(&key).await.expect("get"), Some(&value[..]));
        let mut cx = OpContext::new(store.endpoint().clone());
        let geometry = store.pool().geometry().to_vec();
        let mut blocks = Vec::new();
        let visit = &mut |block| blocks.push(block);
        farside_index::walk(&mut cx, &geometry, Some(store.pool()), visit)
            .await
            .expect("a walk");
        let account = farside_pool::account(&mut cx, &geometry, &blocks)
            .await
            .expect("an account");
        assert!(
            account.bytes_reachable >= (key.len() + value.len()) as u64,
            "{account:?}"
        );
        let longer_key = vec![1; farside_kv::KEY_BYTES_MAX + 1];
        assert!(session.put(&longer_key, b"").await.is_err());
        let longer_value = vec![1; farside_kv::VALUE_BYTES_MAX + 1];
        assert!(session.put(b"key", &longer_value).await.is_err());
    });
}
