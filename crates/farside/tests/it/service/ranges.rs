//! Keys in order: SCAN and KEYS by prefix, FARSIDE RANGE, `farside kv scan`, and the index that all of these take.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use super::client::Client;
use super::command_line::refusal;
use super::commands::check;
use super::process::{Server, farside, output};
use super::scan::{scan, strings};

const CHIME: [&str; 4] = ["--memory", "64MiB", "--index", "chime"];

fn number_names(count: u32) -> Vec<String> {
    (0..count)
        .map(|number| format!("tenant:7:number:{number:05}"))
        .collect()
}

/// Many keys in few commands, not in order.
fn store(client: &mut Client, names: &[String]) {
    let (even, odd): (Vec<&String>, Vec<&String>) =
        names.iter().partition(|name| name.ends_with(['0', '2', '4', '6', '8']));
    for part in [odd, even] {
        for names in part.chunks(500) {
            let pairs = names.iter().flat_map(|name| [name.as_bytes(), b"v"]);
            let command: Vec<&[u8]> = core::iter::once(&b"MSET"[..]).chain(pairs).collect();
            assert_eq!(client.call(&command), b"+OK\r\n");
        }
    }
}

/// The keys of all calls, each on a connection of its own, and how many calls there were.
fn scan_all(server: &Server, options: &str) -> (Vec<String>, usize) {
    let (mut cursor, mut all, mut calls) = ("0".to_owned(), Vec::new(), 0);
    loop {
        let (next, keys) = scan(&mut server.client(), &cursor, options);
        all.extend(keys);
        calls += 1;
        if next == "0" {
            return (all, calls);
        }
        cursor = next;
    }
}

#[test]
fn scan_goes_through_keys_in_order_on_any_connection() {
    for index in ["chime", "sherman", "marlin", "smart", "rolex", "chime-learned"] {
        let server = Server::serve(&["--memory", "64MiB", "--index", index]);
        let mut client = server.client();
        let names = number_names(4000);
        store(&mut client, &names);
        assert_eq!(client.ask("DBSIZE"), ":4000\r\n");
        for (options, calls) in [("", 401), (" COUNT 1000", 5), (" COUNT 9223372036854775807", 1)] {
            assert_eq!(scan_all(&server, options), (names.clone(), calls), "{index}{options}");
        }
        assert_eq!(strings(&client.ask("KEYS *")), names);
    }
}

#[test]
fn a_prefix_costs_as_many_calls_as_it_has_keys() {
    let server = Server::serve(&CHIME);
    let mut client = server.client();
    let names = number_names(3000);
    store(&mut client, &names);
    let users: Vec<String> = (0..25).map(|number| format!("user:{number:02}")).collect();
    store(&mut client, &users);
    client.ask("SET user;1 x");
    client.ask("SET use x");
    // Ten keys a call, and nothing before or behind them.
    assert_eq!(scan_all(&server, " MATCH user:*"), (users.clone(), 3));
    assert_eq!(scan_all(&server, " MATCH user:1?"), (users[10..20].to_vec(), 2));
    // What is in brackets is no part of the prefix.
    assert_eq!(scan_all(&server, " MATCH user:[2]3"), (vec!["user:23".to_owned()], 3));
    assert_eq!(scan_all(&server, " MATCH user:07"), (vec!["user:07".to_owned()], 1));
    assert_eq!(scan_all(&server, " MATCH nobody*"), (Vec::new(), 1));
    assert_eq!(scan_all(&server, " MATCH user:* TYPE hash"), (Vec::new(), 3));
    assert_eq!(strings(&client.ask("KEYS user:*")), users);
    assert_eq!(strings(&client.ask("KEYS *:0099?")), names[990..1000]);
    // A key is read at least: it is of no use to whoever has the cursor.
    let (cursor, _) = scan(&mut client, "0", " MATCH user:*");
    assert_eq!(scan(&mut client, &cursor, " MATCH user:*").1, users[10..20]);
    assert_eq!(
        scan(&mut client, &cursor, " MATCH tenant:*"),
        ("0".to_owned(), Vec::new())
    );
}

