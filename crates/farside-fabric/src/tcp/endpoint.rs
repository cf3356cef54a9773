//! A client whose memory nodes are at the end of connections.
//!
//! On the path: the lowest call of every operation over TCP. A verb is checked here, posted on the
//! connection of its node and waited for. A node whose segment is mapped in this process takes no
//! connection: its verbs are executed at once.

use core::cell::{Cell, RefCell};
use std::rc::Rc;

use super::connect::{ConnectError, ConnectOptions, Joined, Remote, Returning, greet};
use super::connection::Connection;
use super::frame::{self, Status};
use super::inbox::{Inbox, Taken};
use super::mirrored::Mirrored;
use super::operations::{Operations, Pending};
use crate::addr::{NodeId, RemoteAddr};
use crate::backend::{Backend, Fence, check_verb};
use crate::batch::Batch;
use crate::buffer::Buffer;
use crate::capabilities::Capabilities;
use crate::clock::Deadline;
use crate::counters::Counters;
use crate::error::{AttachError, FabricError};
use crate::grown::Grown;
use crate::host::{self, HostClock, HostRandom};
use crate::message::{EndpointId, Message, Received};
use crate::posted::{Posted, Soon};
use crate::rdma::{self, Messenger, NativeAtomics, Poller, Sent};
use crate::region::Region;
use crate::shm::{Connected, Segment};
use crate::verb::{Verb, VerbKind};

/// One client of a pool. Clones are the same client; its connections close with the last of them.
///
/// Not `Send`: one thread, as many clients as there are threads. Needs a tokio runtime of one thread
/// with timers, and a `LocalSet`.
#[derive(Clone)]
pub struct Endpoint {
    shared: Rc<Shared>,
}

struct Shared {
    id: EndpointId,
    nodes: Grown<Rc<Node>>,
    /// Of all nodes; known when the client has joined them.
    capabilities: Cell<Capabilities>,
    operations: Rc<RefCell<Operations>>,
    inbox: Rc<Inbox>,
    /// Collects what network cards have done, for the nodes that are reached so.
    poller: Option<Rc<Poller>>,
    counters: Counters,
    random: HostRandom,
    options: ConnectOptions,
}

struct Node {
    bytes: u64,
    way: Way,
}

/// Why there is a way to node 0.
const HOME: &str = "node 0 is every client's home, and stays";

/// How the node is reached.
enum Way {
    Mapped {
        segment: Segment,
        connected: Connected,
    },
    Remote {
        address: String,
        connection: Rc<Connection>,
        /// The node's run that this client belongs to.
        run: Cell<u64>,
    },
    /// Not at all: there is no such node, or no more.
    Absent,
}

impl Node {
    fn absent() -> Rc<Self> {
        Rc::new(Self {
            bytes: 0,
            way: Way::Absent,
        })
    }

