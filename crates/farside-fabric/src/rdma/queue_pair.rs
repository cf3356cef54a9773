//! A reliably connected queue pair, from its making to its end.
//!
//! On the path: a client has one for each node, a node one for each client; two clients have two for each direction in which
//! messages go. `create` -> INIT -> `connect` -> RTR -> RTS; an error of a work request ends it, and a new one takes its
//! place.
//!
//! Invariant: once a queue pair is dropped, its device touches no memory on its behalf, on either side.

use core::ffi::c_int;
use core::mem::zeroed;
use core::ptr::{NonNull, null_mut};
use std::rc::Rc;

use zerocopy::byteorder::little_endian::{U16, U32, U64};

use super::completion_queue::CompletionQueue;
use super::device::MemoryRegion;
use super::error::RdmaError;
use super::exchange::Address;
use super::ffi::{self, SendRequest};
use super::mlx5::{Entries, Entry};
use super::receive_queue::{PLACE_BYTES, ReceiveQueue};

/// How long the device waits for an answer before it repeats itself: 4.096 us * 2^16 = 0.27 s. It only matters when the
/// last packet of several is lost, since a gap is noticed at once; and a node that stands still for a second or two, as
/// an emulated one does, is not to be taken for dead. That its process is gone is known from the connection.
const TIMEOUT_CODE: u8 = 16;
/// How often it repeats itself. 7 would mean for ever on some devices, and a dead peer would go unnoticed.
const RETRIES: u8 = 6;
const _: () = assert!(RETRIES < 7);
/// How often it repeats itself to a receiver that is not ready: for ever. Such a receiver's device is alive.
const NOT_READY_RETRIES: u8 = 7;
/// How long a receiver that is not ready asks to be left alone: 0.64 ms.
const NOT_READY_CODE: u8 = 12;
/// How many hops packets may take.
const HOPS: u8 = 64;
/// How many bytes a WRITE may carry in its work request.
const INLINE_BYTES: u32 = 64;

/// What a queue pair is for.
#[derive(Clone, Copy)]
pub(super) enum Purpose<'a> {
    /// READs, WRITEs and atomics; entries as well if that is wished for and the device's driver makes such pairs.
    Verbs { takes_entries: bool },
    /// Messages to a peer.
    Sends,
    /// Messages from a peer, which are taken from the queue.
    Receives(&'a Rc<ReceiveQueue>),
}

/// One end of a connection.
pub(super) struct QueuePair {
    queue: Rc<CompletionQueue>,
    handle: NonNull<ffi::QueuePairHandle>,
    first_packet: u32,
    inline_bytes: u32,
    depth: u32,
    not_ready_retries: u8,
    /// Where what others SEND to it goes.
    _receives: Option<Rc<ReceiveQueue>>,
    /// Takes entries, if it was made for them.
    entries: Option<Entries>,
}

