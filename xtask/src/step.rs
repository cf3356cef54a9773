//! Runs one external command as a named step, and says which one it is.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use procfs::CurrentSI as _;

/// The root of the workspace, whatever directory xtask was started in.
pub(crate) fn workspace_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is a folder of the workspace root")
}

/// The cargo that started us, so that `cargo +toolchain xtask` stays on that toolchain.
pub(crate) fn cargo_path() -> PathBuf {
    std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from)
}

/// A cargo command at the root of the workspace.
pub(crate) fn cargo<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(cargo_path());
    forget_package(&mut command);
    command.current_dir(workspace_root()).args(arguments);
    command
}

/// Takes away what `cargo run` tells us about our own package. Build scripts ask for some of it (ring's does), so a build
/// with it and one without, such as `cargo test`, would undo each other's work in everything above them.
pub(crate) fn forget_package(command: &mut Command) {
    for (name, _) in std::env::vars_os().filter(|(name, _)| tells_of_package(name)) {
        command.env_remove(name);
    }
}

fn tells_of_package(variable: &OsStr) -> bool {
    let variable = variable.to_string_lossy();
    ["CARGO_MANIFEST_", "CARGO_PKG_"]
        .iter()
        .any(|start| variable.starts_with(start))
}

/// The cargo of the nightly toolchain, for what the stable one cannot do.
///
/// `rustup run` and not `cargo +nightly`: we were started by a cargo that is not rustup's.
pub(crate) fn nightly_cargo() -> Result<Command> {
    if nightly_sysroot().is_none() {
        bail!("there is no nightly toolchain; `rustup toolchain install nightly --profile minimal` installs one");
    }
    let mut command = Command::new("rustup");
    command.current_dir(workspace_root()).args(["run", "nightly", "cargo"]);
    for inherited in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
        command.env_remove(inherited);
    }
    forget_package(&mut command);
    Ok(command)
}

/// Where the nightly toolchain is installed, if it is.
pub(crate) fn nightly_sysroot() -> Option<PathBuf> {
    let output = Command::new("rustup")
        .args(["run", "nightly", "rustc", "--print", "sysroot"])
        .output()
        .ok()?;
    let path = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| PathBuf::from(path.trim()))
}

/// Prints the command as one could type it, runs it with our standard streams, and fails unless it succeeds.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = command_line(command);
    eprintln!("    $ {line}");
    let status = command.status().with_context(|| format!("failed to start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(())
}

/// What a step comes to, and how many seconds it took.
pub(crate) fn timed<T>(step: impl FnOnce() -> T) -> (T, u64) {
    let (result, time) = clocked(step);
    (result, time.as_secs())
}

/// What a step comes to, and how long it took.
#[expect(clippy::disallowed_methods, reason = "a command of the developer takes real time")]
pub(crate) fn clocked<T>(step: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = step();
    (result, start.elapsed())
}

/// How long processors have worked for the commands that have ended, in seconds.
pub(crate) fn processor_seconds() -> Result<u64> {
    let stat = procfs::process::Process::myself()?.stat()?;
    // They are not negative.
    Ok((stat.cutime + stat.cstime) as u64 / procfs::ticks_per_second())
}

/// For how many seconds all processors of this machine together have had nothing to do since it was started, waiting for disks
/// included.
pub(crate) fn idle_seconds() -> Result<u64> {
    let total = procfs::KernelStats::current()?.total;
    Ok((total.idle + total.iowait.unwrap_or(0)) / procfs::ticks_per_second())
}

/// `NAME=value program argument ...`, with quotes where a shell needs them.
pub(crate) fn command_line(command: &Command) -> String {
    let variables = command.get_envs().filter_map(|(name, value)| {
        Some(format!(
            "{}={}",
            name.to_string_lossy(),
            quoted(&value?.to_string_lossy())
        ))
    });
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or(command.get_program());
    let words = std::iter::once(program)
        .chain(command.get_args())
        .map(|word| quoted(&word.to_string_lossy()));
    variables.chain(words).collect::<Vec<_>>().join(" ")
}

/// The word as a shell reads it.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_can_be_pasted_into_a_shell() {
        let mut command = Command::new("/usr/bin/cargo");
        command
            .args(["test", "--", "it's two words", ""])
            .env("FARSIDE_SEED", "7");
        assert_eq!(
            command_line(&command),
            r"FARSIDE_SEED=7 cargo test -- 'it'\''s two words' ''"
        );
    }

    #[test]
    fn builds_do_not_hear_of_our_package() {
        for (variable, expected) in [
            ("CARGO_PKG_NAME", true),
            ("CARGO_MANIFEST_DIR", true),
            ("CARGO_TARGET_DIR", false),
            ("CARGO_PROFILE_DEV_CODEGEN_UNITS", false),
        ] {
            assert_eq!(tells_of_package(OsStr::new(variable)), expected, "{variable}");
        }
        let command = cargo(["--version"]);
        let told: Vec<_> = std::env::vars_os().filter(|(name, _)| tells_of_package(name)).collect();
        for (name, _) in told {
            assert!(command.get_envs().any(|given| given == (&*name, None)), "{name:?}");
        }
    }

    #[test]
    fn failure_of_a_step_names_the_command() {
        let error = run(&mut Command::new("false")).expect_err("`false` fails");
        assert!(error.to_string().contains("`false` failed"), "{error}");
    }
}
