//! A turn: leave to replace a data pointer, and what has to be given back afterwards.
//!
//! On the path: [`Synchroniser::enter`](crate::Synchroniser::enter) gives it,
//! [`Synchroniser::overwrite`](crate::Synchroniser::overwrite) takes it. Who drops one has changed nothing; what was held is
//! given back by a task of its own.

use farside_fabric::{Endpoint, OpContext};
use farside_lock::cider::{Client, Outcome, Place};
use farside_lock::patience::carry;
use farside_lock::{Grant, Locker};
use farside_pool::Pin;

use crate::Pointer;
use crate::pessimistic::Lockers;

/// What a turn holds. The pin keeps the lock entry where it is.
#[derive(Debug)]
pub(crate) enum Held {
    /// A lock.
    Lock {
        cx: OpContext,
        locker: Locker,
        grant: Grant,
        has_waited: bool,
        lockers: Lockers,
        pin: Pin,
    },
    /// A place in a queue of CIDER.
    Place { client: Client, place: Place, pin: Pin },
}

/// How a turn has ended.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Ended {
    /// How many went together.
    pub(crate) batch: u64,
    /// Whether others wanted the same.
    pub(crate) has_company: bool,
}

impl Held {
    async fn give_back(self, outcome: Outcome) -> Ended {
        match self {
            Self::Lock {
                mut cx,
                locker,
                grant,
                has_waited,
                lockers,
                pin,
            } => {
                // If that fails the lease has run out, or the connection is gone: whoever waits takes the lock.
                let _ = locker.release(&mut cx, grant).await;
                lockers.put_back(cx, locker);
                drop(pin);
                Ended {
                    batch: 0,
                    has_company: has_waited,
                }
            }
            Self::Place { client, place, pin } => {
                let has_company = place.has_company();
                // If that fails the queue is reset.
                let batch = client.leave(place, outcome).await.unwrap_or(1);
                drop(pin);
                Ended { batch, has_company }
            }
        }
    }

    fn endpoint(&self) -> Endpoint {
        match self {
            Self::Lock { cx, .. } => cx.endpoint().clone(),
            Self::Place { client, .. } => client.endpoint().clone(),
        }
    }
}

/// Leave to replace a data pointer.
#[derive(Debug)]
pub struct Turn {
    held: Option<Box<Held>>,
    /// Whether the retries of this update say something about contention.
    pub(crate) is_noted: bool,
    /// What the slot held since the turn has come, if anybody has looked.
    pub(crate) seen: Option<Pointer>,
}

impl Turn {
    /// Of an update that holds nothing.
    pub(crate) fn free() -> Self {
        Self {
            held: None,
            is_noted: false,
            seen: None,
        }
    }

    /// The same, and its retries are noted.
    pub(crate) fn noted() -> Self {
        Self {
            held: None,
            is_noted: true,
            seen: None,
        }
    }

    pub(crate) fn holding(held: Held) -> Self {
        Self {
            held: Some(Box::new(held)),
            is_noted: false,
            seen: None,
        }
    }

    /// Whether others have had their turn since this one was asked for: what was seen of the slot before is old.
    #[must_use]
    pub fn has_waited(&self) -> bool {
        match self.held.as_deref() {
            None => false,
            Some(Held::Lock { has_waited, .. }) => *has_waited,
            Some(Held::Place { place, .. }) => place.has_waited(),
        }
    }

    /// Notes what the slot holds, now that the turn has come.
    pub fn note(&mut self, seen: Pointer) {
        self.seen = Some(seen);
    }

    /// Gives back what is held, and waits for that until the deadline; `None` if nothing is held.
    pub(crate) async fn end(mut self, cx: &OpContext, outcome: Outcome) -> Option<Ended> {
        let held = self.held.take()?;
        let work = Box::pin(held.give_back(outcome));
        let ended = carry(cx.endpoint(), cx.deadline(), work, Box::new(|_| Box::pin(async {}))).await;
        Some(ended.unwrap_or_default())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            held.endpoint().spawn(async move {
                let _ = held.give_back(Outcome::Refused).await;
            });
        }
    }
}
