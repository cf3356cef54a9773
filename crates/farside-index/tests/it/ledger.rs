//! What a tree that grows or shrinks costs when the client dies that changes it, at each verb of a split or merge:
//! `ledger/*.tsv`, a line for each split or merge.
//!
//! Whoever changes what is done then sees it here; `cargo xtask ledger --renew` writes down what is so now.

mod compare;

use std::fmt::Write as _;

use farside_fabric::VerbKind;
use farside_fabric::sim::CrashPoint;
use farside_index::Shape;

use self::compare::compare;
use crate::forest::shrink::{Work, run};

/// At one of so many verbs.
const DEATHS_APART: u64 = 8;

fn write_line(text: &mut String, what: &str, cost: &[u64]) {
    text.push_str(what);
    for number in cost {
        let _ = write!(text, "\t{number}");
    }
    text.push('\n');
}

fn deaths(work: Work, shape: Shape) -> String {
    let kinds = VerbKind::ALL.map(VerbKind::name).join("\t");
    let mut text = format!("deaths\t{kinds}\tbytes in\tbytes out\tsplits\tmerges\tsettled\tns\tdigest\n");
    let run = |crash| run(work, 1, shape, crash).unwrap_or_else(|text| panic!("{work:?} {crash:?}: {text}"));
    let whole = run(None);
    write_line(&mut text, "none", &whole.cost);
    for &(from, to) in &whole.changes {
        let mut costs = vec![0_u64; whole.cost.len()];
        for verb in (from + 1..=to).filter(|verb| verb.is_multiple_of(DEATHS_APART)) {
            let lines = verb.is_multiple_of(2).then_some(verb as u32 % 9);
            let died = run(Some(CrashPoint { verb, lines }));
            for (sum, cost) in costs.iter_mut().zip(&died.cost) {
                *sum = sum.wrapping_add(*cost);
            }
        }
        write_line(&mut text, &format!("{from}..={to}"), &costs);
    }
    text
}

#[test]
fn deaths_in_a_hopscotch_tree_of_two_keys_that_grows_cost_what_the_ledger_says() {
    let text = deaths(Work::Grow, Shape::hopscotch(2, 2));
    compare(
        "hopscotch-2-grows.tsv",
        include_str!("../../ledger/hopscotch-2-grows.tsv"),
        &text,
    );
}

#[test]
fn deaths_in_a_hopscotch_tree_of_two_keys_that_shrinks_cost_what_the_ledger_says() {
    let text = deaths(Work::Shrink, Shape::hopscotch(2, 2));
    compare(
        "hopscotch-2-shrinks.tsv",
        include_str!("../../ledger/hopscotch-2-shrinks.tsv"),
        &text,
    );
}

#[test]
fn deaths_in_an_unsorted_tree_of_two_keys_that_grows_cost_what_the_ledger_says() {
    let text = deaths(Work::Grow, Shape::unsorted(2));
    compare(
        "unsorted-2-grows.tsv",
        include_str!("../../ledger/unsorted-2-grows.tsv"),
        &text,
    );
}

#[test]
fn deaths_in_an_unsorted_tree_of_two_keys_that_shrinks_cost_what_the_ledger_says() {
    let text = deaths(Work::Shrink, Shape::unsorted(2));
    compare(
        "unsorted-2-shrinks.tsv",
        include_str!("../../ledger/unsorted-2-shrinks.tsv"),
        &text,
    );
}

#[test]
fn deaths_in_a_hopscotch_tree_of_eight_keys_that_grows_cost_what_the_ledger_says() {
    let text = deaths(Work::Grow, Shape::hopscotch(8, 4));
    compare(
        "hopscotch-8-grows.tsv",
        include_str!("../../ledger/hopscotch-8-grows.tsv"),
        &text,
    );
}

#[test]
fn deaths_in_a_hopscotch_tree_of_eight_keys_that_shrinks_cost_what_the_ledger_says() {
    let text = deaths(Work::Shrink, Shape::hopscotch(8, 4));
    compare(
        "hopscotch-8-shrinks.tsv",
        include_str!("../../ledger/hopscotch-8-shrinks.tsv"),
        &text,
    );
}
