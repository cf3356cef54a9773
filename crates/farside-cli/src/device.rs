//! The flags that choose an RDMA device, for every command that uses one.
//!
//! On the path: parsed once.

use clap::Args;
use farside_fabric::rdma::DeviceOptions;

/// Which device.
#[derive(Clone, Debug, Default, Args)]
pub struct DeviceArgs {
    /// The RDMA device, as `farside rdma-check` lists it [default: the first with an active port]
    #[arg(long, value_name = "NAME")]
    rdma_device: Option<String>,
    /// Its port [default: the first active one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    rdma_port: Option<u8>,
    /// The entry of the port's address table [default: the first routable one of RoCE v2; 0 on InfiniBand]
    #[arg(long, value_name = "N")]
    rdma_gid_index: Option<u8>,
    /// The largest packet: 256, 512, 1024, 2048 or 4096 bytes [default: what the port has]
    #[arg(long, value_name = "BYTES")]
    rdma_mtu: Option<u32>,
}

impl DeviceArgs {
    /// What they say.
    #[must_use]
    pub fn options(&self) -> DeviceOptions {
        let mut options = DeviceOptions::default();
        options.name.clone_from(&self.rdma_device);
        options.port = self.rdma_port;
        options.gid_index = self.rdma_gid_index;
        options.mtu = self.rdma_mtu;
        options
    }

    /// Whether one was chosen.
    #[must_use]
    pub fn is_given(&self) -> bool {
        self.options() != DeviceOptions::default()
    }
}
