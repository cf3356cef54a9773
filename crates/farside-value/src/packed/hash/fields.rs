//! The form of a packed hash: fields that share bytes, and their values.
//!
//! ```text
//! field     0..=14 | 0..=14 << 4   so many bytes follow, after so many of the field before
//!           0xff                   a string
//! element   field, value [, expiry in milliseconds since 1970: 8 bytes, 0 never]
//! ```
//!
//! A field shares as many bytes with the one before it as it can, up to 14. It is stored as a string if more than 14 remain,
//! or if it is an integer that is shorter so. Thus a hash has one form for each order of its fields.

use crate::format::{self, EXPIRES, Packed, Writer};
use crate::string::{self, Digits, Text};
use crate::{Edit, ValueError};

/// The most bytes that a field shares with the one before, and the most that follow them.
const PART_MAX: usize = 14;
const STRING: u8 = 0xff;

/// A field that is being read, and thereby what the next one may share.
pub(super) struct Name<'a> {
    /// All of a field that is not `long`, else its beginning.
    short: [u8; 2 * PART_MAX],
    short_bytes: usize,
    long: Option<&'a [u8]>,
}

/// What the next field may share of one: its first bytes, and how many there are.
pub(super) type Head = ([u8; PART_MAX], usize);

impl<'a> Name<'a> {
    pub(super) fn head(&self) -> Head {
        let mut head = [0; PART_MAX];
        head.copy_from_slice(&self.short[..PART_MAX]);
        (head, self.short_bytes.min(PART_MAX))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.long.unwrap_or(&self.short[..self.short_bytes])
    }

    fn read(&mut self, body: &'a [u8], at: &mut usize) -> Result<(), ValueError> {
        let first = string::take(body, at, 1)?[0];
        self.long = None;
        if first == STRING {
            let mut digits = Digits::new();
            let text = string::read(body, at)?;
            let mut name = text.bytes(&mut digits);
            if let Text::Bytes(bytes) = text {
                self.long = Some(bytes);
                name = &bytes[..bytes.len().min(PART_MAX)];
            }
            self.short_bytes = name.len();
            self.short[..name.len()].copy_from_slice(name);
            return Ok(());
        }
        let (shared, following) = parts(first, self.short_bytes)?;
        self.short_bytes = shared + following;
        self.short[shared..self.short_bytes].copy_from_slice(string::take(body, at, following)?);
        Ok(())
    }
}

/// Fields and their values, from the first on.
pub(super) struct Fields<'a> {
    body: &'a [u8],
    /// Where the next one begins.
    pub(super) at: usize,
    left: u32,
    expire: bool,
    /// The field of the value that was returned last.
    pub(super) name: Name<'a>,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) struct Value<'a> {
    pub(super) text: Text<'a>,
    /// 0: never.
    pub(super) expiry_ms: u64,
}

impl Value<'_> {
    pub(super) fn is_past(&self, now_ms: u64) -> bool {
        self.expiry_ms != 0 && self.expiry_ms <= now_ms
    }
}

impl<'a> Fields<'a> {
    pub(super) fn new(packed: &Packed<'a>) -> Self {
        Self {
            body: packed.body,
            at: 0,
            left: packed.count,
            expire: packed.flags & EXPIRES != 0,
            name: Name {
                short: [0; 2 * PART_MAX],
                short_bytes: 0,
                long: None,
            },
        }
    }

    pub(super) fn of(value: Option<&'a [u8]>) -> Result<Self, ValueError> {
        Ok(Self::new(&Packed::of(value)?))
    }

    /// The value of the next field; `None` behind the last.
    pub(super) fn next(&mut self) -> Result<Option<Value<'a>>, ValueError> {
        if self.left == 0 {
            format::check_end(self.body, self.at)?;
            return Ok(None);
        }
        self.left -= 1;
        self.name.read(self.body, &mut self.at)?;
        read_value(self.body, &mut self.at, self.expire).map(Some)
    }

    /// The next one that is not past its time.
    pub(super) fn next_live(&mut self, now_ms: u64) -> Result<Option<Value<'a>>, ValueError> {
        while let Some(value) = self.next()? {
            if !value.is_past(now_ms) {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }
}

/// The value of a field. Names are not put together for that: it is enough to know how many bytes of the one before are those
/// of the wanted one.
pub(super) fn find<'a>(packed: &Packed<'a>, wanted: &[u8]) -> Result<Option<Value<'a>>, ValueError> {
    let body = packed.body;
    let mut at = 0;
    // Of the field before: its bytes, as far as they can be shared, and how many of them are those of the wanted one.
    let mut bytes = 0;
    let mut equal = 0;
    for _ in 0..packed.count {
        let first = string::take(body, &mut at, 1)?[0];
        let is_found = if first == STRING {
            let mut digits = Digits::new();
            let text = string::read(body, &mut at)?;
            let name = text.bytes(&mut digits);
            bytes = name.len();
            equal = common(name, wanted);
            name == wanted
        } else {
            let (shared, following) = parts(first, bytes)?;
            let name = string::take(body, &mut at, following)?;
            bytes = shared + following;
            // Sharing more than that, it differs where the one before does.
            if shared <= equal {
                equal = shared + common(name, &wanted[shared..]);
            }
            equal == bytes && bytes == wanted.len()
        };
        let value = read_value(body, &mut at, packed.flags & EXPIRES != 0)?;
        if is_found {
            return Ok(Some(value));
        }
    }
    format::check_end(body, at)?;
    Ok(None)
}

