//! A tree under test: actors work on few keys in small leaves, so that nodes split and merge all the time; at the end the
//! history must be linearizable, the tree sound, and every block of memory free or linked, exactly once.
//!
//! A scan counts as a SEARCH of every key that it has come past, each at some instant while it ran: so one that was there
//! throughout must be seen. It must see keys in ascending order, which none can be in twice.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use farside_fabric::Endpoint;
use farside_fabric::sim::Sim;
use farside_fabric::{Deadline, OpContext, Pipeline, interleave};
use farside_index::tree::Census;
use farside_index::tree::{Key, NodeLock, TurnOptions};
use farside_index::{Budget, IndexError, Tree, TreeKind, TreeOptions};
use farside_kv::KvError;
use farside_pool::{FormatOptions, Pool, PoolOptions, open, open_or_format};

use super::{audit, worn};
use crate::history::{Answer, Call};
use crate::plan::{Setup, Work};
use crate::run::{Failure, finish_within};
use crate::shared::{Condition, Shared};

/// How long a client waits before it tries to open the tree again, and between two looks whether it may leave.
const PAUSE_NS: u64 = 30_000;
/// What the numbers of two sessions of a client are apart in histories.
const SESSION: u32 = 1_000_000;
/// So few that many leaves share one.
const LOCKS: u64 = 8;
/// What a tree is made of, and how clients take turns.
type Made = (TreeKind, NodeLock);
/// The reader of the last values, in histories.
const AUDITOR: u32 = u32::MAX;

/// Plans number their keys from 0 on, up to so many.
pub(crate) const KEYS_MAX: u64 = 256;

/// How the pool is made.
fn format(setup: &Setup) -> FormatOptions {
    FormatOptions {
        clients_max: 48,
        chunk_bytes: Some(setup.chunk_bytes),
        patience_ns: 5 * setup.lease_ns,
    }
}

/// Makes memory in which what is counted is about to overflow.
pub(crate) fn wear(sim: &Sim, setup: &Setup) {
    worn::format_pool(sim, format(setup));
}

/// Joins the pool and opens the tree; makes both if there are none. Starts what takes over from the dead.
async fn open_tree(
    endpoint: &Endpoint,
    cx: &mut OpContext,
    setup: &Setup,
    (kind, node_lock): Made,
) -> Result<Tree, IndexError> {
    let tree = &setup.tree;
    let options = TreeOptions {
        shape: kind.leaf(tree.span, tree.neighbourhood),
        budget: Budget {
            cache_bytes: tree.cache_bytes,
            hotspot_bytes: tree.hotspot_bytes,
        },
    };
    let geometry = open_or_format(cx, format(setup)).await?;
    let times = PoolOptions {
        tick_ns: setup.tick_ns,
        lease_ns: setup.lease_ns,
    };
    let pool = Pool::join(cx, geometry, times).await?;
    let turns = TurnOptions {
        locks: LOCKS,
        lease_ns: setup.lease_ns,
        ..TurnOptions::default()
    };
    let opened = async {
        let tree = Tree::create(cx, pool.clone(), options).await?;
        tree.take_turns(cx, node_lock, turns).await?;
        Ok(tree)
    };
    let opened: Result<_, IndexError> = opened.await;
    // A membership that nobody uses would renew its lease for ever.
    let tree = opened.inspect_err(|_| pool.abandon())?;
    endpoint.spawn(take_over_from_the_dead(endpoint.clone(), tree.clone(), setup.tick_ns));
    Ok(tree)
}

/// Searches for what dead clients have left, as long as this one is a member.
async fn take_over_from_the_dead(endpoint: Endpoint, tree: Tree, tick_ns: u64) {
    let mut cx = OpContext::new(endpoint.clone());
    while !tree.pool().has_ended() {
        endpoint.sleep(tick_ns).await;
        if tree.pool().needs_recovery() {
            let walk = async |cx: &mut OpContext, visit: &mut dyn FnMut(_)| Ok(tree.walk(cx, visit).await?);
            // It is tried again.
            let _ = tree.pool().recover(&mut cx, walk).await;
        }
    }
}

/// Leaves the pool when no task works on the structure any more.
async fn close(tree: Tree) -> Result<(), IndexError> {
    let pool = tree.pool().clone();
    // Ends: such a task is done, or this client is cut off.
    while tree.is_restructuring() {
        pool.endpoint().sleep(PAUSE_NS).await;
    }
    let ended = tree.end_turns().await;
    drop(tree);
    pool.leave().await?;
    ended
}

