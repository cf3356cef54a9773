//! Each command: its replies, its errors, in the words of Redis 7.

use super::client::{Client, encode};
use super::process::Server;

pub(crate) const NOT_AN_INTEGER: &str = "-ERR value is not an integer or out of range\r\n";

pub(crate) fn arity(name: &str) -> String {
    format!("-ERR wrong number of arguments for '{name}' command\r\n")
}

pub(crate) fn check(client: &mut Client, table: &[(&str, &str)]) {
    for (line, expected) in table {
        assert_eq!(client.ask(line), *expected, "{line}");
    }
}

#[test]
fn strings_are_stored() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("PING", "+PONG\r\n"),
            ("ping hello", "$5\r\nhello\r\n"),
            ("ECHO x", "$1\r\nx\r\n"),
            ("GET a", "$-1\r\n"),
            ("SET a 1", "+OK\r\n"),
            ("get a", "$1\r\n1\r\n"),
            ("SET a 2 NX", "$-1\r\n"),
            ("SET a 2 XX GET", "$1\r\n1\r\n"),
            ("SET none 2 XX", "$-1\r\n"),
            ("SET new 2 NX GET", "$-1\r\n"),
            ("GETSET a 3", "$1\r\n2\r\n"),
            ("GETSET b 4", "$-1\r\n"),
            ("SETNX a 9", ":0\r\n"),
            ("SETNX c 5", ":1\r\n"),
            ("MGET a none c", "*3\r\n$1\r\n3\r\n$-1\r\n$1\r\n5\r\n"),
            ("MSET a 1 d 2 a 3", "+OK\r\n"),
            ("GET a", "$1\r\n3\r\n"),
            ("APPEND a 45", ":3\r\n"),
            ("APPEND e x", ":1\r\n"),
            ("STRLEN a", ":3\r\n"),
            ("STRLEN none", ":0\r\n"),
            ("EXISTS a a none", ":2\r\n"),
            ("DEL a none a", ":1\r\n"),
            ("DBSIZE", ":5\r\n"),
            ("FLUSHALL", "+OK\r\n"),
            ("FLUSHDB ASYNC", "+OK\r\n"),
            ("FLUSHALL sync", "+OK\r\n"),
            ("DBSIZE", ":0\r\n"),
            ("SELECT 0", "+OK\r\n"),
        ],
    );
}

#[test]
fn connections_of_a_thread_share_their_reads_and_writes() {
    const CLIENTS: usize = 8;
    const ROUNDS: usize = 60;
    let arguments = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--threads",
        "1",
        "--memory",
        "64MiB",
        "--local-wc",
    ];
    let server = Server::start(&arguments);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.client()).collect();
    for round in 0..ROUNDS {
        let values = (0..CLIENTS).map(|number| format!("{round}-{number}"));
        for (client, value) in clients.iter_mut().zip(values.clone()) {
            client.send(&[encode(&[b"SET", b"key", value.as_bytes()]), encode(&[b"GET", b"key"])].concat());
            client.send(&encode(&[b"INCR", b"count"]));
        }
        for client in &mut clients {
            assert_eq!(client.receive(), b"+OK\r\n");
            let found = String::from_utf8(client.receive()).expect("text");
            // Whoever has written in this round may have been the last.
            assert!(
                values.clone().any(|value| found.contains(&value)),
                "round {round}: {found}"
            );
            client.receive();
        }
    }
    assert_eq!(clients[0].ask("INCRBY count 0"), format!(":{}\r\n", CLIENTS * ROUNDS));
}

#[test]
fn numbers_count() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("INCR n", ":1\r\n"),
            ("INCRBY n 41", ":42\r\n"),
            ("DECR n", ":41\r\n"),
            ("DECRBY n 50", ":-9\r\n"),
            ("GET n", "$2\r\n-9\r\n"),
            ("SET n 9223372036854775807", "+OK\r\n"),
            ("INCR n", "-ERR increment or decrement would overflow\r\n"),
            ("GET n", "$19\r\n9223372036854775807\r\n"),
            ("DECRBY n -1", "-ERR increment or decrement would overflow\r\n"),
            ("DECRBY n -9223372036854775808", "-ERR decrement would overflow\r\n"),
            ("INCRBY n 1.5", NOT_AN_INTEGER),
            ("SET s text", "+OK\r\n"),
            ("INCR s", NOT_AN_INTEGER),
            ("SET s 007", "+OK\r\n"),
            ("DECR s", NOT_AN_INTEGER),
            ("SET n 999999999999999998", "+OK\r\n"),
            ("INCR n", ":999999999999999999\r\n"),
        ],
    );
}

