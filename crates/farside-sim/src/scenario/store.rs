//! A store under test: actors work on few keys; at the end the history must be linearizable, the
//! structure whole, and every block of memory free or linked, exactly once.
//!
//! Values say which key they belong to, and are of a length and a filling that follow from their
//! number: a value made of two is recognised when it is read.
//!
//! Where keys are evicted or swept away, most values expire, in a far future and each at another time, so that who removes
//! one, and looks at keys and times only, says which it was. It is recorded as a TAKE of that value: a key that is
//! gone without one is lost, and a newer value must not go instead. A value that never expires must stay if the policy says
//! so, and whenever somebody sweeps. To the sweeper, whose clock is ahead, everything else has expired.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use farside_fabric::Endpoint;
use farside_fabric::sim::{MemoryAfterCrash, Sim, UNIX_MS_AT_START};
use farside_fabric::{OpContext, Pipeline, interleave};
use farside_index::{IndexKind, RaceOptions, check};
use farside_kv::{
    Condition as When, EvictionPace, EvictionPolicy, Expiry, KvError, LeafOptions, Quota, Removal, RemovalWitness,
    Session, SetOptions, Store, StoreConfig, SweepPace,
};
use farside_pool::{FormatOptions, PoolOptions, open};
use farside_sync::Scheme;

use super::{audit, worn};
use crate::history::{Answer, Call};
use crate::plan::{Eviction, Plan, Work};
use crate::run::{Failure, finish_within};
use crate::shared::{Condition, Shared};

/// What a store is made of.
pub(crate) type Kind = (IndexKind, Scheme);

/// How long a client waits before it tries to open the store again.
const PAUSE_NS: u64 = 30_000;
/// What the numbers of two sessions of a client are apart in histories.
const SESSION: u32 = 1_000_000;
/// The reader of the last values, in histories.
const AUDITOR: u32 = u32::MAX;
/// Evictions and sweeps in histories: this and their place, since many may be under way.
const REMOVALS: u32 = 1 << 30;
/// The first expiry of a value: a day after the simulation begins, in milliseconds.
const EXPIRY_MS: u64 = UNIX_MS_AT_START + 24 * 60 * 60 * 1000;
/// How far ahead the clock of the sweeper is: two days.
pub(crate) const SWEEPER_SKEW_NS: i64 = 2 * 24 * 60 * 60 * 1_000_000_000;
/// One value in this many never expires.
const PERSISTENT_SHARE: u64 = 4;

/// The settings of every store of a run.
fn config(plan: &Plan, (index, scheme): Kind) -> StoreConfig {
    let setup = &plan.setup;
    StoreConfig {
        index: Some(index),
        scheme,
        local_wc: setup.sessions > 1,
        slots: Some(setup.slots),
        race: RaceOptions {
            items: 0,
            subtable_bytes: 768,
            bucket_slots: setup.bucket_slots,
        },
        // So few entries make leaves split; as many as published need keys by the hundred.
        leaf: if setup.slots < 1000 {
            LeafOptions {
                span: 8,
                neighbourhood: 4,
            }
        } else {
            LeafOptions::default()
        },
        format: FormatOptions {
            clients_max: 48,
            // Lock entries make the subtables of RACE larger.
            chunk_bytes: Some(if scheme.needs_locks() {
                setup.chunk_bytes.max(8 << 10)
            } else {
                setup.chunk_bytes
            }),
            patience_ns: 5 * setup.lease_ns,
        },
        pool: PoolOptions {
            tick_ns: setup.tick_ns,
            lease_ns: setup.lease_ns,
        },
        timeout_ns: setup.timeout_ns,
    }
}

/// Makes memory in which what is counted is about to overflow.
pub(crate) fn wear(sim: &Sim, plan: &Plan, kind: Kind) {
    worn::format_pool(sim, config(plan, kind).format);
}

