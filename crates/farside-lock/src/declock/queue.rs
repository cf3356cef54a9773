//! The queue of a CQL lock: its data half, and what a release reads from it (DecLock, sections 4.2 and
//! 4.3, figures 7 and 8).
//!
//! An entry is written by whoever waits at its place, and by nobody else; holders who never waited
//! leave theirs as it was. So an entry may be *obsolete*: of a round before the one asked for. It is
//! *newer* if its place was left and the queue came round again.
//!
//! # What a release needs to know
//! Who is next, and whether it waits. Behind a writer everybody waits, so each entry will be written;
//! until it is, the release reads again. Behind a reader may be others that hold the lock as well and
//! wrote nothing. They are told from writers who have not written *yet* by counting: the header says
//! how many writers there are, and once so many are found, the rest are readers.
//!
//! # Entries that were overwritten
//! Head and size count; they do not say who has left. A place whose entry is newer was passed by the head
//! before somebody else wrote there. Behind a *reader* that is no loss: if who is next were a writer that
//! waits for our word, nobody would be inside, nobody could leave, and the head would stand still. Behind a
//! *writer* it may be one: its release lets in readers that come later at once, they may leave before those
//! who waited were told, and the queue may come round to the entries of these before they are read. Then
//! the lock has to be reset (section 4.4). It takes as many clients as the queue has entries.

use farside_fabric::mutant::is_planted;

use super::header::Index;
use super::roster::Member;
use super::timestamp::Timestamp;
use crate::Mode;
use crate::letter::SeatNumber;

crate::bit_fields! {
    /// An entry; all zeros if it was never written.
    pub struct Entry {
        /// One more than the version, modulo 2^16: what was never written has version -1.
        stored_version, with_stored_version: 0..16;
        /// When the client asked.
        time, with_time: 16..32;
        /// The client's seat at its endpoint.
        seat, with_seat: 32..44;
        /// The endpoint.
        member, with_member: 44..60;
        /// Whether it wants to write.
        writer, with_writer: 60..61;
    }
}

/// The version that no place with an entry may have, since an entry that was never written has it.
pub const VERSION_NEVER: u16 = u16::MAX;

/// Who waits at a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiter {
    /// How it wants the lock.
    pub mode: Mode,
    /// When it asked.
    pub time: Timestamp,
    /// Its endpoint.
    pub member: Member,
    /// Its seat there.
    pub seat: SeatNumber,
}

/// An entry, seen from a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// Not written in this round.
    Obsolete,
    /// Written by who has this place.
    Valid(Waiter),
    /// Written in a later round.
    Newer,
}

impl Entry {
    /// The entry of a waiter at a place.
    #[must_use]
    pub fn of(waiter: Waiter, place: Index, capacity: u64) -> Self {
        Self::default()
            .with_stored_version(u64::from(place.version(capacity).wrapping_add(1)))
            .with_time(waiter.time.0.into())
            .with_seat(waiter.seat.into())
            .with_member(waiter.member.0.into())
            .with_writer((waiter.mode == Mode::Exclusive).into())
    }

    /// The entry as it looks from a place.
    #[must_use]
    pub fn seen_from(self, place: Index, capacity: u64) -> Seen {
        let version = (self.stored_version() as u16).wrapping_sub(1);
        let rounds = version.wrapping_sub(place.version(capacity));
        if is_planted("declock: versions that nobody compares") || rounds == 0 {
            Seen::Valid(Waiter {
                mode: if self.writer() == 1 {
                    Mode::Exclusive
                } else {
                    Mode::Shared
                },
                time: Timestamp(self.time() as u16),
                member: Member(self.member() as u16),
                seat: self.seat() as SeatNumber,
            })
        } else if version == VERSION_NEVER || rounds >= 1 << 15 {
            Seen::Obsolete
        } else {
            Seen::Newer
        }
    }
}

/// What a release found when it left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Left {
    /// How it held the lock.
    pub mode: Mode,
    /// The first place behind.
    pub next: Index,
    /// How many there were behind.
    pub behind: u64,
    /// How many of them want to write.
    pub writers_behind: u64,
}

