//! A lock under test: actors count under it with a READ and a WRITE, which loses counts as soon as
//! two of them are inside. The holds are checked for exclusion, order and progress.

use std::cell::Cell;
use std::rc::Rc;

use farside_fabric::Endpoint;
use farside_fabric::sim::Sim;
use farside_fabric::{Deadline, NodeId, OpContext, RemoteAddr};
use farside_lock::service::Agent;
use farside_lock::{Grant, LockError, LockKind, Locker, Mode, Site};

use super::worn;
use crate::checkers::exclusion::{self, Promise};
use crate::history::Hold;
use crate::plan::{Disturbance, Fault, Work};
use crate::run::Failure;
use crate::shared::{Condition, Shared};

/// Locks and their counts stand so far apart, and the counts so far behind the locks.
const STRIDE_BYTES: u64 = 512;
const COUNT_AT: u64 = 256;

fn entry(lock: u64) -> RemoteAddr {
    RemoteAddr::new(NodeId::new(0), (lock + 1) * STRIDE_BYTES)
}

fn count(lock: u64) -> RemoteAddr {
    entry(lock).plus(COUNT_AT)
}

/// Makes locks of which what they count is about to overflow.
pub(crate) fn wear(sim: &Sim, shared: &Shared, kind: LockKind) {
    for work in shared.plan.actors.iter().flat_map(|actor| &actor.work) {
        if let Work::Critical { lock, .. } = work {
            worn::set_word(sim, entry(*lock), kind.worn_word(&shared.lock_options()));
        }
    }
}

/// One client of an actor: works until there is nothing left, or until it needs another client.
async fn act(endpoint: Endpoint, actor: usize, kind: LockKind, shared: Rc<Shared>) {
    let client = shared.client(actor);
    shared.introduce(client, &endpoint);
    let site = shared.site(actor);
    let locker = Locker::new(kind, &endpoint, &site).expect("it has all atomics");
    let mut cx = OpContext::new(endpoint.clone());
    while let Some(work) = shared.next_work(actor) {
        let retries = cx.retries();
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
                    is_shared: is_shared && kind.is_shared(),
                    inside_ns,
                    patience_ns,
                };
                critical.enter(&mut cx, &locker, &shared).await
            }
            work => unreachable!("the plan of a lock has no keys: {work:?}"),
        };
        shared.count_lost_races(cx.retries() - retries);
        if let Err(error) = done {
            shared.count("errors", error.to_string());
            return shared.set_condition(actor, Condition::NeedsClient);
        }
    }
    shared.set_condition(actor, Condition::Done);
}

/// A critical section to come.
pub(super) struct Critical {
    pub(super) client: u32,
    pub(super) lock: u64,
    pub(super) is_shared: bool,
    pub(super) inside_ns: u64,
    pub(super) patience_ns: Option<u64>,
}

impl Critical {
    /// Notes that the lock is asked for; returns the place in the list of holds.
    pub(super) fn ask(&self, shared: &Shared) -> usize {
        let mut holds = shared.holds.borrow_mut();
        holds.push(Hold {
            client: self.client,
            lock: self.lock,
            is_shared: self.is_shared,
            asked_ns: shared.now_ns(),
            granted_ns: None,
            ended_ns: None,
        });
        holds.len() - 1
    }

    async fn enter(&self, cx: &mut OpContext, locker: &Locker, shared: &Shared) -> Result<(), LockError> {
        let place = self.ask(shared);
        let deadline = self.patience_ns.map(|patience_ns| cx.endpoint().now_ns() + patience_ns);
        cx.set_deadline(deadline.map_or(Deadline::NEVER, Deadline));
        let mode = if self.is_shared { Mode::Shared } else { Mode::Exclusive };
        let acquired = locker.acquire(cx, entry(self.lock), mode).await;
        cx.set_deadline(Deadline::NEVER);
        let grant = match acquired {
            Ok(grant) => grant,
            Err(error) => {
                shared.holds.borrow_mut()[place].ended_ns = Some(shared.now_ns());
                shared.count("operations answered", "acquire: gave up");
                return if let LockError::Timeout { .. } = error {
                    Ok(())
                } else {
                    Err(error)
                };
            }
        };
        let granted_ns = shared.now_ns();
        shared.holds.borrow_mut()[place].granted_ns = Some(granted_ns);
        let left_ns = grant.until_ns().saturating_sub(cx.endpoint().now_ns());
        shared.note_lease(place, granted_ns.saturating_add(left_ns));
        let worked = self.work(cx, &grant, shared).await;
        shared.end_hold(place);
        let released = match locker.release(cx, grant).await {
            Err(LockError::LeaseLost { .. }) => {
                shared.count("operations answered", "release: lease lost");
                Ok(())
            }
            released => released,
        };
        worked.and(released)
    }

