//! A client's connection to a mirrored node.
//!
//! On the path: as a [`Session`](super::super::session::Session), but what a client sends goes through the member, and no
//! byte of the output leaves before the member lets it: `holds` says up to where, and for which entry.

use core::cell::Cell;
use core::future::poll_fn;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use tokio::io::AsyncWrite;
use tokio::net::TcpStream;

use super::super::connection::Input;
use super::super::frame::{self, FRAME_BYTES_MAX, FrameError, Framed, HEADER_BYTES};
use super::super::frame::{RequestHeader, RequestKind, ResponseKind, Status};
use super::super::inbox::PUSHED_MAX;
use super::super::service::Control;
use super::{Group, Wake};
use crate::backend::check_verb;
use crate::error::FabricError;
use crate::host::HostClock;
use crate::message::EndpointId;
use crate::mirror::{self, Refusal};
use crate::region::Region;

/// How many bytes of answers may wait before frames wait to be executed.
const OUTPUT_BYTES_MAX: usize = 16 * FRAME_BYTES_MAX;

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
pub(in crate::tcp) enum End {
    #[error("the client closed it")]
    Closed,
    #[error("{0}")]
    Broken(#[from] io::Error),
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error("a verb that no client should send: {0}")]
    Verb(FabricError),
    #[error("the client wants a queue pair, and this node is mirrored")]
    Rdma,
    #[error("the client was cut off")]
    Fenced,
    #[error("the client connected anew, or is not known here")]
    Replaced,
    #[error("another node is primary now")]
    NotPrimary,
}

impl End {
    /// Whether the client has done something wrong.
    pub(in crate::tcp) fn is_fault(&self) -> bool {
        matches!(self, Self::Frame(_) | Self::Verb(_) | Self::Rdma)
    }
}

impl From<Refusal> for End {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotPrimary => Self::NotPrimary,
            Refusal::Fenced => Self::Fenced,
            Refusal::Stranger => Self::Replaced,
        }
    }
}

/// What others know of a session.
#[derive(Default)]
pub(in crate::tcp) struct SessionHandle {
    waker: Wake,
    is_over: Cell<bool>,
    /// Whether something waits to be let go: an answer, or perhaps a message.
    waits: Cell<bool>,
}

impl SessionHandle {
    pub(super) fn wake(&self) {
        self.waker.wake();
    }

    pub(super) fn waits(&self) -> bool {
        self.waits.get()
    }

    pub(super) fn end(&self) {
        self.is_over.set(true);
        self.wake();
    }
}

/// How a client comes in: what it has read before.
pub(in crate::tcp) struct Admitted {
    pub(in crate::tcp) id: EndpointId,
    /// How many messages the client has been sent, and how many of them it has not taken out of its inbox.
    pub(in crate::tcp) taken: u64,
    pub(in crate::tcp) ungranted: u64,
}

/// One connection.
pub(in crate::tcp) struct Session {
    group: Rc<Group>,
    control: std::sync::Arc<Control>,
    id: EndpointId,
    handle: Rc<SessionHandle>,
    input: Input,
    /// Answers; `output[..free]` may leave.
    output: Vec<u8>,
    written: usize,
    free: usize,
    /// Where answers end that wait, and for which entry.
    holds: VecDeque<(u64, usize)>,
    /// How many messages have been pushed in the client's life, and how many of them it has taken.
    pushed: u64,
    taken: u64,
    granted: u64,
    /// The epoch of the view that the client was told.
    told_epoch: u64,
    holds_whole_frame: bool,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.group.depart(self.id, &self.handle);
    }
}

impl Session {
    pub(in crate::tcp) fn new(group: Rc<Group>, control: std::sync::Arc<Control>, admitted: &Admitted) -> Self {
        let handle: Rc<SessionHandle> = Rc::default();
        group.insert(admitted.id, handle.clone());
        let told_epoch = group.execute(|member| member.epoch());
        Self {
            group,
            control,
            id: admitted.id,
            handle,
            input: Input::new(),
            output: Vec::new(),
            written: 0,
            free: 0,
            holds: VecDeque::new(),
            pushed: admitted.taken,
            taken: admitted.taken - admitted.ungranted.min(admitted.taken),
            granted: PUSHED_MAX.saturating_sub(admitted.ungranted),
            told_epoch,
            holds_whole_frame: false,
        }
    }