/// The bytes of a key: mostly short, some long, one empty. In an index in the order of keys some begin alike.
fn key_bytes(key: u64, index: IndexKind) -> Vec<u8> {
    match key % 11 {
        0 if key == 0 => Vec::new(),
        like @ 5..10 if index.is_ordered() => {
            let (group, ending) = (((key / 22) as u32).to_be_bytes(), (key as u16).to_be_bytes());
            [&group, &b"alike for some bytes"[..(like as usize - 5) * 4], &ending].concat()
        }
        10 => vec![key as u8; 300],
        _ => (key as u16).to_le_bytes().to_vec(),
    }
}

/// How many bytes of filling a value has: mostly few, sometimes more than a line, a hint or a chunk.
fn filling_bytes(value: u64) -> usize {
    let spread = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let size = (spread >> 32) as usize;
    match spread >> 59 {
        0 => 12_000 + size % 20_000,
        1..4 => 400 + size % 2_000,
        _ => size % 120,
    }
}

fn encode(key: u64, value: u64) -> Vec<u8> {
    let mut bytes = value.to_le_bytes().to_vec();
    bytes.extend(key.to_le_bytes());
    bytes.resize(16 + filling_bytes(value), value as u8);
    bytes
}

/// # Panics
/// If these are not the bytes of one value of this key.
fn decode(key: u64, bytes: &[u8]) -> u64 {
    let value = bytes.first_chunk().map(|&first| u64::from_le_bytes(first));
    match value {
        Some(value) if encode(key, value) == bytes => value,
        _ => panic!("key {key} holds {} bytes that nobody wrote: a torn value", bytes.len()),
    }
}

/// When a value expires: each at another time. What tells the values of a plan apart is in their second three bytes.
fn expiry(value: u64, expires: bool) -> Expiry {
    if expires && !value.is_multiple_of(PERSISTENT_SHARE) {
        Expiry::AtMs(EXPIRY_MS + stamp(value))
    } else {
        Expiry::Never
    }
}

fn stamp(value: u64) -> u64 {
    value >> 24 & 0xff_ffff
}

/// Why a key goes that nobody has deleted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reason {
    Evicted(EvictionPolicy),
    Swept,
}

impl Reason {
    /// Whether a value stays that never expires.
    fn spares_lasting(self) -> bool {
        match self {
            Self::Evicted(policy) => policy.is_volatile(),
            Self::Swept => true,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Evicted(_) => "evictions",
            Self::Swept => "sweeps",
        }
    }
}

/// Writes evictions and sweeps into the history.
struct Witness {
    shared: Rc<Shared>,
    reason: Reason,
    index: IndexKind,
}

impl core::fmt::Debug for Witness {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Witness")
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}

impl Witness {
    fn check(&self, expiry_ms: u64) {
        let may_go = expiry_ms != 0 || !self.reason.spares_lasting();
        assert!(may_go, "a key goes that never expires: {:?}", self.reason);
    }
}

impl RemovalWitness for Witness {
    fn begins(&self, key: &[u8], expiry_ms: u64) -> usize {
        self.check(expiry_ms);
        let keys = self.shared.plan.keys();
        let key = keys.into_iter().find(|&known| key_bytes(known, self.index) == key);
        let key = key.expect("only what was written goes");
        let call = if expiry_ms == 0 { Call::Delete } else { Call::Take };
        let place = self.shared.ask(REMOVALS, key, call);
        self.shared.history.borrow_mut()[place].client += place as u32;
        place
    }

    fn ended(&self, place: usize, removal: Removal) {
        let name = self.reason.name();
        match removal {
            Removal::Unknown => self.shared.count(name, "in doubt"),
            Removal::NotDone => {
                self.shared.refuse(place);
                self.shared.count(name, "changed meanwhile");
            }
            Removal::Done { expiry_ms: 0 } => {
                self.check(0);
                self.shared.answer(place, Answer::Happened(true));
            }
            Removal::Done { expiry_ms } => {
                let value = self.shared.plan.value(|value| stamp(value) == expiry_ms - EXPIRY_MS);
                self.shared.answer(place, Answer::Value(value));
                self.shared.count(name, "done");
            }
        }
    }
}

