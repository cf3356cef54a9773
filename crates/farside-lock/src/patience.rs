//! Giving up, or being dropped, without leaving a queue broken.
//!
//! On the path: around an acquire of a queue lock that has a deadline. A client that has queued up cannot
//! simply go: whoever is in front will hand the lock over to it, and whoever is behind waits for it to
//! pass it on. So when the deadline passes the caller gets its answer, and what was begun goes on as a
//! task of its own, to the end: it is granted the lock, and gives it back at once.

use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::Poll;

use farside_fabric::{Deadline, Endpoint, FabricError, LocalFuture, OpContext, RemoteAddr, Task};

use crate::LockError;

/// What is done with a result that nobody waits for any more.
pub type Later<T> = Box<dyn FnOnce(T) -> Task>;

/// What is carried on without its caller: see [`carry`].
struct Carried<T: 'static> {
    endpoint: Endpoint,
    left: Option<(LocalFuture<'static, T>, Later<T>)>,
}

impl<T: 'static> Drop for Carried<T> {
    fn drop(&mut self) {
        if let Some((work, later)) = self.left.take() {
            self.endpoint.spawn(async move { later(work.await).await });
        }
    }
}

/// The result of `work`, or `None` if the deadline passes first. Whether it passes or the caller is dropped, `work` goes on
/// as a task of its own, and `later` gets its result.
pub async fn carry<T: 'static>(
    endpoint: &Endpoint,
    deadline: Deadline,
    work: LocalFuture<'static, T>,
    later: Later<T>,
) -> Option<T> {
    let mut carried = Carried {
        endpoint: endpoint.clone(),
        left: Some((work, later)),
    };
    let left_ns = match deadline {
        Deadline::NEVER => None,
        deadline => Some(deadline.0.saturating_sub(endpoint.now_ns())),
    };
    let mut alarm = pin!(async {
        match left_ns {
            None => core::future::pending().await,
            Some(left_ns) => endpoint.sleep(left_ns).await,
        }
    });
    poll_fn(|context| {
        let (work, _) = carried.left.as_mut().expect("it is taken out when it is done");
        match work.as_mut().poll(context) {
            Poll::Ready(result) => {
                carried.left = None;
                Poll::Ready(Some(result))
            }
            Poll::Pending => alarm.as_mut().poll(context).map(|()| None),
        }
    })
    .await
}

/// As [`carry`], for callers that have not begun anything which would have to be ended if they were dropped without a deadline:
/// then nothing is allocated.
pub(crate) async fn until<W: Future + 'static, L: Future<Output = ()> + 'static>(
    endpoint: &Endpoint,
    deadline: Deadline,
    work: W,
    later: impl FnOnce(W::Output) -> L + 'static,
) -> Option<W::Output> {
    if deadline == Deadline::NEVER {
        return Some(work.await);
    }
    carry(
        endpoint,
        deadline,
        Box::pin(work),
        Box::new(|result| Box::pin(later(result))),
    )
    .await
}

/// The result of a release. If the deadline passes first it goes on by itself, to the end.
pub(crate) async fn release(
    cx: &OpContext,
    entry: RemoteAddr,
    work: impl Future<Output = Result<(), LockError>> + 'static,
) -> Result<(), LockError> {
    match until(cx.endpoint(), cx.deadline(), work, async |_| ()).await {
        Some(done) => done,
        None => Err(FabricError::DeadlineExceeded { node: entry.node() }.into()),
    }
}
