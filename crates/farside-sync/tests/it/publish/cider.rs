//! What CIDER's paper leaves open: versions that come round or are wrong, a DELETE and what comes behind it, an executor that
//! loses, clients that die in the middle of a batch.

use farside_fabric::sim::CrashPoint;

use super::*;

/// How long a lock is held at most.
const LEASE_NS: u64 = 200_000;

fn scheme() -> Scheme {
    Scheme::by_name("cider-no-ca").expect("a scheme")
}

fn client(sim: &Sim) -> Client {
    let endpoint = sim.endpoint(sim.add_compute_node());
    let options = SyncOptions {
        lease_ns: LEASE_NS,
        ..scheme().into()
    };
    Client {
        sync: Synchroniser::new(&endpoint, options).expect("it has all atomics"),
        cx: OpContext::new(endpoint),
        epochs: Rc::default(),
    }
}

/// The pointer of an empty slot behind this one, and of the entry that comes into it next.
fn emptied(old: Pointer) -> Pointer {
    Pointer::NULL.with_version(old.version().wrapping_add(1))
}

fn version_of_lock(sim: &Sim) -> u64 {
    let mut word = [0; 8];
    sim.region(NodeId::new(0)).read(TARGET.lock.offset(), &mut word);
    u64::from_le_bytes(word) >> 60
}

#[test]
fn a_delete_goes_on_to_the_next_version() {
    let sim = world(false);
    set(&sim, pointer(1, 1));
    let mut one = client(&sim);
    let deleted = sim.block_on(async move {
        let old = pointer(1, 1);
        one.try_overwrite(old, emptied(old), Intent::Delete).await
    });
    assert_eq!(deleted, Some(Publish::Replaced { old: pointer(1, 1) }));
    assert_eq!((now(&sim), version_of_lock(&sim)), (emptied(pointer(1, 1)), 1));
    // Who has seen what was there before is turned away, and has a look.
    let mut late = client(&sim);
    let lost = sim.block_on(async move { late.try_overwrite(pointer(1, 1), pointer(2, 1), Intent::Update).await });
    let current = emptied(pointer(1, 1));
    assert_eq!(lost, Some(Publish::Lost { current }));
    // An INSERT later the version fits again.
    set(&sim, pointer(3, 3));
    let mut next = client(&sim);
    let endpoint = next.cx.endpoint().clone();
    let updated = sim.block_on(async move { next.try_overwrite(pointer(3, 3), pointer(4, 3), Intent::Update).await });
    assert_eq!(updated, Some(Publish::Replaced { old: pointer(3, 3) }));
    assert_eq!(endpoint.counters().snapshot().verbs.total(), 3, "enter, swap, leave");
}

/// Updates that queue up in front of a DELETE go with it, and those behind it find the key gone.
#[test]
fn a_delete_is_the_last_of_its_queue() {
    for jitter_ns in [0, 300, 3_000] {
        for seed in 0..40 {
            let sim = Sim::new(SimOptions {
                seed,
                jitter_ns,
                ..SimOptions::default()
            });
            let _ = sim.add_memory_node(1 << 16);
            let old = pointer(20, 1);
            set(&sim, old);
            let answers = Rc::new(RefCell::new(Vec::new()));
            for number in 0..10_u64 {
                let (mut client, answers) = (client(&sim), Rc::clone(&answers));
                let endpoint = client.cx.endpoint().clone();
                endpoint.clone().spawn(async move {
                    endpoint.sleep(number * 200).await;
                    let is_delete = number == 5;
                    let (new, intent) = if is_delete {
                        (emptied(old), Intent::Delete)
                    } else {
                        (pointer(number, 1), Intent::Update)
                    };
                    let answer = client.try_overwrite(old, new, intent).await;
                    answers.borrow_mut().push((is_delete, answer));
                });
            }
            sim.run_until(LEASE_NS);
            let answers = answers.take();
            assert_eq!(answers.len(), 10, "nobody waits for a lease");
            for (is_delete, answer) in answers {
                match answer {
                    Some(Publish::Lost { current }) => {
                        assert!(!is_delete);
                        assert_eq!(current, emptied(old));
                    }
                    // The DELETE has acted itself.
                    None => assert!(!is_delete),
                    Some(Publish::Replaced { .. }) => {}
                }
            }
            assert_eq!(now(&sim), emptied(old), "what is deleted stays so");
            assert_eq!(version_of_lock(&sim), 1);
        }
    }
}

/// A DELETE that has died between the entry and the pointer has left a version that no pointer has.
#[test]
fn a_wrong_version_is_set_right() {
    let sim = world(false);
    set(&sim, pointer(1, 1));
    sim.region(NodeId::new(0))
        .write(TARGET.lock.offset(), &(5_u64 << 60).to_le_bytes());
    let mut one = client(&sim);
    let updated = sim.block_on(async move { one.try_overwrite(pointer(1, 1), pointer(2, 1), Intent::Update).await });
    assert_eq!(updated, Some(Publish::Replaced { old: pointer(1, 1) }));
    assert_eq!(version_of_lock(&sim), 0);
}

