//! A store for every thread, and what is left alone in the child of a fork.
//!
//! On the path: every operation asks here for the session of its thread, which [`SharedStore`] keeps.
//!
//! **Forks.** The child has a copy of what its parent has opened, with which the parent goes on. So no handle that was made before
//! the fork may be used in the child, nor dropped, which would leave the pool in the name of the parent. What was made at another
//! count of forks is of before.

use core::sync::atomic::{AtomicPtr, Ordering};
use std::sync::Arc;

use farside::blocking::{Session, SharedStore};
use farside::{IndexKind, Options, forks};

use crate::fault::{Fault, Status, answer};

/// When something was made, in forks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Era(u32);

impl Era {
    /// That of this process. From now on forks are noticed.
    pub(crate) fn now() -> Self {
        Self(forks())
    }

    pub(crate) fn check(self) -> Result<(), Fault> {
        if self.0 != forks() {
            let text = c"the handle was made before fork(), and this is the child: open the store again here";
            return Err(Fault::new(Status::Forked, text));
        }
        Ok(())
    }

    /// Drops what was made in this era; leaves it alone in a child.
    pub(crate) fn drop_in<T>(self, made: T) -> Result<(), Fault> {
        // All of it, so that it is not lost in the eyes of those who look for leaks.
        static LEFT: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
        if let Err(fault) = self.check() {
            let before = LEFT.load(Ordering::Relaxed);
            LEFT.store(Box::into_raw(Box::new((made, before))).cast(), Ordering::Relaxed);
            return Err(fault);
        }
        drop(made);
        Ok(())
    }
}

/// A store that was opened, as long as a handle needs it.
pub(crate) struct Opened {
    store: SharedStore,
    /// For named locks in the same memory.
    pub(crate) options: Options,
    pub(crate) index: IndexKind,
    pub(crate) era: Era,
}

impl Opened {
    pub(crate) fn open(options: Options) -> Result<Arc<Self>, Fault> {
        let era = Era::now();
        let store = SharedStore::open(options.clone())?;
        Ok(Arc::new(Self {
            index: store.index()?,
            store,
            options,
            era,
        }))
    }

    /// Carries an operation out with the session of this thread.
    pub(crate) fn with<T>(
        &self,
        operation: impl FnOnce(&mut Session) -> Result<T, farside::Error>,
    ) -> Result<T, Fault> {
        self.era.check()?;
        self.store.with(operation).map_err(Fault::from)
    }
}

/// Gives up what this thread holds in the stores that it has used: an entry in the table of clients and 16 KiB of memory for
/// each. The end of a thread does the same, so this is for threads that go on and do something else. The next operation begins
/// anew, which takes about a millisecond.
#[unsafe(no_mangle)]
pub extern "C" fn farside_thread_leave() -> Status {
    answer(|| {
        SharedStore::leave_all();
        Ok(())
    })
}
