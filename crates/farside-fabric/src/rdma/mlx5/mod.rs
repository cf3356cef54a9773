//! Masked atomics of cards that the mlx5 driver serves (ConnectX), beyond what the verbs of libibverbs offer.
//!
//! On the path: a queue pair of such a card is made by the driver's own library, so that beside work requests it takes
//! *entries* that are written out here ([`Entry`]). Both may be posted to one queue pair in turn. The library is loaded
//! at run time like libibverbs; without it, or with another card, everything else works.
//!
//! What a card makes of an entry is not taken on trust: every connection tries it on a word of its own first
//! ([`native`](super::native)).

mod entry;

use core::ffi::{c_int, c_uint, c_void};
use core::ptr::{NonNull, null_mut};
#[cfg(feature = "rdma")]
use std::sync::OnceLock;

#[cfg(test)]
pub(super) use entry::{CONTROL_ANNOUNCE, CONTROL_FENCE, OPCODE_MASKED_ADD, OPCODE_MASKED_SWAP};
pub(super) use entry::{Entry, Frame};

use super::ffi::{
    CompletionQueueHandle, Context, DeviceHandle, ProtectionDomain, QueuePairCapacity, QueuePairHandle, QueuePairInit,
    SharedReceivesHandle,
};

/// `ibv_qp_init_attr_ex`.
#[repr(C)]
pub(crate) struct ExtendedInit {
    pub(super) qp_context: *mut c_void,
    pub(super) send_cq: *mut CompletionQueueHandle,
    pub(super) recv_cq: *mut CompletionQueueHandle,
    pub(super) srq: *mut SharedReceivesHandle,
    pub(super) cap: QueuePairCapacity,
    pub(super) qp_type: c_uint,
    pub(super) sq_sig_all: c_int,
    pub(super) comp_mask: u32,
    pub(super) pd: *mut ProtectionDomain,
    pub(super) xrcd: *mut c_void,
    pub(super) create_flags: u32,
    pub(super) max_tso_header: u16,
    pub(super) rwq_ind_tbl: *mut c_void,
    pub(super) rx_hash_conf: HashConfiguration,
    pub(super) source_qpn: u32,
    pub(super) send_ops_flags: u64,
}

/// `ibv_rx_hash_conf`.
#[repr(C)]
pub(crate) struct HashConfiguration {
    pub(super) rx_hash_function: u8,
    pub(super) rx_hash_key_len: u8,
    pub(super) rx_hash_key: *mut u8,
    pub(super) rx_hash_fields_mask: u64,
}

/// `mlx5dv_qp_init_attr`.
#[repr(C)]
pub(crate) struct DriverInit {
    pub(super) comp_mask: u64,
    pub(super) create_flags: u32,
    pub(super) dc_init_attr: [u64; 2],
    pub(super) send_ops_flags: u64,
}

/// `ibv_qp_ex`, up to the functions that are used.
#[repr(C)]
pub(crate) struct ExtendedQueuePair {
    base: QueuePairHandle,
    state: c_uint,
    qp_type: c_uint,
    mutex: libc::pthread_mutex_t,
    cond: libc::pthread_cond_t,
    events_completed: u32,
    pub(super) comp_mask: u64,
    pub(super) wr_id: u64,
    pub(super) wr_flags: c_uint,
    builders: [*const c_void; 17],
    pub(super) wr_start: Option<unsafe extern "C" fn(*mut ExtendedQueuePair)>,
    pub(super) wr_complete: Option<unsafe extern "C" fn(*mut ExtendedQueuePair) -> c_int>,
}

/// `mlx5dv_qp_ex`, up to the function that is used.
#[repr(C)]
pub(crate) struct DriverQueuePair {
    pub(super) comp_mask: u64,
    before_raw: [*const c_void; 8],
    pub(super) wr_raw_wqe: Option<unsafe extern "C" fn(*mut DriverQueuePair, *const c_void)>,
}

pub(super) const INIT_DOMAIN: u32 = 1;
pub(super) const DRIVER_INIT_CREATE_FLAGS: u64 = 1;
pub(super) const DRIVER_INIT_SEND_OPS: u64 = 1 << 2;
pub(super) const CREATE_WITHOUT_SCATTER_TO_CQE: u32 = 1 << 3;
pub(super) const WITH_RAW_ENTRIES: u64 = 1 << 3;

super::ffi::functions! {
    /// The driver's own functions, and one of libibverbs that older releases lack.
    Driver {
        is_supported: "mlx5dv_is_supported", fn(*mut DeviceHandle) -> bool;
        create_qp: "mlx5dv_create_qp", fn(*mut Context, *mut ExtendedInit, *mut DriverInit) -> *mut QueuePairHandle;
        of_extended: "mlx5dv_qp_ex_from_ibv_qp_ex", fn(*mut ExtendedQueuePair) -> *mut DriverQueuePair;
        // Of libibverbs, which the driver's library is linked with, so that it is found through it.
        extended: "ibv_qp_to_qp_ex", fn(*mut QueuePairHandle) -> *mut ExtendedQueuePair;
    }
}

