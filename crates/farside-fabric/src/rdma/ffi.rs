//! The part of libibverbs that is used: layouts, numbers, and functions found at run time.
//!
//! Nothing is linked: the library is loaded when a device is asked for first, and a machine without it
//! builds and runs everything else. Posting and polling are no functions of the library but pointers in
//! its structures ([`ContextOps`]), so the layouts matter; a test compares every one of them with the C
//! headers, where there are any.

use core::ffi::{c_char, c_int, c_uint, c_void};
#[cfg(feature = "rdma")]
use std::sync::OnceLock;

use super::error::RdmaError;

/// Opaque to us.
#[repr(C)]
pub(crate) struct DeviceHandle([u8; 0]);
/// Opaque to us.
#[repr(C)]
pub(crate) struct ProtectionDomain([u8; 0]);
/// Opaque to us.
#[repr(C)]
pub(crate) struct CompletionQueueHandle([u8; 0]);

/// Opaque to us.
#[repr(C)]
pub(crate) struct SharedReceivesHandle([u8; 0]);

/// `ibv_context_ops`: what is no function of the library.
#[repr(C)]
pub(crate) struct ContextOps {
    before_poll: [*const c_void; 11],
    pub(crate) poll_cq: Option<unsafe extern "C" fn(*mut CompletionQueueHandle, c_int, *mut WorkCompletion) -> c_int>,
    pub(crate) req_notify_cq: Option<unsafe extern "C" fn(*mut CompletionQueueHandle, c_int) -> c_int>,
    before_shared: [*const c_void; 7],
    pub(crate) post_srq_recv:
        Option<unsafe extern "C" fn(*mut SharedReceivesHandle, *mut ReceiveRequest, *mut *mut ReceiveRequest) -> c_int>,
    before_post: [*const c_void; 4],
    pub(crate) post_send:
        Option<unsafe extern "C" fn(*mut QueuePairHandle, *mut SendRequest, *mut *mut SendRequest) -> c_int>,
    pub(crate) post_recv: *const c_void,
    after_post: [*const c_void; 5],
}

/// The beginning of `ibv_context`.
#[repr(C)]
pub(crate) struct Context {
    pub(crate) device: *mut DeviceHandle,
    pub(crate) ops: ContextOps,
}

/// `ibv_comp_channel`.
#[repr(C)]
pub(crate) struct CompletionChannel {
    pub(crate) context: *mut Context,
    pub(crate) fd: c_int,
    pub(crate) refcnt: c_int,
}

/// The beginning of `ibv_qp`.
#[repr(C)]
pub(crate) struct QueuePairHandle {
    pub(crate) context: *mut Context,
    pub(crate) qp_context: *mut c_void,
    pub(crate) pd: *mut ProtectionDomain,
    pub(crate) send_cq: *mut CompletionQueueHandle,
    pub(crate) recv_cq: *mut CompletionQueueHandle,
    pub(crate) srq: *mut SharedReceivesHandle,
    pub(crate) handle: u32,
    pub(crate) qp_num: u32,
}

