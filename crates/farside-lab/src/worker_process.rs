//! A process of this program that does what it is told, a line each, and answers with one.
//!
//! On the path: comparisons whose contenders live in processes of their own. A worker reads lines from its
//! standard input, ends with it, and answers `ok` and some numbers; what goes wrong it says on standard error.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::error::BenchError;

/// The process; it ends when its standard input does.
pub(crate) struct WorkerProcess {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl WorkerProcess {
    /// Starts `farside-lab bench` with these arguments.
    ///
    /// # Errors
    /// If the system gives no process.
    pub(crate) fn start(arguments: impl IntoIterator<Item = std::ffi::OsString>) -> Result<Self, BenchError> {
        let program = std::env::current_exe().map_err(BenchError::system("find this program"))?;
        let mut process = Command::new(program)
            .arg("bench")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(BenchError::system("start a worker"))?;
        let output = BufReader::new(process.stdout.take().expect("it was asked for"));
        Ok(Self {
            input: process.stdin.take(),
            process,
            output,
        })
    }

    /// Tells it what to do.
    ///
    /// # Errors
    /// If it has ended.
    pub(crate) fn tell(&mut self, line: &str) -> Result<(), BenchError> {
        let input = self.input.as_mut().expect("it is closed last");
        writeln!(input, "{line}").map_err(BenchError::system("tell a worker what to do"))
    }

    /// What it answers.
    ///
    /// # Errors
    /// If it has ended, or says something else.
    pub(crate) fn answer(&mut self) -> Result<Vec<f64>, BenchError> {
        let mut line = String::new();
        let read = self.output.read_line(&mut line);
        read.map_err(BenchError::system("hear from a worker"))?;
        let numbers = line.trim_end().strip_prefix("ok ");
        let numbers: Option<Vec<f64>> =
            numbers.and_then(|numbers| numbers.split(' ').map(|number| number.parse().ok()).collect());
        numbers.ok_or_else(|| {
            let reason = if line.is_empty() {
                "it ended"
            } else {
                "it said something else"
            };
            BenchError::system("hear from a worker")(std::io::Error::other(reason))
        })
    }
}

/// What the worker itself writes, to be read by [`WorkerProcess::answer`].
///
/// # Errors
/// If nobody listens any more.
pub(crate) fn answer(numbers: &[f64]) -> Result<(), BenchError> {
    let texts: Vec<String> = numbers.iter().map(f64::to_string).collect();
    writeln!(std::io::stdout(), "ok {}", texts.join(" ")).map_err(BenchError::system("answer"))
}

/// A folder for what workers share; it goes when this does.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// A new folder in `parent`, named after what it is for and this process.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(crate) fn make(parent: &Path, purpose: &str) -> Result<Self, BenchError> {
        let path = parent.join(format!("farside-{purpose}-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| BenchError::Output {
            path: path.clone(),
            reason: error.to_string(),
        })?;
        Ok(Self(path))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // If somebody was quicker, that is as well.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        self.input = None;
        // It has said on standard error what went wrong, if anything did.
        let _ = self.process.wait();
    }
}
