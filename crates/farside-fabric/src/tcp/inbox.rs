//! Messages that have arrived at a client and wait to be received.
//!
//! On the path: node 0 pushes messages over the client's connection; `receive` takes them out and
//! tells the node, in turns of [`GRANT_COUNT`], that it may push as many more. The node never pushes
//! more than [`PUSHED_MAX`] without that, so the inbox is bounded; what exceeds it stays in the
//! client's mailbox at the node, and senders learn that it is full.

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
pub(super) struct Inbox {
    messages: RefCell<VecDeque<Received>>,
    arrival: Notify,
    /// Messages taken out since the last grant.
    taken: Cell<u64>,
    is_lost: Cell<bool>,
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
    /// A message has arrived.
    pub(super) fn put(&self, from: EndpointId, message: Message) {
        self.messages.borrow_mut().push_back(Received { from, message });
        self.arrival.notify_one();
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
        let Some(received) = self.messages.borrow_mut().pop_front() else {
            return if self.is_lost.get() { Taken::Lost } else { Taken::Empty };
        };
        let taken = self.taken.get() + 1;
        let grant = if taken >= GRANT_COUNT { taken } else { 0 };
        self.taken.set(taken - grant);
        Taken::Message(received, grant)
    }

    /// Waits until something has changed.
    pub(super) async fn changed(&self) {
        self.arrival.notified().await;
    }
}
