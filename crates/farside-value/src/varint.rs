//! Numbers of elements: LEB128, seven bits a byte, the lowest first, in as few bytes as possible.

use crate::ValueError;

/// How many bytes a number may take.
pub(crate) const BYTES_MAX: usize = 5;

const DAMAGED: ValueError = ValueError::Damaged("a count is cut off, too long or too large");

/// Appends `number`.
pub(crate) fn put(mut number: u32, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Reads a number at `*at` and moves `*at` behind it.
pub(crate) fn read(bytes: &[u8], at: &mut usize) -> Result<u32, ValueError> {
    let mut number = 0_u64;
    for index in 0..BYTES_MAX {
        let byte = *bytes.get(*at).ok_or(DAMAGED)?;
        *at += 1;
        number |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            // A last byte of 0 says nothing: a number has one form.
            if byte == 0 && index > 0 {
                break;
            }
            return u32::try_from(number).map_err(|_| DAMAGED);
        }
    }
    Err(DAMAGED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_number_has_one_form() {
        for bytes in [
            &[][..],
            &[0x80],
            &[0x80, 0],
            &[0xff, 0x80, 0],
            &[0xff, 0xff, 0xff, 0xff, 0x10],
            &[0x80, 0x80, 0x80, 0x80, 0x80, 1],
        ] {
            assert_eq!(read(bytes, &mut 0), Err(DAMAGED), "{bytes:?}");
        }
        for (bytes, number) in [
            (&[0][..], 0),
            (&[0x80, 1], 128),
            (&[0xff, 0xff, 0xff, 0xff, 0xf], u32::MAX),
        ] {
            assert_eq!(read(bytes, &mut 0), Ok(number));
        }
    }

    proptest! {
        #[test]
        fn a_number_comes_back(number: u32, shift in 0..32_u32) {
            let number = number >> shift;
            let mut bytes = Vec::new();
            put(number, &mut bytes);
            prop_assert!(bytes.len() <= BYTES_MAX);
            let mut at = 0;
            prop_assert_eq!(read(&bytes, &mut at), Ok(number));
            prop_assert_eq!(at, bytes.len());
        }
    }
}
