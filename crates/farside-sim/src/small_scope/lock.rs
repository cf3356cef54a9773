//! A lock, in small scopes: who has it in which mode, and what becomes of it when somebody dies.
//!
//! As with trees the orders are those with few switches. If somebody dies, each step takes some time, and the same chooser
//! decides to the end: so resets, takeovers and hand-overs of several clients are tried in these orders, too.

use std::cell::Cell;
use std::rc::Rc;

use farside_fabric::sim::{Choices, CrashPoint, Explored, Sim, SimOptions, explore};
use farside_fabric::{Deadline, NodeId, OpContext, RemoteAddr};
use farside_lock::service::Agent;
use farside_lock::{LockError, LockKind, LockOptions, Locker, Mode, Site};

use super::Orders;

/// Where the lock service has its block.
const SERVICE_AT: u64 = 1024;
/// Where the lock is, and what is counted under it.
const ENTRY: RemoteAddr = RemoteAddr::new(NodeId::new(0), 64);
const COUNT: RemoteAddr = RemoteAddr::new(NodeId::new(0), 512);
/// Who has been served so often in a row waits for somebody.
const IN_A_ROW: u32 = 16;
/// After so long the dead are found out.
const LEASE_NS: u64 = 400_000;
/// Everybody has come to an end after so many leases.
const PATIENCE_LEASES: u64 = 60;
/// So long takes a verb where somebody dies.
const STEP_NS: u64 = 1_500;
/// The crash point of the first client is one of so many, the first being none.
const CRASH_POINTS: usize = 12;

/// A lock, and who does what with it.
#[derive(Clone, Debug)]
pub struct LockScope {
    /// What it is.
    pub kind: LockKind,
    /// The modes in which each client takes it, one after the other.
    pub clients: Vec<Vec<Mode>>,
    /// In which orders.
    pub orders: Orders,
    /// After how long every other client gives up waiting; never if `None`. Only if somebody dies does time go on.
    pub patience_ns: Option<u64>,
    /// Whether the first client dies, at each of its first verbs.
    pub with_crash: bool,
}

/// A compute node where every lock has what it needs.
fn site() -> Site {
    Site::new(LockOptions {
        roster: Some(RemoteAddr::new(NodeId::new(0), 4096)),
        service: Some(RemoteAddr::new(NodeId::new(0), SERVICE_AT)),
        lease_ns: LEASE_NS,
        ..LockOptions::default()
    })
}

/// Every order of clients that count under one lock, with so few switches, if they are few.
///
/// # Panics
/// If two of them are inside that must not be, a count is lost, or somebody who has not died does not come to an end; the
/// choices that led to it are printed.
#[must_use]
pub fn lock(scope: &LockScope, limit: u64) -> Explored {
    explore(limit, |choices| one_lock(scope, &choices))
}

/// Who is inside: so many readers, or a writer.
#[derive(Default)]
struct Inside {
    readers: Cell<u32>,
    writers: Cell<u32>,
    ended: Cell<usize>,
    counted: Cell<u64>,
}

impl Inside {
    fn come(&self, mode: Mode, by: i32) {
        let place = match mode {
            Mode::Shared => &self.readers,
            Mode::Exclusive => &self.writers,
        };
        place.set(place.get().checked_add_signed(by).expect("who leaves was inside"));
        let (readers, writers) = (self.readers.get(), self.writers.get());
        assert!(
            writers == 0 || (writers == 1 && readers == 0),
            "{writers} writers and {readers} readers are inside"
        );
    }
}

/// A visit to the lock, which ends with whoever dies inside: it does nothing any more.
struct Visit<'a>(&'a Inside, Mode);

impl<'a> Visit<'a> {
    fn begin(inside: &'a Inside, mode: Mode) -> Self {
        inside.come(mode, 1);
        Self(inside, mode)
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.0.come(self.1, -1);
    }
}

