//! Writing an RDB file: into memory, from where the caller takes it as it grows.

use farside_value::ValueError;
use farside_value::format::Tag;

use crate::value::put_value;
use crate::{CRC, VERSION, opcode};

/// The digest of a file, as it grows.
pub(crate) type Digest = crc::Digest<'static, u64, crc::Table<16>>;

/// A file that is being written.
pub struct Writer {
    /// What was not taken yet, of which so many bytes are in the digest.
    out: Vec<u8>,
    digested: usize,
    digest: Digest,
}

impl Default for Writer {
    fn default() -> Self {
        Self::new()
    }
}

impl core::fmt::Debug for Writer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Writer")
            .field("pending", &self.out.len())
            .finish_non_exhaustive()
    }
}

impl Writer {
    /// Begins a file.
    #[must_use]
    pub fn new() -> Self {
        Self {
            out: format!("REDIS{VERSION:04}").into_bytes(),
            digested: 0,
            digest: CRC.digest(),
        }
    }

    /// A field about the file. To be written before the first value.
    pub fn aux(&mut self, name: &str, value: &str) {
        self.out.push(opcode::AUX);
        put_string(&mut self.out, name.as_bytes());
        put_string(&mut self.out, value.as_bytes());
    }

    /// What follows is of this database.
    pub fn database(&mut self, number: u32) {
        self.out.push(opcode::DATABASE);
        put_length(&mut self.out, number.into());
    }

    /// A key and its value: a string, or the packed value of another type. An expiry is in milliseconds since 1970; 0 is never.
    ///
    /// # Errors
    /// If the value is damaged; nothing of it is written.
    pub fn value(&mut self, key: &[u8], (tag, value): (Tag, &[u8]), expiry_ms: u64) -> Result<(), ValueError> {
        let before = self.out.len();
        if expiry_ms > 0 {
            self.out.push(opcode::EXPIRY_MS);
            self.out.extend_from_slice(&expiry_ms.to_le_bytes());
        }
        let put = put_value(&mut self.out, (tag, value), |out| put_string(out, key));
        put.inspect_err(|_| self.out.truncate(before))
    }

    /// How many bytes may be taken.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.out.len()
    }

    /// Takes what was written since the last time.
    pub fn take(&mut self) -> Vec<u8> {
        self.digest.update(&self.out[self.digested..]);
        self.digested = 0;
        core::mem::take(&mut self.out)
    }

    /// The end, and what was not taken before it; also the checksum.
    #[must_use]
    pub fn finish(mut self) -> (Vec<u8>, u64) {
        self.out.push(opcode::END);
        let mut last = self.take();
        let checksum = self.digest.finalize();
        last.extend_from_slice(&checksum.to_le_bytes());
        (last, checksum)
    }
}

pub(crate) fn put_length(out: &mut Vec<u8>, length: u64) {
    match length {
        0..0x40 => out.push(length as u8),
        0x40..0x4000 => out.extend_from_slice(&(0x4000 | length as u16).to_be_bytes()),
        0x4000..=0xffff_ffff => {
            out.push(0x80);
            out.extend_from_slice(&(length as u32).to_be_bytes());
        }
        _ => {
            out.push(0x81);
            out.extend_from_slice(&length.to_be_bytes());
        }
    }
}

/// A string; the decimal digits of a number of up to 4 bytes as that number, as Redis does.
pub(crate) fn put_string(out: &mut Vec<u8>, text: &[u8]) {
    if let Some(number) = small_number(text) {
        if let Ok(number) = i8::try_from(number) {
            out.push(0xc0);
            out.extend_from_slice(&number.to_le_bytes());
        } else if let Ok(number) = i16::try_from(number) {
            out.push(0xc1);
            out.extend_from_slice(&number.to_le_bytes());
        } else {
            out.push(0xc2);
            out.extend_from_slice(&number.to_le_bytes());
        }
        return;
    }
    put_length(out, text.len() as u64);
    out.extend_from_slice(text);
}

/// The number whose decimal digits these are, written like that and not otherwise.
fn small_number(text: &[u8]) -> Option<i32> {
    const DIGITS_MAX: usize = 11;
    if text.len() > DIGITS_MAX || !matches!(text.first(), Some(b'-' | b'0'..=b'9')) {
        return None;
    }
    let number: i32 = core::str::from_utf8(text).ok()?.parse().ok()?;
    let mut buffer = itoa::Buffer::new();
    (buffer.format(number).as_bytes() == text).then_some(number)
}
