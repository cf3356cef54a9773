//! Pessimistic synchronisation with a lock (CIDER, section 2.3): the baselines of its evaluation.
//!
//! On the path: UPDATE and DELETE that do not depend on what they replace. The index has read the slot. Acquire the lock that
//! belongs to it, write the item, compare-and-swap the pointer, release (section 3.1). Nobody else changes the pointer
//! meanwhile but an INSERT, a change that depends on what it replaces, or a move of the entry: those take no lock.
//!
//! The swap decides, as in every scheme. What a client read before it had the lock may be old, so it repeats the swap with the
//! pointer that it then saw, as long as that is its key's: at most once, but for clients without the lock. Who has waited
//! reads the slot again in the round trip in which it writes its item ([`Turn::has_waited`]), and need not. So a lock
//! that is taken from a holder that is only slow does no harm, and there are no leases to keep.
//!
//! # When a holder dies
//! ShiftLocks are reset by who waits (`LockOptions::recovers_alone`). A CAS lock is taken away by who has waited for it for a
//! lease in vain: it swaps the word that it finds for 0, and tries again. If that word's client lives it gives back a
//! lock that is no longer its own, which costs somebody a retry.
//!
//! | `--sync` | lock |
//! |---|---|
//! | `cas-backoff` | SMART's, CIDER's baseline *CAS* |
//! | `shiftlock-mutex` | CIDER's baseline *ShiftLock*, without readers |
//! | `cas`, `shiftlock` | the same without back-off, and with its mode of readers |

use core::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use farside_fabric::{Deadline, Endpoint, EndpointId, FabricError, OpContext, RemoteAddr, Task};
use farside_lock::patience::carry;
use farside_lock::{Grant, LockError, LockKind, Locker, Mode, Site};
use farside_pool::Pin;

use crate::synchroniser::Entered;
use crate::turn::{Held, Turn};

/// A client's side of a lock, and a context for work that may outlive its caller.
type Tools = (OpContext, Locker);

/// What the clients of a compute node take locks with; as many for an endpoint as were in use at a time.
#[derive(Debug, Default)]
pub struct Lockers {
    idle: Rc<RefCell<BTreeMap<EndpointId, Vec<Tools>>>>,
    in_use: Rc<Cell<usize>>,
}

impl Clone for Lockers {
    fn clone(&self) -> Self {
        Self {
            idle: Rc::clone(&self.idle),
            in_use: Rc::clone(&self.in_use),
        }
    }
}

impl Lockers {
    /// Takes tools for an endpoint, or makes new ones.
    pub(crate) fn take(&self, endpoint: &Endpoint, kind: LockKind, site: &Site) -> Result<Tools, LockError> {
        let idle = self.idle.borrow_mut().get_mut(&endpoint.id()).and_then(Vec::pop);
        let tools = match idle {
            Some(tools) => tools,
            None => (OpContext::new(endpoint.clone()), Locker::new(kind, endpoint, site)?),
        };
        self.in_use.update(|count| count + 1);
        Ok(tools)
    }

    /// Whether nobody holds a lock, waits for one, or gives one back.
    #[must_use]
    pub fn are_idle(&self) -> bool {
        self.in_use.get() == 0
    }

    /// Whether a fabric has what a lock cannot do without.
    ///
    /// # Errors
    /// [`LockError::Unsupported`] if not, and what else the lock wants of its site.
    pub fn check(&self, endpoint: &Endpoint, kind: LockKind, site: &Site) -> Result<(), LockError> {
        let (cx, locker) = self.take(endpoint, kind, site)?;
        self.put_back(cx, locker);
        Ok(())
    }

    /// Puts them back.
    pub(crate) fn put_back(&self, cx: OpContext, locker: Locker) {
        let id = cx.endpoint().id();
        self.in_use.update(|count| count - 1);
        self.idle.borrow_mut().entry(id).or_default().push((cx, locker));
    }
}

