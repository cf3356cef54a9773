//! A client's way to the memory of one node: verbs become work requests of a queue pair.
//!
//! On the path: a post appends its verbs to `waiting`; `pump` turns as many as there is room for into work requests, and
//! posts them with one doorbell. What the device says of them comes back through [`Link::completed`]:
//!  1. only the last work request of a post is announced, and one in every half queue. The device works in order, so an
//!     announcement says that all before it are done too;
//!  2. the words that verbs return have come to `results`, each in the place of its work request; they are handed to the
//!     operation, and who waits for it is woken;
//!  3. whatever waited for room is posted.
//!
//! Order: the device executes in posting order, but a WRITE or an atomic may overtake the answer of a READ or atomic
//! before it; within a post it carries the fence that forbids it. A verb that the device does not have
//! ([`Emulation`]) is posted step by step, and nothing behind it until it is done.
//!
//! An error ends the queue pair; it is destroyed at once, so that all memory is free again, and all operations fail. The
//! connection to the node is given up with it: to connect anew is to make a new pair.
//!
//! Invariants:
//! - `in_flight` has an entry for each work request from `next - in_flight.len()` up to `next`, and at most `depth`;
//! - work request n puts its word at `results[n % depth]`;
//! - each post has exactly one work with `is_last` in `waiting`, `in_flight` or `stepping` until it is over;
//! - the memory of an operation stays in its slot, which is *pinned*, until its last post is over.

use core::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use tokio::sync::Notify;

use super::emulation::{Emulation, Step};
use super::error::RdmaError;
use super::exchange::Address;
use super::ffi::{self, ScatterGather, SendRequest, WorkCompletion};
use super::poller::{DEPTH, Poller};
use super::queue_pair::QueuePair;
use crate::addr::NodeId;
use crate::buffer::Buffer;
use crate::error::FabricError;
use crate::tcp::{Connection, Operations, SlotIndex};
use crate::verb::{Slice, Verb};

/// How many verbs may wait for the queue before posts wait.
const WAITING_MAX: usize = 1024;
/// Bytes that one work request carries at most: long ones keep the words of others waiting.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// After how long without an answer a node is given up, whatever the deadlines of the operations: twice what the device
/// needs to find out by itself.
const SILENCE_NS_MAX: u64 = 15_000_000_000;
/// Bytes of a place for a word.
const RESULT_BYTES: u64 = 16;

/// A verb, or a piece of one, that is to become a work request.
#[derive(Clone, Copy)]
struct Work {
    slot: SlotIndex,
    /// Which verb of the operation it is.
    part: u8,
    verb: Verb,
    /// Whether the device must have answered all READs and atomics before.
    is_fenced: bool,
    /// Whether it ends its post.
    is_last: bool,
}

/// A work request under way.
#[derive(Clone, Copy)]
struct InFlight {
    slot: SlotIndex,
    part: u8,
    returns_word: bool,
    is_step: bool,
    is_last: bool,
}

/// A verb that the device does not have, between its first step and its last.
struct Stepping {
    work: Work,
    /// What the next step is, or the one that is under way.
    step: Emulation,
    is_posted: bool,
}

/// A queue pair that is connected.
struct Pair {
    pair: QueuePair,
    results: Buffer,
    results_key: u32,
    base: u64,
    key: u32,
}

#[derive(Default)]
struct State {
    pair: Option<Pair>,
    waiting: VecDeque<Work>,
    in_flight: VecDeque<InFlight>,
    /// The number of the next work request.
    next: u64,
    /// The verb that is being executed step by step.
    stepping: Option<Stepping>,
    /// Scratch: the chain that is being posted.
    requests: Vec<SendRequest>,
    entries: Vec<ScatterGather>,
}

/// The way to one node. It is open between [`Link::open`] and [`Link::close`].
pub(crate) struct Link {
    node: NodeId,
    poller: Rc<Poller>,
    operations: Rc<RefCell<Operations>>,
    /// Given up when the queue pair breaks.
    connection: Weak<Connection>,
    state: RefCell<State>,
    room: Notify,
    has_waiters: Cell<bool>,
    /// The oldest work request when somebody last looked, and since when it has been the oldest.
    oldest: Cell<(u64, u64)>,
}

