//! Many seeds on all cores.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::coverage::Coverage;
use crate::draw;
use crate::run::{Failure, execute};
use crate::target::Target;

/// What a swarm found.
#[derive(Debug, Default)]
pub struct Swarm {
    /// What all runs together covered.
    pub coverage: Coverage,
    /// Seeds that failed, in their order.
    pub failures: Vec<(u64, Failure)>,
}

/// Runs the plans of all seeds, on as many threads as the machine has cores. Stops early after the
/// first few failures.
///
/// # Panics
/// If a plan is not valid; see [`execute`].
#[must_use]
pub fn swarm(seeds: Range<u64>, targets: &[Target], each: &(dyn Fn(u64) + Sync)) -> Swarm {
    const FAILURES_MAX: usize = 5;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicU64::new(seeds.start);
    let found = Mutex::new(Swarm::default());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut coverage = Coverage::default();
                loop {
                    // Relaxed: each seed is taken once, and nothing else hangs on it.
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    let outcome = execute(&draw::plan(seed, targets));
                    coverage.merge(outcome.coverage);
                    if let Some(failure) = outcome.failure {
                        let mut found = found.lock().expect("no thread panics with it");
                        found.failures.push((seed, failure));
                        if found.failures.len() >= FAILURES_MAX {
                            next.store(seeds.end, Ordering::Relaxed);
                        }
                    }
                    each(seed);
                }
                found.lock().expect("no thread panics with it").coverage.merge(coverage);
            });
        }
    });
    let mut found = found.into_inner().expect("no thread panics with it");
    found.failures.sort_by_key(|&(seed, _)| seed);
    found
}
