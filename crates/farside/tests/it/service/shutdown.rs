//! The end of a server that is in use.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};

use super::client::{Client, encode};
use super::process::Server;

/// Bursts of numbered SETs; returns how many were acknowledged before the server hung up. Whatever
/// comes back is `+OK`, line after line: nothing is cut off, and no reply is lost that was written.
fn write_until_the_end(mut client: Client, name: usize, is_going: &AtomicBool) -> u64 {
    let mut sent = 0_u64;
    let mut acknowledged = 0;
    loop {
        let burst: Vec<u8> = (sent..sent + 16)
            .flat_map(|number| encode(&[b"SET", format!("{name}").as_bytes(), format!("{number}").as_bytes()]))
            .collect();
        sent += 16;
        if client.stream.write_all(&burst).is_err() {
            break;
        }
        for _ in 0..16 {
            match client.try_line() {
                Some(line) => assert_eq!(line, "+OK\r\n"),
                None => return acknowledged,
            }
            acknowledged += 1;
            is_going.store(true, Ordering::Relaxed);
        }
    }
    acknowledged
}

#[test]
fn under_load_every_acknowledged_write_is_kept_and_at_most_a_burst_is_in_doubt() {
    const CLIENTS: usize = 8;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("segment");
    let path = path.to_str().expect("plain");
    let server = Server::serve(&["--segment", path, "--memory", "64MiB"]);
    let idle = TcpStream::connect(server.address).expect("it listens");
    let going: Vec<AtomicBool> = (0..CLIENTS).map(|_| AtomicBool::new(false)).collect();
    let acknowledged: Vec<u64> = std::thread::scope(|scope| {
        let writers: Vec<_> = (going.iter().enumerate())
            .map(|(name, is_going)| {
                let client = server.client();
                scope.spawn(move || write_until_the_end(client, name, is_going))
            })
            .collect();
        while !going.iter().all(|is_going| is_going.load(Ordering::Relaxed)) {
            std::thread::yield_now();
        }
        assert!(server.terminate(), "it ends well, whoever is connected");
        writers
            .into_iter()
            .map(|writer| writer.join().expect("no panic"))
            .collect()
    });
    drop(idle);
    let server = Server::serve(&["--segment", path]);
    let mut client = server.client();
    for (name, acknowledged) in acknowledged.into_iter().enumerate() {
        let reply = client.ask(&format!("GET {name}"));
        let value = reply.lines().nth(1).expect("a value");
        let value: u64 = value.parse().expect("a number");
        // What was executed was also answered, and the answer arrived.
        assert_eq!(value + 1, acknowledged, "client {name}");
    }
}

#[test]
fn replies_that_were_not_read_yet_are_still_there_after_the_end() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let value = vec![b'x'; 1 << 20];
    let mut client = server.client();
    client.call(&[b"SET", b"key", &value]);
    // More than the buffers of the sockets hold, so that the server is not done with it.
    let reply_bytes = value.len() + "$1048576\r\n\r\n".len();
    let gets = encode(&[b"GET", b"key"]).repeat(8);
    client.stream.write_all(&gets).expect("short");
    let first = client.receive();
    assert_eq!(first.len(), reply_bytes);
    let ended = std::thread::spawn(move || server.terminate());
    let rest = client.receive_all();
    assert!(ended.join().expect("no panic"));
    // Whole replies; commands that were not begun are not answered.
    assert!(rest.len().is_multiple_of(reply_bytes), "{} bytes", rest.len());
}
