//! The simulated endpoint: a client's handle, which implements the fabric's traits.
//!
//! On the path: between an `OpContext` and the simulated world. A call posts at once and returns a
//! future that waits for the slot of its operation; see `operation` for the life of a slot.

use core::cell::{Cell, RefCell};
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::rc::Rc;

use rand_core::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::operation::{NONE, State, Waiter, Work};
use super::queue::Event;
use super::scheduler::Shared;
use super::world::{World, endpoint_id};
use super::{UNIX_MS_AT_START, client_of};
use crate::addr::{NodeId, RemoteAddr};
use crate::backend::{Backend, Fence};
use crate::batch::Batch;
use crate::buffer::{Buffer, Memory};
use crate::capabilities::Capabilities;
use crate::clock::Deadline;
use crate::counters::Counters;
use crate::error::{AttachError, FabricError};
use crate::message::{EndpointId, Message, Received};
use crate::posted::{Posted, Soon};
use crate::spawn::Task;
use crate::verb::{Verb, VerbKind};

/// For how long a node may be silent that is to be attached.
const ATTACH_NS: u64 = 10_000_000;

/// A client of a simulated fabric. Clones are the same client.
#[derive(Clone)]
pub struct Endpoint {
    handle: Rc<Handle>,
}

struct Handle {
    shared: Rc<Shared>,
    client: u32,
    counters: Counters,
    random: RefCell<Xoshiro256PlusPlus>,
    /// A bit for each node that this client has attached; `None` for all that there are.
    reach: Cell<Option<u64>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.world().close_client(self.client);
    }
}

impl core::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "simulated {}", self.id())
    }
}

#[cfg(feature = "mutants")]
impl Endpoint {
    /// An operation begins that may hold addresses; returns its note.
    pub(crate) fn hold(&self) -> u64 {
        let world = &mut *self.handle.shared.world();
        world.grace.hold(self.handle.client, world.now)
    }

    /// Another one that may hold what one does that began with this note.
    pub(crate) fn hold_since(&self, since: u64) {
        self.handle.shared.world().grace.hold_since(self.handle.client, since);
    }

    /// What this client has unlinked is not its own any more.
    pub(crate) fn give_up(&self) {
        self.handle.shared.world().grace.give_up(self.handle.client);
    }

    /// This moment's note.
    pub(crate) fn mark(&self) -> u64 {
        self.handle.shared.world().grace.note()
    }

    /// Whether all operations that began before this note have ended.
    pub(crate) fn is_past(&self, mark: u64) -> bool {
        self.handle.shared.world().is_past(mark)
    }

    /// A block is unlinked by now.
    pub(crate) fn unlinked(&self, block: RemoteAddr, is_new: bool) {
        self.handle.shared.world().unlink(self.handle.client, block, is_new);
    }

    /// One has ended.
    pub(crate) fn let_go(&self, since: u64) {
        self.handle.shared.world().grace.let_go(self.handle.client, since);
    }
}

impl Endpoint {
    pub(super) fn new(shared: Rc<Shared>, client: u32, random: Xoshiro256PlusPlus) -> Self {
        let handle = Handle {
            shared,
            client,
            counters: Counters::default(),
            random: RefCell::new(random),
            reach: Cell::new(None),
        };
        Self {
            handle: Rc::new(handle),
        }
    }

    /// Reaches the first `count` nodes only, until others are attached.
    pub(super) fn limit_reach(&self, count: u32) {
        self.handle
            .reach
            .set(Some(u64::MAX.checked_shl(count).map_or(u64::MAX, |above| !above)));
    }

    fn reaches(&self, node: usize) -> bool {
        self.handle
            .reach
            .get()
            .is_none_or(|reach| reach.checked_shr(node as u32).unwrap_or(0) & 1 == 1)
    }

    /// What can be known before posting.
    #[inline]
    fn check(&self, world: &World, verb: &Verb) -> Result<(), FabricError> {
        let node = verb.target().0.node();
        if !self.reaches(node.index()) {
            return Err(FabricError::NodeUnknown { node });
        }
        world.check(verb)
    }

