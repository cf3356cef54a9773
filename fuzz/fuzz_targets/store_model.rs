//! Sequences of operations on one session of a store over mapped memory, against `BTreeMap`.
//!
//! The array has three slots, so that buckets grow and shrink all the time. Each input gets a store
//! of its own; at the end every block of its pool is accounted for.

#![no_main]

use std::collections::BTreeMap;

use farside_fabric::OpContext;
use farside_fabric::shm::{Fabric, Segment};
use farside_index::check;
use farside_kv::{Condition, IndexKind, RaceOptions, SetOptions, Store, StoreConfig};
use farside_pool::{FormatOptions, PoolOptions, account};
use libfuzzer_sys::arbitrary::{self, Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;

/// One of 24 short keys, or a long one.
#[derive(Clone, Copy, Debug)]
struct Key(u8);

impl Key {
    fn bytes(self) -> Vec<u8> {
        match self.0 {
            0 => Vec::new(),
            number @ 1..=24 => vec![b'k', number],
            number => vec![number; usize::from(number) * 4],
        }
    }
}

/// A value of so many bytes, all the same.
#[derive(Clone, Copy, Debug)]
struct Value {
    bytes: u16,
    byte: u8,
}

impl Value {
    fn bytes(self) -> Vec<u8> {
        // Mostly small; the largest takes whole chunks.
        let bytes = match self.bytes {
            short @ 0..0xc000 => usize::from(short) % 400,
            long => (usize::from(long) - 0xc000) * 8,
        };
        vec![self.byte; bytes]
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Get(Key),
    GetMany(Vec<Key>),
    Set(Key, Value, Condition),
    Delete(Key),
    Append(Key, Value),
    Count,
    Clear,
}

/// By hand, so that a seed can be written down: the number of the operation, then its arguments.
impl<'a> Arbitrary<'a> for Operation {
    fn arbitrary(input: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let key = |input: &mut Unstructured<'a>| input.bytes(1).map(|bytes| Key(bytes[0] & 31));
        let value = |input: &mut Unstructured<'a>| {
            let bytes = input.bytes(3)?;
            Ok(Value {
                bytes: u16::from_le_bytes([bytes[0], bytes[1]]),
                byte: bytes[2],
            })
        };
        Ok(match input.bytes(1)?[0] % 16 {
            0..=2 => Self::Get(key(input)?),
            3 => {
                let count = input.bytes(1)?[0] % 40;
                Self::GetMany((0..count).map(|_| key(input)).collect::<Result<_, _>>()?)
            }
            4..=7 => Self::Set(key(input)?, value(input)?, Condition::Always),
            8 => Self::Set(key(input)?, value(input)?, Condition::IfAbsent),
            9 => Self::Set(key(input)?, value(input)?, Condition::IfPresent),
            10..=12 => Self::Delete(key(input)?),
            13 => Self::Append(key(input)?, value(input)?),
            14 => Self::Count,
            _ => Self::Clear,
        })
    }
}

fuzz_target!(|input: &[u8]| {
    let mut input = Unstructured::new(input);
    let mut operations = Vec::new();
    while let Ok(operation) = Operation::arbitrary(&mut input) {
        operations.push(operation);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    // As good as a throw of a coin, and no byte of an input means something else than before.
    let (index, ..) = IndexKind::ALL[operations.len() % IndexKind::ALL.len()];
    tokio::task::LocalSet::new().block_on(&runtime, run(index, &operations));
});

async fn run(index: IndexKind, operations: &[Operation]) {
    let segment = Segment::anonymous(4 << 20).expect("memory");
    let endpoint = Fabric::new(vec![segment]).endpoint().expect("an endpoint");
    let config = StoreConfig {
        index: Some(index),
        slots: Some(3),
        // As few slots make keys share one, so few make a table split.
        race: RaceOptions {
            items: 0,
            subtable_bytes: 768,
            bucket_slots: 2,
        },
        format: FormatOptions {
            clients_max: 2,
            chunk_bytes: Some(16 << 10),
            ..FormatOptions::default()
        },
        // An overwrite that finds memory full waits for some ticks.
        pool: PoolOptions {
            tick_ns: 10_000,
            ..PoolOptions::default()
        },
        ..StoreConfig::default()
    };
    let store = Store::open(endpoint.clone(), config).await.expect("a store");
    let mut session = store.session();
    let mut model = BTreeMap::<Vec<u8>, Vec<u8>>::new();
    for operation in operations {
        match operation {
            Operation::Get(key) => {
                let found = session.get(&key.bytes()).await.expect("get").map(<[u8]>::to_vec);
                assert_eq!(found.as_ref(), model.get(&key.bytes()));
            }
            Operation::GetMany(keys) => {
                let keys: Vec<Vec<u8>> = keys.iter().map(|key| key.bytes()).collect();
                let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                let mut values = session.get_many(&keys);
                for key in &keys {
                    let found = values.next().await.expect("get").map(<[u8]>::to_vec);
                    assert_eq!(found.as_ref(), model.get(*key));
                }
            }
            Operation::Set(key, value, condition) => {
                let (key, value) = (key.bytes(), value.bytes());
                let options = SetOptions {
                    condition: *condition,
                    returns_old: true,
                    ..SetOptions::default()
                };
                let holds = match condition {
                    Condition::Always => true,
                    Condition::IfAbsent => !model.contains_key(&key),
                    Condition::IfPresent => model.contains_key(&key),
                };
                match session.set(&key, &value, options).await {
                    Ok(outcome) => {
                        assert_eq!(outcome.is_stored, holds);
                        assert_eq!(outcome.old.as_ref(), model.get(&key));
                        if holds {
                            model.insert(key, value);
                        }
                    }
                    // Nothing was changed then; the next GET will tell.
                    Err(error) => assert!(error.is_out_of_memory(), "{error}"),
                }
            }
            Operation::Delete(key) => {
                let was_there = session.delete(&key.bytes()).await.expect("delete");
                assert_eq!(was_there, model.remove(&key.bytes()).is_some());
            }
            Operation::Append(key, tail) => {
                let (key, tail) = (key.bytes(), tail.bytes());
                let append = |value: Option<&[u8]>| Ok::<_, ()>([value.unwrap_or_default(), &tail].concat());
                match session.update(&key, append).await {
                    Ok(appended) => {
                        appended.expect("never refused");
                        model.entry(key).or_default().extend(tail);
                    }
                    Err(error) => assert!(error.is_out_of_memory(), "{error}"),
                }
            }
            Operation::Count => assert_eq!(session.count().await.expect("count"), model.len() as u64),
            Operation::Clear => {
                assert_eq!(session.clear().await.expect("clear"), model.len() as u64);
                model.clear();
            }
        }
    }
    for (key, value) in &model {
        assert_eq!(session.get(key).await.expect("get"), Some(&value[..]));
    }
    let mut cx = OpContext::new(endpoint);
    let geometry = store.pool().geometry().to_vec();
    let census = check::take(&mut cx, &geometry).await.expect("a walk");
    assert_eq!(
        (census.faults, census.items),
        (Vec::<String>::new(), model.len() as u64)
    );
    let account = account(&mut cx, &geometry, &census.blocks).await.expect("an account");
    assert_eq!(account.faults, Vec::<String>::new());
}