/// `ibv_mr`.
#[repr(C)]
pub(crate) struct MemoryRegionHandle {
    pub(crate) context: *mut Context,
    pub(crate) pd: *mut ProtectionDomain,
    pub(crate) addr: *mut c_void,
    pub(crate) length: usize,
    pub(crate) handle: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

/// `ibv_device_attr`.
#[repr(C)]
#[derive(Clone)]
pub(crate) struct DeviceAttributes {
    pub(crate) fw_ver: [c_char; 64],
    pub(crate) node_guid: u64,
    pub(crate) sys_image_guid: u64,
    pub(crate) max_mr_size: u64,
    pub(crate) page_size_cap: u64,
    pub(crate) vendor_id: u32,
    pub(crate) vendor_part_id: u32,
    pub(crate) hw_ver: u32,
    pub(crate) max_qp: c_int,
    pub(crate) max_qp_wr: c_int,
    pub(crate) device_cap_flags: c_uint,
    pub(crate) max_sge: c_int,
    pub(crate) max_sge_rd: c_int,
    pub(crate) max_cq: c_int,
    pub(crate) max_cqe: c_int,
    pub(crate) max_mr: c_int,
    pub(crate) max_pd: c_int,
    pub(crate) max_qp_rd_atom: c_int,
    pub(crate) max_ee_rd_atom: c_int,
    pub(crate) max_res_rd_atom: c_int,
    pub(crate) max_qp_init_rd_atom: c_int,
    pub(crate) max_ee_init_rd_atom: c_int,
    pub(crate) atomic_cap: c_uint,
    pub(crate) max_ee: c_int,
    pub(crate) max_rdd: c_int,
    pub(crate) max_mw: c_int,
    pub max_raw_ipv6_qp: c_int,
    pub(crate) max_raw_ethy_qp: c_int,
    pub(crate) max_mcast_grp: c_int,
    pub(crate) max_mcast_qp_attach: c_int,
    pub(crate) max_total_mcast_qp_attach: c_int,
    pub(crate) max_ah: c_int,
    pub(crate) max_fmr: c_int,
    pub(crate) max_map_per_fmr: c_int,
    pub(crate) max_srq: c_int,
    pub(crate) max_srq_wr: c_int,
    pub(crate) max_srq_sge: c_int,
    pub(crate) max_pkeys: u16,
    pub(crate) local_ca_ack_delay: u8,
    pub(crate) phys_port_cnt: u8,
}

/// `ibv_port_attr`. Older libraries fill in all but the last field.
#[repr(C)]
#[derive(Clone)]
pub(crate) struct PortAttributes {
    pub(crate) state: c_uint,
    pub(crate) max_mtu: c_uint,
    pub(crate) active_mtu: c_uint,
    pub(crate) gid_tbl_len: c_int,
    pub(crate) port_cap_flags: u32,
    pub(crate) max_msg_sz: u32,
    pub(crate) bad_pkey_cntr: u32,
    pub(crate) qkey_viol_cntr: u32,
    pub(crate) pkey_tbl_len: u16,
    pub(crate) lid: u16,
    pub(crate) sm_lid: u16,
    pub(crate) lmc: u8,
    pub(crate) max_vl_num: u8,
    pub(crate) sm_sl: u8,
    pub(crate) subnet_timeout: u8,
    pub(crate) init_type_reply: u8,
    pub(crate) active_width: u8,
    pub(crate) active_speed: u8,
    pub(crate) phys_state: u8,
    pub(crate) link_layer: u8,
    pub(crate) flags: u8,
    pub port_cap_flags2: u16,
}

/// `ibv_gid`, as bytes.
#[repr(C, align(8))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Gid(pub(crate) [u8; 16]);

/// `ibv_global_route`.
#[repr(C)]
#[derive(Clone)]
pub(crate) struct GlobalRoute {
    pub(crate) dgid: Gid,
    pub(crate) flow_label: u32,
    pub(crate) sgid_index: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
}

/// `ibv_ah_attr`.
#[repr(C)]
#[derive(Clone)]
pub(crate) struct AddressAttributes {
    pub(crate) grh: GlobalRoute,
    pub(crate) dlid: u16,
    pub(crate) sl: u8,
    pub(crate) src_path_bits: u8,
    pub(crate) static_rate: u8,
    pub(crate) is_global: u8,
    pub(crate) port_num: u8,
}

/// `ibv_qp_cap`.
#[repr(C)]
#[derive(Clone)]
pub(crate) struct QueuePairCapacity {
    pub(crate) max_send_wr: u32,
    pub(crate) max_recv_wr: u32,
    pub(crate) max_send_sge: u32,
    pub(crate) max_recv_sge: u32,
    pub(crate) max_inline_data: u32,
}

/// `ibv_qp_init_attr`.
#[repr(C)]
pub(crate) struct QueuePairInit {
    pub(crate) qp_context: *mut c_void,
    pub(crate) send_cq: *mut CompletionQueueHandle,
    pub(crate) recv_cq: *mut CompletionQueueHandle,
    pub(crate) srq: *mut SharedReceivesHandle,
    pub(crate) cap: QueuePairCapacity,
    pub(crate) qp_type: c_uint,
    pub(crate) sq_sig_all: c_int,
}

/// `ibv_srq_init_attr`.
#[repr(C)]
pub(crate) struct SharedReceivesInit {
    pub(crate) srq_context: *mut c_void,
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) srq_limit: u32,
}