impl Link {
    pub(crate) fn new(
        node: NodeId,
        poller: &Rc<Poller>,
        operations: &Rc<RefCell<Operations>>,
        connection: &Rc<Connection>,
    ) -> Self {
        Self {
            node,
            poller: poller.clone(),
            operations: operations.clone(),
            connection: Rc::downgrade(connection),
            state: RefCell::default(),
            room: Notify::new(),
            has_waiters: Cell::new(false),
            oldest: Cell::default(),
        }
    }

    /// A queue pair for this link that is to be connected.
    pub(crate) fn prepare(&self, random: u64) -> Result<HalfOpen, RdmaError> {
        let pair = QueuePair::create(self.poller.queue(), DEPTH, random)?;
        let device = self.poller.device();
        let mut results = Buffer::unregistered((u64::from(pair.depth()) * RESULT_BYTES) as usize);
        results.memory_mut().register(device)?;
        Ok(HalfOpen { pair, results })
    }

    /// Goes to work, over a pair whose other end is at `node`.
    pub(crate) fn open(self: &Rc<Self>, half: HalfOpen, node: &Address) -> Result<(), RdmaError> {
        half.pair.connect(node)?;
        let results_key = half.results.memory().local_key().expect("registered when it was made");
        self.poller.add(half.pair.number(), Rc::downgrade(self));
        let state = &mut *self.state.borrow_mut();
        assert!(state.pair.is_none(), "closed before");
        state.pair = Some(Pair {
            pair: half.pair,
            results: half.results,
            results_key,
            base: node.base.get(),
            key: node.key.get(),
        });
        Ok(())
    }

    /// Whether verbs can be posted.
    pub(crate) fn is_open(&self) -> bool {
        self.state.borrow().pair.is_some()
    }

