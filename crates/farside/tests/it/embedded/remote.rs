//! A pool over TCP: the built binary serves a segment, the library connects.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use farside::{Options, blocking};

/// A `farside node` on a port of its own. It dies with the test.
pub(crate) struct Node {
    child: Child,
    pub(crate) address: String,
}

impl Node {
    pub(crate) fn start(path: &str, listen: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_farside"))
            .args(["node", "--segment", path, "--memory", "64MiB", "--listen", listen])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary is built");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let first = lines.next().expect("it says where it listens").expect("text");
        let mut words = first.split([' ', ',']).map(|word| word.trim_end_matches(':'));
        let address = words.find(|word| word.parse::<std::net::SocketAddr>().is_ok());
        let address = address.expect("an address").to_owned();
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn both_interfaces_work_over_tcp() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("segment").to_str().expect("plain").to_owned();
    let node = Node::start(&path, "127.0.0.1:0");
    let options = Options::pool(&format!("tcp:{}", node.address)).expect("an address");
    let store = blocking::Store::open(options.clone()).expect("it listens");
    let mut session = store.session().expect("room");
    let items = (0..2000_u32).map(|number| (number.to_be_bytes(), number.to_le_bytes()));
    assert_eq!(session.put_many(items).expect("room"), 2000);
    farside::run(async {
        let store = farside::Store::open(options).await?;
        let keys: Vec<_> = (0..2000_u32).map(u32::to_be_bytes).collect();
        let values = store.session().get_many(&keys).await?;
        for (number, value) in (0_u32..).zip(values) {
            assert_eq!(value.as_deref(), Some(&number.to_le_bytes()[..]));
        }
        store.session().put(b"far", b"away").await?;
        store.close().await
    })
    .expect("a runtime")
    .expect("no error");
    // Longer than a lease: the keeper renews it.
    #[expect(clippy::disallowed_methods, reason = "a lease is to run out, if nobody renews it")]
    std::thread::sleep(core::time::Duration::from_millis(1500));
    assert_eq!(session.get(b"far").expect("still a client"), Some(&b"away"[..]));
    assert_eq!(session.count().expect("it is there"), 2001);
    // The same memory, mapped.
    let mapped = blocking::Store::open(Options::pool(&format!("shm:{path}")).expect("a path")).expect("it is there");
    assert_eq!(
        mapped.session().expect("room").get(b"far").expect("it is there"),
        Some(&b"away"[..])
    );
}

#[test]
fn sessions_come_back_when_their_node_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("segment").to_str().expect("plain").to_owned();
    let node = Node::start(&path, "127.0.0.1:0");
    let address = node.address.clone();
    let store = blocking::Store::open(Options::pool(&format!("tcp:{address}")).expect("an address")).expect("there");
    let mut session = store.session().expect("room");
    session.put(b"key", b"value").expect("room");
    drop(node);
    let error = session.get(b"key").expect_err("nobody is there");
    assert!(!error.is_out_of_memory(), "{error}");
    let _node = Node::start(&path, &address);
    // The node takes a moment to listen; then the same session goes on.
    let value = loop {
        if let Ok(value) = session.get(b"key") {
            break value.map(<[u8]>::to_vec);
        }
    };
    assert_eq!(value.as_deref(), Some(&b"value"[..]));
}
