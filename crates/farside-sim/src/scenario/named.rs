//! Named locks under test, with what an application does: actors count under a name with a READ and a WRITE.
//!
//! The table is so small that names crowd each other out all the time: each actor also takes names that it needs for
//! nothing. Whoever is told that it holds must not have been cut off, and tokens must grow.

use std::rc::Rc;

use farside_fabric::Endpoint;
use farside_fabric::sim::Sim;
use farside_fabric::{Deadline, NodeId, OpContext, RemoteAddr};
use farside_kv::locks::{Guard, Mode};
use farside_kv::{Locks, LocksError, LocksOptions, Store, StoreConfig};
use farside_pool::{FormatOptions, PoolOptions};

use super::lock::{self, Critical};
use crate::plan::{Plan, Work};
use crate::run::Failure;
use crate::shared::{Condition, Shared};

/// Memory whose table of locks has one bucket.
pub(crate) const NODE_BYTES: u64 = 2 << 20;
/// The counts stand at the end of the node, which nobody allocates.
const COUNTS_AT: u64 = NODE_BYTES - 4096;
/// How many names there are that crowd out the others.
const CROWD: u64 = 12;
/// How long a client waits before it tries to open the table again.
const PAUSE_NS: u64 = 30_000;

fn count(lock: u64) -> RemoteAddr {
    RemoteAddr::new(NodeId::new(0), COUNTS_AT + 8 * lock)
}

/// Makes the pool, and the table with it.
pub(crate) fn prepare(sim: &Sim, plan: &Plan) {
    let endpoint = sim.endpoint(sim.add_compute_node());
    let config = StoreConfig {
        format: FormatOptions {
            clients_max: 4,
            chunk_bytes: Some(plan.setup.chunk_bytes),
            ..FormatOptions::default()
        },
        pool: PoolOptions {
            tick_ns: plan.setup.tick_ns,
            lease_ns: plan.setup.lease_ns,
        },
        ..StoreConfig::default()
    };
    sim.block_on(async move {
        let store = Store::open(endpoint, config).await.expect("nothing is disturbed yet");
        store.close().await.expect("nothing is disturbed yet");
    });
}

/// One client of an actor: works until there is nothing left, or until it needs another client.
async fn act(sim: Sim, endpoint: Endpoint, actor: usize, shared: Rc<Shared>) {
    let client = shared.client(actor);
    shared.introduce(client, &endpoint);
    let options = LocksOptions {
        owner: format!("actor {actor}"),
        lease_ns: shared.plan.setup.lease_ns,
    };
    let locks = match Locks::open(endpoint.clone(), options).await {
        Ok(locks) => locks,
        Err(error) => {
            shared.count("errors", error.to_string());
            endpoint.sleep(PAUSE_NS).await;
            return shared.set_condition(actor, Condition::NeedsClient);
        }
    };
    let holder = Holder {
        sim,
        locks,
        shared: Rc::clone(&shared),
    };
    let mut cx = OpContext::new(endpoint.clone());
    while let Some(work) = shared.next_work(actor) {
        let done = match work {
            Work::Think(duration_ns) => {
                endpoint.sleep(duration_ns).await;
                Ok(())
            }
            Work::Critical {
                lock,
                is_shared,
                inside_ns,
                patience_ns,
            } => {
                let critical = Critical {
                    client,
                    lock,
                    is_shared,
                    inside_ns,
                    patience_ns,
                };
                match holder.crowd(&endpoint).await {
                    Ok(()) => holder.enter(&mut cx, &critical).await,
                    failed => failed,
                }
            }
            work => unreachable!("the plan of locks has no keys: {work:?}"),
        };
        if let Err(error) = done {
            shared.count("errors", error);
            return shared.set_condition(actor, Condition::NeedsClient);
        }
    }
    shared.set_condition(actor, Condition::Done);
}

/// A client that takes named locks.
struct Holder {
    sim: Sim,
    locks: Locks,
    shared: Rc<Shared>,
}

