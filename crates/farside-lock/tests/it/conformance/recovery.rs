//! Recovery, for locks that say so in `LockKind::survives_crashes`: clients die after each of their verbs in
//! turn, on the way to the lock, inside, and on the way out; so does the agent of the lock service. The others
//! go on, nobody is inside together with a writer, and no count is lost. Who was only slow finds out.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use farside_fabric::Endpoint;
use farside_fabric::sim::{CrashPoint, Sim, SimOptions};
use farside_fabric::{EndpointId, FabricError, OpContext};
use farside_lock::{LockError, LockOptions, Locker, Mode, Site};

use super::exclusion::{COUNT, LOCK, MEMORY_BYTES};
use super::service::{self, Subject};

const LEASE_NS: u64 = 200_000;
const SURVIVORS: u64 = 4;
const ROUNDS: u64 = 5;
/// How long everybody has to come to an end: many recoveries, one after the other.
const PATIENCE_NS: u64 = 100 * LEASE_NS;
/// How often the test looks who has died.
const SLICE_NS: u64 = 1_000;

/// That a client was inside.
#[derive(Clone, Copy, Debug)]
struct Hold {
    client: EndpointId,
    is_writer: bool,
    from_ns: u64,
    to_ns: Option<u64>,
}

/// What clients did.
#[derive(Default)]
struct Log {
    holds: RefCell<Vec<Hold>>,
    /// Counts that were written, and those whose client died over them.
    counted: Cell<u64>,
    open: Cell<u64>,
    /// Clients that came to an end.
    ended: Cell<u64>,
    leases_lost: Cell<u64>,
}

impl Log {
    /// Whoever died was inside until now, at most.
    fn bury(&self, client: EndpointId, now_ns: u64) {
        for hold in self.holds.borrow_mut().iter_mut().filter(|hold| hold.client == client) {
            hold.to_ns.get_or_insert(now_ns);
        }
    }

    /// Whoever was cut off did nothing under its last lock from some time on that it does not know.
    fn cut_off(&self, client: EndpointId) {
        add(&self.leases_lost, 1);
        let mut holds = self.holds.borrow_mut();
        if let Some(hold) = holds.iter_mut().rev().find(|hold| hold.client == client) {
            hold.to_ns = Some(hold.from_ns);
        }
    }

    /// Nobody was inside together with a writer.
    fn check(&self, seed: u64) {
        let holds = self.holds.borrow();
        for (index, one) in holds.iter().enumerate() {
            for other in &holds[index + 1..] {
                let is_apart = one.to_ns.is_some_and(|to_ns| to_ns <= other.from_ns)
                    || other.to_ns.is_some_and(|to_ns| to_ns <= one.from_ns);
                let may_share = !one.is_writer && !other.is_writer;
                assert!(is_apart || may_share, "seed {seed}: {one:?} and {other:?}");
            }
        }
    }
}

struct World {
    sim: Sim,
    subject: Subject,
    log: Rc<Log>,
    seed: u64,
}

impl World {
    fn new(subject: Subject, seed: u64) -> Self {
        let sim = Sim::new(SimOptions {
            seed,
            jitter_ns: 100 * (seed % 7),
            ..SimOptions::default()
        });
        let _ = sim.add_memory_node(MEMORY_BYTES);
        Self {
            sim,
            subject,
            log: Rc::default(),
            seed,
        }
    }

    /// A compute node of its own for each client: what is shared dies together.
    fn site(&self) -> Site {
        service::site_with(LockOptions {
            lease_ns: LEASE_NS,
            ..self.subject.options()
        })
    }

