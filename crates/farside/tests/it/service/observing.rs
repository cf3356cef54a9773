//! Looking at a gateway and its clients: CLIENT, CONFIG, SLOWLOG, MONITOR, INFO and their like.

use super::client::{Client, encode};
use super::commands::{NOT_AN_INTEGER, arity, check};
use super::process::Server;

/// The lines of a reply that is text.
fn text(client: &mut Client, line: &str) -> String {
    let reply = client.ask(line);
    let (_, text) = reply.split_once("\r\n").expect("a head");
    text.trim_end().to_owned()
}

fn field<'t>(line: &'t str, name: &str) -> &'t str {
    let words = line.split(' ').filter_map(|word| word.split_once('='));
    words
        .filter(|(key, _)| *key == name)
        .map(|(_, value)| value)
        .next()
        .expect(name)
}

#[test]
fn clients_are_listed() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let (mut one, mut other) = (server.client(), server.client());
    check(
        &mut one,
        &[
            ("CLIENT SETNAME me", "+OK\r\n"),
            ("CLIENT SETINFO LIB-NAME lib", "+OK\r\n"),
            ("CLIENT SETINFO lib-ver 1.2", "+OK\r\n"),
        ],
    );
    assert_eq!(other.ask("GET x"), "$-1\r\n");
    let list = text(&mut one, "CLIENT LIST");
    let lines: Vec<&str> = list.lines().collect();
    assert_eq!(lines.len(), 2, "{list}");
    // Which of the two was served first is not said.
    let mine = lines.iter().find(|line| field(line, "name") == "me").expect("a name");
    let others = lines
        .iter()
        .find(|line| field(line, "name").is_empty())
        .expect("no name");
    assert_eq!((field(mine, "lib-name"), field(mine, "lib-ver")), ("lib", "1.2"));
    assert_eq!((field(mine, "cmd"), field(others, "cmd")), ("client|list", "get"));
    assert_eq!(
        field(mine, "addr"),
        one.stream.local_addr().expect("a socket").to_string()
    );
    assert_eq!(field(mine, "laddr"), server.address.to_string());
    assert_eq!(text(&mut one, "CLIENT INFO").split(' ').next(), mine.split(' ').next());
    let id = field(others, "id");
    assert_eq!(
        text(&mut one, &format!("CLIENT LIST ID {id} 999999")).lines().count(),
        1
    );
    assert_eq!(text(&mut one, "CLIENT LIST TYPE normal").lines().count(), 2);
    assert_eq!(one.ask("CLIENT LIST TYPE pubsub"), "$0\r\n\r\n");
    drop(other);
    while text(&mut one, "CLIENT LIST").lines().count() != 1 {}
}

#[test]
fn clients_are_ended() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let (mut one, mut other, mut third) = (server.client(), server.client(), server.client());
    let id = other.ask("CLIENT ID");
    let id = id.trim_start_matches(':').trim_end();
    assert_eq!(one.ask(&format!("CLIENT KILL ID {id}")), ":1\r\n");
    assert_eq!(other.receive_all(), b"");
    // The server has accepted it.
    assert_eq!(third.ask("PING"), "+PONG\r\n");
    let address = third.stream.local_addr().expect("a socket");
    assert_eq!(one.ask(&format!("CLIENT KILL {address}")), "+OK\r\n");
    assert_eq!(third.receive_all(), b"");
    assert_eq!(one.ask("CLIENT KILL TYPE normal SKIPME yes"), ":0\r\n");
    // One that does not read its replies is ended too.
    let mut greedy = server.client();
    assert_eq!(greedy.call(&[b"SET", b"large", &vec![b'x'; 1 << 20]]), b"+OK\r\n");
    (0..64).for_each(|_| greedy.send(&encode(&[b"GET", b"large"])));
    // It is at them, and cannot finish: 64 MiB are more than the sockets hold.
    while text(&mut one, "INFO stats").contains("keyspace_hits:0\r\n") {}
    assert_eq!(one.ask("CLIENT KILL TYPE normal"), ":1\r\n");
    while text(&mut one, "CLIENT LIST").lines().count() != 1 {}
    // Oneself, after the reply.
    assert_eq!(one.ask("CLIENT KILL TYPE normal SKIPME no"), ":1\r\n");
    assert_eq!(one.receive_all(), b"");
}