/// The store with the eviction of the plan.
fn with_eviction(store: Store, eviction: &Eviction, shared: &Rc<Shared>) -> Store {
    let policy = EvictionPolicy::by_name(&eviction.policy);
    let policy = policy.unwrap_or_else(|| panic!("no policy {}", eviction.policy));
    let quota = Quota::default();
    quota.set_policy(policy);
    quota.set_bytes_max(eviction.bytes_max);
    let store = with_witness(store.with_quota(quota.into()), Reason::Evicted(policy), shared);
    if eviction.is_in_background {
        let pace = EvictionPace {
            step_ns: 20_000,
            busy_pause_ns: 10_000,
            pause_ns: 30_000,
        };
        store.endpoint().spawn(store.clone().keep_within_quota(pace));
    }
    store
}

fn with_witness(store: Store, reason: Reason, shared: &Rc<Shared>) -> Store {
    let witness = Witness {
        shared: Rc::clone(shared),
        reason,
        index: store.index().kind(),
    };
    store.with_removal_witness(Rc::new(witness))
}

/// Sweeps until everybody has done their work, or until it needs another client; sets `has_ended` then.
pub(crate) fn start_sweeper(endpoint: &Endpoint, kind: Kind, shared: &Rc<Shared>, has_ended: &Rc<Cell<bool>>) {
    let (task, shared, has_ended) = (endpoint.clone(), Rc::clone(shared), Rc::clone(has_ended));
    has_ended.set(false);
    endpoint.spawn(async move {
        if let Err(error) = sweep(task.clone(), kind, &shared).await {
            shared.count("errors", format!("sweeper: {}", name(&error)));
            task.sleep(PAUSE_NS).await;
        }
        has_ended.set(true);
    });
}

async fn sweep(endpoint: Endpoint, kind: Kind, shared: &Rc<Shared>) -> Result<(), KvError> {
    let pace = SweepPace {
        step_pages: 8,
        step_ns: 20_000,
        pause_ns: 10_000,
        busy_pause_ns: 5_000,
        rest_ns: 30_000,
    };
    let store = Store::open(endpoint.clone(), config(&shared.plan, kind)).await?;
    let store = with_witness(store, Reason::Swept, shared);
    endpoint.spawn(store.clone().sweep(pace, |_| ()));
    while !shared.is_work_done.get() {
        if store.pool().has_ended() {
            store.abandon();
            return Ok(());
        }
        endpoint.sleep(PAUSE_NS).await;
    }
    store.close().await
}

/// One client of an actor: works until there is nothing left, or until it needs another client.
pub(crate) async fn act(endpoint: Endpoint, actor: usize, kind: Kind, shared: Rc<Shared>) {
    let client = shared.client(actor);
    let store = match Store::open(endpoint.clone(), config(&shared.plan, kind)).await {
        Ok(store) => store,
        Err(error) => {
            shared.count("errors", format!("open: {}", name(&error)));
            endpoint.sleep(PAUSE_NS).await;
            return shared.set_condition(actor, Condition::NeedsClient);
        }
    };
    let store = match &shared.plan.setup.eviction {
        Some(eviction) => with_eviction(store, eviction, &shared),
        None => store,
    };
    let is_cut_off = Cell::new(false);
    let sessions = (0..shared.plan.setup.sessions.max(1)).map(|number| {
        let mut session = store.session();
        let (client, shared, is_cut_off) = (client + SESSION * number, &shared, &is_cut_off);
        async move {
            while !is_cut_off.get()
                && let Some(work) = shared.next_work(actor)
            {
                let retries = session.context().retries();
                let done = perform(&mut session, client, work, shared).await;
                shared.count_lost_races(session.context().retries() - retries);
                if let Err(error) = done {
                    shared.count("errors", name(&error));
                    is_cut_off.set(is_cut_off.get() || error.is_cut_off());
                }
                shared.assert_settled(session.context());
            }
        }
    });
    interleave(&Pipeline::default(), sessions.collect()).await;
    count_together(&store, &shared);
    if is_cut_off.get() {
        store.abandon();
        return shared.set_condition(actor, Condition::NeedsClient);
    }
    if let Err(error) = store.close().await {
        shared.count("errors", format!("close: {}", name(&error)));
    }
    shared.set_condition(actor, Condition::Done);
}

