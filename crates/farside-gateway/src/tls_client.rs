//! TLS as a client of a gateway speaks it: whom it trusts, and what it shows.
//!
//! On the path: nowhere; `farside top` connects with it.

use core::fmt;
use std::io;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::tls::{TlsError, authorities, certificates, private_key};

/// Files in the PEM format.
#[derive(Clone, Debug)]
pub struct TlsClientFiles {
    /// Certificates of which one must vouch for the gateway.
    pub authority: PathBuf,
    /// The certificate of this client, followed by those that vouch for it, and its private key; for a gateway that lets
    /// nobody in without.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// How a client connects.
#[derive(Clone)]
pub struct TlsClient {
    config: Arc<ClientConfig>,
}

/// An encrypted connection.
pub type TlsStream = StreamOwned<ClientConnection, TcpStream>;

impl TlsClient {
    /// Reads the files.
    ///
    /// # Errors
    /// See [`TlsError`].
    pub fn from_files(files: &TlsClientFiles) -> Result<Self, TlsError> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has suites for the default versions")
            .with_root_certificates(authorities(&files.authority)?);
        let config = match &files.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates("certificate", certificate)?;
                let builder = builder.with_client_auth_cert(chain, private_key(key)?);
                builder.map_err(|source| TlsError::Pair {
                    certificate: certificate.clone(),
                    key: key.clone(),
                    source,
                })?
            }
        };
        Ok(Self {
            config: Arc::new(config),
        })
    }

    /// Shakes hands on a new connection. `name` is the name or the address that stands in the gateway's certificate.
    ///
    /// # Errors
    /// If `name` is neither, nobody is trusted to vouch for the gateway, or it does not speak TLS.
    pub fn connect(&self, mut stream: TcpStream, name: &str) -> io::Result<TlsStream> {
        let name = ServerName::try_from(name.to_owned()).map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("`{name}` is not the name of a server"),
            )
        })?;
        let mut connection = ClientConnection::new(self.config.clone(), name).map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut stream)?;
        }
        Ok(StreamOwned::new(connection, stream))
    }
}

impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The configuration holds the key.
        f.debug_struct("TlsClient").finish_non_exhaustive()
    }
}
