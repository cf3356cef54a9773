//! `cargo xtask test`: the tests of the whole workspace, and nothing else; and the programs that they are in, for commands
//! that run some of them in their own way.
//!
//! It is what `./test` runs on a machine that has just been set up, so it asks for a C linker, Rust and redis-cli only.
//! Format, lints and tidy judge the text of a change, not whether it works; they belong to `cargo xtask ci`.

use std::io::{BufReader, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use anyhow::{Context as _, Result, bail};
use cargo_metadata::{Artifact, Message};

use crate::step;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Passed to `cargo test`; without `-p` the whole workspace is meant
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// How many test programs run at the same time: some compute all the time, others wait for most of it.
const AT_ONCE: usize = 2;
/// The packages whose tests take longest, which begin first.
const LONGEST: [&str; 2] = ["farside-sim", "farside-lab"];
/// How much of what a failed program printed is said again at the end.
const LINES_SAID_AGAIN: usize = 40;
/// What the C library is asked for: to keep memory that was freed. Programs that make a simulation thousands of times
/// spend a third of their time on giving it back otherwise.
const KEEP_MEMORY: [(&str, &str); 3] = [
    ("MALLOC_MMAP_THRESHOLD_", "1073741824"),
    ("MALLOC_TOP_PAD_", "67108864"),
    ("MALLOC_TRIM_THRESHOLD_", "4294967296"),
];

/// Builds every test first, so that a compile error shows before any test has run.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.arguments.is_empty() {
        return run_all();
    }
    let (for_cargo, for_tests) = split(&options.arguments);
    let scope: &[&str] = if names_a_package(for_cargo) {
        &[]
    } else {
        &["--workspace"]
    };

    eprintln!("==> building the tests");
    // A test binary can be built without being run, a documentation test cannot: `--doc` has nothing to build.
    if !for_cargo.iter().any(|argument| argument == "--doc") {
        step::run(step::cargo(["test", "--no-run"]).args(scope).args(for_cargo))?;
    }

    eprintln!("==> running the tests");
    step::run(
        step::cargo(["test", "--no-fail-fast"])
            .args(scope)
            .args(for_cargo)
            .args(for_tests),
    )
}

/// Every test of the workspace, programs side by side; what one prints is shown when it has ended.
fn run_all() -> Result<()> {
    eprintln!("==> building the tests");
    let mut programs = Program::build(&[])?;
    let rank = |program: &Program| LONGEST.iter().position(|name| *name == program.package);
    programs.sort_by_key(|program| rank(program).unwrap_or(LONGEST.len()));
    eprintln!("==> running the tests");
    let left = Mutex::new(programs.into_iter());
    let next = || left.lock().expect("nobody panics while it is locked").next();
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(program) = next() {
                    if let Some(failure) = program.run() {
                        failures.lock().expect("nobody panics while it is locked").push(failure);
                    }
                }
            });
        }
    });
    // Those of the documentation are no programs that could be built before.
    let documentation = step::run(&mut step::cargo(["test", "--workspace", "--doc", "--no-fail-fast"]));
    let failures = failures.into_inner().expect("nobody panics while it is locked");
    for (name, lines) in &failures {
        eprintln!("==> {name} failed; it printed last:\n{lines}");
    }
    if !failures.is_empty() {
        let names: Vec<_> = failures.into_iter().map(|(name, _)| name).collect();
        bail!("tests failed: {}", names.join(", "));
    }
    documentation
}

/// The target that holds the tests of a crate's `tests/it`, as cargo names it.
pub(crate) const IT: &str = "it";

