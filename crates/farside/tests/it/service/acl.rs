//! Users and what each may do, over sockets.

use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};

use super::client::{Client, encode};
use super::command_line::refusal;
use super::process::{Server, farside, output};

const OK: &str = "+OK\r\n";
const NO_KEY: &str = "-NOPERM No permissions to access a key\r\n";

fn denied(user: &str, command: &str) -> String {
    format!("-NOPERM User {user} has no permissions to run the '{command}' command\r\n")
}

/// The strings of a reply that is a flat array of them.
fn strings(reply: &str) -> Vec<&str> {
    reply
        .split("\r\n")
        .filter(|line| !line.starts_with(['$', '*']))
        .filter(|line| !line.is_empty())
        .collect()
}

/// A client that is this user.
fn client_of(server: &Server, user: &str) -> Client {
    let mut client = server.client();
    assert_eq!(client.ask(&format!("AUTH {user} pw")), OK);
    client
}

#[test]
fn a_user_may_do_what_the_rules_say_and_nothing_else() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut admin = server.client();
    for (rules, line, expected) in [
        ("~* +get", "GET none", "$-1\r\n".to_owned()),
        ("~* +get", "SET a 1", denied("alice", "set")),
        ("~a* +@all", "SET ab 1", OK.to_owned()),
        ("~a* +@all", "SET b 1", NO_KEY.to_owned()),
        ("~a* +@all", "MGET ab b", NO_KEY.to_owned()),
        ("%R~* +@all", "GET none", "$-1\r\n".to_owned()),
        ("%R~* +@all", "SET a 1", NO_KEY.to_owned()),
        ("%W~* +@all", "SET a 1", OK.to_owned()),
        ("%W~* +@all", "SET a 1 GET", NO_KEY.to_owned()),
        ("~* +@read", "SET a 1", denied("alice", "set")),
        ("~* +@all -@dangerous", "KEYS *", denied("alice", "keys")),
        (
            "~* +@all -config +config|get",
            "CONFIG SET timeout 0",
            denied("alice", "config|set"),
        ),
        (
            "~* +@all -config +config|get",
            "CONFIG GET timeout",
            "*2\r\n$7\r\ntimeout\r\n$1\r\n0\r\n".to_owned(),
        ),
        ("+@all (~a +get)", "GET b", NO_KEY.to_owned()),
        ("(~none +get)", "GET none", "$-1\r\n".to_owned()),
        ("+select|0", "SELECT 0", OK.to_owned()),
        ("~a +@all", "EVAL x 1 b", NO_KEY.to_owned()),
        ("+@all", "FARSIDE RANGE - + VALUES", NO_KEY.to_owned()),
        ("", "PING", denied("alice", "ping")),
        ("-@all +acl|whoami", "ACL WHOAMI", "$5\r\nalice\r\n".to_owned()),
        ("+@all -acl|list", "acl list", denied("alice", "acl|list")),
    ] {
        let set = format!("ACL SETUSER alice reset on >pw {rules}");
        assert_eq!(admin.ask(set.trim_end()), OK, "{rules}");
        assert_eq!(client_of(&server, "alice").ask(line), expected, "{rules}: {line}");
    }
}

