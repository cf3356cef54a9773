//! What each operation costs, in verbs and round trips: equalities, on the simulated fabric.

use core::pin::Pin;

use farside_fabric::Endpoint;
use farside_fabric::sim::{Sim, SimOptions};
use farside_fabric::{CounterSnapshot, VerbKind};
use farside_kv::{EvictionPolicy, IndexKind, KEYS_AT_ONCE, Session, SetOptions, Store, StoreConfig};

/// READs, WRITEs, atomics, and round trips: nothing else is posted meanwhile.
type Cost = [u64; 4];

fn cost(counted: &CounterSnapshot) -> Cost {
    let verbs = &counted.verbs;
    [
        verbs.of(VerbKind::Read),
        verbs.of(VerbKind::Write),
        verbs.atomics(),
        counted.doorbells,
    ]
}

/// A store whose keys have a slot each, and whose housekeeping sleeps.
fn with_session<T>(index: IndexKind, test: impl AsyncFnOnce(Endpoint, Session) -> T) -> T
where
    T: 'static,
{
    let sim = Sim::new(SimOptions::default());
    let _ = sim.add_memory_node(64 << 20);
    let endpoint = sim.endpoint(sim.add_compute_node());
    sim.block_on(async move {
        let mut config = StoreConfig {
            index: Some(index),
            slots: Some(1 << 20),
            ..StoreConfig::default()
        };
        (config.pool.tick_ns, config.pool.lease_ns) = (1 << 40, 1 << 50);
        let store = Store::open(endpoint.clone(), config).await.expect("a store");
        let mut session = store.session();
        // So that this client has blocks at hand.
        session.put(b"first", b"value").await.expect("put");
        test(endpoint, session).await
    })
}

/// Boxed: the operations of a store are large futures.
fn cost_of<T>(endpoint: &Endpoint, operation: impl Future<Output = T>) -> Pin<Box<impl Future<Output = Cost>>> {
    Box::pin(async move {
        let before = endpoint.counters().snapshot();
        operation.await;
        cost(&endpoint.counters().snapshot().since(&before))
    })
}

#[test]
fn one_key_costs_what_the_papers_say() {
    with_session(IndexKind::PointerArray, async |endpoint, mut session| {
        let e = &endpoint;
        assert_eq!(cost_of(e, session.get(b"absent")).await, [1, 0, 0, 1]);
        assert_eq!(cost_of(e, session.put(b"key", b"1")).await, [1, 1, 1, 3], "insert");
        assert_eq!(cost_of(e, session.put(b"key", b"2")).await, [2, 1, 1, 4], "update");
        assert_eq!(cost_of(e, session.get(b"key")).await, [2, 0, 0, 2]);
        assert_eq!(cost_of(e, session.delete(b"key")).await, [2, 0, 1, 3]);
        assert_eq!(
            cost_of(e, session.delete(b"key")).await,
            [1, 0, 0, 1],
            "what is not there"
        );
    });
}

#[test]
fn many_keys_take_as_many_round_trips_as_one() {
    with_session(IndexKind::PointerArray, async |endpoint, mut session| {
        let numbers: Vec<[u8; 4]> = (0..40_u32).map(u32::to_le_bytes).collect();
        for number in &numbers {
            session.put(number, number).await.expect("put");
        }
        let keys: Vec<&[u8]> = numbers.iter().map(<[u8; 4]>::as_slice).collect();
        let read = async |session: &mut Session, keys: &[&[u8]]| {
            let mut values = session.get_many(keys);
            for key in keys {
                assert_eq!(values.next().await, Ok(Some(*key)));
            }
        };
        assert_eq!(cost_of(&endpoint, read(&mut session, &keys[..16])).await, [32, 0, 0, 2]);
        assert_eq!(
            cost_of(&endpoint, read(&mut session, &keys)).await,
            [80, 0, 0, 6],
            "three groups"
        );
        let absent: Vec<[u8; 1]> = (0..16).map(|number| [number]).collect();
        let absent: Vec<&[u8]> = absent.iter().map(<[u8; 1]>::as_slice).collect();
        let look = async |session: &mut Session| {
            let mut values = session.get_many(&absent);
            for _ in &absent {
                assert_eq!(values.next().await, Ok(None));
            }
        };
        assert_eq!(cost_of(&endpoint, look(&mut session)).await, [16, 0, 0, 1]);
    });
}

