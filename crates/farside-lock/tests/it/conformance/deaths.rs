//! Recovery over real fabrics, for locks that say so in `LockKind::survives_crashes`: clients go with all
//! they had, holding a lock or on the way to it, and over a network they are cut off while they stand still.
//! What happens in between verbs is for the simulator (`recovery.rs`).

use std::sync::mpsc;

use farside_fabric::{Deadline, FabricError, OpContext, RemoteAddr};
use farside_lock::{Grant, LockError, LockOptions, Locker, Mode};

use super::exclusion::COUNT;
use super::place::Place;
use super::service::{self, Subject};
use crate::on_this_thread;

/// Behind everything that the suite has in memory.
const LOCKS_AT: u64 = 64 << 10;
const LOCK_BYTES: u64 = 16 << 10;

/// What has become of a lock when the others come.
#[derive(Clone, Copy)]
enum Death {
    /// A writer has died inside.
    Writer,
    /// A reader has.
    Reader,
    /// Somebody who waited has died; the one inside has left.
    Waiter,
    /// Both have died.
    Everybody,
}

const DEATHS: [Death; 4] = [Death::Writer, Death::Reader, Death::Waiter, Death::Everybody];

/// The lock that a death happens to.
fn lock_of(death: Death) -> RemoteAddr {
    RemoteAddr::new(COUNT.node(), LOCKS_AT + LOCK_BYTES * death as u64)
}

/// What is counted under that lock.
fn count_of(death: Death) -> RemoteAddr {
    lock_of(death).plus(LOCK_BYTES - 8)
}

fn options<P: Place>(subject: Subject) -> LockOptions {
    LockOptions {
        lease_ns: P::LEASE_NS,
        ..subject.options()
    }
}

struct Client {
    cx: OpContext,
    locker: Locker,
}

impl Client {
    async fn new<P: Place>(place: &P, subject: Subject) -> Self {
        let endpoint = place.endpoint().await;
        Self {
            locker: Locker::new(subject.kind, &endpoint, &service::site_with(options::<P>(subject)))
                .expect("it has all atomics"),
            cx: OpContext::new(endpoint),
        }
    }

    async fn acquire(&mut self, entry: RemoteAddr, mode: Mode) -> Grant {
        let acquired = self.locker.acquire(&mut self.cx, entry, mode).await;
        acquired.expect("no deadline")
    }
}

/// Every word of a lock's entry.
fn entry_words<P: Place>(place: &P, subject: Subject, entry: RemoteAddr) -> Vec<u64> {
    let words = (0..subject.kind.entry_bytes(&options::<P>(subject))).step_by(8);
    words.map(|at| place.word(entry.plus(at))).collect()
}

/// Begins to wait for a lock that somebody holds, and dies as soon as that is to be seen in memory.
fn die_waiting<P: Place>(place: &P, subject: Subject, entry: RemoteAddr) {
    on_this_thread(async {
        let mut client = Client::new(place, subject).await;
        let before = entry_words(place, subject, entry);
        let endpoint = client.cx.endpoint().clone();
        let has_queued_up = async {
            while entry_words(place, subject, entry) == before {
                endpoint.sleep(100_000).await;
            }
        };
        tokio::select! {
            _ = client.acquire(entry, Mode::Exclusive) => panic!("it is held"),
            () = has_queued_up => {}
        }
    });
}

/// Leaves a lock as somebody who dies leaves it.
fn die<P: Place>(place: &P, subject: Subject, death: Death) {
    on_this_thread(async {
        let mut client = Client::new(place, subject).await;
        let mode = match death {
            Death::Reader => Mode::Shared,
            _ => Mode::Exclusive,
        };
        let grant = client.acquire(lock_of(death), mode).await;
        if matches!(death, Death::Waiter | Death::Everybody) {
            std::thread::scope(|scope| {
                scope.spawn(|| die_waiting(place, subject, lock_of(death)));
            });
        }
        if matches!(death, Death::Waiter) {
            match client.locker.release(&mut client.cx, grant).await {
                // Whoever was next and died cannot be told, which is found out in time.
                Ok(()) | Err(LockError::LeaseLost { .. } | LockError::Fabric(FabricError::PeerUnknown { .. })) => {}
                Err(error) => panic!("{error}"),
            }
        }
    });
}

