//! An endpoint whose tasks run when its thread comes by.
//!
//! On the path: between a session and the fabric. Verbs go straight through. What a store spawns is kept
//! here, and polled by [`Seat::drive`] beside the operation; over mapped memory a sleep is one of the
//! thread itself, so that no event loop is needed and an operation that completes at once costs nothing.

use core::cell::{Cell, RefCell};
use core::future::poll_fn;
use core::pin::{Pin, pin};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::rc::Rc;

use farside_fabric::{
    Batch, Buffer, Capabilities, Clock, Counters, Deadline, Endpoint, EndpointId, FabricError, Fence, Fencing, Message,
    Messages, NodeId, Random, Received, RemoteAddr, Spawn, Verb, Verbs, View,
};

/// Sleeps shorter than this are spent looking at the clock: waking up takes about as long.
const NAP_NS: u64 = 60_000;
/// The longest sleep between two looks at the tasks.
const SLEEP_NS_MAX: u64 = 1_000_000;

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// See the module. Clones are the same endpoint.
#[derive(Clone)]
pub(super) struct Seat<E> {
    endpoint: E,
    shared: Rc<Shared>,
}

struct Shared {
    /// Whether sleeping is the thread's own business.
    is_mapped: bool,
    tasks: RefCell<Vec<Task>>,
    /// Whether a task was started or polled since somebody asked.
    is_stirred: Cell<bool>,
    /// When the first of those that sleep wants to be woken.
    wake_ns: Cell<u64>,
}

impl<E> core::fmt::Debug for Seat<E> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let tasks = self.shared.tasks.borrow().len();
        f.debug_struct("Seat").field("tasks", &tasks).finish_non_exhaustive()
    }
}

impl<E: Endpoint> Seat<E> {
    /// With `is_mapped` its verbs must complete at once.
    pub(super) fn new(endpoint: E, is_mapped: bool) -> Self {
        Self {
            endpoint,
            shared: Rc::new(Shared {
                is_mapped,
                tasks: RefCell::default(),
                is_stirred: Cell::new(false),
                wake_ns: Cell::new(u64::MAX),
            }),
        }
    }

    /// Whether a task was started or polled since this was last asked.
    #[inline]
    pub(super) fn was_stirred(&self) -> bool {
        self.shared.is_stirred.replace(false)
    }

    /// Drops all tasks; they hold the seat, and it them.
    pub(super) fn clear(&self) {
        let tasks = core::mem::take(&mut *self.shared.tasks.borrow_mut());
        drop(tasks);
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
    pub(super) async fn drive<F: Future>(&self, future: F) -> F::Output {
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
    pub(super) fn block_on<F: Future>(&self, future: F) -> F::Output {
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
        let left = self.shared.wake_ns.get().saturating_sub(self.endpoint.now_ns());
        if left < NAP_NS || self.shared.wake_ns.get() == u64::MAX {
            std::thread::yield_now();
            return;
        }
        #[expect(clippy::disallowed_methods, reason = "this thread has nothing else to do")]
        std::thread::sleep(Duration::from_nanos(left.min(SLEEP_NS_MAX)));
    }
}

impl<E: Endpoint> Verbs for Seat<E> {
    fn node_count(&self) -> usize {
        self.endpoint.node_count()
    }

    fn node_bytes(&self, node: NodeId) -> Result<u64, FabricError> {
        self.endpoint.node_bytes(node)
    }

    fn capabilities(&self) -> Capabilities {
        self.endpoint.capabilities()
    }

    fn buffer(&self, bytes: usize) -> Buffer {
        self.endpoint.buffer(bytes)
    }

    /// No `async fn`: mapped memory executes the verb at the call.
    #[inline(always)]
    fn execute(
        &self,
        verb: Verb,
        buffer: &mut Buffer,
        deadline: Deadline,
    ) -> impl Future<Output = Result<u128, FabricError>> {
        self.endpoint.execute(verb, buffer, deadline)
    }

    #[inline]
    fn post(
        &self,
        batch: &mut Batch,
        buffer: &mut Buffer,
        deadline: Deadline,
    ) -> impl Future<Output = Result<(), FabricError>> {
        self.endpoint.post(batch, buffer, deadline)
    }

    #[inline]
    fn prefetch(&self, addr: RemoteAddr, bytes: u32) -> bool {
        self.endpoint.prefetch(addr, bytes)
    }

    #[inline]
    fn view(&self, addr: RemoteAddr, bytes: u32) -> Option<View<'_>> {
        self.endpoint.view(addr, bytes)
    }

    #[inline]
    fn forget(&self, addr: RemoteAddr, bytes: u64) {
        self.endpoint.forget(addr, bytes);
    }

    fn counters(&self) -> &Counters {
        self.endpoint.counters()
    }
}

impl<E: Endpoint> Messages for Seat<E> {
    fn id(&self) -> EndpointId {
        self.endpoint.id()
    }

    async fn send(&self, peer: EndpointId, message: &Message, deadline: Deadline) -> Result<(), FabricError> {
        self.endpoint.send(peer, message, deadline).await
    }

    async fn receive(&self, deadline: Deadline) -> Result<Received, FabricError> {
        self.endpoint.receive(deadline).await
    }

    fn try_receive(&self) -> Result<Option<Received>, FabricError> {
        self.endpoint.try_receive()
    }
}

impl<E: Endpoint> Fencing for Seat<E> {
    async fn fence(&self, peer: EndpointId, deadline: Deadline) -> Result<Fence, FabricError> {
        self.endpoint.fence(peer, deadline).await
    }
}

impl<E: Endpoint> Clock for Seat<E> {
    #[inline]
    fn now_ns(&self) -> u64 {
        self.endpoint.now_ns()
    }

    fn unix_ms(&self) -> u64 {
        self.endpoint.unix_ms()
    }

    async fn sleep(&self, duration_ns: u64) {
        if !self.shared.is_mapped {
            return self.endpoint.sleep(duration_ns).await;
        }
        let end_ns = self.now_ns().saturating_add(duration_ns);
        let mut has_yielded = false;
        poll_fn(|_| {
            // With nothing to wait for it lets the others run once.
            if core::mem::replace(&mut has_yielded, true) && self.now_ns() >= end_ns {
                return Poll::Ready(());
            }
            self.shared.wake_ns.set(self.shared.wake_ns.get().min(end_ns));
            Poll::Pending
        })
        .await;
    }
}

impl<E: Endpoint> Random for Seat<E> {
    #[inline]
    fn random(&self) -> u64 {
        self.endpoint.random()
    }
}

impl<E: Endpoint> Spawn for Seat<E> {
    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.shared.is_stirred.set(true);
        self.shared.tasks.borrow_mut().push(Box::pin(task));
    }
}
