//! Where a device says which work requests are done.
//!
//! On the path: one for all verbs of an endpoint, polled by its poller, and one for its messages. A device that has nothing
//! to say is waited for through a file descriptor: whoever waits arms the queue, polls once more, since what came before is
//! not announced, and then waits.

use core::ffi::{c_int, c_void};
use core::ptr::{NonNull, null_mut};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::device::Device;
use super::error::RdmaError;
use super::ffi::{self, WorkCompletion};
use crate::clock::Deadline;
use crate::host::HostClock;

/// A completion queue and the channel that announces its completions.
pub(super) struct CompletionQueue {
    device: Arc<Device>,
    channel: NonNull<ffi::CompletionChannel>,
    queue: NonNull<ffi::CompletionQueueHandle>,
}

impl CompletionQueue {
    /// A queue with room for at least that many completions.
    pub(super) fn new(device: &Arc<Device>, entries: u32) -> Result<Self, RdmaError> {
        let library = device.library();
        // SAFETY: the device is open.
        let channel = unsafe { (library.create_comp_channel)(device.context()) };
        let channel = NonNull::new(channel).ok_or_else(|| device.failed("create a completion channel"))?;
        let entries = c_int::try_from(entries).expect("a few thousand");
        // SAFETY: device and channel are there; the first vector always is.
        let queue = unsafe { (library.create_cq)(device.context(), entries, null_mut(), channel.as_ptr(), 0) };
        let Some(queue) = NonNull::new(queue) else {
            let error = device.failed("create a completion queue");
            // SAFETY: made above, and used by nothing.
            unsafe { (library.destroy_comp_channel)(channel.as_ptr()) };
            return Err(error);
        };
        let made = Self {
            device: device.clone(),
            channel,
            queue,
        };
        rustix::io::ioctl_fionbio(made.borrowed(), true).map_err(|source| RdmaError::System {
            device: device.facts().name.clone(),
            action: "make the completion channel non-blocking",
            source: source.into(),
        })?;
        Ok(made)
    }

    pub(super) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(super) fn handle(&self) -> *mut ffi::CompletionQueueHandle {
        self.queue.as_ptr()
    }

    /// Takes completions out; returns how many there were.
    #[inline]
    pub(super) fn poll(&self, completions: &mut [WorkCompletion]) -> usize {
        // SAFETY: the queue is a member of an open context, whose functions are there; the slice is ours.
        let count = unsafe {
            let poll = (*self.device.context())
                .ops
                .poll_cq
                .expect("every device can be polled");
            poll(self.handle(), completions.len() as c_int, completions.as_mut_ptr())
        };
        // Negative if the queue is broken; the deadlines of what waits then say so.
        count.max(0) as usize
    }

    /// Has the next completion announced through the file descriptor.
    pub(super) fn arm(&self) {
        // SAFETY: as in `poll`.
        unsafe {
            let arm = (*self.device.context())
                .ops
                .req_notify_cq
                .expect("every device can announce");
            arm(self.handle(), 0);
        }
    }

    /// Takes announcements away, so that the file descriptor is no longer readable.
    fn clear_announcements(&self) {
        loop {
            let (mut queue, mut context): (_, *mut c_void) = (null_mut(), null_mut());
            // SAFETY: the channel does not block; both places are ours. What was got is acknowledged, once.
            unsafe {
                let library = self.device.library();
                if (library.get_cq_event)(self.channel.as_ptr(), &raw mut queue, &raw mut context) != 0 {
                    return;
                }
                (library.ack_cq_events)(queue, 1);
            }
        }
    }

    fn borrowed(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel's descriptor is open as long as the channel.
        unsafe { BorrowedFd::borrow_raw(self.as_raw_fd()) }
    }
}

impl AsRawFd for CompletionQueue {
    fn as_raw_fd(&self) -> RawFd {
        // SAFETY: the channel is there until we are dropped.
        unsafe { self.channel.as_ref() }.fd
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        let library = self.device.library();
        // SAFETY: queue pairs hold their queue, so none is left; all announcements were acknowledged; each is freed once.
        unsafe {
            (library.destroy_cq)(self.queue.as_ptr());
            (library.destroy_comp_channel)(self.channel.as_ptr());
        }
    }
}

/// A queue's descriptor, and the queue that keeps it open.
struct Descriptor(Rc<CompletionQueue>);

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Waits for what a queue announces.
pub(super) struct Announcements(Option<AsyncFd<Descriptor>>);

impl Announcements {
    /// Those of `queue`. Without a file descriptor that can be waited for, it is looked at all the time.
    pub(super) fn of(queue: &Rc<CompletionQueue>) -> Self {
        let descriptor = Descriptor(queue.clone());
        // SAFETY: the queue's descriptor is open and the same as long as the queue, which `descriptor` holds.
        let registered = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
        if registered.is_err() {
            tracing::warn!("no file descriptor can be waited for: looking for completions all the time");
        }
        Self(registered.ok())
    }

    /// Waits for one, or until `until`: some drivers forget one when a completion and the wish to hear of it meet.
    pub(super) async fn next(&self, until: Deadline) {
        let Some(registered) = &self.0 else {
            return HostClock.sleep(0).await;
        };
        let announced = async {
            if let Ok(mut ready) = registered.readable().await {
                registered.get_ref().0.clear_announcements();
                ready.clear_ready();
            }
        };
        HostClock.until(until, announced).await;
    }
}