impl Holder {
    /// Takes a name for nothing.
    async fn crowd(&self, endpoint: &Endpoint) -> Result<(), String> {
        let name = format!("crowd {}", endpoint.random_below(CROWD));
        match self.locks.acquire(name.as_bytes(), Mode::Shared).await {
            // Dropped, so that a task gives it back.
            Ok(guard) => drop(guard),
            Err(LocksError::TableFull { .. }) => self.shared.count("operations answered", "crowd: no place"),
            Err(error) => return Err(error.to_string()),
        }
        Ok(())
    }

    async fn enter(&self, cx: &mut OpContext, critical: &Critical) -> Result<(), String> {
        let shared = &self.shared;
        let place = critical.ask(shared);
        let name = format!("lock {}", critical.lock).into_bytes();
        let mode = if critical.is_shared {
            Mode::Shared
        } else {
            Mode::Exclusive
        };
        let patience_ns = critical
            .patience_ns
            .map(|patience_ns| cx.endpoint().now_ns() + patience_ns);
        let deadline = patience_ns.map_or(Deadline::NEVER, Deadline);
        let guard = match self.locks.acquire_until(&name, mode, deadline).await {
            Ok(Some(guard)) => guard,
            refused => {
                shared.holds.borrow_mut()[place].ended_ns = Some(shared.now_ns());
                shared.count("operations answered", "acquire: gave up");
                return match refused {
                    Ok(_) | Err(LocksError::TableFull { .. }) => Ok(()),
                    Err(error) => Err(error.to_string()),
                };
            }
        };
        shared.holds.borrow_mut()[place].granted_ns = Some(shared.now_ns());
        // Who stood still since it was granted the lock may be late, and knows that.
        if guard.is_held() {
            shared.note_token(critical.lock, guard.token(), critical.is_shared);
        }
        let worked = self.work(cx, &guard, critical).await;
        shared.end_hold(place);
        let released = match guard.release().await {
            Err(LocksError::Lost { .. }) => {
                shared.count("operations answered", "release: lost");
                Ok(())
            }
            released => released.map_err(|error| error.to_string()),
        };
        worked.and(released)
    }

    /// Who was cut off must know that it holds nothing.
    fn check_belief(&self, endpoint: &Endpoint, guard: &Guard) {
        let id = endpoint.id();
        assert!(
            !self.sim.is_fenced(id) || !guard.is_held(),
            "{id} was cut off, and believes that it holds"
        );
    }

    /// What is done under the lock.
    async fn work(&self, cx: &mut OpContext, guard: &Guard, critical: &Critical) -> Result<(), String> {
        let (at, shared) = (count(critical.lock), &self.shared);
        let failed = |error: farside_fabric::FabricError| error.to_string();
        let seen = cx.read_word(at).await.map_err(failed)?;
        cx.endpoint().clone().sleep(critical.inside_ns).await;
        self.check_belief(cx.endpoint(), guard);
        if critical.is_shared {
            let now = cx.read_word(at).await.map_err(failed)?;
            assert_eq!(
                now, seen,
                "lock {}: somebody wrote while readers were inside",
                critical.lock
            );
            shared.count("operations answered", "shared section");
            return Ok(());
        }
        shared.begin_count(critical.lock);
        // Who was cut off writes nothing any more, whatever it believes.
        cx.write_word(at, seen + 1).await.map_err(failed)?;
        shared.end_count(critical.lock, true);
        self.check_belief(cx.endpoint(), guard);
        shared.count("operations answered", "exclusive section");
        Ok(())
    }
}

/// What must hold when everybody has come to an end.
pub(crate) fn audit(sim: &Sim, shared: &Rc<Shared>) -> Result<(), Failure> {
    lock::audit_holds(sim, shared, |_| false, |_| true)?;
    lock::audit_counts(sim, shared, count)
}

/// Starts the next client of an actor.
pub(crate) fn start(sim: &Sim, endpoint: &Endpoint, actor: usize, shared: &Rc<Shared>) {
    endpoint.spawn(act(sim.clone(), endpoint.clone(), actor, Rc::clone(shared)));
}
