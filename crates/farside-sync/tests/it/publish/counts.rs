//! What schemes count, and what they make of it: how often writes went which way, and which keys are hot.

use farside_sync::CreditOptions;

use super::*;

/// `clients` updates at once, from compute nodes that know nothing yet.
#[test]
fn each_way_that_a_write_can_go_is_counted() {
    for (scheme, name) in Scheme::named() {
        for clients in 1..=8 {
            let others = clients - 1;
            let overwritten = overwrite_at_once(scheme, false, clients).expect("it has all atomics");
            let none = Combined::default();
            let expected = match name {
                // Who loses twice or more would make a key hot, and is too late for it.
                "cider" | "cider-no-wc" => Combined {
                    missed: clients.saturating_sub(2),
                    ..none
                },
                // One acts alone, and the last for all others.
                "cider-no-ca" if others > 1 => Combined {
                    pessimistic: clients,
                    contended: others,
                    combined: others - 1,
                    batches: 1,
                    members: others,
                    ..none
                },
                "optimistic" | "farside" => none,
                _ => Combined {
                    pessimistic: clients,
                    contended: others,
                    ..none
                },
            };
            assert_eq!(overwritten.combined, expected, "{name}, {clients} clients");
            let retries = match name {
                // Of those who try, one succeeds each time.
                "optimistic" | "cider" | "cider-no-wc" => Some(clients * others / 2),
                "cider-no-ca" => Some(others.min(1)),
                "cas" | "cas-backoff" => None,
                _ => Some(others),
            };
            let is_right = retries.is_none_or(|retries| retries == overwritten.retries);
            assert!(is_right, "{name}, {clients} clients: {} retries", overwritten.retries);
        }
    }
}

/// A client that has credit after `hotness` retries, twice.
fn client(sim: &Sim, scheme: &str, hotness: u32) -> Client {
    let options = SyncOptions {
        credits: CreditOptions { hotness, initial: 36 },
        ..Scheme::by_name(scheme).expect("a scheme").into()
    };
    Client::with(sim, options).expect("it has all atomics")
}

/// CIDER, algorithm 1: two updates that are retried give 36 credits; each update alone takes one, and halves the rest.
#[test]
fn a_key_is_hot_from_its_second_retry_on_until_updates_are_alone() {
    for scheme in ["cider", "cider-no-wc"] {
        let sim = world(false);
        set(&sim, pointer(0, 1));
        let mut client = client(&sim, scheme, 1);
        let (counts, ways) = sim.block_on(async move {
            let mut ways = Vec::new();
            for number in 1..=8 {
                // What it takes to be there is old for the first two.
                let old = if number <= 2 {
                    pointer(100, 1)
                } else {
                    pointer(number - 1, 1)
                };
                ways.push(client.sync.writes_early(TARGET.name));
                let published = client.try_overwrite(old, pointer(number, 1), Intent::Update).await;
                assert_eq!(
                    published,
                    Some(Publish::Replaced {
                        old: pointer(number - 1, 1)
                    })
                );
            }
            assert_eq!(client.cx.retries(), 2);
            assert_eq!(client.sync.credit_bytes(), 0, "what is cold is forgotten");
            (client.sync.combined(), ways)
        });
        // With 36, 17, 8, 3 and 1 left.
        assert_eq!(ways, [true, true, false, false, false, false, false, true], "{scheme}");
        let expected = Combined {
            pessimistic: 5,
            missed: 2,
            ..Combined::default()
        };
        assert_eq!(counts, expected, "{scheme}");
    }
}

/// An update that has written its item before it asks is counted like one that asks.
#[test]
fn an_update_that_writes_early_makes_a_key_hot_too() {
    let sim = world(false);
    set(&sim, pointer(0, 1));
    let mut client = client(&sim, "cider", 1);
    sim.block_on(async move {
        for number in 1..=2 {
            assert!(client.sync.writes_early(TARGET.name));
            let turn = client.sync.early();
            let (old, new) = (pointer(100, 1), pointer(number, 1));
            let published = client.sync.overwrite(&mut client.cx, turn, TARGET, old, new).await;
            assert!(published.expect("the node is there").is_replaced());
            assert_eq!(client.sync.credit_bytes(), 16);
        }
        assert!(!client.sync.writes_early(TARGET.name));
        assert_eq!(client.sync.combined().missed, 2);
    });
}

