//! Where the messages of all peers arrive: a shared receive queue and the memory behind it.
//!
//! On the path: RECEIVE. The device takes a place for each SEND that comes in, from whichever queue pair, and says so in the
//! completion queue; the place is posted again when its message has been copied out. When no place is left, the device asks
//! senders to come again later (receiver not ready), and nothing is lost.
//!
//! A place holds the sender's identity (8 bytes), then the message: the queue pair on which it came may be gone by the time
//! somebody looks.
//!
//! Invariant: a place is either posted, and nobody looks at it, or not, and the device does not touch it.

use core::mem::zeroed;
use core::ptr::{NonNull, null_mut};
use std::sync::Arc;

use super::device::Device;
use super::error::RdmaError;
use super::ffi::{self, ReceiveRequest, ScatterGather};
use crate::buffer::Buffer;
use crate::message::{EndpointId, MESSAGE_BYTES_MAX, Message};

/// Bytes of a place.
pub(super) const PLACE_BYTES: u32 = (PLACE_WORDS * 8) as u32;
const PLACE_WORDS: usize = 1 + MESSAGE_BYTES_MAX / 8;

/// What a place holds, and how many bytes of it count.
pub(super) type Envelope = ([u64; PLACE_WORDS], u32);

/// Puts a message and its sender together.
pub(super) fn seal(from: EndpointId, message: &Message) -> Envelope {
    let mut words = [0; PLACE_WORDS];
    words[0] = from.0.to_le();
    for (word, bytes) in words[1..].iter_mut().zip(message.chunks(8)) {
        let mut filled = [0; 8];
        filled[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_ne_bytes(filled);
    }
    (words, 8 + message.len() as u32)
}

/// The sender and the message; `None` if nobody has put them together.
fn open((words, bytes): &Envelope) -> Option<(EndpointId, Message)> {
    let length = (*bytes as usize).checked_sub(8)?;
    let mut text = [0; MESSAGE_BYTES_MAX];
    for (chunk, word) in text.chunks_exact_mut(8).zip(&words[1..]) {
        chunk.copy_from_slice(&word.to_ne_bytes());
    }
    let message = Message::try_from(text.get(..length)?).ok()?;
    Some((EndpointId(u64::from_le(words[0])), message))
}

/// A shared receive queue.
pub(super) struct ReceiveQueue {
    device: Arc<Device>,
    handle: NonNull<ffi::SharedReceivesHandle>,
    places: *mut u64,
    key: u32,
    count: u32,
    /// The memory of the places, freed after the queue.
    _memory: Buffer,
}

impl ReceiveQueue {
    /// A queue with up to `count` places; none is posted yet.
    pub(super) fn new(device: &Arc<Device>, count: u32) -> Result<Self, RdmaError> {
        let count = count.min(device.shared_receives_max());
        let mut memory = Buffer::unregistered(count as usize * PLACE_BYTES as usize);
        memory.memory_mut().register(device)?;
        // SAFETY: numbers and a pointer, for which zero is a value.
        let mut init: ffi::SharedReceivesInit = unsafe { zeroed() };
        (init.max_wr, init.max_sge) = (count, 1);
        // SAFETY: the domain is there, and the order to make the queue is ours.
        let handle = unsafe { (device.library().create_srq)(device.domain(), &raw mut init) };
        Ok(Self {
            device: device.clone(),
            handle: NonNull::new(handle).ok_or_else(|| device.failed("create a shared receive queue"))?,
            places: memory.as_mut_ptr().cast(),
            key: memory.memory().local_key().unwrap_or(0),
            count,
            _memory: memory,
        })
    }

    pub(super) fn handle(&self) -> *mut ffi::SharedReceivesHandle {
        self.handle.as_ptr()
    }

    /// How many places there are.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    fn place(&self, index: u32) -> *mut u64 {
        assert!(index < self.count, "one of the places");
        // SAFETY: inside the memory.
        unsafe { self.places.add(index as usize * PLACE_WORDS) }
    }

    /// Gives a place to the device, which names it by its index when a message is in it. Returns whether it took it.
    pub(super) fn post(&self, index: u32) -> bool {
        let mut entry = ScatterGather {
            addr: self.place(index) as u64,
            length: PLACE_BYTES,
            lkey: self.key,
        };
        let mut request = ReceiveRequest {
            wr_id: index.into(),
            next: null_mut(),
            sg_list: &raw mut entry,
            num_sge: 1,
        };
        let mut refused = null_mut();
        // SAFETY: the queue is a member of an open context, whose functions are there; the request is whole. The place stays
        // where it is until the queue is gone, and is looked at only when the device has given it back.
        unsafe {
            let post = (*self.device.context()).ops.post_srq_recv;
            let post = post.expect("a device with shared receive queues can post to them");
            post(self.handle(), &raw mut request, &raw mut refused) == 0
        }
    }

    /// What the device has put into a place that is no longer posted.
    pub(super) fn take(&self, index: u32, bytes: u32) -> Option<(EndpointId, Message)> {
        let place = self.place(index);
        // SAFETY: all words of the place. Volatile, since the device has written them.
        let words = core::array::from_fn(|word| unsafe { place.add(word).read_volatile() });
        open(&(words, bytes))
    }
}

impl Drop for ReceiveQueue {
    fn drop(&mut self) {
        // SAFETY: queue pairs hold their queue, so none is left; destroyed once. From here on no place is written.
        let code = unsafe { (self.device.library().destroy_srq)(self.handle.as_ptr()) };
        debug_assert_eq!(code, 0, "nothing holds the queue");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_message_survives_its_envelope(from: u64, bytes in proptest::collection::vec(any::<u8>(), 0..=MESSAGE_BYTES_MAX)) {
            let message = Message::try_from(&bytes[..]).expect("short enough");
            prop_assert_eq!(open(&seal(EndpointId(from), &message)), Some((EndpointId(from), message)));
        }

        #[test]
        fn whatever_comes_is_opened_or_refused(words: [u64; PLACE_WORDS], bytes in 0..200_u32) {
            let opened = open(&(words, bytes));
            prop_assert_eq!(opened.is_some(), (8..=PLACE_BYTES).contains(&bytes));
        }
    }
}
