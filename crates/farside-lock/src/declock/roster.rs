//! The roster: who may hold a lock, listed in far memory.
//!
//! On the path: a reset has to ask everybody, since holders stand in no queue (DecLock, section 4.4). So
//! each endpoint lists itself before its first acquire: an array of words in far memory, one per
//! endpoint, taken and given up by compare-and-swap. A place in it is also a short name: entries and
//! headers have 16 bits for an endpoint, not 64.
//!
//! A place that is given up counts on, so that a name of before is not taken for one of after.
//!
//! # Warnings
//! Who is about to be cut off may be warned: its word gets a mark, and it is cut off some time after that. An
//! endpoint that has seen its word without the mark so knows for how long nobody cuts it off ([`vouch`](super::vouch)).
//! The mark is final: whoever has it takes no new place, and starts again as another endpoint.

use core::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use farside_fabric::{Buffer, Deadline, Endpoint, EndpointId, FabricError, OpContext, RemoteAddr, Slice, Verb};

use crate::LockError;
use crate::atomics::compare_swap;
use crate::letter::Place;

/// How many endpoints a roster has room for; place 0 is nobody's, so that no name is 0.
pub const PLACES: u64 = 1 << 10;
/// Bytes of a roster in far memory; zeros are an empty one.
pub const ROSTER_BYTES: u64 = 8 * PLACES;

crate::bit_fields! {
    /// A place in the roster.
    pub struct Listed {
        /// Whose it is, or 0.
        endpoint, with_endpoint: 0..44;
        /// Whether it maps the memory: then it is not cut off while it lives.
        mapped, with_mapped: 44..45;
        /// Whether it was warned.
        warned, with_warned: 45..46;
        /// The seat of its desk.
        seat, with_seat: 46..58;
        /// How often the place was taken, modulo 64.
        turn, with_turn: 58..64;
    }
}

impl Listed {
    fn desk(self) -> Place {
        Place {
            endpoint: EndpointId(self.endpoint()),
            seat: self.seat() as u16,
        }
    }
}

/// The name of an endpoint: its place in the roster, and whose turn it was to have it. Never 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Member(pub u16);

impl Member {
    fn of(place: u64, word: Listed) -> Self {
        Self((word.turn() << 10 | place) as u16)
    }

    fn place(self) -> u64 {
        u64::from(self.0) & (PLACES - 1)
    }

    fn turn(self) -> u64 {
        u64::from(self.0) >> 10
    }
}

/// A roster, and what a compute node remembers of it. Clones are the same.
#[derive(Clone, Debug)]
pub struct Roster {
    at: RemoteAddr,
    known: Rc<RefCell<BTreeMap<Member, Place>>>,
}

impl Roster {
    /// The roster at this address.
    #[must_use]
    pub fn new(at: RemoteAddr) -> Self {
        Self {
            at,
            known: Rc::default(),
        }
    }

    /// Takes a place for an endpoint.
    ///
    /// # Errors
    /// [`LockError::RosterFull`], or what the fabric reports.
    ///
    /// # Panics
    /// If the endpoint's identity has more than 44 bits.
    pub(super) async fn join(&self, cx: &mut OpContext, desk: Place) -> Result<Member, LockError> {
        let is_mapped = cx.endpoint().view(self.at, ROSTER_BYTES as u32).is_some();
        let words = self.read(cx).await?;
        // Each begins somewhere else, so that many who join at once do not meet at every place.
        // (Fibonacci hashing.)
        let first = desk.endpoint.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        for step in 0..PLACES - 1 {
            let place = 1 + (first + step) % (PLACES - 1);
            let word = words[place as usize];
            // A place that another endpoint takes meanwhile is passed over, like one that was taken before.
            if word.endpoint() != 0 {
                continue;
            }
            let mine = word
                .with_turn((word.turn() + 1) % 64)
                .with_endpoint(desk.endpoint.0)
                .with_mapped(is_mapped.into())
                .with_warned(0)
                .with_seat(desk.seat.into());
            if cx.compare_swap(self.at.plus(8 * place), word.0, mine.0).await? == word.0 {
                let member = Member::of(place, mine);
                self.known.borrow_mut().insert(member, desk);
                return Ok(member);
            }
        }
        Err(LockError::RosterFull { roster: self.at })
    }

