//! Wrong flags, files and addresses: exit status 2 and one line that says what would be right.

use super::process::{Server, output};

/// The one line with which a command refuses these arguments.
pub(crate) fn refusal(arguments: &[&str]) -> String {
    let refused = output(arguments);
    let line = String::from_utf8(refused.stderr).expect("text");
    assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {line}");
    assert_eq!(line.lines().count(), 1, "{arguments:?}: {line}");
    assert!(refused.stdout.is_empty(), "{arguments:?}");
    line
}

#[test]
fn mistakes_are_explained_in_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let empty = folder.path().join("empty");
    std::fs::write(&empty, "  \n").expect("writable");
    let empty = empty.to_str().expect("plain");
    let absent = folder.path().join("absent");
    let absent = absent.to_str().expect("plain");
    let absent_pool = format!("shm:{absent}");
    let some = "127.0.0.1:0";
    let password = folder.path().join("password");
    std::fs::write(&password, "open sesame").expect("writable");
    let password = password.to_str().expect("plain");
    for (arguments, hint) in [
        (&[][..], "serve"),
        (&["sevre"], "serve"),
        (&["serve", "--memry", "1GiB"], "--memory"),
        (&["serve", "--memory", "many"], "1GiB"),
        (&["serve", "--listen", "here"], "HOST:PORT"),
        (&["serve", "--listen", "127.0.0.1:80000"], "HOST:PORT"),
        (
            &["serve", "--listen", "192.0.2.1:6380", "--auth-file", password],
            "not an address of this machine",
        ),
        (&["serve", "--listen", "0.0.0.0:0", "--memory", "64MiB"], "password"),
        (&["serve", "--listen", some, "--memory", "4096"], "at least"),
        (&["serve", "--listen", some, "--auth-file", absent], absent),
        (&["serve", "--listen", some, "--auth-file", empty], "is empty"),
        (&["serve", "--listen", some, "--segment", "/"], "directory"),
        (
            &["serve", "--listen", some, "--segment", "/no/such/folder/x"],
            "/no/such/folder/x",
        ),
        (&["serve", "--listen", some, "--metrics", "9121"], "HOST:PORT"),
        (
            &["serve", "--listen", some, "--metrics", "0.0.0.0:0"],
            "--metrics-public",
        ),
        (
            &["serve", "--listen", some, "--metrics", "192.0.2.1:1"],
            "--metrics-public",
        ),
        (&["serve", "--listen", some, "--metrics-public"], "--metrics"),
        (&["serve", "--log-format", "xml"], "json"),
        (&["top", "--connect", "here"], "HOST:PORT"),
        (&["top", "--once", "--connect", "127.0.0.1:1"], "127.0.0.1:1"),
        (&["top", "--auth-file", absent], absent),
        (&["serve", "--index", "hash"], "race, pointer-array"),
        (&["serve", "--sync", "pessimistic"], "optimistic"),
        (&["node", "--memory", "64MiB"], "--segment"),
        (&["node", "--listen", some, "--segment", absent], "--memory"),
        (
            &[
                "node",
                "--listen",
                "0.0.0.0:0",
                "--segment",
                absent,
                "--memory",
                "16MiB",
            ],
            "--secret-file",
        ),
        (&["gateway", "--listen", some], "--pool"),
        (&["gateway", "--listen", some, "--pool", &absent_pool], absent),
        (
            &["gateway", "--listen", some, "--pool", "tcp:127.0.0.1:1"],
            "127.0.0.1:1",
        ),
        (
            &[
                "gateway",
                "--listen",
                some,
                "--pool",
                "tcp:127.0.0.1:1",
                "--secret-file",
                absent,
            ],
            absent,
        ),
        (&["kv", "--pool", &absent_pool, "get", "a"], absent),
        (&["kv", "--pool", &absent_pool, "scan"], absent),
        (&["kv", "--pool", &absent_pool, "scan", "--limit", "few"], "--limit"),
        (&["kv", "--pool", &absent_pool, "get"], "KEY"),
        (&["fsck", "--pool", &absent_pool], absent),
        (&["fsck", "--pool", "somewhere"], "shm:PATH"),
        (&["list", "--json"], "--json"),
        (&["report", "cider-99"], "./lab report cider-99"),
        (&["bench", "lock", "--fast"], "./lab bench lock --fast"),
    ] {
        let line = refusal(arguments);
        assert!(line.contains(hint), "{arguments:?}: `{hint}` is not in: {line}");
    }
}

#[test]
fn second_server_is_told_who_has_the_port_or_the_segment() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("segment");
    let path = path.to_str().expect("plain");
    let server = Server::serve(&["--segment", path, "--memory", "64MiB"]);
    let holder = format!("process {}", server.pid());
    let port = server.address.to_string();
    let line = refusal(&["serve", "--listen", &port, "--memory", "64MiB"]);
    assert!(line.contains(&holder) && line.contains("in use"), "{line}");
    let line = refusal(&["serve", "--listen", "127.0.0.1:0", "--metrics", &port]);
    assert!(line.contains(&holder) && line.contains("--metrics"), "{line}");
    let line = refusal(&["serve", "--listen", "127.0.0.1:0", "--segment", path]);
    assert!(line.contains(&holder) && line.contains(path), "{line}");
    let line = refusal(&["node", "--listen", "127.0.0.1:0", "--segment", path]);
    assert!(line.contains(&holder), "{line}");
    assert_eq!(server.client().ask("PING"), "+PONG\r\n");
}

#[test]
fn another_size_than_the_segment_has_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("segment");
    let path = path.to_str().expect("plain");
    assert!(Server::serve(&["--segment", path, "--memory", "16MiB"]).terminate());
    let line = refusal(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--segment",
        path,
        "--memory",
        "32MiB",
    ]);
    assert!(line.contains("16777216") && line.contains(path), "{line}");
    assert!(Server::serve(&["--segment", path]).terminate());
}

#[test]
fn help_and_version_are_no_mistakes() {
    for arguments in [
        &["--version"][..],
        &["--help"],
        &["help"],
        &["serve", "--help"],
        &["kv", "--help"],
        &["list"],
    ] {
        let shown = output(arguments);
        assert!(
            shown.status.success() && !shown.stdout.is_empty() && shown.stderr.is_empty(),
            "{arguments:?}"
        );
    }
    let listed = String::from_utf8(output(&["list"]).stdout).expect("text");
    for name in [
        "shm",
        "tcp",
        "sim",
        "pointer-array",
        "chime",
        "sherman",
        "marlin",
        "smart",
        "rolex",
        "chime-learned",
        "optimistic",
        "getset",
    ] {
        assert!(listed.contains(name), "{name}");
    }
}
