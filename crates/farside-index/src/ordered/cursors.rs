//! Where scans are that somebody goes on with: numbers for places in the order of keys.
//!
//! On the path: between the calls of a SCAN. A cursor of the RESP protocol is a number of 64 bits, too few for a key; so the
//! client of the fabric that has given one out keeps the key, the last so many of them. All stores of a process share them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::tree::Key;

/// How many places are kept.
pub(crate) const CURSORS_MAX: usize = 1 << 14;

/// A place in the order of keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Position {
    /// A scan in the order of keys goes on with this one.
    Key(Box<[u8]>),
    /// A scan in the order of the tree goes on here.
    Part(Key),
}

/// The places that cursors stand for.
#[derive(Default, Debug)]
pub struct Cursors {
    places: Mutex<Places>,
}

#[derive(Default, Debug)]
struct Places {
    /// The one that was given out last; 0 is a scan's beginning and its end.
    last: u64,
    positions: BTreeMap<u64, Position>,
}

impl Cursors {
    /// None yet; the first one will be `last` + 1. Where `last` is random, a cursor of another process, or of this one before
    /// it was started again, is unknown instead of being another place.
    #[must_use]
    pub fn after(last: u64) -> Self {
        let places = Places {
            last,
            ..Places::default()
        };
        Self {
            places: Mutex::new(places),
        }
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        // What is guarded is whole between any two lines.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A cursor for a place.
    pub(crate) fn note(&self, position: Position) -> u64 {
        let mut places = self.places();
        places.last += 1;
        let cursor = places.last;
        places.positions.insert(cursor, position);
        if places.positions.len() > CURSORS_MAX {
            places.positions.pop_first();
        }
        cursor
    }

    /// The place of a cursor, if it is known still.
    pub(crate) fn position(&self, cursor: u64) -> Option<Position> {
        self.places().positions.get(&cursor).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_places_are_known() {
        let cursors = Cursors::default();
        let given: Vec<u64> = (0..CURSORS_MAX as u128 + 3)
            .map(|part| cursors.note(Position::Part(part)))
            .collect();
        for (part, &cursor) in given.iter().enumerate() {
            let expected = (part >= 3).then_some(Position::Part(part as u128));
            assert_eq!(cursors.position(cursor), expected);
        }
        assert_eq!(cursors.position(0), None);
    }

    #[test]
    fn the_first_cursor_is_behind_the_last_one_before() {
        let cursors = Cursors::after(41);
        assert_eq!(cursors.note(Position::Part(7)), 42);
        assert_eq!(cursors.position(1), None);
    }
}
