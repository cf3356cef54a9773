//! The examples run, count right, and say what is wrong.

use std::path::PathBuf;
use std::process::{Command, Output};

use super::remote::Node;

/// cargo builds the examples with the tests, in the folder beside them.
fn example(name: &str, arguments: &str) -> Output {
    let mut folder: PathBuf = std::env::current_exe().expect("it runs");
    folder.pop();
    folder.pop();
    let mut command = Command::new(folder.join("examples").join(name));
    command
        .args(arguments.split_whitespace())
        .output()
        .expect("cargo built it")
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn shared_cache_is_hit_by_every_worker() {
    let text = text(&example("shared_cache", "--workers 3 --requests 2000 --pages 50"));
    let hits = text.lines().filter_map(|line| {
        let (_, rest) = line.strip_prefix("worker ")?.split_once(": ")?;
        rest.split(' ').next()?.parse::<u64>().ok()
    });
    let hits: Vec<_> = hits.collect();
    assert_eq!(hits.len(), 3, "{text}");
    assert!(hits.iter().all(|hits| *hits > 0), "{text}");
    // Somebody had to make the pages.
    assert!(hits.iter().sum::<u64>() <= 3 * 2000 - 50, "{text}");
}

#[test]
fn counter_service_loses_no_increment() {
    let text = text(&example(
        "counter_service",
        "--processes 3 --increments 3000 --counters 2",
    ));
    assert!(text.contains("9000 increments by 3 processes, none lost"), "{text}");
}

#[test]
fn bank_loses_no_coin_when_its_processes_are_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("segment").to_str().expect("plain").to_owned();
    let node = Node::start(&path, "127.0.0.1:0");
    for pool in [String::new(), format!("--pool tcp:{}", node.address)] {
        let text = text(&example(
            "bank",
            &format!("--processes 3 --accounts 5 --kills 10 {pool}"),
        ));
        assert!(text.contains("10 processes killed among them, no coin lost"), "{text}");
        let made: u64 = text.split(' ').next().expect("a word").parse().expect("a number");
        assert!(made > 0, "{text}");
    }
    let wrong = example("bank", "--pool nowhere");
    let line = String::from_utf8_lossy(&wrong.stderr);
    assert!(line.starts_with("bank: `nowhere` names no memory node"), "{line}");
    assert!(!wrong.status.success());
}

#[test]
fn bulk_load_stores_every_item() {
    let text = text(&example("bulk_load", "--items 30000"));
    assert!(text.contains("30000 in the store"), "{text}");
}

#[test]
fn leader_election_has_one_leader_at_a_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let segment = folder.path().join("election").display().to_string();
    let run = |name: &'static str| {
        let arguments = format!("--segment {segment} --name {name} --term-ms 100 --terms 3");
        std::thread::spawn(move || text(&example("leader_election", &arguments)))
    };
    let candidates = ["alice", "bob"].map(|name| (name, run(name)));
    for (name, candidate) in candidates {
        // A leader beside another one finds a larger token in the ledger, and fails.
        let text = candidate.join().expect("it ends well");
        assert_eq!(text.matches(&format!("{name} leads, with token")).count(), 3, "{text}");
    }
}

#[test]
fn job_slots_have_one_process_each() {
    let folder = tempfile::tempdir().expect("a folder");
    let segment = folder.path().join("slots").display().to_string();
    let processes: Vec<_> = (0..4)
        .map(|_| {
            let arguments = format!("--segment {segment} --slots 2 --jobs 4 --job-ms 20");
            std::thread::spawn(move || text(&example("job_slots", &arguments)))
        })
        .collect();
    for process in processes {
        // Who finds the note of another process in its slot fails.
        let text = process.join().expect("it ends well");
        assert_eq!(text.matches(" in slot ").count(), 4, "{text}");
    }
}

#[test]
fn wrong_arguments_are_explained() {
    for name in [
        "shared_cache",
        "counter_service",
        "bulk_load",
        "leader_election",
        "job_slots",
    ] {
        for arguments in [
            "--frobnicate 1",
            "--items",
            "--counters x --pages x --value-size x --terms x --jobs x",
        ] {
            let output = example(name, arguments);
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(
                !output.status.success() && text.starts_with("error: ") && text.contains("--help"),
                "{name} {arguments}: {text}"
            );
        }
    }
    let output = example("bulk_load", "--items 10 --pool nowhere");
    assert!(String::from_utf8_lossy(&output.stderr).contains("shm:PATH"));
}
