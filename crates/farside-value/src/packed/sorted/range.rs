//! Ranges of sorted sets: by place, by score, and by the bytes of members that have one score.

use super::{Entries, Entry};
use crate::ValueError;
use crate::format::Packed;
use crate::packed::span;
use crate::score;
use crate::string::Digits;

/// From which end a sorted set is seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the lowest score up.
    Ascending,
    /// From the highest score down. (`REV`)
    Descending,
}

/// An end of a range of scores.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ScoreBound {
    /// The score, which is not NaN.
    pub score: f64,
    /// Whether the score itself is outside.
    pub is_exclusive: bool,
}

impl ScoreBound {
    /// What a command has: a number, `(` in front if it is exclusive; `-inf`, `+inf`. As for Redis, space before the number
    /// is nothing, and no number is 0.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (is_exclusive, number) = match text {
            [b'(', number @ ..] => (true, number),
            _ => (false, text),
        };
        let spaces = number.iter().take_while(|byte| matches!(byte, b' ' | 9..=13)).count();
        let score = match number {
            [] => 0.0,
            _ => score::parse_loosely(&number[spaces..])?,
        };
        Some(Self { score, is_exclusive })
    }

    fn is_below(&self, score: f64) -> bool {
        self.score < score || self.score == score && !self.is_exclusive
    }

    fn is_above(&self, score: f64) -> bool {
        self.score > score || self.score == score && !self.is_exclusive
    }
}

/// An end of a range of members that all have one score.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LexBound<'a> {
    /// `-`: before every member.
    Lowest,
    /// `+`: behind every member.
    Highest,
    /// `[`: this member is within.
    Inclusive(&'a [u8]),
    /// `(`: it is not.
    Exclusive(&'a [u8]),
}

impl<'a> LexBound<'a> {
    /// What a command has.
    #[must_use]
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        match text {
            b"-" => Some(Self::Lowest),
            b"+" => Some(Self::Highest),
            [b'[', member @ ..] => Some(Self::Inclusive(member)),
            [b'(', member @ ..] => Some(Self::Exclusive(member)),
            _ => None,
        }
    }

    fn is_below(&self, member: &[u8]) -> bool {
        match *self {
            Self::Lowest => true,
            Self::Highest => false,
            Self::Inclusive(bound) => bound <= member,
            Self::Exclusive(bound) => bound < member,
        }
    }

    fn is_above(&self, member: &[u8]) -> bool {
        match *self {
            Self::Lowest => false,
            Self::Highest => true,
            Self::Inclusive(bound) => bound >= member,
            Self::Exclusive(bound) => bound > member,
        }
    }
}

/// A range of a sorted set. `min` is the lower end, in whichever direction the range is seen.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Range<'a> {
    /// Places from `start` to `stop`, in the direction in which the range is seen; negative ones count from behind its end.
    Index {
        /// The first place.
        start: i64,
        /// The last one.
        stop: i64,
    },
    /// Scores.
    Score {
        /// The lower end.
        min: ScoreBound,
        /// The upper end.
        max: ScoreBound,
    },
    /// Members that all have one score. Of others, those from the first that is not too low to the first that is too high.
    Lex {
        /// The lower end.
        min: LexBound<'a>,
        /// The upper end.
        max: LexBound<'a>,
    },
}

impl Range<'_> {
    fn is_too_low(&self, entry: &Entry<'_>) -> bool {
        match self {
            Self::Index { .. } => false,
            Self::Score { min, .. } => !min.is_below(entry.1),
            Self::Lex { min, .. } => !min.is_below(entry.0.bytes(&mut Digits::new())),
        }
    }

    fn is_too_high(&self, entry: &Entry<'_>) -> bool {
        match self {
            Self::Index { .. } => false,
            Self::Score { max, .. } => !max.is_above(entry.1),
            Self::Lex { max, .. } => !max.is_above(entry.0.bytes(&mut Digits::new())),
        }
    }

    /// The places of its entries, ascending.
    pub(super) fn places(
        &self,
        packed: &Packed<'_>,
        direction: Direction,
    ) -> Result<core::ops::Range<u32>, ValueError> {
        if let Self::Index { start, stop } = *self {
            let span = span(start, stop, packed.count);
            return Ok(match direction {
                Direction::Ascending => span,
                Direction::Descending => packed.count - span.end..packed.count - span.start,
            });
        }
        let mut entries = Entries::new(packed);
        let mut start = 0;
        let mut end = 0;
        while let Some(entry) = entries.next()? {
            // Once one is not too low, those behind it are not looked at for that.
            if start == end && self.is_too_low(&entry) {
                start += 1;
            } else if self.is_too_high(&entry) {
                break;
            }
            end += 1;
        }
        Ok(start..end)
    }
}

/// LIMIT: which part of a range is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// How many entries are passed over; if negative, all.
    pub offset: i64,
    /// How many are answered; if negative, all.
    pub count: i64,
}

impl Limit {
    /// Everything.
    pub const NONE: Self = Self { offset: 0, count: -1 };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_read_as_by_redis() {
        let bound = |score, is_exclusive| Some(ScoreBound { score, is_exclusive });
        for (text, expected) in [
            ("5", bound(5.0, false)),
            ("(1.5", bound(1.5, true)),
            ("(", bound(0.0, true)),
            ("", bound(0.0, false)),
            (" 1", bound(1.0, false)),
            ("( 4", bound(4.0, true)),
            ("-inf", bound(f64::NEG_INFINITY, false)),
            ("(+inf", bound(f64::INFINITY, true)),
            ("1e400", bound(f64::INFINITY, false)),
            ("0x5", bound(5.0, false)),
            ("1 ", None),
            (" ", None),
            ("((5", None),
            ("nan", None),
            ("-", None),
            ("+", None),
        ] {
            assert_eq!(ScoreBound::parse(text.as_bytes()), expected, "{text:?}");
        }
        for (text, expected) in [
            ("-", Some(LexBound::Lowest)),
            ("+", Some(LexBound::Highest)),
            ("[a", Some(LexBound::Inclusive(b"a"))),
            ("(ab", Some(LexBound::Exclusive(b"ab"))),
            ("[", Some(LexBound::Inclusive(b""))),
            ("(", Some(LexBound::Exclusive(b""))),
            ("", None),
            ("a", None),
            ("-x", None),
            ("+x", None),
        ] {
            assert_eq!(LexBound::parse(text.as_bytes()), expected, "{text:?}");
        }
    }
}
