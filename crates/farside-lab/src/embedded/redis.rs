//! What Redis takes for the same items, if it is installed.

use std::ffi::OsStr;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use farside_fabric::host::HostClock;

use crate::error::BenchError;
use crate::redis::Server;

/// How many SETs are sent together.
const SETS_AT_ONCE: u64 = 1000;
/// How long a server may take to listen.
const START_NS: u64 = 5_000_000_000;

/// Bytes that Redis says it uses more with the items than without; `None` if there is no `redis-server`.
///
/// # Errors
/// If it does not answer as Redis does.
pub(super) fn used_bytes(folder: &Path, items: u64) -> Result<Option<u64>, BenchError> {
    let socket = folder.join("redis.sock");
    let place = ["--port", "0", "--unixsocket"].map(OsStr::new);
    let Some(_server) = Server::spawn(place.into_iter().chain([socket.as_os_str()]))? else {
        return Ok(None);
    };
    let measured = connect(&socket).and_then(|mut stream| {
        let before = used_memory(&mut stream)?;
        fill(&mut stream, items)?;
        Ok(used_memory(&mut stream)? - before)
    });
    measured.map(Some).map_err(BenchError::system("talk to redis-server"))
}

fn connect(socket: &Path) -> std::io::Result<UnixStream> {
    let start_ns = HostClock.now_ns();
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => return Ok(stream),
            Err(error) if HostClock.now_ns() - start_ns > START_NS => return Err(error),
            // It is not there yet.
            Err(_) => std::thread::yield_now(),
        }
    }
}

/// Sets keys of 8 bytes to values of 8 bytes that are no integers in text, which Redis would store in less.
fn fill(stream: &mut UnixStream, items: u64) -> std::io::Result<()> {
    for first in (0..items).step_by(SETS_AT_ONCE as usize) {
        let numbers = first..(first + SETS_AT_ONCE).min(items);
        let mut request = Vec::new();
        for number in numbers.clone() {
            request.extend_from_slice(b"*3\r\n$3\r\nSET\r\n$8\r\n");
            request.extend_from_slice(&number.to_le_bytes());
            request.extend_from_slice(b"\r\n$8\r\n");
            request.extend_from_slice(&number.to_le_bytes());
            request.extend_from_slice(b"\r\n");
        }
        stream.write_all(&request)?;
        let mut replies = vec![0; b"+OK\r\n".len() * numbers.count()];
        stream.read_exact(&mut replies)?;
        if replies.chunks(5).any(|reply| reply != b"+OK\r\n") {
            return Err(std::io::Error::other("a SET was refused"));
        }
    }
    Ok(())
}

fn used_memory(stream: &mut UnixStream) -> std::io::Result<u64> {
    stream.write_all(b"*2\r\n$4\r\nINFO\r\n$6\r\nmemory\r\n")?;
    let mut reply = Vec::new();
    // A bulk string: its length in a line, and so many bytes.
    loop {
        let mut part = [0; 4096];
        let count = stream.read(&mut part)?;
        reply.extend_from_slice(&part[..count]);
        let text = String::from_utf8_lossy(&reply);
        let whole = text.split_once("\r\n").and_then(|(length, rest)| {
            let length: usize = length.strip_prefix('$')?.parse().ok()?;
            (rest.len() >= length + 2).then(|| rest.to_owned())
        });
        if let Some(info) = whole {
            let line = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
            let bytes = line.and_then(|bytes| bytes.trim().parse().ok());
            return bytes.ok_or_else(|| std::io::Error::other("INFO has no used_memory"));
        }
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
    }
}