#[test]
fn a_range_has_its_ends_its_limit_and_its_values() {
    let server = Server::serve(&CHIME);
    let mut client = server.client();
    let names = number_names(1000);
    store(&mut client, &names);
    let mut ask = |line: &str| strings(&client.ask(&format!("FARSIDE RANGE {line}")));
    assert_eq!(ask("- +"), names);
    assert_eq!(ask("- + LIMIT 3"), names[..3]);
    assert_eq!(ask("- + LIMIT 0"), [""; 0]);
    assert_eq!(ask("+ -"), [""; 0]);
    assert_eq!(ask("+ +"), [""; 0]);
    assert_eq!(ask("- -"), [""; 0]);
    let (three, six) = (&names[3], &names[6]);
    assert_eq!(ask(&format!("[{three} [{six}")), names[3..=6]);
    assert_eq!(ask(&format!("({three} ({six}")), names[4..6]);
    assert_eq!(ask(&format!("({three} + limit 2")), names[4..6]);
    assert_eq!(ask(&format!("[{six} [{three}")), [""; 0]);
    assert_eq!(ask(&format!("({six} ({six}")), [""; 0]);
    assert_eq!(ask(&format!("[{six} [{six}")), names[6..7]);
    assert_eq!(ask("[u +"), [""; 0]);
    // As whoever reads page by page goes on.
    let (mut from, mut all) = ("-".to_owned(), Vec::new());
    loop {
        let page = ask(&format!("{from} + LIMIT 300"));
        let Some(last) = page.last() else { break };
        from = format!("({last}");
        all.extend(page);
    }
    assert_eq!(all, names);

    client.ask("FLUSHALL");
    client.call(&[b"SET", b"a\r\n", b"\x00\xff"]);
    client.ask("SET b x");
    client.ask("SET gone x PXAT 1");
    assert_eq!(
        client.ask("FARSIDE RANGE - + VALUES LIMIT 9").into_bytes(),
        String::from_utf8_lossy(b"*2\r\n*2\r\n$3\r\na\r\n\r\n$2\r\n\x00\xff\r\n*2\r\n$1\r\nb\r\n$1\r\nx\r\n")
            .into_owned()
            .into_bytes()
    );
    let long = vec![b'k'; 64 << 10];
    client.call(&[b"SET", &long, b"x"]);
    assert_eq!(
        client.call(&[
            b"FARSIDE",
            b"RANGE",
            &[b"[", &long[..]].concat(),
            &[b"[", &long[..]].concat()
        ]),
        [b"*1\r\n$65536\r\n", &long[..], b"\r\n"].concat()
    );
    let longer = [b"(", &long[..], b"kkk"].concat();
    assert_eq!(client.call(&[b"FARSIDE", b"RANGE", &longer, b"+"]), b"*0\r\n");
    assert_eq!(
        client.call(&[b"FARSIDE", b"RANGE", &longer[..2], &longer, b"LIMIT", b"1"]),
        [b"*1\r\n$65536\r\n", &long[..], b"\r\n"].concat()
    );
}

#[test]
fn nonsense_is_refused_in_one_line() {
    let server = Server::serve(&CHIME);
    let not_an_end =
        "-ERR an end of a range is [key (with it), (key (without it), - (the first key) or + (the last)\r\n";
    let cursor = |cursor: &str| {
        format!(
            "-ERR invalid cursor {cursor}: an index that keeps keys in order knows the last 16384 cursors, in the process that gave them \
             out; start again with 0\r\n"
        )
    };
    check(
        &mut server.client(),
        &[
            (
                "FARSIDE RANGE",
                "-ERR wrong number of arguments for 'farside|range' command\r\n",
            ),
            (
                "FARSIDE RANGE -",
                "-ERR wrong number of arguments for 'farside|range' command\r\n",
            ),
            ("FARSIDE RANGE a b", not_an_end),
            ("FARSIDE RANGE - b", not_an_end),
            ("FARSIDE RANGE - + WITHSCORES", "-ERR syntax error\r\n"),
            ("FARSIDE RANGE - + LIMIT", "-ERR syntax error\r\n"),
            ("FARSIDE RANGE - + LIMIT 0 10", "-ERR syntax error\r\n"),
            (
                "FARSIDE RANGE - + LIMIT x",
                "-ERR value is not an integer or out of range\r\n",
            ),
            ("FARSIDE RANGE - + LIMIT -1", "-ERR count must not be negative\r\n"),
            ("FARSIDE RANGE - +", "*0\r\n"),
            ("SCAN 7", &cursor("7")),
            ("SCAN 18446744073709551615", &cursor("18446744073709551615")),
            ("RANDOMKEY", "$-1\r\n"),
        ],
    );
    let unordered = Server::serve(&["--memory", "64MiB"]);
    let no_order = "-ERR the index race does not keep keys in order: ranges need memory that was made with --index chime, sherman, marlin, smart, rolex or chime-learned\r\n";
    check(
        &mut unordered.client(),
        &[
            ("FARSIDE RANGE - +", no_order),
            ("FARSIDE RANGE + - LIMIT 0", no_order),
            ("FARSIDE RANGE a b", not_an_end),
        ],
    );
}

#[test]
fn what_has_expired_is_in_no_range_and_hides_nothing() {
    let server = Server::serve(&CHIME);
    let mut client = server.client();
    for number in 0..300 {
        client.ask(&format!("SET gone:{number:03} x PXAT 1"));
    }
    client.ask("SET stays x");
    assert_eq!(strings(&client.ask("FARSIDE RANGE - + LIMIT 1")), ["stays"]);
    assert_eq!(strings(&client.ask("KEYS *")), ["stays"]);
    assert_eq!(strings(&client.ask("RANDOMKEY")), ["stays"]);
    let (keys, _) = scan_all(&server, " COUNT 50");
    assert_eq!(keys, ["stays"]);
}