/// Changes of many keys cost the same as one by one, and are in flight together.
#[test]
fn many_keys_are_changed_together() {
    for (index, name, _) in IndexKind::ALL {
        with_session(index, async |endpoint, mut session| {
            let keys: Vec<String> = (0..KEYS_AT_ONCE).map(|number| format!("user:{number}")).collect();
            let keys: Vec<&[u8]> = keys.iter().map(String::as_bytes).collect();
            let items: Vec<(&[u8], &[u8])> = keys.iter().map(|&key| (key, b"value".as_slice())).collect();
            let mut one_by_one = [[0; 4]; 2];
            let mut took_ns = [0; 4];
            // After the first round the client has blocks at hand, and remembers where leaves are.
            for _ in 0..2 {
                session.put_many(&items, |stored| stored.expect("put")).await;
                for key in &keys {
                    session.get(key).await.expect("get");
                }
                let started_ns = endpoint.now_ns();
                one_by_one = [[0; 4]; 2];
                for &(key, value) in &items {
                    let one = cost_of(&endpoint, session.put(key, value)).await;
                    (0..4).for_each(|which| one_by_one[0][which] += one[which]);
                }
                took_ns[0] = endpoint.now_ns() - started_ns;
                for &(key, _) in &items {
                    let one = cost_of(&endpoint, session.delete(key)).await;
                    (0..4).for_each(|which| one_by_one[1][which] += one[which]);
                }
                took_ns[1] = endpoint.now_ns() - started_ns - took_ns[0];
            }
            session.put_many(&items, |stored| stored.expect("put")).await;
            for key in &keys {
                session.get(key).await.expect("get");
            }
            let started_ns = endpoint.now_ns();
            let put = session.put_many(&items, |stored| stored.expect("put"));
            assert_eq!(cost_of(&endpoint, put).await, one_by_one[0], "{name}");
            took_ns[2] = endpoint.now_ns() - started_ns;
            let mut were_there = Vec::new();
            let delete = session.delete_many(&keys, |deleted| were_there.push(deleted.expect("delete")));
            let deletes = cost_of(&endpoint, delete).await;
            took_ns[3] = endpoint.now_ns() - started_ns - took_ns[2];
            assert_eq!(were_there, [true; KEYS_AT_ONCE], "{name}");
            assert!(took_ns[2] * 4 < took_ns[0], "{name}: {took_ns:?}");
            if matches!(index, IndexKind::PointerArray | IndexKind::Race | IndexKind::Marlin) {
                // Nothing is locked, and no node becomes smaller.
                assert_eq!(deletes, one_by_one[1], "{name}");
                assert!(took_ns[3] * 4 < took_ns[1], "{name}: {took_ns:?}");
            }
            // Those that lock one leaf do not wait for each other: that takes several times as long.
            assert!(took_ns[3] * 3 < took_ns[1] * 4, "{name}: {took_ns:?}");
            let mut values = session.get_many(&keys);
            for _ in &keys {
                assert_eq!(values.next().await, Ok(None), "{name}");
            }
        });
    }
}

#[test]
fn a_long_value_costs_one_read_more() {
    with_session(IndexKind::PointerArray, async |endpoint, mut session| {
        let value = vec![7; 100_000];
        session.put(b"key", &value).await.expect("put");
        assert_eq!(cost_of(&endpoint, session.get(b"key")).await, [3, 0, 0, 3]);
    });
}

