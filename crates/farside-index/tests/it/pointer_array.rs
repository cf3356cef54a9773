//! The pointer array whose keys are the numbers of its slots, over the simulated fabric, with every scheme.

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;

use farside_fabric::Endpoint;
use farside_fabric::OpContext;
use farside_fabric::sim::{Sim, SimOptions};
use farside_index::{Addressing, Change, Decision, PointerArray, Tag};
use farside_pool::{FormatOptions, Pool, PoolOptions, open, open_or_format};
use farside_sync::Scheme;

const OPTIONS: PoolOptions = PoolOptions {
    tick_ns: 100_000,
    lease_ns: 20_000_000,
};
const KEY: [u8; 8] = 3_u64.to_le_bytes();
const CLIENTS: u64 = 8;

async fn join(endpoint: Endpoint, scheme: Scheme) -> (PointerArray, OpContext) {
    let mut cx = OpContext::new(endpoint);
    open_or_format(&mut cx, FormatOptions::default())
        .await
        .expect("there is memory");
    let geometry = open(&mut cx).await.expect("it is formatted");
    let pool = Pool::join(&mut cx, geometry, OPTIONS).await.expect("there is room");
    let array = PointerArray::create(&mut cx, pool, scheme.into(), Addressing::Direct, 8).await;
    (array.expect("there is memory"), cx)
}

fn put(value: &[u8]) -> Decision<'_> {
    Decision::Put {
        value: Cow::Borrowed(value),
        expiry_ms: 0,
        tag: Tag::String,
        regardless: true,
    }
}

/// DELETEs and UPDATEs of one key that do not depend on what they find. An UPDATE stores nothing where there is no key.
#[test]
fn a_key_is_deleted_once_whatever_is_stored_meanwhile() {
    for (scheme, name) in Scheme::named() {
        for seed in 0..25 {
            let sim = Sim::new(SimOptions {
                seed,
                jitter_ns: 1_500,
                ..SimOptions::default()
            });
            let _ = sim.add_memory_node(8 << 20);
            let mut members: Vec<_> = (0..CLIENTS)
                .map(|_| {
                    let endpoint = sim.endpoint(sim.add_compute_node());
                    sim.block_on(join(endpoint, scheme))
                })
                .collect();
            let (array, cx) = &mut members[0];
            let stored = sim.block_on(array.change(cx, &KEY, &mut |_| put(b"first")));
            assert_eq!(stored.expect("the node is there"), Change::Inserted);
            let changes = Rc::new(RefCell::new(Vec::new()));
            for (number, (array, mut cx)) in (0..).zip(members) {
                let changes = Rc::clone(&changes);
                cx.endpoint().clone().spawn(async move {
                    let change = if number % 2 == 0 {
                        let mut delete = |_: Option<farside_index::Item<'_>>| Decision::Delete { regardless: true };
                        array
                            .change(&mut cx, &KEY, &mut delete)
                            .await
                            .expect("the node is there")
                    } else {
                        let found = array.update(&mut cx, &KEY, &[number as u8; 8]).await;
                        match found.expect("the node is there") {
                            true => Change::Updated,
                            false => Change::Kept,
                        }
                    };
                    let is_left = array.search(&mut cx, &KEY).await.expect("the node is there").is_some();
                    changes.borrow_mut().push((change, is_left));
                });
            }
            sim.run_until(sim.now_ns() + 5_000_000);
            let changes = changes.take();
            assert_eq!(
                changes.len() as u64,
                CLIENTS,
                "{name}, seed {seed}: everybody has ended"
            );
            let deleted = changes.iter().filter(|(change, _)| *change == Change::Deleted).count();
            assert_eq!(deleted, 1, "{name}, seed {seed}: {changes:?}");
            let last = changes.last().expect("there are some");
            assert!(!last.1, "{name}, seed {seed}: the key is gone");
        }
    }
}
