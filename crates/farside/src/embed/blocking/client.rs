//! A session's client: the store as one thread has opened it, and what carries its operations out.

use core::future::poll_fn;
use core::task::Poll;
use std::sync::Arc;

use farside_fabric::{Endpoint, Seat};
use farside_kv as kv;
use tokio::runtime::Runtime;
use tokio::task::LocalSet;

use super::presence::{Arrival, Presence};
use crate::embed::error::Error;
use crate::embed::operations::boxed;
use crate::embed::options::Located;

/// What carries out futures.
#[derive(Debug)]
pub(super) enum Host {
    /// The thread alone: memory is mapped.
    Thread,
    /// An event loop, for connections.
    EventLoop(Box<EventLoop>),
}

/// A runtime of one thread, and the tasks on it.
#[derive(Debug)]
pub(super) struct EventLoop {
    runtime: Runtime,
    tasks: LocalSet,
}

impl EventLoop {
    pub(super) fn new() -> Result<Box<Self>, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Ok(Box::new(Self {
            runtime: runtime.map_err(Error::Start)?,
            tasks: LocalSet::new(),
        }))
    }

    pub(super) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.tasks.block_on(&self.runtime, future)
    }
}

/// A client of the memory on one thread.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) session: kv::Session,
    pub(super) ground: Ground,
}

/// What the session stands on; apart, since the session lends its buffer.
#[derive(Debug)]
pub(super) struct Ground {
    pub(super) store: kv::Store,
    seat: Seat,
    pub(super) presence: Arc<Presence>,
    is_cut_off: bool,
    host: Host,
}

impl Client {
    /// Opens the store with an endpoint that was made on this host.
    pub(super) fn open(host: Host, endpoint: Endpoint, located: &Located) -> Result<Self, Error> {
        let seat = Seat::new();
        let opened = run(
            &host,
            &seat,
            boxed(kv::Store::open(endpoint.seated(&seat), located.config)),
        );
        let store = opened.inspect_err(|_| seat.clear())?;
        // The keeper evicts beside the operations.
        let store = store.with_quota(Arc::clone(&located.quota));
        Ok(Self {
            session: store.session(),
            ground: Ground {
                presence: Arc::new(Presence::new(store.pool().owner())),
                store,
                seat,
                is_cut_off: false,
                host,
            },
        })
    }
}

#[inline]
fn run<F: Future>(host: &Host, seat: &Seat, future: F) -> F::Output {
    match host {
        Host::Thread => seat.block_on(seat.drive(future)),
        Host::EventLoop(event_loop) => event_loop.block_on(seat.drive(future)),
    }
}

impl Ground {
    /// The thread is here, and an operation will start. Returns whether the client can carry it out; if
    /// not, the session has to be opened anew.
    #[inline]
    pub(super) fn arrive(&mut self) -> bool {
        match self.presence.arrive() {
            Arrival::Quiet => !self.is_cut_off,
            arrival => self.arrive_slowly(arrival),
        }
    }

    #[cold]
    fn arrive_slowly(&mut self, arrival: Arrival) -> bool {
        if arrival == Arrival::GivenUp {
            self.is_cut_off = true;
        }
        if arrival == Arrival::WasTaken && !self.is_cut_off {
            // Without the tasks, which may still believe in the old epoch.
            let pool = self.store.pool();
            let resumed = match &self.host {
                Host::Thread => self.seat.block_on(pool.resume()),
                Host::EventLoop(event_loop) => event_loop.block_on(pool.resume()),
            };
            self.is_cut_off = resumed.is_err();
        }
        if !self.is_cut_off {
            self.do_housekeeping();
            self.is_cut_off = self.store.pool().has_ended();
        }
        !self.is_cut_off
    }

    /// Carries an operation out.
    #[inline]
    pub(super) fn run<F: Future>(&self, operation: F) -> F::Output {
        run(&self.host, &self.seat, operation)
    }

    /// The operation has ended, and the thread may go away.
    #[inline]
    pub(super) fn leave(&mut self, is_cut_off: bool) {
        self.is_cut_off |= is_cut_off;
        if self.seat.was_stirred() {
            self.settle();
        }
        self.presence.leave();
    }

    /// Lets each task come as far as it can.
    fn do_housekeeping(&self) {
        let mut was_polled = false;
        let turn = poll_fn(|_| match core::mem::replace(&mut was_polled, true) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        });
        self.run(turn);
    }

    /// Waits until no task is in the middle of what nobody can stand in for.
    #[cold]
    fn settle(&self) {
        let is_at_rest = || {
            let is_done = !self.store.index().is_restructuring() && self.store.pool().is_at_rest();
            is_done || self.is_cut_off || self.store.pool().has_ended()
        };
        self.run(poll_fn(|_| if is_at_rest() { Poll::Ready(()) } else { Poll::Pending }));
        let _ = self.seat.was_stirred();
    }
}

impl Drop for Ground {
    /// Leaves the pool, unless it is lost anyway.
    fn drop(&mut self) {
        if !std::thread::panicking() && self.arrive() {
            let left = self.run(boxed(self.store.clone().close()));
            if let Err(error) = left {
                tracing::debug!("could not leave the pool: {error}");
            }
        }
        self.store.clone().abandon();
        self.seat.clear();
    }
}