/// Those of one are two, or one more for each layer that its client does not remember the way to.
#[test]
fn keys_without_values_read_no_long_value() {
    for index in [IndexKind::Chime, IndexKind::Race] {
        with_session(index, async |endpoint, mut session| {
            session.put(b"key", &vec![7; 100_000]).await.expect("put");
            let cursor = session.cursor_at(b"key");
            let [reads, _, _, round_trips] = cost_of(&endpoint, session.scan_keys(cursor)).await;
            let all = cost_of(&endpoint, session.scan(cursor)).await;
            // Its beginning once more, where there is room for the rest; and the rest.
            assert_eq!(all, [reads + 2, 0, 0, round_trips + 2]);
        });
    }
}

/// Whoever comes or goes locks a leaf of Sherman, and claims an entry of Marlin: that saves a round trip of four, and two of six.
#[test]
fn keys_that_come_and_go_lock_a_leaf_or_claim_an_entry() {
    let costs = |index| {
        with_session(index, async |endpoint, mut session| {
            let e = &endpoint;
            for number in 0..200 {
                session
                    .put(format!("{number}").as_bytes(), b"value")
                    .await
                    .expect("put");
            }
            // What was split meanwhile is remembered then.
            let mut costs = Vec::new();
            for number in 1000..1020 {
                let key = format!("{number}");
                session.get(key.as_bytes()).await.expect("get");
                costs.push([
                    cost_of(e, session.put(key.as_bytes(), b"1")).await,
                    cost_of(e, session.get(key.as_bytes())).await,
                    cost_of(e, session.put(key.as_bytes(), b"2")).await,
                    cost_of(e, session.delete(key.as_bytes())).await,
                ]);
            }
            costs
        })
    };
    // The item is written beside another verb, or beside its own look-up.
    let same = [[2, 0, 0, 2], [2, 1, 1, 3]];
    let sherman = [[2, 4, 1, 4], same[0], same[1], [3, 2, 2, 6]];
    let marlin = [[2, 3, 1, 3], same[0], same[1], [3, 0, 2, 4]];
    assert_eq!(costs(IndexKind::Sherman), [sherman; 20]);
    assert_eq!(costs(IndexKind::Marlin), [marlin; 20]);
}

#[test]
fn many_keys_of_a_tree_take_as_many_round_trips_as_one() {
    for index in [IndexKind::Chime, IndexKind::Sherman] {
        with_session(index, async |endpoint, mut session| {
            let names: Vec<String> = (0..200)
                .map(|number| match number % 4 {
                    0 => format!("{number}"),
                    _ => format!("user:name:{number}"),
                })
                .collect();
            for name in &names {
                session.put(name.as_bytes(), name.as_bytes()).await.expect("put");
            }
            let names: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
            let keys = &names[100..100 + KEYS_AT_ONCE];
            let mut one_by_one = [0; 4];
            for key in keys {
                let one = cost_of(&endpoint, session.get(key)).await;
                assert_eq!(one[3], 2);
                (0..4).for_each(|which| one_by_one[which] += one[which]);
            }
            let read = async |session: &mut Session| {
                let mut values = session.get_many(keys);
                for key in keys {
                    assert_eq!(values.next().await, Ok(Some(*key)));
                }
            };
            let together = cost_of(&endpoint, read(&mut session)).await;
            assert_eq!(together[..3], one_by_one[..3]);
            assert_eq!(together[3], 2);
            let absent: Vec<String> = (0..KEYS_AT_ONCE).map(|number| format!("no {number}")).collect();
            let absent: Vec<&[u8]> = absent.iter().map(String::as_bytes).collect();
            let look = async |session: &mut Session| {
                let mut values = session.get_many(&absent);
                for _ in &absent {
                    assert_eq!(values.next().await, Ok(None));
                }
            };
            let round_trips = cost_of(&endpoint, look(&mut session)).await[3];
            assert_eq!(round_trips, 1);
            // Another client knows no layers.
            let mut config = StoreConfig::default();
            (config.pool.tick_ns, config.pool.lease_ns) = (1 << 40, 1 << 50);
            let other = Store::open(endpoint.clone(), config).await.expect("a store");
            let mut other = other.session();
            for key in names.iter().step_by(4) {
                assert_eq!(
                    other.get(key).await,
                    Ok(Some(*key)),
                    "parents are remembered from here on"
                );
            }
            let round_trips = cost_of(&endpoint, read(&mut other)).await[3];
            assert!((3..=6).contains(&round_trips), "{round_trips}");
            assert_eq!(cost_of(&endpoint, read(&mut other)).await, together);
        });
    }
}

