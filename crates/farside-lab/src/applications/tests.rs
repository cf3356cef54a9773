//! A row that was changed in the store behind the application's back is found after the next round.

use super::client::Client;
use super::*;
use crate::stage::machine::on_this_thread;

const SITE: SiteOptions = SiteOptions {
    fabric: FabricKind::Shm,
    index: IndexKind::Race,
};

/// Lets clients work, changes the first row of a table, and asks the audit. `change` says what becomes of a value: `None` is
/// removed.
fn told<A: Application>(application: A, table: u8, change: fn(Vec<u8>) -> Option<Vec<u8>>) -> String
where
    A::Client: Client,
{
    let mut site = Site::start(application, SITE, &Progress::hidden()).expect("a store");
    site.measure(3, Limit::Transactions(20)).expect("nobody is in the way");
    site.check().expect("everything is in order");
    on_this_thread(async {
        let store = site.open().await.expect("the store");
        let mut session = store.session();
        let (mut key, mut cursor) = (None, 0);
        while key.is_none() {
            let (keys, next) = session.scan_keys(cursor).await.expect("keys");
            key = keys.into_iter().find(|key| key[0] == table);
            cursor = next;
            assert!(key.is_some() || next != 0, "the table has rows");
        }
        let key = key.expect("it was found");
        let value = session.get(&key).await.expect("a value").expect("a row").to_vec();
        match change(value) {
            Some(value) => session.put(&key, &value).await.expect("stored"),
            None => assert!(session.delete(&key).await.expect("removed")),
        }
        drop(session);
        store.close().await.expect("closed");
    })
    .expect("an event loop");
    let error = site.check().expect_err("somebody has changed a row");
    site.stop();
    assert!(matches!(error, BenchError::Unsound(_)), "{error}");
    let text = error.to_string();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

#[test]
fn a_call_forwarding_that_is_gone_is_found() {
    let text = told(Tatp::new(50, 1), 5, |_| None);
    assert!(text.contains("call forwardings; there were"), "{text}");
}

#[test]
fn a_cent_that_is_gone_is_found() {
    let text = told(Smallbank::new(50, 1), 1, |mut value| {
        value[0] ^= 1;
        Some(value)
    });
    assert!(text.contains("all accounts together hold"), "{text}");
}

#[test]
fn a_line_and_a_cent_that_are_gone_are_found() {
    let cardinality = || Cardinality {
        items: 20,
        customers: 10,
        ..Cardinality::of(1)
    };
    let text = told(TpcC::new(cardinality(), 1), 7, |_| None);
    assert!(text.contains("stock was ordered"), "{text}");
    // The last field of a warehouse is what it has taken.
    let text = told(TpcC::new(cardinality(), 1), 1, |mut value| {
        let last = value.len() - 8;
        value[last] ^= 1;
        Some(value)
    });
    assert!(text.contains("condition 1"), "{text}");
    let text = told(TpcC::new(cardinality(), 1), 1, |mut value| {
        value.pop();
        Some(value)
    });
    assert!(text.contains("a warehouse of 92 bytes was read"), "{text}");
}