    /// Whether a post has to wait for [`Link::room`].
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.state.borrow().waiting.len() < WAITING_MAX
    }

    /// Waits until a post may go on, or the link is closed.
    pub(crate) async fn room(&self) {
        while self.is_open() && !self.has_room() {
            let notified = self.room.notified();
            self.has_waiters.set(true);
            notified.await;
        }
    }

    /// Posts the verbs of an operation that go to this node, each with its place among the operation's parts. The link
    /// must be open.
    #[inline]
    pub(crate) fn post<'v>(&self, slot: SlotIndex, verbs: impl Iterator<Item = (usize, &'v Verb)>) {
        self.operations.borrow_mut().expect_pinned_answer(slot);
        let posted = {
            let state = &mut *self.state.borrow_mut();
            assert!(state.pair.is_some(), "checked before posting");
            let piece_bytes = REQUEST_BYTES_MAX.min(self.poller.device().message_bytes_max());
            state.append(slot, verbs, piece_bytes);
            self.pump(state)
        };
        self.require_posted(posted);
    }

    /// Turns what waits into work requests, as far as there is room. Returns whether the device takes them.
    fn pump(&self, state: &mut State) -> bool {
        let Some(pair) = &state.pair else { return true };
        let depth = pair.pair.depth() as usize;
        state.requests.clear();
        state.entries.clear();
        while state.in_flight.len() < depth {
            let (work, (request, entry)) = match &mut state.stepping {
                Some(stepping) if stepping.is_posted => break,
                Some(stepping) => {
                    stepping.is_posted = true;
                    (stepping.work, pair.step(&stepping.work, &stepping.step, state.next))
                }
                None => {
                    let Some(work) = state.waiting.pop_front() else { break };
                    if let Some(step) = Emulation::of(&work.verb) {
                        let is_posted = false;
                        state.stepping = Some(Stepping { work, step, is_posted });
                        continue;
                    }
                    let memory = self.operations.borrow_mut().pinned_memory(work.slot);
                    (work, pair.request(&work, memory, state.next))
                }
            };
            state.next += 1;
            let is_step = state.stepping.is_some();
            let is_half_full = state.next.is_multiple_of(depth as u64 / 2 + 1);
            let flags = if work.is_last || is_step || is_half_full {
                ffi::SEND_SIGNALED
            } else {
                0
            };
            state.in_flight.push_back(InFlight {
                slot: work.slot,
                part: work.part,
                returns_word: returns_word(&work.verb),
                is_step,
                is_last: work.is_last,
            });
            state.requests.push(SendRequest {
                send_flags: request.send_flags | flags,
                ..request
            });
            state.entries.push(entry);
        }
        self.wake_posts(state.waiting.len());
        self.ring(state)
    }

    /// Posts the chain.
    fn ring(&self, state: &mut State) -> bool {
        let count = state.requests.len();
        let (Some(pair), 1..) = (&state.pair, count) else {
            return true;
        };
        self.poller.posted(count);
        let (requests, entries) = (state.requests.as_mut_ptr(), state.entries.as_mut_ptr());
        // SAFETY: both have `count` members, and are not touched before the post returns: so the chain is whole, and
        // entry i belongs to request i. What it names is memory of operations, which stays in their pinned slots until
        // the request is done or `close` has destroyed the pair, and places of `results`, which lives as long as the
        // pair and is read when their request is done.
        unsafe {
            for index in 0..count {
                (*requests.add(index)).sg_list = entries.add(index);
                if index + 1 < count {
                    (*requests.add(index)).next = requests.add(index + 1);
                }
            }
            pair.pair.post(requests)
        }
    }

    fn wake_posts(&self, waiting: usize) {
        if self.has_waiters.get() && waiting < WAITING_MAX {
            self.has_waiters.set(false);
            self.room.notify_waiters();
        }
    }

    /// A work request of this link is done, and all before it.
    pub(super) fn completed(&self, completion: &WorkCompletion) {
        let posted = {
            let state = &mut *self.state.borrow_mut();
            let first = state.next - state.in_flight.len() as u64;
            if !(first..state.next).contains(&completion.wr_id) {
                // Of a queue pair that had the same number.
                return;
            }
            if completion.status != ffi::STATUS_SUCCESS {
                Err(failure(self.node, completion.status))
            } else {
                for number in first..=completion.wr_id {
                    let done = state.in_flight.pop_front().expect("the invariant of `in_flight`");
                    self.poller.done(1);
                    self.collect(state, number, done);
                }
                Ok(self.pump(state))
            }
        };
        match posted {
            Ok(posted) => self.require_posted(posted),
            Err(failure) => self.give_up(failure),
        }
    }

    /// Hands on what a work request has brought.
    fn collect(&self, state: &mut State, number: u64, done: InFlight) {
        let Some(pair) = &state.pair else { return };
        let mut word = if done.returns_word { pair.result(number) } else { 0 };
        if done.is_step
            && let Some(stepping) = &mut state.stepping
        {
            match stepping.step.step(word) {
                Step::Done(returned) => word = returned,
                Step::Again(step) => {
                    // Lost to another client, or the first guess; `pump` posts the next.
                    stepping.step = step;
                    stepping.is_posted = false;
                    return;
                }
            }
            state.stepping = None;
        }
        let mut operations = self.operations.borrow_mut();
        operations.complete_part(done.slot, done.part.into(), word.into());
        if done.is_last
            && let Some(waker) = operations.complete(done.slot)
        {
            waker.wake_by_ref();
        }
    }

    /// Gives the node up if it has been silent for too long.
    pub(super) fn watch(&self, now_ns: u64) {
        let (next, count) = {
            let state = self.state.borrow();
            (state.next, state.in_flight.len() as u64)
        };
        let oldest = next - count;
        let (seen, since_ns) = self.oldest.get();
        if count == 0 || oldest != seen {
            self.oldest.set((oldest, now_ns));
        } else if now_ns - since_ns >= SILENCE_NS_MAX {
            tracing::warn!(
                "{} has not answered for {} ms",
                self.node,
                (now_ns - since_ns) / 1_000_000
            );
            self.give_up(FabricError::NodeGone { node: self.node });
        }
    }

    /// Names the node's memory by a key that it does not have.
    #[cfg(test)]
    pub(super) fn spoil_key(&self) {
        let mut state = self.state.borrow_mut();
        state.pair.as_mut().expect("it is open").key ^= 0x00ff_ff00;
    }

    fn require_posted(&self, posted: bool) {
        if !posted {
            self.give_up(FabricError::Protocol {
                node: self.node,
                reason: "the device refused a work request",
            });
        }
    }

    /// The queue pair is broken: the connection that it belongs to closes it.
    fn give_up(&self, failure: FabricError) {
        match self.connection.upgrade() {
            Some(connection) => connection.close(failure),
            None => self.close(failure),
        }
    }

    /// Destroys the queue pair; whatever was under way fails with `failure`.
    pub(crate) fn close(&self, failure: FabricError) {
        let mut over: Vec<SlotIndex> = Vec::new();
        {
            let state = &mut *self.state.borrow_mut();
            let Some(pair) = state.pair.take() else { return };
            self.poller.remove(pair.pair.number(), state.in_flight.len());
            // From here on the device touches no memory of this link's operations.
            drop(pair);
            let under_way = state.in_flight.iter().filter(|done| done.is_last && !done.is_step);
            over.extend(under_way.map(|done| done.slot));
            let stepping = state.stepping.iter().map(|stepping| &stepping.work);
            let ahead = stepping.chain(&state.waiting).filter(|work| work.is_last);
            over.extend(ahead.map(|work| work.slot));
            // The numbers go on, so that nobody takes the old for the new.
            *state = State {
                next: state.next,
                ..State::default()
            };
        }
        for slot in over {
            let waker = self.operations.borrow_mut().fail(slot, failure).cloned();
            waker.inspect(|waker| waker.wake_by_ref());
        }
        self.room.notify_waiters();
    }
}

