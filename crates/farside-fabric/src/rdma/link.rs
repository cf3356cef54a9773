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
//! before it; within a post it carries the fence that forbids it, or is *held* back until all before it is done, where
//! fences are no good ([`Device::can_fence`](super::Device)). A verb that the device does not have ([`Emulation`]) is posted
//! step by step, and nothing behind it until it is done; one that it takes as an entry ([`Native`]) goes between work
//! requests, with a doorbell of its own.
//!
//! A new pair is *on trial* first: its verbs go to a word that the node lends, and nobody but the trial posts.
//!
//! An error ends the queue pair; it is destroyed at once, so that all memory is free again, and all operations fail. The
//! connection to the node is given up with it: to connect anew is to make a new pair.
//!
//! Invariants:
//! - `in_flight` has an entry for each work request from `next - in_flight.len()` up to `next`, and at most `depth`;
//! - work request n puts its word at `results[n % depth]`;
//! - the last of what is in flight is announced if something behind it is held;
//! - each post has exactly one work with `is_last` in `waiting`, `in_flight` or `stepping` until it is over;
//! - the memory of an operation stays in its slot, which is *pinned*, until its last post is over.

use core::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use tokio::sync::{Mutex, MutexGuard, Notify};

use super::emulation::{Emulation, Step};
use super::error::RdmaError;
use super::exchange::Address;
use super::ffi::{self, ScatterGather, SendRequest, WorkCompletion};
use super::mlx5::{Entry, Frame};
use super::native::{ByteOrder, Native};
use super::poller::{DEPTH, Poller};
use super::queue_pair::{Purpose, QueuePair};
use crate::addr::NodeId;
use crate::buffer::Buffer;
use crate::error::FabricError;
use crate::tcp::{Connection, Operations, SlotIndex};
use crate::verb::{MaskedCas, Slice, Verb};

/// How many verbs may wait for the queue before posts wait.
const WAITING_MAX: usize = 1024;
/// Bytes that one work request carries at most: long ones keep the words of others waiting.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// After how long without an answer a node is given up, whatever the deadlines of the operations: several times what the device
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
    /// Whether everything before it must be done when it is posted.
    is_held: bool,
    /// Whether it ends its post.
    is_last: bool,
}

/// A work request under way.
#[derive(Clone, Copy)]
struct InFlight {
    slot: SlotIndex,
    part: u8,
    answer: Answer,
    is_step: bool,
    is_last: bool,
}

/// What a work request leaves in its place of `results`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    /// Nothing that anybody wants.
    None,
    /// A word of 8 bytes, or of 16; perhaps the other way round.
    Word { is_wide: bool, is_swapped: bool },
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
    /// Where verbs go: the node's memory, or the word that it lends.
    base: u64,
    key: u32,
    native: Native,
    is_on_trial: bool,
}

/// What is to be posted: a chain of work requests, and entries in between.
#[derive(Default)]
struct Chain {
    requests: Vec<SendRequest>,
    scatter: Vec<ScatterGather>,
    /// Each with its number, and how many of the requests come before it.
    entries: Vec<(usize, u64, Entry)>,
}

