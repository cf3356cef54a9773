//! What clients did in the time that counts: operations and latencies.

use std::collections::BTreeMap;

use farside_fabric::CounterSnapshot;
use hdrhistogram::Histogram;

use crate::program::Step;
use crate::workload::{Operation, TransactionKind};

/// The longest latency that is told apart; longer ones count as this.
const LATENCY_NS_MAX: u64 = 100_000_000_000;
/// Decimal digits of a latency that are kept.
const LATENCY_DIGITS: u8 = 3;

/// The time that counts, on the endpoints' clock: what ends in it is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// First nanosecond.
    pub start_ns: u64,
    /// First nanosecond that does not count any more.
    pub end_ns: u64,
}

/// Counts and histograms of several clients.
#[derive(Clone, Debug)]
pub struct Recorder {
    window: Window,
    /// Operations that ended in the window.
    pub operations: u64,
    /// How many of each kind, in the order of [`Operation::ALL`].
    pub mix: [u64; Operation::ALL.len()],
    /// Nanoseconds from the start of an operation to its end, or to that of the window.
    pub latency: Histogram<u64>,
    /// Nanoseconds from the start of an operation to the grant of its lock.
    pub acquire: Histogram<u64>,
    /// The same for the most popular lock alone.
    pub acquire_hottest: Histogram<u64>,
    /// Nanoseconds from when a lock was to be given back to the end of the operation.
    pub release: Histogram<u64>,
    /// What was posted until the locks were granted.
    pub acquire_posted: CounterSnapshot,
    /// What transactions did.
    pub transactions: Transactions,
    /// When the last operation ended.
    pub last_ns: u64,
    /// How many operations ended in each part of the window, if it has parts.
    pub slots: Vec<u64>,
}

/// Transactions that ended in the window.
#[derive(Clone, Default, Debug)]
pub struct Transactions {
    /// Nanoseconds of those that committed, by type.
    pub latency: BTreeMap<TransactionKind, Histogram<u64>>,
    /// Locks that those asked for in shared mode.
    pub shared: u64,
    /// Locks that those asked for in exclusive mode.
    pub exclusive: u64,
    /// How many did not commit.
    pub aborts: u64,
}

/// An operation that ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// When it began.
    pub begun_ns: u64,
    /// See [`Step`].
    pub step: Step,
    /// When it ended.
    pub ended_ns: u64,
}

/// An empty histogram of nanoseconds.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, LATENCY_DIGITS).expect("the bounds are in order")
}

impl Recorder {
    /// An empty recorder for this time.
    #[must_use]
    pub fn new(window: Window) -> Self {
        Self {
            window,
            operations: 0,
            mix: [0; Operation::ALL.len()],
            latency: histogram(),
            acquire: histogram(),
            acquire_hottest: histogram(),
            release: histogram(),
            acquire_posted: CounterSnapshot::default(),
            transactions: Transactions::default(),
            last_ns: window.start_ns,
            slots: Vec::new(),
        }
    }

    /// The same, with a window of so many equal parts. The window is not empty.
    #[must_use]
    pub fn with_slots(self, slots: u64) -> Self {
        Self {
            slots: vec![0; slots as usize],
            ..self
        }
    }

    /// The time that counts.
    #[must_use]
    pub fn window(&self) -> Window {
        self.window
    }

    /// Records an operation, if it ended in time.
    #[inline]
    pub fn record(&mut self, mut operation: Ended) {
        if !(self.window.start_ns..self.window.end_ns).contains(&operation.ended_ns) {
            return;
        }
        if let Some(transaction) = operation.step.transaction {
            let transactions = &mut self.transactions;
            if !transaction.is_committed {
                transactions.aborts += 1;
                return;
            }
            operation.begun_ns = transaction.begun_ns;
            transactions.shared += transaction.shared;
            transactions.exclusive += transaction.exclusive;
            let latency = transactions.latency.entry(transaction.kind).or_insert_with(histogram);
            latency.saturating_record(operation.ended_ns - operation.begun_ns);
        }
        self.operations += 1;
        if !self.slots.is_empty() {
            let Window { start_ns, end_ns } = self.window;
            let slots = self.slots.len() as u64;
            self.slots[((operation.ended_ns - start_ns) * slots / (end_ns - start_ns)) as usize] += 1;
        }
        self.last_ns = self.last_ns.max(operation.ended_ns);
        self.latency.saturating_record(operation.ended_ns - operation.begun_ns);
        if let Some(kind) = operation.step.operation {
            self.mix[kind as usize] += 1;
        }
        if let Some(lock) = operation.step.lock {
            self.acquire_posted = self.acquire_posted.plus(&lock.acquire);
            let acquire_ns = lock.granted_ns - operation.begun_ns;
            self.acquire.saturating_record(acquire_ns);
            self.release.saturating_record(operation.ended_ns - lock.release_ns);
            if lock.is_hottest {
                self.acquire_hottest.saturating_record(acquire_ns);
            }
        }
    }

