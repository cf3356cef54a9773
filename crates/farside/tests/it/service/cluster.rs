//! Mirrored nodes whose members etcd decides on: processes are killed, etcd goes and comes back, all is stopped and started.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use super::etcd::Etcd;
use super::mirrored::{Over, Segments, count, pool};
use super::process::{Server, output};

const MEMORY: [&str; 2] = ["--memory", "64MiB"];

/// How often a pool is looked at before a test gives up: each look starts a process.
const LOOKS_MAX: usize = 3000;

/// The cluster of one test.
struct Cluster {
    etcd: Etcd,
    name: String,
}

impl Cluster {
    fn start() -> Self {
        let etcd = Etcd::start();
        let name = format!("etcd:{}/test", etcd.address);
        Self { etcd, name }
    }

    /// A member with a short lease.
    fn member(&self, segment: &str, listen: &str, arguments: &[&str]) -> Server {
        let common = [
            "node",
            "--cluster",
            &self.name,
            "--segment",
            segment,
            "--listen",
            listen,
        ];
        Server::start(&[&common[..], &["--lease", "300"], arguments].concat())
    }

    fn gateway(&self) -> Server {
        Server::start(&[
            "gateway",
            "--pool",
            &self.name,
            "--listen",
            "127.0.0.1:0",
            "--threads",
            "1",
        ])
    }

    fn pool(&self, arguments: &[&str]) -> Result<String, String> {
        let [command, rest @ ..] = arguments else {
            panic!("a command")
        };
        pool(&[&[*command, "--pool", &self.name], rest].concat())
    }

    /// The role of each member of node 0, by its address. Nothing if the pool cannot be read, or nobody is primary.
    fn roles(&self) -> BTreeMap<String, String> {
        let Ok(status) = self.pool(&["status", "--json"]) else {
            return BTreeMap::new();
        };
        let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
        let members = status["nodes"][0]["members"].as_array().expect("it is mirrored");
        let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
        let role = |member: &serde_json::Value| (text(&member["address"]), text(&member["role"]));
        members.iter().map(role).collect()
    }

    /// Looks until so many members have each role.
    fn wait_for(&self, wanted: &[(&str, usize)]) -> BTreeMap<String, String> {
        let mut roles = BTreeMap::new();
        for _ in 0..LOOKS_MAX {
            roles = self.roles();
            let has = |role: &str| roles.values().filter(|known| *known == role).count();
            if wanted.iter().all(|(role, members)| has(role) == *members) {
                return roles;
            }
        }
        panic!("wanted {wanted:?}, and there is {roles:?}");
    }
}

/// Takes the primary out of the members.
fn take_primary(members: &mut Vec<Server>, roles: &BTreeMap<String, String>) -> Server {
    let is_primary = |member: &Server| {
        roles
            .get(&member.address.to_string())
            .is_some_and(|role| role == "primary")
    };
    let index = members.iter().position(is_primary).expect("one of them leads");
    members.swap_remove(index)
}

