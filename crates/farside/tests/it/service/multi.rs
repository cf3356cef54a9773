//! MULTI, EXEC, DISCARD, WATCH, UNWATCH, and MSETNX and RENAMENX, which are transactions of their own.
//!
//! What it verifies: replies and errors are those of Redis 7.0; a transaction is all or nothing and seen at one instant, by clients of
//! other gateways, too; whoever goes away in the middle leaves nothing half done.

use std::io::Write;

use super::client::{Client, encode};
use super::commands::{NOT_AN_INTEGER, arity, check};
use super::process::{Server, output};

const QUEUED: &str = "+QUEUED\r\n";
const EXEC_WITH_ARGUMENTS: &str =
    "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command\r\n";
const ABORTED: &str = "-EXECABORT Transaction discarded because of previous errors.\r\n";

fn serve() -> Server {
    Server::serve(&["--memory", "64MiB"])
}

#[test]
fn commands_wait_and_are_executed_as_one() {
    let server = serve();
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("MULTI", "+OK\r\n"),
            ("SET a 1", QUEUED),
            ("GET a", QUEUED),
            ("INCRBY a 41", QUEUED),
            ("SET b x EX 100", QUEUED),
            ("TTL b", QUEUED),
            ("PING hello", QUEUED),
            ("GETDEL b", QUEUED),
            ("MGET a b", QUEUED),
            ("EXISTS a b a", QUEUED),
            ("APPEND a 0", QUEUED),
            ("GETEX a PERSIST", QUEUED),
            ("RENAME a c", QUEUED),
            ("COPY c d", QUEUED),
            ("MSETNX e 1 c 2", QUEUED),
            ("MSET e 1 f 2", QUEUED),
            ("DEL e f g", QUEUED),
            ("STRLEN c", QUEUED),
            ("TYPE d", QUEUED),
            ("ECHO bye", QUEUED),
        ],
    );
    // Nothing has happened yet.
    assert_eq!(server.client().ask("EXISTS a b c d"), ":0\r\n");
    let replies = [
        "+OK\r\n",
        "$1\r\n1\r\n",
        ":42\r\n",
        "+OK\r\n",
        ":100\r\n",
        "$5\r\nhello\r\n",
        "$1\r\nx\r\n",
        "*2\r\n$2\r\n42\r\n$-1\r\n",
        ":2\r\n",
        ":3\r\n",
        "$3\r\n420\r\n",
        "+OK\r\n",
        ":1\r\n",
        ":0\r\n",
        "+OK\r\n",
        ":2\r\n",
        ":3\r\n",
        "+string\r\n",
        "$3\r\nbye\r\n",
    ];
    assert_eq!(client.ask("EXEC"), format!("*19\r\n{}", replies.concat()));
    check(
        &mut client,
        &[
            ("MGET a c d e", "*4\r\n$-1\r\n$3\r\n420\r\n$3\r\n420\r\n$-1\r\n"),
            ("MULTI", "+OK\r\n"),
            ("EXEC", "*0\r\n"),
            ("MULTI", "+OK\r\n"),
            ("SET c 1", QUEUED),
            ("DISCARD", "+OK\r\n"),
            ("GET c", "$3\r\n420\r\n"),
            ("MULTI", "+OK\r\n"),
            ("PING", QUEUED),
            ("EXEC", "*1\r\n+PONG\r\n"),
        ],
    );
}

#[test]
fn nothing_is_left_of_keys_that_were_only_looked_for() {
    let server = serve();
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("MULTI", "+OK\r\n"),
            ("GET a", QUEUED),
            ("EXISTS b c", QUEUED),
            ("DEL d", QUEUED),
            ("EXEC", "*3\r\n$-1\r\n:0\r\n:0\r\n"),
            ("DBSIZE", ":0\r\n"),
            ("MULTI", "+OK\r\n"),
            ("GET a", QUEUED),
            ("SET b 1", QUEUED),
            ("SET d 1 XX", QUEUED),
            ("EXEC", "*3\r\n$-1\r\n+OK\r\n$-1\r\n"),
            ("DBSIZE", ":1\r\n"),
            ("MSETNX a 1 b 2 c 3", ":0\r\n"),
            ("RENAME a c", "-ERR no such key\r\n"),
            ("DBSIZE", ":1\r\n"),
        ],
    );
}