    /// Records an operation that had not ended when the window did: it took as long at least as it is old by then. Without
    /// these a run that starves some of its clients would look the better the more of them it starves.
    pub fn record_unended(&mut self, begun_ns: u64) {
        self.latency.saturating_record(self.window.end_ns - begun_ns);
    }

    /// Adds what another recorder has.
    ///
    /// # Panics
    /// Never: all histograms have the same bounds.
    pub fn absorb(&mut self, other: &Self) {
        self.operations += other.operations;
        for (sum, more) in self.slots.iter_mut().zip(&other.slots) {
            *sum += more;
        }
        for (sum, more) in self.mix.iter_mut().zip(other.mix) {
            *sum += more;
        }
        self.acquire_posted = self.acquire_posted.plus(&other.acquire_posted);
        self.transactions.absorb(&other.transactions);
        self.last_ns = self.last_ns.max(other.last_ns);
        for (sum, more) in [
            (&mut self.latency, &other.latency),
            (&mut self.acquire, &other.acquire),
            (&mut self.acquire_hottest, &other.acquire_hottest),
            (&mut self.release, &other.release),
        ] {
            sum.add(more).expect("the bounds are the same");
        }
    }

    /// Nanoseconds that count: the window, or what was used of an open one.
    #[must_use]
    pub fn elapsed_ns(&self) -> u64 {
        let end_ns = if self.window.end_ns == u64::MAX {
            self.last_ns
        } else {
            self.window.end_ns
        };
        end_ns.saturating_sub(self.window.start_ns).max(1)
    }
}

impl Transactions {
    fn absorb(&mut self, other: &Self) {
        for (&kind, more) in &other.latency {
            let sum = self.latency.entry(kind).or_insert_with(histogram);
            sum.add(more).expect("the bounds are the same");
        }
        self.shared += other.shared;
        self.exclusive += other.exclusive;
        self.aborts += other.aborts;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{LockStep, TransactionStep};

    #[test]
    fn only_what_ends_in_the_window_counts() {
        let window = Window {
            start_ns: 100,
            end_ns: 200,
        };
        let mut recorder = Recorder::new(window).with_slots(2);
        for ended_ns in [99, 100, 199, 200] {
            recorder.record(Ended {
                begun_ns: ended_ns - 50,
                step: Step {
                    lock: Some(LockStep {
                        granted_ns: ended_ns - 20,
                        release_ns: ended_ns - 10,
                        is_hottest: ended_ns == 100,
                        ..LockStep::default()
                    }),
                    ..Step::default()
                },
                ended_ns,
            });
        }
        assert_eq!((recorder.operations, &recorder.slots), (2, &vec![1, 1]));
        let longest = [&recorder.latency, &recorder.acquire, &recorder.release].map(|times| times.max());
        assert_eq!(longest, [50, 30, 10]);
        assert_eq!(
            (recorder.acquire_hottest.len(), recorder.acquire_hottest.max()),
            (1, 30)
        );
        let mut sum = Recorder::new(window);
        sum.absorb(&recorder);
        sum.absorb(&recorder);
        assert_eq!((sum.operations, sum.latency.len(), sum.elapsed_ns()), (4, 4, 100));
    }

    #[test]
    fn a_transaction_that_is_done_again_counts_once_from_its_first_beginning() {
        let mut recorder = Recorder::new(Window {
            start_ns: 100,
            end_ns: 200,
        });
        for (ended_ns, is_committed) in [(140, false), (160, true)] {
            recorder.record(Ended {
                begun_ns: ended_ns - 20,
                step: Step {
                    transaction: Some(TransactionStep {
                        kind: TransactionKind::Payment,
                        begun_ns: 120,
                        shared: 1,
                        exclusive: 3,
                        is_committed,
                    }),
                    ..Step::default()
                },
                ended_ns,
            });
        }
        let mut sum = Recorder::new(recorder.window());
        sum.absorb(&recorder);
        let transactions = &sum.transactions;
        assert_eq!((sum.operations, sum.latency.max(), transactions.aborts), (1, 40, 1));
        assert_eq!((transactions.shared, transactions.exclusive), (1, 3));
        assert_eq!(transactions.latency[&TransactionKind::Payment].max(), 40);
    }
}
