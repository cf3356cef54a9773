//! A tree that shrinks or grows, and a client that dies at a verb of a merge of internal nodes, or anywhere, or within it. Another client has
//! remembered the whole tree before; a third one remembers nothing. Whatever was there is there, the tree is sound, and every
//! block of memory is free or linked.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use farside_fabric::Endpoint;
use farside_fabric::sim::{CrashPoint, Sim, SimOptions};
use farside_fabric::{NodeId, OpContext, VerbKind};
use farside_index::tree::Structure;
use farside_index::{Budget, Shape, Tree, TreeOptions};
use farside_pool::account;

use super::client::{LEASE_NS, POOL, open_tree_with, recover};

/// So many that three internal nodes stand below a root when each leaf has a key or two.
const KEYS: u64 = 100;
/// One key in so many stays.
const STAYS: u64 = 8;
/// The client that shrinks the tree does nothing else meanwhile.
const SETTLE_NS: u64 = 10_000;

/// What a run has seen.
#[derive(Default, Debug)]
pub(crate) struct Seen {
    /// Which verbs the first client posted while internal nodes merged or the root gave way: from, up to.
    pub(crate) merges: Vec<(u64, u64)>,
    pub(crate) inner_merges: u64,
    pub(crate) lowered: u64,
    /// Levels of internal nodes before anything was deleted, and at the end.
    pub(crate) heights: [u8; 2],
    /// And while anything was split or merged.
    pub(crate) changes: Vec<(u64, u64)>,
    /// What it has cost: verbs by kind, bytes to and from memory nodes, what the living have split, merged and settled,
    /// nanoseconds, and all that happened as one number.
    pub(crate) cost: Vec<u64>,
}

/// What the first client does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// It deletes most keys.
    Shrink,
    /// It inserts most keys.
    Grow,
}

impl Work {
    /// Whether it leaves a key alone.
    fn spares(self, number: u64) -> bool {
        number.is_multiple_of(STAYS)
    }
}

fn key_of(number: u64) -> u64 {
    number * 0x0100_0000_0000_0003
}

async fn open(endpoint: &Endpoint, shape: Shape, cache_bytes: usize) -> Tree {
    let budget = Budget {
        cache_bytes,
        hotspot_bytes: 0,
    };
    let tree = open_tree_with(endpoint, TreeOptions { shape, budget }, POOL).await;
    endpoint.spawn(recover(endpoint.clone(), tree.clone()));
    tree
}

async fn settle(endpoint: &Endpoint, tree: &Tree) {
    while tree.is_restructuring() {
        endpoint.sleep(SETTLE_NS).await;
    }
}

/// Deletes most keys, one after the other, or inserts them.
async fn change(
    work: Work,
    (endpoint, tree): (Endpoint, Tree),
    seen: Rc<RefCell<Seen>>,
    changed: Rc<RefCell<Vec<u64>>>,
    sim: Sim,
) {
    let mut cx = OpContext::new(endpoint.clone());
    for number in (0..KEYS).filter(|&number| !work.spares(number)) {
        let before = (sim.verbs_posted(endpoint.id()), tree.structure());
        changed.borrow_mut().push(number);
        match work {
            Work::Shrink => assert_eq!(tree.delete(&mut cx, key_of(number)).await, Ok(true)),
            Work::Grow => assert_eq!(tree.insert(&mut cx, key_of(number), number).await, Ok(true)),
        }
        settle(&endpoint, &tree).await;
        let after = tree.structure();
        if after != before.1 {
            let window = (before.0, sim.verbs_posted(endpoint.id()));
            seen.borrow_mut().changes.push(window);
        }
        let changed = |structure: Structure| structure.inner_merges + structure.lowered;
        if changed(after) > changed(before.1) {
            let window = (before.0, sim.verbs_posted(endpoint.id()));
            seen.borrow_mut().merges.push(window);
        }
    }
    let structure = tree.structure();
    let mut seen = seen.borrow_mut();
    (seen.inner_merges, seen.lowered) = (structure.inner_merges, structure.lowered);
}

/// Goes all the way to keys that stay, until told to end; notes what is wrong.
async fn read_on(endpoint: Endpoint, tree: Tree, is_over: Rc<Cell<bool>>, wrong: Rc<RefCell<Option<String>>>) {
    let mut number = 0;
    while !is_over.get() {
        let mut cx = OpContext::new(endpoint.clone());
        cx.set_deadline(endpoint.deadline_in(30 * LEASE_NS));
        let found = tree.search(&mut cx, key_of(number)).await;
        if found != Ok(Some(number)) {
            *wrong.borrow_mut() = Some(format!("a search meanwhile: key {number} is {found:?}"));
            return;
        }
        number = (number + STAYS) % (KEYS / STAYS * STAYS);
    }
}

