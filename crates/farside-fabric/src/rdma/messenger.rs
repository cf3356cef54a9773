//! A client's messages to and from others, from card to card.
//!
//! On the path: SEND and RECEIVE between clients whose node 0 is reached by RDMA. A message goes by the queue pair that leads
//! to its receiver, if there is one; else the node relays it, and the two clients are introduced to each other
//! ([`introduction`](super::introduction)). What arrives is copied into the endpoint's [`Inbox`], where what was relayed comes
//! as well, and its place is posted again.
//!
//! - A pair leads one way. Its sender's end has no receives, its receiver's end sends nothing; all receivers' ends of a client
//!   share one [`ReceiveQueue`], and all its ends one completion queue.
//! - A send is over when the peer's card has the message: then it is there although the sender ends. A receiver posts no
//!   places while its inbox is full; its device then asks senders to come again, for as long as it takes. So a send does not
//!   wait longer than [`PATIENCE_NS`], and leaves the message to the card. When [`WINDOW`] of them are under way and stay so,
//!   the receiver's mailbox is full.
//! - All this is made when it is needed first: a client that neither sends nor receives has none of it. What cannot be made
//!   is done without: messages are then relayed, and after a while it is tried again.
//!
//! Invariants:
//! - `numbers` has an entry for each open pair, and no other;
//! - `in_flight` is the sum of those of all open pairs;
//! - each place of the receive queue is posted, or in `free`, or its completion has not been looked at.

use core::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use super::completion_queue::{Announcements, CompletionQueue};
use super::device::Device;
use super::error::RdmaError;
use super::exchange::Address;
use super::ffi::{self, ScatterGather, SendRequest, WorkCompletion};
use super::introduction::{Introduction, IntroductionKind, Outgoing, Way};
use super::queue_pair::{Purpose, QueuePair};
use super::receive_queue::{PLACE_BYTES, ReceiveQueue, seal};
use crate::clock::Deadline;
use crate::host::{self, HostClock, HostRandom};
use crate::message::{EndpointId, Message};
use crate::tcp::{Connection, Inbox};

use tokio::sync::Notify;

/// How many messages may arrive without anybody looking.
const RECEIVES: u32 = 512;
/// How many messages wait in an inbox before no more places are posted.
const INBOX_MAX: usize = 512;
/// How many messages to one peer may be under way.
const WINDOW: u32 = 16;
/// How many messages may be under way to all peers.
const SENDS: u32 = 1024;
/// How long a send waits for an answer, for room, or to be over, before it does without.
const PATIENCE_NS: u64 = 20_000_000;
/// After how long without an answer to ask again.
const ASK_AGAIN_NS: u64 = 1_000_000_000;
/// How many messages to a peer are relayed before a pair is worth its while.
const RELAYED_FIRST: u32 = 8;
/// The same, after a pair could not be made.
const REFUSED: Outgoing<Sending> = Outgoing::Relayed { left: 1000 };
/// How many completions are taken out at once.
const BURST: usize = 32;
/// How long to look before sleeping, after something has come.
const LINGER_NS: u64 = 15_000;
/// How long to sleep before looking anyway.
const SLEEP_NS: u64 = 10_000_000;
/// The number of the first SEND; those of receives are below.
const FIRST_SEND: u64 = 1 << 32;

/// What became of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sent {
    /// The peer's card has it, or this one's, or it is lost with the peer.
    Done,
    /// Nothing was sent: the peer takes no messages out.
    Full,
    /// Nothing was sent: it is to be relayed.
    NotHere,
}

/// What of the device a client has for its messages.
struct Desk {
    queue: Rc<CompletionQueue>,
    receives: Rc<ReceiveQueue>,
    /// Places that are not posted.
    free: RefCell<Vec<u32>>,
}

impl Desk {
    fn new(device: &Arc<Device>) -> Result<Self, RdmaError> {
        let receives = ReceiveQueue::new(device, RECEIVES)?;
        // What is left of pairs that are gone may be there too.
        let completions = (receives.count() + 2 * SENDS).min(device.completions_max());
        Ok(Self {
            queue: Rc::new(CompletionQueue::new(device, completions)?),
            free: RefCell::new((0..receives.count()).collect()),
            receives: Rc::new(receives),
        })
    }

