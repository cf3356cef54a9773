//! Integers as Redis reads them: one spelling per number.

/// The number, if `text` spells it the only way there is: no sign but a leading minus, no leading
/// zeros, no space.
#[must_use]
pub fn parse(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    match digits {
        [b'0'] if digits.len() == text.len() => return Some(0),
        [b'1'..=b'9', ..] => {}
        _ => return None,
    }
    // Below zero there is one number more than above.
    let mut negative = 0_i64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        negative = negative.checked_mul(10)?.checked_sub(i64::from(digit))?;
    }
    match digits.len() == text.len() {
        true => negative.checked_neg(),
        false => Some(negative),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_one_spelling_is_a_number() {
        for text in [
            "",
            "-",
            "+1",
            " 1",
            "1 ",
            "01",
            "-0",
            "-01",
            "1.0",
            "0x1",
            "1e3",
            "9223372036854775808",
            "-9223372036854775809",
            "18446744073709551617",
            "1a",
            "1/",
            "1:",
            "a",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn every_number_is_read(number: i64) {
            prop_assert_eq!(parse(number.to_string().as_bytes()), Some(number));
        }

        #[test]
        fn what_is_read_is_written_the_same(text in "[-+ 0-9]{0,21}") {
            if let Some(number) = parse(text.as_bytes()) {
                prop_assert_eq!(number.to_string(), text);
            }
        }
    }
}
