//! Several keys changed at once: what it costs, what others see of it, and what is left of who dies within it.
//!
//! What it verifies, for every index:
//!
//! - the exact cost of a transaction, and that a key which no transaction holds costs what it did;
//! - with many clients, splits and every scheme: what is written together is seen together, also by plain reads of one key
//!   after the other; sums stay what they are; what was read and not written has not changed when the rest is;
//! - for a death after each verb: all or nothing, nobody waits for the dead, and every block is free or linked, once.
//!
//! What it does not verify: partitions and the like, which plans draw.

mod turns;

use std::cell::Cell;
use std::rc::Rc;

use farside_fabric::VerbKind;
use farside_fabric::sim::{CrashPoint, Sim, SimOptions};
use farside_kv::{
    Alteration, Condition, Expiry, IndexKind, KEY_BYTES_MAX, KvError, LeafOptions, RaceOptions, Session, SetOptions,
    Store, StoreConfig, TRANSACTION_BYTES_MAX, TRANSACTION_KEYS_MAX, Transaction, TransactionError, VALUE_BYTES_MAX,
    Watched,
};
use farside_pool::{FormatOptions, PoolOptions};
use farside_sync::Scheme;

const LEASE_NS: u64 = 400_000;
const ACCOUNTS: u64 = 5;
const START: u64 = 100;

fn config(index: IndexKind, scheme: Scheme) -> StoreConfig {
    StoreConfig {
        index: Some(index),
        scheme,
        // Keys that share slots.
        slots: Some(8),
        race: RaceOptions {
            items: 0,
            subtable_bytes: 768,
            bucket_slots: 2,
        },
        leaf: LeafOptions {
            span: 8,
            neighbourhood: 4,
        },
        format: FormatOptions {
            clients_max: 16,
            chunk_bytes: Some(8 << 10),
            patience_ns: 5 * LEASE_NS,
        },
        pool: PoolOptions {
            tick_ns: 20_000,
            lease_ns: LEASE_NS,
        },
        timeout_ns: None,
        local_wc: false,
    }
}

fn until(expiry: Expiry) -> SetOptions {
    SetOptions {
        expiry,
        ..SetOptions::default()
    }
}

fn account(number: u64) -> Vec<u8> {
    format!("account {number}").into_bytes()
}

fn number(value: Option<&[u8]>) -> u64 {
    value.map_or(0, |value| u64::from_le_bytes(value.try_into().expect("a number")))
}

async fn transfer(session: &mut Session, from: u64, to: u64, amount: u64) -> Result<(), KvError> {
    let (from, to) = (account(from), account(to));
    session
        .transaction_on(&[&from, &to], |transaction| {
            let (a, b) = (number(transaction.get(&from)?), number(transaction.get(&to)?));
            let amount = amount.min(a);
            transaction.put(&from, &(a - amount).to_le_bytes())?;
            transaction.put(&to, &(b + amount).to_le_bytes())
        })
        .await
}

/// What all accounts have, as of one instant.
async fn sum(session: &mut Session) -> u64 {
    let keys: Vec<Vec<u8>> = (0..ACCOUNTS).map(account).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let all = session.transaction_on(&keys, |transaction| {
        let mut all = 0;
        for key in &keys {
            all += number(transaction.get(key)?);
        }
        Ok(all)
    });
    all.await.expect("no fault")
}

async fn open_accounts(session: &mut Session) {
    for number in 0..ACCOUNTS {
        let opened = session.put(&account(number), &START.to_le_bytes()).await;
        opened.expect("room");
    }
}

fn alone<T: 'static>(config: StoreConfig, test: impl AsyncFnOnce(Session) -> T + 'static) -> T {
    let sim = Sim::new(SimOptions::default());
    let _ = sim.add_memory_node(8 << 20);
    let endpoint = sim.endpoint(sim.add_compute_node());
    sim.block_on(async move {
        let store = Store::open(endpoint, config).await.expect("a store");
        let session = store.session();
        test(session).await
    })
}

/// READs, WRITEs, atomics, doorbells.
async fn cost_of<T>(session: &mut Session, work: impl AsyncFnOnce(&mut Session) -> T) -> [u64; 4] {
    let endpoint = session.store().endpoint().clone();
    let before = endpoint.counters().snapshot();
    work(session).await;
    let counted = endpoint.counters().snapshot().since(&before);
    let verbs = &counted.verbs;
    [
        verbs.of(VerbKind::Read),
        verbs.of(VerbKind::Write),
        verbs.atomics(),
        counted.doorbells,
    ]
}

