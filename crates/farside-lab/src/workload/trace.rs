//! Traces of caches, as Twitter has published its own.
//!
//! On the path: read once, before `bench objects --trace`. A line is a request:
//!
//! ```text
//! timestamp,anonymized key,key size,value size,client id,operation,TTL
//! ```
//!
//! with times in seconds and sizes in bytes. A key may hold commas. The file may be compressed with zstd, in one frame or
//! several, whose checksums are looked at.
//!
//! `get` and `gets` are gets. `set`, `add`, `replace`, `cas`, `append`, `prepend`, `incr` and `decr` are sets: of as many bytes
//! as the line says, whatever was there. A `delete` is a set of no bytes. When and by whom a request came is not used, nor is
//! its TTL: clients take the lines in turn, as fast as they can.
//!
//! Invariant: an object's capacity is the largest value size of its lines.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use xxhash_rust::xxh3::xxh3_128;

use crate::error::BenchError;

/// The largest value of a line, in bytes.
pub const VALUE_BYTES_MAX: u32 = 16 << 20;

/// What a zstd frame begins with.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The same for a frame that is skipped, but for the last four bits of the first byte.
const SKIPPED_MAGIC: [u8; 4] = [0x50, 0x2a, 0x4d, 0x18];
/// The longest line, in bytes: a key has 250 at most.
const LINE_BYTES_MAX: u64 = 4096;
const COLUMNS: &str = "timestamp,key,key size,value size,client,operation,TTL";

/// A request for an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Which object, from 0.
    pub object: u32,
    /// Bytes of its value.
    pub bytes: u32,
    /// Whether it is set, rather than got.
    pub is_set: bool,
}

/// All requests of a file.
#[derive(Clone, Debug)]
pub struct Trace {
    /// What it is called: the file.
    pub name: String,
    /// In the order of the file; not empty.
    pub requests: Vec<Request>,
    /// By object: bytes of its largest value.
    pub capacities: Vec<u32>,
    /// The object with the most requests.
    pub hottest: u32,
}

impl Trace {
    /// Reads up to `lines` lines of a file.
    ///
    /// # Errors
    /// [`BenchError::Argument`], which names the file, the line and what is wrong with it.
    pub fn read(path: &Path, lines: u64) -> Result<Self, BenchError> {
        let name = path.display().to_string();
        let refuse = |reason: String| BenchError::Argument(format!("{name}: {reason}"));
        let file = File::open(path).map_err(|error| refuse(error.to_string()))?;
        let mut source = BufReader::with_capacity(1 << 20, file);
        let start = source.fill_buf().map_err(|error| refuse(error.to_string()))?;
        if start.starts_with(&ZSTD_MAGIC) || is_skipped(start) {
            Self::of(&name, BufReader::with_capacity(1 << 20, Frames::new(source)), lines)
        } else {
            Self::of(&name, source, lines)
        }
    }

    /// The same of a text.
    fn of(name: &str, mut text: impl BufRead, lines: u64) -> Result<Self, BenchError> {
        let (mut numbers, mut counts) = (HashMap::new(), Vec::new());
        let mut trace = Self {
            name: name.to_owned(),
            requests: Vec::new(),
            capacities: Vec::new(),
            hottest: 0,
        };
        let mut line = Vec::new();
        for number in 1..=lines {
            let refuse = |reason: String| BenchError::Argument(format!("{name}, line {number}: {reason}"));
            line.clear();
            let mut limited = (&mut text).take(LINE_BYTES_MAX);
            let read = limited.read_until(b'\n', &mut line);
            if read.map_err(|error| refuse(error.to_string()))? == 0 {
                break;
            }
            if line.len() as u64 == LINE_BYTES_MAX && line.last() != Some(&b'\n') {
                return Err(refuse(format!("it is longer than {LINE_BYTES_MAX} bytes")));
            }
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end_matches(['\r', '\n']);
            if text.is_empty() {
                continue;
            }
            let (key, bytes, is_set) = parse(text).map_err(refuse)?;
            let next = numbers.len() as u32;
            let object = *numbers.entry(xxh3_128(key.as_bytes())).or_insert(next);
            if object == next {
                trace.capacities.push(0);
                counts.push(0_u64);
            }
            let capacity = &mut trace.capacities[object as usize];
            *capacity = bytes.max(*capacity);
            counts[object as usize] += 1;
            trace.requests.push(Request { object, bytes, is_set });
        }
        if trace.requests.is_empty() {
            return Err(BenchError::Argument(format!(
                "{name}: it has no line; a line is {COLUMNS}"
            )));
        }
        let hottest = (0..)
            .zip(&counts)
            .max_by_key(|&(object, count)| (*count, u32::MAX - object));
        trace.hottest = hottest.map_or(0, |(object, _)| object);
        Ok(trace)
    }
}

