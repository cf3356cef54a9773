//! Reading an RDB file: record by record, and no more of it in memory than one value.

use std::io::{ErrorKind, Read};

use farside_value::format::Tag;

use crate::writer::Digest;
use crate::{CRC, RdbError, STRING_BYTES_MAX, VERSION_MAX, opcode};

/// How much is read together.
const BUFFER_BYTES: usize = 256 << 10;
/// The first version that ends with a checksum.
const VERSION_CHECKSUM: u16 = 5;

/// What a file has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// A key with a value.
    Value {
        /// Its database.
        database: u64,
        /// The key.
        key: Vec<u8>,
        /// What the value is.
        tag: Tag,
        /// The string, or the packed value of another type.
        value: Vec<u8>,
        /// In milliseconds since 1970; 0 is never.
        expiry_ms: u64,
    },
    /// A key with a stream or a value of a module, which was passed over.
    Other {
        /// Its database.
        database: u64,
        /// The key.
        key: Vec<u8>,
        /// What it is, with its article: "a stream".
        kind: &'static str,
    },
}

/// A file that is being read.
pub struct Reader<'r> {
    source: Box<dyn Read + 'r>,
    buffer: Vec<u8>,
    /// The part of the buffer that is to come.
    from: usize,
    until: usize,
    /// How many bytes were used before it.
    before: u64,
    /// Of what was used before `digested` in the buffer.
    digest: Digest,
    digested: usize,
    database: u64,
    version: u16,
    aux: Vec<(Vec<u8>, Vec<u8>)>,
    checksum: Option<u64>,
}

impl core::fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Reader")
            .field("at", &self.position())
            .finish_non_exhaustive()
    }
}

impl<'r> Reader<'r> {
    /// Begins to read; looks at the first bytes.
    ///
    /// # Errors
    /// [`RdbError::Foreign`], [`RdbError::Version`]; what the source reports.
    pub fn new(source: impl Read + 'r) -> Result<Self, RdbError> {
        Self::of(Box::new(source))
    }

    fn of(source: Box<dyn Read + 'r>) -> Result<Self, RdbError> {
        let mut reader = Self {
            source,
            buffer: vec![0; BUFFER_BYTES],
            from: 0,
            until: 0,
            before: 0,
            digest: CRC.digest(),
            digested: 0,
            database: 0,
            version: 0,
            aux: Vec::new(),
            checksum: None,
        };
        let head: [u8; 9] = match reader.array() {
            Err(RdbError::CutOff { .. }) => return Err(RdbError::Foreign),
            head => head?,
        };
        let digits = head
            .strip_prefix(b"REDIS")
            .filter(|digits| digits.iter().all(u8::is_ascii_digit));
        let digits = digits.ok_or(RdbError::Foreign)?;
        reader.version = digits
            .iter()
            .fold(0, |version, digit| version * 10 + u16::from(digit - b'0'));
        if !(1..=VERSION_MAX).contains(&reader.version) {
            return Err(RdbError::Version {
                version: reader.version,
            });
        }
        Ok(reader)
    }

