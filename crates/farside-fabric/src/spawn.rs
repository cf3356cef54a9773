//! Tasks, and several operations of one task in flight at once.
//!
//! [`Spawn`] starts a task beside the caller on the same thread. [`interleave`] drives several
//! futures inside one task: an operation that is about to miss the cache asks for the line, lets the
//! next operation run and comes back when the line is there (asynchronous memory access). The
//! executor is not involved in that, since it would cost more than the miss.

use core::cell::Cell;
use core::future::Future;
use core::pin::Pin;
use core::task::Poll;
use std::rc::Rc;

/// Starts tasks on the thread of the endpoint.
pub trait Spawn {
    /// Runs `task` beside the caller. It ends with the endpoint's runtime, or when the simulator
    /// crashes the client.
    fn spawn(&self, task: impl Future<Output = ()> + 'static);
}

/// Shared by the operations that [`interleave`] drives: says that one of them merely yielded.
#[derive(Clone, Default, Debug)]
pub struct Pipeline {
    yielded: Rc<Cell<bool>>,
}

impl Pipeline {
    /// Lets the other operations of the pipeline run once.
    #[inline]
    pub async fn turn(&self) {
        let mut turned = false;
        core::future::poll_fn(|_| {
            if turned {
                return Poll::Ready(());
            }
            turned = true;
            // No waker: `interleave` polls everyone again when it sees the mark.
            self.yielded.set(true);
            Poll::Pending
        })
        .await;
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
