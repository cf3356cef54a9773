//! The inbox: the letters of all clients that share an endpoint, sorted by seat.
//!
//! On the path: a client that queues up for a lock takes a [`Seat`], and waits there for letters. An
//! endpoint has one stream of messages, whoever of its clients they are for; each client that waits
//! takes out whatever has arrived, and wakes those for whom something was there.
//!
//! - **Seat**: a place at which letters are received, from before an acquire until after its
//!   release. It has a number, by which others find it, and which is dealt again later; and a stamp,
//!   which is not.
//! - A letter is **dropped** if its seat is empty, waits for another lock, or has another stamp; and so is
//!   every message that is no letter. A letter without a stamp may still be a late one: the lock has
//!   to know.
//! - A seat after an error may still be named by a verb that is on its way. It is **burnt**: its number is
//!   not dealt again.
//!
//! Invariants:
//! - a client that waits has either polled the endpoint since anybody took messages out, or is woken;
//! - `free` holds numbers of empty seats that are not burnt, each once.

use core::cell::{Cell, RefCell};
use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::{Poll, Waker};
use std::collections::VecDeque;
use std::rc::Rc;

use farside_fabric::{Deadline, Endpoint, EndpointId, FabricError, LocalFuture, Received, RemoteAddr};

use crate::error::LockError;
use crate::letter::{AGENT_SEAT, ANY_STAMP, Letter, Place, SeatNumber};

/// How many seats one endpoint has, that of the agent included: what a lock word has bits for.
pub const SEAT_COUNT_MAX: usize = 1 << 12;
/// How many letters wait at one seat; the oldest is dropped. A queue lock needs two at a time.
const LETTERS_MAX: usize = 16;
/// How many wait at a seat that everybody writes to: about as many as the mailbox of a real endpoint takes.
const BUSY_LETTERS_MAX: usize = 1 << 12;
/// How long to step aside for a receiver that does not take its mail out.
const FULL_PAUSE_NS: u64 = 10_000;

/// A letter that has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrived {
    /// Who wrote it.
    pub from: EndpointId,
    /// What it says.
    pub letter: Letter,
}

impl Arrived {
    /// Where an answer goes to.
    #[must_use]
    pub fn sender(&self) -> Place {
        Place {
            endpoint: self.from,
            seat: self.letter.reply,
        }
    }
}

/// Who is next in a queue: whoever wrote `Successor`, with its stamp in word 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Successor {
    pub(crate) place: Place,
    pub(crate) stamp: u32,
}

impl Successor {
    pub(crate) fn of(arrived: &Arrived) -> Self {
        Self {
            place: arrived.sender(),
            stamp: arrived.letter.words[0] as u32,
        }
    }
}

/// Who sits there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Guest {
    Nobody,
    /// Takes every letter for its number.
    Agent,
    Client {
        entry: RemoteAddr,
        stamp: u32,
    },
}

#[derive(Debug)]
struct Chair {
    guest: Guest,
    letters: VecDeque<Arrived>,
    /// How many of them are kept.
    letters_max: usize,
    waker: Option<Waker>,
}

impl Chair {
    fn empty() -> Self {
        Self {
            guest: Guest::Nobody,
            letters: VecDeque::new(),
            letters_max: LETTERS_MAX,
            waker: None,
        }
    }

    fn expects(&self, letter: &Letter) -> bool {
        match self.guest {
            Guest::Nobody => false,
            Guest::Agent => true,
            Guest::Client { entry, stamp } => {
                letter.entry == entry && (letter.stamp == stamp || letter.stamp == ANY_STAMP)
            }
        }
    }
}

/// The inbox of one endpoint. Clones are the same inbox.
#[derive(Clone, Debug)]
pub struct Inbox {
    room: Rc<Room>,
}

#[derive(Debug)]
struct Room {
    id: EndpointId,
    chairs: RefCell<Vec<Chair>>,
    free: RefCell<Vec<SeatNumber>>,
    stamps: Cell<u32>,
}

