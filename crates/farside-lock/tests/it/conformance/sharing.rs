//! Shared mode: readers are inside together, writers alone. A lock without shared mode keeps readers
//! apart as well, which is no promise, but has to be known.
//!
//! A reader's lease may be over before it is through; then it does not use what it has read.

use std::cell::Cell;
use std::rc::Rc;

use farside_fabric::sim::{Profile, Sim, SimOptions};
use farside_fabric::{Deadline, Endpoint, OpContext};
use farside_lock::backoff::give_way;
use farside_lock::{Grant, LockError, Locker, Mode};

use super::exclusion::{COUNT, LOCK, MEMORY_BYTES};
use super::place::Place;
use super::service::{self, Subject};
use crate::on_this_thread;

/// Longer than any lease of readers, far shorter than one of whoever may write.
const PATIENCE_NS: u64 = 3_000_000;

struct Client {
    cx: OpContext,
    locker: Locker,
}

impl Client {
    async fn acquire(&mut self, mode: Mode, patience_ns: u64) -> Option<Grant> {
        let deadline = self.cx.endpoint().now_ns() + patience_ns;
        self.cx.set_deadline(Deadline(deadline));
        let acquired = self.locker.acquire(&mut self.cx, LOCK, mode).await;
        self.cx.set_deadline(Deadline::NEVER);
        match acquired {
            Ok(grant) => Some(grant),
            Err(LockError::Timeout { entry: LOCK }) => None,
            Err(error) => panic!("{error}"),
        }
    }

    async fn release(&mut self, grant: Grant) {
        let released = self.locker.release(&mut self.cx, grant).await;
        released.expect("the lease is not over, and the node is there");
    }
}

/// Who gets in beside whom.
pub(crate) fn modes(subject: Subject) {
    let sim = Sim::new(SimOptions::default());
    let _ = sim.add_memory_node(MEMORY_BYTES);
    let _agent = service::start(&sim);
    let compute_node = sim.add_compute_node();
    let site = subject.site();
    let mut clients: Vec<_> = (0..4)
        .map(|_| {
            let endpoint = sim.endpoint(compute_node);
            Client {
                locker: Locker::new(subject.kind, &endpoint, &site).expect("it has all atomics"),
                cx: OpContext::new(endpoint),
            }
        })
        .collect();
    let [first, second, third, writer] = &mut clients[..] else {
        unreachable!("there are four")
    };
    sim.block_on(async {
        let one = first.acquire(Mode::Shared, PATIENCE_NS).await.expect("it is free");
        assert_eq!(one.mode(), Mode::Shared);
        let two = second.acquire(Mode::Shared, 50_000).await;
        assert_eq!(two.is_some(), subject.kind.is_shared(), "a second reader");
        assert_eq!(writer.acquire(Mode::Exclusive, 100_000).await, None, "a writer");
        // The writer has given up; a lock that queues may keep its place all the same.
        let three = third.acquire(Mode::Shared, 50_000).await;
        if !subject.kind.is_shared() {
            assert_eq!(three, None);
        }
        first.release(one).await;
        let (is_two, is_three) = (two.is_some(), three.is_some());
        if let Some(two) = two {
            assert_eq!(
                writer.acquire(Mode::Exclusive, 10_000).await,
                None,
                "one of two readers has left"
            );
            second.release(two).await;
        }
        if let Some(three) = three {
            third.release(three).await;
        }
        assert!(is_two || !is_three, "the third is no better than the second");
        let grant = writer
            .acquire(Mode::Exclusive, PATIENCE_NS)
            .await
            .expect("all have left");
        assert_eq!(first.acquire(Mode::Shared, 50_000).await, None, "a writer is inside");
        writer.release(grant).await;
        let again = first.acquire(Mode::Shared, PATIENCE_NS).await.expect("it is free");
        first.release(again).await;
    });
}

/// Readers who are inside at the moment, and the most there ever were.
#[derive(Default)]
struct Inside {
    readers: Cell<u64>,
    readers_max: Cell<u64>,
    writers: Cell<u64>,
    reads_checked: Cell<u64>,
}

/// One client: `rounds` sections, of which chance makes some shared.
async fn read_and_write(cx: &mut OpContext, locker: &Locker, rounds: u64, inside: &Inside) -> u64 {
    let mut writes = 0;
    for _ in 0..rounds {
        let is_writer = cx.endpoint().random_below(3) == 0;
        let mode = if is_writer { Mode::Exclusive } else { Mode::Shared };
        let grant = locker.acquire(cx, LOCK, mode).await.expect("no deadline");
        let kind = if is_writer { &inside.writers } else { &inside.readers };
        kind.set(kind.get() + 1);
        inside
            .readers_max
            .set(inside.readers_max.get().max(inside.readers.get()));
        let seen = cx.read_word(COUNT).await.expect("the node is there");
        give_way().await;
        if is_writer {
            cx.write_word(COUNT, seen + 1).await.expect("the node is there");
            writes += 1;
        } else {
            let again = cx.read_word(COUNT).await.expect("the node is there");
            if !grant.is_over(cx.endpoint().now_ns()) {
                assert_eq!(again, seen, "nobody writes while a reader is inside");
                inside.reads_checked.set(inside.reads_checked.get() + 1);
            }
        }
        kind.set(kind.get() - 1);
        match locker.release(cx, grant).await {
            Ok(()) => {}
            Err(LockError::LeaseLost { .. }) if !is_writer => {}
            Err(error) => panic!("{error}"),
        }
    }
    writes
}