#[test]
fn keys_expire() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("TTL a", ":-2\r\n"),
            ("SET a 1", "+OK\r\n"),
            ("TTL a", ":-1\r\n"),
            ("SET a 1 EX 1000", "+OK\r\n"),
            ("TTL a", ":1000\r\n"),
            ("SET a 2 KEEPTTL", "+OK\r\n"),
            ("TTL a", ":1000\r\n"),
            ("INCR a", ":3\r\n"),
            ("TTL a", ":1000\r\n"),
            ("SET a 2", "+OK\r\n"),
            ("PTTL a", ":-1\r\n"),
            ("SET a 1 PXAT 1000", "+OK\r\n"),
            ("GET a", "$-1\r\n"),
            ("EXISTS a", ":0\r\n"),
            ("SET a 1 PX 1", "+OK\r\n"),
            ("SET a 1 EX 0", "-ERR invalid expire time in 'set' command\r\n"),
            ("SET a 1 PX -5", "-ERR invalid expire time in 'set' command\r\n"),
            (
                "SET a 1 EX 9223372036854775807",
                "-ERR invalid expire time in 'set' command\r\n",
            ),
            ("SET a 1 EX x", NOT_AN_INTEGER),
        ],
    );
    while client.ask("GET a") != "$-1\r\n" {}
}

#[test]
fn wrong_words_get_the_errors_of_redis() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("FOO", "-ERR unknown command 'FOO', with args beginning with: \r\n"),
            (
                "foo bar baz",
                "-ERR unknown command 'foo', with args beginning with: 'bar' 'baz' \r\n",
            ),
            ("SET a 1 WHAT", "-ERR syntax error\r\n"),
            ("SET a 1 NX XX", "-ERR syntax error\r\n"),
            ("SET a 1 EX", "-ERR syntax error\r\n"),
            ("FLUSHALL now", "-ERR syntax error\r\n"),
            ("SELECT 1", "-ERR DB index is out of range\r\n"),
            ("SELECT x", NOT_AN_INTEGER),
            ("PING a b", &arity("ping")),
            ("MSET a 1 b", &arity("mset")),
            ("HELLO x", "-ERR Protocol version is not an integer or out of range\r\n"),
            ("HELLO 4", "-NOPROTO unsupported protocol version\r\n"),
            ("HELLO 2 what", "-ERR Syntax error in HELLO option 'what'\r\n"),
            ("CLIENT what", "-ERR unknown subcommand 'what'. Try CLIENT HELP.\r\n"),
            ("CLIENT id x", &arity("client|id")),
            ("CONFIG what", "-ERR unknown subcommand 'what'. Try CONFIG HELP.\r\n"),
            ("CONFIG get", &arity("config|get")),
            ("COMMAND what", "-ERR unknown subcommand 'what'. Try COMMAND HELP.\r\n"),
            ("CLIENT SETINFO lib-what x", "-ERR Unrecognized option 'lib-what'\r\n"),
        ],
    );
    let long = "x".repeat(200);
    let expected = format!(
        "-ERR unknown command '{}', with args beginning with: '{}' \r\n",
        &long[..128],
        &long[..128]
    );
    assert_eq!(client.ask(&format!("{long} {long} {long}")), expected);
}

#[test]
fn every_command_checks_its_arity() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    let names = String::from_utf8(client.call(&[b"COMMAND", b"LIST"])).expect("text");
    let names: Vec<&str> = names
        .split("\r\n")
        .filter(|line| !line.is_empty() && !line.starts_with(['*', '$']))
        .collect();
    assert!(names.len() > 50, "{names:?}");
    for name in names {
        let info = client.ask(&format!("COMMAND INFO {name}"));
        let arity_line = info
            .split("\r\n")
            .find_map(|line| line.strip_prefix(':'))
            .expect("an arity");
        let count: i64 = arity_line.parse().expect("a number");
        let wrong = match count {
            1.. => vec![count - 1, count + 1],
            _ => vec![-count - 1],
        };
        for count in wrong.into_iter().filter(|&count| count > 0) {
            let words = [vec![name], vec!["x"; count as usize - 1]].concat();
            let wanted = match name {
                // As in Redis, whatever is wrong with it says that nothing is executed.
                "exec" => arity(name).replace("-ERR", "-EXECABORT Transaction discarded because of:"),
                _ => arity(name),
            };
            assert_eq!(client.ask(&words.join(" ")), wanted, "{words:?}");
        }
    }
}

