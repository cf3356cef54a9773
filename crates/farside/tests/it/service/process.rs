//! A `farside` process under test. It dies with the test.

use std::io::{BufRead, BufReader, Lines};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::client::Client;

/// A server that has said where it listens.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    /// What it prints after its first line.
    later: Mutex<mpsc::Receiver<String>>,
}

/// The binary with these arguments.
pub(crate) fn farside(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farside"));
    command
        .args(arguments)
        .env_remove("RUST_LOG")
        .env_remove("FARSIDE_CONFIG");
    // What makes simulations quick keeps the memory that a program has freed, which some tests look at.
    for variable in ["MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_TRIM_THRESHOLD_"] {
        command.env_remove(variable);
    }
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

/// Reads on in a thread of its own, so that the command never waits for us.
fn read_on(lines: Lines<BufReader<ChildStdout>>) -> Mutex<mpsc::Receiver<String>> {
    let (sender, later) = mpsc::channel();
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| drop(sender.send(line))));
    Mutex::new(later)
}

impl Server {
    /// Starts a command that listens; its first line names the address.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_in(arguments, &[])
    }

    /// The same with these variables in its environment.
    pub(crate) fn start_in(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut child = farside(arguments)
            .envs(variables.iter().copied())
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
        let later = read_on(lines);
        Self { child, address, later }
    }

    /// Starts a command that listens to no port; it listens when it has printed its first line.
    pub(crate) fn start_silent(arguments: &[&str]) -> Self {
        let mut child = farside(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary is built");
        let mut lines = BufReader::new(child.stdout.take().expect("it is a pipe")).lines();
        lines.next().expect("it prints where it listens").expect("text");
        let later = read_on(lines);
        let address = (std::net::Ipv4Addr::UNSPECIFIED, 0).into();
        Self { child, address, later }
    }

    /// `serve` on a free port with these further arguments.
    pub(crate) fn serve(arguments: &[&str]) -> Self {
        Self::start(&[&["serve", "--listen", "127.0.0.1:0", "--threads", "2"], arguments].concat())
    }

    /// A memory node of 64 MiB over a segment, with these further arguments.
    pub(crate) fn node(path: &str, arguments: &[&str]) -> Self {
        Self::start(&[&["node", "--segment", path, "--memory", "64MiB"], arguments].concat())
    }

    /// The next line that it prints and that begins like this.
    pub(crate) fn line_with(&self, start: &str) -> String {
        let later = self.later.lock().expect("no test goes on after a panic");
        let mut lines = core::iter::from_fn(|| later.recv_timeout(PATIENCE).ok());
        lines
            .find(|line| line.starts_with(start))
            .expect("it prints such a line")
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

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is ours");
    }

    /// SIGKILL, and wait until it is gone.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it is ours");
    }

    /// SIGTERM; returns whether it ended well.
    pub(crate) fn terminate(mut self) -> bool {
        self.signal(Signal::TERM);
        self.child.wait().expect("it is ours").success()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
