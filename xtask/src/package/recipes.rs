//! What `packaging` has for those who run containers: Compose files, a Helm chart, alerts for Prometheus, a dashboard for Grafana.
//!
//! A program in Go, `packaging/check`, reads the files with the libraries of Compose, Helm, Kubernetes and Grafana, and prints
//! the containers, which are started here: in the root of the image, with their arguments, but for ports that are free and
//! less memory. Alerts are tested by promtool. What this machine has no tools for is said, and left out.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::check::{Service, ask, await_connection, contained, free_address};
use super::deb::output;
use super::{remade, tls};
use crate::step;

/// What containers find in the files of their secrets.
const SECRET: &str = "a secret of the checks";
const PASSWORD: &str = "sesame";
/// A user who may only read.
const USERS: &str = "user reader on >poppy ~* -@all +@read\n";
/// The service of the chart, as its certificate names it.
const SERVICE: &str = "farside.default.svc";
/// Ports as the recipes have them.
const REDIS: u16 = 6380;
const METRICS: u16 = 9121;

pub(super) fn check(root: &Path, out: &Path) -> Result<()> {
    let folder = step::workspace_root().join("packaging");
    let tools = step::workspace_root().join("target/tools");
    let promtool = promtool(&tools);
    if let Some(promtool) = &promtool {
        let rules = folder.join("prometheus");
        let command = || {
            let mut command = Command::new(promtool);
            command.current_dir(&rules);
            command
        };
        step::run(command().args(["check", "rules", "farside.rules.yml"]))?;
        step::run(command().args(["test", "rules", "farside.rules.test.yml"]))?;
    }
    let Some(reader) = reader(&folder.join("check"), &tools)? else {
        return Ok(());
    };
    let read = |kind: &str, files: &[&str]| -> Result<Value> {
        let mut command = Command::new(&reader);
        command
            .current_dir(&folder)
            .arg(kind)
            .args(files)
            .stderr(Stdio::inherit());
        eprintln!("    $ {}", step::command_line(&command));
        Ok(serde_json::from_str(&output(&mut command)?)?)
    };
    let queries = read("dashboard", &["grafana/farside.json"])?;
    if let Some(promtool) = &promtool {
        step::run(
            Command::new(promtool)
                .args(["check", "rules"])
                .arg(rules_of(&queries, out)?),
        )?;
    }
    for (kind, files) in [
        ("compose", &["compose.yaml"][..]),
        ("compose", &["compose.yaml", "compose.mapped.yaml"]),
        ("compose", &["compose.yaml", "compose.users.yaml"]),
        ("chart", &["helm/farside"]),
        ("chart", &["helm/farside", "ci/secured-values.yaml"]),
    ] {
        let containers = read(kind, files)?;
        start(&containers, root).with_context(|| format!("the containers of {}", files.join(" and ")))?;
    }
    Ok(())
}

/// Prometheus' tool, in the PATH or where `scripts/setup.bash` puts it.
fn promtool(tools: &Path) -> Option<PathBuf> {
    let places = [PathBuf::from("promtool"), tools.join("promtool")];
    let found = places
        .into_iter()
        .find(|place| Command::new(place).arg("--version").output().is_ok());
    if found.is_none() {
        eprintln!("    there is no promtool here: alerts and the queries of the dashboard are not tested");
    }
    found
}

/// The program that reads recipes, if there is a Go that is new enough to build it. Go keeps what it has compiled, as cargo does.
fn reader(source: &Path, tools: &Path) -> Result<Option<PathBuf>> {
    const LEFT_OUT: &str = "Compose files, the chart and the dashboard are not looked at";
    let manifest = fs::read_to_string(source.join("go.mod"))?;
    let wanted = manifest.lines().find_map(|line| line.strip_prefix("go "));
    let wanted = wanted.context("packaging/check/go.mod names no version of Go")?;
    let found = Command::new("go")
        .args(["env", "GOVERSION"])
        .env("GOTOOLCHAIN", "local")
        .output();
    let found = match found {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("    there is no Go here: {LEFT_OUT}");
            return Ok(None);
        }
        found => String::from_utf8(found?.stdout)?,
    };
    let found = found.trim().trim_start_matches("go");
    if version(found) < version(wanted) {
        eprintln!("    Go is {found}, and {wanted} is wanted: {LEFT_OUT}");
        return Ok(None);
    }
    let program = tools.join("check-packaging");
    let mut build = Command::new("go");
    build.current_dir(source).env("GOTOOLCHAIN", "local");
    // Not optimised: it takes longer to build than it ever runs.
    build.args(["build", "-gcflags=all=-N -l"]);
    let (built, seconds) = step::timed(|| step::run(build.arg("-o").args([&program]).arg(".")));
    built?;
    eprintln!("    built in {seconds} s");
    Ok(Some(program))
}

