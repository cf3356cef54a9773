//! Mirrored nodes as processes: they are killed, stopped and replaced while a gateway is used.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::process::Signal;

use super::process::{Server, output};

/// A member with a short lease.
fn member(path: &str, listen: &str, arguments: &[&str]) -> Server {
    let common = ["node", "--segment", path, "--listen", listen, "--lease", "300"];
    Server::start(&[&common, arguments].concat())
}

/// `farside pool` with these arguments: what it says, or why not.
pub(super) fn pool(arguments: &[&str]) -> Result<String, String> {
    let output = output(&[&["pool"], arguments].concat());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(text(&output.stderr)),
    }
}

/// A folder in memory, if possible: a disk that is busy holds a node up for longer than its lease.
pub(super) fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    folder.expect("a folder")
}

/// A new segment for each call.
pub(super) struct Segments(tempfile::TempDir, AtomicU64);

impl Segments {
    pub(super) fn new() -> Self {
        Self(folder(), AtomicU64::new(0))
    }

    pub(super) fn next(&self) -> String {
        let number = self.1.fetch_add(1, Ordering::Relaxed);
        let path = self.0.path().join(format!("segment{number}"));
        path.to_str().expect("plain").to_owned()
    }
}

/// Ends whoever counts, also when the test fails meanwhile.
pub(super) struct Over<'a>(pub(super) &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Counts through the gateway until it is told to stop, and returns how many were acknowledged. A reply other than the next number is a failure.
pub(super) fn count(gateway: &Server, is_over: &AtomicBool) -> u64 {
    let mut client = gateway.client();
    let mut count = 0;
    while !is_over.load(Ordering::Relaxed) {
        count += 1;
        assert_eq!(
            client.ask("INCR counter"),
            format!(":{count}\r\n"),
            "each once, whoever is primary"
        );
    }
    count
}

#[test]
fn primaries_are_killed_one_after_the_other_while_clients_count() {
    let segments = Segments::new();
    let memory = ["--memory", "64MiB"];
    let mut primary = member(
        &segments.next(),
        "127.0.0.1:0",
        &[&["--mirrored"], &memory[..]].concat(),
    );
    let first = format!("tcp:{}", primary.address);
    let gateway = Server::start(&["gateway", "--pool", &first, "--listen", "127.0.0.1:0", "--threads", "1"]);
    let is_over = AtomicBool::new(false);
    let counted = std::thread::scope(|scope| {
        let over = Over(&is_over);
        let counting = scope.spawn(|| count(&gateway, &is_over));
        for round in 0..3 {
            let named = primary.address.to_string();
            let backup = member(
                &segments.next(),
                "127.0.0.1:0",
                &[&["--backup-of", &named], &memory[..]].concat(),
            );
            let address = backup.address.to_string();
            let spec = format!("tcp:{named}");
            let added = pool(&["add-backup", "--pool", &spec, &address]).expect("it catches up");
            assert!(added.contains("is a backup of"), "{added}");
            let both = format!("tcp:{named}+{address}");
            if round == 1 {
                // One that is stopped and goes on later must not answer any more.
                primary.signal(Signal::STOP);
            } else {
                primary.signal(Signal::KILL);
            }
            let promoted = pool(&["promote", "--pool", &both, &address]).expect("its backup takes over");
            assert!(promoted.contains("is the primary now"), "{promoted}");
            if round == 1 {
                primary.signal(Signal::CONT);
            }
            primary = backup;
        }
        drop(over);
        counting.join().expect("no reply was wrong")
    });
    assert!(counted > 0, "something was counted");
    assert_eq!(
        gateway.client().ask("GET counter"),
        format!("${}\r\n{counted}\r\n", counted.to_string().len())
    );
    let spec = format!("tcp:{}", primary.address);
    assert!(gateway.terminate());
    let checked = output(&["fsck", "--pool", &spec]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}

#[test]
fn commands_refuse_what_could_leave_two_primaries() {
    let segments = Segments::new();
    let memory = ["--memory", "64MiB"];
    let (of_primary, of_backup) = (segments.next(), segments.next());
    let primary = member(&of_primary, "127.0.0.1:0", &[&["--mirrored"], &memory[..]].concat());
    let named = primary.address.to_string();
    let spec = format!("tcp:{named}");
    let backup = member(&of_backup, "127.0.0.1:0", &[&["--standby"], &memory[..]].concat());
    let address = backup.address.to_string();
    pool(&["add-backup", "--pool", &spec, &address]).expect("a standby follows whom it is told to");

    let gateway = Server::start(&["gateway", "--pool", &spec, "--listen", "127.0.0.1:0", "--threads", "1"]);
    assert_eq!(gateway.client().ask("SET a 1"), "+OK\r\n");
    // The backup dies. It could have been promoted, for all that the primary knows.
    backup.kill();
    let refused = pool(&["remove-backup", "--pool", &spec, &address]).expect_err("it does not answer");
    assert!(
        refused.contains(&address) && refused.contains("--silent-are-off"),
        "{refused}"
    );
    pool(&["remove-backup", "--pool", &spec, &address, "--silent-are-off"]).expect("who knows says so");
    assert_eq!(gateway.client().ask("SET a 2"), "+OK\r\n");
    let unknown = pool(&["remove-backup", "--pool", &spec, &address]).expect_err("it is none any more");
    assert!(unknown.contains("is no backup of this group"), "{unknown}");

    // A process that is started again does not take itself for what its predecessor was, if there were others.
    let backup = member(&of_backup, &address, &["--backup-of", &named]);
    pool(&["add-backup", "--pool", &spec, &address]).expect("its file is copied over");
    primary.kill();
    let both = format!("tcp:{named}+{address}");
    pool(&["promote", "--pool", &both, &address]).expect("it has everything");
    assert_eq!(gateway.client().ask("GET a"), "$1\r\n2\r\n");
    let primary = member(&of_primary, &named, &["--mirrored"]);
    assert_eq!(gateway.client().ask("SET a 3"), "+OK\r\n");
    pool(&["add-backup", "--pool", &both, &named]).expect("it follows the one that was promoted");
    backup.kill();
    pool(&["promote", "--pool", &both, &named]).expect("it has everything in turn");
    assert_eq!(gateway.client().ask("GET a"), "$1\r\n3\r\n");

    // A mirrored segment is not for others to map.
    let mapped = output(&["kv", "--pool", &format!("shm:{of_primary}"), "get", "a"]);
    assert!(!mapped.status.success());
    assert!(String::from_utf8_lossy(&mapped.stderr).contains("is mirrored by process"));
    drop(primary);
}
