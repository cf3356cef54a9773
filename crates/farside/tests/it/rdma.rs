//! Processes that share a store over RDMA, some of them killed. `cargo xtask vm-tests` runs this where there is a device.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use farside::{Error, Options, blocking};

/// Tells a child of this test which pool to write to, and under which name.
const CHILD: &str = "FARSIDE_RDMA_CHILD";

/// A process that ends with the test, whatever happens.
struct Player(Child);

impl Player {
    /// SIGKILL, and the end of it.
    fn kill(&mut self) {
        self.0.kill().expect("it is ours");
        self.0.wait().expect("it is ours");
    }

    fn writer(pool: &str, name: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("a test binary has a path"));
        command.args(["--exact", "rdma::child", "--nocapture"]);
        command.env(CHILD, format!("{pool} {name}")).stdout(Stdio::null());
        Self(command.spawn().expect("this binary runs"))
    }

    /// A memory node whose memory the device serves, and its address.
    fn node(segment: &Path, listen: &str) -> (Self, String) {
        let mut child = farside(&["node", "--memory", "64MiB", "--rdma", "--listen", listen, "--segment"])
            .arg(segment)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary is built");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let first = lines.next().expect("it says where it listens").expect("text");
        let mut words = first.split([' ', ',']).map(|word| word.trim_end_matches(':'));
        let address = words.find(|word| word.parse::<std::net::SocketAddr>().is_ok());
        let second = lines.next().expect("it says how to connect").expect("text");
        assert!(second.contains("rdma:") && second.contains("native"), "{second}");
        std::thread::spawn(move || lines.for_each(drop));
        (Self(child), address.expect("an address").to_owned())
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        // Already ended, in some cases.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn farside(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farside"));
    command.args(arguments).env_remove("RUST_LOG");
    command
}

fn output(arguments: &[&str]) -> Output {
    farside(arguments).output().expect("the binary is built")
}

fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

/// Asks, and asks again if the client was cut off meanwhile: an emulated machine may stand still for longer than a lease.
fn patiently<T>(mut ask: impl FnMut() -> Result<T, Error>) -> T {
    const TRIES: u32 = 100;
    for _ in 0..TRIES {
        match ask() {
            Err(error) if error.is_cut_off() => {}
            answer => return answer.expect("the node is there, and has room"),
        }
    }
    panic!("the client is cut off again and again");
}

/// Not a test: a client that writes batches until somebody ends it.
#[test]
fn child() {
    let Ok(role) = std::env::var(CHILD) else { return };
    let (pool, name) = role.split_once(' ').expect("a pool and a name");
    let store = blocking::Store::open(Options::pool(pool).expect("the test wrote it")).expect("the node is there");
    let mut session = store.session().expect("room");
    for round in 0..u64::MAX {
        let item = |number| (format!("{name}-{number}"), format!("{round}-{}", "x".repeat(300)));
        patiently(|| session.put_many((0..40).map(item)));
    }
}

/// The children have begun to write.
#[expect(clippy::disallowed_methods, reason = "a test on real processes waits for them")]
fn await_first(session: &mut blocking::Session, name: &str) {
    let key = format!("{name}-0");
    while patiently(|| session.get(key.as_bytes()).map(|found| found.is_none())) {
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm-tests"]
fn rdma_store_of_several_processes_survives_clients_that_are_killed() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let (_node, address) = Player::node(&folder.path().join("segment"), "127.0.0.1:0");
    let pool = format!("rdma:{address}");
    let store = blocking::Store::open(Options::pool(&pool).expect("an address")).expect("the node is there");
    let mut session = store.session().expect("room");
    for round in 0..3 {
        let names = [format!("first{round}"), format!("second{round}")];
        let mut writers = names.each_ref().map(|name| Player::writer(&pool, name));
        names.iter().for_each(|name| await_first(&mut session, name));
        // In the middle of a batch, since it does nothing else.
        writers[0].kill();
        for number in 0..100_u32 {
            let (key, value) = (format!("own-{number}"), format!("{round}-{number}"));
            // One client is gone, not the node.
            patiently(|| session.put(key.as_bytes(), value.as_bytes()));
            let found = patiently(|| Ok(session.get(key.as_bytes())?.map(<[u8]>::to_vec)));
            assert_eq!(found, Some(value.into_bytes()));
        }
        writers[1].kill();
    }
    let one = output(&["kv", "--pool", &pool, "get", "own-99"]);
    assert!(
        one.status.success() && one.stdout.starts_with(b"2-99"),
        "{}",
        text(&one)
    );
    let walked = output(&["fsck", "--pool", &pool]);
    assert!(walked.status.success(), "{}", text(&walked));
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm-tests"]
fn rdma_node_that_is_killed_is_gone_and_comes_back_with_its_memory() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let segment = folder.path().join("segment");
    let mapped = format!("shm:{}", segment.display());
    let (mut node, address) = Player::node(&segment, "127.0.0.1:0");
    let pool = format!("rdma:{address}");
    let options = Options::pool(&pool).expect("an address");
    let store = blocking::Store::open(options.timeout(Duration::from_secs(5))).expect("the node is there");
    let mut session = store.session().expect("room");
    patiently(|| session.put(b"key", b"value"));
    for (other, hint) in [(&mapped, "rdma:HOST:PORT"), (&format!("tcp:{address}"), "rdma:")] {
        let refused = output(&["kv", "--pool", other, "get", "key"]);
        assert!(
            !refused.status.success() && text(&refused).contains(hint),
            "{}",
            text(&refused)
        );
    }
    node.kill();
    session.get(b"key").expect_err("nobody answers");
    session.put(b"key", b"other").expect_err("nobody answers");
    let unreachable = output(&["kv", "--pool", &pool, "get", "key"]);
    assert!(text(&unreachable).contains("cannot connect"), "{}", text(&unreachable));
    // Whose memory it is no longer can be mapped.
    let found = output(&["kv", "--pool", &mapped, "get", "key"]);
    assert!(
        found.status.success() && found.stdout.starts_with(b"value"),
        "{}",
        text(&found)
    );
    let (_node, address) = Player::node(&segment, &address);
    let found = output(&["kv", "--pool", &format!("rdma:{address}"), "get", "key"]);
    assert!(
        found.status.success() && found.stdout.starts_with(b"value"),
        "{}",
        text(&found)
    );
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm-tests"]
fn rdma_device_is_checked_and_measured() {
    let checked = output(&["rdma-check"]);
    let said = text(&checked);
    assert!(checked.status.success(), "{said}");
    for part in [
        "rxe0 port 1: RoCE v2, GID 1",
        "native",
        "emulated",
        "all as they should be",
        "locked memory",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    for (flags, hint) in [
        (&["--rdma-device", "mlx5_9"][..], "there are: rxe0"),
        (&["--rdma-port", "2"], "port 2"),
        (&["--rdma-gid-index", "77"], "GID"),
        (&["--rdma-mtu", "1000"], "4096"),
    ] {
        let refused = output(&[&["rdma-check"], flags].concat());
        assert!(
            !refused.status.success() && text(&refused).contains(hint),
            "{}",
            text(&refused)
        );
    }
}