/// How often something that only reads waits for the memory node.
async fn trips_of<T>(session: &mut Session, work: impl AsyncFnOnce(&mut Session) -> T) -> u64 {
    let endpoint = session.store().endpoint().clone();
    let start_ns = endpoint.now_ns();
    session.get(b"account 1").await.expect("no fault");
    let two_trips_ns = endpoint.now_ns() - start_ns;
    let start_ns = endpoint.now_ns();
    work(session).await;
    // Each trip takes some nanoseconds for what it carries.
    2 * (endpoint.now_ns() - start_ns) / two_trips_ns
}

#[test]
fn a_transfer_costs_what_it_says() {
    let mut config = StoreConfig {
        index: Some(IndexKind::Race),
        ..StoreConfig::default()
    };
    (config.pool.tick_ns, config.pool.lease_ns) = (1 << 40, 1 << 50);
    alone(config, async |mut session| {
        open_accounts(&mut session).await;
        transfer(&mut session, 0, 1, 7).await.expect("blocks at hand");
        // Both keys: two buckets and an item each, and their slots once more. Two items, two descriptors and the record; two marks
        // with them. The decision. Two slots.
        let cost = cost_of(&mut session, async |session| transfer(session, 0, 1, 7).await).await;
        assert_eq!(cost, [8, 5, 5, 8]);
        // What is only read is read, and its slots once more.
        let cost = cost_of(&mut session, async |session| sum(session).await).await;
        assert_eq!(cost, [20, 0, 0, 11]);
        // All keys are looked for at the same time.
        let look = async |session: &mut Session| {
            let keys = [account(0), account(1)];
            let keys = [&keys[0][..], &keys[1][..]];
            let looked = session.transaction_on(&keys, |transaction| transaction.get(&account(0)).map(drop));
            looked.await
        };
        assert_eq!(trips_of(&mut session, look).await, 3);
        // Keys that no transaction holds cost what they do without any.
        let cost = cost_of(&mut session, async |session| session.get(b"account 1").await.map(drop)).await;
        assert_eq!(cost, [3, 0, 0, 2]);
        let cost = cost_of(&mut session, async |session| {
            session.put(b"account 1", b"12345678").await
        })
        .await;
        assert_eq!(cost, [3, 1, 1, 3]);
    });
}

#[test]
fn keys_come_and_go() {
    for (index, ..) in IndexKind::ALL {
        alone(config(index, Scheme::Farside), async move |mut session| {
            let keys: [&[u8]; 3] = [b"a", b"b", b""];
            let moved = session.transaction_on(&keys, |transaction| {
                assert_eq!(transaction.get(b"a")?, None);
                assert!(!transaction.delete(b"b")?);
                transaction.put(b"a", b"1")?;
                transaction.set(b"", b"2", until(Expiry::AtMs(u64::MAX)))?;
                assert_eq!(transaction.get(b"a")?, Some(&b"1"[..]));
                Ok(())
            });
            moved.await.expect("no fault");
            assert_eq!(session.get(b"a").await.expect("no fault"), Some(&b"1"[..]));
            assert_eq!(session.get(b"b").await.expect("no fault"), None);
            assert_eq!(session.expiry_ms(b"").await.expect("no fault"), Some(u64::MAX));
            let refused: Result<(), _> = session
                .transaction_on(&keys, |transaction| {
                    assert!(transaction.delete(b"a")?);
                    transaction.put(b"other", b"")
                })
                .await;
            let Err(KvError::Transaction(error @ TransactionError::Undeclared { .. })) = refused else {
                panic!("{refused:?}");
            };
            assert_eq!(
                error.to_string(),
                "the transaction uses the key \"other\", which is not among those that it was begun with"
            );
            assert_eq!(
                session.get(b"a").await.expect("no fault"),
                Some(&b"1"[..]),
                "nothing was changed"
            );
            let gone = session.transaction_on(&keys, |transaction| {
                transaction.delete(b"a")?;
                transaction.set(b"", b"", until(Expiry::Keep))?;
                transaction.put(b"b", b"3")
            });
            gone.await.expect("no fault");
            assert_eq!(session.count().await.expect("no fault"), 2);
            assert_eq!(session.expiry_ms(b"").await.expect("no fault"), Some(u64::MAX));
        });
    }
}