    /// Closes the connection, if there is one.
    fn close(&self) {
        if let Way::Remote { connection, .. } = &self.way {
            connection.close(FabricError::NodeGone {
                node: connection.node(),
            });
            if let Some(messenger) = connection.messenger() {
                messenger.stop();
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.nodes.iter().for_each(|node| node.close());
        if let Some(poller) = &self.poller {
            poller.stop();
        }
    }
}

impl Endpoint {
    pub(super) fn new(
        id: EndpointId,
        joined: Vec<Joined>,
        poller: Option<Rc<Poller>>,
        options: ConnectOptions,
    ) -> Self {
        let operations: Rc<RefCell<Operations>> = Rc::default();
        let inbox: Rc<Inbox> = Rc::default();
        if let Some(poller) = &poller {
            host::spawn_local(Box::pin(poller.clone().drive()));
        }
        let mut capabilities = Region::capabilities();
        let nodes = joined.into_iter().enumerate().map(|(index, joined)| match joined {
            Joined::Absent => Node {
                bytes: 0,
                way: Way::Absent,
            },
            Joined::Mapped(segment, connected) => Node {
                bytes: segment.region().bytes(),
                way: Way::Mapped { segment, connected },
            },
            Joined::Remote(address, remote) | Joined::Rdma(address, remote) => {
                if !remote.welcome.is_rdma() {
                    capabilities = capabilities.and(remote.welcome.unpack());
                }
                let node = NodeId::new(index as u16);
                let connection = Rc::new(Connection::new(node, operations.clone(), inbox.clone()));
                if let (true, Some(poller)) = (remote.welcome.is_rdma(), &poller) {
                    let nic = rdma::Link::new(node, poller, &operations, &connection);
                    connection.lead_verbs_through(Rc::new(nic));
                    if index == 0 {
                        // Whoever has joined this node has a network card: no other client is let in.
                        let messenger = Messenger::new(id, poller.device(), &inbox, &connection);
                        connection.lead_messages_through(messenger);
                    }
                }
                if let Some(mirrored) = Mirrored::new(&remote, &options, id) {
                    connection.follow(mirrored);
                }
                host::spawn_local(Box::pin(connection.clone().drive(remote.stream)));
                Node {
                    bytes: remote.welcome.node_bytes.get(),
                    way: Way::Remote {
                        address,
                        connection,
                        run: Cell::new(remote.welcome.run.get()),
                    },
                }
            }
        });
        let nodes = Grown::new(nodes.map(Rc::new).collect());
        Self {
            shared: Rc::new(Shared {
                id,
                nodes,
                capabilities: Cell::new(capabilities),
                operations,
                inbox,
                poller,
                counters: Counters::default(),
                random: HostRandom::new(),
                options,
            }),
        }
    }

    /// Asks node 0 whether this client still belongs to the pool.
    pub(super) async fn confirm(&self) -> Result<(), ConnectError> {
        let deadline = self.deadline();
        match &self.shared.nodes[0].way {
            Way::Mapped { segment, connected } => {
                if connected.is_fenced() {
                    let address = segment.path().display().to_string();
                    return Err(ConnectError::Fenced { address });
                }
                Ok(())
            }
            Way::Remote { address, .. } => {
                let answered = self.ping(NodeId::new(0), deadline).await;
                answered.map_err(|error| self.while_joining(address, error))
            }
            Way::Absent => unreachable!("{HOME}"),
        }
    }

    /// Asks a node for a sign of life.
    ///
    /// # Errors
    /// See [`FabricError`].
    pub async fn ping(&self, node: NodeId, deadline: Deadline) -> Result<(), FabricError> {
        match &self.node(node)?.way {
            Way::Mapped { segment, connected } => require_member(node, segment, connected),
            Way::Remote { connection, .. } => self.ask(connection, deadline, frame::put_ping).await.map(drop),
            Way::Absent => Err(FabricError::NodeUnknown { node }),
        }
    }

    /// Connects to a node anew after its connection has broken. Does nothing while there is one. What
    /// was in flight when it broke has failed and is not sent again.
    ///
    /// # Errors
    /// Why the node does not let this client in again; it never does after a fence, nor does a mirrored node, whose clients
    /// fail only when they have waited for a primary in vain.
    pub async fn reconnect(&self, node: NodeId) -> Result<(), ConnectError> {
        let Some(Node {
            bytes,
            way: Way::Remote {
                address,
                connection,
                run,
            },
        }) = self.shared.nodes.get(node.index()).map(|node| &**node)
        else {
            return Ok(());
        };
        if connection.failure().is_none() && connection.nic().is_none_or(|nic| nic.is_open()) {
            return Ok(());
        }
        if connection.is_mirrored() {
            // What the group keeps for this client counts its requests from the beginning, and goes on only with its own.
            return Err(ConnectError::Restarted {
                address: address.clone(),
            });
        }
        let returning = Returning {
            id: Some(self.shared.id),
            run: run.get(),
            ..Returning::default()
        };
        let remote = greet(address, &self.shared.options, returning).await?;
        self.reopen(*bytes, address, connection, remote)?;
        let Some(nic) = connection.nic() else { return Ok(()) };
        self.pair_up(connection, nic, address).await?;
        let promised = self.shared.capabilities.get();
        if nic.native().capabilities().and(promised) != promised {
            connection.close(FabricError::NodeGone { node });
            return Err(ConnectError::Atomics {
                address: address.clone(),
            });
        }
        Ok(())
    }

    /// When a node has taken too long to let the client in.
    fn deadline(&self) -> Deadline {
        let timeout_ns = u64::try_from(self.shared.options.timeout.as_nanos()).unwrap_or(u64::MAX);
        Deadline(HostClock.now_ns().saturating_add(timeout_ns))
    }

    /// What it means that a node did not answer a client that joins it.
    fn while_joining(&self, address: &str, error: FabricError) -> ConnectError {
        let address = address.to_owned();
        match error {
            FabricError::Fenced { .. } => ConnectError::Fenced { address },
            FabricError::DeadlineExceeded { .. } => ConnectError::Timeout {
                address,
                timeout: self.shared.options.timeout,
            },
            _ => ConnectError::HungUp {
                address,
                source: std::io::ErrorKind::ConnectionReset.into(),
            },
        }
    }

    fn reopen(
        &self,
        expected: u64,
        address: &str,
        connection: &Rc<Connection>,
        remote: Remote,
    ) -> Result<(), ConnectError> {
        let bytes = remote.welcome.node_bytes.get();
        if bytes != expected {
            return Err(ConnectError::Resized {
                address: address.to_owned(),
                bytes,
                expected,
            });
        }
        // Another task may have been quicker; then this connection is one too many.
        if connection.failure().is_some() {
            connection.reopen();
            if connection.node() == NodeId::new(0) {
                self.shared.inbox.node_found();
            }
            host::spawn_local(Box::pin(connection.clone().drive(remote.stream)));
        }
        Ok(())
    }

    /// Where the members of a mirrored node are, as far as this client knows; none if the node is not mirrored.
    #[must_use]
    pub fn members(&self, node: NodeId) -> Vec<String> {
        match self.shared.nodes.get(node.index()).map(|node| &node.way) {
            Some(Way::Remote { connection, .. }) => connection.members(),
            _ => Vec::new(),
        }
    }

    /// Which atomics the cards on the way to a node have themselves; `None` if the node is not reached by RDMA, or not now.
    #[must_use]
    pub fn native_atomics(&self, node: NodeId) -> Option<NativeAtomics> {
        match &self.shared.nodes.get(node.index())?.way {
            Way::Remote { connection, .. } => {
                let nic = connection.nic().filter(|nic| nic.is_open())?;
                Some(nic.native().atomics())
            }
            Way::Mapped { .. } | Way::Absent => None,
        }
    }

    /// The network card's way to a node.
    #[cfg(test)]
    pub(crate) fn nic(&self, node: NodeId) -> Rc<rdma::Link> {
        match &self.shared.nodes[node.index()].way {
            Way::Remote { connection, .. } => connection.nic().expect("reached by RDMA").clone(),
            Way::Mapped { .. } | Way::Absent => panic!("{node} is not at the end of a connection"),
        }
    }

    /// How many messages this client's card has been given.
    #[cfg(test)]
    pub(crate) fn sent_by_card(&self) -> u64 {
        self.messenger().sent_by_card()
    }

    /// How many messages this client's card has been given and no peer's card has taken.
    #[cfg(test)]
    pub(crate) fn in_flight_by_card(&self) -> u32 {
        self.messenger().in_flight()
    }

    #[cfg(test)]
    fn messenger(&self) -> &Messenger {
        match &self.shared.nodes[0].way {
            Way::Remote { connection, .. } => connection.messenger().expect("node 0 is reached by RDMA"),
            Way::Mapped { .. } | Way::Absent => panic!("node 0 is mapped"),
        }
    }

    #[inline]
    fn node(&self, node: NodeId) -> Result<&Node, FabricError> {
        let known = self.shared.nodes.get(node.index()).map(|node| &**node);
        known
            .filter(|known| known.bytes > 0)
            .ok_or(FabricError::NodeUnknown { node })
    }

    /// What can be known before posting.
    #[inline]
    fn check(&self, verb: &Verb, buffer: &Buffer) -> Result<&Node, FabricError> {
        let node = self.node(verb.target().0.node())?;
        check_verb(verb, node.bytes, self.shared.capabilities.get())?;
        if let Some(slice) = verb.local() {
            assert!(
                slice.range().end <= buffer.len(),
                "a verb's slice lies inside its buffer"
            );
        }
        Ok(node)
    }

    #[inline]
    fn count(&self, verb: &Verb) {
        self.shared.counters.count(verb.kind(), verb.target().1);
    }

    /// Waits until the connection takes another request.
    #[inline]
    async fn require_room(&self, connection: &Connection, deadline: Deadline) -> Result<(), FabricError> {
        if !connection.has_room() {
            let node = connection.node();
            let room = HostClock.until(deadline, connection.room()).await;
            room.ok_or(FabricError::DeadlineExceeded { node })?;
        }
        connection.failure().map_or(Ok(()), Err)
    }

    /// Waits until the way to the node takes other verbs.
    #[inline]
    async fn require_room_for_verbs(&self, connection: &Connection, deadline: Deadline) -> Result<(), FabricError> {
        let Some(nic) = connection.nic() else {
            return self.require_room(connection, deadline).await;
        };
        if !nic.has_room() {
            let node = connection.node();
            let room = HostClock.until(deadline, nic.room()).await;
            room.ok_or(FabricError::DeadlineExceeded { node })?;
        }
        require_way(connection)
    }

    /// Makes the buffer known to the network card, if one works on it.
    #[inline]
    fn register(&self, buffer: &mut Buffer, node: NodeId) -> Result<(), FabricError> {
        let Some(poller) = &self.shared.poller else {
            return Ok(());
        };
        let registered = buffer.memory_mut().register(poller.device());
        registered.map_err(|error| {
            tracing::warn!("{error}");
            FabricError::Unregistered { node }
        })
    }

    /// The oldest message that has come from node 0 over `connection`, or by this machine's card, if there is one.
    fn take(&self, connection: &Connection) -> Result<Option<Received>, FabricError> {
        match self.shared.inbox.take() {
            Taken::Message(received, grant) => {
                if grant > 0 {
                    connection.grant(grant);
                }
                if let Some(messenger) = connection.messenger() {
                    messenger.made_room();
                }
                Ok(Some(received))
            }
            Taken::Lost => {
                let gone = FabricError::NodeGone { node: NodeId::new(0) };
                Err(connection.failure().unwrap_or(gone))
            }
            Taken::Empty => Ok(None),
        }
    }

    /// Executes a verb over a connection that is up, or by the card.
    #[inline]
    async fn execute_remote(
        &self,
        connection: &Connection,
        verb: &Verb,
        buffer: &mut Buffer,
        deadline: Deadline,
    ) -> Result<u128, FabricError> {
        let operations = &self.shared.operations;
        let index = operations.borrow_mut().begin(core::iter::once(verb), buffer.take());
        match connection.nic() {
            Some(nic) => nic.post(index, core::iter::once((0, verb))),
            None => connection.post(index, core::iter::once(verb)),
        }
        let mut pending = Pending::new(operations, index);
        HostClock.until(deadline, &mut pending).await;
        let late = FabricError::DeadlineExceeded {
            node: connection.node(),
        };
        pending.finish(buffer, late, |parts, _| parts[0].result())
    }

    /// Posts a request that is no batch, and waits.
    async fn ask(
        &self,
        connection: &Connection,
        deadline: Deadline,
        encode: impl FnOnce(&mut Vec<u8>, u32),
    ) -> Result<Status, FabricError> {
        let answer = core::iter::empty();
        self.ask_for(connection, deadline, answer, &mut Buffer::default(), encode)
            .await
    }

    /// Posts a request that is no batch, and waits for an answer whose body is what these verbs would return.
    async fn ask_for<'v>(
        &self,
        connection: &Connection,
        deadline: Deadline,
        answer: impl IntoIterator<Item = &'v Verb>,
        buffer: &mut Buffer,
        encode: impl FnOnce(&mut Vec<u8>, u32),
    ) -> Result<Status, FabricError> {
        self.require_room(connection, deadline).await?;
        let operations = &self.shared.operations;
        let index = operations.borrow_mut().begin(answer.into_iter(), buffer.take());
        connection.post_frame(index, encode);
        let mut pending = Pending::new(operations, index);
        HostClock.until(deadline, &mut pending).await;
        let late = FabricError::DeadlineExceeded {
            node: connection.node(),
        };
        pending.finish(buffer, late, |_, status| status)
    }
}

/// Whether verbs can be posted.
fn require_way(connection: &Connection) -> Result<(), FabricError> {
    match connection.failure() {
        Some(failure) => Err(failure),
        None if connection.nic().is_some_and(|nic| !nic.is_open()) => Err(FabricError::NodeGone {
            node: connection.node(),
        }),
        None => Ok(()),
    }
}

/// Whether a mapped node is there, and this client a member of its segment.
fn require_member(node: NodeId, segment: &Segment, connected: &Connected) -> Result<(), FabricError> {
    if segment.is_closed() {
        return Err(FabricError::NodeGone { node });
    }
    if connected.is_fenced() {
        return Err(FabricError::Fenced { node });
    }
    Ok(())
}

#[inline]
fn execute_mapped(
    segment: &Segment,
    connected: &Connected,
    verb: &Verb,
    buffer: &mut [u8],
) -> Result<u128, FabricError> {
    let node = verb.target().0.node();
    if segment.is_closed() {
        return Err(FabricError::NodeGone { node });
    }
    let _execution = connected.begin().ok_or(FabricError::Fenced { node })?;
    Ok(segment.region().execute(verb, buffer))
}

impl core::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Endpoint")
            .field("id", &self.shared.id)
            .finish_non_exhaustive()
    }
}