    /// What is done under the lock.
    async fn work(&self, cx: &mut OpContext, grant: &Grant, shared: &Shared) -> Result<(), LockError> {
        let at = count(self.lock);
        let seen = cx.read_word(at).await?;
        cx.endpoint().clone().sleep(self.inside_ns).await;
        let is_over = |cx: &OpContext| grant.is_over(cx.endpoint().now_ns());
        if is_over(cx) {
            shared.count("operations answered", "section: lease lost");
            return Ok(());
        }
        if self.is_shared {
            let now = cx.read_word(at).await?;
            assert!(
                now == seen || is_over(cx),
                "lock {}: somebody wrote while readers were inside",
                self.lock
            );
            shared.count("operations answered", "shared section");
            return Ok(());
        }
        shared.begin_count(self.lock);
        if grant.until_ns() == u64::MAX {
            cx.write_word(at, seen + 1).await?;
        } else {
            // A lease is no protection from a verb that arrives after it, so what it protects has to be.
            let found = cx.compare_swap(at, seen, seen + 1).await?;
            if found != seen {
                assert!(is_over(cx), "lock {}: two writers were inside", self.lock);
                shared.end_count(self.lock, false);
                return Ok(());
            }
        }
        shared.end_count(self.lock, true);
        shared.count("operations answered", "exclusive section");
        Ok(())
    }
}

/// What must hold when everybody has come to an end.
pub(crate) fn audit(sim: &Sim, shared: &Rc<Shared>, kind: LockKind) -> Result<(), Failure> {
    // What a lock does about the dead may cost those who wait their place.
    let disturbs_order = |fault: &Fault| match fault.what {
        Disturbance::Partition { .. } | Disturbance::Delay { .. } => true,
        _ => kind.survives_crashes(),
    };
    let is_ordered = match shared.plan.setup.is_worn {
        true => kind.is_ordered_when_worn(),
        false => kind.is_ordered(),
    };
    let is_in_order = |hold: &Hold| is_ordered && (kind.orders_readers() || !hold.is_shared);
    audit_holds(sim, shared, is_in_order, disturbs_order)?;
    audit_counts(sim, shared, count)
}

/// Exclusion, and the order of those holds that are promised one.
pub(super) fn audit_holds(
    sim: &Sim,
    shared: &Rc<Shared>,
    is_in_order: impl Fn(&Hold) -> bool,
    disturbs_order: impl Fn(&Fault) -> bool,
) -> Result<(), Failure> {
    shared.void_holds_of(|endpoint| sim.is_fenced(endpoint));
    let holds = shared.holds.borrow();
    // A lock that promises an order queues its askers in the order in which their first verb arrives, which is that
    // of asking if the way to the lock is the same for all.
    let setup = &shared.plan.setup;
    let slack_ns = 50_000 + setup.jitter_ns + 2 * setup.lull_ns;
    let promise = if shared.plan.faults.iter().any(disturbs_order) {
        Promise::None
    } else {
        Promise::Fifo { slack_ns }
    };
    let in_order: Vec<Hold> = holds.iter().filter(|hold| is_in_order(hold)).copied().collect();
    exclusion::check(&in_order, promise).map_err(|violation| Failure::new("order", violation.to_string()))?;
    exclusion::check(&holds, Promise::None).map_err(|violation| Failure::new("exclusion", violation.to_string()))?;
    shared
        .coverage
        .borrow_mut()
        .add("checked", "holds for exclusion", holds.len() as u64);
    Ok(())
}

/// No count was lost; `count` says where the count of a lock is.
pub(super) fn audit_counts(sim: &Sim, shared: &Rc<Shared>, count: impl Fn(u64) -> RemoteAddr) -> Result<(), Failure> {
    let locks: std::collections::BTreeSet<u64> = shared.holds.borrow().iter().map(|hold| hold.lock).collect();
    for lock in locks {
        let (certain, open) = shared.counts_of(lock);
        let counted = sim
            .region(NodeId::new(0))
            .word(count(lock).offset())
            .load(core::sync::atomic::Ordering::SeqCst);
        if !(certain..=certain + open).contains(&counted) {
            let text = format!(
                "lock {lock}: {certain} clients counted under it (and {open} may have), the count is {counted}"
            );
            return Err(Failure::new("lost count", text));
        }
    }
    Ok(())
}

/// Starts the next client of an actor.
pub(crate) fn start(endpoint: &Endpoint, actor: usize, kind: LockKind, shared: &Rc<Shared>) {
    endpoint.spawn(act(endpoint.clone(), actor, kind, Rc::clone(shared)));
}

/// Starts the agent of the lock service. It serves until it loses its way to the node; then `has_ended` says so.
pub(crate) fn start_agent(endpoint: &Endpoint, shared: &Rc<Shared>, has_ended: &Rc<Cell<bool>>) {
    let (task, site) = (endpoint.clone(), Site::new(shared.lock_options()));
    let has_ended = Rc::clone(has_ended);
    has_ended.set(false);
    endpoint.spawn(async move {
        if let Ok(agent) = Agent::start(task, &site).await {
            let _why = agent.serve().await;
        }
        has_ended.set(true);
    });
}
