//! Data in a segment outlives every process.

use std::path::Path;

use super::client::encode;
use super::command_line::refusal;
use super::process::{Server, output};

fn text(path: &Path) -> &str {
    path.to_str().expect("a temporary folder has a plain name")
}

#[test]
fn acknowledged_writes_survive_kill_9() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("segment");
    let segment = ["--segment", text(&path), "--memory", "64MiB"];
    let mut acknowledged = 0;
    for round in 0..3 {
        let server = Server::serve(&segment);
        let mut client = server.client();
        for number in 0..acknowledged {
            let key = format!("key{number}");
            assert_eq!(
                client.ask(&format!("GET {key}")),
                format!("${}\r\n{key}\r\n", key.len()),
                "round {round}"
            );
        }
        // A pipeline, of which the server is killed in the middle.
        let sets: Vec<Vec<u8>> = (acknowledged..acknowledged + 20_000)
            .map(|number| format!("key{number}"))
            .map(|key| encode(&[b"SET", key.as_bytes(), key.as_bytes()]))
            .collect();
        let mut sender = client.stream.try_clone().expect("a socket");
        let writer = std::thread::spawn(move || drop(std::io::Write::write_all(&mut sender, &sets.concat())));
        for _ in 0..5000 {
            assert_eq!(client.receive(), b"+OK\r\n");
            acknowledged += 1;
        }
        server.kill();
        writer.join().expect("no panic");
    }
    let server = Server::serve(&segment);
    // The new server takes over what the dead one held; then it leaves the pool tidy.
    assert_eq!(server.client().ask("GET key0"), "$4\r\nkey0\r\n");
    wait_until_clean(text(&path));
    assert!(server.terminate());
    let checked = output(&["fsck", "--pool", &format!("shm:{}", text(&path))]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}

/// Until nothing of a dead client is left.
fn wait_until_clean(path: &str) {
    loop {
        let checked = output(&["fsck", "--json", "--pool", &format!("shm:{path}")]);
        let report: serde_json::Value = serde_json::from_slice(&checked.stdout).expect("JSON");
        // The two workers of the new server are the only clients.
        if report["clients_live"] == 2 && report["clients_dead"] == 0 {
            assert_eq!(report["is_clean"], true, "{report}");
            return;
        }
    }
}

#[test]
fn graceful_end_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("segment");
    let server = Server::serve(&["--segment", text(&path), "--memory", "64MiB"]);
    let mut client = server.client();
    for number in 0..1000 {
        client.ask(&format!("SET key{} value{number}", number % 100));
    }
    assert!(server.terminate());
    let checked = output(&["fsck", "--json", "--pool", &format!("shm:{}", text(&path))]);
    let report: serde_json::Value = serde_json::from_slice(&checked.stdout).expect("JSON");
    assert_eq!(
        (&report["is_clean"], &report["items"]),
        (&true.into(), &100.into()),
        "{report}"
    );
    assert_eq!(
        (&report["clients_live"], &report["blocks_held"]),
        (&0.into(), &0.into()),
        "{report}"
    );
}

#[test]
fn files_that_are_no_segment_are_refused_and_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("segment");
    assert!(Server::serve(&["--segment", text(&path), "--memory", "16MiB"]).terminate());
    let whole = std::fs::read(&path).expect("readable");
    let mut other_version = whole.clone();
    // The version follows the magic.
    other_version[8] = other_version[8].wrapping_add(1);
    for (what, bytes) in [
        ("truncated", whole[..whole.len() / 2].to_vec()),
        ("foreign", b"not a segment at all".repeat(1000)),
        ("of another version", other_version),
    ] {
        std::fs::write(&path, &bytes).expect("writable");
        for arguments in [
            &["serve", "--listen", "127.0.0.1:0", "--segment", text(&path)][..],
            &["node", "--listen", "127.0.0.1:0", "--segment", text(&path)],
            &["fsck", "--pool", &format!("shm:{}", text(&path))],
            &["kv", "--pool", &format!("shm:{}", text(&path)), "get", "a"],
        ] {
            let refused = output(arguments);
            let line = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert_eq!(refused.status.code(), Some(2), "{what}: {line}");
            assert!(
                line.lines().count() == 1 && line.contains(text(&path)),
                "{what}: {line}"
            );
            assert!(
                std::fs::read(&path).expect("readable") == bytes,
                "{what}: the file was changed"
            );
        }
    }
}

#[test]
fn damage_is_found() {
    // What is said of a key that stands in another's place.
    for (index, complaint) in [("pointer-array", "belongs into slot"), ("race", "the key of")] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("segment");
        let server = Server::serve(&["--segment", text(&path), "--memory", "16MiB", "--index", index]);
        server.client().ask("SET needle-in-a-haystack value");
        assert!(server.terminate());
        let mut bytes = std::fs::read(&path).expect("readable");
        let needle = b"needle-in-a-haystack";
        let at = bytes
            .windows(needle.len())
            .position(|window| window == needle)
            .expect("it is stored");
        // Another key now stands in the slot of this one.
        bytes[at] = b'N';
        std::fs::write(&path, &bytes).expect("writable");
        let checked = output(&["fsck", "--pool", &format!("shm:{}", text(&path))]);
        let text_out = String::from_utf8_lossy(&checked.stdout);
        assert_eq!(checked.status.code(), Some(1));
        assert!(text_out.contains("FAULT") && text_out.contains(complaint), "{text_out}");
        // And without the kind of its block there is no item.
        bytes[at] = b'n';
        bytes[at - 16] = 0;
        std::fs::write(&path, &bytes).expect("writable");
        let checked = output(&["fsck", "--pool", &format!("shm:{}", text(&path))]);
        assert_eq!(checked.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&checked.stdout).contains("holds no item"));
    }
}

#[test]
fn memory_keeps_the_index_that_it_was_made_with() {
    let folder = tempfile::tempdir().expect("a folder");
    for (made, other) in [("pointer-array", "race"), ("race", "pointer-array")] {
        let path = folder.path().join(made);
        let segment = ["--segment", text(&path), "--memory", "16MiB"];
        let server = Server::serve(&[&segment[..], &["--index", made]].concat());
        server.client().ask("SET key value");
        assert!(server.terminate());
        let line = refusal(&[&["serve", "--listen", "127.0.0.1:0"], &segment[..], &["--index", other]].concat());
        assert!(line.contains(made) && line.contains("leave --index out"), "{line}");
        let server = Server::serve(&segment);
        let mut client = server.client();
        assert_eq!(client.ask("GET key"), "$5\r\nvalue\r\n");
        assert!(
            client
                .ask("INFO server")
                .contains(&format!("\r\nfarside_index:{made}\r\n"))
        );
        assert!(server.terminate());
    }
}
