//! Schemes over the simulated fabric: many clients replace one pointer.
//!
//! What it verifies, for each scheme and with masked atomics and without: each pointer that was put in is replaced
//! once, and by one client; who asks for a certain pointer loses if there is another one; who overwrites never changes
//! a slot that has another identity; and what n updates of one key cost.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use farside_fabric::sim::{Profile, Sim, SimOptions};
use farside_fabric::{CounterSnapshot, NodeId, OpContext, RemoteAddr, VerbKind};
use farside_lock::LockKind;
use farside_pool::epoch::Epochs;
use farside_sync::{Combined, Entered, Intent, Pointer, Publish, Scheme, SizeHint, SyncOptions, Synchroniser, Target};

const TARGET: Target = Target {
    slot: RemoteAddr::new(NodeId::new(0), 64),
    lock: RemoteAddr::new(NodeId::new(0), 128),
    name: 7,
};
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

fn set(sim: &Sim, pointer: Pointer) {
    let word = pointer.to_word().to_le_bytes();
    sim.region(NodeId::new(0)).write(TARGET.slot.offset(), &word);
}

fn now(sim: &Sim) -> Pointer {
    let mut word = [0; 8];
    sim.region(NodeId::new(0)).read(TARGET.slot.offset(), &mut word);
    Pointer::from_word(u64::from_le_bytes(word))
}

/// A client on a compute node of its own.
struct Client {
    sync: Synchroniser,
    cx: OpContext,
    epochs: Rc<Epochs>,
}

impl Client {
    /// `None` if the fabric lacks what the scheme needs.
    fn new(sim: &Sim, scheme: Scheme) -> Option<Self> {
        Self::with(sim, scheme.into())
    }

    fn with(sim: &Sim, options: SyncOptions) -> Option<Self> {
        let endpoint = sim.endpoint(sim.add_compute_node());
        Some(Self {
            sync: Synchroniser::new(&endpoint, options).ok()?,
            cx: OpContext::new(endpoint),
            epochs: Rc::default(),
        })
    }

    /// Puts `new` in the place of `old`, once; `None` if another one has acted for it.
    async fn try_overwrite(&mut self, old: Pointer, new: Pointer, intent: Intent) -> Option<Publish> {
        let Self { sync, cx, epochs } = self;
        let pin = epochs.pin();
        match sync
            .enter(cx, TARGET, old, intent, &pin)
            .await
            .expect("the node is there")
        {
            Entered::Turn(turn) => {
                let published = sync.overwrite(cx, turn, TARGET, old, new).await;
                Some(published.expect("the node is there"))
            }
            Entered::Combined => None,
            Entered::Lost { current } => Some(Publish::Lost { current }),
        }
    }
}

/// What all clients posted and counted, and which pointers they have replaced.
struct Overwritten {
    posted: CounterSnapshot,
    retries: u64,
    combined: Combined,
    replaced: Vec<Pointer>,
}

/// `clients` clients overwrite what they found at first, at once; `None` if the fabric lacks what the scheme needs.
fn overwrite_at_once(scheme: Scheme, is_plain: bool, clients: u64) -> Option<Overwritten> {
    let sim = world(is_plain);
    let first = pointer(clients, 1);
    set(&sim, first);
    let replaced = Rc::new(RefCell::new(Vec::new()));
    let retries = Rc::new(RefCell::new(0));
    let combined = Rc::new(RefCell::new(Combined::default()));
    let mut endpoints = Vec::new();
    for number in 0..clients {
        let mut client = Client::new(&sim, scheme)?;
        let endpoint = client.cx.endpoint().clone();
        endpoints.push(endpoint.clone());
        let (replaced, retries, combined) = (Rc::clone(&replaced), Rc::clone(&retries), Rc::clone(&combined));
        endpoint.spawn(async move {
            let mut expected = first;
            loop {
                match client.try_overwrite(expected, pointer(number, 1), Intent::Update).await {
                    Some(Publish::Replaced { old }) => break replaced.borrow_mut().push(old),
                    Some(Publish::Lost { current }) => expected = current,
                    None => break,
                }
            }
            *retries.borrow_mut() += client.cx.retries();
            combined.replace_with(|all| all.plus(client.sync.combined()));
        });
    }
    sim.run_until_idle();
    let posted = endpoints.iter().map(|endpoint| endpoint.counters().snapshot());
    let replaced = replaced.take();
    let mut all: BTreeSet<u64> = replaced.iter().map(|pointer| pointer.to_word()).collect();
    assert_eq!(all.len(), replaced.len(), "each is replaced once");
    assert!(all.insert(now(&sim).to_word()), "and the last one is there");
    assert!(all.contains(&first.to_word()));
    let (retries, combined) = (*retries.borrow(), *combined.borrow());
    Some(Overwritten {
        combined,
        posted: posted.reduce(|sum, one| sum.plus(&one)).expect("there are clients"),
        retries,
        replaced,
    })
}

