//! The type of a value: what stores it keeps it, and who expects another one is refused, on every index, over a network and over
//! mapped memory.
//!
//! What it does not verify: what is done to the bytes of a value, which `farside-value` does.

use core::ops::AsyncFn;

use farside_fabric::shm::{self, Segment};
use farside_fabric::sim::{Sim, SimOptions, UNIX_MS_AT_START};
use farside_kv::session::Alteration;
use farside_kv::{Condition, Expiry, IndexKind, Item, KvError, Session, SetOptions, Store, StoreConfig, Tag};
use farside_value::encoding::encoding;
use farside_value::packed::algebra::Source;
use farside_value::packed::sorted::{self, AddOptions};
use farside_value::packed::{hash, set};
use farside_value::{Edit, ValueError};

use crate::answers;
use crate::model::run;

const KEY: &[u8] = b"key";
const OTHER: &[u8] = b"other";
const LATER_MS: u64 = UNIX_MS_AT_START + 1_000_000_000_000;

fn config(index: IndexKind) -> StoreConfig {
    let mut config = answers::config(index);
    // A machine that is busy with other tests is no dead client.
    config.pool.lease_ns = 600_000_000_000;
    config
}

/// Runs this on every index, over a network and over mapped memory.
fn on_every_index(check: impl AsyncFn(&mut Session)) {
    for (index, name, _) in IndexKind::ALL {
        println!("{name}");
        let sim = Sim::new(SimOptions::default());
        let _ = sim.add_memory_node(8 << 20);
        let endpoint = sim.endpoint(sim.add_compute_node());
        let open = async |endpoint| {
            let store = Store::open(endpoint, config(index)).await.expect("the node is there");
            check(&mut store.session()).await;
            store.close().await.expect("nothing is broken");
        };
        sim.block_on(open(endpoint));
        let segment = Segment::anonymous(8 << 20).expect("memory");
        run(async {
            let endpoint = shm::Fabric::new(vec![segment]).endpoint().expect("an endpoint");
            open(endpoint).await;
        });
    }
}

/// Stores a set of these members under a key.
async fn add(session: &mut Session, key: &[u8], members: &[&[u8]]) -> u32 {
    let added = session.edit(key, Tag::Set, |old| set::add(old, members)).await;
    added.expect("there is room").expect("it is a set")
}

async fn has(session: &mut Session, key: &[u8], member: &[u8]) -> bool {
    let value = session.value(key, Tag::Set).await.expect("it is a set");
    set::contains(value, member).expect("nothing is damaged")
}

fn wrong<T>(found: Tag, wanted: Tag) -> Result<T, KvError> {
    Err(KvError::WrongType { found, wanted })
}

#[test]
fn who_expects_a_string_is_refused_another_type() {
    on_every_index(async |session| {
        assert_eq!(add(session, KEY, &[b"one"]).await, 1);
        let no_string = |refused| assert_eq!(refused, wrong(Tag::Set, Tag::String));
        no_string(session.get(KEY).await.map(drop));
        for bytes in [4, 64 << 10] {
            no_string(session.get_into(KEY, &mut vec![0; bytes]).await.map(drop));
        }
        no_string(session.get_with_expiry(KEY).await.map(drop));
        no_string(session.take(KEY).await.map(drop));
        let update = |_: Option<&[u8]>| -> Result<_, ()> { Ok(Vec::new()) };
        no_string(session.update(KEY, update).await.map(drop));
        let altered = session.alter(KEY, |_| Alteration::Put {
            value: b"1",
            expiry: Expiry::Never,
        });
        no_string(altered.await);
        no_string(session.delete_if(KEY, |_, _| true).await.map(drop));
        no_string(session.delete_if_equal(KEY, b"1").await.map(drop));
        no_string(session.expire_if_equal(KEY, b"1", Expiry::Never).await.map(drop));
        for condition in [Condition::Always, Condition::IfAbsent, Condition::IfPresent] {
            let options = SetOptions {
                condition,
                returns_old: true,
                ..SetOptions::default()
            };
            no_string(session.set(KEY, b"1", options).await.map(drop));
        }
        let keys = [OTHER, KEY, OTHER];
        let mut values = session.get_many(&keys);
        assert_eq!(values.next().await, Ok(None));
        no_string(values.next().await.map(drop));
        assert_eq!(values.next().await, Ok(None));
        let both = session.transaction_on(&[KEY, OTHER], |transaction| {
            no_string(transaction.get(KEY).map(drop));
            no_string(transaction.get_with_expiry(KEY).map(drop));
            no_string(transaction.take(KEY).map(drop));
            no_string(transaction.update(KEY, update).map(drop));
            no_string(transaction.alter(KEY, |_| Alteration::Delete));
            no_string(transaction.change(KEY, &mut |_| unreachable!("it is no string")));
            let options = SetOptions {
                returns_old: true,
                ..SetOptions::default()
            };
            no_string(transaction.set(KEY, b"1", options).map(drop));
            transaction.put(OTHER, b"1")
        });
        both.await.expect("nothing was changed but the other key");
        assert!(has(session, KEY, b"one").await, "it has stayed");
        let error = session.get(KEY).await.expect_err("a set").to_string();
        assert_eq!(
            error,
            "the value of the key is a set, and this operation is for a string"
        );
    });
}

