//! Exports and imports, with files that the `redis-server` of the distribution writes and reads.

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use super::process::{Server, farside, output};
use super::redis::{Redis, text};

/// Runs a command that succeeds, and returns its summary.
fn summary(arguments: &[&str]) -> serde_json::Value {
    let done = output(arguments);
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{arguments:?}: {errors}");
    serde_json::from_slice(&done.stdout).expect("JSON")
}

/// Runs a command that fails, and returns what it says.
fn failure(arguments: &[&str]) -> String {
    let done = output(arguments);
    assert!(!done.status.success(), "{arguments:?}");
    String::from_utf8_lossy(&done.stderr).into_owned()
}

/// What is asked about the keys of other types below: in an order that both keep.
const TYPED: [&str; 9] = [
    "LRANGE list 0 -1",
    "SMISMEMBER numbers 1 2 3 4",
    "SISMEMBER words two",
    "SCARD words",
    "ZRANGE scores 0 -1 WITHSCORES",
    "HGETALL fields",
    "HGET wide a",
    "PEXPIRETIME fields",
    "TYPE scores",
];

#[test]
fn redis_reads_what_is_exported() {
    let folder = tempfile::tempdir().expect("a folder");
    let segment = folder.path().join("segment");
    let server = Server::serve(&["--segment", text(&segment), "--memory", "64MiB"]);
    let mut client = server.client();
    let large = "v".repeat(100_000);
    client.ask("MSET a 1 b -70000 c 12345678901234 empty \"\" d 007");
    client.ask(&format!("SET large {large}"));
    client.ask("SET later soon PXAT 4102444800000");
    client.ask("SET gone soon PX 1");
    client.ask("RPUSH list a -1 c");
    client.ask("SADD numbers 1 2 3");
    client.ask("SADD words one two");
    client.ask("ZADD scores 1.5 a -inf b 7 c");
    client.ask("HSET fields a 1 b 2");
    client.ask("PEXPIREAT fields 4102444800000");
    client.ask(&format!("HSET wide a {large}"));
    for number in 0..3000 {
        client.ask(&format!("SET key{number} value{number}"));
    }
    let pool = format!("shm:{}", text(&segment));
    let file = folder.path().join("dump.rdb");
    let made = summary(&["export", "--pool", &pool, "--to", text(&file), "--json"]);
    assert_eq!(
        (made["kind"].as_str(), made["items"].as_u64()),
        (Some("export"), Some(3013)),
        "{made}"
    );
    assert_eq!(
        made["bytes"].as_u64(),
        Some(std::fs::metadata(&file).expect("a file").len())
    );

    let redis = Redis::start(folder.path());
    let mut theirs = redis.client();
    assert_eq!(theirs.ask("DBSIZE"), ":3013\r\n");
    for line in [
        "MGET a b c empty d key0 key2999",
        "GET large",
        "PEXPIRETIME later",
        "EXISTS gone",
    ]
    .iter()
    .chain(&TYPED)
    {
        assert_eq!(theirs.ask(line), client.ask(line), "{line}");
    }
}