#[test]
fn replies_can_be_switched_off() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    client.send(&encode(&[b"CLIENT", b"REPLY", b"OFF"]));
    for _ in 0..20 {
        client.send(&encode(&[b"GET", b"a"]));
    }
    client.send(&encode(&[b"SET", b"a", b"1"]));
    client.send(&encode(&[b"nonsense"]));
    assert_eq!(client.ask("CLIENT REPLY ON"), "+OK\r\n");
    assert_eq!(client.ask("GET a"), "$1\r\n1\r\n");
    client.send(&encode(&[b"CLIENT", b"REPLY", b"SKIP"]));
    client.send(&encode(&[b"SET", b"a", b"2"]));
    assert_eq!(client.ask("GET a"), "$1\r\n2\r\n");
    assert_eq!(client.ask("CLIENT REPLY x"), "-ERR syntax error\r\n");
}

#[test]
fn reset_makes_a_connection_new() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    client.ask("HELLO 3 SETNAME me");
    assert_eq!(client.ask("GET none"), "_\r\n");
    assert_eq!(client.ask("RESET"), "+RESET\r\n");
    check(&mut client, &[("GET none", "$-1\r\n"), ("CLIENT GETNAME", "$-1\r\n")]);
}

#[test]
fn settings_are_read_and_some_are_changed() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let failed =
        |name: &str, why: &str| format!("-ERR CONFIG SET failed (possibly related to argument '{name}') - {why}\r\n");
    let mut client = server.client();
    check(
        &mut client,
        &[
            (
                "CONFIG GET slowlog-max-len",
                "*2\r\n$15\r\nslowlog-max-len\r\n$3\r\n128\r\n",
            ),
            ("CONFIG SET slowlog-max-len 5 slowlog-log-slower-than 0", "+OK\r\n"),
            (
                "CONFIG GET slowlog-max-len",
                "*2\r\n$15\r\nslowlog-max-len\r\n$1\r\n5\r\n",
            ),
            (
                "CONFIG SET slowlog-max-len 7 port 1",
                &failed("port", "can't set immutable config"),
            ),
            (
                "CONFIG GET slowlog-max-len",
                "*2\r\n$15\r\nslowlog-max-len\r\n$1\r\n5\r\n",
            ),
            (
                "CONFIG SET requirepass x",
                &failed("requirepass", "can't set immutable config"),
            ),
            (
                "CONFIG SET maxclients x",
                &failed("maxclients", "argument couldn't be parsed into an integer"),
            ),
            (
                "CONFIG SET maxclients 0",
                &failed("maxclients", "argument must be between 1 and 4294967295 inclusive"),
            ),
            (
                "CONFIG SET maxclients 5 MAXCLIENTS 6",
                &failed("maxclients", "duplicate parameter"),
            ),
            (
                "CONFIG SET foo 1",
                "-ERR Unknown option or number of arguments for CONFIG SET - 'foo'\r\n",
            ),
            (
                "CONFIG SET timeout -1",
                &failed("timeout", "argument must be between 0 and 2147483647 inclusive"),
            ),
            ("CONFIG SET foo", &arity("config|set")),
            ("CONFIG SET maxclients 5 port", "-ERR syntax error\r\n"),
            ("CONFIG REWRITE", "-ERR The server is running without a config file\r\n"),
            ("CONFIG REWRITE x", &arity("config|rewrite")),
            ("CONFIG RESETSTAT x", &arity("config|resetstat")),
            ("CONFIG x", "-ERR unknown subcommand 'x'. Try CONFIG HELP.\r\n"),
            ("CONFIG SET maxclients 2", "+OK\r\n"),
        ],
    );
    let _second = server.client();
    while text(&mut client, "CLIENT LIST").lines().count() != 2 {}
    assert_eq!(server.client().receive_all(), b"-ERR max number of clients reached\r\n");
}