/// Waits for the lock of whatever the caller wants to change. Without a seat in its queue, as when too many of an endpoint
/// wait, the turn comes at once and holds nothing.
///
/// # Errors
/// What the fabric reports; what was begun ends by itself.
pub async fn enter(
    cx: &mut OpContext,
    lockers: &Lockers,
    (kind, site): (LockKind, &Site),
    lock: RemoteAddr,
    pin: &Pin,
) -> Result<Entered, FabricError> {
    let Ok(tools) = lockers.take(cx.endpoint(), kind, site) else {
        // Too many wait at this endpoint already.
        return Ok(Entered::Turn(Turn::free()));
    };
    let (later, waiting) = (lockers.clone(), pin.clone());
    let retries = tools.0.retries();
    // A ShiftLock is reset by who waits.
    let patience_ns = (!kind.survives_crashes()).then_some(site.options().lease_ns);
    let work = Box::pin(acquire(tools, lock, patience_ns));
    let give_back = |(mut cx, locker, acquired): Acquired| -> Task {
        Box::pin(async move {
            if let Ok(grant) = acquired {
                // As in `Held::give_back`.
                let _ = locker.release(&mut cx, grant).await;
            }
            later.put_back(cx, locker);
            drop(waiting);
        })
    };
    let Some((own, locker, acquired)) = carry(cx.endpoint(), cx.deadline(), work, Box::new(give_back)).await else {
        return Err(FabricError::DeadlineExceeded { node: lock.node() });
    };
    let has_retried = own.retries() > retries;
    (retries..own.retries()).for_each(|_| cx.count_retry());
    match acquired {
        Ok(grant) => Ok(Entered::Turn(Turn::holding(Held::Lock {
            cx: own,
            locker,
            has_waited: has_retried || grant.has_waited(),
            grant,
            lockers: lockers.clone(),
            pin: pin.clone(),
        }))),
        Err(LockError::Fabric(error)) => Err(error),
        // No seat in its queue.
        Err(_) => Ok(Entered::Turn(Turn::free())),
    }
}

/// What took a lock, and whether it has it.
type Acquired = (OpContext, Locker, Result<Grant, LockError>);

async fn acquire((mut cx, locker): Tools, lock: RemoteAddr, patience_ns: Option<u64>) -> Acquired {
    // Ends when the lock is free at our turn: it is taken from who has it for too long.
    loop {
        let deadline = patience_ns.map_or(Deadline::NEVER, |patience_ns| cx.endpoint().deadline_in(patience_ns));
        cx.set_deadline(deadline);
        let acquired = locker.acquire(&mut cx, lock, Mode::Exclusive).await;
        cx.set_deadline(Deadline::NEVER);
        match acquired {
            Err(LockError::Timeout { .. }) => {
                if let Err(error) = take_away(&mut cx, lock).await {
                    return (cx, locker, Err(error.into()));
                }
            }
            other => return (cx, locker, other),
        }
    }
}

/// Takes a CAS lock from who has it.
async fn take_away(cx: &mut OpContext, lock: RemoteAddr) -> Result<(), FabricError> {
    let holder = cx.read_word(lock).await?;
    if holder != 0 {
        cx.compare_swap(lock, holder, 0).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use farside_fabric::NodeId;
    use farside_fabric::sim::{Profile, Sim, SimOptions};
    use farside_lock::LockOptions;
    use farside_pool::epoch::Epochs;

    use super::*;

    const KIND: LockKind = LockKind::ShiftLockMutex;

    fn site() -> Site {
        Site::new(LockOptions::default())
    }

    /// As many as are in use at a time, and no more.
    #[test]
    fn tools_are_used_again() {
        let sim = Sim::new(SimOptions::default());
        let _ = sim.add_memory_node(1 << 16);
        let endpoint = sim.endpoint(sim.add_compute_node());
        let (lockers, epochs) = (Lockers::default(), Rc::<Epochs>::default());
        sim.block_on(async move {
            let mut cx = OpContext::new(endpoint.clone());
            for count in [1, 3, 2] {
                let mut turns = Vec::new();
                for number in 0..count {
                    let lock = RemoteAddr::new(NodeId::new(0), 64 + 16 * number);
                    let entered = enter(&mut cx, &lockers, (KIND, &site()), lock, &epochs.pin()).await;
                    turns.push(entered.expect("the node is there"));
                    assert_eq!(lockers.in_use.get() as u64, number + 1);
                    assert!(!lockers.are_idle());
                }
                drop(turns);
                while !lockers.are_idle() {
                    endpoint.sleep(1_000).await;
                }
                let idle = lockers.idle.borrow().values().map(Vec::len).sum::<usize>();
                assert_eq!(idle, if count == 1 { 1 } else { 3 });
            }
            assert!(epochs.is_unpinned());
        });
    }

    #[test]
    fn a_fabric_without_masked_atomics_is_refused() {
        let profile = Profile {
            has_masked_atomics: false,
            ..Profile::default()
        };
        let sim = Sim::new(SimOptions {
            profile,
            ..SimOptions::default()
        });
        let _ = sim.add_memory_node(1 << 16);
        let endpoint = sim.endpoint(sim.add_compute_node());
        let checked = Lockers::default().check(&endpoint, KIND, &site());
        assert!(matches!(checked, Err(LockError::Unsupported { .. })), "{checked:?}");
        assert_eq!(Lockers::default().check(&endpoint, LockKind::Cas, &site()), Ok(()));
    }
}
