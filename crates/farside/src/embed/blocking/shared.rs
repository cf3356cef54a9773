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
/// How many were closed.
static CLOSED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static SESSIONS: RefCell<Sessions> = const { RefCell::new(Sessions { places: Vec::new(), closed: 0 }) };
    static IS_READY: Cell<bool> = const { Cell::new(false) };
}

/// A thread's sessions.
struct Sessions {
    places: Vec<Place>,
    /// How many stores were closed when it was last looked which.
    closed: u64,
}

impl Sessions {
    fn of(&mut self, number: u64) -> Option<&mut Place> {
        let now = forks();
        let mut own = self.places.iter_mut();
        own.find(|place| place.number == number && place.forks == now)
    }

    /// Does something with those of this thread; `None` while the thread ends, and they are gone.
    fn with<R>(body: impl FnOnce(&mut Self) -> R) -> Option<R> {
        SESSIONS.try_with(|sessions| body(&mut sessions.borrow_mut())).ok()
    }
}

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

/// Leaves what was closed, or belongs to a process that this one was forked from, on this thread.
#[cold]
fn leave_closed() {
    let gone = Sessions::with(|sessions| {
        sessions.closed = CLOSED.load(Ordering::Relaxed);
        let is_gone = |place: &mut Place| place.is_closed.load(Ordering::Relaxed) || place.forks != forks();
        sessions.places.extract_if(.., is_gone).collect::<Vec<_>>()
    });
    drop(gone);
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
    /// Opens the store; creates it if the memory is new.
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

    /// The index of the memory.
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
        let (session, has_closed) = Sessions::with(|sessions| {
            let has_closed = sessions.closed != CLOSED.load(Ordering::Relaxed);
            let session = sessions.of(self.number).and_then(|place| place.session.take());
            (session.map(ManuallyDrop::into_inner), has_closed)
        })?;
        if has_closed {
            leave_closed();
        }
        session
    }

    #[cold]
    fn make(&self) -> Result<Session, Error> {
        if !IS_READY.get() {
            // Makes the variables of the event loop.
            drop(tokio::task::LocalSet::new().enter());
            IS_READY.set(true);
        }
        self.store()?.session()
    }

    #[inline]
    fn put_back(&self, session: Session) {
        let mut session = Some(ManuallyDrop::new(session));
        Sessions::with(|sessions| match sessions.of(self.number) {
            Some(place) if place.session.is_none() => place.session = session.take(),
            Some(_) => {}
            None => sessions.places.push(Place {
                number: self.number,
                forks: forks(),
                is_closed: Arc::clone(&self.is_closed),
                session: session.take(),
            }),
        });
        // One that was made while another was in use, or while the thread ends.
        drop(session.map(ManuallyDrop::into_inner));
    }

    /// Leaves all stores on this thread; its next operation on one comes back.
    pub fn leave_all() {
        if IS_READY.get() {
            drop(Sessions::with(|sessions| core::mem::take(&mut sessions.places)));
        }
    }

    /// Leaves the store on this thread; its next operation comes back.
    pub fn leave(&self) {
        drop(self.take());
    }
}

impl SharedStore {
    /// Closes the handle, for every thread: what is called from now on fails. What others are in the middle of goes on.
    pub fn close(&self) {
        if !self.is_closed.swap(true, Ordering::Relaxed) {
            CLOSED.fetch_add(1, Ordering::Relaxed);
        }
        self.leave();
        drop((self.locks.take(), self.stores.take()));
    }
}

impl Drop for SharedStore {
    fn drop(&mut self) {
        self.close();
    }
}
