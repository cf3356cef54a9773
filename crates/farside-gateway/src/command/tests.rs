//! What happens to every command, whichever it is: it is checked, counted, shown, noted and answered, or refused.

use core::sync::atomic::Ordering;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use farside_fabric::shm::{Fabric, Segment};
use farside_fabric::{FabricError, NodeId};
use farside_kv::{Quota, Session, Store, StoreConfig};

use super::table::Numbered;
use super::*;
use crate::context::Shared;
use crate::guard::{Framed, Guard};
use crate::latency::Latencies;
use crate::live::{Live, LiveSettings, lock};
use crate::observer::Survey;
use crate::request::Scratch;
use crate::roster::Ends;
use crate::statistics::Statistics;
use crate::stream::{Raw, Socket};

/// One client of a gateway with a store of its own.
struct Place {
    context: Context,
    client: Client,
    reply: Reply,
    session: Box<Session>,
    stream: Stream,
    _other_end: UnixStream,
}

impl Place {
    async fn new() -> Self {
        let segment = Segment::anonymous(16 << 20).expect("a little memory");
        let endpoint = Fabric::new(vec![segment]).endpoint().expect("room in the table");
        let store = Store::open(endpoint, StoreConfig::default()).await.expect("a store");
        let shared = Arc::new(Shared {
            users: Arc::default(),
            address: ([127, 0, 0, 1], 1).into(),
            started_ms: 0,
            started_ns: 0,
            run: 1,
            client_next: 1.into(),
            statistics: vec![Statistics::default()],
            census: std::sync::Mutex::default(),
            survey: Survey::default(),
            places: Vec::new(),
            secret: None,
            live: Live::new(Arc::new(Quota::default()), &LiveSettings::default(), 1),
            settings_file: None,
            is_stopping: false.into(),
        });
        let (near, other_end) = UnixStream::pair().expect("two sockets");
        near.set_nonblocking(true).expect("a socket");
        let socket = Socket::open(Raw::Unix(near)).expect("a runtime");
        let ends = Ends {
            address: "client:1".to_owned(),
            local_address: "gateway:1".to_owned(),
            descriptor: 7,
        };
        let client = Client::enter(&shared, ends, 0);
        let context = Context::new(store, shared, 0);
        let session = context.take_session();
        Self {
            context,
            client,
            reply: Reply::default(),
            session,
            stream: Stream::Plain(socket),
            _other_end: other_end,
        }
    }

    /// Executes a line; returns the reply.
    async fn execute(&mut self, line: &str) -> String {
        let mut scratch = Scratch::default();
        let request = Request::split(line.as_bytes(), &mut scratch).expect("a good line");
        let mut call = Call {
            request: &request,
            client: &mut self.client,
            reply: &mut self.reply,
            keys: Keys::Apart(&mut self.session),
            stream: &mut self.stream,
            context: &self.context,
        };
        execute(&mut call).await.expect("the connection is there");
        let reply = String::from_utf8(self.reply.bytes().to_vec()).expect("plain text");
        self.reply.consume(reply.len());
        reply
    }

    fn calls(&self, name: &str) -> u64 {
        let (id, _) = table::find(name.as_bytes()).expect("it is in the table");
        self.context.statistics().calls[id as usize].get()
    }
}

/// The error line of a refusal by the arguments.
pub(super) fn refused(refusal: Refusal) -> String {
    match refusal {
        Refusal::Text(text) => text.into_owned(),
        other => format!("{other:?}"),
    }
}

fn run<T>(body: impl Future<Output = T>) -> T {
    farside_fabric::host::on_this_thread(body).expect("an event loop")
}

#[test]
fn commands_are_counted_and_remembered() {
    run(async {
        let mut place = Place::new().await;
        assert_eq!(place.execute("SET key value").await, "+OK\r\n");
        assert_eq!(place.execute("get key").await, "$5\r\nvalue\r\n");
        assert_eq!(place.execute("get other").await, "$-1\r\n");
        assert_eq!((place.calls("set"), place.calls("get"), place.calls("del")), (1, 2, 0));
        assert_eq!(
            table::numbered(place.client.command).map(Numbered::full_name),
            Some("get")
        );
        let statistics = place.context.statistics();
        assert_eq!((statistics.commands.get(), statistics.errors.get()), (3, 0));
        place.client.tally.settle(&statistics.latencies, 1);
        assert_eq!(Latencies::of(statistics.latencies.iter()).count(), 3);
    });
}