/// RACE, section 3: a SEARCH takes two round trips, everything else three. Two READs for the buckets,
/// and one for each item whose fingerprint fits, which is one but for chance.
#[test]
fn a_key_of_a_tree_costs_what_its_module_says() {
    with_session(IndexKind::Chime, async |endpoint, mut session| {
        let e = &endpoint;
        assert_eq!(cost_of(e, session.get(b"nothing")).await, [1, 0, 0, 1]);
        // The neighbourhood; the lock; the neighbourhood again, and the item; key and pointer, what is known of them, the lock.
        assert_eq!(cost_of(e, session.put(b"one", b"1")).await, [2, 4, 1, 4], "insert");
        assert_eq!(cost_of(e, session.get(b"one")).await, [2, 0, 0, 2], "search");
        // The neighbourhood; the old item, and the new one; the pointer. No lock.
        assert_eq!(cost_of(e, session.put(b"one", b"2")).await, [2, 1, 1, 3], "update");
        // What is stored decides.
        let twice = |value: Option<&[u8]>| Ok::<_, ()>(value.unwrap_or_default().repeat(2));
        assert_eq!(cost_of(e, session.update(b"one", twice)).await, [2, 1, 1, 4]);
        // What is long is written before: nobody waits for the lock meanwhile, and nothing is written in vain.
        let long = [7; 5000];
        session
            .put(b"zero", &long)
            .await
            .expect("a block of that size, and others behind it");
        assert_eq!(cost_of(e, session.put(b"two", &long)).await, [2, 4, 1, 5]);
        assert_eq!(cost_of(e, session.put(b"two", &long)).await, [3, 1, 1, 5]);
        // The neighbourhood; the item; the lock; the neighbourhood again; the pointer; what is known of it, the lock.
        assert_eq!(cost_of(e, session.delete(b"one")).await, [3, 2, 2, 6], "delete");
        // The entry that it was in, then the neighbourhood.
        let cost = cost_of(e, session.delete(b"one")).await;
        assert_eq!(cost, [2, 0, 0, 2], "delete of what is not there");
    });
}

mod race {
    use super::*;
    use farside_kv::Condition;

    #[test]
    fn one_key_costs_what_the_paper_says() {
        with_session(IndexKind::Race, async |endpoint, mut session| {
            let e = &endpoint;
            assert_eq!(cost_of(e, session.get(b"absent")).await, [2, 0, 0, 1]);
            // The buckets and the item; the lock and the buckets again; the slot and the lock.
            assert_eq!(cost_of(e, session.put(b"key", b"1")).await, [4, 2, 2, 3], "insert");
            assert_eq!(cost_of(e, session.get(b"key")).await, [3, 0, 0, 2], "search");
            // The buckets and the new item; the old item; the slot.
            assert_eq!(cost_of(e, session.put(b"key", b"2")).await, [3, 1, 1, 3], "update");
            assert_eq!(cost_of(e, session.delete(b"key")).await, [3, 0, 1, 3], "delete");
            assert_eq!(
                cost_of(e, session.delete(b"key")).await,
                [2, 0, 0, 1],
                "delete of what is not there"
            );
        });
    }

