//! A client that speaks raw RESP and shows replies as they are on the wire.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long to wait for a reply before the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    reader: BufReader<TcpStream>,
}

/// A command as an array of strings.
pub(crate) fn encode(arguments: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("somebody listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a positive time");
        stream.set_nodelay(true).expect("a socket");
        let reader = BufReader::new(stream.try_clone().expect("a socket"));
        Self { stream, reader }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server reads");
    }

    /// One command of words without spaces; its reply as on the wire.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        String::from_utf8_lossy(&self.call(&words)).into_owned()
    }

    pub(crate) fn call(&mut self, arguments: &[&[u8]]) -> Vec<u8> {
        self.send(&encode(arguments));
        self.receive()
    }

    /// One line of a reply, or `None` if the server has hung up. A reset is a failure: it may have cost replies.
    pub(crate) fn try_line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.reader.read_line(&mut line).expect("a reply or an orderly end");
        (read > 0).then_some(line)
    }

    /// One reply, with everything in it.
    pub(crate) fn receive(&mut self) -> Vec<u8> {
        let mut frame = Vec::new();
        self.receive_into(&mut frame);
        frame
    }

    fn receive_into(&mut self, frame: &mut Vec<u8>) {
        let start = frame.len();
        let read = self.reader.read_until(b'\n', frame).expect("a reply");
        assert!(read > 0, "the server hung up");
        let head = String::from_utf8_lossy(&frame[start..]).trim_end().to_owned();
        let (kind, rest) = head.split_at(1);
        let count = || rest.parse::<i64>().expect("a length");
        match kind {
            "$" | "=" if count() >= 0 => {
                let at = frame.len();
                frame.resize(at + count() as usize + 2, 0);
                self.reader.read_exact(&mut frame[at..]).expect("as long as announced");
            }
            "*" | "~" => (0..count()).for_each(|_| self.receive_into(frame)),
            "%" => (0..2 * count()).for_each(|_| self.receive_into(frame)),
            "$" | "=" | "+" | "-" | ":" | "_" | "," => {}
            _ => panic!("no RESP: {head}"),
        }
    }

    /// Everything until the server hangs up.
    pub(crate) fn receive_all(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // A connection that is reset has ended too; what came before it counts.
        let _ = self.reader.read_to_end(&mut bytes);
        bytes
    }
}