    /// Gives places to the device, as long as there is room in the inbox for what will come.
    fn post_places(&self, inbox: &Inbox) {
        let free = &mut *self.free.borrow_mut();
        while inbox.len() < INBOX_MAX
            && let Some(place) = free.pop()
        {
            if !self.receives.post(place) {
                free.push(place);
                return;
            }
        }
    }
}

/// This client's end of a pair that leads to a peer.
struct Sending {
    pair: QueuePair,
    /// Where the peer's end is, once it has answered.
    peer: Option<Address>,
    /// The number of its first SEND, or a lower one.
    first: u64,
    /// All its SENDs with lower numbers are over.
    done: u64,
    in_flight: u32,
}

/// This client's end of a pair that leads here.
struct Receiving {
    pair: QueuePair,
    /// Where the peer's end is.
    peer: Address,
}

#[derive(Default)]
struct Peers {
    outgoing: BTreeMap<EndpointId, Outgoing<Sending>>,
    /// To whom the open pairs lead.
    numbers: BTreeMap<u32, EndpointId>,
    incoming: BTreeMap<EndpointId, Receiving>,
    /// How many SENDs were posted so far.
    sends: u64,
    in_flight: u32,
    rounds: u32,
}

impl Peers {
    fn next_round(&mut self) -> u32 {
        self.rounds = self.rounds.wrapping_add(1);
        self.rounds
    }

    /// Forgets the way to a peer. Returns it if there was a pair, whose memory the device has let go of when it is dropped.
    fn forget(&mut self, peer: EndpointId) -> Option<Outgoing<Sending>> {
        let outgoing = self.outgoing.remove(&peer)?;
        if let Outgoing::Open(end) = &outgoing {
            self.numbers.remove(&end.pair.number());
            self.in_flight -= end.in_flight;
        }
        Some(outgoing)
    }
}

/// The messages of one client.
pub(crate) struct Messenger {
    own: EndpointId,
    device: Arc<Device>,
    inbox: Rc<Inbox>,
    /// To node 0.
    connection: Weak<Connection>,
    random: HostRandom,
    /// `None` if it cannot be made.
    desk: OnceCell<Option<Desk>>,
    peers: RefCell<Peers>,
    /// Rings when a way may have become clear.
    changed: Notify,
    is_stopped: Cell<bool>,
}

impl Messenger {
    /// For the client `own`, which reaches node 0 over `connection`.
    pub(crate) fn new(
        own: EndpointId,
        device: &Arc<Device>,
        inbox: &Rc<Inbox>,
        connection: &Rc<Connection>,
    ) -> Rc<Self> {
        Rc::new(Self {
            own,
            device: device.clone(),
            inbox: inbox.clone(),
            connection: Rc::downgrade(connection),
            random: HostRandom::new(),
            desk: OnceCell::new(),
            peers: RefCell::default(),
            changed: Notify::new(),
            is_stopped: Cell::new(false),
        })
    }

    /// Sends a message by the pair that leads to `peer`, if there is one or soon will be.
    pub(crate) async fn send(&self, peer: EndpointId, message: &Message, deadline: Deadline) -> Sent {
        let mut give_up = None;
        loop {
            let changed = self.changed.notified();
            let is_unclear = match self.way(peer) {
                Way::Relay => return Sent::NotHere,
                Way::Unclear => true,
                Way::Pair => match self.try_post(peer, message) {
                    Ok(number) => {
                        self.settle(peer, number, deadline).await;
                        return Sent::Done;
                    }
                    Err(Sent::Full) => false,
                    Err(sent) => return sent,
                },
            };
            let give_up = *give_up.get_or_insert_with(|| soon(deadline));
            if HostClock.until(give_up, changed).await.is_none() {
                return if is_unclear { Sent::NotHere } else { Sent::Full };
            }
        }
    }

    /// Waits until the peer's card has a message, but not for long.
    async fn settle(&self, peer: EndpointId, number: u64, deadline: Deadline) {
        let (give_up, linger_until_ns) = (soon(deadline), HostClock.now_ns() + LINGER_NS);
        loop {
            let changed = self.changed.notified();
            self.collect();
            if self.is_over(peer, number) {
                return;
            }
            if HostClock.now_ns() < linger_until_ns {
                tokio::task::yield_now().await;
            } else if HostClock.until(give_up, changed).await.is_none() {
                return;
            }
        }
    }

