//! Many runs on all cores.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::coverage::Coverage;
use crate::draw;
use crate::plan::Plan;
use crate::run::{Failure, execute};
use crate::target::Target;

/// What a swarm found.
#[derive(Debug, Default)]
pub struct Swarm {
    /// What all runs together covered.
    pub coverage: Coverage,
    /// Plans that failed, by their seeds.
    pub failures: Vec<(Plan, Failure)>,
}

/// Which runs a swarm makes: one after the other, until there is none.
#[derive(Clone, Copy, Debug)]
pub enum Runs {
    /// So many seeds from the first one, each of which draws a target, too.
    Seeds {
        /// The first seed.
        first: u64,
        /// How many.
        count: u64,
    },
    /// Every target in turn, so many times, each time with the next seed.
    Each {
        /// The first seed.
        first: u64,
        /// How many of each target.
        count: u64,
    },
}

impl Runs {
    /// The plan of a run, by its place.
    fn plan(&self, at: u64, targets: &[Target]) -> Option<Plan> {
        match *self {
            Self::Seeds { first, count } => (at < count).then(|| draw::plan(first + at, targets)),
            Self::Each { first, count } => {
                let count = count.saturating_mul(targets.len() as u64);
                let target = (at % targets.len() as u64) as usize;
                (at < count).then(|| draw::plan(first + at, &targets[target..][..1]))
            }
        }
    }
}

/// Makes runs on as many threads as the machine has cores, until all are made, `goes_on` says no, or the first
/// few have failed.
///
/// # Panics
/// If a plan is not valid; see [`execute`].
#[must_use]
pub fn swarm(runs: Runs, targets: &[Target], goes_on: &(dyn Fn(u64) -> bool + Sync)) -> Swarm {
    const FAILURES_MAX: usize = 5;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicU64::new(0);
    let found = Mutex::new(Swarm::default());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut coverage = Coverage::default();
                loop {
                    // Relaxed: each place is taken once, and nothing else hangs on it.
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(plan) = Some(at).filter(|&at| goes_on(at)).and_then(|at| runs.plan(at, targets)) else {
                        break;
                    };
                    let outcome = execute(&plan);
                    coverage.merge(outcome.coverage);
                    if let Some(failure) = outcome.failure {
                        let mut found = found.lock().expect("no thread panics with it");
                        found.failures.push((plan, failure));
                        if found.failures.len() >= FAILURES_MAX {
                            next.store(u64::MAX / 2, Ordering::Relaxed);
                        }
                    }
                }
                found.lock().expect("no thread panics with it").coverage.merge(coverage);
            });
        }
    });
    let mut found = found.into_inner().expect("no thread panics with it");
    found.failures.sort_by_key(|(plan, _)| plan.seed);
    found
}
