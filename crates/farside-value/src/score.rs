//! Scores of sorted sets: how they are stored, read from a command, and written to a reply.
//!
//! A score is an integer of `string.rs` if it is one that an `i64` holds and is not -0.0; else 0xc8 and the 8 bytes of the
//! double. It is never NaN. -0.0 and 0.0 are equal in order, and stay what they were.

use std::io::Write as _;

use arrayvec::ArrayVec;

use crate::string::{self, Text};
use crate::{ValueError, integer};

const DOUBLE: u8 = 0xc8;

const NOT_SHORTEST: ValueError = ValueError::Damaged("a score has not its form");
const NO_SCORE: ValueError = ValueError::Damaged("no score begins so");

/// The integer that stands for a score.
fn as_integer(score: f64) -> Option<i64> {
    let number = score as i64;
    // The largest integer rounds up to 2^63 as a double, which is none any more.
    let is_exact = number as f64 == score && number != i64::MAX;
    (is_exact && !(score == 0.0 && score.is_sign_negative())).then_some(number)
}

/// Appends the form of a score.
pub(crate) fn put(score: f64, out: &mut Vec<u8>) {
    if let Some(number) = as_integer(score) {
        string::put_integer(number, out);
    } else {
        out.push(DOUBLE);
        out.extend_from_slice(&score.to_le_bytes());
    }
}

/// Reads a score at `*at` and moves `*at` behind it.
pub(crate) fn read(bytes: &[u8], at: &mut usize) -> Result<f64, ValueError> {
    match bytes.get(*at) {
        Some(&DOUBLE) => {
            *at += 1;
            let double = string::take(bytes, at, 8)?;
            let score = f64::from_le_bytes(double.try_into().expect("eight bytes"));
            if score.is_nan() || as_integer(score).is_some() {
                return Err(NOT_SHORTEST);
            }
            Ok(score)
        }
        Some(&first) if string::is_integer(first) => match string::read(bytes, at)? {
            // Beyond that not every integer is a score.
            Text::Integer(number) if number.unsigned_abs() < 1 << 53 || as_integer(number as f64) == Some(number) => {
                Ok(number as f64)
            }
            _ => Err(NOT_SHORTEST),
        },
        _ => Err(NO_SCORE),
    }
}

/// Moves `*at` behind the score that begins there.
#[inline]
pub(crate) fn skip(bytes: &[u8], at: &mut usize) -> Result<(), ValueError> {
    let width = match string::take(bytes, at, 1)?[0] {
        DOUBLE => 8,
        first if string::is_integer(first) => string::width_of(first),
        _ => return Err(NO_SCORE),
    };
    string::take(bytes, at, width).map(|_| ())
}

/// A number as commands have them: decimal or hexadecimal, with a sign, a point and an exponent; or `inf`, `infinity`.
///
/// `None` if it is anything else, NaN, or beyond what a double holds, as in Redis.
#[must_use]
pub fn parse_score(text: &[u8]) -> Option<f64> {
    let number = parse_loosely(text)?;
    // What was rounded to infinity or to nothing is out of range. An infinity in letters has no digit.
    let mantissa = text.split(|byte| matches!(byte, b'e' | b'E' | b'p' | b'P'));
    let has_value = |part: &[u8]| part.iter().any(|byte| matches!(byte, b'1'..=b'9'));
    let is_out_of_range = if is_hexadecimal(text) {
        number.is_infinite() || number == 0.0 && has_hexadecimal_value(text)
    } else {
        number.is_infinite() && text.iter().any(u8::is_ascii_digit) || number == 0.0 && mantissa.take(1).any(has_value)
    };
    (!is_out_of_range).then_some(number)
}

/// The same, rounded to infinity or zero where it is out of range.
pub(crate) fn parse_loosely(text: &[u8]) -> Option<f64> {
    if is_hexadecimal(text) {
        return parse_hexadecimal(text);
    }
    let number: f64 = str::from_utf8(text).ok()?.parse().ok()?;
    (!number.is_nan()).then_some(number)
}

