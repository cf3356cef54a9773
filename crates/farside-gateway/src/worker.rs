//! A worker: one thread with its own store and the connections that were given to it.
//!
//! On the path: between the acceptor and a connection.
//!
//! A worker lives longer than its store. When it is cut off from the pool (its lease ran out, a
//! memory node went away), its connections finish the command they are at, which fails; then they
//! are taken out of the runtime, the store is opened anew with another endpoint, and they go on.

use core::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use farside_fabric::Endpoint;
use farside_fabric::tcp::{NodeLocation, Secret};
use farside_kv::stack;
use farside_kv::{EvictionPace, IndexKind, KvError, StackError, Store, StoreConfig, SweepPace};
use tokio::sync::{Notify, mpsc, watch};

use crate::connection::{Connection, Ended};
use crate::context::{Closing, Context, Shared};
use crate::listener::Arrival;
use crate::observer;

/// How often a worker looks whether it is cut off, and could join again.
const NOTICE_NS: u64 = 500_000_000;
/// How long to wait before the store is opened again after that failed.
const REOPEN_PAUSE: core::time::Duration = core::time::Duration::from_millis(200);

/// Why a worker cannot serve.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkerError {
    #[error(transparent)]
    Stack(#[from] StackError),
    #[error(transparent)]
    Store(#[from] KvError),
}

/// Everything a worker starts with.
pub(crate) struct Worker {
    pub(crate) number: usize,
    pub(crate) nodes: Vec<NodeLocation>,
    pub(crate) secret: Option<Secret>,
    pub(crate) config: StoreConfig,
    pub(crate) shared: Arc<Shared>,
    pub(crate) arrivals: mpsc::UnboundedReceiver<Arrival>,
    pub(crate) stop: watch::Receiver<bool>,
}

/// The connections that wait for a store; and whether to go on.
struct Outcome {
    parked: Vec<Connection>,
    closing: Closing,
}

impl Worker {
    /// Serves until the gateway stops. `ready` is told once whether the store could be opened, and which
    /// index it has.
    pub(crate) fn run(mut self, ready: std::sync::mpsc::Sender<Result<IndexKind, WorkerError>>) {
        let mut ready = Some(ready);
        let mut parked = Vec::new();
        let mut is_failing = false;
        while !*self.stop.borrow() {
            let nodes = self.nodes.clone();
            let secret = self.secret.clone();
            let task = Serve {
                worker: &mut self,
                parked: &mut parked,
                ready: &mut ready,
            };
            let error = match stack::run(nodes, secret, async |endpoint| task.run(endpoint).await) {
                Ok(Ok(outcome)) if outcome.closing == Closing::Stop => return,
                Ok(Ok(outcome)) => {
                    tracing::warn!(worker = self.number, "cut off from the pool; joining again");
                    self.shared.statistics[self.number].rejoins.add(1);
                    parked = outcome.parked;
                    is_failing = false;
                    continue;
                }
                Ok(Err(error)) => WorkerError::from(error),
                Err(error) => WorkerError::from(error),
            };
            if let Some(ready) = ready.take() {
                // Whoever started us has not gone away: it waits for this.
                let _ = ready.send(Err(error));
                return;
            }
            if !is_failing {
                tracing::warn!(worker = self.number, "cannot join the pool, trying again: {error}");
            }
            is_failing = true;
            #[expect(clippy::disallowed_methods, reason = "there is no runtime between two stores")]
            std::thread::sleep(REOPEN_PAUSE);
        }
    }
}

struct Serve<'w> {
    worker: &'w mut Worker,
    parked: &'w mut Vec<Connection>,
    ready: &'w mut Option<std::sync::mpsc::Sender<Result<IndexKind, WorkerError>>>,
}

/// The connections of a worker, and those that stand still.
#[derive(Default)]
struct Guests {
    open: core::cell::Cell<usize>,
    left: Notify,
    parked: RefCell<Vec<Connection>>,
}

/// Counts a connection, also when it panics.
struct Guest(Rc<Guests>);

impl Guest {
    fn new(guests: &Rc<Guests>) -> Self {
        guests.open.set(guests.open.get() + 1);
        Self(Rc::clone(guests))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get() - 1);
        self.0.left.notify_one();
    }
}

