//! Small scopes in every order: see `farside_sim::small_scope`.

use farside_index::tree::Structure;
use farside_index::{IndexKind, TreeKind};
use farside_lock::LockKind;
use farside_lock::Mode::{self, Exclusive, Shared};
use farside_pool::PoolOptions;
use farside_sim::history::Call::{self, Add, Delete, Get, Insert, Put, Update};
use farside_sim::small_scope::{self, Events, LockScope, Orders, Scope, StoreScope};
use farside_sync::Scheme;

/// Every call that changes something, and one that does not.
const CALLS: [Call; 6] = [Get, Put(1), Insert(2), Update(3), Delete, Add(4)];

/// More than any of these needs; a run beyond it is no longer exhaustive.
const LIMIT: u64 = 200_000;
/// Explores a store of clients that do this; returns how many orders there were.
fn store(kind: (IndexKind, Scheme), calls: &[Vec<Call>], orders: Orders, with_crash: bool) -> u64 {
    let explored = small_scope::store(kind, calls, orders, with_crash, LIMIT);
    assert!(explored.is_complete, "{kind:?}: {calls:?}");
    explored.runs
}

/// Each index with each scheme. An array that is addressed by hash takes no locks, whatever its scheme; and what locks do does
/// not depend on the index, so one more with one of them says enough.
fn stores() -> Vec<((IndexKind, Scheme), String)> {
    let stores = IndexKind::ALL.into_iter().flat_map(|(index, name, _)| {
        let schemes = Scheme::ALL.into_iter();
        let schemes = schemes.filter(move |(scheme, ..)| match index {
            _ if !scheme.needs_locks() => true,
            IndexKind::Race => true,
            IndexKind::Chime => scheme.combines(),
            _ => false,
        });
        schemes.map(move |(scheme, scheme_name, _)| ((index, scheme), format!("{name}/{scheme_name}")))
    });
    stores.collect()
}

#[test]
fn two_clients_on_one_key_in_every_order() {
    for (kind, name) in stores() {
        let orders = match kind.0 {
            // Who deletes looks behind: too many verbs for every order.
            IndexKind::Smart => Orders::Switches(3),
            _ => Orders::All,
        };
        let mut runs = 0;
        for (place, &first) in CALLS.iter().enumerate() {
            // Which of the two is the first client is no matter.
            for &second in &CALLS[place..] {
                runs += store(kind, &[vec![first], vec![second]], orders, false);
            }
        }
        println!("{name}: {runs} orders of two operations on one key");
    }
}

/// Operations of two buckets take too many verbs for every order.
#[test]
fn a_client_that_crashes_anywhere_beside_another() {
    for (kind, name) in stores() {
        let orders = match kind.0 {
            IndexKind::PointerArray => Orders::All,
            _ => Orders::Switches(1),
        };
        let mut runs = 0;
        for first in [Put(1), Delete, Add(4)] {
            for second in [Put(1), Get, Delete] {
                runs += store(kind, &[vec![first], vec![second, Get]], orders, true);
            }
        }
        println!("{name}: {runs} orders with a crash");
    }
}

#[test]
fn three_clients_on_one_key_in_orders_of_few_switches() {
    for (kind, name) in stores() {
        for calls in [
            [Put(1), Put(2), Get],
            [Delete, Insert(1), Get],
            [Add(1), Add(2), Delete],
        ] {
            let calls = calls.map(|call| vec![call]);
            let runs = store(kind, &calls, Orders::Switches(2), false);
            println!("{name}: {calls:?}: {runs} orders");
        }
    }
}

#[test]
fn values_are_written_in_place_in_orders_of_few_switches() {
    let explore = |calls: &[Vec<Call>], orders, with_crash| {
        for is_plain in [false, true] {
            let explored = small_scope::in_place(calls, orders, (is_plain, with_crash), LIMIT);
            assert!(explored.is_complete, "{calls:?}");
            println!("{calls:?}, plain {is_plain}: {} orders", explored.runs);
        }
    };
    for second in [Update(2), Put(2), Delete, Get] {
        explore(&[vec![Update(1)], vec![second, Get]], Orders::Switches(3), false);
        explore(&[vec![Update(1), Get], vec![second, Get]], Orders::Switches(2), true);
        explore(
            &[vec![Update(1)], vec![second], vec![Delete, Put(3)]],
            Orders::Switches(2),
            false,
        );
    }
}

