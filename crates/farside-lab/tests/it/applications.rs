//! `bench transactions`: that the rows of every application belong together after several clients have worked at the same time, on
//! every index and over TCP, and what is refused.
//!
//! So many transactions each, however long they take. What it takes to find rows that do not belong together is tested beside the
//! audits.

use std::process::{Command, Output};

use farside_kv::IndexKind;
use farside_lab::applications::{self, ApplicationKind, ApplicationOptions, Limit, SiteOptions};
use farside_lab::progress::Progress;
use farside_lab::stage::FabricKind;
use serde_json::Value;

/// Few rows and many clients, so that they are in each other's way.
fn few(application: ApplicationKind) -> ApplicationOptions {
    let is_tpc_c = application == ApplicationKind::TpcC;
    ApplicationOptions {
        application,
        scale: Some(if is_tpc_c { 2 } else { 20 }),
        items: is_tpc_c.then_some(40),
        customers: is_tpc_c.then_some(10),
        clients: 6,
        limit: Limit::Transactions(200),
        rounds: 2,
        site: SiteOptions {
            fabric: FabricKind::Shm,
            index: IndexKind::Race,
        },
        seed: 1,
        is_json: true,
    }
}

/// The rows of a report, after everything was found in order; `all` first.
fn measured(options: &ApplicationOptions) -> Vec<Value> {
    let report = applications::run(options, &Progress::hidden());
    let report = report.unwrap_or_else(|error| panic!("{options:?}: {error}"));
    let report: Value = serde_json::from_str(&report).expect("one object");
    assert!(report["verified"].as_array().is_some_and(|verified| verified.len() > 1));
    let rows = report["measurements"].as_array().expect("rows").clone();
    let ended = count(&rows[0], "committed") + count(&rows[0], "refused");
    let Limit::Transactions(each) = options.limit else {
        panic!("no test takes a time");
    };
    assert_eq!(ended, options.clients * options.rounds * each);
    rows
}

fn count(row: &Value, of: &str) -> u64 {
    row[of].as_u64().expect("a number")
}

fn of<'r>(rows: &'r [Value], transaction: &str) -> &'r Value {
    let row = rows.iter().find(|row| row["transaction"] == transaction);
    row.unwrap_or_else(|| panic!("no {transaction} was made"))
}

#[test]
fn rows_belong_together_after_clients_were_in_each_others_way() {
    for application in ApplicationKind::ALL {
        let rows = measured(&few(application));
        let transactions = match application {
            ApplicationKind::Tatp => 7,
            ApplicationKind::TpcC => 5,
            ApplicationKind::Smallbank => 6,
        };
        assert_eq!(rows.len(), 1 + transactions);
        // Somebody does what each is for.
        assert!(rows.iter().all(|row| count(row, "committed") > 0), "{rows:?}");
        match application {
            ApplicationKind::Tatp => {
                assert!(count(of(&rows, "get_new_destination"), "refused") > 0);
                assert_eq!(count(of(&rows, "update_location"), "refused"), 0);
            }
            ApplicationKind::TpcC => {
                assert!(count(of(&rows, "new_order"), "refused") > 0);
                assert_eq!(count(of(&rows, "payment"), "refused"), 0);
            }
            ApplicationKind::Smallbank => assert_eq!(count(of(&rows, "balance"), "refused"), 0),
        }
    }
}

#[test]
fn rows_belong_together_in_every_index() {
    for (index, _, _) in IndexKind::ALL {
        for application in ApplicationKind::ALL {
            let mut options = few(application);
            (options.limit, options.rounds) = (Limit::Transactions(60), 1);
            options.site.index = index;
            measured(&options);
        }
    }
}

#[test]
fn rows_belong_together_over_tcp() {
    for application in ApplicationKind::ALL {
        let mut options = few(application);
        options.limit = Limit::Transactions(50);
        options.site.fabric = FabricKind::Tcp;
        measured(&options);
    }
}

/// One warehouse, so that no customer pays elsewhere and all clients have the same home.
#[test]
fn one_warehouse_is_enough() {
    let options = ApplicationOptions {
        scale: Some(1),
        ..few(ApplicationKind::TpcC)
    };
    measured(&options);
}

/// Nobody else posts in its thread, so its verbs can be counted; and nobody but housekeeping is in its way.
#[test]
fn a_client_alone_is_told_what_it_posts() {
    for application in ApplicationKind::ALL {
        let options = ApplicationOptions {
            clients: 1,
            ..few(application)
        };
        for row in measured(&options) {
            assert!(row["attempts"].as_f64() < Some(1.1), "{row}");
            // At least one READ, and more verbs than posts of some.
            let number = |of: &str| row[of].as_f64().expect("it was counted");
            assert!(number("posts") >= 1.0 && number("verbs") >= number("posts"), "{row}");
        }
    }
}

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farside-lab"));
    command
        .args(["bench", "transactions"])
        .args(arguments)
        .env_remove("RUST_LOG");
    command.output().expect("the binary is built")
}

#[test]
fn the_command_prints_a_table_and_what_was_verified() {
    let arguments = [
        "--workload",
        "smallbank",
        "--scale",
        "50",
        "--transactions",
        "40",
        "--clients",
        "3",
        "--rounds",
        "1",
    ];
    let output = bench(&arguments);
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(
        text.starts_with("smallbank, 50 customers, race over shm, 3 clients"),
        "{text}"
    );
    assert!(text.contains("verified after every round, of 100 rows"), "{text}");
}

#[test]
fn arguments_without_sense_are_refused_in_one_line() {
    for (arguments, text) in [
        (
            &["--workload", "tatp", "--scale", "0"][..],
            "--scale is the number of subscribers",
        ),
        (
            &["--workload", "tpc-c", "--scale", "41"],
            "--scale is the number of warehouses",
        ),
        (&["--workload", "tpc-c", "--items", "9"], "--items is from 10"),
        (
            &["--workload", "smallbank", "--items", "50"],
            "--items and --customers are for tpc-c",
        ),
        (&["--workload", "tatp", "--clients", "0"], "--clients is a number"),
        (&["--workload", "tatp", "--rounds", "0"], "at least 1"),
        (&["--workload", "tatp", "--transactions", "0"], "at least 1"),
        (&["--workload", "tatp", "--fabric", "sim"], "--fabric is shm or tcp"),
        (&["--workload", "tatp", "--index", "btree"], "`btree` is no index"),
        (&["--workload", "tpc-h"], "tpc-c"),
    ] {
        let refused = bench(arguments);
        let errors = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        assert!(errors.contains(text), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}