impl Inbox {
    /// The inbox of the endpoint with this identity; there must be no other.
    pub(crate) fn new(id: EndpointId) -> Self {
        let room = Room {
            id,
            chairs: RefCell::new(vec![Chair::empty()]),
            free: RefCell::default(),
            stamps: Cell::new(ANY_STAMP),
        };
        Self { room: Rc::new(room) }
    }

    /// Whose inbox it is.
    #[must_use]
    pub fn id(&self) -> EndpointId {
        self.room.id
    }

    /// Takes a seat to wait for the lock at `entry`.
    ///
    /// # Errors
    /// [`LockError::NoSeat`].
    pub(crate) fn take_seat(&self, entry: RemoteAddr) -> Result<Seat, LockError> {
        self.take_seat_for(entry, LETTERS_MAX)
    }

    /// Takes a seat to which everybody may write at the same time.
    ///
    /// # Errors
    /// [`LockError::NoSeat`].
    pub(crate) fn take_busy_seat(&self, entry: RemoteAddr) -> Result<Seat, LockError> {
        self.take_seat_for(entry, BUSY_LETTERS_MAX)
    }

    fn take_seat_for(&self, entry: RemoteAddr, letters_max: usize) -> Result<Seat, LockError> {
        let mut chairs = self.room.chairs.borrow_mut();
        let number = match self.room.free.borrow_mut().pop() {
            Some(number) => number,
            None if chairs.len() < SEAT_COUNT_MAX => {
                chairs.push(Chair::empty());
                (chairs.len() - 1) as SeatNumber
            }
            None => return Err(LockError::NoSeat { entry }),
        };
        // After 2^32 acquires a stamp comes again; a letter is not that late.
        let stamp = self.room.stamps.get().checked_add(1).unwrap_or(ANY_STAMP + 1);
        self.room.stamps.set(stamp);
        let chair = &mut chairs[usize::from(number)];
        (chair.guest, chair.letters_max) = (Guest::Client { entry, stamp }, letters_max);
        Ok(self.seat(number, stamp))
    }

    /// Takes the agent's seat.
    ///
    /// # Panics
    /// If an agent sits there.
    #[must_use]
    pub fn take_agent_seat(&self) -> Seat {
        let chair = &mut self.room.chairs.borrow_mut()[usize::from(AGENT_SEAT)];
        assert_eq!(chair.guest, Guest::Nobody, "an endpoint has one agent at most");
        (chair.guest, chair.letters_max) = (Guest::Agent, BUSY_LETTERS_MAX);
        self.seat(AGENT_SEAT, ANY_STAMP)
    }

    fn seat(&self, number: SeatNumber, stamp: u32) -> Seat {
        Seat {
            inbox: self.clone(),
            number,
            stamp,
            is_burnt: Cell::new(false),
        }
    }

    /// Puts a message where it belongs, or drops it.
    fn sort(&self, received: &Received) {
        if let Some(letter) = Letter::decode(&received.message) {
            self.put(Arrived {
                from: received.from,
                letter,
            });
        }
    }

    fn put(&self, arrived: Arrived) {
        let waker = {
            let mut chairs = self.room.chairs.borrow_mut();
            let Some(chair) = chairs.get_mut(usize::from(arrived.letter.seat)) else {
                return;
            };
            if !chair.expects(&arrived.letter) {
                return;
            }
            if chair.letters.len() >= chair.letters_max {
                chair.letters.pop_front();
            }
            chair.letters.push_back(arrived);
            chair.waker.take()
        };
        waker.inspect(Waker::wake_by_ref);
    }

    /// Leaves a letter at a seat of this inbox, without a message.
    pub(crate) fn leave(&self, letter: Letter) {
        self.put(Arrived {
            from: self.room.id,
            letter,
        });
    }

    /// Takes out whatever has arrived.
    fn collect(&self, endpoint: &Endpoint) -> Result<(), FabricError> {
        while let Some(received) = endpoint.try_receive()? {
            self.sort(&received);
        }
        Ok(())
    }

