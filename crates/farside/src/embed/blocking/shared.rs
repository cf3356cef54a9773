//! A store for whichever thread calls: each has a session of its own, which is made when it is first needed.
//!
//! On the path: bindings to other languages, whose users have no session to think of; and programs that move work between threads.
//!
//! # Threads
//! The sessions of a thread are in a table of that thread. A session is taken out of it for an operation, so what is called meanwhile
//! may use the store as well, with a session that is made for it. They are left when the thread ends. At that moment the
//! thread's variables go, the latest first, and leaving over a connection needs those of the event loop: so the table comes to be after
//! these, and [`IS_READY`], which goes at no moment, says whether it is there.
//!
//! # Forks
//! The child of a fork has the handles, and neither the threads behind them nor the right to act for the parent. So what is
//! opened is opened once [for each fork](PerFork), and the parent's is left as it is, without a word: it is not the child's to leave.

use core::cell::{Cell, RefCell};
use core::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use farside_fabric::fork::forks;
use farside_kv::IndexKind;

use super::locks::Locks;
use super::session::Session;
use super::store::Store;
use crate::embed::error::Error;
use crate::embed::options::Options;

/// How many forks may lie between the program that opens a store and a process that uses it.
const FORKS_MAX: usize = 16;

/// Names a store among all that this process has opened, and its copies.
static NEXT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static SESSIONS: RefCell<Sessions> = const { RefCell::new(Sessions(Vec::new())) };
    static IS_READY: Cell<bool> = const { Cell::new(false) };
}

/// A thread's sessions.
struct Sessions(Vec<Place>);

/// Where a thread keeps its session of one store while it is not in use.
struct Place {
    number: u64,
    forks: u32,
    is_closed: Arc<AtomicBool>,
    session: Option<ManuallyDrop<Session>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else {
            return;
        };
        if self.forks == forks() {
            let session = AssertUnwindSafe(ManuallyDrop::into_inner(session));
            // A panic at the end of a thread would end the program. The lease of who does not leave runs out.
            if catch_unwind(|| drop(session)).is_err() {
                tracing::error!("a session was not left in good order");
            }
        }
    }
}

/// What is opened anew after a fork.
#[derive(Debug)]
struct PerFork<T> {
    /// One for each process in a line, so a lock that was held during a fork is asked for by nobody.
    opened: [Mutex<Option<ManuallyDrop<T>>>; FORKS_MAX],
    /// When the handle was made.
    forks: u32,
}

impl<T> PerFork<T> {
    fn new() -> Self {
        Self {
            opened: [const { Mutex::new(None) }; FORKS_MAX],
            forks: forks(),
        }
    }

    /// What this process has opened, for the last time.
    fn take(&self) -> Option<T> {
        let depth = (forks() - self.forks) as usize;
        let mut opened = self.opened.get(depth)?.lock().unwrap_or_else(PoisonError::into_inner);
        opened.take().map(ManuallyDrop::into_inner)
    }

    /// What this process has opened, or opens now; `open` is told whether this is the process that made the handle.
    fn get(&self, open: impl FnOnce(bool) -> Result<T, Error>) -> Result<T, Error>
    where
        T: Clone,
    {
        let depth = (forks() - self.forks) as usize;
        let place = self.opened.get(depth).ok_or(Error::Forked)?;
        let mut opened = place.lock().unwrap_or_else(PoisonError::into_inner);
        if opened.is_none() {
            *opened = Some(ManuallyDrop::new(open(depth == 0)?));
        }
        let opened = opened.as_deref().expect("it was opened");
        Ok(opened.clone())
    }
}

impl<T> Drop for PerFork<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// A store and its locks, for any thread and, but for memory that is anonymous, also for processes that are forked off.
///
/// ```
/// use farside::{Options, blocking::SharedStore};
///
/// let store = SharedStore::open(Options::anonymous(64 << 20))?;
/// std::thread::scope(|scope| {
///     for number in 0..4_u8 {
///         let store = &store;
///         scope.spawn(move || store.with(|session| session.put(&[number], b"from a thread")));
///     }
/// });
/// assert_eq!(store.with(|session| session.count())?, 4);
/// # Ok::<(), farside::Error>(())
/// ```
///
/// The store is left when it is dropped, by each thread: when it ends, or with its next operation on whichever store.
#[derive(Debug)]
pub struct SharedStore {
    number: u64,
    options: Options,
    stores: PerFork<Store>,
    locks: PerFork<Locks>,
    is_closed: Arc<AtomicBool>,
}

