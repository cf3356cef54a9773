//! The frames that go over a connection, and how a batch of verbs is put into them.
//!
//! On the path: a client encodes a batch with a [`RequestWriter`]; a node decodes each frame with
//! [`decode_verbs`], checks all of it, executes it and appends the answer. Both are in `batch`. All
//! numbers are little-endian; every struct here and there is the layout of the bytes.
//!
//! ```text
//! request   = RequestHeader  body     Batch: (VerbHead operands payload)*   Send: MessageHead payload
//!                                     Fence, Granted: one number            Ping: nothing
//!                                     QueuePair: where the client's is      Introduce: MessageHead Introduction
//! response  = ResponseHeader body     Answer: results in verb order: the bytes of READs, words, wide words
//!                                     or where the node's queue pair is
//!                                     Message: MessageHead payload          Fenced: nothing
//!                                     Introduction: MessageHead Introduction
//!                                     View: a mirrored group's view
//! ```
//!
//! A node answers the requests of one connection in the order in which they came, so the results of
//! a batch that needed several frames are simply the bytes of their answers, one after the other.
//!
//! Invariants:
//! - no frame, either way, is longer than [`FRAME_BYTES_MAX`]: a long READ or WRITE travels as
//!   several verbs. That is no loss, since it may tear anyway; but only between words, so the cuts are
//!   at addresses that are multiples of 8;
//! - nothing of a frame takes effect before all of it was decoded and checked.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::batch::BATCH_VERBS_MAX;
use crate::message::{EndpointId, MESSAGE_BYTES_MAX, Message};
use crate::rdma::Introduction;

/// The longest frame, header included.
pub(super) const FRAME_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a [`RequestHeader`] and of a [`ResponseHeader`].
pub(super) const HEADER_BYTES: usize = size_of::<RequestHeader>();
const _: () = assert!(HEADER_BYTES == size_of::<ResponseHeader>());

/// What is wrong with a frame. The connection that sent it is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum FrameError {
    #[error("a frame of {bytes} bytes; they have {HEADER_BYTES} to {FRAME_BYTES_MAX}")]
    Length { bytes: u32 },
    #[error("a frame ends in the middle of its {what}")]
    Truncated { what: &'static str },
    #[error("a frame continues after its last field")]
    Trailing,
    #[error("{what} number {code} does not exist")]
    Unknown { what: &'static str, code: u8 },
    #[error("a batch of {count} verbs; they have 1 to {BATCH_VERBS_MAX}")]
    VerbCount { count: u8 },
    #[error("a batch whose answer would be longer than {FRAME_BYTES_MAX} bytes")]
    AnswerLength,
    #[error("an address that no queue pair can have")]
    Address,
    #[error("a malformed introduction")]
    Introduction,
    #[error("a message of {bytes} bytes; they have 0 to {MESSAGE_BYTES_MAX}")]
    MessageLength { bytes: usize },
}

/// Opens every frame of a client.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RequestHeader {
    /// The whole frame, this header included.
    pub(super) bytes: U32,
    /// Counts the client's requests, so that both sides notice when they disagree.
    pub(super) request: U32,
    /// A [`RequestKind`].
    pub(super) kind: u8,
    /// How many verbs a batch has; 0 for other kinds.
    pub(super) verb_count: u8,
    /// How many requests before this one had no answer when it was sent.
    pub(super) behind: U16,
}

/// Opens every frame of a node.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct ResponseHeader {
    /// The whole frame, this header included.
    pub(super) bytes: U32,
    /// The request that is answered; 0 in frames that answer none.
    pub(super) request: U32,
    /// A [`ResponseKind`].
    pub(super) kind: u8,
    /// A [`Status`], in answers.
    pub(super) status: u8,
    pub(super) reserved: U16,
}