#[test]
fn both_protocols_and_inline_commands_are_spoken() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    let hello = client.ask("HELLO");
    assert!(
        hello.starts_with("*14\r\n$6\r\nserver\r\n") && hello.contains("$5\r\nproto\r\n:2\r\n"),
        "{hello}"
    );
    let hello = client.ask("HELLO 3 SETNAME me");
    assert!(
        hello.starts_with("%7\r\n") && hello.contains("$5\r\nproto\r\n:3\r\n"),
        "{hello}"
    );
    check(
        &mut client,
        &[
            ("GET none", "_\r\n"),
            ("MGET none", "*1\r\n_\r\n"),
            ("CLIENT GETNAME", "$2\r\nme\r\n"),
            ("CONFIG GET save", "%1\r\n$4\r\nsave\r\n$0\r\n\r\n"),
        ],
    );
    client.ask("HELLO 2");
    assert_eq!(client.ask("GET none"), "$-1\r\n");
    client.send(b"PING\r\n\r\nset \"a b\" 'c d'\nGET \"a b\"\r\n");
    assert_eq!(
        (client.receive(), client.receive(), client.receive()),
        (b"+PONG\r\n".to_vec(), b"+OK\r\n".to_vec(), b"$3\r\nc d\r\n".to_vec())
    );
    assert_eq!(client.ask("QUIT"), "+OK\r\n");
    assert_eq!(client.receive_all(), b"");
}

#[test]
fn long_values_come_back_in_their_order() {
    let server = Server::serve(&["--memory", "256MiB"]);
    let mut client = server.client();
    let value = |bytes: usize| -> Vec<u8> { (0..bytes).map(|index| (index % 251) as u8).collect() };
    let sizes = [10, (128 << 10) - 1, 128 << 10, 300_000, 1 << 20, 3_000_000, 20];
    let names: Vec<String> = sizes.iter().map(|bytes| format!("{bytes} bytes")).collect();
    let bulk = |bytes: usize| [format!("${bytes}\r\n").as_bytes(), &value(bytes), b"\r\n"].concat();
    // Small ones behind a long one wait with it; a long one is read to its end, and no further.
    let sets = names
        .iter()
        .zip(sizes)
        .map(|(name, bytes)| encode(&[b"SET", name.as_bytes(), &value(bytes), b"KEEPTTL"]));
    for piece in sets.collect::<Vec<_>>().concat().chunks(70_001) {
        client.send(piece);
    }
    for _ in sizes {
        assert_eq!(client.receive(), b"+OK\r\n");
    }
    let all = || sizes.into_iter().map(bulk);
    let gets: Vec<Vec<u8>> = names.iter().map(|name| encode(&[b"GET", name.as_bytes()])).collect();
    // One by one, together, with others in between, and as one.
    for (get, expected) in gets.iter().zip(all()) {
        client.send(get);
        assert!(client.receive() == expected, "{}", expected.len());
    }
    client.send(&gets.concat());
    for expected in all() {
        assert!(client.receive() == expected, "{}", expected.len());
    }
    client.send(&gets.join(&b"PING\r\n"[..]));
    for (number, expected) in all().enumerate() {
        if number > 0 {
            assert_eq!(client.receive(), b"+PONG\r\n");
        }
        assert!(client.receive() == expected, "{}", expected.len());
    }
    client.send(&[&b"MULTI\r\n"[..], &gets.concat(), b"EXEC\r\n"].concat());
    assert_eq!(client.receive(), b"+OK\r\n");
    for _ in sizes {
        assert_eq!(client.receive(), b"+QUEUED\r\n");
    }
    let together = [b"*7\r\n".to_vec(), all().collect::<Vec<_>>().concat()].concat();
    assert!(client.receive() == together);
    client.send(&[&b"CLIENT REPLY OFF\r\n"[..], &gets.concat(), b"CLIENT REPLY ON\r\n"].concat());
    assert_eq!(client.receive(), b"+OK\r\n");
}

