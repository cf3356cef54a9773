//! Collects what the device says is done, for all links of an endpoint.
//!
//! On the path: a task of the endpoint. While work requests are under way it looks again and again, and lets the other
//! tasks of the thread run in between; when nothing has come for a while, it sleeps until the device announces something.
//! Not for long: some drivers forget an announcement when a completion and the wish to hear of it meet. Then it also
//! looks for links on which nothing moves any more.

use core::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use tokio::sync::Notify;

use super::completion_queue::{Announcements, CompletionQueue};
use super::device::Device;
use super::error::RdmaError;
use super::ffi::WorkCompletion;
use super::link::Link;
use crate::clock::Deadline;
use crate::host::HostClock;

/// How many completions are taken out at once.
const BURST: usize = 32;
/// How long to look before sleeping: a little more than a verb takes on a quiet network.
const LINGER_NS: u64 = 15_000;
/// How long to sleep before looking anyway.
const SLEEP_NS: u64 = 2_000_000;
/// How often to look for links that are stuck.
const WATCH_INTERVAL_NS: u64 = 100_000_000;
/// Work requests of one link that may be under way.
pub(super) const DEPTH: u32 = 256;

/// One completion queue, and whom its completions concern.
pub(crate) struct Poller {
    queue: Rc<CompletionQueue>,
    links: RefCell<BTreeMap<u32, Weak<Link>>>,
    /// Work requests under way.
    outstanding: Cell<usize>,
    /// Rings when there is work, or no more to come.
    changed: Notify,
    is_stopped: Cell<bool>,
}

impl Poller {
    /// For so many nodes.
    pub(crate) fn new(device: &Arc<Device>, nodes: usize) -> Result<Self, RdmaError> {
        // Each work request may complete, with an error if not otherwise; and what is left of a queue pair that has
        // been replaced may be there too.
        let entries = u32::try_from(nodes).unwrap_or(u32::MAX).saturating_mul(2 * DEPTH);
        let entries = entries.min(device.completions_max());
        Ok(Self {
            queue: Rc::new(CompletionQueue::new(device, entries)?),
            links: RefCell::default(),
            outstanding: Cell::new(0),
            changed: Notify::new(),
            is_stopped: Cell::new(false),
        })
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        self.queue.device()
    }

    pub(super) fn queue(&self) -> &Rc<CompletionQueue> {
        &self.queue
    }

    /// Completions of queue pair `number` concern `link`.
    pub(super) fn add(&self, number: u32, link: Weak<Link>) {
        self.links.borrow_mut().insert(number, link);
    }

    /// The queue pair is gone, and `lost` of its work requests with it.
    pub(super) fn remove(&self, number: u32, lost: usize) {
        self.links.borrow_mut().remove(&number);
        self.done(lost);
    }

    /// So many work requests have been posted.
    #[inline]
    pub(super) fn posted(&self, count: usize) {
        if self.outstanding.replace(self.outstanding.get() + count) == 0 {
            self.changed.notify_one();
        }
    }

    /// So many work requests are no longer under way.
    #[inline]
    pub(super) fn done(&self, count: usize) {
        self.outstanding.set(self.outstanding.get() - count);
    }

    /// Ends the task.
    pub(crate) fn stop(&self) {
        self.is_stopped.set(true);
        self.changed.notify_one();
    }

    /// Takes out what is there. Returns whether there was anything.
    fn poll(&self) -> bool {
        let mut completions = [WorkCompletion::default(); BURST];
        let mut is_any = false;
        loop {
            let count = self.queue.poll(&mut completions);
            for completion in &completions[..count] {
                let link = self.links.borrow().get(&completion.qp_num).and_then(Weak::upgrade);
                // Of a queue pair that is gone there may be remains.
                if let Some(link) = link {
                    link.completed(completion);
                }
            }
            is_any |= count > 0;
            if count < BURST {
                return is_any;
            }
        }
    }

    /// Collects until the poller is stopped.
    pub(crate) async fn drive(self: Rc<Self>) {
        let announcements = Announcements::of(&self.queue);
        let (mut linger_until_ns, mut watch_at_ns) = (0, 0);
        while !self.is_stopped.get() {
            let is_any = self.poll();
            let now_ns = HostClock.now_ns();
            if now_ns >= watch_at_ns {
                self.watch(now_ns);
                watch_at_ns = now_ns + WATCH_INTERVAL_NS;
            }
            if is_any {
                linger_until_ns = now_ns + LINGER_NS;
            } else if self.outstanding.get() == 0 {
                self.changed.notified().await;
                linger_until_ns = HostClock.now_ns() + LINGER_NS;
                continue;
            } else if now_ns >= linger_until_ns {
                self.queue.arm();
                // What came before is not announced.
                if !self.poll() {
                    announcements.next(Deadline(now_ns + SLEEP_NS)).await;
                }
                linger_until_ns = HostClock.now_ns() + LINGER_NS;
                continue;
            }
            // Whoever was woken goes on, and posts the next.
            tokio::task::yield_now().await;
        }
    }

    /// Gives up links on which nothing moves any more.
    fn watch(&self, now_ns: u64) {
        let links: Vec<Rc<Link>> = self.links.borrow().values().filter_map(Weak::upgrade).collect();
        for link in links {
            link.watch(now_ns);
        }
    }
}