    async fn attach_now(&self, node: NodeId, place: &str) -> Result<(), AttachError> {
        let wrong = |reason: &dyn ToString| AttachError::new(node, place, reason.to_string());
        if self.reaches(node.index()) {
            return Ok(());
        }
        if place.strip_prefix("sim:").and_then(|number| number.parse().ok()) != Some(node.index()) {
            return Err(wrong(&format!("it should be sim:{}", node.index())));
        }
        let before = self
            .handle
            .reach
            .get()
            .expect("a client that does not reach all has a list");
        self.handle.reach.set(Some(before | 1 << node.index()));
        // Node 0 last, as whoever cuts this client off begins there: it may not have known the new one.
        for asked in [node, NodeId::new(0)] {
            let verb = Verb::ReadWord {
                source: RemoteAddr::new(asked, 0),
            };
            let deadline = Deadline(self.now_ns().saturating_add(ATTACH_NS));
            let answered = self.execute(&verb, &mut Buffer::default(), deadline).await;
            if let Err(error) = answered {
                self.detach(node);
                return Err(wrong(&error));
            }
        }
        Ok(())
    }

    fn count(&self, verb: &Verb) {
        self.handle.counters.count(verb.kind(), verb.target().1);
    }

    /// The simulation, and which client this is.
    pub(super) fn parts(&self) -> (&Shared, u32) {
        (&self.handle.shared, self.handle.client)
    }

    pub(super) fn flight(&self, lead: u32) -> Flight<'_> {
        Flight {
            shared: &self.handle.shared,
            lead,
        }
    }

    /// Waits for simulated time to reach the point that `begin` computes.
    async fn wait(&self, until: impl FnOnce(&mut World, u32) -> u64) {
        let flight = {
            let mut world = self.handle.shared.world();
            let lead = world.operations.insert(Work::Sleep, self.handle.client);
            let due = until(&mut world, self.handle.client);
            world.queue.push(due, Event::Finish(lead));
            self.flight(lead)
        };
        flight.await;
    }
}

/// A batch in flight. Dropping it forgets the results, not the effects.
pub(super) struct Flight<'a> {
    shared: &'a Shared,
    lead: u32,
}

impl Future for Flight<'_> {
    type Output = ();

    /// Ready when the batch is done or its deadline has passed. The caller then takes what it wants
    /// out of the slots, which are freed when the flight is dropped.
    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut world = self.shared.world();
        match world.operations[self.lead].state {
            State::Done | State::Failed => Poll::Ready(()),
            State::Lost => Poll::Pending,
            State::InFlight => {
                let waiter = match world.tasks.current_if(context.waker()) {
                    Some(task) => Waiter::Task(task),
                    None => Waiter::Other(context.waker().clone()),
                };
                world.operations[self.lead].waiter = waiter;
                Poll::Pending
            }
        }
    }
}

impl Drop for Flight<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.lead != NONE {
            self.shared.world().abandon(self.lead);
        }
    }
}

/// Ends a flight that is ready: gives the memory back to `buffer` and returns its result.
#[inline]
pub(super) fn land(
    flight: &mut Flight<'_>,
    buffer: Option<&mut Buffer>,
    batch: Option<&mut Batch>,
) -> Result<u128, FabricError> {
    let mut world = flight.shared.world();
    let lead = core::mem::replace(&mut flight.lead, NONE);
    let is_done = world.operations[lead].state == State::Done;
    if let Some(buffer) = buffer {
        let mut memory = if is_done {
            core::mem::take(&mut world.operations[lead].memory)
        } else {
            world.release_memory(lead)
        };
        if memory.is_torn() && world.operations[lead].error.is_some() {
            // Nobody uses what a verb brought that failed.
            memory.clear_torn(0..usize::MAX);
        }
        buffer.restore(memory);
    }
    if let Some(batch) = batch {
        let mut index = lead;
        let mut position = 0;
        while index != NONE {
            let operation = &world.operations[index];
            batch.set_result(position, operation.result);
            index = operation.batch_next;
            position += 1;
        }
    }
    let operation = &world.operations[lead];
    let result = operation.error.map_or(Ok(operation.result), Err);
    if is_done {
        world.operations.remove_batch(lead);
    } else {
        world.abandon(lead);
    }
    result
}

/// A verb or batch under way, with what it brings home.
pub(crate) struct InFlight<'c> {
    flight: Flight<'c>,
    buffer: Option<&'c mut Buffer>,
    batch: Option<&'c mut Batch>,
}

