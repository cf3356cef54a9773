//! What a client is about to do as one: the commands since MULTI, and the keys that it watches.
//!
//! On the path: a part of the client, filled command by command and taken by EXEC.

use std::collections::BTreeMap;

use farside_kv::{TRANSACTION_KEYS_MAX, Watched};

use crate::command::table::{Id, TABLE};
use crate::request::{Kept, Request};

/// Bytes of commands that may wait for EXEC.
const QUEUE_BYTES_MAX: usize = 256 << 20;
/// What a command takes beside its arguments: its place, and what the heap keeps for two blocks.
const QUEUED_BYTES: usize = size_of::<Queued>() + 32;
const TOO_MUCH: &str = "ERR too many commands: at most 256 MiB of them may wait for EXEC";

/// See the module.
#[derive(Default, Debug)]
pub(crate) struct Queue {
    /// There since MULTI.
    open: Option<Vec<Queued>>,
    is_broken: bool,
    bytes: usize,
    /// By their keys.
    watched: BTreeMap<Vec<u8>, Watched>,
}

/// A command that waits for EXEC.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) id: Id,
    kept: Kept,
}

impl Queued {
    pub(crate) fn request(&self) -> Request<'_> {
        self.kept.request()
    }

    /// Whether it names keys.
    pub(crate) fn has_keys(&self) -> bool {
        TABLE[self.id as usize].keys[0] > 0
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let places = TABLE[self.id as usize].key_places(self.kept.len());
        places.map(|place| self.kept.arg(place))
    }
}

/// What EXEC takes.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) queued: Vec<Queued>,
    /// Whether something was wrong with one of the commands.
    pub(crate) is_broken: bool,
    pub(crate) watched: BTreeMap<Vec<u8>, Watched>,
}

impl Queue {
    /// Whether commands are queued.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// How many are queued, if they are.
    pub(crate) fn len(&self) -> Option<usize> {
        self.open.as_ref().map(Vec::len)
    }

    /// From now on commands are queued; false if they are already.
    pub(crate) fn open(&mut self) -> bool {
        let is_new = self.open.is_none();
        self.open.get_or_insert_default();
        is_new
    }

    /// Adds a command.
    ///
    /// # Errors
    /// The error line, if there are too many.
    pub(crate) fn push(&mut self, id: Id, request: &Request<'_>) -> Result<(), &'static str> {
        let kept = request.keep();
        self.bytes += kept.bytes() + QUEUED_BYTES;
        if self.bytes > QUEUE_BYTES_MAX {
            // They will not be executed.
            self.open = Some(Vec::new());
            return Err(TOO_MUCH);
        }
        self.open.get_or_insert_default().push(Queued { id, kept });
        Ok(())
    }

    /// A command was refused: EXEC will refuse all.
    pub(crate) fn spoil(&mut self) {
        self.is_broken = true;
    }

    /// Takes everything, if commands were queued; nothing is watched any more.
    pub(crate) fn take(&mut self) -> Option<Batch> {
        let queued = self.open.take()?;
        let Self { is_broken, watched, .. } = core::mem::take(self);
        Some(Batch {
            queued,
            is_broken,
            watched,
        })
    }

    pub(crate) fn watches(&self, key: &[u8]) -> bool {
        self.watched.contains_key(key)
    }

    /// Adds a key to those that are watched.
    ///
    /// # Errors
    /// The error line, if there are too many.
    pub(crate) fn watch(&mut self, watched: Watched) -> Result<(), &'static str> {
        self.bytes += 2 * watched.key().len() + size_of::<Watched>();
        if self.bytes > QUEUE_BYTES_MAX || self.watched.len() == TRANSACTION_KEYS_MAX {
            return Err("ERR too many keys are watched");
        }
        self.watched.insert(watched.key().to_vec(), watched);
        Ok(())
    }

    pub(crate) fn unwatch(&mut self) {
        self.watched.clear();
        self.bytes = 0;
    }
}