#[test]
fn what_redis_has_written_is_imported() {
    let folder = tempfile::tempdir().expect("a folder");
    let redis = Redis::start(folder.path());
    let mut theirs = redis.client();
    // Compressed strings, numbers, an expiry.
    let large = "0123456789".repeat(2000);
    theirs.ask(&format!("SET large {large}"));
    theirs.ask("MSET a 1 b -1 c 300 d -70000 e 12345678901234 empty \"\" text word");
    theirs.ask("SET later soon PXAT 4102444800000");
    theirs.ask("SAVE");
    let segment = folder.path().join("segment");
    let server = Server::serve(&["--segment", text(&segment), "--memory", "64MiB"]);
    let (pool, file) = (format!("shm:{}", text(&segment)), folder.path().join("dump.rdb"));
    let import = ["import", "--pool", &pool, "--from", text(&file), "--json"];
    let with = |more: &[&'static str]| [&import, more].concat();
    let mut client = server.client();
    let read = summary(&import);
    assert_eq!(
        (read["kind"].as_str(), read["items"].as_u64()),
        (Some("import"), Some(9)),
        "{read}"
    );
    for line in ["MGET a b c d e empty text", "GET large", "PEXPIRETIME later", "DBSIZE"] {
        assert_eq!(client.ask(line), theirs.ask(line), "{line}");
    }

    // Keys that are there.
    client.ask("SET text changed");
    let refused = failure(&import);
    assert!(
        refused.contains("is there already") && refused.contains("--replace"),
        "{refused}"
    );
    let kept = summary(&with(&["--keep-existing"]));
    assert_eq!(
        (kept["items"].as_u64(), kept["kept"].as_u64()),
        (Some(0), Some(9)),
        "{kept}"
    );
    assert_eq!(client.ask("GET text"), "$7\r\nchanged\r\n");
    let replaced = summary(&with(&["--replace"]));
    assert_eq!(replaced["items"].as_u64(), Some(9), "{replaced}");
    assert_eq!(client.ask("GET text"), "$4\r\nword\r\n");
    assert!(!folder.path().join("dump.rdb.importing").exists());

    // Other types and other databases.
    theirs.ask("RPUSH list a b c");
    theirs.ask("SADD numbers 1 2 3");
    theirs.ask("SADD words one two");
    theirs.ask("ZADD scores 1.5 a 2 b");
    theirs.ask("HSET fields a 1 b 2");
    theirs.ask(&format!("HSET wide a {large}"));
    theirs.ask("XADD stream * a 1");
    theirs.ask("XGROUP CREATE stream readers 0");
    theirs.ask("XREADGROUP GROUP readers one STREAMS stream >");
    theirs.ask("FUNCTION LOAD \"#!lua name=l\\nredis.register_function('f', function() return 1 end)\"");
    theirs.ask("SAVE");
    let refused = failure(&with(&["--replace"]));
    assert!(
        refused.contains("`stream` is a stream, which is not kept here"),
        "{refused}"
    );
    let skipped = summary(&with(&["--replace", "--skip-other-types"]));
    assert_eq!(
        (skipped["items"].as_u64(), skipped["skipped_types"].as_u64()),
        (Some(15), Some(1)),
        "{skipped}"
    );
    for line in TYPED {
        assert_eq!(client.ask(line), theirs.ask(line), "{line}");
    }
    theirs.ask("SELECT 3");
    theirs.ask("SET elsewhere 1");
    theirs.ask("SAVE");
    let refused = failure(&with(&["--replace", "--skip-other-types"]));
    assert!(refused.contains("`elsewhere` is in database 3"), "{refused}");
    let third = summary(&with(&["--database", "3"]));
    assert_eq!(
        (third["items"].as_u64(), third["skipped_databases"].as_u64()),
        (Some(1), Some(16)),
        "{third}"
    );
}

#[test]
fn nothing_of_a_damaged_file_is_imported() {
    let folder = tempfile::tempdir().expect("a folder");
    let segment = folder.path().join("segment");
    let server = Server::serve(&["--segment", text(&segment), "--memory", "64MiB"]);
    let mut client = server.client();
    for number in 0..2000 {
        client.ask(&format!("SET key{number} value{number}"));
    }
    let (pool, file) = (format!("shm:{}", text(&segment)), folder.path().join("a.rdb"));
    summary(&["export", "--pool", &pool, "--to", text(&file), "--json"]);
    client.ask("FLUSHALL");
    let whole = std::fs::read(&file).expect("a file");
    let mut damaged = whole.clone();
    let at = damaged.len() - 20;
    damaged[at] ^= 1;
    for (contents, expected) in [
        (&damaged[..], "checksum"),
        (&whole[..whole.len() / 2], "cut off"),
        (b"text", "not an RDB file"),
    ] {
        std::fs::write(&file, contents).expect("a file");
        let refused = failure(&["import", "--pool", &pool, "--from", text(&file)]);
        assert!(refused.contains(expected), "{refused}");
        assert_eq!(client.ask("DBSIZE"), ":0\r\n");
    }
    // What cannot be read twice is found out at the end.
    let mut piped = farside(&["import", "--pool", &pool, "--from", "-"]);
    let mut piped = piped
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("built");
    std::io::Write::write_all(&mut piped.stdin.take().expect("piped"), &damaged).expect("it reads");
    let piped = piped.wait_with_output().expect("ours");
    let says = String::from_utf8_lossy(&piped.stderr);
    assert!(
        !piped.status.success() && says.contains("keys were stored before"),
        "{says}"
    );
    // And goes on where it was.
    std::fs::write(&file, &whole).expect("a file");
    assert!(failure(&["import", "--pool", &pool, "--from", text(&file), "--resume"]).contains("nothing to resume"));
    let state = folder.path().join("a.rdb.importing");
    let (from, bytes) = (text(&file), whole.len());
    let noted =
        format!("{{\"from\":\"{from}\",\"version\":\"{bytes}\",\"into\":\"{pool}\",\"done\":1500,\"begun\":1900}}");
    std::fs::write(&state, noted).expect("a file");
    client.ask("FLUSHALL");
    let resumed = summary(&["import", "--pool", &pool, "--from", text(&file), "--resume", "--json"]);
    assert_eq!(
        (resumed["resumed"].as_u64(), resumed["items"].as_u64()),
        (Some(1500), Some(500)),
        "{resumed}"
    );
    assert!(!state.exists());
}

/// A writer stores a number under the first key, then under the second, and so on: whoever sees the store at an instant sees
/// numbers that do not grow, and differ by one at most.
#[test]
fn an_export_beside_writers_is_an_instant() {
    const KEYS: u64 = 64;
    let folder = tempfile::tempdir().expect("a folder");
    let segment = folder.path().join("segment");
    let server = Server::serve(&["--segment", text(&segment), "--memory", "256MiB"]);
    let pool = format!("shm:{}", text(&segment));
    let mut client = server.client();
    for number in 0..20_000 {
        client.ask(&format!("SET filler{number} {number}"));
    }
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Each key through another connection, and so through other threads of the gateway.
            let mut clients = [server.client(), server.client(), server.client()];
            let mut number = 1_000_000;
            while !is_done.load(Ordering::SeqCst) {
                for key in 0..KEYS {
                    let client = &mut clients[key as usize % 3];
                    assert_eq!(client.ask(&format!("SET step{key:03} {number}")), "+OK\r\n");
                }
                number += 1;
            }
        });
        for round in 0..5 {
            let exported = output(&["export", "--pool", &pool, "--to", "-", "--json"]);
            let says = String::from_utf8_lossy(&exported.stderr);
            assert!(exported.status.success(), "{says}");
            let mut reader = farside_rdb::Reader::new(&exported.stdout[..]).expect("a file");
            let mut steps = std::collections::BTreeMap::new();
            let mut fillers = 0;
            while let Some(record) = reader.next_record().expect("whole") {
                let farside_rdb::Record::Value { key, value, .. } = record else {
                    continue;
                };
                match key.strip_prefix(b"step") {
                    Some(_) => drop(steps.insert(key, value)),
                    None => fillers += 1,
                }
            }
            let number = |value: &Vec<u8>| -> u64 { String::from_utf8_lossy(value).parse().expect("a number") };
            let numbers: Vec<u64> = steps.values().map(number).collect();
            assert_eq!(fillers, 20_000);
            assert!(
                numbers.is_sorted_by(|before, after| before >= after),
                "round {round}: {numbers:?}"
            );
            let spread = numbers
                .first()
                .zip(numbers.last())
                .map_or(0, |(first, last)| first - last);
            assert!(spread <= 1, "round {round}: {numbers:?}");
        }
        is_done.store(true, Ordering::SeqCst);
    });
}

