//! Pausing a client: it stands still, and what it set in motion does not.
//!
//! On the path: a harness stops a client in the middle of an operation, as SIGSTOP, a page fault or a
//! long preemption does, lets the others go on, and resumes it. Only its tasks stand still. Its verbs
//! in flight take effect and complete, messages fill its mailbox, its deadlines pass; it sees all of
//! that when it is resumed, much later than it happened. That is what sets it apart from a crashed
//! client: it comes back, with what it knew, and does not know how long it was away.

use super::client_of;
use super::world::World;
use super::{Sim, fault};
use crate::message::EndpointId;

impl World {
    pub(super) fn set_paused(&mut self, index: u32, is_paused: bool) {
        let client = &mut self.clients[index as usize];
        if client.is_crashed || client.is_paused == is_paused {
            return;
        }
        client.is_paused = is_paused;
        let code = if is_paused {
            self.tasks.pause(index);
            fault::PAUSE
        } else {
            self.tasks.resume(index);
            fault::RESUME
        };
        self.record_fault(index, 0, code);
    }
}

impl Sim {
    /// Stops a client, as SIGSTOP does: until [`Sim::resume_client`] none of its tasks is polled. Those
    /// that are woken meanwhile run when it is resumed, in the order of waking. A task that pauses its
    /// own client runs up to its next await. A future of the client in [`Sim::block_on`] is no task,
    /// and is not stopped. Does nothing to a client that is paused or has crashed.
    ///
    /// # Panics
    /// If there is no such client.
    pub fn pause_client(&self, endpoint: EndpointId) {
        self.shared.world().set_paused(client_of(endpoint), true);
    }

    /// Lets a paused client go on, as SIGCONT does. Does nothing to a client that is not paused.
    ///
    /// # Panics
    /// If there is no such client.
    pub fn resume_client(&self, endpoint: EndpointId) {
        self.shared.world().set_paused(client_of(endpoint), false);
    }

    /// Whether a client is paused.
    ///
    /// # Panics
    /// If there is no such client.
    #[must_use]
    pub fn is_paused(&self, endpoint: EndpointId) -> bool {
        self.shared.world().clients[client_of(endpoint) as usize].is_paused
    }
}