#[test]
fn nothing_is_left_of_keys_that_did_not_come() {
    for (index, ..) in IndexKind::ALL {
        alone(config(index, Scheme::Farside), async move |mut session| {
            let keys: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
            // Only looked for; refused; one comes, one goes.
            let seen = session.transaction_on(&keys, |transaction| Ok(transaction.get(b"a")?.is_some()));
            assert!(!seen.await.expect("no fault"));
            assert_eq!(session.count().await.expect("no fault"), 0, "{index:?}");
            let refused = session.transaction_on(&keys, |transaction| {
                transaction.put(b"a", b"1")?;
                transaction.put(b"other", b"1")
            });
            refused.await.expect_err("a key that was not named");
            assert_eq!(session.count().await.expect("no fault"), 0, "{index:?}");
            let put = session.transaction_on(&keys, |transaction| {
                transaction.put(b"a", b"1")?;
                transaction.put(b"b", b"2")
            });
            put.await.expect("no fault");
            assert_eq!(session.count().await.expect("no fault"), 2, "{index:?}");
            let moved = session.transaction_on(&keys, |transaction| {
                transaction.delete(b"b")?;
                transaction.delete(b"d")?;
                transaction.put(b"c", b"3")
            });
            moved.await.expect("no fault");
            assert_eq!(session.count().await.expect("no fault"), 2, "{index:?}");
            assert_eq!(session.get(b"c").await.expect("no fault"), Some(&b"3"[..]));
        });
    }
}

#[test]
fn limits_are_kept_and_a_key_may_be_named_twice() {
    alone(config(IndexKind::Race, Scheme::Farside), async |mut session| {
        let longest = vec![7; VALUE_BYTES_MAX];
        let put = async |session: &mut Session, value: &[u8]| {
            let stored = session.transaction_on(&[b"a", b"b", b"a"], |transaction| transaction.put(b"a", value));
            stored.await
        };
        put(&mut session, b"1").await.expect("a key that is named twice is one");
        assert_eq!(session.get(b"a").await.expect("no fault"), Some(&b"1"[..]));
        // The memory is too small for it, which is another matter.
        let error = put(&mut session, &longest).await.expect_err("no room");
        assert!(error.is_out_of_memory(), "{error}");
        let error = put(&mut session, &[&longest[..], b"7"].concat())
            .await
            .expect_err("too long");
        assert_eq!(
            error.to_string(),
            "the value has 16777217 bytes, at most 16777216 are allowed"
        );
        let keys: Vec<[u8; 4]> = (0..=TRANSACTION_KEYS_MAX as u32).map(u32::to_le_bytes).collect();
        let keys: Vec<&[u8]> = keys.iter().map(<[u8; 4]>::as_slice).collect();
        let count = async |session: &mut Session, keys: &[&[u8]]| session.transaction_on(keys, |_| Ok(())).await;
        let error = count(&mut session, &keys).await.expect_err("one too many");
        assert_eq!(
            error.to_string(),
            "the transaction names 65537 keys, at most 65536 are allowed"
        );
        let long = vec![b'k'; KEY_BYTES_MAX + 1];
        count(&mut session, &[&long[1..]]).await.expect("just as long");
        let error = count(&mut session, &[&long]).await.expect_err("too long");
        assert!(error.to_string().contains("65537"), "{error}");
        // Nobody has so much memory here, but it is tried.
        let most = count(&mut session, &keys[1..]).await;
        assert!(!matches!(most, Err(KvError::Transaction(_))), "{most:?}");
    });
}

