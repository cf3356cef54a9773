//! Groups of mirrored nodes whose members etcd decides on: which view follows a view, who is there, and where a pool is.
//!
//! On the path: beside it. No operation of a client asks etcd; members do when a view has to change, and tools when they begin.
//!
//! What is in etcd, for a cluster NAME whose pool has nodes from 0 on, each a group of members:
//! - `/farside/NAME/nodes/N/view`: the view in force, JSON; written only by a transaction that compares the revision at which it was read;
//! - `/farside/NAME/nodes/N/members/SEGMENT`: who is there, also who waits; gone some seconds after the process.
//!
//! etcd is spoken to through its own JSON gateway, over HTTP/1.1: a client for its gRPC would need `protoc` to build and bring about a
//! hundred packages, for five kinds of request.

#![forbid(unsafe_code)]

mod client;
mod directory;
mod enter;
mod keys;
mod lineage;
mod membership;
mod name;
mod wire;

pub use client::EtcdError;
pub use directory::{Cluster, FindError, Node, find};
pub use enter::{Candidate, EnterError, enter};
pub use keys::{Registration, RoleOfView};
pub use membership::Asker;
pub use name::{ClusterName, NameError};