/// What a release has to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// Nothing: nobody waits, or somebody else will see to it.
    Nobody,
    /// Read the queue again: not all who wait have written yet.
    Unwritten,
    /// Reset the lock: somebody waits, and it is not known any more who.
    Overwritten,
    /// Grant the lock to who waits at these places.
    Grant(Vec<(Index, Waiter)>),
}

impl Left {
    /// What the queue says has to be done. `entry` is what was read at a slot.
    #[must_use]
    pub fn next(&self, capacity: u64, entry: impl Fn(u64) -> Entry) -> Next {
        if self.behind == 0 || (self.mode == Mode::Shared && self.writers_behind == 0) {
            return Next::Nobody;
        }
        let places = || (0..self.behind).map(|at| self.next.plus(at));
        let seen = |place: Index| entry(place.slot(capacity)).seen_from(place, capacity);
        if self.mode == Mode::Shared && places().any(|place| seen(place) == Seen::Newer) {
            return Next::Nobody;
        }
        match (self.mode, seen(self.next)) {
            (_, Seen::Valid(waiter)) if waiter.mode == Mode::Exclusive => Next::Grant(vec![(self.next, waiter)]),
            // It is inside as we were.
            (Mode::Shared, Seen::Valid(_)) => Next::Nobody,
            (Mode::Shared, _) => {
                let is_writer =
                    |place: &Index| matches!(seen(*place), Seen::Valid(waiter) if waiter.mode == Mode::Exclusive);
                let found = places().filter(is_writer).count() as u64;
                if found >= self.writers_behind || is_planted("declock: a reader that does not look for writers") {
                    Next::Nobody
                } else {
                    Next::Unwritten
                }
            }
            (Mode::Exclusive, _) => self.readers(places(), seen),
        }
    }

    /// The readers next to each other behind a writer.
    fn readers(&self, places: impl Iterator<Item = Index>, seen: impl Fn(Index) -> Seen) -> Next {
        let mut readers = Vec::new();
        for place in places {
            match seen(place) {
                Seen::Valid(waiter) if waiter.mode == Mode::Exclusive => break,
                Seen::Valid(waiter) => readers.push((place, waiter)),
                Seen::Newer => return Next::Overwritten,
                Seen::Obsolete => return Next::Unwritten,
            }
            if is_planted("declock: one reader granted for all") {
                break;
            }
        }
        Next::Grant(readers)
    }

    /// When the first of those behind asked who wait and have written, while the lock is held as it was by
    /// who leaves.
    #[must_use]
    pub fn earliest_waiting(&self, capacity: u64, entry: impl Fn(u64) -> Entry) -> Option<Timestamp> {
        // Readers in front of the first writer share the lock.
        let is_writer = |at: &u64| {
            let place = self.next.plus(*at);
            let seen = entry(place.slot(capacity)).seen_from(place, capacity);
            matches!(seen, Seen::Valid(waiter) if waiter.mode == Mode::Exclusive)
        };
        let skip = match self.mode {
            Mode::Exclusive => 0,
            Mode::Shared => (0..self.behind).find(is_writer)?,
        };
        Timestamp::earliest((skip..self.behind).filter_map(|at| self.time_at(at, capacity, &entry)))
    }

    /// When the one asked who gets the lock next if the first `skip` of those behind have it now; `None` if there is none, or it
    /// has not written. The node that has the lock keeps it for whoever asked before that: who stands further behind gets it
    /// no sooner if it lets go.
    #[must_use]
    pub fn time_of_next(&self, skip: u64, capacity: u64, entry: impl Fn(u64) -> Entry) -> Option<Timestamp> {
        (skip < self.behind)
            .then(|| self.time_at(skip, capacity, &entry))
            .flatten()
    }

    /// When the one asked who has place `at` of those behind, if it has written.
    fn time_at(&self, at: u64, capacity: u64, entry: &impl Fn(u64) -> Entry) -> Option<Timestamp> {
        let place = self.next.plus(at);
        match entry(place.slot(capacity)).seen_from(place, capacity) {
            Seen::Valid(waiter) => Some(waiter.time),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
