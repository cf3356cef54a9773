//! What members tell each other, and its bytes.
//!
//! A connection between two members carries notes in order, and breaks as a whole. All numbers are little-endian.

use super::history::Position;
use super::view::{MemberId, Peer, View};

/// A note that cannot be read. Whoever sent it is cut off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoteError {
    /// It ends in the middle, or goes on after its end.
    #[error("a note of the wrong length")]
    Truncated,
    /// No such note.
    #[error("note number {code} does not exist")]
    Unknown {
        /// What it says it is.
        code: u8,
    },
    /// An entry that no primary makes.
    #[error("a malformed entry")]
    Entry,
}

/// From one member to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Note {
    /// To a primary: the sender wants to follow.
    Join {
        /// Who it is.
        member: Peer,
        /// Names the stream that is to come; a later one makes notes of an earlier one void.
        stream: u64,
        /// How far its memory and log are right; `None` if they have to be copied.
        position: Option<Position>,
        /// How much memory it has.
        memory_bytes: u64,
        /// Whether its memory is all zero: then what is zero here need not be sent.
        is_blank: bool,
    },
    /// From a primary: memory follows, then the clients.
    CopyBegins {
        /// Which stream.
        stream: u64,
        /// The primary's epoch.
        epoch: u64,
    },
    /// A part of the memory as it is at this place of the stream.
    Memory {
        /// Which stream.
        stream: u64,
        /// The primary's epoch.
        epoch: u64,
        /// Where.
        offset: u64,
        /// What.
        bytes: Vec<u8>,
    },
    /// The memory is copied; this is the rest.
    CopyEnds {
        /// Which stream.
        stream: u64,
        /// The primary's epoch.
        epoch: u64,
        /// The last entry that memory and clients have seen.
        last: u64,
        /// The clients, encoded.
        clients: Vec<u8>,
        /// Names the group's life: clients of another one are strangers.
        group: u64,
    },
    /// Entries of the log.
    Append {
        /// Which stream.
        stream: u64,
        /// The primary's epoch.
        epoch: u64,
        /// The number of the first.
        first: u64,
        /// They, one after the other.
        entries: Vec<u8>,
    },
    /// To a primary: how far the sender is.
    Applied {
        /// The sender's name for the stream that it has asked for last.
        stream: u64,
        /// The last entry that it has applied; `None` while its memory is being copied.
        last: Option<u64>,
        /// How many bytes of memory have come in this copy.
        copied: u64,
    },
    /// From a primary: it is there.
    Beat {
        /// Who is in the group.
        view: View,
        /// The primary's clock.
        sent_ns: u64,
    },
    /// To a primary: until a lease after `sent_ns` the sender will not take over.
    Grant {
        /// The primary's clock, as it said.
        sent_ns: u64,
    },
    /// There is a newer view than the one the other speaks of.
    Outdated {
        /// The newest view the sender knows.
        view: View,
    },
}

impl Note {
    /// Appends the bytes of the note.
    pub fn encode(&self, output: &mut Vec<u8>) {
        match self {
            Self::Join {
                member,
                stream,
                position,
                memory_bytes,
                is_blank,
            } => {
                output.push(1);
                put_peer(output, member);
                put(output, *stream);
                put(output, position.map_or(0, |position| position.epoch));
                put(output, position.map_or(0, |position| position.last));
                put(output, *memory_bytes);
                put(output, (*is_blank).into());
            }
            Self::CopyBegins { stream, epoch } => {
                output.push(2);
                put(output, *stream);
                put(output, *epoch);
            }
            Self::Memory {
                stream,
                epoch,
                offset,
                bytes,
            } => {
                output.push(3);
                put(output, *stream);
                put(output, *epoch);
                put(output, *offset);
                put_bytes(output, bytes);
            }
            Self::CopyEnds {
                stream,
                epoch,
                last,
                clients,
                group,
            } => {
                output.push(4);
                put(output, *stream);
                put(output, *epoch);
                put(output, *last);
                put_bytes(output, clients);
                put(output, *group);
            }
            Self::Append {
                stream,
                epoch,
                first,
                entries,
            } => {
                output.push(5);
                put(output, *stream);
                put(output, *epoch);
                put(output, *first);
                put_bytes(output, entries);
            }
            Self::Applied { stream, last, copied } => {
                output.push(6);
                put(output, *stream);
                put(output, last.unwrap_or(u64::MAX));
                put(output, *copied);
            }
            Self::Beat { view, sent_ns } => {
                output.push(7);
                put_view(output, view);
                put(output, *sent_ns);
            }
            Self::Grant { sent_ns } => {
                output.push(8);
                put(output, *sent_ns);
            }
            Self::Outdated { view } => {
                output.push(9);
                put_view(output, view);
            }
        }
    }

