//! What goes back to a client: frames of RESP2 or RESP3, one after the other in one buffer.
//!
//! On the path: command functions append to it; the connection writes it out once per burst. Frames are made in place: a head
//! of a kind and a number, so that what follows can be appended as it comes. (A codec wants values collected first, and counts
//! the digits of a length with logarithms: a quarter of a GET.) That they are what a codec reads is a test.

use farside_value::write_score;

use crate::large;

/// Which version of the protocol a client speaks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Protocol {
    /// What every client understands.
    #[default]
    Resp2,
    /// Asked for with HELLO 3.
    Resp3,
}

/// Replies that have not been written out.
#[derive(Default, Debug)]
pub(crate) struct Reply {
    bytes: Vec<u8>,
    /// How many of them have been.
    start: usize,
    protocol: Protocol,
    /// How many bytes have been written out since the connection began.
    written: u64,
}

/// What a short reply takes.
const SHORT_BYTES: usize = 16;

impl Reply {
    /// A place of its own for some replies of the same protocol.
    pub(crate) fn for_several(like: &Self, count: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(count * SHORT_BYTES),
            start: 0,
            protocol: like.protocol,
            written: 0,
        }
    }

    pub(crate) fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    pub(crate) fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Bytes that wait to be written.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the next reply will start, counted from the beginning of the connection.
    #[inline]
    pub(crate) fn mark(&self) -> u64 {
        self.written + self.len() as u64
    }

    /// Takes back what was appended since `mark`; returns whether none of it has been written out.
    pub(crate) fn take_back(&mut self, mark: u64) -> bool {
        let is_unwritten = mark >= self.written;
        self.bytes
            .truncate(self.start + mark.saturating_sub(self.written) as usize);
        is_unwritten
    }

    /// What waits to be written.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Notes that so many bytes have been written.
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        self.written += bytes as u64;
        if self.is_empty() {
            self.start = 0;
            large::clear(&mut self.bytes);
        }
    }

    /// Appends encoded frames.
    pub(crate) fn append(&mut self, frames: &[u8]) {
        self.bytes.extend_from_slice(frames);
    }

    /// `+text`.
    pub(crate) fn simple(&mut self, text: &str) {
        self.line(b'+', text);
    }

    fn line(&mut self, kind: u8, text: &str) {
        self.bytes.reserve(text.len() + 3);
        self.append(&[kind]);
        self.append(text.as_bytes());
        self.append(b"\r\n");
    }

    /// `+OK`.
    #[inline]
    pub(crate) fn ok(&mut self) {
        self.append(b"+OK\r\n");
    }

    /// An error line. Line ends within it become spaces, as they would end it.
    pub(crate) fn error(&mut self, text: &str) {
        if text.contains(['\r', '\n']) {
            self.line(b'-', &text.replace(['\r', '\n'], " "));
        } else {
            self.line(b'-', text);
        }
    }

    /// A number.
    #[inline]
    pub(crate) fn integer(&mut self, number: i64) {
        self.head(b':', number);
    }

    /// A line of a kind and a number: every command has one, so it is made in place.
    #[inline]
    fn head(&mut self, kind: u8, number: i64) {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(number).as_bytes();
        let mut line = [0; 24];
        line[0] = kind;
        line[1..=digits.len()].copy_from_slice(digits);
        let end = 1 + digits.len();
        line[end..end + 2].copy_from_slice(b"\r\n");
        self.bytes.extend_from_slice(&line[..end + 2]);
    }

    /// A number that need not be whole.
    pub(crate) fn double(&mut self, number: f64) {
        if self.protocol == Protocol::Resp2 {
            return self.double_bulk(number);
        }
        self.append(b",");
        write_score(number, &mut self.bytes);
        self.append(b"\r\n");
    }

    /// The digits of such a number, as a string.
    pub(crate) fn double_bulk(&mut self, number: f64) {
        let start = self.bytes.len();
        write_score(number, &mut self.bytes);
        let length = self.bytes.len() - start;
        self.append(b"\r\n");
        let mut digits = itoa::Buffer::new();
        let head = b"$".iter().chain(digits.format(length).as_bytes()).chain(b"\r\n");
        self.bytes.splice(start..start, head.copied());
    }

    /// How many there are of something.
    pub(crate) fn count(&mut self, count: u64) {
        self.integer(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// A string of bytes.
    #[inline]
    pub(crate) fn bulk(&mut self, bytes: &[u8]) {
        large::reserve(&mut self.bytes, 24 + bytes.len(), 0);
        self.head(b'$', bytes.len() as i64);
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// The head of a string of so many bytes; they and [`Self::bulk_end`] must follow.
    pub(crate) fn bulk_head(&mut self, bytes: usize) {
        self.head(b'$', bytes as i64);
    }

    /// What stands behind the bytes of a string.
    pub(crate) fn bulk_end(&mut self) {
        self.append(b"\r\n");
    }

    /// A string of bytes, or nothing.
    #[inline]
    pub(crate) fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// Nothing.
    #[inline]
    pub(crate) fn null(&mut self) {
        match self.protocol {
            Protocol::Resp2 => self.append(b"$-1\r\n"),
            Protocol::Resp3 => self.append(b"_\r\n"),
        }
    }

    /// Nothing, where otherwise an array would be.
    pub(crate) fn null_array(&mut self) {
        match self.protocol {
            Protocol::Resp2 => self.append(b"*-1\r\n"),
            Protocol::Resp3 => self.null(),
        }
    }

    /// Text for people.
    pub(crate) fn text(&mut self, text: &str) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => {
                self.append(format!("={}\r\ntxt:{text}\r\n", text.len() + 4).as_bytes());
            }
        }
    }

    /// The head of an array; `count` elements must follow.
    pub(crate) fn array(&mut self, count: usize) {
        self.head(b'*', count as i64);
    }

    /// The head of a set; `count` elements must follow.
    pub(crate) fn set(&mut self, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.array(count),
            Protocol::Resp3 => self.head(b'~', count as i64),
        }
    }

    /// The head of a map; `count` keys with their values must follow.
    pub(crate) fn map(&mut self, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.array(2 * count),
            Protocol::Resp3 => self.head(b'%', count as i64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use redis_protocol::resp2::decode::decode;
    use redis_protocol::resp2::types::OwnedFrame;

    #[test]
    fn both_versions_are_spoken() {
        let mut reply = Reply::default();
        reply.null();
        reply.map(1);
        reply.set_protocol(Protocol::Resp3);
        reply.null();
        reply.map(1);
        reply.text("hi");
        assert_eq!(reply.bytes(), b"$-1\r\n*2\r\n_\r\n%1\r\n=6\r\ntxt:hi\r\n");
    }

    #[test]
    fn doubles_are_strings_or_numbers() {
        let mut reply = Reply::default();
        reply.double(3.3);
        reply.double(-2.225_073_858_507_201_4e-308);
        reply.set_protocol(Protocol::Resp3);
        reply.double(f64::NEG_INFINITY);
        reply.double_bulk(5.0);
        assert_eq!(
            reply.bytes(),
            b"$3\r\n3.3\r\n$24\r\n-2.2250738585072014e-308\r\n,-inf\r\n$1\r\n5\r\n"
        );
    }

    #[test]
    fn line_ends_do_not_leave_an_error() {
        let mut reply = Reply::default();
        reply.error("ERR a\r\n+OK");
        assert_eq!(reply.bytes(), b"-ERR a  +OK\r\n");
    }

    #[test]
    fn a_reply_can_be_taken_back_until_it_is_written() {
        let mut reply = Reply::default();
        reply.ok();
        let mark = reply.mark();
        reply.integer(1);
        assert!(reply.take_back(mark));
        assert_eq!(reply.bytes(), b"+OK\r\n");
        reply.integer(1);
        reply.consume(7);
        assert!(!reply.take_back(mark));
    }

    #[test]
    fn a_long_reply_leaves_no_large_buffer_behind() {
        let mut reply = Reply::default();
        for bytes in [large::OWN_BYTES_MAX / 2, 4 * large::OWN_BYTES_MAX] {
            reply.bulk(&vec![7; bytes]);
            let (all, mark) = (reply.len(), reply.mark());
            reply.consume(1000);
            assert_eq!((reply.len(), reply.mark()), (all - 1000, mark));
            assert_eq!(reply.bytes()[..4], [7; 4]);
            reply.consume(all - 1000);
            assert!(
                reply.is_empty() && reply.bytes.capacity() <= large::OWN_BYTES_MAX,
                "{bytes}"
            );
        }
        reply.ok();
        assert_eq!(reply.bytes(), b"+OK\r\n");
    }

    proptest! {
        #[test]
        fn a_codec_reads_what_is_written(
            bytes in proptest::collection::vec(any::<u8>(), 0..2000),
            number: i64,
            digits in 0..19_u32,
            text in "[ -~]{0,40}",
        ) {
            let number = number / 10_i64.pow(digits);
            let mut reply = Reply::default();
            reply.array(6);
            reply.bulk(&bytes);
            reply.integer(number);
            reply.simple(&text);
            reply.error(&text);
            reply.null();
            reply.ok();
            let expected = OwnedFrame::Array(vec![
                OwnedFrame::BulkString(bytes),
                OwnedFrame::Integer(number),
                OwnedFrame::SimpleString(text.clone().into_bytes()),
                OwnedFrame::Error(text),
                OwnedFrame::Null,
                OwnedFrame::SimpleString(b"OK".to_vec()),
            ]);
            prop_assert_eq!(decode(reply.bytes()).ok().flatten(), Some((expected, reply.len())));
        }
    }
}
