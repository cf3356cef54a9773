//! Strings as elements: short forms for short ones and for integers.
//!
//! ```text
//! 0x00..0xbf       so many bytes follow
//! 0xc0..0xc3       1, 2, 3, 4 bytes follow: a signed integer, whose decimal digits are the string
//! 0xc4             8 bytes, likewise
//! 0xd0, 0xd1       length in 2, 4 bytes, then the bytes
//! ```
//!
//! Invariant: a string has one form. One that is the canonical decimal form of an `i64` (no `+`, no zeros in front, no `-0`)
//! is stored as an integer, in as few bytes as possible; nothing else is. So strings are equal if their forms are.

use core::cmp::Ordering;

use crate::{ValueError, integer};

/// The longest string whose length is its first byte.
const SHORT_MAX: usize = 0xbf;
const INTEGER_1: u8 = 0xc0;
const INTEGER_8: u8 = 0xc4;
const LENGTH_2: u8 = 0xd0;
const LENGTH_4: u8 = 0xd1;

const CUT_OFF: ValueError = ValueError::Damaged("a string is cut off");
const NOT_SHORTEST: ValueError = ValueError::Damaged("a string has not its shortest form");

/// A string: bytes, or the integer whose decimal digits they are.
///
/// Two are equal if their bytes are, provided that both come from [`Text::new`] or from a value; they are ordered by bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Text<'a> {
    /// Digits of an integer, with a sign if it is negative.
    Integer(i64),
    /// Any other bytes.
    Bytes(&'a [u8]),
}

/// Room for the digits of an integer.
pub type Digits = itoa::Buffer;

impl<'a> Text<'a> {
    /// The string of these bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        integer::parse(bytes).map_or(Self::Bytes(bytes), Self::Integer)
    }

    /// Its bytes; those of an integer are written to `digits`.
    #[must_use]
    pub fn bytes<'b>(&self, digits: &'b mut Digits) -> &'b [u8]
    where
        'a: 'b,
    {
        match *self {
            Self::Integer(number) => digits.format(number).as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }

    /// How many bytes it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes(&mut Digits::new()).len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::Bytes(&[])
    }

    /// A copy of its bytes.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        self.bytes(&mut Digits::new()).to_vec()
    }

    /// Any total order in which only equal ones are equal, quicker than that of bytes.
    pub(crate) fn quick_cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Integer(one), Self::Integer(other)) => one.cmp(other),
            (Self::Integer(_), Self::Bytes(_)) => Ordering::Less,
            (Self::Bytes(_), Self::Integer(_)) => Ordering::Greater,
            (Self::Bytes(one), Self::Bytes(other)) => one.cmp(other),
        }
    }
}

impl Ord for Text<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.bytes(&mut Digits::new()).cmp(other.bytes(&mut Digits::new()))
    }
}

impl PartialOrd for Text<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Appends the form of a string.
pub(crate) fn put(text: Text<'_>, out: &mut Vec<u8>) {
    match text {
        Text::Integer(number) => put_integer(number, out),
        Text::Bytes(bytes) => {
            if bytes.len() <= SHORT_MAX {
                out.push(bytes.len() as u8);
            } else if let Ok(length) = u16::try_from(bytes.len()) {
                out.push(LENGTH_2);
                out.extend_from_slice(&length.to_le_bytes());
            } else {
                let length = u32::try_from(bytes.len()).expect("an element has at most 16 MiB, as values have");
                out.push(LENGTH_4);
                out.extend_from_slice(&length.to_le_bytes());
            }
            out.extend_from_slice(bytes);
        }
    }
}

/// Appends the form of an integer.
pub(crate) fn put_integer(number: i64, out: &mut Vec<u8>) {
    let width = integer_width(number);
    out.push(if width == 8 {
        INTEGER_8
    } else {
        INTEGER_1 + (width - 1) as u8
    });
    out.extend_from_slice(&number.to_le_bytes()[..width]);
}

/// In how many bytes an integer is stored, behind the first.
pub(crate) fn integer_width(number: i64) -> usize {
    // Bits without the sign, in which a negative number has as many as the one that is its complement.
    match 65 - (number ^ (number >> 63)).leading_zeros() {
        0..=8 => 1,
        9..=16 => 2,
        17..=24 => 3,
        25..=32 => 4,
        _ => 8,
    }
}

/// Whether a form that begins with this byte is that of an integer.
pub(crate) fn is_integer(first: u8) -> bool {
    (INTEGER_1..=INTEGER_8).contains(&first)
}

/// How many bytes follow the first one of an integer.
pub(crate) fn width_of(first: u8) -> usize {
    if first == INTEGER_8 {
        8
    } else {
        usize::from(first - INTEGER_1) + 1
    }
}

/// Takes `count` bytes at `*at`.
#[inline]
pub(crate) fn take<'a>(bytes: &'a [u8], at: &mut usize, count: usize) -> Result<&'a [u8], ValueError> {
    let taken = bytes.get(*at..).and_then(|rest| rest.get(..count)).ok_or(CUT_OFF)?;
    *at += count;
    Ok(taken)
}

