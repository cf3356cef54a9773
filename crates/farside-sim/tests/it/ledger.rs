//! What plans cost, to the byte and the nanosecond, by target: `ledger/*.tsv`.
//!
//! A change of a protocol that changes one verb of one of these runs, its size, its place or its time changes a number here,
//! whether or not anything is wrong; so nobody changes what an operation costs, or when it looks again, unawares, and a review
//! sees how much. Checks of the harness say whether it is right. `cargo xtask ledger --renew` writes what is so now.

use std::fmt::Write as _;
use std::path::Path;

use farside_fabric::VerbKind;
use farside_sim::run::Cost;
use farside_sim::{Target, draw, execute};

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

fn compare(name: &str, ledger: &str, is_meant: impl Fn(&Target) -> bool) {
    let kinds = VerbKind::ALL.map(VerbKind::name).join("\t");
    let mut text = format!("target\t{kinds}\tbytes in\tbytes out\tanswers\tlatency ns\tdigest\n");
    for target in Target::all().into_iter().filter(is_meant) {
        text.push_str(&line(target));
        text.push('\n');
    }
    if std::env::var_os("FARSIDE_RENEW").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("ledger").join(name);
        std::fs::write(path, text).expect("the sources can be written");
        return;
    }
    let before: std::collections::BTreeSet<&str> = ledger.lines().collect();
    let after: std::collections::BTreeSet<&str> = text.lines().collect();
    let gone: Vec<_> = before.difference(&after).copied().collect();
    let new: Vec<_> = after.difference(&before).copied().collect();
    assert!(
        gone.is_empty() && new.is_empty(),
        "{name}: runs cost something else than before; if that is meant: cargo xtask ledger --renew\n{kinds}, bytes in, bytes \
         out, answers, latency, digest\nbefore\n{}\nnow\n{}",
        gone.join("\n"),
        new.join("\n")
    );
}

fn is_store(target: &Target, index: &str) -> bool {
    matches!(target, Target::Store { index: kind, .. } if kind.name() == index)
}

#[test]
fn pointer_arrays_cost_what_the_ledger_says() {
    compare(
        "pointer-array.tsv",
        include_str!("../../ledger/pointer-array.tsv"),
        |target| is_store(target, "pointer-array"),
    );
}

#[test]
fn race_tables_cost_what_the_ledger_says() {
    compare("race.tsv", include_str!("../../ledger/race.tsv"), |target| {
        is_store(target, "race")
    });
}

#[test]
fn ordered_stores_cost_what_the_ledger_says() {
    compare("ordered.tsv", include_str!("../../ledger/ordered.tsv"), |target| {
        matches!(target, Target::Store { .. }) && target.is_tree()
    });
}

#[test]
fn trees_cost_what_the_ledger_says() {
    compare("trees.tsv", include_str!("../../ledger/trees.tsv"), |target| {
        matches!(target, Target::Tree { .. })
    });
}

#[test]
fn locks_cost_what_the_ledger_says() {
    compare("locks.tsv", include_str!("../../ledger/locks.tsv"), |target| {
        !target.keeps_keys()
    });
}
