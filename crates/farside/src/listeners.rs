//! Where Redis clients connect: ports, ports with TLS, and Unix sockets.

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use farside_gateway::{Listener, Tls, TlsFiles, Users, require_password_unless_loopback};

use crate::listen;
use crate::unix_socket::SocketFile;
use farside_cli::{Failure, chain, scalar};

/// Where clients connect if nobody says.
const LISTEN_DEFAULT: &str = "127.0.0.1:6380";

#[derive(Debug, Args)]
pub(crate) struct ListenArgs {
    /// Where Redis clients connect [default: 127.0.0.1:6380, unless --unix or --tls-listen is given]
    #[arg(long, value_name = "HOST:PORT", value_parser = scalar::address)]
    listen: Option<SocketAddr>,
    /// Also, or only, listen on a Unix socket; only the same user can open it
    #[arg(long, value_name = "PATH")]
    unix: Option<PathBuf>,
    /// Also, or only, listen on a port that speaks TLS
    #[arg(long, value_name = "HOST:PORT", value_parser = scalar::address, requires = "tls_cert", requires = "tls_key")]
    tls_listen: Option<SocketAddr>,
    /// The certificate of the server in PEM format, followed by its chain
    #[arg(long, value_name = "FILE", requires = "tls_listen")]
    tls_cert: Option<PathBuf>,
    /// Its private key in PEM format
    #[arg(long, value_name = "FILE", requires = "tls_listen")]
    tls_key: Option<PathBuf>,
    /// Admit only clients with a certificate signed by one of these, in PEM format
    #[arg(long, value_name = "FILE", requires = "tls_listen")]
    tls_client_ca: Option<PathBuf>,
}

/// Listeners that are open.
#[derive(Debug)]
pub(crate) struct Listeners {
    pub(crate) all: Vec<Listener>,
    /// Removed when the server has ended.
    pub(crate) socket_file: Option<SocketFile>,
}

impl ListenArgs {
    /// Checks everything that can be wrong, then opens the listeners.
    pub(crate) fn open(&self, users: &Users) -> Result<Listeners, Failure> {
        let is_alone = self.unix.is_none() && self.tls_listen.is_none();
        let listen = self.listen.or_else(|| {
            let address = || LISTEN_DEFAULT.parse().expect("it is an address");
            is_alone.then(address)
        });
        let tls = self.tls()?;
        for (address, tls) in [(listen, None), (self.tls_listen, tls.as_ref())] {
            if let Some(address) = address {
                require_password(address, tls, users)?;
            }
        }
        let mut all = Vec::new();
        if let Some(address) = listen {
            all.push(Listener::Tcp(listen::bind(address, "--listen")?));
        }
        if let (Some(address), Some(tls)) = (self.tls_listen, tls) {
            all.push(Listener::Tls(listen::bind(address, "--tls-listen")?, tls));
        }
        let mut socket_file = None;
        if let Some(path) = &self.unix {
            let (listener, file) = SocketFile::bind(path)?;
            all.push(Listener::Unix(listener));
            socket_file = Some(file);
        }
        Ok(Listeners { all, socket_file })
    }

    fn tls(&self) -> Result<Option<Tls>, Failure> {
        let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) else {
            return Ok(None);
        };
        let files = TlsFiles {
            certificate: certificate.clone(),
            key: key.clone(),
            client_authority: self.tls_client_ca.clone(),
        };
        let tls = Tls::from_files(&files).map_err(|error| Failure::usage(chain(&error)))?;
        Ok(Some(tls))
    }
}

/// Whether clients may connect there.
fn require_password(address: SocketAddr, tls: Option<&Tls>, users: &Users) -> Result<(), Failure> {
    require_password_unless_loopback(address, tls, users).map_err(|error| {
        Failure::usage(match tls {
            None => format!("{error} (--auth-file names the file)"),
            Some(_) => format!("{error} (--auth-file names the file; --tls-client-ca would do as well)"),
        })
    })
}

impl Listeners {
    /// All of them, as a user reads it.
    pub(crate) fn text(&self) -> String {
        let places: Vec<String> = self.all.iter().map(Listener::to_string).collect();
        places.join(", ")
    }

    /// How to connect to the first.
    pub(crate) fn hint(&self) -> String {
        let command = |option: &str, place: &dyn Display| format!("connect: redis-cli {option} {place}");
        match self.all.first() {
            Some(listener @ Listener::Tls(..)) => command(
                "--tls --cacert FILE -p",
                &listener.address().map_or(0, |address| address.port()),
            ),
            Some(listener @ Listener::Unix(_)) => command("-s", listener),
            Some(listener) => command("-p", &listener.address().map_or(0, |address| address.port())),
            None => String::new(),
        }
    }
}