fn one_lock(scope: &LockScope, choices: &Choices) {
    let (kind, with_crash) = (scope.kind, scope.with_crash);
    let sim = Sim::new(SimOptions {
        // Only when time goes on does anybody find out that somebody has died.
        step_ns: if scope.with_crash { STEP_NS } else { 0 },
        ..SimOptions::default()
    });
    let node = sim.add_memory_node(4 * 4096);
    if kind.asks_service() {
        let endpoint = sim.endpoint(sim.add_compute_node());
        let agent = sim.block_on(Agent::start(endpoint.clone(), &site()));
        let agent = agent.expect("the node is there");
        endpoint.spawn(async move {
            let _ = agent.serve().await;
        });
    }
    let inside = Rc::new(Inside::default());
    let mut victim = None;
    let mut works = Vec::new();
    for (client, modes) in scope.clients.iter().cloned().enumerate() {
        let patience_ns = scope.patience_ns.filter(|_| client % 2 == 1);
        let endpoint = sim.endpoint(sim.add_compute_node());
        victim.get_or_insert(endpoint.id());
        let inside = Rc::clone(&inside);
        works.push((endpoint.clone(), async move {
            let locker = Locker::new(kind, &endpoint, &site()).expect("it has all atomics");
            let mut cx = OpContext::new(endpoint);
            for mode in modes {
                let deadline = patience_ns.map(|patience_ns| cx.endpoint().now_ns() + patience_ns);
                cx.set_deadline(deadline.map_or(Deadline::NEVER, Deadline));
                let acquired = locker.acquire(&mut cx, ENTRY, mode).await;
                cx.set_deadline(Deadline::NEVER);
                let grant = match acquired {
                    Ok(grant) => grant,
                    Err(LockError::Timeout { .. }) if deadline.is_some() => continue,
                    Err(error) => panic!("an acquire: {error}"),
                };
                let visit = Visit::begin(&inside, mode);
                let seen = cx.read_word(COUNT).await.expect("the node is there");
                if mode == Mode::Exclusive {
                    cx.write_word(COUNT, seen + 1).await.expect("the node is there");
                    inside.counted.set(inside.counted.get() + 1);
                } else {
                    let again = cx.read_word(COUNT).await.expect("the node is there");
                    assert_eq!(again, seen, "somebody has written while a reader was inside");
                }
                drop(visit);
                match locker.release(&mut cx, grant).await {
                    Ok(()) => {}
                    // Each verb of those who wait takes time: its lease (DSLR's) may be over, and it says so.
                    Err(LockError::LeaseLost { .. }) if with_crash => {}
                    Err(error) => panic!("a release: {error}"),
                }
            }
            inside.ended.set(inside.ended.get() + 1);
        }));
    }
    let victim = victim.expect("a client");
    if scope.with_crash {
        let verb = choices.pick(CRASH_POINTS) as u64;
        if verb > 0 {
            sim.crash_client_at(victim, CrashPoint { verb, lines: None });
        }
    }
    sim.set_chooser(Some(scope.orders.chooser(choices, IN_A_ROW)));
    for (endpoint, work) in works {
        endpoint.spawn(work);
    }
    let mut survivors = scope.clients.len();
    for _ in 0..PATIENCE_LEASES {
        sim.run_until(sim.now_ns() + LEASE_NS);
        survivors = scope.clients.len() - usize::from(sim.is_crashed(victim));
        if inside.ended.get() >= survivors {
            break;
        }
    }
    let deaths = u64::from(sim.is_crashed(victim));
    assert!(
        inside.ended.get() >= survivors,
        "{} of {survivors} came to an end",
        inside.ended.get()
    );
    let counted = sim
        .region(node)
        .word(COUNT.offset())
        .load(core::sync::atomic::Ordering::SeqCst);
    let expected = inside.counted.get();
    assert!(
        (expected..=expected + deaths).contains(&counted),
        "{expected} counts and {deaths} deaths, and the count is {counted}"
    );
}
