//! A connection to the gateway from within its process: commands as any client sends them, one after the other.

use std::io;
use std::os::unix::net::UnixStream as Raw;

use farside_fabric::Deadline;
use farside_fabric::host::HostClock;
use hyper::StatusCode;
use redis_protocol::resp2::decode::decode;
use redis_protocol::resp2::types::OwnedFrame;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::reply::Refusal;
use crate::top::link::encode;

/// How long to wait for a reply.
const PATIENCE_NS: u64 = 5_000_000_000;
/// How much to read at once.
const READ_BYTES: usize = 64 << 10;

/// An open connection, until it breaks.
#[derive(Debug)]
pub(super) struct Link {
    stream: Option<UnixStream>,
    input: Vec<u8>,
}

impl Link {
    pub(super) fn open(raw: io::Result<Raw>) -> Result<Self, Refusal> {
        let stream = raw.and_then(UnixStream::from_std).map_err(|error| gone(&error))?;
        Ok(Self {
            stream: Some(stream),
            input: Vec::new(),
        })
    }

    /// Whether replies can no longer be told apart, or nobody gives any.
    pub(super) fn is_broken(&self) -> bool {
        self.stream.is_none()
    }

    /// The reply to a command, an error line among them.
    pub(super) async fn ask(&mut self, words: &[&[u8]]) -> Result<OwnedFrame, Refusal> {
        // Taken out: if this is dropped half way, what comes next would be the reply to another command.
        let Some(mut stream) = self.stream.take() else {
            return Err(gone(&"the connection has ended: log in again"));
        };
        let deadline = Deadline(HostClock.now_ns().saturating_add(PATIENCE_NS));
        let asked = HostClock
            .until(deadline, exchange(&mut stream, &mut self.input, words))
            .await;
        let reply = asked
            .unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
            .map_err(|error| gone(&error))?;
        self.stream = Some(stream);
        Ok(reply)
    }

    /// The same where an error line is a refusal.
    pub(super) async fn value(&mut self, words: &[&[u8]]) -> Result<OwnedFrame, Refusal> {
        match self.ask(words).await? {
            OwnedFrame::Error(line) => Err(refused(&line)),
            reply => Ok(reply),
        }
    }

    /// The same where the reply is a number.
    pub(super) async fn number(&mut self, words: &[&[u8]]) -> Result<i64, Refusal> {
        match self.value(words).await? {
            OwnedFrame::Integer(number) => Ok(number),
            _ => Err(gone(&"it answered with something else than a number")),
        }
    }

    /// The same where the reply is text.
    pub(super) async fn bytes(&mut self, words: &[&[u8]]) -> Result<Vec<u8>, Refusal> {
        match self.value(words).await? {
            OwnedFrame::BulkString(bytes) | OwnedFrame::SimpleString(bytes) => Ok(bytes),
            _ => Err(gone(&"it answered with something else than text")),
        }
    }

    /// The same where the reply is a list.
    pub(super) async fn list(&mut self, words: &[&[u8]]) -> Result<Vec<OwnedFrame>, Refusal> {
        match self.value(words).await? {
            OwnedFrame::Array(replies) => Ok(replies),
            _ => Err(gone(&"it answered with something else than a list")),
        }
    }
}

async fn exchange(stream: &mut UnixStream, input: &mut Vec<u8>, words: &[&[u8]]) -> io::Result<OwnedFrame> {
    stream.write_all(&encode(words)).await?;
    loop {
        match decode(input) {
            Ok(Some((reply, used))) => {
                input.drain(..used);
                return Ok(reply);
            }
            Ok(None) => {}
            Err(error) => return Err(io::Error::other(error.to_string())),
        }
        input.reserve(READ_BYTES);
        if stream.read_buf(input).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

fn gone(why: &dyn core::fmt::Display) -> Refusal {
    Refusal::new(
        StatusCode::SERVICE_UNAVAILABLE,
        format!("the gateway does not answer: {why}"),
    )
}

/// What an error line of the gateway means.
fn refused(line: &str) -> Refusal {
    let status = match line.split(' ').next().unwrap_or_default() {
        "NOAUTH" => StatusCode::UNAUTHORIZED,
        "NOPERM" => StatusCode::FORBIDDEN,
        "OOM" => StatusCode::INSUFFICIENT_STORAGE,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    };
    Refusal::new(status, line)
}
