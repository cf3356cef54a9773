//! What plans cost, to the byte and the nanosecond, by target: `ledger/*.tsv`.
//!
//! A change of a protocol that changes one verb of one of these runs, its size, its place or its time changes a number here,
//! whether or not anything is wrong; so nobody changes what an operation costs, or when it looks again, unawares, and a review
//! sees how much. Checks of the harness say whether it is right. `cargo xtask ledger --renew` writes what is so now.

#[path = "../../../farside-index/tests/it/ledger/compare.rs"]
mod compare;

use std::fmt::Write as _;

use farside_fabric::VerbKind;
use farside_sim::run::Cost;
use farside_sim::{Target, draw, execute};

use self::compare::compare;

/// So many plans of each target, with these seeds: among them every flavour, and most faults.
const SEEDS: core::ops::Range<u64> = 1000..1048;

/// One line for a target.
fn line(target: Target) -> String {
    let mut all = Cost::default();
    for seed in SEEDS {
        let outcome = execute(&draw::plan(seed, &[target]));
        assert_eq!(outcome.failure, None, "seed {seed} of {}", target.name());
        all.add(&outcome.cost);
    }
    let mut line = target.name();
    for number in all.verbs.iter().chain(&all.bytes).chain(&[all.answers, all.latency_ns]) {
        let _ = write!(line, "\t{number}");
    }
    let _ = write!(line, "\t{:016x}", all.digest);
    line
}

fn compare_costs(name: &str, ledger: &str, is_meant: impl Fn(&Target) -> bool) {
    let kinds = VerbKind::ALL.map(VerbKind::name).join("\t");
    let mut text = format!("target\t{kinds}\tbytes in\tbytes out\tanswers\tlatency ns\tdigest\n");
    for target in Target::all().into_iter().filter(is_meant) {
        text.push_str(&line(target));
        text.push('\n');
    }
    compare(name, ledger, &text);
}

fn is_store(target: &Target, index: &str) -> bool {
    matches!(target, Target::Store { index: kind, .. } if kind.name() == index)
}

#[test]
fn pointer_arrays_cost_what_the_ledger_says() {
    compare_costs(
        "pointer-array.tsv",
        include_str!("../../ledger/pointer-array.tsv"),
        |target| is_store(target, "pointer-array"),
    );
}

#[test]
fn race_tables_cost_what_the_ledger_says() {
    compare_costs("race.tsv", include_str!("../../ledger/race.tsv"), |target| {
        is_store(target, "race")
    });
}

#[test]
fn ordered_stores_cost_what_the_ledger_says() {
    compare_costs("ordered.tsv", include_str!("../../ledger/ordered.tsv"), |target| {
        matches!(target, Target::Store { .. }) && target.is_tree()
    });
}

#[test]
fn trees_cost_what_the_ledger_says() {
    compare_costs("trees.tsv", include_str!("../../ledger/trees.tsv"), |target| {
        matches!(target, Target::Tree { .. })
    });
}

#[test]
fn locks_cost_what_the_ledger_says() {
    compare_costs("locks.tsv", include_str!("../../ledger/locks.tsv"), |target| {
        !target.keeps_keys()
    });
}
