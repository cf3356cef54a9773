//! Mailboxes: two-sided messages at their receiver.
//!
//! On the path: a SEND was executed by the receiver's NIC like a WRITE; here it becomes a message
//! that somebody takes out. If the mailbox is full it waits there, in order, as a NIC whose receiver
//! is not ready tries again; the sender's completion waits with it.
//!
//! A message is seen `message_ns` after it was written: its receiver polls for it, finds out whose it is, and hands it on.
//!
//! Invariants:
//! - while a message waits for room the mailbox is full;
//! - a receiver that waits is woken by each message, one receiver per message. It takes the message
//!   out when it runs, so that a receiver that is dropped in between loses none.

use std::collections::VecDeque;

use super::operation::{NONE, Work};
use super::queue::Event;
use super::trace::Step;
use super::world::{World, endpoint_id};
use crate::error::FabricError;
use crate::message::{Message, Received};

/// What has arrived for a client, what waits for room, and who waits for something to arrive.
#[derive(Default, Debug)]
pub(super) struct Mailbox {
    pub(super) messages: VecDeque<Received>,
    /// What the receiver does not see yet, each with its event.
    pub(super) unseen: VecDeque<Received>,
    /// Operations whose message does not fit yet.
    pub(super) stalled: VecDeque<u32>,
    /// Operations of kind `Receive`.
    pub(super) receivers: VecDeque<u32>,
}

impl Mailbox {
    /// How many messages take room.
    fn count(&self) -> usize {
        self.messages.len() + self.unseen.len()
    }

    /// Takes an operation out of both waiting lists.
    pub(super) fn forget(&mut self, operation: u32) {
        debug_assert!(operation != NONE);
        self.stalled.retain(|&other| other != operation);
        self.receivers.retain(|&other| other != operation);
    }
}

impl World {
    /// A message is in the receiver's memory: it goes to the mailbox, or waits for room there.
    pub(super) fn deliver(&mut self, index: u32) {
        let operation = &mut self.operations[index];
        operation.is_executed = true;
        let Work::Send { peer, message } = &operation.work else {
            unreachable!("only messages are delivered")
        };
        let (peer, message, from) = (*peer, message.clone(), operation.client);
        let receiver = &mut self.clients[peer as usize];
        if receiver.is_crashed || receiver.is_closed {
            self.operations[index].error = Some(FabricError::PeerUnknown {
                peer: endpoint_id(peer),
            });
            return self.acknowledge(index);
        }
        let has_room = receiver.mailbox.count() < self.options.mailbox_messages;
        if !has_room || !receiver.mailbox.stalled.is_empty() {
            // Receiver not ready: the sender's NIC tries again until there is room.
            receiver.mailbox.stalled.push_back(index);
            return;
        }
        self.accept_message(index, peer, from, message);
    }

    /// Room was made in a mailbox.
    pub(super) fn accept_stalled(&mut self, peer: u32) {
        let mailbox = &mut self.clients[peer as usize].mailbox;
        if mailbox.count() < self.options.mailbox_messages
            && let Some(index) = mailbox.stalled.pop_front()
        {
            let operation = &self.operations[index];
            let Work::Send { message, .. } = &operation.work else {
                unreachable!("only messages stall")
            };
            let (from, message) = (operation.client, message.clone());
            self.accept_message(index, peer, from, message);
        }
    }

    fn accept_message(&mut self, index: u32, peer: u32, from: u32, message: Message) {
        self.record(Step::Delivered, index, message.len() as u64);
        let from = endpoint_id(from);
        let mailbox = &mut self.clients[peer as usize].mailbox;
        mailbox.unseen.push_back(Received { from, message });
        match self.options.profile.message_ns {
            _ if self.stepping.is_some() => self.see_message(peer),
            0 => self.see_message(peer),
            message_ns => self.queue.push(self.now + message_ns, Event::Seen(peer)),
        }
        self.acknowledge(index);
    }

    /// A client sees the oldest message that it has not seen yet.
    pub(super) fn see_message(&mut self, client: u32) {
        let mailbox = &mut self.clients[client as usize].mailbox;
        if let Some(received) = mailbox.unseen.pop_front() {
            mailbox.messages.push_back(received);
            self.wake_receiver(client);
        }
    }

    /// Answers a message.
    pub(super) fn acknowledge(&mut self, index: u32) {
        if self.stepping.is_some() {
            return self.answer(index);
        }
        let operation = &self.operations[index];
        let bytes = u64::from(operation.reply_bytes);
        let nic = &mut self.nics[operation.nic as usize];
        nic.statistics.bytes_out += bytes;
        let left = nic.sending.acknowledge(self.now, bytes);
        self.send_reply(index, left);
    }

    /// Takes the oldest message of a client, and makes room for one that waited.
    pub(super) fn take_message(&mut self, client: u32) -> Option<Received> {
        let received = self.clients[client as usize].mailbox.messages.pop_front()?;
        self.accept_stalled(client);
        Some(received)
    }

    /// Wakes one receiver of a client that has messages.
    pub(super) fn wake_receiver(&mut self, client: u32) {
        let mailbox = &mut self.clients[client as usize].mailbox;
        if mailbox.messages.is_empty() {
            return;
        }
        if let Some(lead) = mailbox.receivers.pop_front() {
            self.finish_one(lead);
        }
    }

    /// The last handle of a client is gone: who sends to it is told so.
    pub(super) fn close_client(&mut self, index: u32) {
        let client = &mut self.clients[index as usize];
        client.is_closed = true;
        client.mailbox.messages.clear();
        client.mailbox.unseen.clear();
        for operation in core::mem::take(&mut client.mailbox.stalled) {
            let peer = endpoint_id(index);
            self.operations[operation].error = Some(FabricError::PeerUnknown { peer });
            self.acknowledge(operation);
        }
    }
}