#[test]
fn operations_are_those_of_a_session() {
    alone(config(IndexKind::Race, Scheme::Farside), async |mut session| {
        let keys: [&[u8]; 2] = [b"key", b"other"];
        let now_ms = session.store().endpoint().unix_ms();
        let done = session.transaction_on(&keys, |transaction| {
            let absent = SetOptions {
                condition: Condition::IfAbsent,
                returns_old: true,
                expiry: Expiry::AtMs(now_ms + 1000),
            };
            assert!(transaction.set(b"key", b"1", absent)?.is_stored);
            let again = transaction.set(b"key", b"2", absent)?;
            assert_eq!((again.is_stored, again.old.as_deref()), (false, Some(&b"1"[..])));
            let present = SetOptions {
                condition: Condition::IfPresent,
                ..SetOptions::default()
            };
            assert!(!transaction.set(b"other", b"2", present)?.is_stored);
            // The expiry stays with an update, and another one can be asked for.
            assert_eq!(
                transaction.update(b"key", |value| Ok::<_, ()>([value.unwrap_or_default(), b"2"].concat()))?,
                Ok(())
            );
            assert_eq!(transaction.update(b"key", |_| Err("no"))?, Err("no"));
            assert_eq!(transaction.get_with_expiry(b"key")?, Some((&b"12"[..], now_ms + 1000)));
            let seen = transaction.expire(b"key", |value, at_ms| (Expiry::Never, (value.to_vec(), at_ms)))?;
            assert_eq!(seen, Some((b"12".to_vec(), now_ms + 1000)));
            assert_eq!(transaction.expire(b"other", |_, _| (Expiry::Never, ()))?, None);
            assert_eq!(
                (transaction.expiry_ms(b"key")?, transaction.expiry_ms(b"other")?),
                (Some(0), None)
            );
            // What expires in the past is gone, also within the transaction.
            transaction.set(b"other", b"3", until(Expiry::AtMs(1)))?;
            assert_eq!(transaction.get(b"other")?, None);
            transaction.alter(b"key", |stored| {
                assert_eq!(stored, Some((&b"12"[..], 0)));
                Alteration::Expire(Expiry::AtMs(1))
            })?;
            assert_eq!(transaction.take(b"key")?, None);
            transaction.alter(b"key", |_| Alteration::Put {
                value: b"4",
                expiry: Expiry::Never,
            })?;
            assert_eq!(transaction.take(b"key")?.as_deref(), Some(&b"4"[..]));
            assert!(!transaction.delete(b"key")?);
            transaction.put(b"other", b"5")
        });
        done.await.expect("no fault");
        assert_eq!(session.get(b"key").await.expect("no fault"), None);
        assert_eq!(session.get(b"other").await.expect("no fault"), Some(&b"5"[..]));
    });
}

#[test]
fn keys_become_known_on_the_way() {
    for (index, ..) in IndexKind::ALL {
        alone(config(index, Scheme::Farside), async move |mut session| {
            session.put(b"first", b"second").await.expect("no fault");
            session.put(b"second", b"7").await.expect("no fault");
            // Where the second key is named by the first.
            let made = session.transaction(async |transaction| {
                let next = transaction.get(b"first").await?.expect("it is there").to_vec();
                let value = transaction.take(&next).await?.expect("it is there");
                assert_eq!(transaction.get(&next).await?, None);
                transaction.put(b"third", &value).await?;
                assert_eq!(transaction.get(b"third").await?, Some(&value[..]));
                assert!(!transaction.delete(b"none").await?);
                let absent = SetOptions {
                    condition: Condition::IfAbsent,
                    ..SetOptions::default()
                };
                assert!(!transaction.set(b"first", b"", absent).await?.is_stored);
                assert_eq!(
                    transaction.update(b"first", |_| Ok::<_, ()>(b"third".to_vec())).await?,
                    Ok(())
                );
                Ok::<_, KvError>(value)
            });
            assert_eq!(made.await.expect("no fault"), b"7");
            let values = [b"first".as_slice(), b"second", b"third", b"none"];
            let mut found = session.get_many(&values);
            for expected in [Some(&b"third"[..]), None, Some(b"7"), None] {
                assert_eq!(found.next().await.expect("no fault"), expected);
            }
            // An answer that is an error changes nothing, nor does one that is taken back.
            let refused: Result<(), _> = session
                .transaction(async |transaction| {
                    transaction.put(b"first", b"changed").await?;
                    transaction.put(b"first", &vec![0; VALUE_BYTES_MAX + 1]).await
                })
                .await;
            assert!(matches!(refused, Err(KvError::Index(_))), "{refused:?}");
            let taken_back = session.transaction(async |transaction| {
                transaction.put(b"first", b"changed").await?;
                transaction.give_up();
                Ok::<_, KvError>(())
            });
            taken_back.await.expect("no fault");
            assert_eq!(session.get(b"first").await.expect("no fault"), Some(&b"third"[..]));
        });
    }
}

#[test]
fn what_expires_within_a_transaction_is_gone_for_it() {
    alone(config(IndexKind::Race, Scheme::Farside), async |mut session| {
        session.put(b"key", b"value").await.expect("no fault");
        let now_ms = session.store().endpoint().unix_ms();
        let made = session.transaction(async |transaction| {
            let before = until(Expiry::AtMs(now_ms));
            transaction.set(b"key", b"value", before).await?;
            Ok::<_, KvError>(transaction.get(b"key").await?.is_some())
        });
        assert_eq!(made.await, Ok(false));
        assert_eq!(session.get(b"key").await.expect("no fault"), None);
    });
}

