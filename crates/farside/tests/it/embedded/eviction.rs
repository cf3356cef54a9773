//! A program that embeds the store chooses how much memory it may use, and which keys go then.

use farside::{Error, EvictionPolicy, Options, blocking};

const MEMORY_MAX: u64 = 4 << 20;
const VALUE: [u8; 1000] = [7; 1000];
/// More than there is room for.
const KEYS: u32 = 10_000;
/// What may be in use beyond the limit: who is at the limit may pass it once, as with Redis, and tables of the index that
/// began to grow below it go on. All tables for so many items are smaller than this.
const SLACK_BYTES: u64 = 128 << 10;

fn options() -> Options {
    Options::anonymous(64 << 20).memory_max(MEMORY_MAX)
}

#[test]
fn what_is_used_stays_and_the_rest_goes() {
    let store =
        blocking::Store::open(options().eviction(EvictionPolicy::AllKeysLfu).eviction_samples(10)).expect("memory");
    let mut session = store.session().expect("room for a client");
    session.put(b"often", &VALUE).expect("there is room");
    for key in 0..KEYS {
        session.put(&key.to_be_bytes(), &VALUE).expect("something else goes");
        assert!(session.get(b"often").expect("it works").is_some(), "after {key} keys");
    }
    let used = session.memory_held().expect("it works");
    assert!(used <= MEMORY_MAX + SLACK_BYTES, "{used}");
    let count = session.count().expect("it works");
    assert_eq!(u64::from(KEYS) + 1 - count, store.evicted());
}

#[test]
fn keys_that_never_expire_stay_if_the_policy_says_so() {
    let store = blocking::Store::open(options().eviction(EvictionPolicy::VolatileLru)).expect("memory");
    let mut session = store.session().expect("room for a client");
    for key in 0..1000_u32 {
        session.put(&key.to_be_bytes(), &VALUE).expect("there is room");
    }
    let hour = core::time::Duration::from_secs(3600);
    for key in 1000..KEYS {
        session
            .put_for(&key.to_be_bytes(), &VALUE, hour)
            .expect("something goes");
    }
    assert!(store.evicted() > 0);
    for key in 0..1000_u32 {
        assert!(session.get(&key.to_be_bytes()).expect("it works").is_some(), "{key}");
    }
}

#[test]
fn without_a_policy_what_needs_memory_fails() {
    let store = blocking::Store::open(options()).expect("memory");
    let mut session = store.session().expect("room for a client");
    let refused = (0..KEYS).find_map(|key| session.put(&key.to_be_bytes(), &VALUE).err());
    let refused: Error = refused.expect("there is a limit");
    assert!(refused.is_out_of_memory(), "{refused}");
    assert_eq!(store.evicted(), 0);
    let used = session.memory_held().expect("it works");
    assert!(used <= MEMORY_MAX + SLACK_BYTES, "{used}");
}

#[test]
fn an_async_store_evicts_too() {
    let ended = farside::run(async {
        let store = farside::Store::open(options().eviction(EvictionPolicy::AllKeysRandom)).await?;
        let items = (0..KEYS).map(|key| (key.to_be_bytes(), VALUE));
        assert_eq!(store.put_many(items).await?, u64::from(KEYS));
        let mut session = store.session();
        let count = session.count().await?;
        assert_eq!(u64::from(KEYS) - count, store.evicted());
        assert!(store.evicted() > 5000, "{}", store.evicted());
        drop(session);
        store.close().await
    });
    ended.expect("a runtime").expect("it works");
}