/// One client of an actor: works until there is nothing left, or until it needs another client.
async fn act(endpoint: Endpoint, actor: usize, made: Made, shared: Rc<Shared>) {
    let client = shared.client(actor);
    let setup = &shared.plan.setup;
    let mut cx = OpContext::new(endpoint.clone());
    let tree = match open_tree(&endpoint, &mut cx, setup, made).await {
        Ok(tree) => tree,
        Err(error) => {
            shared.count("errors", format!("open: {}", name(&error)));
            endpoint.sleep(PAUSE_NS).await;
            return shared.set_condition(actor, Condition::NeedsClient);
        }
    };
    if setup.tree.shares {
        tree.share_operations();
    }
    let is_cut_off = Cell::new(false);
    let sessions = (0..setup.sessions.max(1)).map(|number| {
        let mut cx = OpContext::new(endpoint.clone());
        let (client, tree, shared, is_cut_off) = (client + SESSION * number, &tree, &shared, &is_cut_off);
        async move {
            while !is_cut_off.get()
                && let Some(work) = shared.next_work(actor)
            {
                let retries = cx.retries();
                let done = perform(&mut cx, tree, client, work, shared).await;
                shared.count_lost_races(cx.retries() - retries);
                if let Err(error) = done {
                    shared.count("errors", name(&error));
                    is_cut_off.set(is_cut_off.get() || KvError::from(error).is_cut_off());
                }
                shared.assert_settled(&cx);
            }
        }
    });
    interleave(&Pipeline::default(), sessions.collect()).await;
    count_structure(&tree, &shared);
    if is_cut_off.get() {
        tree.pool().abandon();
        return shared.set_condition(actor, Condition::NeedsClient);
    }
    if let Err(error) = close(tree).await {
        shared.count("errors", format!("close: {}", name(&error)));
    }
    shared.set_condition(actor, Condition::Done);
}

/// Counts what a client has done to the structure, and what it has guessed.
fn count_structure(tree: &Tree, shared: &Shared) {
    let (structure, speculations) = (tree.structure(), tree.speculations());
    let mut coverage = shared.coverage.borrow_mut();
    for (what, count) in [
        ("leaves split", structure.splits),
        ("leaves merged", structure.merges),
        ("internal nodes merged", structure.inner_merges),
        ("roots that gave way", structure.lowered),
        ("nodes settled for others", structure.settled),
        ("speculative reads that were right", speculations.right),
        ("speculative reads that were wrong", speculations.wrong),
    ] {
        coverage.add("simulated", what, count);
    }
}

/// An error without its numbers, for the statistics.
fn name(error: &IndexError) -> String {
    let text = error.to_string();
    text.split(|letter: char| letter.is_ascii_digit())
        .collect::<Vec<_>>()
        .join("#")
}

async fn perform(cx: &mut OpContext, tree: &Tree, client: u32, work: Work, shared: &Shared) -> Result<(), IndexError> {
    let timeout_ns = shared.plan.setup.timeout_ns;
    let deadline = timeout_ns.map_or(Deadline::NEVER, |timeout_ns| {
        Deadline(cx.endpoint().now_ns() + timeout_ns)
    });
    cx.set_deadline(deadline);
    match work {
        Work::Think(duration_ns) => {
            cx.endpoint().clone().sleep(duration_ns).await;
            Ok(())
        }
        Work::Call { key, call } => {
            let place = shared.ask(client, key, call);
            match execute(cx, tree, shared.plan.setup.tree.key_of(key), call).await {
                Ok(answer) => {
                    shared.answer(place, answer);
                    Ok(())
                }
                Err(error) => {
                    if KvError::from(error.clone()).is_out_of_memory() {
                        shared.refuse(place);
                    }
                    Err(error)
                }
            }
        }
        Work::Range { from, count } => scan(cx, tree, client, (from, count), shared).await,
        Work::Scan => scan(cx, tree, client, (0, u64::MAX), shared).await,
        Work::GetMany(_) | Work::PutMany(_) | Work::DeleteMany(_) | Work::Together(_) | Work::Critical { .. } => {
            unreachable!("the plan of a tree has none")
        }
    }
}

/// Reads up to `count` keys from the key number `from` on. Each key that the plan knows and the scan came past was there or
/// not at some instant meanwhile.
async fn scan(
    cx: &mut OpContext,
    tree: &Tree,
    client: u32,
    (from, count): (u64, u64),
    shared: &Shared,
) -> Result<(), IndexError> {
    let keys = shared.plan.keys().into_iter().filter(|&key| key >= from);
    let places: Vec<(u64, usize)> = keys.map(|key| (key, shared.ask(client, key, Call::Get))).collect();
    let mut seen = Vec::new();
    let visit = &mut |key, value| seen.push((key as u64, value));
    let setup = &shared.plan.setup.tree;
    let next = tree.scan(cx, setup.key_of(from), count as usize, visit).await?;
    assert!(
        seen.is_sorted_by(|(before, _), (after, _)| before < after),
        "a scan sees keys twice, or in no order: {seen:?}"
    );
    let mut seen: BTreeMap<u64, u64> = seen.into_iter().collect();
    for (key, place) in places {
        let key = setup.key_of(key);
        if next.is_none_or(|next| Key::from(key) < next) {
            shared.answer(place, Answer::Value(seen.remove(&key)));
        }
    }
    assert!(seen.is_empty(), "a scan sees keys that nobody wrote: {seen:?}");
    shared.count("operations answered", "scan");
    Ok(())
}