#[test]
fn the_keys_of_a_command_are_noticed() {
    run(async {
        let mut place = Place::new().await;
        for (line, keys) in [
            ("PING", 0),
            ("GET a", 1),
            ("SET a 1 EX 100", 1),
            ("DEL a", 1),
            ("DEL a b c", 3),
            ("MSET a 1 b 2", 2),
            ("MSET a 1 b 2 c 3", 3),
            ("COPY a b REPLACE", 2),
            ("RENAME a b", 2),
        ] {
            let before = place.context.unnoticed();
            let reply = place.execute(line).await;
            assert!(!reply.starts_with('-'), "{line}: {reply}");
            assert_eq!(before - place.context.unnoticed(), keys, "{line}");
        }
    });
}

#[test]
fn what_is_no_command_is_refused_and_counted() {
    run(async {
        let mut place = Place::new().await;
        let unknown = "-ERR unknown command 'nothing', with args beginning with: ";
        assert_eq!(place.execute("nothing").await, format!("{unknown}\r\n"));
        assert_eq!(
            place.execute("nothing a 'b c'").await,
            format!("{unknown}'a' 'b c' \r\n")
        );
        let arity = |name| format!("-ERR wrong number of arguments for '{name}' command\r\n");
        assert_eq!(place.execute("GET").await, arity("get"));
        assert_eq!(place.execute("get a b").await, arity("get"));
        assert_eq!(place.execute("DEL").await, arity("del"));
        assert_eq!((place.calls("get"), place.calls("del")), (0, 0));
        let statistics = place.context.statistics();
        assert_eq!((statistics.commands.get(), statistics.errors.get()), (5, 5));
        assert_eq!(place.context.shared.live.errors(), [("ERR".to_owned(), 5)]);
    });
}

#[test]
fn so_much_of_an_unknown_command_is_repeated() {
    let refusal = |arguments: &[&[u8]]| {
        let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
        for argument in arguments {
            bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            bytes.extend_from_slice(argument);
            bytes.extend_from_slice(b"\r\n");
        }
        let mut guard = Guard::default();
        let framed = guard.next(&bytes, false).expect("an array of strings");
        assert_eq!(framed, Framed::Array { bytes: bytes.len() });
        unknown(&Request::new(&bytes, guard.places()))
    };
    let text = |name: &str, rest: &str| format!("ERR unknown command '{name}', with args beginning with: {rest}");
    let (longest, longer) = ("x".repeat(128), "x".repeat(129));
    assert_eq!(refusal(&[longest.as_bytes()]), text(&longest, ""));
    assert_eq!(refusal(&[longer.as_bytes()]), text(&longest, ""));
    assert_eq!(refusal(&[b"no\0thing", b"a\0b"]), text("no", "'a' "));
    // An argument takes three bytes more: what is left for the second one.
    let first = "y".repeat(100);
    let expected = format!("'{first}' '{}' ", "x".repeat(128 - 103));
    assert_eq!(
        refusal(&[b"no", first.as_bytes(), longer.as_bytes(), b"z"]),
        text("no", &expected)
    );
    // Nothing is left for a second one, or a byte.
    let first = "y".repeat(125);
    assert_eq!(
        refusal(&[b"no", first.as_bytes(), b"zz"]),
        text("no", &format!("'{first}' "))
    );
    let first = "y".repeat(124);
    assert_eq!(
        refusal(&[b"no", first.as_bytes(), b"zz"]),
        text("no", &format!("'{first}' 'z' "))
    );
}

#[test]
fn a_stranger_may_say_who_it_is_and_nothing_else() {
    run(async {
        let mut place = Place::new().await;
        let users = Arc::clone(&place.context.shared.users);
        users
            .change(b"default", [&b">password"[..]].into_iter())
            .expect("a rule");
        // Whoever is there already has been let in.
        assert_eq!(place.execute("GET key").await, "$-1\r\n");
        place.client.reset();
        let unauthorised = "-NOAUTH Authentication required.\r\n";
        for line in ["GET key", "PING", "INFO", "ACL WHOAMI", "MULTI"] {
            assert_eq!(place.execute(line).await, unauthorised, "{line}");
        }
        for line in ["AUTH password", "HELLO", "RESET", "QUIT"] {
            place.client.reset();
            assert_ne!(place.execute(line).await, unauthorised, "{line}");
        }
        // What does not exist is said to everybody.
        place.client.reset();
        assert!(place.execute("nothing").await.starts_with("-ERR unknown command"));
        assert!(
            place
                .execute("ACL nothing")
                .await
                .starts_with("-ERR unknown subcommand")
        );
        assert_eq!(place.execute("AUTH password").await, "+OK\r\n");
        assert_eq!(place.execute("GET key").await, "$-1\r\n");
    });
}

/// A line with the right number of arguments.
fn line_of(what: Numbered) -> String {
    let arity = match what {
        Numbered::Command(command) => command.arity,
        Numbered::Subcommand(subcommand) => subcommand.arity,
    };
    let mut words: Vec<&str> = what.full_name().split('|').collect();
    while (words.len() as i64) < arity.abs() {
        words.push("1");
    }
    words.join(" ")
}

