//! An endpoint whose verbs a memory node's process executes on its behalf.
//!
//! On the path: the tcp node has one of these for each connection. It makes the remote client a
//! member of the segment beside the clients that map it: they can send to it and cut it off.
//!
//! Cutting off: a fence first marks the endpoint and then waits until no verb of it is being
//! executed; an execution first says that it is under way and then looks for the mark. So of a
//! fence and an execution that meet, one sees the other.

use core::sync::atomic::Ordering;

use super::error::SegmentError;
use super::registration::Registration;
use super::segment::Segment;
use super::table::Kind;
use crate::clock::Deadline;
use crate::error::FabricError;
use crate::message::{EndpointId, Message, Received};

/// A connected endpoint; leaves the segment when dropped.
#[derive(Debug)]
pub struct Connected {
    registration: Registration,
}

impl Segment {
    /// Lets a client join that reaches the segment through this process. At its home (node 0) it is
    /// given its identity; at the other nodes it says which one that was, and afterwards asks its
    /// home again whether it was cut off meanwhile.
    ///
    /// # Errors
    /// [`SegmentError::TableFull`]; [`SegmentError::CutOff`] if that identity was cut off here.
    pub fn claim_connected(&self, identity: Option<EndpointId>) -> Result<Connected, SegmentError> {
        let registration = Registration::claim(self, Kind::Connected, identity)?;
        if registration.is_fenced() {
            return Err(SegmentError::CutOff {
                path: self.path().to_path_buf(),
                id: registration.id().0,
            });
        }
        Ok(Connected { registration })
    }
}

impl Connected {
    /// Who the client is.
    #[must_use]
    pub fn id(&self) -> EndpointId {
        self.registration.id()
    }

    /// Whether the client was cut off.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.registration.is_fenced()
    }

    /// Begins the execution of verbs, which ends with the guard; `None` if the client was cut off.
    /// Do not wait for anything in between: a fence waits for the end.
    ///
    /// # Panics
    /// If an execution is under way.
    #[inline]
    #[must_use]
    pub fn begin(&self) -> Option<Execution<'_>> {
        let entry = self.registration.entry();
        assert_eq!(entry.busy().swap(1, Ordering::SeqCst), 0, "one execution at a time");
        let execution = Execution {
            registration: &self.registration,
        };
        (!self.registration.is_fenced()).then_some(execution)
    }

    /// Sends a message in the client's name.
    ///
    /// # Errors
    /// [`FabricError::PeerUnknown`], [`FabricError::MailboxFull`].
    pub fn send(&self, peer: EndpointId, message: &Message) -> Result<(), FabricError> {
        self.registration.send(peer, message)
    }

    /// The oldest message for the client, if there is one.
    #[must_use]
    pub fn take(&self) -> Option<Received> {
        self.registration.try_receive()
    }

    /// Takes the oldest message for the client, or waits for one.
    ///
    /// # Errors
    /// [`FabricError::NoMessage`] when the deadline passes first.
    ///
    /// # Panics
    /// If it has to wait for a deadline outside a tokio runtime with its timer enabled.
    pub async fn receive(&self, deadline: Deadline) -> Result<Received, FabricError> {
        self.registration.receive(deadline).await
    }
}

/// The time during which verbs of a connected client are executed.
#[derive(Debug)]
pub struct Execution<'a> {
    registration: &'a Registration,
}

impl Drop for Execution<'_> {
    #[inline]
    fn drop(&mut self) {
        self.registration.entry().busy().store(0, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests;