/// Every command and subcommand, in each way in which it can be sent.
#[test]
fn no_command_escapes_the_rules() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut admin = server.client();
    assert_eq!(admin.ask("ACL SETUSER nobody on >pw ~* &*"), OK);
    let (fast, slow) = (admin.ask("ACL CAT fast"), admin.ask("ACL CAT slow"));
    let all: Vec<&str> = strings(&fast).into_iter().chain(strings(&slow)).collect();
    assert!(
        all.len() > 150 && all.contains(&"get") && all.contains(&"config|set"),
        "{all:?}"
    );
    let mut refused = 0;
    for &name in &all {
        let has_subcommands = all.iter().any(|other| other.starts_with(&format!("{name}|")));
        if ["auth", "hello", "quit", "reset"].contains(&name) || (has_subcommands && name != "command") {
            continue;
        }
        let mut client = client_of(&server, "nobody");
        let mut words = vec![name.replace('|', " ").to_uppercase()];
        // As many arguments as it takes.
        let reply = loop {
            let reply = client.ask(&words.join(" "));
            if !reply.contains("wrong number of arguments") {
                break reply;
            }
            assert!(words.len() < 8, "{name}: {reply}");
            words.push("1".to_owned());
        };
        let expected = denied("nobody", name);
        match name {
            "exec" => assert!(reply.ends_with(&expected[1..]), "{reply}"),
            _ => assert_eq!(reply, expected),
        }
        // As a line, and twice in a burst.
        let line = format!("{}\r\n", words.join(" ").to_lowercase());
        client.send(line.repeat(2).as_bytes());
        for _ in 0..2 {
            assert_eq!(String::from_utf8_lossy(&client.receive()), reply, "{line}");
        }
        refused += 1;
    }
    assert!(refused > 130, "{refused}");
    // What is taken together when everything is allowed.
    let value = vec![b'v'; 1 << 20];
    let many = [
        encode(&[b"GET", b"key"]).repeat(40),
        encode(&[b"SET", b"key", b"value"]).repeat(40),
        encode(&[b"SET", b"key", &value]).repeat(3),
        encode(&[b"get", b"key"]).repeat(40),
    ];
    let mut client = client_of(&server, "nobody");
    for (bytes, (count, name)) in many.iter().zip([(40, "get"), (40, "set"), (3, "set"), (40, "get")]) {
        client.send(bytes);
        for _ in 0..count {
            assert_eq!(String::from_utf8_lossy(&client.receive()), denied("nobody", name));
        }
    }
    assert_eq!(admin.ask("DBSIZE"), ":0\r\n");
    assert!(
        admin
            .ask("INFO stats")
            .contains(&format!("acl_access_denied_cmd:{}", refused * 3 + 123))
    );
}

#[test]
fn a_change_counts_from_the_next_command_on() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut admin = server.client();
    assert_eq!(admin.ask("ACL SETUSER alice on >pw ~* +@all"), OK);
    // On both threads.
    let mut clients: Vec<Client> = (0..4).map(|_| client_of(&server, "alice")).collect();
    for client in &mut clients {
        client.send(&encode(&[b"SET", b"key", b"value"]).repeat(5));
        (0..5).for_each(|_| assert_eq!(client.receive(), OK.as_bytes()));
    }
    assert_eq!(admin.ask("ACL SETUSER alice -set"), OK);
    for client in &mut clients {
        client.send(&encode(&[b"SET", b"key", b"value"]).repeat(5));
        (0..5).for_each(|_| assert_eq!(String::from_utf8_lossy(&client.receive()), denied("alice", "set")));
        assert_eq!(client.ask("GET key"), "$5\r\nvalue\r\n");
    }
    // One command later in the same burst, and to oneself.
    let burst = [
        encode(&[b"ACL", b"SETUSER", b"alice", b"-get"]),
        encode(&[b"GET", b"key"]).repeat(20),
    ];
    clients[0].send(&burst.concat());
    assert_eq!(clients[0].receive(), OK.as_bytes());
    (0..20).for_each(|_| assert_eq!(String::from_utf8_lossy(&clients[0].receive()), denied("alice", "get")));
    // The user that everybody begins with, of those who may do everything until now.
    let mut guests: Vec<Client> = (0..4).map(|_| server.client()).collect();
    guests
        .iter_mut()
        .for_each(|guest| assert_eq!(guest.ask("GET key"), "$5\r\nvalue\r\n"));
    assert_eq!(admin.ask("ACL SETUSER boss on >pw ~* +@all"), OK);
    assert_eq!(admin.ask("AUTH boss pw"), OK);
    assert_eq!(admin.ask("ACL SETUSER default -get"), OK);
    for guest in &mut guests {
        guest.send(&encode(&[b"GET", b"key"]).repeat(3));
        (0..3).for_each(|_| assert_eq!(String::from_utf8_lossy(&guest.receive()), denied("default", "get")));
    }
    // Whoever is off stays, and nobody comes; RESET is coming anew.
    assert_eq!(admin.ask("ACL SETUSER alice off"), OK);
    assert_eq!(clients[1].ask("EXISTS key"), ":1\r\n");
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    assert_eq!(guests[0].ask("AUTH alice pw"), wrong);
    assert_eq!(admin.ask("ACL SETUSER default off"), OK);
    assert_eq!(guests[0].ask("EXISTS key"), ":1\r\n");
    assert_eq!(guests[0].ask("RESET"), "+RESET\r\n");
    assert_eq!(guests[0].ask("EXISTS key"), "-NOAUTH Authentication required.\r\n");
    assert_eq!(guests[0].ask("AUTH boss pw"), OK);
}