#[test]
fn who_expects_a_type_is_refused_a_string_and_another_type() {
    on_every_index(async |session| {
        session.put(KEY, b"string").await.expect("there is room");
        assert_eq!(session.value(KEY, Tag::Set).await, wrong(Tag::String, Tag::Set));
        let edited = session.edit(KEY, Tag::Set, |old| set::add(old, &[b"one"]));
        assert_eq!(edited.await, wrong(Tag::String, Tag::Set));
        assert_eq!(add(session, OTHER, &[b"one"]).await, 1);
        let edited = session.edit(OTHER, Tag::Hash, |old| hash::set(old, &[(b"f", b"v")], 0));
        assert_eq!(edited.await, wrong(Tag::Set, Tag::Hash));
        let both = session.transaction_on(&[KEY, OTHER], |transaction| {
            assert_eq!(transaction.value(KEY, Tag::Set), wrong(Tag::String, Tag::Set));
            let edited = transaction.edit(OTHER, Tag::Hash, |old| hash::set(old, &[(b"f", b"v")], 0));
            assert_eq!(edited, wrong(Tag::Set, Tag::Hash));
            Ok(())
        });
        both.await.expect("nothing was changed");
        assert_eq!(session.get(KEY).await, Ok(Some(&b"string"[..])));
        assert!(has(session, OTHER, b"one").await);
    });
}

