//! The one loop that every measured client runs, on every fabric.

use core::cell::{Cell, RefCell};
use std::rc::Rc;

use farside_fabric::{CounterSnapshot, Endpoint, OpContext};
use farside_lock::backoff::give_way;

use crate::error::BenchError;
use crate::program::Client;
use crate::recorder::{Ended, Recorder, Window};

/// After how many operations a client lets others run. Where verbs complete at once it would
/// otherwise keep its thread, and the pool's housekeeping would starve.
const STEPS_PER_TURN: u64 = 64;

/// Lets others run now and then: called by a client that has done so many operations.
pub(crate) async fn take_turns(done: u64) {
    if done.is_multiple_of(STEPS_PER_TURN) {
        give_way().await;
    }
}

/// What clients have posted, and how often they have tried again.
#[derive(Clone, Copy, Default, Debug)]
pub struct Effort {
    /// Verbs.
    pub posted: CounterSnapshot,
    /// Retries, those of operations that are still under way included.
    pub retries: u64,
}

impl Effort {
    /// What was added since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            posted: self.posted.since(&earlier.posted),
            retries: self.retries - earlier.retries,
        }
    }

    /// The sum of two efforts.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            posted: self.posted.plus(&other.posted),
            retries: self.retries + other.retries,
        }
    }
}

/// Watches the clients of one endpoint.
#[derive(Debug)]
pub struct Meter {
    endpoint: Endpoint,
    window: Window,
    retries: RefCell<Vec<Rc<Cell<u64>>>>,
    at_start: Cell<Option<Effort>>,
    at_end: Cell<Option<Effort>>,
    /// When the operation began that is under way, unless the client has stopped.
    begun_ns: Cell<Option<u64>>,
}

impl Meter {
    /// A meter that has no client yet.
    #[must_use]
    pub fn new(endpoint: Endpoint, window: Window) -> Self {
        Self {
            endpoint,
            window,
            retries: RefCell::default(),
            at_start: Cell::default(),
            at_end: Cell::default(),
            begun_ns: Cell::default(),
        }
    }

    /// When the operation began that is under way, for a meter that watches one client.
    #[must_use]
    pub fn begun_ns(&self) -> Option<u64> {
        self.begun_ns.get()
    }

    /// Watches another client.
    pub fn watch(&self, cx: &OpContext) {
        self.retries.borrow_mut().push(cx.retry_meter());
    }

    /// The effort so far.
    #[must_use]
    pub fn now(&self) -> Effort {
        Effort {
            posted: self.endpoint.counters().snapshot(),
            retries: self.retries.borrow().iter().map(|retries| retries.get()).sum(),
        }
    }

    /// Notes that it is `now_ns`, so that the effort at both ends of the window is known.
    #[inline]
    fn pass(&self, now_ns: u64) {
        if self.at_end.get().is_some() {
            return;
        }
        if self.at_start.get().is_none() && now_ns >= self.window.start_ns {
            self.at_start.set(Some(self.now()));
        }
        if now_ns >= self.window.end_ns {
            self.at_end.set(Some(self.now()));
        }
    }

    /// The effort within the window, up to now if that has not ended.
    #[must_use]
    pub fn within_window(&self) -> Effort {
        let end = self.at_end.get().unwrap_or_else(|| self.now());
        end.since(&self.at_start.get().unwrap_or(end))
    }
}

/// Lets a client do operations until the window is over or it has nothing left to do. Its core computes for so long before each.
///
/// # Errors
/// The first error of an operation.
pub async fn drive<C: Client>(
    client: &mut C,
    cx: &mut OpContext,
    compute_ns: u64,
    recorder: &RefCell<Recorder>,
    meter: &Meter,
) -> Result<(), BenchError> {
    let end_ns = recorder.borrow().window().end_ns;
    let mut begun_ns = cx.endpoint().now_ns();
    meter.watch(cx);
    meter.pass(begun_ns);
    for number in 1_u64.. {
        meter.begun_ns.set(Some(begun_ns));
        if compute_ns > 0 {
            cx.endpoint().compute(compute_ns).await;
        }
        let Some(step) = client.step(cx).await? else { break };
        let ended_ns = cx.endpoint().now_ns();
        meter.pass(ended_ns);
        recorder.borrow_mut().record(Ended {
            begun_ns,
            step,
            ended_ns,
        });
        if ended_ns >= end_ns {
            break;
        }
        begun_ns = ended_ns;
        take_turns(number).await;
    }
    meter.begun_ns.set(None);
    Ok(())
}
