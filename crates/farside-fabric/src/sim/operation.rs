//! An operation in flight, and the table that holds all of them.
//!
//! On the path: posting fills a slot here, events carry its index, completion empties it. Nothing is
//! allocated per verb.
//!
//! A batch is a chain of slots. Its first operation, the *lead*, also holds what belongs to the
//! whole batch: the buffer's memory, the waiter, the deadline. A single verb is a batch of one.
//!
//! Life of a slot: posted, executed by a NIC (or not, if it was dropped on the way), completed when
//! the reply arrives. The lead's slots are freed when all operations of the batch have completed
//! *and* the waiting future has taken the results or is gone, whichever comes last.

use core::task::Waker;

use crate::buffer::Memory;
use crate::clock::Deadline;
use crate::error::FabricError;
use crate::message::Message;
use crate::verb::{Verb, VerbKind};

/// "No slot", at the end of a chain.
pub(super) const NONE: u32 = u32::MAX;

/// What an operation does.
#[derive(Clone, Debug)]
pub(super) enum Work {
    /// A one-sided verb.
    Verb(Verb),
    /// A message to another endpoint.
    Send { peer: u32, message: Message },
    /// Cutting a peer off from one node.
    Fence { peer: u32 },
    /// Connecting to a memory node anew.
    Connect,
    /// Waiting for a message; no network.
    Receive,
    /// Waiting for time to pass; no network.
    Sleep,
}

impl Work {
    /// The kind as a number, for the trace: verbs first.
    #[inline]
    fn code(&self) -> u8 {
        match self {
            Self::Verb(verb) => verb.kind() as u8,
            Self::Send { .. } => VerbKind::Send as u8,
            Self::Fence { .. } => 7,
            Self::Receive => 8,
            Self::Sleep => 9,
            Self::Connect => 10,
        }
    }

    /// Whether it goes to another node; otherwise it only waits.
    #[inline]
    pub(super) fn travels(&self) -> bool {
        !matches!(self, Self::Receive | Self::Sleep)
    }

    /// Node and offset of a verb, or the peer of a message; for the trace.
    #[inline]
    fn target(&self) -> u64 {
        match self {
            Self::Verb(verb) => verb.target().0.to_bits(),
            Self::Send { peer, .. } | Self::Fence { peer } => u64::from(*peer),
            Self::Receive | Self::Sleep | Self::Connect => 0,
        }
    }
}

/// Where a batch stands, seen by its future.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Something of it is still on the way.
    InFlight,
    /// Every operation of it has completed.
    Done,
    /// Its deadline has passed, or its queue pair has broken; operations of it may still be on the way.
    Failed,
    /// Its client has crashed: nobody will ever see a result.
    Lost,
}

/// Who is told when a batch is done.
#[derive(Clone, Debug)]
pub(super) enum Waiter {
    /// Nobody has polled yet.
    Nobody,
    /// A task of the simulator's own executor, by its index: no reference count is touched.
    Task(u32),
    /// A waker that somebody put in between.
    Other(Waker),
}

/// How a long READ or WRITE touches its lines, one after the other.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Transfer {
    /// When the NIC took the operation up.
    pub(super) start: u64,
    /// Nanoseconds over which the lines are touched.
    pub(super) span: u64,
    /// How many pieces there are; 0 if the operation is not being executed.
    pub(super) pieces: u32,
    /// How many have been touched.
    pub(super) touched: u32,
    /// How many will take effect: all, unless a crash cut the operation short.
    pub(super) limit: u32,
    /// The piece touched first.
    pub(super) first: u32,
    /// Distance from a piece to the next, coprime to their number.
    pub(super) stride: u32,
    /// How early all instants but the last are, in fractions `1 / pieces` of a nanosecond; below
    /// `span`.
    pub(super) phase: u64,
    /// Whether each piece has its event. Otherwise nobody else is near the bytes, and all pieces may
    /// be touched by the last event without any difference.
    pub(super) is_contended: bool,
}

impl Transfer {
    /// When the piece with this number (in the order of touching) is touched: after the start, and
    /// the last at the end.
    #[inline]
    pub(super) fn instant(&self, number: u32) -> u64 {
        let shift = if number + 1 == self.pieces { 0 } else { self.phase };
        self.start + (u64::from(number + 1) * self.span - shift).div_ceil(u64::from(self.pieces))
    }

    /// Which piece is touched as the `number`-th.
    #[inline]
    pub(super) fn piece(&self, number: u32) -> u64 {
        (u64::from(self.first) + u64::from(number) * u64::from(self.stride)) % u64::from(self.pieces)
    }
}