impl SharedStore {
    /// Opens the store; makes it if the memory is new.
    ///
    /// # Errors
    /// As [`Store::open`] has them.
    pub fn open(options: Options) -> Result<Self, Error> {
        let store = Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            options,
            stores: PerFork::new(),
            locks: PerFork::new(),
            is_closed: Arc::default(),
        };
        store.store()?;
        Ok(store)
    }

    fn options(&self, is_maker: bool) -> Result<Options, Error> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(Error::Closed);
        }
        match is_maker || !self.options.is_anonymous() {
            true => Ok(self.options.clone()),
            false => Err(Error::Forked),
        }
    }

    /// The store as this process has opened it.
    ///
    /// # Errors
    /// In a process that was forked off: as [`Store::open`] has them, and if the memory is anonymous.
    pub fn store(&self) -> Result<Store, Error> {
        self.stores.get(|is_maker| Store::open(self.options(is_maker)?))
    }

    /// The locks of the same memory, which are opened when they are first asked for.
    ///
    /// # Errors
    /// As [`Locks::open`] has them; and in a process that was forked off, if the memory is anonymous.
    pub fn locks(&self) -> Result<Locks, Error> {
        self.locks.get(|is_maker| Locks::open(self.options(is_maker)?))
    }

    /// Which index the memory has.
    ///
    /// # Errors
    /// As [`SharedStore::store`] has them.
    pub fn index(&self) -> Result<IndexKind, Error> {
        self.store().map(|store| store.index())
    }

    /// Carries operations out with the session of this thread.
    ///
    /// # Errors
    /// What they report, and what opening a session does.
    #[inline]
    pub fn with<R>(&self, operations: impl FnOnce(&mut Session) -> Result<R, Error>) -> Result<R, Error> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(Error::Closed);
        }
        let mut session = match self.take() {
            Some(session) => session,
            None => self.make()?,
        };
        let result = operations(&mut session);
        self.put_back(session);
        result
    }

    #[inline]
    fn take(&self) -> Option<Session> {
        if !IS_READY.get() {
            return None;
        }
        let now = forks();
        SESSIONS.with_borrow_mut(|sessions| {
            let mut own = sessions.0.iter_mut();
            let place = own.find(|place| place.number == self.number && place.forks == now)?;
            place.session.take().map(ManuallyDrop::into_inner)
        })
    }

    /// Also the moment to look after sessions of stores that were closed.
    #[cold]
    fn make(&self) -> Result<Session, Error> {
        if !IS_READY.get() {
            // Makes the variables of the event loop.
            drop(tokio::task::LocalSet::new().enter());
            IS_READY.set(true);
        }
        let gone: Vec<Place> = SESSIONS.with_borrow_mut(|sessions| {
            let is_gone = |place: &mut Place| place.is_closed.load(Ordering::Relaxed) || place.forks != forks();
            sessions.0.extract_if(.., is_gone).collect()
        });
        drop(gone);
        self.store()?.session()
    }

    #[inline]
    fn put_back(&self, session: Session) {
        let now = forks();
        let nested = SESSIONS.with_borrow_mut(|sessions| {
            let mut own = sessions.0.iter_mut();
            match own.find(|place| place.number == self.number && place.forks == now) {
                Some(place) if place.session.is_none() => {
                    place.session = Some(ManuallyDrop::new(session));
                    None
                }
                Some(_) => Some(session),
                None => {
                    sessions.0.push(Place {
                        number: self.number,
                        forks: now,
                        is_closed: Arc::clone(&self.is_closed),
                        session: Some(ManuallyDrop::new(session)),
                    });
                    None
                }
            }
        });
        drop(nested);
    }

    /// Leaves the store on this thread; its next operation comes back.
    pub fn leave(&self) {
        drop(self.take());
    }
}

impl SharedStore {
    /// Closes the handle, for every thread: what is called from now on fails. What others are in the middle of goes on.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.leave();
        drop((self.locks.take(), self.stores.take()));
    }
}

impl Drop for SharedStore {
    fn drop(&mut self) {
        self.close();
    }
}
