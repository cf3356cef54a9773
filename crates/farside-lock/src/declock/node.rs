//! What a compute node knows of the CQL locks that its clients use.
//!
//! On the path: beside every acquire and release. It is what answers when somebody resets a lock
//! (DecLock, section 4.4): whether this node may still hold it.
//!
//! A client's use of a lock is *busy* from before the fetch-and-add that joins the queue until after the
//! one that leaves it, but for the time in which it waits for a notification: then it can be told to
//! start over. So a node that is not busy with a lock holds nothing of it, and has no verb on its way
//! that may change it.

use core::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use farside_fabric::hash::MixState;
use farside_fabric::mutant::is_planted;
use farside_fabric::{EndpointId, RemoteAddr};

use super::header::Index;
use super::local::LocalQueue;
use super::roster::{Member, Roster};
use crate::inbox::{Inbox, Seat};
use crate::letter::{Letter, LetterKind, NO_SEAT, Place};
use crate::{LockError, LockOptions};

/// So many locks are remembered that nobody uses.
const KNOWN_MAX: usize = 64;

/// What the clients of a compute node share of DecLock. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    shared: Rc<Shared>,
}

#[derive(Debug)]
struct Shared {
    roster: Option<Roster>,
    lease_ns: u64,
    notice_ns: u64,
    capacity: u64,
    /// The endpoints of this node, few, each once; `None` while it joins the roster.
    members: RefCell<Vec<(EndpointId, Option<Member>)>>,
    locks: RefCell<HashMap<RemoteAddr, Rc<Local>, MixState>>,
    /// Resets by clients of this node that came to their end, and how long they took in all.
    resets: Cell<Resets>,
    /// What is added to the node's clock to have the one that all nodes share.
    clock_offset_ns: Cell<u64>,
}

/// Resets of locks that the clients of a compute node have brought to their end.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Resets {
    /// How many.
    pub count: u64,
    /// How long they took, in nanoseconds, summed up.
    pub spent_ns: u64,
}

/// Whether an endpoint is in the roster.
pub(super) enum Membership {
    Member(Member),
    /// Another client of the endpoint is about to join.
    Joining,
    /// It is ours to join.
    None,
}

impl Node {
    pub(crate) fn new(options: &LockOptions) -> Self {
        Self {
            shared: Rc::new(Shared {
                roster: options.roster.map(Roster::new),
                lease_ns: options.lease_ns,
                notice_ns: options.declock_notice_ns,
                capacity: options.declock_capacity,
                members: RefCell::default(),
                locks: RefCell::default(),
                resets: Cell::default(),
                clock_offset_ns: Cell::new(0),
            }),
        }
    }

    pub(super) fn roster(&self) -> Option<&Roster> {
        self.shared.roster.as_ref()
    }

    pub(super) fn lease_ns(&self) -> u64 {
        self.shared.lease_ns
    }

    /// How long before it is cut off an endpoint is warned; 0 if it is not.
    pub(super) fn notice_ns(&self) -> u64 {
        self.shared.notice_ns
    }

    /// How many entries a queue has.
    #[inline]
    pub(super) fn capacity(&self) -> u64 {
        self.shared.capacity
    }

    /// Bytes of a queue.
    pub(super) fn queue_bytes(&self) -> u64 {
        8 * self.capacity()
    }

    /// What the clock that all nodes share shows.
    pub(super) fn shared_clock_ns(&self, now_ns: u64) -> u64 {
        now_ns.wrapping_add(self.shared.clock_offset_ns.get())
    }

    /// The shared clock shows 0 when that of the node shows `now_ns`.
    pub(super) fn set_clock(&self, now_ns: u64) {
        self.shared.clock_offset_ns.set(now_ns.wrapping_neg());
    }

    pub(crate) fn resets(&self) -> Resets {
        self.shared.resets.get()
    }

    /// A reset has come to its end.
    pub(super) fn note_reset(&self, spent_ns: u64) {
        let Resets {
            count,
            spent_ns: before_ns,
        } = self.resets();
        self.shared.resets.set(Resets {
            count: count + 1,
            spent_ns: before_ns + spent_ns,
        });
    }

    pub(super) fn membership(&self, endpoint: EndpointId) -> Membership {
        let mut members = self.shared.members.borrow_mut();
        match members.iter().find(|(id, _)| *id == endpoint) {
            Some((_, Some(member))) => Membership::Member(*member),
            Some((_, None)) => Membership::Joining,
            None => {
                members.push((endpoint, None));
                Membership::None
            }
        }
    }

    /// The endpoint's name in the roster, if it has joined.
    pub(super) fn member(&self, endpoint: EndpointId) -> Option<Member> {
        let members = self.shared.members.borrow();
        let found = members.iter().find(|(id, _)| *id == endpoint);
        found.and_then(|(_, member)| *member)
    }

    /// Whether no client of this node holds or wants a lock.
    pub(super) fn is_idle(&self) -> bool {
        self.shared.locks.borrow().values().all(|local| local.is_idle())
    }