impl InFlight<'_> {
    /// Ready with the result when the verb is done or its deadline has passed.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<u128, FabricError>> {
        match Pin::new(&mut self.flight).poll(context) {
            Poll::Ready(()) => Poll::Ready(land(&mut self.flight, self.buffer.take(), self.batch.take())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Endpoint {
    async fn send_now(&self, peer: EndpointId, message: &Message, deadline: Deadline) -> Result<(), FabricError> {
        let flight = {
            let mut world = self.handle.shared.world();
            let receiver = client_of(peer);
            if receiver as usize >= world.clients.len() {
                return Err(FabricError::PeerUnknown { peer });
            }
            self.handle.counters.count_doorbell();
            self.handle.counters.count(VerbKind::Send, message.len() as u64);
            let lead = world.prepare_send(self.handle.client, receiver, message.clone());
            let flight = self.flight(lead);
            world.post(lead, Memory::default(), deadline);
            flight
        };
        let mut flight = flight;
        Pin::new(&mut flight).await;
        land(&mut flight, None, None).map(drop)
    }

    async fn receive_now(&self, deadline: Deadline) -> Result<Received, FabricError> {
        loop {
            let flight = {
                let mut world = self.handle.shared.world();
                if let Some(received) = world.take_message(self.handle.client) {
                    return Ok(received);
                }
                if deadline.0 <= world.local_now(self.handle.client) {
                    return Err(FabricError::NoMessage);
                }
                let lead = world.operations.insert(Work::Receive, self.handle.client);
                world.wait_until(lead, deadline);
                world.clients[self.handle.client as usize]
                    .mailbox
                    .receivers
                    .push_back(lead);
                self.flight(lead)
            };
            // Woken: a message is there, unless another receiver was quicker; then we wait again.
            flight.await;
        }
    }

    async fn fence_now(&self, peer: EndpointId, deadline: Deadline) -> Result<Fence, FabricError> {
        let flight = {
            let mut world = self.handle.shared.world();
            if client_of(peer) as usize >= world.clients.len() {
                return Ok(Fence::CutOff); // Nobody of that name has a verb in flight.
            }
            if world.options.is_mapped && !world.clients[client_of(peer) as usize].is_crashed {
                return Ok(Fence::StillRunning);
            }
            self.handle.counters.count_doorbell();
            let (mut lead, mut last) = (NONE, NONE);
            for node in (0..world.nodes.len()).filter(|&node| self.reaches(node)) {
                let index = world.prepare_fence(self.handle.client, client_of(peer), node);
                if lead == NONE {
                    lead = index;
                } else {
                    world.chain(lead, last, index);
                }
                last = index;
            }
            if lead == NONE {
                return Ok(Fence::CutOff); // There is no node that the peer could reach.
            }
            let flight = self.flight(lead);
            world.post(lead, Memory::default(), deadline);
            flight
        };
        let mut flight = flight;
        Pin::new(&mut flight).await;
        land(&mut flight, None, None).map(|_| Fence::CutOff)
    }
}

impl Backend for Endpoint {
    fn node_count(&self) -> usize {
        let all = self.handle.shared.world().nodes.len();
        let reached = |reach: u64| (u64::BITS - reach.leading_zeros()) as usize;
        self.handle.reach.get().map_or(all, |reach| reached(reach).min(all))
    }

    fn attach<'c>(&'c self, node: NodeId, place: &'c str) -> Soon<'c, Result<(), AttachError>> {
        Soon::later(self.attach_now(node, place))
    }

    fn detach(&self, node: NodeId) {
        let all = u64::MAX;
        let reach = self.handle.reach.get().unwrap_or(all);
        self.handle.reach.set(Some(reach & !(1 << node.index())));
    }

    fn is_attached(&self, node: NodeId) -> bool {
        self.reaches(node.index()) && node.index() < self.handle.shared.world().nodes.len()
    }

    fn node_bytes(&self, node: NodeId) -> Result<u64, FabricError> {
        let world = self.handle.shared.world();
        let memory = world.nodes.get(node.index()).ok_or(FabricError::NodeUnknown { node })?;
        Ok(memory.region.bytes() - world.options.profile.chip_bytes)
    }

    fn chip_bytes(&self) -> u64 {
        self.handle.shared.world().options.profile.chip_bytes
    }

    fn capabilities(&self) -> Capabilities {
        self.handle.shared.world().capabilities
    }

    fn execute<'c>(&'c self, verb: &Verb, buffer: &'c mut Buffer, deadline: Deadline) -> Posted<'c> {
        let mut world = self.handle.shared.world();
        if let Err(error) = self.check(&world, verb) {
            return Posted::done(Err(error));
        }
        let (memory, uses_buffer) = take_memory(verb.local().map(|slice| slice.range().end), buffer);
        self.handle.counters.count_doorbell();
        self.count(verb);
        let lead = world.prepare_verb(self.handle.client, verb);
        let flight = self.flight(lead);
        world.post(lead, memory, deadline);
        Posted::simulated(InFlight {
            flight,
            buffer: uses_buffer.then_some(buffer),
            batch: None,
        })
    }

    fn post<'c>(&'c self, batch: &'c mut Batch, buffer: &'c mut Buffer, deadline: Deadline) -> Posted<'c> {
        if batch.verbs().is_empty() {
            return Posted::done(Ok(0));
        }
        let mut world = self.handle.shared.world();
        let mut end = None;
        for verb in batch.verbs() {
            if let Err(error) = self.check(&world, verb) {
                return Posted::done(Err(error));
            }
            end = end.max(verb.local().map(|slice| slice.range().end));
        }
        let (memory, uses_buffer) = take_memory(end, buffer);
        self.handle.counters.count_doorbell();
        let (mut lead, mut last) = (NONE, NONE);
        for (place, verb) in batch.verbs().iter().enumerate() {
            self.count(verb);
            let index = world.prepare_verb(self.handle.client, verb);
            world.operations[index].is_speculative = batch.is_speculative(place);
            if lead == NONE {
                lead = index;
            } else {
                world.chain(lead, last, index);
            }
            last = index;
        }
        let flight = self.flight(lead);
        world.post(lead, memory, deadline);
        Posted::simulated(InFlight {
            flight,
            buffer: uses_buffer.then_some(buffer),
            batch: Some(batch),
        })
    }

    fn forget(&self, addr: RemoteAddr, bytes: u64) {
        self.handle.shared.world().forget(self.handle.client, addr, bytes);
    }

    fn counters(&self) -> &Counters {
        &self.handle.counters
    }

    fn id(&self) -> EndpointId {
        endpoint_id(self.handle.client)
    }

    fn send<'c>(
        &'c self,
        peer: EndpointId,
        message: &'c Message,
        deadline: Deadline,
    ) -> Soon<'c, Result<(), FabricError>> {
        Soon::later(self.send_now(peer, message, deadline))
    }

    fn receive(&self, deadline: Deadline) -> Soon<'_, Result<Received, FabricError>> {
        Soon::later(self.receive_now(deadline))
    }

    fn try_receive(&self) -> Result<Option<Received>, FabricError> {
        Ok(self.handle.shared.world().take_message(self.handle.client))
    }

    fn fence(&self, peer: EndpointId, deadline: Deadline) -> Soon<'_, Result<Fence, FabricError>> {
        Soon::later(self.fence_now(peer, deadline))
    }

    fn now_ns(&self) -> u64 {
        self.handle.shared.world().local_now(self.handle.client)
    }

    fn unix_ms(&self) -> u64 {
        UNIX_MS_AT_START + self.now_ns() / 1_000_000
    }

    fn sleep(&self, duration_ns: u64) -> Soon<'_, ()> {
        Soon::later(self.wait(move |world, client| {
            let until = world.local_now(client).saturating_add(duration_ns);
            world.simulated_at(client, until)
        }))
    }

    fn compute(&self, duration_ns: u64) -> Soon<'_, ()> {
        Soon::later(self.wait(move |world, client| {
            let core = world.clients[client as usize].core;
            let now = world.now;
            world.cores[core as usize].charge(now, duration_ns) + duration_ns
        }))
    }

    fn random(&self) -> u64 {
        self.handle.random.borrow_mut().next_u64()
    }

    fn spawn(&self, task: Task) {
        let refused = {
            let mut world = self.handle.shared.world();
            world.spawn(task, self.handle.client)
        };
        // A crashed client starts nothing. Dropping the task may end other endpoints, so not above.
        drop(refused);
    }
}

/// Takes the memory of the buffer if the verbs use it, up to `end`.
///
/// # Panics
/// If `end` is beyond the buffer.
#[inline]
fn take_memory(end: Option<usize>, buffer: &mut Buffer) -> (Memory, bool) {
    match end {
        Some(end) => {
            assert!(
                end <= buffer.len(),
                "the verb's slice ends at {end}, the buffer at {}",
                buffer.len()
            );
            (buffer.take(), true)
        }
        None => (Memory::default(), false),
    }
}
