//! Simulations on all cores: each is one thread's work, and none knows of the others.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use crate::stage::Prepared;

/// Does jobs on all cores of this machine, each on one; returns what came of them, in their order. `work` is given memory that
/// is kept from one job of a core to the next, and `done` each result, in the order in which they are there.
///
/// # Panics
/// If a job does.
pub fn on_all_cores<J: Send, R: Send>(
    jobs: Vec<J>,
    work: impl Fn(J, &mut Option<Prepared>) -> R + Sync,
    done: impl FnMut(&R) + Send,
) -> Vec<R> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    on_cores(cores, jobs, work, done)
}

/// The same on so many of them.
pub fn on_cores<J: Send, R: Send>(
    cores: usize,
    jobs: Vec<J>,
    work: impl Fn(J, &mut Option<Prepared>) -> R + Sync,
    done: impl FnMut(&R) + Send,
) -> Vec<R> {
    let workers = cores.clamp(1, jobs.len().max(1));
    let todo: Mutex<VecDeque<(usize, J)>> = Mutex::new(jobs.into_iter().enumerate().collect());
    let results = Mutex::new((Vec::new(), done));
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let mut memory = None;
                while let Some((place, job)) = next(&todo) {
                    let result = work(job, &mut memory);
                    let (found, done) = &mut *held(&results);
                    done(&result);
                    found.push((place, result));
                }
            });
        }
    });
    let (mut found, _) = results.into_inner().expect("no worker has panicked");
    found.sort_unstable_by_key(|(place, _)| *place);
    found.into_iter().map(|(_, result)| result).collect()
}

fn next<J>(todo: &Mutex<VecDeque<(usize, J)>>) -> Option<(usize, J)> {
    held(todo).pop_front()
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("a worker that panics ends the others")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_jobs_and_each_is_told_once() {
        for (cores, jobs) in [(1, 5), (3, 100), (8, 2), (4, 0)] {
            let mut told = Vec::new();
            let found = on_cores(
                cores,
                (0..jobs).collect(),
                |job: u64, memory| {
                    assert!(memory.is_none());
                    job * job
                },
                |&result| told.push(result),
            );
            let expected: Vec<u64> = (0..jobs).map(|job| job * job).collect();
            assert_eq!(found, expected);
            told.sort_unstable();
            assert_eq!(told, expected);
        }
    }
}
