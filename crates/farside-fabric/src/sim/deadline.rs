//! Deadlines: waiting ends at an exact nanosecond, whatever the operations still do.
//!
//! On the path: a batch with a deadline is watched from its posting until it is done. There is one
//! event per client, for its earliest deadline: most verbs complete long before theirs, and an event
//! per verb would fill the queue with deadlines that nobody waits for any more.
//!
//! Invariant: `Client::deadlines` holds exactly the client's batches that are in flight and have a
//! deadline; `Client::deadline_event` is not later than the earliest of them.

use super::operation::{NONE, State, Work};
use super::queue::Event;
use super::trace::Step;
use super::world::{World, endpoint_id};
use crate::addr::NodeId;
use crate::buffer::{Buffer, Memory};
use crate::clock::Deadline;
use crate::error::FabricError;
use crate::verb::Verb;

impl World {
    /// Starts to watch the deadline of a batch.
    pub(super) fn watch_deadline(&mut self, lead: u32, deadline: Deadline) {
        let operation = &mut self.operations[lead];
        operation.deadline = deadline;
        let index = operation.client;
        let client = &mut self.clients[index as usize];
        client.deadlines.push(lead);
        let clock = &self.compute_nodes[client.compute_node as usize].clock;
        let due = clock.simulated(deadline.0).max(self.now);
        if due < client.deadline_event {
            client.deadline_event = due;
            self.queue.push(due, Event::Deadline(index));
        }
    }

    /// Starts to watch the deadline of a wait that is not posted.
    pub(super) fn wait_until(&mut self, lead: u32, deadline: Deadline) {
        if deadline != Deadline::NEVER {
            self.watch_deadline(lead, deadline);
        }
    }

    /// Ends that.
    pub(super) fn unwatch_deadline(&mut self, lead: u32) {
        let deadlines = &mut self.clients[self.operations[lead].client as usize].deadlines;
        let at = deadlines.iter().position(|&other| other == lead);
        deadlines.swap_remove(at.expect("watched since it was posted"));
    }

    /// The deadline event of a client.
    pub(super) fn deadline_due(&mut self, index: u32) {
        let client = &mut self.clients[index as usize];
        if client.deadline_event != self.now {
            return; // An earlier deadline took over, and this event was left behind.
        }
        let local = self.local_now(index);
        let mut waiting = core::mem::take(&mut self.clients[index as usize].deadlines);
        let mut at = 0;
        while at < waiting.len() {
            if self.operations[waiting[at]].deadline.0 <= local {
                let lead = waiting.swap_remove(at);
                self.expire(lead);
            } else {
                at += 1;
            }
        }
        let next = waiting.iter().map(|&lead| self.operations[lead].deadline.0).min();
        let client = &mut self.clients[index as usize];
        client.deadlines = waiting;
        client.deadline_event = u64::MAX;
        if let Some(next) = next {
            let clock = &self.compute_nodes[client.compute_node as usize].clock;
            let due = clock.simulated(next).max(self.now + 1);
            client.deadline_event = due;
            self.queue.push(due, Event::Deadline(index));
        }
    }

    /// The deadline of a batch has passed: its future fails now, whatever its operations still do.
    fn expire(&mut self, lead: u32) {
        self.record(Step::Expired, lead, 0);
        let mut unfinished = lead;
        while self.operations[unfinished].is_executed && self.operations[unfinished].batch_next != NONE {
            unfinished = self.operations[unfinished].batch_next;
        }
        let error = match self.operations[unfinished].work {
            Work::Receive => FabricError::NoMessage,
            Work::Send { peer, .. } => {
                let id = endpoint_id(peer);
                let mailbox = &mut self.clients[peer as usize].mailbox;
                if mailbox.stalled.contains(&lead) {
                    // It was never taken: nothing was sent, and nothing will be.
                    mailbox.forget(lead);
                    self.operations[lead].remaining = 0;
                    FabricError::MailboxFull { peer: id }
                } else {
                    FabricError::PeerUnknown { peer: id }
                }
            }
            _ => {
                let nic = self.operations[unfinished].nic;
                let node = self.nics[nic as usize].node.expect("verbs go to memory nodes");
                let id = NodeId::new(node);
                if self.nodes[node as usize].is_alive {
                    FabricError::DeadlineExceeded { node: id }
                } else {
                    FabricError::NodeGone { node: id }
                }
            }
        };
        if let Work::Receive = self.operations[lead].work {
            let client = self.operations[lead].client;
            self.clients[client as usize].mailbox.forget(lead);
        }
        self.operations[lead].error = Some(error);
        self.settle(lead, State::Failed);
    }

    /// The memory that a failed batch gives back: its own, unless a WRITE still has to be sent
    /// from it; then a copy, so that what the caller does next is not sent.
    pub(super) fn release_memory(&mut self, lead: u32) -> Memory {
        let mut needs_source = false;
        let mut index = lead;
        while index != NONE {
            let operation = &self.operations[index];
            needs_source |= !operation.is_executed && matches!(operation.work, Work::Verb(Verb::Write { .. }));
            index = operation.batch_next;
        }
        let memory = core::mem::take(&mut self.operations[lead].memory);
        if needs_source {
            let mut copy = Buffer::unregistered(memory.bytes().len());
            copy.copy_from_slice(memory.bytes());
            self.operations[lead].memory = copy.take();
        }
        memory
    }

    /// The clock of a compute node has changed: its deadlines lie elsewhere in simulated time.
    pub(super) fn reset_deadlines(&mut self, compute_node: u32) {
        for index in 0..self.clients.len() {
            let client = &mut self.clients[index];
            if client.compute_node == compute_node && !client.deadlines.is_empty() {
                client.deadline_event = self.now;
                self.queue.push(self.now, Event::Deadline(index as u32));
            }
        }
    }
}
