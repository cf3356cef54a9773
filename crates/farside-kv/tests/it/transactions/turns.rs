//! Transactions of one thread's clients that are in each other's way.

use std::cell::Cell;
use std::rc::Rc;

use farside_kv::{IndexKind, KvError, TransactionError};
use farside_sync::Scheme;

use super::{ACCOUNTS, START, alone, config, open_accounts, sum, transfer};

/// Sixteen clients of a thread want the same keys all the time: who was overtaken once waits for its turn, and is not overtaken
/// again.
#[test]
fn those_who_are_in_each_others_way_take_turns() {
    const CLIENTS: u64 = 16;
    const TRANSFERS: u64 = 25;
    for (index, ..) in IndexKind::ALL {
        alone(config(index, Scheme::Farside), async move |mut session| {
            open_accounts(&mut session).await;
            let store = session.store().clone();
            let (ended, retries) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
            for _ in 0..CLIENTS {
                let (mut session, ended, retries) = (store.session(), Rc::clone(&ended), Rc::clone(&retries));
                store.endpoint().spawn(async move {
                    for _ in 0..TRANSFERS {
                        transfer(&mut session, 0, 1, 1).await.expect("no fault");
                        transfer(&mut session, 1, 0, 1).await.expect("no fault");
                    }
                    retries.set(retries.get() + session.retries());
                    ended.set(ended.get() + 1);
                });
            }
            while ended.get() < CLIENTS {
                store.endpoint().sleep(10_000).await;
            }
            assert_eq!(sum(&mut session).await, ACCOUNTS * START);
            let (transfers, retries) = (2 * CLIENTS * TRANSFERS, retries.get());
            assert!(
                retries < transfers / 10,
                "{index:?}: {retries} attempts of {transfers} in vain"
            );
        });
    }
}

/// Others store the key all the time, so that nobody who has a turn comes to an end before time is up.
#[test]
fn who_waits_for_a_turn_is_told_when_time_is_up() {
    const CLIENTS: u64 = 6;
    const TIMEOUT_NS: u64 = 10_000_000;
    let mut config = config(IndexKind::Race, Scheme::Farside);
    config.timeout_ns = Some(TIMEOUT_NS);
    alone(config, async |mut session| {
        open_accounts(&mut session).await;
        let store = session.store().clone();
        let (ended, told) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        for _ in 0..4 {
            let (mut session, ended) = (store.session(), Rc::clone(&ended));
            store.endpoint().spawn(async move {
                while ended.get() < CLIENTS {
                    session.put(b"account 0", &START.to_le_bytes()).await.expect("no fault");
                }
            });
        }
        let begin_ns = store.endpoint().now_ns();
        for client in 0..CLIENTS {
            let (mut session, ended, told) = (store.session(), Rc::clone(&ended), Rc::clone(&told));
            store.endpoint().spawn(async move {
                // All but the first find that a turn is taken.
                session.store().endpoint().sleep(client * 100_000).await;
                let error = transfer(&mut session, 0, 1, 1).await.expect_err("others are quicker");
                // Time may be up between two verbs, or within one.
                let contended = KvError::from(TransactionError::Contended { rounds: 0 });
                told.set(told.get() + u64::from(error == contended));
                ended.set(ended.get() + 1);
            });
        }
        while ended.get() < CLIENTS {
            store.endpoint().sleep(10_000).await;
        }
        assert!(told.get() > 0, "some had no turn");
        // Time begins with the first conflict.
        let took_ns = store.endpoint().now_ns() - begin_ns;
        assert!(took_ns < 3 * TIMEOUT_NS, "{took_ns}");
    });
}
