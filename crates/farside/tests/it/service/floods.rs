//! What strangers and broken clients send: bounded memory, one error line, nobody else is harmed.

use std::io::{ErrorKind, Write};
use std::net::Shutdown;

use proptest::prelude::*;

use super::client::encode;
use super::process::Server;

/// What a misbehaving client may cost: its own buffers, and what the allocator keeps.
const COST_BYTES_MAX: u64 = 48 << 20;

fn server() -> Server {
    Server::serve(&["--memory", "64MiB"])
}

#[test]
fn absurd_announcements_are_refused_at_once() {
    let server = server();
    let before = server.private_bytes();
    for (bytes, error) in [
        (
            &b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$629145600\r\n"[..],
            "invalid bulk length",
        ),
        (b"*1000000000\r\n", "invalid multibulk length"),
        (b"*x\r\n", "invalid multibulk length"),
        (b"*1\r\n$-5\r\n", "invalid bulk length"),
        (b"*1\r\nPING\r\n", "expected '$', got 'P'"),
        (b"SET \"a\r\n", "unbalanced quotes in request"),
    ] {
        let mut client = server.client();
        client.send(bytes);
        let reply = String::from_utf8(client.receive_all()).expect("text");
        assert_eq!(reply, format!("-ERR Protocol error: {error}\r\n"));
    }
    let mut client = server.client();
    let _ = client.stream.write_all(&vec![b'x'; 200 << 10]);
    let reply = client.receive_all();
    assert!(reply.is_empty() || reply == b"-ERR Protocol error: too big inline request\r\n");
    assert!(server.private_bytes() < before + COST_BYTES_MAX);
    assert_eq!(server.client().ask("PING"), "+PONG\r\n");
}

#[test]
fn half_a_command_and_silence_costs_what_has_arrived() {
    let server = server();
    let before = server.private_bytes();
    let silent: Vec<_> = (0..200)
        .map(|_| {
            let mut client = server.client();
            client.send(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$16777216\r\nhalf a value");
            client
        })
        .collect();
    let mut other = server.client();
    for number in 1..1000 {
        assert_eq!(other.ask("INCR n"), format!(":{number}\r\n"));
    }
    assert!(server.private_bytes() < before + COST_BYTES_MAX);
    drop(silent);
    assert_eq!(other.ask("GET a"), "$-1\r\n");
}

#[test]
fn replies_that_nobody_reads_are_not_piled_up() {
    let server = server();
    let value = vec![b'v'; 100 << 10];
    server.client().call(&[b"SET", b"a", &value]);
    let before = server.private_bytes();
    let mut greedy = server.client();
    let get = encode(&[b"GET", b"a"]).repeat(1000);
    greedy.stream.set_nonblocking(true).expect("a socket");
    // 100 GB of replies are asked for, as far as the server takes the questions.
    let mut refused = 0;
    for _ in 0..1000 {
        match greedy.stream.write(&get) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => refused += 1,
            Err(error) => panic!("{error}"),
        }
        if refused > 10 {
            break;
        }
        let mut other = server.client();
        assert_eq!(other.ask("STRLEN a"), ":102400\r\n");
    }
    assert!(refused > 0, "the server stops reading from whoever does not read");
    assert!(server.private_bytes() < before + COST_BYTES_MAX);
}

#[test]
fn long_pipelines_are_answered_in_order() {
    let server = server();
    let mut client = server.client();
    let count = 50_000;
    let incr = encode(&[b"INCR", b"n"]).repeat(count);
    let mut sender = client.stream.try_clone().expect("a socket");
    let writer = std::thread::spawn(move || sender.write_all(&incr).expect("the server reads"));
    for number in 1..=count {
        assert_eq!(client.receive(), format!(":{number}\r\n").into_bytes());
    }
    writer.join().expect("no panic");
}

#[test]
fn commands_that_arrive_byte_by_byte_are_executed() {
    let server = server();
    let mut client = server.client();
    for byte in encode(&[b"SET", b"key", b"value"]) {
        client.send(&[byte]);
    }
    assert_eq!(client.receive(), b"+OK\r\n");
    // The rest of a pipeline is executed when its sender has said all it has to say.
    client.send(&encode(&[b"GET", b"key"]));
    client.stream.shutdown(Shutdown::Write).expect("a socket");
    assert_eq!(client.receive_all(), b"$5\r\nvalue\r\n");
}

#[test]
fn garbage_ends_a_connection_and_nothing_else() {
    let server = server();
    let piece = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..64),
        Just(b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n".to_vec()),
        Just(b"*3\r\n$3\r\nSET\r\n".to_vec()),
        Just(b"$5\r\n".to_vec()),
        Just(b"\r\n".to_vec()),
    ];
    let strategy = proptest::collection::vec(piece, 0..20);
    proptest!(ProptestConfig::with_cases(60), |(pieces in strategy)| {
        let mut client = server.client();
        // The server may have hung up already.
        let _ = client.stream.write_all(&pieces.concat());
        let _ = client.stream.shutdown(Shutdown::Write);
        client.receive_all();
        prop_assert_eq!(server.client().ask("PING"), "+PONG\r\n");
    });
}