/// Counts what went with something else.
fn count_together(store: &Store, shared: &Shared) {
    let (local, global) = (store.index().shared(), store.index().combined());
    let mut coverage = shared.coverage.borrow_mut();
    for (what, count) in [
        ("writes that went with another of their client", local.writes.combined),
        ("searches that went with another of their client", local.reads.combined),
        ("writes that took a lock or queued up", global.pessimistic),
        ("writes that somebody else acted for", global.combined),
    ] {
        coverage.add("simulated", what, count);
    }
}

/// An error without its numbers, for the statistics.
fn name(error: &KvError) -> String {
    let text = error.to_string();
    text.split(|letter: char| letter.is_ascii_digit())
        .collect::<Vec<_>>()
        .join("#")
}

async fn perform(session: &mut Session, client: u32, work: Work, shared: &Shared) -> Result<(), KvError> {
    match work {
        Work::Think(duration_ns) => {
            session.context().endpoint().clone().sleep(duration_ns).await;
            Ok(())
        }
        Work::Call { key, call } => {
            let place = shared.ask(client, key, call);
            let expires = shared.plan.setup.expires();
            let answer = match execute(session, key, call, expires).await {
                Err(error) if error.is_out_of_memory() => {
                    shared.refuse(place);
                    return Err(error);
                }
                answer => answer?,
            };
            shared.answer(place, answer);
            Ok(())
        }
        Work::GetMany(keys) => {
            let index = session.store().index().kind();
            let bytes: Vec<Vec<u8>> = keys.iter().map(|&key| key_bytes(key, index)).collect();
            let bytes: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
            let places: Vec<usize> = keys.iter().map(|&key| shared.ask(client, key, Call::Get)).collect();
            let mut values = session.get_many(&bytes);
            for (key, place) in keys.into_iter().zip(places) {
                let value = values.next().await?.map(|bytes| decode(key, bytes));
                shared.answer(place, Answer::Value(value));
            }
            shared.count("operations answered", "get_many");
            Ok(())
        }
        Work::PutMany(items) => {
            let index = session.store().index().kind();
            let bytes = items
                .iter()
                .map(|&(key, value)| (key_bytes(key, index), encode(key, value)));
            let bytes: Vec<(Vec<u8>, Vec<u8>)> = bytes.collect();
            let slices: Vec<(&[u8], &[u8])> = bytes.iter().map(|(key, value)| (&**key, &**value)).collect();
            let calls = items.iter().map(|&(key, value)| (key, Call::Put(value)));
            let mut many = Many::new(client, calls.collect(), shared);
            session
                .put_many(&slices, |stored| many.note(stored.map(|()| Answer::Done)))
                .await;
            many.end("put_many")
        }
        Work::DeleteMany(keys) => {
            let index = session.store().index().kind();
            let bytes: Vec<Vec<u8>> = keys.iter().map(|&key| key_bytes(key, index)).collect();
            let bytes: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
            let mut many = Many::new(client, keys.iter().map(|&key| (key, Call::Delete)).collect(), shared);
            session
                .delete_many(&bytes, |deleted| many.note(deleted.map(Answer::Happened)))
                .await;
            many.end("delete_many")
        }
        Work::Together(calls) => together(session, client, calls, shared).await,
        Work::Scan => scan(session, client, shared).await,
        Work::Range { .. } | Work::Critical { .. } => unreachable!("the plan of a store has none"),
    }
}

