//! Over mapped memory nothing waits: operations are plain calls, and what is approached in turn is found where it was left.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use farside_fabric::shm::{self, Segment};
use farside_fabric::sim::{Sim, SimOptions};
use farside_fabric::{FabricError, NodeId, OpContext, Pipeline};
use farside_index::{Change, Decision, Tag};
use farside_kv::{
    EvictionPolicy, Expiry, ExpiryMark, IndexKind, KeyUse, LocksError, Quota, RaceOptions, Session, SetOptions, Store,
    StoreConfig, SweepPace, prefix_end, stack,
};
use farside_lock::LockError;
use farside_pool::PoolError;

use crate::model::run;

const KEYS: u32 = 200;

async fn open(index: IndexKind) -> Store {
    let segment = Segment::anonymous(32 << 20).expect("memory");
    let endpoint = shm::Fabric::new(vec![segment]).endpoint().expect("an endpoint");
    let config = StoreConfig {
        index: Some(index),
        slots: Some(1024),
        race: RaceOptions {
            bucket_slots: 2,
            ..RaceOptions::default()
        },
        ..StoreConfig::default()
    };
    Store::open(endpoint, config).await.expect("a store")
}

/// The same with some keys.
async fn filled(index: IndexKind) -> Store {
    let store = open(index).await;
    let mut session = store.session();
    for number in 0..KEYS {
        session.put(&number.to_le_bytes(), b"value").await.expect("room");
    }
    drop(session);
    store
}

#[test]
fn operations_are_plain_calls() {
    for (kind, name, _) in IndexKind::ALL {
        run(async {
            let store = filled(kind).await;
            let (index, mut cx) = (store.index(), OpContext::new(store.endpoint().clone()));
            let mut plain = [0; 2];
            for number in 0..KEYS {
                let key = number.to_le_bytes();
                let found = index.search_now(&mut cx, &key).expect("a plain call");
                assert!(found.is_some(), "{name}: key {number}");
                let mut approach = index.approach_key();
                while index.approach_next(store.endpoint(), &key, &mut approach) {}
                plain[0] += u32::from(index.approached(&mut cx, &key, &approach).is_some());
                let mut decide = |_: Option<farside_index::Item<'_>>| Decision::Put {
                    value: Cow::Borrowed(b"other"),
                    expiry_ms: 0,
                    tag: Tag::String,
                    regardless: true,
                };
                match index.change_now(&mut cx, &key, Some(&approach), None, &mut decide) {
                    Some(changed) => {
                        assert_eq!(changed.expect("room"), Change::Updated);
                        plain[1] += 1;
                    }
                    None => assert!(number > 0, "{name}: the first"),
                }
            }
            // Some wait for memory, or for the end of a split.
            assert!(plain[1] > KEYS / 2, "{name}: {plain:?} changes in a plain call");
            let expected = if kind == IndexKind::Race { KEYS / 2 } else { 0 };
            assert!(
                plain[0] >= expected,
                "{name}: {plain:?} found where they were approached"
            );
            assert_eq!(index.search_now(&mut cx, b"absent"), Some(None));
            store.close().await.expect("it leaves");
        });
    }
}

/// A client of a radix tree remembers where nodes have their bytes, while it and another one make them larger and let them go.
#[test]
fn nodes_of_every_size_are_found_while_they_change() {
    // A byte with 256 values, one with sixteen; half of the keys have two bytes more.
    grow_and_shrink(|number| {
        let bytes = number.rotate_left(4).to_be_bytes();
        match number % 2 {
            0 => bytes.to_vec(),
            _ => [bytes, [7, number as u8]].concat(),
        }
    });
    // Small nodes, below more bytes than they repeat.
    grow_and_shrink(|number| format!("session:{number:04}").into_bytes());
}

