//! TLS for clients: certificate and key from files, and whose certificates clients must show.
//!
//! On the path: before the first byte of a connection, and around every byte after it. The protocol
//! is rustls's: TLS 1.2 and 1.3.

use core::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig, crypto::ring};
use tokio_rustls::{Accept, TlsAcceptor};

use crate::stream::Socket;

/// Files in the PEM format.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate of the gateway, followed by those that vouch for it.
    pub certificate: PathBuf,
    /// Its private key, not encrypted.
    pub key: PathBuf,
    /// Certificates of which one must vouch for each client; without it, clients show none.
    pub client_authority: Option<PathBuf>,
}

/// Why these files give no TLS; one line.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read the {what} file {}: {source}", path.display())]
    File {
        /// What it should hold.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A file holds something else.
    #[error("{} holds no {what} in the PEM format (-----BEGIN ...): {reason}", path.display())]
    Content {
        /// What it should hold.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Certificate and key do not go together, or are of a kind that cannot be used.
    #[error("the certificate {} and the key {} cannot be used together: {source}", certificate.display(), key.display())]
    Pair {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// What the library says.
        source: rustls::Error,
    },
}

impl TlsError {
    fn new(what: &'static str, path: &Path, error: pem::Error) -> Self {
        let path = path.to_owned();
        match error {
            pem::Error::Io(source) => Self::File { what, path, source },
            pem::Error::NoItemsFound => Self::content(what, &path, "there is none in it"),
            other => Self::content(what, &path, other),
        }
    }

    fn content(what: &'static str, path: &Path, reason: impl ToString) -> Self {
        Self::Content {
            what,
            path: path.to_owned(),
            reason: reason.to_string(),
        }
    }
}

/// How connections are encrypted.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ServerConfig>,
    knows_clients: bool,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// See [`TlsError`].
    pub fn from_files(files: &TlsFiles) -> Result<Self, TlsError> {
        let chain = certificates("certificate", &files.certificate)?;
        let key = private_key(&files.key)?;
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("the provider has suites for the default versions");
        let builder = match &files.client_authority {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = authorities(path)?;
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                    .build()
                    .map_err(|error| TlsError::content(AUTHORITY, path, error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let config = builder.with_single_cert(chain, key).map_err(|source| TlsError::Pair {
            certificate: files.certificate.clone(),
            key: files.key.clone(),
            source,
        })?;
        Ok(Self {
            config: Arc::new(config),
            knows_clients: files.client_authority.is_some(),
        })
    }

    /// Whether a client has to show a certificate.
    #[must_use]
    pub fn knows_clients(&self) -> bool {
        self.knows_clients
    }

    /// The handshake of a new connection.
    pub(crate) fn accept(&self, socket: Socket) -> Accept<Socket> {
        TlsAcceptor::from(self.config.clone()).accept(socket)
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The configuration holds the key.
        let mut shown = f.debug_struct("Tls");
        shown
            .field("knows_clients", &self.knows_clients)
            .finish_non_exhaustive()
    }
}

/// What is looked for in a file of authorities.
const AUTHORITY: &str = "certificate of an authority";

/// The authorities in a file; at least one.
pub(crate) fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(AUTHORITY, path)? {
        roots
            .add(certificate)
            .map_err(|error| TlsError::content(AUTHORITY, path, error))?;
    }
    Ok(roots)
}

/// The private key in a file.
pub(crate) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| TlsError::new("private key", path, error))
}

/// All certificates in a file; at least one.
pub(crate) fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |error| TlsError::new(what, path, error);
    let found = CertificateDer::pem_file_iter(path).map_err(wrong)?;
    let found = found.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    if found.is_empty() {
        return Err(wrong(pem::Error::NoItemsFound));
    }
    Ok(found)
}
