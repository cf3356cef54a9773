//! Packed values: all elements in one piece, and what commands do to them, a module for each type.
//!
//! ```text
//! hash      field, value [, expiry: 8 bytes, 0 never]      in the order in which fields came
//! set       string                                         in that order; ascending while all are integers
//! zset      string, score                                  by score, then by bytes
//! list      string                                         from head to tail
//! ```
//!
//! Each change is one or two passes over the old bytes, whatever the number of elements that it names. What moves an element
//! from one key to another (SMOVE, LMOVE) is two changes, a removal here and an addition there, which the caller publishes
//! together.
//!
//! A scan of a packed value (SSCAN, HSCAN, ZSCAN) takes one call. Its cursor is a hash of elements, as for paged values: 0
//! begins, and returns everything; another one is from a time at which the value was paged, and what is at or behind it
//! remains. The call answers the next cursor, which is 0: the end.

pub mod algebra;
pub mod hash;
pub mod list;
pub mod set;
pub mod sorted;

use crate::ValueError;
use crate::format;
use crate::string::Text;

/// Whether an element is among those of a scan from this cursor on.
fn is_scanned(cursor: u64, seed: u64, element: &[u8]) -> bool {
    cursor == 0 || format::element_hash(seed, element) >= cursor
}

/// Refuses digits that are stored as bytes though they are an integer.
fn check_text(text: Text<'_>) -> Result<(), ValueError> {
    match text {
        Text::Bytes(bytes) if Text::new(bytes) != text => Err(ValueError::Damaged("an integer is stored as digits")),
        _ => Ok(()),
    }
}

/// Refuses elements of which two are equal.
fn check_different(mut elements: Vec<Text<'_>>) -> Result<(), ValueError> {
    elements.sort_unstable_by(Text::quick_cmp);
    if elements.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(ValueError::Damaged("an element stands there twice"));
    }
    Ok(())
}

/// The places from `start` to `stop`, counted from 0 or, if negative, from behind the end, of `count` elements: Redis's
/// ranges. Empty if there are none.
#[must_use]
pub fn span(start: i64, stop: i64, count: u32) -> core::ops::Range<u32> {
    let count = i64::from(count);
    let from_start = |place: i64| {
        if place < 0 {
            place.saturating_add(count).max(0)
        } else {
            place
        }
    };
    let start = from_start(start);
    // A stop before the first element is before every start.
    let end = if stop < -count {
        0
    } else {
        (from_start(stop).saturating_add(1)).min(count)
    };
    if start >= end { 0..0 } else { start as u32..end as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_from_both_ends() {
        for ((start, stop), expected) in [
            ((0, -1), 0..5),
            ((1, 3), 1..4),
            ((-2, -1), 3..5),
            ((-100, 100), 0..5),
            ((3, 1), 0..0),
            ((5, 9), 0..0),
            ((0, -5), 0..1),
            ((0, -6), 0..0),
            ((-1, -2), 0..0),
            ((i64::MIN, i64::MAX), 0..5),
            ((i64::MAX, i64::MAX), 0..0),
            ((i64::MIN, i64::MIN), 0..0),
        ] {
            assert_eq!(span(start, stop, 5), expected, "{start} {stop}");
        }
        assert_eq!(span(0, -1, 0), 0..0);
    }
}
