//! Where the keys of a command stand among its arguments.
//!
//! On the path: when a command is counted, put into a transaction, or held against a user's rules.

use core::iter::{Chain, StepBy};
use core::ops::Range;

use farside_value::integer;

use crate::request::Request;

/// Where keys stand; places are counted from the command's name on, which has 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeySpec {
    /// Nowhere.
    NoKeys,
    /// At this place.
    One(u8),
    /// The first, the last (negative: counted from the end) and the step between them.
    Range(u8, i8, u8),
    /// At this place stands how many there are. They follow it.
    Numkeys(u8),
    /// The same, and a further key stands at place 1.
    OneAndNumkeys(u8),
}

/// The places of the keys of a request, in ascending order.
pub(crate) type Places = Chain<Range<usize>, StepBy<Range<usize>>>;

impl KeySpec {
    /// Whether a command with these keys may have any.
    pub(crate) const fn has_keys(self) -> bool {
        !matches!(self, Self::NoKeys)
    }

    /// The first, the last, and the step between them, as COMMAND INFO tells it: of keys that are counted by an argument
    /// it tells nothing.
    pub(crate) fn shown(self) -> [i64; 3] {
        match self {
            Self::NoKeys | Self::Numkeys(_) => [0, 0, 0],
            Self::One(place) => [place.into(), place.into(), 1],
            Self::Range(first, last, step) => [first.into(), last.into(), step.into()],
            Self::OneAndNumkeys(_) => [1, 1, 1],
        }
    }

    /// Which arguments of a request are keys. As in Redis, there are none if their number cannot be right; the command
    /// itself refuses it.
    pub(crate) fn places(self, request: &Request<'_>) -> Places {
        let (before, keys, step) = match self {
            Self::NoKeys => (0..0, 0..0, 1),
            Self::One(place) => (0..0, place.into()..usize::from(place) + 1, 1),
            Self::Range(first, last, step) => {
                let end = match last < 0 {
                    true => (request.len() + 1).saturating_sub(last.unsigned_abs().into()),
                    false => usize::from(last.unsigned_abs()) + 1,
                };
                (0..0, first.into()..end, step.into())
            }
            Self::Numkeys(at) => (0..0, counted(request, at.into()), 1),
            Self::OneAndNumkeys(at) => {
                let keys = counted(request, at.into());
                (1..1 + usize::from(!keys.is_empty()), keys, 1)
            }
        };
        before.chain(keys.step_by(step))
    }
}

/// The places of keys whose number stands at `at`.
fn counted(request: &Request<'_>, at: usize) -> Range<usize> {
    let count = integer::parse(request.arg(at)).and_then(|count| usize::try_from(count).ok());
    let first = at + 1;
    let count = count.filter(|&count| count <= request.len().saturating_sub(first));
    first..first + count.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Scratch;

    fn places(keys: KeySpec, line: &str) -> Vec<usize> {
        let mut scratch = Scratch::default();
        let request = Request::split(line.as_bytes(), &mut scratch).expect("quotes match");
        keys.places(&request).collect()
    }

    #[test]
    fn places_and_ranges_are_those_of_the_table() {
        assert_eq!(places(KeySpec::NoKeys, "PING a"), [0; 0]);
        assert_eq!(places(KeySpec::One(1), "GET a"), [1]);
        assert_eq!(places(KeySpec::One(2), "OBJECT FREQ a"), [2]);
        assert_eq!(places(KeySpec::Range(1, -1, 1), "DEL a b c"), [1, 2, 3]);
        assert_eq!(places(KeySpec::Range(1, -1, 2), "MSET a 1 b 2"), [1, 3]);
        assert_eq!(places(KeySpec::Range(1, 2, 1), "LCS a b LEN"), [1, 2]);
        assert_eq!(places(KeySpec::Range(2, -1, 1), "BITOP AND d a b"), [2, 3, 4]);
        assert_eq!(places(KeySpec::Range(1, -2, 1), "BLPOP a b 0"), [1, 2]);
    }

    #[test]
    fn a_number_of_keys_that_cannot_be_right_is_none() {
        for (count, expected) in [
            ("1", &[2][..]),
            ("3", &[2, 3, 4]),
            ("0", &[]),
            ("4", &[]),
            ("-1", &[]),
            ("x", &[]),
            ("1.0", &[]),
            ("9223372036854775808", &[]),
        ] {
            let line = format!("SINTERCARD {count} a b c");
            assert_eq!(places(KeySpec::Numkeys(1), &line), expected, "{line}");
            let line = format!("ZUNIONSTORE d {count} a b c");
            let expected: Vec<usize> = match expected.is_empty() {
                true => Vec::new(),
                false => [1].into_iter().chain(expected.iter().map(|place| place + 1)).collect(),
            };
            assert_eq!(places(KeySpec::OneAndNumkeys(2), &line), expected, "{line}");
        }
        assert_eq!(places(KeySpec::Numkeys(2), "EVAL a"), [0; 0]);
    }

    #[test]
    fn command_info_shows_what_does_not_move() {
        assert_eq!(KeySpec::NoKeys.shown(), [0, 0, 0]);
        assert_eq!(KeySpec::One(2).shown(), [2, 2, 1]);
        assert_eq!(KeySpec::Range(1, -1, 2).shown(), [1, -1, 2]);
        assert_eq!(KeySpec::Numkeys(1).shown(), [0, 0, 0]);
        assert_eq!(KeySpec::OneAndNumkeys(2).shown(), [1, 1, 1]);
    }
}
