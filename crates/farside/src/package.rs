//! What a package has beside the program, made from the program's arguments: man pages, shell completions and the file of
//! settings of the services.
//!
//! A test makes them, so that the program itself need not be able to; `cargo xtask package` says where they shall stay.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};
use clap_complete::{Shell, generate_to};

use crate::args::Cli;
use crate::config;
use crate::settings::{Environment, File, Sources};

/// Where the files shall stay, if they shall.
const FOLDER: &str = "FARSIDE_PACKAGE_FILES";
/// Whose completions are written.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Fish, Shell::Zsh];
/// What is set in the file that the services read: `farside` is a store by itself, `farside-node` and `farside-gateway` are the
/// same in two processes.
const SETTINGS: [(&str, &str, &str); 8] = [
    ("serve", "listen", "127.0.0.1:6380"),
    ("serve", "segment", "/var/lib/farside/store"),
    ("serve", "memory", "1GiB"),
    ("node", "listen", "127.0.0.1:7380"),
    ("node", "segment", "/var/lib/farside/node"),
    ("node", "memory", "1GiB"),
    ("gateway", "listen", "127.0.0.1:6380"),
    ("gateway", "pool", "shm:/var/lib/farside/node"),
];

/// Man pages go to `man1`, completions to the folder of their shell, settings to `farside.toml`.
fn write(folder: &Path) -> std::io::Result<()> {
    let place = |name: &str| -> std::io::Result<PathBuf> {
        let place = folder.join(name);
        fs::create_dir_all(&place)?;
        Ok(place)
    };
    clap_mangen::generate_to(shown(&Cli::command()), place("man1")?)?;
    for shell in SHELLS {
        let place = place(&shell.to_string())?;
        generate_to(shell, &mut shown(&Cli::command()), "farside", place)?;
    }
    fs::write(folder.join("farside.toml"), config::example(&SETTINGS))
}

/// The program without the commands that its help does not show: a completion would offer them.
fn shown(command: &Command) -> Command {
    let bare = Command::new("farside")
        .version(env!("CARGO_PKG_VERSION"))
        .about(command.get_about().cloned().unwrap_or_default())
        .disable_help_subcommand(true)
        .args(command.get_arguments().cloned());
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
    shown.cloned().fold(bare, Command::subcommand)
}

#[test]
fn every_command_that_help_shows_has_a_page_and_is_completed_and_services_have_settings() {
    let own = tempfile::tempdir().expect("a folder");
    let folder = std::env::var_os(FOLDER).map_or_else(|| own.path().to_owned(), PathBuf::from);
    write(&folder).expect("files");
    let read = |name: &str| fs::read_to_string(folder.join(name)).expect(name);
    let bash = read("bash/farside.bash");
    assert!(read("man1/farside.1").contains("far memory"));
    for command in Cli::command().get_subcommands() {
        let (name, is_shown) = (command.get_name(), !command.is_hide_set());
        let page = folder.join(format!("man1/farside-{name}.1"));
        assert_eq!(page.exists(), is_shown, "{name}");
        assert_eq!(bash.contains(&format!("farside,{name})")), is_shown, "{name}");
    }
    for file in ["fish/farside.fish", "zsh/_farside"] {
        assert!(read(file).contains("maxmemory-policy"), "{file}");
    }
    let file = File::read(&folder.join("farside.toml"), &Cli::command()).expect("it is TOML");
    let environment = Environment::new(std::iter::empty());
    let sources = Sources {
        file: Some(file),
        environment: &environment,
    };
    let checked = config::check(&sources, &Cli::command()).expect("each service has what it needs");
    for (table, key, value) in SETTINGS {
        let is_set = |line: &str| line.split_whitespace().take(2).eq([&*format!("{table}.{key}"), value]);
        assert!(checked.lines().any(is_set), "{table} {key}: {checked}");
    }
}