#[test]
fn errors_are_those_of_redis() {
    let server = serve();
    let not_an_integer = format!("*3\r\n+OK\r\n{NOT_AN_INTEGER}+OK\r\n");
    check(
        &mut server.client(),
        &[
            ("EXEC", "-ERR EXEC without MULTI\r\n"),
            ("DISCARD", "-ERR DISCARD without MULTI\r\n"),
            // Neither of them ends a watch.
            ("SET watched 1", "+OK\r\n"),
            ("WATCH watched", "+OK\r\n"),
            ("EXEC", "-ERR EXEC without MULTI\r\n"),
            ("DISCARD", "-ERR DISCARD without MULTI\r\n"),
            ("SET watched 2", "+OK\r\n"),
            ("MULTI", "+OK\r\n"),
            ("SET watched 3", QUEUED),
            ("EXEC", "*-1\r\n"),
            ("MULTI x", &arity("multi")),
            ("WATCH", &arity("watch")),
            // What is wrong with one of them refuses all.
            ("MULTI", "+OK\r\n"),
            ("SET a 1", QUEUED),
            ("GET", &arity("get")),
            ("SET b 1", QUEUED),
            ("EXEC", ABORTED),
            ("EXISTS a b", ":0\r\n"),
            ("MULTI", "+OK\r\n"),
            (
                "XLEN l",
                "-ERR unknown command 'XLEN', with args beginning with: 'l' \r\n",
            ),
            ("EXEC", ABORTED),
            ("MULTI", "+OK\r\n"),
            (
                "KEYS *",
                "-ERR Command not allowed inside a transaction: it looks at more keys than those that it names\r\n",
            ),
            ("EXEC", ABORTED),
            // Neither does nesting, nor watching too late.
            ("MULTI", "+OK\r\n"),
            ("MULTI", "-ERR MULTI calls can not be nested\r\n"),
            ("WATCH a", "-ERR WATCH inside MULTI is not allowed\r\n"),
            ("SET a 1", QUEUED),
            ("EXEC", "*1\r\n+OK\r\n"),
            // A command that fails when it is executed leaves the others alone.
            ("MULTI", "+OK\r\n"),
            ("SET a text", QUEUED),
            ("INCR a", QUEUED),
            ("SET b 2", QUEUED),
            ("EXEC", &not_an_integer),
            ("MGET a b", "*2\r\n$4\r\ntext\r\n$1\r\n2\r\n"),
            // EXEC with an argument ends it, too.
            ("MULTI", "+OK\r\n"),
            ("SET a 3", QUEUED),
            ("EXEC x", EXEC_WITH_ARGUMENTS),
            ("EXEC", "-ERR EXEC without MULTI\r\n"),
            ("WATCH a", "+OK\r\n"),
            ("EXEC x", EXEC_WITH_ARGUMENTS),
            ("SET a text", "+OK\r\n"),
            ("MULTI", "+OK\r\n"),
            ("GET a", QUEUED),
            ("EXEC", "*1\r\n$4\r\ntext\r\n"),
            // RESET forgets what waits.
            ("MULTI", "+OK\r\n"),
            ("SET a 3", QUEUED),
            ("RESET", "+RESET\r\n"),
            ("GET a", "$4\r\ntext\r\n"),
            ("EXEC", "-ERR EXEC without MULTI\r\n"),
        ],
    );
}

