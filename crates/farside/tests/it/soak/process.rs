//! Processes of a run. They die with the driver.
//!
//! On the path: the driver starts workers (this test binary) and memory nodes (the built `farside`), and sends them
//! signals.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use farside_fabric::host::entropy;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::dice::Dice;
use super::log::Tail;
use super::worker::Order;

/// A process; killed when dropped.
pub(super) struct Process {
    child: Child,
    stderr: PathBuf,
}

/// The built binary, to be given arguments.
pub(super) fn farside() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farside"));
    command.env_remove("FARSIDE_CONFIG").stdin(Stdio::null());
    command
}

impl Process {
    pub(super) fn start(command: &mut Command, stderr: &Path) -> Self {
        let file = File::options().create(true).append(true).open(stderr);
        let child = command
            .stderr(file.expect("the folder is there"))
            .spawn()
            .expect("the program is built");
        Self {
            child,
            stderr: stderr.to_path_buf(),
        }
    }

    /// The same, and what it prints can be read.
    pub(super) fn start_piped(command: &mut Command, stderr: &Path) -> Self {
        Self::start(command.stdout(Stdio::piped()), stderr)
    }

    pub(super) fn take_stdout(&mut self) -> ChildStdout {
        self.child.stdout.take().expect("it is a pipe, taken once")
    }

    pub(super) fn number(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it has not been waited for");
    }

    /// SIGSTOP; returns when none of its threads runs.
    pub(super) fn stop(&self) {
        self.signal(Signal::STOP);
        let waited = waitpid(Some(Pid::from_child(&self.child)), WaitOptions::UNTRACED);
        let (_, status) = waited.expect("it is ours").expect("it was waited for");
        assert!(status.stopped(), "{} ended by itself", self.stderr.display());
    }

    /// SIGKILL, which also ends what is stopped; returns when it is gone.
    pub(super) fn kill(&mut self) {
        self.child.kill().expect("it has not been waited for");
        let status = self.child.wait().expect("it is ours");
        assert!(status.code().is_none(), "{}", self.complaint(status));
    }

    fn complaint(&self, status: ExitStatus) -> String {
        let said = std::fs::read_to_string(&self.stderr).unwrap_or_default();
        format!("{} ended by itself with {status}:\n{said}", self.stderr.display())
    }

    /// Panics if it has ended.
    pub(super) fn expect_running(&mut self) {
        if let Some(status) = self.child.try_wait().expect("it is ours") {
            panic!("{}", self.complaint(status));
        }
    }

