//! Compares every layout and number with the C headers: a C program prints what they say.

use core::mem::offset_of;
use std::fmt::Write as _;
use std::process::Command;

use super::super::mlx5::{
    CONTROL_ANNOUNCE, CONTROL_FENCE, CREATE_WITHOUT_SCATTER_TO_CQE, DRIVER_INIT_CREATE_FLAGS, DRIVER_INIT_SEND_OPS,
    DriverInit, DriverQueuePair, ExtendedInit, ExtendedQueuePair, HashConfiguration, INIT_DOMAIN, OPCODE_MASKED_ADD,
    OPCODE_MASKED_SWAP, WITH_RAW_ENTRIES,
};
use super::*;

/// One line for each size, offset and number: what C calls it, and what it is here.
struct Facts(Vec<(String, u64)>);

/// Sizes and offsets of a structure. A type of which only the beginning is declared here has no size.
macro_rules! layout {
    ($facts:ident, $ours:ty, $theirs:literal $(, size $size:ident)? ; $($field:ident = $name:literal),* $(,)?) => {
        $($facts.$size(concat!("sizeof(struct ", $theirs, ")"), size_of::<$ours>());)?
        $($facts.is(concat!("offsetof(struct ", $theirs, ", ", $name, ")"), offset_of!($ours, $field));)*
    };
}

/// The same, for fields whose names are the same in both languages.
macro_rules! same_names {
    ($facts:ident, $ours:ty, $theirs:literal; $($field:ident),* $(,)?) => {
        $facts.is(concat!("sizeof(struct ", $theirs, ")"), size_of::<$ours>());
        $($facts.is(concat!("offsetof(struct ", $theirs, ", ", stringify!($field), ")"), offset_of!($ours, $field));)*
    };
}

impl Facts {
    fn is(&mut self, expression: &str, value: usize) {
        self.0.push((expression.to_owned(), value as u64));
    }

    fn number(&mut self, expression: &str, value: impl Into<i64>) {
        self.0.push((expression.to_owned(), value.into() as u64));
    }
}

