//! A lock under test: actors count under it with a READ and a WRITE, which loses counts as soon as
//! two of them are inside. The holds are checked for exclusion, order and progress.

use std::rc::Rc;

use farside_fabric::sim::{Endpoint, Sim};
use farside_fabric::{Clock, Deadline, NodeId, OpContext, RemoteAddr, Spawn};
use farside_lock::{LockError, LockKind, Locker, Mode};

use crate::checkers::exclusion::{self, Promise};
use crate::history::Hold;
use crate::plan::{Disturbance, Fault, Work};
use crate::run::Failure;
use crate::shared::{Condition, Shared};

/// Locks and their counts stand so far apart, and the counts so far behind the locks.
const STRIDE_BYTES: u64 = 256;
const COUNT_AT: u64 = 128;

fn entry(lock: u64) -> RemoteAddr {
    RemoteAddr::new(NodeId::new(0), (lock + 1) * STRIDE_BYTES)
}

fn count(lock: u64) -> RemoteAddr {
    entry(lock).plus(COUNT_AT)
}

/// One client of an actor: works until there is nothing left, or until it needs another client.
async fn act(endpoint: Endpoint, actor: usize, kind: LockKind, shared: Rc<Shared>) {
    let client = shared.client(actor);
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
            Work::Call { .. } | Work::GetMany(_) | Work::Scan => unreachable!("the plan of a lock has no keys"),
        };
        shared.count_lost_races(cx.retries() - retries);
        if let Err(error) = done {
            shared.count("errors", error.to_string());
            return shared.set_condition(actor, Condition::NeedsClient);
        }
    }
    shared.set_condition(actor, Condition::Done);
}

struct Critical {
    client: u32,
    lock: u64,
    is_shared: bool,
    inside_ns: u64,
    patience_ns: Option<u64>,
}

impl Critical {
    async fn enter(&self, cx: &mut OpContext<Endpoint>, locker: &Locker, shared: &Shared) -> Result<(), LockError> {
        let place = {
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
        };
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
        shared.holds.borrow_mut()[place].granted_ns = Some(shared.now_ns());
        let seen = cx.read_word(count(self.lock)).await?;
        cx.endpoint().clone().sleep(self.inside_ns).await;
        if self.is_shared {
            let now = cx.read_word(count(self.lock)).await?;
            assert_eq!(
                now, seen,
                "lock {}: somebody wrote while readers were inside",
                self.lock
            );
        } else {
            cx.write_word(count(self.lock), seen + 1).await?;
        }
        shared.holds.borrow_mut()[place].ended_ns = Some(shared.now_ns());
        shared.count(
            "operations answered",
            if self.is_shared {
                "shared section"
            } else {
                "exclusive section"
            },
        );
        locker.release(cx, grant).await
    }
}

/// What must hold when everybody has come to an end.
pub(crate) fn audit(sim: &Sim, shared: &Rc<Shared>, kind: LockKind) -> Result<(), Failure> {
    let holds = shared.holds.borrow();
    // A compare-and-swap lock promises no order; a lock that does queues its askers in the order in
    // which their first verb arrives, which is that of asking if the way to the lock is the same for all.
    let slack_ns = 50_000 + shared.plan.setup.jitter_ns;
    let is_slow = |fault: &Fault| matches!(fault.what, Disturbance::Partition { .. } | Disturbance::Delay { .. });
    let promise = if kind.is_ordered() && !shared.plan.faults.iter().any(is_slow) {
        Promise::Fifo { slack_ns }
    } else {
        Promise::None
    };
    exclusion::check(&holds, promise).map_err(|violation| Failure::new("exclusion", violation.to_string()))?;
    let locks: std::collections::BTreeSet<u64> = holds.iter().map(|hold| hold.lock).collect();
    for lock in locks {
        let of_lock = || holds.iter().filter(|hold| hold.lock == lock && !hold.is_shared);
        let certain = of_lock()
            .filter(|hold| hold.granted_ns.is_some() && hold.ended_ns.is_some())
            .count() as u64;
        let open = of_lock()
            .filter(|hold| hold.granted_ns.is_some() && hold.ended_ns.is_none())
            .count() as u64;
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
    shared
        .coverage
        .borrow_mut()
        .add("checked", "holds for exclusion", holds.len() as u64);
    Ok(())
}

/// Starts the next client of an actor.
pub(crate) fn start(endpoint: &Endpoint, actor: usize, kind: LockKind, shared: &Rc<Shared>) {
    endpoint.spawn(act(endpoint.clone(), actor, kind, Rc::clone(shared)));
}
