//! Clients in Go, Java, C, Rust and JavaScript, and tools that speak RESP: how each is fetched, built and run.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::server::Server;
use super::{Outcome, Transport, Workplace, filled, missing};
use crate::{package, step};

/// What the exporter has to tell of a server: one metric of each sort that dashboards are made of.
const EXPORTED: &[&str] = &[
    "redis_up 1",
    "redis_exporter_last_scrape_error{err=\"\"} 0",
    "redis_connected_clients ",
    "redis_memory_used_bytes ",
    "redis_memory_max_bytes ",
    "redis_commands_processed_total ",
    "redis_db_keys{db=\"db0\"} 1",
    "redis_keyspace_hits_total 1",
    "redis_net_input_bytes_total ",
    "redis_net_output_bytes_total ",
    "redis_uptime_in_seconds ",
    "redis_evicted_keys_total 0",
    "redis_slowlog_length 0",
    "redis_config_maxclients 10000",
];

pub(super) fn go_redis(workplace: &Workplace) -> Result<Outcome> {
    match go(workplace, ".", "go-redis")? {
        Built::Skipped(why) => Ok(Outcome::Skipped(why)),
        Built::At(program) => {
            workplace.run("go-redis", || Command::new(&program), &[Transport::Tcp, Transport::Tls])?;
            Ok(Outcome::Tried)
        }
    }
}

pub(super) fn exporter(workplace: &Workplace) -> Result<Outcome> {
    let program = match go(workplace, "github.com/oliver006/redis_exporter", "redis_exporter")? {
        Built::Skipped(why) => return Ok(Outcome::Skipped(why)),
        Built::At(program) => program,
    };
    let server = Server::start(workplace, "redis_exporter", Transport::Tcp)?;
    package::ask(server.address, "SET key value\r\n", "+OK\r\n")?;
    package::ask(server.address, "GET key\r\n", "$5\r\nvalue\r\n")?;
    let address = package::free_address()?;
    let mut command = Command::new(program);
    command.args([
        "-log-level",
        "error",
        "-redis.addr",
        &server.url(),
        "-web.listen-address",
    ]);
    let _exporter = package::Service::start(command.arg(address.to_string()))?;
    package::await_connection(address)?;
    let mut connection = TcpStream::connect(address)?;
    connection.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut page = String::new();
    connection.read_to_string(&mut page)?;
    let absent = |wanted: &&&str| !page.lines().any(|line| line.starts_with(**wanted));
    if let Some(absent) = EXPORTED.iter().find(absent) {
        bail!("redis_exporter does not tell `{absent}`; it tells:\n{page}");
    }
    Ok(Outcome::Tried)
}

enum Built {
    At(PathBuf),
    /// Why not.
    Skipped(String),
}

/// The first two numbers of a version of Go, such as 1.26.8 or 1.27rc1.
fn go_version(text: &str) -> Vec<u32> {
    let numbers = text.split('.').take(2);
    let number = |part: &str| {
        let digits = part.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(part.len());
        part[..digits].parse().unwrap_or(0)
    };
    numbers.map(number).collect()
}

/// Builds a program in the versions of our `go.mod`, if there is a Go that is new enough.
fn go(workplace: &Workplace, package: &str, name: &str) -> Result<Built> {
    if let Some(Outcome::Skipped(why)) = missing(&[("go", "Debian: golang-go")]) {
        return Ok(Built::Skipped(why));
    }
    let go = |arguments: &[&str]| {
        let mut go = Command::new("go");
        go.current_dir(workplace.sources.join("go-redis")).args(arguments);
        go.env("GOTOOLCHAIN", "local")
            .env("CGO_ENABLED", "0")
            .env("GOFLAGS", "-mod=readonly");
        go
    };
    // An old one cannot even read the file.
    let asked = Command::new("go")
        .args(["env", "GOVERSION"])
        .current_dir("/")
        .env("GOTOOLCHAIN", "local")
        .output()
        .context("failed to start go")?;
    let found = String::from_utf8_lossy(&asked.stdout)
        .trim()
        .trim_start_matches("go")
        .to_owned();
    let file = workplace.sources.join("go-redis/go.mod");
    let text = std::fs::read_to_string(&file).with_context(|| format!("failed to read {}", file.display()))?;
    let wanted = text.lines().find_map(|line| line.strip_prefix("go "));
    let wanted = wanted.context("go.mod does not say which Go it wants")?;
    if go_version(&found) < go_version(wanted) {
        return Ok(Built::Skipped(format!("Go is {found} here, and {wanted} is wanted")));
    }
    let program = workplace.folder.join("go").join(name);
    step::run(go(&["build", "-o"]).arg(&program).arg(package))?;
    Ok(Built::At(program))
}

pub(super) fn jedis(workplace: &Workplace) -> Result<Outcome> {
    java(workplace, "jedis", "Jedis")
}

pub(super) fn lettuce(workplace: &Workplace) -> Result<Outcome> {
    java(workplace, "lettuce", "Lettuce")
}