    /// A client that works for a while, in both modes; it stays inside for up to `inside_ns`.
    fn start_client(&self, inside_ns: u64) -> Endpoint {
        let endpoint = self.sim.endpoint(self.sim.add_compute_node());
        let locker = Locker::new(self.subject.kind, &endpoint, &self.site()).expect("it has all atomics");
        let (task, log) = (endpoint.clone(), Rc::clone(&self.log));
        endpoint.spawn(async move {
            let mut cx = OpContext::new(task.clone());
            for _ in 0..ROUNDS {
                let is_writer = task.random_below(3) > 0;
                let inside_ns = task.random_below(inside_ns);
                match enter(&mut cx, &locker, is_writer, inside_ns, &log).await {
                    Ok(()) => {}
                    // It was taken for dead, and would have to start anew.
                    Err(LockError::Fabric(FabricError::Fenced { .. })) => {
                        log.cut_off(task.id());
                        break;
                    }
                    Err(error) => panic!("{error}"),
                }
                task.sleep(task.random_below(5_000)).await;
            }
            log.ended.set(log.ended.get() + 1);
        });
        endpoint
    }

    fn step(&self) {
        self.sim.run_until(self.sim.now_ns() + SLICE_NS);
    }

    /// Everybody has come to an end: the lock kept its promises, and is free.
    fn check(&self) {
        self.log.check(self.seed);
        let endpoint = self.sim.endpoint(self.sim.add_compute_node());
        let locker = Locker::new(self.subject.kind, &endpoint, &self.site()).expect("it has all atomics");
        let mut cx = OpContext::new(endpoint);
        let free = self.sim.try_block_on(async {
            let grant = locker
                .acquire(&mut cx, LOCK, Mode::Exclusive)
                .await
                .expect("the node is there");
            locker.release(&mut cx, grant).await.expect("the lease is long");
            cx.read_word(COUNT).await.expect("the node is there")
        });
        let (counted, open) = (self.log.counted.get(), self.log.open.get());
        let count = free.expect("somebody can still take the lock");
        assert!(
            (counted..=counted + open).contains(&count),
            "seed {}: {count} of {counted}",
            self.seed
        );
    }
}

fn add(cell: &Cell<u64>, by: i64) {
    cell.set(cell.get().checked_add_signed(by).expect("what ends has begun"));
}

/// One section. Who finds that its lease is over does nothing more under the lock.
async fn enter(
    cx: &mut OpContext,
    locker: &Locker,
    is_writer: bool,
    inside_ns: u64,
    log: &Log,
) -> Result<(), LockError> {
    let mode = if is_writer { Mode::Exclusive } else { Mode::Shared };
    let grant = locker.acquire(cx, LOCK, mode).await?;
    let endpoint = cx.endpoint().clone();
    let place = log.holds.borrow().len();
    log.holds.borrow_mut().push(Hold {
        client: endpoint.id(),
        is_writer,
        from_ns: endpoint.now_ns(),
        to_ns: None,
    });
    let seen = cx.read_word(COUNT).await?;
    endpoint.sleep(inside_ns).await;
    if is_writer && !grant.is_over(endpoint.now_ns()) {
        add(&log.open, 1);
        cx.write_word(COUNT, seen + 1).await?;
        add(&log.open, -1);
        add(&log.counted, 1);
    }
    // Clocks are right here. What was posted within the lease has arrived, even if we were stopped meanwhile.
    let until_ns = grant.until_ns();
    log.holds.borrow_mut()[place].to_ns = Some(endpoint.now_ns().min(until_ns));
    match locker.release(cx, grant).await {
        Err(LockError::LeaseLost { .. }) => {
            assert!(endpoint.now_ns() >= until_ns, "who keeps to its lease does not lose it");
            add(&log.leases_lost, 1);
            Ok(())
        }
        released => released,
    }
}

/// Some client dies after its `verb`th verb, while others work. Returns whether it came to that.
fn a_client_dies(subject: Subject, seed: u64, verb: u64) -> bool {
    let world = World::new(subject, seed);
    let _agent = service::start(&world.sim);
    let victim = world.start_client(3_000);
    world.sim.crash_client_at(victim.id(), CrashPoint { verb, lines: None });
    let _survivors: Vec<_> = (0..SURVIVORS).map(|_| world.start_client(3_000)).collect();
    let limit_ns = world.sim.now_ns() + PATIENCE_NS;
    let mut is_dead = false;
    while world.log.ended.get() < SURVIVORS + u64::from(!is_dead) {
        let now_ns = world.sim.now_ns();
        assert!(
            now_ns < limit_ns,
            "seed {seed}, verb {verb}: only {} came through",
            world.log.ended.get()
        );
        world.step();
        if !is_dead && world.sim.is_crashed(victim.id()) {
            is_dead = true;
            world.log.bury(victim.id(), world.sim.now_ns());
        }
    }
    world.check();
    is_dead
}