/// Changes of several keys at once. Those of one key follow each other: one begins when the one before it has ended.
struct Many<'s> {
    client: u32,
    calls: Vec<(u64, Call)>,
    /// Where those have been noted that have begun.
    places: Vec<Option<usize>>,
    ended: usize,
    result: Result<(), KvError>,
    shared: &'s Shared,
}

impl<'s> Many<'s> {
    fn new(client: u32, calls: Vec<(u64, Call)>, shared: &'s Shared) -> Self {
        let is_first = |index: usize| calls[..index].iter().all(|&(key, _)| key != calls[index].0);
        let ask = |index: usize| shared.ask(client, calls[index].0, calls[index].1);
        let places = (0..calls.len()).map(|index| is_first(index).then(|| ask(index)));
        Self {
            client,
            places: places.collect(),
            calls,
            ended: 0,
            result: Ok(()),
            shared,
        }
    }

    /// The next one has ended.
    fn note(&mut self, answer: Result<Answer, KvError>) {
        let index = self.ended;
        self.ended += 1;
        let place = self.places[index].expect("the one before it has ended");
        match answer {
            Ok(answer) => self.shared.answer(place, answer),
            Err(error) => {
                if error.is_out_of_memory() {
                    self.shared.refuse(place);
                }
                self.result = Err(error);
            }
        }
        let (key, _) = self.calls[index];
        if let Some(next) = (index + 1..self.calls.len()).find(|&next| self.calls[next].0 == key) {
            self.places[next] = Some(self.shared.ask(self.client, key, self.calls[next].1));
        }
    }

    fn end(self, what: &'static str) -> Result<(), KvError> {
        assert_eq!(self.ended, self.calls.len(), "each is answered");
        self.shared.count("operations answered", what);
        self.result
    }
}

/// Several operations as one transaction.
async fn together(session: &mut Session, client: u32, calls: Vec<(u64, Call)>, shared: &Shared) -> Result<(), KvError> {
    let index = session.store().index().kind();
    let expires = shared.plan.setup.expires();
    let keys: Vec<Vec<u8>> = calls.iter().map(|&(key, _)| key_bytes(key, index)).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let places: Vec<usize> = calls.iter().map(|&(key, call)| shared.ask(client, key, call)).collect();
    let group = shared.together.borrow().len();
    shared.together.borrow_mut().push(Vec::new());
    let options = |value| SetOptions {
        expiry: expiry(value, expires),
        ..SetOptions::default()
    };
    let asked = || calls.iter().zip(&keys).zip(&places);
    let made = if group.is_multiple_of(3) {
        // As if the keys became known one after the other.
        let made = session.transaction(async |transaction| {
            let (mut answers, mut accesses) = (Vec::new(), Vec::new());
            for ((&(key, call), bytes), &place) in asked() {
                let before = transaction.get(bytes).await?.map(|bytes| decode(key, bytes));
                let (answer, step) = outcome(call, before);
                match step {
                    Step::Nothing => {}
                    Step::Set(value) => drop(transaction.set(bytes, &encode(key, value), options(value)).await?),
                    Step::Delete => drop(transaction.delete(bytes).await?),
                }
                answers.push(answer);
                accesses.push((place, before));
            }
            shared.together.borrow_mut()[group] = accesses;
            Ok(answers)
        });
        Box::pin(made).await
    } else {
        let made = session.transaction_on(&keys, |transaction| {
            let (mut answers, mut accesses) = (Vec::new(), Vec::new());
            for ((&(key, call), bytes), &place) in asked() {
                let before = transaction.get(bytes)?.map(|bytes| decode(key, bytes));
                let (answer, step) = outcome(call, before);
                match step {
                    Step::Nothing => {}
                    Step::Set(value) => drop(transaction.set(bytes, &encode(key, value), options(value))?),
                    Step::Delete => drop(transaction.delete(bytes)?),
                }
                answers.push(answer);
                accesses.push((place, before));
            }
            shared.together.borrow_mut()[group] = accesses;
            Ok(answers)
        });
        made.await
    };
    match made {
        Ok(answers) => {
            for (place, answer) in places.into_iter().zip(answers) {
                shared.answer(place, answer);
            }
            shared.count("operations answered", "together");
            Ok(())
        }
        Err(error) => {
            let is_refused = error.is_out_of_memory() || matches!(error, KvError::Transaction(_));
            if is_refused {
                shared.together.borrow_mut()[group].clear();
                places.into_iter().for_each(|place| shared.refuse(place));
            }
            Err(error)
        }
    }
}

