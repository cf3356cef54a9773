//! A node's side of one connection, after the hello.
//!
//! On the path: reads frames, executes their verbs on the segment, writes the answers. In each turn:
//!  1. execute every whole frame that has arrived, as long as the answers have room;
//!  2. add what others say of queue pairs, and the messages that have arrived for the client, as far as it has granted;
//!  3. write, with one call for all of it;
//!  4. read again. A client that does not read its answers is not read from either.
//!
//! Invariants:
//! - a session holds at most one input buffer, and [`OUTPUT_BYTES_MAX`] and one frame of output;
//! - who asks the client for a queue pair is announced behind the messages that had arrived before;
//! - verbs are executed only within an [`Execution`](crate::shm::Execution) of the client's entry in
//!   the segment, so that whoever cuts the client off knows when its last verb is done.

use core::cell::{Cell, RefCell};
use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::rc::Rc;

use tokio::io::AsyncWrite;
use tokio::net::TcpStream;
use zerocopy::IntoBytes;

use super::connection::Input;
use super::frame::{self, FRAME_BYTES_MAX, FrameError, Framed, HEADER_BYTES};
use super::frame::{RequestHeader, RequestKind, ResponseKind, Status};
use super::inbox::PUSHED_MAX;
use super::service::Service;
use crate::backend::{Fence, check_verb};
use crate::clock::Deadline;
use crate::error::FabricError;
use crate::message::{EndpointId, Received};
use crate::rdma::{ADDRESS_BYTES, Address, Introduction, IntroductionKind, NodeEnd};
use crate::shm::Connected;
use crate::verb::Verb;

/// How many bytes of answers may wait to be written before frames wait to be executed.
const OUTPUT_BYTES_MAX: usize = 4 * FRAME_BYTES_MAX;
/// How many introductions of a kind may wait for a client. What is dropped is asked for again.
const INTRODUCTIONS_MAX: usize = 4096;
/// How much memory an output keeps once it is empty.
const OUTPUT_BYTES_KEPT: usize = FRAME_BYTES_MAX;

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionEnd {
    #[error("the client closed it")]
    Closed,
    #[error("{0}")]
    Broken(#[from] io::Error),
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error("a verb that no client should send: {0}")]
    Verb(FabricError),
    #[error("this node's memory is reached over RDMA, and the client sends verbs over the connection")]
    VerbsOverRdma,
    #[error("the client wants a queue pair, and this node was started without RDMA")]
    NoRdma,
    #[error("the client was cut off")]
    Fenced,
    #[error("the client connected anew")]
    Replaced,
}

impl SessionEnd {
    /// Whether the client has done something wrong.
    pub(super) fn is_fault(&self) -> bool {
        matches!(
            self,
            Self::Frame(_) | Self::Verb(_) | Self::VerbsOverRdma | Self::NoRdma
        )
    }
}

type Mail = Pin<Box<dyn Future<Output = Result<Received, FabricError>>>>;

fn next_mail(connected: Rc<Connected>) -> Mail {
    Box::pin(async move { connected.receive(Deadline::NEVER).await })
}

/// What others know of a session.
#[derive(Default)]
pub(super) struct SessionHandle {
    introductions: RefCell<Introductions>,
    waker: RefCell<Option<Waker>>,
    is_fenced: Cell<bool>,
    is_replaced: Cell<bool>,
    /// This node's end of the client's queue pair.
    node_end: RefCell<Option<NodeEnd>>,
}

/// What a client is to be told of queue pairs.
#[derive(Default)]
struct Introductions {
    /// Behind all messages.
    asks: VecDeque<(EndpointId, Introduction)>,
    /// At once.
    others: VecDeque<(EndpointId, Introduction)>,
    /// Whom the client has been introduced to.
    peers: BTreeSet<EndpointId>,
}

impl SessionHandle {
    /// Tells the client what `from` says of a queue pair; `from` has to be told when the client is gone.
    pub(super) fn introduce(&self, from: EndpointId, introduction: &Introduction) {
        let introductions = &mut *self.introductions.borrow_mut();
        introductions.peers.insert(from);
        let queue = match introduction.kind() {
            IntroductionKind::Ask => &mut introductions.asks,
            _ => &mut introductions.others,
        };
        if queue.len() < INTRODUCTIONS_MAX {
            queue.push_back((from, *introduction));
        }
        self.wake();
    }

    /// The client's connection has ended: whom it has been introduced to.
    pub(super) fn take_peers(&self) -> BTreeSet<EndpointId> {
        core::mem::take(&mut self.introductions.borrow_mut().peers)
    }

    /// Makes the session look at its mailbox and its marks.
    pub(super) fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// No verb of the client is executed after this.
    pub(super) fn fence(&self) {
        self.is_fenced.set(true);
        self.disconnect();
        self.wake();
    }

    /// Ends the session, since its client has another one.
    pub(super) fn replace(&self) {
        self.is_replaced.set(true);
        self.disconnect();
        self.wake();
    }

