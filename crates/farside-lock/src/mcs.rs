//! The MCS lock over far memory (ShiftLock, Algorithm 1 with sections 3.2 and 3.3): clients queue up, and
//! each hands the lock over to the next.
//!
//! The entry is one word: who is last in the queue ([`TailWord`]), 0 if nobody is.
//!
//! Acquire:
//!  1. take a seat, and swap it into the tail: one atomic. The tail was 0: the lock is ours.
//!  2. Otherwise write `Successor` to the seat that was there, and wait for `Handover`.
//!
//! Release:
//!  1. if no `Successor` has arrived, compare-and-swap the tail from the own seat to 0: the lock is free;
//!  2. if that fails somebody has queued up: wait for its `Successor`;
//!  3. write `Handover` to it.
//!
//! Invariants:
//! - each client in the queue but the first writes one `Successor` to the one in front of it, which does not
//!   get up before it has arrived; so a `Successor` is never late;
//! - `Handover` carries the receiver's stamp, which is dealt once.
//!
//! Order: first come, first served, by the order in which the swaps take effect. There is no shared mode.
//! Whoever dies in the queue, or holding the lock, stops everybody behind it (ShiftLock, section 2.4).
//!
//! Cost without contention: one atomic, and one atomic. With a queue: one atomic and two SENDs for both.
//! Without masked atomics the swap is a loop (`atomics::swap`).

use core::cell::Cell;
use std::rc::Rc;

use farside_fabric::mutant::is_planted;
use farside_fabric::{Deadline, Endpoint, FabricError, OpContext, RemoteAddr};

use crate::atomics::{compare_swap, swap, swap_now};
use crate::grant::Held;
use crate::inbox::{Arrived, Inbox, Seat, Successor};
use crate::letter::{ANY_STAMP, Letter, LetterKind};
use crate::patience::{self, until};
use crate::word::TailWord;
use crate::{Grant, Lock, LockError, LockOptions, Mode};

/// A client's side of the MCS lock.
#[derive(Debug)]
pub struct McsLock {
    inbox: Inbox,
}

/// A place at the head of the queue.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Head {
    seat: Seat,
    successor: Option<Successor>,
    handed: u64,
}

impl Head {
    /// What the client in front has handed over with the lock, for locks made of such a queue; 0 if
    /// nobody was in front.
    pub(crate) fn handed(&self) -> u64 {
        self.handed
    }
}

/// Who gets the lock next, and who hands it over.
pub(crate) struct Next {
    seat: Seat,
    successor: Successor,
}

impl Next {
    /// Hands the lock over, and a word with it (Line 11).
    pub(crate) async fn hand_over(self, endpoint: &Endpoint, entry: RemoteAddr, word: u64) -> Result<(), FabricError> {
        let Successor { place, stamp } = self.successor;
        let letter = Letter {
            kind: LetterKind::Handover,
            seat: place.seat,
            reply: self.seat.number(),
            stamp,
            entry,
            words: [word, 0, 0],
        };
        self.seat.inbox().send(endpoint, place.endpoint, letter).await
    }
}

impl McsLock {
    /// A client at this inbox.
    #[must_use]
    pub fn new(inbox: Inbox) -> Self {
        Self { inbox }
    }
}

/// In plain calls, over mapped memory: see [`Locker::acquire_now`](crate::Locker::acquire_now).
impl McsLock {
    /// Whoever finds nobody there need not swap whatever is: then it is in no queue if it fails.
    pub(crate) fn acquire_now(&self, cx: &mut OpContext, entry: RemoteAddr, mode: Mode) -> Option<Grant> {
        let seat = self.inbox.take_seat(entry).ok()?;
        let is_free = swap_now(cx, entry, 0, TailWord::of(seat.place()).bits());
        let head = Head {
            seat,
            successor: None,
            handed: 0,
        };
        is_free.then(|| Grant::new(entry, mode, Held::Mcs(head)))
    }

    /// Nobody has queued up as long as the tail is ours: no letter need be looked for.
    pub(crate) fn release_now(&self, cx: &mut OpContext, grant: &Grant) -> bool {
        match grant.held() {
            Held::Mcs(head) => swap_now(cx, grant.entry(), TailWord::of(head.seat.place()).bits(), 0),
            _ => false,
        }
    }
}

impl Lock for McsLock {
    fn entry_bytes(_: &LockOptions) -> u64 {
        8
    }

    async fn acquire(&self, cx: &mut OpContext, entry: RemoteAddr, mode: Mode) -> Result<Grant, LockError> {
        let seat = self.inbox.take_seat(entry)?;
        let endpoint = cx.endpoint().clone();
        let work = reach_head(cx.endpoint().clone(), entry, seat, cx.retry_meter());
        let give_back = async move |head: Result<Head, LockError>| {
            if let Ok(head) = head
                && !is_planted("mcs: a queue left when the deadline passes")
            {
                // If that fails the connection is gone, or the node.
                let _ = pass_on(endpoint, entry, head).await;
            }
        };
        match until(cx.endpoint(), cx.deadline(), work, give_back).await {
            Some(head) => Ok(Grant::new(entry, mode, Held::Mcs(head?))),
            None => Err(LockError::Timeout { entry }),
        }
    }

    async fn release(&self, cx: &mut OpContext, grant: Grant) -> Result<(), LockError> {
        let entry = grant.entry();
        let Held::Mcs(head) = grant.into_held() else {
            unreachable!("a grant goes back to the lock that gave it");
        };
        let work = pass_on(cx.endpoint().clone(), entry, head);
        patience::release(cx, entry, work).await
    }
}

