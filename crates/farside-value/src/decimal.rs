//! Sums of decimal numbers, for INCRBYFLOAT and HINCRBYFLOAT.
//!
//! On the path: a string or a field that is stored as text gets a number added, and is stored as text again.
//!
//! Redis writes 17 places after the point, and so many are kept here, in a fixed-point number: 0.1 and
//! 0.2 are exactly 0.3. What does not fit, beyond 10^20, is added as an `f64`.

/// Places after the point.
const PLACES: u32 = 17;
/// 1, as a fixed-point number.
const ONE: i128 = 10_i128.pow(PLACES);

/// What adding two texts gives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sum {
    /// The sum, without exponent and without zeros at its end.
    Number(String),
    /// One of them is no number.
    NotANumber,
    /// It is too large for a number, or one of them is infinite.
    Infinite,
}

/// Adds two numbers: digits, perhaps with a sign, a point and an exponent; or `inf`.
#[must_use]
pub fn add(one: &[u8], other: &[u8]) -> Sum {
    let (Some(one_float), Some(other_float)) = (float(one), float(other)) else {
        return Sum::NotANumber;
    };
    let fixed_sum = || fixed(one)?.checked_add(fixed(other)?);
    if let Some(sum) = fixed_sum() {
        return Sum::Number(text(sum));
    }
    match one_float + other_float {
        sum if !sum.is_finite() => Sum::Infinite,
        0.0 => Sum::Number("0".to_owned()),
        sum => Sum::Number(sum.to_string()),
    }
}

/// The number that a text says, rounded to a double; `None` if it says none.
pub(crate) fn float(text: &[u8]) -> Option<f64> {
    let number: f64 = str::from_utf8(text).ok()?.parse().ok()?;
    (!number.is_nan()).then_some(number)
}

/// A text that [`float`] has accepted, rounded to [`PLACES`]; `None` if it is not finite or does not fit.
fn fixed(text: &[u8]) -> Option<i128> {
    let (is_negative, text) = match text {
        [b'-', text @ ..] => (true, text),
        [b'+', text @ ..] => (false, text),
        _ => (false, text),
    };
    let mut digits = 0_i128;
    let mut exponent = 0_i32;
    let mut has_point = false;
    for (index, &byte) in text.iter().enumerate() {
        match byte {
            b'0'..=b'9' => {
                digits = digits.checked_mul(10)?.checked_add((byte - b'0').into())?;
                exponent = exponent.checked_sub(has_point.into())?;
            }
            b'.' => has_point = true,
            b'e' | b'E' => {
                let written: i32 = str::from_utf8(&text[index + 1..]).ok()?.parse().ok()?;
                exponent = exponent.checked_add(written)?;
                break;
            }
            _ => return None,
        }
    }
    let shift = exponent.checked_add(PLACES as i32)?;
    let power = 10_i128.checked_pow(shift.unsigned_abs());
    let number = match power {
        _ if digits == 0 => 0,
        Some(power) if shift >= 0 => digits.checked_mul(power)?,
        // The division first: adding half of the power to the digits could overflow.
        Some(power) => digits / power + i128::from(digits % power >= power - power / 2),
        None if shift >= 0 => return None,
        None => 0,
    };
    Some(if is_negative { -number } else { number })
}

fn text(fixed: i128) -> String {
    let sign = if fixed < 0 { "-" } else { "" };
    let (whole, part) = (fixed.unsigned_abs() / ONE as u128, fixed.unsigned_abs() % ONE as u128);
    let text = format!("{sign}{whole}.{part:0places$}", places = PLACES as usize);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_added_exactly() {
        for (one, other, sum) in [
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("0.1", "0.2", "0.3"),
            ("1", "-1", "0"),
            ("0", "-0.0", "0"),
            ("-1.5", "+.25", "-1.25"),
            ("5.", "1E-1", "5.1"),
            ("123456.1", "0.1", "123456.2"),
            ("0", "1e-17", "0.00000000000000001"),
            ("0", "4e-18", "0"),
            ("0", "5e-18", "0.00000000000000001"),
            ("0", "1e-1000", "0"),
            ("0", "0e1000", "0"),
            ("100000000000000000000", "0.5", "100000000000000000000.5"),
            ("1e30", "1", "1000000000000000000000000000000"),
            ("1e30", "-1e30", "0"),
        ] {
            let found = add(one.as_bytes(), other.as_bytes());
            assert_eq!(found, Sum::Number(sum.to_owned()), "{one} {other}");
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in [
            "", " 1", "1 ", "a", "1a", "nan", "-nan", ".", "e1", "1e", "--1", "0x10", "1,5",
        ] {
            assert_eq!(add(text.as_bytes(), b"1"), Sum::NotANumber, "{text:?}");
            assert_eq!(add(b"1", text.as_bytes()), Sum::NotANumber, "{text:?}");
        }
        assert_eq!(add(b"\xff", b"1"), Sum::NotANumber);
    }

    #[test]
    fn infinity_is_no_sum() {
        for (one, other) in [
            ("1", "inf"),
            ("-inf", "1"),
            ("inf", "-inf"),
            ("1e308", "1e308"),
            ("1", "1e400"),
        ] {
            assert_eq!(add(one.as_bytes(), other.as_bytes()), Sum::Infinite, "{one} {other}");
        }
    }

    proptest! {
        #[test]
        fn whole_numbers_add_as_integers(one: i64, other: i64) {
            let found = add(one.to_string().as_bytes(), other.to_string().as_bytes());
            prop_assert_eq!(found, Sum::Number((i128::from(one) + i128::from(other)).to_string()));
        }

        #[test]
        fn what_was_added_can_be_taken_away(whole in 0..1_000_000_u32, part in 0..1_000_000_u32, more: i32) {
            let number = format!("{whole}.{part:06}1");
            let Sum::Number(sum) = add(number.as_bytes(), more.to_string().as_bytes()) else {
                panic!("both are numbers");
            };
            let less = (-i64::from(more)).to_string();
            prop_assert_eq!(add(sum.as_bytes(), less.as_bytes()), Sum::Number(number));
        }

        #[test]
        fn any_text_is_added_or_refused(text in "[-+0-9.eE]{0,50}") {
            if let Sum::Number(number) = add(text.as_bytes(), b"0") {
                prop_assert_eq!(add(number.as_bytes(), b"0"), Sum::Number(number));
            }
        }
    }
}
