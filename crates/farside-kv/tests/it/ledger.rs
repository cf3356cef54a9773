//! What a script of every operation costs, exactly, on each index: `ledger/*.tsv`.
//!
//! One line for each step: verbs, bytes, and how long it takes. Whoever changes one of them sees it here; `cargo xtask
//! ledger --renew` writes down what is so now. What has to be so for a reason is a test of its own.

#[path = "../../../farside-index/tests/it/ledger/compare.rs"]
mod compare;
mod damage;

use std::cell::RefCell;
use std::fmt::Write as _;
use std::rc::Rc;
use std::sync::Arc;

use farside_fabric::sim::{CrashPoint, Sim, SimOptions, UNIX_MS_AT_START};
use farside_fabric::{Endpoint, NodeId, VerbKind, interleave};
use farside_kv::{
    Alteration, Condition, EvictionPolicy, Expiry, IndexKind, LeafOptions, Quota, RaceOptions, Session, SetOptions,
    Store, StoreConfig, SweepPace,
};
use farside_sync::Scheme;

use self::compare::compare;

const KEYS: u32 = 300;
/// A time that has not come when the script ends.
const LATER_MS: u64 = UNIX_MS_AT_START + 1_000_000;

/// The lines so far.
struct Ledger {
    sim: Sim,
    lines: String,
    before: Vec<u64>,
}

fn state(sim: &Sim) -> Vec<u64> {
    let statistics = sim.statistics(NodeId::new(0));
    let verbs = VerbKind::ALL.map(|kind| statistics.verbs.of(kind));
    let rest = [statistics.bytes_in, statistics.bytes_out, sim.now_ns()];
    verbs.into_iter().chain(rest).collect()
}

impl Ledger {
    /// What was done since the last note was this.
    fn note(&mut self, step: impl core::fmt::Display) {
        let now = state(&self.sim);
        let _ = write!(self.lines, "{step}");
        for (now, before) in now.iter().zip(&self.before) {
            let _ = write!(self.lines, "\t{}", now - before);
        }
        self.lines.push('\n');
        self.before = now;
    }
}

/// Some are short, some are long and begin alike.
fn key(number: u32) -> Vec<u8> {
    match number % 5 {
        0 => format!("tenant/7/kind/1/user:{number:06}").into_bytes(),
        1 => vec![number as u8; 200],
        _ => number.to_be_bytes().to_vec(),
    }
}

fn config(index: IndexKind, scheme: Scheme) -> StoreConfig {
    let mut config = StoreConfig {
        index: Some(index),
        scheme,
        local_wc: scheme.combines() || index == IndexKind::Chime,
        slots: Some(64),
        race: RaceOptions {
            items: 0,
            subtable_bytes: 768,
            bucket_slots: 3,
        },
        leaf: LeafOptions {
            span: 16,
            neighbourhood: 8,
        },
        ..StoreConfig::default()
    };
    config.format.chunk_bytes = Some(16 << 10);
    config.pool.tick_ns = 200_000;
    config.pool.lease_ns = 1_000_000;
    config
}

async fn values(session: &mut Session, ledger: &mut Ledger) {
    let sizes = (0..=16)
        .map(|step| 16 * step)
        .chain([500, 1000, 1900, 2000, 4000, 8000, 16_000, 33_000, 70_000]);
    for size in sizes {
        for size in [size, size + 7, size + 8] {
            let value = vec![size as u8; size];
            session.put(b"value", &value).await.expect("room");
            session.put(b"value", &value).await.expect("room");
            ledger.note(format_args!("put twice {size} bytes"));
            assert_eq!(session.get(b"value").await, Ok(Some(value.as_slice())));
            ledger.note(format_args!("get {size} bytes"));
            let keys: [&[u8]; 3] = [b"value", b"none", b"value"];
            let mut many = session.get_many(&keys);
            for key in keys {
                let expected = (key == b"value").then_some(value.as_slice());
                assert_eq!(many.next().await, Ok(expected));
            }
            ledger.note(format_args!("get_many {size} bytes"));
        }
    }
    assert_eq!(session.delete(b"value").await, Ok(true));
    ledger.note("delete");
}

