//! A thread that runs its tasks when it comes by, without an event loop.
//!
//! On the path: between a program's call and the operation of an [`Endpoint`](crate::Endpoint) that was
//! [seated](crate::Endpoint::seated) here. What such an endpoint spawns is kept, and polled by [`Seat::drive`] beside the
//! operation; over mapped memory a sleep is one of the thread itself, and an operation that completes at once costs
//! nothing.

use core::cell::{Cell, RefCell};
use core::fmt;
use core::future::{Future, poll_fn};
use core::pin::{Pin, pin};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::rc::Rc;

use crate::host::HostClock;
use crate::spawn::Task;

/// Sleeps shorter than this are spent looking at the clock: waking up takes about as long.
const NAP_NS: u64 = 60_000;
/// The longest sleep between two looks at the tasks.
const SLEEP_NS_MAX: u64 = 1_000_000;

/// See the module. Clones are the same seat.
#[derive(Clone)]
pub struct Seat {
    shared: Rc<Shared>,
}

struct Shared {
    tasks: RefCell<Vec<Task>>,
    /// Whether a task was started or polled since somebody asked.
    is_stirred: Cell<bool>,
    /// When the first of those that sleep wants to be woken.
    wake_ns: Cell<u64>,
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tasks = self.shared.tasks.borrow().len();
        f.debug_struct("Seat").field("tasks", &tasks).finish_non_exhaustive()
    }
}

impl Default for Seat {
    fn default() -> Self {
        Self::new()
    }
}

impl Seat {
    /// A seat without tasks.
    #[must_use]
    pub fn new() -> Self {
        Self {
            shared: Rc::new(Shared {
                tasks: RefCell::default(),
                is_stirred: Cell::new(false),
                wake_ns: Cell::new(u64::MAX),
            }),
        }
    }

    /// Whether a task was started or polled since this was last asked.
    #[inline]
    #[must_use]
    pub fn was_stirred(&self) -> bool {
        self.shared.is_stirred.replace(false)
    }

    /// Drops all tasks; they hold the seat, and it them.
    pub fn clear(&self) {
        let tasks = core::mem::take(&mut *self.shared.tasks.borrow_mut());
        drop(tasks);
    }

    pub(crate) fn spawn(&self, task: Task) {
        self.shared.is_stirred.set(true);
        self.shared.tasks.borrow_mut().push(task);
    }

    pub(crate) async fn sleep(&self, duration_ns: u64) {
        let end_ns = HostClock.now_ns().saturating_add(duration_ns);
        let mut has_yielded = false;
        poll_fn(|_| {
            // With nothing to wait for it lets the others run once.
            if core::mem::replace(&mut has_yielded, true) && HostClock.now_ns() >= end_ns {
                return Poll::Ready(());
            }
            self.shared.wake_ns.set(self.shared.wake_ns.get().min(end_ns));
            Poll::Pending
        })
        .await;
    }

    fn poll_tasks(&self, context: &mut Context<'_>) {
        self.shared.is_stirred.set(true);
        // Taken out, since a task may start others.
        let mut tasks = core::mem::take(&mut *self.shared.tasks.borrow_mut());
        tasks.retain_mut(|task| task.as_mut().poll(context).is_pending());
        let mut kept = self.shared.tasks.borrow_mut();
        tasks.append(&mut kept);
        *kept = tasks;
    }

    /// `future` with the tasks beside it.
    pub async fn drive<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|context| {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(output);
            }
            self.poll_tasks(context);
            // It may have waited for one of them.
            future.as_mut().poll(context)
        })
        .await
    }

    /// Polls a future on this thread until it is done, which over mapped memory is usually at once.
    #[inline]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let mut context = Context::from_waker(Waker::noop());
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => output,
            Poll::Pending => self.wait_for(future, &mut context),
        }
    }

    #[cold]
    fn wait_for<F: Future>(&self, mut future: Pin<&mut F>, context: &mut Context<'_>) -> F::Output {
        loop {
            self.pause();
            self.shared.wake_ns.set(u64::MAX);
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return output;
            }
        }
    }

    /// Until the first sleeper wants to be woken.
    fn pause(&self) {
        let left = self.shared.wake_ns.get().saturating_sub(HostClock.now_ns());
        if left < NAP_NS || self.shared.wake_ns.get() == u64::MAX {
            std::thread::yield_now();
            return;
        }
        #[expect(clippy::disallowed_methods, reason = "this thread has nothing else to do")]
        std::thread::sleep(Duration::from_nanos(left.min(SLEEP_NS_MAX)));
    }
}
