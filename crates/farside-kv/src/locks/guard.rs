//! A named lock that is held.

use core::fmt;
use std::rc::Rc;

use farside_fabric::LocalFuture;
use farside_lock::{Grant, Mode};

use super::error::readable;
use super::lifeline::Vow;
use super::{Locks, LocksError};

/// A lock that is held until this is released or dropped.
///
/// Dropping it leaves the lock to a task that gives it back; [`release`](Guard::release) waits for that, and says
/// whether the lock was held all the time.
pub struct Guard {
    locks: Locks,
    name: Rc<[u8]>,
    /// `None` when it was released.
    grant: Option<Grant>,
    mode: Mode,
    token: u64,
    vow: Vow,
}

impl Guard {
    pub(super) fn new(locks: Locks, name: Rc<[u8]>, grant: Grant, token: u64) -> Self {
        Self {
            vow: locks.shared.lifeline.vow(),
            mode: grant.mode(),
            grant: Some(grant),
            locks,
            name,
            token,
        }
    }

    /// What the lock is given back with.
    pub(super) fn into_grant(mut self) -> Grant {
        self.grant.take().expect("it is released once")
    }

    /// The name of the lock.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// How it is held.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The fencing token: larger than that of every grant of this lock before. What is changed under the lock outside
    /// of the far memory should refuse whoever comes with a smaller one than it has seen.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Whether the lock is held, and was since it was granted: costs no verb. Once it says no the lock is lost, and
    /// somebody else may have it.
    #[must_use]
    pub fn is_held(&self) -> bool {
        let shared = &self.locks.shared;
        shared.lifeline.vouches(self.vow, shared.endpoint.now_ns())
    }

    /// Gives the lock back.
    ///
    /// # Errors
    /// [`LocksError::Lost`] if the lock may not have been held to the end, or what the fabric reports: then others
    /// take it back.
    pub fn release(mut self) -> LocalFuture<'static, Result<(), LocksError>> {
        Box::pin(async move {
            let grant = self.grant.take().expect("it is released once");
            let was_held = self.is_held();
            if !self.locks.release_now(&grant) {
                let released = self.locks.release(grant).await;
                released.map_err(|source| self.locks.shared.failed(&self.name, source))?;
            }
            if was_held {
                Ok(())
            } else {
                Err(LocksError::lost(&self.name))
            }
        })
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", &readable(&self.name))
            .field("mode", &self.mode)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(grant) = self.grant.take() {
            self.locks.shared.returns.leave(grant);
        }
    }
}
