//! Errors on the way to far memory.

use crate::addr::{NodeId, RemoteAddr};
use crate::message::EndpointId;

/// A verb or message failed. Each case names the node, address or peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// The verb would touch bytes outside the node's memory. Nothing was posted.
    #[error("{bytes} bytes at {addr} are outside the node's {node_bytes} bytes")]
    OutOfBounds {
        /// The first byte that the verb names.
        addr: RemoteAddr,
        /// How many bytes it touches.
        bytes: u64,
        /// How many bytes the node has.
        node_bytes: u64,
    },
    /// An atomic or word verb on an address that is not a multiple of its size. Nothing was posted.
    #[error("{addr} is not a multiple of {alignment}")]
    Misaligned {
        /// The address.
        addr: RemoteAddr,
        /// What it must be a multiple of.
        alignment: u64,
    },
    /// The pool of the endpoint has no such node.
    #[error("{node} is not part of this pool")]
    NodeUnknown {
        /// The node named by the address.
        node: NodeId,
    },
    /// The node is gone: closed, crashed, or its link is down. The effects of verbs in flight are unknown.
    #[error("{node} is gone")]
    NodeGone {
        /// The node.
        node: NodeId,
    },
    /// The verb did not complete before its deadline. It may have taken effect, or still may do so later.
    #[error("{node} did not answer before the deadline")]
    DeadlineExceeded {
        /// The node that was asked.
        node: NodeId,
    },
    /// No message arrived before the deadline.
    #[error("no message arrived before the deadline")]
    NoMessage,
    /// The backend lacks the verb; see [`Capabilities`](crate::Capabilities).
    #[error("this fabric has no {verb}")]
    Unsupported {
        /// The verb's name.
        verb: &'static str,
    },
    /// There is no endpoint with this identity to receive the message.
    #[error("no {peer} is connected")]
    PeerUnknown {
        /// The identity.
        peer: EndpointId,
    },
    /// The peer does not take its messages out of its full mailbox; nothing was sent.
    #[error("the mailbox of {peer} is full")]
    MailboxFull {
        /// The peer.
        peer: EndpointId,
    },
    /// This endpoint was cut off by [`Endpoint::fence`](crate::Endpoint::fence): its verbs have no
    /// effect any more.
    #[error("this client was cut off from {node}")]
    Fenced {
        /// The node that refused.
        node: NodeId,
    },
    /// The local memory of a verb cannot be registered with the network card. Nothing was posted.
    #[error("a buffer cannot be registered for verbs to {node}: raise the limit of locked memory (ulimit -l)")]
    Unregistered {
        /// The node that the verb was for.
        node: NodeId,
    },
    /// The node broke the wire protocol.
    #[error("{node} broke the protocol: {reason}")]
    Protocol {
        /// The node.
        node: NodeId,
        /// What was wrong.
        reason: &'static str,
    },
}

/// A memory node cannot be used beside those that an endpoint reaches already.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("cannot reach {node} at {place}: {reason}")]
pub struct AttachError {
    /// The number that it would have.
    pub node: NodeId,
    /// Where it should be.
    pub place: String,
    /// Why not, and what would be right.
    pub reason: String,
}

impl AttachError {
    /// For this reason.
    pub fn new(node: NodeId, place: &str, reason: impl ToString) -> Self {
        Self {
            node,
            place: place.to_owned(),
            reason: reason.to_string(),
        }
    }
}
