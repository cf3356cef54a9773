//! The simulated world, and what happens to an operation in it.
//!
//! On the path: an endpoint posts here; the scheduler takes one event after the other and lets the
//! world react. Everything is an index into a table; nothing refers to anything.
//!
//! The way of a verb (NIC-side steps are in `nic`, lines in `memory`):
//!  1. `post`: its client's core is charged. If the core has nothing before it, step 2 happens at
//!     once, otherwise when the core gets there.
//!  2. `depart`: it passes the compute node's sending port and goes on the wire.
//!  3. `arrive`: it passes the receiving port and queues at its unit.
//!  4. `served`: the unit has executed it; the reply passes the sending port and goes on the wire.
//!  5. `complete`: it passes the compute node's receiving port; its task is woken.
//!
//! On idle ports and units that is three events. A compute node's sending port is reserved when a
//! core takes a post up, for the time at which it will be done with it; since that takes all posts
//! the same time, reservations come in the order of their times.
//!
//! Invariant: operations of one queue pair arrive in posting order and complete in that order, also
//! when delays change: arrival and completion times of a queue pair never decrease.

use core::future::Future;
use core::pin::Pin;
use std::collections::HashMap;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::SimOptions;
use super::client::{BROKEN, Client, ComputeNode, Core, QueuePair};
use super::fault::{Paths, Target};
use super::link::wire_bytes;
use super::memory::MemoryNode;
use super::nic::{Nic, Unit};
use super::operation::{NONE, Operations, State, Waiter, Work};
use super::queue::{Event, EventQueue};
use super::rivals::Rivals;
use super::scheduler::Tasks;
use super::stepping::Stepping;
use super::strike::Strikes;
use super::trace::{Step, Trace, TraceEntry};
use crate::addr::NodeId;
use crate::backend::check_verb;
use crate::buffer::Memory;
use crate::capabilities::Capabilities;
use crate::clock::Deadline;
use crate::error::FabricError;
use crate::hash::MixState;
use crate::message::{EndpointId, Message};
use crate::mutant;
use crate::verb::Verb;

/// A task of the simulator's executor.
pub(super) type LocalTask = Pin<Box<dyn Future<Output = ()>>>;

/// How an operation travels.
struct Route {
    pair: u32,
    incarnation: u32,
    request: u64,
    reply: u64,
}

/// Everything there is.
pub(super) struct World {
    pub(super) options: SimOptions,
    pub(super) capabilities: Capabilities,
    pub(super) now: u64,
    pub(super) queue: EventQueue,
    pub(super) operations: Operations,
    pub(super) tasks: Tasks,
    pub(super) nics: Vec<Nic>,
    pub(super) units: Vec<Unit>,
    pub(super) nodes: Vec<MemoryNode>,
    pub(super) compute_nodes: Vec<ComputeNode>,
    pub(super) cores: Vec<Core>,
    pub(super) clients: Vec<Client>,
    pub(super) pairs: Vec<QueuePair>,
    /// Queue pairs between clients, by sender and receiver: indices.
    pub(super) peer_pairs: HashMap<(u32, u32), u32, MixState>,
    pub(super) paths: Paths,
    pub(super) trace: Trace,
    pub(super) chance: Xoshiro256PlusPlus,
    pub(super) executed: u64,
    /// Set while a chooser decides what is executed next.
    pub(super) stepping: Option<Box<Stepping>>,
    /// When it may decide again.
    pub(super) next_step: u64,
    pub(super) strikes: Strikes,
    pub(super) rivals: Rivals,
    #[cfg(feature = "mutants")]
    pub(super) grace: super::grace::Grace,
}

