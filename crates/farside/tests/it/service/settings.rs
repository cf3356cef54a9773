//! Settings in a file and in the environment, and CONFIG REWRITE, which changes the file.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::client::Client;
use super::command_line::refusal;
use super::commands::check;
use super::process::{Server, output};

/// What each server here has: a port and little memory.
const BASE: &str = "# a test\n[serve]\nlisten = \"127.0.0.1:0\"\nmemory = \"64MiB\" # enough\nthreads = 2\n";

/// A file with this text; and its name.
fn file(folder: &Path, text: &str) -> String {
    let path = folder.join("farside.toml");
    fs::write(&path, text).expect("a folder of ours");
    path.to_str().expect("a plain name").to_owned()
}

/// The value of a setting.
fn value(client: &mut Client, name: &str) -> String {
    let reply = client.ask(&format!("CONFIG GET {name}"));
    reply.lines().last().expect("a value").to_owned()
}

#[test]
fn line_environment_and_file_are_read_in_this_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = format!("{BASE}maxclients = 11\nslowlog-max-len = 11\nmaxmemory = \"11MB\"\nmaxmemory-samples = 11\n");
    let path = file(folder.path(), &text);
    let variables = [
        ("FARSIDE_MAXCLIENTS", "22"),
        ("FARSIDE_SLOWLOG_MAX_LEN", "22"),
        ("FARSIDE_TIMEOUT", "22000"),
    ];
    let server = Server::start_in(&["serve", "--config", &path, "--maxclients", "33"], &variables);
    let mut client = server.client();
    for (name, expected) in [
        ("maxclients", "33"),
        ("slowlog-max-len", "22"),
        ("timeout", "22000"),
        ("maxmemory", "11000000"),
        ("maxmemory-samples", "11"),
        ("io-threads", "2"),
        ("slowlog-log-slower-than", "10000"),
    ] {
        assert_eq!(value(&mut client, name), expected, "{name}");
    }
    let several = "*4\r\n$10\r\nmaxclients\r\n$2\r\n33\r\n$7\r\ntimeout\r\n$5\r\n22000\r\n";
    assert_eq!(client.ask("CONFIG GET time* maxc*"), several);
}

#[test]
fn one_file_is_for_a_node_and_its_gateway() {
    let folder = tempfile::tempdir().expect("a folder");
    let segment = folder.path().join("segment");
    let segment = segment.display();
    let text = format!(
        "[node]\nsegment = \"{segment}\"\nmemory = \"64MiB\"\nlisten = \"127.0.0.1:0\"\n\
         [gateway]\npool = \"shm:{segment}\"\nlisten = \"127.0.0.1:0\"\nthreads = 1\n"
    );
    let path = file(folder.path(), &text);
    let _node = Server::start(&["node", "--config", &path]);
    let gateway = Server::start_in(&["gateway"], &[("FARSIDE_CONFIG", &path)]);
    assert_eq!(gateway.client().ask("SET a 1"), "+OK\r\n");
}

#[test]
fn what_was_changed_is_written_to_the_file_and_read_at_the_next_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let text =
        format!("{BASE}maxclients = 40 # many\n# eviction\nmaxmemory-policy = \"noeviction\"\n\n[node]\n# none yet\n");
    let path = file(folder.path(), &text);
    let read = || fs::read_to_string(&path).expect("it is there");
    let server = Server::start(&["serve", "--config", &path]);
    let mut client = server.client();
    let refused = "-ERR CONFIG SET failed (possibly related to argument 'timeout') - \
                   argument couldn't be parsed into an integer\r\n";
    check(
        &mut client,
        &[
            ("CONFIG REWRITE", "+OK\r\n"),
            (
                "CONFIG SET maxclients 50 maxmemory-policy allkeys-lru timeout 70000",
                "+OK\r\n",
            ),
            // All or nothing.
            ("CONFIG SET maxclients 60 slowlog-max-len 60 timeout x", refused),
            ("CONFIG SET maxmemory 32mb slowlog-log-slower-than -1", "+OK\r\n"),
            ("CONFIG SET enable-monitor-command yes", "+OK\r\n"),
        ],
    );
    assert_eq!(read(), text, "nothing had been changed");
    assert_eq!(client.ask("CONFIG REWRITE"), "+OK\r\n");
    let written = format!(
        "{BASE}maxclients = 50 # many\n# eviction\nmaxmemory-policy = \"allkeys-lru\"\n\
         enable-monitor-command = true\nmaxmemory = 33554432\nslowlog-log-slower-than = -1\ntimeout = 70000\n\n[node]\n# none yet\n"
    );
    assert_eq!(read(), written);
    let names = [
        "maxclients",
        "maxmemory-policy",
        "timeout",
        "maxmemory",
        "enable-monitor-command",
        "slowlog-log-slower-than",
    ];
    let before = names.map(|name| value(&mut client, name));
    assert_eq!(before, ["50", "allkeys-lru", "70000", "33554432", "yes", "-1"]);
    // Back to no limit, which is not what CONFIG GET shows then.
    check(
        &mut client,
        &[("CONFIG SET maxmemory 0", "+OK\r\n"), ("CONFIG REWRITE", "+OK\r\n")],
    );
    assert!(server.terminate());
    assert_eq!(read(), written.replace("33554432", "0"));

    let server = Server::start(&["serve", "--config", &path]);
    let mut client = server.client();
    let after = names.map(|name| value(&mut client, name));
    assert_eq!(after, ["50", "allkeys-lru", "70000", "67108864", "yes", "-1"]);
    let names: Vec<_> = fs::read_dir(folder.path()).expect("it is there").collect();
    assert_eq!(names.len(), 1, "{names:?}");
}