    /// Serves the client until something ends it.
    pub(in crate::tcp) async fn run(mut self, stream: &mut TcpStream) -> End {
        let end = poll_fn(|context| match self.poll_turns(context, stream) {
            Poll::Ready(Ok(never)) => match never {},
            Poll::Ready(Err(end)) => Poll::Ready(end),
            Poll::Pending => Poll::Pending,
        });
        let end = end.await;
        if matches!(end, End::Fenced) {
            // Behind what has left, as far as the socket takes it.
            self.output.truncate(self.free);
            frame::put_response(&mut self.output, HEADER_BYTES, 0, ResponseKind::Fenced, Status::Done);
            self.free = self.output.len();
            let _ = poll_fn(|context| Poll::Ready(self.poll_flush(context, stream))).await;
        }
        end
    }

    fn poll_turns(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut TcpStream,
    ) -> Poll<Result<core::convert::Infallible, End>> {
        self.handle.waker.register(context.waker());
        loop {
            if self.control.is_paused() {
                return Poll::Pending;
            }
            self.execute_input()?;
            self.tell_view()?;
            self.push_messages();
            self.let_go();
            let has_letters = self.group.execute(|member| member.has_letters(self.id, self.pushed));
            self.handle.waits.set(has_letters || !self.holds.is_empty());
            match self.poll_flush(context, stream) {
                Poll::Ready(flushed) => flushed?,
                Poll::Pending if self.has_room() => {}
                Poll::Pending => return Poll::Pending,
            }
            if self.holds_whole_frame {
                if !self.has_room() {
                    // Woken when something may leave.
                    return Poll::Pending;
                }
                continue;
            }
            match self.input.poll_fill(context, stream) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(End::Closed)),
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
    fn execute_input(&mut self) -> Result<(), End> {
        self.holds_whole_frame = false;
        if self.handle.is_over.get() {
            let is_fenced = self.group.execute(|member| member.ping(self.id)) == Err(Refusal::Fenced);
            return Err(if is_fenced { End::Fenced } else { End::Replaced });
        }
        let mut has_executed = false;
        while let Framed::Whole(header, end) = frame::split_frame::<RequestHeader>(self.input.bytes())? {
            if !self.has_room() {
                self.holds_whole_frame = true;
                break;
            }
            self.execute_frame(&header, end)?;
            self.input.consume(end);
            has_executed = true;
        }
        if has_executed {
            self.group.executed();
        }
        Ok(())
    }

    fn execute_frame(&mut self, header: &RequestHeader, end: usize) -> Result<(), End> {
        let body = HEADER_BYTES..end;
        let request = header.request.get();
        let answered = request.wrapping_sub(header.behind.get().into());
        let id = self.id;
        let hold = match RequestKind::from_code(header.kind)? {
            RequestKind::Batch => self.execute_batch(header, end, answered)?,
            RequestKind::Send => {
                let (peer, message) = frame::decode_message(&self.input.bytes()[body])?;
                let sent = self
                    .group
                    .execute(|member| member.send(id, request, answered, peer, &message))?;
                let status = match sent.answer {
                    mirror::Status::Done => Status::Done,
                    mirror::Status::PeerUnknown => Status::PeerUnknown,
                    mirror::Status::MailboxFull => Status::MailboxFull,
                };
                frame::put_response(&mut self.output, HEADER_BYTES, request, ResponseKind::Answer, status);
                if let Some(peer) = self.group.sessions.borrow().get(&peer) {
                    peer.wake();
                }
                sent.hold
            }
            RequestKind::Fence => {
                let peer = EndpointId(frame::decode_number(&self.input.bytes()[body])?);
                // Who asks is running.
                let (status, hold) = if peer == id {
                    (Status::StillRunning, self.group.execute(|member| member.ping(id))?.hold)
                } else {
                    let fenced = self.group.execute(|member| member.fence(id, request, answered, peer))?;
                    self.group.cut_off(peer);
                    (Status::Done, fenced.hold)
                };
                frame::put_response(&mut self.output, HEADER_BYTES, request, ResponseKind::Answer, status);
                hold
            }
            RequestKind::Ping => {
                let hold = self.group.execute(|member| member.ping(id))?.hold;
                frame::put_response(
                    &mut self.output,
                    HEADER_BYTES,
                    request,
                    ResponseKind::Answer,
                    Status::Done,
                );
                hold
            }
            RequestKind::QueuePair | RequestKind::Introduce => return Err(End::Rdma),
            RequestKind::Granted => {
                let count = frame::decode_number(&self.input.bytes()[body])?;
                self.granted = self.granted.saturating_add(count).min(PUSHED_MAX);
                self.taken = self.taken.saturating_add(count).min(self.pushed);
                self.group.execute(|member| member.took(id, self.taken))?
            }
        };
        if self.output.len() > self.holds.back().map_or(self.free, |&(_, end)| end) {
            self.holds.push_back((hold, self.output.len()));
        }
        Ok(())
    }

    /// Checks all verbs of the batch, then executes them.
    fn execute_batch(&mut self, header: &RequestHeader, end: usize, answered: u32) -> Result<u64, End> {
        let request = header.request.get();
        let body = self.input.bytes_mut(HEADER_BYTES..end);
        let verbs = frame::decode_verbs(body, header.verb_count)?;
        let (id, output) = (self.id, &mut self.output);
        let executed = self.group.execute(|member| {
            let mut bytes = HEADER_BYTES;
            for verb in &verbs {
                check_verb(verb, member.memory().bytes(), Region::capabilities()).map_err(End::Verb)?;
                bytes += verb.result_bytes();
            }
            frame::put_response(output, bytes, request, ResponseKind::Answer, Status::Done);
            member
                .execute(id, request, answered, &verbs, body, output)
                .map_err(End::from)
        })?;
        Ok(executed.hold)
    }

    /// Tells the client who is in the group, if that has changed.
    fn tell_view(&mut self) -> Result<(), End> {
        let (epoch, is_primary) = self.group.execute(|member| (member.epoch(), member.is_primary()));
        if !is_primary {
            return Err(End::NotPrimary);
        }
        if epoch != self.told_epoch {
            self.told_epoch = epoch;
            let mut view = Vec::new();
            self.group.execute(|member| member.put_view(&mut view));
            let bytes = HEADER_BYTES + view.len();
            frame::put_response(&mut self.output, bytes, 0, ResponseKind::View, Status::Done);
            self.output.extend_from_slice(&view);
            self.hold_back(0);
        }
        Ok(())
    }

    /// What was appended to the output since waits for this entry, behind what waits already.
    fn hold_back(&mut self, hold: u64) {
        self.holds.push_back((hold, self.output.len()));
    }

    /// Moves messages to the connection, as far as the client has granted.
    fn push_messages(&mut self) {
        let now_ns = HostClock.now_ns();
        while self.granted > 0
            && self.has_room()
            && let Some((from, message)) = self.group.execute(|member| member.letter(now_ns, self.id, self.pushed))
        {
            frame::put_message(&mut self.output, from, &message);
            self.hold_back(0);
            self.pushed += 1;
            self.granted -= 1;
        }
    }

    /// Answers that the member lets go may leave.
    fn let_go(&mut self) {
        let Some(released) = self.group.released_now() else {
            return;
        };
        while let Some(&(hold, end)) = self.holds.front()
            && hold <= released
        {
            self.free = end;
            self.holds.pop_front();
        }
    }

    fn poll_flush(&mut self, context: &mut Context<'_>, stream: &mut TcpStream) -> Poll<io::Result<()>> {
        while self.written < self.free {
            let rest = &self.output[self.written..self.free];
            let count = match Pin::new(&mut *stream).poll_write(context, rest) {
                Poll::Ready(count) => count?,
                Poll::Pending => {
                    self.forget_written();
                    return Poll::Pending;
                }
            };
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += count;
        }
        self.forget_written();
        Poll::Ready(Ok(()))
    }

    /// What is written takes no room.
    fn forget_written(&mut self) {
        if self.written == self.output.len() {
            self.output.clear();
        } else if self.written > OUTPUT_BYTES_MAX / 4 {
            self.output.drain(..self.written);
        } else {
            return;
        }
        for (_, end) in &mut self.holds {
            *end -= self.written;
        }
        self.free -= self.written;
        self.written = 0;
    }
}