impl Endpoint {
    async fn execute_now(&self, verb: Verb, buffer: &mut Buffer, deadline: Deadline) -> Result<u128, FabricError> {
        let node = self.check(&verb, buffer)?;
        let connection = match &node.way {
            Way::Mapped { segment, connected } => {
                self.shared.counters.count_doorbell();
                self.count(&verb);
                return execute_mapped(segment, connected, &verb, buffer);
            }
            Way::Remote { connection, .. } => connection,
            Way::Absent => {
                return Err(FabricError::NodeUnknown {
                    node: verb.target().0.node(),
                });
            }
        };
        self.require_room_for_verbs(connection, deadline).await?;
        self.register(buffer, connection.node())?;
        self.shared.counters.count_doorbell();
        self.count(&verb);
        self.execute_remote(connection, &verb, buffer, deadline).await
    }

    async fn post_now(&self, batch: &mut Batch, buffer: &mut Buffer, deadline: Deadline) -> Result<u128, FabricError> {
        for verb in batch.verbs() {
            self.check(verb, buffer)?;
        }
        let is_first_of_node = |index: usize, verbs: &[Verb]| {
            let node = verbs[index].target().0.node();
            verbs[..index].iter().all(|verb| verb.target().0.node() != node)
        };
        // All nodes must be there before anything is posted. Waiting for room on one may take the room
        // on another; the bound is then exceeded by one batch for each waiting task.
        let mut asked = None;
        for index in 0..batch.verbs().len() {
            let node = batch.verbs()[index].target().0.node();
            if let Way::Remote { connection, .. } = &self.node(node)?.way
                && is_first_of_node(index, batch.verbs())
            {
                self.require_room_for_verbs(connection, deadline).await?;
                self.register(buffer, node)?;
                asked.get_or_insert(node);
            }
        }
        for verb in batch.verbs() {
            if let Way::Remote { connection, .. } = &self.node(verb.target().0.node())?.way {
                // May have broken while we waited for another.
                require_way(connection)?;
            }
        }
        self.shared.counters.count_doorbell();
        for index in 0..batch.verbs().len() {
            let verb = batch.verbs()[index];
            self.count(&verb);
            if let Way::Mapped { segment, connected } = &self.node(verb.target().0.node())?.way {
                let result = execute_mapped(segment, connected, &verb, buffer)?;
                batch.set_result(index, result);
            }
        }
        let Some(asked) = asked else {
            return Ok(0);
        };
        let operations = &self.shared.operations;
        let is_remote = |verb: &Verb| {
            matches!(
                self.shared.nodes[verb.target().0.node().index()].way,
                Way::Remote { .. }
            )
        };
        let remote = batch.verbs().iter().filter(|verb| is_remote(verb));
        let index = operations.borrow_mut().begin(remote, buffer.take());
        for first in 0..batch.verbs().len() {
            let node = batch.verbs()[first].target().0.node();
            if let Way::Remote { connection, .. } = &self.node(node)?.way
                && is_first_of_node(first, batch.verbs())
            {
                let remote = batch.verbs().iter().filter(|verb| is_remote(verb));
                let of_node = remote.enumerate().filter(|(_, verb)| verb.target().0.node() == node);
                match connection.nic() {
                    Some(nic) => nic.post(index, of_node),
                    None => connection.post(index, of_node.map(|(_, verb)| verb)),
                }
            }
        }
        let mut pending = Pending::new(operations, index);
        HostClock.until(deadline, &mut pending).await;
        let late = FabricError::DeadlineExceeded {
            node: pending.laggard().unwrap_or(asked),
        };
        pending
            .finish(buffer, late, |parts, _| {
                let mut parts = parts.iter();
                for index in 0..batch.verbs().len() {
                    if is_remote(&batch.verbs()[index]) {
                        let part = parts.next().expect("one part for each remote verb");
                        batch.set_result(index, part.result());
                    }
                }
            })
            .map(|()| 0)
    }