#[test]
fn a_file_that_cannot_be_written_stays_and_the_gateway_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = file(folder.path(), BASE);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).expect("a file of ours");
    let server = Server::start(&["serve", "--config", &path]);
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("CONFIG SET maxclients 50", "+OK\r\n"),
            (
                "CONFIG REWRITE",
                "-ERR Rewriting config file: nobody may write to it\r\n",
            ),
            ("PING", "+PONG\r\n"),
        ],
    );
    assert_eq!(value(&mut client, "maxclients"), "50");
    assert_eq!(fs::read_to_string(&path).expect("it is there"), BASE);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("a file of ours");
    // Somebody has edited it meanwhile: badly, and then well.
    fs::write(&path, "[serve").expect("it is ours");
    let refused = client.ask("CONFIG REWRITE");
    assert_eq!(refused, "-ERR Rewriting config file: it is no longer valid TOML\r\n");
    fs::write(&path, "[serve]\nmaxclients = 7 # mine\nthreads = 1\n").expect("it is ours");
    assert_eq!(client.ask("CONFIG REWRITE"), "+OK\r\n");
    let text = fs::read_to_string(&path).expect("it is there");
    assert_eq!(text, "[serve]\nmaxclients = 50 # mine\nthreads = 1\n");
    fs::remove_file(&path).expect("it is ours");
    let refused = client.ask("CONFIG REWRITE");
    assert!(refused.contains("No such file or directory"), "{refused}");
    assert!(server.terminate());
}

#[test]
fn a_file_is_checked_as_a_server_reads_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let example = output(&["config", "example"]);
    assert!(example.status.success() && example.stderr.is_empty());
    let path = file(folder.path(), str::from_utf8(&example.stdout).expect("text"));
    assert!(output(&["config", "check", "--config", &path]).status.success());
    let path = file(folder.path(), BASE);
    let checked = output(&["config", "check", "--config", &path]);
    let text = String::from_utf8(checked.stdout).expect("text");
    assert!(checked.status.success() && checked.stderr.is_empty());
    let line = text.lines().find(|line| line.starts_with("serve.memory "));
    let words: Vec<_> = line.expect("a line for each").split_whitespace().collect();
    assert_eq!(words, ["serve.memory", "64MiB", &format!("{path}:4")]);
    let path = file(folder.path(), "[serve]\nlisten = 1\nmemroy = 2\n");
    let checked = output(&["config", "check", "--config", &path]);
    let text = String::from_utf8(checked.stderr).expect("text");
    assert_eq!((checked.status.code(), text.lines().count()), (Some(2), 2), "{text}");
    assert!(
        text.contains(":2: listen: ") && text.contains("did you mean `memory`"),
        "{text}"
    );
    let line = refusal(&["serve", "--config", &path]);
    assert!(
        line.contains("farside.toml:3: ") && line.contains("and 1 more"),
        "{line}"
    );
    for (arguments, hint) in [
        (&["config"][..], "example"),
        (&["config", "check"], "--config PATH"),
        (&["config", "check", "--config", "/no/such/file"], "/no/such/file"),
        (&["serve", "--config", "/"], "directory"),
    ] {
        let line = refusal(arguments);
        assert!(line.contains(hint), "{line}");
    }
}
