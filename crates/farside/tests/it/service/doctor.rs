//! `farside doctor` against what it is for, and what a gateway says of a mirrored node before and after a takeover.

use std::io::{Read, Write};
use std::net::TcpStream;

use rustix::process::Signal;

use super::mirrored::folder;
use super::process::{Server, output};

/// What the doctor prints about a pool, and its exit status.
fn doctor(arguments: &[&str]) -> (String, Option<i32>) {
    let output = output(&[&["doctor"], arguments].concat());
    let text = String::from_utf8(output.stdout).expect("text");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!error.contains("panicked"), "{error}");
    (text, output.status.code())
}

/// The lines about this, without their columns' blanks.
fn lines<'t>(text: &'t str, state: &str, about: &str) -> Vec<&'t str> {
    let start = |line: &&str| {
        let rest = line.strip_prefix(state).map(str::trim_start);
        rest.is_some_and(|rest| rest.starts_with(about))
    };
    text.lines().filter(start).collect()
}

/// The command that follows the line about this.
fn next<'t>(text: &'t str, about: &str) -> Option<&'t str> {
    let mut lines = text.lines().skip_while(|line| !line.contains(about)).skip(1);
    lines.next()?.trim_start().strip_prefix("next: ")
}

/// Asks until the answer has all of these; a member of a group that is kept waiting for half a second counts as silent.
#[track_caller]
fn until(ask: impl Fn() -> String, wanted: &[String]) -> String {
    let mut answer = String::new();
    for _ in 0..60 {
        answer = ask();
        if wanted.iter().all(|wanted| answer.contains(wanted)) {
            return answer;
        }
        // What is known is told for a second.
        #[expect(clippy::disallowed_methods, reason = "a test of processes")]
        std::thread::sleep(core::time::Duration::from_millis(1100));
    }
    panic!("{wanted:?} in {answer}");
}

/// Asks for `/metrics`, at the address that a server prints as a URL, until they have all of these.
#[track_caller]
fn metrics(server: &Server, wanted: &[String]) -> String {
    let url = server.line_with("metrics: ");
    let address = url.trim_start_matches("metrics: http://").trim_end_matches("/metrics");
    until(|| scrape(address), wanted)
}

fn scrape(address: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )
    .expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    text
}

#[test]
fn machine_is_looked_at_without_a_pool() {
    let (text, status) = doctor(&[]);
    for about in ["program", "processors", "huge pages", "locked memory", "open files"] {
        assert!(text.lines().any(|line| line.contains(about)), "{about}: {text}");
    }
    assert!(!text.contains("node 0"), "{text}");
    let is_well = lines(&text, "wrong", "").is_empty();
    assert_eq!(status, Some(if is_well { 0 } else { 1 }), "{text}");
}

#[test]
fn healthy_pools_are_well_mapped_or_not() {
    let folder = folder();
    let path = folder.path().join("segment");
    let path = path.to_str().expect("plain");
    let node = Server::node(path, &["--listen", "127.0.0.1:0"]);
    let remote = format!("tcp:{}", node.address);
    let (text, _) = doctor(&["--pool", &remote]);
    assert_eq!(lines(&text, "look", "node 0").len(), 1, "it holds no pool yet: {text}");
    assert!(next(&text, "node 0").is_some_and(|next| next.starts_with("farside gateway")));

    let gateway = Server::start(&[
        "gateway",
        "--pool",
        &remote,
        "--listen",
        "127.0.0.1:0",
        "--threads",
        "1",
    ]);
    assert_eq!(gateway.client().ask("SET a 1"), "+OK\r\n");
    for pool in [remote, format!("shm:{path}")] {
        let (text, _) = doctor(&["--pool", &pool]);
        for about in ["node 0", "space", "clients", "export"] {
            assert_eq!(lines(&text, "ok", about).len(), 1, "{about}: {text}");
        }
        assert!(lines(&text, "ok", "clients")[0].contains("1 of "), "{text}");
        let (json, _) = doctor(&["--pool", &pool, "--json"]);
        let json: serde_json::Value = serde_json::from_str(&json).expect("one object");
        assert_eq!(json["kind"], "doctor");
        let findings = json["findings"].as_array().expect("a list");
        assert!(
            findings
                .iter()
                .any(|finding| finding["about"] == "node 0" && finding["state"] == "ok")
        );
    }
    // It dies, and nobody is there to declare it dead.
    gateway.kill();
    let (text, _) = doctor(&["--pool", &format!("shm:{path}")]);
    assert!(
        lines(&text, "look", "clients")[0].contains("not renewed a lease"),
        "{text}"
    );
    let (text, status) = doctor(&["--pool", &format!("shm:{path}.not")]);
    assert_eq!((lines(&text, "wrong", "node 0").len(), status), (1, Some(1)), "{text}");
}