impl QueuePair {
    /// A queue pair that takes up to `depth` work requests. Completions come to `queue`.
    pub(super) fn create(
        queue: &Rc<CompletionQueue>,
        depth: u32,
        random: u64,
        purpose: Purpose<'_>,
    ) -> Result<Self, RdmaError> {
        let device = queue.device();
        let depth = depth.min(device.work_requests_max());
        let (takes_entries, inline_bytes, not_ready_retries) = match purpose {
            Purpose::Verbs { takes_entries } => (takes_entries, INLINE_BYTES, RETRIES),
            Purpose::Sends | Purpose::Receives(_) => (false, PLACE_BYTES, NOT_READY_RETRIES),
        };
        let receives = match purpose {
            Purpose::Receives(receives) => Some(receives),
            _ => None,
        };
        let mut init = ffi::QueuePairInit {
            qp_context: null_mut(),
            send_cq: queue.handle(),
            recv_cq: queue.handle(),
            srq: receives.map_or(null_mut(), |receives| receives.handle()),
            cap: ffi::QueuePairCapacity {
                max_send_wr: depth,
                max_recv_wr: 1,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: inline_bytes,
            },
            qp_type: ffi::QP_TYPE_RC,
            sq_sig_all: 0,
        };
        let driver = device.driver().filter(|_| takes_entries);
        // SAFETY: domain and queue are there, and of this context.
        let extended = driver.and_then(|driver| unsafe { driver.create(device.context(), device.domain(), &mut init) });
        let (handle, entries) = match extended {
            Some((handle, entries)) => (Some(handle), Some(entries)),
            // SAFETY: as above, and the order to make the pair is ours.
            None => unsafe {
                (
                    NonNull::new((device.library().create_qp)(device.domain(), &raw mut init)),
                    None,
                )
            },
        };
        let handle = handle.ok_or_else(|| device.failed("create a queue pair"))?;
        let made = Self {
            queue: queue.clone(),
            handle,
            first_packet: random as u32 & 0x00ff_ffff,
            inline_bytes: init.cap.max_inline_data,
            depth,
            not_ready_retries,
            _receives: receives.cloned(),
            entries,
        };
        made.initialise()?;
        Ok(made)
    }

    fn initialise(&self) -> Result<(), RdmaError> {
        let mut attributes = blank();
        attributes.qp_state = ffi::QP_STATE_INIT;
        attributes.port_num = self.queue.device().facts().port;
        attributes.qp_access_flags =
            (ffi::ACCESS_REMOTE_READ | ffi::ACCESS_REMOTE_WRITE | ffi::ACCESS_REMOTE_ATOMIC) as u32;
        let mask = ffi::MASK_STATE | ffi::MASK_PKEY_INDEX | ffi::MASK_PORT | ffi::MASK_ACCESS_FLAGS;
        self.modify("initialise a queue pair", attributes, mask)
    }

    fn modify(
        &self,
        action: &'static str,
        mut attributes: ffi::QueuePairAttributes,
        mask: c_int,
    ) -> Result<(), RdmaError> {
        let device = self.queue.device();
        // SAFETY: the pair is there; the attributes are only read.
        let code = unsafe { (device.library().modify_qp)(self.handle.as_ptr(), &raw mut attributes, mask) };
        device.check(action, code)
    }

    /// Where this end is. A node adds where its memory is, and the client's word to try verbs on.
    pub(super) fn address(&self, memory: Option<(&MemoryRegion, &MemoryRegion)>) -> Address {
        let device = self.queue.device();
        let named =
            |region: Option<&MemoryRegion>| region.map_or((0, 0), |region| (region.remote_base(), region.remote_key()));
        let (memory, scratch) = memory.unzip();
        let (base, key) = named(memory);
        let (scratch, scratch_key) = named(scratch);
        Address {
            gid: device.gid().0,
            number: U32::new(self.number()),
            packet: U32::new(self.first_packet),
            lid: U16::new(device.lid()),
            mtu: u8::try_from(device.mtu_code()).expect("1 to 5"),
            reads: device.reads_at_once().1,
            base: U64::new(base),
            key: U32::new(key),
            scratch: U64::new(scratch),
            scratch_key: U32::new(scratch_key),
        }
    }

