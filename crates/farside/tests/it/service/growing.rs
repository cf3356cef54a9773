//! A pool that grows and shrinks under load: processes, sockets, files, and kills.

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use super::client::Client;
use super::process::{Server, farside, output};

/// Keys that are there before anything happens, and how many a command stores.
const KEYS: usize = 20_000;
const AT_ONCE: usize = 100;
const FILLING: usize = 300;

/// What a command prints that has to succeed.
fn done(arguments: &[&str]) -> String {
    let output = output(arguments);
    let [out, errors] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(output.status.success(), "{arguments:?}: {out}{errors}");
    out
}

/// The one line of a command that is refused.
fn refused(arguments: &[&str]) -> String {
    let output = output(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn status(pool: &str) -> Value {
    serde_json::from_str(&done(&["pool", "status", "--json", "--pool", pool])).expect("JSON")
}

fn states(pool: &str) -> Vec<String> {
    let status = status(pool);
    let nodes = status["nodes"].as_array().expect("an array");
    nodes
        .iter()
        .map(|node| node["state"].as_str().expect("a name").to_owned())
        .collect()
}

/// Stores keys with values that tell them apart.
fn fill(client: &mut Client, prefix: &str, count: usize) {
    let filling = "x".repeat(FILLING);
    for first in (0..count).step_by(AT_ONCE) {
        let words: Vec<String> = (first..first + AT_ONCE)
            .flat_map(|number| [format!("{prefix}{number}"), format!("{number}:{filling}")])
            .collect();
        let words: Vec<&[u8]> = [&b"MSET"[..]]
            .into_iter()
            .chain(words.iter().map(String::as_bytes))
            .collect();
        assert_eq!(client.call(&words), b"+OK\r\n");
    }
}

fn look(client: &mut Client, prefix: &str, count: usize) {
    for number in 0..count {
        let found = client.ask(&format!("GET {prefix}{number}"));
        assert!(found.contains(&format!("\r\n{number}:x")), "{prefix}{number}: {found}");
    }
}

/// Counts up keys of its own until it is told to stop; returns how far each has come.
fn count_up(mut client: Client, name: &str, must_stop: &AtomicBool) -> Vec<u64> {
    const COUNTERS: usize = 50;
    let mut counts = vec![0_u64; COUNTERS];
    // Relaxed: nothing else hangs on it.
    while !must_stop.load(Ordering::Relaxed) {
        for (counter, count) in counts.iter_mut().enumerate() {
            *count += 1;
            let answer = client.ask(&format!("INCR {name}{counter}"));
            assert_eq!(answer, format!(":{count}\r\n"), "{name}{counter}");
        }
    }
    counts
}

#[test]
fn a_pool_over_tcp_grows_and_shrinks_under_load() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("plain").to_owned();
    let nodes = ["one", "two", "three"].map(|name| Server::node(&path(name), &["--listen", "127.0.0.1:0"]));
    let places = nodes.each_ref().map(|node| format!("tcp:{}", node.address));
    let pool = format!("{},{}", places[0], places[1]);
    let start = |pool: &str| Server::start(&["gateway", "--pool", pool, "--listen", "127.0.0.1:0", "--threads", "2"]);
    let gateways = [start(&pool), start(&pool)];
    fill(&mut gateways[0].client(), "key", KEYS);
    assert_eq!(states(&pool), ["active", "active"]);

    let must_stop = AtomicBool::new(false);
    let counts = std::thread::scope(|scope| {
        let counting: Vec<_> = gateways
            .iter()
            .zip(["a", "b"])
            .map(|(gateway, name)| {
                let (client, must_stop) = (gateway.client(), &must_stop);
                scope.spawn(move || count_up(client, name, must_stop))
            })
            .collect();
        // Also when something fails: the scope waits for them.
        let stop = Stop(&must_stop);

        let added = done(&["pool", "add-node", "--pool", &pool, &places[2]]);
        assert_eq!(added, format!("node 2 is active: {}\n", places[2]));
        assert_eq!(states(&pool), ["active", "active", "active"]);
        assert_eq!(status(&pool)["clients"]["lagging"], Value::Array(Vec::new()));
        // It is there, and nothing happens.
        done(&["pool", "add-node", "--pool", &pool, &places[2]]);

        // Killed half-way, and begun again.
        let mut drain = farside(&["pool", "drain", "--pool", &pool, "1"])
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("the binary is built");
        while states(&pool)[1] == "active" {
            assert!(
                drain.try_wait().expect("ours").is_none(),
                "it has ended before it began"
            );
        }
        drain.kill().expect("ours");
        drain.wait().expect("ours");
        assert_eq!(states(&pool)[1], "draining");
        // Undone, and done all the same.
        let again = done(&["pool", "add-node", "--pool", &pool, &places[1]]);
        assert!(again.starts_with("node 1 is active"), "{again}");
        assert_eq!(states(&pool), ["active", "active", "active"]);
        let drained = done(&["pool", "drain", "--pool", &pool, "1"]);
        assert!(drained.starts_with("node 1 is removed: "), "{drained}");
        assert_eq!(states(&pool), ["active", "removed", "active"]);
        // Nobody needs the process any more; who names it as before is let in.
        let [one, two, three] = nodes;
        assert!(two.terminate());
        let late = start(&pool);
        look(&mut late.client(), "key", KEYS / 10);
        assert!(late.terminate());
        drop(stop);
        let counts: Vec<_> = counting
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect();
        (counts, one, three)
    });
    let (counts, one, three) = counts;
    let mut client = gateways[1].client();
    look(&mut client, "key", KEYS);
    for (counts, name) in counts.iter().zip(["a", "b"]) {
        for (counter, count) in counts.iter().enumerate() {
            let text = count.to_string();
            let expected = format!("${}\r\n{text}\r\n", text.len());
            assert_eq!(client.ask(&format!("GET {name}{counter}")), expected);
        }
    }
    drop(client);
    assert!(gateways.into_iter().all(Server::terminate));
    // Its memory is blank, and may come again, under another number.
    let again = Server::node(&path("two"), &["--listen", "127.0.0.1:0"]);
    let added = done(&["pool", "add-node", "--pool", &pool, &format!("tcp:{}", again.address)]);
    assert!(added.starts_with("node 3 is active"), "{added}");
    let checked = output(&["fsck", "--pool", &places[0]]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    drop((one, three, again));
}

/// Has the threads stop when the test goes on, or fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_store_of_one_machine_gets_more_memory_and_gives_it_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("plain").to_owned();
    let first = path("first");
    let pool = format!("shm:{first}");
    let server = Server::serve(&["--segment", &first, "--memory", "16MiB"]);
    let mut client = server.client();
    fill(&mut client, "key", 10_000);
    // More than there is room for.
    let filling = "y".repeat(100_000);
    let mut stored = 0;
    while client.ask(&format!("SET large{stored} {filling}")) == "+OK\r\n" {
        stored += 1;
        assert!(stored < 200, "16 MiB hold 20 MB");
    }
    let more = format!("shm:{}", path("more"));
    let added = done(&["pool", "add-node", "--pool", &pool, "--memory", "32MiB", &more]);
    assert_eq!(added, format!("node 1 is active: {more}\n"));
    for number in stored..stored + 150 {
        assert_eq!(client.ask(&format!("SET large{number} {filling}")), "+OK\r\n");
    }
    let table = done(&["pool", "status", "--pool", &pool]);
    assert!(table.contains("active") && table.contains(&more), "{table}");

    for number in 0..stored + 150 {
        assert_eq!(client.ask(&format!("DEL large{number}")), ":1\r\n");
    }
    done(&["pool", "drain", "--pool", &pool, "1"]);
    look(&mut client, "key", 10_000);
    drop(client);
    assert!(server.terminate());
    let checked = output(&["fsck", "--pool", &pool]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}

#[test]
fn what_cannot_be_done_is_said_in_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("plain").to_owned();
    let (first, ordered) = (path("first"), path("ordered"));
    let (pool, trees) = (format!("shm:{first}"), format!("shm:{ordered}"));
    let server = Server::serve(&["--segment", &first, "--memory", "16MiB"]);
    let tree = Server::serve(&["--segment", &ordered, "--memory", "16MiB", "--index", "chime"]);
    let more = format!("shm:{}", path("more"));
    for (arguments, says) in [
        (
            &["pool", "drain", "--pool", &pool, "0"][..],
            "node 0: it cannot be drained",
        ),
        (
            &["pool", "drain", "--pool", &pool, "7"],
            "node 7: the pool has no such node",
        ),
        (&["pool", "add-node", "--pool", &pool, &more], "does not exist"),
        (
            &["pool", "add-node", "--pool", &pool, "tcp:127.0.0.1:1"],
            "name it shm:PATH",
        ),
        (&["pool", "add-node", "--pool", &pool, &trees], "holds something else"),
        (
            &["pool", "add-node", "--pool", &pool, &pool],
            "is node 0 of this pool already",
        ),
        (&["pool", "drain", "--pool", &trees, "1"], "only race moves them"),
    ] {
        let line = refused(arguments);
        assert!(
            line.contains(says) && line.trim_end().lines().count() == 1,
            "{arguments:?}: {line}"
        );
    }
    // Trees grow, too.
    let mut client = tree.client();
    fill(&mut client, "key", 2_000);
    done(&["pool", "add-node", "--pool", &trees, "--memory", "16MiB", &more]);
    fill(&mut client, "more", 20_000);
    look(&mut client, "key", 2_000);
    look(&mut client, "more", 20_000);
    drop(client);
    assert!(tree.terminate() && server.terminate());
    let checked = output(&["fsck", "--pool", &trees]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}
