//! Looking at a gateway while it works: what the workers publish, and what is asked of them.
//!
//! On the path: beside it. Each worker runs [`watch`], which publishes what only its thread can read
//! (the verbs of its endpoint), lets hot keys cool down, and looks at the pool when somebody wants to
//! know. Whoever asks, on whatever thread, gets a [`Report`], or is told whether clients are served.

use std::io;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use farside_fabric::host::HostClock;
use farside_fabric::{CounterSnapshot, Deadline};
use farside_kv::Usage;
use tokio::sync::{Notify, mpsc};

use crate::context::{Context, Shared};
use crate::hotkeys::DECAY_NS;
use crate::listener::Arrival;
use crate::mirrors::{self, MirrorReport};
use crate::report::{IndexReport, Report};
use crate::stream::Raw;

/// How often a worker publishes its verbs.
const PUBLISH_NS: u64 = 100_000_000;
/// A look at the pool is good for so long: it reads a word per chunk.
const USAGE_FRESH_NS: u64 = 1_000_000_000;
/// What was seen longer ago than this is not told: the pool cannot be reached.
const USAGE_STALE_NS: u64 = 5_000_000_000;
/// How long to wait for a worker's look at the pool.
const PATIENCE_NS: u64 = 1_000_000_000;

/// A look at the pool, node by node.
#[derive(Clone, Default, Debug)]
pub(crate) struct Parts {
    taken_ns: u64,
    /// In the order of the nodes; `None` for one that could not be looked at.
    pub(crate) nodes: Vec<Option<Usage>>,
    /// What a worker knows of the index.
    pub(crate) index: Option<IndexReport>,
}

/// The last look at the pool, and how to ask for another.
#[derive(Default, Debug)]
pub(crate) struct Survey {
    latest: Mutex<Option<(u64, Usage)>>,
    /// The same node by node, whether all could be looked at or not.
    parts: Mutex<Parts>,
    /// The groups of mirrored nodes, in the order of the nodes, and when they were asked.
    mirrors: Mutex<(u64, Vec<Option<MirrorReport>>)>,
    /// Held by whoever asks them.
    asking: tokio::sync::Mutex<()>,
    /// Wakes one worker, whichever is there first.
    wanted: Notify,
    /// Wakes those who wait for it.
    done: Notify,
}

impl Survey {
    /// What was seen at most `age_ns` ago.
    fn latest(&self, now_ns: u64, age_ns: u64) -> Option<Usage> {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let (taken_ns, usage) = latest.as_ref()?;
        (now_ns.saturating_sub(*taken_ns) <= age_ns).then(|| usage.clone())
    }

    /// What is known about the pool, if it is not too old to be told.
    pub(crate) fn known(&self, now_ns: u64) -> Option<Usage> {
        self.latest(now_ns, USAGE_STALE_NS)
    }

    /// What is known of each node and of the index; of nodes nothing if that is too old to be told.
    pub(crate) fn parts(&self, now_ns: u64) -> Parts {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if now_ns.saturating_sub(parts.taken_ns) > USAGE_STALE_NS {
            parts.nodes.clear();
        }
        parts
    }

    /// The groups of those nodes that are mirrored, if that is not too old to be told; empty if no node is.
    pub(crate) fn mirrors(&self, now_ns: u64) -> Vec<Option<MirrorReport>> {
        let (asked_ns, mirrors) = &*self.mirrors.lock().unwrap_or_else(PoisonError::into_inner);
        match now_ns.saturating_sub(*asked_ns) <= USAGE_STALE_NS {
            true => mirrors.clone(),
            false => Vec::new(),
        }
    }

    fn note(&self, parts: Parts) {
        if parts.nodes.iter().all(Option::is_some) {
            let mut all = Usage::default();
            parts.nodes.iter().flatten().for_each(|node| all.add(node));
            *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some((parts.taken_ns, all));
        }
        *self.parts.lock().unwrap_or_else(PoisonError::into_inner) = parts;
    }
}

/// Why a gateway does not serve its clients now; one line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotReady {
    /// It was asked to end.
    #[error("the gateway is stopping")]
    Stopping,
    /// No worker could look at the pool within a second.
    #[error("the pool cannot be reached: is every memory node of --pool running?")]
    OutOfReach,
    /// Some workers join the pool again; their connections wait.
    #[error("{lost} of {threads} threads were cut off from the pool, and are joining it again")]
    CutOff {
        /// How many workers.
        lost: usize,
        /// Of how many.
        threads: usize,
    },
}

/// Looks at a running gateway from any thread.
#[derive(Clone, Debug)]
pub struct Observer {
    pub(crate) shared: Arc<Shared>,
    /// The workers, as long as there are any.
    pub(crate) doors: Vec<mpsc::WeakUnboundedSender<Arrival>>,
}