#[test]
fn a_watched_key_that_changed_ends_it() {
    let server = serve();
    let (mut client, mut other) = (server.client(), server.client());
    client.ask("SET a 1");
    // What others do to the key after WATCH, and whether EXEC goes on.
    let cases = [
        ("SET a 2", false),
        ("SET a 2", false),
        ("EXPIRE a 1000", false),
        ("PERSIST a", false),
        ("DEL a", false),
        ("DEL a", true),
        ("SET a 1", false),
        ("SET b 1", true),
        ("GET a", true),
        ("TOUCH a", true),
        ("COPY b a REPLACE", false),
        ("RENAME a c", false),
        ("FLUSHALL", true),
        ("SET a 1", false),
        ("FLUSHALL", false),
    ];
    for (change, goes_on) in cases {
        assert_eq!(client.ask("WATCH a"), "+OK\r\n");
        other.ask(change);
        assert_eq!(client.ask("MULTI"), "+OK\r\n");
        assert_eq!(client.ask("SET done 1"), QUEUED);
        let expected = if goes_on { "*1\r\n+OK\r\n" } else { "*-1\r\n" };
        assert_eq!(client.ask("EXEC"), expected, "{change}");
        assert_eq!(
            client.ask("DEL done"),
            format!(":{}\r\n", u8::from(goes_on)),
            "{change}"
        );
    }
    // Nothing is watched after EXEC, DISCARD, UNWATCH; what the client changes itself counts.
    client.ask("SET a 1");
    for (end, goes_on) in [
        (&["MULTI", "EXEC"][..], true),
        (&["MULTI", "DISCARD"], true),
        (&["UNWATCH"], true),
        (&["RESET"], true),
        (&["PING"], false),
    ] {
        assert_eq!(client.ask("WATCH a b a"), "+OK\r\n");
        end.iter().for_each(|command| drop(client.ask(command)));
        client.ask("INCR a");
        client.ask("MULTI");
        client.ask("GET b");
        let expected = if goes_on { "*1\r\n$-1\r\n" } else { "*-1\r\n" };
        assert_eq!(client.ask("EXEC"), expected, "{end:?}");
    }
    // A key that expires meanwhile has changed; one that had expired before has not.
    client.ask("SET e 1 PX 30");
    client.ask("WATCH e");
    while client.ask("EXISTS e") == ":1\r\n" {}
    client.ask("MULTI");
    client.ask("PING");
    assert_eq!(client.ask("EXEC"), "*-1\r\n");
    client.ask("WATCH e");
    other.ask("DEL e");
    client.ask("MULTI");
    client.ask("PING");
    assert_eq!(client.ask("EXEC"), "*1\r\n+PONG\r\n");
    // RESP3 has one nothing.
    client.send(&encode(&[b"HELLO", b"3"]));
    client.receive();
    client.ask("WATCH a");
    other.ask("INCR a");
    client.ask("MULTI");
    assert_eq!(client.ask("EXEC"), "_\r\n");
    client.ask("MULTI");
    client.ask("GET none");
    assert_eq!(client.ask("EXEC"), "*1\r\n_\r\n");
}

#[test]
fn a_burst_is_queued_like_commands_one_by_one() {
    let server = serve();
    let mut client = server.client();
    // GETs of a burst are otherwise answered together.
    client.send(
        [
            &["SET", "a", "1"][..],
            &["MULTI"],
            &["GET", "a"],
            &["GET", "a"],
            &["INCR", "a"],
            &["GET", "a"],
            &["EXEC"],
            &["GET", "a"],
            &["GET", "b"],
        ]
        .map(|words| encode(&words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>()))
        .concat()
        .as_slice(),
    );
    for expected in [
        "+OK\r\n",
        "+OK\r\n",
        QUEUED,
        QUEUED,
        QUEUED,
        QUEUED,
        "*4\r\n$1\r\n1\r\n$1\r\n1\r\n:2\r\n$1\r\n2\r\n",
        "$1\r\n2\r\n",
        "$-1\r\n",
    ] {
        assert_eq!(String::from_utf8_lossy(&client.receive()), expected);
    }
    // Whoever wants no replies gets none.
    client.send(b"CLIENT REPLY OFF\r\nMULTI\r\nSET a 5\r\nEXEC\r\nCLIENT REPLY ON\r\nGET a\r\n");
    assert_eq!(client.receive(), b"+OK\r\n");
    assert_eq!(client.receive(), b"$1\r\n5\r\n");
    // Others see that commands wait.
    client.ask("MULTI");
    client.ask("GET a");
    let list = server.client().ask("CLIENT LIST");
    assert!(list.contains(" multi=1 ") && list.contains(" flags=x "), "{list}");
}

