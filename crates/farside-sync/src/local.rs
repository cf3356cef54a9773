//! Local write combining and read delegation: of the operations of one compute node on one key at the same time, one
//! goes to far memory, and the others return with it (SMART; CIDER, section 3.1).
//!
//! On the path: before anything is posted. An UPDATE that does not depend on what it replaces, or a SEARCH, asks its
//! [`Combiner`] first. If no other of its kind is under way for the key it goes at once. Otherwise it waits:
//!
//!  1. The operation under way ends.
//!  2. Of all who wait by then **the last one goes**, with its own value; the window is closed. Who comes from now on
//!     waits for the next turn.
//!  3. If it succeeds, those who waited in step 2 return with its result. If it fails, or is cancelled, they go on
//!     waiting as if it had never been there, and step 2 follows.
//!
//! # Why that is linearizable
//! - *Writes*: whoever returns with another's result was called before that one posted its first verb, and returns
//!   after it has ended. So it can be put directly before it, and nobody can have seen its value in between.
//! - *Reads*: the READs were posted after every reader that shares them was called.
//! - *Failures*: a value is written by the operation that it belongs to, and by nobody else. If the outcome of that one
//!   is unknown it alone is in doubt: none of the others has had any effect, and each may still have its own.
//!
//! To let waiters in until the one that has gone has ended would not be linearizable: a write that is
//! called after the combiner's took effect, and after somebody else's of another node, must not be put before both.
//!
//! # Memory
//! A key is listed as long as an operation on it is under way: at most one for each client of the compute node.
//!
//! Invariants, for each key that is listed:
//! - exactly one operation is under way, or has been told to go;
//! - `covered` waited when it was told to go, `waiting` has come since.

use core::cell::{Cell, RefCell};
use core::future::poll_fn;
use core::pin::pin;
use core::task::{Poll, Waker};
use std::collections::BTreeMap;
use std::rc::Rc;

use farside_fabric::mutant::is_planted;
use farside_fabric::{Deadline, OpContext};

/// What an operation is told that has waited.
#[derive(Clone, Debug)]
enum Told<T> {
    /// To go.
    Go,
    /// That another has gone for it.
    Done(T),
}

/// An operation that waits.
#[derive(Debug)]
struct Waiter<T> {
    told: RefCell<Option<Told<T>>>,
    waker: RefCell<Option<Waker>>,
}

impl<T> Waiter<T> {
    fn tell(&self, told: Told<T>) {
        *self.told.borrow_mut() = Some(told);
        self.waker.take().inspect(Waker::wake_by_ref);
    }
}

/// The operations on one key.
#[derive(Debug)]
struct Group<T> {
    /// Those who return with the one that is under way.
    covered: Vec<Rc<Waiter<T>>>,
    /// Those who have come since, the last one at the end.
    waiting: Vec<Rc<Waiter<T>>>,
}

/// How often operations of one kind went which way.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Operations that have asked for their turn.
    pub asked: u64,
    /// Operations that have returned with another's result.
    pub combined: u64,
    /// Operations whose result others have returned with.
    pub batches: u64,
}

impl Counts {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.with(other, |one, other| one + other)
    }

    /// What was added since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        self.with(earlier, |one, other| one - other)
    }

    fn with(self, other: Self, each: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            asked: each(self.asked, other.asked),
            combined: each(self.combined, other.combined),
            batches: each(self.batches, other.batches),
        }
    }
}

/// The operations of one kind that the clients of a compute node have under way, by key. `T` is their result.
#[derive(Debug)]
pub struct Combiner<T> {
    groups: RefCell<BTreeMap<Rc<[u8]>, Group<T>>>,
    counts: Cell<Counts>,
}

impl<T> Default for Combiner<T> {
    fn default() -> Self {
        Self {
            groups: RefCell::default(),
            counts: Cell::default(),
        }
    }
}

/// What came of asking.
#[derive(Debug)]
pub enum Asked<'c, T: Clone> {
    /// It is this operation's turn.
    Go(Turn<'c, T>),
    /// Another one has gone for it, with this result.
    Done(T),
    /// The deadline has passed.
    Late,
}

/// The turn of one operation; if it is dropped, the operation has failed.
#[derive(Debug)]
pub struct Turn<'c, T: Clone> {
    combiner: &'c Combiner<T>,
    key: Rc<[u8]>,
    result: Option<T>,
}