impl Serve<'_> {
    /// Serves until the gateway stops or the store is lost.
    async fn run(self, endpoint: Endpoint) -> Result<Outcome, KvError> {
        let worker = self.worker;
        let config = StoreConfig {
            timeout_ns: stack::timeout_ns(&endpoint),
            ..worker.config
        };
        let store = Store::open(endpoint.clone(), config).await?;
        if let Some(ready) = self.ready.take() {
            let _ = ready.send(Ok(store.index().kind()));
        }
        let context = Rc::new(Context::new(store, worker.shared.clone(), worker.number));
        context.statistics().joined.set(1);
        endpoint.spawn(observer::watch(Rc::clone(&context)));
        if worker.number == 0 {
            let counting = Rc::clone(&context);
            let count = move |removed| counting.statistics().expired.add(removed);
            endpoint.spawn(context.store.clone().sweep(SweepPace::default(), count));
            endpoint.spawn(context.store.clone().keep_within_quota(EvictionPace::default()));
        }
        let (nodes, secret) = (worker.nodes.clone(), worker.secret.clone());
        endpoint.spawn(notice(Rc::clone(&context), nodes, secret));
        let guests = Rc::new(Guests::default());
        for parked in self.parked.drain(..) {
            start(&endpoint, &context, &guests, Guise::Parked(Box::new(parked)));
        }
        loop {
            tokio::select! {
                biased;
                () = context.until_closing() => break,
                _ = worker.stop.wait_for(|stop| *stop) => {
                    context.close(Closing::Stop);
                    break;
                }
                arrival = worker.arrivals.recv() => match arrival {
                    Some(arrival) => {
                        context.statistics().connections.add(1);
                        start(&endpoint, &context, &guests, Guise::Arrival(arrival));
                    }
                    // The acceptor is gone: nothing new will come.
                    None => {
                        context.close(Closing::Stop);
                        break;
                    }
                },
            }
        }
        context.statistics().joined.set(0);
        while guests.open.get() > 0 {
            guests.left.notified().await;
        }
        let closing = context.closing().unwrap_or(Closing::Stop);
        if closing == Closing::Stop
            && let Err(error) = context.store.clone().close().await
        {
            tracing::debug!("could not leave the pool: {error}");
        }
        Ok(Outcome {
            parked: guests.parked.take(),
            closing,
        })
    }
}

/// Has the store opened anew when this worker is cut off and the nodes can be reached again: nobody may send a command, which
/// would meet that it is. Until they can, commands fail, and nobody is left waiting.
async fn notice(context: Rc<Context>, nodes: Vec<NodeLocation>, secret: Option<Secret>) {
    while context.closing().is_none() {
        tokio::select! {
            biased;
            () = context.until_closing() => return,
            () = context.store.endpoint().sleep(NOTICE_NS) => {}
        }
        let state = context.store.pool().check_reachable().map_err(KvError::from);
        if state.is_err_and(|error| error.is_cut_off()) && stack::connect(nodes.clone(), secret.clone()).await.is_ok() {
            context.close(Closing::CutOff);
        }
    }
}

/// What a connection is before it is served.
enum Guise {
    Arrival(Arrival),
    Parked(Box<Connection>),
}

fn start(endpoint: &Endpoint, context: &Rc<Context>, guests: &Rc<Guests>, guise: Guise) {
    let guest = Guest::new(guests);
    let context = Rc::clone(context);
    // A panic ends this task and nothing else: the runtime catches it.
    endpoint.spawn(async move {
        let open = Open::new(&context);
        match Box::pin(serve(guise, &context)).await {
            Ok(Ended::Closed) => {}
            Ok(Ended::Parked(parked)) => guest.0.parked.borrow_mut().push(*parked),
            Err(error) => tracing::debug!("a connection broke: {error}"),
        }
        drop(open);
        drop(guest);
    });
}

async fn serve(guise: Guise, context: &Context) -> std::io::Result<Ended> {
    let connection = match guise {
        Guise::Parked(parked) => parked.unpark()?,
        Guise::Arrival(arrival) => match Connection::open(arrival, context).await? {
            Some(connection) => connection,
            None => return Ok(Ended::Closed),
        },
    };
    Box::pin(connection.serve(context)).await
}

/// Counts an open connection for INFO, also when it panics.
struct Open<'c>(&'c Context);

impl<'c> Open<'c> {
    fn new(context: &'c Context) -> Self {
        context.statistics().clients.add(1);
        Self(context)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.statistics().clients.subtract(1);
    }
}