#[test]
fn limits_are_told_and_nothing_is_half_done() {
    let server = Server::serve(&["--memory", "256MiB"]);
    let mut client = server.client();
    let set = |number: u32| encode(&[b"SET", format!("key{number}").as_bytes(), b"v"]);
    // Many keys.
    client.ask("MULTI");
    client.send(&(0..10_000).flat_map(set).collect::<Vec<_>>());
    (0..10_000).for_each(|_| assert_eq!(client.receive(), QUEUED.as_bytes()));
    assert_eq!(client.ask("EXEC"), format!("*10000\r\n{}", "+OK\r\n".repeat(10_000)));
    assert_eq!(client.ask("DBSIZE"), ":10000\r\n");
    // Too many.
    client.ask("MULTI");
    client.ask("SET first 1");
    client.send(&(0..65_536).flat_map(set).collect::<Vec<_>>());
    (0..65_536).for_each(|_| assert_eq!(client.receive(), QUEUED.as_bytes()));
    assert_eq!(
        client.ask("EXEC"),
        "-EXECABORT Transaction discarded because of: ERR the transaction names 65537 keys, at most 65536 are allowed\r\n"
    );
    assert_eq!(client.ask("EXISTS first"), ":0\r\n");
    // A value that becomes too long in the middle, and one that is.
    let half = vec![b'v'; 9 << 20];
    client.ask("MULTI");
    client.call(&[b"SET", b"large", &half]);
    client.call(&[b"APPEND", b"large", &half]);
    client.call(&[b"SET", b"small", b"1"]);
    assert_eq!(
        client.ask("EXEC"),
        "*3\r\n+OK\r\n-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n+OK\r\n"
    );
    assert_eq!(client.ask("STRLEN large"), format!(":{}\r\n", half.len()));
    client.ask("MULTI");
    client.ask("SET small 2");
    client.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$99999999\r\n");
    assert_eq!(client.receive(), b"-ERR Protocol error: invalid bulk length\r\n");
    assert_eq!(server.client().ask("GET small"), "$1\r\n1\r\n");
    // More than memory holds: the values before are still there.
    let mut client = server.client();
    client.ask("MULTI");
    for number in 0..25 {
        let value = vec![b'w'; 10 << 20];
        assert_eq!(
            client.call(&[b"SET", format!("key{number}").as_bytes(), &value]),
            QUEUED.as_bytes()
        );
    }
    assert_eq!(
        client.ask("EXEC"),
        "-EXECABORT Transaction discarded because of: OOM command not allowed when used memory > 'maxmemory'.\r\n"
    );
    assert_eq!(client.ask("MGET key0 key24"), "*2\r\n$1\r\nv\r\n$1\r\nv\r\n");
    // At the limit of memory, what needs none goes on.
    client.ask("CONFIG SET maxmemory 1mb");
    client.ask("MULTI");
    client.ask("EXPIRE key1 1000");
    client.ask("SET key2 w");
    client.ask("DEL key24");
    assert_eq!(client.ask("EXEC"), "*3\r\n:1\r\n+OK\r\n:1\r\n");
    client.ask("MULTI");
    client.ask("SET key2 longer");
    client.ask("SET key3 longer");
    let refused = client.ask("EXEC");
    assert!(
        refused.starts_with("-EXECABORT Transaction discarded because of: OOM"),
        "{refused}"
    );
    client.ask("CONFIG SET maxmemory 0");
    assert_eq!(client.ask("MGET key2 key3"), "*2\r\n$1\r\nw\r\n$1\r\nv\r\n");
    // A key that is too long.
    client.ask("MULTI");
    let refused = client.call(&[b"SET", &vec![b'k'; (64 << 10) + 1], b"v"]);
    assert_eq!(refused, b"-ERR the key has 65537 bytes, at most 65536 are allowed\r\n");
    assert_eq!(client.ask("EXEC"), ABORTED);
    // More than may wait.
    client.ask("MULTI");
    let value = vec![b'w'; 16 << 20];
    let replies: Vec<_> = (0..17).map(|_| client.call(&[b"SET", b"key0", &value])).collect();
    assert_eq!(replies[0], QUEUED.as_bytes());
    let last = String::from_utf8_lossy(&replies[16]);
    assert_eq!(
        last,
        "-ERR too many commands: at most 256 MiB of them may wait for EXEC\r\n"
    );
    assert_eq!(client.ask("EXEC"), ABORTED);
    assert_eq!(client.ask("GET key0"), "$1\r\nv\r\n");
    // More than is replied at once.
    client.ask("MULTI");
    client.ask("SET key0 w");
    client.ask(&format!("MGET{}", " large".repeat(30)));
    assert_eq!(
        client.ask("EXEC"),
        "-EXECABORT Transaction discarded because of: ERR the replies are longer than 256 MiB\r\n"
    );
    assert_eq!(client.ask("GET key0"), "$1\r\nv\r\n");
}

