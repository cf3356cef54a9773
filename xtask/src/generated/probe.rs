//! What mutants are run against: each test of the crates, and seeds of each target of the harness.

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::test::{IT, Program};

/// The crate of the harness.
pub(super) const HARNESS: &str = "farside-sim";
/// Its test that runs the seeds.
const SWARM: &str = "simulation::a_swarm_of_plans_holds";
/// Its tests of planted bugs: they take long, and are about themselves.
const PLANTED: &str = "mutants::";
/// Address space of a test, in KiB: a mutant may ask for memory without an end.
const MEMORY_KIB: u64 = 12 << 20;

/// A test, or seeds of a target.
pub(super) struct Probe {
    /// Its place among the programs.
    pub(super) program: usize,
    what: What,
    /// How long it takes without a mutant.
    pub(super) millis: u64,
    /// The mutants that it comes past.
    pub(super) reached: BTreeSet<u32>,
}

enum What {
    Test(String),
    Seeds { target: String, each: u64 },
}

/// How a run of a probe ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Held,
    Failed,
    /// It did not end.
    Hung,
}

/// Runs probes on one core each.
pub(super) struct Runner<'a> {
    pub(super) programs: &'a [Program],
    pub(super) core: usize,
    pub(super) seed: u64,
    /// Where it may leave a file.
    pub(super) folder: &'a Path,
}

impl Probe {
    /// All there are; how long each takes, and what it reaches, is not known yet.
    pub(super) fn all(programs: &[Program], each: u64) -> Result<Vec<Self>> {
        let mut found = Vec::new();
        for (index, program) in programs.iter().enumerate() {
            for test in program.tests(&[])? {
                if program.package != HARNESS || !(test.starts_with(PLANTED) || test == SWARM) {
                    found.push(Self::new(index, What::Test(test)));
                }
            }
            if program.package == HARNESS && program.target == IT {
                let seeds = |target| Self::new(index, What::Seeds { target, each });
                found.extend(targets(program)?.into_iter().map(seeds));
            }
        }
        Ok(found)
    }

    fn new(program: usize, what: What) -> Self {
        Self {
            program,
            what,
            millis: 0,
            reached: BTreeSet::new(),
        }
    }

    pub(super) fn is_simulated(&self) -> bool {
        matches!(self.what, What::Seeds { .. })
    }

    pub(super) fn name(&self, programs: &[Program]) -> String {
        let program = &programs[self.program];
        match &self.what {
            What::Test(name) => format!("{} {} {name}", program.package, program.target),
            What::Seeds { target, each } => format!("{each} seeds of {target}"),
        }
    }
}

/// The names of the targets, which the harness says when it has run one seed of each.
fn targets(program: &Program) -> Result<Vec<String>> {
    let mut command = program.command();
    command.env("FARSIDE_EACH", "1").env("FARSIDE_SHRINK", "0");
    let output = command.args(["--exact", SWARM, "--nocapture"]).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().skip_while(|line| *line != "runs").skip(1);
    let names = lines.map_while(|line| line.strip_prefix("  ")?.split_whitespace().next());
    Ok(names.map(str::to_owned).collect())
}

impl Runner<'_> {
    /// Runs a probe without a mutant, and notes what it reaches; returns whether it holds.
    pub(super) fn learn(&self, probe: &mut Probe) -> Result<bool> {
        const LIMIT: Duration = Duration::from_secs(300);
        let notes = self.folder.join(format!("reached-{}", self.core));
        let _ = std::fs::remove_file(&notes);
        let mut command = self.command(probe, 1);
        command.env("FARSIDE_REACHED", &notes);
        let (verdict, took) = run(&mut command, LIMIT)?;
        probe.millis = took.as_millis() as u64;
        let bytes = std::fs::read(&notes).unwrap_or_default();
        let numbers = bytes
            .chunks_exact(4)
            .map(|bytes| u32::from_le_bytes(bytes.try_into().expect("four")));
        probe.reached = numbers.collect();
        Ok(verdict == Verdict::Held)
    }

    /// Runs a probe with a mutant, with so many times as many seeds.
    pub(super) fn run(&self, probe: &Probe, mutant: u32, times: u64) -> Result<Verdict> {
        let limit = Duration::from_millis(3_000 + probe.millis * times * 8);
        let mut command = self.command(probe, times);
        Ok(run(command.env("FARSIDE_GENERATED", mutant.to_string()), limit)?.0)
    }

    fn command(&self, probe: &Probe, times: u64) -> Command {
        let program = self.programs[probe.program].command();
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -v {MEMORY_KIB} -c 0; exec \"$0\" \"$@\"")]);
        if probe.is_simulated() {
            // The harness has a thread for each core.
            command.args(["taskset", "--cpu-list", &self.core.to_string()]);
        }
        command.arg(program.get_program());
        command.current_dir(program.get_current_dir().expect("it has one"));
        command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        match &probe.what {
            What::Test(name) => command.args(["--exact", name]),
            What::Seeds { target, each } => command
                .args(["--exact", SWARM])
                .env("FARSIDE_TARGET", target)
                .env("FARSIDE_EACH", (each * times).to_string())
                .env("FARSIDE_SEED", self.seed.to_string())
                .env("FARSIDE_SHRINK", "0"),
        };
        command
    }
}

/// Runs a command and throws away what it prints; ends it, and what it has started, when it takes too long.
#[expect(clippy::disallowed_methods, reason = "a command of the developer takes real time")]
fn run(command: &mut Command, limit: Duration) -> Result<(Verdict, Duration)> {
    let begin = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .context("failed to start a test")?;
    loop {
        if let Some(status) = child.try_wait()? {
            end_group(&child);
            let verdict = if status.success() {
                Verdict::Held
            } else {
                Verdict::Failed
            };
            return Ok((verdict, begin.elapsed()));
        }
        if begin.elapsed() > limit {
            end_group(&child);
            child.wait()?;
            return Ok((Verdict::Hung, begin.elapsed()));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Ends what a test has left running.
fn end_group(child: &Child) {
    let group = format!("-{}", child.id());
    let mut kill = Command::new("kill");
    // Nobody is left of most.
    let _ = kill.args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
}
