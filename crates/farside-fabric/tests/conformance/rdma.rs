//! The suite over RDMA, with clients and nodes on the same device. `cargo xtask vm-tests` runs it where there is one.

use std::sync::Arc;

use farside_fabric::rdma::{Device, DeviceOptions};

use crate::fixture::Fixture;
use crate::tcp::{Reach, TcpCluster, run};

/// All nodes are reached by RDMA.
pub(crate) struct Rdma;

/// Node 1 is, node 0 is not.
pub(crate) struct RdmaAndTcp;

fn device() -> Arc<Device> {
    Device::open(&DeviceOptions::default()).expect("an RDMA device")
}

impl Fixture for Rdma {
    type Cluster = TcpCluster;

    fn run<F>(nodes: u16, node_bytes: u64, body: F)
    where
        F: AsyncFnOnce(TcpCluster) + 'static,
    {
        let device = device();
        run(nodes, node_bytes, |_| Reach::Rdma(device.clone()), body);
    }
}

impl Fixture for RdmaAndTcp {
    type Cluster = TcpCluster;

    fn run<F>(nodes: u16, node_bytes: u64, body: F)
    where
        F: AsyncFnOnce(TcpCluster) + 'static,
    {
        let device = device();
        let reach = |index| match index {
            1 => Reach::Rdma(device.clone()),
            _ => Reach::Connection,
        };
        run(nodes, node_bytes, reach, body);
    }
}