/// Key, bytes, and whether it is a set.
fn parse(line: &str) -> Result<(&str, u32, bool), String> {
    // From behind, since a key may hold commas.
    let mut columns = line.rsplitn(6, ',');
    let mut next = || columns.next().ok_or_else(|| format!("a line is {COLUMNS}"));
    let [ttl, operation, _client, value_size, key_size, start] = [next()?, next()?, next()?, next()?, next()?, next()?];
    let (timestamp, key) = start.split_once(',').ok_or_else(|| format!("a line is {COLUMNS}"))?;
    let number = |what: &str, text: &str| {
        let number = text.trim().parse::<u64>();
        number.map_err(|_| format!("its {what}, `{text}`, is not a number"))
    };
    number("timestamp", timestamp)?;
    number("key size", key_size)?;
    number("TTL", ttl)?;
    let bytes = number("value size", value_size)?;
    let bytes = u32::try_from(bytes).ok().filter(|&bytes| bytes <= VALUE_BYTES_MAX);
    let bytes = bytes.ok_or_else(|| format!("its value size, {value_size}, is over {VALUE_BYTES_MAX}"))?;
    match operation.trim() {
        "get" | "gets" => Ok((key, bytes, false)),
        "set" | "add" | "replace" | "cas" | "append" | "prepend" | "incr" | "decr" => Ok((key, bytes, true)),
        "delete" => Ok((key, 0, true)),
        other => Err(format!(
            "`{other}` is not an operation: get, gets, set, add, replace, cas, append, prepend, delete, incr or decr"
        )),
    }
}

/// Whether a frame begins with these bytes that has nothing to read.
fn is_skipped(start: &[u8]) -> bool {
    start.len() >= 4 && start[0] & 0xf0 == SKIPPED_MAGIC[0] && start[1..4] == SKIPPED_MAGIC[1..]
}

/// What zstd frames hold, one behind the other.
struct Frames<R> {
    source: R,
    decoder: FrameDecoder,
    is_inside: bool,
}

impl<R: BufRead> Frames<R> {
    fn new(source: R) -> Self {
        Self {
            source,
            decoder: FrameDecoder::new(),
            is_inside: false,
        }
    }