    async fn send_now(&self, peer: EndpointId, message: &Message, deadline: Deadline) -> Result<(), FabricError> {
        self.shared.counters.count_doorbell();
        self.shared.counters.count(VerbKind::Send, message.len() as u64);
        let connection = match &self.shared.nodes[0].way {
            Way::Mapped { connected, .. } => return connected.send(peer, message),
            Way::Remote { connection, .. } => connection,
            Way::Absent => unreachable!("{HOME}"),
        };
        let messenger = connection.messenger();
        loop {
            self.require_room(connection, deadline).await?;
            let Some(messenger) = messenger else { break };
            match messenger.send(peer, message, deadline).await {
                Sent::Done => return Ok(()),
                Sent::Full => return Err(FabricError::MailboxFull { peer }),
                // From here to the post nobody else may run: a pair may be opened.
                Sent::NotHere if connection.has_room() => break,
                Sent::NotHere => {}
            }
        }
        let encode = |output: &mut Vec<u8>, request| {
            if let Some(messenger) = messenger {
                messenger.relayed(peer);
            }
            frame::put_send(output, request, peer, message);
        };
        match self.ask(connection, deadline, encode).await? {
            Status::PeerUnknown => {
                if let Some(messenger) = messenger {
                    messenger.forget(peer);
                }
                Err(FabricError::PeerUnknown { peer })
            }
            Status::MailboxFull => Err(FabricError::MailboxFull { peer }),
            Status::Done | Status::StillRunning => {
                if let Some(messenger) = messenger {
                    messenger.introduce(peer);
                }
                Ok(())
            }
        }
    }