/// `ibv_recv_wr`.
#[repr(C)]
pub(crate) struct ReceiveRequest {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut ReceiveRequest,
    pub(crate) sg_list: *mut ScatterGather,
    pub(crate) num_sge: c_int,
}

/// `ibv_qp_attr`.
#[repr(C)]
#[derive(Clone)]
pub(crate) struct QueuePairAttributes {
    pub(crate) qp_state: c_uint,
    pub(crate) cur_qp_state: c_uint,
    pub(crate) path_mtu: c_uint,
    pub(crate) path_mig_state: c_uint,
    pub(crate) qkey: u32,
    pub(crate) rq_psn: u32,
    pub(crate) sq_psn: u32,
    pub(crate) dest_qp_num: u32,
    pub(crate) qp_access_flags: c_uint,
    pub(crate) cap: QueuePairCapacity,
    pub(crate) ah_attr: AddressAttributes,
    pub(crate) alt_ah_attr: AddressAttributes,
    pub(crate) pkey_index: u16,
    pub(crate) alt_pkey_index: u16,
    pub(crate) en_sqd_async_notify: u8,
    pub(crate) sq_draining: u8,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) port_num: u8,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) alt_port_num: u8,
    pub(crate) alt_timeout: u8,
    pub(crate) rate_limit: u32,
}

/// `ibv_sge`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScatterGather {
    pub(crate) addr: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

/// `ibv_send_wr`, with the union of its operands laid out for atomics: READ and WRITE have their key where atomics
/// have the first operand (see [`SendRequest::one_sided`]).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendRequest {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut SendRequest,
    pub(crate) sg_list: *mut ScatterGather,
    pub(crate) num_sge: c_int,
    pub(crate) opcode: c_uint,
    pub(crate) send_flags: c_uint,
    pub(crate) imm_data: u32,
    pub(crate) remote_addr: u64,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
    pub(crate) atomic_rkey: u32,
    pub(crate) remote_srqn: [u32; 3],
    pub(crate) bind_mw: [u64; 6],
}

impl SendRequest {
    /// A READ or WRITE.
    pub(crate) fn one_sided(opcode: c_uint, remote_addr: u64, rkey: u32) -> Self {
        // `wr.rdma.rkey` lies in the first half of `wr.atomic.compare_add`.
        Self::atomic(opcode, remote_addr, rkey, u64::from(rkey), 0)
    }

    /// A compare-and-swap or a fetch-and-add, whose addend is the first operand.
    pub(crate) fn atomic(opcode: c_uint, remote_addr: u64, rkey: u32, compare_add: u64, swap: u64) -> Self {
        Self {
            wr_id: 0,
            next: core::ptr::null_mut(),
            sg_list: core::ptr::null_mut(),
            num_sge: 0,
            opcode,
            send_flags: 0,
            imm_data: 0,
            remote_addr,
            compare_add,
            swap,
            atomic_rkey: rkey,
            remote_srqn: [0; 3],
            bind_mw: [0; 6],
        }
    }
}

/// `ibv_wc`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct WorkCompletion {
    pub(crate) wr_id: u64,
    pub(crate) status: c_uint,
    pub(crate) opcode: c_uint,
    pub(crate) vendor_err: u32,
    pub(crate) byte_len: u32,
    pub(crate) imm_data: u32,
    pub(crate) qp_num: u32,
    pub(crate) src_qp: u32,
    pub(crate) wc_flags: c_uint,
    pub(crate) pkey_index: u16,
    pub(crate) slid: u16,
    pub(crate) sl: u8,
    pub(crate) dlid_path_bits: u8,
}

pub(crate) const ACCESS_LOCAL_WRITE: c_int = 1;
pub(crate) const ACCESS_REMOTE_WRITE: c_int = 2;
pub(crate) const ACCESS_REMOTE_READ: c_int = 4;
pub(crate) const ACCESS_REMOTE_ATOMIC: c_int = 8;