    pub(super) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it is ours").is_some()
    }

    /// Waits for its end, which must be well.
    pub(super) fn expect_end(&mut self) {
        let status = self.child.wait().expect("it is ours");
        assert!(status.success(), "{}", self.complaint(status));
    }

    /// Whether it has ended, which must have been well.
    fn has_ended_well(&mut self) -> bool {
        let status = self.child.try_wait().expect("it is ours");
        if let Some(status) = status {
            assert!(status.success(), "{}", self.complaint(status));
        }
        status.is_some()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How often to try to stop a worker in the middle of an operation.
const AIMS_MAX: u32 = 200;
/// How long to let it run in between.
const AIM: Duration = Duration::from_micros(200);

/// One run of one worker.
pub(crate) struct Worker {
    process: Process,
    order: Order,
    tail: Option<Tail>,
    is_stopped: bool,
}

impl Worker {
    pub(crate) fn start(order: Order) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("it is running"));
        command
            .args(["soak::work_as_a_child", "--exact", "--nocapture", "--test-threads", "1"])
            .env(Order::VARIABLE, order.to_text())
            .env_remove("RUST_LOG")
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        let process = Process::start(&mut command, &order.log.with_extension("stderr"));
        Self {
            process,
            order,
            tail: None,
            is_stopped: false,
        }
    }

    pub(crate) fn incarnation(&self) -> u64 {
        self.order.incarnation
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Stops it, in the middle of an operation if that can be had; returns whether it is.
    ///
    /// Operations on mapped memory are short: most signals would find it writing its log.
    pub(crate) fn stop(&mut self) -> bool {
        for _ in 0..AIMS_MAX {
            self.process.stop();
            self.is_stopped = true;
            if self.tail().is_some_and(|tail| tail.in_flight() > 0) {
                return true;
            }
            self.resume();
            // Let it get on.
            #[expect(clippy::disallowed_methods, reason = "real processes take real time")]
            std::thread::sleep(AIM);
        }
        self.process.stop();
        self.is_stopped = true;
        false
    }

    pub(crate) fn resume(&mut self) {
        self.process.signal(Signal::CONT);
        self.is_stopped = false;
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    pub(crate) fn expect_running(&mut self) {
        self.process.expect_running();
    }

    fn tail(&mut self) -> Option<&mut Tail> {
        if self.tail.is_none() {
            self.tail = Tail::open(&self.order.log);
        }
        self.tail.as_mut()
    }

    /// How many of its operations were answered.
    pub(crate) fn answered(&mut self) -> u64 {
        self.tail().map_or(0, Tail::answered)
    }

    /// Asks it to end; it finishes the operation it is at, and leaves the pool.
    pub(crate) fn ask_to_end(&mut self) {
        drop(self.process.child.stdin.take());
    }

    pub(crate) fn has_ended_well(&mut self) -> bool {
        self.process.has_ended_well()
    }
}

/// A memory node: a segment and an address that stay, and the process that serves them now.
pub(crate) struct MemoryNode {
    process: Option<Process>,
    pub(crate) segment: PathBuf,
    pub(crate) address: SocketAddr,
    /// How often it was started.
    pub(crate) life: u64,
    is_stopped: bool,
}

/// Ports of this range are not given to connections (`ip_local_port_range`), so nobody else takes the port of a server
/// while it is dead: neither a stranger nor a client that tries to reach it.
const PORTS: core::ops::Range<u64> = 20_000..32_000;

/// Where nobody listens.
pub(super) fn free_port() -> SocketAddr {
    // Not from the seed: two runs at once would want the same ports.
    let mut dice = Dice::new(u64::from_le_bytes(entropy()));
    loop {
        let port = dice.between(PORTS.start, PORTS.end) as u16;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

impl MemoryNode {
    pub(crate) fn start(segment: PathBuf, memory: &str) -> Self {
        let address = free_port();
        let mut node = Self {
            process: None,
            segment,
            address,
            life: 0,
            is_stopped: false,
        };
        node.launch(&["--memory", memory]);
        node
    }

    fn launch(&mut self, further: &[&str]) {
        let mut command = farside();
        command
            .args(["node", "--listen", &self.address.to_string(), "--segment"])
            .arg(&self.segment)
            .args(further)
            .env_remove("RUST_LOG");
        let mut process = Process::start_piped(&mut command, &self.segment.with_extension("stderr"));
        let mut lines = BufReader::new(process.take_stdout()).lines();
        // The line is there when the port is.
        let Some(Ok(_)) = lines.next() else {
            let status = process.child.wait().expect("it is ours");
            panic!("{}", process.complaint(status));
        };
        // Read on, so that it never waits for us.
        std::thread::spawn(move || lines.for_each(drop));
        self.process = Some(process);
        self.life += 1;
        self.is_stopped = false;
    }

    pub(crate) fn restart(&mut self) {
        assert!(self.process.is_none(), "it was killed before");
        self.launch(&[]);
    }

    pub(crate) fn is_up(&self) -> bool {
        self.process.is_some()
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("it is up")
    }

    pub(crate) fn stop(&mut self) {
        self.process().stop();
        self.is_stopped = true;
    }

    pub(crate) fn resume(&mut self) {
        self.process().signal(Signal::CONT);
        self.is_stopped = false;
    }

    pub(crate) fn kill(&mut self) {
        self.process().kill();
        self.process = None;
    }

    pub(crate) fn expect_running(&mut self) {
        if let Some(process) = &mut self.process {
            process.expect_running();
        }
    }

    /// SIGTERM: it must end well.
    pub(crate) fn terminate(mut self) {
        self.process().signal(Signal::TERM);
        self.process().expect_end();
    }
}
