//! Options that are not on the command line: from the environment, or from a file.
//!
//! On the path: before the arguments of `serve`, `node` and `gateway` are parsed. There is no list of settings beside clap's
//! definition of these commands: each option is a key of the command's table in the file and a variable, `FARSIDE_` and
//! its name. What the command line leaves open is put behind the command's name as if it had been given there, so that clap
//! reads it, refuses it, and knows what needs what.
//!
//! The command line comes before the environment, that before the file, and that before defaults.

mod file;
mod rewrite;

use std::error::Error as _;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, Args, Command, CommandFactory, Parser};

pub(crate) use self::file::File;
pub(crate) use self::rewrite::as_value;
use crate::args::Cli;
use farside_cli::Failure;

/// Which commands have settings, and the tables of the file.
pub(crate) const COMMANDS: [&str; 3] = ["serve", "node", "gateway"];
/// The name of the table of what stands in none.
pub(crate) const TOP: &str = "";
/// What a variable begins with.
const PREFIX: &str = "FARSIDE_";
/// The option that names the file.
const CONFIG: &str = "config";

/// Which file.
#[derive(Debug, Args)]
pub(crate) struct FileArgs {
    /// A file of settings; options given here or in the environment (such as FARSIDE_LISTEN for --listen) override it
    #[arg(long, value_name = "PATH")]
    config: Option<PathBuf>,
}

impl FileArgs {
    /// What CONFIG REWRITE changes, if there is a file.
    pub(crate) fn rewritten(&self, command: &'static str) -> Option<Arc<dyn farside_gateway::SettingsFile>> {
        let path = self.config.clone()?;
        Some(Arc::new(rewrite::Table { path, command }))
    }

    /// The file that is named here or in the environment.
    pub(crate) fn path(&self, environment: &Environment) -> Option<PathBuf> {
        let named = self.config.clone();
        named.or_else(|| environment.get(CONFIG).map(|(_, value)| value.into()))
    }
}

/// The variables that begin as ours do, by the names of the options that they would be; empty ones do not count.
pub(crate) struct Environment(Vec<(String, OsString)>);

impl Environment {
    pub(crate) fn new(variables: impl Iterator<Item = (OsString, OsString)>) -> Self {
        let named = variables
            .filter(|(_, value)| !value.is_empty())
            .filter_map(|(name, value)| {
                let name = name.to_str()?.strip_prefix(PREFIX)?;
                Some((name.to_ascii_lowercase().replace('_', "-"), value))
            });
        Self(named.collect())
    }

    /// The variable for an option, and its value.
    fn get(&self, key: &str) -> Option<(String, OsString)> {
        let (_, value) = self.0.iter().find(|(name, _)| name == key)?;
        Some((variable(key), value.clone()))
    }

    /// Lines about variables that are no settings, but nearly.
    fn warnings(&self, root: &Command) -> Vec<String> {
        let all = COMMANDS.iter().chain([&TOP]).flat_map(|table| keys(root, table));
        let mut known: Vec<&str> = all.map(|(key, _)| key).chain([CONFIG]).collect();
        known.sort_unstable();
        let meant = |name: &str| match known.binary_search(&name) {
            Ok(_) => None,
            Err(_) => nearest(name, known.iter().copied()),
        };
        let wrong = self.0.iter().filter_map(|(name, _)| Some((name, meant(name)?)));
        wrong
            .map(|(name, meant)| {
                let (name, meant) = (variable(name), variable(meant));
                format!("{name} is not a setting: did you mean {meant}?")
            })
            .collect()
    }
}

fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.to_ascii_uppercase().replace('-', "_"))
}

/// The name that was meant, if one is close.
fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let distances = known.map(|known| (strsim::osa_distance(name, known), known));
    let (distance, nearest) = distances.min()?;
    (distance <= (name.len() / 3).min(2)).then_some(nearest)
}

/// The keys of a table, with the options that they are.
pub(crate) fn keys<'c>(root: &'c Command, table: &str) -> impl Iterator<Item = (&'c str, &'c Arg)> {
    let command = match table {
        TOP => Some(root),
        _ => root.find_subcommand(table),
    };
    let options = command.into_iter().flat_map(Command::get_arguments);
    options.filter_map(|option| Some((option.get_long().filter(|&key| key != CONFIG)?, option)))
}

/// Where settings come from beside the command line.
pub(crate) struct Sources<'s> {
    pub(crate) file: Option<File>,
    pub(crate) environment: &'s Environment,
}

/// What a source says about a setting.
pub(crate) struct Said {
    /// The place, as a message names it.
    pub(crate) place: String,
    pub(crate) values: Vec<OsString>,
}