pub(crate) const QP_TYPE_RC: c_uint = 2;
pub(crate) const QP_STATE_INIT: c_uint = 1;
pub(crate) const QP_STATE_RTR: c_uint = 2;
pub(crate) const QP_STATE_RTS: c_uint = 3;
pub(crate) const QP_STATE_ERROR: c_uint = 6;

pub(crate) const MASK_STATE: c_int = 1;
pub(crate) const MASK_ACCESS_FLAGS: c_int = 1 << 3;
pub(crate) const MASK_PKEY_INDEX: c_int = 1 << 4;
pub(crate) const MASK_PORT: c_int = 1 << 5;
pub(crate) const MASK_AV: c_int = 1 << 7;
pub(crate) const MASK_PATH_MTU: c_int = 1 << 8;
pub(crate) const MASK_TIMEOUT: c_int = 1 << 9;
pub(crate) const MASK_RETRY_CNT: c_int = 1 << 10;
pub(crate) const MASK_RNR_RETRY: c_int = 1 << 11;
pub(crate) const MASK_RQ_PSN: c_int = 1 << 12;
pub(crate) const MASK_MAX_QP_RD_ATOMIC: c_int = 1 << 13;
pub(crate) const MASK_MIN_RNR_TIMER: c_int = 1 << 15;
pub(crate) const MASK_SQ_PSN: c_int = 1 << 16;
pub(crate) const MASK_MAX_DEST_RD_ATOMIC: c_int = 1 << 17;
pub(crate) const MASK_DEST_QPN: c_int = 1 << 20;

pub(crate) const OPCODE_WRITE: c_uint = 0;
pub(crate) const OPCODE_SEND: c_uint = 2;
pub(crate) const OPCODE_READ: c_uint = 4;
pub(crate) const OPCODE_COMPARE_SWAP: c_uint = 5;
pub(crate) const OPCODE_FETCH_ADD: c_uint = 6;

pub(crate) const SEND_FENCE: c_uint = 1;
pub(crate) const SEND_SIGNALED: c_uint = 2;
pub(crate) const SEND_INLINE: c_uint = 8;

pub(crate) const STATUS_SUCCESS: c_uint = 0;
pub(crate) const STATUS_LOCAL_OPERATION: c_uint = 2;
pub(crate) const STATUS_FLUSH: c_uint = 5;
pub(crate) const STATUS_REMOTE_INVALID: c_uint = 9;
pub(crate) const STATUS_REMOTE_ACCESS: c_uint = 10;
pub(crate) const STATUS_REMOTE_OPERATION: c_uint = 11;
pub(crate) const STATUS_RETRY_EXCEEDED: c_uint = 12;
pub(crate) const STATUS_RECEIVER_NOT_READY: c_uint = 13;
pub(crate) const STATUS_FATAL: c_uint = 19;

pub(crate) const PORT_ACTIVE: c_uint = 4;
pub(crate) const LINK_INFINIBAND: u8 = 1;
pub(crate) const LINK_ETHERNET: u8 = 2;
pub(crate) const ATOMIC_NONE: c_uint = 0;
/// The first and the last of `ibv_mtu`; each is twice the one before, from 256 bytes on.
pub(crate) const MTU_MIN: c_uint = 1;
pub(crate) const MTU_MAX: c_uint = 5;

