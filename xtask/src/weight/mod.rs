//! `cargo xtask weight`: what the store weighs, and whether that is within its budget.
//!
//! It builds `farside` as `./run` does, and prints how long that took, the machine code of the program by crate, the families
//! of functions that are there several times, and how many instructions a call over mapped memory takes. A *family* is
//! all functions of one name: one body, compiled for several types or in several crates. What a family has beyond its largest
//! member are *copies*.
//!
//! The limits in [`BUDGET`] only go down, and so do the instructions in `xtask/calls.tsv`, which may be passed by
//! [`calls::MORE_PERCENT`]; a change that passes one says why it is worth it.

mod calls;
mod program;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use cargo_metadata::{Message, MetadataCommand};

use crate::step;
use program::Program;

/// What may not be exceeded.
struct Budget {
    /// Machine code of `farside`, in bytes.
    code_bytes: u64,
    /// The program without symbols and debug information, in bytes.
    stripped_bytes: u64,
    /// All code over the largest member of each family, in hundredths.
    copies_percent: u64,
}

/// Object stores are 1.2 MB of the code, and the copies that serde makes for their answers six of the hundredths; hashes, sets,
/// sorted sets and lists 0.28 MB.
const BUDGET: Budget = Budget {
    code_bytes: 8_900_000,
    stripped_bytes: 13_020_000,
    copies_percent: 132,
};

/// How many families and crates are shown.
const SHOWN: usize = 10;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Build everything anew, in a folder of its own, so that the time is that of a clean build
    #[arg(long)]
    clean: bool,
    /// Leave the instructions of calls out, for which valgrind is needed
    #[arg(long)]
    no_calls: bool,
    /// Write down the instructions of calls as they are now; a change that makes them more says why it is worth it
    #[arg(long, conflicts_with = "no_calls")]
    renew: bool,
    /// How many families and crates to show
    #[arg(long, default_value_t = SHOWN, value_name = "N")]
    top: usize,
}

impl Options {
    /// What CI wants, with or without the instructions of calls.
    pub(crate) fn all(calls: bool) -> Self {
        Self {
            clean: false,
            no_calls: !calls,
            renew: false,
            top: SHOWN,
        }
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let folder = if options.clean {
        let folder = target_directory()?.join("weight");
        if folder.exists() {
            std::fs::remove_dir_all(&folder).with_context(|| format!("failed to remove {}", folder.display()))?;
        }
        folder
    } else {
        target_directory()?
    };
    let (path, seconds) = build(&folder, &["farside"])?;
    let program = Program::read(&path)?;
    println!(
        "build: {seconds} s{}",
        if options.clean { ", of everything" } else { "" }
    );
    let mut excesses = Vec::new();
    let mut judge = |what: &str, is: u64, most: u64| {
        println!("{what}: {is} of {most}");
        if is > most {
            excesses.push(format!("{what}: {is} of {most}"));
        }
    };
    judge("machine code, bytes", program.code_bytes, BUDGET.code_bytes);
    judge("stripped program, bytes", program.stripped_bytes, BUDGET.stripped_bytes);
    judge("copies, percent", program.copies_percent(), BUDGET.copies_percent);
    print_table("crates", &program.crates(), options.top);
    print_table("copies by family", &program.copies(), options.top);
    if !options.no_calls {
        // Together with the program, so that nothing below it is built again with other features.
        let (calls, _) = build(&folder, &["farside", "farside-calls"])?;
        let mut recorded = calls::Recorded::read()?;
        for (kind, instructions) in &mut recorded.kinds {
            let is = calls::count(&calls, kind)?;
            if options.renew && is == *instructions {
                println!("{kind}, instructions: {is}, as before");
            } else if options.renew {
                println!("{kind}, instructions: {is}, no longer {instructions}");
                *instructions = is;
            } else {
                judge(&format!("{kind}, instructions"), is, calls::most(*instructions));
            }
        }
        if options.renew {
            recorded.write()?;
        }
    }
    if !excesses.is_empty() {
        bail!(
            "over budget: {}; instructions that are worth it are recorded by `cargo xtask weight --renew`",
            excesses.join("; ")
        );
    }
    Ok(())
}

fn print_table(title: &str, rows: &[(String, u64, usize)], count: usize) {
    println!("{title}: bytes, functions");
    for (name, bytes, functions) in rows.iter().take(count) {
        println!("{bytes:>10} {functions:>5}  {name}");
    }
}

/// Where cargo builds.
pub(crate) fn target_directory() -> Result<PathBuf> {
    let metadata = MetadataCommand::new()
        .cargo_path(step::cargo_path())
        .current_dir(step::workspace_root())
        .no_deps()
        .exec()?;
    Ok(metadata.target_directory.into_std_path_buf())
}

/// The store as `./run` starts it, built.
pub(crate) fn release_program() -> Result<PathBuf> {
    build(&target_directory()?, &["farside"]).map(|(path, _)| path)
}

/// Builds programs for release, each in the package of its name; returns where the last one is, and how many seconds that took.
fn build(folder: &Path, programs: &[&str]) -> Result<(PathBuf, u64)> {
    let mut command = step::cargo(["build", "--release", "--message-format", "json-render-diagnostics"]);
    for name in programs {
        command.args(["--package", name, "--bin", name]);
    }
    command.arg("--target-dir").arg(folder);
    let (output, seconds) = step::timed(|| output(&mut command));
    let output = output?;
    let messages = Message::parse_stream(&output[..]);
    for message in messages {
        if let Message::CompilerArtifact(artifact) = message.context("failed to read what cargo has built")?
            && let Some(path) = artifact.executable
            && programs.last().is_some_and(|last| artifact.target.name == *last)
        {
            return Ok((path.into_std_path_buf(), seconds));
        }
    }
    bail!("`{}` has built no program", step::command_line(&command))
}

/// What a command writes; its errors go where ours go.
fn output(command: &mut Command) -> Result<Vec<u8>> {
    let line = step::command_line(command);
    eprintln!("    $ {line}");
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("failed to start `{line}`"))?;
    if !output.status.success() {
        bail!("`{line}` failed ({})", output.status);
    }
    Ok(output.stdout)
}
