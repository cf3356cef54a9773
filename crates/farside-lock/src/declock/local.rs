//! The local lock of a compute node, and who gets it next (DecLock, section 5, figures 9 and 10).
//!
//! On the path: a client that wants a lock asks here first. Whoever has the local lock and not the CQL lock
//! acquires that; whoever releases gives the local lock to a client of this node, together with the CQL
//! lock or without it: the [`Policy`] says which.
//!
//! Nothing here touches far memory, and nothing awaits but the turn at the local lock.

use core::cell::{Cell, RefCell};
use core::future::poll_fn;
use core::task::{Poll, Waker};
use std::collections::VecDeque;
use std::rc::Rc;

use super::timestamp::Timestamp;
use crate::Mode;

/// How often in a row `local-bound` gives a lock to clients of its node: as often as Sherman does, with whose bound section
/// 6.3 compares.
pub const LOCAL_RUN_MAX: u32 = 4;

/// Who is next when clients of this node and of others wait (sections 5.3 and 6.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// No local locks: every client queues up for the CQL lock.
    Cql,
    /// Who asked first; readers share as far as nobody else asked in between.
    TimestampTaskFair,
    /// Who asked first; but all readers of the node share, and readers are next when a writer has let go of the CQL lock.
    TimestampPhaseFair,
    /// Others first.
    RemotePrefer,
    /// This node first.
    LocalPrefer,
    /// This node first, [`LOCAL_RUN_MAX`] times in a row.
    LocalBound,
}

impl Policy {
    /// Whether it matters who waits elsewhere.
    pub(super) fn asks_for_remote(self) -> bool {
        !matches!(self, Self::Cql | Self::LocalPrefer)
    }

    /// Whether the CQL lock stays here for who asked at `time`, after it stayed `run` times.
    fn keeps(self, time: Timestamp, remote: Option<Timestamp>, run: u32) -> bool {
        match self {
            Self::Cql => false,
            Self::TimestampTaskFair | Self::TimestampPhaseFair => remote.is_none_or(|remote| !remote.is_before(time)),
            Self::RemotePrefer => remote.is_none(),
            Self::LocalPrefer => true,
            Self::LocalBound => remote.is_none() || run < LOCAL_RUN_MAX,
        }
    }

    /// Whether readers that have the lock let in a reader of their node who asked at `time`. In the phase-fair design all readers in
    /// the local queue share it, whoever waits elsewhere; only the task-fair one stops at those who asked later (section 5.3). The
    /// policies without timestamps are held to what they are named after.
    fn shares(self, time: Timestamp, remote: Option<Timestamp>, run: u32) -> bool {
        self == Self::TimestampPhaseFair || self.keeps(time, remote, run)
    }

    fn is_phase_fair(self) -> bool {
        self != Self::TimestampTaskFair
    }
}

/// A client of this node that waits.
#[derive(Debug)]
struct LocalWaiter {
    mode: Mode,
    time: Timestamp,
    turn: Rc<Turn>,
}

/// What somebody who waited is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Handed {
    /// The lock.
    Inside,
    /// The local lock: the CQL lock has to be acquired.
    Local,
}

/// Where somebody waits.
#[derive(Default, Debug)]
pub(super) struct Turn {
    handed: Cell<Option<Handed>>,
    waker: RefCell<Option<Waker>>,
}

impl Turn {
    fn hand(&self, handed: Handed) {
        self.handed.set(Some(handed));
        self.waker.take().inspect(Waker::wake_by_ref);
    }

    pub(super) async fn come(&self) -> Handed {
        poll_fn(|context| match self.handed.get() {
            Some(handed) => Poll::Ready(handed),
            None => {
                *self.waker.borrow_mut() = Some(context.waker().clone());
                Poll::Pending
            }
        })
        .await
    }
}

/// Who holds the local lock.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum State {
    #[default]
    Free,
    /// One client, which acquires or releases the CQL lock.
    Moving,
    /// So many clients, with the CQL lock in this mode.
    Held(Mode, u32),
}

/// What a client has to do that asks for the lock.
#[derive(Debug)]
pub(super) enum Asked {
    /// Nothing: it shares the lock.
    Inside,
    /// Acquire the CQL lock.
    Local,
    /// Wait. If the lock is held in a mode and nobody knows who waits elsewhere, find that out.
    Wait(Rc<Turn>, Option<Mode>),
}

/// The local lock.
#[derive(Default, Debug)]
pub(super) struct LocalQueue {
    state: State,
    waiting: VecDeque<LocalWaiter>,
    /// When somebody asked who waits elsewhere, as far as it is known since the CQL lock was acquired: the next in its queue, as
    /// the notification tells, or the earliest, if a client of this node has looked (section 5.3).
    remote: Option<Timestamp>,
    /// How often in a row the CQL lock has stayed here.
    run: u32,
}

