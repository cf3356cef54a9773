//! A ShiftLock for each account in far memory, whose balances are in Redis: the application as ShiftLock's section 4.5 has it.

use farside_fabric::shm::Segment;
use farside_fabric::{Endpoint, LocalFuture, NodeId, OpContext, RemoteAddr, join_all};
use farside_lock::{Grant, LockKind, LockOptions, Locker, Mode, Site};

use super::account::Pair;
use super::redis::AccountLocks;
use crate::error::BenchError;
use crate::stage::FabricKind;
use crate::stage::machine::Memory;

/// Where the locks start.
const LOCKS_AT: u64 = 64;
const KIND: LockKind = LockKind::ShiftLock;

/// Memory with the locks. Its node, if it has one, ends when [`LockMemory::stop`] says so.
pub(super) struct LockMemory {
    memory: Memory,
    accounts: u64,
}

/// What the clients of a thread share.
pub(super) struct LockThread {
    endpoint: Endpoint,
    site: Site,
}

impl LockMemory {
    /// Lays out a free lock for each account, and serves them if clients use TCP.
    ///
    /// # Errors
    /// See [`BenchError`].
    pub(super) fn start(fabric: FabricKind, accounts: u64) -> Result<Self, BenchError> {
        // An entry of zeros is a free lock.
        let bytes = entry(accounts).offset().next_multiple_of(4096);
        Ok(Self {
            memory: Memory::open(fabric, Segment::anonymous(bytes)?)?,
            accounts,
        })
    }

    /// A thread's way to the locks.
    ///
    /// # Errors
    /// See [`BenchError`].
    pub(super) async fn open(&self) -> Result<LockThread, BenchError> {
        let options = LockOptions {
            // Nobody dies here, so there is no agent.
            recovers_alone: true,
            ..LockOptions::default()
        };
        Ok(LockThread {
            endpoint: self.memory.connect().await?,
            site: Site::new(options),
        })
    }

    /// The locks of a client.
    ///
    /// # Errors
    /// See [`BenchError`].
    pub(super) fn client(&self, thread: &LockThread) -> Result<ShiftLocks, BenchError> {
        let endpoint = &thread.endpoint;
        Ok(ShiftLocks {
            locker: Locker::new(KIND, endpoint, &thread.site)?,
            cx: [OpContext::new(endpoint.clone()), OpContext::new(endpoint.clone())],
            accounts: self.accounts,
        })
    }

    /// Ends the memory node.
    pub(super) fn stop(self) {
        self.memory.stop();
    }
}

/// The lock of an account.
fn entry(account: u64) -> RemoteAddr {
    let bytes = KIND.entry_bytes(&LockOptions::default());
    RemoteAddr::new(NodeId::new(0), LOCKS_AT + account * bytes)
}

/// The locks as a client takes them: one after the other, and gives them back: at the same time.
pub(super) struct ShiftLocks {
    locker: Locker,
    /// One for each lock of a transaction.
    cx: [OpContext; 2],
    accounts: u64,
}

impl AccountLocks for ShiftLocks {
    type Held = Vec<Grant>;

    async fn lock(&mut self, pair: Pair, mode: Mode) -> Result<Vec<Grant>, BenchError> {
        let mut grants = Vec::new();
        for (account, cx) in pair.locks(self.accounts).into_iter().zip(&mut self.cx) {
            grants.push(self.locker.acquire(cx, entry(account), mode).await?);
        }
        Ok(grants)
    }

    async fn unlock(&mut self, grants: Vec<Grant>) -> Result<(), BenchError> {
        let released = grants.into_iter().zip(&mut self.cx);
        let released = released.map(|(grant, cx)| -> LocalFuture<'_, _> { Box::pin(self.locker.release(cx, grant)) });
        Ok(join_all(released.collect())
            .await
            .into_iter()
            .collect::<Result<_, _>>()?)
    }

    /// Who has to wait queues up.
    fn refusals(&self) -> u64 {
        0
    }
}
