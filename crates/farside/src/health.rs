//! `farside health`: asks `/readyz` of a server, for whoever has no HTTP client at hand, such as a container without a shell.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use farside_cli::{Failure, scalar};

/// How long to wait for a connection, and for each part of an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// No answer is longer.
const ANSWER_BYTES_MAX: u64 = 4096;

#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// The address of the server's --metrics
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9121", value_parser = scalar::address)]
    connect: SocketAddr,
}

pub(crate) fn run(args: &HealthArgs) -> Result<ExitCode, Failure> {
    let address = args.connect;
    let answer = ask(address).map_err(|error| {
        Failure::runtime(format!(
            "{address}: {error}: is `farside serve`, `gateway` or `node` running there, with --metrics?"
        ))
    })?;
    let (status, line) = read(&answer).ok_or_else(|| {
        Failure::runtime(format!(
            "{address} does not speak HTTP: --connect names the port of --metrics"
        ))
    })?;
    match status {
        200 => {
            println!("{line}");
            Ok(ExitCode::SUCCESS)
        }
        503 => Err(Failure::runtime(line)),
        _ => Err(Failure::runtime(format!(
            "{address} is no Farside server of this version: HTTP status {status}"
        ))),
    }
}

fn ask(address: SocketAddr) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    Ok(answer)
}

/// Status and first line of an answer of our own server, which is short and in one piece; `None` if it is none.
fn read(answer: &[u8]) -> Option<(u16, String)> {
    let (head, body) = core::str::from_utf8(answer).ok()?.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.1 ")?.split([' ', '\r']).next()?;
    let line = body.lines().next().unwrap_or_default();
    Some((status.parse().ok()?, line.chars().filter(|c| !c.is_control()).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_and_what_is_none_is_refused() {
        let read = |text: &str| read(text.as_bytes());
        let busy = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 5\r\n\r\nbu\u{1b}sy\n";
        assert_eq!(read(busy), Some((503, "busy".to_owned())));
        assert_eq!(read("HTTP/1.1 200 OK\r\n\r\n"), Some((200, String::new())));
        for text in [
            "",
            "-ERR unknown command 'GET'\r\n",
            "HTTP/1.1 200 OK\r\nserver: cut o",
            "HTTP/1.1 OK\r\n\r\n",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