#[test]
fn what_was_stored_without_a_look_is_not_taken_for_known() {
    alone(config(IndexKind::Race, Scheme::Farside), async |mut session| {
        session.put(b"key", b"1").await.expect("no fault");
        let made = session.transaction(async |transaction| {
            transaction.put(b"key", b"2").await?;
            assert_eq!(transaction.get(b"key").await?, Some(&b"2"[..]));
            transaction.give_up();
            assert_eq!(transaction.get(b"key").await?, Some(&b"1"[..]));
            let too_long = vec![0; VALUE_BYTES_MAX + 1];
            transaction.put(b"key", &too_long).await.expect_err("it is too long");
            transaction.put(b"other", &too_long).await.expect_err("it is too long");
            assert!(!transaction.delete(b"other").await?);
            assert!(transaction.delete(b"key").await?);
            transaction.put(b"key", b"3").await
        });
        made.await.expect("no fault");
        assert_eq!(session.get(b"key").await.expect("no fault"), Some(&b"3"[..]));
    });
}

#[test]
fn a_transaction_may_copy_only_so_much() {
    alone(config(IndexKind::Race, Scheme::Farside), async |mut session| {
        let most = vec![0; VALUE_BYTES_MAX];
        let times = TRANSACTION_BYTES_MAX / VALUE_BYTES_MAX as u64;
        let made = session.transaction_on(&[b"key"], |transaction| {
            for _ in 0..times {
                transaction.put(b"key", &most)?;
            }
            transaction.put(b"key", b"")
        });
        made.await.expect("just as much");
        let made = session.transaction_on(&[b"key"], |transaction| {
            for _ in 0..times {
                transaction.put(b"key", &most)?;
            }
            transaction.put(b"key", b"1").expect_err("too much");
            transaction.put(b"key", b"").expect_err("it was too much before");
            Ok(())
        });
        let error = made.await.expect_err("too much");
        assert_eq!(
            error.to_string(),
            "the transaction reads and stores values of more than 536870912 bytes"
        );
        assert_eq!(session.get(b"key").await.expect("no fault"), Some(&b""[..]));
        // What is read counts, too.
        session.put(b"key", b"0123456789").await.expect("no fault");
        let made = session.transaction_on(&[b"key"], |transaction| {
            for _ in 1..times {
                transaction.put(b"key", &most)?;
            }
            transaction.put(b"key", &most[10..])?;
            transaction.put(b"key", b"")
        });
        made.await.expect("just as much");
        session.put(b"key", b"0123456789").await.expect("no fault");
        let made = session.transaction_on(&[b"key"], |transaction| {
            for _ in 1..times {
                transaction.put(b"key", &most)?;
            }
            transaction.put(b"key", &most[9..])
        });
        assert_eq!(made.await, Err(TransactionError::TooLarge.into()));
    });
}

#[test]
fn who_was_overtaken_begins_again() {
    alone(config(IndexKind::Race, Scheme::Farside), async |mut session| {
        session.put(b"key", b"1").await.expect("no fault");
        let store = session.store().clone();
        let mut rounds = 0;
        let made = session.transaction(async |transaction| {
            rounds += 1;
            let seen = transaction.get(b"key").await?.map(<[u8]>::to_vec);
            if rounds == 1 {
                store.session().put(b"key", b"2").await?;
                // What it has seen is not so any more, so its answer does not count.
                return Err(KvError::from(TransactionError::Contended { rounds: 0 }));
            }
            transaction.put(b"seen", &seen.expect("it is there")).await
        });
        made.await.expect("no fault");
        assert_eq!(rounds, 2);
        assert_eq!(session.get(b"seen").await.expect("no fault"), Some(&b"2"[..]));
    });
}

/// Time begins with the first conflict, and ends with the first one after it is up.
#[test]
fn who_is_always_overtaken_is_told() {
    let mut config = config(IndexKind::Race, Scheme::Farside);
    config.timeout_ns = Some(10_000_000);
    alone(config, async |mut session| {
        session.put(b"key", b"").await.expect("no fault");
        let store = session.store().clone();
        let mut rounds = 0_u64;
        let made = session.transaction(async |transaction| {
            rounds += 1;
            transaction.get(b"key").await?;
            store.session().put(b"key", &rounds.to_le_bytes()).await?;
            store.endpoint().sleep(8_000_000).await;
            Ok::<_, KvError>(())
        });
        let error = made.await.expect_err("somebody else is always quicker");
        assert_eq!(error, TransactionError::Contended { rounds: 2 }.into());
        assert_eq!(rounds, 3);
        assert_eq!(session.retries(), 2);
    });
}

