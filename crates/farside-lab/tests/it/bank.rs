//! `bench bank`: that every contender moves money without losing any, however few accounts there are to quarrel about.
//!
//! Counts only; how fast anybody is says nothing here. What it takes to find a wrong bank is tested beside the checks.

use std::process::{Command, Output};

use serde_json::Value;

const OURS: &str = "farside-locks,farside-transactions";
const REDIS: &str = "redlock,shiftlock,watch,function";

fn bank(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farside-lab"));
    command.args(["bench", "bank"]).args(arguments).env_remove("RUST_LOG");
    command.output().expect("the binary is built")
}

/// It is only ever a yardstick, so it need not be there.
fn has_redis() -> bool {
    let version = Command::new("redis-server").arg("--version").output();
    let is_there = version.is_ok_and(|output| output.status.success());
    if !is_there {
        eprintln!("there is no redis-server in PATH: banks in Redis are not tested");
    }
    is_there
}

fn measured(arguments: &[&str]) -> Value {
    let output = bank(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    serde_json::from_slice(&output.stdout).expect("one object")
}

/// A short run, in which every contender has done something of every kind; longer ones, until that is so: how much a loaded
/// machine gets done in some time nobody can say.
fn check(only: &str, accounts: &str, more: &[&str]) -> Value {
    let durations = ["400ms", "2s", "10s", "60s"];
    let mut reports = durations.iter().map(|duration| {
        let mut arguments = vec![
            "--only",
            only,
            "--accounts",
            accounts,
            "--clients",
            "6",
            "--rounds",
            "1",
        ];
        arguments.extend(["--duration", duration, "--json"]);
        arguments.extend(more);
        measured(&arguments)
    });
    let has_all = |report: &Value| {
        let rows = report["measurements"].as_array().expect("rows");
        let names = rows.iter().map(|row| row["contender"].as_str().expect("a name"));
        assert_eq!(names.collect::<Vec<_>>().join(","), only);
        let counts = rows.iter().flat_map(|row| [&row["looks"], &row["transfers"]]);
        counts.into_iter().all(|count| count.as_u64() > Some(0))
    };
    reports.find(has_all).expect("a minute is enough")
}

#[test]
fn ours_lose_no_money_between_few_accounts() {
    // With two accounts every transaction that reads sees the whole bank, and with five locks some pairs share one.
    for (accounts, more) in [
        ("2", &[][..]),
        ("7", &["--lock-names", "5"]),
        ("500", &["--theta", "0.99", "--alone"]),
    ] {
        let report = check(OURS, accounts, more);
        assert_eq!(report["comparisons"], Value::Array(Vec::new()), "there is nobody else");
    }
}

#[test]
fn banks_in_redis_lose_no_money_either() {
    if !has_redis() {
        return;
    }
    for (accounts, more) in [
        ("2", &[][..]),
        ("500", &["--redlock-servers", "3"]),
        ("7", &["--fabric", "shm"]),
    ] {
        check(REDIS, accounts, more);
    }
}

#[test]
fn ours_are_compared_with_those_that_take_part() {
    if !has_redis() {
        return;
    }
    let report = check(&[OURS, REDIS].join(","), "100", &[]);
    let compared = report["comparisons"].as_array().expect("comparisons");
    let pair = |one: &Value| (one["ours"].clone(), one["against"].clone());
    let pairs: Vec<_> = compared.iter().map(pair).collect();
    let ours = "farside-transactions";
    assert_eq!(
        pairs,
        [
            (ours.into(), "redlock".into()),
            (ours.into(), "watch".into()),
            (ours.into(), "function".into()),
            ("farside-locks".into(), "redlock".into()),
            ("shiftlock".into(), "redlock".into()),
        ]
    );
}

#[test]
fn without_redis_the_bench_says_what_to_install() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farside-lab"));
    command
        .args(["bench", "bank", "--only", "watch"])
        .env("PATH", "/nowhere");
    let refused = command.output().expect("the binary is built");
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{errors}");
    assert!(errors.contains("apt-get install redis-server"), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
}

#[test]
fn arguments_without_sense_are_refused() {
    for arguments in [
        &["--accounts", "1"][..],
        &["--clients", "0"],
        &["--rounds", "0"],
        &["--theta", "-1"],
        &["--theta", "NaN"],
        &["--lock-names", "0"],
        &["--redlock-servers", "0"],
        &["--only", "etcd"],
    ] {
        let refused = bank(arguments);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
    }
}
