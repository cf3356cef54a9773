//! A client that takes the locks of a transaction: two-phase locking.
//!
//! On the path: a step of [`LockClient`] under `--workload tatp` or `tpc-c`.
//!
//!  1. Acquire every lock of the transaction, in the order of their numbers. Everybody keeps to it, so nobody waits in a
//!     circle. A lock without shared mode is taken exclusively.
//!  2. Work for as long as a transaction does, without a verb, with the core busy.
//!  3. Release every lock, in the same order: the first is held for the longest.
//!
//! A lock with leases may be lost before the end of step 2, for example a DrTM's that a reader holds for a millisecond at
//! most. Then the transaction has not committed: it is done again, with its first beginning. Where that takes longer than a
//! millisecond each time, as it does over TCP, it never ends; the report counts how often it was tried.

use farside_fabric::{Endpoint, OpContext};
use farside_lock::{Grant, LockError};

use super::LockClient;
use crate::error::BenchError;
use crate::program::{LockStep, Step, TransactionStep};
use crate::workload::{LOCKS_MAX, Transaction, TransactionWorkload};

/// A transaction, and when it was begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    transaction: Transaction,
    at_ns: u64,
}

impl LockClient {
    /// Does a transaction, or the one again that did not commit.
    pub(super) async fn transaction(
        &mut self,
        cx: &mut OpContext,
        workload: TransactionWorkload,
    ) -> Result<Step, BenchError> {
        let endpoint = cx.endpoint().clone();
        let begun = self.begun.take().unwrap_or_else(|| Begun {
            transaction: workload.draw(&mut self.random),
            at_ns: endpoint.now_ns(),
        });
        let transaction = &begun.transaction;
        let before = endpoint.counters().snapshot();
        let locker = self.locker.as_ref().expect("it was made before the first transaction");
        let mut grants: Vec<Grant> = Vec::with_capacity(LOCKS_MAX);
        for &(lock, mode) in transaction.requests() {
            grants.push(locker.acquire(cx, self.program.entry(lock), mode).await?);
        }
        let granted_ns = endpoint.now_ns();
        let acquire = endpoint.counters().snapshot().since(&before);
        work(&endpoint, workload.execution_ns).await;
        let release_ns = endpoint.now_ns();
        let is_committed = !grants.iter().any(|grant| grant.is_over(release_ns));
        for grant in grants {
            match locker.release(cx, grant).await {
                // Before the commit, which has not come then, or after it, when it makes no difference.
                Err(LockError::LeaseLost { .. }) => {}
                released => released?,
            }
        }
        let shared = transaction.shared() as u64;
        let step = Step {
            lock: Some(LockStep {
                granted_ns,
                release_ns,
                acquire,
                is_hottest: false,
            }),
            operation: None,
            transaction: Some(TransactionStep {
                kind: transaction.kind,
                begun_ns: begun.at_ns,
                shared,
                exclusive: transaction.requests().len() as u64 - shared,
                is_committed,
            }),
        };
        self.begun = (!is_committed).then_some(begun);
        Ok(step)
    }
}

/// Keeps the client's core busy for so long. Simulated time is charged; real time is spun away.
async fn work(endpoint: &Endpoint, duration_ns: u64) {
    let end_ns = endpoint.now_ns() + duration_ns;
    // Ends: each turn charges what is left, or time passes by itself.
    loop {
        let left_ns = end_ns.saturating_sub(endpoint.now_ns());
        if left_ns == 0 {
            return;
        }
        endpoint.compute(left_ns).await;
        core::hint::spin_loop();
    }
}