    /// Whether a SEND is no longer under way.
    fn is_over(&self, peer: EndpointId, number: u64) -> bool {
        match self.peers.borrow().outgoing.get(&peer) {
            Some(Outgoing::Open(end)) => end.done > number || end.first > number,
            _ => true,
        }
    }

    fn way(&self, peer: EndpointId) -> Way {
        let peers = self.peers.borrow();
        peers.outgoing.get(&peer).map_or(Way::Relay, Outgoing::way)
    }

    /// Posts a message to a pair that is open. Returns the number of its SEND.
    fn try_post(&self, peer: EndpointId, message: &Message) -> Result<u64, Sent> {
        {
            let peers = &mut *self.peers.borrow_mut();
            let Some(Outgoing::Open(end)) = peers.outgoing.get_mut(&peer) else {
                return Err(Sent::NotHere);
            };
            if end.in_flight == WINDOW || peers.in_flight == SENDS {
                return Err(Sent::Full);
            }
            let number = FIRST_SEND + peers.sends;
            if end.post(self.own, number, message) {
                peers.sends += 1;
                end.in_flight += 1;
                peers.in_flight += 1;
                return Ok(number);
            }
        }
        self.leave(peer);
        Err(Sent::NotHere)
    }

    /// A message is handed to the connection to be relayed.
    pub(crate) fn relayed(&self, peer: EndpointId) {
        let left = RELAYED_FIRST;
        let outgoing = &mut self.peers.borrow_mut().outgoing;
        outgoing.entry(peer).or_insert(Outgoing::Relayed { left }).relayed();
    }

    /// Nobody has the identity of a peer.
    pub(crate) fn forget(&self, peer: EndpointId) {
        drop(self.peers.borrow_mut().forget(peer));
    }

    /// A message was relayed: the peer is there. Asks it for a pair, if it is time to.
    pub(crate) fn introduce(self: &Rc<Self>, peer: EndpointId) {
        let now_ns = HostClock.now_ns();
        let ask = {
            let peers = &mut *self.peers.borrow_mut();
            let round = peers.next_round();
            match peers.outgoing.get_mut(&peer) {
                Some(outgoing) if outgoing.may_begin() => {
                    let Some(end) = self.new_sending(peers.sends) else {
                        *outgoing = REFUSED;
                        return;
                    };
                    let address = end.pair.address(None);
                    *outgoing = Outgoing::ask(end, round, now_ns);
                    (round, address)
                }
                Some(outgoing) => {
                    let Some(end) = outgoing.ask_again(round, now_ns, ASK_AGAIN_NS) else {
                        return;
                    };
                    (round, end.pair.address(None))
                }
                // It has gone meanwhile.
                None => return,
            }
        };
        self.tell(peer, IntroductionKind::Ask, ask.0, Some(ask.1));
    }

    fn new_sending(self: &Rc<Self>, sends: u64) -> Option<Sending> {
        let desk = self.desk()?;
        let made = QueuePair::create(&desk.queue, WINDOW, self.random.random(), Purpose::Sends);
        let usable = made.and_then(|pair| {
            if pair.inline_bytes() < PLACE_BYTES || pair.depth() < WINDOW {
                return Err(RdmaError::System {
                    device: self.device.facts().name.clone(),
                    action: "have messages within work requests",
                    source: io::ErrorKind::Unsupported.into(),
                });
            }
            Ok(pair)
        });
        let pair = without(usable)?;
        Some(Sending {
            pair,
            peer: None,
            first: FIRST_SEND + sends,
            done: 0,
            in_flight: 0,
        })
    }

    /// What of the device is needed, made now if it has not been.
    fn desk(self: &Rc<Self>) -> Option<&Desk> {
        let desk = self.desk.get_or_init(|| {
            let desk = without(Desk::new(&self.device))?;
            desk.post_places(&self.inbox);
            host::spawn_local(Box::pin(self.clone().drive()));
            Some(desk)
        });
        desk.as_ref()
    }

    fn tell(&self, peer: EndpointId, kind: IntroductionKind, round: u32, address: Option<Address>) {
        if let Some(connection) = self.connection.upgrade() {
            connection.introduce(peer, &Introduction::new(kind, round, address));
        }
    }