fn java(workplace: &Workplace, name: &str, class: &str) -> Result<Outcome> {
    let debian = "Debian: default-jdk-headless";
    if let Some(skipped) = missing(&[("java", debian), ("javac", debian), ("mvn", "Debian: maven")]) {
        return Ok(skipped);
    }
    let sources = workplace.sources.join("java");
    let libraries = workplace.folder.join("java");
    let sums = sources.join("SHA256SUMS");
    filled(&libraries, &sums, |folder| {
        step::run(
            Command::new("mvn")
                .args(["--quiet", "--batch-mode", "--file"])
                .arg(sources.join("pom.xml"))
                .arg("org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies")
                .arg(format!("-DoutputDirectory={}", folder.display())),
        )?;
        step::run(
            Command::new("sha256sum")
                .args(["--check", "--strict", "--quiet"])
                .arg(&sums)
                .current_dir(folder),
        )
    })?;
    let classes = workplace.folder.join(format!("{name}.classes"));
    let on_path = format!("{}:{}/*", classes.display(), libraries.display());
    step::run(
        Command::new("javac")
            // Of the libraries' own annotations, whose classes they do not bring.
            .args(["-Xlint:all,-classfile", "-nowarn", "-cp", &on_path, "-d"])
            .arg(&classes)
            .arg(sources.join(format!("{class}.java"))),
    )?;
    let program = || {
        let mut java = Command::new("java");
        java.args(["-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", &on_path, class]);
        java
    };
    workplace.run(name, program, &[Transport::Tcp])?;
    Ok(Outcome::Tried)
}

pub(super) fn hiredis(workplace: &Workplace) -> Result<Outcome> {
    if let Some(skipped) = missing(&[("cc", "Debian: gcc")]) {
        return Ok(skipped);
    }
    if !PathBuf::from("/usr/include/hiredis/hiredis.h").exists() {
        return Ok(Outcome::Skipped(
            "there is no hiredis (Debian: libhiredis-dev)".to_owned(),
        ));
    }
    let program = workplace.folder.join("hiredis");
    step::run(
        Command::new("cc")
            .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-o"])
            .arg(&program)
            .arg(workplace.sources.join("hiredis.c"))
            .arg("-lhiredis"),
    )?;
    let mut server = Server::start(workplace, "hiredis", Transport::Tcp)?;
    let port = server.address.port().to_string();
    server.converse(Command::new(program).arg(port))?;
    Ok(Outcome::Tried)
}

pub(super) fn redis_rs(workplace: &Workplace) -> Result<Outcome> {
    let built = workplace.folder.join("redis-rs");
    step::run(
        step::cargo(["build", "--quiet", "--locked", "--manifest-path"])
            .arg(workplace.sources.join("redis-rs/Cargo.toml"))
            .arg("--target-dir")
            .arg(&built)
            // Nobody looks for a line in it.
            .env("CARGO_PROFILE_DEV_DEBUG", "false"),
    )?;
    let program = built.join("debug/redis-rs-client");
    workplace.run("redis-rs", || Command::new(&program), &[Transport::Tcp])?;
    Ok(Outcome::Tried)
}

/// What `./test` also runs, with the libraries that it has installed.
pub(super) fn node(workplace: &Workplace) -> Result<Outcome> {
    if let Some(skipped) = missing(&[("node", "Debian: nodejs")]) {
        return Ok(skipped);
    }
    let libraries = workplace.folder.join("node/node_modules");
    if !libraries.exists() {
        return Ok(Outcome::Skipped(
            "./test has not installed its libraries yet".to_owned(),
        ));
    }
    let program = || {
        let mut node = Command::new("node");
        node.env("NODE_PATH", &libraries)
            .arg(workplace.sources.join("node_clients.cjs"));
        node
    };
    workplace.run("node", program, &[Transport::Tcp, Transport::Tls])?;
    Ok(Outcome::Tried)
}

pub(super) fn memtier(workplace: &Workplace) -> Result<Outcome> {
    if let Some(skipped) = missing(&[("memtier_benchmark", "not among the packages of Debian 12")]) {
        return Ok(skipped);
    }
    let server = Server::start(workplace, "memtier", Transport::Tcp)?;
    let port = server.address.port().to_string();
    for protocol in ["resp2", "resp3"] {
        step::run(
            Command::new("memtier_benchmark")
                .args(["--server", "127.0.0.1", "--port", &port, "--protocol", protocol])
                .args([
                    "--threads",
                    "1",
                    "--clients",
                    "10",
                    "--requests",
                    "1000",
                    "--pipeline",
                    "8",
                ])
                .args(["--data-size", "100", "--hide-histogram"]),
        )?;
    }
    Ok(Outcome::Tried)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_go_are_compared_by_their_numbers() {
        assert!(go_version("1.9.7") < go_version("1.26") && go_version("1.19.8") < go_version("1.26.0"));
        assert_eq!(go_version("1.27rc1"), go_version("1.27.2"));
        assert!(go_version("") < go_version("1.1"));
    }
}