fn without_sign(text: &[u8]) -> &[u8] {
    match text {
        [b'+' | b'-', rest @ ..] => rest,
        _ => text,
    }
}

fn is_hexadecimal(text: &[u8]) -> bool {
    matches!(without_sign(text), [b'0', b'x' | b'X', ..])
}

fn has_hexadecimal_value(text: &[u8]) -> bool {
    let digits = without_sign(text)[2..].iter();
    digits
        .take_while(|byte| !matches!(byte, b'p' | b'P'))
        .any(|byte| byte.is_ascii_hexdigit() && *byte != b'0')
}

/// C's form: `0x`, digits with a point, and perhaps `p` and a power of two in decimal.
fn parse_hexadecimal(text: &[u8]) -> Option<f64> {
    let digits = &without_sign(text)[2..];
    let (digits, exponent) = match digits.iter().position(|byte| matches!(byte, b'p' | b'P')) {
        Some(at) => (&digits[..at], parse_exponent(&digits[at + 1..])?),
        None => (digits, 0),
    };
    let mut mantissa = 0_u64;
    let mut power = exponent;
    let mut has_digits = false;
    let mut has_point = false;
    for &byte in digits {
        if byte == b'.' && !has_point {
            has_point = true;
            continue;
        }
        let digit = char::from(byte).to_digit(16)?;
        has_digits = true;
        // Sixty bits are enough to round by, if the last one says whether anything followed them.
        if mantissa >> 60 == 0 {
            mantissa = mantissa << 4 | u64::from(digit);
            power -= if has_point { 4 } else { 0 };
        } else {
            mantissa |= u64::from(digit != 0);
            power += if has_point { 0 } else { 4 };
        }
    }
    if !has_digits {
        return None;
    }
    let number = scale(mantissa, power);
    Some(if text[0] == b'-' { -number } else { number })
}