async fn conditions(session: &mut Session, ledger: &mut Ledger) {
    let expiries = [Expiry::Never, Expiry::Keep, Expiry::AtMs(LATER_MS), Expiry::AtMs(1)];
    for condition in [Condition::Always, Condition::IfAbsent, Condition::IfPresent] {
        for expiry in expiries {
            for returns_old in [false, true] {
                for is_there in [false, true] {
                    session.delete(b"condition").await.expect("it is reached");
                    if is_there {
                        session.put(b"condition", b"before").await.expect("room");
                    }
                    ledger.note("prepare");
                    let options = SetOptions {
                        condition,
                        expiry,
                        returns_old,
                    };
                    let outcome = session.set(b"condition", b"after", options).await.expect("room");
                    ledger.note(format_args!("{options:?} of a key that is there: {is_there}"));
                    assert_eq!(
                        outcome.is_stored,
                        match condition {
                            Condition::Always => true,
                            Condition::IfAbsent => !is_there,
                            Condition::IfPresent => is_there,
                        }
                    );
                    assert_eq!(outcome.old.is_some(), is_there && returns_old);
                }
            }
        }
    }
}

async fn changes(session: &mut Session, ledger: &mut Ledger) {
    let put = Alteration::Put {
        value: b"altered",
        expiry: Expiry::Keep,
    };
    let expire = Alteration::Expire(Expiry::AtMs(LATER_MS));
    for key in [b"altered".as_slice(), b"never"] {
        for alteration in [Alteration::Keep, expire, put, Alteration::Delete] {
            if key == b"altered" {
                session.put(key, b"before").await.expect("room");
            }
            ledger.note("prepare");
            session.alter(key, |_| alteration).await.expect("room");
            ledger.note(format_args!("{alteration:?}"));
        }
    }
    session.put(b"some", b"value").await.expect("room");
    ledger.note("prepare");
    assert_eq!(session.touch(b"some").await, Ok(true));
    ledger.note("touch");
    assert_eq!(
        session.stored_bytes(b"some").await.map(|bytes| bytes.is_some()),
        Ok(true)
    );
    ledger.note("stored_bytes");
    assert_eq!(
        session.expire(b"some", |_, _| (Expiry::AtMs(LATER_MS), 7)).await,
        Ok(Some(7))
    );
    ledger.note("expire");
    assert_eq!(session.expire(b"some", |_, _| (Expiry::Keep, 8)).await, Ok(Some(8)));
    ledger.note("expire nothing");
    assert_eq!(
        session.update(b"some", |_| Ok::<_, ()>(b"more".to_vec())).await,
        Ok(Ok(()))
    );
    ledger.note("update");
    assert_eq!(session.update(b"some", |_| Err(9)).await, Ok(Err(9)));
    ledger.note("update refused");
    assert_eq!(session.delete_if_equal(b"some", b"other").await, Ok(Some(false)));
    ledger.note("delete_if_equal another value");
    assert_eq!(session.delete_if_equal(b"some", b"more").await, Ok(Some(true)));
    ledger.note("delete_if_equal");
    assert_eq!(session.take(b"some").await, Ok(None));
    ledger.note("take nothing");
}

