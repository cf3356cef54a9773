//! What an application is to the benchmark, and a client of it: one transaction after the other, each timed from its first
//! attempt to its end.

use core::cell::{Cell, RefCell};
use core::ops::Range;
use std::collections::BTreeMap;

use farside_fabric::counters::CounterSnapshot;
use farside_fabric::host::HostClock;
use farside_fabric::{Pipeline, interleave};
use farside_kv::{Session, Store};
use hdrhistogram::Histogram;

use super::Limit;
use super::row::Stored;
use crate::driver::take_turns;
use crate::error::BenchError;
use crate::recorder::histogram;
use crate::workload::TransactionKind;

/// An application.
pub(super) trait Application: Sync {
    /// Who makes its transactions.
    type Client: Client;
    /// Who looks whether its rows belong together.
    type Audit: Audit;

    /// About how many rows it begins with.
    fn row_count(&self) -> u64;
    /// The rows that it begins with.
    fn rows(&self) -> impl Iterator<Item = Stored>;
    /// A client, which its number decides.
    fn client(&self, number: u64) -> Self::Client;
    /// An audit that has seen no row.
    fn audit(&self) -> Self::Audit;
}

/// Somebody who makes transactions of an application.
pub(super) trait Client {
    /// Draws a transaction and makes it.
    ///
    /// # Errors
    /// Those of the store; [`BenchError::Unsound`] if it has seen rows that do not belong together.
    async fn transact(&mut self, session: &mut Session) -> Result<Ended, BenchError>;
}

/// Sees every row, when nobody is at work.
pub(super) trait Audit {
    /// Notes a row.
    ///
    /// # Errors
    /// [`BenchError::Unsound`] if no table has it.
    fn see(&mut self, key: &[u8], value: &[u8]) -> Result<(), BenchError>;
    /// Refuses rows that do not belong together, or not to what clients say they have done since there were `loaded` rows of each
    /// table. What has been verified, as a reader understands it.
    ///
    /// # Errors
    /// [`BenchError::Unsound`].
    fn verify(self, loaded: &Loaded, ledger: &Ledger) -> Result<Vec<&'static str>, BenchError>;
}

/// How many rows of each table there were at the start, by its tag.
pub(super) type Loaded = BTreeMap<u8, u64>;

/// How a transaction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// It has done what it is for.
    Committed,
    /// It has changed nothing, as its specification says for what it has found.
    Refused,
}

/// A transaction that came to its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) kind: TransactionKind,
    pub(super) outcome: Outcome,
    /// What the audit needs to know of it beside its outcome, such as the money that came in.
    pub(super) amount: i64,
    /// Attempts that came to nothing, those aside that the session counts.
    pub(super) retries: u64,
}

impl Ended {
    /// One that has done what it is for, or found nothing to do.
    pub(super) fn new(kind: TransactionKind, is_done: bool) -> Self {
        Self {
            kind,
            outcome: if is_done { Outcome::Committed } else { Outcome::Refused },
            amount: 0,
            retries: 0,
        }
    }
}

/// What all clients have done since the rows were loaded, whether it counts or not.
#[derive(Clone, Default, Debug)]
pub(super) struct Ledger {
    /// Transactions that have done what they are for, with the sum of their amounts.
    committed: BTreeMap<TransactionKind, (u64, i64)>,
}

impl Ledger {
    /// Notes a transaction.
    pub(super) fn note(&mut self, ended: &Ended) {
        if ended.outcome == Outcome::Committed {
            let (count, amount) = self.committed.entry(ended.kind).or_default();
            (*count, *amount) = (*count + 1, *amount + ended.amount);
        }
    }

    /// Adds what others did.
    pub(super) fn absorb(&mut self, other: &Self) {
        for (&kind, &(more, much)) in &other.committed {
            let (count, amount) = self.committed.entry(kind).or_default();
            (*count, *amount) = (*count + more, *amount + much);
        }
    }

    /// How many transactions of a type have done what they are for.
    pub(super) fn count(&self, kind: TransactionKind) -> u64 {
        self.committed.get(&kind).map_or(0, |&(count, _)| count)
    }

    /// The amounts of a type, in sum.
    pub(super) fn amount(&self, kind: TransactionKind) -> i64 {
        self.committed.get(&kind).map_or(0, |&(_, amount)| amount)
    }
}

