//! An authority for the tests, and servers with the certificates that it signs.

use std::fs;
use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use super::process::Server;

/// An authority, and what it has signed.
pub(crate) struct Certificates {
    folder: tempfile::TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Certificates {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(vec![]).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("randomness");
        let authority = CertifiedIssuer::self_signed(params, key).expect("a complete certificate");
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("ca.pem"), authority.pem()).expect("a folder of ours");
        let made = Self { folder, authority };
        made.sign("server");
        made.sign("client");
        made
    }

    /// Makes NAME.pem and NAME.key.
    fn sign(&self, name: &str) {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).expect("names and addresses");
        // With the authority's name it would be taken for the authority.
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("randomness");
        let certificate = params.signed_by(&key, &self.authority).expect("a complete certificate");
        fs::write(self.path(&format!("{name}.pem")), certificate.pem()).expect("a folder of ours");
        fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).expect("a folder of ours");
    }

    /// Where one of its files is.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The same as text.
    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("plain").to_owned()
    }

    /// A server that speaks nothing but TLS.
    pub(crate) fn serve(&self, arguments: &[&str]) -> Server {
        let (certificate, key) = (self.text("server.pem"), self.text("server.key"));
        let fixed = [
            "serve",
            "--tls-listen",
            "127.0.0.1:0",
            "--memory",
            "128MiB",
            "--threads",
            "2",
        ];
        let files = ["--tls-cert", &certificate, "--tls-key", &key];
        Server::start(&[&fixed[..], &files, arguments].concat())
    }
}
