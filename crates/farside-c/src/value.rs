//! Values that are computed from what is stored.

use core::mem::MaybeUninit;

use crate::border::{In, given};
use crate::fault::{Fault, Status, answer};
use crate::store::OpenStore;

/// Adds to the number that a key holds as decimal digits, 0 if it is not there, atomically. When the key expires stays as it
/// is. The sum goes to `result`, which may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn farside_increment(
    store: Option<&OpenStore>,
    key: In,
    key_length: usize,
    by: i64,
    result: Option<&mut MaybeUninit<i64>>,
) -> Status {
    answer(|| {
        let key = key.bytes(key_length, "key")?;
        let mut sum = 0;
        let added = given(store, "store")?.opened.with(|session| {
            session.update(key, |stored| {
                sum = plus(stored, by)?;
                Ok(sum.to_string().into_bytes())
            })
        });
        added?.map_err(|text: &str| Fault::invalid(text))?;
        if let Some(result) = result {
            result.write(sum);
        }
        Ok(())
    })
}

fn plus(stored: Option<&[u8]>, by: i64) -> Result<i64, &'static str> {
    let stored = stored.map_or(Ok("0"), core::str::from_utf8);
    let number = stored.ok().and_then(|digits| digits.parse::<i64>().ok());
    let number = number.ok_or("the value is not a whole number of 64 bits")?;
    number.checked_add(by).ok_or("the sum has more than 64 bits")
}

/// Stores a value if the key has the value that is expected; FARSIDE_NOT_STORED if it has another one, FARSIDE_NOT_FOUND if
/// it is not there. When the key expires stays as it is.
#[unsafe(no_mangle)]
pub extern "C" fn farside_compare_and_set(
    store: Option<&OpenStore>,
    key: In,
    key_length: usize,
    expected: In,
    expected_length: usize,
    value: In,
    value_length: usize,
) -> Status {
    answer(|| {
        let key = key.bytes(key_length, "key")?;
        let expected = expected.bytes(expected_length, "expected")?;
        let value = value.bytes(value_length, "value")?;
        let outcome = given(store, "store")?.opened.with(|session| {
            session.update(key, |stored| match stored {
                Some(stored) if stored == expected => Ok(value.to_vec()),
                Some(_) => Err(Fault::new(
                    Status::NotStored,
                    c"the key has another value than expected",
                )),
                None => Err(Fault::NO_KEY),
            })
        });
        outcome?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_64_bits() {
        assert_eq!(plus(None, -7), Ok(-7));
        assert_eq!(plus(Some(b"9223372036854775806"), 1), Ok(i64::MAX));
        assert!(plus(Some(b"9223372036854775807"), 1).is_err());
        assert!(plus(Some(b" 1"), 1).is_err());
        assert!(plus(Some(b"\xff"), 1).is_err());
    }
}