/// Declares the functions of a library that are used: a field for each, found by its name. What each does is in its manual
/// page.
macro_rules! functions {
    ($(#[$meta:meta])* $type:ident {
        $($(#[$field:meta])* $name:ident: $symbol:literal, fn($($argument:ty),*) $(-> $result:ty)?;)*
    }) => {
        $(#[$meta])*
        pub(crate) struct $type {
            $($(#[$field])* pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        #[cfg(feature = "rdma")]
        impl $type {
            fn find(library: &libloading::Library) -> Result<Self, libloading::Error> {
                // SAFETY: the types are those of the library's header. It is never unloaded, so the functions stay where
                // they are.
                unsafe {
                    Ok(Self {
                        $($name: *library.get(concat!($symbol, "\0").as_bytes())?,)*
                    })
                }
            }
        }
    };
}
pub(crate) use functions;

functions! {
    /// The functions of libibverbs.
    Library {
        get_device_list: "ibv_get_device_list", fn(*mut c_int) -> *mut *mut DeviceHandle;
        free_device_list: "ibv_free_device_list", fn(*mut *mut DeviceHandle);
        get_device_name: "ibv_get_device_name", fn(*mut DeviceHandle) -> *const c_char;
        open_device: "ibv_open_device", fn(*mut DeviceHandle) -> *mut Context;
        close_device: "ibv_close_device", fn(*mut Context) -> c_int;
        query_device: "ibv_query_device", fn(*mut Context, *mut DeviceAttributes) -> c_int;
        query_port: "ibv_query_port", fn(*mut Context, u8, *mut PortAttributes) -> c_int;
        query_gid: "ibv_query_gid", fn(*mut Context, u8, c_int, *mut Gid) -> c_int;
        alloc_pd: "ibv_alloc_pd", fn(*mut Context) -> *mut ProtectionDomain;
        dealloc_pd: "ibv_dealloc_pd", fn(*mut ProtectionDomain) -> c_int;
        reg_mr: "ibv_reg_mr", fn(*mut ProtectionDomain, *mut c_void, usize, c_int) -> *mut MemoryRegionHandle;
        dereg_mr: "ibv_dereg_mr", fn(*mut MemoryRegionHandle) -> c_int;
        create_comp_channel: "ibv_create_comp_channel", fn(*mut Context) -> *mut CompletionChannel;
        destroy_comp_channel: "ibv_destroy_comp_channel", fn(*mut CompletionChannel) -> c_int;
        create_cq: "ibv_create_cq",
            fn(*mut Context, c_int, *mut c_void, *mut CompletionChannel, c_int) -> *mut CompletionQueueHandle;
        destroy_cq: "ibv_destroy_cq", fn(*mut CompletionQueueHandle) -> c_int;
        get_cq_event: "ibv_get_cq_event",
            fn(*mut CompletionChannel, *mut *mut CompletionQueueHandle, *mut *mut c_void) -> c_int;
        ack_cq_events: "ibv_ack_cq_events", fn(*mut CompletionQueueHandle, c_uint);
        create_srq: "ibv_create_srq",
            fn(*mut ProtectionDomain, *mut SharedReceivesInit) -> *mut SharedReceivesHandle;
        destroy_srq: "ibv_destroy_srq", fn(*mut SharedReceivesHandle) -> c_int;
        create_qp: "ibv_create_qp", fn(*mut ProtectionDomain, *mut QueuePairInit) -> *mut QueuePairHandle;
        modify_qp: "ibv_modify_qp", fn(*mut QueuePairHandle, *mut QueuePairAttributes, c_int) -> c_int;
        destroy_qp: "ibv_destroy_qp", fn(*mut QueuePairHandle) -> c_int;
    }
}

/// The library, loaded at the first call.
///
/// # Errors
/// [`RdmaError::Library`] if it is not there; [`RdmaError::Disabled`] in a build without it.
pub(crate) fn library() -> Result<&'static Library, RdmaError> {
    #[cfg(not(feature = "rdma"))]
    return Err(RdmaError::Disabled);
    #[cfg(feature = "rdma")]
    {
        // Never unloaded: it has threads and handlers of its own.
        static LIBRARY: OnceLock<Result<(Library, libloading::Library), String>> = OnceLock::new();
        let loaded = LIBRARY.get_or_init(|| load().map_err(|error| error.to_string()));
        match loaded {
            Ok((library, _)) => Ok(library),
            Err(reason) => Err(RdmaError::Library { reason: reason.clone() }),
        }
    }
}

#[cfg(feature = "rdma")]
fn load() -> Result<(Library, libloading::Library), libloading::Error> {
    // SAFETY: the library's initialisation does nothing that others would have to prepare for.
    let library = unsafe { libloading::Library::new("libibverbs.so.1") }?;
    Ok((Library::find(&library)?, library))
}

#[cfg(test)]
mod tests;