/// Numbers on the wire with a name each.
macro_rules! codes {
    ($(#[$meta:meta])* $name:ident, $what:literal { $($(#[$doc:meta])* $case:ident = $code:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub(super) enum $name {
            $($(#[$doc])* $case = $code,)*
        }

        impl $name {
            #[inline]
            pub(super) fn from_code(code: u8) -> Result<Self, FrameError> {
                match code {
                    $($code => Ok(Self::$case),)*
                    _ => Err(FrameError::Unknown { what: $what, code }),
                }
            }
        }
    };
}

codes! {
    /// What a client wants.
    RequestKind, "request kind" {
        /// Verbs, executed in order.
        Batch = 1,
        /// A message to another endpoint.
        Send = 2,
        /// That another endpoint is cut off.
        Fence = 3,
        /// To know that the node is there.
        Ping = 4,
        /// To get so many messages more. Not answered.
        Granted = 5,
        /// A queue pair for its own, whose address the body is; the answer's body is the node's, all zero if there is none.
        QueuePair = 6,
        /// To tell another endpoint of a queue pair for messages. Not answered.
        Introduce = 7,
    }
}

codes! {
    /// What a node says.
    ResponseKind, "response kind" {
        /// The results of a request.
        Answer = 1,
        /// A message from another endpoint.
        Message = 2,
        /// The client was cut off; the node closes the connection.
        Fenced = 3,
        /// What another endpoint says of a queue pair for messages, or the node of another endpoint.
        Introduction = 4,
        /// Who is in the node's mirrored group now.
        View = 5,
    }
}

codes! {
    /// What became of a request.
    Status, "status" {
        Done = 0,
        /// SEND: nobody has this identity.
        PeerUnknown = 1,
        /// SEND: the peer takes no messages out.
        MailboxFull = 2,
        /// FENCE: the peer maps the memory and its process runs.
        StillRunning = 3,
    }
}

mod batch;

pub(super) use batch::{RequestWriter, decode_verbs};

/// Opens the body of a SEND and of a message that is delivered, or of an introduction; what is delivered follows.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct MessageHead {
    /// To whom it goes; from whom it comes when it is delivered.
    peer: U64,
}

/// The body of a FENCE (whom) and of a GRANTED (how many).
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct NumberBody {
    number: U64,
}

/// Reads one field after the other, never beyond the end.
struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    #[inline]
    fn take<T: FromBytes + Unaligned>(&mut self, what: &'static str) -> Result<T, FrameError> {
        let field = self.take_bytes(size_of::<T>(), what)?;
        T::read_from_bytes(field).map_err(|_| FrameError::Truncated { what })
    }

    #[inline]
    fn take_bytes(&mut self, count: usize, what: &'static str) -> Result<&'a [u8], FrameError> {
        let rest = &self.bytes[self.at..];
        let field = rest.get(..count).ok_or(FrameError::Truncated { what })?;
        self.at += count;
        Ok(field)
    }

    #[inline]
    fn end(self) -> Result<(), FrameError> {
        if self.at == self.bytes.len() {
            Ok(())
        } else {
            Err(FrameError::Trailing)
        }
    }
}

/// What the input begins with.
pub(super) enum Framed<H> {
    /// A whole frame: its header, and where it ends.
    Whole(H, usize),
    /// A part of one.
    Partial,
}

/// Looks for a whole frame at the beginning of `input`. The length is checked as soon as it is
/// there, before anybody makes room for the rest.
#[inline]
pub(super) fn split_frame<H>(input: &[u8]) -> Result<Framed<H>, FrameError>
where
    H: FromBytes + Unaligned + KnownLayout + Immutable,
{
    const { assert!(size_of::<H>() == HEADER_BYTES) };
    let Some(length) = input.first_chunk::<4>() else {
        return Ok(Framed::Partial);
    };
    let bytes = u32::from_le_bytes(*length);
    if (bytes as usize) < HEADER_BYTES || bytes as usize > FRAME_BYTES_MAX {
        return Err(FrameError::Length { bytes });
    }
    match H::read_from_prefix(input) {
        Ok((header, _)) if input.len() >= bytes as usize => Ok(Framed::Whole(header, bytes as usize)),
        _ => Ok(Framed::Partial),
    }
}

/// Appends a request that is no batch.
fn put_request(output: &mut Vec<u8>, request: u32, kind: RequestKind, body: [&[u8]; 2]) {
    let header = RequestHeader {
        bytes: U32::new((HEADER_BYTES + body[0].len() + body[1].len()) as u32),
        request: U32::new(request),
        kind: kind as u8,
        verb_count: 0,
        behind: U16::ZERO,
    };
    output.extend_from_slice(header.as_bytes());
    output.extend_from_slice(body[0]);
    output.extend_from_slice(body[1]);
}

/// Says of the request that `output` has from `start` on how many requests before it have no answer.
pub(super) fn set_behind(output: &mut [u8], start: usize, behind: u16) {
    let at = start + core::mem::offset_of!(RequestHeader, behind);
    output[at..at + 2].copy_from_slice(&behind.to_le_bytes());
}

/// Appends a SEND.
pub(super) fn put_send(output: &mut Vec<u8>, request: u32, peer: EndpointId, message: &[u8]) {
    put_request(
        output,
        request,
        RequestKind::Send,
        [U64::new(peer.0).as_bytes(), message],
    );
}

/// Appends a FENCE.
pub(super) fn put_fence(output: &mut Vec<u8>, request: u32, peer: EndpointId) {
    put_request(output, request, RequestKind::Fence, [U64::new(peer.0).as_bytes(), &[]]);
}

/// Appends a PING.
pub(super) fn put_ping(output: &mut Vec<u8>, request: u32) {
    put_request(output, request, RequestKind::Ping, [&[], &[]]);
}

/// Appends a QUEUEPAIR.
pub(super) fn put_queue_pair(output: &mut Vec<u8>, request: u32, address: &[u8]) {
    put_request(output, request, RequestKind::QueuePair, [address, &[]]);
}

/// Appends a GRANTED.
pub(super) fn put_granted(output: &mut Vec<u8>, messages: u64) {
    put_request(output, 0, RequestKind::Granted, [U64::new(messages).as_bytes(), &[]]);
}

/// Appends an INTRODUCE.
pub(super) fn put_introduce(output: &mut Vec<u8>, peer: EndpointId, introduction: &Introduction) {
    let head = MessageHead { peer: U64::new(peer.0) };
    let body = [head.as_bytes(), introduction.as_bytes()];
    put_request(output, 0, RequestKind::Introduce, body);
}

/// Appends a message that is delivered.
pub(super) fn put_message(output: &mut Vec<u8>, from: EndpointId, message: &[u8]) {
    put_delivery(output, ResponseKind::Message, from, message);
}

/// Appends an introduction that is delivered.
pub(super) fn put_introduction(output: &mut Vec<u8>, from: EndpointId, introduction: &Introduction) {
    put_delivery(output, ResponseKind::Introduction, from, introduction.as_bytes());
}

fn put_delivery(output: &mut Vec<u8>, kind: ResponseKind, from: EndpointId, delivered: &[u8]) {
    let head = MessageHead { peer: U64::new(from.0) };
    let bytes = HEADER_BYTES + size_of::<MessageHead>() + delivered.len();
    put_response(output, bytes, 0, kind, Status::Done);
    output.extend_from_slice(head.as_bytes());
    output.extend_from_slice(delivered);
}

/// Appends a response's header; the caller adds `bytes - HEADER_BYTES` bytes of body.
#[inline]
pub(super) fn put_response(output: &mut Vec<u8>, bytes: usize, request: u32, kind: ResponseKind, status: Status) {
    let header = ResponseHeader {
        bytes: U32::new(bytes as u32),
        request: U32::new(request),
        kind: kind as u8,
        status: status as u8,
        reserved: U16::ZERO,
    };
    output.extend_from_slice(header.as_bytes());
}

/// The body of a SEND or of a delivered message.
pub(super) fn decode_message(body: &[u8]) -> Result<(EndpointId, Message), FrameError> {
    let mut fields = Fields { bytes: body, at: 0 };
    let head: MessageHead = fields.take("message")?;
    let bytes = &body[fields.at..];
    let message = Message::try_from(bytes).map_err(|_| FrameError::MessageLength { bytes: bytes.len() })?;
    Ok((EndpointId(head.peer.get()), message))
}

/// The body of an INTRODUCE or of a delivered introduction.
pub(super) fn decode_introduction(body: &[u8]) -> Result<(EndpointId, Introduction), FrameError> {
    let mut fields = Fields { bytes: body, at: 0 };
    let head: MessageHead = fields.take("introduction")?;
    let introduction = Introduction::decode(&body[fields.at..]).ok_or(FrameError::Introduction)?;
    Ok((EndpointId(head.peer.get()), introduction))
}

/// The body of a FENCE or of a GRANTED.
pub(super) fn decode_number(body: &[u8]) -> Result<u64, FrameError> {
    let mut fields = Fields { bytes: body, at: 0 };
    let body: NumberBody = fields.take("number")?;
    fields.end()?;
    Ok(body.number.get())
}

#[cfg(test)]
mod tests;
