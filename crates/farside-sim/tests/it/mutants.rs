//! The harness tested by bugs planted on purpose: each must be noticed within so many seeds.
//!
//! Runs with `cargo xtask mutants`, which builds with the feature that plants them. A new part of
//! Farside brings its own bugs along: `is_planted("crate: what is wrong")` beside the right line, and a
//! line in [`MUTANTS`].

#[path = "../../../farside-index/tests/it/forest/claimed.rs"]
mod claimed;
#[path = "../../../farside-index/tests/it/forest/client.rs"]
mod client;
mod layers;
mod newcomer;
#[path = "../../../farside-index/tests/it/forest/shrink.rs"]
mod shrink;
#[path = "../../../farside-kv/tests/it/snapshot.rs"]
mod snapshot;
mod transactions;
mod trees;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use farside_fabric::Endpoint;
use farside_fabric::mutant::{plant, reached};
use farside_fabric::sim::{Sim, SimOptions};
use farside_fabric::{MaskedAdd, MaskedCas, NodeId, OpContext, RemoteAddr};
use farside_lock::{LockError, LockKind, LockOptions, Locker, Mode, Site};
use farside_pool::epoch::Epochs;
use farside_sim::draw::Flavour;
use farside_sim::plan::Plan;
use farside_sim::{Failure, Target, draw, execute};
use farside_sync::{Entered, Intent, Pointer, Publish, Scheme, SizeHint, Synchroniser};