#[test]
fn deleting_what_is_not_there_costs_a_look() {
    for (index, ..) in IndexKind::ALL {
        let mut config = config(index, Scheme::Farside);
        // Nothing but what the operations cost.
        (config.pool.tick_ns, config.pool.lease_ns) = (1 << 40, 1 << 50);
        alone(config, async |mut session| {
            open_accounts(&mut session).await;
            session.get(b"absent").await.expect("no fault");
            let look = cost_of(&mut session, async |session| {
                let look = session.transaction_on(&[b"absent"], |transaction| transaction.get(b"absent").map(drop));
                look.await.expect("no fault");
            });
            let look = look.await;
            assert_eq!(look[1..3], [0, 0], "it reads");
            let delete = cost_of(&mut session, async |session| {
                let delete = session.transaction_on(&[b"absent"], |transaction| transaction.delete(b"absent"));
                assert_eq!(delete.await, Ok(false));
            });
            assert_eq!(delete.await, look);
        });
    }
}

/// What keys are, each by itself.
async fn watch(session: &mut Session, keys: &[&[u8]]) -> Vec<Watched> {
    let mut watched = Vec::new();
    for key in keys {
        let keys = [*key];
        let watch = session.transaction_on(&keys, |transaction| transaction.watch(key));
        watched.push(watch.await.expect("no fault"));
    }
    watched
}

async fn are_as_watched(session: &mut Session, watched: &[Watched]) -> bool {
    let keys: Vec<&[u8]> = watched.iter().map(Watched::key).collect();
    let all = |transaction: &mut Transaction| {
        let mut all = true;
        for watched in watched {
            all &= transaction.is_as_watched(watched)?;
        }
        Ok(all)
    };
    session.transaction_on(&keys, all).await.expect("no fault")
}

#[test]
fn a_watched_key_is_seen_to_change() {
    for (index, ..) in IndexKind::ALL {
        alone(config(index, Scheme::Farside), async move |mut session| {
            let keys: [&[u8]; 3] = [b"key", b"none", b"expires"];
            session.put(b"key", b"1").await.expect("no fault");
            let until_ms = session.store().endpoint().unix_ms() + 1000;
            let expires = until(Expiry::AtMs(until_ms));
            session.set(b"expires", b"1", expires).await.expect("no fault");
            let watched = watch(&mut session, &keys).await;
            assert!(are_as_watched(&mut session, &watched).await);
            // Others do not matter, and what a transaction does itself does not count.
            for number in 0..40_u32 {
                session.put(&number.to_le_bytes(), b"x").await.expect("no fault");
            }
            let own = session.transaction_on(&keys, |transaction| {
                transaction.put(b"key", b"2")?;
                let is_same = transaction.is_as_watched(&watched[0])?;
                transaction.give_up();
                Ok(is_same)
            });
            assert!(own.await.expect("no fault"));
            // The same value once more, another expiry, a key that comes.
            session.put(b"key", b"1").await.expect("no fault");
            assert!(!are_as_watched(&mut session, &watched).await, "{index:?}");
            let watched = watch(&mut session, &keys).await;
            let later = |_: &[u8], at_ms| (Expiry::AtMs(at_ms + 1000), ());
            session.expire(b"expires", later).await.expect("no fault");
            assert!(!are_as_watched(&mut session, &watched).await, "{index:?}");
            let watched = watch(&mut session, &keys).await;
            session.put(b"none", b"").await.expect("no fault");
            assert!(!are_as_watched(&mut session, &watched).await, "{index:?}");
            let watched = watch(&mut session, &keys).await;
            session.delete(b"none").await.expect("no fault");
            assert!(!are_as_watched(&mut session, &watched).await, "{index:?}");
            // A key whose time is over.
            let watched = watch(&mut session, &keys).await;
            session.store().endpoint().sleep(3_000_000_000).await;
            assert!(!are_as_watched(&mut session, &watched).await, "{index:?}");
            let watched = watch(&mut session, &keys).await;
            session.delete(b"expires").await.expect("no fault");
            assert!(are_as_watched(&mut session, &watched).await, "it was gone before");
        });
    }
}

