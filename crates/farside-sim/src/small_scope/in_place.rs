//! Values of a radix tree that are written where they are, in small scopes: one key, and clients that change it, each by what is
//! stored regardless.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::rc::Rc;

use farside_fabric::sim::{Choices, CrashPoint, Explored, Profile, Sim, SimOptions, explore};
use farside_fabric::{Endpoint, OpContext};
use farside_index::{Budget, Change, Decision, Item, Smart, Tag};
use farside_pool::Purpose;
use farside_sync::Scheme;

use super::tree::{LEASE_NS, join};
use super::{INITIAL, KEY, Log, Orders, memory, run_until, with_memory};
use crate::checkers::linearizability;
use crate::history::{Answer, Call};

/// The crash point of the first client is one of so many.
const CRASH_POINTS: usize = 8;
/// How often a client is served in a row before it has waited long enough for somebody else.
const IN_A_ROW: u32 = 40;
/// Bytes of an item.
const ITEM_BYTES: u64 = 32;

/// Orders of the clients' operations on one key, on a fabric with plain atomics only if wanted; with a crash the first client dies,
/// at each of its verbs. Returns how many there were.
///
/// # Panics
/// If a history is not linearizable; the choices that led to it are printed.
#[must_use]
pub fn in_place(calls: &[Vec<Call>], orders: Orders, (is_plain, with_crash): (bool, bool), limit: u64) -> Explored {
    let memory = memory();
    explore(limit, |choices| {
        let sim = Sim::new(SimOptions {
            profile: Profile {
                has_masked_atomics: !is_plain,
                ..Profile::default()
            },
            ..SimOptions::default()
        });
        with_memory(&sim, &memory, || one_tree(&sim, &choices, calls, (orders, with_crash)));
    })
}

async fn open(endpoint: &Endpoint) -> Smart {
    let mut cx = OpContext::new(endpoint.clone());
    let pool = join(&mut cx).await;
    let made = Smart::create(&mut cx, pool.clone(), Scheme::Optimistic.into(), Budget::default()).await;
    let smart = made.expect("a tree");
    smart.update_in_place();
    for purpose in [Purpose::Insert, Purpose::Overwrite] {
        pool.restock(ITEM_BYTES, 1, purpose).await.expect("room");
    }
    smart
}

async fn execute(cx: &mut OpContext, smart: &Smart, call: Call) -> Answer {
    let key = KEY.to_be_bytes();
    let regardless = true;
    let put = |value: u64| Decision::Put {
        value: Cow::Owned(value.to_le_bytes().to_vec()),
        expiry_ms: 0,
        tag: Tag::String,
        regardless,
    };
    let decide: &mut dyn FnMut(Option<Item<'_>>) -> Decision<'static> = match call {
        Call::Get => {
            let found = smart.search(cx, &key).await.expect("nothing is broken");
            let value = found.map(|found| &cx.buffer()[found.value.range()]);
            return Answer::Value(value.map(|value| u64::from_le_bytes(value.try_into().expect("a word"))));
        }
        Call::Put(value) => &mut move |_| put(value),
        Call::Update(value) => &mut move |stored| stored.map_or(Decision::Keep, |_| put(value)),
        Call::Delete => &mut move |stored| stored.map_or(Decision::Keep, |_| Decision::Delete { regardless }),
        Call::Insert(_) | Call::Take | Call::Add(_) => unreachable!("they depend on what is stored"),
    };
    let change = smart.change(cx, &key, None, decide).await.expect("nothing is broken");
    match call {
        Call::Put(_) => Answer::Done,
        _ => Answer::Happened(change != Change::Kept),
    }
}

async fn perform(log: &Log, endpoint: &Endpoint, smart: &Smart, client: u32, calls: &[Call]) {
    let mut cx = OpContext::new(endpoint.clone());
    for &call in calls {
        let place = log.ask(client, KEY, call);
        let answer = execute(&mut cx, smart, call).await;
        cx.assert_settled();
        log.answer(place, answer);
    }
}

fn one_tree(sim: &Sim, choices: &Choices, calls: &[Vec<Call>], (orders, with_crash): (Orders, bool)) {
    let log = Rc::new(Log::default());
    let reader = sim.endpoint(sim.add_compute_node());
    let last = sim.block_on(open(&reader));
    sim.block_on(perform(&log, &reader, &last, u32::MAX, &[Call::Put(INITIAL)]));
    let mut clients = Vec::new();
    for (client, calls) in (0..).zip(calls) {
        let endpoint = sim.endpoint(sim.add_compute_node());
        let smart = sim.block_on(open(&endpoint));
        // So that it remembers the way.
        sim.block_on(perform(&log, &endpoint, &smart, client, &[Call::Get]));
        clients.push((endpoint, smart, calls.clone()));
    }
    let victim = clients[0].0.id();
    if with_crash {
        let verb = sim.verbs_posted(victim) + 1 + choices.pick(CRASH_POINTS) as u64;
        sim.crash_client_at(victim, CrashPoint { verb, lines: None });
    }
    sim.set_chooser(Some(orders.chooser(choices, IN_A_ROW)));
    for (client, (endpoint, smart, calls)) in (0..).zip(clients) {
        let log = Rc::clone(&log);
        endpoint.clone().spawn(async move {
            perform(&log, &endpoint, &smart, client, &calls).await;
            log.end();
        });
    }
    sim.run_until(sim.now_ns());
    sim.set_chooser(None);
    // Whoever waits for the dead.
    let survivors = || calls.len() - usize::from(sim.is_crashed(victim));
    run_until(sim, 10 * LEASE_NS, || log.ended() >= survivors());
    let survivors = survivors();
    assert!(
        log.ended() >= survivors,
        "{} of {survivors} came to an end",
        log.ended()
    );
    sim.block_on(perform(&log, &reader, &last, u32::MAX, &[Call::Update(7), Call::Get]));
    if let Err(violation) = linearizability::check(&log.operations(), &BTreeMap::new()) {
        panic!("{violation}");
    }
}
