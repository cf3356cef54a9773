//! The connection to a gateway: one question, asked again and again.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use farside_gateway::{Password, Report, TlsClient, TlsStream};
use redis_protocol::resp2::decode::decode;
use redis_protocol::resp2::types::{OwnedFrame, Resp2Frame};

/// How long to wait for the gateway, for a connection or an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// No report is longer.
const REPLY_BYTES_MAX: usize = 16 << 20;

/// Which gateway, and how to be let in.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) address: SocketAddr,
    pub(super) user: String,
    pub(super) password: Option<Password>,
    pub(super) tls: Option<Encryption>,
}

/// How to speak TLS with it.
#[derive(Clone, Debug)]
pub(super) struct Encryption {
    pub(super) client: TlsClient,
    /// What stands in its certificate, if that is not its address.
    pub(super) name: Option<String>,
}

/// Why there is no report; one line.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    /// Nobody is there, or it has gone.
    #[error("{address}: {source}: is `farside serve` or `farside gateway` running there?")]
    Gone {
        /// Where.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// It does not speak TLS, or is not who it should be.
    #[error(
        "{address}: TLS: {source}: is it started with --tls-listen there, and is its certificate signed by one of --tls-ca?"
    )]
    Tls {
        /// Where.
        address: SocketAddr,
        /// What the library says.
        source: io::Error,
    },
    /// It wants a password, or another one.
    #[error("{address} wants a password: name the file that it was started with by --auth-file ({reply})")]
    Password {
        /// Where.
        address: SocketAddr,
        /// Its words.
        reply: String,
    },
    /// Somebody else listens there.
    #[error("{address} is no Farside gateway of this version: {reply}")]
    Foreign {
        /// Where.
        address: SocketAddr,
        /// What it said instead.
        reply: String,
    },
}

/// An open connection.
#[derive(Debug)]
pub(super) struct Link {
    address: SocketAddr,
    stream: Stream,
}

/// Bytes in both directions.
#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

impl Stream {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.write_all(bytes),
            Self::Tls(stream) => stream.write_all(bytes),
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(bytes),
            Self::Tls(stream) => stream.read(bytes),
        }
    }
}

/// A command as the gateway reads it.
pub(crate) fn encode(words: &[&[u8]]) -> Vec<u8> {
    let mut request = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        request.extend(format!("${}\r\n", word.len()).bytes());
        request.extend_from_slice(word);
        request.extend_from_slice(b"\r\n");
    }
    request
}

impl Link {
    /// Connects, and gives the password.
    pub(super) fn open(target: &Target) -> Result<Self, LinkError> {
        let address = target.address;
        let gone = |source| LinkError::Gone { address, source };
        let stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(gone)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(gone)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(gone)?;
        stream.set_nodelay(true).map_err(gone)?;
        let stream = match &target.tls {
            None => Stream::Plain(stream),
            Some(Encryption { client, name }) => {
                let name = name.clone().unwrap_or_else(|| address.ip().to_string());
                let connected = client.connect(stream, &name);
                Stream::Tls(Box::new(
                    connected.map_err(|source| LinkError::Tls { address, source })?,
                ))
            }
        };
        let mut link = Self { address, stream };
        if let Some(password) = &target.password {
            match link.ask(&[b"AUTH", target.user.as_bytes(), password.reveal()])? {
                // Whoever needs none takes any.
                OwnedFrame::SimpleString(_) => {}
                OwnedFrame::Error(reply) => return Err(LinkError::Password { address, reply }),
                other => return Err(link.foreign(&other)),
            }
        }
        Ok(link)
    }

    /// Everything the gateway has to say, as JSON.
    pub(super) fn stats(&mut self) -> Result<String, LinkError> {
        match self.ask(&[b"FARSIDE", b"STATS"])? {
            OwnedFrame::BulkString(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
            OwnedFrame::Error(reply) if reply.starts_with("NOAUTH") => Err(LinkError::Password {
                address: self.address,
                reply,
            }),
            other => Err(self.foreign(&other)),
        }
    }

    /// The same as a report.
    pub(super) fn report(&mut self) -> Result<Report, LinkError> {
        let text = self.stats()?;
        serde_json::from_str(&text).map_err(|error| LinkError::Foreign {
            address: self.address,
            reply: error.to_string(),
        })
    }

    fn foreign(&self, reply: &OwnedFrame) -> LinkError {
        let reply = match reply {
            OwnedFrame::Error(line) => line.chars().filter(|c| !c.is_control()).take(120).collect(),
            other => format!("it answered with a {:?}", other.kind()),
        };
        LinkError::Foreign {
            address: self.address,
            reply,
        }
    }

    fn ask(&mut self, words: &[&[u8]]) -> Result<OwnedFrame, LinkError> {
        let address = self.address;
        let reply = self.stream.write_all(&encode(words)).and_then(|()| self.receive());
        reply
            .map_err(|source| LinkError::Gone { address, source })?
            .map_err(|reply| LinkError::Foreign { address, reply })
    }

    /// A reply, or what is wrong with it.
    fn receive(&mut self) -> io::Result<Result<OwnedFrame, String>> {
        let mut input = Vec::new();
        let mut some = [0; 16 << 10];
        loop {
            match decode(&input) {
                Ok(Some((reply, _))) => return Ok(Ok(reply)),
                Ok(None) if input.len() < REPLY_BYTES_MAX => {}
                Ok(None) => return Ok(Err("its answer is too long".to_owned())),
                Err(_) => {
                    let advice = match self.stream {
                        Stream::Plain(_) => " (the port of --tls-listen wants --tls-ca)",
                        Stream::Tls(_) => "",
                    };
                    return Ok(Err(format!("it does not speak the Redis protocol{advice}")));
                }
            }
            match self.stream.read(&mut some)? {
                0 => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it hung up")),
                read => input.extend_from_slice(&some[..read]),
            }
        }
    }
}