#[test]
fn node_that_is_stopped_hides_nothing_about_the_other() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).to_str().expect("plain").to_owned();
    let nodes = ["a", "b"].map(|name| Server::node(&path(name), &["--listen", "127.0.0.1:0"]));
    let pool = format!("tcp:{},tcp:{}", nodes[0].address, nodes[1].address);
    let gateway = Server::start(&["gateway", "--pool", &pool, "--listen", "127.0.0.1:0", "--threads", "1"]);
    assert!(gateway.terminate());

    let swapped = format!("tcp:{},tcp:{}", nodes[1].address, nodes[0].address);
    let (text, status) = doctor(&["--pool", &swapped]);
    assert_eq!(status, Some(1), "{text}");
    assert!(
        lines(&text, "wrong", "node 0")[0].contains("is node 1 of its pool"),
        "{text}"
    );

    nodes[1].signal(Signal::STOP);
    let (text, status) = doctor(&["--pool", &pool]);
    assert_eq!(status, Some(1), "{text}");
    assert!(
        lines(&text, "wrong", "node 1")[0].contains("did not answer within 5000 ms"),
        "{text}"
    );
    assert_eq!(lines(&text, "ok", "node 0").len(), 1, "{text}");
    assert_eq!(lines(&text, "ok", "clients").len(), 1, "node 0 knows: {text}");
}

#[test]
fn wrong_secrets_are_named() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).to_str().expect("plain").to_owned();
    std::fs::write(path("secret"), "sixteen letters and more\n").expect("a file");
    let node = Server::node(
        &path("a"),
        &["--listen", "127.0.0.1:0", "--secret-file", &path("secret")],
    );
    let pool = format!("tcp:{}", node.address);
    let (text, status) = doctor(&["--pool", &pool]);
    assert_eq!(status, Some(1), "{text}");
    assert!(
        lines(&text, "wrong", "node 0")[0].contains("requires a secret"),
        "{text}"
    );
    assert!(
        next(&text, "node 0").is_some_and(|next| next.ends_with("--secret-file PATH")),
        "{text}"
    );
    let (text, _) = doctor(&["--pool", &pool, "--secret-file", &path("secret")]);
    assert!(lines(&text, "wrong", "node 0").is_empty(), "{text}");
}

/// A primary, its backup, and a gateway to both.
struct Mirrored {
    _folder: tempfile::TempDir,
    primary: Server,
    backup: Server,
    gateway: Server,
    pool: String,
}

impl Mirrored {
    fn start() -> Self {
        let folder = folder();
        let member = |name: &str, arguments: &[&str]| {
            let path = folder.path().join(name);
            let common = ["--listen", "127.0.0.1:0", "--lease", "300", "--metrics", "127.0.0.1:0"];
            Server::node(path.to_str().expect("plain"), &[&common, arguments].concat())
        };
        let primary = member("a", &["--mirrored"]);
        let named = primary.address.to_string();
        let backup = member("b", &["--backup-of", &named]);
        let added = output(&[
            "pool",
            "add-backup",
            "--pool",
            &format!("tcp:{named}"),
            &backup.address.to_string(),
        ]);
        assert!(added.status.success(), "it catches up");
        let pool = format!("tcp:{named}+{}", backup.address);
        let gateway = Server::start(&[
            "gateway",
            "--pool",
            &pool,
            "--listen",
            "127.0.0.1:0",
            "--threads",
            "1",
            "--metrics",
            "127.0.0.1:0",
        ]);
        assert_eq!(gateway.client().ask("SET a 1"), "+OK\r\n");
        Self {
            _folder: folder,
            primary,
            backup,
            gateway,
            pool,
        }
    }
}