/// A queue pair whose other end is not known yet.
pub(crate) struct HalfOpen {
    pair: QueuePair,
    results: Buffer,
}

impl HalfOpen {
    /// Where this end is.
    pub(crate) fn address(&self) -> Address {
        self.pair.address(None)
    }
}

impl State {
    /// Appends verbs as work: long ones in pieces, fences where the order needs them.
    fn append<'v>(&mut self, slot: SlotIndex, verbs: impl Iterator<Item = (usize, &'v Verb)>, piece_bytes: u32) {
        let mut is_answer_due = false;
        for (part, verb) in verbs {
            let is_read = matches!(verb, Verb::Read { .. } | Verb::ReadWord { .. });
            let is_fenced = is_answer_due && !is_read;
            // A verb in steps is waited for.
            let is_in_steps = Emulation::of(verb).is_some();
            is_answer_due = !is_in_steps && ((is_answer_due && !is_fenced) || is_read || verb.kind().is_atomic());
            for_each_piece(verb, piece_bytes, |verb| {
                self.waiting.push_back(Work {
                    slot,
                    part: part as u8,
                    verb,
                    is_fenced,
                    is_last: false,
                });
            });
        }
        if let Some(last) = self.waiting.back_mut() {
            last.is_last = true;
        }
    }
}

/// Whether the device brings a word for a verb, or for its steps.
fn returns_word(verb: &Verb) -> bool {
    !matches!(verb, Verb::Read { .. } | Verb::Write { .. })
}

