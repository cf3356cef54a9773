//! Letters: what clients of a lock tell each other, and the agent at the memory node.
//!
//! On the path: a lock that hands over from client to client writes a letter to a seat (a place in a
//! queue, see [`inbox`](crate::inbox)); the fabric carries it as one message. All letters have one
//! form, so that an inbox can sort them without knowing the locks.
//!
//! ```text
//! byte 0      2      4      6 7        8       16       24       32       40
//!      | mark | seat | reply  | kind | stamp  | entry  | word 0 | word 1 | word 2 |
//! ```
//!
//! `mark` tells a letter from messages of others. `stamp` is the receiver's, if the sender knows it:
//! a seat accepts no letter with another one.

use farside_fabric::{EndpointId, Message, RemoteAddr};

/// What the first two bytes of every letter are.
const MARK: u16 = 0xfa5e;
/// Bytes of a letter.
const LETTER_BYTES: usize = 48;

/// The stamp of a letter whose sender does not know the receiver's: the receiver has to look whether it
/// is meant.
pub const ANY_STAMP: u32 = 0;

/// What a letter is about. Each lock has its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum LetterKind {
    /// To the client in front, from the one that has just queued up behind it.
    Successor = 1,
    /// To the next in the queue: the lock is yours.
    Handover = 2,
    /// To the next in the queue: the lock is the readers', and yours when they have left (ShiftLock,
    /// section 3.5.2).
    ModeChanged = 3,
    /// To the agent: a lock stands still (ShiftLock, section 3.6).
    Recover = 4,
    /// To the agent: the `rpc` lock is wanted.
    Acquire = 5,
    /// To the agent: the `rpc` lock is given back.
    Release = 6,
    /// From the agent, or a desk: done; the words say what came of it.
    Done = 7,
    /// From the agent: refused.
    Refused = 8,
    /// To the next in the queue of a CQL lock: it is yours (DecLock, section 4.2).
    Granted = 9,
    /// To the desk of an endpoint: a CQL lock is being reset (DecLock, section 4.4).
    Reset = 10,
    /// To the desk of an endpoint: are you still about to reset this lock?
    AskReset = 11,
    /// From a desk: not done yet.
    Busy = 12,
    /// From a desk to a client of its own node: the lock is being reset, start over.
    Aborted = 13,
    /// To the last one in the queue: the lock is yours, act for all of us (CIDER, section 4.2.1).
    Execute = 14,
    /// From that one: this is what I have done, and the lock is yours again.
    Executed = 15,
    /// To the next in the queue: somebody has acted for you, and the lock is yours to pass on.
    Combined = 16,
}

impl LetterKind {
    const ALL: [Self; 16] = [
        Self::Successor,
        Self::Handover,
        Self::ModeChanged,
        Self::Recover,
        Self::Acquire,
        Self::Release,
        Self::Done,
        Self::Refused,
        Self::Granted,
        Self::Reset,
        Self::AskReset,
        Self::Busy,
        Self::Aborted,
        Self::Execute,
        Self::Executed,
        Self::Combined,
    ];

    fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&kind| kind as u8 == number)
    }
}

/// The number of a place at an endpoint: [`AGENT_SEAT`], or one that an inbox dealt.
pub type SeatNumber = u16;

/// Where the agent of an endpoint sits, if it has one.
pub const AGENT_SEAT: SeatNumber = 0;

/// Where nobody sits: a letter that wants no answer.
pub const NO_SEAT: SeatNumber = SeatNumber::MAX;

/// Where a letter goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The endpoint.
    pub endpoint: EndpointId,
    /// The seat there.
    pub seat: SeatNumber,
}

/// What one client tells another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Letter {
    /// What it is about.
    pub kind: LetterKind,
    /// The seat that it is for.
    pub seat: SeatNumber,
    /// The seat of the sender, for an answer.
    pub reply: SeatNumber,
    /// The stamp of the seat that it is for, or [`ANY_STAMP`].
    pub stamp: u32,
    /// Which lock.
    pub entry: RemoteAddr,
    /// What the kind says.
    pub words: [u64; 3],
}

impl Letter {
    /// The letter as a message.
    #[must_use]
    pub fn encode(&self) -> Message {
        let mut bytes = [0; LETTER_BYTES];
        bytes[..2].copy_from_slice(&MARK.to_le_bytes());
        bytes[2..4].copy_from_slice(&self.seat.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.reply.to_le_bytes());
        bytes[6] = self.kind as u8;
        bytes[8..12].copy_from_slice(&self.stamp.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.entry.to_bits().to_le_bytes());
        for (index, word) in self.words.iter().enumerate() {
            bytes[24 + 8 * index..32 + 8 * index].copy_from_slice(&word.to_le_bytes());
        }
        Message::try_from(&bytes[..]).expect("a letter is shorter than the longest message")
    }

    /// The letter in a message, or `None` if it is no letter.
    #[must_use]
    pub fn decode(message: &Message) -> Option<Self> {
        let bytes: &[u8; LETTER_BYTES] = message.as_slice().try_into().ok()?;
        let word = |at: usize| u64::from_le_bytes(core::array::from_fn(|index| bytes[at + index]));
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        if half(0) != MARK {
            return None;
        }
        Some(Self {
            kind: LetterKind::of(bytes[6])?,
            seat: half(2),
            reply: half(4),
            stamp: word(8) as u32,
            entry: RemoteAddr::from_bits(word(16))?,
            words: [word(24), word(32), word(40)],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn letters() -> impl Strategy<Value = Letter> {
        let kinds = proptest::sample::select(LetterKind::ALL.to_vec());
        (
            kinds,
            any::<[u16; 2]>(),
            any::<u32>(),
            0_u64..1 << 60,
            any::<[u64; 3]>(),
        )
            .prop_map(|(kind, [seat, reply], stamp, entry, words)| Letter {
                kind,
                seat,
                reply,
                stamp,
                entry: RemoteAddr::from_bits(entry).expect("60 bits"),
                words,
            })
    }

    proptest! {
        #[test]
        fn a_letter_survives_the_way(letter in letters()) {
            prop_assert_eq!(Letter::decode(&letter.encode()), Some(letter));
        }

        #[test]
        fn anything_else_is_no_letter(bytes in proptest::collection::vec(any::<u8>(), 0..=64)) {
            let message = Message::try_from(&bytes[..]).expect("short enough");
            if let Some(letter) = Letter::decode(&message) {
                prop_assert_eq!(&bytes[..2], &MARK.to_le_bytes()[..]);
                prop_assert_eq!(Letter::decode(&letter.encode()), Some(letter));
            }
        }
    }
}