/// Who has to notice.
enum Notices {
    /// A swarm over the targets with this in their name.
    Swarm(&'static str),
    /// The same, over plans in which a node is far away.
    Far(&'static str),
    /// The same, over plans in which everybody writes the same keys.
    Hot(&'static str),
    /// The same, over plans in which clients are stopped for longer than their leases.
    Stopped(&'static str),
    /// The plan that has found it, with other seeds: drawing another one takes more than ten thousand.
    Planned(&'static str),
    /// A check of its own, from a seed.
    Check(fn(u64) -> Result<(), String>),
}

use Notices::{Check, Far, Hot, Planned, Stopped, Swarm};

/// Every planted bug: its name in the code, and who has to notice it.
const MUTANTS: &[(&str, Notices)] = &[
    ("verb: a mask of a compare-and-swap ignored", Check(masked_verbs)),
    ("verb: a mask of a swap ignored", Check(masked_verbs)),
    ("verb: a carry across a boundary", Check(masked_verbs)),
    ("cas: a swap that outlives its acquire", Swarm("lock:cas")),
    ("cas: a grant to an impatient client", Swarm("lock:cas")),
    ("cas: a release that arrives late", Swarm("lock:cas")),
    ("cas-rw: readers beside a writer", Swarm("lock:cas-rw")),
    ("mcs: a queue left when the deadline passes", Swarm("lock:mcs")),
    ("mcs: any letter taken for a hand-over", Swarm("lock:mcs")),
    ("mcs: a successor that is not waited for", Swarm("lock:mcs")),
    (
        "service: an agent that overwrites the name of the next",
        Check(agents_in_a_row),
    ),
    ("rpc: a lock granted that is held", Swarm("lock:rpc")),
    ("rpc: the first reader frees the lock", Swarm("lock:rpc")),
    (
        "shiftlock: a writer that does not wait for readers",
        Swarm("lock:shiftlock"),
    ),
    (
        "shiftlock: a reader that does not wait for writers",
        Swarm("lock:shiftlock"),
    ),
    (
        "shiftlock: a writer that waits for one reader too few",
        Swarm("lock:shiftlock"),
    ),
    ("shiftlock: a hand-over without a count", Swarm("lock:shiftlock")),
    (
        "shiftlock: a count by an add, which nothing fences",
        Stopped("lock:shiftlock"),
    ),
    (
        "shiftlock: a lease from a count that may not arrive",
        Swarm("lock:shiftlock"),
    ),
    (
        "shiftlock: a reader that was cut off goes on",
        Stopped("lock:shiftlock"),
    ),
    (
        "locks: a name that is not looked at under its lock",
        Swarm("named-locks"),
    ),
    ("locks: a name written twice", Swarm("named-locks")),
    (
        "locks: a hold that is vouched for without proof",
        Stopped("named-locks"),
    ),
    ("locks: a warning that is not looked at", Stopped("named-locks")),
    ("farside: a swap that compares nothing", Swarm("store:race/farside")),
    (
        "farside: the block that was read retired instead of the one that was replaced",
        Swarm("store:race/farside"),
    ),
    ("declock: a grant after an abort", Swarm("lock:declock")),
    ("declock: a grant for another place", Swarm("lock:declock")),
    (
        "declock: a reader that does not look for writers",
        Swarm("lock:declock"),
    ),
    ("declock: a reset that newcomers do not see", Swarm("lock:declock")),
    ("declock: holders that nobody waits for", Swarm("lock:declock")),
    ("declock: one reader granted for all", Swarm("lock:declock")),
    ("declock: the dead not cut off", Check(a_holder_that_stands_still)),
    ("declock: versions that nobody compares", Swarm("lock:declock")),
    ("rma-rw: a reader that does not wait for writers", Swarm("lock:rma-rw")),
    ("dslr: a release after the lease", Swarm("lock:dslr")),
    ("dslr: a void that keeps a ticket", Swarm("lock:dslr")),
    ("dslr: readers that do not wait for a writer", Swarm("lock:dslr")),
    ("drtm: a lease that a writer does not wait for", Swarm("lock:drtm")),
    (
        "grow: a node known before it is reached",
        Check(super::growing::grows_and_shrinks),
    ),
    (
        "grow: a node used before everybody knows it",
        Check(super::growing::grows_and_shrinks),
    ),
    (
        "drain: a node left with its chunks owned",
        Check(super::growing::grows_and_shrinks),
    ),
    (
        "drain: a node removed that holds something",
        Check(super::growing::grows_and_shrinks),
    ),
    ("pool: a block reused two epochs too early", Swarm("store")),
    ("pool: a block reused an epoch too early", Swarm("store")),
    ("pool: a walk beside operations that have allocated", Swarm("store")),
    ("pool: a retired block reused at once", Swarm("store")),
    ("pool: a block retired twice", Swarm("store")),
    ("pool: pins not published", Swarm("store")),
    ("pool: the epoch advanced without asking everybody", Swarm("store")),
    ("pool: a client declared dead that was not cut off", Stopped("store")),
    ("pool: a death announced by nobody", Swarm("store")),
    ("pool: a search that forgets the limbo of others", Far("store")),
    ("pool: the block next to a linked one acquitted", Swarm("store")),
    ("pool: blocks of the dead not found", Swarm("store")),
    ("pool: chunks of the dead left behind", Swarm("store")),
    (
        "pool: who joins looks for the dead before it is there",
        Check(newcomer::who_joins_while_others_search),
    ),
    ("pool: a client that cannot leave stays for ever", Swarm("store")),
    (
        "pool: a client that leaves its operations behind",
        Planned(include_str!("../../plans/pool-operations-of-a-client-that-left.json")),
    ),
    ("pool: doubts forgotten", Swarm("store")),
    (
        "pool: blocks on their way home taken for there",
        Planned(include_str!("../../plans/block-on-its-way-home.json")),
    ),
    ("pool: a chunk claimed without a look", Swarm("store")),
    ("pool: node 0 formatted first", Swarm("store")),
    ("pool: a watched word not looked at", Swarm("race")),
    (
        "snapshot: a change that does not wait at the gate",
        Check(a_snapshot_beside_writers),
    ),
    (
        "snapshot: an instant that not everybody knows of",
        Check(a_snapshot_beside_writers),
    ),
    (
        "snapshot: what is written is not noted",
        Check(a_snapshot_beside_writers),
    ),
    (
        "snapshot: what is replaced is not noted",
        Check(a_snapshot_beside_writers),
    ),
    (
        "snapshot: blocks reused while it is taken",
        Check(a_snapshot_beside_writers),
    ),
    (
        "snapshot: items of a layer that nothing leads to",
        Check(layers::exported),
    ),
    (
        "snapshot: items shown that were written since",
        Check(a_snapshot_beside_writers),
    ),
    ("optimistic: published without a comparison", Swarm("optimistic")),
    ("local: a window that stays open", Hot("store:race/farside")),
    (
        "cider: a result that goes beyond its executor",
        Hot("store:race/cider-no-ca"),
    ),
    (
        "cider: a coordinator that takes a reset for an answer",
        Planned(include_str!("../../plans/cider-coordinator-after-a-reset.json")),
    ),
    ("cider: a DELETE that is overtaken", Check(a_queue_of_one_version)),
    (
        "cider: an identity that nobody compares",
        Check(a_version_that_has_come_round),
    ),
    (
        "cider: a successor that is not waited for",
        Check(a_queue_of_one_version),
    ),
    ("pointer: a hint that is one word short", Swarm("store")),
    ("race: a lock kept by whoever gives up", Swarm("race")),
    ("race: a closed bucket taken for open", Swarm("race")),
    ("race: a key not looked for under the lock", Swarm("race")),
    ("race: a locked bucket taken for closed", Swarm("race")),
    ("race: entries moved without being frozen", Swarm("race")),
    ("race: a change of the directory not announced", Swarm("race")),
    (
        "race: a directory that has grown read as it was",
        Check(newcomer::who_opens_while_the_table_grows),
    ),
    ("index: a key not compared", Swarm("pointer-array")),
    ("index: a search without a pin", Far("pointer-array")),
    ("index: a search of many without a pin", Far("pointer-array")),
    ("index: a lost update acknowledged", Swarm("pointer-array")),
    ("index: a delete that leaves the key", Swarm("pointer-array")),
    ("index: a replaced item not retired", Swarm("pointer-array")),
    ("index: a replaced bucket not retired", Swarm("pointer-array")),
    ("index: an insert that drops a neighbour", Swarm("pointer-array")),
    ("index: an item written after it is published", Swarm("pointer-array")),
    ("tree: a sibling that nobody compares", Swarm("tree:")),
    ("tree: a version that nobody compares", Hot("tree:")),
    ("tree: a home that nobody asks for its keys", Hot("tree:chime")),
    ("tree: a deleted key that its home still names", Swarm("tree:chime")),
    ("tree: a split without an intent", Swarm("tree:")),
    ("tree: a neighbour merged without its lock", Swarm("tree:")),
    ("tree: a leaf that goes unannounced", Swarm("tree:")),
    (
        "tree: internal nodes merged without an intent",
        Check(trees::internal_nodes_that_merge),
    ),
    (
        "tree: internal nodes merged without an intent of the parent",
        Check(trees::internal_nodes_that_merge),
    ),
    (
        "tree: a parent that forgets before its children have merged",
        Check(trees::internal_nodes_that_merge),
    ),
    (
        "tree: an internal node freed at once",
        Check(trees::internal_nodes_that_merge),
    ),
    (
        "tree: a root that is remembered for ever",
        Check(trees::internal_nodes_that_merge),
    ),
    ("tree: keys left in a leaf that is gone", Swarm("tree:chime")),
    ("tree: a swap that has failed taken for done", Swarm("/plain")),
    ("tree: a lock taken over with what its holder has left", Swarm("tree:")),
    ("tree: a scan of a leaf that is gone", Swarm("tree:")),
    (
        "tree: a scan that takes what it cannot tell for absent",
        Swarm("tree:chime"),
    ),
    ("tree: a turn that is not passed on", Swarm("tree:sherman/hierarchical")),
    (
        "tree: a word on the NIC that the dead keep",
        Swarm("tree:chime/on-chip"),
    ),
    (
        "tree: a leaf linked while its neighbour is written",
        Check(trees::a_leaf_that_is_half_written),
    ),
    ("rolex: a model that is never wrong", Swarm("tree:rolex")),
    ("rolex: absent from a leaf that is another one by now", Swarm(":rolex")),
    ("marlin: two claims for one key", Swarm("ordered:marlin")),
    ("marlin: a leaf closed with a claim in it", Swarm("ordered:marlin")),
    (
        "marlin: a deleted key that is stored anew beside itself",
        Swarm("ordered:marlin"),
    ),
    (
        "marlin: an entry vacated that may be another key's",
        Swarm("ordered:marlin"),
    ),
    ("marlin: a claim of the dead that stays", Swarm("ordered:marlin")),
    (
        "marlin: an entry claimed while its leaf is written",
        Check(trees::a_key_beside_a_merge),
    ),
    ("tree: entries moved without being frozen", Hot("ordered:")),
    ("tree: an entry that forgets whose it was", Hot("ordered:chime/farside")),
    (
        "smart: a node believed to be as small as the entry says",
        Swarm("ordered:smart"),
    ),
    ("smart: a frozen entry taken for a live one", Swarm("ordered:smart")),
    ("smart: a free entry that is not frozen", Swarm("ordered:smart")),
    (
        "smart: an entry that gets another key under the same version",
        Swarm("ordered:smart"),
    ),
    ("smart: a way that is remembered believed", Swarm("ordered:smart")),
    ("smart: a way with a gap believed", Swarm("ordered:smart")),
    ("smart: skipped bytes taken for the key's", Swarm("ordered:smart")),
    (
        "smart: a node that is said to be larger after its entry is there",
        Swarm("ordered:smart"),
    ),
    ("smart: a node that goes and nobody is told", Swarm("ordered:smart")),
    ("ordered: a layer that begins without the other key", Swarm("ordered:")),
    ("ordered: a key of another leaf taken for absent", Swarm("ordered:")),
    ("ordered: an entry whose item is not written", Swarm("ordered:")),
    ("ordered: a draft that is not written", Swarm("ordered:")),
    ("ordered: a draft that is not given back", Swarm("ordered:")),
    (
        "ordered: an entry that leads to a layer whatever it was",
        Swarm("ordered:"),
    ),
    ("evict: whatever is stored by then removed", Swarm("store")),
    ("evict: a key chosen that never expires", Swarm("store")),
    ("sweep: a key removed that was stored anew", Swarm("store")),
    ("kv: an insert over what is there", Swarm("store")),
    ("kv: an answer of the first of two attempts", Swarm("store")),
    ("kv: two changes of a key in flight", Swarm("store")),
    ("kv: a group that shows what has expired", Swarm("store")),
    ("race: a group that believes a closed bucket", Swarm("store:race")),
    ("index: what a group cannot read taken for absent", Swarm("store")),
    ("ordered: a group that takes a torn leaf for empty", Swarm("ordered:")),
    (
        "smart: a group that takes a frozen entry for empty",
        Swarm("ordered:smart"),
    ),
    ("transaction: a mark that leaves the identity", Swarm("store:")),
    (
        "transaction: a body that sees several instants",
        Check(transactions::the_first_and_the_last),
    ),
    (
        "transaction: a reader that sees what was before",
        Check(transactions::one_and_then_another),
    ),
    (
        "transaction: what a descriptor replaced is not retired",
        Swarm("store:"),
    ),
    ("transaction: what the dead have left is not settled", Swarm("store:")),
    ("transaction: what was read not looked at again", Swarm("store:")),
    (
        "transaction: what was read on the way not looked at again",
        Swarm("store:"),
    ),
    ("transaction: a key removed that was stored anew", Swarm("store:")),
    (
        "transaction: what a transaction has removed removed once more",
        Swarm("store:"),
    ),
    (
        "mirror: a backup does not wait until its grant is over",
        Check(mirrored),
    ),
    ("mirror: a copy skips a part", Check(mirrored)),
    ("mirror: a fence is not logged", Check(mirrored)),
    ("mirror: a joining member counts before it is whole", Check(mirrored)),
    ("mirror: a log of another epoch is continued", Check(mirrored)),
    ("mirror: a message leaves before backups have it", Check(mirrored)),
    ("mirror: a primary answers without its grants", Check(mirrored)),
    ("mirror: a read does not wait for what it has seen", Check(mirrored)),
    ("mirror: a stream of an old epoch is heeded", Check(mirrored)),
    ("mirror: answers are not kept", Check(mirrored)),
    ("mirror: answers leave before backups have them", Check(mirrored)),
    ("mirror: effects are applied backwards", Check(mirrored)),
    ("mirror: half a batch is applied", Check(mirrored)),
];

/// After how many seeds a bug counts as not noticed.
const SEEDS_MAX: u64 = 20_000;

/// Where bugs that hide well have been found, to be tried first. A change of what they are in may move them.
const FOUND_BEFORE: &[(&str, u64)] = &[
    ("cider: a coordinator that takes a reset for an answer", 3985),
    ("declock: a grant after an abort", 330),
    ("declock: a grant for another place", 4431),
    ("declock: a reader that does not look for writers", 1714),
    ("declock: a reset that newcomers do not see", 22),
    ("declock: one reader granted for all", 475),
    ("declock: versions that nobody compares", 475),
    ("index: a search of many without a pin", 2041),
    ("index: a search without a pin", 815),
    ("kv: an answer of the first of two attempts", 572),
    ("locks: a warning that is not looked at", 817),
    ("marlin: a leaf closed with a claim in it", 574),
    ("marlin: an entry vacated that may be another key's", 568),
    ("mirror: a backup does not wait until its grant is over", 271),
    ("mirror: a stream of an old epoch is heeded", 92),
    ("pool: a client that leaves its operations behind", 1),
    ("race: a closed bucket taken for open", 413),
    ("race: a locked bucket taken for closed", 2217),
    ("shiftlock: a lease from a count that may not arrive", 93_728),
    ("shiftlock: a reader that was cut off goes on", 308),
    ("shiftlock: a writer that waits for one reader too few", 236),
    ("smart: a node that is said to be larger after its entry is there", 730),
    ("smart: a way that is remembered believed", 464),
    ("smart: a way with a gap believed", 8685),
    ("snapshot: a change that does not wait at the gate", 173),
    ("snapshot: blocks reused while it is taken", 187),
    ("transaction: what a transaction has removed removed once more", 1534),
    ("transaction: what the dead have left is not settled", 4057),
    ("tree: a home that nobody asks for its keys", 1321),
    ("tree: a leaf linked while its neighbour is written", 1462),
    ("tree: a leaf that goes unannounced", 2082),
    ("tree: a scan of a leaf that is gone", 1635),
    ("tree: a scan that takes what it cannot tell for absent", 4004),
    ("tree: a split without an intent", 1322),
    ("tree: a version that nobody compares", 17_824),
    ("tree: an entry that forgets whose it was", 975),
    ("tree: keys left in a leaf that is gone", 2504),
];

/// Exports beside clients that write, delete, carry out transactions and die.
fn a_snapshot_beside_writers(seed: u64) -> Result<(), String> {
    let ran = std::panic::catch_unwind(|| snapshot::run(seed, &|_| ()));
    ran.map_or_else(|_| Err("a panic".to_owned()), |ran| ran.map(drop))
}

/// Masked atomics over the simulated fabric against arithmetic bit by bit.
fn masked_verbs(seed: u64) -> Result<(), String> {
    let sim = Sim::new(SimOptions {
        seed,
        ..SimOptions::default()
    });
    let at = RemoteAddr::new(sim.add_memory_node(4096), 64);
    let endpoint = sim.endpoint(sim.add_compute_node());
    let mut cx = OpContext::new(endpoint.clone());
    let [word, compare, compare_mask, swap, swap_mask] = core::array::from_fn(|_| endpoint.random());
    // Half of the time what is compared is equal.
    let compare = if seed.is_multiple_of(2) {
        word ^ (compare & !compare_mask)
    } else {
        compare
    };
    let operands = MaskedCas {
        compare,
        compare_mask,
        swap,
        swap_mask,
    };
    let bits = |choose: &dyn Fn(u32) -> bool| (0..64).fold(0, |all, bit| all | u64::from(choose(bit)) << bit);
    let bit = |word: u64, at: u32| word >> at & 1 == 1;
    let is_equal = (0..64).all(|at| !bit(compare_mask, at) || bit(word, at) == bit(compare, at));
    let swapped = bits(&|at| bit(if is_equal && bit(swap_mask, at) { swap } else { word }, at));
    let (add, boundary) = (endpoint.random(), endpoint.random() & endpoint.random());
    let mut carry = false;
    let added = bits(&|_| false)
        | (0..64).fold(0, |all, at| {
            let sum = u8::from(bit(swapped, at)) + u8::from(bit(add, at)) + u8::from(carry);
            carry = sum > 1 && !bit(boundary, at);
            all | u64::from(sum & 1) << at
        });
    let seen = sim.block_on(async {
        cx.write_word(at, word).await?;
        cx.masked_compare_swap(at, operands).await?;
        cx.masked_fetch_add(at, MaskedAdd { add, boundary }).await
    });
    let last = sim.region(NodeId::new(0)).word(64).load(Ordering::SeqCst);
    if (seen, last) == (Ok(swapped), added) {
        Ok(())
    } else {
        Err(format!(
            "{word:#x}: saw {seen:x?} and {last:#x} instead of {swapped:#x} and {added:#x}"
        ))
    }
}

/// Two agents of a lock service die one upon the other: a plan that was found once.
fn agents_in_a_row(_: u64) -> Result<(), String> {
    let plan = include_str!("../../plans/lock-agent-named-after-its-death.json");
    let plan: Plan = serde_json::from_str(plan).map_err(|error| error.to_string())?;
    execute(&plan).failure.map_or(Ok(()), |failure| Err(failure.text))
}

/// A holder stands still for so long that it is taken for dead, and goes on in the middle of its section
/// while another is inside.
fn a_holder_that_stands_still(seed: u64) -> Result<(), String> {
    let sim = Sim::new(SimOptions {
        seed,
        ..SimOptions::default()
    });
    let node = sim.add_memory_node(1 << 16);
    let [lock, count, roster] = [64, 1024, 4096].map(|at| RemoteAddr::new(node, at));
    let options = LockOptions {
        lease_ns: 100_000,
        roster: Some(roster),
        ..LockOptions::default()
    };
    let [slow, quick] = [(); 2].map(|()| sim.endpoint(sim.add_compute_node()));
    let kind = LockKind::by_name("declock").expect("it is registered");
    let enter = async move |endpoint: Endpoint, inside_ns: u64| {
        let locker = Locker::new(kind, &endpoint, &Site::new(options)).expect("there is a roster");
        let mut cx = OpContext::new(endpoint.clone());
        let _grant = locker.acquire(&mut cx, lock, Mode::Exclusive).await?;
        let seen = cx.read_word(count).await?;
        endpoint.sleep(inside_ns).await;
        Ok::<_, LockError>((seen, cx))
    };
    let task = slow.clone();
    slow.spawn(async move {
        // If it was cut off, its WRITE fails.
        if let Ok((seen, mut cx)) = enter(task, 50_000).await {
            let _ = cx.write_word(count, seen + 1).await;
        }
    });
    sim.run_until(40_000);
    sim.pause_client(slow.id());
    let result = Rc::new(Cell::new(None));
    let (task, slot) = (quick.clone(), Rc::clone(&result));
    quick.spawn(async move {
        let (seen, mut cx) = enter(task, 2_000_000).await.expect("the node is there");
        slot.set(Some((seen, cx.read_word(count).await.expect("the node is there"))));
    });
    sim.run_until(2_000_000);
    sim.resume_client(slow.id());
    sim.run_until(10_000_000);
    match result.get() {
        Some((seen, now)) if seen == now => Ok(()),
        other => Err(format!("{other:?}: the slow one wrote while the other was inside")),
    }
}

/// The slot of the checks below, and its lock entry.
const POINTER: farside_sync::Target = farside_sync::Target {
    slot: RemoteAddr::new(NodeId::new(0), 64),
    lock: RemoteAddr::new(NodeId::new(0), 128),
    name: 0,
};

/// The pointer of an item of a client.
fn item(client: u64, version: u8) -> Pointer {
    let block = RemoteAddr::new(NodeId::new(0), 4096 + 32 * client);
    Pointer::new(block, SizeHint::Half, version)
}

/// What a client of `cider-no-ca` is told that puts an item in the place of `old`, or removes it.
async fn change(endpoint: Endpoint, old: Pointer, new: Pointer) -> Result<Option<Publish>, String> {
    let scheme = Scheme::by_name("cider-no-ca").expect("a scheme");
    let sync = Synchroniser::new(&endpoint, scheme.into()).map_err(|error| error.to_string())?;
    let intent = if new.is_null() { Intent::Delete } else { Intent::Update };
    let (mut cx, pin) = (OpContext::new(endpoint), Rc::new(Epochs::default()).pin());
    let entered = sync.enter(&mut cx, POINTER, old, intent, &pin).await;
    match entered.map_err(|error| error.to_string())? {
        Entered::Turn(turn) => {
            let published = sync.overwrite(&mut cx, turn, POINTER, old, new).await;
            Ok(Some(published.map_err(|error| error.to_string())?))
        }
        Entered::Combined => Ok(None),
        Entered::Lost { current } => Ok(Some(Publish::Lost { current })),
    }
}

/// What every client was told that makes a change in the order of the list, a little later each; in their order. Nobody may
/// have to wait for a lease.
fn told(seed: u64, first: Pointer, changes: &[(Pointer, Pointer)]) -> Result<(Pointer, Vec<Option<Publish>>), String> {
    let sim = Sim::new(SimOptions {
        seed,
        jitter_ns: 1_500,
        ..SimOptions::default()
    });
    let node = sim.add_memory_node(1 << 16);
    let word = |offset| sim.region(node).word(offset).load(Ordering::SeqCst);
    sim.region(node)
        .word(POINTER.slot.offset())
        .store(first.to_word(), Ordering::SeqCst);
    let answers = Rc::new(RefCell::new(BTreeMap::new()));
    for (number, &(old, new)) in (0_u64..).zip(changes) {
        let (endpoint, answers) = (sim.endpoint(sim.add_compute_node()), Rc::clone(&answers));
        endpoint.clone().spawn(async move {
            endpoint.sleep(number * 250).await;
            let answer = change(endpoint, old, new).await;
            answers.borrow_mut().insert(number, answer);
        });
    }
    // A lease is a second.
    sim.run_until(10_000_000);
    let answers = answers.take();
    if answers.len() < changes.len() {
        return Err(format!("{} of {} came to an end", answers.len(), changes.len()));
    }
    let answers = answers.into_values().collect::<Result<Vec<_>, _>>()?;
    Ok((Pointer::from_word(word(POINTER.slot.offset())), answers))
}

/// A DELETE among updates: it removes the key for good, and those behind it find it gone.
fn a_queue_of_one_version(seed: u64) -> Result<(), String> {
    let (old, empty) = (item(20, 1), Pointer::NULL.with_version(2));
    let at = seed % 9;
    let new = |number| if number == at { empty } else { item(number, 1) };
    let changes: Vec<_> = (0..9).map(|number| (old, new(number))).collect();
    let (last, answers) = told(seed, old, &changes)?;
    match answers[at as usize] {
        Some(Publish::Replaced { .. }) if last == empty => Ok(()),
        answer => Err(format!("the DELETE was told {answer:?}, and the slot holds {last:?}")),
    }
}

/// Sleepers that have seen another key, whose version has come round, among updates.
fn a_version_that_has_come_round(seed: u64) -> Result<(), String> {
    let (before, now) = (item(20, 1), item(21, 33));
    let change = |number| match number % 2 {
        0 => (now, item(number, 33)),
        _ => (before, item(number, 1)),
    };
    let changes: Vec<_> = (0..9).map(change).collect();
    let (last, answers) = told(seed, now, &changes)?;
    let is_lost = |answer: &Option<Publish>| matches!(answer, Some(Publish::Lost { .. }));
    let sleepers = answers.iter().skip(1).step_by(2);
    match sleepers.clone().all(is_lost) && last.has_identity_of(now) {
        true => Ok(()),
        false => Err(format!("sleepers were told {:?}", sleepers.collect::<Vec<_>>())),
    }
}

fn planned(text: &str, seed: u64) -> Result<(), String> {
    let mut plan: Plan = serde_json::from_str(text).map_err(|error| error.to_string())?;
    plan.seed += seed - 1;
    execute(&plan)
        .failure
        .map_or(Ok(()), |failure| Err(failure.to_string()))
}

/// How a planted bug is noticed with a seed, if it is.
fn look(name: &'static str, notices: &Notices, seed: u64) -> Option<Failure> {
    plant(Some(name));
    let failure = match notices {
        Swarm(part) => execute(&draw::plan(seed, &Target::matching(part))).failure,
        Far(part) => execute(&draw::plan_of(Flavour::FarNode, seed, &Target::matching(part))).failure,
        Hot(part) => execute(&draw::plan_of(Flavour::Hot, seed, &Target::matching(part))).failure,
        Stopped(part) => execute(&draw::plan_of(Flavour::Stopped, seed, &Target::matching(part))).failure,
        Planned(plan) => planned(plan, seed).err().map(|text| Failure::new("check", text)),
        Check(check) => check(seed).err().map(|text| Failure::new("check", text)),
    };
    let was_reached = reached() > 0;
    plant(None);
    failure.inspect(|failure| assert!(was_reached, "{name}: seed {seed} fails without it: {failure}"))
}

/// With which seed, and how, a planted bug is noticed.
fn hunt(name: &'static str, notices: &Notices) -> Option<(u64, Failure)> {
    let found_before = FOUND_BEFORE.iter().filter(|(bug, _)| *bug == name);
    let seeds = found_before.map(|(_, seed)| *seed).chain(1..=SEEDS_MAX);
    seeds
        .into_iter()
        .find_map(|seed| Some((seed, look(name, notices, seed)?)))
}

/// `FARSIDE_RATE`: how many of so many seeds notice each bug, which says more than the first that does.
fn rates(mutants: &[&'static (&'static str, Notices)], seeds: u64) {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                // Relaxed: each is taken once, and nothing else hangs on it.
                while let Some((name, notices)) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = (1..=seeds).filter(|&seed| look(name, notices, seed).is_some()).count();
                    println!("{name:<64} {found:>6} of {seeds}");
                }
            });
        }
    });
}