fn parse_exponent(text: &[u8]) -> Option<i64> {
    let digits = without_sign(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let limit = 1_i64 << 32;
    let number = digits
        .iter()
        .fold(0, |number, digit| (number * 10 + i64::from(digit - b'0')).min(limit));
    Some(if text[0] == b'-' { -number } else { number })
}

/// `mantissa` times two to the `power`, rounded once.
fn scale(mantissa: u64, power: i64) -> f64 {
    if mantissa == 0 {
        return 0.0;
    }
    let top = i64::from(63 - mantissa.leading_zeros()) + power;
    if top > 1023 {
        return f64::INFINITY;
    }
    // The place of the last bit that a double of this size has.
    let last = (top - 52).max(-1074);
    let shift = last - power;
    let bits = if shift <= 0 {
        mantissa << -shift
    } else if shift > 64 {
        0
    } else {
        let wide = u128::from(mantissa);
        let (whole, rest, half) = (wide >> shift, wide & ((1 << shift) - 1), 1_u128 << (shift - 1));
        (whole + u128::from(rest > half || rest == half && whole & 1 == 1)) as u64
    };
    // Below 2^53, so exact; two factors, since a power of two below the smallest normal one is not one by itself.
    let half = last / 2;
    bits as f64 * 2_f64.powi(half as i32) * 2_f64.powi((last - half) as i32)
}

/// Appends a double as Redis 7.2 writes one: an integer in full, if it is one of up to 2^62; else the fewest digits that say
/// which double it is, with an exponent if there are many zeros (`3.3`, `0.0001`, `1e-7`, `1e+20`); `inf`, `-inf`, `-0`, `nan`.
pub fn write_score(score: f64, out: &mut Vec<u8>) {
    if score.is_nan() {
        return out.extend_from_slice(b"nan");
    }
    if score.is_infinite() {
        return out.extend_from_slice(if score > 0.0 { b"inf" } else { b"-inf" });
    }
    if let Some(number) = as_integer(score)
        && number.unsigned_abs() <= 1 << 62
    {
        return out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    }
    if score.is_sign_negative() {
        out.push(b'-');
    }
    // One digit, a point and the others if there are any, and the exponent.
    let mut number = ArrayVec::<u8, SCIENTIFIC_BYTES_MAX>::new();
    write!(number, "{:e}", score.abs()).expect("there is room");
    let at = number.iter().position(|&byte| byte == b'e').expect("an exponent");
    let exponent = integer::parse(&number[at + 1..]).expect("it was written as one") as i32;
    number.truncate(at);
    number.retain(|byte| *byte != b'.');
    write_digits(&number, exponent, out);
}

/// The longest that a double is with an exponent: 17 digits, a point, and `e-324`.
const SCIENTIFIC_BYTES_MAX: usize = 24;

/// Appends digits of which the first stands for 10 to the `exponent`. What gets an exponent is what gets one from `fpconv`.
fn write_digits(digits: &[u8], exponent: i32, out: &mut Vec<u8>) {
    let count = digits.len() as i32;
    // What the last digit stands for.
    let last = exponent - (count - 1);
    if (0..8).contains(&last) {
        out.extend_from_slice(digits);
        out.resize(out.len() + last as usize, b'0');
    } else if last < 0 && (last > -7 || exponent.abs() < 4) {
        // How many digits are in front of the point.
        let whole = exponent + 1;
        if whole <= 0 {
            out.extend_from_slice(b"0.");
            out.resize(out.len() + whole.unsigned_abs() as usize, b'0');
            out.extend_from_slice(digits);
        } else {
            let (whole, fraction) = digits.split_at(whole as usize);
            out.extend_from_slice(whole);
            out.push(b'.');
            out.extend_from_slice(fraction);
        }
    } else {
        let (first, others) = digits.split_at(1);
        out.extend_from_slice(first);
        if !others.is_empty() {
            out.push(b'.');
            out.extend_from_slice(others);
        }
        out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
        out.extend_from_slice(itoa::Buffer::new().format(exponent.unsigned_abs()).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn form(score: f64) -> Vec<u8> {
        let mut out = Vec::new();
        put(score, &mut out);
        out
    }

    fn written(score: f64) -> String {
        let mut out = Vec::new();
        write_score(score, &mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn scores_are_written_as_by_redis() {
        for (score, text) in [
            (3.3, "3.3"),
            (1e20, "1e+20"),
            (1e17, "100000000000000000"),
            (4_611_686_018_427_387_904.0, "4611686018427387904"),
            (-4_611_686_018_427_387_904.0, "-4611686018427387904"),
            // Beyond that, digits that do not matter are zeros.
            (4_611_686_018_427_388_928.0, "4611686018427389000"),
            (12_345_678_901_234_567_890.0, "12345678901234567000"),
            (-1.5e19, "-1.5e+19"),
            (-0.0, "-0"),
            (0.0, "0"),
            (0.1, "0.1"),
            (0.1 + 0.2, "0.30000000000000004"),
            (0.0001, "0.0001"),
            (-1e-6, "-0.000001"),
            (1.5e-6, "1.5e-6"),
            (1e-7, "1e-7"),
            (0.001_234_567_8, "0.0012345678"),
            (0.000_123_456_78, "1.2345678e-4"),
            (1_234.567_890_123, "1234.567890123"),
            (12_345.678_901_234, "1.2345678901234e+4"),
            (12_345.678_901, "12345.678901"),
            (12_345.678_901_2, "1.23456789012e+4"),
            (1.5e300, "1.5e+300"),
            (1.797_693_134_862_315_7e308, "1.7976931348623157e+308"),
            (-2.225_073_858_507_201_4e-308, "-2.2250738585072014e-308"),
            (5e-324, "5e-324"),
            (-2.5, "-2.5"),
            (f64::NAN, "nan"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(written(score), text);
        }
    }

    #[test]
    fn scores_are_read_as_by_redis() {
        for (text, score) in [
            ("0x10", 16.0),
            ("-0X10", -16.0),
            ("0x1p3", 8.0),
            ("0x1p-2", 0.25),
            ("0x1.8", 1.5),
            ("0x.8", 0.5),
            ("0x0", 0.0),
            ("0x1fffffffffffff8", 144_115_188_075_855_872.0),
            ("0x1p-1074", 5e-324),
            ("0x1.fffffffffffffp1023", f64::MAX),
            ("+5", 5.0),
            (".5", 0.5),
            ("5.", 5.0),
            ("1e-320", 1e-320),
            ("0e-400", 0.0),
            ("INF", f64::INFINITY),
            ("-infinity", f64::NEG_INFINITY),
        ] {
            assert_eq!(parse_score(text.as_bytes()), Some(score), "{text}");
        }
        for text in [
            "",
            " 1",
            "1 ",
            "nan",
            "-nan",
            "0x",
            "0x.",
            "0x1p",
            "0x1g",
            "1e",
            "infin",
            "1e400",
            "1e-400",
            "0x1p-1076",
            "0x1p1024",
            "--1",
            "0x-1",
            "0x1.1.1",
        ] {
            assert_eq!(parse_score(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse_loosely(b"-1e400"), Some(f64::NEG_INFINITY));
    }

    #[test]
    fn what_no_integer_holds_is_a_double() {
        for (score, first) in [
            (i64::MIN as f64, 0xc4),
            (i64::MAX as f64, DOUBLE),
            (-0.0, DOUBLE),
            (0.5, DOUBLE),
            (f64::INFINITY, DOUBLE),
            (-7.0, 0xc0),
        ] {
            assert_eq!(form(score)[0], first, "{score}");
        }
    }

    #[test]
    fn what_is_no_score_is_damage() {
        let nan = [&[DOUBLE][..], &f64::NAN.to_le_bytes()].concat();
        let one = [&[DOUBLE][..], &1_f64.to_le_bytes()].concat();
        let inexact = [&[0xc4][..], &((1_i64 << 53) + 1).to_le_bytes()].concat();
        for bytes in [&[][..], &[DOUBLE], &[1, b'a'], &nan, &one, &inexact] {
            assert!(matches!(read(bytes, &mut 0), Err(ValueError::Damaged(_))), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn a_score_comes_back(score in prop_oneof![
            any::<f64>(),
            any::<i64>().prop_map(|number| number as f64),
            (-1000..1000_i32).prop_map(f64::from),
            prop::sample::select(vec![0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, i64::MAX as f64, i64::MIN as f64]),
        ]) {
            let form = form(score);
            let mut at = 0;
            let read = read(&form, &mut at).expect("what was written");
            prop_assert_eq!(at, form.len());
            let mut at = 0;
            prop_assert_eq!(skip(&form, &mut at), Ok(()));
            prop_assert_eq!(at, form.len());
            prop_assert_eq!(read.to_bits(), score.to_bits());
            let again = parse_score(written(score).as_bytes()).expect("a number");
            prop_assert_eq!(again.to_bits(), score.to_bits(), "the digits say exactly which");
        }

        #[test]
        fn what_is_read_has_been_written_so(bytes in prop::collection::vec(any::<u8>(), 0..10), first in 0xc0..0xca_u8) {
            let bytes = [&[first][..], &bytes].concat();
            let mut at = 0;
            if let Ok(score) = read(&bytes, &mut at) {
                prop_assert_eq!(&form(score)[..], &bytes[..at]);
            }
        }

        #[test]
        fn hexadecimal_rounds_like_a_conversion(mantissa: u64, power in -100..100_i64) {
            let text = format!("0x{mantissa:x}p{power}");
            let expected = mantissa as f64 * 2_f64.powi(power as i32);
            prop_assert_eq!(parse_score(text.as_bytes()), Some(expected));
        }
    }
}