fn is_wide(scheme: Scheme) -> bool {
    let shiftlocks = [
        LockKind::ShiftLock,
        LockKind::ShiftLockMutex,
        LockKind::ShiftLockPolling,
    ];
    match scheme {
        Scheme::Lock(kind) => shiftlocks.contains(&kind),
        Scheme::Cider(_) => true,
        _ => false,
    }
}

#[test]
fn updates_of_one_key_are_replaced_once_each() {
    for (scheme, name) in Scheme::named() {
        for is_plain in [false, true] {
            let overwritten = overwrite_at_once(scheme, is_plain, CLIENTS);
            assert_eq!(overwritten.is_none(), is_plain && is_wide(scheme), "{name}");
            let Some(overwritten) = overwritten else { continue };
            let combines = name == "cider-no-ca";
            assert_eq!(overwritten.replaced.len() as u64 == CLIENTS, !combines, "{name}");
            // All but the first lose, once each: what comes then never does.
            let is_swap = scheme == Scheme::Farside && !is_plain;
            assert!(!is_swap || overwritten.retries == CLIENTS - 1, "{name}");
        }
    }
}

/// READs, WRITEs, atomics, SENDs.
fn costs(scheme: &str, clients: u64) -> [u64; 4] {
    let scheme = Scheme::by_name(scheme).expect("a scheme");
    let posted = overwrite_at_once(scheme, false, clients)
        .expect("it has all atomics")
        .posted;
    [
        posted.verbs.of(VerbKind::Read),
        posted.verbs.of(VerbKind::Write),
        posted.verbs.atomics(),
        posted.verbs.of(VerbKind::Send),
    ]
}

/// The swap of the pointer, and what a lock adds to it (CIDER, section 3.2: two round trips).
#[test]
fn an_update_alone_costs_a_swap_and_its_lock() {
    for (scheme, cost) in [
        ("optimistic", [0, 0, 1, 0]),
        ("farside", [0, 0, 1, 0]),
        ("cas-backoff", [0, 1, 2, 0]),
        ("cas", [0, 1, 2, 0]),
        ("shiftlock-mutex", [0, 0, 3, 0]),
        ("shiftlock", [0, 0, 3, 0]),
        ("cider", [0, 0, 1, 0]),
        ("cider-no-wc", [0, 0, 1, 0]),
        ("cider-no-ca", [0, 0, 3, 0]),
        ("cider-queue", [0, 0, 3, 0]),
    ] {
        assert_eq!(costs(scheme, 1), cost, "{scheme}");
    }
}

/// Nobody tries more than twice, however many there are.
#[test]
fn an_update_of_farside_costs_two_swaps_at_most() {
    for clients in 1..=CLIENTS {
        assert_eq!(
            costs("farside", clients),
            [0, 0, 2 * clients - 1, 0],
            "{clients} clients"
        );
    }
}

