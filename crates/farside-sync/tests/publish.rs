//! Schemes over the simulated fabric: many clients replace one pointer.
//!
//! What it verifies, for each scheme and with masked atomics and without: each pointer that was put in is replaced
//! once, and by one client; who asks for a certain pointer loses if there is another one; who overwrites never changes
//! a slot that has another identity; and what n updates of one key cost.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use farside_fabric::sim::{Profile, Sim, SimOptions};
use farside_fabric::{NodeId, OpContext, RemoteAddr, Spawn};
use farside_sync::{Pointer, Publish, Scheme, SizeHint};

const SLOT: RemoteAddr = RemoteAddr::new(NodeId::new(0), 64);
const CLIENTS: u64 = 16;

/// The pointer of a client's only item, in a slot with this version.
fn pointer(client: u64, version: u8) -> Pointer {
    let block = RemoteAddr::new(NodeId::new(0), 4096 + 32 * client);
    Pointer::new(block, SizeHint::Half, version).with_fingerprint(9)
}

fn world(is_plain: bool) -> Sim {
    let profile = Profile {
        has_masked_atomics: !is_plain,
        ..Profile::default()
    };
    let sim = Sim::new(SimOptions {
        profile,
        ..SimOptions::default()
    });
    let _ = sim.add_memory_node(1 << 16);
    sim
}

fn publish(
    sim: &Sim,
    run: impl AsyncFnOnce(&mut OpContext<farside_fabric::sim::Endpoint>) -> Publish + 'static,
) -> Publish {
    let mut cx = OpContext::new(sim.endpoint(sim.add_compute_node()));
    sim.block_on(async move { run(&mut cx).await })
}

/// All clients overwrite what they found at first; returns how many tried again.
fn overwrite_at_once(scheme: Scheme, is_plain: bool) -> u64 {
    let sim = world(is_plain);
    let first = pointer(CLIENTS, 3);
    sim.region(NodeId::new(0))
        .write(SLOT.offset(), &first.to_word().to_le_bytes());
    let replaced = Rc::new(RefCell::new(Vec::new()));
    let retries = Rc::new(RefCell::new(0));
    for client in 0..CLIENTS {
        let endpoint = sim.endpoint(sim.add_compute_node());
        let (replaced, retries) = (Rc::clone(&replaced), Rc::clone(&retries));
        endpoint.clone().spawn(async move {
            let mut cx = OpContext::new(endpoint);
            let mut expected = first;
            loop {
                let published = scheme.overwrite(&mut cx, SLOT, expected, pointer(client, 3)).await;
                match published.expect("the node is there") {
                    Publish::Replaced { old } => break replaced.borrow_mut().push(old.to_word()),
                    Publish::Lost { current } => expected = current,
                }
            }
            *retries.borrow_mut() += cx.retries();
        });
    }
    sim.run_until_idle();
    let mut word = [0; 8];
    sim.region(NodeId::new(0)).read(SLOT.offset(), &mut word);
    let mut all: BTreeSet<u64> = replaced.borrow().iter().copied().collect();
    assert_eq!(all.len() as u64, CLIENTS, "each is replaced once");
    assert!(all.insert(u64::from_le_bytes(word)), "and the last one is there");
    let expected: BTreeSet<u64> = (0..=CLIENTS).map(|client| pointer(client, 3).to_word()).collect();
    assert_eq!(all, expected);
    *retries.borrow()
}

#[test]
fn updates_of_one_key_are_replaced_once_each() {
    for (scheme, ..) in Scheme::ALL {
        for is_plain in [false, true] {
            let retries = overwrite_at_once(scheme, is_plain);
            let is_swap = scheme == Scheme::Farside && !is_plain;
            assert_eq!(retries == 0, is_swap, "{}: {retries} retries", scheme.name());
        }
    }
}

#[test]
fn another_identity_is_left_alone() {
    for (scheme, ..) in Scheme::ALL {
        for is_plain in [false, true] {
            let sim = world(is_plain);
            let there = pointer(1, 4);
            sim.region(NodeId::new(0))
                .write(SLOT.offset(), &there.to_word().to_le_bytes());
            let (old, new) = (pointer(0, 3), pointer(2, 3));
            let lost = publish(&sim, async move |cx| {
                scheme.overwrite(cx, SLOT, old, new).await.expect("the node is there")
            });
            assert_eq!(lost, Publish::Lost { current: there });
            let frozen = publish(&sim, async move |cx| {
                let freezing = scheme.publish(cx, SLOT, there, there.frozen()).await;
                assert!(freezing.expect("the node is there").is_replaced());
                scheme.overwrite(cx, SLOT, there, new).await.expect("the node is there")
            });
            assert_eq!(
                frozen,
                Publish::Lost {
                    current: there.frozen()
                },
                "it is about to move"
            );
        }
    }
}

#[test]
fn who_wants_a_certain_pointer_notices_another_one() {
    for (scheme, ..) in Scheme::ALL {
        let sim = world(false);
        let there = pointer(1, 3);
        sim.region(NodeId::new(0))
            .write(SLOT.offset(), &there.to_word().to_le_bytes());
        let lost = publish(&sim, async move |cx| {
            let published = scheme.publish(cx, SLOT, pointer(0, 3), pointer(2, 3)).await;
            published.expect("the node is there")
        });
        assert_eq!(lost, Publish::Lost { current: there });
    }
}