    /// Connects this end to the other one.
    pub(super) fn connect(&self, peer: &Address) -> Result<(), RdmaError> {
        let device = self.queue.device();
        let facts = device.facts();
        let (reads_out, reads_in) = device.reads_at_once();
        let mut attributes = blank();
        attributes.qp_state = ffi::QP_STATE_RTR;
        attributes.path_mtu = device.mtu_code().min(peer.mtu.into());
        attributes.dest_qp_num = peer.number.get();
        attributes.rq_psn = peer.packet.get();
        attributes.max_dest_rd_atomic = reads_in;
        attributes.min_rnr_timer = NOT_READY_CODE;
        attributes.ah_attr.port_num = facts.port;
        attributes.ah_attr.dlid = peer.lid.get();
        if !facts.is_infiniband {
            attributes.ah_attr.is_global = 1;
            attributes.ah_attr.grh.dgid = ffi::Gid(peer.gid);
            attributes.ah_attr.grh.sgid_index = facts.gid_index;
            attributes.ah_attr.grh.hop_limit = HOPS;
        }
        let mask = ffi::MASK_STATE
            | ffi::MASK_AV
            | ffi::MASK_PATH_MTU
            | ffi::MASK_DEST_QPN
            | ffi::MASK_RQ_PSN
            | ffi::MASK_MAX_DEST_RD_ATOMIC
            | ffi::MASK_MIN_RNR_TIMER;
        self.modify("connect a queue pair", attributes, mask)?;
        let mut attributes = blank();
        attributes.qp_state = ffi::QP_STATE_RTS;
        attributes.timeout = TIMEOUT_CODE;
        attributes.retry_cnt = RETRIES;
        attributes.rnr_retry = self.not_ready_retries;
        attributes.sq_psn = self.first_packet;
        attributes.max_rd_atomic = reads_out.min(peer.reads);
        let mask = ffi::MASK_STATE
            | ffi::MASK_TIMEOUT
            | ffi::MASK_RETRY_CNT
            | ffi::MASK_RNR_RETRY
            | ffi::MASK_SQ_PSN
            | ffi::MASK_MAX_QP_RD_ATOMIC;
        self.modify("start a queue pair", attributes, mask)
    }

    /// Takes nothing more, and does nothing more.
    pub(super) fn stop(&self) -> Result<(), RdmaError> {
        let mut attributes = blank();
        attributes.qp_state = ffi::QP_STATE_ERROR;
        self.modify("stop a queue pair", attributes, ffi::MASK_STATE)
    }

    /// Its number, which completions name.
    pub(super) fn number(&self) -> u32 {
        // SAFETY: the handle is there until we are dropped, and nobody changes its number.
        unsafe { self.handle.as_ref() }.qp_num
    }

    /// How many work requests it takes before one of them is done.
    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    /// Whether it takes entries.
    pub(super) fn takes_entries(&self) -> bool {
        self.entries.is_some()
    }

    /// How many bytes a WRITE or a SEND may carry in its work request.
    pub(super) fn inline_bytes(&self) -> u32 {
        self.inline_bytes
    }

    /// Posts a chain of work requests with one doorbell.
    ///
    /// # Safety
    /// The chain and its scatter-gather entries must be whole; what the entries name must stay there until the
    /// request is done or the pair dropped, and nobody may rely on what a READ or an atomic may be writing.
    #[inline]
    pub(super) unsafe fn post(&self, chain: *mut SendRequest) -> bool {
        let mut refused = null_mut();
        // SAFETY: the pair is a member of an open context, whose functions are there; the chain by the caller's word.
        unsafe {
            let post = (*self.queue.device().context()).ops.post_send;
            post.expect("every device can post")(self.handle.as_ptr(), chain, &raw mut refused) == 0
        }
    }

    /// Posts one entry with a doorbell of its own.
    ///
    /// # Safety
    /// Where its answer goes must stay there until it is done or the pair dropped.
    ///
    /// # Panics
    /// If the pair takes none.
    #[inline]
    pub(super) unsafe fn post_entry(&self, number: u64, entry: &Entry) -> bool {
        let entries = self.entries.as_ref().expect("a pair that takes entries");
        // SAFETY: the face is of this pair, which is there; the rest by the caller's word.
        unsafe { entries.post(number, entry) }
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: made by the library and destroyed once. It returns when the device has let go of the pair.
        let code = unsafe { (self.queue.device().library().destroy_qp)(self.handle.as_ptr()) };
        debug_assert_eq!(code, 0, "nothing holds the pair");
    }
}

fn blank() -> ffi::QueuePairAttributes {
    // SAFETY: numbers only, for which zero is a value.
    unsafe { zeroed() }
}
