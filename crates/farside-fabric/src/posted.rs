//! What is under way: the futures that a backend's methods return.
//!
//! On the path: between an operation and the backend that carries its verb out. They are concrete types,
//! so that one compiled copy of a protocol serves every backend. What completes at once (mapped memory)
//! is [`Posted::done`] and costs a test; the others are polled out of line.

use core::fmt;
use core::future::{Future, poll_fn};
use core::pin::{Pin, pin};
use core::task::{Context, Poll, Waker};

use crate::error::FabricError;
#[cfg(feature = "sim")]
use crate::sim;

/// What a future comes to if nothing in it waits, as over mapped memory; `None` if something does, and the future is dropped.
#[inline]
pub fn at_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// What several futures come to, in their order. Whenever one may go on all are polled that are not ready: this is for a few.
pub async fn join_all<T>(mut futures: Vec<LocalFuture<'_, T>>) -> Vec<T> {
    let mut outputs: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    poll_fn(|context| {
        let mut is_waited_for = false;
        for (future, output) in futures.iter_mut().zip(&mut outputs) {
            if output.is_none() {
                match future.as_mut().poll(context) {
                    Poll::Ready(ready) => *output = Some(ready),
                    Poll::Pending => is_waited_for = true,
                }
            }
        }
        if is_waited_for { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    outputs.into_iter().flatten().collect()
}

/// A future on one thread, whatever is in it.
pub type LocalFuture<'c, T> = Pin<Box<dyn Future<Output = T> + 'c>>;

/// A verb or a batch that was posted. Its output is the word that the verb returns, or 0.
#[must_use = "the result is known when it has been awaited"]
pub struct Posted<'c>(State<'c>);

enum State<'c> {
    Done(Result<u128, FabricError>),
    Remote(LocalFuture<'c, Result<u128, FabricError>>),
    #[cfg(feature = "sim")]
    Simulated(sim::InFlight<'c>),
}

impl<'c> Posted<'c> {
    /// It has completed.
    #[inline]
    pub fn done(result: Result<u128, FabricError>) -> Self {
        Self(State::Done(result))
    }

    /// It completes when this future does.
    pub fn later(future: impl Future<Output = Result<u128, FabricError>> + 'c) -> Self {
        Self(State::Remote(Box::pin(future)))
    }

    #[cfg(feature = "sim")]
    #[inline]
    pub(crate) fn simulated(flight: sim::InFlight<'c>) -> Self {
        Self(State::Simulated(flight))
    }
}

impl Future for Posted<'_> {
    type Output = Result<u128, FabricError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.get_mut().0 {
            State::Done(result) => Poll::Ready(*result),
            later => later.poll(context),
        }
    }
}

impl State<'_> {
    #[inline(never)]
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<u128, FabricError>> {
        match self {
            Self::Done(result) => Poll::Ready(*result),
            Self::Remote(future) => future.as_mut().poll(context),
            #[cfg(feature = "sim")]
            Self::Simulated(flight) => flight.poll(context),
        }
    }
}

impl fmt::Debug for Posted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            State::Done(result) => write!(f, "completed: {result:?}"),
            _ => f.write_str("in flight"),
        }
    }
}

/// What may be there at once, and else comes later: the result of an operation, a message, a sleep, a fence. What is there
/// was done in the call, whether anybody awaits it or not; what comes later is done as it is polled.
#[must_use = "the result is known when it has been awaited"]
pub struct Soon<'c, T>(Due<'c, T>);

enum Due<'c, T> {
    Done(Option<T>),
    Later(LocalFuture<'c, T>),
}

/// Nothing in it is pinned but what is in the box.
impl<T> Unpin for Soon<'_, T> {}

impl<'c, T> Soon<'c, T> {
    /// It is there.
    #[inline]
    pub fn done(output: T) -> Self {
        Self(Due::Done(Some(output)))
    }

    /// It comes when this future is ready.
    pub fn later(future: impl Future<Output = T> + 'c) -> Self {
        Self::boxed(Box::pin(future))
    }

    /// The same of one that is on the heap already.
    pub fn boxed(future: LocalFuture<'c, T>) -> Self {
        Self(Due::Later(future))
    }
}

impl<T> Future for Soon<'_, T> {
    type Output = T;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match &mut self.get_mut().0 {
            Due::Done(output) => Poll::Ready(output.take().expect("a future is not polled after it was ready")),
            Due::Later(future) => future.as_mut().poll(context),
        }
    }
}

impl<T> fmt::Debug for Soon<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Due::Done(_) => "there",
            Due::Later(_) => "to come",
        })
    }
}