/// What clients do with a store beside each other.
async fn work(session: &mut Session, client: u64, round: u64) -> Result<(), KvError> {
    let endpoint = session.store().endpoint().clone();
    let pick = |below| endpoint.random_below(below);
    match pick(8) {
        0 => {
            let from = pick(ACCOUNTS);
            let to = (from + 1 + pick(ACCOUNTS - 1)) % ACCOUNTS;
            let amount = 1 + pick(9);
            let made = session.transaction(async |transaction| {
                let left = number(transaction.get(&account(from)).await?);
                let more = number(transaction.get(&account(to)).await?) + amount;
                if let Some(left) = left.checked_sub(amount) {
                    transaction.put(&account(from), &left.to_le_bytes()).await?;
                    transaction.put(&account(to), &more.to_le_bytes()).await?;
                }
                Ok::<_, KvError>(())
            });
            made.await?;
        }
        1..3 => {
            let from = pick(ACCOUNTS);
            let to = (from + 1 + pick(ACCOUNTS - 1)) % ACCOUNTS;
            transfer(session, from, to, 1 + pick(9)).await?;
        }
        3 => assert_eq!(sum(session).await, START * ACCOUNTS, "half of a transfer is seen"),
        4 => {
            // What is written together is seen together, also by one read after the other.
            let pair = session.transaction_on(&[b"left", b"right"], |transaction| {
                let next = number(transaction.get(b"left")?) + 1;
                assert_eq!(number(transaction.get(b"right")?) + 1, next);
                transaction.put(b"left", &next.to_le_bytes())?;
                transaction.put(b"right", &next.to_le_bytes())
            });
            pair.await?;
        }
        5 => {
            let (first, second): (&[u8], &[u8]) = match pick(2) {
                0 => (b"left", b"right"),
                _ => (b"right", b"left"),
            };
            let before = number(session.get(first).await?);
            let after = number(session.get(second).await?);
            assert!(after >= before, "{before} is seen, and {after} after it");
        }
        6 => {
            // What is copied is what it is when the copy is seen.
            if pick(2) == 0 {
                let copied = session.transaction_on(&[b"source", b"copy"], |transaction| {
                    let value = number(transaction.get(b"source")?);
                    transaction.put(b"copy", &value.to_le_bytes())
                });
                copied.await?;
            } else {
                let copied = session.transaction(async |transaction| {
                    let value = number(transaction.get(b"source").await?);
                    transaction.put(b"copy", &value.to_le_bytes()).await
                });
                copied.await?;
            }
        }
        _ => {
            // Others' entries move.
            let key = [&b"filler"[..], &client.to_le_bytes(), &round.to_le_bytes()].concat();
            session.put(&key, &[7; 40]).await?;
        }
    }
    Ok(())
}

/// Whether what was read holds until the rest is written: the copy never gets a value that is older than one that was there
/// before somebody has seen it.
async fn watch_copies(session: &mut Session, next: u64) {
    session.put(b"source", &next.to_le_bytes()).await.expect("no fault");
    let seen = number(session.get(b"copy").await.expect("no fault"));
    for _ in 0..3 {
        let later = number(session.get(b"copy").await.expect("no fault"));
        assert!(
            later == seen || later >= next,
            "the copy was {seen} when the source was {next} already, and became {later}"
        );
        if later != seen {
            return;
        }
    }
}

fn run(index: IndexKind, scheme: Scheme, seed: u64) {
    let sim = Sim::new(SimOptions {
        seed,
        jitter_ns: 3_000,
        ..SimOptions::default()
    });
    let _ = sim.add_memory_node(16 << 20);
    let first = sim.endpoint(sim.add_compute_node());
    let opened = first.clone();
    sim.block_on(async move {
        let store = Store::open(opened, config(index, scheme)).await.expect("a store");
        open_accounts(&mut store.session()).await;
        store.close().await.expect("close");
    });
    let left = Rc::new(Cell::new(0));
    for client in 0..5 {
        let endpoint = sim.endpoint(sim.add_compute_node());
        let (task, left) = (endpoint.clone(), Rc::clone(&left));
        left.set(left.get() + 1);
        endpoint.spawn(async move {
            let store = Store::open(task, config(index, scheme)).await.expect("a store");
            let mut session = store.session();
            for round in 0..12 {
                if client == 0 {
                    watch_copies(&mut session, round + 1).await;
                } else {
                    work(&mut session, client, round).await.expect("no fault");
                }
            }
            assert_eq!(sum(&mut session).await, START * ACCOUNTS);
            drop(session);
            store.close().await.expect("close");
            left.set(left.get() - 1);
        });
    }
    let deadline_ns = sim.now_ns() + 4000 * LEASE_NS;
    while left.get() > 0 {
        sim.run_until(sim.now_ns() + LEASE_NS);
        assert!(
            sim.now_ns() < deadline_ns,
            "{}/{}: seed {seed}: nobody goes on",
            index.name(),
            scheme.name()
        );
    }
    crate::audit::every_block(&sim);
}

