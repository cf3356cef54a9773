//! An etcd under test: one process over a folder of its own. It dies with the test.

use std::fmt::Display;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::mirrored::folder;

/// A server of Debian's package `etcd-server`.
pub(crate) struct Etcd {
    folder: tempfile::TempDir,
    /// `host:port`, for clients.
    pub(crate) address: String,
    peers: String,
    child: Child,
}

/// Two ports that nobody listened at a moment ago.
fn free_ports() -> [u16; 2] {
    let listeners = [0; 2].map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port"));
    listeners.map(|listener| listener.local_addr().expect("it is bound").port())
}

/// An etcd alone, over a folder, at these addresses.
pub(crate) fn etcd(data: &Path, address: impl Display, peers: impl Display) -> Command {
    let (clients, peers) = (format!("http://{address}"), format!("http://{peers}"));
    let mut command = Command::new("etcd");
    command
        .arg("--data-dir")
        .arg(data)
        .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
        .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
        .args(["--initial-cluster", &format!("default={peers}")])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

fn run(folder: &Path, address: &str, peers: &str) -> Child {
    etcd(&folder.join("data"), address, peers)
        .stderr(Stdio::null())
        .spawn()
        .expect("etcd is installed: ./test does so, with Debian's package etcd-server")
}

impl Etcd {
    pub(crate) fn start() -> Self {
        let folder = folder();
        let [address, peers] = free_ports().map(|port| format!("127.0.0.1:{port}"));
        let child = run(folder.path(), &address, &peers);
        Self {
            folder,
            address,
            peers,
            child,
        }
    }

    /// SIGTERM, and wait until it is gone. Its data stay.
    pub(crate) fn stop(&mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it is ours");
        self.child.wait().expect("it is ours");
    }

    /// Starts it again after [`Etcd::stop`].
    pub(crate) fn go_on(&mut self) {
        self.child = run(self.folder.path(), &self.address, &self.peers);
    }

    /// The same with nothing in it.
    pub(crate) fn begin_anew(&mut self) {
        std::fs::remove_dir_all(self.folder.path().join("data")).expect("it is stopped");
        self.go_on();
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
