//! Sleeping until a message comes, without stopping the other tasks of the thread.
//!
//! On the path: a RECEIVE that found its mailbox empty for a while.
//!
//! Each process has one waiter for each segment in which it receives: an entry of the endpoint
//! table whose doorbell senders ring, and one thread that sleeps on the doorbell (a futex) and wakes
//! the tasks that have mail. It starts with the first task that waits.
//!
//! Going to sleep: 1. leave the task's waker here; 2. say in the endpoint's entry that it sleeps;
//! 3. look into the mailbox once more. Sending: 1. put the message in; 2. if the receiver says that
//! it sleeps, ring. All four are sequentially consistent, so one of the two sees the other.
//!
//! A sender that is killed between its two steps leaves a message and no ring; the thread therefore
//! also looks by itself every [`LOOK_INTERVAL`].

use core::task::Waker;
use core::time::Duration;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use super::process::ProcessIdentity;
use super::table::{Claim, Kind, Table};
use crate::primitive::{AtomicBool, Mutex, MutexGuard, Ordering, thread};

/// How long a message waits at most whose sender died before it could ring.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A task that waits: it is looked for under the ticket it drew.
#[derive(Debug)]
struct Sleeper {
    index: u64,
    waker: Waker,
}

#[derive(Debug)]
struct Bedroom {
    table: Table,
    claim: Claim,
    is_stopping: AtomicBool,
    sleepers: Mutex<HashMap<u64, Sleeper>>,
}

/// The waiter of this process in one segment.
#[derive(Debug)]
pub(super) struct Waiter {
    bedroom: Arc<Bedroom>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Waiter {
    /// Claims an entry and starts the thread; `None` if there is no entry or no thread to be had.
    pub(super) fn start(table: &Table) -> Option<Self> {
        let own = ProcessIdentity::own().ok()?;
        let claim = table.claim(&own, Kind::Waiter, None)?;
        let bedroom = Arc::new(Bedroom {
            table: table.clone(),
            claim,
            is_stopping: AtomicBool::new(false),
            sleepers: Mutex::new(HashMap::new()),
        });
        let watched = bedroom.clone();
        let thread = thread::Builder::new()
            .name("farside-mail".to_owned())
            .spawn(move || watched.watch());
        match thread {
            Ok(thread) => Some(Self {
                bedroom,
                thread: Some(thread),
            }),
            Err(error) => {
                tracing::warn!("receiving by polling, since no thread could be started: {error}");
                table.release(claim);
                None
            }
        }
    }

    /// Wakes the task when the endpoint at `index` has mail. `ticket` is the task's own.
    pub(super) fn lie_down(&self, ticket: u64, index: u64, waker: &Waker) {
        let sleeper = Sleeper {
            index,
            waker: waker.clone(),
        };
        self.bedroom.sleepers().insert(ticket, sleeper);
        let entry = self.bedroom.table.entry(index);
        entry.waiter().store(self.bedroom.claim.index + 1, Ordering::Release);
        entry.sleeping().store(1, Ordering::SeqCst);
    }

    /// The task of this ticket waits no longer.
    pub(super) fn get_up(&self, ticket: u64) {
        self.bedroom.sleepers().remove(&ticket);
    }
}

/// Rings for the endpoint at `index` if it says that it sleeps.
pub(super) fn ring(table: &Table, sleeper: super::table::Entry<'_>) {
    if sleeper.sleeping().load(Ordering::SeqCst) != 0 && sleeper.sleeping().swap(0, Ordering::SeqCst) != 0 {
        let waiter = sleeper.waiter().load(Ordering::Acquire);
        if let Some(entry) = waiter.checked_sub(1).and_then(|index| table.get(index)) {
            entry.doorbell().ring();
        }
    }
}

impl Bedroom {
    fn sleepers(&self) -> MutexGuard<'_, HashMap<u64, Sleeper>> {
        // The map is whole at every moment at which a thread could panic.
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread.
    fn watch(&self) {
        let doorbell = self.table.entry(self.claim.index).doorbell();
        loop {
            // Before anything is looked at: whoever changes it afterwards rings once more, and we do not sleep.
            let seen = doorbell.rings();
            if self.is_stopping.load(Ordering::SeqCst) {
                return;
            }
            self.wake_those_with_mail();
            doorbell.wait(seen, LOOK_INTERVAL);
        }
    }

    fn wake_those_with_mail(&self) {
        let has_mail = |sleeper: &Sleeper| self.table.entry(sleeper.index).mailbox().has_mail();
        let woken: Vec<Waker> = self
            .sleepers()
            .extract_if(|_, sleeper| has_mail(sleeper))
            .map(|(_, sleeper)| sleeper.waker)
            .collect();
        // Without the lock: a task may get up from within its waker.
        woken.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.bedroom.is_stopping.store(true, Ordering::SeqCst);
        let claim = self.bedroom.claim;
        self.bedroom.table.entry(claim.index).doorbell().ring();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            // It catches no panic of ours; a panic of a waker was reported when it happened.
            let _ = thread.join();
        }
        self.bedroom.table.release(claim);
    }
}
