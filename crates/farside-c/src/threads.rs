//! A session for each thread and store, which C programs need not know of.
//!
//! On the path: every operation asks here for the session of its thread. The first one in a store makes it; the end of the
//! thread, [`farside_thread_leave`] or the first operation after the store was closed drops it.
//!
//! **The end of a thread.** Its thread-local values are destroyed one after the other, those that were first used last are
//! destroyed first. A session over a connection needs the values of its event loop to leave the pool, so these have to be
//! used before `SESSIONS` is; `IS_READY` has no destructor and can be asked before.
//!
//! **Forks.** The child has a copy of its parent's sessions, which are clients that the parent goes on with. So nothing that
//! was made before the fork may be used in the child, nor dropped, which would leave the pool in the name of the parent. A
//! handler counts forks; what was made at another count is of before.

use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock, Weak};

use farside::Options;
use farside::blocking::{Session, Store};

use crate::border::after_fork;
use crate::fault::{Fault, Status, answer};

/// How many forks lie between the first process that opened something and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// How many stores were closed in this process.
static CLOSED: AtomicU64 = AtomicU64::new(0);

/// When something was made, in forks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Era(u32);

impl Era {
    /// That of this process. From now on forks are noticed.
    pub(crate) fn now() -> Result<Self, Fault> {
        extern "C" fn count() {
            FORKS.fetch_add(1, Ordering::Relaxed);
        }
        static WATCHED: OnceLock<Result<(), String>> = OnceLock::new();
        let watched = WATCHED.get_or_init(|| after_fork(count).map_err(|error| error.to_string()));
        match watched {
            Ok(()) => Ok(Self(FORKS.load(Ordering::Relaxed))),
            Err(error) => Err(Fault::told(
                Status::Internal,
                format!("forks cannot be noticed: {error}"),
            )),
        }
    }

    pub(crate) fn check(self) -> Result<(), Fault> {
        if self.0 != FORKS.load(Ordering::Relaxed) {
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
    store: Store,
    /// For named locks in the same memory.
    pub(crate) options: Options,
    number: u64,
    pub(crate) era: Era,
}

impl Opened {
    pub(crate) fn open(options: Options) -> Result<Arc<Self>, Fault> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let era = Era::now()?;
        Ok(Arc::new(Self {
            store: Store::open(options.clone())?,
            options,
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            era,
        }))
    }

    pub(crate) fn index(&self) -> farside::IndexKind {
        self.store.index()
    }

    /// Carries an operation out with the session of this thread.
    pub(crate) fn with<T>(
        self: &Arc<Self>,
        operation: impl FnOnce(&mut Session) -> Result<T, farside::Error>,
    ) -> Result<T, Fault> {
        self.era.check()?;
        if !IS_READY.get() {
            // What an event loop of this thread leaves behind is there from now on.
            farside::run(core::future::ready(()))?;
            IS_READY.set(true);
        }
        let carried_out = SESSIONS.try_with(|sessions| {
            let Ok(mut sessions) = sessions.try_borrow_mut() else {
                let text = c"an operation was called from within another one, by a signal handler for example";
                return Err(Fault::new(Status::InvalidArgument, text));
            };
            let session = sessions.of(self)?;
            operation(session).map_err(Fault::from)
        });
        carried_out.unwrap_or_else(|_| {
            let text = c"this thread is ending, and has given up its sessions";
            Err(Fault::new(Status::InvalidArgument, text))
        })
    }

    /// The handle is gone. The memory is left when all threads have dropped their sessions; this one does now.
    pub(crate) fn close(self: Arc<Self>) {
        drop(self);
        if IS_READY.get() {
            let _ = SESSIONS.try_with(|sessions| sessions.try_borrow_mut().map(|mut sessions| sessions.sweep()));
        }
    }
}

impl Drop for Opened {
    /// The last handle is gone: the store itself, or a transaction or an iterator that was ended after it.
    fn drop(&mut self) {
        CLOSED.fetch_add(1, Ordering::Relaxed);
    }
}

thread_local! {
    static IS_READY: Cell<bool> = const { Cell::new(false) };
    static SESSIONS: RefCell<Sessions> = const { RefCell::new(Sessions { kept: Vec::new(), closed: 0 }) };
}

/// Those of one thread.
struct Sessions {
    kept: Vec<Kept>,
    /// How many stores were closed when it was last looked.
    closed: u64,
}

impl Sessions {
    fn of(&mut self, opened: &Arc<Opened>) -> Result<&mut Session, Fault> {
        if self.closed != CLOSED.load(Ordering::Relaxed) {
            self.sweep();
        }
        let known = self.kept.iter().position(|kept| kept.number == opened.number);
        let index = match known {
            Some(index) => index,
            None => {
                self.kept.push(Kept {
                    session: Some(opened.store.session()?),
                    number: opened.number,
                    opened: Arc::downgrade(opened),
                    era: opened.era,
                });
                self.kept.len() - 1
            }
        };
        Ok(self.kept[index]
            .session
            .as_mut()
            .expect("it is there until it is dropped"))
    }

    /// Drops those of stores that were closed.
    fn sweep(&mut self) {
        self.closed = CLOSED.load(Ordering::Relaxed);
        self.kept.retain(|kept| kept.opened.strong_count() > 0);
    }
}

/// A session, and of which store.
struct Kept {
    session: Option<Session>,
    number: u64,
    opened: Weak<Opened>,
    era: Era,
}

impl Drop for Kept {
    fn drop(&mut self) {
        // At the end of a thread a panic would end the process.
        let session = self.session.take();
        let _ = catch_unwind(AssertUnwindSafe(|| self.era.drop_in(session)));
    }
}

/// Gives up what this thread holds in the stores that it has used: an entry in the table of clients and 16 KiB of memory for
/// each. The end of a thread does the same, so this is for threads that go on and do something else. The next operation begins
/// anew, which takes about a millisecond.
#[unsafe(no_mangle)]
pub extern "C" fn farside_thread_leave() -> Status {
    answer(|| {
        if IS_READY.get() {
            let kept =
                SESSIONS.try_with(|sessions| sessions.try_borrow_mut().map(|mut all| core::mem::take(&mut all.kept)));
            drop(kept);
        }
        Ok(())
    })
}