/// A place among those who wait; gives it up if it is dropped.
struct Place<'c, T: Clone> {
    combiner: &'c Combiner<T>,
    key: Rc<[u8]>,
    waiter: Rc<Waiter<T>>,
}

impl<T: Clone> Combiner<T> {
    /// How often operations went which way.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts.get()
    }

    /// Whether no operation is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.groups.borrow().is_empty()
    }

    /// Asks for the turn of an operation on a key.
    pub async fn ask(&self, cx: &OpContext, key: &[u8]) -> Asked<'_, T> {
        self.counts.update(|counts| Counts {
            asked: counts.asked + 1,
            ..counts
        });
        let Some(place) = self.line_up(key) else {
            let key = Rc::from(key);
            let first = Group {
                covered: Vec::new(),
                waiting: Vec::new(),
            };
            self.groups.borrow_mut().insert(Rc::clone(&key), first);
            return Asked::Go(self.turn(key));
        };
        let endpoint = cx.endpoint();
        let left_ns = match cx.deadline() {
            Deadline::NEVER => u64::MAX,
            deadline => deadline.0.saturating_sub(endpoint.now_ns()),
        };
        // Asked for only if there is a deadline.
        let mut alarm = pin!(async {
            match left_ns {
                u64::MAX => core::future::pending().await,
                left_ns => endpoint.sleep(left_ns).await,
            }
        });
        let told = poll_fn(|context| {
            if let Some(told) = place.waiter.told.take() {
                return Poll::Ready(Some(told));
            }
            *place.waiter.waker.borrow_mut() = Some(context.waker().clone());
            alarm.as_mut().poll(context).map(|()| None)
        });
        match told.await {
            Some(Told::Go) => Asked::Go(self.turn(Rc::clone(&place.key))),
            Some(Told::Done(result)) => Asked::Done(result),
            None => Asked::Late,
        }
    }

    fn turn(&self, key: Rc<[u8]>) -> Turn<'_, T> {
        Turn {
            combiner: self,
            key,
            result: None,
        }
    }

    /// A place among those who wait; `None` if nobody is under way.
    fn line_up(&self, key: &[u8]) -> Option<Place<'_, T>> {
        let mut groups = self.groups.borrow_mut();
        let group = groups.get_mut(key)?;
        let waiter = Rc::new(Waiter {
            told: RefCell::new(None),
            waker: RefCell::new(None),
        });
        let late = is_planted("local: a window that stays open");
        let line = if late { &mut group.covered } else { &mut group.waiting };
        line.push(Rc::clone(&waiter));
        Some(Place {
            combiner: self,
            key: Rc::from(key),
            waiter,
        })
    }

    /// The operation under way has ended, with this result if it has succeeded: steps 3 and 2.
    fn end(&self, key: &Rc<[u8]>, result: Option<T>) {
        let mut groups = self.groups.borrow_mut();
        let group = groups.get_mut(key).expect("it is listed while it is under way");
        let mut left = core::mem::take(&mut group.covered);
        if let Some(result) = result {
            self.counts.update(|counts| Counts {
                combined: counts.combined + left.len() as u64,
                batches: counts.batches + u64::from(!left.is_empty()),
                ..counts
            });
            for waiter in left.drain(..) {
                waiter.tell(Told::Done(result.clone()));
            }
        }
        // They have come before those who wait.
        left.append(&mut group.waiting);
        match left.pop() {
            Some(next) => {
                group.covered = left;
                next.tell(Told::Go);
            }
            None => drop(groups.remove(key)),
        }
    }
}

impl<T: Clone> Turn<'_, T> {
    /// Whether others will return with this operation's result.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        let groups = self.combiner.groups.borrow();
        groups.get(&self.key).is_some_and(|group| !group.covered.is_empty())
    }

    /// The operation has ended with this result, which the others may share.
    pub fn end(mut self, result: T) {
        self.result = Some(result);
    }
}

impl<T: Clone> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        let result = self.result.take();
        self.combiner.end(&self.key, result);
    }
}

impl<T: Clone> Drop for Place<'_, T> {
    fn drop(&mut self) {
        match self.waiter.told.take() {
            // Cancelled before it could go.
            Some(Told::Go) => self.combiner.end(&self.key, None),
            Some(Told::Done(_)) => {}
            None => {
                if let Some(group) = self.combiner.groups.borrow_mut().get_mut(&self.key) {
                    let is_other = |waiter: &Rc<Waiter<T>>| !Rc::ptr_eq(waiter, &self.waiter);
                    group.covered.retain(is_other);
                    group.waiting.retain(is_other);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