fn facts() -> Facts {
    let mut facts = Facts(Vec::new());
    layout!(facts, Context, "ibv_context"; device = "device", ops = "ops");
    layout!(facts, ContextOps, "ibv_context_ops", size is;
        poll_cq = "poll_cq", req_notify_cq = "req_notify_cq", post_srq_recv = "post_srq_recv", post_send = "post_send",
        post_recv = "post_recv");
    same_names!(facts, CompletionChannel, "ibv_comp_channel"; context, fd, refcnt);
    layout!(facts, QueuePairHandle, "ibv_qp"; context = "context", qp_context = "qp_context", pd = "pd",
        send_cq = "send_cq", recv_cq = "recv_cq", srq = "srq", handle = "handle", qp_num = "qp_num");
    same_names!(facts, MemoryRegionHandle, "ibv_mr"; context, pd, addr, length, handle, lkey, rkey);
    same_names!(facts, DeviceAttributes, "ibv_device_attr"; fw_ver, node_guid, sys_image_guid, max_mr_size, page_size_cap,
        vendor_id, vendor_part_id, hw_ver, max_qp, max_qp_wr, device_cap_flags, max_sge, max_sge_rd, max_cq, max_cqe,
        max_mr, max_pd, max_qp_rd_atom, max_ee_rd_atom, max_res_rd_atom, max_qp_init_rd_atom, max_ee_init_rd_atom,
        atomic_cap, max_ee, max_rdd, max_mw, max_raw_ipv6_qp, max_raw_ethy_qp, max_mcast_grp, max_mcast_qp_attach,
        max_total_mcast_qp_attach, max_ah, max_fmr, max_map_per_fmr, max_srq, max_srq_wr, max_srq_sge, max_pkeys,
        local_ca_ack_delay, phys_port_cnt);
    same_names!(facts, PortAttributes, "ibv_port_attr"; state, max_mtu, active_mtu, gid_tbl_len, port_cap_flags,
        max_msg_sz, bad_pkey_cntr, qkey_viol_cntr, pkey_tbl_len, lid, sm_lid, lmc, max_vl_num, sm_sl, subnet_timeout,
        init_type_reply, active_width, active_speed, phys_state, link_layer, flags, port_cap_flags2);
    same_names!(facts, GlobalRoute, "ibv_global_route"; dgid, flow_label, sgid_index, hop_limit, traffic_class);
    same_names!(facts, AddressAttributes, "ibv_ah_attr"; grh, dlid, sl, src_path_bits, static_rate, is_global, port_num);
    same_names!(facts, QueuePairCapacity, "ibv_qp_cap"; max_send_wr, max_recv_wr, max_send_sge, max_recv_sge,
        max_inline_data);
    layout!(facts, SharedReceivesInit, "ibv_srq_init_attr", size is; srq_context = "srq_context", max_wr = "attr.max_wr",
        max_sge = "attr.max_sge", srq_limit = "attr.srq_limit");
    same_names!(facts, ReceiveRequest, "ibv_recv_wr"; wr_id, next, sg_list, num_sge);
    same_names!(facts, QueuePairInit, "ibv_qp_init_attr"; qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all);
    same_names!(facts, QueuePairAttributes, "ibv_qp_attr"; qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn,
        sq_psn, dest_qp_num, qp_access_flags, cap, ah_attr, alt_ah_attr, pkey_index, alt_pkey_index, en_sqd_async_notify,
        sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry,
        alt_port_num, alt_timeout, rate_limit);
    same_names!(facts, ScatterGather, "ibv_sge"; addr, length, lkey);
    same_names!(facts, WorkCompletion, "ibv_wc"; wr_id, status, opcode, vendor_err, byte_len, imm_data, qp_num, src_qp,
        wc_flags, pkey_index, slid, sl, dlid_path_bits);
    layout!(facts, SendRequest, "ibv_send_wr", size is; wr_id = "wr_id", next = "next", sg_list = "sg_list",
        num_sge = "num_sge", opcode = "opcode", send_flags = "send_flags", imm_data = "imm_data",
        remote_addr = "wr.atomic.remote_addr", compare_add = "wr.atomic.compare_add", swap = "wr.atomic.swap",
        atomic_rkey = "wr.atomic.rkey", bind_mw = "bind_mw", remote_addr = "wr.rdma.remote_addr",
        compare_add = "wr.rdma.rkey");
    same_names!(facts, HashConfiguration, "ibv_rx_hash_conf"; rx_hash_function, rx_hash_key_len, rx_hash_key,
        rx_hash_fields_mask);
    same_names!(facts, ExtendedInit, "ibv_qp_init_attr_ex"; qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all,
        comp_mask, pd, xrcd, create_flags, max_tso_header, rwq_ind_tbl, rx_hash_conf, source_qpn, send_ops_flags);
    same_names!(facts, DriverInit, "mlx5dv_qp_init_attr"; comp_mask, create_flags, dc_init_attr, send_ops_flags);
    layout!(facts, ExtendedQueuePair, "ibv_qp_ex"; comp_mask = "comp_mask", wr_id = "wr_id", wr_flags = "wr_flags",
        wr_start = "wr_start", wr_complete = "wr_complete");
    layout!(facts, DriverQueuePair, "mlx5dv_qp_ex"; comp_mask = "comp_mask", wr_raw_wqe = "wr_raw_wqe");
    facts.number("IBV_QP_INIT_ATTR_PD", INIT_DOMAIN);
    facts.number(
        "MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS",
        DRIVER_INIT_CREATE_FLAGS as i64,
    );
    facts.number("MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS", DRIVER_INIT_SEND_OPS as i64);
    facts.number("MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE", CREATE_WITHOUT_SCATTER_TO_CQE);
    facts.number("MLX5DV_QP_EX_WITH_RAW_WQE", WITH_RAW_ENTRIES as i64);
    facts.number("MLX5_OPCODE_ATOMIC_MASKED_CS", OPCODE_MASKED_SWAP);
    facts.number("MLX5_OPCODE_ATOMIC_MASKED_FA", OPCODE_MASKED_ADD);
    facts.number("MLX5_WQE_CTRL_CQ_UPDATE", CONTROL_ANNOUNCE);
    facts.number("MLX5_WQE_CTRL_FENCE", CONTROL_FENCE);
    facts.number(
        "sizeof(struct mlx5_wqe_ctrl_seg) + sizeof(struct mlx5_wqe_raddr_seg) + sizeof(struct mlx5_wqe_data_seg)",
        48,
    );
    facts.number("offsetof(struct mlx5_wqe_ctrl_seg, fm_ce_se)", 11);
    facts.is("sizeof(union ibv_gid)", size_of::<Gid>());
    facts.is("_Alignof(union ibv_gid)", align_of::<Gid>());

    facts.number("IBV_ACCESS_LOCAL_WRITE", ACCESS_LOCAL_WRITE);
    facts.number("IBV_ACCESS_REMOTE_WRITE", ACCESS_REMOTE_WRITE);
    facts.number("IBV_ACCESS_REMOTE_READ", ACCESS_REMOTE_READ);
    facts.number("IBV_ACCESS_REMOTE_ATOMIC", ACCESS_REMOTE_ATOMIC);
    facts.number("IBV_QPT_RC", QP_TYPE_RC);
    facts.number("IBV_QPS_INIT", QP_STATE_INIT);
    facts.number("IBV_QPS_RTR", QP_STATE_RTR);
    facts.number("IBV_QPS_RTS", QP_STATE_RTS);
    facts.number("IBV_QPS_ERR", QP_STATE_ERROR);
    facts.number("IBV_QP_STATE", MASK_STATE);
    facts.number("IBV_QP_ACCESS_FLAGS", MASK_ACCESS_FLAGS);
    facts.number("IBV_QP_PKEY_INDEX", MASK_PKEY_INDEX);
    facts.number("IBV_QP_PORT", MASK_PORT);
    facts.number("IBV_QP_AV", MASK_AV);
    facts.number("IBV_QP_PATH_MTU", MASK_PATH_MTU);
    facts.number("IBV_QP_TIMEOUT", MASK_TIMEOUT);
    facts.number("IBV_QP_RETRY_CNT", MASK_RETRY_CNT);
    facts.number("IBV_QP_RNR_RETRY", MASK_RNR_RETRY);
    facts.number("IBV_QP_RQ_PSN", MASK_RQ_PSN);
    facts.number("IBV_QP_MAX_QP_RD_ATOMIC", MASK_MAX_QP_RD_ATOMIC);
    facts.number("IBV_QP_MIN_RNR_TIMER", MASK_MIN_RNR_TIMER);
    facts.number("IBV_QP_SQ_PSN", MASK_SQ_PSN);
    facts.number("IBV_QP_MAX_DEST_RD_ATOMIC", MASK_MAX_DEST_RD_ATOMIC);
    facts.number("IBV_QP_DEST_QPN", MASK_DEST_QPN);
    facts.number("IBV_WR_RDMA_WRITE", OPCODE_WRITE);
    facts.number("IBV_WR_SEND", OPCODE_SEND);
    facts.number("IBV_WR_RDMA_READ", OPCODE_READ);
    facts.number("IBV_WR_ATOMIC_CMP_AND_SWP", OPCODE_COMPARE_SWAP);
    facts.number("IBV_WR_ATOMIC_FETCH_AND_ADD", OPCODE_FETCH_ADD);
    facts.number("IBV_SEND_FENCE", SEND_FENCE);
    facts.number("IBV_SEND_SIGNALED", SEND_SIGNALED);
    facts.number("IBV_SEND_INLINE", SEND_INLINE);
    facts.number("IBV_WC_SUCCESS", STATUS_SUCCESS);
    facts.number("IBV_WC_LOC_QP_OP_ERR", STATUS_LOCAL_OPERATION);
    facts.number("IBV_WC_FATAL_ERR", STATUS_FATAL);
    facts.number("IBV_WC_WR_FLUSH_ERR", STATUS_FLUSH);
    facts.number("IBV_WC_REM_INV_REQ_ERR", STATUS_REMOTE_INVALID);
    facts.number("IBV_WC_REM_ACCESS_ERR", STATUS_REMOTE_ACCESS);
    facts.number("IBV_WC_REM_OP_ERR", STATUS_REMOTE_OPERATION);
    facts.number("IBV_WC_RETRY_EXC_ERR", STATUS_RETRY_EXCEEDED);
    facts.number("IBV_WC_RNR_RETRY_EXC_ERR", STATUS_RECEIVER_NOT_READY);
    facts.number("IBV_PORT_ACTIVE", PORT_ACTIVE);
    facts.number("IBV_LINK_LAYER_INFINIBAND", LINK_INFINIBAND);
    facts.number("IBV_LINK_LAYER_ETHERNET", LINK_ETHERNET);
    facts.number("IBV_ATOMIC_NONE", ATOMIC_NONE);
    facts.number("IBV_MTU_256", MTU_MIN);
    facts.number("IBV_MTU_4096", MTU_MAX);
    facts
}

#[test]
#[ignore = "needs a C compiler and the headers of libibverbs: cargo xtask vm-tests"]
fn rdma_layouts_are_those_of_the_headers() {
    let facts = facts();
    let mut program = String::from(
        "#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/verbs.h>\n#include <infiniband/mlx5dv.h>\nint main(void) {\n",
    );
    for (expression, _) in &facts.0 {
        writeln!(program, "printf(\"%llu\\n\", (unsigned long long)({expression}));").expect("strings take everything");
    }
    program.push_str("}\n");
    let folder = tempfile::tempdir().expect("a folder");
    let (source, binary) = (folder.path().join("layouts.c"), folder.path().join("layouts"));
    std::fs::write(&source, program).expect("room for a file");
    let compiled = Command::new("cc").arg(&source).arg("-o").arg(&binary).status();
    assert!(compiled.expect("a C compiler").success(), "the headers are there");
    let output = Command::new(&binary).output().expect("it was compiled").stdout;
    let theirs: Vec<u64> = String::from_utf8_lossy(&output)
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    assert_eq!(theirs.len(), facts.0.len());
    for ((expression, ours), theirs) in facts.0.iter().zip(theirs) {
        assert_eq!(*ours, theirs, "{expression}");
    }
}
