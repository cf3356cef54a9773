//! Unix sockets.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::client::encode;
use super::command_line::refusal;
use super::process::Server;

/// One command, and the first line of its reply.
fn ask(path: &Path, words: &[&[u8]]) -> String {
    let mut stream = UnixStream::connect(path).expect("somebody listens");
    stream.write_all(&encode(words)).expect("the server reads");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("a reply");
    line
}

#[test]
fn a_unix_socket_and_a_port_are_one_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("redis.sock");
    let server = Server::serve(&["--memory", "16MiB", "--unix", path.to_str().expect("plain")]);
    assert_eq!(ask(&path, &[b"SET", b"key", b"value"]), "+OK\r\n");
    assert_eq!(server.client().ask("GET key"), "$5\r\nvalue\r\n");
    let mut stream = UnixStream::connect(&path).expect("somebody listens");
    stream.write_all(b"PING\r\n").expect("the server reads");
    BufReader::new(&stream).read_line(&mut String::new()).expect("a reply");
    let place = format!("{}:0", path.display());
    let listed = server.client().ask("CLIENT LIST");
    assert!(listed.contains(&format!(" addr={place} laddr={place} ")), "{listed}");
    let mode = std::fs::metadata(&path).expect("it is there").mode();
    assert_eq!(mode & 0o777, 0o600, "{mode:o}");
    assert!(server.terminate());
    assert!(!path.exists(), "it is removed at the end");
}

#[test]
fn a_dead_servers_socket_is_taken_over_and_a_living_ones_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("redis.sock");
    let path_text = path.to_str().expect("plain");
    let arguments = ["serve", "--memory", "16MiB", "--threads", "1", "--unix", path_text];
    let first = Server::start_silent(&arguments);
    let line = refusal(&arguments);
    assert!(
        line.contains(path_text) && line.contains("in use") && line.contains("--unix"),
        "{line}"
    );
    assert_eq!(ask(&path, &[b"PING"]), "+PONG\r\n");
    first.kill();
    assert!(path.exists(), "nobody has removed it");
    let second = Server::start_silent(&arguments);
    assert_eq!(ask(&path, &[b"PING"]), "+PONG\r\n");
    assert!(second.terminate());
    let file = folder.path().join("file");
    std::fs::write(&file, "precious").expect("a folder of ours");
    let line = refusal(&["serve", "--memory", "16MiB", "--unix", file.to_str().expect("plain")]);
    assert!(line.contains("no socket"), "{line}");
}

#[test]
fn a_password_is_asked_for_there_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("redis.sock");
    let secret = folder.path().join("password");
    std::fs::write(&secret, "hunter2\n").expect("a folder of ours");
    let words = [path.to_str(), secret.to_str()].map(|word| word.expect("plain"));
    let _server = Server::start_silent(&[
        "serve",
        "--memory",
        "16MiB",
        "--unix",
        words[0],
        "--auth-file",
        words[1],
    ]);
    assert!(ask(&path, &[b"GET", b"key"]).starts_with("-NOAUTH"));
}
