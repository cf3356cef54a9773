//! What a client is about to do as one: the commands since MULTI, and the keys that it watches.
//!
//! On the path: a part of the client, filled command by command and taken by EXEC.

use std::collections::BTreeMap;

use farside_kv::{TRANSACTION_KEYS_MAX, Watched};

use crate::command::table::{Id, TABLE};
use crate::guard::Place;
use crate::request::Request;

/// Bytes of commands that may wait for EXEC.
const QUEUE_BYTES_MAX: usize = 256 << 20;
/// Room for so many bytes of commands is kept from one transaction to the next.
const KEEP_BYTES_MAX: usize = 64 << 10;
const TOO_MUCH: &str = "ERR too many commands: at most 256 MiB of them may wait for EXEC";

/// See the module.
#[derive(Default, Debug)]
pub(crate) struct Queue {
    /// Since MULTI.
    is_open: bool,
    is_broken: bool,
    /// Whether there were too many commands: they are gone, and EXEC will refuse.
    is_full: bool,
    commands: Commands,
    /// By their keys.
    watched: BTreeMap<Vec<u8>, Watched>,
    watched_bytes: usize,
}

/// Commands that wait for EXEC, copied one behind the other.
#[derive(Default, Debug)]
pub(crate) struct Commands {
    entries: Vec<Entry>,
    places: Vec<Place>,
    bytes: Vec<u8>,
}

/// A command, and where the places of its arguments and its bytes end.
#[derive(Debug)]
struct Entry {
    id: Id,
    places_end: usize,
    bytes_end: usize,
}

impl Commands {
    fn push(&mut self, id: Id, request: &Request<'_>) {
        let start = self.bytes.len();
        for argument in request.args(0) {
            let from = (self.bytes.len() - start) as u32;
            self.bytes.extend_from_slice(argument);
            self.places.push((from, (self.bytes.len() - start) as u32));
        }
        self.entries.push(Entry {
            id,
            places_end: self.places.len(),
            bytes_end: self.bytes.len(),
        });
    }

    /// Bytes that they take; the vectors may have room for as much again.
    fn memory(&self) -> usize {
        size_of_val(&*self.entries) + size_of_val(&*self.places) + self.bytes.len()
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.places.clear();
        self.bytes.clear();
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// All of them, in their order.
    pub(crate) fn each(&self) -> impl Iterator<Item = (Id, Request<'_>)> {
        let mut starts = (0, 0);
        self.entries.iter().map(move |entry| {
            let (places, bytes) = starts;
            starts = (entry.places_end, entry.bytes_end);
            let request = Request::new(
                &self.bytes[bytes..entry.bytes_end],
                &self.places[places..entry.places_end],
            );
            (entry.id, request)
        })
    }

    /// Those that name keys.
    pub(crate) fn with_keys(&self) -> impl Iterator<Item = (Id, Request<'_>)> {
        self.each().filter(|(id, request)| has_keys(*id, request))
    }

    /// The keys that they name.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.with_keys().flat_map(|(id, request)| {
            let places = TABLE[id as usize].keys.places(&request);
            places.map(move |place| request.arg(place))
        })
    }
}

/// Whether a command names keys.
pub(crate) fn has_keys(id: Id, request: &Request<'_>) -> bool {
    TABLE[id as usize].keys.places(request).next().is_some()
}

/// What EXEC takes.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) commands: Commands,
    /// Whether something was wrong with one of them.
    pub(crate) is_broken: bool,
    pub(crate) watched: BTreeMap<Vec<u8>, Watched>,
}

impl Queue {
    /// Whether commands are queued.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// How many are queued, if they are.
    pub(crate) fn len(&self) -> Option<usize> {
        self.is_open.then(|| self.commands.len())
    }

    /// Whether one of them is such.
    pub(crate) fn has(&self, is_such: impl Fn(Id) -> bool) -> bool {
        self.commands.entries.iter().any(|entry| is_such(entry.id))
    }

    /// From now on commands are queued; false if they are already.
    pub(crate) fn open(&mut self) -> bool {
        !core::mem::replace(&mut self.is_open, true)
    }

    /// Adds a command.
    ///
    /// # Errors
    /// The error line, if there are too many.
    pub(crate) fn push(&mut self, id: Id, request: &Request<'_>) -> Result<(), &'static str> {
        if !self.is_full {
            self.commands.push(id, request);
            self.is_full = self.commands.memory() + self.watched_bytes > QUEUE_BYTES_MAX;
        }
        if self.is_full {
            self.commands = Commands::default();
            return Err(TOO_MUCH);
        }
        Ok(())
    }

    /// A command was refused: EXEC will refuse all.
    pub(crate) fn spoil(&mut self) {
        self.is_broken = true;
    }

    /// Takes everything, if commands are queued; nothing is watched any more then. Otherwise nothing happens.
    pub(crate) fn take(&mut self) -> Option<Batch> {
        if !self.is_open {
            return None;
        }
        let Self {
            is_broken,
            commands,
            watched,
            ..
        } = core::mem::take(self);
        Some(Batch {
            commands,
            is_broken,
            watched,
        })
    }

    /// Gets the room back that was taken.
    pub(crate) fn give_back(&mut self, mut commands: Commands) {
        if commands.memory() <= KEEP_BYTES_MAX {
            commands.clear();
            self.commands = commands;
        }
    }

    pub(crate) fn watches(&self, key: &[u8]) -> bool {
        self.watched.contains_key(key)
    }

    /// Adds a key to those that are watched.
    ///
    /// # Errors
    /// The error line, if there are too many.
    pub(crate) fn watch(&mut self, watched: Watched) -> Result<(), &'static str> {
        self.watched_bytes += 2 * watched.key().len() + size_of::<Watched>();
        if self.watched_bytes > QUEUE_BYTES_MAX || self.watched.len() == TRANSACTION_KEYS_MAX {
            return Err("ERR too many keys are watched");
        }
        self.watched.insert(watched.key().to_vec(), watched);
        Ok(())
    }

    pub(crate) fn unwatch(&mut self) {
        self.watched.clear();
        self.watched_bytes = 0;
    }
}