impl World {
    pub(super) fn new(options: SimOptions) -> Self {
        assert!(
            options.tear_bytes == 64 || options.tear_bytes == 8,
            "memory tears at lines of 64 bytes or at words of 8"
        );
        if let Err(reason) = options.profile.check() {
            panic!("{reason}");
        }
        Self {
            now: 0,
            queue: EventQueue::new(),
            operations: Operations::default(),
            tasks: Tasks::default(),
            nics: Vec::new(),
            units: Vec::new(),
            nodes: Vec::new(),
            compute_nodes: Vec::new(),
            cores: Vec::new(),
            clients: Vec::new(),
            pairs: Vec::new(),
            peer_pairs: HashMap::default(),
            paths: Paths::default(),
            trace: Trace::new(options.seed, options.trace_entries),
            chance: Xoshiro256PlusPlus::seed_from_u64(options.seed),
            executed: 0,
            stepping: None,
            next_step: 0,
            strikes: Strikes::default(),
            rivals: Rivals::default(),
            #[cfg(feature = "mutants")]
            grace: super::grace::Grace::default(),
            capabilities: options.capabilities(),
            options,
        }
    }

    /// A number below `bound`, or 0.
    #[inline]
    pub(super) fn random_below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.chance.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    #[inline]
    pub(super) fn record(&mut self, step: Step, index: u32, result: u64) {
        let operation = &self.operations[index];
        self.trace.record(TraceEntry {
            time_ns: self.now,
            step,
            endpoint: operation.client,
            kind: operation.code,
            target: operation.target,
            result,
        });
    }

    /// What an endpoint's clock shows.
    #[inline]
    pub(super) fn local_now(&self, client: u32) -> u64 {
        let node = self.clients[client as usize].compute_node;
        self.compute_nodes[node as usize].clock.local(self.now)
    }

    /// Lets an event happen.
    #[inline]
    pub(super) fn react(&mut self, event: Event) {
        match event {
            Event::Depart(lead) => self.depart(lead),
            Event::Arrive(index) => self.arrive(index),
            Event::Served(index) => self.served(index),
            Event::Lines(index) => self.lines_due(index),
            Event::Complete(index) => self.complete(index),
            Event::Finish(lead) => self.finish_one(lead),
            Event::Deadline(client) => self.deadline_due(client),
            Event::Seen(client) => self.see_message(client),
        }
    }

    /// Checks a verb before it is posted.
    #[inline]
    pub(super) fn check(&self, verb: &Verb) -> Result<(), FabricError> {
        let node = verb.target().0.node();
        let memory = self.nodes.get(node.index()).ok_or(FabricError::NodeUnknown { node })?;
        check_verb(verb, memory.region.bytes(), self.capabilities)
    }

    /// Takes a slot for a verb that has been checked.
    #[inline]
    pub(super) fn prepare_verb(&mut self, client: u32, verb: &Verb) -> u32 {
        let (addr, bytes) = verb.target();
        let node = addr.node().index();
        // The extended headers: address and length (16), acknowledgement (4), operands of an atomic
        // beside the address.
        let (request, reply) = match verb {
            Verb::Read { .. } | Verb::ReadWord { .. } => (16, bytes + 4),
            Verb::Write { .. } | Verb::WriteWord { .. } => (16 + bytes, 4),
            Verb::CompareSwap { .. } | Verb::FetchAdd { .. } => (28, 12),
            _ => (12 + 4 * bytes, 4 + bytes),
        };
        let pair = self.queue_pair(client, node);
        let route = Route {
            pair,
            incarnation: self.pairs[pair as usize].incarnation,
            request: wire_bytes(request),
            reply: wire_bytes(reply),
        };
        let index = self.operations.insert(Work::Verb(*verb), client);
        self.set_route(index, route);
        index
    }

    /// Takes a slot for a message to a client that exists.
    pub(super) fn prepare_send(&mut self, client: u32, peer: u32, message: Message) -> u32 {
        let route = Route {
            pair: self.peer_pair(client, peer),
            incarnation: 0,
            request: wire_bytes(message.len() as u64),
            reply: wire_bytes(4),
        };
        let index = self.operations.insert(Work::Send { peer, message }, client);
        self.set_route(index, route);
        index
    }

    /// Takes a slot for cutting a client off from one memory node.
    pub(super) fn prepare_fence(&mut self, client: u32, peer: u32, node: usize) -> u32 {
        let pair = self.queue_pair(client, node);
        self.prepare_control(
            Work::Fence { peer },
            client,
            pair,
            self.pairs[pair as usize].incarnation,
        )
    }

    /// Takes a slot for connecting a client anew to the present run of one memory node.
    pub(super) fn prepare_connect(&mut self, client: u32, node: usize) -> u32 {
        let pair = self.queue_pair(client, node);
        self.prepare_control(Work::Connect, client, pair, self.nodes[node].incarnation)
    }