/// A slot of the table. What every step of every verb needs comes first, in the first two cache
/// lines; the rest is for the post, the effect and the end. (A slot is used again microseconds after
/// its last step, when other slots have displaced it from the first-level cache.)
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Operation {
    /// The endpoint that posted it.
    pub(super) client: u32,
    /// Its queue pair, and what belongs to that: the NIC that executes it, and the unit there,
    /// counted over all NICs.
    pub(super) pair: u32,
    pub(super) unit: u32,
    pub(super) nic: u16,
    /// Kind and (below) target, for the trace: node and offset of a verb, or the peer of a message.
    pub(super) code: u8,
    /// Whether it locks its address.
    pub(super) is_atomic: bool,
    /// Whether it may READ what was reclaimed.
    pub(super) is_speculative: bool,
    pub(super) target: u64,
    /// When it was queued at its unit, and since when its unit is blocked by its address.
    pub(super) queued_at: u64,
    /// The next in the queue of a unit or of an address.
    pub(super) next: u32,
    /// Which run of the node its queue pair was connected to: the node refuses what is meant for another.
    pub(super) incarnation: u32,
    /// Payload on the wire, headers of packets included.
    pub(super) request_bytes: u32,
    pub(super) reply_bytes: u32,
    /// How many lines of it take effect at most.
    pub(super) line_limit: u32,
    /// Whether the receiving port of the current direction has taken it.
    pub(super) is_received: bool,
    /// Whether it takes no effect because its client crashed before it was sent.
    pub(super) is_dropped: bool,
    /// Whether its client crashes as soon as it has taken effect.
    pub(super) is_fatal: bool,
    /// Whether the NIC has executed or refused it.
    pub(super) is_executed: bool,
    /// Whether it waits for its address, and whether it has it.
    pub(super) is_waiting: bool,
    pub(super) has_address: bool,
    /// Whether its client's core has begun to take its result.
    pub(super) is_taken: bool,
    /// The lead of its batch, and the next operation of the batch.
    pub(super) lead: u32,
    pub(super) batch_next: u32,
    /// How many operations of the batch have not completed. Lead only, like all that says so.
    pub(super) remaining: u32,
    /// Lead only.
    pub(super) state: State,
    /// Whether the future is gone. Lead only.
    pub(super) is_abandoned: bool,
    /// Whether its node lists it as a long WRITE that is being executed.
    pub(super) is_listed: bool,
    pub(super) error: Option<FabricError>,
    pub(super) result: u128,
    /// Lead only.
    pub(super) waiter: Waiter,
    /// On the client's clock. Lead only.
    pub(super) deadline: Deadline,
    pub(super) work: Work,
    /// Lead only.
    pub(super) memory: Memory,
    /// Number among the client's verbs, counted from 1.
    pub(super) number: u64,
    /// When it leaves its client's core. Lead only.
    pub(super) core_start: u64,
    pub(super) transfer: Transfer,
}

impl Operation {
    fn vacant() -> Self {
        Self {
            work: Work::Sleep,
            client: 0,
            pair: 0,
            nic: 0,
            unit: 0,
            code: 0,
            target: 0,
            incarnation: 0,
            number: 0,
            request_bytes: 0,
            reply_bytes: 0,
            is_received: false,
            is_atomic: false,
            is_speculative: false,
            is_dropped: false,
            is_fatal: false,
            is_executed: false,
            is_waiting: false,
            has_address: false,
            is_taken: false,
            line_limit: u32::MAX,
            queued_at: 0,
            next: NONE,
            transfer: Transfer::default(),
            result: 0,
            error: None,
            lead: NONE,
            batch_next: NONE,
            remaining: 0,
            state: State::Done,
            waiter: Waiter::Nobody,
            memory: Memory::default(),
            is_abandoned: false,
            is_listed: false,
            deadline: Deadline::NEVER,
            core_start: 0,
        }
    }
}

/// All slots. A vacant one has `lead == NONE`.
#[derive(Default, Debug)]
pub(super) struct Operations {
    slots: Vec<Operation>,
    free: Vec<u32>,
}

impl Operations {
    /// Takes a slot for an operation of `client`; it is its own lead until it joins a batch.
    #[inline]
    pub(super) fn insert(&mut self, work: Work, client: u32) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Operation::vacant());
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.code = work.code();
        slot.target = work.target();
        slot.is_atomic = matches!(&work, Work::Verb(verb) if verb.kind().is_atomic());
        slot.is_speculative = false;
        slot.work = work;
        slot.client = client;
        slot.is_received = false;
        slot.is_dropped = false;
        slot.is_fatal = false;
        slot.is_executed = false;
        slot.is_waiting = false;
        slot.has_address = false;
        slot.is_taken = false;
        slot.line_limit = u32::MAX;
        slot.next = NONE;
        slot.transfer.pieces = 0;
        slot.result = 0;
        slot.error = None;
        slot.lead = index;
        slot.batch_next = NONE;
        slot.remaining = 1;
        slot.state = State::InFlight;
        slot.waiter = Waiter::Nobody;
        slot.is_abandoned = false;
        slot.is_listed = false;
        slot.deadline = Deadline::NEVER;
        index
    }

    /// Empties every slot of a batch.
    #[inline]
    pub(super) fn remove_batch(&mut self, lead: u32) {
        let mut index = lead;
        while index != NONE {
            let slot = &mut self.slots[index as usize];
            debug_assert!(slot.lead == lead, "a slot is freed once");
            slot.lead = NONE;
            let next = slot.batch_next;
            self.free.push(index);
            index = next;
        }
        let slot = &mut self.slots[lead as usize];
        slot.waiter = Waiter::Nobody;
        if !slot.memory.bytes().is_empty() {
            slot.memory = Memory::default();
        }
    }

    /// Indices of all operations in flight of a client.
    pub(super) fn of_client(&self, client: u32) -> Vec<u32> {
        (0..self.slots.len() as u32)
            .filter(|&index| {
                let slot = &self[index];
                slot.lead != NONE && slot.client == client
            })
            .collect()
    }

    /// How many slots are in use.
    pub(super) fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl core::ops::Index<u32> for Operations {
    type Output = Operation;
    #[inline]
    fn index(&self, index: u32) -> &Operation {
        &self.slots[index as usize]
    }
}

impl core::ops::IndexMut<u32> for Operations {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Operation {
        &mut self.slots[index as usize]
    }
}