/// Reads a string at `*at` and moves `*at` behind it.
///
/// # Errors
///
/// It is cut off, or it has not its shortest form. (Digits that should be an integer are only found by `check`: looking for
/// them would cost every read.)
#[inline]
pub(crate) fn read<'a>(bytes: &'a [u8], at: &mut usize) -> Result<Text<'a>, ValueError> {
    // Most are short, and a scan comes past all of them.
    match bytes.get(*at) {
        Some(&length) if usize::from(length) <= SHORT_MAX => {
            *at += 1;
            Ok(Text::Bytes(take(bytes, at, length.into())?))
        }
        _ => read_other(bytes, at),
    }
}

/// Reads a string that does not begin with its length.
fn read_other<'a>(bytes: &'a [u8], at: &mut usize) -> Result<Text<'a>, ValueError> {
    let first = take(bytes, at, 1)?[0];
    let length = match first {
        INTEGER_1..=INTEGER_8 => {
            let width = width_of(first);
            let number = read_signed(take(bytes, at, width)?);
            if integer_width(number) != width {
                return Err(NOT_SHORTEST);
            }
            return Ok(Text::Integer(number));
        }
        LENGTH_2 | LENGTH_4 => {
            let (width, least) = if first == LENGTH_2 {
                (2, SHORT_MAX)
            } else {
                (4, usize::from(u16::MAX))
            };
            let mut length = [0; 4];
            length[..width].copy_from_slice(take(bytes, at, width)?);
            let length = u32::from_le_bytes(length) as usize;
            if length <= least {
                return Err(NOT_SHORTEST);
            }
            length
        }
        _ => return Err(ValueError::Damaged("no string begins so")),
    };
    Ok(Text::Bytes(take(bytes, at, length)?))
}

/// A signed number of 1, 2, 3, 4 or 8 bytes.
fn read_signed(bytes: &[u8]) -> i64 {
    match *bytes {
        [one] => i64::from(one as i8),
        [one, two] => i64::from(i16::from_le_bytes([one, two])),
        // At the upper end, and then down again: the shift copies the sign.
        [one, two, three] => i64::from(i32::from_le_bytes([0, one, two, three]) >> 8),
        [one, two, three, four] => i64::from(i32::from_le_bytes([one, two, three, four])),
        _ => i64::from_le_bytes(bytes.try_into().expect("eight bytes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn form(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        put(Text::new(bytes), &mut out);
        out
    }

    #[test]
    fn integers_are_what_looks_exactly_like_one() {
        for (text, number) in [
            ("0", 0),
            ("7", 7),
            ("-1", -1),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
        ] {
            assert_eq!(Text::new(text.as_bytes()), Text::Integer(number));
        }
        for text in [
            "",
            "-",
            "-0",
            "00",
            "01",
            "+1",
            " 1",
            "1 ",
            "1a",
            "1/",
            "1:",
            "9223372036854775808",
            "-9223372036854775809",
            "92233720368547758070",
        ] {
            assert_eq!(Text::new(text.as_bytes()), Text::Bytes(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn a_form_is_as_short_as_it_can_be() {
        for (text, bytes) in [
            ("127", 2),
            ("-128", 2),
            ("128", 3),
            ("-129", 3),
            ("32767", 3),
            ("32768", 4),
            ("-8388608", 4),
            ("8388608", 5),
            ("2147483647", 5),
            ("2147483648", 9),
            ("-2147483649", 9),
            ("name", 5),
        ] {
            assert_eq!(form(text.as_bytes()).len(), bytes, "{text}");
        }
        for (length, head) in [(0, 1), (0xbf, 1), (0xc0, 3), (0xffff, 3), (0x1_0000, 5)] {
            assert_eq!(form(&vec![b'x'; length]).len(), length + head);
        }
    }

    #[test]
    fn what_nobody_writes_is_damage() {
        for bytes in [
            &[][..],
            &[3, b'a', b'b'],
            &[0xc0],
            &[0xc1, 1, 0],
            &[0xc4, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            &[0xc5, 0, 0],
            &[0xd0, 1, 0, b'a'],
            &[0xd1, 1, 0, 0, 0, b'a'],
            &[0xd0, 0xff],
            &[0xd1, 0xff, 0xff, 0xff, 0xff],
            &[0xd2],
            &[0xff],
        ] {
            assert!(matches!(read(bytes, &mut 0), Err(ValueError::Damaged(_))), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn a_string_comes_back(bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..300),
            "-?[0-9]{0,21}".prop_map(String::into_bytes),
            any::<i64>().prop_flat_map(|number| (0..64_u32).prop_map(move |shift| (number >> shift).to_string().into_bytes())),
        ]) {
            let form = form(&bytes);
            let mut at = 0;
            let text = read(&form, &mut at).expect("what was written");
            prop_assert_eq!(at, form.len());
            prop_assert_eq!(text, Text::new(&bytes));
            prop_assert_eq!(text.to_vec(), bytes);
        }

        #[test]
        fn what_is_read_has_been_written_so(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            let mut at = 0;
            if let Ok(text) = read(&bytes, &mut at) {
                let mut again = Vec::new();
                put(text, &mut again);
                prop_assert_eq!(&again[..], &bytes[..at]);
            }
        }

        #[test]
        fn order_is_that_of_bytes(one in "[-0-9a]{0,4}", other in "[-0-9a]{0,4}") {
            let texts = (Text::new(one.as_bytes()), Text::new(other.as_bytes()));
            prop_assert_eq!(texts.0.cmp(&texts.1), one.as_bytes().cmp(other.as_bytes()));
            prop_assert_eq!(texts.0.quick_cmp(&texts.1).is_eq(), one == other);
        }
    }
}