    /// Enters the next frame that holds something; `false` at the end.
    fn enter(&mut self) -> std::io::Result<bool> {
        // Ends: each turn reads a frame.
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.init(&mut self.source) {
                Ok(()) => {
                    self.is_inside = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let mut skipped = (&mut self.source).take(u64::from(length));
                    std::io::copy(&mut skipped, &mut std::io::sink())?;
                }
                Err(error) => return Err(std::io::Error::other(error)),
            }
        }
        Ok(false)
    }

    /// Leaves a frame at its end.
    fn leave(&mut self) -> std::io::Result<()> {
        self.is_inside = false;
        match self.decoder.get_checksum_from_data() {
            Some(written) if Some(written) != self.decoder.get_calculated_checksum() => {
                Err(std::io::Error::other("its zstd checksum is another one"))
            }
            _ => Ok(()),
        }
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, target: &mut [u8]) -> std::io::Result<usize> {
        // Ends: each turn reads a block or a frame.
        while self.is_inside || self.enter()? {
            if self.decoder.can_collect() > 0 {
                return self.decoder.read(target);
            }
            if self.decoder.is_finished() {
                self.leave()?;
            } else {
                let decoded = self
                    .decoder
                    .decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1));
                decoded.map_err(std::io::Error::other)?;
            }
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;
    use crate::workload::OBJECT_WORKLOADS;

    const TEXT: &str = "0,user:a,6,100,7,get,0\n1,user:b,6,300,7,set,3600\r\n\n1,user:a,6,140,8,cas,60\n\
                        2,user:b,6,300,7,delete,0\n2,a,b,3,0,1,gets,0\n";

    fn read(text: impl AsRef<[u8]>) -> Result<Trace, String> {
        read_some(text, u64::MAX)
    }

    fn read_some(text: impl AsRef<[u8]>, lines: u64) -> Result<Trace, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("requests");
        std::fs::write(&path, text).expect("writable");
        let trace = Trace::read(&path, lines).map_err(|error| error.to_string())?;
        assert_eq!(trace.name, path.display().to_string());
        Ok(trace)
    }

    fn request(object: u32, bytes: u32, is_set: bool) -> Request {
        Request { object, bytes, is_set }
    }

    #[test]
    fn lines_become_requests() {
        let trace = read(TEXT).expect("a trace");
        let wanted = [
            request(0, 100, false),
            request(1, 300, true),
            request(0, 140, true),
            request(1, 0, true),
            request(2, 0, false),
        ];
        assert_eq!(trace.requests, wanted);
        assert_eq!((&trace.capacities[..], trace.hottest), (&[140, 300, 0][..], 0));
        let start = read_some(TEXT, 2).expect("a trace");
        assert_eq!((start.requests.len(), start.capacities.len()), (2, 2));
    }

    #[test]
    fn every_operation_is_a_get_or_a_set() {
        let sets = [
            "set", "add", "replace", "cas", "append", "prepend", "incr", "decr", "delete",
        ];
        for operation in ["get", "gets"].into_iter().chain(sets) {
            let trace = read(format!("0,k,1,8,1,{operation},0")).expect("a trace");
            let bytes = if operation == "delete" { 0 } else { 8 };
            assert_eq!(trace.requests, [request(0, bytes, sets.contains(&operation))]);
        }
    }

    #[test]
    fn a_bad_line_is_named() {
        for (line, reason) in [
            (
                "1,key,3,10,1,get",
                "a line is timestamp,key,key size,value size,client,operation,TTL",
            ),
            ("", "it has no line"),
            ("1,key,3,ten,1,get,0", "its value size, `ten`, is not a number"),
            ("soon,key,3,10,1,get,0", "its timestamp, `soon`, is not a number"),
            ("1,key,3,10,1,get,never", "its TTL, `never`, is not a number"),
            ("1,key,-3,10,1,get,0", "its key size, `-3`, is not a number"),
            ("1,key,3,99999999,1,get,0", "its value size, 99999999, is over 16777216"),
            ("1,key,3,10,1,touch,0", "`touch` is not an operation: get, gets, set,"),
        ] {
            let error = read(line).expect_err(line);
            assert!(error.contains(reason) && error.contains("requests"), "{error}");
        }
        let error = read(format!("{TEXT}3,key,3,10,1,touch,0\n")).expect_err("the last line is bad");
        assert!(error.contains("requests, line 7: `touch`"), "{error}");
        let error = read("k".repeat(5000)).expect_err("a long line");
        assert!(error.contains("line 1: it is longer than 4096 bytes"), "{error}");
        let error = Trace::read(Path::new("/nowhere/at/all"), 1).expect_err("no file");
        assert!(error.to_string().starts_with("/nowhere/at/all: "), "{error}");
    }

    #[test]
    fn frames_of_zstd_are_read_one_behind_the_other() {
        let whole = read(TEXT).expect("a trace").requests;
        // The first one ends in the middle of a line; the second is skipped.
        let (first, second) = TEXT.as_bytes().split_at(40);
        let pack = |part: &[u8]| compress_to_vec(part, CompressionLevel::Fastest);
        let skipped = [&[0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
        let packed = [pack(first), skipped.clone(), pack(second)].concat();
        assert_eq!(read(&packed).expect("a trace").requests, whole);
        let packed = [skipped, pack(TEXT.as_bytes())].concat();
        assert_eq!(read(&packed).expect("a trace").requests, whole);

        let error = read(&packed[..packed.len() - 9]).expect_err("its end is missing");
        assert!(error.contains("requests, line"), "{error}");
        let mut damaged = packed;
        *damaged.last_mut().expect("it has a checksum") ^= 1;
        let error = read(&damaged).expect_err("the checksum is another one");
        assert!(error.contains("checksum"), "{error}");
    }

    #[test]
    fn what_is_generated_can_be_read() {
        for workload in OBJECT_WORKLOADS {
            let text: Vec<String> = workload.trace(500, 2000, 1).collect();
            let trace = read(text.join("\n")).expect("a trace");
            assert_eq!(trace.requests.len(), 2000);
            assert!(trace.capacities.len() <= 500);
            let hottest = trace.capacities[trace.hottest as usize];
            assert_eq!(u64::from(hottest), workload.object_bytes, "it is as large as the mean");
            let gets = trace.requests.iter().filter(|request| !request.is_set).count();
            assert!((gets as f64 / 20.0 - workload.get_percent as f64).abs() < 5.0, "{gets}");
        }
    }
}