pub(crate) async fn execute(cx: &mut OpContext, tree: &Tree, key: u64, call: Call) -> Result<Answer, IndexError> {
    Ok(match call {
        Call::Get => Answer::Value(tree.search(cx, key).await?),
        Call::Put(value) => {
            tree.put(cx, key, value).await?;
            Answer::Done
        }
        Call::Insert(value) => Answer::Happened(tree.insert(cx, key, value).await?),
        Call::Update(value) => Answer::Happened(tree.update(cx, key, value).await?),
        Call::Delete => Answer::Happened(tree.delete(cx, key).await?),
        Call::Take | Call::Add(_) => unreachable!("a tree has no such operation"),
    })
}

/// What must hold when everybody has come to an end.
pub(crate) fn audit(sim: &Sim, shared: &Rc<Shared>, kind: TreeKind) -> Result<(), Failure> {
    let setup = shared.plan.setup.clone();
    let auditor = sim.endpoint(sim.add_compute_node());
    let (endpoint, reader) = (auditor.clone(), Rc::clone(shared));
    let limit_ns = 400 * setup.lease_ns;
    let examine = async move { take_stock(&endpoint, &setup, kind, &reader).await };
    let census = finish_within(sim, &auditor, limit_ns, "takeover and last reads", examine)??;
    audit::history(shared)?;
    if !census.faults.is_empty() {
        return Err(Failure::new("structure", census.faults.join("\n")));
    }
    if census.unsettled > 0 {
        return Err(Failure::new("structure", format!("nodes are not settled: {census:?}")));
    }
    let blocks: Vec<_> = census.blocks.into_iter().collect();
    let examiner = sim.endpoint(sim.add_compute_node());
    let accounted = sim.block_on(async {
        let mut cx = OpContext::new(examiner);
        let geometry = open(&mut cx).await.map_err(Failure::of("the pool cannot be opened"))?;
        audit::memory(&mut cx, &geometry, &blocks).await
    })?;
    shared.coverage.borrow_mut().add("checked", audit::BLOCKS, accounted);
    Ok(())
}

/// The last client: takes over from the dead, reads every key in two ways, and looks at every node.
async fn take_stock(endpoint: &Endpoint, setup: &Setup, kind: TreeKind, shared: &Shared) -> Result<Census, Failure> {
    let mut cx = OpContext::new(endpoint.clone());
    let tree = open_tree(endpoint, &mut cx, setup, (kind, NodeLock::Cas))
        .await
        .map_err(Failure::of("the last client cannot open the tree"))?;
    // Long enough for the lease of whoever crashed last, and for the takeover.
    endpoint.sleep(20 * setup.lease_ns).await;
    while tree.pool().needs_recovery() {
        endpoint.sleep(setup.lease_ns).await;
    }
    // Settles what nobody has come by.
    tree.walk(&mut cx, &mut |_| {})
        .await
        .map_err(Failure::of("the last client cannot walk"))?;
    let mut found = BTreeMap::new();
    for key in shared.plan.keys() {
        let place = shared.ask(AUDITOR, key, Call::Get);
        let at = setup.tree.key_of(key);
        let value = tree.search(&mut cx, at).await;
        let value = value.map_err(Failure::of("the last client cannot read"))?;
        shared.answer(place, Answer::Value(value));
        found.extend(value.map(|value| (at, value)));
    }
    let mut scanned = BTreeMap::new();
    let visit = &mut |key, value| {
        scanned.insert(key as u64, value);
    };
    let ended = tree.scan(&mut cx, 0_u64, usize::MAX, visit).await;
    let ended = ended.map_err(Failure::of("the last client cannot scan"))?;
    while tree.is_restructuring() {
        endpoint.sleep(PAUSE_NS).await;
    }
    let census = tree.check(&mut cx).await;
    let census = census.map_err(Failure::of("the structure cannot be walked"))?;
    if ended.is_some() || scanned != found || census.narrow_items() != found {
        let text = format!(
            "searches find {found:?}, a scan {scanned:?}, the leaves hold {:?}",
            census.items
        );
        return Err(Failure::new("structure", text));
    }
    cx.assert_settled();
    close(tree).await.map_err(Failure::of("the last client cannot leave"))?;
    Ok(census)
}

/// Starts the next client of an actor.
pub(crate) fn start(endpoint: &Endpoint, actor: usize, made: Made, shared: &Rc<Shared>) {
    endpoint.spawn(act(endpoint.clone(), actor, made, Rc::clone(shared)));
}