#[test]
fn who_is_deleted_is_hung_up_on() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut admin = server.client();
    for name in ["alice", "bob"] {
        assert_eq!(admin.ask(&format!("ACL SETUSER {name} on >pw ~* +@all")), OK);
    }
    let mut gone: Vec<Client> = (0..3).map(|_| client_of(&server, "alice")).collect();
    let mut bob = client_of(&server, "bob");
    let listed = admin.ask("CLIENT LIST");
    assert_eq!(listed.matches(" user=alice ").count(), 3, "{listed}");
    assert!(
        listed.contains(" cmd=client|list user=default ") && listed.contains(" cmd=auth user=bob "),
        "{listed}"
    );
    assert_eq!(
        admin.ask("ACL DELUSER default"),
        "-ERR The 'default' user cannot be removed\r\n"
    );
    assert_eq!(admin.ask("ACL DELUSER alice nobody"), ":1\r\n");
    gone.iter_mut().for_each(|client| assert_eq!(client.receive_all(), b""));
    assert_eq!(admin.ask("ACL USERS"), "*2\r\n$3\r\nbob\r\n$7\r\ndefault\r\n");
    // Oneself, after the reply.
    assert_eq!(bob.ask("ACL DELUSER bob"), ":1\r\n");
    assert_eq!(bob.receive_all(), b"");
    assert!(admin.ask("AUTH bob pw").starts_with("-WRONGPASS"));
    // By name or by age, without deleting anybody.
    assert_eq!(admin.ask("ACL SETUSER carol on >pw ~* +@all"), OK);
    let (mut carol, mut other) = (client_of(&server, "carol"), server.client());
    assert_eq!(admin.ask("CLIENT KILL USER nobody"), "-ERR No such user 'nobody'\r\n");
    assert_eq!(admin.ask("CLIENT KILL USER carol MAXAGE 1000000"), ":0\r\n");
    assert_eq!(admin.ask("CLIENT KILL USER carol MAXAGE 0"), ":1\r\n");
    assert_eq!(
        (carol.receive_all(), other.ask("PING")),
        (Vec::new(), "+PONG\r\n".to_owned())
    );
}

#[test]
fn users_are_read_from_a_file_and_written_to_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("users.acl");
    let text = path.to_str().expect("plain");
    fs::write(
        &path,
        "# who may do what\nuser default off\nuser boss on >pw ~* &* +@all\nuser eve on >pw ~e* +get\n",
    )
    .expect("a folder of ours");
    let segment = folder.path().join("segment");
    let start = || {
        Server::serve(&[
            "--memory",
            "64MiB",
            "--segment",
            segment.to_str().expect("plain"),
            "--acl-file",
            text,
        ])
    };
    let server = start();
    assert_eq!(server.client().ask("PING"), "-NOAUTH Authentication required.\r\n");
    let mut boss = client_of(&server, "boss");
    assert_eq!(
        boss.ask("CONFIG GET aclfile"),
        format!("*2\r\n$7\r\naclfile\r\n${}\r\n{text}\r\n", text.len())
    );
    assert_eq!(client_of(&server, "eve").ask("GET x"), NO_KEY);
    assert_eq!(boss.ask("ACL SETUSER eve +set (%R~* +get)"), OK);
    let listed = boss.ask("ACL LIST");
    assert_eq!(boss.ask("ACL SAVE"), OK);
    let saved = fs::read_to_string(&path).expect("it is there");
    assert_eq!(strings(&listed), saved.lines().collect::<Vec<_>>());
    assert!(
        !saved.contains(">pw") && saved.contains("#30c952fab122c3f9759f02a6d95c3758b246b4fee239957b2d4fee46e26170c4")
    );
    assert_eq!(
        fs::read_dir(folder.path()).expect("ours").count(),
        2,
        "nothing is left beside it"
    );
    // Another gateway reads what this one has written.
    assert!(server.terminate());
    let server = start();
    let (mut boss, mut eve) = (client_of(&server, "boss"), client_of(&server, "eve"));
    assert_eq!(boss.ask("ACL LIST"), listed);
    assert_eq!(eve.ask("GET x"), "$-1\r\n");
    // LOAD: users as in the file, or none of them.
    fs::write(&path, format!("{saved}user zoe on >pw\nuser bad +nosuch\n")).expect("a folder of ours");
    let reply = boss.ask("ACL LOAD");
    let mistake = format!("{text}:5: user bad: rule `+nosuch`: Unknown command or category name in ACL");
    assert!(reply.starts_with(&format!("-ERR {mistake}")), "{reply}");
    assert_eq!(boss.ask("ACL LIST"), listed);
    let without_eve: String = saved
        .lines()
        .filter(|line| !line.contains(" eve "))
        .map(|line| format!("{line}\n"))
        .collect();
    fs::write(&path, without_eve).expect("a folder of ours");
    assert_eq!(boss.ask("ACL LOAD"), OK);
    assert_eq!(eve.receive_all(), b"");
    assert_eq!(boss.ask("ACL USERS"), "*2\r\n$4\r\nboss\r\n$7\r\ndefault\r\n");
    assert!(server.terminate());
}

