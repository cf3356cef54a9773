//! Several elements in one string, as servers keep small values in memory and write them to files.
//!
//! ```text
//! ziplist    bytes (4), where the last begins (4), how many (2), then each: length of the one before (1, or 0xfe and 4),
//!            00 6-bit length | 01 14-bit length, high byte first | 10.. length in 4 bytes, likewise: then its bytes
//!            0xc0, 0xd0, 0xe0, 0xf0, 0xfe: a number of 2, 4, 8, 3, 1 bytes | 0xf1..=0xfd: 0 to 12;  0xff: the end
//! listpack   bytes (4), how many (2), then each: 0.. 7-bit number | 10 6-bit length | 110 13-bit number | 1110 12-bit length
//!            0xf0: length in 4 bytes | 0xf1..=0xf4: a number of 2, 3, 4, 8 bytes; how long it was so far;  0xff: the end
//! intset     bytes of each (4), how many (4), numbers
//! zipmap     how many (1), then each: length (1, or 0xfe and 4), name, length, bytes unused (1), value, unused;  0xff: the end
//! ```
//!
//! What a length or a count says is checked against the bytes that there are, so any bytes may come.

/// Reads the elements of one string; says what is wrong with it.
pub(crate) type Compact = fn(&[u8]) -> Result<Vec<Vec<u8>>, &'static str>;

const CUT_OFF: &str = "an element of a compact value goes past its end";

/// What is left of a string.
struct Bytes<'b>(&'b [u8]);

impl<'b> Bytes<'b> {
    fn take(&mut self, count: usize) -> Result<&'b [u8], &'static str> {
        let (first, rest) = self.0.split_at_checked(count).ok_or(CUT_OFF)?;
        self.0 = rest;
        Ok(first)
    }

    fn byte(&mut self) -> Result<u8, &'static str> {
        Ok(self.take(1)?[0])
    }

    /// A number of so many bytes, with its sign, the lowest byte first.
    fn number(&mut self, bytes: usize) -> Result<i64, &'static str> {
        let mut word = [0; 8];
        word[8 - bytes..].copy_from_slice(self.take(bytes)?);
        Ok(i64::from_le_bytes(word) >> (64 - 8 * bytes))
    }

    /// A length of 4 bytes, the lowest first.
    fn length(&mut self) -> Result<usize, &'static str> {
        Ok(self.number(4)? as u32 as usize)
    }

    fn length_high_first(&mut self) -> Result<usize, &'static str> {
        let bytes = self.take(4)?;
        Ok(bytes.iter().fold(0, |length, &byte| length << 8 | usize::from(byte)))
    }

    /// Nothing may be behind the end.
    fn end(&self) -> Result<(), &'static str> {
        match self.0.is_empty() {
            true => Ok(()),
            false => Err("bytes behind the end of a compact value"),
        }
    }
}

fn digits(number: i64) -> Vec<u8> {
    itoa::Buffer::new().format(number).as_bytes().to_vec()
}

pub(crate) fn ziplist(bytes: &[u8]) -> Result<Vec<Vec<u8>>, &'static str> {
    let mut rest = Bytes(bytes);
    rest.take(10)?;
    let mut elements = Vec::new();
    loop {
        match rest.byte()? {
            0xff => break,
            0xfe => drop(rest.take(4)?),
            _ => {}
        }
        let first = rest.byte()?;
        let low = usize::from(first & 0x3f);
        let bytes = match first {
            0xc0 => push_number(&mut elements, rest.number(2)?),
            0xd0 => push_number(&mut elements, rest.number(4)?),
            0xe0 => push_number(&mut elements, rest.number(8)?),
            0xf0 => push_number(&mut elements, rest.number(3)?),
            0xfe => push_number(&mut elements, rest.number(1)?),
            0xf1..=0xfd => push_number(&mut elements, i64::from(first) - 0xf1),
            _ => Some(match first >> 6 {
                0 => low,
                1 => low << 8 | usize::from(rest.byte()?),
                2 => rest.length_high_first()?,
                _ => return Err("an element of a ziplist of an unknown kind"),
            }),
        };
        if let Some(bytes) = bytes {
            elements.push(rest.take(bytes)?.to_vec());
        }
    }
    rest.end()?;
    Ok(elements)
}

/// Adds a number; no string follows.
fn push_number(elements: &mut Vec<Vec<u8>>, number: i64) -> Option<usize> {
    elements.push(digits(number));
    None
}

pub(crate) fn listpack(bytes: &[u8]) -> Result<Vec<Vec<u8>>, &'static str> {
    let mut rest = Bytes(bytes);
    rest.take(6)?;
    let mut elements = Vec::new();
    loop {
        let before = rest.0.len();
        let first = rest.byte()?;
        let bytes = match first {
            0xff => break,
            0x00..=0x7f => push_number(&mut elements, first.into()),
            0x80..=0xbf => Some(usize::from(first & 0x3f)),
            0xc0..=0xdf => {
                let number = i64::from(first & 0x1f) << 8 | i64::from(rest.byte()?);
                // Of 13 bits, the highest is the sign.
                push_number(&mut elements, number << 51 >> 51)
            }
            0xe0..=0xef => Some(usize::from(first & 0x0f) << 8 | usize::from(rest.byte()?)),
            0xf0 => Some(rest.length()?),
            0xf1 => push_number(&mut elements, rest.number(2)?),
            0xf2 => push_number(&mut elements, rest.number(3)?),
            0xf3 => push_number(&mut elements, rest.number(4)?),
            0xf4 => push_number(&mut elements, rest.number(8)?),
            _ => return Err("an element of a listpack of an unknown kind"),
        };
        if let Some(bytes) = bytes {
            elements.push(rest.take(bytes)?.to_vec());
        }
        // Its length so far, in groups of seven bits.
        rest.take(match before - rest.0.len() {
            0..=0x7f => 1,
            0x80..=0x3fff => 2,
            0x4000..=0x1f_ffff => 3,
            0x20_0000..=0xfff_ffff => 4,
            _ => 5,
        })?;
    }
    rest.end()?;
    Ok(elements)
}

