//! A client of a group: keeps requests under way, finds the primary, and sends again what was not answered.

use std::collections::{BTreeMap, VecDeque};

use farside_fabric::EndpointId;

use crate::history::Call;

/// What a client asks of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ask {
    /// One word, as the history knows it.
    Word { key: u64, call: Call },
    /// Writes a word twice in one batch; the second is what stays.
    Twice { key: u64, value: u64 },
    /// Writes both words of the pair.
    WritePair { value: u64 },
    /// Reads both.
    ReadPair,
    /// Sends the next message to another client.
    Send { to: usize },
    /// Cuts another client off.
    Fence { victim: usize },
}

/// A request without an answer.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) request: u32,
    pub(super) ask: Ask,
    pub(super) thread: u32,
    pub(super) start_ns: u64,
    /// What a message says, once the receiver's identity is known.
    pub(super) message: Option<(EndpointId, u64)>,
}

/// Where a client is with its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Connection {
    /// None; tries the next member at some time.
    None,
    /// Has said hello to a server, over this connection.
    Greeting { server: usize, link: u64 },
    /// Is known there.
    Open { server: usize, link: u64 },
}

/// One client.
#[derive(Debug)]
pub(super) struct Client {
    /// Which of all clients that have ever been.
    pub(super) name: usize,
    pub(super) id: Option<EndpointId>,
    /// The life of the group in which the identity counts.
    pub(super) group: u64,
    pub(super) connection: Connection,
    /// When the connection was opened.
    pub(super) opened_ns: u64,
    pub(super) is_dead: bool,
    pub(super) next_request: u32,
    pub(super) pending: VecDeque<Pending>,
    /// How many messages have come.
    pub(super) taken: u64,
    /// Which server it tries next.
    pub(super) next_server: usize,
    /// Which of its threads wait for an answer.
    pub(super) busy: Vec<bool>,
    /// The last number that came from each sender.
    pub(super) received: BTreeMap<EndpointId, u64>,
    /// Per receiver: the last number sent.
    pub(super) sent: BTreeMap<EndpointId, u64>,
}

impl Client {
    pub(super) fn new(name: usize, threads: usize) -> Self {
        Self {
            name,
            id: None,
            group: 0,
            connection: Connection::None,
            opened_ns: 0,
            is_dead: false,
            next_request: 0,
            pending: VecDeque::new(),
            taken: 0,
            next_server: name,
            busy: vec![false; threads],
            received: BTreeMap::new(),
            sent: BTreeMap::new(),
        }
    }

    /// The first request without an answer.
    pub(super) fn answered(&self) -> u32 {
        self.pending
            .front()
            .map_or(self.next_request, |pending| pending.request)
    }

    /// The threads' name in the history.
    pub(super) fn thread_name(&self, thread: u32) -> u32 {
        self.name as u32 * 16 + thread
    }
}