/// Cuts a long READ or WRITE; it may tear between words, so the cuts are at multiples of 8.
fn for_each_piece(verb: &Verb, bytes_max: u32, mut take: impl FnMut(Verb)) {
    let Some(whole) = verb.local().filter(|slice| slice.bytes > bytes_max) else {
        return take(*verb);
    };
    let addr = verb.target().0;
    let mut done = 0;
    while done < whole.bytes {
        let end = (addr.offset() + u64::from(done) + u64::from(bytes_max)) & !7;
        let end = (end - addr.offset()).min(whole.bytes.into()) as u32;
        let slice = Slice::new(whole.at + done, end - done);
        let addr = addr.plus(done.into());
        take(match verb {
            Verb::Read { .. } => Verb::Read {
                source: addr,
                target: slice,
            },
            _ => Verb::Write {
                source: slice,
                target: addr,
            },
        });
        done = end;
    }
}

/// Where the bytes of an operation are, for the device.
#[derive(Clone, Copy)]
pub(crate) struct PinnedMemory {
    /// The address of the first byte.
    pub(crate) start: u64,
    /// The key of its registration; 0 if there are none.
    pub(crate) key: u32,
}

impl Pair {
    /// The work request of a verb that the device has, and the one scatter-gather entry that it has.
    fn request(&self, work: &Work, memory: PinnedMemory, number: u64) -> (SendRequest, ScatterGather) {
        let remote = self.base + work.verb.target().0.offset();
        let result = self.place(number);
        let local = |slice: Slice| ScatterGather {
            addr: memory.start + u64::from(slice.at),
            length: slice.bytes,
            lkey: memory.key,
        };
        let (mut request, entry) = match work.verb {
            Verb::Read { target, .. } => (
                SendRequest::one_sided(ffi::OPCODE_READ, remote, self.key),
                local(target),
            ),
            Verb::Write { source, .. } => {
                let mut request = SendRequest::one_sided(ffi::OPCODE_WRITE, remote, self.key);
                if source.bytes <= self.pair.inline_bytes() {
                    request.send_flags |= ffi::SEND_INLINE;
                }
                (request, local(source))
            }
            Verb::ReadWord { .. } => (SendRequest::one_sided(ffi::OPCODE_READ, remote, self.key), result),
            Verb::CompareSwap { compare, swap, .. } => (
                SendRequest::atomic(ffi::OPCODE_COMPARE_SWAP, remote, self.key, compare, swap),
                result,
            ),
            Verb::FetchAdd { add, .. } => (
                SendRequest::atomic(ffi::OPCODE_FETCH_ADD, remote, self.key, add, 0),
                result,
            ),
            _ => unreachable!("made of steps, or refused for want of the capability"),
        };
        finish(&mut request, &entry, work, number);
        (request, entry)
    }

    /// The work request of one step.
    fn step(&self, work: &Work, emulation: &Emulation, number: u64) -> (SendRequest, ScatterGather) {
        let remote = self.base + work.verb.target().0.offset();
        let Emulation { compare, swap, .. } = *emulation;
        let mut request = SendRequest::atomic(ffi::OPCODE_COMPARE_SWAP, remote, self.key, compare, swap);
        let entry = self.place(number);
        finish(&mut request, &entry, work, number);
        (request, entry)
    }

    /// Where work request `number` puts its word.
    fn place(&self, number: u64) -> ScatterGather {
        ScatterGather {
            addr: self.results.as_ptr() as u64 + self.index(number) * RESULT_BYTES,
            length: 8,
            lkey: self.results_key,
        }
    }

    fn index(&self, number: u64) -> u64 {
        number % u64::from(self.pair.depth())
    }

    /// The word that work request `number`, which is done, has brought.
    fn result(&self, number: u64) -> u64 {
        let at = (self.index(number) * RESULT_BYTES) as usize;
        let place: *const u64 = self.results[at..at + 8].as_ptr().cast();
        // SAFETY: inside the buffer and aligned, as its places are. Volatile, since the device has written it.
        unsafe { place.read_volatile() }
    }
}

fn finish(request: &mut SendRequest, entry: &ScatterGather, work: &Work, number: u64) {
    request.wr_id = number;
    // A length of zero would mean 2 GiB to some devices.
    request.num_sge = i32::from(entry.length > 0);
    if work.is_fenced {
        request.send_flags |= ffi::SEND_FENCE;
    }
}