#[test]
fn what_is_changed_together_is_seen_together() {
    for (index, ..) in IndexKind::ALL {
        for (scheme, _) in Scheme::named() {
            for seed in 0..6 {
                run(index, scheme, seed);
            }
        }
    }
}

/// One client transfers and dies after so many verbs; another one looks, and goes on. Returns whether it has died.
fn die(index: IndexKind, verbs: u64) -> bool {
    let sim = Sim::new(SimOptions {
        seed: verbs,
        ..SimOptions::default()
    });
    let _ = sim.add_memory_node(4 << 20);
    let [worker, survivor] = [(); 2].map(|()| sim.endpoint(sim.add_compute_node()));
    let (is_open, has_ended) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
    let (endpoint, opened) = (worker.clone(), Rc::clone(&is_open));
    let config = config(index, Scheme::Farside);
    worker.spawn(async move {
        let store = Store::open(endpoint.clone(), config).await.expect("a store");
        let mut session = store.session();
        open_accounts(&mut session).await;
        opened.set(true);
        endpoint.sleep(2 * LEASE_NS).await;
        for round in 0..6 {
            let made = transfer(&mut session, round % ACCOUNTS, (round + 2) % ACCOUNTS, 1 + round).await;
            made.expect("no fault");
            let key = format!("new {round}").into_bytes();
            let keys: [&[u8]; 2] = [&key, b"count"];
            let made = session.transaction_on(&keys, |transaction| {
                transaction.put(&key, b"new")?;
                transaction.put(b"count", &(round + 1).to_le_bytes())
            });
            made.await.expect("no fault");
        }
        endpoint.sleep(u64::MAX / 4).await;
    });
    while !is_open.get() {
        sim.run_until(sim.now_ns() + 10_000);
    }
    let posted = sim.verbs_posted(worker.id());
    sim.crash_client_at(
        worker.id(),
        CrashPoint {
            verb: posted + verbs,
            lines: None,
        },
    );
    let (endpoint, ended) = (survivor.clone(), Rc::clone(&has_ended));
    survivor.spawn(async move {
        let store = Store::open(endpoint.clone(), config).await.expect("a store");
        endpoint.sleep(40 * LEASE_NS).await;
        store.settle().await.expect("what the dead held is taken over");
        let mut session = store.session();
        // One key at a time, whatever was left.
        let mut all = 0;
        for number_of in 0..ACCOUNTS {
            all += number(session.get(&account(number_of)).await.expect("no fault"));
        }
        assert_eq!(all, START * ACCOUNTS, "after {verbs} verbs");
        assert_eq!(sum(&mut session).await, START * ACCOUNTS);
        let count = number(session.get(b"count").await.expect("no fault"));
        for round in 0..6_u64 {
            let key = format!("new {round}").into_bytes();
            let is_there = session.get(&key).await.expect("no fault").is_some();
            assert_eq!(is_there, round < count, "after {verbs} verbs");
        }
        let begun_ns = endpoint.now_ns();
        for from in 0..ACCOUNTS {
            let made = transfer(&mut session, from, (from + 1) % ACCOUNTS, 5).await;
            made.expect("nobody is in the way for long");
        }
        assert!(
            endpoint.now_ns() - begun_ns < 20_000_000,
            "nobody waits long for the dead"
        );
        assert_eq!(sum(&mut session).await, START * ACCOUNTS);
        drop(session);
        store.close().await.expect("close");
        ended.set(true);
    });
    let deadline_ns = sim.now_ns() + 1000 * LEASE_NS;
    while !has_ended.get() {
        sim.run_until(sim.now_ns() + LEASE_NS);
        assert!(
            sim.now_ns() < deadline_ns,
            "{}: death after {verbs} verbs: nobody can go on",
            index.name()
        );
    }
    let has_died = sim.is_crashed(worker.id());
    if has_died {
        crate::audit::every_block(&sim);
    }
    has_died
}

#[test]
fn who_dies_within_a_transaction_leaves_all_or_nothing() {
    for (index, ..) in IndexKind::ALL {
        let deaths = (1..420).filter(|&verbs| die(index, verbs)).count();
        assert!(deaths > 200, "{}: only {deaths} deaths", index.name());
    }
}