/// Shrinks a tree; the client that does dies at a verb, or lives.
///
/// # Errors
/// What is not as it has to be.
pub(crate) fn shrink(seed: u64, shape: Shape, crash: Option<CrashPoint>) -> Result<Seen, String> {
    run(Work::Shrink, seed, shape, crash)
}

/// Shrinks a tree, or lets it grow.
///
/// # Errors
/// What is not as it has to be.
pub(crate) fn run(work: Work, seed: u64, shape: Shape, crash: Option<CrashPoint>) -> Result<Seen, String> {
    let sim = Sim::new(SimOptions {
        seed,
        tear_bytes: 8,
        ..SimOptions::default()
    });
    for _ in 0..1 + seed % 2 {
        let _ = sim.add_memory_node(4 << 20);
    }
    let [dying, stale, late] = [(); 3].map(|()| sim.endpoint(sim.add_compute_node()));
    let first = sim.block_on(open(&dying, shape, 1 << 20));
    let second = sim.block_on(open(&stale, shape, 1 << 20));
    let third = sim.block_on(open(&late, shape, 0));
    let patient = |endpoint: &Endpoint| {
        let mut cx = OpContext::new(endpoint.clone());
        cx.set_deadline(endpoint.deadline_in(30 * LEASE_NS));
        cx
    };
    for number in (0..KEYS).filter(|&number| work == Work::Shrink || work.spares(number)) {
        let stored = sim.block_on(first.put(&mut patient(&dying), key_of(number), number));
        stored.map_err(|error| format!("a put: {error}"))?;
    }
    let remembered = sim.block_on(second.remember_all(&mut patient(&stale)));
    remembered.map_err(|error| format!("remembering: {error}"))?;
    let (seen, changed) = (Rc::new(RefCell::new(Seen::default())), Rc::default());
    seen.borrow_mut().heights[0] = second.height();
    if let Some(crash) = crash {
        sim.crash_client_at(dying.id(), crash);
    }
    let changing = change(
        work,
        (dying.clone(), first.clone()),
        Rc::clone(&seen),
        Rc::clone(&changed),
        sim.clone(),
    );
    let is_done = Rc::new(Cell::new(false));
    let done = Rc::clone(&is_done);
    dying.spawn(async move {
        changing.await;
        done.set(true);
    });
    let (is_over, wrong) = (Rc::new(Cell::new(false)), Rc::new(RefCell::new(None)));
    let reader = read_on(late.clone(), third.clone(), Rc::clone(&is_over), Rc::clone(&wrong));
    late.spawn(reader);
    while !is_done.get() && !sim.is_crashed(dying.id()) {
        sim.run_until(sim.now_ns() + SETTLE_NS);
    }
    // It comes by what is half done.
    sim.run_until(sim.now_ns() + SETTLE_NS);
    is_over.set(true);
    let has_died = sim.is_crashed(dying.id());
    // What may be there or not: the last key was being deleted, or inserted.
    let changed: Vec<u64> = changed.borrow().clone();
    let in_doubt = changed.last().copied().filter(|_| has_died);
    let is_there = |number: u64| match work {
        Work::Shrink => !changed.contains(&number),
        Work::Grow => work.spares(number) || changed.contains(&number),
    };
    let expected = |number: u64| is_there(number).then_some(number);
    let judge = |what: &str, number: u64, found: Result<Option<u64>, String>| match found {
        Ok(found) if in_doubt == Some(number) || found == expected(number) => Ok(()),
        found => Err(format!("{what}: key {number} is {found:?}")),
    };
    for number in 0..KEYS {
        // As they were remembered, and by a client that goes all the way and sees what is half done, before anybody has noticed
        // that the first one is dead.
        for (tree, endpoint) in [(&second, &stale), (&third, &late)] {
            let found = sim.block_on(tree.search(&mut patient(endpoint), key_of(number)));
            judge("a search", number, found.map_err(|error| error.to_string()))?;
        }
    }
    sim.run_until(sim.now_ns() + LEASE_NS / 2);
    let mut scanned = BTreeMap::new();
    let visit = &mut |key, value| {
        scanned.insert(key as u64, value);
    };
    let ended = sim.block_on(third.scan(&mut patient(&late), 0_u64, usize::MAX, visit));
    if ended != Ok(None) {
        return Err(format!("a scan: {ended:?}"));
    }
    for number in 0..KEYS {
        judge("a scan", number, Ok(scanned.get(&key_of(number)).copied()))?;
    }
    sim.run_until(sim.now_ns() + 15 * LEASE_NS);
    if let Some(wrong) = wrong.take() {
        return Err(wrong);
    }
    for number in 0..KEYS {
        let stored = sim.block_on(second.put(&mut patient(&stale), key_of(number), number));
        stored.map_err(|error| format!("a put again: {error}"))?;
        let found = sim.block_on(third.search(&mut patient(&late), key_of(number)));
        if found != Ok(Some(number)) {
            return Err(format!("key {number} was stored, and is {found:?}"));
        }
    }
    sim.block_on(settle(&stale, &second));
    sim.block_on(settle(&late, &third));
    let walked = sim.block_on(second.walk(&mut patient(&stale), &mut |_| {}));
    walked.map_err(|error| format!("a walk: {error}"))?;
    let census = sim.block_on(second.check(&mut patient(&stale)));
    let census = census.map_err(|error| format!("a census: {error}"))?;
    if !census.faults.is_empty() || census.unsettled > 0 {
        return Err(format!("{:?}, {} nodes not settled", census.faults, census.unsettled));
    }
    seen.borrow_mut().heights[1] = second.height();
    let settled = [&second, &third].map(|tree| tree.structure());
    let mut members = vec![second, third];
    if !has_died {
        members.push(first);
    }
    for tree in members {
        let pool = tree.pool().clone();
        drop(tree);
        sim.block_on(pool.leave())
            .map_err(|error| format!("leaving: {error}"))?;
    }
    let blocks: Vec<_> = census.blocks.iter().copied().collect();
    let observer = sim.endpoint(sim.add_compute_node());
    let account = sim.block_on(async {
        let mut cx = OpContext::new(observer);
        let geometry = farside_pool::open(&mut cx).await.expect("a pool");
        account(&mut cx, &geometry, &blocks).await.expect("an account")
    });
    if !account.faults.is_empty() {
        return Err(format!("memory: {:?}", account.faults));
    }
    let mut seen = seen.take();
    let mut cost = vec![0; VerbKind::ALL.len() + 2];
    for node in 0..1 + seed % 2 {
        let statistics = sim.statistics(NodeId::new(node as u16));
        let verbs = VerbKind::ALL.map(|kind| statistics.verbs.of(kind));
        let counts = verbs.into_iter().chain([statistics.bytes_in, statistics.bytes_out]);
        for (sum, count) in cost.iter_mut().zip(counts) {
            *sum += count;
        }
    }
    let structure = |of: &dyn Fn(&Structure) -> u64| settled.iter().map(of).sum::<u64>();
    cost.extend([
        structure(&|tree| tree.splits),
        structure(&|tree| tree.merges + tree.inner_merges + tree.lowered),
        structure(&|tree| tree.settled),
        sim.now_ns(),
        sim.trace_hash(),
    ]);
    seen.cost = cost;
    Ok(seen)
}

/// Dies at verbs of every merge of internal nodes in turn, and of some splits: at each of them, or at one of so many, which the
/// seed chooses.
///
/// # Errors
/// What is not as it has to be, and when.
pub(crate) fn deaths(seed: u64, shape: Shape, every: u64) -> Result<Seen, String> {
    /// A tree splits often, each time alike.
    const SPLITS_APART: usize = 12;
    let whole = shrink(seed, shape, None)?;
    let grown = run(Work::Grow, seed, shape, None)?;
    let merges = whole.merges.iter().map(|&window| (Work::Shrink, window));
    let splits = grown.changes.iter().skip(seed as usize % SPLITS_APART);
    let splits = splits.step_by(SPLITS_APART).map(|&window| (Work::Grow, window));
    for (work, (from, to)) in merges.chain(splits) {
        for verb in (from + 1..=to).filter(|verb| (verb + seed).is_multiple_of(every)) {
            for lines in [None, Some((seed + verb) as u32 % 9)] {
                let died = run(work, seed, shape, Some(CrashPoint { verb, lines }));
                died.map_err(|text| format!("{work:?}, verb {verb} of {from}..={to}, lines {lines:?}: {text}"))?;
            }
        }
    }
    Ok(whole)
}