fn grow_and_shrink(key: fn(u16) -> Vec<u8>) {
    const KEYS: u16 = 1 << 12;
    run(async {
        let segment = Segment::anonymous(32 << 20).expect("memory");
        let open = async || {
            let endpoint = shm::Fabric::new(vec![segment.clone()]).endpoint().expect("an endpoint");
            let config = StoreConfig {
                index: Some(IndexKind::Smart),
                ..StoreConfig::default()
            };
            Store::open(endpoint, config).await.expect("a store")
        };
        let (writer, reader) = (open().await, open().await);
        let (mut changes, mut reads) = (writer.session(), reader.session());
        let check = async |reads: &mut Session, is_there: &dyn Fn(u16) -> bool| {
            let keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
            for (part, keys) in (0..).zip(keys.chunks(16)) {
                let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                let mut values = reads.get_many(&keys);
                for number in part * 16..(part + 1) * 16 {
                    let value = values.next().await.expect("it is reached");
                    let expected = is_there(number).then(|| number.to_le_bytes());
                    assert_eq!(value, expected.as_ref().map(|value| &value[..]), "{number} of many");
                }
            }
            for number in (0..KEYS).step_by(7) {
                let value = reads.get(&key(number)).await.expect("it is reached");
                assert_eq!(value.is_some(), is_there(number), "{number}");
            }
            let mut firsts = BTreeSet::new();
            for _ in 0..100 {
                let (some, _) = reads.random_keys(reads.random_cursor()).await.expect("it is reached");
                assert!(some.iter().all(|found| keys.contains(found)));
                firsts.extend(some.into_iter().next());
            }
            let count = (0..KEYS).filter(|&number| is_there(number)).count();
            assert!(
                firsts.len() >= count.min(1000) / 50,
                "random keys begin at {firsts:?}, of {count}"
            );
        };
        for number in 0..KEYS {
            // Each knows of some entries only.
            let session = if number % 48 < 16 { &mut reads } else { &mut changes };
            let stored = session.put(&key(number), &number.to_le_bytes()).await;
            stored.expect("room");
            if number.is_power_of_two() || number == KEYS - 1 {
                check(&mut reads, &|other| other <= number).await;
                check(&mut changes, &|other| other <= number).await;
            }
        }
        for gone in 1..=KEYS {
            let number = gone.wrapping_mul(1_025) % KEYS;
            assert!(changes.delete(&key(number)).await.expect("it is reached"));
            if gone.is_power_of_two() {
                let left: Vec<bool> = {
                    let mut left = vec![true; KEYS.into()];
                    (1..=gone).for_each(|gone| left[usize::from(gone.wrapping_mul(1_025) % KEYS)] = false);
                    left
                };
                check(&mut reads, &|other| left[usize::from(other)]).await;
            }
        }
        drop((changes, reads));
        writer.close().await.expect("it leaves");
        reader.close().await.expect("it leaves");
    });
}

/// What a plain call has changed counts as used, and what it has removed is forgotten.
#[test]
fn plain_calls_are_noted() {
    for (kind, name, _) in IndexKind::ALL {
        run(async {
            let quota = Arc::new(Quota::default());
            quota.set_policy(EvictionPolicy::AllKeysLfu);
            quota.set_bytes_max(16 << 20);
            let store = open(kind)
                .await
                .with_quota(quota)
                .with_expiry_mark(ExpiryMark::default());
            let mut session = store.pipelined_session(&Pipeline::default());
            let count_of = |key: &[u8]| match store.key_use(key) {
                Some(KeyUse::Frequency(count)) => count,
                other => panic!("{name}: {other:?}"),
            };
            session.put(b"key", b"value").await.expect("room");
            let first = count_of(b"key");
            assert!(first > 0, "{name}");
            assert_eq!(session.delete(b"key").await, Ok(true));
            assert_eq!(count_of(b"key"), 0, "{name}: what is gone was not used");
            drop(session);
            store.close().await.expect("it leaves");
        });
    }
}

/// A resting sweeper looks at a mark, which is set when something is stored that expires, in a plain call as well.
#[test]
fn what_expires_in_a_plain_call_wakes_the_sweeper() {
    run(async {
        let store = open(IndexKind::PointerArray)
            .await
            .with_expiry_mark(ExpiryMark::default());
        let mut session = store.pipelined_session(&Pipeline::default());
        let expires = SetOptions {
            expiry: Expiry::AtMs(1),
            ..SetOptions::default()
        };
        // It sweeps at once for the first time, and then when the mark is set.
        let pace = SweepPace {
            step_pages: 64,
            step_ns: 1_000_000,
            pause_ns: 1_000_000,
            busy_pause_ns: 1_000_000,
            rest_ns: 1 << 60,
        };
        session.set(b"short-lived", b"value", expires).await.expect("room");
        let removed = Rc::new(Cell::new(0));
        let count = Rc::clone(&removed);
        let sweeper = store.clone().sweep(pace, move |gone| count.set(count.get() + gone));
        store.endpoint().spawn(sweeper);
        let wait = async |expected: u64| {
            while removed.get() < expected {
                store.endpoint().sleep(1_000_000).await;
            }
        };
        wait(1).await;
        session.set(b"short-lived", b"value", expires).await.expect("room");
        wait(2).await;
        assert_eq!(removed.get(), 2);
        drop(session);
        store.close().await.expect("it leaves");
    });
}

