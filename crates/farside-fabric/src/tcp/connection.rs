//! A client's connection to one node.
//!
//! On the path: a post appends frames to [`Connection`]'s output and goes away to wait; a task of
//! the connection, the driver, does all reading and writing:
//!  1. the first post of a turn wakes the driver, which runs after the other ready tasks have posted
//!     too: what they posted goes out with one write;
//!  2. the driver reads what there is, gives each answer to its operation, and wakes whoever is done.
//!     A task that waits for many operations is woken once.
//!
//! Answers come in the order of the requests, so the requests in flight are a queue. When the
//! connection breaks all of them fail; nothing is sent again, since a verb may have taken effect.
//!
//! Invariant: `in_flight` holds the slot of every request with a number from `next_answer` up to
//! `next_request`, in this order.

use core::cell::{OnceCell, RefCell};
use core::future::poll_fn;
use core::pin::Pin;
use core::task::{Context, Poll, Waker, ready};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::frame::{self, FRAME_BYTES_MAX, Framed, HEADER_BYTES, RequestWriter, ResponseHeader, ResponseKind, Status};
use super::inbox::Inbox;
use super::mirrored::{Mirrored, Unanswered};
use super::operations::{Operations, SlotIndex};
use crate::addr::NodeId;
use crate::error::FabricError;
use crate::host::HostClock;
use crate::message::EndpointId;
use crate::mirror;
use crate::rdma::{self, Introduction};
use crate::verb::Verb;

/// How much may wait to be written before posts wait too: twice the largest value.
const OUTPUT_BYTES_MAX: usize = 32 * 1024 * 1024;
/// How much memory an output keeps once it is empty.
const OUTPUT_BYTES_KEPT: usize = 256 * 1024;
/// How many requests may be without an answer before posts wait.
const IN_FLIGHT_MAX: usize = 32 * 1024;
/// Bytes of the receive buffer: a frame, and the beginning of the next.
const INPUT_BYTES: usize = 2 * FRAME_BYTES_MAX;

/// A connection, or the place of one that broke.
pub(crate) struct Connection {
    node: NodeId,
    operations: Rc<RefCell<Operations>>,
    inbox: Rc<Inbox>,
    link: RefCell<Link>,
    /// Rings when there is room again.
    room: Notify,
    /// Takes the verbs instead of this connection, and ends with it.
    nic: OnceCell<Rc<rdma::Link>>,
    /// Takes messages, but for the first ones to a peer; its pairs end with this connection.
    messenger: OnceCell<Rc<rdma::Messenger>>,
    /// What it takes to find another member of the node's group, if the node is mirrored.
    mirrored: OnceCell<Mirrored>,
}

#[derive(Default)]
struct Link {
    /// Why there is no connection; `None` while there is one.
    down: Option<FabricError>,
    output: Vec<u8>,
    /// How much of `output` is written.
    written: usize,
    next_request: u32,
    next_answer: u32,
    in_flight: VecDeque<SlotIndex>,
    driver: Option<Waker>,
    /// Whether the driver has been woken since it last looked.
    is_driver_woken: bool,
    has_waiters: bool,
    /// How often the connection was opened: tells a new stream's driver from the one before.
    generation: u32,
    /// Requests to a mirrored node that have no answer.
    unanswered: Unanswered,
    /// How many messages have come, and how many of them nobody has granted again.
    messages: u64,
    ungranted: u64,
    /// When something last came from a mirrored node.
    heard_ns: u64,
}

impl Link {
    fn has_room(&self) -> bool {
        self.output.len() < OUTPUT_BYTES_MAX && self.in_flight.len() < IN_FLIGHT_MAX
    }

    fn wake_driver(&mut self) {
        if !self.is_driver_woken {
            self.is_driver_woken = true;
            if let Some(driver) = &self.driver {
                driver.wake_by_ref();
            }
        }
    }
}

impl Connection {
    /// A connection to `node` that is still to be [driven](Connection::drive).
    pub(super) fn new(node: NodeId, operations: Rc<RefCell<Operations>>, inbox: Rc<Inbox>) -> Self {
        Self {
            node,
            operations,
            inbox,
            link: RefCell::default(),
            room: Notify::new(),
            nic: OnceCell::new(),
            messenger: OnceCell::new(),
            mirrored: OnceCell::new(),
        }
    }