#[test]
fn mirrored_group_with_a_dead_backup_is_told_who_to_let_go() {
    let Mirrored {
        _folder,
        primary,
        backup,
        gateway,
        pool,
    } = Mirrored::start();
    let (text, _) = doctor(&["--pool", &pool]);
    for about in ["node 0", "mirror 0", "clients"] {
        assert_eq!(lines(&text, "ok", about).len(), 1, "{about}: {text}");
    }
    let wanted = [
        "farside_mirror_up{node=\"self\"} 1.0\n",
        "farside_mirror_members{node=\"self\",role=\"backup\"} 1.0\n",
    ];
    let of_node = metrics(&primary, &wanted.map(str::to_owned));
    assert!(
        !of_node.contains("farside_pool_up"),
        "it does not look at its memory: {of_node}"
    );

    let dead = backup.address.to_string();
    backup.kill();
    let (text, status) = doctor(&["--pool", &pool]);
    assert_eq!(status, Some(1), "{text}");
    assert!(lines(&text, "wrong", "mirror 0")[0].contains(&dead), "{text}");
    let command = next(&text, "mirror 0").expect("a command");
    assert!(command.ends_with(&format!("{dead} --silent-are-off")), "{command}");
    // It is what helps.
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    let done = output(&words);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let (text, _) = doctor(&["--pool", &pool]);
    assert_eq!(lines(&text, "ok", "node 0").len(), 1, "{text}");
    assert!(lines(&text, "look", "mirror 0")[0].contains("has no backup"), "{text}");
    assert_eq!(gateway.client().ask("GET a"), "$1\r\n1\r\n");
}

#[test]
fn gateway_tells_who_is_primary_before_and_after_a_takeover() {
    let Mirrored {
        _folder,
        primary,
        backup,
        gateway,
        pool,
    } = Mirrored::start();
    let (first, second) = (primary.address.to_string(), backup.address.to_string());
    let info = || gateway.client().ask("INFO replication");
    let text = until(
        info,
        &[
            "farside_mirrored_nodes:1\r\n".to_owned(),
            format!("\nnode0:role=primary,address={first},epoch=2,backups=1,"),
            format!("\nnode0_member1:role=backup,address={second},"),
        ],
    );
    assert!(
        text.contains("connected_slaves:0\r\n"),
        "nobody can read from them: {text}"
    );

    primary.kill();
    // The doctor says what to type, and that is done.
    let (text, status) = doctor(&["--pool", &pool]);
    assert_eq!(status, Some(1), "{text}");
    let command = next(&text, "mirror 0").expect("a command").to_owned();
    assert!(
        command.contains("pool promote") && command.ends_with(&second),
        "{command}"
    );
    let promoted = output(&command.split(' ').skip(1).collect::<Vec<_>>());
    assert!(
        promoted.status.success(),
        "{}",
        String::from_utf8_lossy(&promoted.stderr)
    );
    assert_eq!(gateway.client().ask("GET a"), "$1\r\n1\r\n");

    until(
        info,
        &[format!(
            "\nnode0:role=primary,address={second},epoch=1000000,backups=0,"
        )],
    );
    let text = metrics(
        &gateway,
        &[
            "farside_mirror_up{node=\"0\"} 1.0\n".to_owned(),
            "farside_mirror_epoch{node=\"0\"} 1000000.0\n".to_owned(),
            "farside_mirror_members{node=\"0\",role=\"backup\"} 0.0\n".to_owned(),
            format!("farside_mirror_lag_entries{{node=\"0\",member=\"{second}\"}} 0.0\n"),
        ],
    );
    assert!(!text.contains(&first), "whoever is off is no member: {text}");
    let stats = gateway.client().ask("FARSIDE STATS");
    assert!(stats.contains(&format!("\"primary\":\"{second}\"")), "{stats}");
}