#[test]
fn idle_clients_are_hung_up_on_also_those_who_wait_already() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let (mut idle, mut monitor, mut client) = (server.client(), server.client(), server.client());
    assert_eq!(client.ask("CONFIG SET enable-monitor-command yes"), "+OK\r\n");
    assert_eq!(monitor.ask("MONITOR"), "+OK\r\n");
    assert_eq!(idle.ask("PING"), "+PONG\r\n");
    assert_eq!(client.ask("CONFIG SET timeout 1"), "+OK\r\n");
    assert_eq!((idle.try_line(), client.try_line()), (None, None));
    // One that starts later, and one that watches.
    let mut client = server.client();
    assert_eq!(client.try_line(), None);
    let mut client = server.client();
    assert_eq!(client.ask("CONFIG SET timeout 0"), "+OK\r\n");
    assert_eq!(client.ask("PING last"), "$4\r\nlast\r\n");
    while !monitor.try_line().expect("it is still there").contains("last") {}
}

#[test]
fn counts_begin_anew_after_resetstat() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    (0..100).for_each(|_| drop(client.ask("GET none")));
    client.ask("nonsense");
    let calls = text(&mut client, "INFO commandstats");
    assert_eq!(calls, "# Commandstats\r\ncmdstat_get:calls=100\r\ncmdstat_info:calls=1");
    assert!(!text(&mut client, "INFO").contains("cmdstat_"));
    let before = text(&mut client, "INFO stats errorstats");
    assert!(
        before.contains("keyspace_misses:100\r\n") && before.contains("errorstat_ERR:count=1"),
        "{before}"
    );
    assert_eq!(client.ask("CONFIG RESETSTAT"), "+OK\r\n");
    let after = text(&mut client, "INFO stats errorstats");
    assert!(
        after.contains("keyspace_misses:0\r\n") && !after.contains("errorstat_"),
        "{after}"
    );
    let all = text(&mut client, "INFO everything");
    assert!(!all.contains("cmdstat_get"), "{all}");
    for line in [
        "farside_index:race\r\n",
        "cmdstat_info:calls=2\r\n",
        "role:master",
        "aof_enabled:0",
        "blocked_clients:0",
        "expired_keys:0",
        "# Keyspace",
    ] {
        assert!(all.contains(line), "{line} in {all}");
    }
    assert!(all.contains("used_cpu_user:"), "{all}");
}

#[test]
fn slow_commands_are_noted() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 2", "+OK\r\n"),
            ("SLOWLOG RESET", "+OK\r\n"),
            ("SET a 1", "+OK\r\n"),
            ("KEYS *", "*1\r\n$1\r\na\r\n"),
            ("CONFIG SET slowlog-log-slower-than -1", "+OK\r\n"),
            ("KEYS *", "*1\r\n$1\r\na\r\n"),
            // CONFIG SET had taken effect when it ended.
            ("SLOWLOG LEN", ":2\r\n"),
        ],
    );
    let log = client.ask("SLOWLOG GET");
    assert!(log.contains("$4\r\nKEYS\r\n$1\r\n*\r\n"), "{log}");
    assert!(!log.contains("$3\r\nSET\r\n$1\r\na\r\n"), "{log}");
    let error = "-ERR count should be greater than or equal to -1\r\n";
    check(
        &mut client,
        &[
            ("SLOWLOG GET 0", "*0\r\n"),
            ("SLOWLOG GET -2", error),
            ("SLOWLOG GET x", error),
            ("SLOWLOG RESET", "+OK\r\n"),
            ("SLOWLOG GET -1", "*0\r\n"),
            ("LATENCY LATEST", "*0\r\n"),
            ("LATENCY HISTORY command", "*0\r\n"),
            ("LATENCY RESET", ":0\r\n"),
        ],
    );
}