    /// From now on verbs go through `nic`.
    pub(super) fn lead_verbs_through(&self, nic: Rc<rdma::Link>) {
        assert!(self.nic.set(nic).is_ok(), "decided once");
    }

    /// What verbs go through, if not through this connection.
    #[inline]
    pub(super) fn nic(&self) -> Option<&Rc<rdma::Link>> {
        self.nic.get()
    }

    /// From now on messages go through `messenger`, as far as it can send them.
    pub(super) fn lead_messages_through(&self, messenger: Rc<rdma::Messenger>) {
        assert!(self.messenger.set(messenger).is_ok(), "decided once");
    }

    /// What messages go through before this connection relays them.
    #[inline]
    pub(super) fn messenger(&self) -> Option<&Rc<rdma::Messenger>> {
        self.messenger.get()
    }

    /// The node at the other end.
    pub(super) fn node(&self) -> NodeId {
        self.node
    }

    /// Why the connection cannot be used.
    #[inline]
    pub(super) fn failure(&self) -> Option<FabricError> {
        self.link.borrow().down
    }

    /// Whether a post has to wait for [`Connection::room`].
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.link.borrow().has_room()
    }

    /// Waits until a post may go on, or the connection breaks.
    pub(super) async fn room(&self) {
        while self.failure().is_none() && !self.has_room() {
            let notified = self.room.notified();
            self.link.borrow_mut().has_waiters = true;
            notified.await;
        }
    }

    /// Posts the verbs of an operation that go to this node. The connection must be up.
    #[inline]
    pub(super) fn post<'v>(&self, index: SlotIndex, verbs: impl Iterator<Item = &'v Verb>) {
        let mut operations = self.operations.borrow_mut();
        let link = &mut *self.link.borrow_mut();
        assert!(link.down.is_none(), "checked before posting");
        let memory = operations.memory(index);
        let start = link.output.len();
        let mut writer = RequestWriter::new(&mut link.output, link.next_request, link.in_flight.len() as u16);
        for verb in verbs {
            writer.push(verb, memory);
        }
        let frames = writer.finish();
        operations.expect_answers(index, frames);
        link.next_request = link.next_request.wrapping_add(frames);
        for _ in 0..frames {
            link.in_flight.push_back(index);
        }
        self.keep(link, start);
        link.wake_driver();
    }

    /// Posts one frame that `encode` appends, given its number. The connection must be up.
    pub(super) fn post_frame(&self, index: SlotIndex, encode: impl FnOnce(&mut Vec<u8>, u32)) {
        let link = &mut *self.link.borrow_mut();
        assert!(link.down.is_none(), "checked before posting");
        let start = link.output.len();
        encode(&mut link.output, link.next_request);
        frame::set_behind(&mut link.output, start, link.in_flight.len() as u16);
        self.keep(link, start);
        self.operations.borrow_mut().expect_answers(index, 1);
        link.next_request = link.next_request.wrapping_add(1);
        link.in_flight.push_back(index);
        link.wake_driver();
    }

    /// Tells the node that `messages` have been taken out of the inbox. Nothing comes back.
    pub(super) fn grant(&self, messages: u64) {
        let link = &mut *self.link.borrow_mut();
        if link.down.is_none() {
            link.ungranted = link.ungranted.saturating_sub(messages);
            frame::put_granted(&mut link.output, messages);
            link.wake_driver();
        }
    }

    /// Tells another endpoint of a queue pair, if the connection is up. Nothing comes back.
    pub(crate) fn introduce(&self, peer: EndpointId, introduction: &Introduction) {
        let link = &mut *self.link.borrow_mut();
        if link.down.is_none() {
            frame::put_introduce(&mut link.output, peer, introduction);
            link.wake_driver();
        }
    }

    /// Gives the connection up: whatever waits fails with `failure`, and the driver ends.
    pub(crate) fn close(&self, failure: FabricError) {
        let (in_flight, driver) = {
            let link = &mut *self.link.borrow_mut();
            if link.down.is_none() {
                link.down = Some(failure);
            }
            link.output = Vec::new();
            (core::mem::take(&mut link.in_flight), link.driver.take())
        };
        for index in in_flight {
            // Whoever is woken may look at the operations at once.
            let waker = self.operations.borrow_mut().fail(index, failure).cloned();
            waker.inspect(Waker::wake_by_ref);
        }
        driver.inspect(Waker::wake_by_ref);
        self.room.notify_waiters();
        if let Some(nic) = self.nic() {
            nic.close(failure);
        }
        if let Some(messenger) = self.messenger() {
            messenger.reset();
        }
        self.inbox.node_lost(self.node);
    }

    /// Makes the connection usable again, over a new stream that somebody will drive.
    pub(super) fn reopen(&self) {
        let link = &mut *self.link.borrow_mut();
        assert!(link.down.is_some(), "closed before");
        assert!(link.in_flight.is_empty(), "closing has failed them all");
        *link = Link {
            generation: link.generation + 1,
            ..Link::default()
        };
    }

    /// Reads and writes until the connection breaks or is closed.
    pub(super) async fn drive(self: Rc<Self>, mut stream: TcpStream) {
        let generation = self.link.borrow().generation;
        let mut input = Input::new();
        loop {
            let failure = poll_fn(|context| {
                if self.link.borrow().generation != generation {
                    // Closed and reopened before this driver noticed.
                    return Poll::Ready(None);
                }
                self.poll_drive(context, &mut stream, &mut input).map(Some)
            });
            let failure = match self.mirrored.get() {
                None => failure.await,
                Some(mirrored) => tokio::select! {
                    failure = failure => failure,
                    () = self.silence(mirrored) => Some(self.gone()),
                },
            };
            let Some(failure) = failure else { return };
            let Some(mirrored) = self
                .mirrored
                .get()
                .filter(|_| matches!(failure, FabricError::NodeGone { .. }))
            else {
                self.close(failure);
                return;
            };
            match self.find_primary(mirrored).await {
                Ok(found) => {
                    stream = found;
                    input = Input::new();
                }
                Err(failure) => {
                    self.close(failure);
                    return;
                }
            }
        }
    }

    fn poll_drive(&self, context: &mut Context<'_>, stream: &mut TcpStream, input: &mut Input) -> Poll<FabricError> {
        {
            let link = &mut *self.link.borrow_mut();
            if let Some(failure) = link.down {
                return Poll::Ready(failure);
            }
            link.is_driver_woken = false;
            match &mut link.driver {
                Some(driver) => driver.clone_from(context.waker()),
                none => *none = Some(context.waker().clone()),
            }
        }
        loop {
            match input.poll_fill(context, stream) {
                Poll::Pending => break,
                Poll::Ready(Ok(0)) => return Poll::Ready(self.gone()),
                Poll::Ready(Ok(_)) => {
                    if self.mirrored.get().is_some() {
                        self.link.borrow_mut().heard_ns = HostClock.now_ns();
                    }
                    if let Err(failure) = self.take_answers(input) {
                        return Poll::Ready(failure);
                    }
                }
                Poll::Ready(Err(error)) => {
                    tracing::debug!("connection to {} broke: {error}", self.node);
                    return Poll::Ready(self.gone());
                }
            }
        }
        match self.poll_flush(context, stream) {
            Poll::Ready(Err(error)) => {
                tracing::debug!("connection to {} broke: {error}", self.node);
                Poll::Ready(self.gone())
            }
            _ => Poll::Pending,
        }
    }

    /// From now on a connection that breaks is followed by one to whoever is primary then, and nothing fails.
    pub(super) fn follow(&self, mirrored: Mirrored) {
        let link = &mut *self.link.borrow_mut();
        link.heard_ns = HostClock.now_ns();
        assert!(self.mirrored.set(mirrored).is_ok(), "decided once");
    }

    /// Where the members of a mirrored node are; none if it is not mirrored.
    pub(super) fn members(&self) -> Vec<String> {
        self.mirrored.get().map_or_else(Vec::new, Mirrored::addresses)
    }

    /// Whether the node has several members.
    pub(super) fn is_mirrored(&self) -> bool {
        self.mirrored.get().is_some()
    }

    /// Keeps requests that may have to be sent again.
    #[inline]
    fn keep(&self, link: &mut Link, start: usize) {
        if self.is_mirrored() {
            if link.in_flight.len() <= 1 {
                // Nothing was awaited until now.
                link.heard_ns = HostClock.now_ns();
            }
            link.unanswered.keep(&link.output[start..]);
        }
    }

    /// Ends when a mirrored node owes answers and has been silent for so long that another member may be primary.
    async fn silence(&self, mirrored: &Mirrored) {
        loop {
            HostClock.sleep(mirrored.lease_ns / 4).await;
            let link = self.link.borrow();
            let is_silent = HostClock.now_ns() > link.heard_ns + mirrored.lease_ns + mirrored.lease_ns / 8;
            if !link.in_flight.is_empty() && is_silent {
                tracing::debug!("{} has been silent for longer than a lease", self.node);
                return;
            }
        }
    }

    /// Asks the members of the node's group until one is primary, and prepares to send it what has no answer.
    async fn find_primary(&self, mirrored: &Mirrored) -> Result<TcpStream, FabricError> {
        let until_ns = HostClock.now_ns().saturating_add(mirrored.patience_ns());
        loop {
            if let Some(failure) = self.failure() {
                return Err(failure);
            }
            let returning = {
                let link = self.link.borrow();
                mirrored.returning(link.next_answer, link.messages, link.ungranted)
            };
            let ungranted = u64::from(returning.ungranted);
            match mirrored.ask_all(self.node, returning).await {
                Ok(Some(stream)) => {
                    let link = &mut *self.link.borrow_mut();
                    link.output.clear();
                    link.written = 0;
                    // Messages that were taken out while the members were asked: they do not know of that.
                    if link.ungranted < ungranted {
                        frame::put_granted(&mut link.output, ungranted - link.ungranted);
                    }
                    link.unanswered.put(&mut link.output);
                    link.heard_ns = HostClock.now_ns();
                    return Ok(stream);
                }
                Ok(None) if HostClock.now_ns() < until_ns => HostClock.sleep(mirrored.pause_ns()).await,
                Ok(None) => return Err(self.gone()),
                Err(failure) => return Err(failure),
            }
        }
    }

    fn gone(&self) -> FabricError {
        FabricError::NodeGone { node: self.node }
    }

    fn protocol(&self, reason: &'static str) -> FabricError {
        FabricError::Protocol {
            node: self.node,
            reason,
        }
    }

    fn poll_flush(&self, context: &mut Context<'_>, stream: &mut TcpStream) -> Poll<io::Result<()>> {
        let link = &mut *self.link.borrow_mut();
        while link.written < link.output.len() {
            let count = ready!(Pin::new(&mut *stream).poll_write(context, &link.output[link.written..]))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            link.written += count;
        }
        link.output.clear();
        link.output.shrink_to(OUTPUT_BYTES_KEPT);
        link.written = 0;
        if link.has_waiters && link.has_room() {
            link.has_waiters = false;
            self.room.notify_waiters();
        }
        Poll::Ready(Ok(()))
    }

    /// Gives every whole frame of the input to whom it belongs.
    fn take_answers(&self, input: &mut Input) -> Result<(), FabricError> {
        // The task woken last in this burst; mostly it is the next one's too.
        let mut woken: Option<Waker> = None;
        loop {
            let whole = frame::split_frame::<ResponseHeader>(input.bytes());
            let Framed::Whole(header, end) = whole.map_err(|_| self.protocol("a frame of impossible length"))? else {
                return Ok(());
            };
            let body = &input.bytes()[HEADER_BYTES..end];
            match ResponseKind::from_code(header.kind) {
                Ok(ResponseKind::Answer) => self.take_answer(&header, body, &mut woken)?,
                Ok(ResponseKind::Message) => {
                    let decoded = frame::decode_message(body);
                    let (from, message) = decoded.map_err(|_| self.protocol("a message that is none"))?;
                    {
                        let link = &mut *self.link.borrow_mut();
                        link.messages += 1;
                        link.ungranted += 1;
                    }
                    if let Some(messenger) = self.messenger() {
                        // What a pair has brought before it broke comes first.
                        messenger.collect();
                    }
                    self.inbox.put(from, message);
                }
                Ok(ResponseKind::Introduction) => {
                    let decoded = frame::decode_introduction(body);
                    let (from, introduction) = decoded.map_err(|_| self.protocol("a malformed introduction"))?;
                    let messenger = self.messenger();
                    let messenger = messenger.ok_or_else(|| self.protocol("an introduction without RDMA"))?;
                    messenger.take_in(from, &introduction);
                }
                Ok(ResponseKind::View) => {
                    let view = mirror::decode_view(body).map_err(|_| self.protocol("a view that is none"))?;
                    if let Some(mirrored) = self.mirrored.get() {
                        mirrored.learn(&view);
                    }
                }
                Ok(ResponseKind::Fenced) => return Err(FabricError::Fenced { node: self.node }),
                Err(_) => return Err(self.protocol("an unknown kind of frame")),
            }
            input.consume(end);
        }
    }

    #[inline]
    fn take_answer(&self, header: &ResponseHeader, body: &[u8], woken: &mut Option<Waker>) -> Result<(), FabricError> {
        let status = Status::from_code(header.status).map_err(|_| self.protocol("an unknown status"))?;
        let index = {
            let link = &mut *self.link.borrow_mut();
            if header.request.get() != link.next_answer {
                return Err(self.protocol("answers out of order"));
            }
            let index = link.in_flight.pop_front();
            let index = index.ok_or_else(|| self.protocol("an answer nobody asked for"))?;
            link.next_answer = link.next_answer.wrapping_add(1);
            link.unanswered.answered();
            if link.has_waiters && link.has_room() {
                link.has_waiters = false;
                self.room.notify_waiters();
            }
            index
        };
        let mut operations = self.operations.borrow_mut();
        match operations.answer(index, self.node, status, body) {
            Ok(Some(waker)) => {
                if !woken.as_ref().is_some_and(|last| last.will_wake(waker)) {
                    waker.wake_by_ref();
                    *woken = Some(waker.clone());
                }
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(reason) => {
                let failure = self.protocol(reason);
                // Its answer has been counted already: put the request back, so that closing fails it.
                operations.expect_answers(index, 1);
                self.link.borrow_mut().in_flight.push_front(index);
                Err(failure)
            }
        }
    }
}

