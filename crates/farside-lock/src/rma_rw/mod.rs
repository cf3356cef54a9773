//! RMA-RW: a queue of writers, a counter of readers, and thresholds between them (Schmid, Besta and Hoefler,
//! HPDC 2016, as ShiftLock, sections 4.1, 4.2 and 4.5, describes it).
//!
//! ```text
//! | tail of the writers' queue | readers |
//! 0                            8         16
//! ```
//!
//! Acquire, shared: fetch-and-add counts us in. If the lock is the writers', or so many readers have come that
//! a writer is due, count us out again, wait, and come back.
//! Acquire, exclusive: queue up like in [`mcs`]. The first in the queue takes the lock from the
//! readers, when none is inside, with a compare-and-swap; it may have to try for long, since new readers do
//! not wait for it before [`READERS_MAX`] have come. Whoever is handed the lock by a writer has it at once.
//!
//! Release, shared: fetch-and-add. Release, exclusive: hand over to the next writer, up to [`WRITERS_MAX`]
//! times in a row; after that, or without a next writer, a fetch-and-add gives the lock to the readers. A
//! writer that is told that it is their turn lets them come first.
//!
//! `rma-rw-polling` is the lock as ShiftLock measured it (its section 4.3: 1.61 READs a cycle): the first in the queue looks
//! until no reader is inside, marks the lock by a fetch-and-add, and looks until nobody is inside who came in between; before it gives
//! the lock to the readers it looks how many have come. Nobody pauses between two looks.
//!
//! # What it does not have
//! Anything against a client that dies.
//!
//! # Where it differs from its paper
//! - One counter for all readers, since counters that are spread over an entry would all be behind the same
//!   NIC. ShiftLock counts 2.95 atomics for a cycle with half readers (section 4.3): 2 for a reader and 4 for
//!   a writer are what one counter takes.
//! - One queue, not a tree of queues by machine, rack and so on: neither paper that measures it here has
//!   more than one level.
//! - Who is next is told by a message instead of a word that it polls (ShiftLock, section 4.1).
//!
//! Cost without contention: one atomic each for a reader; two each for a writer, and three looks in `rma-rw-polling`.

pub mod word;

use core::cell::Cell;
use std::rc::Rc;

use farside_fabric::{Endpoint, FabricError, OpContext, RemoteAddr, Verb};

use crate::atomics::{compare_swap, execute};
use crate::backoff::give_way;
use crate::grant::Held;
use crate::inbox::{Inbox, Seat};
use crate::mcs::{self, Head};
use crate::patience::{self, until};
use crate::{Grant, Lock, LockError, LockOptions, Mode};

use word::{READERS_MAX, Readers};

/// How many writers hand the lock over in a row before the readers get it (`T_W`).
pub const WRITERS_MAX: u64 = 16;

/// How long to wait between two looks at the readers' word: as ShiftLock's artifact does.
pub const POLL_NS: u64 = 1_860;
/// How long a writer lets readers go first when it is their turn and none has come: a few looks.
const READERS_TURN_NS: u64 = 6 * POLL_NS;
/// What is handed over with the lock instead of a run of writers when it is the readers' turn.
const READERS_TURN: u64 = u64::MAX;

/// How a writer takes the lock from the readers, and how all wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Marks {
    /// `rma-rw`: by a compare-and-swap when nobody is inside, with pauses between two looks.
    Compared,
    /// `rma-rw-polling`: by a fetch-and-add between two looks, without pauses.
    Added,
}

/// A client's side of RMA-RW.
#[derive(Debug)]
pub struct RmaRw {
    inbox: Inbox,
    marks: Marks,
}

/// A writer at the head of the queue.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Writer {
    head: Head,
    /// How many writers had the lock before, in a row.
    run: u64,
}

impl RmaRw {
    /// A client at this inbox.
    #[must_use]
    pub fn new(inbox: Inbox, marks: Marks) -> Self {
        Self { inbox, marks }
    }

    fn client(&self, cx: &OpContext, entry: RemoteAddr) -> Client {
        Client {
            endpoint: cx.endpoint().clone(),
            entry,
            marks: self.marks,
            retries: cx.retry_meter(),
        }
    }
}

impl Lock for RmaRw {
    fn entry_bytes(_: &LockOptions) -> u64 {
        16
    }

    async fn acquire(&self, cx: &mut OpContext, entry: RemoteAddr, mode: Mode) -> Result<Grant, LockError> {
        let seat = match mode {
            Mode::Exclusive => Some(self.inbox.take_seat(entry)?),
            Mode::Shared => None,
        };
        let client = self.client(cx, entry);
        // Who gave up gives back what comes. If that fails the connection is gone, or the node.
        let later = {
            let client = client.clone();
            async move |entered: Result<Option<Writer>, LockError>| {
                if let Ok(held) = entered {
                    let _ = client.leave(held).await;
                }
            }
        };
        match until(cx.endpoint(), cx.deadline(), client.enter(seat), later).await {
            Some(Ok(None)) => Ok(Grant::new(entry, mode, Held::Plain)),
            Some(Ok(Some(writer))) => Ok(Grant::new(entry, mode, Held::RmaWriter(writer))),
            Some(Err(error)) => Err(error),
            None => Err(LockError::Timeout { entry }),
        }
    }

