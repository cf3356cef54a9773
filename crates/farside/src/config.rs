//! `farside config`: what is set, where, and what could be set.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use clap::builder::StyledStr;
use clap::{Arg, Args, Command, CommandFactory, Parser, Subcommand};

use crate::PROGRAM;
use crate::args::Cli;
use crate::settings::{COMMANDS, Environment, File, FileArgs, Sources, TOP, as_value, keys};
use farside_cli::{Failure, one_line};

#[derive(Debug, Args)]
#[command(arg_required_else_help = false)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Print each setting and where it comes from, or every mistake
    Check(FileArgs),
    /// Print a file of all settings, commented out
    Example,
}

pub(crate) fn run(args: &ConfigArgs, environment: &Environment) -> Result<ExitCode, Failure> {
    let text = match &args.task {
        Task::Example => example(&[]),
        Task::Check(args) => {
            let path = args.path(environment);
            let path = path.ok_or_else(|| Failure::usage("name the file: --config PATH, or FARSIDE_CONFIG"))?;
            let root = Cli::command();
            let file = Some(File::read(&path, &root).map_err(Failure::usage)?);
            match check(&Sources { file, environment }, &root) {
                Ok(text) => text,
                Err(mut mistakes) => {
                    let last = mistakes.pop().unwrap_or_default();
                    mistakes.iter().for_each(|mistake| eprintln!("{PROGRAM}: {mistake}"));
                    return Err(Failure::usage(last));
                }
            }
        }
    };
    // A closed pipe is the reader's choice.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(ExitCode::SUCCESS)
}

/// A line for each setting of the tables that the file has; or one for each mistake.
pub(crate) fn check(sources: &Sources<'_>, root: &Command) -> Result<String, Vec<String>> {
    let file = sources.file.as_ref();
    let mut mistakes = file.map_or_else(Vec::new, |file| file.mistakes.clone());
    let mut text = String::new();
    for table in [TOP].into_iter().chain(COMMANDS) {
        if table != TOP && !file.is_some_and(|file| file.has(table)) {
            continue;
        }
        let (arguments, wrong) = sources.arguments(root, table, &|_| false);
        if wrong.is_empty() && table != TOP {
            // What needs what.
            let words = [PROGRAM.into(), table.into()].into_iter().chain(arguments);
            if let Err(error) = Cli::try_parse_from(words) {
                let name = file.map_or("", |file| &file.name);
                mistakes.push(format!("{name}: [{table}]: {}", one_line(&error, PROGRAM, table)));
            }
        }
        // A variable is wrong in several tables, and told once.
        let news = wrong.into_iter().filter(|mistake| !mistakes.contains(mistake));
        mistakes.extend(news.collect::<Vec<_>>());
        for (key, arg) in keys(root, table) {
            let (value, place) = match sources.ask(table, key) {
                Some(said) => {
                    let values: Vec<_> = said.values.iter().map(|value| value.to_string_lossy()).collect();
                    (values.join(", "), said.place)
                }
                None => (default(arg).unwrap_or_else(|| "-".to_owned()), "default".to_owned()),
            };
            let name = [table, key].join(if table == TOP { "" } else { "." });
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name:<34} {value:<28} {place}");
        }
    }
    if mistakes.is_empty() { Ok(text) } else { Err(mistakes) }
}

/// What an option is if nobody says: clap's default, or what its help says.
fn default(arg: &Arg) -> Option<String> {
    if !arg.get_action().takes_values() {
        return Some("false".to_owned());
    }
    if let Some(value) = arg.get_default_values().first() {
        return Some(value.to_string_lossy().into_owned());
    }
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let (_, text) = help.split_once("[default: ")?;
    Some(text.trim_end_matches(']').to_owned())
}

/// A file of all settings with what their help says; those that are given here are set, the others commented out.
pub(crate) fn example(set: &[(&str, &str, &str)]) -> String {
    let root = Cli::command();
    let mut text = "# Settings of farside. Each is an option of the command that its table names. The command line overrides the\n\
                    # environment (FARSIDE_LISTEN for listen), which overrides this file.\n\
                    # `farside config check --config FILE` reports mistakes in it.\n"
        .to_owned();
    let about = |text: Option<&StyledStr>| text.map(ToString::to_string).unwrap_or_default();
    for table in [TOP].into_iter().chain(COMMANDS) {
        if let Some(command) = root.find_subcommand(table) {
            let _ = write!(text, "\n# {}\n[{table}]\n", about(command.get_about()));
        }
        for (key, arg) in keys(&root, table) {
            let (mark, value) = match set.iter().find(|&&(of, name, _)| (of, name) == (table, key)) {
                Some((.., value)) => ("", (*value).to_owned()),
                None => ("#", sample(arg)),
            };
            let _ = write!(
                text,
                "\n# {}\n{mark}{key} = {}\n",
                about(arg.get_help()),
                as_value(&value)
            );
        }
    }
    text
}

