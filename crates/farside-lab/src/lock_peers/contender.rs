//! What all locks can do, ours and the others.

use farside_fabric::OpContext;
use farside_fabric::shm;
use farside_fabric::shm::robust::{RobustGuard, RobustMutex};
use farside_lock::{Grant, LockError, LockKind, Locker, Mode};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::board::{Board, LOCK, site};
use crate::error::BenchError;

/// The name of a lock between threads of one process.
pub(super) const PARKING_LOT: &str = "parking-lot";
/// The name of the C library's lock between processes.
pub(super) const PTHREAD_ROBUST: &str = "pthread-robust";

/// One who takes part.
pub(super) trait Contender {
    /// Waits until it has the lock.
    async fn lock(&mut self, mode: Mode) -> Result<(), BenchError>;
    /// Gives it back.
    async fn unlock(&mut self) -> Result<(), BenchError>;
}

/// A lock of ours.
pub(super) struct Farside {
    cx: OpContext,
    locker: Locker,
    grant: Option<Grant>,
}

impl Farside {
    pub(super) fn join(kind: LockKind, board: &Board) -> Result<Self, BenchError> {
        let endpoint = shm::Fabric::new(vec![board.segment().clone()]).endpoint()?;
        Ok(Self {
            locker: Locker::new(kind, &endpoint, &site())?,
            cx: OpContext::new(endpoint),
            grant: None,
        })
    }
}

impl Contender for Farside {
    #[inline]
    async fn lock(&mut self, mode: Mode) -> Result<(), BenchError> {
        self.grant = Some(self.locker.acquire(&mut self.cx, LOCK, mode).await?);
        Ok(())
    }

    #[inline]
    async fn unlock(&mut self) -> Result<(), BenchError> {
        let grant = self.grant.take().expect("it is locked");
        match self.locker.release(&mut self.cx, grant).await {
            // A reader's lease may be shorter than this thread waits for a core.
            Err(LockError::LeaseLost { .. }) => Ok(()),
            released => Ok(released?),
        }
    }
}

/// Threads of one process.
pub(super) struct Parked<'a> {
    lock: &'a RwLock<()>,
    reading: Option<RwLockReadGuard<'a, ()>>,
    writing: Option<RwLockWriteGuard<'a, ()>>,
}

impl<'a> Parked<'a> {
    pub(super) fn new(lock: &'a RwLock<()>) -> Self {
        Self {
            lock,
            reading: None,
            writing: None,
        }
    }
}

impl Contender for Parked<'_> {
    #[inline]
    async fn lock(&mut self, mode: Mode) -> Result<(), BenchError> {
        match mode {
            Mode::Shared => self.reading = Some(self.lock.read()),
            Mode::Exclusive => self.writing = Some(self.lock.write()),
        }
        Ok(())
    }

    #[inline]
    async fn unlock(&mut self) -> Result<(), BenchError> {
        self.reading = None;
        self.writing = None;
        Ok(())
    }
}

/// Processes, and the C library.
pub(super) struct Robust<'a> {
    mutex: &'a RobustMutex,
    guard: Option<RobustGuard<'a>>,
}

impl<'a> Robust<'a> {
    pub(super) fn new(mutex: &'a RobustMutex) -> Self {
        Self { mutex, guard: None }
    }
}

impl Contender for Robust<'_> {
    #[inline]
    async fn lock(&mut self, _: Mode) -> Result<(), BenchError> {
        let locked = self.mutex.lock();
        self.guard = Some(locked.map_err(BenchError::system("lock a robust mutex"))?);
        Ok(())
    }

    #[inline]
    async fn unlock(&mut self) -> Result<(), BenchError> {
        self.guard = None;
        Ok(())
    }
}