#[test]
fn a_broken_file_keeps_the_gateway_from_starting() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("users.acl");
    let text = path.to_str().expect("plain");
    let arguments = [
        "serve",
        "--memory",
        "16MiB",
        "--listen",
        "127.0.0.1:0",
        "--acl-file",
        text,
    ];
    assert!(refusal(&arguments).contains(&format!("cannot read the ACL file {text}: No such file")));
    for (content, told) in [
        (
            "user a on\nuser b +nosuch\n",
            ":2: user b: rule `+nosuch`: Unknown command or category name in ACL",
        ),
        ("usr a on\n", ":1: `usr`: a line is `user NAME RULE...`"),
        (
            "user a #secret\n",
            ":1: user a: rule `#...`: The password hash must be exactly 64 characters",
        ),
    ] {
        fs::write(&path, content).expect("a folder of ours");
        let line = refusal(&arguments);
        assert!(
            line.contains(&format!("{text}{told}")) && !line.contains("secret"),
            "{line}"
        );
    }
    // A file that lets nobody in is as good as a password.
    let elsewhere = [
        "serve",
        "--memory",
        "16MiB",
        "--listen",
        "192.0.2.1:6380",
        "--acl-file",
        text,
    ];
    fs::write(&path, "user default on nopass ~* +@all\n").expect("a folder of ours");
    assert!(refusal(&elsewhere).contains("can be reached from other machines"));
    fs::write(&path, "user default off\n").expect("a folder of ours");
    assert!(refusal(&elsewhere).contains("192.0.2.1:6380"));
    assert!(!refusal(&elsewhere).contains("can be reached"));
}

#[test]
fn without_a_file_nothing_is_loaded_or_saved() {
    let folder = tempfile::tempdir().expect("a folder");
    let password = folder.path().join("password");
    fs::write(&password, "pw\n").expect("a folder of ours");
    let server = Server::serve(&["--memory", "64MiB", "--auth-file", password.to_str().expect("plain")]);
    let mut client = server.client();
    assert_eq!(client.ask("ACL WHOAMI"), "-NOAUTH Authentication required.\r\n");
    assert_eq!(client.ask("AUTH pw"), OK);
    let no_file = "-ERR This Redis instance is not configured to use an ACL file.";
    for line in ["ACL LOAD", "ACL SAVE"] {
        assert!(client.ask(line).starts_with(no_file), "{line}");
    }
    let digits = "30c952fab122c3f9759f02a6d95c3758b246b4fee239957b2d4fee46e26170c4";
    let line = format!("user default on sanitize-payload #{digits} ~* &* +@all");
    assert_eq!(strings(&client.ask("ACL LIST")), [line]);
    // `farside top` is a user, too.
    assert_eq!(client.ask("ACL SETUSER watcher on >pw +farside|stats"), OK);
    let address = server.address.to_string();
    let top = |user: &str| {
        let arguments = [
            "top",
            "--connect",
            &address,
            "--once",
            "--json",
            "--user",
            user,
            "--auth-file",
        ];
        output(&[&arguments[..], &[password.to_str().expect("plain")]].concat())
    };
    let seen = top("watcher");
    assert!(seen.status.success() && seen.stdout.starts_with(b"{"), "{seen:?}");
    assert!(String::from_utf8_lossy(&top("nobody").stderr).contains("WRONGPASS"));
}