/// What was measured of a type of transaction.
#[derive(Clone, Debug)]
pub(super) struct KindTally {
    /// Those that have done what they are for.
    pub(super) committed: u64,
    /// Those that have changed nothing, as their specification says.
    pub(super) refused: u64,
    /// Attempts that were begun anew.
    pub(super) retries: u64,
    /// Nanoseconds of one with all its attempts.
    pub(super) latency: Histogram<u64>,
    /// What they posted, of those whose client had its thread to itself, and how many these were.
    pub(super) posted: (CounterSnapshot, u64),
}

impl KindTally {
    /// Of nothing.
    pub(super) fn new() -> Self {
        Self {
            committed: 0,
            refused: 0,
            retries: 0,
            latency: histogram(),
            posted: (CounterSnapshot::default(), 0),
        }
    }

    /// Adds what others did.
    pub(super) fn absorb(&mut self, other: &Self) {
        self.committed += other.committed;
        self.refused += other.refused;
        self.retries += other.retries;
        self.latency.add(&other.latency).expect("the bounds are the same");
        self.posted = (self.posted.0.plus(&other.posted.0), self.posted.1 + other.posted.1);
    }
}

/// What clients did.
#[derive(Clone, Default, Debug)]
pub(super) struct Tally {
    /// What counts, by type.
    pub(super) kinds: BTreeMap<TransactionKind, KindTally>,
    /// Everything, for the audit.
    pub(super) ledger: Ledger,
    /// How long what counts took, in nanoseconds.
    pub(super) elapsed_ns: u64,
}

impl Tally {
    /// Adds what others did at the same time.
    pub(super) fn absorb(&mut self, other: &Self) {
        for (&kind, tally) in &other.kinds {
            self.kinds.entry(kind).or_insert_with(KindTally::new).absorb(tally);
        }
        self.ledger.absorb(&other.ledger);
        self.elapsed_ns = self.elapsed_ns.max(other.elapsed_ns);
    }
}

/// Runs the clients of a thread, which take turns whenever one waits for memory; what they did together.
///
/// # Errors
/// The first one.
pub(super) async fn serve_all<C: Client>(
    store: &Store,
    clients: Vec<C>,
    limit: Limit,
    window: Range<u64>,
) -> Result<Tally, BenchError> {
    let (tally, failure) = (RefCell::new(Tally::default()), Cell::new(None));
    let pipeline = Pipeline::default();
    let is_alone = clients.len() == 1;
    let served = clients.into_iter().map(|client| {
        let session = store.pipelined_session(&pipeline);
        let (tally, failure, window) = (&tally, &failure, window.clone());
        async move {
            if let Err(error) = serve(client, session, (limit, window, is_alone), tally).await {
                let first = failure.take().unwrap_or(error);
                failure.set(Some(first));
            }
        }
    });
    interleave(&pipeline, served.collect()).await;
    match failure.take() {
        Some(error) => Err(error),
        None => Ok(tally.into_inner()),
    }
}

/// Runs one client until it has done enough. Whether it is alone in its thread decides whether its verbs can be told from
/// others'.
async fn serve(
    mut client: impl Client,
    mut session: Session,
    (limit, window, is_alone): (Limit, Range<u64>, bool),
    tally: &RefCell<Tally>,
) -> Result<(), BenchError> {
    let mut ended_count = 0;
    let endpoint = session.store().endpoint().clone();
    while !matches!(limit, Limit::Transactions(count) if ended_count >= count) {
        take_turns(ended_count).await;
        let (begun_ns, retries) = (HostClock.now_ns(), session.retries());
        let posted = endpoint.counters().snapshot();
        let ended = client.transact(&mut session).await?;
        let ended_ns = HostClock.now_ns();
        ended_count += 1;
        let mut tally = tally.borrow_mut();
        tally.ledger.note(&ended);
        match limit {
            Limit::Duration(duration_ns) => {
                tally.elapsed_ns = duration_ns;
                if ended_ns >= window.end {
                    break;
                }
                if ended_ns < window.start {
                    continue;
                }
            }
            Limit::Transactions(_) => tally.elapsed_ns = tally.elapsed_ns.max(ended_ns - window.start),
        }
        let kind = tally.kinds.entry(ended.kind).or_insert_with(KindTally::new);
        match ended.outcome {
            Outcome::Committed => kind.committed += 1,
            Outcome::Refused => kind.refused += 1,
        }
        kind.retries += session.retries() - retries + ended.retries;
        kind.latency.saturating_record(ended_ns - begun_ns);
        if is_alone {
            let more = endpoint.counters().snapshot().since(&posted);
            kind.posted = (kind.posted.0.plus(&more), kind.posted.1 + 1);
        }
    }
    Ok(())
}