/// What an operation within a transaction does to its key.
enum Step {
    Nothing,
    Set(u64),
    Delete,
}

/// What is answered to an operation, and what it does, given the value.
fn outcome(call: Call, before: Option<u64>) -> (Answer, Step) {
    match (call, before) {
        (Call::Get, _) => (Answer::Value(before), Step::Nothing),
        (Call::Put(value), _) => (Answer::Done, Step::Set(value)),
        (Call::Insert(value), None) | (Call::Update(value), Some(_)) => (Answer::Happened(true), Step::Set(value)),
        (Call::Insert(_) | Call::Update(_), _) => (Answer::Happened(false), Step::Nothing),
        (Call::Delete, _) => (Answer::Happened(before.is_some()), Step::Delete),
        (Call::Take, _) => (Answer::Value(before), Step::Delete),
        (Call::Add(more), _) => {
            let sum = before.unwrap_or(0) + more;
            (Answer::Sum(sum), Step::Set(sum))
        }
    }
}

/// Reads everything. Each key that the plan knows was there or not at some instant meanwhile.
async fn scan(session: &mut Session, client: u32, shared: &Shared) -> Result<(), KvError> {
    let keys = shared.plan.keys();
    let places: Vec<usize> = keys.iter().map(|&key| shared.ask(client, key, Call::Get)).collect();
    let mut seen = BTreeMap::new();
    let mut cursor = 0;
    loop {
        let (found, next) = session.scan(cursor).await?;
        for (key, value) in found {
            let before = seen.insert(key, value);
            // Elsewhere a key that was removed and is stored anew may be in another slot, behind the first.
            let kind = session.store().index().kind();
            let keeps_its_place = kind == IndexKind::PointerArray || kind.is_ordered();
            assert!(before.is_none() || !keeps_its_place, "a scan sees a key twice");
        }
        if next == 0 {
            break;
        }
        cursor = next;
    }
    for (key, place) in keys.into_iter().zip(places) {
        let value = seen
            .remove(&key_bytes(key, session.store().index().kind()))
            .map(|bytes| decode(key, &bytes));
        shared.answer(place, Answer::Value(value));
    }
    assert!(seen.is_empty(), "a scan sees keys that nobody wrote: {seen:?}");
    shared.count("operations answered", "scan");
    Ok(())
}

