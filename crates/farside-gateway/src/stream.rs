//! A client's socket: TCP or Unix, as it is or under TLS. To a connection all of them are one type.
//!
//! On the path: below the connection. A socket belongs to the runtime of a worker; while the worker
//! opens its store anew it is parked, that is, held without a runtime.

use core::net::SocketAddr;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;

use crate::roster::Ends;

/// What a connection reads from and writes to.
pub(crate) enum Stream {
    /// The bytes themselves.
    Plain(Socket),
    /// The bytes under TLS.
    Tls(Box<TlsStream<Socket>>),
}

/// A socket in a runtime, or out of it.
pub(crate) enum Socket {
    /// From [`Raw::Tcp`].
    Tcp(tokio::net::TcpStream),
    /// From [`Raw::Unix`].
    Unix(tokio::net::UnixStream),
    /// Between two runtimes.
    Parked(Raw),
}

/// A socket that no runtime knows, in non-blocking mode.
pub(crate) enum Raw {
    /// Over the network, or the loopback.
    Tcp(std::net::TcpStream),
    /// Over a file of this machine.
    Unix(std::os::unix::net::UnixStream),
}

impl Stream {
    /// Whether what was written may still wait in this process.
    #[inline]
    pub(crate) fn needs_flush(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    fn socket(&mut self) -> &mut Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => stream.get_mut().0,
        }
    }

    /// Takes the socket out of the runtime of the caller.
    pub(crate) fn park(&mut self) -> io::Result<()> {
        let socket = self.socket();
        let raw = match socket {
            Socket::Tcp(stream) => Raw::Tcp(stream.as_fd().try_clone_to_owned()?.into()),
            Socket::Unix(stream) => Raw::Unix(stream.as_fd().try_clone_to_owned()?.into()),
            Socket::Parked(_) => return Ok(()),
        };
        *socket = Socket::Parked(raw);
        Ok(())
    }

    /// Puts a parked socket into the runtime of the caller.
    pub(crate) fn unpark(&mut self) -> io::Result<()> {
        let socket = self.socket();
        if let Socket::Parked(raw) = socket {
            *socket = Socket::open(match raw {
                Raw::Tcp(stream) => Raw::Tcp(stream.try_clone()?),
                Raw::Unix(stream) => Raw::Unix(stream.try_clone()?),
            })?;
        }
        Ok(())
    }
}

impl Raw {
    /// Where it goes from and to, as lists of clients show it: a Unix socket has a path, and port 0.
    pub(crate) fn ends(&self) -> Ends {
        let unknown = || "?:0".to_owned();
        match self {
            Self::Tcp(stream) => {
                let show = |address: io::Result<SocketAddr>| address.map_or_else(|_| unknown(), |at| at.to_string());
                Ends {
                    address: show(stream.peer_addr()),
                    local_address: show(stream.local_addr()),
                    descriptor: stream.as_raw_fd(),
                }
            }
            // The peer of such a socket has no name of its own.
            Self::Unix(stream) => {
                let address = stream.local_addr().ok();
                let path = address.as_ref().and_then(|address| address.as_pathname());
                let place = path.map_or_else(unknown, |path| format!("{}:0", path.display()));
                Ends {
                    address: place.clone(),
                    local_address: place,
                    descriptor: stream.as_raw_fd(),
                }
            }
        }
    }
}

impl Socket {
    /// Puts a socket into the runtime of the caller.
    pub(crate) fn open(raw: Raw) -> io::Result<Self> {
        Ok(match raw {
            Raw::Tcp(stream) => Self::Tcp(tokio::net::TcpStream::from_std(stream)?),
            Raw::Unix(stream) => Self::Unix(tokio::net::UnixStream::from_std(stream)?),
        })
    }
}

/// Nobody polls a parked socket; if somebody did, this is what is wrong.
fn parked() -> io::Error {
    io::Error::other("the socket is parked")
}

impl AsyncRead for Socket {
    #[inline]
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, target: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, target),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, target),
            Self::Parked(_) => Poll::Ready(Err(parked())),
        }
    }
}

impl AsyncWrite for Socket {
    #[inline]
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Parked(_) => Poll::Ready(Err(parked())),
        }
    }

    /// The system keeps nothing back.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Parked(_) => Poll::Ready(Err(parked())),
        }
    }
}

impl AsyncRead for Stream {
    #[inline]
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, target: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_read(cx, target),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, target),
        }
    }
}

impl AsyncWrite for Stream {
    #[inline]
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