    fn prepare_control(&mut self, work: Work, client: u32, pair: u32, incarnation: u32) -> u32 {
        let route = Route {
            pair,
            incarnation,
            request: wire_bytes(16),
            reply: wire_bytes(4),
        };
        let index = self.operations.insert(work, client);
        self.set_route(index, route);
        index
    }

    #[inline]
    fn set_route(&mut self, index: u32, route: Route) {
        let pair = &self.pairs[route.pair as usize];
        let operation = &mut self.operations[index];
        operation.pair = route.pair;
        operation.nic = pair.nic;
        operation.unit = pair.unit;
        operation.incarnation = route.incarnation;
        operation.request_bytes = route.request as u32;
        operation.reply_bytes = route.reply as u32;
    }

    /// Joins `index` to the batch that begins with `lead` and ends with `last`.
    #[inline]
    pub(super) fn chain(&mut self, lead: u32, last: u32, index: u32) {
        self.operations[last].batch_next = index;
        self.operations[index].lead = lead;
        self.operations[lead].remaining += 1;
    }

    /// Step 1: posts a prepared batch with one doorbell.
    #[inline]
    pub(super) fn post(&mut self, lead: u32, memory: Memory, deadline: Deadline) {
        let operation = &mut self.operations[lead];
        operation.memory = memory;
        let client = operation.client;
        let extra = u64::from(operation.remaining - 1);
        if mutant::is_met() {
            self.strike(client);
        }
        self.number_verbs(lead, client);
        if deadline != Deadline::NEVER {
            self.watch_deadline(lead, deadline);
        }
        if self.operations[lead].memory.is_torn() {
            self.read_anew(lead);
        }
        if self.stepping.is_some() {
            return self.post_steps(lead);
        }
        let profile = &self.options.profile;
        let cost = profile.post_ns + extra * profile.post_extra_ns;
        let core = self.clients[client as usize].core;
        let start = self.cores[core as usize].charge(self.now, cost);
        self.operations[lead].core_start = start;
        if start == self.now {
            self.depart(lead);
        } else {
            self.queue.push(start, Event::Depart(lead));
        }
    }

    /// Numbers the verbs of a batch, and marks the one at which the client is to crash.
    #[inline]
    fn number_verbs(&mut self, lead: u32, client: u32) {
        let client = &mut self.clients[client as usize];
        let mut index = lead;
        while index != NONE {
            let operation = &mut self.operations[index];
            client.verbs_posted += 1;
            operation.number = client.verbs_posted;
            if let Some(point) = client.crash_point {
                operation.is_fatal = operation.number == point.verb;
                operation.is_dropped = operation.number > point.verb;
                if operation.is_fatal {
                    operation.line_limit = point.lines.unwrap_or(u32::MAX);
                }
            }
            index = operation.batch_next;
        }
    }

    /// Step 2: every operation of the batch leaves the compute node.
    #[inline]
    fn depart(&mut self, lead: u32) {
        let post_ns = self.options.profile.post_ns;
        let extra_ns = self.options.profile.post_extra_ns;
        let operation = &self.operations[lead];
        let mut ready = operation.core_start + post_ns;
        let compute_node = self.clients[operation.client as usize].compute_node;
        let sender = self.compute_nodes[compute_node as usize].nic;
        let mut index = lead;
        while index != NONE {
            let operation = &self.operations[index];
            if let Work::Verb(verb) = &operation.work {
                // The bytes will be needed when it arrives: let the real memory fetch them now.
                let (addr, bytes) = verb.target();
                self.nodes[addr.node().index()]
                    .region
                    .prefetch(addr.offset(), bytes as u32);
            }
            self.trace.record(TraceEntry {
                time_ns: self.now,
                step: Step::Posted,
                endpoint: operation.client,
                kind: operation.code,
                target: operation.target,
                result: operation.number,
            });
            let (next, pair) = (operation.batch_next, operation.pair);
            let connect_ns = match operation.work {
                Work::Send { .. } => self.options.profile.connect_ns,
                _ => 0,
            };
            let bytes = u64::from(operation.request_bytes);
            let nic = &mut self.nics[sender as usize];
            nic.statistics.bytes_out += bytes;
            let left = nic.sending.transmit(ready, bytes);
            self.send_request(index, pair, left + connect_ns);
            ready += extra_ns;
            index = next;
        }
    }

