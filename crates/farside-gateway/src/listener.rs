//! Where clients connect: TCP with or without TLS, and Unix sockets.
//!
//! On the path: before the first byte. What is accepted is a socket without a runtime, for a worker.

use core::fmt;
use core::net::SocketAddr;
use core::task::{Context, Poll};
use std::io::{self, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;

use crate::stream::Raw;
use crate::tls::Tls;

/// Something that clients connect to.
#[derive(Debug)]
pub enum Listener {
    /// A port.
    Tcp(TcpListener),
    /// A port that speaks TLS.
    Tls(TcpListener, Tls),
    /// A socket in the file system.
    Unix(UnixListener),
}

impl Listener {
    /// The address of a port.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) | Self::Tls(listener, _) => listener.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    /// How strangers are kept out, apart from a password.
    #[must_use]
    pub fn tls(&self) -> Option<&Tls> {
        match self {
            Self::Tls(_, tls) => Some(tls),
            Self::Tcp(_) | Self::Unix(_) => None,
        }
    }

    /// Puts it into the runtime of the caller.
    pub(crate) fn open(&self) -> io::Result<OpenListener> {
        match self {
            Self::Tcp(listener) => OpenListener::tcp(listener, None),
            Self::Tls(listener, tls) => OpenListener::tcp(listener, Some(tls.clone())),
            Self::Unix(listener) => {
                listener.set_nonblocking(true)?;
                let listener = tokio::net::UnixListener::from_std(listener.try_clone()?)?;
                Ok(OpenListener::Unix(listener))
            }
        }
    }
}

/// As it is said where a server listens.
impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.address()) {
            (Self::Tcp(_), Some(address)) => write!(f, "{address}"),
            (Self::Tls(..), Some(address)) => write!(f, "{address} with TLS"),
            (Self::Unix(listener), _) => match listener.local_addr() {
                Ok(address) if address.as_pathname().is_some() => {
                    let path = address.as_pathname().unwrap_or("".as_ref());
                    write!(f, "{}", path.display())
                }
                _ => f.write_str("a Unix socket"),
            },
            (_, None) => f.write_str("a port"),
        }
    }
}

/// A listener in a runtime.
pub(crate) enum OpenListener {
    Tcp(tokio::net::TcpListener, Option<Tls>),
    Unix(tokio::net::UnixListener),
}

/// A connection that nobody serves yet.
pub(crate) struct Arrival {
    pub(crate) socket: Raw,
    pub(crate) tls: Option<Tls>,
}

impl OpenListener {
    fn tcp(listener: &TcpListener, tls: Option<Tls>) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener.try_clone()?)?;
        Ok(Self::Tcp(listener, tls))
    }

    /// The next connection.
    pub(crate) fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Arrival>> {
        match self {
            Self::Tcp(listener, tls) => listener.poll_accept(cx).map(|accepted| {
                let (stream, _) = accepted?;
                let _ = stream.set_nodelay(true);
                Ok(Arrival {
                    socket: Raw::Tcp(stream.into_std()?),
                    tls: tls.clone(),
                })
            }),
            Self::Unix(listener) => listener.poll_accept(cx).map(|accepted| {
                Ok(Arrival {
                    socket: Raw::Unix(accepted?.0.into_std()?),
                    tls: None,
                })
            }),
        }
    }
}

impl Arrival {
    /// Says why the connection ends, where that can be read.
    pub(crate) fn refuse(self, line: &[u8]) {
        // A new socket has room for a line; and whoever has left will not miss it.
        let _ = match (self.socket, self.tls) {
            (_, Some(_)) => Ok(()),
            (Raw::Tcp(mut stream), None) => stream.write_all(line),
            (Raw::Unix(mut stream), None) => stream.write_all(line),
        };
    }
}