impl Chain {
    fn clear(&mut self) {
        self.requests.clear();
        self.scatter.clear();
        self.entries.clear();
    }
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
    /// Scratch: what is being posted.
    chain: Chain,
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
    /// Held by who makes a new pair.
    pairing: Mutex<()>,
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
            pairing: Mutex::new(()),
        }
    }

    /// Waits until nobody else makes a new pair, and keeps others from it.
    pub(crate) async fn pairing(&self) -> MutexGuard<'_, ()> {
        self.pairing.lock().await
    }

    /// A queue pair for this link that is to be connected.
    pub(crate) fn prepare(&self, random: u64) -> Result<HalfOpen, RdmaError> {
        let pair = QueuePair::create(
            self.poller.queue(),
            DEPTH,
            random,
            Purpose::Verbs { takes_entries: true },
        )?;
        let device = self.poller.device();
        let mut results = Buffer::unregistered((u64::from(pair.depth()) * RESULT_BYTES) as usize);
        results.memory_mut().register(device)?;
        Ok(HalfOpen { pair, results })
    }

    /// Puts a pair whose other end is at `node` on trial. Returns whether it takes entries.
    pub(crate) fn open(self: &Rc<Self>, half: HalfOpen, node: &Address) -> Result<bool, RdmaError> {
        half.pair.connect(node)?;
        let results_key = half.results.memory().local_key().expect("registered when it was made");
        self.poller.add(half.pair.number(), Rc::downgrade(self));
        let state = &mut *self.state.borrow_mut();
        assert!(state.pair.is_none(), "closed before");
        let takes_entries = half.pair.takes_entries();
        state.pair = Some(Pair {
            pair: half.pair,
            results: half.results,
            results_key,
            base: node.scratch.get(),
            key: node.scratch_key.get(),
            native: Native::default(),
            is_on_trial: true,
        });
        Ok(takes_entries)
    }

    /// Executes from now on natively what is said. The pair must be on trial, or broken.
    pub(crate) fn suppose(&self, native: Native) {
        if let Some(pair) = &mut self.state.borrow_mut().pair {
            assert!(pair.is_on_trial, "at work");
            pair.native = native;
        }
    }

    /// Goes to work on the node's memory. Returns whether there is a pair that can.
    pub(crate) fn go_to_work(&self, node: &Address) -> bool {
        let state = &mut *self.state.borrow_mut();
        let Some(pair) = &mut state.pair else { return false };
        pair.is_on_trial = false;
        (pair.base, pair.key) = (node.base.get(), node.key.get());
        true
    }

    /// What the device executes natively, as far as it is known; nothing while there is no pair.
    pub(crate) fn native(&self) -> Native {
        let state = self.state.borrow();
        state.pair.as_ref().map_or_else(Native::default, |pair| pair.native)
    }

    /// Whether verbs can be posted.
    pub(crate) fn is_open(&self) -> bool {
        let state = self.state.borrow();
        state.pair.as_ref().is_some_and(|pair| !pair.is_on_trial)
    }

    /// Whether there is a pair on trial.
    pub(crate) fn is_on_trial(&self) -> bool {
        let state = self.state.borrow();
        state.pair.as_ref().is_some_and(|pair| pair.is_on_trial)
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
            let device = self.poller.device();
            let piece_bytes = REQUEST_BYTES_MAX.min(device.message_bytes_max());
            state.append(slot, verbs, piece_bytes, device.can_fence());
            self.pump(state)
        };
        self.require_posted(posted);
    }

    /// Turns what waits into work requests, as far as there is room. Returns whether the device takes them.
    fn pump(&self, state: &mut State) -> bool {
        let Some(pair) = &state.pair else { return true };
        let depth = pair.pair.depth() as usize;
        state.chain.clear();
        while state.in_flight.len() < depth && !state.is_next_held() {
            let number = state.next;
            let (work, step) = match &mut state.stepping {
                Some(stepping) if stepping.is_posted => break,
                Some(stepping) => {
                    stepping.is_posted = true;
                    (stepping.work, Some(stepping.step))
                }
                None => {
                    let Some(work) = state.waiting.pop_front() else { break };
                    if let Some(step) = pair.in_steps(&work.verb) {
                        let is_posted = false;
                        state.stepping = Some(Stepping { work, step, is_posted });
                        continue;
                    }
                    (work, None)
                }
            };
            state.next += 1;
            let is_half_full = state.next.is_multiple_of(depth as u64 / 2 + 1);
            let is_waited_for = state.waiting.front().is_some_and(|next| next.is_held);
            let is_announced = work.is_last || step.is_some() || is_half_full || is_waited_for;
            state.in_flight.push_back(InFlight {
                slot: work.slot,
                part: work.part,
                answer: pair.answer(&work.verb),
                is_step: step.is_some(),
                is_last: work.is_last,
            });
            let chain = &mut state.chain;
            if let Some(order) = pair.native.order(&work.verb) {
                let entry = pair.entry(&work, order, number, is_announced);
                chain.entries.push((chain.requests.len(), number, entry));
                continue;
            }
            let (mut request, scatter) = match &step {
                Some(step) => pair.step(&work, step, number),
                None => pair.request(&work, self.operations.borrow_mut().pinned_memory(work.slot), number),
            };
            if is_announced {
                request.send_flags |= ffi::SEND_SIGNALED;
            }
            chain.requests.push(request);
            chain.scatter.push(scatter);
        }
        self.wake_posts(state.waiting.len());
        self.ring(state)
    }

    /// Posts the chain: what is between two entries with one doorbell.
    fn ring(&self, state: &mut State) -> bool {
        let Some(pair) = &state.pair else { return true };
        let Chain {
            requests,
            scatter,
            entries,
        } = &mut state.chain;
        self.poller.posted(requests.len() + entries.len());
        let mut posted = 0;
        for (before, number, entry) in entries {
            if !pair.post(&mut requests[posted..*before], &mut scatter[posted..*before]) {
                return false;
            }
            posted = *before;
            // SAFETY: its answer goes to a place of `results`, which lives as long as the pair.
            if !unsafe { pair.pair.post_entry(*number, entry) } {
                return false;
            }
        }
        pair.post(&mut requests[posted..], &mut scatter[posted..])
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
        let mut word = pair.result(number, done.answer);
        if done.is_step
            && let Some(stepping) = &mut state.stepping
        {
            match stepping.step.step(word as u64) {
                Step::Done(returned) => word = returned.into(),
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
        operations.complete_part(done.slot, done.part.into(), word);
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

    /// The queue pair is broken: the connection that it belongs to closes it. A pair on trial goes alone.
    fn give_up(&self, failure: FabricError) {
        match self.connection.upgrade() {
            Some(connection) if !self.is_on_trial() => connection.close(failure),
            _ => self.close(failure),
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
    /// Whether what is to be posted next has to wait for what is in flight.
    fn is_next_held(&self) -> bool {
        let stepping = self.stepping.as_ref().map(|stepping| &stepping.work);
        let next = stepping.or(self.waiting.front());
        next.is_some_and(|work| work.is_held) && !self.in_flight.is_empty()
    }

    /// Appends verbs as work: long ones in pieces, fences where the order needs them, or what takes their place.
    fn append<'v>(
        &mut self,
        slot: SlotIndex,
        verbs: impl Iterator<Item = (usize, &'v Verb)>,
        piece_bytes: u32,
        can_fence: bool,
    ) {
        let native = self.pair.as_ref().map_or_else(Native::default, |pair| pair.native);
        let mut is_answer_due = false;
        for (part, verb) in verbs {
            let is_read = matches!(verb, Verb::Read { .. } | Verb::ReadWord { .. });
            let mut is_behind = is_answer_due && !is_read;
            let is_entry = native.order(verb).is_some();
            // A verb in steps is waited for.
            let is_in_steps = !is_entry && Emulation::of(verb).is_some();
            let brings_answer = is_read || is_entry || verb.kind().is_atomic();
            is_answer_due = !is_in_steps && ((is_answer_due && !is_behind) || brings_answer);
            for_each_piece(verb, piece_bytes, |verb| {
                // The other pieces come behind the first.
                let is_behind = core::mem::take(&mut is_behind);
                self.waiting.push_back(Work {
                    slot,
                    part: part as u8,
                    verb,
                    is_fenced: is_behind && can_fence,
                    is_held: is_behind && !can_fence,
                    is_last: false,
                });
            });
        }
        if let Some(last) = self.waiting.back_mut() {
            last.is_last = true;
        }
    }
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
    /// Posts a chain with one doorbell. The entries of `scatter` belong to the requests at their places.
    fn post(&self, requests: &mut [SendRequest], scatter: &mut [ScatterGather]) -> bool {
        let count = requests.len();
        assert_eq!(scatter.len(), count, "one for each");
        if count == 0 {
            return true;
        }
        let (requests, scatter) = (requests.as_mut_ptr(), scatter.as_mut_ptr());
        // SAFETY: both have `count` members, and are not touched before the post returns: so the chain is whole, and
        // entry i belongs to request i. What it names is memory of operations, which stays in their pinned slots until
        // the request is done or `close` has destroyed the pair, and places of `results`, which lives as long as the
        // pair and is read when their request is done.
        unsafe {
            for index in 0..count {
                (*requests.add(index)).sg_list = scatter.add(index);
                if index + 1 < count {
                    (*requests.add(index)).next = requests.add(index + 1);
                }
            }
            self.pair.post(requests)
        }
    }

    /// The first step of a verb that the device does not have.
    fn in_steps(&self, verb: &Verb) -> Option<Emulation> {
        match self.native.order(verb) {
            Some(_) => None,
            None => Emulation::of(verb),
        }
    }

    /// What the device brings for a verb, or for each of its steps.
    fn answer(&self, verb: &Verb) -> Answer {
        let order = self.native.order(verb);
        let is_wide = verb.target().1 == 16;
        let is_swapped = order.is_some_and(|order| order.is_answer_swapped);
        match verb {
            Verb::Read { .. } | Verb::Write { .. } => Answer::None,
            // As an entry it brings the word before, which a WRITE does not return.
            Verb::WriteWord { .. } if order.is_some() => Answer::None,
            _ => Answer::Word { is_wide, is_swapped },
        }
    }

    /// The entry of a verb that the device executes natively.
    fn entry(&self, work: &Work, order: ByteOrder, number: u64, is_announced: bool) -> Entry {
        let (addr, bytes) = work.verb.target();
        let frame = Frame {
            queue_pair: self.pair.number(),
            remote: (self.base + addr.offset(), self.key),
            answer: ScatterGather {
                length: bytes as u32,
                ..self.place(number)
            },
            is_announced,
            is_fenced: work.is_fenced,
            is_swapped: order.is_operand_swapped,
        };
        match &work.verb {
            Verb::MaskedCompareSwap { operands, .. } => Entry::swap(&frame, operands),
            Verb::MaskedFetchAdd { operands, .. } => Entry::add(&frame, operands),
            Verb::WideCompareSwap { operands, .. } => Entry::swap(&frame, operands),
            Verb::WideFetchAdd { operands, .. } => Entry::add(&frame, operands),
            Verb::WriteWord { value, .. } => {
                let compare_nothing = MaskedCas {
                    compare_mask: 0,
                    ..MaskedCas::whole(0, *value)
                };
                Entry::swap(&frame, &compare_nothing)
            }
            _ => unreachable!("every card has it"),
        }
    }

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

    /// The word that work request `number`, which is done, has brought; 0 if none.
    fn result(&self, number: u64, answer: Answer) -> u128 {
        let Answer::Word { is_wide, is_swapped } = answer else {
            return 0;
        };
        let at = (self.index(number) * RESULT_BYTES) as usize;
        let place: *const u64 = self.results[at..at + RESULT_BYTES as usize].as_ptr().cast();
        // SAFETY: inside the buffer and aligned, as its places are. Volatile, since the device has written it.
        let (low, high) = unsafe { (place.read_volatile(), place.add(1).read_volatile()) };
        match (is_wide, is_swapped) {
            (false, false) => low.into(),
            (false, true) => low.swap_bytes().into(),
            (true, false) => u128::from(high) << 64 | u128::from(low),
            (true, true) => (u128::from(high) << 64 | u128::from(low)).swap_bytes(),
        }
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
            for can_fence in [true, false] {
                let mut state = State::default();
                state.append(7, verbs.iter().enumerate(), 1 << 20, can_fence);
                let behind = |work: &Work| if can_fence { work.is_fenced } else { work.is_held };
                let found: Vec<bool> = state.waiting.iter().map(behind).collect();
                assert_eq!(found, expected, "{verbs:?}");
                let is_both = |work: &Work| work.is_fenced && work.is_held;
                assert!(!state.waiting.iter().any(is_both), "one or the other");
                let ends: Vec<usize> = (0..verbs.len()).filter(|&index| state.waiting[index].is_last).collect();
                assert_eq!(ends, [verbs.len() - 1]);
            }
        }
    }

    #[test]
    fn what_is_held_waits_until_nothing_is_in_flight() {
        let write = Verb::Write {
            source: Slice::first(20),
            target: ADDR,
        };
        let mut state = State::default();
        let read = Verb::ReadWord { source: ADDR };
        // The WRITE in three pieces, of which only the first has to wait.
        state.append(7, [read, write].iter().enumerate(), 8, false);
        let held: Vec<bool> = state.waiting.iter().map(|work| work.is_held).collect();
        assert_eq!(held, [false, true, false, false]);
        assert!(!state.is_next_held());
        let fly = |state: &mut State| {
            let work = state.waiting.pop_front().expect("four");
            state.in_flight.push_back(InFlight {
                slot: work.slot,
                part: work.part,
                answer: Answer::None,
                is_step: false,
                is_last: work.is_last,
            });
        };
        fly(&mut state);
        assert!(state.is_next_held(), "the READ is under way");
        state.in_flight.clear();
        assert!(!state.is_next_held(), "it is done");
        fly(&mut state);
        assert!(!state.is_next_held(), "the rest of the WRITE");
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