impl Driver {
    /// The driver's library, if it is there and knows the device.
    pub(super) fn of(device: *mut DeviceHandle) -> Option<&'static Self> {
        let driver = driver()?;
        // SAFETY: the device is one of the library's list, or that of an open context.
        unsafe { (driver.is_supported)(device) }.then_some(driver)
    }

    /// A queue pair that takes entries beside work requests, as `init` says. What it can do comes back in `init`.
    ///
    /// # Safety
    /// What `init` names must be of the open context.
    pub(super) unsafe fn create(
        &'static self,
        context: *mut Context,
        domain: *mut ProtectionDomain,
        init: &mut QueuePairInit,
    ) -> Option<(NonNull<QueuePairHandle>, Entries)> {
        let mut extended = ExtendedInit {
            qp_context: init.qp_context,
            send_cq: init.send_cq,
            recv_cq: init.recv_cq,
            srq: init.srq,
            cap: init.cap.clone(),
            qp_type: init.qp_type,
            sq_sig_all: init.sq_sig_all,
            comp_mask: INIT_DOMAIN,
            pd: domain,
            xrcd: null_mut(),
            create_flags: 0,
            max_tso_header: 0,
            rwq_ind_tbl: null_mut(),
            rx_hash_conf: HashConfiguration {
                rx_hash_function: 0,
                rx_hash_key_len: 0,
                rx_hash_key: null_mut(),
                rx_hash_fields_mask: 0,
            },
            source_qpn: 0,
            send_ops_flags: 0,
        };
        let mut ours = DriverInit {
            comp_mask: DRIVER_INIT_CREATE_FLAGS | DRIVER_INIT_SEND_OPS,
            // The driver takes short answers out of completions only of opcodes that it knows.
            create_flags: CREATE_WITHOUT_SCATTER_TO_CQE,
            dc_init_attr: [0; 2],
            send_ops_flags: WITH_RAW_ENTRIES,
        };
        // SAFETY: both orders are ours, and what they name is of this context by the caller's word.
        let pair = NonNull::new(unsafe { (self.create_qp)(context, &raw mut extended, &raw mut ours) })?;
        init.cap = extended.cap;
        // SAFETY: the pair was made by the driver with the flag that gives it both faces; null is checked for.
        let faces = unsafe {
            NonNull::new((self.extended)(pair.as_ptr()))
                .and_then(|extended| Some((extended, NonNull::new((self.of_extended)(extended.as_ptr()))?)))
        };
        let (extended, driver) = faces.expect("a queue pair made for entries takes them");
        Some((pair, Entries { extended, driver }))
    }
}

/// The face of a queue pair that takes entries; valid as long as the pair.
pub(crate) struct Entries {
    extended: NonNull<ExtendedQueuePair>,
    driver: NonNull<DriverQueuePair>,
}

impl Entries {
    /// Posts one entry with its own doorbell. Its completion carries `number`.
    ///
    /// # Safety
    /// The queue pair must be there; where the entry's answer goes must stay there until it is done or the pair
    /// destroyed.
    #[inline]
    pub(super) unsafe fn post(&self, number: u64, entry: &Entry) -> bool {
        let (extended, driver) = (self.extended.as_ptr(), self.driver.as_ptr());
        // SAFETY: both are faces of a pair that is there. The functions were filled in when it was made; the entry is
        // copied, as many bytes of it as it says, which are fewer than it has.
        unsafe {
            ((*extended).wr_start.expect("filled in when made"))(extended);
            (*extended).wr_id = number;
            ((*driver).wr_raw_wqe.expect("filled in when made"))(driver, entry.as_ptr().cast());
            ((*extended).wr_complete.expect("filled in when made"))(extended) == 0
        }
    }
}

/// The driver's library, loaded at the first call; `None` if it is not there or lacks a function.
fn driver() -> Option<&'static Driver> {
    #[cfg(not(feature = "rdma"))]
    return None;
    #[cfg(feature = "rdma")]
    {
        // Never unloaded, as libibverbs.
        static DRIVER: OnceLock<Option<(Driver, libloading::Library)>> = OnceLock::new();
        let loaded = DRIVER.get_or_init(|| {
            // SAFETY: the library's initialisation does nothing that others would have to prepare for.
            let library = unsafe { libloading::Library::new("libmlx5.so.1") }.ok()?;
            let found = Driver::find(&library).inspect_err(|error| tracing::debug!("libmlx5.so.1: {error}"));
            Some((found.ok()?, library))
        });
        loaded.as_ref().map(|(driver, _)| driver)
    }
}
