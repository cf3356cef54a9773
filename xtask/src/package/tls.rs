//! A client and a certificate for servers that speak TLS, both from openssl.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::step;

/// As whom servers are asked.
const HOST: &str = "localhost";

/// Writes a certificate for this host and others, which vouches for itself, and its key.
pub(crate) fn certify(others: &[&str], certificate: &Path, key: &Path) -> Result<()> {
    let names: String = others.iter().map(|name| format!(",DNS:{name}")).collect();
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-batch", "-days", "2"]);
    command.args(["-subj", "/CN=localhost", "-addext"]);
    command.arg(format!("subjectAltName=DNS:{HOST}{names}"));
    command.args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout"]);
    command.arg(key).arg("-out").arg(certificate);
    step::run(command.stderr(Stdio::null()))
}

/// Gives commands, of which the last one is QUIT.
pub(super) fn ask(address: SocketAddr, certificate: &Path, request: &str, expected: &str) -> Result<()> {
    let mut command = Command::new("openssl");
    command.args([
        "s_client",
        "-quiet",
        "-verify_return_error",
        "-verify_hostname",
        HOST,
        "-connect",
    ]);
    command.arg(address.to_string()).arg("-CAfile").arg(certificate);
    let line = step::command_line(&command);
    eprintln!("    $ {line}");
    let mut client = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("failed to start openssl")?;
    // The server hangs up, which ends it.
    client
        .stdin
        .as_mut()
        .context("it has no standard input")?
        .write_all(request.as_bytes())?;
    let said = client.wait_with_output()?.stdout;
    let said = String::from_utf8_lossy(&said);
    ensure!(said == expected, "`{line}` was answered with {said:?}");
    Ok(())
}