#[test]
fn members_take_over_and_join_by_themselves_while_clients_count() {
    let mut cluster = Cluster::start();
    let segments = Segments::new();
    let paths: Vec<String> = (0..4).map(|_| segments.next()).collect();
    let standby = [&["--standby"], &MEMORY[..]].concat();
    // The first makes the group, or waits until etcd is there and does.
    let mut members = vec![cluster.member(&paths[0], "127.0.0.1:0", &MEMORY)];
    members.extend(
        paths[1..3]
            .iter()
            .map(|path| cluster.member(path, "127.0.0.1:0", &MEMORY)),
    );
    let gateway = Server::start(&[
        "gateway",
        "--pool",
        &cluster.name,
        "--listen",
        "127.0.0.1:0",
        "--threads",
        "1",
    ]);
    cluster.wait_for(&[("primary", 1), ("backup", 2)]);
    members.push(cluster.member(&paths[3], "127.0.0.1:0", &standby));
    let roles = cluster.wait_for(&[("primary", 1), ("backup", 2), ("standby", 1)]);
    assert_eq!(
        roles.get(&members[3].address.to_string()).map(String::as_str),
        Some("standby")
    );

    let is_over = AtomicBool::new(false);
    let counted = std::thread::scope(|scope| {
        let over = Over(&is_over);
        let counting = scope.spawn(|| count(&gateway, &is_over));
        // A backup takes over, and the standby takes its place.
        take_primary(&mut members, &roles).kill();
        let roles = cluster.wait_for(&[("primary", 1), ("backup", 2)]);
        // Without etcd everything is served.
        cluster.etcd.stop();
        let mut client = gateway.client();
        for value in 0..100 {
            assert_eq!(client.ask(&format!("SET alone {value}")), "+OK\r\n");
        }
        // A primary that dies now is missed until etcd is back.
        take_primary(&mut members, &roles).kill();
        cluster.etcd.go_on();
        assert_eq!(client.ask("SET alone no"), "+OK\r\n");
        cluster.wait_for(&[("primary", 1), ("backup", 1)]);
        drop(over);
        counting.join().expect("no reply was wrong")
    });
    assert!(counted > 0, "something was counted");
    assert!(gateway.terminate());

    // All is stopped, and started again: those that died as well.
    let listen: Vec<String> = members.iter().map(|member| member.address.to_string()).collect();
    for member in members {
        assert!(member.terminate());
    }
    cluster.etcd.stop();
    cluster.etcd.go_on();
    let mut members: Vec<Server> = Vec::new();
    let mut listen = listen.iter().map(String::as_str);
    members.extend(
        paths
            .iter()
            .map(|path| cluster.member(path, listen.next().unwrap_or("127.0.0.1:0"), &[])),
    );
    cluster.wait_for(&[("primary", 1), ("backup", 2), ("standby", 1)]);
    let gateway = cluster.gateway();
    let text = counted.to_string();
    assert_eq!(
        gateway.client().ask("GET counter"),
        format!("${}\r\n{text}\r\n", text.len())
    );
    assert_eq!(gateway.client().ask("GET alone"), "$2\r\nno\r\n");
    assert!(gateway.terminate());
    let checked = output(&["fsck", "--pool", &cluster.name]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}

#[test]
fn an_operator_hands_over_and_cannot_decide_against_etcd() {
    let cluster = Cluster::start();
    let segments = Segments::new();
    let primary = cluster.member(&segments.next(), "127.0.0.1:0", &MEMORY);
    let backup = cluster.member(&segments.next(), "127.0.0.1:0", &MEMORY);
    let (first, second) = (primary.address.to_string(), backup.address.to_string());
    cluster.pool(&["add-backup", &second]).expect("it is waited for");
    let refused = cluster
        .pool(&["remove-backup", &second])
        .expect_err("it would join again");
    assert!(
        refused.contains("etcd decides") && refused.contains("stop that backup"),
        "{refused}"
    );
    let promoted = cluster.pool(&["promote", &second]).expect("it has everything");
    assert!(promoted.contains("is the primary now"), "{promoted}");
    cluster
        .pool(&["add-backup", &first])
        .expect("it follows the new one by itself");
    let unknown = cluster.pool(&["promote", "127.0.0.1:1"]).expect_err("nobody is there");
    assert!(unknown.contains("127.0.0.1:1 does not answer"), "{unknown}");
    drop((primary, backup));
}

/// What a member says that does not start.
fn refusal(cluster: &str, segment: &str, arguments: &[&str]) -> String {
    let common = [
        "node",
        "--cluster",
        cluster,
        "--segment",
        segment,
        "--listen",
        "127.0.0.1:0",
    ];
    let output = output(&[&common, arguments].concat());
    assert_eq!(output.status.code(), Some(2), "a mistake that a user can put right");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_segment_that_would_be_lost_is_refused() {
    let mut cluster = Cluster::start();
    let segments = Segments::new();
    let (old, own) = (segments.next(), segments.next());
    // One that holds data of its own, where there is a group already.
    assert!(Server::node(&own, &["--listen", "127.0.0.1:0"]).terminate());
    let member = cluster.member(&old, "127.0.0.1:0", &MEMORY);
    let foreign = refusal(&cluster.name, &own, &[]);
    assert!(
        foreign.contains(&own) && foreign.contains("data of its own"),
        "{foreign}"
    );
    assert!(member.terminate());
    let other = refusal(&cluster.name, &old, &["--node", "1"]);
    assert!(other.contains("belongs to node 0 of cluster `test`"), "{other}");
    // One whose group an etcd without data does not know, whether there is another of the name or not.
    cluster.etcd.stop();
    cluster.etcd.begin_anew();
    let lost = refusal(&cluster.name, &old, &[]);
    assert!(lost.contains("if etcd has lost its data"), "{lost}");
    let new = cluster.member(&segments.next(), "127.0.0.1:0", &MEMORY);
    let replaced = refusal(&cluster.name, &old, &[]);
    assert!(replaced.contains("data of its own"), "{replaced}");
    drop(new);
}

#[test]
fn what_cannot_be_is_said_in_one_line() {
    let refusal = |arguments: &[&str]| {
        let output = output(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let node =
        |arguments: &[&str]| refusal(&[&["node", "--segment", "/nowhere/segment"], &MEMORY[..], arguments].concat());
    assert!(node(&["--cluster", "10.0.0.5:2379/main"]).contains("write etcd:HOST:PORT/NAME"));
    assert!(node(&["--cluster", "etcd:a:1/main", "--mirrored"]).contains("cannot be used with"));
    assert!(node(&["--cluster", "etcd:a:1/main", "--backup-of", "a:1"]).contains("cannot be used with"));
    assert!(node(&["--node", "1"]).contains("give --cluster too"));
    let nobody = refusal(&["pool", "status", "--pool", "etcd:127.0.0.1:1/main"]);
    assert!(nobody.contains("etcd at 127.0.0.1:1 does not answer"), "{nobody}");
    let form = refusal(&["gateway", "--pool", "etcd:127.0.0.1:1"]);
    assert!(form.contains("names no cluster"), "{form}");
    let cluster = Cluster::start();
    let segments = Segments::new();
    let member = cluster.member(&segments.next(), "127.0.0.1:0", &MEMORY);
    let absent = refusal(&[
        "pool",
        "status",
        "--pool",
        &format!("etcd:{}/other", cluster.etcd.address),
    ]);
    assert!(absent.contains("knows no cluster `other`"), "{absent}");
    drop(member);
}