/// What the status of a failed work request means.
fn failure(node: NodeId, status: u32) -> FabricError {
    match status {
        // The third is what a device says that finds no way: its link is down.
        ffi::STATUS_RETRY_EXCEEDED
        | ffi::STATUS_RECEIVER_NOT_READY
        | ffi::STATUS_LOCAL_OPERATION
        | ffi::STATUS_FLUSH
        | ffi::STATUS_FATAL => FabricError::NodeGone { node },
        ffi::STATUS_REMOTE_ACCESS | ffi::STATUS_REMOTE_INVALID | ffi::STATUS_REMOTE_OPERATION => {
            FabricError::Protocol {
                node,
                reason: "its device refused an access to its memory",
            }
        }
        _ => FabricError::Protocol {
            node,
            reason: "the device could not execute a work request",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::RemoteAddr;
    use crate::verb::MaskedAdd;
    use proptest::prelude::*;

    const ADDR: RemoteAddr = RemoteAddr::new(NodeId::new(3), 40);

    proptest! {
        #[test]
        fn pieces_make_up_the_whole(offset in 0_u64..100, at in 0_u32..50, bytes in 0_u32..1000, bytes_max in 8_u32..200) {
            let source = RemoteAddr::new(NodeId::new(3), offset);
            let target = Slice::new(at, bytes);
            let (mut next, mut count) = (0, 0);
            for_each_piece(&Verb::Read { source, target }, bytes_max, |piece| {
                let (addr, length) = piece.target();
                let local = piece.local().expect("a READ");
                assert_eq!((addr, local.at), (source.plus(next), at + next as u32));
                assert_eq!(u64::from(local.bytes), length);
                assert!(local.bytes <= bytes_max);
                next += length;
                count += 1;
                assert!(next == bytes.into() || (offset + next).is_multiple_of(8), "cut inside a word");
            });
            prop_assert_eq!(next, u64::from(bytes));
            prop_assert!(count >= 1, "also of nothing there is a work request");
        }
    }

    #[test]
    fn what_would_overtake_an_answer_is_fenced() {
        let (slice, add) = (Slice::first(8), MaskedAdd::whole(1));
        let read = Verb::Read {
            source: ADDR,
            target: slice,
        };
        let write = Verb::Write {
            source: slice,
            target: ADDR,
        };
        let fetch_add = Verb::FetchAdd { target: ADDR, add: 1 };
        let in_steps = Verb::MaskedFetchAdd {
            target: ADDR,
            operands: add,
        };
        for (verbs, expected) in [
            (&[write, write, fetch_add][..], &[false, false, false][..]),
            (&[read, read, write, write], &[false, false, true, false]),
            (&[fetch_add, read, fetch_add], &[false, false, true]),
            (&[fetch_add, fetch_add, write], &[false, true, true]),
            (&[in_steps, write], &[false, false]),
            (&[read, in_steps, write], &[false, true, false]),
        ] {
            let mut state = State::default();
            state.append(7, verbs.iter().enumerate(), 1 << 20);
            let fences: Vec<bool> = state.waiting.iter().map(|work| work.is_fenced).collect();
            assert_eq!(fences, expected, "{verbs:?}");
            let ends: Vec<usize> = (0..verbs.len()).filter(|&index| state.waiting[index].is_last).collect();
            assert_eq!(ends, [verbs.len() - 1]);
        }
    }

    #[test]
    fn an_error_says_whose_it_is() {
        let node = NodeId::new(3);
        let gone = FabricError::NodeGone { node };
        for status in [
            ffi::STATUS_RETRY_EXCEEDED,
            ffi::STATUS_RECEIVER_NOT_READY,
            ffi::STATUS_FLUSH,
        ] {
            assert_eq!(failure(node, status), gone);
        }
        assert!(failure(node, ffi::STATUS_REMOTE_ACCESS).to_string().contains("refused"));
        assert_ne!(failure(node, 1), gone);
    }
}