/// Queues up and waits until everybody in front has left.
pub(crate) async fn reach_head(
    endpoint: Endpoint,
    entry: RemoteAddr,
    seat: Seat,
    retries: Rc<Cell<u64>>,
) -> Result<Head, LockError> {
    let reached = queue_up(&endpoint, entry, &seat, &retries).await;
    if reached.is_err() {
        // A swap of unknown outcome may still name the seat.
        seat.burn();
    }
    let (successor, handed) = reached?;
    Ok(Head {
        seat,
        successor,
        handed,
    })
}

async fn queue_up(
    endpoint: &Endpoint,
    entry: RemoteAddr,
    seat: &Seat,
    retries: &Cell<u64>,
) -> Result<(Option<Successor>, u64), LockError> {
    // ShiftLock Algorithm 1, line 2.
    let before = TailWord::of_bits(swap(endpoint, entry, TailWord::of(seat.place()).bits(), retries).await?);
    let Some(predecessor) = before.place() else {
        return Ok((None, 0));
    };
    let letter = Letter {
        kind: LetterKind::Successor,
        seat: predecessor.seat,
        reply: seat.number(),
        stamp: ANY_STAMP,
        entry,
        words: [u64::from(seat.stamp()), 0, 0],
    };
    seat.inbox().send(endpoint, predecessor.endpoint, letter).await?; // Line 4.
    let mut successor = None;
    // Ends when everybody in front has released.
    loop {
        let Some(arrived) = seat.receive(endpoint, Deadline::NEVER).await? else {
            continue;
        };
        match arrived.letter.kind {
            LetterKind::Successor => successor = Some(Successor::of(&arrived)),
            LetterKind::Handover => return Ok((successor, arrived.letter.words[0])), // Line 5.
            _ => {}
        }
        if is_planted("mcs: any letter taken for a hand-over") {
            return Ok((successor, 0));
        }
    }
}

/// Frees the lock, or hands it over.
async fn pass_on(endpoint: Endpoint, entry: RemoteAddr, head: Head) -> Result<(), LockError> {
    match next(&endpoint, entry, head).await? {
        Some(next) => Ok(next.hand_over(&endpoint, entry, 0).await?),
        None => Ok(()),
    }
}

/// Frees the queue, or says who is next.
pub(crate) async fn next(endpoint: &Endpoint, entry: RemoteAddr, head: Head) -> Result<Option<Next>, LockError> {
    let Head {
        seat, mut successor, ..
    } = head;
    if successor.is_none() {
        successor = arrived_successor(seat.take(endpoint)?); // Line 7.
    }
    if successor.is_none() {
        let mine = TailWord::of(seat.place()).bits();
        if compare_swap(endpoint, entry, mine, 0).await? == mine {
            return Ok(None); // Lines 8 and 9.
        }
        if is_planted("mcs: a successor that is not waited for") {
            return Ok(None);
        }
    }
    // Ends when the client that has swapped the tail after us has told us so.
    while successor.is_none() {
        successor = arrived_successor(seat.receive(endpoint, Deadline::NEVER).await?); // Line 10.
    }
    let successor = successor.expect("waited for above");
    Ok(Some(Next { seat, successor }))
}

fn arrived_successor(arrived: Option<Arrived>) -> Option<Successor> {
    arrived
        .filter(|arrived| arrived.letter.kind == LetterKind::Successor)
        .map(|arrived| Successor::of(&arrived))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{LOCK, Machine, NODE, Stage};

    fn lock(machine: &Machine) -> McsLock {
        McsLock::new(machine.site.inbox(machine.endpoint.id()))
    }

    #[test]
    fn a_seat_is_dealt_again_unless_the_swap_failed() {
        let stage = Stage::new();
        let machine = stage.machine();
        let lock = lock(&machine);
        let mut cx = machine.cx();
        for _ in 0..2 {
            let grant = stage.take(&lock, &mut cx, Mode::Exclusive);
            stage.give_back(&lock, &mut cx, grant);
            assert_eq!(machine.next_seat(), 1);
        }
        stage.sim.crash_node(NODE);
        let refused = stage.sim.block_on(lock.acquire(&mut cx, LOCK, Mode::Exclusive));
        assert!(refused.is_err());
        assert_eq!(machine.next_seat(), 2);
    }

    /// A queue of three: each swaps the tail and tells the one in front; who has somebody behind hands over without an
    /// atomic, and the last one frees the lock with one.
    #[test]
    fn a_hand_over_takes_no_atomic() {
        let stage = Stage::new();
        let machines = [(); 3].map(|()| stage.machine());
        let starts = machines.each_ref().map(Machine::costs);
        let grants = stage.queue_up(&machines, lock);
        for (index, machine) in machines.iter().enumerate() {
            let behind = u64::from(index > 0);
            assert_eq!(machine.cost_since(&starts[index]), [0, 0, 1, behind]);
            let (lock, mut cx, grant) = grants[index].take().expect("its turn");
            assert!(grants.iter().all(|grant| grant.take().is_none()), "one at a time");
            let start = machine.costs();
            stage.give_back(&lock, &mut cx, grant);
            let is_last = index == machines.len() - 1;
            assert_eq!(
                machine.cost_since(&start),
                [0, 0, u64::from(is_last), u64::from(!is_last)]
            );
            stage.run_for(20_000);
        }
        assert_eq!(stage.word(LOCK), 0);
    }
}