    /// How many bytes of the file were used.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.before + self.from as u64
    }

    /// The version that the file says it has.
    #[must_use]
    pub fn version(&self) -> u16 {
        self.version
    }

    /// The fields about the file that were read so far.
    #[must_use]
    pub fn aux(&self) -> &[(Vec<u8>, Vec<u8>)] {
        &self.aux
    }

    /// The checksum of the file, once its end was read; `None` if it has none.
    #[must_use]
    pub fn checksum(&self) -> Option<u64> {
        self.checksum
    }

    /// The next record; `None` at the end, when the checksum was found to be right.
    ///
    /// # Errors
    /// See [`RdbError`]. Then nothing more can be read.
    pub fn next_record(&mut self) -> Result<Option<Record>, RdbError> {
        let mut expiry_ms = 0;
        loop {
            match self.byte()? {
                opcode::EXPIRY_MS => expiry_ms = u64::from_le_bytes(self.array()?),
                opcode::EXPIRY => expiry_ms = u64::from(u32::from_le_bytes(self.array()?)) * 1000,
                opcode::IDLE => drop(self.length()?),
                opcode::FREQUENCY => drop(self.byte()?),
                opcode::AUX => {
                    let field = (self.string()?, self.string()?);
                    self.aux.push(field);
                }
                opcode::DATABASE => self.database = self.length()?,
                opcode::SIZES => {
                    self.length()?;
                    self.length()?;
                }
                opcode::SLOT => {
                    for _ in 0..3 {
                        self.length()?;
                    }
                }
                opcode::FUNCTION => self.pass_string()?,
                opcode::MODULE => {
                    self.length()?;
                    self.pass_module()?;
                }
                opcode::END => {
                    self.end()?;
                    return Ok(None);
                }
                opcode::FUNCTION_EARLY => return Err(self.damaged("functions of a server before its release")),
                kind => {
                    let (database, key) = (self.database, self.string()?);
                    return Ok(Some(match self.value(kind)? {
                        Some((tag, value)) => Record::Value {
                            database,
                            key,
                            tag,
                            value,
                            expiry_ms,
                        },
                        None => Record::Other {
                            database,
                            key,
                            kind: self.pass_value(kind)?,
                        },
                    }));
                }
            }
        }
    }

    fn end(&mut self) -> Result<(), RdbError> {
        if self.version < VERSION_CHECKSUM {
            return Ok(());
        }
        self.digest_used();
        let computed = self.digest.clone().finalize();
        let found = u64::from_le_bytes(self.array()?);
        // A server that computes none writes 0.
        if found != 0 && found != computed {
            return Err(RdbError::Checksum { found, computed });
        }
        self.checksum = (found != 0).then_some(found);
        Ok(())
    }

    pub(crate) fn damaged(&self, what: &'static str) -> RdbError {
        RdbError::Damaged {
            at: self.position(),
            what,
        }
    }

    fn digest_used(&mut self) {
        self.digest.update(&self.buffer[self.digested..self.from]);
        self.digested = self.from;
    }

    /// Reads more when everything was used.
    fn fill(&mut self) -> Result<(), RdbError> {
        self.digest_used();
        self.before += self.from as u64;
        (self.from, self.until, self.digested) = (0, 0, 0);
        while self.until == 0 {
            match self.source.read(&mut self.buffer) {
                Ok(0) => return Err(RdbError::CutOff { bytes: self.before }),
                Ok(read) => self.until = read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    pub(crate) fn byte(&mut self) -> Result<u8, RdbError> {
        if self.from == self.until {
            self.fill()?;
        }
        let byte = self.buffer[self.from];
        self.from += 1;
        Ok(byte)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], RdbError> {
        let mut bytes = [0; N];
        for byte in &mut bytes {
            *byte = self.byte()?;
        }
        Ok(bytes)
    }

    /// Calls `take` with the next so many bytes, part by part.
    fn parts(&mut self, mut bytes: u64, take: &mut dyn FnMut(&[u8])) -> Result<(), RdbError> {
        while bytes > 0 {
            if self.from == self.until {
                self.fill()?;
            }
            let here = ((self.until - self.from) as u64).min(bytes) as usize;
            take(&self.buffer[self.from..self.from + here]);
            self.from += here;
            bytes -= here as u64;
        }
        Ok(())
    }

    pub(crate) fn pass(&mut self, bytes: u64) -> Result<(), RdbError> {
        self.parts(bytes, &mut |_| ())
    }

    /// A length, or how else a string is encoded.
    fn length_or_encoding(&mut self) -> Result<Result<u64, u8>, RdbError> {
        let first = self.byte()?;
        Ok(match first >> 6 {
            0 => Ok(u64::from(first & 0x3f)),
            1 => Ok(u64::from(first & 0x3f) << 8 | u64::from(self.byte()?)),
            2 if first == 0x80 => Ok(u32::from_be_bytes(self.array()?).into()),
            2 if first == 0x81 => Ok(u64::from_be_bytes(self.array()?)),
            3 => Err(first & 0x3f),
            _ => return Err(self.damaged("no length begins like this")),
        })
    }

    pub(crate) fn length(&mut self) -> Result<u64, RdbError> {
        match self.length_or_encoding()? {
            Ok(length) => Ok(length),
            Err(_) => Err(self.damaged("a string stands where a length should")),
        }
    }

    pub(crate) fn string(&mut self) -> Result<Vec<u8>, RdbError> {
        let length = self.length_or_encoding()?;
        let text = |number: i32| itoa::Buffer::new().format(number).as_bytes().to_vec();
        match length {
            Ok(length) => self.bytes(length),
            Err(0) => Ok(text(i8::from_le_bytes(self.array()?).into())),
            Err(1) => Ok(text(i16::from_le_bytes(self.array()?).into())),
            Err(2) => Ok(text(i32::from_le_bytes(self.array()?))),
            Err(3) => {
                let (compressed, whole) = (self.length()?, self.length()?);
                let compressed = self.bytes(compressed)?;
                self.check_length(whole)?;
                let plain = lzf::decompress(&compressed, whole as usize).ok();
                plain
                    .filter(|plain| plain.len() as u64 == whole)
                    .ok_or_else(|| self.damaged("a compressed string does not have its length"))
            }
            Err(_) => Err(self.damaged("no string is encoded like this")),
        }
    }

    fn check_length(&self, length: u64) -> Result<(), RdbError> {
        match length {
            0..=STRING_BYTES_MAX => Ok(()),
            _ => Err(self.damaged("a string is longer than Redis allows")),
        }
    }

    pub(crate) fn bytes(&mut self, length: u64) -> Result<Vec<u8>, RdbError> {
        self.check_length(length)?;
        // A damaged length must not take memory that the file does not fill.
        let mut bytes = Vec::with_capacity(length.min(BUFFER_BYTES as u64) as usize);
        self.parts(length, &mut |part| bytes.extend_from_slice(part))?;
        Ok(bytes)
    }

    pub(crate) fn pass_string(&mut self) -> Result<(), RdbError> {
        match self.length_or_encoding()? {
            Ok(length) => self.pass(length),
            Err(encoding @ 0..=2) => self.pass(1 << encoding),
            Err(3) => {
                let compressed = self.length()?;
                self.length()?;
                self.pass(compressed)
            }
            Err(_) => Err(self.damaged("no string is encoded like this")),
        }
    }
}