impl Sources<'_> {
    /// What the first of them says that says something.
    pub(crate) fn ask(&self, table: &str, key: &str) -> Option<Said> {
        if let Some((place, value)) = self.environment.get(key) {
            let values = vec![value];
            return Some(Said { place, values });
        }
        self.file.as_ref()?.get(table, key)
    }

    /// The arguments that a table makes, without those that `is_given` elsewhere; lines about wrong values.
    pub(crate) fn arguments(
        &self,
        root: &Command,
        table: &str,
        is_given: &dyn Fn(&Arg) -> bool,
    ) -> (Vec<OsString>, Vec<String>) {
        let (mut arguments, mut mistakes) = (Vec::new(), Vec::new());
        for (key, arg) in keys(root, table).filter(|(_, arg)| !is_given(arg)) {
            if let Some(said) = self.ask(table, key) {
                match as_arguments(arg, key, &said.values) {
                    Ok(made) => arguments.extend(made),
                    Err(why) => mistakes.push(format!("{}: {key}: {why}", said.place)),
                }
            }
        }
        (arguments, mistakes)
    }
}

/// What clap shall be told for these values of an option, or what is wrong with them.
fn as_arguments(arg: &Arg, key: &str, values: &[OsString]) -> Result<Vec<OsString>, String> {
    let is_list = matches!(arg.get_action(), ArgAction::Append);
    let value = match values {
        [value] => value.to_string_lossy(),
        _ if is_list => String::new().into(),
        _ => return Err("it has one value: do not write a list".to_owned()),
    };
    if !arg.get_action().takes_values() {
        return match &*value {
            "true" | "yes" | "1" => Ok(vec![format!("--{key}").into()]),
            "false" | "no" | "0" => Ok(Vec::new()),
            _ => Err(format!("`{value}` is neither true nor false")),
        };
    }
    let option = |key: &str, value: &OsString| {
        let mut option = OsString::from(format!("--{key}="));
        option.push(value);
        option
    };
    // By itself, so that an error is about this value. Its needs and conflicts are seen when all is parsed.
    let parser = arg.get_value_parser().clone();
    let alone = Arg::new("value").long("value").action(arg.get_action().clone());
    let alone = Command::new("setting")
        .no_binary_name(true)
        .arg(alone.value_parser(parser));
    alone
        .try_get_matches_from(values.iter().map(|value| option("value", value)))
        .map_err(|error| reason(&error, &value))?;
    Ok(values.iter().map(|value| option(key, value)).collect())
}

/// What the parser of an option says.
fn reason(error: &clap::Error, value: &str) -> String {
    let why = match (error.source(), error.get(ContextKind::ValidValue)) {
        (Some(source), _) => source.to_string(),
        (None, Some(ContextValue::Strings(valid))) if !valid.is_empty() => format!("write one of {}", valid.join(", ")),
        _ => "write a value".to_owned(),
    };
    if why.contains(value) && !value.is_empty() {
        why
    } else {
        format!("`{value}`: {why}")
    }
}

/// Why arguments and settings make no sense.
#[derive(Debug)]
pub(crate) enum Wrong {
    Arguments(clap::Error),
    Settings(Failure),
}

/// The command line with what its command has in environment and file; and lines to warn of.
pub(crate) fn parse(mut words: Vec<OsString>, environment: &Environment) -> Result<(Cli, Vec<String>), Wrong> {
    let root = Cli::command();
    // As far as it makes sense: what is wrong is told below.
    let line = root.clone().ignore_errors(true).try_get_matches_from(&words);
    let named = line.as_ref().ok().and_then(clap::ArgMatches::subcommand);
    let Some((command, given)) = named.filter(|(name, _)| COMMANDS.contains(name) || *name == CONFIG) else {
        let cli = Cli::try_parse_from(words).map_err(Wrong::Arguments)?;
        return Ok((cli, Vec::new()));
    };
    if COMMANDS.contains(&command) {
        let config = given.get_one(CONFIG).cloned();
        let is_on_line = config.is_some();
        let path = FileArgs { config }.path(environment);
        let file = path.as_ref().map(|path| File::read(path, &root)).transpose();
        let file = file.map_err(|why| Wrong::Settings(Failure::usage(why)))?;
        let mut mistakes = file.as_ref().map_or_else(Vec::new, |file| file.mistakes.clone());
        let is_given = |arg: &Arg| given.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
        let sources = Sources { file, environment };
        let mut arguments = Vec::new();
        for table in [TOP, command] {
            let (made, wrong) = sources.arguments(&root, table, &is_given);
            arguments.extend(made);
            mistakes.extend(wrong);
        }
        if let Some(first) = mistakes.first() {
            let more = match mistakes.len() {
                1 => String::new(),
                count => format!("; and {} more, which `farside config check` shows", count - 1),
            };
            return Err(Wrong::Settings(Failure::usage(format!("{first}{more}"))));
        }
        if let Some(path) = path.filter(|_| !is_on_line) {
            arguments.extend([format!("--{CONFIG}").into(), path.into()]);
        }
        let at = words.iter().skip(1).position(|word| word == command);
        let at = at.expect("clap has found it") + 2;
        words.splice(at..at, arguments);
    }
    let cli = Cli::try_parse_from(words).map_err(Wrong::Arguments)?;
    Ok((cli, environment.warnings(&root)))
}

#[cfg(test)]
mod tests;