#[test]
fn monitors_see_every_command_but_no_password() {
    let folder = tempfile::tempdir().expect("a folder");
    let password = folder.path().join("password");
    std::fs::write(&password, "secret-password\n").expect("a file");
    let password = password.to_str().expect("a path in UTF-8");
    let server = Server::serve(&["--memory", "64MiB", "--auth-file", password]);
    let (mut monitor, mut client) = (server.client(), server.client());
    assert_eq!(monitor.ask("MONITOR"), "-NOAUTH Authentication required.\r\n");
    assert_eq!(monitor.ask("AUTH secret-password"), "+OK\r\n");
    let refused = monitor.ask("MONITOR");
    assert!(refused.starts_with("-ERR MONITOR command not allowed"), "{refused}");
    assert_eq!(monitor.ask("CONFIG SET enable-monitor-command yes"), "+OK\r\n");
    assert_eq!(monitor.ask("MONITOR"), "+OK\r\n");
    assert_eq!(client.ask("AUTH default secret-password"), "+OK\r\n");
    // A burst of GETs, which are answered together when nobody watches.
    let burst: Vec<u8> = (0..4).flat_map(|_| encode(&[b"GET", b"a\n\"b"])).collect();
    client.send(&burst);
    (0..4).for_each(|_| assert_eq!(client.receive(), b"$-1\r\n"));
    let lines: Vec<String> = (0..5)
        .map(|_| String::from_utf8(monitor.receive()).expect("text"))
        .collect();
    let address = client.stream.local_addr().expect("a socket");
    assert!(
        lines[0].contains(&format!("[0 {address}] \"AUTH\" \"(redacted)\" \"(redacted)\"")),
        "{lines:?}"
    );
    assert!(
        lines[1..]
            .iter()
            .all(|line| line.ends_with("\"GET\" \"a\\n\\\"b\"\r\n")),
        "{lines:?}"
    );
    assert!(!lines.concat().contains("secret"), "{lines:?}");
    assert!(
        text(&mut client, "CLIENT LIST")
            .lines()
            .any(|line| field(line, "flags") == "O")
    );
}

#[test]
fn a_monitor_that_does_not_read_is_cut_off() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let (mut monitor, mut client) = (server.client(), server.client());
    assert_eq!(monitor.ask("CONFIG SET enable-monitor-command yes"), "+OK\r\n");
    assert_eq!(monitor.ask("MONITOR"), "+OK\r\n");
    let before = server.private_bytes();
    let value = vec![b'x'; 1 << 20];
    // Far more than sockets and the queue hold.
    for _ in 0..256 {
        assert_eq!(client.call(&[b"SET", b"a", &value]), b"+OK\r\n");
    }
    while text(&mut client, "CLIENT LIST").lines().count() != 1 {}
    // 8 MiB may wait, and as many be on their way to the socket; a buffer that grows is there twice for a moment.
    assert!(
        server.private_bytes() < before + (96 << 20),
        "{}",
        server.private_bytes()
    );
    assert_eq!(client.ask("PING"), "+PONG\r\n");
}