#[test]
fn every_planted_bug_is_noticed() {
    let only = std::env::var("FARSIDE_MUTANT").unwrap_or_default();
    let mutants: Vec<_> = MUTANTS.iter().filter(|(name, _)| name.contains(&only)).collect();
    if let Some(seeds) = super::simulation::setting("FARSIDE_RATE") {
        return rates(&mutants, seeds);
    }
    let next = AtomicUsize::new(0);
    let found = Mutex::new(BTreeMap::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                // Relaxed: each is taken once, and nothing else hangs on it.
                while let Some((name, notices)) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let noticed = hunt(name, notices);
                    found.lock().expect("no thread panics with it").insert(*name, noticed);
                }
            });
        }
    });
    let found = found.into_inner().expect("no thread panics with it");
    for (name, noticed) in &found {
        match noticed {
            Some((seed, failure)) => {
                let before = FOUND_BEFORE.iter().find(|(bug, before)| bug == name && before != seed);
                let moved = before.map_or_else(String::new, |(_, before)| format!(", no longer {before}"));
                println!("{name:<64} seed {seed:>6}{moved}  {}", failure.kind);
            }
            None => println!("{name:<64} NOT NOTICED"),
        }
    }
    let missed: Vec<_> = found.iter().filter(|(_, noticed)| noticed.is_none()).collect();
    assert!(
        missed.is_empty(),
        "{} of {} planted bugs are not noticed",
        missed.len(),
        found.len()
    );
}