/// Whoever has lost swaps under the identity at once the next time, until it has been alone for a while.
#[test]
fn a_hot_pointer_is_swapped_at_once_until_it_is_cold() {
    let sim = world(false);
    set(&sim, pointer(0, 1));
    let mut client = Client::new(&sim, Scheme::Farside).expect("it has all atomics");
    let retries = sim.block_on(async move {
        let mut retries = Vec::new();
        let mut overwrite = async |old, new| {
            let before = client.cx.retries();
            let published = client.try_overwrite(old, new, Intent::Update).await;
            assert!(published.is_some_and(Publish::is_replaced));
            retries.push(client.cx.retries() - before);
        };
        // It has seen what is there no more.
        overwrite(pointer(9, 1), pointer(1, 1)).await;
        overwrite(pointer(9, 1), pointer(2, 1)).await;
        // Alone, it has less credit each time.
        for number in 2..10 {
            overwrite(pointer(number, 1), pointer(number + 1, 1)).await;
        }
        overwrite(pointer(9, 1), pointer(11, 1)).await;
        retries
    });
    assert_eq!(retries, [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
}

/// CIDER, section 4.2.1. The first one finds nobody behind it, acts, and hands over; the second one is the coordinator of
/// all others: of so many as have queued up until it reads the tail.
#[test]
fn a_batch_costs_what_its_members_pass_on() {
    // Whoever acts after another one swaps twice: what it saw before it queued up is old.
    assert_eq!(costs("cider-no-ca", 2), [0, 0, 2 + 3 + 1 + 1, 2], "nobody to combine");
    for clients in 3..=8 {
        let enter_and_leave = clients + 1;
        let swaps = 3;
        let epoch = clients - 1;
        // `Successor`, `Handover`, `Execute` and `Executed`, `Combined`.
        let sends = (clients - 1) + 1 + 2 + (clients - 2);
        assert_eq!(
            costs("cider-no-ca", clients),
            [1, 0, enter_and_leave + swaps + epoch, sends],
            "{clients} clients"
        );
    }
}

/// Each update hands over: enter, swap with what was seen meanwhile, count.
#[test]
fn a_queue_without_combining_costs_a_swap_each() {
    let [reads, writes, _, sends] = costs("shiftlock-mutex", 8);
    assert_eq!([reads, writes, sends], [0, 0, 2 * 7]);
    let overwritten = overwrite_at_once(Scheme::Lock(LockKind::ShiftLockMutex), false, 8).expect("it has all atomics");
    // All but the first swap with an old pointer at first.
    assert_eq!(overwritten.posted.verbs.atomics(), 8 * 3 + 7);
    assert_eq!(overwritten.retries, 7);
}

#[test]
fn another_identity_is_left_alone() {
    for (scheme, name) in Scheme::named() {
        for is_plain in [false, true] {
            let sim = world(is_plain);
            let there = pointer(1, 4);
            set(&sim, there);
            let Some(mut client) = Client::new(&sim, scheme) else {
                continue;
            };
            let (old, new) = (pointer(0, 3), pointer(2, 3));
            let (lost, frozen) = sim.block_on(async move {
                let lost = client.try_overwrite(old, new, Intent::Update).await;
                let freezing = client
                    .sync
                    .publish(&mut client.cx, TARGET.slot, there, there.frozen())
                    .await;
                assert!(freezing.expect("the node is there").is_replaced());
                (lost, client.try_overwrite(there, new, Intent::Update).await)
            });
            assert_eq!(lost, Some(Publish::Lost { current: there }), "{name}");
            let current = there.frozen();
            assert_eq!(frozen, Some(Publish::Lost { current }), "{name}: it is about to move");
        }
    }
}

#[test]
fn who_wants_a_certain_pointer_notices_another_one() {
    for (scheme, _) in Scheme::named() {
        let sim = world(false);
        let there = pointer(1, 3);
        set(&sim, there);
        let mut client = Client::new(&sim, scheme).expect("it has all atomics");
        let published = sim.block_on(async move {
            let (old, new) = (pointer(0, 3), pointer(2, 3));
            client.sync.publish(&mut client.cx, TARGET.slot, old, new).await
        });
        assert_eq!(published, Ok(Publish::Lost { current: there }));
    }
}

mod cider;
mod counts;
mod mapped;