    /// What a peer, or the node, says of a pair.
    pub(crate) fn take_in(self: &Rc<Self>, from: EndpointId, introduction: &Introduction) {
        match introduction.kind() {
            IntroductionKind::Ask => self.answer(from, introduction),
            IntroductionKind::Answer => self.answered(from, introduction),
            IntroductionKind::Leave => self.stop_listening(from),
            IntroductionKind::Gone => {
                self.stop_listening(from);
                drop(self.peers.borrow_mut().forget(from));
                self.changed.notify_waiters();
            }
        }
    }

    /// Makes an end for the peer's, or finds the one that it has made.
    fn answer(self: &Rc<Self>, from: EndpointId, ask: &Introduction) {
        let Some(theirs) = ask.address() else { return };
        let is_known = |receiving: &Receiving| receiving.peer == theirs;
        if !self.peers.borrow().incoming.get(&from).is_some_and(is_known) {
            self.stop_listening(from);
            let made = self.desk().and_then(|desk| {
                let receives = Purpose::Receives(&desk.receives);
                let made = QueuePair::create(&desk.queue, 1, self.random.random(), receives);
                without(made.and_then(|pair| pair.connect(&theirs).map(|()| pair)))
            });
            if let Some(pair) = made {
                let receiving = Receiving { pair, peer: theirs };
                self.peers.borrow_mut().incoming.insert(from, receiving);
            }
        }
        let own = {
            let peers = self.peers.borrow();
            peers.incoming.get(&from).map(|receiving| receiving.pair.address(None))
        };
        self.tell(from, IntroductionKind::Answer, ask.round(), own);
    }

    /// Opens a pair, or asks again.
    fn answered(&self, from: EndpointId, answer: &Introduction) {
        let now_ns = HostClock.now_ns();
        let ask = {
            let peers = &mut *self.peers.borrow_mut();
            let next_round = peers.next_round();
            let Some(outgoing) = peers.outgoing.get_mut(&from) else {
                return;
            };
            let Some(asking) = outgoing.asked(answer.round()) else {
                return;
            };
            let end = &mut asking.end;
            let theirs = answer.address();
            if !theirs.is_some_and(|theirs| end.connect(&theirs)) {
                *outgoing = REFUSED;
                None
            } else {
                let (number, address) = (end.pair.number(), end.pair.address(None));
                if outgoing.answered(next_round, now_ns) {
                    peers.numbers.insert(number, from);
                    None
                } else {
                    Some((next_round, address))
                }
            }
        };
        if let Some((round, address)) = ask {
            self.tell(from, IntroductionKind::Ask, round, Some(address));
        }
        self.changed.notify_waiters();
    }

    /// Ends the pair that leads here from a peer, after taking out what has come.
    fn stop_listening(&self, from: EndpointId) {
        let receiving = self.peers.borrow_mut().incoming.remove(&from);
        if let Some(receiving) = receiving {
            // What comes from here on is not acknowledged. The rest is looked at before what is relayed after it; and before
            // the pair is destroyed, since some drivers then throw its completions away.
            without(receiving.pair.stop());
            self.collect();
            drop(receiving);
            self.collect();
        }
    }

    /// Ends a pair that has broken.
    fn leave(&self, peer: EndpointId) {
        let forgotten = self.peers.borrow_mut().forget(peer);
        if let Some(Outgoing::Open(end)) = forgotten {
            tracing::debug!("the pair to {peer} broke with {} messages under way", end.in_flight);
            drop(end);
            self.tell(peer, IntroductionKind::Leave, 0, None);
            self.changed.notify_waiters();
        }
    }

    /// The connection to the node has ended, and with it all pairs.
    pub(crate) fn reset(&self) {
        let (outgoing, senders): (Vec<_>, Vec<_>) = {
            let peers = self.peers.borrow();
            (
                peers.outgoing.keys().copied().collect(),
                peers.incoming.keys().copied().collect(),
            )
        };
        for from in senders {
            self.stop_listening(from);
        }
        for peer in outgoing {
            drop(self.peers.borrow_mut().forget(peer));
        }
        self.changed.notify_waiters();
    }

    #[cfg(test)]
    pub(crate) fn sent_by_card(&self) -> u64 {
        self.peers.borrow().sends
    }

    #[cfg(test)]
    pub(crate) fn in_flight(&self) -> u32 {
        self.peers.borrow().in_flight
    }