/// Whatever number a user makes up: a page, or an error, and an end.
#[test]
fn cursors_that_nobody_has_given_out_do_no_harm() {
    for (kind, name, _) in IndexKind::ALL {
        run(async {
            let store = filled(kind).await;
            let mut session = store.session();
            for bit in 0..64 {
                for cursor in [1_u64 << bit, u64::MAX << bit, u64::MAX >> bit, (1 << bit) | 1] {
                    let mut next = cursor;
                    let mut pages = 0;
                    while next != 0 && pages < 20_000 {
                        next = match session.scan_keys(next).await {
                            Ok((keys, next)) => {
                                assert!(keys.len() <= KEYS as usize);
                                next
                            }
                            Err(_) => 0,
                        };
                        pages += 1;
                    }
                    assert!(pages < 20_000, "{name}: from {cursor:#x} on there is no end");
                    let _ = session.random_keys(cursor).await;
                }
            }
            assert_eq!(session.count().await, Ok(KEYS.into()));
        });
    }
}

#[test]
fn the_end_of_a_prefix_is_the_next_string_that_does_not_begin_so() {
    let ends: [(&[u8], Option<&[u8]>); 7] = [
        (b"", None),
        (b"a", Some(b"b")),
        (b"\xfe", Some(b"\xff")),
        (b"\xff", None),
        (b"a\xff\xff", Some(b"b")),
        (b"a\xfe\xff", Some(b"a\xff")),
        (b"\xff\x00", Some(b"\xff\x01")),
    ];
    for (prefix, end) in ends {
        assert_eq!(prefix_end(prefix).as_deref(), end, "{prefix:?}");
    }
}

#[test]
fn who_is_cut_off_from_its_locks_is_told() {
    let node = NodeId::new(0);
    let locks = [FabricError::Fenced { node }, FabricError::NodeGone { node }];
    for source in locks {
        let lock = LocksError::Lock {
            name: "it".to_owned(),
            source: LockError::Fabric(source),
        };
        assert!(lock.is_cut_off());
        assert!(LocksError::Table(PoolError::Fabric(source)).is_cut_off());
    }
    assert!(LocksError::Ended { name: "it".to_owned() }.is_cut_off());
    let others = [
        LocksError::NoTable,
        LocksError::lost(b"it"),
        LocksError::Table(PoolError::Fabric(FabricError::DeadlineExceeded { node })),
        LocksError::Lock {
            name: "it".to_owned(),
            source: LockError::NoRoster,
        },
    ];
    assert!(others.iter().all(|error| !error.is_cut_off()));
}

#[test]
fn a_holder_says_since_when() {
    let holder = farside_kv::locks::Holder {
        owner: "somebody".to_owned(),
        since_ms: 1_500,
        mode: farside_lock::Mode::Exclusive,
        in_queue: 1,
    };
    let since = holder.since().duration_since(SystemTime::UNIX_EPOCH);
    assert_eq!(since.expect("later"), Duration::from_millis(1_500));
}

#[test]
fn operations_on_mapped_memory_have_no_timeout() {
    let segment = Segment::anonymous(32 << 20).expect("memory");
    let mapped = shm::Fabric::new(vec![segment]).endpoint().expect("an endpoint");
    assert_eq!(stack::timeout_ns(&mapped), None);
    let sim = Sim::new(SimOptions::default());
    let _ = sim.add_memory_node(1 << 20);
    let remote = sim.endpoint(sim.add_compute_node());
    assert!(stack::timeout_ns(&remote).is_some());
}

#[test]
fn a_session_says_how_large_its_buffers_are() {
    run(async {
        let store = open(IndexKind::Race).await;
        let mut session = store.session();
        assert_eq!(session.buffer_bytes(), session.context().buffer().len());
        let large = vec![1; 300_000];
        session.put(b"large", &large).await.expect("room");
        assert_eq!(session.get(b"large").await.expect("get"), Some(&large[..]));
        assert_eq!(session.buffer_bytes(), session.context().buffer().len());
        assert!(session.buffer_bytes() > large.len());
    });
}

#[test]
fn a_buffer_for_large_values_is_kept_while_they_are_read() {
    run(async {
        let store = open(IndexKind::Race).await;
        let mut session = store.session();
        // It stands behind a head and its key.
        let large = vec![1; 1 << 20];
        session.put(b"large", &large).await.expect("room");
        session.put(b"small", b"1").await.expect("room");
        let begun = session.buffer_bytes();
        for smaller in [1, 63] {
            assert_eq!(session.get(b"large").await.expect("get"), Some(&large[..]));
            for _ in 0..smaller {
                assert!(session.buffer_bytes() > large.len());
                assert_eq!(session.get(b"small").await.expect("get"), Some(&b"1"[..]));
            }
        }
        assert!(session.buffer_bytes() > large.len());
        session.get(b"small").await.expect("get");
        assert_eq!(session.buffer_bytes(), begun);
    });
}