pub(crate) fn simulated(subject: Subject) {
    const CLIENTS: u64 = 10;
    const ROUNDS: u64 = 8;
    let mut readers_max = 0;
    for seed in 0..40 {
        let profiles = Profile::all();
        let sim = Sim::new(SimOptions {
            seed,
            jitter_ns: 70 * (seed % 40),
            profile: profiles[seed as usize % profiles.len()].clone(),
            ..SimOptions::default()
        });
        let _ = sim.add_memory_node(MEMORY_BYTES);
        let _agent = service::start(&sim);
        let compute_nodes = [sim.add_compute_node(), sim.add_compute_node()];
        let sites = [subject.site(), subject.site()];
        let (inside, writes, done) = (Rc::new(Inside::default()), Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let mut endpoints = Vec::new();
        for client in 0..CLIENTS {
            let endpoint = sim.endpoint(compute_nodes[client as usize % 2]);
            endpoints.push(endpoint.clone());
            let site = sites[client as usize % 2].clone();
            let (inside, writes, done) = (Rc::clone(&inside), Rc::clone(&writes), Rc::clone(&done));
            endpoint.clone().spawn(async move {
                let locker = Locker::new(subject.kind, &endpoint, &site).expect("it has all atomics");
                let wrote = read_and_write(&mut OpContext::new(endpoint), &locker, ROUNDS, &inside).await;
                writes.set(writes.get() + wrote);
                done.set(done.get() + 1);
            });
        }
        sim.run_until_idle();
        assert_eq!(done.get(), CLIENTS, "every client came through with seed {seed}");
        assert!(inside.reads_checked.get() > 0, "somebody reads with seed {seed}");
        let mut cx = OpContext::new(endpoints[0].clone());
        let counted = sim.block_on(cx.read_word(COUNT));
        assert_eq!(counted, Ok(writes.get()), "no write was lost with seed {seed}");
        readers_max = readers_max.max(inside.readers_max.get());
    }
    assert_eq!(readers_max > 1, subject.kind.is_shared(), "readers are inside together");
}

pub(crate) fn threads<P: Place>(subject: Subject) {
    const THREADS: u64 = 3;
    const CLIENTS: u16 = 3;
    const ROUNDS: u64 = 60;
    let place = P::start();
    let writes: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let work = async || read_and_write_together(place.endpoint().await, subject, CLIENTS, ROUNDS).await;
                scope.spawn(move || on_this_thread(work()))
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no thread panicked"))
            .sum()
    });
    assert_eq!(place.word(COUNT), writes, "no write was lost");
}

async fn read_and_write_together(endpoint: Endpoint, subject: Subject, clients: u16, rounds: u64) -> u64 {
    let writes = Rc::new(Cell::new(0));
    let (inside, site) = (Rc::new(Inside::default()), subject.site());
    let mut tasks = Vec::new();
    for _ in 0..clients {
        let (endpoint, writes) = (endpoint.clone(), Rc::clone(&writes));
        let (inside, site) = (Rc::clone(&inside), site.clone());
        #[expect(clippy::disallowed_methods, reason = "a test on real threads waits for its tasks")]
        tasks.push(tokio::task::spawn_local(async move {
            let locker = Locker::new(subject.kind, &endpoint, &site).expect("it has all atomics");
            let wrote = read_and_write(&mut OpContext::new(endpoint), &locker, rounds, &inside).await;
            writes.set(writes.get() + wrote);
        }));
    }
    for task in tasks {
        task.await.expect("no client panicked");
    }
    writes.get()
}

/// Real clients, each with an endpoint of its own: a reader joins a reader, and a writer comes when both have left.
pub(crate) fn real_readers_are_inside_together<P: Place>(subject: Subject) {
    /// Longer than it takes, on whatever machine.
    const PATIENCE_NS: u64 = 30_000_000_000;
    if !subject.kind.is_shared() {
        return;
    }
    let place = P::start();
    on_this_thread(async {
        let mut clients = Vec::new();
        for _ in 0..3 {
            let endpoint = place.endpoint().await;
            clients.push(Client {
                locker: Locker::new(subject.kind, &endpoint, &subject.site()).expect("it has all atomics"),
                cx: OpContext::new(endpoint),
            });
        }
        let [first, second, writer] = &mut clients[..] else {
            unreachable!("there are three")
        };
        let one = first.acquire(Mode::Shared, PATIENCE_NS).await.expect("it is free");
        let two = second.acquire(Mode::Shared, PATIENCE_NS).await.expect("it is shared");
        for (reader, grant) in [(first, one), (second, two)] {
            match reader.locker.release(&mut reader.cx, grant).await {
                // Readers' leases may be as short as the system takes to come back to us.
                Ok(()) | Err(LockError::LeaseLost { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        let grant = writer.acquire(Mode::Exclusive, PATIENCE_NS).await;
        writer.release(grant.expect("all have left")).await;
    });
}
