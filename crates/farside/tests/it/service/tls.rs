//! TLS, as redis-cli speaks it.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use super::certificates::Certificates;
use super::command_line::refusal;
use super::process::{Server, output};

/// What redis-cli prints for these commands, given on standard input.
fn redis_cli(certificates: &Certificates, server: &Server, arguments: &[&str], commands: &[u8]) -> String {
    let port = server.address.port().to_string();
    let mut child = Command::new("redis-cli")
        .args([
            "-h",
            "127.0.0.1",
            "-p",
            &port,
            "--tls",
            "--cacert",
            &certificates.text("ca.pem"),
        ])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("redis-cli is installed (./test does that)");
    // If it has given up already, what it says is of interest.
    let _ = child.stdin.take().expect("it is a pipe").write_all(commands);
    let output = child.wait_with_output().expect("it is ours");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[test]
fn redis_cli_talks_tls() {
    let certificates = Certificates::new();
    let server = certificates.serve(&[]);
    let shown = redis_cli(&certificates, &server, &[], b"SET key value\nGET key\nINCR n\n");
    assert_eq!(shown, "OK\nvalue\n1\n");
    assert!(server.terminate());
}

#[test]
fn large_values_pass_both_ways() {
    let certificates = Certificates::new();
    let server = certificates.serve(&[]);
    let value: String = (0..2_000_000)
        .map(|at| char::from(b'a' + (at * 7 % 26) as u8))
        .collect();
    let stored = redis_cli(&certificates, &server, &["-x", "SET", "key"], value.as_bytes());
    assert_eq!(stored, "OK\n");
    let read = redis_cli(&certificates, &server, &["GET", "key"], b"");
    assert!(read.trim_end() == value, "{} bytes", read.len());
}

#[test]
fn plain_text_ends_its_own_connection_only() {
    let certificates = Certificates::new();
    let server = certificates.serve(&[]);
    let mut stream = TcpStream::connect(server.address).expect("it listens");
    stream
        .write_all(b"*1\r\n$4\r\nPING\r\n")
        .expect("a new socket has room");
    let mut bytes = Vec::new();
    // Reset or closed, after an alert of TLS at most; never an answer.
    let _ = stream.read_to_end(&mut bytes);
    assert!(!bytes.starts_with(b"+") && !bytes.starts_with(b"-"), "{bytes:?}");
    assert_eq!(redis_cli(&certificates, &server, &["PING"], b""), "PONG\n");
}

#[test]
fn clients_show_certificates_if_they_must() {
    let certificates = Certificates::new();
    let authority = certificates.text("ca.pem");
    let server = certificates.serve(&["--tls-client-ca", &authority]);
    let shown = redis_cli(&certificates, &server, &["PING"], b"");
    assert!(!shown.contains("PONG"), "{shown}");
    let (certificate, key) = (certificates.text("client.pem"), certificates.text("client.key"));
    let known = ["--cert", &certificate, "--key", &key, "PING"];
    assert_eq!(redis_cli(&certificates, &server, &known, b""), "PONG\n");
    // Signed by somebody else.
    let strangers = Certificates::new();
    let (certificate, key) = (strangers.text("client.pem"), strangers.text("client.key"));
    let shown = redis_cli(
        &certificates,
        &server,
        &["--cert", &certificate, "--key", &key, "PING"],
        b"",
    );
    assert!(!shown.contains("PONG"), "{shown}");
}

/// What `farside top --once --json` answers: its status, and what it printed or said.
fn top(server: &Server, arguments: &[&str]) -> (Option<i32>, String) {
    let address = server.address.to_string();
    let shown = output(&[&["top", "--once", "--json", "--connect", &address], arguments].concat());
    let text = String::from_utf8([shown.stdout, shown.stderr].concat()).expect("text");
    (shown.status.code(), text)
}

#[test]
fn top_talks_tls() {
    let certificates = Certificates::new();
    let authority = certificates.text("ca.pem");
    let server = certificates.serve(&["--tls-client-ca", &authority]);
    let (certificate, key) = (certificates.text("client.pem"), certificates.text("client.key"));
    let known = ["--tls-ca", &authority, "--tls-cert", &certificate, "--tls-key", &key];
    for name in [&[][..], &["--tls-name", "localhost"]] {
        let (status, object) = top(&server, &[&known, name].concat());
        assert_eq!(status, Some(0), "{object}");
        let report: serde_json::Value = serde_json::from_str(&object).expect("one object");
        assert_eq!(report["address"], server.address.to_string());
    }
    let strangers = Certificates::new();
    let stranger = strangers.text("ca.pem");
    let garbage = certificates.path("garbage");
    fs::write(&garbage, "garbage").expect("a folder of ours");
    let garbage = certificates.text("garbage");
    for (arguments, hint) in [
        // It speaks TLS, and does not answer to anything else.
        (&[][..], "wants --tls-ca"),
        (&["--tls-ca", &stranger], "signed by one of --tls-ca?"),
        (&[&known[..], &["--tls-name", "elsewhere.example"]].concat(), "--tls-ca"),
        // It wants to see a certificate.
        (&["--tls-ca", &authority], "ertificate"),
        (&["--tls-ca", &garbage], "holds no certificate of an authority"),
        (&["--tls-ca", &authority, "--tls-cert", &certificate], "--tls-key"),
        (&["--tls-name", "localhost"], "--tls-ca"),
    ] {
        let (status, line) = top(&server, arguments);
        assert_eq!((status, line.lines().count()), (Some(2), 1), "{line}");
        assert!(line.contains(hint), "{hint}: {line}");
    }
    assert!(server.terminate());
}

#[test]
fn bad_files_are_named() {
    let certificates = Certificates::new();
    let garbage = certificates.path("garbage");
    fs::write(&garbage, "garbage").expect("a folder of ours");
    fs::write(
        certificates.path("broken"),
        "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n",
    )
    .expect("a folder of ours");
    for (certificate, key, hint) in [
        ("missing", "server.key", "cannot read the certificate file"),
        ("server.pem", "missing", "cannot read the private key file"),
        ("garbage", "server.key", "holds no certificate"),
        ("broken", "server.key", "holds no certificate"),
        ("server.pem", "garbage", "holds no private key"),
        ("server.pem", "server.pem", "holds no private key"),
        ("server.pem", "client.key", "cannot be used together"),
    ] {
        let (certificate, key) = (certificates.text(certificate), certificates.text(key));
        let files = ["--tls-cert", &certificate, "--tls-key", &key];
        let line = refusal(&[&["serve", "--tls-listen", "127.0.0.1:0"], &files[..]].concat());
        assert!(line.contains(hint), "{line}");
        assert!(line.contains(&certificate) || line.contains(&key), "{line}");
    }
    let line = refusal(&["serve", "--tls-listen", "127.0.0.1:0"]);
    assert!(line.contains("--tls-cert"), "{line}");
    let line = refusal(&["serve", "--tls-cert", "x", "--tls-key", "y"]);
    assert!(line.contains("--tls-listen"), "{line}");
}

#[test]
fn strangers_need_more_than_tls() {
    let certificates = Certificates::new();
    let [certificate, key] = ["server.pem", "server.key"].map(|name| certificates.text(name));
    let files = ["--tls-cert", &certificate, "--tls-key", &key];
    let line = refusal(&[&["serve", "--tls-listen", "0.0.0.0:0"], &files[..]].concat());
    assert!(
        line.contains("--auth-file") && line.contains("--tls-client-ca"),
        "{line}"
    );
}

#[test]
fn a_gateway_listens_everywhere_at_once() {
    let certificates = Certificates::new();
    let socket = certificates.text("socket");
    let server = certificates.serve(&["--listen", "127.0.0.1:0", "--unix", &socket]);
    // The plain port is named first.
    assert_eq!(server.client().ask("PING"), "+PONG\r\n");
    assert!(Path::new(&socket).exists());
    assert!(server.terminate());
}
