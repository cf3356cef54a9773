//! The gateway: Redis clients on one side, a store in far memory on the other.
//!
//! On the path: the first thing that sees a request. It owns no data and sees no remote address; any
//! number of gateways may serve one pool.
//!
//! - `guard` finds where a command ends and bounds what a peer can make us keep;
//! - `request` and `reply` are the two directions of the protocol: arguments where they arrived, and frames made in place;
//! - `lookahead` takes GETs, or SETs, that stand one behind the other in a burst all at once;
//! - `command` is the table of what there is, and one function for each; `acl` says who may give which;
//! - `bits`, `hyperloglog` and `lcs` are what some commands do with the bytes of values, without the protocol;
//! - `listener`, `stream` and `tls` are the sockets, which are one type to everything above them;
//! - `connection` runs one client: read a burst, execute it in order, write once;
//! - `statistics`, `latency` and `hotkeys` count beside the commands; `observer` looks at the counts, `report` and
//!   [`metrics`] tell them, [`mirrors`] asks the members of mirrored nodes;
//! - `live` is what changes while it runs: who is connected (`roster`), who watches (`monitor`), what was
//!   slow (`slow_log`), which scripts were loaded, and the settings that CONFIG SET changes;
//! - `worker` is a thread with its own store, `server` the threads and the acceptor.

#![forbid(unsafe_code)]

mod acl;
mod bits;
mod client;
mod command;
mod connection;
mod context;
mod glob;
mod guard;
mod hotkeys;
mod hyperloglog;
mod large;
mod latency;
mod lcs;
mod listener;
mod live;
mod lookahead;
pub mod metrics;
pub mod mirrors;
mod monitor;
mod observer;
mod password;
mod pause;
mod queue;
mod replace;
mod reply;
pub mod report;
mod request;
mod roster;
mod server;
mod slow_log;
mod statistics;
mod stream;
mod tls;
mod tls_client;
mod worker;

pub use acl::{AclError, Users};
#[cfg(fuzzing)]
#[doc(hidden)]
pub use connection::fuzzing;
pub use hotkeys::HotKey;
pub use latency::Latencies;
pub use listener::Listener;
pub use live::LiveSettings;
pub use mirrors::{MemberReport, MirrorReport};
pub use observer::{NotReady, Observer};
pub use password::{Password, PasswordError};
pub use replace::replace_file;
pub use report::{IndexReport, NodeReport, Place, PoolReport, Report};
pub use server::{Gateway, GatewayError, GatewayOptions, SettingsFile, require_password_unless_loopback};
pub use statistics::Counts;
pub use tls::{Tls, TlsError, TlsFiles};
pub use tls_client::{TlsClient, TlsClientFiles, TlsStream};

/// The Redis version whose replies and error texts the gateway gives.
pub const REDIS_VERSION: &str = "7.0.15";

/// The name and one line about every command there is.
pub fn commands() -> impl Iterator<Item = (&'static str, &'static str)> {
    command::table::TABLE
        .iter()
        .map(|command| (command.name, command.summary))
}
