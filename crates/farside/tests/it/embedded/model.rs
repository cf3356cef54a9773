//! Both interfaces against `BTreeMap`: the same operations, the same answers.

use std::collections::BTreeMap;

use farside::blocking::{self, Store};
use farside::{Condition, IndexKind, Lifetime, Options, SetOptions, after};
use proptest::prelude::*;

/// What a program may do; keys are few, so that they meet.
#[derive(Clone, Debug)]
enum Operation {
    Get(u8),
    GetMany(Vec<u8>),
    Put(u8, Vec<u8>),
    PutMany(Vec<(u8, Vec<u8>)>),
    Set(u8, Vec<u8>, Condition),
    Delete(u8),
    Take(u8),
    Append(u8, u8),
    Refuse(u8),
    Expire(u8),
    Count,
    Items,
    Clear,
    /// The thread does something else meanwhile, for so many milliseconds.
    Rest(u64),
}

fn operation() -> impl Strategy<Value = Operation> {
    let value = || prop_oneof![8 => prop::collection::vec(any::<u8>(), 0..40), 1 => prop::collection::vec(any::<u8>(), 9000..9100)];
    let key = || 0..24_u8;
    let condition = prop_oneof![Just(Condition::IfAbsent), Just(Condition::IfPresent)];
    prop_oneof![
        6 => key().prop_map(Operation::Get),
        2 => prop::collection::vec(key(), 0..40).prop_map(Operation::GetMany),
        6 => (key(), value()).prop_map(|(key, value)| Operation::Put(key, value)),
        1 => prop::collection::btree_map(key(), value(), 0..24).prop_map(|items| Operation::PutMany(items.into_iter().collect())),
        3 => (key(), value(), condition).prop_map(|(key, value, condition)| Operation::Set(key, value, condition)),
        3 => key().prop_map(Operation::Delete),
        2 => key().prop_map(Operation::Take),
        3 => (key(), any::<u8>()).prop_map(|(key, byte)| Operation::Append(key, byte)),
        1 => key().prop_map(Operation::Refuse),
        1 => key().prop_map(Operation::Expire),
        1 => Just(Operation::Count),
        1 => Just(Operation::Items),
        1 => Just(Operation::Clear),
        1 => (0..5_u64).prop_map(Operation::Rest),
    ]
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn perform(session: &mut blocking::Session, model: &mut Model, operation: Operation) {
    let name = |key: u8| vec![key; usize::from(key) % 5 + 1];
    match operation {
        Operation::Get(key) => {
            let value = session.get(&name(key)).expect("it is there");
            assert_eq!(value, model.get(&name(key)).map(Vec::as_slice));
        }
        Operation::GetMany(keys) => {
            let keys: Vec<_> = keys.into_iter().map(name).collect();
            let expected: Vec<_> = keys.iter().map(|key| model.get(key).cloned()).collect();
            assert_eq!(session.get_many(&keys).expect("it is there"), expected);
            // What was in them before goes.
            let (mut values, mut places) = (b"before".to_vec(), vec![None]);
            session
                .get_many_into(&keys, &mut values, &mut places)
                .expect("it is there");
            let mut end = 0;
            let placed = places.into_iter().map(|place| {
                place.map(|place| {
                    assert_eq!(core::mem::replace(&mut end, place.end), place.start);
                    values[place].to_vec()
                })
            });
            assert_eq!(placed.collect::<Vec<_>>(), expected);
            assert_eq!(end, values.len());
        }
        Operation::Put(key, value) => {
            session.put(&name(key), &value).expect("room");
            model.insert(name(key), value);
        }
        Operation::PutMany(items) => {
            let items: Model = items.into_iter().map(|(key, value)| (name(key), value)).collect();
            assert_eq!(session.put_many(&items).expect("room"), items.len() as u64);
            model.extend(items);
        }
        Operation::Set(key, value, condition) => {
            let options = SetOptions {
                condition,
                returns_old: true,
                ..SetOptions::default()
            };
            let outcome = session.set(&name(key), &value, options).expect("room");
            let old = model.get(&name(key)).cloned();
            assert_eq!(outcome.is_stored, old.is_some() == (condition == Condition::IfPresent));
            assert_eq!(outcome.old, old);
            if outcome.is_stored {
                model.insert(name(key), value);
            }
        }
        Operation::Delete(key) => {
            let was_there = session.delete(&name(key)).expect("it is there");
            assert_eq!(was_there, model.remove(&name(key)).is_some());
        }
        Operation::Take(key) => assert_eq!(session.take(&name(key)).expect("it is there"), model.remove(&name(key))),
        Operation::Append(key, byte) => {
            let append = |stored: Option<&[u8]>| Ok::<_, ()>([stored.unwrap_or_default(), &[byte]].concat());
            assert_eq!(session.update(&name(key), append).expect("room"), Ok(()));
            model.entry(name(key)).or_default().push(byte);
        }
        Operation::Refuse(key) => {
            let refused = session.update(&name(key), |_| Err("no")).expect("it is there");
            assert_eq!(refused, Err("no"));
        }
        Operation::Expire(key) => {
            let hour = core::time::Duration::from_secs(3600);
            let is_there = session.expire(&name(key), after(hour)).expect("it is there");
            assert_eq!(is_there, model.contains_key(&name(key)));
            let left = session.lifetime(&name(key)).expect("it is there");
            assert_eq!(left == Lifetime::Absent, !is_there);
            assert_ne!(left, Lifetime::Unlimited);
        }
        Operation::Count => assert_eq!(session.count().expect("it is there"), model.len() as u64),
        Operation::Items => {
            let items: Result<Model, _> = session.items().collect();
            assert_eq!(&items.expect("it is there"), model);
            let mut keys: Vec<_> = session.keys().map(|key| key.expect("it is there")).collect();
            keys.sort();
            assert!(keys.iter().eq(model.keys()));
        }
        Operation::Clear => {
            assert_eq!(session.clear().expect("it is there"), model.len() as u64);
            model.clear();
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "the keeper is to notice that this thread is away"
        )]
        Operation::Rest(rest_ms) => std::thread::sleep(core::time::Duration::from_millis(rest_ms)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn blocking_sessions_do_what_a_map_does(
        operations in prop::collection::vec(operation(), 1..150),
        is_race: bool,
    ) {
        let index = if is_race { IndexKind::Race } else { IndexKind::PointerArray };
        let store = Store::open(Options::anonymous(32 << 20).index(index)).expect("memory");
        prop_assert_eq!(store.index(), index);
        // Two sessions of one thread are two clients, and see the same.
        let mut sessions = [store.session().expect("room"), store.session().expect("room")];
        let mut model = Model::new();
        for (number, operation) in operations.into_iter().enumerate() {
            perform(&mut sessions[number % 2], &mut model, operation);
        }
    }
}