    /// Ends the task.
    pub(crate) fn stop(&self) {
        self.is_stopped.set(true);
    }

    /// A message was taken out of the inbox.
    #[inline]
    pub(crate) fn made_room(&self) {
        if let Some(Some(desk)) = self.desk.get() {
            desk.post_places(&self.inbox);
        }
    }

    /// Takes out what has come. Returns whether there was anything.
    pub(crate) fn collect(&self) -> bool {
        let Some(Some(desk)) = self.desk.get() else {
            return false;
        };
        let mut completions = [WorkCompletion::default(); BURST];
        let mut is_any = false;
        loop {
            let count = desk.queue.poll(&mut completions);
            for completion in &completions[..count] {
                if completion.wr_id < FIRST_SEND {
                    self.received(desk, completion);
                } else {
                    self.sent(completion);
                }
            }
            desk.post_places(&self.inbox);
            is_any |= count > 0;
            if count < BURST {
                return is_any;
            }
        }
    }

    fn received(&self, desk: &Desk, completion: &WorkCompletion) {
        let place = completion.wr_id as u32;
        if completion.status == ffi::STATUS_SUCCESS {
            match desk.receives.take(place, completion.byte_len) {
                Some((from, message)) => self.inbox.put_from_card(from, message),
                None => tracing::warn!("a message of {} bytes came that is none", completion.byte_len),
            }
        }
        desk.free.borrow_mut().push(place);
    }

    fn sent(&self, completion: &WorkCompletion) {
        let broken = {
            let peers = &mut *self.peers.borrow_mut();
            let Some(&peer) = peers.numbers.get(&completion.qp_num) else {
                return;
            };
            let Some(Outgoing::Open(end)) = peers.outgoing.get_mut(&peer) else {
                return;
            };
            if completion.wr_id < end.first {
                // Of a pair that had the same number.
                return;
            }
            if completion.status == ffi::STATUS_SUCCESS {
                end.done = completion.wr_id + 1;
                end.in_flight -= 1;
                peers.in_flight -= 1;
                self.changed.notify_waiters();
                return;
            }
            peer
        };
        self.leave(broken);
    }

    /// Collects until it is stopped.
    async fn drive(self: Rc<Self>) {
        let Some(Some(desk)) = self.desk.get() else { return };
        let announcements = Announcements::of(&desk.queue);
        let mut linger_until_ns = 0;
        while !self.is_stopped.get() {
            let is_any = self.collect();
            let now_ns = HostClock.now_ns();
            if is_any {
                linger_until_ns = now_ns + LINGER_NS;
            } else if now_ns >= linger_until_ns {
                desk.queue.arm();
                // What came before is not announced.
                if !self.collect() {
                    announcements.next(Deadline(now_ns + SLEEP_NS)).await;
                }
                continue;
            }
            tokio::task::yield_now().await;
        }
    }
}

impl Sending {
    /// Connects the end to the peer's. Returns whether it is connected to that one.
    fn connect(&mut self, peer: &Address) -> bool {
        if self.peer.is_none() {
            self.peer = without(self.pair.connect(peer)).map(|()| *peer);
        }
        self.peer.as_ref() == Some(peer)
    }

    /// Posts a message. Returns whether the device takes it.
    fn post(&self, own: EndpointId, number: u64, message: &Message) -> bool {
        let (words, bytes) = seal(own, message);
        let mut entry = ScatterGather {
            addr: words.as_ptr() as u64,
            length: bytes,
            lkey: 0,
        };
        let mut request = SendRequest::one_sided(ffi::OPCODE_SEND, 0, 0);
        request.wr_id = number;
        request.sg_list = &raw mut entry;
        request.num_sge = 1;
        request.send_flags = ffi::SEND_INLINE | ffi::SEND_SIGNALED;
        // SAFETY: one request with one entry. It is carried inline: its bytes are copied before the post returns.
        unsafe { self.pair.post(&raw mut request) }
    }
}

/// The end of the time that somebody waits who can do without.
fn soon(deadline: Deadline) -> Deadline {
    Deadline(deadline.0.min(HostClock.now_ns() + PATIENCE_NS))
}

/// What was made, or nothing, with a line in the log: messages go another way then.
fn without<T>(made: Result<T, RdmaError>) -> Option<T> {
    made.inspect_err(|error| tracing::warn!("messages are relayed: {error}"))
        .ok()
}