    /// Sends a letter; waits while the receiver's mailbox is full. To a seat at the same endpoint it takes
    /// no message.
    ///
    /// # Errors
    /// [`FabricError::PeerUnknown`] if the receiver is gone, or the fabric's own.
    pub(crate) async fn send(&self, endpoint: &Endpoint, to: EndpointId, letter: Letter) -> Result<(), FabricError> {
        debug_assert_eq!(endpoint.id(), self.room.id);
        if to == self.room.id {
            self.put(Arrived { from: to, letter });
            return Ok(());
        }
        let message = letter.encode();
        // Ends when the receiver takes its mail out, or is gone.
        loop {
            match endpoint.send(to, &message, Deadline::NEVER).await {
                Err(FabricError::MailboxFull { .. }) => {
                    // It may itself wait for one of ours to make room.
                    self.collect(endpoint)?;
                    endpoint.sleep(FULL_PAUSE_NS).await;
                }
                result => return result,
            }
        }
    }
}

/// A place at which letters are received. Whoever gets up leaves the letters behind.
#[derive(Debug)]
pub struct Seat {
    inbox: Inbox,
    number: SeatNumber,
    stamp: u32,
    is_burnt: Cell<bool>,
}

impl PartialEq for Seat {
    fn eq(&self, other: &Self) -> bool {
        (self.place(), self.stamp) == (other.place(), other.stamp)
    }
}

impl Eq for Seat {}

impl Seat {
    /// Its number.
    #[must_use]
    pub fn number(&self) -> SeatNumber {
        self.number
    }

    /// Its stamp; not [`ANY_STAMP`] but for the agent.
    #[must_use]
    pub fn stamp(&self) -> u32 {
        self.stamp
    }

    /// The inbox that it belongs to.
    #[must_use]
    pub fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// Where letters for it go to.
    #[must_use]
    pub fn place(&self) -> Place {
        Place {
            endpoint: self.inbox.id(),
            seat: self.number,
        }
    }

    /// Its number is not dealt again: a verb may still bring it into a lock word.
    pub fn burn(&self) {
        self.is_burnt.set(true);
    }

    fn pop(&self) -> Option<Arrived> {
        self.inbox.room.chairs.borrow_mut()[usize::from(self.number)]
            .letters
            .pop_front()
    }

    /// The oldest letter that has arrived, without waiting.
    ///
    /// # Errors
    /// What the fabric reports.
    pub fn take(&self, endpoint: &Endpoint) -> Result<Option<Arrived>, FabricError> {
        self.inbox.collect(endpoint)?;
        Ok(self.pop())
    }

    /// The oldest letter, or `None` if none has come when the deadline passes.
    ///
    /// # Errors
    /// What the fabric reports.
    pub fn receive<'f>(
        &'f self,
        endpoint: &'f Endpoint,
        deadline: Deadline,
    ) -> LocalFuture<'f, Result<Option<Arrived>, FabricError>> {
        Box::pin(async move {
            let mut next = pin!(endpoint.receive(deadline));
            poll_fn(|context| {
                // First whatever has arrived: a letter for somebody else must not stay in the endpoint when we leave, and
                // ours shall not wait while the endpoint is looked at for another. Ends, since its mailbox is finite.
                loop {
                    self.inbox.collect(endpoint)?;
                    if let Some(arrived) = self.pop() {
                        return Poll::Ready(Ok(Some(arrived)));
                    }
                    match next.as_mut().poll(context) {
                        Poll::Ready(Ok(received)) => {
                            self.inbox.sort(&received);
                            next.set(endpoint.receive(deadline));
                        }
                        Poll::Ready(Err(FabricError::NoMessage)) => return Poll::Ready(Ok(None)),
                        Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                        Poll::Pending => break,
                    }
                }
                let chairs = &mut self.inbox.room.chairs.borrow_mut();
                chairs[usize::from(self.number)].waker = Some(context.waker().clone());
                Poll::Pending
            })
            .await
        })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let chair = &mut self.inbox.room.chairs.borrow_mut()[usize::from(self.number)];
        chair.guest = Guest::Nobody;
        chair.letters.clear();
        chair.waker = None;
        if self.number != AGENT_SEAT && !self.is_burnt.get() {
            self.inbox.room.free.borrow_mut().push(self.number);
        }
    }
}

#[cfg(test)]
mod tests;
