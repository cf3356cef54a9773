//! Two-sided messages between endpoints: SEND and RECEIVE.
//!
//! On the path: locks that hand over from client to client, and results of combined operations,
//! travel as messages; they never touch far memory. Messages are short and copied; those of one
//! sender to one receiver arrive in order, each at most once. A message to an endpoint that is gone
//! is an error at best and lost at worst: whoever waits for one has a deadline.

use core::fmt;

use arrayvec::ArrayVec;

/// How many bytes one message carries at most.
pub const MESSAGE_BYTES_MAX: usize = 64;

/// The bytes of a message.
pub type Message = ArrayVec<u8, MESSAGE_BYTES_MAX>;

/// Who sends and receives: one client of a fabric. Never reused while the fabric lives, so that a
/// late message cannot reach a newcomer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EndpointId(pub u64);

impl fmt::Display for EndpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "endpoint {}", self.0)
    }
}

/// A message that arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Received {
    /// Who sent it.
    pub from: EndpointId,
    /// What it says.
    pub message: Message,
}