/// Numbers that can be compared.
fn version(text: &str) -> Vec<u32> {
    text.split('.').map_while(|number| number.parse().ok()).collect()
}

/// The queries of a dashboard as a file of rules, with something in place of Grafana's variables.
fn rules_of(queries: &Value, out: &Path) -> Result<PathBuf> {
    let queries = queries.as_array().context("the dashboard has no queries")?;
    ensure!(!queries.is_empty(), "the dashboard has no queries");
    let rules = queries.iter().filter_map(Value::as_str).map(|query| {
        let query = query.replace("$__rate_interval", "5m");
        json!({"record": "query", "expr": query.replace("$job", ".*").replace("$instance", ".*")})
    });
    // Each in a group of its own, where it repeats none.
    let groups = rules
        .enumerate()
        .map(|(number, rule)| json!({"name": number.to_string(), "rules": [rule]}));
    let file = out.join("dashboard.rules.yml");
    // JSON is YAML.
    fs::write(&file, json!({"groups": groups.collect::<Vec<_>>()}).to_string())?;
    Ok(file)
}

/// Starts containers one after the other, as far as each is well; then stores a key at the first gateway and reads it at the last.
fn start(containers: &Value, root: &Path) -> Result<()> {
    remade(&root.join("data"))?;
    let secrets = root.join("run/secrets");
    for folder in ["farside", "acl", "tls"] {
        remade(&secrets.join(folder))?;
    }
    for (file, text) in [
        ("node", SECRET),
        ("password", PASSWORD),
        ("users", USERS),
        ("farside/node-secret", SECRET),
        ("farside/password", PASSWORD),
        ("acl/users.acl", USERS),
    ] {
        fs::write(secrets.join(file), text)?;
    }
    // It vouches for itself.
    let certificate = secrets.join("tls/tls.crt");
    tls::certify(&[SERVICE], &certificate, &secrets.join("tls/tls.key"))?;
    fs::copy(&certificate, secrets.join("tls/ca.crt"))?;
    let mut running = Vec::new();
    let mut gateways = Vec::new();
    // Where somebody listens on a port, last.
    let mut places = BTreeMap::new();
    let mut hosts = String::new();
    let (mut has_tls, mut has_users) = (false, false);
    for container in containers.as_array().context("there are none")? {
        let name = container["name"].as_str().unwrap_or_default();
        let mut command = contained(root);
        for (variable, value) in container["environment"].as_object().into_iter().flatten() {
            has_users |= variable == "FARSIDE_ACL_FILE";
            command.env(variable, value.as_str().unwrap_or_default());
        }
        for argument in words(&container["args"]) {
            has_tls |= argument.starts_with("--tls-listen=");
            has_users |= argument.starts_with("--acl-file=");
            if let Some(host) = named_host(argument) {
                hosts.push_str(&format!("127.0.0.1 {host}\n"));
            }
            command.arg(placed(argument, &mut places)?);
        }
        fs::write(root.join("etc/hosts"), &hosts)?;
        if name == "top" {
            // It ends by itself.
            step::run(&mut command)?;
            continue;
        }
        running.push(Service::start(&mut command)?);
        let metrics = *places.get(&METRICS).context("nobody can ask how it is")?;
        await_connection(metrics).with_context(|| name.to_owned())?;
        let health = match words(&container["health"]).collect::<Vec<_>>() {
            words if words.is_empty() => vec!["health"],
            words => words,
        };
        step::run(contained(root).args(health).args(["--connect", &metrics.to_string()]))?;
        if name.starts_with("gateway") {
            gateways.push(*places.get(&REDIS).context("no client can connect")?);
        }
    }
    let (Some(&first), Some(&last)) = (gateways.first(), gateways.last()) else {
        anyhow::bail!("there is no gateway among them");
    };
    let ask = |gateway, request: &str, expected: &str| {
        let (request, expected) = (format!("{request}QUIT\r\n"), format!("{expected}+OK\r\n"));
        if has_tls {
            tls::ask(gateway, &certificate, &request, &expected)
        } else {
            ask(gateway, &request, &expected)
        }
    };
    ask(first, "GET key\r\n", "-NOAUTH Authentication required.\r\n")?;
    ask(
        first,
        &format!("AUTH {PASSWORD}\r\nSET key value\r\n"),
        "+OK\r\n+OK\r\n",
    )?;
    ask(
        last,
        &format!("AUTH {PASSWORD}\r\nGET key\r\n"),
        "+OK\r\n$5\r\nvalue\r\n",
    )?;
    if has_users {
        ask(
            last,
            "AUTH reader poppy\r\nGET key\r\nSET key other\r\n",
            "+OK\r\n$5\r\nvalue\r\n-NOPERM User reader has no permissions to run the 'set' command\r\n",
        )?;
    }
    // Gateways first, as they were told last.
    while let Some(service) = running.pop() {
        drop(service);
    }
    Ok(())
}