/// Every place where a bug can be planted, and a run can come past.
pub(crate) fn places() -> impl Iterator<Item = &'static str> {
    MUTANTS.iter().map(|&(name, _)| name)
}

/// Mirrored nodes under faults.
fn mirrored(seed: u64) -> Result<(), String> {
    farside_sim::mirror::run(seed).map(drop)
}

/// Without a bug there is nothing to notice.
#[test]
fn checks_hold_without_bugs() {
    let mut seen: Vec<fn(u64) -> Result<(), String>> = Vec::new();
    for (name, notices) in MUTANTS {
        if let &Check(check) = notices
            && !seen.iter().any(|&other| core::ptr::fn_addr_eq(other, check))
        {
            seen.push(check);
            for seed in 1..=20 {
                assert_eq!(check(seed), Ok(()), "{name}, seed {seed}");
            }
        }
    }
}

/// The list above is the list of what is planted.
#[test]
fn every_planted_bug_is_listed() {
    let mut planted = Vec::new();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    visit(&crates, &mut planted);
    planted.sort_unstable();
    planted.dedup();
    let mut listed: Vec<String> = MUTANTS.iter().map(|&(name, _)| name.to_owned()).collect();
    listed.sort_unstable();
    assert_eq!(planted, listed);
    for (name, _) in FOUND_BEFORE {
        assert!(
            MUTANTS.iter().any(|(listed, _)| listed == name),
            "{name} is no longer planted"
        );
    }
}

/// Collects the names in `is_planted("...")` of all sources below a folder.
fn visit(folder: &Path, planted: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("the sources are there") {
        let path = entry.expect("an entry").path();
        let is_test = path.ends_with("farside-sim/tests") || path.ends_with("target");
        if path.is_dir() && !is_test {
            visit(&path, planted);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("a source");
            let calls = text.split("is_planted(\"").skip(1);
            planted.extend(calls.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
        }
    }
}