#[test]
fn whoever_may_do_nothing_is_refused_every_command() {
    run(async {
        let mut place = Place::new().await;
        let users = Arc::clone(&place.context.shared.users);
        let rules = [&b"on"[..], b"nopass", b"~*", b"&*"];
        users.change(b"nobody", rules.into_iter()).expect("rules");
        let mut refused = 0;
        for what in (0..table::COUNT).filter_map(table::numbered) {
            place.client.become_user(users.find(b"nobody").expect("it is there"));
            let reply = place.execute(&line_of(what)).await;
            let text = format!(
                "NOPERM User nobody has no permissions to run the '{}' command",
                what.full_name()
            );
            let expected = match what.full_name() {
                "exec" => format!("-EXECABORT Transaction discarded because of: {text}\r\n"),
                _ => format!("-{text}\r\n"),
            };
            // A container by itself is no command.
            let is_container =
                matches!(what, Numbered::Command(command) if command.arity == -2 && !command.subcommands.is_empty());
            if is_container {
                assert!(reply.starts_with("-ERR unknown subcommand '1'"), "{reply}");
            } else if what.flags().contains(&"no_auth") {
                assert!(!reply.starts_with("-NOPERM"), "{reply}");
            } else {
                assert_eq!(reply, expected);
                refused += 1;
            }
        }
        // All but the four that let one come and go, and the containers.
        let containers = table::TABLE
            .iter()
            .filter(|command| !command.subcommands.is_empty())
            .count();
        // COMMAND is one that may stand alone.
        assert_eq!(refused, table::COUNT - 4 - (containers - 1));
        let counts = lock(&users.log).counts();
        assert_eq!(counts[crate::acl::log::Reason::Command as usize], refused as u64);
    });
}

