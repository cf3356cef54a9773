//! Waits for locks that their callers may give up.
//!
//! On the path: between a caller and the task that takes the lock for it. A client that has queued up cannot
//! leave its queue, so what was begun goes on without its caller. Who then asks for the same lock in the same mode
//! takes the wait over, instead of queueing up behind it: a caller that tries every second for an hour is in
//! the queue once.

use core::cell::RefCell;
use core::future::Future;
use core::pin::pin;
use core::task::Poll;
use std::collections::HashMap;
use std::rc::Rc;

use farside_lock::Mode;
use tokio::sync::oneshot::{self, Receiver, Sender};

use super::LocksError;

type Key = (Rc<[u8]>, bool);
type Taken<T> = Result<T, LocksError>;

/// The waits of a client.
#[derive(Debug)]
pub(super) struct Waits<T> {
    all: RefCell<HashMap<Key, Vec<Rc<Wait<T>>>>>,
}

impl<T> Default for Waits<T> {
    fn default() -> Self {
        Self {
            all: RefCell::default(),
        }
    }
}

/// A lock that somebody waits for, or waited for.
#[derive(Debug)]
pub(super) struct Wait<T> {
    key: Key,
    caller: RefCell<Option<Sender<Taken<T>>>>,
}

/// A caller's side of a wait; the wait is given up when it is dropped.
#[derive(Debug)]
pub(super) struct Ticket<T> {
    wait: Rc<Wait<T>>,
    taken: Receiver<Taken<T>>,
}

impl<T> Waits<T> {
    /// A wait for this lock: one that was given up, or a new one, for which somebody has to take the lock. Returns
    /// whether it is new.
    pub(super) fn join(&self, name: &Rc<[u8]>, mode: Mode) -> (Ticket<T>, bool) {
        let (caller, taken) = oneshot::channel();
        let key = (Rc::clone(name), mode == Mode::Exclusive);
        let mut all = self.all.borrow_mut();
        let waits = all.entry(key.clone()).or_default();
        let given_up = waits.iter().find(|wait| wait.is_given_up());
        if let Some(wait) = given_up {
            *wait.caller.borrow_mut() = Some(caller);
            let wait = Rc::clone(wait);
            return (Ticket { wait, taken }, false);
        }
        let wait = Rc::new(Wait {
            key,
            caller: RefCell::new(Some(caller)),
        });
        waits.push(Rc::clone(&wait));
        (Ticket { wait, taken }, true)
    }

    /// Tells the caller what came of its wait. Returns it if there is no caller any more.
    #[must_use]
    pub(super) fn settle(&self, wait: &Rc<Wait<T>>, taken: Taken<T>) -> Option<Taken<T>> {
        let mut all = self.all.borrow_mut();
        if let Some(waits) = all.get_mut(&wait.key) {
            waits.retain(|other| !Rc::ptr_eq(other, wait));
            if waits.is_empty() {
                all.remove(&wait.key);
            }
        }
        drop(all);
        let caller = wait.caller.borrow_mut().take().expect("a wait ends once");
        caller.send(taken).err()
    }
}

impl<T> Wait<T> {
    fn is_given_up(&self) -> bool {
        self.caller.borrow().as_ref().is_some_and(Sender::is_closed)
    }
}

impl<T> Ticket<T> {
    /// The wait, for whoever takes the lock.
    pub(super) fn share(&self) -> Rc<Wait<T>> {
        Rc::clone(&self.wait)
    }

    /// Waits for what comes of it, or until the patience ends: then `None`.
    pub(super) async fn come(self, patience: impl Future<Output = ()>) -> Option<Taken<T>> {
        let (mut taken, mut patience) = (pin!(self.taken), pin!(patience));
        core::future::poll_fn(|context| {
            if let Poll::Ready(taken) = taken.as_mut().poll(context) {
                return Poll::Ready(Some(
                    taken.expect("a wait is settled, or its task has ended with everything"),
                ));
            }
            patience.as_mut().poll(context).map(|()| None)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> Rc<[u8]> {
        (*b"lock").into()
    }

    #[test]
    fn a_wait_that_was_given_up_is_taken_over() {
        let waits = Waits::<u32>::default();
        let (first, is_new) = waits.join(&name(), Mode::Exclusive);
        assert!(is_new);
        let wait = first.share();
        let (_second, is_new) = waits.join(&name(), Mode::Exclusive);
        assert!(is_new, "the first one still waits");
        drop(first);
        assert!(
            waits.join(&name(), Mode::Shared).1,
            "in the other mode nobody has given up"
        );
        let (mut third, is_new) = waits.join(&name(), Mode::Exclusive);
        assert!(!is_new);
        assert_eq!(waits.settle(&wait, Ok(7)), None);
        assert_eq!(third.taken.try_recv(), Ok(Ok(7)));
    }

    #[test]
    fn what_nobody_waits_for_comes_back() {
        let waits = Waits::<u32>::default();
        let (ticket, _) = waits.join(&name(), Mode::Shared);
        let wait = ticket.share();
        drop(ticket);
        assert_eq!(waits.settle(&wait, Ok(7)), Some(Ok(7)));
        assert!(waits.all.borrow().is_empty());
    }
}