#[test]
fn users_are_told_as_redis_tells_them() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut client = server.client();
    assert_eq!(
        client.ask("ACL SETUSER alice on nopass ~a %R~b &c +@read +config|get (~d +set)"),
        OK
    );
    let expected = "*12\r\n$5\r\nflags\r\n*3\r\n$2\r\non\r\n$6\r\nnopass\r\n$16\r\nsanitize-payload\r\n$9\r\npasswords\r\n*0\r\n\
        $8\r\ncommands\r\n$24\r\n-@all +@read +config|get\r\n$4\r\nkeys\r\n$7\r\n~a %R~b\r\n$8\r\nchannels\r\n$2\r\n&c\r\n\
        $9\r\nselectors\r\n*1\r\n*6\r\n$8\r\ncommands\r\n$10\r\n-@all +set\r\n$4\r\nkeys\r\n$2\r\n~d\r\n$8\r\nchannels\r\n$0\r\n\r\n";
    assert_eq!(client.ask("ACL GETUSER alice"), expected);
    for (line, expected) in [
        ("ACL GETUSER nobody", "*-1\r\n"),
        (
            "ACL SETUSER bob +nosuch",
            "-ERR Error in ACL SETUSER modifier '+nosuch': Unknown command or category name in ACL\r\n",
        ),
        (
            "ACL SETUSER bob foo",
            "-ERR Error in ACL SETUSER modifier 'foo': Syntax error\r\n",
        ),
        (
            "ACL SETUSER bob (+get",
            "-ERR Unmatched parenthesis in acl selector starting at '(+get'.\r\n",
        ),
        ("ACL CAT nosuch", "-ERR Unknown category 'nosuch'\r\n"),
        ("ACL DRYRUN nobody get a", "-ERR User 'nobody' not found\r\n"),
        ("ACL DRYRUN alice nosuch", "-ERR Command 'nosuch' not found\r\n"),
        ("ACL DRYRUN alice config|get", "-ERR Command 'config|get' not found\r\n"),
        (
            "ACL DRYRUN alice get",
            "-ERR wrong number of arguments for 'get' command\r\n",
        ),
        ("ACL DRYRUN alice get a", "+OK\r\n"),
        (
            "ACL DRYRUN alice get x",
            "$58\r\nUser alice has no permissions to access the 'x' key\r\n",
        ),
        (
            "ACL DRYRUN alice config set a b",
            "$58\r\nUser alice has no permissions to run the 'config|set' command\r\n",
        ),
        (
            "ACL GENPASS 0",
            "-ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096\r\n",
        ),
        ("ACL GENPASS x", "-ERR value is not an integer or out of range\r\n"),
        ("ACL LOG x", "-ERR value is not an integer or out of range\r\n"),
        ("ACL FOO", "-ERR unknown subcommand 'FOO'. Try ACL HELP.\r\n"),
        ("ACL", "-ERR wrong number of arguments for 'acl' command\r\n"),
        (
            "ACL SETUSER",
            "-ERR wrong number of arguments for 'acl|setuser' command\r\n",
        ),
        ("MODULE LIST", "*0\r\n"),
        ("CLUSTER INFO", "-ERR This instance has cluster support disabled\r\n"),
        (
            "CLUSTER KEYSLOT a",
            "-ERR This instance has cluster support disabled\r\n",
        ),
        ("CLUSTER FOO", "-ERR unknown subcommand 'FOO'. Try CLUSTER HELP.\r\n"),
        (
            "CLIENT TRACKINGINFO",
            "*6\r\n$5\r\nflags\r\n*1\r\n$3\r\noff\r\n$8\r\nredirect\r\n:-1\r\n$8\r\nprefixes\r\n*0\r\n",
        ),
    ] {
        // The length of a text is its own.
        let reply = client.ask(line);
        let text = |reply: &str| {
            reply
                .split_once("\r\n")
                .filter(|_| reply.starts_with('$'))
                .map(|(_, text)| text.to_owned())
        };
        match text(expected) {
            Some(expected) => assert_eq!(text(&reply), Some(expected), "{line}"),
            None => assert_eq!(reply, expected, "{line}"),
        }
    }
    let password = client.ask("ACL GENPASS");
    assert_eq!(
        (
            strings(&password)[0].len(),
            strings(&client.ask("ACL GENPASS 5"))[0].len()
        ),
        (64, 2)
    );
    assert_ne!(client.ask("ACL GENPASS"), password);
    // Names with white space.
    let reply = client.call(&[b"ACL", b"SETUSER", b"a b"]);
    assert_eq!(reply, b"-ERR Usernames can't contain spaces or null characters\r\n");
}

