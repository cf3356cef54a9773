//! What a session answers, operation by operation, on every index: conditions, old values, expiries.

use farside_fabric::sim::{Sim, SimOptions, UNIX_MS_AT_START};
use farside_kv::session::Alteration;
use farside_kv::{Condition, Expiry, IndexKind, LeafOptions, Session, SetOptions, SetOutcome, Store, StoreConfig};
use farside_pool::{FormatOptions, PoolOptions};

const KEY: &[u8] = b"key";
/// A second from the beginning on: nothing here takes as long.
const LATER_MS: u64 = UNIX_MS_AT_START + 1000;
const PAST_MS: u64 = UNIX_MS_AT_START - 1;

/// A small store with this index.
pub(crate) fn config(index: IndexKind) -> StoreConfig {
    StoreConfig {
        index: Some(index),
        slots: Some(160),
        leaf: LeafOptions::PUBLISHED,
        format: FormatOptions {
            clients_max: 8,
            chunk_bytes: Some(16 << 10),
            ..FormatOptions::default()
        },
        pool: PoolOptions {
            tick_ns: 20_000,
            lease_ns: 300_000,
        },
        ..StoreConfig::default()
    }
}

/// Runs this on every index.
fn on_every_index(check: impl AsyncFn(&mut Session)) {
    for (index, name, _) in IndexKind::ALL {
        let sim = Sim::new(SimOptions::default());
        let _ = sim.add_memory_node(8 << 20);
        let endpoint = sim.endpoint(sim.add_compute_node());
        println!("{name}");
        sim.block_on(async {
            let store = Store::open(endpoint, config(index)).await.expect("the node is there");
            check(&mut store.session()).await;
            store.close().await.expect("nothing is broken");
        });
    }
}

async fn value(session: &mut Session) -> Option<Vec<u8>> {
    session.get(KEY).await.expect("the node is there").map(<[u8]>::to_vec)
}

async fn set(session: &mut Session, value: &[u8], condition: Condition, returns_old: bool) -> SetOutcome {
    let options = SetOptions {
        condition,
        returns_old,
        ..SetOptions::default()
    };
    session.set(KEY, value, options).await.expect("there is room")
}

async fn expiry_ms(session: &mut Session) -> Option<u64> {
    session.expiry_ms(KEY).await.expect("the node is there")
}

fn outcome(is_stored: bool, old: Option<&[u8]>) -> SetOutcome {
    SetOutcome {
        is_stored,
        old: old.map(<[u8]>::to_vec),
    }
}

#[test]
fn a_set_says_whether_it_stored_and_what_was_there() {
    use Condition::{Always, IfAbsent, IfPresent};
    on_every_index(async |session| {
        assert_eq!(set(session, b"0", IfPresent, true).await, outcome(false, None));
        assert_eq!(value(session).await, None);
        assert_eq!(set(session, b"1", Always, true).await, outcome(true, None));
        assert_eq!(set(session, b"2", Always, true).await, outcome(true, Some(b"1")));
        assert_eq!(set(session, b"3", Always, false).await, outcome(true, None));
        assert_eq!(set(session, b"4", IfAbsent, true).await, outcome(false, Some(b"3")));
        assert_eq!(set(session, b"4", IfAbsent, false).await, outcome(false, None));
        assert_eq!(value(session).await.as_deref(), Some(&b"3"[..]));
        assert_eq!(set(session, b"5", IfPresent, true).await, outcome(true, Some(b"3")));
        assert_eq!(set(session, b"6", IfPresent, false).await, outcome(true, None));
        assert_eq!(value(session).await.as_deref(), Some(&b"6"[..]));
        assert_eq!(session.delete(KEY).await, Ok(true));
        assert_eq!(session.delete(KEY).await, Ok(false));
        assert_eq!(set(session, b"7", IfAbsent, true).await, outcome(true, None));
        assert_eq!(session.take(KEY).await, Ok(Some(b"7".to_vec())));
        assert_eq!(session.take(KEY).await, Ok(None));
    });
}

#[test]
fn a_key_is_removed_only_with_the_value_that_was_named() {
    on_every_index(async |session| {
        assert_eq!(session.delete_if_equal(KEY, b"1").await, Ok(None));
        session.put(KEY, b"1").await.expect("there is room");
        assert_eq!(session.touch(KEY).await, Ok(true));
        assert_eq!(session.touch(b"another").await, Ok(false));
        assert_eq!(session.delete_if_equal(KEY, b"2").await, Ok(Some(false)));
        assert_eq!(value(session).await.as_deref(), Some(&b"1"[..]));
        assert_eq!(session.delete_if_equal(KEY, b"1").await, Ok(Some(true)));
        assert_eq!(value(session).await, None);
    });
}