    /// Reads a note that has exactly these bytes.
    ///
    /// # Errors
    /// If it is none.
    pub fn decode(bytes: &[u8]) -> Result<Self, NoteError> {
        let (&code, rest) = bytes.split_first().ok_or(NoteError::Truncated)?;
        let mut reader = Reader::new(rest);
        let note = match code {
            1 => Self::Join {
                member: reader.peer()?,
                stream: reader.number()?,
                position: {
                    let (epoch, last) = (reader.number()?, reader.number()?);
                    (epoch != 0).then_some(Position { epoch, last })
                },
                memory_bytes: reader.number()?,
                is_blank: reader.number()? != 0,
            },
            2 => Self::CopyBegins {
                stream: reader.number()?,
                epoch: reader.number()?,
            },
            3 => Self::Memory {
                stream: reader.number()?,
                epoch: reader.number()?,
                offset: reader.number()?,
                bytes: reader.bytes()?.to_vec(),
            },
            4 => Self::CopyEnds {
                stream: reader.number()?,
                epoch: reader.number()?,
                last: reader.number()?,
                clients: reader.bytes()?.to_vec(),
                group: reader.number()?,
            },
            5 => Self::Append {
                stream: reader.number()?,
                epoch: reader.number()?,
                first: reader.number()?,
                entries: reader.bytes()?.to_vec(),
            },
            6 => Self::Applied {
                stream: reader.number()?,
                last: Some(reader.number()?).filter(|&last| last != u64::MAX),
                copied: reader.number()?,
            },
            7 => Self::Beat {
                view: reader.view()?,
                sent_ns: reader.number()?,
            },
            8 => Self::Grant {
                sent_ns: reader.number()?,
            },
            9 => Self::Outdated { view: reader.view()? },
            code => return Err(NoteError::Unknown { code }),
        };
        reader.end()?;
        Ok(note)
    }
}

pub(super) fn put(output: &mut Vec<u8>, number: u64) {
    output.extend_from_slice(&number.to_le_bytes());
}

fn put_bytes(output: &mut Vec<u8>, bytes: &[u8]) {
    put(output, bytes.len() as u64);
    output.extend_from_slice(bytes);
}

pub(super) fn put_peer(output: &mut Vec<u8>, peer: &Peer) {
    put(output, peer.id.0);
    put(output, peer.segment);
    put_bytes(output, peer.address.as_bytes());
}

/// Appends the bytes of a view.
pub(crate) fn put_view(output: &mut Vec<u8>, view: &View) {
    put(output, view.epoch);
    put_peer(output, &view.primary);
    put(output, view.backups.len() as u64);
    for backup in &view.backups {
        put_peer(output, backup);
    }
}

/// Takes one field after the other.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    pub(crate) fn number(&mut self) -> Result<u64, NoteError> {
        let (number, rest) = self.rest.split_first_chunk().ok_or(NoteError::Truncated)?;
        self.rest = rest;
        Ok(u64::from_le_bytes(*number))
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], NoteError> {
        let count = usize::try_from(self.number()?).map_err(|_| NoteError::Truncated)?;
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or(NoteError::Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }

    pub(super) fn peer(&mut self) -> Result<Peer, NoteError> {
        Ok(Peer {
            id: MemberId(self.number()?),
            segment: self.number()?,
            address: String::from_utf8(self.bytes()?.to_vec()).map_err(|_| NoteError::Entry)?,
        })
    }

    /// A view, as [`put_view`] writes it.
    pub(crate) fn view(&mut self) -> Result<View, NoteError> {
        let epoch = self.number()?;
        let primary = self.peer()?;
        let mut backups = Vec::new();
        for _ in 0..self.number()? {
            backups.push(self.peer()?);
        }
        Ok(View {
            epoch,
            primary,
            backups,
        })
    }

    pub(crate) fn end(self) -> Result<(), NoteError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(NoteError::Truncated)
        }
    }
}
