//! Messages that have arrived at a client and wait to be received.
//!
//! On the path: node 0 pushes messages over the client's connection; `receive` takes them out and
//! tells the node, in turns of [`GRANT_COUNT`], that it may push as many more. The node never pushes
//! more than [`PUSHED_MAX`] without that, so the inbox is bounded; what exceeds it stays in the
//! client's mailbox at the node, and senders learn that it is full. What this machine's network card
//! receives comes here as well; its bound is kept by who brings it ([`rdma`](crate::rdma)).

use core::cell::{Cell, RefCell};
use std::collections::VecDeque;

use tokio::sync::Notify;

use crate::addr::NodeId;
use crate::message::{EndpointId, Message, Received};

/// How many messages a node pushes before it waits to be granted more.
pub(super) const PUSHED_MAX: u64 = 64;
/// After how many received messages a client grants as many more.
pub(super) const GRANT_COUNT: u64 = PUSHED_MAX / 2;

/// The messages of one endpoint.
#[derive(Default)]
pub(crate) struct Inbox {
    messages: RefCell<VecDeque<Arrived>>,
    arrival: Notify,
    /// Messages that were pushed, taken out since the last grant.
    taken: Cell<u64>,
    is_lost: Cell<bool>,
}

struct Arrived {
    received: Received,
    /// Whether the node has pushed it.
    is_pushed: bool,
}

/// What [`Inbox::take`] finds.
pub(super) enum Taken {
    /// A message, and how many more the node may be granted (0: not yet).
    Message(Received, u64),
    /// None, and none will come.
    Lost,
    /// None yet.
    Empty,
}

impl Inbox {
    /// The node has pushed a message.
    pub(super) fn put(&self, from: EndpointId, message: Message) {
        self.put_arrived(from, message, true);
    }

    /// The network card has received a message.
    pub(crate) fn put_from_card(&self, from: EndpointId, message: Message) {
        self.put_arrived(from, message, false);
    }

    fn put_arrived(&self, from: EndpointId, message: Message, is_pushed: bool) {
        let received = Received { from, message };
        self.messages.borrow_mut().push_back(Arrived { received, is_pushed });
        self.arrival.notify_one();
    }

    /// How many messages wait.
    pub(crate) fn len(&self) -> usize {
        self.messages.borrow().len()
    }

    /// A connection has broken. Messages come from node 0.
    pub(super) fn node_lost(&self, node: NodeId) {
        if node == NodeId::new(0) {
            self.is_lost.set(true);
            self.arrival.notify_waiters();
        }
    }

    /// Node 0 is there again, and has forgotten what it was granted.
    pub(super) fn node_found(&self) {
        self.is_lost.set(false);
        self.taken.set(0);
    }

    /// The oldest message.
    pub(super) fn take(&self) -> Taken {
        let Some(Arrived { received, is_pushed }) = self.messages.borrow_mut().pop_front() else {
            return if self.is_lost.get() { Taken::Lost } else { Taken::Empty };
        };
        let taken = self.taken.get() + u64::from(is_pushed);
        let grant = if taken >= GRANT_COUNT { taken } else { 0 };
        self.taken.set(taken - grant);
        Taken::Message(received, grant)
    }

    /// Waits until something has changed.
    pub(super) async fn changed(&self) {
        self.arrival.notified().await;
    }
}

#[cfg(test)]
mod tests;