/// Counts under a lock; returns how often it could before its lease was over.
async fn count(client: &mut Client, death: Death, rounds: u64) -> u64 {
    let mut counted = 0;
    for _ in 0..rounds {
        let grant = client.acquire(lock_of(death), Mode::Exclusive).await;
        let cx = &mut client.cx;
        let seen = cx.read_word(count_of(death)).await.expect("the node is there");
        if !grant.is_over(cx.endpoint().now_ns()) {
            cx.write_word(count_of(death), seen + 1)
                .await
                .expect("the node is there");
            counted += 1;
        }
        match client.locker.release(cx, grant).await {
            Ok(()) | Err(LockError::LeaseLost { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    counted
}

/// Clients die; two others go on with each lock, and lose no count.
pub(crate) fn clients_die<P: Place>(subject: Subject) {
    const ROUNDS: u64 = 20;
    if !subject.kind.survives_crashes() {
        return;
    }
    let place = P::start();
    std::thread::scope(|scope| {
        for death in DEATHS {
            let place = &place;
            scope.spawn(move || die(place, subject, death));
        }
    });
    std::thread::scope(|scope| {
        for death in DEATHS {
            let place = &place;
            let survivors: [_; 2] = std::array::from_fn(|_| {
                scope.spawn(move || {
                    on_this_thread(async {
                        let mut client = Client::new(place, subject).await;
                        count(&mut client, death, ROUNDS).await
                    })
                })
            });
            scope.spawn(move || {
                let counted = survivors.map(|survivor| survivor.join().expect("no survivor panicked"));
                assert_eq!(place.word(count_of(death)), counted.into_iter().sum::<u64>());
            });
        }
    });
}

/// A holder stands still until somebody else has the lock, and then goes on: it is told that it has lost the lock,
/// and does not take it from the other.
pub(crate) fn who_stands_still_is_told<P: Place>(subject: Subject) {
    let loses_its_lock = P::CUTS_OFF || subject.kind.leases() == farside_lock::Leases::All;
    if !subject.kind.survives_crashes() || !loses_its_lock {
        return;
    }
    let place = P::start();
    let entry = lock_of(Death::Writer);
    let (held, is_held) = mpsc::channel();
    let (taken, is_taken) = mpsc::channel();
    std::thread::scope(|scope| {
        let place = &place;
        let holder = scope.spawn(move || {
            on_this_thread(async {
                let mut client = Client::new(place, subject).await;
                let grant = client.acquire(entry, Mode::Exclusive).await;
                held.send(()).expect("the other waits");
                // Stops the whole thread, with everything that would answer for this client.
                is_taken.recv().expect("the other has taken it");
                let lost = client.locker.release(&mut client.cx, grant).await;
                let is_told = matches!(
                    lost,
                    Err(LockError::LeaseLost { .. } | LockError::Fabric(FabricError::Fenced { .. }))
                );
                assert!(is_told, "{lost:?}");
            });
        });
        on_this_thread(async {
            is_held.recv().expect("the holder has it");
            let mut client = Client::new(place, subject).await;
            let mut others = Client::new(place, subject).await;
            let grant = client.acquire(entry, Mode::Exclusive).await;
            let until_ns = client.cx.endpoint().now_ns() + P::LEASE_NS / 4;
            taken.send(()).expect("the holder waits");
            holder.join().expect("it was told");
            others.cx.set_deadline(Deadline(until_ns));
            let refused = others.locker.acquire(&mut others.cx, entry, Mode::Exclusive).await;
            assert_eq!(refused, Err(LockError::Timeout { entry }), "it is held");
            match client.locker.release(&mut client.cx, grant).await {
                Ok(()) | Err(LockError::LeaseLost { .. }) => {}
                Err(error) => panic!("{error}"),
            }
            others.cx.set_deadline(Deadline::NEVER);
            let grant = others.acquire(entry, Mode::Exclusive).await;
            others
                .locker
                .release(&mut others.cx, grant)
                .await
                .expect("it has just come");
        });
    });
}