#[test]
fn what_was_refused_is_logged() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut admin = server.client();
    assert_eq!(admin.ask("ACL SETUSER alice on >pw ~a +get +multi +exec"), OK);
    let mut alice = server.client();
    assert!(alice.ask("AUTH alice wrong").starts_with("-WRONGPASS"));
    assert_eq!(alice.ask("AUTH alice pw"), OK);
    for (line, expected) in [
        ("GET b", NO_KEY),
        ("GET b", NO_KEY),
        ("SET a 1", &denied("alice", "set")),
        ("MULTI", OK),
    ] {
        assert_eq!(alice.ask(line), expected, "{line}");
    }
    assert_eq!(alice.ask("GET c"), NO_KEY);
    let log = admin.ask("ACL LOG");
    let entries: Vec<&str> = log.split("$5\r\ncount\r\n").skip(1).collect();
    let expected = [
        (":1", "key", "multi", "c", "alice"),
        (":1", "command", "toplevel", "set", "alice"),
        (":2", "key", "toplevel", "b", "alice"),
        (":1", "auth", "toplevel", "AUTH", "alice"),
    ];
    assert_eq!(entries.len(), expected.len(), "{log}");
    for (entry, (count, reason, context, object, user)) in entries.iter().zip(expected) {
        let words = strings(entry);
        let start = [
            count,
            "reason",
            reason,
            "context",
            context,
            "object",
            object,
            "username",
            user,
            "age-seconds",
        ];
        assert_eq!(words[..10], start, "{entry}");
        assert_eq!(
            (words[11], words[13], words[15], words[17]),
            ("client-info", "entry-id", "timestamp-created", "timestamp-last-updated")
        );
        assert!(words[12].starts_with("id=") && words[12].contains(" cmd="), "{entry}");
    }
    assert_eq!(admin.ask("ACL LOG 1").matches("$5\r\ncount\r\n").count(), 1);
    assert_eq!(admin.ask("CONFIG SET acllog-max-len 2"), OK);
    assert_eq!(admin.ask("ACL LOG").matches("$5\r\ncount\r\n").count(), 2);
    assert_eq!(
        (admin.ask("ACL LOG RESET"), admin.ask("ACL LOG")),
        (OK.to_owned(), "*0\r\n".to_owned())
    );
}

/// A server whose log goes to a file, and what it prints, which is to be kept open.
fn logging(path: &Path) -> (Child, SocketAddr, Lines<BufReader<ChildStdout>>) {
    let log = fs::File::create(path).expect("a folder of ours");
    let mut child = farside(&[
        "serve",
        "--memory",
        "64MiB",
        "--listen",
        "127.0.0.1:0",
        "--enable-monitor-command",
    ])
    .env("RUST_LOG", "trace")
    .stdout(Stdio::piped())
    .stderr(log)
    .spawn()
    .expect("the binary is built");
    let mut lines = BufReader::new(child.stdout.take().expect("it is a pipe")).lines();
    let first = lines.next().expect("a line").expect("text");
    let words = first.split([' ', ',']).map(|word| word.trim_end_matches(':'));
    let address = words
        .filter_map(|word| word.parse().ok())
        .next()
        .expect("an address in the line");
    (child, address, lines)
}