impl Observer {
    /// A connection to the gateway, as any client's, from within its process: no listener is needed, and it is a stranger until
    /// it has given a password.
    ///
    /// # Errors
    /// If the system gives no sockets, or the gateway has ended.
    pub fn connect(&self) -> io::Result<UnixStream> {
        let (here, there) = UnixStream::pair()?;
        here.set_nonblocking(true)?;
        there.set_nonblocking(true)?;
        let arrival = Arrival {
            socket: Raw::Unix(there),
            tls: None,
        };
        // The one that has joined the pool: the connections of another wait.
        let joined = self
            .shared
            .statistics
            .iter()
            .position(|worker| worker.joined.get() == 1);
        let door = self
            .doors
            .get(joined.unwrap_or(0))
            .and_then(mpsc::WeakUnboundedSender::upgrade);
        let sent = door.is_some_and(|door| door.send(arrival).is_ok());
        match sent && !self.shared.is_stopping.load(Ordering::Relaxed) {
            true => Ok(here),
            false => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// What is to be said now. Waits at most a second for a look at the pool; if no worker reaches it,
    /// the report is without. Needs a tokio runtime with timers.
    pub async fn report(&self) -> Report {
        self.has_fresh_look().await;
        Report::take(&self.shared, HostClock.now_ns())
    }

    /// Whether clients are served: all workers have the store open, and the pool could be looked at a moment ago. Waits as
    /// [`report`](Self::report) does.
    ///
    /// # Errors
    /// The first thing that is in the way.
    pub async fn readiness(&self) -> Result<(), NotReady> {
        if self.shared.is_stopping.load(Ordering::Relaxed) {
            return Err(NotReady::Stopping);
        }
        if !self.has_fresh_look().await {
            return Err(NotReady::OutOfReach);
        }
        let workers = &self.shared.statistics;
        match workers.iter().filter(|worker| worker.joined.get() == 0).count() {
            0 => Ok(()),
            lost => Err(NotReady::CutOff {
                lost,
                threads: workers.len(),
            }),
        }
    }

    /// Has the pool looked at, unless somebody just has; whether that succeeded.
    async fn has_fresh_look(&self) -> bool {
        let survey = &self.shared.survey;
        let asked_ns = HostClock.now_ns();
        if survey.latest(asked_ns, USAGE_FRESH_NS).is_none() {
            let done = survey.done.notified();
            survey.wanted.notify_one();
            let _ = HostClock.until(Deadline(asked_ns + PATIENCE_NS), done).await;
        }
        // Of the time of the question: a look that was fresh then is not too old for having been waited for.
        survey.latest(asked_ns, USAGE_FRESH_NS).is_some()
    }
}

/// What a worker does beside its connections, until they are to stop.
pub(crate) async fn watch(context: Rc<Context>) {
    let endpoint = context.store.endpoint();
    let mut published = CounterSnapshot::default();
    let mut decayed_ns = endpoint.now_ns();
    while context.closing().is_none() {
        tokio::select! {
            biased;
            () = context.until_closing() => {}
            () = context.shared.survey.wanted.notified() => look(&context).await,
            () = endpoint.sleep(PUBLISH_NS) => {}
        }
        let statistics = context.statistics();
        let posted = endpoint.counters().snapshot();
        statistics.add_verbs(&posted.since(&published));
        published = posted;
        statistics.index_cache.set(context.store.index().cache_bytes() as u64);
        statistics
            .joined
            .set(context.store.pool().check_reachable().is_ok().into());
        statistics.limbo.set(context.store.pool().limbo_count() as u64);
        if endpoint.now_ns().saturating_sub(decayed_ns) >= DECAY_NS {
            decayed_ns = endpoint.now_ns();
            let mut hot_keys = statistics.hot_keys.lock().unwrap_or_else(PoisonError::into_inner);
            hot_keys.decay();
        }
    }
}

/// Looks at the pool, unless somebody just has.
pub(crate) async fn look(context: &Context) {
    let survey = &context.shared.survey;
    let now_ns = HostClock.now_ns();
    if survey.latest(now_ns, USAGE_FRESH_NS).is_none() {
        // Whoever asks has no more patience, and a node that is gone may take long to say so.
        let (usages, ()) = tokio::join!(context.store.usage(PATIENCE_NS), look_at_mirrors(context));
        // Commands report it to their clients, the metrics say that the pool is not there.
        let seen = |usage: Result<_, _>| usage.inspect_err(|error| tracing::debug!("cannot look at the pool: {error}"));
        survey.note(Parts {
            taken_ns: now_ns,
            nodes: usages.into_iter().map(|usage| seen(usage).ok()).collect(),
            index: Some(IndexReport::of(context.store.index())),
        });
    }
    survey.done.notify_waiters();
}

/// Asks the members of mirrored nodes, unless somebody just has.
pub(crate) async fn look_at_mirrors(context: &Context) {
    let endpoint = context.store.endpoint();
    if endpoint.is_mapped() {
        return;
    }
    let survey = &context.shared.survey;
    let _asking = survey.asking.lock().await;
    let now_ns = HostClock.now_ns();
    let asked_ns = survey.mirrors.lock().unwrap_or_else(PoisonError::into_inner).0;
    if asked_ns == 0 || now_ns.saturating_sub(asked_ns) > USAGE_FRESH_NS {
        let mirrors = mirrors::ask_all(endpoint, context.shared.secret.as_ref()).await;
        *survey.mirrors.lock().unwrap_or_else(PoisonError::into_inner) = (now_ns, mirrors);
    }
}
