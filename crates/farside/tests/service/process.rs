//! A `farside` process under test. It dies with the test.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::client::Client;

/// A server that has said where it listens.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

/// The binary with these arguments.
pub(crate) fn farside(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farside"));
    command.args(arguments).env_remove("RUST_LOG");
    command
}

/// How long a command that is no server may run before the test ends it, and fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs it to its end.
pub(crate) fn output(arguments: &[&str]) -> Output {
    let child = farside(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary is built");
    let pid = Pid::from_child(&child);
    let (done, ended) = mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        if ended.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
            // It has not been waited for, so the number is still its own.
            let _ = kill_process(pid, Signal::KILL);
        }
    });
    let output = child.wait_with_output().expect("it is ours");
    drop(done);
    watch.join().expect("no panic");
    output
}

impl Server {
    /// Starts a command that listens; its first line names the address.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut child = farside(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary is built");
        let mut lines = BufReader::new(child.stdout.take().expect("it is a pipe")).lines();
        let first = lines.next().expect("it prints where it listens").expect("text");
        let word = first.split([' ', ',']).map(|word| word.trim_end_matches(':'));
        let address = word
            .filter_map(|word| word.parse().ok())
            .next()
            .expect("an address in the line");
        // Read on, so that it never waits for us.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }

    /// Starts a command that listens to no port; it listens when it has printed its first line.
    pub(crate) fn start_silent(arguments: &[&str]) -> Self {
        let mut child = farside(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary is built");
        let mut lines = BufReader::new(child.stdout.take().expect("it is a pipe")).lines();
        lines.next().expect("it prints where it listens").expect("text");
        std::thread::spawn(move || lines.for_each(drop));
        let address = (std::net::Ipv4Addr::UNSPECIFIED, 0).into();
        Self { child, address }
    }

    /// `serve` on a free port with these further arguments.
    pub(crate) fn serve(arguments: &[&str]) -> Self {
        Self::start(&[&["serve", "--listen", "127.0.0.1:0", "--threads", "2"], arguments].concat())
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Bytes of memory that the process has to itself, shared mappings not counted.
    pub(crate) fn private_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it is alive");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"))
            .expect("Linux says so");
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kib << 10
    }

    /// SIGKILL, and wait until it is gone.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it is ours");
    }

    /// SIGTERM; returns whether it ended well.
    pub(crate) fn terminate(mut self) -> bool {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it is ours");
        self.child.wait().expect("it is ours").success()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
