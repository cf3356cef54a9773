//! Other processes under test: this test program again, with a job to do. They die with the test.
//!
//! A job is a test of this program that does nothing unless it is told where the memory is, so that no
//! binary of its own is needed.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// What tells a process where the memory is.
const POOL: &str = "FARSIDE_TEST_POOL";

/// A process that works on a pool.
pub(crate) struct Worker {
    child: Child,
    pub(crate) lines: Lines<BufReader<ChildStdout>>,
    pub(crate) input: ChildStdin,
}

/// Where the memory is, if this process has a job.
pub(crate) fn pool_of_job() -> Option<String> {
    std::env::var(POOL).ok()
}

/// Tells the test that started this process something.
pub(crate) fn say(line: &str) {
    println!("\nworker: {line}");
}

impl Worker {
    /// Starts the job with this name.
    pub(crate) fn start(job: &str, pool: &str) -> Self {
        Self::start_by(Command::new(std::env::current_exe().expect("it runs")), job, pool)
    }

    /// The same in a process number namespace of its own, as in a container: it is process 1 there.
    /// `None`, which is said, where that is not allowed.
    pub(crate) fn start_apart(job: &str, pool: &str) -> Option<Self> {
        let apart = || {
            let mut command = Command::new("unshare");
            if !rustix::process::geteuid().is_root() {
                // As the superuser of a user namespace, which may make the other one.
                command.args(["--user", "--map-root-user"]);
            }
            command.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
            command
        };
        if !apart().arg("true").status().is_ok_and(|status| status.success()) {
            eprintln!("NOT TESTED: there are no process number namespaces for us here");
            return None;
        }
        let mut command = apart();
        command.arg(std::env::current_exe().expect("it runs"));
        Some(Self::start_by(command, job, pool))
    }

    fn start_by(mut program: Command, job: &str, pool: &str) -> Self {
        let mut child = program
            .args(["--exact", job, "--nocapture", "--test-threads", "1"])
            .env(POOL, pool)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it is this program");
        let output = child.stdout.take().expect("it is a pipe");
        let input = child.stdin.take().expect("it is a pipe");
        let lines = BufReader::new(output).lines();
        Self { child, lines, input }
    }

    /// Waits until it says something.
    pub(crate) fn hear(&mut self) -> String {
        let said = self.lines.find_map(|line| {
            let line = line.expect("text");
            line.strip_prefix("worker: ").map(str::to_owned)
        });
        said.expect("it says something before it ends")
    }

    /// SIGKILL, and wait until it is gone.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it is ours");
    }

    /// Whether it ends well by itself.
    pub(crate) fn ends_well(mut self) -> bool {
        self.lines.by_ref().for_each(drop);
        self.child.wait().expect("it is ours").success()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
