//! Tasks, and several operations of one task in flight at once.
//!
//! [`Endpoint::spawn`](crate::Endpoint::spawn) starts a task beside the caller on the same thread. [`interleave`] drives several
//! futures inside one task: an operation that is about to miss the cache asks for the line, lets the
//! next operation run and comes back when the line is there (asynchronous memory access). The
//! executor is not involved in that, since it would cost more than the miss.

use core::cell::Cell;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::rc::Rc;

use crate::posted::LocalFuture;

/// A task: it runs beside others on one thread.
pub type Task = LocalFuture<'static, ()>;

/// Shared by the operations that [`interleave`] drives: says that one of them merely yielded.
#[derive(Clone, Default, Debug)]
pub struct Pipeline {
    yielded: Rc<Cell<bool>>,
}

impl Pipeline {
    /// Lets the other operations of the pipeline run once.
    #[inline]
    pub fn turn(&self) -> Turn<'_> {
        Turn { pipeline: Some(self) }
    }
}

/// Completes when the other operations of a pipeline have run once. Written by hand, since it is at the
/// bottom of every operation that is interleaved, and each is resumed twice per GET.
#[must_use = "futures do nothing unless awaited"]
#[derive(Debug)]
pub struct Turn<'a> {
    pipeline: Option<&'a Pipeline>,
}

impl Turn<'_> {
    /// Completes at once.
    #[inline]
    pub(crate) fn none() -> Self {
        Self { pipeline: None }
    }
}

impl Future for Turn<'_> {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        match self.pipeline.take() {
            Some(pipeline) => {
                // No waker: `interleave` polls everyone again when it sees the mark.
                pipeline.yielded.set(true);
                Poll::Pending
            }
            None => Poll::Ready(()),
        }
    }
}

/// How many rounds `interleave` polls before it lets other tasks of the thread run.
const ROUNDS_PER_POLL: usize = 256;

/// Drives all `operations` to completion, round robin, and returns when the last is done. They
/// should share `pipeline` through their [`OpContext`](crate::OpContext)s.
pub async fn interleave<F: Future<Output = ()>>(pipeline: &Pipeline, operations: Vec<F>) {
    let mut pending: Vec<Pin<Box<F>>> = operations.into_iter().map(Box::pin).collect();
    core::future::poll_fn(|context| {
        for _ in 0..ROUNDS_PER_POLL {
            pipeline.yielded.set(false);
            let mut index = 0;
            while index < pending.len() {
                match pending[index].as_mut().poll(context) {
                    Poll::Ready(()) => drop(pending.swap_remove(index)),
                    Poll::Pending => index += 1,
                }
            }
            if pending.is_empty() {
                return Poll::Ready(());
            }
            if !pipeline.yielded.get() {
                // Everyone waits for something outside, and has left the task's waker there.
                return Poll::Pending;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