    #[test]
    fn what_is_stored_decides_a_round_trip_later() {
        with_session(IndexKind::Race, async |endpoint, mut session| {
            let e = &endpoint;
            session.put(b"key", b"1").await.expect("put");
            let twice = |value: Option<&[u8]>| Ok::<_, ()>(value.unwrap_or_default().repeat(2));
            assert_eq!(cost_of(e, session.update(b"key", twice)).await, [3, 1, 1, 4]);
            let if_absent = SetOptions {
                condition: Condition::IfAbsent,
                ..SetOptions::default()
            };
            assert_eq!(
                cost_of(e, session.set(b"key", b"2", if_absent)).await,
                [3, 0, 0, 2],
                "it is there"
            );
            assert_eq!(
                cost_of(e, session.set(b"other", b"2", if_absent)).await,
                [4, 2, 2, 4],
                "it is not"
            );
        });
    }

    #[test]
    fn many_keys_take_as_many_round_trips_as_one() {
        with_session(IndexKind::Race, async |endpoint, mut session| {
            let numbers: Vec<[u8; 4]> = (0..40_u32).map(u32::to_le_bytes).collect();
            for number in &numbers {
                session.put(number, number).await.expect("put");
            }
            let keys: Vec<&[u8]> = numbers.iter().map(<[u8; 4]>::as_slice).collect();
            let read = async |session: &mut Session, keys: &[&[u8]]| {
                let mut values = session.get_many(keys);
                for key in keys {
                    assert_eq!(values.next().await, Ok(Some(*key)));
                }
            };
            let one_group = cost_of(&endpoint, read(&mut session, &keys[..KEYS_AT_ONCE])).await;
            assert_eq!(one_group, [48, 0, 0, 2]);
            assert_eq!(cost_of(&endpoint, read(&mut session, &keys)).await, [120, 0, 0, 6]);
        });
    }

    #[test]
    fn a_long_value_costs_one_read_more() {
        with_session(IndexKind::Race, async |endpoint, mut session| {
            let value = vec![7; 100_000];
            session.put(b"key", &value).await.expect("put");
            assert_eq!(cost_of(&endpoint, session.get(b"key")).await, [4, 0, 0, 3]);
        });
    }
}

#[test]
fn a_policy_costs_reads_nothing_and_writes_little() {
    with_session(IndexKind::Race, async |endpoint, mut session| {
        let e = &endpoint;
        let (insert, update) = ([4, 2, 2, 3], [3, 1, 1, 3]);
        let get = [3, 0, 0, 2];
        for number in 0..3000_u64 {
            session.put(&number.to_le_bytes(), b"12345678").await.expect("put");
        }
        assert_eq!(cost_of(e, session.put(b"one", b"1")).await, insert);
        assert_eq!(cost_of(e, session.put(b"one", b"1")).await, update);
        assert_eq!(cost_of(e, session.get(b"one")).await, get);
        session.store().quota().set_policy(EvictionPolicy::AllKeysLru);
        // The first change looks at what others hold: the length of the client table, and the table.
        assert_eq!(cost_of(e, session.put(b"two", b"1")).await, [6, 2, 2, 5]);
        assert_eq!(cost_of(e, session.put(b"three", b"1")).await, insert);
        assert_eq!(cost_of(e, session.put(b"three", b"1")).await, update);
        assert_eq!(cost_of(e, session.get(b"three")).await, get);
        // At the limit: two round trips to sample (a group and its subtable's identity; five items), three to remove
        // one of them.
        let held = session.store().held().await.expect("held");
        session.store().quota().set_bytes_max(held);
        assert_eq!(
            cost_of(e, session.put(b"four", b"1")).await,
            [4 + 2 + 5 + 3, 2, 3, 3 + 2 + 3]
        );
        assert_eq!(session.store().quota().evicted(), 1);
    });
}
