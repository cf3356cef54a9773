//! A node's side: its memory, made known to a device, and a queue pair for each client.
//!
//! On the path: once per client. Afterwards the node's processor has no part in the verbs.

use core::cell::UnsafeCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use super::completion_queue::CompletionQueue;
use super::device::{Device, MemoryRegion};
use super::error::RdmaError;
use super::exchange::Address;
use super::queue_pair::{Purpose, QueuePair};
use crate::host::HostRandom;
use crate::shm::{NicUse, Segment, SegmentError};

/// Work requests of a node's ends, which post none.
const DEPTH: u32 = 1;

/// Why a segment cannot be exported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// Of the device.
    #[error(transparent)]
    Rdma(#[from] RdmaError),
    /// Of the segment.
    #[error(transparent)]
    Segment(#[from] SegmentError),
}

/// A segment's memory that a device serves. While it is there, nobody maps the segment: verbs of processes that have
/// mapped it before fail as if the node were gone.
#[derive(Debug)]
pub struct Export {
    // In this order: clients on this machine come back when the device has let go.
    region: MemoryRegion,
    device: Arc<Device>,
    _use: NicUse,
}

impl Export {
    /// Makes the memory of a segment known to a device.
    ///
    /// # Errors
    /// [`RdmaError::Registration`] if the memory cannot be locked; of the segment, if somebody else exports it.
    pub fn new(segment: &Segment, device: &Arc<Device>) -> Result<Self, ExportError> {
        let nic_use = segment.use_by_nic()?;
        Ok(Self {
            region: device.register_node(segment.region())?,
            device: device.clone(),
            _use: nic_use,
        })
    }

    /// The device that serves it.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Begins to serve, on this thread.
    pub(crate) fn serve(self) -> io::Result<Exported> {
        let queue = CompletionQueue::new(&self.device, 1).map_err(io::Error::other)?;
        Ok(Exported {
            export: self,
            queue: Rc::new(queue),
            random: HostRandom::new(),
        })
    }
}

/// An export that is being served.
pub(crate) struct Exported {
    export: Export,
    /// Of all clients' ends; nothing is ever announced here, since nothing is posted.
    queue: Rc<CompletionQueue>,
    random: HostRandom,
}

/// The node's end of a client's queue pair. When it is dropped, no verb of the client takes effect any more.
pub(crate) struct NodeEnd {
    // In this order: the device lets go of the word with the pair.
    _pair: QueuePair,
    _scratch: Scratch,
}

/// A word of a client's own, to try verbs on.
struct Scratch {
    // In this order: the memory outlives its registration.
    region: MemoryRegion,
    _word: Box<UnsafeCell<u128>>,
}

impl Scratch {
    fn new(device: &Arc<Device>) -> Result<Self, RdmaError> {
        let word = Box::new(UnsafeCell::new(0));
        // SAFETY: the word stays where it is until the region is dropped, and nobody here looks at it.
        let region = unsafe { MemoryRegion::for_others(device, word.get().cast(), size_of::<u128>() as u64)? };
        Ok(Self { region, _word: word })
    }
}

impl Exported {
    /// A queue pair for the client that is at `client`, and where it is.
    pub(crate) fn connect(&self, client: &Address) -> Result<(NodeEnd, Address), RdmaError> {
        let pair = QueuePair::create(
            &self.queue,
            DEPTH,
            self.random.random(),
            Purpose::Verbs { takes_entries: false },
        )?;
        pair.connect(client)?;
        let scratch = Scratch::new(&self.export.device)?;
        let address = pair.address(Some((&self.export.region, &scratch.region)));
        let end = NodeEnd {
            _pair: pair,
            _scratch: scratch,
        };
        Ok((end, address))
    }
}
