//! Why RDMA cannot be used: one line each, with what would be right.

use std::io;

/// A device, or something of it, cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RdmaError {
    /// The user's side of RDMA is not installed.
    #[error(
        "RDMA needs libibverbs.so.1, which cannot be loaded ({reason}): install rdma-core (Debian: libibverbs1 and \
         ibverbs-providers)"
    )]
    Library {
        /// What the loader says.
        reason: String,
    },
    /// Built without it.
    #[error("this program was built without RDMA: build it with the feature `rdma`, which is on by default")]
    Disabled,
    /// There is no device.
    #[error(
        "this machine has no RDMA device (`ibv_devices` lists none): load the driver of its card, or do without RDMA"
    )]
    NoDevice,
    /// No device has that name.
    #[error("there is no RDMA device `{name}`; there are: {known}")]
    DeviceUnknown {
        /// The name that was given.
        name: String,
        /// The names of the devices.
        known: String,
    },
    /// No port can be used.
    #[error("no port of {device} is active: check the link, or name another device")]
    NoPort {
        /// The device.
        device: String,
    },
    /// That port cannot be used.
    #[error("port {port} of {device} is not active: check the link, or name another port")]
    PortDown {
        /// The device.
        device: String,
        /// Its port.
        port: u8,
    },
    /// The port has no address under that number, or none at all.
    #[error(
        "port {port} of {device} has no address (GID) {index}: give the interface an address, or name another index"
    )]
    Gid {
        /// The device.
        device: String,
        /// Its port.
        port: u8,
        /// The entry of its table.
        index: String,
    },
    /// The MTU is none, or more than the port has.
    #[error("the MTU of {device} must be 256, 512, 1024, 2048 or 4096, and now at most {active}, not {mtu}")]
    Mtu {
        /// The device.
        device: String,
        /// What was asked for, in bytes.
        mtu: u32,
        /// What the port has, in bytes.
        active: u32,
    },
    /// The device cannot do without what everything here needs.
    #[error("{device} has no atomics, which Farside needs: name another device")]
    Atomics {
        /// The device.
        device: String,
    },
    /// Memory could not be made known to the device.
    #[error(
        "cannot register {bytes} bytes with {device}: {source}; raise the limit of locked memory (ulimit -l), and keep \
         segments on tmpfs (/dev/shm) or hugetlbfs"
    )]
    Registration {
        /// The device.
        device: String,
        /// How much memory.
        bytes: u64,
        /// What the system says.
        source: io::Error,
    },
    /// The device or its driver refused.
    #[error("{device}: failed to {action}: {source}")]
    System {
        /// The device.
        device: String,
        /// What was tried.
        action: &'static str,
        /// What the system says.
        source: io::Error,
    },
}
