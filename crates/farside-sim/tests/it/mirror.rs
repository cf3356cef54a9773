//! Mirrored nodes under faults: seeds, and what they come through.

use std::sync::atomic::{AtomicU64, Ordering};

use farside_sim::mirror::{Report, run};

/// How many seeds a run takes; `FARSIDE_MIRROR_SEEDS` says another number, `FARSIDE_SEED` the first.
const SEEDS: u64 = 100;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The last member of a group is started again. Before it hears of its own view, a primary of an earlier one, which was cut off
/// from everybody else, wants to copy over what it holds.
#[test]
fn a_member_that_restarts_knows_what_it_has_written_down() {
    run(1088).expect("nothing is lost");
}

#[test]
fn nothing_acknowledged_is_lost_whatever_dies() {
    let first = number("FARSIDE_SEED").unwrap_or(0);
    let seeds = number("FARSIDE_MIRROR_SEEDS").unwrap_or(SEEDS);
    let next = AtomicU64::new(first);
    let work = || {
        let mut sum = Report::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + seeds {
                return sum;
            }
            let report = run(seed).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
            sum.add(&report);
        }
    };
    let sums: Vec<Report> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .map(|worker| worker.join().expect("no seed fails"))
            .collect()
    });
    let mut sum = Report::default();
    sums.iter().for_each(|report| sum.add(report));
    println!("{seeds} seeds: {sum:?}");
    // Each seed comes through about this much, so that the check means something.
    assert!(
        sum.answers > 300 * seeds && sum.takeovers > seeds && sum.copies > seeds && sum.resent > seeds,
        "{sum:?}"
    );
}