async fn many(session: &mut Session, ledger: &mut Ledger) {
    for group in 0..KEYS / 30 {
        for number in group * 30..(group + 1) * 30 {
            session.put(&key(number), &number.to_le_bytes()).await.expect("room");
        }
        ledger.note(format_args!("put 30 keys, {group}"));
    }
    let keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    for count in [1, 2, 15, 16, 17, 40, KEYS as usize] {
        let mut many = session.get_many(&keys[..count]);
        for number in 0..count as u32 {
            assert_eq!(many.next().await, Ok(Some(number.to_le_bytes().as_slice())));
        }
        ledger.note(format_args!("get_many of {count}"));
    }
    // And the one of `conditions`.
    assert_eq!(session.count().await, Ok(u64::from(KEYS) + 1));
    ledger.note("count");
    let mut cursor = 0;
    loop {
        let (items, next) = session.scan(cursor).await.expect("a page");
        ledger.note(format_args!("scan: {} items", items.len()));
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    loop {
        let (keys, next) = session.scan_keys(cursor).await.expect("a page");
        ledger.note(format_args!("scan_keys: {} keys", keys.len()));
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    let (keys, _) = session.random_keys(session.random_cursor()).await.expect("a page");
    ledger.note(format_args!("random_keys: {} keys", keys.len()));
    let (index, retries) = (session.store().index(), session.retries());
    let (cache_bytes, credit_bytes) = (index.cache_bytes(), index.credit_bytes());
    ledger.note(format_args!(
        "{cache_bytes} bytes remembered, {credit_bytes} of credits, {retries} retries"
    ));
}

/// Only where the index is in the order of the keys.
async fn ranges(session: &mut Session, ledger: &mut Ledger) {
    if session.range(b"", None, 1).await.is_err() {
        return;
    }
    for to in [
        None,
        Some(b"tenant/7/kind/1/user:000100".as_slice()),
        Some(b"u"),
        Some(b""),
    ] {
        for limit in [0, 1, 15, 16, 17, 47, 48, 49, 300, 1000] {
            for from in [b"".as_slice(), b"tenant/7"] {
                let (items, next) = session.range(from, to, limit).await.expect("a page");
                let (keys, next_key) = session.range_keys(from, to, limit).await.expect("a page");
                assert_eq!((items.len(), &next), (keys.len(), &next_key));
                let (count, goes_on) = (items.len(), next.is_some());
                ledger.note(format_args!(
                    "range {from:?} to {to:?}, {limit}: {count}, goes on {goes_on}"
                ));
            }
        }
    }
}

/// Several sessions of two clients at once.
async fn rivals(clients: &[Store], ledger: &mut Ledger) {
    for round in 0..4_u64 {
        let works = (0..6_u64).map(|number| {
            let mut session = clients[number as usize % clients.len()].session();
            async move {
                for step in 0..30 {
                    // Now and then all are at the same key.
                    let name = match step % 3 {
                        0 => key((step / 6 + round) as u32 % 4),
                        _ => key(((number + round) * 7 + step * step) as u32 % 12),
                    };
                    match (step + number) % 5 {
                        0 => drop(session.get(&name).await.expect("it is reached")),
                        1 => drop(session.delete(&name).await.expect("it is reached")),
                        2 => drop(session.take(&name).await.expect("it is reached")),
                        _ => session
                            .put(&name, &vec![step as u8; 40 * step as usize])
                            .await
                            .expect("room"),
                    }
                }
            }
        });
        interleave(&farside_fabric::Pipeline::default(), works.collect()).await;
        let index = clients[0].index();
        let (shared, combined) = (index.shared(), index.combined());
        let credit_bytes = index.credit_bytes();
        ledger.note(format_args!(
            "rivals, round {round}: {shared:?}, {combined:?}, {credit_bytes} bytes of credits"
        ));
    }
}

async fn removals(session: &mut Session, ledger: &mut Ledger) {
    for part in 0..3 {
        for number in (0..KEYS).filter(|number| number % 4 == part) {
            assert_eq!(session.delete(&key(number)).await.map(drop), Ok(()));
        }
        ledger.note(format_args!("delete a quarter, {part}"));
    }
    let clear = session.clear().await.expect("it is reached");
    ledger.note(format_args!("clear {clear}"));
}

/// Keys go: because there are too many, or since their time has come.
async fn evictions(store: &Store, ledger: &mut Ledger) {
    for (policy, name) in EvictionPolicy::ALL {
        let quota = Arc::new(Quota::default());
        quota.set_policy(policy);
        quota.set_bytes_max(24 << 10);
        let limited = store.clone().with_quota(Arc::clone(&quota));
        let mut session = limited.session();
        let (mut refused, mut stored) = (0, 0);
        for number in 0..200_u32 {
            let options = SetOptions {
                expiry: if number % 3 == 0 {
                    Expiry::AtMs(LATER_MS + u64::from(number))
                } else {
                    Expiry::Never
                },
                ..SetOptions::default()
            };
            let value = vec![1; (number * 37 % 600) as usize];
            match session.set(&key(number % 150), &value, options).await {
                Ok(_) => stored += 1,
                Err(_) => refused += 1,
            }
            let _ = session.get(&key(number % 7)).await.expect("it is reached");
        }
        ledger.note(format_args!(
            "{name}: {stored} stored, {refused} refused, {} evicted",
            quota.evicted()
        ));
        session.clear().await.expect("it is reached");
        ledger.note("clear");
    }
    let mut session = store.session();
    let expiry = Expiry::AtMs(UNIX_MS_AT_START + ledger.sim.now_ns() / 1_000_000 + 20);
    for number in 0..100_u32 {
        let options = SetOptions {
            expiry: if number % 2 == 0 { expiry } else { Expiry::Never },
            ..SetOptions::default()
        };
        session.set(&key(number), b"short-lived", options).await.expect("room");
    }
    ledger.note("put 100 keys, half of which expire");
    let pace = SweepPace {
        step_pages: 4,
        step_ns: 50_000,
        pause_ns: 20_000,
        busy_pause_ns: 5_000,
        rest_ns: 1_000_000,
    };
    let swept = Rc::new(core::cell::Cell::new(0));
    let count = Rc::clone(&swept);
    let sweeper = store.clone().sweep(pace, move |removed| {
        assert!(removed > 0, "it is told of nothing");
        count.set(count.get() + removed);
    });
    store.endpoint().spawn(sweeper);
    store.endpoint().sleep(60_000_000).await;
    ledger.note(format_args!("a sweeper for 60 ms: {} removed", swept.get()));
    assert_eq!(swept.get(), 50);
}

fn script(index: IndexKind, scheme: Scheme) -> String {
    let sim = Sim::new(SimOptions::default());
    let _ = sim.add_memory_node(16 << 20);
    let endpoints: Vec<_> = (0..2).map(|_| sim.endpoint(sim.add_compute_node())).collect();
    let mut ledger = Ledger {
        sim: sim.clone(),
        lines: String::new(),
        before: Vec::new(),
    };
    sim.block_on(async move {
        ledger.before = state(&ledger.sim);
        let mut clients = Vec::new();
        for endpoint in endpoints {
            clients.push(Store::open(endpoint, config(index, scheme)).await.expect("a store"));
            ledger.note("open");
        }
        let mut session = clients[0].session();
        Box::pin(values(&mut session, &mut ledger)).await;
        Box::pin(conditions(&mut session, &mut ledger)).await;
        Box::pin(changes(&mut session, &mut ledger)).await;
        Box::pin(many(&mut session, &mut ledger)).await;
        Box::pin(ranges(&mut session, &mut ledger)).await;
        // Another client has nothing of it in mind.
        Box::pin(many(&mut clients[1].session(), &mut ledger)).await;
        Box::pin(rivals(&clients, &mut ledger)).await;
        Box::pin(removals(&mut session, &mut ledger)).await;
        Box::pin(evictions(&clients[0], &mut ledger)).await;
        drop(session);
        for client in clients {
            client.close().await.expect("it leaves");
            ledger.note("close");
        }
        ledger.lines
    })
}

/// How many keys are there at first, and how many the client stores that dies.
const BEFORE: u32 = 30;
const ADDED: u32 = 40;
/// So many deaths are a line of the ledger: those at so many verbs in a row.
const DEATHS: u64 = 16;

/// What a client does that dies: the keys that it has begun to store, and to delete.
#[derive(Default)]
struct Done {
    stored: Vec<u32>,
    deleted: Vec<u32>,
}

impl Done {
    /// Whether a key is there; `None` if the client that has died was at it.
    fn is_there(&self, number: u32, has_died: bool) -> Option<bool> {
        let last = self.deleted.last().or(self.stored.last());
        if has_died && last == Some(&number) {
            return None;
        }
        let was_stored = number < BEFORE || self.stored.contains(&number);
        Some(was_stored && !self.deleted.contains(&number))
    }
}

/// Grows and shrinks a store.
async fn work_on(store: Store, done: Rc<RefCell<Done>>) {
    let mut session = store.session();
    for number in (BEFORE..BEFORE + ADDED).map(|number| BEFORE + number * 7 % ADDED) {
        done.borrow_mut().stored.push(number);
        session
            .put(&key(number), &vec![1; 3 * number as usize])
            .await
            .expect("room");
    }
    for number in (0..BEFORE + ADDED).filter(|number| number % 6 > 0) {
        done.borrow_mut().deleted.push(number);
        assert_eq!(session.delete(&key(number)).await, Ok(true));
    }
}

/// A client dies at a verb while it grows and shrinks a store; another one that has remembered the store finds what is there,
/// takes over what was left, and stores and removes everything. Adds what each of these steps costs; returns whether the first
/// one has died.
fn death(index: IndexKind, verb: u64, costs: &mut [Vec<u64>; 3]) -> bool {
    let sim = Sim::new(SimOptions::default());
    let _ = sim.add_memory_node(16 << 20);
    let [dying, second] = [(); 2].map(|()| sim.endpoint(sim.add_compute_node()));
    let open = async |endpoint: &Endpoint| {
        Store::open(endpoint.clone(), config(index, Scheme::Farside))
            .await
            .expect("a store")
    };
    let (first, other) = (sim.block_on(open(&dying)), sim.block_on(open(&second)));
    let mut session = first.session();
    for number in 0..BEFORE {
        sim.block_on(session.put(&key(number), b"before")).expect("room");
    }
    drop(session);
    let mut session = other.session();
    for number in 0..BEFORE {
        assert_eq!(sim.block_on(session.get(&key(number))), Ok(Some(b"before".as_slice())));
    }
    let mut before = state(&sim);
    let mut note = |step: usize| {
        let now = state(&sim);
        costs[step].resize(now.len(), 0);
        for (cost, (now, before)) in costs[step].iter_mut().zip(now.iter().zip(&before)) {
            *cost += now - before;
        }
        before = now;
    };
    let lines = verb.is_multiple_of(4).then_some((verb / 4 % 5) as u32);
    let verb_number = sim.verbs_posted(dying.id()) + verb;
    sim.crash_client_at(
        dying.id(),
        CrashPoint {
            verb: verb_number,
            lines,
        },
    );
    let done: Rc<RefCell<Done>> = Rc::default();
    dying.spawn(work_on(first, Rc::clone(&done)));
    sim.run_until(sim.now_ns() + 3_000_000);
    let has_died = sim.is_crashed(dying.id());
    let done = done.borrow();
    for number in 0..BEFORE + ADDED {
        let found = sim.block_on(session.get(&key(number))).map(|value| value.is_some());
        let expected = done.is_there(number, has_died);
        assert!(
            expected.is_none_or(|expected| found == Ok(expected)),
            "{index:?}, verb {verb}: {number} is {found:?}"
        );
    }
    note(0);
    // Leases run out, and what was left is taken over.
    sim.run_until(sim.now_ns() + 20_000_000);
    note(1);
    for number in 0..BEFORE + ADDED {
        sim.block_on(session.put(&key(number), b"after")).expect("room");
    }
    for number in 0..BEFORE + ADDED {
        assert_eq!(sim.block_on(session.get(&key(number))), Ok(Some(b"after".as_slice())));
        assert_eq!(sim.block_on(session.delete(&key(number))), Ok(true));
    }
    assert_eq!(sim.block_on(session.count()), Ok(0));
    drop(session);
    sim.block_on(other.close()).expect("it leaves");
    note(2);
    has_died
}

fn deaths(index: IndexKind) -> String {
    let mut text = String::new();
    let mut goes_on = true;
    for first in (1..).step_by(DEATHS as usize) {
        let mut costs = [const { Vec::new() }; 3];
        for verb in first..first + DEATHS {
            goes_on &= death(index, verb, &mut costs);
        }
        for (step, cost) in ["nobody knows", "taken over", "used again"].iter().zip(costs) {
            let _ = write!(text, "verbs from {first}: {step}");
            for number in cost {
                let _ = write!(text, "\t{number}");
            }
            text.push('\n');
        }
        if !goes_on {
            break;
        }
    }
    text
}

/// Compares steps.
fn compare_steps(name: &str, ledger: &str, text: &str) {
    let kinds = VerbKind::ALL.map(VerbKind::name).join("\t");
    compare(name, ledger, &format!("step\t{kinds}\tbytes in\tbytes out\tns\n{text}"));
}

#[test]
fn each_step_on_an_array_costs_what_the_ledger_says() {
    let text = script(IndexKind::PointerArray, Scheme::Farside);
    compare_steps(
        "pointer-array.tsv",
        include_str!("../../ledger/pointer-array.tsv"),
        &text,
    );
}

#[test]
fn each_step_on_an_array_with_queues_costs_what_the_ledger_says() {
    let text = script(IndexKind::PointerArray, Scheme::by_name("cider").expect("it is one"));
    compare_steps(
        "pointer-array-cider.tsv",
        include_str!("../../ledger/pointer-array-cider.tsv"),
        &text,
    );
}

#[test]
fn each_step_on_a_race_table_costs_what_the_ledger_says() {
    let text = script(IndexKind::Race, Scheme::Farside);
    compare_steps("race.tsv", include_str!("../../ledger/race.tsv"), &text);
}

#[test]
fn each_step_on_a_chime_tree_costs_what_the_ledger_says() {
    let text = script(IndexKind::Chime, Scheme::Farside);
    compare_steps("chime.tsv", include_str!("../../ledger/chime.tsv"), &text);
}

#[test]
fn each_step_on_a_sherman_tree_costs_what_the_ledger_says() {
    let text = script(IndexKind::Sherman, Scheme::Optimistic);
    compare_steps("sherman.tsv", include_str!("../../ledger/sherman.tsv"), &text);
}

#[test]
fn each_step_on_a_tree_of_claims_costs_what_the_ledger_says() {
    let text = script(IndexKind::Marlin, Scheme::Farside);
    compare_steps("marlin.tsv", include_str!("../../ledger/marlin.tsv"), &text);
}

#[test]
fn each_step_on_a_radix_tree_costs_what_the_ledger_says() {
    let text = script(IndexKind::Smart, Scheme::Farside);
    compare_steps("smart.tsv", include_str!("../../ledger/smart.tsv"), &text);
}

#[test]
fn each_step_on_a_learned_tree_costs_what_the_ledger_says() {
    let text = script(IndexKind::Rolex, Scheme::Farside);
    compare_steps("rolex.tsv", include_str!("../../ledger/rolex.tsv"), &text);
}

#[test]
fn deaths_on_an_array_cost_what_the_ledger_says() {
    let name = "pointer-array-deaths.tsv";
    compare_steps(
        name,
        include_str!("../../ledger/pointer-array-deaths.tsv"),
        &deaths(IndexKind::PointerArray),
    );
}

#[test]
fn deaths_on_a_race_table_cost_what_the_ledger_says() {
    let name = "race-deaths.tsv";
    compare_steps(
        name,
        include_str!("../../ledger/race-deaths.tsv"),
        &deaths(IndexKind::Race),
    );
}

#[test]
fn deaths_on_a_chime_tree_cost_what_the_ledger_says() {
    let name = "chime-deaths.tsv";
    compare_steps(
        name,
        include_str!("../../ledger/chime-deaths.tsv"),
        &deaths(IndexKind::Chime),
    );
}

#[test]
fn deaths_on_a_sherman_tree_cost_what_the_ledger_says() {
    let name = "sherman-deaths.tsv";
    compare_steps(
        name,
        include_str!("../../ledger/sherman-deaths.tsv"),
        &deaths(IndexKind::Sherman),
    );
}

#[test]
fn deaths_on_a_tree_of_claims_cost_what_the_ledger_says() {
    let name = "marlin-deaths.tsv";
    compare_steps(
        name,
        include_str!("../../ledger/marlin-deaths.tsv"),
        &deaths(IndexKind::Marlin),
    );
}

#[test]
fn deaths_on_a_radix_tree_cost_what_the_ledger_says() {
    let name = "smart-deaths.tsv";
    compare_steps(
        name,
        include_str!("../../ledger/smart-deaths.tsv"),
        &deaths(IndexKind::Smart),
    );
}

#[test]
fn deaths_on_a_learned_tree_cost_what_the_ledger_says() {
    let name = "rolex-deaths.tsv";
    compare_steps(
        name,
        include_str!("../../ledger/rolex-deaths.tsv"),
        &deaths(IndexKind::Rolex),
    );
}