#[test]
fn tools_find_what_they_ask_for() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    client.ask("SET a 1");
    client.ask("GET a");
    let info = client.ask("INFO");
    for line in [
        "redis_version:7",
        "farside_version:",
        "connected_clients:1",
        "maxmemory:67108864",
        "keyspace_hits:1",
        "db0:keys=1,",
        "total_connections_received:1",
        "cluster_enabled:0",
        "# Keyspace",
    ] {
        assert!(info.contains(line), "{line} in {info}");
    }
    assert!(!client.ask("INFO server").contains("# Memory"));
    assert_eq!(
        client.ask("CONFIG GET appendonly"),
        "*2\r\n$10\r\nappendonly\r\n$2\r\nno\r\n"
    );
    assert!(client.ask("COMMAND").starts_with('*'));
    assert!(client.ask("COMMAND DOCS get").contains("summary"));
    assert_eq!(client.ask("COMMAND INFO none"), "*1\r\n$-1\r\n");
    assert_eq!(client.ask("CLIENT SETINFO lib-name test"), "+OK\r\n");
    assert_eq!(
        client.ask("CLIENT SETNAME a\tb"),
        "-ERR Client names cannot contain spaces, newlines or special characters.\r\n"
    );
}

#[test]
fn keys_and_values_are_any_bytes_of_any_length() {
    let server = Server::serve(&["--memory", "256MiB"]);
    let mut client = server.client();
    assert_eq!(client.call(&[b"SET", b"", b""]), b"+OK\r\n");
    assert_eq!(client.call(&[b"GET", b""]), b"$0\r\n\r\n");
    let key = [b"\r\n\0\xff".as_slice(), &vec![b'k'; (64 << 10) - 4]].concat();
    let value: Vec<u8> = (0..16 << 20).map(|byte| byte as u8).collect();
    assert_eq!(client.call(&[b"SET", &key, &value]), b"+OK\r\n");
    let reply = client.call(&[b"GET", &key]);
    assert!(reply.starts_with(b"$16777216\r\n") && reply[11..reply.len() - 2] == value);
    let reply = client.call(&[b"MGET", &key, b"", &key]);
    assert_eq!(reply.len(), 4 + 2 * (11 + value.len() + 2) + 6);
    assert!(
        client
            .call(&[b"SET", &[key.as_slice(), b"k"].concat(), b""])
            .starts_with(b"-ERR the key has 65537 bytes")
    );
    assert_eq!(
        client.call(&[b"APPEND", &key, b"x"]),
        b"-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n"
    );
    assert_eq!(client.call(&[b"STRLEN", &key]), b":16777216\r\n");
}

#[test]
fn many_keys_of_one_command_keep_their_order() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    let keys: Vec<String> = (0..1000).map(|number| format!("key{number}")).collect();
    let mut mset: Vec<&[u8]> = vec![b"MSET"];
    for key in keys.iter().step_by(2) {
        mset.extend([key.as_bytes(), key.as_bytes()]);
    }
    assert_eq!(client.call(&mset), b"+OK\r\n");
    let mget: Vec<&[u8]> = std::iter::once(&b"MGET"[..])
        .chain(keys.iter().map(String::as_bytes))
        .collect();
    let expected: String = (keys.iter().enumerate())
        .map(|(index, key)| {
            if index % 2 == 0 {
                format!("${}\r\n{key}\r\n", key.len())
            } else {
                "$-1\r\n".to_owned()
            }
        })
        .collect();
    assert_eq!(
        String::from_utf8_lossy(&client.call(&mget)),
        format!("*1000\r\n{expected}")
    );
}

#[test]
fn full_memory_is_an_error_and_service_goes_on() {
    let server = Server::serve(&["--memory", "16MiB"]);
    let mut client = server.client();
    let value = vec![b'v'; 100 << 10];
    let mut stored = 0_u64;
    let refusal = loop {
        let reply = client.call(&[b"SET", format!("key{stored}").as_bytes(), &value]);
        if reply != b"+OK\r\n" {
            break reply;
        }
        stored += 1;
    };
    assert_eq!(refusal, b"-OOM command not allowed when used memory > 'maxmemory'.\r\n");
    assert!(stored > 10);
    for number in 0..stored {
        let key = format!("key{number}");
        assert_eq!(
            client.call(&[b"STRLEN", key.as_bytes()]),
            format!(":{}\r\n", value.len()).into_bytes()
        );
    }
    // Overwriting and deleting still work, and make room.
    assert_eq!(client.call(&[b"SET", b"key0", &value]), b"+OK\r\n");
    for number in 0..stored {
        assert_eq!(client.ask(&format!("DEL key{number}")), ":1\r\n");
    }
    assert_eq!(client.call(&[b"SET", b"again", &value]), b"+OK\r\n");
}