#[test]
fn an_expiry_is_set_kept_and_dropped() {
    on_every_index(async |session| {
        let options = |expiry| SetOptions {
            expiry,
            ..SetOptions::default()
        };
        assert_eq!(expiry_ms(session).await, None);
        let later = options(Expiry::AtMs(LATER_MS));
        session.set(KEY, b"1", later).await.expect("there is room");
        assert_eq!(expiry_ms(session).await, Some(LATER_MS));
        let keep = options(Expiry::Keep);
        session.set(KEY, b"2", keep).await.expect("there is room");
        let found = session.get_with_expiry(KEY).await.expect("the node is there");
        assert_eq!(found, Some((&b"2"[..], LATER_MS)));
        session.put(KEY, b"3").await.expect("there is room");
        assert_eq!(expiry_ms(session).await, Some(0));
        // To keep what never expires is to let it stay.
        let keep = options(Expiry::Keep);
        session.set(KEY, b"4", keep).await.expect("there is room");
        assert_eq!(expiry_ms(session).await, Some(0));
        let later = Expiry::AtMs(LATER_MS);
        assert_eq!(session.expire_if_equal(KEY, b"3", later).await, Ok(Some(false)));
        assert_eq!(expiry_ms(session).await, Some(0));
        assert_eq!(session.expire_if_equal(KEY, b"4", later).await, Ok(Some(true)));
        assert_eq!(expiry_ms(session).await, Some(LATER_MS));
        assert_eq!(session.count().await, Ok(1));
        let past = Expiry::AtMs(PAST_MS);
        assert_eq!(session.expire_if_equal(KEY, b"4", past).await, Ok(Some(true)));
        assert_eq!(expiry_ms(session).await, None);
        assert_eq!(session.count().await, Ok(0));
        assert_eq!(session.expire_if_equal(KEY, b"4", later).await, Ok(None));
    });
}

/// What has expired is as if it were not there, whoever asks.
#[test]
fn an_expired_key_is_gone_for_every_operation() {
    on_every_index(async |session| {
        let past = SetOptions {
            expiry: Expiry::AtMs(PAST_MS),
            ..SetOptions::default()
        };
        let expire = async |session: &mut Session| {
            session.set(KEY, b"old", past).await.expect("there is room");
        };
        expire(session).await;
        assert_eq!(value(session).await, None);
        assert_eq!(session.touch(KEY).await, Ok(false));
        assert_eq!(session.stored_bytes(KEY).await, Ok(None));
        assert_eq!(expiry_ms(session).await, None);
        assert_eq!(session.delete(KEY).await, Ok(false));
        expire(session).await;
        assert_eq!(session.take(KEY).await, Ok(None));
        expire(session).await;
        assert_eq!(
            set(session, b"1", Condition::IfPresent, true).await,
            outcome(false, None)
        );
        assert_eq!(set(session, b"1", Condition::Always, true).await, outcome(true, None));
        expire(session).await;
        assert_eq!(set(session, b"2", Condition::IfAbsent, true).await, outcome(true, None));
        assert_eq!(value(session).await.as_deref(), Some(&b"2"[..]));
    });
}

#[test]
fn a_key_is_altered_as_it_is_decided() {
    on_every_index(async |session| {
        let mut alter = async |alteration: Alteration<'static>| {
            let mut seen = None;
            let decide = |stored: Option<(&[u8], u64)>| {
                seen = stored.map(|(value, expiry_ms)| (value.to_vec(), expiry_ms));
                alteration
            };
            session.alter(KEY, decide).await.expect("there is room");
            seen
        };
        let later = Expiry::AtMs(LATER_MS);
        assert_eq!(alter(Alteration::Keep).await, None);
        assert_eq!(alter(Alteration::Expire(later)).await, None);
        assert_eq!(alter(Alteration::Delete).await, None);
        let (value, expiry) = (&b"1"[..], later);
        assert_eq!(alter(Alteration::Put { value, expiry }).await, None);
        assert_eq!(
            alter(Alteration::Expire(Expiry::Never)).await,
            Some((b"1".to_vec(), LATER_MS))
        );
        assert_eq!(alter(Alteration::Expire(later)).await, Some((b"1".to_vec(), 0)));
        let (value, expiry) = (&b"2"[..], Expiry::Keep);
        assert_eq!(
            alter(Alteration::Put { value, expiry }).await,
            Some((b"1".to_vec(), LATER_MS))
        );
        assert_eq!(alter(Alteration::Keep).await, Some((b"2".to_vec(), LATER_MS)));
        assert_eq!(alter(Alteration::Delete).await, Some((b"2".to_vec(), LATER_MS)));
        assert_eq!(alter(Alteration::Keep).await, None);
        let expiry = Expiry::AtMs(PAST_MS);
        assert_eq!(alter(Alteration::Put { value, expiry }).await, None);
        assert_eq!(alter(Alteration::Keep).await, None);
    });
}
