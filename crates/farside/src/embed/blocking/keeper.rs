//! The keeper: a thread that stands in for the sessions whose threads are away.
//!
//! On the path: nowhere. It is a client of the memory itself, whose tasks also search for what dead
//! clients held, and evict keys if that is wanted. When it is cut off it joins anew; sessions that lose their lease meanwhile do so, too.

use core::time::Duration;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;

use farside_fabric::Endpoint;
use farside_kv::stack;
use farside_kv::{IndexKind, Store};
use farside_pool::{Pool, PoolError, Rest};

use super::presence::Presence;
use crate::embed::error::Error;
use crate::embed::options::Located;
use crate::embed::store::keep_within;

/// How long to wait before the pool is joined again after that failed.
const REJOIN_PAUSE: Duration = Duration::from_millis(100);

/// What the keeper shares with the sessions.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) located: Located,
    sessions: Mutex<Vec<Arc<Presence>>>,
    is_over: AtomicBool,
}

impl Watch {
    fn sessions(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Presence>>> {
        self.sessions.lock().expect("nothing panics while it is held")
    }

    pub(super) fn enter(&self, presence: &Arc<Presence>) {
        self.sessions().push(Arc::clone(presence));
    }

    pub(super) fn exit(&self, presence: &Arc<Presence>) {
        self.sessions().retain(|known| !Arc::ptr_eq(known, presence));
    }
}

/// The thread. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) watch: Arc<Watch>,
    pub(super) index: IndexKind,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts the thread, which opens the store, and makes it if the memory is new.
    pub(super) fn start(located: Located) -> Result<Self, Error> {
        let watch = Arc::new(Watch {
            located,
            sessions: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let (ready, opened) = mpsc::channel();
        let round = Arc::clone(&watch);
        let thread = std::thread::Builder::new().name("farside-keeper".to_owned());
        let thread = thread.spawn(move || keep(&round, ready)).map_err(Error::Start)?;
        let index = opened.recv().expect("the thread says how it went")?;
        Ok(Self {
            watch,
            index,
            thread: Some(thread),
        })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.watch.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the keeper of a store has panicked");
        }
    }
}

fn keep(watch: &Watch, ready: mpsc::Sender<Result<IndexKind, Error>>) {
    let mut ready = Some(ready);
    while !watch.is_over.load(Ordering::Acquire) {
        let round = Round {
            watch,
            ready: &mut ready,
        };
        let located = watch.located.clone();
        let ended = stack::run(located.nodes, located.secret, async |endpoint| {
            round.run(endpoint).await
        });
        let error = match ended {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => error,
            Err(error) => error.into(),
        };
        if let Some(ready) = ready.take() {
            // Whoever opens the store waits for this.
            let _ = ready.send(Err(error));
            return;
        }
        tracing::debug!("cannot join the pool, trying again: {error}");
        #[expect(clippy::disallowed_methods, reason = "this thread has nothing else to do")]
        std::thread::sleep(REJOIN_PAUSE);
    }
}

/// From joining the pool to leaving it or being cut off.
struct Round<'w> {
    watch: &'w Watch,
    ready: &'w mut Option<mpsc::Sender<Result<IndexKind, Error>>>,
}

impl Round<'_> {
    /// Keeps the store until that is over.
    async fn run(self, endpoint: Endpoint) -> Result<(), Error> {
        let config = self.watch.located.config;
        let store = Store::open(endpoint.clone(), config).await?;
        let store = keep_within(store, &self.watch.located.quota);
        if let Some(ready) = self.ready.take() {
            let _ = ready.send(Ok(store.index().kind()));
        }
        while !self.watch.is_over.load(Ordering::Acquire) {
            endpoint.sleep(config.pool.tick_ns).await;
            if store.pool().check_reachable().is_err() {
                store.abandon();
                return Ok(());
            }
            let sessions = self.watch.sessions().clone();
            for presence in &sessions {
                if let Err(error) = stand_in(store.pool(), presence).await {
                    tracing::debug!("could not stand in for a session: {error}");
                }
            }
        }
        Ok(store.close().await?)
    }
}

/// Acts for a client whose thread is away.
async fn stand_in(pool: &Pool, presence: &Presence) -> Result<(), PoolError> {
    let Some(acting) = presence.stand_in() else {
        return Ok(());
    };
    let owner = presence.owner();
    match pool.stand_in_for(owner).await? {
        Rest::Renewed => Ok(()),
        Rest::IsOver => {
            acting.give_up();
            Ok(())
        }
        Rest::IsWanted => {
            acting.give_up();
            pool.give_up(owner).await
        }
    }
}