impl LocalQueue {
    pub(super) fn is_free(&self) -> bool {
        self.state == State::Free
    }

    /// Whether one client is inside, and nobody of this node waits.
    pub(super) fn is_alone(&self) -> bool {
        matches!(self.state, State::Held(_, 1)) && self.waiting.is_empty()
    }

    /// Figure 10, lines 2 to 10. `may_share`: nobody waits for this node to let go of the lock.
    pub(super) fn ask(&mut self, mode: Mode, time: Timestamp, may_share: bool) -> Asked {
        let has_writer = self.waiting.iter().any(|waiter| waiter.mode == Mode::Exclusive);
        match self.state {
            State::Free => {
                self.state = State::Moving;
                Asked::Local
            }
            State::Held(Mode::Shared, holders) if mode == Mode::Shared && !has_writer && may_share => {
                self.state = State::Held(Mode::Shared, holders + 1);
                Asked::Inside
            }
            _ => {
                let turn = Rc::new(Turn::default());
                self.waiting.push_back(LocalWaiter {
                    mode,
                    time,
                    turn: Rc::clone(&turn),
                });
                let held = match self.state {
                    State::Held(mode, _) if self.remote.is_none() => Some(mode),
                    _ => None,
                };
                Asked::Wait(turn, held)
            }
        }
    }

    /// Somebody has found out who waits elsewhere.
    pub(super) fn note_remote(&mut self, remote: Option<Timestamp>) {
        if matches!(self.state, State::Held(..)) && self.remote.is_none() {
            self.remote = remote;
        }
    }

    /// Who acquired the CQL lock has it (figure 10, lines 13 to 17).
    pub(super) fn taken(&mut self, mode: Mode, remote: Option<Timestamp>, policy: Policy) {
        debug_assert_eq!(self.state, State::Moving);
        self.remote = remote;
        self.run = 0;
        self.state = State::Held(mode, 1);
        self.share(policy);
    }

    /// Lets in readers who wait (figure 10, line 16).
    fn share(&mut self, policy: Policy) {
        let State::Held(Mode::Shared, holders) = &mut self.state else {
            return;
        };
        let mut at = 0;
        while at < self.waiting.len() {
            let waiter = &self.waiting[at];
            let is_reader = waiter.mode == Mode::Shared;
            if is_reader && policy.shares(waiter.time, self.remote, self.run) {
                let waiter = self.waiting.remove(at).expect("it is there");
                *holders += 1;
                self.run += 1;
                waiter.turn.hand(Handed::Inside);
            } else if policy.is_phase_fair() {
                at += 1;
            } else {
                return;
            }
        }
    }

    /// Somebody is through (figure 10, lines 19 to 33). Returns the mode in which the CQL lock has to be
    /// released now, after which [`LocalQueue::moved`] says who is next.
    pub(super) fn leave(&mut self, policy: Policy, must_let_go: bool) -> Option<Mode> {
        let State::Held(mode, holders) = self.state else {
            unreachable!("who leaves was inside");
        };
        if holders > 1 {
            self.state = State::Held(mode, holders - 1);
            return None;
        }
        if let Some(first) = self.waiting.front()
            && first.mode == mode
            && !must_let_go
            && policy.keeps(first.time, self.remote, self.run)
        {
            let next = self.waiting.pop_front().expect("it is there");
            self.run += 1;
            next.turn.hand(Handed::Inside);
            self.state = State::Held(mode, 1);
            self.share(policy);
            return None;
        }
        self.state = State::Moving;
        self.remote = None;
        Some(mode)
    }

    /// Who holds the local lock without the CQL lock, after having held it in `mode`, gives it on.
    pub(super) fn moved(&mut self, policy: Policy, mode: Mode) {
        debug_assert_eq!(self.state, State::Moving);
        match self.next(policy, mode) {
            Some(at) => {
                let next = self.waiting.remove(at).expect("it is there");
                next.turn.hand(Handed::Local);
            }
            None => self.state = State::Free,
        }
    }

    /// Who is next, after the lock was held in `mode`.
    fn next(&self, policy: Policy, mode: Mode) -> Option<usize> {
        let reader = || self.waiting.iter().position(|waiter| waiter.mode == Mode::Shared);
        let readers_first = policy.is_phase_fair() && mode == Mode::Exclusive;
        readers_first
            .then(reader)
            .flatten()
            .or((!self.waiting.is_empty()).then_some(0))
    }
}

#[cfg(test)]
mod tests;