#[test]
fn a_transaction_is_judged_when_it_is_queued_and_when_it_is_executed() {
    run(async {
        let mut place = Place::new().await;
        let users = Arc::clone(&place.context.shared.users);
        let change = |rules: &[&str]| {
            let rules = ["on", "nopass"].iter().chain(rules).map(|rule| rule.as_bytes());
            users.change(b"alice", rules).expect("rules");
        };
        change(&["~a*", "+@all"]);
        place.client.become_user(users.find(b"alice").expect("it is there"));
        let (ok, queued) = ("+OK\r\n", "+QUEUED\r\n");
        let key = "-NOPERM No permissions to access a key\r\n";
        for (line, expected) in [
            ("MULTI", ok),
            ("SET a 1", queued),
            ("SET b 1", key),
            (
                "EXEC",
                "-EXECABORT Transaction discarded because of previous errors.\r\n",
            ),
            ("MULTI", ok),
            ("SET a 1", queued),
            ("SET ab 2", queued),
            ("PING", queued),
            ("GET a", queued),
            ("ECHO x", queued),
        ] {
            assert_eq!(place.execute(line).await, expected, "{line}");
        }
        change(&["resetkeys", "~a", "-ping"]);
        place.client.card.notify(crate::roster::Notices::USERS);
        assert!(place.client.heed());
        let changed = "-NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This \
                       command is no longer allowed for the following reason: no permission to";
        let expected = format!(
            "*5\r\n+OK\r\n{changed} touch the specified keys\r\n{changed} execute the command or subcommand\r\n$1\r\n1\r\n$1\r\nx\r\n"
        );
        assert_eq!(place.execute("EXEC").await, expected);
        assert_eq!(place.execute("EXISTS a").await, ":1\r\n");
        let shown: Vec<_> = lock(&users.log)
            .entries()
            .map(|entry| {
                (
                    entry.refused.is_in_multi,
                    String::from_utf8_lossy(&entry.refused.object).into_owned(),
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                (true, "ping".to_owned()),
                (true, "ab".to_owned()),
                (true, "b".to_owned())
            ]
        );
    });
}

#[test]
fn who_watches_sees_what_is_not_administration() {
    run(async {
        let mut place = Place::new().await;
        let ends = Ends {
            address: "watcher:1".to_owned(),
            local_address: "gateway:1".to_owned(),
            descriptor: 7,
        };
        let shared = Arc::clone(&place.context.shared);
        let watcher = Client::enter(&shared, ends, 0);
        let seen = || String::from_utf8(shared.live.monitors.take(&watcher.card)).expect("plain text");
        place.execute("GET before").await;
        shared.live.monitors.join(&watcher.card);
        place.execute("GET key").await;
        place.execute("CONFIG GET maxmemory").await;
        place.execute("nothing").await;
        let lines = seen();
        assert!(lines.ends_with(" [0 client:1] \"GET\" \"key\"\r\n"), "{lines}");
        assert_eq!(lines.lines().count(), 1);
        shared.live.monitors.leave(&watcher.card);
        place.execute("GET key").await;
        assert_eq!(seen(), "");
    });
}

#[test]
fn only_what_may_take_long_is_timed() {
    run(async {
        let mut place = Place::new().await;
        let live = &place.context.shared.clone().live;
        live.settings.slow_us.store(0, Ordering::Relaxed);
        for line in ["GET key", "SET key value", "KEYS *", "PING", "KEYS"] {
            place.execute(line).await;
        }
        let log = lock(&live.slow_log);
        let noted: Vec<_> = log.entries().map(|entry| entry.arguments.concat()).collect();
        assert_eq!(noted, [b"KEYS*"]);
    });
}

#[test]
fn who_wants_no_replies_gets_none() {
    run(async {
        let mut place = Place::new().await;
        let (get, ok) = ("$-1\r\n", "+OK\r\n");
        for (line, expected) in [
            ("GET key", get),
            ("CLIENT REPLY SKIP", ""),
            ("GET key", ""),
            ("GET key", get),
            ("CLIENT REPLY SKIP", ""),
            ("nothing", ""),
            ("GET key", get),
            ("CLIENT REPLY OFF", ""),
            ("GET key", ""),
            ("nothing", ""),
            ("CLIENT REPLY SKIP", ""),
            ("GET key", ""),
            ("GET key", ""),
            ("CLIENT REPLY ON", ok),
            ("GET key", get),
            ("CLIENT REPLY ON", ok),
            ("CLIENT REPLY SKIP", ""),
            ("CLIENT REPLY ON", ok),
            ("GET key", get),
        ] {
            assert_eq!(place.execute(line).await, expected, "{line}");
        }
    });
}

#[test]
fn a_refusal_says_what_is_wrong() {
    run(async {
        let place = Place::new().await;
        let node = NodeId::new(0);
        let refused = |refusal: Refusal| {
            let mut reply = Reply::default();
            refuse(&place.context, &mut reply, refusal);
            String::from_utf8(reply.bytes().to_vec()).expect("plain text")
        };
        assert_eq!(refused(SYNTAX.into()), "-ERR syntax error\r\n");
        let late = KvError::from(FabricError::DeadlineExceeded { node });
        assert_eq!(refused(late.clone().into()), format!("-ERR {late}\r\n"));
        assert_eq!(place.context.closing(), None);
        let cut_off = KvError::from(FabricError::Fenced { node });
        assert_eq!(refused(cut_off.clone().into()), format!("-ERR {cut_off}\r\n"));
        assert_eq!(place.context.closing(), Some(Closing::CutOff));
        assert_eq!(place.context.statistics().errors.get(), 3);
    });
}

#[test]
fn what_does_not_fit_is_refused_in_the_words_of_redis() {
    run(async {
        let mut place = Place::new().await;
        assert_eq!(place.execute("SET first value").await, "+OK\r\n");
        place.context.shared.live.quota.set_bytes_max(1);
        let refused = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";
        assert_eq!(place.execute("SET key value").await, refused);
        assert_eq!(place.context.closing(), None);
        let errors = place.context.shared.live.errors();
        assert_eq!(errors, [("OOM".to_owned(), 1)]);
    });
}

#[test]
fn help_has_a_headline_and_its_own_line() {
    let mut reply = Reply::default();
    help(&mut reply, "THING", &["GET", "    Gets."]);
    let expected = "*5\r\n+THING <subcommand> [<arg> [value] [opt] ...]. Subcommands are:\r\n\
                    +GET\r\n+    Gets.\r\n+HELP\r\n+    Prints this help.\r\n";
    assert_eq!(reply.bytes(), expected.as_bytes());
}

/// An error line in the middle of a reply would be read as data.
#[test]
fn a_reply_that_is_half_written_is_not_followed_by_an_error() {
    run(async {
        let mut place = Place::new().await;
        let mut scratch = Scratch::default();
        let request = Request::split(b"GET key", &mut scratch).expect("a good line");
        let mut call = Call {
            request: &request,
            client: &mut place.client,
            reply: &mut place.reply,
            keys: Keys::Apart(&mut place.session),
            stream: &mut place.stream,
            context: &place.context,
        };
        let mark = call.reply.mark();
        call.reply.array(2);
        answer(&mut call, mark, SYNTAX.into()).expect("nothing is written yet");
        assert_eq!(call.reply.bytes(), b"-ERR syntax error\r\n");
        let mark = call.reply.mark();
        call.reply.array(2);
        call.reply.consume(call.reply.len());
        let broken = answer(&mut call, mark, SYNTAX.into());
        assert!(broken.is_err() && call.reply.is_empty());
        let mark = call.reply.mark();
        let broken = answer(&mut call, mark, io::Error::other("it broke").into());
        assert!(broken.is_err() && call.reply.is_empty());
    });
}