    /// Puts a request on the wire.
    #[inline]
    pub(super) fn send_request(&mut self, index: u32, pair: u32, left: u64) {
        let mut due = left + self.options.profile.wire_ns;
        if self.options.jitter_ns != 0 {
            due += self.random_below(self.options.jitter_ns + 1);
        }
        if self.options.lulls.one_in != 0 {
            due += self.lull(self.operations[index].client);
        }
        if self.paths.is_disturbed() {
            match self.paths.delay(self.path_of(index)) {
                Some(delay) => due += delay,
                None if self.operations[index].incarnation == BROKEN => return self.flush(index),
                None => return self.paths.hold(self.path_of(index), index, true),
            }
        }
        let pair = &mut self.pairs[pair as usize];
        pair.last_arrival = pair.last_arrival.max(due);
        let due = pair.last_arrival;
        self.queue.push(due, Event::Arrive(index));
    }

    /// Puts a reply on the wire.
    #[inline]
    pub(super) fn send_reply(&mut self, index: u32, left: u64) {
        let mut due = left + self.options.profile.wire_ns;
        if self.paths.is_disturbed() {
            match self.paths.delay(self.path_of(index)) {
                Some(delay) => due += delay,
                None => return self.paths.hold(self.path_of(index), index, false),
            }
        }
        let operation = &mut self.operations[index];
        operation.is_received = false;
        let pair = &mut self.pairs[operation.pair as usize];
        pair.last_completion = pair.last_completion.max(due);
        let due = pair.last_completion;
        self.queue.push(due, Event::Complete(index));
    }

    /// The link that an operation and its reply travel on.
    pub(super) fn path_of(&self, index: u32) -> (u32, Target) {
        let operation = &self.operations[index];
        let from = self.clients[operation.client as usize].compute_node;
        match operation.work {
            Work::Send { peer, .. } => {
                let to = self.clients[peer as usize].compute_node;
                (from.min(to), Target::Compute(from.max(to)))
            }
            _ => {
                let node = self.nics[operation.nic as usize]
                    .node
                    .expect("verbs go to memory nodes");
                (from, Target::Memory(node))
            }
        }
    }

    /// Step 3: the request is at the NIC that executes it.
    #[inline]
    fn arrive(&mut self, index: u32) {
        let operation = &mut self.operations[index];
        let nic_index = operation.nic;
        if !operation.is_received {
            operation.is_received = true;
            let bytes = u64::from(operation.request_bytes);
            let nic = &mut self.nics[nic_index as usize];
            nic.statistics.bytes_in += bytes;
            let taken = nic.receiving.receive(self.now, bytes);
            if taken > self.now {
                return self.queue.push(taken, Event::Arrive(index));
            }
        }
        if let Some(node) = self.nics[nic_index as usize].node {
            let memory = &self.nodes[node as usize];
            // The connection ended with the node that it was made with.
            if !memory.is_alive || memory.incarnation != operation.incarnation {
                return self.fail_gone(index, NodeId::new(node));
            }
        }
        self.enqueue(index);
    }

    /// The node is gone: the client's NIC gives up after its retries. One whose queue pair is in the
    /// error state does not even try.
    pub(super) fn fail_gone(&mut self, index: u32, node: NodeId) {
        let operation = &mut self.operations[index];
        operation.error = Some(FabricError::NodeGone { node });
        operation.is_executed = true;
        operation.is_received = true;
        let retries_ns = if operation.incarnation == BROKEN {
            0
        } else {
            self.options.retry_timeout_ns
        };
        self.queue.push(self.now + retries_ns, Event::Complete(index));
    }

