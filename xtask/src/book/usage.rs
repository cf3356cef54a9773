//! Are the commands and options there that a document names? Each is looked for in what `--help` prints.
//!
//! So it goes for what cannot be run where tests run, and for what stands in a sentence.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

/// A program whose help can be asked for.
struct Program {
    /// How documents begin a call of it, the longest first.
    called: &'static [&'static str],
    path: PathBuf,
    /// What stands before the arguments, since the call says it.
    first: &'static [&'static str],
}

/// The programs, and what they have said.
pub(super) struct Usage {
    programs: Vec<Program>,
    said: BTreeMap<Vec<String>, String>,
}

impl Usage {
    pub(super) fn new(farside: PathBuf, laboratory: PathBuf, xtask: PathBuf) -> Self {
        let program = |called, path, first| Program { called, path, first };
        let programs = vec![
            program(&["cargo run --release -- ", "farside "], farside.clone(), &[]),
            program(&["./run "], farside, &["serve"]),
            program(
                &["cargo run --release -p farside-lab -- ", "./lab ", "farside-lab "],
                laboratory,
                &[],
            ),
            program(&["cargo xtask "], xtask, &[]),
        ];
        Self {
            programs,
            said: BTreeMap::new(),
        }
    }

    /// What is wrong with the calls of our programs in a piece of shell.
    pub(super) fn mistakes(&mut self, shell: &str) -> Result<Vec<String>> {
        let mut mistakes = Vec::new();
        for command in commands(shell) {
            mistakes.extend(self.mistake(&command)?);
        }
        Ok(mistakes)
    }

    fn mistake(&mut self, command: &str) -> Result<Option<String>> {
        // A space at the end, so that a call without arguments begins as well.
        let command = format!("{command} ");
        let call = |program: &Program| {
            let mut called = program.called.iter();
            let arguments = called.find_map(|start| command.strip_prefix(start))?;
            Some((program.path.clone(), program.first, arguments.to_owned()))
        };
        let Some((path, first, arguments)) = self.programs.iter().find_map(call) else {
            return Ok(None);
        };
        let mut place = vec![path.display().to_string()];
        place.extend(first.iter().map(|word| (*word).to_owned()));
        let mut help = self.help(&place)?;
        let mut words = arguments.split_whitespace().take_while(|word| *word != "--");
        while let Some(word) = words.next() {
            let word = word.trim_matches(|c: char| "\"'`[]().,".contains(c));
            if let Some(option) = word.strip_prefix("--") {
                let (name, value) = option
                    .split_once('=')
                    .map_or((option, None), |(name, value)| (name, Some(value)));
                if !has_word(&help, &format!("--{name}")) {
                    return Ok(Some(format!("`{}`: there is no option --{name}", command.trim())));
                }
                if value.is_none() && help.contains(&format!("--{name} <")) {
                    words.next();
                }
            } else if lists_commands(&self.help(&place)?) {
                // Names of commands are in lower case; what stands for one is not.
                let is_name = word.starts_with(|c: char| c.is_ascii_lowercase())
                    && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
                if !is_name {
                    continue;
                }
                if !names_command(&self.help(&place)?, word) {
                    return Ok(Some(format!("`{}`: there is no command {word}", command.trim())));
                }
                place.push(word.to_owned());
                help += &self.help(&place)?;
            }
        }
        Ok(None)
    }

    /// What the command prints when it is asked for help.
    fn help(&mut self, place: &[String]) -> Result<String> {
        if let Some(text) = self.said.get(place) {
            return Ok(text.clone());
        }
        let output = Command::new(&place[0]).args(&place[1..]).arg("--help").output();
        let output = output.with_context(|| format!("failed to start {}", place[0]))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        self.said.insert(place.to_vec(), text.clone());
        Ok(text)
    }
}

/// The commands of a piece of shell, without variables before and comments behind them.
fn commands(shell: &str) -> Vec<String> {
    let joined = shell.replace("\\\n", " ");
    let pieces = joined.split(['\n', '|', ';', '&']);
    let clean = |piece: &str| {
        let piece = piece.split(" #").next().unwrap_or(piece).trim();
        let piece = piece.strip_prefix("$ ").unwrap_or(piece);
        let words = piece.split_whitespace();
        let is_before =
            |word: &&str| *word == "sudo" || word.split_once('=').is_some_and(|(name, _)| is_variable(name));
        words.skip_while(is_before).collect::<Vec<_>>().join(" ")
    };
    pieces.map(clean).filter(|command| !command.is_empty()).collect()
}

fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && name
            .chars()
            .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
    text.split(|c| !is_part(c)).any(|other| other == word)
}

fn lists_commands(help: &str) -> bool {
    help.contains("\nCommands:\n")
}

fn names_command(help: &str, name: &str) -> bool {
    let list = help.split("\nCommands:\n").nth(1).unwrap_or_default();
    let mut lines = list.lines().take_while(|line| !line.is_empty());
    lines.any(|line| line.starts_with("  ") && line.split_whitespace().next() == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step;

    #[test]
    fn commands_are_found_among_variables_pipes_and_comments() {
        let shell = "$ A=1 sudo farside serve \\\n  --memory 1GiB &   # the store\nfarside list | head\n";
        let found = ["farside serve --memory 1GiB", "farside list", "head"];
        assert_eq!(commands(shell), found);
    }

    #[test]
    fn commands_and_options_that_are_gone_are_noticed() {
        let cargo = step::cargo_path;
        let mut usage = Usage::new(cargo(), cargo(), cargo());
        let place = vec![cargo().display().to_string()];
        usage.said.insert(
            place.clone(),
            "Use\n\nCommands:\n  serve  Serve\n  list\n\nOptions:\n  --version\n".to_owned(),
        );
        let serve = vec![place[0].clone(), "serve".to_owned()];
        usage.said.insert(serve, "Options:\n  --memory <SIZE>\n".to_owned());
        let mut mistakes = |shell| usage.mistakes(shell).unwrap().join("");
        assert_eq!(
            mistakes("farside serve --memory 1GiB\n./run --memory 1\nfarside COMMAND"),
            ""
        );
        assert!(mistakes("farside serve --memroy 1GiB").contains("no option --memroy"));
        assert!(mistakes("farside sevre").contains("no command sevre"));
        assert!(mistakes("cargo run --release -- serve --mem").contains("no option --mem"));
    }
}