#[test]
fn memory_keeps_its_index_and_no_cursors() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("segment");
    let path = path.to_str().expect("plain");
    let server = Server::serve(&["--segment", path, "--memory", "64MiB", "--index", "sherman"]);
    let names = number_names(500);
    store(&mut server.client(), &names);
    let (cursor, first) = scan(&mut server.client(), "0", "");
    assert_eq!(first, names[..10]);
    assert!(server.terminate());

    let serve =
        |arguments: &[&str]| refusal(&[&["serve", "--listen", "127.0.0.1:0", "--segment", path], arguments].concat());
    for (index, wrong) in [("chime", "sherman, not chime"), ("race", "sherman, not race")] {
        let line = serve(&["--index", index]);
        assert!(line.contains(wrong), "{line}");
    }
    for scheme in ["cider", "shiftlock-mutex"] {
        let line = serve(&["--sync", scheme]);
        assert!(
            line.contains(&format!(
                "made without lock entries, which {scheme} needs: choose another --sync"
            )),
            "{line}"
        );
    }

    // It is the one that is there.
    let server = Server::serve(&["--segment", path]);
    let mut client = server.client();
    assert!(client.ask("INFO server").contains("farside_index:sherman"));
    assert_eq!(scan_all(&server, " COUNT 100"), (names, 6));
    let unknown = client.ask(&format!("SCAN {cursor}"));
    assert!(
        unknown.starts_with(&format!("-ERR invalid cursor {cursor}:")),
        "{unknown}"
    );
    assert!(server.terminate());
    let checked = output(&["fsck", "--pool", &format!("shm:{path}")]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}

#[test]
fn memory_without_order_is_not_opened_as_if_it_had_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("segment");
    let path = path.to_str().expect("plain");
    assert!(Server::serve(&["--segment", path, "--memory", "64MiB"]).terminate());
    let line = refusal(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--segment",
        path,
        "--index",
        "chime",
    ]);
    assert!(line.contains("the pool has the index race, not chime"), "{line}");
    let line = refusal(&["kv", "--pool", &format!("shm:{path}"), "scan", "--limit", "0"]);
    assert!(
        line.contains("race does not keep keys in order") && line.contains("--index chime"),
        "{line}"
    );
}

#[test]
fn kv_scan_prints_keys_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("segment");
    let path = path.to_str().expect("plain");
    let pool = format!("shm:{path}");
    let server = Server::serve(&["--segment", path, "--memory", "64MiB", "--index", "chime"]);
    let mut client = server.client();
    let names = number_names(2000);
    store(&mut client, &names);
    let scan = |arguments: &[&str]| {
        let shown = output(&[&["kv", "--pool", &pool, "scan"], arguments].concat());
        assert!(shown.status.success() && shown.stderr.is_empty(), "{shown:?}");
        String::from_utf8(shown.stdout).expect("text")
    };
    let lines = |names: &[String]| names.iter().map(|name| format!("{name}\n")).collect::<String>();
    assert_eq!(scan(&[]), lines(&names));
    assert_eq!(scan(&[&names[1990]]), lines(&names[1990..]));
    assert_eq!(scan(&[&names[300], &names[900]]), lines(&names[300..900]));
    assert_eq!(scan(&[&names[300], "--limit", "257"]), lines(&names[300..557]));
    assert_eq!(scan(&[&names[900], &names[300]]), "");
    assert_eq!(scan(&["--limit", "0"]), "");
    assert_eq!(
        scan(&["tenant:7:number:0199", "--values", "--limit", "2"]),
        "tenant:7:number:01990\tv\ntenant:7:number:01991\tv\n"
    );

    client.ask("FLUSHALL");
    client.call(&[b"SET", b"", b"of the empty key"]);
    client.call(&[b"SET", b"two\nlines", b"a\tb\\"]);
    client.call(&[b"SET", b"\xff\x1b[2J", "\u{fc}".as_bytes()]);
    assert_eq!(
        scan(&["--values"]),
        "\tof the empty key\ntwo\\nlines\ta\\tb\\\\\n\\xff\\x1b[2J\t\u{fc}\n"
    );
}

#[test]
fn kv_scan_ends_when_nobody_reads_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("segment");
    let path = path.to_str().expect("plain");
    let server = Server::serve(&["--segment", path, "--memory", "64MiB", "--index", "chime"]);
    // More than pipes and pages hold.
    let names: Vec<String> = (0..4000).map(|number| format!("{number:04}{:0>200}", "")).collect();
    store(&mut server.client(), &names);
    let mut scan = farside(&["kv", "--pool", &format!("shm:{path}"), "scan"]);
    let mut scan = scan
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("built");
    let mut first = String::new();
    let mut reader = BufReader::new(scan.stdout.take().expect("a pipe"));
    reader.read_line(&mut first).expect("a line");
    assert_eq!(first.trim_end(), names[0]);
    drop(reader);
    let ended = scan.wait_with_output().expect("ours");
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
}