/// Builds what `chosen` names to cargo, or everything that the tests of the workspace need: programs, libraries and tests.
pub(crate) fn built(chosen: &[&str]) -> Result<Vec<Artifact>> {
    let mut command = step::cargo(["test", "--workspace"]);
    command
        .args(chosen)
        .args(["--no-run", "--message-format=json-render-diagnostics"])
        .stdout(Stdio::piped());
    let line = step::command_line(&command);
    eprintln!("    $ {line}");
    let mut child = command.spawn().with_context(|| format!("failed to start `{line}`"))?;
    let output = child.stdout.take().expect("it was asked for");
    let mut artifacts = Vec::new();
    for message in Message::parse_stream(BufReader::new(output)) {
        if let Message::CompilerArtifact(artifact) = message? {
            artifacts.push(artifact);
        }
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(artifacts)
}

/// A test program, built.
pub(crate) struct Program {
    /// The package whose tests it holds.
    pub(crate) package: String,
    /// As cargo names it.
    pub(crate) target: String,
    pub(crate) binary: PathBuf,
    /// Where the package is; cargo runs its tests there.
    folder: PathBuf,
}

impl Program {
    /// Builds the test programs that `chosen` names to cargo, or all of them, in the whole workspace, as `./test` does: one
    /// package alone has other features, and everything below it would be built once more.
    pub(crate) fn build(chosen: &[&str]) -> Result<Vec<Self>> {
        built(chosen).map(Self::among)
    }

    /// The test programs among what cargo has built.
    pub(crate) fn among(artifacts: Vec<Artifact>) -> Vec<Self> {
        let tests = artifacts.into_iter().filter(|artifact| artifact.profile.test);
        let mut programs: Vec<_> = tests.filter_map(Self::of).collect();
        // Cargo names each when it is ready.
        programs.sort_by(|one, other| (&one.package, &one.target).cmp(&(&other.package, &other.target)));
        programs
    }

    fn of(artifact: Artifact) -> Option<Self> {
        let folder = artifact.manifest_path.parent()?;
        Some(Self {
            // `cargo xtask tidy` sees to it that a package lies in a folder of its name.
            package: folder.file_name()?.to_owned(),
            folder: folder.into(),
            target: artifact.target.name,
            binary: artifact.executable?.into(),
        })
    }

    /// The program of this package and target.
    pub(crate) fn find<'a>(programs: &'a [Self], package: &str, target: &str) -> Result<&'a Self> {
        let mut programs = programs.iter();
        programs
            .find(|program| program.package == package && program.target == target)
            .with_context(|| format!("there is no test {target} in {package}"))
    }

    /// The program, to be run where cargo would run it.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.binary);
        command.current_dir(&self.folder).envs(KEEP_MEMORY);
        command
    }

    /// The same, by another program that watches it.
    pub(crate) fn wrapped(&self, watcher: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(watcher);
        command.args(arguments).arg(&self.binary);
        command.current_dir(&self.folder).envs(KEEP_MEMORY);
        command
    }

    /// Runs it, and prints what it has printed; its name and the last of that if it failed.
    fn run(&self) -> Option<(String, String)> {
        let name = format!("{} {}", self.package, self.target);
        eprintln!("    {name} begins");
        let (outcome, seconds) = step::timed(|| self.output());
        let (text, is_success) = outcome.unwrap_or_else(|error| (format!("{error:#}"), false));
        let mut errors = std::io::stderr().lock();
        // Nobody may be there to read it.
        let _ = writeln!(errors, "    {name} took {seconds} s\n{text}");
        let lines: Vec<_> = text.lines().collect();
        let last = &lines[lines.len().saturating_sub(LINES_SAID_AGAIN)..];
        (!is_success).then(|| (name, last.join("\n")))
    }

    /// What it prints, and whether it succeeds.
    fn output(&self) -> Result<(String, bool)> {
        let (mut reader, writer) = std::io::pipe().context("failed to open a pipe")?;
        let mut command = self.command();
        command.stdout(writer.try_clone()?).stderr(writer);
        let child = command.spawn();
        // The command keeps the writing ends, and the pipe would never end.
        drop(command);
        let mut child = child.with_context(|| format!("failed to start {}", self.binary.display()))?;
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes)?;
        Ok((String::from_utf8_lossy(&bytes).into_owned(), child.wait()?.success()))
    }

    /// The names of its tests that these arguments choose.
    pub(crate) fn tests(&self, arguments: &[&str]) -> Result<Vec<String>> {
        let output = self
            .command()
            .arg("--list")
            .args(arguments)
            .output()
            .with_context(|| format!("failed to start {}", self.binary.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
        Ok(names.map(str::to_owned).collect())
    }
}

/// What cargo reads, and what the test binaries read (from `--` on).
fn split(arguments: &[String]) -> (&[String], &[String]) {
    let end = arguments
        .iter()
        .position(|argument| argument == "--")
        .unwrap_or(arguments.len());
    arguments.split_at(end)
}

fn names_a_package(arguments: &[String]) -> bool {
    arguments
        .iter()
        .any(|argument| argument == "--package" || argument.starts_with("--package=") || argument.starts_with("-p"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn arguments_after_two_dashes_go_to_the_test_binaries() {
        let arguments = words("-p farside-pool epoch -- --nocapture");
        let (for_cargo, for_tests) = split(&arguments);
        assert_eq!(for_cargo, words("-p farside-pool epoch"));
        assert_eq!(for_tests, words("-- --nocapture"));
    }

    #[test]
    fn workspace_is_meant_unless_a_package_is_named() {
        for line in [
            "-p farside-pool",
            "-pfarside-pool",
            "--package farside-pool",
            "--package=farside-pool",
        ] {
            assert!(names_a_package(&words(line)), "{line}");
        }
        for line in ["", "epoch", "--doc"] {
            assert!(!names_a_package(&words(line)), "{line}");
        }
    }
}