/// Every verb of a client is its last one.
pub(crate) fn clients_die_at_every_verb(subject: Subject) {
    if !subject.kind.survives_crashes() {
        return;
    }
    let mut deaths = 0;
    for seed in 0..20 {
        // Until a run in which the victim lives, since it has fewer verbs.
        deaths += (1..).take_while(|&verb| a_client_dies(subject, seed, verb)).count();
    }
    assert!(deaths > 200, "only {deaths} clients died");
}

/// A client dies with the lock, and the agent after its `verb`th verb; another agent takes over later.
pub(crate) fn the_agent_dies_at_every_verb(subject: Subject) {
    if !subject.kind.survives_crashes() {
        return;
    }
    for seed in 0..10 {
        for verb in 1..=5 {
            let world = World::new(subject, seed);
            let agent = service::start(&world.sim);
            // It has swapped its name in.
            let verb = 1 + verb;
            world.sim.crash_client_at(agent.id(), CrashPoint { verb, lines: None });
            let victim = world.start_client(3_000);
            world.sim.crash_client_at(
                victim.id(),
                CrashPoint {
                    verb: 2 + seed,
                    lines: None,
                },
            );
            let _survivors: Vec<_> = (0..SURVIVORS).map(|_| world.start_client(3_000)).collect();
            let limit_ns = world.sim.now_ns() + PATIENCE_NS;
            let mut next_agent = None;
            let mut is_dead = false;
            while world.log.ended.get() < SURVIVORS + u64::from(!is_dead) {
                assert!(world.sim.now_ns() < limit_ns, "seed {seed}, the agent's verb {verb}");
                world.step();
                if !is_dead && world.sim.is_crashed(victim.id()) {
                    is_dead = true;
                    world.log.bury(victim.id(), world.sim.now_ns());
                }
                if next_agent.is_none() && world.sim.now_ns() > 10 * LEASE_NS {
                    next_agent = Some(service::start(&world.sim));
                }
            }
            world.check();
        }
    }
}

/// A client is stopped at some moment for longer than it takes to declare it dead, and goes on as if nothing had
/// happened.
pub(crate) fn slow_clients_find_out(subject: Subject) {
    if !subject.kind.survives_crashes() {
        return;
    }
    let mut leases_lost = 0;
    for seed in 0..200 {
        let world = World::new(subject, seed);
        let _agent = service::start(&world.sim);
        let clients: Vec<_> = (0..SURVIVORS).map(|_| world.start_client(5_000)).collect();
        let limit_ns = world.sim.now_ns() + PATIENCE_NS;
        // Two of them, one after the other or both at once.
        for (index, client) in clients.iter().take(2).enumerate() {
            let stop_ns = 20_000 + (seed * 37 + index as u64 * 11) % 97 * 500;
            world.sim.run_until(stop_ns.max(world.sim.now_ns()));
            world.sim.pause_client(client.id());
        }
        let stopped_ns = world.sim.now_ns();
        for (index, client) in clients.iter().take(2).enumerate() {
            let rest_ns = (1 + (seed + 3 * index as u64) % 9) * LEASE_NS;
            world.sim.run_until((stopped_ns + rest_ns).max(world.sim.now_ns()));
            world.sim.resume_client(client.id());
        }
        while world.log.ended.get() < SURVIVORS {
            assert!(
                world.sim.now_ns() < limit_ns,
                "seed {seed}: {} came through",
                world.log.ended.get()
            );
            world.step();
        }
        world.check();
        leases_lost += world.log.leases_lost.get();
    }
    assert!(leases_lost > 20, "only {leases_lost} leases were lost");
}