/// A value that an option takes: its default, or one like those that its help names.
fn sample(arg: &Arg) -> String {
    // A default may be words, such as `the first active one`.
    if let Some(value) = default(arg).filter(|value| !value.contains(' ')) {
        return value;
    }
    let kind = arg.get_value_names().and_then(|names| names.first());
    match (
        arg.get_long().unwrap_or_default(),
        kind.map_or("", |name| name.as_str()),
    ) {
        ("segment", _) => "/var/lib/farside/store",
        ("unix", _) => "/run/farside/socket",
        ("metrics", _) => "127.0.0.1:9121",
        ("tls-listen", _) => "127.0.0.1:6381",
        (_, "HOST:PORT") => "127.0.0.1:6380",
        (_, "SIZE") => "1GiB",
        (_, "NODES") => "tcp:127.0.0.1:7380",
        (_, "BYTES") => "1024",
        (_, "N") => "1",
        (key, "PATH" | "FILE") => return format!("/etc/farside/{key}"),
        ("cluster", _) => "etcd:10.0.0.5:2379/main",
        _ => "mlx5_0",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources<'s>(environment: &'s Environment, text: &str) -> Sources<'s> {
        let file = File::parse("f.toml".to_owned(), text, &Cli::command()).expect("it is TOML");
        Sources {
            file: Some(file),
            environment,
        }
    }

    #[test]
    fn every_key_of_the_example_is_right_when_it_is_set() {
        let text = example(&[]);
        assert!(!text.lines().any(|line| line.starts_with(char::is_lowercase)), "{text}");
        assert!(
            text.contains("\n#log-format = \"text\"\n") && text.contains("\n#maxmemory = 0\n"),
            "{text}"
        );
        let environment = Environment::new(std::iter::empty());
        let root = Cli::command();
        check(&sources(&environment, &text), &root).expect("nothing is set");
        // These two say different things about the same.
        for left_out in ["cluster", "backup-of"] {
            let set: String = text
                .lines()
                .filter_map(|line| match line.strip_prefix('#') {
                    Some(key) if key.starts_with(&format!("{left_out} =")) => None,
                    Some(key) if !key.starts_with(' ') => Some(key),
                    _ => Some(line),
                })
                .collect::<Vec<_>>()
                .join("\n");
            let sources = sources(&environment, &set);
            let shown = check(&sources, &root).expect("all are right together");
            for command in COMMANDS {
                for (key, _) in keys(&root, command).filter(|(key, _)| *key != left_out) {
                    assert!(sources.ask(command, key).is_some(), "{command} {key}");
                    assert!(
                        shown.lines().any(|line| line.contains(key) && line.contains("f.toml:")),
                        "{key}: {shown}"
                    );
                }
            }
        }
    }

    #[test]
    fn each_setting_is_shown_with_its_source_and_each_mistake_with_its_line() {
        let variable = |name: &str, value: &str| (name.into(), value.into());
        let environment = Environment::new([variable("FARSIDE_THREADS", "3")].into_iter());
        let root = Cli::command();
        let text = "[serve]\nmemory = '2GiB'\nlocal-wc = true\n";
        let shown = check(&sources(&environment, text), &root).expect("it is right");
        for (key, value, place) in [
            ("log-format", "text", "default"),
            ("serve.listen", "127.0.0.1:6380, unless", "default"),
            ("serve.memory", "2GiB", "f.toml:2"),
            ("serve.local-wc", "true", "f.toml:3"),
            ("serve.threads", "3", "FARSIDE_THREADS"),
            ("serve.segment", "-", "default"),
            ("serve.maxmemory-policy", "noeviction", "default"),
        ] {
            let is_it = |line: &&str| line.split_whitespace().next() == Some(key);
            let line = shown.lines().find(is_it).unwrap_or_else(|| panic!("{key}: {shown}"));
            assert!(line.contains(value) && line.ends_with(place), "{line}");
        }
        assert!(!shown.contains("gateway."), "{shown}");
        let environment = Environment::new([variable("FARSIDE_THREADS", "none")].into_iter());
        let text = "log-format = 'xml'\n[serve]\nmemry = 1\nmemory = 'lots'\n[gateway]\nthreads = 1\n";
        let mistakes = check(&sources(&environment, text), &root).expect_err("it is wrong");
        let wrong = [
            "f.toml:3: there is no key `memry` in [serve]: did you mean `memory`?",
            "f.toml:1: log-format: `xml`: write one of text, json",
            "f.toml:4: memory: `lots` is not a size",
            "FARSIDE_THREADS: threads: `none`: invalid digit",
        ];
        assert_eq!(mistakes.len(), wrong.len(), "{mistakes:?}");
        for (mistake, start) in mistakes.iter().zip(wrong) {
            assert!(mistake.starts_with(start), "{mistake}");
        }
        let environment = Environment::new(std::iter::empty());
        let mistakes = check(
            &sources(&environment, "[gateway]\nthreads = 1\n[serve]\ntls-cert = 'x'\n"),
            &root,
        );
        let mistakes = mistakes.expect_err("both lack something");
        assert!(
            mistakes[0].starts_with("f.toml: [serve]: ") && mistakes[0].contains("--tls-listen"),
            "{mistakes:?}"
        );
        assert!(mistakes[1].contains("--pool"), "{mistakes:?}");
    }
}