    /// Step 5: the reply is at the client.
    #[inline]
    pub(super) fn complete(&mut self, index: u32) {
        let operation = &mut self.operations[index];
        if !operation.is_received {
            operation.is_received = true;
            let bytes = u64::from(operation.reply_bytes);
            let compute_node = self.clients[operation.client as usize].compute_node;
            let nic = &mut self.nics[self.compute_nodes[compute_node as usize].nic as usize];
            nic.statistics.bytes_in += bytes;
            let taken = nic.receiving.receive(self.now, bytes);
            if taken > self.now {
                return self.queue.push(taken, Event::Complete(index));
            }
        }
        self.trace.record(TraceEntry {
            time_ns: self.now,
            step: Step::Completed,
            endpoint: operation.client,
            kind: operation.code,
            target: operation.target,
            result: operation.result as u64,
        });
        if operation.is_fatal {
            // It was refused or found no node, and so had no effect to crash after.
            let client = operation.client;
            self.crash_client_now(client);
        }
        self.finish_one(index);
    }

    /// One operation of a batch has ended.
    #[inline]
    pub(super) fn finish_one(&mut self, index: u32) {
        let (lead, error) = (self.operations[index].lead, self.operations[index].error);
        let operation = &mut self.operations[lead];
        if error.is_some() && operation.error.is_none() {
            operation.error = error;
        }
        operation.remaining -= 1;
        if operation.remaining != 0 {
            return;
        }
        if operation.is_abandoned {
            return self.operations.remove_batch(lead);
        }
        let take_ns = self.options.profile.take_ns;
        if take_ns != 0 && operation.work.travels() && !operation.is_taken && self.stepping.is_none() {
            // Its client's core polls for it, and goes on with what has waited for it.
            operation.is_taken = true;
            operation.remaining = 1;
            let core = self.clients[operation.client as usize].core;
            let start = self.cores[core as usize].charge(self.now, take_ns);
            return self.queue.push(start + take_ns, Event::Finish(lead));
        }
        if operation.state == State::InFlight {
            if operation.deadline != Deadline::NEVER {
                self.unwatch_deadline(lead);
            }
            self.settle(lead, State::Done);
        }
    }

    /// The batch has its final state; its future is polled again.
    #[inline]
    pub(super) fn settle(&mut self, lead: u32, state: State) {
        let operation = &mut self.operations[lead];
        if self.clients[operation.client as usize].is_crashed {
            operation.state = State::Lost;
            return;
        }
        operation.state = state;
        match core::mem::replace(&mut operation.waiter, Waiter::Nobody) {
            Waiter::Nobody => {}
            Waiter::Task(task) => self.tasks.wake(task),
            Waiter::Other(waker) => waker.wake(),
        }
    }

    /// The future of a batch is gone, or has taken what it came for.
    pub(super) fn abandon(&mut self, lead: u32) {
        let operation = &mut self.operations[lead];
        operation.is_abandoned = true;
        operation.waiter = Waiter::Nobody;
        if operation.state == State::InFlight && operation.deadline != Deadline::NEVER {
            self.unwatch_deadline(lead);
        }
        let operation = &self.operations[lead];
        if let Work::Receive = operation.work {
            let client = operation.client;
            let was_woken = operation.state == State::Done;
            self.clients[client as usize].mailbox.forget(lead);
            self.operations[lead].remaining = 0;
            if was_woken {
                // The message that woke us is for the next one who waits.
                self.wake_receiver(client);
            }
        }
        if self.operations[lead].remaining == 0 {
            self.operations.remove_batch(lead);
        }
    }
}

/// The public identity of a client. 0 is nobody.
pub(super) fn endpoint_id(client: u32) -> EndpointId {
    EndpointId(u64::from(client) + 1)
}

/// What endpoints ask for beside verbs.
impl World {
    /// Starts a task of a client; gives it back if the client has crashed.
    pub(super) fn spawn(&mut self, task: LocalTask, client: u32) -> Option<LocalTask> {
        if client != NONE && self.clients[client as usize].is_crashed {
            return Some(task);
        }
        let is_paused = client != NONE && self.clients[client as usize].is_paused;
        self.tasks.spawn(task, client, is_paused);
        None
    }

    /// The simulated time at which a client's clock shows `local`.
    pub(super) fn simulated_at(&self, client: u32, local: u64) -> u64 {
        let node = self.clients[client as usize].compute_node;
        self.compute_nodes[node as usize].clock.simulated(local)
    }
}
