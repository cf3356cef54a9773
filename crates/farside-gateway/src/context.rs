//! What the connections of one worker share: its store, sessions to use, and the end of it.
//!
//! On the path: a connection takes a session for a burst of commands and gives it back.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use farside_fabric::tcp::Secret;
use farside_kv::{Session, Store};
use tokio::sync::Notify;

use crate::acl::Users;
use crate::command::table::TABLE;
use crate::hotkeys::SAMPLE_EVERY;
use crate::large;
use crate::live::{Live, Totals};
use crate::observer::Survey;
use crate::report::Place;
use crate::server::SettingsFile;
use crate::statistics::Statistics;

/// Sessions that are kept for the next burst; more than that were needed only in a rush.
const SESSIONS_KEPT_MAX: usize = 64;
/// A session that once read a large value has a buffer as large: with it, what is kept may take so much.
const SESSION_BYTES_MAX: usize = 32 << 20;

/// What all workers of a gateway know.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) users: Arc<Users>,
    /// The first port where clients connect; 0.0.0.0:0 if there is none.
    pub(crate) address: core::net::SocketAddr,
    pub(crate) started_ms: u64,
    pub(crate) started_ns: u64,
    /// A random name of this run of the gateway.
    pub(crate) run: u64,
    pub(crate) client_next: AtomicU64,
    pub(crate) statistics: Vec<Statistics>,
    /// Memory of the store in bytes: in use, and in all, as last looked up. And the number of keys.
    pub(crate) census: std::sync::Mutex<Census>,
    pub(crate) survey: Survey,
    /// Where the memory nodes are, in their order.
    pub(crate) places: Vec<Place>,
    /// What the memory nodes want to hear.
    pub(crate) secret: Option<Secret>,
    pub(crate) live: Live,
    pub(crate) settings_file: Option<Arc<dyn SettingsFile>>,
    /// Whether the gateway was asked to end.
    pub(crate) is_stopping: AtomicBool,
}

impl Shared {
    /// A count over all workers.
    pub(crate) fn total(&self, count: impl Fn(&Statistics) -> u64) -> u64 {
        self.statistics.iter().map(count).fold(0, u64::wrapping_add)
    }

    /// What was counted since the gateway was started.
    pub(crate) fn totals(&self) -> Totals {
        Totals {
            connections: self.total(|worker| worker.connections.get()),
            commands: self.total(|worker| worker.commands.get()),
            errors: self.total(|worker| worker.errors.get()),
            bytes_in: self.total(|worker| worker.bytes_in.get()),
            bytes_out: self.total(|worker| worker.bytes_out.get()),
            hits: self.total(|worker| worker.hits.get()),
            misses: self.total(|worker| worker.misses.get()),
            expired: self.total(|worker| worker.expired.get()),
            evicted: self.live.quota.evicted(),
        }
    }

    /// How often each command was executed since the gateway was started, in the order of the table.
    pub(crate) fn calls(&self) -> Vec<u64> {
        let total = |index: usize| self.total(|worker| worker.calls[index].get());
        (0..TABLE.len()).map(total).collect()
    }
}

/// What is known about the contents of the store, and since when.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Census {
    pub(crate) taken_ms: u64,
    pub(crate) keys: u64,
}

/// Why a worker stops serving its connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Closing {
    /// The gateway ends.
    Stop,
    /// The store must be opened anew; the connections wait.
    CutOff,
}

/// Shared by the tasks of a worker.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) store: Store,
    pub(crate) shared: Arc<Shared>,
    worker: usize,
    /// Boxed: one is larger than what most commands copy, and changes hands for each burst.
    sessions: RefCell<Vec<Box<Session>>>,
    closing: Cell<Option<Closing>>,
    pub(crate) closed: Notify,
    /// How many more uses of keys pass before one is looked at.
    unnoticed: Cell<u64>,
}

impl Context {
    pub(crate) fn new(store: Store, shared: Arc<Shared>, worker: usize) -> Self {
        Self {
            store: (store.with_expiry_mark(shared.live.expiry_mark.clone()))
                .with_quota(Arc::clone(&shared.live.quota))
                .with_cursors(Arc::clone(&shared.live.cursors)),
            shared,
            worker,
            sessions: RefCell::default(),
            closing: Cell::new(None),
            closed: Notify::new(),
            unnoticed: Cell::new(SAMPLE_EVERY),
        }
    }

    /// The counts of this worker.
    #[inline]
    pub(crate) fn statistics(&self) -> &Statistics {
        &self.shared.statistics[self.worker]
    }

    /// A session that nobody uses.
    #[inline]
    pub(crate) fn take_session(&self) -> Box<Session> {
        let kept = self.sessions.borrow_mut().pop();
        kept.unwrap_or_else(|| Box::new(self.store.session()))
    }

    /// Keeps a session for the next one who asks.
    #[inline]
    pub(crate) fn give_session(&self, session: Box<Session>) {
        let mut sessions = self.sessions.borrow_mut();
        let kept = || sessions.iter().map(|session| session.buffer_bytes()).sum::<usize>();
        let is_small = session.buffer_bytes() <= large::OWN_BYTES_MAX;
        if sessions.len() < SESSIONS_KEPT_MAX && (is_small || kept() + session.buffer_bytes() <= SESSION_BYTES_MAX) {
            sessions.push(session);
        }
    }

    /// Counts a lookup.
    #[inline]
    pub(crate) fn count_lookup(&self, is_there: bool) {
        let statistics = self.statistics();
        if is_there {
            statistics.hits.add(1);
        } else {
            statistics.misses.add(1);
        }
    }

    /// A key is used: one use in many is looked at.
    #[inline]
    pub(crate) fn notice(&self, key: &[u8]) {
        match self.unnoticed.get() {
            0 => self.sample(key),
            left => self.unnoticed.set(left - 1),
        }
    }

    /// How many more uses pass before one is looked at.
    #[cfg(test)]
    pub(crate) fn unnoticed(&self) -> u64 {
        self.unnoticed.get()
    }

    #[cold]
    fn sample(&self, key: &[u8]) {
        // At random, so that no rhythm of a client hides a key.
        let endpoint = self.store.endpoint();
        self.unnoticed.set(endpoint.random_below(2 * SAMPLE_EVERY - 1));
        // Whoever is reading them will not miss one more.
        if let Ok(mut hot_keys) = self.statistics().hot_keys.try_lock() {
            hot_keys.add(key);
        }
    }

    /// Asks all connections to stop when their command is done; the first reason counts, unless the
    /// gateway ends.
    pub(crate) fn close(&self, why: Closing) {
        if self.closing.get() != Some(Closing::Stop) {
            self.closing.set(Some(why));
        }
        self.closed.notify_waiters();
    }

    /// Whether the connections should stop, and why.
    #[inline]
    pub(crate) fn closing(&self) -> Option<Closing> {
        self.closing.get()
    }

    /// Returns when the connections should stop.
    pub(crate) async fn until_closing(&self) {
        // One thread: nothing can happen between the look and the registration.
        while self.closing.get().is_none() {
            self.closed.notified().await;
        }
    }
}