#[test]
fn tools_get_what_they_ask_for() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("SET key value", "+OK\r\n"),
            ("OBJECT ENCODING key", "$3\r\nraw\r\n"),
            ("OBJECT REFCOUNT key", ":1\r\n"),
            ("OBJECT ENCODING none", "$-1\r\n"),
            ("OBJECT IDLETIME none", "$-1\r\n"),
            ("OBJECT ENCODING", &arity("object|encoding")),
            ("OBJECT x key", "-ERR unknown subcommand 'x'. Try OBJECT HELP.\r\n"),
            ("MEMORY USAGE key", ":32\r\n"),
            ("MEMORY USAGE key SAMPLES 5", ":32\r\n"),
            ("MEMORY USAGE none", "$-1\r\n"),
            ("MEMORY USAGE key SAMPLES x", NOT_AN_INTEGER),
            ("MEMORY USAGE key x 1", "-ERR syntax error\r\n"),
            ("MEMORY x", "-ERR unknown subcommand 'x'. Try MEMORY HELP.\r\n"),
            ("DEBUG SLEEP 0", "+OK\r\n"),
            ("DEBUG ERROR LOADING\ntwo", "-LOADING two\r\n"),
            ("DEBUG OBJECT none", "-ERR no such key\r\n"),
            (
                "DEBUG JMAP",
                "-ERR unknown subcommand or wrong number of arguments for 'JMAP'. Try DEBUG HELP.\r\n",
            ),
            ("COMMAND GETKEYS GET a", "*1\r\n$1\r\na\r\n"),
            ("COMMAND GETKEYS MSET a 1 b 2", "*2\r\n$1\r\na\r\n$1\r\nb\r\n"),
            ("COMMAND GETKEYS EVAL x 1 a b", "*1\r\n$1\r\na\r\n"),
            ("COMMAND GETKEYS EVAL x 5 a b", "*0\r\n"),
            ("COMMAND GETKEYS PING x", "-ERR The command has no key arguments\r\n"),
            ("COMMAND GETKEYS nonsense x", "-ERR Invalid command specified\r\n"),
            (
                "COMMAND GETKEYS MSET a",
                "-ERR Invalid number of arguments specified for command\r\n",
            ),
            ("COMMAND LIST FILTERBY PATTERN ge?", "*1\r\n$3\r\nget\r\n"),
            ("COMMAND LIST FILTERBY x y", "-ERR syntax error\r\n"),
            ("WAIT 1 0", ":0\r\n"),
            ("WAIT x 0", NOT_AN_INTEGER),
            ("WAIT 0 x", "-ERR timeout is not an integer or out of range\r\n"),
            ("WAIT 0 -1", "-ERR timeout is negative\r\n"),
            ("CLIENT NO-EVICT on", "+OK\r\n"),
            ("CLIENT NO-TOUCH off", "+OK\r\n"),
            ("CLIENT NO-EVICT x", "-ERR syntax error\r\n"),
            ("CLIENT GETREDIR", ":-1\r\n"),
            ("CLIENT UNBLOCK 1", ":0\r\n"),
            ("CLIENT KILL 1.2.3.4:5", "-ERR No such client\r\n"),
            ("CLIENT KILL ID 0", "-ERR client-id should be greater than 0\r\n"),
            ("CLIENT KILL ID 1 x", "-ERR syntax error\r\n"),
            ("CLIENT KILL x 1", "-ERR syntax error\r\n"),
            ("CLIENT KILL TYPE x", "-ERR Unknown client type 'x'\r\n"),
            ("CLIENT KILL USER x", "-ERR No such user 'x'\r\n"),
            ("CLIENT LIST TYPE x", "-ERR Unknown client type 'x'\r\n"),
            ("CLIENT LIST ID x", "-ERR Invalid client ID\r\n"),
            ("CLIENT LIST x", "-ERR syntax error\r\n"),
        ],
    );
    let object = client.ask("DEBUG OBJECT key");
    assert!(object.contains("encoding:raw serializedlength:5"), "{object}");
    for command in [
        "CLIENT", "CONFIG", "COMMAND", "OBJECT", "MEMORY", "DEBUG", "SLOWLOG", "LATENCY", "SCRIPT",
    ] {
        let help = client.ask(&format!("{command} HELP"));
        assert!(help.contains(&format!("+{command} <subcommand>")), "{help}");
    }
}

/// The sweeper frees what expired although nobody asks for it any more.
#[test]
fn expired_keys_are_swept() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    client.ask("SET stays 1");
    for number in 0..100 {
        client.ask(&format!("SET key:{number} value PX 1"));
    }
    while client.ask("DBSIZE") != ":1\r\n" {}
    while !text(&mut client, "INFO stats").contains("expired_keys:100\r\n") {}
    assert_eq!(client.ask("GET stays"), "$1\r\n1\r\n");
}
