//! Entries of the log: what one request has changed, and its answer.
//!
//! On the path: a primary builds one for each request that changes something ([`EntryWriter`]); everybody applies it
//! with the same code ([`Entry::decode`]).
//!
//! ```text
//! entry   = EntryHead  effect*  answer
//! effect  = EffectHead bytes
//! ```

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::note::NoteError;
use crate::verb::Verb;

/// Opens an entry.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct EntryHead {
    /// The whole entry.
    pub(super) bytes: U32,
    /// A [`Kind`].
    pub(super) kind: u8,
    /// How many effects follow.
    pub(super) effects: u8,
    pub(super) reserved: U16,
    /// Whose request it was.
    pub(super) client: U64,
    /// Its number, and the first one whose answer the client did not have when it sent it.
    pub(super) request: U32,
    pub(super) answered: U32,
    /// Whom it concerns, or how many; see [`Kind`].
    pub(super) number: U64,
    /// How many bytes of answer close the entry.
    pub(super) answer_bytes: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct EffectHead {
    offset: U64,
    bytes: U32,
}

/// What an entry does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Kind {
    /// Changes memory.
    Batch = 1,
    /// Puts a message, which is the only effect's bytes, into the mailbox of `number`.
    Send = 2,
    /// Cuts `number` off.
    Fence = 3,
    /// Lets a client in.
    Admit = 4,
    /// The client has taken `number` messages in all.
    Taken = 5,
    /// The client is gone and will not come back.
    Forget = 6,
}

impl Kind {
    fn from_code(code: u8) -> Result<Self, NoteError> {
        Ok(match code {
            1 => Self::Batch,
            2 => Self::Send,
            3 => Self::Fence,
            4 => Self::Admit,
            5 => Self::Taken,
            6 => Self::Forget,
            _ => return Err(NoteError::Entry),
        })
    }
}

/// Builds one entry at a time in memory of its own.
#[derive(Default, Debug)]
pub(super) struct EntryWriter {
    bytes: Vec<u8>,
    effects: u8,
}

impl EntryWriter {
    /// Begins an entry.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.bytes.clear();
        self.bytes.resize(size_of::<EntryHead>(), 0);
        self.effects = 0;
    }

    /// These bytes are at `offset` now.
    #[inline]
    pub(super) fn effect(&mut self, offset: u64, bytes: &[u8]) {
        let head = EffectHead {
            offset: U64::new(offset),
            bytes: U32::new(bytes.len() as u32),
        };
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(bytes);
        self.effects += 1;
    }

    /// What a verb has done that returned `old`. `buffer` is what its slice refers to.
    #[inline]
    pub(super) fn verb(&mut self, verb: &Verb, old: u128, buffer: &[u8]) {
        let offset = verb.target().0.offset();
        // The results of verbs of 8 bytes have no upper half.
        let word = old as u64;
        match *verb {
            Verb::Read { .. } | Verb::ReadWord { .. } => {}
            Verb::Write { source, .. } => self.effect(offset, &buffer[source.range()]),
            Verb::WriteWord { value, .. } => self.effect(offset, &value.to_le_bytes()),
            Verb::CompareSwap { compare, swap, .. } => {
                if word == compare {
                    self.effect(offset, &swap.to_le_bytes());
                }
            }
            Verb::FetchAdd { add, .. } => self.effect(offset, &word.wrapping_add(add).to_le_bytes()),
            Verb::MaskedCompareSwap { operands, .. } => {
                if let Some(new) = operands.apply(word) {
                    self.effect(offset, &new.to_le_bytes());
                }
            }
            Verb::MaskedFetchAdd { operands, .. } => self.effect(offset, &operands.apply(word).to_le_bytes()),
            Verb::WideCompareSwap { operands, .. } => {
                if let Some(new) = operands.apply(old) {
                    self.effect(offset, &new.to_le_bytes());
                }
            }
            Verb::WideFetchAdd { operands, .. } => self.effect(offset, &operands.apply(old).to_le_bytes()),
        }
    }

    /// Whether anything has changed.
    #[inline]
    pub(super) fn has_effects(&self) -> bool {
        self.effects > 0
    }

    /// Ends the entry. The head's lengths are filled in here.
    #[inline]
    pub(super) fn end(&mut self, mut head: EntryHead, answer: &[u8]) -> &[u8] {
        self.bytes.extend_from_slice(answer);
        head.bytes = U32::new(self.bytes.len() as u32);
        head.effects = self.effects;
        head.answer_bytes = U32::new(answer.len() as u32);
        self.bytes[..size_of::<EntryHead>()].copy_from_slice(head.as_bytes());
        &self.bytes
    }
}

/// An entry as it is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    pub(super) head: EntryHead,
    pub(super) kind: Kind,
    effects: &'a [u8],
    pub(super) answer: &'a [u8],
}

impl<'a> Entry<'a> {
    /// A head whose lengths are still to be filled in.
    pub(super) fn head(kind: Kind, client: u64, request: u32, answered: u32, number: u64) -> EntryHead {
        EntryHead {
            kind: kind as u8,
            client: U64::new(client),
            request: U32::new(request),
            answered: U32::new(answered),
            number: U64::new(number),
            ..EntryHead::new_zeroed()
        }
    }

    /// Takes the first entry out of `bytes`.
    pub(super) fn decode(bytes: &mut &'a [u8]) -> Result<Self, NoteError> {
        let (head, _) = EntryHead::read_from_prefix(bytes).map_err(|_| NoteError::Truncated)?;
        let whole = head.bytes.get() as usize;
        let answer_bytes = head.answer_bytes.get() as usize;
        let least = size_of::<EntryHead>() + answer_bytes;
        if whole < least || whole > bytes.len() {
            return Err(NoteError::Truncated);
        }
        let (entry, rest) = bytes.split_at(whole);
        *bytes = rest;
        let (before, answer) = entry.split_at(whole - answer_bytes);
        let entry = Self {
            head,
            kind: Kind::from_code(head.kind)?,
            effects: &before[size_of::<EntryHead>()..],
            answer,
        };
        entry.check()?;
        Ok(entry)
    }

    /// Nothing of an entry is applied that cannot be read to its end.
    fn check(&self) -> Result<(), NoteError> {
        let mut effects = self.effects();
        let mut count = 0;
        for _ in effects.by_ref() {
            count += 1;
        }
        if !effects.bytes.is_empty() || count != self.head.effects {
            return Err(NoteError::Truncated);
        }
        Ok(())
    }

    /// Where bytes have changed, and to what.
    pub(super) fn effects(&self) -> Effects<'a> {
        Effects { bytes: self.effects }
    }
}

/// The effects of an entry, in order.
pub(super) struct Effects<'a> {
    bytes: &'a [u8],
}

impl<'a> Iterator for Effects<'a> {
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (head, rest) = EffectHead::read_from_prefix(self.bytes).ok()?;
        let (bytes, rest) = rest.split_at_checked(head.bytes.get() as usize)?;
        self.bytes = rest;
        Some((head.offset.get(), bytes))
    }
}