#[test]
fn single_values_go_both_ways() {
    let folder = tempfile::tempdir().expect("a folder");
    let redis = Redis::start(folder.path());
    let server = Server::serve(&["--memory", "64MiB"]);
    let (mut theirs, mut ours) = (redis.client(), server.client());
    let large = "0123456789".repeat(500);
    let values = ["10", "-129", "70000", "99999999999", "word", "007", "", &large];
    let payload = |reply: Vec<u8>| {
        let start = reply.windows(2).position(|two| two == b"\r\n").expect("a reply") + 2;
        reply[start..reply.len() - 2].to_vec()
    };
    for value in values {
        theirs.call(&[b"SET", b"k", value.as_bytes()]);
        ours.call(&[b"DEL", b"k"]);
        let dumped = payload(theirs.call(&[b"DUMP", b"k"]));
        assert_eq!(ours.call(&[b"RESTORE", b"k", b"0", &dumped]), b"+OK\r\n", "{value}");
        assert_eq!(ours.ask("GET k"), theirs.ask("GET k"));
        // And back.
        theirs.call(&[b"DEL", b"k"]);
        let dumped = payload(ours.call(&[b"DUMP", b"k"]));
        assert_eq!(theirs.call(&[b"RESTORE", b"k", b"0", &dumped]), b"+OK\r\n", "{value}");
        assert_eq!(ours.ask("GET k"), theirs.ask("GET k"));
    }
    let dumped = payload(ours.call(&[b"DUMP", b"k"]));
    for arguments in [
        vec![&b"k"[..], b"0", &dumped],
        vec![b"k", b"-1", &dumped],
        vec![b"k", b"0", b"text"],
        vec![b"k", b"0", &dumped, b"IDLETIME", b"-1"],
        vec![b"k", b"0", &dumped, b"FREQ", b"256"],
        vec![b"k", b"0", &dumped, b"WHAT"],
        vec![b"k", b"5000000", &dumped, b"REPLACE"],
        vec![b"k", b"4102444800000", &dumped, b"REPLACE", b"ABSTTL", b"FREQ", b"9"],
        vec![
            b"k",
            b"4102444800000",
            &dumped,
            b"ABSTTL",
            b"REPLACE",
            b"IDLETIME",
            b"9",
        ],
    ] {
        let call = [vec![&b"RESTORE"[..]], arguments].concat();
        let (answer, expected) = (ours.call(&call), theirs.call(&call));
        assert_eq!(String::from_utf8_lossy(&answer), String::from_utf8_lossy(&expected));
    }
    assert_eq!(ours.ask("PEXPIRETIME k"), theirs.ask("PEXPIRETIME k"));
    assert_eq!(ours.ask("DUMP none"), theirs.ask("DUMP none"));
    // Other types: small and large by the limits of Redis, of integers and not.
    let many = |name: &str, each: &dyn Fn(u32) -> String| {
        let elements: Vec<_> = (0..600).map(each).collect();
        format!("{name} k {}", elements.join(" "))
    };
    for (make, show) in [
        ("RPUSH k 1 -70000 a 12345678901234 \"\"".to_owned(), "LRANGE k 0 -1"),
        (
            many("RPUSH", &|number| format!("element{number} {number}")),
            "LRANGE k 0 -1",
        ),
        ("SADD k 1 2 -3".to_owned(), "SMISMEMBER k 1 2 3 -3"),
        (
            many("SADD", &|number| (number * 70_000).to_string()),
            "SMISMEMBER k 0 70000 41930000 1",
        ),
        ("SADD k a b 3".to_owned(), "SMISMEMBER k a b 3 c"),
        (
            many("SADD", &|number| format!("m{number}")),
            "SMISMEMBER k m0 m599 m600",
        ),
        ("ZADD k 1 a -inf b 2.5 c 1e15 d".to_owned(), "ZRANGE k 0 -1 WITHSCORES"),
        (
            many("ZADD", &|number| format!("{number} m{number}")),
            "ZRANGE k 0 -1 WITHSCORES",
        ),
        ("HSET k f 1 g \"\" 7 x".to_owned(), "HGETALL k"),
        (
            many("HSET", &|number| format!("f{number} {number}")),
            "HMGET k f0 f599 f600",
        ),
    ] {
        for back in [false, true] {
            let (from, to) = if back {
                (&mut ours, &mut theirs)
            } else {
                (&mut theirs, &mut ours)
            };
            from.ask("DEL k");
            to.ask("DEL k");
            from.ask(&make);
            let dumped = payload(from.call(&[b"DUMP", b"k"]));
            assert_eq!(to.call(&[b"RESTORE", b"k", b"0", &dumped]), b"+OK\r\n", "{make}");
            // Redis 7.2 has small lists and sets in a listpack; 7.0, which is asked here, has not.
            let has_none = ["RPUSH", "SADD k a", "SADD k m"]
                .iter()
                .any(|start| make.starts_with(start));
            let encoding = if has_none { show } else { "OBJECT ENCODING k" };
            for line in [show, encoding, "TYPE k", "SCARD k", "ZCARD k", "LLEN k", "HLEN k"] {
                assert_eq!(ours.ask(line), theirs.ask(line), "{line}: {make}");
            }
        }
    }
    theirs.ask("XADD stream * a 1");
    let dumped = payload(theirs.call(&[b"DUMP", b"stream"]));
    let refused = ours.call(&[b"RESTORE", b"other", b"0", &dumped]);
    assert!(
        refused.starts_with(b"-WRONGTYPE the payload is a stream"),
        "{refused:?}"
    );
}