/// With how many bytes both begin.
fn common(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

/// How many bytes a field shares with the one before, which has so many, and how many follow.
#[inline]
fn parts(first: u8, bytes_before: usize) -> Result<(usize, usize), ValueError> {
    let (shared, following) = (usize::from(first >> 4), usize::from(first & 15));
    if following > PART_MAX || shared > bytes_before.min(PART_MAX) {
        return Err(ValueError::Damaged("a field shares more than there is"));
    }
    Ok((shared, following))
}

#[inline]
fn read_value<'a>(body: &'a [u8], at: &mut usize, expires: bool) -> Result<Value<'a>, ValueError> {
    let text = string::read(body, at)?;
    let expiry_ms = if expires { format::read_word(body, at)? } else { 0 };
    Ok(Value { text, expiry_ms })
}

/// A hash that is being written.
pub(super) struct FieldWriter {
    writer: Writer,
    expire: bool,
    earliest: u64,
    /// Of the field that was written last.
    last: Head,
}

impl FieldWriter {
    pub(super) fn new(packed: &Packed<'_>, expire: bool, more_bytes: usize) -> Self {
        Self {
            writer: packed.writer(if expire { EXPIRES } else { 0 }, more_bytes),
            expire,
            earliest: 0,
            last: ([0; PART_MAX], 0),
        }
    }

    pub(super) fn put(&mut self, name: &[u8], value: Value<'_>) {
        let out = self.writer.elements(1);
        let last = &self.last.0[..self.last.1];
        let shared = common(last, name);
        let following = name.len() - shared;
        let is_string = match Text::new(name) {
            _ if following > PART_MAX => true,
            Text::Integer(number) => 2 + string::integer_width(number) < 1 + following,
            Text::Bytes(_) => false,
        };
        if is_string {
            out.push(STRING);
            string::put(Text::new(name), out);
        } else {
            out.push((shared << 4 | following) as u8);
            out.extend_from_slice(&name[shared..]);
        }
        self.last.1 = name.len().min(PART_MAX);
        self.last.0[..self.last.1].copy_from_slice(&name[..self.last.1]);
        string::put(value.text, out);
        if self.expire {
            out.extend_from_slice(&value.expiry_ms.to_le_bytes());
            self.note_expiry(value.expiry_ms);
        }
    }

    /// Appends fields as they stand in another value, in which the last one that was written stands before them. Their expiries
    /// have been noted. `head` is that of the last of them.
    pub(super) fn copy(&mut self, fields: &[u8], count: usize, head: Head) {
        self.writer.copy(fields, count);
        self.last = head;
    }

    pub(super) fn note_expiry(&mut self, expiry_ms: u64) {
        // 0 is never, and must not be the earliest: one less, it is the latest.
        let earlier = self.earliest.wrapping_sub(1).min(expiry_ms.wrapping_sub(1));
        self.earliest = earlier.wrapping_add(1);
    }

    pub(super) fn finish(self) -> Result<Edit, ValueError> {
        let (expire, earliest) = (self.expire, self.earliest);
        if !expire || earliest != 0 {
            return Ok(self.writer.finish(earliest));
        }
        // No field expires any more: again, without expiries. (The head must not say 0 even for a moment.)
        let Edit::Put(value) = self.writer.finish(1) else {
            return Ok(Edit::Delete);
        };
        let packed = Packed::of(Some(&value))?;
        let mut again = Self::new(&packed, false, 0);
        let mut fields = Fields::new(&packed);
        while let Some(value) = fields.next()? {
            again.put(fields.name.bytes(), value);
        }
        again.finish()
    }
}

#[cfg(test)]
mod tests {
    use crate::packed::hash::tests::hash;
    use crate::packed::hash::{check, get};
    use crate::string::Text;

    #[test]
    fn fields_share_what_they_have_in_common() {
        let value = hash(&[("field0", "a"), ("field1", "7"), ("fie", ""), ("other", "x")]);
        let expected = [
            &[0, 4][..],
            b"\x06field0\x01a",
            b"\x511\xc0\x07",
            b"\x30\x00",
            b"\x05other\x01x",
        ]
        .concat();
        assert_eq!(value, expected);
        assert_eq!(check(&value), Ok(()));
    }

    #[test]
    fn ten_fields_take_what_the_design_says() {
        let names: Vec<_> = (0..10).map(|index| format!("field{index}")).collect();
        let pairs: Vec<_> = names.iter().map(|name| (name.as_str(), "abcdefghij")).collect();
        assert_eq!(hash(&pairs).len(), 137);
    }

    #[test]
    fn long_fields_and_numbers_are_strings() {
        let value = hash(&[
            ("a field of 20 bytes.", "1"),
            ("a field of 20 bytes!", "2"),
            ("a field of 20 bytes and a few more", "3"),
            ("1234567890", "4"),
            ("1234567891", "5"),
        ]);
        let expected = [
            &[0, 5, 0xff][..],
            b"\x14a field of 20 bytes.\xc0\x01",
            b"\xe6bytes!\xc0\x02",
            b"\xff\x22a field of 20 bytes and a few more\xc0\x03",
            &[0xff, 0xc3],
            &1_234_567_890_i32.to_le_bytes(),
            b"\xc0\x04",
            b"\x911\xc0\x05",
        ]
        .concat();
        assert_eq!(value, expected);
        assert_eq!(check(&value), Ok(()));
        assert_eq!(get(Some(&value), b"1234567891", 0), Ok(Some(Text::Integer(5))));
        assert_eq!(
            get(Some(&value), b"a field of 20 bytes!", 0),
            Ok(Some(Text::Integer(2)))
        );
    }
}