#[test]
fn what_is_for_every_type_keeps_it() {
    on_every_index(async |session| {
        assert_eq!(session.tag(KEY).await, Ok(None));
        assert_eq!(session.value(KEY, Tag::Set).await, Ok(None));
        assert_eq!(add(session, KEY, &[b"one", b"two"]).await, 2);
        assert_eq!(add(session, KEY, &[b"two"]).await, 0);
        assert_eq!(session.tag(KEY).await, Ok(Some(Tag::Set)));
        assert_eq!(session.touch(KEY).await, Ok(true));
        // Its expiry.
        let expired = session.expire(KEY, |_, before_ms| (Expiry::AtMs(LATER_MS), before_ms));
        assert_eq!(expired.await, Ok(Some(0)));
        assert_eq!(add(session, KEY, &[b"three"]).await, 1);
        assert_eq!(session.expiry_ms(KEY).await, Ok(Some(LATER_MS)), "a change keeps it");
        let keeps = SetOptions {
            condition: Condition::IfAbsent,
            ..SetOptions::default()
        };
        assert!(!session.set(KEY, b"1", keeps).await.expect("there is room").is_stored);
        // Transactions, of keys that are named and of others.
        let moved = session.transaction_on(&[KEY, OTHER], |transaction| {
            assert_eq!((transaction.tag(KEY)?, transaction.tag(OTHER)?), (Some(Tag::Set), None));
            let item = transaction.item(KEY)?.expect("it is there");
            let (value, expiry_ms, tag) = (item.value.to_vec(), item.expiry_ms, item.tag);
            transaction.put_item(Item::of(OTHER, &value, expiry_ms).tagged(tag))?;
            assert!(transaction.delete(KEY)?);
            transaction.edit(OTHER, Tag::Set, |old| set::add(old, &[b"four"]))
        });
        assert_eq!(moved.await, Ok(Ok(1)));
        assert_eq!(
            (session.tag(KEY).await, session.tag(OTHER).await),
            (Ok(None), Ok(Some(Tag::Set)))
        );
        assert_eq!(session.expiry_ms(OTHER).await, Ok(Some(LATER_MS)));
        assert!(has(session, OTHER, b"four").await && has(session, OTHER, b"one").await);
        let renewed = session.transaction(async |now| -> Result<_, KvError> {
            let expired = now.expire(OTHER, |_, _| (Expiry::Never, ())).await?;
            Ok((expired, now.get(KEY).await?.map(<[u8]>::to_vec)))
        });
        assert_eq!(renewed.await, Ok((Some(()), None)));
        assert_eq!(session.expiry_ms(OTHER).await, Ok(Some(0)));
        assert!(has(session, OTHER, b"four").await);
        // Scans show all keys, and the values of strings.
        session.put(KEY, b"string").await.expect("there is room");
        let (mut keys, mut strings, mut cursor) = (Vec::new(), Vec::new(), 0);
        loop {
            let (page, next) = session.scan_tags(cursor).await.expect("a page");
            keys.extend(page);
            strings.extend(session.scan(cursor).await.expect("a page").0);
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        keys.sort_by(|(one, _), (next, _)| one.cmp(next));
        assert_eq!(keys, [(KEY.to_vec(), Tag::String), (OTHER.to_vec(), Tag::Set)]);
        assert_eq!(strings, [(KEY.to_vec(), b"string".to_vec())]);
        if session.store().index().kind().is_ordered() {
            let (keys, _) = session.range_tags(b"", None, 10).await.expect("a range");
            assert_eq!(keys, [(KEY.to_vec(), Tag::String), (OTHER.to_vec(), Tag::Set)]);
            let (strings, _) = session.range(b"", None, 10).await.expect("a range");
            assert_eq!(strings, [(KEY.to_vec(), b"string".to_vec())]);
        }
        // A plain SET replaces whatever is there, and so does a set that is put for a result.
        session.put(OTHER, b"plain").await.expect("there is room");
        assert_eq!(session.get(OTHER).await, Ok(Some(&b"plain"[..])));
        let (edit, _) = set::add(None, &[b"five"]).expect("a set");
        let replaced = session.transaction_on(&[KEY, OTHER], |transaction| {
            transaction.replace(OTHER, Tag::Set, edit.clone())?;
            transaction.replace(KEY, Tag::Set, Edit::Keep)
        });
        replaced.await.expect("there is room");
        assert!(has(session, OTHER, b"five").await);
        assert_eq!(session.tag(KEY).await, Ok(Some(Tag::String)));
        let removed = session.transaction_on(&[OTHER], |transaction| {
            transaction.replace(OTHER, Tag::Set, Edit::Delete)
        });
        removed.await.expect("nothing is in the way");
        assert_eq!(session.count().await, Ok(1));
        assert_eq!(session.delete(OTHER).await, Ok(false));
    });
}

#[test]
fn a_value_goes_with_its_last_element_and_a_refusal_changes_nothing() {
    on_every_index(async |session| {
        let fields: &[(&[u8], &[u8])] = &[(b"number", b"9223372036854775807"), (b"name", b"anna")];
        let set = session.edit(KEY, Tag::Hash, |old| hash::set(old, fields, 0));
        assert_eq!(set.await, Ok(Ok(2)));
        let added = session.edit(KEY, Tag::Hash, |old| hash::increment(old, b"number", 1, 0));
        assert_eq!(added.await, Ok(Err(ValueError::Overflow)));
        let added = session.edit(KEY, Tag::Hash, |old| hash::increment(old, b"number", -1, 0));
        assert_eq!(added.await, Ok(Ok(i64::MAX - 1)));
        let removed = session.edit(KEY, Tag::Hash, |old| hash::remove(old, &[b"number", b"none"], 0));
        assert_eq!(removed.await, Ok(Ok(1)));
        assert_eq!(session.count().await, Ok(1));
        let removed = session.edit(KEY, Tag::Hash, |old| hash::remove(old, &[b"name"], 0));
        assert_eq!(removed.await, Ok(Ok(1)));
        assert_eq!((session.count().await, session.tag(KEY).await), (Ok(0), Ok(None)));
        // A value that has expired is absent, whatever its type.
        assert_eq!(add(session, KEY, &[b"one"]).await, 1);
        let expired = session.expire(KEY, |_, _| (Expiry::AtMs(1), ()));
        assert_eq!(expired.await, Ok(Some(())));
        let set = session.edit(KEY, Tag::Hash, |old| hash::set(old, fields, 0));
        assert_eq!(set.await, Ok(Ok(2)), "no set is in its way");
        assert_eq!(session.expiry_ms(KEY).await, Ok(Some(0)));
    });
}

/// A set that Redis would keep in a table.
fn large() -> Vec<u8> {
    let members: Vec<String> = (0..200).map(|number| format!("member{number}")).collect();
    let members: Vec<&[u8]> = members.iter().map(String::as_bytes).collect();
    match set::add(None, &members) {
        Ok((Edit::Put(value), 200)) => value,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_value_from_elsewhere_is_stored_as_it_is() {
    on_every_index(async |session| {
        let value = large();
        assert_eq!(
            encoding(Tag::Set, &value),
            Ok("listpack"),
            "nobody has noted how large it is"
        );
        let if_absent = SetOptions {
            condition: Condition::IfAbsent,
            expiry: Expiry::AtMs(LATER_MS),
            ..SetOptions::default()
        };
        assert_eq!(
            session.set_value(KEY, Tag::Set, value.clone(), if_absent).await,
            Ok(true)
        );
        assert_eq!(
            session.set_value(KEY, Tag::Set, value.clone(), if_absent).await,
            Ok(false)
        );
        let check = |item: Option<Item<'_>>| {
            let item = item.expect("it is there");
            assert_eq!((item.key, item.expiry_ms, item.tag), (KEY, LATER_MS, Tag::Set));
            assert_eq!(
                (&item.value[1..], encoding(Tag::Set, item.value)),
                (&value[1..], Ok("hashtable"))
            );
        };
        check(session.item(KEY).await.expect("the node is there"));
        check(session.peek(KEY).await.expect("the node is there"));
        assert_eq!(session.item(OTHER).await, Ok(None));
        assert_eq!(session.peek(OTHER).await, Ok(None));
        // A string is not looked at.
        let string = b"\0\x01 text".to_vec();
        assert_eq!(
            session
                .set_value(OTHER, Tag::String, string.clone(), SetOptions::default())
                .await,
            Ok(true)
        );
        assert_eq!(session.get(OTHER).await, Ok(Some(&string[..])));
        // Whatever makes it large is noted by a change, and within a transaction.
        assert_eq!(session.delete(KEY).await, Ok(true));
        let members: Vec<String> = (0..200).map(|number| format!("member{number}")).collect();
        let members: Vec<&[u8]> = members.iter().map(String::as_bytes).collect();
        assert_eq!(add(session, KEY, &members).await, 200);
        check_large(session).await;
        let stored = session.transaction_on(&[KEY], |transaction| {
            transaction.set_value(KEY, Tag::Set, value.clone(), SetOptions::default())
        });
        assert_eq!(stored.await, Ok(true));
        check_large(session).await;
    });
}

async fn check_large(session: &mut Session) {
    let value = session.value(KEY, Tag::Set).await.expect("a set").expect("it is there");
    assert_eq!(encoding(Tag::Set, value), Ok("hashtable"));
}

#[test]
fn sets_and_sorted_sets_stand_beside_each_other() {
    on_every_index(async |session| {
        let third: &[u8] = b"third";
        assert_eq!(add(session, KEY, &[b"one"]).await, 1);
        let added = session.edit(OTHER, Tag::SortedSet, |old| {
            sorted::add(old, &[(1.5, b"one")], AddOptions::default())
        });
        assert_eq!(added.await.map(|added| added.map(|done| done.added)), Ok(Ok(1)));
        let all = [KEY, OTHER, third];
        let seen = session.transaction_on(&all, |transaction| {
            let sources = transaction.sources(&all)?;
            let is_so = matches!(sources[..], [Source::Set(_), Source::SortedSet(_), Source::Absent]);
            let values = transaction.values(&[third, KEY], Tag::Set)?;
            Ok((is_so, values.len(), values[0], values[1].is_some()) == (true, 2, None, true))
        });
        assert_eq!(seen.await, Ok(true));
        session.put(third, b"string").await.expect("there is room");
        let two = [KEY, third];
        let refused = session.transaction_on(&two, |transaction| {
            assert_eq!(transaction.sources(&two).map(drop), wrong(Tag::String, Tag::SortedSet));
            transaction.values(&two, Tag::Set).map(drop)
        });
        assert_eq!(refused.await, wrong(Tag::String, Tag::Set));
    });
}
