//! Exclusion, visibility and progress: clients count under the lock with a READ and a WRITE, which
//! loses counts as soon as two of them are inside at once.

use std::cell::Cell;
use std::rc::Rc;

use farside_fabric::sim::{Profile, Sim, SimOptions};
use farside_fabric::{Endpoint, NodeId, OpContext, RemoteAddr};
use farside_lock::backoff::give_way;
use farside_lock::{LockError, Locker, Mode};

use super::place::Place;
use super::service::{self, Subject};
use crate::on_this_thread;

pub(crate) const LOCK: RemoteAddr = RemoteAddr::new(NodeId::new(0), 64);
pub(crate) const COUNT: RemoteAddr = RemoteAddr::new(NodeId::new(0), 512);
pub(crate) const INSIDE: RemoteAddr = RemoteAddr::new(NodeId::new(0), 576);
pub(crate) const MEMORY_BYTES: u64 = 16 << 10;

/// One client: `rounds` times acquire, count, release.
pub(crate) async fn count_under_lock(cx: &mut OpContext, locker: &Locker, rounds: u64) {
    for _ in 0..rounds {
        let grant = locker.acquire(cx, LOCK, Mode::Exclusive).await.expect("no deadline");
        assert_eq!(cx.fetch_add(INSIDE, 1).await, Ok(0), "nobody else is inside");
        let count = cx.read_word(COUNT).await.expect("the node is there");
        give_way().await;
        cx.write_word(COUNT, count + 1).await.expect("the node is there");
        cx.fetch_add(INSIDE, u64::MAX).await.expect("the node is there");
        locker.release(cx, grant).await.expect("the node is there");
    }
}

const CLIENTS: u64 = 12;
const ROUNDS: u64 = 8;

pub(crate) fn simulated(subject: Subject) {
    let profiles = Profile::all();
    for seed in 0..40 {
        let profile = profiles[seed as usize % profiles.len()].clone();
        one_simulation(subject, seed, profile).expect("it has all atomics");
    }
}

/// A fabric with compare-and-swap and fetch-and-add of 8 bytes and nothing else: the lock works, or says
/// at once what it needs.
pub(crate) fn plain_atomics(subject: Subject) {
    let profile = Profile {
        has_masked_atomics: false,
        has_wide_atomics: false,
        ..Profile::default()
    };
    for seed in 0..10 {
        let refused = one_simulation(subject, seed, profile.clone()).err();
        let is_clear = |error| matches!(error, LockError::Unsupported { lock, .. } if lock == subject.kind.name());
        assert!(refused.is_none_or(is_clear), "{refused:?}");
    }
}

/// A real fabric without the atomics that the lock needs: it says so at once.
pub(crate) fn refused<P: Place>(subject: Subject) {
    let place = P::start();
    on_this_thread(async {
        let endpoint = place.endpoint().await;
        let error = Locker::new(subject.kind, &endpoint, &subject.site()).err();
        let is_clear = |error| matches!(error, LockError::Unsupported { lock, .. } if lock == subject.kind.name());
        assert!(error.is_some_and(is_clear));
    });
}

fn one_simulation(subject: Subject, seed: u64, profile: Profile) -> Result<(), LockError> {
    let options = SimOptions {
        seed,
        jitter_ns: 50 * (seed % 40),
        profile,
        ..SimOptions::default()
    };
    let sim = Sim::new(options);
    let _ = sim.add_memory_node(MEMORY_BYTES);
    let _agent = service::start(&sim);
    let done = Rc::new(Cell::new(0));
    let compute_nodes = [sim.add_compute_node(), sim.add_compute_node()];
    let sites = [subject.site(), subject.site()];
    let mut endpoints = Vec::new();
    for client in 0..CLIENTS {
        let endpoint = sim.endpoint(compute_nodes[client as usize % 2]);
        let (task, done) = (endpoint.clone(), Rc::clone(&done));
        let locker = Locker::new(subject.kind, &task, &sites[client as usize % 2])?;
        endpoint.spawn(async move {
            count_under_lock(&mut OpContext::new(task), &locker, ROUNDS).await;
            done.set(done.get() + 1);
        });
        endpoints.push(endpoint);
    }
    sim.run_until_idle();
    assert_eq!(done.get(), CLIENTS, "every client came through with seed {seed}");
    let mut cx = OpContext::new(endpoints[0].clone());
    assert_eq!(
        sim.block_on(cx.read_word(COUNT)),
        Ok(CLIENTS * ROUNDS),
        "no count was lost with seed {seed}"
    );
    Ok(())
}

/// `clients` tasks of this thread with one endpoint, each for `rounds` rounds.
pub(crate) async fn count_together(endpoint: Endpoint, subject: Subject, clients: u16, rounds: u64) {
    let site = subject.site();
    let mut tasks = Vec::new();
    for _ in 0..clients {
        let endpoint = endpoint.clone();
        let locker = Locker::new(subject.kind, &endpoint, &site).expect("it has all atomics");
        #[expect(clippy::disallowed_methods, reason = "a test on real threads waits for its tasks")]
        tasks.push(tokio::task::spawn_local(async move {
            count_under_lock(&mut OpContext::new(endpoint), &locker, rounds).await;
        }));
    }
    for task in tasks {
        task.await.expect("no client panicked");
    }
}

pub(crate) fn threads<P: Place>(subject: Subject) {
    const THREADS: u64 = 3;
    const CLIENTS: u16 = 4;
    const ROUNDS: u64 = 200;
    let place = P::start();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            let work = async || count_together(place.endpoint().await, subject, CLIENTS, ROUNDS).await;
            scope.spawn(move || on_this_thread(work()));
        }
    });
    assert_eq!(place.word(COUNT), THREADS * u64::from(CLIENTS) * ROUNDS);
}