    /// Ends the client's queue pair: none of its verbs takes effect after this.
    fn disconnect(&self) {
        self.node_end.take();
    }
}

/// One connection.
pub(super) struct Session {
    service: Rc<Service>,
    connected: Rc<Connected>,
    handle: Rc<SessionHandle>,
    /// Waits for the next message; polled only while some are granted.
    mail: Mail,
    input: Input,
    output: Vec<u8>,
    /// How much of `output` is written.
    written: usize,
    /// How many messages may still be pushed.
    granted: u64,
    holds_whole_frame: bool,
}

impl Session {
    pub(super) fn new(service: Rc<Service>, connected: Rc<Connected>, handle: Rc<SessionHandle>) -> Self {
        Self {
            service,
            mail: next_mail(connected.clone()),
            connected,
            handle,
            input: Input::new(),
            output: Vec::new(),
            written: 0,
            granted: PUSHED_MAX,
            holds_whole_frame: false,
        }
    }

    /// Serves the client until something ends it.
    pub(super) async fn run(mut self, stream: &mut TcpStream) -> SessionEnd {
        let end = poll_fn(|context| match self.poll_turns(context, stream) {
            Poll::Ready(Ok(never)) => match never {},
            Poll::Ready(Err(end)) => Poll::Ready(end),
            Poll::Pending => Poll::Pending,
        });
        let end = end.await;
        self.handle.disconnect();
        if matches!(end, SessionEnd::Fenced) {
            // As far as the socket takes it; the client notices the end in any case.
            frame::put_response(&mut self.output, HEADER_BYTES, 0, ResponseKind::Fenced, Status::Done);
            let _ = poll_fn(|context| Poll::Ready(self.poll_flush(context, stream))).await;
        }
        end
    }