#[test]
fn password_is_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("password");
    std::fs::write(&path, " open sesame\n").expect("writable");
    let server = Server::serve(&["--memory", "64MiB", "--auth-file", path.to_str().expect("text")]);
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("GET a", "-NOAUTH Authentication required.\r\n"),
            ("FOO", "-ERR unknown command 'FOO', with args beginning with: \r\n"),
            ("GET", &arity("get")),
            (
                "AUTH wrong",
                "-WRONGPASS invalid username-password pair or user is disabled.\r\n",
            ),
            ("AUTH a b c", "-ERR syntax error\r\n"),
        ],
    );
    assert!(
        client
            .ask("HELLO 3")
            .starts_with("-NOAUTH HELLO must be called with the client already authenticated")
    );
    assert_eq!(client.call(&[b"AUTH", b"default", b"open sesame"]), b"+OK\r\n");
    assert_eq!(client.ask("GET a"), "$-1\r\n");
    let mut other = server.client();
    assert!(
        other
            .call(&[b"HELLO", b"3", b"AUTH", b"default", b"open sesame"])
            .starts_with(b"%7")
    );
    let mut stranger = server.client();
    stranger.send(b"*11\r\n");
    assert_eq!(
        stranger.receive_all(),
        b"-ERR Protocol error: unauthenticated multibulk length\r\n"
    );
    let open = Server::serve(&["--memory", "64MiB"]);
    assert!(
        open.client()
            .ask("AUTH x")
            .starts_with("-ERR AUTH <password> called without any password configured")
    );
}

#[test]
fn sets_of_one_burst_are_executed_in_order_with_what_stands_between_them() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    let mut sent = Vec::new();
    let mut expected = Vec::new();
    for number in 0..100_u32 {
        let key = format!("key{}", number % 9);
        let long = vec![b'l'; 3000 * (number as usize % 5)];
        // One key several times among sixteen, values that grow and shrink, and keys that expire.
        for value in [number.to_string().as_bytes(), &long, b"last"] {
            sent.extend(encode(&[b"SET", key.as_bytes(), value]));
            expected.extend(b"+OK\r\n");
        }
        match number % 5 {
            0 => {
                sent.extend(encode(&[b"GET", key.as_bytes()]));
                expected.extend(b"$4\r\nlast\r\n");
            }
            1 => {
                sent.extend(encode(&[b"SET", key.as_bytes(), b"x", b"EX", b"100"]));
                expected.extend(b"+OK\r\n");
            }
            2 => {
                sent.extend(encode(&[b"SET", key.as_bytes()]));
                expected.extend(arity("set").bytes());
            }
            3 => {
                sent.extend(encode(&[b"DEL", key.as_bytes()]));
                expected.extend(b":1\r\n");
            }
            _ => {
                sent.extend(encode(&[b"SET", &[b'k'; 70_000], b"x"]));
                expected.extend(b"-ERR the key has 70000 bytes, at most 65536 are allowed\r\n");
            }
        }
    }
    sent.extend(encode(&[b"QUIT"]));
    expected.extend(b"+OK\r\n");
    client.send(&sent);
    let received = client.receive_all();
    assert!(received == expected, "{}", String::from_utf8_lossy(&received));
}

#[test]
fn gets_of_one_burst_are_answered_in_order_with_what_stands_between_them() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    let long = vec![b'l'; 200 << 10];
    client.call(&[b"SET", b"long", &long]);
    let mut sent = Vec::new();
    let mut expected = Vec::new();
    for number in 0..100 {
        let key = format!("key{number}");
        sent.extend(encode(&[b"GET", key.as_bytes()]));
        expected.extend(b"$-1\r\n");
        if number % 7 == 0 {
            sent.extend(encode(&[b"SET", key.as_bytes(), key.as_bytes()]));
            expected.extend(b"+OK\r\n");
        }
        sent.extend(encode(&[b"get", key.as_bytes()]));
        match number % 7 {
            0 => expected.extend(format!("${}\r\n{key}\r\n", key.len()).bytes()),
            _ => expected.extend(b"$-1\r\n"),
        }
        if number % 11 == 0 {
            sent.extend(encode(&[b"GET", b"long"]));
            expected.extend(
                format!("${}\r\n", long.len())
                    .bytes()
                    .chain(long.iter().copied())
                    .chain(*b"\r\n"),
            );
        }
        if number % 13 == 0 {
            sent.extend(encode(&[b"GET"]));
            expected.extend(arity("get").bytes());
        }
    }
    sent.extend(encode(&[b"QUIT"]));
    expected.extend(b"+OK\r\n");
    client.send(&sent);
    assert!(client.receive_all() == expected);
}