pub(crate) fn intset(bytes: &[u8]) -> Result<Vec<Vec<u8>>, &'static str> {
    let mut rest = Bytes(bytes);
    let width = rest.length()?;
    if !matches!(width, 2 | 4 | 8) {
        return Err("numbers of an intset have 2, 4 or 8 bytes");
    }
    let count = rest.length()?;
    if count.checked_mul(width) != Some(rest.0.len()) {
        return Err("an intset does not have its length");
    }
    (0..count).map(|_| rest.number(width).map(digits)).collect()
}

pub(crate) fn zipmap(bytes: &[u8]) -> Result<Vec<Vec<u8>>, &'static str> {
    let mut rest = Bytes(bytes);
    rest.byte()?;
    let mut elements = Vec::new();
    loop {
        let is_value = elements.len() % 2 == 1;
        let bytes = match rest.byte()? {
            0xff if !is_value => break,
            0xff => return Err("a name of a zipmap without a value"),
            0xfe => rest.length()?,
            bytes => bytes.into(),
        };
        let unused = if is_value { rest.byte()? } else { 0 };
        elements.push(rest.take(bytes)?.to_vec());
        rest.take(unused.into())?;
    }
    rest.end()?;
    Ok(elements)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts(elements: Result<Vec<Vec<u8>>, &'static str>) -> Vec<String> {
        let elements = elements.expect("it is whole").into_iter();
        elements
            .map(|element| String::from_utf8(element).expect("text"))
            .collect()
    }

    /// As DUMP of Redis 3.2 has them.
    #[test]
    fn elements_of_a_ziplist_are_found() {
        let mut list = vec![0; 10];
        let long = "x".repeat(100);
        for element in [
            &b"\x00\x02ab"[..],
            b"\x04\xf1",
            b"\x02\xfd",
            b"\x02\xfe\x80",
            b"\x03\xc0\xff\x7f",
            b"\x04\xf0\xff\xff\xff",
            b"\x05\xd0\x00\x00\x00\x80",
            b"\x06\xe0\xff\xff\xff\xff\xff\xff\xff\x7f",
            &[b"\x0a\x40\x64", long.as_bytes()].concat(),
            b"\xfe\x67\x00\x00\x00\x80\x00\x00\x00\x01z",
        ] {
            list.extend_from_slice(element);
        }
        list.push(0xff);
        let expected = [
            "ab",
            "0",
            "12",
            "-128",
            "32767",
            "-1",
            "-2147483648",
            "9223372036854775807",
            &long,
            "z",
        ];
        assert_eq!(texts(ziplist(&list)), expected);
        for end in 0..list.len() {
            assert!(ziplist(&list[..end]).is_err(), "cut off after {end}");
        }
        list.push(0);
        assert!(ziplist(&list).is_err());
    }

    #[test]
    fn elements_of_a_listpack_are_found() {
        let mut list = vec![0; 6];
        let long = "x".repeat(200);
        for element in [
            &b"\x82ab\x03"[..],
            b"\x7f\x01",
            b"\xc0\xff\x02",
            b"\xdf\xff\x02",
            b"\xd0\x00\x02",
            b"\xf1\x00\x80\x03",
            b"\xf2\xff\xff\x7f\x04",
            b"\xf3\xff\xff\xff\x7f\x05",
            b"\xf4\x00\x00\x00\x00\x00\x00\x00\x80\x09",
            &[b"\xe0\xc8", long.as_bytes(), b"\x01\xca"].concat(),
            b"\xf0\x01\x00\x00\x00z\x06",
        ] {
            list.extend_from_slice(element);
        }
        list.push(0xff);
        let expected = [
            "ab",
            "127",
            "255",
            "-1",
            "-4096",
            "-32768",
            "8388607",
            "2147483647",
            "-9223372036854775808",
            &long,
            "z",
        ];
        assert_eq!(texts(listpack(&list)), expected);
        for end in 0..list.len() {
            assert!(listpack(&list[..end]).is_err(), "cut off after {end}");
        }
        list.push(0);
        assert!(listpack(&list).is_err());
    }

    #[test]
    fn numbers_of_an_intset_are_found() {
        let set = b"\x02\0\0\0\x02\0\0\0\xff\xff\x07\0";
        assert_eq!(texts(intset(set)), ["-1", "7"]);
        assert!(intset(&set[..11]).is_err());
        assert!(intset(b"\x03\0\0\0\x00\0\0\0").is_err());
    }

    #[test]
    fn fields_of_a_zipmap_are_found() {
        let map = b"\x02\x03foo\x03\x02bar..\x02hi\xfe\x05\0\0\0\x00world\xff";
        assert_eq!(texts(zipmap(map)), ["foo", "bar", "hi", "world"]);
        for end in 0..map.len() {
            assert!(zipmap(&map[..end]).is_err(), "cut off after {end}");
        }
        assert!(zipmap(b"\x01\x01a\xff").is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            for read in [ziplist, listpack, intset, zipmap] {
                let _ = read(&bytes);
            }
        }
    }
}