#[test]
fn no_password_is_shown_anywhere() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    let (mut child, address, printed) = logging(&path);
    let mut admin = Client::connect(address);
    let mut monitor = Client::connect(address);
    assert_eq!(monitor.ask("MONITOR"), OK);
    assert_eq!(admin.ask("CONFIG SET slowlog-log-slower-than 0"), OK);
    assert_eq!(admin.ask("ACL SETUSER alice on >hunter2 ~* +@all"), OK);
    assert_eq!(admin.ask("acl setuser alice >hunter2 <hunter2 >hunter2"), OK);
    for line in [
        "AUTH hunter2",
        "AUTH bob hunter2",
        "AUTH alice hunter2",
        "HELLO 3 AUTH alice hunter2",
        "HELLO 2 AUTH bob hunter2",
    ] {
        let mut client = Client::connect(address);
        client.ask(line);
        client.send(b"MULTI\r\n");
        client.receive();
        client.ask(line);
        client.ask("EXEC");
    }
    assert!(admin.ask("CONFIG SET requirepass hunter2").starts_with("-ERR"));
    assert_eq!(admin.ask("ECHO end"), "$3\r\nend\r\n");
    let mut shown = String::new();
    while !shown.contains("\"ECHO\" \"end\"") {
        shown = [shown, String::from_utf8_lossy(&monitor.receive()).into_owned()].concat();
    }
    let slow = admin.ask("SLOWLOG GET -1");
    let refused = admin.ask("ACL LOG 100");
    let clients = admin.ask("CLIENT LIST");
    child.kill().expect("it is ours");
    child.wait().expect("it is ours");
    drop(printed);
    let log = fs::read_to_string(&path).expect("it is there");
    assert!(slow.contains("requirepass") && slow.contains("(redacted)"), "{slow}");
    assert!(
        shown.contains("\"AUTH\" \"(redacted)\"") && refused.contains("bob"),
        "{shown}{refused}"
    );
    for (place, text) in [
        ("slow log", slow),
        ("monitor", shown),
        ("ACL LOG", refused),
        ("clients", clients),
        ("log", log),
    ] {
        assert!(!text.contains("hunter2"), "{place}: {text}");
    }
}

#[test]
fn a_pause_holds_commands_up_until_it_ends() {
    let server = Server::serve(&["--memory", "64MiB"]);
    let mut admin = server.client();
    for (line, expected) in [
        ("CLIENT PAUSE x", "-ERR timeout is not an integer or out of range\r\n"),
        ("CLIENT PAUSE -1", "-ERR timeout is negative\r\n"),
        ("CLIENT PAUSE 1 FOO", "-ERR CLIENT PAUSE mode must be WRITE or ALL\r\n"),
        ("CLIENT UNPAUSE", OK),
        ("CLIENT PAUSE 3600000 WRITE", OK),
    ] {
        assert_eq!(admin.ask(line), expected, "{line}");
    }
    // On both threads, of those who are there and of those who come.
    let mut writers: Vec<Client> = (0..4).map(|_| server.client()).collect();
    let burst = [
        encode(&[b"GET", b"key"]).repeat(3),
        encode(&[b"SET", b"key", b"value"]).repeat(3),
    ]
    .concat();
    for writer in &mut writers {
        writer.send(&burst);
        // What came before is answered; nothing is read on behind what waits.
        (0..3).for_each(|_| assert_eq!(writer.receive(), b"$-1\r\n"));
    }
    assert_eq!(admin.ask("GET key"), "$-1\r\n");
    // A transaction waits if it writes.
    let mut other = server.client();
    for (line, expected) in [("MULTI", OK), ("GET key", "+QUEUED\r\n"), ("EXEC", "*1\r\n$-1\r\n")] {
        assert_eq!(other.ask(line), expected, "{line}");
    }
    // Who waits can be hung up on.
    let mut ended = server.client();
    let id = ended.ask("CLIENT ID");
    ended.send(&encode(&[b"DEL", b"key"]));
    assert_eq!(
        admin.ask(&format!("CLIENT KILL ID {}", id.trim_start_matches(':').trim_end())),
        ":1\r\n"
    );
    assert_eq!(ended.receive_all(), b"");
    assert_eq!(admin.ask("CLIENT UNPAUSE"), OK);
    for writer in &mut writers {
        (0..3).for_each(|_| assert_eq!(writer.receive(), OK.as_bytes()));
    }
    // Everything, but what ends it.
    assert_eq!(admin.ask("CLIENT PAUSE 3600000"), OK);
    writers[0].send(&encode(&[b"PING"]));
    assert_eq!(other.ask("CLIENT UNPAUSE"), OK);
    assert_eq!(writers[0].receive(), b"+PONG\r\n");
    // It ends by itself, too, and so does a gateway that is paused.
    assert_eq!(admin.ask("CLIENT PAUSE 1"), OK);
    assert_eq!(writers[0].ask("SET key other"), OK);
    assert_eq!(admin.ask("CLIENT PAUSE 3600000"), OK);
    writers[0].send(&encode(&[b"SET", b"key", b"value"]));
    assert!(server.terminate());
}