/// Received bytes that have not been taken yet: `memory[start..end]`.
pub(super) struct Input {
    memory: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Input {
    pub(super) fn new() -> Self {
        Self {
            memory: vec![0; INPUT_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
        }
    }

    /// The bytes that are there.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }

    /// Some of the bytes that are there.
    #[inline]
    pub(super) fn bytes_mut(&mut self, range: core::ops::Range<usize>) -> &mut [u8] {
        &mut self.memory[self.start..self.end][range]
    }

    /// Takes the first `count` bytes away.
    #[inline]
    pub(super) fn consume(&mut self, count: usize) {
        self.start += count;
        assert!(self.start <= self.end, "only what is there is taken");
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Reads once. The number of bytes is 0 at the end of the stream.
    ///
    /// # Panics
    /// If a whole frame has not been taken.
    pub(super) fn poll_fill(&mut self, context: &mut Context<'_>, stream: &mut TcpStream) -> Poll<io::Result<usize>> {
        if self.memory.len() - self.end < FRAME_BYTES_MAX {
            self.memory.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        assert!(
            self.end < self.memory.len(),
            "half a frame leaves room for the other half"
        );
        let mut room = ReadBuf::new(&mut self.memory[self.end..]);
        ready!(Pin::new(stream).poll_read(context, &mut room))?;
        let count = room.filled().len();
        self.end += count;
        Poll::Ready(Ok(count))
    }
}

#[cfg(test)]
mod tests;