#[test]
fn who_writes_early_follows_from_the_scheme() {
    let sim = world(false);
    for (scheme, name) in Scheme::named() {
        let client = Client::new(&sim, scheme).expect("it has all atomics");
        let expected = matches!(name, "optimistic" | "farside" | "cider" | "cider-no-wc");
        assert_eq!(client.sync.writes_early(TARGET.name), expected, "{name}");
        assert_eq!(scheme.switches(), matches!(name, "cider" | "cider-no-wc"), "{name}");
        assert_eq!(scheme.combines(), matches!(name, "cider" | "cider-no-ca"), "{name}");
        assert_eq!(
            scheme.needs_locks(),
            !matches!(name, "optimistic" | "farside"),
            "{name}"
        );
    }
}

/// Every key always has credit: what is remembered afterwards is whether an update was alone.
#[test]
fn credit_grows_for_all_that_went_together() {
    for (scheme, alone) in [("cider", 1), ("cider-no-wc", 1), ("cider-no-ca", CLIENTS)] {
        let sim = world(false);
        set(&sim, pointer(CLIENTS, 1));
        let bytes = Rc::new(RefCell::new(Vec::new()));
        for number in 0..CLIENTS {
            let mut client = client(&sim, scheme, 0);
            let bytes = Rc::clone(&bytes);
            client.cx.endpoint().clone().spawn(async move {
                let first = pointer(CLIENTS, 1);
                let published = client.try_overwrite(first, pointer(number, 1), Intent::Update).await;
                assert!(published.is_none_or(Publish::is_replaced));
                bytes.borrow_mut().push(client.sync.credit_bytes());
            });
        }
        sim.run_until_idle();
        let bytes = bytes.take();
        assert_eq!(
            bytes.iter().filter(|&&bytes| bytes == 0).count() as u64,
            alone,
            "{scheme}"
        );
        assert!(bytes.iter().all(|bytes| [0, 16].contains(bytes)), "{scheme}");
    }
}

#[test]
fn counts_add_up() {
    let each = |factor: u64| Combined {
        pessimistic: factor,
        contended: 2 * factor,
        missed: 3 * factor,
        combined: 4 * factor,
        batches: 5 * factor,
        members: 6 * factor,
    };
    assert_eq!(each(2).plus(each(3)), each(5));
    assert_eq!(each(5).since(each(2)), each(3));
}

/// A holder stands still: after a lease the lock is taken from it.
#[test]
fn a_lock_is_taken_from_who_keeps_it() {
    const LEASE_NS: u64 = 200_000;
    for scheme in ["cas", "cas-backoff"] {
        let sim = world(false);
        set(&sim, pointer(0, 1));
        let options = || SyncOptions {
            lease_ns: LEASE_NS,
            ..Scheme::by_name(scheme).expect("a scheme").into()
        };
        let mut holder = Client::with(&sim, options()).expect("it has all atomics");
        let mut next = Client::with(&sim, options()).expect("it has all atomics");
        sim.block_on(async move {
            let pin = holder.epochs.pin();
            let intent = Intent::Update;
            let held = holder
                .sync
                .enter(&mut holder.cx, TARGET, pointer(0, 1), intent, &pin)
                .await;
            assert!(matches!(held, Ok(Entered::Turn(_))));
            let begin_ns = next.cx.endpoint().now_ns();
            let published = next.try_overwrite(pointer(0, 1), pointer(1, 1), intent).await;
            assert_eq!(published, Some(Publish::Replaced { old: pointer(0, 1) }));
            let took_ns = next.cx.endpoint().now_ns() - begin_ns;
            assert!((LEASE_NS..2 * LEASE_NS).contains(&took_ns), "{scheme}: {took_ns} ns");
            drop(held);
        });
    }
}