pub(crate) async fn execute(session: &mut Session, key: u64, call: Call, expires: bool) -> Result<Answer, KvError> {
    let bytes = key_bytes(key, session.store().index().kind());
    let when = |condition, value| SetOptions {
        condition,
        expiry: expiry(value, expires),
        ..SetOptions::default()
    };
    Ok(match call {
        Call::Get => Answer::Value(session.get(&bytes).await?.map(|bytes| decode(key, bytes))),
        Call::Put(value) => {
            let stored = encode(key, value);
            session.set(&bytes, &stored, when(When::Always, value)).await?;
            Answer::Done
        }
        Call::Insert(value) => {
            let stored = encode(key, value);
            let set = session.set(&bytes, &stored, when(When::IfAbsent, value)).await?;
            Answer::Happened(set.is_stored)
        }
        Call::Update(value) => {
            let stored = encode(key, value);
            let set = session.set(&bytes, &stored, when(When::IfPresent, value)).await?;
            Answer::Happened(set.is_stored)
        }
        Call::Delete => Answer::Happened(session.delete(&bytes).await?),
        Call::Take => Answer::Value(session.take(&bytes).await?.map(|bytes| decode(key, &bytes))),
        Call::Add(more) => {
            let mut sum = 0;
            let added = session.update(&bytes, |stored| {
                sum = stored.map_or(0, |bytes| decode(key, bytes)) + more;
                Ok::<_, core::convert::Infallible>(encode(key, sum))
            });
            let Ok(()) = added.await?;
            Answer::Sum(sum)
        }
    })
}

/// What must hold when everybody has come to an end.
pub(crate) fn audit(sim: &Sim, shared: &Rc<Shared>, kind: Kind) -> Result<(), Failure> {
    let endpoint = sim.endpoint(sim.add_compute_node());
    let setup = shared.plan.setup.clone();
    let mut keys: Vec<u64> = shared.history.borrow().iter().map(|operation| operation.key).collect();
    keys.sort_unstable();
    keys.dedup();
    let reader = Rc::clone(shared);
    let read = async move {
        let patient = StoreConfig {
            timeout_ns: None,
            ..config(&reader.plan, kind)
        };
        let store = Store::open(endpoint.clone(), patient)
            .await
            .map_err(Failure::of("the last client cannot open the store"))?;
        // Long enough for the lease of whoever crashed last, and for the takeover.
        endpoint.sleep(20 * setup.lease_ns).await;
        store
            .settle()
            .await
            .map_err(Failure::of("what the dead held is not taken over"))?;
        let mut session = store.session();
        for key in keys {
            let place = reader.ask(AUDITOR, key, Call::Get);
            let found = session
                .get(&key_bytes(key, kind.0))
                .await
                .map_err(Failure::of("the last client cannot read"))?;
            reader.answer(place, Answer::Value(found.map(|bytes| decode(key, bytes))));
        }
        drop(session);
        store.close().await.map_err(Failure::of("the last client cannot leave"))
    };
    let auditor = sim.endpoint(sim.add_compute_node());
    finish_within(sim, &auditor, 400 * setup.lease_ns, "takeover and last reads", read)??;

    audit::history(shared)?;
    audit::transactions(shared)?;
    let blocks = examine(sim)?;
    shared.coverage.borrow_mut().add("checked", audit::BLOCKS, blocks);
    Ok(())
}

/// The structure is whole, nobody is a member of the pool any more, and each of its blocks is free or linked, once; returns
/// how many there are.
pub(crate) fn examine(sim: &Sim) -> Result<u64, Failure> {
    let examiner = sim.endpoint(sim.add_compute_node());
    sim.block_on(async {
        let mut cx = OpContext::new(examiner);
        let geometry = open(&mut cx).await.map_err(Failure::of("the pool cannot be opened"))?;
        let census = check::take(&mut cx, &geometry)
            .await
            .map_err(Failure::of("the structure cannot be walked"))?;
        if !census.faults.is_empty() {
            return Err(Failure::new("structure", census.faults.join("\n")));
        }
        audit::memory(&mut cx, &geometry, &census.blocks).await
    })
}

/// How a memory node comes back.
pub(crate) fn memory_after(is_blank: bool) -> MemoryAfterCrash {
    if is_blank {
        MemoryAfterCrash::Lost
    } else {
        MemoryAfterCrash::Kept
    }
}

/// Starts the next client of an actor.
pub(crate) fn start(endpoint: &Endpoint, actor: usize, kind: Kind, shared: &Rc<Shared>) {
    endpoint.spawn(act(endpoint.clone(), actor, kind, Rc::clone(shared)));
}
