//! One line for a command line that makes no sense.

use std::process::ExitCode;

use clap::error::ErrorKind;

/// Prints help or version; reduces an error to one line with a hint. `example` is a command that most people want.
#[must_use]
pub fn explain(error: &clap::Error, program: &str, example: &str) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // A closed pipe is the reader's choice.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    eprintln!("{program}: {}", one_line(error, program, example));
    ExitCode::from(2)
}

/// What is wrong and what would be right.
#[must_use]
pub fn one_line(error: &clap::Error, program: &str, example: &str) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return format!("name a command, such as `{program} {example}`; `{program} --help` lists them");
    }
    let text = error.to_string();
    let mut what = Vec::new();
    let mut tips = Vec::new();
    let mut is_head = true;
    for line in text.lines().map(str::trim) {
        if let Some(tip) = line.strip_prefix("tip: ") {
            tips.push(tip.to_owned());
        } else if line.is_empty() || line.starts_with("Usage:") {
            is_head = false;
        } else if is_head {
            what.push(line.strip_prefix("error: ").unwrap_or(line).to_owned());
        } else if line.starts_with("[possible values") {
            what.push(line.to_owned());
        }
    }
    // The usage names the command whose help explains more.
    let usage = text.lines().find_map(|line| line.trim().strip_prefix("Usage: "));
    let words = usage.unwrap_or(program).split(' ');
    let command: Vec<&str> = words.take_while(|word| !word.starts_with(['-', '[', '<'])).collect();
    let mut line = what.join(" ");
    for tip in tips {
        line = format!("{line}; {tip}");
    }
    format!("{line}; see `{} --help`", command.join(" "))
}