#[test]
fn transactions_see_and_change_what_is_mapped() {
    for (index, ..) in IndexKind::ALL {
        run(async move {
            let store = open(index).await;
            let mut session = store.session();
            // Looked for one by one, together, and in several turns; every third is not there.
            for count in [1_u8, 3, 40] {
                let names: Vec<[u8; 2]> = (0..count).map(|number| [count, number]).collect();
                let keys: Vec<&[u8]> = names.iter().map(<[u8; 2]>::as_slice).collect();
                for key in keys.iter().filter(|key| key[1] % 3 > 0) {
                    session.put(key, &[key[1]]).await.expect("room");
                }
                for _ in 0..2 {
                    let swapped = session.transaction_on(&keys, |all| {
                        for key in &keys {
                            let was = all.get(key)?.map(<[u8]>::to_vec);
                            match was {
                                Some(value) => {
                                    assert_eq!(value, [key[1]], "{index:?}");
                                    assert!(all.delete(key)?);
                                }
                                None => all.put(key, &[key[1]])?,
                            }
                        }
                        Ok(())
                    });
                    swapped.await.expect("nobody else is there");
                }
                for key in &keys {
                    let expected = (key[1] % 3 > 0).then_some([key[1]]);
                    let found = session.get(key).await.expect("get");
                    assert_eq!(found, expected.as_ref().map(<[u8; 1]>::as_slice), "{index:?}");
                }
            }
        });
    }
}

#[test]
fn values_are_read_into_memory_of_the_caller() {
    for (index, name, _) in IndexKind::ALL {
        run(async {
            let store = open(index).await;
            let mut session = store.session();
            for bytes in [0, 1, 100, 4095, 4096, 4097, 100_000] {
                let value: Vec<u8> = (0..bytes).map(|at| at as u8 ^ 0x5a).collect();
                session.put(b"key", &value).await.expect("room");
                // Room for less, for as much, and for more.
                for room in [0, 4096, bytes, bytes + 1, bytes + 5000] {
                    let mut target = vec![7; room];
                    let read = session.get_into(b"key", &mut target).await.expect("get");
                    assert_eq!(read, Some(bytes), "{name}");
                    let (read, rest) = target.split_at(if bytes <= room { bytes } else { 0 });
                    assert!(
                        read == &value[..read.len()] && rest.iter().all(|&byte| byte == 7),
                        "{name}"
                    );
                }
                let mut target = [7; 5000];
                assert_eq!(
                    session.get_into(b"none", &mut target).await.expect("get"),
                    None,
                    "{name}"
                );
                assert_eq!(target, [7; 5000], "{name}");
            }
            // The clock of the machine has passed it.
            let expired = SetOptions {
                expiry: Expiry::AtMs(1),
                ..SetOptions::default()
            };
            session.set(b"key", &[1; 5000], expired).await.expect("room");
            assert_eq!(
                session.get_into(b"key", &mut [0; 5000]).await.expect("get"),
                None,
                "{name}"
            );
        });
    }
}

#[test]
fn a_long_value_is_copied_once() {
    run(async {
        let store = open(IndexKind::Race).await;
        let mut session = store.session();
        let large = vec![1; 1 << 20];
        session.put(b"long", &large).await.expect("room");
        let begun = session.buffer_bytes();
        let mut target = vec![0; 1 << 20];
        assert_eq!(
            session.get_into(b"long", &mut target).await.expect("get"),
            Some(1 << 20)
        );
        assert_eq!(session.buffer_bytes(), begun, "it was never in the session's buffer");
        // One too short for the value, and long enough to be read apart, takes no copy at all.
        assert_eq!(
            session.get_into(b"long", &mut target[..4096]).await.expect("get"),
            Some(1 << 20)
        );
        assert_eq!(session.buffer_bytes(), begun);
        assert_eq!(
            session.get_into(b"long", &mut target[..4095]).await.expect("get"),
            Some(1 << 20)
        );
        assert!(session.buffer_bytes() > begun);
        // As by any other operation, the buffer is given back after a while.
        for _ in 0..64 {
            assert!(session.buffer_bytes() > begun);
            session.get_into(b"long", &mut target).await.expect("get");
        }
        assert_eq!(session.buffer_bytes(), begun);
    });
}