#[test]
fn several_keys_are_claimed_at_once() {
    let server = serve();
    check(
        &mut server.client(),
        &[
            ("MSETNX a 1 b 2", ":1\r\n"),
            ("MSETNX c 1 b 3", ":0\r\n"),
            ("MGET a b c", "*3\r\n$1\r\n1\r\n$1\r\n2\r\n$-1\r\n"),
            ("MSETNX d 1 d 2", ":1\r\n"),
            ("GET d", "$1\r\n2\r\n"),
            ("MSETNX a", &arity("msetnx")),
            ("MSETNX a 1 b", &arity("msetnx")),
            ("RENAMENX a b", ":0\r\n"),
            ("EXPIRE a 100", ":1\r\n"),
            ("RENAMENX a c", ":1\r\n"),
            ("TTL c", ":100\r\n"),
            ("RENAMENX c c", ":0\r\n"),
            ("RENAMENX a c", "-ERR no such key\r\n"),
            ("MGET a b c", "*3\r\n$-1\r\n$1\r\n2\r\n$1\r\n1\r\n"),
        ],
    );
    // Who claims by either has claimed alone.
    std::thread::scope(|scope| {
        let claim = |command: &'static str| {
            let mut client = server.client();
            move || {
                (0..300)
                    .filter(|round| client.ask(&command.replace('#', &round.to_string())) == ":1\r\n")
                    .count()
            }
        };
        let claimers =
            ["MSETNX x# 1 y# 1", "MSETNX y# 2 z# 2", "MSETNX z# 3 x# 3"].map(|line| scope.spawn(claim(line)));
        let claimed: usize = claimers.map(|claimer| claimer.join().expect("no panic")).iter().sum();
        assert_eq!(claimed, 300);
    });
}

/// A transfer with WATCH; returns whether it was made.
fn transfer(client: &mut Client, from: &str, to: &str) -> bool {
    client.ask(&format!("WATCH {from}"));
    let balance = client.ask(&format!("GET {from}"));
    let balance: i64 = balance.lines().nth(1).expect("a value").parse().expect("a number");
    if balance < 10 {
        client.ask("UNWATCH");
        return false;
    }
    client.ask("MULTI");
    client.ask(&format!("DECRBY {from} 10"));
    client.ask(&format!("INCRBY {to} 10"));
    client.ask("EXEC") != "*-1\r\n"
}

/// The numbers under the keys, of one instant.
fn balances(client: &mut Client) -> Vec<i64> {
    client.ask("MULTI");
    client.ask("MGET a b c");
    let replied = client.ask("EXEC");
    let numbers = replied.lines().filter(|line| !line.starts_with(['*', '$']));
    numbers.map(|number| number.parse().expect("a number")).collect()
}

#[test]
fn transfers_through_several_gateways_keep_the_sum() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("segment");
    let path = path.to_str().expect("a plain name");
    let server = Server::serve(&["--segment", path, "--memory", "64MiB"]);
    let pool = format!("shm:{path}");
    let gateway = Server::start(&["gateway", "--pool", &pool, "--listen", "127.0.0.1:0"]);
    server.client().ask("MSET a 100 b 100 c 100");
    std::thread::scope(|scope| {
        let workers = [&server, &gateway, &server, &gateway].into_iter().enumerate();
        let workers = workers.map(|(worker, server)| {
            let mut client = server.client();
            scope.spawn(move || {
                let keys = ["a", "b", "c"];
                let mut made = 0;
                for round in 0..300 {
                    made += usize::from(transfer(
                        &mut client,
                        keys[(round + worker) % 3],
                        keys[(round + 2 * worker + 1) % 3],
                    ));
                    let balances = balances(&mut client);
                    assert_eq!(balances.iter().sum::<i64>(), 300, "{balances:?}");
                    assert!(balances.iter().all(|&balance| balance >= 0), "{balances:?}");
                }
                made
            })
        });
        let workers: Vec<_> = workers.collect();
        assert!(
            workers
                .into_iter()
                .map(|worker| worker.join().expect("no panic"))
                .sum::<usize>()
                > 0
        );
    });
    assert!(gateway.terminate());
    assert!(server.terminate());
    let checked = output(&["fsck", "--pool", &pool]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}

#[test]
fn whoever_hangs_up_leaves_all_or_nothing() {
    let server = serve();
    server.client().ask("MSET a 1000 b 1000 c 1000");
    for round in 0..200_usize {
        let mut client = server.client();
        let commands = [&b"MULTI"[..], b"DECRBY a 3", b"INCRBY b 1", b"INCRBY c 2", b"EXEC"];
        let mut bytes: Vec<u8> = commands.iter().flat_map(|line| [line, &b"\r\n"[..]].concat()).collect();
        // Some never say EXEC, or say half of it.
        bytes.truncate(bytes.len() - round % 9);
        client.stream.write_all(&bytes).expect("the server reads");
        drop(client);
    }
    let mut client = server.client();
    let seen = balances(&mut client);
    assert_eq!(seen.iter().sum::<i64>(), 3000, "{seen:?}");
    assert_eq!((seen[1] - 1000) * 2, seen[2] - 1000, "{seen:?}");
}