    async fn receive_now(&self, deadline: Deadline) -> Result<Received, FabricError> {
        let connection = match &self.shared.nodes[0].way {
            Way::Mapped { connected, .. } => return connected.receive(deadline).await,
            Way::Remote { connection, .. } => connection,
            Way::Absent => unreachable!("{HOME}"),
        };
        loop {
            if let Some(received) = self.take(connection)? {
                return Ok(received);
            }
            let change = HostClock.until(deadline, self.shared.inbox.changed()).await;
            change.ok_or(FabricError::NoMessage)?;
        }
    }

    async fn fence_now(&self, peer: EndpointId, deadline: Deadline) -> Result<Fence, FabricError> {
        // Node 0 first: whoever joins looks there last.
        for index in 0..self.shared.nodes.len() {
            let node = Rc::clone(&self.shared.nodes[index]);
            let fence = match &node.way {
                Way::Mapped { segment, .. } => segment.fence(NodeId::new(index as u16), peer, deadline).await?,
                Way::Remote { connection, .. } => {
                    let encode = |output: &mut Vec<u8>, request| frame::put_fence(output, request, peer);
                    match self.ask(connection, deadline, encode).await? {
                        Status::StillRunning => Fence::StillRunning,
                        _ => Fence::CutOff,
                    }
                }
                Way::Absent => Fence::CutOff,
            };
            if fence == Fence::StillRunning {
                return Ok(Fence::StillRunning);
            }
        }
        Ok(Fence::CutOff)
    }
}