/// After 16 DELETEs the version of the entry is what a sleeper saw. It enters the queue of another key, between others of
/// that key, and neither acts for them nor is told what they have done.
#[test]
fn a_version_that_has_come_round_combines_nobody() {
    for seed in 0..60 {
        let sim = Sim::new(SimOptions {
            seed,
            jitter_ns: 2_000,
            ..SimOptions::default()
        });
        let _ = sim.add_memory_node(1 << 16);
        let (before, after) = (pointer(20, 1), pointer(21, 33));
        set(&sim, after);
        let ended = Rc::new(RefCell::new(0));
        for number in 0..9_u64 {
            let (mut client, ended) = (client(&sim), Rc::clone(&ended));
            let endpoint = client.cx.endpoint().clone();
            endpoint.clone().spawn(async move {
                endpoint.sleep(number * 150).await;
                if number % 3 == 1 {
                    let lost = client.try_overwrite(before, pointer(number, 1), Intent::Update).await;
                    let current = match lost {
                        Some(Publish::Lost { current }) => current,
                        other => panic!("seed {seed}: a sleeper was told {other:?}"),
                    };
                    assert!(current.has_identity_of(after));
                } else {
                    let updated = client.try_overwrite(after, pointer(number, 33), Intent::Update).await;
                    assert!(updated.is_none_or(Publish::is_replaced), "seed {seed}: {updated:?}");
                }
                *ended.borrow_mut() += 1;
            });
        }
        sim.run_until(LEASE_NS);
        assert_eq!(*ended.borrow(), 9, "seed {seed}: nobody waits for a lease");
        assert!(now(&sim).has_identity_of(after));
    }
}

/// Somebody who goes the optimistic way is quicker than the holder again and again: the holder tries again, in its turn.
#[test]
fn an_executor_that_loses_tries_again() {
    let sim = world(false);
    set(&sim, pointer(0, 1));
    let stop = Rc::new(RefCell::new(false));
    let (mut quick, stopped) = (
        Client::new(&sim, Scheme::Optimistic).expect("it needs nothing"),
        Rc::clone(&stop),
    );
    quick.cx.endpoint().clone().spawn(async move {
        let mut expected = pointer(0, 1);
        for number in 0..200 {
            if *stopped.borrow() {
                break;
            }
            let new = pointer(100 + number, 1);
            match quick.try_overwrite(expected, new, Intent::Update).await {
                Some(Publish::Replaced { .. }) => expected = new,
                Some(Publish::Lost { current }) => expected = current,
                None => unreachable!("nobody acts for it"),
            }
        }
    });
    let mut slow = client(&sim);
    let (answer, retries) = sim.block_on(async move {
        slow.cx.endpoint().clone().sleep(20_000).await;
        let answer = slow.try_overwrite(pointer(0, 1), pointer(1, 1), Intent::Update).await;
        *stop.borrow_mut() = true;
        (answer, slow.cx.retries())
    });
    assert!(answer.is_some_and(Publish::is_replaced));
    assert!(retries > 0);
}

/// A client of a batch dies after each of its verbs in turn, whatever its part in the batch. Everybody else comes to an end,
/// and the last pointer is of somebody who has acted, or may have.
#[test]
fn a_batch_goes_on_when_one_of_it_dies() {
    const MEMBERS: u64 = 6;
    let mut resets = 0;
    for victim in 0..MEMBERS {
        for verb in 1..=8 {
            let sim = world(false);
            let old = pointer(20, 1);
            set(&sim, old);
            let acted = Rc::new(RefCell::new(Vec::new()));
            let ended = Rc::new(RefCell::new(0));
            for number in 0..MEMBERS {
                let (mut client, acted, ended) = (client(&sim), Rc::clone(&acted), Rc::clone(&ended));
                let endpoint = client.cx.endpoint().clone();
                if number == victim {
                    sim.crash_client_at(endpoint.id(), CrashPoint { verb, lines: None });
                }
                endpoint.spawn(async move {
                    let mut expected = old;
                    loop {
                        match client.try_overwrite(expected, pointer(number, 1), Intent::Update).await {
                            Some(Publish::Replaced { .. }) => break acted.borrow_mut().push(number),
                            Some(Publish::Lost { current }) => expected = current,
                            None => break,
                        }
                    }
                    *ended.borrow_mut() += 1;
                });
            }
            sim.run_until(40 * LEASE_NS);
            let what = format!("client {victim} dies at its verb {verb}");
            assert!(*ended.borrow() >= MEMBERS - 1, "{what}: {ended:?} came to an end");
            let last = (0..MEMBERS).find(|&number| now(&sim) == pointer(number, 1));
            let last = last.unwrap_or_else(|| panic!("{what}: somebody has acted"));
            assert!(acted.borrow().contains(&last) || last == victim, "{what}");
            let mut epoch = [0; 8];
            sim.region(NodeId::new(0)).read(TARGET.lock.offset() + 8, &mut epoch);
            resets += u64::from_le_bytes(epoch) >> 47 & 1;
        }
    }
    assert!(resets > 10, "{resets} of them had to be reset");
}