    /// Where the desk of a member is, if that is known here. A member never becomes another endpoint, but
    /// for 64 turns later.
    pub(super) fn known(&self, member: Member) -> Option<Place> {
        self.known.borrow().get(&member).copied()
    }

    /// Where the desk of a member is, or `None` if its place was given up.
    ///
    /// # Errors
    /// What the fabric reports.
    pub(super) async fn look_up(&self, endpoint: &Endpoint, member: Member) -> Result<Option<Place>, FabricError> {
        let Some(word) = self.word_of(endpoint, member, Deadline::NEVER).await? else {
            return Ok(None);
        };
        self.known.borrow_mut().insert(member, word.desk());
        Ok(Some(word.desk()))
    }

    /// Everybody who is in the roster now.
    ///
    /// # Errors
    /// What the fabric reports.
    pub(super) async fn everybody(&self, cx: &mut OpContext) -> Result<Vec<(Member, Place)>, FabricError> {
        let words = self.read(cx).await?;
        let taken = (0_u64..).zip(words).filter(|(_, word)| word.endpoint() != 0);
        Ok(taken
            .map(|(place, word)| (Member::of(place, word), word.desk()))
            .collect())
    }

    /// The word of a member, or `None` if its place was given up.
    async fn word_of(
        &self,
        endpoint: &Endpoint,
        member: Member,
        deadline: Deadline,
    ) -> Result<Option<Listed>, FabricError> {
        let source = self.at.plus(8 * member.place());
        let mut no_buffer = Buffer::default();
        let looked = endpoint.execute(Verb::ReadWord { source }, &mut no_buffer, deadline);
        let word = Listed(looked.await? as u64);
        Ok((word.endpoint() != 0 && word.turn() == member.turn()).then_some(word))
    }

    /// Whether the member is still in the roster, and was not warned.
    ///
    /// # Errors
    /// What the fabric reports.
    pub(super) async fn is_safe(
        &self,
        endpoint: &Endpoint,
        member: Member,
        deadline: Deadline,
    ) -> Result<bool, FabricError> {
        let word = self.word_of(endpoint, member, deadline).await?;
        Ok(word.is_some_and(|word| word.warned() == 0))
    }

    /// Warns a member that it will be cut off. Returns whether it has to be given time: not if it is not in the
    /// roster any more, nor if it is cut off only when it is dead.
    ///
    /// # Errors
    /// What the fabric reports.
    pub(super) async fn warn(&self, endpoint: &Endpoint, member: Member) -> Result<bool, FabricError> {
        // Ends: a word changes once more at most before it is another's.
        loop {
            let Some(word) = self.word_of(endpoint, member, Deadline::NEVER).await? else {
                return Ok(false);
            };
            if word.mapped() == 1 {
                return Ok(false);
            }
            let at = self.at.plus(8 * member.place());
            if word.warned() == 1 || compare_swap(endpoint, at, word.0, word.with_warned(1).0).await? == word.0 {
                return Ok(true);
            }
        }
    }

    /// Gives up the place of a member whose verbs have no effect any more.
    ///
    /// # Errors
    /// What the fabric reports.
    pub(super) async fn strike(&self, endpoint: &Endpoint, member: Member) -> Result<(), FabricError> {
        self.known.borrow_mut().remove(&member);
        let at = self.at.plus(8 * member.place());
        // Ends: a word changes once more at most before it is another's.
        while let Some(found) = self.word_of(endpoint, member, Deadline::NEVER).await? {
            let free = Listed(0).with_turn(found.turn());
            if compare_swap(endpoint, at, found.0, free.0).await? == found.0 {
                break;
            }
        }
        Ok(())
    }

    async fn read(&self, cx: &mut OpContext) -> Result<Vec<Listed>, FabricError> {
        let bytes = cx.read(self.at, Slice::first(ROSTER_BYTES as u32)).await?;
        let words = bytes
            .chunks_exact(8)
            .map(|word| Listed(u64::from_le_bytes(word.try_into().expect("eight bytes"))))
            .collect();
        cx.rely_on_words();
        Ok(words)
    }
}

#[cfg(test)]
mod tests;