/// A lock that clients take in these modes.
fn modes_of(kind: LockKind, clients: &[&[Mode]], orders: Orders) -> LockScope {
    LockScope {
        kind,
        clients: clients.iter().map(|modes| modes.to_vec()).collect(),
        orders,
        patience_ns: None,
        with_crash: false,
    }
}

#[test]
fn locks_in_every_order_as_far_as_there_is_time() {
    for (kind, name, _) in LockKind::ALL {
        let two: [&[Mode]; 2] = [&[Exclusive, Exclusive], &[Exclusive, Exclusive]];
        let two = small_scope::lock(&modes_of(kind, &two, Orders::All), 5_000);
        let three: [&[Mode]; 3] = [&[Exclusive], &[Exclusive], &[Exclusive]];
        let three = small_scope::lock(&modes_of(kind, &three, Orders::All), 5_000);
        println!("{name}: two clients {two:?}, three {three:?}");
        for explored in [two, three] {
            // A lock that sleeps while it waits has few orders: time stands still as long as anybody works.
            assert!(explored.is_complete || explored.runs > 1_000);
            assert!(explored.runs > 5);
        }
    }
}

/// Readers and writers take turns: a lock changes its mode all the time.
#[test]
fn locks_that_change_their_mode_in_orders_of_few_switches() {
    for (kind, name, _) in LockKind::ALL.into_iter().filter(|(kind, ..)| kind.is_shared()) {
        let clients: [&[Mode]; 3] = [&[Shared, Exclusive], &[Exclusive, Shared], &[Shared, Shared]];
        for orders in [Orders::Switches(2), Orders::Holds(2)] {
            let explored = small_scope::lock(&modes_of(kind, &clients, orders), 20_000);
            println!("{name}: {orders:?}, {explored:?}");
            assert!(explored.is_complete || explored.runs == 20_000);
        }
    }
}

/// Whoever dies holds a lock, waits for it, or is about to hand it over; the others find out, and go on. One of them gives up
/// waiting now and then.
///
/// Without `shiftlock-polling`: two of its clients that wait are never both asleep, so in some of these orders they keep a third
/// one's verb from being served for more than three leases, which ShiftLock assumes no fabric does; the lock is reset under
/// it, as it should be. But for the length of a pause it is `shiftlock`.
#[test]
fn locks_whose_holder_dies_at_any_verb() {
    let is_meant = |kind: LockKind| kind.survives_crashes() && kind != LockKind::ShiftLockPolling;
    for (kind, name) in LockKind::named().filter(|&(kind, _)| is_meant(kind)) {
        let mut runs = 0;
        let writers: [&[Mode]; 3] = [&[Exclusive, Exclusive], &[Exclusive], &[Exclusive]];
        let mixed: [&[Mode]; 3] = [&[Shared, Exclusive], &[Exclusive, Shared], &[Shared]];
        for clients in [writers, mixed] {
            for (orders, patience_ns) in [
                (Orders::Switches(1), None),
                (Orders::Holds(1), None),
                (Orders::Holds(1), Some(PATIENCE_NS)),
            ] {
                let scope = LockScope {
                    patience_ns,
                    with_crash: true,
                    ..modes_of(kind, &clients, orders)
                };
                if kind.is_shared() || clients == writers {
                    let explored = small_scope::lock(&scope, 6_000);
                    assert!(explored.is_complete || explored.runs == 6_000);
                    runs += explored.runs;
                }
            }
        }
        println!("{name}: {runs} orders with a death");
    }
}

/// Shorter than it takes until the dead are found out.
const PATIENCE_NS: u64 = 20_000;

/// So short that epochs pass while somebody reads, and the dead are found out while others work.
const TICK_NS: u64 = 5_000;

/// A store of clients that do this with one key, while time passes.
fn living(index: IndexKind, nodes: u16, clients: &[&[Call]]) -> StoreScope {
    StoreScope {
        kind: (index, Scheme::Farside),
        nodes,
        clients: clients.iter().map(|calls| calls.to_vec()).collect(),
        orders: Orders::Switches(1),
        times: PoolOptions {
            tick_ns: TICK_NS,
            lease_ns: 3 * TICK_NS,
        },
        with_crash: false,
    }
}

