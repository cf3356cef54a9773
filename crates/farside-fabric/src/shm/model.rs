//! What the loom tests (`tests/loom.rs`) see of a segment: its endpoint table on modelled memory.
//!
//! On the path: nowhere. It is compiled only with `--cfg loom`, and has no logic of its own: every
//! method is one of the table's, the mailbox's or the waiter's.

use core::sync::atomic::Ordering;
use core::task::Waker;

use super::header::HEADER_BYTES;
use super::mailbox::{self, Taken, tag};
use super::process::ProcessIdentity;
use super::table::{Claim, ENTRY_BYTES, Kind, Table};
use super::waiter;
use crate::message::{EndpointId, Message};
use crate::region::Region;

/// Header and endpoint table of a segment without memory. Clones are the same.
#[derive(Clone, Debug)]
pub struct ModelSegment {
    table: Table,
}

/// What a receiver finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mail {
    /// A message with a number in it, and who sent it.
    Number(u64, EndpointId),
    /// Nothing.
    Empty,
    /// A message that is being written.
    Unfinished,
}

/// An endpoint's place in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seat(Claim);

impl Seat {
    /// Which entry it is.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.0.index
    }

    /// Who has it.
    #[must_use]
    pub fn id(&self) -> EndpointId {
        self.0.id
    }
}

/// This process, or one like it that ran before the machine was started anew.
fn process(is_gone: bool) -> ProcessIdentity {
    let own = ProcessIdentity::own().expect("/proc is mounted");
    ProcessIdentity {
        boot: if is_gone { !own.boot } else { own.boot },
        ..own
    }
}

impl ModelSegment {
    /// A table of so many entries.
    #[must_use]
    pub fn new(endpoints_max: u64) -> Self {
        let control = Region::anonymous(HEADER_BYTES + endpoints_max * ENTRY_BYTES).expect("modelled memory");
        Self {
            table: Table::new(control, endpoints_max),
        }
    }

    /// An entry for an endpoint whose verbs a node executes.
    #[must_use]
    pub fn claim(&self) -> Option<Seat> {
        self.table.claim(&process(false), Kind::Connected, None).map(Seat)
    }

    /// An entry whose owner's process is gone.
    #[must_use]
    pub fn claim_and_die(&self) -> Option<Seat> {
        self.table.claim(&process(true), Kind::Connected, None).map(Seat)
    }

    /// Gives an entry back.
    pub fn release(&self, seat: Seat) {
        self.table.release(seat.0);
    }

    /// Whether somebody of this name is there to receive.
    #[must_use]
    pub fn is_at_home(&self, id: EndpointId) -> bool {
        self.table.at_home(id).is_some()
    }

    /// Cuts an endpoint off; returns whether none of its verbs is being executed.
    #[must_use]
    pub fn fence(&self, peer: EndpointId) -> bool {
        let Some(entry) = self.table.find(peer) else {
            return true;
        };
        entry.fence(peer);
        entry.busy().load(Ordering::SeqCst) == 0 || entry.id() != Some(peer)
    }

    /// Executes `verb` in the name of an endpoint, unless it was cut off.
    pub fn execute(&self, seat: Seat, verb: impl FnOnce()) {
        let entry = self.table.entry(seat.index());
        assert_eq!(entry.busy().swap(1, Ordering::SeqCst), 0, "one execution at a time");
        if !entry.is_fenced(seat.id()) {
            verb();
        }
        entry.busy().store(0, Ordering::SeqCst);
    }

    /// Sends a number, and rings; returns whether there was room.
    #[must_use]
    pub fn send(&self, from: EndpointId, to: Seat, number: u64) -> bool {
        let entry = self.table.entry(to.index());
        let message = Message::try_from(&number.to_le_bytes()[..]).expect("short enough");
        let is_sent = entry.mailbox().send(from, to.id(), &message).is_ok();
        if is_sent {
            waiter::ring(&self.table, entry);
        }
        is_sent
    }

    /// Takes a slot of a mailbox and never fills it, as a sender that is killed.
    pub fn send_half(&self, from: EndpointId, to: Seat) {
        let _ = self.table.entry(to.index()).mailbox().claim(from);
    }

    /// The oldest message for `to`. Of senders, `gone` will never finish.
    #[must_use]
    pub fn take(&self, to: Seat, gone: Option<EndpointId>) -> Mail {
        let is_gone = |sender| gone.is_some_and(|gone| tag(gone) == sender);
        match self.table.entry(to.index()).mailbox().take(to.id(), is_gone) {
            Taken::Message(received) => {
                let bytes = received.message[..].try_into().expect("as it was sent");
                Mail::Number(u64::from_le_bytes(bytes), received.from)
            }
            Taken::Empty => Mail::Empty,
            Taken::Unfinished => Mail::Unfinished,
        }
    }

    /// How many messages a mailbox holds at most.
    #[must_use]
    pub fn mailbox_room() -> u64 {
        mailbox::SLOT_COUNT
    }

    /// The waiter of this process, with its thread.
    #[must_use]
    pub fn waiter(&self) -> ModelWaiter {
        ModelWaiter {
            table: self.table.clone(),
            waiter: waiter::Waiter::start(&self.table).expect("there is an entry and a thread"),
        }
    }
}

/// What wakes a receiver.
#[derive(Debug)]
pub struct ModelWaiter {
    table: Table,
    waiter: waiter::Waiter,
}

impl ModelWaiter {
    /// Goes to sleep under `ticket`; returns whether there is mail, so that it need not.
    #[must_use]
    pub fn lie_down(&self, ticket: u64, seat: Seat, waker: &Waker) -> bool {
        self.waiter.lie_down(ticket, seat.index(), waker);
        self.table.entry(seat.index()).mailbox().has_mail()
    }

    /// Waits no longer.
    pub fn get_up(&self, ticket: u64) {
        self.waiter.get_up(ticket);
    }
}