    fn poll_turns(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut TcpStream,
    ) -> Poll<Result<core::convert::Infallible, SessionEnd>> {
        match &mut *self.handle.waker.borrow_mut() {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        loop {
            self.execute_input()?;
            self.push_messages(context);
            match self.poll_flush(context, stream) {
                Poll::Ready(flushed) => flushed?,
                // The client does not read. As long as there is room, it may still ask.
                Poll::Pending if self.has_room() => {}
                Poll::Pending => return Poll::Pending,
            }
            if self.service.is_paused() {
                return Poll::Pending;
            }
            if self.holds_whole_frame {
                continue;
            }
            match self.input.poll_fill(context, stream) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(SessionEnd::Closed)),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn has_room(&self) -> bool {
        self.output.len() - self.written <= OUTPUT_BYTES_MAX
    }

    /// Executes whole frames until there is none, or no room for answers.
    fn execute_input(&mut self) -> Result<(), SessionEnd> {
        self.holds_whole_frame = false;
        if self.handle.is_replaced.get() {
            return Err(SessionEnd::Replaced);
        }
        let connected = self.connected.clone();
        let execution = connected.begin();
        if execution.is_none() || self.handle.is_fenced.get() {
            return Err(SessionEnd::Fenced);
        }
        self.execute_frames()
    }

    fn execute_frames(&mut self) -> Result<(), SessionEnd> {
        while let Framed::Whole(header, end) = frame::split_frame::<RequestHeader>(self.input.bytes())? {
            if self.service.is_paused() || !self.has_room() {
                self.holds_whole_frame = true;
                return Ok(());
            }
            self.execute_frame(&header, end)?;
            self.input.consume(end);
        }
        Ok(())
    }

    #[inline]
    fn execute_frame(&mut self, header: &RequestHeader, end: usize) -> Result<(), SessionEnd> {
        let body = HEADER_BYTES..end;
        let request = header.request.get();
        match RequestKind::from_code(header.kind)? {
            RequestKind::Batch => self.execute_batch(header, end)?,
            RequestKind::Send => {
                let (peer, message) = frame::decode_message(&self.input.bytes()[body])?;
                let status = match self.service.send(&self.connected, peer, &message) {
                    Ok(()) => Status::Done,
                    Err(FabricError::MailboxFull { .. }) => Status::MailboxFull,
                    Err(_) => Status::PeerUnknown,
                };
                self.answer(request, status);
            }
            RequestKind::Fence => {
                let peer = EndpointId(frame::decode_number(&self.input.bytes()[body])?);
                // Who asks is running.
                let is_self = peer == self.connected.id();
                let fence = if is_self {
                    Fence::StillRunning
                } else {
                    self.service.fence(peer)
                };
                let status = match fence {
                    Fence::CutOff => Status::Done,
                    Fence::StillRunning => Status::StillRunning,
                };
                self.answer(request, status);
            }
            RequestKind::Ping => self.answer(request, Status::Done),
            RequestKind::QueuePair => {
                let address = Address::decode(&self.input.bytes()[body]).ok_or(FrameError::Address)?;
                self.connect_queue_pair(request, &address)?;
            }
            RequestKind::Introduce => {
                let (peer, introduction) = frame::decode_introduction(&self.input.bytes()[body])?;
                if introduction.kind() == IntroductionKind::Gone {
                    return Err(FrameError::Introduction.into());
                }
                if self.service.exported().is_none() {
                    return Err(SessionEnd::NoRdma);
                }
                self.service
                    .introduce(self.connected.id(), &self.handle, peer, &introduction);
            }
            RequestKind::Granted => {
                let count = frame::decode_number(&self.input.bytes()[body])?;
                self.granted = self.granted.saturating_add(count).min(PUSHED_MAX);
            }
        }
        Ok(())
    }

    fn answer(&mut self, request: u32, status: Status) {
        frame::put_response(&mut self.output, HEADER_BYTES, request, ResponseKind::Answer, status);
    }

    /// Makes this node's end of the client's queue pair.
    fn connect_queue_pair(&mut self, request: u32, client: &Address) -> Result<(), SessionEnd> {
        let exported = self.service.exported().ok_or(SessionEnd::NoRdma)?;
        // The one before, if there is one, is the client's no longer.
        self.handle.disconnect();
        let mut body = [0; ADDRESS_BYTES];
        match exported.connect(client) {
            Ok((node_end, address)) => {
                body.copy_from_slice(address.as_bytes());
                self.handle.node_end.replace(Some(node_end));
            }
            Err(error) => tracing::warn!("no queue pair for {}: {error}", self.connected.id()),
        }
        let bytes = HEADER_BYTES + ADDRESS_BYTES;
        frame::put_response(&mut self.output, bytes, request, ResponseKind::Answer, Status::Done);
        self.output.extend_from_slice(&body);
        Ok(())
    }

    /// Checks all verbs of the batch, then executes them.
    #[inline]
    fn execute_batch(&mut self, header: &RequestHeader, end: usize) -> Result<(), SessionEnd> {
        if self.service.exported().is_some() {
            // The processor's atomics and the card's are not atomic with each other.
            return Err(SessionEnd::VerbsOverRdma);
        }
        let region = self.service.region();
        let body = self.input.bytes_mut(HEADER_BYTES..end);
        let verbs = frame::decode_verbs(body, header.verb_count)?;
        let mut answer_bytes = HEADER_BYTES;
        for verb in &verbs {
            check_verb(verb, region.bytes(), self.service.capabilities()).map_err(SessionEnd::Verb)?;
            answer_bytes += verb.result_bytes();
        }
        let request = header.request.get();
        frame::put_response(
            &mut self.output,
            answer_bytes,
            request,
            ResponseKind::Answer,
            Status::Done,
        );
        let answer = self.output.len();
        for verb in &verbs {
            match *verb {
                Verb::Read { source, target } => {
                    let at = self.output.len();
                    debug_assert_eq!(at - answer, target.at as usize);
                    self.output.resize(at + target.bytes as usize, 0);
                    region.read(source.offset(), &mut self.output[at..]);
                }
                _ => {
                    let word = region.execute(verb, body);
                    self.output
                        .extend_from_slice(&word.to_le_bytes()[..verb.result_bytes()]);
                }
            }
        }
        Ok(())
    }

    /// Moves messages from the client's mailbox to its connection, and introductions with them.
    fn push_messages(&mut self, context: &mut Context<'_>) {
        let handle = self.handle.clone();
        self.push_introductions(|| handle.introductions.borrow_mut().others.pop_front());
        while self.granted > 0 && self.has_room() && !self.service.is_paused() {
            let Poll::Ready(received) = self.mail.as_mut().poll(context) else {
                // The mailbox is empty.
                self.push_introductions(|| handle.introductions.borrow_mut().asks.pop_front());
                return;
            };
            self.mail = next_mail(self.connected.clone());
            // Without a deadline there is no other outcome than a message.
            if let Ok(received) = received {
                frame::put_message(&mut self.output, received.from, &received.message);
                self.granted -= 1;
            }
        }
    }

    fn push_introductions(&mut self, mut next: impl FnMut() -> Option<(EndpointId, Introduction)>) {
        while self.has_room()
            && !self.service.is_paused()
            && let Some((from, introduction)) = next()
        {
            frame::put_introduction(&mut self.output, from, &introduction);
        }
    }

    fn poll_flush(&mut self, context: &mut Context<'_>, stream: &mut TcpStream) -> Poll<io::Result<()>> {
        while self.written < self.output.len() {
            match Pin::new(&mut *stream).poll_write(context, &self.output[self.written..]) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => self.written += count,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    // Keeps the bound of the invariant: what is written takes no room.
                    self.output.drain(..self.written);
                    self.written = 0;
                    return Poll::Pending;
                }
            }
        }
        self.output.clear();
        self.output.shrink_to(OUTPUT_BYTES_KEPT);
        self.written = 0;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
pub(super) mod tests;