/// Explores it in every order with so few switches.
fn live(scope: &StoreScope) -> Events {
    let (explored, events) = small_scope::living_store(scope, LIMIT);
    println!("{scope:?}: {explored:?}, {events:?}");
    assert!(explored.is_complete);
    events
}

/// Each of the two may be an epoch ahead of the other, and either node may be slow.
#[test]
fn blocks_are_used_again_beside_a_reader_that_is_held_back() {
    for index in [IndexKind::PointerArray, IndexKind::Race] {
        let [reader, writer]: [&[Call]; 2] = [&[Get; 12], &[Put(1); 16]];
        for (nodes, clients) in [(1, [reader, writer]), (2, [reader, writer]), (2, [writer, reader])] {
            let mut scope = living(index, nodes, &clients);
            scope.orders = Orders::Holds(1);
            scope.times.lease_ns = 30 * TICK_NS;
            live(&scope);
        }
    }
}

#[test]
fn a_death_is_found_out_beside_a_reader_and_a_writer() {
    for (index, nodes) in [
        (IndexKind::PointerArray, 1),
        (IndexKind::PointerArray, 2),
        (IndexKind::Race, 2),
    ] {
        let mut scope = living(index, nodes, &[&[Put(1), Delete, Put(2)], &[Put(3); 6], &[Get; 6]]);
        scope.orders = Orders::Holds(1);
        scope.with_crash = true;
        let events = live(&scope);
        assert!(events.deaths > 0);
    }
}

/// Writers queue up, one of them acts for the others, and one of them dies.
#[test]
fn batches_of_writers_in_orders_of_few_switches() {
    for with_crash in [false, true] {
        let mut scope = living(IndexKind::Race, 1, &[&[Put(1)], &[Put(2)], &[Put(3)]]);
        scope.kind.1 = Scheme::by_name("cider-no-ca").expect("it is listed");
        scope.times = PoolOptions {
            tick_ns: 10 * TICK_NS,
            lease_ns: 30 * TICK_NS,
        };
        scope.orders = Orders::Switches(if with_crash { 1 } else { 2 });
        scope.with_crash = with_crash;
        let events = live(&scope);
        assert!(events.combined > 0 && (events.deaths > 0) == with_crash);
    }
}

/// Explores a tree in which the first client's calls split leaves, or merge them, beside another client; each order with
/// so few switches, and with a death after each verb.
fn tree(before: &[(u64, Call)], clients: [&[(u64, Call)]; 2], changes: fn(Structure) -> u64) {
    // Locks are the same in both trees: masked atomics in one, plain ones in the other.
    let trees = [
        (TreeKind::Chime, false),
        (TreeKind::Sherman, true),
        (TreeKind::Rolex, false),
    ];
    for (kind, is_plain) in trees {
        for with_crash in [false, true] {
            let scope = Scope {
                kind,
                is_plain,
                before: before.to_vec(),
                clients: clients.map(<[_]>::to_vec).to_vec(),
                switches: if with_crash { 1 } else { 2 },
                with_crash,
            };
            let (explored, structure) = small_scope::tree(&scope, LIMIT);
            println!("{kind:?}, plain {is_plain}, crash {with_crash}: {explored:?}, {structure:?}");
            assert!(explored.is_complete);
            assert!(changes(structure) > 0 && (!with_crash || structure.settled > 0));
        }
    }
}

#[test]
fn leaves_that_split_in_orders_of_few_switches() {
    let before: Vec<(u64, Call)> = (0..4).map(|key| (key, Put(key))).collect();
    for other in [Get, Update(9), Delete] {
        let first = [(4, Insert(4)), (5, Insert(5))];
        tree(&before, [&first, &[(1, other), (3, other)]], |structure| {
            structure.splits
        });
    }
}

#[test]
fn leaves_that_merge_in_orders_of_few_switches() {
    let before: Vec<(u64, Call)> = (0..6).map(|key| (key, Put(key))).collect();
    for other in [Get, Update(9), Insert(9)] {
        let first = [(1, Delete), (2, Delete), (4, Delete), (5, Delete)];
        tree(&before, [&first, &[(0, other), (3, other)]], |structure| {
            structure.merges
        });
    }
}