    /// The endpoint has joined, or failed to, or left.
    pub(super) fn set_membership(&self, endpoint: EndpointId, member: Option<Member>) {
        let mut members = self.shared.members.borrow_mut();
        members.retain(|(id, _)| *id != endpoint);
        members.extend(member.map(|member| (endpoint, Some(member))));
    }

    /// What is known of a lock.
    pub(super) fn local(&self, entry: RemoteAddr) -> Rc<Local> {
        let mut locks = self.shared.locks.borrow_mut();
        let local = locks.entry(entry).or_insert_with(|| Rc::new(Local::new(entry)));
        Rc::clone(local)
    }

    /// What is known of a lock, if anything is.
    pub(super) fn known(&self, entry: RemoteAddr) -> Option<Rc<Local>> {
        self.shared.locks.borrow().get(&entry).cloned()
    }

    /// Forgets a lock that nobody uses, unless few are known: then it may be used again soon.
    pub(super) fn tidy(&self, local: Rc<Local>) {
        let mut locks = self.shared.locks.borrow_mut();
        // One in the table, one here.
        if locks.len() > KNOWN_MAX && Rc::strong_count(&local) == 2 && local.is_idle() {
            locks.remove(&local.entry);
        }
    }
}

/// What a compute node knows of one lock.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) entry: RemoteAddr,
    busy: Cell<u32>,
    waiting: RefCell<Vec<Rc<Wait>>>,
    /// Who resets the lock and has to be told when we are not busy.
    asked: RefCell<Vec<Asked>>,
    /// Whether a task of this node resets the lock.
    pub(super) is_resetting: Cell<bool>,
    /// Why the last reset by a task of this node failed, until somebody who waits has been told.
    pub(super) reset_failure: Cell<Option<LockError>>,
    /// Who of this node holds the lock or wants it: the local lock of section 5.
    pub(super) queue: RefCell<LocalQueue>,
}

/// Somebody who resets a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Asked {
    pub(super) place: Place,
    /// Of its seat.
    pub(super) stamp: u32,
    /// Which of the node's endpoints it has asked: it waits for an answer for each.
    pub(super) desk: EndpointId,
}

/// A client that waits for a notification.
#[derive(Debug)]
pub(super) struct Wait {
    pub(super) place: Index,
    pub(super) is_aborted: Cell<bool>,
    inbox: Inbox,
    seat: Place,
    stamp: u32,
}

impl Local {
    fn new(entry: RemoteAddr) -> Self {
        Self {
            entry,
            busy: Cell::new(0),
            waiting: RefCell::default(),
            asked: RefCell::default(),
            is_resetting: Cell::new(false),
            reset_failure: Cell::new(None),
            queue: RefCell::default(),
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.busy.get() == 0
            && self.waiting.borrow().is_empty()
            && self.asked.borrow().is_empty()
            && !self.is_resetting.get()
            && self.queue.borrow().is_free()
    }

    /// Somebody is about to join the queue.
    pub(super) fn begin(&self) {
        self.busy.set(self.busy.get() + 1);
    }

    /// Somebody has left it. Returns who has to be told that the node is done with the lock.
    #[must_use]
    pub(super) fn end(&self) -> Vec<Asked> {
        self.busy.set(self.busy.get() - 1);
        if self.busy.get() == 0 {
            self.asked.take()
        } else {
            Vec::new()
        }
    }

    /// Whether somebody resets the lock and waits for us.
    pub(super) fn is_asked(&self) -> bool {
        !self.asked.borrow().is_empty()
    }

    /// Somebody begins to wait: it can be told to start over.
    #[must_use]
    pub(super) fn wait(&self, place: Index, seat: &Seat) -> Rc<Wait> {
        let wait = Rc::new(Wait {
            place,
            is_aborted: Cell::new(false),
            inbox: seat.inbox().clone(),
            seat: seat.place(),
            stamp: seat.stamp(),
        });
        self.waiting.borrow_mut().push(Rc::clone(&wait));
        wait
    }

    /// Somebody has stopped waiting.
    pub(super) fn stop_waiting(&self, wait: &Rc<Wait>) {
        self.waiting.borrow_mut().retain(|other| !Rc::ptr_eq(other, wait));
    }

    /// Somebody resets the lock: whoever waits starts over. Returns whether the node is done with the lock;
    /// if not, the asker is told when it is.
    pub(super) fn ask(&self, asked: Asked) -> bool {
        for wait in self.waiting.borrow_mut().drain(..) {
            wait.is_aborted.set(true);
            wait.inbox.leave(Letter {
                kind: LetterKind::Aborted,
                seat: wait.seat.seat,
                reply: NO_SEAT,
                stamp: wait.stamp,
                entry: self.entry,
                words: [0; 3],
            });
        }
        if self.busy.get() == 0 || is_planted("declock: holders that nobody waits for") {
            return true;
        }
        let mut all = self.asked.borrow_mut();
        if !all.contains(&asked) {
            all.push(asked);
        }
        false
    }
}

#[cfg(test)]
mod tests;
