//! Giving up without leaving a queue broken.
//!
//! On the path: around an acquire of a queue lock that has a deadline. A client that has queued up cannot
//! simply go: whoever is in front will hand the lock over to it, and whoever is behind waits for it to
//! pass it on. So when the deadline passes the caller gets its answer, and what was begun goes on as a
//! task of its own, to the end: it is granted the lock, and gives it back at once.

use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::Poll;

use farside_fabric::{Deadline, Endpoint, FabricError, OpContext, RemoteAddr};

use crate::LockError;

/// The result of `work`, or `None` if the deadline passes first; then `work` goes on without the caller, and
/// `later` gets its result.
///
/// Without a deadline nothing is allocated. Work that is done at its first poll is done, however late
/// it is.
pub(crate) async fn until<E: Endpoint, T: 'static, L: Future<Output = ()>>(
    endpoint: &E,
    deadline: Deadline,
    work: impl Future<Output = T> + 'static,
    later: impl FnOnce(T) -> L + 'static,
) -> Option<T> {
    if deadline == Deadline::NEVER {
        return Some(work.await);
    }
    let mut work = Box::pin(work);
    let left_ns = deadline.0.saturating_sub(endpoint.now_ns());
    let done = {
        let mut alarm = pin!(endpoint.sleep(left_ns));
        poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            Poll::Pending => alarm.as_mut().poll(context).map(|()| None),
        })
        .await
    };
    if done.is_none() {
        endpoint.spawn(async move { later(work.await).await });
    }
    done
}

/// The result of a release. If the deadline passes first it goes on by itself, to the end.
pub(crate) async fn release<E: Endpoint>(
    cx: &OpContext<E>,
    entry: RemoteAddr,
    work: impl Future<Output = Result<(), LockError>> + 'static,
) -> Result<(), LockError> {
    match until(cx.endpoint(), cx.deadline(), work, async |_| ()).await {
        Some(done) => done,
        None => Err(FabricError::DeadlineExceeded { node: entry.node() }.into()),
    }
}