impl Backend for Endpoint {
    fn node_count(&self) -> usize {
        self.shared.nodes.len()
    }

    fn attach<'c>(&'c self, node: NodeId, place: &'c str) -> Soon<'c, Result<(), AttachError>> {
        Soon::later(self.attach_now(node, place))
    }

    fn detach(&self, node: NodeId) {
        if let Some(known) = self.shared.nodes.get(node.index()) {
            known.close();
            self.shared.nodes.change(|nodes| nodes[node.index()] = Node::absent());
        }
    }

    fn is_attached(&self, node: NodeId) -> bool {
        self.node(node).is_ok()
    }

    fn node_bytes(&self, node: NodeId) -> Result<u64, FabricError> {
        Ok(self.node(node)?.bytes)
    }

    fn capabilities(&self) -> Capabilities {
        self.shared.capabilities.get()
    }

    fn buffer(&self, bytes: usize) -> Buffer {
        match &self.shared.poller {
            Some(poller) => poller.device().buffer(bytes),
            None => Buffer::unregistered(bytes),
        }
    }

    fn execute<'c>(&'c self, verb: &Verb, buffer: &'c mut Buffer, deadline: Deadline) -> Posted<'c> {
        Posted::later(self.execute_now(*verb, buffer, deadline))
    }

    fn post<'c>(&'c self, batch: &'c mut Batch, buffer: &'c mut Buffer, deadline: Deadline) -> Posted<'c> {
        Posted::later(self.post_now(batch, buffer, deadline))
    }

    #[inline]
    fn prefetch(&self, addr: RemoteAddr, bytes: u32) -> bool {
        match self.node(addr.node()) {
            Ok(Node {
                way: Way::Mapped { segment, .. },
                ..
            }) => {
                segment.region().prefetch(addr.offset(), bytes);
                true
            }
            _ => false,
        }
    }

    fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    fn id(&self) -> EndpointId {
        self.shared.id
    }

    fn send<'c>(
        &'c self,
        peer: EndpointId,
        message: &'c Message,
        deadline: Deadline,
    ) -> Soon<'c, Result<(), FabricError>> {
        Soon::later(self.send_now(peer, message, deadline))
    }

    fn receive(&self, deadline: Deadline) -> Soon<'_, Result<Received, FabricError>> {
        Soon::later(self.receive_now(deadline))
    }

    fn try_receive(&self) -> Result<Option<Received>, FabricError> {
        match &self.shared.nodes[0].way {
            Way::Mapped { connected, .. } => Ok(connected.take()),
            Way::Remote { connection, .. } => self.take(connection),
            Way::Absent => unreachable!("{HOME}"),
        }
    }

    fn fence(&self, peer: EndpointId, deadline: Deadline) -> Soon<'_, Result<Fence, FabricError>> {
        Soon::later(self.fence_now(peer, deadline))
    }

    fn random(&self) -> u64 {
        self.shared.random.random()
    }
}

mod attach;
mod pairing;
#[cfg(test)]
mod tests;