    async fn release(&self, cx: &mut OpContext, grant: Grant) -> Result<(), LockError> {
        let entry = grant.entry();
        let held = match grant.into_held() {
            Held::RmaWriter(writer) => Some(writer),
            _ => None,
        };
        let work = self.client(cx, entry).leave(held);
        patience::release(cx, entry, work).await
    }
}

/// A client with one lock, as its tasks carry it around.
#[derive(Clone, Debug)]
struct Client {
    endpoint: Endpoint,
    entry: RemoteAddr,
    marks: Marks,
    retries: Rc<Cell<u64>>,
}

impl Client {
    fn readers(&self) -> RemoteAddr {
        self.entry.plus(8)
    }

    async fn read(&self, source: RemoteAddr) -> Result<u64, FabricError> {
        Ok(execute(&self.endpoint, Verb::ReadWord { source }).await? as u64)
    }

    async fn add(&self, add: u64) -> Result<Readers, FabricError> {
        let target = self.readers();
        Ok(Readers(
            execute(&self.endpoint, Verb::FetchAdd { target, add }).await? as u64,
        ))
    }

    async fn pause(&self) {
        self.retries.set(self.retries.get() + 1);
        match self.marks {
            Marks::Compared => self.endpoint.sleep(POLL_NS).await,
            // Over mapped memory a look does not wait, and whoever is inside may be another task of this thread.
            Marks::Added => give_way().await,
        }
    }

    /// Looks until no reader is inside, marks the lock, and looks until those are out that came in between.
    async fn mark(&self) -> Result<(), FabricError> {
        let mut is_marked = false;
        // The writer before us may have left the queue, and not yet have given the lock to the readers. Ends at the latest after
        // `READERS_MAX` have come, and then when those are out that came before the mark.
        loop {
            let word = Readers(self.read(self.readers()).await?);
            if is_marked && word.inside() == 0 {
                return Ok(());
            }
            if !is_marked && word.begin_writing().is_some() {
                self.add(Readers::BEGINNING_WRITING).await?;
                is_marked = true;
            } else {
                self.pause().await;
            }
        }
    }

    /// A writer has a seat to wait at.
    async fn enter(self, seat: Option<Seat>) -> Result<Option<Writer>, LockError> {
        match seat {
            None => self.enter_to_read().await.map(|()| None),
            Some(seat) => self.enter_to_write(seat).await.map(Some),
        }
    }

    async fn leave(self, held: Option<Writer>) -> Result<(), LockError> {
        match held {
            None => Ok(self.add(Readers::LEAVING).await.map(drop)?),
            Some(writer) => self.leave_writing(writer).await,
        }
    }

    async fn enter_to_read(&self) -> Result<(), LockError> {
        // Ends when writers let readers in, which they do after `WRITERS_MAX` hand-overs.
        while !self.add(Readers::COMING).await?.admits() {
            self.add(Readers::TURNING_BACK).await?;
            loop {
                self.pause().await;
                let word = Readers(self.read(self.readers()).await?);
                if word.admits() {
                    break;
                }
                if word.writing() == 0 && self.read(self.entry).await? == 0 {
                    // So many have come, and nobody wants to write. If it fails, somebody was quicker.
                    compare_swap(&self.endpoint, self.readers(), word.0, word.counted_anew().0).await?;
                }
            }
        }
        Ok(())
    }

    async fn enter_to_write(&self, seat: Seat) -> Result<Writer, LockError> {
        let head = mcs::reach_head(self.endpoint.clone(), self.entry, seat, Rc::clone(&self.retries)).await?;
        match head.handed() {
            0 | READERS_TURN => {}
            run => return Ok(Writer { head, run }),
        }
        if self.marks == Marks::Added {
            self.mark().await?;
            return Ok(Writer { head, run: 0 });
        }
        let readers_first = head.handed() == READERS_TURN;
        let patience = self.endpoint.deadline_in(READERS_TURN_NS);
        let mut word = Readers::NOBODY;
        if readers_first {
            word = Readers(self.read(self.readers()).await?);
        }
        // Ends when no reader is inside at our turn; at the latest after `READERS_MAX` have come.
        loop {
            let is_our_turn = !readers_first || word.arrived() > 0 || self.endpoint.now_ns() >= patience.0;
            if let Some(writing) = word.begin_writing().filter(|_| is_our_turn) {
                let found = compare_swap(&self.endpoint, self.readers(), word.0, writing.0).await?;
                if found == word.0 {
                    return Ok(Writer { head, run: 0 });
                }
                word = Readers(found);
            } else {
                self.pause().await;
                word = Readers(self.read(self.readers()).await?);
            }
        }
    }

    async fn leave_writing(&self, writer: Writer) -> Result<(), LockError> {
        let Writer { head, run } = writer;
        let run = run + 1;
        let next = mcs::next(&self.endpoint, self.entry, head).await?;
        match next {
            Some(next) if run < WRITERS_MAX => Ok(next.hand_over(&self.endpoint, self.entry, run).await?),
            next => {
                // Before the next writer is told: it takes the lock from the readers.
                let ending = match self.marks {
                    Marks::Compared => Readers::ENDING_WRITING,
                    Marks::Added => Readers(self.read(self.readers()).await?).ending_writing(),
                };
                self.add(ending).await?;
                match next {
                    Some(next) => Ok(next.hand_over(&self.endpoint, self.entry, READERS_TURN).await?),
                    None => Ok(()),
                }
            }
        }
    }
}

const _: () = assert!(
    READERS_MAX < 1 << 24,
    "clients that come too late do not overflow the count"
);

#[cfg(test)]
mod tests;
