//! What the command lines of the store (`farside`) and of the laboratory (`farside-lab`) have in common: one line for
//! whatever is wrong, exit statuses, logs, sizes and addresses, and the flags that choose an RDMA device.
//!
//! On the path: before anything begins, and when it has failed.

#![forbid(unsafe_code)]

mod device;
mod explain;
mod failure;
mod logging;
pub mod scalar;

pub use device::DeviceArgs;
pub use explain::{explain, one_line};
pub use failure::{Failure, chain};
pub use logging::{LogFormat, start_logging};