fn words(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// The other container that an argument names.
fn named_host(argument: &str) -> Option<&str> {
    let place = argument
        .strip_prefix("--pool=tcp:")
        .or_else(|| argument.strip_prefix("--connect="))?;
    Some(place.split(':').next().unwrap_or(place))
}

/// An argument for here, where all containers share a network and little memory.
fn placed(argument: &str, places: &mut BTreeMap<u16, SocketAddr>) -> Result<String> {
    if let Some((option, port)) = argument.split_once("=0.0.0.0:") {
        let address = free_address()?;
        places.insert(port.parse()?, address);
        return Ok(format!("{option}={address}"));
    }
    if argument.starts_with("--memory=") {
        return Ok("--memory=64MiB".to_owned());
    }
    if let Some(host) = named_host(argument)
        && let Some((start, port)) = argument.rsplit_once(':')
    {
        let place = places.get(&port.parse()?);
        let place = place.with_context(|| format!("{host} does not listen on port {port}"))?;
        return Ok(format!("{start}:{}", place.port()));
    }
    Ok(argument.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipes_are_of_this_version() {
        let version = env!("CARGO_PKG_VERSION");
        let compose = include_str!("../../../packaging/compose.yaml");
        assert!(compose.contains(&format!(":-localhost/farside:{version}}}")));
        let chart = include_str!("../../../packaging/helm/farside/Chart.yaml");
        assert!(chart.contains(&format!("appVersion: \"{version}\"")));
    }

    #[test]
    fn every_alert_is_tested() {
        let rules = include_str!("../../../packaging/prometheus/farside.rules.yml");
        let tests = include_str!("../../../packaging/prometheus/farside.rules.test.yml");
        let alerts: Vec<_> = rules
            .lines()
            .filter_map(|line| line.trim().strip_prefix("- alert: "))
            .collect();
        assert!(alerts.len() > 5, "{alerts:?}");
        for alert in alerts {
            // On a line of its own: one with alerts that are expected.
            let is_expected = tests.lines().any(|line| line.trim() == format!("alertname: {alert}"));
            assert!(is_expected, "{alert}");
        }
    }

    #[test]
    fn arguments_are_moved_to_free_ports() {
        let mut places = BTreeMap::new();
        let listen = placed("--listen=0.0.0.0:7380", &mut places).expect("a free port");
        let port = places[&7380].port();
        assert_eq!(listen, format!("--listen=127.0.0.1:{port}"));
        let mut moved = |argument| placed(argument, &mut places);
        assert_eq!(
            moved("--pool=tcp:node:7380").ok(),
            Some(format!("--pool=tcp:node:{port}"))
        );
        assert_eq!(moved("--memory=1GiB").ok(), Some("--memory=64MiB".to_owned()));
        assert_eq!(
            moved("--pool=shm:/data/node").ok(),
            Some("--pool=shm:/data/node".to_owned())
        );
        assert!(moved("--connect=farside:6380").is_err());
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert!(version("1.19.8") < version("1.26.0"));
        assert!(version("1.26.8") >= version("1.26.0") && version("1.26") < version("1.26.0"));
        assert!(version("1.100.0") > version("1.26.0"));
    }
}