#[test]
fn old_backups_go() {
    let folder = tempfile::tempdir().expect("a folder");
    let (segment, backups) = (folder.path().join("segment"), folder.path().join("backups"));
    let server = Server::serve(&["--segment", text(&segment), "--memory", "64MiB"]);
    server.client().ask("SET a 1");
    std::fs::create_dir(&backups).expect("a folder");
    for name in [
        "farside-20200101T000000Z.rdb",
        "farside-20200102T000000Z.rdb",
        "mine.rdb",
    ] {
        std::fs::write(backups.join(name), "x").expect("a file");
    }
    let pool = format!("shm:{}", text(&segment));
    let arguments = [
        "export",
        "--pool",
        &pool,
        "--to",
        text(&backups),
        "--every",
        "1h",
        "--keep",
        "2",
        "--json",
    ];
    let mut schedule = farside(&arguments);
    let mut schedule = schedule.stdout(Stdio::piped()).spawn().expect("built");
    let mut line = String::new();
    let mut lines = std::io::BufReader::new(schedule.stdout.take().expect("piped"));
    std::io::BufRead::read_line(&mut lines, &mut line).expect("a line");
    let made: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(made["items"].as_u64(), Some(1), "{made}");
    let pid = rustix::process::Pid::from_child(&schedule);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is there");
    assert!(schedule.wait().expect("ours").success());
    let mut names: Vec<_> = std::fs::read_dir(&backups)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("plain"))
        .collect();
    names.sort();
    assert_eq!(names.len(), 3, "{names:?}");
    assert_eq!((&*names[0], &*names[2]), ("farside-20200102T000000Z.rdb", "mine.rdb"));
}
