//! A crowd of clients of somebody's service: tasks on threads of this machine, which all begin at the same time.
//!
//! On the path: what `bench lock-services`, `bench bank` and `bench transactions` measure with. Each thread first opens what its clients
//! need; when all have, clients run for half the time, and then for the time that counts.

use core::ops::Range;
use std::sync::Barrier;

use farside_fabric::host::HostClock;

use crate::error::BenchError;
use crate::stage::machine::on_this_thread;

/// How many clients there are, and where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crowd {
    /// Clients, of all threads together.
    pub(crate) clients: u64,
    /// Threads, no more than there are clients.
    pub(crate) threads: u64,
    /// How long is measured, in nanoseconds.
    pub(crate) duration_ns: u64,
}

/// As many threads as there are cores, and no more than there are clients.
pub(crate) fn client_threads(clients: u64) -> u64 {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    cores.min(clients)
}

impl Crowd {
    /// What the threads have measured, in their order. `open` is told the numbers of a thread's clients; `work` has what came
    /// of it, and the time that counts, on the clock of the machine.
    ///
    /// # Errors
    /// The first one.
    pub(crate) fn run<O, T: Send>(
        &self,
        open: impl AsyncFn(Vec<u64>) -> Result<O, BenchError> + Sync,
        work: impl AsyncFn(O, Range<u64>) -> Result<T, BenchError> + Sync,
    ) -> Result<Vec<T>, BenchError> {
        let everybody = Barrier::new(self.threads as usize);
        std::thread::scope(|scope| {
            let (everybody, open, work) = (&everybody, &open, &work);
            let threads: Vec<_> = (0..self.threads)
                .map(|thread| {
                    let numbers = (thread..self.clients).step_by(self.threads as usize);
                    scope.spawn(move || {
                        on_this_thread(async {
                            let opened = open(numbers.collect()).await;
                            // Also if that failed, since the others wait. Nothing else of this thread has begun but
                            // housekeeping, which can wait as well.
                            everybody.wait();
                            let start_ns = HostClock.now_ns() + self.duration_ns / 2;
                            work(opened?, start_ns..start_ns + self.duration_ns).await
                        })?
                    })
                })
                .collect();
            let ended = threads
                .into_iter()
                .map(|thread| thread.join().expect("a thread panicked"));
            // All have ended before the first error is told.
            ended.collect::<Vec<Result<T, BenchError>>>().into_iter().collect()
        })
    }
}

/// Runs clients as tasks of this thread until all have ended; what they return, in their order.
///
/// # Errors
/// The first one.
pub(crate) async fn all_of<T: 'static>(
    clients: impl IntoIterator<Item = impl Future<Output = Result<T, BenchError>> + 'static>,
) -> Result<Vec<T>, BenchError> {
    #[expect(
        clippy::disallowed_methods,
        reason = "clients of other people's servers are on no fabric"
    )]
    let tasks: Vec<_> = clients
        .into_iter()
        .map(|client| tokio::task::spawn_local(client))
        .collect();
    let mut ended = Vec::new();
    for task in tasks {
        ended.push(task.await.expect("a client panicked"));
    }
    ended.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_client_runs_once_and_an_error_of_one_ends_nobody_else() {
        let crowd = Crowd {
            clients: 5,
            threads: 2,
            duration_ns: 1_000,
        };
        let numbers = crowd.run(
            async |numbers| Ok(numbers),
            async |numbers: Vec<u64>, window| {
                assert_eq!(window.end - window.start, 1_000);
                all_of(numbers.into_iter().map(async |number| Ok(number * 10))).await
            },
        );
        assert_eq!(numbers.expect("nobody fails"), [vec![0, 20, 40], vec![10, 30]]);
        let refused = crowd.run(
            async |numbers: Vec<u64>| match numbers[0] {
                0 => Err(BenchError::argument("no")),
                _ => Ok(()),
            },
            async |(), _| Ok(()),
        );
        assert_eq!(refused.expect_err("one fails").to_string(), "no");
    }
}
