//! Keys as locks, in the simulator: set if absent, deleted and extended only by who knows the value.
//!
//! What it verifies, for each seed:
//! - never two holders at once, however many try and however they are delayed;
//! - nobody but the holder deletes or extends; a holder whose time ran out is told so;
//! - an increment by [`Session::alter`] is never lost.
//!
//! What it does not verify: that everybody gets the lock in the end.

use std::cell::Cell;
use std::rc::Rc;

use farside_fabric::Endpoint;
use farside_fabric::sim::{Sim, SimOptions};
use farside_kv::{Alteration, Condition, Expiry, IndexKind, Session, SetOptions, Store, StoreConfig};

const CLIENTS: u64 = 4;
const ROUNDS: u64 = 30;
const INDEXES: [IndexKind; 2] = [IndexKind::PointerArray, IndexKind::Race];

fn config(index: IndexKind) -> StoreConfig {
    StoreConfig {
        index: Some(index),
        ..StoreConfig::default()
    }
}

#[derive(Default)]
struct World {
    /// Who believes to be the holder.
    holder: Cell<Option<u64>>,
    ended: Cell<u64>,
    held: Cell<u64>,
}

fn free(expiry: Expiry) -> SetOptions {
    SetOptions {
        condition: Condition::IfAbsent,
        expiry,
        returns_old: false,
    }
}

async fn increment(session: &mut Session) {
    let mut next = [0; 8];
    // The value that is stored must live as long as the attempt: read, then store if nobody was quicker.
    loop {
        let before = session.get(b"count").await.expect("get").map(<[u8]>::to_vec);
        let number = before.as_deref().map_or(0, |bytes| {
            u64::from_le_bytes(bytes.try_into().expect("eight bytes were stored"))
        });
        next.copy_from_slice(&(number + 1).to_le_bytes());
        let mut is_stored = false;
        let altered = session.alter(b"count", |stored| {
            is_stored = stored.map(|(value, _)| value) == before.as_deref();
            match is_stored {
                true => Alteration::Put {
                    value: &next,
                    expiry: Expiry::Never,
                },
                false => Alteration::Keep,
            }
        });
        altered.await.expect("alter");
        if is_stored {
            return;
        }
    }
}

async fn work(endpoint: Endpoint, index: IndexKind, number: u64, world: Rc<World>) {
    let store = Store::open(endpoint.clone(), config(index)).await.expect("a store");
    let mut session = store.session();
    let token = number.to_le_bytes();
    let other = (number + 1).to_le_bytes();
    for _ in 0..ROUNDS {
        increment(&mut session).await;
        let late = Expiry::AtMs(endpoint.unix_ms() + 1_000_000);
        let outcome = session.set(b"lock", &token, free(late)).await.expect("set");
        if !outcome.is_stored {
            // It is not ours: whoever has it, it stays.
            assert_ne!(session.delete_if_equal(b"lock", &token).await, Ok(Some(true)));
            assert_ne!(session.expire_if_equal(b"lock", &token, late).await, Ok(Some(true)));
            endpoint.sleep(endpoint.random_below(30_000)).await;
            continue;
        }
        assert_eq!(world.holder.replace(Some(number)), None, "two holders");
        world.held.set(world.held.get() + 1);
        assert_eq!(session.delete_if_equal(b"lock", &other).await, Ok(Some(false)));
        assert_eq!(
            session.expire_if_equal(b"lock", &token, Expiry::Never).await,
            Ok(Some(true))
        );
        assert_eq!(session.get_with_expiry(b"lock").await, Ok(Some((&token[..], 0))));
        endpoint.sleep(endpoint.random_below(50_000)).await;
        assert_eq!(world.holder.take(), Some(number));
        assert_eq!(session.delete_if_equal(b"lock", &token).await, Ok(Some(true)));
    }
    store.close().await.expect("close");
    world.ended.set(world.ended.get() + 1);
}

#[test]
fn there_is_one_holder_at_a_time() {
    for (index, seed) in INDEXES
        .into_iter()
        .flat_map(|index| (1..=10).map(move |seed| (index, seed)))
    {
        let sim = Sim::new(SimOptions {
            seed,
            ..SimOptions::default()
        });
        let _ = sim.add_memory_node(16 << 20);
        let world = Rc::new(World::default());
        for number in 0..CLIENTS {
            let endpoint = sim.endpoint(sim.add_compute_node());
            endpoint.spawn(work(endpoint.clone(), index, number, Rc::clone(&world)));
        }
        let deadline = sim.now_ns() + 1_000_000_000;
        while world.ended.get() < CLIENTS {
            sim.run_until(sim.now_ns() + 1_000_000);
            assert!(
                sim.now_ns() < deadline,
                "{index:?}, seed {seed}: the clients do not come to an end"
            );
        }
        assert!(
            world.held.get() > 1,
            "{index:?}, seed {seed}: nobody ever held the lock"
        );
        let endpoint = sim.endpoint(sim.add_compute_node());
        sim.block_on(async move {
            let store = Store::open(endpoint, config(index)).await.expect("a store");
            let mut session = store.session();
            let count = session.get(b"count").await.expect("get");
            assert_eq!(
                count,
                Some(&(CLIENTS * ROUNDS).to_le_bytes()[..]),
                "{index:?}, seed {seed}"
            );
            store.close().await.expect("close");
        });
    }
}

#[test]
fn a_time_in_the_past_removes_the_key() {
    INDEXES.into_iter().for_each(in_the_past_on);
}

fn in_the_past_on(index: IndexKind) {
    let sim = Sim::new(SimOptions::default());
    let _ = sim.add_memory_node(16 << 20);
    let endpoint = sim.endpoint(sim.add_compute_node());
    sim.block_on(async move {
        let store = Store::open(endpoint, config(index)).await.expect("a store");
        let mut session = store.session();
        for round in 0..3 {
            session.put(b"k", b"v").await.expect("put");
            assert_eq!(session.stored_bytes(b"k").await, Ok(Some(26)));
            let past = Expiry::AtMs(1);
            match round {
                0 => session.alter(b"k", |_| Alteration::Expire(past)).await.expect("alter"),
                1 => {
                    let put = Alteration::Put {
                        value: b"w",
                        expiry: past,
                    };
                    session.alter(b"k", |_| put).await.expect("alter");
                }
                _ => assert_eq!(session.expire_if_equal(b"k", b"v", past).await, Ok(Some(true))),
            }
            assert_eq!(session.count().await, Ok(0), "round {round}");
        }
        assert_eq!(session.expire_if_equal(b"k", b"v", Expiry::Never).await, Ok(None));
        assert_eq!(session.delete_if_equal(b"k", b"v").await, Ok(None));
    });
}
