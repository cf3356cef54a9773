//! What all members know of the clients: answers they may not have read, messages that wait for them, who is cut off.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::entry::{Entry, Kind};
use super::note::{NoteError, Reader};
use crate::message::{EndpointId, Message};
use crate::mutant::is_planted;

/// How many messages may wait for a client.
pub(super) const MAILBOX_MESSAGES_MAX: usize = 4096;
/// Identities are four apart, so that those that count from the milliseconds of a later life are larger, although four
/// clients are admitted in each; and they have fewer than the 44 bits that locks have room for until the year 2109.
const SEQUENCE_SHIFT: u32 = 2;

/// A message that waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Letter {
    pub(super) from: EndpointId,
    pub(super) message: Message,
    /// The entry that brought it.
    pub(super) entry: u64,
}

/// One client, as all members see it.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Client {
    /// Answers to requests that have changed something, by number; those the client has read are gone.
    answers: VecDeque<(u32, Box<[u8]>)>,
    /// Messages not taken yet.
    pub(super) mailbox: VecDeque<Letter>,
    /// How many messages the client has taken; `mailbox[0]` is the next.
    pub(super) taken: u64,
}

impl Client {
    /// The answer to a request that was executed before.
    pub(super) fn answer(&self, request: u32) -> Option<&[u8]> {
        // Nearly always the client sends something new.
        let (last, _) = self.answers.back()?;
        if is_before(*last, request) {
            return None;
        }
        let found = self.answers.iter().find(|(number, _)| *number == request);
        found.map(|(_, answer)| &**answer)
    }

    fn executed(&mut self, request: u32, answered: u32, answer: &[u8]) {
        self.read_up_to(answered);
        // One that changed nothing at first, and something when it was sent again, comes before others that were executed.
        let later = self
            .answers
            .iter()
            .rev()
            .take_while(|(number, _)| is_before(request, *number));
        let at = self.answers.len() - later.count();
        self.answers.insert(at, (request, answer.into()));
    }

    /// The client has read all answers before `answered`.
    pub(super) fn read_up_to(&mut self, answered: u32) {
        while let Some((number, _)) = self.answers.front()
            && is_before(*number, answered)
        {
            self.answers.pop_front();
        }
    }

    fn take_up_to(&mut self, taken: u64) {
        while self.taken < taken && self.mailbox.pop_front().is_some() {
            self.taken += 1;
        }
    }
}

/// Whether request `a` comes before `b`: numbers wrap around, and never are half the circle apart.
fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// All clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Clients {
    known: BTreeMap<EndpointId, Client>,
    fenced: BTreeSet<EndpointId>,
    /// The next identity, without the bits below.
    next_sequence: u64,
}

impl Clients {
    pub(super) fn new(first_sequence: u64) -> Self {
        Self {
            known: BTreeMap::new(),
            fenced: BTreeSet::new(),
            next_sequence: first_sequence,
        }
    }

    #[inline]
    pub(super) fn get(&mut self, client: EndpointId) -> Option<&mut Client> {
        self.known.get_mut(&client)
    }

    /// How many messages have come for a client in its life.
    pub(super) fn letters_of(&self, client: EndpointId) -> u64 {
        let known = self.known.get(&client);
        known.map_or(0, |known| known.taken + known.mailbox.len() as u64)
    }

    pub(super) fn knows(&self, client: EndpointId) -> bool {
        self.known.contains_key(&client)
    }

    pub(super) fn is_fenced(&self, client: EndpointId) -> bool {
        self.fenced.contains(&client)
    }

    pub(super) fn ids(&self) -> BTreeSet<EndpointId> {
        self.known.keys().copied().collect()
    }

    pub(super) fn count(&self) -> usize {
        self.known.len()
    }

    /// An identity that nobody has had.
    pub(super) fn next_identity(&self) -> EndpointId {
        EndpointId(self.next_sequence << SEQUENCE_SHIFT)
    }

    /// Does what an entry says of clients.
    pub(super) fn apply(&mut self, entry: &Entry<'_>, number: u64) {
        let id = EndpointId(entry.head.client.get());
        let other = EndpointId(entry.head.number.get());
        match entry.kind {
            Kind::Batch => {}
            Kind::Send => {
                if let Some(peer) = self.known.get_mut(&other)
                    && let Some((_, bytes)) = entry.effects().next()
                    && let Ok(message) = Message::try_from(bytes)
                {
                    peer.mailbox.push_back(Letter {
                        from: id,
                        message,
                        entry: number,
                    });
                }
            }
            Kind::Fence => {
                self.fenced.insert(other);
                self.known.remove(&other);
            }
            Kind::Admit => {
                self.known.entry(id).or_default();
                let sequence = id.0 >> SEQUENCE_SHIFT;
                self.next_sequence = self.next_sequence.max(sequence + 1);
                return;
            }
            Kind::Taken => {
                if let Some(client) = self.known.get_mut(&id) {
                    client.take_up_to(entry.head.number.get());
                }
                return;
            }
            Kind::Forget => {
                self.known.remove(&id);
                return;
            }
        }
        if is_planted("mirror: answers are not kept") {
            return;
        }
        if let Some(client) = self.known.get_mut(&id) {
            client.executed(entry.head.request.get(), entry.head.answered.get(), entry.answer);
        }
    }

    /// All of it as bytes, for a member that joins.
    pub(super) fn encode(&self, output: &mut Vec<u8>) {
        let put = |output: &mut Vec<u8>, number: u64| output.extend_from_slice(&number.to_le_bytes());
        let put_bytes = |output: &mut Vec<u8>, bytes: &[u8]| {
            output.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
            output.extend_from_slice(bytes);
        };
        put(output, self.next_sequence);
        put(output, self.fenced.len() as u64);
        for id in &self.fenced {
            put(output, id.0);
        }
        put(output, self.known.len() as u64);
        for (id, client) in &self.known {
            put(output, id.0);
            put(output, client.taken);
            put(output, client.answers.len() as u64);
            for (request, answer) in &client.answers {
                put(output, (*request).into());
                put_bytes(output, answer);
            }
            put(output, client.mailbox.len() as u64);
            for letter in &client.mailbox {
                put(output, letter.from.0);
                put(output, letter.entry);
                put_bytes(output, &letter.message);
            }
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, NoteError> {
        let mut reader = Reader::new(bytes);
        let mut clients = Self::new(reader.number()?);
        for _ in 0..reader.number()? {
            clients.fenced.insert(EndpointId(reader.number()?));
        }
        for _ in 0..reader.number()? {
            let id = EndpointId(reader.number()?);
            let mut client = Client {
                taken: reader.number()?,
                ..Client::default()
            };
            for _ in 0..reader.number()? {
                let request = reader.number()? as u32;
                client.answers.push_back((request, reader.bytes()?.into()));
            }
            for _ in 0..reader.number()? {
                let from = EndpointId(reader.number()?);
                let entry = reader.number()?;
                let message = Message::try_from(reader.bytes()?).map_err(|_| NoteError::Entry)?;
                client.mailbox.push_back(Letter { from, message, entry });
            }
            clients.known.insert(id, client);
        }
        reader.end()?;
        Ok(clients)
    }
}
