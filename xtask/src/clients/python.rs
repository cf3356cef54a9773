//! redis-py: our programs with its newest version, and its own tests, of which those have to pass that ask for nothing that
//! Farside does not have (`scripts/clients/redis-py`).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::server::Server;
use super::{Outcome, Transport, Workplace, filled, missing};
use crate::step;

/// Its tests that talk to a server, or are about what does; of one kind of client each, with a server of its own.
const SYNC: &[&str] = &[
    "client",
    "commands",
    "connection",
    "connection_pool",
    "encoding",
    "helpers",
    "lock",
    "max_connections_error",
    "monitor",
    "multiprocessing",
    "pipeline",
    "retry",
    "scripting",
];
const ASYNCIO: &[&str] = &[
    "client",
    "commands",
    "connection",
    "connection_pool",
    "cwe_404",
    "encoding",
    "lock",
    "monitor",
    "pipeline",
    "retry",
    "scripting",
];
/// What is for other servers.
const NOT_FOR_US: &str = "not onlycluster and not redismod and not fixed_client and not cp_integration and not ssl";

/// An environment with redis-py and what its tests need, and the folder with these.
struct Environment {
    python: PathBuf,
    source: PathBuf,
}

fn environment(workplace: &Workplace) -> Result<Environment> {
    let versions = workplace.versions().join("redis-py");
    let wanted = versions.join("requirements.txt");
    let folder = workplace.folder.join("redis-py");
    filled(&folder, &wanted, |folder| {
        step::run(Command::new("python3").args(["-m", "venv"]).arg(folder)).context("Debian: python3-venv")?;
        let pip = |what: &str| {
            let mut pip = Command::new(folder.join("bin/pip"));
            pip.args([
                what,
                "--quiet",
                "--disable-pip-version-check",
                "--require-hashes",
                "--requirement",
            ]);
            pip
        };
        step::run(pip("install").arg(&wanted))?;
        // Wheels have no tests.
        step::run(
            pip("download")
                .arg(versions.join("source.txt"))
                .args(["--no-deps", "--no-binary", ":all:", "--dest"])
                .arg(folder),
        )?;
        let archive = fs::read_dir(folder)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.extension().is_some_and(|extension| extension == "gz"))
            .context("pip has downloaded no source")?;
        fs::create_dir(folder.join("source"))?;
        step::run(
            Command::new("tar")
                .args(["--extract", "--strip-components", "1", "--file"])
                .arg(archive)
                .arg("--directory")
                .arg(folder.join("source")),
        )?;
        // What is tested is what is installed.
        Ok(fs::remove_dir_all(folder.join("source/redis"))?)
    })?;
    Ok(Environment {
        python: folder.join("bin/python"),
        source: folder.join("source"),
    })
}

pub(super) fn programs(workplace: &Workplace) -> Result<Outcome> {
    if let Some(skipped) = missing(&[("python3", "Debian: python3, python3-venv")]) {
        return Ok(skipped);
    }
    let environment = environment(workplace)?;
    for script in ["redis_py.py", "redis_py_asyncio.py"] {
        let program = || {
            let mut python = Command::new(&environment.python);
            python
                .env("PYTHONDONTWRITEBYTECODE", "1")
                .arg(workplace.sources.join(script));
            python
        };
        workplace.run("redis-py", program, &[Transport::Tcp, Transport::Tls])?;
    }
    Ok(Outcome::Tried)
}

pub(super) fn suite(workplace: &Workplace) -> Result<Outcome> {
    if let Some(skipped) = missing(&[("python3", "Debian: python3, python3-venv")]) {
        return Ok(skipped);
    }
    let environment = environment(workplace)?;
    let run = |name: &str, folder: &str, tests: &[&str]| {
        let files = tests.iter().map(|test| format!("{folder}/test_{test}.py"));
        run_tests(workplace, &environment, name, &files.collect::<Vec<_>>())
    };
    // They wait for much of their time.
    let (sync, asyncio) = std::thread::scope(|scope| {
        let sync = scope.spawn(|| run("redis-py-suite", "tests", SYNC));
        let asyncio = run("redis-py-suite-asyncio", "tests/test_asyncio", ASYNCIO);
        (sync.join().expect("it does not panic"), asyncio)
    });
    let used: BTreeSet<String> = sync?.into_iter().chain(asyncio?).collect();
    let list = workplace.versions().join("redis-py/unsupported.txt");
    let text = fs::read_to_string(&list).with_context(|| format!("failed to read {}", list.display()))?;
    let stale: Vec<&str> = patterns(&text).filter(|pattern| !used.contains(*pattern)).collect();
    ensure!(
        stale.is_empty(),
        "{} lists what no test has met, so take it off: {}",
        list.display(),
        stale.join(", ")
    );
    Ok(Outcome::Tried)
}

/// The second column.
fn patterns(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut columns = line.split("  ").map(str::trim).filter(|column| !column.is_empty());
        columns.nth(1)
    })
}

/// Runs tests against a server of their own; what of the list they have met.
fn run_tests(workplace: &Workplace, environment: &Environment, name: &str, files: &[String]) -> Result<Vec<String>> {
    let server = Server::start(workplace, name, Transport::Tcp)?;
    let used = workplace.folder.join(format!("{name}.used"));
    remove_if_there(&used)?;
    let mut command = Command::new(&environment.python);
    command
        .current_dir(&environment.source)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONPATH", workplace.versions().join("redis-py"))
        .env("FARSIDE_SUITE_USED", &used)
        // Their server is at this name.
        .args(["-m", "pytest", "-p", "farside_suite", "--redis-url"])
        .arg(server.url())
        // Not `--tb=short`: for that pytest parses the file of each failure anew.
        .args([
            "--quiet",
            "--tb=native",
            "-p",
            "no:cacheprovider",
            "--disable-warnings",
            "-m",
            NOT_FOR_US,
        ])
        .args(files);
    step::run(&mut command)?;
    let text = fs::read_to_string(&used).context("the plugin farside_suite has not run")?;
    Ok(text.lines().map(str::to_owned).collect())
}

fn remove_if_there(file: &Path) -> Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_the_second_column() {
        let text = "# title\ncommand  LPUSH    lists\nanswer   DB index is out of range  one database\n";
        assert_eq!(
            patterns(text).collect::<Vec<_>>(),
            ["LPUSH", "DB index is out of range"]
        );
    }
}
